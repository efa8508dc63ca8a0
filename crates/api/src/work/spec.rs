//! ManifestWork: what a managed cluster is to run.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Manifest, ManifestWorkStatus};
use crate::constants::DEFAULT_FIELD_MANAGER;
use crate::null_as_default;

/// The objects to put on a managed cluster, and how to treat each of them.
#[derive(CustomResource, JsonSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "work.open-cluster-management.io",
    version = "v1",
    kind = "ManifestWork",
    plural = "manifestworks",
    doc = "A set of Kubernetes objects that one managed cluster is to run. It lives on the hub, in the namespace named after that cluster, where the agent of the cluster finds it.",
    namespaced,
    status = "ManifestWorkStatus",
    derive = "PartialEq",
    derive = "Default",
    attr = "cfg_attr(all(), serde(default))",
    printcolumn = r#"{"name":"Applied","type":"string","description":"Whether every manifest was applied","jsonPath":".status.conditions[?(@.type==\"Applied\")].status"}"#,
    printcolumn = r#"{"name":"Available","type":"string","description":"Whether every applied object exists","jsonPath":".status.conditions[?(@.type==\"Available\")].status"}"#,
    printcolumn = r#"{"name":"Message","type":"string","description":"What the agent says of applying it","jsonPath":".status.conditions[?(@.type==\"Applied\")].message","priority":1}"#,
    printcolumn = r#"{"name":"Deleting","type":"string","description":"What its deletion waits for","jsonPath":".status.conditions[?(@.type==\"Deleting\")].message","priority":1}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ManifestWorkSpec {
    /// The objects to put on the managed cluster.
    #[serde(default)]
    pub workload: ManifestsTemplate,

    /// What happens to the objects when the work, or a manifest in it, goes away. Absent means
    /// Foreground deletion of all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delete_option: Option<DeleteOption>,

    /// Options for single objects of the workload.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub manifest_configs: Vec<ManifestConfigOption>,

    /// Who the agent acts as on the managed cluster. Absent means the agent itself, with no
    /// permission check before it applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executor: Option<ManifestWorkExecutor>,
}

/// The objects of a work.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ManifestsTemplate {
    /// The objects, in the order in which they are applied. Status refers to them by index.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub manifests: Vec<Manifest>,
}

/// What happens to applied objects when they are no longer wanted.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeleteOption {
    /// Foreground deletes all objects, Orphan leaves all of them, SelectivelyOrphan leaves those
    /// that the rules name, for example to hand them over to another work.
    #[serde(default)]
    #[schemars(extend("x-default" = "Foreground"))]
    pub propagation_policy: DeletePropagationPolicyType,

    /// The objects to leave in place under SelectivelyOrphan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selectively_orphans: Option<SelectivelyOrphan>,

    /// Seconds for which the work is kept after its Complete condition became True; 0 deletes it
    /// at once. Absent keeps it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds_after_finished: Option<i64>,
}

string_enum! {
    /// How deletion of a work reaches its objects.
    pub enum DeletePropagationPolicyType {
        /// Objects are deleted before the work is gone.
        Foreground = "Foreground",
        /// Objects stay.
        Orphan = "Orphan",
        /// Objects named by the orphaning rules stay, others are deleted.
        SelectivelyOrphan = "SelectivelyOrphan",
    }
    default Foreground
}

/// The objects that survive a SelectivelyOrphan deletion.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SelectivelyOrphan {
    /// One rule an object. Matches are exact, without wildcards.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub orphaning_rules: Vec<OrphaningRule>,
}

/// Names one object to leave in place. OCM gives it the fields of a resource identifier.
pub type OrphaningRule = ResourceIdentifier;

/// Names an object of the workload by resource type and name.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceIdentifier {
    /// API group; empty for the core group.
    #[serde(default)]
    pub group: String,

    /// Resource name in plural, for example `deployments`.
    pub resource: String,

    /// Name of the object.
    pub name: String,

    /// Namespace of the object; empty for objects without one.
    #[serde(default)]
    pub namespace: String,
}

/// Options for the objects that one identifier matches.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ManifestConfigOption {
    /// The objects meant. Name and namespace may hold `*` as a wildcard; an identifier that matches
    /// no object of the workload has no effect.
    pub resource_identifier: ResourceIdentifier,

    /// Which values of the live object are reported back. Empty reports none.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub feedback_rules: Vec<FeedbackRule>,

    /// How the live object is brought to the wanted state. Absent means Update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_strategy: Option<UpdateStrategy>,

    /// Conditions to derive from the live object.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["condition"]))]
    pub condition_rules: Vec<ConditionRule>,

    /// How changes of the live object are noticed: Watch reports them as they happen, Poll at the
    /// agent's interval.
    #[serde(default)]
    #[schemars(extend("x-default" = "Poll"))]
    pub feedback_scrape_type: FeedbackScrapeType,
}

string_enum! {
    /// How changes of a live object are noticed.
    ///
    /// The design text of the feature spelled the values in capitals; both spellings are read, the
    /// one of the shipped CRD is written.
    pub enum FeedbackScrapeType {
        /// Read at the agent's interval.
        Poll = "Poll" | "POLL",
        /// Told by a watch, within the agent's cap on watches.
        Watch = "Watch" | "WATCH",
    }
    default Poll
}

/// One rule on which values to report.
#[derive(JsonSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FeedbackRule {
    /// WellKnownStatus reports a fixed set of values for types that the agent knows, JSONPaths the
    /// values that `jsonPaths` select.
    #[serde(rename = "type")]
    pub type_: FeedBackType,

    /// The values to report under JSONPaths.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub json_paths: Vec<JsonPath>,
}

string_enum! {
    /// Where feedback values come from.
    pub enum FeedBackType {
        /// A fixed set of values by resource type.
        WellKnownStatus = "WellKnownStatus",
        /// Paths given in the rule.
        JsonPaths = "JSONPaths",
    }
}

/// A value to report, with the name it is reported under.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JsonPath {
    /// Name under which the value is reported.
    pub name: String,

    /// API version of the object that the path is meant for. Empty means any.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,

    /// Kubernetes JSONPath from the root of the object, for example `.status.replicas`. It has to
    /// lead to a single integer, string or boolean.
    pub path: String,
}

/// How the live object is brought to the wanted state.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["type"]))]
pub struct UpdateStrategy {
    /// Update writes the wanted state, CreateOnly leaves an existing object alone, ServerSideApply
    /// owns the fields of the manifest and no others, ReadOnly never writes and only reports.
    #[serde(rename = "type", default)]
    #[schemars(extend("x-default" = "Update"))]
    pub type_: UpdateStrategyType,

    /// Settings for ServerSideApply; without effect under other types.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_side_apply: Option<ServerSideApplyConfig>,
}

string_enum! {
    /// Ways to bring a live object to the wanted state.
    pub enum UpdateStrategyType {
        /// Write the wanted state over the live one.
        Update = "Update",
        /// Create if missing, never change.
        CreateOnly = "CreateOnly",
        /// Server-side apply with a field manager.
        ServerSideApply = "ServerSideApply",
        /// Never write; read for feedback and conditions.
        ReadOnly = "ReadOnly",
    }
    default Update
}

/// Settings for server-side apply.
#[derive(JsonSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerSideApplyConfig {
    /// Whether fields that another manager owns are taken over.
    #[serde(default)]
    pub force: bool,

    /// Field manager to apply as. It has to start with `work-agent`.
    #[serde(default = "default_field_manager")]
    #[schemars(regex(pattern = r"^work-agent"), extend("x-default" = "work-agent"))]
    pub field_manager: String,

    /// Fields that are left out of the apply.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["condition"]))]
    pub ignore_fields: Vec<IgnoreField>,
}

fn default_field_manager() -> String {
    DEFAULT_FIELD_MANAGER.to_owned()
}

impl Default for ServerSideApplyConfig {
    fn default() -> Self {
        Self {
            force: false,
            field_manager: default_field_manager(),
            ignore_fields: Vec::new(),
        }
    }
}

/// Fields that server-side apply leaves alone while a condition holds.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["condition"]))]
pub struct IgnoreField {
    /// When the fields are left alone: OnSpokePresent once the object exists, OnSpokeChange while
    /// the managed cluster has changed them.
    #[serde(default)]
    #[schemars(extend("x-default" = "OnSpokePresent"))]
    pub condition: IgnoreFieldsCondition,

    /// The fields as Kubernetes JSONPaths.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub json_paths: Vec<String>,

    /// The fields as JSON pointers (RFC 6901), for example `/spec/replicas`.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub json_pointers: Vec<String>,

    /// The fields as jq path expressions.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub jq_path_expressions: Vec<String>,
}

string_enum! {
    /// When ignored fields are left alone.
    pub enum IgnoreFieldsCondition {
        /// Once the object exists on the managed cluster.
        OnSpokePresent = "OnSpokePresent",
        /// While the managed cluster has changed the fields.
        OnSpokeChange = "OnSpokeChange",
    }
    default OnSpokePresent
}

/// Derives a condition from the live object.
#[derive(JsonSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self.type != 'CEL' || self.condition != \"\"",
    "message": "Condition is required for CEL rules",
}]))]
pub struct ConditionRule {
    /// Type of the condition to set. Some types have an effect: a manifest whose Complete condition
    /// is True is no longer updated.
    pub condition: String,

    /// CEL evaluates `celExpressions`, WellKnownConditions uses fixed rules for types that the
    /// agent knows.
    #[serde(rename = "type")]
    pub type_: ConditionRuleType,

    /// Expressions that all have to be true. The live object is `object`.
    #[serde(default, deserialize_with = "null_as_default")]
    pub cel_expressions: Vec<String>,

    /// Message of the condition.
    #[serde(default)]
    pub message: String,

    /// CEL expression that gives the message, from `object` and `result`; used in place of
    /// `message` unless it gives an empty string.
    #[serde(default)]
    pub message_expression: String,
}

string_enum! {
    /// How a condition rule is evaluated.
    pub enum ConditionRuleType {
        /// Fixed rules by resource type.
        WellKnownConditions = "WellKnownConditions",
        /// CEL expressions given in the rule.
        Cel = "CEL",
    }
}

/// Who the agent acts as on the managed cluster.
#[derive(JsonSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ManifestWorkExecutor {
    /// The identity.
    pub subject: ManifestWorkExecutorSubject,
}

/// An identity on the managed cluster.
#[derive(JsonSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ManifestWorkExecutorSubject {
    /// Kind of identity.
    #[serde(rename = "type")]
    pub type_: ManifestWorkExecutorSubjectType,

    /// The service account, when `type` is ServiceAccount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account: Option<ManifestWorkSubjectServiceAccount>,
}

string_enum! {
    /// Kinds of identity.
    pub enum ManifestWorkExecutorSubjectType {
        /// A service account of the managed cluster.
        ServiceAccount = "ServiceAccount",
    }
}

/// A service account of the managed cluster.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ManifestWorkSubjectServiceAccount {
    /// Namespace of the service account.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)$")
    )]
    pub namespace: String,

    /// Name of the service account.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)$")
    )]
    pub name: String,
}
