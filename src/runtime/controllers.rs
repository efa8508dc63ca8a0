//! The hub's actors: PlacementResolver, ReplicaSets, FinishedWorks, Departures and, where works travel as
//! events, WorkSource.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use actix::Addr;
use muster_actors::hub::{
    Departures, FinishedWorks, HubDeps, PlacementResolver, ReplicaSets, WorkSource,
};
use muster_actors::supervision::stop;
use muster_workclient::Bus;
use muster_workclient::events::HubEvents;

/// What they start with.
pub(super) struct Plan {
    /// What all of them work with.
    pub(super) deps: HubDeps,
    /// Whether this hub decides placements.
    pub(super) resolves_placements: bool,
    /// The works as a source of events, and the bus, which is joined when the works are known.
    pub(super) source: Option<(HubEvents, Arc<dyn Bus>)>,
}

/// Without the bus, which has nothing to show.
impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan")
            .field("deps", &self.deps)
            .field("resolves_placements", &self.resolves_placements)
            .finish_non_exhaustive()
    }
}

impl Plan {
    /// Starts them on the current arbiter. Each lists what it needs before it writes.
    pub(super) fn start(self) -> Controllers {
        let Self {
            deps,
            resolves_placements,
            source,
        } = self;
        Controllers {
            resolver: resolves_placements.then(|| PlacementResolver::start(deps.clone())),
            sets: ReplicaSets::start(deps.clone()),
            finished: FinishedWorks::start(deps.clone()),
            departures: Departures::start(deps.clone()),
            source: source.map(|(events, bus)| WorkSource::start(deps, events, bus)),
        }
    }
}

/// The running ones.
#[derive(Debug)]
pub(super) struct Controllers {
    resolver: Option<Addr<PlacementResolver>>,
    sets: Addr<ReplicaSets>,
    finished: Addr<FinishedWorks>,
    departures: Addr<Departures>,
    source: Option<Addr<WorkSource>>,
}

impl Controllers {
    /// Stops them one after the other; each gets `limit`.
    pub(super) async fn stop(&self, limit: Duration) {
        if let Some(source) = &self.source {
            stop(source, limit).await;
        }
        stop(&self.departures, limit).await;
        stop(&self.finished, limit).await;
        stop(&self.sets, limit).await;
        if let Some(resolver) = &self.resolver {
            stop(resolver, limit).await;
        }
    }
}
