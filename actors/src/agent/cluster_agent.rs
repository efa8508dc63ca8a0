//! `ClusterAgent`: which works the cluster has.
//!
//! It watches the cluster's namespace on the hub and has one [`ManifestWork`] actor for each work
//! there. Each state of a work goes to its actor, the newest always arriving; works that are gone,
//! also those that went while the watch was down, have their actors stopped. After a restart it
//! lists again and keeps the actors it has. What it does with the records on the cluster is in
//! `record_watch`.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use actix::{
    Actor, ActorContext, ActorFutureExt, Addr, AsyncContext, Context, Handler, Message,
    MessageResult, ResponseActFuture, SpawnHandle, StreamHandler, Supervised, fut::wrap_future,
};
use futures::StreamExt;
use futures::future::join_all;
use jiff::Timestamp;
use kube::Api;
use kube::runtime::watcher;
use muster_api::work::RawManifestWork;
use muster_workclient::events::ConnectionState;
use serde::Serialize;
use tokio_stream::wrappers::WatchStream;
use tracing::{info, warn};

use super::eviction::LookAgain;
use super::reconcile::{Env, Heard};
use super::record_watch::RecordBook;
use super::work::Work;
use super::{AgentDeps, AgentSettings, ManifestWork, SettingsChanged, WorkChanged, metrics};
use crate::event_link::say;
use crate::rules::{ClusterDeps, Rules};
use crate::supervision::{Outbox, Snapshot, Stop, StreamHealth, stop, tell};
use crate::watch::{ChangeLimits, WatchSupervisor};
use crate::watching::{Seen, watch};

/// How long the actor of a work may take to end. It cancels what it does, so this is only
/// reached when the arbiter itself is stuck.
pub(super) const STOP_LIMIT: Duration = Duration::from_secs(5);

/// Pause before messages that did not fit are tried again.
const FLUSH_AFTER: Duration = Duration::from_millis(50);

/// Replaces the settings of the agent; takes effect at once.
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub struct ChangeSettings(pub AgentSettings);

/// What the agent of a cluster shows of itself.
#[derive(Debug, Clone, Serialize)]
pub struct ClusterAgentState {
    /// Name of the cluster.
    pub cluster: String,
    /// Works that have an actor.
    pub works: usize,
    /// Whether the works on the hub have been listed.
    pub synced: bool,
    /// Records on the cluster whose work the hub does not have.
    pub evictions: usize,
}

/// The actor of a work, from the side of its owner.
#[derive(Debug)]
enum Child {
    Running(Addr<ManifestWork>),
    /// It is being stopped.
    Stopping {
        addr: Addr<ManifestWork>,
        /// The state of the work, should it come back meanwhile.
        next: Option<Work>,
    },
}

/// The actor of one managed cluster.
#[derive(Debug)]
pub struct ClusterAgent {
    pub(super) deps: AgentDeps,
    pub(super) env: Arc<Env>,
    /// Records on the cluster.
    pub(super) book: RecordBook,
    children: HashMap<Arc<str>, Child>,
    /// States that an actor had no room for.
    outbox: Outbox<Arc<str>, WorkChanged>,
    flushing: bool,
    works: Option<SpawnHandle>,
    /// How the link to the hub goes.
    link: Vec<SpawnHandle>,
    link_health: Option<StreamHealth>,
    watches: Option<Addr<WatchSupervisor>>,
    rules: Option<Rules>,
    /// The works named by the list under way.
    listing: Option<HashSet<Arc<str>>>,
    synced: bool,
    /// A cancelled stream may still give what it had ready: nothing new starts any more.
    stopping: bool,
}

impl ClusterAgent {
    pub(super) fn new(deps: AgentDeps) -> Self {
        let env = Arc::new(Env::new(&deps));
        Self {
            deps,
            env,
            book: RecordBook::default(),
            children: HashMap::new(),
            outbox: Outbox::default(),
            flushing: false,
            works: None,
            link: Vec::new(),
            link_health: None,
            watches: None,
            rules: None,
            listing: None,
            synced: false,
            stopping: false,
        }
    }

    pub(super) fn child(&self, name: &Arc<str>) -> Option<Addr<ManifestWork>> {
        match self.children.get(name) {
            Some(Child::Running(addr)) => Some(addr.clone()),
            _ => None,
        }
    }

    /// Whether the hub has this work. One whose actor is being stopped is gone.
    pub(super) fn has_work(&self, name: &str) -> bool {
        match self.children.get(name) {
            Some(Child::Running(_)) => true,
            Some(Child::Stopping { next, .. }) => next.is_some(),
            None => false,
        }
    }

    /// Whether the works on the hub have been listed.
    pub(super) const fn is_synced(&self) -> bool {
        self.synced
    }

    /// Whether nothing new may start.
    pub(super) const fn is_stopping(&self) -> bool {
        self.stopping
    }

    pub(super) fn running(&self) -> impl Iterator<Item = &Addr<ManifestWork>> {
        self.children.values().filter_map(|child| match child {
            Child::Running(addr) => Some(addr),
            Child::Stopping { .. } => None,
        })
    }

    fn work_seen(&mut self, work: Work, ctx: &mut Context<Self>) {
        let name = Arc::clone(&work.name);
        if let Some(listed) = &mut self.listing {
            listed.insert(Arc::clone(&name));
        }
        match self.children.get_mut(&name) {
            Some(Child::Running(addr)) => {
                self.outbox.tell(name, addr, WorkChanged(work));
                self.flush_later(ctx);
            }
            Some(Child::Stopping { next, .. }) => *next = Some(work),
            None => self.start_child(work, ctx),
        }
    }

    fn start_child(&mut self, work: Work, ctx: &mut Context<Self>) {
        let name = Arc::clone(&work.name);
        self.env.claims.expect(&name);
        let (env, io) = (Arc::clone(&self.env), self.deps.io.clone());
        let actor = ManifestWork::new(env, io, work, ctx.address().recipient());
        let label = format!("{}/{name}", self.deps.cluster);
        let addr = self.deps.registry.start("ManifestWork", label, actor);
        self.children
            .insert(Arc::clone(&name), Child::Running(addr));
        metrics::works(&self.deps.cluster, self.children.len());
        self.judge_record_of(&name, ctx);
    }

    fn stop_child(&mut self, name: Arc<str>, ctx: &mut Context<Self>) {
        self.outbox.forget(&name);
        if let Some(addr) = self.child(&name) {
            let stopping = Child::Stopping {
                addr: addr.clone(),
                next: None,
            };
            self.children.insert(Arc::clone(&name), stopping);
            Self::await_stop(name, addr, ctx);
        }
    }

    fn await_stop(name: Arc<str>, addr: Addr<ManifestWork>, ctx: &mut Context<Self>) {
        let stopped = async move { stop(&addr, STOP_LIMIT).await };
        ctx.spawn(
            wrap_future::<_, Self>(stopped).map(move |in_time, actor, ctx| {
                if !in_time {
                    warn!(cluster = actor.deps.cluster, work = %name, "work did not stop in time");
                }
                actor.child_stopped(&name, ctx);
            }),
        );
    }

    fn child_stopped(&mut self, name: &Arc<str>, ctx: &mut Context<Self>) {
        if let Some(Child::Stopping {
            next: Some(work), ..
        }) = self.children.remove(name)
        {
            self.start_child(work, ctx);
        } else {
            self.env.claims.forget(name);
            self.judge_record_of(name, ctx);
        }
        if self.children.is_empty() {
            self.env.spoke.idle();
        }
        metrics::works(&self.deps.cluster, self.children.len());
    }

    /// Ends a list: what it did not name is gone.
    fn listed(&mut self, ctx: &mut Context<Self>) {
        let listed = self.listing.take().unwrap_or_default();
        let gone: Vec<_> = self
            .children
            .keys()
            .filter(|name| !listed.contains(*name))
            .cloned()
            .collect();
        for name in gone {
            self.stop_child(name, ctx);
        }
        if !self.synced {
            info!(
                cluster = self.deps.cluster,
                works = listed.len(),
                "works listed"
            );
        }
        self.synced = true;
        self.judge_all(ctx);
    }

    fn flush_later(&mut self, ctx: &mut Context<Self>) {
        if self.outbox.is_empty() || self.flushing {
            return;
        }
        self.flushing = true;
        ctx.run_later(FLUSH_AFTER, |actor, ctx| {
            actor.flushing = false;
            let mut outbox = std::mem::take(&mut actor.outbox);
            outbox.flush(|name| actor.child(name));
            actor.outbox = outbox;
            actor.flush_later(ctx);
        });
    }
}

impl Actor for ClusterAgent {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        // After a restart nobody waits any more for those that were being stopped.
        for (name, child) in &self.children {
            if let Child::Stopping { addr, .. } = child {
                Self::await_stop(Arc::clone(name), addr.clone(), ctx);
            }
        }
        self.start_watches();
        self.follow_link(ctx);
        self.watch_works(ctx);
        self.watch_records(ctx);
    }
}

impl ClusterAgent {
    fn start_watches(&mut self) {
        // It outlives a restart of its owner.
        if self.watches.is_none() {
            let actor = WatchSupervisor::new(
                self.deps.cluster.clone(),
                self.deps.spoke.clone(),
                Arc::clone(&self.env.watches),
                self.env.settings().watch,
                self.deps.io.clone(),
                self.deps.registry.clone(),
                self.deps.health.clone(),
            );
            let label = self.deps.cluster.clone();
            let addr = self.deps.registry.start("WatchSupervisor", label, actor);
            self.watches = Some(addr);
        }
        let (None, Some(supervisor), Some(rules)) =
            (&self.rules, self.watches.clone(), self.deps.rules.clone())
        else {
            return;
        };
        let of = ClusterDeps {
            cluster: self.deps.cluster.clone(),
            client: self.deps.spoke.clone(),
            io: self.deps.io.clone(),
            registry: self.deps.registry.clone(),
            health: self.deps.health.clone(),
            watches: Arc::clone(&self.env.watches),
            supervisor,
        };
        self.rules = Some(Rules::start(of, rules));
    }

    fn follow_link(&mut self, ctx: &mut Context<Self>) {
        if let Some(link) = self.deps.hub_link.clone() {
            let name = format!("{} events", self.deps.cluster);
            self.link_health = Some(self.deps.health.stream(name));
            let heard = WatchStream::new(link.heard).map(HeardSince);
            self.link = vec![
                ctx.add_stream(WatchStream::new(link.state)),
                ctx.add_stream(heard),
            ];
        }
    }

    fn watch_works(&mut self, ctx: &mut Context<Self>) {
        let health = self
            .deps
            .health
            .stream(format!("{} works", self.deps.cluster));
        let api: Api<RawManifestWork> = Api::namespaced(self.deps.hub.clone(), &self.deps.cluster);
        let works = watch(
            &self.deps.io,
            api,
            watcher::Config::default(),
            health,
            Work::from,
        );
        self.works = Some(ctx.add_stream(works));
    }
}

impl Supervised for ClusterAgent {
    fn restarting(&mut self, _: &mut Self::Context) {
        // The actors of works live on; the list says which of them still have one.
        self.outbox = Outbox::default();
        self.flushing = false;
        self.works = None;
        self.link.clear();
        self.listing = None;
        self.synced = false;
        self.stopping = false;
        self.book.restarting();
    }
}

impl StreamHandler<Seen<Work>> for ClusterAgent {
    fn handle(&mut self, seen: Seen<Work>, ctx: &mut Self::Context) {
        if self.stopping {
            return;
        }
        match seen {
            Seen::Listing => self.listing = Some(HashSet::new()),
            Seen::Item(work) | Seen::Changed(work) => self.work_seen(work, ctx),
            Seen::Listed => self.listed(ctx),
            Seen::Gone(work) => self.stop_child(work.name, ctx),
        }
    }

    /// The stream ends only with the runtime; the default would stop this actor.
    fn finished(&mut self, _: &mut Self::Context) {}
}

/// Since when a source of works has been heard.
#[derive(Debug)]
struct HeardSince(Option<Timestamp>);

impl StreamHandler<ConnectionState> for ClusterAgent {
    fn handle(&mut self, state: ConnectionState, _: &mut Self::Context) {
        if let Some(health) = &self.link_health {
            say(health, &state);
        }
    }

    fn finished(&mut self, _: &mut Self::Context) {}
}

impl StreamHandler<HeardSince> for ClusterAgent {
    fn handle(&mut self, HeardSince(since): HeardSince, _: &mut Self::Context) {
        self.env.set_heard(since.map_or(Heard::Not, Heard::Since));
        self.wake_evictions();
    }

    fn finished(&mut self, _: &mut Self::Context) {}
}

impl ClusterAgent {
    fn wake_evictions(&self) {
        for addr in self.book.evictions() {
            // One that has no room has a look before it.
            let _ = tell(&addr, LookAgain);
        }
    }
}

impl Handler<ChangeSettings> for ClusterAgent {
    type Result = ();

    fn handle(&mut self, ChangeSettings(settings): ChangeSettings, _: &mut Self::Context) {
        let limits = settings.watch;
        self.env.change_settings(settings);
        if let Some(watches) = &self.watches {
            // Its mailbox has room for far more than all news of its watches.
            let _ = tell(watches, ChangeLimits(limits));
        }
        for addr in self.running() {
            // One that has no room polls once more at its old pace.
            let _ = tell(addr, SettingsChanged);
        }
        self.wake_evictions();
    }
}

impl Handler<Snapshot> for ClusterAgent {
    type Result = MessageResult<Snapshot>;

    fn handle(&mut self, _: Snapshot, _: &mut Self::Context) -> Self::Result {
        Snapshot::of(&ClusterAgentState {
            cluster: self.deps.cluster.clone(),
            works: self.running().count(),
            synced: self.synced,
            evictions: self.book.evictions().len(),
        })
    }
}

/// First the watch, so that no work starts any more, then the works, then itself.
impl Handler<Stop> for ClusterAgent {
    type Result = ResponseActFuture<Self, ()>;

    fn handle(&mut self, _: Stop, ctx: &mut Self::Context) -> Self::Result {
        self.stopping = true;
        for stream in self.works.take().into_iter().chain(self.link.drain(..)) {
            ctx.cancel_future(stream);
        }
        self.book.close(ctx);
        for child in self.children.values_mut() {
            if let Child::Stopping { next, .. } = child {
                *next = None;
            }
        }
        let addr = |child: &Child| match child {
            Child::Running(addr) | Child::Stopping { addr, .. } => addr.clone(),
        };
        let children: Vec<_> = self.children.values().map(addr).collect();
        let (evictions, access) = (self.book.evictions(), self.book.access());
        let watches = self.watches.clone();
        let rules = self.rules.take();
        let stopped = async move {
            if let Some(rules) = rules {
                rules.stop().await;
            }
            join_all(children.iter().map(|addr| stop(addr, STOP_LIMIT))).await;
            join_all(evictions.iter().map(|addr| stop(addr, STOP_LIMIT))).await;
            join_all(access.iter().map(|addr| stop(addr, STOP_LIMIT))).await;
            join_all(watches.iter().map(|addr| stop(addr, STOP_LIMIT))).await;
        };
        Box::pin(wrap_future::<_, Self>(stopped).map(|(), actor, ctx| {
            actor.children.clear();
            actor.book.clear();
            metrics::works(&actor.deps.cluster, 0);
            ctx.stop();
        }))
    }
}
