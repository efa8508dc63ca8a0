//! `x-kubernetes-validations`: rules in CEL.

use kube_cel::{CompiledSchema, ErrorKind, Validator};
use serde_json::Value;

use crate::status::FieldError;

/// The compiled rules of a schema.
pub(crate) struct Rules(CompiledSchema);

impl std::fmt::Debug for Rules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Rules")
    }
}

/// True when a schema has rules at any depth.
fn has_rules(document: &Value) -> bool {
    match document {
        Value::Object(fields) => fields
            .iter()
            .any(|(name, value)| name == "x-kubernetes-validations" || has_rules(value)),
        Value::Array(items) => items.iter().any(has_rules),
        _ => false,
    }
}

impl Rules {
    /// Compiles the rules of a schema that has some.
    ///
    /// # Errors
    ///
    /// Names the first rule that does not parse.
    pub(super) fn compile(document: &Value) -> Result<Option<Self>, String> {
        if !has_rules(document) {
            return Ok(None);
        }
        let compiled = kube_cel::compile_schema(document);
        match compiled.compilation_errors().first() {
            Some(error) => Err(format!("compilation failed: {error}")),
            None => Ok(Some(Self(compiled))),
        }
    }

    /// Checks an object; transition rules compare it with the stored one.
    pub(crate) fn validate(
        &self,
        object: &Value,
        old: Option<&Value>,
        errors: &mut Vec<FieldError>,
    ) {
        let Err(failed) = Validator::new().validate_compiled(&self.0, object, old) else {
            return;
        };
        for failure in failed.into_vec() {
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
            errors.push(FieldError {
                reason,
                message: format!("{prefix}: {detail}"),
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
