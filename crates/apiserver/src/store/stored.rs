//! Stored objects and events: bytes to hand out, and the little that selection needs.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use bytes::{BufMut, Bytes, BytesMut};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// Namespace (empty for cluster-wide objects) and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ObjectKey {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl ObjectKey {
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

/// One object at one revision.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) key: ObjectKey,
    pub(crate) revision: u64,
    pub(crate) uid: String,
    pub(crate) labels: BTreeMap<String, String>,
    /// Values of the type's selectable fields, in the order of its table.
    pub(crate) fields: Vec<(Arc<str>, String)>,
    /// The whole object as JSON, `kind` and `apiVersion` first.
    bytes: Bytes,
    /// Where the JSON goes on after `kind` and `apiVersion`.
    rest_at: usize,
}

/// What every object has, read without building a tree.
#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    metadata: Meta,
}

#[derive(Default, Deserialize)]
struct Meta {
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    uid: String,
    #[serde(default, rename = "resourceVersion")]
    resource_version: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct RawMeta<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
}

impl Stored {
    /// Serialises an object that has its metadata, resource version included.
    pub(crate) fn new(mut object: Value, selectable: &[Arc<str>]) -> Self {
        let fields = selectable
            .iter()
            .map(|f| (f.clone(), field_text(&object, f)))
            .collect();
        let text = |v: Option<Value>| v.and_then(|v| v.as_str().map(str::to_owned));
        let root = crate::object::as_object_mut(&mut object);
        let kind = text(root.remove("kind")).unwrap_or_default();
        let api_version = text(root.remove("apiVersion")).unwrap_or_default();
        let labels = root
            .get("metadata")
            .and_then(|m| m.get("labels"))
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .map(|(k, v)| (k.clone(), v.as_str().unwrap_or_default().to_owned()))
            .collect();
        let key = ObjectKey::new(
            crate::object::meta_str(&object, "namespace"),
            crate::object::meta_str(&object, "name"),
        );
        let revision = crate::object::meta_str(&object, "resourceVersion")
            .parse()
            .unwrap_or_default();
        let uid = crate::object::meta_str(&object, "uid").to_owned();
        let mut bytes = head(&kind, &api_version);
        let rest_at = bytes.len();
        let rest = serde_json::to_vec(&object).expect("a JSON tree serialises");
        bytes.put_slice(&rest[1..]);
        Self {
            key,
            revision,
            uid,
            labels,
            fields,
            bytes: bytes.freeze(),
            rest_at,
        }
    }

    /// Reads back what [`Self::bytes`] gave.
    pub(crate) fn from_bytes(bytes: Bytes, selectable: &[Arc<str>]) -> Result<Self, String> {
        let Head { metadata } =
            serde_json::from_slice(&bytes).map_err(|e| format!("stored object is damaged: {e}"))?;
        let revision = metadata
            .resource_version
            .parse()
            .map_err(|_| "stored object is damaged: it has no resource version".to_owned())?;
        let rest_at = rest_start(&bytes).ok_or_else(|| {
            "stored object is damaged: it does not start with its kind".to_owned()
        })?;
        let mut stored = Self {
            key: ObjectKey {
                namespace: metadata.namespace,
                name: metadata.name,
            },
            revision,
            uid: metadata.uid,
            labels: metadata.labels,
            fields: Vec::new(),
            bytes,
            rest_at,
        };
        stored.index(selectable);
        Ok(stored)
    }

    /// Reads the type's selectable fields anew, for types that became known after loading.
    pub(crate) fn index(&mut self, selectable: &[Arc<str>]) {
        if !selectable.is_empty() {
            let value = self.value();
            self.fields = selectable
                .iter()
                .map(|f| (f.clone(), field_text(&value, f)))
                .collect();
        }
    }

    /// The object as JSON.
    pub(crate) fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The JSON after `{"kind":…,"apiVersion":…,`.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.bytes[self.rest_at..]
    }

    /// The object as JSON under another API version.
    pub(crate) fn bytes_as(&self, kind: &str, api_version: &str) -> Bytes {
        let head = head(kind, api_version);
        if self.bytes.starts_with(&head) {
            return self.bytes.clone();
        }
        let mut bytes = head;
        bytes.put_slice(self.rest());
        bytes.freeze()
    }

    /// The object as a tree.
    pub(crate) fn value(&self) -> Value {
        serde_json::from_slice(&self.bytes).expect("stored bytes are JSON")
    }

    /// The object as `PartialObjectMetadata`.
    pub(crate) fn metadata_bytes(&self) -> Bytes {
        let raw: RawMeta<'_> =
            serde_json::from_slice(&self.bytes).expect("stored objects have metadata");
        let mut bytes = head("PartialObjectMetadata", "meta.k8s.io/v1");
        bytes.put_slice(b"\"metadata\":");
        bytes.put_slice(raw.metadata.get().as_bytes());
        bytes.put_u8(b'}');
        bytes.freeze()
    }

    /// The value of a selectable field.
    pub(crate) fn field(&self, name: &str) -> &str {
        match name {
            "metadata.name" => &self.key.name,
            "metadata.namespace" => &self.key.namespace,
            _ => self
                .fields
                .iter()
                .find(|(field, _)| **field == *name)
                .map_or("", |(_, value)| value.as_str()),
        }
    }
}

fn head(kind: &str, api_version: &str) -> BytesMut {
    let mut bytes = BytesMut::with_capacity(1024);
    bytes.put_slice(b"{\"kind\":\"");
    bytes.put_slice(kind.as_bytes());
    bytes.put_slice(b"\",\"apiVersion\":\"");
    bytes.put_slice(api_version.as_bytes());
    bytes.put_slice(b"\",");
    bytes
}

/// Where the members after `kind` and `apiVersion` start.
fn rest_start(bytes: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(bytes).ok()?;
    let after_kind = text
        .strip_prefix("{\"kind\":\"")?
        .split_once("\",\"apiVersion\":\"")?
        .1;
    let rest = after_kind.split_once("\",")?.1;
    Some(text.len() - rest.len())
}

/// A selectable field's text; `spec.nodeName` style paths, booleans and numbers as JSON.
fn field_text(object: &Value, path: &str) -> String {
    let mut value = object;
    for part in path.split('.') {
        match value.get(part) {
            Some(next) => value = next,
            None => return default_field_text(path),
        }
    }
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// Counters and flags select as Go's zero value when absent.
fn default_field_text(path: &str) -> String {
    match path {
        "status.replicas" | "status.successful" => "0".to_owned(),
        "spec.unschedulable" | "spec.hostNetwork" => "false".to_owned(),
        _ => String::new(),
    }
}

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventKind {
    Added,
    Modified,
    Deleted,
}

impl EventKind {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// One change, shared by the history and by all watches.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) kind: EventKind,
    /// The object after the change; for a deletion its last state at the deletion's revision.
    pub(crate) object: Arc<Stored>,
    pub(crate) previous: Option<Arc<Stored>>,
    /// Watch lines by kind, whole object and metadata only, serialised on first use.
    lines: [[OnceLock<Bytes>; 3]; 2],
}

impl Event {
    pub(crate) fn new(kind: EventKind, object: Arc<Stored>, previous: Option<Arc<Stored>>) -> Self {
        Self {
            kind,
            object,
            previous,
            lines: Default::default(),
        }
    }

    pub(crate) fn revision(&self) -> u64 {
        self.object.revision
    }

    /// The line that a watch sends for this event when it appears as `kind` to it. All watches
    /// that take the object unchanged share the same bytes.
    pub(crate) fn line(&self, kind: EventKind, metadata_only: bool) -> Bytes {
        self.lines[usize::from(metadata_only)][kind as usize]
            .get_or_init(|| {
                if metadata_only {
                    watch_line(kind.as_str(), &self.object.metadata_bytes())
                } else {
                    watch_line(kind.as_str(), self.object.bytes())
                }
            })
            .clone()
    }
}

/// `{"type":…,"object":…}` and a line feed.
pub(crate) fn watch_line(kind: &str, object: &[u8]) -> Bytes {
    let mut line = BytesMut::with_capacity(object.len() + 40);
    line.put_slice(b"{\"type\":\"");
    line.put_slice(kind.as_bytes());
    line.put_slice(b"\",\"object\":");
    line.put_slice(object);
    line.put_slice(b"}\n");
    line.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sample() -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "data": 1,
            "metadata": {"name": "web", "namespace": "a", "uid": "u", "resourceVersion": "7",
                "labels": {"app": "web"}},
            "status": {"phase": "Running"},
        })
    }

    #[test]
    fn stored_objects_survive_a_round_trip_through_bytes() {
        let fields = [Arc::from("status.phase")];
        let stored = Stored::new(sample(), &fields);
        assert!(
            stored
                .bytes()
                .starts_with(br#"{"kind":"Deployment","apiVersion":"apps/v1","#)
        );
        assert_eq!(stored.value(), sample());
        let back = Stored::from_bytes(stored.bytes().clone(), &fields).unwrap();
        assert_eq!(back.rest(), stored.rest());
        assert_eq!((back.revision, back.uid.as_str()), (7, "u"));
        assert_eq!(back.field("status.phase"), "Running");
        assert_eq!(back.field("metadata.namespace"), "a");
        assert_eq!(back.labels["app"], "web");
    }

    #[test]
    fn damaged_bytes_are_refused() {
        for text in [
            "",
            "{}",
            "{\"kind\":\"A\"",
            r#"{"metadata":{"resourceVersion":"1"}}"#,
        ] {
            assert!(
                Stored::from_bytes(Bytes::from(text), &[]).is_err(),
                "{text}"
            );
        }
    }

    #[test]
    fn another_version_changes_only_the_head() {
        let stored = Stored::new(sample(), &[]);
        let other: Value =
            serde_json::from_slice(&stored.bytes_as("Deployment", "apps/v2")).unwrap();
        assert_eq!(other["apiVersion"], "apps/v2");
        assert_eq!(other["metadata"]["name"], "web");
        let meta: Value = serde_json::from_slice(&stored.metadata_bytes()).unwrap();
        assert_eq!(meta["kind"], "PartialObjectMetadata");
        assert_eq!(meta["metadata"], sample()["metadata"]);
    }

    #[test]
    fn watchers_share_one_serialised_line() {
        let event = Event::new(EventKind::Added, Arc::new(Stored::new(sample(), &[])), None);
        let (a, b) = (
            event.line(EventKind::Added, false),
            event.line(EventKind::Added, false),
        );
        assert_eq!(a.as_ptr(), b.as_ptr());
    }
}
