//! Tables for `kubectl get`.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::store::Stored;
use crate::verbs::call::Call;

/// One column.
#[derive(Clone, Debug)]
pub(crate) struct Column;

pub(crate) fn render(
    _call: &Call,
    metadata: &Value,
    objects: &[Arc<Stored>],
    _with_columns: bool,
) -> Value {
    let rows: Vec<Value> = objects
        .iter()
        .map(|o| json!({"cells": [o.key.name], "object": o.value()}))
        .collect();
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        "columnDefinitions": [{"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0}],
        "rows": rows,
    })
}
