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
use std::sync::Arc;
use std::time::Duration;

use actix::{
    Actor, ActorContext, ActorFutureExt, Addr, AsyncContext, Context, Handler, Message,
    MessageResult, ResponseActFuture, SpawnHandle, StreamHandler, Supervised, WrapFuture,
    fut::wrap_future,
};
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher;
use kube::{Api, Client};
use muster_core::watch_plan::Resource;
use muster_core::watch_rules::{
    Catalog, Exclusions, REMOVAL_GRACE, RulePlan, RuleSnapshot, Scan, StreamKey, UnresolvedReason,
    plan_rules,
};
use serde::Serialize;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::destinations::{DestinationDeps, Destinations};
use super::listeners::{Change, Listeners};
use super::signal::RuleReceiver;
use super::statuses::{self, Known, Statuses};
use super::{RuleSettings, SinkMaker, discovery, metrics};
use crate::events::Recorder;
use crate::supervision::{Backoff, BackoffPolicy, Health, Io, Registry, Snapshot, Stop};
use crate::watch::{RestartAreas, WatchSupervisor, Watches};
use crate::watching::watch;

/// A CRD that has just come is served a moment later, and a chart brings several.
const CRD_SETTLES: Duration = Duration::from_secs(1);
/// How often statuses of rules are looked over.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);
/// Pace of questions about what is served, after one that had no answer or not a whole one. One a
/// heartbeat goes on besides.
const ASK_AGAIN: BackoffPolicy = BackoffPolicy {
    first: Duration::from_secs(1),
    max: Duration::from_secs(30),
    reset_after: Duration::from_secs(120),
};

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
    /// Types among them of which a watch is open.
    pub types: usize,
    /// Rules of which something is not watched, with the first reason.
    pub unresolved: BTreeMap<String, String>,
    /// Why it is not known what the API server serves.
    pub discovery: Option<String>,
    /// Plans that changed what is watched.
    pub updates: u64,
}

/// What the actor is made of.
pub(super) struct SupervisorDeps {
    pub(super) cluster: String,
    pub(super) client: Client,
    pub(super) io: Io,
    pub(super) registry: Registry,
    pub(super) health: Health,
    pub(super) watches: Arc<Watches>,
    pub(super) supervisor: Addr<WatchSupervisor>,
    /// Tells what becomes of rules.
    pub(super) events: Recorder,
    pub(super) rules: RuleReceiver,
    pub(super) settings: RuleSettings,
    pub(super) sinks: BTreeMap<String, Arc<dyn SinkMaker>>,
}

/// The actor. See the module.
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(super) struct RuleSupervisor {
    deps: SupervisorDeps,
    catalog: Catalog,
    /// When this began. What the catalog does after a while is counted from here, whatever is done to
    /// the clock of the machine meanwhile.
    began: (Timestamp, Instant),
    /// Those of the settings and those of the sinks.
    exclusions: Exclusions,
    destinations: Destinations,
    listeners: Listeners,
    statuses: Statuses,
    plan: RulePlan,
    /// The rules that are planned for, whatever asks for a plan: newer ones have not been quiet yet.
    rules: Option<Arc<RuleSnapshot>>,
    revision: u64,
    /// Streams that the cluster refused when it was last said who hears of what.
    refused: BTreeSet<StreamKey>,
    /// When the first plan was made.
    planned: Option<Instant>,
    /// What sinks had by rules of an earlier life that are no more is forgotten.
    forgot: bool,
    /// What is kept of the sinks has been read.
    sinks_started: bool,
    /// When rules changed that are not planned for yet, and the timer that ends the wait.
    waiting: Option<(Instant, SpawnHandle)>,
    /// A question to the API server is under way; why, and why another one is to follow.
    asking: Option<Trigger>,
    asked_again: Option<Trigger>,
    discovery: Result<(), String>,
    /// When it is asked again because it has failed.
    ask_again: (Backoff, Option<SpawnHandle>),
    crd_timer: Option<SpawnHandle>,
    /// A coverage of an area has changed, or a sink.
    changed: Arc<Notify>,
    /// When the plan was made whose watches have not all listed.
    opening: Option<Instant>,
    updates: u64,
    stopping: bool,
}

impl std::fmt::Debug for RuleSupervisor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RuleSupervisor")
            .field("cluster", &self.deps.cluster)
            .field("areas", &self.listeners.len())
            .finish_non_exhaustive()
    }
}

impl RuleSupervisor {
    pub(super) fn new(deps: SupervisorDeps) -> Self {
        let changed = Arc::new(Notify::new());
        let listeners = Listeners::new(
            deps.client.clone(),
            Arc::clone(&deps.watches),
            Arc::clone(&changed),
        );
        let destinations = Destinations::new(DestinationDeps {
            cluster: deps.cluster.clone(),
            makers: deps.sinks.clone(),
            settings: deps.settings.clone(),
            io: deps.io.clone(),
            registry: deps.registry.clone(),
            look: Arc::clone(listeners.feeds()) as _,
            changed: Arc::clone(&changed),
        });
        let mut exclusions = deps.settings.never_watch.clone();
        for (sink, maker) in &deps.sinks {
            for (of, why) in maker.refuses() {
                exclusions.refuse(sink, of, why);
            }
        }
        Self {
            catalog: Catalog::default(),
            began: (Timestamp::now(), Instant::now()),
            exclusions,
            destinations,
            listeners,
            statuses: Statuses::default(),
            plan: RulePlan::default(),
            rules: None,
            revision: 0,
            refused: BTreeSet::new(),
            planned: None,
            forgot: false,
            sinks_started: false,
            waiting: None,
            asking: None,
            asked_again: None,
            discovery: Ok(()),
            ask_again: (Backoff::new(ASK_AGAIN), None),
            crd_timer: None,
            changed,
            opening: None,
            updates: 0,
            stopping: false,
            deps,
        }
    }

    /// Opens what is kept of each sink, and starts them; then the rules are looked at.
    fn start_sinks(&self, ctx: &mut Context<Self>) {
        let opened = self.destinations.open();
        ctx.spawn(opened.into_actor(self).map(|opened, actor, ctx| {
            actor.destinations.start(opened);
            actor.sinks_started = true;
            actor.ask(Trigger::Heartbeat, ctx);
        }));
    }

    /// Rules changed: their watches follow once they have been quiet, or have kept on for long.
    fn rules_changed(&mut self, ctx: &mut Context<Self>) {
        if !self.deps.rules.take() || self.stopping {
            return;
        }
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
            actor.take_rules();
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
                let (began, at) = self.began;
                let now = began.checked_add(at.elapsed()).unwrap_or(Timestamp::MAX);
                self.catalog.observe(now, scan);
                if self.discovery.is_err() {
                    info!(cluster = self.deps.cluster, "discovery works again");
                }
                self.discovery = Ok(());
            }
            Err(error) => {
                if self.discovery != Err(error.clone()) {
                    let cluster = &self.deps.cluster;
                    warn!(cluster, error, "discovery failed, keeping current watches");
                }
                self.discovery = Err(error);
                metrics::update("error", trigger.name());
            }
        }
        self.ask_again(ctx);
        self.replan(trigger, ctx);
    }

    /// Asks once more before long, if not all has been answered.
    fn ask_again(&mut self, ctx: &mut Context<Self>) {
        let (backoff, timer) = &mut self.ask_again;
        if let Some(timer) = timer.take() {
            ctx.cancel_future(timer);
        }
        if self.discovery.is_ok() && self.catalog.degraded().next().is_none() {
            *backoff = Backoff::new(ASK_AGAIN);
            return;
        }
        *timer = Some(ctx.run_later(backoff.failed(), |actor, ctx| {
            actor.ask_again.1 = None;
            actor.ask(Trigger::Discovery, ctx);
        }));
    }

    fn replan(&mut self, trigger: Trigger, ctx: &mut Context<Self>) {
        if self.waiting.is_none() || self.rules.is_none() {
            self.take_rules();
        }
        let Some(rules) = self.rules.clone() else {
            return; // they are not known yet
        };
        if !self.catalog.is_loaded() || !self.sinks_started {
            return;
        }
        let started = Instant::now();
        self.plan = plan_rules(&rules, &self.catalog, &self.exclusions);
        // Whatever asked for this plan: a heartbeat's may be the first to find rules changed.
        let rules_changed = self.planned.is_some() && self.revision != rules.revision;
        self.revision = rules.revision;
        self.destinations.count_only(rules.rules.keys());
        let change = self.route();
        let planned = *self.planned.get_or_insert(started);
        if !self.forgot && self.is_all_known(planned.elapsed()) {
            let is_served = |resource: &Resource| self.catalog.has(resource);
            self.destinations
                .forget_others(is_served, rules.rules.keys());
            self.forgot = true;
        }
        self.tell_metrics();
        let result = match (change, self.discovery.is_ok()) {
            (Change::None, true) => "noop",
            (Change::None, false) => return, // counted as an error
            (Change::Routes, _) => "routed",
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
        self.updates += u64::from(change == Change::Areas);
        info!(
            cluster = self.deps.cluster,
            revision = self.revision,
            areas = self.listeners.len(),
            trigger = trigger.name(),
            changed = ?change,
            "applied watch plan"
        );
        if change != Change::Areas {
            return;
        }
        self.opening = Some(started);
        let wholesale = self.deps.settings.wholesale && rules_changed;
        if wholesale && self.listeners.len() > 0 {
            // It has far more room than there are such messages.
            if self.deps.supervisor.try_send(RestartAreas).is_err() {
                let supervisor = self.deps.supervisor.clone();
                ctx.run_later(STATUS_INTERVAL, move |_, _| {
                    let _ = supervisor.try_send(RestartAreas);
                });
            }
        }
    }

    /// Has the sinks hear of what is planned, each object by an area that may be watched.
    fn route(&mut self) -> Change {
        let Some(rules) = &self.rules else {
            return Change::None;
        };
        self.refused = self.listeners.refused();
        let routes = self.plan.routes(
            rules,
            |sink| self.destinations.is_started(sink),
            |stream| self.refused.contains(stream),
        );
        let is_served = |resource: &Resource| self.catalog.has(resource);
        self.listeners
            .follow(&self.plan, routes, &self.destinations, is_served)
    }

    fn take_rules(&mut self) {
        let published = self.deps.rules.published();
        self.rules = published.map(|published| Arc::clone(&published.snapshot));
    }

    /// Whether a type that is not known can be taken for gone: all groups have answered, and one that
    /// is about to be served has had its time, as the API server may have started with the agent.
    fn is_all_known(&self, since_first_plan: Duration) -> bool {
        let grace = Duration::try_from(REMOVAL_GRACE).unwrap_or(Duration::MAX);
        let has_answered = self.catalog.is_complete() && self.catalog.degraded().next().is_none();
        has_answered && since_first_plan >= grace
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
        metrics::plan(&self.deps.cluster, self.listeners.types(), &unresolved);
    }

    /// Looks at whether areas may be watched, and whether all that were opened are there.
    fn look(&mut self) {
        if !self.stopping && self.listeners.refused() != self.refused {
            self.route();
        }
        metrics::types(&self.deps.cluster, self.listeners.types());
        if let Some(started) = self.opening
            && !self.listeners.is_opening()
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
        let coverage = self.listeners.coverage(&self.plan);
        let known = Known {
            plan: self.planned.map(|_| &self.plan),
            destinations: &self.destinations,
            discovery: self.discovery.as_ref().err().map(String::as_str),
            coverage: &coverage,
        };
        let writes = self.statuses.due(&published, &known);
        if writes.is_empty() {
            return;
        }
        let client = self.deps.client.clone();
        let task = self
            .deps
            .io
            .run(statuses::write(client, self.deps.events.clone(), writes));
        ctx.spawn(task.into_actor(self).map(|result, actor, _| {
            actor.statuses.not_written(result.unwrap_or_default());
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

impl Actor for RuleSupervisor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.start_sinks(ctx);
        self.follow_changes(ctx);
        self.watch_crds(ctx);
        ctx.run_interval(self.deps.settings.heartbeat, |actor, ctx| {
            debug!(
                cluster = actor.deps.cluster,
                areas = actor.listeners.len(),
                revision = actor.revision,
                "rules are watched"
            );
            actor.rules_changed(ctx);
            if actor.destinations.are_started() {
                actor.ask(Trigger::Heartbeat, ctx);
            } else {
                actor.start_sinks(ctx);
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
        self.ask_again = (Backoff::new(ASK_AGAIN), None);
        self.stopping = false;
        self.statuses = Statuses::default();
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
            areas: self.listeners.areas(),
            types: self.listeners.types(),
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
        self.listeners.clear();
        let stopped = self.destinations.stop();
        Box::pin(wrap_future::<_, Self>(stopped).map(|(), actor, ctx| {
            metrics::plan(&actor.deps.cluster, 0, &[]);
            ctx.stop();
        }))
    }
}
