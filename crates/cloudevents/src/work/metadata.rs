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
    #[serde(skip_serializing_if = "Option::is_none")]
    annotations: Option<&'a BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner_references: Option<&'a [OwnerReference]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    finalizers: Option<&'a [String]>,
}

/// A time in whole seconds, as Kubernetes keeps it.
pub(super) fn time(time: Timestamp) -> Time {
    Time(Timestamp::from_second(time.as_second()).unwrap_or(time))
}

/// Who manages which field stays behind: it is long, and nobody asks for it.
pub(super) fn encode(meta: &ObjectMeta) -> Result<String, CodecError> {
    let whole = |at: &Option<Time>| at.as_ref().map(|at| time(at.0));
    let ordered = Ordered {
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
        annotations: map(meta.annotations.as_ref()),
        owner_references: meta.owner_references.as_deref().filter(|it| !it.is_empty()),
        finalizers: meta.finalizers.as_deref().filter(|it| !it.is_empty()),
    };
    serde_json::to_string(&ordered).map_err(|error| CodecError::malformed(METADATA, error))
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
