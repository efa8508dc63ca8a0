//! From the JSON of an object to the values that rules see.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use muster_cel::Value;
use serde_json::Value as Json;

use crate::schema::{Additional, Schema, Type};

/// Words of CEL that cannot be the name of a field.
const RESERVED: [&str; 21] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "namespace",
    "null",
    "package",
    "return",
    "true",
    "var",
    "void",
    "while",
];

/// The name by which rules know a declared field.
pub(super) fn escape(name: &str) -> String {
    if RESERVED.contains(&name) {
        return format!("__{name}__");
    }
    if !name.contains("__") && !name.contains(['.', '-', '/']) {
        return name.to_owned();
    }
    name.replace("__", "__underscores__")
        .replace('.', "__dot__")
        .replace('-', "__dash__")
        .replace('/', "__slash__")
}

/// The value of a document of that schema; without one, as it is.
pub(super) fn value_of(schema: Option<&Schema>, json: &Json) -> Value {
    let Some(schema) = schema else {
        return muster_cel::from_json(json);
    };
    match json {
        Json::Number(number) if schema.kind == Type::Number => {
            number.as_f64().map_or(Value::Null, Value::Float)
        }
        Json::String(text) if schema.kind == Type::String => text_of(schema, text),
        Json::Array(items) => {
            let of = schema.items.as_deref();
            muster_cel::list(items.iter().map(|item| value_of(of, item)).collect())
        }
        Json::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(name, json)| field_of(schema, name, json));
            let fields = fields.map(|(name, value)| (name.into_owned(), value));
            muster_cel::object(fields)
        }
        other => muster_cel::from_json(other),
    }
}

/// A field with the name that rules know it by: keys of maps are not escaped.
fn field_of<'a>(schema: &Schema, name: &'a str, json: &Json) -> (Cow<'a, str>, Value) {
    match (schema.property(name), &schema.additional) {
        (Some(property), _) => (escape(name).into(), value_of(Some(property), json)),
        (None, Additional::Schema(values)) => (name.into(), value_of(Some(values), json)),
        (None, _) => (escape(name).into(), value_of(None, json)),
    }
}

/// A text, or what its format makes of it.
fn text_of(schema: &Schema, text: &str) -> Value {
    let converted = match schema.format.as_deref() {
        Some("date-time") => muster_cel::as_timestamp(text),
        Some("date") => muster_cel::as_timestamp(&format!("{text}T00:00:00Z")),
        Some("duration") => muster_cel::as_duration(text),
        Some("byte") => STANDARD.decode(text).ok().map(muster_cel::bytes),
        _ => None,
    };
    // One that does not fit its format is refused by the schema.
    converted.unwrap_or_else(|| muster_cel::text(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_as_rules_write_them() {
        let cases = [
            ("plain", "plain"),
            ("one_underscore", "one_underscore"),
            ("two__underscores", "two__underscores__underscores"),
            ("a-b.c/d", "a__dash__b__dot__c__slash__d"),
            ("in", "__in__"),
            ("namespace", "__namespace__"),
            ("inner", "inner"),
        ];
        for (name, expected) in cases {
            assert_eq!(escape(name), expected);
        }
    }
}
