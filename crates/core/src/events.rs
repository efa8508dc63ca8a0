//! What is told as Kubernetes Events: which change of a status is worth one, and what it says.
//!
//! The words are those of the status: an Event only says when it became so.

use std::borrow::Cow;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use muster_api::conditions;
use muster_api::constants as names;
use muster_api::replicaset::{ManifestWorkReplicaSetStatus, ReplicaSetPhase};
use muster_api::rules::WatchRuleStatus;

use crate::explain::trouble;
use crate::replicaset::TroubleKind;

/// Reasons of Events. A closed list, which `docs/reasons.md` explains.
pub mod reasons {
    /// More clusters have the template.
    pub const ROLLING_OUT: &str = "RollingOut";
    /// Every cluster is there.
    pub const ROLLED_OUT: &str = "RolledOut";
    /// Clusters failed.
    pub const CLUSTERS_FAILED: &str = muster_api::constants::REASON_CLUSTERS_FAILED;
    /// More clusters failed than may.
    pub const ROLLOUT_STOPPED: &str = crate::explain::reasons::ROLLOUT_STOPPED;
    /// Somebody paused the rollout, or it waits for a soak.
    pub const ROLLOUT_PAUSED: &str = "RolloutPaused";
    /// A placement reference cannot be carried out.
    pub const INVALID_PLACEMENT: &str = "InvalidPlacement";
    /// The hub's API refuses a work.
    pub const WRITE_REFUSED: &str = crate::explain::reasons::WRITE_REFUSED;
    /// The agent of a cluster is away.
    pub const AGENT_AWAY: &str = crate::explain::reasons::AGENT_AWAY;
    /// The object is being deleted.
    pub const DELETING: &str = crate::explain::reasons::DELETING;
    /// The object is gone.
    pub const DELETED: &str = "Deleted";
    /// The agent has applied the work.
    pub const APPLIED: &str = "Applied";
    /// The agent could not apply the work.
    pub const NOT_APPLIED: &str = "NotApplied";
    /// A condition rule says that the work is degraded.
    pub const DEGRADED: &str = "Degraded";
    /// An object of the work is not there.
    pub const NOT_AVAILABLE: &str = "NotAvailable";
    /// Somebody gave up the cluster of a work that is being deleted.
    pub const CLUSTER_ABANDONED: &str = muster_api::constants::REASON_CLUSTER_ABANDONED;
}

/// Longest note of an Event, in bytes: what the API takes is 1,024.
pub const MAX_NOTE_BYTES: usize = 1_000;

/// What an Event says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Happening {
    /// Something is wrong; else it is as it should be.
    pub warning: bool,
    /// One of [`reasons`]; of a rule, that of its condition.
    pub reason: Cow<'static, str>,
    /// For people; at most [`MAX_NOTE_BYTES`] long.
    pub note: String,
}

impl Happening {
    /// Something that is as it should be.
    pub fn normal(reason: impl Into<Cow<'static, str>>, note: impl Into<String>) -> Self {
        Self::of(false, reason.into(), note.into())
    }

    /// Something that is wrong.
    pub fn warning(reason: impl Into<Cow<'static, str>>, note: impl Into<String>) -> Self {
        Self::of(true, reason.into(), note.into())
    }

    fn of(warning: bool, reason: Cow<'static, str>, mut note: String) -> Self {
        if note.len() > MAX_NOTE_BYTES {
            let mut end = MAX_NOTE_BYTES - '…'.len_utf8();
            while !note.is_char_boundary(end) {
                end -= 1;
            }
            note.truncate(end);
            note.push('…');
        }
        Self {
            warning,
            reason,
            note,
        }
    }
}

/// What has happened to a replica set between two of its statuses.
pub fn of_set(
    before: &ManifestWorkReplicaSetStatus,
    now: &ManifestWorkReplicaSetStatus,
) -> Vec<Happening> {
    let find = |status: &ManifestWorkReplicaSetStatus, type_: &str| {
        conditions::find(&status.conditions, type_).cloned()
    };
    let progressing = names::MANIFEST_WORK_REPLICA_SET_CONDITION_PROGRESSING;
    let verified = names::MANIFEST_WORK_REPLICA_SET_CONDITION_PLACEMENT_VERIFIED;
    let is_new = |type_: &str, reason: &str| {
        let has = |status| find(status, type_).is_some_and(|found| found.reason == reason);
        has(now) && !has(before)
    };
    let says = find(now, progressing).map_or_else(String::new, |found| found.message);
    let is_stopped = says.starts_with("Rollout is stopped");
    let was_stopped = find(before, progressing)
        .is_some_and(|found| found.message.starts_with("Rollout is stopped"));
    let mut all = Vec::new();
    if is_new(progressing, names::REASON_DELETING) {
        all.push(Happening::normal(reasons::DELETING, &*now.message));
        return all;
    }
    if is_new(verified, names::REASON_NOT_AS_EXPECTED) {
        let why = find(now, verified).map_or_else(String::new, |found| found.message);
        all.push(Happening::warning(reasons::INVALID_PLACEMENT, why));
    }
    let (counts, earlier) = (&now.summary, &before.summary);
    let is_ready = now.phase == Some(ReplicaSetPhase::Ready);
    if counts.updated > earlier.updated && !is_ready {
        let note = format!(
            "{} of {} clusters have the template",
            counts.updated, counts.desired_total
        );
        all.push(Happening::normal(reasons::ROLLING_OUT, note));
    }
    let failed =
        |status: &ManifestWorkReplicaSetStatus| status.phase == Some(ReplicaSetPhase::Failed);
    if failed(now) && (!failed(before) || counts.degraded > earlier.degraded) {
        all.push(Happening::warning(reasons::CLUSTERS_FAILED, &*now.message));
    }
    if is_stopped && !was_stopped {
        all.push(Happening::warning(reasons::ROLLOUT_STOPPED, &*says));
    } else if is_new(progressing, names::REASON_PAUSED) && !is_stopped {
        let what = find(now, verified).is_none_or(|found| found.status == conditions::TRUE);
        if what {
            all.push(Happening::normal(reasons::ROLLOUT_PAUSED, &*now.message));
        }
    }
    if is_new(progressing, names::REASON_AGENT_AWAY) {
        all.push(Happening::warning(reasons::AGENT_AWAY, says));
    }
    if is_ready && before.phase != Some(ReplicaSetPhase::Ready) {
        all.push(Happening::normal(reasons::ROLLED_OUT, &*now.message));
    }
    all
}

/// What has happened to a rule between two of its statuses: whether it is served as it asks for.
pub fn of_rule(before: &WatchRuleStatus, now: &WatchRuleStatus) -> Option<Happening> {
    let find = |status: &WatchRuleStatus| {
        conditions::find(&status.conditions, names::WATCH_RULE_READY).cloned()
    };
    let ready = find(now)?;
    let same = find(before)
        .is_some_and(|known| known.reason == ready.reason && known.message == ready.message);
    if same || ready.reason == names::REASON_SYNCING {
        return None; // that is on its way
    }
    Some(if ready.status == conditions::TRUE {
        Happening::normal(ready.reason, ready.message)
    } else {
        Happening::warning(ready.reason, ready.message)
    })
}

/// The state of a work as far as a change of it makes an Event: two bytes a work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkTold(u16);

impl WorkTold {
    /// Nothing more will be told of it: it is gone.
    pub const fn is_last(self) -> bool {
        self.0 == Self::DELETED
    }

    const NOTHING: u16 = 0;
    const APPLIED: u16 = 1;
    const DELETING: u16 = 2;
    const DELETED: u16 = 3;
    /// And up, by a sum of its text: another failure is told again.
    const TROUBLE: u16 = 4;
}

/// Reads what a work says now, and what has happened to it since `before`; nothing has where that is
/// unknown.
pub fn of_work(
    before: Option<WorkTold>,
    metadata: &ObjectMeta,
    all: &[Condition],
) -> (WorkTold, Option<Happening>) {
    let generation = metadata.generation.unwrap_or_default();
    let deleting = metadata.deletion_timestamp.is_some();
    let trouble = trouble(all, generation).filter(|_| !deleting);
    let told = WorkTold(if deleting {
        let held = metadata
            .finalizers
            .as_ref()
            .is_some_and(|all| !all.is_empty());
        if held {
            WorkTold::DELETING
        } else {
            WorkTold::DELETED
        }
    } else if let Some(trouble) = &trouble {
        let sum = trouble.text.bytes().fold(0_u16, |sum, byte| {
            sum.wrapping_mul(31).wrapping_add(byte.into())
        });
        sum.max(WorkTold::TROUBLE)
    } else if conditions::is_true_for(all, names::WORK_APPLIED, generation) {
        WorkTold::APPLIED
    } else {
        WorkTold::NOTHING
    });
    // Nearly every look ends here, so the words come later.
    if before.is_none_or(|before| before == told) {
        return (told, None);
    }
    let happening = match (told.0, trouble) {
        (_, Some(trouble)) => {
            let reason = match trouble.kind {
                TroubleKind::Failed => reasons::NOT_APPLIED,
                TroubleKind::Degraded => reasons::DEGRADED,
                TroubleKind::NotAvailable => reasons::NOT_AVAILABLE,
            };
            Happening::warning(reason, &*trouble.text)
        }
        (WorkTold::DELETED, None) => {
            Happening::normal(reasons::DELETED, "its objects are cleaned up")
        }
        (WorkTold::DELETING, None) => {
            Happening::normal(reasons::DELETING, "its agent cleans up before it goes")
        }
        (WorkTold::APPLIED, None) => {
            let text = format!("generation {generation} is applied");
            Happening::normal(reasons::APPLIED, text)
        }
        _ => return (told, None),
    };
    (told, Some(happening))
}

/// A number of things that may happen at once, and then so many more a second.
#[derive(Debug, Clone, Copy)]
pub struct Allowance {
    most: f64,
    a_second: f64,
    left: f64,
    at: Timestamp,
}

impl Allowance {
    /// `most` at once, from `now` on.
    pub fn new(most: u32, a_second: f64, now: Timestamp) -> Self {
        let most = f64::from(most);
        Self {
            most,
            a_second,
            left: most,
            at: now,
        }
    }

    /// Takes one, if there is one.
    pub fn take(&mut self, now: Timestamp) -> bool {
        let gone = now.duration_since(self.at).as_secs_f64().max(0.0);
        self.left = (self.left + gone * self.a_second).min(self.most);
        self.at = now;
        let may = self.left >= 1.0;
        if may {
            self.left -= 1.0;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use serde_json::{Value, json};

    use super::*;

    fn status(
        phase: &str,
        reason: &str,
        updated: i64,
        message: &str,
    ) -> ManifestWorkReplicaSetStatus {
        let condition = json!({"type": "Progressing", "status": "True", "reason": reason,
            "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z"});
        serde_json::from_value(json!({"phase": phase, "message": message,
            "conditions": [condition], "summary": {"updated": updated, "desiredTotal": 3}}))
        .unwrap()
    }

    fn lines(all: &[Happening]) -> Vec<String> {
        let line = |one: &Happening| {
            let kind = if one.warning { "Warning" } else { "Normal" };
            format!("{kind} {}: {}", one.reason, one.note)
        };
        all.iter().map(line).collect()
    }

    #[test]
    fn each_step_of_a_rollout_is_told_once() {
        let history = [
            ManifestWorkReplicaSetStatus::default(),
            status("Progressing", "RollingOutToClusters", 0, "0/3"),
            status("Progressing", "RollingOutToClusters", 1, "0/3"),
            status("Progressing", "Paused", 1, "paused until T"),
            status("Progressing", "RollingOutToClusters", 2, "1/3"),
            status(
                "Failed",
                "Paused",
                2,
                "Rollout is stopped: 1 clusters failed",
            ),
            status(
                "Failed",
                "Paused",
                2,
                "Rollout is stopped: 1 clusters failed, first c1",
            ),
            status("Progressing", "AgentAway", 3, "unknown in 1"),
            status("Ready", "AllClustersReady", 3, "3/3"),
            status("Progressing", "Deleting", 3, "deletion waits for c1"),
        ];
        let told: Vec<String> = history
            .windows(2)
            .flat_map(|pair| lines(&of_set(&pair[0], &pair[1])))
            .collect();
        assert_eq!(
            told,
            [
                "Normal RollingOut: 1 of 3 clusters have the template",
                "Normal RolloutPaused: paused until T",
                "Normal RollingOut: 2 of 3 clusters have the template",
                "Warning ClustersFailed: Rollout is stopped: 1 clusters failed",
                "Warning RolloutStopped: Rollout is stopped: 1 clusters failed",
                "Normal RollingOut: 3 of 3 clusters have the template",
                "Warning AgentAway: unknown in 1",
                "Normal RolledOut: 3/3",
                "Normal Deleting: deletion waits for c1",
            ]
        );
        let last = &history[8];
        assert!(of_set(last, last).is_empty());
    }

    #[test]
    fn a_strategy_that_cannot_be_carried_out_is_told() {
        let mut refused = status("Progressing", "Paused", 0, "m");
        let mut verified = refused.conditions[0].clone();
        verified.type_ = "PlacementVerified".to_owned();
        (verified.status, verified.reason) = ("False".to_owned(), "NotAsExpected".to_owned());
        verified.message = "placement p: maxConcurrency: must be more than 0".to_owned();
        refused.conditions.push(verified);
        assert_eq!(
            lines(&of_set(&ManifestWorkReplicaSetStatus::default(), &refused)),
            ["Warning InvalidPlacement: placement p: maxConcurrency: must be more than 0"]
        );
    }

    #[test]
    fn a_rule_that_is_refused_is_told_and_that_it_is_served_again() {
        let status = |status: &str, reason: &str, message: &str| -> WatchRuleStatus {
            let ready = json!({"type": "Ready", "status": status, "reason": reason,
                "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z"});
            serde_json::from_value(json!({"conditions": [ready]})).unwrap()
        };
        let history = [
            WatchRuleStatus::default(),
            status("False", "Syncing", "listing"),
            status("True", "Watching", "1 type"),
            status("False", "Forbidden", "no right to list pods"),
            status("False", "Forbidden", "no right to list pods"),
            status("True", "Watching", "1 type"),
        ];
        let told: Vec<Happening> = history
            .windows(2)
            .filter_map(|pair| of_rule(&pair[0], &pair[1]))
            .collect();
        assert_eq!(
            lines(&told),
            [
                "Normal Watching: 1 type",
                "Warning Forbidden: no right to list pods",
                "Normal Watching: 1 type",
            ]
        );
    }

    fn work(conditions: &Value, metadata: Value) -> (ObjectMeta, Vec<Condition>) {
        let metadata = serde_json::from_value(metadata).unwrap();
        (
            metadata,
            serde_json::from_value(conditions.clone()).unwrap(),
        )
    }

    #[test]
    fn what_becomes_of_a_work_is_told_when_it_changes_and_not_when_it_is_first_seen() {
        let condition = |type_: &str, status: &str, message: &str| {
            json!([{"type": type_, "status": status, "observedGeneration": 1, "reason": "R",
                "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z"}])
        };
        let is = json!({"generation": 1, "finalizers": ["f"]});
        let mut dying = is.clone();
        dying["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let mut gone = dying.clone();
        gone["finalizers"] = json!([]);
        let applied = condition("Applied", "True", "done");
        let states = [
            work(&applied, is.clone()),
            work(&condition("Applied", "False", "no such type"), is.clone()),
            work(&condition("Applied", "False", "no such type"), is.clone()),
            work(
                &condition("Applied", "False", "no such namespace"),
                is.clone(),
            ),
            work(&json!([]), is.clone()),
            work(&applied, is),
            work(&applied, dying.clone()),
            work(&applied, dying),
            work(&applied, gone),
        ];
        let mut told = None;
        let mut happened = Vec::new();
        for (metadata, conditions) in &states {
            let (now, happening) = of_work(told, metadata, conditions);
            told = Some(now);
            happened.extend(happening);
        }
        assert_eq!(
            lines(&happened),
            [
                "Warning NotApplied: no such type",
                "Warning NotApplied: no such namespace",
                "Normal Applied: generation 1 is applied",
                "Normal Deleting: its agent cleans up before it goes",
                "Normal Deleted: its objects are cleaned up",
            ]
        );
    }

    #[test]
    fn a_note_is_cut_to_what_the_api_takes() {
        let note = Happening::normal(reasons::APPLIED, "ä".repeat(2_000)).note;
        assert!(
            note.len() <= MAX_NOTE_BYTES && note.ends_with('…'),
            "{}",
            note.len()
        );
    }

    #[test]
    fn an_allowance_is_used_up_and_comes_back() {
        let now = Timestamp::UNIX_EPOCH;
        let mut allowance = Allowance::new(2, 0.5, now);
        let mut take = |seconds: i64| allowance.take(now + SignedDuration::from_secs(seconds));
        assert_eq!(
            [take(0), take(0), take(0), take(1)],
            [true, true, false, false]
        );
        assert_eq!(
            [take(2), take(2), take(100), take(100), take(100)],
            [true, false, true, true, false]
        );
        assert!(!take(50), "a clock that is put back gives nothing");
    }
}
