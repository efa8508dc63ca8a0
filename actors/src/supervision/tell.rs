//! Bounded, counted mail, and the ordered stop.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use actix::dev::ToEnvelope;
use actix::prelude::SendError;
use actix::{Actor, Addr, Handler, Message};

use super::metrics;

/// A message that the mailbox did not take. The sender owns it again and owes a retry, or a
/// reason why losing it is harmless.
pub enum Refused<M> {
    /// The mailbox is full.
    Full(M),
    /// The actor has ended.
    Closed(M),
}

impl<M> Refused<M> {
    /// The message.
    pub fn into_inner(self) -> M {
        match self {
            Self::Full(message) | Self::Closed(message) => message,
        }
    }
}

impl<M> fmt::Debug for Refused<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "Full",
            Self::Closed(_) => "Closed",
        })
    }
}

/// Puts `message` into the mailbox without waiting; unlike `do_send` it respects the mailbox's
/// limit, and counts what is refused in `muster_actor_mail_refused_total`.
///
/// # Errors
///
/// [`Refused`] with the message when the mailbox is full or the actor has ended.
pub fn tell<A, M>(addr: &Addr<A>, message: M) -> Result<(), Refused<M>>
where
    A: Actor + Handler<M>,
    A::Context: ToEnvelope<A, M>,
    M: Message + Send + 'static,
    M::Result: Send,
{
    addr.try_send(message).map_err(|error| {
        let reason = if matches!(error, SendError::Full(_)) {
            "full"
        } else {
            "closed"
        };
        let message = short_name::<M>();
        metrics::mail_refused(message, reason);
        match error {
            SendError::Full(message) => Refused::Full(message),
            SendError::Closed(message) => Refused::Closed(message),
        }
    })
}

/// The last segment of a type's path: bounded by the number of message types.
fn short_name<M>() -> &'static str {
    let full = std::any::type_name::<M>();
    full.rsplit("::").next().unwrap_or(full)
}

/// Messages that were refused, the newest per key, until their receiver takes them.
///
/// For messages that carry state, where only the last one counts. The owner calls
/// [`Outbox::flush`] from a timer while [`Outbox::is_empty`] is false.
#[derive(Debug)]
pub struct Outbox<K, M> {
    held: HashMap<K, M>,
}

impl<K, M> Default for Outbox<K, M> {
    fn default() -> Self {
        Self {
            held: HashMap::new(),
        }
    }
}

impl<K: Eq + Hash + Clone, M: Message + Send + 'static> Outbox<K, M>
where
    M::Result: Send,
{
    /// Sends `message` to `addr`, or holds it under `key`. A message for an ended actor is dropped.
    pub fn tell<A>(&mut self, key: K, addr: &Addr<A>, message: M)
    where
        A: Actor + Handler<M>,
        A::Context: ToEnvelope<A, M>,
    {
        // Anything held for this key is older than `message`.
        self.held.remove(&key);
        if let Err(Refused::Full(message)) = tell(addr, message) {
            self.held.insert(key, message);
        }
    }

    /// Tries again what is held; `find` gives the receiver of a key, or `None` when it is gone.
    pub fn flush<A>(&mut self, find: impl Fn(&K) -> Option<Addr<A>>)
    where
        A: Actor + Handler<M>,
        A::Context: ToEnvelope<A, M>,
    {
        for (key, message) in std::mem::take(&mut self.held) {
            if let Some(addr) = find(&key) {
                self.tell(key, &addr, message);
            }
        }
    }

    /// Forgets what is held for `key`.
    pub fn forget(&mut self, key: &K) {
        self.held.remove(key);
    }

    /// True when nothing is held.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}

/// Asks an actor to flush what it owes, stop its children and end. Answered when that is done.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "()")]
pub struct Stop;

/// Asks for [`Stop`] and waits for the answer, at most `limit`. Returns whether it came in time;
/// an actor that has ended already counts as stopped.
pub async fn stop<A>(addr: &Addr<A>, limit: Duration) -> bool
where
    A: Actor + Handler<Stop>,
    A::Context: ToEnvelope<A, Stop>,
{
    tokio::time::timeout(limit, addr.send(Stop)).await.is_ok()
}
