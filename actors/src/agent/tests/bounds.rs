//! Inputs at their bounds.

use muster_api::constants::MANIFEST_APPLIED;
use serde_json::json;

use super::*;

fn nested(depth: usize) -> Value {
    (0..depth).fold(json!(1), |below, _| json!({"properties": {"p": below}}))
}

/// A kind whose objects may hold anything.
fn anything() -> Value {
    let schema = json!({"openAPIV3Schema": {
        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
    }});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "odds.odd.example.io"},
        "spec": {
            "group": "odd.example.io", "scope": "Namespaced",
            "names": {"kind": "Odd", "plural": "odds", "singular": "odd", "listKind": "OddList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    })
}

/// A definition whose schema is nested so deep.
fn definition(depth: usize) -> Value {
    let mut schema = json!({"type": "integer"});
    for _ in 0..depth {
        schema = json!({"type": "object", "properties": {"p": schema}});
    }
    let mut definition = anything();
    definition["metadata"]["name"] = "deeps.odd.example.io".into();
    definition["spec"]["names"] =
        json!({"kind": "Deep", "plural": "deeps", "singular": "deep", "listKind": "DeepList"});
    definition["spec"]["versions"][0]["schema"] = json!({ "openAPIV3Schema": schema });
    definition
}

/// Comparing the two has to end, whoever made the definition.
async fn apply_restart_and_delete(adopted: bool) {
    let name = "deeps.odd.example.io";
    let deep = Target {
        namespace: "",
        ..target("apiextensions.k8s.io", "customresourcedefinitions", name)
    };
    let mut world = World::start().await;
    if adopted {
        let _: Value = world.spoke.create(deep, &definition(40)).await.unwrap();
    }
    world.create_work("w", workload([definition(40)])).await;
    world.settled("w").await;
    world.restart().await;
    world.polls(2).await;
    world.settled("w").await;
    world.delete_work("w").await;
    world.work_gone("w").await;
    assert!(world.get(deep).await.is_none());
    world.end().await;
}

#[actix::test]
async fn a_deep_definition_outlives_its_agent() {
    apply_restart_and_delete(false).await;
}

#[actix::test]
async fn a_deep_definition_that_was_there_before_is_adopted() {
    apply_restart_and_delete(true).await;
}

#[actix::test]
async fn an_object_that_nests_too_deep_costs_only_its_own_manifest() {
    let world = World::start().await;
    let odd = |name: &str| {
        json!({"apiVersion": "odd.example.io/v1", "kind": "Odd",
            "metadata": {"name": name, "namespace": "ns1"}})
    };
    let spec = workload([
        anything(),
        odd("flat"),
        odd("deep"),
        config_map("cm1", json!({})),
    ]);
    world.create_work("w", spec).await;
    world.settled("w").await;
    // As deep as the embedded server reads; the answer nests deeper than that.
    world.spoke_tap.fail(|method, path| {
        let read = *method == http::Method::GET && path.ends_with("/odds/deep");
        read.then_some(tap::Fault::Body(deep_body()))
    });
    let failed = |work: &ManifestWork| manifests(work, MANIFEST_APPLIED)[2] == "False";
    let work = world.work("w", failed).await;
    assert_eq!(
        manifests(&work, MANIFEST_APPLIED),
        ["True", "True", "False", "True"]
    );
    let text = message(&work, 2, MANIFEST_APPLIED);
    assert!(text.contains("recursion limit exceeded"), "{text}");
    world.spoke_tap.heal();
    world.settled("w").await;
    world.end().await;
}

fn deep_body() -> String {
    let spec = nested(100).to_string();
    format!(r#"{{"apiVersion":"odd.example.io/v1","kind":"Odd","metadata":{{}},"spec":{spec}}}"#)
}
