//! Group G: works that are deleted some time after they have finished.
//!
//! | Rows | Story |
//! |---|---|
//! | G01–G05 | `g01_g05_a_finished_work_goes_after_its_time_and_no_other` |

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::support::agent::Agent;
use crate::support::muster::Muster;
use crate::support::works::{manifests, shows};
use crate::support::{Story, World};

pub(crate) fn stories() -> Vec<Story> {
    on_each_backend![g01_g05_a_finished_work_goes_after_its_time_and_no_other]
}

/// One config map, and when the work is complete, if ever.
fn spec(agent: &Agent, name: &str, ttl: Option<i64>, completes: bool) -> Value {
    let mut spec = manifests([agent.config_map(name, json!({"a": "b"}))]);
    if completes {
        let rule = json!({"type": "CEL", "condition": "Complete",
            "celExpressions": [format!("object.metadata.name == '{name}'")]});
        let rules = json!({ "conditionRules": [rule] });
        spec["manifestConfigs"] = json!([agent.configure("", "configmaps", name, rules)]);
    }
    if let Some(seconds) = ttl {
        spec["deleteOption"] = json!({"propagationPolicy": "Foreground",
            "ttlSecondsAfterFinished": seconds});
    }
    spec
}

async fn g01_g05_a_finished_work_goes_after_its_time_and_no_other(world: World) -> Result<()> {
    // A hub's controllers act on all that is on it.
    let own = world.own_cluster().await?;
    let hub = own.cluster().clone();
    let mut agent = Agent::between(&world, hub.clone(), world.spoke().await?, &[]).await?;
    agent.run().await?;
    let config = format!(
        "[hub]\napi = \"kubeconfig\"\nkubeconfig = \"{}\"\n",
        hub.kubeconfig().display()
    );
    let dir = world.dir(&format!("{}-hub", agent.name()))?;
    let muster = Muster::start(&dir, "hub", &config).await?;

    let of_a_set = json!({
        "work.open-cluster-management.io/manifestworkreplicaset": "default.test-replicaset"});
    for (work, labels, ttl, completes) in [
        ("g02", json!({}), None, true),
        ("g03", json!({}), Some(5), false),
        ("g05", of_a_set, Some(5), true),
        ("g04", json!({}), Some(0), true),
        ("g01", json!({}), Some(5), true),
    ] {
        let spec = spec(&agent, work, ttl, completes);
        agent.create_labelled(work, labels, spec).await?;
    }
    // What has no time left may be gone before anybody sees it complete.
    agent.work("g04").disappears().await?;
    agent.cm("g04").is_absent().await?;
    agent.shows("g01", &[("Complete", "T")]).await?;
    agent.work("g01").disappears().await?;
    agent.cm("g01").is_absent().await?;

    for (work, complete) in [("g02", "T"), ("g03", "-"), ("g05", "T")] {
        let live = agent.work(work).get().await?;
        ensure!(live["metadata"]["deletionTimestamp"].is_null(), "{live}");
        shows(&live, "Complete", complete)?;
        agent.cm(work).get().await?;
    }
    let deleted = muster
        .metric("muster_finished_work_deletions_total", "result=\"ok\"")
        .await?;
    ensure!((1.5..2.5).contains(&deleted), "{deleted} works deleted");
    Ok(())
}
