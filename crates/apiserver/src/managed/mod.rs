//! Field management: who owns which field of an object (`metadata.managedFields`), and
//! server-side apply, which merges objects by it.
//!
//! Pure: a write's tracker takes the old state and the new one, and gives the new one with its
//! `managedFields`. What merges by key, as a set or as a whole is told by the type's schema
//! (`shape`). Rules and texts are those of Kubernetes 1.36.

mod compare;
mod conflict;
mod element;
mod entries;
mod fields;
mod last_applied;
mod merge;
mod ownership;
mod set;
mod shape;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::object;
use crate::registry::{ResourceDef, api_version};
use crate::schema::{Additional, Schema};
use conflict::Conflict;
use entries::{Manager, Managers, Operation};
use ownership::{Typing, Write};
use set::FieldSet;
use shape::Place;

/// Who writes what kind of change, as far as field management goes.
#[derive(Debug)]
pub(crate) struct Tracker<'a> {
    pub(crate) def: &'a ResourceDef,
    /// The group and version that the client speaks.
    pub(crate) api_version: String,
    /// The `fieldManager` of the request, or what stands in for it.
    pub(crate) manager: &'a str,
    /// Empty for the object itself.
    pub(crate) subresource: &'a str,
}

/// Why an object was not applied.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApplyError {
    /// It does not fit the schema, or cannot be merged.
    #[error("failed to create typed patch object ({subject}): {why}")]
    Typing { subject: String, why: String },
    /// Others own fields that it sets to other values.
    #[error("{}", conflict::message(&.0.0))]
    Conflict(Conflicts),
}

/// The fields that others own.
#[derive(Debug)]
pub(crate) struct Conflicts(Vec<Conflict>);

impl ApplyError {
    /// What the answer's details say about conflicts.
    pub(crate) fn causes(&self) -> Vec<Value> {
        match self {
            Self::Conflict(conflicts) => conflict::causes(&conflicts.0),
            Self::Typing { .. } => Vec::new(),
        }
    }
}

impl Typing for Tracker<'_> {
    fn place(&self, version: &str) -> Option<Place<'_>> {
        let found = self
            .def
            .versions
            .iter()
            .find(|v| api_version(&self.def.group, &v.name) == version)?;
        Some(Place::object(found.schema.merging()))
    }

    fn completed<'a>(&self, object: &'a Value) -> Cow<'a, Value> {
        let version = self.def.versions.first();
        match version.and_then(|v| v.schema.merging()) {
            // Only Go types write empty fields.
            Some(schema) if self.def.builtin.is_some() => {
                let mut object = object.clone();
                complete(schema, &mut object);
                Cow::Owned(object)
            }
            _ => Cow::Borrowed(object),
        }
    }
}

/// Adds the fields that Go writes even when they are empty.
fn complete(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, zero) in &schema.zeros {
                if !fields.contains_key(name) {
                    fields.insert(name.clone(), zero.clone());
                }
            }
            for (name, value) in fields {
                match (schema.property(name), &schema.additional) {
                    (Some(property), _) => complete(property, value),
                    (None, Additional::Schema(child)) => complete(child, value),
                    _ => {}
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = &schema.items {
                for item in items {
                    complete(schema, item);
                }
            }
        }
        _ => {}
    }
}

impl Tracker<'_> {
    /// Records what a create (`old` is `None`), update or patch has changed.
    pub(crate) fn update(&self, old: Option<&Value>, new: &mut Value) {
        let sent = take(new);
        let mut live = old.cloned().unwrap_or_else(|| self.nothing());
        let mut managers = self.managers_for(&take(&mut live), &sent);
        // Nobody is tracked again after a reset, until the object is applied.
        if !managers.is_empty() || old.is_none() {
            let write = WriteOf::new(self);
            let manager = self.manager(Operation::Update);
            write.get().update(&live, new, &mut managers, &manager);
            entries::cap(&mut managers);
        }
        object::set_meta(new, MANAGED_FIELDS, entries::write(&managers));
    }

    /// The managers that an update starts from. A client may send them, to correct them; one
    /// that does not know them must not lose them, nor may a subresource change them.
    fn managers_for(&self, live: &Value, sent: &Value) -> Managers {
        let stored = || entries::read(live).unwrap_or_default();
        if !self.subresource.is_empty() {
            return stored();
        }
        if entries::is_reset(sent) {
            return Managers::new();
        }
        match entries::read(sent) {
            Ok(managers) if !managers.is_empty() => managers,
            _ => stored(),
        }
    }

    /// Applies an object to the live one, or to nothing.
    ///
    /// # Errors
    ///
    /// Fails when the object does not fit its type, and with conflicts unless `force` is set.
    pub(crate) fn apply(
        &self,
        live: Option<&Value>,
        applied: &Value,
        force: bool,
    ) -> Result<Value, ApplyError> {
        let mut live = live.cloned().unwrap_or_else(|| self.nothing());
        let mut managers = entries::read(&take(&mut live)).unwrap_or_default();
        let place = self.place(&self.api_version).unwrap_or(Place::Deduced);
        let problems = fields::problems(place, applied);
        if !problems.is_empty() {
            return Err(self.typing_error(applied, &problems));
        }
        let write = WriteOf::new(self);
        let write = write.get();
        if managers.is_empty() {
            write.adopt(&live, &self.nothing(), &mut managers);
        }
        let manager = self.manager(Operation::Apply);
        let before = managers.clone();
        let mut result = write.apply(&live, applied, &mut managers, &manager, force);
        if let Err(conflicts) = result {
            // kubectl takes over silently what it has applied from the client's side before.
            let left = match self.manager {
                last_applied::KUBECTL => {
                    last_applied::not_its_own(place, &live, &self.api_version, conflicts)
                }
                _ => conflicts,
            };
            if !left.is_empty() {
                return Err(ApplyError::Conflict(Conflicts(left)));
            }
            managers = before;
            result = write.apply(&live, applied, &mut managers, &manager, true);
        }
        let mut new = result.unwrap_or_default().unwrap_or(live);
        if self.manager == last_applied::KUBECTL {
            last_applied::renew(&mut new, applied);
        }
        object::set_meta(&mut new, MANAGED_FIELDS, entries::write(&managers));
        Ok(new)
    }

    fn typing_error(&self, applied: &Value, problems: &[String]) -> ApplyError {
        let (group, version) = match self.api_version.split_once('/') {
            Some((group, version)) => (group, version),
            None => ("", self.api_version.as_str()),
        };
        ApplyError::Typing {
            subject: format!(
                "{}/{}; {group}/{version}, Kind={}",
                object::meta_str(applied, "namespace"),
                object::meta_str(applied, "name"),
                self.def.kind
            ),
            why: match problems {
                [only] => only.clone(),
                many => format!("errors:\n  {}", many.join("\n  ")),
            },
        }
    }

    /// An object of the type before anything is set.
    fn nothing(&self) -> Value {
        json!({"apiVersion": self.api_version, "kind": self.def.kind})
    }

    fn manager(&self, operation: Operation) -> Manager {
        Manager::new(self.manager, operation, &self.api_version, self.subresource)
    }

    /// Fields that the server keeps as they are in this kind of write, whatever is sent.
    fn ignored(&self) -> FieldSet {
        let builtin = self.def.builtin.is_some();
        match (self.subresource, self.def.kind.as_str()) {
            ("status", _) if !builtin => FieldSet::of_fields(&[&["metadata"], &["spec"]]),
            ("status", "Deployment") => FieldSet::of_fields(&[&["spec"], &["metadata", "labels"]]),
            ("status", "Pod") => FieldSet::of_fields(&[
                &["spec"],
                &["metadata", "deletionTimestamp"],
                &["metadata", "ownerReferences"],
            ]),
            ("status", _) => FieldSet::of_fields(&[&["spec"]]),
            _ if self.def.versions.iter().any(|v| v.status) => FieldSet::of_fields(&[&["status"]]),
            _ => FieldSet::default(),
        }
    }
}

/// What a write borrows from.
struct WriteOf<'a> {
    tracker: &'a Tracker<'a>,
    ignored: FieldSet,
    now: String,
}

impl<'a> WriteOf<'a> {
    fn new(tracker: &'a Tracker<'a>) -> Self {
        Self {
            ignored: tracker.ignored(),
            now: object::now(),
            tracker,
        }
    }

    fn get(&self) -> Write<'_> {
        Write {
            typing: self.tracker,
            api_version: &self.tracker.api_version,
            subresource: self.tracker.subresource,
            ignored: &self.ignored,
            now: &self.now,
        }
    }
}

const MANAGED_FIELDS: &str = "managedFields";

/// Takes `metadata.managedFields` out of an object; null when there are none.
pub(crate) fn take(object: &mut Value) -> Value {
    object::metadata_mut(object)
        .remove(MANAGED_FIELDS)
        .unwrap_or_default()
}

/// Puts `metadata.managedFields` back.
pub(crate) fn put(object: &mut Value, fields: Value) {
    object::set_meta(object, MANAGED_FIELDS, fields);
}

/// Gives an update the old times where it has changed nothing else, so that it is no change.
pub(crate) fn keep_times(old: &Value, new: &mut Value) {
    let list = |object: &Value| -> Vec<Value> {
        let list = object.pointer("/metadata/managedFields");
        list.and_then(Value::as_array).cloned().unwrap_or_default()
    };
    let (before, after) = (list(old), list(new));
    if before == after || before.len() != after.len() {
        return;
    }
    let without_time = |entry: &Value| {
        let mut entry = entry.clone();
        object::as_object_mut(&mut entry).remove("time");
        entry
    };
    let same_owners = before
        .iter()
        .zip(&after)
        .all(|(a, b)| without_time(a) == without_time(b));
    if !same_owners {
        return;
    }
    let times = take(new);
    put(new, json!(before));
    if new != old {
        put(new, times);
    }
}
