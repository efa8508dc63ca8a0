//! Jobs: the server completes them, and most of what is in them cannot be changed.
//!
//! | Rows | Story |
//! |---|---|
//! | case C015 | `an_unchanged_job_is_left_alone_and_a_changed_one_is_told` |

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::support::agent::Agent;
use crate::support::live::state;
use crate::support::works::{manifest_condition, manifests};
use crate::support::{Story, World};

pub(crate) fn stories() -> Vec<Story> {
    on_each_backend![an_unchanged_job_is_left_alone_and_a_changed_one_is_told]
}

/// Objects created, objects changed, and passes with a failure, as the agent counts them.
async fn writes(agent: &Agent) -> Result<String> {
    let applied = "muster_agent_apply_writes_total";
    let passes = "muster_agent_reconciles_total";
    let created = agent.metric(applied, "write=\"create\"").await?;
    let changed = agent.metric(applied, "write=\"update\"").await?;
    let failed = agent.metric(passes, "result=\"failed\"").await?;
    // The sum of nothing is -0.
    let [created, changed, failed] = [created, changed, failed].map(f64::abs);
    Ok(format!(
        "created {created}, changed {changed}, failed {failed}"
    ))
}

async fn an_unchanged_job_is_left_alone_and_a_changed_one_is_told(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    let spec = |image: &str, parallelism: Option<u32>, data: Value| {
        let mut job = agent.job("pi");
        job["spec"]["template"]["spec"]["containers"][0]["image"] = image.into();
        if let Some(parallelism) = parallelism {
            job["spec"]["parallelism"] = parallelism.into();
        }
        manifests([job, agent.config_map("cm", data)])
    };
    let (first, second) = ("example/main:1", "example/main:2");
    agent
        .applied("work", spec(first, None, json!({"a": "1"})))
        .await?;

    let job = agent.object("jobs", "pi");
    let before = job.get().await?;
    let uid = &before["metadata"]["uid"];
    let selector = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}});
    ensure!(before["spec"]["selector"] == selector, "{before}");
    let labels = json!({
        "controller-uid": uid, "batch.kubernetes.io/controller-uid": uid,
        "job-name": "pi", "batch.kubernetes.io/job-name": "pi"});
    let on_pods = &before["spec"]["template"]["metadata"]["labels"];
    ensure!(
        *on_pods == labels && before["metadata"]["labels"] == labels,
        "{before}"
    );

    let expected = "created 2, changed 0, failed 0";
    let written = writes(&agent).await?;
    ensure!(written == expected, "{written}");
    agent.looks_again("work", 3).await?;
    agent.settled("work").await?;
    let written = writes(&agent).await?;
    ensure!(written == expected, "{written}");
    ensure!(state(&job.get().await?) == state(&before), "{before}");

    agent
        .edit("work", spec(second, None, json!({"a": "2"})))
        .await?;
    let all = [("Applied", "FT"), ("Available", "TT")];
    let work = agent.shows("work", &all).await?;
    let applied = manifest_condition(&work, 0, "Applied")?;
    let message = applied["message"].as_str().unwrap_or_default();
    ensure!(
        message.contains("Job.batch \"pi\" is invalid: spec.template: Invalid value: ")
            && message.ends_with(": field is immutable"),
        "{applied}"
    );
    agent.cm("cm").has_data(json!({"a": "2"})).await?;
    agent.looks_again("work", 1).await?;
    ensure!(
        state(&job.get().await?) == state(&before),
        "neither changed nor made anew"
    );

    // What may change of a Job is changed.
    agent
        .edit("work", spec(first, Some(2), json!({"a": "2"})))
        .await?;
    agent.settled("work").await?;
    let live = job.get().await?;
    ensure!(
        live["metadata"]["uid"] == *uid && live["spec"]["parallelism"] == 2,
        "{live}"
    );
    Ok(())
}
