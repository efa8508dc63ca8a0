//! Durations as people and Go write them: `20ms`, `60s`, `1h30m`, `1.5h`, `1h0m0s`.

use std::time::Duration;

use jiff::SignedDuration;
use serde::{Deserialize, Deserializer, de};

/// Reads a duration; `None` if the text is none, or negative.
pub fn parse(text: &str) -> Option<Duration> {
    if let Ok(signed) = text.parse::<SignedDuration>() {
        return signed.try_into().ok();
    }
    // Go takes a zero without unit, and fractions of any unit: `1.5h30m`.
    if text == "0" {
        return Some(Duration::ZERO);
    }
    if !text.is_ascii() {
        return None;
    }
    let mut sum = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let unit = rest.find(|c: char| c.is_ascii_alphabetic())?;
        let after = rest[unit..].find(|c: char| !c.is_ascii_alphabetic());
        let (part, others) = rest.split_at(after.map_or(rest.len(), |after| unit + after));
        let part: SignedDuration = part.parse().ok()?;
        sum = sum.checked_add(part.try_into().ok()?)?;
        rest = others;
    }
    (!text.is_empty()).then_some(sum)
}

/// For fields of settings.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse(&text).ok_or_else(|| de::Error::custom(format_args!("invalid duration {text:?}")))
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
        for (go, seconds) in [
            ("1h0m0s", 3600),
            ("60m", 3600),
            ("137s", 137),
            ("1.5h", 5400),
            ("1.5h30m", 7200),
            ("0", 0),
            ("876000h", 100 * 365 * 24 * 3600),
        ] {
            assert_eq!(parse(go), Some(Duration::from_secs(seconds)), "{go:?}");
        }
        assert_eq!(parse("1500us"), Some(Duration::from_micros(1500)));
        for text in [
            "",
            "60",
            "s",
            "-5s",
            "5 parsecs",
            "1y",
            "1.5h-30m",
            "1h30",
            "-1.5h30m",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}
