//! `cluster.open-cluster-management.io/v1beta1`: Placement and PlacementDecision.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    Condition, LabelSelector, LabelSelectorRequirement, Time,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cluster::TaintEffect;
use crate::{null_as_default, schema};

/// Which clusters are wanted.
#[derive(CustomResource, JsonSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "cluster.open-cluster-management.io",
    version = "v1beta1",
    kind = "Placement",
    plural = "placements",
    doc = "Selects managed clusters by their labels, claims, taints and scores. The clusters selected are listed in PlacementDecision objects that carry the placement's name as a label.",
    namespaced,
    status = "PlacementStatus",
    derive = "PartialEq",
    derive = "Default",
    printcolumn = r#"{"name":"Succeeded","type":"string","description":"Status of the PlacementSatisfied condition","jsonPath":".status.conditions[?(@.type==\"PlacementSatisfied\")].status"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","description":"Reason of the PlacementSatisfied condition","jsonPath":".status.conditions[?(@.type==\"PlacementSatisfied\")].reason"}"#,
    printcolumn = r#"{"name":"SelectedClusters","type":"integer","description":"Number of clusters selected","jsonPath":".status.numberOfSelectedClusters"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct PlacementSpec {
    /// Cluster sets to choose from. Empty means all sets bound to the namespace.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub cluster_sets: Vec<String>,

    /// How many clusters to select. Absent selects every cluster that qualifies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number_of_clusters: Option<i32>,

    /// Requirements; a cluster qualifies if it meets at least one of them. Empty lets every cluster
    /// qualify.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub predicates: Vec<ClusterPredicate>,

    /// How qualifying clusters are ranked when fewer are wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prioritizer_policy: Option<PrioritizerPolicy>,

    /// How the selected clusters spread over topologies such as regions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread_policy: Option<SpreadPolicy>,

    /// Taints of clusters that do not stand in the way.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub tolerations: Vec<Toleration>,

    /// How the selected clusters are divided into decision groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision_strategy: Option<DecisionStrategy>,

    /// Order of the decisions within their group.
    #[serde(default)]
    #[schemars(extend("x-default" = "ClusterName"))]
    pub sort_by: PlacementSortByType,

    /// Least time between two updates caused by changed scores, as a number with `h`, `m` or `s`.
    #[serde(default = "default_score_rate_limit")]
    #[schemars(regex(pattern = r"^[0-9]+[hms]$"), extend("x-default" = "1m"))]
    pub score_rate_limit: String,
}

fn default_score_rate_limit() -> String {
    "1m".to_owned()
}

string_enum! {
    /// Orders of decisions.
    pub enum PlacementSortByType {
        /// By name.
        ClusterName = "ClusterName",
        /// By score, highest first.
        Score = "Score",
    }
    default ClusterName
}

/// A requirement on clusters.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterPredicate {
    /// What a cluster has to match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required_cluster_selector: Option<ClusterSelector>,
}

/// Selects clusters; all selectors given have to match.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSelector {
    /// By label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub label_selector: Option<LabelSelector>,

    /// By cluster claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_selector: Option<ClusterClaimSelector>,

    /// By CEL expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cel_selector: Option<ClusterCelSelector>,
}

/// Selects clusters by claim.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterClaimSelector {
    /// Requirements on claims; all of them have to hold.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(schema_with = "schema::selector_requirements")]
    pub match_expressions: Vec<LabelSelectorRequirement>,
}

/// Selects clusters by CEL expression.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterCelSelector {
    /// Expressions over `managedCluster`; all of them have to be true.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub cel_expressions: Vec<String>,
}

/// How qualifying clusters are ranked.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PrioritizerPolicy {
    /// Additive adds to the built-in prioritizers, Exact uses those configured and no others.
    #[serde(default)]
    #[schemars(with = "String", extend("x-default" = "Additive"))]
    pub mode: PrioritizerPolicyModeType,

    /// The prioritizers and their weights.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub configurations: Vec<PrioritizerConfig>,
}

string_enum! {
    /// Whether the built-in prioritizers count.
    pub enum PrioritizerPolicyModeType {
        /// Beside the configured ones.
        Additive = "Additive",
        /// Only where configured.
        Exact = "Exact",
    }
    default Additive
}

/// A prioritizer and its weight.
#[derive(JsonSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["scoreCoordinate"]))]
pub struct PrioritizerConfig {
    /// Where the score comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score_coordinate: Option<ScoreCoordinate>,

    /// Factor from -10 to 10 by which the score counts. 0 switches the prioritizer off.
    #[serde(default = "default_weight")]
    #[schemars(range(min = -10, max = 10), extend("x-default" = 1))]
    pub weight: i32,
}

fn default_weight() -> i32 {
    1
}

impl Default for PrioritizerConfig {
    fn default() -> Self {
        Self {
            score_coordinate: None,
            weight: default_weight(),
        }
    }
}

/// Where a score comes from.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["type"]))]
pub struct ScoreCoordinate {
    /// A built-in prioritizer or the score of an add-on.
    #[serde(rename = "type", default)]
    #[schemars(extend("x-default" = "BuiltIn"))]
    pub type_: ScoreCoordinateType,

    /// Name of the built-in prioritizer: Balance, Steady, ResourceAllocatableCPU,
    /// ResourceAllocatableMemory or Spread.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub built_in: String,

    /// Score of an add-on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub add_on: Option<AddOnScore>,
}

string_enum! {
    /// Sources of scores.
    pub enum ScoreCoordinateType {
        /// A prioritizer of the scheduler.
        BuiltIn = "BuiltIn",
        /// An AddOnPlacementScore object.
        AddOn = "AddOn",
    }
    default BuiltIn
}

/// Names a score in an AddOnPlacementScore.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AddOnScore {
    /// Name of the AddOnPlacementScore object.
    pub resource_name: String,

    /// Name of the score in it.
    pub score_name: String,
}

/// How selected clusters spread over topologies.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SpreadPolicy {
    /// The constraints, most important first.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(length(max = 8))]
    pub spread_constraints: Vec<SpreadConstraintsTerm>,
}

/// A constraint on the spread over one topology.
#[derive(JsonSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SpreadConstraintsTerm {
    /// Label key or claim name whose values are the topology.
    #[schemars(
        length(max = 316),
        regex(
            pattern = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$"
        )
    )]
    pub topology_key: String,

    /// Whether the key is a label or a claim.
    pub topology_key_type: TopologyKeyType,

    /// Largest difference in the number of clusters selected between any two values.
    #[serde(default = "default_max_skew")]
    #[schemars(range(min = 1), extend("x-default" = 1))]
    pub max_skew: i32,

    /// What happens when the constraint cannot be met.
    #[serde(default)]
    #[schemars(extend("x-default" = "ScheduleAnyway"))]
    pub when_unsatisfiable: UnsatisfiableMaxSkewAction,
}

fn default_max_skew() -> i32 {
    1
}

string_enum! {
    /// What a topology key names.
    pub enum TopologyKeyType {
        /// A label of the cluster.
        Label = "Label",
        /// A claim of the cluster.
        Claim = "Claim",
    }
}

string_enum! {
    /// What happens when a spread constraint cannot be met.
    pub enum UnsatisfiableMaxSkewAction {
        /// Select as evenly as possible.
        ScheduleAnyway = "ScheduleAnyway",
        /// Select no further clusters.
        DoNotSchedule = "DoNotSchedule",
    }
    default ScheduleAnyway
}

/// Lets clusters with a matching taint be selected.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Toleration {
    /// Key of the taint. Empty, with Exists, matches every taint.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(schema_with = "schema::taint_key")]
    pub key: String,

    /// Equal compares the value, Exists matches any value.
    #[serde(default)]
    #[schemars(with = "String", extend("x-default" = "Equal"))]
    pub operator: TolerationOperator,

    /// Value of the taint; empty with Exists.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub value: String,

    /// Effect of the taint. Absent matches every effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<TaintEffect>,

    /// Seconds after the taint was added for which it is tolerated. Absent tolerates it for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}

string_enum! {
    /// How a toleration matches the value of a taint.
    pub enum TolerationOperator {
        /// The values are equal.
        Equal = "Equal",
        /// Any value.
        Exists = "Exists",
    }
    default Equal
}

/// How selected clusters are divided into decision groups.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DecisionStrategy {
    /// The groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_strategy: Option<GroupStrategy>,
}

/// Groups of decisions.
#[derive(JsonSchema, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupStrategy {
    /// Named groups. Clusters that match none of them form further groups.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub decision_groups: Vec<DecisionGroup>,

    /// Most clusters that a group may have, as a number or a percentage of those selected. A group
    /// with more is divided.
    #[serde(default = "default_clusters_per_decision_group")]
    #[schemars(schema_with = "schema::group_size", extend("x-default" = "100%"))]
    pub clusters_per_decision_group: IntOrString,
}

fn default_clusters_per_decision_group() -> IntOrString {
    IntOrString::String("100%".to_owned())
}

impl Default for GroupStrategy {
    fn default() -> Self {
        Self {
            decision_groups: Vec::new(),
            clusters_per_decision_group: default_clusters_per_decision_group(),
        }
    }
}

/// A named group of decisions.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["groupName", "groupClusterSelector"]))]
pub struct DecisionGroup {
    /// Name of the group, put on its decisions as a label.
    #[serde(default)]
    #[schemars(regex(pattern = r"^[a-zA-Z0-9][-A-Za-z0-9_.]{0,61}[a-zA-Z0-9]$"))]
    pub group_name: String,

    /// The clusters of the group.
    #[serde(default)]
    pub group_cluster_selector: GroupClusterSelector,
}

/// Selects the clusters of a group.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupClusterSelector {
    /// By label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub label_selector: Option<LabelSelector>,

    /// By cluster claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_selector: Option<ClusterClaimSelector>,
}

/// What a placement has selected.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlacementStatus {
    /// Number of clusters selected.
    #[serde(default)]
    pub number_of_selected_clusters: i32,

    /// The decision groups, by index.
    #[serde(default, deserialize_with = "null_as_default")]
    pub decision_groups: Vec<DecisionGroupStatus>,

    /// Conditions: PlacementSatisfied and PlacementMisconfigured.
    #[serde(default, deserialize_with = "null_as_default")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,

    /// When scores last changed the selection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::date_time")]
    pub last_score_update_time: Option<Time>,
}

/// A decision group as it came out.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DecisionGroupStatus {
    /// Index of the group.
    #[serde(default)]
    pub decision_group_index: i32,

    /// Name of the group; empty for groups formed from what no named group matched.
    #[serde(default)]
    pub decision_group_name: String,

    /// Names of the PlacementDecisions that hold the group.
    #[serde(default, deserialize_with = "null_as_default")]
    pub decisions: Vec<String>,

    /// Number of clusters in the group.
    #[serde(default, rename = "clusterCount")]
    #[schemars(extend("x-default" = 0))]
    pub clusters_count: i32,
}

/// Stands in for the spec that a PlacementDecision does not have.
#[derive(
    CustomResource, JsonSchema, Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize,
)]
#[kube(
    group = "cluster.open-cluster-management.io",
    version = "v1beta1",
    kind = "PlacementDecision",
    plural = "placementdecisions",
    doc = "Lists clusters that a placement has selected. Labels name the placement and the decision group.",
    namespaced,
    no_spec,
    status = "PlacementDecisionStatus",
    derive = "PartialEq",
    derive = "Default",
    attr = "cfg_attr(all(), serde(default))",
    printcolumn = r#"{"name":"Placement","type":"string","description":"Placement the decisions belong to","jsonPath":".metadata.labels.cluster\\.open-cluster-management\\.io/placement"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
pub struct PlacementDecisionSpec {}

/// The clusters selected.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["decisions"]))]
pub struct PlacementDecisionStatus {
    /// The clusters, at most [`PlacementDecisionStatus::MAX_DECISIONS`] of them.
    #[serde(default, deserialize_with = "null_as_default")]
    #[schemars(
        description = "The clusters selected, at most 100; further ones are in further objects."
    )]
    pub decisions: Vec<ClusterDecision>,
}

impl PlacementDecisionStatus {
    /// Most decisions that one object holds. A convention among its writers, which the CRD does not
    /// enforce.
    pub const MAX_DECISIONS: usize = 100;
}

/// A cluster that was selected.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["clusterName", "reason"]))]
pub struct ClusterDecision {
    /// Name of the cluster.
    pub cluster_name: String,

    /// Why it was selected.
    #[serde(default)]
    pub reason: String,

    /// Its score under the placement's prioritizers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<i64>,
}
