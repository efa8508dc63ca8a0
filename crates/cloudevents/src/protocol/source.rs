//! The side that owns resources.

use std::sync::{Mutex, PoisonError};

use super::{Codec, Dropped, Outgoing, SendError, Stamps, request, typed};
use crate::event::extension::{
    CLUSTER_NAME, ORIGINAL_SOURCE, RESYNC_ID, RESYNC_PART, SEQUENCE_ID, STATUS_HASH,
};
use crate::presence::{Presence, SourcePresence};
use crate::resync::{Parts, ResourceVersion, ResourceVersions, StatusHashes, split_hashes};
use crate::{
    Action, Dialect, Event, EventType, ExtensionError, Message, Stamp, SubResource, TopicError,
};

/// Most bytes of data in a request for statuses: what the strictest of the usual brokers takes in a
/// message, less what surrounds the data.
const MOST_REQUEST_BYTES: usize = 120 * 1024;

/// One that owns resources.
pub struct Source<C> {
    id: String,
    dialect: Dialect,
    codec: C,
    stamps: Stamps,
    presence: bool,
    parts: Mutex<Parts>,
}

impl<C> std::fmt::Debug for Source<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source")
            .field("id", &self.id)
            .field("dialect", &self.dialect)
            .finish_non_exhaustive()
    }
}

/// What comes with a status. The design text has neither.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StatusMark {
    /// Tells which of two statuses is newer.
    pub sequence_id: Option<String>,
    /// The hash that the agent will compare with.
    pub hash: Option<String>,
    /// Whether it was asked for.
    pub is_answer: bool,
}

/// What a message means to a source.
#[derive(Debug, PartialEq, Eq)]
pub enum ToSource<T> {
    /// The status of a resource.
    Status {
        /// The resource.
        resource: Box<T>,
        /// What was said of it.
        mark: StatusMark,
    },
    /// An agent asks what it has missed: see [`answer_specs`](crate::resync::answer_specs).
    Asked {
        /// The cluster of the agent.
        cluster: String,
        /// What the agent has.
        reported: ResourceVersions,
    },
    /// Part of such a request; the others are still to come.
    Part,
    /// An agent has come or gone.
    Presence(Presence),
}

impl<C: Codec> Source<C> {
    /// A source of this id.
    ///
    /// # Errors
    ///
    /// The dialect's topics are not for it.
    pub fn new(id: impl Into<String>, dialect: Dialect, codec: C) -> Result<Self, TopicError> {
        let id = id.into();
        dialect.source_filters(&id)?;
        Ok(Self {
            id,
            dialect,
            codec,
            stamps: Stamp::now,
            presence: true,
            parts: Mutex::default(),
        })
    }

    /// One that does not say that it is there, and does not hear it of the other side: for brokers
    /// whose rules have no room for that.
    #[must_use]
    pub fn without_presence(self) -> Self {
        Self {
            presence: false,
            ..self
        }
    }

    /// With stamps of the caller's.
    #[must_use]
    pub fn with_stamps(self, stamps: Stamps) -> Self {
        Self { stamps, ..self }
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// How it puts resources into events.
    pub const fn codec(&self) -> &C {
        &self.codec
    }

    /// What it has to listen to.
    ///
    /// # Errors
    ///
    /// None after [`Source::new`] has had none.
    pub fn filters(&self) -> Result<Vec<String>, TopicError> {
        let mut filters = self.dialect.source_filters(&self.id)?;
        if self.presence {
            filters.extend(self.dialect.agent_presence_filter());
        }
        Ok(filters)
    }

    fn outgoing(&self, event: &Event) -> Result<Outgoing, TopicError> {
        Ok(Outgoing {
            topic: self.dialect.topic_of_source(&self.id, event)?,
            message: event.into(),
        })
    }

    /// Sends a resource to its agent.
    ///
    /// # Errors
    ///
    /// It does not fit into an event, or there is no topic for its cluster.
    pub fn send(
        &self,
        action: Action,
        resource: &C::Resource,
    ) -> Result<Outgoing, SendError<C::Error>> {
        let stamp = (self.stamps)();
        let event = self.codec.encode_spec(stamp, &self.id, action, resource);
        Ok(self.outgoing(&event.map_err(SendError::Codec)?)?)
    }

    /// Has the agent of a cluster forget what this source does not have.
    ///
    /// # Errors
    ///
    /// There is no topic for the cluster.
    pub fn forget(&self, cluster: &str, orphan: &ResourceVersion) -> Result<Outgoing, TopicError> {
        let stamp = (self.stamps)();
        self.outgoing(&self.codec.encode_orphan(stamp, &self.id, cluster, orphan))
    }

    /// Asks one cluster, or all (`""`), for statuses that differ from `known`; for all where that is
    /// empty. To be sent after each time that a subscription begins.
    ///
    /// # Errors
    ///
    /// There is no topic for it.
    pub fn ask(&self, cluster: &str, known: StatusHashes) -> Result<Vec<Outgoing>, TopicError> {
        let event_type = EventType::new(
            self.codec.data_type(),
            SubResource::Status,
            Action::ResyncRequest,
        );
        split_hashes(known, MOST_REQUEST_BYTES)
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

    /// Tells agents that the source is there, or is not; `None` where it has no topic for that.
    pub fn presence(&self, connected: bool) -> Option<Outgoing> {
        if !self.presence {
            return None;
        }
        let event = SourcePresence { connected }.event((self.stamps)(), &self.id);
        Some(Outgoing {
            topic: self.dialect.source_presence_topic(&self.id)?,
            message: (&event).into(),
        })
    }

    /// Reads a message that was published to this topic. Who may publish there is the broker's to
    /// say; that the event is of the cluster in the topic is looked at here.
    ///
    /// # Errors
    ///
    /// It is of no use.
    pub fn receive(
        &self,
        topic: &str,
        message: Message,
    ) -> Result<ToSource<C::Resource>, Dropped<C::Error>> {
        let mut event = Event::try_from(message)?;
        if let (_, Some(named)) = self.dialect.names(topic) {
            let claimed = event.get(CLUSTER_NAME).unwrap_or_default();
            if !claimed.is_empty() && claimed != named {
                return Err(Dropped::Imposter {
                    claimed: claimed.to_owned(),
                    named: named.to_owned(),
                });
            }
            // The design text names the cluster in the topic only.
            let extensions = &mut event.extensions;
            extensions.insert(CLUSTER_NAME.to_owned(), named.to_owned());
        }
        let meant = event.get(ORIGINAL_SOURCE).unwrap_or_default();
        if !meant.is_empty() && meant != self.id {
            return Err(Dropped::Elsewhere(meant.to_owned()));
        }
        if let Some(presence) = Presence::read(&event)? {
            return Ok(ToSource::Presence(presence));
        }
        let event_type = typed(&self.codec, &event)?;
        match (event_type.sub_resource, event_type.is_resync_request()) {
            (SubResource::Status, false) => {
                let resource = self.codec.decode_status(&event).map_err(Dropped::Codec)?;
                let text = |name| event.get(name).map(ToOwned::to_owned);
                Ok(ToSource::Status {
                    resource: Box::new(resource),
                    mark: StatusMark {
                        sequence_id: text(SEQUENCE_ID),
                        hash: text(STATUS_HASH),
                        is_answer: event_type.action == Action::ResyncResponse,
                    },
                })
            }
            (SubResource::Spec, true) => self.asked(&event),
            (half, _) => Err(Dropped::SubResource(half)),
        }
    }

    /// A request for specs, or a part of one.
    fn asked(&self, event: &Event) -> Result<ToSource<C::Resource>, Dropped<C::Error>> {
        let cluster = event.require(CLUSTER_NAME)?.to_owned();
        let reported = request(event)?;
        let Some(part) = event.get(RESYNC_PART) else {
            return Ok(ToSource::Asked { cluster, reported });
        };
        let id = event.require(RESYNC_ID)?;
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        match parts.add(&cluster, id, part, reported) {
            Ok(Some(reported)) => Ok(ToSource::Asked { cluster, reported }),
            Ok(None) => Ok(ToSource::Part),
            Err(expected) => Err(Dropped::Extension(ExtensionError::Malformed {
                name: RESYNC_PART,
                value: part.to_owned(),
                expected,
            })),
        }
    }
}
