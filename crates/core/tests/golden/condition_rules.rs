//! `conditions.json`: the records of condition rules.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use muster_api::work::ConditionRule;
use muster_core::condition_rules::{MANIFEST_BUDGET, RulePlan};
use muster_core::manifest::Gvk;
use serde_json::Value;

use crate::{check_all, expect_same, load, section, text};

const DATA: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/golden/conditions.json"
));

/// Records that end otherwise here, with what they end in.
const OURS: &[(&str, &str, &str, &str)] = &[
    // A Job without a status is not finished.
    (
        "co020",
        "False",
        "ConditionRuleEvaluated",
        "Job is not finished",
    ),
    // A rule without expressions is no rule.
    (
        "co138",
        "Unknown",
        "ConditionRuleInvalid",
        "conditionRules.celExpressions: a rule of type CEL needs an expression",
    ),
    // Text of the library.
    (
        "co211",
        "False",
        "ConditionRuleExpressionError",
        "sum: cannot sum values of this type",
    ),
    // Types are not checked before the evaluation: values of two types are not equal.
    (
        "co205",
        "False",
        "ConditionRuleEvaluated",
        "Manifest is not Ready",
    ),
];

/// Texts of the CEL runtime that are its own business, by what upstream says.
const RUNTIME_TEXTS: &[&str] = &[
    "no such key",
    "no such overload",
    "division by zero",
    "modulus by zero",
    "integer overflow",
    "index out of bounds",
];

fn evaluate(objects: &Value, record: &Value) -> Vec<Condition> {
    let object = &objects[text(record, "object")];
    let rules: Vec<ConditionRule> = serde_json::from_value(record["rules"].clone()).unwrap();
    let plan = RulePlan::compile(&rules, Gvk::of(object));
    let budget = record["budget"].as_u64().unwrap_or(MANIFEST_BUDGET);
    let conditions = plan.evaluate_within(budget, object, 3, Timestamp::UNIX_EPOCH);
    assert_eq!(plan.is_empty(), conditions.is_empty());
    conditions
}

#[test]
fn rules_give_the_conditions_of_the_reference() {
    let data = load(DATA);
    check_all(section(&data, "records"), 265, |record| {
        let id = text(record, "id");
        let ours = evaluate(&data["objects"], record);
        if let Some((_, status, reason, message)) = OURS.iter().find(|(known, ..)| *known == id) {
            let [condition] = ours.as_slice() else {
                return Err(format!("{} conditions", ours.len()));
            };
            let got = (&*condition.status, &*condition.reason, &*condition.message);
            return expect_same(&(*status, *reason, *message), &got);
        }
        let expected = section(record, "conditions");
        expect_same(&expected.len(), &ours.len())?;
        for ((expected, kind), ours) in expected
            .iter()
            .zip(section(record, "messageKind"))
            .zip(&ours)
        {
            let upstream = text(expected, "message");
            let exactly = kind == "fixed"
                || kind == "celCost"
                || RUNTIME_TEXTS
                    .iter()
                    .any(|known| upstream.starts_with(known));
            let message = if exactly { upstream } else { &*ours.message };
            expect_same(
                &(
                    text(expected, "type"),
                    text(expected, "status"),
                    text(expected, "reason"),
                    message,
                ),
                &(&*ours.type_, &*ours.status, &*ours.reason, &*ours.message),
            )?;
            expect_same(&Some(3), &ours.observed_generation)?;
        }
        Ok(())
    });
}
