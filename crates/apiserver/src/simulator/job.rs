//! Jobs: one completion after the other, then Complete or Failed.

use serde_json::{Value, json};

use super::conditions::{number, set, set_number};
use super::driver::{Look, Next};
use crate::object;

/// The next status of a Job.
pub(super) fn step(look: &Look<'_>) -> Next {
    let spec = &look.object["spec"];
    let mut status = look
        .object
        .get("status")
        .cloned()
        .unwrap_or_else(|| json!({}));
    let over = status["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|c| (c["type"] == "Complete" || c["type"] == "Failed") && c["status"] == "True");
    if over || spec["suspend"] == true {
        return Next::Settled;
    }
    let int = |value: &Value, otherwise: i32| {
        value
            .as_i64()
            .and_then(|n| i32::try_from(n).ok())
            .unwrap_or(otherwise)
    };
    let parallel = int(&spec["parallelism"], 1);
    let wanted = int(&spec["completions"], parallel);
    let succeeded = number(&status, "succeeded");
    if status.get("startTime").is_none() {
        status["startTime"] = json!(object::now());
        active(&mut status, parallel.min(wanted));
        return Next::Now(status);
    }
    if succeeded >= wanted {
        set_with_probe(
            &mut status,
            "SuccessCriteriaMet",
            "CompletionsReached",
            "Reached expected number of succeeded pods",
        );
        set_with_probe(
            &mut status,
            "Complete",
            "CompletionsReached",
            "Reached expected number of succeeded pods",
        );
        status["completionTime"] = json!(object::now());
        active(&mut status, 0);
        return Next::Now(status);
    }
    if look.failure.is_some_and(|f| succeeded >= f.ready_at_most()) {
        let message = "Job has reached the specified backoff limit";
        set_number(&mut status, "failed", int(&spec["backoffLimit"], 6) + 1);
        set_with_probe(
            &mut status,
            "FailureTarget",
            "BackoffLimitExceeded",
            message,
        );
        set_with_probe(&mut status, "Failed", "BackoffLimitExceeded", message);
        active(&mut status, 0);
        return Next::Paced(status);
    }
    set_number(&mut status, "succeeded", succeeded + 1);
    active(&mut status, parallel.min(wanted - succeeded - 1));
    Next::Paced(status)
}

fn active(status: &mut Value, pods: i32) {
    set_number(status, "active", pods);
    // The API server of 1.36 wants these for finished jobs.
    status["ready"] = json!(pods);
    status["terminating"] = json!(0);
    status["uncountedTerminatedPods"] = json!({});
}

/// Job conditions have a probe time where others have an update time.
fn set_with_probe(status: &mut Value, kind: &str, reason: &str, message: &str) {
    set(status, kind, "True", reason, message);
    for condition in status["conditions"].as_array_mut().into_iter().flatten() {
        if let Some(fields) = condition.as_object_mut()
            && let Some(time) = fields.remove("lastUpdateTime")
        {
            fields.insert("lastProbeTime".to_owned(), time);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::failure::Failure;
    use super::*;

    fn run(failure: Option<Failure>) -> Value {
        let mut object = json!({"spec": {"parallelism": 2, "completions": 3, "backoffLimit": 1}});
        for _ in 0..20 {
            let look = Look {
                object: &object,
                new_template: true,
                template_hash: "h",
                failure,
            };
            match step(&look) {
                Next::Now(status) | Next::Paced(status) => object["status"] = status,
                Next::Settled | Next::After(..) => return object["status"].take(),
            }
        }
        panic!("never settled");
    }

    fn last_condition(status: &Value) -> (&str, &str) {
        let last = status["conditions"].as_array().unwrap().last().unwrap();
        (
            last["type"].as_str().unwrap(),
            last["reason"].as_str().unwrap(),
        )
    }

    #[test]
    fn jobs_complete_or_fail() {
        let done = run(None);
        assert_eq!(last_condition(&done), ("Complete", "CompletionsReached"));
        assert_eq!((&done["succeeded"], done.get("active")), (&json!(3), None));
        assert!(done["completionTime"].is_string());
        let failed = run(Some(Failure::CrashAfter(1)));
        assert_eq!(last_condition(&failed), ("Failed", "BackoffLimitExceeded"));
        assert_eq!(
            (&failed["succeeded"], &failed["failed"]),
            (&json!(1), &json!(2))
        );
    }
}
