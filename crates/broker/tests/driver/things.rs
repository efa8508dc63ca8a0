//! Sources and agents of plain documents, and what happens to their connections.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use muster_cloudevents::bus::{Bus, BusEvent, Connection, Mqtt, MqttOptions, Session};
use muster_cloudevents::client::{
    AgentClient, AgentStore, ClientOptions, ConnectionState, Held, SourceClient, Subscription,
    Taken,
};
use muster_cloudevents::{Agent, Dialect, Source};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::place::HUB;
use crate::support::SOON;

#[path = "../../../cloudevents/tests/support/things.rs"]
mod shared;

pub(crate) use shared::{Codec, Store, Thing, codec, is_done, outcome, store, thing, work};

/// A connection as it was, so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Happened {
    Subscribed,
    Lost(String, Duration),
}

/// A bus that remembers what became of its connections.
pub(crate) struct Recorded {
    inner: Mqtt,
    log: watch::Sender<Vec<Happened>>,
}

impl Recorded {
    pub(crate) fn new(options: MqttOptions) -> Self {
        Self {
            inner: Mqtt::new(options).unwrap(),
            log: watch::Sender::new(Vec::new()),
        }
    }

    pub(crate) fn log(&self) -> watch::Receiver<Vec<Happened>> {
        self.log.subscribe()
    }
}

impl Bus for Recorded {
    fn open(&self, session: Session) -> Connection {
        let Connection {
            publisher,
            mut events,
        } = self.inner.open(session);
        let (sender, forwarded) = mpsc::channel(1);
        let log = self.log.clone();
        tokio::spawn(async move {
            while let Ok(room) = sender.reserve().await {
                let next = tokio::select! {
                    next = events.recv() => next,
                    () = sender.closed() => None,
                };
                let Some(event) = next else { return };
                match &event {
                    BusEvent::Subscribed => log.send_modify(|log| log.push(Happened::Subscribed)),
                    BusEvent::Lost { reason, retry_in } => {
                        let lost = Happened::Lost(reason.clone(), *retry_in);
                        log.send_modify(|log| log.push(lost));
                    }
                    BusEvent::Message(_) => {}
                }
                room.send(event);
            }
        });
        Connection {
            publisher,
            events: forwarded,
        }
    }
}

pub(crate) fn losses(log: &[Happened]) -> Vec<(String, Duration)> {
    let lost = log.iter().filter_map(|happened| match happened {
        Happened::Lost(reason, retry_in) => Some((reason.clone(), *retry_in)),
        Happened::Subscribed => None,
    });
    lost.collect()
}

/// Waits until this holds of what is watched, and gives it.
pub(crate) async fn wait<T: Clone + std::fmt::Debug>(
    of: &mut watch::Receiver<T>,
    what: &str,
    holds: impl Fn(&T) -> bool,
) -> T {
    let found = timeout(SOON, of.wait_for(|value| holds(value))).await;
    let found = found.map(|found| found.unwrap().clone());
    found.unwrap_or_else(|_| panic!("{what}: {:?}", *of.borrow()))
}

/// Waits until this holds of a store.
pub(crate) async fn until(store: &Store, what: &str, holds: impl Fn(&Store) -> bool) {
    let mut changes = store.changes();
    let wait = async {
        while !holds(store) {
            changes.changed().await.unwrap();
        }
    };
    if timeout(2 * SOON, wait).await.is_err() {
        let things = store.list().into_iter();
        let things: Vec<_> = things
            .map(|thing| format!("{thing:?}").chars().take(300).collect::<String>())
            .collect();
        panic!("{what}: {things:#?}");
    }
}

pub(crate) fn uids(store: &Store, cluster: &str) -> BTreeMap<String, i64> {
    let things = store.list().into_iter();
    let here = things.filter(|thing| thing.cluster == cluster);
    here.map(|thing| (thing.uid.clone(), thing.version))
        .collect()
}

fn options(resync: Option<Duration>) -> ClientOptions {
    ClientOptions {
        resync_interval: resync,
        ..ClientOptions::default()
    }
}

async fn is_subscribed(mut state: watch::Receiver<ConnectionState>) {
    let is = |state: &ConnectionState| *state == ConnectionState::Subscribed;
    wait(&mut state, "subscribed", is).await;
}

/// A source at work, until it is dropped.
pub(crate) struct Hub {
    pub(crate) store: Arc<Store>,
    pub(crate) client: SourceClient<Codec, Store>,
    pub(crate) log: watch::Receiver<Vec<Happened>>,
    _subscription: Subscription,
}

impl Hub {
    pub(crate) fn new(options: MqttOptions, store: &Arc<Store>) -> Self {
        Self::resyncing(options, store, None)
    }

    pub(crate) fn resyncing(
        mqtt: MqttOptions,
        store: &Arc<Store>,
        resync: Option<Duration>,
    ) -> Self {
        let source = Source::new(HUB, Dialect::Enhancement, codec()).unwrap();
        let client = SourceClient::new(source, Arc::clone(store), options(resync));
        let bus = Recorded::new(mqtt);
        Self {
            store: Arc::clone(store),
            log: bus.log(),
            _subscription: client.subscribe(&bus),
            client,
        }
    }

    pub(crate) async fn subscribed(&self) {
        is_subscribed(self.client.state()).await;
    }

    pub(crate) fn put(&self, thing: Thing) {
        let uid = thing.uid.clone();
        self.store.put(thing);
        self.client.created(&uid);
    }

    pub(crate) fn set(&self, uid: &str, spec: &str) {
        if self.store.set_spec(uid, spec.to_owned()) {
            self.client.changed(uid);
        }
    }

    pub(crate) fn delete(&self, uid: &str) {
        if self.store.delete(uid) {
            self.client.changed(uid);
        }
    }
}

/// An agent at work, until it is dropped.
pub(crate) struct Edge {
    pub(crate) store: Arc<Store>,
    pub(crate) client: AgentClient<Codec, Store>,
    pub(crate) log: watch::Receiver<Vec<Happened>>,
    worker: Option<JoinHandle<()>>,
    _subscription: Subscription,
}

impl Edge {
    pub(crate) fn new(mqtt: MqttOptions, cluster: &str) -> Self {
        Self::resyncing(mqtt, cluster, &store(), None)
    }

    pub(crate) fn resyncing(
        mqtt: MqttOptions,
        cluster: &str,
        store: &Arc<Store>,
        resync: Option<Duration>,
    ) -> Self {
        let mut edge = Self::idle(mqtt, cluster, store, resync);
        let work = work(edge.client.clone(), Arc::clone(store));
        edge.worker = Some(tokio::spawn(work));
        edge
    }

    /// Takes what comes, and does nothing about it.
    pub(crate) fn idle(
        mqtt: MqttOptions,
        cluster: &str,
        store: &Arc<Store>,
        resync: Option<Duration>,
    ) -> Self {
        let agent = Agent::new(cluster, cluster, Dialect::Enhancement, codec()).unwrap();
        let client = AgentClient::new(agent, Arc::clone(store), options(resync));
        let bus = Recorded::new(mqtt);
        Self {
            store: Arc::clone(store),
            log: bus.log(),
            worker: None,
            _subscription: client.subscribe(&bus),
            client,
        }
    }

    pub(crate) async fn subscribed(&self) {
        is_subscribed(self.client.state()).await;
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        if let Some(worker) = &self.worker {
            worker.abort();
        }
    }
}

/// A store whose every write takes its time, as one on a disk; what is written has its status at
/// once.
pub(crate) struct Slow {
    pub(crate) store: Arc<Store>,
    pub(crate) pause: Duration,
}

impl Slow {
    /// An agent with this, until it is dropped; and how its connection goes.
    pub(crate) fn agent(
        self,
        mqtt: MqttOptions,
        cluster: &str,
    ) -> (Subscription, watch::Receiver<Vec<Happened>>) {
        let agent = Agent::new(cluster, cluster, Dialect::Enhancement, codec()).unwrap();
        let client = AgentClient::new(agent, Arc::new(self), options(None));
        let bus = Recorded::new(mqtt);
        let log = bus.log();
        (client.subscribe(&bus), log)
    }
}

impl AgentStore for Slow {
    type Resource = Thing;

    fn held(&self) -> Vec<Held> {
        self.store.held()
    }

    fn find(&self, uid: &str) -> Option<Held> {
        AgentStore::find(&*self.store, uid)
    }

    async fn get(&self, uid: &str) -> Result<Option<Arc<Thing>>, String> {
        AgentStore::get(&*self.store, uid).await
    }

    fn status_hash(&self, uid: &str) -> String {
        self.store.status_hash(uid)
    }

    async fn take(&self, thing: Thing) -> Result<Taken, String> {
        tokio::time::sleep(self.pause).await;
        let uid = thing.uid.clone();
        self.store.take(thing).await?;
        self.store
            .change(&uid, |thing| thing.status = outcome(thing));
        Ok(Taken::Tell)
    }
}
