//! What a request path names.

/// The thing that a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// `/version`, `/healthz` and other paths that are no resources.
    Plain(String),
    /// `/api`
    CoreVersions,
    /// `/apis`
    Groups,
    /// `/apis/<group>`
    Group(String),
    /// `/api/v1`, `/apis/<group>/<version>`
    GroupVersion { group: String, version: String },
    /// Anything below a group version.
    Resource(ResourcePath),
}

/// A path to objects, or to one object, or to a subresource of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResourcePath {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) namespace: Option<String>,
    pub(crate) plural: String,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
}

/// Subresources of a namespace itself; anything else below it is a namespaced resource.
const NAMESPACE_SUBRESOURCES: [&str; 2] = ["status", "finalize"];

/// Parses a path; escapes are decoded per segment.
pub(crate) fn parse(path: &str) -> Target {
    let segments: Vec<String> = path
        .split('/')
        .filter(|s| !s.is_empty())
        .map(super::query::decode_percent)
        .collect();
    let parts: Vec<&str> = segments.iter().map(String::as_str).collect();
    match parts.as_slice() {
        ["api"] => Target::CoreVersions,
        ["apis"] => Target::Groups,
        ["api", version] => Target::GroupVersion {
            group: String::new(),
            version: owned(version),
        },
        ["api", version, rest @ ..] => resource("", version, rest, path),
        ["apis", group] => Target::Group(owned(group)),
        ["apis", group, version] => Target::GroupVersion {
            group: owned(group),
            version: owned(version),
        },
        ["apis", group, version, rest @ ..] => resource(group, version, rest, path),
        _ => Target::Plain(path.to_owned()),
    }
}

fn owned(text: &&str) -> String {
    (*text).to_owned()
}

fn resource(group: &str, version: &str, rest: &[&str], path: &str) -> Target {
    let mut target = ResourcePath {
        group: group.to_owned(),
        version: version.to_owned(),
        ..ResourcePath::default()
    };
    let own = match rest {
        ["namespaces", namespace, plural, ..]
            if !(group.is_empty() && NAMESPACE_SUBRESOURCES.contains(plural)) =>
        {
            target.namespace = Some(owned(namespace));
            &rest[2..]
        }
        _ => rest,
    };
    match own {
        [plural] => target.plural = owned(plural),
        [plural, name] => {
            target.plural = owned(plural);
            target.name = Some(owned(name));
        }
        [plural, name, subresource] => {
            target.plural = owned(plural);
            target.name = Some(owned(name));
            target.subresource = Some(owned(subresource));
        }
        _ => return Target::Plain(path.to_owned()),
    }
    Target::Resource(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(
        group: &str,
        namespace: Option<&str>,
        plural: &str,
        name: Option<&str>,
        subresource: Option<&str>,
    ) -> Target {
        Target::Resource(ResourcePath {
            group: group.to_owned(),
            version: "v1".to_owned(),
            namespace: namespace.map(str::to_owned),
            plural: plural.to_owned(),
            name: name.map(str::to_owned),
            subresource: subresource.map(str::to_owned),
        })
    }

    #[test]
    fn paths_name_resources() {
        let cases = [
            (
                "/api/v1/namespaces",
                path("", None, "namespaces", None, None),
            ),
            (
                "/api/v1/namespaces/a",
                path("", None, "namespaces", Some("a"), None),
            ),
            (
                "/api/v1/namespaces/a/finalize",
                path("", None, "namespaces", Some("a"), Some("finalize")),
            ),
            (
                "/api/v1/namespaces/a/pods",
                path("", Some("a"), "pods", None, None),
            ),
            (
                "/api/v1/namespaces/a/pods/b",
                path("", Some("a"), "pods", Some("b"), None),
            ),
            (
                "/apis/apps/v1/namespaces/a/deployments/b/scale",
                path("apps", Some("a"), "deployments", Some("b"), Some("scale")),
            ),
            (
                "/apis/apps/v1/deployments",
                path("apps", None, "deployments", None, None),
            ),
            (
                "/apis/rbac/v1/clusterroles/system%3Anode",
                path("rbac", None, "clusterroles", Some("system:node"), None),
            ),
            ("/apis/apps", Target::Group("apps".to_owned())),
            ("/api", Target::CoreVersions),
            ("/apis/", Target::Groups),
            (
                "/apis/apps/v1",
                Target::GroupVersion {
                    group: "apps".to_owned(),
                    version: "v1".to_owned(),
                },
            ),
            ("/healthz", Target::Plain("/healthz".to_owned())),
        ];
        for (text, want) in cases {
            assert_eq!(parse(text), want, "{text}");
        }
    }
}
