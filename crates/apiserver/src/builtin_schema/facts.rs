//! What the Rust types do not tell about the built-in types: how their lists and maps merge,
//! and which fields Go writes even when they are empty.
//!
//! `facts.txt` has it for each definition, one field a line; `typing/generate` makes it from
//! the Kubernetes release that the tests run against.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use crate::schema::{MAP_TYPE, ZEROS};

/// Facts of a definition: a field (`.` for the definition itself) with what is known of it.
type Facts = Vec<(&'static str, Vec<(&'static str, &'static str)>)>;

static FACTS: LazyLock<HashMap<&'static str, Facts>> =
    LazyLock::new(|| parse(include_str!("facts.txt")));

fn parse(text: &'static str) -> HashMap<&'static str, Facts> {
    let mut all: HashMap<&str, Facts> = HashMap::new();
    let mut name = "";
    for line in text.lines().filter(|l| !l.starts_with('#')) {
        if let Some(next) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            name = next;
            continue;
        }
        let mut words = line.split(' ');
        let field = words.next().unwrap_or_default();
        let facts = words.filter_map(|w| w.split_once('=')).collect();
        all.entry(name).or_default().push((field, facts));
    }
    all
}

/// Calls `change` with every definition of a document that there are facts of.
fn for_each(document: &mut Value, mut change: impl FnMut(&mut Map<String, Value>, &Facts)) {
    // The root carries its name as its title.
    let root = document["title"].as_str().and_then(|t| FACTS.get(t));
    if let (Some(facts), Some(definition)) = (root, document.as_object_mut()) {
        change(definition, facts);
    }
    let named = document.get_mut("$defs").and_then(Value::as_object_mut);
    for (name, definition) in named.into_iter().flatten() {
        if let (Some(facts), Some(definition)) =
            (FACTS.get(name.as_str()), definition.as_object_mut())
        {
            change(definition, facts);
        }
    }
}

/// Adds how lists and maps merge, as the real server's documents tell it.
pub(super) fn add_types(document: &mut Value) {
    for_each(document, |definition, facts| {
        for (field, facts) in facts {
            let place = match *field {
                "." => Some(&mut *definition),
                field => definition
                    .get_mut("properties")
                    .and_then(|p| p.get_mut(field))
                    .and_then(Value::as_object_mut),
            };
            // The Rust types may be of a later release, without the field.
            let Some(place) = place else { continue };
            for (fact, value) in facts {
                for (name, value) in extensions(fact, value) {
                    place.insert(name.to_owned(), value);
                }
            }
        }
    });
}

/// A fact as members of a schema document.
fn extensions(fact: &str, value: &str) -> Vec<(&'static str, Value)> {
    const LIST_TYPE: &str = "x-kubernetes-list-type";
    match (fact, value) {
        ("list", "set") => vec![(LIST_TYPE, json!("set"))],
        ("list", keys) => {
            let keys: Vec<&str> = keys.split(',').collect();
            vec![
                (LIST_TYPE, json!("map")),
                ("x-kubernetes-list-map-keys", json!(keys)),
            ]
        }
        ("map", kind) => vec![(MAP_TYPE, json!(kind))],
        ("merge", "set") => vec![("x-kubernetes-patch-strategy", json!("merge"))],
        ("merge", key) => vec![
            ("x-kubernetes-patch-merge-key", json!(key)),
            ("x-kubernetes-patch-strategy", json!("merge")),
        ],
        ("default", value) => vec![("default", literal(value))],
        _ => Vec::new(),
    }
}

fn literal(text: &str) -> Value {
    serde_json::from_str(text).expect("facts.txt has JSON literals")
}

/// Adds the empty values of fields that are always written.
pub(super) fn add_zeros(document: &mut Value) {
    for_each(document, |definition, facts| {
        let zeros: Map<String, Value> = facts
            .iter()
            .filter_map(|(field, facts)| {
                let (_, zero) = facts.iter().find(|(fact, _)| *fact == "zero")?;
                Some(((*field).to_owned(), literal(zero)))
            })
            .collect();
        if !zeros.is_empty() {
            definition.insert(ZEROS.to_owned(), Value::Object(zeros));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin::BUILTINS;
    use crate::schema::{ListType, MapType, PatchMerge, Schema};

    fn schema(kind: &str) -> Schema {
        let builtin = BUILTINS.iter().find(|b| b.kind == kind).unwrap();
        super::super::compiled(builtin).unwrap()
    }

    fn at<'a>(schema: &'a Schema, path: &str) -> &'a Schema {
        path.split('.').fold(schema, |schema, name| {
            let schema = schema.items.as_deref().unwrap_or(schema);
            schema.property(name).unwrap()
        })
    }

    fn keys(names: &[&str]) -> ListType {
        ListType::Map(names.iter().map(|n| (*n).to_owned()).collect())
    }

    #[test]
    fn lists_and_maps_of_built_in_types_merge_as_kubernetes_says() {
        let deployment = schema("Deployment");
        let list = |path: &str| at(&deployment, path).list_type.clone();
        assert_eq!(list("spec.template.spec.containers"), keys(&["name"]));
        assert_eq!(
            list("spec.template.spec.containers.ports"),
            keys(&["containerPort", "protocol"])
        );
        assert_eq!(list("spec.template.spec.containers.args"), ListType::Atomic);
        assert_eq!(list("metadata.finalizers"), ListType::Set);
        assert_eq!(list("metadata.ownerReferences"), keys(&["uid"]));
        assert_eq!(at(&deployment, "spec.selector").map_type, MapType::Atomic);
        assert_eq!(
            at(&deployment, "spec.template.spec.nodeSelector").map_type,
            MapType::Atomic
        );
        assert_eq!(at(&deployment, "spec.template").map_type, MapType::Granular);
        let protocol = at(&deployment, "spec.template.spec.containers.ports.protocol");
        assert_eq!(protocol.default, Some(json!("TCP")));
        let volume = schema("PersistentVolume");
        assert_eq!(at(&volume, "spec.claimRef").map_type, MapType::Granular);
    }

    #[test]
    fn lists_know_their_strategic_merge_key() {
        let deployment = schema("Deployment");
        let merge = |path: &str| at(&deployment, path).patch_merge.clone();
        assert_eq!(
            merge("spec.template.spec.containers.ports"),
            Some(PatchMerge::Key("containerPort".to_owned()))
        );
        assert_eq!(merge("metadata.finalizers"), Some(PatchMerge::Set));
        assert_eq!(merge("spec.template.spec.tolerations"), None);
    }

    #[test]
    fn fields_that_are_always_written_are_known() {
        let zeros: Vec<String> = schema("Deployment")
            .zeros
            .into_iter()
            .map(|(f, _)| f)
            .collect();
        assert_eq!(zeros, ["metadata", "spec", "status"]);
    }
}
