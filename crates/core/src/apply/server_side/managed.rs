//! Who owns which fields: `metadata.managedFields`, read as it is.
//!
//! `fieldsV1` is a tree whose keys are `f:<field>`, `k:<keys of a list item>`, `v:<item of a
//! set>`, `i:<index>` and `.` for the thing itself. A key with nothing below owns all there is.

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

    fn is(&self, item: &Value) -> bool {
        match self {
            Self::Field(_) => false,
            Self::Item(keys) => keys.iter().all(|(key, value)| item.get(key) == Some(value)),
            Self::Member(value) => item == value,
        }
    }

    fn find<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        match self {
            Self::Field(field) => value.as_object()?.get(*field),
            _ => value.as_array()?.iter().find(|item| self.is(item)),
        }
    }

    fn find_mut<'v>(&self, value: &'v mut Value) -> Option<&'v mut Value> {
        match self {
            Self::Field(field) => value.as_object_mut()?.get_mut(*field),
            _ => value.as_array_mut()?.iter_mut().find(|item| self.is(item)),
        }
    }
}

/// What an object has in the owned fields, in the shape of `fieldsV1`, to be compared.
pub(super) fn extract(fields: &Map<String, Value>, value: &Value) -> Value {
    if fields.is_empty() {
        return value.clone();
    }
    let part = |(key, below): (&String, &Value)| {
        let found = Element::parse(key)?.find(value)?;
        let below = below.as_object();
        let part = below.map_or_else(|| found.clone(), |below| extract(below, found));
        Some((key.clone(), part))
    };
    Value::Object(fields.iter().filter_map(part).collect())
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
        Value::Array(items) => items.iter().all(|item| {
            fields.iter().any(|(key, below)| {
                Element::parse(key).is_some_and(|element| element.is(item))
                    && below
                        .as_object()
                        .is_some_and(|below| covers_value(below, item))
            })
        }),
        _ => false,
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
    for (key, below) in fields {
        let (Some(element), Some(below)) = (Element::parse(key), below.as_object()) else {
            continue;
        };
        let Some(value) = element.find(live) else {
            continue;
        };
        match element.find(left) {
            None => put(&element, owned(below, value), original, target),
            Some(rest) if rest == value => {}
            Some(rest) if below.is_empty() => {
                if let Some(target) = element.find_mut(target) {
                    restore(value, rest, target);
                }
            }
            Some(rest) => {
                let original_below = original.and_then(|original| element.find(original));
                if let Some(target) = element.find_mut(target) {
                    keep(below, value, rest, original_below, target);
                } else {
                    let mut fresh = Value::Null;
                    keep(below, value, rest, original_below, &mut fresh);
                    if !fresh.is_null() {
                        if let (Element::Item(keys), Some(item)) = (&element, fresh.as_object_mut())
                        {
                            item.extend(keys.clone());
                        }
                        put(&element, fresh, original, target);
                    }
                }
            }
        }
    }
}

/// The owned part of a value, in the value's own shape.
fn owned(fields: &Map<String, Value>, value: &Value) -> Value {
    if fields.is_empty() {
        return value.clone();
    }
    let parts = || {
        fields
            .iter()
            .filter_map(|(key, below)| Some((Element::parse(key)?, below.as_object()?)))
    };
    match value {
        Value::Object(entries) => {
            let part = |(element, below)| match element {
                Element::Field(field) => {
                    Some((field.to_owned(), owned(below, entries.get(field)?)))
                }
                _ => None,
            };
            Value::Object(parts().filter_map(part).collect())
        }
        Value::Array(items) => {
            let part = |item| {
                let (element, below) = parts().find(|(element, _)| element.is(item))?;
                Some(owned_item(&element, below, item))
            };
            Value::Array(items.iter().filter_map(part).collect())
        }
        other => other.clone(),
    }
}

fn owned_item(element: &Element<'_>, fields: &Map<String, Value>, item: &Value) -> Value {
    let mut part = owned(fields, item);
    if let (Element::Item(keys), Some(part)) = (element, part.as_object_mut()) {
        part.extend(keys.clone());
    }
    part
}

/// Puts a part where it belongs, unless there is one: the manifest's own counts.
fn put(element: &Element<'_>, mut part: Value, original: Option<&Value>, target: &mut Value) {
    if element.find(target).is_some() {
        return;
    }
    if let Element::Field(field) = element {
        if target.is_null() {
            *target = Value::Object(Map::new());
        }
        if let Some(target) = target.as_object_mut() {
            target.insert((*field).to_owned(), part);
        }
        return;
    }
    if let (Element::Item(keys), Some(part)) = (element, part.as_object_mut()) {
        part.extend(keys.clone());
    }
    if target.is_null() {
        *target = Value::Array(Vec::new());
    }
    let Some(items) = target.as_array_mut() else {
        return;
    };
    let original = original.and_then(Value::as_array);
    let place_of = |is: &dyn Fn(&Value) -> bool| original?.iter().position(is);
    let at = match place_of(&|item| element.is(item)) {
        None => items.len(),
        Some(place) => {
            let same = |item: &Value, other: &Value| match element {
                Element::Item(keys) => keys.keys().all(|key| item.get(key) == other.get(key)),
                _ => item == other,
            };
            items
                .iter()
                .take_while(|item| place_of(&|other| same(item, other)) < Some(place))
                .count()
        }
    };
    items.insert(at, part);
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
}
