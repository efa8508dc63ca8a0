//! What both sides ask of the manifests of a work.

use muster_api::work::Manifest;
use serde::Deserialize;

/// Most bytes that the manifests of a work may have together.
pub const MOST_MANIFEST_BYTES: usize = 500 * 1024;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    metadata: HeadMeta,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct HeadMeta {
    #[serde(default)]
    name: String,
    #[serde(default)]
    generate_name: String,
}

/// Checks manifests when they come. What is wrong with a single one its agent says, of that one: it
/// stops no other.
///
/// # Errors
///
/// There are none, or they are too large, in sdk-go's words.
pub(super) fn check_received(manifests: &[Manifest]) -> Result<(), String> {
    if manifests.is_empty() {
        return Err("Workload manifests should not be empty".to_owned());
    }
    let bytes: usize = manifests
        .iter()
        .map(|manifest| manifest.as_json().len())
        .sum();
    if bytes > MOST_MANIFEST_BYTES {
        return Err(format!(
            "the size of manifests is {bytes} bytes which exceeds the {MOST_MANIFEST_BYTES} limit"
        ));
    }
    Ok(())
}

/// Checks manifests before they are sent.
///
/// # Errors
///
/// The first thing wrong, in sdk-go's words where it has some.
pub fn check_manifests(manifests: &[Manifest]) -> Result<(), String> {
    check_received(manifests)?;
    for (ordinal, manifest) in manifests.iter().enumerate() {
        let Head {
            api_version,
            kind,
            metadata,
        } = manifest
            .read()
            .map_err(|error| format!("manifest {ordinal} is no Kubernetes object: {error}"))?;
        if kind.is_empty() || api_version.is_empty() {
            return Err(format!(
                "manifest {ordinal} is no Kubernetes object: it has no kind or apiVersion"
            ));
        }
        if metadata.name.is_empty() && metadata.generate_name.is_empty() {
            return Err("name must be set in manifest".to_owned());
        }
        if !metadata.generate_name.is_empty() {
            return Err("generateName must not be set in manifest".to_owned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(manifests: &[Value]) -> Result<(), String> {
        let manifests: Vec<_> = manifests
            .iter()
            .map(|manifest| Manifest::from_value(manifest).unwrap())
            .collect();
        check_manifests(&manifests)
    }

    fn object(metadata: &Value) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    }

    #[test]
    fn manifests_have_to_be_objects_with_names() {
        assert_eq!(check(&[object(&json!({"name": "a"}))]), Ok(()));
        let error = |manifests: &[Value]| check(manifests).unwrap_err();
        assert_eq!(error(&[]), "Workload manifests should not be empty");
        assert_eq!(error(&[object(&json!({}))]), "name must be set in manifest");
        assert_eq!(
            error(&[object(&json!({"name": "a", "generateName": "a-"}))]),
            "generateName must not be set in manifest"
        );
        let good = object(&json!({"name": "a"}));
        assert!(error(&[good.clone(), json!(7)]).starts_with("manifest 1 is no Kubernetes object"));
        assert!(error(&[json!({"metadata": {"name": "a"}})]).contains("no kind"));
        let mut big = good;
        big["data"] = json!({"a": "x".repeat(MOST_MANIFEST_BYTES)});
        assert!(error(&[big]).ends_with("bytes which exceeds the 512000 limit"));
    }
}
