//! From Rust types to structural schemas, and schemas of types that are not ours.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value};

/// Key under which a field's schema carries the default that the CRD is to have.
///
/// schemars writes `default` for every `#[serde(default)]`. Most of these only make decoding
/// lenient; as CRD defaults they would fill objects with empty values that OCM does not have.
const CRD_DEFAULT: &str = "x-default";

/// The structural schema of `T`.
pub(crate) fn structural<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value();
    make_structural(&mut schema);
    schema
}

/// A schema value as the type that a CustomResourceDefinition holds.
pub(crate) fn typed(schema: Value) -> JSONSchemaProps {
    serde_json::from_value(schema).expect("schema keywords used here are fields of JSONSchemaProps")
}

/// Rewrites what schemars writes into what a CRD may hold, at every level.
///
/// - `Option<T>` becomes the schema of `T`: absence is allowed by not being required, and an
///   explicit null is dropped by the API server unless the field is `nullable`.
/// - Titles go, since they repeat the Rust name.
/// - Defaults are those under [`CRD_DEFAULT`] and no others.
fn make_structural(schema: &mut Value) {
    let Value::Object(keywords) = schema else {
        return;
    };
    keywords.remove("title");
    keywords.remove("default");
    if let Some(default) = keywords.remove(CRD_DEFAULT) {
        keywords.insert("default".to_owned(), default);
    }
    drop_null(keywords);
    if let Some(Value::String(description)) = keywords.get_mut("description") {
        // Line breaks of the source have no meaning.
        *description = description.split_whitespace().collect::<Vec<_>>().join(" ");
    }
    if let Some(Value::Object(properties)) = keywords.get_mut("properties") {
        properties.values_mut().for_each(make_structural);
    }
    for keyword in ["items", "additionalProperties"] {
        if let Some(inner) = keywords.get_mut(keyword) {
            make_structural(inner);
        }
    }
}

/// Takes `null` out of `type`, `enum` and `anyOf`.
fn drop_null(keywords: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = keywords.get_mut("type") {
        types.retain(|type_| type_ != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            keywords.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(values)) = keywords.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    let Some(Value::Array(choices)) = keywords.get_mut("anyOf") else {
        return;
    };
    let null = serde_json::json!({ "type": "null" });
    let before = choices.len();
    choices.retain(|choice| *choice != null);
    if choices.len() == before {
        return;
    }
    if let Some(Value::Object(inner)) = choices.pop() {
        keywords.remove("anyOf");
        for (keyword, value) in inner {
            // What is said of the field wins over what is said of its type.
            keywords.entry(keyword).or_insert(value);
        }
        make_structural_again(keywords);
    }
}

/// The merged-in schema of an optional field has not been visited yet.
fn make_structural_again(keywords: &mut Map<String, Value>) {
    let mut merged = Value::Object(std::mem::take(keywords));
    make_structural(&mut merged);
    if let Value::Object(merged) = merged {
        *keywords = merged;
    }
}

/// A list of conditions, with the limits that Kubernetes gives its Condition type.
pub(crate) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "description": "One aspect of the object's state.",
            "type": "object",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "type": {
                    "description": "The aspect.",
                    "type": "string",
                    "maxLength": 316,
                    "pattern": r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
                },
                "status": {
                    "description": "Whether it holds.",
                    "type": "string",
                    "enum": ["True", "False", "Unknown"],
                },
                "reason": {
                    "description": "Why, as a word for programs.",
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 1024,
                    "pattern": r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                },
                "message": {
                    "description": "Why, for people. May be empty.",
                    "type": "string",
                    "maxLength": 32768,
                },
                "lastTransitionTime": {
                    "description": "When the status last changed.",
                    "type": "string",
                    "format": "date-time",
                },
                "observedGeneration": {
                    "description": "Generation of the object that the condition was set for.",
                    "type": "integer",
                    "format": "int64",
                    "minimum": 0,
                },
            },
        },
    })
}

/// A point in time.
pub(crate) fn date_time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time" })
}

/// Bytes, in base64.
pub(crate) fn bytes(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "byte" })
}

/// Key of a taint.
pub(crate) fn taint_key(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 316,
        "pattern": r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
    })
}

/// A number of clusters or a percentage of them, 0 allowed.
pub(crate) fn count_or_percent(_: &mut SchemaGenerator) -> Schema {
    int_or_string(r"^((100|[0-9]{1,2})%|[0-9]+)$")
}

/// A number of clusters or a percentage of them, from 1 on.
pub(crate) fn group_size(_: &mut SchemaGenerator) -> Schema {
    int_or_string(r"^((100|[1-9][0-9]{0,1})%|[1-9][0-9]*)$")
}

/// A map from resource names to quantities.
pub(crate) fn quantities(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "additionalProperties": int_or_string(
            r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
        ),
    })
}

fn int_or_string(pattern: &str) -> Schema {
    json_schema!({
        "anyOf": [{ "type": "integer" }, { "type": "string" }],
        "pattern": pattern,
        "x-kubernetes-int-or-string": true,
    })
}

/// A Kubernetes label selector.
pub(crate) fn label_selector(generator: &mut SchemaGenerator) -> Schema {
    let mut requirements = selector_requirements(generator);
    requirements.insert("x-kubernetes-list-type".to_owned(), "atomic".into());
    requirements.insert(
        "description".to_owned(),
        "Requirements on labels; all of them have to hold.".into(),
    );
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchLabels": {
                "description": "Labels that have to be there with these values.",
                "type": "object",
                "additionalProperties": { "type": "string" },
            },
            "matchExpressions": requirements,
        },
    })
}

/// The API groups of a watch rule. The empty text is the core group.
pub(crate) fn api_groups(_: &mut SchemaGenerator) -> Schema {
    names(&json_schema!({ "type": "string", "maxLength": 253 }))
}

/// The API versions of a watch rule.
pub(crate) fn api_versions(_: &mut SchemaGenerator) -> Schema {
    names(&json_schema!({ "type": "string", "minLength": 1, "maxLength": 63 }))
}

/// The resources of a watch rule. A rule in CEL says why there is no slash, which a pattern could
/// not; API servers admit it since the lengths above it are bounded.
pub(crate) fn watched_resources(_: &mut SchemaGenerator) -> Schema {
    let name = json_schema!({
        "type": "string",
        "minLength": 1,
        "maxLength": 253,
        "x-kubernetes-validations": [{
            "rule": "!self.contains('/')",
            "message": "a watch shows no subresources; name the resource alone",
        }],
    });
    let mut list = names(&name);
    list.insert("minItems".to_owned(), 1.into());
    list
}

fn names(name: &Schema) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 100,
        "items": name,
        "x-kubernetes-list-type": "atomic",
    })
}

/// A list of requirements on labels or claims.
pub(crate) fn selector_requirements(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {
            "description": "A requirement on one key.",
            "type": "object",
            "required": ["key", "operator"],
            "properties": {
                "key": { "description": "The key.", "type": "string" },
                "operator": {
                    "description": "In, NotIn, Exists or DoesNotExist.",
                    "type": "string",
                },
                "values": {
                    "description": "Values for In and NotIn; empty for the other operators.",
                    "type": "array",
                    "items": { "type": "string" },
                    "x-kubernetes-list-type": "atomic",
                },
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};
    use serde_json::json;

    use super::*;
    use crate::replicaset::CascadeDeletionPolicy;

    /// Inner.
    #[derive(JsonSchema, Serialize, Deserialize, Default)]
    struct Inner {
        /// A number.
        #[serde(default)]
        number: Option<i32>,
    }

    /// Outer
    /// in two lines.
    #[derive(JsonSchema, Serialize, Deserialize)]
    struct Outer {
        /// May be missing.
        inner: Option<Inner>,
        #[serde(default)]
        list: Vec<Inner>,
        /// Chosen.
        choice: Option<CascadeDeletionPolicy>,
        #[serde(default)]
        #[schemars(extend("x-default" = "Background"))]
        filled: CascadeDeletionPolicy,
        name: String,
    }

    #[test]
    fn options_lose_null_and_defaults_are_only_those_marked() {
        let number = json!({"type": "integer", "format": "int32", "description": "A number."});
        let choices = ["Background", "Foreground"];
        assert_eq!(
            structural::<Outer>(),
            json!({
                "description": "Outer in two lines.",
                "type": "object",
                "required": ["name"],
                "properties": {
                    "inner": {"description": "May be missing.", "type": "object", "properties": {"number": number}},
                    "list": {"type": "array", "items": {"description": "Inner.", "type": "object", "properties": {"number": number}}},
                    "choice": {"description": "Chosen.", "type": "string", "enum": choices},
                    "filled": {"type": "string", "enum": choices, "default": "Background"},
                    "name": {"type": "string"},
                },
            })
        );
    }
}
