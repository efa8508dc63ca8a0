//! `work.open-cluster-management.io/v1alpha1`: ManifestWorkReplicaSet.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::rollout::RolloutStrategy;
use crate::work::ManifestWorkSpec;
use crate::{null_as_default, schema};

/// One work for each cluster of one or more placements.
#[derive(CustomResource, JsonSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "work.open-cluster-management.io",
    version = "v1alpha1",
    kind = "ManifestWorkReplicaSet",
    plural = "manifestworkreplicasets",
    shortname = "mwrs",
    doc = "Gives every cluster that its placements select a ManifestWork made from a template, keeps these works up to date as template and placements change, and sums up their status.",
    namespaced,
    status = "ManifestWorkReplicaSetStatus",
    derive = "PartialEq",
    derive = "Default",
    attr = "cfg_attr(all(), serde(default))",
    printcolumn = r#"{"name":"Placement","type":"string","description":"Reason of the PlacementVerified condition","jsonPath":".status.conditions[?(@.type==\"PlacementVerified\")].reason"}"#,
    printcolumn = r#"{"name":"Found","type":"string","description":"Whether clusters were found","jsonPath":".status.conditions[?(@.type==\"PlacementVerified\")].status"}"#,
    printcolumn = r#"{"name":"ManifestWorks","type":"string","description":"Reason of the ManifestworkApplied condition","jsonPath":".status.conditions[?(@.type==\"ManifestworkApplied\")].reason"}"#,
    printcolumn = r#"{"name":"Applied","type":"string","description":"Whether all works are applied","jsonPath":".status.conditions[?(@.type==\"ManifestworkApplied\")].status"}"#,
    printcolumn = r#"{"name":"Status","type":"string","description":"Phase of the rollout","jsonPath":".status.phase"}"#,
    printcolumn = r#"{"name":"Ready","type":"string","description":"Where the rollout stands","jsonPath":".status.message"}"#,
    printcolumn = r#"{"name":"Total","type":"integer","description":"Works","jsonPath":".status.summary.total","priority":1}"#,
    printcolumn = r#"{"name":"Available","type":"integer","description":"Works that are available","jsonPath":".status.summary.available","priority":1}"#,
    printcolumn = r#"{"name":"Progressing","type":"integer","description":"Works in progress","jsonPath":".status.summary.progressing","priority":1}"#,
    printcolumn = r#"{"name":"Degraded","type":"integer","description":"Works that are degraded","jsonPath":".status.summary.degraded","priority":1}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp","priority":1}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["placementRefs", "cascadeDeletionPolicy"]))]
pub struct ManifestWorkReplicaSetSpec {
    /// Spec of the work that each cluster gets.
    #[serde(default)]
    pub manifest_work_template: ManifestWorkSpec,

    /// The placements, in the namespace of this object, whose clusters get a work.
    #[serde(default, deserialize_with = "null_as_default")]
    #[schemars(length(min = 1), extend("x-kubernetes-list-type" = "atomic"))]
    pub placement_refs: Vec<LocalPlacementReference>,

    /// Whether deletion of this object waits until its works are gone (Foreground) or not
    /// (Background).
    #[serde(default)]
    #[schemars(extend("x-default" = "Background"))]
    pub cascade_deletion_policy: CascadeDeletionPolicy,
}

string_enum! {
    /// Whether deletion waits for the works.
    pub enum CascadeDeletionPolicy {
        /// The object goes at once, its works follow.
        Background = "Background",
        /// The object goes after its works.
        Foreground = "Foreground",
    }
    default Background
}

/// A placement in the same namespace, and how changes roll out over its clusters.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LocalPlacementReference {
    /// Name of the placement.
    #[schemars(length(min = 1))]
    pub name: String,

    /// How changes roll out over the clusters.
    #[serde(default)]
    #[schemars(extend("x-default" = {"type": "All", "all": {"progressDeadline": "None"}}))]
    pub rollout_strategy: RolloutStrategy,
}

/// Where the works of the set stand.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ManifestWorkReplicaSetStatus {
    /// Conditions: PlacementVerified, PlacementRolledOut, ManifestworkApplied, Progressing, Ready.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,

    /// Counts over all works of the set.
    #[serde(default)]
    pub summary: ManifestWorkReplicaSetSummary,

    /// Counts by placement.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        rename = "placementSummary"
    )]
    pub placements_summary: Vec<PlacementSummary>,

    /// Phase of the rollout: Progressing, Ready or Failed. Absent while no cluster is selected. An
    /// addition of muster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<ReplicaSetPhase>,

    /// One line for people on where the rollout stands. An addition of muster.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,

    /// Feedback values of the works, summed up over the clusters. An addition of muster.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub feedback: Vec<ResourceFeedback>,
}

string_enum! {
    /// Phase of a rollout.
    pub enum ReplicaSetPhase {
        /// Works are being created, updated or are not yet available.
        Progressing = "Progressing",
        /// Rolled out, and every work available.
        Ready = "Ready",
        /// At least one work could not be applied or is degraded, or the rollout is over and a cluster
        /// did not get there.
        Failed = "Failed",
    }
}

/// Counts of works by state.
#[derive(JsonSchema, Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ManifestWorkReplicaSetSummary {
    /// Works of the set.
    pub total: i64,
    /// Works on their way: their Progressing condition is True, or they have none and are not yet
    /// available.
    pub progressing: i64,
    /// Works whose Available condition is True.
    pub available: i64,
    /// Works that could not be applied, or whose Degraded condition is True.
    pub degraded: i64,
    /// Works whose Applied condition is True.
    pub applied: i64,
    /// Works there will be once the rollout is over.
    pub desired_total: i64,
    /// Works that carry the current template.
    pub updated: i64,
}

/// Counts of the works of one placement.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PlacementSummary {
    /// Name of the placement.
    pub name: String,

    /// Progress by decision group, for people.
    pub available_decision_groups: String,

    /// The counts.
    pub summary: ManifestWorkReplicaSetSummary,
}

/// Feedback values of one object of the template, over all clusters.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceFeedback {
    /// API group; empty for the core group.
    #[serde(default)]
    pub group: String,

    /// API version, where all clusters report the same.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,

    /// Resource name in plural.
    pub resource: String,

    /// Name of the object.
    pub name: String,

    /// Namespace of the object; empty for objects without one.
    #[serde(default)]
    pub namespace: String,

    /// The values, by name.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub values: Vec<AggregatedValue>,
}

/// A feedback value over all clusters that report it.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AggregatedValue {
    /// Name from the feedback rule.
    pub name: String,

    /// Number of clusters that report the value.
    #[serde(default)]
    pub clusters: i64,

    /// Sum, for integers. Stays at the bounds of a 64-bit integer instead of overflowing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sum: Option<i64>,

    /// Smallest value, for integers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<i64>,

    /// Largest value, for integers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<i64>,

    /// Number of clusters by value, for strings and booleans, most frequent first.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub counts: Vec<ValueCount>,

    /// Number of clusters whose value does not fit into `counts`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others: Option<i64>,
}

impl AggregatedValue {
    /// Most entries that [`AggregatedValue::counts`] may have. Sixteen lines are what a person
    /// reads, and they bound the status whatever the clusters report.
    pub const MAX_COUNTS: usize = 16;
}

/// How many clusters report a value.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ValueCount {
    /// The value as text.
    pub value: String,

    /// Number of clusters.
    pub count: i64,
}
