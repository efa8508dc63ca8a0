//! Volumes and claims: which belongs to which is the cluster's to say.

use serde_json::Value;

use super::{Object, Rule, keep};

/// Keeps fields of the spec that the cluster fills in and the manifest leaves open.
fn keep_in_spec(wanted: &mut Object, live: &Object, fields: &[&str]) {
    if let Some(Value::Object(spec)) = wanted.get_mut("spec")
        && let Some(Value::Object(live)) = live.get("spec")
    {
        for field in fields {
            keep(spec, live, field);
        }
    }
}

/// Differs from upstream: upstream's updates release a volume from its claim.
#[derive(Debug)]
pub(super) struct PersistentVolume;

impl Rule for PersistentVolume {
    fn keep(&self, wanted: &mut Object, live: &Object) {
        keep_in_spec(wanted, live, &["claimRef"]);
    }
}

/// Differs from upstream: upstream's updates take from a claim the volume that it is bound to,
/// which the server refuses, even if nothing but a label was changed.
#[derive(Debug)]
pub(super) struct PersistentVolumeClaim;

impl Rule for PersistentVolumeClaim {
    fn keep(&self, wanted: &mut Object, live: &Object) {
        let assigned = [
            "volumeName",
            "storageClassName",
            "dataSource",
            "dataSourceRef",
        ];
        keep_in_spec(wanted, live, &assigned);
    }

    /// Nothing can be taken from the spec of a claim, so that there is nothing to try.
    fn is_applied(&self, _live: &Object, _wanted: &Object, known: Option<bool>) -> bool {
        known.unwrap_or(true)
    }
}
