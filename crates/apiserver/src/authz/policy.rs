//! Roles and bindings of one moment, and what they allow a user.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::attributes::Attributes;
use super::rule;
use super::user::UserInfo;
use crate::selector::LabelSelector;
use crate::store::Stored;

/// Roles and bindings of one moment.
#[derive(Debug, Default)]
pub(crate) struct Policy {
    /// With the rules of aggregating roles gathered.
    cluster_roles: HashMap<String, Vec<PolicyRule>>,
    /// By namespace and name.
    roles: HashMap<(String, String), Vec<PolicyRule>>,
    cluster_bindings: Vec<Binding>,
    /// By namespace.
    bindings: BTreeMap<String, Vec<Binding>>,
}

#[derive(Debug)]
struct Binding {
    name: String,
    /// Empty for cluster-wide ones.
    namespace: String,
    subjects: Vec<Subject>,
    role: RoleRef,
}

/// Rules that a user has, and from where.
pub(crate) struct Grant<'a> {
    binding: &'a Binding,
    subject: &'a Subject,
    pub(crate) rules: &'a [PolicyRule],
}

/// A role that a binding names is not there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RoleError {
    /// No such role.
    #[error("{kind}.rbac.authorization.k8s.io {name:?} not found", kind = kind.to_ascii_lowercase())]
    NotFound { kind: String, name: String },
    /// Neither a `Role` nor a `ClusterRole`.
    #[error("unsupported role reference kind: {kind:?}")]
    Kind { kind: String },
}

fn read<T: DeserializeOwned>(stored: &[Arc<Stored>]) -> impl Iterator<Item = T> {
    // What does not read grants nothing; the server itself has checked what it stored.
    stored
        .iter()
        .filter_map(|stored| serde_json::from_slice(stored.bytes()).ok())
}

impl Policy {
    /// Reads the four types' objects.
    pub(crate) fn new(
        cluster_roles: &[Arc<Stored>],
        roles: &[Arc<Stored>],
        cluster_bindings: &[Arc<Stored>],
        bindings: &[Arc<Stored>],
    ) -> Self {
        let mut policy = Self {
            cluster_roles: aggregated(&read(cluster_roles).collect::<Vec<_>>()),
            ..Self::default()
        };
        for role in read::<Role>(roles) {
            let key = (
                role.metadata.namespace.unwrap_or_default(),
                role.metadata.name.unwrap_or_default(),
            );
            policy.roles.insert(key, role.rules.unwrap_or_default());
        }
        for binding in read::<ClusterRoleBinding>(cluster_bindings) {
            policy.cluster_bindings.push(Binding {
                name: binding.metadata.name.unwrap_or_default(),
                namespace: String::new(),
                subjects: binding.subjects.unwrap_or_default(),
                role: binding.role_ref,
            });
        }
        for binding in read::<RoleBinding>(bindings) {
            let namespace = binding.metadata.namespace.unwrap_or_default();
            let binding = Binding {
                name: binding.metadata.name.unwrap_or_default(),
                namespace: namespace.clone(),
                subjects: binding.subjects.unwrap_or_default(),
                role: binding.role_ref,
            };
            policy.bindings.entry(namespace).or_default().push(binding);
        }
        policy
    }

    /// The rules of the role that a binding in `namespace` (empty: cluster-wide) names.
    pub(crate) fn rules_of(
        &self,
        role: &RoleRef,
        namespace: &str,
    ) -> Result<&[PolicyRule], RoleError> {
        let found = match role.kind.as_str() {
            "Role" => self.roles.get(&(namespace.to_owned(), role.name.clone())),
            "ClusterRole" => self.cluster_roles.get(&role.name),
            other => {
                return Err(RoleError::Kind {
                    kind: other.to_owned(),
                });
            }
        };
        found.map(Vec::as_slice).ok_or_else(|| RoleError::NotFound {
            kind: role.kind.clone(),
            name: role.name.clone(),
        })
    }

    /// What the user has in `namespace` (empty: cluster-wide only).
    pub(crate) fn grants<'a>(
        &'a self,
        user: &'a UserInfo,
        namespace: &str,
    ) -> impl Iterator<Item = Result<Grant<'a>, RoleError>> {
        let local = self.bindings.get(namespace).map(Vec::as_slice);
        self.cluster_bindings
            .iter()
            .chain(local.unwrap_or_default())
            .filter_map(move |binding| {
                let subject = binding.subjects.iter().find(|s| is(user, s, binding))?;
                Some(
                    self.rules_of(&binding.role, &binding.namespace)
                        .map(|rules| Grant {
                            binding,
                            subject,
                            rules,
                        }),
                )
            })
    }

    /// All rules that the user has, and what went wrong with finding them.
    pub(crate) fn rules_for<'a>(
        &'a self,
        user: &'a UserInfo,
        namespace: &str,
    ) -> (Vec<&'a PolicyRule>, Vec<RoleError>) {
        let (mut rules, mut errors) = (Vec::new(), Vec::new());
        for grant in self.grants(user, namespace) {
            match grant {
                Ok(grant) => rules.extend(grant.rules),
                Err(error) => errors.push(error),
            }
        }
        (rules, errors)
    }

    /// Decides by the rules alone.
    pub(crate) fn decide(&self, user: &UserInfo, asked: &Attributes) -> (bool, String) {
        let mut errors = Vec::new();
        for grant in self.grants(user, asked.namespace()) {
            match grant {
                Ok(grant) if grant.rules.iter().any(|r| rule::allows(r, asked)) => {
                    return (true, format!("RBAC: allowed by {grant}"));
                }
                Ok(_) => {}
                Err(error) => errors.push(error),
            }
        }
        if errors.is_empty() {
            (false, String::new())
        } else {
            (false, format!("RBAC: {}", joined(&errors)))
        }
    }
}

/// Errors as Go's aggregate prints them.
pub(crate) fn joined(errors: &[RoleError]) -> String {
    let mut texts: Vec<String> = Vec::new();
    for error in errors {
        let text = error.to_string();
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    match texts.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

/// True when the user is the subject of a binding.
fn is(user: &UserInfo, subject: &Subject, binding: &Binding) -> bool {
    match subject.kind.as_str() {
        "User" => user.username == subject.name,
        "Group" => user.is_in(&subject.name),
        "ServiceAccount" => {
            user.is_service_account(account_namespace(subject, binding), &subject.name)
        }
        _ => false,
    }
}

/// A role binding's account without namespace is one of the binding's own.
fn account_namespace<'a>(subject: &'a Subject, binding: &'a Binding) -> &'a str {
    match subject.namespace.as_deref() {
        None | Some("") => &binding.namespace,
        Some(namespace) => namespace,
    }
}

impl fmt::Display for Grant<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Binding {
            name,
            namespace,
            role,
            ..
        } = self.binding;
        if namespace.is_empty() {
            write!(f, "ClusterRoleBinding {name:?}")?;
        } else {
            write!(f, "RoleBinding {:?}", format!("{name}/{namespace}"))?;
        }
        write!(
            f,
            " of {} {:?} to {} ",
            role.kind, role.name, self.subject.kind
        )?;
        let subject = &self.subject.name;
        if self.subject.kind == "ServiceAccount" {
            let namespace = account_namespace(self.subject, self.binding);
            write!(f, "{:?}", format!("{subject}/{namespace}"))
        } else {
            write!(f, "{subject:?}")
        }
    }
}

/// Rules by role name, those of aggregating roles gathered from the roles that they select.
///
/// Differs from the real server: there a controller writes the gathered rules into the role;
/// here they are in force at once, and the role as it is read keeps the rules it was given.
fn aggregated(roles: &[ClusterRole]) -> HashMap<String, Vec<PolicyRule>> {
    roles
        .iter()
        .map(|role| {
            let mut gathered = Vec::new();
            gather(role, roles, &mut HashSet::new(), &mut gathered);
            (name(role).to_owned(), gathered)
        })
        .collect()
}

fn name(role: &ClusterRole) -> &str {
    role.metadata.name.as_deref().unwrap_or_default()
}

fn gather<'a>(
    role: &'a ClusterRole,
    all: &'a [ClusterRole],
    seen: &mut HashSet<&'a str>,
    rules: &mut Vec<PolicyRule>,
) {
    if !seen.insert(name(role)) {
        return;
    }
    let selectors = role
        .aggregation_rule
        .as_ref()
        .and_then(|a| a.cluster_role_selectors.as_deref());
    let Some(selectors) = selectors else {
        for rule in role.rules.iter().flatten() {
            if !rules.contains(rule) {
                rules.push(rule.clone());
            }
        }
        return;
    };
    for selector in selectors {
        let text = crate::verbs::scale::selector_text(&json!(selector));
        let Ok(selector) = LabelSelector::parse(&text) else {
            continue;
        };
        for other in all {
            let labels = other.metadata.labels.clone().unwrap_or_default();
            if selector.matches(&labels) {
                gather(other, all, seen, rules);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authz::attributes::ResourceAccess;
    use serde_json::Value;

    fn stored(kind: &str, objects: Value) -> Vec<Arc<Stored>> {
        let Value::Array(objects) = objects else {
            panic!("{objects}")
        };
        objects
            .into_iter()
            .map(|mut object| {
                object["kind"] = json!(kind);
                object["apiVersion"] = json!("rbac.authorization.k8s.io/v1");
                Arc::new(Stored::new(object, &[]))
            })
            .collect()
    }

    fn policy() -> Policy {
        let reader = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]);
        let writer = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["update"]}]);
        let selects =
            |label: &str| json!({"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]});
        let role_ref = |kind: &str, name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
        Policy::new(
            &stored(
                "ClusterRole",
                json!([
                    {"metadata": {"name": "reader", "labels": {"to-edit": "true"}}, "rules": reader},
                    {"metadata": {"name": "writer", "labels": {"to-admin": "true"}}, "rules": writer},
                    {"metadata": {"name": "edit", "labels": {"to-admin": "true"}}, "aggregationRule": selects("to-edit")},
                    {"metadata": {"name": "admin", "labels": {"to-edit": "true"}}, "aggregationRule": selects("to-admin"),
                        "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]},
                ]),
            ),
            &stored(
                "Role",
                json!([{"metadata": {"name": "reader", "namespace": "a"}, "rules": reader}]),
            ),
            &stored(
                "ClusterRoleBinding",
                json!([
                    {"metadata": {"name": "all"}, "roleRef": role_ref("ClusterRole", "reader"),
                        "subjects": [{"kind": "Group", "name": "readers"}, {"kind": "ServiceAccount", "name": "sa", "namespace": "b"}]},
                    {"metadata": {"name": "admins"}, "roleRef": role_ref("ClusterRole", "admin"),
                        "subjects": [{"kind": "User", "name": "root"}]},
                ]),
            ),
            &stored(
                "RoleBinding",
                json!([
                    {"metadata": {"name": "bound", "namespace": "a"}, "roleRef": role_ref("Role", "reader"),
                        "subjects": [{"kind": "ServiceAccount", "name": "sa"}, {"kind": "User", "name": "u"}]},
                    {"metadata": {"name": "cluster", "namespace": "b"}, "roleRef": role_ref("ClusterRole", "writer"),
                        "subjects": [{"kind": "User", "name": "u"}]},
                    {"metadata": {"name": "lost", "namespace": "c"}, "roleRef": role_ref("Role", "none"),
                        "subjects": [{"kind": "User", "name": "u"}]},
                ]),
            ),
        )
    }

    fn decide(user: &UserInfo, verb: &str, namespace: &str) -> (bool, String) {
        let access = ResourceAccess {
            verb: verb.to_owned(),
            resource: "configmaps".to_owned(),
            namespace: namespace.to_owned(),
            name: "x".to_owned(),
            ..ResourceAccess::default()
        };
        policy().decide(user, &Attributes::Resource(access))
    }

    #[test]
    fn decisions_name_the_binding() {
        let (u, reader) = (UserInfo::new("u"), UserInfo::new("r").group("readers"));
        let (ours, theirs) = (
            UserInfo::service_account("a", "sa"),
            UserInfo::service_account("b", "sa"),
        );
        let cases = [
            (
                &u,
                "get",
                "a",
                true,
                r#"RBAC: allowed by RoleBinding "bound/a" of Role "reader" to User "u""#,
            ),
            (&u, "update", "a", false, ""),
            (&u, "get", "", false, ""),
            (
                &u,
                "update",
                "b",
                true,
                r#"RBAC: allowed by RoleBinding "cluster/b" of ClusterRole "writer" to User "u""#,
            ),
            (
                &u,
                "get",
                "c",
                false,
                r#"RBAC: role.rbac.authorization.k8s.io "none" not found"#,
            ),
            (
                &ours,
                "get",
                "a",
                true,
                r#"RBAC: allowed by RoleBinding "bound/a" of Role "reader" to ServiceAccount "sa/a""#,
            ),
            (&ours, "get", "b", false, ""),
            (
                &theirs,
                "get",
                "a",
                true,
                r#"RBAC: allowed by ClusterRoleBinding "all" of ClusterRole "reader" to ServiceAccount "sa/b""#,
            ),
            (
                &reader,
                "get",
                "",
                true,
                r#"RBAC: allowed by ClusterRoleBinding "all" of ClusterRole "reader" to Group "readers""#,
            ),
        ];
        for (user, verb, namespace, allowed, reason) in cases {
            let got = decide(user, verb, namespace);
            assert_eq!(
                got,
                (allowed, reason.to_owned()),
                "{user:?} {verb} {namespace}"
            );
        }
    }

    #[test]
    fn aggregating_roles_have_the_rules_of_the_selected_even_in_a_circle() {
        let root = UserInfo::new("root");
        assert!(decide(&root, "get", "a").0);
        assert!(decide(&root, "update", "a").0);
        // The rules that such a role was given itself are overwritten by the gathered ones.
        assert!(!decide(&root, "delete", "a").0);
    }

    #[test]
    fn errors_are_joined_once_each() {
        let lost = RoleError::NotFound {
            kind: "ClusterRole".to_owned(),
            name: "x".to_owned(),
        };
        let odd = RoleError::Kind {
            kind: "Odd".to_owned(),
        };
        assert_eq!(
            joined(&[lost.clone(), odd, lost.clone()]),
            r#"[clusterrole.rbac.authorization.k8s.io "x" not found, unsupported role reference kind: "Odd"]"#
        );
        assert_eq!(
            joined(&[lost]),
            r#"clusterrole.rbac.authorization.k8s.io "x" not found"#
        );
    }
}
