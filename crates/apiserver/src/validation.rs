//! Rules for names, labels and other metadata, the same for every type.

use serde_json::Value;

use crate::status::FieldError;

/// Which rule an object's name obeys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameRule {
    /// Lower-case words joined by dots, at most 253 bytes.
    Subdomain,
    /// One lower-case word, at most 63 bytes.
    Label,
    /// One lower-case word that starts with a letter, at most 63 bytes.
    ServiceLabel,
    /// Anything that is one path segment (RBAC).
    PathSegment,
}

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SERVICE_LABEL: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const QUALIFIED_NAME: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

/// Largest sum of annotation keys and values.
const MAX_ANNOTATIONS_BYTES: usize = 256 * 1024;

impl NameRule {
    /// What is wrong with the name, if anything.
    pub(crate) fn check(self, name: &str) -> Vec<String> {
        let (max, valid, text) = match self {
            Self::Subdomain => (253, is_dns_subdomain(name), SUBDOMAIN),
            Self::Label => (63, is_dns_label(name), LABEL),
            Self::ServiceLabel => (
                63,
                is_dns_label(name) && name.starts_with(|c: char| c.is_ascii_lowercase()),
                SERVICE_LABEL,
            ),
            Self::PathSegment => return path_segment_problems(name),
        };
        let mut problems = Vec::new();
        if name.len() > max {
            problems.push(format!("must be no more than {max} characters"));
        }
        if !valid {
            problems.push(text.to_owned());
        }
        problems
    }
}

fn path_segment_problems(name: &str) -> Vec<String> {
    if name == "." || name == ".." {
        return vec![format!("may not be '{name}'")];
    }
    ["/", "%"]
        .into_iter()
        .filter(|part| name.contains(part))
        .map(|part| format!("may not contain '{part}'"))
        .collect()
}

/// True for `a`, `a-b`, `1a`.
pub(crate) fn is_dns_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    !text.is_empty() && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

/// True for `a`, `a.b-c.d`.
pub(crate) fn is_dns_subdomain(text: &str) -> bool {
    text.split('.').all(is_dns_label)
}

fn is_name_part(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let edge = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    text.len() <= 63
        && bytes.iter().copied().all(inner)
        && edge(bytes.first())
        && edge(bytes.last())
}

/// True for label and annotation keys: `name` or `dns.domain/name`.
pub(crate) fn is_qualified_name(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => {
            is_dns_subdomain(prefix) && prefix.len() <= 253 && is_name_part(name)
        }
        None => is_name_part(text),
    }
}

/// True for label values.
pub(crate) fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_name_part(text)
}

/// Checks `metadata` of an object that is about to be stored.
pub(crate) fn validate_metadata(object: &Value, rule: NameRule, errors: &mut Vec<FieldError>) {
    let Some(metadata) = object.get("metadata") else {
        errors.push(FieldError::required("metadata", ""));
        return;
    };
    let name = metadata
        .get("name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if name.is_empty() {
        errors.push(FieldError::required(
            "metadata.name",
            "name or generateName is required",
        ));
    } else {
        for problem in rule.check(name) {
            errors.push(FieldError::invalid_text(
                "metadata.name",
                &format!("{name:?}"),
                &problem,
            ));
        }
    }
    validate_string_map(metadata, "labels", errors, |key, value, errors| {
        if !is_qualified_name(key) {
            errors.push(FieldError::invalid_text(
                "metadata.labels",
                &format!("{key:?}"),
                QUALIFIED_NAME,
            ));
        }
        if value.len() > 63 {
            errors.push(FieldError::invalid_text(
                "metadata.labels",
                &format!("{value:?}"),
                "must be no more than 63 bytes",
            ));
        } else if !is_label_value(value) {
            errors.push(FieldError::invalid_text(
                "metadata.labels",
                &format!("{value:?}"),
                LABEL_VALUE,
            ));
        }
    });
    let mut annotation_bytes = 0;
    validate_string_map(metadata, "annotations", errors, |key, value, errors| {
        annotation_bytes += key.len() + value.len();
        if !is_qualified_name(&key.to_ascii_lowercase()) {
            errors.push(FieldError::invalid_text(
                "metadata.annotations",
                &format!("{key:?}"),
                QUALIFIED_NAME,
            ));
        }
    });
    if annotation_bytes > MAX_ANNOTATIONS_BYTES {
        errors.push(FieldError::too_long(
            "metadata.annotations",
            MAX_ANNOTATIONS_BYTES as u64,
        ));
    }
    validate_finalizers(metadata, errors);
    validate_owner_references(metadata, errors);
}

fn validate_string_map(
    metadata: &Value,
    field: &str,
    errors: &mut Vec<FieldError>,
    mut check: impl FnMut(&str, &str, &mut Vec<FieldError>),
) {
    for (key, value) in metadata
        .get(field)
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        check(key, value.as_str().unwrap_or_default(), errors);
    }
}

fn validate_finalizers(metadata: &Value, errors: &mut Vec<FieldError>) {
    for (at, finalizer) in metadata
        .get("finalizers")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .enumerate()
    {
        let name = finalizer.as_str().unwrap_or_default();
        if !is_qualified_name(name) {
            errors.push(FieldError::invalid_text(
                format!("metadata.finalizers[{at}]"),
                &format!("{name:?}"),
                QUALIFIED_NAME,
            ));
        }
    }
}

fn validate_owner_references(metadata: &Value, errors: &mut Vec<FieldError>) {
    for (at, owner) in metadata
        .get("ownerReferences")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .enumerate()
    {
        for (field, text) in [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ] {
            if owner
                .get(field)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .is_empty()
            {
                let path = format!("metadata.ownerReferences[{at}].{field}");
                errors.push(FieldError::invalid_text(path, "\"\"", text));
            }
        }
    }
}

/// Checks the parts of `metadata` that an update may not change freely.
pub(crate) fn validate_metadata_update(old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    if !crate::object::is_deleting(old) {
        return;
    }
    let before: std::collections::HashSet<&str> =
        crate::object::finalizers(old).into_iter().collect();
    let added: Vec<String> = crate::object::finalizers(new)
        .into_iter()
        .filter(|f| !before.contains(f))
        .map(|f| format!("{f:?}"))
        .collect();
    if !added.is_empty() {
        errors.push(FieldError::forbidden(
            "metadata.finalizers",
            &format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.join(", ")
            ),
        ));
    }
}

/// True for types whose maps and strings obey JSON's own types in `metadata`.
pub(crate) fn metadata_type_problem(metadata: &Value) -> Option<String> {
    let Some(map) = metadata.as_object() else {
        return Some(format!(
            "json: cannot unmarshal {} into Go struct field .metadata of type v1.ObjectMeta",
            go_kind(metadata)
        ));
    };
    for (field, value) in map {
        let (ok, wanted) = match field.as_str() {
            "name" | "namespace" | "generateName" | "uid" | "resourceVersion" | "selfLink" => {
                (value.is_string(), "string")
            }
            "labels" | "annotations" => (
                value
                    .as_object()
                    .is_some_and(|m| m.values().all(Value::is_string)),
                "map[string]string",
            ),
            "finalizers" => (
                value
                    .as_array()
                    .is_some_and(|l| l.iter().all(Value::is_string)),
                "[]string",
            ),
            "ownerReferences" => (
                value
                    .as_array()
                    .is_some_and(|l| l.iter().all(Value::is_object)),
                "[]v1.OwnerReference",
            ),
            "generation" | "deletionGracePeriodSeconds" => (value.is_i64(), "int64"),
            "creationTimestamp" | "deletionTimestamp" => (
                value
                    .as_str()
                    .is_some_and(|t| t.parse::<jiff::Timestamp>().is_ok()),
                "v1.Time",
            ),
            _ => (true, ""),
        };
        if !ok && !value.is_null() {
            return Some(format!(
                "json: cannot unmarshal {} into Go struct field ObjectMeta.metadata.{field} of type {wanted}",
                go_kind(value)
            ));
        }
    }
    None
}

/// A JSON value's kind as Go's decoder names it.
pub(crate) fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn name_rules_accept_and_refuse() {
        let long = "a".repeat(64);
        let cases = [
            (NameRule::Subdomain, "a.b-c.1", true),
            (NameRule::Subdomain, "A", false),
            (NameRule::Subdomain, "a..b", false),
            (NameRule::Subdomain, "-a", false),
            (NameRule::Label, "a-b", true),
            (NameRule::Label, "a.b", false),
            (NameRule::Label, long.as_str(), false),
            (NameRule::ServiceLabel, "1a", false),
            (NameRule::ServiceLabel, "a1", true),
            (NameRule::PathSegment, "system:node", true),
            (NameRule::PathSegment, "a/b", false),
            (NameRule::PathSegment, "..", false),
        ];
        for (rule, name, want) in cases {
            assert_eq!(rule.check(name).is_empty(), want, "{rule:?} {name}");
        }
    }

    #[test]
    fn metadata_problems_name_their_field() {
        let cases = [
            (json!({}), "metadata: Required value"),
            (
                json!({"metadata": {}}),
                "metadata.name: Required value: name or generateName is required",
            ),
            (
                json!({"metadata": {"name": "A"}}),
                "metadata.name: Invalid value: \"A\": a lowercase",
            ),
            (
                json!({"metadata": {"name": "a", "labels": {"x": "-"}}}),
                "metadata.labels: Invalid value: \"-\": a valid label",
            ),
            (
                json!({"metadata": {"name": "a", "annotations": {"-": ""}}}),
                "metadata.annotations: Invalid value: \"-\": name part",
            ),
            (
                json!({"metadata": {"name": "a", "finalizers": ["%"]}}),
                "metadata.finalizers[0]: Invalid value",
            ),
            (
                json!({"metadata": {"name": "a", "ownerReferences": [{"kind": "A", "name": "b", "apiVersion": "v1"}]}}),
                "metadata.ownerReferences[0].uid: Invalid value",
            ),
        ];
        for (object, want) in cases {
            let mut errors = Vec::new();
            validate_metadata(&object, NameRule::Subdomain, &mut errors);
            let text = errors
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("\n");
            assert!(text.starts_with(want), "{text}");
        }
    }

    #[test]
    fn finalizers_can_only_shrink_during_deletion() {
        let old = json!({"metadata": {"deletionTimestamp": "x", "finalizers": ["a/b"]}});
        let mut errors = Vec::new();
        validate_metadata_update(
            &old,
            &json!({"metadata": {"finalizers": ["a/b", "c/d"]}}),
            &mut errors,
        );
        assert_eq!(errors.len(), 1);
        errors.clear();
        validate_metadata_update(&old, &json!({"metadata": {}}), &mut errors);
        assert_eq!(errors, []);
    }
}
