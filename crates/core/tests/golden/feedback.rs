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
    let ready = json!([integer("ReadyReplicas", 3), integer("Replicas", 3)]);
    let replicas = [
        ("ReadyReplicas", 2),
        ("Replicas", 3),
        ("AvailableReplicas", 2),
    ];
    let no_element =
        "failed to find value for v with error: range has no element to take a value from";
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
        // A wildcard on a text gives nothing, not its bytes.
        "fb160" | "fb161" => (json!([]), None),
        // The reference crashes.
        "fb182" | "fb183" => (
            json!([]),
            Some("failed to find value for v with error: <nil> is not array or slice"),
        ),
        "fb184" | "fb185" => (json!([]), Some(no_element)),
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

#[test]
fn every_rule_gives_what_the_reference_gives() {
    let data = load(DATA);
    check_all(section(&data, "records"), 238, |record| {
        let (values, error) = evaluate(&data, record, &json!([record["rule"]]));
        if let Some(outcomes) = record["outcomes"].as_array() {
            // Random in the reference; ours is one of its outcomes, always the same.
            let ours = json!({"values": values, "error": error});
            return if outcomes.contains(&ours) {
                Ok(())
            } else {
                Err(ours.to_string())
            };
        }
        let reference = || (record["values"].clone(), record["error"].as_str());
        let expected = departure(text(record, "id")).unwrap_or_else(reference);
        expect_same(&expected, &(values, error.as_deref()))
    });
}

#[test]
fn every_sync_gives_the_condition_of_the_reference() {
    let data = load(DATA);
    check_all(section(&data, "syncs"), 16, |record| {
        let (values, error) = evaluate(&data, record, &record["rules"]);
        let plan = plan(&record["rules"]);
        let feedback = Feedback {
            note: None,
            errors: Vec::from_iter(error.clone()),
            ..Feedback::default()
        };
        let condition = feedback_condition(&plan, &feedback, Timestamp::UNIX_EPOCH);
        let condition = json!({
            "type": condition.type_, "status": condition.status,
            "reason": condition.reason, "message": condition.message,
        });
        let Some((departed, error)) = departure(text(record, "id")) else {
            return expect_same(
                &(&record["values"], &record["condition"]),
                &(&values, &condition),
            );
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
