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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn manifest(json: &str) -> Manifest {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn text_is_kept_byte_for_byte() {
        let text = "{ \"kind\" : \"A\",\n  \"n\": 1.0 }";
        assert_eq!(manifest(text).as_json(), text);
        assert_eq!(serde_json::to_string(&manifest(text)).unwrap(), text);
    }

    #[test]
    fn manifests_compare_by_content() {
        assert_eq!(
            manifest(r#"{"a":1,"b":[2]}"#),
            manifest(r#"{ "b": [2], "a": 1 }"#)
        );
        assert_ne!(manifest(r#"{"a":1}"#), manifest(r#"{"a":2}"#));
        assert_ne!(manifest(r#"{"a":[1,2]}"#), manifest(r#"{"a":[2,1]}"#));
    }

    #[test]
    fn value_goes_in_and_comes_out() {
        let value = json!({"kind": "A", "n": u64::MAX, "nested": {"x": null}});
        let made = Manifest::try_from(value.clone()).unwrap();
        assert_eq!(made.to_value().unwrap(), value);
        assert_eq!(serde_json::to_value(&made).unwrap(), value);
        assert_eq!(serde_json::from_value::<Manifest>(value).unwrap(), made);
    }

    #[test]
    fn part_of_the_object_is_read_without_the_rest() {
        #[derive(Deserialize)]
        struct Head<'a> {
            kind: &'a str,
        }
        assert_eq!(
            manifest(r#"{"kind":"A","n":1}"#)
                .read::<Head<'_>>()
                .unwrap()
                .kind,
            "A"
        );
        assert!(manifest(r#"{"n":1}"#).read::<Head<'_>>().is_err());
    }

    #[test]
    fn text_that_nests_too_deep_is_carried_but_not_parsed() {
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        let carried = manifest(&deep);
        assert!(carried.to_value().is_err());
        assert_eq!(carried, manifest(&deep));
        assert_ne!(carried, manifest("[]"));
    }
}
