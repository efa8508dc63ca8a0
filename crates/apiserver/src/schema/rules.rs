//! `x-kubernetes-validations`: rules in CEL.

use std::collections::HashSet;

use kube_cel::{CompiledSchema, ErrorKind, ValidationError, Validator};
use serde_json::Value;

use crate::status::{FieldError, go_value};

/// The compiled rules of a schema.
pub(crate) struct Rules {
    compiled: CompiledSchema,
    /// Those that name another field than their own, which is an object.
    of_fields: HashSet<String>,
}

impl std::fmt::Debug for Rules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Rules")
    }
}

/// The rules of a schema, at any depth.
fn rules_of(document: &Value) -> Vec<&Value> {
    let (own, children): (_, Vec<&Value>) = match document {
        Value::Object(fields) => (
            fields.get("x-kubernetes-validations"),
            fields.values().collect(),
        ),
        Value::Array(items) => (None, items.iter().collect()),
        _ => return Vec::new(),
    };
    let own = own.and_then(Value::as_array).into_iter().flatten();
    own.chain(children.into_iter().flat_map(rules_of)).collect()
}

/// What an object has at a path like `spec.rules[0].name`.
fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let mut steps = path.split(['.', '[']).filter(|step| !step.is_empty());
    steps.try_fold(object, |value, step| match step.strip_suffix(']') {
        Some(index) => value.get(index.parse::<usize>().ok()?),
        None => value.get(step),
    })
}

impl Rules {
    /// Compiles the rules of a schema that has some.
    ///
    /// # Errors
    ///
    /// Names the first rule that does not parse.
    pub(super) fn compile(document: &Value) -> Result<Option<Self>, String> {
        let rules = rules_of(document);
        if rules.is_empty() {
            return Ok(None);
        }
        let compiled = kube_cel::compile_schema(document);
        if let Some(error) = compiled.compilation_errors().first() {
            return Err(format!("compilation failed: {error}"));
        }
        let of_fields = rules.iter().filter(|rule| rule["fieldPath"].is_string());
        let texts = of_fields.filter_map(|rule| rule["rule"].as_str());
        let of_fields = texts.map(str::to_owned).collect();
        Ok(Some(Self {
            compiled,
            of_fields,
        }))
    }

    /// The value that a rule refuses, if it is one that has no fields or items.
    fn refused<'a>(&self, failure: &ValidationError, object: &'a Value) -> Option<&'a Value> {
        let is_told =
            failure.kind == ErrorKind::ValidationFailure && !self.of_fields.contains(&failure.rule);
        let value = at(object, &failure.field_path).filter(|_| is_told)?;
        (!value.is_object() && !value.is_array()).then_some(value)
    }

    /// Checks an object; transition rules compare it with the stored one.
    pub(crate) fn validate(
        &self,
        object: &Value,
        old: Option<&Value>,
        errors: &mut Vec<FieldError>,
    ) {
        let Err(failed) = Validator::new().validate_compiled(&self.compiled, object, old) else {
            return;
        };
        for failure in failed.into_vec() {
            let refused = self.refused(&failure, object);
            let detail = match failure.kind {
                ErrorKind::ValidationFailure => failure.message,
                _ => format!("rule evaluation error: {}", failure.message),
            };
            let (reason, prefix) = match failure.reason.as_deref() {
                Some("FieldValueForbidden") => ("FieldValueForbidden", "Forbidden"),
                Some("FieldValueRequired") => ("FieldValueRequired", "Required value"),
                Some("FieldValueDuplicate") => ("FieldValueDuplicate", "Duplicate value"),
                _ => ("FieldValueInvalid", "Invalid value"),
            };
            let value = refused.filter(|_| reason == "FieldValueInvalid");
            let value = value.map_or(String::new(), |value| format!(" {}:", go_value(value)));
            errors.push(FieldError {
                reason,
                message: format!("{prefix}:{value} {detail}"),
                field: failure.field_path,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(rules: &Value, object: &Value, old: Option<&Value>) -> Vec<String> {
        let schema = json!({"type": "object", "properties": {"spec": {
            "type": "object", "x-kubernetes-validations": rules,
            "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
        }}});
        let mut errors = Vec::new();
        let rules = Rules::compile(&schema).unwrap().unwrap();
        rules.validate(object, old, &mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn rules_refuse_by_field_with_their_message() {
        let rules = json!([{"rule": "self.a <= 2", "message": "too many"}]);
        assert_eq!(
            check(&rules, &json!({"spec": {"a": 3}}), None),
            ["spec: Invalid value: too many"]
        );
        assert_eq!(check(&rules, &json!({"spec": {"a": 2}}), None), [""; 0]);
    }

    /// As kube-apiserver has it: a value with fields or items is left out, also where the rule names
    /// one of them.
    #[test]
    fn a_plain_value_that_is_refused_is_told() {
        let of = |rule: &str| json!([{"rule": rule, "message": "no"}]);
        let schema = json!({"type": "object", "properties": {
            "list": {"type": "array", "items":
                {"type": "string", "x-kubernetes-validations": of("self != 'x'")}},
            "map": {"type": "object", "additionalProperties":
                {"type": "integer", "x-kubernetes-validations": of("self < 7")}},
            "named": {"type": "object",
                "properties": {"a": {"type": "integer"}},
                "x-kubernetes-validations":
                    [{"rule": "self.a < 8", "message": "no", "fieldPath": ".a"}]},
        }});
        let rules = Rules::compile(&schema).unwrap().unwrap();
        let object = json!({"list": ["y", "x"], "map": {"k": 7}, "named": {"a": 8}});
        let mut errors = Vec::new();
        rules.validate(&object, None, &mut errors);
        let mut errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        errors.sort();
        let expected = [
            "list[1]: Invalid value: \"x\": no",
            "map.k: Invalid value: 7: no",
            "named.a: Invalid value: no",
        ];
        assert_eq!(errors, expected);
    }

    #[test]
    fn transition_rules_need_an_old_object() {
        let rules = json!([{"rule": "self.b == oldSelf.b", "message": "fixed"}]);
        let object = json!({"spec": {"b": "x"}});
        assert_eq!(check(&rules, &object, None), [""; 0]);
        let old = json!({"spec": {"b": "y"}});
        assert_eq!(
            check(&rules, &object, Some(&old)),
            ["spec: Invalid value: fixed"]
        );
    }

    #[test]
    fn rules_that_do_not_parse_are_refused_with_the_schema() {
        let schema = json!({"x-kubernetes-validations": [{"rule": "self.a <=", "message": "m"}]});
        assert!(
            Rules::compile(&schema)
                .unwrap_err()
                .starts_with("compilation failed")
        );
        assert!(
            Rules::compile(&json!({"type": "object"}))
                .unwrap()
                .is_none()
        );
    }
}
