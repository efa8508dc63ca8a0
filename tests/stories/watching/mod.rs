//! Live feedback: objects that are watched, and how many watches that takes.
//!
//! Polls are an hour apart unless a story says otherwise: what is seen, a watch has brought.
//!
//! | Case | Story |
//! |---|---|
//! | C045 | `changes::c045_a_deleted_object_is_told_and_made_anew` |
//! | C048 | `slots::c048_what_does_not_fit_is_polled_until_a_slot_is_free`, `slots::c048_what_waits_for_a_slot_is_up_to_date_at_each_poll` |
//! | C049 | `slots::c049_two_works_share_a_watch_that_ends_with_the_second` |
//! | C050 | `slots::c050_a_watch_ends_with_its_reason` |
//! | C052 | `changes::c052_cluster_scoped_objects_are_watched` |
//! | C053 | `changes::c053_a_restless_object_is_no_stream_of_patches` |
//! | C142 | `trouble::c142_what_happens_while_the_cluster_is_away_is_told` |
//! | C145 | `trouble::c145_connections_that_fall_silent_are_given_up` |
//!
//! F12 and F13 of upstream's tests are told in `conformance::feedback`.

mod changes;
mod rollout;
mod slots;
mod trouble;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::support::agent::Agent;
use crate::support::works::{condition, manifest, manifests, shows, values};
use crate::support::{Story, World, eventually, live::LIMIT};

pub(crate) fn stories() -> Vec<Story> {
    let mut stories = changes::stories();
    stories.extend(rollout::stories());
    stories.extend(slots::stories());
    stories.extend(trouble::stories());
    stories
}

const SYNCED: &str = "StatusFeedbackSynced";

const NO_POLL: &str = "--status-sync-interval=1h";

/// An agent that does not poll as long as a story lasts.
async fn watching(world: &World) -> Result<Agent> {
    Agent::start_with(world, &[NO_POLL]).await
}

/// A rule with a path for each name.
fn paths(paths: &[(&str, &str)]) -> Value {
    let paths: Vec<_> = paths
        .iter()
        .map(|(name, path)| json!({"name": name, "path": path}))
        .collect();
    json!([{"type": "JSONPaths", "jsonPaths": paths}])
}

/// The option that has an object watched for these paths.
fn watched(agent: &Agent, group: &str, resource: &str, name: &str, read: &[(&str, &str)]) -> Value {
    let config = json!({"feedbackScrapeType": "Watch", "feedbackRules": paths(read)});
    agent.configure(group, resource, name, config)
}

/// A work's spec with options.
fn spec(objects: impl Into<Vec<Value>>, configs: impl Into<Vec<Value>>) -> Value {
    let mut spec = manifests(objects);
    spec["manifestConfigs"] = Value::from(configs.into());
    spec
}

/// A config map that is watched for its value `v`.
fn map(agent: &Agent, name: &str, value: &str) -> Value {
    let object = agent.config_map(name, json!({"v": value}));
    spec(
        [object],
        [watched(agent, "", "configmaps", name, &[("v", ".data.v")])],
    )
}

/// Waits until the first manifest of a work reports exactly these values.
async fn reports(agent: &Agent, work: &str, expected: &[Value]) -> Result<Value> {
    let what = format!("work {work} to report {expected:?}");
    eventually(LIMIT, &what, || async {
        let work = agent.work(work).get().await?;
        let seen = values(&work, 0);
        ensure!(
            seen.as_array().is_some_and(|seen| seen == expected),
            "{seen}"
        );
        Ok(work)
    })
    .await
}

/// Waits until the first manifest of a work says this about how its values come; that is never an
/// error.
async fn says(agent: &Agent, work: &str, wanted: impl Fn(&str) -> bool) -> Result<String> {
    eventually(
        LIMIT,
        &format!("work {work} to say how it is watched"),
        || async {
            let work = agent.work(work).get().await?;
            shows(&work, SYNCED, "T")?;
            let synced = condition(&manifest(&work, 0)["conditions"], SYNCED);
            let message = synced.and_then(|synced| synced["message"].as_str());
            let message = message.unwrap_or_default().to_owned();
            ensure!(wanted(&message), "{message:?}");
            Ok(message)
        },
    )
    .await
}
