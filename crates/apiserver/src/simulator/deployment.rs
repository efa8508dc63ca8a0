//! Deployments: replica by replica, with the conditions of the deployment controller.

use std::time::Duration;

use serde_json::{Value, json};

use super::conditions::{number, reason, set, set_number};
use super::driver::{Look, Next};

/// The next status of a Deployment.
pub(super) fn step(look: &Look<'_>) -> Next {
    let object = look.object;
    if object["metadata"]
        .get("deletionTimestamp")
        .is_some_and(|t| !t.is_null())
    {
        return Next::Settled;
    }
    let before = object.get("status").cloned().unwrap_or_else(|| json!({}));
    let mut status = before.clone();
    let wanted = object["spec"]["replicas"]
        .as_i64()
        .map_or(1, |n| i32::try_from(n).unwrap_or(0));
    let set_name = format!(
        "{}-{}",
        object["metadata"]["name"].as_str().unwrap_or_default(),
        look.template_hash
    );
    let observed = status["observedGeneration"] == object["metadata"]["generation"];
    if !observed {
        observe(look, &mut status, wanted, &set_name);
        return Next::Now(status);
    }
    let (replicas, updated, ready) = (
        number(&status, "replicas"),
        number(&status, "updatedReplicas"),
        number(&status, "readyReplicas"),
    );
    if replicas == wanted && updated == wanted && ready == wanted {
        progressing(
            &mut status,
            "True",
            "NewReplicaSetAvailable",
            &format!("ReplicaSet {set_name:?} has successfully progressed."),
        );
        return if status == before {
            Next::Settled
        } else {
            Next::Now(status)
        };
    }
    let most = look
        .failure
        .map_or(wanted, |f| f.ready_at_most().min(wanted));
    let next = if updated < wanted && updated < most {
        // One old replica is replaced; the surge keeps the number that is ready.
        (wanted, updated + 1, ready)
    } else if updated < wanted {
        (wanted + 1, updated.max(most) + 1, ready)
    } else if ready < most {
        (replicas, updated, ready + 1)
    } else {
        (replicas, updated, ready)
    };
    if next == (replicas, updated, ready) || updated > most && updated < wanted {
        return stuck(object, status, &before, &set_name);
    }
    counts(&mut status, next.0, next.1, next.2, wanted);
    progressing(
        &mut status,
        "True",
        "ReplicaSetUpdated",
        &format!("ReplicaSet {set_name:?} is progressing."),
    );
    availability(object, &mut status, wanted);
    Next::Paced(status)
}

/// The controller has seen a new generation: pods are made or taken away at once.
fn observe(look: &Look<'_>, status: &mut Value, wanted: i32, set_name: &str) {
    let object = look.object;
    status["observedGeneration"] = object["metadata"]["generation"].clone();
    let (replicas, updated, ready) = (
        number(status, "replicas"),
        number(status, "updatedReplicas"),
        number(status, "readyReplicas"),
    );
    let first = status.get("conditions").is_none();
    if first || replicas == 0 {
        counts(status, wanted, wanted, 0, wanted);
    } else if look.new_template {
        // Old replicas stay until new ones take their place.
        counts(status, wanted, 0, ready.min(wanted), wanted);
    } else if wanted >= replicas {
        counts(status, wanted, updated + wanted - replicas, ready, wanted);
    } else {
        counts(
            status,
            wanted,
            updated.min(wanted),
            ready.min(wanted),
            wanted,
        );
    }
    if first {
        progressing(
            status,
            "True",
            "NewReplicaSetCreated",
            &format!("Created new replica set {set_name:?}"),
        );
    } else if look.new_template || wanted > replicas {
        progressing(
            status,
            "True",
            "ReplicaSetUpdated",
            &format!("ReplicaSet {set_name:?} is progressing."),
        );
    }
    availability(object, status, wanted);
}

fn counts(status: &mut Value, replicas: i32, updated: i32, ready: i32, wanted: i32) {
    set_number(status, "replicas", replicas);
    set_number(status, "updatedReplicas", updated);
    set_number(status, "readyReplicas", ready);
    set_number(status, "availableReplicas", ready);
    set_number(
        status,
        "unavailableReplicas",
        (replicas.max(wanted) - ready).max(0),
    );
}

fn progressing(status: &mut Value, value: &str, reason: &str, message: &str) {
    set(status, "Progressing", value, reason, message);
}

fn availability(object: &Value, status: &mut Value, wanted: i32) {
    let available = number(status, "availableReplicas");
    if available >= wanted - max_unavailable(object, wanted) {
        set(
            status,
            "Available",
            "True",
            "MinimumReplicasAvailable",
            "Deployment has minimum availability.",
        );
    } else {
        set(
            status,
            "Available",
            "False",
            "MinimumReplicasUnavailable",
            "Deployment does not have minimum availability.",
        );
    }
}

/// Percentages round down, as for `maxUnavailable` in the real controller.
fn max_unavailable(object: &Value, wanted: i32) -> i32 {
    match &object["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] {
        Value::String(text) => {
            let percent: i32 = text.trim_end_matches('%').parse().unwrap_or_default();
            wanted * percent / 100
        }
        Value::Number(count) => count
            .as_i64()
            .and_then(|n| i32::try_from(n).ok())
            .unwrap_or_default(),
        _ => 0,
    }
}

/// Nothing moves any more; after the deadline the condition says so.
fn stuck(object: &Value, mut status: Value, before: &Value, set_name: &str) -> Next {
    if reason(&status, "Progressing") == "ProgressDeadlineExceeded" {
        return Next::Settled;
    }
    let deadline = object["spec"]["progressDeadlineSeconds"]
        .as_u64()
        .unwrap_or(600);
    progressing(
        &mut status,
        "False",
        "ProgressDeadlineExceeded",
        &format!("ReplicaSet {set_name:?} has timed out progressing."),
    );
    debug_assert_ne!(status, *before, "a condition has changed");
    Next::After(Duration::from_secs(deadline), status)
}

#[cfg(test)]
mod tests {
    use super::super::failure::Failure;
    use super::*;

    fn deployment(replicas: i32) -> Value {
        json!({
            "metadata": {"name": "web", "generation": 1},
            "spec": {"replicas": replicas, "progressDeadlineSeconds": 60,
                "strategy": {"rollingUpdate": {"maxUnavailable": "25%"}}},
        })
    }

    /// Steps until the deployment is settled and gives `replicas/updated/ready` after each.
    fn run(object: &mut Value, mut new_template: bool, failure: Option<Failure>) -> Vec<String> {
        let mut seen = Vec::new();
        for _ in 0..50 {
            let look = Look {
                object,
                new_template,
                template_hash: "h",
                failure,
            };
            let status = match step(&look) {
                Next::Settled => return seen,
                Next::Now(status) | Next::Paced(status) | Next::After(_, status) => status,
            };
            new_template = false;
            let n = |field| number(&status, field);
            seen.push(format!(
                "{}/{}/{} {}",
                n("replicas"),
                n("updatedReplicas"),
                n("readyReplicas"),
                reason(&status, "Progressing")
            ));
            object["status"] = status;
        }
        panic!("never settled: {seen:?}");
    }

    fn available(object: &Value) -> Value {
        let conditions = object["status"]["conditions"].as_array().unwrap();
        conditions
            .iter()
            .find(|c| c["type"] == "Available")
            .unwrap()["status"]
            .clone()
    }

    #[test]
    fn replicas_become_ready_one_by_one() {
        let mut object = deployment(3);
        assert_eq!(
            run(&mut object, true, None),
            [
                "3/3/0 NewReplicaSetCreated",
                "3/3/1 ReplicaSetUpdated",
                "3/3/2 ReplicaSetUpdated",
                "3/3/3 ReplicaSetUpdated",
                "3/3/3 NewReplicaSetAvailable",
            ]
        );
        assert_eq!(available(&object), "True");
        assert_eq!(object["status"]["observedGeneration"], 1);
        assert_eq!(object["status"].get("unavailableReplicas"), None);
    }

    #[test]
    fn a_new_template_replaces_replicas_and_keeps_them_available() {
        let mut object = deployment(2);
        run(&mut object, true, None);
        object["metadata"]["generation"] = json!(2);
        assert_eq!(
            run(&mut object, true, None),
            [
                "2/0/2 ReplicaSetUpdated",
                "2/1/2 ReplicaSetUpdated",
                "2/2/2 ReplicaSetUpdated",
                "2/2/2 NewReplicaSetAvailable",
            ]
        );
    }

    #[test]
    fn scaling_changes_the_number_only() {
        let mut object = deployment(2);
        run(&mut object, true, None);
        object["metadata"]["generation"] = json!(2);
        object["spec"]["replicas"] = json!(3);
        assert_eq!(
            run(&mut object, false, None),
            [
                "3/3/2 ReplicaSetUpdated",
                "3/3/3 ReplicaSetUpdated",
                "3/3/3 NewReplicaSetAvailable"
            ]
        );
        object["metadata"]["generation"] = json!(3);
        object["spec"]["replicas"] = json!(1);
        assert_eq!(
            run(&mut object, false, None),
            ["1/1/1 NewReplicaSetAvailable"]
        );
        object["metadata"]["generation"] = json!(4);
        object["spec"]["replicas"] = json!(0);
        assert_eq!(
            run(&mut object, false, None),
            ["0/0/0 NewReplicaSetAvailable"]
        );
        assert_eq!(available(&object), "True");
    }

    #[test]
    fn failures_end_in_an_exceeded_deadline() {
        let mut object = deployment(3);
        let seen = run(&mut object, true, Some(Failure::CrashAfter(1)));
        assert_eq!(
            seen,
            [
                "3/3/0 NewReplicaSetCreated",
                "3/3/1 ReplicaSetUpdated",
                "3/3/1 ProgressDeadlineExceeded"
            ]
        );
        assert_eq!(available(&object), "False");
        let mut object = deployment(2);
        run(&mut object, true, None);
        object["metadata"]["generation"] = json!(2);
        let seen = run(&mut object, true, Some(Failure::NeverReady));
        assert_eq!(seen.last().unwrap(), "3/1/2 ProgressDeadlineExceeded");
        assert_eq!(available(&object), "True");
    }
}
