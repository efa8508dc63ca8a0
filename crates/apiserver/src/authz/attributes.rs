//! What a request asks for, in the terms of rules, and the refusal of it.

use http::Method;
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, ResourceAttributes};

use super::user::UserInfo;
use crate::http::path::Target;
use crate::http::query::Query;
use crate::selector::FieldSelector;
use crate::status::{ApiError, Subject};

/// Something that a user wants to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Attributes {
    /// With objects.
    Resource(ResourceAccess),
    /// With a path that leads to no objects, such as `/version`.
    Path { verb: String, path: String },
}

/// A verb on objects; empty strings where a part is not named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResourceAccess {
    pub(crate) verb: String,
    pub(crate) group: String,
    pub(crate) resource: String,
    pub(crate) subresource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Attributes {
    /// What an HTTP request asks for.
    pub(crate) fn of(method: &Method, path: &str, target: &Target, query: &Query) -> Self {
        let Target::Resource(target) = target else {
            return Self::Path {
                verb: method.as_str().to_ascii_lowercase(),
                path: path.to_owned(),
            };
        };
        let name = target.name.clone().unwrap_or_default();
        let reads = matches!(*method, Method::GET | Method::HEAD);
        let verb = match (method, name.is_empty()) {
            (_, true) if reads && query.flag("watch") => "watch",
            (_, true) if reads => "list",
            (_, false) if reads => "get",
            (&Method::POST, _) => "create",
            (&Method::PUT, _) => "update",
            (&Method::PATCH, _) => "patch",
            (&Method::DELETE, true) => "deletecollection",
            (&Method::DELETE, false) => "delete",
            _ => "",
        };
        // A list of one object by its name counts as a request for that object.
        let selected = || {
            let selector = FieldSelector::parse(query.get("fieldSelector")?).ok()?;
            selector.exact("metadata.name").map(str::to_owned)
        };
        let name = match verb {
            "list" | "watch" => selected().unwrap_or_default(),
            _ => name,
        };
        // A namespace is an object of its own namespace here.
        let namespace = match &target.namespace {
            Some(namespace) => namespace.clone(),
            None if target.group.is_empty() && target.plural == "namespaces" => {
                target.name.clone().unwrap_or_default()
            }
            None => String::new(),
        };
        Self::Resource(ResourceAccess {
            verb: verb.to_owned(),
            group: target.group.clone(),
            resource: target.plural.clone(),
            subresource: target.subresource.clone().unwrap_or_default(),
            namespace,
            name,
        })
    }

    pub(crate) fn namespace(&self) -> &str {
        match self {
            Self::Resource(access) => &access.namespace,
            Self::Path { .. } => "",
        }
    }

    /// The same with another verb, made from the present one.
    pub(crate) fn with_verb(&self, verb: impl FnOnce(&str) -> String) -> Self {
        let mut other = self.clone();
        match &mut other {
            Self::Resource(ResourceAccess { verb: present, .. })
            | Self::Path { verb: present, .. } => *present = verb(present),
        }
        other
    }

    /// The refusal of it, with the authorizer's reason if there is one.
    pub(crate) fn forbidden(&self, user: &UserInfo, reason: &str) -> ApiError {
        let because = if reason.is_empty() {
            String::new()
        } else {
            format!(": {reason}")
        };
        let user = &user.username;
        match self {
            Self::Path { verb, path } => ApiError::forbidden(
                &Subject::default(),
                &format!("User {user:?} cannot {verb} path {path:?}{because}"),
            ),
            Self::Resource(access) => {
                let resource = if access.subresource.is_empty() {
                    access.resource.clone()
                } else {
                    format!("{}/{}", access.resource, access.subresource)
                };
                let place = if access.namespace.is_empty() {
                    "at the cluster scope".to_owned()
                } else {
                    format!("in the namespace {:?}", access.namespace)
                };
                let (verb, group) = (&access.verb, &access.group);
                ApiError::forbidden(
                    &Subject::new(group, &access.resource, &access.name),
                    &format!(
                        "User {user:?} cannot {verb} resource {resource:?} in API group {group:?} {place}{because}"
                    ),
                )
            }
        }
    }
}

impl From<&ResourceAttributes> for Attributes {
    fn from(asked: &ResourceAttributes) -> Self {
        let text = |part: &Option<String>| part.clone().unwrap_or_default();
        Self::Resource(ResourceAccess {
            verb: text(&asked.verb),
            group: text(&asked.group),
            resource: text(&asked.resource),
            subresource: text(&asked.subresource),
            namespace: text(&asked.namespace),
            name: text(&asked.name),
        })
    }
}

impl From<&NonResourceAttributes> for Attributes {
    fn from(asked: &NonResourceAttributes) -> Self {
        Self::Path {
            verb: asked.verb.clone().unwrap_or_default(),
            path: asked.path.clone().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::path;

    fn of(method: &Method, path: &str, query: &str) -> Attributes {
        Attributes::of(method, path, &path::parse(path), &Query::parse(Some(query)))
    }

    #[test]
    fn refusals_name_what_was_asked_for() {
        let maps = "/api/v1/namespaces/ns1/configmaps";
        let scale = "/apis/apps/v1/namespaces/ns1/deployments/d/scale";
        let cases = [
            (
                of(&Method::GET, &format!("{maps}/a"), ""),
                r#"configmaps "a" is forbidden: User "u" cannot get resource "configmaps" in API group "" in the namespace "ns1""#,
            ),
            (
                of(&Method::GET, maps, "watch=1"),
                r#"configmaps is forbidden: User "u" cannot watch resource "configmaps" in API group "" in the namespace "ns1""#,
            ),
            (
                of(&Method::GET, maps, "fieldSelector=metadata.name=b"),
                r#"configmaps "b" is forbidden: User "u" cannot list resource "configmaps" in API group "" in the namespace "ns1""#,
            ),
            (
                of(&Method::GET, "/api/v1/configmaps", ""),
                r#"configmaps is forbidden: User "u" cannot list resource "configmaps" in API group "" at the cluster scope"#,
            ),
            (
                of(&Method::GET, "/api/v1/namespaces/ns1", ""),
                r#"namespaces "ns1" is forbidden: User "u" cannot get resource "namespaces" in API group "" in the namespace "ns1""#,
            ),
            (
                of(&Method::PUT, scale, ""),
                r#"deployments.apps "d" is forbidden: User "u" cannot update resource "deployments/scale" in API group "apps" in the namespace "ns1""#,
            ),
            (
                of(&Method::DELETE, maps, ""),
                r#"configmaps is forbidden: User "u" cannot deletecollection resource "configmaps" in API group "" in the namespace "ns1""#,
            ),
            (
                of(&Method::GET, "/nonsense", ""),
                r#"forbidden: User "u" cannot get path "/nonsense""#,
            ),
        ];
        for (asked, message) in cases {
            assert_eq!(asked.forbidden(&UserInfo::new("u"), "").message, message);
        }
        let why = of(&Method::GET, "/x", "").forbidden(&UserInfo::new("u"), "RBAC: why");
        assert!(
            why.message.ends_with(r#""/x": RBAC: why"#),
            "{}",
            why.message
        );
    }
}
