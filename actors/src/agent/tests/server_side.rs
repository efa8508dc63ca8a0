//! Server-side apply: how often the agent asks the server. What comes of it is told by the
//! stories.

use serde_json::{Value, json};

use super::*;

#[allow(clippy::needless_pass_by_value, reason = "literals read better")]
fn server_side(manifest: Value, settings: Value) -> Value {
    let mut spec = workload([manifest, config_map("second", json!({"a": "b"}))]);
    spec["manifestConfigs"] = json!([{
        "resourceIdentifier": {"group": "apps", "resource": "deployments",
            "namespace": "ns1", "name": "web"},
        "updateStrategy": {"type": "ServerSideApply", "serverSideApply": settings},
    }]);
    spec
}

fn with_replicas(replicas: i64) -> Value {
    let mut object = deployment("web");
    object["spec"]["replicas"] = replicas.into();
    object
}

/// Requests to write the Deployment.
fn writes(world: &World) -> usize {
    let writes = world.spoke_tap.writes();
    let of_deployment = |path: &String| path.contains("/deployments/web");
    writes
        .iter()
        .filter(|(_, path)| of_deployment(path))
        .count()
}

/// How often the Deployment was looked at: once a pass for the apply, and once more where that
/// failed.
fn reads(world: &World) -> usize {
    let reads = world.spoke_tap.reads().into_iter();
    reads
        .filter(|(path, _)| path.contains("/deployments/web"))
        .map(|(_, count)| count)
        .sum()
}

#[actix::test]
async fn a_conflict_costs_one_apply_a_pass_and_stops_nothing_else() {
    let world = World::start().await;
    world
        .create_work("w", server_side(with_replicas(1), json!({})))
        .await;
    world.settled("w").await;
    let other = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"namespace": "ns1", "name": "web"}, "spec": {"replicas": 5},
    });
    let applied = world.spoke.apply(deploy("web"), &other, "other", true);
    applied.await.unwrap();

    world
        .edit_work("w", server_side(with_replicas(3), json!({})))
        .await;
    let work = world
        .work("w", |work| current(work, WORK_APPLIED, "False"))
        .await;
    assert_eq!(manifests(&work, WORK_APPLIED), ["False", "True"]);
    let text = message(&work, 0, WORK_APPLIED);
    assert!(
        text.contains("\"other\"") && text.contains(".spec.replicas"),
        "{text}"
    );

    world.spoke_tap.clear();
    world.polls(4).await;
    let (writes, reads) = (writes(&world), reads(&world));
    assert!((2..=10).contains(&writes), "{writes} applies in four polls");
    assert_eq!(reads, 2 * writes, "each pass applies once");
    let live = world.get(deploy("web")).await.unwrap();
    assert_eq!(live["spec"]["replicas"], 5);
    world.end().await;
}

#[actix::test]
async fn an_idle_agent_applies_nothing_and_repairs_what_is_its_own() {
    let world = World::start().await;
    let settings = json!({"force": true, "ignoreFields": [
        {"condition": "OnSpokePresent", "jqPathExpressions": [".spec.replicas"]},
    ]});
    world
        .create_work("w", server_side(with_replicas(1), settings))
        .await;
    world.settled("w").await;
    world.spoke_tap.clear();
    world.polls(2).await;
    assert_eq!(world.spoke_tap.writes(), []);

    // Neither another's field nor an ignored one is the agent's business.
    let theirs = |spec: Value| {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "spec": spec,
            "metadata": {"namespace": "ns1", "name": "web", "labels": {"theirs": "1"}},
        })
    };
    let replicas = theirs(json!({"replicas": 7}));
    let applied = world.spoke.apply(deploy("web"), &replicas, "other", true);
    applied.await.unwrap();
    world.polls(2).await;
    assert_eq!(world.spoke_tap.writes(), []);

    let containers = json!([{"name": "c", "image": "example/drifted:1"}]);
    let image = json!({"replicas": 7, "template": {"spec": {"containers": containers}}});
    let applied = theirs(image);
    let applied = world.spoke.apply(deploy("web"), &applied, "other", true);
    applied.await.unwrap();
    let image = "/spec/template/spec/containers/0/image";
    let repaired = world
        .object(deploy("web"), |object| {
            object.and_then(|object| object.pointer(image)) == Some(&json!("example/web:1"))
        })
        .await
        .unwrap();
    assert_eq!(repaired["spec"]["replicas"], 7);
    assert_eq!(writes(&world), 1);
    world.end().await;
}

#[actix::test]
async fn settings_that_cannot_be_used_are_told_and_nothing_is_sent() {
    let world = World::lenient().await;
    let settings = json!({"fieldManager": "somebody"});
    world
        .create_work("w", server_side(with_replicas(1), settings))
        .await;
    let work = world
        .work("w", |work| current(work, WORK_APPLIED, "False"))
        .await;
    assert_eq!(
        message(&work, 0, WORK_APPLIED),
        "Failed to apply manifest: updateStrategy.serverSideApply.fieldManager: Invalid value: \
         \"somebody\": must start with work-agent"
    );
    let expression = ".spec | nope(";
    let settings = json!({"ignoreFields": [
        {"condition": "OnSpokeChange", "jqPathExpressions": [expression]},
    ]});
    world
        .edit_work("w", server_side(with_replicas(1), settings))
        .await;
    let work = world
        .work("w", |work| {
            current(work, WORK_APPLIED, "False")
                && message(work, 0, WORK_APPLIED).contains("ignoreFields")
        })
        .await;
    let manifest = &status(&work).resource_status.manifests[0];
    let applied = muster_api::conditions::find(&manifest.conditions, WORK_APPLIED).unwrap();
    assert_eq!(applied.reason, "AppliedManifestSSAIgnoreFieldError");
    assert!(world.get(deploy("web")).await.is_none());
    world.end().await;
}

/// A ConfigMap by a strategy.
fn by(strategy: &str, data: Value) -> Value {
    let mut spec = workload([config_map("cm1", data)]);
    spec["manifestConfigs"] = json!([{
        "resourceIdentifier": {"resource": "configmaps", "namespace": "ns1", "name": "cm1"},
        "updateStrategy": {"type": strategy},
    }]);
    spec
}

/// Applies each in turn; after each the data has to be as it says, and nobody else's is touched.
async fn follow(steps: &[(&str, Value)]) {
    let world = World::start().await;
    for (step, (strategy, data)) in steps.iter().enumerate() {
        let spec = by(strategy, data.clone());
        if step == 0 {
            world.create_work("w", spec).await;
        } else {
            world.edit_work("w", spec).await;
        }
        world.settled("w").await;
        let live = world.get(cm("cm1")).await.unwrap();
        assert_eq!(live["data"], *data, "step {step}: {live:#}");
        let owners = live["metadata"]["ownerReferences"].as_array();
        assert_eq!(owners.map(Vec::len), Some(1), "step {step}: {live:#}");
    }
    world.spoke_tap.clear();
    world.polls(3).await;
    assert_eq!(world.spoke_tap.writes(), []);
    world.end().await;
}

#[actix::test]
async fn what_an_update_wrote_goes_when_a_server_side_apply_drops_it() {
    let steps = [
        ("Update", json!({"k": "1", "old": "1"})),
        ("ServerSideApply", json!({"k": "2"})),
    ];
    follow(&steps).await;
}

#[actix::test]
async fn what_an_update_wrote_goes_when_it_is_dropped_a_step_after_the_switch() {
    let steps = [
        ("Update", json!({"k": "1", "old": "1"})),
        ("ServerSideApply", json!({"k": "1", "old": "1"})),
        ("ServerSideApply", json!({"k": "2"})),
    ];
    follow(&steps).await;
}

#[actix::test]
async fn what_a_server_side_apply_wrote_goes_when_an_update_drops_it() {
    let steps = [
        ("ServerSideApply", json!({"k": "1", "old": "1"})),
        ("Update", json!({"k": "2", "other": "1"})),
        ("Update", json!({"k": "2"})),
        ("ServerSideApply", json!({"k": "3", "back": "1"})),
        ("ServerSideApply", json!({"k": "3"})),
    ];
    follow(&steps).await;
}
