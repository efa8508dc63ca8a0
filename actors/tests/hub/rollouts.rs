//! Rollouts under a strategy, from the API of the hub and back.

use super::*;

impl Hub {
    /// A hub with a set whose placement selects all its clusters, under a strategy.
    async fn with_strategy(clusters: usize, strategy: Value) -> Self {
        let hub = Self::start(clusters).await;
        hub.place("all", json!({})).await;
        let refs = json!([{"name": "all", "rolloutStrategy": strategy}]);
        hub.create_set("web", &[], json!({"placementRefs": refs}))
            .await;
        hub
    }

    async fn progressive(clusters: usize, body: Value) -> Self {
        Self::with_strategy(
            clusters,
            json!({"type": "Progressive", "progressive": body}),
        )
        .await
    }

    /// The works of the clusters report the same, as agents would.
    async fn all_report(&self, clusters: &[&str], reported: &[(&str, &str)]) {
        for cluster in clusters {
            let works = self.works(cluster);
            let works = works.list(&ListParams::default()).await.unwrap();
            self.report(&works.items[0], reported, 1).await;
        }
    }

    async fn says(&self, kind: &str, expected: &str) -> ManifestWorkReplicaSetStatus {
        eventually(&format!("{kind} is {expected}"), || async {
            let status = self.status("web").await;
            let found = condition(&status, kind);
            if found == expected {
                Ok(status)
            } else {
                Err((found, status.message))
            }
        })
        .await
    }

    /// Whatever the hub still has to do about what it was told is done: it has looked at a set
    /// that was made after it.
    pub(super) async fn is_through(&self, name: &str) {
        self.create_set(name, &["none"], json!({})).await;
        eventually("another set is looked at", || async {
            let status = self.status(name).await;
            if status.conditions.is_empty() {
                Err(())
            } else {
                Ok(())
            }
        })
        .await;
    }
}

const SUCCEEDED: &[(&str, &str)] = &[
    ("Applied", "True"),
    ("Available", "True"),
    ("Progressing", "False"),
];
const FAILED: &[(&str, &str)] = &[
    ("Applied", "True"),
    ("Progressing", "True"),
    ("Degraded", "True"),
];

/// R13 to R16.
#[actix::test]
async fn so_many_clusters_at_a_time() {
    let hub = Hub::progressive(6, json!({"maxConcurrency": 2})).await;
    hub.works_are_in(&["c1", "c2"]).await;
    hub.says("PlacementRolledOut", "False Progressing").await;
    hub.all_report(&["c1", "c2"], SUCCEEDED).await;
    hub.works_are_in(&["c1", "c2", "c3", "c4"]).await;
    hub.says("PlacementRolledOut", "False Progressing").await;
    hub.all_report(&["c3", "c4"], SUCCEEDED).await;
    let all = ["c1", "c2", "c3", "c4", "c5", "c6"];
    hub.works_are_in(&all).await;
    hub.all_report(&["c5", "c6"], SUCCEEDED).await;
    hub.says("PlacementRolledOut", "True Complete").await;
    let status = hub.says("Progressing", "False AllClustersReady").await;
    assert_eq!(status.phase, Some(ReplicaSetPhase::Ready));

    // A changed template begins again, and the works that have not had their turn keep the old one.
    let before = hub.works("c3").list(&ListParams::default()).await.unwrap();
    hub.patch_set(
        "web",
        json!({"spec": {"manifestWorkTemplate": template("two")}}),
    )
    .await;
    eventually("two clusters have the new template", || async {
        let works = hub.all_works().await;
        let new = template("two")["workload"]["manifests"][0].clone();
        let has_it =
            |work: &&ManifestWork| work.spec.workload.manifests[0].to_value().unwrap() == new;
        let at: Vec<_> = works
            .iter()
            .filter(has_it)
            .filter_map(ResourceExt::namespace)
            .collect();
        if at == ["c1", "c2"] { Ok(()) } else { Err(at) }
    })
    .await;
    hub.is_through("other").await;
    let after = hub.works("c3").list(&ListParams::default()).await.unwrap();
    assert_eq!(before.items[0].spec, after.items[0].spec);
    hub.says("Progressing", "True RollingOutToClusters").await;
    eventually("two of six have the new template", || async {
        let summary = hub.status("web").await.summary;
        if (summary.total, summary.updated) == (6, 2) {
            Ok(())
        } else {
            Err(summary)
        }
    })
    .await;
    hub.stop().await;
}

/// R17.
#[actix::test]
async fn failures_stop_it() {
    let hub = Hub::progressive(3, json!({"maxConcurrency": 2, "maxFailures": 1})).await;
    hub.works_are_in(&["c1", "c2"]).await;
    hub.all_report(&["c1", "c2"], FAILED).await;
    let status = hub.says("Progressing", "True Paused").await;
    assert_eq!(
        status.message,
        "ManifestWorks available in 0/3 clusters, 2 degraded; first degraded c1: Degraded is True; \
         stopped: 2 clusters failed, first \
         c1, and maxFailures allows 1"
    );
    assert_eq!(status.phase, Some(ReplicaSetPhase::Failed));
    assert_eq!(
        condition(&status, "PlacementRolledOut"),
        "False Progressing"
    );
    hub.is_through("other").await;
    hub.works_are_in(&["c1", "c2"]).await;
    hub.stop().await;
}

/// R18 and R19: the end of the soak needs no event.
#[actix::test]
async fn the_next_begins_when_the_soak_is_over() {
    let hub = Hub::progressive(2, json!({"maxConcurrency": 1, "minSuccessTime": "1s"})).await;
    hub.works_are_in(&["c1"]).await;
    hub.all_report(&["c1"], SUCCEEDED).await;
    let status = hub.says("Progressing", "True Paused").await;
    let paused = conditions::find(&status.conditions, "Progressing").unwrap();
    assert_eq!(
        paused.message,
        "Rollout is paused to wait for progressive rules"
    );
    hub.works_are_in(&["c1", "c2"]).await;
    let of = async |cluster| {
        let works = hub
            .works(cluster)
            .list(&ListParams::default())
            .await
            .unwrap();
        let started = &works.items[0].annotations()[names::ROLLOUT_STARTED_ANNOTATION];
        started.parse::<jiff::Timestamp>().unwrap()
    };
    let between = of("c2").await.duration_since(of("c1").await);
    assert!(between >= jiff::SignedDuration::from_secs(1), "{between}");
    hub.stop().await;
}

/// R20 to R22.
#[actix::test]
async fn the_next_begins_when_the_deadline_is_over() {
    let body = json!({"maxConcurrency": 1, "maxFailures": 1, "progressDeadline": "1s"});
    let hub = Hub::progressive(2, body).await;
    hub.works_are_in(&["c1"]).await;
    hub.all_report(&["c1"], FAILED).await;
    hub.works_are_in(&["c1", "c2"]).await;
    hub.all_report(&["c2"], SUCCEEDED).await;
    let status = eventually("all but one are there", || async {
        let status = hub.status("web").await;
        if status.summary.available == 1 {
            Ok(status)
        } else {
            Err(status)
        }
    })
    .await;
    assert_eq!(
        condition(&status, "PlacementRolledOut"),
        "False Progressing"
    );
    assert!(
        status.message.ends_with("; timed out in 1, first c1"),
        "{}",
        status.message
    );
    hub.stop().await;
}

#[actix::test]
async fn a_strategy_that_does_not_read_writes_nothing_and_says_so() {
    let hub = Hub::progressive(2, json!({"maxConcurrency": 1, "minSuccessTime": "soon"})).await;
    let status = hub.says("PlacementVerified", "False NotAsExpected").await;
    let why = "placement all: rolloutStrategy.progressive.minSuccessTime: time: invalid duration \
               \"soon\"";
    assert!(status.message.ends_with(why), "{}", status.message);
    assert!(hub.all_works().await.is_empty());
    hub.patch_set("web", json!({"spec": {"placementRefs": [{"name": "all"}]}}))
        .await;
    hub.works_are_in(&["c1", "c2"]).await;
    hub.stop().await;
}

#[actix::test]
async fn a_pause_stops_all_writes_and_no_status() {
    let hub = Hub::with_strategy(2, json!({"type": "All"})).await;
    hub.works_are_in(&["c1", "c2"]).await;
    let annotate = async |value: Value| {
        let annotations = json!({names::PAUSED_ANNOTATION: value});
        hub.patch_set("web", json!({"metadata": {"annotations": annotations}}))
            .await;
    };
    annotate(json!("true")).await;
    hub.says("Progressing", "True Paused").await;
    // A change, a deletion and a cluster that leaves: nothing is written.
    hub.patch_set(
        "web",
        json!({"spec": {"manifestWorkTemplate": template("two")}}),
    )
    .await;
    let works = hub.works("c1").list(&ListParams::default()).await.unwrap();
    let name = works.items[0].name_any();
    hub.works("c1")
        .delete(&name, &DeleteParams::default())
        .await
        .unwrap();
    let status = eventually("the deletion shows", || async {
        let status = hub.status("web").await;
        if status.summary.total == 1 {
            Ok(status)
        } else {
            Err(status)
        }
    })
    .await;
    assert_eq!(
        status.message,
        "ManifestWorks available in 0/2 clusters; paused by annotation muster.dev/paused"
    );
    hub.is_through("other").await;
    let works = hub.works_are_in(&["c2"]).await;
    assert_eq!(
        works[0].spec.workload.manifests[0].to_value().unwrap(),
        template("one")["workload"]["manifests"][0]
    );
    annotate(Value::Null).await;
    for work in hub.works_are_in(&["c1", "c2"]).await {
        eventually("the works have the new template", || async {
            let now = hub
                .works(&work.namespace().unwrap())
                .get(&work.name_any())
                .await
                .unwrap();
            let manifest = now.spec.workload.manifests[0].to_value().unwrap();
            if manifest == template("two")["workload"]["manifests"][0] {
                Ok(())
            } else {
                Err(manifest)
            }
        })
        .await;
    }
    hub.stop().await;
}

#[actix::test]
async fn a_paused_cluster_is_left_alone_and_the_others_go_on() {
    let hub = Hub::start(3).await;
    hub.place("all", json!({})).await;
    hub.create_set("web", &[], json!({"placementRefs": [{"name": "none"}]}))
        .await;
    let annotations = json!({names::PAUSED_CLUSTERS_ANNOTATION: " c2, c9"});
    hub.patch_set(
        "web",
        json!({"metadata": {"annotations": annotations}, "spec": {"placementRefs": [{"name": "all"}]}}),
    )
    .await;
    hub.works_are_in(&["c1", "c3"]).await;
    hub.all_report(&["c1", "c3"], SUCCEEDED).await;
    let status = hub.says("Progressing", "True Paused").await;
    assert!(
        status.message.ends_with("; paused in 1 cluster, first c2"),
        "{}",
        status.message
    );
    hub.patch_set("web", json!({"metadata": {"annotations": null}}))
        .await;
    hub.works_are_in(&["c1", "c2", "c3"]).await;
    hub.stop().await;
}

#[actix::test]
async fn a_cluster_that_is_paused_for_all_sets_is_left_alone() {
    let hub = Hub::start(2).await;
    let clusters: Api<ManagedCluster> = Api::all(hub.client.clone());
    let pause = async |value: Value| {
        let annotations = json!({"metadata": {"annotations": {names::PAUSED_ANNOTATION: value}}});
        clusters
            .patch("c1", &PatchParams::default(), &Patch::Merge(annotations))
            .await
            .unwrap();
    };
    pause(json!("true")).await;
    hub.place("all", json!({})).await;
    hub.create_set("web", &["all"], json!({})).await;
    hub.works_are_in(&["c2"]).await;
    eventually("the pause shows", || async {
        let status = hub.status("web").await;
        let paused = status.message.ends_with("; paused in 1 cluster, first c1");
        if paused && status.summary.total == 1 {
            Ok(())
        } else {
            Err(status)
        }
    })
    .await;
    hub.works_are_in(&["c2"]).await;
    pause(json!("false")).await;
    hub.works_are_in(&["c1", "c2"]).await;
    hub.stop().await;
}
