//! From what a pass saw to the status of the work. Pure.

use std::sync::Arc;

use jiff::Timestamp;
use muster_api::constants::CONDITION_RULE_INTERNAL_ERROR;
use muster_api::work::{
    ManifestCondition, ManifestResourceMeta, ManifestWorkStatus, StatusFeedbackResult,
};
use muster_core::availability::{Sighting, available_of_manifest};
use muster_core::conditions::{
    self, ApplyFailure, Status, aggregate, applied_of_manifest, applied_of_work, deleting_of_work,
    merge_manifest_conditions, prune_rule_conditions,
};
use muster_core::feedback::{self, Feedback, FeedbackPlan};

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
    pub(super) feedback: Option<(Arc<FeedbackPlan>, Feedback)>,
    /// Conditions that the work wants derived from the object.
    pub(super) rule_conditions: Vec<String>,
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
        let available = available_of_manifest(report.seen.sighting(), now);
        conditions::set(&mut manifest.conditions, available);
        if let Some((plan, feedback)) = &report.feedback {
            feedback::record(manifest, plan, feedback.clone(), now);
        }
        for rule in &report.rule_conditions {
            let unknown = conditions::new(
                rule,
                Status::Unknown,
                CONDITION_RULE_INTERNAL_ERROR,
                "condition rules are not supported by this version of the agent",
                Some(generation),
                now,
            );
            conditions::set(&mut manifest.conditions, unknown);
        }
        prune_rule_conditions(&mut manifest.conditions, generation);
    }

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
