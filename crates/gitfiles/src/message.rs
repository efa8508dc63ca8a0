//! What a commit says of the objects in it.

use std::fmt;

use crate::layout::ObjectName;

/// How many objects a message lists.
const LISTED: usize = 100;

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// It is new.
    Create,
    /// It changed.
    Update,
    /// It is gone.
    Delete,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        })
    }
}

/// The message for a commit of `objects`.
///
/// One object is a line, such as `[CREATE] apps/v1/deployments/prod/web`. Several are counted in the
/// first line and listed below it, up to 100.
pub fn message(objects: &[(Operation, ObjectName)]) -> String {
    if let [(operation, object)] = objects {
        return format!("[{operation}] {}", shown(object));
    }
    let count = |wanted| {
        objects
            .iter()
            .filter(|(operation, _)| *operation == wanted)
            .count()
    };
    let counts = [
        (count(Operation::Create), "created"),
        (count(Operation::Update), "updated"),
        (count(Operation::Delete), "deleted"),
    ];
    let counts: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    let mut lines = vec![
        format!("{} objects: {}", objects.len(), counts.join(", ")),
        String::new(),
    ];
    lines.extend(
        objects
            .iter()
            .take(LISTED)
            .map(|(operation, object)| format!("[{operation}] {}", shown(object))),
    );
    if let Some(more) = objects.len().checked_sub(LISTED).filter(|more| *more > 0) {
        lines.push(format!("and {more} more"));
    }
    lines.join("\n")
}

fn shown(object: &ObjectName) -> String {
    let group = Some(object.group.as_str()).filter(|group| !group.is_empty());
    let parts = [
        group,
        Some(object.version.as_str()),
        Some(object.resource.as_str()),
        object.namespace.as_deref(),
        Some(object.name.as_str()),
    ];
    let path = parts.into_iter().flatten().collect::<Vec<_>>().join("/");
    // A name must not begin a line of its own.
    let mut text = String::with_capacity(path.len());
    for character in path.chars() {
        if character.is_control() {
            text.extend(character.escape_default());
        } else {
            text.push(character);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(group: &str, resource: &str, namespace: Option<&str>, name: &str) -> ObjectName {
        ObjectName {
            group: group.to_owned(),
            version: "v1".to_owned(),
            resource: resource.to_owned(),
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        }
    }

    #[test]
    fn one_object_is_one_line() {
        let web = object("apps", "deployments", Some("prod"), "web");
        assert_eq!(
            message(&[(Operation::Create, web)]),
            "[CREATE] apps/v1/deployments/prod/web"
        );
        let pod = object("", "pods", Some("prod"), "app-pod");
        assert_eq!(
            message(&[(Operation::Update, pod)]),
            "[UPDATE] v1/pods/prod/app-pod"
        );
        let namespace = object("", "namespaces", None, "test-namespace");
        assert_eq!(
            message(&[(Operation::Delete, namespace)]),
            "[DELETE] v1/namespaces/test-namespace"
        );
        let odd = object("", "pods", None, "a\nb");
        assert_eq!(
            message(&[(Operation::Delete, odd)]),
            "[DELETE] v1/pods/a\\nb"
        );
    }

    #[test]
    fn several_are_counted_and_listed() {
        let pod = |name| object("", "pods", Some("prod"), name);
        assert_eq!(
            message(&[
                (Operation::Create, pod("a")),
                (Operation::Delete, pod("b")),
                (Operation::Create, object("", "nodes", None, "c")),
            ]),
            "3 objects: 2 created, 1 deleted\n\n\
             [CREATE] v1/pods/prod/a\n[DELETE] v1/pods/prod/b\n[CREATE] v1/nodes/c"
        );
    }

    #[test]
    fn the_list_is_bounded() {
        let pods = |count| {
            let pod = (Operation::Update, object("", "pods", None, "a"));
            message(&vec![pod; count])
        };
        let all = pods(100);
        assert_eq!(all.lines().count(), 102);
        assert!(!all.contains("more"));
        let some = pods(103);
        assert_eq!(some.lines().count(), 103);
        assert!(some.ends_with("\nand 3 more"));
    }
}
