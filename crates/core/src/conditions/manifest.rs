//! The conditions of one manifest that the agent itself sets.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use muster_api::constants::{
    APPLIED_MANIFEST_COMPLETE, APPLIED_MANIFEST_FAILED, APPLIED_MANIFEST_SSA_IGNORE_FIELD_ERROR,
    MANIFEST_APPLIED,
};

use super::new;

/// What the message begins with when a manifest could not be applied.
pub(super) const APPLY_FAILED: &str = "Failed to apply manifest: ";

/// What the message begins with when the fields to ignore could not be found.
const IGNORE_FIELDS_FAILED: &str = "Failed to process ignoreFields: ";

/// What went wrong with a manifest that is not applied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ApplyFailure {
    /// Applying it.
    #[default]
    Apply,
    /// Finding the fields that server-side apply is to ignore.
    IgnoreFields,
}

/// The manifest's `Applied`, from the outcome of applying it: what went wrong, and its text.
pub fn applied_of_manifest(
    outcome: Result<(), (ApplyFailure, &str)>,
    generation: i64,
    now: Timestamp,
) -> Condition {
    let (reason, message) = match outcome {
        Ok(()) => (APPLIED_MANIFEST_COMPLETE, "Apply manifest complete".into()),
        Err((ApplyFailure::Apply, error)) => {
            (APPLIED_MANIFEST_FAILED, format!("{APPLY_FAILED}{error}"))
        }
        Err((ApplyFailure::IgnoreFields, error)) => (
            APPLIED_MANIFEST_SSA_IGNORE_FIELD_ERROR,
            format!("{IGNORE_FIELDS_FAILED}{error}"),
        ),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_wrong_shows_in_the_reason() {
        for (failure, reason, message) in [
            (
                ApplyFailure::Apply,
                "AppliedManifestFailed",
                "Failed to apply manifest: e",
            ),
            (
                ApplyFailure::IgnoreFields,
                "AppliedManifestSSAIgnoreFieldError",
                "Failed to process ignoreFields: e",
            ),
        ] {
            let condition = applied_of_manifest(Err((failure, "e")), 1, Timestamp::UNIX_EPOCH);
            assert_eq!(condition.status, "False");
            assert_eq!((&*condition.reason, &*condition.message), (reason, message));
        }
    }
}
