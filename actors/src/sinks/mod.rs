//! Where the events of watch rules go.
//!
//! A sink takes one batch at a time and answers when it has it for good. What it does not take it is
//! given once more, so it may have had a part of it: everything in an event stays the same, and its
//! sequence tells. What a sink does beside that is its own; it is never called twice at a time, and
//! never on an arbiter.

mod log;
mod mqtt;

use futures::future::BoxFuture;
use muster_core::rule_events::Event;

pub use log::{LogSink, LogTarget};
pub use mqtt::MqttSink;

/// Takes events.
pub trait Sink: Send + 'static {
    /// Takes these events, in this order.
    ///
    /// # Errors
    ///
    /// Why it did not; the text is for people. The same events come again after a pause.
    fn deliver<'a>(&'a mut self, events: &'a [Event]) -> BoxFuture<'a, Result<(), SinkError>>;
}

/// Why a sink did not take events.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SinkError(pub String);
