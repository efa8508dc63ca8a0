//! Server-side apply through a client: what is created, kept, watched and refused.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::needless_pass_by_value,
    reason = "helpers of tests fail by panicking and take what reads best"
)]

mod support;

use std::pin::pin;

use http::{Method, Request};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt};
use muster_apiserver::{ApiServer, Storage};
use serde_json::{Value, json};
use support::{config_map, next, refused, server};

fn maps(server: &ApiServer) -> Api<ConfigMap> {
    Api::namespaced(server.client(), "default")
}

fn applied(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data})
}

/// The managers of an object with what they did.
fn managers(object: &impl ResourceExt) -> Vec<String> {
    object
        .managed_fields()
        .iter()
        .map(|entry| {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            format!("{} {}", text(&entry.manager), text(&entry.operation))
        })
        .collect()
}

/// Sends a body as it is.
async fn send(client: &Client, method: Method, path: &str, body: &str) -> kube::Result<Value> {
    let content_type = match method {
        Method::PATCH => "application/apply-patch+yaml",
        _ => "application/json",
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", content_type)
        .header("user-agent", "tester/v1 (linux)")
        .body(body.as_bytes().to_vec())
        .unwrap();
    client.request(request).await
}

#[tokio::test]
async fn an_applied_object_is_created_and_then_changed() {
    let server = server().await;
    let maps = maps(&server);
    let params = PatchParams::apply("me");
    let created = maps
        .patch(
            "a",
            &params,
            &Patch::Apply(applied(json!({"a": "1", "b": "2"}))),
        )
        .await
        .unwrap();
    assert_eq!(managers(&created), ["me Apply"]);
    let changed = maps
        .patch("a", &params, &Patch::Apply(applied(json!({"a": "3"}))))
        .await
        .unwrap();
    assert_eq!(changed.uid(), created.uid());
    assert_eq!(
        changed.data,
        Some([("a".to_owned(), "3".to_owned())].into())
    );
    let again = maps
        .patch("a", &params, &Patch::Apply(applied(json!({"a": "3"}))))
        .await
        .unwrap();
    assert_eq!(again, changed);
}

#[tokio::test]
async fn yaml_is_applied_like_json() {
    let server = server().await;
    let path = "/api/v1/namespaces/default/configmaps/a?fieldManager=me";
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  a: \"1\"\n";
    let created = send(&server.client(), Method::PATCH, path, yaml)
        .await
        .unwrap();
    assert_eq!(created["data"], json!({"a": "1"}));
    let error = refused(send(&server.client(), Method::PATCH, path, "{a: b: c}").await);
    assert_eq!(error.code, 400);
    assert!(
        error.message.starts_with("error decoding YAML: "),
        "{}",
        error.message
    );
}

#[tokio::test]
async fn conflicts_are_told_and_forced() {
    let server = server().await;
    let maps = maps(&server);
    maps.create(&PostParams::default(), &config_map("a", "1"))
        .await
        .unwrap();
    let change = Patch::Apply(applied(json!({"k": "2"})));
    let conflict = refused(maps.patch("a", &PatchParams::apply("me"), &change).await);
    assert_eq!((conflict.code, conflict.reason.as_str()), (409, "Conflict"));
    assert_eq!(
        conflict.message,
        "Apply failed with 1 conflict: conflict with \"unknown\" using v1: .data.k"
    );
    let causes = conflict.details.unwrap().causes;
    assert_eq!(causes.len(), 1);
    assert_eq!(
        (causes[0].reason.as_str(), causes[0].field.as_str()),
        ("FieldManagerConflict", ".data.k")
    );
    let forced = maps
        .patch("a", &PatchParams::apply("me").force(), &change)
        .await
        .unwrap();
    assert_eq!(managers(&forced), ["me Apply", "unknown Update"]);
}

#[tokio::test]
async fn the_manager_of_other_writes_is_given_or_the_user_agent() {
    let server = server().await;
    let client = server.client();
    let path = "/api/v1/namespaces/default/configmaps";
    let body = applied(json!({"a": "1"})).to_string();
    let created = send(&client, Method::POST, path, &body).await.unwrap();
    assert_eq!(created["metadata"]["managedFields"][0]["manager"], "tester");
    let body = applied(json!({"a": "2"})).to_string();
    let named = format!("{path}/a?fieldManager=me");
    let updated = send(&client, Method::PUT, &named, &body).await.unwrap();
    assert_eq!(updated["metadata"]["managedFields"][0]["manager"], "me");
}

#[tokio::test]
async fn requests_that_cannot_be_applied_are_refused() {
    let server = server().await;
    let client = server.client();
    let path = "/api/v1/namespaces/default/configmaps/a";
    let object = applied(json!({"a": "1"}));
    let with = |field: &str, value: Value| {
        let mut object = object.clone();
        object["metadata"][field] = value;
        object.to_string()
    };
    let cases = [
        (
            "",
            object.to_string(),
            422,
            "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch",
        ),
        (
            "?fieldManager=me",
            with("name", json!("b")),
            400,
            "the name of the object (b) does not match the name on the URL (a)",
        ),
        (
            "?fieldManager=me",
            with("namespace", json!("other")),
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            "?fieldManager=me",
            with("managedFields", json!([])),
            400,
            "metadata.managedFields must be nil",
        ),
        (
            "?fieldManager=me",
            with("uid", json!("x")),
            409,
            "Operation cannot be fulfilled on configmaps \"a\": uid mismatch: the provided object specified uid x, and no existing object was found",
        ),
        (
            "?fieldManager=me",
            json!({"apiVersion": "v1", "kind": "Secret"}).to_string(),
            400,
            "invalid object type: /v1, Kind=Secret",
        ),
        (
            "?fieldManager=me",
            applied(json!({"a": 1})).to_string(),
            500,
            "failed to create typed patch object (/a; /v1, Kind=ConfigMap): .data.a: expected string, got &value.valueUnstructured{Value:1}",
        ),
    ];
    for (query, body, code, message) in cases {
        let error = refused(send(&client, Method::PATCH, &format!("{path}{query}"), &body).await);
        assert_eq!((error.code, error.message.as_str()), (code, message));
    }
}

#[tokio::test]
async fn watches_carry_the_managers() {
    let server = server().await;
    let maps = maps(&server);
    let mut events = pin!(maps.watch(&WatchParams::default(), "0").await.unwrap());
    maps.patch(
        "a",
        &PatchParams::apply("me"),
        &Patch::Apply(applied(json!({"a": "1"}))),
    )
    .await
    .unwrap();
    match next(&mut events).await.unwrap() {
        WatchEvent::Added(object) => assert_eq!(managers(&object), ["me Apply"]),
        other => panic!("expected an object, got {other:?}"),
    }
}

#[tokio::test]
async fn managers_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let storage = Storage::Redb(dir.path().join("state.redb"));
    let open = async || {
        ApiServer::builder()
            .storage(storage.clone())
            .build()
            .await
            .unwrap()
    };
    let server = open().await;
    let change = Patch::Apply(applied(json!({"a": "1"})));
    let before = maps(&server)
        .patch("a", &PatchParams::apply("me"), &change)
        .await
        .unwrap();
    server.shutdown().await;
    let server = open().await;
    let after = maps(&server)
        .patch("a", &PatchParams::apply("me"), &change)
        .await
        .unwrap();
    assert_eq!(after, before);
}

#[tokio::test]
async fn applies_at_the_same_time_are_all_kept() {
    let server = server().await;
    let maps = maps(&server);
    let applies = (0..4).map(|i| {
        let maps = maps.clone();
        async move {
            let mut data = json!({});
            data[format!("k{i}")] = json!("v");
            let params = PatchParams::apply(&format!("m{i}"));
            maps.patch("a", &params, &Patch::Apply(applied(data))).await
        }
    });
    for result in futures::future::join_all(applies).await {
        result.unwrap();
    }
    let object = maps.get("a").await.unwrap();
    assert_eq!(object.data.as_ref().unwrap().len(), 4);
    assert_eq!(managers(&object).len(), 4);
}
