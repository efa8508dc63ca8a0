//! One ManifestWorkReplicaSet: wants works, counts what they report, and says so in its status.
//!
//! ```text
//! Fact ──► muster_core::replicaset::ReplicaSet ──► works: create, patch, delete (a few at a time)
//!                                              └─► status: one merge patch, coalesced
//! ```
//!
//! Hears [`Fact`]s from [`super::ReplicaSets`]. Writes nothing before [`Fact::Complete`], since
//! until then an absent work means nothing. After a restart it asks for its set and placements
//! again and lists its works itself.
//!
//! Every write ends in one of three ways: done (the API server's answer is a fact like any other),
//! not ours (an object of that name belongs to somebody else), or failed (retried with a back-off
//! of its own, told in the status).

mod revisions;
mod standing;
mod status;
mod sweep;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use actix::{
    Actor, ActorContext, ActorFutureExt, Addr, AsyncContext, Context, Handler, MessageResult,
    Recipient, ResponseActFuture, SpawnHandle, Supervised, WrapFuture,
};
use jiff::Timestamp;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use muster_api::constants as names;
use muster_api::replicaset::{CascadeDeletionPolicy, ManifestWorkReplicaSetStatus};
use muster_core::events::{Happening, reasons};
use muster_core::replicaset::{
    ClusterStanding, Pause, PlacementRef, ReplicaSet, Stand, Template, WorkAction, WorkKey,
    owner_label,
};
use serde::Serialize;
use serde_json::json;
use tracing::{debug, error, info, warn};

use super::facts::{Fact, TellAgain};
use super::views::{ObjectName, OwnedWork, SetView, WorkReducer, WorkView, spec_hash};
use super::work_writes::{WorkRequest, WriteError, Written, carry_out, metadata_path};
use super::{HubDeps, metrics, status_writer};
use crate::supervision::{Backoff, BackoffPolicy, Registry, Snapshot, Stop};
use revisions::Revisions;
use standing::Counted;
use status::StatusWrites;

/// Facts that may wait. A fact takes some 10 µs, so a full mailbox is 10 ms of work; what does not
/// fit is kept by the router, newest per object.
const MAILBOX: usize = 1_024;
/// Writes of one set under way at a time. At 5 ms a write on a real API server this is 6,400
/// writes a second, more than one server takes; it leaves room for other sets.
const MAX_IN_FLIGHT: usize = 32;
/// How long after the end of a soak or a deadline it is looked at: timers may come a little early
/// by the clock that conditions are compared with.
const PAST_DEADLINE: Duration = Duration::from_millis(5);

/// Where the set stands with its finalizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FinalizerStep {
    Idle,
    InFlight,
}

/// Whether works are being listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Listing {
    Not,
    /// The list with which this life begins is still to come.
    First,
    /// To compare with what is known.
    Sweep,
}

/// Most clusters that an aggregator publishes, the worst first. A page has room for no more, and
/// `muster explain` tells of all.
const SHOWN_CLUSTERS: usize = 500;
/// Most values of each of them.
const SHOWN_VALUES: usize = 8;
/// Most refused writes that it publishes.
const SHOWN_FAILURES: usize = 100;

/// What an aggregator publishes.
#[derive(Debug, Serialize)]
struct State<'a> {
    /// As it is to be written, which may be ahead of what the API has by a moment.
    status: ManifestWorkReplicaSetStatus,
    /// How many there are; absent until they have been listed.
    revisions: Option<usize>,
    in_flight: usize,
    /// Works whose writes are refused, and why.
    failing: BTreeMap<String, &'a str>,
    complete: bool,
    /// Numbers of clusters by how they stand.
    stands: BTreeMap<Stand, usize>,
    clusters: Vec<ClusterState<'a>>,
}

/// One cluster of the set.
#[derive(Debug, Serialize)]
struct ClusterState<'a> {
    name: &'a str,
    stand: Stand,
    since: Option<Timestamp>,
    values: BTreeMap<String, String>,
}

impl<'a> From<&ClusterStanding<'a>> for ClusterState<'a> {
    fn from(standing: &ClusterStanding<'a>) -> Self {
        let values = standing.values().take(SHOWN_VALUES);
        Self {
            name: standing.cluster,
            stand: standing.stand,
            since: standing.since,
            values: values
                .map(|(object, name, value)| (format!("{object} {name}"), value.to_string()))
                .collect(),
        }
    }
}

/// The aggregator. See the module.
#[derive(Debug)]
pub struct ReplicaSetAggregator {
    deps: HubDeps,
    id: ObjectName,
    /// The router, asked after a restart.
    again: Recipient<TellAgain>,
    set: ReplicaSet,
    reducer: WorkReducer,
    view: Option<Arc<SetView>>,
    /// The router has told everything.
    told: bool,
    /// A list of works that is under way.
    listing: Listing,
    /// Works told or written in this life: newer than anything a list under way will say.
    fresher_than_list: HashSet<WorkKey>,
    in_flight: HashSet<WorkKey>,
    failing: BTreeMap<WorkKey, (Backoff, String)>,
    finalizer: FinalizerStep,
    revisions: Revisions,
    /// Clusters that are paused for all sets.
    paused: Arc<BTreeSet<String>>,
    /// When time alone changes something, and the timer for it.
    wake: Option<(Timestamp, SpawnHandle)>,
    /// Works whose deletion was asked for and has not been seen.
    deleted: HashSet<WorkKey>,
    /// The status as the API server has it, as far as known.
    status: ManifestWorkReplicaSetStatus,
    status_writes: StatusWrites,
    counted: Counted,
    /// [`Stop`] was asked for.
    stopping: bool,
}

impl ReplicaSetAggregator {
    /// Starts the aggregator of the set `id`. `list_works`: works may exist that no fact will
    /// tell of.
    pub(super) fn start(
        deps: HubDeps,
        id: ObjectName,
        again: Recipient<TellAgain>,
        list_works: bool,
    ) -> Addr<Self> {
        let registry: Registry = deps.registry.clone();
        let name = id.to_string();
        registry.start(
            "ReplicaSetAggregator",
            name,
            Self::new(deps, id, again, list_works),
        )
    }

    fn new(deps: HubDeps, id: ObjectName, again: Recipient<TellAgain>, list_works: bool) -> Self {
        Self {
            set: ReplicaSet::new(id.namespace.clone(), id.name.clone()),
            deps,
            id,
            again,
            reducer: WorkReducer::default(),
            view: None,
            told: false,
            listing: if list_works {
                Listing::First
            } else {
                Listing::Not
            },
            fresher_than_list: HashSet::new(),
            in_flight: HashSet::new(),
            failing: BTreeMap::new(),
            finalizer: FinalizerStep::Idle,
            revisions: Revisions::default(),
            paused: Arc::default(),
            wake: None,
            deleted: HashSet::new(),
            status: ManifestWorkReplicaSetStatus::default(),
            status_writes: StatusWrites::default(),
            counted: Counted::default(),
            stopping: false,
        }
    }

    const fn complete(&self) -> bool {
        self.told
            && !matches!(self.listing, Listing::First)
            && self.view.is_some()
            && !self.stopping
    }

    fn deleting(&self) -> bool {
        self.view
            .as_ref()
            .is_some_and(|view| view.metadata.deletion_timestamp.is_some())
    }

    fn has_finalizer(&self) -> bool {
        self.view
            .iter()
            .flat_map(|view| view.metadata.finalizers.iter().flatten())
            .any(|finalizer| finalizer == names::MANIFEST_WORK_REPLICA_SET_FINALIZER)
    }

    fn set_changed(&mut self, view: Arc<SetView>) {
        let first = self.view.is_none();
        let generation = view.metadata.generation.unwrap_or_default();
        let unchanged = self.view.as_ref().is_some_and(|old| {
            old.metadata.generation == view.metadata.generation
                && old.metadata.labels == view.metadata.labels
        });
        if first {
            self.status = view.status.clone();
        }
        if !unchanged {
            self.set.set_template(Template {
                generation,
                spec_hash: spec_hash(Some(&view.spec.manifest_work_template)),
                labels: view.metadata.labels.clone().unwrap_or_default(),
                placements: PlacementRef::read_all(&view.spec.placement_refs),
            });
            // A new input deserves a new try at once.
            self.failing.clear();
        }
        self.view = Some(view);
        self.revisions.due = true;
        self.pause();
    }

    /// What is not to be written, by annotations of the set and of clusters.
    fn pause(&mut self) {
        let annotations = self
            .view
            .as_ref()
            .and_then(|view| view.metadata.annotations.as_ref());
        let mut pause = Pause::read(annotations);
        pause.clusters.extend(self.paused.iter().cloned());
        self.set.set_pause(pause);
    }

    fn work_changed(&mut self, key: WorkKey, facts: Option<muster_core::replicaset::WorkFacts>) {
        self.set.tick(Timestamp::now());
        if self.listing != Listing::Not {
            self.fresher_than_list.insert(key.clone());
        }
        let Some(facts) = facts else {
            self.deleted.remove(&key);
            self.reducer.forget(&key);
            self.set.remove_work(&key);
            return;
        };
        // The watch may be ahead of the answer to a write, and the answer of the watch: an agent can
        // have written a status before the hub has heard that its work is there.
        let known = self.set.work(&key);
        if known.is_none_or(|known| !facts.is_before(known)) {
            self.set.set_work(key, facts);
        }
    }

    /// Carries out whatever is wanted now. Called after every change.
    fn pump(&mut self, ctx: &mut Context<Self>) {
        if !self.complete() {
            return;
        }
        if self.deleting() {
            self.pump_deletion(ctx);
            return;
        }
        if !self.has_finalizer() {
            // Before the first work, so that no work can outlive the set unnoticed.
            self.write_finalizer(true, ctx);
            return;
        }
        self.keep_revisions(ctx);
        self.set.tick(Timestamp::now());
        while self.in_flight.len() < MAX_IN_FLIGHT {
            let actions = self.set.take_actions(1);
            if actions.is_empty() {
                break;
            }
            // One cluster may need several: a change of one work, and the end of another.
            for action in actions {
                let key = action.key();
                if self.in_flight.contains(key) || self.failing.contains_key(key) {
                    continue; // its answer, or its retry, looks again
                }
                if matches!(action, WorkAction::Delete { .. }) && self.deleted.contains(key) {
                    continue; // it has been asked for, and will be seen
                }
                self.write(&action, ctx);
            }
        }
        self.wake_later(ctx);
        self.schedule_status(ctx);
    }

    /// Comes back when a soak or a deadline ends, if nothing happens before.
    fn wake_later(&mut self, ctx: &mut Context<Self>) {
        let at = self.set.wake_at();
        if at == self.wake.as_ref().map(|(at, _)| *at) {
            return;
        }
        if let Some((_, timer)) = self.wake.take() {
            ctx.cancel_future(timer);
        }
        self.wake = at.map(|at| {
            let left = Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or_default();
            let timer = ctx.run_later(left + PAST_DEADLINE, |actor, ctx| {
                actor.wake = None;
                actor.status_writes.due = true;
                actor.pump(ctx);
            });
            (at, timer)
        });
    }

    fn pump_deletion(&mut self, ctx: &mut Context<Self>) {
        let foreground = self.view.as_ref().is_some_and(|view| {
            view.spec.cascade_deletion_policy == CascadeDeletionPolicy::Foreground
        });
        let open: Vec<WorkKey> = self
            .set
            .work_keys()
            .filter(|key| self.set.has_live_work(key))
            .cloned()
            .collect();
        let mut asked = true;
        for key in open {
            if self.deleted.contains(&key) {
                continue;
            }
            asked = false;
            if self.in_flight.len() < MAX_IN_FLIGHT
                && !self.in_flight.contains(&key)
                && !self.failing.contains_key(&key)
            {
                self.write(&WorkAction::Delete { key }, ctx);
            }
        }
        let gone = self.set.work_keys().next().is_none();
        let through = gone || (asked && !foreground && self.in_flight.is_empty());
        if self.has_finalizer() && through && self.revisions_are_gone(ctx) {
            self.write_finalizer(false, ctx);
        } else {
            self.schedule_status(ctx);
        }
    }

    fn write(&mut self, action: &WorkAction, ctx: &mut Context<Self>) {
        let key = action.key().clone();
        let kind = match action {
            WorkAction::Create { .. } => "create",
            WorkAction::Patch { .. } => "patch",
            WorkAction::Delete { .. } => "delete",
        };
        self.in_flight.insert(key.clone());
        debug!(replica_set = %self.id, cluster = key.cluster, work = key.name, kind, "writing work");
        let request = self.request(action);
        let owner = owner_label(&self.id.namespace, &self.id.name);
        let client = self.deps.client.clone();
        let task = self
            .deps
            .io
            .run(carry_out(client, key.clone(), owner, request));
        let done = async move { task.await.unwrap_or_else(|error| Err(error.into())) };
        ctx.spawn(done.into_actor(self).map(move |result, actor, ctx| {
            actor.written(key, kind, result, ctx);
        }));
    }

    fn request(&self, action: &WorkAction) -> Result<WorkRequest, WriteError> {
        let Some(view) = &self.view else {
            return Err(WriteError::Request(
                "the replica set is not known".to_owned(),
            ));
        };
        let template = &view.spec.manifest_work_template;
        match action {
            WorkAction::Create { key, placement } => {
                let labels = self.set.work_labels(placement);
                let started = BTreeMap::from([(
                    names::ROLLOUT_STARTED_ANNOTATION,
                    Timestamp::now().to_string(),
                )]);
                WorkRequest::create(key, &labels, &started, template)
            }
            WorkAction::Patch {
                key,
                placement,
                template: with_template,
            } => {
                let mut operations = Vec::new();
                let facts = self.set.work(key);
                if let Some(facts) = facts {
                    for label in self.set.stale_labels(&facts.labels) {
                        let path = metadata_path("labels", label);
                        operations.push(json!({"op": "remove", "path": path}));
                    }
                }
                for (label, value) in self.set.work_labels(placement) {
                    let path = metadata_path("labels", &label);
                    operations.push(json!({"op": "add", "path": path, "value": value}));
                }
                if *with_template {
                    let (key, now) = (names::ROLLOUT_STARTED_ANNOTATION, Timestamp::now());
                    let value = now.to_string();
                    match facts.and_then(|facts| facts.unannotated.as_deref()) {
                        None => {
                            let path = metadata_path("annotations", key);
                            operations.push(json!({"op": "add", "path": path, "value": value}));
                        }
                        Some(version) => operations.extend([
                            // Annotations that somebody has added since must not be replaced.
                            json!({"op": "test", "path": "/metadata/resourceVersion",
                                "value": version}),
                            json!({"op": "add", "path": "/metadata/annotations",
                                "value": {key: value}}),
                        ]),
                    }
                }
                WorkRequest::patch(&operations, with_template.then_some(&**template))
            }
            WorkAction::Delete { .. } => Ok(WorkRequest::Delete),
        }
    }

    fn written(
        &mut self,
        key: WorkKey,
        kind: &'static str,
        result: Result<Written, WriteError>,
        ctx: &mut Context<Self>,
    ) {
        self.in_flight.remove(&key);
        let retry = key.clone();
        metrics::work_written(kind, result.is_ok());
        match result {
            Ok(Written::Work(work)) => {
                self.recovered(&key);
                if let Ok(OwnedWork { key, facts, .. }) = self.reducer.reduce(*work) {
                    self.work_changed(key, Some(facts));
                }
            }
            Ok(Written::DeleteAccepted) => {
                self.recovered(&key);
                self.deleted.insert(key);
            }
            Ok(Written::Absent) => {
                self.recovered(&key);
                self.work_changed(key, None);
            }
            Err(error) => return self.failed(key, kind, &error, ctx),
        }
        // What changed while the write was under way was passed over by `pump`.
        self.set.retry(&retry);
        self.status_writes.due = true;
        self.pump(ctx);
    }

    fn recovered(&mut self, key: &WorkKey) {
        if self.failing.remove(key).is_some() {
            info!(replica_set = %self.id, cluster = key.cluster, "writes to the cluster work again");
        }
    }

    fn failed(&mut self, key: WorkKey, kind: &str, error: &WriteError, ctx: &mut Context<Self>) {
        let text = error.text();
        if !self.failing.contains_key(&key) {
            let note = format!("cluster {}: {text}", key.cluster);
            self.tell(Happening::warning(reasons::WRITE_REFUSED, note));
        }
        let entry = self.failing.entry(key.clone());
        let (backoff, last) =
            entry.or_insert_with(|| (Backoff::new(BackoffPolicy::REQUEST), String::new()));
        last.clone_from(&text);
        let delay = backoff.failed();
        warn!(
            replica_set = %self.id, cluster = key.cluster, work = key.name, kind, ?delay,
            error = text, "failed to write a work, retrying"
        );
        self.status_writes.due = true;
        ctx.run_later(delay, move |actor, ctx| {
            // Keeps the entry, and with it the back-off and the text, until a write succeeds.
            if let Some((backoff, text)) = actor.failing.remove(&key) {
                actor.set.retry(&key);
                actor.pump(ctx);
                let wanted = actor.in_flight.contains(&key);
                if wanted {
                    actor.failing.insert(key, (backoff, text));
                }
            }
        });
        self.pump(ctx);
    }

    fn write_finalizer(&mut self, wanted: bool, ctx: &mut Context<Self>) {
        let Some(view) = &self.view else { return };
        if self.finalizer == FinalizerStep::InFlight {
            return;
        }
        self.finalizer = FinalizerStep::InFlight;
        let ours = names::MANIFEST_WORK_REPLICA_SET_FINALIZER;
        let mut finalizers = view.metadata.finalizers.clone().unwrap_or_default();
        finalizers.retain(|finalizer| finalizer != ours);
        if wanted {
            finalizers.push(ours.to_owned());
        }
        // With the resource version: a list is replaced whole, so it must not be an old one.
        let patch = json!({"metadata": {
            "resourceVersion": view.metadata.resource_version, "finalizers": finalizers}});
        let sets: Api<SetView> = Api::namespaced(self.deps.client.clone(), &self.id.namespace);
        let name = self.id.name.clone();
        let task = self.deps.io.run(async move {
            sets.patch_metadata(&name, &PatchParams::default(), &Patch::Merge(patch))
                .await
        });
        ctx.spawn(task.into_actor(self).map(move |result, actor, ctx| {
            actor.finalizer = FinalizerStep::Idle;
            match result
                .map_err(WriteError::from)
                .and_then(|answer| answer.map_err(Into::into))
            {
                Ok(meta) => {
                    if let Some(view) = &actor.view {
                        let mut view = SetView::clone(view);
                        view.metadata.finalizers = meta.metadata.finalizers;
                        view.metadata.resource_version = meta.metadata.resource_version;
                        actor.view = Some(Arc::new(view));
                    }
                    if wanted {
                        actor.pump(ctx);
                    }
                }
                Err(error) if error.is_not_found() => {} // the set is gone
                Err(error) => {
                    // A conflict brings the newer set, and with it another pump, by the watch.
                    let delay = actor.status_writes.backoff.failed();
                    debug!(replica_set = %actor.id, error = error.text(), "finalizer not written");
                    ctx.run_later(delay, Self::pump);
                }
            }
        }));
    }

    /// Lists the works of this set, which is how a new life begins.
    fn list_works(&mut self, ctx: &mut Context<Self>) {
        let owner = owner_label(&self.id.namespace, &self.id.name);
        let selector = format!(
            "{}={owner}",
            names::MANIFEST_WORK_REPLICA_SET_CONTROLLER_NAME_LABEL_KEY
        );
        let works: Api<WorkView> = Api::all(self.deps.client.clone());
        let task = self
            .deps
            .io
            .run(async move { works.list(&ListParams::default().labels(&selector)).await });
        ctx.spawn(task.into_actor(self).map(|result, actor, ctx| {
            match result.map_err(WriteError::from).and_then(|answer| answer.map_err(Into::into)) {
                Ok(list) => {
                    actor.set.tick(Timestamp::now());
                    for work in list.items {
                        if let Ok(OwnedWork { key, facts, .. }) = actor.reducer.reduce(work)
                            && !actor.fresher_than_list.contains(&key)
                        {
                            actor.set.set_work(key, facts);
                        }
                    }
                    actor.listing = Listing::Not;
                    actor.fresher_than_list.clear();
                    actor.status_writes.due = true;
                    actor.pump(ctx);
                }
                Err(error) => {
                    let delay = actor.status_writes.backoff.failed();
                    warn!(replica_set = %actor.id, error = error.text(), "works not listed, retrying");
                    ctx.run_later(delay, Self::list_works);
                }
            }
        }));
    }

    fn self_check(&self) {
        let (running, recount) = (self.set.status(), self.set.recount());
        if running != recount {
            error!(replica_set = %self.id, ?running, ?recount, "running counters are wrong");
            metrics::recount_differed();
        }
    }
}

impl Actor for ReplicaSetAggregator {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(MAILBOX);
        let check = self.deps.settings.self_check;
        ctx.run_interval(check, |actor, ctx| {
            actor.self_check();
            actor.look_at_standing();
            actor.sweep(ctx);
            actor.look_at_revisions(ctx);
        });
        if self.listing == Listing::First {
            self.list_works(ctx);
        }
    }
}

impl Supervised for ReplicaSetAggregator {
    fn restarting(&mut self, ctx: &mut Self::Context) {
        let (deps, id, again) = (self.deps.clone(), self.id.clone(), self.again.clone());
        *self = Self::new(deps, id.clone(), again, true);
        // The router's mailbox holds only questions; if it is full all the same, its own next
        // list tells everything.
        if self.again.try_send(TellAgain(id)).is_err() {
            ctx.run_later(Duration::from_secs(1), |actor, _| {
                let _ = actor.again.try_send(TellAgain(actor.id.clone()));
            });
        }
    }
}

impl Handler<Fact> for ReplicaSetAggregator {
    type Result = ();

    fn handle(&mut self, fact: Fact, ctx: &mut Self::Context) {
        match fact {
            Fact::Set(view) => self.set_changed(view),
            Fact::Placement(name, facts) => self.set.set_placement(&name, facts),
            Fact::Work(key, facts) => self.work_changed(key, facts.map(|facts| *facts)),
            Fact::Away(away) => self.set.set_away(away),
            Fact::Paused(clusters) => {
                self.paused = clusters;
                self.pause();
            }
            Fact::Complete => self.told = true,
        }
        self.status_writes.due = true;
        self.pump(ctx);
    }
}

impl Handler<Snapshot> for ReplicaSetAggregator {
    type Result = MessageResult<Snapshot>;

    fn handle(&mut self, _: Snapshot, _: &mut Self::Context) -> Self::Result {
        let draft = self.draft();
        let standings = self.set.standings();
        let mut stands = BTreeMap::new();
        for standing in &standings {
            *stands.entry(standing.stand).or_default() += 1;
        }
        let failing = self.failing.iter().take(SHOWN_FAILURES);
        Snapshot::of(&State {
            status: status_writer::status(draft, &self.status, Timestamp::now()),
            revisions: self.revisions.number(),
            in_flight: self.in_flight.len(),
            failing: failing
                .map(|(key, (_, text))| (format!("{}/{}", key.cluster, key.name), &**text))
                .collect(),
            complete: self.complete(),
            stands,
            clusters: standings
                .iter()
                .take(SHOWN_CLUSTERS)
                .map(ClusterState::from)
                .collect(),
        })
    }
}

impl Handler<Stop> for ReplicaSetAggregator {
    type Result = ResponseActFuture<Self, ()>;

    /// Starts no more writes, flushes the status and ends.
    fn handle(&mut self, _: Stop, _: &mut Self::Context) -> Self::Result {
        let flush = self.complete() && self.status_writes.due && !self.deleting();
        self.stopping = true;
        let next = status_writer::status(self.draft(), &self.status, Timestamp::now());
        let task = (flush && next != self.status).then(|| self.patch_status(&next));
        let flushed = async move {
            if let Some(task) = task
                && let Err(error) = task.await
            {
                debug!(error = error.text(), "last status not written");
            }
        };
        Box::pin(flushed.into_actor(self).map(|(), _, ctx| ctx.stop()))
    }
}
