//! Durations as Go writes and reads them: `10s`, `1h30m`, `1.5h`.

use std::fmt;
use std::time::Duration;

/// Why a text is no duration, in the words of Go's `time.ParseDuration`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoDurationError(String);

impl fmt::Display for GoDurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for GoDurationError {}

/// Reads a duration; a sequence of numbers, each with a unit. Only a lone `0` needs none.
///
/// # Errors
///
/// [`GoDurationError`] for a malformed text, for a negative duration, which nothing here has a use
/// for, and beyond 292 years, where Go's type ends.
pub fn parse(text: &str) -> Result<Duration, GoDurationError> {
    let invalid = || GoDurationError(format!("time: invalid duration \"{text}\""));
    let rest = text.strip_prefix('+').unwrap_or(text);
    if rest.starts_with('-') {
        return Err(GoDurationError(format!(
            "time: negative duration \"{text}\""
        )));
    }
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut nanoseconds: u128 = 0;
    let mut rest = rest;
    while !rest.is_empty() {
        let number_end = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let (number, after) = rest.split_at(number_end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
            return Err(invalid());
        }
        let unit_end = after
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(after.len());
        let (unit, next) = after.split_at(unit_end);
        let scale: u128 = match unit {
            "ns" => 1,
            "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60 * 1_000_000_000,
            "h" => 3_600 * 1_000_000_000,
            "" => {
                let text = format!("time: missing unit in duration \"{text}\"");
                return Err(GoDurationError(text));
            }
            _ => {
                let text = format!("time: unknown unit \"{unit}\" in duration \"{text}\"");
                return Err(GoDurationError(text));
            }
        };
        let whole: u128 = match whole {
            "" => 0,
            digits => digits.parse().map_err(|_| invalid())?,
        };
        nanoseconds = whole
            .checked_mul(scale)
            .and_then(|part| part.checked_add(part_of(fraction, scale)))
            .and_then(|part| part.checked_add(nanoseconds))
            .filter(|sum| *sum <= i64::MAX.unsigned_abs().into())
            .ok_or_else(invalid)?;
        rest = next;
    }
    let nanoseconds = u64::try_from(nanoseconds).map_err(|_| invalid())?;
    Ok(Duration::from_nanos(nanoseconds))
}

/// So many nanoseconds as the decimal places `fraction` are of `scale`, cut off.
fn part_of(fraction: &str, scale: u128) -> u128 {
    // A unit has at most 13 digits of nanoseconds: what comes after them is below one.
    let digits = &fraction[..fraction.len().min(18)];
    let places = u32::try_from(digits.len()).unwrap_or_default();
    let value: u128 = digits.parse().unwrap_or_default();
    value * scale / 10_u128.pow(places)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units_and_add_up() {
        for (text, nanoseconds) in [
            ("0", 0),
            ("0s", 0),
            ("+5s", 5_000_000_000),
            ("1.5h", 5_400_000_000_000),
            ("1.5h30m", 7_200_000_000_000),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("1us2\u{b5}s3\u{3bc}s4ns", 6_004),
            ("0.1234567891234567891234s", 123_456_789),
        ] {
            assert_eq!(
                parse(text),
                Ok(Duration::from_nanos(nanoseconds)),
                "{text:?}"
            );
        }
    }

    #[test]
    fn what_is_none_is_refused_in_the_words_of_go() {
        for (text, error) in [
            ("", "time: invalid duration \"\""),
            (".", "time: invalid duration \".\""),
            ("1..5s", "time: invalid duration \"1..5s\""),
            ("s", "time: invalid duration \"s\""),
            ("5", "time: missing unit in duration \"5\""),
            (
                "5 parsecs",
                "time: unknown unit \" parsecs\" in duration \"5 parsecs\"",
            ),
            ("-5s", "time: negative duration \"-5s\""),
            ("99999999h", "time: invalid duration \"99999999h\""),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), error, "{text:?}");
        }
    }
}
