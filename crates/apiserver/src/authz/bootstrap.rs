//! Roles and bindings that every cluster with RBAC has from the start.
//!
//! Differs from the real server: the roles of its own components are left out, and the roles for
//! people name the types that this server serves.

use serde_json::{Value, json};

use super::user::MASTERS;
use super::{CLUSTER_BINDINGS, CLUSTER_ROLES};

const AUTHORIZATION: &str = "authorization.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";
const READ: [&str; 3] = ["get", "list", "watch"];
const WRITE: [&str; 5] = ["create", "delete", "deletecollection", "patch", "update"];
const ALL: [&str; 8] = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];

/// The objects with the type that each is of.
pub(crate) fn objects() -> Vec<(&'static str, Value)> {
    let roles = [
        role(
            "cluster-admin",
            &[],
            &json!([rule(&["*"], &["*"], &["*"]), urls(&["*"], &["*"])]),
        ),
        role(
            "system:basic-user",
            &[],
            &json!([
                rule(
                    &[AUTHORIZATION],
                    &["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
                    &["create"]
                ),
                rule(
                    &["authentication.k8s.io"],
                    &["selfsubjectreviews"],
                    &["create"]
                ),
            ]),
        ),
        role(
            "system:discovery",
            &[],
            &json!([urls(
                &[
                    "/api",
                    "/api/*",
                    "/apis",
                    "/apis/*",
                    "/healthz",
                    "/livez",
                    "/openapi",
                    "/openapi/*",
                    "/readyz",
                    "/version",
                    "/version/",
                ],
                &["get"]
            )]),
        ),
        role(
            "system:public-info-viewer",
            &[],
            &json!([urls(
                &["/healthz", "/livez", "/readyz", "/version", "/version/"],
                &["get"]
            )]),
        ),
        gathering("admin", &[]),
        gathering("edit", &["admin"]),
        gathering("view", &["edit"]),
        role("system:aggregate-to-admin", &["admin"], &admin_rules()),
        role("system:aggregate-to-edit", &["edit"], &edit_rules()),
        role("system:aggregate-to-view", &["view"], &view_rules()),
    ];
    let bindings = [
        binding("cluster-admin", &[MASTERS]),
        binding("system:basic-user", &["system:authenticated"]),
        binding("system:discovery", &["system:authenticated"]),
        binding(
            "system:public-info-viewer",
            &["system:authenticated", "system:unauthenticated"],
        ),
    ];
    let roles = roles.map(|role| (CLUSTER_ROLES, role));
    let bindings = bindings.map(|binding| (CLUSTER_BINDINGS, binding));
    roles.into_iter().chain(bindings).collect()
}

fn rule(groups: &[&str], resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": groups, "resources": resources, "verbs": verbs})
}

fn urls(urls: &[&str], verbs: &[&str]) -> Value {
    json!({"nonResourceURLs": urls, "verbs": verbs})
}

fn metadata(name: &str, gathered_by: &[&str]) -> Value {
    let mut labels = json!({"kubernetes.io/bootstrapping": "rbac-defaults"});
    for role in gathered_by {
        labels[gathering_label(role)] = json!("true");
    }
    json!({
        "name": name, "labels": labels,
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
    })
}

fn gathering_label(role: &str) -> String {
    format!("{RBAC}/aggregate-to-{role}")
}

/// A role with rules; `gathered_by` are the roles that take them over.
fn role(name: &str, gathered_by: &[&str], rules: &Value) -> Value {
    json!({"metadata": metadata(name, gathered_by), "rules": rules})
}

/// A role that takes over the rules of those that are labelled for it.
fn gathering(name: &str, gathered_by: &[&str]) -> Value {
    let label = gathering_label(name);
    json!({
        "metadata": metadata(name, gathered_by),
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]},
    })
}

/// The binding of a role to groups, under the role's name.
fn binding(role: &str, groups: &[&str]) -> Value {
    let subjects: Vec<Value> = groups
        .iter()
        .map(|group| json!({"apiGroup": RBAC, "kind": "Group", "name": group}))
        .collect();
    json!({
        "metadata": metadata(role, &[]),
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": subjects,
    })
}

fn admin_rules() -> Value {
    json!([
        rule(
            &[AUTHORIZATION],
            &["localsubjectaccessreviews"],
            &["create"]
        ),
        rule(&[RBAC], &["rolebindings", "roles"], &ALL),
    ])
}

fn edit_rules() -> Value {
    let core = [
        "configmaps",
        "persistentvolumeclaims",
        "pods",
        "replicationcontrollers",
        "replicationcontrollers/scale",
        "secrets",
        "serviceaccounts",
        "services",
    ];
    let apps = [
        "daemonsets",
        "deployments",
        "deployments/scale",
        "replicasets",
        "replicasets/scale",
        "statefulsets",
        "statefulsets/scale",
    ];
    json!([
        rule(&[""], &["secrets"], &READ),
        rule(&[""], &["serviceaccounts"], &["impersonate"]),
        rule(&[""], &core, &WRITE),
        rule(&["", "events.k8s.io"], &["events"], &WRITE),
        rule(&["apps"], &apps, &WRITE),
        rule(&["batch"], &["cronjobs", "jobs"], &WRITE),
        rule(&["policy"], &["poddisruptionbudgets"], &WRITE),
        rule(
            &["networking.k8s.io"],
            &["ingresses", "networkpolicies"],
            &WRITE
        ),
        rule(&["coordination.k8s.io"], &["leases"], &ALL),
    ])
}

fn view_rules() -> Value {
    let core = [
        "configmaps",
        "endpoints",
        "limitranges",
        "namespaces",
        "namespaces/status",
        "persistentvolumeclaims",
        "persistentvolumeclaims/status",
        "pods",
        "pods/log",
        "pods/status",
        "replicationcontrollers",
        "replicationcontrollers/scale",
        "replicationcontrollers/status",
        "resourcequotas",
        "resourcequotas/status",
        "serviceaccounts",
        "services",
        "services/status",
    ];
    let apps = [
        "controllerrevisions",
        "daemonsets",
        "daemonsets/status",
        "deployments",
        "deployments/scale",
        "deployments/status",
        "replicasets",
        "replicasets/scale",
        "replicasets/status",
        "statefulsets",
        "statefulsets/scale",
        "statefulsets/status",
    ];
    let batch = ["cronjobs", "cronjobs/status", "jobs", "jobs/status"];
    let networking = ["ingresses", "ingresses/status", "networkpolicies"];
    let policy = ["poddisruptionbudgets", "poddisruptionbudgets/status"];
    json!([
        rule(&[""], &core, &READ),
        rule(&["", "events.k8s.io"], &["events"], &READ),
        rule(&["apps"], &apps, &READ),
        rule(&["batch"], &batch, &READ),
        rule(&["policy"], &policy, &READ),
        rule(&["networking.k8s.io"], &networking, &READ),
    ])
}
