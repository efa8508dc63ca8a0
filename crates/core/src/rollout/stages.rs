//! In which order the groups of a placement have their turn.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::strategy::{Order, Strategy};

/// A decision group. Groups are ordered by index, then by name.
///
/// Differs from upstream: every index that occurs counts. Upstream counts up to the number of
/// indexes, so that a gap drops the highest groups, and of two names on one index loses one.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Group {
    /// Its index.
    pub index: i32,
    /// Its name; may be empty.
    pub name: String,
}

/// The groups of a placement with their clusters.
pub type Groups = BTreeMap<Group, BTreeSet<Arc<str>>>;

/// Clusters that have their turn together, with what is counted of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stage {
    /// The group, where it is one.
    pub(super) group: Option<Group>,
    /// How many may be on their way at once; `None`: all of the group.
    pub(super) concurrency: Option<u32>,
    pub(super) max_failures: u32,
    /// Those that have not had their turn, and may have it.
    pub(super) waiting: BTreeSet<Arc<str>>,
    /// Those that failed, in time or not.
    pub(super) failing: BTreeSet<Arc<str>>,
    /// Of these, how many still have time to succeed.
    pub(super) failed_in_time: u32,
    /// Those that were told to begin, and have not applied the work yet.
    pub(super) started: u32,
    /// Those that are on their way, with those that failed in time and those that have to prove
    /// themselves; without those only told to begin.
    pub(super) moving: u32,
}

impl Stage {
    const fn new(group: Option<Group>, concurrency: Option<u32>, max_failures: u32) -> Self {
        Self {
            group,
            concurrency,
            max_failures,
            waiting: BTreeSet::new(),
            failing: BTreeSet::new(),
            failed_in_time: 0,
            started: 0,
            moving: 0,
        }
    }

    /// Whether more clusters failed than may.
    pub(super) fn breached(&self) -> bool {
        self.failing.len() > self.max_failures as usize
    }
}

/// What a strategy makes of the groups: stages in order, the first so many of them mandatory, and
/// the stage of each cluster.
pub(super) struct Plan {
    pub(super) stages: Vec<Stage>,
    pub(super) mandatory: usize,
    pub(super) members: Vec<(Arc<str>, usize)>,
}

fn size(clusters: usize) -> u32 {
    u32::try_from(clusters).unwrap_or(u32::MAX)
}

/// Puts the groups into stages.
///
/// Mandatory groups come first, one after the other, and none of their clusters may fail. Of the
/// others, `All` and `Progressive` make one stage, `ProgressivePerGroup` one of each group.
pub(super) fn plan(strategy: &Strategy, groups: &Groups) -> Plan {
    let is_mandatory = |group: &Group| {
        strategy.mandatory.iter().any(|entry| {
            if entry.group_name.is_empty() {
                entry.group_index == group.index
            } else {
                entry.group_name == group.name
            }
        })
    };
    let mut plan = Plan {
        stages: Vec::new(),
        mandatory: 0,
        members: Vec::new(),
    };
    let mut placed = BTreeSet::new();
    // A cluster that is in several groups belongs to the first.
    let mut own = |clusters: &BTreeSet<Arc<str>>| -> Vec<Arc<str>> {
        let new = clusters
            .iter()
            .filter(|cluster| placed.insert(Arc::clone(cluster)));
        new.cloned().collect()
    };
    for (group, clusters) in groups.iter().filter(|(group, _)| is_mandatory(group)) {
        let stage = plan.stages.len();
        plan.stages.push(Stage::new(Some(group.clone()), None, 0));
        plan.members
            .extend(own(clusters).into_iter().map(|cluster| (cluster, stage)));
    }
    plan.mandatory = plan.stages.len();
    let others = groups.iter().filter(|(group, _)| !is_mandatory(group));
    match strategy.order {
        Order::All | Order::Progressive(_) => {
            let rest: Vec<Arc<str>> = others.flat_map(|(_, clusters)| own(clusters)).collect();
            let count = size(rest.len());
            let concurrency = match strategy.order {
                Order::Progressive(Some(concurrency)) => concurrency.concurrency(count),
                _ => count,
            };
            let stage = plan.stages.len();
            plan.members
                .extend(rest.into_iter().map(|cluster| (cluster, stage)));
            let all = size(plan.members.len());
            let max_failures = strategy.max_failures.failures(all);
            plan.stages
                .push(Stage::new(None, Some(concurrency), max_failures));
        }
        Order::PerGroup => {
            for (group, clusters) in others {
                let clusters = own(clusters);
                let max_failures = strategy.max_failures.failures(size(clusters.len()));
                let stage = plan.stages.len();
                plan.stages
                    .push(Stage::new(Some(group.clone()), None, max_failures));
                plan.members
                    .extend(clusters.into_iter().map(|cluster| (cluster, stage)));
            }
        }
    }
    plan
}
