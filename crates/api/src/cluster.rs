//! `cluster.open-cluster-management.io/v1`: ManagedCluster.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{null_as_default, schema};

/// How the hub knows a cluster.
#[derive(CustomResource, JsonSchema, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "cluster.open-cluster-management.io",
    version = "v1",
    kind = "ManagedCluster",
    plural = "managedclusters",
    shortname = "mcl",
    shortname = "mcls",
    doc = "A cluster that the hub manages. Its name is also the name of the hub namespace that holds the cluster's works.",
    status = "ManagedClusterStatus",
    derive = "PartialEq",
    derive = "Default",
    attr = "cfg_attr(all(), serde(default))",
    printcolumn = r#"{"name":"Hub Accepted","type":"boolean","description":"Whether the hub lets the cluster join","jsonPath":".spec.hubAcceptsClient"}"#,
    printcolumn = r#"{"name":"Managed Cluster URLs","type":"string","description":"Addresses of the cluster's API server","jsonPath":".spec.managedClusterClientConfigs[*].url"}"#,
    printcolumn = r#"{"name":"Joined","type":"string","description":"Whether the cluster has joined","jsonPath":".status.conditions[?(@.type==\"ManagedClusterJoined\")].status"}"#,
    printcolumn = r#"{"name":"Available","type":"string","description":"Whether the cluster is in contact","jsonPath":".status.conditions[?(@.type==\"ManagedClusterConditionAvailable\")].status"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ManagedClusterSpec {
    /// Addresses of the cluster's API server. Empty when the hub cannot reach it.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub managed_cluster_client_configs: Vec<ClientConfig>,

    /// Whether the hub lets the cluster join.
    #[serde(default)]
    pub hub_accepts_client: bool,

    /// Seconds between two renewals of the cluster's lease.
    #[serde(default = "default_lease_duration_seconds")]
    #[schemars(extend("x-default" = 60))]
    pub lease_duration_seconds: i32,

    /// Marks that keep placements without a matching toleration away.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub taints: Vec<Taint>,
}

fn default_lease_duration_seconds() -> i32 {
    60
}

impl Default for ManagedClusterSpec {
    fn default() -> Self {
        Self {
            managed_cluster_client_configs: Vec::new(),
            hub_accepts_client: false,
            lease_duration_seconds: default_lease_duration_seconds(),
            taints: Vec::new(),
        }
    }
}

/// An address of a cluster's API server.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientConfig {
    /// URL of the API server.
    pub url: String,

    /// Certificate authorities to trust, as PEM. Absent trusts the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::bytes")]
    pub ca_bundle: Option<ByteString>,
}

/// A mark that keeps placements away.
#[derive(JsonSchema, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Taint {
    /// Key of the taint.
    #[schemars(schema_with = "schema::taint_key")]
    pub key: String,

    /// Value of the taint.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub value: String,

    /// What it does to placements that do not tolerate it.
    pub effect: TaintEffect,

    /// When the taint was added.
    #[serde(default)]
    #[schemars(schema_with = "schema::date_time", extend("nullable" = true))]
    pub time_added: Option<Time>,
}

string_enum! {
    /// What a taint does to placements that do not tolerate it.
    pub enum TaintEffect {
        /// The cluster is not selected, and given up if it was.
        NoSelect = "NoSelect",
        /// The cluster is selected only if others do not suffice.
        PreferNoSelect = "PreferNoSelect",
        /// The cluster is not selected, but kept if it was.
        NoSelectIfNew = "NoSelectIfNew",
    }
}

/// What is known of a cluster.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ManagedClusterStatus {
    /// Conditions, among them HubAcceptedManagedCluster, ManagedClusterJoined and
    /// ManagedClusterConditionAvailable.
    #[serde(default, deserialize_with = "null_as_default")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,

    /// Resources of all nodes together.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    #[schemars(schema_with = "schema::quantities")]
    pub capacity: BTreeMap<String, Quantity>,

    /// Resources of all nodes together that workloads can use.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    #[schemars(schema_with = "schema::quantities")]
    pub allocatable: BTreeMap<String, Quantity>,

    /// Versions of the cluster's software.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<ManagedClusterVersion>,

    /// What the cluster says about itself, for placements to select by.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub cluster_claims: Vec<ManagedClusterClaim>,

    /// Namespaces on the cluster that its cluster sets manage.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["clusterSet", "name"]))]
    pub managed_namespaces: Vec<ClusterSetManagedNamespaceConfig>,
}

/// Versions of a cluster's software.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ManagedClusterVersion {
    /// Version of Kubernetes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kubernetes: String,
}

/// Something a cluster says about itself.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ManagedClusterClaim {
    /// Name of the claim.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(min = 1, max = 253))]
    pub name: String,

    /// Value of the claim.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(min = 1, max = 1024))]
    pub value: String,
}

/// A namespace on the cluster that a cluster set manages.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSetManagedNamespaceConfig {
    /// Name of the namespace.
    #[schemars(length(max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,

    /// Name of the cluster set.
    pub cluster_set: String,

    /// Conditions of the namespace.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}
