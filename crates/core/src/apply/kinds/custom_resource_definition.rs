//! CustomResourceDefinition: the spec is the manifest's, save for the CA that the cluster injects.

use serde_json::{Value, json};

use super::defaults::{fill, object, object_at};
use super::webhooks::keep_ca;
use super::{Object, Rule};

const CONVERSION_CLIENT: [&str; 4] = ["spec", "conversion", "webhook", "clientConfig"];

/// Fields of a schema that hold any JSON, which means what it says.
const RAW: [&str; 3] = ["default", "example", "enum"];

/// Fields of a schema whose keys are names and whose values are schemas.
const NAMED_SCHEMAS: [&str; 4] = [
    "properties",
    "patternProperties",
    "definitions",
    "dependencies",
];

/// Differs from upstream: a CA that the cluster has put into the conversion webhook stays if the
/// manifest has none, as with other webhooks. Upstream removes it at each pass.
#[derive(Debug)]
pub(super) struct CustomResourceDefinition;

impl Rule for CustomResourceDefinition {
    fn keep(&self, wanted: &mut Object, live: &Object) {
        let known = CONVERSION_CLIENT
            .iter()
            .try_fold(live, |object, field| object.get(*field)?.as_object());
        if let Some(known) = known
            && let Some(config) = object_at(wanted, &CONVERSION_CLIENT)
        {
            keep_ca(config, known);
        }
    }

    fn owned(&self) -> &'static [&'static str] {
        &["spec"]
    }

    fn fill_defaults(&self, definition: &mut Object) {
        if let Some(client) = object_at(definition, &CONVERSION_CLIENT)
            && let Some(service) = object(client, "service")
        {
            fill(service, "port", 443);
        }
        let Some(spec) = object(definition, "spec") else {
            return;
        };
        fill(spec, "conversion", json!({"strategy": "None"}));
        if let Some(names) = object(spec, "names")
            && let Some(kind) = names.get("kind").and_then(Value::as_str).map(str::to_owned)
        {
            fill(names, "singular", kind.to_lowercase());
            fill(names, "listKind", format!("{kind}List"));
        }
        spec.values_mut().for_each(|value| tidy(value, false));
        spec.retain(|field, value| !is_dropped(field, value));
    }
}

/// Removes what a server does not store: fields with the zero value of their type.
fn tidy(value: &mut Value, named: bool) {
    match value {
        Value::Object(fields) => {
            if !named {
                fields.retain(|field, value| !is_dropped(field, value));
            }
            for (field, value) in fields {
                if named || !RAW.contains(&field.as_str()) {
                    tidy(value, !named && NAMED_SCHEMAS.contains(&field.as_str()));
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| tidy(item, false)),
        _ => {}
    }
}

fn is_dropped(field: &str, value: &Value) -> bool {
    match value {
        _ if RAW.contains(&field) => false,
        Value::Bool(false) => field != "additionalProperties",
        Value::String(text) => text.is_empty(),
        Value::Number(number) => field == "priority" && number.as_i64() == Some(0),
        Value::Object(entries) => NAMED_SCHEMAS.contains(&field) && entries.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(spec: Value) -> Value {
        let mut definition = Object::new();
        definition.insert("spec".into(), spec);
        CustomResourceDefinition.fill_defaults(&mut definition);
        definition.remove("spec").unwrap()
    }

    #[test]
    fn zero_values_are_dropped_where_they_are_zero_values() {
        let schema = json!({
            "nullable": false, "format": "", "minLength": 0, "items": {},
            "default": {"nullable": false, "properties": {}}, "enum": [false, ""],
            "additionalProperties": false,
            "properties": {"properties": {}, "default": {"type": "", "nullable": false}},
        });
        let tidied = filled(json!({"preserveUnknownFields": false, "versions": [{
            "name": "v1", "served": false, "schema": {"openAPIV3Schema": schema},
            "additionalPrinterColumns": [{"priority": 0, "name": "a"}, {"priority": 1, "name": "b"}],
            "subresources": {"status": {}},
        }]}));
        let schema = json!({
            "minLength": 0, "items": {},
            "default": {"nullable": false, "properties": {}}, "enum": [false, ""],
            "additionalProperties": false,
            "properties": {"properties": {}, "default": {}},
        });
        let expected = json!({"conversion": {"strategy": "None"}, "versions": [{
            "name": "v1", "schema": {"openAPIV3Schema": schema},
            "additionalPrinterColumns": [{"name": "a"}, {"priority": 1, "name": "b"}],
            "subresources": {"status": {}},
        }]});
        assert_eq!(tidied, expected);
    }
}
