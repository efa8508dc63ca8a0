//! A link to a bus, as its owner sees it.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use muster_cloudevents::client::{ConnectionState, Subscription};
use tokio::sync::watch;

/// How an agent's link goes.
#[derive(Debug, Clone)]
pub struct HubLink {
    /// Whether what is for the agent is heard.
    pub state: watch::Receiver<ConnectionState>,
    /// Since when a source has been heard on the connection of now. Before, that a work does not come
    /// does not mean that it is gone.
    pub heard: watch::Receiver<Option<Timestamp>>,
}

/// A link to a bus, until this is dropped.
#[must_use = "the link ends when this is dropped"]
pub struct EventLink {
    state: watch::Receiver<ConnectionState>,
    waiting: Arc<dyn Fn() -> usize + Send + Sync>,
    _subscription: Subscription,
}

impl fmt::Debug for EventLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventLink")
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl EventLink {
    pub(super) fn new(
        state: watch::Receiver<ConnectionState>,
        waiting: impl Fn() -> usize + Send + Sync + 'static,
        subscription: Subscription,
    ) -> Self {
        Self {
            state,
            waiting: Arc::new(waiting),
            _subscription: subscription,
        }
    }

    /// Whether what is for this side is heard.
    pub fn state(&self) -> watch::Receiver<ConnectionState> {
        self.state.clone()
    }

    /// Works whose last state is not at the broker yet.
    pub fn waiting(&self) -> usize {
        (self.waiting)()
    }
}
