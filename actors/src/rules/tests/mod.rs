//! Outlets and their queues, with a sink and a cluster that do as they are told.

mod cluster;
mod discovered;
mod discovery;
mod endings;
mod lives;
mod scale;
mod trouble;
mod types;
mod warnings;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix::Addr;
use futures::FutureExt;
use futures::future::BoxFuture;
use muster_core::rule_events::{Event, ObjectKey, Room, State};
use muster_core::watch_plan::Resource;
use muster_core::watch_rules::{Interest, Operation, Operations};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::event_queue::{EventQueue, Look};
use super::memory::Memory;
use super::outlet::{Doubt, Outlet, Shown};
use crate::sinks::{Sink, SinkError};
use crate::supervision::{Io, Registry, Snapshot, stop};
use crate::watch::{Area, Listed};

/// Takes what it is given, once there is a permit for the batch, or fails as it is told.
#[derive(Clone)]
struct Ear {
    heard: Arc<Mutex<Vec<Event>>>,
    permits: Arc<Semaphore>,
    failures: Arc<Mutex<VecDeque<SinkError>>>,
    /// How many events each batch had.
    batches: Arc<Mutex<Vec<usize>>>,
    window: Duration,
}

impl Ear {
    fn new() -> Self {
        Self {
            heard: Arc::default(),
            permits: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)),
            failures: Arc::default(),
            batches: Arc::default(),
            window: Duration::ZERO,
        }
    }

    /// With this error, so many times.
    fn fails(&self, error: &str, times: usize) {
        let errors = (0..times).map(|_| SinkError::new(error));
        self.failures.lock().unwrap().extend(errors);
    }

    /// Once, having lost all it had.
    fn loses_all(&self) {
        self.failures.lock().unwrap().push_back(SinkError {
            text: "nothing is left".to_owned(),
            lost: true,
        });
    }

    fn told(&self) -> Vec<String> {
        let heard = self.heard.lock().unwrap();
        let told = heard
            .iter()
            .map(|event| format!("{} {}", event.operation, event.key.name));
        told.collect()
    }
}

impl Sink for Ear {
    fn deliver<'a>(&'a mut self, events: &'a [Event]) -> BoxFuture<'a, Result<(), SinkError>> {
        async {
            self.permits.acquire().await.unwrap().forget();
            if let Some(error) = self.failures.lock().unwrap().pop_front() {
                return Err(error);
            }
            self.heard.lock().unwrap().extend(events.iter().cloned());
            self.batches.lock().unwrap().push(events.len());
            Ok(())
        }
        .boxed()
    }

    fn window(&self) -> Duration {
        self.window
    }
}

#[derive(Default)]
struct Cluster {
    /// Name and content.
    objects: Mutex<Vec<(&'static str, u8)>>,
    /// An area that it does not list.
    refused: Mutex<Option<Area>>,
    /// Lists that were asked for.
    lists: Mutex<Vec<Area>>,
}

impl Cluster {
    fn has(&self, objects: &[(&'static str, u8)]) {
        *self.objects.lock().unwrap() = objects.to_vec();
    }
}

impl Look for Cluster {
    fn settle<'a>(&'a self, outlet: &'a Outlet, doubt: &'a Doubt) -> BoxFuture<'a, ()> {
        async move {
            let there = self.objects.lock().unwrap().clone();
            match there.into_iter().find(|(name, _)| *name == &*doubt.name) {
                Some((name, content)) => show(outlet, name, 100, content),
                None => outlet.absent(doubt, &"ConfigMap".into(), &interest()),
            }
        }
        .boxed()
    }

    fn list<'a>(&'a self, outlet: &'a Outlet, area: &'a Area) -> BoxFuture<'a, bool> {
        async move {
            self.lists.lock().unwrap().push(area.clone());
            if self.refused.lock().unwrap().as_ref() == Some(area) {
                return false;
            }
            outlet.listing(area, 1_000);
            let mut listed = Listed::default();
            let there = self.objects.lock().unwrap().clone();
            for (name, content) in there {
                while !outlet.has_ease() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                show(outlet, name, 100, content);
                listed.add("ns", name);
            }
            outlet.listed(area, 1_000, &listed, &"ConfigMap".into(), &interest());
            true
        }
        .boxed()
    }
}

fn area() -> Area {
    Area {
        resource: Resource::new("", "v1", "configmaps"),
        namespace: Some("ns".into()),
    }
}

fn key(name: &str) -> ObjectKey {
    ObjectKey {
        resource: area().resource,
        namespace: "ns".into(),
        name: name.into(),
    }
}

fn interest() -> Interest {
    interest_of("ns/rule", Operations::ALL)
}

fn interest_of(rule: &str, operations: Operations) -> Interest {
    Interest::new([(&rule.into(), operations)])
}

fn show(outlet: &Outlet, name: &str, version: u64, content: u8) {
    show_to(outlet, name, version, content, &interest());
}

fn show_to(outlet: &Outlet, name: &str, version: u64, content: u8, interest: &Interest) {
    let shown = Shown {
        key: key(name),
        kind: "ConfigMap".into(),
        state: State {
            uid: "u".into(),
            version,
            hash: [content; 32],
            on_delete: Arc::clone(interest.of(Operation::Delete)),
        },
        object: format!("{{\"data\":{content}}}").into(),
    };
    outlet.wanted(&area(), 1, shown, interest);
}

struct World {
    outlet: Arc<Outlet>,
    ear: Ear,
    cluster: Arc<Cluster>,
    queue: Addr<EventQueue>,
    registry: Registry,
}

impl World {
    fn start(room: Room, ear: Ear) -> Self {
        Self::start_with(room, ear, None)
    }

    fn start_with(room: Room, ear: Ear, memory: Option<Arc<Memory>>) -> Self {
        tokio::time::pause();
        let outlet = Outlet::new("c1", "log", room, Arc::default());
        if let Some(memory) = &memory {
            outlet.remember(memory.load().unwrap());
        }
        outlet.join(&area());
        let (registry, cluster) = (Registry::new(), Arc::new(Cluster::default()));
        let queue = EventQueue::new(
            Arc::clone(&outlet),
            Arc::clone(&cluster) as _,
            Io::current(),
            memory,
            Box::new(ear.clone()),
        );
        Self {
            queue: registry.start("EventQueue", "log", queue),
            outlet,
            ear,
            cluster,
            registry,
        }
    }

    async fn hears(&self, wanted: &[&str]) {
        eventually(|| self.ear.told(), |told| *told == wanted).await;
    }

    async fn state(&self) -> Value {
        self.queue.send(Snapshot).await.unwrap()
    }

    async fn end(self) {
        assert!(stop(&self.queue, Duration::from_secs(10)).await);
        assert_eq!(self.registry.ended(Duration::from_secs(1)).await, Ok(()));
        tokio::time::resume();
    }
}

async fn eventually<T: std::fmt::Debug>(ask: impl Fn() -> T, wanted: impl Fn(&T) -> bool) -> T {
    let deadline = Instant::now() + Duration::from_secs(300);
    loop {
        let answer = ask();
        if wanted(&answer) {
            return answer;
        }
        assert!(Instant::now() < deadline, "last seen: {answer:#?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[actix::test]
async fn a_sink_hears_what_it_does_not_have_in_order() {
    let world = World::start(Room::default(), Ear::new());
    show(&world.outlet, "a", 1, 1);
    show(&world.outlet, "b", 2, 1);
    show(&world.outlet, "a", 3, 1);
    show(&world.outlet, "a", 4, 2);
    world
        .outlet
        .unwanted(&area(), key("b"), &"ConfigMap".into(), 5, &interest());
    let told = ["CREATE a", "CREATE b", "UPDATE a", "DELETE b"];
    world.hears(&told).await;
    assert_eq!(world.outlet.count_of("ns/rule").0, 4);
    assert_eq!(world.outlet.count_of("ns/other"), (0, None));
    let state = world.state().await;
    assert_eq!(
        (&state["delivered"], &state["objects"]),
        (&4.into(), &1.into())
    );
    world.end().await;
}

/// S75: an operation that no rule wants is kept in mind and not told.
#[actix::test]
async fn operations_that_no_rule_wants_are_not_told() {
    let world = World::start(Room::default(), Ear::new());
    let mut operations = Operations::NONE;
    operations.insert(Operation::Delete);
    let only_deletions = interest_of("ns/rule", operations);
    show_to(&world.outlet, "a", 1, 1, &only_deletions);
    show_to(&world.outlet, "a", 2, 2, &only_deletions);
    world
        .outlet
        .unwanted(&area(), key("a"), &"ConfigMap".into(), 3, &only_deletions);
    world.hears(&["DELETE a"]).await;
    world.end().await;
}

/// Of an end hear the rules that had the object, and no rule that never did; and not one that has gone
/// meanwhile, by which the sink keeps what it has.
#[actix::test]
async fn who_has_had_an_object_hears_of_its_end() {
    let world = World::start(Room::default(), Ear::new());
    let mut changes = Operations::NONE;
    for operation in [Operation::Create, Operation::Update] {
        changes.insert(operation);
    }
    let [one, two, rule]: [Arc<str>; 3] = ["ns/one", "ns/two", "ns/rule"].map(Into::into);
    let all = Interest::new([
        (&one, changes),
        (&two, Operations::ALL),
        (&rule, Operations::ALL),
    ]);
    let of = |rule: &Arc<str>, operations| Interest::new([(rule, operations)]);
    let of_gone_rule = interest_of("ns/gone", Operations::ALL);
    show_to(&world.outlet, "a", 1, 1, &of(&one, changes));
    show_to(&world.outlet, "b", 2, 1, &of(&two, Operations::ALL));
    show_to(&world.outlet, "c", 3, 1, &of_gone_rule);
    for name in ["a", "b", "c"] {
        let kind = "ConfigMap".into();
        world.outlet.unwanted(&area(), key(name), &kind, 9, &all);
    }
    world
        .hears(&["CREATE a", "CREATE b", "CREATE c", "DELETE b"])
        .await;
    let rules = world.ear.heard.lock().unwrap()[3].rules.clone();
    assert_eq!(*rules, [two]);
    assert_eq!(world.outlet.sizes(), (0, 0));
    assert_eq!(world.outlet.count_of("ns/one").0, 1);
    world.end().await;
}

#[actix::test]
async fn a_sink_that_fails_is_given_the_same_again_and_says_why() {
    let ear = Ear::new();
    ear.fails("disk full", 2);
    let world = World::start(Room::default(), ear);
    show(&world.outlet, "a", 1, 1);
    let failing = || world.state();
    let state = loop {
        let state = failing().await;
        if !state["failing"].is_null() {
            break state;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert_eq!(state["failing"][0], "disk full");
    assert_eq!(state["waiting"], 1);
    show(&world.outlet, "b", 2, 1);
    world.hears(&["CREATE a", "CREATE b"]).await;
    assert!(world.state().await["failing"].is_null());
    world.end().await;
}

/// What fails now and then is not left alone for longer and longer: it has worked meanwhile.
#[actix::test]
async fn a_sink_that_works_again_has_its_failures_forgotten() {
    let world = World::start(Room::default(), Ear::new());
    for n in 1..=5 {
        world.ear.fails("disk full", 1);
        let before = Instant::now();
        show(&world.outlet, "a", n, u8::try_from(n).unwrap());
        eventually(|| world.ear.told().len(), |told| *told as u64 == n).await;
        let took = before.elapsed().as_secs_f64();
        assert!((0.3..0.6).contains(&took), "{took} at failure {n}");
    }
    world.end().await;
}

/// S147: a sink with a window is given together what comes within it; what is full does not wait, nor
/// does what is left at the end, nor what has waited before.
#[actix::test]
async fn a_batch_waits_for_others_where_batches_are_dear() {
    let mut ear = Ear::new();
    ear.window = Duration::from_secs(5);
    let world = World::start(Room::default(), ear);
    let batches = || std::mem::take(&mut *world.ear.batches.lock().unwrap());
    let before = Instant::now();
    for name in ["a", "b", "c", "d"] {
        show(&world.outlet, name, 1, 1);
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    world
        .hears(&["CREATE a", "CREATE b", "CREATE c", "CREATE d"])
        .await;
    let took = before.elapsed().as_secs_f64();
    assert!((5.0..5.2).contains(&took), "{took}");
    assert_eq!(batches(), [4]);

    let before = Instant::now();
    for n in 0..450 {
        show(&world.outlet, &format!("n{n}"), 2, 1);
    }
    eventually(|| world.ear.told().len(), |told| *told == 404).await;
    assert!(before.elapsed() < Duration::from_secs(1));
    eventually(|| world.ear.told().len(), |told| *told == 454).await;
    assert_eq!(batches(), [200, 200, 50]);

    world.ear.fails("disk full", 1);
    show(&world.outlet, "a", 3, 2);
    let before = Instant::now();
    eventually(|| world.ear.told().len(), |told| *told == 455).await;
    let took = before.elapsed().as_secs_f64();
    assert!((5.0..7.0).contains(&took), "{took}");
    show(&world.outlet, "a", 4, 3);
    tokio::time::sleep(Duration::from_millis(10)).await;
    let (ear, before) = (world.ear.clone(), Instant::now());
    world.end().await;
    assert_eq!(ear.told().len(), 456);
    assert!(before.elapsed() < Duration::from_secs(1));
}

/// S90: what finds no room is looked for once there is some; nothing is lost, and nothing told twice.
#[actix::test]
async fn what_finds_no_room_is_found_later() {
    let ear = Ear::new();
    let all = ear.permits.forget_permits(Semaphore::MAX_PERMITS);
    let room = Room {
        events: 4,
        bytes: 1_000,
    };
    let world = World::start(room, ear);
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    for (version, name) in (1..).zip(names) {
        show(&world.outlet, name, version, 1);
        world.cluster.objects.lock().unwrap().push((name, 1));
    }
    assert_eq!(world.outlet.sizes(), (4, 1));
    // The newest state is what counts.
    world.cluster.objects.lock().unwrap()[7].1 = 2;
    world.ear.permits.add_permits(all);
    let told = eventually(|| world.ear.told(), |told| told.len() == 8).await;
    assert!(
        told.iter().all(|told| told.starts_with("CREATE")),
        "{told:?}"
    );
    let last = world.ear.heard.lock().unwrap()[7].object.clone();
    assert_eq!(last.as_deref(), Some(r#"{"data":2}"#));
    eventually(|| world.outlet.sizes(), |sizes| *sizes == (8, 0)).await;
    world.end().await;
}

/// K11: one that cannot be listed has its turn again, and keeps none from theirs.
#[actix::test]
async fn an_area_that_cannot_be_listed_holds_up_no_other() {
    let world = World::start(Room::default(), Ear::new());
    let first = Area {
        resource: Resource::new("", "v1", "bindings"),
        namespace: None,
    };
    world.outlet.join(&first);
    *world.cluster.refused.lock().unwrap() = Some(first.clone());
    world.cluster.has(&[("a", 1)]);
    world.outlet.is_behind(&first);
    world.outlet.is_behind(&area());
    world.hears(&["CREATE a"]).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let listed = || {
        let mut lists = world.cluster.lists.lock().unwrap();
        std::mem::take(&mut *lists)
    };
    let times = listed().iter().filter(|area| **area == first).count();
    assert!((3..=5).contains(&times), "{times} times in a minute");
    world.cluster.refused.lock().unwrap().take();
    eventually(listed, |lists| *lists == [first.clone()]).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(listed().is_empty(), "it is not behind any more");
    world.end().await;
}

#[actix::test]
async fn what_is_in_doubt_is_read() {
    let world = World::start(Room::default(), Ear::new());
    world.outlet.listing(&area(), 7);
    show(&world.outlet, "there", 9, 1);
    show(&world.outlet, "gone", 10, 1);
    world.cluster.objects.lock().unwrap().push(("there", 2));
    world.outlet.listed(
        &area(),
        7,
        &Listed::default(),
        &"ConfigMap".into(),
        &interest(),
    );
    world
        .hears(&["CREATE there", "CREATE gone", "DELETE gone", "UPDATE there"])
        .await;
    world.end().await;
}

#[actix::test]
async fn an_area_that_nobody_wants_any_more_is_forgotten_and_what_the_sink_has_stays() {
    let world = World::start(Room::default(), Ear::new());
    show(&world.outlet, "a", 1, 1);
    world.hears(&["CREATE a"]).await;
    world.outlet.leave(&area());
    show(&world.outlet, "b", 2, 1);
    assert_eq!(world.outlet.sizes(), (0, 0));
    // A rule that comes back is a new one: what is there is told again.
    world.outlet.join(&area());
    show(&world.outlet, "a", 1, 1);
    world.hears(&["CREATE a", "CREATE a"]).await;
    world.end().await;
}

/// K13.
#[actix::test]
async fn what_waits_is_delivered_before_the_end() {
    let world = World::start(Room::default(), Ear::new());
    for n in 0..1_000 {
        show(&world.outlet, &format!("n{n}"), n + 1, 1);
    }
    let ear = world.ear.clone();
    world.end().await;
    assert_eq!(ear.told().len(), 1_000);
}

#[actix::test]
async fn a_sink_that_is_stuck_holds_up_the_end_only_for_a_while() {
    let ear = Ear::new();
    ear.permits.forget_permits(Semaphore::MAX_PERMITS);
    let world = World::start(Room::default(), ear);
    show(&world.outlet, "a", 1, 1);
    tokio::time::sleep(Duration::from_millis(50)).await;
    let outlet = Arc::clone(&world.outlet);
    world.end().await;
    assert_eq!(outlet.waiting(), 1);
}
