//! Whether two fields mean the same to an API server.

use serde_json::Value;

use super::contains::same_number;

/// Fields that hold a map of texts, of which servers do not store an empty one.
const MAPS: [&str; 4] = ["data", "binaryData", "parameters", "matchLabels"];

/// Whether two values of a field mean the same, nothing more and nothing less.
///
/// Null and an empty list equal a field that is not there, since servers store neither. An empty
/// object does so only in a field that holds a map: a label selector `{}` selects everything, none
/// at all selects nothing. Numbers compare by value.
pub(super) fn same(field: &str, a: Option<&Value>, b: Option<&Value>) -> bool {
    same_counted(field, a, b, &mut 0)
}

/// The same, adding to `steps` one for each pair of values that is compared. Each value of either
/// side is part of one pair at most, so that the cost is linear in their size.
fn same_counted(field: &str, a: Option<&Value>, b: Option<&Value>, steps: &mut usize) -> bool {
    *steps += 1;
    match (stored(field, a), stored(field, b)) {
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            a.iter()
                .all(|(key, value)| same_counted(key, Some(value), b.get(key), steps))
                && b.iter()
                    .filter(|(key, _)| !a.contains_key(*key))
                    .all(|(key, value)| same_counted(key, None, Some(value), steps))
        }
        (Some(Value::Array(a)), Some(Value::Array(b))) => {
            a.len() == b.len()
                && a.iter()
                    .zip(b)
                    .all(|(a, b)| same_counted("", Some(a), Some(b), steps))
        }
        (Some(Value::Number(a)), Some(Value::Number(b))) => same_number(a, b),
        (a, b) => a == b,
    }
}

/// The value of a field as a server keeps it.
fn stored<'a>(field: &str, value: Option<&'a Value>) -> Option<&'a Value> {
    value.filter(|value| match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(entries) => !entries.is_empty() || !MAPS.contains(&field),
        _ => true,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_more_and_nothing_less() {
        let same = |a: Value, b: Value| {
            assert_eq!(
                super::same("f", Some(&a), Some(&b)),
                super::same("f", Some(&b), Some(&a))
            );
            super::same("f", Some(&a), Some(&b))
        };
        assert!(same(
            json!({"a": [1, "x"], "n": null}),
            json!({"a": [1.0, "x"]})
        ));
        assert!(same(json!(null), json!([])));
        assert!(same(json!({"l": []}), json!({})));
        assert!(same(
            json!({"matchLabels": {}, "x": 1}),
            json!({"x": 1, "matchLabels": null})
        ));
        assert!(!same(json!({"a": 1, "b": 1}), json!({"a": 1})));
        assert!(!same(json!([{}]), json!([])), "all is not nothing");
        assert!(!same(json!({"namespaceSelector": {}}), json!({})));
        assert!(!same(json!({"a": false}), json!({})));
        assert!(!same(json!({"a": ""}), json!({})));
        assert!(!same(json!(1), json!("1")));
        assert!(!same(json!([1, 2]), json!([2, 1])));
    }

    /// Comparing deep objects once took 2^depth steps.
    #[test]
    fn each_value_is_compared_once_however_deep_and_wide() {
        let nested = |depth: usize, leaf: Value| {
            (0..depth).fold(leaf, |below, _| json!({"properties": {"p": below}}))
        };
        let (deep, other) = (nested(60, json!(1)), nested(60, json!(2)));
        let wide: Value = (0..20_000).map(|n| json!({"n": n, "x": null})).collect();
        for (a, b, expected, values) in [
            (&deep, &deep, true, 2 * 60 + 1),
            (&deep, &other, false, 2 * 60 + 1),
            (&wide, &wide, true, 1 + 3 * 20_000),
        ] {
            let mut steps = 0;
            assert_eq!(same_counted("spec", Some(a), Some(b), &mut steps), expected);
            assert!(steps <= values, "{steps} steps for {values} values");
        }
        let mut steps = 0;
        assert!(!same_counted(
            "spec",
            Some(&json!({})),
            Some(&deep),
            &mut steps
        ));
        assert_eq!(steps, 2, "what one side lacks is not looked into");
    }
}
