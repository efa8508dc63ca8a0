//! Objects that works carry, in the namespace of an agent.

use serde_json::{Value, json};

use super::agent::Agent;

impl Agent {
    #[allow(
        clippy::needless_pass_by_value,
        reason = "a literal is written in its place"
    )]
    pub(crate) fn config_map(&self, name: &str, data: Value) -> Value {
        let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": self.name(), "name": name}});
        object["data"] = data;
        object
    }

    /// A Deployment without `serviceAccountName`.
    pub(crate) fn deployment(&self, name: &str, replicas: u32) -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"namespace": self.name(), "name": name},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": {"app": name}},
                    "spec": {"containers": [{"name": "main", "image": "example/main:1"}]}}}})
    }

    pub(crate) fn daemon_set(&self, name: &str) -> Value {
        let mut object = self.deployment(name, 1);
        object["kind"] = "DaemonSet".into();
        if let Some(spec) = object["spec"].as_object_mut() {
            spec.remove("replicas");
        }
        object
    }

    pub(crate) fn job(&self, name: &str) -> Value {
        json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"namespace": self.name(), "name": name},
            "spec": {"template": {"spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "main", "image": "example/main:1"}]}}}})
    }

    pub(crate) fn service_account(&self, name: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"namespace": self.name(), "name": name}})
    }

    #[allow(
        clippy::needless_pass_by_value,
        reason = "a literal is written in its place"
    )]
    pub(crate) fn role(&self, name: &str, rules: Value) -> Value {
        let mut object = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"namespace": self.name(), "name": name}});
        object["rules"] = rules;
        object
    }

    /// Gives a role of the namespace to a service account of the namespace.
    pub(crate) fn role_binding(&self, name: &str, role: &str, account: &str) -> Value {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"namespace": self.name(), "name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
            "subjects": [{"kind": "ServiceAccount", "namespace": self.name(), "name": account}]})
    }

    /// `manifestConfigs` entry for the objects of a resource in the namespace; `config` is the
    /// rest of it.
    pub(crate) fn configure(
        &self,
        group: &str,
        resource: &str,
        name: &str,
        config: Value,
    ) -> Value {
        let mut entry = json!({"resourceIdentifier": {
            "group": group, "resource": resource, "namespace": self.name(), "name": name}});
        if let (Some(entry), Value::Object(config)) = (entry.as_object_mut(), config) {
            entry.extend(config);
        }
        entry
    }
}
