//! The text forms of Go that reach users: values inside error texts, numbers inside raw JSON and
//! characters inside parse errors.

use std::convert::Infallible;
use std::fmt::Write as _; // Writing to a String cannot fail.

use serde_json::{Number, Value};

/// A JSON number as the reference reads it: a signed 64-bit integer if its literal is one, a
/// double otherwise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Numeric {
    /// An integer literal that fits.
    Integer(i64),
    /// Everything else, among it integers above `i64::MAX`.
    Double(f64),
}

impl From<&Number> for Numeric {
    fn from(number: &Number) -> Self {
        // A number without an integer form always has a double form: `arbitrary_precision` of
        // serde_json is off.
        number.as_i64().map_or_else(
            || Self::Double(number.as_f64().unwrap_or(f64::NAN)),
            Self::Integer,
        )
    }
}

/// Whether a number may have lost digits when it was read: a double so large that its literal may
/// have been an integer beyond 64 bits, which the reader rounds.
pub(crate) fn is_rounded(number: &Number) -> bool {
    // Integers between these are kept as such.
    const LEAST: f64 = -9_223_372_036_854_775_808.0;
    const BEYOND: f64 = 18_446_744_073_709_551_616.0;
    let double = number.is_f64().then(|| number.as_f64()).flatten();
    double.is_some_and(|double| double <= LEAST || double >= BEYOND)
}

/// Appends `value` as Go's `%v` prints it, until `out` is `limit` bytes long; what is cut off is
/// marked by `…`.
pub(crate) fn write_value(out: &mut String, value: &Value, limit: usize) {
    if out.len() >= limit {
        if !out.ends_with('…') {
            out.push('…');
        }
        return;
    }
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Number(number) => match Numeric::from(number) {
            Numeric::Integer(integer) => out.push_str(&integer.to_string()),
            Numeric::Double(double) => write_double(out, double, DOUBLE_AS_VALUE),
        },
        Value::String(text) => {
            let shown = prefix(text, limit - out.len());
            out.push_str(shown);
            if shown.len() < text.len() {
                out.push('…');
            }
        }
        Value::Array(items) => {
            out.push('[');
            for (position, item) in items.iter().enumerate() {
                if position > 0 {
                    out.push(' ');
                }
                write_value(out, item, limit);
                if is_cut(out, limit) {
                    return;
                }
            }
            out.push(']');
        }
        Value::Object(entries) => {
            out.push_str("map[");
            for (position, (key, item)) in entries.iter().enumerate() {
                if position > 0 {
                    out.push(' ');
                }
                out.push_str(key);
                out.push(':');
                write_value(out, item, limit);
                if is_cut(out, limit) {
                    return;
                }
            }
            out.push(']');
        }
    }
}

/// Whether something was cut off; a value may itself end in the mark.
fn is_cut(out: &str, limit: usize) -> bool {
    out.len() >= limit && out.ends_with('…')
}

/// The longest beginning of `text` that takes at most `bytes` and ends with a whole character.
pub(crate) fn prefix(text: &str, bytes: usize) -> &str {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Appends `value` as Go's `encoding/json` encodes it: compact, keys sorted, characters that mean
/// something to HTML escaped, doubles without an empty fraction, and integers above `i64::MAX` as
/// the double that Go reads them as.
pub(crate) fn write_json(out: &mut String, value: &Value) {
    let number = |out: &mut String, number: &Number| {
        match Numeric::from(number) {
            Numeric::Integer(integer) => out.push_str(&integer.to_string()),
            Numeric::Double(double) => write_double(out, double, DOUBLE_IN_JSON),
        }
        Ok::<_, Infallible>(())
    };
    let Ok(()) = write_json_with(out, value, number, |_| Ok(()));
}

/// Why a value is not written by [`write_exact_json`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotExact {
    /// It takes more bytes than allowed.
    TooLong,
    /// It holds a number that was rounded when it was read.
    Rounded,
}

/// As [`write_json`], with all digits of integers, for at most `limit` bytes in `out`; writes
/// little more than that.
pub(crate) fn write_exact_json(
    out: &mut String,
    value: &Value,
    limit: usize,
) -> Result<(), NotExact> {
    let number = |out: &mut String, number: &Number| {
        match (number.as_u64(), Numeric::from(number)) {
            (Some(integer), _) => out.push_str(&integer.to_string()),
            (None, Numeric::Integer(integer)) => out.push_str(&integer.to_string()),
            _ if is_rounded(number) => return Err(NotExact::Rounded),
            (None, Numeric::Double(double)) => write_double(out, double, DOUBLE_IN_JSON),
        }
        Ok(())
    };
    let within = |length| {
        if length > limit {
            Err(NotExact::TooLong)
        } else {
            Ok(())
        }
    };
    write_json_with(out, value, number, within)?;
    within(out.len())
}

/// Writes numbers by `number`; before a text or an item that takes `out` beyond what `within` allows,
/// it ends.
fn write_json_with<E>(
    out: &mut String,
    value: &Value,
    number: impl Fn(&mut String, &Number) -> Result<(), E> + Copy,
    within: impl Fn(usize) -> Result<(), E> + Copy,
) -> Result<(), E> {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Number(value) => number(out, value)?,
        Value::String(text) => {
            within(out.len() + text.len())?;
            write_json_string(out, text);
        }
        Value::Array(items) => {
            out.push('[');
            for (position, item) in items.iter().enumerate() {
                if position > 0 {
                    out.push(',');
                }
                within(out.len())?;
                write_json_with(out, item, number, within)?;
            }
            out.push(']');
        }
        Value::Object(entries) => {
            out.push('{');
            for (position, (key, item)) in entries.iter().enumerate() {
                if position > 0 {
                    out.push(',');
                }
                within(out.len() + key.len())?;
                write_json_string(out, key);
                out.push(':');
                write_json_with(out, item, number, within)?;
            }
            out.push('}');
        }
    }
    Ok(())
}

fn write_json_string(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..='\u{1f}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(character));
            }
            _ => out.push(character),
        }
    }
    out.push('"');
}

/// When a double is written with an exponent, and how.
#[derive(Debug, Clone, Copy)]
struct DoubleForm {
    /// Decimal exponents below this one are written as an exponent.
    lowest_plain: i32,
    /// Decimal exponents from this one on are written as an exponent.
    first_large: i32,
    /// Least number of digits of a negative exponent.
    negative_digits: usize,
}

/// `%v`: as `%g` with the shortest digits.
const DOUBLE_AS_VALUE: DoubleForm = DoubleForm {
    lowest_plain: -4,
    first_large: 6,
    negative_digits: 2,
};

/// `encoding/json`: the rule of ECMAScript.
const DOUBLE_IN_JSON: DoubleForm = DoubleForm {
    lowest_plain: -6,
    first_large: 21,
    negative_digits: 1,
};

fn write_double(out: &mut String, double: f64, form: DoubleForm) {
    // Rust and Go both print the shortest digits that read back as the same double; only the
    // choice between plain and exponent form differs.
    let scientific = format!("{double:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if double == 0.0 || (form.lowest_plain..form.first_large).contains(&exponent) {
        out.push_str(&double.to_string());
        return;
    }
    out.push_str(digits);
    let width = if exponent < 0 {
        form.negative_digits
    } else {
        2
    };
    let sign = if exponent < 0 { '-' } else { '+' };
    let _ = write!(out, "e{sign}{:0width$}", exponent.unsigned_abs());
}

/// A character as Go's `%#U` prints it: `U+0026 '&'`, without the quoted part when it cannot be
/// printed.
pub(crate) fn unicode_point(character: char) -> String {
    let point = format!("U+{:04X}", u32::from(character));
    // The debug form leaves what can be printed as it is; after a letter also combining marks.
    let printable = matches!(character, '\'' | '"' | '\\')
        || format!("a{character}").escape_debug().count() == 2;
    if printable {
        format!("{point} '{character}'")
    } else {
        point
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn as_value(value: &Value, limit: usize) -> String {
        let mut out = String::new();
        write_value(&mut out, value, limit);
        out
    }

    fn as_json(value: &Value) -> String {
        let mut out = String::new();
        write_json(&mut out, value);
        out
    }

    #[test]
    fn doubles_take_an_exponent_where_go_gives_them_one() {
        for (double, value, json) in [
            (1.0, "1", "1"),
            (-0.0, "-0", "-0"),
            (2.5, "2.5", "2.5"),
            (100_000.0, "100000", "100000"),
            (16_777_216.0, "1.6777216e+07", "16777216"),
            (1e-4, "0.0001", "0.0001"),
            (1e-5, "1e-05", "0.00001"),
            (1e-7, "1e-07", "1e-7"),
            (1e20, "1e+20", "100000000000000000000"),
            (1.5e21, "1.5e+21", "1.5e+21"),
            (-1e100, "-1e+100", "-1e+100"),
        ] {
            assert_eq!(as_value(&json!(double), 99), value);
            assert_eq!(as_json(&json!(double)), json);
        }
    }

    #[test]
    fn values_are_printed_like_go_maps_and_slices() {
        let value = json!({"b": [1, null, "x y"], "a": {}, "big": u64::MAX});
        assert_eq!(
            as_value(&value, 999),
            "map[a:map[] b:[1 <nil> x y] big:1.8446744073709552e+19]"
        );
    }

    #[test]
    fn long_values_are_cut_once_at_a_character() {
        assert_eq!(as_value(&json!(["äöü", "x", "y"]), 4), "[ä…");
        assert_eq!(as_value(&json!({"a": "12345", "b": "x"}), 8), "map[a:12…");
        assert_eq!(as_value(&json!(["x…", "y"]), 99), "[x… y]");
    }

    #[test]
    fn json_escapes_what_html_would_read() {
        let text = "<a href=\"x\">&\u{2028}\u{1}\u{8}\n\\é</a>";
        assert_eq!(
            as_json(&json!({ "z": text, "a": [true, null] })),
            r#"{"a":[true,null],"z":"\u003ca href=\"x\"\u003e\u0026\u2028\u0001\b\n\\é\u003c/a\u003e"}"#
        );
    }

    #[test]
    fn characters_are_quoted_only_when_they_can_be_printed() {
        assert_eq!(unicode_point('&'), "U+0026 '&'");
        assert_eq!(unicode_point('\\'), "U+005C '\\'");
        assert_eq!(unicode_point('\u{1F389}'), "U+1F389 '🎉'");
        assert_eq!(unicode_point('\t'), "U+0009");
        assert_eq!(unicode_point('\u{a0}'), "U+00A0");
        assert_eq!(unicode_point('\u{2028}'), "U+2028");
    }
}
