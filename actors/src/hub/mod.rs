//! The hub: what is wanted in each cluster, and how far it is.
//!
//! ```text
//!   hub API ──watches──► ReplicaSets ──facts──► ReplicaSetAggregator (one a set) ──writes──► hub API
//!                        (routes by owner label,     (pure state in muster_core::replicaset)
//!                         placement and name)
//!   hub API ──watches──► PlacementResolver ──PlacementDecisions──► hub API     (embedded hub only)
//!   hub API ──works of no set──► FinishedWorks ──deletions──► hub API
//!   hub API ──ManagedClusters──► Departures ──works that wait for agents that are away──► hub API
//!   hub API ──watch──► WorkSource ◄──► bus             (where works travel as events)
//! ```

mod clusters;
mod departures;
mod facts;
mod finished_works;
mod known;
mod metrics;
mod placement_resolver;
mod replica_set_aggregator;
mod replica_sets;
mod status_writer;
mod views;
mod work_events;
mod work_source;
mod work_writes;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use muster_workclient::events::AgentPresence;
use tokio::sync::watch;

pub use departures::Departures;
pub use finished_works::FinishedWorks;
pub use metrics::METRICS;
pub use placement_resolver::{PlacementResolver, register_cluster};
pub use replica_set_aggregator::ReplicaSetAggregator;
pub use replica_sets::ReplicaSets;
pub use work_source::{WorkSource, WorkSourceState};

use crate::events::Recorder;
use crate::supervision::{Health, Io, Registry};

/// What the actors of a hub work with.
#[derive(Clone)]
pub struct HubDeps {
    /// The hub's API.
    pub client: kube::Client,
    /// Worker threads for requests.
    pub io: Io,
    /// Where the actors are started and seen.
    pub registry: Registry,
    /// Where their watches report.
    pub health: Health,
    /// Tells Kubernetes Events; `None` where none are wanted.
    pub events: Option<Recorder>,
    /// Which agents are connected, as far as they say; `None` where works do not travel as events.
    pub agents: Option<watch::Receiver<Agents>>,
    /// What can be tuned.
    pub settings: HubSettings,
}

/// Whether agents are connected, by cluster.
pub type Agents = BTreeMap<String, AgentPresence>;

impl fmt::Debug for HubDeps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HubDeps")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// What can be tuned on a hub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HubSettings {
    /// Status changes of a replica set that come closer together than this are written as one.
    pub coalesce: Duration,
    /// How long an agent may be away before its cluster counts as unknown.
    pub away_after: Duration,
    /// How often running counters are compared with a recount, and works and revisions are listed to
    /// compare them with what is known.
    pub self_check: Duration,
    /// How long the agent of a cluster that was given up may still come back.
    pub abandon_after: Duration,
    /// How often works that wait for agents that are away are looked at.
    pub departures_every: Duration,
}

impl Default for HubSettings {
    fn default() -> Self {
        Self {
            coalesce: Duration::from_millis(20),
            away_after: Duration::from_secs(30),
            self_check: Duration::from_secs(600),
            abandon_after: Duration::from_secs(300),
            departures_every: Duration::from_secs(10),
        }
    }
}
