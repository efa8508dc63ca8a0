//! From the rules to their watches: that rules have changed, and what they are.
//!
//! A signal says nothing but "look": who takes it reads what is known then. So one that waits stands
//! for all that come after it, and sending never blocks; nobody misses the last change.
//!
//! What is known is copied when it is read and has changed since it was read last, not with each
//! change: with many rules a copy costs far more than a change, and many changes are read once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use muster_api::rules::WatchRuleStatus;
use muster_core::watch_rules::{RuleName, RuleSnapshot, RuleStoreState};

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

/// What was known of the rules at one time.
#[derive(Debug, Clone)]
pub struct Published {
    /// The rules that read.
    pub snapshot: Arc<RuleSnapshot>,
    /// All of them.
    pub seen: BTreeMap<RuleName, SeenRule>,
}

/// What is known of the rules.
#[derive(Debug, Default)]
pub struct RuleTable {
    /// Those that read.
    pub state: RuleStoreState,
    /// All of them.
    pub seen: BTreeMap<RuleName, SeenRule>,
    /// As it was read last; `None` if it has changed since.
    published: Option<Arc<Published>>,
}

impl RuleTable {
    /// `None` until all rules have been listed: nobody may take that for "no rules".
    fn published(&mut self) -> Option<Arc<Published>> {
        if self.published.is_none() {
            let snapshot = self.state.snapshot()?;
            let seen = self.seen.clone();
            self.published = Some(Arc::new(Published { snapshot, seen }));
        }
        self.published.clone()
    }
}

type Shared = Arc<Mutex<RuleTable>>;

fn lock(shared: &Shared) -> MutexGuard<'_, RuleTable> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

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
    /// Changes what is known; `change` says whether the rules mean something else then. That is
    /// signalled once all rules are known: whoever takes the signal reads this state or a newer one.
    /// Says whether somebody has to be woken: nobody has while an earlier signal waits.
    pub fn change(&self, change: impl FnOnce(&mut RuleTable) -> bool) -> bool {
        let changed = {
            let mut table = lock(&self.shared);
            // First, so that what nobody else reads is changed in its place.
            table.published = None;
            change(&mut table) && table.state.ready()
        };
        changed && self.signal()
    }

    /// Looks at what is known.
    pub fn look<T>(&self, look: impl FnOnce(&RuleTable) -> T) -> T {
        look(&lock(&self.shared))
    }

    fn signal(&self) -> bool {
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
        lock(&self.shared).published()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use muster_core::watch_rules::{CompiledRule, RuleKind};

    use super::*;

    fn rule(name: &str) -> CompiledRule {
        CompiledRule {
            name: RuleName {
                namespace: Some("ns".into()),
                name: name.into(),
            },
            uid: "u".into(),
            generation: 1,
            destination: "sink".into(),
            items: Vec::new(),
        }
    }

    fn see(table: &mut RuleTable, rule: CompiledRule) -> bool {
        let seen = SeenRule {
            generation: 1,
            status: WatchRuleStatus::default(),
            error: None,
        };
        table.seen.insert(rule.name.clone(), seen);
        table.state.put(rule)
    }

    fn known(published: &Published) -> [usize; 2] {
        [published.snapshot.rules.len(), published.seen.len()]
    }

    /// All rules are known: there are none.
    fn listed() -> (RuleSender, RuleReceiver) {
        let (sender, receiver) = rule_channel();
        sender.change(|table| {
            table.state.replace_all(RuleKind::WatchRule, []);
            table.state.replace_all(RuleKind::ClusterWatchRule, [])
        });
        assert!(receiver.take());
        (sender, receiver)
    }

    #[test]
    fn nothing_is_told_before_all_rules_are_known() {
        let (sender, receiver) = rule_channel();
        assert!(!sender.change(|table| see(table, rule("a"))));
        assert!(!sender.change(|table| table.state.replace_all(RuleKind::WatchRule, [rule("a")])));
        assert!(receiver.published().is_none());
        assert!(!receiver.take());
        assert!(sender.change(|table| table.state.replace_all(RuleKind::ClusterWatchRule, [])));
        assert!(receiver.take());
        assert_eq!(receiver.published().map(|it| known(&it)), Some([1, 1]));
    }

    /// S65: changes that nobody has read yet are one signal, and who takes it reads them all. What
    /// was read does not change any more.
    #[test]
    fn changes_are_read_as_one_and_copied_only_then() {
        let (sender, receiver) = listed();
        let before = receiver.published().unwrap();
        assert!(Arc::ptr_eq(&before, &receiver.published().unwrap()));
        assert!(sender.change(|table| see(table, rule("a"))));
        assert!(!sender.change(|table| see(table, rule("b"))));
        assert!(receiver.take() && !receiver.take());
        let after = receiver.published().unwrap();
        assert_eq!(known(&before), [0, 0]);
        assert_eq!(known(&after), [2, 2]);
        assert!(after.snapshot.revision > before.snapshot.revision);
        // One that means nothing new is read, too, without a signal.
        assert!(!sender.change(|table| {
            let rule = CompiledRule {
                generation: 2,
                ..rule("a")
            };
            see(table, rule)
        }));
        assert!(!receiver.take());
        let name = rule("a").name;
        let read = receiver.published().unwrap();
        assert_eq!(read.snapshot.rules[&name].generation, 2);
        assert_eq!(after.snapshot.rules[&name].generation, 1);
        // Without a reader it is changed where it is.
        drop((before, after, read));
        let place = |table: &RuleTable| Arc::as_ptr(&table.state.snapshot().unwrap());
        let first = sender.look(place);
        sender.change(|table| see(table, rule("c")));
        assert_eq!(first, sender.look(place));
    }

    /// K16: changes never wait for a reader: a thousand that nobody takes are one signal, and what is
    /// read then is the last of them.
    #[test]
    fn changes_that_nobody_takes_are_one_signal() {
        let (sender, receiver) = listed();
        let changes = (0..1_000).map(|n| rule(&format!("r{n}")));
        let signals = changes.filter(|rule| sender.change(|table| see(table, rule.clone())));
        assert_eq!(signals.count(), 1);
        assert!(receiver.take() && !receiver.take());
        assert_eq!(known(&receiver.published().unwrap()), [1_000; 2]);
    }

    /// K10: however many change rules at a time, what has not been read has a signal.
    #[test]
    fn the_last_change_of_many_threads_is_read() {
        let (sender, receiver) = listed();
        let writing = AtomicUsize::new(8);
        let mut read = 0;
        thread::scope(|scope| {
            for thread in 0..8 {
                let (sender, writing) = (sender.clone(), &writing);
                scope.spawn(move || {
                    for n in 0..200 {
                        sender.change(|table| see(table, rule(&format!("r{thread}-{n}"))));
                    }
                    writing.fetch_sub(1, Ordering::SeqCst);
                });
            }
            loop {
                let over = writing.load(Ordering::SeqCst) == 0;
                if receiver.take() {
                    let rules = receiver.published().unwrap().snapshot.rules.len();
                    assert!(rules >= read, "{rules} after {read}");
                    read = rules;
                } else if over {
                    break;
                }
            }
        });
        assert_eq!(read, 8 * 200);
    }
}
