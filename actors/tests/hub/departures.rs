//! Works that wait for agents that are away, and Events.

use k8s_openapi::api::core::v1::Event;
use muster_actors::events::{Recorder, Reporter};
use muster_actors::hub::Departures;

use super::*;

fn settings() -> HubSettings {
    HubSettings {
        abandon_after: Duration::from_secs(1),
        departures_every: Duration::from_millis(50),
        ..HubSettings::default()
    }
}

/// The condition `Deleting` of the work of a cluster: reason and message.
async fn deleting(hub: &Hub, cluster: &str) -> (String, String) {
    let works = hub
        .works(cluster)
        .list(&ListParams::default())
        .await
        .unwrap();
    let status = works.items.first().and_then(|work| work.status.clone());
    let all = status.unwrap_or_default().conditions;
    let found = conditions::find(&all, "Deleting").cloned();
    found.map_or_else(Default::default, |found| (found.reason, found.message))
}

/// A hub with a work in c1 that is being deleted and has the agent's finalizer.
async fn with_a_dying_work() -> (Hub, Addr<Departures>) {
    let hub = Hub::start_with(1, Clone::clone, settings()).await;
    let departures = Departures::start(hub.deps.clone());
    hub.place("all", json!({})).await;
    let foreground = json!({"cascadeDeletionPolicy": "Foreground"});
    hub.create_set("web", &["all"], foreground).await;
    hub.works_are_in(&["c1"]).await;
    hold(&hub, &[names::MANIFEST_WORK_FINALIZER]).await;
    hub.sets()
        .delete("web", &DeleteParams::default())
        .await
        .unwrap();
    (hub, departures)
}

async fn says(hub: &Hub, reason: &str, text: &str) {
    eventually("the work says what it waits for", || async {
        let said = deleting(hub, "c1").await;
        if said.0 == reason && said.1.contains(text) {
            Ok(())
        } else {
            Err(said)
        }
    })
    .await;
}

/// The work goes, and with it the set that waited.
async fn all_is_gone(hub: &Hub) {
    eventually("the set goes after its work", || async {
        let set = hub.sets().get_opt("web").await.unwrap();
        let works = hub.all_works().await.len();
        if set.is_none() && works == 0 {
            Ok(())
        } else {
            Err((set.is_some(), works, deleting(hub, "c1").await))
        }
    })
    .await;
}

async fn stop_all(hub: Hub, departures: Addr<Departures>) {
    assert!(stop(&departures, Duration::from_secs(10)).await);
    hub.stop().await;
}

#[actix::test]
async fn a_cluster_that_is_annotated_as_abandoned_lets_its_works_go() {
    let (hub, departures) = with_a_dying_work().await;
    agent_is(&hub, "c1", "Unknown").await;
    says(&hub, "AgentAway", "the agent of cluster c1 is away since").await;
    eventually("the set says so, too, everywhere", || async {
        let status = hub.status("web").await;
        let text = "deletion waits for 1 ManifestWorks, first c1/web-";
        let told = status.message.contains(text) && status.message.contains("agent of cluster c1");
        let progressing = condition(&status, "Progressing");
        if told && progressing == "True Deleting" && condition(&status, "Ready") == "False Deleting"
        {
            Ok(())
        } else {
            Err((status.message, progressing))
        }
    })
    .await;
    let clusters: Api<ManagedCluster> = Api::all(hub.client.clone());
    let annotate = json!({"metadata": {"annotations": {names::ABANDONED: "true"}}});
    clusters
        .patch("c1", &PatchParams::default(), &Patch::Merge(annotate))
        .await
        .unwrap();
    says(
        &hub,
        "ClusterAbandoned",
        "has the annotation muster.dev/abandoned",
    )
    .await;
    all_is_gone(&hub).await;
    stop_all(hub, departures).await;
}

#[actix::test]
async fn a_cluster_whose_object_is_deleted_lets_its_works_go() {
    let (hub, departures) = with_a_dying_work().await;
    let clusters: Api<ManagedCluster> = Api::all(hub.client.clone());
    clusters
        .delete("c1", &DeleteParams::default())
        .await
        .unwrap();
    says(&hub, "ClusterAbandoned", "ManagedCluster c1 is deleted").await;
    all_is_gone(&hub).await;
    stop_all(hub, departures).await;
}

#[actix::test]
async fn a_work_with_the_label_goes_without_its_agent() {
    let (hub, departures) = with_a_dying_work().await;
    eventually("the deletion has begun", || async {
        let works = hub.all_works().await;
        let begun = works
            .iter()
            .all(|work| work.metadata.deletion_timestamp.is_some());
        if begun { Ok(()) } else { Err(()) }
    })
    .await;
    // Nobody says that the agent is away: the work waits for it.
    assert_eq!(deleting(&hub, "c1").await, (String::new(), String::new()));
    let name = hub.all_works().await[0].name_any();
    let label = json!({"metadata": {"labels": {names::ABANDONED: "true"}}});
    hub.works("c1")
        .patch(&name, &PatchParams::default(), &Patch::Merge(label))
        .await
        .unwrap();
    all_is_gone(&hub).await;
    stop_all(hub, departures).await;
}

#[actix::test]
async fn an_agent_that_comes_back_in_time_cleans_up_itself() {
    let (hub, departures) = with_a_dying_work().await;
    agent_is(&hub, "c1", "False").await;
    says(&hub, "AgentAway", "is away").await;
    agent_is(&hub, "c1", "True").await;
    // It is there again: nothing is let go, however long its clean-up takes.
    let deadline = tokio::time::Instant::now() + Duration::from_millis(500);
    while tokio::time::Instant::now() < deadline {
        assert_eq!(hub.all_works().await.len(), 1);
    }
    hold(&hub, &[]).await;
    all_is_gone(&hub).await;
    stop_all(hub, departures).await;
}

#[actix::test]
async fn what_happens_is_told_as_events_of_set_and_works() {
    let hub = Hub::start_with(1, Clone::clone, settings()).await;
    // The actors of `hub` tell nothing; these do.
    let reporter = Reporter {
        component: "muster-hub",
        prunes: true,
    };
    assert!(stop(&hub.sets, Duration::from_secs(10)).await);
    let recorder = Recorder::start(&hub.deps.io, hub.client.clone(), reporter);
    let sets = ReplicaSets::start(HubDeps {
        events: Some(recorder),
        ..hub.deps.clone()
    });
    hub.place("all", json!({})).await;
    hub.create_set("web", &["all"], json!({})).await;
    let work = hub.works_are_in(&["c1"]).await.remove(0);
    hub.report(&work, &[("Applied", "False")], 1).await;
    let told = async |kind: &str, name: &str, expected: &[&str]| {
        let events: Api<Event> = Api::all(hub.client.clone());
        eventually("events are told", || async {
            let all = events.list(&ListParams::default()).await.unwrap().items;
            let about = |event: &&Event| {
                let object = &event.involved_object;
                object.kind.as_deref() == Some(kind)
                    && object.name.as_deref() == Some(name)
                    && object.uid.is_some()
            };
            let line = |event: &Event| {
                let part = |text: &Option<String>| text.clone().unwrap_or_default();
                format!("{} {}", part(&event.type_), part(&event.reason))
            };
            let lines: Vec<String> = all.iter().filter(about).map(line).collect();
            let all_there = expected
                .iter()
                .all(|one| lines.iter().any(|line| line == one));
            if all_there { Ok(()) } else { Err(lines) }
        })
        .await;
    };
    let name = work.name_any();
    told("ManifestWork", &name, &["Warning NotApplied"]).await;
    let set = "ManifestWorkReplicaSet";
    told(set, "web", &["Normal RollingOut", "Warning ClustersFailed"]).await;
    hub.report(&work, &[("Applied", "True"), ("Available", "True")], 1)
        .await;
    told("ManifestWork", &name, &["Normal Applied"]).await;
    told(set, "web", &["Normal RolledOut"]).await;
    assert!(stop(&sets, Duration::from_secs(10)).await);
    assert!(stop(&hub.resolver, Duration::from_secs(10)).await);
    assert_eq!(hub.registry.ended(Duration::from_secs(10)).await, Ok(()));
    hub.api.shutdown().await;
}
