//! Checks values against schemas, with the texts of `k8s.io/kube-openapi`.

use serde_json::{Value, json};

use super::{Additional, ListType, MAX_ERRORS, Path, Schema, Type, child_path, format};
use crate::status::FieldError;

/// Fields of an object that are checked elsewhere.
const OBJECT_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Most values and alternatives that are looked at for one object. An object and a schema that fit
/// into requests can have a million values and as many alternatives for each of them.
const MAX_STEPS: usize = 20_000_000;
/// Characters of a text that count as one step.
const STEP_BYTES: usize = 64;

/// What has been found so far, and what may still be looked at.
struct Errors {
    found: Vec<FieldError>,
    most: usize,
    steps: usize,
    /// Where the steps came to an end.
    ran_out: Option<String>,
}

impl Errors {
    fn push(&mut self, error: FieldError) {
        if self.found.len() < self.most && self.ran_out.is_none() {
            self.found.push(error);
        }
    }

    /// Counts something that takes time; false once there is no use in going on.
    fn step(&mut self, steps: usize, path: Path<'_>) -> bool {
        if self.found.len() >= self.most || self.ran_out.is_some() {
            return false;
        }
        match self.steps.checked_sub(steps) {
            Some(left) => self.steps = left,
            None => self.ran_out = Some(path.to_string()),
        }
        self.ran_out.is_none()
    }
}

/// Checks an object, up to a number of errors and of steps.
pub(crate) fn validate(schema: &Schema, object: &Value, errors: &mut Vec<FieldError>) {
    validate_within(MAX_STEPS, schema, object, errors);
}

fn validate_within(steps: usize, schema: &Schema, object: &Value, errors: &mut Vec<FieldError>) {
    let mut all = Errors {
        found: std::mem::take(errors),
        most: MAX_ERRORS,
        steps,
        ran_out: None,
    };
    check(schema, object, Path::ROOT, &mut all);
    *errors = all.found;
    if let Some(path) = all.ran_out {
        errors.push(FieldError::invalid_text(
            path,
            "\"object\"",
            "validation failed due to running out of cost budget, no further validation will be run",
        ));
    }
}

/// Checks a value and its parts, as deep as the object is.
fn check(schema: &Schema, value: &Value, path: Path<'_>, errors: &mut Errors) {
    if !errors.step(1 + schema.allowed.len(), path) {
        return;
    }
    if value.is_null() && schema.nullable {
        return;
    }
    if !type_fits(schema.kind, value) {
        errors.push(wrong_type(schema, value, path));
        return;
    }
    if !schema.allowed.is_empty() && !schema.allowed.contains(value) {
        let supported: Vec<String> = schema
            .allowed
            .iter()
            .map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned))
            .collect();
        errors.push(FieldError::not_supported(path, value, &supported));
    }
    match value {
        Value::String(text) => check_string(schema, text, path, errors),
        Value::Number(number) => check_number(schema, number, path, errors),
        Value::Array(items) => check_array(schema, items, path, errors),
        Value::Object(_) => check_object(schema, value, path, errors),
        _ => {}
    }
    check_combinations(schema, value, path, errors);
}

fn type_fits(kind: Type, value: &Value) -> bool {
    match kind {
        Type::Any => true,
        Type::Object => value.is_object(),
        Type::Array => value.is_array(),
        Type::String => value.is_string(),
        Type::Integer => is_integer(value),
        Type::Number => value.is_number(),
        Type::Boolean => value.is_boolean(),
        Type::IntOrString => value.is_string() || is_integer(value),
    }
}

fn is_integer(value: &Value) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|f| f.fract() == 0.0)
}

fn type_name(kind: Type) -> &'static str {
    match kind {
        Type::Any => "any",
        Type::Object => "object",
        Type::Array => "array",
        Type::String => "string",
        Type::Integer => "integer",
        Type::Number => "number",
        Type::Boolean => "boolean",
        Type::IntOrString => "integer,string",
    }
}

fn value_type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) if is_integer(value) => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn wrong_type(schema: &Schema, value: &Value, path: Path<'_>) -> FieldError {
    let (found, wanted) = (value_type_name(value), type_name(schema.kind));
    let name = if path.is_root() {
        String::new()
    } else {
        format!("{path} in body ")
    };
    FieldError::type_invalid(
        path,
        found,
        &format!("{name}must be of type {wanted}: {found:?}"),
    )
}

fn invalid(path: Path<'_>, value: &Value, text: &str) -> FieldError {
    FieldError::invalid(path, value, &format!("{path} in body {text}"))
}

fn check_string(schema: &Schema, text: &str, path: Path<'_>, errors: &mut Errors) {
    if !errors.step(text.len() / STEP_BYTES, path) {
        return;
    }
    let value = || Value::String(text.to_owned());
    let characters = text.chars().count() as u64;
    if let Some(max) = schema.length.max.filter(|max| characters > *max) {
        errors.push(FieldError::too_long(path, max));
    }
    if let Some(min) = schema.length.min.filter(|min| characters < *min) {
        errors.push(invalid(
            path,
            &value(),
            &format!("should be at least {min} chars long"),
        ));
    }
    if let Some(pattern) = schema.pattern.as_ref().filter(|p| !p.is_match(text)) {
        errors.push(invalid(
            path,
            &value(),
            &format!("should match '{pattern}'"),
        ));
    }
    if let Some(wanted) = schema.format.as_ref().filter(|f| !format::matches(f, text)) {
        errors.push(FieldError::type_invalid(
            path,
            text,
            &format!("{path} in body must be of type {wanted}: {text:?}"),
        ));
    }
}

fn check_number(schema: &Schema, number: &serde_json::Number, path: Path<'_>, errors: &mut Errors) {
    let bounds = &schema.bounds;
    let value = Value::Number(number.clone());
    let compare = |bound: &serde_json::Number| match (number.as_i64(), bound.as_i64()) {
        (Some(a), Some(b)) => a.cmp(&b),
        _ => number
            .as_f64()
            .unwrap_or_default()
            .total_cmp(&bound.as_f64().unwrap_or_default()),
    };
    if let Some(max) = &bounds.maximum {
        let order = compare(max);
        if order.is_gt() {
            let words = if bounds.exclusive_maximum {
                "less than"
            } else {
                "less than or equal to"
            };
            errors.push(invalid(
                path,
                &value,
                &format!("should be {words} {}", go_number(max)),
            ));
        } else if order.is_eq() && bounds.exclusive_maximum {
            errors.push(invalid(
                path,
                &value,
                &format!("should be less than {}", go_number(max)),
            ));
        }
    }
    if let Some(min) = &bounds.minimum {
        let order = compare(min);
        if order.is_lt() {
            let words = if bounds.exclusive_minimum {
                "greater than"
            } else {
                "greater than or equal to"
            };
            errors.push(invalid(
                path,
                &value,
                &format!("should be {words} {}", go_number(min)),
            ));
        } else if order.is_eq() && bounds.exclusive_minimum {
            errors.push(invalid(
                path,
                &value,
                &format!("should be greater than {}", go_number(min)),
            ));
        }
    }
    if let Some(factor) = bounds.multiple_of {
        let ratio = number.as_f64().unwrap_or_default() / factor;
        if (ratio - ratio.round()).abs() > 1e-9 {
            errors.push(invalid(
                path,
                &value,
                &format!("should be a multiple of {factor}"),
            ));
        }
    }
    let fits = match schema.format.as_deref() {
        Some("int32") => number.as_i64().is_some_and(|n| i32::try_from(n).is_ok()),
        Some("int64") => {
            number.as_i64().is_some() || number.as_f64().is_some_and(|f| f.fract() == 0.0)
        }
        _ => true,
    };
    if !fits {
        let wanted = schema.format.as_deref().unwrap_or_default();
        errors.push(invalid(
            path,
            &value,
            &format!("Checked value must be of type integer with format {wanted}"),
        ));
    }
}

/// Go prints a whole float without its fraction.
fn go_number(number: &serde_json::Number) -> String {
    let text = number.to_string();
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

fn check_array(schema: &Schema, items: &[Value], path: Path<'_>, errors: &mut Errors) {
    let count = items.len() as u64;
    if let Some(max) = schema.item_count.max.filter(|max| count > *max) {
        errors.push(FieldError::too_many(path, items.len(), max));
    }
    if let Some(min) = schema.item_count.min.filter(|min| count < *min) {
        errors.push(invalid(
            path,
            &json!(count),
            &format!("should have at least {min} items"),
        ));
    }
    if let Some(schema) = &schema.items {
        for (at, item) in items.iter().enumerate() {
            check(schema, item, path.item(at), errors);
        }
    }
    match &schema.list_type {
        ListType::Atomic => {}
        ListType::Set => check_unique(items.to_vec(), path, errors),
        ListType::Map(keys) => {
            // A key that is absent takes its default for the comparison.
            let key_of = |item: &Value| {
                let parts = keys.iter().filter_map(|key| {
                    let value = item
                        .get(key)
                        .cloned()
                        .or_else(|| schema.items.as_ref()?.property(key)?.default.clone());
                    value.map(|v| (key.clone(), v))
                });
                Value::Object(parts.collect())
            };
            check_unique(items.iter().map(key_of).collect(), path, errors);
        }
    }
}

fn check_unique(keys: Vec<Value>, path: Path<'_>, errors: &mut Errors) {
    let mut seen = std::collections::HashSet::new();
    let mut reported = std::collections::HashSet::new();
    for (at, key) in keys.into_iter().enumerate() {
        let text = key.to_string();
        if !seen.insert(text.clone()) && reported.insert(text) {
            errors.push(FieldError::duplicate(path.item(at), &key));
        }
    }
}

fn check_object(schema: &Schema, value: &Value, path: Path<'_>, errors: &mut Errors) {
    let Some(fields) = value.as_object() else {
        return;
    };
    let count = fields.len() as u64;
    if let Some(max) = schema.property_count.max.filter(|max| count > *max) {
        errors.push(FieldError::too_many(path, fields.len(), max));
    }
    if let Some(min) = schema.property_count.min.filter(|min| count < *min) {
        errors.push(invalid(
            path,
            value,
            &format!("should have at least {min} properties"),
        ));
    }
    if schema.embedded {
        for name in ["apiVersion", "kind"] {
            let child = path.field(name);
            match fields.get(name) {
                None => errors.push(FieldError::required(child, "")),
                Some(Value::String(text)) if text.is_empty() => {
                    errors.push(FieldError::invalid_text(child, "\"\"", "must not be empty"));
                }
                Some(Value::String(_)) => {}
                Some(other) => errors.push(FieldError::invalid(child, other, "must be a string")),
            }
        }
    }
    for (name, value) in fields {
        let is_object = path.is_root() || schema.embedded;
        if is_object && OBJECT_FIELDS.contains(&name.as_str()) {
            continue;
        }
        let child = path.field(name);
        match (schema.property(name), &schema.additional) {
            (Some(property), _) => check(property, value, child, errors),
            (None, Additional::Schema(additional)) => check(additional, value, child, errors),
            _ => {}
        }
    }
    for name in &schema.required {
        if !fields.contains_key(name) {
            errors.push(FieldError::required(path.field(name), ""));
        }
    }
}

fn check_combinations(schema: &Schema, value: &Value, path: Path<'_>, errors: &mut Errors) {
    let passes = |schema: &Schema, errors: &mut Errors| {
        let mut alone = Errors {
            found: Vec::new(),
            most: 1,
            steps: errors.steps,
            ran_out: errors.ran_out.take(),
        };
        check(schema, value, path, &mut alone);
        (errors.steps, errors.ran_out) = (alone.steps, alone.ran_out);
        alone.found.is_empty()
    };
    let fail = |errors: &mut Errors, text: &str| {
        let name = if path.is_root() {
            "<nil>".to_owned()
        } else {
            path.to_string()
        };
        errors.push(FieldError::invalid_text(
            path,
            "\"\"",
            &format!("{name:?} {text}"),
        ));
    };
    if !schema.any_of.is_empty() && !schema.any_of.iter().any(|s| passes(s, errors)) {
        fail(errors, "must validate at least one schema (anyOf)");
    }
    if !schema.one_of.is_empty() {
        match schema.one_of.iter().filter(|s| passes(s, errors)).count() {
            1 => {}
            0 => fail(
                errors,
                "must validate one and only one schema (oneOf). Found none valid",
            ),
            n => fail(
                errors,
                &format!(
                    "must validate one and only one schema (oneOf). Found {n} valid alternatives"
                ),
            ),
        }
    }
    if schema.not.as_ref().is_some_and(|s| passes(s, errors)) {
        fail(errors, "must not validate the schema (not)");
    }
    for part in &schema.all_of {
        check(part, value, path, errors);
    }
}

/// The first value of a wrong type, in the words of Go's decoder. Built-in types refuse such
/// values while decoding, before any validation.
pub(crate) fn type_problem(schema: &Schema, value: &Value, path: &str) -> Option<String> {
    find_wrong_type(schema, value, path, "")
}

fn find_wrong_type(schema: &Schema, value: &Value, path: &str, owner: &str) -> Option<String> {
    if value.is_null() {
        return None;
    }
    if !type_fits(schema.kind, value) {
        let wanted = match (schema.kind, schema.format.as_deref()) {
            (Type::Integer, Some(format)) => format,
            (Type::Boolean, _) => "bool",
            (Type::Object, _) => schema.name.as_deref().unwrap_or("map[string]string"),
            (Type::Array, _) => "[]",
            (kind, _) => type_name(kind),
        };
        return Some(format!(
            "json: cannot unmarshal {} into Go struct field {owner}.{path} of type {wanted}",
            crate::validation::go_kind(value)
        ));
    }
    let owner = schema.name.as_deref().unwrap_or(owner);
    match value {
        Value::Object(fields) => fields.iter().find_map(|(name, value)| {
            match (schema.property(name), &schema.additional) {
                (Some(property), _) => {
                    find_wrong_type(property, value, &child_path(path, name), owner)
                }
                // Go's decoder names the map, not its key.
                (None, Additional::Schema(additional)) => {
                    find_wrong_type(additional, value, path, owner)
                }
                _ => None,
            }
        }),
        Value::Array(items) => {
            let schema = schema.items.as_ref()?;
            items
                .iter()
                .find_map(|item| find_wrong_type(schema, item, path, owner))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::compile;
    use super::*;

    #[track_caller]
    fn check(schema: &Value, value: &Value, want: &[&str]) {
        let schema = compile(schema).unwrap();
        let mut errors = Vec::new();
        validate(&schema, value, &mut errors);
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(errors, want);
    }

    #[test]
    #[allow(clippy::too_many_lines, reason = "a table")]
    fn each_rule_refuses_in_the_real_servers_words() {
        let cases = [
            (
                json!({"type": "integer"}),
                json!("x"),
                r#"f: Invalid value: "string": f in body must be of type integer: "string""#,
            ),
            (
                json!({"type": "string"}),
                json!(null),
                r#"f: Invalid value: "null": f in body must be of type string: "null""#,
            ),
            (
                json!({"enum": ["a", "b"]}),
                json!("c"),
                r#"f: Unsupported value: "c": supported values: "a", "b""#,
            ),
            (
                json!({"pattern": "^[a-z]+$"}),
                json!("A"),
                r#"f: Invalid value: "A": f in body should match '^[a-z]+$'"#,
            ),
            (
                json!({"minLength": 2}),
                json!("é"),
                r#"f: Invalid value: "é": f in body should be at least 2 chars long"#,
            ),
            (
                json!({"maxLength": 1}),
                json!("ab"),
                "f: Too long: may not be more than 1 byte",
            ),
            (
                json!({"minimum": 1.0}),
                json!(0),
                "f: Invalid value: 0: f in body should be greater than or equal to 1",
            ),
            (
                json!({"minimum": 1, "exclusiveMinimum": true}),
                json!(1),
                "f: Invalid value: 1: f in body should be greater than 1",
            ),
            (
                json!({"maximum": 1.5}),
                json!(2),
                "f: Invalid value: 2: f in body should be less than or equal to 1.5",
            ),
            (
                json!({"multipleOf": 2}),
                json!(3),
                "f: Invalid value: 3: f in body should be a multiple of 2",
            ),
            (
                json!({"minItems": 1}),
                json!([]),
                "f: Invalid value: 0: f in body should have at least 1 items",
            ),
            (
                json!({"maxItems": 1}),
                json!([1, 2]),
                "f: Too many: 2: must have at most 1 item",
            ),
            (
                json!({"x-kubernetes-list-type": "set"}),
                json!(["a", "a", "a"]),
                r#"f[1]: Duplicate value: "a""#,
            ),
            (
                json!({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"]}),
                json!([{"n": "a"}, {"n": "b"}, {"n": "a", "x": 1}]),
                r#"f[2]: Duplicate value: {"n":"a"}"#,
            ),
            (
                json!({"x-kubernetes-int-or-string": true}),
                json!(true),
                r#"f: Invalid value: "boolean": f in body must be of type integer,string: "boolean""#,
            ),
            (
                json!({"format": "date-time"}),
                json!("x"),
                r#"f: Invalid value: "x": f in body must be of type date-time: "x""#,
            ),
            (
                json!({"properties": {"a": {}}, "required": ["a"]}),
                json!({}),
                "f.a: Required value",
            ),
            (
                json!({"anyOf": [{"minLength": 5}, {"pattern": "^b"}]}),
                json!("a"),
                r#"f: Invalid value: "": "f" must validate at least one schema (anyOf)"#,
            ),
            (
                json!({"not": {"minLength": 1}}),
                json!("a"),
                r#"f: Invalid value: "": "f" must not validate the schema (not)"#,
            ),
            (
                json!({"x-kubernetes-embedded-resource": true}),
                json!({"kind": "A"}),
                "f.apiVersion: Required value",
            ),
            (
                json!({"additionalProperties": {"type": "integer"}}),
                json!({"k": "v"}),
                r#"f.k: Invalid value: "string": f.k in body must be of type integer: "string""#,
            ),
        ];
        for (schema, value, want) in cases {
            check(
                &json!({"properties": {"f": schema}}),
                &json!({"f": value}),
                &[want],
            );
        }
    }

    #[test]
    fn what_fits_passes() {
        let cases = [
            (
                json!({"type": "integer", "minimum": 0, "maximum": 5}),
                json!(5),
            ),
            (json!({"type": "integer"}), json!(1.0)),
            (json!({"type": "string", "nullable": true}), json!(null)),
            (json!({"x-kubernetes-int-or-string": true}), json!("25%")),
            (
                json!({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}),
                json!({"a": 1}),
            ),
            (
                json!({"type": "array", "items": {"type": "string"}}),
                json!(["a"]),
            ),
        ];
        for (schema, value) in cases {
            check(
                &json!({"properties": {"f": schema}}),
                &json!({"f": value}),
                &[],
            );
        }
    }

    /// Each item is compared with each alternative.
    #[test]
    fn a_schema_with_many_alternatives_has_a_budget() {
        let alternatives: Vec<Value> = (0..100).map(|n| json!({"enum": [n]})).collect();
        let schema = json!({"properties": {"l": {"items": {"anyOf": alternatives}}}});
        let schema = compile(&schema).unwrap();
        let object = json!({"l": vec![99; 1000]});
        let check = |steps: usize| {
            let mut errors = Vec::new();
            validate_within(steps, &schema, &object, &mut errors);
            let errors = errors.iter().map(ToString::to_string);
            errors.collect::<Vec<_>>()
        };
        assert_eq!(check(1000 * 201 + 2), [""; 0]);
        let [error] = &check(1000 * 100)[..] else {
            panic!("one error");
        };
        assert!(error.contains("running out of cost budget"), "{error}");
    }
}
