//! The paths that an object mentions, and whether it can be merged at all.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::element::{Element, path_text};
use super::set::FieldSet;
use super::shape::{Form, Place};

/// Every path of an object: its leaves, the items of its lists, and the keys of its free maps.
pub(super) fn fields_of(place: Place<'_>, object: &Value) -> FieldSet {
    let mut set = FieldSet::default();
    below(place, object, &mut set);
    set
}

/// Adds the paths below a value to `set`; true when the value itself is a leaf.
fn below(place: Place<'_>, value: &Value, set: &mut FieldSet) -> bool {
    match (place.form(Some(value)), value) {
        (Form::Leaf, _) => return true,
        (Form::Map(map), Value::Object(fields)) => {
            for (name, value) in fields {
                let (place, declared) = map.field(name).unwrap_or((Place::Deduced, false));
                let mut own = FieldSet::default();
                let leaf = below(place, value, &mut own);
                let empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
                set.put(Element::field(name), leaf || empty || !declared, own);
            }
        }
        (Form::List(list), Value::Array(items)) => {
            let mut by_step: BTreeMap<Element, Vec<&Value>> = BTreeMap::new();
            for item in items {
                if let Ok(step) = list.step(item) {
                    by_step.entry(step).or_default().push(item);
                }
            }
            for (step, items) in by_step {
                let mut own = FieldSet::default();
                // Duplicates are owned as one, and nothing below them.
                if let [only] = items.as_slice() {
                    below(list.item, only, &mut own);
                }
                set.put(step, true, own);
            }
        }
        _ => {}
    }
    false
}

/// What keeps an object from being applied, in the real server's words.
pub(super) fn problems(place: Place<'_>, object: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    check(place, object, &mut Vec::new(), &mut problems);
    problems
}

fn check(place: Place<'_>, value: &Value, at: &mut Vec<Element>, problems: &mut Vec<String>) {
    let report = |at: &[Element], problem: &str| match path_text(at) {
        path if path.is_empty() => problem.to_owned(),
        path => format!("{path}: {problem}"),
    };
    if let Some(problem) = place.problem(value) {
        problems.push(report(at, &problem));
        return;
    }
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                at.push(Element::field(name));
                let declared = place.any_field(name);
                match declared {
                    Some(place) => check(place, value, at, problems),
                    None => problems.push(report(at, "field not declared in schema")),
                }
                at.pop();
                // The real server looks no further in an object with a field that is not its own.
                if declared.is_none() {
                    return;
                }
            }
        }
        Value::Array(items) => {
            let Form::List(list) = place.form(Some(value)) else {
                for (index, item) in items.iter().enumerate() {
                    at.push(Element::Index(index as u64));
                    check(place.any_item(), item, at, problems);
                    at.pop();
                }
                return;
            };
            let mut seen = BTreeSet::new();
            for (index, item) in items.iter().enumerate() {
                let step = match list.step(item) {
                    Ok(step) => step,
                    Err(why) => {
                        problems.push(report(at, &format!("element {index}: {why}")));
                        return;
                    }
                };
                if !seen.insert(step.clone()) {
                    problems.push(report(at, &format!("duplicate entries for key {step}")));
                }
                at.push(step);
                check(list.item, item, at, problems);
                at.pop();
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::shape::samples;
    use super::*;
    use serde_json::json;

    #[test]
    fn an_object_mentions_its_leaves_its_items_and_the_keys_of_free_maps() {
        let schema = samples::schema();
        let place = Place::object(Some(&schema));
        let cases = [
            (json!({"size": 1}), json!({"f:size": {}})),
            (json!({"tags": {"a": "1"}}), json!({"f:tags": {"f:a": {}}})),
            // An empty map and a null are mentioned themselves, an empty list is not.
            (
                json!({"tags": {}, "size": null, "names": []}),
                json!({"f:tags": {}, "f:size": {}}),
            ),
            (json!({"whole": {"a": "1"}}), json!({"f:whole": {}})),
            (json!({"args": ["a"]}), json!({"f:args": {}})),
            (
                json!({"names": ["b", "a"]}),
                json!({"f:names": {"v:\"a\"": {}, "v:\"b\"": {}}}),
            ),
            (
                json!({"parts": [{"name": "a", "count": 1}]}),
                json!({"f:parts": {"k:{\"kind\":\"plain\",\"name\":\"a\"}":
                    {".": {}, "f:name": {}, "f:count": {}}}}),
            ),
            (
                json!({"parts": [{"name": "a"}, {"name": "a", "count": 1}]}),
                json!({"f:parts": {"k:{\"kind\":\"plain\",\"name\":\"a\"}": {}}}),
            ),
            (
                json!({"free": {"a": {"b": [1]}}}),
                json!({"f:free": {"f:a": {".": {}, "f:b": {}}}}),
            ),
            (json!({"limit": "5%"}), json!({"f:limit": {}})),
            (
                json!({"manifests": [{"kind": "A"}]}),
                json!({"f:manifests": {}}),
            ),
        ];
        for (spec, want) in cases {
            let set = fields_of(place, &json!({"spec": spec}));
            assert_eq!(set.to_json(), json!({"f:spec": want}), "{spec}");
        }
    }

    #[test]
    fn metadata_is_typed_in_every_object() {
        for schema in [Some(&samples::schema()), None] {
            let object = json!({"metadata": {"labels": {"a": "b"}, "finalizers": ["x/y"]}});
            let set = fields_of(Place::object(schema), &object);
            let finalizers = match schema {
                Some(_) => json!({"v:\"x/y\"": {}}),
                None => json!({}),
            };
            assert_eq!(
                set.to_json()["f:metadata"]["f:finalizers"]["v:\"x/y\""],
                finalizers["v:\"x/y\""]
            );
        }
    }

    #[test]
    fn what_cannot_be_applied_is_named() {
        let schema = samples::schema();
        let place = Place::object(Some(&schema));
        let cases = [
            (
                json!({"size": "x"}),
                ".spec.size: expected numeric (int or float), got string",
            ),
            (json!({"tags": 5}), ".spec.tags: expected map, got &{5}"),
            (
                json!({"args": {"a": 1}}),
                ".spec.args: expected list, got &{map[a:1]}",
            ),
            (
                json!({"tags": {"a": 1}}),
                ".spec.tags.a: expected string, got &value.valueUnstructured{Value:1}",
            ),
            (
                json!({"nope": 1}),
                ".spec.nope: field not declared in schema",
            ),
            (
                json!({"args": ["a", 1]}),
                ".spec.args[1]: expected string, got &value.valueUnstructured{Value:1}",
            ),
            (
                json!({"names": ["a", "a"]}),
                ".spec.names: duplicate entries for key [=\"a\"]",
            ),
            (
                json!({"names": [null]}),
                ".spec.names: element 0: associative list without keys has an element that's an explicit null",
            ),
            (
                json!({"parts": [{"name": "a"}, {"name": "a", "kind": "plain"}]}),
                ".spec.parts: duplicate entries for key [kind=\"plain\",name=\"a\"]",
            ),
            (
                json!({"parts": ["a"]}),
                ".spec.parts: element 0: associative list with keys may not have non-map elements",
            ),
            (
                json!({"parts": [{"name": "a", "colour": "red"}]}),
                ".spec.parts[kind=\"plain\",name=\"a\"].colour: field not declared in schema",
            ),
            (
                json!({"manifests": [{"metadata": {"labels": []}}]}),
                ".spec.manifests[0].metadata.labels: expected map, got &{[]}",
            ),
        ];
        for (spec, want) in cases {
            assert_eq!(problems(place, &json!({"spec": spec})), [want], "{spec}");
        }
        let fine = json!({"apiVersion": "v1", "kind": "A", "metadata": {"name": "a"}, "spec": {
            "free": {"anything": [1, {}]}, "limit": "5%", "size": null,
            "manifests": [{"apiVersion": "v1", "kind": "B", "metadata": {"name": "b"}, "data": 1}],
        }});
        assert_eq!(problems(place, &fine), [""; 0]);
        assert_eq!(problems(Place::object(None), &fine), [""; 0]);
    }
}
