//! What a source and an agent say and hear, without a connection: messages in, messages out.
//!
//! [`Source`] and [`Agent`] keep no resources: what comes in is their owner's to store, after
//! [`accepts_spec`] and [`accepts_status`] have said whether it is news.

mod accept;
mod agent;
mod source;

pub use accept::{accepts_spec, accepts_status};
pub use agent::{Agent, ToAgent};
pub use source::{Source, StatusMark, ToSource};

use crate::resync::{Resource, ResourceVersion};
use crate::{
    Action, BindingError, DataType, Event, EventType, ExtensionError, Message, Stamp, SubResource,
    TopicError, TypeError,
};

/// Puts resources of one type into events and takes them out.
pub trait Codec: Send + Sync + 'static {
    /// What it is for.
    type Resource: Resource + Send + Sync + 'static;
    /// Why an event is not, or cannot be made, what it should be.
    type Error: std::error::Error + Send + Sync + 'static;

    /// The type of the data that it sends.
    fn data_type(&self) -> DataType;
    /// Whether data of this type is for it.
    fn accepts(&self, data_type: &DataType) -> bool {
        *data_type == self.data_type()
    }
    /// The cluster that a resource is for.
    fn cluster_of<'a>(&self, resource: &'a Self::Resource) -> &'a str;
    /// The source that a resource came from, as an agent has it.
    fn source_of<'a>(&self, resource: &'a Self::Resource) -> Option<&'a str>;
    /// The hash of the status of a resource.
    fn status_hash(&self, resource: &Self::Resource) -> String;
    /// Whether the status of a resource says that it is gone from its cluster.
    fn says_gone(&self, resource: &Self::Resource) -> bool;
    /// The sequence id of the last status that the source has heard, as far as it tells its agent.
    fn last_sequence_id<'a>(&self, resource: &'a Self::Resource) -> Option<&'a str>;
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
    /// It says that it is of another than the one whose topic it came by.
    #[error("the event claims to be of {claimed:?} and came by the topic of {named:?}")]
    Imposter {
        /// Whom it claims to be of.
        claimed: String,
        /// Whose topic it is.
        named: String,
    },
    /// It lacks an extension.
    #[error(transparent)]
    Extension(#[from] ExtensionError),
    /// Its data is no request for a resync.
    #[error("the request for a resync cannot be read: {0}")]
    Request(String),
    /// It does not hold what it should.
    #[error(transparent)]
    Codec(E),
}

impl<E: std::error::Error> Dropped<E> {
    /// A word for the reason, for metrics.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Binding(_) => "no_event",
            Self::Type(_) | Self::DataType(_) | Self::SubResource(_) => "type",
            Self::Elsewhere(_) => "elsewhere",
            Self::Imposter { .. } => "imposter",
            Self::Extension(_) => "extension",
            Self::Request(_) => "request",
            Self::Codec(_) => "payload",
        }
    }
}

/// Where stamps come from: [`Stamp::now`], unless a test wants to know them.
pub type Stamps = fn() -> Stamp;

impl<E: std::error::Error> From<crate::presence::ReadError> for Dropped<E> {
    fn from(error: crate::presence::ReadError) -> Self {
        match error {
            crate::presence::ReadError::Type(error) => Self::Type(error),
            crate::presence::ReadError::Extension(error) => Self::Extension(error),
        }
    }
}

fn typed<C: Codec>(codec: &C, event: &Event) -> Result<EventType, Dropped<C::Error>> {
    let event_type = event.event_type()?;
    if codec.accepts(&event_type.data_type) {
        Ok(event_type)
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
