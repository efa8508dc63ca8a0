//! Merging the manifest conditions of an apply pass into those of the status.

use std::collections::HashMap;

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
    let known = Entries::of(old);
    new.into_iter()
        .map(|manifest| match known.find(&manifest.resource_meta) {
            None => manifest,
            Some(known) => ManifestCondition {
                resource_meta: manifest.resource_meta,
                status_feedback: known.status_feedback.clone(),
                conditions: merge_conditions(known.conditions.clone(), manifest.conditions),
            },
        })
        .collect()
}

/// The entries of a status, found by what they are for. A work may have thousands.
struct Entries<'a> {
    exact: HashMap<&'a ManifestResourceMeta, &'a ManifestCondition>,
    /// Wherever they are in the list; `None` if there are several for one object.
    by_object: HashMap<[&'a str; 6], Option<&'a ManifestCondition>>,
}

impl<'a> Entries<'a> {
    fn of(entries: &'a [ManifestCondition]) -> Self {
        let mut known = Self {
            exact: HashMap::with_capacity(entries.len()),
            by_object: HashMap::with_capacity(entries.len()),
        };
        for entry in entries {
            known.exact.entry(&entry.resource_meta).or_insert(entry);
            known
                .by_object
                .entry(object_of(&entry.resource_meta))
                .and_modify(|only| *only = None)
                .or_insert(Some(entry));
        }
        known
    }

    /// The entry of the same object: at the same position, or the only one of that object anywhere.
    fn find(&self, meta: &ManifestResourceMeta) -> Option<&'a ManifestCondition> {
        if let Some(same) = self.exact.get(meta) {
            return Some(same);
        }
        // An unparsable manifest has a position and no identity.
        if meta.name.is_empty() {
            return None;
        }
        self.by_object.get(&object_of(meta)).copied().flatten()
    }
}

fn object_of(meta: &ManifestResourceMeta) -> [&str; 6] {
    let ManifestResourceMeta {
        ordinal: _,
        group,
        version,
        kind,
        resource,
        name,
        namespace,
    } = meta;
    [group, version, kind, resource, name, namespace].map(String::as_str)
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

#[cfg(test)]
mod tests {
    use muster_api::work::{FeedbackValue, FieldValue};

    use super::*;

    /// Comparing each with each, with copies, would take hours here.
    #[test]
    fn thousands_of_entries_keep_what_they_said_when_one_is_put_before_them() {
        const ENTRIES: i32 = 50_000;
        let entry = |ordinal: i32, name: i32| ManifestCondition {
            resource_meta: ManifestResourceMeta {
                ordinal,
                kind: "ConfigMap".into(),
                name: name.to_string(),
                ..ManifestResourceMeta::default()
            },
            ..ManifestCondition::default()
        };
        let old: Vec<_> = (0..ENTRIES)
            .map(|n| {
                let mut known = entry(n, n);
                known.status_feedback.values.push(FeedbackValue {
                    name: "v".into(),
                    value: FieldValue::integer(i64::from(n)),
                });
                known
            })
            .collect();
        let new = (0..=ENTRIES).map(|n| entry(n, n - 1)).collect();
        let merged = merge_manifest_conditions(&old, new);
        let kept = |entry: &ManifestCondition| !entry.status_feedback.values.is_empty();
        assert!(!kept(&merged[0]));
        assert!(merged[1..].iter().all(kept));
    }
}
