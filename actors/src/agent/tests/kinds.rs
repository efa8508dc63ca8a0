//! Kinds whose objects cannot be changed in every way.

use serde_json::{Value, json};

use super::*;

fn secret(kind: &str, value: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "ns1", "name": "s1"},
        "type": kind, "immutable": true, "data": {"k": value},
    })
}

fn secret_target() -> Target<'static> {
    target("", "secrets", "s1")
}

fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap()
}

#[actix::test]
async fn a_secret_that_cannot_be_changed_is_made_anew() {
    let world = World::start().await;
    world
        .create_work("w", workload([secret("Opaque", "MQ==")]))
        .await;
    world.settled("w").await;
    let label = json!({"metadata": {"labels": {"team": "blue"}}});
    let mut last = world.merge(secret_target(), label).await;
    for changed in [
        secret("example.io/mine", "MQ=="),
        secret("example.io/mine", "Mg=="),
    ] {
        world.edit_work("w", workload([changed.clone()])).await;
        world.settled("w").await;
        let live = world.get(secret_target()).await.unwrap();
        assert_ne!(uid(&live), uid(&last));
        assert_eq!(
            (&live["type"], &live["data"]),
            (&changed["type"], &changed["data"])
        );
        assert_eq!(live["metadata"]["labels"]["team"], "blue");
        let owners = &live["metadata"]["ownerReferences"];
        assert_eq!(owners, &last["metadata"]["ownerReferences"]);
        last = live;
    }
    world.spoke_tap.clear();
    world.polls(2).await;
    assert_eq!(world.spoke_tap.writes(), []);
    world.end().await;
}

#[actix::test]
async fn a_held_secret_is_made_anew_once_it_is_let_go() {
    let world = World::start().await;
    world
        .create_work("w", workload([secret("Opaque", "MQ==")]))
        .await;
    world.settled("w").await;
    let hold = |finalizers: Value| json!({"metadata": {"finalizers": finalizers}});
    let held = world
        .merge(secret_target(), hold(json!(["example.io/hold"])))
        .await;
    world
        .edit_work("w", workload([secret("Opaque", "Mg==")]))
        .await;
    let work = world
        .work("w", |work| current(work, WORK_APPLIED, "False"))
        .await;
    let text = message(&work, 0, WORK_APPLIED);
    assert!(text.contains("already exists"), "{text}");
    let live = world.get(secret_target()).await.unwrap();
    assert_eq!(uid(&live), uid(&held));

    world.merge(secret_target(), hold(Value::Null)).await;
    let work = world
        .work_within(EVENTUALLY * 4, "w", |work| {
            current(work, WORK_APPLIED, "True")
        })
        .await;
    assert_eq!(manifests(&work, WORK_APPLIED), ["True"]);
    let live = world.get(secret_target()).await.unwrap();
    assert_ne!(uid(&live), uid(&held));
    assert_eq!(live["data"]["k"], "Mg==");
    assert_eq!(live["metadata"].get("finalizers"), None);
    world.end().await;
}

#[actix::test]
async fn a_refused_change_is_told_with_its_field() {
    let binding = |role: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"namespace": "ns1", "name": "a"},
            "roleRef": {"kind": "Role", "name": role}, "subjects": [{"kind": "User", "name": "u"}],
        })
    };
    let fixed = |value: &str| {
        let mut map = config_map("fixed", json!({"k": value}));
        map["immutable"] = true.into();
        map
    };
    let world = World::start().await;
    world
        .create_work("w", workload([binding("a"), fixed("1")]))
        .await;
    world.settled("w").await;
    world
        .edit_work("w", workload([binding("b"), fixed("2")]))
        .await;
    let work = world
        .work("w", |work| current(work, WORK_APPLIED, "False"))
        .await;
    assert_eq!(manifests(&work, WORK_APPLIED), ["False", "False"]);
    for (ordinal, field, why) in [
        (0, "roleRef: Invalid value: ", "cannot change roleRef"),
        (1, "data: Forbidden: ", "field is immutable"),
    ] {
        let text = message(&work, ordinal, WORK_APPLIED);
        assert!(text.starts_with("Failed to apply manifest: "), "{text}");
        assert!(text.contains(field) && text.contains(why), "{text}");
    }
    world.end().await;
}

#[actix::test]
async fn a_job_is_written_once() {
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"namespace": "ns1", "name": "pi"},
        "spec": {"template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "image": "example/pi:1"}],
        }}},
    });
    let pi = target("batch", "jobs", "pi");
    let world = World::start().await;
    let with = |value: &str| workload([job.clone(), config_map("cm1", json!({"k": value}))]);
    world.create_work("w", with("1")).await;
    world.settled("w").await;
    let created = world.get(pi).await.unwrap();
    assert!(created["spec"]["selector"].is_object(), "{created}");

    world.set_status(pi, json!({"active": 1})).await;
    world.spoke_tap.clear();
    world.polls(3).await;
    assert_eq!(world.spoke_tap.writes(), []);
    // A new generation of the work is no reason either.
    world.edit_work("w", with("2")).await;
    world.settled("w").await;
    let live = world.get(pi).await.unwrap();
    assert_eq!(uid(&live), uid(&created));
    assert_eq!(live["spec"], created["spec"]);
    assert_eq!(live["metadata"]["generation"], 1);
    world.end().await;
}
