//! Taking over what the agent itself wrote by updates.
//!
//! The strategy `Update` leaves an entry (work-agent, Update) in `metadata.managedFields`, which for
//! the server is another owner than (work-agent, Apply). A field that an apply leaves out would stay
//! for as long as the other entry has it. So before it applies, an agent makes its former updates part
//! of what it has applied, as kubectl does when it changes from client-side to server-side apply.
//!
//! Owner references stay where they are: the agent goes on writing those by updates.

use muster_api::constants::DEFAULT_FIELD_MANAGER;
use serde_json::{Map, Value, json};

const OWNERS: &str = "f:ownerReferences";
const METADATA: &str = "f:metadata";

/// The managed fields of an object after the agent's updates have become part of what `manager` has
/// applied; `None` if there is nothing to take over.
pub fn take_over_updates(live: &Value, manager: &str) -> Option<Value> {
    let entries = live.pointer("/metadata/managedFields")?.as_array()?;
    let mut taken = entries.clone();
    let mut changed = false;
    let mut at = 0;
    while let Some(entry) = taken.get(at) {
        at += 1;
        let Some((moved, kept)) = updated(entry) else {
            continue;
        };
        let version = entry.get("apiVersion").cloned();
        let applied = taken.iter().position(|entry| is(entry, manager, "Apply"));
        match applied {
            Some(applied) => {
                // Of another version the fields have other names.
                if taken[applied].get("apiVersion") != version.as_ref() {
                    continue;
                }
                if let Some(Value::Object(fields)) = taken[applied].get_mut("fieldsV1") {
                    unite(fields, moved);
                }
            }
            None => {
                let mut entry = taken[at - 1].clone();
                entry["manager"] = manager.into();
                entry["operation"] = "Apply".into();
                entry["fieldsV1"] = Value::Object(moved);
                taken.push(entry);
            }
        }
        changed = true;
        if let Some(kept) = kept {
            taken[at - 1]["fieldsV1"] = kept;
        } else {
            at -= 1;
            taken.remove(at);
        }
    }
    changed.then_some(Value::Array(taken))
}

fn is(entry: &Value, manager: &str, operation: &str) -> bool {
    let text = |field| entry.get(field).and_then(Value::as_str).unwrap_or_default();
    text("manager") == manager && text("operation") == operation && text("subresource").is_empty()
}

/// The fields of an entry of the agent's updates that are to be taken over, and those that stay.
fn updated(entry: &Value) -> Option<(Map<String, Value>, Option<Value>)> {
    if !is(entry, DEFAULT_FIELD_MANAGER, "Update") {
        return None;
    }
    let mut fields = entry.get("fieldsV1")?.as_object()?.clone();
    let mut owners = None;
    if let Some(Value::Object(metadata)) = fields.get_mut(METADATA) {
        owners = metadata.remove(OWNERS);
        // What is left may be no more than the sign of the map itself.
        if metadata.keys().all(|key| key == ".") {
            fields.remove(METADATA);
        }
    }
    let kept = owners.map(|owners| json!({ METADATA: { OWNERS: owners } }));
    (!fields.is_empty()).then_some((fields, kept))
}

/// Adds fields to others. One with nothing below owns all there is.
fn unite(fields: &mut Map<String, Value>, more: Map<String, Value>) {
    for (key, more) in more {
        match (fields.get_mut(&key), more) {
            (Some(Value::Object(below)), Value::Object(more)) => {
                if below.is_empty() || more.is_empty() {
                    below.clear();
                } else {
                    unite(below, more);
                }
            }
            (_, more) => {
                fields.insert(key, more);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(manager: &str, operation: &str, fields: &Value) -> Value {
        json!({"manager": manager, "operation": operation, "apiVersion": "v1",
            "fieldsType": "FieldsV1", "fieldsV1": fields, "time": "2026-01-01T00:00:00Z"})
    }

    fn taken(entries: &[Value]) -> Option<Value> {
        take_over_updates(
            &json!({"metadata": {"managedFields": entries}}),
            "work-agent",
        )
    }

    fn owners() -> Value {
        json!({"f:metadata": {"f:ownerReferences": {".": {}, "k:{\"uid\":\"1\"}": {}}}})
    }

    #[test]
    fn updates_become_part_of_what_was_applied() {
        let mut update = owners();
        update["f:data"] = json!({".": {}, "f:k": {}, "f:old": {}});
        let kubectl = entry("kubectl", "Update", &json!({"f:data": {"f:x": {}}}));
        let fields = json!({"f:data": {".": {}, "f:k": {}, "f:old": {}}});
        assert_eq!(
            taken(&[entry("work-agent", "Update", &update), kubectl.clone()]),
            Some(json!([
                entry("work-agent", "Update", &owners()),
                kubectl,
                entry("work-agent", "Apply", &fields),
            ]))
        );
        let apply = json!({"f:data": {"f:k": {}, "f:new": {}}, "f:metadata": {"f:labels": {}}});
        let update = json!({"f:data": {".": {}, "f:k": {}, "f:old": {}}});
        assert_eq!(
            taken(&[
                entry("work-agent", "Apply", &apply),
                entry("work-agent", "Update", &update),
            ]),
            Some(json!([entry(
                "work-agent",
                "Apply",
                &json!({
                    "f:data": {".": {}, "f:k": {}, "f:new": {}, "f:old": {}},
                    "f:metadata": {"f:labels": {}},
                })
            )]))
        );
    }

    #[test]
    fn what_is_not_the_agents_or_stays_with_updates_is_left_alone() {
        let fields = json!({"f:data": {"f:k": {}}});
        let mut status = entry("work-agent", "Update", &fields);
        status["subresource"] = "status".into();
        let mut other_version = entry("work-agent", "Update", &fields);
        other_version["apiVersion"] = "v1beta1".into();
        for entries in [
            vec![],
            vec![entry("kubectl", "Update", &fields)],
            vec![entry("work-agent-2", "Update", &fields)],
            vec![entry("work-agent", "Apply", &fields)],
            vec![entry("work-agent", "Update", &owners())],
            vec![status],
            vec![entry("work-agent", "Apply", &fields), other_version],
        ] {
            assert_eq!(taken(&entries), None, "{entries:?}");
        }
        assert_eq!(take_over_updates(&json!({}), "work-agent"), None);
    }

    #[test]
    fn another_manager_of_the_agent_takes_over_too() {
        let live = json!({"metadata": {"managedFields": [
            entry("work-agent", "Update", &json!({"f:data": {"f:k": {}}})),
        ]}});
        let taken = take_over_updates(&live, "work-agent-2").unwrap();
        let expected = entry("work-agent-2", "Apply", &json!({"f:data": {"f:k": {}}}));
        assert_eq!(taken, json!([expected]));
    }
}
