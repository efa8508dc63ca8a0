//! Removing fields from an object, by place, JSON pointer and JSONPath.

use std::collections::HashSet;
use std::ptr;

use serde_json::{Map, Value};
use thiserror::Error;

use crate::jsonpath::JsonPath;

/// One step from a value to a part of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// Entry of an object.
    Key(String),
    /// Item of a list; a negative one counts from the end.
    Index(isize),
    /// Items of a list, from one bound to before the other.
    Range(Option<isize>, Option<isize>),
}

/// The steps from the root to a part of an object.
pub(super) type Place = Vec<Step>;

/// Removes what is at the places; a place that does not exist is skipped. All places are those
/// of the object as it came.
pub(super) fn remove_places(object: &mut Value, places: Vec<Place>) {
    let mut places: Vec<Place> = places
        .into_iter()
        .flat_map(|place| settled(object, place))
        .collect();
    // The last item of a list first, so that the others stay where they are.
    places.sort_unstable();
    places.dedup();
    for place in places.iter().rev() {
        remove_place(object, place);
    }
}

/// The same places without ranges and negative indexes.
fn settled(object: &Value, place: Place) -> Vec<Place> {
    let mut heads: Vec<(Place, &Value)> = vec![(Place::new(), object)];
    for step in place {
        let mut next = Vec::new();
        for (head, value) in heads {
            let mut go = |step: Step, value| {
                let mut place = head.clone();
                place.push(step);
                next.push((place, value));
            };
            match (&step, value) {
                (Step::Key(key), Value::Object(entries)) => {
                    if let Some(value) = entries.get(key) {
                        go(step.clone(), value);
                    }
                }
                (Step::Index(index), Value::Array(items)) => {
                    if let Some(index) = from_start(*index, items.len())
                        && let Some(value) = items.get(index.unsigned_abs())
                    {
                        go(Step::Index(index), value);
                    }
                }
                (Step::Range(from, to), Value::Array(items)) => {
                    let bound = |bound: Option<isize>, otherwise: usize| match bound {
                        None => otherwise,
                        Some(bound) => from_start(bound, items.len())
                            .map_or(0, isize::unsigned_abs)
                            .min(items.len()),
                    };
                    let (from, to) = (bound(*from, 0), bound(*to, items.len()));
                    for (index, value) in items.iter().enumerate().take(to).skip(from) {
                        go(Step::Index(index.cast_signed()), value);
                    }
                }
                _ => {}
            }
        }
        heads = next;
    }
    heads.into_iter().map(|(place, _)| place).collect()
}

fn from_start(index: isize, length: usize) -> Option<isize> {
    let index = if index < 0 {
        index.checked_add_unsigned(length)?
    } else {
        index
    };
    (index >= 0).then_some(index)
}

fn remove_place(object: &mut Value, place: &[Step]) {
    let Some((last, way)) = place.split_last() else {
        return;
    };
    let mut value = object;
    for step in way {
        let next = match (step, value) {
            (Step::Key(key), Value::Object(entries)) => entries.get_mut(key),
            (Step::Index(index), Value::Array(items)) => items.get_mut(index.unsigned_abs()),
            _ => None,
        };
        let Some(next) = next else { return };
        value = next;
    }
    match (last, value) {
        (Step::Key(key), Value::Object(entries)) => {
            entries.remove(key);
        }
        (Step::Index(index), Value::Array(items)) if index.unsigned_abs() < items.len() => {
            items.remove(index.unsigned_abs());
        }
        _ => {}
    }
}

/// Why a JSON pointer cannot be followed. A part that is not there is no error.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PointerError {
    /// The last part names an item of a list, and is no number.
    #[error("{0:?} is no index of a list")]
    NoIndex(String),
    /// The last part names an item after the end of the list.
    #[error("index {index} is out of range for a list of {length}")]
    OutOfRange {
        /// The index.
        index: usize,
        /// Length of the list.
        length: usize,
    },
}

/// Removes what a JSON pointer (RFC 6901) names, as a JSON Patch would. What is no pointer, or
/// leads nowhere, removes nothing.
pub(super) fn remove_pointer(object: &mut Value, pointer: &str) -> Result<(), PointerError> {
    let Some((parent, last)) = pointer.rsplit_once('/') else {
        return Ok(());
    };
    if !pointer.starts_with('/') {
        return Ok(());
    }
    let last = last.replace("~1", "/").replace("~0", "~");
    match object.pointer_mut(parent) {
        Some(Value::Object(entries)) => {
            entries.remove(&last);
        }
        Some(Value::Array(items)) => {
            let length = items.len();
            let index = last
                .parse()
                .map_err(|_| PointerError::NoIndex(last.clone()))?;
            if index >= length {
                return Err(PointerError::OutOfRange { index, length });
            }
            items.remove(index);
        }
        _ => {}
    }
    Ok(())
}

/// A JSONPath to remove by: the objects it leads to, and the key that goes.
///
/// As upstream, the text is split at its last dot, so that list items and keys with dots cannot
/// be removed; and a text that is no JSONPath, or has no value for an object, removes nothing.
#[derive(Debug, Clone)]
pub(super) struct PathToKey {
    /// `None` is the root.
    parent: Option<JsonPath>,
    key: String,
}

impl PathToKey {
    /// `None` for a path that never leads anywhere.
    pub(super) fn compile(path: &str) -> Option<Self> {
        let (parent, key) = path.rsplit_once('.')?;
        let parent = match parent {
            "" => None,
            parent => Some(JsonPath::parse(parent).ok()?),
        };
        Some(Self {
            parent,
            key: key.to_owned(),
        })
    }

    pub(super) fn remove(&self, object: &mut Value) {
        let Some(path) = &self.parent else {
            if let Value::Object(entries) = object {
                entries.remove(&self.key);
            }
            return;
        };
        // The path gives references; where they are in the object is found by address.
        let found: HashSet<*const Value> = match path.eval(object) {
            Ok(found) => found
                .iter()
                .flat_map(|matches| matches.iter())
                .map(|found| ptr::from_ref(found.value()))
                .collect(),
            Err(_) => return,
        };
        if !found.is_empty() {
            remove_key_of(object, &found, &self.key);
        }
    }
}

fn remove_key_of(value: &mut Value, found: &HashSet<*const Value>, key: &str) {
    let is_found = found.contains(&ptr::from_ref(value));
    match value {
        Value::Object(entries) => {
            // First what is below: a removal moves the entries after it.
            entries
                .values_mut()
                .for_each(|value| remove_key_of(value, found, key));
            if is_found {
                entries.remove(key);
            }
        }
        Value::Array(items) => items
            .iter_mut()
            .for_each(|value| remove_key_of(value, found, key)),
        _ => {}
    }
}

/// Whole doubles as integers, which is what becomes of them when Go writes and reads an object,
/// as upstream does for JSON pointers. Only the texts of such an object differ.
pub(super) fn round_trip_doubles(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            let mut text = String::new();
            crate::go_format::write_json(&mut text, value);
            if let Ok(integer) = text.parse::<i64>() {
                *value = integer.into();
            }
        }
        Value::Object(entries) => entries.values_mut().for_each(round_trip_doubles),
        Value::Array(items) => items.iter_mut().for_each(round_trip_doubles),
        _ => {}
    }
}

/// The entries of an object, or none.
pub(super) fn entries(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value.and_then(Value::as_object)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object() -> Value {
        json!({
            "l": [{"n": "a", "v": 1}, {"n": "b", "v": 2}, {"n": "c", "v": 3}],
            "a/b": 1, "a~b": 2, "a.b": 3, "s": "text", "e": [],
        })
    }

    #[test]
    fn pointers_remove_what_is_there() {
        for (pointer, left) in [
            (
                "/l/0/v",
                json!([{"n": "a"}, {"n": "b", "v": 2}, {"n": "c", "v": 3}]),
            ),
            ("/l/1", json!([{"n": "a", "v": 1}, {"n": "c", "v": 3}])),
            ("/l", Value::Null),
        ] {
            let mut object = object();
            remove_pointer(&mut object, pointer).unwrap();
            assert_eq!(object["l"], left, "{pointer}");
        }
        for (pointer, key) in [("/a~1b", "a/b"), ("/a~0b", "a~b"), ("/a.b", "a.b")] {
            let mut object = object();
            remove_pointer(&mut object, pointer).unwrap();
            assert!(object.get(key).is_none(), "{pointer}");
        }
    }

    #[test]
    fn pointers_that_lead_nowhere_remove_nothing() {
        for pointer in [
            "", "l", "/", "/no", "/no/no", "/s/x", "/l/7/v", "l/0", "/l/x/v",
        ] {
            let mut changed = object();
            remove_pointer(&mut changed, pointer).unwrap();
            assert_eq!(changed, object(), "{pointer}");
        }
    }

    #[test]
    fn pointers_to_items_that_are_not_there_are_errors() {
        for (pointer, text) in [
            ("/l/3", "index 3 is out of range for a list of 3"),
            ("/e/0", "index 0 is out of range for a list of 0"),
            ("/l/x", "\"x\" is no index of a list"),
            ("/l/-", "\"-\" is no index of a list"),
        ] {
            let error = remove_pointer(&mut object(), pointer).unwrap_err();
            assert_eq!(error.to_string(), text);
        }
    }

    #[test]
    fn json_paths_remove_a_key_of_every_object_they_lead_to() {
        let mut object = object();
        for path in [
            ".l[*].v",
            ".l[?(@.n==\"b\")].n",
            ".s",
            ".e.x",
            ".s.x",
            ".l[0]",
            "s",
            "l.n",
        ] {
            if let Some(path) = PathToKey::compile(path) {
                path.remove(&mut object);
            }
        }
        let left = json!({
            "l": [{"n": "a"}, {}, {"n": "c"}],
            "a/b": 1, "a~b": 2, "a.b": 3, "e": [],
        });
        assert_eq!(object, left);
        for path in ["", ".l[?(", ".x[.y", "s"] {
            let removed = PathToKey::compile(path).map(|path| path.remove(&mut object));
            assert_eq!((removed, &object), (removed, &left), "{path}");
        }
    }

    #[test]
    fn nested_objects_of_one_path_all_lose_the_key() {
        let mut object = json!({"a": {"b": {"x": 1, "b": {"x": 2, "y": {"b": {"x": 3}}}}}});
        PathToKey::compile(".a..b.x").unwrap().remove(&mut object);
        assert_eq!(object, json!({"a": {"b": {"b": {"y": {"b": {}}}}}}));
    }

    #[test]
    fn places_are_those_of_the_object_as_it_came() {
        let index = |index| vec![Step::Key("l".to_owned()), Step::Index(index)];
        let mut changed = object();
        remove_places(
            &mut changed,
            vec![index(0), index(1), index(-3), index(9), index(-9)],
        );
        assert_eq!(changed["l"], json!([{"n": "c", "v": 3}]));
        let mut changed = object();
        let range = vec![Step::Key("l".to_owned()), Step::Range(Some(-2), None)];
        remove_places(&mut changed, vec![range, vec![Step::Key("s".to_owned())]]);
        assert_eq!(changed["l"], json!([{"n": "a", "v": 1}]));
        assert!(changed.get("s").is_none());
    }
}
