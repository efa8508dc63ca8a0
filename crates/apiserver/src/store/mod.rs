//! Objects, their revisions and the history that watches resume from.
//!
//! One counter gives every write a revision, as etcd does. Objects stay serialised: a list or a
//! watch hands out the stored bytes, and only what selectors need is kept parsed.
//!
//! With a durable mirror a write becomes visible to watches, and is acknowledged, after the
//! mirror has committed it; if the mirror fails, the write is taken back.

pub(crate) mod durable;
mod stored;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{mpsc, oneshot};

pub(crate) use stored::{Event, EventKind, ObjectKey, Stored, watch_line};

use durable::{DurableHandle, Record};

/// Why a write was refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    #[error("object already exists")]
    Exists,
    #[error("object does not exist")]
    Missing,
    #[error("object is at another revision")]
    Modified,
    #[error("write queue is full")]
    Busy,
    #[error("storage failed: {0}")]
    Failed(String),
}

/// What a write expects to find.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expect {
    /// No object of that name.
    Absent,
    /// The object at exactly this revision.
    Revision(u64),
}

/// Which objects of a resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Scope {
    All,
    Namespace(String),
    Object(ObjectKey),
}

impl Scope {
    pub(crate) fn contains(&self, key: &ObjectKey) -> bool {
        match self {
            Self::All => true,
            Self::Namespace(namespace) => key.namespace == *namespace,
            Self::Object(only) => key == only,
        }
    }
}

/// The start of a watch.
pub(crate) struct Subscription {
    /// Events between the requested revision and now, oldest first.
    pub(crate) backlog: Vec<Arc<Event>>,
    /// Events from now on. It ends when the watcher is too slow or its resource goes away.
    pub(crate) events: mpsc::Receiver<Arc<Event>>,
    /// The revision of the state at the start.
    pub(crate) revision: u64,
}

/// The history does not reach back to the revision asked for.
#[derive(Debug)]
pub(crate) struct TooOld {
    pub(crate) oldest: u64,
}

struct Watcher {
    /// Events up to this revision are not for this watcher.
    after: u64,
    events: mpsc::Sender<Arc<Event>>,
}

#[derive(Default)]
struct Collection {
    objects: BTreeMap<ObjectKey, Arc<Stored>>,
    history: VecDeque<Arc<Event>>,
    /// Events up to this revision are no longer in the history.
    floor: u64,
    /// Counts changes of `objects`, those taken back too.
    changes: u64,
    watchers: HashMap<Scope, Vec<Watcher>>,
}

struct State {
    /// Of the last write.
    revision: u64,
    /// Of the last write that watches have seen; behind `revision` while a commit is under way.
    published: u64,
    /// Of the start; there is no history before it.
    base: u64,
    collections: HashMap<Arc<str>, Collection>,
}

/// Sizes that bound the store's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Past events kept per resource for watches that resume.
    pub(crate) history_events: usize,
    /// Events queued per watch before it is closed as too slow.
    pub(crate) watcher_queue_events: usize,
}

/// The revisioned state of one server.
pub(crate) struct Store {
    state: Arc<Mutex<State>>,
    limits: Limits,
    durable: Option<DurableHandle>,
}

impl Store {
    /// A store that lives in memory only.
    pub(crate) fn in_memory(limits: Limits) -> Self {
        let state = State {
            revision: 1,
            published: 1,
            base: 1,
            collections: HashMap::new(),
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            limits,
            durable: None,
        }
    }

    /// A store mirrored to a database file, with the file's state loaded.
    /// `selectable` names the fields of a resource that selectors may ask about.
    pub(crate) fn durable(
        limits: Limits,
        path: &std::path::Path,
        selectable: impl Fn(&str) -> Vec<Arc<str>>,
    ) -> Result<Self, durable::OpenError> {
        let opened = durable::open(path)?;
        let mut state = State {
            revision: opened.revision,
            published: opened.revision,
            base: opened.revision,
            collections: HashMap::new(),
        };
        for (resource, mut stored) in opened.objects {
            stored.index(&selectable(&resource));
            let objects = &mut state.collection_mut(&resource).objects;
            objects.insert(stored.key.clone(), Arc::new(stored));
        }
        let state = Arc::new(Mutex::new(state));
        let publisher = Publisher {
            state: state.clone(),
            limits,
        };
        let durable = durable::spawn_writer(opened.database, path.to_owned(), publisher);
        Ok(Self {
            state,
            limits,
            durable: Some(durable),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The revision of the last write.
    pub(crate) fn revision(&self) -> u64 {
        self.lock().revision
    }

    /// The revision up to which watches have been told.
    pub(crate) fn published(&self) -> u64 {
        self.lock().published
    }

    pub(crate) fn get(&self, resource: &str, key: &ObjectKey) -> Option<Arc<Stored>> {
        self.lock()
            .collections
            .get(resource)?
            .objects
            .get(key)
            .cloned()
    }

    /// How often each resource's objects have changed; equal counts mean equal objects.
    pub(crate) fn changes<const N: usize>(&self, resources: [&str; N]) -> [u64; N] {
        let state = self.lock();
        resources.map(|resource| state.collections.get(resource).map_or(0, |c| c.changes))
    }

    /// The objects in scope, ordered by namespace and name, and the state's revision.
    pub(crate) fn list(&self, resource: &str, scope: &Scope) -> (Vec<Arc<Stored>>, u64) {
        let state = self.lock();
        (state.select(resource, scope), state.revision)
    }

    /// The objects in scope as they were at an earlier revision, if the history reaches back.
    pub(crate) fn list_at(
        &self,
        resource: &str,
        scope: &Scope,
        revision: u64,
    ) -> Result<Vec<Arc<Stored>>, TooOld> {
        let state = self.lock();
        let Some(collection) = state.collections.get(resource) else {
            return Ok(Vec::new());
        };
        if revision < collection.floor {
            return Err(TooOld {
                oldest: collection.floor,
            });
        }
        let mut objects: BTreeMap<ObjectKey, Arc<Stored>> = collection
            .objects
            .iter()
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        for event in collection
            .history
            .iter()
            .rev()
            .take_while(|e| e.revision() > revision)
        {
            match &event.previous {
                Some(previous) => objects.insert(previous.key.clone(), previous.clone()),
                None => objects.remove(&event.object.key),
            };
        }
        Ok(objects
            .into_values()
            .filter(|o| scope.contains(&o.key))
            .collect())
    }

    /// Starts a watch for events after `after`, or with the present state as its backlog.
    pub(crate) fn watch(
        &self,
        resource: &Arc<str>,
        scope: Scope,
        after: Option<u64>,
    ) -> Result<Subscription, TooOld> {
        let mut state = self.lock();
        let revision = state.revision;
        let initial = match after {
            Some(_) => Vec::new(),
            None => state.select(resource, &scope),
        };
        let collection = state.collection_mut(resource);
        let (backlog, after) = match after {
            Some(after) if after < collection.floor => {
                return Err(TooOld {
                    oldest: collection.floor,
                });
            }
            Some(after) => {
                let newer = collection
                    .history
                    .partition_point(|e| e.revision() <= after);
                let events: Vec<_> = collection
                    .history
                    .range(newer..)
                    .filter(|e| scope.contains(&e.object.key))
                    .cloned()
                    .collect();
                let seen = collection.history.back().map_or(0, |e| e.revision());
                (events, after.max(seen))
            }
            None => {
                let events = initial
                    .into_iter()
                    .map(|o| Arc::new(Event::new(EventKind::Added, o, None)));
                (events.collect(), revision)
            }
        };
        let (sender, events) = mpsc::channel(self.limits.watcher_queue_events);
        let watchers = collection.watchers.entry(scope).or_default();
        watchers.retain(|w| !w.events.is_closed());
        watchers.push(Watcher {
            after,
            events: sender,
        });
        Ok(Subscription {
            backlog,
            events,
            revision,
        })
    }

    /// Stores an object; `build` gets the write's revision and gives the object's bytes.
    pub(crate) async fn put(
        &self,
        resource: &Arc<str>,
        key: &ObjectKey,
        expect: Expect,
        build: impl FnOnce(u64) -> Stored,
    ) -> Result<Arc<Stored>, WriteError> {
        self.write(resource, key, expect, build, false).await
    }

    /// Removes an object; `build` gives its last state, which the deletion event carries.
    pub(crate) async fn remove(
        &self,
        resource: &Arc<str>,
        key: &ObjectKey,
        revision: u64,
        build: impl FnOnce(u64) -> Stored,
    ) -> Result<Arc<Stored>, WriteError> {
        self.write(resource, key, Expect::Revision(revision), build, true)
            .await
    }

    async fn write(
        &self,
        resource: &Arc<str>,
        key: &ObjectKey,
        expect: Expect,
        build: impl FnOnce(u64) -> Stored,
        remove: bool,
    ) -> Result<Arc<Stored>, WriteError> {
        let (stored, committed) = {
            let mut state = self.lock();
            let current = state
                .collections
                .get(&**resource)
                .and_then(|c| c.objects.get(key))
                .cloned();
            match (expect, &current) {
                (Expect::Absent, Some(_)) => return Err(WriteError::Exists),
                (Expect::Revision(_), None) => return Err(WriteError::Missing),
                (Expect::Revision(wanted), Some(found)) if found.revision != wanted => {
                    return Err(WriteError::Modified);
                }
                _ => {}
            }
            let revision = state.revision + 1;
            let stored = Arc::new(build(revision));
            let change = Change {
                resource: resource.clone(),
                previous: current,
                object: stored.clone(),
                removed: remove,
            };
            let committed = match &self.durable {
                Some(durable) => Some(durable.submit(Record::new(change.clone()))?),
                None => None,
            };
            state.revision = revision;
            state.apply(&change);
            if committed.is_none() {
                state.publish(change, self.limits);
            }
            (stored, committed)
        };
        if let Some(committed) = committed {
            wait_for_commit(committed).await?;
        }
        Ok(stored)
    }

    /// Reads the selectable fields of a resource's objects anew, after its type has changed.
    pub(crate) fn reindex(&self, resource: &str, selectable: &[Arc<str>]) {
        let mut state = self.lock();
        let Some(collection) = state.collections.get_mut(resource) else {
            return;
        };
        for object in collection.objects.values_mut() {
            let mut stored = Stored::from_bytes(object.bytes().clone(), &[])
                .expect("stored bytes were read before");
            stored.index(selectable);
            *object = Arc::new(stored);
        }
    }

    /// Ends every watch of a resource and forgets its history; its objects must be gone.
    pub(crate) fn close_resource(&self, resource: &str) {
        let mut state = self.lock();
        let revision = state.revision;
        if let Some(collection) = state.collections.get_mut(resource) {
            collection.watchers.clear();
            collection.history.clear();
            collection.floor = revision;
        }
    }

    /// Ends every watch and, with a mirror, waits until all accepted writes are on disk.
    pub(crate) async fn close(&self) {
        for collection in self.lock().collections.values_mut() {
            collection.watchers.clear();
        }
        if let Some(durable) = &self.durable {
            durable.close().await;
        }
    }
}

async fn wait_for_commit(
    committed: oneshot::Receiver<Result<(), String>>,
) -> Result<(), WriteError> {
    match committed.await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(why)) => Err(WriteError::Failed(why)),
        Err(_) => Err(WriteError::Failed("the writer has stopped".to_owned())),
    }
}

/// One write, as memory and mirror carry it out.
#[derive(Clone)]
pub(crate) struct Change {
    pub(crate) resource: Arc<str>,
    pub(crate) previous: Option<Arc<Stored>>,
    pub(crate) object: Arc<Stored>,
    pub(crate) removed: bool,
}

impl State {
    fn collection_mut(&mut self, resource: &Arc<str>) -> &mut Collection {
        let floor = self.base;
        self.collections
            .entry(resource.clone())
            .or_insert_with(|| Collection {
                floor,
                ..Collection::default()
            })
    }

    fn select(&self, resource: &str, scope: &Scope) -> Vec<Arc<Stored>> {
        let Some(collection) = self.collections.get(resource) else {
            return Vec::new();
        };
        match scope {
            Scope::All => collection.objects.values().cloned().collect(),
            Scope::Object(key) => collection.objects.get(key).cloned().into_iter().collect(),
            Scope::Namespace(namespace) => {
                let first = ObjectKey {
                    namespace: namespace.clone(),
                    name: String::new(),
                };
                collection
                    .objects
                    .range(first..)
                    .take_while(|(key, _)| key.namespace == *namespace)
                    .map(|(_, object)| object.clone())
                    .collect()
            }
        }
    }

    fn apply(&mut self, change: &Change) {
        let collection = self.collection_mut(&change.resource);
        collection.changes += 1;
        let objects = &mut collection.objects;
        if change.removed {
            objects.remove(&change.object.key);
        } else {
            objects.insert(change.object.key.clone(), change.object.clone());
        }
    }

    fn undo(&mut self, change: &Change) {
        let collection = self.collection_mut(&change.resource);
        collection.changes += 1;
        let objects = &mut collection.objects;
        match &change.previous {
            Some(previous) => objects.insert(previous.key.clone(), previous.clone()),
            None => objects.remove(&change.object.key),
        };
    }

    /// Adds the change to the history and hands it to the watches that it concerns.
    fn publish(&mut self, change: Change, limits: Limits) {
        let kind = match (&change.previous, change.removed) {
            (_, true) => EventKind::Deleted,
            (None, false) => EventKind::Added,
            (Some(_), false) => EventKind::Modified,
        };
        let event = Arc::new(Event::new(kind, change.object, change.previous));
        self.published = event.revision();
        let collection = self.collection_mut(&change.resource);
        collection.history.push_back(event.clone());
        while collection.history.len() > limits.history_events {
            if let Some(dropped) = collection.history.pop_front() {
                collection.floor = dropped.revision();
            }
        }
        let key = &event.object.key;
        let scopes = [
            Scope::All,
            Scope::Namespace(key.namespace.clone()),
            Scope::Object(key.clone()),
        ];
        for scope in scopes {
            let Some(watchers) = collection.watchers.get_mut(&scope) else {
                continue;
            };
            // A full queue means a reader that cannot keep up: as the real server does, its
            // stream ends and it starts again from a list.
            watchers.retain(|watcher| {
                event.revision() <= watcher.after || watcher.events.try_send(event.clone()).is_ok()
            });
            if watchers.is_empty() {
                collection.watchers.remove(&scope);
            }
        }
    }
}

/// What the mirror's writer does to the state after a commit or a failure.
#[derive(Clone)]
pub(crate) struct Publisher {
    state: Arc<Mutex<State>>,
    limits: Limits,
}

impl Publisher {
    /// Makes committed changes visible to watches.
    pub(crate) fn committed(&self, changes: impl IntoIterator<Item = Change>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        for change in changes {
            state.publish(change, self.limits);
        }
    }

    /// Takes back changes that could not be committed, and those queued behind them, which
    /// were made on top. `queued` runs while no further change can be queued.
    pub(crate) fn failed(
        &self,
        mut batch: Vec<Record>,
        queued: impl FnOnce() -> Vec<Record>,
    ) -> Vec<Record> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        batch.extend(queued());
        let revision = state.revision;
        for record in batch.iter().rev() {
            state.undo(&record.change);
            // Lists may have shown what is taken back: their clients have to list again.
            if let Some(collection) = state.collections.get_mut(&record.change.resource) {
                collection.watchers.clear();
                collection.history.clear();
                collection.floor = revision;
            }
        }
        state.published = revision;
        batch
    }
}
