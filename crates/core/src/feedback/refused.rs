//! Values that the hub does not take.
//!
//! The agent and the definition of works on the hub may disagree about what a value may be: how long
//! raw JSON is, or whether there is raw JSON at all. An API server then refuses the whole status for
//! one value. It names the value, so the agent leaves that one out, says so, and sends the others.

use jiff::Timestamp;
use muster_api::conditions as read;
use muster_api::constants::{STATUS_FEEDBACK_SYNC_FAILED, STATUS_FEEDBACK_SYNCED};
use muster_api::work::{FeedbackValue, ManifestCondition, ManifestResourceMeta};

use crate::conditions::{self, Status};
use crate::go_format::prefix;

/// Bytes of a refusal that are shown: it may quote the value.
const MAX_SHOWN_BYTES: usize = 200;

#[derive(Debug, Clone)]
struct RefusedValue {
    of: ManifestResourceMeta,
    value: FeedbackValue,
    why: String,
}

/// The values of one work that the hub has refused. A value that changes is offered again.
#[derive(Debug, Clone, Default)]
pub struct RefusedValues(Vec<RefusedValue>);

impl RefusedValues {
    /// Learns from a refusal of a status with these manifests: `causes` are the fields that the API
    /// server names, each with what it says. Says whether any of them is a value.
    pub fn learn<'a>(
        &mut self,
        sent: &[ManifestCondition],
        causes: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> bool {
        let mut learned = false;
        for (field, why) in causes {
            let Some((manifest, position)) = place_of(field) else {
                continue;
            };
            let Some((of, value)) = sent.get(manifest).and_then(|manifest| {
                let value = manifest.status_feedback.values.get(position)?;
                Some((&manifest.resource_meta, value))
            }) else {
                continue;
            };
            // One a name, so that there are never more than the work has values.
            self.0
                .retain(|it| it.of != *of || it.value.name != value.name);
            self.0.push(RefusedValue {
                of: of.clone(),
                value: value.clone(),
                why: prefix(why, MAX_SHOWN_BYTES).to_owned(),
            });
            learned = true;
        }
        learned
    }

    /// Takes the values out of a status, and names them in the condition of their manifest.
    /// `present` is what the hub has: a condition that says there what it says here keeps its time.
    pub fn take_out(
        &self,
        manifests: &mut [ManifestCondition],
        present: &[ManifestCondition],
        now: Timestamp,
    ) {
        if self.0.is_empty() {
            return;
        }
        for manifest in manifests {
            let mut errors = Vec::new();
            let of = &manifest.resource_meta;
            let values = &mut manifest.status_feedback.values;
            for refused in self.0.iter().filter(|it| it.of == *of) {
                let count = values.len();
                values.retain(|value| *value != refused.value);
                if values.len() < count {
                    let (name, why) = (&refused.value.name, &refused.why);
                    errors.push(format!("the hub refuses the value for {name}: {why}"));
                }
            }
            if errors.is_empty() {
                continue;
            }
            let errors = super::join_errors(&errors);
            let before = read::find(&manifest.conditions, STATUS_FEEDBACK_SYNCED);
            let message = match before {
                Some(before) if before.status == read::FALSE => {
                    format!("{}; {errors}", before.message)
                }
                Some(before) if !before.message.is_empty() => format!(
                    "Sync status feedback failed with error {errors}; {}",
                    before.message
                ),
                _ => format!("Sync status feedback failed with error {errors}"),
            };
            let condition = conditions::new(
                STATUS_FEEDBACK_SYNCED,
                Status::False,
                STATUS_FEEDBACK_SYNC_FAILED,
                message,
                None,
                now,
            );
            let known = present.iter().find(|known| known.resource_meta == *of);
            let as_before = known.filter(|known| known.status_feedback == manifest.status_feedback);
            let known = as_before.and_then(|known| {
                let known = read::find(&known.conditions, STATUS_FEEDBACK_SYNCED)?;
                (known.status == condition.status).then_some(known)
            });
            let time = known.map(|known| known.last_transition_time.clone());
            let condition = k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition {
                last_transition_time: time.unwrap_or(condition.last_transition_time),
                ..condition
            };
            conditions::replace(&mut manifest.conditions, condition);
        }
    }
}

/// The manifest and the value that a field of a status belongs to.
fn place_of(field: &str) -> Option<(usize, usize)> {
    let rest = field.strip_prefix("status.resourceStatus.manifests[")?;
    let (manifest, rest) = rest.split_once(']')?;
    let rest = rest.strip_prefix(".statusFeedback.values[")?;
    let (value, _) = rest.split_once(']')?;
    Some((manifest.parse().ok()?, value.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use muster_api::work::{FieldValue, StatusFeedbackResult};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn manifest(ordinal: i32, values: &[(&str, &str)], second: i64) -> ManifestCondition {
        let values = values.iter().map(|(name, text)| FeedbackValue {
            name: (*name).to_owned(),
            value: FieldValue::json_raw((*text).to_owned()),
        });
        ManifestCondition {
            resource_meta: ManifestResourceMeta {
                ordinal,
                ..ManifestResourceMeta::default()
            },
            status_feedback: StatusFeedbackResult {
                values: values.collect(),
            },
            conditions: vec![conditions::new(
                STATUS_FEEDBACK_SYNCED,
                Status::True,
                "StatusFeedbackSynced",
                "",
                None,
                at(second),
            )],
        }
    }

    const FIELD: &str =
        "status.resourceStatus.manifests[1].statusFeedback.values[0].fieldValue.jsonRaw";

    #[test]
    fn a_refused_value_is_left_out_and_named_until_it_changes() {
        let sent = [
            manifest(0, &[("x", "1")], 1),
            manifest(1, &[("long", "[1]"), ("ok", "2")], 1),
        ];
        let mut refused = RefusedValues::default();
        assert!(!refused.learn(&sent, [("status.conditions[0].reason", "no")].into_iter()));
        assert!(!refused.learn(&sent, [(&*FIELD.replace('1', "7"), "no")].into_iter()));
        assert!(refused.learn(&sent, [(FIELD, "Too long")].into_iter()));

        let mut wanted = sent.to_vec();
        refused.take_out(&mut wanted, &[], at(5));
        assert_eq!(wanted[0], sent[0]);
        assert_eq!(wanted[1].status_feedback.values[0].name, "ok");
        let condition = &wanted[1].conditions[0];
        assert_eq!(
            (&*condition.status, &*condition.message),
            (
                "False",
                "Sync status feedback failed with error the hub refuses the value for long: \
                 Too long"
            )
        );
        // The next pass sees the same: nothing is to be written.
        let mut again = vec![
            sent[0].clone(),
            manifest(1, &[("long", "[1]"), ("ok", "2")], 9),
        ];
        refused.take_out(&mut again, &wanted, at(9));
        assert_eq!(again, wanted);
        // Another value is offered again.
        let changed = manifest(1, &[("long", "[2]"), ("ok", "2")], 9);
        let mut offered = vec![changed.clone()];
        refused.take_out(&mut offered, &wanted, at(9));
        assert_eq!(offered, [changed]);
    }

    #[test]
    fn what_the_condition_said_before_is_kept() {
        let mut sent = manifest(1, &[("long", "[1]")], 1);
        let mut refused = RefusedValues::default();
        let all = [manifest(0, &[], 1), sent.clone()];
        assert!(refused.learn(&all, [(FIELD, &*"x".repeat(5_000))].into_iter()));
        sent.conditions[0].message = "polled instead of watched".to_owned();
        let mut wanted = [sent.clone()];
        refused.take_out(&mut wanted, &[], at(2));
        let message = &wanted[0].conditions[0].message;
        assert!(
            message.ends_with("x; polled instead of watched"),
            "{message}"
        );
        assert!(message.len() < 400, "a value may be quoted");
        sent.conditions[0].status = "False".to_owned();
        sent.conditions[0].message = "failed".to_owned();
        let mut wanted = [sent];
        refused.take_out(&mut wanted, &[], at(2));
        let message = &wanted[0].conditions[0].message;
        assert!(
            message.starts_with("failed; the hub refuses the value for long"),
            "{message}"
        );
    }
}
