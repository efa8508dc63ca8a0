//! Where an object of Kubernetes is in the repository:
//! `[group/]version/resource/[namespace/]name.yaml`, without a group for the core's.
//!
//! A name may have what a file name may not, on Windows at least: `system:node`, `aux`. Such
//! characters are written as `%` and the two digits of each byte, as in URLs. No name of
//! Kubernetes has a `%`, so that the way back is unambiguous.

use std::fmt::Write as _;

use crate::path::{FilePath, PathError, is_ignored_by_hfs, is_reserved};

/// What every file ends in.
const SUFFIX: &str = ".yaml";
/// The only version of the core group. What tells a path with a group from one without.
const CORE_VERSION: &str = "v1";

/// What names an object in the repository.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectName {
    /// The API group, empty for the core's.
    pub group: String,
    /// The version, such as `v1`.
    pub version: String,
    /// The plural of the resource, such as `deployments`.
    pub resource: String,
    /// The namespace, of objects that have one.
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
}

impl ObjectName {
    /// The path of the object's file, below the base folder.
    ///
    /// # Errors
    ///
    /// A part is empty, a name is too long for a file (250 bytes with what the encoding adds), or
    /// group and version could not be told apart: a group `v1`, or a core group in another version.
    pub fn path(&self) -> Result<FilePath, PathError> {
        let name = encode(&self.name, SUFFIX);
        let mut segments = Vec::with_capacity(5);
        if !self.group.is_empty() {
            segments.push(encode(&self.group, ""));
        }
        segments.push(encode(&self.version, ""));
        segments.push(encode(&self.resource, ""));
        segments.extend(
            self.namespace
                .as_deref()
                .map(|namespace| encode(namespace, "")),
        );
        segments.push(format!("{name}{SUFFIX}"));
        let path = segments.join("/");
        if name.is_empty() {
            let reason = "the name of the object is empty";
            return Err(PathError { path, reason });
        }
        if self.group.is_empty() != (segments[0] == CORE_VERSION) {
            let reason = "v1 is the core group's only version, and no group";
            return Err(PathError { path, reason });
        }
        FilePath::new(path)
    }

    /// The object that `path` is for, if it is one that [`Self::path`] gives.
    pub fn parse(path: &FilePath) -> Option<Self> {
        let mut segments: Vec<&str> = path.segments().collect();
        let name = decode(segments.pop()?.strip_suffix(SUFFIX)?)?;
        let group = match segments.first() {
            Some(&CORE_VERSION) => String::new(),
            Some(_) => decode(segments.remove(0))?,
            None => return None,
        };
        let (version, resource, namespace) = match segments[..] {
            [version, resource] => (version, resource, None),
            [version, resource, namespace] => (version, resource, Some(decode(namespace)?)),
            _ => return None,
        };
        let parsed = Self {
            group,
            version: decode(version)?,
            resource: decode(resource)?,
            namespace,
            name,
        };
        // Another way to write the same name is a file of someone else.
        (parsed.path().as_ref() == Ok(path)).then_some(parsed)
    }
}

/// `text` as a segment that ends in `suffix`, so that the two together can be held everywhere.
fn encode(text: &str, suffix: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    let last = text.char_indices().last().map(|(at, _)| at);
    for (at, character) in text.char_indices() {
        let is_cut_off = suffix.is_empty() && Some(at) == last && matches!(character, '.' | ' ');
        if is_cut_off
            || is_reserved(character)
            || is_ignored_by_hfs(character)
            || matches!(character, '%' | '/')
        {
            escape(&mut encoded, character);
        } else {
            encoded.push(character);
        }
    }
    // What is left are names that mean something as a whole: devices, Git's own folder.
    if encoded.len() + suffix.len() <= 255 && FilePath::new(format!("{encoded}{suffix}")).is_err() {
        let mut characters = encoded.chars();
        if let Some(first) = characters.next() {
            let mut escaped = String::new();
            escape(&mut escaped, first);
            return escaped + characters.as_str();
        }
    }
    encoded
}

fn escape(to: &mut String, character: char) {
    for byte in character.encode_utf8(&mut [0; 4]).bytes() {
        // Writing to a String does not fail.
        let _ = write!(to, "%{byte:02X}");
    }
}

fn decode(segment: &str) -> Option<String> {
    let mut decoded = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let [byte, after @ ..] = rest {
        rest = after;
        if *byte != b'%' {
            decoded.push(*byte);
            continue;
        }
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let [high, low, after @ ..] = rest else {
            return None;
        };
        decoded.push(u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()?);
        rest = after;
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn object(
        group: &str,
        version: &str,
        resource: &str,
        namespace: &str,
        name: &str,
    ) -> ObjectName {
        ObjectName {
            group: group.to_owned(),
            version: version.to_owned(),
            resource: resource.to_owned(),
            namespace: (!namespace.is_empty()).then(|| namespace.to_owned()),
            name: name.to_owned(),
        }
    }

    #[test]
    fn gives_the_paths_of_the_layout() {
        for (name, expected) in [
            (
                object("", "v1", "pods", "default", "nginx"),
                "v1/pods/default/nginx.yaml",
            ),
            (
                object("", "v1", "nodes", "", "worker-1"),
                "v1/nodes/worker-1.yaml",
            ),
            (
                object("apps", "v1", "deployments", "production", "app"),
                "apps/v1/deployments/production/app.yaml",
            ),
            (
                object(
                    "rbac.authorization.k8s.io",
                    "v1",
                    "clusterroles",
                    "",
                    "admin",
                ),
                "rbac.authorization.k8s.io/v1/clusterroles/admin.yaml",
            ),
            (
                object("example.com", "v1alpha1", "myapps", "prod", "instance"),
                "example.com/v1alpha1/myapps/prod/instance.yaml",
            ),
            (
                object(
                    "rbac.authorization.k8s.io",
                    "v1",
                    "clusterroles",
                    "",
                    "system:node",
                ),
                "rbac.authorization.k8s.io/v1/clusterroles/system%3Anode.yaml",
            ),
            (
                object("", "v1", "pods", "con", "aux.x"),
                "v1/pods/%63on/%61ux.x.yaml",
            ),
            (
                object("", "v1", "pods", ".git", "a."),
                "v1/pods/%2Egit/a..yaml",
            ),
            (
                object("", "v1", "pods", "..", "a\u{200c}"),
                "v1/pods/.%2E/a%E2%80%8C.yaml",
            ),
        ] {
            let path = name.path().unwrap();
            assert_eq!(path.as_str(), expected);
            assert_eq!(ObjectName::parse(&path), Some(name));
        }
    }

    #[test]
    fn refuses_what_has_no_path_of_its_own() {
        for (name, part) in [
            (object("v1", "pods", "x", "", "a"), "core group"),
            (object("", "v2", "pods", "", "a"), "core group"),
            (object("", "v1", "", "", "a"), "empty"),
            (object("", "v1", "pods", "a", ""), "empty"),
            (
                object("", "v1", "pods", "", &"a".repeat(251)),
                "longer than 255",
            ),
        ] {
            let error = name.path().unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        assert!(
            object("", "v1", "pods", "", &"a".repeat(250))
                .path()
                .is_ok()
        );
    }

    #[test]
    fn files_of_others_are_no_objects() {
        for path in [
            "README.md",
            "a.yaml",
            "v1/a.yaml",
            "v1/pods/a.yml",
            "v1/pods/a/b/c.yaml",
            "apps/v1/a.yaml",
            "apps/v1/deployments/a/b/c.yaml",
            "v1/pods/%6Eginx.yaml",
            "v1/pods/system%3anode.yaml",
            "v1/pods/a%.yaml",
            "v1/pods/a%FF.yaml",
            "v1/pods/.yaml",
            "%761/v1/pods/a.yaml",
        ] {
            assert_eq!(
                ObjectName::parse(&FilePath::new(path).unwrap()),
                None,
                "{path}"
            );
        }
    }

    /// Text that is likely to need an encoding.
    fn text() -> impl Strategy<Value = String> {
        prop_oneof![
            "[a-z0-9.:%/ A-Z]{1,12}",
            "(con|aux|nul|com1|lpt9|\\.git|git~1|\\.|\\.\\.)([. ].{0,3})?",
            ".{1,12}",
        ]
    }

    fn names() -> impl Strategy<Value = ObjectName> {
        let api = prop_oneof![
            Just((String::new(), "v1".to_owned())),
            (
                text().prop_filter("v1 is no group", |group| group != "v1"),
                text()
            ),
        ];
        (api, text(), proptest::option::of(text()), text()).prop_map(
            |((group, version), resource, namespace, name)| ObjectName {
                group,
                version,
                resource,
                namespace,
                name,
            },
        )
    }

    proptest! {
        #[test]
        fn every_object_has_a_path_that_leads_back_to_it(name in names()) {
            let path = name.path().unwrap();
            prop_assert_eq!(ObjectName::parse(&path), Some(name));
        }

        #[test]
        fn every_path_that_leads_to_an_object_is_its_own(path in "(apps/)?v1/[a-z%0-9]{1,6}(/[a-z%0-9A-F.]{1,6})?/[a-z%0-9A-F.]{1,6}\\.yaml") {
            if let Ok(path) = FilePath::new(path)
                && let Some(name) = ObjectName::parse(&path)
            {
                prop_assert_eq!(name.path().unwrap(), path);
            }
        }
    }
}
