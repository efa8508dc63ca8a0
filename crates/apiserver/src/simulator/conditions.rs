//! Conditions of workloads.

use serde_json::{Value, json};

use crate::object;

/// Sets a condition of a status. The transition time moves with the condition's status, the
/// update time (which Deployments have) with any change.
pub(super) fn set(status: &mut Value, kind: &str, value: &str, reason: &str, message: &str) {
    let conditions = &mut status["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let list = conditions.as_array_mut().expect("made a list above");
    let now = object::now();
    let Some(found) = list.iter_mut().find(|c| c["type"] == kind) else {
        list.push(json!({
            "type": kind, "status": value, "reason": reason, "message": message,
            "lastTransitionTime": now, "lastUpdateTime": now,
        }));
        return;
    };
    if found["status"] == value && found["reason"] == reason && found["message"] == message {
        return;
    }
    if found["status"] != value {
        found["lastTransitionTime"] = json!(now);
    }
    found["status"] = json!(value);
    found["reason"] = json!(reason);
    found["message"] = json!(message);
    found["lastUpdateTime"] = json!(now);
}

/// The reason of a condition, empty when it is not there.
pub(super) fn reason<'a>(status: &'a Value, kind: &str) -> &'a str {
    status["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|c| c["type"] == kind)
        .and_then(|c| c["reason"].as_str())
        .unwrap_or_default()
}

/// A number of a status, 0 when absent.
pub(super) fn number(status: &Value, field: &str) -> i32 {
    status[field]
        .as_i64()
        .and_then(|n| i32::try_from(n).ok())
        .unwrap_or_default()
}

/// Sets a number of a status; Go leaves out zeros.
pub(super) fn set_number(status: &mut Value, field: &str, number: i32) {
    let fields = object::as_object_mut(status);
    if number == 0 {
        fields.remove(field);
    } else {
        fields.insert(field.to_owned(), json!(number));
    }
}
