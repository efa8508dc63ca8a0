//! Watches what concerns replica sets and hands each fact to the set that it is about.
//!
//! Owns one [`ReplicaSetAggregator`] for each ManifestWorkReplicaSet. Facts go out with a bounded
//! `tell`; what a busy aggregator refuses is kept, newest per object, and offered again. After a
//! restart the watches list again, which feeds every aggregator anew; aggregators survive it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use actix::{
    Actor, ActorContext, ActorFutureExt, Addr, AsyncContext, Context, Handler, MessageResult,
    ResponseActFuture, SpawnHandle, StreamHandler, Supervised, WrapFuture,
};
use futures::future::join_all;
use futures::{Stream, StreamExt};
use jiff::Timestamp;
use kube::Api;
use kube::runtime::watcher;
use muster_api::constants as names;
use muster_api::placement::{Placement, PlacementDecision};
use muster_core::replicaset::{Decision, PlacementFacts, WorkFacts, WorkKey, owner_label};
use serde::Serialize;
use tokio::sync::watch;
use tracing::{info, warn};

use super::clusters::{ClusterEvent, ClusterSeen, watch_clusters};
use super::facts::{About, Fact, TellAgain};
use super::known::Known;
use super::views::{ObjectName, OwnedWork, SetView, WorkReducer, WorkView};
use super::work_events::WorkEvents;
use super::{Agents, HubDeps, ReplicaSetAggregator};
use crate::supervision::{Outbox, Snapshot, Stop, stop};
use crate::watching::{Seen, watch};

/// Messages that may wait: bursts come from the streams below, which are bounded themselves, and
/// are not mail. What remains are questions.
const MAILBOX: usize = 64;
/// How soon refused facts are offered again; an aggregator empties its mailbox in less.
const RETRY_TELL: Duration = Duration::from_millis(10);
/// How long a stop waits for one aggregator, which only has a status to flush.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// One event of one of the watches.
#[derive(Debug)]
pub(super) enum Event {
    Set(Seen<SetView>),
    Placement(Seen<Placement>),
    Decision(Seen<PlacementDecision>),
    Work(Seen<Result<OwnedWork, WorkKey>>),
    Cluster(ClusterEvent),
}

/// Most names that the router publishes of clusters that are away, or paused.
const SHOWN: usize = 100;

/// What the router publishes.
#[derive(Debug, Serialize)]
struct State<'a> {
    replica_sets: usize,
    placements: usize,
    /// Clusters that have works.
    clusters: usize,
    /// Clusters whose agents are away, and since when; all of them, and the first by name.
    away: usize,
    first_away: BTreeMap<&'a str, Timestamp>,
    /// Clusters in which nothing is to be written; all of them, and the first by name.
    paused: usize,
    first_paused: Vec<&'a str>,
    works: usize,
    unowned_works: usize,
    synced: bool,
}

#[derive(Debug)]
struct Set {
    addr: Addr<ReplicaSetAggregator>,
    view: Arc<SetView>,
    label: String,
}

#[derive(Debug, Default)]
struct PlacementState {
    /// `numberOfSelectedClusters` and the number of decision groups, once the Placement exists.
    exists: Option<(u32, usize)>,
    /// Its PlacementDecisions by name.
    decisions: BTreeMap<String, Decision>,
}

impl PlacementState {
    fn facts(&self) -> Option<Arc<PlacementFacts>> {
        self.exists.map(|(selected, decision_groups)| {
            let decisions = self.decisions.values();
            Arc::new(PlacementFacts::of(selected, decision_groups, decisions))
        })
    }
}

/// Routes facts to aggregators. See the module.
#[derive(Debug)]
pub struct ReplicaSets {
    deps: HubDeps,
    sets: HashMap<ObjectName, Set>,
    /// Which set an owner label means.
    by_label: HashMap<String, ObjectName>,
    placements: HashMap<ObjectName, PlacementState>,
    /// Which placement a decision belongs to.
    decision_of: HashMap<ObjectName, ObjectName>,
    /// Owner label of each work.
    owners: HashMap<WorkKey, String>,
    /// Works whose set has not been seen.
    unowned: HashMap<String, HashMap<WorkKey, WorkFacts>>,
    known_sets: Known<ObjectName>,
    known_placements: Known<ObjectName>,
    known_decisions: Known<ObjectName>,
    known_works: Known<WorkKey>,
    /// Clusters that are paused or away.
    known_clusters: Known<String>,
    clusters: HashMap<String, ClusterSeen>,
    /// Why clusters cannot be read.
    unreadable: Option<String>,
    /// Clusters in which nothing is to be written.
    paused: Arc<BTreeSet<String>>,
    /// Clusters whose agents are away, and since when.
    away: Arc<BTreeMap<String, Timestamp>>,
    /// Those of them that say so themselves, where works travel as events.
    agents_away: BTreeMap<String, Timestamp>,
    /// For the next that will have been away for long enough.
    away_timer: Option<SpawnHandle>,
    /// Placements of which sets have not heard yet. One with many decisions changes with each of
    /// them, and is put together once.
    changed_placements: BTreeSet<ObjectName>,
    held: Outbox<(ObjectName, About), Fact>,
    /// Aggregators that have not been told [`Fact::Complete`].
    incomplete: HashSet<ObjectName>,
    /// Events that still come start nothing new.
    stopping: bool,
}

impl ReplicaSets {
    /// Starts the router on the current arbiter.
    pub fn start(deps: HubDeps) -> Addr<Self> {
        let registry = deps.registry.clone();
        registry.start("ReplicaSets", "hub", Self::new(deps))
    }

    fn new(deps: HubDeps) -> Self {
        Self {
            deps,
            sets: HashMap::new(),
            by_label: HashMap::new(),
            placements: HashMap::new(),
            decision_of: HashMap::new(),
            owners: HashMap::new(),
            unowned: HashMap::new(),
            known_sets: Known::default(),
            known_placements: Known::default(),
            known_decisions: Known::default(),
            known_works: Known::default(),
            known_clusters: Known::default(),
            clusters: HashMap::new(),
            unreadable: None,
            paused: Arc::default(),
            away: Arc::default(),
            agents_away: BTreeMap::new(),
            away_timer: None,
            changed_placements: BTreeSet::new(),
            held: Outbox::default(),
            incomplete: HashSet::new(),
            stopping: false,
        }
    }

    const fn synced(&self) -> bool {
        self.known_sets.synced
            && self.known_placements.synced
            && self.known_decisions.synced
            && self.known_works.synced
            && self.known_clusters.synced
    }

    fn open_watches(&self, ctx: &mut Context<Self>) {
        let HubDeps {
            client, io, health, ..
        } = &self.deps;
        let all = watcher::Config::default;
        let sets: Api<SetView> = Api::all(client.clone());
        let placements: Api<Placement> = Api::all(client.clone());
        let decisions: Api<PlacementDecision> = Api::all(client.clone());
        let works: Api<WorkView> = Api::all(client.clone());
        let owned = all().labels(names::MANIFEST_WORK_REPLICA_SET_CONTROLLER_NAME_LABEL_KEY);
        let mut reducer = WorkReducer::default();
        let mut events = WorkEvents::new(self.deps.events.clone());
        let stream = |name: &str| health.stream(format!("hub/{name}"));
        ctx.add_stream(
            watch(io, sets, all(), stream("manifestworkreplicasets"), |set| {
                set
            })
            .map(Event::Set),
        );
        ctx.add_stream(
            watch(io, placements, all(), stream("placements"), |p| p).map(Event::Placement),
        );
        ctx.add_stream(
            watch(io, decisions, all(), stream("placementdecisions"), |d| d).map(Event::Decision),
        );
        ctx.add_stream(
            watch(
                io,
                works,
                owned,
                stream("manifestworks"),
                move |work: WorkView| {
                    events.look(&work.metadata, &work.status.conditions);
                    reducer.reduce(work)
                },
            )
            .map(Event::Work),
        );
        ctx.add_stream(watch_clusters(&self.deps, "hub/managedclusters").map(Event::Cluster));
    }

    fn tell(&mut self, set: &ObjectName, fact: Fact) {
        if let Some(Set { addr, .. }) = self.sets.get(set) {
            self.held.tell((set.clone(), fact.about()), addr, fact);
        }
    }

    /// Tells aggregators that everything has been told, once it has.
    fn tell_complete(&mut self) {
        if !self.synced() {
            return;
        }
        self.tell_placements();
        if !self.held.is_empty() {
            return;
        }
        for set in std::mem::take(&mut self.incomplete) {
            self.tell(&set, Fact::Complete);
        }
    }

    /// Everything the router knows that concerns `set`.
    fn tell_all(&mut self, set: &ObjectName) {
        let Some(Set { view, label, .. }) = self.sets.get(set) else {
            return;
        };
        let (view, label) = (Arc::clone(view), label.clone());
        let placements: Vec<String> = view
            .spec
            .placement_refs
            .iter()
            .map(|placement| placement.name.clone())
            .collect();
        self.tell(set, Fact::Set(view));
        for name in placements {
            self.tell_placement_to(set, name);
        }
        for (key, facts) in self.unowned.remove(&label).unwrap_or_default() {
            self.tell(set, Fact::Work(key, Some(Box::new(facts))));
        }
        if !self.away.is_empty() {
            self.tell(set, Fact::Away(Arc::clone(&self.away)));
        }
        if !self.paused.is_empty() {
            self.tell(set, Fact::Paused(Arc::clone(&self.paused)));
        }
        self.incomplete.insert(set.clone());
    }

    fn cluster_changed(&mut self, event: ClusterEvent) {
        let changed = match event {
            ClusterEvent::Seen(Seen::Listing) => {
                self.known_clusters.begin();
                false
            }
            ClusterEvent::Seen(Seen::Item(cluster)) => {
                self.note_cluster(cluster);
                false // told when the list is complete
            }
            ClusterEvent::Seen(Seen::Changed(cluster)) => self.note_cluster(cluster),
            ClusterEvent::Seen(Seen::Gone(cluster)) => {
                self.known_clusters.gone(&cluster.name);
                self.clusters.remove(&cluster.name).is_some()
            }
            ClusterEvent::Seen(Seen::Listed) => {
                for name in self.known_clusters.complete() {
                    self.clusters.remove(&name);
                }
                self.unreadable = None;
                true
            }
            ClusterEvent::Unreadable(why) => {
                if self.unreadable.as_ref() != Some(&why) {
                    warn!(
                        error = why,
                        "failed to list ManagedClusters, going on without: no cluster counts as \
                         paused or unavailable"
                    );
                    self.unreadable = Some(why);
                }
                self.known_clusters.synced = true;
                false
            }
        };
        if changed {
            self.tell_paused();
            self.tell_away();
        }
    }

    /// Says whether anything of it has changed that sets have to know.
    fn note_cluster(&mut self, cluster: ClusterSeen) -> bool {
        if cluster.paused || cluster.away.is_some() {
            self.known_clusters.seen(&cluster.name);
            if self.clusters.get(&cluster.name) == Some(&cluster) {
                return false;
            }
            self.clusters.insert(cluster.name.clone(), cluster);
            true
        } else {
            self.known_clusters.gone(&cluster.name);
            self.clusters.remove(&cluster.name).is_some()
        }
    }

    fn tell_paused(&mut self) {
        let paused = self.clusters.values().filter(|cluster| cluster.paused);
        let paused: BTreeSet<String> = paused.map(|cluster| cluster.name.clone()).collect();
        if paused != *self.paused {
            self.paused = Arc::new(paused);
            self.tell_every_set(&Fact::Paused(Arc::clone(&self.paused)));
        }
    }

    /// What clusters' conditions say holds where no agent says that it is there.
    fn tell_away(&mut self) {
        let mut away = self.agents_away.clone();
        let agents = self.deps.agents.as_ref().map(watch::Receiver::borrow);
        for cluster in self.clusters.values() {
            let connected = agents.as_ref().is_some_and(|agents| {
                let agent = agents.get(&cluster.name);
                agent.is_some_and(|agent| agent.connected)
            });
            if let (Some(since), false) = (cluster.away, connected) {
                away.entry(cluster.name.clone()).or_insert(since);
            }
        }
        drop(agents);
        if away != *self.away {
            self.away = Arc::new(away);
            self.tell_every_set(&Fact::Away(Arc::clone(&self.away)));
        }
    }

    fn tell_every_set(&mut self, fact: &Fact) {
        let sets: Vec<_> = self.sets.keys().cloned().collect();
        for set in sets {
            self.tell(&set, fact.clone());
        }
    }

    /// Agents have come or gone, or one has been away for long enough to count.
    fn agents_changed(&mut self, ctx: &mut Context<Self>) {
        let Some(agents) = &self.deps.agents else {
            return;
        };
        let (now, grace) = (Timestamp::now(), self.deps.settings.away_after);
        let mut next: Option<Duration> = None;
        let mut away = BTreeMap::new();
        for (cluster, agent) in agents.borrow().iter().filter(|(_, agent)| !agent.connected) {
            let gone_for = Duration::try_from(now.duration_since(agent.since)).unwrap_or_default();
            match grace.checked_sub(gone_for) {
                Some(left) if !left.is_zero() => {
                    next = Some(next.map_or(left, |next| next.min(left)));
                }
                _ => {
                    away.insert(cluster.clone(), agent.since);
                }
            }
        }
        if let Some(timer) = self.away_timer.take() {
            ctx.cancel_future(timer);
        }
        self.away_timer = next.map(|next| ctx.run_later(next, Self::agents_changed));
        self.agents_away = away;
        self.tell_away();
    }

    fn tell_placement_to(&mut self, set: &ObjectName, name: String) {
        let id = ObjectName {
            namespace: set.namespace.clone(),
            name,
        };
        let facts = self.placements.get(&id).and_then(PlacementState::facts);
        self.tell(set, Fact::Placement(id.name, facts));
    }

    fn placement_changed(&mut self, placement: &ObjectName) {
        if self
            .placements
            .get(placement)
            .is_some_and(|p| p.exists.is_none() && p.decisions.is_empty())
        {
            self.placements.remove(placement);
        }
        self.changed_placements.insert(placement.clone());
    }

    /// Tells sets of placements that have changed.
    fn tell_placements(&mut self) {
        for placement in std::mem::take(&mut self.changed_placements) {
            self.tell_placement(&placement);
        }
    }

    fn tell_placement(&mut self, placement: &ObjectName) {
        let concerned: Vec<ObjectName> = self
            .sets
            .iter()
            .filter(|(id, set)| {
                id.namespace == placement.namespace
                    && set
                        .view
                        .spec
                        .placement_refs
                        .iter()
                        .any(|r| r.name == placement.name)
            })
            .map(|(id, _)| id.clone())
            .collect();
        for set in concerned {
            self.tell_placement_to(&set, placement.name.clone());
        }
    }

    fn set_changed(&mut self, view: SetView, ctx: &Context<Self>) {
        let id = ObjectName::of(&view.metadata);
        self.known_sets.seen(&id);
        let view = Arc::new(view);
        if let Some(set) = self.sets.get_mut(&id) {
            let refs_changed = set.view.spec.placement_refs != view.spec.placement_refs;
            set.view = Arc::clone(&view);
            self.tell(&id, Fact::Set(Arc::clone(&view)));
            if refs_changed {
                for placement in &view.spec.placement_refs {
                    self.tell_placement_to(&id, placement.name.clone());
                }
            }
            return;
        }
        let label = owner_label(&id.namespace, &id.name);
        let again = ctx.address().recipient();
        // Works may be left from a set of the same name, whose facts were told to it and are not
        // kept here; during the first lists all of them are still to come.
        let list_works = self.synced();
        let addr = ReplicaSetAggregator::start(self.deps.clone(), id.clone(), again, list_works);
        self.by_label.insert(label.clone(), id.clone());
        self.sets.insert(id.clone(), Set { addr, view, label });
        self.tell_all(&id);
    }

    fn set_gone(&mut self, id: &ObjectName, ctx: &mut Context<Self>) {
        self.known_sets.gone(id);
        let Some(set) = self.sets.remove(id) else {
            return;
        };
        self.by_label.remove(&set.label);
        self.incomplete.remove(id);
        info!(replica_set = %id, "replica set is gone");
        let stopped = async move { stop(&set.addr, STOP_LIMIT).await };
        ctx.spawn(stopped.into_actor(self).map(|_, _, _| ()));
    }

    fn decision_changed(&mut self, decision: &PlacementDecision) {
        let id = ObjectName::of(&decision.metadata);
        self.known_decisions.seen(&id);
        let labels = decision.metadata.labels.as_ref();
        let Some(placement) = labels.and_then(|labels| labels.get(names::PLACEMENT_LABEL)) else {
            return self.decision_gone(&id); // the label may have been there before
        };
        let placement = ObjectName {
            namespace: id.namespace.clone(),
            name: placement.clone(),
        };
        if self
            .decision_of
            .get(&id)
            .is_some_and(|before| *before != placement)
        {
            self.decision_gone(&id);
            self.known_decisions.seen(&id);
        }
        let decision = Decision::read(decision);
        let state = self.placements.entry(placement.clone()).or_default();
        let before = state.decisions.insert(id.name.clone(), decision);
        let same = before.as_ref() == state.decisions.get(&id.name);
        self.decision_of.insert(id, placement.clone());
        if !same {
            self.placement_changed(&placement);
        }
    }

    fn decision_gone(&mut self, id: &ObjectName) {
        self.known_decisions.gone(id);
        let Some(placement) = self.decision_of.remove(id) else {
            return;
        };
        if let Some(state) = self.placements.get_mut(&placement) {
            state.decisions.remove(&id.name);
        }
        self.placement_changed(&placement);
    }

    fn placement_seen(&mut self, placement: &Placement) {
        let id = ObjectName::of(&placement.metadata);
        self.known_placements.seen(&id);
        let status = placement.status.clone().unwrap_or_default();
        let selected = u32::try_from(status.number_of_selected_clusters).unwrap_or(0);
        let exists = Some((selected, status.decision_groups.len()));
        let state = self.placements.entry(id.clone()).or_default();
        if state.exists != exists {
            state.exists = exists;
            self.placement_changed(&id);
        }
    }

    fn placement_gone(&mut self, id: &ObjectName) {
        self.known_placements.gone(id);
        if let Some(state) = self.placements.get_mut(id) {
            state.exists = None;
        }
        self.placement_changed(id);
    }

    fn work_changed(&mut self, work: Result<OwnedWork, WorkKey>) {
        let OwnedWork { owner, key, facts } = match work {
            Ok(work) => work,
            // A selector-less fake or a label that was taken off: not ours (any more).
            Err(key) => return self.work_gone(&key),
        };
        self.known_works.seen(&key);
        if self.owners.get(&key).is_some_and(|before| *before != owner) {
            self.work_gone(&key);
            self.known_works.seen(&key);
        }
        if !self.owners.contains_key(&key) {
            self.owners.insert(key.clone(), owner.clone());
        }
        match self.by_label.get(&owner).cloned() {
            Some(set) => self.tell(&set, Fact::Work(key, Some(Box::new(facts)))),
            None => {
                self.unowned.entry(owner).or_default().insert(key, facts);
            }
        }
    }

    fn work_gone(&mut self, key: &WorkKey) {
        self.known_works.gone(key);
        let Some(owner) = self.owners.remove(key) else {
            return;
        };
        if let Some(set) = self.by_label.get(&owner).cloned() {
            self.tell(&set, Fact::Work(key.clone(), None));
        } else if let Some(works) = self.unowned.get_mut(&owner) {
            works.remove(key);
            if works.is_empty() {
                self.unowned.remove(&owner);
            }
        }
    }
}

impl Actor for ReplicaSets {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(MAILBOX);
        self.open_watches(ctx);
        if let Some(agents) = self.deps.agents.clone() {
            ctx.add_stream(changes_of(agents));
            self.agents_changed(ctx);
        }
        ctx.run_interval(RETRY_TELL, |router, _| {
            if router.synced() {
                router.tell_placements();
            }
            if !router.held.is_empty() {
                let sets = &router.sets;
                router
                    .held
                    .flush(|(set, _)| sets.get(set).map(|set| set.addr.clone()));
            }
            router.tell_complete();
        });
    }
}

impl Supervised for ReplicaSets {
    fn restarting(&mut self, _: &mut Self::Context) {
        let mut fresh = Self::new(self.deps.clone());
        // The aggregators live on; what is gone meanwhile shows when the lists are complete.
        fresh.known_sets.all = self.sets.keys().cloned().collect();
        fresh.known_works.all = self.owners.keys().cloned().collect();
        fresh.known_clusters.all = std::mem::take(&mut self.known_clusters.all);
        fresh.clusters = std::mem::take(&mut self.clusters);
        fresh.away = Arc::clone(&self.away);
        fresh.agents_away = std::mem::take(&mut self.agents_away);
        fresh.paused = Arc::clone(&self.paused);
        fresh.owners = std::mem::take(&mut self.owners);
        fresh.by_label = std::mem::take(&mut self.by_label);
        fresh.sets = std::mem::take(&mut self.sets);
        *self = fresh;
    }
}

impl StreamHandler<Event> for ReplicaSets {
    fn handle(&mut self, event: Event, ctx: &mut Self::Context) {
        if self.stopping {
            return;
        }
        match event {
            Event::Set(Seen::Listing) => self.known_sets.begin(),
            Event::Set(Seen::Item(set) | Seen::Changed(set)) => self.set_changed(set, ctx),
            Event::Set(Seen::Gone(set)) => self.set_gone(&ObjectName::of(&set.metadata), ctx),
            Event::Set(Seen::Listed) => {
                for id in self.known_sets.complete() {
                    self.set_gone(&id, ctx);
                }
            }
            Event::Placement(Seen::Listing) => self.known_placements.begin(),
            Event::Placement(Seen::Item(p) | Seen::Changed(p)) => self.placement_seen(&p),
            Event::Placement(Seen::Gone(p)) => self.placement_gone(&ObjectName::of(&p.metadata)),
            Event::Placement(Seen::Listed) => {
                for id in self.known_placements.complete() {
                    self.placement_gone(&id);
                }
            }
            Event::Decision(Seen::Listing) => self.known_decisions.begin(),
            Event::Decision(Seen::Item(d) | Seen::Changed(d)) => self.decision_changed(&d),
            Event::Decision(Seen::Gone(d)) => self.decision_gone(&ObjectName::of(&d.metadata)),
            Event::Decision(Seen::Listed) => {
                for id in self.known_decisions.complete() {
                    self.decision_gone(&id);
                }
            }
            Event::Cluster(event) => self.cluster_changed(event),
            Event::Work(Seen::Listing) => self.known_works.begin(),
            Event::Work(Seen::Item(work) | Seen::Changed(work)) => self.work_changed(work),
            Event::Work(Seen::Gone(work)) => {
                let key = work.map_or_else(|key| key, |work| work.key);
                self.work_gone(&key);
            }
            Event::Work(Seen::Listed) => {
                for key in self.known_works.complete() {
                    self.work_gone(&key);
                }
            }
        }
        if !self.incomplete.is_empty() {
            self.tell_complete();
        }
    }

    /// The streams end only with the runtime; the default would stop this actor.
    fn finished(&mut self, _: &mut Self::Context) {}
}

/// Agents have come or gone; which, is in what they are watched by.
#[derive(Debug)]
struct AgentsChanged;

fn changes_of(agents: watch::Receiver<Agents>) -> impl Stream<Item = AgentsChanged> {
    futures::stream::unfold(agents, |mut agents| async {
        agents.changed().await.ok()?;
        Some((AgentsChanged, agents))
    })
}

impl StreamHandler<AgentsChanged> for ReplicaSets {
    fn handle(&mut self, _: AgentsChanged, ctx: &mut Self::Context) {
        if !self.stopping {
            self.agents_changed(ctx);
        }
    }

    fn finished(&mut self, _: &mut Self::Context) {}
}

impl Handler<TellAgain> for ReplicaSets {
    type Result = ();

    fn handle(&mut self, TellAgain(set): TellAgain, _: &mut Self::Context) {
        self.tell_all(&set);
        self.tell_complete();
    }
}

impl Handler<Snapshot> for ReplicaSets {
    type Result = MessageResult<Snapshot>;

    fn handle(&mut self, _: Snapshot, _: &mut Self::Context) -> Self::Result {
        let clusters: HashSet<&str> = self.owners.keys().map(|key| &*key.cluster).collect();
        let away = self.away.iter().take(SHOWN);
        Snapshot::of(&State {
            replica_sets: self.sets.len(),
            placements: self.placements.len(),
            clusters: clusters.len(),
            away: self.away.len(),
            first_away: away.map(|(name, since)| (&**name, *since)).collect(),
            paused: self.paused.len(),
            first_paused: self.paused.iter().take(SHOWN).map(|name| &**name).collect(),
            works: self.owners.len(),
            unowned_works: self.unowned.values().map(HashMap::len).sum(),
            synced: self.synced(),
        })
    }
}

impl Handler<Stop> for ReplicaSets {
    type Result = ResponseActFuture<Self, ()>;

    /// Stops the aggregators, which flush their status, then itself.
    fn handle(&mut self, _: Stop, _: &mut Self::Context) -> Self::Result {
        self.stopping = true;
        let children: Vec<_> = self.sets.drain().map(|(_, set)| set.addr).collect();
        let stopped = async move {
            join_all(children.iter().map(|child| stop(child, STOP_LIMIT))).await;
        };
        Box::pin(stopped.into_actor(self).map(|(), _, ctx| ctx.stop()))
    }
}
