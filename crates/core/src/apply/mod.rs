//! What to send to the cluster to apply a manifest, and in which order.
//!
//! A manifest is prepared once for each work spec ([`Desired`]); each pass then compares it with
//! the live object ([`plan_update`]). Kinds whose content needs its own rule have it in `kinds`.
//!
//! Differs from upstream: upstream sends an update whenever the live object differs from the
//! manifest in anything outside metadata and status, so that server defaults cause an update on
//! every pass. Here an update is sent if the manifest changed since it was applied, or if the
//! live object lacks something that the manifest asks for. A field that somebody adds and the
//! manifest does not mention therefore stays.

mod contains;
mod hash;
mod kinds;
mod metadata;
mod order;
pub mod server_side;

use serde_json::{Map, Value};
use thiserror::Error;

pub use hash::{canonical_spec_hash, spec_hash, strip_creation_timestamps};
pub use order::{apply_order, kind_rank};

use crate::manifest::ParsedManifest;
use crate::ownership::OwnerChange;
use kinds::Content;

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
#[derive(Debug, Clone, PartialEq)]
pub struct Desired {
    object: Map<String, Value>,
    metadata: Map<String, Value>,
    content: Content,
    hash: [u8; 32],
}

impl Desired {
    /// Prepares a manifest: what the server owns (uid, resource version, status …) is dropped,
    /// and so is the namespace of a kind that has none.
    pub fn new(manifest: ParsedManifest, namespaced: bool) -> Result<Self, ApplyError> {
        let content = Content::of(manifest.gvk());
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
        content.prepare(&mut object)?;
        let hash = hash::value_hash(&(&metadata, &object));
        Ok(Self {
            object,
            metadata,
            content,
            hash,
        })
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
    fn still_holds(&self, live: &Map<String, Value>) -> bool {
        resource_version(live) == Some(self.resource_version.as_str())
            || self.generation.is_some() && self.generation == generation(live)
    }
}

fn resource_version(metadata: &Map<String, Value>) -> Option<&str> {
    metadata.get("resourceVersion")?.as_str()
}

fn generation(metadata: &Map<String, Value>) -> Option<i64> {
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
        let metadata = metadata::for_create(&desired.metadata, owner);
        return UpdatePlan::Create(assemble(desired.object.clone(), metadata));
    };
    let no_metadata = Map::new();
    let live_metadata = live
        .get("metadata")
        .and_then(Value::as_object)
        .unwrap_or(&no_metadata);
    let merged = metadata::merge(live_metadata, &desired.metadata, owner);
    let content_is_current = match history {
        _ if desired.content == Content::CreateOnly => true,
        History::Unapplied => false,
        History::Applied(last) if last.manifest_hash != desired.hash => false,
        History::Applied(last) if last.still_holds(live_metadata) => true,
        History::Applied(_) | History::AppliedBefore => {
            desired.content.is_current(live, &desired.object)
        }
    };
    if content_is_current && merged.is_none() {
        return UpdatePlan::Unchanged;
    }
    let object = desired.content.replace(live, &desired.object);
    if merged.is_none() && same_content(&object, live) {
        return UpdatePlan::Unchanged;
    }
    let metadata = merged.unwrap_or_else(|| metadata::live_for_update(live_metadata));
    UpdatePlan::Replace(assemble(object, metadata))
}

fn assemble(mut object: Map<String, Value>, metadata: Map<String, Value>) -> Value {
    object.insert("metadata".into(), Value::Object(metadata));
    Value::Object(object)
}

fn same_content(a: &Map<String, Value>, b: &Map<String, Value>) -> bool {
    let content = |object: &'_ Map<String, Value>| {
        object.iter().filter(|(key, _)| *key != "metadata").count()
    };
    content(a) == content(b)
        && a.iter()
            .all(|(key, value)| key == "metadata" || b.get(key) == Some(value))
}

#[cfg(test)]
mod tests;
