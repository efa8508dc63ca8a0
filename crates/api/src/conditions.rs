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

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;
    use crate::constants::{WORK_APPLIED, WORK_AVAILABLE, WORK_DEGRADED};

    fn condition(type_: &str, status: &str, generation: Option<i64>) -> Condition {
        Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            observed_generation: generation,
            reason: "AsExpected".to_owned(),
            message: String::new(),
            last_transition_time: Time(jiff::Timestamp::UNIX_EPOCH),
        }
    }

    #[test]
    fn missing_condition_is_unknown_and_neither_true_nor_false() {
        let conditions = [condition(WORK_APPLIED, TRUE, None)];
        assert!(is_true(&conditions, WORK_APPLIED));
        assert!(!is_false(&conditions, WORK_APPLIED));
        assert!(find(&conditions, WORK_AVAILABLE).is_none());
        assert_eq!(status(&conditions, WORK_AVAILABLE), UNKNOWN);
        assert!(!is_true(&conditions, WORK_AVAILABLE));
        assert!(!is_false(&conditions, WORK_AVAILABLE));
    }

    #[test]
    fn condition_of_an_older_generation_is_not_true_for_the_current_one() {
        let conditions = [
            condition(WORK_APPLIED, TRUE, Some(2)),
            condition(WORK_AVAILABLE, TRUE, None),
            condition(WORK_DEGRADED, FALSE, Some(2)),
        ];
        assert!(is_true_for(&conditions, WORK_APPLIED, 2));
        assert!(!is_true_for(&conditions, WORK_APPLIED, 3));
        assert!(!is_true_for(&conditions, WORK_AVAILABLE, 2));
        assert!(!is_true_for(&conditions, WORK_DEGRADED, 2));
    }
}
