//! Resources that are plain data: a spec and a status, each any type that serde knows.
//!
//! For what is no Kubernetes object and needs no codec of its own. The data of an event is the spec
//! or the status as JSON; all else is in extensions, as for ManifestWorks.

use std::fmt;
use std::marker::PhantomData;

use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::canonical::canonical_hash;
use crate::event::extension::{
    CLUSTER_NAME, DELETION_TIMESTAMP, ORIGINAL_SOURCE, RESOURCE_ID, RESOURCE_VERSION, SEQUENCE_ID,
    STATUS_HASH,
};
use crate::protocol::Codec;
use crate::resync::{Resource, ResourceVersion};
use crate::{Action, DataType, Event, EventType, ExtensionError, Stamp, SubResource, TypeError};

/// What a spec or a status has to be.
pub trait Data: Serialize + DeserializeOwned + Clone + Send + Sync + 'static {}

impl<T: Serialize + DeserializeOwned + Clone + Send + Sync + 'static> Data for T {}

/// A resource with a spec `S` and a status `T`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document<S, T> {
    /// Its uid, unique over all sources.
    pub uid: String,
    /// The cluster that it is for.
    pub cluster: String,
    /// The source that it came from; at that source, none.
    pub source: Option<String>,
    /// The version of its spec, greater with each change.
    pub version: i64,
    /// Since when it is to go.
    pub deleting: Option<Timestamp>,
    /// Whether it has gone from its cluster.
    pub gone: bool,
    /// What is wanted; none in a deletion and in a status.
    pub spec: Option<S>,
    /// What is, once that is known.
    pub status: Option<T>,
    /// The sequence id of the last status that its source has.
    pub last_sequence_id: Option<String>,
}

impl<S, T> Document<S, T> {
    /// The first version of a resource.
    pub fn new(uid: impl Into<String>, cluster: impl Into<String>, spec: S) -> Self {
        Self {
            uid: uid.into(),
            cluster: cluster.into(),
            source: None,
            version: 1,
            deleting: None,
            gone: false,
            spec: Some(spec),
            status: None,
            last_sequence_id: None,
        }
    }
}

impl<S, T> Resource for Document<S, T> {
    fn uid(&self) -> &str {
        &self.uid
    }

    fn version(&self) -> i64 {
        self.version
    }

    fn is_deleting(&self) -> bool {
        self.deleting.is_some()
    }
}

/// Puts [`Document`]s of one data type into events.
pub struct DocumentCodec<S, T> {
    data_type: DataType,
    types: PhantomData<fn() -> (S, T)>,
}

impl<S, T> DocumentCodec<S, T> {
    /// A codec for this data type.
    pub const fn new(data_type: DataType) -> Self {
        let types = PhantomData;
        Self { data_type, types }
    }
}

impl<S, T> Clone for DocumentCodec<S, T> {
    fn clone(&self) -> Self {
        Self::new(self.data_type.clone())
    }
}

impl<S, T> fmt::Debug for DocumentCodec<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DocumentCodec")
            .field(&self.data_type)
            .finish()
    }
}

/// An event does not hold a document.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// It does not say what it is.
    #[error(transparent)]
    Type(#[from] TypeError),
    /// An extension is not as it has to be.
    #[error(transparent)]
    Extension(#[from] ExtensionError),
    /// Its data is something else.
    #[error("failed to read the {half} of {uid}: {error}")]
    Data {
        /// Spec or status.
        half: SubResource,
        /// The resource.
        uid: String,
        /// What is wrong with it.
        error: serde_json::Error,
    },
}

impl<S: Data, T: Data> DocumentCodec<S, T> {
    fn event(&self, stamp: Stamp, sender: &str, half: SubResource, action: Action) -> Event {
        let event_type = EventType::new(self.data_type.clone(), half, action);
        Event::new(stamp, sender, &event_type)
    }

    /// A document without data.
    fn frame(event: &Event) -> Result<Document<S, T>, DocumentError> {
        Ok(Document {
            uid: event.require(RESOURCE_ID)?.to_owned(),
            cluster: event.require(CLUSTER_NAME)?.to_owned(),
            source: None,
            version: event.require_integer(RESOURCE_VERSION)?,
            deleting: event.time_of(DELETION_TIMESTAMP)?,
            gone: false,
            spec: None,
            status: None,
            last_sequence_id: event.get(SEQUENCE_ID).map(ToOwned::to_owned),
        })
    }
}

fn data<D: DeserializeOwned>(event: &Event, half: SubResource) -> Result<D, DocumentError> {
    serde_json::from_slice(&event.data).map_err(|error| DocumentError::Data {
        half,
        uid: event.get(RESOURCE_ID).unwrap_or_default().to_owned(),
        error,
    })
}

fn encoded<D: Serialize>(
    value: &D,
    half: SubResource,
    uid: &str,
) -> Result<Vec<u8>, DocumentError> {
    serde_json::to_vec(value).map_err(|error| DocumentError::Data {
        half,
        uid: uid.to_owned(),
        error,
    })
}

impl<S: Data, T: Data> Codec for DocumentCodec<S, T> {
    type Resource = Document<S, T>;
    type Error = DocumentError;

    fn data_type(&self) -> DataType {
        self.data_type.clone()
    }

    fn cluster_of<'a>(&self, document: &'a Document<S, T>) -> &'a str {
        &document.cluster
    }

    fn source_of<'a>(&self, document: &'a Document<S, T>) -> Option<&'a str> {
        document.source.as_deref()
    }

    fn status_hash(&self, document: &Document<S, T>) -> String {
        // What does not encode is never sent, either.
        let status = serde_json::to_value(&document.status).unwrap_or_default();
        canonical_hash(&status)
    }

    fn says_gone(&self, document: &Document<S, T>) -> bool {
        document.gone
    }

    fn last_sequence_id<'a>(&self, document: &'a Document<S, T>) -> Option<&'a str> {
        document.last_sequence_id.as_deref()
    }

    fn encode_spec(
        &self,
        stamp: Stamp,
        source: &str,
        action: Action,
        document: &Document<S, T>,
    ) -> Result<Event, DocumentError> {
        let mut event = self
            .event(stamp, source, SubResource::Spec, action)
            .with(RESOURCE_ID, &*document.uid)
            .with(RESOURCE_VERSION, document.version.to_string())
            .with(CLUSTER_NAME, &*document.cluster)
            .with(ORIGINAL_SOURCE, "");
        if let Some(last) = &document.last_sequence_id {
            event = event.with(SEQUENCE_ID, &**last);
        }
        if let Some(since) = document.deleting {
            return Ok(event.with(DELETION_TIMESTAMP, since.to_string()));
        }
        let data = encoded(&document.spec, SubResource::Spec, &document.uid)?;
        Ok(event.with_json(data))
    }

    fn encode_orphan(
        &self,
        stamp: Stamp,
        source: &str,
        cluster: &str,
        orphan: &ResourceVersion,
    ) -> Event {
        let now = stamp.time.to_string();
        self.event(stamp, source, SubResource::Spec, Action::ResyncResponse)
            .with(RESOURCE_ID, &*orphan.id)
            .with(RESOURCE_VERSION, orphan.version.to_string())
            .with(CLUSTER_NAME, cluster)
            .with(ORIGINAL_SOURCE, "")
            .with(DELETION_TIMESTAMP, now)
    }

    fn decode_spec(&self, event: &Event) -> Result<Document<S, T>, DocumentError> {
        let mut document = Self::frame(event)?;
        document.source = Some(event.source.clone());
        if document.deleting.is_none() {
            document.spec = Some(data(event, SubResource::Spec)?);
        }
        Ok(document)
    }

    fn encode_status(
        &self,
        stamp: Stamp,
        agent: &str,
        action: Action,
        sequence_id: &str,
        document: &Document<S, T>,
    ) -> Result<Event, DocumentError> {
        let mut event = self
            .event(stamp, agent, SubResource::Status, action)
            .with(RESOURCE_ID, &*document.uid)
            .with(RESOURCE_VERSION, document.version.to_string())
            .with(CLUSTER_NAME, &*document.cluster)
            .with(
                ORIGINAL_SOURCE,
                document.source.as_deref().unwrap_or_default(),
            )
            .with(SEQUENCE_ID, sequence_id)
            .with(STATUS_HASH, self.status_hash(document));
        if document.gone {
            let since = document.deleting.unwrap_or_else(Timestamp::now);
            event = event.with(DELETION_TIMESTAMP, since.to_string());
        }
        let data = encoded(&document.status, SubResource::Status, &document.uid)?;
        Ok(event.with_json(data))
    }

    fn decode_status(&self, event: &Event) -> Result<Document<S, T>, DocumentError> {
        let mut document = Self::frame(event)?;
        document.gone = document.deleting.is_some();
        document.status = data(event, SubResource::Status)?;
        Ok(document)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    type Thing = Document<Value, Value>;

    fn codec() -> DocumentCodec<Value, Value> {
        DocumentCodec::new(DataType::new("g", "v1", "things"))
    }

    #[test]
    fn a_spec_and_its_status_come_out_as_they_went_in() {
        let codec = codec();
        let thing = Thing {
            last_sequence_id: Some("7".to_owned()),
            ..Thing::new("a", "edge", json!({"text": "hello"}))
        };
        let event = codec.encode_spec(Stamp::now(), "hub", Action::CreateRequest, &thing);
        let mut arrived = codec.decode_spec(&event.unwrap()).unwrap();
        let source = Some("hub".to_owned());
        assert_eq!(arrived, Thing { source, ..thing });
        arrived.status = Some(json!([1]));
        let event = codec.encode_status(Stamp::now(), "me", Action::UpdateRequest, "8", &arrived);
        let event = event.unwrap();
        assert_eq!(event.get(STATUS_HASH), Some(&*codec.status_hash(&arrived)));
        assert_eq!(event.get(ORIGINAL_SOURCE), Some("hub"));
        let back = codec.decode_status(&event).unwrap();
        assert_eq!((&back.status, back.gone), (&arrived.status, false));
        assert_eq!(back.last_sequence_id.as_deref(), Some("8"));
    }

    #[test]
    fn an_end_has_no_spec_and_is_told() {
        let codec = codec();
        let mut thing = Thing::new("a", "edge", json!(1));
        thing.deleting = Some(Timestamp::UNIX_EPOCH);
        let event = codec.encode_spec(Stamp::now(), "hub", Action::DeleteRequest, &thing);
        let mut arrived = codec.decode_spec(&event.unwrap()).unwrap();
        assert_eq!((arrived.is_deleting(), &arrived.spec), (true, &None));
        arrived.gone = true;
        let event = codec.encode_status(Stamp::now(), "me", Action::UpdateRequest, "8", &arrived);
        let back = codec.decode_status(&event.unwrap()).unwrap();
        assert!(codec.says_gone(&back));
        let orphan = ResourceVersion {
            id: "b".to_owned(),
            version: 3,
        };
        let event = codec.encode_orphan(Stamp::now(), "hub", "edge", &orphan);
        let arrived = codec.decode_spec(&event).unwrap();
        assert!(arrived.is_deleting());
        assert_eq!((&*arrived.uid, arrived.version), ("b", 3));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let codec = DocumentCodec::<u8, u8>::new(DataType::new("g", "v1", "things"));
        let thing = Document::<u8, u8>::new("a", "edge", 7);
        let event = codec.encode_spec(Stamp::now(), "hub", Action::CreateRequest, &thing);
        let event = event.unwrap();
        let wrong = event.clone().with_json("300");
        let error = codec.decode_spec(&wrong).unwrap_err().to_string();
        assert!(
            error.starts_with("failed to read the spec of a: "),
            "{error}"
        );
        let mut nobody = event;
        nobody.extensions.remove(RESOURCE_ID);
        let error = codec.decode_spec(&nobody).unwrap_err().to_string();
        assert_eq!(error, "the event has no extension resourceid");
    }
}
