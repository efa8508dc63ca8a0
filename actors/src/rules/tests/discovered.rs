//! What is served, and what the API server says of it, on a paused clock.

use std::time::Duration;

use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, PostParams};
use muster_apiserver::ApiServer;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::cluster::{Ruled, Start};

fn crd() -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.io"},
        "spec": {"group": "example.io", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema":
                {"openAPIV3Schema": {"type": "object",
                    "x-kubernetes-preserve-unknown-fields": true}}}]}})
}

fn of_kind(server: &ApiServer, group: &str, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
    if kind == "CustomResourceDefinition" {
        return Api::all_with(server.client(), &resource);
    }
    Api::namespaced_with(server.client(), "a", &resource)
}

fn crds(server: &ApiServer) -> Api<DynamicObject> {
    of_kind(server, "apiextensions.k8s.io", "CustomResourceDefinition")
}

fn widgets(server: &ApiServer) -> Api<DynamicObject> {
    of_kind(server, "example.io", "Widget")
}

async fn create(api: &Api<DynamicObject>, object: Value) {
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

fn widget(name: &str) -> Value {
    json!({"apiVersion": "example.io/v1", "kind": "Widget",
        "metadata": {"name": name}, "data": {"a": "1"}})
}

fn of_widgets() -> Value {
    json!([{"apiGroups": ["example.io"], "resources": ["widgets"]}])
}

/// S73, S115: what is kept of a sink is not thrown away because a group is silent when the agent
/// starts, or not there yet.
#[actix::test]
async fn a_group_that_is_silent_at_the_start_has_nothing_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let start = |server| Start {
        server,
        data_dir: Some(folder.path().to_owned()),
        ..Start::default()
    };
    let ruled = Ruled::start_as(start(None)).await;
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

    let start = start(Some(server.clone()));
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

/// What sinks had by rules that are no more is forgotten once all that is served is known.
#[actix::test]
async fn what_no_rule_wants_is_told_anew_to_one_that_comes_later() {
    let folder = tempfile::tempdir().unwrap();
    let start = |server| Start {
        server,
        data_dir: Some(folder.path().to_owned()),
        ..Start::default()
    };
    let ruled = Ruled::start_as(start(None)).await;
    let server = ruled.server.clone();
    ruled.write("a", "x", "1", json!({})).await;
    ruled
        .put("maps", "one", json!([{"resources": ["configmaps"]}]))
        .await;
    ruled.hears("one", &["CREATE x"]).await;
    let server_only = ruled.server.clone();
    ruled.end().await;
    let rules: Api<muster_api::rules::WatchRule> = Api::namespaced(server_only.client(), "a");
    rules
        .delete("maps", &DeleteParams::default())
        .await
        .unwrap();

    let ruled = Ruled::start_as(start(Some(server))).await;
    sleep(Duration::from_secs(120)).await;
    ruled.hears("one", &[]).await;
    ruled
        .put("maps", "one", json!([{"resources": ["configmaps"]}]))
        .await;
    ruled.hears("one", &["CREATE x"]).await;
    ruled.end().await;
}
