//! The hash of a status, by which both sides of a resync tell whether they have the same.

use muster_api::work::ManifestWorkStatus;
use serde_json::{Value, json};

use crate::canonical::canonical_hash;

/// The hash of a status: of the object as Kubernetes holds it, not of the data of an event.
pub fn status_hash(status: &ManifestWorkStatus) -> String {
    canonical_hash(&tree(status))
}

/// The status as Go's unstructured converter lays it out: without conditions where there are none,
/// and with null for those of a manifest.
fn tree(status: &ManifestWorkStatus) -> Value {
    // A status is plain data, which always encodes.
    let mut tree = serde_json::to_value(status).unwrap_or_default();
    let manifests = tree.pointer_mut("/resourceStatus/manifests");
    let manifests = manifests.and_then(Value::as_array_mut);
    for manifest in manifests.into_iter().flatten() {
        if manifest["conditions"].as_array().is_none_or(Vec::is_empty) {
            manifest["conditions"] = Value::Null;
        }
        if manifest["statusFeedback"].is_null() {
            manifest["statusFeedback"] = json!({});
        }
    }
    tree
}

#[cfg(test)]
mod tests {
    use muster_api::work::ManifestCondition;

    use super::*;

    #[test]
    fn the_hash_is_that_of_go() {
        let empty = ManifestWorkStatus::default();
        assert_eq!(
            status_hash(&empty),
            "3a4ba43801251ccdf889a3154674d23a35ab996aacfc00de92e61dbb2f5cf189"
        );
    }

    #[test]
    fn a_manifest_without_conditions_has_null() {
        let mut status = ManifestWorkStatus::default();
        let manifest = ManifestCondition::default();
        status.resource_status.manifests.push(manifest);
        let tree = tree(&status);
        let manifest = &tree["resourceStatus"]["manifests"][0];
        assert!(manifest["conditions"].is_null());
        assert_eq!(manifest["statusFeedback"], json!({}));
    }
}
