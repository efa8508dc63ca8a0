//! Validation of roles and bindings.

use serde_json::{Value, json};

use crate::status::FieldError;
use crate::validation::NameRule;

const RBAC: &str = "rbac.authorization.k8s.io";

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn items<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value
        .get(field)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

/// Checks the rules of a `Role` (`namespaced`) or `ClusterRole`.
pub(super) fn validate_role(object: &Value, namespaced: bool, errors: &mut Vec<FieldError>) {
    for (at, rule) in items(object, "rules").iter().enumerate() {
        validate_rule(rule, &format!("rules[{at}]"), namespaced, errors);
    }
    if let Some(aggregation) = object.get("aggregationRule")
        && items(aggregation, "clusterRoleSelectors").is_empty()
    {
        errors.push(FieldError::required(
            "aggregationRule.clusterRoleSelectors",
            "at least one clusterRoleSelector required if aggregationRule is non-nil",
        ));
    }
}

fn validate_rule(rule: &Value, path: &str, namespaced: bool, errors: &mut Vec<FieldError>) {
    if items(rule, "verbs").is_empty() {
        errors.push(FieldError::required(
            format!("{path}.verbs"),
            "verbs must contain at least one value",
        ));
    }
    let urls = items(rule, "nonResourceURLs");
    if !urls.is_empty() {
        let named = |field| !items(rule, field).is_empty();
        let problem = if namespaced {
            "namespaced rules cannot apply to non-resource URLs"
        } else if named("apiGroups") || named("resources") || named("resourceNames") {
            "rules cannot apply to both regular resources and non-resource URLs"
        } else {
            return;
        };
        errors.push(FieldError::invalid(
            format!("{path}.nonResourceURLs"),
            &json!(urls),
            problem,
        ));
        return;
    }
    for (field, what) in [("apiGroups", "api group"), ("resources", "resource")] {
        if items(rule, field).is_empty() {
            errors.push(FieldError::required(
                format!("{path}.{field}"),
                &format!("resource rules must supply at least one {what}"),
            ));
        }
    }
}

/// Checks a `RoleBinding` (`namespaced`) or `ClusterRoleBinding`.
pub(super) fn validate_binding(
    object: &Value,
    old: Option<&Value>,
    namespaced: bool,
    errors: &mut Vec<FieldError>,
) {
    let role = object.get("roleRef").cloned().unwrap_or_default();
    // A missing group has had its default by now, unless the whole reference is missing.
    if !matches!(text(&role, "apiGroup"), "" | RBAC) {
        errors.push(unsupported("roleRef.apiGroup", &role["apiGroup"], &[RBAC]));
    }
    let kinds: &[&str] = if namespaced {
        &["Role", "ClusterRole"]
    } else {
        &["ClusterRole"]
    };
    let kind = text(&role, "kind");
    if !kinds.contains(&kind) {
        errors.push(unsupported("roleRef.kind", &json!(kind), kinds));
    }
    let name = text(&role, "name");
    if name.is_empty() {
        errors.push(FieldError::required("roleRef.name", ""));
    } else {
        invalid_name("roleRef.name", name, NameRule::PathSegment, errors);
    }
    for (at, subject) in items(object, "subjects").iter().enumerate() {
        validate_subject(subject, &format!("subjects[{at}]"), namespaced, errors);
    }
    let bound = |role: &Value| {
        json!({
            "APIGroup": text(role, "apiGroup"),
            "Kind": text(role, "kind"),
            "Name": text(role, "name"),
        })
    };
    if let Some(old) = old
        && old
            .get("roleRef")
            .is_some_and(|old| bound(old) != bound(&role))
    {
        errors.push(FieldError::invalid(
            "roleRef",
            &bound(&role),
            "cannot change roleRef",
        ));
    }
}

fn validate_subject(subject: &Value, path: &str, namespaced: bool, errors: &mut Vec<FieldError>) {
    let name = text(subject, "name");
    if name.is_empty() {
        errors.push(FieldError::required(format!("{path}.name"), ""));
    }
    let kind = text(subject, "kind");
    let group = match kind {
        "ServiceAccount" => "",
        "User" | "Group" => RBAC,
        _ => {
            errors.push(unsupported(
                &format!("{path}.kind"),
                &json!(kind),
                &["ServiceAccount", "User", "Group"],
            ));
            return;
        }
    };
    if kind == "ServiceAccount" && !name.is_empty() {
        invalid_name(&format!("{path}.name"), name, NameRule::Subdomain, errors);
    }
    if text(subject, "apiGroup") != group {
        let given = json!(text(subject, "apiGroup"));
        errors.push(unsupported(&format!("{path}.apiGroup"), &given, &[group]));
    }
    if kind == "ServiceAccount" && !namespaced && text(subject, "namespace").is_empty() {
        errors.push(FieldError::required(format!("{path}.namespace"), ""));
    }
}

fn invalid_name(path: &str, name: &str, rule: NameRule, errors: &mut Vec<FieldError>) {
    for problem in rule.check(name) {
        errors.push(FieldError::invalid(path, &json!(name), &problem));
    }
}

fn unsupported(path: &str, value: &Value, supported: &[&str]) -> FieldError {
    let supported: Vec<String> = supported.iter().map(|s| (*s).to_owned()).collect();
    FieldError::not_supported(path, value, &supported)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(namespaced: bool, object: &Value) -> Vec<String> {
        let mut errors = Vec::new();
        validate_role(object, namespaced, &mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    fn binding(namespaced: bool, object: &Value, old: Option<&Value>) -> Vec<String> {
        let mut errors = Vec::new();
        validate_binding(object, old, namespaced, &mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn rules_name_verbs_and_things() {
        let rules = json!({"rules": [
            {}, {"verbs": ["get"], "apiGroups": [""]}, {"verbs": ["get"], "nonResourceURLs": ["/a"]},
        ]});
        let common = [
            "rules[0].verbs: Required value: verbs must contain at least one value",
            "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
            "rules[0].resources: Required value: resource rules must supply at least one resource",
            "rules[1].resources: Required value: resource rules must supply at least one resource",
        ];
        assert_eq!(role(false, &rules), common);
        let mut namespaced = common.to_vec();
        namespaced.push(
            "rules[2].nonResourceURLs: Invalid value: [\"/a\"]: namespaced rules cannot apply to non-resource URLs",
        );
        assert_eq!(role(true, &rules), namespaced);
        let both =
            json!({"rules": [{"verbs": ["get"], "nonResourceURLs": ["/a"], "apiGroups": [""]}]});
        assert_eq!(
            role(false, &both),
            [
                "rules[0].nonResourceURLs: Invalid value: [\"/a\"]: rules cannot apply to both regular resources and non-resource URLs"
            ]
        );
        assert_eq!(
            role(false, &json!({"aggregationRule": {}})),
            [
                "aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector required if aggregationRule is non-nil"
            ]
        );
        assert_eq!(role(false, &json!({})), [""; 0]);
    }

    #[test]
    fn bindings_name_a_role_and_subjects() {
        assert_eq!(
            binding(true, &json!({}), None),
            [
                "roleRef.kind: Unsupported value: \"\": supported values: \"Role\", \"ClusterRole\"",
                "roleRef.name: Required value",
            ]
        );
        let role_ref = json!({"apiGroup": "x", "kind": "Role", "name": "a/b"});
        assert_eq!(
            binding(false, &json!({"roleRef": role_ref}), None),
            [
                "roleRef.apiGroup: Unsupported value: \"x\": supported values: \"rbac.authorization.k8s.io\"",
                "roleRef.kind: Unsupported value: \"Role\": supported values: \"ClusterRole\"",
                "roleRef.name: Invalid value: \"a/b\": may not contain '/'",
            ]
        );
        let object = json!({
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "r"},
            "subjects": [
                {"kind": "User", "name": "", "apiGroup": RBAC}, {"kind": "X", "name": "y"},
                {"kind": "Group", "name": "y", "apiGroup": "z"}, {"kind": "ServiceAccount", "name": "a"},
            ],
        });
        let common = [
            "subjects[0].name: Required value",
            "subjects[1].kind: Unsupported value: \"X\": supported values: \"ServiceAccount\", \"User\", \"Group\"",
            "subjects[2].apiGroup: Unsupported value: \"z\": supported values: \"rbac.authorization.k8s.io\"",
        ];
        assert_eq!(binding(true, &object, None), common);
        let mut wide = common.to_vec();
        wide.push("subjects[3].namespace: Required value");
        assert_eq!(binding(false, &object, None), wide);
    }

    #[test]
    fn a_binding_keeps_its_role() {
        let of = |name: &str| json!({"roleRef": {"apiGroup": RBAC, "kind": "Role", "name": name}});
        assert_eq!(binding(true, &of("a"), Some(&of("a"))), [""; 0]);
        assert_eq!(
            binding(true, &of("b"), Some(&of("a"))),
            [
                "roleRef: Invalid value: {\"APIGroup\":\"rbac.authorization.k8s.io\",\"Kind\":\"Role\",\"Name\":\"b\"}: cannot change roleRef"
            ]
        );
    }
}
