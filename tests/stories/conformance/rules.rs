//! Group C: conditions that works derive from their objects.
//!
//! | Rows | Story |
//! |---|---|
//! | C01, C02 | `c01_c02_a_job_tells_that_it_is_finished` |
//! | C03, C04 | `c03_c04_an_expression_makes_a_condition_and_its_message` |
//! | C05 | `c05_an_unknown_well_known_condition_is_none` |
//! | C06 | `c06_each_object_has_its_own_condition` |
//! | C07 | `c07_the_first_matching_rules_win_and_a_bad_expression_is_told` |
//! | C08 | in each: applied and available stay True |
//! | W35 | `w35_a_work_is_complete_when_its_rule_says_so` |
//! | case C016 | `a_finished_job_is_not_made_again` |
//! | case C043 | `expressions_that_fail_give_conditions_that_say_so` |
//! | case C044 | `one_manifest_in_progress_keeps_the_work_in_progress` |

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::support::agent::Agent;
use crate::support::live::LIMIT;
use crate::support::works::{manifest_condition, manifests, shows, work_condition};
use crate::support::{Story, World, eventually};

pub(crate) fn stories() -> Vec<Story> {
    on_each_backend![
        c01_c02_a_job_tells_that_it_is_finished,
        c03_c04_an_expression_makes_a_condition_and_its_message,
        c05_an_unknown_well_known_condition_is_none,
        c06_each_object_has_its_own_condition,
        c07_the_first_matching_rules_win_and_a_bad_expression_is_told,
        a_finished_job_is_not_made_again,
        expressions_that_fail_give_conditions_that_say_so,
        one_manifest_in_progress_keeps_the_work_in_progress,
        w35_a_work_is_complete_when_its_rule_says_so,
    ]
}

const EVALUATED: &str = "ConditionRuleEvaluated";
const EXPRESSION_ERROR: &str = "ConditionRuleExpressionError";

fn complete() -> Value {
    json!({"type": "WellKnownConditions", "condition": "Complete"})
}

fn cel(condition: &str, expression: &str) -> Value {
    json!({"type": "CEL", "condition": condition, "celExpressions": [expression]})
}

/// Jobs with these names, and configs of (names, rules).
fn jobs(agent: &Agent, names: &[&str], configs: &[(&str, Value)]) -> Value {
    let jobs: Vec<_> = names.iter().map(|name| agent.job(name)).collect();
    let configs: Vec<_> = configs
        .iter()
        .map(|(name, rules)| {
            let rules = json!({"conditionRules": rules});
            let mut config = agent.configure("batch", "jobs", name, rules);
            config["resourceIdentifier"]["namespace"] = "*".into();
            config
        })
        .collect();
    let mut spec = manifests(jobs);
    spec["manifestConfigs"] = configs.into();
    spec
}

/// Status of a Job with that many running Pods.
async fn runs(agent: &Agent, job: &str, active: i64) -> Result<()> {
    let status = json!({"active": active, "startTime": "2026-01-02T03:04:05Z"});
    agent.object("jobs", job).set_status(status).await?;
    Ok(())
}

/// Status of a Job that is done.
async fn finishes(agent: &Agent, job: &str) -> Result<()> {
    let time = "2026-01-02T03:05:05Z";
    let condition = |kind: &str| {
        json!({"type": kind, "status": "True", "reason": "CompletionsReached", "message": "",
            "lastProbeTime": time, "lastTransitionTime": time})
    };
    let status = json!({
        "active": 0, "ready": 0, "succeeded": 1, "completionTime": time,
        "startTime": "2026-01-02T03:04:05Z", "uncountedTerminatedPods": {},
        "conditions": [condition("SuccessCriteriaMet"), condition("Complete")]});
    agent.object("jobs", job).set_status(status).await?;
    Ok(())
}

/// Waits until one manifest has a condition with these values, for the newest spec, and
/// everything is applied and available.
async fn tells(
    agent: &Agent,
    work: &str,
    ordinal: usize,
    kind: &str,
    status: &str,
    reason: &str,
) -> Result<Value> {
    let what = format!("manifest {ordinal} of {work} to tell {kind} {status} {reason}");
    eventually(LIMIT, &what, || async {
        let work = agent.work(work).get().await?;
        let condition = manifest_condition(&work, ordinal, kind)?;
        ensure!(
            condition["status"] == status
                && condition["reason"] == reason
                && condition["observedGeneration"] == work["metadata"]["generation"],
            "{condition}"
        );
        let all = work["spec"]["workload"]["manifests"].as_array();
        let all = "T".repeat(all.map_or(0, Vec::len));
        shows(&work, "Applied", &all)?;
        shows(&work, "Available", &all)?;
        Ok(work)
    })
    .await
}

async fn c01_c02_a_job_tells_that_it_is_finished(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    let spec = jobs(&agent, &["job1"], &[("job1", json!([complete()]))]);
    agent.applied("work", spec).await?;
    runs(&agent, "job1", 1).await?;
    let work = tells(&agent, "work", 0, "Complete", "False", EVALUATED).await?;
    let condition = manifest_condition(&work, 0, "Complete")?;
    ensure!(condition["message"] == "Job is not finished", "{condition}");
    shows(&work, "Complete", "F")?;

    finishes(&agent, "job1").await?;
    let work = tells(&agent, "work", 0, "Complete", "True", EVALUATED).await?;
    shows(&work, "Complete", "T")?;
    let condition = work_condition(&work, "Complete")?;
    ensure!(
        condition["reason"] == "ConditionRulesAggregated"
            && condition["message"] == "Job is finished",
        "{condition}"
    );
    Ok(())
}

async fn c03_c04_an_expression_makes_a_condition_and_its_message(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    let mut rule = cel("OneActive", "object.status.active == 1");
    rule["messageExpression"] =
        "result ? 'One pod is active' : 'There is not only one pod active'".into();
    let spec = jobs(&agent, &["job1"], &[("*1", json!([rule]))]);
    agent.applied("work", spec).await?;
    for (active, status, message) in [
        (3, "False", "There is not only one pod active"),
        (1, "True", "One pod is active"),
    ] {
        runs(&agent, "job1", active).await?;
        let work = tells(&agent, "work", 0, "OneActive", status, EVALUATED).await?;
        let condition = manifest_condition(&work, 0, "OneActive")?;
        ensure!(condition["message"] == message, "{condition}");
    }
    Ok(())
}

async fn c05_an_unknown_well_known_condition_is_none(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    let rules = json!([
        {"type": "WellKnownConditions", "condition": "NotWellKnown"},
        complete()]);
    let spec = jobs(&agent, &["job1"], &[("job1", rules)]);
    agent.applied("work", spec).await?;
    runs(&agent, "job1", 1).await?;
    let work = tells(&agent, "work", 0, "Complete", "False", EVALUATED).await?;
    shows(&work, "NotWellKnown", "-")
}

async fn c06_each_object_has_its_own_condition(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    let spec = jobs(&agent, &["job1", "job2"], &[("job*", json!([complete()]))]);
    agent.applied("work", spec).await?;
    runs(&agent, "job1", 1).await?;
    runs(&agent, "job2", 1).await?;
    finishes(&agent, "job2").await?;
    tells(&agent, "work", 0, "Complete", "False", EVALUATED).await?;
    let work = tells(&agent, "work", 1, "Complete", "True", EVALUATED).await?;
    shows(&work, "Complete", "FT")?;
    let condition = work_condition(&work, "Complete")?;
    ensure!(
        condition["message"] == "Aggregated from 2 manifest conditions",
        "{condition}"
    );
    Ok(())
}

async fn c07_the_first_matching_rules_win_and_a_bad_expression_is_told(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    let bad = cel("Complete", "badexpression");
    let configs = [("job1", json!([complete()])), ("job*", json!([bad]))];
    let spec = jobs(&agent, &["job1", "job2"], &configs);
    agent.applied("work", spec).await?;
    runs(&agent, "job1", 1).await?;
    runs(&agent, "job2", 1).await?;
    tells(&agent, "work", 0, "Complete", "False", EVALUATED).await?;
    tells(&agent, "work", 1, "Complete", "False", EXPRESSION_ERROR).await?;
    Ok(())
}

async fn w35_a_work_is_complete_when_its_rule_says_so(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    let rule = cel(
        "Complete",
        "has(object.data.complete) && object.data.complete == 'true'",
    );
    let mut spec = manifests([agent.config_map("cm1", json!({"a": "b"}))]);
    let rules = json!({"conditionRules": [rule]});
    spec["manifestConfigs"] = json!([agent.configure("", "configmaps", "cm1", rules)]);
    agent.create("work", spec).await?;
    let work = tells(&agent, "work", 0, "Complete", "False", EVALUATED).await?;
    let condition = manifest_condition(&work, 0, "Complete")?;
    ensure!(
        condition["message"] == "Manifest is not Complete",
        "{condition}"
    );

    agent
        .cm("cm1")
        .merge(json!({"data": {"complete": "true"}}))
        .await?;
    let work = tells(&agent, "work", 0, "Complete", "True", EVALUATED).await?;
    shows(&work, "Complete", "T")?;
    let condition = work_condition(&work, "Complete")?;
    ensure!(
        condition["reason"] == "ConditionRulesAggregated"
            && condition["message"] == "Manifest is Complete",
        "{condition}"
    );
    // A complete work is left alone, and deleted like any other.
    agent
        .cm("cm1")
        .merge(json!({"data": {"a": "changed"}}))
        .await?;
    agent.looks_again("work", 2).await?;
    let live = agent.cm("cm1").get().await?;
    ensure!(live["data"]["a"] == "changed", "{live}");
    agent.work("work").delete().await?;
    agent.work("work").disappears().await?;
    agent.cm("cm1").is_absent().await
}

async fn a_finished_job_is_not_made_again(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    let spec = jobs(&agent, &["once"], &[("once", json!([complete()]))]);
    agent.applied("work", spec).await?;
    finishes(&agent, "once").await?;
    tells(&agent, "work", 0, "Complete", "True", EVALUATED).await?;
    // Its own time to live has come.
    let once = agent.object("jobs", "once");
    once.let_go().await?;
    once.delete().await?;
    if once.find().await?.is_some() {
        // Without a garbage collector the finalizer of a deletion that orphans stays.
        once.let_go().await?;
    }
    once.disappears().await?;
    agent.looks_again("work", 3).await?;
    once.is_absent().await?;
    let work = agent.work("work").get().await?;
    shows(&work, "Applied", "T")?;
    shows(&work, "Complete", "T")
}

async fn expressions_that_fail_give_conditions_that_say_so(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    let mut bad_message = cel("Message", "true");
    bad_message["messageExpression"] = "badcel".into();
    let rules = json!([
        cel(
            "NoBool",
            r#"object.status.conditions.filter(c, c.type=="Available")[0].status"#
        ),
        cel("NoKey", "object.missing"),
        bad_message
    ]);
    let mut spec = manifests([agent.deployment("deploy1", 1)]);
    let rules = json!({"conditionRules": rules});
    spec["manifestConfigs"] = json!([agent.configure("apps", "deployments", "deploy1", rules)]);
    agent.applied("work", spec).await?;
    let status = json!({"conditions": [{"type": "Available", "status": "True"}]});
    agent
        .object("deployments", "deploy1")
        .set_status(status)
        .await?;

    tells(&agent, "work", 0, "NoKey", "False", EXPRESSION_ERROR).await?;
    tells(&agent, "work", 0, "Message", "True", EVALUATED).await?;
    eventually(LIMIT, "the texts of the conditions", || async {
        let work = agent.work("work").get().await?;
        for (kind, text) in [
            ("NoBool", "expected bool result, got string"),
            ("NoKey", "no such key: missing"),
            ("Message", "ERROR"),
        ] {
            let condition = manifest_condition(&work, 0, kind)?;
            let message = condition["message"].as_str().unwrap_or_default();
            ensure!(message.contains(text), "{condition}");
        }
        Ok(())
    })
    .await
}

async fn one_manifest_in_progress_keeps_the_work_in_progress(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    let rules = json!({"conditionRules": [cel("Progressing", "object.data.busy == 'true'")]});
    let map = |name: &str, busy: &str| agent.config_map(name, json!({"busy": busy}));
    let mut spec = manifests([map("cm1", "true"), map("cm2", "false")]);
    spec["manifestConfigs"] = json!([agent.configure("", "configmaps", "*", rules)]);
    agent.create("work", spec).await?;
    tells(&agent, "work", 0, "Progressing", "True", EVALUATED).await?;
    let work = tells(&agent, "work", 1, "Progressing", "False", EVALUATED).await?;
    let progressing = work_condition(&work, "Progressing")?;
    ensure!(progressing["status"] == "True", "{progressing}");

    agent
        .edit(
            "work",
            manifests([map("cm1", "false"), map("cm2", "false")]),
        )
        .await?;
    let work = tells(&agent, "work", 0, "Progressing", "False", EVALUATED).await?;
    shows(&work, "Progressing", "FF")
}
