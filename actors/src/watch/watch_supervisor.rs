//! `WatchSupervisor`: which watches an agent has.
//!
//! It plans watches for what subscribers want ([`muster_core::watch_plan`]) and opens, replaces and
//! closes [`WatchedResource`]s until there are just those. Never are there more than
//! `watch.max_watches` requests open at the API server: a slot is free again only when the request
//! that had it has really been dropped.
//!
//! - A watch that takes over from others is opened first, and they are closed when it has listed;
//!   only where no slot is free they go first. Either way nothing is lost: what a list shows is
//!   compared with what was seen before.
//! - A watch that the API server refuses is closed and tried again with a back-off; meanwhile
//!   narrower ones are tried, and what stays unwatched is polled.
//! - A watch that fails in any other way is retried by itself. It is not open meanwhile, and after a
//!   while those who wait for it are told.
//! - A watch that has missed what a poll has found is replaced: its connection may be dead without
//!   either end knowing.
//! - A watch that was there before somebody began to listen to an area that it shows is replaced:
//!   the listener is owed a list.
//! - [`RestartWatches`] replaces all of them, [`RestartAreas`] those that serve areas.
//!
//! ```text
//!            subscriptions changed, settings changed, a refusal is over
//!   plan ──► open what is missing ──► Synced ──► close what it replaces ──► slot free ──► open …
//!                                └──► Refused ──► close, plan again
//! ```

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use actix::{
    Actor, ActorContext, ActorFutureExt, Addr, AsyncContext, Context, Handler, Message,
    MessageResult, ResponseActFuture, SpawnHandle, Supervised, fut::wrap_future,
};
use futures::future::join_all;
use kube::Client;
use muster_core::watch_plan::{WatchKey, WatchLimits, WatchPlan, plan};
use serde::Serialize;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::metrics;
use super::table::{Cover, Covers, Denial, Unwatched, Watches};
use super::watched_resource::{News, WatchDeps, WatchNews, WatchedResource, stream_name};
use crate::supervision::{Backoff, BackoffPolicy, Health, Io, Registry, Snapshot, Stop, stop};

/// How long subscriptions that come together are collected before they are planned for: a work with
/// many objects subscribes to one after the other.
const COLLECT: Duration = Duration::from_millis(10);

/// How long a watch may take to end; it only drops a request.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// How long the API server may take to see that a request has been dropped: the connection is closed
/// by a task of its own. Only then is the slot free.
const LINGERS: Duration = Duration::from_millis(250);

/// How often it is looked whether watches fail.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// How long a watch fails before that is told to those who wait for it: most failures are over
/// sooner. One that works again may be silent for half of it before that is known.
const KEEPS_FAILING: Duration = Duration::from_secs(10);

/// Pace of tries of a watch that is refused, unless many are. A permission that is given is used
/// within 5 s, of which the API server may take one to hear of it.
const REFUSED: BackoffPolicy = BackoffPolicy {
    first: Duration::from_secs(2),
    max: Duration::from_secs(3),
    reset_after: Duration::from_secs(600),
};

/// Pace of tries of a watch of a type that is not served, or that cannot be watched. Unlike a right, a
/// type that has gone does not come back within seconds.
const NOT_SERVED: BackoffPolicy = BackoffPolicy {
    first: Duration::from_secs(2),
    max: Duration::from_secs(28),
    reset_after: Duration::from_secs(600),
};

/// Time between two tries of refused watches, all of a cluster taken together: one that refuses
/// thousands of them is not asked more often than this.
const BETWEEN_TRIES: Duration = Duration::from_millis(100);

/// Longest pause between two tries of one of them.
const LONGEST_PAUSE: Duration = Duration::from_secs(28);

/// Replaces the limits; takes effect at once.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "()")]
pub struct ChangeLimits(pub WatchLimits);

/// Replaces every watch by a new one.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "()")]
pub struct RestartWatches;

/// Replaces every watch that shows something of an area to which somebody listens.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "()")]
pub struct RestartAreas;

/// What the supervisor of watches shows of itself.
#[derive(Debug, Clone, Serialize)]
pub struct WatchSupervisorState {
    /// Most watches there may be.
    pub max_watches: usize,
    /// Watches there are, those that are being closed included.
    pub open: usize,
    /// Those of them whose request is open and has listed.
    pub connected: usize,
    /// Watches that wait for room, the next one first.
    pub waiting: Vec<String>,
    /// Watches that the API server refuses, with its words.
    pub refused: BTreeMap<String, String>,
    /// Counts restarts of all watches.
    pub generation: u64,
}

/// A watch that is, or may still be, open.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
struct Live {
    key: WatchKey,
    generation: u64,
    synced: bool,
    closing: bool,
    /// It has missed a change, or owes somebody a list, and is to be replaced.
    mistrusted: bool,
    /// Its last request has failed, and no other is open.
    broken: bool,
    /// It has failed for a while: the first error.
    failing: Option<Arc<str>>,
    addr: Addr<WatchedResource>,
    /// Cancelled when its slot is free.
    closed: CancellationToken,
}

/// A watch that the API server refuses.
#[derive(Debug)]
struct Refusal {
    denial: Denial,
    why: Arc<str>,
    until: Instant,
    backoff: Backoff,
}

/// The actor that decides which watches of one cluster are open.
pub struct WatchSupervisor {
    deps: WatchDeps,
    registry: Registry,
    limits: WatchLimits,
    plan: WatchPlan,
    live: BTreeMap<u64, Live>,
    next_id: u64,
    generation: u64,
    refused: HashMap<WatchKey, Refusal>,
    retry: Option<SpawnHandle>,
    stopping: bool,
}

impl std::fmt::Debug for WatchSupervisor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WatchSupervisor")
            .field("limits", &self.limits)
            .field("plan", &self.plan)
            .field("live", &self.live)
            .finish_non_exhaustive()
    }
}

impl WatchSupervisor {
    /// The supervisor of the watches of `cluster` for those who subscribe to `watches`.
    pub fn new(
        cluster: impl Into<String>,
        client: Client,
        watches: Arc<Watches>,
        limits: WatchLimits,
        io: Io,
        registry: Registry,
        health: Health,
    ) -> Self {
        Self {
            deps: WatchDeps {
                cluster: cluster.into(),
                client,
                io,
                health,
                watches,
            },
            registry,
            limits,
            plan: WatchPlan::default(),
            live: BTreeMap::new(),
            next_id: 0,
            generation: 0,
            refused: HashMap::new(),
            retry: None,
            stopping: false,
        }
    }

    /// Waits for the next change of what is wanted.
    fn listen(&self, ctx: &mut Context<Self>) {
        let watches = Arc::clone(&self.deps.watches);
        let changed = async move {
            watches.changed.notified().await;
            tokio::time::sleep(COLLECT).await;
        };
        ctx.spawn(wrap_future::<_, Self>(changed).map(|(), actor, ctx| {
            actor.listen(ctx);
            actor.plan_anew(ctx);
        }));
    }

    fn plan_anew(&mut self, ctx: &mut Context<Self>) {
        if self.stopping {
            return;
        }
        let watches = Arc::clone(&self.deps.watches);
        for path in watches.mistrusted() {
            let shows = |live: &&mut Live| {
                live.key.resource == path.resource
                    && live.key.scope.covers(&path.namespace, &path.name)
                    && live.synced
            };
            for live in self.live.values_mut().filter(shows) {
                let cluster = &self.deps.cluster;
                warn!(cluster, watch = %live.key, "a poll found what the watch missed, replacing it");
                live.mistrusted = true;
            }
        }
        for area in watches.new_areas() {
            let shows = |live: &&mut Live| area.is_within(&live.key);
            for live in self.live.values_mut().filter(shows) {
                live.mistrusted = true;
            }
        }
        // What nobody wants is not tried again; if it is wanted once more, it is so at once.
        self.refused.retain(|key, _| watches.wants(&key.resource));
        let now = Instant::now();
        let refused = |key: &WatchKey| self.refused.get(key).is_some_and(|it| it.until > now);
        let open: BTreeSet<_> = self.serving().map(|live| live.key.clone()).collect();
        let places = watches.places(self.limits.widen_after, refused);
        self.plan = plan(&places, self.limits, &open, refused);
        self.advance(ctx);
        self.retry_refused(ctx);
    }

    fn restart(&mut self, ctx: &mut Context<Self>) {
        self.generation += 1;
        metrics::restarted();
        info!(
            cluster = self.deps.cluster,
            watches = self.live.len(),
            "restarting watches"
        );
        self.plan_anew(ctx);
    }

    /// How many requests are open.
    fn connected(&self) -> usize {
        let is_open = |live: &&Live| live.synced && !live.broken;
        self.live.values().filter(is_open).count()
    }

    /// Watches that are not being closed.
    fn serving(&self) -> impl Iterator<Item = &Live> {
        self.live.values().filter(|live| !live.closing)
    }

    /// Takes the watches as far towards the plan as is possible now.
    fn advance(&mut self, ctx: &mut Context<Self>) {
        let wanted: BTreeSet<_> = self.plan.watches.iter().cloned().collect();
        let generation = self.generation;
        let is_current = |live: &Live| {
            live.generation == generation && !live.mistrusted && wanted.contains(&live.key)
        };
        let current: BTreeSet<_> = self
            .serving()
            .filter(|live| is_current(live))
            .map(|live| live.key.clone())
            .collect();
        let missing: Vec<_> = self
            .plan
            .watches
            .iter()
            .filter(|key| !current.contains(key))
            .cloned()
            .collect();
        // What a watch shows is still needed until those that take over have listed it.
        let unsynced: Vec<_> = self
            .plan
            .watches
            .iter()
            .filter(|key| {
                !self
                    .serving()
                    .any(|live| is_current(live) && live.synced && live.key == **key)
            })
            .collect();
        let takes_over = |live: &Live| {
            unsynced.iter().any(|key| {
                key.resource == live.key.resource
                    && (key.scope.includes(&live.key.scope) || live.key.scope.includes(&key.scope))
            })
        };
        let mut leaving: Vec<(u64, bool)> = self
            .live
            .iter()
            .filter(|(_, live)| !live.closing && !is_current(live))
            .map(|(id, live)| (*id, takes_over(live)))
            .collect();
        leaving.retain(|(id, needed)| {
            if !needed {
                self.close(*id, ctx);
            }
            *needed
        });

        let max = self.limits.max_watches;
        let over = self.live.len().saturating_sub(max);
        let mut slots = max.saturating_sub(self.live.len());
        let mut lacking = 0;
        for key in missing {
            if slots > 0 {
                slots -= 1;
                self.open(key, ctx);
            } else if self.refused.contains_key(&key) {
                // Nothing that works is closed for one more try of what probably does not.
                self.refused_again(&key);
            } else {
                lacking += 1;
            }
        }
        // A few at a time, so that most of what is watched stays so while all are replaced.
        let opening = self.serving().filter(|live| !live.synced).count();
        let portion = (max / 4).max(1).saturating_sub(opening).min(lacking);
        // Slots that are about to be free count.
        let closing = self.live.values().filter(|live| live.closing).count();
        let needed = over.max(portion).saturating_sub(closing);
        for (id, _) in leaving.into_iter().take(needed) {
            self.close(id, ctx);
        }
        self.tell();
    }

    fn open(&mut self, key: WatchKey, ctx: &mut Context<Self>) {
        self.next_id += 1;
        let id = self.next_id;
        let closed = CancellationToken::new();
        let slot = Arc::new(closed.clone().drop_guard());
        let owner = ctx.address().recipient();
        let label = format!("{} {key}", self.deps.cluster);
        let actor = WatchedResource::new(self.deps.clone(), id, key.clone(), slot, owner);
        let addr = self.registry.start("WatchedResource", label, actor);
        metrics::opened();
        self.live.insert(
            id,
            Live {
                key,
                generation: self.generation,
                synced: false,
                closing: false,
                mistrusted: false,
                broken: false,
                failing: None,
                addr,
                closed,
            },
        );
    }

    fn close(&mut self, id: u64, ctx: &mut Context<Self>) {
        if let Some(live) = self.live.get_mut(&id) {
            live.closing = true;
            self.await_end(id, ctx);
        }
    }

    /// Waits until the request of a watch that is being closed has been dropped.
    fn await_end(&self, id: u64, ctx: &mut Context<Self>) {
        let Some(live) = self.live.get(&id) else {
            return;
        };
        let (addr, closed) = (live.addr.clone(), live.closed.clone());
        let ended = async move {
            let in_time = stop(&addr, STOP_LIMIT).await;
            drop(addr);
            closed.cancelled().await;
            tokio::time::sleep(LINGERS).await;
            in_time
        };
        ctx.spawn(
            wrap_future::<_, Self>(ended).map(move |in_time, actor, ctx| {
                if let Some(live) = actor.live.remove(&id)
                    && !in_time
                {
                    let cluster = &actor.deps.cluster;
                    warn!(cluster, watch = %live.key, "watch did not stop in time");
                }
                if !actor.stopping {
                    actor.advance(ctx);
                }
            }),
        );
    }

    /// Tells subscribers and operators how things stand.
    fn tell(&self) {
        let mut covers = Covers::new();
        for (key, refusal) in &self.refused {
            let why = Unwatched::Refused(refusal.denial, Arc::clone(&refusal.why));
            covers.insert(key.clone(), Cover::Unwatched(why));
        }
        for key in &self.plan.waiting {
            let why = Unwatched::Full(self.limits.max_watches);
            covers.insert(key.clone(), Cover::Unwatched(why));
        }
        for live in self.serving() {
            if let Some(why) = &live.failing {
                let why = Unwatched::Failing(Arc::clone(why));
                covers.insert(live.key.clone(), Cover::Unwatched(why));
            }
        }
        let working = |live: &&Live| live.synced && live.failing.is_none();
        for live in self.serving().filter(working) {
            covers.insert(live.key.clone(), Cover::Watched);
        }
        self.deps.watches.cover(covers);
        metrics::state(
            &self.deps.cluster,
            self.connected(),
            self.limits.max_watches,
            self.plan.waiting.len(),
            self.refused.len(),
        );
    }

    /// Looks at which watches fail, as their streams tell.
    fn look(&mut self) {
        let (deps, mut changed) = (&self.deps, false);
        for live in self.live.values_mut() {
            let stream = stream_name(&deps.cluster, &live.key);
            let error = |at_least| deps.health.failing_for(&stream, at_least);
            let broken = error(Duration::ZERO).is_some();
            // The first error stays: texts that differ would have their readers look at each.
            let failing =
                error(KEEPS_FAILING).map(|now| live.failing.clone().unwrap_or(now.into()));
            changed |= live.broken != broken || live.failing != failing;
            (live.broken, live.failing) = (broken, failing);
        }
        if changed && !self.stopping {
            self.tell();
        }
    }

    fn synced(&mut self, id: u64, ctx: &mut Context<Self>) {
        let Some(live) = self.live.get_mut(&id) else {
            return;
        };
        live.synced = true;
        if self.refused.remove(&live.key).is_some() {
            let cluster = &self.deps.cluster;
            info!(cluster, watch = %live.key, "watch is allowed again");
        }
        self.advance(ctx);
    }

    fn refuse(&mut self, id: u64, denial: Denial, why: &str, ctx: &mut Context<Self>) {
        let Some(live) = self.live.get(&id).filter(|live| !live.closing) else {
            return;
        };
        let key = live.key.clone();
        let refusal = self.refused.entry(key.clone()).or_insert_with(|| {
            let cluster = &self.deps.cluster;
            warn!(cluster, watch = %key, ?denial, error = why, "watch refused, polling instead");
            Refusal {
                denial,
                why: why.into(),
                until: Instant::now(),
                backoff: Backoff::new(pace_of(denial)),
            }
        });
        if refusal.denial != denial {
            refusal.denial = denial;
            refusal.backoff = Backoff::new(pace_of(denial));
        }
        refusal.why = why.into();
        self.refused_again(&key);
        self.close(id, ctx);
        self.plan_anew(ctx);
    }

    /// Puts off the next try of a refused watch.
    fn refused_again(&mut self, key: &WatchKey) {
        let count = u32::try_from(self.refused.len()).unwrap_or(u32::MAX);
        let share = BETWEEN_TRIES.saturating_mul(count).min(LONGEST_PAUSE);
        if let Some(refusal) = self.refused.get_mut(key) {
            refusal.until = Instant::now() + refusal.backoff.failed().max(share);
        }
    }

    /// Plans anew when the next refusal is over.
    fn retry_refused(&mut self, ctx: &mut Context<Self>) {
        if let Some(retry) = self.retry.take() {
            ctx.cancel_future(retry);
        }
        let now = Instant::now();
        let next = self
            .refused
            .values()
            .map(|refusal| refusal.until)
            .filter(|until| *until > now)
            .min();
        self.retry = next.map(|until| {
            ctx.run_later(until.saturating_duration_since(now), |actor, ctx| {
                actor.retry = None;
                actor.plan_anew(ctx);
            })
        });
    }
}

const fn pace_of(denial: Denial) -> BackoffPolicy {
    match denial {
        Denial::Forbidden => REFUSED,
        Denial::NotServed | Denial::NotWatchable => NOT_SERVED,
    }
}

impl Actor for WatchSupervisor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        // Each watch has at most two news at a time, and tells them again where they do not fit.
        ctx.set_mailbox_capacity(256);
        // After a restart nobody waits any more for those that were being closed.
        let closing: Vec<_> = self
            .live
            .iter()
            .filter(|(_, live)| live.closing)
            .map(|(id, _)| *id)
            .collect();
        for id in closing {
            self.await_end(id, ctx);
        }
        self.listen(ctx);
        ctx.run_interval(LOOK_INTERVAL, |actor, _| actor.look());
        self.plan_anew(ctx);
    }
}

impl Supervised for WatchSupervisor {
    fn restarting(&mut self, _: &mut Self::Context) {
        // The watches live on, and the table has what is wanted.
        self.plan = WatchPlan::default();
        self.retry = None;
        self.stopping = false;
    }
}

impl Handler<WatchNews> for WatchSupervisor {
    type Result = ();

    fn handle(&mut self, WatchNews { id, news }: WatchNews, ctx: &mut Self::Context) {
        if self.stopping {
            return;
        }
        match news {
            News::Synced => self.synced(id, ctx),
            News::Refused { denial, why } => self.refuse(id, denial, &why, ctx),
        }
    }
}

impl Handler<ChangeLimits> for WatchSupervisor {
    type Result = ();

    fn handle(&mut self, ChangeLimits(limits): ChangeLimits, ctx: &mut Self::Context) {
        if self.limits == limits {
            return;
        }
        info!(
            cluster = self.deps.cluster,
            ?limits,
            "limits of watches changed"
        );
        let widen_after = self.limits.widen_after;
        self.limits = limits;
        if limits.widen_after == widen_after {
            self.plan_anew(ctx);
        } else {
            // Every scope is in question.
            self.restart(ctx);
        }
    }
}

impl Handler<RestartWatches> for WatchSupervisor {
    type Result = ();

    fn handle(&mut self, _: RestartWatches, ctx: &mut Self::Context) {
        self.restart(ctx);
    }
}

impl Handler<RestartAreas> for WatchSupervisor {
    type Result = ();

    fn handle(&mut self, _: RestartAreas, ctx: &mut Self::Context) {
        let watches = &self.deps.watches;
        let serving = |live: &&mut Live| watches.serves_area(&live.key);
        let mut restarted = 0;
        for live in self.live.values_mut().filter(serving) {
            live.mistrusted = true;
            restarted += 1;
        }
        metrics::restarted();
        info!(
            cluster = self.deps.cluster,
            watches = restarted,
            "restarting watches of rules"
        );
        self.plan_anew(ctx);
    }
}

impl Handler<Snapshot> for WatchSupervisor {
    type Result = MessageResult<Snapshot>;

    fn handle(&mut self, _: Snapshot, _: &mut Self::Context) -> Self::Result {
        let refused = self.refused.iter();
        Snapshot::of(&WatchSupervisorState {
            max_watches: self.limits.max_watches,
            open: self.live.len(),
            connected: self.connected(),
            waiting: self.plan.waiting.iter().map(ToString::to_string).collect(),
            refused: refused
                .map(|(key, refusal)| (key.to_string(), refusal.why.to_string()))
                .collect(),
            generation: self.generation,
        })
    }
}

/// First the watches, then itself.
impl Handler<Stop> for WatchSupervisor {
    type Result = ResponseActFuture<Self, ()>;

    fn handle(&mut self, _: Stop, _: &mut Self::Context) -> Self::Result {
        self.stopping = true;
        let watches: Vec<_> = self.live.values().map(|live| live.addr.clone()).collect();
        let stopped = async move {
            join_all(watches.iter().map(|addr| stop(addr, STOP_LIMIT))).await;
        };
        Box::pin(wrap_future::<_, Self>(stopped).map(|(), actor, ctx| {
            actor.live.clear();
            actor.deps.watches.cover(Covers::new());
            metrics::state(&actor.deps.cluster, 0, actor.limits.max_watches, 0, 0);
            ctx.stop();
        }))
    }
}
