//! What sources and agents do alike on a bus.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use rand::Rng;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::metrics::{Meter, event_name};
use super::outbox::{Outbox, What};
use super::{ClientOptions, ConnectionState};
use crate::bus::{Bus, BusEvent, Connection, Delivery, PublishError, Publisher, Session};
use crate::{Action, Outgoing};

/// First pause after something failed that is not the connection.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How long reasons to ask are gathered.
const SETTLE: Duration = Duration::from_millis(50);

/// The word for a request that was answered.
pub(super) const ASKED: &str = "asked";

/// How long what has arrived at the broker is said again when the connection ends: brokers deliver
/// at once, and clients come back within [`LONGEST_PAUSE`].
const RECENT: Duration = Duration::from_secs(60);
/// Most resources that are remembered for that.
const MOST_RECENT: usize = 10_000;

/// What a resource becomes when its turn has come.
pub(super) enum Encoded<T> {
    /// This, of this kind, for the resource as it then was.
    Message(Outgoing, &'static str, Option<Arc<T>>),
    /// Nothing: it is not there any more.
    Nothing,
    /// It never can be sent.
    Never(String),
    /// It cannot be read now.
    NotNow(String),
}

/// What makes a source or an agent of a client.
pub(super) trait Side: Send + Sync + 'static {
    /// What it is about.
    type Resource: Send + Sync;

    /// What it listens to, and its will.
    fn session(&self) -> Session;
    /// What it says first, for others to keep.
    fn greeting(&self) -> Option<Outgoing>;
    /// The requests for what it may have missed.
    fn requests(&self) -> impl Future<Output = Result<Vec<Outgoing>, String>> + Send;
    /// Takes a message, and gives a word for what became of it. After an error it is asked for again.
    fn take(
        &self,
        delivery: &mut Delivery,
        outbox: &Outbox,
    ) -> impl Future<Output = Result<&'static str, String>> + Send;
    /// Whether somebody who asks may have missed what this side has asked itself.
    const ASKS_BACK: bool;
    /// Says something of a resource.
    fn encode(
        &self,
        uid: &str,
        what: &What,
    ) -> impl Future<Output = Encoded<Self::Resource>> + Send;
    /// The broker has what was said of a resource.
    fn arrived(&self, resource: &Self::Resource);
    /// A resource cannot be sent as it is.
    fn unsendable(&self, uid: &str, why: &str);
    /// The connection is there, from now on and anew, or is gone.
    fn connected(&self, is: bool);
}

/// What the tasks of a client share.
pub(super) struct Core<S> {
    pub(super) side: S,
    pub(super) outbox: Outbox,
    pub(super) meter: Meter,
    options: ClientOptions,
    publisher: Mutex<Option<Publisher>>,
    state: watch::Sender<ConnectionState>,
    /// Counts subscriptions, and wishes for a resync.
    asked: watch::Sender<u64>,
    /// Counts subscriptions.
    sessions: watch::Sender<u64>,
    /// Counts what came and could not be kept.
    not_taken: watch::Sender<u64>,
    /// What has arrived at the broker of late, and when.
    recent: Mutex<VecDeque<(Instant, String)>>,
}

/// A client on a bus, until this is dropped.
#[derive(Debug)]
#[must_use = "the client leaves the bus when this is dropped"]
pub struct Subscription {
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl<S: Side> Core<S> {
    pub(super) fn new(side: S, options: ClientOptions, meter: Meter) -> Arc<Self> {
        Arc::new(Self {
            side,
            outbox: Outbox::default(),
            meter,
            options,
            publisher: Mutex::new(None),
            state: watch::Sender::new(ConnectionState::Connecting),
            asked: watch::Sender::new(0),
            sessions: watch::Sender::new(0),
            not_taken: watch::Sender::new(0),
            recent: Mutex::default(),
        })
    }

    pub(super) fn state(&self) -> watch::Receiver<ConnectionState> {
        self.state.subscribe()
    }

    /// Asks for what may have been missed, now or after the next subscription.
    pub(super) fn ask(&self) {
        self.asked.send_modify(|times| *times += 1);
    }

    pub(super) async fn publish(&self, outgoing: Outgoing) -> Result<(), PublishError> {
        let publisher = self.publisher();
        publisher
            .ok_or(PublishError::NotConnected)?
            .publish(outgoing)
            .await
    }

    fn publisher(&self) -> Option<Publisher> {
        self.publisher
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn set_publisher(&self, publisher: Option<Publisher>) {
        *self
            .publisher
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = publisher;
    }

    pub(super) fn subscribe(self: &Arc<Self>, bus: &dyn Bus) -> Subscription {
        let Connection { publisher, events } = bus.open(self.side.session());
        // All look before anything happens, so that none misses the first subscription.
        let signals = Signals {
            asked: self.asked.subscribe(),
            not_taken: self.not_taken.subscribe(),
        };
        let sessions = self.sessions.subscribe();
        let tasks = vec![
            tokio::spawn(self.clone().listen(publisher, events)),
            tokio::spawn(self.clone().keep_asking(signals)),
            tokio::spawn(self.clone().keep_sending(sessions)),
        ];
        Subscription { tasks }
    }

    async fn listen(self: Arc<Self>, publisher: Publisher, mut events: mpsc::Receiver<BusEvent>) {
        while let Some(event) = events.recv().await {
            match event {
                BusEvent::Subscribed => {
                    self.side.connected(true);
                    self.say_again();
                    self.set_publisher(Some(publisher.clone()));
                    self.state.send_replace(ConnectionState::Subscribed);
                    self.meter.connected(true);
                    self.sessions.send_modify(|times| *times += 1);
                    self.ask();
                }
                BusEvent::Message(mut delivery) => {
                    let event = delivery.message.kind().map_or("other", event_name);
                    let result = self.side.take(&mut delivery, &self.outbox).await;
                    let word = result.as_ref().map_or("failed", |word| *word);
                    self.meter.received(event, word);
                    if S::ASKS_BACK && word == ASKED {
                        self.ask();
                    }
                    if let Err(error) = result {
                        let topic = &delivery.topic;
                        warn!(
                            topic,
                            error, "what came was not kept; it is asked for again"
                        );
                        self.not_taken.send_modify(|times| *times += 1);
                    }
                }
                BusEvent::Lost { reason, .. } => {
                    self.side.connected(false);
                    self.set_publisher(None);
                    self.meter.connected(false);
                    self.state.send_modify(|state| {
                        let since = match state {
                            ConnectionState::Lost { since, .. } => *since,
                            _ => Timestamp::now(),
                        };
                        *state = ConnectionState::Lost { reason, since };
                    });
                }
            }
        }
    }

    /// A broker that has a message may die before anybody else has it, and whoever it is for may not
    /// have been back yet: what arrived shortly before a connection ended is said again on the next.
    fn say_again(&self) {
        let recent = std::mem::take(&mut *self.recent());
        for (at, uid) in recent {
            if at.elapsed() <= RECENT {
                self.outbox.add(&uid, What::Change(Action::ResyncResponse));
            }
        }
    }

    fn recent(&self) -> MutexGuard<'_, VecDeque<(Instant, String)>> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, uid: &str) {
        let mut recent = self.recent();
        recent.push_back((Instant::now(), uid.to_owned()));
        while recent.len() > MOST_RECENT
            || recent.front().is_some_and(|(at, _)| at.elapsed() > RECENT)
        {
            recent.pop_front();
        }
    }

    async fn keep_asking(self: Arc<Self>, signals: Signals) {
        let Signals {
            mut asked,
            mut not_taken,
        } = signals;
        let mut greeted = 0;
        let (mut pauses, mut store_pauses) = (pauses(), pauses());
        let mut last_failure = Instant::now();
        let after = |pause: Duration| Instant::now() + pause;
        let periodically = || {
            self.options
                .resync_interval
                .map(|pause| after(jittered(pause)))
        };
        let mut due = periodically();
        loop {
            tokio::select! {
                changed = asked.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    // Those who ask in parts ask several times.
                    tokio::time::sleep(SETTLE).await;
                }
                Ok(()) = not_taken.changed() => {
                    if last_failure.elapsed() > 2 * LONGEST_PAUSE {
                        store_pauses = self::pauses();
                    }
                    // Many may fail at a time: they are asked for together.
                    let soon = after(LONGEST_PAUSE);
                    if due.is_none_or(|due| due > soon) {
                        due = store_pauses.next().map(after).or(Some(soon));
                    }
                    last_failure = Instant::now();
                    continue;
                }
                () = at(due) => {}
            }
            asked.mark_unchanged();
            due = periodically();
            // Without a connection there is nobody to ask; the next subscription asks.
            if self.publisher().is_none() {
                continue;
            }
            let session = *self.sessions.borrow();
            match self.ask_now(greeted < session).await {
                Ok(()) => {
                    greeted = session;
                    pauses = self::pauses();
                    self.refused(None);
                }
                Err(error) => {
                    let pause = pauses.next().unwrap_or(LONGEST_PAUSE);
                    warn!(error, ?pause, "not asked for what may have been missed");
                    due = Some(after(pause));
                    self.refused(Some(error));
                }
            }
        }
    }

    /// Whether the broker lets this client ask, as far as it is connected.
    fn refused(&self, why: Option<String>) {
        self.state.send_if_modified(|state| match (&*state, why) {
            (ConnectionState::Subscribed, Some(reason)) => {
                let since = Timestamp::now();
                *state = ConnectionState::Refused { reason, since };
                true
            }
            (ConnectionState::Refused { .. }, None) => {
                *state = ConnectionState::Subscribed;
                true
            }
            _ => false,
        });
    }

    async fn ask_now(&self, greet: bool) -> Result<(), String> {
        let Some(publisher) = self.publisher() else {
            return Ok(());
        };
        if greet && let Some(greeting) = self.side.greeting() {
            // A broker that keeps nothing refuses it; that costs only what it would have told.
            if let Err(error) = publisher.publish_retained(greeting).await
                && !error.is_of_connection()
            {
                warn!(%error, "presence not told");
            }
        }
        let requests = self.side.requests().await?;
        for request in requests {
            match publisher.publish(request).await {
                Ok(()) => {}
                // The next subscription asks.
                Err(error) if error.is_of_connection() => return Ok(()),
                Err(error) => return Err(error.to_string()),
            }
        }
        self.meter.resync();
        Ok(())
    }

    async fn keep_sending(self: Arc<Self>, mut sessions: watch::Receiver<u64>) {
        let mut on_their_way = FuturesUnordered::new();
        // Those that failed wait each by itself: a topic that is refused keeps nobody else waiting.
        let mut waiting = FuturesUnordered::new();
        let mut failures: HashMap<String, u32> = HashMap::new();
        loop {
            self.meter.waiting(self.outbox.len());
            let publisher = self.publisher();
            let room = on_their_way.len() < self.options.most_in_flight;
            if let Some(publisher) = publisher.clone().filter(|_| room)
                && let Some((uid, what)) = self.outbox.next()
            {
                on_their_way.push(self.send(publisher, uid, what));
                continue;
            }
            tokio::select! {
                Some(result) = on_their_way.next(), if !on_their_way.is_empty() => match result {
                    Sending::Done(uid) => {
                        failures.remove(&uid);
                        self.outbox.done(&uid);
                    }
                    Sending::NotConnected(uid, what) => self.outbox.failed(&uid, what),
                    Sending::Failed(uid, what) => {
                        let times = failures.entry(uid.clone()).or_default();
                        let pause = FIRST_PAUSE * 2_u32.saturating_pow(*times);
                        *times += 1;
                        let pause = pause.min(LONGEST_PAUSE);
                        debug!(uid, ?pause, "tried again later");
                        waiting.push(async move {
                            tokio::time::sleep(pause).await;
                            (uid, what)
                        });
                    }
                },
                Some((uid, what)) = waiting.next(), if !waiting.is_empty() => {
                    self.outbox.failed(&uid, what);
                }
                () = self.outbox.more(), if room && publisher.is_some() => {}
                changed = sessions.changed() => if changed.is_err() {
                    return;
                },
            }
        }
    }

    async fn send(&self, publisher: Publisher, uid: String, what: What) -> Sending {
        let (outgoing, event, resource) = match self.side.encode(&uid, &what).await {
            Encoded::Message(outgoing, event, resource) => (outgoing, event, resource),
            Encoded::Nothing => return Sending::Done(uid),
            Encoded::Never(error) => {
                warn!(uid, error, "not sent, and never will be as it is");
                self.meter.sent("other", "unsendable");
                self.side.unsendable(&uid, &error);
                return Sending::Done(uid);
            }
            Encoded::NotNow(error) => {
                warn!(uid, error, "not sent yet");
                return Sending::Failed(uid, what);
            }
        };
        match publisher.publish(outgoing).await {
            Ok(()) => {
                self.meter.sent(event, "sent");
                if let Some(resource) = resource {
                    self.remember(&uid);
                    self.side.arrived(&resource);
                }
                Sending::Done(uid)
            }
            Err(error) => {
                self.meter.sent(event, error.reason());
                if error.is_final() {
                    warn!(uid, %error, "not sent, and never will be as it is");
                    self.side.unsendable(&uid, &error.to_string());
                    return Sending::Done(uid);
                }
                if error.is_of_connection() {
                    debug!(uid, %error, "not sent yet");
                    return Sending::NotConnected(uid, what);
                }
                warn!(uid, %error, "not sent yet");
                Sending::Failed(uid, what)
            }
        }
    }
}

/// When to ask for what may have been missed.
struct Signals {
    asked: watch::Receiver<u64>,
    not_taken: watch::Receiver<u64>,
}

/// What became of something to be said.
enum Sending {
    /// The broker has it, or there is nothing to say.
    Done(String),
    /// Its connection is gone, or soon will be said to be.
    NotConnected(String, What),
    Failed(String, What),
}

fn pauses() -> backon::ExponentialBackoff {
    ExponentialBuilder::new()
        .with_min_delay(FIRST_PAUSE)
        .with_max_delay(LONGEST_PAUSE)
        .without_max_times()
        .build()
}

/// A tenth more or less.
fn jittered(interval: Duration) -> Duration {
    interval.mul_f64(rand::rng().random_range(0.9..1.1))
}

async fn at(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}
