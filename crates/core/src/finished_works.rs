//! When a finished work is deleted: `deleteOption.ttlSecondsAfterFinished`.
//!
//! | The work | Is deleted |
//! |---|---|
//! | has no TTL, or is of a replica set, or is being deleted | never by this rule |
//! | its condition `Complete` is not True | never, as long as that is so |
//! | TTL of 0 or less | at once |
//! | otherwise | TTL seconds after the condition became True |
//!
//! The time is that of `lastTransitionTime`, which the agent wrote by its own clock, in whole
//! seconds.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use muster_api::conditions::{self, TRUE};
use muster_api::constants as names;

/// When the work with this metadata, `ttlSecondsAfterFinished` and these conditions is to be
/// deleted; `None` leaves it until it changes. A time past all calendars is the last one there is.
///
/// Works of replica sets are left: the set would only create them again.
pub fn due(
    metadata: &ObjectMeta,
    ttl_seconds: Option<i64>,
    conditions: &[Condition],
) -> Option<Timestamp> {
    let ttl = ttl_seconds?;
    let label = names::MANIFEST_WORK_REPLICA_SET_CONTROLLER_NAME_LABEL_KEY;
    let labels = metadata.labels.as_ref();
    if metadata.deletion_timestamp.is_some() || labels.is_some_and(|l| l.contains_key(label)) {
        return None;
    }
    let complete = conditions::find(conditions, names::WORK_COMPLETE)?;
    if complete.status != TRUE {
        return None;
    }
    if ttl <= 0 {
        return Some(Timestamp::MIN); // whatever the clock of the agent said
    }
    let since = complete.last_transition_time.0;
    let due = since.checked_add(SignedDuration::from_secs(ttl));
    Some(due.unwrap_or(Timestamp::MAX))
}

/// How long there is to wait at `now` for what is due then; zero means now.
pub fn left(due: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(due.duration_since(now)).unwrap_or_default() // past is negative
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    const DONE: &str = "2026-01-01T10:00:00Z";

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn condition(kind: &str, status: &str) -> Condition {
        Condition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            observed_generation: None,
            reason: "ConditionRuleEvaluated".to_owned(),
            message: String::new(),
            last_transition_time: Time(at(DONE)),
        }
    }

    fn complete(status: &str) -> Vec<Condition> {
        vec![condition("Applied", "True"), condition("Complete", status)]
    }

    #[test]
    fn a_complete_work_is_due_after_its_time() {
        let plain = ObjectMeta::default();
        let due = |ttl| due(&plain, ttl, &complete("True"));
        assert_eq!(due(Some(5)), Some(at("2026-01-01T10:00:05Z")));
        assert_eq!(due(Some(86_400)), Some(at("2026-01-02T10:00:00Z")));
        assert_eq!(due(None), None);
    }

    #[test]
    fn no_time_left_is_due_by_every_clock() {
        let plain = ObjectMeta::default();
        for ttl in [0, -1, i64::MIN] {
            let due = due(&plain, Some(ttl), &complete("True")).unwrap();
            assert_eq!(left(due, at("1970-01-01T00:00:00Z")), Duration::ZERO);
        }
    }

    #[test]
    fn a_time_beyond_the_calendar_is_its_end() {
        let plain = ObjectMeta::default();
        let due = due(&plain, Some(i64::MAX), &complete("True"));
        assert_eq!(due, Some(Timestamp::MAX));
    }

    #[test]
    fn only_the_condition_complete_counts_and_only_true() {
        let plain = ObjectMeta::default();
        for status in ["False", "Unknown", "true", ""] {
            assert_eq!(due(&plain, Some(0), &complete(status)), None, "{status}");
        }
        let other = [condition("Applied", "True"), condition("Available", "True")];
        assert_eq!(due(&plain, Some(0), &other), None);
        assert_eq!(due(&plain, Some(0), &[]), None);
    }

    #[test]
    fn works_of_a_set_and_works_on_their_way_out_are_left() {
        let label = "work.open-cluster-management.io/manifestworkreplicaset".to_owned();
        for value in ["default.web", ""] {
            let of_a_set = ObjectMeta {
                labels: Some([(label.clone(), value.to_owned())].into()),
                ..ObjectMeta::default()
            };
            assert_eq!(due(&of_a_set, Some(0), &complete("True")), None);
        }
        let dying = ObjectMeta {
            deletion_timestamp: Some(Time(at(DONE))),
            ..ObjectMeta::default()
        };
        assert_eq!(due(&dying, Some(0), &complete("True")), None);
    }

    #[test]
    fn what_is_left_shrinks_to_nothing() {
        let due = at("2026-01-01T10:00:05Z");
        assert_eq!(left(due, at(DONE)), Duration::from_secs(5));
        assert_eq!(
            left(due, at("2026-01-01T10:00:04.5Z")),
            Duration::from_millis(500)
        );
        assert_eq!(left(due, due), Duration::ZERO);
        assert_eq!(left(due, at("2027-01-01T00:00:00Z")), Duration::ZERO);
    }
}
