//! What is the manifest's, what is the cluster's and what cannot be changed, by kind.
//!
//! | Kind | An existing object |
//! | --- | --- |
//! | Namespace, ServiceAccount, Pod | only its metadata is merged |
//! | ConfigMap, Secret | every entry is the manifest's, save for those that the cluster writes |
//! | Service | addresses and ports that the cluster assigned stay |
//! | Role, ClusterRole and their bindings | every rule and subject is the manifest's |
//! | NetworkPolicy, PodDisruptionBudget, ValidatingAdmissionPolicy and its binding, CustomResourceDefinition | the spec is the manifest's |
//! | ValidatingWebhookConfiguration, MutatingWebhookConfiguration | the webhooks are the manifest's, save for the CA that the cluster writes |
//! | StorageClass, CSIDriver | as above; made anew where an update would be refused |
//! | Job, PersistentVolume, PersistentVolumeClaim | what the cluster filled in stays |
//! | all others | has what the manifest asks for |
//!
//! Of the others, upstream has rules for ServiceMonitor, PrometheusRule, Prometheus, Alertmanager
//! and VolumeSnapshotClass, which replace what the general rule replaces.
//!
//! Differs from upstream: with those rules upstream creates orphans with an owner reference whose
//! uid ends in `-`. Here a reference is written or removed, whatever the kind.

mod config_map;
mod custom_resource_definition;
mod defaults;
mod job;
mod policies;
mod rbac;
mod secret;
mod service;
mod spec_hash;
mod storage;
mod volumes;
mod webhooks;

use std::fmt::Debug;

use serde_json::{Map, Value};

use super::ApplyError;
use super::contains::contains;
use super::same::same;
use crate::manifest::Gvk;

/// An object, from `apiVersion` to `status`.
pub(super) type Object = Map<String, Value>;

/// Fields outside the content.
const HEADER: [&str; 4] = ["apiVersion", "kind", "metadata", "status"];

/// How objects of a kind are compared and replaced. Kinds with needs of their own overrule parts
/// of the general rule.
pub(super) trait Rule: Debug + Sync {
    /// Brings a manifest into the form in which it is compared and sent.
    fn prepare(&self, _manifest: &mut Object) -> Result<(), ApplyError> {
        Ok(())
    }

    /// Takes over from the live object what is not the manifest's to say.
    fn keep(&self, _wanted: &mut Object, _live: &Object) {}

    /// The fields that are as the manifest says and nothing else: what is added there is drift.
    /// In all other fields, what the manifest does not mention may be anything.
    fn owned(&self) -> &'static [&'static str] {
        &[]
    }

    /// Fills in the owned fields what a server fills in, so that the manifest and the object
    /// compare. It is not sent: a default that a server has and this does not know costs one write
    /// that changes nothing each time that an agent starts.
    fn fill_defaults(&self, _object: &mut Object) {}

    /// Whether what is wanted was applied before, so that what the manifest does not mention is
    /// not left from an earlier manifest. `known` is what the agent knows, if anything.
    fn is_applied(&self, _live: &Object, _wanted: &Object, known: Option<bool>) -> bool {
        known.unwrap_or(false)
    }

    /// Whether the live object has the content that is wanted: all of it, and if it was not
    /// `applied` before, nothing else.
    fn is_current(&self, live: &Object, wanted: &Object, applied: bool) -> bool {
        let owned = self.owned();
        owned_fields_are_same(self, live, wanted)
            && if applied {
                has_what_is_asked_for(live, wanted, owned)
            } else {
                rest_is_equal(live, wanted, owned)
            }
    }

    /// Whether the server would refuse to change the live object, whose content is not current,
    /// and deleting and creating it is what users of the kind expect.
    fn must_recreate(&self, _live: &Object, _wanted: &Object) -> bool {
        false
    }
}

/// The rule for a kind.
pub(super) fn rule(gvk: Gvk<'_>) -> &'static dyn Rule {
    match (gvk.group, gvk.kind) {
        ("", "Namespace" | "ServiceAccount" | "Pod") => &MetadataOnly,
        ("", "ConfigMap") => &config_map::ConfigMap,
        ("", "Secret") => &secret::Secret,
        ("", "Service") => &service::Service,
        ("", "PersistentVolume") => &volumes::PersistentVolume,
        ("", "PersistentVolumeClaim") => &volumes::PersistentVolumeClaim,
        ("batch", "Job") => &job::Job,
        ("rbac.authorization.k8s.io", "Role") => &rbac::Role,
        ("rbac.authorization.k8s.io", "ClusterRole") => &rbac::ClusterRole,
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => &rbac::Binding,
        ("networking.k8s.io", "NetworkPolicy") => &policies::NetworkPolicy,
        ("policy", "PodDisruptionBudget") => &policies::PodDisruptionBudget,
        (
            "admissionregistration.k8s.io",
            "ValidatingAdmissionPolicy" | "ValidatingAdmissionPolicyBinding",
        ) => &policies::AdmissionPolicy,
        (
            "admissionregistration.k8s.io",
            "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration",
        ) if gvk.version == "v1" => &webhooks::Webhooks,
        ("apiextensions.k8s.io", "CustomResourceDefinition") if gvk.version == "v1" => {
            &custom_resource_definition::CustomResourceDefinition
        }
        ("storage.k8s.io", "StorageClass") => &storage::StorageClass,
        ("storage.k8s.io", "CSIDriver") => &storage::CsiDriver,
        _ => &General,
    }
}

/// The manifest replaces everything outside metadata and status.
#[derive(Debug)]
struct General;

impl Rule for General {}

/// Content is written once, on creation: it cannot be changed or is filled in by the cluster.
#[derive(Debug)]
struct MetadataOnly;

impl Rule for MetadataOnly {
    fn keep(&self, wanted: &mut Object, live: &Object) {
        wanted.retain(|field, _| field == "metadata");
        for field in live.keys() {
            keep(wanted, live, field);
        }
    }
}

fn owned_fields_are_same(rule: &(impl Rule + ?Sized), live: &Object, wanted: &Object) -> bool {
    let owned = rule.owned();
    let filled = |object: &Object| {
        let fields = owned
            .iter()
            .filter_map(|field| object.get_key_value(*field));
        let mut fields = fields
            .map(|(field, value)| (field.clone(), value.clone()))
            .collect();
        rule.fill_defaults(&mut fields);
        fields
    };
    if owned.is_empty() {
        return true;
    }
    let (live, wanted) = (filled(live), filled(wanted));
    owned
        .iter()
        .all(|field| same(field, live.get(*field), wanted.get(*field)))
}

fn is_content(field: &str, except: &[&str]) -> bool {
    !HEADER.contains(&field) && !except.contains(&field)
}

fn has_what_is_asked_for(live: &Object, wanted: &Object, except: &[&str]) -> bool {
    wanted
        .iter()
        .filter(|(field, _)| is_content(field, except))
        .all(|(field, value)| contains(live.get(field), value))
}

fn rest_is_equal(live: &Object, wanted: &Object, except: &[&str]) -> bool {
    live.keys()
        .chain(wanted.keys())
        .filter(|field| is_content(field, except))
        .all(|field| live.get(field) == wanted.get(field))
}

/// Copies a field that `object` lacks.
pub(super) fn keep(object: &mut Object, live: &Object, field: &str) {
    if !object.contains_key(field)
        && let Some(value) = live.get(field)
    {
        object.insert(field.into(), value.clone());
    }
}

/// The map in a field, made if there is none; `None` if there is something else.
fn entries<'a>(object: &'a mut Object, field: &str) -> Option<&'a mut Object> {
    let value = object.entry(field).or_insert(Value::Null);
    if value.is_null() {
        *value = Value::Object(Object::new());
    }
    value.as_object_mut()
}

/// The text of a label or annotation.
fn metadata_text<'a>(object: &'a Object, field: &str, key: &str) -> Option<&'a str> {
    object.get("metadata")?.get(field)?.get(key)?.as_str()
}
