//! One retry policy: exponential with jitter, forgotten after a quiet time.

use std::time::Duration;

use rand::Rng;
use tokio::time::Instant;

/// How a [`Backoff`] grows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BackoffPolicy {
    /// Delay after the first failure.
    pub first: Duration,
    /// Upper bound of the delay.
    pub max: Duration,
    /// Failures further apart than this start again at `first`.
    pub reset_after: Duration,
}

impl BackoffPolicy {
    /// For an actor that panicked: quick at first, since most panics hit one message.
    pub const RESTART: Self = Self {
        first: Duration::from_millis(100),
        max: Duration::from_secs(30),
        reset_after: Duration::from_secs(120),
    };

    /// For requests to an API server; the same bounds as client-go's reflector.
    pub const REQUEST: Self = Self {
        first: Duration::from_millis(800),
        max: Duration::from_secs(30),
        reset_after: Duration::from_secs(120),
    };
}

/// Counts failures and says how long to wait after each.
#[derive(Debug, Clone)]
pub struct Backoff {
    policy: BackoffPolicy,
    failures: u32,
    last_failure: Option<Instant>,
}

impl Backoff {
    /// A back-off that has seen no failure.
    pub const fn new(policy: BackoffPolicy) -> Self {
        Self {
            policy,
            failures: 0,
            last_failure: None,
        }
    }

    /// Records a failure and returns the delay before the next try: the exponential value, less
    /// up to a quarter of it at random, so that many failing clients spread out.
    pub fn failed(&mut self) -> Duration {
        let now = Instant::now();
        if self
            .last_failure
            .is_some_and(|last| now - last > self.policy.reset_after)
        {
            self.failures = 0;
        }
        self.last_failure = Some(now);
        let full = self
            .policy
            .first
            .saturating_mul(2_u32.saturating_pow(self.failures))
            .min(self.policy.max);
        self.failures = self.failures.saturating_add(1);
        full.mul_f64(1.0 - rand::rng().random_range(0.0..0.25))
    }

    /// Forgets past failures: the thing works, or its input changed.
    pub const fn succeeded(&mut self) {
        self.failures = 0;
        self.last_failure = None;
    }

    /// Failures in a row so far.
    pub const fn failures(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: BackoffPolicy = BackoffPolicy {
        first: Duration::from_secs(1),
        max: Duration::from_secs(8),
        reset_after: Duration::from_secs(60),
    };

    fn assert_within(delay: Duration, full_secs: f64) {
        let secs = delay.as_secs_f64();
        assert!(
            secs <= full_secs && secs >= full_secs * 0.75,
            "{secs} is not near {full_secs}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn delays_double_up_to_the_maximum() {
        let mut backoff = Backoff::new(POLICY);
        for full in [1.0, 2.0, 4.0, 8.0, 8.0] {
            assert_within(backoff.failed(), full);
        }
        assert_eq!(backoff.failures(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn a_quiet_time_or_a_success_starts_again() {
        let mut backoff = Backoff::new(POLICY);
        backoff.failed();
        backoff.failed();
        tokio::time::advance(Duration::from_secs(61)).await;
        assert_within(backoff.failed(), 1.0);
        backoff.failed();
        backoff.succeeded();
        assert_within(backoff.failed(), 1.0);
    }
}
