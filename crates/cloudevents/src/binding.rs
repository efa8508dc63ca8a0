//! How an event travels in an MQTT 5 message.
//!
//! Binary mode is what is sent: attributes are user properties with the prefix `ce-`, save for the
//! content type, which has a property of its own; the payload is the data. Structured mode (one
//! JSON document) is read, too. The order of properties means nothing (Go writes its maps in any).

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::Event;

const PREFIX: &str = "ce-";
const VERSION: &str = "1.0";
const STRUCTURED: &str = "application/cloudevents+json";

/// A message, as far as events are concerned.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Message {
    /// The content type.
    pub content_type: Option<String>,
    /// User properties, in order.
    pub properties: Vec<(String, String)>,
    /// The payload.
    pub payload: Bytes,
}

impl Message {
    /// The type of the event in it, as far as the properties say.
    pub fn kind(&self) -> Option<&str> {
        let mut properties = self.properties.iter();
        let kind = properties.find(|(name, _)| name.strip_prefix(PREFIX) == Some("type"));
        kind.map(|(_, kind)| kind.as_str())
    }
}

/// A message is no event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BindingError {
    /// It says in no way that it is one.
    #[error(
        "the message is no CloudEvent: it has neither ce-specversion nor the content type of one"
    )]
    NoEvent,
    /// An attribute is missing that each event has.
    #[error("the event has no {0}")]
    Missing(&'static str),
    /// It has another version of the format.
    #[error("the event has specversion {0:?}, expected 1.0")]
    Version(String),
    /// Its document cannot be read.
    #[error("the event is no JSON document: {0}")]
    Document(String),
}

impl From<&Event> for Message {
    fn from(event: &Event) -> Self {
        let property = |name: &str, value: &str| (format!("{PREFIX}{name}"), value.to_owned());
        let mut properties = vec![
            property("id", &event.id),
            property("source", &event.source),
            property("specversion", VERSION),
            property("type", &event.kind),
        ];
        properties.extend(event.time.as_deref().map(|time| property("time", time)));
        let extensions = event.extensions.iter();
        properties.extend(extensions.map(|(name, value)| property(name, value)));
        Self {
            content_type: event.content_type.clone(),
            properties,
            payload: event.data.clone(),
        }
    }
}

/// The attributes by name, as they are taken out one after the other.
struct Attributes(BTreeMap<String, String>);

impl Attributes {
    fn take(&mut self, name: &'static str) -> Result<String, BindingError> {
        self.0.remove(name).ok_or(BindingError::Missing(name))
    }

    fn into_event(
        mut self,
        content_type: Option<String>,
        data: Bytes,
    ) -> Result<Event, BindingError> {
        let version = self.take("specversion")?;
        if version != VERSION {
            return Err(BindingError::Version(version));
        }
        Ok(Event {
            id: self.take("id")?,
            source: self.take("source")?,
            kind: self.take("type")?,
            time: self.0.remove("time"),
            content_type,
            extensions: self.0,
            data,
        })
    }
}

impl TryFrom<Message> for Event {
    type Error = BindingError;

    fn try_from(message: Message) -> Result<Self, BindingError> {
        let attributes: BTreeMap<_, _> = message
            .properties
            .into_iter()
            .filter_map(|(name, value)| Some((name.strip_prefix(PREFIX)?.to_owned(), value)))
            .collect();
        if attributes.contains_key("specversion") {
            return Attributes(attributes).into_event(message.content_type, message.payload);
        }
        let structured = message
            .content_type
            .is_some_and(|content_type| content_type.starts_with(STRUCTURED));
        if structured {
            document(&message.payload)
        } else {
            Err(BindingError::NoEvent)
        }
    }
}

/// The data of a document. Raw values do not go through a map of values, so the rest is read apart.
#[derive(Deserialize)]
struct Data {
    data: Option<Box<RawValue>>,
}

/// Reads a structured event.
fn document(payload: &[u8]) -> Result<Event, BindingError> {
    let bad = |error: serde_json::Error| BindingError::Document(error.to_string());
    let Data { data } = serde_json::from_slice(payload).map_err(bad)?;
    let mut values: BTreeMap<String, Value> = serde_json::from_slice(payload).map_err(bad)?;
    values.remove("data");
    let content_type = values.remove("datacontenttype");
    let text = |value: Value| match value {
        Value::String(text) => Some(text),
        Value::Null => None,
        other => Some(other.to_string()),
    };
    let attributes = values
        .into_iter()
        .filter_map(|(name, value)| Some((name, text(value)?)))
        .collect();
    let data = data.map_or_else(Bytes::new, |data| {
        Bytes::copy_from_slice(data.get().as_bytes())
    });
    Attributes(attributes).into_event(content_type.and_then(text), data)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(properties: &[(&str, &str)]) -> Message {
        Message {
            properties: properties
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            ..Message::default()
        }
    }

    const LEAST: [(&str, &str); 4] = [
        ("ce-id", "1"),
        ("ce-source", "s"),
        ("ce-specversion", "1.0"),
        ("ce-type", "t"),
    ];

    #[test]
    fn properties_of_others_are_ignored_and_the_order_means_nothing() {
        let mut properties = LEAST.to_vec();
        properties.push(("x-mqtt-client-id", "c"));
        properties.push(("ce-clustername", ""));
        let straight = Event::try_from(message(&properties)).unwrap();
        properties.reverse();
        assert_eq!(Event::try_from(message(&properties)).unwrap(), straight);
        assert_eq!(straight.get("clustername"), Some(""));
        assert_eq!(straight.extensions.len(), 1);
    }

    #[test]
    fn what_is_no_event_is_told() {
        let error = |message: Message| Event::try_from(message).unwrap_err();
        assert_eq!(error(message(&[])), BindingError::NoEvent);
        let mut plain = message(&[]);
        plain.content_type = Some("application/json".to_owned());
        assert_eq!(error(plain), BindingError::NoEvent);
        for (index, missing) in [(0, "id"), (1, "source"), (3, "type")] {
            let mut properties = LEAST.to_vec();
            properties.remove(index);
            assert_eq!(error(message(&properties)), BindingError::Missing(missing));
        }
        let mut properties = LEAST;
        properties[2].1 = "0.3";
        let text = error(message(&properties)).to_string();
        assert_eq!(text, "the event has specversion \"0.3\", expected 1.0");
        let mut broken = message(&[]);
        broken.content_type = Some("application/cloudevents+json; charset=utf-8".to_owned());
        broken.payload = Bytes::from_static(b"{");
        assert!(
            error(broken)
                .to_string()
                .starts_with("the event is no JSON document")
        );
    }
}
