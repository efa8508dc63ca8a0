//! The works that an agent has got, in an API server of its own.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use muster_api::constants::MANIFEST_WORK_FINALIZER;
use muster_api::work::{ManifestWork, ManifestWorkSpec, RawManifestWork};
use muster_apiserver::Mirror;
use muster_cloudevents::client::{AgentStore, Held, Taken};
use muster_cloudevents::protocol::Codec;
use muster_cloudevents::resync::Resource;
use muster_cloudevents::work::{SOURCE_LABEL, WorkCodec, deleted_condition};
use serde_json::{Value, json};

/// Annotation with the name that a work has at its source, where it has another one here.
const NAME_ANNOTATION: &str = "muster.dev/name-at-source";
/// Longest name of an object.
const LONGEST_NAME: usize = 253;
/// Letters of a uid that tell one work from another of its name.
const UID_LETTERS: usize = 8;

/// See the module.
#[derive(Debug)]
pub(super) struct LocalWorks {
    mirror: Mirror,
    cluster: String,
    codec: WorkCodec,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    held: HashMap<String, Entry>,
    /// Uids by the name that their work has here.
    names: HashMap<String, String>,
}

/// What is known of a work without looking at it.
#[derive(Debug, Clone)]
struct Entry {
    name: String,
    source: String,
    version: i64,
    deleting: bool,
    /// What is told of it when it is gone, until it has been.
    gone: Option<Arc<ManifestWork>>,
    /// Digest of the status that was last seen here.
    status: u64,
    /// The hash of that status, once somebody has asked for it.
    hash: Option<String>,
}

impl State {
    fn insert(&mut self, uid: &str, entry: Entry) {
        if entry.gone.is_none() {
            self.names.insert(entry.name.clone(), uid.to_owned());
        }
        self.held.insert(uid.to_owned(), entry);
    }

    fn remove(&mut self, uid: &str) -> Option<Entry> {
        let entry = self.held.remove(uid)?;
        self.free(uid, &entry.name);
        Some(entry)
    }

    /// Makes room for another work of this name.
    fn free(&mut self, uid: &str, name: &str) {
        if self.names.get(name).is_some_and(|holder| holder == uid) {
            self.names.remove(name);
        }
    }
}

/// Where a work that comes has its place.
enum Place {
    /// Under this name.
    Name(String),
    /// Under this name, in the place of the work with this uid, which its source has replaced.
    Replacing(String, String),
    /// It has been replaced already.
    Replaced,
    /// Nowhere, before another has gone.
    Taken(String),
}

impl LocalWorks {
    /// Works of a cluster, with those that the server has kept.
    pub(super) fn new(mirror: Mirror, cluster: &str, codec: WorkCodec) -> Self {
        let mut state = State::default();
        for work in mirror.list::<ManifestWork>(cluster) {
            state.insert(work.uid(), Entry::of(&work));
        }
        Self {
            mirror,
            cluster: cluster.to_owned(),
            codec,
            state: Mutex::new(state),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(&self, work: &ManifestWork) -> Place {
        let state = self.state();
        let (uid, source) = (work.uid(), source_of(work));
        if let Some(entry) = state.held.get(uid) {
            return Place::Name(entry.name.clone());
        }
        let name = work.metadata.name.clone().unwrap_or_default();
        let name = if is_name(&name) { name } else { name_of(uid) };
        let Some((holder, other)) = state
            .names
            .get(&name)
            .and_then(|holder| Some((holder, state.held.get(holder)?)))
        else {
            return Place::Name(name);
        };
        if other.source != source {
            return Place::Name(with_uid(&name, uid));
        }
        match (work.is_deleting(), other.deleting) {
            (true, _) => Place::Replaced,
            (false, true) => Place::Taken(holder.clone()),
            (false, false) => Place::Replacing(name, holder.clone()),
        }
    }

    /// The server has this work now. Gives its uid if there is a status to tell.
    pub(super) fn seen(&self, work: &RawManifestWork) -> Option<String> {
        let uid = work.metadata.uid.as_deref()?;
        let text = work.status.as_ref().map(|status| status.get());
        let digest = text.map_or(0, digest);
        let mut state = self.state();
        let entry = state.held.get_mut(uid)?;
        let is_news = entry.status != digest;
        entry.status = digest;
        if is_news {
            entry.hash = None;
        }
        is_news.then(|| uid.to_owned())
    }

    /// The server does not have a work any more: the agent is done with it. Gives its uid if that is
    /// to be told.
    pub(super) fn gone(&self, uid: &str, meta: Option<&ObjectMeta>) -> Option<String> {
        let mut state = self.state();
        let entry = state.held.get(uid)?.clone();
        if entry.gone.is_some() {
            return None;
        }
        if !entry.deleting {
            // Nobody asked for that: its source sends it again when it hears that it is missing.
            state.remove(uid);
            return None;
        }
        state.free(uid, &entry.name);
        let gone = Some(Arc::new(self.tombstone(uid, &entry, meta)));
        state.insert(uid, Entry { gone, ..entry });
        Some(uid.to_owned())
    }

    /// The uids of all that the server should have.
    pub(super) fn expected(&self) -> Vec<String> {
        let state = self.state();
        let held = state.held.iter();
        held.filter(|(_, entry)| entry.gone.is_none())
            .map(|(uid, _)| uid.clone())
            .collect()
    }

    /// What is told of a work that is gone.
    fn tombstone(&self, uid: &str, entry: &Entry, meta: Option<&ObjectMeta>) -> ManifestWork {
        let mut work = ManifestWork::new(&entry.name, ManifestWorkSpec::default());
        if let Some(meta) = meta {
            work.metadata = meta.clone();
        }
        work.metadata.uid = Some(uid.to_owned());
        work.metadata.namespace = Some(self.cluster.clone());
        let labels = work.metadata.labels.get_or_insert_default();
        labels.insert(SOURCE_LABEL.to_owned(), entry.source.clone());
        let condition = deleted_condition(&self.cluster, Timestamp::now());
        work.status.get_or_insert_default().conditions = vec![condition];
        as_at_source(&mut work, entry.version);
        work
    }

    fn bury(&self, work: &ManifestWork) {
        let mut entry = Entry::of(work);
        let tombstone = self.tombstone(work.uid(), &entry, Some(&work.metadata));
        entry.gone = Some(Arc::new(tombstone));
        self.state().insert(work.uid(), entry);
    }

    async fn keep(&self, work: ManifestWork, name: String) -> Result<(), String> {
        let uid = work.uid().to_owned();
        let mut entry = Entry::of(&work);
        entry.name.clone_from(&name);
        let before = {
            let mut state = self.state();
            let before = state.held.get(&uid).cloned();
            entry.status = before.as_ref().map_or(0, |before| before.status);
            // So that it is known when the server tells of it.
            state.insert(&uid, entry);
            before
        };
        let incoming = Incoming::new(work, &name)?;
        let kept = self
            .mirror
            .update(&self.cluster, &name, |old| Some(incoming.over(old)))
            .await;
        kept.map(|_| ()).map_err(|error| {
            let mut state = self.state();
            state.remove(&uid);
            if let Some(before) = before {
                state.insert(&uid, before);
            }
            error.to_string()
        })
    }
}

impl AgentStore for LocalWorks {
    type Resource = ManifestWork;

    fn held(&self) -> Vec<Held> {
        let state = self.state();
        let held = state.held.iter();
        held.map(|(uid, entry)| entry.held(uid)).collect()
    }

    fn find(&self, uid: &str) -> Option<Held> {
        let state = self.state();
        state.held.get(uid).map(|entry| entry.held(uid))
    }

    async fn get(&self, uid: &str) -> Result<Option<Arc<ManifestWork>>, String> {
        Ok(self.work(uid))
    }

    /// Each source asks for all of them at each resync; few have changed since.
    fn status_hash(&self, uid: &str) -> String {
        let digest = {
            let state = self.state();
            let entry = state.held.get(uid);
            match entry.map(|entry| (entry.status, &entry.hash)) {
                Some((_, Some(hash))) => return hash.clone(),
                Some((digest, None)) => digest,
                None => return String::new(),
            }
        };
        let work = self.work(uid);
        let hash = work.map_or_else(String::new, |work| self.codec.status_hash(&work));
        if let Some(entry) = self.state().held.get_mut(uid)
            // Another one that has come meanwhile has another hash.
            && entry.status == digest
        {
            entry.hash = Some(hash.clone());
        }
        hash
    }

    async fn take(&self, work: ManifestWork) -> Result<Taken, String> {
        let uid = work.uid();
        if let Some(entry) = self.state().held.get(uid)
            && entry.gone.is_some()
        {
            return Ok(Taken::Tell);
        }
        match self.place(&work) {
            Place::Name(name) => {
                self.keep(work, name).await?;
                Ok(Taken::Kept)
            }
            Place::Replacing(name, other) => {
                self.state().remove(&other);
                self.keep(work, name).await?;
                Ok(Taken::Kept)
            }
            Place::Replaced => {
                self.bury(&work);
                Ok(Taken::Tell)
            }
            Place::Taken(other) => Err(format!(
                "the work {} ({uid}) waits until the one of its name ({other}) is gone",
                work.metadata.name.as_deref().unwrap_or_default()
            )),
        }
    }

    fn sent(&self, work: &ManifestWork) {
        if self.codec.says_gone(work) {
            self.state().remove(work.uid());
        }
    }
}

impl LocalWorks {
    /// A work as its source is to see it.
    fn work(&self, uid: &str) -> Option<Arc<ManifestWork>> {
        let entry = self.state().held.get(uid)?.clone();
        if let Some(gone) = entry.gone {
            return Some(gone);
        }
        let mut work: ManifestWork = self.mirror.get(&self.cluster, &entry.name)?;
        if work.uid() != uid {
            return None;
        }
        as_at_source(&mut work, entry.version);
        Some(Arc::new(work))
    }
}

impl Entry {
    /// Of a work whose status has not been seen yet.
    fn of(work: &ManifestWork) -> Self {
        Self {
            name: work.metadata.name.clone().unwrap_or_default(),
            source: source_of(work),
            version: work.version(),
            deleting: work.is_deleting(),
            gone: None,
            status: 0,
            hash: None,
        }
    }

    fn held(&self, uid: &str) -> Held {
        Held {
            uid: uid.to_owned(),
            source: self.source.clone(),
            version: self.version,
            deleting: self.deleting,
        }
    }
}

/// A work that comes, as it will be kept.
struct Incoming {
    object: Value,
    uid: String,
    deleting: bool,
    version: i64,
}

impl Incoming {
    fn new(mut work: ManifestWork, name: &str) -> Result<Self, String> {
        let at_source = work.metadata.name.replace(name.to_owned());
        if let Some(at_source) = at_source.filter(|at_source| *at_source != name) {
            let annotations = work.metadata.annotations.get_or_insert_default();
            annotations.insert(NAME_ANNOTATION.to_owned(), at_source);
        }
        work.metadata.managed_fields = None;
        // It means objects of the source's cluster.
        work.metadata.owner_references = None;
        work.status = None;
        let (uid, deleting, version) = (work.uid().to_owned(), work.is_deleting(), work.version());
        let object = serde_json::to_value(&work).map_err(|error| error.to_string())?;
        Ok(Self {
            object,
            uid,
            deleting,
            version,
        })
    }

    /// What it makes of what is there. Status and finalizers are the agent's.
    fn over(&self, old: Option<Value>) -> Value {
        let same = |old: &Value| old["metadata"]["uid"] == json!(self.uid);
        let old = old.unwrap_or_default();
        let (is_there, same) = (old.is_object(), same(&old));
        if self.deleting && same {
            let mut going = old;
            let metadata = &mut going["metadata"];
            if metadata["deletionTimestamp"].is_null() {
                metadata["deletionTimestamp"] =
                    self.object["metadata"]["deletionTimestamp"].clone();
            }
            // Else it would stay for ever, and what it has applied, too.
            if metadata["finalizers"].as_array().is_none_or(Vec::is_empty) {
                metadata["finalizers"] = json!([MANIFEST_WORK_FINALIZER]);
            }
            return going;
        }
        let mut new = self.object.clone();
        let changed = !is_there || old["spec"] != new["spec"];
        let metadata = &mut new["metadata"];
        if !self.deleting {
            metadata["finalizers"] = old["metadata"]["finalizers"].clone();
        }
        if metadata["creationTimestamp"].is_null() {
            let now = || json!(Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
            let before = &old["metadata"]["creationTimestamp"];
            metadata["creationTimestamp"] = if same { before.clone() } else { now() };
        }
        // A source without versions: here they are counted.
        if self.version == 0 {
            let before = old["metadata"]["generation"].as_i64().unwrap_or_default();
            metadata["generation"] = json!(before + i64::from(changed));
        }
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.retain(|_, value| !value.is_null());
        }
        if same && !old["status"].is_null() {
            new["status"] = old["status"].clone();
        }
        new
    }
}

fn as_at_source(work: &mut ManifestWork, version: i64) {
    work.metadata.generation = Some(version);
    let annotations = work.metadata.annotations.as_mut();
    if let Some(name) = annotations.and_then(|annotations| annotations.remove(NAME_ANNOTATION)) {
        work.metadata.name = Some(name);
    }
}

fn source_of(work: &ManifestWork) -> String {
    let labels = work.metadata.labels.as_ref();
    let source = labels.and_then(|labels| labels.get(SOURCE_LABEL));
    source.cloned().unwrap_or_default()
}

pub(super) fn digest(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    // 0 stands for none.
    hasher.finish().max(1)
}

/// Whether an object can have this name.
fn is_name(name: &str) -> bool {
    let end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.len() <= LONGEST_NAME
        && name.split('.').all(|label| {
            let bytes = label.as_bytes();
            end(bytes.first())
                && end(bytes.last())
                && bytes.iter().all(|byte| allowed(*byte) || *byte == b'-')
        })
}

/// The name of a work whose source gives it none that an object can have.
fn name_of(uid: &str) -> String {
    if is_name(uid) {
        return uid.to_owned();
    }
    format!("work-{:016x}", digest(uid))
}

fn with_uid(name: &str, uid: &str) -> String {
    let letters = uid.bytes().filter(u8::is_ascii_alphanumeric);
    let letters: Vec<u8> = letters.take(UID_LETTERS).collect();
    let letters = String::from_utf8_lossy(&letters).to_ascii_lowercase();
    let most = LONGEST_NAME - UID_LETTERS - 1;
    let name = name.get(..most).unwrap_or(name);
    format!("{}-{letters}", name.trim_end_matches(['-', '.']))
}
