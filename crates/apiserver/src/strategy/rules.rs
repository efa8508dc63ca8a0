//! Validation of built-in types: required fields and the rules that clients run into.
//!
//! A subset of `k8s.io/kubernetes/pkg/apis/*/validation`; what is not here is accepted.

use serde_json::{Value, json};

use super::{access, job};
use crate::registry::ResourceDef;
use crate::schema::{Additional, Schema};
use crate::status::FieldError;

/// Fields that the schemas call required although Go's zero value is accepted.
const NOT_REQUIRED: [&str; 2] = ["podSelector", "metadata"];

/// Checks a built-in object.
pub(super) fn validate(
    def: &ResourceDef,
    object: &Value,
    old: Option<&Value>,
    errors: &mut Vec<FieldError>,
) {
    let is_job = def.kind == "Job";
    if is_job {
        job::own_selector(object, errors);
    }
    let first_of_object = errors.len();
    let schema = def.versions.first().and_then(|v| v.schema.get());
    if let (Some(property), Some(spec)) =
        (schema.and_then(|s| s.property("spec")), object.get("spec"))
    {
        required(property, spec, "spec", errors);
    }
    let spec_required = schema.is_some_and(|s| {
        s.property("spec")
            .is_some_and(|spec| !spec.required.is_empty())
    });
    if spec_required && object.get("spec").is_none() {
        let fields = schema
            .and_then(|s| s.property("spec"))
            .map(|s| s.required.clone());
        for field in fields.unwrap_or_default() {
            errors.push(FieldError::required(format!("spec.{field}"), ""));
        }
    }
    match def.kind.as_str() {
        "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet" => {
            selector_matches_template(object, errors);
            replicas_not_negative(object, errors);
            if let Some(old) = old {
                immutable(object, old, "/spec/selector", "spec.selector", errors);
            }
        }
        "ConfigMap" | "Secret" => {
            data_keys(object, errors);
            if let Some(old) = old {
                data_immutable(object, old, errors);
                if def.kind == "Secret" {
                    immutable(object, old, "/type", "type", errors);
                }
            }
        }
        "ControllerRevision" => controller_revision(object, old, errors),
        "Service" => service(object, errors),
        "Job" => job::spec(object, errors),
        "Pod" => containers(object.pointer("/spec"), "spec", errors),
        "RoleBinding" | "ClusterRoleBinding" => {
            access::validate_binding(object, old, def.namespaced, errors);
        }
        "Role" | "ClusterRole" => access::validate_role(object, def.namespaced, errors),
        _ => {}
    }
    if let Some(template) = object.pointer("/spec/template/spec") {
        containers(Some(template), "spec.template.spec", errors);
    }
    if is_job {
        job::restart_policy(object, errors);
        if let Some(old) = old {
            let again = errors[first_of_object..].to_vec();
            errors.extend(again);
            job::changes(object, old, errors);
        }
    }
}

fn required(schema: &Schema, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(fields) => {
            for name in &schema.required {
                if !fields.contains_key(name) && !NOT_REQUIRED.contains(&name.as_str()) {
                    errors.push(FieldError::required(format!("{path}.{name}"), ""));
                }
            }
            for (name, value) in fields {
                let path = format!("{path}.{name}");
                match (schema.property(name), &schema.additional) {
                    (Some(property), _) => required(property, value, &path, errors),
                    (None, Additional::Schema(extra)) => required(extra, value, &path, errors),
                    _ => {}
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = &schema.items {
                for (at, item) in items.iter().enumerate() {
                    required(schema, item, &format!("{path}[{at}]"), errors);
                }
            }
        }
        _ => {}
    }
}

pub(super) fn immutable(
    object: &Value,
    old: &Value,
    pointer: &str,
    field: &str,
    errors: &mut Vec<FieldError>,
) {
    let (new, old) = (object.pointer(pointer), old.pointer(pointer));
    if new != old {
        errors.push(FieldError::invalid(
            field,
            new.unwrap_or(&Value::Null),
            "field is immutable",
        ));
    }
}

/// Keys of data become names of files.
fn data_keys(object: &Value, errors: &mut Vec<FieldError>) {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    for field in ["data", "binaryData"] {
        let keys = object[field].as_object().into_iter().flatten();
        for (key, _) in keys {
            let mut refuse = |problem: &str| {
                let path = format!("{field}[{key}]");
                errors.push(FieldError::invalid(path, &json!(key), problem));
            };
            if key.len() > 253 {
                refuse("must be no more than 253 characters");
            }
            if key.is_empty() || !key.chars().all(allowed) {
                refuse(
                    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' \
                     (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation \
                     is '[-._a-zA-Z0-9]+')",
                );
            }
            if key == "." {
                refuse("must not be '.'");
            } else if key == ".." {
                refuse("must not be '..'");
            } else if key.starts_with("..") {
                refuse("must not start with '..'");
            }
        }
    }
}

fn data_immutable(object: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    if old.get("immutable") != Some(&json!(true)) {
        return;
    }
    if object.get("immutable") != Some(&json!(true)) {
        errors.push(FieldError::forbidden(
            "immutable",
            "field is immutable when `immutable` is set",
        ));
    }
    for field in ["data", "binaryData"] {
        if object.get(field) != old.get(field) {
            errors.push(FieldError::forbidden(
                field,
                "field is immutable when `immutable` is set",
            ));
        }
    }
}

fn selector_matches_template(object: &Value, errors: &mut Vec<FieldError>) {
    let Some(selector) = object.pointer("/spec/selector") else {
        return;
    };
    let labels = object
        .pointer("/spec/template/metadata/labels")
        .cloned()
        .unwrap_or(json!({}));
    let wanted = selector.get("matchLabels").and_then(Value::as_object);
    let expressions = selector.get("matchExpressions").and_then(Value::as_array);
    if wanted.is_none_or(serde_json::Map::is_empty) && expressions.is_none_or(Vec::is_empty) {
        errors.push(FieldError::invalid(
            "spec.selector",
            selector,
            "empty selector is invalid for deployment",
        ));
        return;
    }
    let text = crate::verbs::scale::selector_text(selector);
    let matches = crate::selector::LabelSelector::parse(&text).is_ok_and(|selector| {
        let labels = labels
            .as_object()
            .into_iter()
            .flatten()
            .map(|(k, v)| (k.clone(), v.as_str().unwrap_or_default().to_owned()))
            .collect();
        selector.matches(&labels)
    });
    if !matches {
        errors.push(FieldError::invalid(
            "spec.template.metadata.labels",
            &labels,
            "`selector` does not match template `labels`",
        ));
    }
}

fn controller_revision(object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    if let Some(revision) = object
        .get("revision")
        .filter(|revision| revision.as_i64() < Some(0))
    {
        errors.push(FieldError::invalid(
            "revision",
            revision,
            "must be greater than or equal to 0",
        ));
    }
    match (old, object.get("data")) {
        (Some(old), _) => immutable(object, old, "/data", "data", errors),
        (None, Some(Value::Object(_))) => {}
        (None, Some(_)) => errors.push(FieldError::required(
            "data",
            "data must be a valid JSON object",
        )),
        (None, None) => errors.push(FieldError::required("data", "data is mandatory")),
    }
}

fn replicas_not_negative(object: &Value, errors: &mut Vec<FieldError>) {
    if let Some(replicas) = object
        .pointer("/spec/replicas")
        .filter(|r| r.as_i64() < Some(0))
    {
        errors.push(FieldError::invalid(
            "spec.replicas",
            replicas,
            "must be greater than or equal to 0",
        ));
    }
}

fn containers(spec: Option<&Value>, path: &str, errors: &mut Vec<FieldError>) {
    let list = spec
        .and_then(|s| s.get("containers"))
        .and_then(Value::as_array);
    let Some(list) = list else {
        return;
    };
    if list.is_empty() {
        errors.push(FieldError::required(format!("{path}.containers"), ""));
    }
    let mut names = std::collections::HashSet::new();
    for (at, container) in list.iter().enumerate() {
        let name = container["name"].as_str().unwrap_or_default();
        let field = format!("{path}.containers[{at}]");
        if !name.is_empty() {
            for problem in crate::validation::NameRule::Label.check(name) {
                errors.push(FieldError::invalid_text(
                    format!("{field}.name"),
                    &format!("{name:?}"),
                    &problem,
                ));
            }
            if !names.insert(name) {
                errors.push(FieldError::duplicate(format!("{field}.name"), &json!(name)));
            }
        }
    }
}

fn service(object: &Value, errors: &mut Vec<FieldError>) {
    let kind = object
        .pointer("/spec/type")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let headless = object
        .pointer("/spec/clusterIP")
        .is_some_and(|ip| ip == "None");
    let ports = object.pointer("/spec/ports").and_then(Value::as_array);
    if ports.is_none_or(Vec::is_empty) && kind != "ExternalName" && !headless {
        errors.push(FieldError::required("spec.ports", ""));
    }
    for (at, port) in ports.into_iter().flatten().enumerate() {
        if let Some(number) = port["port"].as_i64().filter(|n| !(1..=65535).contains(n)) {
            errors.push(FieldError::invalid(
                format!("spec.ports[{at}].port"),
                &json!(number),
                "must be between 1 and 65535, inclusive",
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;

    fn problems(group: &str, plural: &str, object: &Value, old: Option<&Value>) -> Vec<String> {
        let types = Registry::new().types();
        let mut errors = Vec::new();
        validate(types.find(group, plural).unwrap(), object, old, &mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    fn deployment() -> Value {
        json!({"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        }}})
    }

    #[test]
    fn deployments_need_a_selector_that_matches() {
        assert_eq!(
            problems("apps", "deployments", &deployment(), None),
            [""; 0]
        );
        assert_eq!(
            problems("apps", "deployments", &json!({"spec": {}}), None),
            [
                "spec.selector: Required value",
                "spec.template: Required value"
            ]
        );
        let mut wrong = deployment();
        wrong["spec"]["template"]["metadata"]["labels"] = json!({"a": "c"});
        assert_eq!(
            problems("apps", "deployments", &wrong, None),
            [
                "spec.template.metadata.labels: Invalid value: {\"a\":\"c\"}: `selector` does not match template `labels`"
            ]
        );
        let mut changed = deployment();
        changed["spec"]["selector"]["matchLabels"] = json!({"x": "y"});
        changed["spec"]["template"]["metadata"]["labels"] = json!({"x": "y"});
        let found = problems("apps", "deployments", &changed, Some(&deployment()));
        assert!(
            found[0].starts_with("spec.selector: Invalid value"),
            "{found:?}"
        );
        assert!(found[0].ends_with("field is immutable"), "{found:?}");
    }

    #[test]
    fn containers_need_distinct_names() {
        let mut object = deployment();
        object["spec"]["template"]["spec"]["containers"] =
            json!([{"name": "c"}, {"name": "c"}, {}]);
        assert_eq!(
            problems("apps", "deployments", &object, None),
            [
                "spec.template.spec.containers[2].name: Required value",
                "spec.template.spec.containers[1].name: Duplicate value: \"c\"",
            ]
        );
    }

    #[test]
    fn immutable_config_maps_stay_as_they_are() {
        let old = json!({"immutable": true, "data": {"a": "b"}});
        let new = json!({"immutable": true, "data": {"a": "c"}});
        assert_eq!(
            problems("", "configmaps", &new, Some(&old)),
            ["data: Forbidden: field is immutable when `immutable` is set"]
        );
    }

    #[test]
    fn keys_of_data_are_names_of_files() {
        let bad = json!({"data": {"no key/": "", "..": "", "..a": "", "good.key-1_": ""}});
        let found = problems("", "configmaps", &bad, None);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(
            found.contains(&r#"data[no key/]: Invalid value: "no key/": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"#.to_owned()),
            "{found:?}"
        );
        assert!(found.contains(&r#"data[..]: Invalid value: "..": must not be '..'"#.to_owned()));
    }

    #[test]
    fn a_binding_keeps_its_role() {
        let to = |name: &str| json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}});
        assert_eq!(
            problems(
                "rbac.authorization.k8s.io",
                "rolebindings",
                &to("b"),
                Some(&to("a"))
            ),
            [
                r#"roleRef: Invalid value: {"APIGroup":"rbac.authorization.k8s.io","Kind":"Role","Name":"b"}: cannot change roleRef"#
            ]
        );
    }

    #[test]
    fn services_need_ports() {
        let service = json!({"spec": {"type": "ClusterIP", "ports": [{"port": 0}]}});
        assert_eq!(
            problems("", "services", &service, None),
            ["spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive"]
        );
        let none = json!({"spec": {"type": "ClusterIP"}});
        assert_eq!(
            problems("", "services", &none, None),
            ["spec.ports: Required value"]
        );
    }
}
