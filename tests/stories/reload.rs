//! Settings that change while the process runs.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use crate::support::own_process::OwnProcess;
use crate::support::{Story, World, eventually, install_definitions, unique_name};

pub(crate) fn stories() -> Vec<Story> {
    on_each_backend![
        a_signal_and_a_changed_file_are_taken_over,
        flags_stay_over_the_file,
    ]
}

const LIMIT: Duration = Duration::from_secs(30);

/// An agent with a settings file, and these flags.
async fn agent(world: &World, file: &Path, flags: &[&str]) -> Result<OwnProcess> {
    let (hub, spoke) = tokio::try_join!(world.hub(), world.spoke())?;
    tokio::try_join!(install_definitions(&hub), install_definitions(&spoke))?;
    let name = unique_name("reload");
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let answer = hub.rest().post("/api/v1/namespaces", &namespace).await?;
    answer.created()?;
    let mut all = vec![
        format!("--config={}", file.display()),
        format!("--spoke-cluster-name={name}"),
        format!("--workload-source-config={}", hub.kubeconfig().display()),
        format!("--kubeconfig={}", spoke.kubeconfig().display()),
        "--disable-leader-election".to_owned(),
    ];
    all.extend(flags.iter().map(ToString::to_string));
    OwnProcess::agent(&[], &all, |command| command)
}

/// Waits until a line of its metrics is this.
async fn tells(agent: &OwnProcess, wanted: &str) -> Result<()> {
    eventually(LIMIT, &format!("the metrics to say {wanted:?}"), || async {
        let (_, metrics) = agent.get("/metrics").await?;
        let name = wanted.split([' ', '{']).next().unwrap_or_default();
        let lines: Vec<_> = metrics
            .lines()
            .filter(|line| line.starts_with(name))
            .collect();
        // Without the cluster, whose name is the story's own.
        let told = lines.iter().any(|line| {
            let (series, value) = line.rsplit_once(' ').unwrap_or_default();
            let (series_wanted, value_wanted) = wanted.rsplit_once(' ').unwrap_or_default();
            value == value_wanted && series.starts_with(series_wanted)
        });
        ensure!(told, "{lines:?}");
        Ok(())
    })
    .await
}

async fn a_signal_and_a_changed_file_are_taken_over(world: World) -> Result<()> {
    let dir = world.dir(&unique_name("reload"))?;
    let file = dir.join("muster.toml");
    let write = |text: &str| std::fs::write(&file, text);
    write("[watch]\nmax_watches = 7\n")?;
    let agent = agent(&world, &file, &[]).await?;
    tells(&agent, "muster_watches_cap 7").await?;

    agent.hang_up().await?;
    tells(
        &agent,
        "muster_config_reloads_total{result=\"unchanged\"} 1",
    )
    .await?;

    write("[watch]\nmax_watches = 9\n[telemetry]\nlog_level = \"debug\"\n")?;
    tells(&agent, "muster_watches_cap 9").await?;
    tells(&agent, "muster_config_reloads_total{result=\"ok\"} 1").await?;
    agent.says("settings taken over").await?;

    // What is wrong is told, and changes nothing.
    write("[watch]\nmax_watches = 3\nmax_watch = 4\n")?;
    tells(&agent, "muster_config_reloads_total{result=\"failed\"} 1").await?;
    agent
        .says("unknown key watch.max_watch, the nearest is watch.max_watches")
        .await?;
    tells(&agent, "muster_watches_cap 9").await?;

    // What can only be read at the start is named.
    write("[watch]\nmax_watches = 0\n[agent]\nhub_qps = 3\nspoke_burst = 3\n")?;
    tells(&agent, "muster_watches_cap 0").await?;
    agent
        .says("changed settings that take effect at the next start keys=\"agent.spoke_burst, agent.hub_qps\"")
        .await?;
    Ok(())
}

async fn flags_stay_over_the_file(world: World) -> Result<()> {
    let dir = world.dir(&unique_name("reload"))?;
    let file = dir.join("muster.toml");
    std::fs::write(&file, "[watch]\nmax_watches = 7\n")?;
    let agent = agent(&world, &file, &["--max-feedback-watch=3"]).await?;
    tells(&agent, "muster_watches_cap 3").await?;
    std::fs::write(&file, "[watch]\nmax_watches = 8\n[agent]\nworkers = 2\n")?;
    tells(&agent, "muster_config_reloads_total{result=\"ok\"} 1").await?;
    tells(&agent, "muster_watches_cap 3").await
}
