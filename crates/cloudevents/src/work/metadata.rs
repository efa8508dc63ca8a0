//! The metadata of a work as text, in the order in which Go writes it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use serde::Serialize;

use super::CodecError;
use crate::event::extension::METADATA;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Ordered<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    generate_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_version: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    generation: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    creation_timestamp: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deletion_timestamp: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deletion_grace_period_seconds: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    labels: Option<&'a BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<&'a str, &'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner_references: Option<&'a [OwnerReference]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    finalizers: Option<&'a [String]>,
}

/// A time in whole seconds, as Kubernetes keeps it.
pub(super) fn time(time: Timestamp) -> Time {
    Time(Timestamp::from_second(time.as_second()).unwrap_or(time))
}

/// Longest metadata in an event: over MQTT they are one string, and that is the longest there is.
pub const MOST_METADATA_BYTES: usize = 65_535;

/// Longest metadata of what is to go, or is gone. Where they are longer only names travel, so that
/// it can be said whatever somebody has put into labels and annotations.
pub(super) const MOST_LAST_BYTES: usize = 4 * 1024;

/// kubectl's copy of what it has applied: as long as the manifests, and of use to kubectl alone, on
/// the source.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Metadata that have to go as they are.
///
/// # Errors
///
/// They are too long; the error names the longest annotation or label.
pub(super) fn encode(meta: &ObjectMeta) -> Result<String, CodecError> {
    let text = written(&ordered(meta))?;
    if text.len() <= MOST_METADATA_BYTES {
        return Ok(text);
    }
    let annotations = travelling(meta).map(|(name, value)| (name, value.len()));
    let labels = meta.labels.iter().flatten();
    let labels = labels.map(|(name, value)| (name.as_str(), value.len()));
    let longest = annotations
        .chain(labels)
        .max_by_key(|(_, bytes)| *bytes)
        .map(|(name, bytes)| format!("; {name} has {bytes}"));
    Err(CodecError::Metadata {
        bytes: text.len(),
        longest: longest.unwrap_or_default(),
    })
}

/// As [`encode`]; what is longer than this goes without annotations, and then without labels, owners
/// and finalizers.
pub(super) fn encode_within(meta: &ObjectMeta, most: usize) -> Result<String, CodecError> {
    let mut ordered = ordered(meta);
    let text = written(&ordered)?;
    if text.len() <= most {
        return Ok(text);
    }
    ordered.annotations.clear();
    let text = written(&ordered)?;
    if text.len() <= most {
        return Ok(text);
    }
    ordered.labels = None;
    ordered.owner_references = None;
    ordered.finalizers = None;
    written(&ordered)
}

fn written(ordered: &Ordered<'_>) -> Result<String, CodecError> {
    serde_json::to_string(ordered).map_err(|error| CodecError::malformed(METADATA, error))
}

fn travelling(meta: &ObjectMeta) -> impl Iterator<Item = (&str, &str)> {
    let annotations = meta.annotations.iter().flatten();
    annotations
        .filter(|(name, _)| *name != LAST_APPLIED)
        .map(|(name, value)| (name.as_str(), value.as_str()))
}

/// Who manages which field stays behind: it is long, and nobody asks for it.
fn ordered(meta: &ObjectMeta) -> Ordered<'_> {
    let whole = |at: &Option<Time>| at.as_ref().map(|at| time(at.0));
    Ordered {
        name: text(meta.name.as_ref()),
        generate_name: text(meta.generate_name.as_ref()),
        namespace: text(meta.namespace.as_ref()),
        uid: text(meta.uid.as_ref()),
        resource_version: text(meta.resource_version.as_ref()),
        generation: meta.generation.filter(|generation| *generation != 0),
        creation_timestamp: whole(&meta.creation_timestamp),
        deletion_timestamp: whole(&meta.deletion_timestamp),
        deletion_grace_period_seconds: meta.deletion_grace_period_seconds,
        labels: map(meta.labels.as_ref()),
        annotations: travelling(meta).collect(),
        owner_references: meta.owner_references.as_deref().filter(|it| !it.is_empty()),
        finalizers: meta.finalizers.as_deref().filter(|it| !it.is_empty()),
    }
}

fn text(text: Option<&String>) -> Option<&str> {
    text.map(String::as_str).filter(|text| !text.is_empty())
}

fn map(map: Option<&BTreeMap<String, String>>) -> Option<&BTreeMap<String, String>> {
    map.filter(|map| !map.is_empty())
}

pub(super) fn decode(text: &str) -> Result<ObjectMeta, CodecError> {
    serde_json::from_str(text).map_err(|error| CodecError::malformed(METADATA, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(annotations: &[(&str, usize)]) -> ObjectMeta {
        let annotations = annotations.iter();
        ObjectMeta {
            name: Some("a".to_owned()),
            labels: Some([("l".to_owned(), "v".to_owned())].into()),
            annotations: Some(
                annotations
                    .map(|(name, bytes)| ((*name).to_owned(), "x".repeat(*bytes)))
                    .collect(),
            ),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn what_kubectl_has_applied_stays_behind() {
        let meta = meta(&[(LAST_APPLIED, 180_637), ("mine", 1)]);
        let text = r#"{"name":"a","labels":{"l":"v"},"annotations":{"mine":"x"}}"#;
        assert_eq!(encode(&meta).unwrap(), text);
        let alone = self::meta(&[(LAST_APPLIED, 1)]);
        assert_eq!(
            encode(&alone).unwrap(),
            r#"{"name":"a","labels":{"l":"v"}}"#
        );
    }

    #[test]
    fn metadata_that_are_no_string_of_mqtt_are_told() {
        let rest = encode(&meta(&[("mine", 0)])).unwrap().len();
        let fits = meta(&[("mine", MOST_METADATA_BYTES - rest)]);
        assert_eq!(encode(&fits).unwrap().len(), MOST_METADATA_BYTES);
        let error = encode(&meta(&[("mine", 60_000), ("yours", 9_000)])).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the metadata have 69068 bytes, and an event takes 65535; mine has 60000"
        );
    }

    #[test]
    fn what_is_to_go_can_always_be_said() {
        let text = |meta: &ObjectMeta| encode_within(meta, MOST_LAST_BYTES).unwrap();
        assert!(text(&meta(&[("mine", 1)])).contains("mine"));
        let long = meta(&[("mine", 250_000)]);
        assert_eq!(text(&long), r#"{"name":"a","labels":{"l":"v"}}"#);
        let mut longer = long;
        let labels = (0..200).map(|number| (format!("l{number}"), "v".repeat(63)));
        longer.labels = Some(labels.collect());
        longer.finalizers = Some(vec!["f".repeat(5_000)]);
        assert_eq!(text(&longer), r#"{"name":"a"}"#);
    }
}
