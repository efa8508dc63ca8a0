//! Filling in what a server fills in.

use serde_json::Value;

use super::Object;

/// Sets a field that a server would set: one that is missing, null or empty.
pub(super) fn fill(object: &mut Object, field: &str, default: impl Into<Value>) {
    let is_open = match object.get(field) {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        Some(_) => false,
    };
    if is_open {
        object.insert(field.into(), default.into());
    }
}

/// The object in a field.
pub(super) fn object<'a>(parent: &'a mut Object, field: &str) -> Option<&'a mut Object> {
    parent.get_mut(field)?.as_object_mut()
}

/// The object at the end of a path of fields.
pub(super) fn object_at<'a>(parent: &'a mut Object, path: &[&str]) -> Option<&'a mut Object> {
    path.iter()
        .try_fold(parent, |parent, field| object(parent, field))
}

/// The objects in a list.
pub(super) fn objects<'a>(
    parent: &'a mut Object,
    field: &str,
) -> impl Iterator<Item = &'a mut Object> {
    let items = parent.get_mut(field).and_then(Value::as_array_mut);
    items.into_iter().flatten().filter_map(Value::as_object_mut)
}
