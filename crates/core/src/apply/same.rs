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
    match (stored(field, a), stored(field, b)) {
        (Some(Value::Object(a)), Some(Value::Object(b))) => a
            .keys()
            .chain(b.keys())
            .all(|key| same(key, a.get(key), b.get(key))),
        (Some(Value::Array(a)), Some(Value::Array(b))) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same("", Some(a), Some(b)))
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
}
