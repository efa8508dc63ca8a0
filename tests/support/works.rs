//! Works and their status, as JSON: what is on the wire counts.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

/// Part of a work's spec: what to apply.
pub(crate) fn manifests(manifests: impl Into<Vec<Value>>) -> Value {
    json!({"workload": {"manifests": manifests.into()}})
}

/// The condition of this type in a list of conditions.
pub(crate) fn condition<'a>(conditions: &'a Value, kind: &str) -> Option<&'a Value> {
    let mut conditions = conditions.as_array()?.iter();
    conditions.find(|condition| condition["type"] == kind)
}

/// The condition of the work as a whole.
pub(crate) fn work_condition<'a>(work: &'a Value, kind: &str) -> Result<&'a Value> {
    let conditions = &work["status"]["conditions"];
    condition(conditions, kind).with_context(|| format!("no {kind} in {conditions}"))
}

/// What the status tells of the manifest at this place of the spec.
pub(crate) fn manifest(work: &Value, ordinal: usize) -> &Value {
    &work["status"]["resourceStatus"]["manifests"][ordinal]
}

/// The condition of one manifest.
pub(crate) fn manifest_condition<'a>(
    work: &'a Value,
    ordinal: usize,
    kind: &str,
) -> Result<&'a Value> {
    let manifest = manifest(work, ordinal);
    condition(&manifest["conditions"], kind).with_context(|| format!("no {kind} in {manifest}"))
}

/// The feedback values of one manifest, as they are on the wire.
pub(crate) fn values(work: &Value, ordinal: usize) -> Value {
    let values = &manifest(work, ordinal)["statusFeedback"]["values"];
    values.as_array().cloned().unwrap_or_default().into()
}

/// A feedback value.
pub(crate) fn integer(name: &str, value: i64) -> Value {
    json!({"name": name, "fieldValue": {"type": "Integer", "integer": value}})
}

/// A feedback value.
pub(crate) fn string(name: &str, value: &str) -> Value {
    json!({"name": name, "fieldValue": {"type": "String", "string": value}})
}

/// A feedback value.
pub(crate) fn json_raw(name: &str, value: &str) -> Value {
    json!({"name": name, "fieldValue": {"type": "JsonRaw", "jsonRaw": value}})
}

/// Requires that each manifest has, for one condition type, the status that its letter stands
/// for: `T`rue, `F`alse, `U`nknown, or `-` for no such condition.
fn manifests_are(work: &Value, kind: &str, letters: &str) -> Result<()> {
    let all = work["status"]["resourceStatus"]["manifests"].as_array();
    let all = all.map(Vec::as_slice).unwrap_or_default();
    let letter = |manifest: &Value| match condition(&manifest["conditions"], kind) {
        None => '-',
        Some(condition) => match condition["status"].as_str() {
            Some("True") => 'T',
            Some("False") => 'F',
            _ => 'U',
        },
    };
    let seen: String = all.iter().map(letter).collect();
    ensure!(
        seen == letters,
        "{kind} is {seen} and not {letters}: {}",
        work["status"]
    );
    Ok(())
}

/// Requires the statuses that `letters` stand for of the manifests, and the one that follows from
/// them of the work, as of its newest spec. The work itself says nothing about feedback.
pub(crate) fn shows(work: &Value, kind: &str, letters: &str) -> Result<()> {
    manifests_are(work, kind, letters)?;
    if kind == "StatusFeedbackSynced" {
        return Ok(());
    }
    let expected = match letters {
        letters if letters.contains('F') => "False",
        letters if letters.contains('U') => "Unknown",
        letters if letters.contains('T') => "True",
        _ => {
            let conditions = &work["status"]["conditions"];
            ensure!(condition(conditions, kind).is_none(), "{conditions}");
            return Ok(());
        }
    };
    let condition = work_condition(work, kind)?;
    ensure!(
        condition["status"] == expected
            && condition["observedGeneration"] == work["metadata"]["generation"],
        "generation {}: {condition}",
        work["metadata"]["generation"]
    );
    Ok(())
}
