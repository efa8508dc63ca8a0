//! The conditions of a work, from those of its manifests.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use muster_api::conditions::{self as read, FALSE, TRUE, UNKNOWN};
use muster_api::constants::{
    APPLIED_MANIFEST_WORK_COMPLETE, APPLIED_MANIFEST_WORK_FAILED, CONDITION_RULES_AGGREGATED,
    MANIFEST_APPLIED, RESOURCES_AVAILABLE, RESOURCES_NOT_AVAILABLE, RESOURCES_STATUS_UNKNOWN,
    WORK_APPLIED, WORK_AVAILABLE, WORK_DELETING, WORK_DELETING_REASON, WORK_PROGRESSING,
};
use muster_api::work::{ManifestCondition, ManifestResourceMeta};

use super::{Status, manifest::APPLY_FAILED, new};

/// What the reasons of all conditions begin with that come from condition rules.
const RULE_REASON_PREFIX: &str = "ConditionRule";

/// The work's `Applied`; `None` while no manifest has been tried.
///
/// Differs from upstream: where the work failed, the message goes on after upstream's text with
/// how many manifests failed and which one first, and why.
pub fn applied_of_work(
    manifests: &[ManifestCondition],
    generation: i64,
    now: Timestamp,
) -> Option<Condition> {
    let applied = |manifest: &'_ ManifestCondition| {
        read::find(&manifest.conditions, MANIFEST_APPLIED).cloned()
    };
    let mut tried = manifests
        .iter()
        .filter_map(|manifest| Some((manifest, applied(manifest)?)));
    let tried: Vec<_> = tried.by_ref().collect();
    let failed: Vec<_> = tried
        .iter()
        .filter(|(_, applied)| applied.status == FALSE)
        .collect();
    let (status, reason, message) = match failed.first() {
        _ if tried.is_empty() => return None,
        None => {
            let message = "Apply manifest work complete".to_owned();
            (Status::True, APPLIED_MANIFEST_WORK_COMPLETE, message)
        }
        Some((manifest, applied)) => {
            let error = applied
                .message
                .strip_prefix(APPLY_FAILED)
                .unwrap_or(&applied.message);
            let message = format!(
                "Failed to apply manifest work: {} of {} failed, first: {}: {error}",
                failed.len(),
                manifests.len(),
                describe(&manifest.resource_meta),
            );
            (Status::False, APPLIED_MANIFEST_WORK_FAILED, message)
        }
    };
    Some(new(
        WORK_APPLIED,
        status,
        reason,
        message,
        Some(generation),
        now,
    ))
}

/// `ConfigMap ns/name`; an object that cannot be named is called by its position.
fn describe(meta: &ManifestResourceMeta) -> String {
    let ManifestResourceMeta {
        ordinal,
        kind,
        namespace,
        name,
        ..
    } = meta;
    match (kind.is_empty() || name.is_empty(), namespace.is_empty()) {
        (true, _) => format!("manifest {ordinal}"),
        (false, true) => format!("{kind} {name}"),
        (false, false) => format!("{kind} {namespace}/{name}"),
    }
}

/// The work's `Deleting`.
pub fn deleting_of_work(generation: i64, now: Timestamp) -> Condition {
    let message = "ManifestWork is being deleted";
    new(
        WORK_DELETING,
        Status::True,
        WORK_DELETING_REASON,
        message,
        Some(generation),
        now,
    )
}

/// The work's `Available` and what its condition rules sum up to, sorted by type
/// (`ocm`: `pkg/work/spoke/controllers/statuscontroller`).
///
/// Differs from upstream: where objects are not available, or that is not known, the message goes on
/// after upstream's text with the first of them, and what its manifest's condition says.
pub fn aggregate(
    manifests: &[ManifestCondition],
    generation: i64,
    now: Timestamp,
) -> Vec<Condition> {
    let mut tallies = BTreeMap::from([(WORK_AVAILABLE, Tally::default())]);
    for manifest in manifests {
        for condition in &manifest.conditions {
            if condition.type_ == WORK_AVAILABLE || is_rule_made(condition) {
                tallies
                    .entry(&condition.type_)
                    .or_default()
                    .count(&manifest.resource_meta, condition);
            }
        }
    }
    tallies
        .into_iter()
        .map(|(type_, tally)| {
            let (status, reason, message) = if type_ == WORK_AVAILABLE {
                tally.available(manifests.len())
            } else {
                let status = tally.status(type_ == WORK_PROGRESSING);
                (status, CONDITION_RULES_AGGREGATED, tally.message())
            };
            new(type_, status, reason, message, Some(generation), now)
        })
        .collect()
}

/// Removes the conditions of rules that another generation of the work had.
pub fn prune_rule_conditions(conditions: &mut Vec<Condition>, generation: i64) {
    conditions.retain(|condition| {
        !is_rule_made(condition) || condition.observed_generation == Some(generation)
    });
}

fn is_rule_made(condition: &Condition) -> bool {
    condition.reason.starts_with(RULE_REASON_PREFIX)
}

/// How often each status was met. A status outside the three is none.
#[derive(Default)]
struct Tally<'a> {
    holds: usize,
    fails: usize,
    unknown: usize,
    /// Message of the condition that was counted last.
    message: &'a str,
    /// The first object of which the condition is False, and what that says.
    first_failed: Option<(&'a ManifestResourceMeta, &'a str)>,
    /// The first object of which the condition is Unknown, and what that says.
    first_unknown: Option<(&'a ManifestResourceMeta, &'a str)>,
}

impl<'a> Tally<'a> {
    fn count(&mut self, of: &'a ManifestResourceMeta, condition: &'a Condition) {
        let (counter, first) = match condition.status.as_str() {
            TRUE => (&mut self.holds, None),
            FALSE => (&mut self.fails, Some(&mut self.first_failed)),
            UNKNOWN => (&mut self.unknown, Some(&mut self.first_unknown)),
            _ => return,
        };
        *counter += 1;
        if let Some(first) = first {
            first.get_or_insert((of, &condition.message));
        }
        self.message = &condition.message;
    }

    /// False beats Unknown beats True; where one True is enough, True beats Unknown beats False.
    fn status(&self, one_is_enough: bool) -> Status {
        match self {
            Self { holds: 1.., .. } if one_is_enough => Status::True,
            Self { fails: 1.., .. } if !one_is_enough => Status::False,
            Self { unknown: 1.., .. } => Status::Unknown,
            _ if one_is_enough => Status::False,
            Self { holds: 1.., .. } => Status::True,
            _ => Status::Unknown,
        }
    }

    fn message(&self) -> String {
        match self.holds + self.fails + self.unknown {
            1 if !self.message.is_empty() => self.message.into(),
            count => format!("Aggregated from {count} manifest conditions"),
        }
    }

    fn available(&self, total: usize) -> (Status, &'static str, String) {
        let status = self.status(false);
        let (reason, message) = match status {
            Status::True => (RESOURCES_AVAILABLE, "All resources are available".into()),
            Status::False => (
                RESOURCES_NOT_AVAILABLE,
                format!(
                    "{} of {total} resources are not available{}",
                    self.fails,
                    first(self.first_failed)
                ),
            ),
            Status::Unknown if self.unknown > 0 => (
                RESOURCES_STATUS_UNKNOWN,
                format!(
                    "{} of {total} resources have unknown status{}",
                    self.unknown,
                    first(self.first_unknown)
                ),
            ),
            // The space at the end is upstream's.
            Status::Unknown => (
                RESOURCES_STATUS_UNKNOWN,
                "cannot get any available resource ".into(),
            ),
        };
        (status, reason, message)
    }
}

/// `, first: ConfigMap ns/name: TEXT`.
fn first(of: Option<(&ManifestResourceMeta, &str)>) -> String {
    of.map_or_else(String::new, |(meta, message)| {
        format!(", first: {}: {message}", describe(meta))
    })
}

#[cfg(test)]
mod tests {
    use super::super::{ApplyFailure, applied_of_manifest};
    use super::*;

    fn manifest(kind: &str, namespace: &str, outcome: Result<(), &str>) -> ManifestCondition {
        let outcome = outcome.map_err(|error| (ApplyFailure::Apply, error));
        ManifestCondition {
            resource_meta: ManifestResourceMeta {
                ordinal: 4,
                kind: kind.into(),
                namespace: namespace.into(),
                name: "a".into(),
                ..Default::default()
            },
            conditions: vec![applied_of_manifest(outcome, 3, Timestamp::UNIX_EPOCH)],
            ..Default::default()
        }
    }

    fn message(manifests: &[ManifestCondition]) -> String {
        let applied = applied_of_work(manifests, 3, Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(applied.observed_generation, Some(3));
        format!("{} {}: {}", applied.status, applied.reason, applied.message)
    }

    #[test]
    fn a_failed_work_names_the_first_object_that_failed() {
        let good = manifest("ConfigMap", "ns", Ok(()));
        let bad = manifest("Widget", "ns", Err("no such kind"));
        assert_eq!(
            message(std::slice::from_ref(&good)),
            "True AppliedManifestWorkComplete: Apply manifest work complete"
        );
        assert_eq!(
            message(&[good, bad, manifest("Namespace", "", Err("forbidden"))]),
            "False AppliedManifestWorkFailed: Failed to apply manifest work: 2 of 3 failed, \
             first: Widget ns/a: no such kind"
        );
        assert_eq!(
            message(&[manifest("Namespace", "", Err("forbidden"))]),
            "False AppliedManifestWorkFailed: Failed to apply manifest work: 1 of 1 failed, \
             first: Namespace a: forbidden"
        );
        assert_eq!(
            message(&[manifest("", "", Err("bad"))]),
            "False AppliedManifestWorkFailed: Failed to apply manifest work: 1 of 1 failed, \
             first: manifest 4: bad"
        );
    }

    #[test]
    fn a_work_that_is_not_available_names_the_first_object_that_is_not() {
        let seen = |ordinal: usize, status: Status, text: &str| {
            let mut manifest = manifest("Deployment", "ns", Ok(()));
            manifest.resource_meta.name = format!("d{ordinal}");
            let now = Timestamp::UNIX_EPOCH;
            let available = new(WORK_AVAILABLE, status, "R", text, None, now);
            manifest.conditions.push(available);
            manifest
        };
        let available = |manifests: &[ManifestCondition]| {
            let all = aggregate(manifests, 3, Timestamp::UNIX_EPOCH);
            let [available] = all.as_slice() else {
                panic!("{all:?}")
            };
            let Condition {
                status,
                reason,
                message,
                ..
            } = available;
            format!("{status} {reason}: {message}")
        };
        let missing = "Resource is not available";
        let mut ten: Vec<_> = (0..10).map(|n| seen(n, Status::True, "")).collect();
        assert_eq!(
            available(&ten),
            "True ResourcesAvailable: All resources are available"
        );
        ten[7] = seen(7, Status::False, missing);
        ten[4] = seen(4, Status::False, missing);
        ten[2] = seen(2, Status::Unknown, "Failed to fetch resource: no");
        assert_eq!(
            available(&ten),
            "False ResourcesNotAvailable: 2 of 10 resources are not available, first: Deployment \
             ns/d4: Resource is not available"
        );
        assert_eq!(
            available(&ten[..4]),
            "Unknown ResourcesStatusUnknown: 1 of 4 resources have unknown status, first: \
             Deployment ns/d2: Failed to fetch resource: no"
        );
    }

    #[test]
    fn deletion_has_its_condition() {
        let deleting = deleting_of_work(2, Timestamp::UNIX_EPOCH);
        let text = (
            &*deleting.type_,
            &*deleting.status,
            &*deleting.reason,
            &*deleting.message,
        );
        let expected = (
            "Deleting",
            "True",
            "WorkDeleting",
            "ManifestWork is being deleted",
        );
        assert_eq!((text, deleting.observed_generation), (expected, Some(2)));
    }
}
