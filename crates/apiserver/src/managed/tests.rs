//! Writes as trackers see them. Expected values were read off kube-apiserver 1.36.

use serde_json::{Value, json};

use super::*;
use crate::registry::{Registry, ResourceDef};

fn def(plural: &str) -> std::sync::Arc<ResourceDef> {
    let types = Registry::new().types();
    let group = if plural == "deployments" { "apps" } else { "" };
    types.find(group, plural).unwrap().clone()
}

fn tracker<'a>(def: &'a ResourceDef, manager: &'a str) -> Tracker<'a> {
    Tracker {
        def,
        api_version: def.storage_api_version(),
        manager,
        subresource: "",
    }
}

fn config_map(data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data})
}

/// The fields of each manager, by name and operation.
fn owners(object: &Value) -> Vec<(String, Value)> {
    object["metadata"]["managedFields"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|entry| {
            let text = |field: &str| entry[field].as_str().unwrap_or_default();
            (
                format!("{} {}", text("manager"), text("operation")),
                entry["fieldsV1"].clone(),
            )
        })
        .collect()
}

#[track_caller]
fn check_owners(object: &Value, want: &[(&str, Value)]) {
    let want: Vec<(String, Value)> = want
        .iter()
        .map(|(name, fields)| ((*name).to_owned(), fields.clone()))
        .collect();
    assert_eq!(owners(object), want);
}

/// The live object after applies by these managers, each forced.
fn applied(def: &ResourceDef, steps: &[(&str, Value)]) -> Value {
    let mut live = None;
    for (manager, object) in steps {
        let tracker = tracker(def, manager);
        live = Some(tracker.apply(live.as_ref(), object, true).unwrap());
    }
    live.unwrap()
}

#[test]
fn a_new_object_belongs_to_its_creator_but_not_what_names_it() {
    let def = def("configmaps");
    let mut object = config_map(&json!({"a": "1"}));
    object["metadata"]["labels"] = json!({"x": "y"});
    tracker(&def, "me").update(None, &mut object);
    check_owners(
        &object,
        &[(
            "me Update",
            json!({"f:data": {".": {}, "f:a": {}}, "f:metadata": {"f:labels": {".": {}, "f:x": {}}}}),
        )],
    );
}

#[test]
fn structs_that_go_always_writes_are_not_owned() {
    let def = def("deployments");
    let mut object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": {}}]},
        }},
    });
    tracker(&def, "me").update(None, &mut object);
    check_owners(
        &object,
        &[(
            "me Update",
            json!({"f:spec": {"f:selector": {}, "f:template": {
                "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
                "f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {
                    ".": {}, "f:image": {}, "f:name": {}, "f:resources": {},
                }}},
            }}}),
        )],
    );
}

#[test]
fn an_update_takes_what_it_changes_and_drops_what_it_removes() {
    let def = def("configmaps");
    let mut first = config_map(&json!({"a": "1", "b": "1", "c": "1"}));
    tracker(&def, "one").update(None, &mut first);
    let mut second = first.clone();
    second["data"] = json!({"a": "1", "b": "2"});
    tracker(&def, "two").update(Some(&first), &mut second);
    check_owners(
        &second,
        &[
            ("one Update", json!({"f:data": {".": {}, "f:a": {}}})),
            ("two Update", json!({"f:data": {"f:b": {}}})),
        ],
    );
    let mut third = second.clone();
    third["data"] = json!({"a": "3", "b": "2"});
    tracker(&def, "two").update(Some(&second), &mut third);
    check_owners(
        &third,
        &[
            // The map itself, with nothing in it.
            ("one Update", json!({"f:data": {}})),
            ("two Update", json!({"f:data": {"f:a": {}, "f:b": {}}})),
        ],
    );
}

#[test]
fn clients_that_do_not_send_managers_keep_them_and_an_empty_list_forgets_them() {
    let def = def("configmaps");
    let mut first = config_map(&json!({"a": "1"}));
    tracker(&def, "one").update(None, &mut first);
    let mut silent = config_map(&json!({"a": "1"}));
    tracker(&def, "two").update(Some(&first), &mut silent);
    assert_eq!(owners(&silent), owners(&first));
    for reset in [json!([]), json!([{}])] {
        let mut forgetting = config_map(&json!({"a": "2"}));
        forgetting["metadata"]["managedFields"] = reset;
        tracker(&def, "two").update(Some(&first), &mut forgetting);
        check_owners(&forgetting, &[]);
        // From then on nobody is tracked, until somebody applies.
        let mut later = config_map(&json!({"a": "3"}));
        tracker(&def, "two").update(Some(&forgetting), &mut later);
        check_owners(&later, &[]);
    }
    let mut damaged = config_map(&json!({"a": "1"}));
    damaged["metadata"]["managedFields"] = json!([{"manager": "x"}]);
    tracker(&def, "two").update(Some(&first), &mut damaged);
    assert_eq!(owners(&damaged), owners(&first));
}

#[test]
fn subresources_have_entries_of_their_own_and_cannot_touch_others() {
    let def = def("deployments");
    let mut live = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"},
        "spec": {"replicas": 1},
    });
    tracker(&def, "one").update(None, &mut live);
    let mut new = live.clone();
    new["spec"]["replicas"] = json!(2);
    new["status"] = json!({"replicas": 2});
    new["metadata"]["managedFields"] = json!([]);
    let status = Tracker {
        subresource: "status",
        ..tracker(&def, "two")
    };
    status.update(Some(&live), &mut new);
    check_owners(
        &new,
        &[
            ("one Update", json!({"f:spec": {"f:replicas": {}}})),
            ("two Update", json!({"f:status": {"f:replicas": {}}})),
        ],
    );
    assert_eq!(new["metadata"]["managedFields"][1]["subresource"], "status");
}

#[test]
fn what_a_manager_applies_no_more_goes_unless_others_own_it() {
    let def = def("configmaps");
    let live = applied(
        &def,
        &[
            ("one", config_map(&json!({"a": "1", "b": "2", "c": "3"}))),
            ("two", config_map(&json!({"a": "1"}))),
        ],
    );
    check_owners(
        &live,
        &[
            // Has changed nothing, and therefore has no time.
            ("two Apply", json!({"f:data": {"f:a": {}}})),
            (
                "one Apply",
                json!({"f:data": {"f:a": {}, "f:b": {}, "f:c": {}}}),
            ),
        ],
    );
    let live = tracker(&def, "one")
        .apply(Some(&live), &config_map(&json!({"c": "3"})), false)
        .unwrap();
    assert_eq!(live["data"], json!({"a": "1", "c": "3"}));
    // What was changed by hand since belongs to the hand and stays.
    let mut edited = live.clone();
    edited["data"]["c"] = json!("by hand");
    tracker(&def, "hand").update(Some(&live), &mut edited);
    let left = tracker(&def, "one")
        .apply(Some(&edited), &config_map(&json!({})), false)
        .unwrap();
    assert_eq!(left["data"], json!({"a": "1", "c": "by hand"}));
}

#[test]
fn conflicts_name_every_owner_and_force_takes_the_fields() {
    let def = def("configmaps");
    let mut live = config_map(&json!({"a": "1", "b": "1"}));
    tracker(&def, "edit").update(None, &mut live);
    let live = tracker(&def, "one")
        .apply(Some(&live), &config_map(&json!({"b": "1"})), false)
        .unwrap();
    let change = config_map(&json!({"a": "2", "b": "2"}));
    let two = tracker(&def, "two");
    let error = two.apply(Some(&live), &change, false).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Apply failed with 3 conflicts: conflicts with \"edit\" using v1:\n- .data.a\n- .data.b\nconflicts with \"one\":\n- .data.b"
    );
    assert_eq!(error.causes().len(), 3);
    let forced = two.apply(Some(&live), &change, true).unwrap();
    assert_eq!(forced["data"], json!({"a": "2", "b": "2"}));
    check_owners(
        &forced,
        &[
            ("two Apply", json!({"f:data": {"f:a": {}, "f:b": {}}})),
            ("edit Update", json!({"f:data": {}})),
        ],
    );
}

#[test]
fn an_unchanged_apply_gives_the_same_object() {
    let def = def("configmaps");
    let mut live = applied(&def, &[("one", config_map(&json!({"a": "1"})))]);
    live["metadata"]["managedFields"][0]["time"] = json!("2026-01-01T00:00:00Z");
    let again = tracker(&def, "one")
        .apply(Some(&live), &config_map(&json!({"a": "1"})), false)
        .unwrap();
    assert_eq!(again, live);
}

#[test]
fn updates_that_change_nothing_keep_the_times() {
    let def = def("configmaps");
    let mut old = config_map(&json!({"a": "1"}));
    tracker(&def, "one").update(None, &mut old);
    let mut new = old.clone();
    old["metadata"]["managedFields"][0]["time"] = json!("2026-01-01T00:00:00Z");
    let mut other = new.clone();
    keep_times(&old, &mut new);
    assert_eq!(new, old);
    other["data"]["a"] = json!("2");
    let before = other.clone();
    keep_times(&old, &mut other);
    assert_eq!(other, before);
}

#[test]
fn objects_without_managers_are_ascribed_when_they_are_first_applied() {
    let def = def("configmaps");
    let live = config_map(&json!({"a": "1", "b": "2"}));
    let one = tracker(&def, "one");
    let new = one
        .apply(Some(&live), &config_map(&json!({"a": "1"})), false)
        .unwrap();
    check_owners(
        &new,
        &[
            ("one Apply", json!({"f:data": {"f:a": {}}})),
            (
                "before-first-apply Update",
                json!({"f:data": {".": {}, "f:a": {}, "f:b": {}}}),
            ),
        ],
    );
    let error = one
        .apply(Some(&live), &config_map(&json!({"a": "2"})), false)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: .data.a"
    );
}

#[test]
fn objects_that_do_not_fit_their_type_are_not_applied() {
    let def = def("configmaps");
    let mut object = config_map(&json!({"a": 1}));
    let one = tracker(&def, "one");
    assert_eq!(
        one.apply(None, &object, false).unwrap_err().to_string(),
        "failed to create typed patch object (/a; /v1, Kind=ConfigMap): .data.a: expected string, got &value.valueUnstructured{Value:1}"
    );
    object["binaryData"] = json!([]);
    assert_eq!(
        one.apply(None, &object, false).unwrap_err().to_string(),
        "failed to create typed patch object (/a; /v1, Kind=ConfigMap): errors:\n  .binaryData: expected map, got &{[]}\n  .data.a: expected string, got &value.valueUnstructured{Value:1}"
    );
}

#[test]
fn kubectl_takes_over_what_it_applied_from_the_client() {
    const LAST: &str = "kubectl.kubernetes.io/last-applied-configuration";
    let def = def("configmaps");
    let mut live = config_map(&json!({"a": "1", "b": "2"}));
    live["metadata"]["annotations"] = json!({LAST: config_map(&json!({"a": "1"})).to_string()});
    tracker(&def, "kubectl-client-side-apply").update(None, &mut live);
    let change = config_map(&json!({"a": "5"}));
    assert!(
        tracker(&def, "other")
            .apply(Some(&live), &change, false)
            .is_err()
    );
    let new = tracker(&def, "kubectl")
        .apply(Some(&live), &change, false)
        .unwrap();
    assert_eq!(new["data"], json!({"a": "5", "b": "2"}));
    assert_eq!(
        new["metadata"]["annotations"][LAST],
        json!(format!("{change}\n"))
    );
    // It did not apply b, so b is not its own.
    let foreign = config_map(&json!({"a": "5", "b": "5"}));
    let error = tracker(&def, "kubectl")
        .apply(Some(&live), &foreign, false)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "Apply failed with 1 conflict: conflict with \"kubectl-client-side-apply\" using v1: .data.b"
    );
}
