//! The paths that an object mentions, and whether it can be merged at all.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

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
                let empty = value.is_null() || value.as_object().is_some_and(|o| o.is_empty());
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
                match place.any_field(name) {
                    Some(place) => check(place, value, at, problems),
                    None => problems.push(report(at, "field not declared in schema")),
                }
                at.pop();
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
