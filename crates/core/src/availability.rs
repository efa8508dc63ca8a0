//! Is the object of a manifest there: the manifest's `Available` condition.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use muster_api::constants::{
    FETCHING_RESOURCE_FAILED, INCOMPLETE_RESOURCE_META, MANIFEST_AVAILABLE, RESOURCE_AVAILABLE,
    RESOURCE_NOT_AVAILABLE,
};
use muster_api::work::ManifestResourceMeta;

use crate::conditions::{self, Status};

/// What came of looking for an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sighting<'a> {
    /// It is there.
    Found,
    /// The server says that it does not exist.
    NotFound,
    /// It could not be read; the error's text.
    Failed(&'a str),
    /// Nobody looked, since the manifest names no object that could be looked for.
    Unidentified,
}

/// Whether the entry of a manifest says enough to look for its object. It does not for a manifest
/// that could not be parsed, or whose kind the server does not know.
pub fn is_identified(meta: &ManifestResourceMeta) -> bool {
    !(meta.resource.is_empty() || meta.version.is_empty() || meta.name.is_empty())
}

/// The manifest's `Available` condition. It carries no generation, as upstream.
pub fn available_of_manifest(sighting: Sighting<'_>, now: Timestamp) -> Condition {
    let (status, reason, message) = match sighting {
        Sighting::Found => (
            Status::True,
            RESOURCE_AVAILABLE,
            "Resource is available".into(),
        ),
        Sighting::NotFound => (
            Status::False,
            RESOURCE_NOT_AVAILABLE,
            "Resource is not available".into(),
        ),
        Sighting::Failed(error) => (
            Status::Unknown,
            FETCHING_RESOURCE_FAILED,
            format!("Failed to fetch resource: {error}"),
        ),
        Sighting::Unidentified => (
            Status::Unknown,
            INCOMPLETE_RESOURCE_META,
            "Resource meta is incomplete".into(),
        ),
    };
    conditions::new(MANIFEST_AVAILABLE, status, reason, message, None, now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sighting_has_its_condition() {
        for (sighting, expected) in [
            (
                Sighting::Found,
                ("True", "ResourceAvailable", "Resource is available"),
            ),
            (
                Sighting::NotFound,
                ("False", "ResourceNotAvailable", "Resource is not available"),
            ),
            (
                Sighting::Failed("forbidden"),
                (
                    "Unknown",
                    "FetchingResourceFailed",
                    "Failed to fetch resource: forbidden",
                ),
            ),
            (
                Sighting::Unidentified,
                (
                    "Unknown",
                    "IncompleteResourceMeta",
                    "Resource meta is incomplete",
                ),
            ),
        ] {
            let condition = available_of_manifest(sighting, Timestamp::UNIX_EPOCH);
            let text = (&*condition.status, &*condition.reason, &*condition.message);
            assert_eq!((text, condition.observed_generation), (expected, None));
            assert_eq!(condition.type_, "Available");
        }
    }

    #[test]
    fn an_unknown_kind_is_not_looked_for() {
        let known = ManifestResourceMeta {
            version: "v1".into(),
            resource: "configmaps".into(),
            name: "a".into(),
            ..Default::default()
        };
        assert!(is_identified(&known));
        assert!(!is_identified(&ManifestResourceMeta {
            resource: String::new(),
            ..known
        }));
    }
}
