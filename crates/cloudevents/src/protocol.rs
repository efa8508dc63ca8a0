//! What a source and an agent say and hear, without a connection: messages in, messages out.
//!
//! [`Source`] and [`Agent`] keep no resources. What they need to know of them their owner tells when
//! it is asked, and what comes in is the owner's to store: [`accepts_spec`] and [`accepts_status`]
//! say whether it is news.

use crate::event::extension::{CLUSTER_NAME, ORIGINAL_SOURCE};
use crate::resync::{
    Resource, ResourceVersion, ResourceVersions, SpecAnswer, StatusHash, StatusHashes,
    answer_specs, answer_statuses, split_hashes,
};
use crate::sequence::{Sequence, SequenceError, is_newer};
use crate::{
    Action, BindingError, DataType, Dialect, Event, EventType, ExtensionError, Message, Stamp,
    SubResource, TopicError, TypeError,
};

/// Most bytes of data in a request for statuses: what the strictest of the usual brokers takes in a
/// message, less what surrounds the data.
const MOST_REQUEST_BYTES: usize = 120 * 1024;

/// Puts resources of one type into events and takes them out.
pub trait Codec {
    /// What it is for.
    type Resource: Resource;
    /// Why an event is not, or cannot be made, what it should be.
    type Error: std::error::Error + Send + Sync + 'static;

    /// The type of the data.
    fn data_type(&self) -> DataType;
    /// The cluster that a resource is for.
    fn cluster_of<'a>(&self, resource: &'a Self::Resource) -> &'a str;
    /// The source that a resource came from, as an agent has it.
    fn source_of<'a>(&self, resource: &'a Self::Resource) -> Option<&'a str>;
    /// The hash of the status of a resource.
    fn status_hash(&self, resource: &Self::Resource) -> String;
    /// The event that sends a resource to its agent.
    ///
    /// # Errors
    ///
    /// The resource does not fit into one.
    fn encode_spec(
        &self,
        stamp: Stamp,
        source: &str,
        action: Action,
        resource: &Self::Resource,
    ) -> Result<Event, Self::Error>;
    /// The event that has an agent forget what the source does not have.
    fn encode_orphan(
        &self,
        stamp: Stamp,
        source: &str,
        cluster: &str,
        orphan: &ResourceVersion,
    ) -> Event;
    /// The resource that an agent gets.
    ///
    /// # Errors
    ///
    /// The event does not hold one.
    fn decode_spec(&self, event: &Event) -> Result<Self::Resource, Self::Error>;
    /// The event that sends the status of a resource to its source.
    ///
    /// # Errors
    ///
    /// The status does not fit into one.
    fn encode_status(
        &self,
        stamp: Stamp,
        agent: &str,
        action: Action,
        sequence_id: &str,
        resource: &Self::Resource,
    ) -> Result<Event, Self::Error>;
    /// The resource whose status a source gets.
    ///
    /// # Errors
    ///
    /// The event does not hold one.
    fn decode_status(&self, event: &Event) -> Result<Self::Resource, Self::Error>;
}

/// A message that is to be published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    /// Where.
    pub topic: String,
    /// What.
    pub message: Message,
}

/// Why something cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum SendError<E: std::error::Error + 'static> {
    /// It does not fit into an event.
    #[error(transparent)]
    Codec(E),
    /// There is no topic for it.
    #[error(transparent)]
    Topic(#[from] TopicError),
}

/// Why a message that came is of no use. Nothing else suffers from it.
#[derive(Debug, thiserror::Error)]
pub enum Dropped<E: std::error::Error + 'static> {
    /// It is no event.
    #[error(transparent)]
    Binding(#[from] BindingError),
    /// It does not say what it is.
    #[error(transparent)]
    Type(#[from] TypeError),
    /// It is of another type.
    #[error("unsupported event data type {0}")]
    DataType(DataType),
    /// It is what this side sends, not what it hears.
    #[error("unsupported subresource {0}")]
    SubResource(SubResource),
    /// It is for somebody else, named here.
    #[error("the event is for {0:?}")]
    Elsewhere(String),
    /// It lacks an extension.
    #[error(transparent)]
    Extension(#[from] ExtensionError),
    /// Its data is no request for a resync.
    #[error("the request for a resync cannot be read: {0}")]
    Request(String),
    /// It does not hold what it should.
    #[error(transparent)]
    Codec(E),
    /// It asks for something that cannot be sent.
    #[error("the answer cannot be sent: {0}")]
    Answer(#[from] SendError<E>),
}

impl<E: std::error::Error> Dropped<E> {
    /// A word for the reason, for metrics.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Binding(_) => "no_event",
            Self::Type(_) | Self::DataType(_) | Self::SubResource(_) => "type",
            Self::Elsewhere(_) => "elsewhere",
            Self::Extension(_) => "extension",
            Self::Request(_) => "request",
            Self::Codec(_) => "payload",
            Self::Answer(_) => "answer",
        }
    }
}

/// What a message means to whoever got it.
#[derive(Debug, PartialEq, Eq)]
pub enum Received<T> {
    /// A resource, or the status of one.
    Resource(Box<T>),
    /// Somebody asked; these are the answers.
    Answers(Vec<Outgoing>),
}

/// Where stamps come from: [`Stamp::now`], unless a test wants to know them.
pub type Stamps = Box<dyn FnMut() -> Stamp + Send>;

fn typed<C: Codec>(codec: &C, message: Message) -> Result<(Event, EventType), Dropped<C::Error>> {
    let event = Event::try_from(message)?;
    let event_type = event.event_type()?;
    if event_type.data_type == codec.data_type() {
        Ok((event, event_type))
    } else {
        Err(Dropped::DataType(event_type.data_type))
    }
}

fn request<T: serde::de::DeserializeOwned, E: std::error::Error>(
    event: &Event,
) -> Result<T, Dropped<E>> {
    // The design text lets an agent send an empty payload for an empty list.
    let data: &[u8] = if event.data.is_empty() {
        b"{}"
    } else {
        &event.data
    };
    serde_json::from_slice(data).map_err(|error| Dropped::Request(error.to_string()))
}

/// One that owns resources.
pub struct Source<C> {
    id: String,
    dialect: Dialect,
    codec: C,
    stamps: Stamps,
}

impl<C> std::fmt::Debug for Source<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source")
            .field("id", &self.id)
            .field("dialect", &self.dialect)
            .finish_non_exhaustive()
    }
}

impl<C: Codec> Source<C> {
    /// A source of this id.
    ///
    /// # Errors
    ///
    /// The dialect's topics are not for it.
    pub fn new(
        id: impl Into<String>,
        dialect: Dialect,
        codec: C,
        stamps: Stamps,
    ) -> Result<Self, TopicError> {
        let id = id.into();
        dialect.source_filters(&id)?;
        Ok(Self {
            id,
            dialect,
            codec,
            stamps,
        })
    }

    /// What it has to listen to.
    ///
    /// # Errors
    ///
    /// None after [`Source::new`] has had none.
    pub fn filters(&self) -> Result<Vec<String>, TopicError> {
        self.dialect.source_filters(&self.id)
    }

    /// Sends a resource to its agent.
    ///
    /// # Errors
    ///
    /// It does not fit into an event, or there is no topic for its cluster.
    pub fn send(
        &mut self,
        action: Action,
        resource: &C::Resource,
    ) -> Result<Outgoing, SendError<C::Error>> {
        let stamp = (self.stamps)();
        let event = self.codec.encode_spec(stamp, &self.id, action, resource);
        Ok(self.outgoing(&event.map_err(SendError::Codec)?)?)
    }

    fn outgoing(&self, event: &Event) -> Result<Outgoing, TopicError> {
        Ok(Outgoing {
            topic: self.dialect.topic_of_source(&self.id, event)?,
            message: event.into(),
        })
    }

    /// Asks one cluster, or all (`""`), for statuses that differ from those of `own`. To be sent
    /// after each time that a subscription begins.
    ///
    /// # Errors
    ///
    /// There is no topic for it.
    pub fn ask(&mut self, cluster: &str, own: &[C::Resource]) -> Result<Vec<Outgoing>, TopicError> {
        let hashes = own.iter().map(|resource| StatusHash {
            id: resource.uid().to_owned(),
            hash: self.codec.status_hash(resource),
        });
        let asked = StatusHashes {
            hashes: hashes.collect(),
        };
        let event_type = EventType::new(
            self.codec.data_type(),
            SubResource::Status,
            Action::ResyncRequest,
        );
        split_hashes(asked, MOST_REQUEST_BYTES)
            .into_iter()
            .map(|part| {
                // A list of texts always encodes.
                let data = serde_json::to_vec(&part).unwrap_or_default();
                let event = Event::new((self.stamps)(), &*self.id, &event_type)
                    .with(CLUSTER_NAME, cluster)
                    .with(ORIGINAL_SOURCE, "")
                    .with_json(data);
                self.outgoing(&event)
            })
            .collect()
    }

    /// Takes a message. `own` gives the resources for a cluster, and whether those are all.
    ///
    /// # Errors
    ///
    /// It is of no use.
    pub fn receive(
        &mut self,
        message: Message,
        own: impl FnOnce(&str) -> (Vec<C::Resource>, bool),
    ) -> Result<Received<C::Resource>, Dropped<C::Error>> {
        let (event, event_type) = typed(&self.codec, message)?;
        let meant = event.get(ORIGINAL_SOURCE).unwrap_or_default();
        if !meant.is_empty() && meant != self.id {
            return Err(Dropped::Elsewhere(meant.to_owned()));
        }
        match (event_type.sub_resource, event_type.is_resync_request()) {
            (SubResource::Status, false) => {
                let resource = self.codec.decode_status(&event).map_err(Dropped::Codec)?;
                Ok(Received::Resource(Box::new(resource)))
            }
            (SubResource::Spec, true) => {
                let cluster = event.require(CLUSTER_NAME)?;
                let reported: ResourceVersions = request(&event)?;
                let (own, complete) = own(cluster);
                self.answer(cluster, &own, &reported, complete)
            }
            (half, _) => Err(Dropped::SubResource(half)),
        }
    }

    fn answer(
        &mut self,
        cluster: &str,
        own: &[C::Resource],
        reported: &ResourceVersions,
        complete: bool,
    ) -> Result<Received<C::Resource>, Dropped<C::Error>> {
        let mut answers = Vec::new();
        for answer in answer_specs(own, reported, complete) {
            answers.push(match answer {
                SpecAnswer::Send(resource) => self.send(Action::ResyncResponse, resource)?,
                SpecAnswer::Forget(orphan) => {
                    let stamp = (self.stamps)();
                    let event = self.codec.encode_orphan(stamp, &self.id, cluster, orphan);
                    self.outgoing(&event).map_err(SendError::Topic)?
                }
            });
        }
        Ok(Received::Answers(answers))
    }
}

/// One that has the resources of a cluster.
pub struct Agent<C> {
    id: String,
    cluster: String,
    dialect: Dialect,
    codec: C,
    stamps: Stamps,
    sequence: Sequence,
}

impl<C> std::fmt::Debug for Agent<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agent")
            .field("id", &self.id)
            .field("cluster", &self.cluster)
            .field("dialect", &self.dialect)
            .finish_non_exhaustive()
    }
}

impl<C: Codec> Agent<C> {
    /// The agent of a cluster.
    ///
    /// # Errors
    ///
    /// The cluster's name cannot be in a topic.
    pub fn new(
        id: impl Into<String>,
        cluster: impl Into<String>,
        dialect: Dialect,
        codec: C,
        stamps: Stamps,
    ) -> Result<Self, TopicError> {
        let cluster = cluster.into();
        dialect.agent_filters(&cluster)?;
        Ok(Self {
            id: id.into(),
            cluster,
            dialect,
            codec,
            stamps,
            sequence: Sequence::new(),
        })
    }

    /// A sequence id that an earlier life has used; see [`Sequence::begin_after`].
    pub fn begin_after(&mut self, sequence_id: &str) {
        self.sequence.begin_after(sequence_id);
    }

    /// What it has to listen to.
    ///
    /// # Errors
    ///
    /// None after [`Agent::new`] has had none.
    pub fn filters(&self) -> Result<Vec<String>, TopicError> {
        self.dialect.agent_filters(&self.cluster)
    }

    fn outgoing(&self, event: &Event) -> Result<Outgoing, TopicError> {
        Ok(Outgoing {
            topic: self.dialect.topic_of_agent(&self.cluster, event)?,
            message: event.into(),
        })
    }

    /// Sends the status of a resource to its source.
    ///
    /// # Errors
    ///
    /// It does not fit into an event, or there is no topic for its source.
    pub fn send(
        &mut self,
        action: Action,
        resource: &C::Resource,
    ) -> Result<Outgoing, SendError<C::Error>> {
        let stamp = (self.stamps)();
        let sequence_id = self.sequence.next(stamp.time.as_millisecond());
        let event = self
            .codec
            .encode_status(stamp, &self.id, action, &sequence_id, resource);
        Ok(self.outgoing(&event.map_err(SendError::Codec)?)?)
    }

    /// Asks all sources for what is newer than `own`. To be sent after each time that a subscription
    /// begins.
    ///
    /// # Errors
    ///
    /// There is no topic for it.
    pub fn ask(&mut self, own: &[C::Resource]) -> Result<Outgoing, TopicError> {
        let versions = own.iter().map(|resource| ResourceVersion {
            id: resource.uid().to_owned(),
            version: resource.version(),
        });
        let versions = ResourceVersions {
            versions: versions.collect(),
        };
        let event_type = EventType::new(
            self.codec.data_type(),
            SubResource::Spec,
            Action::ResyncRequest,
        );
        // A list of texts and numbers always encodes.
        let data = serde_json::to_vec(&versions).unwrap_or_default();
        let event = Event::new((self.stamps)(), &*self.id, &event_type)
            .with(CLUSTER_NAME, &*self.cluster)
            .with(ORIGINAL_SOURCE, "")
            .with_json(data);
        self.outgoing(&event)
    }

    /// Takes a message. `own` gives the resources that the agent has.
    ///
    /// # Errors
    ///
    /// It is of no use.
    pub fn receive(
        &mut self,
        message: Message,
        own: impl FnOnce() -> Vec<C::Resource>,
    ) -> Result<Received<C::Resource>, Dropped<C::Error>> {
        let (event, event_type) = typed(&self.codec, message)?;
        // The design text names the cluster in the topic only, where it has been looked at.
        let meant = event.get(CLUSTER_NAME).unwrap_or_default();
        if !meant.is_empty() && meant != self.cluster {
            return Err(Dropped::Elsewhere(meant.to_owned()));
        }
        match (event_type.sub_resource, event_type.is_resync_request()) {
            (SubResource::Spec, false) => {
                let resource = self.codec.decode_spec(&event).map_err(Dropped::Codec)?;
                Ok(Received::Resource(Box::new(resource)))
            }
            (SubResource::Status, true) => {
                let asked: StatusHashes = request(&event)?;
                let mut own = own();
                // Of others it is nobody's business.
                own.retain(|resource| self.codec.source_of(resource) == Some(&*event.source));
                let hash = |resource: &C::Resource| self.codec.status_hash(resource);
                let mut answers = Vec::new();
                for resource in answer_statuses(&own, &asked, hash) {
                    let stamp = (self.stamps)();
                    let sequence_id = self.sequence.next(stamp.time.as_millisecond());
                    let action = Action::ResyncResponse;
                    let event =
                        self.codec
                            .encode_status(stamp, &self.id, action, &sequence_id, resource);
                    let event = event.map_err(SendError::Codec)?;
                    answers.push(self.outgoing(&event).map_err(SendError::Topic)?);
                }
                Ok(Received::Answers(answers))
            }
            (half, _) => Err(Dropped::SubResource(half)),
        }
    }
}

/// Whether an agent that has a resource in the version `known` takes it in the version `incoming`.
/// Deletions are always taken, and so is what has no version.
pub const fn accepts_spec(known: Option<i64>, incoming: i64, is_deleting: bool) -> bool {
    match known {
        None => true,
        Some(known) => is_deleting || incoming == 0 || incoming >= known,
    }
}

/// Whether a source takes a status: it has to be of a spec that the source has sent, and newer than
/// the one before. That a resource is gone is always taken.
///
/// # Errors
///
/// The sequence ids do not compare: the status is not taken.
pub fn accepts_status(
    known_version: i64,
    incoming_version: i64,
    last_sequence_id: &str,
    sequence_id: &str,
    is_deleted: bool,
) -> Result<bool, SequenceError> {
    if is_deleted {
        return Ok(true);
    }
    if known_version != 0 && incoming_version > known_version {
        return Ok(false);
    }
    is_newer(last_sequence_id, sequence_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_spec_never_takes_the_place_of_a_newer_one() {
        assert!(accepts_spec(None, 1, false));
        assert!(accepts_spec(Some(1), 2, false));
        assert!(accepts_spec(Some(2), 2, false), "repeated");
        assert!(!accepts_spec(Some(3), 2, false), "late");
        assert!(accepts_spec(Some(3), 0, false), "without a version");
        assert!(accepts_spec(Some(3), 2, true), "a deletion");
    }

    #[test]
    fn an_older_status_never_takes_the_place_of_a_newer_one() {
        let mut sequence = Sequence::new();
        let (first, second) = (
            sequence.next(2_000_000_000_000),
            sequence.next(2_000_000_000_000),
        );
        let accepts = |version, last: &str, incoming: &str, deleted| {
            accepts_status(2, version, last, incoming, deleted)
        };
        assert_eq!(accepts(2, "", &first, false), Ok(true));
        assert_eq!(accepts(2, &first, &second, false), Ok(true));
        assert_eq!(accepts(2, &second, &first, false), Ok(false));
        assert_eq!(accepts(2, &first, &first, false), Ok(false), "repeated");
        assert_eq!(
            accepts(3, &first, &second, false),
            Ok(false),
            "of no spec of ours"
        );
        assert_eq!(accepts(1, &first, &second, false), Ok(true));
        assert_eq!(accepts(9, &second, &first, true), Ok(true), "the end");
        assert!(accepts(2, &first, "x", false).is_err());
    }
}
