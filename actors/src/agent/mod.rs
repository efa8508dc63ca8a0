//! The agent of a managed cluster: applies the works that the hub has for it, and reports back.
//!
//! ```text
//!  hub: ManifestWorks ──watch──► ClusterAgent ──WorkChanged──► ManifestWork (1 per work)
//!        ▲                        1 per cluster                     │ one pass at a time, on the
//!        │                                                          ▼ worker threads
//!        └───────────── status, finalizer ───────────────────── reconcile ──► spoke API
//! ```
//!
//! | File | What |
//! |---|---|
//! | `cluster_agent` | actor: which works there are |
//! | `manifest_work` | actor: when a work is looked at |
//! | `record_watch`, `eviction` | its records on the cluster; actor: the end of one without a work |
//! | `access_watch`, `access` | actor: when rights change; what executors may do |
//! | `reconcile`, `manifest`, `apply`, `deletion` | what one look does |
//! | `evaluation` | condition rules, aside |
//! | `applied_work`, `records` | the record on the cluster, removal of objects |
//! | `watched`, `observer`, `observation` | what watches show of its objects, and what comes of it |
//! | `status` | from what was seen to the work's status; pure |
//! | `hub`, `spoke`, `rest_mapper`, `calls` | requests |
//! | `work` | a work as it is kept |
//! | `pace` | how often it reports what watches show; pure |
//! | `settings`, `metrics` | what operators set and see |
//!
//! What to write and what to report is decided in `muster-core`; nothing here decides twice.

mod access;
mod access_watch;
mod applied_work;
mod apply;
mod calls;
mod claims;
mod cluster_agent;
mod deletion;
mod evaluation;
mod eviction;
mod hub;
mod manifest;
mod manifest_work;
mod metrics;
mod observation;
mod observer;
mod pace;
mod reconcile;
mod record_watch;
mod records;
mod rest_mapper;
mod served;
mod settings;
mod spoke;
mod status;
#[cfg(test)]
mod tests;
mod watched;
mod watched_group;
mod work;

pub use access_watch::{AccessChanged, AccessWatch, AccessWatchState};
pub use cluster_agent::{ChangeSettings, ClusterAgent, ClusterAgentState};
pub use eviction::{Eviction, EvictionState, LookAgain};
pub use manifest_work::{
    ExecutorUsed, ManifestWork, ManifestWorkState, RecordSeen, SettingsChanged, WorkChanged,
};
pub use metrics::METRICS;
pub use observer::Sighted;
pub use settings::AgentSettings;
#[doc(hidden)]
pub use watched_group::WatchedGroup;
pub use work::Work;

use actix::Addr;
use muster_workclient::events::HubLink;

use crate::rules::RulesDeps;
use crate::supervision::{Health, Io, Registry};

/// What the agent of a cluster is made of.
#[derive(Clone)]
pub struct AgentDeps {
    /// Name of the cluster, which is the namespace of its works on the hub.
    pub cluster: String,
    /// Where its works are read and written (from `muster-workclient`).
    pub hub: kube::Client,
    /// How the link goes over which they come; `None` where they are read from the hub's API.
    pub hub_link: Option<HubLink>,
    /// The text that the hub is known by; its hash is part of the names of AppliedManifestWorks.
    pub hub_id: String,
    /// Whose AppliedManifestWorks these are; the hub's hash unless set.
    pub agent_id: Option<String>,
    /// The managed cluster.
    pub spoke: kube::Client,
    /// Watch rules on the cluster; `None` for none.
    pub rules: Option<RulesDeps>,
    /// Settings to begin with; [`ChangeSettings`] replaces them.
    pub settings: AgentSettings,
    /// Where requests run.
    pub io: Io,
    /// Where its actors are known.
    pub registry: Registry,
    /// Where it says whether its streams live: `<cluster> works`, `<cluster> events` where there is a
    /// link, and `<cluster> spoke` while the cluster does not answer.
    pub health: Health,
}

impl std::fmt::Debug for AgentDeps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentDeps")
            .field("cluster", &self.cluster)
            .field("hub_id", &self.hub_id)
            .field("agent_id", &self.agent_id)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// Starts the agent of a cluster on the current arbiter.
///
/// It runs until [`Stop`](crate::supervision::Stop), which stops its works first.
pub fn start(deps: AgentDeps) -> Addr<ClusterAgent> {
    let name = deps.cluster.clone();
    let registry = deps.registry.clone();
    registry.start("ClusterAgent", name, ClusterAgent::new(deps))
}
