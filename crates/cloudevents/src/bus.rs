//! How messages get from one to the other, whatever carries them.
//!
//! A [`Bus`] gives a [`Connection`]: a [`Publisher`] and what happens on it. A driver keeps the
//! connection up for as long as its receiver is held: it connects, subscribes, and begins again with
//! a growing pause when that ends. What was sent meanwhile is lost: after each
//! [`Subscribed`](BusEvent::Subscribed) both sides have to ask what they have missed.

pub mod loopback;
pub mod mqtt;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::mpsc;

pub use loopback::Loopback;
pub use mqtt::{Mqtt, MqttOptions};

use crate::{Message, Outgoing};

/// Messages that a driver gets ahead of whoever handles them. Brokers hold back what is beyond.
pub const AHEAD: usize = 100;

/// What carries messages.
pub trait Bus: Send + Sync {
    /// Opens a connection and keeps it up. Has to be called on the runtime that is to carry it.
    fn open(&self, session: Session) -> Connection;
}

/// What one side wants of its connection.
#[derive(Debug, Clone, Default)]
pub struct Session {
    /// The topics that it listens to.
    pub filters: Vec<String>,
    /// What is to be published for it, retained, once it is gone.
    pub will: Option<Outgoing>,
}

/// A connection. Ends when `events` is dropped.
#[derive(Debug)]
pub struct Connection {
    /// Sends.
    pub publisher: Publisher,
    /// What happens, in order.
    pub events: mpsc::Receiver<BusEvent>,
}

/// Something happened.
#[derive(Debug)]
pub enum BusEvent {
    /// All filters are subscribed to, from now on and anew.
    Subscribed,
    /// A message came.
    Message(Delivery),
    /// The connection is gone.
    Lost {
        /// Why.
        reason: String,
        /// When it is tried again.
        retry_in: Duration,
    },
}

/// A message that came. It counts as received once this is dropped.
pub struct Delivery {
    /// Where it was published.
    pub topic: String,
    /// What it is.
    pub message: Message,
    done: Option<Box<dyn FnOnce() + Send>>,
}

impl Delivery {
    /// A message, and what is to be done when it has been handled.
    pub fn new(topic: String, message: Message, done: Option<Box<dyn FnOnce() + Send>>) -> Self {
        Self {
            topic,
            message,
            done,
        }
    }

    /// Takes out the message; the delivery stays open.
    pub fn take(&mut self) -> Message {
        std::mem::take(&mut self.message)
    }
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("topic", &self.topic)
            .field("bytes", &self.message.payload.len())
            .finish_non_exhaustive()
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        if let Some(done) = self.done.take() {
            done();
        }
    }
}

/// Why a message did not get to the broker, as far as is known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// There is no connection.
    #[error("the cloudevents client is not ready")]
    NotConnected,
    /// The connection ended before the broker had said that it has it: it may, or may not.
    #[error("the connection to the broker ended before it acknowledged the message")]
    Lost,
    /// The broker has not said in time that it has it.
    #[error("the broker did not acknowledge the message within {0:?}")]
    TimedOut(Duration),
    /// The broker does not want it.
    #[error("the broker refused the message for {topic}: {reason}")]
    Refused {
        /// Where it was to go.
        topic: String,
        /// What the broker says.
        reason: String,
        /// Whether it will say so again, as long as the message is the same.
        for_good: bool,
    },
    /// The broker takes no message of this size.
    #[error("the message for {topic} has {bytes} bytes, and the broker takes {most}")]
    TooLarge {
        /// Where it was to go.
        topic: String,
        /// Its size.
        bytes: usize,
        /// The largest that the broker takes, as far as is known.
        most: usize,
    },
    /// It cannot be put into a packet.
    #[error("the message for {topic} cannot be sent: {error}")]
    Malformed {
        /// Where it was to go.
        topic: String,
        /// What is wrong.
        error: String,
    },
}

impl PublishError {
    /// Whether the same message would fail again on another connection.
    pub const fn is_final(&self) -> bool {
        matches!(
            self,
            Self::TooLarge { .. } | Self::Malformed { .. } | Self::Refused { for_good: true, .. }
        )
    }

    /// Whether the message failed with its connection, which says that itself.
    pub const fn is_of_connection(&self) -> bool {
        matches!(self, Self::NotConnected | Self::Lost | Self::TimedOut(_))
    }

    /// A word for the reason, for metrics.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::NotConnected => "not_connected",
            Self::Lost => "lost",
            Self::TimedOut(_) => "timeout",
            Self::Refused { .. } => "refused",
            Self::TooLarge { .. } => "too_large",
            Self::Malformed { .. } => "malformed",
        }
    }
}

/// What a driver publishes with.
pub trait Publish: Send + Sync {
    /// Publishes; done when the broker has it.
    fn publish(&self, outgoing: Outgoing, retain: bool) -> BoxFuture<'_, Result<(), PublishError>>;
}

/// Sends messages on a connection. Cheap to clone.
#[derive(Clone)]
pub struct Publisher(Arc<dyn Publish>);

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Publisher")
    }
}

impl Publisher {
    /// Over a driver's.
    pub fn new(driver: impl Publish + 'static) -> Self {
        Self(Arc::new(driver))
    }

    /// Publishes; done when the broker has it.
    ///
    /// # Errors
    ///
    /// It does not, or may not, have it.
    pub async fn publish(&self, outgoing: Outgoing) -> Result<(), PublishError> {
        self.0.publish(outgoing, false).await
    }

    /// As [`Publisher::publish`]; the broker keeps it for those who subscribe later.
    ///
    /// # Errors
    ///
    /// It does not, or may not, have it.
    pub async fn publish_retained(&self, outgoing: Outgoing) -> Result<(), PublishError> {
        self.0.publish(outgoing, true).await
    }
}
