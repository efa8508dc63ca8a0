//! `names.json`, as far as the agent is concerned.

use muster_api::work::{
    AppliedManifestResourceMeta, DeleteOption, ManifestConfigOption, ServerSideApplyConfig,
    UpdateStrategyType,
};
use muster_core::applied_work::{
    MAX_WORK_NAME_BYTES, applied_work_name, belongs_to_hub, hub_hash, work_name,
};
use muster_core::apply::server_side::{IgnoreFields, Ignored};
use muster_core::apply::{
    Desired, History, UpdatePlan, apply_order, kind_rank, plan_update, strip_creation_timestamps,
};
use muster_core::manifest::ParsedManifest;
use muster_core::manifest_config::{EffectiveConfig, ManifestConfigs, wildcard_match};
use muster_core::ownership::{ObjectId, Owner, OwnerChange, owned_by_the_work, untracked};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{check_all, expect_same, load, section, text};

const DATA: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/golden/names.json"
));

fn check(name: &str, least: usize, check: impl Fn(&Value) -> Result<(), String>) {
    check_all(section(&load(DATA), name), least, check);
}

fn read<T: DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap()
}

fn object(record: &Value) -> ObjectId<'_> {
    ObjectId {
        group: text(record, "group"),
        resource: text(record, "resource"),
        namespace: text(record, "namespace"),
        name: text(record, "name"),
    }
}

#[test]
fn hubs_are_hashed() {
    check("hubHash", 17, |r| {
        expect_same(&text(r, "hash"), &&*hub_hash(text(r, "url")))
    });
}

#[test]
fn applied_works_are_named_after_hub_and_work() {
    check("appliedManifestWorkName", 24, |record| {
        let (hash, work) = (hub_hash(text(record, "url")), text(record, "work"));
        let name = applied_work_name(&hash, work);
        let read_back = work_name(&hash, &name);
        let valid = work.len() <= MAX_WORK_NAME_BYTES;
        let ours = json!([name, name.len(), valid, read_back]);
        let keys = ["name", "length", "validName", "workFromName"];
        expect_same(
            &keys.map(|key| record[key].clone()).into_iter().collect(),
            &ours,
        )
    });
}

#[test]
fn applied_works_of_other_hubs_are_told_apart() {
    check("appliedManifestWorkFilter", 10, |record| {
        let (hash, name) = (text(record, "hubHash"), text(record, "name"));
        let keys: Value = work_name(hash, name).into_iter().collect();
        let ours = (json!(belongs_to_hub(hash, name)), keys);
        expect_same(
            &(record["belongs"].clone(), record["workKeys"].clone()),
            &ours,
        )
    });
}

#[test]
fn owner_references_are_written_like_the_reference_writes_them() {
    check("ownerReference", 2, |record| {
        let owner = Owner {
            name: text(record, "name").into(),
            uid: text(record, "uid").into(),
        };
        let change = OwnerChange::new(owner, record["owned"] == true);
        expect_same(&record["ownerReference"], &json!(change.reference()))
    });
}

#[test]
fn kinds_have_their_ranks() {
    check("kindRank", 46, |r| {
        expect_same(&r["rank"], &json!(kind_rank(text(r, "kind"))))
    });
}

#[test]
fn manifests_are_applied_in_the_order_of_the_reference() {
    check("applyOrder", 12, |record| {
        let parsed: Vec<_> = section(record, "manifests")
            .iter()
            .enumerate()
            .map(|(ordinal, json)| ParsedManifest::parse(ordinal, json.as_str().unwrap()))
            .collect();
        let order = apply_order(&parsed);
        expect_same(&record["order"], &json!(order))?;
        // Errors are listed in the order of application.
        let errors: Vec<Option<String>> = order
            .iter()
            .map(|&at| parsed[at].as_ref().err().map(ToString::to_string))
            .collect();
        match record.get("errors") {
            Some(expected) => expect_same(expected, &json!(errors)),
            None => expect_same(&vec![None; errors.len()], &errors),
        }
    });
}

#[test]
fn orphaning_rules_match_exactly() {
    check("orphaning", 95, |record| {
        let option: Option<DeleteOption> = read(&record["deleteOption"]);
        let owned = owned_by_the_work(option.as_ref(), object(record));
        expect_same(&record["owned"], &json!(owned))
    });
}

#[test]
fn patterns_match_like_those_of_the_reference() {
    check("wildcard", 157, |record| {
        let matches = wildcard_match(text(record, "pattern"), text(record, "text"));
        expect_same(&record["match"], &json!(matches)).map_err(|error| format!("{record}: {error}"))
    });
}

#[test]
fn options_are_put_together_from_the_entries_that_match() {
    check("manifestConfig", 75, |record| {
        let configs: Vec<ManifestConfigOption> = read(&record["configs"]);
        let found = ManifestConfigs::new(&configs).find(object(record)).unwrap();
        let ours = json!({
            "feedback": found.feedback_rules.first().map(|rule| &rule.json_paths[0].name),
            "condition": found.condition_rules.first().map(|rule| &rule.condition),
            "strategy": found.update_strategy.map(|strategy| &strategy.type_),
            "watch": *found.scrape == muster_api::work::FeedbackScrapeType::Watch,
        });
        let expected = |key| record["result"].get(key).cloned().unwrap_or_default();
        // Where the reference ignores a wish to watch, we do not.
        let watch = expected("scrape") == "Watch" || record.get("departs").is_some();
        let expected = json!({
            "feedback": expected("feedback"),
            "condition": expected("condition"),
            "strategy": expected("strategy"),
            "watch": watch,
        });
        expect_same(&expected, &ours)
    });
    assert_eq!(
        EffectiveConfig::NONE.strategy(),
        &UpdateStrategyType::Update
    );
}

#[test]
fn specs_of_services_have_the_hash_of_the_reference() {
    check("serviceSpecHash", 5, |record| {
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"},
            "spec": record["spec"],
        });
        let manifest = ParsedManifest::parse(0, &service.to_string()).unwrap();
        let desired = Desired::new(manifest, true).unwrap();
        let owner = Owner {
            name: "a".into(),
            uid: "1".into(),
        };
        let plan = plan_update(&desired, None, &OwnerChange::Own(owner), History::Unapplied);
        let UpdatePlan::Create(created) = plan else {
            return Err(format!("expected a creation, got {plan:?}"));
        };
        let annotation = text(record, "annotation");
        expect_same(
            &record["hash"],
            &created["metadata"]["annotations"][annotation],
        )
    });
}

#[test]
fn what_left_the_work_is_found() {
    check("untracked", 8, |record| {
        let list = |name: &str| -> Vec<AppliedManifestResourceMeta> { read(&record[name]) };
        expect_same(
            &list("untracked"),
            &untracked(&list("recorded"), &list("current")),
        )
    });
}

#[test]
fn ignored_fields_are_removed_and_the_rest_is_hashed() {
    let data = load(DATA);
    let objects = &data["hashObjects"];
    check("configSpecHash", 28, |record| {
        let config: ServerSideApplyConfig =
            read(&json!({ "ignoreFields": record["ignoreFields"] }));
        let manifest = &objects[text(record, "object")];
        let outcome = IgnoreFields::compile(&config).and_then(|ignore| {
            let mut remaining = manifest.clone();
            ignore.remove(&mut remaining, Ignored::Always)?;
            strip_creation_timestamps(&mut remaining);
            Ok((remaining, ignore.spec_hash(manifest)?))
        });
        match (outcome, record.get("error").and_then(Value::as_str)) {
            (Ok((remaining, hash)), None) => {
                expect_same(&record["remaining"], &remaining)?;
                expect_same(&text(record, "hash"), &&*hash)
            }
            // What follows the first colon is the words of the jq library.
            (Err(error), Some(expected)) => {
                let ours = error.to_string();
                let start = expected.split("': ").next().unwrap_or_default();
                expect_same(&true, &ours.starts_with(start))
            }
            (ours, expected) => Err(format!("expected {expected:?}, got {ours:?}")),
        }
    });
}
