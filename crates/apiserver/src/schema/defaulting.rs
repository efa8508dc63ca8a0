//! Fills in the defaults that a schema declares.

use serde_json::Value;

use super::{Additional, Schema};

/// What to do about nulls where null is not allowed and nothing is the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nulls {
    /// They count as absent.
    Drop,
    /// They stay, for validation to refuse. So it is with objects that are applied.
    Keep,
}

/// Sets absent fields to their defaults, at any depth, inside defaults too.
pub(crate) fn apply_defaults(schema: &Schema, value: &mut Value, nulls: Nulls) {
    match value {
        Value::Object(fields) => {
            for (name, property) in &schema.properties {
                // A null where null is not allowed counts as absent.
                let absent = fields
                    .get(name)
                    .is_none_or(|v| v.is_null() && !property.nullable);
                if absent {
                    match &property.default {
                        Some(default) => {
                            fields.insert(name.clone(), default.clone());
                        }
                        None if nulls == Nulls::Keep => {}
                        None => {
                            fields.remove(name);
                        }
                    }
                }
                if let Some(field) = fields.get_mut(name) {
                    apply_defaults(property, field, nulls);
                }
            }
            if let Additional::Schema(additional) = &schema.additional {
                fields.retain(|name, value| {
                    schema.property(name).is_some()
                        || !value.is_null()
                        || nulls == Nulls::Keep
                        || additional.nullable
                        || additional.default.is_some()
                });
                for (name, field) in fields.iter_mut() {
                    if schema.property(name).is_none() {
                        if field.is_null()
                            && !additional.nullable
                            && let Some(default) = &additional.default
                        {
                            *field = default.clone();
                        }
                        apply_defaults(additional, field, nulls);
                    }
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = &schema.items {
                for item in items {
                    apply_defaults(schema, item, nulls);
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
    fn defaults_fill_gaps_at_any_depth() {
        let schema = compile(&json!({"properties": {
            "a": {"type": "string", "default": "x"},
            "b": {"type": "object", "default": {}, "properties": {"c": {"type": "integer", "default": 3}}},
            "n": {"type": "string", "nullable": true, "default": "y"},
            "list": {"items": {"properties": {"d": {"default": true}}}},
            "map": {"additionalProperties": {"properties": {"e": {"default": 1}}}},
            "absent": {"properties": {"f": {"default": 1}}},
        }}))
        .unwrap();
        let mut value = json!({"a": null, "n": null, "list": [{}, {"d": false}], "map": {"k": {}, "gone": null}, "absent": null});
        apply_defaults(&schema, &mut value, Nulls::Drop);
        assert_eq!(
            value,
            json!({
                "a": "x", "b": {"c": 3}, "n": null, "list": [{"d": true}, {"d": false}],
                "map": {"k": {"e": 1}},
            })
        );
    }
}
