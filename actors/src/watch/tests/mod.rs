//! The supervisor against an embedded cluster, on a paused clock. Open watches are counted where
//! the requests pass, so the cap is not the supervisor's own word.

mod areas;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use actix::Addr;
use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, BodyStream, Full, StreamBody};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use muster_apiserver::{ApiServer, Storage};
use muster_core::watch_plan::{Resource, WatchLimits};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use super::*;
use crate::supervision::{Health, Io, Registry, Snapshot, stop};

const EVENTUALLY: Duration = Duration::from_secs(60);

type Answer = UnsyncBoxBody<Bytes, tower::BoxError>;

fn boxed(body: Body) -> Answer {
    body.map_err(Into::into).boxed_unsync()
}

/// The middle of the connection: counts open watches, and refuses what it is told to.
#[derive(Clone, Default)]
pub(crate) struct Gate {
    state: Arc<Mutex<GateState>>,
    trouble: Arc<watch::Sender<Trouble>>,
}

/// What becomes of the watches that are open.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum Trouble {
    /// Nothing arrives any more, nor does the end.
    #[default]
    Silent,
    /// They break off.
    Cut,
}

/// What becomes of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It is answered by an error.
    Broken,
    /// It is not answered.
    Unanswered,
}

#[derive(Default)]
struct GateState {
    open: BTreeMap<String, usize>,
    most: usize,
    opened: usize,
    /// Parts of a path and query, with the status code of the answer.
    refused: Vec<(String, u16)>,
    refusals: usize,
    /// Parts of a URI, with what becomes of the next request that has it.
    faults: Vec<(String, Fault)>,
    /// URIs of all requests that came this far.
    asked: Vec<String>,
    /// API groups whose own server does not answer.
    stale: Vec<String>,
    /// API groups that the API server does not name any more.
    hidden: Vec<String>,
    /// Ends of paths, with how long each request for them waits.
    slow: Vec<(String, Duration)>,
    /// Requests so far, by path.
    requests: BTreeMap<String, usize>,
}

/// Counted as long as it lives.
struct Opened {
    gate: Gate,
    path: String,
}

impl Drop for Opened {
    fn drop(&mut self) {
        let mut state = self.gate.lock();
        if let Some(count) = state.open.get_mut(&self.path) {
            *count -= 1;
        }
        state.open.retain(|_, count| *count > 0);
    }
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn client(&self, server: Client) -> Client {
        let gate = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (gate, server) = (gate.clone(), server.clone());
            async move { gate.pass(server, request).await }
        });
        Client::new(service, "default")
    }

    async fn pass(
        &self,
        server: Client,
        request: Request<Body>,
    ) -> Result<Response<Answer>, tower::BoxError> {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let selector = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("fieldSelector=metadata.name%3D"));
        let mut path = request.uri().path().to_owned();
        if let Some(name) = selector {
            path = format!("{path}?{name}");
        }
        let uri = request.uri().to_string();
        let fault = self.fault(&uri);
        if fault == Some(Fault::Unanswered) {
            std::future::pending::<()>().await;
        }
        if let Some(wait) = self.arrival(&path) {
            tokio::time::sleep(wait).await;
        }
        let refused = self.lock().refused.clone();
        let refused = refused.iter().find(|(part, _)| path.ends_with(&**part));
        let refused = refused.map(|(_, code)| *code);
        if let Some(code) = refused.or(fault.map(|_| 500)) {
            self.lock().refusals += 1;
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                "code": code, "reason": "Refused", "message": format!("no watch of {path}")});
            let body = Full::from(serde_json::to_vec(&status)?);
            let body = body.map_err(|never| match never {}).boxed_unsync();
            return Ok(Response::builder().status(code).body(body)?);
        }
        self.lock().asked.push(uri);
        let as_told = {
            let state = self.lock();
            state.stale.is_empty() && state.hidden.is_empty()
        };
        if path == "/apis" && !as_told {
            return self.without_stale(server.send(request).await?).await;
        }
        if !query.contains("watch=true") {
            return Ok(server.send(request).await?.map(boxed));
        }
        let opened = {
            let mut state = self.lock();
            *state.open.entry(path.clone()).or_default() += 1;
            state.opened += 1;
            state.most = state.most.max(state.open.values().sum());
            Opened {
                gate: self.clone(),
                path,
            }
        };
        let trouble = self.trouble.subscribe();
        let answer = server.send(request).await?;
        Ok(answer.map(|body| {
            let frames = Box::pin(BodyStream::new(body));
            let open = Some((frames, trouble, opened));
            let frames = stream::unfold(open, |open| async {
                let (mut frames, mut trouble, opened) = open?;
                tokio::select! {
                    biased;
                    _ = trouble.changed() => {}
                    frame = frames.next() => {
                        let frame = frame?.map_err(tower::BoxError::from);
                        return Some((frame, Some((frames, trouble, opened))));
                    }
                }
                if matches!(*trouble.borrow(), Trouble::Silent) {
                    std::future::pending::<()>().await;
                }
                let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
                Some((Err(reset.into()), None))
            });
            StreamBody::new(frames).boxed_unsync()
        }))
    }

    /// What becomes of this request.
    fn fault(&self, uri: &str) -> Option<Fault> {
        let faults = &mut self.lock().faults;
        let at = faults.iter().position(|(part, _)| uri.contains(&**part))?;
        Some(faults.remove(at).1)
    }

    /// Has this become of the next request with this part in its URI.
    pub(crate) fn fail_next(&self, part: &str, fault: Fault) {
        self.lock().faults.push((part.to_owned(), fault));
    }

    /// Whether requests are still to fail.
    pub(crate) fn has_faults(&self) -> bool {
        !self.lock().faults.is_empty()
    }

    /// Has this become of all watches that are open; those that come later are well.
    pub(crate) fn trouble(&self, trouble: Trouble) {
        self.trouble.send_replace(trouble);
    }

    /// Queries of the requests for a collection that were let through, lists or watches.
    pub(crate) fn asked(&self, path: &str, watches: bool) -> Vec<String> {
        let state = self.lock();
        let asked = state.asked.iter().filter_map(|uri| uri.split_once('?'));
        asked
            .filter(|(of, query)| of.ends_with(path) && query.contains("watch=true") == watches)
            .map(|(_, query)| query.to_owned())
            .collect()
    }

    /// An answer that says of some groups only that they are not known, and nothing of others.
    async fn without_stale(
        &self,
        answer: Response<Body>,
    ) -> Result<Response<Answer>, tower::BoxError> {
        let (parts, body) = answer.into_parts();
        let mut groups: Value = serde_json::from_slice(&body.collect_bytes().await?)?;
        let (stale, hidden) = {
            let state = self.lock();
            (state.stale.clone(), state.hidden.clone())
        };
        if let Some(groups) = groups["items"].as_array_mut() {
            let is_hidden =
                |group: &Value| hidden.iter().any(|it| group["metadata"]["name"] == **it);
            groups.retain(|group| !is_hidden(group));
        }
        for group in groups["items"].as_array_mut().into_iter().flatten() {
            if stale.iter().any(|name| group["metadata"]["name"] == **name) {
                for version in group["versions"].as_array_mut().into_iter().flatten() {
                    version["freshness"] = json!("Stale");
                    version["resources"] = json!([]);
                }
            }
        }
        let body = Full::from(serde_json::to_vec(&groups)?);
        let body = body.map_err(|never| match never {}).boxed_unsync();
        Ok(Response::builder().status(parts.status).body(body)?)
    }

    /// Has this group's own server not answer.
    pub(crate) fn make_stale(&self, group: &str) {
        self.lock().stale.push(group.to_owned());
    }

    /// Has the API server not name this group any more.
    pub(crate) fn hide(&self, group: &str) {
        self.lock().hidden.push(group.to_owned());
    }

    /// Paths of the open watches, those of one object with its name.
    pub(crate) fn open(&self) -> BTreeSet<String> {
        self.lock().open.keys().cloned().collect()
    }

    fn most(&self) -> usize {
        self.lock().most
    }

    pub(crate) fn opened(&self) -> usize {
        self.lock().opened
    }

    /// Requests that have been refused.
    fn refusals(&self) -> usize {
        self.lock().refusals
    }

    pub(crate) fn refuse(&self, part: &str, code: u16) {
        self.lock().refused.push((part.to_owned(), code));
    }

    pub(crate) fn allow(&self) {
        let mut state = self.lock();
        state.refused.clear();
        state.stale.clear();
        state.hidden.clear();
        state.slow.clear();
    }

    /// Has each request for paths with this end wait for so long.
    pub(crate) fn slow_down(&self, part: &str, wait: Duration) {
        self.lock().slow.push((part.to_owned(), wait));
    }

    /// Counts a request, and says whether it has to wait.
    fn arrival(&self, path: &str) -> Option<Duration> {
        let mut state = self.lock();
        *state.requests.entry(path.to_owned()).or_default() += 1;
        let slow = state.slow.iter().find(|(part, _)| path.ends_with(&**part));
        slow.map(|(_, wait)| *wait)
    }

    /// How many requests there were for a path.
    pub(crate) fn requests(&self, path: &str) -> usize {
        self.lock().requests.get(path).copied().unwrap_or_default()
    }
}

/// Keeps the newest of what it hears, and counts.
#[derive(Debug, Default)]
struct Ear {
    state: Mutex<Heard>,
}

#[derive(Debug, Default, Clone, PartialEq)]
struct Heard {
    value: Option<Value>,
    ends: usize,
    coverage_changes: usize,
}

impl Ear {
    fn heard(&self) -> Heard {
        self.state.lock().unwrap().clone()
    }
}

impl Subscriber for Ear {
    fn seen(&self, object: &Arc<WatchedObject>) {
        let object: Value = serde_json::from_str(object.json()).unwrap();
        self.state.lock().unwrap().value = Some(object["data"]["v"].clone());
    }

    fn gone(&self, _: Option<&Arc<WatchedObject>>) {
        let mut heard = self.state.lock().unwrap();
        heard.value = None;
        heard.ends += 1;
    }

    fn coverage_changed(&self) {
        self.state.lock().unwrap().coverage_changes += 1;
    }
}

struct World {
    server: ApiServer,
    gate: Gate,
    watches: Arc<Watches>,
    supervisor: Addr<WatchSupervisor>,
    registry: Registry,
    health: Health,
}

/// An object somebody listens to.
struct Listener {
    ear: Arc<Ear>,
    subscription: Subscription,
}

impl World {
    async fn start(max_watches: usize) -> Self {
        tokio::time::pause();
        let server = ApiServer::builder()
            .storage(Storage::Memory)
            .build()
            .await
            .unwrap();
        let gate = Gate::default();
        let (watches, registry, health) = (Watches::new(), Registry::new(), Health::new());
        let limits = WatchLimits {
            max_watches,
            ..WatchLimits::default()
        };
        let supervisor = WatchSupervisor::new(
            "c1",
            gate.client(server.client()),
            Arc::clone(&watches),
            limits,
            Io::current(),
            registry.clone(),
            health.clone(),
        );
        let world = Self {
            supervisor: registry.start("WatchSupervisor", "c1", supervisor),
            server,
            gate,
            watches,
            registry,
            health,
        };
        for name in ["a", "b", "c"] {
            let namespace = json!({"metadata": {"name": name}});
            let namespace: Namespace = serde_json::from_str(&namespace.to_string()).unwrap();
            let api = Api::all(world.server.client());
            api.create(&PostParams::default(), &namespace)
                .await
                .unwrap();
        }
        world
    }

    fn listen(&self, resource: &Resource, namespace: &str, name: &str) -> Listener {
        let ear = Arc::new(Ear::default());
        let path = ObjectPath {
            resource: resource.clone(),
            namespace: namespace.into(),
            name: name.into(),
        };
        let subscription = self.watches.subscribe(path, Arc::clone(&ear) as _);
        Listener { ear, subscription }
    }

    fn config_map(&self, namespace: &str, name: &str) -> Listener {
        self.listen(&Resource::new("", "v1", "configmaps"), namespace, name)
    }

    async fn write(&self, namespace: &str, name: &str, value: &str) {
        let api: Api<ConfigMap> = Api::namespaced(self.server.client(), namespace);
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name}, "data": {"v": value}});
        let params = PatchParams::apply("test").force();
        api.patch(name, &params, &Patch::Apply(&object))
            .await
            .unwrap();
    }

    async fn delete(&self, namespace: &str, name: &str) {
        let api: Api<ConfigMap> = Api::namespaced(self.server.client(), namespace);
        api.delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Waits until just these watches are open.
    async fn open(&self, wanted: &[&str]) {
        let wanted: BTreeSet<_> = wanted.iter().map(|path| (*path).to_owned()).collect();
        eventually(|| self.gate.open(), |open| *open == wanted).await;
    }

    async fn state(&self) -> Value {
        self.supervisor.send(Snapshot).await.unwrap()
    }

    async fn end(self) {
        assert!(stop(&self.supervisor, Duration::from_secs(10)).await);
        let ended = self.registry.ended(Duration::from_secs(1)).await;
        assert_eq!(ended, Ok(()));
        self.open(&[]).await;
    }
}

impl Listener {
    async fn hears(&self, value: Option<&str>) {
        let value = value.map(Value::from);
        eventually(|| self.ear.heard().value, |heard| *heard == value).await;
    }

    async fn is(&self, coverage: impl Fn(&Coverage) -> bool) -> Coverage {
        eventually(|| self.subscription.coverage(), coverage).await
    }

    async fn watched(&self) {
        self.is(|coverage| *coverage == Coverage::Watched).await;
    }
}

async fn eventually<T: std::fmt::Debug>(ask: impl Fn() -> T, wanted: impl Fn(&T) -> bool) -> T {
    let deadline = Instant::now() + EVENTUALLY;
    loop {
        let answer = ask();
        if wanted(&answer) {
            return answer;
        }
        assert!(Instant::now() < deadline, "last seen: {answer:#?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

const MAPS_OF_A: &str = "/api/v1/namespaces/a/configmaps";
const MAPS: &str = "/api/v1/configmaps";

fn of_object(collection: &str, name: &str) -> String {
    format!("{collection}?{name}")
}

/// C146: of one that is not there at the start that is told at once.
#[actix::test]
async fn an_object_that_comes_changes_and_goes_is_seen() {
    let world = World::start(5).await;
    let x = world.config_map("a", "x");
    world.open(&[&of_object(MAPS_OF_A, "x")]).await;
    x.watched().await;
    assert_eq!(x.ear.heard().ends, 1);
    world.write("a", "x", "1").await;
    x.hears(Some("1")).await;
    world.write("a", "x", "2").await;
    world.write("a", "other", "9").await;
    x.hears(Some("2")).await;
    world.delete("a", "x").await;
    x.hears(None).await;
    assert_eq!(x.ear.heard().coverage_changes, 0);
    drop(x);
    world.open(&[]).await;
    world.end().await;
}

/// C049: whoever comes and goes, there is one watch.
#[actix::test]
async fn objects_of_a_namespace_share_a_watch_that_ends_with_the_last() {
    let world = World::start(5).await;
    let (x, y) = (world.config_map("a", "x"), world.config_map("a", "y"));
    world.open(&[MAPS_OF_A]).await;
    let twice = world.config_map("a", "x");
    world.write("a", "x", "1").await;
    x.hears(Some("1")).await;
    twice.hears(Some("1")).await;
    drop((x, y));
    world.write("a", "x", "2").await;
    twice.hears(Some("2")).await;
    world.open(&[MAPS_OF_A]).await;
    drop(twice);
    world.open(&[]).await;
    assert_eq!(world.gate.most(), 1);
    world.end().await;
}

/// C048: what finds no room says so, and takes the first slot that is free.
#[actix::test]
async fn the_cap_holds_and_a_free_slot_goes_to_the_longest_waiting() {
    let world = World::start(2).await;
    let maps = world.config_map("a", "x");
    maps.watched().await;
    let secrets = world.listen(&Resource::new("", "v1", "secrets"), "a", "x");
    secrets.watched().await;
    let services = world.listen(&Resource::new("", "v1", "services"), "a", "x");
    let full = Coverage::Polled(Unwatched::Full(2));
    services.is(|coverage| *coverage == full).await;
    assert_eq!(services.ear.heard().coverage_changes, 1);
    let pods = world.listen(&Resource::new("", "v1", "pods"), "a", "x");
    pods.is(|coverage| *coverage == full).await;
    assert_eq!(
        world.state().await["waiting"],
        json!(["services.v1 a/x", "pods.v1 a/x"])
    );

    drop(secrets);
    services.watched().await;
    assert_eq!(services.ear.heard().coverage_changes, 2);
    pods.is(|coverage| *coverage == full).await;
    drop(maps);
    pods.watched().await;
    assert_eq!(world.gate.most(), 2);
    world.end().await;
}

#[actix::test]
async fn a_wide_watch_takes_over_without_a_gap_where_there_is_room() {
    let world = World::start(3).await;
    let listeners = ["a", "b", "c"].map(|namespace| world.config_map(namespace, "x"));
    for (listener, namespace) in listeners.iter().zip(["a", "b", "c"]) {
        listener.watched().await;
        world.write(namespace, "x", "1").await;
        listener.hears(Some("1")).await;
    }
    // A fourth does not fit: all of one type are watched together.
    let secret = world.listen(&Resource::new("", "v1", "secrets"), "a", "x");
    world
        .open(&[MAPS, &of_object("/api/v1/namespaces/a/secrets", "x")])
        .await;
    secret.watched().await;
    for (listener, namespace) in listeners.iter().zip(["a", "b", "c"]) {
        world.write(namespace, "x", "2").await;
        listener.hears(Some("2")).await;
        assert_eq!(listener.ear.heard().coverage_changes, 0);
    }
    assert_eq!(world.gate.most(), 3);
    world.end().await;
}

#[actix::test]
async fn a_new_cap_takes_effect_at_once() {
    let world = World::start(2).await;
    let maps = world.config_map("a", "x");
    maps.watched().await;
    let secrets = world.listen(&Resource::new("", "v1", "secrets"), "a", "x");
    secrets.watched().await;
    let limits = |max_watches| {
        ChangeLimits(WatchLimits {
            max_watches,
            ..WatchLimits::default()
        })
    };
    world.supervisor.send(limits(1)).await.unwrap();
    world.open(&[&of_object(MAPS_OF_A, "x")]).await;
    let full = Coverage::Polled(Unwatched::Full(1));
    secrets.is(|coverage| *coverage == full).await;
    world.supervisor.send(limits(0)).await.unwrap();
    world.open(&[]).await;
    world.supervisor.send(limits(7)).await.unwrap();
    maps.watched().await;
    secrets.watched().await;
    world.write("a", "x", "1").await;
    maps.hears(Some("1")).await;
    world.end().await;
}

#[actix::test]
async fn another_width_is_another_plan_for_all() {
    let world = World::start(8).await;
    let (x, y) = (world.config_map("a", "x"), world.config_map("a", "y"));
    let secret = world.listen(&Resource::new("", "v1", "secrets"), "a", "x");
    world
        .open(&[MAPS_OF_A, &of_object("/api/v1/namespaces/a/secrets", "x")])
        .await;
    secret.watched().await;
    let limits = WatchLimits {
        max_watches: 8,
        widen_after: 3,
    };
    world.supervisor.send(ChangeLimits(limits)).await.unwrap();
    // The one that serves both already goes on as it is, but is a new one, like all others.
    eventually(|| world.gate.opened(), |opened| *opened == 4).await;
    world.write("a", "x", "1").await;
    world.write("a", "y", "1").await;
    x.hears(Some("1")).await;
    y.hears(Some("1")).await;
    eventually(
        || world.gate.lock().open.values().sum(),
        |open: &usize| *open == 2,
    )
    .await;
    assert_eq!(world.state().await["generation"], 1);
    world.end().await;
}

#[actix::test]
async fn a_refused_wide_watch_falls_back_and_is_tried_again() {
    let world = World::start(5).await;
    world.gate.refuse(MAPS_OF_A, 403);
    let (x, y) = (world.config_map("a", "x"), world.config_map("a", "y"));
    let (of_x, of_y) = (of_object(MAPS_OF_A, "x"), of_object(MAPS_OF_A, "y"));
    world.open(&[&of_x, &of_y]).await;
    x.watched().await;
    y.watched().await;
    world.write("a", "x", "1").await;
    x.hears(Some("1")).await;
    let state = world.state().await;
    let why = &state["refused"]["configmaps.v1 in a"];
    assert_eq!(*why, format!("no watch of {MAPS_OF_A}"));
    let before = Instant::now();
    world.gate.allow();
    world.open(&[MAPS_OF_A]).await;
    assert!(before.elapsed() <= Duration::from_secs(30));
    world.write("a", "y", "1").await;
    y.hears(Some("1")).await;
    assert!(world.health.not_ready().is_empty());
    world.end().await;
}

#[actix::test]
async fn what_may_not_be_watched_at_all_is_polled_and_says_why() {
    let world = World::start(5).await;
    let of_x = of_object(MAPS_OF_A, "x");
    world.gate.refuse(&of_x, 403);
    let x = world.config_map("a", "x");
    let polled = x
        .is(|coverage| matches!(coverage, Coverage::Polled(_)))
        .await;
    let Coverage::Polled(why) = polled else {
        panic!()
    };
    assert!(why.to_string().contains("no watch of"), "{why}");
    // Tries come and go, the answer stays.
    tokio::time::sleep(EVENTUALLY).await;
    assert_eq!(x.ear.heard().coverage_changes, 1);
    assert_eq!(world.gate.opened(), 0);
    world.gate.allow();
    x.watched().await;
    assert_eq!(x.ear.heard().coverage_changes, 2);
    world.end().await;
}

#[actix::test]
async fn a_right_that_is_given_is_used_within_seconds() {
    let world = World::start(5).await;
    let of_x = of_object(MAPS_OF_A, "x");
    world.gate.refuse(&of_x, 403);
    let x = world.config_map("a", "x");
    x.is(|coverage| matches!(coverage, Coverage::Polled(_)))
        .await;
    tokio::time::sleep(Duration::from_secs(180)).await;
    let before = world.gate.refusals();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let tries = world.gate.refusals() - before;
    assert!((15..=30).contains(&tries), "{tries} tries in a minute");
    world.gate.allow();
    let granted = Instant::now();
    x.watched().await;
    assert!(granted.elapsed() <= Duration::from_secs(4));
    world.end().await;
}

#[actix::test]
async fn many_refused_watches_share_a_pace() {
    let world = World::start(500).await;
    let names: Vec<String> = (0..200).map(|n| format!("x{n}")).collect();
    let mut listeners = Vec::new();
    for name in &names {
        let namespace = format!("n{name}");
        let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
        world.gate.refuse(&of_object(&maps, name), 403);
        listeners.push(world.config_map(&namespace, name));
    }
    for listener in &listeners {
        let polled = |coverage: &Coverage| matches!(coverage, Coverage::Polled(_));
        listener.is(polled).await;
    }
    tokio::time::sleep(Duration::from_secs(180)).await;
    let before = world.gate.refusals();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let tries = world.gate.refusals() - before;
    assert!((400..=700).contains(&tries), "{tries} tries in a minute");
    world.end().await;
}

/// A probe of what was refused costs nobody a watch that works.
#[actix::test]
async fn a_refused_watch_is_not_tried_at_the_cost_of_others() {
    let world = World::start(2).await;
    world.gate.refuse(MAPS_OF_A, 403);
    let (x, y) = (world.config_map("a", "x"), world.config_map("a", "y"));
    x.watched().await;
    y.watched().await;
    let opened = world.gate.opened();
    tokio::time::sleep(EVENTUALLY * 3).await;
    assert_eq!(world.gate.opened(), opened, "nothing was closed for it");
    x.watched().await;
    y.watched().await;
    world.end().await;
}

/// A watch that has worked and fails from then on is not open, and after a while those who rely on it
/// are told: once, however its errors change. One that breaks off and goes on is no news.
#[actix::test]
async fn a_watch_that_keeps_failing_is_not_open_and_says_so_once() {
    let world = World::start(5).await;
    let of_x = of_object(MAPS_OF_A, "x");
    let x = world.config_map("a", "x");
    x.watched().await;
    world.gate.trouble(Trouble::Cut);
    tokio::time::sleep(EVENTUALLY).await;
    assert_eq!(x.ear.heard().coverage_changes, 0);
    assert_eq!(world.state().await["connected"], 1);

    world.gate.refuse(&of_x, 503);
    world.gate.trouble(Trouble::Cut);
    let polled = x
        .is(|coverage| matches!(coverage, Coverage::Polled(_)))
        .await;
    let Coverage::Polled(why) = polled else {
        panic!()
    };
    let why = why.to_string();
    assert!(
        why.starts_with("polled instead of watched: the watch fails: "),
        "{why}"
    );
    assert!(why.contains("no watch of"), "{why}");
    let state = world.state().await;
    assert_eq!(
        (&state["connected"], &state["open"]),
        (&json!(0), &json!(1))
    );
    tokio::time::sleep(EVENTUALLY).await;
    assert_eq!(x.ear.heard().coverage_changes, 1);
    world.gate.allow();
    x.watched().await;
    assert_eq!(x.ear.heard().coverage_changes, 2);
    assert_eq!(world.state().await["connected"], 1);
    world.end().await;
}

#[actix::test]
async fn a_type_that_is_gone_is_looked_for_again_at_once_when_asked_for() {
    let world = World::start(5).await;
    let of_x = of_object(MAPS_OF_A, "x");
    world.gate.refuse(&of_x, 404);
    let x = world.config_map("a", "x");
    x.is(|coverage| matches!(coverage, Coverage::Polled(_)))
        .await;
    world.gate.allow();
    drop(x);
    eventually(|| world.watches.len(), |len| *len == 0).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let before = Instant::now();
    let x = world.config_map("a", "x");
    x.watched().await;
    assert!(before.elapsed() < Duration::from_secs(1));
    world.end().await;
}

#[actix::test]
async fn a_restart_overlaps_where_there_is_room() {
    let world = World::start(8).await;
    assert_eq!(restart_under_load(&world).await, 6);
    world.end().await;
}

#[actix::test]
async fn a_restart_at_the_cap_replaces_one_after_the_other() {
    let world = World::start(3).await;
    assert_eq!(restart_under_load(&world).await, 3);
    world.end().await;
}

/// Replaces three watches while an object changes. Returns how many were open at most.
async fn restart_under_load(world: &World) -> usize {
    let listeners = [
        world.config_map("a", "x"),
        world.listen(&Resource::new("", "v1", "secrets"), "a", "x"),
        world.listen(&Resource::new("", "v1", "services"), "a", "x"),
    ];
    for listener in &listeners {
        listener.watched().await;
    }
    world.write("a", "x", "first").await;
    listeners[0].hears(Some("first")).await;
    let open: Vec<_> = world.gate.open().into_iter().collect();
    assert_eq!((open.len(), world.gate.opened()), (3, 3));
    world.supervisor.send(RestartWatches).await.unwrap();
    for value in 0..20 {
        world.write("a", "x", &value.to_string()).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    listeners[0].hears(Some("19")).await;
    eventually(|| world.gate.opened(), |opened| *opened == 6).await;
    let open: Vec<_> = open.iter().map(String::as_str).collect();
    world.open(&open).await;
    eventually(
        || world.gate.lock().open.values().sum(),
        |open: &usize| *open == 3,
    )
    .await;
    for listener in &listeners {
        listener.watched().await;
        assert_eq!(listener.ear.heard().coverage_changes, 0);
    }
    // The list before it was written, and none since.
    assert_eq!(listeners[0].ear.heard().ends, 1);
    world.gate.most()
}

/// Not even the objects of ten types that come and go at random open one watch too many, and in the
/// end all that is wanted is watched.
#[actix::test]
async fn whatever_comes_and_goes_the_cap_holds() {
    let world = World::start(4).await;
    let types = [
        "configmaps",
        "secrets",
        "services",
        "pods",
        "endpoints",
        "limitranges",
    ]
    .map(|resource| Resource::new("", "v1", resource));
    let mut random = 12_345_u64;
    let mut next = |below: usize| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(random >> 33).unwrap() % below
    };
    let mut listeners: Vec<Listener> = Vec::new();
    for _ in 0..300 {
        if next(3) > 0 || listeners.is_empty() {
            let namespace = ["a", "b", "c"][next(3)];
            let name = ["x", "y", "z"][next(3)];
            listeners.push(world.listen(&types[next(types.len())], namespace, name));
        } else {
            listeners.swap_remove(next(listeners.len()));
        }
        if next(10) == 0 {
            world.supervisor.send(RestartWatches).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(7)).await;
    }
    assert!(world.gate.most() <= 4, "{}", world.gate.most());
    // One watch for each type is enough, and there is room for four.
    eventually(|| world.gate.open().len(), |open| *open == 4).await;
    let four: BTreeSet<_> = types[..4].iter().cloned().collect();
    listeners.retain(|listener| four.contains(&listener.subscription.path().resource));
    for listener in &listeners {
        listener.watched().await;
    }
    drop(listeners);
    world.open(&[]).await;
    world.end().await;
}

#[actix::test]
async fn a_panic_of_the_supervisor_costs_no_watch() {
    let world = World::start(2).await;
    let x = world.config_map("a", "x");
    x.watched().await;
    assert!(world.supervisor.send(Panic).await.is_err());
    let y = world.config_map("b", "y");
    y.watched().await;
    x.watched().await;
    assert_eq!((world.gate.opened(), world.gate.most()), (2, 2));
    world.end().await;
}

/// Makes an actor panic.
#[derive(actix::Message)]
#[rtype(result = "()")]
struct Panic;

impl actix::Handler<Panic> for WatchSupervisor {
    type Result = ();

    fn handle(&mut self, _: Panic, _: &mut Self::Context) {
        panic!("asked to");
    }
}

#[actix::test]
async fn a_server_that_is_away_shows_in_readiness_until_it_is_back() {
    let world = World::start(2).await;
    let x = world.config_map("a", "x");
    x.watched().await;
    world.write("a", "x", "1").await;
    x.hears(Some("1")).await;
    let y = world.config_map("b", "y");
    world
        .gate
        .refuse(&of_object("/api/v1/namespaces/b/configmaps", "y"), 500);
    eventually(|| world.health.not_ready(), |reasons| reasons.len() == 1).await;
    let reasons = world.health.not_ready();
    assert!(
        reasons[0].starts_with("c1 watch of configmaps.v1 b/y: "),
        "{reasons:?}"
    );
    assert_eq!(y.subscription.coverage(), Coverage::Opening);
    world.gate.allow();
    y.watched().await;
    eventually(|| world.health.not_ready(), Vec::is_empty).await;
    world.end().await;
}
