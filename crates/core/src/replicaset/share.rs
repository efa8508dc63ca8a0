//! What works and clusters add to the counters of a set.

use super::facts::WorkFacts;
use crate::rollout::{ClusterState, ConditionFacts, Truth, cluster_state, is_refused};

/// What one work adds to each counter of [`Share`], which is 0 or 1: 2 bytes a work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Part(u16);

impl Part {
    pub(super) fn of(share: Share) -> Self {
        let mut bits = 0;
        let mut bit = 1;
        let mut copy = Share::default();
        copy.each(share, |_, number| {
            if number > 0 {
                bits |= bit;
            }
            bit <<= 1;
        });
        Self(bits)
    }

    pub(super) fn share(self) -> Share {
        let mut share = Share::default();
        let mut bits = self.0;
        share.each(Share::default(), |number, _| {
            *number = u32::from(bits & 1);
            bits >>= 1;
        });
        share
    }

    /// Whether the work counts, and has the current template.
    pub(super) const fn is_current(self) -> bool {
        self.0 & 2 != 0 // the second of `Share::each`
    }

    pub(super) const fn counts(self) -> bool {
        self.0 != 0
    }
}

/// A work's share in the counters of its placement, or a sum of such shares.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) total: u32,
    pub(super) updated: u32,
    pub(super) applied: u32,
    pub(super) available: u32,
    pub(super) progressing: u32,
    /// Degraded by a rule, and not failed.
    pub(super) degraded: u32,
    /// Not applied.
    pub(super) failed: u32,
    /// Applied, and an object is not there; neither failed nor degraded.
    pub(super) unavailable: u32,
    pub(super) succeeded: u32,
    /// Succeeded, and degraded all the same.
    pub(super) spoiled: u32,
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
            let says_no = |condition: Option<ConditionFacts>| {
                condition.is_some_and(|facts| {
                    facts.status == Truth::False
                        && facts.observed_generation == Some(work.generation)
                })
            };
            let failed = is_refused(work.generation, &work.conditions);
            let degraded = !failed && is(work.conditions.degraded) == 1;
            let unavailable = !failed && !degraded && says_no(work.conditions.available);
            let succeeded = state == ClusterState::Succeeded;
            share.failed = u32::from(failed);
            share.degraded = u32::from(degraded);
            share.unavailable = u32::from(unavailable);
            share.succeeded = u32::from(succeeded);
            share.spoiled = u32::from(succeeded && degraded);
            // Differs from upstream: without a condition rule named `Progressing`, an applied work
            // is on its way until it is available.
            share.progressing = match work.conditions.progressing {
                Some(_) => is(work.conditions.progressing),
                None => u32::from(state == ClusterState::Progressing),
            };
        }
        share
    }

    /// What a cluster adds to the numbers of a set that has works of several placements there: it is
    /// as well as the worst of them. `shares` has one for each placement that wants a work there.
    pub(super) fn of_cluster(shares: impl Iterator<Item = Self>) -> Self {
        let mut sum = Self::default();
        let mut wanted = 0;
        for share in shares {
            sum.add(share);
            wanted += 1;
        }
        let any = |number: u32| number.min(1);
        let all = |number: u32| u32::from(wanted > 0 && number == wanted);
        let failed = any(sum.failed);
        let degraded = any(sum.degraded) * (1 - failed);
        let succeeded = all(sum.succeeded);
        Self {
            total: any(sum.total),
            updated: all(sum.updated),
            applied: all(sum.applied),
            available: all(sum.available),
            progressing: any(sum.progressing),
            degraded,
            failed,
            unavailable: any(sum.unavailable) * (1 - failed) * (1 - degraded),
            succeeded,
            spoiled: succeeded * degraded * any(sum.spoiled),
        }
    }

    fn each(&mut self, other: Self, mut change: impl FnMut(&mut u32, u32)) {
        change(&mut self.total, other.total);
        change(&mut self.updated, other.updated);
        change(&mut self.applied, other.applied);
        change(&mut self.available, other.available);
        change(&mut self.progressing, other.progressing);
        change(&mut self.degraded, other.degraded);
        change(&mut self.failed, other.failed);
        change(&mut self.unavailable, other.unavailable);
        change(&mut self.succeeded, other.succeeded);
        change(&mut self.spoiled, other.spoiled);
    }

    pub(super) fn add(&mut self, other: Self) {
        self.each(other, |number, more| *number += more);
    }

    pub(super) fn subtract(&mut self, other: Self) {
        self.each(other, |number, less| *number -= less);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_the_share_that_it_was_made_of() {
        let all = Share {
            total: 1,
            updated: 1,
            applied: 1,
            available: 1,
            progressing: 1,
            degraded: 1,
            failed: 1,
            unavailable: 1,
            succeeded: 1,
            spoiled: 1,
        };
        let some = Share {
            total: 1,
            degraded: 1,
            spoiled: 1,
            ..Share::default()
        };
        for share in [Share::default(), some, all] {
            assert_eq!(Part::of(share).share(), share);
        }
        assert!(!Part::of(some).is_current() && Part::of(all).is_current());
        assert!(!Part::of(Share::default()).counts() && Part::of(some).counts());
    }
}
