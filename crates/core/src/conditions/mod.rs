//! Conditions: setting them with their transition times, merging and aggregating them.

mod aggregate;
mod manifest;
mod merge;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

pub use aggregate::{aggregate, applied_of_work, deleting_of_work, prune_rule_conditions};
pub use manifest::{ApplyFailure, applied_of_manifest};
pub use merge::merge_manifest_conditions;

/// Longest message that the schema of conditions admits, in characters.
const MAX_MESSAGE_CHARS: usize = 32_768;

/// What a condition says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// It cannot be told.
    Unknown,
}

impl Status {
    /// The text on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => muster_api::conditions::TRUE,
            Self::False => muster_api::conditions::FALSE,
            Self::Unknown => muster_api::conditions::UNKNOWN,
        }
    }
}

impl From<bool> for Status {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// A message cut to what the schema of conditions takes, 32,768 characters.
pub fn fitting(mut message: String) -> String {
    // Bytes first: counting characters of a short text would be for nothing.
    if message.len() > MAX_MESSAGE_CHARS
        && let Some((end, _)) = message.char_indices().nth(MAX_MESSAGE_CHARS - 1)
        && message[end..].chars().nth(1).is_some()
    {
        message.truncate(end);
        message.push('…');
    }
    message
}

/// Builds a condition that has changed now. A message that is too long for the schema is cut.
pub fn new(
    type_: &str,
    status: Status,
    reason: &str,
    message: impl Into<String>,
    observed_generation: Option<i64>,
    now: Timestamp,
) -> Condition {
    Condition {
        type_: type_.into(),
        status: status.as_str().into(),
        reason: reason.into(),
        message: fitting(message.into()),
        observed_generation,
        last_transition_time: Time(now),
    }
}

/// Sets a condition; says whether anything changed. The transition time moves only when the
/// status does.
pub fn set(conditions: &mut Vec<Condition>, mut condition: Condition) -> bool {
    let Some(known) = conditions
        .iter_mut()
        .find(|known| known.type_ == condition.type_)
    else {
        conditions.push(condition);
        return true;
    };
    if known.status == condition.status {
        condition.last_transition_time = known.last_transition_time.clone();
    }
    let changed = *known != condition;
    *known = condition;
    changed
}

/// Sets a condition as one that has changed, whatever was there; it moves to the end of the list.
pub fn replace(conditions: &mut Vec<Condition>, condition: Condition) {
    conditions.retain(|known| known.type_ != condition.type_);
    conditions.push(condition);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn ready(status: Status, message: &str, second: i64) -> Condition {
        new("Ready", status, "Reason", message, Some(1), at(second))
    }

    #[test]
    fn the_transition_time_moves_with_the_status_only() {
        let mut conditions = Vec::new();
        assert!(set(&mut conditions, ready(Status::True, "", 1)));
        assert!(
            !set(&mut conditions, ready(Status::True, "", 2)),
            "nothing changed"
        );
        assert!(set(&mut conditions, ready(Status::True, "new", 3)));
        assert_eq!(conditions, [ready(Status::True, "new", 1)]);
        assert!(set(&mut conditions, ready(Status::False, "new", 4)));
        assert_eq!(conditions, [ready(Status::False, "new", 4)]);
    }

    #[test]
    fn a_replaced_condition_goes_to_the_end_with_a_new_time() {
        let other = new("Other", Status::Unknown, "R", "", None, at(1));
        let mut conditions = vec![ready(Status::True, "", 1), other.clone()];
        replace(&mut conditions, ready(Status::True, "", 2));
        assert_eq!(conditions, [other, ready(Status::True, "", 2)]);
    }

    #[test]
    fn messages_fit_the_schema() {
        let long = "é".repeat(MAX_MESSAGE_CHARS);
        assert_eq!(ready(Status::True, &long, 1).message, long);
        let cut = ready(Status::True, &(long.clone() + "é"), 1).message;
        assert_eq!(cut.chars().count(), MAX_MESSAGE_CHARS);
        assert!(cut.ends_with("é…"));
    }
}
