//! Merging the metadata of a manifest into that of the live object, so that what others put there
//! stays.

use serde_json::{Map, Value, json};

use crate::ownership::{OwnerChange, references};

/// Fields of `metadata` that the server fills in; in a manifest they come from an export and
/// would fail as preconditions or be refused.
const SERVER_FIELDS: [&str; 9] = [
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
    "generateName",
];

/// Removes the fields that the server fills in.
pub(super) fn strip_server_fields(metadata: &mut Map<String, Value>) {
    for field in SERVER_FIELDS {
        metadata.remove(field);
    }
}

/// Removes what a manifest has no say in: fields of the server, and owner references, which are
/// the agent's business.
pub(super) fn strip(metadata: &mut Map<String, Value>) {
    strip_server_fields(metadata);
    metadata.remove("ownerReferences");
    // A key that is both set and removed is removed; otherwise each pass would do the other half.
    for field in ["labels", "annotations"] {
        if let Some(Value::Object(entries)) = metadata.get_mut(field) {
            let removed: Vec<String> = entries
                .keys()
                .filter_map(|key| key.strip_suffix('-').map(str::to_owned))
                .collect();
            for key in removed {
                entries.remove(&key);
            }
        }
    }
}

/// The metadata to create an object with: without the keys that ask for a removal.
pub(super) fn for_create(desired: &Map<String, Value>, owner: &OwnerChange) -> Map<String, Value> {
    let mut metadata = desired.clone();
    for field in ["labels", "annotations"] {
        if let Some(Value::Object(entries)) = metadata.get_mut(field) {
            entries.retain(|key, _| !key.ends_with('-'));
        }
    }
    if let Some(owners) = owner.merge(&[]) {
        metadata.insert("ownerReferences".into(), json!(owners));
    }
    metadata
}

/// The metadata to replace that of a live object with; `None` if it has all that is wanted.
///
/// Labels and annotations of the manifest are set, those of others stay; a key that ends in `-`
/// removes the key without it. Finalizers are the live object's.
pub(super) fn merge(
    live: &Map<String, Value>,
    desired: &Map<String, Value>,
    owner: &OwnerChange,
) -> Option<Map<String, Value>> {
    let mut changes = Vec::new();
    for field in ["labels", "annotations"] {
        if let Some(entries) = merge_keys(live.get(field), desired.get(field)) {
            changes.push((field, Value::Object(entries)));
        }
    }
    if let Some(owners) = owner.merge(&references(live)) {
        changes.push(("ownerReferences", json!(owners)));
    }
    if changes.is_empty() {
        return None;
    }
    let mut merged = live_for_update(live);
    merged.extend(
        changes
            .into_iter()
            .map(|(field, value)| (field.to_owned(), value)),
    );
    Some(merged)
}

/// The metadata to create an object anew with: as for any other, with the labels, annotations and
/// owners that the live one has. Finalizers are not taken along: those who set them have let go of
/// the object by the time it is gone.
pub(super) fn for_recreate(
    live: &Map<String, Value>,
    desired: &Map<String, Value>,
    owner: &OwnerChange,
) -> Map<String, Value> {
    let mut metadata = desired.clone();
    for field in ["labels", "annotations"] {
        let entries = merge_keys(live.get(field), desired.get(field)).map(Value::Object);
        match entries.as_ref().or(live.get(field)) {
            Some(entries) => metadata.insert(field.into(), entries.clone()),
            None => metadata.remove(field),
        };
    }
    let known = references(live);
    let owners = owner.merge(&known).unwrap_or(known);
    if !owners.is_empty() {
        metadata.insert("ownerReferences".into(), json!(owners));
    }
    metadata
}

/// The metadata of a live object as an update carries it: with its resource version, which
/// guards the update, and its finalizers; without the record of managed fields, which an update
/// does not need.
pub(super) fn live_for_update(live: &Map<String, Value>) -> Map<String, Value> {
    let mut metadata = live.clone();
    metadata.remove("managedFields");
    metadata
}

fn merge_keys(live: Option<&Value>, desired: Option<&Value>) -> Option<Map<String, Value>> {
    let desired = desired?.as_object()?;
    let live = live.and_then(Value::as_object);
    let get = |key: &str| live.and_then(|live| live.get(key));
    let differs = desired
        .iter()
        .any(|(key, value)| match key.strip_suffix('-') {
            Some(removed) => get(removed).is_some(),
            None => get(key) != Some(value),
        });
    if !differs {
        return None;
    }
    let mut merged = live.cloned().unwrap_or_default();
    for (key, value) in desired {
        match key.strip_suffix('-') {
            Some(removed) => merged.remove(removed),
            None => merged.insert(key.clone(), value.clone()),
        };
    }
    Some(merged)
}
