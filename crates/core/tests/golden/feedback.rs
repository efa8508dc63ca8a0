//! `feedback.json`: feedback rules against objects, one at a time and all of a manifest.

use jiff::Timestamp;
use muster_api::work::{FeedbackRule, FeedbackValue};
use muster_core::feedback::{
    Feedback, FeedbackLimits, FeedbackPlan, feedback_condition, join_errors,
};
use serde_json::{Value, json};

use crate::{check_all, expect_same, load, section, text};

const DATA: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/golden/feedback.json"
));

/// What we give, on purpose, where the reference gives something else.
fn departure(id: &str) -> Option<(Value, Option<&'static str>)> {
    let integer =
        |name: &str, value: i64| json!({"name": name, "type": "Integer", "integer": value});
    let string = |name: &str, value: &str| json!({"name": name, "type": "String", "string": value});
    let raw = |name: &str, json: &str| json!({"name": name, "type": "JsonRaw", "jsonRaw": json});
    let ready = json!([integer("ReadyReplicas", 3), integer("Replicas", 3)]);
    let replicas = [
        ("ReadyReplicas", 2),
        ("Replicas", 3),
        ("AvailableReplicas", 2),
    ];
    Some(match id {
        // Kinds for which we have well-known values and the reference has none.
        "fb038" => (ready, None),
        "fb039" => (json!([string("LoadBalancerIP", "203.0.113.10")]), None),
        "fs09" => (
            json!([
                string("LoadBalancerIP", "203.0.113.10"),
                string("LoadBalancerHostname", "lb.example.org")
            ]),
            None,
        ),
        "fs10" => (
            json!([
                string("LoadBalancerIP", "203.0.113.10"),
                string("LoadBalancerHostname", "lb.example.org"),
                string("ip", "10.96.12.7"),
            ]),
            None,
        ),
        "fb024" => (json!([integer("JobSucceeded", 1)]), None),
        "fb235" => (
            json!([]),
            Some(
                "[failed to parse json path [ of a with error: unterminated array, \
                 failed to find value for b with error: not in range, nothing to end, \
                 failed to parse json path ..x[0 of c with error: unterminated array]",
            ),
        ),
        // A kind without well-known values has those that any kind may have, or none.
        "fb014" | "fb015" => (
            json!([
                integer("ReadyReplicas", 2),
                integer("Replicas", 3),
                integer("AvailableReplicas", 1)
            ]),
            None,
        ),
        "fb031" | "fb037" | "fb040" | "fb041" | "fb042"
        // A wildcard on a text gives nothing, not its bytes.
        | "fb160" | "fb161"
        // Null, missing and empty are one thing, and no error. (The reference crashes at the last
        // four.)
        | "fb092" | "fb093" | "fb172" | "fb173" | "fb182" | "fb183" | "fb184" | "fb185" => {
            (json!([]), None)
        }
        // Integers beyond 64 bits signed keep their digits, or are errors.
        "fb045" => (
            json!([
                integer("ReadyReplicas", i64::MAX),
                integer("Replicas", -1),
                raw("AvailableReplicas", "9223372036854775808"),
            ]),
            None,
        ),
        "fb059" => (json!([raw("v", "9223372036854775808")]), None),
        "fb013" => (
            json!([integer("ReadyReplicas", i64::MAX), integer("Replicas", -1)]),
            Some(
                "the value for AvailableReplicas is an integer beyond 64 bits signed, but only a \
                 string, a boolean or an integer of 64 bits can be reported without the feature \
                 gate RawFeedbackJsonString",
            ),
        ),
        "fb058" => (
            json!([]),
            Some(
                "the value for v is an integer beyond 64 bits signed, but only a string, a boolean \
                 or an integer of 64 bits can be reported without the feature gate \
                 RawFeedbackJsonString",
            ),
        ),
        // The first of several values that is not null.
        "fb126" => (json!([integer("v", 1)]), None),
        "fb061" | "fb203" => (
            json!([]),
            Some("the value for v holds a number beyond 64 bits, whose digits are not all known"),
        ),
        // Limits are unsigned here; the reference's flag admits -1.
        "fb208" => (
            json!([]),
            Some(
                "the length of returned json raw string for name m is larger than the maximum length 0",
            ),
        ),
        // The second value of a name would make the API server refuse the status.
        "fb221" | "fb222" => (
            json!([integer("a", 3)]),
            Some("the value name a is used more than once"),
        ),
        "fs13" => (
            replicas
                .iter()
                .map(|(name, value)| integer(name, *value))
                .collect(),
            Some("the value name ReadyReplicas is used more than once"),
        ),
        _ => return None,
    })
}

/// An error of the reference in our words: ours say what was found and what can be reported.
fn in_our_words(error: &str) -> String {
    const FOUND: [(&str, &str); 4] = [
        ("map[string]interface {}", "an object"),
        ("[]interface {}", "a list"),
        ("float64", "a floating-point number"),
        ("int", "a number of the path itself"),
    ];
    let parts = error.split("the type ").map(|part| {
        let ours = FOUND.iter().find_map(|(go, ours)| {
            let rest = part.strip_prefix(go)?.strip_prefix(" of the value for ")?;
            let (name, rest) = rest.split_once(" is not found")?;
            Some(format!(
                "the value for {name} is {ours}, but only a string, a boolean or an integer of 64 \
                 bits can be reported without the feature gate RawFeedbackJsonString{rest}"
            ))
        });
        ours.unwrap_or_else(|| part.to_owned())
    });
    parts.collect()
}

#[test]
fn every_rule_gives_what_the_reference_gives() {
    let data = load(DATA);
    check_all(section(&data, "records"), 238, |record| {
        let (values, error) = evaluate(&data, record, &json!([record["rule"]]));
        if let Some(outcomes) = record["outcomes"].as_array() {
            // Random in the reference; ours is one of its outcomes, always the same.
            let ours = json!({"values": values, "error": error});
            let is_ours = |outcome: &Value| {
                let words = outcome["error"].as_str().map(in_our_words);
                json!({"values": outcome["values"], "error": words}) == ours
            };
            return if outcomes.iter().any(is_ours) {
                Ok(())
            } else {
                Err(ours.to_string())
            };
        }
        let reference = || {
            let error = record["error"].as_str().map(in_our_words);
            (record["values"].clone(), error)
        };
        let expected = departure(text(record, "id")).map_or_else(reference, |(values, error)| {
            (values, error.map(str::to_owned))
        });
        expect_same(&expected, &(values, error))
    });
}

#[test]
fn every_sync_gives_the_condition_of_the_reference() {
    let data = load(DATA);
    check_all(section(&data, "syncs"), 16, |record| {
        let (values, error) = evaluate(&data, record, &record["rules"]);
        let plan = plan(&record["rules"]);
        let feedback = Feedback {
            notes: Vec::new(),
            errors: Vec::from_iter(error.clone()),
            ..Feedback::default()
        };
        let condition = feedback_condition(&plan, &feedback, Timestamp::UNIX_EPOCH);
        let condition = json!({
            "type": condition.type_, "status": condition.status,
            "reason": condition.reason, "message": condition.message,
        });
        let Some((departed, error)) = departure(text(record, "id")) else {
            let mut reference = record["condition"].clone();
            if let Some(message) = reference["message"].as_str() {
                reference["message"] = in_our_words(message).into();
            }
            return expect_same(&(&record["values"], &reference), &(&values, &condition));
        };
        expect_same(
            &(&departed, error.is_none()),
            &(&values, condition["status"] == "True"),
        )
    });
}

fn plan(rules: &Value) -> FeedbackPlan {
    let rules: Option<Vec<FeedbackRule>> = serde_json::from_value(rules.clone()).unwrap();
    FeedbackPlan::compile(&rules.unwrap_or_default())
}

fn evaluate(data: &Value, record: &Value, rules: &Value) -> (Value, Option<String>) {
    let limits = FeedbackLimits {
        raw_json: record["rawJson"] == true,
        max_json_raw_bytes: usize::try_from(record["maxRaw"].as_i64().unwrap()).unwrap_or(0),
    };
    let object = &data["objects"][text(record, "object")];
    let feedback = plan(rules).evaluate(object, limits);
    let error = (!feedback.errors.is_empty()).then(|| join_errors(&feedback.errors));
    (plain(&feedback.values), error)
}

/// The values in the form of the records.
fn plain(values: &[FeedbackValue]) -> Value {
    let flat = |value: &FeedbackValue| {
        let mut flat = serde_json::to_value(&value.value).unwrap();
        flat["name"] = value.name.clone().into();
        flat
    };
    values.iter().map(flat).collect()
}
