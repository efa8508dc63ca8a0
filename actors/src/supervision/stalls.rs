//! Threads that an actor or a request does not give back.
//!
//! Everything that computes is bounded ([limits](../../../docs/limits.md)), so a stall is a defect.
//! It must be seen all the same: in the log, in the metrics and in readiness, by the name of who
//! holds the thread and of the object in hand.

use std::time::Duration;

use muster_watchdog::{Report, Watchdog};
use tracing::{error, info};

use super::metrics;

/// A thread that has been held this long counts as stalled. All budgets together stay below a
/// second on slow machines.
pub const STALL_LIMIT: Duration = Duration::from_secs(5);

/// Starts to look for stalls, and logs and counts them until the handle is dropped.
///
/// # Errors
///
/// When the system gives the process no thread.
pub fn watch_threads() -> std::io::Result<Watchdog> {
    Watchdog::start(STALL_LIMIT, |report| match report {
        Report::Began(stall) => {
            metrics::stalled(stall.task.role());
            error!(%stall, "thread stalled");
        }
        Report::Ended(stall) => info!(task = %stall.task, thread = stall.thread, "thread released"),
    })
}

/// The threads that are stalled now, a sentence each.
pub fn stalled() -> Vec<String> {
    let stalls = muster_watchdog::stalls(STALL_LIMIT);
    stalls.iter().map(ToString::to_string).collect()
}
