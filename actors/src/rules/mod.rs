//! Watch rules: what changes on a cluster, told to sinks.
//!
//! ```text
//!  WatchRule, ClusterWatchRule          discovery
//!          │ watch                          │
//!          ▼       signal                   ▼
//!      RuleStore ──────────► RuleSupervisor: quiet for a while? plan ──areas──► Watches
//!                             (1 per cluster)                                      │
//!                                                                                  ▼ states
//!   sink ◄──batches── EventQueue (1 per sink) ◄── Outlet ◄───────────────── Feed (1 per area)
//! ```
//!
//! | File | What |
//! |---|---|
//! | `rule_store` | actor: the rules, compiled |
//! | `signal` | that they have changed, and what they are |
//! | `rule_supervisor` | actor: when the watches follow the rules |
//! | `discovery` | what the API server serves |
//! | `listeners` | the areas that are listened to, and the sinks of each |
//! | `destinations` | the sinks, each with its outlet and queue |
//! | `feed` | from what watches show to what sinks are told |
//! | `outlet` | what a sink has, and what waits for it |
//! | `memory` | what a sink has been told, over restarts |
//! | `event_queue` | actor: gives a sink what waits |
//! | `status` | what a rule's status says; pure |
//! | `statuses` | which of them have to be written, and that |
//! | `metrics` | what operators see |
//!
//! What matches a rule, which areas are wanted, what is stripped off an object and what a sink has to
//! hear is decided in `muster_core::watch_rules` and `muster_core::rule_events`.

mod destinations;
mod discovery;
mod event_queue;
mod feed;
mod listeners;
mod memory;
mod metrics;
mod outlet;
mod rule_store;
mod rule_supervisor;
mod signal;
mod status;
mod statuses;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use actix::Addr;
use kube::Client;
use muster_core::rule_events::Room;
use muster_core::watch_rules::Exclusions;

pub use event_queue::EventQueueState;
pub use metrics::METRICS;
pub use rule_store::RuleStoreReport;
pub use rule_supervisor::RuleSupervisorState;
#[doc(hidden)]
pub use signal::{Published, RuleReceiver, RuleSender, RuleTable, SeenRule, rule_channel};

use self::rule_store::RuleStore;
use self::rule_supervisor::{RuleSupervisor, SupervisorDeps};
use crate::events::{Recorder, Reporter};
use crate::sinks::Sink;
use crate::supervision::{Health, Io, Registry, stop};
use crate::watch::{WatchSupervisor, Watches};

/// How long the rules of a cluster may take to end.
const STOP_LIMIT: Duration = Duration::from_secs(6);

/// Makes the sink of a name for a cluster.
pub trait SinkMaker: Send + Sync + std::fmt::Debug {
    /// A sink for what happens on `cluster`; whether it has been told something in an earlier life.
    fn make(&self, cluster: &str, was_told: bool) -> Box<dyn Sink>;

    /// Types that the sink takes nothing of: group and resource name in plural, and, for people, why.
    /// Rules that name them say so, and they are not watched for it.
    fn refuses(&self) -> Vec<((&str, &str), &str)> {
        Vec::new()
    }
}

/// What operators set about rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleSettings {
    /// How long rules have to stay as they are before their watches follow.
    pub debounce: Duration,
    /// How long the watches of rules that keep changing wait at most.
    pub debounce_max: Duration,
    /// How often the plan is looked over, whatever happens.
    pub heartbeat: Duration,
    /// Whether all watches of rules are opened anew when rules change what is watched.
    pub wholesale: bool,
    /// How much may wait for a sink.
    pub room: Room,
    /// Resources that are not watched even if a rule names them.
    pub never_watch: Exclusions,
    /// Where what sinks have been told is kept over restarts; `None` keeps it nowhere.
    pub data_dir: Option<PathBuf>,
    /// How long the API server may take to tell what it serves.
    pub discovery_limit: Duration,
}

/// Rules on a cluster: settings, and the sinks by name.
#[derive(Debug, Clone)]
pub struct RulesDeps {
    /// What operators set.
    pub settings: RuleSettings,
    /// The sinks that rules may name.
    pub sinks: BTreeMap<String, Arc<dyn SinkMaker>>,
}

/// What rules share with the agent of their cluster.
pub(crate) struct ClusterDeps {
    pub(crate) cluster: String,
    pub(crate) client: Client,
    pub(crate) io: Io,
    pub(crate) registry: Registry,
    pub(crate) health: Health,
    pub(crate) watches: Arc<Watches>,
    pub(crate) supervisor: Addr<WatchSupervisor>,
}

/// The running actors of a cluster's rules.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    store: Addr<RuleStore>,
    supervisor: Addr<RuleSupervisor>,
}

impl Rules {
    /// Starts them on the current arbiter.
    pub(crate) fn start(of: ClusterDeps, rules: RulesDeps) -> Self {
        let ClusterDeps {
            cluster,
            client,
            io,
            registry,
            health,
            watches,
            supervisor,
        } = of;
        let (sender, receiver) = rule_channel();
        let reporter = Reporter {
            component: "muster-agent",
            prunes: false,
        };
        let events = Recorder::start(&io, client.clone(), reporter);
        let deps = SupervisorDeps {
            cluster: cluster.clone(),
            client: client.clone(),
            io: io.clone(),
            registry: registry.clone(),
            health: health.clone(),
            watches,
            supervisor,
            events,
            rules: receiver,
            settings: rules.settings,
            sinks: rules.sinks,
        };
        let supervisor = RuleSupervisor::new(deps);
        let supervisor = registry.start("RuleSupervisor", cluster.clone(), supervisor);
        let wake = supervisor.clone().recipient();
        let store = RuleStore::new(cluster.clone(), client, io, health, sender, wake);
        let store = registry.start("RuleStore", cluster, store);
        Self { store, supervisor }
    }

    /// First no rule changes any more, then the sinks get what waits.
    pub(crate) async fn stop(self) {
        stop(&self.store, STOP_LIMIT).await;
        stop(&self.supervisor, STOP_LIMIT).await;
    }
}
