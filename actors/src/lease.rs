//! Of several processes, one works: the lease that says which.
//!
//! [`LeaseHolder`] takes, renews and gives back a `coordination.k8s.io` Lease by the rules of
//! client-go's leader election, so that it excludes Go programs that use the same lease, too.
//!
//! ```text
//!             taken                     not renewed in time, or taken by another
//!  Waiting ──────────► Leading ────────────────────────────────────────────────► Lost (for good)
//! ```
//!
//! The one rule that all rests on: no clock is compared with another machine's. Who waits counts
//! from the moment that *it* saw the lease change; who leads counts from the moment that *it* sent
//! its last successful renewal. The latter comes first and the deadline is shorter, so the holder
//! has stopped before another begins. The times written into the lease are for people.
//!
//! Differs from upstream: a holder that reads another's name in the lease gives up at once and not
//! only at its deadline; a try that waits is repeated after 1.0 to 1.2 retry periods, not 1.0 to
//! 2.2, so that a process that replaces another begins sooner.
//!
//! Nothing here knows what is done under the lease: whoever started the holder follows its
//! [`Standing`].

mod record;
#[cfg(test)]
mod tests;

use std::time::Duration;

use actix::prelude::*;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use muster_metrics::Metric;
use rand::Rng;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};

use self::record::{Known, Outcome};
use crate::supervision::{Health, Io, IoError, Registry, Snapshot, Stop, StreamHealth};

const HELD: Metric = Metric::gauge(
    "muster_lease_held",
    "1 while this process has the lease, 0 while it waits; absent without a lease.",
);

/// What is recorded of the lease.
pub const METRICS: &[Metric] = &[HELD];

/// Longest pause between two tries of a process that waits, in retry periods.
const JITTER: f64 = 1.2;

/// Longest time to give the lease back: what does not succeed within a stop does not matter, since
/// the lease lapses.
const RELEASE_LIMIT: Duration = Duration::from_secs(5);

/// Which lease, and when to do what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseSettings {
    /// Namespace of the lease, which must exist.
    pub namespace: String,
    /// Name of the lease.
    pub name: String,
    /// Who takes it; no two processes may have the same.
    pub identity: String,
    /// How long others wait for a holder that does not renew; written in whole seconds.
    pub duration: Duration,
    /// How long a holder goes on that cannot renew. Less than `duration`.
    pub renew_deadline: Duration,
    /// Time between two tries to take or renew. Less than `renew_deadline`.
    pub retry_period: Duration,
}

/// What a [`LeaseHolder`] is made of.
#[derive(Clone)]
pub struct LeaseDeps {
    /// The cluster that has the lease.
    pub client: kube::Client,
    /// Which lease, and when to do what.
    pub settings: LeaseSettings,
    /// Where requests run.
    pub io: Io,
    /// Where the actor is known.
    pub registry: Registry,
    /// Where it says, as `lease`, whether the lease can be read.
    pub health: Health,
}

impl std::fmt::Debug for LeaseDeps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LeaseDeps")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// Where this process stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Standing {
    /// Another has the lease, or none could be taken yet. Nothing may be done.
    Waiting,
    /// This process has the lease.
    Leading,
    /// This process had the lease, and another may have it now: everything must end. The text says
    /// why. Nothing follows.
    Lost(String),
}

/// Starts a holder on the current arbiter.
///
/// It runs until [`Stop`], which gives the lease back if it is held; what is done under it must
/// have ended by then.
pub fn start(deps: LeaseDeps) -> (Addr<LeaseHolder>, watch::Receiver<Standing>) {
    let (sender, receiver) = watch::channel(Standing::Waiting);
    let name = format!("{}/{}", deps.settings.namespace, deps.settings.name);
    let registry = deps.registry.clone();
    let holder = LeaseHolder::new(deps, sender);
    (registry.start("LeaseHolder", name, holder), receiver)
}

/// What a holder shows of itself.
#[derive(Debug, Clone, Serialize)]
pub struct LeaseHolderState {
    /// Namespace and name of the lease.
    pub lease: String,
    /// Who this is.
    pub identity: String,
    /// Who had the lease when it was last read.
    pub holder: Option<String>,
    /// Where this process stands.
    pub standing: Standing,
}

/// The actor of one lease. After a restart it knows no more what the lease looks like, and still
/// whether it leads and until when.
#[derive(Debug)]
pub struct LeaseHolder {
    deps: LeaseDeps,
    known: Known,
    standing: watch::Sender<Standing>,
    /// When the last successful renewal was sent, on this machine's clock.
    renewed: Option<Instant>,
    last_error: Option<String>,
    /// The next try, or the one under way.
    trying: Option<SpawnHandle>,
    /// Whether a request is under way, which may take the lease although nobody waits for it.
    asking: bool,
    deadline: Option<SpawnHandle>,
    stream: Option<StreamHealth>,
}

impl LeaseHolder {
    fn new(deps: LeaseDeps, standing: watch::Sender<Standing>) -> Self {
        metrics::gauge!(HELD.name).set(0.0);
        Self {
            deps,
            known: Known::default(),
            standing,
            renewed: None,
            last_error: None,
            trying: None,
            asking: false,
            deadline: None,
            stream: None,
        }
    }

    fn settings(&self) -> &LeaseSettings {
        &self.deps.settings
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.deps.client.clone(), &self.settings().namespace)
    }

    /// One try takes half the deadline at most, so that one that hangs leaves time for another.
    fn request_limit(&self) -> Duration {
        self.settings().renew_deadline / 2
    }

    fn try_now(&mut self, ctx: &mut Context<Self>) {
        let (leases, known) = (self.leases(), self.known.clone());
        let (settings, limit) = (self.settings().clone(), self.request_limit());
        let work = self.deps.io.run(async move {
            let sent = Instant::now();
            let tried = record::take_or_renew(&leases, &settings, known);
            let tried = tokio::time::timeout(limit, tried).await;
            (sent, tried.map_err(|_| no_answer(limit)))
        });
        let work = work.into_actor(self).map(|result, holder, ctx| {
            (holder.trying, holder.asking) = (None, false);
            let pause = match result {
                Ok((sent, Ok((known, outcome)))) => {
                    holder.known = known;
                    holder.tried(sent, outcome, ctx)
                }
                Ok((_, Err(error))) => Some(holder.failed(error)),
                Err(error) => Some(holder.failed(error.to_string())),
            };
            if let Some(pause) = pause {
                holder.trying = Some(ctx.run_later(pause, Self::try_now));
            }
        });
        (self.trying, self.asking) = (Some(ctx.spawn(work)), true);
    }

    /// Takes in the end of a try. Gives the pause before the next, if there is to be one.
    fn tried(
        &mut self,
        sent: Instant,
        outcome: Result<Outcome, kube::Error>,
        ctx: &mut Context<Self>,
    ) -> Option<Duration> {
        match outcome {
            Ok(Outcome::Mine) => {
                self.readable();
                self.renewed = Some(sent);
                self.watch_deadline(ctx);
                if *self.standing.borrow() == Standing::Waiting {
                    info!(lease = self.name(), "took the lease");
                    metrics::gauge!(HELD.name).set(1.0);
                    self.standing.send_replace(Standing::Leading);
                }
                Some(self.settings().retry_period)
            }
            Ok(Outcome::Others(holder)) if self.renewed.is_some() => {
                self.lose(&format!("{holder} has taken it"), ctx);
                None
            }
            Ok(Outcome::Others(_)) => {
                self.readable();
                Some(self.pause())
            }
            Err(error) => Some(self.failed(error.to_string())),
        }
    }

    fn readable(&mut self) {
        self.last_error = None;
        if let Some(stream) = &self.stream {
            stream.alive();
        }
    }

    fn failed(&mut self, error: String) -> Duration {
        warn!(
            lease = self.name(),
            error, "failed to take or renew the lease, retrying"
        );
        if let Some(stream) = &self.stream {
            stream.failing(&error);
        }
        self.last_error = Some(error);
        if self.renewed.is_some() {
            self.settings().retry_period
        } else {
            self.pause()
        }
    }

    fn pause(&self) -> Duration {
        self.settings()
            .retry_period
            .mul_f64(rand::rng().random_range(1.0..JITTER))
    }

    fn watch_deadline(&mut self, ctx: &mut Context<Self>) {
        if let Some(old) = self.deadline.take() {
            ctx.cancel_future(old);
        }
        let Some(renewed) = self.renewed else { return };
        let left = self
            .settings()
            .renew_deadline
            .saturating_sub(renewed.elapsed());
        let missed = |holder: &mut Self, ctx: &mut Context<Self>| {
            let limit = holder.settings().renew_deadline;
            let error = holder.last_error.take();
            let error = error.map_or_else(String::new, |error| format!(", last error: {error}"));
            holder.lose(&format!("not renewed within {limit:?}{error}"), ctx);
        };
        self.deadline = Some(ctx.run_later(left, missed));
    }

    fn lose(&mut self, why: &str, ctx: &mut Context<Self>) {
        self.renewed = None;
        for handle in [self.trying.take(), self.deadline.take()]
            .into_iter()
            .flatten()
        {
            ctx.cancel_future(handle);
        }
        metrics::gauge!(HELD.name).set(0.0);
        let why = format!("lost the lease {}: {why}", self.name());
        if let Some(stream) = &self.stream {
            stream.failing(&why);
        }
        self.standing.send_replace(Standing::Lost(why));
    }

    fn name(&self) -> String {
        format!("{}/{}", self.settings().namespace, self.settings().name)
    }
}

fn no_answer(limit: Duration) -> String {
    format!("no answer within {limit:?}")
}

impl Actor for LeaseHolder {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        self.stream = Some(self.deps.health.stream("lease"));
        if matches!(*self.standing.borrow(), Standing::Lost(_)) {
            return;
        }
        self.watch_deadline(ctx);
        self.try_now(ctx);
    }
}

impl Supervised for LeaseHolder {
    fn restarting(&mut self, _: &mut Context<Self>) {
        self.known = Known::default();
        (self.trying, self.deadline) = (None, None);
    }
}

impl Handler<Snapshot> for LeaseHolder {
    type Result = MessageResult<Snapshot>;

    fn handle(&mut self, _: Snapshot, _: &mut Context<Self>) -> Self::Result {
        Snapshot::of(&LeaseHolderState {
            lease: self.name(),
            identity: self.settings().identity.clone(),
            holder: self.known.holder().map(str::to_owned),
            standing: self.standing.borrow().clone(),
        })
    }
}

impl Handler<Stop> for LeaseHolder {
    type Result = ResponseActFuture<Self, ()>;

    fn handle(&mut self, _: Stop, ctx: &mut Context<Self>) -> Self::Result {
        for handle in [self.trying.take(), self.deadline.take()]
            .into_iter()
            .flatten()
        {
            ctx.cancel_future(handle);
        }
        metrics::gauge!(HELD.name).set(0.0);
        let lost = matches!(*self.standing.borrow(), Standing::Lost(_));
        let may_hold = self.renewed.take().is_some() || self.asking;
        if lost || !may_hold {
            ctx.stop();
            return Box::pin(async {}.into_actor(self));
        }
        let (leases, settings) = (self.leases(), self.settings().clone());
        let limit = self.request_limit().min(RELEASE_LIMIT);
        let work = self.deps.io.run(async move {
            let released = record::release(&leases, &settings);
            tokio::time::timeout(limit, released).await
        });
        let ended =
            move |result: Result<_, IoError>, holder: &mut Self, ctx: &mut Context<Self>| {
                let error = match result {
                    Ok(Ok(Ok(()))) => None,
                    Ok(Ok(Err(error))) => Some(kube::Error::to_string(&error)),
                    Ok(Err(_)) => Some(no_answer(limit)),
                    Err(error) => Some(error.to_string()),
                };
                match error {
                    None => info!(lease = holder.name(), "the lease is free for others"),
                    Some(error) => {
                        warn!(
                            lease = holder.name(),
                            error, "failed to give the lease back, it lapses"
                        );
                    }
                }
                ctx.stop();
            };
        Box::pin(work.into_actor(self).map(ended))
    }
}
