//! How a write changes who owns what. Objects are of one version here; owners may have written
//! another one, whose fields then count under that version's schema.

use std::borrow::Cow;
use std::sync::LazyLock;

use serde_json::Value;

use super::compare::Comparison;
use super::conflict::{self, Conflict};
use super::element::same;
use super::entries::{Manager, Managers, Operation, Owned};
use super::fields::fields_of;
use super::merge::{merge, remove, under_schema, with_named_fields};
use super::set::FieldSet;
use super::shape::Place;

/// The type of an object as ownership sees it.
pub(super) trait Typing {
    /// The place of a whole object of a version; `None` for versions that the type does not have.
    fn place(&self, api_version: &str) -> Option<Place<'_>>;

    /// The object with the empty fields that the type always has, which are owned like others.
    fn completed<'a>(&self, object: &'a Value) -> Cow<'a, Value>;
}

/// One write.
pub(super) struct Write<'a> {
    pub(super) typing: &'a dyn Typing,
    pub(super) api_version: &'a str,
    /// Empty for the object itself.
    pub(super) subresource: &'a str,
    /// Fields that this kind of write cannot change.
    pub(super) ignored: &'a FieldSet,
    /// Now, as RFC 3339.
    pub(super) now: &'a str,
}

/// Fields that are nobody's: they make the object what it is.
static IDENTITY: LazyLock<FieldSet> = LazyLock::new(|| {
    FieldSet::of_fields(&[
        &["apiVersion"],
        &["kind"],
        &["metadata"],
        &["metadata", "name"],
        &["metadata", "namespace"],
        &["metadata", "creationTimestamp"],
        &["metadata", "selfLink"],
        &["metadata", "uid"],
        &["metadata", "clusterName"],
        &["metadata", "generation"],
        &["metadata", "managedFields"],
        &["metadata", "resourceVersion"],
    ])
});

impl Write<'_> {
    /// Lets `manager` own everything that it has changed, and nobody else own that.
    pub(super) fn update(
        &self,
        old: &Value,
        new: &Value,
        managers: &mut Managers,
        manager: &Manager,
    ) {
        self.reconcile(managers);
        let Some(place) = self.typing.place(self.api_version) else {
            return;
        };
        let change = self.change(place, old, new);
        self.give_up(old, new, &change, managers, None);
        let own = change
            .set()
            .recursive_difference(self.ignored)
            .difference(&IDENTITY);
        if own.is_empty() {
            return;
        }
        let before = managers.remove(manager);
        let fields = match &before {
            Some(before) => before.fields.union(&own),
            None => own,
        };
        // The real server keeps no times for changes of the scale.
        let time = match self.subresource {
            "scale" => before.and_then(|b| b.time),
            _ => Some(self.now.to_owned()),
        };
        managers.insert(
            manager.clone(),
            Owned {
                fields,
                api_version: self.api_version.to_owned(),
                time,
            },
        );
    }

    /// Merges `applied` into the live object, takes out what `manager` applied before and
    /// nobody owns any more, and gives the result; `None` when nothing has changed.
    ///
    /// # Errors
    ///
    /// Fails with what others own with other values, unless `force` takes it from them.
    pub(super) fn apply(
        &self,
        live: &Value,
        applied: &Value,
        managers: &mut Managers,
        manager: &Manager,
        force: bool,
    ) -> Result<Option<Value>, Vec<Conflict>> {
        self.reconcile(managers);
        let Some(place) = self.typing.place(self.api_version) else {
            return Ok(None);
        };
        let merged = merge(place, live, applied);
        let fields = fields_of(place, applied).recursive_difference(self.ignored);
        let last = managers.insert(
            manager.clone(),
            Owned {
                fields,
                api_version: self.api_version.to_owned(),
                time: None,
            },
        );
        let time = last.as_ref().and_then(|l| l.time.clone());
        let new = match last {
            Some(last) => self.pruned(merged, managers, &last),
            None => merged,
        };
        let change = self.change(place, live, &new);
        let conflicts = self.give_up(live, &new, &change, managers, Some((manager, force)));
        if !conflicts.is_empty() {
            return Err(conflicts);
        }
        let changed = !same(&new, live);
        if let Some(owned) = managers.get_mut(manager) {
            owned.fields = owned.fields.difference(&IDENTITY);
            owned.time = if changed && self.subresource != "scale" {
                Some(self.now.to_owned())
            } else {
                time
            };
            if owned.fields.is_empty() {
                managers.remove(manager);
            }
        }
        Ok(changed.then_some(new))
    }

    fn change(&self, place: Place<'_>, old: &Value, new: &Value) -> Comparison {
        let (old, new) = (self.typing.completed(old), self.typing.completed(new));
        Comparison::of(place, &old, &new).without(self.ignored)
    }

    /// Takes from everybody but the applier what has changed or gone. Gives the conflicts, and
    /// changes nothing, when an applier does not force.
    fn give_up(
        &self,
        old: &Value,
        new: &Value,
        change: &Comparison,
        managers: &mut Managers,
        applier: Option<(&Manager, bool)>,
    ) -> Vec<Conflict> {
        let mut lost: Vec<(Manager, FieldSet, FieldSet)> = Vec::new();
        let mut unknown = Vec::new();
        for (manager, owned) in &*managers {
            if applier.is_some_and(|(applier, _)| applier == manager) {
                continue;
            }
            let other_version;
            let change = if owned.api_version == self.api_version {
                change
            } else if let Some(place) = self.typing.place(&owned.api_version) {
                other_version = self.change(place, old, new);
                &other_version
            } else {
                unknown.push(manager.clone());
                continue;
            };
            let taken = owned.fields.intersection(&change.set());
            lost.push((manager.clone(), taken, change.removed.clone()));
        }
        if applier.is_some_and(|(_, force)| !force) {
            let taken = lost.iter().map(|(manager, taken, _)| (manager, taken));
            let conflicts = conflict::of(taken);
            if !conflicts.is_empty() {
                return conflicts;
            }
        }
        for (manager, taken, removed) in lost {
            if let Some(owned) = managers.get_mut(&manager) {
                owned.fields = owned.fields.difference(&taken).difference(&removed);
            }
        }
        managers.retain(|manager, owned| !owned.fields.is_empty() && !unknown.contains(manager));
        Vec::new()
    }

    /// Takes out of the merged object what the applier owned last time and does not any more,
    /// except for what others own.
    fn pruned(&self, merged: Value, managers: &Managers, last: &Owned) -> Value {
        if last.fields.is_empty() {
            return merged;
        }
        let Some(place) = self.typing.place(&last.api_version) else {
            return merged;
        };
        let named = |set: &FieldSet| with_named_fields(Some(place), set);
        let last_fields = named(&last.fields);
        let mut pruned = remove(place, &merged, &last_fields);
        let mut versions: Vec<&str> = managers.values().map(|o| o.api_version.as_str()).collect();
        // The pruned version first, then the others.
        versions.sort_by_key(|v| (*v != last.api_version, *v));
        versions.dedup();
        for version in versions {
            let Some(place) = self.typing.place(version) else {
                continue;
            };
            let named = |set: &FieldSet| with_named_fields(Some(place), set);
            let owned = managers
                .values()
                .filter(|o| o.api_version == version)
                .fold(FieldSet::default(), |all, o| all.union(&o.fields));
            let keep = named(&fields_of(place, &pruned)).union(&named(&owned));
            let gone = named(&fields_of(place, &merged)).difference(&keep);
            pruned = remove(place, &merged, &gone);
        }
        // What nobody owns is not the applier's to take out either.
        let gone = named(&fields_of(place, &merged))
            .difference(&named(&fields_of(place, &pruned)))
            .intersection(&last_fields);
        remove(place, &merged, &gone)
    }

    /// Brings every manager's fields under the present schema.
    fn reconcile(&self, managers: &mut Managers) {
        managers.retain(|_, owned| match self.typing.place(&owned.api_version) {
            Some(place) => {
                owned.fields = under_schema(Some(place), &owned.fields);
                true
            }
            None => false,
        });
    }

    /// Ascribes the whole object to a manager of its own, for objects whose managers are not
    /// known when they are first applied.
    pub(super) fn adopt(&self, live: &Value, nothing: &Value, managers: &mut Managers) {
        let before = Manager::new(
            "before-first-apply",
            Operation::Update,
            self.api_version,
            self.subresource,
        );
        self.update(nothing, live, managers, &before);
    }
}
