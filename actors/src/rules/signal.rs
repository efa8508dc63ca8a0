//! From the rules to their watches: that rules have changed, and what they are.
//!
//! A signal says nothing but "look": who takes it reads what is published then. So one that waits
//! stands for all that come after it, and sending never blocks; nobody misses the last change.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use muster_api::rules::WatchRuleStatus;
use muster_core::watch_rules::{RuleName, RuleSnapshot};

use super::metrics;

/// A rule as its watch shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct SeenRule {
    /// Of its spec.
    pub generation: i64,
    /// As it was written last.
    pub status: WatchRuleStatus,
    /// Why it does not read; `None` for one that is in the snapshot.
    pub error: Option<String>,
}

/// What is known of the rules.
#[derive(Debug, Clone)]
pub struct Published {
    /// The rules that read.
    pub snapshot: Arc<RuleSnapshot>,
    /// All of them.
    pub seen: BTreeMap<RuleName, SeenRule>,
}

/// `None` until all rules have been listed: nobody may take that for "no rules".
type Shared = Arc<Mutex<Option<Arc<Published>>>>;

/// The side of the rules.
#[derive(Debug, Clone)]
pub struct RuleSender {
    shared: Shared,
    signals: Sender<()>,
}

/// The side of the watches.
#[derive(Debug, Clone)]
pub struct RuleReceiver {
    shared: Shared,
    signals: Receiver<()>,
}

/// A new pair.
pub fn rule_channel() -> (RuleSender, RuleReceiver) {
    let shared = Shared::default();
    let (sender, receiver) = bounded(1);
    (
        RuleSender {
            shared: Arc::clone(&shared),
            signals: sender,
        },
        RuleReceiver {
            shared,
            signals: receiver,
        },
    )
}

impl RuleSender {
    /// Publishes what is known.
    pub fn publish(&self, published: Published) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        *shared = Some(Arc::new(published));
    }

    /// Says that the rules mean something else now, after that was published: whoever takes the
    /// signal reads this state or a newer one. Says whether somebody has to be woken: nobody has
    /// while an earlier signal waits.
    pub fn signal(&self) -> bool {
        let sent = match self.signals.try_send(()) {
            Ok(()) => true,
            Err(TrySendError::Full(()) | TrySendError::Disconnected(())) => false,
        };
        metrics::signal(sent, self.signals.len());
        sent
    }
}

impl RuleReceiver {
    /// Takes the signal that waits, if one does.
    pub fn take(&self) -> bool {
        let taken = self.signals.try_recv().is_ok();
        metrics::signal_depth(self.signals.len());
        taken
    }

    /// What is known now; `None` until the rules are.
    pub fn published(&self) -> Option<Arc<Published>> {
        let shared = self.shared.lock();
        shared.unwrap_or_else(PoisonError::into_inner).clone()
    }
}
