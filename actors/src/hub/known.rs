//! What there is of a kind.

use std::collections::HashSet;
use std::hash::Hash;

/// Which objects of a kind are known, so that a list shows what is gone.
#[derive(Debug)]
pub(super) struct Known<K> {
    pub(super) all: HashSet<K>,
    /// Seen since the list began.
    listing: Option<HashSet<K>>,
    pub(super) synced: bool,
}

impl<K> Default for Known<K> {
    fn default() -> Self {
        Self {
            all: HashSet::new(),
            listing: None,
            synced: false,
        }
    }
}

impl<K: Eq + Hash + Clone> Known<K> {
    pub(super) fn begin(&mut self) {
        self.listing = Some(HashSet::new());
    }

    pub(super) fn seen(&mut self, key: &K) {
        if let Some(listing) = &mut self.listing {
            listing.insert(key.clone());
        }
        if !self.all.contains(key) {
            self.all.insert(key.clone());
        }
    }

    pub(super) fn gone(&mut self, key: &K) {
        self.all.remove(key);
    }

    /// The list is complete: what it did not name is gone.
    pub(super) fn complete(&mut self) -> Vec<K> {
        self.synced = true;
        let listed = self.listing.take().unwrap_or_default();
        let gone: Vec<K> = self.all.difference(&listed).cloned().collect();
        self.all = listed;
        gone
    }
}
