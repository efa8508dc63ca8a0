//! One step of a field's path, in the forms and the order that `FieldsV1` has.

use std::cmp::Ordering;
use std::fmt;

use serde_json::{Map, Number, Value};

/// A JSON value with the total order of field sets, in which 1 and 1.0 are equal.
#[derive(Clone, Debug)]
pub(super) struct Ordered(pub(super) Value);

impl PartialEq for Ordered {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Ordered {}

impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ordered {
    fn cmp(&self, other: &Self) -> Ordering {
        compare_values(&self.0, &other.0)
    }
}

/// Numbers, then strings, booleans, lists, maps, null.
fn compare_values(a: &Value, b: &Value) -> Ordering {
    let rank = |value: &Value| match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    };
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => compare_numbers(a, b),
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => {
            let pairs = a.iter().zip(b).map(|(a, b)| compare_values(a, b));
            first_difference(pairs).then(a.len().cmp(&b.len()))
        }
        (Value::Object(a), Value::Object(b)) => {
            let pairs = a.iter().zip(b).map(|((k, v), (l, w))| {
                let names = k.cmp(l);
                names.then_with(|| compare_values(v, w))
            });
            first_difference(pairs).then(a.len().cmp(&b.len()))
        }
        _ => rank(a).cmp(&rank(b)),
    }
}

fn compare_numbers(a: &Number, b: &Number) -> Ordering {
    if let (Some(a), Some(b)) = (a.as_i64(), b.as_i64()) {
        return a.cmp(&b);
    }
    let (a, b) = (a.as_f64(), b.as_f64());
    a.partial_cmp(&b).unwrap_or(Ordering::Equal)
}

fn first_difference(mut orders: impl Iterator<Item = Ordering>) -> Ordering {
    orders
        .find(|o| *o != Ordering::Equal)
        .unwrap_or(Ordering::Equal)
}

/// True when two values are the same to field management.
pub(super) fn same(a: &Value, b: &Value) -> bool {
    compare_values(a, b) == Ordering::Equal
}

/// One step of a path. Variants are in the order in which sets list them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Element {
    /// A field of a map: `f:name`.
    Field(String),
    /// The item of a list that has these values in its key fields, sorted by name:
    /// `k:{"name":"a"}`.
    Key(Vec<(String, Ordered)>),
    /// The item of a list that is this value: `v:"a"`.
    Value(Ordered),
    /// An item by its place: `i:0`.
    Index(u64),
}

impl Element {
    pub(super) fn field(name: &str) -> Self {
        Self::Field(name.to_owned())
    }

    /// Parses a key of `FieldsV1`. `None` for kinds of steps that are not known, which are
    /// skipped, as a later version may have added them.
    ///
    /// # Errors
    ///
    /// Fails on what is no step.
    pub(super) fn parse(text: &str) -> Result<Option<Self>, String> {
        let (kind, rest) = text
            .split_once(':')
            .filter(|(kind, _)| kind.len() == 1)
            .ok_or_else(|| format!("{text:?} is no path element"))?;
        let json = || {
            serde_json::from_str::<Value>(rest)
                .map_err(|e| format!("path element {text:?} is invalid: {e}"))
        };
        Ok(Some(match kind {
            "f" => Self::Field(rest.to_owned()),
            "v" => Self::Value(Ordered(json()?)),
            "k" => match json()? {
                Value::Object(fields) => Self::key(fields),
                _ => return Err(format!("path element {text:?} is no object")),
            },
            "i" => Self::Index(
                rest.parse()
                    .map_err(|_| format!("path element {text:?} is no index"))?,
            ),
            _ => return Ok(None),
        }))
    }

    /// The step to the item with these key fields.
    pub(super) fn key(fields: Map<String, Value>) -> Self {
        let mut key: Vec<_> = fields.into_iter().map(|(k, v)| (k, Ordered(v))).collect();
        key.sort_by(|(a, _), (b, _)| a.cmp(b));
        Self::Key(key)
    }

    /// The step as a key of `FieldsV1`.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(fields) => {
                let fields: Vec<String> = fields
                    .iter()
                    .map(|(name, value)| {
                        format!("{}:{}", json(&Value::from(&**name)), json(&value.0))
                    })
                    .collect();
                format!("k:{{{}}}", fields.join(","))
            }
            Self::Value(value) => format!("v:{}", json(&value.0)),
            Self::Index(at) => format!("i:{at}"),
        }
    }
}

/// JSON as Go writes it: with `<`, `>` and `&` escaped.
fn json(value: &Value) -> String {
    value
        .to_string()
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
}

impl fmt::Display for Element {
    /// Writes the step as conflicts tell it: `.name`, `[name="a"]`, `[="a"]`, `[0]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(fields) => {
                let fields: Vec<String> = fields
                    .iter()
                    .map(|(name, value)| format!("{name}={}", value.0))
                    .collect();
                write!(f, "[{}]", fields.join(","))
            }
            Self::Value(value) => write!(f, "[={}]", value.0),
            Self::Index(at) => write!(f, "[{at}]"),
        }
    }
}

/// A path as conflicts tell it.
pub(super) fn path_text(path: &[Element]) -> String {
    path.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn steps_survive_a_round_trip_and_read_well() {
        for (text, read) in [
            ("f:spec", ".spec"),
            ("f:a:b/c", ".a:b/c"),
            ("k:{\"name\":\"web\"}", "[name=\"web\"]"),
            (
                "k:{\"containerPort\":80,\"protocol\":\"TCP\"}",
                "[containerPort=80,protocol=\"TCP\"]",
            ),
            ("v:\"a/b\"", "[=\"a/b\"]"),
            ("v:5", "[=5]"),
            ("v:\"\\u003ca\\u0026b\\u003e\"", "[=\"<a&b>\"]"),
            ("i:3", "[3]"),
        ] {
            let element = Element::parse(text).unwrap().unwrap();
            assert_eq!(element.text(), text);
            assert_eq!(element.to_string(), read);
        }
        let unsorted = Element::parse("k:{\"b\":1,\"a\":2}").unwrap().unwrap();
        assert_eq!(unsorted.text(), "k:{\"a\":2,\"b\":1}");
    }

    #[test]
    fn unknown_steps_are_skipped_and_malformed_ones_refused() {
        assert_eq!(Element::parse("z:what").unwrap(), None);
        for text in ["spec", "", "ff:a", "k:[]", "k:{", "v:", "i:x"] {
            assert!(Element::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn steps_have_one_order() {
        let mut steps: Vec<Element> = [
            "i:0",
            "v:\"a\"",
            "v:10",
            "v:9",
            "k:{\"p\":443}",
            "k:{\"p\":80}",
            "f:b",
            "f:a",
        ]
        .iter()
        .map(|t| Element::parse(t).unwrap().unwrap())
        .collect();
        steps.sort();
        let texts: Vec<String> = steps.iter().map(Element::text).collect();
        assert_eq!(
            texts,
            [
                "f:a",
                "f:b",
                "k:{\"p\":80}",
                "k:{\"p\":443}",
                "v:9",
                "v:10",
                "v:\"a\"",
                "i:0"
            ]
        );
    }

    #[test]
    fn values_are_compared_as_what_they_mean() {
        assert!(same(&json!(1), &json!(1.0)));
        assert!(same(&json!({"a": [1, null]}), &json!({"a": [1.0, null]})));
        for (a, b) in [
            (json!(1), json!("1")),
            (json!("a"), json!(true)),
            (json!([1]), json!([1, 2])),
            (json!({"a": 1}), json!({"b": 1})),
            (json!({"a": 1}), json!({"a": 1, "b": 1})),
            (json!({}), json!(null)),
        ] {
            assert_eq!(compare_values(&a, &b), Ordering::Less, "{a} {b}");
            assert_eq!(compare_values(&b, &a), Ordering::Greater, "{a} {b}");
        }
    }
}
