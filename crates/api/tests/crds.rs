//! The definitions under `deploy/crds` are those of the code.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::{Path, PathBuf};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use muster_api::replicaset::{AggregatedValue, ManifestWorkReplicaSet};
use muster_api::rules::{ClusterWatchRule, WatchRule, WatchRuleStatus};
use muster_api::{constants as names, crds};
use serde_json::{Value, json};

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds")
}

/// `UPDATE_CRDS=1 cargo test -p muster-api` writes the files anew.
#[test]
fn files_hold_the_definitions_of_the_code() {
    let update = std::env::var_os("UPDATE_CRDS").is_some();
    let mut expected = Vec::new();
    for crd in crds::all() {
        let name = format!("{}.yaml", crd.metadata.name.as_deref().unwrap());
        let yaml = crds::to_yaml(&crd).unwrap();
        let path = directory().join(&name);
        if update {
            fs::create_dir_all(directory()).unwrap();
            fs::write(&path, &yaml).unwrap();
        }
        let found = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            found == yaml,
            "{name} differs; write it anew with UPDATE_CRDS=1 cargo test -p muster-api"
        );
        expected.push(name);
    }
    let mut files: Vec<_> = fs::read_dir(directory())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    expected.sort();
    assert_eq!(files, expected);
}

/// What a structural schema demands, and what no definition of ours should lack.
fn check(path: &str, schema: &Value) {
    let keys = schema.as_object().unwrap();
    for forbidden in [
        "$ref",
        "$defs",
        "title",
        "x-default",
        "allOf",
        "oneOf",
        "not",
    ] {
        assert!(!keys.contains_key(forbidden), "{path}: {forbidden}");
    }
    let int_or_string = schema["x-kubernetes-int-or-string"] == true;
    assert!(
        schema["type"].is_string() != int_or_string,
        "{path}: one type, or x-kubernetes-int-or-string"
    );
    if schema["x-kubernetes-list-type"] == "map" {
        let item = &schema["items"];
        for key in schema["x-kubernetes-list-map-keys"].as_array().unwrap() {
            let required = item["required"].as_array().unwrap().contains(key);
            assert!(required, "{path}: list key {key} is not required");
        }
    }
    if let Some(properties) = keys.get("properties") {
        for name in schema["required"].as_array().into_iter().flatten() {
            assert!(
                properties.get(name.as_str().unwrap()).is_some(),
                "{path}: required {name}"
            );
        }
        for (name, property) in properties.as_object().unwrap() {
            let path = format!("{path}.{name}");
            assert!(
                property["description"].is_string(),
                "{path}: no description"
            );
            check(&path, property);
        }
    }
    for inner in ["items", "additionalProperties"] {
        if let Some(schema) = keys.get(inner) {
            check(&format!("{path}.{inner}"), schema);
        }
    }
}

#[test]
fn schemas_are_structural_and_described() {
    for crd in crds::all() {
        for version in &crd.spec.versions {
            let schema = version
                .schema
                .as_ref()
                .unwrap()
                .open_api_v3_schema
                .as_ref()
                .unwrap();
            check(&crd.spec.names.kind, &serde_json::to_value(schema).unwrap());
            let subresources = version.subresources.as_ref().unwrap();
            assert!(subresources.status.is_some(), "{}", crd.spec.names.kind);
        }
    }
}

#[test]
fn hub_and_spoke_share_nothing_and_leave_nothing_out() {
    let parts = [crds::hub(), crds::spoke(), crds::rules()];
    assert_eq!(parts.concat().len(), crds::all().len());
    assert_eq!(crds::spoke()[0].spec.names.kind, "AppliedManifestWork");
    let kinds = |crds: Vec<CustomResourceDefinition>| -> Vec<String> {
        crds.into_iter().map(|crd| crd.spec.names.kind).collect()
    };
    assert_eq!(kinds(crds::rules()), ["WatchRule", "ClusterWatchRule"]);
    for kind in kinds([crds::hub(), crds::spoke()].concat()) {
        assert!(!kind.ends_with("WatchRule"), "{kind}");
    }
}

#[test]
fn watch_rules_show_what_people_look_for() {
    for (crd, short, scope) in [
        (crds::definition::<WatchRule>(), "wr", "Namespaced"),
        (crds::definition::<ClusterWatchRule>(), "cwr", "Cluster"),
    ] {
        assert_eq!(crd.spec.group, names::RULES_GROUP_NAME);
        assert_eq!(crd.spec.scope, scope);
        assert_eq!(crd.spec.names.short_names.unwrap(), [short]);
        let columns = crd.spec.versions[0].additional_printer_columns.as_ref();
        let columns: Vec<&str> = columns
            .unwrap()
            .iter()
            .map(|column| column.name.as_str())
            .collect();
        assert_eq!(
            columns,
            ["Destination", "Ready", "Reason", "Types", "Events", "Age"]
        );
    }
}

/// What an item of either kind demands; a test of `muster-core` evaluates the rule on slashes.
#[test]
fn items_of_watch_rules_are_bounded_and_name_resources() {
    let items = |crd: CustomResourceDefinition| {
        let crd = serde_json::to_value(crd).unwrap();
        let schema = crd.pointer("/spec/versions/0/schema/openAPIV3Schema");
        assert_eq!(schema.unwrap()["required"], json!(["spec"]));
        schema.unwrap()["properties"]["spec"].clone()
    };
    for (spec, required) in [
        (items(crds::definition::<WatchRule>()), json!(["resources"])),
        (
            items(crds::definition::<ClusterWatchRule>()),
            json!(["resources", "scope"]),
        ),
    ] {
        assert_eq!(spec["required"], json!(["destination", "rules"]));
        assert_eq!(spec["properties"]["destination"]["minLength"], 1);
        let rules = &spec["properties"]["rules"];
        assert_eq!(rules["minItems"], 1);
        assert_eq!(rules["items"]["required"], required);
        let resources = &rules["items"]["properties"]["resources"];
        assert_eq!(resources["minItems"], 1);
        let name = &resources["items"];
        assert_eq!(name["minLength"], 1);
        let message = name["x-kubernetes-validations"][0]["message"].as_str();
        assert!(message.unwrap().contains("no subresources"), "{name}");
        // Without bounds a real API server finds the rule too costly and refuses the definition.
        for bounded in [rules, resources] {
            assert!(bounded["maxItems"].is_u64(), "{bounded}");
        }
        assert!(name["maxLength"].is_u64(), "{name}");
    }
}

#[test]
fn unresolved_resources_are_bounded() {
    let crd = serde_json::to_value(crds::definition::<WatchRule>()).unwrap();
    let bound = crd.pointer(
        "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/unresolved/maxItems",
    );
    assert_eq!(bound, Some(&Value::from(WatchRuleStatus::MAX_UNRESOLVED)));
}

#[test]
fn yaml_reads_back_as_the_same_definitions() {
    let yaml = crds::to_yaml_stream(&crds::all()).unwrap();
    let read: Vec<CustomResourceDefinition> = serde_saphyr::from_multiple(&yaml).unwrap();
    assert_eq!(read, crds::all());
}

#[test]
fn replica_set_columns_are_upstreams_and_then_ours() {
    let crd = crds::definition::<ManifestWorkReplicaSet>();
    let columns = crd.spec.versions[0]
        .additional_printer_columns
        .as_ref()
        .unwrap();
    let by_priority = |priority: i32| -> Vec<&str> {
        columns
            .iter()
            .filter(|column| column.priority.unwrap_or(0) == priority)
            .map(|column| column.name.as_str())
            .collect()
    };
    assert_eq!(
        by_priority(0),
        [
            "Placement",
            "Found",
            "ManifestWorks",
            "Applied",
            "Status",
            "Ready"
        ]
    );
    assert_eq!(
        by_priority(1),
        ["Total", "Available", "Progressing", "Degraded", "Age"]
    );
    assert_eq!(crd.spec.names.short_names.unwrap(), ["mwrs"]);
}

/// The bound in the schema is the one that writers of the status use.
#[test]
fn feedback_counts_are_bounded() {
    let crd = serde_json::to_value(crds::definition::<ManifestWorkReplicaSet>()).unwrap();
    let bound = crd.pointer("/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/feedback/items/properties/values/items/properties/counts/maxItems");
    assert_eq!(bound, Some(&Value::from(AggregatedValue::MAX_COUNTS)));
}
