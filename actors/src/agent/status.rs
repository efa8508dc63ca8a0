//! From what a pass saw to the status of the work. Pure.

use std::collections::HashMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use muster_api::conditions as read;
use muster_api::constants::MANIFEST_COMPLETE;
use muster_api::work::{
    ManifestCondition, ManifestResourceMeta, ManifestWorkStatus, StatusFeedbackResult,
};
use muster_core::availability::{Sighting, available_of_manifest};
use muster_core::conditions::{
    self, ApplyFailure, Status, aggregate, applied_of_manifest, applied_of_work, deleting_of_work,
    merge_manifest_conditions, prune_rule_conditions,
};
use muster_core::feedback::{self, Feedback};

use super::reconcile::Plans;

/// What came of looking for the object of a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Seen {
    Found,
    NotFound,
    Failed(String),
    Unidentified,
}

impl Seen {
    fn sighting(&self) -> Sighting<'_> {
        match self {
            Self::Found => Sighting::Found,
            Self::NotFound => Sighting::NotFound,
            Self::Failed(error) => Sighting::Failed(error),
            Self::Unidentified => Sighting::Unidentified,
        }
    }
}

/// What a pass saw of one manifest.
#[derive(Debug, Clone)]
pub(super) struct ManifestReport {
    pub(super) meta: ManifestResourceMeta,
    /// The error's text where it could not be applied.
    pub(super) applied: Result<(), String>,
    /// What went wrong then.
    pub(super) failure: ApplyFailure,
    pub(super) seen: Seen,
    /// Values of the live object; `None` if it was not read, which leaves the former values.
    pub(super) feedback: Option<Feedback>,
    /// Conditions that the rules derive from the live object; `None` if it was not read, which
    /// leaves those of this generation.
    pub(super) derived: Option<Vec<Condition>>,
    pub(super) plans: Plans,
    /// Why the object is polled although it was to be watched.
    pub(super) polled: Option<String>,
}

/// What a watch showed of the object of a manifest.
#[derive(Debug, Clone)]
pub(super) struct Observed {
    pub(super) meta: ManifestResourceMeta,
    /// Values and conditions of the object; `None` if it is gone.
    pub(super) read: Option<(Feedback, Option<Vec<Condition>>)>,
    pub(super) plans: Plans,
    pub(super) polled: Option<String>,
}

/// The status of a work after a pass over its manifests.
pub(super) fn compose(
    before: &ManifestWorkStatus,
    reports: &[ManifestReport],
    generation: i64,
    now: Timestamp,
) -> ManifestWorkStatus {
    let applied = reports
        .iter()
        .map(|report| {
            let outcome = match &report.applied {
                Ok(()) => Ok(()),
                Err(error) => Err((report.failure, error.as_str())),
            };
            ManifestCondition {
                resource_meta: report.meta.clone(),
                status_feedback: StatusFeedbackResult::default(),
                conditions: vec![applied_of_manifest(outcome, generation, now)],
            }
        })
        .collect();
    let mut manifests = merge_manifest_conditions(&before.resource_status.manifests, applied);
    for (manifest, report) in manifests.iter_mut().zip(reports) {
        record_sight(manifest, report, generation, now);
    }
    of_manifests(before, manifests, generation, now)
}

/// The status of a work after a watch has shown some of its objects; says nothing new about how
/// manifests were applied. Objects that the status does not have are left out.
pub(super) fn observe(
    before: &ManifestWorkStatus,
    observed: &[Observed],
    generation: i64,
    now: Timestamp,
) -> ManifestWorkStatus {
    let mut manifests = before.resource_status.manifests.clone();
    let mut positions = HashMap::with_capacity(manifests.len());
    for (position, manifest) in before.resource_status.manifests.iter().enumerate() {
        positions.entry(&manifest.resource_meta).or_insert(position);
    }
    for Observed {
        meta,
        read,
        plans,
        polled,
    } in observed
    {
        let known = positions.get(meta);
        let Some(manifest) = known.and_then(|position| manifests.get_mut(*position)) else {
            continue;
        };
        let (seen, feedback, derived) = match read.clone() {
            Some((feedback, derived)) => (Seen::Found, Some(feedback), derived),
            None => (Seen::NotFound, None, None),
        };
        let report = ManifestReport {
            meta: meta.clone(),
            applied: Ok(()),
            failure: ApplyFailure::default(),
            seen,
            feedback,
            derived,
            plans: plans.clone(),
            polled: polled.clone(),
        };
        record_sight(manifest, &report, generation, now);
    }
    of_manifests(before, manifests, generation, now)
}

/// Puts into the status of a manifest what was seen of its object.
fn record_sight(
    manifest: &mut ManifestCondition,
    report: &ManifestReport,
    generation: i64,
    now: Timestamp,
) {
    let available = available_of_manifest(report.seen.sighting(), now);
    conditions::set(&mut manifest.conditions, available);
    record_feedback(manifest, report, now);
    let derived = match (&report.derived, &report.seen) {
        (Some(derived), _) => derived.clone(),
        (None, Seen::NotFound) => {
            let rules = &report.plans.rules;
            rules.without_object(&manifest.conditions, generation, now)
        }
        (None, _) => Vec::new(),
    };
    for condition in derived {
        conditions::set(&mut manifest.conditions, condition);
    }
    prune_rule_conditions(&mut manifest.conditions, generation);
}

/// The status of a work with these manifests.
fn of_manifests(
    before: &ManifestWorkStatus,
    manifests: Vec<ManifestCondition>,
    generation: i64,
    now: Timestamp,
) -> ManifestWorkStatus {
    let mut status = before.clone();
    for condition in applied_of_work(&manifests, generation, now)
        .into_iter()
        .chain(aggregate(&manifests, generation, now))
    {
        conditions::set(&mut status.conditions, condition);
    }
    prune_rule_conditions(&mut status.conditions, generation);
    status.resource_status.manifests = manifests;
    status
}

/// Values of an object that is gone are taken back, unless it was complete: those are its result.
///
/// Differs from upstream, which shows the last values for ever.
fn record_feedback(manifest: &mut ManifestCondition, report: &ManifestReport, now: Timestamp) {
    let feedback = match (&report.feedback, &report.seen) {
        (Some(feedback), _) => {
            let mut feedback = feedback.clone();
            feedback.notes.extend(report.polled.clone());
            feedback
        }
        (None, Seen::NotFound)
            if !manifest.status_feedback.values.is_empty()
                && !read::is_true(&manifest.conditions, MANIFEST_COMPLETE) =>
        {
            Feedback {
                errors: vec!["the object does not exist".to_owned()],
                ..Feedback::default()
            }
        }
        (None, _) => return,
    };
    feedback::record(manifest, &report.plans.feedback, feedback, now);
}

/// The status of a work whose spec cannot be read: nothing is known about its manifests.
pub(super) fn unreadable(
    before: &ManifestWorkStatus,
    error: &str,
    generation: i64,
    now: Timestamp,
) -> ManifestWorkStatus {
    let mut status = before.clone();
    let applied = conditions::new(
        muster_api::constants::WORK_APPLIED,
        Status::False,
        muster_api::constants::APPLIED_MANIFEST_WORK_FAILED,
        format!("Failed to apply manifest work: the spec cannot be read: {error}"),
        Some(generation),
        now,
    );
    conditions::set(&mut status.conditions, applied);
    status
}

/// The status of a work that is being deleted, and what that waits for.
///
/// Differs from upstream: upstream's text stops after "deleted", which leaves a user to search
/// the cluster for what is in the way.
pub(super) fn deleting(
    before: &ManifestWorkStatus,
    waits_for: Option<&str>,
    generation: i64,
    now: Timestamp,
) -> ManifestWorkStatus {
    let mut status = before.clone();
    let mut condition = deleting_of_work(generation, now);
    if let Some(waits_for) = waits_for {
        condition.message = format!("{}: waiting for {waits_for}", condition.message);
    }
    conditions::set(&mut status.conditions, condition);
    status
}
