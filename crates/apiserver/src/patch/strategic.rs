//! Strategic merge patch for built-in types.
//!
//! Lists of objects merge by key where the type says so, others are replaced. The keys are
//! those that the Go types carry as `patchMergeKey`; schemas of built-in types have them. Known
//! directives: `$patch: replace|delete`, `$deleteFromPrimitiveList/…`,
//! `$setElementOrder/…`, `$retainKeys`.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value, json};

use crate::schema::{Additional, PatchMerge, Schema};

/// How the list of a schema merges; without a rule it is replaced.
fn rule(schema: Option<&Schema>) -> Option<&PatchMerge> {
    schema.and_then(|s| s.patch_merge.as_ref())
}

/// The schema of a field.
fn field<'a>(schema: Option<&'a Schema>, name: &str) -> Option<&'a Schema> {
    let schema = schema?;
    match (schema.property(name), &schema.additional) {
        (Some(property), _) => Some(property),
        (None, Additional::Schema(child)) => Some(child),
        _ => None,
    }
}

/// Applies a patch to an object of a built-in type with this schema.
pub(super) fn apply(
    schema: Option<&Schema>,
    target: &mut Value,
    patch: &Value,
) -> Result<(), String> {
    let Value::Object(patch) = patch else {
        return Err("a strategic merge patch is an object".to_owned());
    };
    merge_object(schema, &mut Vec::new(), target, patch)
}

fn merge_object<'a>(
    schema: Option<&Schema>,
    at: &mut Vec<&'a str>,
    target: &mut Value,
    patch: &'a Map<String, Value>,
) -> Result<(), String> {
    match patch.get("$patch").map(|d| (d, d.as_str())) {
        None | Some((_, Some("merge"))) => {}
        Some((_, Some("replace"))) => {
            let mut whole = patch.clone();
            whole.remove("$patch");
            *target = Value::Object(whole);
            return Ok(());
        }
        Some((_, Some("delete"))) => {
            *target = json!({});
            return Ok(());
        }
        Some((other, _)) => return Err(format!("unknown patch directive {other}")),
    }
    let fields = crate::object::as_object_mut(target);
    if let Some(keep) = patch.get("$retainKeys").and_then(Value::as_array) {
        let keep: HashSet<&str> = keep.iter().filter_map(Value::as_str).collect();
        fields.retain(|name, _| keep.contains(name.as_str()));
    }
    for (name, value) in patch {
        if let Some(field) = name.strip_prefix("$deleteFromPrimitiveList/") {
            let gone = value
                .as_array()
                .ok_or_else(|| format!("{name} is not a list"))?;
            if let Some(list) = fields.get_mut(field).and_then(Value::as_array_mut) {
                let gone: HashSet<String> = gone.iter().map(Value::to_string).collect();
                list.retain(|item| !gone.contains(&item.to_string()));
            }
            continue;
        }
        if name.starts_with('$') {
            continue;
        }
        at.push(name);
        match value {
            Value::Null => {
                fields.remove(name);
            }
            Value::Object(patch) => {
                let entry = fields.entry(name.clone()).or_insert_with(|| json!({}));
                merge_object(field(schema, name), at, entry, patch)?;
            }
            Value::Array(items) => {
                let entry = fields.entry(name.clone()).or_insert_with(|| json!([]));
                merge_list(field(schema, name), at, entry, items)?;
            }
            plain => {
                fields.insert(name.clone(), plain.clone());
            }
        }
        at.pop();
    }
    for (name, order) in patch {
        if let (Some(name), Some(order)) =
            (name.strip_prefix("$setElementOrder/"), order.as_array())
            && let Some(list) = fields.get_mut(name).and_then(Value::as_array_mut)
        {
            set_order(list, order, rule(field(schema, name)));
        }
    }
    Ok(())
}

fn merge_list<'a>(
    schema: Option<&Schema>,
    at: &mut Vec<&'a str>,
    target: &mut Value,
    items: &'a [Value],
) -> Result<(), String> {
    let replaces = items
        .iter()
        .any(|i| i.get("$patch").is_some_and(|d| d == "replace"));
    let Some(list) = target.as_array_mut().filter(|_| !replaces) else {
        let kept = items.iter().filter(|i| i.get("$patch").is_none());
        *target = Value::Array(kept.cloned().collect());
        return Ok(());
    };
    match rule(schema) {
        None => *list = items.to_vec(),
        Some(PatchMerge::Set) => {
            let mut known: HashSet<String> = list.iter().map(Value::to_string).collect();
            for item in items {
                if known.insert(item.to_string()) {
                    list.push(item.clone());
                }
            }
        }
        Some(PatchMerge::Key(key)) => {
            let schema = schema.and_then(|s| s.items.as_deref());
            let mut places: HashMap<String, usize> = HashMap::new();
            for (place, item) in list.iter().enumerate() {
                if let Some(id) = item.get(key) {
                    places.entry(id.to_string()).or_insert(place);
                }
            }
            let mut deleted = false;
            for item in items {
                let Value::Object(patch) = item else {
                    return Err(format!("{}: list item is not an object", at.join(".")));
                };
                let id = patch.get(key).ok_or_else(|| {
                    format!("map: {item} does not contain declared merge key: {key}")
                })?;
                let id = id.to_string();
                let delete = patch.get("$patch").is_some_and(|d| d == "delete");
                match places.get(&id).copied() {
                    // Goes at the end, so that the places of others stay.
                    Some(found) if delete => {
                        list[found] = Value::Null;
                        places.remove(&id);
                        deleted = true;
                    }
                    Some(found) => merge_object(schema, at, &mut list[found], patch)?,
                    None if delete => {}
                    None => {
                        let mut fresh = json!({});
                        merge_object(schema, at, &mut fresh, patch)?;
                        places.insert(id, list.len());
                        list.push(fresh);
                    }
                }
            }
            if deleted {
                list.retain(|item| !item.is_null());
            }
        }
    }
    Ok(())
}

/// Brings the named items into the given order; others stay behind them in theirs.
fn set_order(list: &mut [Value], order: &[Value], rule: Option<&PatchMerge>) {
    let id = |item: &Value| match rule {
        Some(PatchMerge::Key(key)) => item.get(key).map(Value::to_string),
        Some(PatchMerge::Set) | None => Some(item.to_string()),
    };
    let mut places: HashMap<Option<String>, usize> = HashMap::new();
    for (place, item) in order.iter().enumerate() {
        places.entry(id(item)).or_insert(place);
    }
    list.sort_by_cached_key(|item| places.get(&id(item)).copied().unwrap_or(usize::MAX));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin::BUILTINS;
    use crate::builtin_schema;

    fn schema(kind: &str) -> Schema {
        let builtin = BUILTINS.iter().find(|b| b.kind == kind).unwrap();
        builtin_schema::compiled(builtin).unwrap()
    }

    #[track_caller]
    fn check(kind: &str, mut target: Value, patch: &Value, want: &Value) {
        apply(Some(&schema(kind)), &mut target, patch).unwrap();
        assert_eq!(target, *want);
    }

    #[test]
    fn containers_merge_by_name_and_ports_by_number() {
        check(
            "Deployment",
            json!({"spec": {"template": {"spec": {"containers": [
                {"name": "a", "image": "x:1", "ports": [{"containerPort": 80, "name": "http"}]},
                {"name": "b", "image": "y:1", "args": ["1", "2"]},
            ]}}}}),
            &json!({"spec": {"template": {"spec": {"containers": [
                {"name": "b", "image": "y:2", "args": ["3"]},
                {"name": "a", "ports": [{"containerPort": 80, "protocol": "TCP"}]},
                {"name": "c"},
            ]}}}}),
            &json!({"spec": {"template": {"spec": {"containers": [
                {"name": "a", "image": "x:1", "ports": [
                    {"containerPort": 80, "name": "http", "protocol": "TCP"},
                ]},
                {"name": "b", "image": "y:2", "args": ["3"]},
                {"name": "c"},
            ]}}}}),
        );
    }

    #[test]
    fn conditions_merge_by_type_and_finalizers_as_a_set() {
        check(
            "Deployment",
            json!({
                "metadata": {"finalizers": ["a/a"]},
                "status": {"conditions": [{"type": "Available", "status": "False"}]},
            }),
            &json!({
                "metadata": {"finalizers": ["b/b", "a/a"]},
                "status": {"conditions": [
                    {"type": "Available", "status": "True"}, {"type": "Progressing"},
                ]},
            }),
            &json!({
                "metadata": {"finalizers": ["a/a", "b/b"]},
                "status": {"conditions": [
                    {"type": "Available", "status": "True"}, {"type": "Progressing"},
                ]},
            }),
        );
    }

    #[test]
    fn directives_delete_replace_and_order() {
        check(
            "Pod",
            json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}, {"name": "c"}]}}),
            &json!({"spec": {
                "$setElementOrder/containers": [{"name": "c"}, {"name": "a"}],
                "containers": [{"name": "b", "$patch": "delete"}],
            }}),
            &json!({"spec": {"containers": [{"name": "c"}, {"name": "a"}]}}),
        );
        check(
            "Pod",
            json!({"spec": {"containers": [{"name": "a"}], "nodeSelector": {"x": "y"}}}),
            &json!({"spec": {
                "containers": [{"$patch": "replace"}, {"name": "z"}],
                "nodeSelector": {"$patch": "replace", "q": "r"},
            }}),
            &json!({"spec": {"containers": [{"name": "z"}], "nodeSelector": {"q": "r"}}}),
        );
        check(
            "ConfigMap",
            json!({"metadata": {"finalizers": ["a/a", "b/b"]}, "data": {"k": "v"}}),
            &json!({
                "metadata": {"$deleteFromPrimitiveList/finalizers": ["a/a"]},
                "data": {"k": null, "l": "w"},
            }),
            &json!({"metadata": {"finalizers": ["b/b"]}, "data": {"l": "w"}}),
        );
        check(
            "Deployment",
            json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {}}}}),
            &json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}),
            &json!({"spec": {"strategy": {"type": "Recreate"}}}),
        );
    }

    #[test]
    fn list_items_without_their_key_are_refused() {
        let mut pod = json!({"spec": {"containers": [{"name": "a"}]}});
        let patch = json!({"spec": {"containers": [{"image": "x"}]}});
        let error = apply(Some(&schema("Pod")), &mut pod, &patch).unwrap_err();
        assert!(
            error.contains("does not contain declared merge key: name"),
            "{error}"
        );
    }

    /// As large as a request can be: each item is looked up, not searched.
    #[test]
    fn lists_merge_and_are_ordered_by_key() {
        let container = |at: usize, image: &str| json!({"name": format!("c{at}"), "image": image});
        let count = 20_000;
        let all = |image: &str| {
            (0..count)
                .map(|at| container(at, image))
                .collect::<Vec<_>>()
        };
        let mut pod = json!({"spec": {"containers": all("old")}});
        let order: Vec<Value> = (0..count)
            .rev()
            .map(|at| json!({"name": format!("c{at}")}))
            .collect();
        let mut changes = all("new");
        changes[7] = json!({"name": "c7", "$patch": "delete"});
        let patch = json!({"spec": {"containers": changes, "$setElementOrder/containers": order}});
        apply(Some(&schema("Pod")), &mut pod, &patch).unwrap();
        let containers = pod["spec"]["containers"].as_array().unwrap();
        assert_eq!(containers.len(), count - 1);
        assert_eq!(containers[0], container(count - 1, "new"));
        assert_eq!(containers[count - 2], container(0, "new"));
    }
}
