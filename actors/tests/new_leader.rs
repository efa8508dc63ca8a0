//! A hub that takes over from another: what it does not know yet, it does not write about.
//!
//! Between the two hubs the template changes, one cluster leaves and one joins. The API server
//! keeps back one of the lists that the second hub asks for, for longer than any retry takes.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking"
)]

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix::Addr;
use http::{Method, Request, Response};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::{Api, Client, ResourceExt};
use muster_actors::hub::{HubDeps, HubSettings, PlacementResolver, ReplicaSets, register_cluster};
use muster_actors::supervision::{Health, Io, Registry, stop};
use muster_api::constants as names;
use muster_api::placement::Placement;
use muster_api::replicaset::ManifestWorkReplicaSet;
use muster_api::work::ManifestWork;
use muster_apiserver::{ApiServer, Storage};
use serde_json::{Value, json};
use tokio::sync::watch;

/// On the paused clock: for as long as nothing else happens.
const LONG: Duration = Duration::from_secs(600);
/// Objects in a page of a list, as the watches ask for it.
const PAGE: usize = 500;

/// What of a list is kept back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    All,
    /// All but its first page.
    Rest,
}

/// The way of a hub to the API server: sees writes, and keeps a list back until it is opened.
#[derive(Clone)]
struct Way {
    client: Client,
    held: Option<(&'static str, Part)>,
    open: watch::Receiver<bool>,
    /// Requests that were kept back.
    kept: Arc<AtomicUsize>,
    /// Method and path of every write.
    writes: Arc<Mutex<Vec<(Method, String)>>>,
}

impl Way {
    fn client(&self) -> Client {
        let way = self.clone();
        let service = tower::service_fn(move |request| {
            let way = way.clone();
            async move { way.pass(request).await }
        });
        Client::new(service, "default")
    }

    async fn pass(&self, request: Request<Body>) -> Result<Response<Body>, tower::BoxError> {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        if method != Method::GET {
            self.writes.lock().unwrap().push((method, path));
        } else if self.holds(&path, request.uri().query().unwrap_or_default()) {
            self.kept.fetch_add(1, Ordering::Relaxed);
            self.open.clone().wait_for(|open| *open).await?;
        }
        Ok(self.client.send(request).await?)
    }

    fn holds(&self, path: &str, query: &str) -> bool {
        self.held.is_some_and(|(resource, part)| {
            path.ends_with(&format!("/{resource}"))
                && !query.contains("watch=")
                && (part == Part::All || query.contains("continue="))
        })
    }

    /// Writes of a resource, or of its status: `POST c4`, where the namespace is c4.
    fn writes(&self, resource: &str) -> Vec<String> {
        let writes = self.writes.lock().unwrap();
        let of = writes.iter().filter_map(|(method, path)| {
            let parts: Vec<_> = path.split('/').collect();
            let at = parts.iter().position(|part| *part == resource)?;
            Some(format!("{method} {}", parts[at - 1]))
        });
        of.collect()
    }
}

/// The actors of a hub that write what others read.
struct Hub {
    registry: Registry,
    sets: Addr<ReplicaSets>,
    resolver: Addr<PlacementResolver>,
}

impl Hub {
    fn start(client: Client) -> Self {
        let registry = Registry::new();
        let deps = HubDeps {
            client,
            io: Io::current(),
            registry: registry.clone(),
            health: Health::new(),
            agents: None,
            events: None,
            settings: HubSettings::default(),
        };
        Self {
            registry,
            resolver: PlacementResolver::start(deps.clone()),
            sets: ReplicaSets::start(deps),
        }
    }

    async fn stop(self) {
        let limit = Duration::from_secs(10);
        assert!(stop(&self.sets, limit).await);
        assert!(stop(&self.resolver, limit).await);
        assert_eq!(self.registry.ended(limit).await, Ok(()));
        assert_eq!(self.registry.panics(), 0);
    }
}

fn template(text: &str) -> Value {
    json!({"workload": {"manifests": [{
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": "default", "name": "cm"}, "data": {"text": text}}]}})
}

fn text(work: &ManifestWork) -> String {
    let manifest = work.spec.workload.manifests[0].to_value().unwrap();
    manifest["data"]["text"].as_str().unwrap().to_owned()
}

async fn label(client: &Client, cluster: &str, env: &str) {
    let labels = [("env".to_owned(), env.to_owned())].into();
    register_cluster(client, cluster, &labels).await.unwrap();
}

/// An API server with a set that selects the clusters c1 to c3 of c1 to c4.
async fn server() -> ApiServer {
    let mut builder = ApiServer::builder().storage(Storage::Memory);
    for crd in muster_api::crds::hub() {
        builder = builder.crd(crd);
    }
    let api = builder.build().await.unwrap();
    let client = api.client();
    for (cluster, env) in [
        ("c1", "prod"),
        ("c2", "prod"),
        ("c3", "prod"),
        ("c4", "dev"),
    ] {
        label(&client, cluster, env).await;
    }
    let placement: Placement = serde_json::from_value(json!({
        "apiVersion": "cluster.open-cluster-management.io/v1beta1", "kind": "Placement",
        "metadata": {"namespace": "default", "name": "prod"},
        "spec": {"predicates": [{"requiredClusterSelector":
            {"labelSelector": {"matchLabels": {"env": "prod"}}}}]}}))
    .unwrap();
    let placements: Api<Placement> = Api::namespaced(client.clone(), "default");
    let params = PostParams::default();
    placements.create(&params, &placement).await.unwrap();
    let set: ManifestWorkReplicaSet = serde_json::from_value(json!({
        "apiVersion": "work.open-cluster-management.io/v1alpha1",
        "kind": "ManifestWorkReplicaSet",
        "metadata": {"namespace": "default", "name": "web"},
        "spec": {"placementRefs": [{"name": "prod"}], "manifestWorkTemplate": template("old")}}))
    .unwrap();
    let sets: Api<ManifestWorkReplicaSet> = Api::namespaced(client, "default");
    sets.create(&params, &set).await.unwrap();
    api
}

/// As many works of another set as fill a page of the list, before those of the clusters.
async fn fill_a_page(client: &Client) {
    label(client, "a", "dev").await;
    let works: Api<ManifestWork> = Api::namespaced(client.clone(), "a");
    for n in 0..PAGE {
        let work: ManifestWork = serde_json::from_value(json!({
            "apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
            "metadata": {"namespace": "a", "name": format!("other-{n}"), "labels": {
                names::MANIFEST_WORK_REPLICA_SET_CONTROLLER_NAME_LABEL_KEY: "default.other"}},
            "spec": template("other")}))
        .unwrap();
        works.create(&PostParams::default(), &work).await.unwrap();
    }
}

/// Polls until `probe` gives `Ok`; the last `Err` is what a failure prints.
async fn eventually<T, E, F>(what: &str, mut probe: impl FnMut() -> F) -> T
where
    E: Debug,
    F: Future<Output = Result<T, E>>,
{
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    loop {
        match probe().await {
            Ok(value) => return value,
            Err(seen) if tokio::time::Instant::now() >= deadline => {
                panic!("{what}: last seen {seen:?}")
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

/// Waits until the works of the set are these: text by cluster. Gives their uids.
async fn works_are(client: &Client, wanted: [(&str, &str); 3]) -> BTreeMap<String, String> {
    let works: Api<ManifestWork> = Api::all(client.clone());
    let label = names::MANIFEST_WORK_REPLICA_SET_CONTROLLER_NAME_LABEL_KEY;
    let of_set = ListParams::default().labels(&format!("{label}=default.web"));
    eventually("works are as wanted", || async {
        let all = works.list(&of_set).await.unwrap().items;
        let mut seen: Vec<_> = all
            .iter()
            .map(|work| (work.namespace().unwrap(), text(work)))
            .collect();
        seen.sort();
        let same = seen.iter().map(|(at, text)| (at.as_str(), text.as_str()));
        if same.eq(wanted) {
            let uids = all
                .iter()
                .map(|w| (w.namespace().unwrap(), w.uid().unwrap()));
            Ok(uids.collect())
        } else {
            Err(seen)
        }
    })
    .await
}

/// Takes over while the API server keeps back this list, which those that write `silent` need.
async fn take_over(held: &'static str, part: Part, silent: &[&str]) {
    let api = server().await;
    let client = api.client();
    let first = Hub::start(client.clone());
    let before = works_are(&client, [("c1", "old"), ("c2", "old"), ("c3", "old")]).await;
    first.stop().await;

    let patch = json!({"spec": {"manifestWorkTemplate": template("new")}});
    let sets: Api<ManifestWorkReplicaSet> = Api::namespaced(client.clone(), "default");
    sets.patch("web", &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
    label(&client, "c3", "dev").await;
    label(&client, "c4", "prod").await;
    if part == Part::Rest {
        fill_a_page(&client).await;
    }

    let (opened, open) = watch::channel(false);
    let way = Way {
        client: client.clone(),
        held: Some((held, part)),
        open,
        kept: Arc::default(),
        writes: Arc::default(),
    };
    let second = Hub::start(way.client());
    tokio::time::sleep(LONG).await;
    assert!(way.kept.load(Ordering::Relaxed) > 0, "{held} not asked for");
    for resource in silent {
        let writes = way.writes(resource);
        assert!(writes.is_empty(), "{resource} without {held}: {writes:?}");
    }

    opened.send_replace(true);
    let after = works_are(&client, [("c1", "new"), ("c2", "new"), ("c4", "new")]).await;
    for cluster in ["c1", "c2"] {
        assert_eq!(after[cluster], before[cluster], "another work in {cluster}");
    }
    // Whoever takes what is not listed for absent tries to create it.
    let writes = way.writes("manifestworks");
    let of = |method: &str| {
        let of = writes.iter().filter(|write| write.starts_with(method));
        of.map(String::as_str).collect::<Vec<_>>()
    };
    assert_eq!(of("POST"), ["POST c4"], "{writes:?}");
    let mut deleted = of("DELETE");
    deleted.dedup(); // asked for again until it is seen gone
    assert_eq!(deleted, ["DELETE c3"], "{writes:?}");
    second.stop().await;
    api.shutdown().await;
}

const OF_SETS: [&str; 2] = ["manifestworks", "manifestworkreplicasets"];
const OF_PLACEMENTS: [&str; 2] = ["placements", "placementdecisions"];
const ALL: [&str; 4] = [
    "manifestworks",
    "manifestworkreplicasets",
    "placements",
    "placementdecisions",
];

#[actix::test]
async fn nothing_is_written_of_works_before_works_and_sets_are_known() {
    tokio::time::pause();
    for list in OF_SETS {
        take_over(list, Part::All, &OF_SETS).await;
    }
}

#[actix::test]
async fn nothing_is_written_before_placements_and_decisions_are_known() {
    tokio::time::pause();
    for list in OF_PLACEMENTS {
        take_over(list, Part::All, &ALL).await;
    }
}

#[actix::test]
async fn nothing_is_decided_before_the_clusters_are_known() {
    tokio::time::pause();
    take_over("managedclusters", Part::All, &OF_PLACEMENTS).await;
}

#[actix::test]
async fn a_list_that_has_begun_is_not_a_list() {
    tokio::time::pause();
    take_over("manifestworks", Part::Rest, &OF_SETS).await;
}
