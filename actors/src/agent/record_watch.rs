//! The cluster's side of what [`ClusterAgent`] knows: records, and which of them have no work.
//!
//! A record whose work is there belongs to the actor of that work, which hears of every change to
//! it. One without a work, or with the name of another hub, gets an [`Eviction`]. Nothing is
//! evicted before the hub has listed its works once.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use actix::{
    ActorFutureExt, Addr, AsyncContext, Context, Handler, SpawnHandle, StreamHandler,
    fut::wrap_future,
};
use kube::Api;
use kube::runtime::watcher;
use muster_api::work::AppliedManifestWork;
use tracing::warn;

use super::access_watch::{AccessChanged, AccessWatch};
use super::applied_work::name_of;
use super::cluster_agent::{ClusterAgent, STOP_LIMIT};
use super::eviction::{Eviction, LookAgain};
use super::manifest_work::{ExecutorUsed, RecordSeen};
use super::{metrics, records};
use crate::supervision::{stop, tell};
use crate::watching::{Seen, watch};

/// A record as far as it matters here.
#[derive(Debug)]
pub(super) struct Record {
    name: Arc<str>,
    work: Arc<str>,
    /// Whether this agent made it.
    own: bool,
    version: u64,
}

/// The eviction of a record, from the side of its owner.
#[derive(Debug)]
enum Ending {
    Running(Addr<Eviction>),
    Stopping(Addr<Eviction>),
}

impl Ending {
    const fn addr(&self) -> &Addr<Eviction> {
        match self {
            Self::Running(addr) | Self::Stopping(addr) => addr,
        }
    }
}

/// The records of this agent, and who sees to those without a work.
#[derive(Debug, Default)]
pub(super) struct RecordBook {
    /// The work of each record.
    works: HashMap<Arc<str>, Arc<str>>,
    endings: HashMap<Arc<str>, Ending>,
    /// The records named by the list under way.
    listing: Option<HashSet<Arc<str>>>,
    stream: Option<SpawnHandle>,
    access: Option<Addr<AccessWatch>>,
}

impl RecordBook {
    /// Forgets what a new list says again; evictions go on.
    pub(super) fn restarting(&mut self) {
        self.listing = None;
        self.stream = None;
    }

    /// Ends the watch, so that nothing new starts.
    pub(super) fn close(&mut self, ctx: &mut Context<ClusterAgent>) {
        if let Some(stream) = self.stream.take() {
            ctx.cancel_future(stream);
        }
    }

    /// Evictions at present.
    pub(super) fn evictions(&self) -> Vec<Addr<Eviction>> {
        self.endings
            .values()
            .map(|end| end.addr().clone())
            .collect()
    }

    /// The watch of rights, if any work needed it.
    pub(super) fn access(&self) -> Option<Addr<AccessWatch>> {
        self.access.clone()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

impl ClusterAgent {
    pub(super) fn watch_records(&mut self, ctx: &mut Context<Self>) {
        // After a restart nobody waits any more for those that were being stopped.
        let stopping = self
            .book
            .endings
            .iter()
            .filter_map(|(name, end)| match end {
                Ending::Stopping(addr) => Some((Arc::clone(name), addr.clone())),
                Ending::Running(_) => None,
            });
        for (name, addr) in stopping.collect::<Vec<_>>() {
            Self::await_end(name, addr, ctx);
        }
        let health = format!("{} records", self.deps.cluster);
        let health = self.deps.health.stream(health);
        let api: Api<AppliedManifestWork> = Api::all(self.deps.spoke.clone());
        let agent_id = self.env.identity.agent_id.clone();
        let reduce = move |record: AppliedManifestWork| Record {
            version: records::version_of(&record),
            own: record.spec.agent_id == agent_id,
            work: record.spec.manifest_work_name.into(),
            name: record.metadata.name.unwrap_or_default().into(),
        };
        let config = watcher::Config::default();
        let records = watch(&self.deps.io, api, config, health, reduce);
        self.book.stream = Some(ctx.add_stream(records));
    }

    fn record_seen(&mut self, record: Record, ctx: &mut Context<Self>) {
        let Record {
            name,
            work,
            own,
            version,
        } = record;
        if let Some(listed) = &mut self.book.listing {
            listed.insert(Arc::clone(&name));
        }
        if !own {
            // Another agent has taken it over, or it never was ours.
            self.record_gone(&name, ctx);
            return;
        }
        self.env.records.seen(&name, version);
        self.book.works.insert(Arc::clone(&name), Arc::clone(&work));
        if self.is_wanted(&name, &work) {
            self.tell_of_record(&work, Some(version));
        } else if let Some(Ending::Running(addr)) = self.book.endings.get(&name) {
            // One that has no room has a look before it.
            let _ = tell(addr, LookAgain);
        }
        self.judge(&name, ctx);
    }

    fn record_gone(&mut self, name: &Arc<str>, ctx: &mut Context<Self>) {
        self.env.records.gone(name);
        if let Some(work) = self.book.works.remove(name)
            && self.is_wanted(name, &work)
        {
            self.tell_of_record(&work, None);
        }
        self.stop_eviction(name, ctx);
    }

    /// What does not reach the actor of a work is found out by its next poll.
    fn tell_of_record(&self, work: &Arc<str>, version: Option<u64>) {
        if let Some(addr) = self.child(work) {
            let _ = tell(&addr, RecordSeen(version));
        }
    }

    /// Whether there is a work that the record is for.
    fn is_wanted(&self, record: &str, work: &str) -> bool {
        self.has_work(work) && name_of(&self.env.identity, work) == record
    }

    /// Starts or stops the eviction of a record.
    fn judge(&mut self, record: &Arc<str>, ctx: &mut Context<Self>) {
        if self.is_stopping() || !self.is_synced() {
            return;
        }
        let Some(work) = self.book.works.get(record) else {
            return;
        };
        if self.is_wanted(record, work) {
            self.stop_eviction(record, ctx);
        } else if !self.book.endings.contains_key(record) {
            let (env, io) = (Arc::clone(&self.env), self.deps.io.clone());
            let actor = Eviction::new(env, io, Arc::clone(record));
            let label = format!("{}/{record}", self.deps.cluster);
            let addr = self.deps.registry.start("Eviction", label, actor);
            let record = Arc::clone(record);
            self.book.endings.insert(record, Ending::Running(addr));
            metrics::evicting(&self.deps.cluster, self.book.endings.len());
        }
    }

    /// The set of works has changed by this one.
    pub(super) fn judge_record_of(&mut self, work: &str, ctx: &mut Context<Self>) {
        let record = name_of(&self.env.identity, work).into();
        self.judge(&record, ctx);
    }

    /// The works have been listed.
    pub(super) fn judge_all(&mut self, ctx: &mut Context<Self>) {
        for record in self.book.works.keys().cloned().collect::<Vec<_>>() {
            self.judge(&record, ctx);
        }
    }

    fn stop_eviction(&mut self, record: &Arc<str>, ctx: &mut Context<Self>) {
        if let Some(Ending::Running(addr)) = self.book.endings.get(record) {
            let addr = addr.clone();
            let stopping = Ending::Stopping(addr.clone());
            self.book.endings.insert(Arc::clone(record), stopping);
            Self::await_end(Arc::clone(record), addr, ctx);
        }
    }

    fn await_end(record: Arc<str>, addr: Addr<Eviction>, ctx: &mut Context<Self>) {
        let stopped = async move { stop(&addr, STOP_LIMIT).await };
        ctx.spawn(
            wrap_future::<_, Self>(stopped).map(move |in_time, actor, ctx| {
                if !in_time {
                    let cluster = &actor.deps.cluster;
                    warn!(cluster, %record, "eviction did not stop in time");
                }
                actor.book.endings.remove(&record);
                metrics::evicting(&actor.deps.cluster, actor.book.endings.len());
                actor.judge(&record, ctx);
            }),
        );
    }

    /// Ends a list of records: what it did not name is gone.
    fn records_listed(&mut self, ctx: &mut Context<Self>) {
        let listed = self.book.listing.take().unwrap_or_default();
        let known = self.book.works.keys();
        let gone: Vec<_> = known
            .filter(|name| !listed.contains(*name))
            .cloned()
            .collect();
        for name in gone {
            self.record_gone(&name, ctx);
        }
    }
}

impl StreamHandler<Seen<Record>> for ClusterAgent {
    fn handle(&mut self, seen: Seen<Record>, ctx: &mut Self::Context) {
        if self.is_stopping() {
            return;
        }
        match seen {
            Seen::Listing => {
                // Nothing is known of the time before it.
                self.env.records.forget();
                self.book.listing = Some(HashSet::new());
            }
            Seen::Item(record) | Seen::Changed(record) => self.record_seen(record, ctx),
            Seen::Listed => self.records_listed(ctx),
            Seen::Gone(record) => self.record_gone(&record.name, ctx),
        }
    }

    /// The stream ends only with the runtime; the default would stop this actor.
    fn finished(&mut self, _: &mut Self::Context) {}
}

/// The first work with an executor makes the agent watch who may do what.
impl Handler<ExecutorUsed> for ClusterAgent {
    type Result = ();

    fn handle(&mut self, _: ExecutorUsed, ctx: &mut Self::Context) {
        if self.book.access.is_none() && !self.is_stopping() {
            let actor = AccessWatch::new(
                Arc::clone(&self.env),
                self.deps.spoke.clone(),
                self.deps.io.clone(),
                self.deps.health.clone(),
                ctx.address().recipient(),
            );
            let label = self.deps.cluster.clone();
            let addr = self.deps.registry.start("AccessWatch", label, actor);
            self.book.access = Some(addr);
        }
    }
}

impl Handler<AccessChanged> for ClusterAgent {
    type Result = ();

    fn handle(&mut self, _: AccessChanged, _: &mut Self::Context) {
        for addr in self.running() {
            // One that has no room asks again at its next poll.
            let _ = tell(addr, AccessChanged);
        }
    }
}
