//! The future that runs one actor and brings it back after a panic.
//!
//! ```text
//!            poll: Ready                    mailbox still connected
//! Running ───────────────► ended      ┌──────────────────────────────┐
//!    │ panic                          │                              │
//!    └──────► Waiting (back-off) ─────┴─► restart: same mailbox, fresh state, `started` again
//! ```
//!
//! Only the message in hand is lost; its sender sees a closed reply. Timers, streams and spawned
//! futures of the old life are cancelled by the restart.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use actix::dev::ContextFut;
use actix::{Actor, Supervised};
use tokio::time::Sleep;
use tracing::{error, info};

use super::registry::Entry;
use super::{Backoff, BackoffPolicy};

pub(super) struct Supervision<A>
where
    A: Actor<Context = actix::Context<A>>,
{
    /// `None` only while this is being dropped.
    actor: Option<ContextFut<A, actix::Context<A>>>,
    entry: Arc<Entry>,
    backoff: Backoff,
    /// Set between a panic and the restart.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<A> Supervision<A>
where
    A: Actor<Context = actix::Context<A>> + Supervised,
{
    pub(super) fn new(actor: ContextFut<A, actix::Context<A>>, entry: Arc<Entry>) -> Self {
        let backoff = Backoff::new(BackoffPolicy::RESTART);
        Self {
            actor: Some(actor),
            entry,
            backoff,
            waiting: None,
        }
    }
}

/// The text of a panic's payload, where it has one.
pub(crate) fn panic_text(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("(no text)")
}

impl<A> Future for Supervision<A>
where
    A: Actor<Context = actix::Context<A>> + Supervised + Unpin,
{
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let Some(actor) = this.actor.as_mut() else {
            return Poll::Ready(());
        };
        // Whatever the actor starts from here is known by its name.
        let _running = this.entry.task().enter();
        loop {
            if let Some(sleep) = this.waiting.as_mut() {
                ready!(sleep.as_mut().poll(cx));
                this.waiting = None;
                if !actor.restart() {
                    return Poll::Ready(()); // nobody can reach it any more
                }
                this.entry.restarted();
                info!(actor = %this.entry, "actor restarted");
            }
            match catch_unwind(AssertUnwindSafe(|| Pin::new(&mut *actor).poll(cx))) {
                Ok(poll) => return poll,
                Err(payload) => {
                    let text = panic_text(payload.as_ref());
                    let delay = this.backoff.failed();
                    error!(actor = %this.entry, panic = text, ?delay, "actor panicked");
                    this.entry.panicked(text);
                    this.waiting = Some(Box::pin(tokio::time::sleep(delay)));
                }
            }
        }
    }
}

impl<A> Drop for Supervision<A>
where
    A: Actor<Context = actix::Context<A>>,
{
    fn drop(&mut self) {
        // actix polls a live actor once more when its future is dropped; a panic there must not
        // take the arbiter down with it.
        let actor = self.actor.take();
        if catch_unwind(AssertUnwindSafe(move || drop(actor))).is_err() {
            error!(actor = %self.entry, "actor panicked while it was dropped");
        }
        self.entry.ended();
    }
}
