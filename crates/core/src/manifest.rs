//! Reading raw manifests, and what makes a list of them acceptable.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;

use muster_api::work::{Manifest, ManifestResourceMeta};
use serde_json::Value;
use thiserror::Error;

use crate::go_format::prefix;

/// Most bytes of a manifest that an error shows. A condition's message holds 32 KiB.
const MAX_SHOWN_BYTES: usize = 1024;

/// How deep a manifest may nest: as deep as JSON is read here.
pub const MAX_MANIFEST_DEPTH: usize = 127;

/// Group, version and kind of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Gvk<'a> {
    /// API group; empty for the core group.
    pub group: &'a str,
    /// API version.
    pub version: &'a str,
    /// Kind.
    pub kind: &'a str,
}

impl<'a> Gvk<'a> {
    /// Reads `apiVersion` and `kind` of an object; what is missing is empty.
    pub fn of(object: &'a Value) -> Self {
        let text = |field| {
            object
                .get(field)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        Self::new(text("apiVersion"), text("kind"))
    }

    /// Splits an `apiVersion`. One with several slashes names no group and no version.
    pub fn new(api_version: &'a str, kind: &'a str) -> Self {
        let (group, version) = match api_version.split_once('/') {
            None => ("", api_version),
            Some((_, version)) if version.contains('/') => ("", ""),
            Some(parts) => parts,
        };
        Self {
            group,
            version,
            kind,
        }
    }
}

/// As Go prints it, e.g. `apps/v1, Kind=Deployment`.
impl fmt::Display for Gvk<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}, Kind={}", self.group, self.version, self.kind)
    }
}

/// Why a manifest cannot be applied. The texts that users of the reference know are the same.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ManifestError {
    /// Nothing at all.
    #[error("unexpected end of JSON input")]
    Empty,
    /// No JSON.
    #[error("manifest is no valid JSON: {0}")]
    Syntax(String),
    /// JSON that nests too deep to be read.
    #[error("manifest nests more than {MAX_MANIFEST_DEPTH} levels deep")]
    TooDeep,
    /// JSON, and no object.
    #[error("json: cannot unmarshal {0} into Go value of type map[string]interface {{}}")]
    NotAnObject(&'static str),
    /// No `kind`, or one that is no text. Shows the manifest.
    #[error("Object 'Kind' is missing in '{0}'")]
    NoKind(String),
    /// No `apiVersion`, or one that is no text. Shows the manifest.
    #[error("Object 'apiVersion' is missing in '{0}'")]
    NoApiVersion(String),
    /// No `metadata.name`, without which the object cannot be found again.
    #[error("name must be set in manifest")]
    NoName,
    /// A `metadata.generateName`.
    #[error("generateName must not be set in manifest")]
    GenerateName,
}

/// A manifest whose kind is known.
#[derive(Debug, Clone, PartialEq)]
pub struct ParsedManifest {
    /// Position in the work's spec, from 0.
    pub ordinal: usize,
    /// The object as it was written.
    pub object: Value,
}

impl ParsedManifest {
    /// Reads the manifest at a position of the spec. Whether it can be applied says
    /// [`Self::check_name`].
    pub fn parse(ordinal: usize, json: &str) -> Result<Self, ManifestError> {
        if json.trim().is_empty() {
            return Err(ManifestError::Empty);
        }
        let object: Value = serde_json::from_str(json).map_err(|error| {
            let text = error.to_string();
            // The library has no other way to tell.
            if text.starts_with("recursion limit exceeded") {
                ManifestError::TooDeep
            } else {
                ManifestError::Syntax(text)
            }
        })?;
        match object {
            // Go decodes null as an empty object.
            Value::Object(_) | Value::Null => {}
            Value::Array(_) => return Err(ManifestError::NotAnObject("array")),
            Value::String(_) => return Err(ManifestError::NotAnObject("string")),
            Value::Number(_) => return Err(ManifestError::NotAnObject("number")),
            Value::Bool(_) => return Err(ManifestError::NotAnObject("bool")),
        }
        let manifest = Self { ordinal, object };
        if manifest.gvk().kind.is_empty() {
            return Err(ManifestError::NoKind(shown(json)));
        }
        if manifest.api_version().is_empty() {
            return Err(ManifestError::NoApiVersion(shown(json)));
        }
        Ok(manifest)
    }

    /// Group, version and kind.
    pub fn gvk(&self) -> Gvk<'_> {
        Gvk::of(&self.object)
    }

    /// The `apiVersion`.
    pub fn api_version(&self) -> &str {
        self.object
            .get("apiVersion")
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    /// The name; empty if there is none.
    pub fn name(&self) -> &str {
        self.metadata("name")
    }

    /// The namespace as written; empty if there is none. For a cluster-scoped kind it means
    /// nothing.
    pub fn namespace(&self) -> &str {
        self.metadata("namespace")
    }

    /// Refuses names that the server would have to invent: such an object cannot be tracked.
    pub fn check_name(&self) -> Result<(), ManifestError> {
        if self.name().is_empty() {
            return Err(ManifestError::NoName);
        }
        if !self.metadata("generateName").is_empty() {
            return Err(ManifestError::GenerateName);
        }
        Ok(())
    }

    /// The entry of the manifest in the status of its work. `resource` is empty where the server
    /// does not know the kind; a cluster-scoped object has no namespace, whatever is written.
    pub fn resource_meta(&self, resource: &str, namespaced: bool) -> ManifestResourceMeta {
        let Gvk {
            group,
            version,
            kind,
        } = self.gvk();
        ManifestResourceMeta {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
            resource: resource.into(),
            name: self.name().into(),
            namespace: if namespaced {
                self.namespace().into()
            } else {
                String::new()
            },
            ..unparsed_resource_meta(self.ordinal)
        }
    }

    fn metadata(&self, field: &str) -> &str {
        let metadata = self.object.get("metadata");
        metadata
            .and_then(|metadata| metadata.get(field)?.as_str())
            .unwrap_or_default()
    }
}

/// The entry of a manifest that could not be parsed: nothing but its position.
pub fn unparsed_resource_meta(ordinal: usize) -> ManifestResourceMeta {
    ManifestResourceMeta {
        // No hub admits a work of two thousand million manifests.
        ordinal: i32::try_from(ordinal).unwrap_or(i32::MAX),
        ..ManifestResourceMeta::default()
    }
}

fn shown(json: &str) -> String {
    let shown = prefix(json, MAX_SHOWN_BYTES);
    if shown.len() == json.len() {
        json.into()
    } else {
        format!("{shown}…")
    }
}

/// Why a hub refuses a list of manifests, with the reference's texts
/// (`ocm`: `pkg/work/webhook/common/validator.go`). All are bad requests (HTTP 400).
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AdmissionError {
    /// No manifest.
    #[error("manifests should not be empty")]
    NoManifests,
    /// More bytes than the hub admits.
    #[error("the size of manifests is {bytes} bytes which exceeds the {limit} limit")]
    TooLarge {
        /// What the manifests take, as [`size_bytes`] counts.
        bytes: usize,
        /// What is admitted.
        limit: usize,
    },
    /// A manifest that cannot be applied.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// Two manifests for one object.
    #[error(transparent)]
    Duplicate(#[from] DuplicateManifest),
}

/// Two manifests of a work are for one object. The text begins as upstream's.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "duplicate manifest for resource {namespace}/{name} with resource type {api_version}.{kind}: \
     manifests {first} and {second} are for the same object"
)]
pub struct DuplicateManifest {
    /// Position of the first.
    pub first: usize,
    /// Position of the second.
    pub second: usize,
    /// `apiVersion` of the second.
    pub api_version: String,
    /// The object's kind.
    pub kind: String,
    /// The object's namespace; empty if it has none.
    pub namespace: String,
    /// The object's name.
    pub name: String,
}

/// The identity of a manifest's object: group, kind, namespace and name. The version is no part of it,
/// since all versions show the same objects, nor does a namespace where the kind has none.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ObjectIdentity {
    group: String,
    kind: String,
    namespace: String,
    name: String,
}

/// The objects that the manifests of a work are for.
#[derive(Debug, Default)]
pub struct ManifestObjects(HashMap<ObjectIdentity, usize>);

impl ManifestObjects {
    /// Takes the next manifest. `namespaced` says whether its kind has namespaces; where that is not
    /// known, the built-in kinds of Kubernetes are.
    ///
    /// # Errors
    ///
    /// An earlier one is for the same object.
    pub fn add(
        &mut self,
        manifest: &ParsedManifest,
        namespaced: Option<bool>,
    ) -> Result<(), DuplicateManifest> {
        let Gvk { group, kind, .. } = manifest.gvk();
        let namespaced = namespaced.unwrap_or_else(|| !is_cluster_scoped(group, kind));
        let namespace = if namespaced { manifest.namespace() } else { "" };
        let [group, kind, namespace, name] =
            [group, kind, namespace, manifest.name()].map(str::to_owned);
        let identity = ObjectIdentity {
            group,
            kind,
            namespace,
            name,
        };
        match self.0.entry(identity) {
            Entry::Vacant(vacant) => {
                vacant.insert(manifest.ordinal);
                Ok(())
            }
            Entry::Occupied(known) if *known.get() == manifest.ordinal => Ok(()),
            Entry::Occupied(known) => {
                let identity = known.key().clone();
                Err(DuplicateManifest {
                    first: *known.get(),
                    second: manifest.ordinal,
                    api_version: manifest.api_version().to_owned(),
                    kind: identity.kind,
                    namespace: identity.namespace,
                    name: identity.name,
                })
            }
        }
    }
}

/// Whether a built-in kind of Kubernetes has no namespaces.
fn is_cluster_scoped(group: &str, kind: &str) -> bool {
    matches!(
        (group, kind),
        ("", "Namespace" | "Node" | "PersistentVolume")
            | (
                "admissionregistration.k8s.io",
                "MutatingAdmissionPolicy"
                    | "MutatingAdmissionPolicyBinding"
                    | "MutatingWebhookConfiguration"
                    | "ValidatingAdmissionPolicy"
                    | "ValidatingAdmissionPolicyBinding"
                    | "ValidatingWebhookConfiguration"
            )
            | ("apiextensions.k8s.io", "CustomResourceDefinition")
            | ("apiregistration.k8s.io", "APIService")
            | (
                "certificates.k8s.io",
                "CertificateSigningRequest" | "ClusterTrustBundle"
            )
            | (
                "flowcontrol.apiserver.k8s.io",
                "FlowSchema" | "PriorityLevelConfiguration"
            )
            | (
                "networking.k8s.io",
                "IngressClass" | "IPAddress" | "ServiceCIDR"
            )
            | ("node.k8s.io", "RuntimeClass")
            | ("policy", "PodSecurityPolicy")
            | (
                "rbac.authorization.k8s.io",
                "ClusterRole" | "ClusterRoleBinding"
            )
            | (
                "resource.k8s.io",
                "DeviceClass" | "DeviceTaintRule" | "ResourceSlice"
            )
            | ("scheduling.k8s.io", "PriorityClass")
            | (
                "storage.k8s.io",
                "CSIDriver"
                    | "CSINode"
                    | "StorageClass"
                    | "VolumeAttachment"
                    | "VolumeAttributesClass"
            )
            | ("storagemigration.k8s.io", "StorageVersionMigration")
    )
}

/// Bytes that the manifests of a work may take unless configured otherwise.
pub const DEFAULT_MANIFEST_LIMIT_BYTES: usize = 500 * 1024;

/// Decides whether a hub admits the manifests of a work.
pub fn validate_manifests(
    manifests: &[Manifest],
    limit_bytes: usize,
) -> Result<(), AdmissionError> {
    if manifests.is_empty() {
        return Err(AdmissionError::NoManifests);
    }
    let bytes = size_bytes(manifests);
    if bytes > limit_bytes {
        return Err(AdmissionError::TooLarge {
            bytes,
            limit: limit_bytes,
        });
    }
    let mut objects = ManifestObjects::default();
    for (ordinal, manifest) in manifests.iter().enumerate() {
        let manifest = ParsedManifest::parse(ordinal, manifest.as_json())?;
        manifest.check_name()?;
        objects.add(&manifest, None)?;
    }
    Ok(())
}

/// The size of manifests as the reference counts it: that of each as a field of a protobuf
/// message, i.e. its bytes, their number as a varint, and one byte for the field.
pub fn size_bytes(manifests: &[Manifest]) -> usize {
    let varint_bytes = |length: usize| length.checked_ilog2().map_or(1, |bits| bits / 7 + 1);
    manifests
        .iter()
        .map(|manifest| manifest.as_json().len())
        .map(|length| length + varint_bytes(length) as usize + 1)
        .sum()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn manifests(objects: impl IntoIterator<Item = Value>) -> Vec<Manifest> {
        objects
            .into_iter()
            .map(|object| Manifest::try_from(object).unwrap())
            .collect()
    }

    fn refusal(objects: impl IntoIterator<Item = Value>) -> String {
        let limit = DEFAULT_MANIFEST_LIMIT_BYTES;
        validate_manifests(&manifests(objects), limit)
            .unwrap_err()
            .to_string()
    }

    fn config_map(namespace: &str, name: &str, value: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": namespace, "name": name}, "data": {"k": value},
        })
    }

    #[test]
    fn an_object_may_be_named_once_in_a_work() {
        assert_eq!(
            refusal([
                config_map("default", "a", "1"),
                config_map("default", "a", "2")
            ]),
            "duplicate manifest for resource default/a with resource type v1.ConfigMap: \
             manifests 0 and 1 are for the same object"
        );
        let mut secret = config_map("default", "a", "1");
        secret["kind"] = "Secret".into();
        let distinct = [
            config_map("default", "a", "1"),
            config_map("other", "a", "1"),
            config_map("default", "b", "1"),
            secret,
        ];
        assert_eq!(validate_manifests(&manifests(distinct), 9999), Ok(()));
    }

    #[test]
    fn an_object_is_the_same_in_every_version_and_without_its_meaningless_namespace() {
        let object = |api_version: &str, kind: &str, namespace: &str| {
            json!({"apiVersion": api_version, "kind": kind,
                "metadata": {"name": "a", "namespace": namespace}})
        };
        let other = config_map("d", "a", "1");
        assert_eq!(
            refusal([
                object("batch/v1", "CronJob", "d"),
                other.clone(),
                object("batch/v1beta1", "CronJob", "d"),
            ]),
            "duplicate manifest for resource d/a with resource type batch/v1beta1.CronJob: \
             manifests 0 and 2 are for the same object"
        );
        let rbac = "rbac.authorization.k8s.io/v1";
        assert_eq!(
            refusal([
                object(rbac, "ClusterRole", "d"),
                object(rbac, "ClusterRole", ""),
            ]),
            "duplicate manifest for resource /a with resource type \
             rbac.authorization.k8s.io/v1.ClusterRole: manifests 0 and 1 are for the same object"
        );
        for distinct in [
            [object(rbac, "Role", "d"), object(rbac, "Role", "e")],
            [
                object(rbac, "ClusterRole", ""),
                object("example.org/v1", "ClusterRole", ""),
            ],
            // Whether objects of this kind have a namespace is the cluster's to say.
            [
                object("example.org/v1", "Odd", ""),
                object("example.org/v1", "Odd", "d"),
            ],
        ] {
            assert_eq!(validate_manifests(&manifests(distinct), 9999), Ok(()));
        }
    }

    #[test]
    fn what_cannot_be_tracked_is_refused() {
        let pod =
            |metadata: Value| json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata});
        assert_eq!(refusal([]), "manifests should not be empty");
        assert_eq!(
            refusal([pod(json!({"generateName": "a-"}))]),
            "name must be set in manifest"
        );
        assert_eq!(
            refusal([pod(json!({"name": 1}))]),
            "name must be set in manifest"
        );
        assert_eq!(
            refusal([pod(json!({"name": "a", "generateName": "a-"}))]),
            "generateName must not be set in manifest"
        );
        assert_eq!(
            refusal([json!({"apiVersion": "v1", "metadata": {"name": "a"}})]),
            r#"Object 'Kind' is missing in '{"apiVersion":"v1","metadata":{"name":"a"}}'"#
        );
        assert_eq!(
            refusal([json!({"kind": "Pod"})]),
            r#"Object 'apiVersion' is missing in '{"kind":"Pod"}'"#
        );
        assert_eq!(
            refusal([
                json!({"apiVersion": "v1", "kind": "List", "items": [config_map("a", "b", "")]})
            ]),
            "name must be set in manifest"
        );
        assert_eq!(
            refusal([json!(true)]),
            "json: cannot unmarshal bool into Go value of type map[string]interface {}"
        );
        assert_eq!(
            refusal([json!(1.5)]),
            "json: cannot unmarshal number into Go value of type map[string]interface {}"
        );
    }

    #[test]
    fn the_size_limit_counts_the_framing() {
        // 2 bytes of length from 128 on: 1 + 2 + 200.
        let one = manifests([json!("x".repeat(198))]);
        assert_eq!(size_bytes(&one), 203);
        assert_eq!(size_bytes(&manifests([json!("x".repeat(125))])), 129);
        assert_eq!(size_bytes(&manifests([json!("x".repeat(126))])), 131);
        let text = "the size of manifests is 203 bytes which exceeds the 202 limit";
        assert_eq!(validate_manifests(&one, 202).unwrap_err().to_string(), text);
        let other = validate_manifests(&one, 203).unwrap_err();
        assert!(matches!(other, AdmissionError::Manifest(_)), "{other}");
    }

    #[test]
    fn bad_syntax_is_reported_and_long_manifests_are_cut() {
        let error = ParsedManifest::parse(0, "{\"a\":").unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("manifest is no valid JSON: EOF"),
            "{error}"
        );
        let long = json!({ "a": "é".repeat(2000) }).to_string();
        let error = ParsedManifest::parse(0, &long).unwrap_err().to_string();
        assert!(
            error.len() < MAX_SHOWN_BYTES + 50 && error.ends_with("…'"),
            "{error}"
        );
    }

    #[test]
    fn a_manifest_may_nest_so_deep_and_no_deeper() {
        // The object, `spec`, and what is in it.
        let nested = |depth: usize| {
            let (open, close) = ("[".repeat(depth - 1), "]".repeat(depth - 1));
            let json = format!(r#"{{"apiVersion": "v1", "kind": "X", "spec": {open}{close}}}"#);
            ParsedManifest::parse(0, &json)
        };
        assert!(nested(MAX_MANIFEST_DEPTH).is_ok());
        for depth in [MAX_MANIFEST_DEPTH + 1, 100_000] {
            let error = nested(depth).unwrap_err();
            assert_eq!(
                error.to_string(),
                "manifest nests more than 127 levels deep"
            );
        }
    }

    #[test]
    fn a_cluster_scoped_object_is_recorded_without_namespace() {
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "a", "namespace": "x"},
        });
        let manifest = ParsedManifest::parse(3, &role.to_string()).unwrap();
        let meta = manifest.resource_meta("clusterroles", false);
        let expected = ManifestResourceMeta {
            ordinal: 3,
            group: "rbac.authorization.k8s.io".into(),
            version: "v1".into(),
            kind: "ClusterRole".into(),
            resource: "clusterroles".into(),
            name: "a".into(),
            namespace: String::new(),
        };
        assert_eq!(meta, expected);
        assert_eq!(manifest.resource_meta("", true).namespace, "x");
        let unparsed = ManifestResourceMeta {
            ordinal: 3,
            ..Default::default()
        };
        assert_eq!(unparsed_resource_meta(3), unparsed);
    }

    #[test]
    fn group_version_kind_reads_any_api_version() {
        assert_eq!(Gvk::new("apps/v1", "D").to_string(), "apps/v1, Kind=D");
        assert_eq!(Gvk::new("v1", "D").to_string(), "/v1, Kind=D");
        assert_eq!(Gvk::new("a/b/c", "D").to_string(), "/, Kind=D");
        assert_eq!(Gvk::of(&json!({"kind": "D"})).to_string(), "/, Kind=D");
    }
}
