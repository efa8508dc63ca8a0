//! Group U: records whose work is gone from the hub, another hub, another agent.
//!
//! | Rows | Story |
//! |---|---|
//! | U01 | `u01_another_agent_of_another_hub_shares_the_objects` |
//! | U02 | `u02_the_same_agent_takes_its_objects_along_to_another_hub` |
//! | U03, W34 | `u03_w34_what_has_no_work_on_the_hub_goes_after_the_grace_period` |
//! | U04 | `u04_a_work_that_comes_back_in_time_keeps_its_record` |
//! | U05 | `u05_an_endless_grace_period_takes_the_eviction_back` |

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::support::agent::Agent;
use crate::support::live::{LIMIT, owners, state};
use crate::support::works::manifests;
use crate::support::{Story, World, eventually, unique_name};

pub(crate) fn stories() -> Vec<Story> {
    on_each_backend![
        u01_another_agent_of_another_hub_shares_the_objects,
        u02_the_same_agent_takes_its_objects_along_to_another_hub,
        u03_w34_what_has_no_work_on_the_hub_goes_after_the_grace_period,
        u04_a_work_that_comes_back_in_time_keeps_its_record,
        u05_an_endless_grace_period_takes_the_eviction_back,
    ]
}

const ENDLESS: &str = "876000h";

fn grace(period: &str) -> String {
    format!("[agent]\neviction_grace = \"{period}\"\n")
}

async fn start(world: &World, settings: &str) -> Result<Agent> {
    let mut agent = Agent::prepare(world, &[]).await?;
    agent.set(settings);
    agent.run().await?;
    Ok(agent)
}

fn cm1(agent: &Agent) -> Value {
    manifests([agent.config_map("cm1", json!({"a": "b"}))])
}

/// The work vanishes without its agent: as when its hub is restored from an older backup.
async fn remove_by_force(agent: &Agent) -> Result<()> {
    agent.work("work").let_go().await?;
    agent.work("work").delete().await?;
    agent.work("work").disappears().await
}

fn is_evicting(record: &Value) -> bool {
    record["status"]["evictionStartTime"].is_string()
}

async fn u01_another_agent_of_another_hub_shares_the_objects(world: World) -> Result<()> {
    let mut agent = start(&world, &grace("5s")).await?;
    agent.applied("work", cm1(&agent)).await?;
    let old = agent.record_name("work");
    agent.kill().await?;

    agent.move_hub().await?;
    agent.run().await?;
    let new = agent.record_name("work");
    ensure!(old != new, "{new}");
    agent
        .cm("cm1")
        .is("have two owners", |live| {
            owners(live) == [old.as_str(), new.as_str()]
        })
        .await?;
    agent.records("work", &["configmaps cm1"]).await?;
    agent.looks_again("work", 2).await?;
    let record = agent.record_named(&old).get().await?;
    ensure!(!is_evicting(&record), "another agent's: {record}");
    Ok(())
}

async fn u02_the_same_agent_takes_its_objects_along_to_another_hub(world: World) -> Result<()> {
    let agent_id = unique_name("agent-id");
    let settings = format!("{}agent_id = \"{agent_id}\"\n", grace("5s"));
    let mut agent = start(&world, &settings).await?;
    agent.applied("work", cm1(&agent)).await?;
    let old = agent.record_name("work");
    let uid = agent.cm("cm1").get().await?["metadata"]["uid"].clone();
    agent.kill().await?;

    agent.move_hub().await?;
    agent.run().await?;
    agent.record_named(&old).disappears().await?;
    let live = agent.cm("cm1").get().await?;
    ensure!(
        live["metadata"]["uid"] == uid && owners(&live) == [agent.record_name("work")],
        "{live}"
    );
    agent.records("work", &["configmaps cm1"]).await?;
    Ok(())
}

async fn u03_w34_what_has_no_work_on_the_hub_goes_after_the_grace_period(
    world: World,
) -> Result<()> {
    let mut agent = start(&world, &grace("10s")).await?;
    agent.applied("work", cm1(&agent)).await?;
    // W34: a record that never had a work.
    let hash = agent.hub_hash();
    let fake = json!({
        "apiVersion": "work.open-cluster-management.io/v1", "kind": "AppliedManifestWork",
        "metadata": {"name": agent.record_name("fakework")},
        "spec": {"hubHash": hash, "agentID": hash, "manifestWorkName": "fakework"}});
    agent.record("fakework").create(&fake).await?;
    agent
        .record("fakework")
        .is("be evicted", is_evicting)
        .await?;

    agent.kill().await?;
    remove_by_force(&agent).await?;
    agent.run().await?;
    agent.record("work").is("be evicted", is_evicting).await?;
    let evicting = "muster_agent_evicting_works";
    let waiting = agent.metric(evicting, "").await?;
    ensure!(waiting >= 1.0, "{waiting} evictions");
    agent.cm("cm1").get().await?;
    agent.record("fakework").disappears().await?;
    agent.record("work").disappears().await?;
    agent.cm("cm1").is_absent().await?;
    eventually(LIMIT, "no eviction to be under way", || async {
        let waiting = agent.metric(evicting, "").await?;
        ensure!(waiting < 1.0, "{waiting} evictions");
        Ok(())
    })
    .await
}

async fn u04_a_work_that_comes_back_in_time_keeps_its_record(world: World) -> Result<()> {
    let mut agent = start(&world, &grace("10s")).await?;
    agent.applied("work", cm1(&agent)).await?;
    let before = agent.record("work").get().await?;
    let live = agent.cm("cm1").get().await?;
    agent.kill().await?;
    remove_by_force(&agent).await?;
    agent.run().await?;
    agent.record("work").is("be evicted", is_evicting).await?;

    agent.applied("work", cm1(&agent)).await?;
    let record = agent.record("work");
    let after = record.is("be kept", |record| !is_evicting(record)).await?;
    ensure!(
        after["metadata"]["uid"] == before["metadata"]["uid"]
            && after["metadata"]["deletionTimestamp"].is_null(),
        "{after}"
    );
    let live_after = agent.cm("cm1").get().await?;
    ensure!(state(&live) == state(&live_after), "{live}\n{live_after}");
    Ok(())
}

async fn u05_an_endless_grace_period_takes_the_eviction_back(world: World) -> Result<()> {
    let mut agent = start(&world, &grace("10s")).await?;
    agent.applied("work", cm1(&agent)).await?;
    agent.kill().await?;
    remove_by_force(&agent).await?;
    agent.run().await?;
    agent.record("work").is("be evicted", is_evicting).await?;

    agent.kill().await?;
    agent.set(&grace(ENDLESS));
    agent.run().await?;
    let record = agent.record("work");
    record.is("be kept", |record| !is_evicting(record)).await?;
    // Whoever looks at the next work has looked at this record as well.
    let marker = manifests([agent.config_map("cm2", json!({}))]);
    agent.applied("marker", marker).await?;
    agent.looks_again("marker", 2).await?;
    let record = record.get().await?;
    ensure!(
        !is_evicting(&record) && record["metadata"]["deletionTimestamp"].is_null(),
        "{record}"
    );
    agent.cm("cm1").get().await?;
    Ok(())
}
