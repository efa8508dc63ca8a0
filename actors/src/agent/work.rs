//! A ManifestWork as the agent keeps it: metadata, and spec and status as the JSON they came in.
//!
//! An agent holds thousands of works and looks inside one at a time, so nothing is decoded that
//! is not needed now. It also means that a work whose spec does not decode is a problem of that
//! work: the list it came in stays readable.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use muster_api::constants::MANIFEST_WORK_FINALIZER;
use muster_api::work::{ManifestWorkSpec, ManifestWorkStatus, RawManifestWork};
use muster_cloudevents::work::carries_content;
use serde_json::value::RawValue;

/// One state of a work. Cheap to clone.
#[derive(Clone)]
pub struct Work {
    /// Name on the hub.
    pub name: Arc<str>,
    /// Identity; another one under the same name is another work.
    pub uid: Arc<str>,
    /// Counts the changes of the spec.
    pub generation: i64,
    /// Counts all changes.
    pub resource_version: Arc<str>,
    /// Labels.
    pub labels: Arc<BTreeMap<String, String>>,
    /// Finalizers.
    pub finalizers: Arc<[String]>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Whether its source wants the whole status of its object; see
    /// [`carries_content`](muster_cloudevents::work::carries_content).
    pub carries_content: bool,
    /// The spec as JSON; `{}` if there is none.
    spec: Arc<str>,
    /// The status as JSON; `{}` if there is none.
    status: Arc<str>,
}

/// Specs hold Secrets: only which state of which work it is.
impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work")
            .field("name", &self.name)
            .field("uid", &self.uid)
            .field("generation", &self.generation)
            .field("resource_version", &self.resource_version)
            .field("deleting", &self.deleting)
            .finish_non_exhaustive()
    }
}

impl From<RawManifestWork> for Work {
    fn from(raw: RawManifestWork) -> Self {
        let json = |part: Option<Box<RawValue>>| part.map_or("{}".into(), |raw| raw.get().into());
        let meta = raw.metadata;
        Self {
            name: meta.name.unwrap_or_default().into(),
            uid: meta.uid.unwrap_or_default().into(),
            generation: meta.generation.unwrap_or_default(),
            resource_version: meta.resource_version.unwrap_or_default().into(),
            labels: Arc::new(meta.labels.unwrap_or_default()),
            finalizers: meta.finalizers.unwrap_or_default().into(),
            deleting: meta.deletion_timestamp.is_some(),
            carries_content: carries_content(meta.annotations.as_ref()),
            spec: json(raw.spec),
            status: json(raw.status),
        }
    }
}

impl Work {
    /// Decodes the spec.
    ///
    /// # Errors
    ///
    /// The spec does not have the shape of one; the text names line and column.
    pub fn spec(&self) -> serde_json::Result<ManifestWorkSpec> {
        // `null`, as some writers put it, is no spec.
        Ok(serde_json::from_str::<Option<_>>(&self.spec)?.unwrap_or_default())
    }

    /// Decodes the status. One that does not decode is not ours and counts as empty, to be
    /// written anew.
    pub fn status(&self) -> ManifestWorkStatus {
        serde_json::from_str::<Option<_>>(&self.status)
            .ok()
            .flatten()
            .unwrap_or_default()
    }

    /// Whether the agent's finalizer is there, without which nothing is applied.
    pub fn has_finalizer(&self) -> bool {
        self.finalizers
            .iter()
            .any(|name| name == MANIFEST_WORK_FINALIZER)
    }

    /// Whether this is an older state of the same work than `other`. Kubernetes promises that
    /// resource versions of one type compare as numbers; where they are none, what comes later
    /// counts as newer.
    pub fn is_older_than(&self, other: &Self) -> bool {
        let number = |work: &Self| work.resource_version.parse::<u64>();
        match (number(self), number(other)) {
            (Ok(mine), Ok(others)) => self.uid == other.uid && mine < others,
            _ => false,
        }
    }

    /// Whether `newer` asks for something that `self` did not. Status and annotations do not
    /// count: the agent's own status patches must not make it apply again (C148).
    pub fn asks_more(&self, newer: &Self) -> bool {
        self.uid != newer.uid
            || self.generation != newer.generation
            || self.labels != newer.labels
            || self.deleting != newer.deleting
            || (!newer.deleting && !newer.has_finalizer())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn work(change: impl FnOnce(&mut Value)) -> Work {
        let mut value = json!({
            "apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
            "metadata": {
                "name": "w", "uid": "1", "generation": 2, "resourceVersion": "7",
                "labels": {"a": "b"}, "finalizers": [MANIFEST_WORK_FINALIZER],
            },
            "spec": {"workload": {"manifests": [{"kind": "X", "n": 1.50}]}},
            "status": {"conditions": []},
        });
        change(&mut value);
        serde_json::from_str::<RawManifestWork>(&value.to_string())
            .unwrap()
            .into()
    }

    #[test]
    fn a_debug_text_holds_no_payload() {
        let secret = work(|work| work["spec"]["secret"] = "hunter2".into());
        let text = format!("{secret:?}");
        assert!(
            text.contains("\"w\"") && !text.contains("hunter2"),
            "{text}"
        );
    }

    #[test]
    fn own_status_patches_ask_for_nothing() {
        let old = work(|_| {});
        let patched = work(|work| {
            work["metadata"]["resourceVersion"] = "8".into();
            work["metadata"]["annotations"] = json!({"x": "y"});
            work["status"] = json!({"resourceStatus": {}});
        });
        assert!(!old.asks_more(&patched));
    }

    #[test]
    fn states_that_arrive_late_are_recognized() {
        let at = |version: &str| work(|work| work["metadata"]["resourceVersion"] = version.into());
        assert!(at("9").is_older_than(&at("10")));
        assert!(!at("10").is_older_than(&at("9")));
        assert!(!at("9").is_older_than(&at("9")));
        assert!(
            !at("a").is_older_than(&at("b")),
            "opaque versions do not compare"
        );
        let reborn = work(|work| {
            work["metadata"]["uid"] = "2".into();
            work["metadata"]["resourceVersion"] = "9".into();
        });
        assert!(!reborn.is_older_than(&at("10")), "another work");
    }

    #[test]
    fn spec_labels_deletion_identity_and_a_lost_finalizer_ask_for_more() {
        let old = work(|_| {});
        let changes: [fn(&mut Value); 5] = [
            |work| work["metadata"]["generation"] = 3.into(),
            |work| work["metadata"]["labels"] = json!({"a": "c"}),
            |work| work["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into(),
            |work| work["metadata"]["uid"] = "2".into(),
            |work| work["metadata"]["finalizers"] = json!([]),
        ];
        for (index, change) in changes.into_iter().enumerate() {
            assert!(old.asks_more(&work(change)), "change {index}");
        }
    }

    #[test]
    fn spec_and_status_are_optional_and_a_broken_one_breaks_nothing_else() {
        let bare = work(|work| {
            work["spec"] = Value::Null;
            work.as_object_mut().unwrap().remove("status");
        });
        assert!(bare.spec().unwrap().workload.manifests.is_empty());
        assert_eq!(bare.status(), ManifestWorkStatus::default());
        let broken = work(|work| {
            work["spec"] = json!({"workload": {"manifests": 7}});
            work["status"] = json!({"conditions": 7});
        });
        assert!(
            broken
                .spec()
                .unwrap_err()
                .to_string()
                .contains("invalid type")
        );
        assert_eq!(broken.status(), ManifestWorkStatus::default());
    }
}
