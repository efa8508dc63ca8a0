//! What changed between two states of an object, as sets of paths.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::element::{Element, same};
use super::set::FieldSet;
use super::shape::{Form, ListForm, MapForm, Place};

/// The paths that came, changed and went.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    pub(super) added: FieldSet,
    pub(super) modified: FieldSet,
    pub(super) removed: FieldSet,
}

impl Comparison {
    /// Compares two states of an object.
    pub(super) fn of(place: Place<'_>, old: &Value, new: &Value) -> Self {
        let mut comparison = Self::default();
        comparison.compare(place, Some(old), Some(new), &mut Vec::new());
        comparison
    }

    /// Takes out fields that the server does not let this kind of write change.
    pub(super) fn without(self, ignored: &FieldSet) -> Self {
        Self {
            added: self.added.recursive_difference(ignored),
            modified: self.modified.recursive_difference(ignored),
            removed: self.removed.recursive_difference(ignored),
        }
    }

    /// The paths whose value is new.
    pub(super) fn set(&self) -> FieldSet {
        self.modified.union(&self.added)
    }

    fn compare(
        &mut self,
        place: Place<'_>,
        old: Option<&Value>,
        new: Option<&Value>,
        at: &mut Vec<Element>,
    ) {
        let known = |value: Option<&Value>| value.is_some_and(|v| !v.is_null());
        let old_form = place.form(if known(old) { old } else { new });
        let new_form = place.form(if known(new) { new } else { old });
        let leaf = if old_form.is_like(&new_form) {
            self.walk(new_form, old, new, at)
        } else {
            // A value of another form: everything of the one goes, everything of the other comes.
            self.walk(old_form, old, new, at);
            self.walk(new_form, old, new, at)
        };
        if !leaf {
            match (old, new) {
                (None, _) => self.added.insert(at),
                (_, None) => self.removed.insert(at),
                _ => {}
            }
        }
    }

    /// Compares two values of one form; true when they were compared as wholes.
    fn walk(
        &mut self,
        form: Form<'_>,
        old: Option<&Value>,
        new: Option<&Value>,
        at: &mut Vec<Element>,
    ) -> bool {
        match form {
            Form::Map(map) => {
                let (a, b) = (fields(old), fields(new));
                if !(a.is_none_or(Map::is_empty) && b.is_none_or(Map::is_empty)) {
                    self.maps(map, a, b, at);
                    return false;
                }
            }
            Form::List(list) => {
                let (a, b) = (items(old), items(new));
                if !(a.is_empty() && b.is_empty()) {
                    self.lists(&list, a, b, at);
                    return false;
                }
            }
            Form::Leaf => {}
        }
        match (old, new) {
            (None, _) => self.added.insert(at),
            (_, None) => self.removed.insert(at),
            (Some(old), Some(new)) if !same(old, new) => self.modified.insert(at),
            _ => {}
        }
        true
    }

    fn maps(
        &mut self,
        map: MapForm<'_>,
        old: Option<&Map<String, Value>>,
        new: Option<&Map<String, Value>>,
        at: &mut Vec<Element>,
    ) {
        let of = |side: Option<&'_ Map<String, Value>>| -> Vec<String> {
            side.into_iter().flat_map(Map::keys).cloned().collect()
        };
        let mut names = of(old);
        names.extend(of(new));
        names.sort();
        names.dedup();
        for name in names {
            let (place, _) = map.field(&name).unwrap_or((Place::Deduced, false));
            let (a, b) = (
                old.and_then(|o| o.get(&name)),
                new.and_then(|n| n.get(&name)),
            );
            at.push(Element::Field(name));
            self.compare(place, a, b, at);
            at.pop();
        }
    }

    fn lists(&mut self, list: &ListForm<'_>, old: &[Value], new: &[Value], at: &mut Vec<Element>) {
        let mut pairs: BTreeMap<Element, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
        for item in old {
            if let Ok(step) = list.step(item) {
                pairs.entry(step).or_default().0.push(item);
            }
        }
        for item in new {
            if let Ok(step) = list.step(item) {
                pairs.entry(step).or_default().1.push(item);
            }
        }
        for (step, (old, new)) in pairs {
            at.push(step);
            match (old.as_slice(), new.as_slice()) {
                ([] | [_], [] | [_]) => {
                    self.compare(list.item, old.first().copied(), new.first().copied(), at);
                }
                // Duplicates count as one value.
                ([_, _, ..], [_, _, ..]) => {
                    let equal =
                        old.len() == new.len() && old.iter().zip(&new).all(|(a, b)| same(a, b));
                    if !equal {
                        self.modified.insert(at);
                    }
                }
                ([_, _, ..], _) => {
                    if let Some(new) = new.first() {
                        self.compare(list.item, None, Some(new), at);
                    }
                    self.removed.insert(at);
                }
                (_, [_, _, ..]) => {
                    if let Some(old) = old.first() {
                        self.compare(list.item, Some(old), None, at);
                    }
                    self.added.insert(at);
                }
            }
            at.pop();
        }
    }
}

fn fields(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value.and_then(Value::as_object)
}

fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::super::shape::samples;
    use super::*;
    use serde_json::json;

    #[test]
    fn changes_are_told_by_path() {
        let schema = samples::schema();
        let place = Place::object(Some(&schema));
        let none = json!({});
        // old, new, then what was added, modified and removed.
        let cases = [
            (
                json!({"size": 1}),
                json!({"size": 1.0}),
                none.clone(),
                none.clone(),
                none.clone(),
            ),
            (
                json!({"size": 1, "args": ["a"]}),
                json!({"size": 2, "args": ["b"]}),
                none.clone(),
                json!({"f:size": {}, "f:args": {}}),
                none.clone(),
            ),
            (
                json!({"tags": {"a": "1"}}),
                json!({"tags": {"b": "1"}}),
                json!({"f:tags": {"f:b": {}}}),
                none.clone(),
                json!({"f:tags": {"f:a": {}}}),
            ),
            (
                json!({}),
                json!({"tags": {"a": "1"}, "names": ["x"]}),
                json!({"f:tags": {".": {}, "f:a": {}}, "f:names": {".": {}, "v:\"x\"": {}}}),
                none.clone(),
                none.clone(),
            ),
            (
                json!({"parts": [{"name": "a", "count": 1}]}),
                json!({"parts": [{"name": "b"}, {"name": "a", "kind": "plain", "count": 2}]}),
                json!({"f:parts": {
                    "k:{\"kind\":\"plain\",\"name\":\"a\"}": {"f:kind": {}},
                    "k:{\"kind\":\"plain\",\"name\":\"b\"}": {".": {}, "f:name": {}},
                }}),
                json!({"f:parts": {"k:{\"kind\":\"plain\",\"name\":\"a\"}": {"f:count": {}}}}),
                none.clone(),
            ),
            // Order is nobody's.
            (
                json!({"names": ["a", "b"]}),
                json!({"names": ["b", "a"]}),
                none.clone(),
                none.clone(),
                none.clone(),
            ),
            (
                json!({"names": ["a"]}),
                json!({"names": ["a", "a"]}),
                json!({"f:names": {"v:\"a\"": {}}}),
                none.clone(),
                json!({"f:names": {"v:\"a\"": {}}}),
            ),
            (
                json!({"free": {"a": {"b": 1}}}),
                json!({"free": {"a": 5}}),
                none.clone(),
                json!({"f:free": {"f:a": {}}}),
                json!({"f:free": {"f:a": {"f:b": {}}}}),
            ),
            (
                json!({"tags": {}}),
                json!({"tags": null}),
                none.clone(),
                json!({"f:tags": {}}),
                none,
            ),
        ];
        let wrap = |fields: Value| match &fields {
            Value::Object(inner) if inner.is_empty() => fields,
            _ => json!({"f:spec": fields}),
        };
        for (old, new, added, modified, removed) in cases {
            let comparison = Comparison::of(place, &json!({"spec": old}), &json!({"spec": new}));
            assert_eq!(
                comparison.added.to_json(),
                wrap(added),
                "added: {old} {new}"
            );
            assert_eq!(
                comparison.modified.to_json(),
                wrap(modified),
                "modified: {old} {new}"
            );
            assert_eq!(
                comparison.removed.to_json(),
                wrap(removed),
                "removed: {old} {new}"
            );
        }
    }

    #[test]
    fn fields_that_cannot_change_are_left_out_with_all_below() {
        let change = Comparison::of(
            Place::Deduced,
            &json!({}),
            &json!({"status": {"a": 1}, "spec": 1}),
        );
        let left = change.without(&FieldSet::of_fields(&[&["status"]]));
        assert_eq!(left.added.to_json(), json!({"f:spec": {}}));
    }
}
