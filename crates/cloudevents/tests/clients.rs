//! Sources and agents on a bus.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use muster_cloudevents::bus::{
    Bus, BusEvent, Connection, Loopback, Publish, PublishError, Publisher, Session,
};
use muster_cloudevents::client::{
    AgentClient, AgentStore, ClientOptions, ConnectionState, Held, SourceClient, Subscription,
    Taken,
};
use muster_cloudevents::resync::{ResourceVersion, ResourceVersions, StatusHashes};
use muster_cloudevents::{Action, Agent, Dialect, Outgoing, Source, ToAgent, ToSource, Topics};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

#[path = "support/flaky.rs"]
mod flaky;
#[path = "support/things.rs"]
mod things;

use flaky::Flaky;
use things::{Codec, Store, Thing, codec, is_done, outcome, store, thing, work};

/// The example of the crate does what it says, to its end.
#[path = "../examples/greetings.rs"]
#[allow(clippy::print_stdout, reason = "it is an example")]
mod greetings;

#[test]
fn the_example_comes_to_its_end() {
    greetings::main().unwrap();
}

const DEADLINE: Duration = Duration::from_secs(600);

fn options() -> ClientOptions {
    ClientOptions {
        resync_interval: Some(Duration::from_secs(10)),
        ..ClientOptions::default()
    }
}

fn source(id: &str, store: &Arc<Store>) -> SourceClient<Codec, Store> {
    let source = Source::new(id, Dialect::Enhancement, codec()).unwrap();
    SourceClient::new(source, Arc::clone(store), options())
}

fn agent_of<S: AgentStore<Resource = Thing>>(
    cluster: &str,
    store: &Arc<S>,
) -> AgentClient<Codec, S> {
    let agent = Agent::new(cluster, cluster, Dialect::Enhancement, codec()).unwrap();
    AgentClient::new(agent, Arc::clone(store), options())
}

/// An agent at work, until it is dropped.
struct Running {
    store: Arc<Store>,
    client: AgentClient<Codec, Store>,
    worker: tokio::task::JoinHandle<()>,
    _subscription: Subscription,
}

impl Running {
    fn new(bus: &dyn Bus, cluster: &str, store: &Arc<Store>) -> Self {
        let client = agent_of(cluster, store);
        Self {
            store: Arc::clone(store),
            worker: tokio::spawn(work(client.clone(), Arc::clone(store))),
            _subscription: client.subscribe(bus),
            client,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.worker.abort();
    }
}

/// Waits until this holds of a store.
async fn until(store: &Store, what: &str, holds: impl Fn(&Store) -> bool) {
    let mut changes = store.changes();
    let wait = async {
        while !holds(store) {
            changes.changed().await.unwrap();
        }
    };
    let done = tokio::time::timeout(DEADLINE, wait).await;
    assert!(done.is_ok(), "{what}: {:#?}", store.list());
}

const CLUSTERS: [&str; 3] = ["edge-a", "edge-b", "edge-c"];

/// Messages lost with their connections, repeated, late and in another order; words of the broker
/// lost; agents that start anew, with what they had and without: in the end each cluster has what is
/// wanted, and nothing else, and the source knows.
#[tokio::test(start_paused = true)]
async fn whatever_a_bus_does_nothing_is_lost_and_nothing_comes_back() {
    let mut harm = 0;
    for seed in 0..24 {
        harm += converge(seed).await;
    }
    assert!(harm > 1_000, "{harm}");
}

async fn converge(seed: u64) -> usize {
    let mut random = StdRng::seed_from_u64(seed);
    let bus = Flaky::new(Loopback::new(), seed);
    let wanted = store();
    let hub = source("hub", &wanted);
    let _subscription = hub.subscribe(&bus);
    let mut agents: BTreeMap<_, _> = CLUSTERS
        .into_iter()
        .map(|cluster| (cluster, Running::new(&bus, cluster, &store())))
        .collect();
    let mut deleted = Vec::new();
    for step in 0..150 {
        let uid = format!("thing-{}", random.random_range(0..30));
        match random.random_range(0..20) {
            0..6 if wanted.document(&uid).is_none() && !deleted.contains(&uid) => {
                let cluster = CLUSTERS.choose(&mut random).unwrap();
                wanted.put(thing(&uid, cluster));
                hub.created(&uid);
            }
            0..15 => {
                if wanted.set_spec(&uid, format!("{uid}, step {step}")) {
                    hub.changed(&uid);
                }
            }
            15..18 => {
                if wanted.delete(&uid) {
                    deleted.push(uid.clone());
                    hub.changed(&uid);
                }
            }
            kind => {
                let cluster = CLUSTERS.choose(&mut random).unwrap();
                let old = agents.remove(cluster).unwrap();
                let kept = Arc::clone(&old.store);
                drop(old);
                let kept = if kind == 18 { kept } else { store() };
                agents.insert(cluster, Running::new(&bus, cluster, &kept));
            }
        }
        tokio::time::sleep(Duration::from_millis(random.random_range(0..20))).await;
    }
    let harm = bus.calm();
    until(&wanted, &format!("seed {seed}"), is_done).await;
    // What is still on its way, and two rounds of requests, change nothing.
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_secs(25)).await;
        for uid in &deleted {
            assert!(wanted.document(uid).is_none(), "seed {seed}: {uid} is back");
        }
        for (cluster, agent) in &agents {
            let uids = |store: &Store| -> Vec<_> {
                let things = store.list().into_iter();
                let here = things.filter(|thing| thing.cluster == *cluster);
                here.map(|thing| thing.uid.clone()).collect()
            };
            assert_eq!(uids(&agent.store), uids(&wanted), "seed {seed}: {cluster}");
            assert_eq!(agent.client.waiting(), 0);
        }
        assert!(is_done(&wanted));
        assert_eq!(hub.waiting(), 0);
    }
    harm
}

/// A client by hand.
struct Wire {
    connection: Connection,
}

impl Wire {
    fn open(bus: &dyn Bus, filters: &[&str]) -> Self {
        let filters = filters.iter().map(|filter| (*filter).to_owned()).collect();
        let will = None;
        let connection = bus.open(Session { filters, will });
        Self { connection }
    }

    async fn say(&self, outgoing: Outgoing) {
        self.connection.publisher.publish(outgoing).await.unwrap();
    }

    async fn next(&mut self) -> (String, muster_cloudevents::Message) {
        loop {
            let event = tokio::time::timeout(DEADLINE, self.connection.events.recv()).await;
            if let BusEvent::Message(mut delivery) = event.unwrap().unwrap() {
                return (delivery.topic.clone(), delivery.take());
            }
        }
    }

    /// The next status that an agent tells.
    async fn status(&mut self, of: &Source<Codec>) -> Thing {
        loop {
            let (topic, message) = self.next().await;
            if let ToSource::Status { resource, .. } = of.receive(&topic, message).unwrap() {
                return *resource;
            }
        }
    }

    /// The next resource that an agent is sent.
    async fn asked(&mut self, of: &Agent<Codec>) {
        loop {
            let (topic, message) = self.next().await;
            if matches!(of.receive(&topic, message), Ok(ToAgent::Asked { .. })) {
                return;
            }
        }
    }

    async fn spec(&mut self, to: &Agent<Codec>) -> Thing {
        loop {
            let (topic, message) = self.next().await;
            if let ToAgent::Spec(thing) = to.receive(&topic, message).unwrap() {
                return *thing;
            }
        }
    }
}

fn hub(id: &str) -> Source<Codec> {
    Source::new(id, Dialect::Enhancement, codec()).unwrap()
}

fn edge(cluster: &str) -> Agent<Codec> {
    Agent::new(cluster, cluster, Dialect::Enhancement, codec()).unwrap()
}

fn version(thing: &Thing, version: i64) -> Thing {
    let thing = thing.clone();
    Thing { version, ..thing }
}

/// C103: what is to go does not come back by an update that is late; C123: what comes again changes
/// nothing; and an older version never takes the place of a newer.
#[tokio::test(start_paused = true)]
async fn an_agent_takes_what_is_news_only() {
    let (bus, kept, hub) = (Loopback::new(), store(), hub("hub"));
    let client = agent_of("edge-a", &kept);
    let mut wire = Wire::open(&bus, &["/sources/hub/clusters/+/status"]);
    let _subscription = client.subscribe(&bus);
    let first = thing("one", "edge-a");
    let send = |thing: &Thing| hub.send(Action::UpdateRequest, thing).unwrap();
    wire.say(send(&version(&first, 5))).await;
    until(&kept, "taken", |store| store.document("one").is_some()).await;
    let revision = *kept.changes().borrow();
    for _ in 0..5 {
        wire.say(send(&version(&first, 5))).await;
    }
    wire.say(send(&version(&first, 4))).await;
    wire.say(send(&thing("two", "edge-a"))).await;
    until(&kept, "taken", |store| store.document("two").is_some()).await;
    assert_eq!(*kept.changes().borrow(), revision + 1);
    assert_eq!(kept.document("one").unwrap().version, 5);
    let mut going = first.clone();
    going.deleting = Some(Timestamp::UNIX_EPOCH);
    wire.say(send(&going)).await;
    wire.say(send(&version(&first, 9))).await;
    wire.say(send(&thing("three", "edge-a"))).await;
    until(&kept, "taken", |store| store.document("three").is_some()).await;
    assert!(kept.document("one").unwrap().deleting.is_some());
    kept.set_gone("one");
    client.changed("one");
    assert!(wire.status(&hub).await.gone);
    until(&kept, "told", |store| store.document("one").is_none()).await;
}

/// C106: each request to delete is answered, also for what nobody knows any more.
#[tokio::test(start_paused = true)]
async fn each_deletion_is_answered() {
    let (bus, kept, hub) = (Loopback::new(), store(), hub("hub"));
    let client = agent_of("edge-a", &kept);
    let mut wire = Wire::open(&bus, &["/sources/hub/clusters/+/status"]);
    let _subscription = client.subscribe(&bus);
    let mut going = thing("one", "edge-a");
    going.deleting = Some(Timestamp::UNIX_EPOCH);
    for _ in 0..3 {
        let deletion = hub.send(Action::DeleteRequest, &going).unwrap();
        wire.say(deletion).await;
        let told = wire.status(&hub).await;
        assert_eq!((told.uid.as_str(), told.gone), ("one", true));
    }
    assert_eq!(kept.list(), []);
}

/// C112: sources with one agent have nothing to do with each other, whatever they are called.
#[tokio::test(start_paused = true)]
async fn sources_do_not_touch_what_is_of_others() {
    let bus = Loopback::new();
    let stores = [store(), store()];
    let hubs = [source("hub1", &stores[0]), source("hub10", &stores[1])];
    stores[0].put(thing("one", "edge-a"));
    stores[1].put(thing("two", "edge-a"));
    let _subscriptions: Vec<_> = hubs.iter().map(|hub| hub.subscribe(&bus)).collect();
    let edge = Running::new(&bus, "edge-a", &store());
    until(&stores[0], "first", is_done).await;
    until(&stores[1], "second", is_done).await;
    // The agent asks all sources again; each is asked for its own statuses only.
    edge.client.resync().await.unwrap();
    hubs[0].resync("edge-a").await.unwrap();
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(edge.store.list().len(), 2);
    assert!(is_done(&stores[0]) && is_done(&stores[1]));
    // A source that sends what is of another is not heeded.
    let mut stolen = thing("two", "edge-a");
    stolen.version = 7;
    hubs[0]
        .publish(Action::UpdateRequest, &stolen)
        .await
        .unwrap();
    stolen.deleting = Some(Timestamp::UNIX_EPOCH);
    hubs[0]
        .publish(Action::DeleteRequest, &stolen)
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let two = edge.store.document("two").unwrap();
    assert_eq!((two.version, two.source.as_deref()), (1, Some("hub10")));
    assert_eq!(two.deleting, None);
}

/// C101: of statuses in any order the newest stays, and nothing else is stored.
#[tokio::test(start_paused = true)]
async fn a_source_takes_what_is_news_only() {
    let (bus, wanted, edge) = (Loopback::new(), store(), edge("edge-a"));
    wanted.put(thing("one", "edge-a"));
    let client = source("hub", &wanted);
    let _subscription = client.subscribe(&bus);
    let mut wire = Wire::open(&bus, &["/sources/+/clusters/edge-a/spec"]);
    let ids: Vec<_> = (0..3).map(|_| edge.next_sequence_id()).collect();
    let send = |uid: &str, status: usize, id: &str| {
        let mut thing = thing(uid, "edge-a");
        thing.source = Some("hub".to_owned());
        thing.status = Some(status.to_string());
        edge.send(Action::UpdateRequest, id, &thing).unwrap()
    };
    let before = *wanted.changes().borrow();
    for at in [1, 2, 0, 2] {
        wire.say(send("one", at, &ids[at])).await;
    }
    // Nobody knows that: it is to go.
    wire.say(send("nobody's", 0, &ids[0])).await;
    let orphan = wire.spec(&edge).await;
    assert_eq!(
        (&*orphan.uid, orphan.deleting.is_some()),
        ("nobody's", true)
    );
    let one = wanted.document("one").unwrap();
    assert_eq!(one.status.as_deref(), Some("2"));
    assert_eq!(*wanted.changes().borrow(), before + 2);
    // Of another cluster, or of a spec that was never sent, it is none.
    let mut odd = send("one", 9, &edge.next_sequence_id());
    odd.topic = "/sources/hub/clusters/edge-b/status".to_owned();
    wire.say(odd).await;
    let mut later = thing("one", "edge-a");
    later.source = Some("hub".to_owned());
    later.version = 8;
    let id = edge.next_sequence_id();
    wire.say(edge.send(Action::UpdateRequest, &id, &later).unwrap())
        .await;
    wire.say(send("nobody's", 0, &ids[0])).await;
    wire.spec(&edge).await;
    assert_eq!(*wanted.changes().borrow(), before + 2);
}

/// Who has the same hears nothing; an empty list asks for all, each once; and what changes meanwhile
/// does not wait for it (C113, C115).
#[tokio::test(start_paused = true)]
async fn statuses_are_told_to_whom_they_are_news() {
    let (bus, kept, hub) = (Loopback::new(), store(), hub("hub"));
    for at in 0..2_000 {
        let mut thing = thing(&format!("thing-{at:04}"), "edge-a");
        thing.source = Some("hub".to_owned());
        thing.status = Some("3.0 ünï".to_owned());
        kept.put(thing);
    }
    let client = agent_of("edge-a", &kept);
    let mut wire = Wire::open(&bus, &["/sources/hub/clusters/+/status"]);
    let _subscription = client.subscribe(&bus);
    let hashes = {
        use muster_cloudevents::client::SourceStore;
        kept.status_hashes("edge-a")
    };
    kept.set_status("thing-0007", "changed".to_owned());
    for request in hub.ask("edge-a", hashes).unwrap() {
        wire.say(request).await;
    }
    let told = wire.status(&hub).await;
    assert_eq!(&*told.uid, "thing-0007");
    for request in hub.ask("", StatusHashes::default()).unwrap() {
        wire.say(request).await;
    }
    wire.say(
        hub.send(Action::CreateRequest, &thing("new", "edge-a"))
            .unwrap(),
    )
    .await;
    until(&kept, "taken", |store| store.document("new").is_some()).await;
    let mut told: Vec<String> = Vec::new();
    while told.len() < 2_000 {
        told.push(wire.status(&hub).await.uid);
    }
    told.sort();
    told.dedup();
    assert_eq!(told.len(), 2_000);
}

/// A store that cannot keep anything for a while.
struct Full {
    store: Arc<Store>,
    no_room: AtomicBool,
    refused: AtomicUsize,
}

impl AgentStore for Full {
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
        if self.no_room.load(Ordering::SeqCst) {
            self.refused.fetch_add(1, Ordering::SeqCst);
            return Err("no space left on device".to_owned());
        }
        self.store.take(thing).await
    }
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_kept_is_asked_for_again() {
    let (bus, wanted) = (Loopback::new(), store());
    wanted.put(thing("one", "edge-a"));
    let client = source("hub", &wanted);
    let _subscription = client.subscribe(&bus);
    let full = Arc::new(Full {
        store: store(),
        no_room: AtomicBool::new(true),
        refused: AtomicUsize::new(0),
    });
    let options = ClientOptions {
        resync_interval: None,
        ..ClientOptions::default()
    };
    let agent = AgentClient::new(edge("edge-a"), Arc::clone(&full), options);
    let _agent = agent.subscribe(&bus);
    tokio::time::sleep(Duration::from_secs(100)).await;
    let refused = full.refused.load(Ordering::SeqCst);
    assert!((5..20).contains(&refused), "with growing pauses: {refused}");
    full.no_room.store(false, Ordering::SeqCst);
    until(&full.store, "kept", |store| store.document("one").is_some()).await;
}

/// A bus whose broker does not take everything.
struct Picky {
    inner: Loopback,
    refusals: Arc<AtomicUsize>,
    /// Tries of what it refuses for good.
    tries: Arc<AtomicUsize>,
}

struct PickyPublisher {
    inner: Publisher,
    refusals: Arc<AtomicUsize>,
    tries: Arc<AtomicUsize>,
}

impl Publish for PickyPublisher {
    fn publish(&self, outgoing: Outgoing, retain: bool) -> BoxFuture<'_, Result<(), PublishError>> {
        async move {
            let topic = outgoing.topic.clone();
            let bytes = outgoing.message.payload.len();
            if bytes > 1_000 {
                self.tries.fetch_add(1, Ordering::SeqCst);
                return Err(PublishError::Refused {
                    topic,
                    reason: "PacketTooLarge".to_owned(),
                    for_good: true,
                });
            }
            let left = self
                .refusals
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                    left.checked_sub(1)
                });
            if left.is_ok() {
                let reason = "quota exceeded".to_owned();
                return Err(PublishError::Refused {
                    topic,
                    reason,
                    for_good: false,
                });
            }
            // Whoever is there says so, for others to keep.
            if retain {
                return self.inner.publish_retained(outgoing).await;
            }
            self.inner.publish(outgoing).await
        }
        .boxed()
    }
}

impl Bus for Picky {
    fn open(&self, session: Session) -> Connection {
        let Connection { publisher, events } = self.inner.open(session);
        let publisher = Publisher::new(PickyPublisher {
            inner: publisher,
            refusals: Arc::clone(&self.refusals),
            tries: Arc::clone(&self.tries),
        });
        Connection { publisher, events }
    }
}

/// What a broker refuses is sent again later; what it never will take stops nothing else.
#[tokio::test(start_paused = true)]
async fn what_a_broker_does_not_take_stops_nothing_else() {
    let bus = Picky {
        inner: Loopback::new(),
        refusals: Arc::new(AtomicUsize::new(5)),
        tries: Arc::default(),
    };
    let wanted = store();
    let mut large = thing("large", "edge-a");
    large.spec = Some("x".repeat(2_000));
    wanted.put(large);
    wanted.put(thing("small", "edge-a"));
    let client = source("hub", &wanted);
    let mut wire = Wire::open(&bus.inner, &["/sources/hub/clusters/+/spec"]);
    let _subscription = client.subscribe(&bus);
    client.created("large");
    client.created("small");
    assert_eq!(wire.spec(&edge("edge-a")).await.uid, "small");
    assert_eq!(bus.refusals.load(Ordering::SeqCst), 0);
    let mut state = client.state();
    let subscribed = |state: &ConnectionState| *state == ConnectionState::Subscribed;
    state.wait_for(subscribed).await.unwrap();
    let mut changes = client.state();
    assert_eq!(*changes.borrow_and_update(), ConnectionState::Subscribed);
    // It is not tried again for half an hour, also where an agent asks for it.
    let tries = || bus.tries.load(Ordering::SeqCst);
    assert_eq!(tries(), 1);
    let nothing = ResourceVersions::default();
    for _ in 0..29 {
        for request in edge("edge-a").ask(&nothing).unwrap() {
            wire.say(request).await;
        }
        assert_eq!(wire.spec(&edge("edge-a")).await.uid, "small");
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    assert_eq!(tries(), 1);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(tries(), 2);
    // One that is smaller can be sent.
    wanted.set_spec("large", "less".to_owned());
    client.changed("large");
    assert_eq!(wire.spec(&edge("edge-a")).await.version, 2);
    assert_eq!(tries(), 2);
}

/// An agent whose clock was set back, and one that numbers its statuses as another node: the source
/// asks for what it has, and takes the answer.
#[tokio::test(start_paused = true)]
async fn statuses_of_an_agent_that_counts_anew_are_asked_for_and_taken() {
    const FIRST: i64 = 2_126_424_645_732_143_104 + 100;
    let ten_minutes_back = FIRST - (600_000 << 22);
    let another_node = (FIRST & !(1023 << 12)) | (5 << 12);
    for back in [ten_minutes_back, another_node] {
        let (bus, wanted) = (Loopback::new(), store());
        wanted.put(thing("one", "edge-a"));
        let options = ClientOptions {
            resync_interval: None,
            ..ClientOptions::default()
        };
        let client = SourceClient::new(hub("hub"), Arc::clone(&wanted), options);
        let mut wire = Wire::open(&bus, &["/sources/+/clusters/statusresync"]);
        let _subscription = client.subscribe(&bus);
        let agent = edge("edge-a");
        wire.asked(&agent).await;
        let status = |action: Action, id: i64, text: &str| {
            let mut thing = thing("one", "edge-a");
            thing.source = Some("hub".to_owned());
            thing.status = Some(text.to_owned());
            agent.send(action, &id.to_string(), &thing).unwrap()
        };
        let is = |text: &'static str| {
            move |store: &Store| store.list()[0].status.as_deref() == Some(text)
        };
        wire.say(status(Action::UpdateRequest, FIRST, "first"))
            .await;
        until(&wanted, "first", is("first")).await;
        wire.say(status(Action::UpdateRequest, back, "second"))
            .await;
        wire.asked(&agent).await;
        assert!(is("first")(&wanted));
        // Not an answer of before.
        wire.say(status(Action::ResyncResponse, back - 1, "old"))
            .await;
        wire.say(status(Action::ResyncResponse, back + 1, "second"))
            .await;
        until(&wanted, "second", |store| !is("first")(store)).await;
        assert!(is("second")(&wanted), "{:?}", wanted.list());
        wire.say(status(Action::UpdateRequest, back + 2, "third"))
            .await;
        until(&wanted, "third", is("third")).await;
        // It was asked once for each time that it fell behind.
        wire.say(status(Action::UpdateRequest, back - 7, "late"))
            .await;
        wire.asked(&agent).await;
        for id in 0..5 {
            wire.say(status(Action::ResyncResponse, back - 10 - id, "later"))
                .await;
        }
        let more = tokio::time::timeout(Duration::from_secs(300), wire.asked(&agent)).await;
        assert!(more.is_err(), "asked again");
        assert!(is("third")(&wanted));
    }
}

/// A request that names no cluster gets no answer.
#[test]
fn events_without_a_cluster_are_nobodys() {
    let topics = Topics {
        source_events: "sources/hub/clusters/+/sourceevents".to_owned(),
        agent_events: "sources/hub/clusters/+/agentevents".to_owned(),
        source_broadcast: Some("sources/hub/sourcebroadcast".to_owned()),
        agent_broadcast: Some("clusters/+/agentbroadcast".to_owned()),
    };
    let dialect = Dialect::SdkGo(topics);
    let hub = Source::new("hub", dialect.clone(), codec()).unwrap();
    let agent = Agent::new("edge-a", "edge-a", dialect, codec()).unwrap();
    let spec = hub
        .send(Action::CreateRequest, &thing("one", "edge-a"))
        .unwrap();
    let asks = hub
        .ask("edge-a", StatusHashes::default())
        .unwrap()
        .remove(0);
    let asks_all = hub.ask("", StatusHashes::default()).unwrap().remove(0);
    for outgoing in [spec, asks, asks_all] {
        let topic = outgoing.topic.clone();
        assert!(agent.receive(&topic, outgoing.message.clone()).is_ok());
        let mut nobodys = outgoing.message.clone();
        nobodys
            .properties
            .retain(|(name, _)| name != "ce-clustername");
        let dropped = agent.receive(&topic, nobodys).unwrap_err();
        assert_eq!(dropped.reason(), "extension", "{topic}");
        let mut anothers = outgoing.message;
        for (name, value) in &mut anothers.properties {
            if name == "ce-clustername" {
                "edge-b".clone_into(value);
            }
        }
        let dropped = agent.receive(&topic, anothers).unwrap_err();
        assert_eq!(dropped.reason(), "elsewhere", "{topic}");
    }
}

/// A source knows which agents are there, also those that came before it, and those that died.
#[tokio::test(start_paused = true)]
async fn a_source_knows_who_is_there() {
    let (bus, wanted) = (Loopback::new(), store());
    let edge_a = Running::new(&bus, "edge-a", &store());
    let _edge_b = Running::new(&bus, "edge-b", &store());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let client = source("hub", &wanted);
    let _subscription = client.subscribe(&bus);
    let is = |cluster: &'static str, connected: bool| {
        move |store: &Store| store.is_connected(cluster) == Some(connected)
    };
    until(&wanted, "a is there", is("edge-a", true)).await;
    until(&wanted, "b is there", is("edge-b", true)).await;
    drop(edge_a);
    until(&wanted, "a is gone", is("edge-a", false)).await;
    assert_eq!(wanted.is_connected("edge-b"), Some(true));
    assert_eq!(wanted.is_connected("edge-c"), None);
}

/// An agent knows whether a source is there: by anything that it says, until it says that it goes.
#[tokio::test(start_paused = true)]
async fn an_agent_knows_whether_a_source_is_there() {
    let (bus, kept) = (Loopback::new(), store());
    let client = agent_of("edge-a", &kept);
    let mut heard = client.heard();
    let _agent = client.subscribe(&bus);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(*heard.borrow_and_update(), None, "nobody has said anything");
    let source = source("hub", &store());
    let subscription = source.subscribe(&bus);
    heard.wait_for(Option::is_some).await.unwrap();
    drop(subscription);
    heard.wait_for(Option::is_none).await.unwrap();
    let hub = hub("other");
    let wire = Wire::open(&bus, &[]);
    wire.say(
        hub.send(Action::CreateRequest, &thing("one", "edge-a"))
            .unwrap(),
    )
    .await;
    heard.wait_for(Option::is_some).await.unwrap();
}

/// What a source does not have any more goes from the cluster, also while nobody is subscribed.
#[tokio::test(start_paused = true)]
async fn what_is_to_be_forgotten_is_forgotten() {
    let (bus, wanted) = (Loopback::new(), store());
    let client = source("hub", &wanted);
    let one = ResourceVersion {
        id: "one".to_owned(),
        version: 3,
    };
    client.forget("edge-a", &one);
    wanted.put(thing("two", "edge-a"));
    // It is there after all.
    let two = ResourceVersion {
        id: "two".to_owned(),
        ..one.clone()
    };
    client.forget("edge-a", &two);
    assert_eq!(client.waiting(), 2);
    assert_eq!(*client.state().borrow(), ConnectionState::Connecting);
    let error = client.resync("edge-a").await.unwrap_err();
    assert_eq!(error.to_string(), "the cloudevents client is not ready");
    let mut wire = Wire::open(&bus, &["/sources/hub/clusters/+/spec"]);
    let _subscription = client.subscribe(&bus);
    let gone = wire.spec(&edge("edge-a")).await;
    assert_eq!((&*gone.uid, gone.version), ("one", 3));
    assert!(gone.deleting.is_some());
    let versions = vec![one, two];
    for asks in edge("edge-a").ask(&ResourceVersions { versions }).unwrap() {
        wire.say(asks).await;
    }
    assert_eq!(
        wire.spec(&edge("edge-a")).await.uid,
        "one",
        "and two is not news"
    );
}

/// A client that may subscribe and may not ask says so, until it may.
#[tokio::test(start_paused = true)]
async fn who_may_not_ask_says_so() {
    let bus = Picky {
        inner: Loopback::new(),
        refusals: Arc::new(AtomicUsize::new(4)),
        tries: Arc::default(),
    };
    let client = source("hub", &store());
    let _subscription = client.subscribe(&bus);
    let mut state = client.state();
    let refused = |state: &ConnectionState| matches!(state, ConnectionState::Refused { .. });
    let refused = format!("{:?}", *state.wait_for(refused).await.unwrap());
    assert!(refused.contains("quota exceeded"), "{refused}");
    let subscribed = |state: &ConnectionState| *state == ConnectionState::Subscribed;
    state.wait_for(subscribed).await.unwrap();
    assert_eq!(bus.refusals.load(Ordering::SeqCst), 0);
}

/// An agent with more resources than a message can name is understood all the same.
#[tokio::test(start_paused = true)]
async fn a_request_of_many_parts_is_one() {
    let (bus, wanted, kept) = (Loopback::new(), store(), store());
    for at in 0..7_000 {
        let uid = format!("{at:036}");
        let mut held = thing(&uid, "edge-a");
        held.source = Some("hub".to_owned());
        held.status = outcome(&held);
        kept.put(held.clone());
        if at != 77 {
            wanted.put(Thing {
                source: None,
                ..held
            });
        }
    }
    wanted.set_spec(&format!("{:036}", 5), "changed".to_owned());
    let client = source("hub", &wanted);
    let _subscription = client.subscribe(&bus);
    let mut wire = Wire::open(&bus, &["/sources/hub/clusters/+/spec"]);
    let agent = agent_of("edge-a", &kept);
    let _agent = agent.subscribe(&bus);
    let mut sent: Vec<(String, bool)> = Vec::new();
    for _ in 0..2 {
        let spec = wire.spec(&edge("edge-a")).await;
        sent.push((spec.uid, spec.deleting.is_some()));
    }
    sent.sort();
    let expected = [(format!("{:036}", 5), false), (format!("{:036}", 77), true)];
    assert_eq!(sent, expected);
    assert_eq!(client.waiting(), 0);
}

/// A source on a broker that has taken a work, told nobody of it, and died.
async fn told_nobody(
    lossy: &Lossy,
    wanted: &Arc<Store>,
) -> (SourceClient<Codec, Store>, Subscription) {
    let client = source("hub", wanted);
    let subscription = client.subscribe(lossy);
    wanted.put(thing("one", "edge-a"));
    client.created("one");
    while client.waiting() > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    lossy.die();
    let mut state = client.state();
    let lost = |state: &ConnectionState| matches!(state, ConnectionState::Lost { .. });
    state.wait_for(lost).await.unwrap();
    (client, subscription)
}

/// What a broker has taken shortly before it dies is said again: not all agents ask for it.
#[tokio::test(start_paused = true)]
async fn what_died_with_a_broker_is_said_again() {
    let (lossy, wanted) = (Lossy::default(), store());
    let _source = told_nobody(&lossy, &wanted).await;
    let mut wire = Wire::open(&lossy.inner, &["/sources/hub/clusters/+/spec"]);
    lossy.come_back();
    assert_eq!(wire.spec(&edge("edge-a")).await.uid, "one");
}

/// An agent that is back before its source has asked in vain; it asks again when the source does.
#[tokio::test(start_paused = true)]
async fn an_agent_that_is_back_first_asks_again() {
    let (lossy, wanted) = (Lossy::default(), store());
    let _source = told_nobody(&lossy, &wanted).await;
    let never = ClientOptions {
        resync_interval: None,
        ..ClientOptions::default()
    };
    let kept = store();
    let agent = AgentClient::new(edge("edge-a"), Arc::clone(&kept), never);
    let _agent = agent.subscribe(&lossy.inner);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(kept.list(), []);
    // Of this the source says nothing.
    wanted.put(thing("two", "edge-a"));
    lossy.come_back();
    until(&kept, "both", |store| store.list().len() == 2).await;
}

/// A bus that takes messages and loses them, until it has died and come back.
#[derive(Clone, Default)]
struct Lossy {
    inner: Loopback,
    state: Arc<tokio::sync::watch::Sender<u8>>,
}

impl Lossy {
    fn die(&self) {
        self.state.send_replace(1);
    }

    fn come_back(&self) {
        self.state.send_replace(2);
    }
}

struct LossyPublisher {
    inner: Publisher,
    state: tokio::sync::watch::Receiver<u8>,
}

impl Publish for LossyPublisher {
    fn publish(&self, outgoing: Outgoing, _: bool) -> BoxFuture<'_, Result<(), PublishError>> {
        async move {
            let state = *self.state.borrow();
            match state {
                0 => Ok(()),
                1 => Err(PublishError::NotConnected),
                _ => self.inner.publish(outgoing).await,
            }
        }
        .boxed()
    }
}

impl Bus for Lossy {
    fn open(&self, session: Session) -> Connection {
        let (sender, events) = tokio::sync::mpsc::channel(100);
        let Connection {
            publisher,
            events: mut inner,
        } = self.inner.open(session);
        let mut state = self.state.subscribe();
        let publisher = Publisher::new(LossyPublisher {
            inner: publisher,
            state: state.clone(),
        });
        tokio::spawn(async move {
            sender.send(BusEvent::Subscribed).await.unwrap();
            state.wait_for(|state| *state == 1).await.unwrap();
            let reason = "died".to_owned();
            let retry_in = Duration::from_secs(1);
            sender
                .send(BusEvent::Lost { reason, retry_in })
                .await
                .unwrap();
            state.wait_for(|state| *state == 2).await.unwrap();
            // What came meanwhile came to nobody.
            while inner.try_recv().is_ok() {}
            sender.send(BusEvent::Subscribed).await.unwrap();
            while let Some(event) = inner.recv().await {
                if matches!(event, BusEvent::Message(_)) && sender.send(event).await.is_err() {
                    return;
                }
            }
        });
        Connection { publisher, events }
    }
}

/// A bus that drops a part of what it has taken, as brokers do with what waits for a slow client.
#[derive(Clone, Default)]
struct Dropping {
    inner: Loopback,
    taken: Arc<[AtomicUsize; 2]>,
}

struct DroppingPublisher {
    inner: Publisher,
    taken: Arc<[AtomicUsize; 2]>,
}

impl Publish for DroppingPublisher {
    fn publish(&self, outgoing: Outgoing, _: bool) -> BoxFuture<'_, Result<(), PublishError>> {
        async move {
            // Only of the first many specs, and statuses: what is asked for is less than a queue
            // holds. And no request, for which nothing stands in line.
            let taken = match outgoing.topic.rsplit('/').next() {
                Some("spec") => &self.taken[0],
                Some("status") => &self.taken[1],
                _ => return self.inner.publish(outgoing).await,
            };
            let number = taken.fetch_add(1, Ordering::SeqCst);
            if number < 600 && number % 7 == 6 {
                return Ok(());
            }
            self.inner.publish(outgoing).await
        }
        .boxed()
    }
}

impl Bus for Dropping {
    fn open(&self, session: Session) -> Connection {
        let Connection { publisher, events } = self.inner.open(session);
        let publisher = Publisher::new(DroppingPublisher {
            inner: publisher,
            taken: Arc::clone(&self.taken),
        });
        Connection { publisher, events }
    }
}

/// No connection ends, and no periodic request comes.
#[tokio::test(start_paused = true)]
async fn what_a_full_queue_drops_is_asked_for_at_the_next_pause() {
    const THINGS: usize = 700;
    let bus = Dropping::default();
    let options = ClientOptions {
        resync_interval: None,
        ..ClientOptions::default()
    };
    let (wanted, kept) = (store(), store());
    let client = SourceClient::new(hub("hub"), Arc::clone(&wanted), options);
    let _source = client.subscribe(&bus);
    let agent = AgentClient::new(edge("edge-a"), Arc::clone(&kept), options);
    let _agent = agent.subscribe(&bus);
    tokio::time::sleep(Duration::from_secs(5)).await;
    for number in 0..THINGS {
        wanted.put(thing(&format!("thing-{number}"), "edge-a"));
        client.changed(&format!("thing-{number}"));
    }
    until(&kept, "all of them", |store| store.list().len() == THINGS).await;
    for number in 0..THINGS {
        kept.set_status(&format!("thing-{number}"), "there".to_owned());
        agent.changed(&format!("thing-{number}"));
    }
    let all_there = |store: &Store| {
        let there = |thing: &Arc<Thing>| thing.status.as_deref() == Some("there");
        store.list().iter().all(there)
    };
    until(&wanted, "all told", all_there).await;
}

/// Both sides have come back after their broker: whoever came first has asked nobody, and asks
/// again; and nobody asks for ever.
#[tokio::test(start_paused = true)]
async fn whoever_has_just_come_is_asked() {
    let bus = Loopback::new();
    let options = ClientOptions {
        resync_interval: None,
        ..ClientOptions::default()
    };
    let (wanted, kept) = (store(), store());
    wanted.put(thing("missed", "edge-a"));
    let agent = AgentClient::new(edge("edge-a"), Arc::clone(&kept), options);
    let first = agent.subscribe(&bus);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let client = SourceClient::new(hub("hub"), Arc::clone(&wanted), options);
    let subscription = client.subscribe(&bus);
    until(&kept, "taken", |store| store.document("missed").is_some()).await;
    drop(subscription);
    // The other way: the source is there first.
    kept.set_status("missed", "there".to_owned());
    let client = SourceClient::new(hub("hub"), Arc::clone(&wanted), options);
    drop(first);
    let _subscription = client.subscribe(&bus);
    let mut wire = Wire::open(
        &bus,
        &[
            "/sources/clusters/+/specresync",
            "/sources/+/clusters/statusresync",
        ],
    );
    tokio::time::sleep(Duration::from_secs(1)).await;
    let agent = AgentClient::new(edge("edge-a"), Arc::clone(&kept), options);
    let _agent = agent.subscribe(&bus);
    let is_there = |store: &Store| {
        let status = store.document("missed").unwrap().status.clone();
        status.as_deref() == Some("there")
    };
    until(&wanted, "told", is_there).await;
    let mut said = 0;
    while let Ok(next) = tokio::time::timeout(Duration::from_secs(60), wire.next()).await {
        drop(next);
        said += 1;
    }
    assert!((3..20).contains(&said), "{said}");
}
