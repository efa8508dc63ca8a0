//! `EventQueue`: gives one sink what waits for it.
//!
//! ```text
//!  Outlet ──batch──► sink ──► taken off          one batch at a time, with back-off
//!    │
//!    ├─ doubts ────► read, one by one            what a list and another watch disagree about
//!    └─ behind ────► list the area, in pages     what found no room, once there is some
//! ```
//!
//! A sink that fails holds up nobody but itself: its queue fills, what finds no room is looked for
//! later, and its state tells why.

use std::sync::Arc;
use std::time::Duration;

use actix::{
    Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, MessageResult,
    ResponseActFuture, SpawnHandle, Supervised, WrapFuture, fut::wrap_future,
};
use futures::future::BoxFuture;
use jiff::Timestamp;
use muster_core::rule_events::Event;
use serde::Serialize;
use tokio::sync::{Mutex, Notify};
use tokio::time::Instant;
use tracing::{info, warn};

use super::memory::Memory;
use super::metrics;
use super::outlet::{Doubt, Outlet};
use crate::sinks::{Sink, SinkError};
use crate::supervision::{Backoff, BackoffPolicy, Io, Snapshot, Stop};
use crate::watch::Area;

/// Most events that a sink is given at a time, and most bytes of objects in them. A batch is a
/// commit or a write, so it pays to have many; and it is held twice while it is under way.
const BATCH: (usize, usize) = (200, 1 << 20);
/// A sink that has not taken a batch after this long is taken for stuck, and given it anew.
const DELIVERY_LIMIT: Duration = Duration::from_secs(120);
/// What is left to a sink when the agent ends.
const FLUSH_LIMIT: Duration = Duration::from_secs(3);
/// Pause before an area is looked at once more that could not be listed, or had more than there was
/// room for.
const LOOK_AGAIN: BackoffPolicy = BackoffPolicy {
    first: Duration::from_secs(5),
    max: Duration::from_secs(60),
    reset_after: Duration::from_secs(120),
};
const RETRY: BackoffPolicy = BackoffPolicy {
    first: Duration::from_millis(500),
    max: Duration::from_secs(30),
    reset_after: Duration::from_secs(60),
};

/// Looks at the cluster for a sink.
pub(super) trait Look: Send + Sync + 'static {
    /// Reads an object that is in doubt, and tells the sink of it.
    fn settle<'a>(&'a self, outlet: &'a Outlet, doubt: &'a Doubt) -> BoxFuture<'a, ()>;
    /// Lists an area that is behind, and tells the sink of it as it has room; says whether it could.
    fn list<'a>(&'a self, outlet: &'a Outlet, area: &'a Area) -> BoxFuture<'a, bool>;
}

/// What a queue shows of itself.
#[derive(Debug, Clone, Serialize)]
pub struct EventQueueState {
    /// Name of the sink.
    pub sink: String,
    /// Events that wait.
    pub waiting: usize,
    /// Events that the sink has taken.
    pub delivered: u64,
    /// Objects that the sink is known to have.
    pub objects: usize,
    /// Areas that have more than there was room for.
    pub behind: usize,
    /// Why the sink does not take events, and since when; absent while it does.
    pub failing: Option<(String, Timestamp)>,
}

/// The actor of one sink. See the module.
pub(super) struct EventQueue {
    outlet: Arc<Outlet>,
    look: Arc<dyn Look>,
    io: Io,
    /// `None` where nothing is kept over a restart.
    memory: Option<Arc<Memory>>,
    /// Locked while it is given a batch; one that is stuck keeps the lock.
    sink: Arc<Mutex<Box<dyn Sink>>>,
    window: Duration,
    /// Until when what waits waits for more; `None` while nothing does.
    collecting: Option<Instant>,
    delivering: bool,
    looking: bool,
    look_backoff: Backoff,
    listening: Option<SpawnHandle>,
    backoff: Backoff,
    failing: Option<(String, Timestamp)>,
    delivered: u64,
    stopping: bool,
    /// Nothing more is given to the sink.
    drained: Arc<Notify>,
}

impl std::fmt::Debug for EventQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventQueue")
            .field("sink", self.outlet.sink())
            .field("failing", &self.failing)
            .finish_non_exhaustive()
    }
}

impl EventQueue {
    pub(super) fn new(
        outlet: Arc<Outlet>,
        look: Arc<dyn Look>,
        io: Io,
        memory: Option<Arc<Memory>>,
        sink: Box<dyn Sink>,
    ) -> Self {
        Self {
            window: sink.window(),
            collecting: None,
            outlet,
            look,
            io,
            memory,
            sink: Arc::new(Mutex::new(sink)),
            delivering: false,
            looking: false,
            listening: None,
            look_backoff: Backoff::new(LOOK_AGAIN),
            backoff: Backoff::new(RETRY),
            failing: None,
            delivered: 0,
            stopping: false,
            drained: Arc::default(),
        }
    }

    /// Waits for something to do.
    fn listen(&mut self, ctx: &mut Context<Self>) {
        let outlet = Arc::clone(&self.outlet);
        let work = async move { outlet.work.notified().await };
        let listening = ctx.spawn(wrap_future::<_, Self>(work).map(|(), actor, ctx| {
            actor.listen(ctx);
            actor.advance(ctx);
        }));
        self.listening = Some(listening);
    }

    fn advance(&mut self, ctx: &mut Context<Self>) {
        self.deliver(ctx);
        if !self.stopping {
            self.look(ctx);
        }
    }

    fn deliver(&mut self, ctx: &mut Context<Self>) {
        if self.delivering || self.collects(ctx) {
            return;
        }
        self.collecting = None;
        let batch = self.outlet.take(BATCH.0, BATCH.1);
        if batch.is_empty() && !self.outlet.has_records() {
            if self.stopping {
                self.drained.notify_one();
            }
            return;
        }
        self.delivering = true;
        let (number, oldest) = (batch.len(), batch.first().map(|event| event.seen));
        let (sink, memory) = (Arc::clone(&self.sink), self.memory.clone());
        let outlet = Arc::clone(&self.outlet);
        let task = self.io.run(give(sink, memory, outlet, batch));
        let task = async move {
            task.await
                .unwrap_or_else(|error| Err(SinkError::new(error.to_string())))
        };
        ctx.spawn(task.into_actor(self).map(move |result, actor, ctx| {
            if number > 0 {
                metrics::delivery(&actor.outlet, oldest, result.is_ok());
            }
            match result {
                Ok(()) => {
                    actor.delivered += number as u64;
                    if number > 0 {
                        actor.backoff.succeeded();
                    }
                    actor.outlet.set_failing(None);
                    if actor.failing.take().is_some() {
                        info!(sink = %actor.outlet.sink(), "sink takes events again");
                    }
                    actor.delivering = false;
                    actor.advance(ctx);
                }
                Err(SinkError { text: error, lost }) => {
                    actor.outlet.not_delivered();
                    if actor.stopping {
                        actor.drained.notify_one();
                    }
                    if lost {
                        warn!(sink = %actor.outlet.sink(), "sink is told everything anew");
                        actor.outlet.tell_anew();
                    }
                    let pause = actor.backoff.failed();
                    if actor.failing.as_ref().is_none_or(|(last, _)| *last != error) {
                        warn!(sink = %actor.outlet.sink(), error, "sink does not take events, retrying");
                    }
                    actor.outlet.set_failing(Some(error.clone()));
                    let since = actor.failing.take().map(|(_, since)| since);
                    actor.failing = Some((error, since.unwrap_or_else(Timestamp::now)));
                    ctx.run_later(pause, |actor, ctx| {
                        actor.delivering = false;
                        // It has waited.
                        actor.collecting = Some(Instant::now());
                        actor.advance(ctx);
                    });
                }
            }
        }));
    }

    /// Whether what waits is to wait for more; if it is the first, its time begins.
    fn collects(&mut self, ctx: &mut Context<Self>) -> bool {
        let waiting = self.outlet.waiting();
        let is_full = waiting >= BATCH.0 || !self.outlet.has_ease();
        if waiting == 0 || is_full || self.stopping || self.window.is_zero() {
            return false;
        }
        let now = Instant::now();
        if let Some(until) = self.collecting {
            return now < until;
        }
        self.collecting = Some(now + self.window);
        ctx.run_later(self.window, Self::advance);
        true
    }

    /// Looks at what is in doubt, or at an area that is behind.
    fn look(&mut self, ctx: &mut Context<Self>) {
        if self.looking {
            return;
        }
        let doubts = self.outlet.doubts();
        let area = if doubts.is_empty() {
            self.outlet.behind()
        } else {
            None
        };
        if doubts.is_empty() && area.is_none() {
            return;
        }
        self.looking = true;
        let (look, outlet) = (Arc::clone(&self.look), Arc::clone(&self.outlet));
        let task = self.io.run(async move {
            for doubt in doubts {
                look.settle(&outlet, &doubt).await;
            }
            match area {
                Some(area) => look.list(&outlet, &area).await,
                None => true,
            }
        });
        ctx.spawn(task.into_actor(self).map(move |whole, actor, ctx| {
            actor.looking = false;
            if let Some(area) = actor.outlet.looked(whole.unwrap_or(false)) {
                // Others have their turn meanwhile.
                let pause = actor.look_backoff.failed();
                ctx.run_later(pause, move |actor, _| actor.outlet.is_behind(&area));
            }
            actor.advance(ctx);
        }));
    }
}

/// Gives the sink a batch, and remembers that it has it: not before it does, and in order.
async fn give(
    sink: Arc<Mutex<Box<dyn Sink>>>,
    memory: Option<Arc<Memory>>,
    outlet: Arc<Outlet>,
    batch: Vec<Event>,
) -> Result<(), SinkError> {
    let given = async {
        if batch.is_empty() {
            return Ok(());
        }
        sink.lock().await.deliver(&batch).await
    };
    let given = tokio::time::timeout(DELIVERY_LIMIT, given)
        .await
        .unwrap_or_else(|_| {
            Err(SinkError::new(format!(
                "no answer within {DELIVERY_LIMIT:?}"
            )))
        });
    let last = batch.last().filter(|_| given.is_ok());
    let records = outlet.delivered(last.map_or(0, |event| event.sequence));
    let (Some(memory), false) = (memory, records.is_empty()) else {
        return given;
    };
    let recorded = tokio::task::spawn_blocking(move || memory.record(&records)).await;
    // The sink has the events all the same; at worst it is told of them once more in another life.
    match recorded {
        Ok(Ok(())) => {}
        Ok(Err(error)) => warn!(error, "what a sink was told is not remembered"),
        Err(error) => warn!(%error, "what a sink was told is not remembered"),
    }
    given
}

impl Actor for EventQueue {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.listen(ctx);
        self.advance(ctx);
    }
}

impl Supervised for EventQueue {
    fn restarting(&mut self, _: &mut Self::Context) {
        // What was taken is taken again; the sink may have had it.
        if self.delivering {
            self.outlet.not_delivered();
        }
        if let Some(area) = self.outlet.looked(false) {
            self.outlet.is_behind(&area);
        }
        (self.delivering, self.looking, self.listening) = (false, false, None);
        self.collecting = None;
        self.stopping = false;
    }
}

impl Handler<Snapshot> for EventQueue {
    type Result = MessageResult<Snapshot>;

    fn handle(&mut self, _: Snapshot, _: &mut Self::Context) -> Self::Result {
        let (objects, behind) = self.outlet.sizes();
        Snapshot::of(&EventQueueState {
            sink: self.outlet.sink().to_string(),
            waiting: self.outlet.waiting(),
            delivered: self.delivered,
            objects,
            behind,
            failing: self.failing.clone(),
        })
    }
}

/// Gives the sink what it takes within a moment, and ends.
impl Handler<Stop> for EventQueue {
    type Result = ResponseActFuture<Self, ()>;

    fn handle(&mut self, _: Stop, ctx: &mut Self::Context) -> Self::Result {
        self.stopping = true;
        if let Some(listening) = self.listening.take() {
            ctx.cancel_future(listening);
        }
        if self.failing.is_some() {
            self.drained.notify_one();
        } else {
            self.deliver(ctx);
        }
        let drained = Arc::clone(&self.drained);
        let flushed = async move {
            let _ = tokio::time::timeout(FLUSH_LIMIT, drained.notified()).await;
        };
        Box::pin(flushed.into_actor(self).map(|(), actor, ctx| {
            let left = actor.outlet.waiting();
            if left > 0 {
                warn!(sink = %actor.outlet.sink(), events = left, "events were not delivered");
            }
            ctx.stop();
        }))
    }
}
