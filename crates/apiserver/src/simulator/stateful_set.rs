//! `StatefulSet`s: one replica after the other.

use serde_json::json;

use super::conditions::{number, set_number};
use super::driver::{Look, Next};

/// The next status of a `StatefulSet`.
pub(super) fn step(look: &Look<'_>) -> Next {
    let object = look.object;
    let mut status = object.get("status").cloned().unwrap_or_else(|| json!({}));
    let wanted = object["spec"]["replicas"]
        .as_i64()
        .map_or(1, |n| i32::try_from(n).unwrap_or(0));
    let revision = format!(
        "{}-{}",
        object["metadata"]["name"].as_str().unwrap_or_default(),
        look.template_hash
    );
    if status["observedGeneration"] != object["metadata"]["generation"] {
        status["observedGeneration"] = object["metadata"]["generation"].clone();
        status["collisionCount"] = json!(0);
        let first = status.get("currentRevision").is_none();
        let updated = if look.new_template && !first {
            0
        } else {
            number(&status, "updatedReplicas")
        };
        if first {
            status["currentRevision"] = json!(revision);
        }
        status["updateRevision"] = json!(revision);
        let kept = number(&status, "readyReplicas").min(wanted);
        counts(&mut status, kept, updated.min(kept));
        return Next::Now(status);
    }
    let (ready, updated) = (
        number(&status, "readyReplicas"),
        number(&status, "updatedReplicas"),
    );
    if ready == wanted && updated == wanted {
        if status["currentRevision"] == status["updateRevision"] {
            return Next::Settled;
        }
        status["currentRevision"] = status["updateRevision"].clone();
        counts(&mut status, ready, updated);
        return Next::Now(status);
    }
    let most = look
        .failure
        .map_or(wanted, |f| f.ready_at_most().min(wanted));
    if updated >= most {
        return Next::Settled;
    }
    counts(&mut status, ready.max(updated + 1), updated + 1);
    Next::Paced(status)
}

fn counts(status: &mut serde_json::Value, ready: i32, updated: i32) {
    let same = status["currentRevision"] == status["updateRevision"];
    // `replicas` is there even when 0: the type requires it.
    status["replicas"] = json!(ready);
    status["availableReplicas"] = json!(ready);
    set_number(status, "readyReplicas", ready);
    set_number(status, "updatedReplicas", updated);
    set_number(
        status,
        "currentReplicas",
        if same { updated } else { ready - updated },
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_come_in_order_and_updates_move_the_revision() {
        let mut object = json!({
            "metadata": {"name": "db", "generation": 1}, "spec": {"replicas": 2},
        });
        let run = |object: &mut serde_json::Value, hash: &str| {
            let mut seen = Vec::new();
            let mut new_template = true;
            loop {
                let look = Look {
                    object,
                    new_template,
                    template_hash: hash,
                    failure: None,
                };
                let status = match step(&look) {
                    Next::Now(s) | Next::Paced(s) => s,
                    Next::Settled | Next::After(..) => return seen,
                };
                new_template = false;
                seen.push((
                    number(&status, "readyReplicas"),
                    number(&status, "updatedReplicas"),
                ));
                object["status"] = status;
            }
        };
        assert_eq!(run(&mut object, "a"), [(0, 0), (1, 1), (2, 2)]);
        object["metadata"]["generation"] = json!(2);
        assert_eq!(run(&mut object, "b"), [(2, 0), (2, 1), (2, 2), (2, 2)]);
        assert_eq!(object["status"]["currentRevision"], "db-b");
        object["metadata"]["generation"] = json!(3);
        object["spec"]["replicas"] = json!(0);
        let look = Look {
            object: &object,
            new_template: false,
            template_hash: "b",
            failure: None,
        };
        let Next::Now(status) = step(&look) else {
            panic!("no step")
        };
        assert_eq!(status["replicas"], 0);
    }
}
