//! `RuleSupervisor`: the watches that the rules of a cluster want.
//!
//! ```text
//!  RulesChanged ─► quiet for watch.debounce, or watch.debounce_max over? ─┐
//!  a CRD came or went ─► a moment ───────────────────────────────────────┼─► ask what is served
//!  every watch.heartbeat ────────────────────────────────────────────────┘        │
//!                                                       plan: areas, and for which sinks
//!                                                                                 ▼
//!  new areas are listened to, others left; after a change of the rules all their watches are opened
//!  anew (watch.restart), each listing before the one that it replaces is closed
//! ```
//!
//! A plan that is as before changes nothing. What the API server does not tell leaves the plan as it
//! is: only what it says to be gone is taken for gone, and that after a while. Whatever a sink already
//! has of an area it keeps when no rule wants the area any more.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use actix::{
    Actor, ActorContext, ActorFutureExt, Addr, AsyncContext, Context, Handler, Message,
    MessageResult, ResponseActFuture, SpawnHandle, StreamHandler, Supervised, WrapFuture,
    fut::wrap_future,
};
use futures::StreamExt;
use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher;
use kube::{Api, Client};
use muster_api::rules::{ClusterWatchRule, WatchRule, WatchRuleStatus};
use muster_core::rule_events::Room;
use muster_core::watch_rules::{
    Catalog, Exclusions, RuleName, RulePlan, Scan, Stream, StreamKey, UnresolvedReason, plan_rules,
};
use serde::Serialize;
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::event_queue::EventQueue;
use super::feed::{Feed, Feeds, Route, Wanting};
use super::memory::{Memory, Told};
use super::outlet::Outlet;
use super::signal::{Published, RuleReceiver};
use super::status::{Facts, status};
use super::{RuleSettings, SinkMaker, discovery, metrics};
use crate::supervision::{Health, Io, Registry, Snapshot, Stop, stop};
use crate::watch::{Area, AreaSubscription, Coverage, RestartAreas, WatchSupervisor, Watches};
use crate::watching::watch;

/// A CRD that has just come is served a moment later, and a chart brings several.
const CRD_SETTLES: Duration = Duration::from_secs(1);
/// How often statuses of rules are looked over.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);
/// How long a status waits that says nothing new but how many events there were.
const COUNTS_INTERVAL: Duration = Duration::from_secs(10);
/// How long an actor of a sink may take to end: it gives the sink what waits.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// The rules mean something else than before.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "()")]
pub(super) struct RulesChanged;

/// Why a plan is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Trigger {
    Heartbeat,
    Discovery,
    Rules,
}

impl Trigger {
    const fn name(self) -> &'static str {
        match self {
            Self::Heartbeat => "periodic",
            Self::Discovery => "discovery",
            Self::Rules => "rule",
        }
    }
}

/// What the supervisor of rules shows of itself.
#[derive(Debug, Clone, Serialize)]
pub struct RuleSupervisorState {
    /// Revision of the rules that are planned for.
    pub revision: u64,
    /// Areas that are listened to.
    pub areas: Vec<String>,
    /// Types among them.
    pub types: usize,
    /// Rules of which something is not watched, with the first reason.
    pub unresolved: BTreeMap<String, String>,
    /// Why it is not known what the API server serves.
    pub discovery: Option<String>,
    /// Plans that changed something.
    pub updates: u64,
}

/// A sink of this cluster.
#[derive(Debug)]
struct Destination {
    outlet: Arc<Outlet>,
    /// `None` while what is kept of it cannot be read: it is told nothing then.
    queue: Option<Addr<EventQueue>>,
}

/// What was kept of a sink, and what it said.
type Opened = Option<(Arc<Memory>, Told)>;

fn open_memory(path: Option<PathBuf>) -> Result<Opened, String> {
    let Some(path) = path else {
        return Ok(None);
    };
    let memory = Memory::open(&path)?;
    let had = memory
        .load()
        .map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(Some((Arc::new(memory), had)))
}

/// An area that is listened to.
#[derive(Debug)]
struct Listening {
    feed: Arc<Feed>,
    subscription: AreaSubscription,
    /// The sinks, each with the rules because of which it hears of the area.
    routes: Routes,
}

/// Sinks, each with the rules because of which it hears of an area.
type Routes = BTreeMap<Arc<str>, Vec<Wanting>>;

/// What the actor is made of.
pub(super) struct SupervisorDeps {
    pub(super) cluster: String,
    pub(super) client: Client,
    pub(super) io: Io,
    pub(super) registry: Registry,
    pub(super) health: Health,
    pub(super) watches: Arc<Watches>,
    pub(super) supervisor: Addr<WatchSupervisor>,
    pub(super) rules: RuleReceiver,
    pub(super) settings: RuleSettings,
    pub(super) sinks: BTreeMap<String, Arc<dyn SinkMaker>>,
}

/// The actor. See the module.
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(super) struct RuleSupervisor {
    deps: SupervisorDeps,
    exclusions: Exclusions,
    catalog: Catalog,
    destinations: BTreeMap<Arc<str>, Destination>,
    feeds: Arc<Feeds>,
    listening: BTreeMap<StreamKey, Listening>,
    plan: RulePlan,
    revision: u64,
    planned: bool,
    /// What is kept of the sinks has been read.
    sinks_started: bool,
    /// When rules changed that are not planned for yet, and the timer that ends the wait.
    waiting: Option<(Instant, SpawnHandle)>,
    /// A question to the API server is under way; why, and why another one is to follow.
    asking: Option<Trigger>,
    asked_again: Option<Trigger>,
    discovery: Result<(), String>,
    crd_timer: Option<SpawnHandle>,
    /// A coverage of an area has changed, or a sink.
    changed: Arc<Notify>,
    /// When the plan was made whose watches have not all listed.
    opening: Option<Instant>,
    status_due: bool,
    /// Statuses that are being written, or were, with when.
    written: BTreeMap<RuleName, (WatchRuleStatus, Instant)>,
    updates: u64,
    stopping: bool,
}

impl std::fmt::Debug for RuleSupervisor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RuleSupervisor")
            .field("cluster", &self.deps.cluster)
            .field("areas", &self.listening.len())
            .finish_non_exhaustive()
    }
}

impl RuleSupervisor {
    pub(super) fn new(deps: SupervisorDeps) -> Self {
        metrics::describe();
        let feeds = Arc::new(Feeds::new(deps.client.clone()));
        Self {
            exclusions: deps.settings.never_watch.clone(),
            catalog: Catalog::default(),
            destinations: BTreeMap::new(),
            feeds,
            listening: BTreeMap::new(),
            plan: RulePlan::default(),
            revision: 0,
            planned: false,
            sinks_started: false,
            waiting: None,
            asking: None,
            asked_again: None,
            discovery: Ok(()),
            crd_timer: None,
            changed: Arc::default(),
            opening: None,
            status_due: false,
            written: BTreeMap::new(),
            updates: 0,
            stopping: false,
            deps,
        }
    }

    /// Opens what is kept of each sink, and starts them; then the rules are looked at.
    fn start_sinks(&mut self, ctx: &mut Context<Self>) {
        let missing: Vec<(Arc<str>, Option<PathBuf>)> = self
            .deps
            .sinks
            .keys()
            // Queues outlive a restart of their owner.
            .filter(|name| {
                let known = self.destinations.get(name.as_str());
                known.is_none_or(|known| known.queue.is_none())
            })
            .map(|name| {
                let folder = self.deps.settings.data_dir.as_ref();
                let file = format!("{name}.redb");
                let path = folder.map(|folder| folder.join(&self.deps.cluster).join(file));
                (Arc::from(name.as_str()), path)
            })
            .collect();
        let opened = self.deps.io.run(tokio::task::spawn_blocking(move || {
            let open = |(name, path): (Arc<str>, Option<PathBuf>)| (name, open_memory(path));
            missing.into_iter().map(open).collect::<Vec<_>>()
        }));
        ctx.spawn(opened.into_actor(self).map(|opened, actor, ctx| {
            if let Ok(Ok(opened)) = opened {
                for (name, memory) in opened {
                    actor.start_sink(&name, memory);
                }
            }
            actor.sinks_started = true;
            actor.ask(Trigger::Heartbeat, ctx);
        }));
    }

    fn start_sink(&mut self, name: &Arc<str>, memory: Result<Opened, String>) {
        let Some(maker) = self.deps.sinks.get(&**name) else {
            return;
        };
        let destination = self
            .destinations
            .entry(Arc::clone(name))
            .or_insert_with(|| {
                let room: Room = self.deps.settings.room;
                Destination {
                    outlet: Outlet::new(Arc::clone(name), room, Arc::clone(&self.changed)),
                    queue: None,
                }
            });
        let memory = match memory {
            Ok(Some((memory, had))) => {
                destination.outlet.remember(had);
                Some(memory)
            }
            Ok(None) => None,
            Err(error) => {
                // An empty one in its place would have everything told anew.
                warn!(cluster = self.deps.cluster, sink = %name, error, "sink not started, retrying");
                destination.outlet.set_failing(Some(error));
                return;
            }
        };
        destination.outlet.set_failing(None);
        let queue = EventQueue::new(
            Arc::clone(&destination.outlet),
            Arc::clone(&self.feeds) as _,
            self.deps.io.clone(),
            memory,
            maker.make(&self.deps.cluster),
        );
        let label = format!("{} {name}", self.deps.cluster);
        destination.queue = Some(self.deps.registry.start("EventQueue", label, queue));
    }

    /// Rules changed: their watches follow once they have been quiet, or have kept on for long.
    fn rules_changed(&mut self, ctx: &mut Context<Self>) {
        if !self.deps.rules.take() || self.stopping {
            return;
        }
        self.status_due = true;
        let now = Instant::now();
        let first = match self.waiting.take() {
            Some((first, timer)) => {
                ctx.cancel_future(timer);
                first
            }
            None => now,
        };
        let settings = &self.deps.settings;
        let quiet = now + settings.debounce;
        let at = quiet.min(first + settings.debounce_max);
        let timer = ctx.run_later(at.saturating_duration_since(now), |actor, ctx| {
            actor.waiting = None;
            actor.ask(Trigger::Rules, ctx);
        });
        self.waiting = Some((first, timer));
    }

    /// Asks what the API server serves, and plans with the answer.
    fn ask(&mut self, trigger: Trigger, ctx: &mut Context<Self>) {
        if self.stopping {
            return;
        }
        if self.asking.is_some() {
            // What has changed since that question was put may need another answer.
            self.asked_again = self.asked_again.max(Some(trigger));
            return;
        }
        self.asking = Some(trigger);
        let client = self.deps.client.clone();
        let limit = self.deps.settings.discovery_limit;
        let scan = self.deps.io.run(async move {
            match tokio::time::timeout(limit, discovery::scan(&client)).await {
                Ok(scan) => scan.map_err(|error| error.to_string()),
                Err(_) => Err(format!("no answer within {limit:?}")),
            }
        });
        let scan = async move { scan.await.unwrap_or_else(|error| Err(error.to_string())) };
        ctx.spawn(scan.into_actor(self).map(|scan, actor, ctx| {
            let trigger = actor.asking.take().unwrap_or(Trigger::Heartbeat);
            actor.answered(scan, trigger, ctx);
            if let Some(again) = actor.asked_again.take() {
                actor.ask(again, ctx);
            }
        }));
    }

    fn answered(&mut self, scan: Result<Scan, String>, trigger: Trigger, ctx: &mut Context<Self>) {
        match scan {
            Ok(scan) => {
                self.catalog.observe(Timestamp::now(), scan);
                if self.discovery.is_err() {
                    info!(
                        cluster = self.deps.cluster,
                        "the API server tells what it serves again"
                    );
                }
                self.discovery = Ok(());
            }
            Err(error) => {
                if self.discovery != Err(error.clone()) {
                    let cluster = &self.deps.cluster;
                    warn!(
                        cluster,
                        error, "the API server does not tell what it serves, watches stay"
                    );
                }
                self.discovery = Err(error);
                metrics::update("error", trigger.name());
                self.status_due = true;
            }
        }
        self.replan(trigger, ctx);
    }

    fn replan(&mut self, trigger: Trigger, ctx: &mut Context<Self>) {
        let Some(published) = self.deps.rules.published() else {
            return; // the rules are not known yet
        };
        if !self.catalog.is_loaded() || !self.sinks_started {
            return;
        }
        let started = Instant::now();
        let plan = plan_rules(&published.snapshot, &self.catalog, &self.exclusions);
        self.revision = published.snapshot.revision;
        let change = self.apply(&plan, &published);
        if !self.planned {
            for destination in self.destinations.values() {
                destination.outlet.forget_others();
            }
        }
        self.planned = true;
        self.plan = plan;
        self.tell_metrics();
        self.status_due = true;
        let result = match (change, self.discovery.is_ok()) {
            (Change::None, true) => "noop",
            (Change::None, false) => return, // counted as an error
            _ if self
                .plan
                .rules
                .values()
                .any(|part| !part.unresolved.is_empty()) =>
            {
                "partial"
            }
            _ => "applied",
        };
        metrics::update(result, trigger.name());
        if change == Change::None {
            return;
        }
        self.updates += 1;
        info!(
            cluster = self.deps.cluster,
            revision = self.revision,
            areas = self.listening.len(),
            trigger = trigger.name(),
            "watches of rules follow"
        );
        self.opening = Some(started);
        let wholesale = self.deps.settings.wholesale && trigger == Trigger::Rules;
        if change == Change::Areas && wholesale && !self.listening.is_empty() {
            // It has far more room than there are such messages.
            if self.deps.supervisor.try_send(RestartAreas).is_err() {
                let supervisor = self.deps.supervisor.clone();
                ctx.run_later(STATUS_INTERVAL, move |_, _| {
                    let _ = supervisor.try_send(RestartAreas);
                });
            }
        }
    }

    /// For each area the sinks that hear of it. A sink hears of an object in one way: where it wants
    /// all of a type in the cluster, rules for namespaces add to that.
    fn routes(&self, plan: &RulePlan, published: &Published) -> BTreeMap<StreamKey, Routes> {
        let started = |sink: &Arc<str>| {
            let known = self.destinations.get(sink);
            known.is_some_and(|known| known.queue.is_some())
        };
        let mut all: BTreeMap<StreamKey, Routes> = BTreeMap::new();
        for (key, stream) in &plan.streams {
            for (sink, takers) in stream.destinations.iter().filter(|(sink, _)| started(sink)) {
                let wide = StreamKey {
                    namespace: None,
                    ..key.clone()
                };
                let covers = |stream: &Stream| stream.destinations.contains_key(sink);
                let of = if plan.streams.get(&wide).is_some_and(covers) {
                    wide
                } else {
                    key.clone()
                };
                let wanting = takers.iter().filter_map(|(name, items)| {
                    let rule = published.snapshot.rules.get(name)?;
                    Some((Arc::clone(rule), items.clone()))
                });
                let routes = all.entry(of).or_default();
                routes.entry(Arc::clone(sink)).or_default().extend(wanting);
            }
        }
        all
    }

    /// Brings what is listened to in line with the plan.
    fn apply(&mut self, plan: &RulePlan, published: &Published) -> Change {
        let mut change = Change::None;
        let wanted = self.routes(plan, published);
        // First what is new, so that what a sink has of it is taken over from what it leaves.
        for (key, routes) in &wanted {
            for sink in routes.keys() {
                self.outlet(sink)
                    .inspect(|outlet| outlet.join(&Area::from(key)));
            }
        }
        for (key, listening) in &self.listening {
            let stays = wanted.get(key);
            for sink in listening.routes.keys() {
                if stays.is_none_or(|routes| !routes.contains_key(sink)) {
                    self.outlet(sink)
                        .inspect(|outlet| outlet.leave(&Area::from(key)));
                }
            }
        }
        let gone: Vec<StreamKey> = self
            .listening
            .keys()
            .filter(|key| !wanted.contains_key(key))
            .cloned()
            .collect();
        for key in gone {
            self.listening.remove(&key);
            self.feeds.remove(&Area::from(&key));
            change = Change::Areas;
        }
        for (key, routes) in wanted {
            let with_outlets = routes.iter().filter_map(|(sink, rules)| {
                Some(Route {
                    outlet: Arc::clone(&self.destinations.get(sink)?.outlet),
                    rules: rules.clone(),
                })
            });
            let with_outlets: Vec<Route> = with_outlets.collect();
            if let Some(listening) = self.listening.get_mut(&key) {
                if listening.routes == routes {
                    continue;
                }
                listening.feed.set_routes(with_outlets);
                // The watch goes on, so that these sinks are owed a look at what is there.
                for (sink, rules) in &routes {
                    if listening.routes.get(sink) != Some(rules) {
                        let destination = self.destinations.get(sink);
                        destination.inspect(|it| it.outlet.is_behind(Area::from(&key)));
                    }
                }
                listening.routes = routes;
                change = change.max(Change::Routes);
                continue;
            }
            let kind = plan
                .streams
                .get(&key)
                .map(|stream| Arc::clone(&stream.kind));
            let feed = Arc::new(Feed::new(
                Area::from(&key),
                kind.unwrap_or_default(),
                with_outlets,
                Arc::clone(&self.changed),
            ));
            self.feeds.insert(Arc::clone(&feed));
            let subscription = self
                .deps
                .watches
                .listen(Area::from(&key), Arc::clone(&feed) as _);
            let listening = Listening {
                feed,
                subscription,
                routes,
            };
            self.listening.insert(key, listening);
            change = Change::Areas;
        }
        change
    }

    fn outlet(&self, sink: &Arc<str>) -> Option<&Arc<Outlet>> {
        self.destinations
            .get(sink)
            .map(|destination| &destination.outlet)
    }

    fn types(&self) -> usize {
        let types: BTreeSet<_> = self.listening.keys().map(|key| &key.resource).collect();
        types.len()
    }

    fn tell_metrics(&self) {
        let mut unresolved: BTreeMap<UnresolvedReason, usize> = UnresolvedReason::ALL
            .iter()
            .map(|reason| (*reason, 0))
            .collect();
        for part in self.plan.rules.values() {
            for it in &part.unresolved {
                *unresolved.entry(it.reason).or_default() += 1;
            }
        }
        let unresolved: Vec<_> = unresolved
            .into_iter()
            .map(|(reason, number)| (reason.as_str(), number))
            .collect();
        metrics::plan(&self.deps.cluster, self.types(), &unresolved);
    }

    fn coverage(&self) -> BTreeMap<StreamKey, Coverage> {
        let all = self.listening.iter();
        all.map(|(key, listening)| (key.clone(), listening.subscription.coverage()))
            .collect()
    }

    /// How each stream of the plan is watched: by its own area, or by that of the whole cluster.
    fn coverage_of_streams(
        &self,
        areas: &BTreeMap<StreamKey, Coverage>,
    ) -> BTreeMap<StreamKey, Coverage> {
        let of = |key: &StreamKey| {
            let wide = StreamKey {
                namespace: None,
                ..key.clone()
            };
            areas.get(key).or_else(|| areas.get(&wide)).cloned()
        };
        let streams = self.plan.streams.keys();
        streams
            .filter_map(|key| Some((key.clone(), of(key)?)))
            .collect()
    }

    /// Looks at how the areas are watched, and whether all that were opened are there.
    fn look(&mut self) {
        self.status_due = true;
        if let Some(started) = self.opening
            && self.coverage().values().all(|it| *it != Coverage::Opening)
        {
            metrics::update_took(started.elapsed());
            self.opening = None;
        }
    }

    /// Writes the statuses that are not as they should be.
    fn write_statuses(&mut self, ctx: &mut Context<Self>) {
        let Some(published) = self.deps.rules.published() else {
            return;
        };
        let due = std::mem::take(&mut self.status_due);
        let now = Instant::now();
        self.written
            .retain(|name, _| published.seen.contains_key(name));
        let coverage = self.coverage();
        let coverage = self.coverage_of_streams(&coverage);
        let mut writes = Vec::new();
        for (name, seen) in &published.seen {
            let rule = published.snapshot.rules.get(name);
            let destination = rule.map_or("", |rule| &*rule.destination);
            let sink = self.destinations.get(destination);
            let sinks = (rule.is_some() && sink.is_none())
                .then(|| self.destinations.keys().map(ToString::to_string).collect());
            let failing = sink.and_then(|sink| sink.outlet.failing());
            let events = sink.map_or((0, None), |sink| sink.outlet.count_of(&name.to_string()));
            let facts = Facts {
                part: self
                    .plan
                    .rules
                    .get(name)
                    .filter(|_| self.planned && rule.is_some()),
                sinks,
                discovery: self.discovery.as_ref().err().map(String::as_str),
                coverage: &coverage,
                failing,
                events,
            };
            let next = status(destination, seen, &facts, Timestamp::now());
            let last = self.written.get(name);
            if last.map_or(&seen.status, |(last, _)| last) == &next {
                continue;
            }
            let only_counts = last.is_some_and(|(last, _)| {
                let counted = |status: &WatchRuleStatus| WatchRuleStatus {
                    events: 0,
                    last_event_time: None,
                    ..status.clone()
                };
                counted(last) == counted(&next)
            });
            let early = last.is_some_and(|(_, at)| now.duration_since(*at) < COUNTS_INTERVAL);
            if only_counts && early || !only_counts && !due && last.is_some() {
                continue;
            }
            self.written.insert(name.clone(), (next.clone(), now));
            writes.push((name.clone(), next));
        }
        if writes.is_empty() {
            return;
        }
        let client = self.deps.client.clone();
        let task = self.deps.io.run(write_all(client, writes));
        ctx.spawn(task.into_actor(self).map(|result, actor, _| {
            // What was not written is tried again.
            for name in result.unwrap_or_default() {
                actor.written.remove(&name);
                actor.status_due = true;
            }
        }));
    }

    fn follow_changes(&self, ctx: &mut Context<Self>) {
        let changed = Arc::clone(&self.changed);
        let changed = async move { changed.notified().await };
        ctx.spawn(wrap_future::<_, Self>(changed).map(|(), actor, ctx| {
            actor.look();
            actor.follow_changes(ctx);
        }));
    }

    fn watch_crds(&self, ctx: &mut Context<Self>) {
        let health = self
            .deps
            .health
            .optional_stream(format!("{} CRDs", self.deps.cluster));
        let api: Api<PartialObjectMeta<CustomResourceDefinition>> =
            Api::all(self.deps.client.clone());
        let crds = watch(
            &self.deps.io,
            api,
            watcher::Config::default(),
            health,
            |_| (),
        );
        ctx.add_stream(crds.map(|_| CrdSeen));
    }
}

/// Something about a type that is defined by an object.
#[derive(Debug)]
struct CrdSeen;

/// What a plan has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    None,
    /// Who hears of what is watched.
    Routes,
    /// What is watched.
    Areas,
}

/// Writes statuses one after the other; gives back the rules for which that failed.
async fn write_all(client: Client, writes: Vec<(RuleName, WatchRuleStatus)>) -> Vec<RuleName> {
    let mut failed = Vec::new();
    for (name, status) in writes {
        let patch = Patch::Merge(json!({"status": status}));
        let params = PatchParams::default();
        let result = if let Some(namespace) = &name.namespace {
            let api: Api<WatchRule> = Api::namespaced(client.clone(), namespace);
            let written = api.patch_status(&name.name, &params, &patch).await;
            written.map(|_| ())
        } else {
            let api: Api<ClusterWatchRule> = Api::all(client.clone());
            let written = api.patch_status(&name.name, &params, &patch).await;
            written.map(|_| ())
        };
        match result {
            Ok(()) => {}
            Err(kube::Error::Api(status)) if status.is_not_found() => {} // it is gone
            Err(error) => {
                debug!(rule = %name, %error, "status of a rule not written");
                failed.push(name);
            }
        }
    }
    failed
}

impl Actor for RuleSupervisor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.start_sinks(ctx);
        self.follow_changes(ctx);
        self.watch_crds(ctx);
        ctx.run_interval(self.deps.settings.heartbeat, |actor, ctx| {
            debug!(
                cluster = actor.deps.cluster,
                areas = actor.listening.len(),
                revision = actor.revision,
                "rules are watched"
            );
            actor.rules_changed(ctx);
            if actor.destinations.values().any(|it| it.queue.is_none()) {
                actor.start_sinks(ctx);
            } else {
                actor.ask(Trigger::Heartbeat, ctx);
            }
        });
        ctx.run_interval(STATUS_INTERVAL, Self::write_statuses);
        self.rules_changed(ctx);
    }
}

impl Supervised for RuleSupervisor {
    fn restarting(&mut self, _: &mut Self::Context) {
        // What is listened to stays; a new plan finds what is missing.
        self.waiting = None;
        self.asking = None;
        self.asked_again = None;
        self.crd_timer = None;
        self.stopping = false;
        self.status_due = true;
        self.written.clear();
    }
}

impl Handler<RulesChanged> for RuleSupervisor {
    type Result = ();

    fn handle(&mut self, _: RulesChanged, ctx: &mut Self::Context) {
        self.rules_changed(ctx);
    }
}

impl StreamHandler<CrdSeen> for RuleSupervisor {
    fn handle(&mut self, _: CrdSeen, ctx: &mut Self::Context) {
        if self.crd_timer.is_none() && !self.stopping {
            let timer = ctx.run_later(CRD_SETTLES, |actor, ctx| {
                actor.crd_timer = None;
                actor.ask(Trigger::Discovery, ctx);
            });
            self.crd_timer = Some(timer);
        }
    }

    /// The stream ends only with the runtime; the default would stop this actor.
    fn finished(&mut self, _: &mut Self::Context) {}
}

impl Handler<Snapshot> for RuleSupervisor {
    type Result = MessageResult<Snapshot>;

    fn handle(&mut self, _: Snapshot, _: &mut Self::Context) -> Self::Result {
        let unresolved = self.plan.rules.iter().filter_map(|(name, part)| {
            let first = part.unresolved.first()?;
            Some((
                name.to_string(),
                format!("{}: {}", first.resource, first.message),
            ))
        });
        Snapshot::of(&RuleSupervisorState {
            revision: self.revision,
            areas: self
                .listening
                .keys()
                .map(|key| Area::from(key).to_string())
                .collect(),
            types: self.types(),
            unresolved: unresolved.collect(),
            discovery: self.discovery.clone().err(),
            updates: self.updates,
        })
    }
}

/// First it listens to nothing any more, then the sinks are given what waits, then itself.
impl Handler<Stop> for RuleSupervisor {
    type Result = ResponseActFuture<Self, ()>;

    fn handle(&mut self, _: Stop, _: &mut Self::Context) -> Self::Result {
        self.stopping = true;
        self.listening.clear();
        let queues: Vec<_> = self
            .destinations
            .values()
            .filter_map(|it| it.queue.clone())
            .collect();
        let stopped = async move {
            join_all(queues.iter().map(|queue| stop(queue, STOP_LIMIT))).await;
        };
        Box::pin(wrap_future::<_, Self>(stopped).map(|(), actor, ctx| {
            metrics::plan(&actor.deps.cluster, 0, &[]);
            actor.destinations.clear();
            ctx.stop();
        }))
    }
}
