//! The server's own fields of `metadata`.

use serde_json::{Value, json};

use crate::object;
use crate::registry::ResourceDef;

/// Fields that the server sets, whatever a client sends.
const SERVER_FIELDS: [&str; 7] = [
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "selfLink",
];

/// The fields of `metav1.ObjectMeta`.
const KNOWN_FIELDS: [&str; 15] = [
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
];

/// Removes unknown fields of `metadata` and names them.
pub(crate) fn prune_metadata(object: &mut Value) -> Vec<String> {
    let mut unknown = Vec::new();
    object::metadata_mut(object).retain(|field, _| {
        let known = KNOWN_FIELDS.contains(&field.as_str());
        if !known {
            unknown.push(format!("metadata.{field}"));
        }
        known
    });
    drop_empty(object);
    unknown
}

/// Removes empty lists and maps, which Go's `omitempty` never writes.
fn drop_empty(object: &mut Value) {
    for emptied in ["finalizers", "ownerReferences", "labels", "annotations"] {
        let empty = object
            .pointer(&format!("/metadata/{emptied}"))
            .is_some_and(|v| {
                v.as_array().is_some_and(Vec::is_empty)
                    || v.as_object().is_some_and(serde_json::Map::is_empty)
            });
        if empty {
            object::set_meta(object, emptied, Value::Null);
        }
    }
}

/// Gives a new object its identity.
pub(crate) fn prepare_create_metadata(def: &ResourceDef, object: &mut Value) {
    let metadata = object::metadata_mut(object);
    for field in SERVER_FIELDS {
        metadata.remove(field);
    }
    object::drop_nulls(object.get_mut("metadata").expect("made by metadata_mut"));
    object::set_meta(object, "uid", json!(object::new_uid()));
    object::set_meta(object, "creationTimestamp", json!(object::now()));
    if def.counts_generation() {
        object::set_meta(object, "generation", json!(1));
    }
}

/// Keeps an object's identity through an update.
pub(crate) fn prepare_update_metadata(old: &Value, new: &mut Value) {
    object::metadata_mut(new);
    object::drop_nulls(new.get_mut("metadata").expect("made by metadata_mut"));
    for field in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
    ] {
        let kept = old
            .pointer(&format!("/metadata/{field}"))
            .cloned()
            .unwrap_or_default();
        object::set_meta(new, field, kept);
    }
    object::set_meta(new, "selfLink", Value::Null);
    if let Some(generate_name) = old.pointer("/metadata/generateName").cloned()
        && new.pointer("/metadata/generateName").is_none()
    {
        object::set_meta(new, "generateName", generate_name);
    }
    drop_empty(new);
}
