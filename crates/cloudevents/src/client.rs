//! Clients for sources and agents of any resource.
//!
//! Both do the same on a bus: subscribe, ask for what they have missed (after each subscription and
//! now and then), take what comes, and send what has changed. What has changed is not a queue of
//! events but a set of uids: each is sent as it is when its turn comes, and stays in the set until
//! the broker has it. So nothing is lost while a broker is away, and nothing piles up.
//!
//! What they have is their owner's to keep: see [`SourceStore`] and [`AgentStore`].
//!
//! `examples/greetings.rs` has both sides for a resource of its own.

mod agent;
mod metrics;
mod outbox;
mod run;
mod running;
mod source;
mod warned;

use std::time::Duration;

use jiff::Timestamp;

pub use agent::{AgentClient, AgentStore, Held, Taken};
pub use metrics::METRICS;
pub use running::Subscription;
pub use source::{Known, SourceClient, SourceStore, TakenStatus};

use crate::bus::PublishError;
use crate::{SendError, TopicError};

/// How a client behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientOptions {
    /// Pause between two requests for what may have been missed, a tenth more or less at random;
    /// `None` for none beside the one after each subscription, as in sdk-go.
    pub resync_interval: Option<Duration>,
    /// Resources that may be on their way to the broker at a time.
    pub most_in_flight: usize,
    /// Whether it says that it is there, and hears it of the other side.
    pub presence: bool,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            resync_interval: Some(Duration::from_secs(600)),
            // Enough to keep a broker busy that is some milliseconds away; few enough that what
            // is urgent is not behind much.
            most_in_flight: 64,
            presence: true,
        }
    }
}

/// Whether a client hears what is for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectionState {
    /// It has not yet, since it began.
    Connecting,
    /// It does.
    Subscribed,
    /// It is subscribed, and may not ask for what it has missed: most likely it is taken for
    /// somebody else. Brokers that refuse no subscription show that by this alone.
    Refused {
        /// Why.
        reason: String,
        /// Since when.
        since: Timestamp,
    },
    /// It does not any more.
    Lost {
        /// Why.
        reason: String,
        /// Since when.
        since: Timestamp,
    },
}

/// Something was not sent.
#[derive(Debug, thiserror::Error)]
pub enum ClientError<E: std::error::Error + 'static> {
    /// It cannot be put into a message.
    #[error(transparent)]
    Send(#[from] SendError<E>),
    /// There is no topic for it.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// It did not, or may not, get to the broker.
    #[error(transparent)]
    Publish(#[from] PublishError),
}
