//! A hub and agents that have nothing but a bus between them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::StreamExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use metrics_exporter_prometheus::PrometheusBuilder;
use muster_api::constants::MANIFEST_WORK_FINALIZER;
use muster_api::work::{ManifestWork, RawManifestWork};
use muster_apiserver::{Admission, AdmissionRequest, ApiServer};
use muster_cloudevents::bus::{Bus, BusEvent, Connection, Loopback, Publisher, Session};
use muster_cloudevents::client::{ClientOptions, ConnectionState};
use muster_cloudevents::work::{Form, WorkCodec, carries_content};
use muster_cloudevents::{Action, Dialect, Source, Topics};
use muster_workclient::events::{AgentEvents, AgentWorks, EventLink, HubEvents, SourceEvents};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

#[path = "../../cloudevents/tests/support/flaky.rs"]
mod flaky;

use flaky::Flaky;

const DEADLINE: Duration = Duration::from_secs(600);
const CLUSTERS: [&str; 2] = ["edge-a", "edge-b"];

fn dialect() -> Dialect {
    Dialect::SdkGo(Topics {
        source_events: "sources/hub/clusters/+/sourceevents".to_owned(),
        agent_events: "sources/hub/clusters/+/agentevents".to_owned(),
        source_broadcast: Some("sources/hub/sourcebroadcast".to_owned()),
        agent_broadcast: Some("clusters/+/agentbroadcast".to_owned()),
    })
}

fn options() -> ClientOptions {
    ClientOptions {
        resync_interval: Some(Duration::from_secs(10)),
        ..ClientOptions::default()
    }
}

/// A hub's API, with a namespace for each cluster.
async fn hub_api() -> ApiServer {
    hub_with(Arc::new(NoBad::default())).await
}

async fn hub_with(admission: Arc<NoBad>) -> ApiServer {
    let server = ApiServer::builder()
        .admission(admission)
        .crd(muster_api::crds::definition::<ManifestWork>())
        .build()
        .await
        .unwrap();
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(server.client());
    for cluster in CLUSTERS {
        let namespace = serde_json::from_value(json!({"metadata": {"name": cluster}})).unwrap();
        let params = PostParams::default();
        namespaces.create(&params, &namespace).await.unwrap();
    }
    server
}

/// A hub that has joined a bus, until it is dropped.
struct Hub {
    events: HubEvents,
    link: EventLink,
    watch: JoinHandle<()>,
}

impl Hub {
    async fn start(bus: &dyn Bus, client: Client) -> Self {
        let source = SourceEvents {
            source: "hub".to_owned(),
            dialect: dialect(),
            form: Form::Bundles,
            others: BTreeSet::new(),
            options: options(),
        };
        let events = HubEvents::new(source, client.clone()).unwrap();
        let (listed, first) = tokio::sync::oneshot::channel();
        let watch = tokio::spawn(watch(events.clone(), client, listed));
        first.await.unwrap();
        let link = events.join(bus);
        Self {
            events,
            link,
            watch,
        }
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

async fn watch(events: HubEvents, client: Client, listed: tokio::sync::oneshot::Sender<()>) {
    let api: Api<RawManifestWork> = Api::all(client);
    let mut listed = Some(listed);
    let mut steps = watcher(api, watcher::Config::default())
        .default_backoff()
        .boxed();
    while let Some(step) = steps.next().await {
        match step.unwrap() {
            watcher::Event::Init => events.listing(),
            watcher::Event::InitApply(work) | watcher::Event::Apply(work) => events.seen(&work),
            watcher::Event::InitDone => {
                events.listed();
                listed.take().map(|listed| listed.send(()));
            }
            watcher::Event::Delete(work) => events.gone(&work.uid().unwrap()),
        }
    }
}

/// An agent at work, until it is dropped. What it does on its cluster is told by the set of uids.
struct Edge {
    works: AgentWorks,
    hand: JoinHandle<()>,
}

impl Edge {
    async fn start(bus: &dyn Bus, cluster: &str, file: Option<PathBuf>) -> Self {
        Self::start_as(bus, cluster, file, dialect()).await
    }

    async fn start_as(
        bus: &dyn Bus,
        cluster: &str,
        file: Option<PathBuf>,
        dialect: Dialect,
    ) -> Self {
        let agent = AgentEvents {
            cluster: cluster.to_owned(),
            agent: format!("{cluster}-work-agent"),
            dialect,
            form: Form::Bundles,
            file,
            options: options(),
        };
        let works = AgentWorks::start(agent, bus).await.unwrap();
        let api = Api::namespaced(works.client(), cluster);
        let hand = tokio::spawn(work(api));
        Self { works, hand }
    }

    fn api(&self, cluster: &str) -> Api<ManifestWork> {
        Api::namespaced(self.works.client(), cluster)
    }

    async fn stop(self) {
        self.hand.abort();
        self.works.close().await;
    }
}

/// Does what the agent's controllers do with works, for ever.
async fn work(api: Api<ManifestWork>) {
    let mut works = watcher(api.clone(), watcher::Config::default())
        .default_backoff()
        .applied_objects()
        .boxed();
    while let Some(Ok(work)) = works.next().await {
        let name = work.name_any();
        let finalizers = |names: &[&str]| json!({"metadata": {"finalizers": names}});
        let patch = |patch: Value| {
            let (api, name) = (api.clone(), name.clone());
            async move {
                let params = PatchParams::default();
                let _ = api.patch(&name, &params, &Patch::Merge(patch)).await;
            }
        };
        if work.metadata.deletion_timestamp.is_some() {
            patch(finalizers(&[])).await;
            continue;
        }
        if work.finalizers().is_empty() {
            patch(finalizers(&[MANIFEST_WORK_FINALIZER])).await;
        }
        let status = done(&work);
        if work.status.as_ref().map(|status| json!(status)) != Some(status.clone()) {
            let params = PatchParams::default();
            let patch = Patch::Merge(json!({ "status": status }));
            let _ = api.patch_status(&name, &params, &patch).await;
        }
    }
}

/// The status that a work comes to.
fn done(work: &ManifestWork) -> Value {
    let manifests = serde_json::to_string(&work.spec.workload).unwrap();
    json!({
        "conditions": [{
            "type": "Applied",
            "status": "True",
            "reason": "Done",
            "message": manifests,
            "observedGeneration": work.metadata.generation,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }],
        "resourceStatus": {},
    })
}

fn is_done(work: &ManifestWork) -> bool {
    let status = work.status.as_ref();
    status.is_some_and(|status| json!(status) == done(work))
}

fn spec(text: &str) -> Value {
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "m", "namespace": "default"}, "data": {"text": text},
    });
    json!({"workload": {"manifests": [map]}})
}

async fn create(api: &Api<ManifestWork>, name: &str, text: &str) -> ManifestWork {
    let work = json!({
        "apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
        "metadata": {"name": name, "labels": {"a": "1", "b": "2"}},
        "spec": spec(text),
    });
    let work = serde_json::from_value(work).unwrap();
    api.create(&PostParams::default(), &work).await.unwrap()
}

async fn change(api: &Api<ManifestWork>, name: &str, patch: Value) -> ManifestWork {
    let params = PatchParams::default();
    api.patch(name, &params, &Patch::Merge(patch))
        .await
        .unwrap()
}

async fn delete(api: &Api<ManifestWork>, name: &str) {
    api.delete(name, &DeleteParams::default()).await.unwrap();
}

/// Waits until this holds of the works there, by name.
async fn until(
    api: &Api<ManifestWork>,
    what: &str,
    holds: impl Fn(&BTreeMap<String, ManifestWork>) -> bool,
) -> BTreeMap<String, ManifestWork> {
    let wait = async {
        loop {
            let works = api.list(&ListParams::default()).await.unwrap();
            let works = works
                .into_iter()
                .map(|work| (work.name_any(), work))
                .collect();
            if holds(&works) {
                return works;
            }
            // Time is paused: this waits for whoever else is at work.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    if let Ok(works) = tokio::time::timeout(DEADLINE, wait).await {
        return works;
    }
    panic!("{what}: {:#?}", api.list(&ListParams::default()).await)
}

fn on_hub(hub: &ApiServer, cluster: &str) -> Api<ManifestWork> {
    Api::namespaced(hub.uncounted_client(), cluster)
}

/// C100 and C107 among it: the agent sees each version and label as the hub has it.
#[tokio::test(start_paused = true)]
async fn a_work_lives_and_ends_over_a_bus() {
    let (bus, api) = (Loopback::new(), hub_api().await);
    let _hub = Hub::start(&bus, api.client()).await;
    let edge = Edge::start(&bus, "edge-a", None).await;
    let (there, here) = (on_hub(&api, "edge-a"), edge.api("edge-a"));
    let created = create(&there, "one", "first").await;
    let at = until(&there, "applied", |works| is_done(&works["one"])).await;
    assert_eq!(at["one"].finalizers(), [MANIFEST_WORK_FINALIZER]);
    let local = here.get("one").await.unwrap();
    assert_eq!(local.uid(), created.uid());
    assert_eq!(local.metadata.generation, Some(1));

    change(&there, "one", json!({"spec": spec("second")})).await;
    let at = until(&there, "applied anew", |works| is_done(&works["one"])).await;
    let condition = &at["one"].status.as_ref().unwrap().conditions[0];
    assert_eq!(condition.observed_generation, Some(2));
    change(&there, "one", json!({"metadata": {"labels": {"b": null}}})).await;
    until(&here, "b is gone", |works| {
        !works["one"].labels().contains_key("b")
    })
    .await;
    assert_eq!(here.get("one").await.unwrap().labels()["a"], "1");

    delete(&there, "one").await;
    until(&there, "gone there", BTreeMap::is_empty).await;
    until(&here, "gone here", BTreeMap::is_empty).await;
}

/// What an agent writes just before its end arrives.
#[tokio::test(start_paused = true)]
async fn the_last_statuses_are_told_before_the_end() {
    let (bus, api) = (Loopback::new(), hub_api().await);
    let _hub = Hub::start(&bus, api.client()).await;
    let there = on_hub(&api, "edge-a");
    let edge = Edge::start(&bus, "edge-a", None).await;
    let names: Vec<String> = (0..50).map(|index| format!("w{index}")).collect();
    for name in &names {
        create(&there, name, "first").await;
    }
    until(&there, "applied", |works| works.values().all(is_done)).await;
    edge.hand.abort();
    let here = edge.api("edge-a");
    for name in &names {
        let mut status = done(&here.get(name).await.unwrap());
        status["conditions"][0]["reason"] = "Last".into();
        let patch = Patch::Merge(json!({ "status": status }));
        let params = PatchParams::default();
        here.patch_status(name, &params, &patch).await.unwrap();
    }
    edge.stop().await;
    let is_last = |work: &ManifestWork| {
        let conditions = work.status.iter().flat_map(|status| &status.conditions);
        conditions.last().is_some_and(|last| last.reason == "Last")
    };
    until(&there, "told", |works| works.values().all(is_last)).await;
}

/// C109, and what has changed meanwhile; with and without what the agent had.
#[tokio::test(start_paused = true)]
async fn an_agent_that_was_away_catches_up() {
    let dir = tempfile::tempdir().unwrap();
    for file in [None, Some(dir.path().join("works.redb"))] {
        let (bus, api) = (Loopback::new(), hub_api().await);
        let _hub = Hub::start(&bus, api.client()).await;
        let there = on_hub(&api, "edge-a");
        let edge = Edge::start(&bus, "edge-a", file.clone()).await;
        for name in ["kept", "changed", "deleted"] {
            create(&there, name, "first").await;
        }
        until(&there, "applied", |works| works.values().all(is_done)).await;
        edge.stop().await;
        delete(&there, "deleted").await;
        change(&there, "changed", json!({"spec": spec("second")})).await;
        create(&there, "created", "first").await;
        // Nobody is there to say that it is gone.
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(
            there
                .list(&ListParams::default())
                .await
                .unwrap()
                .items
                .len(),
            4
        );
        let kept = there.get("kept").await.unwrap();

        let edge = Edge::start(&bus, "edge-a", file).await;
        let all = |works: &BTreeMap<_, _>| works.len() == 3 && works.values().all(is_done);
        until(&there, "caught up", all).await;
        let here = until(&edge.api("edge-a"), "caught up", all).await;
        assert_eq!(here["kept"].uid(), kept.uid());
        assert_eq!(there.get("kept").await.unwrap().uid(), kept.uid());
    }
}

/// A bus that never gets anywhere.
struct Away;

impl Bus for Away {
    fn open(&self, session: Session) -> Connection {
        let Connection { publisher, .. } = Loopback::new().open(session);
        let (sender, events) = tokio::sync::mpsc::channel(1);
        let reason = "connection refused".to_owned();
        let retry_in = Duration::from_secs(1);
        sender
            .try_send(BusEvent::Lost { reason, retry_in })
            .unwrap();
        // The receiver's end ends the task.
        tokio::spawn(async move { sender.closed().await });
        let publisher: Publisher = publisher;
        Connection { publisher, events }
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_starts_while_its_broker_is_away_with_what_it_had() {
    let dir = tempfile::tempdir().unwrap();
    let file = Some(dir.path().join("works.redb"));
    let (bus, api) = (Loopback::new(), hub_api().await);
    let hub = Hub::start(&bus, api.client()).await;
    let edge = Edge::start(&bus, "edge-a", file.clone()).await;
    let there = on_hub(&api, "edge-a");
    create(&there, "one", "first").await;
    until(&there, "applied", |works| is_done(&works["one"])).await;
    edge.stop().await;
    drop(hub);
    let edge = Edge::start(&Away, "edge-a", file).await;
    let here = edge
        .api("edge-a")
        .list(&ListParams::default())
        .await
        .unwrap();
    assert_eq!(here.items.len(), 1);
    assert!(is_done(&here.items[0]));
    let mut state = edge.works.link().state();
    let lost = state.wait_for(|state| matches!(state, ConnectionState::Lost { .. }));
    let lost = format!("{:?}", *lost.await.unwrap());
    assert!(lost.contains("connection refused"), "{lost}");
}

/// Nobody has to wait for an agent that has never said anything; when it comes, it hears of it.
#[tokio::test(start_paused = true)]
async fn what_no_agent_has_answered_for_can_go() {
    let (bus, api) = (Loopback::new(), hub_api().await);
    let _hub = Hub::start(&bus, api.client()).await;
    let there = on_hub(&api, "edge-b");
    create(&there, "one", "first").await;
    until(&there, "sent", |works| {
        !works["one"].finalizers().is_empty()
    })
    .await;
    delete(&there, "one").await;
    until(&there, "gone", BTreeMap::is_empty).await;
}

/// Whoever takes the finalizer away by hand means it: the agent is told.
#[tokio::test(start_paused = true)]
async fn what_was_forced_out_of_the_hub_goes_from_its_cluster() {
    let (bus, api) = (Loopback::new(), hub_api().await);
    let hub = Hub::start(&bus, api.client()).await;
    let there = on_hub(&api, "edge-a");
    let edge = Edge::start(&bus, "edge-a", None).await;
    let here = edge.api("edge-a");
    create(&there, "one", "first").await;
    create(&there, "two", "first").await;
    until(&there, "applied", |works| works.values().all(is_done)).await;
    change(&there, "one", json!({"metadata": {"finalizers": null}})).await;
    delete(&there, "one").await;
    let names = |works: &BTreeMap<String, _>| works.keys().cloned().collect::<Vec<_>>();
    until(&here, "one is gone", |works| names(works) == ["two"]).await;
    // Also while the hub was not there to see it.
    drop(hub);
    change(&there, "two", json!({"metadata": {"finalizers": null}})).await;
    delete(&there, "two").await;
    let hub = Hub::start(&bus, api.client()).await;
    until(&here, "two is gone", BTreeMap::is_empty).await;
    assert_eq!(hub.events.works(), 0);
}

/// A name that another source uses, too, and one that is used again.
#[tokio::test(start_paused = true)]
async fn names_do_not_collide() {
    let any = Dialect::SdkGo(Topics {
        source_events: "sources/+/clusters/+/sourceevents".to_owned(),
        agent_events: "sources/+/clusters/+/agentevents".to_owned(),
        source_broadcast: Some("sources/+/sourcebroadcast".to_owned()),
        agent_broadcast: Some("clusters/+/agentbroadcast".to_owned()),
    });
    let (bus, apis) = (Loopback::new(), [hub_api().await, hub_api().await]);
    let mut hubs = Vec::new();
    for (at, api) in apis.iter().enumerate() {
        let Dialect::SdkGo(mut topics) = dialect() else {
            unreachable!("it is");
        };
        let id = ["hub", "hub-two"][at];
        topics.source_events = format!("sources/{id}/clusters/+/sourceevents");
        topics.agent_events = format!("sources/{id}/clusters/+/agentevents");
        topics.source_broadcast = Some(format!("sources/{id}/sourcebroadcast"));
        let source = SourceEvents {
            source: id.to_owned(),
            dialect: Dialect::SdkGo(topics),
            form: Form::Bundles,
            others: BTreeSet::from(["edge-b".to_owned()]),
            options: options(),
        };
        let events = HubEvents::new(source, api.client()).unwrap();
        let (listed, first) = tokio::sync::oneshot::channel();
        tokio::spawn(watch(events.clone(), api.client(), listed));
        first.await.unwrap();
        hubs.push(events.join(&bus));
        // Of a cluster that is reached another way nothing is sent.
        create(&on_hub(api, "edge-b"), "elsewhere", "first").await;
    }
    let edge = Edge::start_as(&bus, "edge-a", None, any).await;
    let here = edge.api("edge-a");
    let theirs = apis.each_ref().map(|api| on_hub(api, "edge-a"));
    for there in &theirs {
        create(there, "one", "first").await;
        until(there, "applied", |works| is_done(&works["one"])).await;
    }
    let names: Vec<_> = until(&here, "both", |works| works.len() == 2)
        .await
        .into_keys()
        .collect();
    assert_eq!(names[0], "one");
    assert!(
        names[1].starts_with("one-") && names[1].len() == 12,
        "{names:?}"
    );
    // The first is deleted and made anew while the other stays.
    delete(&theirs[0], "one").await;
    until(&theirs[0], "gone", BTreeMap::is_empty).await;
    let anew = create(&theirs[0], "one", "second").await;
    until(&theirs[0], "applied", |works| is_done(&works["one"])).await;
    assert_eq!(here.get("one").await.unwrap().uid(), anew.uid());
    let elsewhere = on_hub(&apis[0], "edge-b").get("elsewhere").await.unwrap();
    assert_eq!(elsewhere.finalizers(), &[] as &[String]);
    // And forced out and made anew while the agent is deaf to it.
    drop(hubs.remove(0));
    change(&theirs[0], "one", json!({"metadata": {"finalizers": null}})).await;
    delete(&theirs[0], "one").await;
    let again = create(&theirs[0], "one", "third").await;
    let _hub = Hub::start(&bus, apis[0].client()).await;
    until(&theirs[0], "applied", |works| is_done(&works["one"])).await;
    assert_eq!(here.get("one").await.unwrap().uid(), again.uid());
    assert_eq!(
        until(&here, "both", |works| works.len() == 2).await.len(),
        2
    );
}

/// Refuses statuses of works called `bad`, as long as it is told to.
#[derive(Default)]
struct NoBad(AtomicBool);

impl Admission for NoBad {
    fn name(&self) -> &'static str {
        "no-bad"
    }

    fn admit(&self, request: &AdmissionRequest<'_>) -> Result<(), String> {
        let refused = request.subresource == Some("status")
            && request.name == "bad"
            && self.0.load(Ordering::SeqCst);
        if refused {
            return Err("not now".to_owned());
        }
        Ok(())
    }
}

/// A status that cannot be written keeps no other waiting, and is written when that is possible.
#[tokio::test(start_paused = true)]
async fn a_status_that_the_hub_refuses_stops_no_other() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let refuses = Arc::new(NoBad(AtomicBool::new(true)));
    let (bus, api) = (Loopback::new(), hub_with(Arc::clone(&refuses)).await);
    let _hub = Hub::start(&bus, api.client()).await;
    let there = on_hub(&api, "edge-a");
    let edge = Edge::start(&bus, "edge-a", None).await;
    create(&there, "bad", "first").await;
    until(&edge.api("edge-a"), "applied", |works| {
        works.values().all(is_done)
    })
    .await;
    for at in 0..40 {
        create(&there, &format!("good-{at}"), "first").await;
    }
    let good = |works: &BTreeMap<String, ManifestWork>| {
        let mut works = works.iter();
        works.all(|(name, work)| name == "bad" || is_done(work))
    };
    until(&there, "the others", good).await;
    assert_eq!(there.get("bad").await.unwrap().status, None);
    let counted = recorder.handle().render();
    let failed = "muster_event_status_writes_failed_total ";
    let failed = counted.lines().find_map(|line| line.strip_prefix(failed));
    assert!(failed.unwrap().parse::<u64>().unwrap() >= 1, "{counted}");
    refuses.0.store(false, Ordering::SeqCst);
    until(&there, "all", |works| works.values().all(is_done)).await;
}

/// What cannot be sent says so where its owner looks, and stops nothing else; mended, it goes.
#[tokio::test(start_paused = true)]
async fn a_work_that_cannot_be_sent_says_so() {
    let (bus, api) = (Loopback::new(), hub_api().await);
    let _hub = Hub::start(&bus, api.client()).await;
    let there = on_hub(&api, "edge-a");
    let _edge = Edge::start(&bus, "edge-a", None).await;
    create(&there, "bad", "first").await;
    create(&there, "good", "first").await;
    until(&there, "applied", |works| works.values().all(is_done)).await;
    let nameless = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}});
    let spec_of = |manifest: Value| json!({"spec": {"workload": {"manifests": [manifest]}}});
    change(&there, "bad", spec_of(nameless)).await;
    let said = |works: &BTreeMap<String, ManifestWork>| {
        let status = works["bad"].status.as_ref();
        let conditions = status.map_or(&[][..], |status| &status.conditions);
        conditions.len() == 1 && conditions[0].reason == "NotSendable"
    };
    let works = until(&there, "told", said).await;
    let condition = &works["bad"].status.as_ref().unwrap().conditions[0];
    assert_eq!(
        (&*condition.type_, &*condition.status),
        ("Applied", "False")
    );
    assert_eq!(condition.observed_generation, Some(2));
    assert!(condition.message.contains("name"), "{}", condition.message);
    change(&there, "good", json!({"spec": spec("second")})).await;
    until(&there, "the other", |works| is_done(&works["good"])).await;
    change(&there, "bad", json!({"spec": spec("third")})).await;
    until(&there, "mended", |works| works.values().all(is_done)).await;
}

/// As a client-side `kubectl apply` leaves it: with a copy of itself in an annotation.
fn applied(name: &str, bytes: usize) -> ManifestWork {
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "m", "namespace": "default"}, "data": {"text": "x".repeat(bytes)},
    });
    let mut work = json!({
        "apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
        "metadata": {"name": name},
        "spec": {"workload": {"manifests": [map]}},
    });
    // kubectl itself has no room for more.
    let mut copy = work.to_string();
    copy.truncate(240_000);
    work["metadata"]["annotations"] =
        json!({"kubectl.kubernetes.io/last-applied-configuration": copy, "mine": "1"});
    serde_json::from_value(work).unwrap()
}

#[tokio::test(start_paused = true)]
async fn works_as_kubectl_applies_them_arrive_and_go() {
    let (bus, api) = (Loopback::new(), hub_api().await);
    let _hub = Hub::start(&bus, api.client()).await;
    let there = on_hub(&api, "edge-a");
    let edge = Edge::start(&bus, "edge-a", None).await;
    let here = edge.api("edge-a");
    for (name, bytes) in [("large", 120_000), ("largest", 511_800)] {
        let params = PostParams::default();
        there.create(&params, &applied(name, bytes)).await.unwrap();
        until(&here, name, |works| works.contains_key(name)).await;
        let work = here.get(name).await.unwrap();
        assert!(work.spec.workload.manifests[0].as_json().len() > bytes);
        assert_eq!(work.annotations()["mine"], "1");
        let copy = "kubectl.kubernetes.io/last-applied-configuration";
        assert!(!work.annotations().contains_key(copy));
        delete(&there, name).await;
        until(&there, "gone", |works| !works.contains_key(name)).await;
        until(&here, "gone", |works| !works.contains_key(name)).await;
    }
}

/// Annotations that no event can carry keep a work from being sent, and never from being deleted,
/// whether its agent has an older version of it or nothing.
#[tokio::test(start_paused = true)]
async fn a_work_that_cannot_be_sent_can_be_deleted() {
    let (bus, api) = (Loopback::new(), hub_api().await);
    let _hub = Hub::start(&bus, api.client()).await;
    let (there, away) = (on_hub(&api, "edge-a"), on_hub(&api, "edge-b"));
    let edge = Edge::start(&bus, "edge-a", None).await;
    let here = edge.api("edge-a");
    create(&there, "had", "first").await;
    until(&there, "applied", |works| works.values().all(is_done)).await;
    let long =
        json!({"metadata": {"annotations": {"mine": "x".repeat(200_000)}}, "spec": spec("second")});
    create(&there, "new", "first").await;
    create(&away, "away", "first").await;
    for (api, name) in [(&there, "had"), (&there, "new"), (&away, "away")] {
        change(api, name, long.clone()).await;
        let said = |works: &BTreeMap<String, ManifestWork>| {
            let status = works[name].status.as_ref();
            let mut conditions = status.into_iter().flat_map(|status| &status.conditions);
            conditions.any(|condition| {
                condition.reason == "NotSendable" && condition.message.contains("mine has 200000")
            })
        };
        until(api, name, said).await;
    }
    for (api, name) in [(&there, "had"), (&there, "new"), (&away, "away")] {
        delete(api, name).await;
        until(api, name, |works| !works.contains_key(name)).await;
    }
    until(&here, "gone", BTreeMap::is_empty).await;
}

/// What is wrong with one manifest of a bundle is that one's: the agent gets them all.
#[tokio::test(start_paused = true)]
async fn a_bundle_with_a_manifest_that_cannot_be_applied_arrives() {
    let bus = Loopback::new();
    let edge = Edge::start(&bus, "edge-a", None).await;
    let here = edge.api("edge-a");
    let source = Source::new("hub", dialect(), WorkCodec(Form::Bundles)).unwrap();
    let mut work: ManifestWork = serde_json::from_value(json!({
        "apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
        "metadata": {"name": "w", "namespace": "edge-a", "uid": "u", "generation": 1},
        "spec": spec("first"),
    }))
    .unwrap();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "taken-out"}});
    let pod = serde_json::from_value(pod).unwrap();
    work.spec.workload.manifests.insert(0, pod);
    let mut outgoing = source.send(Action::CreateRequest, &work).unwrap();
    let text = String::from_utf8(outgoing.message.payload.to_vec()).unwrap();
    let text = text.replace(r#""name":"taken-out""#, r#""generateName":"web-""#);
    assert!(text.contains("generateName"));
    outgoing.message.payload = text.into();
    let connection = bus.open(Session::default());
    connection.publisher.publish(outgoing).await.unwrap();
    until(&here, "w", |works| works.contains_key("w")).await;
    let manifests = here.get("w").await.unwrap().spec.workload.manifests;
    assert_eq!(manifests.len(), 2);
    assert!(manifests[0].as_json().contains("generateName"));
}

/// An event of the design text with one manifest: the status of its object comes back whole.
#[tokio::test(start_paused = true)]
async fn a_manifest_event_is_answered_with_the_status_of_its_object() {
    let bus = Loopback::new();
    let agent = AgentEvents {
        cluster: "edge-a".to_owned(),
        agent: "edge-a-work-agent".to_owned(),
        dialect: Dialect::Enhancement,
        form: Form::Bundle,
        file: None,
        options: options(),
    };
    let works = AgentWorks::start(agent, &bus).await.unwrap();
    let here: Api<ManifestWork> = Api::namespaced(works.client(), "edge-a");
    let codec = WorkCodec(Form::Manifest);
    let source = Source::new("hub", Dialect::Enhancement, codec).unwrap();
    let work = serde_json::from_value(json!({
        "apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
        "metadata": {"name": "w", "namespace": "edge-a", "uid": "u", "generation": 1},
        "spec": spec("first"),
    }));
    let filters = vec!["/sources/hub/clusters/+/status".to_owned()];
    let mut wire = bus.open(Session {
        filters,
        will: None,
    });
    let outgoing = source.send(Action::CreateRequest, &work.unwrap()).unwrap();
    wire.publisher.publish(outgoing).await.unwrap();
    let there = until(&here, "u", |works| works.contains_key("u")).await;
    assert!(carries_content(there["u"].metadata.annotations.as_ref()));
    // Longer than the hub's API would take.
    let content = json!({"conditions": [{"type": "Progressing", "message": "x".repeat(5_000)}]});
    let value = json!({"name": "status", "fieldValue": {"type": "JsonRaw", "jsonRaw": content.to_string()}});
    let manifest = json!({
        "resourceMeta": {"ordinal": 0, "kind": "ConfigMap", "name": "m"},
        "statusFeedback": {"values": [value]},
        "conditions": [],
    });
    let status = json!({"status": {"resourceStatus": {"manifests": [manifest]}}});
    let params = PatchParams::default();
    here.patch_status("u", &params, &Patch::Merge(status))
        .await
        .unwrap();
    loop {
        let event = tokio::time::timeout(DEADLINE, wire.events.recv()).await;
        let BusEvent::Message(message) = event.unwrap().unwrap() else {
            continue;
        };
        let payload: Value = serde_json::from_slice(&message.message.payload).unwrap();
        if !payload["contentStatus"].is_null() {
            assert_eq!(payload["contentStatus"], content);
            return;
        }
    }
}

/// An agent with a clock that was set back, over a restart with what it had.
#[tokio::test(start_paused = true)]
async fn an_agent_keeps_above_the_sequence_ids_of_its_last_life() {
    let (bus, api) = (Loopback::new(), hub_api().await);
    let _hub = Hub::start(&bus, api.client()).await;
    let there = on_hub(&api, "edge-a");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("edge-a.redb");
    let edge = Edge::start(&bus, "edge-a", Some(file.clone())).await;
    create(&there, "one", "first").await;
    until(&there, "applied", |works| works.values().all(is_done)).await;
    edge.stop().await;
    // As if it had been an hour ahead.
    let kept = dir.path().join("edge-a.sequence");
    let id: i64 = std::fs::read_to_string(&kept).unwrap().parse().unwrap();
    std::fs::write(&kept, (id + (3_600_000 << 22)).to_string()).unwrap();
    let edge = Edge::start(&bus, "edge-a", Some(file)).await;
    change(&there, "one", json!({"spec": spec("second")})).await;
    until(&there, "second", |works| works.values().all(is_done)).await;
    edge.stop().await;
    let next: i64 = std::fs::read_to_string(&kept).unwrap().parse().unwrap();
    assert!(next > id + (3_600_000 << 22), "{next} {id}");
}

/// Whatever the bus does, and whoever starts anew: in the end each cluster has what the hub wants,
/// and the hub knows.
#[tokio::test(start_paused = true)]
async fn whatever_happens_hub_and_agents_come_to_agree() {
    for seed in 0..6 {
        agree(seed).await;
    }
}

async fn agree(seed: u64) {
    let dir = tempfile::tempdir().unwrap();
    let mut random = StdRng::seed_from_u64(seed);
    let api = hub_api().await;
    let bus = Flaky::new(Loopback::new(), seed);
    let mut hub = Hub::start(&bus, api.client()).await;
    let file = |cluster: &str| (cluster == "edge-b").then(|| dir.path().join("works.redb"));
    let mut edges = BTreeMap::new();
    for cluster in CLUSTERS {
        edges.insert(cluster, Edge::start(&bus, cluster, file(cluster)).await);
    }
    for step in 0..120 {
        let cluster = CLUSTERS.choose(&mut random).unwrap();
        let there = on_hub(&api, cluster);
        let name = format!("work-{}", random.random_range(0..8));
        let found = there.get_opt(&name).await.unwrap();
        match random.random_range(0..40) {
            0..38 if found.is_none() => {
                create(&there, &name, &format!("step {step}")).await;
            }
            // It may have gone meanwhile.
            0..24 => {
                let patch = Patch::Merge(json!({"spec": spec(&format!("step {step}"))}));
                let _ = there.patch(&name, &PatchParams::default(), &patch).await;
            }
            24..38 => {
                let _ = there.delete(&name, &DeleteParams::default()).await;
            }
            38 => {
                let edge = edges.remove(cluster).unwrap();
                edge.stop().await;
                edges.insert(*cluster, Edge::start(&bus, cluster, file(cluster)).await);
            }
            _ => {
                drop(hub);
                hub = Hub::start(&bus, api.client()).await;
            }
        }
        tokio::time::sleep(Duration::from_millis(random.random_range(0..50))).await;
    }
    let harm = bus.calm();
    assert!(harm > 20, "{harm}");
    for cluster in CLUSTERS {
        let all = |works: &BTreeMap<_, ManifestWork>| {
            let going = |work: &ManifestWork| work.metadata.deletion_timestamp.is_some();
            works.values().all(|work| is_done(work) && !going(work))
        };
        let what = format!("seed {seed}, {cluster}");
        let there = on_hub(&api, cluster);
        until(&there, &what, all).await;
        // Two rounds of requests later it is still so.
        tokio::time::sleep(Duration::from_secs(25)).await;
        let there = until(&there, &what, all).await;
        let here = until(&edges[cluster].api(cluster), &what, all).await;
        let what = |works: &BTreeMap<String, ManifestWork>| -> Vec<_> {
            let works = works.iter();
            works
                .map(|(name, work)| (name.clone(), work.uid(), json!(work.spec)))
                .collect()
        };
        assert_eq!(what(&here), what(&there), "seed {seed}, {cluster}");
    }
    assert_eq!(hub.link.waiting(), 0);
    for (cluster, edge) in &edges {
        assert_eq!(edge.works.link().waiting(), 0, "seed {seed}, {cluster}");
    }
}
