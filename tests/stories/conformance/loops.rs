//! Robust loops: what goes wrong somewhere costs nothing elsewhere, and is over when it is over.
//!
//! | Case | Story |
//! |---|---|
//! | C019, C160 | `a_corrected_spec_is_tried_at_once` |
//! | C109, C142 | `what_happens_while_the_hub_is_away_is_caught_up_with` |
//! | C133 | `a_broken_api_group_costs_its_own_kinds_only` |
//! | C145 | `a_cluster_that_is_away_is_told_and_found_again` |
//! | C148 | `its_own_status_gives_the_agent_nothing_to_do` |
//! | C156 | `secrets_are_in_no_log` |

use std::sync::Arc;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::support::agent::Agent;
use crate::support::live::state;
use crate::support::works::{manifest_condition, manifests, shows};
use crate::support::{Backend, Servers, Story, World, eventually, live::LIMIT};

pub(crate) fn stories() -> Vec<Story> {
    let mut stories = on_each_backend![
        a_corrected_spec_is_tried_at_once,
        what_happens_while_the_hub_is_away_is_caught_up_with,
        a_cluster_that_is_away_is_told_and_found_again,
        its_own_status_gives_the_agent_nothing_to_do,
        secrets_are_in_no_log,
    ];
    stories.extend(once![a_broken_api_group_costs_its_own_kinds_only]);
    stories
}

fn map(agent: &Agent, name: &str) -> Value {
    manifests([agent.config_map(name, json!({"a": "b"}))])
}

async fn a_corrected_spec_is_tried_at_once(world: World) -> Result<()> {
    // No poll helps: only the change of the spec does.
    let agent = Agent::start_with(&world, &["--status-sync-interval=1h"]).await?;
    let mut bad = agent.config_map("cm1", json!({"a": "b"}));
    bad["data"] = json!({"no key/": "b"});
    agent.create("work", manifests([bad])).await?;
    let work = agent.shows("work", &[("Applied", "F")]).await?;
    let applied = manifest_condition(&work, 0, "Applied")?;
    let message = applied["message"].as_str().unwrap_or_default();
    ensure!(message.contains("data[no key/]"), "{applied}");
    agent.looks_again("work", 1).await?;

    let good = agent.config_map("cm1", json!({"a": "b"}));
    // How soon is told on a paused clock, in the agent's own tests.
    agent.edit("work", manifests([good])).await?;
    agent.settled("work").await?;
    Ok(())
}

async fn what_happens_while_the_hub_is_away_is_caught_up_with(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    for work in ["stays", "changes", "goes"] {
        agent.applied(work, map(&agent, work)).await?;
    }
    let stays = agent.cm("stays").get().await?;

    // Once without a change, which nothing but the connection could tell of.
    agent.hub_door().close();
    agent.says_ready(false).await?;
    agent.hub_door().reopen();
    agent.says_ready(true).await?;

    agent.hub_door().close();
    agent.work("goes").delete().await?;
    agent.edit("changes", map(&agent, "changed")).await?;
    agent.create("new", map(&agent, "new")).await?;
    // The cluster is kept as the last known works want it.
    agent.cm("stays").delete().await?;
    agent.cm("stays").appears().await?;
    agent.cm("goes").get().await?;
    agent.cm("new").is_absent().await?;

    agent.hub_door().reopen();
    agent.work("goes").disappears().await?;
    agent.cm("goes").is_absent().await?;
    agent.settled("changes").await?;
    agent.cm("changed").get().await?;
    agent.cm("changes").disappears().await?;
    agent.settled("new").await?;
    let now = agent.cm("stays").get().await?;
    ensure!(state(&stays) != state(&now), "it was made anew");
    Ok(())
}

async fn a_cluster_that_is_away_is_told_and_found_again(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    agent.applied("work", map(&agent, "cm1")).await?;
    let before = agent.cm("cm1").get().await?;

    agent.spoke_door().close();
    let work = agent
        .shows("work", &[("Applied", "F"), ("Available", "U")])
        .await?;
    let available = manifest_condition(&work, 0, "Available")?;
    ensure!(
        available["reason"] == "FetchingResourceFailed",
        "{available}"
    );
    // A deletion waits for it, and says so.
    agent.create("goes", map(&agent, "cm2")).await?;
    agent.shows("goes", &[("Applied", "F")]).await?;
    agent.work("goes").delete().await?;
    agent
        .work("goes")
        .is("say that it waits", |work| {
            work["status"]["conditions"]
                .as_array()
                .into_iter()
                .flatten()
                .any(|condition| condition["type"] == "Deleting" && condition["status"] == "True")
        })
        .await?;

    agent.spoke_door().reopen();
    agent.settled("work").await?;
    agent.work("goes").disappears().await?;
    let after = agent.cm("cm1").get().await?;
    ensure!(state(&before) == state(&after), "{before}\n{after}");
    agent.cm("cm2").is_absent().await
}

async fn its_own_status_gives_the_agent_nothing_to_do(world: World) -> Result<()> {
    // No pass but the first, unless somebody asks.
    let agent = Agent::start_with(&world, &["--status-sync-interval=1h"]).await?;
    agent.applied("work", map(&agent, "cm1")).await?;
    let passes = agent.metric("muster_agent_reconciles_total", "").await?;
    for round in 0..10 {
        let other = json!({"type": "Other", "status": "True", "reason": "Because",
            "message": format!("round {round}"), "lastTransitionTime": "2026-01-02T03:04:05Z"});
        let work = agent.work("work").get().await?;
        let mut conditions = work["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        conditions.retain(|condition| condition["type"] != "Other");
        conditions.push(other);
        agent
            .work("work")
            .set_status(json!({ "conditions": conditions }))
            .await?;
    }
    // The next work is seen after all of that.
    agent.applied("marker", map(&agent, "cm2")).await?;
    let of_marker = 3.0;
    let more = agent.metric("muster_agent_reconciles_total", "").await? - passes;
    ensure!(more <= of_marker, "{more} passes");
    let work = agent.work("work").get().await?;
    shows(&work, "Applied", "T")?;
    let others = work["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten();
    let others = others.filter(|condition| condition["message"] == "round 9");
    ensure!(others.count() == 1, "conditions of others stay: {work}");
    Ok(())
}

async fn secrets_are_in_no_log(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    let secret = |name: &str, text: &str| {
        json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"namespace": agent.name(), "name": name}, "stringData": {"token": text}})
    };
    // One that is applied; one that the server refuses, for its key and for its namespace.
    let mut bad_key = secret("bad-key", "");
    bad_key["stringData"] = json!({"no key/": "hush-hush-2"});
    let mut nowhere = secret("nowhere", "hush-hush-3");
    nowhere["metadata"]["namespace"] = "non-existent-namespace".into();
    let mut spec = manifests([secret("good", "hush-hush-1"), bad_key, nowhere]);
    let path = json!({"type": "JSONPaths", "jsonPaths": [
        {"name": "token", "path": ".data.token"}]});
    let rules = json!({"feedbackRules": [path]});
    spec["manifestConfigs"] = json!([agent.configure("", "secrets", "*", rules)]);
    agent.create("work", spec).await?;
    let work = agent
        .shows(
            "work",
            &[("Applied", "TFF"), ("StatusFeedbackSynced", "F--")],
        )
        .await?;
    agent.looks_again("work", 1).await?;
    let log = agent.log()?;
    ensure!(
        log.contains("work is not as wanted"),
        "the log tells of it: {log}"
    );
    let status = work["status"].to_string();
    // As text, and as base64 without what depends on its end.
    for text in ["hush-hush", "aHVzaC1odXNo"] {
        ensure!(!log.contains(text), "{log}");
        ensure!(!status.contains(text), "{status}");
    }
    Ok(())
}

/// Only a real server has aggregated APIs.
async fn a_broken_api_group_costs_its_own_kinds_only(servers: Arc<Servers>) -> Result<()> {
    let world = World::new(Backend::Real, servers);
    // The group shows in everybody's discovery.
    let spoke = world.own_cluster().await?;
    let spoke = spoke.cluster().clone();
    let service = json!({"namespace": "default", "name": "nobody"});
    let api = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1.metrics.example.io"},
        "spec": {"group": "metrics.example.io", "version": "v1", "service": service,
            "insecureSkipTLSVerify": true, "groupPriorityMinimum": 1000, "versionPriority": 15}});
    let rest = spoke.rest();
    rest.post("/apis/apiregistration.k8s.io/v1/apiservices", &api)
        .await?
        .created()?;
    eventually(LIMIT, "the group to be broken", || async {
        let answer = rest.get("/apis/metrics.example.io/v1").await?;
        ensure!(answer.code == 503, "{answer:?}");
        Ok(())
    })
    .await?;

    let mut agent = Agent::between(&world, world.hub().await?, spoke.clone(), &[]).await?;
    agent.run().await?;
    let broken = json!({"apiVersion": "metrics.example.io/v1", "kind": "Gauge",
        "metadata": {"namespace": agent.name(), "name": "gauge"}});
    let both = manifests([broken, agent.config_map("cm1", json!({"a": "b"}))]);
    agent.create("work", both).await?;
    let work = agent
        .shows("work", &[("Applied", "FT"), ("Available", "UT")])
        .await?;
    let applied = manifest_condition(&work, 0, "Applied")?;
    ensure!(applied["message"] != Value::Null, "{applied}");
    agent.applied("other", map(&agent, "cm2")).await?;
    // What left the spec may be of the broken group: it stays until that is known.
    agent.work("other").delete().await?;
    agent.work("other").disappears().await?;
    agent.cm("cm2").is_absent().await
}
