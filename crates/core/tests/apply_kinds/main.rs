//! What holds for the objects of every kind: an idle work writes nothing, a changed manifest and
//! drift are written once, and what others put on an object stays.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "all of this is test code; the exemptions in clippy.toml cover test functions only"
)]

mod cases;

use muster_core::apply::{Desired, History, UpdatePlan, plan_update};
use muster_core::manifest::ParsedManifest;
use muster_core::ownership::{Owner, OwnerChange};
use serde_json::{Map, Value, json};

use cases::{Case, Edit, Write, all};

fn owner() -> OwnerChange {
    OwnerChange::Own(Owner {
        name: "hash-w".into(),
        uid: "owner-uid".into(),
    })
}

fn desired(manifest: &Value) -> Desired {
    let manifest = ParsedManifest::parse(0, &manifest.to_string()).unwrap();
    Desired::new(manifest, true).unwrap()
}

fn plan(manifest: &Value, live: Option<&Value>, history: History<'_>) -> UpdatePlan {
    plan_update(&desired(manifest), live, &owner(), history)
}

fn create(manifest: &Value) -> Value {
    match plan(manifest, None, History::Unapplied) {
        UpdatePlan::Create(object) => object,
        other => panic!("expected a creation, got {other:?}"),
    }
}

/// What is sent, and how.
fn sent(plan: UpdatePlan) -> (Write, Value) {
    match plan {
        UpdatePlan::Create(object) | UpdatePlan::Recreate(object) => (Write::Recreate, object),
        UpdatePlan::Replace(object) => (Write::Replace, object),
        UpdatePlan::Unchanged => (Write::Nothing, Value::Null),
    }
}

/// What a server makes of an object: its metadata and the kind's defaults filled in, and a
/// generation that moves.
fn stored(case: &Case, object: &Value, version: u32) -> Value {
    let mut live = object.clone();
    fill(&mut live, &case.defaults);
    let metadata = live["metadata"].as_object_mut().unwrap();
    metadata.insert("uid".into(), "live-uid".into());
    metadata.insert("resourceVersion".into(), version.to_string().into());
    metadata.insert("creationTimestamp".into(), "2026-01-01T00:00:00Z".into());
    metadata.insert("managedFields".into(), json!([{"manager": "x"}]));
    if case.has_generation {
        metadata.insert("generation".into(), version.into());
    }
    live
}

fn fill(object: &mut Value, more: &Value) {
    match (object, more) {
        (Value::Object(object), Value::Object(more)) => {
            for (key, value) in more {
                fill(object.entry(key).or_insert(Value::Null), value);
            }
        }
        (Value::Array(items), Value::Array(more)) => {
            for (item, more) in items.iter_mut().zip(more) {
                fill(item, more);
            }
        }
        (object, more) => {
            if object.is_null() {
                *object = more.clone();
            }
        }
    }
}

/// Sets a field, or removes it if the value is null.
fn edit(object: &Value, (pointer, value): &Edit) -> Value {
    let mut edited = object.clone();
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    let mut at = &mut edited;
    for step in parent.split('/').skip(1) {
        at = if let Ok(index) = step.parse::<usize>() {
            &mut at[index]
        } else {
            if at[step].is_null() {
                at[step] = Value::Object(Map::new());
            }
            &mut at[step]
        };
    }
    let field = field.replace("~1", "/");
    match value {
        Value::Null => drop(at.as_object_mut().unwrap().remove(&field)),
        value => match field.parse::<usize>() {
            Ok(index) => at[index] = value.clone(),
            Err(_) => at[field.as_str()] = value.clone(),
        },
    }
    edited
}

/// The histories under which nothing may be sent for an object that was written.
fn check_idle(case: &Case, manifest: &Value, live: &Value, what: &str) {
    let last = desired(manifest).applied(live);
    let mut histories = vec![History::Applied(&last), History::AppliedBefore];
    if case.idle_without_memory {
        histories.push(History::Unapplied);
    }
    // Something moves the version and the generation, so that memory does not help.
    let mut moved = live.clone();
    moved["metadata"]["resourceVersion"] = "999".into();
    if case.has_generation {
        moved["metadata"]["generation"] = 999.into();
    }
    moved["status"]["moved"] = true.into();
    for live in [live, &moved] {
        for history in &histories {
            let plan = plan(manifest, Some(live), *history);
            assert_eq!(
                plan,
                UpdatePlan::Unchanged,
                "{}: {what}: {history:?}",
                case.name
            );
        }
    }
}

fn check_metadata(case: &Case, sent: &Value, live: &Value, write: Write) {
    let (sent, live) = (&sent["metadata"], &live["metadata"]);
    let same = |field: &str| assert_eq!(sent[field], live[field], "{}: {field}", case.name);
    same("ownerReferences");
    match write {
        Write::Replace => ["resourceVersion", "uid", "finalizers"]
            .iter()
            .for_each(|f| same(f)),
        _ => {
            for field in [
                "resourceVersion",
                "uid",
                "creationTimestamp",
                "generation",
                "finalizers",
            ] {
                assert_eq!(sent.get(field), None, "{}: {field}", case.name);
            }
        }
    }
    assert_eq!(sent.get("managedFields"), None, "{}", case.name);
    assert_eq!(sent["labels"]["team"], "blue", "{}", case.name);
    assert_eq!(sent["annotations"]["example.io/x"], "1", "{}", case.name);
}

/// Adds what controllers of the cluster put on objects.
fn touched_by_others(live: &Value) -> Value {
    [
        ("/metadata/labels/team", json!("blue")),
        ("/metadata/annotations/example.io~1x", json!("1")),
        ("/metadata/finalizers", json!(["example.io/hold"])),
    ]
    .iter()
    .fold(live.clone(), |live, change| edit(&live, change))
}

#[test]
fn an_idle_work_writes_nothing() {
    for case in all() {
        let live = stored(&case, &create(&case.manifest), 7);
        check_idle(&case, &case.manifest, &live, "created");
        let touched = touched_by_others(&live);
        check_idle(&case, &case.manifest, &touched, "touched by others");
        for tolerated in &case.tolerated {
            let edited = edit(&live, tolerated);
            let last = desired(&case.manifest).applied(&live);
            let mut edited = edited;
            edited["metadata"]["resourceVersion"] = "8".into();
            edited["metadata"]["generation"] = 8.into();
            for history in [History::Applied(&last), History::AppliedBefore] {
                let plan = plan(&case.manifest, Some(&edited), history);
                assert_eq!(plan, UpdatePlan::Unchanged, "{}: {tolerated:?}", case.name);
            }
        }
    }
}

#[test]
fn a_changed_manifest_is_written_once() {
    for case in all() {
        let live = touched_by_others(&stored(&case, &create(&case.manifest), 7));
        let last = desired(&case.manifest).applied(&live);
        for (change, expected) in &case.changes {
            let manifest = edit(&case.manifest, change);
            for history in [History::Applied(&last), History::Unapplied] {
                let what = format!("{}: {change:?}: {history:?}", case.name);
                let (write, object) = sent(plan(&manifest, Some(&live), history));
                assert_eq!(write, *expected, "{what}: {object}");
                if write == Write::Nothing {
                    continue;
                }
                let (pointer, value) = change;
                let found = object.pointer(pointer).unwrap_or(&Value::Null);
                assert_eq!(found, value, "{what}: {object}");
                check_metadata(&case, &object, &live, write);
                check_idle(&case, &manifest, &stored(&case, &object, 8), &what);
            }
        }
    }
}

#[test]
fn drift_is_repaired_once() {
    for case in all() {
        let live = touched_by_others(&stored(&case, &create(&case.manifest), 7));
        let last = desired(&case.manifest).applied(&live);
        for (drift, expected) in &case.drifts {
            let mut drifted = edit(&live, drift);
            drifted["metadata"]["resourceVersion"] = "8".into();
            if case.has_generation {
                drifted["metadata"]["generation"] = 8.into();
            }
            for history in [History::Applied(&last), History::AppliedBefore] {
                let what = format!("{}: {drift:?}: {history:?}", case.name);
                let (write, object) = sent(plan(&case.manifest, Some(&drifted), history));
                assert_eq!(write, *expected, "{what}: {object}");
                let repaired = stored(&case, &object, 9);
                let pointer = drift.0;
                assert_eq!(repaired.pointer(pointer), live.pointer(pointer), "{what}");
                check_metadata(&case, &object, &drifted, write);
                check_idle(&case, &case.manifest, &repaired, &what);
            }
        }
    }
}

#[test]
fn metadata_is_merged() {
    for case in all() {
        let live = touched_by_others(&stored(&case, &create(&case.manifest), 7));
        let live = edit(&live, &("/metadata/labels/gone", json!("x")));
        let mut manifest = case.manifest.clone();
        manifest["metadata"]["labels"]["tier"] = "a".into();
        manifest["metadata"]["labels"]["gone-"] = "".into();
        manifest["metadata"]["annotations"]["example.io/y"] = "2".into();
        let last = desired(&case.manifest).applied(&live);
        let (write, object) = sent(plan(&manifest, Some(&live), History::Applied(&last)));
        assert_eq!(write, Write::Replace, "{}", case.name);
        check_metadata(&case, &object, &live, write);
        let labels = &object["metadata"]["labels"];
        assert_eq!(labels["tier"], "a", "{}", case.name);
        assert_eq!(labels.get("gone"), None, "{}", case.name);
        assert_eq!(labels.get("gone-"), None, "{}", case.name);
        assert_eq!(object["metadata"]["annotations"]["example.io/y"], "2");
        check_idle(&case, &manifest, &stored(&case, &object, 8), "labelled");
    }
}

#[test]
fn an_orphan_gets_no_reference_whatever_its_kind() {
    let OwnerChange::Own(owner) = owner() else {
        panic!("it owns")
    };
    let disown = OwnerChange::Disown(owner);
    for case in all() {
        let desired = desired(&case.manifest);
        let (_, created) = sent(plan_update(&desired, None, &disown, History::Unapplied));
        assert_eq!(
            created["metadata"].get("ownerReferences"),
            None,
            "{}",
            case.name
        );

        let live = stored(&case, &create(&case.manifest), 7);
        let history = History::AppliedBefore;
        let (write, released) = sent(plan_update(&desired, Some(&live), &disown, history));
        assert_eq!(write, Write::Replace, "{}", case.name);
        assert_eq!(
            released["metadata"]["ownerReferences"],
            json!([]),
            "{}",
            case.name
        );
        for (field, value) in live.as_object().unwrap() {
            if field != "metadata" {
                assert_eq!(released[field], *value, "{}: {field}", case.name);
            }
        }
    }
}
