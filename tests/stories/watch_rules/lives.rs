//! Agents that end, and what the sink has missed.

use std::path::Path;

use anyhow::{Result, ensure};
use serde_json::Value;

use super::{Ruled, config_map, rule};
use crate::support::own_process::OwnProcess;
use crate::support::{Story, World, unique_name};

pub(crate) fn stories() -> Vec<Story> {
    on_each_backend![
        what_changed_while_the_agent_was_away_is_told,
        what_a_sink_was_told_is_not_told_again,
        who_takes_over_tells_what_has_changed_since,
    ]
}

/// Flags of a process that is in the place of the agent, with these settings.
pub(super) fn flags(ruled: &Ruled, settings: &Path) -> Vec<String> {
    let flag = |name: &str, file: &Path| format!("--{name}={}", file.display());
    vec![
        flag("config", settings),
        format!("--spoke-cluster-name={}", ruled.agent.name()),
        flag("hub-kubeconfig", ruled.agent.hub().kubeconfig()),
        flag("kubeconfig", ruled.agent.spoke().kubeconfig()),
        format!("--namespace={}", ruled.agent.name()),
    ]
}

/// S71, S72, C142 for a process: what changed meanwhile is told; a file has what it has.
async fn what_changed_while_the_agent_was_away_is_told(world: World) -> Result<()> {
    let mut ruled = Ruled::new(&world).await?;
    ruled.create_rule(&rule("maps", &["configmaps"])).await?;
    ruled.apply(&config_map("stays", "1")).await?;
    ruled.tells("stays", &["CREATE stays 1"]).await?;
    ruled.agent.kill().await?;
    ruled.apply(&config_map("stays", "2")).await?;
    ruled.apply(&config_map("new", "1")).await?;
    ruled.agent.run().await?;
    ruled.tells("new", &["CREATE new 1"]).await?;
    ruled
        .tells("stays", &["CREATE stays 1", "CREATE stays 2"])
        .await
}

/// S72, S73 for a process that remembers: what is as before is not told, and what is gone is.
async fn what_a_sink_was_told_is_not_told_again(world: World) -> Result<()> {
    let kept = world.dir(&unique_name("kept-rules"))?;
    let more = format!("[rules]\ndata_dir = {:?}\n", kept.display().to_string());
    let mut ruled = Ruled::with(&world, &more).await?;
    ruled.create_rule(&rule("maps", &["configmaps"])).await?;
    // What a list shows has the order of names.
    ruled.row_is("maps", "maps file True Watching 1 0").await?;
    for name in ["told-same", "told-changed", "told-gone"] {
        ruled.apply(&config_map(name, "1")).await?;
    }
    let first = [
        "CREATE told-same 1",
        "CREATE told-changed 1",
        "CREATE told-gone 1",
    ];
    ruled.tells("told", &first).await?;
    // What is delivered is remembered a moment later.
    ruled.row_is("maps", "maps file True Watching 1 3").await?;
    ruled.agent.kill().await?;
    ruled.apply(&config_map("told-changed", "2")).await?;
    ruled.kubectl(&["delete", "cm", "told-gone"]).await?;
    ruled.agent.run().await?;
    let mut told: Vec<&str> = first.to_vec();
    told.extend(["UPDATE told-changed 2", "DELETE told-gone -"]);
    ruled.tells("told", &told).await
}

/// S146: of two agents of a cluster the one with the lease tells, and where it ends the other goes on.
async fn who_takes_over_tells_what_has_changed_since(world: World) -> Result<()> {
    let mut ruled = Ruled::new(&world).await?;
    // Stopped, for two others with its settings; what is asked of it is asked of them.
    ruled.agent.kill().await?;
    let kept = world.dir(&unique_name("kept-rules"))?;
    let settings = world.dir(&unique_name("agents"))?.join("muster.toml");
    std::fs::write(
        &settings,
        format!(
            "{}[rules]\ndata_dir = {:?}\n",
            ruled.sink(),
            kept.display().to_string()
        ),
    )?;
    let mut flags = flags(&ruled, &settings);
    flags.extend(
        [
            "--leader-election-lease-duration=12s",
            "--leader-election-renew-deadline=8s",
            "--leader-election-retry-period=500ms",
        ]
        .map(str::to_owned),
    );
    let start = || OwnProcess::agent(&[], &flags, |command| command);
    let mut first = start()?;
    first.says("took the lease").await?;
    let second = start()?;
    ruled.create_rule(&rule("maps", &["configmaps"])).await?;
    // What a list shows has the order of names.
    ruled.row_is("maps", "maps file True Watching 1 0").await?;
    for name in ["told-same", "told-changed", "told-gone"] {
        ruled.apply(&config_map(name, "1")).await?;
    }
    let told = [
        "CREATE told-same 1",
        "CREATE told-changed 1",
        "CREATE told-gone 1",
    ];
    ruled.tells("told", &told).await?;
    ruled.row_is("maps", "maps file True Watching 1 3").await?;
    // Who stands by has no actor for rules.
    let (_, actors) = second.get("/debug/actors").await?;
    let actors: Vec<Value> = serde_json::from_str(&actors)?;
    ensure!(
        actors.iter().all(|actor| actor["role"] == "LeaseHolder"),
        "{actors:?}"
    );

    first.terminate().await?;
    first.ended().await?;
    ruled.apply(&config_map("told-changed", "2")).await?;
    ruled.kubectl(&["delete", "cm", "told-gone"]).await?;
    second.says("took the lease").await?;
    let mut after = told.to_vec();
    after.extend(["UPDATE told-changed 2", "DELETE told-gone -"]);
    ruled.tells("told", &after).await?;
    ruled.row_is("maps", "maps file True Watching 1 2").await?;
    // It goes on with what comes.
    ruled.apply(&config_map("told-new", "1")).await?;
    after.push("CREATE told-new 1");
    ruled.tells("told", &after).await
}
