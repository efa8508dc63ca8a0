//! How far a rollout is, read off the set: what somebody without the hub's memory can know.

use std::fmt::Write as _;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use muster_api::replicaset::{
    ManifestWorkReplicaSet, ManifestWorkReplicaSetStatus, ReplicaSetPhase,
};
use muster_api::{conditions, constants as names};

use crate::rollout::Strategy;

/// How a rollout stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The hub has not told about this generation of the set.
    Unseen,
    /// Something is still to come, or somebody paused it.
    UnderWay,
    /// Every cluster is there.
    Ready,
    /// Clusters failed, and nothing will change by itself.
    Failed,
}

impl Progress {
    /// Reads how the rollout of a set stands.
    ///
    /// A cluster that failed and has a deadline is under way until that is over; without one it
    /// counts as failed for good once no other cluster is under way.
    pub fn of(set: &ManifestWorkReplicaSet) -> Self {
        let none = ManifestWorkReplicaSetStatus::default();
        let status = set.status.as_ref().unwrap_or(&none);
        let find = |kind| {
            let found = conditions::find(&status.conditions, kind)?;
            (found.observed_generation == set.metadata.generation).then_some(found)
        };
        let (Some(ready), Some(progressing)) = (
            find(names::MANIFEST_WORK_REPLICA_SET_CONDITION_READY),
            find(names::MANIFEST_WORK_REPLICA_SET_CONDITION_PROGRESSING),
        ) else {
            return Self::Unseen;
        };
        if ready.status == conditions::TRUE {
            Self::Ready
        } else if status.phase == Some(ReplicaSetPhase::Failed) && rests(set, status, progressing) {
            Self::Failed
        } else {
            Self::UnderWay
        }
    }
}

/// Whether nothing will change by itself in a set that has failed clusters.
fn rests(
    set: &ManifestWorkReplicaSet,
    status: &ManifestWorkReplicaSetStatus,
    progressing: &Condition,
) -> bool {
    let says = |text: &str| progressing.message.starts_with(text);
    let paused = progressing.reason == names::REASON_PAUSED;
    // The texts are those of `obstacles`; a test holds both together.
    if paused && says("Rollout is stopped") {
        return true;
    }
    if paused && says("Rollout is paused to wait") {
        return false; // the end of a soak or of a deadline
    }
    let counts = &status.summary;
    if !paused && counts.updated < counts.desired_total {
        return false;
    }
    // What could not be applied is tried again.
    if counts.applied < counts.updated {
        return false;
    }
    let may_get_there = set.spec.placement_refs.iter().any(|reference| {
        let strategy = Strategy::read(&reference.rollout_strategy);
        strategy.is_ok_and(|strategy| strategy.has_deadline())
    });
    let given_up = if may_get_there {
        timed_out(&status.message)
    } else {
        counts.degraded
    };
    counts.updated - counts.available <= given_up
}

/// How many clusters a message says to have timed out.
fn timed_out(message: &str) -> i64 {
    let mut parts = message.split("; ");
    let number = parts.find_map(|part| part.strip_prefix("timed out in "));
    let number = number.and_then(|rest| rest.split(',').next()?.parse().ok());
    number.unwrap_or(0)
}

/// One line for people on where the rollout of a set stands.
pub fn progress_line(set: &ManifestWorkReplicaSet) -> String {
    let meta = &set.metadata;
    let mut line = format!(
        "mwrs {}/{}: ",
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default()
    );
    let progress = Progress::of(set);
    if progress == Progress::Unseen {
        let generation = meta.generation.unwrap_or_default();
        // A String never fails.
        let _ = write!(line, "waiting for the hub to see generation {generation}");
        return line;
    }
    let none = ManifestWorkReplicaSetStatus::default();
    let status = set.status.as_ref().unwrap_or(&none);
    let counts = &status.summary;
    let (available, desired) = (counts.available, counts.desired_total);
    line.push_str(match progress {
        Progress::Ready => "rolled out; ",
        Progress::Failed => "failed; ",
        Progress::UnderWay | Progress::Unseen => "",
    });
    let _ = write!(
        line,
        "{} of {desired} clusters updated, {available} available",
        counts.updated
    );
    // What the message says beyond these numbers.
    let same = format!("ManifestWorks available in {available}/{desired} clusters");
    match status.message.strip_prefix(&same) {
        Some(rest) => line.push_str(rest),
        None if status.message.is_empty() => {}
        None => {
            let _ = write!(line, "; {}", status.message);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use jiff::{SignedDuration, Timestamp};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use muster_api::replicaset::ManifestWorkReplicaSetSummary;
    use serde_json::{Value, json};

    use super::super::tests::{key, selects, work};
    use super::super::{Pause, PlacementRef, ReplicaSet, SummaryDraft, Template};
    use super::*;

    const HASH: [u8; 32] = [1; 32];

    /// A set over `c1`, `c2`, …, as the hub has it.
    struct Hub {
        set: ReplicaSet,
        strategy: Value,
        now: Timestamp,
    }

    impl Hub {
        fn new(clusters: &[&str], strategy: Value) -> Self {
            let mut set = ReplicaSet::new("default", "web");
            let read = serde_json::from_value(strategy.clone()).unwrap();
            let now = Timestamp::from_second(1_000_000).unwrap();
            set.tick(now);
            set.set_template(Template {
                generation: 1,
                spec_hash: HASH,
                labels: BTreeMap::new(),
                placements: vec![PlacementRef {
                    name: "p".to_owned(),
                    strategy: Strategy::read(&read),
                }],
            });
            set.set_placement("p", Some(selects(clusters)));
            set.take_actions(100);
            Self { set, strategy, now }
        }

        /// Conditions by letter, as in [`work`].
        fn says(&mut self, cluster: &str, letters: &str) {
            let mut facts = work(HASH, letters);
            let conditions = &mut facts.conditions;
            let rules = [&mut conditions.progressing, &mut conditions.degraded];
            for condition in rules.into_iter().flatten() {
                condition.transition = self.now;
            }
            self.set.set_work(key(cluster), facts);
            self.set.take_actions(100);
        }

        fn after(&mut self, seconds: i64) {
            self.now += SignedDuration::from_secs(seconds);
            self.set.tick(self.now);
            self.set.take_actions(100);
        }

        /// The object that users see.
        fn object(&self) -> ManifestWorkReplicaSet {
            let draft = self.set.status();
            let mut set: ManifestWorkReplicaSet = serde_json::from_value(json!({
                "apiVersion": "work.open-cluster-management.io/v1alpha1",
                "kind": "ManifestWorkReplicaSet",
                "metadata": {"namespace": "default", "name": "web", "generation": 1},
                "spec": {"placementRefs": [{"name": "p", "rolloutStrategy": self.strategy}]}}))
            .unwrap();
            let SummaryDraft {
                total,
                applied,
                available,
                progressing,
                degraded,
                desired_total,
                updated,
            } = draft.summary;
            let conditions = draft.conditions.into_iter().map(|condition| Condition {
                type_: condition.kind.to_owned(),
                status: if condition.status { "True" } else { "False" }.to_owned(),
                reason: condition.reason.to_owned(),
                message: condition.message,
                observed_generation: Some(draft.generation),
                last_transition_time: Time(self.now),
            });
            set.status = Some(ManifestWorkReplicaSetStatus {
                conditions: conditions.collect(),
                summary: ManifestWorkReplicaSetSummary {
                    total: total.into(),
                    progressing: progressing.into(),
                    available: available.into(),
                    degraded: degraded.into(),
                    applied: applied.into(),
                    desired_total: desired_total.into(),
                    updated: updated.into(),
                },
                phase: draft.phase,
                message: draft.message,
                ..Default::default()
            });
            set
        }

        #[track_caller]
        fn is(&self, progress: Progress, line: &str) {
            let object = self.object();
            assert_eq!(progress_line(&object), format!("mwrs default/web: {line}"));
            assert_eq!(Progress::of(&object), progress);
        }
    }

    fn all() -> Value {
        json!({"type": "All"})
    }

    #[test]
    fn a_rollout_is_followed_to_its_end() {
        let mut hub = Hub::new(&["c1", "c2"], all());
        let mut unseen = hub.object();
        unseen.metadata.generation = Some(2);
        assert_eq!(Progress::of(&unseen), Progress::Unseen);
        assert_eq!(
            progress_line(&unseen),
            "mwrs default/web: waiting for the hub to see generation 2"
        );
        unseen.status = None;
        assert_eq!(Progress::of(&unseen), Progress::Unseen);

        hub.is(Progress::UnderWay, "0 of 2 clusters updated, 0 available");
        hub.says("c1", "AV");
        hub.says("c2", "A");
        hub.is(Progress::UnderWay, "2 of 2 clusters updated, 1 available");
        hub.says("c2", "AV");
        hub.is(
            Progress::Ready,
            "rolled out; 2 of 2 clusters updated, 2 available",
        );
    }

    #[test]
    fn a_set_without_clusters_waits_for_them() {
        let mut hub = Hub::new(&[], all());
        hub.is(
            Progress::UnderWay,
            "0 of 0 clusters updated, 0 available; no cluster is selected",
        );
        hub.set.set_placement("p", None);
        hub.is(
            Progress::UnderWay,
            "0 of 0 clusters updated, 0 available; placement p does not exist",
        );
    }

    #[test]
    fn a_cluster_that_failed_without_a_deadline_fails_the_set_when_no_other_is_under_way() {
        let mut hub = Hub::new(&["c1", "c2"], all());
        hub.says("c1", "APD");
        hub.is(
            Progress::UnderWay,
            "1 of 2 clusters updated, 0 available, 1 degraded",
        );
        hub.says("c2", "AP");
        hub.is(
            Progress::UnderWay,
            "2 of 2 clusters updated, 0 available, 1 degraded",
        );
        hub.says("c2", "AVp");
        hub.is(
            Progress::Failed,
            "failed; 2 of 2 clusters updated, 1 available, 1 degraded",
        );
        hub.says("c1", "AVp");
        hub.is(
            Progress::Ready,
            "rolled out; 2 of 2 clusters updated, 2 available",
        );
    }

    #[test]
    fn a_deadline_decides_where_there_is_one() {
        let strategy = json!({"type": "All", "all": {"progressDeadline": "30s"}});
        let mut hub = Hub::new(&["c1", "c2", "c3"], strategy);
        hub.says("c1", "APD");
        hub.says("c2", "AP");
        hub.says("c3", "AVp");
        hub.is(
            Progress::UnderWay,
            "3 of 3 clusters updated, 1 available, 1 degraded",
        );
        hub.after(10);
        hub.says("c2", "APD");
        hub.after(20);
        hub.is(
            Progress::UnderWay,
            "3 of 3 clusters updated, 1 available, 2 degraded; timed out in 1, first c1",
        );
        hub.after(10);
        hub.is(
            Progress::Failed,
            "failed; 3 of 3 clusters updated, 1 available, 2 degraded; timed out in 2, first c1",
        );
    }

    #[test]
    fn a_rollout_that_is_stopped_has_failed_once_it_rests() {
        let progressive = json!({"maxConcurrency": 2});
        let strategy = json!({"type": "Progressive", "progressive": progressive});
        let mut hub = Hub::new(&["c1", "c2", "c3"], strategy);
        hub.says("c1", "APD");
        let why = "stopped: 1 cluster failed, first c1, and maxFailures allows 0";
        hub.is(
            Progress::UnderWay,
            &format!(
                "1 of 3 clusters updated, 0 available, 1 degraded; {why}; 1 cluster waits, c2 is \
                 under way since 1970-01-12T13:46:40Z"
            ),
        );
        hub.says("c2", "AVp");
        hub.is(
            Progress::Failed,
            &format!("failed; 2 of 3 clusters updated, 1 available, 1 degraded; {why}"),
        );
    }

    #[test]
    fn a_soak_is_no_end() {
        let progressive = json!({"maxConcurrency": 1, "maxFailures": 1, "minSuccessTime": "1m"});
        let strategy = json!({"type": "Progressive", "progressive": progressive});
        let mut hub = Hub::new(&["c1", "c2"], strategy);
        hub.says("c1", "AVp");
        hub.is(
            Progress::UnderWay,
            "1 of 2 clusters updated, 1 available; paused until 1970-01-12T13:47:40Z, when c1 has \
             been well for minSuccessTime",
        );
    }

    #[test]
    fn what_cannot_be_applied_is_tried_again_so_it_is_no_end() {
        let mut hub = Hub::new(&["c1"], all());
        hub.says("c1", "a");
        hub.is(
            Progress::UnderWay,
            "1 of 1 clusters updated, 0 available, 1 failed; first failed c1: no such type",
        );
        hub.says("c1", "AVp");
        hub.is(
            Progress::Ready,
            "rolled out; 1 of 1 clusters updated, 1 available",
        );
    }

    #[test]
    fn a_text_of_a_cluster_does_not_count_as_one_of_the_hub() {
        let message = "m, 1 failed; first failed c1: waited, timed out in 7, and more";
        assert_eq!(timed_out(message), 0);
        assert_eq!(timed_out("m; x; timed out in 3, first c1; y"), 3);
    }

    #[test]
    fn a_pause_is_no_end_unless_clusters_have_failed() {
        let mut hub = Hub::new(&["c1", "c2"], all());
        hub.says("c1", "AVp");
        hub.says("c2", "AP");
        hub.set.set_pause(Pause {
            all: true,
            ..Pause::default()
        });
        hub.is(
            Progress::UnderWay,
            "2 of 2 clusters updated, 1 available; paused by annotation muster.dev/paused",
        );
        hub.says("c2", "APD");
        hub.is(
            Progress::Failed,
            "failed; 2 of 2 clusters updated, 1 available, 1 degraded; paused by annotation \
             muster.dev/paused",
        );
    }
}
