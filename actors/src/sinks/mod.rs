//! Where the events of watch rules go.
//!
//! A sink takes one batch at a time and answers when it has it for good. What it does not take it is
//! given once more, so it may have had a part of it: everything in an event stays the same, and its
//! sequence tells. What a sink does beside that is its own; it is never called twice at a time, and
//! never on an arbiter.

mod body;
mod git;
mod log;
mod mqtt;

use std::time::Duration;

use futures::future::BoxFuture;
use muster_core::rule_events::Event;
use muster_metrics::Metric;

pub use git::GitSinks;
pub use log::{LogSinks, LogTarget};
pub use mqtt::MqttSinks;

/// What is recorded of sinks.
pub const METRICS: &[Metric] = git::METRICS;

/// A Secret, as group and resource.
const SECRETS: (&str, &str) = ("", "secrets");

/// Why sinks that write objects as they are take no Secrets.
const PLAIN_SECRETS: &str = "it would write a Secret unencrypted, which the settings of the sink do \
     not allow (plain_secrets)";

/// What a sink refuses that writes objects as they are.
fn refused_in_plain(plain_secrets: bool) -> Vec<((&'static str, &'static str), &'static str)> {
    let refused = (!plain_secrets).then_some((SECRETS, PLAIN_SECRETS));
    refused.into_iter().collect()
}

/// Takes events.
pub trait Sink: Send + 'static {
    /// Takes these events, in this order.
    ///
    /// # Errors
    ///
    /// Why it did not; the text is for people. The same events come again after a pause.
    fn deliver<'a>(&'a mut self, events: &'a [Event]) -> BoxFuture<'a, Result<(), SinkError>>;

    /// How long the first event of a batch waits for others, where a batch costs much more than an
    /// event; a full batch does not wait.
    fn window(&self) -> Duration {
        Duration::ZERO
    }
}

/// Why a sink did not take events.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct SinkError {
    /// For people.
    pub text: String,
    /// The sink has lost what it had: it has to be told everything anew.
    pub lost: bool,
}

impl SinkError {
    /// A failure after which the sink has what it had before.
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            lost: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::rules::SinkMaker as _;

    #[test]
    fn sinks_that_write_objects_as_they_are_refuse_secrets_unless_they_may() {
        let log = || LogSinks::new(LogTarget::Stdout);
        let mqtt = || MqttSinks::new("t", BTreeMap::new());
        let refused = vec![(("", "secrets"), PLAIN_SECRETS)];
        assert_eq!(
            (log().refuses(), mqtt().refuses()),
            (refused.clone(), refused)
        );
        assert_eq!(log().plain_secrets(true).refuses(), []);
        assert_eq!(mqtt().plain_secrets(true).refuses(), []);
    }
}
