//! I/O runs on the worker threads of the runtime, never on an arbiter.
//!
//! hyper's connection tasks live on the runtime that first polls them, so a pooled connection
//! opened inside an arbiter would die with it. [`Io::run`] moves a future to the workers and gives
//! back a handle for the actor to await; dropping the handle (the actor restarts or stops)
//! cancels the work.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use muster_watchdog::Task;
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;

/// The work did not end by itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IoError {
    /// The future panicked; the text is the panic's message where it has one.
    #[error("an I/O task panicked: {0}")]
    Panicked(String),
    /// The runtime is shutting down.
    #[error("an I/O task was cancelled")]
    Cancelled,
}

/// Spawns on the worker threads of one runtime. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Io(Handle);

impl Io {
    /// Uses `handle`'s runtime, which must outlive every actor.
    pub const fn new(handle: Handle) -> Self {
        Self(handle)
    }

    /// Uses the runtime that the caller runs in.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn current() -> Self {
        Self(Handle::current())
    }

    /// Runs `work` on the workers; the returned future yields its result. The watchdog knows it by
    /// the name of the actor that called.
    pub fn run<F>(&self, work: F) -> Running<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let task = muster_watchdog::current()
            .map_or_else(|| Task::new("Task", "unnamed"), |caller| caller.sibling());
        Running(AbortOnDropHandle::new(self.0.spawn(task.watch(work))))
    }

    /// Calls what spawns tasks of its own, so that they run on the workers.
    pub fn enter<T>(&self, call: impl FnOnce() -> T) -> T {
        let _guard = self.0.enter();
        call()
    }
}

/// Work under way on the workers; aborted when dropped.
#[derive(Debug)]
pub struct Running<T>(AbortOnDropHandle<T>);

impl<T> Future for Running<T> {
    type Output = Result<T, IoError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map_err(|error| {
            error
                .try_into_panic()
                .map_or(IoError::Cancelled, |payload| {
                    IoError::Panicked(super::supervise::panic_text(payload.as_ref()).to_owned())
                })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn results_and_panics_come_back() {
        let io = Io::current();
        assert_eq!(io.run(async { 7 }).await, Ok(7));
        let panicked = io.run(async { panic!("no such luck") }).await;
        assert_eq!(
            panicked,
            Err::<(), _>(IoError::Panicked("no such luck".to_owned()))
        );
    }

    #[tokio::test]
    async fn dropping_the_handle_cancels_the_work() {
        let (held_by_work, ended) = tokio::sync::oneshot::channel::<()>();
        let work = Io::current().run(async move {
            let _held = held_by_work;
            std::future::pending::<()>().await;
        });
        drop(work);
        assert!(
            ended.await.is_err(),
            "the work's side must have been dropped"
        );
    }
}
