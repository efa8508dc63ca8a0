//! What happens to an object between decoding and storage, by type.

mod access;
mod defaults;
mod initial;
mod job;
mod metadata;
mod rules;

pub(crate) use metadata::{prepare_create_metadata, prepare_update_metadata};

use serde_json::Value;

use crate::crd;
use crate::decode;
use crate::object;
use crate::registry::{ResourceDef, VersionDef};
use crate::schema::{self, Nulls};
use crate::status::{ApiError, ApiResult, FieldError};
use crate::verbs::apply;
use crate::verbs::call::Call;

/// Which part of an object a write is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Everything but the status.
    Main,
    /// The status alone.
    Status,
    /// A namespace's `spec.finalizers` alone.
    Finalize,
}

/// Makes a new object ready for storage: the parts that clients do not decide on.
pub(crate) fn prepare_create(def: &ResourceDef, version: &VersionDef, object: &mut Value) {
    prepare_create_metadata(def, object);
    if version.status {
        object::as_object_mut(object).remove("status");
    }
    if def.builtin.is_some() {
        initial::set(def, object);
        defaults::set_late(def, object);
    }
}

/// Takes over from the stored object what this kind of write may not change.
pub(crate) fn prepare_update(
    def: &ResourceDef,
    version: &VersionDef,
    part: Part,
    old: &Value,
    new: &mut Value,
) {
    match part {
        Part::Main if version.status => copy_field(old, new, "status"),
        Part::Main => {}
        Part::Status => {
            let status = new.get("status").cloned();
            let revision = new.pointer("/metadata/resourceVersion").cloned();
            let uid = new.pointer("/metadata/uid").cloned();
            let metadata = new["metadata"].take();
            *new = old.clone();
            set_field(new, "status", status);
            if def.builtin.is_some() {
                keep_metadata(def, old, new, metadata);
            }
            object::set_meta(new, "resourceVersion", revision.unwrap_or_default());
            if let Some(uid) = uid {
                object::set_meta(new, "uid", uid);
            }
        }
        Part::Finalize => copy_field(old, new, "status"),
    }
    prepare_update_metadata(old, new);
    if def.builtin.is_some() {
        defaults::set_late(def, new);
    }
    if part != Part::Status && def.counts_generation() && spec_changed(def, old, new) {
        object::set_meta(new, "generation", (object::generation(old) + 1).into());
    }
}

/// Takes the metadata that was sent with a status of a built-in type, which counts, except for
/// what the type keeps.
fn keep_metadata(def: &ResourceDef, old: &Value, new: &mut Value, sent: Value) {
    set_field(new, "metadata", Some(sent));
    let kept = match def.kind.as_str() {
        "Deployment" => "labels",
        "Pod" => "ownerReferences",
        _ => return,
    };
    let value = old.pointer(&format!("/metadata/{kept}")).cloned();
    object::set_meta(new, kept, value.unwrap_or_default());
}

fn copy_field(old: &Value, new: &mut Value, field: &str) {
    set_field(new, field, old.get(field).cloned());
}

fn set_field(object: &mut Value, field: &str, value: Option<Value>) {
    let root = object::as_object_mut(object);
    match value {
        Some(value) => root.insert(field.to_owned(), value),
        None => root.remove(field),
    };
}

/// True when a change counts for `metadata.generation`: for built-in types the spec, for
/// custom types everything outside metadata and, where it is a subresource, status.
fn spec_changed(def: &ResourceDef, old: &Value, new: &Value) -> bool {
    if def.builtin.is_some() {
        let fields: &[&str] = match def.kind.as_str() {
            "PriorityClass" => &["value", "globalDefault", "description", "preemptionPolicy"],
            _ => &["spec"],
        };
        return fields.iter().any(|f| old.get(f) != new.get(f));
    }
    let status_apart = def.versions.iter().any(|v| v.status);
    let counted = |object: &Value| {
        let mut object = object.clone();
        let root = object::as_object_mut(&mut object);
        for field in ["metadata", "kind", "apiVersion"] {
            root.remove(field);
        }
        if status_apart {
            root.remove("status");
        }
        object
    };
    counted(old) != counted(new)
}

/// Brings a decoded object into its type's shape: names and removes the fields that the type
/// does not have, and sets defaults.
///
/// # Errors
///
/// Built-in types refuse values of a wrong type here, custom ones while validating.
pub(crate) fn shape(call: &Call, object: &mut Value) -> ApiResult<Vec<String>> {
    let def = &call.def;
    let Some(schema) = call.version().schema.get() else {
        if &*def.key == crate::builtin::CRDS {
            crd::set_defaults(object);
        }
        return Ok(metadata::prune_metadata(object));
    };
    let mut unknown = metadata::prune_metadata(object);
    if def.builtin.is_some() {
        // What a revision holds is kept as it came.
        let held = (def.kind == "ControllerRevision")
            .then(|| object::as_object_mut(object).remove("data"))
            .flatten();
        let given = object.get("metadata").cloned();
        object::drop_nulls(object);
        if let Some(given) = given {
            object["metadata"] = given;
        }
        if let Some(problem) = schema::type_problem(schema, object, "") {
            return Err(decode::cannot_be_handled(call, &problem));
        }
        unknown.extend(schema::prune(schema, object, true));
        // An empty list of managers asks to forget them; metadata is pruned on its own.
        let metadata = object["metadata"].take();
        schema::drop_empty(schema, object);
        object["metadata"] = metadata;
        if let (Some(schema), Some(status)) = (schema.property("status"), object.get_mut("status"))
        {
            schema::add_nulls(schema, status);
        }
        defaults::set(def, object);
        if let Some(held) = held.filter(|held| !held.is_null()) {
            set_field(object, "data", Some(held));
        }
    } else {
        unknown.extend(schema::prune(schema, object, true));
        let nulls = match call.content_type.as_str() {
            apply::CONTENT_TYPE => Nulls::Keep,
            _ => Nulls::Drop,
        };
        schema::apply_defaults(schema, object, nulls)
            .map_err(|e| ApiError::too_large_because(&e.to_string()))?;
    }
    Ok(unknown)
}

/// Checks an object that is about to be stored.
pub(crate) fn validate(
    def: &ResourceDef,
    version: &VersionDef,
    object: &Value,
    old: Option<(Part, &Value)>,
    errors: &mut Vec<FieldError>,
) {
    if def.builtin.is_none() {
        if let Some(schema) = version.schema.get() {
            schema::validate(schema, object, errors);
            // Rules may rely on the types of what they look at.
            if let Some(rules) = schema.rules.as_ref().filter(|_| errors.is_empty()) {
                rules.validate(schema, object, old.map(|(_, old)| old), errors);
            }
        }
        return;
    }
    let old = old.map(|(_, old)| old);
    if &*def.key == crate::builtin::CRDS {
        crd::validate(object, old, errors);
    } else {
        rules::validate(def, object, old, errors);
    }
}
