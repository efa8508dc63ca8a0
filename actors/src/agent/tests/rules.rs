//! Conditions that a work derives from its objects.

use muster_api::constants::WORK_COMPLETE;

use super::*;

const JOB: Target<'static> = Target {
    group: "batch",
    version: "v1",
    resource: "jobs",
    namespace: "ns1",
    name: "once",
};

#[allow(
    clippy::needless_pass_by_value,
    reason = "a literal is written in its place"
)]
fn with_rule(mut spec: Value, resource: (&str, &str, &str), rule: Value) -> Value {
    let (group, resource, name) = resource;
    spec["manifestConfigs"] = json!([{
        "resourceIdentifier": {
            "group": group, "resource": resource, "namespace": "ns1", "name": name,
        },
        "conditionRules": [rule],
    }]);
    spec
}

fn complete_by_data() -> Value {
    json!({
        "type": "CEL", "condition": "Complete",
        "celExpressions": ["has(object.data.complete) && object.data.complete == 'true'"],
    })
}

/// A config map that is complete when its data says so.
fn completing() -> Value {
    let objects = workload([config_map("cm1", json!({"a": "b"}))]);
    with_rule(objects, ("", "configmaps", "cm1"), complete_by_data())
}

fn job() -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "once", "namespace": "ns1"},
        "spec": {"template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}],
        }}},
    })
}

#[actix::test]
async fn a_rule_says_when_a_work_is_complete() {
    let world = World::start().await;
    let spec = completing();
    world.create_work("w", spec.clone()).await;
    let work = world.settled("w").await;
    assert_eq!(manifests(&work, WORK_COMPLETE), ["False"]);
    // Somebody on the cluster says so. That this is drift, too, does not undo it.
    world
        .merge(cm("cm1"), json!({"data": {"complete": "true"}}))
        .await;
    world
        .work("w", |work| current(work, WORK_COMPLETE, "True"))
        .await;
    let mut spec_complete = spec;
    // What is complete is not written any more, neither after drift nor after an edit.
    world
        .merge(cm("cm1"), json!({"data": {"a": "drift"}}))
        .await;
    spec_complete["workload"]["manifests"][0]["data"]["a"] = "edited".into();
    world.edit_work("w", spec_complete.clone()).await;
    world
        .work("w", |work| current(work, WORK_COMPLETE, "True"))
        .await;
    world.polls(2).await;
    let live = world.get(cm("cm1")).await.unwrap();
    assert_eq!(live["data"]["a"], "drift");
    // Without the rule the work is one like any other again.
    spec_complete["manifestConfigs"] = json!([]);
    world.edit_work("w", spec_complete).await;
    world
        .object(cm("cm1"), |object| object.unwrap()["data"]["a"] == "edited")
        .await;
    let work = world.settled("w").await;
    let conditions = &status(&work).resource_status.manifests[0].conditions;
    assert!(muster_api::conditions::find(conditions, WORK_COMPLETE).is_none());
    world.end().await;
}

/// The very moment counts: it becomes complete while a repair of something else is on its way.
#[actix::test]
async fn an_object_that_becomes_complete_during_a_repair_stays_so() {
    let world = World::start().await;
    let spec = completing();
    world.create_work("w", spec).await;
    world.settled("w").await;
    let (on_its_way, mut repair) = tokio::sync::mpsc::unbounded_channel();
    world.spoke_tap.fail(move |method, _| {
        (method == http::Method::PUT).then(|| {
            on_its_way.send(()).unwrap();
            super::tap::Fault::Slow(Duration::from_secs(1))
        })
    });
    world
        .merge(cm("cm1"), json!({"data": {"a": "drift"}}))
        .await;
    repair.recv().await.unwrap();
    world
        .merge(cm("cm1"), json!({"data": {"complete": "true"}}))
        .await;
    world
        .work("w", |work| current(work, WORK_COMPLETE, "True"))
        .await;
    let live = world.get(cm("cm1")).await.unwrap();
    assert_eq!(live["data"], json!({"a": "drift", "complete": "true"}));
    world.end().await;
}

#[actix::test]
async fn a_complete_job_that_its_cluster_removes_is_not_made_anew() {
    let world = World::start().await;
    let rule = json!({"type": "WellKnownConditions", "condition": "Complete"});
    let spec = with_rule(workload([job()]), ("batch", "jobs", "once"), rule);
    world.create_work("w", spec.clone()).await;
    world.settled("w").await;
    let done = json!({"conditions": [
        {"type": "SuccessCriteriaMet", "status": "True"}, {"type": "Complete", "status": "True"},
    ]});
    world.set_status(JOB, done).await;
    world
        .work("w", |work| current(work, WORK_COMPLETE, "True"))
        .await;
    let uid = world.get(JOB).await.unwrap()["metadata"]["uid"].clone();
    world
        .spoke
        .delete(JOB, uid.as_str().unwrap())
        .await
        .unwrap();
    world.object(JOB, |job| job.is_none()).await;
    world.polls(3).await;
    assert!(world.get(JOB).await.is_none());
    // Not even a new generation runs it again.
    let mut labelled = spec;
    labelled["deleteOption"] = json!({"propagationPolicy": "Orphan"});
    world.edit_work("w", labelled).await;
    let work = world
        .work("w", |work| {
            current(work, WORK_COMPLETE, "True") && current(work, WORK_APPLIED, "True")
        })
        .await;
    assert_eq!(manifests(&work, WORK_COMPLETE), ["True"]);
    world.polls(2).await;
    assert!(world.get(JOB).await.is_none());
    world.end().await;
}

#[actix::test]
async fn nothing_is_claimed_about_an_object_that_is_gone() {
    let world = World::start().await;
    let _: Value = world
        .spoke
        .create(cm("cm1"), &config_map("cm1", json!({"a": "b"})))
        .await
        .unwrap();
    let rule = json!({
        "type": "CEL", "condition": "Fine", "celExpressions": ["object.data.a == 'b'"],
    });
    let mut spec = with_rule(
        workload([config_map("cm1", json!({}))]),
        ("", "configmaps", "cm1"),
        rule,
    );
    spec["manifestConfigs"][0]["updateStrategy"] = json!({"type": "ReadOnly"});
    spec["manifestConfigs"][0]["feedbackRules"] = json!([{
        "type": "JSONPaths", "jsonPaths": [{"name": "a", "path": ".data.a"}],
    }]);
    world.create_work("w", spec).await;
    let work = world.settled("w").await;
    assert_eq!(manifests(&work, "Fine"), ["True"]);
    assert_eq!(values(&work, 0), [("a", json!("b"))]);
    let uid = world.get(cm("cm1")).await.unwrap()["metadata"]["uid"].clone();
    world
        .spoke
        .delete(cm("cm1"), uid.as_str().unwrap())
        .await
        .unwrap();
    let work = world
        .work("w", |work| current(work, "Fine", "Unknown"))
        .await;
    assert_eq!(message(&work, 0, "Fine"), "the object does not exist");
    assert_eq!(values(&work, 0), []);
    assert_eq!(
        message(&work, 0, "StatusFeedbackSynced"),
        "Sync status feedback failed with error the object does not exist"
    );
    world.hub_tap.clear();
    world.polls(2).await;
    assert_eq!(world.hub_tap.writes(), [], "said once");
    world.end().await;
}
