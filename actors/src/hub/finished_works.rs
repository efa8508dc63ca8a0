//! Deletes works some time after they have finished, where they ask for it
//! (`deleteOption.ttlSecondsAfterFinished`; [`muster_core::finished_works`] has the rule).
//!
//! ```text
//! works of no replica set ──watch──► due? ──► queue by time ──► delete ──► the agent cleans up
//! ```
//!
//! Only works that wait for their end are kept, a few words each; the works of replica sets do
//! not even reach this process through this watch. A deletion is bound to the version of the work
//! that was looked at: if the work has changed since, or is another one of the same name, the
//! server refuses and the watch has the news. Nothing is lost with a restart, since all of it
//! follows from the works themselves.

mod queue;

use std::sync::Arc;
use std::time::Duration;

use actix::{
    Actor, ActorContext, ActorFutureExt, Addr, AsyncContext, Context, Handler, MessageResult,
    SpawnHandle, StreamHandler, Supervised, WrapFuture,
};
use jiff::{SignedDuration, Timestamp};
use kube::api::{DeleteParams, Preconditions};
use kube::runtime::watcher;
use kube::{Api, Client};
use muster_api::constants as names;
use muster_core::finished_works::{due, left};
use serde::Serialize;
use tracing::{debug, info, warn};

use self::queue::{End, Queue};
use super::HubDeps;
use super::metrics;
use super::views::{FinishView, ObjectName};
use super::work_events::WorkEvents;
use super::work_writes::WriteError;
use crate::supervision::{IoError, Snapshot, Stop};
use crate::watching::{Seen, watch};

/// Questions only: what this actor lives on comes from its stream.
const MAILBOX: usize = 16;
/// Deletions under way, so that a hub that was away does not send thousands at once.
const AT_A_TIME: usize = 16;
/// The wall clock may be set, or run on while the machine sleeps, so it is looked at this often.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// One event of the watch: a work, and its end if it has one.
type Event = Seen<(ObjectName, Option<End>)>;

/// What the actor publishes.
#[derive(Debug, Serialize)]
struct State {
    waiting: usize,
    in_flight: usize,
    next: Option<Timestamp>,
    synced: bool,
}

/// Deletes finished works. See the module.
#[derive(Debug)]
pub struct FinishedWorks {
    deps: HubDeps,
    queue: Queue,
    in_flight: usize,
    /// Wakes this actor for the next try.
    timer: Option<(Timestamp, SpawnHandle)>,
    synced: bool,
}

impl FinishedWorks {
    /// Starts the actor on the current arbiter.
    pub fn start(deps: HubDeps) -> Addr<Self> {
        let registry = deps.registry.clone();
        registry.start("FinishedWorks", "hub", Self::new(deps))
    }

    fn new(deps: HubDeps) -> Self {
        Self {
            deps,
            queue: Queue::default(),
            in_flight: 0,
            timer: None,
            synced: false,
        }
    }

    /// Deletes what is due, and sets the timer for what is not.
    fn pump(&mut self, ctx: &mut Context<Self>) {
        let now = Timestamp::now();
        while self.in_flight < AT_A_TIME
            && let Some((name, end)) = self.queue.take(now)
        {
            self.in_flight += 1;
            let deletion = delete(self.deps.client.clone(), Arc::clone(&name), end.clone());
            let deletion = self.deps.io.run(deletion).into_actor(self);
            ctx.spawn(deletion.map(move |answer, actor, ctx| {
                actor.in_flight -= 1;
                actor.answered(&name, &end, flatten(answer));
                actor.pump(ctx);
            }));
        }
        // At the limit, the next answer comes back here.
        let next = self.queue.next().filter(|_| self.in_flight < AT_A_TIME);
        if self.timer.as_ref().map(|(at, _)| *at) == next {
            return;
        }
        if let Some((_, timer)) = self.timer.take() {
            ctx.cancel_future(timer);
        }
        if let Some(next) = next {
            let wait = left(next, now).min(LONGEST_WAIT);
            let timer = ctx.run_later(wait, |actor, ctx| {
                actor.timer = None;
                actor.pump(ctx);
            });
            self.timer = Some((next, timer));
        }
    }

    fn answered(&mut self, name: &Arc<ObjectName>, end: &End, answer: Result<(), WriteError>) {
        match answer {
            Ok(()) => {
                metrics::finished_deleted("ok");
                info!(work = %name, "deleted a work whose time after its completion is over");
                self.queue.done(name, end);
            }
            Err(error) if error.is_not_found() => self.queue.done(name, end),
            Err(error) => {
                let changed = error.is_conflict();
                metrics::finished_deleted(if changed { "conflict" } else { "error" });
                self.queue.failed(name, end, |backoff| {
                    let asked = error.retry_after().unwrap_or_default();
                    let pause = backoff.failed().max(asked);
                    let text = error.text();
                    if changed {
                        debug!(work = %name, text, ?pause, "changed since it was seen");
                    } else {
                        warn!(work = %name, error = text, ?pause, "failed to delete, retrying");
                    }
                    after(pause)
                });
            }
        }
    }
}

/// The time after a pause; an API server may ask for a long one.
fn after(pause: Duration) -> Timestamp {
    let pause = SignedDuration::try_from(pause).unwrap_or(SignedDuration::MAX);
    let at = Timestamp::now().checked_add(pause);
    at.unwrap_or(Timestamp::MAX)
}

fn flatten(answer: Result<Result<(), WriteError>, IoError>) -> Result<(), WriteError> {
    answer?
}

/// Deletes the work as it was looked at; runs on a worker thread. What becomes of its objects is
/// the agent's part, by the work's own `propagationPolicy`.
async fn delete(client: Client, name: Arc<ObjectName>, end: End) -> Result<(), WriteError> {
    let works: Api<FinishView> = Api::namespaced(client, &name.namespace);
    let params = DeleteParams::default().preconditions(Preconditions {
        uid: Some(end.uid),
        resource_version: Some(end.resource_version),
    });
    works.delete(&name.name, &params).await?;
    Ok(())
}

/// Reduces a work to its end; runs on a worker thread.
fn end_of(work: FinishView) -> (ObjectName, Option<End>) {
    let name = ObjectName::of(&work.metadata);
    let due = due(&work.metadata, work.ttl_seconds(), work.conditions());
    let end = due.map(|due| End {
        uid: work.metadata.uid.unwrap_or_default(),
        resource_version: work.metadata.resource_version.unwrap_or_default(),
        due,
    });
    (name, end)
}

impl Actor for FinishedWorks {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(MAILBOX);
        self.watch_works(ctx);
    }
}

impl FinishedWorks {
    fn watch_works(&mut self, ctx: &mut Context<Self>) {
        let HubDeps {
            client, io, health, ..
        } = &self.deps;
        let works: Api<FinishView> = Api::all(client.clone());
        let label = names::MANIFEST_WORK_REPLICA_SET_CONTROLLER_NAME_LABEL_KEY;
        let of_no_set = watcher::Config::default().labels(&format!("!{label}"));
        let stream = health.stream("finished/manifestworks");
        let mut events = WorkEvents::new(self.deps.events.clone());
        ctx.add_stream(watch(
            io,
            works,
            of_no_set,
            stream,
            move |work: FinishView| {
                events.look(&work.metadata, work.conditions());
                end_of(work)
            },
        ));
    }
}

impl Supervised for FinishedWorks {
    fn restarting(&mut self, _: &mut Self::Context) {
        *self = Self::new(self.deps.clone());
    }
}

impl StreamHandler<Event> for FinishedWorks {
    fn handle(&mut self, event: Event, ctx: &mut Self::Context) {
        match event {
            Seen::Listing => self.queue.listing(),
            Seen::Item((name, Some(end))) | Seen::Changed((name, Some(end))) => {
                self.queue.set(name, end);
            }
            // Gone, too, when it gets the label of a replica set.
            Seen::Item((name, None)) | Seen::Changed((name, None)) | Seen::Gone((name, _)) => {
                self.queue.remove(&name);
            }
            Seen::Listed => {
                self.synced = true;
                self.queue.listed();
            }
        }
        self.pump(ctx);
    }

    /// The stream ends only with the runtime; the default would stop this actor.
    fn finished(&mut self, _: &mut Self::Context) {}
}

impl Handler<Snapshot> for FinishedWorks {
    type Result = MessageResult<Snapshot>;

    fn handle(&mut self, _: Snapshot, _: &mut Self::Context) -> Self::Result {
        Snapshot::of(&State {
            waiting: self.queue.len(),
            in_flight: self.in_flight,
            next: self.queue.next(),
            synced: self.synced,
        })
    }
}

impl Handler<Stop> for FinishedWorks {
    type Result = ();

    /// Nothing to flush: a deletion that is cut off is taken again by the next life.
    fn handle(&mut self, _: Stop, ctx: &mut Self::Context) {
        ctx.stop();
    }
}
