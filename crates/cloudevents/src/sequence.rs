//! Sequence ids: which of two states of a status is the newer one.
//!
//! They are snowflakes: milliseconds since an epoch, a node, and a step within the millisecond, in
//! 63 bits, as decimal text. The node is always 1: sdk-go takes ids of different nodes for an error
//! and drops the status for good.

const EPOCH_MILLIS: i64 = 1_288_834_974_657;
const NODE: i64 = 1;
const NODE_SHIFT: u32 = 12;
const TIME_SHIFT: u32 = 22;
const MOST_STEPS: i64 = (1 << NODE_SHIFT) - 1;
const NODE_MASK: i64 = ((1 << (TIME_SHIFT - NODE_SHIFT)) - 1) << NODE_SHIFT;

/// Makes sequence ids, each greater than all before.
#[derive(Debug, Clone, Default)]
pub struct Sequence {
    last: i64,
    /// Up to which id is kept for the next life.
    reserved: i64,
}

impl Sequence {
    /// Begins anew.
    pub const fn new() -> Self {
        Self {
            last: 0,
            reserved: 0,
        }
    }

    /// From now on nothing is given out that would look older than this id, which another life of
    /// this sender has used: its clock may have been ahead. What is no id of ours is ignored.
    pub fn begin_after(&mut self, id: &str) {
        if let Ok(id) = id.parse::<i64>()
            && id & NODE_MASK == NODE << NODE_SHIFT
        {
            self.last = self.last.max(id);
        }
    }

    /// An id that is so far ahead of the last, if what was reserved before is used up.
    pub(crate) fn reserve(&mut self, millis: i64) -> Option<String> {
        if self.last <= self.reserved {
            return None;
        }
        self.reserved = self.last + (millis << TIME_SHIFT);
        Some(self.reserved.to_string())
    }

    /// The next id, at a time in milliseconds since 1970.
    pub fn next(&mut self, now_millis: i64) -> String {
        let now = (now_millis - EPOCH_MILLIS).max(0);
        let (time, step) = (self.last >> TIME_SHIFT, self.last & MOST_STEPS);
        // A clock that was set back, and a millisecond that is used up, borrow from the future.
        let (time, step) = if now > time || self.last == 0 {
            (now, 0)
        } else if step < MOST_STEPS {
            (time, step + 1)
        } else {
            (time + 1, 0)
        };
        self.last = (time << TIME_SHIFT) | (NODE << NODE_SHIFT) | step;
        self.last.to_string()
    }
}

/// Two sequence ids cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SequenceError {
    /// One is no number.
    #[error("the sequence id {0:?} is no number")]
    Malformed(String),
    /// They come from different generators.
    #[error("the sequence ids {0} and {1} are not from the same node")]
    Nodes(i64, i64),
}

/// Whether `incoming` is of a later state than `last`, which is empty before the first.
///
/// # Errors
///
/// They do not compare: the state is neither newer nor older.
pub fn is_newer(last: &str, incoming: &str) -> Result<bool, SequenceError> {
    let number = |text: &str| {
        let malformed = || SequenceError::Malformed(text.to_owned());
        text.parse::<i64>().map_err(|_| malformed())
    };
    if last.is_empty() && !incoming.is_empty() {
        return Ok(true);
    }
    let (last, incoming) = (number(last)?, number(incoming)?);
    if last & NODE_MASK != incoming & NODE_MASK {
        return Err(SequenceError::Nodes(last, incoming));
    }
    // Time lies above node and step, and the nodes are equal.
    Ok(incoming > last)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_795_814_117_259;

    #[test]
    fn ids_are_those_of_the_go_library() {
        assert_eq!(Sequence::new().next(NOW), "2126424645732143104");
    }

    #[test]
    fn ids_grow_whatever_the_clock_does() {
        let mut sequence = Sequence::new();
        let mut last = String::new();
        let times = [NOW, NOW, NOW - 60_000, NOW + 1, NOW + 1];
        for time in times
            .into_iter()
            .chain(std::iter::repeat_n(NOW + 2, 10_000))
        {
            let id = sequence.next(time);
            assert_eq!(is_newer(&last, &id), Ok(true), "{last} {id}");
            last = id;
        }
    }

    #[test]
    fn what_is_reserved_is_above_all_that_is_used() {
        let mut sequence = Sequence::new();
        let (mut reserved, mut times) = (String::new(), 0);
        for second in 0..600 {
            let id = sequence.next(NOW + 1_000 * second);
            if let Some(until) = sequence.reserve(60_000) {
                reserved = until;
                times += 1;
            }
            assert_ne!(is_newer(&reserved, &id), Ok(true), "{second}");
        }
        assert_eq!(times, 10);
        let mut next_life = Sequence::new();
        next_life.begin_after(&reserved);
        let last = sequence.next(NOW + 600_000);
        let next = next_life.next(NOW - 600_000);
        assert_eq!(is_newer(&last, &next), Ok(true));
    }

    #[test]
    fn another_life_is_not_undercut() {
        let used = Sequence::new().next(NOW + 5_000);
        let mut sequence = Sequence::new();
        sequence.begin_after("no id");
        sequence.begin_after(&(1_i64 << 40).to_string());
        sequence.begin_after(&used);
        let next = sequence.next(NOW);
        assert_eq!(is_newer(&used, &next), Ok(true));
    }
}
