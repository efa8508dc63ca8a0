//! AppliedManifestWork: what a work has put on the managed cluster, recorded there.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{null_as_default, schema};

/// Which work of which hub is recorded here.
#[derive(
    CustomResource, JsonSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize,
)]
#[kube(
    group = "work.open-cluster-management.io",
    version = "v1",
    kind = "AppliedManifestWork",
    plural = "appliedmanifestworks",
    doc = "Records on the managed cluster which objects a ManifestWork of a hub has put there. Its name is the hub hash, a hyphen and the name of the work. Applied objects are owned by it, so deleting it removes them.",
    status = "AppliedManifestWorkStatus",
    derive = "PartialEq",
    derive = "Default",
    attr = "cfg_attr(all(), serde(default))",
    printcolumn = r#"{"name":"Work","type":"string","description":"Name of the work on the hub","jsonPath":".spec.manifestWorkName"}"#,
    printcolumn = r#"{"name":"Agent","type":"string","description":"Agent that handles it","jsonPath":".spec.agentID","priority":1}"#,
    printcolumn = r#"{"name":"Eviction","type":"date","description":"Since when it is to be evicted","jsonPath":".status.evictionStartTime","priority":1}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["hubHash", "manifestWorkName"]))]
pub struct AppliedManifestWorkSpec {
    /// Lower-case hex SHA-256 of the hub's API server address, or of the broker's for event
    /// transports.
    #[serde(default)]
    pub hub_hash: String,

    /// The agent that handles this record.
    #[serde(default, rename = "agentID")]
    pub agent_id: String,

    /// Name of the work on the hub.
    #[serde(default)]
    pub manifest_work_name: String,
}

/// What has been put on the managed cluster.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AppliedManifestWorkStatus {
    /// The objects, sorted by group, version, resource, namespace and name. One that left the
    /// workload stays listed until it is gone from the cluster.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub applied_resources: Vec<AppliedManifestResourceMeta>,

    /// When eviction began: the work is missing on the hub, or the hub is no longer the agent's.
    /// The objects are removed after a grace period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::date_time")]
    pub eviction_start_time: Option<Time>,
}

/// Identity of an applied object. Fields in the order in which lists are sorted, see
/// [`AppliedManifestWorkStatus::applied_resources`].
#[derive(
    JsonSchema, Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "camelCase")]
pub struct AppliedManifestResourceMeta {
    /// API group; empty for the core group.
    #[serde(default)]
    pub group: String,

    /// API version.
    pub version: String,

    /// Resource name in plural.
    pub resource: String,

    /// Namespace of the object; empty for objects without one.
    #[serde(default)]
    pub namespace: String,

    /// Name of the object.
    pub name: String,

    /// UID of the object when it was applied. An object of the same name with another UID is not
    /// ours to delete.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
}
