//! What each thread has in hand.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::LocalKey;
use std::time::{Duration, Instant};

use crate::Task;

/// The slot of one thread.
#[derive(Debug)]
struct Slot {
    thread: String,
    hold: Mutex<Option<Hold>>,
}

#[derive(Debug, Clone)]
struct Hold {
    task: Task,
    since: Instant,
}

/// Slots of all threads that have run a task. Threads leave when they end.
static SLOTS: Mutex<Vec<Weak<Slot>>> = Mutex::new(Vec::new());

thread_local! {
    static SLOT: Arc<Slot> = register();
}

fn register() -> Arc<Slot> {
    let thread = std::thread::current();
    let slot = Arc::new(Slot {
        thread: thread.name().unwrap_or("unnamed").to_owned(),
        hold: Mutex::default(),
    });
    let mut slots = lock(&SLOTS);
    slots.retain(|slot| slot.strong_count() > 0);
    slots.push(Arc::downgrade(&slot));
    slot
}

/// A panic leaves plain values behind, which are still right.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The slot of this thread; `None` while the thread ends.
fn of_this_thread<T>(
    slot: &'static LocalKey<Arc<Slot>>,
    look: impl FnOnce(&Slot) -> T,
) -> Option<T> {
    slot.try_with(|slot| look(slot)).ok()
}

/// A task that holds the thread; see [`Task::enter`].
#[derive(Debug)]
#[must_use = "the thread counts as held only until this is dropped"]
pub struct Running {
    before: Option<Hold>,
}

pub(crate) fn enter(task: Task) -> Running {
    #[expect(
        clippy::disallowed_methods,
        reason = "real threads are timed, also where tokio's clock is paused"
    )]
    let since = Instant::now();
    let hold = Hold { task, since };
    let before = of_this_thread(&SLOT, |slot| lock(&slot.hold).replace(hold)).flatten();
    Running { before }
}

impl Drop for Running {
    fn drop(&mut self) {
        let before = self.before.take();
        of_this_thread(&SLOT, |slot| *lock(&slot.hold) = before);
    }
}

/// The task that runs on this thread.
pub fn current() -> Option<Task> {
    of_this_thread(&SLOT, |slot| {
        let hold = lock(&slot.hold);
        hold.as_ref().map(|hold| hold.task.clone())
    })
    .flatten()
}

/// Names the object that the current task has in hand. It is remembered until the next one, also
/// over awaits; without a current task nothing happens.
pub fn working_on(object: impl Into<Arc<str>>) {
    if let Some(task) = current() {
        task.set_object(object.into());
    }
}

/// A thread that a task has held for long.
#[derive(Debug, Clone)]
pub struct Stall {
    /// Name of the thread.
    pub thread: String,
    /// Who holds it.
    pub task: Task,
    /// What it had in hand last.
    pub object: Option<Arc<str>>,
    /// For how long.
    pub held: Duration,
    /// When it began; tells one stall from the next of the same task.
    pub(crate) since: Instant,
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { thread, task, .. } = self;
        let seconds = self.held.as_secs();
        write!(f, "{task} has held thread {thread} for {seconds} s")?;
        match &self.object {
            Some(object) => write!(f, ", working on {object}"),
            None => Ok(()),
        }
    }
}

/// The threads that a task has held for at least `limit`, the longest first.
pub fn stalls(limit: Duration) -> Vec<Stall> {
    let slots: Vec<Arc<Slot>> = lock(&SLOTS).iter().filter_map(Weak::upgrade).collect();
    let mut stalls: Vec<Stall> = slots
        .iter()
        .filter_map(|slot| {
            let Hold { task, since } = lock(&slot.hold).clone()?;
            let held = since.elapsed();
            (held >= limit).then(|| Stall {
                thread: slot.thread.clone(),
                object: task.object(),
                task,
                held,
                since,
            })
        })
        .collect();
    stalls.sort_by_key(|stall| stall.since);
    stalls
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Stalls of one role, since tests share the process.
    fn stalls_of(role: &str) -> Vec<Stall> {
        let mut stalls = stalls(Duration::ZERO);
        stalls.retain(|stall| stall.task.role() == role);
        stalls
    }

    #[test]
    fn a_thread_that_is_held_is_told_with_who_and_what() {
        let (entered, wait_entered) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let task = Task::new("Told", "cluster1/web");
        let held = std::thread::Builder::new().name("held".to_owned());
        let held = held.spawn(move || {
            let future = task.watch(async move {
                working_on("deployments.apps ns1/web");
                entered.send(()).unwrap();
                // A future that does not come back.
                let _ = released.recv();
            });
            runtime().block_on(future);
        });
        let held = held.unwrap();
        wait_entered.recv().unwrap();
        let told = stalls_of("Told");
        assert_eq!(told.len(), 1);
        let line = told[0].to_string();
        assert!(
            line.starts_with("Told/cluster1/web has held thread held for ")
                && line.ends_with(" s, working on deployments.apps ns1/web"),
            "{line}"
        );
        assert!(stalls(Duration::MAX).is_empty());
        drop(release);
        held.join().unwrap();
        assert!(stalls_of("Told").is_empty());
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
    }

    #[test]
    fn a_future_that_waits_holds_no_thread_and_keeps_its_object() {
        let (release, released) = tokio::sync::oneshot::channel::<()>();
        let task = Task::new("Waits", "w");
        let watched = task.clone().watch(async move {
            working_on("configmaps ns1/a");
            let _ = released.await;
            assert_eq!(
                current().unwrap().object().as_deref(),
                Some("configmaps ns1/a")
            );
        });
        runtime().block_on(async move {
            let waiting = tokio::spawn(watched);
            tokio::task::yield_now().await;
            assert!(stalls_of("Waits").is_empty());
            release.send(()).unwrap();
            waiting.await.unwrap();
        });
    }

    #[test]
    fn what_ran_before_runs_again_after_a_nested_task() {
        let outer = Task::new("Outer", "o");
        let inner = Task::new("Inner", "i");
        let _outer = outer.enter();
        {
            let _inner = inner.enter();
            assert_eq!(current().unwrap().to_string(), "Inner/i");
        }
        assert_eq!(current().unwrap().to_string(), "Outer/o");
        assert_eq!(current().unwrap().sibling().to_string(), "Outer/o");
    }
}
