//! An event: its attributes, its extensions and its data.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use jiff::Timestamp;

use crate::EventType;

/// Names of the extensions.
pub mod extension {
    /// The cluster; on every event, empty where all are meant.
    pub const CLUSTER_NAME: &str = "clustername";
    /// The source that the resource came from; on every event, empty where it is the sender, or
    /// where all are meant.
    pub const ORIGINAL_SOURCE: &str = "originalsource";
    /// The uid of the resource.
    pub const RESOURCE_ID: &str = "resourceid";
    /// The version of its spec.
    pub const RESOURCE_VERSION: &str = "resourceversion";
    /// Since when it is to be gone. Marks a deletion, whatever the action says.
    pub const DELETION_TIMESTAMP: &str = "deletiontimestamp";
    /// Orders the states of a status.
    pub const SEQUENCE_ID: &str = "sequenceid";
    /// The hash of a status.
    pub const STATUS_HASH: &str = "statushash";
    /// The metadata of the resource as JSON.
    pub const METADATA: &str = "metadata";
    /// What ties log lines together, as JSON.
    pub const LOG_TRACING: &str = "logtracing";
    /// Ties the parts of a request for specs together that is too long for a message.
    pub const RESYNC_ID: &str = "resyncid";
    /// Which part it is, of how many, as in `1/3`.
    pub const RESYNC_PART: &str = "resyncpart";
    /// The trace that the event is part of, in the form of W3C Trace Context.
    pub const TRACE_PARENT: &str = "traceparent";
    /// What vendors add to that.
    pub const TRACE_STATE: &str = "tracestate";
}

/// The content type of data, where there is some.
pub const JSON: &str = "application/json";

/// Who an event is, and of when: what no decision can give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp {
    /// Identity.
    pub id: String,
    /// When it was made.
    pub time: Timestamp,
}

impl Stamp {
    /// A new one, of now.
    pub fn now() -> Self {
        Self {
            id: uuid::Uuid::new_v4().to_string(),
            time: Timestamp::now(),
        }
    }
}

/// A CloudEvent. Values of extensions are kept as text, which is what travels.
#[derive(Clone, PartialEq, Eq)]
pub struct Event {
    /// Identity. Not unique over all senders: some use one for a resource's whole life.
    pub id: String,
    /// Who sent it: the id of a source or of an agent.
    pub source: String,
    /// What it is about, as text; [`Event::event_type`] reads it.
    pub kind: String,
    /// When it was made, as text in RFC 3339.
    pub time: Option<String>,
    /// The type of the data.
    pub content_type: Option<String>,
    /// By name, in lower case.
    pub extensions: BTreeMap<String, String>,
    /// Empty where there is none.
    pub data: Bytes,
}

/// Data may hold Secrets: only its length is shown, and of metadata nothing.
impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let extensions: Vec<_> = self
            .extensions
            .iter()
            .filter(|(name, _)| *name != extension::METADATA)
            .collect();
        f.debug_struct("Event")
            .field("id", &self.id)
            .field("source", &self.source)
            .field("kind", &self.kind)
            .field("extensions", &extensions)
            .field("bytes", &self.data.len())
            .finish_non_exhaustive()
    }
}

/// An extension is not what it has to be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExtensionError {
    /// It is not there.
    #[error("the event has no extension {0}")]
    Missing(&'static str),
    /// It has another form.
    #[error("the extension {name} is {value:?}, expected {expected}")]
    Malformed {
        /// Its name.
        name: &'static str,
        /// Its value.
        value: String,
        /// What was expected.
        expected: &'static str,
    },
}

impl Event {
    /// An event without extensions and data.
    pub fn new(stamp: Stamp, source: impl Into<String>, event_type: &EventType) -> Self {
        Self {
            id: stamp.id,
            source: source.into(),
            kind: event_type.to_string(),
            time: Some(stamp.time.to_string()),
            content_type: None,
            extensions: BTreeMap::new(),
            data: Bytes::new(),
        }
    }

    /// With an extension.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.extensions.insert(name.to_owned(), value.into());
        self
    }

    /// With JSON data.
    #[must_use]
    pub fn with_json(mut self, data: impl Into<Bytes>) -> Self {
        self.content_type = Some(JSON.to_owned());
        self.data = data.into();
        self
    }

    /// What it is about.
    ///
    /// # Errors
    ///
    /// The text is no type.
    pub fn event_type(&self) -> Result<EventType, crate::TypeError> {
        self.kind.parse()
    }

    /// The text of an extension.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.extensions.get(name).map(String::as_str)
    }

    /// The text of an extension that has to be there; it may be empty.
    ///
    /// # Errors
    ///
    /// It is missing.
    pub fn require(&self, name: &'static str) -> Result<&str, ExtensionError> {
        self.get(name).ok_or(ExtensionError::Missing(name))
    }

    /// The number in an extension that has to be there.
    ///
    /// # Errors
    ///
    /// It is missing, or no number.
    pub fn require_integer(&self, name: &'static str) -> Result<i64, ExtensionError> {
        parsed(name, self.require(name)?, "a whole number")
    }

    /// The time in an extension, if it is there.
    ///
    /// # Errors
    ///
    /// It is no time in RFC 3339.
    pub fn time_of(&self, name: &'static str) -> Result<Option<Timestamp>, ExtensionError> {
        let text = self.get(name);
        text.map(|text| parsed(name, text, "a time in RFC 3339"))
            .transpose()
    }
}

fn parsed<T: FromStr>(
    name: &'static str,
    text: &str,
    expected: &'static str,
) -> Result<T, ExtensionError> {
    text.parse().map_err(|_| ExtensionError::Malformed {
        name,
        value: text.to_owned(),
        expected,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Action, DataType, SubResource};

    fn event() -> Event {
        let kind = EventType::new(
            DataType::new("g", "v1", "things"),
            SubResource::Spec,
            Action::CreateRequest,
        );
        let stamp = Stamp {
            id: "1".to_owned(),
            time: "2026-01-02T03:04:05.5Z".parse().unwrap(),
        };
        Event::new(stamp, "me", &kind)
    }

    #[test]
    fn extensions_are_read_as_what_they_have_to_be() {
        let event = event()
            .with("resourceversion", "12")
            .with("clustername", "")
            .with("deletiontimestamp", "1985-04-12T23:20:50.52Z");
        assert_eq!(event.time.as_deref(), Some("2026-01-02T03:04:05.5Z"));
        assert_eq!(event.require_integer("resourceversion"), Ok(12));
        assert_eq!(event.require("clustername"), Ok(""));
        let deleted = event.time_of("deletiontimestamp").unwrap();
        assert_eq!(deleted, Some("1985-04-12T23:20:50.52Z".parse().unwrap()));
        assert_eq!(event.time_of("other"), Ok(None));
    }

    #[test]
    fn what_is_wrong_with_an_extension_is_told() {
        let event = event().with("resourceversion", "x").with("time", "noon");
        let error = |error: ExtensionError| error.to_string();
        assert_eq!(
            error(event.require("resourceid").unwrap_err()),
            "the event has no extension resourceid"
        );
        assert_eq!(
            error(event.require_integer("resourceversion").unwrap_err()),
            "the extension resourceversion is \"x\", expected a whole number"
        );
        assert!(error(event.time_of("time").unwrap_err()).contains("RFC 3339"));
    }

    #[test]
    fn what_an_event_carries_stays_out_of_logs() {
        let event = event()
            .with("metadata", "hunter2")
            .with_json(&b"{\"password\":\"hunter2\"}"[..]);
        let text = format!("{event:?}");
        assert!(!text.contains("hunter2"), "{text}");
        assert!(text.contains("bytes: 22"), "{text}");
    }

    #[test]
    fn stamps_differ() {
        assert_ne!(Stamp::now().id, Stamp::now().id);
    }
}
