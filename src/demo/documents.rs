//! The objects that the demo puts on the hub.

use std::path::Path;

use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::{self, Scope};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

/// The sample.
pub(super) const SAMPLE: &str = include_str!("sample.yaml");

/// Namespace of objects that name none, as kubectl would choose.
const DEFAULT_NAMESPACE: &str = "default";

/// Why the objects are not on the hub. Each text names the object at fault.
#[derive(Debug, thiserror::Error)]
pub(super) enum DocumentError {
    #[error("failed to read {file}: {source}")]
    Read {
        file: String,
        source: std::io::Error,
    },
    #[error("{file}: {source}")]
    Yaml {
        file: String,
        source: Box<serde_saphyr::Error>,
    },
    #[error("{file}: document {number}: {reason}")]
    Shape {
        file: String,
        number: usize,
        reason: String,
    },
    #[error("{file}: no ManifestWorkReplicaSet in it")]
    NoReplicaSet { file: String },
    #[error("{what}: apiVersion: {reason}")]
    ApiVersion { what: String, reason: String },
    #[error("{what}: {source}")]
    Api { what: String, source: kube::Error },
}

/// Reads the objects of a file, or of the sample.
pub(super) fn read(file: Option<&Path>) -> Result<Vec<DynamicObject>, DocumentError> {
    let Some(path) = file else {
        return parse("the sample", SAMPLE);
    };
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|source| DocumentError::Read {
        file: name.clone(),
        source,
    })?;
    parse(&name, &text)
}

fn parse(file: &str, text: &str) -> Result<Vec<DynamicObject>, DocumentError> {
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(text).map_err(|source| DocumentError::Yaml {
            file: file.to_owned(),
            source: Box::new(source),
        })?;
    let mut objects = Vec::new();
    for (index, document) in documents.into_iter().enumerate() {
        if document.is_null() {
            continue; // a separator with nothing behind it
        }
        let shape = |reason: String| DocumentError::Shape {
            file: file.to_owned(),
            number: index + 1,
            reason,
        };
        let object: DynamicObject =
            serde_json::from_value(document).map_err(|error| shape(error.to_string()))?;
        if object.types.is_none() {
            return Err(shape("apiVersion and kind must be set".to_owned()));
        }
        if object.metadata.name.is_none() {
            return Err(shape("metadata.name must be set".to_owned()));
        }
        objects.push(object);
    }
    if !objects
        .iter()
        .any(|object| kind(object) == "ManifestWorkReplicaSet")
    {
        return Err(DocumentError::NoReplicaSet {
            file: file.to_owned(),
        });
    }
    Ok(objects)
}

/// The object's kind.
pub(super) fn kind(object: &DynamicObject) -> &str {
    object.types.as_ref().map_or("", |types| &types.kind)
}

/// Placements that replica sets refer to and `objects` does not hold, as objects that select every
/// cluster: a replica set taken from a real hub comes without them.
pub(super) fn missing_placements(objects: &[DynamicObject]) -> Vec<DynamicObject> {
    let has = |namespace: &str, name: &str| {
        objects.iter().any(|object| {
            kind(object) == "Placement"
                && object.name_any() == name
                && object
                    .metadata
                    .namespace
                    .as_deref()
                    .unwrap_or(DEFAULT_NAMESPACE)
                    == namespace
        })
    };
    let mut missing: Vec<DynamicObject> = Vec::new();
    for set in objects
        .iter()
        .filter(|object| kind(object) == "ManifestWorkReplicaSet")
    {
        let namespace = set
            .metadata
            .namespace
            .as_deref()
            .unwrap_or(DEFAULT_NAMESPACE);
        let refs = set.data["spec"]["placementRefs"]
            .as_array()
            .into_iter()
            .flatten();
        for name in refs.filter_map(|reference| reference["name"].as_str()) {
            let known = has(namespace, name)
                || missing.iter().any(|m| {
                    m.name_any() == name && m.metadata.namespace.as_deref() == Some(namespace)
                });
            if known {
                continue;
            }
            let placement = json!({
                "apiVersion": "cluster.open-cluster-management.io/v1beta1", "kind": "Placement",
                "metadata": {"namespace": namespace, "name": name}, "spec": {}});
            // A literal of ours always has this shape.
            missing.extend(serde_json::from_value::<DynamicObject>(placement).ok());
        }
    }
    missing
}

/// Puts the objects on the hub; one that exists takes the new content.
pub(super) async fn apply(client: &Client, objects: &[DynamicObject]) -> Result<(), DocumentError> {
    for object in objects {
        let types = object.types.clone().unwrap_or_default();
        let what = format!("{} {}", types.kind, object.name_any());
        let fault = |source| DocumentError::Api {
            what: what.clone(),
            source,
        };
        let gvk =
            GroupVersionKind::try_from(&types).map_err(|error| DocumentError::ApiVersion {
                what: what.clone(),
                reason: error.to_string(),
            })?;
        let (resource, capabilities) =
            discovery::pinned_kind(client, &gvk).await.map_err(&fault)?;
        let api: Api<DynamicObject> = if capabilities.scope == Scope::Namespaced {
            let namespace = object
                .metadata
                .namespace
                .as_deref()
                .unwrap_or(DEFAULT_NAMESPACE);
            Api::namespaced_with(client.clone(), namespace, &resource)
        } else {
            Api::all_with(client.clone(), &resource)
        };
        match api.create(&PostParams::default(), object).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                let patch = Patch::Merge(object);
                api.patch(&object.name_any(), &PatchParams::default(), &patch)
                    .await
                    .map_err(&fault)?;
            }
            Err(error) => return Err(fault(error)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_is_complete() {
        let objects = read(None).unwrap();
        assert_eq!(
            objects.iter().map(kind).collect::<Vec<_>>(),
            ["Placement", "ManifestWorkReplicaSet"]
        );
        assert!(missing_placements(&objects).is_empty());
    }

    #[test]
    fn a_set_without_its_placement_gets_one_that_selects_all() {
        let set = "apiVersion: work.open-cluster-management.io/v1alpha1\n\
                   kind: ManifestWorkReplicaSet\nmetadata: {name: a, namespace: apps}\n\
                   spec: {placementRefs: [{name: p}, {name: p}]}\n---\n";
        let objects = parse("f.yaml", set).unwrap();
        let missing = missing_placements(&objects);
        assert_eq!(missing.len(), 1);
        assert_eq!(missing[0].name_any(), "p");
        assert_eq!(missing[0].metadata.namespace.as_deref(), Some("apps"));
    }

    #[test]
    fn faults_name_file_and_document() {
        let fault = |text: &str| parse("f.yaml", text).unwrap_err().to_string();
        assert_eq!(
            fault("kind: X\napiVersion: v1\nmetadata: {name: a}"),
            "f.yaml: no ManifestWorkReplicaSet in it"
        );
        assert_eq!(
            fault("metadata: {name: a}"),
            "f.yaml: document 1: apiVersion and kind must be set"
        );
        assert_eq!(
            fault("apiVersion: v1\nkind: X"),
            "f.yaml: document 1: metadata.name must be set"
        );
        assert!(fault("a: [").starts_with("f.yaml: "), "{}", fault("a: ["));
        let missing = read(Some(Path::new("/does/not/exist.yaml")))
            .unwrap_err()
            .to_string();
        assert!(
            missing.starts_with("failed to read /does/not/exist.yaml: "),
            "{missing}"
        );
    }
}
