//! Removes the fields that a schema does not know.

use serde_json::Value;

use super::{Additional, MAX_UNKNOWN, Path, Schema};

/// Fields that every object has, at the root and in embedded resources.
const OBJECT_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Removes unknown fields and names the first of them. `root` is true for whole objects.
pub(crate) fn prune(schema: &Schema, value: &mut Value, root: bool) -> Vec<String> {
    let mut unknown = Vec::new();
    walk(schema, value, Path::ROOT, root, &mut unknown);
    unknown
}

/// Removes empty lists and maps that Go's `omitempty` never writes.
pub(crate) fn drop_empty(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(fields) => fields.retain(|name, value| {
            let child = match (schema.property(name), &schema.additional) {
                (Some(property), _) => property,
                (None, Additional::Schema(child)) => child,
                _ => return true,
            };
            drop_empty(child, value);
            // The keys of a free map stay, and so does what is written even when it is empty.
            let optional = schema.property(name).is_some()
                && !schema.zeros.iter().any(|(zero, _)| zero == name);
            let empty = match value {
                Value::Array(items) => items.is_empty(),
                Value::Object(fields) => {
                    fields.is_empty() && matches!(child.additional, Additional::Schema(_))
                }
                _ => false,
            };
            !(optional && empty)
        }),
        Value::Array(items) => {
            if let Some(schema) = &schema.items {
                for item in items {
                    drop_empty(schema, item);
                }
            }
        }
        _ => {}
    }
}

/// Adds the fields that Go writes as `null` while they are unset: the times of conditions.
pub(crate) fn add_nulls(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, zero) in &schema.zeros {
                if zero.is_null() && !fields.contains_key(name) {
                    fields.insert(name.clone(), Value::Null);
                }
            }
            for (name, value) in fields {
                if let Some(property) = schema.property(name) {
                    add_nulls(property, value);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = &schema.items {
                for item in items {
                    add_nulls(schema, item);
                }
            }
        }
        _ => {}
    }
}

fn walk(
    schema: &Schema,
    value: &mut Value,
    path: Path<'_>,
    object: bool,
    unknown: &mut Vec<String>,
) {
    match value {
        Value::Object(fields) => {
            let is_object = object || schema.embedded;
            fields.retain(|name, value| {
                if is_object && OBJECT_FIELDS.contains(&name.as_str()) {
                    return true;
                }
                let path = path.field(name);
                if let Some(property) = schema.property(name) {
                    walk(property, value, path, false, unknown);
                    return true;
                }
                match &schema.additional {
                    Additional::Schema(schema) => {
                        walk(schema, value, path, false, unknown);
                        true
                    }
                    Additional::Anything => true,
                    Additional::Nothing if schema.preserve_unknown => true,
                    Additional::Nothing => {
                        if unknown.len() < MAX_UNKNOWN {
                            unknown.push(path.to_string());
                        }
                        false
                    }
                }
            });
        }
        Value::Array(items) => {
            if let Some(schema) = &schema.items {
                for (at, item) in items.iter_mut().enumerate() {
                    walk(schema, item, path.item(at), false, unknown);
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::compile;
    use super::*;
    use serde_json::json;

    #[test]
    fn empty_lists_and_free_maps_go_unless_they_are_always_written() {
        let schema = compile(
            &json!({"type": "object", "x-go-zeros": {"rules": null}, "properties": {
                "rules": {"type": "array", "items": {"type": "string"}},
                "args": {"type": "array", "items": {"type": "string"}},
                "data": {"type": "object", "additionalProperties": {"type": "string"}},
                "emptyDir": {"type": "object", "properties": {"medium": {"type": "string"}}},
                "extra": {"type": "object", "additionalProperties": {
                    "type": "array", "items": {"type": "string"}}},
            }}),
        )
        .unwrap();
        let mut value = json!({
            "rules": [], "args": [], "data": {}, "emptyDir": {}, "extra": {"scopes": []},
        });
        drop_empty(&schema, &mut value);
        assert_eq!(
            value,
            json!({"rules": [], "emptyDir": {}, "extra": {"scopes": []}})
        );
    }

    #[test]
    fn unknown_fields_go_and_are_named() {
        let schema = compile(&json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {
                "a": {"type": "string"},
                "list": {"type": "array", "items": {"type": "object", "properties": {"b": {"type": "integer"}}}},
                "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"c": {}}}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                    "properties": {"strict": {"type": "object"}}},
                "manifest": {"type": "object", "x-kubernetes-embedded-resource": true},
            }},
        }}))
        .unwrap();
        let mut value = json!({
            "apiVersion": "a", "kind": "b", "metadata": {"name": "c"}, "extra": 1,
            "spec": {
                "a": "x", "z": 1,
                "list": [{"b": 1}, {"b": 2, "y": 3}],
                "map": {"k": {"c": 1, "d": 2}},
                "free": {"anything": {"goes": 1}, "strict": {"not": 1}},
                "manifest": {"apiVersion": "v1", "kind": "K", "metadata": {"name": "m"}, "data": 1},
            },
        });
        let unknown = prune(&schema, &mut value, true);
        assert_eq!(
            unknown,
            [
                "extra",
                "spec.free.strict.not",
                "spec.list[1].y",
                "spec.manifest.data",
                "spec.map.k.d",
                "spec.z"
            ]
        );
        assert_eq!(
            value,
            json!({
                "apiVersion": "a", "kind": "b", "metadata": {"name": "c"},
                "spec": {
                    "a": "x", "list": [{"b": 1}, {"b": 2}], "map": {"k": {"c": 1}},
                    "free": {"anything": {"goes": 1}, "strict": {}},
                    "manifest": {"apiVersion": "v1", "kind": "K", "metadata": {"name": "m"}},
                },
            })
        );
    }

    #[test]
    fn the_first_unknown_fields_are_named() {
        let schema = compile(&json!({"type": "object", "properties": {"a": {"type": "object"}}}));
        let fields: serde_json::Map<String, Value> =
            (0..10_000).map(|at| (format!("f{at}"), json!(1))).collect();
        let mut value = json!({"a": fields});
        let unknown = prune(&schema.unwrap(), &mut value, true);
        assert_eq!(unknown.len(), MAX_UNKNOWN);
        assert_eq!(value, json!({"a": {}}));
    }
}
