//! What one rule of a role allows, and whether rules hold everything that others do.

use k8s_openapi::api::rbac::v1::PolicyRule;

use super::attributes::{Attributes, ResourceAccess};

fn list(values: Option<&Vec<String>>) -> &[String] {
    values.map(Vec::as_slice).unwrap_or_default()
}

fn has(values: &[String], wanted: &str) -> bool {
    values.iter().any(|v| v == "*" || v == wanted)
}

/// True when the rule allows what is asked for.
pub(crate) fn allows(rule: &PolicyRule, asked: &Attributes) -> bool {
    match asked {
        Attributes::Resource(access) => {
            let names = list(rule.resource_names.as_ref());
            has(&rule.verbs, &access.verb)
                && has(list(rule.api_groups.as_ref()), &access.group)
                && names_resource(rule, access)
                && (names.is_empty() || names.contains(&access.name))
        }
        Attributes::Path { verb, path } => {
            has(&rule.verbs, verb)
                && list(rule.non_resource_urls.as_ref())
                    .iter()
                    .any(|url| url_matches(url, path))
        }
    }
}

fn names_resource(rule: &PolicyRule, access: &ResourceAccess) -> bool {
    let (resource, subresource) = (&access.resource, &access.subresource);
    let full = if subresource.is_empty() {
        resource.clone()
    } else {
        format!("{resource}/{subresource}")
    };
    list(rule.resources.as_ref())
        .iter()
        .any(|named| resource_matches(named, &full))
}

/// `*` names everything, `*/scale` that subresource of everything.
fn resource_matches(named: &str, resource: &str) -> bool {
    named == "*"
        || named == resource
        || named
            .strip_prefix("*/")
            .zip(resource.split_once('/'))
            .is_some_and(|(named, (_, subresource))| named == subresource)
}

/// A `*` at the end stands for any rest.
fn url_matches(named: &str, path: &str) -> bool {
    named == path || named.ends_with('*') && path.starts_with(named.trim_end_matches('*'))
}

/// Everything in `wanted` that no rule of `held` holds, one verb on one thing a rule.
pub(crate) fn missing(held: &[&PolicyRule], wanted: &[PolicyRule]) -> Vec<PolicyRule> {
    let mut missing = Vec::new();
    for part in wanted.iter().flat_map(parts) {
        if !held.iter().any(|rule| covers(rule, &part)) && !missing.contains(&part) {
            missing.push(part);
        }
    }
    missing
}

/// The rule as one rule for each verb on each thing.
fn parts(rule: &PolicyRule) -> Vec<PolicyRule> {
    let mut parts = Vec::new();
    let names: Vec<Option<Vec<String>>> = match list(rule.resource_names.as_ref()) {
        [] => vec![None],
        names => names.iter().map(|n| Some(vec![n.clone()])).collect(),
    };
    for group in list(rule.api_groups.as_ref()) {
        for resource in list(rule.resources.as_ref()) {
            for verb in &rule.verbs {
                for name in &names {
                    parts.push(PolicyRule {
                        api_groups: Some(vec![group.clone()]),
                        resources: Some(vec![resource.clone()]),
                        resource_names: name.clone(),
                        non_resource_urls: None,
                        verbs: vec![verb.clone()],
                    });
                }
            }
        }
    }
    for url in list(rule.non_resource_urls.as_ref()) {
        for verb in &rule.verbs {
            parts.push(PolicyRule {
                non_resource_urls: Some(vec![url.clone()]),
                verbs: vec![verb.clone()],
                ..PolicyRule::default()
            });
        }
    }
    parts
}

/// True when the rule holds all of a part.
fn covers(rule: &PolicyRule, part: &PolicyRule) -> bool {
    let names = list(rule.resource_names.as_ref());
    let wanted_names = list(part.resource_names.as_ref());
    let all = |held: &[String], wanted: &[String]| wanted.iter().all(|w| has(held, w));
    all(&rule.verbs, &part.verbs)
        && all(
            list(rule.api_groups.as_ref()),
            list(part.api_groups.as_ref()),
        )
        && list(part.resources.as_ref()).iter().all(|wanted| {
            list(rule.resources.as_ref())
                .iter()
                .any(|held| resource_matches(held, wanted))
        })
        && (names.is_empty()
            || !wanted_names.is_empty() && wanted_names.iter().all(|n| names.contains(n)))
        && list(part.non_resource_urls.as_ref()).iter().all(|wanted| {
            list(rule.non_resource_urls.as_ref())
                .iter()
                .any(|held| url_matches(held, wanted))
        })
}

/// What is missing as the real server's refusals list it: a line a thing, sorted.
pub(crate) fn describe(missing: &[PolicyRule]) -> String {
    let mut joined: Vec<PolicyRule> = Vec::new();
    for part in missing {
        let same = joined.iter_mut().find(|j| {
            part.non_resource_urls.is_none()
                && j.api_groups == part.api_groups
                && j.resources == part.resources
                && j.resource_names == part.resource_names
        });
        match same {
            Some(same) => same.verbs.extend(part.verbs.iter().cloned()),
            None => joined.push(part.clone()),
        }
    }
    let mut lines: Vec<String> = joined.iter().map(line).collect();
    lines.sort();
    lines.dedup();
    lines.join("\n")
}

fn line(rule: &PolicyRule) -> String {
    let fields = [
        ("APIGroups", list(rule.api_groups.as_ref())),
        ("Resources", list(rule.resources.as_ref())),
        ("NonResourceURLs", list(rule.non_resource_urls.as_ref())),
        ("ResourceNames", list(rule.resource_names.as_ref())),
        ("Verbs", &rule.verbs),
    ];
    let fields: Vec<String> = fields
        .iter()
        .filter(|(_, values)| !values.is_empty())
        .map(|(name, values)| format!("{name}:{}", quoted(values)))
        .collect();
    format!("{{{}}}", fields.join(", "))
}

/// A list of texts as Go's `%q` prints it.
pub(crate) fn quoted(values: &[String]) -> String {
    let values: Vec<String> = values.iter().map(|v| format!("{v:?}")).collect();
    format!("[{}]", values.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, from_value, json};

    fn rule(rule: Value) -> PolicyRule {
        from_value(rule).unwrap()
    }

    fn access(verb: &str, group: &str, resource: &str, name: &str) -> Attributes {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        Attributes::Resource(ResourceAccess {
            verb: verb.to_owned(),
            group: group.to_owned(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            namespace: "ns".to_owned(),
            name: name.to_owned(),
        })
    }

    #[test]
    fn rules_allow_what_they_name() {
        let of = |groups: &[&str], resources: &[&str], verbs: &[&str], names: &[&str]| {
            rule(
                json!({"apiGroups": groups, "resources": resources, "verbs": verbs, "resourceNames": names}),
            )
        };
        let cases = [
            (
                of(&[""], &["pods"], &["get"], &[]),
                access("get", "", "pods", "a"),
                true,
            ),
            (
                of(&[""], &["pods"], &["get"], &[]),
                access("list", "", "pods", ""),
                false,
            ),
            (
                of(&[""], &["pods"], &["get"], &[]),
                access("get", "apps", "pods", "a"),
                false,
            ),
            (
                of(&[""], &["pods"], &["get"], &[]),
                access("get", "", "pods/log", "a"),
                false,
            ),
            (
                of(&[""], &["pods/log"], &["get"], &[]),
                access("get", "", "pods/log", "a"),
                true,
            ),
            (
                of(&[""], &["pods/log"], &["get"], &[]),
                access("get", "", "pods", "a"),
                false,
            ),
            (
                of(&["*"], &["*/scale"], &["*"], &[]),
                access("patch", "apps", "deployments/scale", "a"),
                true,
            ),
            (
                of(&["*"], &["*/scale"], &["*"], &[]),
                access("patch", "apps", "deployments/status", "a"),
                false,
            ),
            (
                of(&["*"], &["*/scale"], &["*"], &[]),
                access("patch", "apps", "deployments", "a"),
                false,
            ),
            (
                of(&["*"], &["*"], &["*"], &[]),
                access("get", "x", "y/z", "a"),
                true,
            ),
            (
                of(&[""], &["pods"], &["get"], &["a"]),
                access("get", "", "pods", "a"),
                true,
            ),
            (
                of(&[""], &["pods"], &["get"], &["a"]),
                access("get", "", "pods", "b"),
                false,
            ),
            (
                of(&[""], &["pods"], &["create"], &["a"]),
                access("create", "", "pods", ""),
                false,
            ),
            (
                of(&[""], &["pods"], &["get"], &["*"]),
                access("get", "", "pods", "a"),
                false,
            ),
        ];
        for (rule, asked, allowed) in cases {
            assert_eq!(allows(&rule, &asked), allowed, "{rule:?} {asked:?}");
        }
    }

    #[test]
    fn rules_allow_paths() {
        let rule =
            rule(json!({"nonResourceURLs": ["/api", "/api/*", "/version/"], "verbs": ["get"]}));
        let cases = [
            ("get", "/api", true),
            ("get", "/api/v1", true),
            ("get", "/apis", false),
            ("post", "/api", false),
            ("get", "/version", false),
        ];
        for (verb, path, allowed) in cases {
            let asked = Attributes::Path {
                verb: verb.to_owned(),
                path: path.to_owned(),
            };
            assert_eq!(allows(&rule, &asked), allowed, "{verb} {path}");
        }
        assert!(!allows(&rule, &access("get", "", "api", "")));
    }

    #[test]
    fn what_is_not_held_is_named_by_thing() {
        let held = [
            rule(
                json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "update"], "resourceNames": ["cm1", "cm2"]}),
            ),
            rule(json!({"apiGroups": ["apps"], "resources": ["*/scale"], "verbs": ["*"]})),
            rule(json!({"nonResourceURLs": ["/api", "/api/*"], "verbs": ["get"]})),
        ];
        let held: Vec<&PolicyRule> = held.iter().collect();
        let cases = [
            (
                json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"], "resourceNames": ["cm1"]}),
                "",
            ),
            (
                json!({"apiGroups": ["apps"], "resources": ["deployments/scale", "*/scale"], "verbs": ["get", "patch"]}),
                "",
            ),
            (
                json!({"nonResourceURLs": ["/api/v1", "/api/*"], "verbs": ["get"]}),
                "",
            ),
            (
                json!({"apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": ["get", "update"]}),
                "{APIGroups:[\"\"], Resources:[\"configmaps\"], Verbs:[\"get\" \"update\"]}\n\
                 {APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\" \"update\"]}",
            ),
            (
                json!({"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["*"], "resourceNames": ["b", "a"]}),
                "{APIGroups:[\"apps\"], Resources:[\"deployments\"], ResourceNames:[\"a\"], Verbs:[\"*\"]}\n\
                 {APIGroups:[\"apps\"], Resources:[\"deployments\"], ResourceNames:[\"b\"], Verbs:[\"*\"]}",
            ),
            (
                json!({"nonResourceURLs": ["/metrics", "/api"], "verbs": ["get"]}),
                "{NonResourceURLs:[\"/metrics\"], Verbs:[\"get\"]}",
            ),
            (
                json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}),
                "{APIGroups:[\"*\"], Resources:[\"*\"], Verbs:[\"*\"]}",
            ),
        ];
        for (wanted, text) in cases {
            assert_eq!(describe(&missing(&held, &[rule(wanted)])), text);
        }
    }

    #[test]
    fn the_wildcard_holds_everything() {
        let all = rule(json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}));
        let wanted = rule(
            json!({"apiGroups": ["a", "*"], "resources": ["b/c", "*"], "verbs": ["d"], "resourceNames": ["n"]}),
        );
        assert_eq!(missing(&[&all], &[wanted]), []);
        let urls = rule(json!({"nonResourceURLs": ["/a"], "verbs": ["get"]}));
        assert_eq!(missing(&[&all], std::slice::from_ref(&urls)), [urls]);
    }
}
