//! Finds threads that a future or an actor does not give back, and says on what they work.
//!
//! An async runtime has few threads. A future that computes for long without awaiting holds one of
//! them, and once all are held nothing else runs: no probe, no timer, no other work. This crate
//! tells from outside which thread is held, by whom, on which object, and since when.
//!
//! - [`Task::watch`] wraps a future, [`Task::enter`] marks a piece of synchronous work. Both write
//!   into the slot of the thread that runs them; nothing is shared between threads but that slot.
//! - [`working_on`] names the object that the current task has in hand.
//! - [`stalls`] gives what has held a thread for at least some time.
//! - [`Watchdog`] looks every second, on a thread of its own, and reports what began and what ended.
//!
//! ```
//! use std::time::Duration;
//! use muster_watchdog::{Task, stalls, working_on};
//!
//! let task = Task::new("ManifestWork", "cluster1/web");
//! let _running = task.enter();
//! working_on("deployments.apps ns1/web");
//! let held = stalls(Duration::ZERO);
//! assert_eq!(held[0].to_string().split(" has ").next(), Some("ManifestWork/cluster1/web"));
//! ```

mod slot;
mod watchdog;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

pub use slot::{Running, Stall, current, stalls, working_on};
pub use watchdog::{Report, Watchdog};

/// Who runs: an actor or a request, and the object that it has in hand. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Task(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    role: &'static str,
    name: Arc<str>,
    object: Mutex<Option<Arc<str>>>,
}

impl Task {
    /// A task of `role`, the type of an actor or the kind of a request, with the name that tells it
    /// from others of its role.
    pub fn new(role: &'static str, name: impl Into<Arc<str>>) -> Self {
        Self(Arc::new(Inner {
            role,
            name: name.into(),
            object: Mutex::default(),
        }))
    }

    /// Another task of the same name: what an actor runs beside itself. It has its own object.
    #[must_use]
    pub fn sibling(&self) -> Self {
        Self::new(self.0.role, Arc::clone(&self.0.name))
    }

    /// The type of the actor, or the kind of the request.
    pub fn role(&self) -> &'static str {
        self.0.role
    }

    /// Marks the thread as held by this task until the guard is dropped. What held it before holds
    /// it again afterwards.
    pub fn enter(&self) -> Running {
        slot::enter(self.clone())
    }

    /// Marks each poll of `future`.
    pub const fn watch<F: Future>(self, future: F) -> Watched<F> {
        Watched { future, task: self }
    }

    fn set_object(&self, object: Arc<str>) {
        *self.0.object.lock().unwrap_or_else(PoisonError::into_inner) = Some(object);
    }

    fn object(&self) -> Option<Arc<str>> {
        let object = self.0.object.lock();
        object.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.0.role, self.0.name)
    }
}

pin_project! {
    /// A future whose polls are marked; see [`Task::watch`].
    #[derive(Debug)]
    pub struct Watched<F> {
        #[pin]
        future: F,
        task: Task,
    }
}

impl<F: Future> Future for Watched<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let _running = this.task.enter();
        this.future.poll(cx)
    }
}
