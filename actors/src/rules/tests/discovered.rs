//! What is served, and what the API server says of it, on a paused clock.

use std::time::Duration;

use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
};
use muster_api::rules::WatchRule;
use muster_apiserver::ApiServer;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::cluster::{Ruled, Start};

/// Widgets in these versions, of which the last is stored.
fn crd_of(versions: &[&str]) -> Value {
    let stored = versions.last();
    let version = |name| {
        json!({"name": name, "served": true, "storage": Some(name) == stored, "schema":
            {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}})
    };
    let versions: Vec<Value> = versions.iter().map(version).collect();
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.io"},
        "spec": {"group": "example.io", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": versions}})
}

pub(super) fn crd() -> Value {
    crd_of(&["v1"])
}

pub(super) fn crds(server: &ApiServer) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    Api::all_with(server.client(), &ApiResource::from_gvk(&gvk))
}

fn widgets_in(server: &ApiServer, version: &str) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk("example.io", version, "Widget");
    Api::namespaced_with(server.client(), "a", &ApiResource::from_gvk(&gvk))
}

pub(super) fn widgets(server: &ApiServer) -> Api<DynamicObject> {
    widgets_in(server, "v1")
}

pub(super) async fn create(api: &Api<DynamicObject>, object: Value) {
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    // A type that has just been defined is served a moment later.
    for _ in 0..100 {
        match api.create(&PostParams::default(), &object).await {
            Ok(_) => return,
            Err(_) => sleep(Duration::from_millis(50)).await,
        }
    }
    panic!("not created: {object:?}");
}

pub(super) fn widget(name: &str) -> Value {
    json!({"apiVersion": "example.io/v1", "kind": "Widget",
        "metadata": {"name": name}, "data": {"a": "1"}})
}

pub(super) fn of_widgets() -> Value {
    json!([{"apiGroups": ["example.io"], "resources": ["widgets"]}])
}

/// S73, S115: what is kept of a sink is not thrown away because a group is silent when the agent
/// starts, or not there yet.
#[actix::test]
async fn a_group_that_is_silent_at_the_start_has_nothing_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let ruled = Ruled::start_as(Start::keeping(&folder, None)).await;
    let server = ruled.server.clone();
    create(&crds(&server), crd()).await;
    for name in ["w1", "w2"] {
        create(&widgets(&server), widget(name)).await;
    }
    ruled.put("widgets", "one", of_widgets()).await;
    ruled.hears("one", &["CREATE w1", "CREATE w2"]).await;
    ruled.end().await;
    let gone = widgets(&server);
    gone.delete("w1", &DeleteParams::default()).await.unwrap();

    let start = Start::keeping(&folder, Some(&server));
    start.gate.make_stale("example.io");
    let ruled = Ruled::start_as(start).await;
    ruled.reason_is("widgets", "DiscoveryFailed").await;
    // However long it lasts.
    sleep(Duration::from_secs(300)).await;
    ruled.hears("one", &[]).await;
    ruled.gate.allow();
    ruled.hears("one", &["DELETE w1"]).await;
    ruled.reason_is("widgets", "Watching").await;
    ruled.end().await;
}

/// C137, S34: rules that are not known yet are not taken for none, however many there are.
#[actix::test]
async fn rules_that_are_listed_late_are_not_taken_for_none() {
    let folder = tempfile::tempdir().unwrap();
    let ruled = Ruled::start_as(Start::keeping(&folder, None)).await;
    let server = ruled.server.clone();
    for name in ["x", "y"] {
        ruled.write("a", name, "1", json!({})).await;
    }
    for n in 0..50 {
        let items = json!([{"resources": ["configmaps"]}]);
        ruled.put(&format!("r{n:02}"), "one", items).await;
    }
    ruled.hears("one", &["CREATE x", "CREATE y"]).await;
    ruled.end().await;

    for kind in ["/watchrules", "/clusterwatchrules"] {
        let start = Start::keeping(&folder, Some(&server));
        start.gate.slow_down(kind, Duration::from_secs(5));
        let ruled = Ruled::start_as(start).await;
        ruled.reason_is("r49", "Watching").await;
        let value = kind.len().to_string();
        ruled.write("a", "x", &value, json!({})).await;
        ruled.hears("one", &["UPDATE x"]).await;
        ruled.end().await;
    }
}

/// What sinks had by rules that are no more is forgotten once all that is served is known.
#[actix::test]
async fn what_no_rule_wants_is_told_anew_to_one_that_comes_later() {
    let folder = tempfile::tempdir().unwrap();
    let ruled = Ruled::start_as(Start::keeping(&folder, None)).await;
    let server = ruled.server.clone();
    ruled.write("a", "x", "1", json!({})).await;
    ruled
        .put("maps", "one", json!([{"resources": ["configmaps"]}]))
        .await;
    ruled.hears("one", &["CREATE x"]).await;
    ruled.end().await;
    let rules: Api<WatchRule> = Api::namespaced(server.client(), "a");
    rules
        .delete("maps", &DeleteParams::default())
        .await
        .unwrap();

    let ruled = Ruled::start_as(Start::keeping(&folder, Some(&server))).await;
    sleep(Duration::from_secs(120)).await;
    ruled.hears("one", &[]).await;
    ruled
        .put("maps", "one", json!([{"resources": ["configmaps"]}]))
        .await;
    ruled.hears("one", &["CREATE x"]).await;
    ruled.end().await;
}

/// A rule without a version follows the one that the server prefers: each object ends in the version
/// before and begins in the new one, and none is left behind.
#[actix::test]
async fn objects_move_with_the_version_of_their_type() {
    let ruled = Ruled::start().await;
    let server = ruled.server.clone();
    create(&crds(&server), crd_of(&["v1beta1"])).await;
    for name in ["w1", "w2"] {
        let mut widget = widget(name);
        widget["apiVersion"] = json!("example.io/v1beta1");
        create(&widgets_in(&server, "v1beta1"), widget).await;
    }
    ruled.put("widgets", "one", of_widgets()).await;
    let before = ["CREATE w1", "CREATE w2"];
    ruled.hears("one", &before).await;
    let patch = Patch::Merge(crd_of(&["v1beta1", "v1"]));
    let params = PatchParams::default();
    crds(&server)
        .patch("widgets.example.io", &params, &patch)
        .await
        .unwrap();
    let moves = ["DELETE w1", "CREATE w1", "DELETE w2", "CREATE w2"];
    ruled.hears("one", &[&before[..], &moves].concat()).await;
    let heard = ruled.ears["one"].heard.lock().unwrap().clone();
    let versions = heard.iter().map(|event| event.key.resource.version());
    let expected = ["v1beta1", "v1beta1", "v1beta1", "v1", "v1beta1", "v1"];
    assert!(versions.eq(expected));
    // Both versions by name are both wanted, and one that is wanted no more is kept.
    let both = json!([{"apiGroups": ["example.io"], "apiVersions": ["v1beta1", "v1"],
        "resources": ["widgets"]}]);
    ruled.put("widgets", "one", both).await;
    let mut told = [&before[..], &moves, &before].concat();
    ruled.hears("one", &told).await;
    ruled.put("widgets", "one", of_widgets()).await;
    sleep(Duration::from_secs(100)).await;
    let gone = widgets(&server);
    gone.delete("w1", &DeleteParams::default()).await.unwrap();
    told.push("DELETE w1");
    ruled.hears("one", &told).await;
    ruled.end().await;
}

/// The same, if it happens while no agent is there.
#[actix::test]
async fn objects_move_with_their_version_from_one_life_to_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let ruled = Ruled::start_as(Start::keeping(&folder, None)).await;
    let server = ruled.server.clone();
    create(&crds(&server), crd_of(&["v1beta1"])).await;
    let mut old = widget("w1");
    old["apiVersion"] = json!("example.io/v1beta1");
    create(&widgets_in(&server, "v1beta1"), old).await;
    ruled.put("widgets", "one", of_widgets()).await;
    ruled.hears("one", &["CREATE w1"]).await;
    ruled.end().await;
    let patch = Patch::Merge(crd_of(&["v1beta1", "v1"]));
    let params = PatchParams::default();
    crds(&server)
        .patch("widgets.example.io", &params, &patch)
        .await
        .unwrap();
    let ruled = Ruled::start_as(Start::keeping(&folder, Some(&server))).await;
    ruled.hears("one", &["CREATE w1", "DELETE w1"]).await;
    let heard = ruled.ears["one"].heard.lock().unwrap().clone();
    let versions = heard.iter().map(|event| event.key.resource.version());
    assert!(versions.eq(["v1", "v1beta1"]));
    ruled.end().await;
}
