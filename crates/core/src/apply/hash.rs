//! Comparing specs and manifests by what they mean, not by how they are written.

use muster_api::work::ManifestWorkSpec;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

/// A hash that two values share exactly if they are equal; the order of keys means nothing.
pub(crate) fn value_hash(value: &impl Serialize) -> [u8; 32] {
    let mut hasher = Sha256::new();
    // serde_json keeps the keys of a map sorted; a hasher takes every byte.
    serde_json::to_writer(&mut hasher, value).expect("a JSON value can be written to a hasher");
    hasher.finalize().into()
}

/// Hash of a work's spec, to tell whether a work carries a template.
///
/// Equal for specs that mean the same: defaults are filled in, the order of keys does not count,
/// and creation times inside manifests do not either, since clients write empty ones
/// (`ocm`: `pkg/work/helper`, comparison of specs in the work applier).
///
/// # Errors
///
/// A manifest that is no JSON.
pub fn spec_hash(spec: &ManifestWorkSpec) -> serde_json::Result<[u8; 32]> {
    let mut spec = serde_json::to_value(spec)?;
    let manifests = spec
        .pointer_mut("/workload/manifests")
        .and_then(Value::as_array_mut);
    for manifest in manifests.into_iter().flatten() {
        strip_creation_timestamps(manifest);
    }
    Ok(value_hash(&spec))
}

/// [`spec_hash`] of a spec as JSON text; an absent or malformed spec equals no template.
pub fn raw_spec_hash(spec: Option<&RawValue>) -> [u8; 32] {
    spec.and_then(|raw| serde_json::from_str::<ManifestWorkSpec>(raw.get()).ok())
        .and_then(|spec| spec_hash(&spec).ok())
        .unwrap_or_default()
}

/// [`spec_hash`] of a spec that is not decoded yet.
///
/// # Errors
///
/// A value that is no spec of a work.
pub fn canonical_spec_hash(spec: &Value) -> serde_json::Result<[u8; 32]> {
    spec_hash(&serde_json::from_value(spec.clone())?)
}

/// Removes creation times from a manifest: its own, that of its pod template, and empty ones at
/// any depth, which make an API server count a change (kubernetes issue 67610).
pub fn strip_creation_timestamps(manifest: &mut Value) {
    for metadata in ["/metadata", "/spec/template/metadata"] {
        if let Some(Value::Object(metadata)) = manifest.pointer_mut(metadata) {
            metadata.remove("creationTimestamp");
        }
    }
    strip_empty(manifest);
}

/// Removes empty creation times at any depth.
pub(crate) fn strip_empty(value: &mut Value) {
    match value {
        Value::Object(entries) => {
            for (key, value) in entries {
                if key == "metadata"
                    && let Value::Object(metadata) = value
                    && metadata
                        .get("creationTimestamp")
                        .is_some_and(Value::is_null)
                {
                    metadata.remove("creationTimestamp");
                }
                strip_empty(value);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(strip_empty),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn hash(spec: &Value) -> [u8; 32] {
        canonical_spec_hash(spec).unwrap()
    }

    #[test]
    fn specs_that_mean_the_same_have_one_hash() {
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "a"},
            "spec": {"template": {"metadata": {"labels": {}}}, "list": [{"metadata": {}}]},
        });
        let spec = json!({"workload": {"manifests": [deployment]}});
        let text = r#"{"manifestConfigs": null, "workload": {"manifests": [{
            "spec": {
                "list": [{"metadata": {"creationTimestamp": null}}],
                "template": {"metadata": {"creationTimestamp": null, "labels": {}}}
            },
            "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z", "name": "a"},
            "kind": "Deployment", "apiVersion": "apps/v1"
        }]}}"#;
        let same: Value = serde_json::from_str(text).unwrap();
        assert_eq!(hash(&spec), hash(&same));

        let mut other = spec.clone();
        other["workload"]["manifests"][0]["metadata"]["name"] = "b".into();
        assert_ne!(hash(&spec), hash(&other));
    }

    #[test]
    fn defaults_make_no_difference() {
        let short = json!({"deleteOption": {}, "manifestConfigs": [
            {"resourceIdentifier": {"resource": "r", "name": "n"}, "updateStrategy": {}},
        ]});
        let long = json!({
            "workload": {},
            "deleteOption": {"propagationPolicy": "Foreground"},
            "manifestConfigs": [{
                "resourceIdentifier": {"group": "", "resource": "r", "namespace": "", "name": "n"},
                "updateStrategy": {"type": "Update"},
                "feedbackScrapeType": "Poll",
            }],
        });
        assert_eq!(hash(&short), hash(&long));
        let orphan = json!({"deleteOption": {"propagationPolicy": "Orphan"}});
        assert_ne!(hash(&json!({"deleteOption": {}})), hash(&orphan));
    }

    #[test]
    fn what_is_no_spec_is_an_error() {
        assert!(canonical_spec_hash(&json!({"workload": {"manifests": 5}})).is_err());
    }
}
