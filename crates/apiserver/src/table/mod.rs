//! Tables for `kubectl get`: columns of custom types from their CRD, of common built-in types
//! as Kubernetes prints them, name and age for the rest.

mod builtin;
mod duration;
mod jsonpath;

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::builtin_schema;
use crate::store::Stored;
use crate::verbs::call::Call;

pub use duration::age;

/// One column beside the name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: String,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub(crate) kind: String,
    pub(crate) format: String,
    pub(crate) description: String,
    /// Above 0: only with `-o wide`.
    pub(crate) priority: i64,
    pub(crate) path: String,
}

impl Column {
    /// The column that every type has when it declares none.
    pub(crate) fn age() -> Self {
        Self {
            name: "Age".to_owned(),
            kind: "date".to_owned(),
            format: String::new(),
            description: builtin_schema::metadata_description("creationTimestamp"),
            priority: 0,
            path: ".metadata.creationTimestamp".to_owned(),
        }
    }
}

fn name_column() -> Value {
    json!({
        "name": "Name", "type": "string", "format": "name", "priority": 0,
        "description": builtin_schema::metadata_description("name"),
    })
}

/// The table of some objects; a watch sends the columns only once.
pub(crate) fn render(
    call: &Call,
    metadata: &Value,
    objects: &[Arc<Stored>],
    with_columns: bool,
) -> Value {
    let columns = &call.version().columns;
    let printer = builtin::printer(&call.def);
    let definitions = if !with_columns {
        Vec::new()
    } else if let Some(printer) = printer {
        std::iter::once(name_column()).chain(printer.columns.iter().map(|(name, priority)| {
            json!({"name": name, "type": "string", "format": "", "description": "", "priority": priority})
        })).collect()
    } else {
        let age = [Column::age()];
        let columns: &[Column] = if columns.is_empty() { &age } else { columns };
        std::iter::once(name_column())
            .chain(columns.iter().map(definition))
            .collect()
    };
    let now = Timestamp::now();
    let include = call.query.get("includeObject").unwrap_or("Metadata");
    let rows: Vec<Value> = objects
        .iter()
        .map(|stored| {
            let object = stored.value();
            let mut cells = vec![json!(stored.key.name)];
            match printer {
                Some(printer) => cells.extend((printer.cells)(&object, now)),
                None if columns.is_empty() => cells.push(cell(&Column::age(), &object, now)),
                None => cells.extend(columns.iter().map(|c| cell(c, &object, now))),
            }
            match include {
                "None" => json!({"cells": cells}),
                "Object" => json!({"cells": cells, "object": object}),
                _ => json!({"cells": cells, "object": {
                    "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
                    "metadata": object["metadata"],
                }}),
            }
        })
        .collect();
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        "columnDefinitions": with_columns.then_some(definitions), "rows": rows,
    })
}

fn definition(column: &Column) -> Value {
    json!({
        "name": column.name, "type": column.kind, "format": column.format,
        "description": column.description, "priority": column.priority,
    })
}

/// The value of a custom type's column in a row.
fn cell(column: &Column, object: &Value, now: Timestamp) -> Value {
    let Some(found) = jsonpath::first(&column.path, object) else {
        return Value::Null;
    };
    match column.kind.as_str() {
        "date" => match found.as_str().and_then(|t| t.parse::<Timestamp>().ok()) {
            Some(time) => json!(age(time, now)),
            None => json!("<invalid>"),
        },
        "integer" => found.as_i64().map_or(Value::Null, |n| json!(n)),
        "number" | "boolean" => found.clone(),
        _ => match found {
            Value::String(_) => found.clone(),
            other => json!(other.to_string()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_follow_their_columns_type() {
        let now: Timestamp = "2026-01-02T00:00:00Z".parse().unwrap();
        let object = json!({"a": {"n": 3, "b": true, "t": "2026-01-01T00:00:00Z", "l": ["x"]}});
        let column = |kind: &str, path: &str| Column {
            kind: kind.to_owned(),
            path: path.to_owned(),
            ..Column::age()
        };
        let cases = [
            ("integer", ".a.n", json!(3)),
            ("integer", ".a.b", json!(null)),
            ("boolean", ".a.b", json!(true)),
            ("string", ".a.n", json!("3")),
            ("string", ".a.l", json!("[\"x\"]")),
            ("date", ".a.t", json!("24h")),
            ("date", ".a.n", json!("<invalid>")),
            ("string", ".a.missing", json!(null)),
        ];
        for (kind, path, want) in cases {
            assert_eq!(
                cell(&column(kind, path), &object, now),
                want,
                "{kind} {path}"
            );
        }
    }
}
