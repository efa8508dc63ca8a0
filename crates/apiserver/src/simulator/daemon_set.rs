//! `DaemonSet`s: one pod, as if the cluster had one node.

use serde_json::json;

use super::conditions::{number, set_number};
use super::driver::{Look, Next};

/// Nodes of the simulated cluster.
const NODES: i32 = 1;

/// The next status of a `DaemonSet`.
pub(super) fn step(look: &Look<'_>) -> Next {
    let object = look.object;
    let mut status = object.get("status").cloned().unwrap_or_else(|| json!({}));
    if status["observedGeneration"] != object["metadata"]["generation"] {
        let first = status.get("observedGeneration").is_none();
        status["observedGeneration"] = object["metadata"]["generation"].clone();
        // These are there even when 0: the type requires them.
        status["desiredNumberScheduled"] = json!(NODES);
        status["currentNumberScheduled"] = json!(NODES);
        status["numberMisscheduled"] = json!(0);
        if first || look.new_template {
            status["numberReady"] = json!(0);
            set_number(&mut status, "updatedNumberScheduled", NODES);
            set_number(&mut status, "numberAvailable", 0);
            set_number(&mut status, "numberUnavailable", NODES);
        }
        return Next::Now(status);
    }
    let ready = number(&status, "numberReady");
    if ready == NODES || look.failure.is_some_and(|f| ready >= f.ready_at_most()) {
        return Next::Settled;
    }
    status["numberReady"] = json!(ready + 1);
    set_number(&mut status, "numberAvailable", ready + 1);
    set_number(&mut status, "numberUnavailable", NODES - ready - 1);
    Next::Paced(status)
}

#[cfg(test)]
mod tests {
    use super::super::failure::Failure;
    use super::*;

    #[test]
    fn the_pod_becomes_ready_unless_it_fails() {
        let object =
            |status: serde_json::Value| json!({"metadata": {"generation": 1}, "status": status});
        let look = |object, failure| Look {
            object,
            new_template: true,
            template_hash: "h",
            failure,
        };
        let first = object(json!({}));
        let Next::Now(status) = step(&look(&first, None)) else {
            panic!("no step")
        };
        assert_eq!(status["numberUnavailable"], 1);
        let second = object(status);
        assert_eq!(
            step(&look(&second, Some(Failure::NeverReady))),
            Next::Settled
        );
        let Next::Paced(status) = step(&look(&second, None)) else {
            panic!("no step")
        };
        assert_eq!(
            (&status["numberReady"], status.get("numberUnavailable")),
            (&json!(1), None)
        );
        assert_eq!(step(&look(&object(status), None)), Next::Settled);
    }
}
