//! An open loop: changes on a fixed schedule, and latencies from the scheduled time, so that a
//! stall of the system counts against it.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, timeout_at};

use super::machine::millis;

/// How early the generator wakes up before a change is due: more than the system's timer slack,
/// little enough to leave the second core to others.
const WAKE_EARLY: Duration = Duration::from_micros(150);

/// A change to be made.
pub struct Change {
    /// What shows the change.
    pub key: usize,
    /// It is there once `key` shows at least this number.
    pub number: u64,
    /// Makes it.
    pub make: BoxFuture<'static, Result<()>>,
}

/// Something was seen to show a number.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    /// Where, in the order in which changes get there: 0 for the first place.
    pub stage: usize,
    /// What shows it.
    pub key: usize,
    /// The number.
    pub number: u64,
    /// When.
    pub at: Instant,
}

/// Makes the changes, one each `gap`, and returns the latency of each in milliseconds. One that is
/// not seen until `patience` after the last counts as that long.
pub async fn run(
    changes: Vec<Change>,
    gap: Duration,
    patience: Duration,
    seen: &mut UnboundedReceiver<Seen>,
) -> Result<Vec<f64>> {
    let [latencies] = run_through(changes, gap, patience, seen).await?;
    Ok(latencies)
}

/// The same where changes are seen at so many stages: the latencies to each.
pub async fn run_through<const STAGES: usize>(
    changes: Vec<Change>,
    gap: Duration,
    patience: Duration,
    seen: &mut UnboundedReceiver<Seen>,
) -> Result<[Vec<f64>; STAGES]> {
    let begin = Instant::now() + gap;
    let mut scheduled = begin;
    let mut waiting = Vec::new();
    let mut due = Vec::new();
    for change in changes {
        waiting.extend((0..STAGES).map(|stage| ((stage, change.key), change.number, scheduled)));
        due.push((scheduled, change.make));
        scheduled += gap;
    }
    let runtime = Handle::current();
    // A thread of its own: tokio's timer has a resolution of 1 ms, which is more than what is
    // measured here.
    let generator = tokio::task::spawn_blocking(move || {
        let made = due.into_iter().map(|(at, make)| {
            wait_until(at);
            runtime.spawn(make)
        });
        made.collect::<Vec<_>>()
    });
    let deadline = scheduled + patience;
    let mut latencies = [(); STAGES].map(|()| Vec::new());
    let mut shown: HashMap<(usize, usize), u64> = HashMap::new();
    while !waiting.is_empty() {
        let Ok(observed) = timeout_at(deadline, seen.recv()).await else {
            break;
        };
        let seen: Seen = observed.context("the observer ended")?;
        let (place, at) = ((seen.stage, seen.key), seen.at);
        let shown = shown.entry(place).or_default();
        *shown = seen.number.max(*shown);
        waiting.retain(|(wanted, least, scheduled)| {
            let there = *wanted == place && *least <= *shown;
            if there {
                latencies[seen.stage].push(millis(at.saturating_duration_since(*scheduled)));
            }
            !there
        });
    }
    for ((stage, _), _, scheduled) in waiting {
        latencies[stage].push(millis(deadline - scheduled));
    }
    for made in generator.await? {
        made.await??;
    }
    Ok(latencies)
}

#[allow(clippy::disallowed_methods, reason = "runs on a thread of its own")]
fn wait_until(at: Instant) {
    let early = at
        .saturating_duration_since(Instant::now())
        .saturating_sub(WAKE_EARLY);
    std::thread::sleep(early);
    while Instant::now() < at {
        std::hint::spin_loop();
    }
}
