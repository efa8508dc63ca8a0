//! What an operator sets about an agent; all of it can change while the agent runs.

use std::time::Duration;

use muster_core::feedback::FeedbackLimits;
use muster_core::watch_plan::WatchLimits;
use rand::Rng;

/// Settings of the agent of one cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentSettings {
    /// How often each work is looked at without a reason: drift is repaired, feedback read. The
    /// interval between two looks is this times 1.0 to 1.25 at random. Upstream's flag is
    /// `--status-sync-interval`, with 10 s in code and 60 s in its usual deployment.
    pub poll_interval: Duration,
    /// Pause between two reconciles of one work when changes come faster than that.
    pub coalesce: Duration,
    /// How feedback values are read.
    pub feedback: FeedbackLimits,
    /// Reconciles at the same time, over all works of the cluster. Upstream:
    /// `--workload-agent-workers`.
    pub workers: usize,
    /// How long the record of a work that is gone from the hub, without having been deleted there,
    /// keeps its objects. From [`AgentSettings::EVICTION_OFF`] on they are kept for ever. Upstream:
    /// `--appliedmanifestwork-eviction-grace-period`.
    pub eviction_grace: Duration,
    /// How many watches there may be for objects whose scrape type is Watch. Upstream:
    /// `--max-feedback-watch`, which counts only some of them.
    pub watch: WatchLimits,
    /// Whether the objects of a work that is available, with no progress going on, are polled
    /// until something about them or the work changes.
    pub stop_when_ready: bool,
}

impl Default for AgentSettings {
    fn default() -> Self {
        Self {
            poll_interval: Duration::from_secs(60),
            coalesce: Duration::from_millis(20),
            feedback: FeedbackLimits::default(),
            workers: 10,
            eviction_grace: Duration::from_secs(60 * 60),
            watch: WatchLimits::default(),
            stop_when_ready: false,
        }
    }
}

/// Shortest time between two polls of a work, whatever the settings say.
const SHORTEST_POLL: Duration = Duration::from_millis(100);

impl AgentSettings {
    /// An [`AgentSettings::eviction_grace`] that means never: 100 years of 365 days, as upstream.
    pub const EVICTION_OFF: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

    /// Time from one poll to the next.
    pub(super) fn next_poll(&self) -> Duration {
        self.poll_interval
            .mul_f64(rand::rng().random_range(1.0..1.25))
            .max(SHORTEST_POLL)
    }

    /// Time to the first poll: anywhere in an interval, so that the works of an agent that has
    /// just started do not poll in the same second ever after.
    pub(super) fn first_poll(&self) -> Duration {
        self.poll_interval
            .mul_f64(rand::rng().random_range(0.0..1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C149: no second of the third interval holds more than three times the mean.
    #[test]
    fn polls_of_works_that_start_together_are_spread() {
        const WORKS: u32 = 1_000;
        let settings = AgentSettings {
            poll_interval: Duration::from_secs(10),
            ..AgentSettings::default()
        };
        let mut by_second = [0_u32; 64];
        for _ in 0..WORKS {
            let mut at = settings.first_poll();
            while at < Duration::from_secs(64) {
                by_second[usize::try_from(at.as_secs()).unwrap()] += 1;
                at += settings.next_poll();
            }
        }
        let mean = f64::from(WORKS) / 11.25;
        for (second, count) in by_second.iter().enumerate().skip(20).take(10) {
            assert!(
                f64::from(*count) < 3.0 * mean,
                "{count} polls in second {second}"
            );
        }
    }
}
