//! What sources and agents do alike on a bus.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use jiff::Timestamp;
use rand::Rng;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::metrics::{Meter, event_name};
use super::outbox::{Outbox, What};
use super::run::Run;
use super::{ClientOptions, ConnectionState};
use crate::bus::{Bus, BusEvent, Connection, Delivery, PublishError, Publisher, Session};
use crate::{Action, Outgoing};

/// First pause after something failed that is not the connection.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// After which time something is tried again that the broker has refused for good: its limits may
/// have been raised.
const PARKED_FOR: Duration = Duration::from_secs(30 * 60);

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
    /// The requests for what it may have missed, of all or of some on the other side.
    fn requests(
        &self,
        of: Option<&BTreeSet<String>>,
    ) -> impl Future<Output = Result<Vec<Outgoing>, String>> + Send;
    /// Takes a message, and gives a word for what became of it. After an error it is asked for again.
    fn take(
        &self,
        delivery: &mut Delivery,
        outbox: &Outbox,
    ) -> impl Future<Output = Result<&'static str, String>> + Send;
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
            tokio::spawn(self.clone().keep_asking_back()),
            tokio::spawn(self.clone().keep_sending(sessions)),
        ];
        Subscription { tasks }
    }

    async fn listen(self: Arc<Self>, publisher: Publisher, mut events: mpsc::Receiver<BusEvent>) {
        let mut run = Run::default();
        loop {
            let event = tokio::select! {
                event = events.recv() => event,
                () = at(run.over_at()) => {
                    if run.end() {
                        self.ask();
                    }
                    continue;
                }
            };
            let Some(event) = event else { return };
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
                    // A request that did not come is no reason to ask: who sent it asks again.
                    if !event.ends_with("resync_request") {
                        run.add(delivery.message.payload.len());
                    }
                    let result = self.side.take(&mut delivery, &self.outbox).await;
                    let word = result.as_ref().map_or("failed", |word| *word);
                    self.meter.received(event, word);
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
        let requests = self.side.requests(None).await?;
        let mut result = Ok(());
        for request in requests {
            match publisher.publish(request).await {
                Ok(()) => {}
                // The next subscription asks.
                Err(error) if error.is_of_connection() => return Ok(()),
                // One cluster that cannot be asked is no reason not to ask the others.
                Err(error) => result = Err(error.to_string()),
            }
        }
        if result.is_ok() {
            self.meter.resync();
        }
        result
    }

    /// Asks those who have just come. Neither side is there when the other asks, if both come back
    /// after their broker: whoever comes first asks nobody, and what was sent before is gone.
    async fn keep_asking_back(self: Arc<Self>) {
        loop {
            let names = self.outbox.to_ask().await;
            // The next subscription asks all.
            let Some(publisher) = self.publisher() else {
                continue;
            };
            // They may not have heard that this side is there, either: not all brokers keep that.
            if let Some(greeting) = self.side.greeting()
                && let Err(error) = publisher.publish_retained(greeting).await
            {
                debug!(%error, "presence not told");
            }
            let requests = match self.side.requests(Some(&names)).await {
                Ok(requests) => requests,
                Err(error) => {
                    warn!(error, "not asked for what may have been missed");
                    continue;
                }
            };
            for request in requests {
                if let Err(error) = publisher.publish(request).await {
                    debug!(%error, "not asked for what may have been missed");
                }
            }
            self.meter.resync();
        }
    }

    async fn keep_sending(self: Arc<Self>, mut sessions: watch::Receiver<u64>) {
        let mut on_their_way = FuturesUnordered::new();
        let mut refused = Refused::default();
        let mut parked = Parked::default();
        let mut session = *sessions.borrow_and_update();
        // Nothing gets through until then; the connection may not have been told as lost yet.
        let mut no_use_until = None;
        loop {
            self.meter.waiting(self.outbox.len());
            let publisher = self.publisher().filter(|_| no_use_until.is_none());
            let room = on_their_way.len() < self.options.most_in_flight;
            if let Some(publisher) = publisher.clone().filter(|_| room)
                && let Some((uid, what)) = self.outbox.next()
            {
                // Whoever has missed it cannot have it.
                if parked.holds(&uid, &what) {
                    self.outbox.done(&uid);
                    continue;
                }
                let sending = self.send(publisher, uid, what);
                on_their_way.push(async move { (session, sending.await) });
                continue;
            }
            tokio::select! {
                Some((of, result)) = on_their_way.next() => match result {
                    Sending::Arrived(uid) => {
                        refused.arrived(&uid);
                        parked.remove(&uid);
                        self.outbox.done(&uid);
                    }
                    Sending::Never(uid, what) => {
                        refused.arrived(&uid);
                        parked.add(&uid, what);
                        self.outbox.done(&uid);
                    }
                    Sending::NotConnected(uid, what) => {
                        self.outbox.failed(&uid, what);
                        // A later connection has nothing to do with it.
                        if of == session {
                            no_use_until.get_or_insert_with(|| Instant::now() + FIRST_PAUSE);
                        }
                    }
                    Sending::Refused(uid, what) => refused.add(uid, what),
                },
                Some((uid, what)) = refused.next() => self.outbox.failed(&uid, what),
                () = at(parked.next) => {
                    for (uid, what) in parked.due() {
                        self.outbox.add(&uid, what);
                    }
                }
                () = at(no_use_until) => no_use_until = None,
                () = self.outbox.more(), if room && publisher.is_some() => {}
                changed = sessions.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    session = *sessions.borrow_and_update();
                    no_use_until = None;
                }
            }
        }
    }

    async fn send(&self, publisher: Publisher, uid: String, what: What) -> Sending {
        let (outgoing, event, resource) = match self.side.encode(&uid, &what).await {
            Encoded::Message(outgoing, event, resource) => (outgoing, event, resource),
            Encoded::Nothing => return Sending::Arrived(uid),
            Encoded::Never(error) => {
                warn!(uid, error, "not sent, and never will be as it is");
                self.meter.sent("other", "unsendable");
                self.side.unsendable(&uid, &error);
                return Sending::Arrived(uid);
            }
            Encoded::NotNow(error) => {
                warn!(uid, error, "not sent yet");
                return Sending::Refused(uid, what);
            }
        };
        match publisher.publish(outgoing).await {
            Ok(()) => {
                self.meter.sent(event, "sent");
                if let Some(resource) = resource {
                    self.remember(&uid);
                    self.side.arrived(&resource);
                }
                Sending::Arrived(uid)
            }
            Err(error) => {
                self.meter.sent(event, error.reason());
                if error.is_final() {
                    warn!(uid, %error, "not sent, and never will be as it is");
                    self.side.unsendable(&uid, &error.to_string());
                    return Sending::Never(uid, what);
                }
                if error.is_of_connection() {
                    debug!(uid, %error, "not sent yet");
                    return Sending::NotConnected(uid, what);
                }
                warn!(uid, %error, "not sent yet");
                Sending::Refused(uid, what)
            }
        }
    }
}

/// What could not be sent for reasons of its own: each waits for itself, so that none holds up what
/// can be sent.
#[derive(Default)]
struct Refused {
    waiting: FuturesUnordered<BoxFuture<'static, (String, What)>>,
    pauses: HashMap<String, backon::ExponentialBackoff>,
}

impl Refused {
    fn add(&mut self, uid: String, what: What) {
        let pauses = self.pauses.entry(uid.clone()).or_insert_with(pauses);
        let pause = pauses.next().unwrap_or(LONGEST_PAUSE);
        let later = async move {
            tokio::time::sleep(pause).await;
            (uid, what)
        };
        self.waiting.push(later.boxed());
    }

    fn arrived(&mut self, uid: &str) {
        self.pauses.remove(uid);
    }

    /// The next whose pause is over; nothing if none waits.
    async fn next(&mut self) -> Option<(String, What)> {
        self.waiting.next().await
    }
}

/// What the broker has refused for good, as it was: each is sent again when it changes, or after a long
/// time.
#[derive(Default)]
struct Parked {
    waiting: HashMap<String, (Instant, What)>,
    /// When the first of them is due.
    next: Option<Instant>,
}

impl Parked {
    fn add(&mut self, uid: &str, what: What) {
        let due = Instant::now() + PARKED_FOR;
        self.waiting.insert(uid.to_owned(), (due, what));
        self.next.get_or_insert(due);
    }

    fn remove(&mut self, uid: &str) {
        self.waiting.remove(uid);
    }

    /// Whether this would say the same again.
    fn holds(&self, uid: &str, what: &What) -> bool {
        *what == What::Change(Action::ResyncResponse) && self.waiting.contains_key(uid)
    }

    /// Those whose time has come.
    fn due(&mut self) -> Vec<(String, What)> {
        let now = Instant::now();
        let due: Vec<_> = self
            .waiting
            .extract_if(|_, (due, _)| *due <= now)
            .map(|(uid, (_, what))| (uid, what))
            .collect();
        self.next = self.waiting.values().map(|(due, _)| *due).min();
        due
    }
}

/// When to ask for what may have been missed.
struct Signals {
    asked: watch::Receiver<u64>,
    not_taken: watch::Receiver<u64>,
}

/// What became of what was to be said of a resource.
enum Sending {
    /// The broker has it, or never will.
    Arrived(String),
    /// The broker never will have it as it is.
    Never(String, What),
    /// Its connection is gone, or soon will be said to be.
    NotConnected(String, What),
    /// It cannot be sent now, whatever the connection.
    Refused(String, What),
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
