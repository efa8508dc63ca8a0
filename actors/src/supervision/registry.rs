//! Starts actors under supervision and knows which are alive.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use actix::{Actor, Addr, Context, Handler, Message, MessageResult, Supervised, WeakRecipient};
use futures::StreamExt;
use jiff::Timestamp;
use muster_watchdog::Task;
use serde::Serialize;
use tokio::sync::watch;

use super::metrics;
use super::supervise::Supervision;

/// Asks an actor for its published state, for `/debug/actors` and tests.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "serde_json::Value")]
pub struct Snapshot;

impl Snapshot {
    /// The answer of an actor that publishes `state`.
    pub fn of(state: &impl Serialize) -> MessageResult<Self> {
        MessageResult(serde_json::to_value(state).unwrap_or_default())
    }
}

/// One actor as `/debug/actors` shows it.
#[derive(Debug, Clone, Serialize)]
pub struct ActorReport {
    /// What it does: the actor's type.
    pub role: &'static str,
    /// Which one: a cluster, a work, a replica set.
    pub name: String,
    /// Restarts after a panic.
    pub restarts: u64,
    /// Text of the last panic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_panic: Option<String>,
    /// When it was started.
    pub started_at: Timestamp,
    /// The actor's own state; `null` when it did not answer in time.
    pub state: serde_json::Value,
}

/// The registry's record of one actor; shared with its supervision.
pub(super) struct Entry {
    id: u64,
    role: &'static str,
    name: Arc<str>,
    /// How the watchdog knows it.
    task: Task,
    started_at: Timestamp,
    restarts: AtomicU64,
    last_panic: Mutex<Option<String>>,
    registry: Registry,
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.role, self.name)
    }
}

impl Entry {
    pub(super) const fn task(&self) -> &Task {
        &self.task
    }

    pub(super) fn panicked(&self, text: &str) {
        *self
            .last_panic
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(text.to_owned());
        self.registry.0.panics.fetch_add(1, Ordering::Relaxed);
        metrics::panicked(self.role);
    }

    pub(super) fn restarted(&self) {
        self.restarts.fetch_add(1, Ordering::Relaxed);
        metrics::restarted(self.role);
    }

    pub(super) fn ended(&self) {
        let mut live = self.registry.lock();
        live.remove(&self.id);
        self.registry.0.count.send_replace(live.len());
        metrics::actor_ended(self.role);
    }
}

struct Live {
    entry: Arc<Entry>,
    /// Weak, so that looking at an actor never keeps it alive.
    snapshot: WeakRecipient<Snapshot>,
}

struct Shared {
    next_id: AtomicU64,
    panics: AtomicU64,
    live: Mutex<BTreeMap<u64, Live>>,
    /// How many are live, for those who wait until none is.
    count: watch::Sender<usize>,
}

/// Every supervised actor of one runtime. Cheap to clone.
#[derive(Clone)]
pub struct Registry(Arc<Shared>);

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("live", &self.live())
            .finish()
    }
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

impl Registry {
    /// An empty registry.
    pub fn new() -> Self {
        Self(Arc::new(Shared {
            next_id: AtomicU64::new(0),
            panics: AtomicU64::new(0),
            live: Mutex::default(),
            count: watch::channel(0).0,
        }))
    }

    /// Starts `actor` on the current arbiter. A panic restarts it with the same mailbox, after a
    /// back-off; its [`Supervised::restarting`] must put the state back to a fresh one.
    ///
    /// The actor ends when it calls `ctx.stop()`, normally on [`Stop`](super::Stop).
    pub fn start<A>(&self, role: &'static str, name: impl Into<String>, actor: A) -> Addr<A>
    where
        A: Actor<Context = Context<A>> + Supervised + Handler<Snapshot> + Unpin,
    {
        let context = Context::new().into_future(actor);
        let addr = context.address();
        let name: Arc<str> = name.into().into();
        let entry = Arc::new(Entry {
            id: self.0.next_id.fetch_add(1, Ordering::Relaxed),
            role,
            task: Task::new(role, Arc::clone(&name)),
            name,
            started_at: Timestamp::now(),
            restarts: AtomicU64::new(0),
            last_panic: Mutex::default(),
            registry: self.clone(),
        });
        {
            let mut live = self.lock();
            let snapshot = addr.downgrade().recipient();
            live.insert(
                entry.id,
                Live {
                    entry: Arc::clone(&entry),
                    snapshot,
                },
            );
            self.0.count.send_replace(live.len());
        }
        metrics::actor_began(role);
        actix::spawn(Supervision::new(context, entry));
        addr
    }

    /// Number of live actors.
    pub fn live(&self) -> usize {
        self.lock().len()
    }

    /// Panics caught so far.
    pub fn panics(&self) -> u64 {
        self.0.panics.load(Ordering::Relaxed)
    }

    /// Names of the live actors as `role/name`: what a test prints when something leaked.
    pub fn leftovers(&self) -> Vec<String> {
        self.lock()
            .values()
            .map(|live| live.entry.to_string())
            .collect()
    }

    /// Waits until no actor is live; gives up after `limit` and returns what is left.
    ///
    /// # Errors
    ///
    /// The actors that did not end in time, as `role/name`.
    pub async fn ended(&self, limit: Duration) -> Result<(), Vec<String>> {
        self.ended_but(0, limit).await
    }

    /// [`Self::ended`] where this many actors are to go on, for one that must not end before all
    /// others have.
    ///
    /// # Errors
    ///
    /// All live actors, as `role/name`, if they are still more after `limit`.
    pub async fn ended_but(&self, kept: usize, limit: Duration) -> Result<(), Vec<String>> {
        let mut count = self.0.count.subscribe();
        let waited = tokio::time::timeout(limit, count.wait_for(|live| *live <= kept)).await;
        if waited.is_ok() {
            Ok(())
        } else {
            Err(self.leftovers())
        }
    }

    /// Asks every live actor for its state; one that is busy for longer than `limit` shows `null`.
    pub async fn report(&self, limit: Duration) -> Vec<ActorReport> {
        self.report_of(|_| true, limit).await
    }

    /// [`Self::report`] of the roles that are `wanted` only.
    pub async fn report_of(
        &self,
        wanted: impl Fn(&str) -> bool,
        limit: Duration,
    ) -> Vec<ActorReport> {
        /// Enough to keep an arbiter busy, few enough not to flood its mailboxes.
        const ASKED_AT_ONCE: usize = 64;
        let asked: Vec<_> = self
            .lock()
            .values()
            .filter(|live| wanted(live.entry.role))
            .map(|live| (Arc::clone(&live.entry), live.snapshot.upgrade()))
            .collect();
        futures::stream::iter(asked)
            .map(|(entry, snapshot)| async move {
                let state = match snapshot {
                    Some(recipient) => tokio::time::timeout(limit, recipient.send(Snapshot))
                        .await
                        .ok()
                        .and_then(Result::ok)
                        .unwrap_or_default(),
                    None => serde_json::Value::Null,
                };
                ActorReport {
                    role: entry.role,
                    name: entry.name.as_ref().to_owned(),
                    restarts: entry.restarts.load(Ordering::Relaxed),
                    last_panic: entry
                        .last_panic
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .clone(),
                    started_at: entry.started_at,
                    state,
                }
            })
            .buffered(ASKED_AT_ONCE)
            .collect()
            .await
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Live>> {
        self.0.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
