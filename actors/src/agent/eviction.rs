//! `Eviction`: the end of a record that no work on the hub stands for.
//!
//! Its [`ClusterAgent`](super::ClusterAgent) starts one for each AppliedManifestWork of this agent
//! whose work is not among those that the hub has listed, and stops it when the work is there
//! (again). A record with the name of another hub counts as one, too: the agent has moved.
//!
//! ```text
//! no start time ─► note it ─► wait out the grace period ─► delete the record ─► its objects ─► gone
//! ```
//!
//! The start time is kept in the record, so that a restart does not begin the wait anew. Nothing
//! here depends on how often the record changes meanwhile: the end is a point in time, put off only
//! while a work of the hub may have objects of the record and does not own them yet. Where works
//! come over a bus, it is a whole grace period after a source was last heard anew: an agent that hears
//! nothing of a work must not take it for gone.

use std::sync::Arc;
use std::time::Duration;

use actix::{
    Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, Message, MessageResult,
    SpawnHandle, Supervised, fut::wrap_future,
};
use jiff::{SignedDuration, Timestamp};
use muster_api::work::AppliedManifestWork;
use serde::Serialize;
use tracing::{info, warn};

use super::AgentSettings;
use super::applied_work;
use super::calls::ApiError;
use super::deletion::{self, Progress};
use super::manifest_work::PENDING;
use super::reconcile::{Env, Heard};
use crate::supervision::{Backoff, BackoffPolicy, Io, IoError, Snapshot, Stop};

/// The record has changed, or the settings have: look again.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "()")]
pub struct LookAgain;

/// What an eviction shows of itself.
#[derive(Debug, Clone, Serialize)]
pub struct EvictionState {
    /// Name of the record.
    pub record: Arc<str>,
    /// What is in its way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
}

/// What is next for a record.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// It does not exist any more.
    Gone,
    /// Nothing, until it changes.
    Stays,
    /// The grace period ends after this.
    Due(Duration),
    /// Objects on their way out; this one among them.
    Pending(String),
}

/// The actor of one record without a work.
#[derive(Debug)]
pub struct Eviction {
    env: Arc<Env>,
    io: Io,
    record: Arc<str>,
    running: bool,
    again: bool,
    timer: Option<SpawnHandle>,
    requests: Backoff,
    pending: Backoff,
    waits_for: Option<String>,
}

impl Eviction {
    pub(super) fn new(env: Arc<Env>, io: Io, record: Arc<str>) -> Self {
        Self {
            env,
            io,
            record,
            running: false,
            again: false,
            timer: None,
            requests: Backoff::new(BackoffPolicy::REQUEST),
            pending: Backoff::new(PENDING),
            waits_for: None,
        }
    }

    fn run(&mut self, ctx: &mut Context<Self>) {
        if self.running {
            self.again = true;
            return;
        }
        if let Some(timer) = self.timer.take() {
            ctx.cancel_future(timer);
        }
        self.running = true;
        let (env, record) = (Arc::clone(&self.env), Arc::clone(&self.record));
        let step = self.io.run(async move {
            let workers = env.workers();
            let _permit = workers.acquire().await;
            step(&env, &record).await
        });
        ctx.spawn(wrap_future::<_, Self>(step).map(|next, actor, ctx| actor.finished(next, ctx)));
    }

    fn finished(&mut self, next: Result<Result<Next, ApiError>, IoError>, ctx: &mut Context<Self>) {
        self.running = false;
        let mut again = std::mem::take(&mut self.again);
        let (wait, waits_for) = match next {
            Ok(Ok(Next::Gone)) => {
                info!(cluster = self.env.cluster, record = %self.record, "evicted");
                again = false;
                (None, None)
            }
            Ok(Ok(Next::Stays)) => (None, None),
            Ok(Ok(Next::Due(left))) => (Some(left), None),
            Ok(Ok(Next::Pending(what))) => (Some(self.pending.failed()), Some(what)),
            Ok(Err(error)) => {
                let pause = self
                    .requests
                    .failed()
                    .max(error.retry_after().unwrap_or_default());
                (Some(pause), Some(error.to_string()))
            }
            Err(error) => (Some(self.requests.failed()), Some(error.to_string())),
        };
        if let Some(waits_for) = &waits_for
            && self.waits_for.as_ref() != Some(waits_for)
        {
            let (cluster, record) = (&self.env.cluster, &self.record);
            warn!(cluster, %record, waits_for, "a record without a work waits for its end");
        }
        self.waits_for = waits_for;
        if again {
            self.run(ctx);
        } else if let Some(wait) = wait {
            self.timer = Some(ctx.run_later(wait, |actor, ctx| {
                actor.timer = None;
                actor.run(ctx);
            }));
        }
    }
}

/// Takes the next step with a record that has no work.
async fn step(env: &Env, name: &str) -> Result<Next, ApiError> {
    let Some(record) = applied_work::get(&env.spoke, name).await? else {
        return Ok(Next::Gone);
    };
    if record.metadata.deletion_timestamp.is_none() {
        let began = applied_work::eviction_start(&record);
        let now = Timestamp::now();
        match plan_heard(env.heard(), began, env.settings().eviction_grace, now) {
            Plan::Clear => {
                applied_work::set_eviction_start(&env.spoke, &record, None).await?;
                return Ok(Next::Stays);
            }
            Plan::Stays => return Ok(Next::Stays),
            Plan::Begin(due) => {
                info!(
                    cluster = env.cluster,
                    record = name,
                    "the hub has no such work; evicted after the grace period"
                );
                applied_work::set_eviction_start(&env.spoke, &record, Some(now)).await?;
                return Ok(Next::Due(due));
            }
            Plan::Wait(left) => return Ok(Next::Due(left)),
            Plan::Evict => {}
        }
        if let Some(holder) = env.claims.hold(applied_work::recorded(&record)) {
            return Ok(Next::Pending(holder));
        }
    }
    end(env, &record).await
}

async fn end(env: &Env, record: &AppliedManifestWork) -> Result<Next, ApiError> {
    match deletion::remove_record(env, record).await? {
        Progress::Gone => Ok(Next::Gone),
        Progress::Waits { what, error: None } => Ok(Next::Pending(what)),
        Progress::Waits {
            error: Some(error), ..
        } => Err(error),
    }
}

/// What a record without a work is due.
#[derive(Debug, PartialEq, Eq)]
enum Plan {
    Begin(Duration),
    Wait(Duration),
    Evict,
    Clear,
    Stays,
}

fn plan_heard(heard: Heard, began: Option<Timestamp>, grace: Duration, now: Timestamp) -> Plan {
    match heard {
        Heard::Always => plan(began, grace, now),
        // Nobody knows what the hub has.
        Heard::Not => Plan::Stays,
        // What came before the link tells nothing of what it would have brought since.
        Heard::Since(since) => plan(began.map(|began| began.max(since)), grace, now),
    }
}

fn plan(began: Option<Timestamp>, grace: Duration, now: Timestamp) -> Plan {
    if grace >= AgentSettings::EVICTION_OFF {
        return if began.is_some() {
            Plan::Clear
        } else {
            Plan::Stays
        };
    }
    // The start is kept in whole seconds, cut off: one more, so that it is never too early.
    let wait = grace + Duration::from_secs(1);
    let Some(began) = began else {
        return Plan::Begin(wait);
    };
    let end = SignedDuration::try_from(wait)
        .ok()
        .and_then(|wait| began.checked_add(wait).ok())
        .unwrap_or(Timestamp::MAX);
    match Duration::try_from(end.duration_since(now)) {
        Ok(left) if !left.is_zero() => Plan::Wait(left),
        _ => Plan::Evict,
    }
}

impl Actor for Eviction {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.run(ctx);
    }
}

impl Supervised for Eviction {
    fn restarting(&mut self, _: &mut Self::Context) {
        let fresh = Self::new(
            Arc::clone(&self.env),
            self.io.clone(),
            Arc::clone(&self.record),
        );
        *self = fresh;
    }
}

impl Handler<LookAgain> for Eviction {
    type Result = ();

    fn handle(&mut self, _: LookAgain, ctx: &mut Self::Context) {
        self.run(ctx);
    }
}

impl Handler<Snapshot> for Eviction {
    type Result = MessageResult<Snapshot>;

    fn handle(&mut self, _: Snapshot, _: &mut Self::Context) -> Self::Result {
        Snapshot::of(&EvictionState {
            record: Arc::clone(&self.record),
            waits_for: self.waits_for.clone(),
        })
    }
}

impl Handler<Stop> for Eviction {
    type Result = ();

    fn handle(&mut self, _: Stop, ctx: &mut Self::Context) {
        ctx.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: Duration = AgentSettings::EVICTION_OFF;

    /// C082: the end is a point in time, however often and whenever somebody looks.
    #[test]
    fn the_grace_period_ends_when_it_ends() {
        let grace = Duration::from_secs(600);
        let began: Timestamp = "2026-01-01T10:00:00Z".parse().unwrap();
        let after = |seconds: i64| began + SignedDuration::from_secs(seconds);
        let whole = Duration::from_secs(601);
        assert_eq!(plan(None, grace, began), Plan::Begin(whole));
        for seconds in [0_i64, 1, 3] {
            let left = Duration::from_secs(601 - seconds.unsigned_abs());
            assert_eq!(plan(Some(began), grace, after(seconds)), Plan::Wait(left));
        }
        assert_eq!(
            plan(Some(began), grace, after(600)),
            Plan::Wait(Duration::from_secs(1))
        );
        assert_eq!(plan(Some(began), grace, after(601)), Plan::Evict);
        assert_eq!(plan(Some(began), grace, after(100_000)), Plan::Evict);
    }

    #[test]
    fn over_a_bus_the_grace_period_begins_anew_with_each_link() {
        let grace = Duration::from_secs(600);
        let began: Timestamp = "2026-01-01T10:00:00Z".parse().unwrap();
        let after = |seconds: i64| began + SignedDuration::from_secs(seconds);
        let at = |heard, seconds| plan_heard(heard, Some(began), grace, after(seconds));
        assert_eq!(at(Heard::Always, 700), Plan::Evict);
        assert_eq!(at(Heard::Not, 100_000), Plan::Stays);
        let left = Duration::from_secs(501);
        assert_eq!(at(Heard::Since(after(600)), 700), Plan::Wait(left));
        assert_eq!(at(Heard::Since(after(600)), 1_201), Plan::Evict);
        assert_eq!(at(Heard::Since(after(-50)), 601), Plan::Evict);
    }

    #[test]
    fn a_century_of_grace_is_none_at_all() {
        let now = Timestamp::now();
        assert_eq!(plan(None, NEVER, now), Plan::Stays);
        assert_eq!(plan(Some(now), NEVER, now), Plan::Clear);
        assert_eq!(plan(Some(now), Duration::MAX, now), Plan::Clear);
        let almost = Duration::from_secs(NEVER.as_secs() - 1);
        assert!(matches!(plan(Some(now), almost, now), Plan::Wait(_)));
    }
}
