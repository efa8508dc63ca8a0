//! Sets of field paths: what a manager owns. `FieldsV1` is their JSON form.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::element::Element;

/// A tree of paths. A path is in the set when its last step is a member of the node that the
/// steps before it lead to; that its children are in the set does not make it a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FieldSet {
    members: BTreeSet<Element>,
    /// No child is empty.
    children: BTreeMap<Element, Self>,
}

impl FieldSet {
    /// A set of paths of plain fields.
    pub(super) fn of_fields(paths: &[&[&str]]) -> Self {
        let mut set = Self::default();
        for path in paths {
            let path: Vec<Element> = path.iter().map(|name| Element::field(name)).collect();
            set.insert(&path);
        }
        set
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.is_empty()
    }

    /// Adds a path. The empty path, the whole object, is nobody's.
    pub(super) fn insert(&mut self, path: &[Element]) {
        match path {
            [] => {}
            [last] => {
                self.members.insert(last.clone());
            }
            [first, rest @ ..] => self.children.entry(first.clone()).or_default().insert(rest),
        }
    }

    /// Adds a step as a member, and all paths below it.
    pub(super) fn put(&mut self, step: Element, member: bool, below: Self) {
        if !below.is_empty() {
            self.children.insert(step.clone(), below);
        }
        if member {
            self.members.insert(step);
        }
    }

    pub(super) fn has(&self, path: &[Element]) -> bool {
        match path {
            [] => false,
            [last] => self.members.contains(last),
            [first, rest @ ..] => self.child(first).is_some_and(|c| c.has(rest)),
        }
    }

    pub(super) fn has_member(&self, step: &Element) -> bool {
        self.members.contains(step)
    }

    pub(super) fn child(&self, step: &Element) -> Option<&Self> {
        self.children.get(step)
    }

    pub(super) fn members(&self) -> impl Iterator<Item = &Element> {
        self.members.iter()
    }

    pub(super) fn children(&self) -> impl Iterator<Item = (&Element, &Self)> {
        self.children.iter()
    }

    /// Every path: at each level the members first, then what is below.
    pub(super) fn paths(&self) -> Vec<Vec<Element>> {
        let mut paths = Vec::new();
        self.collect(&mut Vec::new(), &mut paths);
        paths
    }

    fn collect(&self, at: &mut Vec<Element>, paths: &mut Vec<Vec<Element>>) {
        for member in &self.members {
            let mut path = at.clone();
            path.push(member.clone());
            paths.push(path);
        }
        for (step, child) in &self.children {
            at.push(step.clone());
            child.collect(at, paths);
            at.pop();
        }
    }

    pub(super) fn union(&self, other: &Self) -> Self {
        let mut children = self.children.clone();
        for (step, theirs) in &other.children {
            let ours = children.entry(step.clone()).or_default();
            *ours = ours.union(theirs);
        }
        Self {
            members: self.members.union(&other.members).cloned().collect(),
            children,
        }
    }

    pub(super) fn intersection(&self, other: &Self) -> Self {
        let children = self.children.iter().filter_map(|(step, ours)| {
            let both = ours.intersection(other.child(step)?);
            (!both.is_empty()).then(|| (step.clone(), both))
        });
        Self {
            members: self.members.intersection(&other.members).cloned().collect(),
            children: children.collect(),
        }
    }

    /// What is in this set and not in the other. A path in the other does not take along what
    /// is below it.
    pub(super) fn difference(&self, other: &Self) -> Self {
        self.without(other, false)
    }

    /// The same, where a path in the other takes along all that is below it.
    pub(super) fn recursive_difference(&self, other: &Self) -> Self {
        self.without(other, true)
    }

    fn without(&self, other: &Self, recursive: bool) -> Self {
        let children = self.children.iter().filter_map(|(step, ours)| {
            if recursive && other.members.contains(step) {
                return None;
            }
            let left = match other.child(step) {
                Some(theirs) => ours.without(theirs, recursive),
                None => ours.clone(),
            };
            (!left.is_empty()).then(|| (step.clone(), left))
        });
        Self {
            members: self.members.difference(&other.members).cloned().collect(),
            children: children.collect(),
        }
    }

    /// The set as `FieldsV1`.
    pub(super) fn to_json(&self) -> Value {
        let mut fields = Map::new();
        for member in &self.members {
            fields.insert(member.text(), json!({}));
        }
        for (step, child) in &self.children {
            let mut below = child.to_json();
            if self.members.contains(step) {
                below["."] = json!({});
            }
            fields.insert(step.text(), below);
        }
        Value::Object(fields)
    }

    /// Reads `FieldsV1`.
    ///
    /// # Errors
    ///
    /// Fails on keys that are no steps and on values that are no objects.
    pub(super) fn from_json(fields: &Value) -> Result<Self, String> {
        let mut set = Self::default();
        for (key, below) in object(fields)? {
            if key == "." {
                continue;
            }
            let Some(step) = Element::parse(key)? else {
                continue;
            };
            let child = Self::from_json(below)?;
            let member = child.is_empty() || object(below)?.contains_key(".");
            set.put(step, member, child);
        }
        Ok(set)
    }
}

fn object(fields: &Value) -> Result<&Map<String, Value>, String> {
    fields
        .as_object()
        .ok_or_else(|| format!("{fields} is no set of fields"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(fields: &Value) -> FieldSet {
        FieldSet::from_json(fields).unwrap()
    }

    #[test]
    fn sets_survive_a_round_trip() {
        let fields = json!({
            "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
            "f:spec": {
                "f:containers": {"k:{\"name\":\"a\"}": {".": {}, "f:image": {}}},
                "f:finalizers": {"v:\"x\"": {}},
                "f:replicas": {},
            },
        });
        assert_eq!(set(&fields).to_json(), fields);
        assert!(set(&json!({})).is_empty());
        let text: Vec<String> = set(&fields)
            .paths()
            .iter()
            .map(|p| super::super::element::path_text(p))
            .collect();
        assert_eq!(
            text,
            [
                ".metadata.labels",
                ".metadata.labels.app",
                ".spec.replicas",
                ".spec.containers[name=\"a\"]",
                ".spec.containers[name=\"a\"].image",
                ".spec.finalizers[=\"x\"]",
            ]
        );
    }

    #[test]
    fn unknown_steps_are_dropped_and_damage_is_refused() {
        assert_eq!(
            set(&json!({"z:1": {}, "f:a": {}})).to_json(),
            json!({"f:a": {}})
        );
        for fields in [json!([]), json!({"a": {}}), json!({"f:a": 1})] {
            assert!(FieldSet::from_json(&fields).is_err(), "{fields}");
        }
    }

    #[test]
    fn sets_combine() {
        let a = set(&json!({"f:a": {".": {}, "f:b": {}}, "f:c": {}, "f:d": {"f:e": {}}}));
        let b = set(&json!({"f:a": {}, "f:d": {"f:e": {}, "f:f": {}}}));
        assert_eq!(
            a.union(&b).to_json(),
            json!({"f:a": {".": {}, "f:b": {}}, "f:c": {}, "f:d": {"f:e": {}, "f:f": {}}})
        );
        assert_eq!(
            a.intersection(&b).to_json(),
            json!({"f:a": {}, "f:d": {"f:e": {}}})
        );
        assert_eq!(
            a.difference(&b).to_json(),
            json!({"f:a": {"f:b": {}}, "f:c": {}})
        );
        assert_eq!(a.recursive_difference(&b).to_json(), json!({"f:c": {}}));
    }

    #[test]
    fn membership_is_not_inherited() {
        let set = FieldSet::of_fields(&[&["a", "b"]]);
        let path = [Element::field("a"), Element::field("b")];
        assert!(set.has(&path));
        assert!(!set.has(&path[..1]));
        assert!(!set.has(&[]));
    }
}
