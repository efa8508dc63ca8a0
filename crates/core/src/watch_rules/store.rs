//! All rules of a cluster, at one revision after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::rule::{CompiledRule, RuleKind, RuleName};

/// The rules at a revision. It never changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuleSnapshot {
    /// Goes up with every change; what was made from another revision is out of date.
    pub revision: u64,
    /// The rules, by name.
    pub rules: BTreeMap<RuleName, Arc<CompiledRule>>,
}

/// What is known of the rules.
///
/// Rules come one by one from watches, and as full lists when a watch begins. Before both kinds have
/// been listed there is no snapshot: whoever saw few or no rules then would stop what is wanted.
#[derive(Debug, Default)]
pub struct RuleStoreState {
    snapshot: Arc<RuleSnapshot>,
    listed: BTreeSet<RuleKind>,
}

impl RuleStoreState {
    /// Takes in a rule in place of the one of its name. Says whether that means a change, which
    /// gives a new revision; uid and generation are kept up to date in any case.
    pub fn put(&mut self, rule: CompiledRule) -> bool {
        let old = self.snapshot.rules.get(&rule.name);
        let changed = old.is_none_or(|old| **old != rule);
        let snapshot = Arc::make_mut(&mut self.snapshot);
        snapshot.rules.insert(rule.name.clone(), Arc::new(rule));
        snapshot.revision += u64::from(changed);
        changed
    }

    /// Forgets a rule: it is gone, or has become invalid. Says whether there was one.
    pub fn remove(&mut self, name: &RuleName) -> bool {
        if !self.snapshot.rules.contains_key(name) {
            return false;
        }
        let snapshot = Arc::make_mut(&mut self.snapshot);
        snapshot.rules.remove(name);
        snapshot.revision += 1;
        true
    }

    /// Takes in a full list of the rules of a kind: others of that kind are gone. Says whether that
    /// means a change; that all rules are known from now on is one, even if there are none.
    pub fn replace_all(
        &mut self,
        kind: RuleKind,
        rules: impl IntoIterator<Item = CompiledRule>,
    ) -> bool {
        let was_ready = self.ready();
        let mut gone: BTreeSet<RuleName> = self
            .snapshot
            .rules
            .keys()
            .filter(|name| name.kind() == kind)
            .cloned()
            .collect();
        let mut changed = false;
        for rule in rules {
            gone.remove(&rule.name);
            changed |= self.put(rule);
        }
        for name in &gone {
            changed |= self.remove(name);
        }
        self.listed.insert(kind);
        if self.ready() && !was_ready {
            Arc::make_mut(&mut self.snapshot).revision += 1;
            changed = true;
        }
        changed
    }

    /// Whether all rules are known.
    pub fn ready(&self) -> bool {
        self.listed.len() == 2
    }

    /// The rules, once all are known. Cheap, and not touched by what comes later.
    pub fn snapshot(&self) -> Option<Arc<RuleSnapshot>> {
        self.ready().then(|| Arc::clone(&self.snapshot))
    }
}
