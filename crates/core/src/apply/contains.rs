//! Whether a live object has everything that a manifest asks for.

use serde_json::{Number, Value};

use crate::go_format::Numeric;

/// Fields whose texts and numbers are quantities, as are those of everything below them.
const QUANTITIES: [&str; 6] = [
    "limits",
    "requests",
    "hard",
    "capacity",
    "overhead",
    "sizeLimit",
];

/// Whether `live` has every field of `desired` with the same value. What else it has does not
/// count: the server fills in defaults.
///
/// Null, an empty list and an empty object equal a field that is not there. Lists are the same if
/// they are as long and each element has what is asked for. Numbers compare by value, and within
/// resource requirements so do quantities (`1000m` is `1`).
pub(super) fn contains(live: Option<&Value>, desired: &Value) -> bool {
    contains_as(live, desired, false)
}

fn contains_as(live: Option<&Value>, desired: &Value, quantity: bool) -> bool {
    let live = live.unwrap_or(&Value::Null);
    match (live, desired) {
        (Value::Object(live), Value::Object(desired)) => desired.iter().all(|(key, value)| {
            contains_as(
                live.get(key),
                value,
                quantity || QUANTITIES.contains(&key.as_str()),
            )
        }),
        (Value::Null, Value::Object(desired)) => desired
            .values()
            .all(|value| contains_as(None, value, quantity)),
        (Value::Array(live), Value::Array(desired)) => {
            live.len() == desired.len()
                && live
                    .iter()
                    .zip(desired)
                    .all(|(live, desired)| contains_as(Some(live), desired, quantity))
        }
        (Value::Null, Value::Array(desired)) => desired.is_empty(),
        (_, Value::Null) => is_empty(live),
        (Value::Number(live), Value::Number(desired)) => same_number(live, desired),
        _ if quantity && live != desired => {
            parse_quantity(live).is_some_and(|live| parse_quantity(desired) == Some(live))
        }
        _ => live == desired,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.is_empty(),
        _ => false,
    }
}

/// Whether two numbers have the same value, however they are written.
pub(super) fn same_number(live: &Number, desired: &Number) -> bool {
    match (live.into(), desired.into()) {
        (Numeric::Integer(live), Numeric::Integer(desired)) => live == desired,
        _ => live.as_f64() == desired.as_f64(),
    }
}

/// A quantity as a number: what Kubernetes reads from `0.5`, `500m`, `1Gi`, `1e3`.
///
/// In doubles, which is exact for what people write; where it is not, the texts of manifest and
/// object are most likely the same, and else one update too many is sent.
fn parse_quantity(value: &Value) -> Option<f64> {
    let (number, scale) = match value {
        Value::Number(number) => (number.as_f64()?, 1.0),
        Value::String(text) => {
            // An exponent ends in a digit, so that it stays with the number.
            let number = text.trim_end_matches(|character: char| character.is_ascii_alphabetic());
            (number.parse().ok()?, suffix_scale(&text[number.len()..])?)
        }
        _ => return None,
    };
    // Billionths are the finest unit; rounding to them makes `0.1` and `100m` the same.
    Some((number * scale * 1e9).round())
}

fn suffix_scale(suffix: &str) -> Option<f64> {
    let (unit, base) = match suffix.strip_suffix('i') {
        Some(unit) => (unit, 1024.0_f64),
        None => (suffix, 1000.0),
    };
    let power = match (unit, base > 1000.0) {
        ("", false) => 0,
        ("n", false) => -3,
        ("u", false) => -2,
        ("m", false) => -1,
        ("k", false) | ("K", true) => 1,
        ("M", _) => 2,
        ("G", _) => 3,
        ("T", _) => 4,
        ("P", _) => 5,
        ("E", _) => 6,
        _ => return None,
    };
    Some(base.powi(power))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn holds(live: &Value, desired: &Value) -> bool {
        contains(Some(live), desired)
    }

    #[test]
    fn what_the_server_adds_does_not_count() {
        let live =
            json!({"replicas": 3, "strategy": {"type": "R"}, "list": [{"name": "a", "x": 1}]});
        assert!(holds(
            &live,
            &json!({"replicas": 3, "list": [{"name": "a"}]})
        ));
        assert!(holds(&live, &json!({"replicas": 3.0})));
        assert!(!holds(&live, &json!({"replicas": 4})));
        assert!(!holds(&live, &json!({"replicas": "3"})));
        assert!(!holds(&live, &json!({"list": []})), "an element too many");
        assert!(!holds(
            &live,
            &json!({"list": [{"name": "a"}, {"name": "b"}]})
        ));
        assert!(!holds(&live, &json!({"paused": false})));
        assert!(!holds(&json!(1), &json!({"a": 1})));
    }

    #[test]
    fn empty_is_absent() {
        let live = json!({"e": {}, "l": []});
        for desired in [
            json!({"a": null}),
            json!({"a": {}}),
            json!({"a": []}),
            json!({"a": {"b": {"c": null}}}),
            json!({"e": null, "l": null}),
        ] {
            assert!(holds(&live, &desired), "{desired}");
        }
        assert!(!holds(&json!({"a": 1}), &json!({"a": null})));
        assert!(!holds(&json!({}), &json!({"a": {"b": 1}})));
        assert!(!holds(&json!({}), &json!({"a": [1]})));
    }

    #[test]
    fn large_integers_keep_their_last_digit() {
        let n = 9_007_199_254_740_993_i64;
        assert!(!holds(&json!(n), &json!(n - 1)));
        assert!(holds(&json!(n), &json!(n)));
    }

    #[test]
    fn quantities_compare_by_value_where_they_are_quantities() {
        let pairs = [
            (json!("1"), json!("1000m")),
            (json!("100m"), json!(0.1)),
            (json!(2), json!("2")),
            (json!("1Gi"), json!("1024Mi")),
            (json!("1k"), json!("1e3")),
        ];
        for (live, desired) in pairs {
            let at = |field: &str, value: &Value| json!({"resources": {field: {"cpu": value}}});
            assert!(
                holds(&at("limits", &live), &at("limits", &desired)),
                "{live} {desired}"
            );
            assert!(
                !holds(&at("env", &live), &at("env", &desired)),
                "{live} {desired}"
            );
        }
        let limit = |value: &str| json!({"limits": {"memory": value}});
        assert!(!holds(&limit("1Gi"), &limit("1G")));
        assert!(!holds(&limit("1Gi"), &limit("x")));
        assert!(!holds(&limit("x"), &limit("y")));
    }
}
