//! The objects that are measured.

use muster_api::work::{FeedBackType, FeedbackRule, JsonPath, ManifestResourceMeta, ManifestWork};
use serde_json::{Value, json};

/// The bench object: a Deployment of about 1 KB, two of its three replicas ready.
pub fn deployment() -> Value {
    let mut object = manifest("web", "default");
    object["metadata"]["uid"] = json!("7d1c3a52-0a3e-4a53-9f0e-3d6f1c1f0a11");
    object["metadata"]["resourceVersion"] = json!("81234");
    object["metadata"]["generation"] = json!(4);
    object["metadata"]["creationTimestamp"] = json!("2026-03-01T10:00:00Z");
    object["status"] = deployment_status(2);
    object
}

/// The manifest of a Deployment as it is delivered.
pub fn manifest(name: &str, namespace: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": name, "tier": "web"}},
        "spec": {
            "replicas": 3, "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{
                    "name": "server", "image": "registry.example.org/shop/web:1.4.2",
                    "ports": [{"name": "http", "containerPort": 8080}],
                    "env": [{"name": "LOG_LEVEL", "value": "info"}],
                    "resources": {"limits": {"cpu": "500m", "memory": "256Mi"}},
                }]},
            },
        },
    })
}

/// The status of a Deployment of which `ready` replicas are ready.
pub fn deployment_status(ready: i64) -> Value {
    json!({
        "observedGeneration": 1, "replicas": 3, "updatedReplicas": 3, "readyReplicas": ready,
        "availableReplicas": ready,
        "conditions": [
            {"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable",
             "message": "Deployment has minimum availability.",
             "lastTransitionTime": "2026-03-01T10:01:00Z", "lastUpdateTime": "2026-03-01T10:01:00Z"},
            {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable",
             "message": "ReplicaSet has successfully progressed.",
             "lastTransitionTime": "2026-03-01T10:00:00Z", "lastUpdateTime": "2026-03-01T10:01:00Z"},
        ],
    })
}

/// The metadata under which a work reports a Deployment.
pub fn deployment_meta(name: &str, namespace: &str) -> ManifestResourceMeta {
    ManifestResourceMeta {
        group: "apps".to_owned(),
        version: "v1".to_owned(),
        kind: "Deployment".to_owned(),
        resource: "deployments".to_owned(),
        name: name.to_owned(),
        namespace: namespace.to_owned(),
        ..ManifestResourceMeta::default()
    }
}

/// A Deployment with little in it, all of whose replicas are ready. With what an API server adds,
/// most of it managed fields, it has about 2.7 KB.
pub fn small_deployment(name: &str, namespace: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": 3, "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "server", "image": "registry.example.org/web:1"}]},
            },
        },
        "status": deployment_status(3),
    })
}

/// A ConfigMap.
pub fn config_map(name: &str, namespace: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
        "data": {"application.properties": "log.level=info\nqueue.size=128\nfeature.x=on\n"},
    })
}

/// The rules of the bench object: its well-known values and one path with a filter.
pub fn feedback_rules() -> Vec<FeedbackRule> {
    let rule = |type_, json_paths| FeedbackRule { type_, json_paths };
    let filter = JsonPath {
        name: "Available".to_owned(),
        path: r#".status.conditions[?(@.type=="Available")].status"#.to_owned(),
        version: String::new(),
    };
    vec![
        rule(FeedBackType::WellKnownStatus, Vec::new()),
        rule(FeedBackType::JsonPaths, vec![filter]),
    ]
}

/// Manifests and feedback rules of a work with one ConfigMap and one Deployment, both `name`.
pub fn work_spec(name: &str, namespace: &str) -> Value {
    work_spec_of(name, namespace, 2)
}

/// The same with so many manifests: a Deployment, and ConfigMaps, the first of them `name`.
pub fn work_spec_of(name: &str, namespace: &str, manifests: usize) -> Value {
    let config_maps = (1..manifests).map(|number| match number {
        1 => config_map(name, namespace),
        _ => config_map(&format!("{name}-{number}"), namespace),
    });
    let manifests: Vec<Value> = config_maps.chain([manifest(name, namespace)]).collect();
    json!({
        "workload": {"manifests": manifests},
        "manifestConfigs": [{
            "resourceIdentifier": {
                "group": "apps", "resource": "deployments", "name": name, "namespace": namespace},
            "feedbackRules": feedback_rules(),
        }],
    })
}

/// A work's spec with a small Deployment of each of these names, all of them watched.
pub fn watched_spec(names: &[String], namespace: &str) -> Value {
    let manifests = names.iter().map(|name| {
        let mut manifest = small_deployment(name, namespace);
        if let Some(fields) = manifest.as_object_mut() {
            fields.remove("status");
        }
        manifest
    });
    let configs = names.iter().map(|name| {
        json!({
            "resourceIdentifier": {
                "group": "apps", "resource": "deployments", "name": name, "namespace": namespace},
            "feedbackRules": feedback_rules(),
            "feedbackScrapeType": "Watch",
        })
    });
    json!({
        "workload": {"manifests": manifests.collect::<Vec<_>>()},
        "manifestConfigs": configs.collect::<Vec<_>>(),
    })
}

/// The spec of a work with one Deployment, brought to the 1,650 bytes of the calibration.
pub fn spec_1650() -> Vec<u8> {
    const BYTES: usize = 1650;
    let mut deployment = deployment();
    deployment["metadata"]["annotations"] = json!({"note": ""});
    let spec = |deployment: &Value| json!({"workload": {"manifests": [deployment]}}).to_string();
    let missing = BYTES.saturating_sub(spec(&deployment).len());
    deployment["metadata"]["annotations"]["note"] = json!("x".repeat(missing));
    spec(&deployment).into_bytes()
}

/// A work with one Deployment and its feedback rules as a hub has it, with its status. As an event,
/// its spec has the 1,653 bytes of the recorded numbers.
pub fn event_work(uid: &str, name: &str, cluster: &str) -> serde_json::Result<ManifestWork> {
    const BYTES: usize = 1653;
    let config = json!({
        "resourceIdentifier": {
            "group": "apps", "resource": "deployments", "name": "web", "namespace": "default"},
        "feedbackRules": feedback_rules(),
    });
    let mut deployment = manifest("web", "default");
    deployment["metadata"]["annotations"] = json!({"note": ""});
    let data = json!({"manifests": [deployment], "manifestConfigs": [config]});
    let missing = BYTES.saturating_sub(data.to_string().len());
    deployment["metadata"]["annotations"]["note"] = json!("x".repeat(missing));
    serde_json::from_value(json!({
        "apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
        "metadata": {
            "name": name, "namespace": cluster, "uid": uid, "generation": 1,
            "creationTimestamp": "2026-03-01T10:00:00Z",
            "labels": {"app": "web", "tier": "web"},
        },
        "spec": {"workload": {"manifests": [deployment]}, "manifestConfigs": [config]},
        "status": event_status(1),
    }))
}

/// The status of such a work in this generation.
pub fn event_status(generation: i64) -> Value {
    let condition = |kind: &str, reason: &str, message: &str| {
        json!({"type": kind, "status": "True", "observedGeneration": generation, "reason": reason,
            "message": message, "lastTransitionTime": "2026-03-01T10:01:00Z"})
    };
    let value = |name: &str| json!({"name": name, "fieldValue": {"type": "Integer", "integer": 3}});
    json!({
        "conditions": [
            condition("Applied", "AppliedManifestWorkComplete", "Apply manifest work complete"),
            condition("Available", "ResourcesAvailable", "All resources are available"),
        ],
        "resourceStatus": {"manifests": [{
            "resourceMeta": deployment_meta("web", "default"),
            "conditions": [
                condition("Applied", "AppliedManifestComplete", "Apply manifest complete"),
                condition("Available", "ResourceAvailable", "Resource is available"),
                condition("StatusFeedbackSynced", "StatusFeedbackSynced", ""),
            ],
            "statusFeedback": {"values": [
                value("ReadyReplicas"), value("Replicas"), value("AvailableReplicas"),
                {"name": "Available", "fieldValue": {"type": "String", "string": "True"}},
            ]},
        }]},
    })
}
