//! When so much came at once that some of it may not have come.

use std::time::Duration;

use tokio::time::Instant;

/// So many messages in a row, or so many bytes, and more may have come than the broker holds for a
/// client: the smallest default of one is 1,000 messages (mosquitto, EMQX).
const MANY: usize = 500;
/// See [`MANY`]; as little as two large events.
const MANY_BYTES: usize = 1024 * 1024;
/// A pause as long as this, and there is nothing at the broker any more.
const PAUSE: Duration = Duration::from_secs(1);
/// What the pause grows to while what is asked for comes in many again and again.
const LONGEST_PAUSE: Duration = Duration::from_secs(64);

/// Messages that came without a pause.
///
/// A broker that holds more for a client than it may drops some, and tells nobody: neither who sent
/// them, since it has acknowledged them, nor who was to have them. Whoever has taken many in a row
/// has to ask whether that was all.
#[derive(Debug)]
pub(super) struct Run {
    messages: usize,
    bytes: usize,
    last: Option<Instant>,
    pause: Duration,
}

impl Default for Run {
    fn default() -> Self {
        Self {
            messages: 0,
            bytes: 0,
            last: None,
            pause: PAUSE,
        }
    }
}

impl Run {
    /// A message came.
    pub(super) fn add(&mut self, bytes: usize) {
        self.messages += 1;
        self.bytes += bytes;
        self.last = Some(Instant::now());
    }

    /// When it is over, if nothing more comes.
    pub(super) fn over_at(&self) -> Option<Instant> {
        self.last.map(|last| last + self.pause)
    }

    /// It is over. Whether some of it may not have come.
    pub(super) fn end(&mut self) -> bool {
        let many = self.messages >= MANY || self.bytes >= MANY_BYTES;
        let pause = if many {
            (self.pause * 2).min(LONGEST_PAUSE)
        } else {
            PAUSE
        };
        *self = Self {
            pause,
            ..Self::default()
        };
        many
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn many_in_a_row_are_a_reason_to_ask_ever_less_often() {
        let mut run = Run::default();
        assert_eq!(run.over_at(), None);
        let many = |run: &mut Run| {
            for _ in 0..MANY {
                run.add(1);
            }
        };
        for seconds in [1, 2, 4, 8, 16, 32, 64, 64] {
            many(&mut run);
            let pause = Duration::from_secs(seconds);
            assert_eq!(run.over_at(), Some(Instant::now() + pause));
            assert!(run.end());
            assert_eq!(run.over_at(), None);
        }
        run.add(MANY_BYTES - 1);
        assert!(!run.end());
        run.add(MANY_BYTES);
        assert_eq!(run.over_at(), Some(Instant::now() + PAUSE));
        assert!(run.end());
    }
}
