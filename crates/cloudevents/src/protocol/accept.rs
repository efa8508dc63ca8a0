//! Whether what comes in is news.

use crate::sequence::{SequenceError, is_newer};

/// Whether an agent that has a resource in the version `known` takes it in the version `incoming`.
/// Deletions are always taken, and so is what has no version.
pub const fn accepts_spec(known: Option<i64>, incoming: i64, is_deleting: bool) -> bool {
    match known {
        None => true,
        Some(known) => is_deleting || incoming == 0 || incoming >= known,
    }
}

/// Whether a source takes a status: it has to be of a spec that the source has sent, and newer than
/// the one before. That a resource is gone is always taken.
///
/// # Errors
///
/// The sequence ids do not compare: the status is not taken.
pub fn accepts_status(
    known_version: i64,
    incoming_version: i64,
    last_sequence_id: &str,
    sequence_id: &str,
    is_deleted: bool,
) -> Result<bool, SequenceError> {
    if is_deleted {
        return Ok(true);
    }
    if known_version != 0 && incoming_version > known_version {
        return Ok(false);
    }
    is_newer(last_sequence_id, sequence_id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sequence::Sequence;

    #[test]
    fn an_older_spec_never_takes_the_place_of_a_newer_one() {
        assert!(accepts_spec(None, 1, false));
        assert!(accepts_spec(Some(1), 2, false));
        assert!(accepts_spec(Some(2), 2, false), "repeated");
        assert!(!accepts_spec(Some(3), 2, false), "late");
        assert!(accepts_spec(Some(3), 0, false), "without a version");
        assert!(accepts_spec(Some(3), 2, true), "a deletion");
    }

    #[test]
    fn an_older_status_never_takes_the_place_of_a_newer_one() {
        let mut sequence = Sequence::new();
        let (first, second) = (
            sequence.next(2_000_000_000_000),
            sequence.next(2_000_000_000_000),
        );
        let accepts = |version, last: &str, incoming: &str, deleted| {
            accepts_status(2, version, last, incoming, deleted)
        };
        assert_eq!(accepts(2, "", &first, false), Ok(true));
        assert_eq!(accepts(2, &first, &second, false), Ok(true));
        assert_eq!(accepts(2, &second, &first, false), Ok(false));
        assert_eq!(accepts(2, &first, &first, false), Ok(false), "repeated");
        assert_eq!(
            accepts(3, &first, &second, false),
            Ok(false),
            "of no spec of ours"
        );
        assert_eq!(accepts(1, &first, &second, false), Ok(true));
        assert_eq!(accepts(9, &second, &first, true), Ok(true), "the end");
        assert!(accepts(2, &first, "x", false).is_err());
    }
}
