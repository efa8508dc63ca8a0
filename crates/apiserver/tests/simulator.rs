//! The simulator on the embedded server.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::needless_pass_by_value,
    reason = "helpers of tests fail by panicking and take what reads best"
)]

mod support;

use std::pin::pin;
use std::time::Duration;

use futures::TryStreamExt;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::runtime::wait::await_condition;
use kube::{Api, Resource, ResourceExt};
use muster_apiserver::{ApiServer, Failure, FailureRule, SimulatorOptions, WorkloadSimulator};
use serde::de::DeserializeOwned;
use serde_json::json;
use support::{config_map, create_namespace, server};
use tokio_util::sync::{CancellationToken, DropGuard};

fn simulate(server: &ApiServer, failures: Vec<FailureRule>) -> DropGuard {
    let options = SimulatorOptions {
        pace: Duration::from_secs(1),
        failures,
        seed: 7,
    };
    let stop = CancellationToken::new();
    let simulator = WorkloadSimulator::new(server.uncounted_client(), options);
    tokio::spawn(simulator.run(stop.clone()));
    stop.drop_guard()
}

fn workload<K: DeserializeOwned>(name: &str, spec: serde_json::Value) -> K {
    let mut whole = json!({
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": "c", "image": "i:1"}]},
        }},
    });
    for (field, value) in spec.as_object().unwrap() {
        whole["spec"][field] = value.clone();
    }
    serde_json::from_value(whole).unwrap()
}

fn condition(deployment: &Deployment, kind: &str) -> (String, String) {
    let value = serde_json::to_value(deployment).unwrap();
    let conditions = value
        .pointer("/status/conditions")
        .and_then(|c| c.as_array());
    let text = |v: &serde_json::Value| v.as_str().unwrap_or_default().to_owned();
    conditions
        .into_iter()
        .flatten()
        .find(|c| c["type"] == kind)
        .map(|c| (text(&c["status"]), text(&c["reason"])))
        .unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_deployment_rolls_out_replica_by_replica() {
    let server = server().await;
    let _simulator = simulate(&server, Vec::new());
    let api: Api<Deployment> = Api::namespaced(server.client(), "default");
    let mut events = pin!(api.watch(&WatchParams::default(), "0").await.unwrap());
    let deployment = workload("web", json!({"replicas": 3}));
    api.create(&PostParams::default(), &deployment)
        .await
        .unwrap();
    let created = tokio::time::Instant::now();
    let mut ready = Vec::new();
    while let Some(event) = events.try_next().await.unwrap() {
        let (WatchEvent::Added(d) | WatchEvent::Modified(d)) = event else {
            continue;
        };
        let status = d.status.clone().unwrap_or_default();
        ready.push(status.ready_replicas.unwrap_or_default());
        if condition(&d, "Progressing").1 == "NewReplicaSetAvailable" {
            assert_eq!(status.observed_generation, d.metadata.generation);
            assert_eq!(condition(&d, "Available").0, "True");
            break;
        }
    }
    assert_eq!(ready, [0, 0, 1, 2, 3, 3]);
    assert!(
        created.elapsed() >= Duration::from_secs(3),
        "each replica takes its time"
    );
    // A new template takes the same way.
    let patch = Patch::Strategic(json!({"spec": {"template": {"spec": {
        "containers": [{"name": "c", "image": "i:2"}],
    }}}}));
    api.patch("web", &PatchParams::default(), &patch)
        .await
        .unwrap();
    let mut updated = Vec::new();
    while let Some(event) = events.try_next().await.unwrap() {
        let WatchEvent::Modified(d) = event else {
            continue;
        };
        let status = d.status.clone().unwrap_or_default();
        updated.push(status.updated_replicas.unwrap_or_default());
        if condition(&d, "Progressing").1 == "NewReplicaSetAvailable"
            && status.observed_generation == d.metadata.generation
        {
            break;
        }
    }
    assert_eq!(updated, [3, 0, 1, 2, 3, 3]);
}

#[tokio::test(start_paused = true)]
async fn failing_deployments_exceed_their_deadline() {
    let server = server().await;
    let rule = FailureRule {
        name: "bad-*".to_owned(),
        failure: Failure::CrashAfter(1),
    };
    let _simulator = simulate(&server, vec![rule]);
    let api: Api<Deployment> = Api::namespaced(server.client(), "default");
    let deployment: Deployment = workload(
        "bad-web",
        json!({"replicas": 2, "progressDeadlineSeconds": 5}),
    );
    api.create(&PostParams::default(), &deployment)
        .await
        .unwrap();
    let exceeded = |d: Option<&Deployment>| {
        d.is_some_and(|d| condition(d, "Progressing").1 == "ProgressDeadlineExceeded")
    };
    let stuck = await_condition(api, "bad-web", exceeded)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(stuck.status.as_ref().unwrap().ready_replicas, Some(1));
    assert_eq!(
        condition(&stuck, "Available"),
        ("False".to_owned(), "MinimumReplicasUnavailable".to_owned())
    );
}

#[tokio::test(start_paused = true)]
async fn other_workloads_get_ready_too() {
    let server = server().await;
    let _simulator = simulate(&server, Vec::new());
    let client = server.client();
    let params = PostParams::default();
    let sets: Api<StatefulSet> = Api::namespaced(client.clone(), "default");
    sets.create(
        &params,
        &workload("db", json!({"replicas": 2, "serviceName": "db"})),
    )
    .await
    .unwrap();
    let daemons: Api<DaemonSet> = Api::namespaced(client.clone(), "default");
    daemons
        .create(&params, &workload("log", json!({})))
        .await
        .unwrap();
    let jobs: Api<Job> = Api::namespaced(client, "default");
    let job: Job = serde_json::from_value(json!({
        "metadata": {"name": "once"},
        "spec": {"completions": 2, "template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}],
        }}},
    }))
    .unwrap();
    jobs.create(&params, &job).await.unwrap();
    let ready = |s: Option<&StatefulSet>| {
        s.and_then(|s| s.status.as_ref())
            .is_some_and(|s| s.ready_replicas == Some(2))
    };
    await_condition(sets, "db", ready).await.unwrap();
    let ready = |d: Option<&DaemonSet>| {
        d.and_then(|d| d.status.as_ref())
            .is_some_and(|s| s.number_ready == 1)
    };
    await_condition(daemons, "log", ready).await.unwrap();
    let complete = kube::runtime::conditions::is_job_completed();
    let done = await_condition(jobs, "once", complete)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(done.status.unwrap().succeeded, Some(2));
}

#[tokio::test(start_paused = true)]
async fn a_settled_cluster_makes_no_writes() {
    let server = server().await;
    let _simulator = simulate(&server, Vec::new());
    let api: Api<Deployment> = Api::namespaced(server.client(), "default");
    api.create(
        &PostParams::default(),
        &workload("web", json!({"replicas": 1})),
    )
    .await
    .unwrap();
    let settled = |d: Option<&Deployment>| {
        d.is_some_and(|d| condition(d, "Progressing").1 == "NewReplicaSetAvailable")
    };
    let before = await_condition(api.clone(), "web", settled)
        .await
        .unwrap()
        .unwrap();
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(
        api.get("web").await.unwrap().resource_version(),
        before.resource_version()
    );
    assert_eq!(server.stats().count("patch", "deployments.apps"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_namespace_is_emptied_and_removed() {
    let server = server().await;
    let _simulator = simulate(&server, Vec::new());
    let client = server.client();
    create_namespace(&client, "doomed").await;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "doomed");
    maps.create(&PostParams::default(), &config_map("a", "1"))
        .await
        .unwrap();
    let namespaces: Api<Namespace> = Api::all(client);
    let waiting = namespaces
        .delete("doomed", &DeleteParams::default())
        .await
        .unwrap();
    let waiting = waiting.left().expect("a namespace waits for its content");
    assert_eq!(
        waiting.status.unwrap().phase.as_deref(),
        Some("Terminating")
    );
    let gone = |n: Option<&Namespace>| n.is_none();
    await_condition(namespaces, "doomed", gone).await.unwrap();
    assert!(maps.get_opt("a").await.unwrap().is_none());
}

fn owned(name: &str, owner: &ConfigMap) -> ConfigMap {
    let mut map = config_map(name, "1");
    map.metadata.owner_references = Some(vec![OwnerReference {
        block_owner_deletion: Some(true),
        ..owner.owner_ref(&()).unwrap()
    }]);
    map
}

#[tokio::test(start_paused = true)]
async fn dependents_follow_their_owner_in_each_way() {
    let server = server().await;
    let _simulator = simulate(&server, Vec::new());
    let maps: Api<ConfigMap> = Api::namespaced(server.client(), "default");
    let params = PostParams::default();
    for (name, deletion, survives) in [
        ("background", DeleteParams::background(), false),
        ("foreground", DeleteParams::foreground(), false),
        ("orphan", DeleteParams::orphan(), true),
    ] {
        let owner = maps.create(&params, &config_map(name, "1")).await.unwrap();
        let child = format!("{name}-child");
        maps.create(&params, &owned(&child, &owner)).await.unwrap();
        maps.delete(name, &deletion).await.unwrap();
        let gone = |m: Option<&ConfigMap>| m.is_none();
        await_condition(maps.clone(), name, gone).await.unwrap();
        if survives {
            assert_eq!(maps.get(&child).await.unwrap().owner_references(), []);
        } else {
            await_condition(maps.clone(), &child, gone).await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_of_an_owner_that_never_was_is_collected() {
    let server = server().await;
    let maps: Api<ConfigMap> = Api::namespaced(server.client(), "default");
    let mut ghost = maps
        .create(&PostParams::default(), &config_map("ghost", "1"))
        .await
        .unwrap();
    ghost.metadata.uid = Some("never-was".to_owned());
    maps.create(&PostParams::default(), &owned("child", &ghost))
        .await
        .unwrap();
    let _simulator = simulate(&server, Vec::new());
    await_condition(maps.clone(), "child", |m: Option<&ConfigMap>| m.is_none())
        .await
        .unwrap();
    maps.get("ghost").await.unwrap();
}
