//! `conditions.json`, except the records of CEL: aggregating, pruning and merging conditions.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use muster_api::work::{
    FeedbackValue, FieldValue, ManifestCondition, ManifestResourceMeta, StatusFeedbackResult,
};
use muster_core::conditions::{
    aggregate, applied_of_work, merge_manifest_conditions, prune_rule_conditions,
};
use serde_json::{Value, json};

use crate::{check_all, expect_same, load, section};

const DATA: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/golden/conditions.json"
));

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn generation(record: &Value) -> i64 {
    record["generation"].as_i64().unwrap()
}

/// The conditions of a record, which come without time.
fn conditions(list: &Value) -> Vec<Condition> {
    let condition = |value: &Value| {
        let mut whole = json!({"reason": "", "message": "", "lastTransitionTime": NOW});
        whole
            .as_object_mut()
            .unwrap()
            .extend(value.as_object().unwrap().clone());
        serde_json::from_value(whole).unwrap()
    };
    list.as_array().unwrap().iter().map(condition).collect()
}

fn manifests(record: &Value) -> Vec<ManifestCondition> {
    let manifest = |list| ManifestCondition {
        conditions: conditions(list),
        ..Default::default()
    };
    section(record, "manifests").iter().map(manifest).collect()
}

#[test]
fn the_work_sums_up_its_manifests() {
    check_all(section(&load(DATA), "aggregate"), 74, |record| {
        let mut ours = aggregate(&manifests(record), generation(record), NOW);
        for condition in &mut ours {
            // Ours goes on after upstream's text.
            if let Some((upstreams, _)) = condition.message.split_once(", first: ") {
                condition.message = upstreams.to_owned();
            }
        }
        expect_same(&conditions(&record["conditions"]), &ours)
    });
}

#[test]
fn conditions_of_former_rules_are_pruned() {
    check_all(section(&load(DATA), "prune"), 7, |record| {
        let mut ours = conditions(&record["before"]);
        prune_rule_conditions(&mut ours, generation(record));
        let types: Value = ours
            .iter()
            .map(|condition| condition.type_.clone())
            .collect();
        expect_same(&record["typesAfter"], &types)
    });
}

#[test]
fn the_work_is_applied_once_no_manifest_failed() {
    check_all(section(&load(DATA), "applied"), 8, |record| {
        let ours = applied_of_work(&manifests(record), 1, NOW);
        let all_true = ours
            .as_ref()
            .is_some_and(|applied| applied.status == "True");
        let expected = (&record["allTrue"], &record["anyPresent"]);
        expect_same(&expected, &(&json!(all_true), &json!(ours.is_some())))
    });
}

#[test]
fn entries_of_the_same_object_keep_their_values() {
    check_all(section(&load(DATA), "mergeManifests"), 8, |record| {
        let list = |name| {
            section(record, name)
                .iter()
                .map(|e| entry(record, name, e))
                .collect()
        };
        let (old, new, merged): (Vec<_>, Vec<_>, Vec<_>) =
            (list("old"), list("new"), list("merged"));
        expect_same(&merged, &merge_manifest_conditions(&old, new))
    });
}

fn entry(record: &Value, side: &str, entry: &Value) -> ManifestCondition {
    let field = |name: &str| entry[name].as_str().unwrap().to_owned();
    let value = |value: &Value| FeedbackValue {
        name: value["name"].as_str().unwrap().into(),
        value: FieldValue::integer(value["integer"].as_i64().unwrap()),
    };
    // The records leave the version out; it differs between old and new in one of them.
    let version = if record["note"] == "version changed: no match" && side == "old" {
        "v1beta1"
    } else {
        "v1"
    };
    ManifestCondition {
        resource_meta: ManifestResourceMeta {
            ordinal: serde_json::from_value(entry["ordinal"].clone()).unwrap(),
            version: version.into(),
            resource: field("resource"),
            namespace: field("namespace"),
            name: field("name"),
            ..Default::default()
        },
        status_feedback: StatusFeedbackResult {
            values: section(entry, "values").iter().map(value).collect(),
        },
        conditions: conditions(&entry["conditions"]),
    }
}
