//! Merging an applied object into the live one, and taking fields out of an object.

use std::collections::{BTreeMap, VecDeque};

use serde_json::{Map, Value};

use super::element::Element;
use super::set::FieldSet;
use super::shape::{Form, ListForm, Place};

/// The live object with everything that `applied` mentions set as it says. Nothing goes.
pub(super) fn merge(place: Place<'_>, live: &Value, applied: &Value) -> Value {
    merged(place, Some(live), Some(applied)).unwrap_or(Value::Null)
}

fn merged(place: Place<'_>, live: Option<&Value>, applied: Option<&Value>) -> Option<Value> {
    let known = |value: Option<&Value>| value.is_some_and(|v| !v.is_null());
    let form = place.form(if known(applied) { applied } else { live });
    match form {
        Form::Map(map) => {
            let (a, b) = (fields(live), fields(applied));
            if a.is_some() || b.is_some() {
                let mut out = Map::new();
                let mut names: Vec<&String> = a.into_iter().chain(b).flat_map(Map::keys).collect();
                names.sort();
                names.dedup();
                for name in names {
                    let (place, _) = map.field(name).unwrap_or((Place::Deduced, false));
                    let pair = (a.and_then(|a| a.get(name)), b.and_then(|b| b.get(name)));
                    if let Some(value) = merged(place, pair.0, pair.1) {
                        out.insert(name.clone(), value);
                    }
                }
                return Some(Value::Object(out));
            }
        }
        Form::List(list) => {
            let (a, b) = (items(live), items(applied));
            if !(a.is_empty() && b.is_empty()) {
                return Some(Value::Array(merged_items(&list, a, b)));
            }
        }
        Form::Leaf => {}
    }
    applied.or(live).cloned()
}

fn fields(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value.and_then(Value::as_object).filter(|o| !o.is_empty())
}

fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The items of both lists. What only the live list has stays where it is relative to the items
/// that both have; these are in the order of the applied list.
fn merged_items(list: &ListForm<'_>, live: &[Value], applied: &[Value]) -> Vec<Value> {
    let steps = |items: &[Value]| -> Vec<(Element, Value)> {
        let steps = items.iter();
        steps
            .filter_map(|item| Some((list.step(item).ok()?, item.clone())))
            .collect()
    };
    let (live, applied) = (steps(live), steps(applied));
    let wanted: BTreeMap<&Element, &Value> = applied.iter().map(|(s, v)| (s, v)).collect();
    let mut existing: BTreeMap<&Element, &Value> = BTreeMap::new();
    for (step, item) in &live {
        // Of duplicates none is the one to merge with.
        existing
            .entry(step)
            .and_modify(|found| *found = &Value::Null)
            .or_insert(item);
    }
    let mut shared: VecDeque<&Element> = applied
        .iter()
        .map(|(step, _)| step)
        .filter(|step| existing.contains_key(step))
        .collect();
    let mut out = Vec::with_capacity(live.len().max(applied.len()));
    let mut push = |old: Option<&Value>, new: Option<&Value>| {
        out.extend(merged(list.item, old, new));
    };
    let mut live = live.iter().peekable();
    for (step, item) in &applied {
        // Live items that come before this one. Shared ones are put where the applied list has
        // them: those before the next shared one are passed over, and the next one stops us
        // until its turn.
        while let Some((ahead, old)) = live.peek() {
            if ahead == step {
                live.next();
                break;
            }
            if !wanted.contains_key(ahead) {
                push(Some(old), None);
            } else if shared.front().is_some_and(|next| *next == ahead) {
                break;
            }
            live.next();
        }
        push(existing.get(step).copied(), Some(item));
        if shared.front().is_some_and(|next| *next == step) {
            shared.pop_front();
        }
    }
    for (step, old) in live {
        if !wanted.contains_key(step) {
            push(Some(old), None);
        }
    }
    out
}

/// The value without the fields and items of a set. What is left without any content is null.
pub(super) fn remove(place: Place<'_>, value: &Value, gone: &FieldSet) -> Value {
    match (place.form(Some(value)), value) {
        (Form::Map(map), Value::Object(fields)) if !fields.is_empty() => {
            let mut left = Map::new();
            for (name, value) in fields {
                let step = Element::field(name);
                if gone.has_member(&step) {
                    continue;
                }
                let kept = match gone.child(&step) {
                    Some(gone) => {
                        let (place, _) = map.field(name).unwrap_or((Place::Deduced, false));
                        remove(place, value, gone)
                    }
                    None => value.clone(),
                };
                left.insert(name.clone(), kept);
            }
            if left.is_empty() {
                Value::Null
            } else {
                Value::Object(left)
            }
        }
        (Form::List(list), Value::Array(items)) if !items.is_empty() => {
            let mut left = Vec::new();
            for item in items {
                let Ok(step) = list.step(item) else {
                    left.push(item.clone());
                    continue;
                };
                if gone.has_member(&step) {
                    continue;
                }
                left.push(match gone.child(&step) {
                    Some(gone) => remove(list.item, item, gone),
                    None => item.clone(),
                });
            }
            if left.is_empty() {
                Value::Null
            } else {
                Value::Array(left)
            }
        }
        (Form::Map(_) | Form::List(_), _) => Value::Null,
        (Form::Leaf, _) => value.clone(),
    }
}

/// The set with every named field on the way to its paths as a member, as the object must have
/// them for its paths to be there.
pub(super) fn with_named_fields(place: Option<Place<'_>>, set: &FieldSet) -> FieldSet {
    let mut out = FieldSet::default();
    for member in set.members() {
        out.put(member.clone(), true, FieldSet::default());
    }
    for (step, child) in set.children() {
        let named = match step {
            Element::Field(name) => place.and_then(|p| p.field(name)).is_some_and(|(_, d)| d),
            Element::Key(_) | Element::Value(_) | Element::Index(_) => false,
        };
        let below = with_named_fields(place.and_then(|p| p.step(step)), child);
        out.put(step.clone(), named || set.has_member(step), below);
    }
    out
}

/// The set under the present schema: what lies below a place that is owned as a whole by now
/// becomes that place.
pub(super) fn under_schema(place: Option<Place<'_>>, set: &FieldSet) -> FieldSet {
    let mut out = FieldSet::default();
    for member in set.members() {
        out.put(member.clone(), true, FieldSet::default());
    }
    for (step, child) in set.children() {
        let below = place.and_then(|p| p.step(step));
        if below.is_some_and(Place::is_whole) {
            out.put(step.clone(), true, FieldSet::default());
        } else {
            out.put(
                step.clone(),
                set.has_member(step),
                under_schema(below, child),
            );
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::shape::samples;
    use super::*;
    use serde_json::json;

    #[test]
    fn applied_objects_are_merged_into_live_ones() {
        let schema = samples::schema();
        let place = Place::object(Some(&schema));
        let part = |name: &str| json!({"name": name});
        let parts = |names: &[&str]| -> Value {
            json!({"parts": names.iter().map(|n| part(n)).collect::<Vec<_>>()})
        };
        let cases = [
            (json!({"size": 1}), json!({"size": 2}), json!({"size": 2})),
            (
                json!({"tags": {"a": "1", "b": "2"}}),
                json!({"tags": {"b": "3", "c": "4"}}),
                json!({"tags": {"a": "1", "b": "3", "c": "4"}}),
            ),
            // Nothing goes by merging.
            (
                json!({"tags": {"a": "1"}}),
                json!({"tags": {}}),
                json!({"tags": {"a": "1"}}),
            ),
            (
                json!({"tags": {"a": "1"}}),
                json!({"tags": null}),
                json!({"tags": {"a": "1"}}),
            ),
            (
                json!({}),
                json!({"tags": {}, "names": []}),
                json!({"tags": {}, "names": []}),
            ),
            (
                json!({"whole": {"a": "1"}, "args": ["a"]}),
                json!({"whole": {"b": "1"}, "args": ["b"]}),
                json!({"whole": {"b": "1"}, "args": ["b"]}),
            ),
            (
                json!({"parts": [{"name": "a", "count": 1, "kind": "plain"}]}),
                json!({"parts": [{"name": "a", "count": 2}, {"name": "a", "kind": "odd"}]}),
                json!({"parts": [
                    {"name": "a", "count": 2, "kind": "plain"}, {"name": "a", "kind": "odd"},
                ]}),
            ),
            // The applied order holds for what is applied; the rest stays around it.
            (
                parts(&["a", "b", "c"]),
                parts(&["c", "a"]),
                parts(&["b", "c", "a"]),
            ),
            (
                parts(&["a", "b", "c"]),
                parts(&["a", "c"]),
                parts(&["a", "b", "c"]),
            ),
            (
                parts(&["a", "b"]),
                parts(&["x", "b"]),
                parts(&["a", "x", "b"]),
            ),
            (
                parts(&["a", "b"]),
                parts(&["b", "x"]),
                parts(&["a", "b", "x"]),
            ),
            (parts(&["a", "b"]), parts(&["x"]), parts(&["a", "b", "x"])),
            (
                parts(&["a", "x", "b"]),
                parts(&["b", "a"]),
                parts(&["x", "b", "a"]),
            ),
            (
                json!({"names": ["a", "b"]}),
                json!({"names": ["c", "b"]}),
                json!({"names": ["a", "c", "b"]}),
            ),
            (
                json!({"free": {"a": {"b": 1}, "l": [1]}}),
                json!({"free": {"a": {"c": 2}, "l": [2]}}),
                json!({"free": {"a": {"b": 1, "c": 2}, "l": [2]}}),
            ),
            (
                json!({"free": {"a": {"b": 1}}}),
                json!({"free": {"a": 1}}),
                json!({"free": {"a": 1}}),
            ),
        ];
        for (live, applied, want) in cases {
            let got = merge(place, &json!({"spec": live}), &json!({"spec": applied}));
            assert_eq!(got["spec"], want, "{live} {applied}");
        }
    }

    #[test]
    fn fields_and_items_are_taken_out() {
        let schema = samples::schema();
        let place = Place::object(Some(&schema));
        let object = json!({"spec": {
            "size": 1, "tags": {"a": "1"}, "names": ["a", "b"], "args": ["x"],
            "parts": [{"name": "a", "kind": "plain", "count": 1}],
        }});
        let cases = [
            (json!({"f:size": {}}), "size", None),
            // What loses all its content is null.
            (json!({"f:tags": {"f:a": {}}}), "tags", Some(Value::Null)),
            (
                json!({"f:names": {"v:\"a\"": {}}}),
                "names",
                Some(json!(["b"])),
            ),
            (
                json!({"f:parts": {"k:{\"kind\":\"plain\",\"name\":\"a\"}": {"f:count": {}}}}),
                "parts",
                Some(json!([{"name": "a", "kind": "plain"}])),
            ),
            (
                json!({"f:parts": {"k:{\"kind\":\"plain\",\"name\":\"a\"}": {}}}),
                "parts",
                Some(Value::Null),
            ),
            (
                json!({"f:args": {"v:\"x\"": {}}}),
                "args",
                Some(json!(["x"])),
            ),
        ];
        for (gone, field, want) in cases {
            let gone = FieldSet::from_json(&json!({"f:spec": gone})).unwrap();
            let left = remove(place, &object, &gone);
            assert_eq!(left["spec"].get(field), want.as_ref(), "{field}");
        }
    }

    #[test]
    fn named_fields_on_the_way_become_members_and_free_keys_do_not() {
        let schema = samples::schema();
        let place = Place::object(Some(&schema));
        let set = FieldSet::from_json(&json!({"f:spec": {
            "f:tags": {"f:a": {}}, "f:free": {"f:x": {"f:y": {}}},
        }}))
        .unwrap();
        assert_eq!(
            with_named_fields(Some(place), &set).to_json(),
            json!({"f:spec": {".": {},
                "f:tags": {".": {}, "f:a": {}}, "f:free": {".": {}, "f:x": {"f:y": {}}},
            }})
        );
    }

    #[test]
    fn fields_below_what_became_atomic_become_one() {
        let schema = samples::schema();
        let place = Place::object(Some(&schema));
        let set = FieldSet::from_json(&json!({"f:spec": {
            "f:whole": {"f:a": {}}, "f:args": {"v:\"x\"": {}}, "f:tags": {"f:a": {}},
        }}))
        .unwrap();
        assert_eq!(
            under_schema(Some(place), &set).to_json(),
            json!({"f:spec": {"f:whole": {}, "f:args": {}, "f:tags": {"f:a": {}}}})
        );
    }
}
