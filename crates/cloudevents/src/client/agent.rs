//! The client of an agent.

use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::watch;
use tracing::debug;

use super::metrics::Meter;
use super::outbox::{Outbox, What};
use super::running::{Core, Encoded, Side, Subscription};
use super::warned::Warned;
use super::{ClientError, ClientOptions, ConnectionState};
use crate::bus::{Bus, Delivery, Session};
use crate::presence::SourcePresence;
use crate::protocol::{Codec, accepts_spec};
use crate::resync::{Resource, ResourceVersion, ResourceVersions, answer_statuses};
use crate::{Action, Agent, Outgoing, ToAgent};

/// What an agent knows of one of its resources without looking it up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Its uid.
    pub uid: String,
    /// The source that it came from.
    pub source: String,
    /// The version of its spec.
    pub version: i64,
    /// Whether it is to go.
    pub deleting: bool,
}

impl Resource for Held {
    fn uid(&self) -> &str {
        &self.uid
    }

    fn version(&self) -> i64 {
        self.version
    }

    fn is_deleting(&self) -> bool {
        self.deleting
    }
}

/// What became of a resource that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// It is in the store.
    Kept,
    /// Its status is known already, and is to be told now.
    Tell,
}

/// What an agent has.
pub trait AgentStore: Send + Sync + 'static {
    /// What it has.
    type Resource: Resource + Send + Sync + 'static;

    /// All of it. What is gone and has only not been told yet is part of it.
    fn held(&self) -> Vec<Held>;
    /// One of them.
    fn find(&self, uid: &str) -> Option<Held>;
    /// One of them with its status as it is now; an error if that cannot be told now.
    fn get(
        &self,
        uid: &str,
    ) -> impl Future<Output = Result<Option<Arc<Self::Resource>>, String>> + Send;
    /// The hash of the status that one of them has now.
    fn status_hash(&self, uid: &str) -> String;
    /// A resource that is news, or that is to go, maybe again. One that is to go and is not held has
    /// to be told as gone: its source waits for that. An error if it cannot be kept: it is asked for
    /// again.
    fn take(&self, resource: Self::Resource) -> impl Future<Output = Result<Taken, String>> + Send;
    /// The broker has the status of this.
    fn sent(&self, _resource: &Self::Resource) {}
}

/// The client of an agent. See [`client`](super).
pub struct AgentClient<C, S>
where
    C: Codec,
    S: AgentStore<Resource = C::Resource>,
{
    core: Arc<Core<AgentSide<C, S>>>,
}

impl<C: Codec, S: AgentStore<Resource = C::Resource>> Clone for AgentClient<C, S> {
    fn clone(&self) -> Self {
        let core = Arc::clone(&self.core);
        Self { core }
    }
}

impl<C: Codec, S: AgentStore<Resource = C::Resource>> fmt::Debug for AgentClient<C, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentClient")
            .field("agent", &self.core.side.agent)
            .finish_non_exhaustive()
    }
}

impl<C: Codec, S: AgentStore<Resource = C::Resource>> AgentClient<C, S> {
    /// A client that is on no bus yet.
    pub fn new(agent: Agent<C>, store: Arc<S>, options: ClientOptions) -> Self {
        let meter = Meter::new("agent", agent.cluster());
        let agent = if options.presence {
            agent
        } else {
            agent.without_presence()
        };
        let side = AgentSide {
            agent,
            store,
            heard: watch::Sender::new(None),
            warned: Warned::default(),
        };
        let core = Core::new(side, options, meter);
        Self { core }
    }

    /// Joins a bus: says that it is there, asks for resources, takes them, answers sources, and sends
    /// statuses that have changed. Has to be called on a runtime, and once.
    pub fn subscribe(&self, bus: &dyn Bus) -> Subscription {
        self.core.subscribe(bus)
    }

    /// Whether it hears what is for it.
    pub fn state(&self) -> watch::Receiver<ConnectionState> {
        self.core.state()
    }

    /// Since when a source has been heard on the connection of now: before, that nothing comes does
    /// not mean that there is nothing. Sources of muster's say when they are gone.
    pub fn heard(&self) -> watch::Receiver<Option<Timestamp>> {
        self.core.side.heard.subscribe()
    }

    /// The status of a resource in the store has changed. It is sent as it is when its turn comes, as
    /// often as it takes.
    pub fn changed(&self, uid: &str) {
        let what = What::Change(Action::UpdateRequest);
        self.core.outbox.add(uid, what);
    }

    /// How many statuses are not at the broker yet.
    pub fn waiting(&self) -> usize {
        self.core.outbox.len()
    }

    /// Sends the status of a resource, whatever the store has; done when the broker has it.
    ///
    /// # Errors
    ///
    /// It cannot be sent, or the broker does not have it.
    pub async fn publish(&self, resource: &C::Resource) -> Result<(), ClientError<C::Error>> {
        let agent = &self.core.side.agent;
        let sequence_id = agent.next_sequence_id();
        let outgoing = agent.send(Action::UpdateRequest, &sequence_id, resource)?;
        Ok(self.core.publish(outgoing).await?)
    }

    /// Asks sources for what is newer than what the store has. This is done by itself after each
    /// subscription, and now and then.
    ///
    /// # Errors
    ///
    /// The broker does not have the request.
    pub async fn resync(&self) -> Result<(), ClientError<C::Error>> {
        for request in self.core.side.request()? {
            self.core.publish(request).await?;
        }
        Ok(())
    }
}

/// What an agent does with what comes, and says.
pub(super) struct AgentSide<C, S> {
    agent: Agent<C>,
    store: Arc<S>,
    heard: watch::Sender<Option<Timestamp>>,
    warned: Warned,
}

impl<C: Codec, S: AgentStore<Resource = C::Resource>> AgentSide<C, S> {
    fn request(&self) -> Result<Vec<Outgoing>, crate::TopicError> {
        let mut held = self.store.held();
        // Where all sources but one are out of reach, what came from another is none of its business:
        // it would have that deleted.
        if let Some(source) = self.agent.only_source() {
            held.retain(|held| held.source == source);
        }
        let versions = held.into_iter().map(|held| ResourceVersion {
            id: held.uid,
            version: held.version,
        });
        let versions = versions.collect();
        self.agent.ask(&ResourceVersions { versions })
    }

    /// A source is there, or is not.
    fn hear(&self, is: bool) {
        self.heard.send_if_modified(|heard| {
            let changed = heard.is_some() != is;
            if changed {
                *heard = is.then(Timestamp::now);
            }
            changed
        });
    }

    /// Takes a resource; gives the word for what became of it.
    async fn take_spec(
        &self,
        resource: C::Resource,
        outbox: &Outbox,
    ) -> Result<&'static str, String> {
        let codec = self.agent.codec();
        let uid = resource.uid();
        let Some(source) = codec.source_of(&resource) else {
            return Ok("payload");
        };
        if let Some(held) = self.store.find(uid) {
            if held.source != source {
                let of = held.source;
                if resource.is_deleting() {
                    // Each source answers for what it does not have; the others' is not its own.
                    debug!(uid, source, of, "a deletion of another source's resource");
                } else {
                    let error = format!("the resource {uid} is one of {of}");
                    self.warned.note("imposter", source, &error);
                }
                return Ok("imposter");
            }
            // It cannot come back: its objects are going.
            if held.deleting && !resource.is_deleting() {
                return Ok("deleting");
            }
            if !accepts_spec(
                Some(held.version),
                resource.version(),
                resource.is_deleting(),
            ) {
                return Ok("stale");
            }
        }
        if let Some(last) = codec.last_sequence_id(&resource) {
            self.agent.begin_after(last);
        }
        let uid = uid.to_owned();
        if self.store.take(resource).await? == Taken::Tell {
            outbox.add(&uid, What::Change(Action::UpdateRequest));
        }
        Ok("taken")
    }
}

impl<C: Codec, S: AgentStore<Resource = C::Resource>> Side for AgentSide<C, S> {
    type Resource = C::Resource;

    fn session(&self) -> Session {
        Session {
            // `Agent::new` has seen that there are some.
            filters: self.agent.filters().unwrap_or_default(),
            will: self.agent.presence(false),
        }
    }

    fn greeting(&self) -> Option<Outgoing> {
        self.agent.presence(true)
    }

    async fn requests(&self, _of: Option<&BTreeSet<String>>) -> Result<Vec<Outgoing>, String> {
        self.request().map_err(|error| error.to_string())
    }

    async fn take(&self, delivery: &mut Delivery, outbox: &Outbox) -> Result<&'static str, String> {
        let message = delivery.take();
        let received = self.agent.receive(&delivery.topic, message);
        if let Ok(received) = &received {
            let gone = matches!(
                received,
                ToAgent::Presence(SourcePresence { connected: false })
            );
            self.hear(!gone);
        }
        match received {
            Ok(ToAgent::Presence(_)) => Ok("presence"),
            Ok(ToAgent::Spec(resource)) => self.take_spec(*resource, outbox).await,
            Ok(ToAgent::Asked { source, known }) => {
                let mut own = self.store.held();
                own.retain(|held| held.source == source);
                let hash = |held: &Held| self.store.status_hash(&held.uid);
                for held in answer_statuses(&own, &known, hash) {
                    outbox.add(&held.uid, What::Change(Action::ResyncResponse));
                }
                // It may have come only now, and not heard what it was asked before.
                outbox.ask(&source);
                Ok("asked")
            }
            Err(dropped) => {
                let (reason, topic) = (dropped.reason(), &delivery.topic);
                let cluster = self.agent.cluster();
                // A request to all agents that is for one is not worth a word to the others.
                if reason == "elsewhere" && !topic.split('/').any(|level| level == cluster) {
                    debug!(topic, error = %dropped, "an event was dropped");
                } else {
                    self.warned.note(reason, topic, &dropped);
                }
                Ok(reason)
            }
        }
    }

    async fn encode(&self, uid: &str, what: &What) -> Encoded<C::Resource> {
        let What::Change(action) = what else {
            return Encoded::Nothing;
        };
        // Before the status is read: what is read later goes out under a later id.
        let sequence_id = self.agent.next_sequence_id();
        let resource = match self.store.get(uid).await {
            Ok(Some(resource)) => resource,
            Ok(None) => return Encoded::Nothing,
            Err(error) => return Encoded::NotNow(error),
        };
        let event = match action {
            Action::ResyncResponse => "status.resync_response",
            _ => "status.update_request",
        };
        match self.agent.send(action.clone(), &sequence_id, &resource) {
            Ok(outgoing) => Encoded::Message(outgoing, event, Some(resource)),
            Err(error) => Encoded::Never(error.to_string()),
        }
    }

    fn arrived(&self, resource: &C::Resource) {
        self.store.sent(resource);
    }

    fn unsendable(&self, _: &str, _: &str) {}

    /// Who was there on another connection may not be on this one.
    fn connected(&self, _: bool) {
        self.hear(false);
    }
}
