//! What to send to apply a manifest by the strategy `ServerSideApply`, and when.
//!
//! Differs from upstream in what `ignoreFields` does (`ocm`: `pkg/work/spoke/apply`). Upstream
//! sends nothing while the annotation on the object shows the hash of the manifest, so that no
//! field of the object is repaired; and when it sends, it leaves the ignored fields out, so that
//! the API server resets those that only the agent owned. Here the rest is always repaired, and
//! of the ignored fields those that the agent owns are sent as they are.
//!
//! | Object | `OnSpokePresent` fields | `OnSpokeChange` fields |
//! |---|---|---|
//! | missing | as in the manifest | as in the manifest |
//! | its annotation shows this manifest | as they are | as they are |
//! | its annotation shows another, or none | as they are | as in the manifest |

mod conflict;
mod ignore;
mod jq;
mod managed;
mod removal;
mod takeover;

use std::sync::Arc;

use muster_api::constants::{DEFAULT_FIELD_MANAGER, MANIFEST_CONFIG_SPEC_HASH_ANNOTATION_KEY};
use muster_api::work::ServerSideApplyConfig;
use serde_json::{Map, Value};
use thiserror::Error;

pub use conflict::is_with_own_updates;
pub use ignore::{IgnoreFields, IgnoreFieldsError, Ignored};
pub use jq::JqError;
pub use removal::PointerError;
pub use takeover::take_over_updates;

use super::hash::{strip_creation_timestamps, value_hash};
use super::metadata::strip_server_fields;
use crate::manifest::ParsedManifest;
use managed::{applied_fields, covers, extract, keep};

/// Why a manifest cannot be applied this way.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum IntentError {
    /// A field manager that could be somebody else's. The CRD refuses it, too.
    #[error(
        "updateStrategy.serverSideApply.fieldManager: Invalid value: {0:?}: must start with {DEFAULT_FIELD_MANAGER}"
    )]
    FieldManager(String),
}

/// A manifest to apply, with how to apply it.
#[derive(Debug)]
pub struct Intent {
    /// The manifest without what the server owns.
    object: Value,
    /// The manifest as upstream hashes it; null where nothing is to be hashed.
    hashed: Value,
    manager: String,
    force: bool,
    ignore: Arc<IgnoreFields>,
    hash: [u8; 32],
}

/// What to send.
#[derive(Debug, Clone, PartialEq)]
pub enum IntentPlan {
    /// Apply this.
    Apply(Value),
    /// Nothing: the object is as wanted.
    Unchanged,
}

/// What this process remembers of the last time it applied an intent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastIntent {
    intent: [u8; 32],
    resource_version: String,
    owned: [u8; 32],
}

impl Intent {
    /// Prepares a manifest: drops what the server owns, as it is in manifests that were exported
    /// (uid, resource version, status …), empty creation times, and the namespace of a kind that
    /// has none. Owner references stay, unlike under `Update`: here they are fields like others.
    ///
    /// `ignore` is compiled from the same `config`.
    pub fn new(
        manifest: ParsedManifest,
        namespaced: bool,
        config: &ServerSideApplyConfig,
        ignore: Arc<IgnoreFields>,
    ) -> Result<Self, IntentError> {
        let manager = config.field_manager.clone();
        if !manager.starts_with(DEFAULT_FIELD_MANAGER) {
            return Err(IntentError::FieldManager(manager));
        }
        let mut object = manifest.object;
        let mut hashed = Value::Null;
        if ignore.is_given() {
            hashed.clone_from(&object);
            if let Some(Value::Object(metadata)) = hashed.get_mut("metadata") {
                metadata.remove("uid");
            }
        }
        strip_creation_timestamps(&mut object);
        if let Value::Object(fields) = &mut object {
            fields.remove("status");
            if let Some(Value::Object(metadata)) = fields.get_mut("metadata") {
                strip_server_fields(metadata);
                if !namespaced {
                    metadata.remove("namespace");
                }
            }
        }
        Ok(Self {
            hash: value_hash(&(&object, config)),
            object,
            hashed,
            manager,
            force: config.force,
            ignore,
        })
    }

    /// The field manager to apply as.
    pub fn manager(&self) -> &str {
        &self.manager
    }

    /// Whether fields that others own are taken over.
    pub fn force(&self) -> bool {
        self.force
    }

    /// Whether [`Self::plan`] may take up to a second.
    pub fn is_costly(&self) -> bool {
        self.ignore.is_costly()
    }

    /// Decides what to send, from the object as it is.
    ///
    /// Nothing is sent if the same intent was applied before and nothing that the agent owns
    /// changed since, or if the object has all that is wanted as the agent's own: after a restart,
    /// and on a cluster that upstream's agent left, nothing is written either.
    pub fn plan(
        &self,
        live: Option<&Value>,
        last: Option<&LastIntent>,
    ) -> Result<IntentPlan, IgnoreFieldsError> {
        if let (Some(live), Some(last)) = (live, last)
            && self.still_holds(live, last)
        {
            return Ok(IntentPlan::Unchanged);
        }
        let wanted = self.wanted(live)?;
        Ok(match live {
            Some(live) if self.is_applied(live, &wanted) => IntentPlan::Unchanged,
            _ => IntentPlan::Apply(wanted),
        })
    }

    /// The memory to keep, from the object that the server returned last.
    pub fn applied(&self, live: &Value) -> LastIntent {
        LastIntent {
            intent: self.hash,
            resource_version: resource_version(live).to_owned(),
            owned: self.owned_hash(live),
        }
    }

    fn still_holds(&self, live: &Value, last: &LastIntent) -> bool {
        last.intent == self.hash
            && (last.resource_version == resource_version(live)
                || last.owned == self.owned_hash(live))
    }

    fn fields<'a>(&self, live: &'a Value) -> Option<&'a Map<String, Value>> {
        let api_version = self.object.get("apiVersion").and_then(Value::as_str);
        applied_fields(live, &self.manager, api_version.unwrap_or_default())
    }

    fn owned_hash(&self, live: &Value) -> [u8; 32] {
        let fields = self.fields(live);
        value_hash(&(fields, fields.map(|fields| extract(fields, live))))
    }

    fn is_applied(&self, live: &Value, wanted: &Value) -> bool {
        self.fields(live).is_some_and(|fields| {
            covers(fields, wanted) && extract(fields, live) == extract(fields, wanted)
        })
    }

    /// The object to apply.
    fn wanted(&self, live: Option<&Value>) -> Result<Value, IgnoreFieldsError> {
        if !self.ignore.is_given() {
            return Ok(self.object.clone());
        }
        let hash = self.ignore.spec_hash(&self.hashed)?;
        let Some(live) = live else {
            return Ok(self.annotated(self.object.clone(), hash));
        };
        let annotations = live.pointer("/metadata/annotations");
        let shown = annotations.and_then(|all| all.get(MANIFEST_CONFIG_SPEC_HASH_ANNOTATION_KEY));
        let ignored = match shown {
            Some(shown) if *shown == hash => Ignored::UntilChange,
            _ => Ignored::Always,
        };
        let mut wanted = self.object.clone();
        self.ignore.remove(&mut wanted, ignored)?;
        if let Some(fields) = self.fields(live) {
            let mut left = live.clone();
            self.ignore.remove_from_live(&mut left, ignored)?;
            keep(fields, live, &left, Some(&self.object), &mut wanted);
        }
        Ok(self.annotated(wanted, hash))
    }

    /// With the annotation, and with what names the object, should that have been ignored.
    fn annotated(&self, object: Value, hash: String) -> Value {
        let Value::Object(mut object) = object else {
            return object;
        };
        for field in ["apiVersion", "kind"] {
            if let Some(value) = self.object.get(field) {
                object.insert(field.to_owned(), value.clone());
            }
        }
        let metadata = object_at(&mut object, "metadata");
        for field in ["name", "namespace"] {
            if let Some(value) = self.object["metadata"].get(field) {
                metadata.insert(field.to_owned(), value.clone());
            }
        }
        object_at(metadata, "annotations").insert(
            MANIFEST_CONFIG_SPEC_HASH_ANNOTATION_KEY.to_owned(),
            hash.into(),
        );
        Value::Object(object)
    }
}

/// The object under a key, made if there is none.
fn object_at<'a>(parent: &'a mut Map<String, Value>, key: &str) -> &'a mut Map<String, Value> {
    let value = parent
        .entry(key)
        .or_insert_with(|| Value::Object(Map::new()));
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("it has just been made one")
}

fn resource_version(live: &Value) -> &str {
    live.pointer("/metadata/resourceVersion")
        .and_then(Value::as_str)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;
