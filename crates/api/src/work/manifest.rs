//! A Kubernetes object carried inside another one, as raw JSON.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// One Kubernetes object to be put on the managed cluster.
///
/// Held as the JSON text it arrived in, since most holders of a work never look inside: parsing is
/// left to whoever needs a field ([`Manifest::read`], [`Manifest::to_value`]).
///
/// # Caveats
///
/// Reading goes through serde's raw values: the source must be JSON (text or [`Value`]) read by
/// `serde_json` without buffering in between. Inside `#[serde(flatten)]`, `#[serde(untagged)]` or
/// an internally tagged enum decoding fails. `kube`'s `WatchEvent` works as long as `type` comes
/// before `object`, which is how API servers write it. YAML has to be read into a [`Value`] first.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Manifest(Box<RawValue>);

impl Manifest {
    /// Wraps JSON text that serde has already checked.
    pub fn from_raw(raw: Box<RawValue>) -> Self {
        Self(raw)
    }

    /// Encodes a value as compact JSON.
    ///
    /// # Errors
    ///
    /// Fails if `value` has a map with keys that are not strings, or its `Serialize` fails.
    pub fn from_value<T: Serialize + ?Sized>(value: &T) -> serde_json::Result<Self> {
        serde_json::value::to_raw_value(value).map(Self)
    }

    /// The JSON text, byte for byte as it was received.
    pub fn as_json(&self) -> &str {
        self.0.get()
    }

    /// Parses the whole object.
    ///
    /// # Errors
    ///
    /// The text is syntactically valid JSON, but may nest deeper than serde_json's limit of 128 or
    /// hold a number out of range.
    pub fn to_value(&self) -> serde_json::Result<Value> {
        serde_json::from_str(self.0.get())
    }

    /// Parses the part of the object that `T` describes, borrowing from the text.
    ///
    /// # Errors
    ///
    /// Fails if the object does not have the shape of `T`.
    pub fn read<'a, T: Deserialize<'a>>(&'a self) -> serde_json::Result<T> {
        serde_json::from_str(self.0.get())
    }
}

/// Compares content: key order and white space make no difference.
///
/// Text that cannot be parsed (see [`Manifest::to_value`]) equals only the same text.
impl PartialEq for Manifest {
    fn eq(&self, other: &Self) -> bool {
        if self.as_json() == other.as_json() {
            return true;
        }
        match (self.to_value(), other.to_value()) {
            (Ok(mine), Ok(theirs)) => mine == theirs,
            _ => false,
        }
    }
}

impl TryFrom<Value> for Manifest {
    type Error = serde_json::Error;

    fn try_from(value: Value) -> serde_json::Result<Self> {
        Self::from_value(&value)
    }
}

impl JsonSchema for Manifest {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Manifest".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A Kubernetes object to put on the managed cluster.",
            "type": "object",
            "x-kubernetes-embedded-resource": true,
            "x-kubernetes-preserve-unknown-fields": true,
        })
    }
}
