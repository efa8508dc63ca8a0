//! From a status draft to what is written: transition times are kept while a status stays.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use muster_api::conditions::{self, FALSE, TRUE};
use muster_api::replicaset::{
    AggregatedValue, ManifestWorkReplicaSetStatus, ManifestWorkReplicaSetSummary, PlacementSummary,
    ResourceFeedback, ValueCount,
};
use muster_core::conditions::fitting;
use muster_core::replicaset::{ResourceSum, StatusDraft, SummaryDraft, ValueSum};

fn summary(draft: SummaryDraft) -> ManifestWorkReplicaSetSummary {
    ManifestWorkReplicaSetSummary {
        total: draft.total.into(),
        progressing: draft.progressing.into(),
        available: draft.available.into(),
        degraded: draft.degraded.into(),
        applied: draft.applied.into(),
        desired_total: draft.desired_total.into(),
        updated: draft.updated.into(),
    }
}

fn value(sum: ValueSum) -> AggregatedValue {
    let counts = sum.counts.into_iter();
    AggregatedValue {
        name: sum.name,
        clusters: sum.clusters.into(),
        sum: sum.integers.map(|(sum, _, _)| sum),
        min: sum.integers.map(|(_, min, _)| min),
        max: sum.integers.map(|(_, _, max)| max),
        counts: counts
            .map(|(value, count)| ValueCount {
                value,
                count: count.into(),
            })
            .collect(),
        others: (sum.others > 0).then(|| sum.others.into()),
    }
}

fn feedback(sum: ResourceSum) -> ResourceFeedback {
    let resource = sum.resource;
    ResourceFeedback {
        group: resource.group,
        version: resource.version,
        resource: resource.resource,
        name: resource.name,
        namespace: resource.namespace,
        values: sum.values.into_iter().map(value).collect(),
    }
}

/// The status that `draft` asks for at `now`, seen from the status `before`. Conditions of other
/// writers are kept.
pub(super) fn status(
    draft: StatusDraft,
    before: &ManifestWorkReplicaSetStatus,
    now: Timestamp,
) -> ManifestWorkReplicaSetStatus {
    // Kubernetes keeps whole seconds; comparing with what it gives back needs the same here.
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let mut all = before.conditions.clone();
    for condition in draft.conditions {
        let status = if condition.status { TRUE } else { FALSE };
        let since = conditions::find(&before.conditions, condition.kind)
            .filter(|old| old.status == status)
            .map_or(Time(now), |old| old.last_transition_time.clone());
        let next = Condition {
            type_: condition.kind.to_owned(),
            status: status.to_owned(),
            reason: condition.reason.to_owned(),
            message: fitting(condition.message),
            observed_generation: Some(draft.generation),
            last_transition_time: since,
        };
        match all.iter_mut().find(|old| old.type_ == condition.kind) {
            Some(old) => *old = next,
            None => all.push(next),
        }
    }
    let placement = |(name, available_decision_groups, numbers)| PlacementSummary {
        name,
        available_decision_groups,
        summary: summary(numbers),
    };
    ManifestWorkReplicaSetStatus {
        conditions: all,
        summary: summary(draft.summary),
        placements_summary: draft.placements.into_iter().map(placement).collect(),
        phase: draft.phase,
        message: fitting(draft.message),
        feedback: draft.feedback.into_iter().map(feedback).collect(),
    }
}

/// The merge patch that turns any status into `status`: what is absent is set to null, since a
/// merge patch leaves alone what it does not name.
pub(super) fn patch(status: &ManifestWorkReplicaSetStatus) -> serde_json::Value {
    let mut body = serde_json::to_value(status).unwrap_or_default();
    if let Some(fields) = body.as_object_mut() {
        for optional in ["phase", "message", "feedback"] {
            fields.entry(optional).or_insert(serde_json::Value::Null);
        }
    }
    serde_json::json!({ "status": body })
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_core::replicaset::ConditionDraft;

    fn draft(status: bool, message: &str) -> StatusDraft {
        StatusDraft {
            generation: 3,
            summary: SummaryDraft::default(),
            placements: Vec::new(),
            conditions: vec![ConditionDraft {
                kind: "Ready",
                status,
                reason: "R",
                message: message.to_owned(),
            }],
            phase: None,
            message: message.to_owned(),
            feedback: Vec::new(),
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap() + jiff::SignedDuration::from_millis(700)
    }

    #[test]
    fn transition_times_move_only_with_the_status() {
        let first = status(
            draft(false, "0/2"),
            &ManifestWorkReplicaSetStatus::default(),
            at(10),
        );
        assert_eq!(
            first.conditions[0].last_transition_time.0.as_millisecond(),
            10_000
        );
        assert_eq!(first.conditions[0].observed_generation, Some(3));
        let second = status(draft(false, "1/2"), &first, at(20));
        assert_eq!(second.conditions[0].message, "1/2");
        assert_eq!(
            second.conditions[0].last_transition_time,
            first.conditions[0].last_transition_time
        );
        let third = status(draft(true, "2/2"), &second, at(30));
        assert_eq!(third.conditions[0].last_transition_time.0.as_second(), 30);
    }

    #[test]
    fn conditions_of_others_are_kept_and_nothing_changes_twice() {
        let mut before = status(
            draft(true, ""),
            &ManifestWorkReplicaSetStatus::default(),
            at(1),
        );
        before.conditions.insert(
            0,
            Condition {
                type_: "Theirs".into(),
                ..before.conditions[0].clone()
            },
        );
        let again = status(draft(true, ""), &before, at(99));
        assert_eq!(again, before);
    }

    /// The API server would refuse the whole status for one message that is too long.
    #[test]
    fn messages_are_cut_to_what_the_schema_takes() {
        let long = "x".repeat(40_000);
        let written = status(
            draft(false, &long),
            &ManifestWorkReplicaSetStatus::default(),
            at(1),
        );
        for message in [&written.message, &written.conditions[0].message] {
            assert_eq!(message.chars().count(), 32_768);
        }
    }

    #[test]
    fn what_is_absent_is_nulled_in_the_patch() {
        let body = patch(&ManifestWorkReplicaSetStatus::default());
        assert!(body["status"].as_object().unwrap().contains_key("phase"));
        assert!(body["status"]["phase"].is_null() && body["status"]["feedback"].is_null());
    }
}
