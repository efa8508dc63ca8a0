//! What one work adds to the counters of its placement.

use super::facts::WorkFacts;
use crate::rollout::{ClusterState, ConditionFacts, Truth, cluster_state};

/// One work's share in the counters of its placement.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) total: u32,
    pub(super) updated: u32,
    pub(super) applied: u32,
    pub(super) available: u32,
    pub(super) progressing: u32,
    pub(super) degraded: u32,
    pub(super) succeeded: u32,
}

impl Share {
    pub(super) fn of(work: &WorkFacts, current: bool) -> Self {
        // What was said of an earlier template counts for nothing.
        let is = |condition: Option<ConditionFacts>| {
            let says = |facts: ConditionFacts| {
                let of_now = facts
                    .observed_generation
                    .is_none_or(|seen| seen == work.generation);
                of_now && facts.status == Truth::True
            };
            u32::from(condition.is_some_and(says))
        };
        let mut share = Self {
            total: 1,
            ..Self::default()
        };
        if current {
            let (state, _) = cluster_state(work.generation, &work.conditions);
            share.updated = 1;
            share.applied = is(work.conditions.applied);
            share.available = is(work.conditions.available);
            share.degraded = is(work.conditions.degraded);
            share.succeeded = u32::from(state == ClusterState::Succeeded);
            // Differs from upstream: without a condition rule named `Progressing`, an applied work
            // is on its way until it is available.
            share.progressing = match work.conditions.progressing {
                Some(_) => is(work.conditions.progressing),
                None => u32::from(state == ClusterState::Progressing),
            };
        }
        share
    }

    pub(super) fn add(&mut self, other: Self) {
        self.total += other.total;
        self.updated += other.updated;
        self.applied += other.applied;
        self.available += other.available;
        self.progressing += other.progressing;
        self.degraded += other.degraded;
        self.succeeded += other.succeeded;
    }

    pub(super) fn subtract(&mut self, other: Self) {
        self.total -= other.total;
        self.updated -= other.updated;
        self.applied -= other.applied;
        self.available -= other.available;
        self.progressing -= other.progressing;
        self.degraded -= other.degraded;
        self.succeeded -= other.succeeded;
    }
}
