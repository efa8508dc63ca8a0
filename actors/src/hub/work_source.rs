//! Sends the hub's works over a bus.
//!
//! ```text
//!  hub API ──watch──► HubEvents ◄──► bus
//!     ▲                   │ statuses
//!     └───────────────────┘
//! ```
//!
//! What is sent, and when, is decided in `muster-workclient`; this actor watches the works, joins the
//! bus when they have been listed first, and says how that goes. It holds nothing that a restart
//! would lose.

use std::fmt;
use std::sync::Arc;

use actix::{
    Actor, ActorContext, Addr, AsyncContext, Context, Handler, MessageResult, SpawnHandle,
    StreamHandler, Supervised,
};
use kube::Api;
use kube::runtime::watcher;
use muster_api::work::RawManifestWork;
use muster_workclient::Bus;
use muster_workclient::events::{ConnectionState, EventLink, HubEvents};
use serde::Serialize;
use tokio_stream::wrappers::WatchStream;
use tracing::info;

use super::HubDeps;
use crate::event_link::say;
use crate::supervision::{Snapshot, Stop, StreamHealth};
use crate::watching::{ANEW_AFTER, watch_some};

/// All works have been listed.
#[derive(Debug)]
struct Listed;

/// What the source shows of itself.
#[derive(Debug, Serialize)]
pub struct WorkSourceState {
    /// Works that it has.
    pub works: usize,
    /// Works whose last state is not at the broker yet.
    pub waiting: usize,
    /// How the link goes.
    pub link: String,
}

/// See the module.
pub struct WorkSource {
    deps: HubDeps,
    events: HubEvents,
    bus: Arc<dyn Bus>,
    link: Option<EventLink>,
    health: StreamHealth,
    streams: Vec<SpawnHandle>,
}

impl fmt::Debug for WorkSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkSource")
            .field("events", &self.events)
            .field("link", &self.link)
            .finish_non_exhaustive()
    }
}

impl WorkSource {
    /// Starts on the current arbiter.
    pub fn start(deps: HubDeps, events: HubEvents, bus: Arc<dyn Bus>) -> Addr<Self> {
        let registry = deps.registry.clone();
        let health = deps.health.stream("hub/events");
        let actor = Self {
            deps,
            events,
            bus,
            link: None,
            health,
            streams: Vec::new(),
        };
        registry.start("WorkSource", "hub", actor)
    }

    fn watch_works(&mut self, ctx: &mut Context<Self>) {
        let events = self.events.clone();
        let config = watcher::Config {
            timeout: Some(ANEW_AFTER),
            ..watcher::Config::default()
        };
        // All is done where the watch runs: works by the thousand never touch an arbiter.
        let listed = watch_some(
            &self.deps.io,
            Api::<RawManifestWork>::all(self.deps.client.clone()),
            config,
            self.deps.health.stream("hub/event works"),
            move |step| {
                match step {
                    Ok(watcher::Event::Init) => events.listing(),
                    Ok(watcher::Event::InitApply(work) | watcher::Event::Apply(work)) => {
                        events.seen(&work);
                    }
                    Ok(watcher::Event::Delete(work)) => {
                        events.gone(work.metadata.uid.as_deref().unwrap_or_default());
                    }
                    Ok(watcher::Event::InitDone) => {
                        events.listed();
                        return Some(Listed);
                    }
                    Err(_) => {}
                }
                None
            },
        );
        self.streams.push(ctx.add_stream(listed));
    }

    fn follow_link(&mut self, ctx: &mut Context<Self>) {
        if let Some(link) = &self.link {
            let states = WatchStream::new(link.state());
            self.streams.push(ctx.add_stream(states));
        }
    }
}

impl Actor for WorkSource {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.watch_works(ctx);
        self.follow_link(ctx);
    }
}

impl Supervised for WorkSource {
    /// The link lives on.
    fn restarting(&mut self, _: &mut Self::Context) {
        self.streams.clear();
    }
}

impl StreamHandler<Listed> for WorkSource {
    fn handle(&mut self, _: Listed, ctx: &mut Self::Context) {
        if self.link.is_none() {
            info!(works = self.events.works(), "works listed, joining the bus");
            let (events, bus) = (self.events.clone(), Arc::clone(&self.bus));
            self.link = Some(self.deps.io.enter(|| events.join(&*bus)));
            self.follow_link(ctx);
        }
    }

    fn finished(&mut self, _: &mut Self::Context) {}
}

impl StreamHandler<ConnectionState> for WorkSource {
    fn handle(&mut self, state: ConnectionState, _: &mut Self::Context) {
        say(&self.health, &state);
    }

    fn finished(&mut self, _: &mut Self::Context) {}
}

impl Handler<Snapshot> for WorkSource {
    type Result = MessageResult<Snapshot>;

    fn handle(&mut self, _: Snapshot, _: &mut Self::Context) -> Self::Result {
        let link = self.link.as_ref();
        Snapshot::of(&WorkSourceState {
            works: self.events.works(),
            waiting: link.map_or(0, EventLink::waiting),
            link: link.map_or_else(
                || "not yet: works are being listed".to_owned(),
                |link| format!("{:?}", *link.state().borrow()),
            ),
        })
    }
}

impl Handler<Stop> for WorkSource {
    type Result = ();

    fn handle(&mut self, _: Stop, ctx: &mut Self::Context) {
        for stream in self.streams.drain(..) {
            ctx.cancel_future(stream);
        }
        self.link = None;
        ctx.stop();
    }
}
