//! Clusters that several placements of a set select: they are one cluster each in its numbers.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::share::Share;
use super::{Placement, ReplicaSet, WorkKey};

/// By how much the sum over the placements counts too much. Empty for sets with one placement.
#[derive(Debug, Clone, Default)]
pub(super) struct Overlap {
    clusters: HashMap<String, Share>,
    pub(super) total: Share,
}

impl Overlap {
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    fn set(&mut self, cluster: &str, excess: Share) {
        if let Some(before) = self.clusters.remove(cluster) {
            self.total.subtract(before);
        }
        if excess != Share::default() {
            self.total.add(excess);
            self.clusters.insert(cluster.to_owned(), excess);
        }
    }
}

impl ReplicaSet {
    /// What the works of a cluster add to the counters of each placement that has one for it.
    fn shares<'a>(&'a self, cluster: &'a str) -> impl Iterator<Item = Share> + 'a {
        let counts = |placement: &Placement| placement.selects(cluster);
        let placements = self.placements.values();
        placements.filter_map(move |placement| {
            let names = placement.works.get(cluster).into_iter().flatten();
            let mut works = names.filter_map(|name| {
                let key = WorkKey {
                    cluster: cluster.to_owned(),
                    name: name.clone(),
                };
                self.works.get(&key)
            });
            let counted = works.find(|work| work.part.counts());
            let none = counts(placement).then_some(Share::default());
            counted.map(|work| work.part.share()).or(none)
        })
    }

    /// What a cluster adds to the numbers of the set, whatever the number of its placements.
    pub(super) fn share_of_cluster(&self, cluster: &str) -> Share {
        Share::of_cluster(self.shares(cluster))
    }

    /// Brings up to date by how much a cluster is counted too much. Costs O(placements).
    pub(super) fn measure_overlap(&mut self, cluster: &str) {
        if self.placements.len() < 2 {
            return;
        }
        let mut excess = Share::default();
        for share in self.shares(cluster) {
            excess.add(share);
        }
        excess.subtract(self.share_of_cluster(cluster));
        self.overlap.set(cluster, excess);
    }

    /// Counts the clusters that are selected, each once. Costs nothing where there is one placement.
    pub(super) fn count_desired(&mut self) {
        let facts = || self.placements.values().filter_map(|p| p.facts.as_ref());
        self.desired = if facts().count() < 2 {
            facts().map(|facts| facts.clusters.len()).sum()
        } else {
            let clusters = facts().flat_map(|facts| &facts.clusters);
            clusters.collect::<BTreeSet<&Arc<str>>>().len()
        };
    }
}
