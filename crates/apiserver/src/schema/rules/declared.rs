//! What a schema says about the sizes of values, for estimates of what its rules can cost.

use std::sync::Arc;

use muster_cel::{Declared, Kind, MAX_REQUEST_BYTES};
use serde_json::Value;

use super::values::escape;

/// A declaration, and the fewest bytes that a value of it takes in JSON.
#[derive(Clone, Debug)]
pub(super) struct Sizes {
    pub(super) declared: Arc<Declared>,
    pub(super) min_bytes: u64,
}

impl Sizes {
    fn new(kind: Kind, max_size: u64, min_bytes: u64) -> Self {
        Self {
            declared: Arc::new(Declared { kind, max_size }),
            min_bytes,
        }
    }

    /// kube-apiserver counts no size for what is declared as a number or a truth value.
    fn scalar(min_bytes: u64) -> Self {
        Self::new(Kind::Scalar, 0, min_bytes)
    }

    /// Most values of this kind in one request.
    pub(super) fn max_count(&self) -> u64 {
        MAX_REQUEST_BYTES / (self.min_bytes + 1)
    }
}

fn number(document: &Value, name: &str) -> Option<u64> {
    document.get(name).and_then(Value::as_u64)
}

fn is_true(document: &Value, name: &str) -> bool {
    document.get(name) == Some(&Value::Bool(true))
}

/// Longest text without a limit of its own: a request without the quotes.
fn longest_text() -> Sizes {
    Sizes::new(Kind::Text, MAX_REQUEST_BYTES - 2, 2)
}

fn text(document: &Value) -> Sizes {
    let max = number(document, "maxLength");
    match document.get("format").and_then(Value::as_str) {
        Some("date-time") => return Sizes::scalar(21),
        Some("date") => return Sizes::scalar(12),
        Some("duration") => return Sizes::scalar(3),
        Some("byte") => {
            return Sizes::new(Kind::Bytes, max.unwrap_or(MAX_REQUEST_BYTES - 2), 2);
        }
        _ => {}
    }
    let longest = document
        .get("enum")
        .and_then(Value::as_array)
        .map(|allowed| {
            let lengths = allowed.iter().filter_map(Value::as_str).map(str::len);
            lengths.max().unwrap_or_default() as u64
        });
    // A character has up to four bytes.
    let max = longest.or(max.map(|max| max.saturating_mul(4)));
    max.map_or_else(longest_text, |max| Sizes::new(Kind::Text, max, 2))
}

/// The sizes that a schema declares; `child` gives those of the schemas below it, by the name of
/// the field or keyword that they stand under.
pub(super) fn sizes_of(
    document: &Value,
    is_resource: bool,
    mut child: impl FnMut(&str, &Value) -> Sizes,
) -> Sizes {
    if is_true(document, "x-kubernetes-int-or-string") {
        return Sizes::new(Kind::Any, MAX_REQUEST_BYTES - 2, 1);
    }
    let unknown = || Sizes {
        declared: Declared::any(),
        min_bytes: 1,
    };
    match document.get("type").and_then(Value::as_str) {
        Some("string") => text(document),
        Some("boolean") => Sizes::scalar(4),
        Some("integer" | "number") => Sizes::scalar(1),
        Some("array") => {
            let Some(items) = document.get("items") else {
                return unknown();
            };
            let item = child("items", items);
            let most = (MAX_REQUEST_BYTES - 2) / (item.min_bytes + 1);
            let max = number(document, "maxItems").unwrap_or(most);
            Sizes::new(Kind::List(item.declared), max, 2)
        }
        Some("object") => {
            if let Some(values) = document
                .get("additionalProperties")
                .filter(|v| v.is_object())
            {
                let value = child("additionalProperties", values);
                let most = (MAX_REQUEST_BYTES - 2) / (value.min_bytes + 6);
                let max = number(document, "maxProperties").unwrap_or(most);
                // kube-apiserver takes keys for texts without any length.
                return Sizes::new(Kind::Map(0, value.declared), max, 2);
            }
            object(document, is_resource, child)
        }
        _ => unknown(),
    }
}

fn object(
    document: &Value,
    is_resource: bool,
    mut child: impl FnMut(&str, &Value) -> Sizes,
) -> Sizes {
    let required: Vec<&str> = document
        .get("required")
        .and_then(Value::as_array)
        .map(|names| names.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let required: std::collections::HashSet<&str> = required.into_iter().collect();
    let mut fields = std::collections::BTreeMap::new();
    let mut min_bytes = 2_u64;
    let properties = document.get("properties").and_then(Value::as_object);
    for (name, property) in properties.into_iter().flatten() {
        let sizes = child(name, property);
        if required.contains(name.as_str()) && property.get("default").is_none() {
            min_bytes = min_bytes
                .saturating_add(name.len() as u64 + 4)
                .saturating_add(sizes.min_bytes);
        }
        fields.insert(escape(name), sizes.declared);
    }
    if is_resource || is_true(document, "x-kubernetes-embedded-resource") {
        let text = longest_text().declared;
        for name in ["apiVersion", "kind"] {
            fields.insert(name.to_owned(), text.clone());
        }
        let metadata = ["name", "generateName"].map(|name| (name.to_owned(), text.clone()));
        let metadata = Sizes::new(Kind::Object(metadata.into()), 0, 2);
        fields.insert("metadata".to_owned(), metadata.declared);
    }
    Sizes::new(Kind::Object(fields), 0, min_bytes)
}
