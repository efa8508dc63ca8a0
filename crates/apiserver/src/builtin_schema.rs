//! Schemas of the built-in types, derived from their Rust types.

mod facts;

use std::sync::LazyLock;

use k8s_openapi::api;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::Value;

use crate::builtin::Builtin;
use crate::schema::{self, Schema};

fn document<T: JsonSchema>() -> Value {
    SchemaSettings::draft2020_12()
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value()
}

/// The schema of a built-in type as a document with `$defs`. CRDs have none to show: they are
/// checked by their own rules.
pub(crate) fn of(builtin: &Builtin) -> Option<Value> {
    let mut document = derived(builtin).filter(|_| builtin.kind != CRD_KIND)?;
    facts::add_types(&mut document);
    Some(document)
}

/// The kind of the type whose objects define types.
const CRD_KIND: &str = "CustomResourceDefinition";

fn derived(builtin: &Builtin) -> Option<Value> {
    Some(match (builtin.group, builtin.kind) {
        ("", "ConfigMap") => document::<api::core::v1::ConfigMap>(),
        ("", "Endpoints") => document::<api::core::v1::Endpoints>(),
        ("", "Event") => document::<api::core::v1::Event>(),
        ("", "LimitRange") => document::<api::core::v1::LimitRange>(),
        ("", "Namespace") => document::<api::core::v1::Namespace>(),
        ("", "Node") => document::<api::core::v1::Node>(),
        ("", "PersistentVolumeClaim") => document::<api::core::v1::PersistentVolumeClaim>(),
        ("", "PersistentVolume") => document::<api::core::v1::PersistentVolume>(),
        ("", "Pod") => document::<api::core::v1::Pod>(),
        ("", "ReplicationController") => document::<api::core::v1::ReplicationController>(),
        ("", "ResourceQuota") => document::<api::core::v1::ResourceQuota>(),
        ("", "Secret") => document::<api::core::v1::Secret>(),
        ("", "ServiceAccount") => document::<api::core::v1::ServiceAccount>(),
        ("", "Service") => document::<api::core::v1::Service>(),
        ("apps", "ControllerRevision") => document::<api::apps::v1::ControllerRevision>(),
        ("apps", "DaemonSet") => document::<api::apps::v1::DaemonSet>(),
        ("apps", "Deployment") => document::<api::apps::v1::Deployment>(),
        ("apps", "ReplicaSet") => document::<api::apps::v1::ReplicaSet>(),
        ("apps", "StatefulSet") => document::<api::apps::v1::StatefulSet>(),
        ("batch", "CronJob") => document::<api::batch::v1::CronJob>(),
        ("batch", "Job") => document::<api::batch::v1::Job>(),
        ("networking.k8s.io", "Ingress") => document::<api::networking::v1::Ingress>(),
        ("networking.k8s.io", "IngressClass") => document::<api::networking::v1::IngressClass>(),
        ("networking.k8s.io", "NetworkPolicy") => document::<api::networking::v1::NetworkPolicy>(),
        ("policy", "PodDisruptionBudget") => document::<api::policy::v1::PodDisruptionBudget>(),
        ("rbac.authorization.k8s.io", "ClusterRoleBinding") => {
            document::<api::rbac::v1::ClusterRoleBinding>()
        }
        ("rbac.authorization.k8s.io", "ClusterRole") => document::<api::rbac::v1::ClusterRole>(),
        ("rbac.authorization.k8s.io", "RoleBinding") => document::<api::rbac::v1::RoleBinding>(),
        ("rbac.authorization.k8s.io", "Role") => document::<api::rbac::v1::Role>(),
        ("storage.k8s.io", "StorageClass") => document::<api::storage::v1::StorageClass>(),
        ("scheduling.k8s.io", "PriorityClass") => document::<api::scheduling::v1::PriorityClass>(),
        ("coordination.k8s.io", "Lease") => document::<api::coordination::v1::Lease>(),
        ("events.k8s.io", "Event") => document::<api::events::v1::Event>(),
        ("apiextensions.k8s.io", CRD_KIND) => document::<CustomResourceDefinition>(),
        _ => return None,
    })
}

/// What the API documentation says about a field of `metadata`.
pub(crate) fn metadata_description(field: &str) -> String {
    static METADATA: LazyLock<Value> = LazyLock::new(document::<ObjectMeta>);
    METADATA["properties"][field]["description"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// The compiled schema of a built-in type.
pub(crate) fn compiled(builtin: &Builtin) -> Option<Schema> {
    let mut schema = compile(derived(builtin)?);
    schema.name = Some(builtin.kind.to_owned());
    Some(schema)
}

/// The schema of every object's `metadata`.
pub(crate) fn object_meta() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| compile(document::<ObjectMeta>()));
    &SCHEMA
}

fn compile(mut document: Value) -> Schema {
    facts::add_types(&mut document);
    facts::add_zeros(&mut document);
    schema::compile_builtin(&document).expect("schemas of the Rust types are well-formed")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin::{BUILTINS, CRDS};
    use crate::registry::resource_key;
    use serde_json::json;

    #[test]
    fn every_stored_type_has_a_schema_and_all_but_crds_show_it() {
        for builtin in BUILTINS.iter().filter(|b| !b.review) {
            let is_crd = *resource_key(builtin.group, builtin.plural) == *CRDS;
            assert!(compiled(builtin).is_some(), "{}", builtin.kind);
            assert_eq!(of(builtin).is_none(), is_crd, "{}", builtin.kind);
        }
    }

    #[test]
    fn a_deployment_is_pruned_and_its_types_are_checked() {
        let builtin = BUILTINS.iter().find(|b| b.kind == "Deployment").unwrap();
        let schema = compiled(builtin).unwrap();
        let mut deployment = json!({"spec": {"replicas": 1, "bogus": 2, "template": {"spec": {
            "containers": [{"name": "a", "imago": "x", "resources": {"limits": {"cpu": "1", "memory": 5}},
                "livenessProbe": {"httpGet": {"port": "http"}, "periodSeconds": 5}}],
            "nodeSelector": {"a": "b"},
        }}}});
        assert_eq!(crate::schema::type_problem(&schema, &deployment, ""), None);
        assert_eq!(
            crate::schema::prune(&schema, &mut deployment, true),
            ["spec.bogus", "spec.template.spec.containers[0].imago"]
        );
        let wrong = json!({"spec": {"replicas": "three"}});
        assert_eq!(
            crate::schema::type_problem(&schema, &wrong, "").unwrap(),
            "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32"
        );
    }
}
