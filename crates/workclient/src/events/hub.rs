//! The works of a hub, as their source has them.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{Api, Client};
use muster_api::work::{ManifestWork, ManifestWorkSpec, ManifestWorkStatus, RawManifestWork};
use muster_cloudevents::client::{Known, SourceStore, TakenStatus};
use muster_cloudevents::presence::Presence;
use muster_cloudevents::protocol::{Codec, StatusMark};
use muster_cloudevents::resync::{Resource, StatusHash, StatusHashes};
use muster_cloudevents::work::{SEQUENCE_ANNOTATION, WorkCodec, status_hash};
use serde_json::value::RawValue;
use tokio::sync::watch;
use tracing::warn;

use super::local::digest;
use super::status_writes::{NOT_SENDABLE, Outcome, StatusWrites};
use super::{finalizer, status_writes};

/// Whether the agent of a cluster is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentPresence {
    /// Whether it is.
    pub connected: bool,
    /// Since when that is known here.
    pub since: Timestamp,
}

/// What a state of a work means to its agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// Nothing.
    Nothing,
    /// It is new since the hub's works were listed first.
    Created,
    /// It was there before; its agent may not have this state.
    Listed,
    /// It has changed, or is gone without its agent having said so.
    Changed,
}

/// See the module. [`HubEvents`](super::HubEvents) tells it what the hub has.
pub struct HubWorks {
    client: Client,
    codec: WorkCodec,
    /// Clusters that are reached another way.
    others: BTreeSet<String>,
    state: Mutex<State>,
    presence: watch::Sender<BTreeMap<String, AgentPresence>>,
    pub(super) writes: StatusWrites,
}

impl fmt::Debug for HubWorks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("HubWorks")
            .field("works", &state.works.len())
            .field("complete", &state.complete)
            .finish_non_exhaustive()
    }
}

#[derive(Default)]
struct State {
    works: HashMap<String, Entry>,
    clusters: HashMap<Arc<str>, HashSet<String>>,
    complete: bool,
    /// While the works are listed: those that have been named.
    listing: Option<HashSet<String>>,
}

/// What is known of a work without looking at it.
struct Entry {
    cluster: Arc<str>,
    name: String,
    version: i64,
    deleting: bool,
    has_status: bool,
    /// What agents are told of, beside the version.
    asked: u64,
    /// Digest of the status in the hub's API.
    stored: u64,
    /// Hash of the status, as the agent will compare it.
    hash: String,
    last_sequence_id: Option<String>,
    end: End,
    /// It is not in the hub's API any more, and its agent has not said that it is gone. Until then, or
    /// until the hub starts anew, it counts as being deleted.
    lost: Option<Timestamp>,
    /// A version that cannot be sent, and why, until that is in the hub's API.
    unsendable: Option<(i64, Arc<str>)>,
    /// A status that is not in the hub's API yet.
    pending: Option<Arc<ManifestWorkStatus>>,
}

/// Whether the agent of a work is done with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    NotYet,
    /// It has said so.
    Told,
    /// And the hub's API knows.
    Written,
}

/// What is to be written for a work.
pub(super) struct Pending {
    pub(super) cluster: Arc<str>,
    pub(super) name: String,
    pub(super) what: What,
}

#[derive(Clone)]
pub(super) enum What {
    /// Its status.
    Status(Arc<ManifestWorkStatus>),
    /// Why it cannot be sent in this version.
    Unsendable(i64, Arc<str>),
    /// That its agent is done with it.
    Ended,
}

impl State {
    fn remove(&mut self, uid: &str) -> Option<Entry> {
        let entry = self.works.remove(uid)?;
        if let Some(uids) = self.clusters.get_mut(&entry.cluster) {
            uids.remove(uid);
            if uids.is_empty() {
                self.clusters.remove(&entry.cluster);
            }
        }
        Some(entry)
    }

    fn cluster(&mut self, name: &str) -> Arc<str> {
        match self.clusters.get_key_value(name) {
            Some((known, _)) => Arc::clone(known),
            None => Arc::from(name),
        }
    }
}

impl HubWorks {
    /// The works of the hub that this client reaches, without those of `others`: clusters whose
    /// agents get theirs another way. Has to be called on a runtime, which writes statuses.
    pub(super) fn new(client: Client, codec: WorkCodec, others: BTreeSet<String>) -> Arc<Self> {
        let (writes, queue) = StatusWrites::new();
        let works = Arc::new(Self {
            client,
            codec,
            others,
            state: Mutex::default(),
            presence: watch::Sender::default(),
            writes,
        });
        status_writes::start(&works, queue);
        works
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn api(&self, cluster: &str) -> Api<RawManifestWork> {
        Api::namespaced(self.client.clone(), cluster)
    }

    /// Which agents are connected, as far as they say.
    pub(super) fn agents(&self) -> watch::Receiver<BTreeMap<String, AgentPresence>> {
        self.presence.subscribe()
    }

    /// Works that there are.
    pub(super) fn len(&self) -> usize {
        self.state().works.len()
    }

    /// The works are about to be listed.
    pub(super) fn listing(&self) {
        self.state().listing = Some(HashSet::new());
    }

    /// All works have been listed. Gives those that went without their agents having said so.
    pub(super) fn listed(&self) -> Vec<String> {
        let mut state = self.state();
        state.complete = true;
        let Some(named) = state.listing.take() else {
            return Vec::new();
        };
        let works = state.works.iter();
        let mut gone: Vec<_> = works
            .filter(|(uid, entry)| entry.lost.is_none() && !named.contains(*uid))
            .map(|(uid, _)| uid.clone())
            .collect();
        drop(state);
        gone.retain(|uid| self.gone(uid) == Change::Changed);
        gone
    }

    /// A work is as this; as part of a list or by itself.
    pub(super) fn seen(&self, work: &RawManifestWork) -> Change {
        let meta = &work.metadata;
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        let uid = meta.uid.as_deref().unwrap_or_default();
        if uid.is_empty() || self.others.contains(namespace) {
            return Change::Nothing;
        }
        let asked = asked_of(work);
        let stored = work.status.as_deref().map_or(0, |raw| digest(raw.get()));
        let version = meta.generation.unwrap_or_default();
        let deleting = meta.deletion_timestamp.is_some();
        let mut state = self.state();
        let listing = state.listing.is_some();
        if let Some(named) = &mut state.listing {
            named.insert(uid.to_owned());
        }
        if let Some(entry) = state.works.get_mut(uid) {
            if entry.stored != stored {
                let status = decoded_status(work.status.as_deref());
                entry.stored = stored;
                entry.has_status = is_reported(&status);
                if entry.pending.is_none() {
                    entry.hash = status_hash(&status);
                }
            }
            let same = (entry.version, entry.deleting, entry.asked) == (version, deleting, asked);
            entry.version = version;
            entry.deleting = deleting;
            entry.asked = asked;
            entry.lost = None;
            return if same {
                Change::Nothing
            } else {
                Change::Changed
            };
        }
        let cluster = state.cluster(namespace);
        let status = decoded_status(work.status.as_deref());
        let entry = Entry {
            cluster: Arc::clone(&cluster),
            name: meta.name.clone().unwrap_or_default(),
            version,
            deleting,
            has_status: is_reported(&status),
            asked,
            stored,
            hash: status_hash(&status),
            last_sequence_id: None,
            end: End::NotYet,
            lost: None,
            unsendable: None,
            pending: None,
        };
        state.works.insert(uid.to_owned(), entry);
        let uids = state.clusters.entry(cluster).or_default();
        uids.insert(uid.to_owned());
        if listing {
            Change::Listed
        } else {
            Change::Created
        }
    }

    /// A work is gone.
    pub(super) fn gone(&self, uid: &str) -> Change {
        let mut state = self.state();
        match state.works.get_mut(uid) {
            Some(entry) if entry.end == End::NotYet => {
                entry.lost = Some(Timestamp::now());
                entry.deleting = true;
                entry.pending = None;
                Change::Changed
            }
            _ => {
                state.remove(uid);
                Change::Nothing
            }
        }
    }

    /// What is to be written for a work; none if that has been done.
    pub(super) fn pending(&self, uid: &str) -> Option<Pending> {
        let state = self.state();
        let entry = state.works.get(uid)?;
        let what = match entry.end {
            End::NotYet => match (&entry.pending, &entry.unsendable) {
                (Some(status), _) => What::Status(Arc::clone(status)),
                (None, Some((version, why))) => What::Unsendable(*version, Arc::clone(why)),
                (None, None) => return None,
            },
            End::Told => What::Ended,
            End::Written => return None,
        };
        Some(Pending {
            cluster: Arc::clone(&entry.cluster),
            name: entry.name.clone(),
            what,
        })
    }

    /// What was to be written has been, or never will be.
    pub(super) fn written(&self, uid: &str, what: &What, outcome: &Outcome) {
        let mut state = self.state();
        let Some(entry) = state.works.get_mut(uid) else {
            return;
        };
        match what {
            What::Ended => entry.end = End::Written,
            What::Unsendable(..) => entry.unsendable = None,
            What::Status(status) => {
                if let Outcome::Written(stored) = outcome {
                    // The agent compares with what it has sent, whatever the API has made of it.
                    entry.stored = *stored;
                    entry.has_status = is_reported(status);
                }
                let newest = entry.pending.as_ref();
                if newest.is_some_and(|newest| Arc::ptr_eq(newest, status)) {
                    entry.pending = None;
                }
            }
        }
    }

    async fn current(&self, uid: &str) -> Result<Option<RawManifestWork>, kube::Error> {
        let place = {
            let state = self.state();
            let entry = state.works.get(uid);
            entry.map(|entry| (Arc::clone(&entry.cluster), entry.name.clone()))
        };
        let Some((cluster, name)) = place else {
            return Ok(None);
        };
        // It has to be there before an agent hears of the work: else the work could go from here
        // and stay there.
        finalizer::set(&self.api(&cluster), &name, uid, true).await
    }

    /// The deletion of a work that is not in the hub's API any more.
    fn lost(&self, uid: &str) -> Option<ManifestWork> {
        let state = self.state();
        let entry = state.works.get(uid)?;
        let since = entry.lost?;
        let mut work = ManifestWork::new(&entry.name, ManifestWorkSpec::default());
        work.metadata.namespace = Some(entry.cluster.to_string());
        work.metadata.uid = Some(uid.to_owned());
        work.metadata.generation = Some(entry.version);
        work.metadata.deletion_timestamp = Some(Time(since));
        Some(work)
    }

    /// Ends a work whose agent has never said anything of it.
    fn end_unheard(&self, uid: &str, cluster: &str) {
        let is_away = {
            let presence = self.presence.borrow();
            let agent = presence.get(cluster);
            agent.is_none_or(|agent| !agent.connected)
        };
        let mut state = self.state();
        if let Some(entry) = state.works.get_mut(uid)
            && !entry.has_status
            && entry.pending.is_none()
            && entry.end == End::NotYet
            && is_away
        {
            if entry.lost.is_some() {
                state.remove(uid);
                return;
            }
            entry.end = End::Told;
            drop(state);
            self.writes.add(uid);
        }
    }
}

impl SourceStore for HubWorks {
    type Resource = ManifestWork;

    fn is_complete(&self) -> bool {
        self.state().complete
    }

    fn known(&self, cluster: &str) -> Vec<Known> {
        let state = self.state();
        let uids = state.clusters.get(cluster).into_iter().flatten();
        let known = uids.filter_map(|uid| Some(state.works.get(uid)?.known(uid)));
        known.collect()
    }

    fn find(&self, uid: &str) -> Option<Known> {
        let state = self.state();
        state.works.get(uid).map(|entry| entry.known(uid))
    }

    async fn get(&self, uid: &str) -> Result<Option<Arc<ManifestWork>>, String> {
        if let Some(lost) = self.lost(uid) {
            return Ok(Some(Arc::new(lost)));
        }
        let work = match self.current(uid).await {
            Ok(Some(work)) => work,
            Ok(None) => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        let mut work = match decoded(&work) {
            Ok(work) => work,
            Err(error) => {
                self.unsendable(uid, &error.to_string());
                return Ok(None);
            }
        };
        let last = self.find(uid).and_then(|known| known.last_sequence_id);
        if let Some(last) = last {
            let annotations = work.metadata.annotations.get_or_insert_default();
            annotations.insert(SEQUENCE_ANNOTATION.to_owned(), last);
        }
        Ok(Some(Arc::new(work)))
    }

    fn clusters(&self) -> BTreeSet<String> {
        let state = self.state();
        state.clusters.keys().map(ToString::to_string).collect()
    }

    fn status_hashes(&self, cluster: &str) -> StatusHashes {
        let state = self.state();
        let uids = state.clusters.get(cluster).into_iter().flatten();
        let hashes = uids.filter_map(|uid| {
            Some(StatusHash {
                id: uid.clone(),
                hash: state.works.get(uid)?.hash.clone(),
            })
        });
        StatusHashes {
            hashes: hashes.collect(),
        }
    }

    async fn take_status(
        &self,
        work: ManifestWork,
        mark: StatusMark,
    ) -> Result<TakenStatus, String> {
        let gone = self.codec.says_gone(&work);
        let uid = work.uid().to_owned();
        let status = work.status.unwrap_or_default();
        let mut state = self.state();
        let Some(entry) = state.works.get_mut(&uid) else {
            return Ok(TakenStatus::Kept);
        };
        if gone {
            if !entry.deleting {
                warn!(uid, cluster = %entry.cluster, "an agent has removed what is wanted");
                return Ok(TakenStatus::SendAgain);
            }
            if entry.lost.is_some() {
                state.remove(&uid);
                return Ok(TakenStatus::Kept);
            }
            if entry.end == End::NotYet {
                entry.end = End::Told;
            }
        } else if entry.lost.is_none() {
            let hash = mark.hash.unwrap_or_else(|| status_hash(&status));
            entry.last_sequence_id = mark.sequence_id;
            if hash == entry.hash {
                return Ok(TakenStatus::Kept);
            }
            entry.hash = hash;
            entry.pending = Some(Arc::new(status));
        }
        drop(state);
        self.writes.add(&uid);
        Ok(TakenStatus::Kept)
    }

    fn sent(&self, work: &ManifestWork) {
        if let Some(entry) = self.state().works.get_mut(work.uid()) {
            entry.unsendable = None;
        }
        if work.is_deleting() {
            let cluster = work.metadata.namespace.as_deref().unwrap_or_default();
            self.end_unheard(work.uid(), cluster);
        }
    }

    fn unsendable(&self, uid: &str, why: &str) {
        if let Some(entry) = self.state().works.get_mut(uid) {
            warn!(cluster = %entry.cluster, name = entry.name, why, "a work that cannot be sent");
            entry.unsendable = Some((entry.version, Arc::from(why)));
        }
        self.writes.add(uid);
    }

    fn presence(&self, Presence { cluster, connected }: Presence) {
        self.presence.send_if_modified(|agents| {
            let since = Timestamp::now();
            let now = AgentPresence { connected, since };
            match agents.get_mut(&cluster) {
                Some(before) if before.connected == connected => false,
                Some(before) => {
                    *before = now;
                    true
                }
                None => {
                    agents.insert(cluster, now);
                    true
                }
            }
        });
    }
}

impl Entry {
    fn known(&self, uid: &str) -> Known {
        Known {
            uid: uid.to_owned(),
            cluster: self.cluster.to_string(),
            version: self.version,
            deleting: self.deleting,
            last_sequence_id: self.last_sequence_id.clone(),
        }
    }
}

/// What of a work its agent hears of although the version stays (C107).
fn asked_of(work: &RawManifestWork) -> u64 {
    let mut hasher = DefaultHasher::new();
    work.metadata.labels.hash(&mut hasher);
    work.metadata.annotations.hash(&mut hasher);
    hasher.finish()
}

fn decoded_status(status: Option<&RawValue>) -> ManifestWorkStatus {
    let status = status.and_then(|status| serde_json::from_str::<Option<_>>(status.get()).ok());
    status.flatten().unwrap_or_default()
}

/// Whether an agent has reported something of a work. That it cannot be sent is the hub's word.
fn is_reported(status: &ManifestWorkStatus) -> bool {
    let mut conditions = status.conditions.iter();
    conditions.any(|condition| condition.reason != NOT_SENDABLE)
}

fn decoded(work: &RawManifestWork) -> serde_json::Result<ManifestWork> {
    let spec = match &work.spec {
        // What is to go has no spec in its event: none can hold that up.
        _ if work.metadata.deletion_timestamp.is_some() => ManifestWorkSpec::default(),
        Some(spec) => serde_json::from_str(spec.get())?,
        None => serde_json::from_str("{}")?,
    };
    Ok(ManifestWork {
        metadata: work.metadata.clone(),
        spec,
        status: None,
    })
}
