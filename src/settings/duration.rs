//! Durations as people write them: `20ms`, `60s`, `1h30m`.

use std::time::Duration;

use jiff::SignedDuration;
use serde::{Deserialize, Deserializer, de};

/// Reads a duration; `None` if the text is none, or negative.
pub fn parse(text: &str) -> Option<Duration> {
    let signed: SignedDuration = text.parse().ok()?;
    signed.try_into().ok()
}

/// For fields of settings.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse(&text).ok_or_else(|| de::Error::custom(format_args!("{text:?} is no duration")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units_and_are_not_negative() {
        assert_eq!(parse("20ms"), Some(Duration::from_millis(20)));
        assert_eq!(parse("60s"), Some(Duration::from_mins(1)));
        assert_eq!(parse("1h30m"), Some(Duration::from_mins(90)));
        assert_eq!(parse("PT10M"), Some(Duration::from_mins(10)));
        assert_eq!(parse("0s"), Some(Duration::ZERO));
        for text in ["", "60", "s", "-5s", "5 parsecs", "1y"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}
