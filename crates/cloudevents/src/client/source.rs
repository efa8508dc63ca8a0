//! The client of a source.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use tracing::{debug, warn};

use super::metrics::Meter;
use super::outbox::{Outbox, What};
use super::running::{Core, Encoded, Side, Subscription};
use super::warned::Warned;
use super::{ClientError, ClientOptions, ConnectionState};
use crate::bus::{Bus, Delivery, Session};
use crate::presence::Presence;
use crate::protocol::{Codec, StatusMark, accepts_status};
use crate::resync::{Resource, ResourceVersion, SpecAnswer, StatusHashes, answer_specs};
use crate::sequence::is_newer;
use crate::{Action, Outgoing, Source, ToSource};

/// What a source knows of one of its resources without looking it up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// Its uid.
    pub uid: String,
    /// The cluster that it is for.
    pub cluster: String,
    /// The version of its spec.
    pub version: i64,
    /// Whether it is to go.
    pub deleting: bool,
    /// The sequence id of the last status that was taken.
    pub last_sequence_id: Option<String>,
}

impl Resource for Known {
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

/// What became of a status that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakenStatus {
    /// It is in the store, or is no news there.
    Kept,
    /// The agent has not what it should have.
    SendAgain,
}

/// What a source has. A resource that is to go has to stay in it until its agent has said that it
/// is gone, or has never been told of it.
pub trait SourceStore: Send + Sync + 'static {
    /// What it has.
    type Resource: Resource + Send + Sync + 'static;

    /// Whether it has all there is. Before, agents that have something else are not told to drop
    /// that.
    fn is_complete(&self) -> bool {
        true
    }
    /// All it has for a cluster.
    fn known(&self, cluster: &str) -> Vec<Known>;
    /// One of them.
    fn find(&self, uid: &str) -> Option<Known>;
    /// One of them as it is now; an error if that cannot be told now.
    fn get(
        &self,
        uid: &str,
    ) -> impl Future<Output = Result<Option<Arc<Self::Resource>>, String>> + Send;
    /// The clusters that it has something for.
    fn clusters(&self) -> BTreeSet<String>;
    /// The hashes of all statuses of a cluster.
    fn status_hashes(&self, cluster: &str) -> StatusHashes;
    /// A status that is news. An error if it cannot be kept: it is asked for again.
    fn take_status(
        &self,
        resource: Self::Resource,
        mark: StatusMark,
    ) -> impl Future<Output = Result<TakenStatus, String>> + Send;
    /// The broker has this.
    fn sent(&self, _resource: &Self::Resource) {}
    /// This can never be sent as it is.
    fn unsendable(&self, _uid: &str, _why: &str) {}
    /// An agent of muster's has come or gone.
    fn presence(&self, _presence: Presence) {}
}

/// The client of a source. See [`client`](super).
pub struct SourceClient<C, S>
where
    C: Codec,
    S: SourceStore<Resource = C::Resource>,
{
    core: Arc<Core<SourceSide<C, S>>>,
}

impl<C: Codec, S: SourceStore<Resource = C::Resource>> Clone for SourceClient<C, S> {
    fn clone(&self) -> Self {
        let core = Arc::clone(&self.core);
        Self { core }
    }
}

impl<C: Codec, S: SourceStore<Resource = C::Resource>> fmt::Debug for SourceClient<C, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceClient")
            .field("source", &self.core.side.source)
            .finish_non_exhaustive()
    }
}

impl<C: Codec, S: SourceStore<Resource = C::Resource>> SourceClient<C, S> {
    /// A client that is on no bus yet.
    pub fn new(source: Source<C>, store: Arc<S>, options: ClientOptions) -> Self {
        let meter = Meter::new("source", source.id());
        let source = if options.presence {
            source
        } else {
            source.without_presence()
        };
        let side = SourceSide {
            source,
            store,
            present: Mutex::default(),
            behind: Mutex::default(),
            warned: Warned::default(),
        };
        let core = Core::new(side, options, meter);
        Self { core }
    }

    /// Joins a bus: asks for statuses, takes them, answers agents, and sends what has changed. Has to
    /// be called on a runtime, and once.
    pub fn subscribe(&self, bus: &dyn Bus) -> Subscription {
        self.core.subscribe(bus)
    }

    /// Whether it hears what is for it.
    pub fn state(&self) -> watch::Receiver<ConnectionState> {
        self.core.state()
    }

    /// A resource is new in the store.
    pub fn created(&self, uid: &str) {
        self.say(uid, What::Change(Action::CreateRequest));
    }

    /// A resource in the store has changed, or is to go. It is sent as it is when its turn comes, as
    /// often as it takes.
    pub fn changed(&self, uid: &str) {
        self.say(uid, What::Change(Action::UpdateRequest));
    }

    /// An agent may not have a resource as it is in the store. It is sent when there is nothing more
    /// urgent.
    pub fn refresh(&self, uid: &str) {
        self.say(uid, What::Change(Action::ResyncResponse));
    }

    /// A resource that is not in the store any more is to go from its cluster.
    pub fn forget(&self, cluster: &str, resource: &ResourceVersion) {
        let cluster = cluster.to_owned();
        let version = resource.version;
        self.say(&resource.id, What::Forget { cluster, version });
    }

    fn say(&self, uid: &str, what: What) {
        self.core.outbox.add(uid, what);
    }

    /// How many resources are not at the broker yet.
    pub fn waiting(&self) -> usize {
        self.core.outbox.len()
    }

    /// Sends a resource, whatever the store has; done when the broker has it.
    ///
    /// # Errors
    ///
    /// It cannot be sent, or the broker does not have it.
    pub async fn publish(
        &self,
        action: Action,
        resource: &C::Resource,
    ) -> Result<(), ClientError<C::Error>> {
        let outgoing = self.core.side.source.send(action, resource)?;
        Ok(self.core.publish(outgoing).await?)
    }

    /// Asks a cluster for statuses that differ from those in the store. This is done by itself after
    /// each subscription, and now and then.
    ///
    /// # Errors
    ///
    /// The broker does not have the request.
    pub async fn resync(&self, cluster: &str) -> Result<(), ClientError<C::Error>> {
        let side = &self.core.side;
        let known = side.store.status_hashes(cluster);
        for request in side.source.ask(cluster, known)? {
            self.core.publish(request).await?;
        }
        Ok(())
    }
}

/// What a source does with what comes, and says.
pub(super) struct SourceSide<C, S> {
    source: Source<C>,
    store: Arc<S>,
    /// Clusters whose agents have said on this connection that they are there.
    present: Mutex<BTreeSet<String>>,
    /// The sequence id of the last status of a resource that looked older than one before.
    behind: Mutex<HashMap<String, String>>,
    warned: Warned,
}

impl<C: Codec, S: SourceStore<Resource = C::Resource>> SourceSide<C, S> {
    fn present(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn behind(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.behind.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A status looks older than the last: it was overtaken, or its agent counts from another start,
    /// since its clock was set back or another program has taken its place. The agent is asked what
    /// it has: whether its answer is newer than this one tells, and then it counts.
    fn heals(
        &self,
        uid: &str,
        incoming: &str,
        is_answer: bool,
        outbox: &Outbox,
        cluster: &str,
    ) -> bool {
        let mut behind = self.behind();
        match behind.get(uid) {
            Some(before) => match is_newer(before, incoming) {
                Ok(true) if is_answer => {
                    behind.remove(uid);
                    return true;
                }
                Ok(false) => return false,
                Ok(true) | Err(_) => {}
            },
            // Once: what comes now is answered by the next resync at the latest.
            None => outbox.ask(cluster),
        }
        behind.insert(uid.to_owned(), incoming.to_owned());
        false
    }

    /// Takes a status; gives the word for what became of it.
    async fn take_status(
        &self,
        resource: C::Resource,
        mark: StatusMark,
        outbox: &Outbox,
    ) -> Result<&'static str, String> {
        let uid = resource.uid().to_owned();
        let codec = self.source.codec();
        let cluster = codec.cluster_of(&resource).to_owned();
        let gone = codec.says_gone(&resource);
        let Some(known) = self.store.find(&uid) else {
            self.behind().remove(&uid);
            // The agent has what nobody owns; or has heard that the source does not, and says so.
            if !gone && self.store.is_complete() && !cluster.is_empty() {
                let version = resource.version();
                outbox.add(&uid, What::Forget { cluster, version });
            }
            return Ok("unknown");
        };
        if known.cluster != cluster {
            let error = format!("the resource {uid} is one of {}", known.cluster);
            self.warned.note("imposter", &cluster, &error);
            return Ok("imposter");
        }
        let last = known.last_sequence_id.as_deref().unwrap_or_default();
        let incoming = mark.sequence_id.as_deref();
        let version = resource.version();
        let is_of_ours = known.version == 0 || version <= known.version;
        let accepted = match incoming {
            Some(id) => accepts_status(known.version, version, last, id, gone),
            // The design text has no sequence ids.
            None => Ok(gone || is_of_ours),
        };
        if accepted == Ok(true) {
            self.behind().remove(&uid);
        } else {
            let heals = is_of_ours
                && incoming.is_some_and(|id| {
                    id != last && self.heals(&uid, id, mark.is_answer, outbox, &cluster)
                });
            match accepted {
                _ if heals => {
                    debug!(
                        uid,
                        cluster, last, incoming, "the agent counts its statuses anew"
                    );
                }
                Err(error) => {
                    self.warned.note("incomparable", &cluster, &error);
                    return Ok("incomparable");
                }
                Ok(_) => return Ok("stale"),
            }
        }
        if self.store.take_status(resource, mark).await? == TakenStatus::SendAgain {
            outbox.add(&uid, What::Change(Action::ResyncResponse));
        }
        Ok("taken")
    }

    /// Says how a resource is.
    async fn encode_change(&self, uid: &str, action: &Action) -> Encoded<C::Resource> {
        let resource = match self.store.get(uid).await {
            Ok(Some(resource)) => resource,
            Ok(None) => return Encoded::Nothing,
            Err(error) => return Encoded::NotNow(error),
        };
        let action = match action {
            Action::CreateRequest | Action::UpdateRequest if resource.is_deleting() => {
                Action::DeleteRequest
            }
            other => other.clone(),
        };
        let event = match action {
            Action::CreateRequest => "spec.create_request",
            Action::DeleteRequest => "spec.delete_request",
            Action::ResyncResponse => "spec.resync_response",
            _ => "spec.update_request",
        };
        match self.source.send(action, &resource) {
            Ok(outgoing) => Encoded::Message(outgoing, event, Some(resource)),
            Err(error) => Encoded::Never(error.to_string()),
        }
    }
}

impl<C: Codec, S: SourceStore<Resource = C::Resource>> Side for SourceSide<C, S> {
    type Resource = C::Resource;

    fn session(&self) -> Session {
        Session {
            // `Source::new` has seen that there are some.
            filters: self.source.filters().unwrap_or_default(),
            will: self.source.presence(false),
        }
    }

    fn greeting(&self) -> Option<Outgoing> {
        self.source.presence(true)
    }

    async fn requests(&self, of: Option<&BTreeSet<String>>) -> Result<Vec<Outgoing>, String> {
        let clusters = of.map_or_else(|| self.store.clusters(), Clone::clone);
        if clusters.is_empty() {
            // A source that has lost all it had hears of it; without a topic for it, there is nobody
            // to ask.
            let to_all = self.source.ask("", StatusHashes::default());
            return Ok(to_all.unwrap_or_default());
        }
        // Each cluster by itself: if all were asked at once, each would hear what all have. One
        // without works is asked for anything it may have.
        let mut requests = Vec::new();
        for cluster in clusters {
            match self
                .source
                .ask(&cluster, self.store.status_hashes(&cluster))
            {
                Ok(more) => requests.extend(more),
                Err(error) => warn!(cluster, %error, "a cluster that cannot be asked"),
            }
        }
        Ok(requests)
    }

    async fn take(&self, delivery: &mut Delivery, outbox: &Outbox) -> Result<&'static str, String> {
        let message = delivery.take();
        match self.source.receive(&delivery.topic, message) {
            Ok(ToSource::Status { resource, mark }) => {
                self.take_status(*resource, mark, outbox).await
            }
            Ok(ToSource::Asked { cluster, reported }) => {
                let own = self.store.known(&cluster);
                let complete = self.store.is_complete();
                for answer in answer_specs(&own, &reported, complete) {
                    match answer {
                        SpecAnswer::Send(known) => {
                            outbox.add(&known.uid, What::Change(Action::ResyncResponse));
                        }
                        SpecAnswer::Forget(orphan) => {
                            let (cluster, version) = (cluster.clone(), orphan.version);
                            outbox.add(&orphan.id, What::Forget { cluster, version });
                        }
                    }
                }
                Ok("asked")
            }
            Ok(ToSource::Part) => Ok("part"),
            Ok(ToSource::Presence(presence)) => {
                // What it has said while this side was away is gone. It says again that it is there
                // when it is asked, which is no reason to ask again.
                let mut present = self.present();
                if !presence.connected {
                    present.remove(&presence.cluster);
                    // The will of a connection that died may come after the word of the next one: an
                    // agent that is there says so when it is asked.
                    outbox.ask(&presence.cluster);
                } else if present.insert(presence.cluster.clone()) {
                    outbox.ask(&presence.cluster);
                }
                drop(present);
                self.store.presence(presence);
                Ok("presence")
            }
            Err(dropped) => {
                let reason = dropped.reason();
                self.warned.note(reason, &delivery.topic, &dropped);
                Ok(reason)
            }
        }
    }

    async fn encode(&self, uid: &str, what: &What) -> Encoded<C::Resource> {
        match what {
            What::Forget { cluster, version } => {
                // What has come meanwhile is not to go.
                if self.store.find(uid).is_some() {
                    return Encoded::Nothing;
                }
                let (id, version) = (uid.to_owned(), *version);
                match self
                    .source
                    .forget(cluster, &ResourceVersion { id, version })
                {
                    Ok(outgoing) => Encoded::Message(outgoing, "spec.delete_request", None),
                    Err(error) => Encoded::Never(error.to_string()),
                }
            }
            What::Change(action) => self.encode_change(uid, action).await,
        }
    }

    fn arrived(&self, resource: &C::Resource) {
        self.store.sent(resource);
    }

    fn unsendable(&self, uid: &str, why: &str) {
        self.store.unsendable(uid, why);
    }

    /// Who was there on another connection may not be on this one.
    fn connected(&self, _: bool) {
        self.present().clear();
    }
}
