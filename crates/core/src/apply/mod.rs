//! What to send to the cluster to apply a manifest, and in which order.
//!
//! A manifest is prepared once for each work spec ([`Desired`]); each pass then compares it with
//! the live object ([`plan_update`]). Kinds whose content needs its own rule have it in `kinds`.
//!
//! Differs from upstream: upstream sends an update whenever the live object differs from the
//! manifest in anything outside metadata and status, so that server defaults cause an update on
//! every pass. Here an update is sent if the manifest changed since it was applied, or if the
//! live object lacks something that the manifest asks for. A field that somebody adds and the
//! manifest does not mention therefore stays, unless the kind's rule says that it is the
//! manifest's. Where nothing but metadata is missing (a label, an owner), the content is sent back
//! as it is; upstream sends the manifest's, which resets what was tuned on the cluster.

mod contains;
mod hash;
mod kinds;
mod metadata;
mod order;
mod same;
pub mod server_side;

use std::sync::LazyLock;

use serde_json::{Map, Value};
use thiserror::Error;

pub use hash::{canonical_spec_hash, raw_spec_hash, spec_hash, strip_creation_timestamps};
pub(crate) use hash::{strip_empty, value_hash};
pub use order::{apply_order, kind_rank};

use crate::manifest::ParsedManifest;
use crate::ownership::OwnerChange;
use kinds::{Object, Rule};

/// Why a manifest cannot be made ready to be applied.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ApplyError {
    /// A Secret that gives one key two values.
    #[error("secret has different values for key {key} in data and stringData")]
    SecretDataConflict {
        /// The key.
        key: String,
    },
}

/// A manifest, ready to be compared and sent.
#[derive(Debug, Clone)]
pub struct Desired {
    object: Object,
    rule: &'static dyn Rule,
    hash: [u8; 32],
}

impl Desired {
    /// Prepares a manifest: what the server owns (uid, resource version, status …) is dropped,
    /// and so is the namespace of a kind that has none.
    pub fn new(manifest: ParsedManifest, namespaced: bool) -> Result<Self, ApplyError> {
        let rule = kinds::rule(manifest.gvk());
        let mut object = match manifest.object {
            Value::Object(object) => object,
            // Parsing has made sure of an object.
            _ => Map::new(),
        };
        object.remove("status");
        let mut metadata = match object.remove("metadata") {
            Some(Value::Object(metadata)) => metadata,
            _ => Map::new(),
        };
        metadata::strip(&mut metadata);
        if !namespaced {
            metadata.remove("namespace");
        }
        object.insert("metadata".into(), Value::Object(metadata));
        rule.prepare(&mut object)?;
        let hash = hash::value_hash(&object);
        Ok(Self { object, rule, hash })
    }

    /// The memory to keep once the manifest is applied, from the object that the server returned;
    /// of an object that needed no update, the live one.
    pub fn applied(&self, returned: &Value) -> LastApplied {
        let metadata = returned.get("metadata").and_then(Value::as_object);
        LastApplied {
            manifest_hash: self.hash,
            resource_version: metadata
                .and_then(resource_version)
                .unwrap_or_default()
                .to_owned(),
            generation: metadata.and_then(generation),
        }
    }

    /// Whether the live object still has the content that it had when this very manifest was
    /// applied.
    fn still_holds(&self, live_metadata: &Object, history: History<'_>) -> bool {
        matches!(history, History::Applied(last)
            if last.manifest_hash == self.hash && last.still_holds(live_metadata))
    }

    /// Whether this very manifest was applied, if that is known.
    fn was_applied(&self, history: History<'_>) -> Option<bool> {
        match history {
            History::Unapplied => None,
            History::AppliedBefore => Some(true),
            History::Applied(last) => Some(last.manifest_hash == self.hash),
        }
    }
}

/// What this process remembers of the last time it applied a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastApplied {
    /// Hash of the manifest.
    pub manifest_hash: [u8; 32],
    /// Resource version of the object afterwards.
    pub resource_version: String,
    /// Generation of the object afterwards, for kinds that count it. It moves with the content
    /// only, not with the status.
    pub generation: Option<i64>,
}

impl LastApplied {
    /// Whether the content of the live object is still the one it had afterwards.
    fn still_holds(&self, live: &Object) -> bool {
        resource_version(live) == Some(self.resource_version.as_str())
            || self.generation.is_some() && self.generation == generation(live)
    }
}

fn resource_version(metadata: &Object) -> Option<&str> {
    metadata.get("resourceVersion")?.as_str()
}

fn generation(metadata: &Object) -> Option<i64> {
    metadata.get("generation")?.as_i64()
}

/// Whether a manifest was applied before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum History<'a> {
    /// This generation of the work was never applied to the object.
    Unapplied,
    /// An earlier process applied this generation: the work's status says so.
    AppliedBefore,
    /// This process did, and remembers.
    Applied(&'a LastApplied),
}

/// What to send to the cluster.
#[derive(Debug, Clone, PartialEq)]
pub enum UpdatePlan {
    /// Create this object.
    Create(Value),
    /// Replace the live object by this one. It carries the resource version of the live object,
    /// so that a change in between is a conflict.
    Replace(Value),
    /// Delete the live object, if it still is the same one, and create this one: what the manifest
    /// changes cannot be changed. Labels, annotations and owners of others are taken along.
    Recreate(Value),
    /// Nothing.
    Unchanged,
}

/// Decides how to bring an object to what its manifest says, by the strategy `Update`
/// (`openshift/library-go`: `resourceapply`).
///
/// Labels, annotations and finalizers that others put on the object stay, and so does its status.
/// An idle work sends nothing.
pub fn plan_update(
    desired: &Desired,
    live: Option<&Value>,
    owner: &OwnerChange,
    history: History<'_>,
) -> UpdatePlan {
    let Some(live) = live.and_then(Value::as_object) else {
        let metadata = metadata::for_create(metadata(&desired.object), owner);
        return UpdatePlan::Create(assemble(desired.object.clone(), metadata));
    };
    let live_metadata = metadata(live);
    let still_holds = desired.still_holds(live_metadata, history);
    // The quick way out of nearly every pass.
    if still_holds && metadata::merge(live_metadata, metadata(&desired.object), owner).is_none() {
        return UpdatePlan::Unchanged;
    }
    let Desired { rule, .. } = desired;
    let mut wanted = desired.object.clone();
    // Where status is no resource of its own, an update without it would erase it.
    kinds::keep(&mut wanted, live, "status");
    rule.keep(&mut wanted, live);
    let applied = rule.is_applied(live, &wanted, desired.was_applied(history));
    let is_current = still_holds || rule.is_current(live, &wanted, applied);
    let merged = metadata::merge(live_metadata, metadata(&wanted), owner);
    match merged {
        None if is_current => UpdatePlan::Unchanged,
        // Only metadata is missing: content that the manifest does not mention stays.
        Some(merged) if is_current => UpdatePlan::Replace(assemble(live.clone(), merged)),
        _ if rule.must_recreate(live, &wanted) => {
            let metadata = metadata::for_recreate(live_metadata, metadata(&wanted), owner);
            UpdatePlan::Recreate(assemble(wanted, metadata))
        }
        merged => {
            let metadata = merged.unwrap_or_else(|| metadata::live_for_update(live_metadata));
            UpdatePlan::Replace(assemble(wanted, metadata))
        }
    }
}

fn assemble(mut object: Object, metadata: Object) -> Value {
    object.insert("metadata".into(), Value::Object(metadata));
    Value::Object(object)
}

/// The metadata of an object; empty if it has none.
fn metadata(object: &Object) -> &Object {
    static NONE: LazyLock<Object> = LazyLock::new(Object::new);
    let metadata = object.get("metadata").and_then(Value::as_object);
    metadata.unwrap_or(&NONE)
}

#[cfg(test)]
mod tests;
