use muster_api::work::ServerSideApplyConfig;
use serde_json::{Value, json};

use super::*;

const HASH: &str = "/metadata/annotations/open-cluster-management.io~1config-spec-hash";

fn config(value: Value) -> ServerSideApplyConfig {
    serde_json::from_value(value).unwrap()
}

fn intent_of(manifest: Value, config: &ServerSideApplyConfig) -> Intent {
    let parsed = ParsedManifest {
        ordinal: 0,
        object: manifest,
    };
    let ignore = IgnoreFields::compile(config).unwrap();
    Intent::new(parsed, true, config, Arc::new(ignore)).unwrap()
}

fn ignoring(manifest: Value, condition: &str) -> Intent {
    let config = config(json!({
        "ignoreFields": [{"condition": condition, "jsonPaths": [".spec.replicas"]}],
    }));
    intent_of(manifest, &config)
}

fn plain(manifest: Value) -> Intent {
    intent_of(manifest, &ServerSideApplyConfig::default())
}

fn manifest(replicas: i64) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "d", "namespace": "n"},
        "spec": {"replicas": replicas, "paused": false},
    })
}

/// The object after the server took `applied`, with `fields` of it owned.
#[allow(clippy::needless_pass_by_value, reason = "literals read better")]
fn taken(applied: &Value, spec_fields: Value) -> Value {
    let mut live = applied.clone();
    live["metadata"]["resourceVersion"] = "1".into();
    live["metadata"]["uid"] = "u".into();
    let mut fields = json!({ "f:spec": spec_fields });
    if applied.pointer(HASH).is_some() {
        fields["f:metadata"] = json!({"f:annotations": {
            ".": {}, "f:open-cluster-management.io/config-spec-hash": {},
        }});
    }
    live["metadata"]["managedFields"] = json!([{
        "manager": "work-agent", "operation": "Apply", "apiVersion": "apps/v1",
        "fieldsType": "FieldsV1", "fieldsV1": fields,
    }]);
    live
}

fn both() -> Value {
    json!({"f:replicas": {}, "f:paused": {}})
}

fn sent(intent: &Intent, live: Option<&Value>) -> Value {
    match intent.plan(live, None).unwrap() {
        IntentPlan::Apply(object) => object,
        IntentPlan::Unchanged => panic!("nothing sent"),
    }
}

#[test]
fn what_the_server_owns_is_not_sent() {
    let mut exported = manifest(1);
    let own = json!({
        "name": "d", "namespace": "n", "uid": "u", "resourceVersion": "7", "generation": 3,
        "creationTimestamp": null, "selfLink": "/x", "managedFields": [], "ownerReferences": [],
        "labels": {"a": "b"},
    });
    exported["metadata"] = own;
    exported["status"] = json!({"replicas": 1});
    exported["spec"]["template"] = json!({
        "metadata": {"creationTimestamp": null, "labels": {}},
        "l": [{"metadata": {"creationTimestamp": null}}],
    });
    let object = sent(&plain(exported), None);
    assert_eq!(
        object["metadata"],
        json!({"name": "d", "namespace": "n", "labels": {"a": "b"}, "ownerReferences": []})
    );
    assert!(object.get("status").is_none());
    let template = json!({"metadata": {"labels": {}}, "l": [{"metadata": {}}]});
    assert_eq!(object["spec"]["template"], template);
}

#[test]
fn a_cluster_scoped_object_has_no_namespace() {
    let parsed = ParsedManifest {
        ordinal: 0,
        object: manifest(1),
    };
    let config = ServerSideApplyConfig::default();
    let intent = Intent::new(parsed, false, &config, Arc::default()).unwrap();
    assert!(sent(&intent, None)["metadata"].get("namespace").is_none());
}

#[test]
fn the_field_manager_has_to_be_the_agents() {
    for (name, valid) in [
        ("work-agent", true),
        ("work-agent-another", true),
        ("kubectl", false),
        ("", false),
    ] {
        let parsed = ParsedManifest {
            ordinal: 0,
            object: manifest(1),
        };
        let config = config(json!({"fieldManager": name, "force": true}));
        let intent = Intent::new(parsed, true, &config, Arc::default());
        match intent {
            Ok(intent) => assert!(valid && intent.force() && intent.manager() == name),
            Err(error) => {
                assert!(!valid);
                assert_eq!(
                    error.to_string(),
                    format!(
                        "updateStrategy.serverSideApply.fieldManager: Invalid value: {name:?}: \
                         must start with work-agent"
                    )
                );
            }
        }
    }
}

#[test]
fn an_idle_agent_sends_nothing() {
    let intent = plain(manifest(1));
    let live = taken(&sent(&intent, None), both());
    let last = intent.applied(&live);
    assert_eq!(
        intent.plan(Some(&live), Some(&last)),
        Ok(IntentPlan::Unchanged)
    );

    let mut status = live.clone();
    status["metadata"]["resourceVersion"] = "2".into();
    status["status"] = json!({"replicas": 1});
    status["spec"]["other"] = 1.into();
    assert_eq!(
        intent.plan(Some(&status), Some(&last)),
        Ok(IntentPlan::Unchanged)
    );
    assert_eq!(
        intent.plan(Some(&status), None),
        Ok(IntentPlan::Unchanged),
        "nor after its restart"
    );

    // Values that the server writes in another way are known after the first apply.
    let mut written = live;
    written["spec"]["paused"] = json!(0);
    let last = intent.applied(&written);
    assert_ne!(intent.plan(Some(&written), None), Ok(IntentPlan::Unchanged));
    written["metadata"]["resourceVersion"] = "3".into();
    assert_eq!(
        intent.plan(Some(&written), Some(&last)),
        Ok(IntentPlan::Unchanged)
    );
}

#[test]
fn drift_of_what_is_owned_is_repaired() {
    let intent = plain(manifest(1));
    let live = taken(&sent(&intent, None), both());
    let last = intent.applied(&live);
    let mut changed = live.clone();
    changed["metadata"]["resourceVersion"] = "2".into();
    changed["spec"]["replicas"] = 9.into();
    assert!(matches!(
        intent.plan(Some(&changed), Some(&last)),
        Ok(IntentPlan::Apply(_))
    ));
    // The new value usually comes with a new owner.
    let mut robbed = taken(&changed, json!({"f:paused": {}}));
    robbed["metadata"]["resourceVersion"] = "2".into();
    assert!(matches!(
        intent.plan(Some(&robbed), Some(&last)),
        Ok(IntentPlan::Apply(_))
    ));
    assert!(matches!(
        intent.plan(None, Some(&last)),
        Ok(IntentPlan::Apply(_))
    ));
}

#[test]
fn a_changed_manifest_is_sent_and_a_changed_strategy_only_if_it_changes_the_object() {
    let intent = plain(manifest(1));
    let live = taken(&sent(&intent, None), both());
    let last = intent.applied(&live);
    let changed = plain(manifest(3)).plan(Some(&live), Some(&last));
    assert!(matches!(changed, Ok(IntentPlan::Apply(_))));
    let mut less = manifest(1);
    less["spec"].as_object_mut().unwrap().remove("replicas");
    let given_up = plain(less).plan(Some(&live), Some(&last));
    assert!(matches!(given_up, Ok(IntentPlan::Apply(_))));
    let forced = intent_of(manifest(1), &config(json!({"force": true})));
    assert_eq!(
        forced.plan(Some(&live), Some(&last)),
        Ok(IntentPlan::Unchanged)
    );
}

#[test]
fn a_missing_object_gets_the_ignored_fields_too() {
    for condition in ["OnSpokePresent", "OnSpokeChange"] {
        let object = sent(&ignoring(manifest(3), condition), None);
        assert_eq!(object["spec"]["replicas"], 3);
        assert_eq!(object.pointer(HASH).unwrap().as_str().unwrap().len(), 32);
    }
}

#[test]
fn what_the_cluster_changed_in_an_ignored_field_stays() {
    for condition in ["OnSpokePresent", "OnSpokeChange"] {
        let intent = ignoring(manifest(1), condition);
        let mut live = taken(&sent(&intent, None), json!({"f:paused": {}}));
        live["spec"]["replicas"] = 2.into();
        assert_eq!(
            intent.plan(Some(&live), None),
            Ok(IntentPlan::Unchanged),
            "{condition}"
        );

        live["spec"]["paused"] = true.into();
        let object = sent(&intent, Some(&live));
        assert_eq!(
            object["spec"],
            json!({"paused": false}),
            "the rest is repaired"
        );
    }
}

#[test]
fn an_ignored_field_that_is_still_the_agents_is_not_given_up() {
    for condition in ["OnSpokePresent", "OnSpokeChange"] {
        let intent = ignoring(manifest(1), condition);
        let mut live = taken(&sent(&intent, None), both());
        assert_eq!(intent.plan(Some(&live), None), Ok(IntentPlan::Unchanged));
        live["spec"]["paused"] = true.into();
        assert_eq!(
            sent(&intent, Some(&live))["spec"],
            json!({"paused": false, "replicas": 1})
        );
    }
}

#[test]
fn a_changed_manifest_ends_on_spoke_change_and_not_on_spoke_present() {
    for (condition, replicas) in [("OnSpokePresent", json!(null)), ("OnSpokeChange", json!(3))] {
        let before = ignoring(manifest(1), condition);
        let mut live = taken(&sent(&before, None), json!({"f:paused": {}}));
        live["spec"]["replicas"] = 2.into();
        let mut changed = manifest(3);
        changed["spec"]["paused"] = true.into();
        let object = sent(&ignoring(changed, condition), Some(&live));
        assert_eq!(object["spec"]["replicas"], replicas, "{condition}");
        assert_eq!(object["spec"]["paused"], true);
        assert_ne!(object.pointer(HASH), live.pointer(HASH));
    }
}

#[test]
fn an_ignored_field_alone_changes_nothing_in_the_hash_of_on_spoke_present() {
    let live = taken(
        &sent(&ignoring(manifest(1), "OnSpokePresent"), None),
        json!({"f:paused": {}}),
    );
    let plan = ignoring(manifest(3), "OnSpokePresent").plan(Some(&live), None);
    assert_eq!(plan, Ok(IntentPlan::Unchanged));
}

#[test]
fn ignoring_what_names_the_object_does_not_take_its_name() {
    let config = config(json!({"ignoreFields": [
        {"condition": "OnSpokePresent", "jsonPaths": [".metadata", ".kind"]},
    ]}));
    let intent = intent_of(manifest(1), &config);
    let mut live = taken(&sent(&intent, None), json!({}));
    live["spec"]["paused"] = true.into();
    let object = sent(&intent, Some(&live));
    assert_eq!(object["kind"], "Deployment");
    assert_eq!(
        (
            &object["metadata"]["name"],
            &object["metadata"]["namespace"]
        ),
        (&json!("d"), &json!("n"))
    );
    assert!(object.pointer(HASH).is_some());
}

#[test]
fn errors_of_ignore_fields_come_before_anything_is_sent() {
    for (fields, compiles, text) in [
        (
            json!({"jqPathExpressions": [".spec.containers[] | invalid syntax here"]}),
            false,
            "JQ expression error in '.spec.containers[] | invalid syntax here': failed to parse",
        ),
        (
            json!({"jqPathExpressions": ["repeat(.)"]}),
            true,
            "JQ expression error in 'repeat(.)': jq expression timed out after 1s",
        ),
        (
            json!({"jsonPointers": ["/spec/list/7"]}),
            true,
            "JSON Pointer error in '/spec/list/7': index 7 is out of range",
        ),
    ] {
        let mut field = fields;
        field["condition"] = "OnSpokePresent".into();
        let config = config(json!({ "ignoreFields": [field] }));
        let compiled = IgnoreFields::compile(&config);
        assert_eq!(compiled.is_ok(), compiles, "{text}");
        let error = match compiled {
            Err(error) => error,
            Ok(ignore) => {
                let mut object = manifest(1);
                object["spec"]["list"] = json!([1]);
                let parsed = ParsedManifest { ordinal: 0, object };
                let intent = Intent::new(parsed, true, &config, Arc::new(ignore)).unwrap();
                intent.plan(None, None).unwrap_err()
            }
        };
        assert!(error.to_string().starts_with(text), "{error}");
    }
}

#[test]
fn what_fails_on_the_live_object_only_tells_nothing_about_it() {
    let expression = ".spec.l[] | if .n < 5 then . else error(.secret) end";
    let config = config(json!({"ignoreFields": [
        {"condition": "OnSpokePresent", "jqPathExpressions": [expression]},
    ]}));
    let mut object = manifest(1);
    object["spec"]["l"] = json!([{"n": 1}]);
    let intent = intent_of(object, &config);
    let mut live = taken(&sent(&intent, None), both());
    live["spec"]["l"] = json!([{"n": 9, "secret": "hunter2"}]);
    let error = intent.plan(Some(&live), None).unwrap_err().to_string();
    assert!(
        error.contains("fails on the object on the managed cluster"),
        "{error}"
    );
    assert!(!error.contains("hunter2"), "{error}");
}

#[test]
fn there_may_be_so_many_fields_to_ignore_and_no_more() {
    let compiled = |jq: usize, paths: usize| {
        let pointers = paths / 2;
        let config = config(json!({"ignoreFields": [
            {"condition": "OnSpokeChange", "jqPathExpressions": vec![".spec.x"; jq]},
            {
                "condition": "OnSpokePresent",
                "jsonPaths": vec![".spec.x"; paths - pointers],
                "jsonPointers": vec!["/spec/x"; pointers],
            },
        ]}));
        IgnoreFields::compile(&config)
    };
    assert!(compiled(MAX_JQ_EXPRESSIONS, MAX_IGNORED_PATHS).is_ok());
    let field = "updateStrategy.serverSideApply.ignoreFields";
    assert_eq!(
        compiled(MAX_JQ_EXPRESSIONS + 1, 0).unwrap_err().to_string(),
        format!("{field}: 21 jqPathExpressions, more than 20")
    );
    assert_eq!(
        compiled(0, MAX_IGNORED_PATHS + 1).unwrap_err().to_string(),
        format!("{field}: 1001 jsonPaths and jsonPointers, more than 1000")
    );
    assert!(compiled(1, 0).unwrap().is_costly() && compiled(0, 11).unwrap().is_costly());
    assert!(!compiled(0, 10).unwrap().is_costly());
}
