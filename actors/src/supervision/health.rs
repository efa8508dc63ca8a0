//! Liveness of the streams that must not end silently (contract C11).
//!
//! Whoever owns a watch, a subscription or a lease keeps a [`StreamHealth`] and says how it goes;
//! readiness lists the streams that are not alive, with the reason and since when.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use tokio::time::Instant;

use super::metrics;
use super::stalls::stalled;

#[derive(Debug, Clone)]
enum State {
    Starting,
    Alive,
    Failing {
        since: Timestamp,
        began: Instant,
        error: String,
    },
}

/// One stream, as it is told to people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StreamReport {
    /// Its name.
    pub name: String,
    /// How it is.
    #[serde(flatten)]
    pub state: StreamState,
}

/// How a stream is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum StreamState {
    /// It has not come so far yet.
    Starting,
    /// It works.
    Alive,
    /// It fails and is being retried.
    Failing {
        /// Since its first failure in a row.
        since: Timestamp,
        /// The last of them.
        error: String,
    },
}

/// The streams of this process by name. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Health {
    streams: Arc<Mutex<BTreeMap<String, State>>>,
}

impl Health {
    /// No streams yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a stream, not ready until its owner reports [`StreamHealth::alive`].
    /// The stream leaves the list when the returned handle is dropped.
    pub fn stream(&self, name: impl Into<String>) -> StreamHealth {
        let name = name.into();
        self.lock().insert(name.clone(), State::Starting);
        StreamHealth {
            health: self.clone(),
            name,
            optional: false,
        }
    }

    /// A stream that others can do without while it starts, as what polls instead: it is in the
    /// list only while it fails.
    pub fn optional_stream(&self, name: impl Into<String>) -> StreamHealth {
        StreamHealth {
            health: self.clone(),
            name: name.into(),
            optional: true,
        }
    }

    /// Reasons why this process is not ready; empty means ready.
    pub fn not_ready(&self) -> Vec<String> {
        self.lock()
            .iter()
            .filter_map(|(name, state)| match state {
                State::Alive => None,
                State::Starting => Some(format!("{name}: not synced yet")),
                State::Failing { since, error, .. } => {
                    Some(format!("{name}: {error} (since {since})"))
                }
            })
            .collect()
    }

    /// Every stream, by name.
    pub fn streams(&self) -> Vec<StreamReport> {
        let streams = self.lock();
        let all = streams.iter().map(|(name, state)| StreamReport {
            name: name.clone(),
            state: match state {
                State::Starting => StreamState::Starting,
                State::Alive => StreamState::Alive,
                State::Failing { since, error, .. } => StreamState::Failing {
                    since: *since,
                    error: error.clone(),
                },
            },
        });
        all.collect()
    }

    /// Records how many streams are not ready and how many threads stalled, before metrics are read.
    pub fn measure(&self) {
        metrics::not_ready(self.not_ready().len());
        metrics::threads_stalled(stalled().len());
    }

    /// Why a stream fails, if it has for at least this long.
    pub fn failing_for(&self, name: &str, at_least: Duration) -> Option<String> {
        match self.lock().get(name)? {
            State::Failing { began, error, .. } if began.elapsed() >= at_least => {
                Some(error.clone())
            }
            _ => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, State>> {
        // A panic while holding the lock leaves a map of plain values, which is still usable.
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The owner's side of one stream in [`Health`].
#[derive(Debug)]
pub struct StreamHealth {
    health: Health,
    name: String,
    optional: bool,
}

impl StreamHealth {
    /// The name it is registered under.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The stream works.
    pub fn alive(&self) {
        let mut streams = self.health.lock();
        if self.optional {
            streams.remove(&self.name);
            return;
        }
        match streams.get_mut(&self.name) {
            Some(State::Alive) => {}
            Some(state) => *state = State::Alive,
            None => {
                streams.insert(self.name.clone(), State::Alive);
            }
        }
    }

    /// The stream failed and is being retried; the time of the first failure in a row is kept.
    pub fn failing(&self, error: impl std::fmt::Display) {
        let mut streams = self.health.lock();
        let (since, began) = match streams.get(&self.name) {
            Some(State::Failing { since, began, .. }) => (*since, *began),
            _ => (Timestamp::now(), Instant::now()),
        };
        let failing = State::Failing {
            since,
            began,
            error: error.to_string(),
        };
        streams.insert(self.name.clone(), failing);
    }
}

impl Drop for StreamHealth {
    fn drop(&mut self) {
        self.health.lock().remove(&self.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_ready_only_while_it_is_alive() {
        let health = Health::new();
        let stream = health.stream("hub works");
        assert_eq!(health.not_ready(), ["hub works: not synced yet"]);
        assert_eq!(health.streams()[0].state, StreamState::Starting);
        stream.alive();
        assert!(health.not_ready().is_empty());
        assert_eq!(health.streams()[0].state, StreamState::Alive);
        stream.failing("410 gone");
        let told = serde_json::to_value(health.streams()).unwrap();
        let since = told[0]["since"].clone();
        assert_eq!(
            told,
            serde_json::json!([
                {"name": "hub works", "state": "failing", "since": since, "error": "410 gone"}
            ])
        );
        let reasons = health.not_ready();
        assert!(
            reasons[0].starts_with("hub works: 410 gone (since "),
            "{reasons:?}"
        );
        drop(stream);
        assert!(health.not_ready().is_empty());
    }

    #[test]
    fn an_optional_stream_counts_only_while_it_fails() {
        let health = Health::new();
        let stream = health.optional_stream("watch of pods");
        assert!(health.not_ready().is_empty());
        stream.failing("connection refused");
        assert_eq!(health.not_ready().len(), 1);
        stream.alive();
        assert!(health.not_ready().is_empty());
        stream.failing("connection refused");
        drop(stream);
        assert!(health.not_ready().is_empty());
    }
}
