//! Works that are applied.

use http::Method;
use muster_api::constants::{
    MANIFEST_WORK_FINALIZER, STATUS_FEEDBACK_SYNCED, WORK_APPLIED, WORK_AVAILABLE,
};
use serde_json::{Value, json};

use super::*;

#[actix::test]
async fn a_work_is_applied_recorded_and_reported() {
    let world = World::start().await;
    world
        .create_work("w", workload([config_map("cm1", json!({"a": "b"}))]))
        .await;
    let work = world.settled("w").await;

    let object = world.get(cm("cm1")).await.unwrap();
    assert_eq!(object["data"], json!({"a": "b"}));
    let managers = object["metadata"]["managedFields"].as_array();
    for entry in managers.into_iter().flatten() {
        assert_eq!(entry["manager"], "work-agent");
    }
    let record = world.record("w").await.unwrap();
    assert_eq!(
        object["metadata"]["ownerReferences"],
        json!([{
            "apiVersion": "work.open-cluster-management.io/v1", "kind": "AppliedManifestWork",
            "name": World::record_name("w"), "uid": record.metadata.uid,
        }])
    );

    assert_eq!(manifests(&work, WORK_APPLIED), ["True"]);
    assert_eq!(manifests(&work, WORK_AVAILABLE), ["True"]);
    let finalizers = work.metadata.finalizers.unwrap();
    assert_eq!(finalizers, [MANIFEST_WORK_FINALIZER]);
    assert_eq!(record.metadata.labels, work.metadata.labels);
    assert_eq!(record.spec.manifest_work_name, "w");
    assert_eq!(record.spec.agent_id, hub_hash(HUB_ID));
    let resources = record.status.unwrap().applied_resources;
    assert_eq!(
        resources[0].uid,
        object["metadata"]["uid"].as_str().unwrap()
    );
    assert_eq!(world.recorded("w").await, ["configmaps/cm1"]);
    world.end().await;
}

#[actix::test]
async fn what_leaves_the_spec_leaves_the_cluster() {
    let world = World::start().await;
    world
        .create_work("w", workload([config_map("cm1", json!({"a": "b"}))]))
        .await;
    world.settled("w").await;
    world
        .edit_work("w", workload([config_map("cm2", json!({"x": "y"}))]))
        .await;
    let work = world.settled("w").await;
    world.object(cm("cm1"), |object| object.is_none()).await;
    assert_eq!(
        world.get(cm("cm2")).await.unwrap()["data"],
        json!({"x": "y"})
    );
    assert_eq!(status(&work).resource_status.manifests.len(), 1);
    eventually(|| world.recorded("w"), |names| names == &["configmaps/cm2"]).await;
    world.end().await;
}

#[actix::test]
async fn a_manifest_that_fails_leaves_the_others_alone() {
    let world = World::start().await;
    let mut lost = config_map("cm1", json!({}));
    lost["metadata"]["namespace"] = "non-existent-namespace".into();
    let (cm2, cm3) = (config_map("cm2", json!({})), config_map("cm3", json!({})));
    world.create_work("w", workload([lost, cm2, cm3])).await;
    let work = world
        .work("w", |work| current(work, WORK_APPLIED, "False"))
        .await;
    assert_eq!(manifests(&work, WORK_APPLIED), ["False", "True", "True"]);
    assert_eq!(manifests(&work, WORK_AVAILABLE), ["False", "True", "True"]);
    assert!(current(&work, WORK_AVAILABLE, "False"));
    let text = message(&work, 0, WORK_APPLIED);
    assert!(
        text.starts_with("Failed to apply manifest: namespaces \"non-existent-namespace\""),
        "{text}"
    );
    assert!(world.get(cm("cm2")).await.is_some() && world.get(cm("cm3")).await.is_some());

    let (cm1, cm4) = (config_map("cm1", json!({})), config_map("cm4", json!({})));
    let cm2 = config_map("cm2", json!({"x": "y"}));
    world.edit_work("w", workload([cm1, cm2, cm4])).await;
    let work = world.settled("w").await;
    assert_eq!(manifests(&work, WORK_APPLIED), ["True"; 3]);
    let names = ["configmaps/cm1", "configmaps/cm2", "configmaps/cm4"];
    eventually(|| world.recorded("w"), |recorded| recorded == &names).await;
    assert!(world.get(cm("cm3")).await.is_none());
    assert_eq!(
        world.get(cm("cm2")).await.unwrap()["data"],
        json!({"x": "y"})
    );
    world.end().await;
}

fn guestbook_crd() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "guestbooks.my.domain"},
        "spec": {
            "group": "my.domain", "scope": "Namespaced",
            "names": {
                "kind": "Guestbook", "listKind": "GuestbookList",
                "plural": "guestbooks", "singular": "guestbook",
            },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                }},
            }],
        },
    })
}

fn guestbook(annotations: Value) -> Value {
    let mut object = json!({
        "apiVersion": "my.domain/v1", "kind": "Guestbook",
        "metadata": {"namespace": "ns1", "name": "guestbook1"}, "spec": {"foo": "bar"},
    });
    object["metadata"]["annotations"] = annotations;
    object
}

const GUESTBOOK: Target<'static> = Target {
    group: "my.domain",
    version: "v1",
    resource: "guestbooks",
    namespace: "ns1",
    name: "guestbook1",
};

/// The object before its type: the order of the spec does not matter.
pub(super) fn crd_and_object() -> Value {
    workload([guestbook(json!({})), guestbook_crd()])
}

pub(super) const CRD: Target<'static> = Target {
    group: "apiextensions.k8s.io",
    version: "v1",
    resource: "customresourcedefinitions",
    namespace: "",
    name: "guestbooks.my.domain",
};

#[actix::test]
async fn a_crd_and_its_object_in_one_work_converge() {
    let world = World::start().await;
    let begin = tokio::time::Instant::now();
    world.create_work("w", crd_and_object()).await;
    let work = world.settled("w").await;
    assert!(
        begin.elapsed() < Duration::from_secs(3),
        "{:?}",
        begin.elapsed()
    );
    assert_eq!(manifests(&work, WORK_APPLIED), ["True", "True"]);
    let metas: Vec<_> = status(&work)
        .resource_status
        .manifests
        .iter()
        .map(|manifest| {
            let meta = &manifest.resource_meta;
            (
                meta.ordinal,
                meta.resource.as_str(),
                meta.namespace.as_str(),
            )
        })
        .collect();
    assert_eq!(
        metas,
        [
            (0, "guestbooks", "ns1"),
            (1, "customresourcedefinitions", "")
        ]
    );
    assert_eq!(
        world.recorded("w").await,
        [
            "customresourcedefinitions/guestbooks.my.domain",
            "guestbooks/guestbook1"
        ],
    );
    world.end().await;
}

#[actix::test]
async fn labels_annotations_and_finalizers_of_others_stay() {
    let world = World::start().await;
    world.create_work("w", crd_and_object()).await;
    world.settled("w").await;
    let theirs = json!({"metadata": {
        "annotations": {"foo": "bar"}, "labels": {"team": "blue"}, "finalizers": ["x.io/foo"],
    }});
    let before = world.merge(GUESTBOOK, theirs).await;
    world.polls(3).await;
    let after = world.get(GUESTBOOK).await.unwrap();
    assert_eq!(
        after["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"],
        "nothing was written"
    );

    let manifest = guestbook(json!({"foo1": "bar1"}));
    world
        .edit_work("w", workload([manifest, guestbook_crd()]))
        .await;
    let object = world
        .object(GUESTBOOK, |object| {
            object.unwrap()["metadata"]["annotations"]["foo1"] == "bar1"
        })
        .await
        .unwrap();
    let metadata = &object["metadata"];
    assert_eq!(metadata["annotations"]["foo"], "bar");
    assert_eq!(metadata["labels"]["team"], "blue");
    assert_eq!(metadata["finalizers"], json!(["x.io/foo"]));
    assert_ne!(
        metadata["resourceVersion"],
        before["metadata"]["resourceVersion"]
    );
    world.end().await;
}

#[actix::test]
async fn a_namespace_on_a_cluster_scoped_manifest_means_nothing() {
    let world = World::start().await;
    let mut spec = workload([json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "work-clusterrole", "namespace": "ns1"},
        "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}],
    })]);
    spec["manifestConfigs"] = json!([{
        "resourceIdentifier": {
            "group": "rbac.authorization.k8s.io", "resource": "clusterroles",
            "name": "work-clusterrole",
        },
        "feedbackRules": [{
            "type": "JSONPaths", "jsonPaths": [{"name": "name", "path": ".metadata.name"}],
        }],
    }]);
    world.create_work("w", spec).await;
    let work = world.settled("w").await;
    let meta = &status(&work).resource_status.manifests[0].resource_meta;
    assert_eq!(meta.namespace, "");
    assert_eq!(values(&work, 0), [("name", json!("work-clusterrole"))]);
    assert_eq!(world.recorded("w").await, ["clusterroles/work-clusterrole"]);
    world.delete_work("w").await;
    world.work_gone("w").await;
    let role = Target {
        namespace: "",
        ..target(
            "rbac.authorization.k8s.io",
            "clusterroles",
            "work-clusterrole",
        )
    };
    assert!(world.get(role).await.is_none());
    world.end().await;
}

fn account(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"namespace": "ns1", "name": name},
    })
}

fn role_binding(name: &str, role: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"namespace": "ns1", "name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
        "subjects": [{"kind": "ServiceAccount", "namespace": "ns1", "name": "sa"}],
    })
}

fn role(name: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"namespace": "ns1", "name": name},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
    })
}

#[actix::test]
async fn a_swapped_and_renamed_manifest_is_followed() {
    let world = World::start().await;
    let mut web = deployment("web");
    web["spec"]["template"]["spec"]["serviceAccountName"] = "sa".into();
    let objects = [
        account("sa"),
        role("role"),
        role_binding("rb", "role"),
        web.clone(),
    ];
    world.create_work("w", workload(objects)).await;
    let work = world.settled("w").await;
    assert_eq!(manifests(&work, WORK_APPLIED), ["True"; 4]);
    assert_eq!(world.recorded("w").await.len(), 4);

    web["spec"]["template"]["spec"]["serviceAccountName"] = "admin".into();
    let objects = [
        web,
        role("role"),
        role_binding("rb", "role"),
        account("admin"),
    ];
    world.edit_work("w", workload(objects)).await;
    let work = world.settled("w").await;
    let live = world.get(deploy("web")).await.unwrap();
    assert_eq!(
        live["spec"]["template"]["spec"]["serviceAccountName"],
        "admin"
    );
    world
        .object(target("", "serviceaccounts", "sa"), |object| {
            object.is_none()
        })
        .await;
    eventually(
        || world.recorded("w"),
        |names| names.len() == 4 && names.contains(&"serviceaccounts/admin".to_owned()),
    )
    .await;
    for manifest in &status(&work).resource_status.manifests {
        let mut types: Vec<_> = manifest
            .conditions
            .iter()
            .map(|c| c.type_.as_str())
            .collect();
        types.sort_unstable();
        assert_eq!(
            types,
            [WORK_APPLIED, WORK_AVAILABLE, STATUS_FEEDBACK_SYNCED]
        );
    }
    world.end().await;
}

#[actix::test]
async fn conditions_follow_the_generation() {
    let world = World::start().await;
    world
        .create_work("w", workload([config_map("cm1", json!({"k": "value1"}))]))
        .await;
    let before = world.settled("w").await;
    world
        .edit_work("w", workload([config_map("cm1", json!({"k": "value2"}))]))
        .await;
    let after = world.settled("w").await;
    assert!(after.metadata.generation > before.metadata.generation);
    for old in &status(&before).conditions {
        let new = muster_api::conditions::find(&status(&after).conditions, &old.type_).unwrap();
        assert!(
            new.last_transition_time.0 >= old.last_transition_time.0,
            "{}",
            old.type_
        );
    }
    world.end().await;
}

#[actix::test]
async fn drift_is_repaired_by_the_next_poll_and_idle_works_write_nothing() {
    let world = World::start().await;
    world
        .create_work("w", workload([config_map("cm1", json!({"a": "b"}))]))
        .await;
    world.settled("w").await;
    world.polls(1).await;

    world.hub_tap.clear();
    world.spoke_tap.clear();
    world.polls(3).await;
    assert_eq!(
        world.hub_tap.requests(),
        [],
        "the watch is all that goes to the hub"
    );
    assert_eq!(world.spoke_tap.writes(), []);
    assert_eq!(world.spoke_tap.reads().len(), 1, "the object");

    world
        .merge(cm("cm1"), json!({"data": {"a": "changed"}}))
        .await;
    world
        .object(cm("cm1"), |object| object.unwrap()["data"]["a"] == "b")
        .await;
    let uid = world.get(cm("cm1")).await.unwrap()["metadata"]["uid"].clone();
    world
        .spoke
        .delete(cm("cm1"), uid.as_str().unwrap())
        .await
        .unwrap();
    world.object(cm("cm1"), |object| object.is_some()).await;
    let work = world.settled("w").await;
    assert_eq!(manifests(&work, WORK_APPLIED), ["True"]);
    world.end().await;
}

#[actix::test]
async fn an_immutable_field_fails_its_manifest_and_no_other() {
    let world = World::start().await;
    let spec = |first, second| workload([role_binding("rb1", first), role_binding("rb2", second)]);
    world.create_work("w", spec("a", "a")).await;
    world.settled("w").await;
    for (edited, expected) in [
        (spec("b", "a"), ["False", "True"]),
        (spec("a", "b"), ["True", "False"]),
    ] {
        world.edit_work("w", edited).await;
        let work = world
            .work("w", |work| current(work, WORK_APPLIED, "False"))
            .await;
        assert_eq!(manifests(&work, WORK_APPLIED), expected);
        assert!(current(&work, WORK_AVAILABLE, "True"));
    }
    world.end().await;
}

#[actix::test]
async fn create_only_creates_and_never_changes() {
    let world = World::start().await;
    let spec = |replicas: i64| {
        let mut web = deployment("web");
        web["spec"]["replicas"] = replicas.into();
        let mut spec = workload([web]);
        spec["manifestConfigs"] = json!([{
            "resourceIdentifier": {
                "group": "apps", "resource": "deployments", "namespace": "ns1", "name": "web",
            },
            "updateStrategy": {"type": "CreateOnly"},
        }]);
        spec
    };
    world.create_work("w", spec(1)).await;
    world.settled("w").await;
    world.edit_work("w", spec(3)).await;
    world.settled("w").await;
    let live = world.get(deploy("web")).await.unwrap();
    assert_eq!(live["spec"]["replicas"], 1);
    let owners = live["metadata"]["ownerReferences"]
        .as_array()
        .unwrap()
        .len();
    assert_eq!(owners, 1);

    let mut orphan = spec(3);
    orphan["deleteOption"] = json!({"propagationPolicy": "Orphan"});
    world.edit_work("w", orphan).await;
    world
        .object(deploy("web"), |object| {
            let references = &object.unwrap()["metadata"]["ownerReferences"];
            references.as_array().is_none_or(Vec::is_empty)
        })
        .await;
    world.end().await;
}

#[actix::test]
async fn read_only_reads_and_never_writes() {
    let world = World::start().await;
    let existing = config_map("cm1", json!({"test": "testdata"}));
    let _: Value = world.spoke.create(cm("cm1"), &existing).await.unwrap();
    let mut spec = workload([config_map("cm1", json!({"test": "other"}))]);
    spec["manifestConfigs"] = json!([{
        "resourceIdentifier": {"resource": "configmaps", "namespace": "ns1", "name": "cm1"},
        "updateStrategy": {"type": "ReadOnly"},
        "feedbackRules": [{
            "type": "JSONPaths", "jsonPaths": [{"name": "test", "path": ".data.test"}],
        }],
    }]);
    world.create_work("w", spec).await;
    let work = world.settled("w").await;
    assert_eq!(values(&work, 0), [("test", json!("testdata"))]);
    let live = world.get(cm("cm1")).await.unwrap();
    assert!(live["metadata"]["ownerReferences"].is_null(), "{live}");

    world
        .merge(cm("cm1"), json!({"data": {"test": "testdata-updated"}}))
        .await;
    world
        .work("w", |work| {
            values(work, 0) == [("test", json!("testdata-updated"))]
        })
        .await;

    world.delete_work("w").await;
    world.work_gone("w").await;
    assert!(world.get(cm("cm1")).await.is_some());
    world.end().await;
}

#[actix::test]
async fn what_the_server_owns_is_ignored_in_a_manifest() {
    let world = World::start().await;
    let exported = |data: Value| {
        let mut object = config_map("cm1", data);
        object["metadata"]["uid"] = "11111111-2222-3333-4444-555555555555".into();
        object["metadata"]["resourceVersion"] = "42".into();
        workload([object])
    };
    world.create_work("w", exported(json!({"a": "1"}))).await;
    world.settled("w").await;
    world.edit_work("w", exported(json!({"a": "2"}))).await;
    world.settled("w").await;
    assert_eq!(world.get(cm("cm1")).await.unwrap()["data"]["a"], "2");
    world.end().await;
}

#[actix::test]
async fn a_conflict_costs_one_more_look_at_the_object() {
    let world = World::start().await;
    world
        .create_work("w", workload([config_map("cm1", json!({"a": "1"}))]))
        .await;
    world.settled("w").await;
    let mut refusals = 3;
    world.spoke_tap.fail(move |method, path| {
        let hit = method == Method::PUT && path.ends_with("/cm1") && refusals > 0;
        refusals -= i32::from(hit);
        hit.then_some(tap::Fault::Refused(
            409,
            "Conflict",
            "the object has been modified",
        ))
    });
    world.spoke_tap.clear();
    let begin = tokio::time::Instant::now();
    world
        .edit_work("w", workload([config_map("cm1", json!({"a": "2"}))]))
        .await;
    let work = world.settled("w").await;
    assert!(
        begin.elapsed() < Duration::from_millis(500),
        "no back-off was needed"
    );
    assert_eq!(world.get(cm("cm1")).await.unwrap()["data"]["a"], "2");
    assert_eq!(manifests(&work, WORK_APPLIED), ["True"]);
    let puts = world
        .spoke_tap
        .writes()
        .into_iter()
        .filter(|(method, _)| method == Method::PUT);
    assert_eq!(puts.count(), 4);
    world.end().await;
}

#[actix::test]
async fn a_restarted_agent_writes_nothing_that_is_as_it_was() {
    let world = World::start().await;
    let objects = [deployment("web"), config_map("cm1", json!({"a": "b"}))];
    world.create_work("w", workload(objects)).await;
    world.settled("w").await;
    world.polls(1).await;
    assert!(stop(&world.agent, Duration::from_secs(10)).await);
    world.spoke_tap.clear();
    world.hub_tap.clear();
    let agent = start(world.deps.clone());
    let world = World { agent, ..world };
    world.polls(2).await;
    assert!(!world.spoke_tap.requests().is_empty(), "the agent looked");
    assert_eq!(world.spoke_tap.writes(), []);
    assert_eq!(world.hub_tap.writes(), []);

    // What changed while it was away is repaired.
    assert!(stop(&world.agent, Duration::from_secs(10)).await);
    world
        .merge(deploy("web"), json!({"spec": {"replicas": 7}}))
        .await;
    let agent = start(world.deps.clone());
    world
        .object(deploy("web"), |object| {
            object.unwrap()["spec"]["replicas"] == 1
        })
        .await;
    World { agent, ..world }.end().await;
}
