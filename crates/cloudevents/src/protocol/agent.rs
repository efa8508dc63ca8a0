//! The side that has the resources of a cluster.

use std::sync::{Mutex, PoisonError};

use super::{Codec, Dropped, Outgoing, SendError, Stamps, request, typed};
use crate::event::extension::{CLUSTER_NAME, ORIGINAL_SOURCE, RESYNC_ID, RESYNC_PART};
use crate::presence::{Presence, SourcePresence};
use crate::resync::{ResourceVersions, StatusHashes, split_versions};
use crate::sequence::Sequence;
use crate::{Action, Dialect, Event, EventType, Message, Stamp, SubResource, TopicError};

/// Most bytes of data in a request for specs that is one message, so that sources that know nothing of
/// parts get it whole as long as they can: brokers that are set up as sdk-go advises take 512,000.
const MOST_REQUEST_BYTES: usize = 480_000;

/// One that has the resources of a cluster.
pub struct Agent<C> {
    id: String,
    cluster: String,
    dialect: Dialect,
    codec: C,
    stamps: Stamps,
    presence: bool,
    sequence: Mutex<Sequence>,
    reserve: Option<Reserve>,
}

/// Keeps what sequence ids are used, for the next life.
type Reserve = Box<dyn Fn(&str) + Send + Sync>;

/// How much is kept ahead: so seldom has it to be written.
const RESERVED_MILLIS: i64 = 60_000;

impl<C> std::fmt::Debug for Agent<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agent")
            .field("id", &self.id)
            .field("cluster", &self.cluster)
            .field("dialect", &self.dialect)
            .finish_non_exhaustive()
    }
}

/// What a message means to an agent.
#[derive(Debug, PartialEq, Eq)]
pub enum ToAgent<T> {
    /// A resource, or the end of one.
    Spec(Box<T>),
    /// A source asks for statuses: see [`answer_statuses`](crate::resync::answer_statuses).
    Asked {
        /// The source. Resources of others are none of its business.
        source: String,
        /// What it knows.
        known: StatusHashes,
    },
    /// A source of muster's has come or gone.
    Presence(SourcePresence),
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
    ) -> Result<Self, TopicError> {
        let cluster = cluster.into();
        dialect.agent_filters(&cluster)?;
        Ok(Self {
            id: id.into(),
            cluster,
            dialect,
            codec,
            stamps: Stamp::now,
            presence: true,
            sequence: Mutex::new(Sequence::new()),
            reserve: None,
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

    /// Calls this with a sequence id up to which others are about to be used, once a minute at most:
    /// where it is given to [`begin_after`](Self::begin_after) in the next life, ids go on above those
    /// of this one, whatever the clock says.
    #[must_use]
    pub fn reserving(self, reserve: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self {
            reserve: Some(Box::new(reserve)),
            ..self
        }
    }

    /// Its cluster.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// How it puts resources into events.
    pub const fn codec(&self) -> &C {
        &self.codec
    }

    /// The only source that it can have, where its topics name one.
    pub fn only_source(&self) -> Option<&str> {
        self.dialect.only_source()
    }

    /// What it has to listen to.
    ///
    /// # Errors
    ///
    /// None after [`Agent::new`] has had none.
    pub fn filters(&self) -> Result<Vec<String>, TopicError> {
        let mut filters = self.dialect.agent_filters(&self.cluster)?;
        if self.presence {
            filters.extend(self.dialect.source_presence_filter());
        }
        Ok(filters)
    }

    /// A sequence id that has been used before; see [`Sequence::begin_after`].
    pub fn begin_after(&self, sequence_id: &str) {
        self.sequence().begin_after(sequence_id);
    }

    /// The next sequence id. It has to be taken before the status is read that it is for: then no
    /// older state ever goes out under a newer id.
    pub fn next_sequence_id(&self) -> String {
        let now = (self.stamps)().time.as_millisecond();
        let mut sequence = self.sequence();
        let id = sequence.next(now);
        if let Some(reserve) = &self.reserve
            && let Some(until) = sequence.reserve(RESERVED_MILLIS)
        {
            reserve(&until);
        }
        id
    }

    fn sequence(&self) -> std::sync::MutexGuard<'_, Sequence> {
        self.sequence.lock().unwrap_or_else(PoisonError::into_inner)
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
        &self,
        action: Action,
        sequence_id: &str,
        resource: &C::Resource,
    ) -> Result<Outgoing, SendError<C::Error>> {
        let stamp = (self.stamps)();
        let event = self
            .codec
            .encode_status(stamp, &self.id, action, sequence_id, resource);
        Ok(self.outgoing(&event.map_err(SendError::Codec)?)?)
    }

    /// Asks all sources for what is newer than what the agent has. To be sent after each time that
    /// a subscription begins.
    ///
    /// # Errors
    ///
    /// There is no topic for it.
    pub fn ask(&self, own: &ResourceVersions) -> Result<Vec<Outgoing>, TopicError> {
        let event_type = EventType::new(
            self.codec.data_type(),
            SubResource::Spec,
            Action::ResyncRequest,
        );
        let parts = split_versions(own, MOST_REQUEST_BYTES);
        let (of, id) = (parts.len(), (self.stamps)().id);
        parts
            .iter()
            .zip(1..)
            .map(|(part, at)| {
                // A list of texts and numbers always encodes.
                let data = serde_json::to_vec(part).unwrap_or_default();
                let mut event = Event::new((self.stamps)(), &*self.id, &event_type)
                    .with(CLUSTER_NAME, &*self.cluster)
                    .with(ORIGINAL_SOURCE, "")
                    .with_json(data);
                if of > 1 {
                    event = event
                        .with(RESYNC_ID, &*id)
                        .with(RESYNC_PART, format!("{at}/{of}"));
                }
                self.outgoing(&event)
            })
            .collect()
    }

    /// Tells sources that the agent is there, or is not; `None` where it has no topic for that.
    pub fn presence(&self, connected: bool) -> Option<Outgoing> {
        if !self.presence {
            return None;
        }
        let presence = Presence {
            cluster: self.cluster.clone(),
            connected,
        };
        let event = presence.event((self.stamps)(), &self.id);
        Some(Outgoing {
            topic: self.dialect.presence_topic(&self.cluster)?,
            message: (&event).into(),
        })
    }

    /// Reads a message that was published to this topic. Who may publish there is the broker's to
    /// say; that the event is of the source in the topic is looked at here.
    ///
    /// # Errors
    ///
    /// It is of no use.
    pub fn receive(
        &self,
        topic: &str,
        message: Message,
    ) -> Result<ToAgent<C::Resource>, Dropped<C::Error>> {
        let mut event = Event::try_from(message)?;
        if let (Some(named), _) = self.dialect.names(topic)
            && event.source != named
        {
            return Err(Dropped::Imposter {
                claimed: event.source,
                named: named.to_owned(),
            });
        }
        if let Some(presence) = SourcePresence::read(&event)? {
            return Ok(ToAgent::Presence(presence));
        }
        let event_type = typed(&self.codec, &event)?;
        // The design text names the cluster in the topic only.
        let meant = match &self.dialect {
            Dialect::SdkGo(_) => event.require(CLUSTER_NAME)?,
            Dialect::Enhancement => event.get(CLUSTER_NAME).unwrap_or_default(),
        };
        if !meant.is_empty() && meant != self.cluster {
            return Err(Dropped::Elsewhere(meant.to_owned()));
        }
        match (event_type.sub_resource, event_type.is_resync_request()) {
            (SubResource::Spec, false) => {
                // The topic was subscribed to.
                if self.dialect == Dialect::Enhancement {
                    let extensions = &mut event.extensions;
                    extensions.insert(CLUSTER_NAME.to_owned(), self.cluster.clone());
                }
                let resource = self.codec.decode_spec(&event).map_err(Dropped::Codec)?;
                Ok(ToAgent::Spec(Box::new(resource)))
            }
            (SubResource::Status, true) => Ok(ToAgent::Asked {
                known: request(&event)?,
                source: event.source,
            }),
            (half, _) => Err(Dropped::SubResource(half)),
        }
    }
}
