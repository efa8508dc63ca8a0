//! A rollout, which takes one report at a time, beside a slow and obvious one, which goes through
//! all clusters again and again: whatever happens, the same clusters begin.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use muster_core::rollout::{
    ClusterState, Group, Groups, Report, Rollout, Strategy as RolloutStrategy, Tally, Turn,
};
use proptest::prelude::*;
use serde_json::json;

/// What is rolled out, in numbers.
#[derive(Debug, Clone)]
struct Plan {
    /// Clusters by group; the index is the group's.
    groups: Vec<BTreeSet<String>>,
    kind: Kind,
    concurrency: Option<usize>,
    failures: usize,
    soak: i64,
    deadline: Option<i64>,
    mandatory: BTreeSet<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    All,
    Progressive,
    PerGroup,
}

/// What the work of a cluster says, and since when.
type Known = BTreeMap<String, (ClusterState, Timestamp)>;

/// Where a cluster stands that has had its turn.
#[derive(Debug, PartialEq)]
enum Stand {
    Begun,
    Moves,
    Failed,
    TimedOut,
    Through,
}

impl Plan {
    fn strategy(&self) -> RolloutStrategy {
        let mandatory: Vec<_> = self
            .mandatory
            .iter()
            .map(|index| json!({"groupIndex": index}))
            .collect();
        let deadline = self.deadline.map_or("None".to_owned(), |s| format!("{s}s"));
        let mut body = json!({"minSuccessTime": format!("{}s", self.soak),
            "progressDeadline": deadline, "maxFailures": self.failures});
        if self.kind != Kind::All {
            body["mandatoryDecisionGroups"] = json!(mandatory);
        }
        if let (Kind::Progressive, Some(concurrency)) = (self.kind, self.concurrency) {
            body["maxConcurrency"] = json!(concurrency);
        }
        let strategy = match self.kind {
            Kind::All => json!({"type": "All", "all": body}),
            Kind::Progressive => json!({"type": "Progressive", "progressive": body}),
            Kind::PerGroup => json!({"type": "ProgressivePerGroup", "progressivePerGroup": body}),
        };
        RolloutStrategy::read(&serde_json::from_value(strategy).unwrap()).unwrap()
    }

    fn groups(&self) -> Groups {
        let groups = self.groups.iter().enumerate();
        let groups = groups.map(|(index, clusters)| {
            let group = Group {
                index: i32::try_from(index).unwrap(),
                name: String::new(),
            };
            let clusters = clusters.iter().map(|cluster| Arc::from(&**cluster));
            (group, clusters.collect())
        });
        groups.collect()
    }

    fn clusters(&self) -> BTreeSet<String> {
        self.groups.iter().flatten().cloned().collect()
    }

    fn stand(&self, (state, since): (ClusterState, Timestamp), now: Timestamp) -> Stand {
        let age = now.duration_since(since).as_secs();
        match state {
            ClusterState::Succeeded if self.kind != Kind::All && age < self.soak => Stand::Moves,
            ClusterState::Succeeded => Stand::Through,
            _ if self.deadline.is_some_and(|deadline| age >= deadline) => Stand::TimedOut,
            ClusterState::ToApply => Stand::Begun,
            ClusterState::Progressing => Stand::Moves,
            ClusterState::Failed => Stand::Failed,
        }
    }

    /// Clusters that begin now.
    fn begin(&self, known: &Known, held: &BTreeSet<String>, now: Timestamp) -> Vec<String> {
        let mandatory = |index: usize| self.kind != Kind::All && self.mandatory.contains(&index);
        let of = |wanted: bool| -> Vec<&BTreeSet<String>> {
            let groups = self.groups.iter().enumerate();
            let groups = groups.filter(|(index, _)| mandatory(*index) == wanted);
            groups.map(|(_, clusters)| clusters).collect()
        };
        let stands = |clusters: &mut dyn Iterator<Item = &String>| -> Vec<Stand> {
            clusters
                .filter_map(|cluster| Some(self.stand(*known.get(cluster)?, now)))
                .collect()
        };
        let new = |clusters: &mut dyn Iterator<Item = &String>| -> Vec<String> {
            clusters
                .filter(|cluster| !known.contains_key(*cluster) && !held.contains(*cluster))
                .cloned()
                .collect()
        };
        // One group after the other. Gives what begins, and whether all are through.
        let by_group = |groups: &[&BTreeSet<String>], most: &dyn Fn(usize) -> usize| {
            let all = stands(&mut groups.iter().copied().flatten());
            let is_in_list = |stand: &&Stand| matches!(stand, Stand::Moves | Stand::Failed);
            let mut list = all.iter().filter(is_in_list).count();
            let mut tolerated = 0;
            for group in groups {
                let begin = new(&mut group.iter());
                if !begin.is_empty() {
                    return (begin, false);
                }
                let stands = stands(&mut group.iter());
                let count = |wanted: Stand| stands.iter().filter(|s| **s == wanted).count();
                let failed = count(Stand::Failed);
                list += count(Stand::Begun);
                tolerated += failed;
                if failed + count(Stand::TimedOut) > most(group.len()) || list > tolerated {
                    return (Vec::new(), false);
                }
            }
            (Vec::new(), list == 0)
        };
        let (begin, through) = by_group(&of(true), &|_| 0);
        if !through {
            return begin;
        }
        let rest = of(false);
        if self.kind == Kind::PerGroup {
            return by_group(&rest, &|size| self.failures.min(size)).0;
        }
        let stands = stands(&mut rest.iter().copied().flatten());
        let failing = |stand: &&Stand| matches!(stand, Stand::Failed | Stand::TimedOut);
        let moving = |stand: &&Stand| matches!(stand, Stand::Begun | Stand::Moves | Stand::Failed);
        let size = rest.iter().map(|group| group.len()).sum();
        let most = if self.kind == Kind::All {
            usize::MAX
        } else {
            self.failures
        };
        if stands.iter().filter(failing).count() > most {
            return Vec::new();
        }
        let concurrency = match self.concurrency {
            Some(concurrency) if self.kind == Kind::Progressive => concurrency,
            _ => size,
        };
        let room = concurrency.saturating_sub(stands.iter().filter(moving).count());
        let all: BTreeSet<String> = rest.into_iter().flatten().cloned().collect();
        new(&mut all.iter()).into_iter().take(room).collect()
    }
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Says(u8, ClusterState),
    Loses(u8),
    Hold(u8, bool),
    Pass(i64),
}

fn plans() -> impl Strategy<Value = Plan> {
    let groups = prop::collection::vec(1_usize..4, 1..4);
    let kind = prop_oneof![
        1 => Just(Kind::All), 3 => Just(Kind::Progressive), 3 => Just(Kind::PerGroup)
    ];
    (
        groups,
        kind,
        prop::option::of(1_usize..4),
        0_usize..3,
        prop_oneof![Just(0_i64), Just(60)],
        prop::option::of(Just(90_i64)),
        prop::collection::btree_set(0_usize..4, 0..2),
    )
        .prop_map(
            |(sizes, kind, concurrency, failures, soak, deadline, mandatory)| {
                let mut number = 0;
                let mut cluster = || {
                    number += 1;
                    format!("c{number}")
                };
                let groups = sizes
                    .into_iter()
                    .map(|size| (0..size).map(|_| cluster()).collect())
                    .collect();
                Plan {
                    groups,
                    kind,
                    concurrency,
                    failures,
                    soak,
                    deadline,
                    mandatory,
                }
            },
        )
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let state = prop_oneof![
        Just(ClusterState::ToApply),
        Just(ClusterState::Progressing),
        Just(ClusterState::Failed),
        Just(ClusterState::Succeeded),
    ];
    let step = prop_oneof![
        6 => (any::<u8>(), state).prop_map(|(cluster, state)| Step::Says(cluster, state)),
        1 => any::<u8>().prop_map(Step::Loses),
        1 => (any::<u8>(), any::<bool>()).prop_map(|(cluster, held)| Step::Hold(cluster, held)),
        3 => (1_i64..100).prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 0..60)
}

fn one_of(number: u8, from: &BTreeSet<String>) -> Option<String> {
    let number = usize::from(number).checked_rem(from.len())?;
    from.iter().nth(number).cloned()
}

/// Both at once.
struct Pair<'a> {
    plan: &'a Plan,
    rollout: Rollout,
    known: Known,
    /// Those whose work has said something since they began.
    told: BTreeSet<String>,
    held: BTreeSet<String>,
    now: Timestamp,
}

impl<'a> Pair<'a> {
    fn new(plan: &'a Plan) -> Self {
        Self {
            plan,
            rollout: Rollout::new(&plan.strategy(), &plan.groups()),
            known: Known::new(),
            told: BTreeSet::new(),
            held: BTreeSet::new(),
            now: Timestamp::from_second(1_000_000).unwrap(),
        }
    }

    fn says(&mut self, cluster: &str, state: ClusterState) {
        // What has not been applied is so since the cluster began.
        let began = self.known.get(cluster).map(|(_, since)| *since);
        let since = match (state, began) {
            (ClusterState::ToApply, Some(began)) => began,
            _ => self.now,
        };
        if state == ClusterState::ToApply && self.told.contains(cluster) {
            return; // it has applied it, and has not another template
        }
        self.known.insert(cluster.to_owned(), (state, since));
        if state != ClusterState::ToApply {
            self.told.insert(cluster.to_owned());
        }
        let report = Report {
            state,
            since: (state != ClusterState::ToApply).then_some(since),
            started: None,
        };
        self.rollout.report(cluster, Some(report), self.now);
    }

    fn take(&mut self, step: Step) {
        let begun: BTreeSet<String> = self.known.keys().cloned().collect();
        match step {
            Step::Says(number, state) => {
                if let Some(cluster) = one_of(number, &begun) {
                    self.says(&cluster, state);
                }
            }
            Step::Loses(number) => {
                let told = self.told.clone();
                if let Some(cluster) = one_of(number, &told) {
                    self.known.remove(&cluster);
                    self.told.remove(&cluster);
                    self.rollout.report(&cluster, None, self.now);
                }
            }
            Step::Hold(number, held) => {
                let waiting = &self.plan.clusters() - &begun;
                if let Some(cluster) = one_of(number, &waiting) {
                    self.rollout.hold(&cluster, held);
                    if held {
                        self.held.insert(cluster);
                    } else {
                        self.held.remove(&cluster);
                    }
                }
            }
            Step::Pass(seconds) => {
                self.now += SignedDuration::from_secs(seconds);
                self.rollout.tick(self.now);
            }
        }
    }

    /// Never more are on their way than may be when one begins.
    fn there_is_room(&self, cluster: &str) -> Result<(), TestCaseError> {
        let in_mandatory = |index: &usize| {
            let group = self.plan.groups.get(*index);
            group.is_some_and(|group| group.contains(cluster))
        };
        if let (Kind::Progressive, Some(most)) = (self.plan.kind, self.plan.concurrency)
            && !self.plan.mandatory.iter().any(in_mandatory)
        {
            let tally = self.rollout.tally();
            let Tally {
                started,
                progressing,
                failed,
                soaking,
                ..
            } = tally;
            let moving = started + progressing + failed + soaking;
            prop_assert!(moving as usize <= most, "{:?}", tally);
        }
        Ok(())
    }

    /// Lets those begin whose turn it is.
    fn begin(&mut self) -> Result<(), TestCaseError> {
        loop {
            let expected = self.plan.begin(&self.known, &self.held, self.now);
            let mut begin = Vec::new();
            while let Some(cluster) = self.rollout.next(self.now) {
                begin.push(cluster.to_string());
                self.there_is_room(&cluster)?;
            }
            // A group of its own begins whole; what the other finds after that, it finds next.
            prop_assert!(
                expected.iter().all(|cluster| begin.contains(cluster))
                    && begin.len() == expected.len(),
                "{:?} begin, and not {:?}",
                begin,
                expected
            );
            if begin.is_empty() {
                break;
            }
            for cluster in begin {
                self.known
                    .insert(cluster, (ClusterState::ToApply, self.now));
            }
        }
        prop_assert_eq!(self.rollout.recounted().tally(), self.rollout.tally());
        // Time alone changes nothing sooner than is said.
        let wake = self.rollout.wake_at();
        prop_assert!(
            wake.is_none_or(|at| at > self.now),
            "{:?} at {}",
            wake,
            self.now
        );
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_the_right_clusters_begin(plan in plans(), steps in steps()) {
        let mut pair = Pair::new(&plan);
        pair.begin()?;
        for step in steps {
            pair.take(step);
            pair.begin()?;
        }
    }

    /// As long as clusters succeed, and nobody holds them, it comes to its end.
    #[test]
    fn a_rollout_that_nothing_stops_ends(plan in plans(), steps in steps()) {
        let mut pair = Pair::new(&plan);
        pair.begin()?;
        for step in steps {
            pair.take(step);
            pair.begin()?;
        }
        let all = plan.clusters();
        for cluster in std::mem::take(&mut pair.held) {
            pair.rollout.hold(&cluster, false);
        }
        for _ in 0..=2 * all.len() {
            let begun: Vec<String> = pair.known.keys().cloned().collect();
            for cluster in begun {
                if pair.known[&cluster].0 != ClusterState::Succeeded {
                    pair.says(&cluster, ClusterState::Succeeded);
                }
            }
            pair.take(Step::Pass(60));
            pair.begin()?;
        }
        for cluster in &all {
            prop_assert_eq!(pair.rollout.turn(cluster), Some(Turn::Succeeded), "{}", cluster);
        }
        prop_assert_eq!(pair.rollout.wake_at(), None);
    }
}
