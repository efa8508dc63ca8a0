//! What is made of the answers of an API server that is asked what it serves.

use std::sync::Arc;

use http::{Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use muster_core::watch_rules::{GroupVersion, Scan};
use serde_json::{Value, json};

use crate::rules::discovery::scan;

/// A server with these answers by path; 503 where there is none.
fn server(answers: &[(&str, Value)]) -> Client {
    let answers: Vec<_> = answers
        .iter()
        .map(|(path, answer)| ((*path).to_owned(), answer.clone()))
        .collect();
    let answers = Arc::new(answers);
    let service = tower::service_fn(move |request: Request<Body>| {
        let answers = Arc::clone(&answers);
        async move {
            let path = request.uri().path();
            let answer = answers.iter().find(|(of, _)| of == path);
            let (code, answer) = match answer {
                Some((_, answer)) => (StatusCode::OK, answer.clone()),
                None => (StatusCode::SERVICE_UNAVAILABLE, down()),
            };
            let body = Body::from(serde_json::to_vec(&answer).unwrap());
            Ok::<_, tower::BoxError>(Response::builder().status(code).body(body)?)
        }
    });
    Client::new(service, "default")
}

fn down() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 503,
        "reason": "ServiceUnavailable", "message": "down"})
}

fn aggregated(groups: &Value) -> Value {
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {}, "items": groups})
}

fn resource(name: &str, kind: &str, scope: &str) -> Value {
    json!({"resource": name, "responseKind": {"group": "", "version": "", "kind": kind},
        "scope": scope, "singularResource": "", "verbs": ["list", "watch"],
        "subresources": [{"subresource": "status", "verbs": ["get"]}]})
}

fn listed(group_version: &str, resources: &[(&str, &str, bool)]) -> Value {
    let of = |(name, kind, namespaced): &(&str, &str, bool)| {
        json!({"name": name, "singularName": "", "kind": kind, "namespaced": namespaced,
            "verbs": ["list", "watch"]})
    };
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version,
        "resources": resources.iter().map(of).collect::<Vec<_>>()})
}

/// A group with two versions, of which `v2` is preferred, and one without a word of what it prefers.
fn groups() -> Value {
    let version = |group: &str, version: &str| json!({"groupVersion": format!("{group}/{version}"), "version": version});
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [
        {"name": "a.io", "versions": [version("a.io", "v1"), version("a.io", "v2")],
            "preferredVersion": version("a.io", "v2")},
        {"name": "b.io", "versions": [version("b.io", "v1")]}]})
}

/// A line for each resource, or for what is in its way: `*` stands before what is preferred.
fn told(scan: &Scan) -> Vec<String> {
    let mut told = Vec::new();
    for (of, answer) in &scan.answers {
        let mark = if answer.preferred { "*" } else { "" };
        match &answer.resources {
            Ok(found) => told.extend(found.iter().map(|found| {
                let scope = if found.namespaced {
                    "namespaced"
                } else {
                    "cluster"
                };
                let verbs: Vec<&str> = found.verbs.iter().map(String::as_str).collect();
                let verbs = verbs.join(",");
                format!(
                    "{mark}{of} {} {} {scope} {verbs}",
                    found.resource, found.kind
                )
            })),
            Err(_) => told.push(format!("{mark}{of} error")),
        }
    }
    told
}

/// C133: one pair of answers tells all; a group that is stale is one that does not answer, not one
/// that has nothing, and the first version of a group is the preferred one.
#[tokio::test]
async fn aggregated_answers_are_read() {
    let core = json!([{"versions": [{"version": "v1", "freshness": "Current", "resources":
        [resource("configmaps", "ConfigMap", "Namespaced"),
            resource("nodes", "Node", "Cluster")]}]}]);
    let groups = json!([
        {"metadata": {"name": "a.io"}, "versions": [
            {"version": "v2", "freshness": "Current",
                "resources": [resource("as", "A", "Namespaced")]},
            {"version": "v1", "resources": [resource("as", "A", "Namespaced")]}]},
        {"metadata": {"name": "b.io"}, "versions": [
            {"version": "v1", "freshness": "Stale", "resources": []}]}]);
    let client = server(&[("/api", aggregated(&core)), ("/apis", aggregated(&groups))]);
    let scan = scan(&client).await.unwrap();
    assert!(scan.complete);
    let expected = [
        "*v1 configmaps ConfigMap namespaced list,watch",
        "*v1 nodes Node cluster list,watch",
        "a.io/v1 as A namespaced list,watch",
        "*a.io/v2 as A namespaced list,watch",
        "*b.io/v1 error",
    ];
    assert_eq!(told(&scan), expected);
}

/// C133: a server that does not aggregate all is asked for one group version after the other; one
/// that does not answer is told as that, and the rest is complete.
#[tokio::test]
async fn without_aggregation_each_group_version_is_asked_for() {
    let versions = json!({"kind": "APIVersions", "versions": ["v1"]});
    let maps = ("configmaps", "ConfigMap", true);
    for core in [versions, aggregated(&json!([]))] {
        let client = server(&[
            ("/api", core),
            ("/apis", groups()),
            ("/api/v1", listed("v1", &[maps, ("pods/log", "Pod", true)])),
            ("/apis/a.io/v1", listed("a.io/v1", &[("as", "A", false)])),
            ("/apis/b.io/v1", listed("b.io/v1", &[("bs", "B", true)])),
        ]);
        let scan = scan(&client).await.unwrap();
        assert!(scan.complete);
        let expected = [
            "*v1 configmaps ConfigMap namespaced list,watch",
            "*v1 pods/log Pod namespaced list,watch",
            "a.io/v1 as A cluster list,watch",
            "*a.io/v2 error",
            "*b.io/v1 bs B namespaced list,watch",
        ];
        assert_eq!(told(&scan), expected);
        let failed = &scan.answers[&GroupVersion::new("a.io", "v2")].resources;
        assert!(failed.as_ref().unwrap_err().contains("down"), "{failed:?}");
    }
}

/// C133, L52: without either of the two answers nothing is known, which is not "nothing is served".
#[tokio::test]
async fn without_the_groups_nothing_is_known() {
    let core = aggregated(&json!([]));
    for answers in [
        &[][..],
        &[("/api", core.clone())],
        &[("/apis", core.clone())],
        &[("/api", json!({"kind": "APIVersions", "versions": ["v1"]}))],
    ] {
        let error = scan(&server(answers)).await.unwrap_err();
        assert!(error.to_string().contains("down"), "{error}");
    }
}
