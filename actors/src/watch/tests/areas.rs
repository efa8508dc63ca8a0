//! Listening to areas.

use super::*;

/// Keeps what is there, and compares with each list as a rule does.
#[derive(Debug, Default)]
struct Hall {
    state: Mutex<Known>,
}

#[derive(Debug, Default, Clone)]
struct Known {
    /// Versions by namespace and name.
    objects: BTreeMap<String, u64>,
    /// Newest versions of what is gone, which a late state must not bring back.
    gone: BTreeMap<String, u64>,
    lists: usize,
    coverage_changes: usize,
}

fn key(object: &WatchedObject) -> String {
    format!("{}/{}", object.namespace(), object.name())
}

impl AreaListener for Hall {
    fn listing(&self, _: u64) {}

    fn seen(&self, _: u64, object: &Arc<WatchedObject>) {
        let mut known = self.state.lock().unwrap();
        let (key, version) = (key(object), object.version());
        let last = known.gone.get(&key).max(known.objects.get(&key));
        if last.is_none_or(|last| *last < version) {
            known.objects.insert(key, version);
        }
    }

    fn gone(&self, last: &Arc<WatchedObject>) {
        let mut known = self.state.lock().unwrap();
        known.objects.remove(&key(last));
        known.gone.insert(key(last), last.version());
    }

    fn listed(&self, _: u64, listed: &Listed) {
        let mut known = self.state.lock().unwrap();
        known.lists += 1;
        known.objects.retain(|key, _| {
            let (namespace, name) = key.split_once('/').unwrap();
            listed.holds(namespace, name)
        });
    }

    fn coverage_changed(&self) {
        self.state.lock().unwrap().coverage_changes += 1;
    }
}

struct Room {
    hall: Arc<Hall>,
    subscription: AreaSubscription,
}

impl World {
    fn area(&self, namespace: Option<&str>) -> Room {
        let hall = Arc::new(Hall::default());
        let area = Area {
            resource: Resource::new("", "v1", "configmaps"),
            namespace: namespace.map(Into::into),
        };
        let subscription = self.watches.listen(area, Arc::clone(&hall) as _);
        Room { hall, subscription }
    }
}

impl Room {
    fn known(&self) -> Known {
        self.hall.state.lock().unwrap().clone()
    }

    /// Waits until just these objects are known.
    async fn holds(&self, wanted: &[&str]) {
        let known = || self.known().objects.into_keys().collect::<Vec<_>>();
        eventually(known, |known| *known == wanted).await;
    }

    async fn watched(&self) {
        let coverage = || self.subscription.coverage();
        eventually(coverage, |coverage| *coverage == Coverage::Watched).await;
    }
}

/// C129: no object of another namespace, and no request beyond the own one.
#[actix::test]
async fn an_area_shows_what_is_there_what_comes_and_what_goes_and_nothing_else() {
    let world = World::start(5).await;
    world.write("a", "old", "1").await;
    world.write("b", "old", "1").await;
    let room = world.area(Some("a"));
    world.open(&[MAPS_OF_A]).await;
    room.watched().await;
    room.holds(&["a/old"]).await;
    world.write("a", "new", "1").await;
    world.write("b", "new", "1").await;
    room.holds(&["a/new", "a/old"]).await;
    world.delete("a", "old").await;
    room.holds(&["a/new"]).await;
    assert_eq!(room.known().lists, 1);
    drop(room);
    world.open(&[]).await;
    world.end().await;
}

/// Whoever joins a watch that is open is owed a list; who was there already loses nothing.
#[actix::test]
async fn an_area_joins_a_watch_that_is_open() {
    let world = World::start(1).await;
    world.write("a", "x", "1").await;
    world.write("a", "y", "1").await;
    let (x, y) = (world.config_map("a", "x"), world.config_map("a", "y"));
    world.open(&[MAPS_OF_A]).await;
    x.watched().await;
    let room = world.area(Some("a"));
    room.holds(&["a/x", "a/y"]).await;
    world.write("a", "x", "2").await;
    x.hears(Some("2")).await;
    y.hears(Some("1")).await;
    world.open(&[MAPS_OF_A]).await;
    // It stays when only the area is left, which one object's watch could not serve.
    drop((x, y));
    world.write("a", "z", "1").await;
    room.holds(&["a/x", "a/y", "a/z"]).await;
    assert_eq!(world.gate.most(), 1);
    world.end().await;
}

#[actix::test]
async fn areas_within_each_other_share_one_watch() {
    let world = World::start(5).await;
    world.write("a", "x", "1").await;
    world.write("b", "x", "1").await;
    let (all, one) = (world.area(None), world.area(Some("a")));
    let x = world.config_map("b", "x");
    world.open(&[MAPS]).await;
    all.holds(&["a/x", "b/x"]).await;
    one.holds(&["a/x"]).await;
    x.hears(Some("1")).await;
    world.delete("a", "x").await;
    all.holds(&["b/x"]).await;
    one.holds(&[]).await;
    drop(all);
    world
        .open(&[
            MAPS_OF_A,
            &of_object("/api/v1/namespaces/b/configmaps", "x"),
        ])
        .await;
    world.write("a", "y", "1").await;
    one.holds(&["a/y"]).await;
    world.end().await;
}

/// With room for both, the new watch lists before the old one is closed.
#[actix::test]
async fn a_restart_of_areas_loses_nothing_and_leaves_the_others_alone() {
    let world = World::start(5).await;
    world.write("a", "x", "1").await;
    let room = world.area(Some("a"));
    let other = world.config_map("b", "x");
    other.watched().await;
    room.holds(&["a/x"]).await;
    let opened = world.gate.opened();
    for round in 0..20 {
        let name = format!("n{round:02}");
        world.supervisor.send(RestartAreas).await.unwrap();
        world.write("a", &name, "1").await;
        let has = |known: &Known| known.objects.contains_key(&format!("a/{name}"));
        eventually(|| room.known(), has).await;
        world.delete("a", &name).await;
        eventually(|| room.known(), |known| !has(known)).await;
        eventually(|| room.known().lists, |lists| *lists == round + 2).await;
    }
    world
        .open(&[
            MAPS_OF_A,
            &of_object("/api/v1/namespaces/b/configmaps", "x"),
        ])
        .await;
    assert_eq!(world.gate.opened(), opened + 20);
    room.holds(&["a/x"]).await;
    world.end().await;
}

#[actix::test]
async fn an_area_tells_why_nothing_watches_it() {
    let world = World::start(1).await;
    // Of another type, so that no watch could serve both.
    let x = world.listen(&Resource::new("", "v1", "secrets"), "b", "x");
    x.watched().await;
    let room = world.area(Some("a"));
    let coverage = || room.subscription.coverage();
    eventually(coverage, |coverage| {
        *coverage == Coverage::Polled(Unwatched::Full(1))
    })
    .await;
    assert!(room.known().coverage_changes > 0);
    world.gate.refuse(MAPS_OF_A, 403);
    drop(x);
    let why = eventually(coverage, |coverage| {
        matches!(
            coverage,
            Coverage::Polled(Unwatched::Refused(Denial::Forbidden, _))
        )
    })
    .await;
    assert!(format!("{why:?}").contains("no watch of"), "{why:?}");
    world.gate.allow();
    room.watched().await;
    world.write("a", "x", "1").await;
    room.holds(&["a/x"]).await;
    world.end().await;
}
