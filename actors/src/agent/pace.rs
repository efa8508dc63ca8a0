//! How often a work reports what watches show.
//!
//! The first changes go out at once; an object that never rests may cost the hub no more than a
//! steady trickle, of which the last value is always part.

use std::time::Duration;

use tokio::time::Instant;

/// Reports that may follow each other without a pause, save for the time that changes are
/// collected.
const BURST: f64 = 10.0;

/// Time in which one more report comes to be allowed.
const EARNED_IN: Duration = Duration::from_millis(500);

/// The reports that a work may make.
#[derive(Debug)]
pub(super) struct Pace {
    allowed: f64,
    counted_at: Option<Instant>,
    last: Option<Instant>,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            allowed: BURST,
            counted_at: None,
            last: None,
        }
    }
}

impl Pace {
    /// How long the next report has to wait; counts it as made then. Reports are at least
    /// `coalesce` apart.
    pub(super) fn pause(&mut self, coalesce: Duration) -> Duration {
        let now = Instant::now();
        let earned = self
            .counted_at
            .map_or(0.0, |at| (now - at).as_secs_f64() / EARNED_IN.as_secs_f64());
        self.allowed = (self.allowed + earned).min(BURST);
        self.counted_at = Some(now);
        let lacking = (1.0 - self.allowed).max(0.0);
        let apart = self.last.map_or(Duration::ZERO, |last| {
            (last + coalesce).saturating_duration_since(now)
        });
        let pause = EARNED_IN.mul_f64(lacking).max(apart);
        self.allowed -= 1.0;
        self.last = Some(now + pause);
        pause
    }

    /// The report turned out to have nothing to say.
    pub(super) fn not_needed(&mut self) {
        self.allowed = (self.allowed + 1.0).min(BURST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COALESCE: Duration = Duration::from_millis(20);

    /// Reports within a time in which something changes every 20 ms.
    async fn reports(pace: &mut Pace, seconds: u64) -> usize {
        let end = Instant::now() + Duration::from_secs(seconds);
        let mut reports = 0;
        while Instant::now() < end {
            let pause = pace.pause(COALESCE);
            tokio::time::advance(pause.max(COALESCE)).await;
            reports += 1;
        }
        reports
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_reports_go_at_once_and_then_two_a_second() {
        let mut pace = Pace::default();
        assert_eq!(pace.pause(COALESCE), Duration::ZERO);
        assert_eq!(pace.pause(COALESCE), COALESCE);
        tokio::time::advance(COALESCE * 2).await;
        assert_eq!(pace.pause(COALESCE), Duration::ZERO);
        let first = reports(&mut pace, 10).await;
        assert!((20..=30).contains(&first), "{first}");
        let later = reports(&mut pace, 60).await;
        assert!((115..=121).contains(&later), "{later}");
    }

    #[tokio::test(start_paused = true)]
    async fn slow_changes_never_wait() {
        let mut pace = Pace::default();
        for _ in 0..100 {
            assert_eq!(pace.pause(COALESCE), Duration::ZERO);
            tokio::time::advance(Duration::from_millis(500)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_not_needed_is_given_back() {
        let mut pace = Pace::default();
        for _ in 0..50 {
            assert!(pace.pause(COALESCE) <= COALESCE);
            pace.not_needed();
            tokio::time::advance(COALESCE).await;
        }
    }
}
