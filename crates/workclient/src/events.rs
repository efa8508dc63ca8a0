//! ManifestWorks over CloudEvents, for controllers that know nothing of them.
//!
//! ```text
//!  controllers ◄─► hub API ─watch─► HubWorks ◄─► SourceClient ◄─► bus ◄─► AgentClient ◄─► LocalWorks ◄─► agent
//!                     ▲─────status─────┘                                                    (a local API)
//! ```
//!
//! On the hub, works stay in its API, and survive restarts there; [`HubEvents`] sends what is in
//! it and writes statuses back. An agent has an API server of its own in the process, where works look
//! as they would on the hub; [`AgentWorks`] keeps it like the sources have it.

mod agent;
mod finalizer;
mod hub;
mod link;
mod local;
mod sequence_file;
mod source;
mod status_writes;

pub use muster_cloudevents::client::ConnectionState;

pub use agent::{AgentEvents, AgentWorks};
pub use hub::{AgentPresence, HubWorks};
pub use link::{EventLink, HubLink};
pub use source::{HubEvents, SourceEvents};
pub use status_writes::METRICS;

/// Why works cannot travel as events.
#[derive(Debug, thiserror::Error)]
pub enum EventsError {
    /// The source or the agent has a name, or topics, that do not go together.
    #[error(transparent)]
    Topics(#[from] muster_cloudevents::TopicError),
    /// The API server for the agent's works does not start.
    #[error("failed to start the store of works: {0}")]
    Store(#[from] muster_apiserver::BuildError),
    /// The API server for the agent's works does not have them.
    #[error("failed to start the store of works: {0}")]
    Mirror(#[from] muster_apiserver::MirrorError),
}
