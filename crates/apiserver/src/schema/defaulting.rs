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

/// Most values that defaults add to one object. Each of a million empty items of a list can have a
/// default of any size.
const MAX_ADDED: usize = 1_000_000;
/// Characters of a text that count as one value.
const TEXT_UNIT: usize = 32;

/// Defaults would make an object too large.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("defaults would add more than {MAX_ADDED} values")]
pub(crate) struct TooMuch;

/// Sets absent fields to their defaults, at any depth, inside defaults too.
///
/// # Errors
///
/// Fails when defaults add too much; the object is then of no use.
pub(crate) fn apply_defaults(
    schema: &Schema,
    value: &mut Value,
    nulls: Nulls,
) -> Result<(), TooMuch> {
    fill(schema, value, nulls, &mut { MAX_ADDED })
}

/// A copy of a default, paid for.
fn added(default: &Value, left: &mut usize) -> Result<Value, TooMuch> {
    fn weight(value: &Value) -> usize {
        1 + match value {
            Value::Array(items) => items.iter().map(weight).sum(),
            Value::Object(fields) => fields.values().map(weight).sum(),
            Value::String(text) => text.len() / TEXT_UNIT,
            _ => 0,
        }
    }
    *left = left.checked_sub(weight(default)).ok_or(TooMuch)?;
    Ok(default.clone())
}

fn fill(schema: &Schema, value: &mut Value, nulls: Nulls, left: &mut usize) -> Result<(), TooMuch> {
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
                            fields.insert(name.clone(), added(default, left)?);
                        }
                        None if nulls == Nulls::Keep => {}
                        None => {
                            fields.remove(name);
                        }
                    }
                }
                if let Some(field) = fields.get_mut(name) {
                    fill(property, field, nulls, left)?;
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
                            *field = added(default, left)?;
                        }
                        fill(additional, field, nulls, left)?;
                    }
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = &schema.items {
                for item in items {
                    fill(schema, item, nulls, left)?;
                }
            }
        }
        _ => {}
    }
    Ok(())
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
        apply_defaults(&schema, &mut value, Nulls::Drop).unwrap();
        assert_eq!(
            value,
            json!({
                "a": "x", "b": {"c": 3}, "n": null, "list": [{"d": true}, {"d": false}],
                "map": {"k": {"e": 1}},
            })
        );
    }

    /// One item is a request, a million of them with a default each are not.
    #[test]
    fn what_defaults_add_is_bounded() {
        let long = "x".repeat(TEXT_UNIT * 1000);
        let schema =
            json!({"properties": {"l": {"items": {"properties": {"d": {"default": long}}}}}});
        let schema = compile(&schema).unwrap();
        let fill = |count: usize| {
            let mut value = json!({"l": vec![json!({}); count]});
            apply_defaults(&schema, &mut value, Nulls::Drop)
        };
        assert_eq!(fill(900), Ok(()));
        assert_eq!(fill(1100), Err(TooMuch));
    }
}
