//! The hub against an API server, without agents: the test writes what agents would report.
//!
//! | Upstream row | Test |
//! |---|---|
//! | R01, R02, R03 | `every_selected_cluster_gets_a_labelled_work` |
//! | R04, C073 | `a_cluster_that_leaves_loses_its_work` |
//! | R05, E18, C079 | `background_deletion_…`, `foreground_deletion_…` |
//! | R06 to R10 | `status_follows_what_works_report` |
//! | R11, R12, C061 | `another_placement_takes_over` |
//! | C064 | `a_work_of_a_user_with_the_same_name_is_left_alone` |
//! | R13 to R22 | `rollouts` |
//!
//! Revisions, pauses and sweeps are muster's own.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::needless_pass_by_value,
    reason = "helpers of tests fail by panicking and take what reads best"
)]

mod answers;
mod departures;
mod revisions;
mod rollouts;
mod sweep;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use actix::Addr;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use muster_actors::hub::{HubDeps, HubSettings, PlacementResolver, ReplicaSets, register_cluster};
use muster_actors::supervision::{Health, Io, Registry, stop};
use muster_api::cluster::ManagedCluster;
use muster_api::placement::{Placement, PlacementDecision};
use muster_api::replicaset::{
    ManifestWorkReplicaSet, ManifestWorkReplicaSetStatus, ReplicaSetPhase,
};
use muster_api::work::ManifestWork;
use muster_api::{conditions, constants as names};
use muster_apiserver::{ApiServer, Storage};
use serde_json::{Value, json};

/// A hub with its controllers, on an API server of its own.
struct Hub {
    api: ApiServer,
    client: Client,
    registry: Registry,
    health: Health,
    deps: HubDeps,
    sets: Addr<ReplicaSets>,
    resolver: Addr<PlacementResolver>,
}

impl Hub {
    /// A hub with clusters `c1`, `c2`, … labelled `env=prod`.
    async fn start(clusters: usize) -> Self {
        Self::start_with(clusters, Clone::clone, HubSettings::default()).await
    }

    /// One whose controllers have another client than the test.
    async fn start_with(
        clusters: usize,
        through: impl FnOnce(&Client) -> Client,
        settings: HubSettings,
    ) -> Self {
        let mut builder = ApiServer::builder().storage(Storage::Memory);
        for crd in muster_api::crds::hub() {
            builder = builder.crd(crd);
        }
        let api = builder.build().await.unwrap();
        let client = api.client();
        for n in 1..=clusters {
            let labels = [("env".to_owned(), "prod".to_owned())].into();
            register_cluster(&client, &format!("c{n}"), &labels)
                .await
                .unwrap();
        }
        let registry = Registry::new();
        let health = Health::new();
        let deps = HubDeps {
            client: through(&client),
            io: Io::current(),
            registry: registry.clone(),
            health: health.clone(),
            agents: None,
            events: None,
            settings,
        };
        let resolver = PlacementResolver::start(deps.clone());
        let sets = ReplicaSets::start(deps.clone());
        Self {
            api,
            client,
            registry,
            health,
            deps,
            sets,
            resolver,
        }
    }

    /// Stops in order and checks that nothing is left.
    async fn stop(self) {
        let limit = Duration::from_secs(10);
        assert!(stop(&self.sets, limit).await);
        assert!(stop(&self.resolver, limit).await);
        let ended = self.registry.ended(limit).await;
        let report = self.registry.report(limit).await;
        assert_eq!((ended, self.registry.panics()), (Ok(()), 0), "{report:?}");
        assert!(
            self.health.not_ready().is_empty(),
            "streams leave with their actors"
        );
        self.api.shutdown().await;
    }

    fn sets(&self) -> Api<ManifestWorkReplicaSet> {
        Api::namespaced(self.client.clone(), "default")
    }

    fn placements(&self) -> Api<Placement> {
        Api::namespaced(self.client.clone(), "default")
    }

    fn works(&self, cluster: &str) -> Api<ManifestWork> {
        Api::namespaced(self.client.clone(), cluster)
    }

    async fn all_works(&self) -> Vec<ManifestWork> {
        Api::all(self.client.clone())
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
    }

    async fn place(&self, name: &str, spec: Value) {
        let placement = json!({
            "apiVersion": "cluster.open-cluster-management.io/v1beta1", "kind": "Placement",
            "metadata": {"namespace": "default", "name": name}, "spec": spec});
        let placement = serde_json::from_value(placement).unwrap();
        self.placements()
            .create(&PostParams::default(), &placement)
            .await
            .unwrap();
    }

    async fn create_set(&self, name: &str, placements: &[&str], more: Value) {
        let refs: Vec<Value> = placements
            .iter()
            .map(|name| json!({"name": name}))
            .collect();
        let mut set = json!({
            "apiVersion": "work.open-cluster-management.io/v1alpha1",
            "kind": "ManifestWorkReplicaSet",
            "metadata": {"namespace": "default", "name": name, "labels": {"team": "a"}},
            "spec": {"placementRefs": refs, "manifestWorkTemplate": template("one")}});
        for (key, value) in more.as_object().unwrap() {
            set["spec"][key] = value.clone();
        }
        let set = serde_json::from_value(set).unwrap();
        self.sets()
            .create(&PostParams::default(), &set)
            .await
            .unwrap();
    }

    async fn patch_set(&self, name: &str, patch: Value) {
        self.sets()
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
    }

    async fn status(&self, name: &str) -> ManifestWorkReplicaSetStatus {
        self.sets()
            .get(name)
            .await
            .unwrap()
            .status
            .unwrap_or_default()
    }

    /// Waits until exactly one work of every named cluster, and no other, exists.
    async fn works_are_in(&self, clusters: &[&str]) -> Vec<ManifestWork> {
        eventually("works are in the wanted clusters", || async {
            let works = self.all_works().await;
            let mut at: Vec<String> = works.iter().filter_map(ResourceExt::namespace).collect();
            at.sort();
            if at == clusters { Ok(works) } else { Err(at) }
        })
        .await
    }

    /// Reports, as an agent would, conditions of the work's current generation.
    async fn report(&self, work: &ManifestWork, reported: &[(&str, &str)], ready: i64) {
        let generation = work.metadata.generation;
        let conditions: Vec<Value> = reported
            .iter()
            .map(|(kind, status)| {
                json!({"type": kind, "status": status, "observedGeneration": generation,
                    "reason": "Test", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"})
            })
            .collect();
        let patch = json!({"status": {"conditions": conditions, "resourceStatus": {"manifests": [{
            "resourceMeta": {"ordinal": 0, "group": "", "version": "v1", "kind": "ConfigMap",
                "resource": "configmaps", "name": "cm", "namespace": "default"},
            "conditions": [],
            "statusFeedback": {"values": [
                {"name": "Ready", "fieldValue": {"type": "Integer", "integer": ready}}]}}]}}});
        self.works(&work.namespace().unwrap())
            .patch_status(
                &work.name_any(),
                &PatchParams::default(),
                &Patch::Merge(patch),
            )
            .await
            .unwrap();
    }
}

fn template(value: &str) -> Value {
    json!({"workload": {"manifests": [{
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": "default", "name": "cm"}, "data": {"key": value}}]}})
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

fn condition(status: &ManifestWorkReplicaSetStatus, kind: &str) -> String {
    conditions::find(&status.conditions, kind)
        .map_or_else(String::new, |c| format!("{} {}", c.status, c.reason))
}

#[actix::test]
async fn every_selected_cluster_gets_a_labelled_work() {
    let hub = Hub::start(3).await;
    hub.create_set("web", &["all"], json!({})).await;
    let status = eventually("a missing placement is told", || async {
        let status = hub.status("web").await;
        let verified = condition(&status, "PlacementVerified");
        if verified == "False PlacementDecisionNotFound" {
            Ok(status)
        } else {
            Err(verified)
        }
    })
    .await;
    assert_eq!(status.message, "placement all does not exist");
    assert_eq!(status.phase, None);

    hub.place("all", json!({})).await;
    for work in hub.works_are_in(&["c1", "c2", "c3"]).await {
        let label = |key: &str| work.labels().get(key).map(String::as_str);
        assert_eq!(
            label(names::MANIFEST_WORK_REPLICA_SET_CONTROLLER_NAME_LABEL_KEY),
            Some("default.web")
        );
        assert_eq!(
            label(names::MANIFEST_WORK_REPLICA_SET_PLACEMENT_NAME_LABEL_KEY),
            Some("all")
        );
        assert_eq!(label("team"), Some("a"));
        assert_eq!(
            work.spec.workload.manifests[0].to_value().unwrap(),
            template("one")["workload"]["manifests"][0]
        );
    }
    let summary = eventually("the summary counts three", || async {
        let summary = hub.status("web").await.summary;
        if summary.updated == 3 {
            Ok(summary)
        } else {
            Err(summary)
        }
    })
    .await;
    assert_eq!(
        (summary.total, summary.desired_total, summary.applied),
        (3, 3, 0)
    );
    let placement = hub.placements().get("all").await.unwrap().status.unwrap();
    assert_eq!(placement.number_of_selected_clusters, 3);
    let decisions: Api<PlacementDecision> = Api::namespaced(hub.client.clone(), "default");
    let decision = decisions.get("all-decision-1").await.unwrap();
    assert_eq!(decision.labels()[names::PLACEMENT_LABEL], "all");
    hub.stop().await;
}

#[actix::test]
async fn a_cluster_that_leaves_loses_its_work() {
    let hub = Hub::start(3).await;
    hub.place(
        "prod",
        json!({"predicates": [{"requiredClusterSelector":
        {"labelSelector": {"matchLabels": {"env": "prod"}}}}]}),
    )
    .await;
    hub.create_set("web", &["prod"], json!({})).await;
    hub.works_are_in(&["c1", "c2", "c3"]).await;
    register_cluster(
        &hub.client,
        "c2",
        &BTreeMap::from([("env".into(), "dev".into())]),
    )
    .await
    .unwrap();
    hub.works_are_in(&["c1", "c3"]).await;
    eventually("the summary counts two", || async {
        let summary = hub.status("web").await.summary;
        if (summary.total, summary.desired_total) == (2, 2) {
            Ok(())
        } else {
            Err(summary)
        }
    })
    .await;
    hub.stop().await;
}

/// C074: a cluster vanishes with all it has while the hub is away.
#[actix::test]
async fn a_cluster_that_vanished_meanwhile_does_not_count() {
    let mut hub = Hub::start(3).await;
    hub.place("all", json!({})).await;
    hub.create_set("web", &["all"], json!({})).await;
    let counts = async |hub: &Hub, total: i64| {
        eventually("the summary counts them", || async {
            let summary = hub.status("web").await.summary;
            if (summary.total, summary.desired_total) == (total, total) {
                Ok(())
            } else {
                Err(summary)
            }
        })
        .await;
    };
    hub.works_are_in(&["c1", "c2", "c3"]).await;
    counts(&hub, 3).await;
    assert!(stop(&hub.sets, Duration::from_secs(10)).await);
    let clusters: Api<ManagedCluster> = Api::all(hub.client.clone());
    clusters
        .delete("c2", &DeleteParams::default())
        .await
        .unwrap();
    hub.works("c2")
        .delete_collection(&DeleteParams::default(), &ListParams::default())
        .await
        .unwrap();
    hub.works_are_in(&["c1", "c3"]).await;
    hub.sets = ReplicaSets::start(hub.deps.clone());
    counts(&hub, 2).await;
    hub.works_are_in(&["c1", "c3"]).await;
    hub.stop().await;
}

#[actix::test]
async fn a_changed_template_and_a_hand_edit_are_brought_in_line() {
    let hub = Hub::start(2).await;
    hub.place("all", json!({})).await;
    hub.create_set("web", &["all"], json!({})).await;
    let works = hub.works_are_in(&["c1", "c2"]).await;
    hub.patch_set(
        "web",
        json!({"spec": {"manifestWorkTemplate": template("two")}}),
    )
    .await;
    let value_in = async |cluster: &str| {
        let work = hub.works(cluster).get(&works[0].name_any()).await.unwrap();
        work.spec.workload.manifests[0].to_value().unwrap()["data"]["key"].clone()
    };
    let settled = async |what| {
        eventually(what, || async {
            let seen = (value_in("c1").await, value_in("c2").await);
            if seen == (json!("two"), json!("two")) {
                Ok(())
            } else {
                Err(seen)
            }
        })
        .await;
    };
    settled("both works carry the new template").await;
    let edit = json!({"spec": template("edited by hand")});
    hub.works("c1")
        .patch(
            &works[0].name_any(),
            &PatchParams::default(),
            &Patch::Merge(edit),
        )
        .await
        .unwrap();
    settled("the hand edit is repaired").await;
    hub.stop().await;
}

#[actix::test]
async fn status_follows_what_works_report() {
    let hub = Hub::start(1).await;
    hub.place("all", json!({})).await;
    hub.create_set("web", &["all"], json!({})).await;
    let work = hub.works_are_in(&["c1"]).await.remove(0);
    let until = async |what: &str, wanted: [i64; 4]| {
        eventually(what, || async {
            let status = hub.status("web").await;
            let s = status.summary;
            let seen = [s.applied, s.available, s.degraded, s.progressing];
            if s.total == 1 && seen == wanted {
                Ok(status)
            } else {
                Err(s)
            }
        })
        .await
    };
    let status = until("nothing is reported yet", [0, 0, 0, 0]).await;
    assert_eq!(
        condition(&status, "PlacementRolledOut"),
        "False Progressing"
    );

    hub.report(
        &work,
        &[
            ("Applied", "True"),
            ("Available", "True"),
            ("Progressing", "False"),
        ],
        3,
    )
    .await;
    let status = until("the work is available", [1, 1, 0, 0]).await;
    assert_eq!(condition(&status, "PlacementRolledOut"), "True Complete");
    assert_eq!(condition(&status, "ManifestworkApplied"), "True AsExpected");
    assert_eq!(condition(&status, "Ready"), "True AllClustersAvailable");
    assert_eq!(condition(&status, "Progressing"), "False AllClustersReady");
    assert_eq!(status.phase, Some(ReplicaSetPhase::Ready));
    assert_eq!(status.feedback[0].values[0].sum, Some(3));
    assert_eq!(
        status.placements_summary[0].available_decision_groups,
        "1 (1 / 1 clusters applied)"
    );

    let failing = [
        ("Applied", "True"),
        ("Available", "False"),
        ("Progressing", "True"),
        ("Degraded", "True"),
    ];
    hub.report(&work, &failing, 1).await;
    let status = until("the work is degraded", [1, 0, 1, 1]).await;
    assert_eq!(
        condition(&status, "PlacementRolledOut"),
        "False Progressing"
    );
    assert_eq!(status.phase, Some(ReplicaSetPhase::Failed));
    assert_eq!(
        status.message,
        "ManifestWorks available in 0/1 clusters, 1 degraded; first degraded c1: Degraded is True"
    );

    // What cannot be applied is told with its text, in one look.
    let (generation, since) = (work.metadata.generation, "2026-01-01T00:00:00Z");
    let text = "Failed to apply manifest work: 1 of 1 failed, first: Widget w: no such type";
    let conditions = json!([{"type": "Applied", "status": "False", "reason": "R", "message": text,
        "observedGeneration": generation, "lastTransitionTime": since}]);
    let patch = Patch::Merge(json!({"status": {"conditions": conditions}}));
    hub.works("c1")
        .patch_status(&work.name_any(), &PatchParams::default(), &patch)
        .await
        .unwrap();
    let status = until("the work is not applied", [0, 0, 1, 0]).await;
    assert_eq!(status.phase, Some(ReplicaSetPhase::Failed));
    assert_eq!(condition(&status, "Progressing"), "False ClustersFailed");
    assert_eq!(
        status.message,
        format!("ManifestWorks available in 0/1 clusters, 1 failed; first failed c1: {text}")
    );
    hub.stop().await;
}

/// What the condition of a cluster says of its agent.
async fn agent_is(hub: &Hub, cluster: &str, status: &str) {
    let clusters: Api<muster_api::cluster::ManagedCluster> = Api::all(hub.client.clone());
    let conditions = json!([{"type": "ManagedClusterConditionAvailable", "status": status,
        "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    let patch = Patch::Merge(json!({"status": {"conditions": conditions}}));
    clusters
        .patch_status(cluster, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

#[actix::test]
async fn a_cluster_whose_condition_says_that_its_agent_is_away_is_unknown() {
    let hub = Hub::start(2).await;
    hub.place("all", json!({})).await;
    hub.create_set("web", &["all"], json!({})).await;
    for work in hub.works_are_in(&["c1", "c2"]).await {
        hub.report(&work, &[("Applied", "True"), ("Available", "True")], 1)
            .await;
    }
    let says = async |expected: &str| {
        eventually("the set says so", || async {
            let status = hub.status("web").await;
            if status.message == expected {
                Ok(status)
            } else {
                Err(status.message)
            }
        })
        .await
    };
    says("ManifestWorks available in 2/2 clusters").await;
    for unavailable in ["Unknown", "False"] {
        agent_is(&hub, "c2", unavailable).await;
        let status = says(
            "ManifestWorks available in 1/2 clusters, unknown in 1: the agent of c2 is away since \
             2026-01-01T00:00:00Z",
        )
        .await;
        assert_eq!(status.summary.available, 1);
        assert_eq!(condition(&status, "Progressing"), "True AgentAway");
        assert_eq!(condition(&status, "Ready"), "False NotAllClustersAvailable");
        agent_is(&hub, "c2", "True").await;
        says("ManifestWorks available in 2/2 clusters").await;
    }
    hub.stop().await;
}

/// A client that is refused whatever it asks of ManagedClusters.
fn without_clusters(client: &Client) -> Client {
    let client = client.clone();
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let client = client.clone();
        async move {
            if request.uri().path().contains("/managedclusters") {
                let refused = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                    "reason": "Forbidden", "message": "no right to list", "code": 403});
                let body = kube::client::Body::from(refused.to_string().into_bytes());
                let answer = http::Response::builder().status(403).body(body);
                return Ok::<_, tower::BoxError>(answer?);
            }
            Ok(client.send(request).await?)
        }
    });
    Client::new(service, "default")
}

#[actix::test]
async fn a_hub_that_may_not_read_clusters_rolls_out_all_the_same() {
    // The resolver has its own rights: the decisions are somebody else's here.
    let hub = Hub::start_with(1, without_clusters, HubSettings::default()).await;
    hub.place("all", json!({})).await;
    let labels = json!({"cluster.open-cluster-management.io/placement": "all",
        "cluster.open-cluster-management.io/decision-group-index": "0"});
    let decision = json!({"apiVersion": "cluster.open-cluster-management.io/v1beta1",
        "kind": "PlacementDecision",
        "metadata": {"namespace": "default", "name": "all-1", "labels": labels}});
    let decisions: Api<PlacementDecision> = Api::namespaced(hub.client.clone(), "default");
    decisions
        .create(
            &PostParams::default(),
            &serde_json::from_value(decision).unwrap(),
        )
        .await
        .unwrap();
    let status = json!({"status": {"decisions": [{"clusterName": "c1", "reason": ""}]}});
    decisions
        .patch_status("all-1", &PatchParams::default(), &Patch::Merge(status))
        .await
        .unwrap();
    let selected = json!({"status": {"numberOfSelectedClusters": 1}});
    hub.placements()
        .patch_status("all", &PatchParams::default(), &Patch::Merge(selected))
        .await
        .unwrap();
    hub.create_set("web", &["all"], json!({})).await;
    hub.works_are_in(&["c1"]).await;
    hub.stop().await;
}

#[actix::test]
async fn an_idle_hub_writes_nothing() {
    let hub = Hub::start(2).await;
    hub.place("all", json!({})).await;
    hub.create_set("web", &["all"], json!({})).await;
    let works = hub.works_are_in(&["c1", "c2"]).await;
    for work in &works {
        hub.report(work, &[("Applied", "True"), ("Available", "True")], 1)
            .await;
    }
    eventually("the set is ready", || async {
        let status = hub.status("web").await;
        if status.phase == Some(ReplicaSetPhase::Ready) {
            Ok(())
        } else {
            Err(status.message)
        }
    })
    .await;
    let writes = || {
        let stats = hub.api.stats();
        ["create", "update", "patch", "delete"].map(|verb| stats.count_verb(verb))
    };
    let before = writes();
    // The same report again: the API server sees no change, so nothing is told and written.
    for work in &works {
        hub.report(work, &[("Applied", "True"), ("Available", "True")], 1)
            .await;
    }
    // A change elsewhere that the hub must have seen by the time it shows in a status.
    hub.create_set("other", &["none"], json!({})).await;
    eventually("the other set has a status", || async {
        let message = hub.status("other").await.message;
        let revisions = hub.history("other").await;
        if message.is_empty() || revisions.is_empty() {
            Err((message, revisions))
        } else {
            Ok(())
        }
    })
    .await;
    let after = writes();
    // Two reports, one create and, for the other set, a revision, a finalizer and a status: nothing
    // for `web`.
    assert_eq!(after[0] - before[0], 2);
    assert_eq!(after[2] - before[2], 4, "{before:?} {after:?}");
    hub.stop().await;
}

#[actix::test]
async fn another_placement_takes_over() {
    let hub = Hub::start(3).await;
    hub.place("one", json!({"numberOfClusters": 1})).await;
    hub.place("two", json!({"numberOfClusters": 2})).await;
    hub.create_set("web", &["one"], json!({})).await;
    hub.works_are_in(&["c1"]).await;
    hub.patch_set("web", json!({"spec": {"placementRefs": [{"name": "two"}]}}))
        .await;
    for work in hub.works_are_in(&["c1", "c2"]).await {
        assert_eq!(
            work.labels()[names::MANIFEST_WORK_REPLICA_SET_PLACEMENT_NAME_LABEL_KEY],
            "two"
        );
    }
    hub.stop().await;
}

/// Puts a finalizer on every work, as agents do, so that works stay until it is taken off.
async fn hold(hub: &Hub, finalizers: &[&str]) {
    for work in hub.all_works().await {
        let patch = json!({"metadata": {"finalizers": finalizers}});
        hub.works(&work.namespace().unwrap())
            .patch(
                &work.name_any(),
                &PatchParams::default(),
                &Patch::Merge(patch),
            )
            .await
            .unwrap();
    }
}

#[actix::test]
async fn foreground_deletion_waits_for_the_works_and_says_so() {
    let hub = Hub::start(2).await;
    hub.place("all", json!({})).await;
    hub.create_set(
        "web",
        &["all"],
        json!({"cascadeDeletionPolicy": "Foreground"}),
    )
    .await;
    hub.works_are_in(&["c1", "c2"]).await;
    hold(&hub, &["test/hold"]).await;
    hub.sets()
        .delete("web", &DeleteParams::default())
        .await
        .unwrap();
    let waits = async |expected: &str| {
        eventually("the status names what it waits for", || async {
            let message = hub.status("web").await.message;
            if message.contains(expected) {
                Ok(())
            } else {
                Err(message)
            }
        })
        .await;
    };
    waits("deletion waits for 2 ManifestWorks, first c1/web-").await;
    // The second says what for, as agents do.
    let works = hub.works("c2").list(&ListParams::default()).await.unwrap();
    let name = works.items[0].name_any();
    let deleting = json!({"type": "Deleting", "status": "True", "reason": "WorkDeleting",
        "message": "waits for configmaps default/cm with finalizer test/hold",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let patch = Patch::Merge(json!({"status": {"conditions": [deleting]}}));
    hub.works("c2")
        .patch_status(&name, &PatchParams::default(), &patch)
        .await
        .unwrap();
    waits(&format!(
        "deletion waits for 2 ManifestWorks, first c2/{name}: waits for configmaps default/cm with \
         finalizer test/hold"
    ))
    .await;
    hold(&hub, &[]).await;
    eventually("the set goes after its works", || async {
        match (
            hub.sets().get_opt("web").await.unwrap(),
            hub.all_works().await.len(),
        ) {
            (None, 0) => Ok(()),
            (set, works) => Err((set.is_some(), works)),
        }
    })
    .await;
    hub.stop().await;
}

#[actix::test]
async fn background_deletion_does_not_wait_and_a_new_set_adopts_no_dying_work() {
    let hub = Hub::start(1).await;
    hub.place("all", json!({})).await;
    hub.create_set("web", &["all"], json!({})).await;
    hub.works_are_in(&["c1"]).await;
    hold(&hub, &["test/hold"]).await;
    hub.sets()
        .delete("web", &DeleteParams::default())
        .await
        .unwrap();
    eventually("the set goes at once", || async {
        let set = hub.sets().get_opt("web").await.unwrap();
        if set.is_none() { Ok(()) } else { Err(()) }
    })
    .await;
    let dying = hub.all_works().await.remove(0);
    assert!(dying.metadata.deletion_timestamp.is_some());

    hub.create_set("web", &["all"], json!({})).await;
    let status = eventually("the new set has a status", || async {
        let status = hub.status("web").await;
        if status.message.is_empty() {
            Err(())
        } else {
            Ok(status)
        }
    })
    .await;
    assert_eq!(status.summary.total, 0, "a dying work does not count");
    hold(&hub, &[]).await;
    eventually("a new work takes its place", || async {
        let works = hub.all_works().await;
        let new = works.iter().any(|work| work.uid() != dying.uid());
        if works.len() == 1 && new {
            Ok(())
        } else {
            Err(works.len())
        }
    })
    .await;
    hub.stop().await;
}

#[actix::test]
async fn a_cluster_without_namespace_is_told_and_others_go_on() {
    let hub = Hub::start(2).await;
    // A ManagedCluster whose namespace is missing, as when somebody deleted it.
    let orphan = json!({"apiVersion": "cluster.open-cluster-management.io/v1",
        "kind": "ManagedCluster", "metadata": {"name": "c3"}, "spec": {"hubAcceptsClient": true}});
    let clusters: Api<muster_api::cluster::ManagedCluster> = Api::all(hub.client.clone());
    clusters
        .create(
            &PostParams::default(),
            &serde_json::from_value(orphan).unwrap(),
        )
        .await
        .unwrap();
    hub.place("all", json!({})).await;
    hub.create_set("web", &["all"], json!({})).await;
    hub.works_are_in(&["c1", "c2"]).await;
    let message = eventually("the status names the cluster and the error", || async {
        let message = hub.status("web").await.message;
        if message.contains("c3") {
            Ok(message)
        } else {
            Err(message)
        }
    })
    .await;
    assert!(
        message.ends_with("; cluster c3: namespaces \"c3\" not found"),
        "{message}"
    );
    register_cluster(&hub.client, "c3", &BTreeMap::new())
        .await
        .unwrap();
    hub.works_are_in(&["c1", "c2", "c3"]).await;
    eventually("the message recovers", || async {
        let message = hub.status("web").await.message;
        if message.contains("c3") {
            Err(message)
        } else {
            Ok(())
        }
    })
    .await;
    hub.stop().await;
}

#[actix::test]
async fn a_work_of_a_user_with_the_same_name_is_left_alone() {
    let hub = Hub::start(1).await;
    hub.place("all", json!({})).await;
    // The very name that the set will want, made by somebody else.
    let name = muster_core::replicaset::work_name("default", "web", "all");
    let foreign = json!({"apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
        "metadata": {"namespace": "c1", "name": name}, "spec": template("theirs")});
    let foreign: ManifestWork = serde_json::from_value(foreign).unwrap();
    hub.works("c1")
        .create(&PostParams::default(), &foreign)
        .await
        .unwrap();
    hub.create_set("web", &["all"], json!({})).await;
    eventually("the conflict is told", || async {
        let message = hub.status("web").await.message;
        let wanted =
            format!("ManifestWork c1/{name} exists and does not belong to this replica set");
        if message.contains(&wanted) {
            Ok(())
        } else {
            Err(message)
        }
    })
    .await;
    hub.sets()
        .delete("web", &DeleteParams::default())
        .await
        .unwrap();
    eventually("the set goes", || async {
        let set = hub.sets().get_opt("web").await.unwrap();
        if set.is_none() { Ok(()) } else { Err(()) }
    })
    .await;
    let work = hub.works("c1").get(&name).await.unwrap();
    assert_eq!(work.spec, foreign.spec);
    assert!(work.labels().is_empty());
    hub.stop().await;
}

#[actix::test]
async fn a_bad_placement_keeps_its_clusters_and_names_the_field() {
    let hub = Hub::start(2).await;
    hub.place("all", json!({})).await;
    hub.create_set("web", &["all"], json!({})).await;
    hub.works_are_in(&["c1", "c2"]).await;
    let bad = json!({"spec": {"predicates": [{"requiredClusterSelector": {"labelSelector":
        {"matchExpressions": [{"key": "env", "operator": "Like", "values": ["x"]}]}}}]}});
    hub.placements()
        .patch("all", &PatchParams::default(), &Patch::Merge(bad))
        .await
        .unwrap();
    let text = eventually("the placement says what is wrong", || async {
        let status = hub
            .placements()
            .get("all")
            .await
            .unwrap()
            .status
            .unwrap_or_default();
        let found = conditions::find(&status.conditions, names::PLACEMENT_CONDITION_MISCONFIGURED);
        match found {
            Some(condition) if condition.status == "True" => Ok(condition.message.clone()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    assert!(
        text.starts_with("spec.predicates[0].requiredClusterSelector.labelSelector"),
        "{text}"
    );
    hub.works_are_in(&["c1", "c2"]).await;
    hub.stop().await;
}
