//! `WatchedResource`: one open watch.
//!
//! It lists and watches what its key says, and hands every state to those who subscribed to the
//! object; it keeps no object. Its supervisor hears when the first list is complete, and when the
//! API server refuses the watch. Streams that break in any other way it mends by itself, with
//! client-go's back-off; meanwhile they show in readiness.
//!
//! The watch request is open no longer than its [`Slot`]: that is what the cap counts.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use actix::{
    Actor, ActorContext, AsyncContext, Context, Handler, Message, MessageResult, Recipient,
    SpawnHandle, StreamHandler, Supervised,
};
use kube::core::ApiResource;
use kube::runtime::watcher;
use kube::{Api, Client};
use muster_core::watch_plan::{Resource, Scope, WatchKey};
use serde::Serialize;
use tokio_util::sync::DropGuard;

use super::metrics;
use super::object::WatchedObject;
use super::table::{Denial, Listed, Watches};
use crate::supervision::{Health, Io, Snapshot, Stop};
use crate::watching::{ANEW_AFTER, answer_of, watch_some};

/// Pause before news that the supervisor had no room for are told again.
const TELL_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// One of the watches that the agent may have. Free when the last clone is gone.
pub(super) type Slot = Arc<DropGuard>;

/// What has become of a watch.
#[derive(Debug, Clone, PartialEq, Eq, Message)]
#[rtype(result = "()")]
pub struct WatchNews {
    pub(super) id: u64,
    pub(super) news: News,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum News {
    /// Everything that it shows has been told once.
    Synced,
    /// The API server does not allow it, or does not have the type.
    Refused { denial: Denial, why: String },
}

/// What an open watch shows of itself.
#[derive(Debug, Clone, Serialize)]
pub struct WatchedResourceState {
    /// What it watches.
    pub watch: String,
    /// Whether the first list is complete.
    pub synced: bool,
    /// Objects seen, in lists and events.
    pub seen: u64,
    /// Of those, for how many somebody had subscribed.
    pub wanted: u64,
}

#[derive(Debug, Default)]
struct Counts {
    seen: AtomicU64,
    wanted: AtomicU64,
}

impl Counts {
    fn count(&self, wanted: bool) {
        self.seen.fetch_add(1, Ordering::Relaxed);
        if wanted {
            self.wanted.fetch_add(1, Ordering::Relaxed);
        }
        metrics::event(wanted);
    }
}

/// What a watch is made of.
#[derive(Clone)]
pub(super) struct WatchDeps {
    pub(super) cluster: String,
    pub(super) client: Client,
    pub(super) io: Io,
    pub(super) health: Health,
    pub(super) watches: Arc<Watches>,
}

/// The actor of one open watch.
pub struct WatchedResource {
    deps: WatchDeps,
    id: u64,
    key: WatchKey,
    slot: Slot,
    owner: Recipient<WatchNews>,
    stream: Option<SpawnHandle>,
    synced: bool,
    counts: Arc<Counts>,
}

impl std::fmt::Debug for WatchedResource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WatchedResource")
            .field("id", &self.id)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

impl WatchedResource {
    pub(super) fn new(
        deps: WatchDeps,
        id: u64,
        key: WatchKey,
        slot: Slot,
        owner: Recipient<WatchNews>,
    ) -> Self {
        Self {
            deps,
            id,
            key,
            slot,
            owner,
            stream: None,
            synced: false,
            counts: Arc::default(),
        }
    }

    fn open(&mut self, ctx: &mut Context<Self>) {
        let WatchDeps {
            cluster,
            client,
            io,
            health,
            watches,
        } = self.deps.clone();
        let health = health.optional_stream(stream_name(&cluster, &self.key));
        let (api, mut config) = request(client, &self.key);
        if watches.serves_area(&self.key) {
            // Objects are polled, too, which finds out about a connection that was forgotten on its
            // way. Nobody looks after an area.
            config = config.timeout(ANEW_AFTER);
        }
        let (id, key, counts, slot) = (
            self.id,
            self.key.clone(),
            Arc::clone(&self.counts),
            Arc::clone(&self.slot),
        );
        let mut listing = Listed::default();
        let steps = watch_some(&io, api, config, health, move |step| {
            // As long as the request may be open, so is the slot taken.
            let _taken = &slot;
            match step {
                Ok(watcher::Event::Init) => {
                    listing = Listed::default();
                    watches.listing(&key, id);
                }
                Ok(watcher::Event::InitApply(object)) => {
                    let (namespace, name) =
                        (object.namespace().to_owned(), object.name().to_owned());
                    let wanted = watches.seen(&key.resource, id, object);
                    if wanted {
                        listing.add(&namespace, &name);
                    }
                    counts.count(wanted);
                }
                Ok(watcher::Event::InitDone) => {
                    watches.listed(&key, id, &std::mem::take(&mut listing));
                    return Some(News::Synced);
                }
                Ok(watcher::Event::Apply(object)) => {
                    counts.count(watches.seen(&key.resource, id, object));
                }
                Ok(watcher::Event::Delete(object)) => {
                    counts.count(watches.gone(&key.resource, object));
                }
                Err(error) => {
                    let answer = answer_of(error)?;
                    return Denial::of(answer.code).map(|denial| News::Refused {
                        denial,
                        why: answer.message.clone(),
                    });
                }
            }
            None
        });
        self.stream = Some(ctx.add_stream(steps));
    }

    fn tell(&self, news: News, ctx: &mut Context<Self>) {
        let news = WatchNews { id: self.id, news };
        if let Err(actix::prelude::SendError::Full(WatchNews { news, .. })) =
            self.owner.try_send(news)
        {
            ctx.run_later(TELL_AGAIN_AFTER, move |actor, ctx| actor.tell(news, ctx));
        }
    }
}

/// Name of a watch in readiness, by what it watches.
pub(crate) fn stream_name(cluster: &str, what: &impl fmt::Display) -> String {
    format!("{cluster} watch of {what}")
}

/// The request of a watch.
fn request(client: Client, key: &WatchKey) -> (Api<WatchedObject>, watcher::Config) {
    let config = watcher::Config::default();
    let of = |namespace: Option<&str>| api_of(client, &key.resource, namespace);
    match &key.scope {
        Scope::Cluster => (of(None), config),
        Scope::Namespace(namespace) => (of(Some(namespace)), config),
        Scope::Object { namespace, name } => {
            let only = format!("metadata.name={name}");
            (of(Some(namespace)), config.fields(&only))
        }
    }
}

/// Objects of a type in a namespace; none, or an empty one, is the whole cluster.
pub(crate) fn api_of(
    client: Client,
    resource: &Resource,
    namespace: Option<&str>,
) -> Api<WatchedObject> {
    let resource = api_resource(resource);
    match namespace.filter(|namespace| !namespace.is_empty()) {
        Some(namespace) => Api::namespaced_with(client, namespace, &resource),
        None => Api::all_with(client, &resource),
    }
}

/// A type as the client wants it. The kind is of no use for a path.
fn api_resource(resource: &Resource) -> ApiResource {
    let (group, version) = (resource.group(), resource.version());
    ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: api_version(resource),
        kind: String::new(),
        plural: resource.resource().to_owned(),
    }
}

/// Group and version in one text, as objects have them.
pub fn api_version(resource: &Resource) -> String {
    match resource.group() {
        "" => resource.version().to_owned(),
        group => format!("{group}/{}", resource.version()),
    }
}

impl Actor for WatchedResource {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.open(ctx);
    }
}

impl Supervised for WatchedResource {
    fn restarting(&mut self, _: &mut Self::Context) {
        self.stream = None;
        self.synced = false;
    }
}

impl StreamHandler<News> for WatchedResource {
    fn handle(&mut self, news: News, ctx: &mut Self::Context) {
        let again = news == News::Synced && self.synced;
        self.synced |= news == News::Synced;
        if !again {
            self.tell(news, ctx);
        }
    }

    /// The stream ends only with the runtime; the default would stop this actor.
    fn finished(&mut self, _: &mut Self::Context) {}
}

impl Handler<Snapshot> for WatchedResource {
    type Result = MessageResult<Snapshot>;

    fn handle(&mut self, _: Snapshot, _: &mut Self::Context) -> Self::Result {
        Snapshot::of(&WatchedResourceState {
            watch: self.key.to_string(),
            synced: self.synced,
            seen: self.counts.seen.load(Ordering::Relaxed),
            wanted: self.counts.wanted.load(Ordering::Relaxed),
        })
    }
}

impl Handler<Stop> for WatchedResource {
    type Result = ();

    fn handle(&mut self, _: Stop, ctx: &mut Self::Context) {
        if let Some(stream) = self.stream.take() {
            ctx.cancel_future(stream);
        }
        ctx.stop();
    }
}
