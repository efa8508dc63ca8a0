//! Log lines about refused clients: the first of each kind, and then how many more there were.
//!
//! Anybody can be refused as often as he likes, so there is not a line for each.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tracing::{debug, warn};

use crate::metrics::{self, Reason};

/// How long one line stands for all of its kind.
const WINDOW: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<HashMap<Reason, Window>>);

#[derive(Debug)]
struct Window {
    since: Instant,
    more: u64,
}

/// What is to be logged of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    /// It, and how many there were since the last line.
    Now(u64),
    Later,
}

impl Refusals {
    /// A client of this address is refused.
    pub(crate) fn note(&self, reason: Reason, from: IpAddr, client_id: &str, why: &str) {
        metrics::refused(reason);
        let kind = reason.label();
        match self.line(reason) {
            Line::Now(0) => warn!(%from, client_id, kind, why, "client refused"),
            Line::Now(more) => {
                warn!(%from, client_id, kind, why, more, "client refused, as others in the last minute");
            }
            Line::Later => debug!(%from, client_id, kind, why, "client refused"),
        }
    }

    fn line(&self, reason: Reason) -> Line {
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let Some(window) = windows.get_mut(&reason) else {
            windows.insert(
                reason,
                Window {
                    since: now,
                    more: 0,
                },
            );
            return Line::Now(0);
        };
        if now.duration_since(window.since) < WINDOW {
            window.more += 1;
            return Line::Later;
        }
        window.since = now;
        Line::Now(std::mem::take(&mut window.more))
    }

    /// Logs how many there were in the windows that are over.
    pub(crate) fn sum_up(&self) {
        let mut over = Vec::new();
        {
            let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            windows.retain(|reason, window| {
                let is_over = window.since.elapsed() >= WINDOW;
                if is_over && window.more > 0 {
                    over.push((*reason, window.more));
                }
                !is_over
            });
        }
        for (reason, more) in over {
            warn!(
                kind = reason.label(),
                more, "clients refused in the last minute"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_line_a_minute_stands_for_all_of_a_kind() {
        let refusals = Refusals::default();
        assert_eq!(refusals.line(Reason::Credentials), Line::Now(0));
        for _ in 0..1_000 {
            assert_eq!(refusals.line(Reason::Credentials), Line::Later);
        }
        assert_eq!(refusals.line(Reason::Tls), Line::Now(0), "another kind");
        tokio::time::advance(WINDOW).await;
        assert_eq!(refusals.line(Reason::Credentials), Line::Now(1_000));
        assert_eq!(refusals.line(Reason::Credentials), Line::Later);
        tokio::time::advance(WINDOW).await;
        refusals.sum_up();
        assert_eq!(
            refusals.line(Reason::Credentials),
            Line::Now(0),
            "summed up"
        );
    }
}
