//! Who owns which fields: `metadata.managedFields`, read as it is.
//!
//! `fieldsV1` is a tree whose keys are `f:<field>`, `k:<keys of a list item>`, `v:<item of a
//! set>`, `i:<index>` and `.` for the thing itself. A key with nothing below owns all there is.
//!
//! Others write both the fields and the lists, and either may be long. So a list is indexed once by
//! the keys of its items, and every function here takes time in proportion to the fields and the
//! values at most (where values are compared whole, times the depth, of which JSON has 127 levels).

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::removal::entries;

/// The fields that `manager` applied to an object in the version of `api_version`; `None` if it
/// applied nothing.
pub(super) fn applied_fields<'a>(
    live: &'a Value,
    manager: &str,
    api_version: &str,
) -> Option<&'a Map<String, Value>> {
    let entries = live.pointer("/metadata/managedFields")?.as_array()?;
    let ours = entries.iter().find(|entry| {
        let text = |field| entry.get(field).and_then(Value::as_str).unwrap_or_default();
        text("manager") == manager
            && text("operation") == "Apply"
            && text("subresource").is_empty()
            && text("apiVersion") == api_version
    });
    ours?.get("fieldsV1")?.as_object()
}

/// Most sets of keys by which the items of one list are told apart. A list has one; fields that
/// others write could name as many as there are items. Items of further sets are not found.
pub(super) const MAX_KEY_SETS: usize = 8;

/// A key of `fieldsV1`.
enum Element<'a> {
    Field(&'a str),
    Item(Map<String, Value>),
    Member(Value),
}

impl<'a> Element<'a> {
    /// `None` for what names no part: `.`, and indexes, which mean nothing once a list changed.
    fn parse(key: &'a str) -> Option<Self> {
        match key.split_at_checked(2)? {
            ("f:", field) => Some(Self::Field(field)),
            ("k:", keys) => serde_json::from_str(keys).ok().map(Self::Item),
            ("v:", value) => serde_json::from_str(value).ok().map(Self::Member),
            _ => None,
        }
    }

    /// What an item of a list has to be called to be this one; `None` for a field.
    fn identity(&self) -> Option<String> {
        match self {
            Self::Field(_) => None,
            Self::Item(keys) => Some(item_identity(keys.iter())),
            Self::Member(value) => Some(member_identity(value)),
        }
    }

    fn find<'v>(&self, value: &'v Value, index: &Index) -> Option<&'v Value> {
        match self {
            Self::Field(field) => value.as_object()?.get(*field),
            _ => value.as_array()?.get(index.position(self)?),
        }
    }

    fn find_mut<'v>(&self, value: &'v mut Value, index: &Index) -> Option<&'v mut Value> {
        match self {
            Self::Field(field) => value.as_object_mut()?.get_mut(*field),
            _ => value.as_array_mut()?.get_mut(index.position(self)?),
        }
    }
}

fn item_identity<'k>(keys: impl Iterator<Item = (&'k String, &'k Value)>) -> String {
    use std::fmt::Write as _; // Writing to a String cannot fail.

    let mut text = "k:".to_owned();
    for (key, value) in keys {
        // The quoted form, so that no name can be taken for another name and value.
        let _ = write!(text, "{key:?}:{value},");
    }
    text
}

fn member_identity(value: &Value) -> String {
    format!("v:{value}")
}

/// The elements among the keys of a node of `fieldsV1`, with what is below them.
fn elements(fields: &Map<String, Value>) -> Vec<(Element<'_>, &Map<String, Value>)> {
    fields
        .iter()
        .filter_map(|(key, below)| Some((Element::parse(key)?, below.as_object()?)))
        .collect()
}

/// The ways in which the elements of a node tell the items of a list apart.
#[derive(Default)]
struct Ways {
    key_sets: Vec<Vec<String>>,
    members: bool,
}

impl Ways {
    fn of<'e>(elements: impl Iterator<Item = &'e Element<'e>>) -> Self {
        let mut ways = Self::default();
        for element in elements {
            match element {
                Element::Field(_) => {}
                Element::Member(_) => ways.members = true,
                Element::Item(keys) => {
                    let known = |set: &Vec<String>| set.iter().eq(keys.keys());
                    if ways.key_sets.len() < MAX_KEY_SETS && !ways.key_sets.iter().any(known) {
                        ways.key_sets.push(keys.keys().cloned().collect());
                    }
                }
            }
        }
        ways
    }

    /// What an item is called in each of the ways.
    fn identities<'s>(&'s self, item: &'s Value) -> impl Iterator<Item = String> + 's {
        let by_keys = self.key_sets.iter().filter_map(|set| {
            let pairs: Option<Vec<_>> = set.iter().map(|key| Some((key, item.get(key)?))).collect();
            Some(item_identity(pairs?.into_iter()))
        });
        by_keys.chain(self.members.then(|| member_identity(item)))
    }

    /// Indexes the items of a list; anything else has none.
    fn index(&self, value: &Value) -> Index {
        let mut index = Index::default();
        for (position, item) in value.as_array().into_iter().flatten().enumerate() {
            for identity in self.identities(item) {
                // Of two items with the same keys the first is meant.
                index.0.entry(identity).or_insert(position);
            }
        }
        index
    }

    /// Where an item is in an indexed list.
    fn position(&self, item: &Value, index: &Index) -> Option<usize> {
        self.identities(item)
            .find_map(|identity| index.0.get(&identity).copied())
    }
}

/// Positions of the items of a list by what they are called.
#[derive(Default)]
struct Index(HashMap<String, usize>);

impl Index {
    fn position(&self, element: &Element<'_>) -> Option<usize> {
        self.0.get(&element.identity()?).copied()
    }
}

/// What an object has in the owned fields, in the shape of `fieldsV1`, to be compared.
pub(super) fn extract(fields: &Map<String, Value>, value: &Value) -> Value {
    if fields.is_empty() {
        return value.clone();
    }
    let elements: Vec<_> = fields
        .iter()
        .filter_map(|(key, below)| Some((key, Element::parse(key)?, below.as_object())))
        .collect();
    let index = Ways::of(elements.iter().map(|(_, element, _)| element)).index(value);
    let part = |(key, element, below): &(&String, Element<'_>, Option<&Map<String, Value>>)| {
        let found = element.find(value, &index)?;
        let part = below.map_or_else(|| found.clone(), |below| extract(below, found));
        Some(((*key).clone(), part))
    };
    Value::Object(elements.iter().filter_map(part).collect())
}

/// Whether everything in an applied object is owned. What identifies the object never is.
pub(super) fn covers(fields: &Map<String, Value>, applied: &Value) -> bool {
    let Some(object) = applied.as_object() else {
        return false;
    };
    object.iter().all(|(field, value)| match field.as_str() {
        "apiVersion" | "kind" => true,
        "metadata" => entries(Some(value)).is_some_and(|metadata| {
            let below = entries(fields.get("f:metadata"));
            metadata.iter().all(|(field, value)| {
                field == "name"
                    || field == "namespace"
                    || below.is_some_and(|below| covers_field(below, field, value))
            })
        }),
        field => covers_field(fields, field, value),
    })
}

fn covers_field(fields: &Map<String, Value>, field: &str, value: &Value) -> bool {
    fields
        .get(&format!("f:{field}"))
        .and_then(Value::as_object)
        .is_some_and(|below| covers_value(below, value))
}

fn covers_value(fields: &Map<String, Value>, value: &Value) -> bool {
    if fields.is_empty() {
        return true;
    }
    match value {
        Value::Object(entries) => entries
            .iter()
            .all(|(field, value)| covers_field(fields, field, value)),
        Value::Array(items) => {
            let list = ListFields::of(fields);
            items.iter().all(|item| {
                list.find(item)
                    .is_some_and(|(_, below)| covers_value(below, item))
            })
        }
        _ => false,
    }
}

/// The fields of a list, to be found by its items.
struct ListFields<'f> {
    elements: Vec<(Element<'f>, &'f Map<String, Value>)>,
    ways: Ways,
    index: Index,
}

impl<'f> ListFields<'f> {
    fn of(fields: &'f Map<String, Value>) -> Self {
        let elements = elements(fields);
        let ways = Ways::of(elements.iter().map(|(element, _)| element));
        let named = elements.iter().enumerate();
        let index = named.filter_map(|(at, (element, _))| Some((element.identity()?, at)));
        Self {
            index: Index(index.collect()),
            ways,
            elements,
        }
    }

    /// The element that an item is, and what is below it.
    fn find(&self, item: &Value) -> Option<&(Element<'f>, &'f Map<String, Value>)> {
        self.elements.get(self.ways.position(item, &self.index)?)
    }
}

/// Adds to `target` what is owned in `live` and is gone in `left`, which is `live` without the
/// ignored fields. So the apply gives up nothing, and takes nothing from others.
///
/// `original` is the whole manifest, for the order of list items: another order would be a change.
pub(super) fn keep(
    fields: &Map<String, Value>,
    live: &Value,
    left: &Value,
    original: Option<&Value>,
    target: &mut Value,
) {
    let elements = elements(fields);
    let ways = Ways::of(elements.iter().map(|(element, _)| element));
    let (in_live, in_left) = (ways.index(live), ways.index(left));
    let in_original = original.map_or_else(Index::default, |original| ways.index(original));
    let in_target = ways.index(target);
    let mut missing = Vec::new();
    for (element, below) in &elements {
        let Some(value) = element.find(live, &in_live) else {
            continue;
        };
        match element.find(left, &in_left) {
            None => missing.push((element, owned(below, value))),
            Some(rest) if rest == value => {}
            Some(rest) if below.is_empty() => {
                if let Some(target) = element.find_mut(target, &in_target) {
                    restore(value, rest, target);
                }
            }
            Some(rest) => {
                let original = original.and_then(|original| element.find(original, &in_original));
                if let Some(target) = element.find_mut(target, &in_target) {
                    keep(below, value, rest, original, target);
                } else {
                    let mut fresh = Value::Null;
                    keep(below, value, rest, original, &mut fresh);
                    if !fresh.is_null() {
                        missing.push((element, fresh));
                    }
                }
            }
        }
    }
    let (fields, items): (Vec<_>, Vec<_>) = missing
        .into_iter()
        .partition(|(element, _)| matches!(element, Element::Field(_)));
    put_fields(fields, target);
    put_items(items, &ways, &in_original, in_target, target);
}

/// The owned part of a value, in the value's own shape.
fn owned(fields: &Map<String, Value>, value: &Value) -> Value {
    if fields.is_empty() {
        return value.clone();
    }
    match value {
        Value::Object(entries) => {
            let part = |(element, below)| match element {
                Element::Field(field) => {
                    Some((field.to_owned(), owned(below, entries.get(field)?)))
                }
                _ => None,
            };
            Value::Object(elements(fields).into_iter().filter_map(part).collect())
        }
        Value::Array(items) => {
            let list = ListFields::of(fields);
            let part = |item| {
                let (element, below) = list.find(item)?;
                Some(with_keys(element, owned(below, item)))
            };
            Value::Array(items.iter().filter_map(part).collect())
        }
        other => other.clone(),
    }
}

/// A part of a list with the keys that name it.
fn with_keys(element: &Element<'_>, mut part: Value) -> Value {
    if let (Element::Item(keys), Some(part)) = (element, part.as_object_mut()) {
        part.extend(keys.clone());
    }
    part
}

/// Puts fields where they belong, unless they are there: the manifest's own count.
fn put_fields(fields: Vec<(&Element<'_>, Value)>, target: &mut Value) {
    if !fields.is_empty() && target.is_null() {
        *target = Value::Object(Map::new());
    }
    let Some(target) = target.as_object_mut() else {
        return;
    };
    for (element, part) in fields {
        if let Element::Field(field) = element {
            target.entry(*field).or_insert(part);
        }
    }
}

/// Puts items into a list, unless they are there, in the order that the original has them.
fn put_items(
    items: Vec<(&Element<'_>, Value)>,
    ways: &Ways,
    in_original: &Index,
    in_target: Index,
    target: &mut Value,
) {
    if items.is_empty() {
        return;
    }
    if target.is_null() {
        *target = Value::Array(Vec::new());
    }
    let Some(target) = target.as_array_mut() else {
        return;
    };
    let mut present: HashSet<String> = in_target.0.into_keys().collect();
    let mut placed = Vec::new();
    let mut others = Vec::new();
    for (element, part) in items {
        let known = |identity: &String| present.contains(identity);
        if element.identity().as_ref().is_none_or(known) {
            continue;
        }
        let part = with_keys(element, part);
        present.extend(ways.identities(&part));
        match in_original.position(element) {
            Some(place) => placed.push((place, part)),
            None => others.push(part),
        }
    }
    placed.sort_by_key(|(place, _)| *place);
    let mut placed = placed.into_iter().peekable();
    let mut merged = Vec::with_capacity(target.len() + placed.len() + others.len());
    for item in target.drain(..) {
        if let Some(place) = ways.position(&item, in_original) {
            while let Some((_, part)) = placed.next_if(|(other, _)| *other < place) {
                merged.push(part);
            }
        }
        merged.push(item);
    }
    merged.extend(placed.map(|(_, part)| part));
    merged.extend(others);
    *target = merged;
}

/// Puts back into a value that is owned as a whole what was taken out of it, if the rest of it
/// still has the same shape.
fn restore(live: &Value, left: &Value, target: &mut Value) {
    if target == left {
        target.clone_from(live);
        return;
    }
    match (live, left, target) {
        (Value::Object(live), Value::Object(left), Value::Object(target)) => {
            for (key, value) in live {
                match (left.get(key), target.get_mut(key)) {
                    (None, None) => {
                        target.insert(key.clone(), value.clone());
                    }
                    (Some(left), Some(target)) if left != value => restore(value, left, target),
                    _ => {}
                }
            }
        }
        (Value::Array(live), Value::Array(left), Value::Array(target))
            if live.len() == left.len() && live.len() == target.len() =>
        {
            for ((live, left), target) in live.iter().zip(left).zip(target) {
                if live != left {
                    restore(live, left, target);
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(value: &Value) -> &Map<String, Value> {
        value.as_object().unwrap()
    }

    #[test]
    fn only_what_the_manager_applied_counts() {
        let entry = |manager, operation, subresource, version| {
            json!({"manager": manager, "operation": operation, "subresource": subresource,
                "apiVersion": version, "fieldsV1": {"f:x": {}}})
        };
        for (managed, found) in [
            (json!([entry("a", "Apply", "", "v1")]), true),
            (json!([entry("a", "Update", "", "v1")]), false),
            (json!([entry("b", "Apply", "", "v1")]), false),
            (json!([entry("a", "Apply", "status", "v1")]), false),
            (json!([entry("a", "Apply", "", "v2")]), false),
            (json!(null), false),
        ] {
            let live = json!({"metadata": {"managedFields": managed}});
            assert_eq!(applied_fields(&live, "a", "v1").is_some(), found, "{live}");
        }
    }

    fn pod_fields() -> Value {
        json!({
            "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
            "f:spec": {
                "f:containers": {
                    "k:{\"name\":\"a\"}": {".": {}, "f:name": {}, "f:image": {}, "f:args": {}},
                    "k:{\"name\":\"b\"}": {".": {}, "f:name": {}, "f:image": {}},
                },
                "f:finalizers": {"v:\"x\"": {}},
            },
        })
    }

    fn pod() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": "n", "labels": {"app": "1"}},
            "spec": {
                "containers": [
                    {"name": "a", "image": "i:1", "args": ["1", "2"]},
                    {"name": "b", "image": "i:2"},
                ],
                "finalizers": ["x"],
            },
        })
    }

    #[test]
    fn changes_of_others_do_not_show_in_what_is_owned() {
        let fields_json = pod_fields();
        let mut live = pod();
        let before = extract(fields(&fields_json), &live);
        live["metadata"]["labels"]["other"] = "1".into();
        live["metadata"]["resourceVersion"] = "9".into();
        live["spec"]["containers"][1]["pull"] = "Always".into();
        live["spec"]["finalizers"] = json!(["y", "x"]);
        live["spec"]["containers"]
            .as_array_mut()
            .unwrap()
            .push(json!({"name": "c"}));
        assert_eq!(extract(fields(&fields_json), &live), before);
        for (pointer, value) in [
            ("/metadata/labels/app", json!("2")),
            ("/spec/containers/0/args", json!(["1"])),
            ("/spec/containers/1/name", json!("z")),
            ("/spec/finalizers", json!([])),
        ] {
            let mut changed = live.clone();
            *changed.pointer_mut(pointer).unwrap() = value;
            assert_ne!(extract(fields(&fields_json), &changed), before, "{pointer}");
        }
    }

    #[test]
    fn an_applied_object_is_covered_by_its_fields() {
        let fields_json = pod_fields();
        assert!(covers(fields(&fields_json), &pod()));
        for (pointer, value) in [
            ("/metadata/labels", json!({"app": "1", "x": "2"})),
            ("/metadata/annotations", json!({"a": "b"})),
            ("/spec/containers/1/args", json!(["1"])),
            ("/spec/containers/1/name", json!("c")),
            ("/spec/finalizers", json!(["x", "y"])),
            ("/data", json!({"k": "v"})),
        ] {
            let mut more = pod();
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            more.pointer_mut(parent).unwrap()[key] = value;
            assert!(!covers(fields(&fields_json), &more), "{pointer}");
        }
    }

    fn kept(
        fields_json: &Value,
        live: &Value,
        left: &Value,
        original: &Value,
        reduced: &Value,
    ) -> Value {
        let mut target = reduced.clone();
        keep(fields(fields_json), live, left, Some(original), &mut target);
        target
    }

    #[test]
    fn an_ignored_field_that_is_owned_is_sent_as_it_is() {
        let fields_json = json!({"f:spec": {"f:replicas": {}, "f:x": {}}});
        let live = json!({"spec": {"replicas": 2, "x": 1, "y": 3}});
        let left = json!({"spec": {"x": 1}});
        let original = json!({"spec": {"replicas": 5, "x": 7}});
        let reduced = json!({"spec": {"x": 7}});
        assert_eq!(
            kept(&fields_json, &live, &left, &original, &reduced),
            json!({"spec": {"x": 7, "replicas": 2}})
        );
        let foreign = json!({"f:spec": {"f:x": {}}});
        assert_eq!(kept(&foreign, &live, &left, &original, &reduced), reduced);
        // Also where the manifest has nothing left to put it in.
        let none = json!({});
        let nothing_left = json!({});
        assert_eq!(
            kept(&fields_json, &live, &nothing_left, &original, &none),
            json!({"spec": {"replicas": 2, "x": 1}})
        );
    }

    #[test]
    fn ignored_list_items_stay_in_their_place() {
        let item = |name: &str| json!({".": {}, "f:name": {}, (format!("f:{name}")): {}});
        let fields_json = json!({"f:env": {
            "k:{\"name\":\"a\"}": item("value"),
            "k:{\"name\":\"b\"}": item("none"),
            "k:{\"name\":\"c\"}": item("value"),
        }});
        let env = |values: &[(&str, &str)]| {
            let item = |(name, value): &(&str, &str)| json!({"name": name, "value": value});
            json!({"env": values.iter().map(item).collect::<Vec<_>>()})
        };
        // Of b only the item is owned: its value is somebody else's by now.
        let live = env(&[("a", "1"), ("b", "9"), ("c", "3"), ("other", "o")]);
        let left = env(&[("c", "3"), ("other", "o")]);
        let original = env(&[("c", "4"), ("b", "2"), ("a", "1")]);
        let reduced = env(&[("c", "4")]);
        assert_eq!(
            kept(&fields_json, &live, &left, &original, &reduced),
            json!({"env": [
                {"name": "c", "value": "4"}, {"name": "b"}, {"name": "a", "value": "1"},
            ]})
        );
    }

    #[test]
    fn a_part_of_an_item_is_kept_in_the_item() {
        let fields_json = json!({"f:l": {"k:{\"name\":\"a\"}": {"f:name": {}, "f:image": {}}}});
        let live = json!({"l": [{"name": "a", "image": "live"}]});
        let left = json!({"l": [{"name": "a"}]});
        let original = json!({"l": [{"name": "a", "image": "new"}]});
        let reduced = left.clone();
        assert_eq!(kept(&fields_json, &live, &left, &original, &reduced), live);
        // The manifest dropped the item; the ignored field holds it.
        assert_eq!(
            kept(&fields_json, &live, &left, &json!({}), &json!({})),
            live
        );
    }

    #[test]
    fn what_is_owned_as_a_whole_gets_its_ignored_part_back() {
        let fields_json = json!({"f:o": {}, "f:s": {"v:\"x\"": {}, "v:\"y\"": {}}});
        let live = json!({"o": {"a": 1, "l": [{"b": 2, "c": 3}]}, "s": ["x", "y"]});
        let left = json!({"o": {"a": 1, "l": [{"c": 3}]}, "s": ["y"]});
        let reduced = json!({"o": {"a": 5, "l": [{"c": 6}]}, "s": ["y"]});
        assert_eq!(
            kept(
                &fields_json,
                &live,
                &left,
                &json!({"s": ["x", "y"]}),
                &reduced
            ),
            json!({"o": {"a": 5, "l": [{"b": 2, "c": 6}]}, "s": ["x", "y"]})
        );
        let same = left.clone();
        assert_eq!(
            kept(&fields_json, &live, &left, &json!({"s": ["x", "y"]}), &same),
            live
        );
        // Another shape is the manifest's word.
        let other = json!({"o": {"a": 5, "l": []}, "s": ["y"]});
        let result = kept(&fields_json, &live, &left, &json!({}), &other);
        assert_eq!(result["o"], other["o"]);
    }

    /// Comparing each item with each field would take billions of steps here.
    #[test]
    fn long_lists_cost_in_proportion_to_their_length() {
        const LENGTH: usize = 50_000;
        let item = |n: usize| json!({"name": format!("n{n}"), "v": n});
        let key = |n: usize| format!("k:{{\"name\":\"n{n}\"}}");
        let fields_json: Value = (0..LENGTH)
            .map(|n| (key(n), json!({"f:name": {}, "f:v": {}})))
            .collect();
        let fields_json = json!({ "f:l": fields_json });
        let list = |keep: &dyn Fn(usize) -> bool| {
            let items: Value = (0..LENGTH).filter(|n| keep(*n)).map(item).collect();
            json!({ "l": items })
        };
        let (live, even) = (list(&|_| true), list(&|n| n % 2 == 0));
        assert!(covers(fields(&fields_json), &live));
        assert_eq!(
            extract(fields(&fields_json), &live)["f:l"][key(LENGTH - 1)]["f:v"],
            json!(LENGTH - 1)
        );
        assert_eq!(kept(&fields_json, &live, &even, &live, &even), live);
        let none = json!({ "l": [] });
        assert_eq!(kept(&fields_json, &live, &none, &live, &none), live);
    }

    #[test]
    fn items_are_found_by_as_many_sets_of_keys_as_there_may_be() {
        let item: Value = (0..=MAX_KEY_SETS)
            .map(|n| (format!("k{n}"), json!(n)))
            .collect();
        let live = json!({ "l": [item] });
        // Nine is written before ten: all sets but the last are looked at.
        let sets = |count: usize| -> Value {
            let keys = (0..count).map(|n| (format!("k:{{\"k{n}\":{n}}}"), json!({"f:x": {}})));
            json!({ "f:l": keys.collect::<Value>() })
        };
        let found = |count: usize| {
            let parts = extract(fields(&sets(count)), &live);
            parts["f:l"].as_object().unwrap().len()
        };
        assert_eq!(found(MAX_KEY_SETS), MAX_KEY_SETS);
        assert_eq!(found(MAX_KEY_SETS + 1), MAX_KEY_SETS);
    }
}
