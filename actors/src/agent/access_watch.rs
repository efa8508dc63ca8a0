//! `AccessWatch`: sees when rights change on the cluster.
//!
//! It watches Roles, ClusterRoles and their bindings and keeps nothing of them. Any change makes
//! [`Access`] forget its answers at once, and again after a moment, when the works that have an
//! executor are told to look again. It starts when the first such work shows up: most clusters
//! never have one.
//!
//! The moment is for the API server, whose authorizer hears of a change through a watch of its
//! own and may still answer by the old rights when this actor has seen the new ones.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use actix::{
    Actor, ActorContext, AsyncContext, Context, Handler, Message, MessageResult, Recipient,
    SpawnHandle, StreamHandler, Supervised,
};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::runtime::watcher;
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::reconcile::Env;
use crate::supervision::{Health, Io, Snapshot, Stop};
use crate::watching::{Seen, watch};

/// How long the API server may take to act on a change that it has already told.
const SETTLES_WITHIN: Duration = Duration::from_secs(1);

/// Kinds whose objects give rights.
const KINDS: usize = 4;

/// Rights on the cluster have changed: works with an executor are to be looked at.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "()")]
pub struct AccessChanged;

/// What the watch of rights shows of itself.
#[derive(Debug, Clone, Serialize)]
pub struct AccessWatchState {
    /// Whether all kinds are watched, without which no answer is remembered.
    pub synced: bool,
    /// Changes of rights seen since it started.
    pub changes: u64,
}

/// One step of the watch of one kind.
#[derive(Debug)]
struct Step {
    kind: usize,
    seen: Seen<()>,
}

/// The actor that sees changes of rights on one cluster.
pub struct AccessWatch {
    env: Arc<Env>,
    cluster: String,
    client: Client,
    io: Io,
    health: Health,
    owner: Recipient<AccessChanged>,
    listed: [bool; KINDS],
    settling: Option<SpawnHandle>,
    changes: u64,
}

impl std::fmt::Debug for AccessWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccessWatch")
            .field("cluster", &self.cluster)
            .field("listed", &self.listed)
            .finish_non_exhaustive()
    }
}

impl AccessWatch {
    pub(super) fn new(
        env: Arc<Env>,
        client: Client,
        io: Io,
        health: Health,
        owner: Recipient<AccessChanged>,
    ) -> Self {
        Self {
            cluster: env.cluster.clone(),
            env,
            client,
            io,
            health,
            owner,
            listed: [false; KINDS],
            settling: None,
            changes: 0,
        }
    }

    fn synced(&self) -> bool {
        self.listed.iter().all(|listed| *listed)
    }

    fn watch_kind(&self, kind: usize, ctx: &mut Context<Self>) {
        match kind {
            0 => self.watch_all::<Role>(kind, ctx),
            1 => self.watch_all::<RoleBinding>(kind, ctx),
            2 => self.watch_all::<ClusterRole>(kind, ctx),
            _ => self.watch_all::<ClusterRoleBinding>(kind, ctx),
        }
    }

    fn watch_all<K>(&self, kind: usize, ctx: &mut Context<Self>)
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        use futures::StreamExt;
        let name = format!("{} {}", self.cluster, K::plural(&()));
        let api: Api<K> = Api::all(self.client.clone());
        let health = self.health.stream(name);
        let config = watcher::Config::default();
        let steps = watch(&self.io, api, config, health, |_| ());
        ctx.add_stream(steps.map(move |seen| Step { kind, seen }));
    }

    fn changed(&mut self, ctx: &mut Context<Self>) {
        self.changes += 1;
        self.env.access.changed();
        self.settle_later(ctx);
    }

    fn settle_later(&mut self, ctx: &mut Context<Self>) {
        if self.settling.is_none() {
            let changes = self.changes;
            self.settling = Some(ctx.run_later(SETTLES_WITHIN, move |actor, ctx| {
                actor.settling = None;
                actor.env.access.changed();
                let told = actor.owner.try_send(AccessChanged).is_ok();
                // A change since then has not had its time yet; and what found no room is said
                // later.
                if !told || actor.changes != changes {
                    actor.settle_later(ctx);
                }
            }));
        }
    }
}

impl Actor for AccessWatch {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        for kind in 0..KINDS {
            self.watch_kind(kind, ctx);
        }
    }
}

impl Supervised for AccessWatch {
    fn restarting(&mut self, _: &mut Self::Context) {
        self.env.access.watched(false);
        self.listed = [false; KINDS];
        self.settling = None;
    }
}

impl StreamHandler<Step> for AccessWatch {
    fn handle(&mut self, Step { kind, seen }: Step, ctx: &mut Self::Context) {
        match seen {
            // A list follows a gap, in which anything may have changed.
            Seen::Listing => {
                self.listed[kind] = false;
                self.env.access.watched(false);
            }
            Seen::Item(()) => {}
            Seen::Listed => {
                self.listed[kind] = true;
                if self.synced() {
                    self.env.access.watched(true);
                    self.changed(ctx);
                }
            }
            Seen::Changed(()) | Seen::Gone(()) => self.changed(ctx),
        }
    }

    /// The streams end only with the runtime; the default would stop this actor.
    fn finished(&mut self, _: &mut Self::Context) {}
}

impl Handler<Snapshot> for AccessWatch {
    type Result = MessageResult<Snapshot>;

    fn handle(&mut self, _: Snapshot, _: &mut Self::Context) -> Self::Result {
        Snapshot::of(&AccessWatchState {
            synced: self.synced(),
            changes: self.changes,
        })
    }
}

impl Handler<Stop> for AccessWatch {
    type Result = ();

    fn handle(&mut self, _: Stop, ctx: &mut Self::Context) {
        self.env.access.watched(false);
        ctx.stop();
    }
}
