//! Merging the manifest conditions of an apply pass into those of the status.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use muster_api::work::{ManifestCondition, ManifestResourceMeta};

use super::set;

/// Merges what an apply pass found into what the status said before
/// (`ocm`: `pkg/work/helper.MergeManifestConditions`).
///
/// The result has the entries of `new`, in their order. An entry that was there before keeps its
/// feedback values and its other conditions; one that is gone vanishes.
pub fn merge_manifest_conditions(
    old: &[ManifestCondition],
    new: Vec<ManifestCondition>,
) -> Vec<ManifestCondition> {
    new.into_iter()
        .map(|manifest| match find(old, &manifest.resource_meta) {
            None => manifest,
            Some(known) => ManifestCondition {
                resource_meta: manifest.resource_meta,
                status_feedback: known.status_feedback.clone(),
                conditions: merge_conditions(known.conditions.clone(), manifest.conditions),
            },
        })
        .collect()
}

/// The entry of the same object: at the same position, or the only one of that object anywhere.
fn find<'a>(
    entries: &'a [ManifestCondition],
    meta: &ManifestResourceMeta,
) -> Option<&'a ManifestCondition> {
    if let Some(same) = entries.iter().find(|entry| entry.resource_meta == *meta) {
        return Some(same);
    }
    // An unparsable manifest has a position and no identity.
    if meta.name.is_empty() {
        return None;
    }
    let mut same = entries
        .iter()
        .filter(|entry| same_object(&entry.resource_meta, meta));
    same.next().filter(|_| same.next().is_none())
}

fn same_object(a: &ManifestResourceMeta, b: &ManifestResourceMeta) -> bool {
    let identity = |meta: &ManifestResourceMeta| ManifestResourceMeta {
        ordinal: 0,
        ..meta.clone()
    };
    identity(a) == identity(b)
}

/// A condition of another generation is replaced and goes to the end, so that its transition time
/// tells when this generation was applied.
fn merge_conditions(mut known: Vec<Condition>, new: Vec<Condition>) -> Vec<Condition> {
    for condition in new {
        known.retain(|old| {
            old.type_ != condition.type_ || old.observed_generation == condition.observed_generation
        });
        set(&mut known, condition);
    }
    known
}
