//! Rollout strategies: how a change spreads over the clusters of a placement.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{null_as_default, schema};

/// How a change spreads over the clusters of a placement.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutStrategy {
    /// All changes every cluster at once. Progressive goes cluster by cluster, ProgressivePerGroup
    /// by decision group; both wait for success and stop after too many failures.
    #[serde(rename = "type", default)]
    #[schemars(extend("x-default" = "All"))]
    pub type_: RolloutType,

    /// Settings for All.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all: Option<RolloutAll>,

    /// Settings for Progressive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progressive: Option<RolloutProgressive>,

    /// Settings for ProgressivePerGroup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progressive_per_group: Option<RolloutProgressivePerGroup>,
}

string_enum! {
    /// Rollout strategies.
    pub enum RolloutType {
        /// Every cluster at once.
        All = "All",
        /// Cluster by cluster.
        Progressive = "Progressive",
        /// Decision group by decision group.
        ProgressivePerGroup = "ProgressivePerGroup",
    }
    default All
}

/// Settings that the strategies share.
#[derive(JsonSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutConfig {
    /// How long a cluster has to stay successful before the rollout goes on, as a duration such as
    /// `5m`.
    #[serde(default = "default_min_success_time")]
    #[schemars(extend("x-default" = "0"))]
    pub min_success_time: String,

    /// How long a cluster may take to become successful, as a number with `h`, `m` or `s`; beyond
    /// it counts as failed. None waits for ever.
    #[serde(default = "default_progress_deadline")]
    #[schemars(regex(pattern = r"^(([0-9])+[h|m|s])|None$"), extend("x-default" = "None"))]
    pub progress_deadline: String,

    /// How many clusters may fail before the rollout stops, as a number or a percentage.
    #[serde(default = "default_max_failures")]
    #[schemars(schema_with = "schema::count_or_percent", extend("x-default" = 0))]
    pub max_failures: IntOrString,
}

fn default_min_success_time() -> String {
    "0".to_owned()
}

fn default_progress_deadline() -> String {
    "None".to_owned()
}

fn default_max_failures() -> IntOrString {
    IntOrString::Int(0)
}

impl Default for RolloutConfig {
    fn default() -> Self {
        Self {
            min_success_time: default_min_success_time(),
            progress_deadline: default_progress_deadline(),
            max_failures: default_max_failures(),
        }
    }
}

/// Settings for the All strategy.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolloutAll {
    /// Shared settings; All makes use of the deadline only.
    #[serde(flatten)]
    pub config: RolloutConfig,
}

/// Settings for the Progressive strategy.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutProgressive {
    /// Shared settings.
    #[serde(flatten)]
    pub config: RolloutConfig,

    /// Groups that have to succeed completely, in this order, before the rest.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub mandatory_decision_groups: Vec<MandatoryDecisionGroup>,

    /// How many clusters may be in progress at a time, as a number or a percentage. Absent means
    /// the placement's clusters per decision group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::count_or_percent")]
    pub max_concurrency: Option<IntOrString>,
}

/// Settings for the ProgressivePerGroup strategy.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutProgressivePerGroup {
    /// Shared settings; the failure limit counts per group.
    #[serde(flatten)]
    pub config: RolloutConfig,

    /// Groups that have to succeed completely, in this order, before the rest.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub mandatory_decision_groups: Vec<MandatoryDecisionGroup>,
}

/// Names a decision group of the placement.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MandatoryDecisionGroup {
    /// Name of the group. Wins over the index.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group_name: String,

    /// Index of the group.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub group_index: i32,
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes fields by reference"
)]
fn is_zero(value: &i32) -> bool {
    *value == 0
}
