//! The CustomResourceDefinitions of every kind in this crate.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceValidation,
};
use kube::core::crd::CustomResourceExt;
use schemars::JsonSchema;
use thiserror::Error;

use crate::cluster::ManagedCluster;
use crate::placement::{Placement, PlacementDecision};
use crate::replicaset::ManifestWorkReplicaSet;
use crate::rules::{ClusterWatchRule, WatchRule};
use crate::schema;
use crate::work::{AppliedManifestWork, ManifestWork};

/// Why a definition has no YAML form.
#[derive(Debug, Error)]
#[error("failed to write custom resource definition {name} as YAML")]
pub struct YamlError {
    name: String,
    #[source]
    source: serde_saphyr::ser::Error,
}

/// All definitions, in the order in which they are printed and installed.
///
/// ```
/// let names: Vec<_> =
///     muster_api::crds::all().into_iter().filter_map(|crd| crd.metadata.name).collect();
/// assert_eq!(names[0], "manifestworks.work.open-cluster-management.io");
/// ```
pub fn all() -> Vec<CustomResourceDefinition> {
    vec![
        definition::<ManifestWork>(),
        definition::<AppliedManifestWork>(),
        definition::<ManifestWorkReplicaSet>(),
        definition::<Placement>(),
        definition::<PlacementDecision>(),
        definition::<ManagedCluster>(),
        definition::<WatchRule>(),
        definition::<ClusterWatchRule>(),
    ]
}

/// The definitions that a hub needs: all that do not live on managed clusters.
pub fn hub() -> Vec<CustomResourceDefinition> {
    let elsewhere = [spoke(), rules()].concat();
    all()
        .into_iter()
        .filter(|crd| !elsewhere.contains(crd))
        .collect()
}

/// The definitions that a managed cluster needs.
pub fn spoke() -> Vec<CustomResourceDefinition> {
    vec![definition::<AppliedManifestWork>()]
}

/// The definitions that a managed cluster needs besides where its users write watch rules.
pub fn rules() -> Vec<CustomResourceDefinition> {
    vec![definition::<WatchRule>(), definition::<ClusterWatchRule>()]
}

/// The definition of one kind.
pub fn definition<K: CustomResourceExt + JsonSchema>() -> CustomResourceDefinition {
    let mut crd = K::crd();
    crd.spec.names.list_kind = Some(format!("{}List", crd.spec.names.kind));
    let schema = schema::typed(schema::structural::<K>());
    for version in &mut crd.spec.versions {
        // kube's own schema has a CRD default for every field that is lenient to decode.
        version.schema = Some(CustomResourceValidation {
            open_api_v3_schema: Some(schema.clone()),
        });
    }
    crd
}

/// A definition as a YAML document, as kept under `deploy/crds`.
///
/// # Errors
///
/// Fails if the definition holds a value that YAML cannot express.
pub fn to_yaml(crd: &CustomResourceDefinition) -> Result<String, YamlError> {
    serde_saphyr::to_string(crd).map_err(|source| YamlError {
        name: crd.metadata.name.clone().unwrap_or_default(),
        source,
    })
}

/// Definitions as one stream of YAML documents.
///
/// # Errors
///
/// Fails like [`to_yaml`].
pub fn to_yaml_stream(crds: &[CustomResourceDefinition]) -> Result<String, YamlError> {
    let documents = crds.iter().map(to_yaml).collect::<Result<Vec<_>, _>>()?;
    Ok(documents.join("---\n"))
}
