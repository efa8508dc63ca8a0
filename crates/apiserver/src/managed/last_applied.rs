//! The bridge from kubectl's client-side apply, which leaves what it applied in an annotation.

use serde_json::Value;

use super::compare::Comparison;
use super::conflict::Conflict;
use super::fields::fields_of;
use super::shape::Place;

/// The manager that kubectl applies as; only for it there is a bridge.
pub(super) const KUBECTL: &str = "kubectl";

/// Where client-side apply keeps what it has applied last.
const LAST_APPLIED: &str =
    "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration";

/// The conflicts with fields that the last client-side apply did not set to what they are.
pub(super) fn not_its_own(
    place: Place<'_>,
    live: &Value,
    api_version: &str,
    conflicts: Vec<Conflict>,
) -> Vec<Conflict> {
    let last: Option<Value> = live
        .pointer(LAST_APPLIED)
        .and_then(Value::as_str)
        .and_then(|text| serde_json::from_str(text).ok());
    let Some(last) = last.filter(|l| l["apiVersion"] == api_version) else {
        return conflicts;
    };
    let change = Comparison::of(place, &last, live);
    let own = fields_of(place, &last)
        .difference(&change.set())
        .difference(&change.removed);
    conflicts
        .into_iter()
        .filter(|c| !own.has(&c.path))
        .collect()
}

/// Keeps the annotation up to date where there is one, for clients that go on with it.
pub(super) fn renew(object: &mut Value, applied: &Value) {
    let mut applied = applied.clone();
    if let Some(annotations) = applied
        .pointer_mut("/metadata/annotations")
        .and_then(Value::as_object_mut)
    {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
    if let Some(annotation) = object.pointer_mut(LAST_APPLIED)
        && annotation.as_str().is_some_and(|text| !text.is_empty())
    {
        // As Go's encoder: with a line feed behind it.
        *annotation = Value::String(format!("{applied}\n"));
    }
}
