//! `ManifestWork`: when the agent looks at one work.
//!
//! Its [`ClusterAgent`](super::ClusterAgent) starts it, tells it each new state of the work, and
//! stops it when the work is gone. It guarantees that a change is acted on at once, that at most
//! one pass runs at a time, that changes during a pass lead to exactly one more, and that nothing
//! is forgotten: what failed is tried again, what is fine is looked at once per poll interval.
//!
//! ```text
//!            WorkChanged, poll, retry
//!   Idle ───────────────────────────────► Running ──┐ WorkChanged: once more
//!    ▲                                      │  ▲    │
//!    └── timers: next poll, maybe a retry ◄─┘  └────┘
//! ```
//!
//! What watches show of its objects is reported without a look at the cluster, in the place of a
//! pass; where an object may not be as it should, a pass follows.
//!
//! After a restart it knows the work and nothing else, and the first pass finds out the rest: what
//! was applied is read back from the cluster.

mod reports;

use std::sync::Arc;
use std::time::Duration;

use actix::{
    Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, Message, MessageResult,
    Recipient, ResponseActFuture, SpawnHandle, Supervised, fut::wrap_future,
};
use serde::Serialize;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::{info, warn};

use super::access_watch::AccessChanged;
use super::metrics::{self, ReconcileResult};
use super::observer::Inbox;
use super::pace::Pace;
use super::reconcile::{Env, Memory, Outcome, Wishes, reconcile};
use super::work::Work;
use crate::supervision::{Backoff, BackoffPolicy, Io, IoError, Snapshot, Stop};

/// For kinds that the cluster does not have yet. CRDs come and go, and discovery is shared by all
/// works of the cluster, at most one request a second for each group version.
const TYPES: BackoffPolicy = BackoffPolicy {
    first: Duration::from_secs(1),
    max: Duration::from_secs(5),
    reset_after: Duration::from_secs(60),
};

/// For objects that a finalizer holds; upstream's bounds for deletions.
pub(super) const PENDING: BackoffPolicy = BackoffPolicy {
    first: Duration::from_millis(50),
    max: Duration::from_secs(60),
    reset_after: Duration::from_secs(300),
};

/// For what an executor may not do. Permissions that come sooner are seen by their watch.
const DENIED: Duration = Duration::from_secs(muster_core::executor::RETRY_SECONDS);

/// How long a work that stops waits for the hub to take its last report.
const LAST_REPORT: Duration = Duration::from_secs(2);

/// The work has a new state. Older states than the one known are ignored.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct WorkChanged(pub Work);

/// The agent's settings have changed: the time of the next poll is drawn anew.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "()")]
pub struct SettingsChanged;

/// The record of the work is at this version now, or gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Message)]
#[rtype(result = "()")]
pub struct RecordSeen(pub Option<u64>);

/// A work of the cluster has an executor.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "()")]
pub struct ExecutorUsed;

/// What the actor of a work shows of itself.
#[derive(Debug, Clone, Serialize)]
pub struct ManifestWorkState {
    /// Generation of the work that is known.
    pub generation: i64,
    /// Whether the work is being deleted.
    pub deleting: bool,
    /// Whether a pass is under way.
    pub running: bool,
    /// Passes that have ended.
    pub passes: u64,
    /// How the last one ended.
    pub last_result: Option<&'static str>,
    /// What was in its way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// What is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Running {
    /// A look at the cluster.
    Pass,
    /// A report of what watches have shown, which needs the hub only.
    Report,
}

/// The actor of one work on one cluster.
#[derive(Debug)]
pub struct ManifestWork {
    env: Arc<Env>,
    io: Io,
    owner: Recipient<ExecutorUsed>,
    /// The newest state known.
    work: Work,
    /// What the last pass wants remembered; with the pass while one runs.
    memory: Memory,
    /// Where the record is by its watch.
    record: RecordSeen,
    /// Where it was when the last pass began, which saw it at least so new.
    record_at_start: RecordSeen,
    /// Whether the works of an executor are told apart already.
    has_executor: bool,
    running: Option<Running>,
    /// Nothing begins any more but a last report; this is dropped when there is none to wait for.
    last_word: Option<oneshot::Sender<()>>,
    stopping: bool,
    /// Something was asked for during the pass.
    again: bool,
    retry: Option<SpawnHandle>,
    poll: Option<SpawnHandle>,
    /// What watches have shown.
    inbox: Arc<Inbox>,
    /// The next report of it.
    report: Option<SpawnHandle>,
    /// The next pass because of it.
    repair: Option<SpawnHandle>,
    pace: Pace,
    drift: Backoff,
    requests: Backoff,
    types: Backoff,
    pending: Backoff,
    passes: u64,
    last_result: Option<ReconcileResult>,
    last_error: Option<String>,
}

impl ManifestWork {
    pub(super) fn new(env: Arc<Env>, io: Io, work: Work, owner: Recipient<ExecutorUsed>) -> Self {
        Self {
            env,
            io,
            owner,
            work,
            memory: Memory::default(),
            record: RecordSeen(None),
            record_at_start: RecordSeen(None),
            has_executor: false,
            running: None,
            last_word: None,
            stopping: false,
            again: false,
            retry: None,
            poll: None,
            inbox: Arc::default(),
            report: None,
            repair: None,
            pace: Pace::default(),
            drift: Backoff::new(reports::DRIFT),
            requests: Backoff::new(BackoffPolicy::REQUEST),
            types: Backoff::new(TYPES),
            pending: Backoff::new(PENDING),
            passes: 0,
            last_result: None,
            last_error: None,
        }
    }

    /// Takes a new state of the work; says whether it asks for a pass.
    fn learn(&mut self, work: Work) -> bool {
        if work.is_older_than(&self.work) {
            return false;
        }
        let asks = self.work.asks_more(&work);
        self.work = work;
        if asks {
            self.env.claims.expect(&self.work.name);
            self.forget_failures();
        }
        asks
    }

    fn forget_failures(&mut self) {
        self.requests.succeeded();
        self.types.succeeded();
        self.pending.succeeded();
    }

    /// When to look again without a reason from outside; each kind of trouble has its own pace.
    fn delay(&mut self, wishes: Wishes) -> Option<Duration> {
        let Wishes {
            requests,
            types,
            pending,
            denied,
            after,
        } = wishes;
        let mut paced = |wanted: bool, backoff: fn(&mut Self) -> &mut Backoff| {
            if wanted {
                Some(backoff(self).failed())
            } else {
                backoff(self).succeeded();
                None
            }
        };
        let soonest = [
            paced(requests, |actor| &mut actor.requests),
            paced(types, |actor| &mut actor.types),
            paced(pending, |actor| &mut actor.pending),
            denied.then_some(DENIED),
        ]
        .into_iter()
        .flatten()
        .min();
        // A server that asks to be left alone is.
        match (soonest, after) {
            (Some(soonest), Some(after)) => Some(soonest.max(after)),
            (soonest, after) => soonest.or(after),
        }
    }

    fn run(&mut self, ctx: &mut Context<Self>) {
        if self.stopping {
            return;
        }
        if self.running.is_some() {
            self.again = true;
            return;
        }
        for timer in [self.retry.take(), self.repair.take()] {
            timer.map(|timer| ctx.cancel_future(timer));
        }
        self.running = Some(Running::Pass);
        self.record_at_start = self.record;
        let env = Arc::clone(&self.env);
        let work = self.work.clone();
        let memory = std::mem::take(&mut self.memory);
        let inbox = Arc::clone(&self.inbox);
        let pass = self.io.run(async move {
            // Never closed; without a permit the pass would only be unbounded.
            let workers = env.workers();
            let _permit = workers.acquire().await;
            let begin = Instant::now();
            let outcome = reconcile(&env, work, memory, &inbox).await;
            metrics::reconciled(outcome.result, begin.elapsed());
            outcome
        });
        ctx.spawn(wrap_future::<_, Self>(pass).map(|outcome, actor, ctx| {
            actor.finished(outcome, ctx);
        }));
    }

    fn finished(&mut self, outcome: Result<Outcome, IoError>, ctx: &mut Context<Self>) {
        self.running = None;
        self.passes += 1;
        let wishes = match outcome {
            Ok(outcome) => self.settle(outcome),
            Err(error) => {
                let (cluster, work) = (&self.env.cluster, &self.work.name);
                warn!(cluster, %work, %error, "reconcile ended early, retrying");
                metrics::reconciled(ReconcileResult::Panicked, Duration::ZERO);
                self.last_result = Some(ReconcileResult::Panicked);
                self.last_error = Some(error.to_string());
                Wishes {
                    requests: true,
                    ..Wishes::default()
                }
            }
        };
        let delay = self.delay(wishes);
        self.look_at_inbox(ctx);
        if std::mem::take(&mut self.again) || self.record_has_moved() {
            let pause = self.env.settings().coalesce;
            self.run_after(pause, ctx);
        } else if let Some(delay) = delay {
            self.run_after(delay, ctx);
        }
    }

    /// Whether others have changed the record since the last pass. A change that was there when it
    /// began is none: what such a pass could not do, it would fail to do again, and there is a
    /// back-off for that.
    fn record_has_moved(&self) -> bool {
        let RecordSeen(seen) = self.record;
        let known = self.memory.record.as_ref();
        seen != self.record_at_start.0
            && known.is_some_and(|known| seen.is_some_and(|seen| seen > known.version))
    }

    fn settle(&mut self, outcome: Outcome) -> Wishes {
        self.log(&outcome);
        self.again |= outcome.again;
        if outcome.has_executor && !self.has_executor {
            // If the owner has no room the next pass says it again.
            self.has_executor = self.owner.try_send(ExecutorUsed).is_ok();
        }
        self.memory = outcome.memory;
        self.last_result = Some(outcome.result);
        self.last_error = outcome.error;
        self.take_written(outcome.work);
        outcome.wishes
    }

    /// What was written comes back through the watch, too, but later.
    fn take_written(&mut self, work: Option<Work>) {
        if let Some(work) = work
            && !work.is_older_than(&self.work)
            && !self.work.asks_more(&work)
        {
            self.work = work;
        }
    }

    /// Tells each trouble once, not at every try.
    fn log(&self, outcome: &Outcome) {
        let (cluster, work) = (&self.env.cluster, &self.work.name);
        match &outcome.error {
            Some(error) if self.last_error.as_ref() != Some(error) => {
                warn!(cluster, %work, error, "work is not as wanted, retrying");
            }
            None if self.last_error.is_some() => info!(cluster, %work, "work is as wanted again"),
            Some(_) | None => {}
        }
    }

    fn run_after(&mut self, delay: Duration, ctx: &mut Context<Self>) {
        if let Some(retry) = self.retry.take() {
            ctx.cancel_future(retry);
        }
        self.retry = Some(ctx.run_later(delay, |actor, ctx| {
            actor.retry = None;
            actor.run(ctx);
        }));
    }

    fn poll_after(&mut self, delay: Duration, ctx: &mut Context<Self>) {
        if let Some(poll) = self.poll.take() {
            ctx.cancel_future(poll);
        }
        self.poll = Some(ctx.run_later(delay, |actor, ctx| {
            // A pass under way sees what this one would.
            if actor.running.is_none() {
                actor.run(ctx);
            }
            let next = actor.env.settings().next_poll();
            actor.poll_after(next, ctx);
        }));
    }
}

impl Actor for ManifestWork {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        // The default mailbox of 16 holds: each message replaces the one before, and the sender
        // keeps what does not fit.
        self.inbox.belongs_to(ctx.address().recipient());
        self.run(ctx);
        let first = self.env.settings().first_poll();
        self.poll_after(first, ctx);
    }
}

impl Supervised for ManifestWork {
    fn restarting(&mut self, _: &mut Self::Context) {
        let (env, io) = (Arc::clone(&self.env), self.io.clone());
        let fresh = Self::new(env, io, self.work.clone(), self.owner.clone());
        *self = fresh;
    }
}

impl Handler<WorkChanged> for ManifestWork {
    type Result = ();

    fn handle(&mut self, WorkChanged(work): WorkChanged, ctx: &mut Self::Context) {
        if self.learn(work) {
            self.run(ctx);
        }
    }
}

impl Handler<SettingsChanged> for ManifestWork {
    type Result = ();

    fn handle(&mut self, _: SettingsChanged, ctx: &mut Self::Context) {
        let next = self.env.settings().first_poll();
        self.poll_after(next, ctx);
    }
}

impl Handler<RecordSeen> for ManifestWork {
    type Result = ();

    fn handle(&mut self, seen: RecordSeen, ctx: &mut Self::Context) {
        self.record = seen;
        let RecordSeen(version) = seen;
        // In a deletion it is mostly the agent itself that takes the record away.
        let lost = version.is_none() && !(self.work.deleting && self.running.is_some());
        let news = lost && (self.running.is_some() || self.memory.record.is_some());
        // A pass under way compares at its end: it may be what moved the record.
        if news || self.running.is_none() && self.record_has_moved() {
            self.run(ctx);
        }
    }
}

impl Handler<AccessChanged> for ManifestWork {
    type Result = ();

    fn handle(&mut self, _: AccessChanged, ctx: &mut Self::Context) {
        if self.has_executor {
            self.run(ctx);
        }
    }
}

impl Handler<Snapshot> for ManifestWork {
    type Result = MessageResult<Snapshot>;

    fn handle(&mut self, _: Snapshot, _: &mut Self::Context) -> Self::Result {
        Snapshot::of(&ManifestWorkState {
            generation: self.work.generation,
            deleting: self.work.deleting,
            running: self.running.is_some(),
            passes: self.passes,
            last_result: self.last_result.map(ReconcileResult::as_str),
            last_error: self.last_error.clone(),
        })
    }
}

/// A pass under way is cancelled, as any pass may be by a crash, and the next agent picks up from what
/// is on the cluster. What watches have shown is reported first, if the hub takes it soon: there may be
/// no next agent for a long time.
impl Handler<Stop> for ManifestWork {
    type Result = ResponseActFuture<Self, ()>;

    fn handle(&mut self, _: Stop, ctx: &mut Self::Context) -> Self::Result {
        self.stopping = true;
        let timers = [
            self.retry.take(),
            self.poll.take(),
            self.report.take(),
            self.repair.take(),
        ];
        for timer in timers.into_iter().flatten() {
            ctx.cancel_future(timer);
        }
        let (last_word, said) = oneshot::channel();
        self.last_word = Some(last_word);
        self.report_the_last(ctx);
        let said = async move {
            // Dropped unsent when there is nothing left to say.
            let _ = tokio::time::timeout(LAST_REPORT, said).await;
        };
        Box::pin(wrap_future::<_, Self>(said).map(|(), _, ctx| ctx.stop()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::{AgentDeps, AgentSettings};
    use crate::supervision::{Health, Registry};

    struct Nobody;

    impl Actor for Nobody {
        type Context = Context<Self>;
    }

    impl Handler<ExecutorUsed> for Nobody {
        type Result = ();

        fn handle(&mut self, _: ExecutorUsed, _: &mut Self::Context) {}
    }

    fn actor() -> ManifestWork {
        let config = kube::Config::new("http://127.0.0.1:9".parse().unwrap());
        let client = kube::Client::try_from(config).unwrap();
        let deps = AgentDeps {
            cluster: "c1".to_owned(),
            hub: client.clone(),
            hub_link: None,
            hub_id: "hub".to_owned(),
            agent_id: None,
            rules: None,
            spoke: client,
            settings: AgentSettings::default(),
            io: Io::current(),
            registry: Registry::new(),
            health: Health::new(),
        };
        let owner = Nobody.start().recipient();
        ManifestWork::new(
            Arc::new(Env::new(&deps)),
            deps.io.clone(),
            work(1, 1),
            owner,
        )
    }

    fn work(generation: i64, resource_version: u64) -> Work {
        let json = serde_json::json!({"metadata": {
            "name": "w", "uid": "1", "generation": generation,
            "resourceVersion": resource_version.to_string(),
            "finalizers": [muster_api::constants::MANIFEST_WORK_FINALIZER],
        }});
        let raw: muster_api::work::RawManifestWork =
            serde_json::from_str(&json.to_string()).unwrap();
        raw.into()
    }

    const REQUESTS: Wishes = Wishes {
        requests: true,
        types: false,
        pending: false,
        denied: false,
        after: None,
    };

    #[actix::test]
    async fn each_kind_of_trouble_has_its_own_pace_and_the_soonest_wins() {
        let mut actor = actor();
        for _ in 0..10 {
            actor.delay(REQUESTS);
        }
        assert!(actor.delay(REQUESTS).unwrap() > Duration::from_secs(20));
        let both = Wishes {
            types: true,
            ..REQUESTS
        };
        assert!(actor.delay(both).unwrap() <= Duration::from_secs(1));
        assert_eq!(actor.delay(Wishes::default()), None);
        assert!(
            actor.delay(REQUESTS).unwrap() <= Duration::from_millis(800),
            "forgotten"
        );
    }

    #[actix::test]
    async fn a_server_that_asks_for_rest_gets_it() {
        let mut actor = actor();
        let after = Some(Duration::from_secs(7));
        let throttled = Wishes { after, ..REQUESTS };
        assert_eq!(actor.delay(throttled), after);
        for _ in 0..10 {
            actor.delay(throttled);
        }
        assert!(actor.delay(throttled).unwrap() > Duration::from_secs(20));
    }

    #[actix::test]
    async fn a_changed_spec_forgets_failures_and_a_late_state_changes_nothing() {
        let mut actor = actor();
        for _ in 0..10 {
            actor.delay(REQUESTS);
        }
        assert!(!actor.learn(work(1, 2)), "only the status moved");
        assert!(actor.delay(REQUESTS).unwrap() > Duration::from_secs(20));
        assert!(actor.learn(work(2, 5)));
        assert!(actor.delay(REQUESTS).unwrap() <= Duration::from_millis(800));
        assert!(!actor.learn(work(1, 4)), "older than what is known");
        assert_eq!(actor.work.generation, 2);
    }
}
