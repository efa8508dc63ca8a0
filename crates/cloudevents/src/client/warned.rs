//! Which kinds of useless events have been logged: the first of each kind on each topic.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use tracing::{debug, warn};

/// Kinds and topics that are remembered; what is beyond is counted only.
const MOST: usize = 1_000;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Warned(Mutex<HashSet<(&'static str, String)>>);

impl Warned {
    /// An event on this topic, or of this peer, was dropped.
    pub(super) fn note(&self, kind: &'static str, from: &str, error: &dyn std::fmt::Display) {
        if self.is_first(kind, from) {
            warn!(from, kind, %error, "dropped an event; others of its kind from there are only counted");
        } else {
            debug!(from, kind, %error, "dropped an event");
        }
    }

    fn is_first(&self, kind: &'static str, topic: &str) -> bool {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.len() < MOST && seen.insert((kind, topic.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_logged_once_a_topic() {
        let warned = Warned::default();
        assert!(warned.is_first("type", "a"));
        assert!(!warned.is_first("type", "a"));
        assert!(warned.is_first("type", "b"));
        assert!(warned.is_first("elsewhere", "a"));
        for topic in 0..2 * MOST {
            warned.is_first("type", &topic.to_string());
        }
        assert_eq!(warned.0.lock().unwrap().len(), MOST);
        assert!(!warned.is_first("payload", "a"));
    }
}
