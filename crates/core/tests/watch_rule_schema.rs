//! What API servers say to rules that name what a watch cannot show.

#![allow(
    clippy::unwrap_used,
    reason = "all of this is test code; the exemption in clippy.toml covers test functions only"
)]

use kube_cel::{ValidationErrors, Validator, compile_schema};
use muster_api::crds;
use serde_json::{Value, json};

/// The messages of the rules in the schema of both kinds for an item with these resources.
fn refusals(resources: &Value) -> Vec<Vec<String>> {
    crds::rules()
        .into_iter()
        .map(|crd| {
            let schema = crd.spec.versions[0].schema.as_ref().unwrap();
            let schema = serde_json::to_value(&schema.open_api_v3_schema).unwrap();
            let schema = compile_schema(&schema);
            assert!(schema.compilation_errors().is_empty());
            let item = json!({"scope": "Namespaced", "resources": resources});
            let rule = json!({"spec": {"destination": "git", "rules": [item]}});
            let checked = Validator::new().validate_compiled(&schema, &rule, None);
            let failed = checked.err().map(ValidationErrors::into_vec);
            let failed = failed.unwrap_or_default().into_iter();
            failed.map(|failure| failure.message).collect()
        })
        .collect()
}

#[test]
fn subresources_are_refused_with_a_reason() {
    let reason = "a watch shows no subresources; name the resource alone";
    for of_kind in refusals(&json!(["pods", "pods/log"])) {
        assert_eq!(of_kind, [reason]);
    }
    for of_kind in refusals(&json!(["pods", "*"])) {
        assert_eq!(of_kind, [""; 0]);
    }
}
