//! `rules.muster.dev/v1alpha1`: WatchRule and ClusterWatchRule, kinds of muster's own.
//!
//! Users of a managed cluster write them to have changes of resources recorded by one of the sinks
//! that the agent's settings name. Both kinds share everything but their reach: a WatchRule shows
//! objects of its own namespace; each item of a ClusterWatchRule says whether it means objects
//! without a namespace or those of every namespace.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{null_as_default, schema};

/// Changes of objects in a namespace that go to a sink.
#[derive(CustomResource, JsonSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "rules.muster.dev",
    version = "v1alpha1",
    kind = "WatchRule",
    plural = "watchrules",
    shortname = "wr",
    doc = "Selects objects in its namespace whose changes the agent hands to a sink.",
    namespaced,
    status = "WatchRuleStatus",
    derive = "PartialEq",
    derive = "Default",
    printcolumn = r#"{"name":"Destination","type":"string","description":"The sink","jsonPath":".spec.destination"}"#,
    printcolumn = r#"{"name":"Ready","type":"string","description":"Whether all that the rule selects is watched","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","description":"Reason of the Ready condition","jsonPath":".status.conditions[?(@.type==\"Ready\")].reason"}"#,
    printcolumn = r#"{"name":"Types","type":"integer","description":"Types that the rule selects","jsonPath":".status.types"}"#,
    printcolumn = r#"{"name":"Events","type":"integer","description":"Events for the sink since the agent started","jsonPath":".status.events"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["destination", "rules"]))]
pub struct WatchRuleSpec {
    /// Name of the sink, from the agent's settings.
    #[serde(default)]
    #[schemars(length(min = 1, max = 253))]
    pub destination: String,

    /// What to watch; an event goes to the sink if one of them selects it.
    #[serde(default, deserialize_with = "null_as_default")]
    #[schemars(length(min = 1, max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    pub rules: Vec<WatchRuleItem>,
}

/// Selects events; all of its fields have to match.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["resources"]))]
pub struct WatchRuleItem {
    /// Kinds of change; all if it is empty.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(length(max = 4), extend("x-kubernetes-list-type" = "atomic"))]
    pub operations: Vec<WatchOperation>,

    /// API groups; "" is the core group, "*" is every group. If it is empty, each resource is taken
    /// from the one group that serves it.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(schema_with = "schema::api_groups")]
    pub api_groups: Vec<String>,

    /// API versions; "*" is every version that is served. If it is empty, the version that the API
    /// server prefers is taken.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(schema_with = "schema::api_versions")]
    pub api_versions: Vec<String>,

    /// Resource names in plural; "*" is every resource that can be watched.
    #[serde(default, deserialize_with = "null_as_default")]
    #[schemars(schema_with = "schema::watched_resources")]
    pub resources: Vec<String>,

    /// Labels that the object has to have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub label_selector: Option<LabelSelector>,
}

/// Changes of objects anywhere in the cluster that go to a sink.
#[derive(CustomResource, JsonSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "rules.muster.dev",
    version = "v1alpha1",
    kind = "ClusterWatchRule",
    plural = "clusterwatchrules",
    shortname = "cwr",
    doc = "Selects objects of the whole cluster, with or without a namespace, whose changes the agent hands to a sink.",
    status = "WatchRuleStatus",
    derive = "PartialEq",
    derive = "Default",
    printcolumn = r#"{"name":"Destination","type":"string","description":"The sink","jsonPath":".spec.destination"}"#,
    printcolumn = r#"{"name":"Ready","type":"string","description":"Whether all that the rule selects is watched","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","description":"Reason of the Ready condition","jsonPath":".status.conditions[?(@.type==\"Ready\")].reason"}"#,
    printcolumn = r#"{"name":"Types","type":"integer","description":"Types that the rule selects","jsonPath":".status.types"}"#,
    printcolumn = r#"{"name":"Events","type":"integer","description":"Events for the sink since the agent started","jsonPath":".status.events"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["destination", "rules"]))]
pub struct ClusterWatchRuleSpec {
    /// Name of the sink, from the agent's settings.
    #[serde(default)]
    #[schemars(length(min = 1, max = 253))]
    pub destination: String,

    /// What to watch; an event goes to the sink if one of them selects it.
    #[serde(default, deserialize_with = "null_as_default")]
    #[schemars(length(min = 1, max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    pub rules: Vec<ClusterWatchRuleItem>,
}

/// Selects events in the whole cluster; all of its fields have to match.
#[derive(JsonSchema, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["resources", "scope"]))]
pub struct ClusterWatchRuleItem {
    /// Cluster selects objects without a namespace, Namespaced those of every namespace.
    pub scope: WatchScope,

    /// What it selects there.
    #[serde(flatten)]
    pub item: WatchRuleItem,
}

string_enum! {
    /// A kind of change.
    pub enum WatchOperation {
        /// The object is new.
        Create = "CREATE",
        /// The object has changed.
        Update = "UPDATE",
        /// The object is gone, or on its way out.
        Delete = "DELETE",
        /// Each of them.
        All = "*",
    }
}

string_enum! {
    /// Which objects of the cluster an item selects.
    pub enum WatchScope {
        /// Those without a namespace.
        Cluster = "Cluster",
        /// Those of every namespace.
        Namespaced = "Namespaced",
    }
}

/// What the agent makes of a rule, of either kind.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WatchRuleStatus {
    /// Generation of the rule that this status is of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Conditions: Ready.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,

    /// Served types that the rule selects; a type in two versions counts twice.
    #[serde(default)]
    pub types: i64,

    /// The watches that serve the rule.
    #[serde(default)]
    pub watches: WatchCounts,

    /// What the rule names and cannot be watched, the first ten.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(length(max = 10), extend("x-kubernetes-list-type" = "atomic"))]
    pub unresolved: Vec<UnresolvedResource>,

    /// Events for the sink since the agent started.
    #[serde(default)]
    pub events: i64,

    /// When the last of them was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::date_time")]
    pub last_event_time: Option<Time>,
}

impl WatchRuleStatus {
    /// Most entries that [`WatchRuleStatus::unresolved`] may have: enough to see what is wrong, and
    /// a bound whatever a rule names.
    pub const MAX_UNRESOLVED: usize = 10;
}

/// How many watches serve a rule.
#[derive(JsonSchema, Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WatchCounts {
    /// Watches that the rule needs.
    pub total: i64,
    /// Those that have delivered their first list.
    pub synced: i64,
}

/// A resource of a rule that is not watched.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnresolvedResource {
    /// The resource as the rule names it.
    pub resource: String,
    /// Why, as a word for programs.
    pub reason: String,
    /// Why, for people, and what to do about it.
    #[serde(default)]
    pub message: String,
}
