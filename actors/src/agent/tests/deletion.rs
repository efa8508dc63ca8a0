//! Works and objects that go.

use muster_api::constants::{WORK_APPLIED, WORK_DELETING};
use serde_json::{Value, json};

use super::apply::{CRD, crd_and_object};
use super::*;

async fn hold(world: &World, target: Target<'_>) {
    world
        .merge(target, json!({"metadata": {"finalizers": ["x.io/hold"]}}))
        .await;
}

async fn let_go(world: &World, target: Target<'_>) {
    world
        .merge(target, json!({"metadata": {"finalizers": null}}))
        .await;
}

fn three() -> Value {
    workload(["cm1", "cm2", "cm3"].map(|name| config_map(name, json!({}))))
}

#[actix::test]
async fn a_deleted_work_takes_its_objects_along() {
    let world = World::start().await;
    world
        .create_work("w", workload([config_map("cm1", json!({}))]))
        .await;
    world.settled("w").await;
    world.delete_work("w").await;
    world.work_gone("w").await;
    assert!(world.get(cm("cm1")).await.is_none());
    assert!(world.record("w").await.is_none());
    world.end().await;
}

#[actix::test]
async fn a_work_that_never_applied_whole_is_deleted_whole() {
    let world = World::start().await;
    let mut lost = config_map("cm1", json!({}));
    lost["metadata"]["namespace"] = "non-existent-namespace".into();
    let cm2 = config_map("cm2", json!({}));
    world.create_work("w", workload([lost, cm2])).await;
    world
        .work("w", |work| current(work, WORK_APPLIED, "False"))
        .await;
    world.delete_work("w").await;
    world.work_gone("w").await;
    assert!(world.get(cm("cm2")).await.is_none());
    assert!(world.record("w").await.is_none());
    world.end().await;
}

#[actix::test]
async fn a_crd_and_its_object_are_deleted_together() {
    let world = World::start().await;
    world.create_work("w", crd_and_object()).await;
    world.settled("w").await;
    world.delete_work("w").await;
    world.work_gone("w").await;
    assert!(world.get(CRD).await.is_none());
    assert!(world.record("w").await.is_none());
    world.end().await;
}

#[actix::test]
async fn a_held_object_that_left_the_spec_goes_when_it_is_let_go() {
    let world = World::start().await;
    world.create_work("w", three()).await;
    world.settled("w").await;
    hold(&world, cm("cm1")).await;
    let rest = ["cm2", "cm3"].map(|name| config_map(name, json!({})));
    world.edit_work("w", workload(rest)).await;
    world.settled("w").await;
    let deleting = |object: Option<&Value>| {
        object.is_some_and(|object| object["metadata"]["deletionTimestamp"].is_string())
    };
    world.object(cm("cm1"), deleting).await;
    let all = ["configmaps/cm1", "configmaps/cm2", "configmaps/cm3"];
    assert_eq!(world.recorded("w").await, all, "on record until it is gone");

    // Long enough for the back-off to have grown.
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(world.recorded("w").await, all);
    let_go(&world, cm("cm1")).await;
    let begin = tokio::time::Instant::now();
    eventually(|| world.recorded("w"), |names| names == &all[1..]).await;
    assert!(begin.elapsed() <= Duration::from_secs(60));
    assert!(world.get(cm("cm1")).await.is_none());
    world.end().await;
}

#[actix::test]
async fn a_deletion_that_waits_says_for_what() {
    let world = World::start().await;
    world.create_work("w", three()).await;
    world.settled("w").await;
    for name in ["cm1", "cm2"] {
        hold(&world, cm(name)).await;
    }
    world.delete_work("w").await;
    let text = |work: &ManifestWork| {
        muster_api::conditions::find(&status(work).conditions, WORK_DELETING)
            .map(|condition| condition.message.clone())
            .unwrap_or_default()
    };
    let work = world
        .work("w", |work| current(work, WORK_DELETING, "True"))
        .await;
    assert_eq!(
        text(&work),
        "ManifestWork is being deleted: waiting for configmaps ns1/cm1 (finalizer x.io/hold)"
    );
    assert!(
        world.get(cm("cm3")).await.is_none(),
        "what is not held is gone"
    );
    assert!(world.record("w").await.is_some());

    let_go(&world, cm("cm1")).await;
    world.work("w", |work| text(work).contains("cm2")).await;
    assert_eq!(world.recorded("w").await, ["configmaps/cm2"]);
    let_go(&world, cm("cm2")).await;
    world.work_gone("w").await;
    assert!(world.record("w").await.is_none());
    world.end().await;
}

#[actix::test]
async fn a_work_that_comes_back_under_its_name_is_applied_anew() {
    let world = World::start().await;
    world
        .create_work("w", workload([config_map("cm1", json!({"a": "1"}))]))
        .await;
    world.settled("w").await;
    let first = world.get(cm("cm1")).await.unwrap();
    world.delete_work("w").await;
    world.work_gone("w").await;
    world
        .create_work("w", workload([config_map("cm1", json!({"a": "2"}))]))
        .await;
    world.settled("w").await;
    let second = world.get(cm("cm1")).await.unwrap();
    assert_ne!(first["metadata"]["uid"], second["metadata"]["uid"]);
    assert_eq!(second["data"]["a"], "2");
    world.end().await;
}

#[actix::test]
async fn nothing_is_removed_before_the_first_apply() {
    let world = World::start().await;
    world.create_work("w", three()).await;
    world.settled("w").await;
    let uid = world.get(cm("cm1")).await.unwrap()["metadata"]["uid"].clone();
    assert!(stop(&world.agent, Duration::from_secs(10)).await);

    // The hub is restored from a backup: an older work is there, and no status.
    world
        .patch_work_status("w", json!({"conditions": null, "resourceStatus": null}))
        .await;
    let rest = ["cm2", "cm3"].map(|name| config_map(name, json!({})));
    world.edit_work("w", workload(rest)).await;
    world.hub_tap.fail(|method, path| {
        let status = method == "PATCH" && path.ends_with("/status");
        status.then_some(tap::Fault::Refused(403, "Forbidden", "not yet"))
    });
    world.spoke_tap.clear();
    let agent = start(world.deps.clone());
    world.polls(3).await;
    let deletes = world
        .spoke_tap
        .writes()
        .into_iter()
        .filter(|(method, _)| method == "DELETE");
    assert_eq!(deletes.count(), 0);
    assert_eq!(world.get(cm("cm1")).await.unwrap()["metadata"]["uid"], uid);
    assert_eq!(
        world.recorded("w").await.len(),
        3,
        "what is not removed is not forgotten"
    );

    // Once the hub says that this spec was applied, it counts.
    world.hub_tap.heal();
    world.object(cm("cm1"), |object| object.is_none()).await;
    World { agent, ..world }.end().await;
}

#[actix::test]
async fn an_object_that_somebody_else_made_anew_stays() {
    let world = World::start().await;
    world
        .create_work(
            "w",
            workload([config_map("cm1", json!({})), config_map("cm2", json!({}))]),
        )
        .await;
    world.settled("w").await;
    // Between two polls: deleted, and made by somebody else.
    world.spoke_tap.fail(|method, path| {
        let applies = method == "POST" && path.ends_with("/configmaps");
        applies.then_some(tap::Fault::Refused(403, "Forbidden", "not now"))
    });
    let uid = world.get(cm("cm1")).await.unwrap()["metadata"]["uid"].clone();
    world
        .spoke
        .delete(cm("cm1"), uid.as_str().unwrap())
        .await
        .unwrap();
    let theirs = config_map("cm1", json!({"owner": "somebody else"}));
    let _: Value = world.spoke.create(cm("cm1"), &theirs).await.unwrap();
    world.delete_work("w").await;
    world.work_gone("w").await;
    let live = world.get(cm("cm1")).await.unwrap();
    assert_eq!(live["data"]["owner"], "somebody else");
    assert!(world.get(cm("cm2")).await.is_none());
    world.end().await;
}

#[actix::test]
async fn an_object_of_two_works_goes_with_the_last() {
    let world = World::start().await;
    for name in ["w1", "w2"] {
        world
            .create_work(name, workload([config_map("cm1", json!({"a": "b"}))]))
            .await;
        world.settled(name).await;
    }
    let owners = |object: &Value| {
        let references = object["metadata"]["ownerReferences"].as_array().unwrap();
        let names = references
            .iter()
            .map(|reference| reference["name"].as_str().unwrap());
        names.map(str::to_owned).collect::<Vec<_>>()
    };
    let both = [World::record_name("w1"), World::record_name("w2")];
    assert_eq!(owners(&world.get(cm("cm1")).await.unwrap()), both);
    world.delete_work("w1").await;
    world.work_gone("w1").await;
    assert_eq!(owners(&world.get(cm("cm1")).await.unwrap()), both[1..]);
    world.delete_work("w2").await;
    world.work_gone("w2").await;
    assert!(world.get(cm("cm1")).await.is_none());
    world.end().await;
}

#[actix::test]
async fn orphaned_objects_stay() {
    let world = World::start().await;
    let spec = |names: &[&str]| {
        let objects: Vec<_> = names
            .iter()
            .map(|name| config_map(name, json!({})))
            .collect();
        let mut spec = workload(objects);
        spec["deleteOption"] = json!({
            "propagationPolicy": "SelectivelyOrphan",
            "selectivelyOrphans": {"orphaningRules": [
                {"group": "", "resource": "configmaps", "namespace": "ns1", "name": "a"},
            ]},
        });
        spec
    };
    world.create_work("w", spec(&["a", "b"])).await;
    world.settled("w").await;
    world.edit_work("w", spec(&["b"])).await;
    world.settled("w").await;
    eventually(|| world.recorded("w"), |names| names == &["configmaps/b"]).await;
    world.delete_work("w").await;
    world.work_gone("w").await;
    let kept = world.get(cm("a")).await.unwrap();
    let references = &kept["metadata"]["ownerReferences"];
    assert!(
        references.as_array().is_none_or(Vec::is_empty),
        "{references}"
    );
    assert!(world.get(cm("b")).await.is_none());
    world.end().await;
}

#[actix::test]
async fn a_deleted_record_of_a_wanted_work_comes_back() {
    let world = World::start().await;
    world
        .create_work("w", workload([config_map("cm1", json!({}))]))
        .await;
    world.settled("w").await;
    let old = world.record("w").await.unwrap();
    super::super::applied_work::delete(&world.spoke, &old)
        .await
        .unwrap();
    let is_new = |record: &Option<AppliedManifestWork>| {
        record
            .as_ref()
            .is_some_and(|record| record.metadata.uid != old.metadata.uid)
    };
    let new = eventually(|| world.record("w"), is_new).await.unwrap();
    let owned = |object: Option<&Value>| {
        let uid = object.map(|object| &object["metadata"]["ownerReferences"][0]["uid"]);
        uid.is_some_and(|uid| uid.as_str() == new.metadata.uid.as_deref())
    };
    world.object(cm("cm1"), owned).await;
    world.end().await;
}

#[actix::test]
async fn nothing_is_removed_while_a_manifest_cannot_be_resolved() {
    let world = World::start().await;
    world.create_work("w", three()).await;
    world.settled("w").await;
    let [widget, crd] = [0, 1].map(|at| crd_and_object()["workload"]["manifests"][at].clone());
    world
        .edit_work("w", workload([config_map("cm1", json!({})), widget]))
        .await;
    world
        .work("w", |work| current(work, WORK_APPLIED, "False"))
        .await;
    world.polls(3).await;
    assert!(
        world.get(cm("cm2")).await.is_some(),
        "the unknown kind may be a rename of it"
    );
    assert_eq!(world.recorded("w").await.len(), 3);

    let _: Value = world.spoke.create(CRD, &crd).await.unwrap();
    world.settled("w").await;
    world.object(cm("cm2"), |object| object.is_none()).await;
    let names = ["configmaps/cm1", "guestbooks/guestbook1"];
    eventually(|| world.recorded("w"), |recorded| recorded == &names).await;
    world.end().await;
}

#[actix::test]
async fn a_deletion_asks_a_silent_cluster_once_a_pass() {
    let world = World::start().await;
    world.create_work("w", three()).await;
    world.settled("w").await;
    world
        .spoke_tap
        .fail(|_, path| path.contains("/configmaps/").then_some(tap::Fault::Silent));
    let begin = tokio::time::Instant::now();
    world.delete_work("w").await;
    let deleting = |work: &ManifestWork| current(work, WORK_DELETING, "True");
    // A pass of the polls may be on its way: its limit, and that of one request of the deletion.
    world
        .work_within(Duration::from_secs(80), "w", deleting)
        .await;
    assert!(
        begin.elapsed() < Duration::from_secs(70),
        "{:?}",
        begin.elapsed()
    );
    world.spoke_tap.heal();
    world.work_gone_within(Duration::from_secs(90), "w").await;
    world.end().await;
}

#[actix::test]
async fn a_work_replaced_at_once_is_applied_by_a_new_actor() {
    let world = World::start().await;
    for round in 0..5 {
        let n = round.to_string();
        let work = world
            .create_work("w", workload([config_map("cm1", json!({ "n": n }))]))
            .await;
        let settled = world.settled("w").await;
        assert_eq!(settled.metadata.uid, work.metadata.uid);
        assert_eq!(world.get(cm("cm1")).await.unwrap()["data"]["n"], n.as_str());
        // Forced away, so that it goes and comes back in one breath.
        world
            .patch_work("w", json!({"metadata": {"finalizers": null}}))
            .await;
        world.delete_work("w").await;
    }
    world.end().await;
}

const GEARS: Target<'static> = Target {
    group: "apiextensions.k8s.io",
    version: "v1",
    resource: "customresourcedefinitions",
    namespace: "",
    name: "gears.example.org",
};

fn gears(alpha_is_served: bool, v1_is_served: bool) -> Value {
    let schema = json!({"openAPIV3Schema": {
        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
    }});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gears.example.org"},
        "spec": {
            "group": "example.org", "scope": "Namespaced",
            "names": {"kind": "Gear", "plural": "gears", "singular": "gear", "listKind": "GearList"},
            "versions": [
                {"name": "v1alpha1", "served": alpha_is_served, "storage": false, "schema": schema},
                {"name": "v1", "served": v1_is_served, "storage": true, "schema": schema},
            ],
        },
    })
}

async fn serve(world: &World, alpha: bool, v1: bool) {
    let spec = gears(alpha, v1)["spec"].clone();
    world.merge(GEARS, json!({ "spec": spec })).await;
}

/// With a work that has applied a gear in `v1alpha1`.
async fn with_a_gear() -> World {
    let world = World::start().await;
    let _: Value = world.spoke.create(GEARS, &gears(true, true)).await.unwrap();
    let gear = json!({"apiVersion": "example.org/v1alpha1", "kind": "Gear",
        "metadata": {"namespace": "ns1", "name": "g"}});
    world.create_work("w", workload([gear])).await;
    world.settled("w").await;
    world
}

fn gear() -> Target<'static> {
    target("example.org", "gears", "g")
}

#[actix::test]
async fn an_object_goes_through_another_version_if_its_own_is_not_served() {
    let world = with_a_gear().await;
    serve(&world, false, true).await;
    // The manifest cannot be applied any more; that is no reason to remove its object.
    world
        .work("w", |work| current(work, WORK_APPLIED, "False"))
        .await;
    world.polls(3).await;
    assert!(world.get(gear()).await.is_some());
    assert_eq!(world.recorded("w").await, ["gears/g"]);
    world.delete_work("w").await;
    world.work_gone("w").await;
    assert!(world.get(gear()).await.is_none());
    assert!(world.record("w").await.is_none());
    world.end().await;
}

#[actix::test]
async fn an_object_of_which_no_version_is_served_is_waited_for() {
    let world = with_a_gear().await;
    serve(&world, false, false).await;
    world.delete_work("w").await;
    let waits = |work: &ManifestWork| {
        let conditions = &status(work).conditions;
        muster_api::conditions::find(conditions, WORK_DELETING).is_some_and(|deleting| {
            deleting
                .message
                .ends_with("waiting for gears.example.org ns1/g (no version of it is served)")
        })
    };
    world.work("w", waits).await;
    serve(&world, false, true).await;
    world.work_gone_within(Duration::from_secs(60), "w").await;
    assert!(world.get(gear()).await.is_none());
    world.end().await;
}

#[actix::test]
async fn an_object_whose_definition_is_gone_is_gone() {
    let world = with_a_gear().await;
    let definition = world.get(GEARS).await.unwrap();
    let uid = definition["metadata"]["uid"].as_str().unwrap();
    world.spoke.delete(GEARS, uid).await.unwrap();
    world.object(GEARS, |definition| definition.is_none()).await;
    world.delete_work("w").await;
    world.work_gone("w").await;
    assert!(world.record("w").await.is_none());
    world.end().await;
}
