//! Clock and waiting, so that tests need neither.

use std::fmt;
use std::time::{Duration, SystemTime};

use rand::Rng as _;

/// What a writer asks for time and chance.
pub trait Pace: fmt::Debug + Send + Sync {
    /// The time of a commit.
    fn now(&self) -> SystemTime;
    /// Blocks the thread.
    fn sleep(&self, wait: Duration);
    /// A number from 0 up to, not including, 1.
    fn chance(&self) -> f64;
}

/// The system's clock and chance.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemPace;

impl Pace for SystemPace {
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the calls of this crate block; they run on a thread that is for it"
    )]
    fn sleep(&self, wait: Duration) {
        std::thread::sleep(wait);
    }

    fn chance(&self) -> f64 {
        rand::rng().random()
    }
}

/// The wait after try number `tried`, from 1 on: between half and all of `first`, doubled with
/// each try, 30 s at most.
pub(crate) fn back_off(first: Duration, tried: u32, chance: f64) -> Duration {
    let doubled = first.saturating_mul(1_u32 << tried.saturating_sub(1).min(20));
    doubled
        .min(Duration::from_secs(30))
        .mul_f64(0.5 + chance / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_and_are_bounded() {
        let wait = |tried, chance| back_off(Duration::from_millis(200), tried, chance);
        assert_eq!(wait(1, 0.0), Duration::from_millis(100));
        assert_eq!(wait(2, 0.0), Duration::from_millis(200));
        assert_eq!(wait(2, 0.5), Duration::from_millis(300));
        assert_eq!(wait(40, 0.0), Duration::from_secs(15));
    }
}
