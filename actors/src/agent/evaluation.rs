//! Conditions by rules, evaluated aside.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use muster_api::work::ConditionRule;
use muster_core::condition_rules::{EVALUATION_DEADLINE, RulePlan};
use muster_core::manifest::Gvk;
use serde_json::Value;

/// Compiles rules on a thread where nobody else waits: parsing them takes a while.
pub(super) async fn compile_rules(rules: &[ConditionRule], gvk: Gvk<'_>) -> RulePlan {
    if rules.is_empty() {
        return RulePlan::default();
    }
    let rules = rules.to_vec();
    let gvk = [gvk.group, gvk.version, gvk.kind].map(ToOwned::to_owned);
    let compile = move || {
        let [group, version, kind] = &gvk;
        RulePlan::compile(
            &rules,
            Gvk {
                group,
                version,
                kind,
            },
        )
    };
    match tokio::task::spawn_blocking(compile).await {
        Ok(plan) => plan,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => std::future::pending().await, // the process is ending
        },
    }
}

/// Evaluates rules on a thread where nobody else waits: they may be hostile.
pub(super) async fn derive_conditions(
    rules: RulePlan,
    object: Value,
    generation: i64,
) -> Option<Vec<Condition>> {
    let now = Timestamp::now();
    if rules.is_empty() {
        return None;
    }
    let plan = rules.clone();
    let evaluation = tokio::task::spawn_blocking(move || plan.evaluate(&object, generation, now));
    let why = match tokio::time::timeout(EVALUATION_DEADLINE, evaluation).await {
        Ok(Ok(conditions)) => return Some(conditions),
        Ok(Err(error)) if error.is_panic() => "the evaluation failed".to_owned(),
        Ok(Err(_)) => return None, // the process is ending
        Err(_) => format!("no result within {} s", EVALUATION_DEADLINE.as_secs()),
    };
    Some(rules.unknown(&why, generation, now))
}
