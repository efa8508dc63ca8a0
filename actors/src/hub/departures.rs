//! Clusters whose agents are away: says so where users look, and lets go the works of clusters that
//! somebody gave up ([`muster_core::departures`] has the rules).
//!
//! ```text
//! ManagedClusters, who is connected ──► clusters to look at ──► works being deleted there
//! works with the label muster.dev/abandoned ──────────────────────┘
//! ```
//!
//! Works are read only where there is something to look for: in the namespaces of clusters that are
//! away or given up, now and then, some at a time. The grace of a work that was given up is kept in
//! its own condition, so a restart does not begin it anew.

mod look;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use actix::{
    Actor, ActorContext, ActorFutureExt, Addr, AsyncContext, Context, Handler, MessageResult,
    StreamHandler, Supervised, WrapFuture,
};
use futures::StreamExt;
use jiff::Timestamp;
use kube::Api;
use kube::runtime::watcher;
use muster_api::constants as names;
use muster_core::departures::{Departure, GivenUp, availability};
use serde::Serialize;
use tracing::debug;

use super::HubDeps;
use super::clusters::{ClusterEvent, ClusterSeen, watch_clusters};
use super::known::Known;
use super::views::{FinishView, ObjectName};
use crate::supervision::{Snapshot, Stop};
use crate::watching::{Seen, watch};
use look::{Look, look};

/// Questions only: what this actor lives on comes from its streams.
const MAILBOX: usize = 16;
/// Clusters that are looked at in one round: at a list of 5 ms each it takes half a second.
const CLUSTERS_A_ROUND: usize = 100;
/// Works with the label that are looked at in one round; those that are let go make room.
const WORKS_A_ROUND: usize = 500;
/// Clusters without a ManagedCluster that are remembered; the first by name are forgotten.
const REMEMBERED: usize = 10_000;

/// One event of one of the watches.
#[derive(Debug)]
pub(super) enum Event {
    Cluster(ClusterEvent),
    /// A work with the label that gives it up, and whether it is being deleted.
    Work(Seen<(ObjectName, bool)>),
}

/// What the actor publishes.
#[derive(Debug, Serialize)]
struct State {
    away: usize,
    given_up: usize,
    labelled_works: usize,
}

/// See the module.
#[derive(Debug)]
pub struct Departures {
    deps: HubDeps,
    known: Known<String>,
    clusters: HashMap<String, ClusterSeen>,
    /// Clusters whose ManagedCluster was deleted while this hub looked.
    gone: BTreeSet<String>,
    /// Works with the label that are being deleted.
    known_works: Known<ObjectName>,
    looking: bool,
    /// The last cluster of the last round: the next one goes on after it.
    cursor: String,
}

impl Departures {
    /// Starts the actor on the current arbiter.
    pub fn start(deps: HubDeps) -> Addr<Self> {
        let registry = deps.registry.clone();
        registry.start("Departures", "hub", Self::new(deps))
    }

    fn new(deps: HubDeps) -> Self {
        Self {
            deps,
            known: Known::default(),
            clusters: HashMap::new(),
            gone: BTreeSet::new(),
            known_works: Known::default(),
            looking: false,
            cursor: String::new(),
        }
    }

    /// What agents say of themselves: whether they are connected, and since when.
    fn agents(&self) -> BTreeMap<String, (bool, Timestamp)> {
        let now = Timestamp::now();
        let grace = self.deps.settings.away_after;
        let Some(agents) = &self.deps.agents else {
            return BTreeMap::new();
        };
        let settled = |connected: bool, since: Timestamp| {
            let gone_for = std::time::Duration::try_from(now.duration_since(since));
            connected || gone_for.unwrap_or_default() >= grace
        };
        let agents = agents.borrow();
        let all = agents
            .iter()
            .filter(|(_, agent)| settled(agent.connected, agent.since));
        all.map(|(cluster, agent)| (cluster.clone(), (agent.connected, agent.since)))
            .collect()
    }

    /// Clusters whose works may wait for nobody.
    fn departures(&self) -> BTreeMap<String, Departure> {
        let agents = self.agents();
        let connected = |cluster: &str| agents.get(cluster).is_some_and(|(is, _)| *is);
        let mut all = BTreeMap::new();
        for (cluster, (is_connected, since)) in &agents {
            if !is_connected {
                all.insert(cluster.clone(), Departure::Away(*since));
            }
        }
        for (name, cluster) in &self.clusters {
            if connected(name) && cluster.given_up != Some(GivenUp::Annotated) {
                continue; // it is there, and cleans up
            }
            if let Some(why) = cluster.given_up {
                all.insert(name.clone(), Departure::GivenUp(why));
            } else if let Some(since) = cluster.away {
                all.entry(name.clone()).or_insert(Departure::Away(since));
            }
        }
        for name in self.gone.iter().filter(|name| !connected(name)) {
            all.insert(name.clone(), Departure::GivenUp(GivenUp::Deleted));
        }
        all
    }

    /// Conditions of ManagedClusters that are not as their agents say.
    fn outdated(&self) -> Vec<look::Availability> {
        let agents = self.agents();
        let outdated = agents.iter().filter_map(|(name, (connected, since))| {
            let cluster = self.clusters.get(name)?;
            if cluster.others_say {
                return None;
            }
            let condition = availability(cluster.available.as_deref(), *connected, *since)?;
            Some(look::Availability {
                cluster: name.clone(),
                condition,
            })
        });
        outdated.take(CLUSTERS_A_ROUND).collect()
    }

    /// Looks at the next clusters.
    fn look(&mut self, ctx: &mut Context<Self>) {
        if self.looking || !self.known.synced {
            return;
        }
        let all = self.departures();
        let clusters = next_round(&all, &self.cursor);
        let labelled = self.known_works.all.iter().take(WORKS_A_ROUND);
        let labelled: Vec<ObjectName> = labelled.cloned().collect();
        let clusters_say = self.outdated();
        if clusters.is_empty() && labelled.is_empty() && clusters_say.is_empty() {
            return;
        }
        self.cursor = clusters
            .last()
            .map_or_else(String::new, |(name, _)| name.clone());
        self.looking = true;
        let task = self.deps.io.run(look(Look {
            client: self.deps.client.clone(),
            events: self.deps.events.clone(),
            grace: self.deps.settings.abandon_after,
            clusters,
            labelled,
            clusters_say,
        }));
        ctx.spawn(task.into_actor(self).map(|result, actor, _| {
            actor.looking = false;
            match result {
                Ok(empty) => {
                    // Nobody makes works for a cluster that does not exist.
                    for cluster in empty {
                        actor.gone.remove(&cluster);
                    }
                }
                Err(error) => debug!(%error, "failed to look at departed clusters"),
            }
        }));
    }

    fn cluster_changed(&mut self, event: ClusterEvent) {
        match event {
            ClusterEvent::Seen(Seen::Listing) => self.known.begin(),
            ClusterEvent::Seen(Seen::Item(cluster) | Seen::Changed(cluster)) => {
                self.known.seen(&cluster.name);
                self.gone.remove(&cluster.name);
                self.clusters.insert(cluster.name.clone(), cluster);
            }
            ClusterEvent::Seen(Seen::Gone(cluster)) => {
                self.known.gone(&cluster.name);
                self.cluster_gone(cluster.name);
            }
            ClusterEvent::Seen(Seen::Listed) => {
                for name in self.known.complete() {
                    self.cluster_gone(name);
                }
            }
            // The router has logged it; what agents and labels say holds all the same.
            ClusterEvent::Unreadable(_) => self.known.synced = true,
        }
    }

    fn cluster_gone(&mut self, name: String) {
        self.clusters.remove(&name);
        remember(&mut self.gone, name);
    }
}

/// The clusters after `cursor`, and when there are no more the first ones.
fn next_round(all: &BTreeMap<String, Departure>, cursor: &str) -> Vec<(String, Departure)> {
    let (before, after): (Vec<_>, Vec<_>) =
        all.iter().partition(|(name, _)| name.as_str() <= cursor);
    let round = after.into_iter().chain(before).take(CLUSTERS_A_ROUND);
    round
        .map(|(name, departure)| (name.clone(), *departure))
        .collect()
}

fn remember(gone: &mut BTreeSet<String>, name: String) {
    gone.insert(name);
    if gone.len() > REMEMBERED {
        gone.pop_first();
    }
}

impl Actor for Departures {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(MAILBOX);
        let clusters = watch_clusters(&self.deps, "departures/managedclusters");
        ctx.add_stream(clusters.map(Event::Cluster));
        let works: Api<FinishView> = Api::all(self.deps.client.clone());
        let labelled = watcher::Config::default().labels(names::ABANDONED);
        let stream = self.deps.health.stream("departures/manifestworks");
        let name = |work: FinishView| {
            let deleting = work.metadata.deletion_timestamp.is_some();
            (ObjectName::of(&work.metadata), deleting)
        };
        ctx.add_stream(watch(&self.deps.io, works, labelled, stream, name).map(Event::Work));
        ctx.run_interval(self.deps.settings.departures_every, Self::look);
    }
}

impl Supervised for Departures {
    fn restarting(&mut self, _: &mut Self::Context) {
        let mut fresh = Self::new(self.deps.clone());
        fresh.known.all = std::mem::take(&mut self.known.all);
        fresh.gone = std::mem::take(&mut self.gone);
        *self = fresh;
    }
}

impl StreamHandler<Event> for Departures {
    fn handle(&mut self, event: Event, _: &mut Self::Context) {
        match event {
            Event::Cluster(event) => self.cluster_changed(event),
            Event::Work(Seen::Listing) => self.known_works.begin(),
            Event::Work(Seen::Item((work, true)) | Seen::Changed((work, true))) => {
                self.known_works.seen(&work);
            }
            Event::Work(
                Seen::Item((work, false)) | Seen::Changed((work, false)) | Seen::Gone((work, _)),
            ) => self.known_works.gone(&work),
            Event::Work(Seen::Listed) => {
                self.known_works.complete();
            }
        }
    }

    /// The streams end only with the runtime; the default would stop this actor.
    fn finished(&mut self, _: &mut Self::Context) {}
}

impl Handler<Snapshot> for Departures {
    type Result = MessageResult<Snapshot>;

    fn handle(&mut self, _: Snapshot, _: &mut Self::Context) -> Self::Result {
        let all = self.departures();
        let is_away = |departure: &&Departure| matches!(departure, Departure::Away(_));
        let away = all.values().filter(is_away).count();
        Snapshot::of(&State {
            away,
            given_up: all.len() - away,
            labelled_works: self.known_works.all.len(),
        })
    }
}

impl Handler<Stop> for Departures {
    type Result = ();

    /// Nothing to flush: what was cut off is looked at again by the next life.
    fn handle(&mut self, _: Stop, ctx: &mut Self::Context) {
        ctx.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cluster_has_its_round_however_many_are_away() {
        let away = Departure::Away(Timestamp::UNIX_EPOCH);
        let all: BTreeMap<String, Departure> =
            (0..250).map(|n| (format!("c{n:03}"), away)).collect();
        let mut cursor = String::new();
        let mut seen = Vec::new();
        for _ in 0..5 {
            let round = next_round(&all, &cursor);
            assert_eq!(round.len(), CLUSTERS_A_ROUND);
            cursor = round.last().unwrap().0.clone();
            seen.extend(round.into_iter().map(|(name, _)| name));
        }
        let first: BTreeSet<&String> = seen[..250].iter().collect();
        assert_eq!(first.len(), 250, "each once before any twice");
        assert_eq!(seen[..250], seen[250..]);
        let few: BTreeMap<String, Departure> = [("c1".to_owned(), away)].into();
        assert_eq!(next_round(&few, "c1").len(), 1);
    }

    #[test]
    fn only_so_many_deleted_clusters_are_remembered() {
        let mut gone = BTreeSet::new();
        for n in 0..REMEMBERED + 7 {
            remember(&mut gone, format!("c{n:06}"));
        }
        assert_eq!((gone.len(), gone.contains("c000006")), (REMEMBERED, false));
    }
}
