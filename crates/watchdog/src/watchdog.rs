//! The thread that looks for stalls.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use crate::slot::{Stall, stalls};

/// How often the watchdog looks. A stall is told this much later than it could be at most.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// What a [`Watchdog`] tells.
#[derive(Debug, Clone)]
pub enum Report {
    /// A task has held its thread for longer than the limit.
    Began(Stall),
    /// That task has given its thread back; `held` is how long it had been seen to hold it.
    Ended(Stall),
}

/// A thread that looks every second for tasks that hold a thread longer than a limit. It ends when
/// this is dropped.
#[derive(Debug)]
pub struct Watchdog {
    /// Dropped to end the thread.
    _end: Sender<()>,
}

impl Watchdog {
    /// Reports each stall of at least `limit` once when it begins and once when it ends.
    ///
    /// # Errors
    ///
    /// When the system gives the process no thread.
    pub fn start(
        limit: Duration,
        mut report: impl FnMut(Report) + Send + 'static,
    ) -> std::io::Result<Self> {
        let (end, ended) = mpsc::channel::<()>();
        let thread = std::thread::Builder::new().name("muster-watchdog".to_owned());
        thread.spawn(move || {
            let mut known = Known::default();
            while ended.recv_timeout(LOOK_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                known.compare(stalls(limit)).for_each(&mut report);
            }
        })?;
        Ok(Self { _end: end })
    }
}

/// The stalls of the last look.
#[derive(Debug, Default)]
struct Known(BTreeMap<(String, Instant), Stall>);

impl Known {
    fn compare(&mut self, now: Vec<Stall>) -> impl Iterator<Item = Report> + use<> {
        let key = |stall: &Stall| (stall.thread.clone(), stall.since);
        let now: BTreeMap<_, _> = now.into_iter().map(|stall| (key(&stall), stall)).collect();
        let before = std::mem::replace(&mut self.0, now.clone());
        let ended = before
            .iter()
            .filter(|(key, _)| !now.contains_key(*key))
            .map(|(_, stall)| Report::Ended(stall.clone()));
        let began = now
            .iter()
            .filter(|(key, _)| !before.contains_key(*key))
            .map(|(_, stall)| Report::Began(stall.clone()));
        ended.chain(began).collect::<Vec<_>>().into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Task;

    fn told(reports: impl Iterator<Item = Report>) -> Vec<String> {
        reports
            .map(|report| match report {
                Report::Began(stall) => format!("began {}", stall.task),
                Report::Ended(stall) => format!("ended {}", stall.task),
            })
            .collect()
    }

    fn stalls_of(role: &str) -> Vec<Stall> {
        let mut stalls = stalls(Duration::ZERO);
        stalls.retain(|stall| stall.task.role() == role);
        stalls
    }

    #[test]
    fn a_stall_is_told_once_when_it_begins_and_once_when_it_ends() {
        let mut known = Known::default();
        let first = Task::new("Once", "first").enter();
        assert_eq!(told(known.compare(stalls_of("Once"))), ["began Once/first"]);
        assert!(told(known.compare(stalls_of("Once"))).is_empty());
        drop(first);
        // The next task on the same thread is another stall.
        let _second = Task::new("Once", "second").enter();
        assert_eq!(
            told(known.compare(stalls_of("Once"))),
            ["ended Once/first", "began Once/second"]
        );
    }

    #[test]
    fn the_thread_tells_what_it_finds() {
        let (told, reports) = mpsc::channel();
        let _held = Task::new("Found", "web").enter();
        let _watchdog = Watchdog::start(Duration::ZERO, move |report| {
            let _ = told.send(report);
        })
        .unwrap();
        let found = reports.iter().find_map(|report| match report {
            Report::Began(stall) if stall.task.role() == "Found" => Some(stall),
            _ => None,
        });
        assert_eq!(found.unwrap().task.to_string(), "Found/web");
    }
}
