//! Hub objects as the hub's actors see them: no more is decoded and kept than they need.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use muster_api::constants as names;
use muster_api::replicaset::{
    CascadeDeletionPolicy, LocalPlacementReference, ManifestWorkReplicaSet,
    ManifestWorkReplicaSetStatus,
};
use muster_api::work::{FieldValue, ManifestWork, ManifestWorkStatus};
pub(super) use muster_core::apply::raw_spec_hash as spec_hash;
use muster_core::explain::trouble;
use muster_core::replicaset::{Report, ResourceKey, Value, WorkFacts, WorkKey};
use muster_core::rollout::WorkConditions;
use serde::Deserialize;
use serde_json::value::RawValue;

/// Delegates [`kube::Resource`] to the full type of the same kind.
macro_rules! view_of {
    ($view:ty, $full:ty) => {
        impl kube::Resource for $view {
            type DynamicType = ();
            type Scope = NamespaceResourceScope;

            fn kind(dt: &()) -> Cow<'_, str> {
                <$full as kube::Resource>::kind(dt)
            }
            fn group(dt: &()) -> Cow<'_, str> {
                <$full as kube::Resource>::group(dt)
            }
            fn version(dt: &()) -> Cow<'_, str> {
                <$full as kube::Resource>::version(dt)
            }
            fn plural(dt: &()) -> Cow<'_, str> {
                <$full as kube::Resource>::plural(dt)
            }
            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

/// A ManifestWork with its spec left as JSON text.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct WorkView {
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    spec: Option<Box<RawValue>>,
    #[serde(default)]
    pub(super) status: ManifestWorkStatus,
}
view_of!(WorkView, ManifestWork);

/// A ManifestWork with what decides about its end; manifests and feedback are skipped.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct FinishView {
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    spec: FinishSpec,
    #[serde(default)]
    status: FinishStatus,
}
view_of!(FinishView, ManifestWork);

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct FinishSpec {
    delete_option: Option<FinishOption>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct FinishOption {
    ttl_seconds_after_finished: Option<i64>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct FinishStatus {
    conditions: Option<Vec<Condition>>,
}

impl FinishView {
    /// `deleteOption.ttlSecondsAfterFinished`.
    pub(super) fn ttl_seconds(&self) -> Option<i64> {
        let option = self.spec.delete_option.as_ref()?;
        option.ttl_seconds_after_finished
    }

    /// The conditions of the work.
    pub(super) fn conditions(&self) -> &[Condition] {
        self.status.conditions.as_deref().unwrap_or_default()
    }
}

/// A ManifestWorkReplicaSet with its template left as JSON text.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct SetView {
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    pub(super) spec: SetViewSpec,
    #[serde(default)]
    pub(super) status: ManifestWorkReplicaSetStatus,
}
view_of!(SetView, ManifestWorkReplicaSet);

/// The spec of a [`SetView`].
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SetViewSpec {
    pub(super) manifest_work_template: Box<RawValue>,
    pub(super) placement_refs: Vec<LocalPlacementReference>,
    pub(super) cascade_deletion_policy: CascadeDeletionPolicy,
}

impl Default for SetViewSpec {
    /// The CRD asks for no template: absent means empty.
    fn default() -> Self {
        let empty = RawValue::from_string("{}".to_owned()).expect("an empty object is JSON");
        Self {
            manifest_work_template: empty,
            placement_refs: Vec::new(),
            cascade_deletion_policy: CascadeDeletionPolicy::default(),
        }
    }
}

/// Namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ObjectName {
    /// Namespace.
    pub namespace: String,
    /// Name in it.
    pub name: String,
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl ObjectName {
    /// The identity of a namespaced object; missing parts, which an API server never leaves out,
    /// are empty.
    pub(super) fn of(metadata: &ObjectMeta) -> Self {
        Self {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
        }
    }
}

/// A work that belongs to a replica set, reduced to facts.
#[derive(Debug, Clone)]
pub(super) struct OwnedWork {
    /// Value of the owner label.
    pub(super) owner: String,
    pub(super) key: WorkKey,
    pub(super) facts: WorkFacts,
}

/// Reduces works to facts. Remembers the spec hash of each work by generation, so that a status
/// event costs no look into the spec, and shares equal label maps.
#[derive(Debug, Default)]
pub(super) struct WorkReducer {
    hashes: HashMap<WorkKey, (i64, [u8; 32])>,
    labels: Option<Arc<BTreeMap<String, String>>>,
}

impl WorkReducer {
    /// The facts of `work`, or its key where it belongs to no replica set.
    pub(super) fn reduce(&mut self, work: WorkView) -> Result<OwnedWork, WorkKey> {
        let ObjectName {
            namespace: cluster,
            name,
        } = ObjectName::of(&work.metadata);
        let key = WorkKey { cluster, name };
        let version = version_of(&work.metadata);
        let labels = work.metadata.labels.unwrap_or_default();
        let Some(owner) = labels
            .get(names::MANIFEST_WORK_REPLICA_SET_CONTROLLER_NAME_LABEL_KEY)
            .cloned()
        else {
            return Err(key);
        };
        let generation = work.metadata.generation.unwrap_or_default();
        let deleting = work.metadata.deletion_timestamp.is_some();
        let annotations = work.metadata.annotations.unwrap_or_default();
        let started = annotations.get(names::ROLLOUT_STARTED_ANNOTATION);
        let spec_hash = match self.hashes.get(&key) {
            Some((known, hash)) if *known == generation => *hash,
            _ => {
                let hash = spec_hash(work.spec.as_deref());
                self.hashes.insert(key.clone(), (generation, hash));
                hash
            }
        };
        let placement = labels
            .get(names::MANIFEST_WORK_REPLICA_SET_PLACEMENT_NAME_LABEL_KEY)
            .cloned()
            .unwrap_or_default();
        let labels = match &self.labels {
            Some(shared) if **shared == labels => Arc::clone(shared),
            _ => Arc::clone(self.labels.insert(Arc::new(labels))),
        };
        let facts = WorkFacts {
            placement,
            generation,
            version,
            spec_hash,
            labels,
            started: started.and_then(|text| text.parse().ok()),
            unannotated: annotations
                .is_empty()
                .then(|| work.metadata.resource_version.unwrap_or_default().into()),
            deleting,
            waits_for: deleting
                .then(|| waits_for(&work.status.conditions))
                .flatten(),
            conditions: WorkConditions::read(&work.status.conditions),
            trouble: trouble(&work.status.conditions, generation).map(Arc::new),
            report: report(work.status),
        };
        Ok(OwnedWork { owner, key, facts })
    }

    /// Forgets a work that is gone.
    pub(super) fn forget(&mut self, key: &WorkKey) {
        self.hashes.remove(key);
    }
}

/// The resource version of an object, by which states of it are put in order.
pub(super) fn version_of(meta: &ObjectMeta) -> Option<u64> {
    meta.resource_version.as_deref()?.parse().ok()
}

/// What the agent says that the deletion of a work waits for.
fn waits_for(all: &[Condition]) -> Option<Box<str>> {
    let condition = muster_api::conditions::find(all, names::WORK_DELETING)?;
    Some(condition.message.as_str().into())
}

fn report(status: ManifestWorkStatus) -> Report {
    let value = |value: FieldValue| -> Option<Value> {
        let text = value.string.or(value.json_raw).map(Value::Text);
        value
            .integer
            .map(Value::Integer)
            .or(text)
            .or(value.boolean.map(Value::Boolean))
    };
    status
        .resource_status
        .manifests
        .into_iter()
        .filter(|manifest| !manifest.status_feedback.values.is_empty())
        .map(|manifest| {
            let meta = manifest.resource_meta;
            let resource = ResourceKey {
                group: meta.group,
                version: meta.version,
                resource: meta.resource,
                name: meta.name,
                namespace: meta.namespace,
            };
            let values = manifest.status_feedback.values.into_iter();
            (
                resource,
                values
                    .filter_map(|v| Some((v.name, value(v.value)?)))
                    .collect(),
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use muster_core::rollout::Truth;
    use serde_json::json;

    use super::*;

    fn work(generation: i64, spec: &serde_json::Value) -> WorkView {
        let labels = json!({
            names::MANIFEST_WORK_REPLICA_SET_CONTROLLER_NAME_LABEL_KEY: "default.web",
            names::MANIFEST_WORK_REPLICA_SET_PLACEMENT_NAME_LABEL_KEY: "all",
        });
        serde_json::from_value(json!({
            "metadata": {"namespace": "c1", "name": "web", "generation": generation, "labels": labels},
            "spec": spec,
            "status": {
                "conditions": [{"type": "Applied", "status": "True", "observedGeneration": 2,
                    "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
                "resourceStatus": {"manifests": [{
                    "resourceMeta": {"ordinal": 0, "group": "apps", "version": "v1",
                        "kind": "Deployment", "resource": "deployments", "name": "web",
                        "namespace": "default"},
                    "conditions": [],
                    "statusFeedback": {"values": [
                        {"name": "Ready", "fieldValue": {"type": "Integer", "integer": 3}},
                        {"name": "Phase", "fieldValue": {"type": "String", "string": "Up"}},
                        {"name": "Odd", "fieldValue": {"type": "Integer"}}]}}]}
            }
        }))
        .unwrap()
    }

    #[test]
    fn a_work_becomes_facts() {
        let owned = WorkReducer::default().reduce(work(2, &json!({}))).unwrap();
        assert_eq!(
            (owned.owner.as_str(), owned.key.cluster.as_str()),
            ("default.web", "c1")
        );
        assert_eq!(owned.facts.placement, "all");
        let applied = owned.facts.conditions.applied.unwrap();
        assert_eq!(
            (applied.status, applied.observed_generation),
            (Truth::True, Some(2))
        );
        let values = owned.facts.report.resources().flat_map(|(_, of)| of);
        let expected = [
            ("Ready", &Value::Integer(3)),
            ("Phase", &Value::Text("Up".to_owned())),
        ];
        // A value without content is left out.
        assert_eq!(values.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_spec_is_hashed_once_a_generation() {
        let mut reducer = WorkReducer::default();
        let spec = |name: &str| json!({"workload": {"manifests": [{"kind": name}]}});
        let first = reducer.reduce(work(1, &spec("A"))).unwrap().facts;
        let status_event = reducer
            .reduce(work(1, &spec("not looked at")))
            .unwrap()
            .facts;
        assert_eq!(first.spec_hash, status_event.spec_hash);
        assert!(Arc::ptr_eq(&first.labels, &status_event.labels));
        let changed = reducer.reduce(work(2, &spec("B"))).unwrap().facts;
        assert_ne!(first.spec_hash, changed.spec_hash);
        reducer.forget(&WorkKey {
            cluster: "c1".into(),
            name: "web".into(),
        });
        assert_ne!(
            reducer.reduce(work(2, &spec("C"))).unwrap().facts.spec_hash,
            changed.spec_hash
        );
    }

    #[test]
    fn a_work_of_nobody_is_only_a_key() {
        let view: WorkView =
            serde_json::from_value(json!({"metadata": {"namespace": "c1", "name": "mine"}}))
                .unwrap();
        let key = WorkReducer::default().reduce(view).unwrap_err();
        assert_eq!((key.cluster.as_str(), key.name.as_str()), ("c1", "mine"));
    }
}
