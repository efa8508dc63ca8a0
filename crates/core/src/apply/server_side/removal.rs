//! Removing fields from an object, by place, JSON pointer and JSONPath.

use std::collections::{BTreeMap, HashSet};
use std::ptr;

use serde_json::{Map, Value};
use thiserror::Error;

use crate::jsonpath::JsonPath;

/// One step from a value to a part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
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

/// Most parts of an object that the places of one removal lead through, ranges taken apart.
pub(super) const MAX_PLACE_STEPS: usize = 1_000_000;

/// The places lead through more than [`MAX_PLACE_STEPS`] parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooManyPlaces;

/// Removes what is at the places; a place that does not exist is skipped. All places are those
/// of the object as it came. Nothing is removed if there are too many.
pub(super) fn remove_places(object: &mut Value, places: &[Place]) -> Result<(), TooManyPlaces> {
    let mut marks = Marks::default();
    let mut steps_left = MAX_PLACE_STEPS;
    for place in places {
        marks.mark(object, place, &mut steps_left)?;
    }
    marks.remove_below(object);
    Ok(())
}

/// Which parts of a value go.
#[derive(Default)]
struct Marks {
    /// All of it does.
    whole: bool,
    entries: BTreeMap<String, Self>,
    items: BTreeMap<usize, Self>,
}

impl Marks {
    fn mark(
        &mut self,
        value: &Value,
        place: &[Step],
        steps_left: &mut usize,
    ) -> Result<(), TooManyPlaces> {
        *steps_left = steps_left.checked_sub(1).ok_or(TooManyPlaces)?;
        let Some((step, rest)) = place.split_first() else {
            self.whole = true;
            return Ok(());
        };
        match (step, value) {
            (Step::Key(key), Value::Object(entries)) => {
                if let Some(value) = entries.get(key) {
                    let below = self.entries.entry(key.clone()).or_default();
                    below.mark(value, rest, steps_left)?;
                }
            }
            (Step::Index(index), Value::Array(items)) => {
                let index = from_start(*index, items.len());
                if let Some(index) = index
                    && let Some(value) = items.get(index.unsigned_abs())
                {
                    let below = self.items.entry(index.unsigned_abs()).or_default();
                    below.mark(value, rest, steps_left)?;
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
                    let below = self.items.entry(index).or_default();
                    below.mark(value, rest, steps_left)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Removes the marked parts of a value, but not the value itself.
    fn remove_below(&self, value: &mut Value) {
        match value {
            Value::Object(entries) => {
                for (key, marks) in &self.entries {
                    if marks.whole {
                        entries.remove(key);
                    } else if let Some(value) = entries.get_mut(key) {
                        marks.remove_below(value);
                    }
                }
            }
            Value::Array(items) => {
                let mut index = 0..;
                items.retain_mut(|item| {
                    let marks = index.next().and_then(|index| self.items.get(&index));
                    match marks {
                        Some(marks) if marks.whole => false,
                        Some(marks) => {
                            marks.remove_below(item);
                            true
                        }
                        None => true,
                    }
                });
            }
            _ => {}
        }
    }
}

fn from_start(index: isize, length: usize) -> Option<isize> {
    let index = if index < 0 {
        index.checked_add_unsigned(length)?
    } else {
        index
    };
    (index >= 0).then_some(index)
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
            &[index(0), index(1), index(-3), index(9), index(-9)],
        )
        .unwrap();
        assert_eq!(changed["l"], json!([{"n": "c", "v": 3}]));
        let mut changed = object();
        let range = vec![Step::Key("l".to_owned()), Step::Range(Some(-2), None)];
        remove_places(&mut changed, &[range, vec![Step::Key("s".to_owned())]]).unwrap();
        assert_eq!(changed["l"], json!([{"n": "a", "v": 1}]));
        assert!(changed.get("s").is_none());
    }

    #[test]
    fn places_may_lead_through_so_many_parts_and_no_more() {
        let list: Value = (0..999).collect();
        let all = vec![Step::Range(None, None)];
        let places = vec![all; MAX_PLACE_STEPS / 1_000];
        let mut changed = list.clone();
        remove_places(&mut changed, &places).unwrap();
        assert_eq!(changed, json!([]));
        let mut changed = list.clone();
        let more = [&*places, &[Place::new()]].concat();
        assert_eq!(remove_places(&mut changed, &more), Err(TooManyPlaces));
        assert_eq!(changed, list);
    }
}
