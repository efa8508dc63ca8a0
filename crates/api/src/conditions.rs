//! Reading condition lists.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// Status text of a condition that holds.
pub const TRUE: &str = "True";
/// Status text of a condition that does not hold.
pub const FALSE: &str = "False";
/// Status text of a condition that cannot be told.
pub const UNKNOWN: &str = "Unknown";

/// Finds the condition of a type.
///
/// ```
/// use muster_api::{conditions, constants::WORK_APPLIED};
/// assert!(conditions::find(&[], WORK_APPLIED).is_none());
/// ```
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Status of the condition of a type; `Unknown` where there is none.
pub fn status<'a>(conditions: &'a [Condition], type_: &str) -> &'a str {
    find(conditions, type_).map_or(UNKNOWN, |condition| condition.status.as_str())
}

/// Whether the condition of a type is there and True.
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    status(conditions, type_) == TRUE
}

/// Whether the condition of a type is there and False.
pub fn is_false(conditions: &[Condition], type_: &str) -> bool {
    status(conditions, type_) == FALSE
}

/// Whether the condition of a type is True and was set for this generation of the object.
pub fn is_true_for(conditions: &[Condition], type_: &str, generation: i64) -> bool {
    find(conditions, type_).is_some_and(|condition| {
        condition.status == TRUE && condition.observed_generation == Some(generation)
    })
}
