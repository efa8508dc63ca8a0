//! From schema documents to compiled schemas.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value};

use super::patterns::Patterns;
use super::rules::Rules;
use super::{
    Additional, Bounds, Child, Counts, ListType, MapType, PatchMerge, Schema, Type, child_path,
};

/// A schema that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {why}")]
pub(crate) struct CompileError {
    /// Path below the schema's root.
    pub(crate) path: String,
    pub(crate) why: String,
}

/// How an object merges, in a schema document.
pub(crate) const MAP_TYPE: &str = "x-kubernetes-map-type";

/// The empty values of fields that are always written, in a document of a built-in type.
pub(crate) const ZEROS: &str = "x-go-zeros";

/// Compiles the `openAPIV3Schema` of a CRD.
pub(crate) fn compile(document: &Value) -> Result<Schema, CompileError> {
    let mut schema = Compiler {
        definitions: None,
        named: HashMap::new(),
        patterns: Patterns::default(),
    }
    .schema(document, "")?;
    schema.rules = Rules::compile(document);
    Ok(schema)
}

/// Compiles the JSON schema of a built-in type, with its `$defs`.
pub(crate) fn compile_builtin(document: &Value) -> Result<Schema, CompileError> {
    let definitions = document.get("$defs").and_then(Value::as_object);
    Compiler {
        definitions,
        named: HashMap::new(),
        patterns: Patterns::default(),
    }
    .schema(document, "")
}

struct Compiler<'a> {
    definitions: Option<&'a Map<String, Value>>,
    named: HashMap<String, Arc<OnceLock<Schema>>>,
    patterns: Patterns,
}

impl Compiler<'_> {
    fn schema(&mut self, document: &Value, path: &str) -> Result<Schema, CompileError> {
        let error = |why: String| CompileError {
            path: path.to_owned(),
            why,
        };
        let fields = match document {
            Value::Object(fields) => fields,
            Value::Bool(true) => {
                return Ok(Schema {
                    preserve_unknown: true,
                    ..Schema::default()
                });
            }
            _ => return Err(error("a schema is an object".to_owned())),
        };
        let flag = |name: &str| {
            fields
                .get(name)
                .and_then(Value::as_bool)
                .unwrap_or_default()
        };
        let (kind, null_type) = kind(fields).map_err(&error)?;
        let pattern = match fields.get("pattern").and_then(Value::as_str) {
            Some(text) => Some(self.patterns.get(text).map_err(&error)?),
            None => None,
        };
        let texts = |name: &str| -> Vec<String> {
            let list = fields
                .get(name)
                .and_then(Value::as_array)
                .into_iter()
                .flatten();
            list.filter_map(|v| v.as_str().map(str::to_owned)).collect()
        };
        let list_type = list_type(fields, texts).map_err(&error)?;
        let properties = self.properties(fields, path)?;
        let additional = match fields.get("additionalProperties") {
            None | Some(Value::Bool(false)) => Additional::Nothing,
            Some(Value::Bool(true)) => Additional::Anything,
            Some(schema) => {
                Additional::Schema(self.child(schema, &child_path(path, "additionalProperties"))?)
            }
        };
        let items = match fields.get("items") {
            Some(items) => Some(self.child(items, &child_path(path, "items"))?),
            None => None,
        };
        let not = match fields.get("not") {
            Some(not) => Some(self.child(not, &child_path(path, "not"))?),
            None => None,
        };
        let count = |name: &str| fields.get(name).and_then(Value::as_u64);
        Ok(Schema {
            kind,
            nullable: flag("nullable") || null_type,
            preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
            embedded: flag("x-kubernetes-embedded-resource"),
            properties,
            additional,
            items,
            required: texts("required"),
            allowed: fields
                .get("enum")
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default(),
            pattern,
            format: fields
                .get("format")
                .and_then(Value::as_str)
                .map(str::to_owned),
            bounds: bounds(fields),
            length: Counts {
                min: count("minLength"),
                max: count("maxLength"),
            },
            item_count: Counts {
                min: count("minItems"),
                max: count("maxItems"),
            },
            property_count: Counts {
                min: count("minProperties"),
                max: count("maxProperties"),
            },
            default: fields.get("default").cloned(),
            list_type,
            map_type: map_type(fields.get(MAP_TYPE)),
            patch_merge: patch_merge(fields),
            zeros: zeros(fields),
            all_of: self.list(fields, "allOf", path)?,
            any_of: self.list(fields, "anyOf", path)?,
            one_of: self.list(fields, "oneOf", path)?,
            not,
            rules: None,
            name: None,
        })
    }

    fn properties(
        &mut self,
        fields: &Map<String, Value>,
        path: &str,
    ) -> Result<Vec<(String, Child)>, CompileError> {
        let mut properties = Vec::new();
        for (name, schema) in fields
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            properties.push((name.clone(), self.child(schema, &child_path(path, name))?));
        }
        properties.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(properties)
    }

    fn list(
        &mut self,
        fields: &Map<String, Value>,
        name: &str,
        path: &str,
    ) -> Result<Vec<Child>, CompileError> {
        let list = fields
            .get(name)
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        list.map(|schema| self.child(schema, &child_path(path, name)))
            .collect()
    }

    fn child(&mut self, document: &Value, path: &str) -> Result<Child, CompileError> {
        let Some(reference) = reference(document) else {
            return self.schema(document, path).map(Child::new);
        };
        let name = reference.rsplit('/').next().unwrap_or_default();
        let own_map_type = document.get(MAP_TYPE);
        if let Some(named) = self.named.get(name).filter(|_| own_map_type.is_none()) {
            return Ok(Child(named.clone()));
        }
        let definition =
            self.definitions
                .and_then(|d| d.get(name))
                .ok_or_else(|| CompileError {
                    path: path.to_owned(),
                    why: format!("reference {reference:?} leads nowhere"),
                })?;
        let cell = Arc::new(OnceLock::new());
        if own_map_type.is_none() {
            self.named.insert(name.to_owned(), cell.clone());
        }
        let mut schema = self.schema(definition, path)?;
        if let Some(map_type) = own_map_type {
            schema.map_type = self::map_type(Some(map_type));
        }
        schema.name = Some(name.rsplit('.').next().unwrap_or(name).to_owned());
        // The cell is new and only filled here.
        let _ = cell.set(schema);
        Ok(Child(cell))
    }
}

/// A `$ref`, plain or as the only member of `allOf` (where siblings carry a description).
fn reference(document: &Value) -> Option<&str> {
    if let Some(reference) = document.get("$ref") {
        return reference.as_str();
    }
    let alternatives = document.get("allOf").and_then(Value::as_array)?;
    match alternatives.as_slice() {
        [one] => one.get("$ref").and_then(Value::as_str),
        _ => None,
    }
}

/// The type, and whether null is listed beside it.
fn kind(fields: &Map<String, Value>) -> Result<(Type, bool), String> {
    if fields
        .get("x-kubernetes-int-or-string")
        .and_then(Value::as_bool)
        == Some(true)
        || fields.get("format").and_then(Value::as_str) == Some("int-or-string")
    {
        return Ok((Type::IntOrString, false));
    }
    let names: Vec<&str> = match fields.get("type") {
        None => return Ok((Type::Any, false)),
        Some(Value::String(name)) => vec![name.as_str()],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        Some(other) => return Err(format!("type {other} is no name")),
    };
    let nullable = names.contains(&"null");
    let mut others = names.into_iter().filter(|n| *n != "null");
    let kind = match (others.next(), others.next()) {
        (Some("integer"), Some("string")) | (Some("string"), Some("integer")) => Type::IntOrString,
        (None, _) | (Some(_), Some(_)) => Type::Any,
        (Some("object"), None) => Type::Object,
        (Some("array"), None) => Type::Array,
        (Some("string"), None) => Type::String,
        (Some("integer"), None) => Type::Integer,
        (Some("number"), None) => Type::Number,
        (Some("boolean"), None) => Type::Boolean,
        (Some(other), None) => return Err(format!("type {other:?} is unknown")),
    };
    Ok((kind, nullable))
}

fn list_type(
    fields: &Map<String, Value>,
    texts: impl Fn(&str) -> Vec<String>,
) -> Result<ListType, String> {
    match fields.get("x-kubernetes-list-type").and_then(Value::as_str) {
        Some("map") => Ok(ListType::Map(texts("x-kubernetes-list-map-keys"))),
        Some("set") => Ok(ListType::Set),
        None | Some("atomic") => Ok(ListType::Atomic),
        Some(other) => Err(format!("list type {other:?} is unknown")),
    }
}

fn map_type(text: Option<&Value>) -> MapType {
    match text.and_then(Value::as_str) {
        Some("atomic") => MapType::Atomic,
        _ => MapType::Granular,
    }
}

fn zeros(fields: &Map<String, Value>) -> Vec<(String, Value)> {
    let zeros = fields.get(ZEROS).and_then(Value::as_object);
    zeros
        .into_iter()
        .flatten()
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

fn patch_merge(fields: &Map<String, Value>) -> Option<PatchMerge> {
    let text = |name: &str| fields.get(name).and_then(Value::as_str);
    match (
        text("x-kubernetes-patch-merge-key"),
        text("x-kubernetes-patch-strategy"),
    ) {
        (Some(key), _) => Some(PatchMerge::Key(key.to_owned())),
        (None, Some("merge")) => Some(PatchMerge::Set),
        _ => None,
    }
}

fn bounds(fields: &Map<String, Value>) -> Bounds {
    let number = |name: &str| fields.get(name).and_then(Value::as_number).cloned();
    let flag = |name: &str| {
        fields
            .get(name)
            .and_then(Value::as_bool)
            .unwrap_or_default()
    };
    Bounds {
        minimum: number("minimum"),
        maximum: number("maximum"),
        exclusive_minimum: flag("exclusiveMinimum"),
        exclusive_maximum: flag("exclusiveMaximum"),
        multiple_of: fields.get("multipleOf").and_then(Value::as_f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn problems_are_named_with_their_path() {
        let cases = [
            (json!({"properties": {"a": {"pattern": "("}}}), "a: pattern"),
            (
                json!({"items": {"type": "thing"}}),
                "items: type \"thing\" is unknown",
            ),
            (
                json!({"properties": {"a": {"x-kubernetes-list-type": "bag"}}}),
                "a: list type",
            ),
            (
                json!({"properties": {"a": {"$ref": "#/x"}}}),
                "a: reference \"#/x\" leads nowhere",
            ),
            (json!([]), ": a schema is an object"),
        ];
        for (document, want) in cases {
            let error = compile(&document).unwrap_err().to_string();
            assert!(error.starts_with(want), "{error}");
        }
    }

    #[test]
    fn recursive_definitions_share_one_schema() {
        let document = json!({
            "$defs": {"a.b.Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/a.b.Node"}}}},
            "properties": {"root": {"$ref": "#/$defs/a.b.Node"}},
        });
        let schema = compile_builtin(&document).unwrap();
        let node = schema.property("root").unwrap();
        assert_eq!(node.name.as_deref(), Some("Node"));
        assert!(node.property("next").unwrap().property("next").is_some());
    }
}
