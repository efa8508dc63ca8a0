//! The conditions of one manifest that the agent itself sets.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use muster_api::constants::{APPLIED_MANIFEST_COMPLETE, APPLIED_MANIFEST_FAILED, MANIFEST_APPLIED};

use super::new;

/// What the message begins with when a manifest could not be applied.
pub(super) const APPLY_FAILED: &str = "Failed to apply manifest: ";

/// The manifest's `Applied`, from the outcome of applying it.
pub fn applied_of_manifest(
    outcome: Result<(), &str>,
    generation: i64,
    now: Timestamp,
) -> Condition {
    let (reason, message) = match outcome {
        Ok(()) => (APPLIED_MANIFEST_COMPLETE, "Apply manifest complete".into()),
        Err(error) => (APPLIED_MANIFEST_FAILED, format!("{APPLY_FAILED}{error}")),
    };
    new(
        MANIFEST_APPLIED,
        outcome.is_ok().into(),
        reason,
        message,
        Some(generation),
        now,
    )
}
