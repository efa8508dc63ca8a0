//! What the agent reports about a ManifestWork.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{null_as_default, schema};

/// What the agent of the managed cluster reports about a work.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ManifestWorkStatus {
    /// Conditions of the work as a whole: Applied, Available, and those that condition rules add.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,

    /// State of each manifest.
    #[serde(default)]
    pub resource_status: ManifestResourceStatus,
}

/// State of the manifests of a work.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ManifestResourceStatus {
    /// One entry a manifest, in the order of the spec.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub manifests: Vec<ManifestCondition>,
}

/// State of one manifest.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["resourceMeta", "conditions"]))]
pub struct ManifestCondition {
    /// Which object this is.
    pub resource_meta: ManifestResourceMeta,

    /// Values read from the live object by the feedback rules.
    #[serde(default)]
    pub status_feedback: StatusFeedbackResult,

    /// Conditions of this object: Applied, Available, StatusFeedbackSynced, and those that
    /// condition rules add.
    #[serde(default, deserialize_with = "null_as_default")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// Identity of the object behind a manifest.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ManifestResourceMeta {
    /// Index of the manifest in the spec.
    pub ordinal: i32,

    /// API group; empty for the core group.
    #[serde(default)]
    pub group: String,

    /// API version.
    #[serde(default)]
    pub version: String,

    /// Kind.
    #[serde(default)]
    pub kind: String,

    /// Resource name in plural; empty while the type is unknown on the managed cluster.
    #[serde(default)]
    pub resource: String,

    /// Name of the object.
    #[serde(default)]
    pub name: String,

    /// Namespace of the object; empty for objects without one.
    #[serde(default)]
    pub namespace: String,
}

/// Values read from one live object.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusFeedbackResult {
    /// The values, each under the name that its rule gives.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub values: Vec<FeedbackValue>,
}

/// A value with its name.
#[derive(JsonSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FeedbackValue {
    /// Name from the feedback rule.
    pub name: String,

    /// The value.
    #[serde(rename = "fieldValue")]
    pub value: FieldValue,
}

/// A typed value. Exactly the field that `type` names is set.
#[derive(JsonSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FieldValue {
    /// Type of the value.
    #[serde(rename = "type")]
    pub type_: ValueType,

    /// The value, when `type` is Integer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub integer: Option<i64>,

    /// The value, when `type` is String.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub string: Option<String>,

    /// The value, when `type` is Boolean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boolean: Option<bool>,

    /// The value as JSON text, when `type` is JsonRaw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub json_raw: Option<String>,
}

impl FieldValue {
    /// An integer value.
    pub fn integer(value: i64) -> Self {
        Self {
            integer: Some(value),
            ..Self::empty(ValueType::Integer)
        }
    }

    /// A string value.
    pub fn string(value: impl Into<String>) -> Self {
        Self {
            string: Some(value.into()),
            ..Self::empty(ValueType::String)
        }
    }

    /// A boolean value.
    pub fn boolean(value: bool) -> Self {
        Self {
            boolean: Some(value),
            ..Self::empty(ValueType::Boolean)
        }
    }

    /// A list or object as JSON text. The CRD allows 1024 characters.
    pub fn json_raw(json: impl Into<String>) -> Self {
        Self {
            json_raw: Some(json.into()),
            ..Self::empty(ValueType::JsonRaw)
        }
    }

    fn empty(type_: ValueType) -> Self {
        Self {
            type_,
            integer: None,
            string: None,
            boolean: None,
            json_raw: None,
        }
    }
}

string_enum! {
    /// Types of feedback values.
    pub enum ValueType {
        /// A 64-bit signed integer.
        Integer = "Integer",
        /// Text.
        String = "String",
        /// True or false.
        Boolean = "Boolean",
        /// A list or object, as JSON text.
        JsonRaw = "JsonRaw",
    }
}
