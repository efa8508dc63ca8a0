//! A store in memory, for either side.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use tokio::sync::watch;

use crate::client::{AgentStore, Held, Known, SourceStore, Taken, TakenStatus};
use crate::document::{Data, Document, DocumentCodec};
use crate::presence::Presence;
use crate::protocol::{Codec, StatusMark};
use crate::resync::{Resource, StatusHash, StatusHashes};

/// [`Document`]s in memory. A source's store starts empty after a restart, so its owner has to fill
/// it before the client subscribes: what is not in it goes from the clusters.
#[derive(Debug)]
pub struct MemoryStore<S, T> {
    codec: DocumentCodec<S, T>,
    state: Mutex<State<S, T>>,
    revision: watch::Sender<u64>,
}

#[derive(Debug)]
struct State<S, T> {
    documents: BTreeMap<String, Entry<S, T>>,
    connected: BTreeMap<String, bool>,
}

#[derive(Debug)]
struct Entry<S, T> {
    document: Arc<Document<S, T>>,
    /// The hash that the agent compares with.
    hash: Option<String>,
}

impl<S: Data, T: Data> MemoryStore<S, T> {
    /// An empty store for what this codec is for.
    pub fn new(codec: DocumentCodec<S, T>) -> Self {
        let state = State {
            documents: BTreeMap::new(),
            connected: BTreeMap::new(),
        };
        Self {
            codec,
            state: Mutex::new(state),
            revision: watch::Sender::new(0),
        }
    }

    fn state(&self) -> MutexGuard<'_, State<S, T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bump(&self) {
        self.revision.send_modify(|revision| *revision += 1);
    }

    /// Counts changes.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// All there is, by uid.
    pub fn list(&self) -> Vec<Arc<Document<S, T>>> {
        let state = self.state();
        let documents = state.documents.values();
        documents.map(|entry| Arc::clone(&entry.document)).collect()
    }

    /// One of them.
    pub fn document(&self, uid: &str) -> Option<Arc<Document<S, T>>> {
        let state = self.state();
        let entry = state.documents.get(uid)?;
        Some(Arc::clone(&entry.document))
    }

    /// Whether the agent of a cluster is connected, as far as that is known.
    pub fn is_connected(&self, cluster: &str) -> Option<bool> {
        self.state().connected.get(cluster).copied()
    }

    /// Puts one in, or in the place of another. Its client has to be told.
    pub fn put(&self, document: Document<S, T>) {
        let entry = Entry {
            hash: None,
            document: Arc::new(document),
        };
        let uid = entry.document.uid.clone();
        self.state().documents.insert(uid, entry);
        self.bump();
    }

    /// Changes one; whether it was there. Its client has to be told.
    pub fn change(&self, uid: &str, change: impl FnOnce(&mut Document<S, T>)) -> bool {
        let mut state = self.state();
        let Some(entry) = state.documents.get_mut(uid) else {
            return false;
        };
        change(Arc::make_mut(&mut entry.document));
        drop(state);
        self.bump();
        true
    }

    /// A source wants another spec; whether the document was there and is not to go.
    pub fn set_spec(&self, uid: &str, spec: S) -> bool {
        let mut changed = false;
        self.change(uid, |document| {
            if document.deleting.is_none() {
                document.spec = Some(spec);
                document.version += 1;
                changed = true;
            }
        });
        changed
    }

    /// A source wants it gone; whether it was there.
    pub fn delete(&self, uid: &str) -> bool {
        self.change(uid, |document| {
            document.deleting.get_or_insert_with(Timestamp::now);
        })
    }

    /// An agent has another status; whether the document was there.
    pub fn set_status(&self, uid: &str, status: T) -> bool {
        self.change(uid, |document| document.status = Some(status))
    }

    /// An agent has removed what was to go; whether the document was there.
    pub fn set_gone(&self, uid: &str) -> bool {
        self.change(uid, |document| document.gone = true)
    }

    fn remove(&self, uid: &str) {
        self.state().documents.remove(uid);
        self.bump();
    }

    fn known_of(document: &Document<S, T>) -> Known {
        Known {
            uid: document.uid.clone(),
            cluster: document.cluster.clone(),
            version: document.version,
            deleting: document.is_deleting(),
            last_sequence_id: document.last_sequence_id.clone(),
        }
    }

    fn held_of(document: &Document<S, T>) -> Held {
        Held {
            uid: document.uid.clone(),
            source: document.source.clone().unwrap_or_default(),
            version: document.version,
            deleting: document.is_deleting(),
        }
    }
}

impl<S: Data, T: Data> SourceStore for MemoryStore<S, T> {
    type Resource = Document<S, T>;

    fn known(&self, cluster: &str) -> Vec<Known> {
        let documents = self.list().into_iter();
        let wanted = documents.filter(|document| document.cluster == cluster);
        wanted.map(|document| Self::known_of(&document)).collect()
    }

    fn find(&self, uid: &str) -> Option<Known> {
        let document = self.document(uid)?;
        Some(Self::known_of(&document))
    }

    async fn get(&self, uid: &str) -> Result<Option<Arc<Document<S, T>>>, String> {
        Ok(self.document(uid))
    }

    fn clusters(&self) -> BTreeSet<String> {
        let state = self.state();
        let documents = state.documents.values();
        documents
            .map(|entry| entry.document.cluster.clone())
            .collect()
    }

    fn status_hashes(&self, cluster: &str) -> StatusHashes {
        let state = self.state();
        let documents = state.documents.iter();
        let hashes = documents
            .filter(|(_, entry)| entry.document.cluster == cluster)
            .map(|(uid, entry)| {
                let hash = entry.hash.clone();
                StatusHash {
                    id: uid.clone(),
                    hash: hash.unwrap_or_else(|| self.codec.status_hash(&entry.document)),
                }
            });
        StatusHashes {
            hashes: hashes.collect(),
        }
    }

    async fn take_status(
        &self,
        heard: Document<S, T>,
        mark: StatusMark,
    ) -> Result<TakenStatus, String> {
        if heard.gone {
            let is_wanted = |held: Arc<Document<S, T>>| held.deleting.is_none();
            if self.document(&heard.uid).is_some_and(is_wanted) {
                return Ok(TakenStatus::SendAgain);
            }
            self.remove(&heard.uid);
            return Ok(TakenStatus::Kept);
        }
        if let Some(entry) = self.state().documents.get_mut(&heard.uid) {
            entry.hash = mark.hash;
            let document = Arc::make_mut(&mut entry.document);
            document.status = heard.status;
            document.last_sequence_id = mark.sequence_id;
        }
        self.bump();
        Ok(TakenStatus::Kept)
    }

    fn presence(&self, presence: Presence) {
        let Presence { cluster, connected } = presence;
        self.state().connected.insert(cluster, connected);
        self.bump();
    }
}

impl<S: Data, T: Data> AgentStore for MemoryStore<S, T> {
    type Resource = Document<S, T>;

    fn held(&self) -> Vec<Held> {
        let documents = self.list().into_iter();
        documents.map(|document| Self::held_of(&document)).collect()
    }

    fn find(&self, uid: &str) -> Option<Held> {
        let document = self.document(uid)?;
        Some(Self::held_of(&document))
    }

    async fn get(&self, uid: &str) -> Result<Option<Arc<Document<S, T>>>, String> {
        Ok(self.document(uid))
    }

    fn status_hash(&self, uid: &str) -> String {
        let document = self.document(uid);
        document.map_or_else(String::new, |document| self.codec.status_hash(&document))
    }

    async fn take(&self, mut document: Document<S, T>) -> Result<Taken, String> {
        let held = self.document(&document.uid);
        let is_new = held.as_ref().is_none_or(|held| {
            held.version != document.version || held.is_deleting() != document.is_deleting()
        });
        if let Some(held) = held {
            document.status.clone_from(&held.status);
            document.gone = held.gone;
            if document.is_deleting() {
                document.spec.clone_from(&held.spec);
            }
        } else if document.is_deleting() {
            document.gone = true;
        }
        let taken = if document.gone {
            Taken::Tell
        } else {
            Taken::Kept
        };
        if is_new {
            self.put(document);
        }
        Ok(taken)
    }

    fn sent(&self, document: &Document<S, T>) {
        if document.gone {
            self.remove(&document.uid);
        }
    }
}
