//! `CustomResourceDefinition`s: their checks, their status, and the types that they bring.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::object;
use crate::registry::{ResourceDef, Scale, SchemaSource, Types, VersionDef, resource_key};
use crate::schema;
use crate::status::FieldError;
use crate::table::Column;
use crate::validation::{NameRule, is_dns_label, is_dns_subdomain};

/// Holds a CRD until its objects are gone.
pub(crate) const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

fn texts(value: &Value, pointer: &str) -> Vec<String> {
    value
        .pointer(pointer)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|v| v.as_str().map(str::to_owned))
        .collect()
}

fn versions(crd: &Value) -> impl Iterator<Item = &Value> {
    crd.pointer("/spec/versions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

/// Where errors say that a schema is which all versions have in common.
const SHARED_SCHEMA: &str = "spec.validation.openAPIV3Schema";

fn schemas(crd: &Value) -> impl Iterator<Item = &Value> {
    versions(crd).filter_map(|version| version.pointer("/schema/openAPIV3Schema"))
}

/// Fills in the names that follow from others.
pub(crate) fn set_defaults(crd: &mut Value) {
    let kind = text(crd, "/spec/names/kind").to_owned();
    if let Some(names) = crd
        .pointer_mut("/spec/names")
        .and_then(Value::as_object_mut)
    {
        for (field, value) in [
            ("singular", kind.to_lowercase()),
            ("listKind", format!("{kind}List")),
        ] {
            let absent = names
                .get(field)
                .is_none_or(|v| v.as_str().unwrap_or_default().is_empty());
            if absent && !kind.is_empty() {
                names.insert(field.to_owned(), json!(value));
            }
        }
    }
    if let Some(spec) = crd.get_mut("spec").and_then(Value::as_object_mut) {
        spec.entry("conversion")
            .or_insert_with(|| json!({"strategy": "None"}));
        if spec.get("preserveUnknownFields") == Some(&Value::Bool(false)) {
            spec.remove("preserveUnknownFields");
        }
    }
}

/// Checks a CRD; what changes only with effort, as names in use, is left to its status.
pub(crate) fn validate(crd: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let (group, plural) = (text(crd, "/spec/group"), text(crd, "/spec/names/plural"));
    let required = [
        ("spec.group", "/spec/group"),
        ("spec.names.plural", "/spec/names/plural"),
        ("spec.names.kind", "/spec/names/kind"),
        ("spec.scope", "/spec/scope"),
    ];
    for (field, pointer) in required {
        if text(crd, pointer).is_empty() {
            errors.push(FieldError::required(field, ""));
        }
    }
    let wanted = format!("{plural}.{group}");
    let name = object::meta_str(crd, "name");
    if name != wanted {
        errors.push(FieldError::invalid_text(
            "metadata.name",
            &format!("{name:?}"),
            "must be spec.names.plural+\".\"+spec.group",
        ));
    }
    if !group.is_empty() && (!is_dns_subdomain(group) || !group.contains('.')) {
        errors.push(FieldError::invalid_text(
            "spec.group",
            &format!("{group:?}"),
            "should be a domain with at least one dot",
        ));
    }
    if !plural.is_empty() && !is_dns_label(plural) {
        errors.push(FieldError::invalid_text(
            "spec.names.plural",
            &format!("{plural:?}"),
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character",
        ));
    }
    let scope = text(crd, "/spec/scope");
    if !matches!(scope, "" | "Cluster" | "Namespaced") {
        let supported = ["Cluster", "Namespaced"].map(str::to_owned);
        errors.push(FieldError::not_supported(
            "spec.scope",
            &json!(scope),
            &supported,
        ));
    }
    if text(crd, "/spec/conversion/strategy") == "Webhook" {
        errors.push(FieldError::forbidden(
            "spec.conversion.strategy",
            "this server converts versions without webhooks only",
        ));
    }
    validate_versions(crd, old, errors);
    if let Some(old) = old {
        for (field, pointer) in [("spec.group", "/spec/group"), ("spec.scope", "/spec/scope")] {
            if old.pointer(pointer) != crd.pointer(pointer) {
                errors.push(FieldError::invalid(
                    field,
                    crd.pointer(pointer).unwrap_or(&Value::Null),
                    "field is immutable",
                ));
            }
        }
    }
}

fn validate_versions(crd: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let stored = versions(crd)
        .filter(|v| v["storage"] == json!(true))
        .count();
    if stored != 1 {
        errors.push(FieldError::invalid(
            "spec.versions",
            crd.pointer("/spec/versions").unwrap_or(&Value::Null),
            "must have exactly one version marked as storage version",
        ));
    }
    let mut seen = std::collections::HashSet::new();
    for (at, version) in versions(crd).enumerate() {
        let path = format!("spec.versions[{at}]");
        let name = version["name"].as_str().unwrap_or_default();
        if !is_dns_label(name) {
            errors.push(FieldError::invalid_text(
                format!("{path}.name"),
                &format!("{name:?}"),
                "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character",
            ));
        }
        if !seen.insert(name) {
            errors.push(FieldError::invalid(
                "spec.versions",
                crd.pointer("/spec/versions").unwrap_or(&Value::Null),
                "must contain unique version names",
            ));
        }
        let path = format!("{path}.schema.openAPIV3Schema");
        let is_shared = schemas(crd).all(|schema| Some(schema) == schemas(crd).next());
        match version.pointer("/schema/openAPIV3Schema") {
            None => errors.push(FieldError::required(path, "schemas are required")),
            Some(document) => {
                if document["type"].as_str().unwrap_or_default().is_empty() {
                    errors.push(FieldError::required(
                        format!("{path}.type"),
                        "must not be empty at the root",
                    ));
                }
                if let Err(e) = schema::compile(document) {
                    let field = if e.path.is_empty() {
                        path.clone()
                    } else {
                        format!("{path}.{}", e.path)
                    };
                    errors.push(FieldError::invalid_text(field, "\"\"", &e.why));
                }
                // A schema that has been stored stays usable, whatever it costs.
                let is_stored = old.is_some_and(|old| schemas(old).any(|known| known == document));
                if !is_stored && (at == 0 || !is_shared) {
                    let path = if is_shared { SHARED_SCHEMA } else { &path };
                    errors.extend(schema::rule_problems(document, path));
                }
            }
        }
    }
}

/// The type that a valid CRD defines.
pub(crate) fn definition(crd: &Value) -> Result<ResourceDef, schema::CompileError> {
    let (group, plural) = (text(crd, "/spec/group"), text(crd, "/spec/names/plural"));
    let mut defs = Vec::new();
    let mut storage_version = String::new();
    let mut selectable: Vec<Arc<str>> = Vec::new();
    for version in versions(crd) {
        let name = text(version, "/name").to_owned();
        if version["storage"] == json!(true) {
            storage_version.clone_from(&name);
        }
        for field in version["selectableFields"].as_array().into_iter().flatten() {
            let path = text(field, "/jsonPath").trim_start_matches('.');
            if !selectable.iter().any(|f| **f == *path) {
                selectable.push(Arc::from(path));
            }
        }
        let schema = match version.pointer("/schema/openAPIV3Schema") {
            Some(document) => SchemaSource::Custom(schema::compile(document)?),
            None => SchemaSource::Anything,
        };
        let scale = version.pointer("/subresources/scale").map(|scale| {
            let path = |pointer| text(scale, pointer).trim_start_matches('.').to_owned();
            Scale {
                spec_replicas: path("/specReplicasPath"),
                status_replicas: path("/statusReplicasPath"),
                label_selector: Some(path("/labelSelectorPath")).filter(|p| !p.is_empty()),
            }
        });
        let deprecated = version["deprecated"] == json!(true);
        defs.push(VersionDef {
            served: version["served"] == json!(true),
            status: version.pointer("/subresources/status").is_some(),
            scale,
            schema,
            columns: columns(version),
            deprecation_warning: deprecated.then(|| match version["deprecationWarning"].as_str() {
                Some(text) => text.to_owned(),
                None => format!(
                    "{group}/{name} {} is deprecated",
                    text(crd, "/spec/names/kind")
                ),
            }),
            name,
        });
    }
    Ok(ResourceDef {
        key: resource_key(group, plural),
        group: group.to_owned(),
        plural: plural.to_owned(),
        singular: text(crd, "/spec/names/singular").to_owned(),
        kind: text(crd, "/spec/names/kind").to_owned(),
        list_kind: text(crd, "/spec/names/listKind").to_owned(),
        short_names: texts(crd, "/spec/names/shortNames"),
        categories: texts(crd, "/spec/names/categories"),
        namespaced: text(crd, "/spec/scope") == "Namespaced",
        versions: defs,
        storage_version,
        selectable,
        name_rule: NameRule::Subdomain,
        builtin: None,
        terminating: object::is_deleting(crd),
    })
}

fn columns(version: &Value) -> Vec<Column> {
    let declared = version["additionalPrinterColumns"].as_array();
    let Some(declared) = declared.filter(|c| !c.is_empty()) else {
        return vec![Column::age()];
    };
    declared
        .iter()
        .map(|column| Column {
            name: text(column, "/name").to_owned(),
            kind: text(column, "/type").to_owned(),
            format: text(column, "/format").to_owned(),
            description: match text(column, "/description") {
                "" => format!(
                    "Custom resource definition column (in JSONPath format): {}",
                    text(column, "/jsonPath")
                ),
                text => text.to_owned(),
            },
            priority: column["priority"].as_i64().unwrap_or_default(),
            path: text(column, "/jsonPath").to_owned(),
        })
        .collect()
}

/// The status that a CRD gets once its type is served. `None` when it is right already.
pub(crate) fn served(types: &Types, crd: &Value) -> Option<Value> {
    let mut new = crd.clone();
    let conflict = name_conflict(types, crd);
    let names = crd.pointer("/spec/names").cloned().unwrap_or_default();
    let (accepted, reason, message) = match &conflict {
        None => ("True", "NoConflicts", "no conflicts found".to_owned()),
        Some((reason, message)) => ("False", *reason, message.clone()),
    };
    set_condition(&mut new, "NamesAccepted", accepted, reason, &message);
    if conflict.is_none() {
        set_condition(
            &mut new,
            "Established",
            "True",
            "InitialNamesAccepted",
            "the initial names have been accepted",
        );
        new["status"]["acceptedNames"] = names;
    } else if new.pointer("/status/acceptedNames").is_none() {
        set_condition(
            &mut new,
            "Established",
            "False",
            "NotAccepted",
            "not all names are accepted",
        );
        new["status"]["acceptedNames"] = json!({"plural": "", "kind": ""});
    }
    let storage = versions(crd)
        .find(|v| v["storage"] == json!(true))
        .map_or("", |v| text(v, "/name"));
    let mut stored = texts(&new, "/status/storedVersions");
    if !stored.iter().any(|v| v == storage) {
        stored.push(storage.to_owned());
    }
    new["status"]["storedVersions"] = json!(stored);
    if !object::finalizers(&new).contains(&CLEANUP_FINALIZER) {
        let mut finalizers = object::finalizers(&new);
        finalizers.push(CLEANUP_FINALIZER);
        let finalizers = json!(finalizers);
        object::set_meta(&mut new, "finalizers", finalizers);
    }
    (new != *crd).then_some(new)
}

/// True when the CRD's type is to be served.
pub(crate) fn is_established(crd: &Value) -> bool {
    crd.pointer("/status/conditions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .any(|c| c["type"] == json!("Established") && c["status"] == json!("True"))
}

fn name_conflict(types: &Types, crd: &Value) -> Option<(&'static str, String)> {
    let group = text(crd, "/spec/group");
    let key = resource_key(group, text(crd, "/spec/names/plural"));
    let others = types
        .all
        .iter()
        .filter(|d| d.group == group && d.key != key);
    for other in others {
        for (reason, field, taken) in [
            (
                "KindConflict",
                "/spec/names/kind",
                [&other.kind, &other.list_kind],
            ),
            (
                "ListKindConflict",
                "/spec/names/listKind",
                [&other.kind, &other.list_kind],
            ),
            (
                "SingularConflict",
                "/spec/names/singular",
                [&other.singular, &other.plural],
            ),
        ] {
            let name = text(crd, field);
            if taken.into_iter().any(|t| t == name) {
                return Some((reason, format!("{name:?} is already in use")));
            }
        }
    }
    None
}

/// Sets a condition, and its transition time when its status changes.
pub(crate) fn set_condition(
    object: &mut Value,
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
) {
    let conditions = &mut object["status"]["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let list = conditions.as_array_mut().expect("made a list above");
    let found = list.iter().position(|c| c["type"] == json!(kind));
    let since = found
        .filter(|at| list[*at]["status"] == json!(status))
        .map_or_else(
            || json!(object::now()),
            |at| list[at]["lastTransitionTime"].clone(),
        );
    let condition = json!({
        "type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": since,
    });
    match found {
        Some(at) => list[at] = condition,
        None => list.push(condition),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crd() -> Value {
        json!({
            "metadata": {"name": "widgets.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": {"plural": "widgets", "kind": "Widget"},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object"}}}],
            },
        })
    }

    #[test]
    fn names_follow_from_the_kind() {
        let mut crd = crd();
        set_defaults(&mut crd);
        assert_eq!(crd["spec"]["names"]["singular"], "widget");
        assert_eq!(crd["spec"]["names"]["listKind"], "WidgetList");
        assert_eq!(crd["spec"]["conversion"], json!({"strategy": "None"}));
    }

    #[test]
    fn invalid_definitions_are_refused_by_field() {
        let cases: [(&str, Value, &str); 8] = [
            (
                "/metadata/name",
                json!("other"),
                "metadata.name: Invalid value: \"other\"",
            ),
            ("/spec/group", json!(""), "spec.group: Required value"),
            (
                "/spec/scope",
                json!("Galaxy"),
                "spec.scope: Unsupported value: \"Galaxy\"",
            ),
            (
                "/spec/names/kind",
                json!(""),
                "spec.names.kind: Required value",
            ),
            (
                "/spec/versions/0/storage",
                json!(false),
                "spec.versions: Invalid value",
            ),
            (
                "/spec/versions/0/schema",
                json!({}),
                "spec.versions[0].schema.openAPIV3Schema: Required",
            ),
            (
                "/spec/versions/0/schema/openAPIV3Schema",
                json!({"type": "object", "properties": {"a": {"pattern": "("}}}),
                "spec.versions[0].schema.openAPIV3Schema.a: Invalid value",
            ),
            (
                "/spec/versions/0/name",
                json!("V_1"),
                "spec.versions[0].name: Invalid value",
            ),
        ];
        for (pointer, value, want) in cases {
            let mut crd = crd();
            *crd.pointer_mut(pointer).unwrap() = value;
            let mut errors = Vec::new();
            validate(&crd, None, &mut errors);
            let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
            assert!(
                texts.iter().any(|t| t.starts_with(want)),
                "{pointer}: {texts:?}"
            );
        }
        let mut errors = Vec::new();
        validate(&crd(), None, &mut errors);
        assert_eq!(errors, []);
    }

    #[test]
    fn conditions_keep_their_transition_time_until_the_status_changes() {
        let mut object = json!({"status": {"conditions": [
            {"type": "A", "status": "True", "lastTransitionTime": "then"},
        ]}});
        set_condition(&mut object, "A", "True", "R", "m");
        assert_eq!(
            object["status"]["conditions"][0]["lastTransitionTime"],
            "then"
        );
        set_condition(&mut object, "A", "False", "R", "m");
        assert_ne!(
            object["status"]["conditions"][0]["lastTransitionTime"],
            "then"
        );
    }
}
