//! What is kept of a sink from one life of the agent to the next.

use super::*;

/// One life after another, with what is kept between them.
struct Lives {
    folder: tempfile::TempDir,
    ear: Ear,
}

impl Lives {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            ear: Ear::new(),
        }
    }

    fn memory(&self) -> Arc<Memory> {
        Arc::new(Memory::open(&self.folder.path().join("sink.redb")).unwrap())
    }

    /// A new life, in which the sink has heard nothing yet.
    fn next(&self) -> World {
        self.ear.heard.lock().unwrap().clear();
        World::start_with(Room::default(), self.ear.clone(), Some(self.memory()))
    }

    /// Names that are remembered, and the rules that want to hear of their ends.
    fn remembered(&self) -> Vec<String> {
        let had = self.memory().load().unwrap();
        let mut names: Vec<String> = had
            .iter()
            .map(|(key, state)| format!("{} {}", key.name, state.on_delete.join(",")))
            .collect();
        names.sort();
        names
    }
}

/// What the sink has been told is compared with what is there in the next life; what no rule wants any
/// more is told anew, should one want it again.
#[actix::test]
async fn what_a_sink_was_told_is_remembered() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sink.redb");
    let ear = Ear::new();
    let memory = || Some(Arc::new(Memory::open(&path).unwrap()));
    let world = World::start_with(Room::default(), ear.clone(), memory());
    for (version, name) in (1..).zip(["same", "changed", "gone"]) {
        show(&world.outlet, name, version, 1);
    }
    world
        .hears(&["CREATE same", "CREATE changed", "CREATE gone"])
        .await;
    world.end().await;
    ear.heard.lock().unwrap().clear();

    let world = World::start_with(Room::default(), ear.clone(), memory());
    world.outlet.listing(&area(), 1);
    show(&world.outlet, "same", 1, 1);
    show(&world.outlet, "changed", 7, 2);
    let mut listed = Listed::default();
    for name in ["same", "changed"] {
        listed.add("ns", name);
    }
    world
        .outlet
        .listed(&area(), 1, &listed, &"ConfigMap".into(), &interest());
    world.hears(&["UPDATE changed", "DELETE gone"]).await;
    world.outlet.leave(&area());
    world.end().await;
    ear.heard.lock().unwrap().clear();

    // What an area that was left had is new to it again.
    let world = World::start_with(Room::default(), ear.clone(), memory());
    show(&world.outlet, "same", 1, 1);
    world.hears(&["CREATE same"]).await;
    world.end().await;
    ear.heard.lock().unwrap().clear();

    // A rule that went while the agent was away hears of no end, and the sink keeps what it had by
    // it; nor is that an end in a later life.
    let other = interest_of("ns/other", Operations::ALL);
    for _ in 0..2 {
        let world = World::start_with(Room::default(), ear.clone(), memory());
        world.outlet.listing(&area(), 1);
        show_to(&world.outlet, "others", 1, 1, &other);
        let mut listed = Listed::default();
        listed.add("ns", "others");
        let kind = "ConfigMap".into();
        world.outlet.listed(&area(), 1, &listed, &kind, &other);
        world.end().await;
    }
    assert_eq!(ear.told(), ["CREATE others"]);
}

/// At least once: what else becomes known of an object while it waits does not make it told.
#[actix::test]
async fn what_waits_is_not_remembered_as_told() {
    let lives = Lives::new();
    let (one, two): (Arc<str>, Arc<str>) = ("ns/one".into(), "ns/two".into());
    let both = Interest::new([(&one, Operations::ALL), (&two, Operations::ALL)]);
    lives.ear.fails("disk full", 1_000);
    let world = lives.next();
    show(&world.outlet, "a", 1, 1);
    eventually(|| world.outlet.failing(), Option::is_some).await;
    show_to(&world.outlet, "a", 1, 1, &both);
    tokio::time::sleep(Duration::from_secs(100)).await;
    world.end().await;
    assert!(lives.remembered().is_empty() && lives.ear.told().is_empty());

    lives.ear.failures.lock().unwrap().clear();
    let all = lives.ear.permits.forget_permits(Semaphore::MAX_PERMITS);
    let world = lives.next();
    show(&world.outlet, "a", 1, 1);
    tokio::time::sleep(Duration::from_millis(100)).await;
    // It is being told, and its end is to be told to others now.
    show_to(&world.outlet, "a", 1, 1, &both);
    lives.ear.permits.add_permits(all);
    world.hears(&["CREATE a"]).await;
    world.end().await;
    assert_eq!(lives.remembered(), ["a ns/one,ns/two"]);
}

/// S128: a sink that has lost all is told what is there, and nothing else: neither what waited nor
/// what is remembered is true of it any more.
#[actix::test]
async fn a_sink_that_has_lost_all_is_told_everything_anew() {
    let lives = Lives::new();
    let world = lives.next();
    world.cluster.has(&[("a", 2), ("b", 1)]);
    show(&world.outlet, "a", 1, 1);
    show(&world.outlet, "b", 2, 1);
    world.hears(&["CREATE a", "CREATE b"]).await;
    lives.ear.loses_all();
    show(&world.outlet, "a", 3, 2);
    let told = ["CREATE a", "CREATE b", "CREATE a", "CREATE b"];
    world.hears(&told).await;
    world.end().await;
    assert_eq!(lives.remembered(), ["a ns/rule", "b ns/rule"]);

    // What has gone by the time that it is looked at is not told at all.
    let world = lives.next();
    world.cluster.has(&[("b", 1)]);
    lives.ear.loses_all();
    show(&world.outlet, "a", 200, 3);
    world.hears(&["CREATE b"]).await;
    world.end().await;
    assert_eq!(lives.remembered(), ["b ns/rule"]);

    // Nor is it told less because the agent ended meanwhile.
    let world = lives.next();
    world.cluster.has(&[("b", 4)]);
    lives.ear.loses_all();
    lives.ear.fails("disk full", 1_000);
    show(&world.outlet, "b", 300, 4);
    eventually(
        || world.outlet.failing(),
        |failing| failing.as_deref() == Some("disk full"),
    )
    .await;
    world.end().await;
    assert!(lives.ear.told().is_empty());
    lives.ear.failures.lock().unwrap().clear();
    let world = lives.next();
    show(&world.outlet, "b", 300, 4);
    world.hears(&["CREATE b"]).await;
    world.end().await;
}
