//! Settings that change while the process runs.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use crate::support::muster::Muster;
use crate::support::own_process::OwnProcess;
use crate::support::{Servers, Story, World, eventually, install_definitions, unique_name};

pub(crate) fn stories() -> Vec<Story> {
    let mut stories = on_each_backend![
        a_signal_and_a_changed_file_are_taken_over,
        flags_stay_over_the_file,
        agents_that_waited_for_the_lease_begin_with_the_newest_settings,
    ];
    stories.extend(once![
        all_agents_of_a_process_follow_its_file_and_no_mistake_in_it
    ]);
    stories
}

const LIMIT: Duration = Duration::from_secs(30);

/// An agent with a settings file, and these flags.
async fn agent(world: &World, file: &Path, flags: &[&str]) -> Result<OwnProcess> {
    let flags = [&["--disable-leader-election"], flags].concat();
    agent_of(&unique_name("reload"), world, file, &flags).await
}

/// The agent of a cluster of this name.
async fn agent_of(name: &str, world: &World, file: &Path, flags: &[&str]) -> Result<OwnProcess> {
    let (hub, spoke) = tokio::try_join!(world.hub(), world.spoke())?;
    tokio::try_join!(install_definitions(&hub), install_definitions(&spoke))?;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let answer = hub.rest().post("/api/v1/namespaces", &namespace).await?;
    answer.created()?;
    let mut all = vec![
        format!("--config={}", file.display()),
        format!("--spoke-cluster-name={name}"),
        format!("--workload-source-config={}", hub.kubeconfig().display()),
        format!("--kubeconfig={}", spoke.kubeconfig().display()),
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
    agent.says("settings applied").await?;

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
        .says("changed settings need a restart keys=\"agent.spoke_burst, agent.hub_qps\"")
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

async fn agents_that_waited_for_the_lease_begin_with_the_newest_settings(
    world: World,
) -> Result<()> {
    let file = world.dir(&unique_name("reload"))?.join("muster.toml");
    let write = |text: &str| std::fs::write(&file, text);
    let rest = world.spoke().await?.rest();
    let name = unique_name("reload");
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let answer = rest.post("/api/v1/namespaces", &namespace).await?;
    answer.created()?;
    let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{name}/leases");
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "work-agent-lock"},
        "spec": {"holderIdentity": "other", "leaseDurationSeconds": 3600,
            "renewTime": "2026-01-01T00:00:00.000000Z"}});
    rest.post(&leases, &lease).await?.created()?;

    write("[watch]\nmax_watches = 7\n")?;
    let namespace = format!("--namespace={name}");
    let flags = [&namespace, "--leader-election-retry-period=500ms"];
    let agent = agent_of(&name, &world, &file, &flags).await?;
    agent.says("muster is up").await?;
    write("[watch]\nmax_watches = 4\n")?;
    tells(&agent, "muster_config_reloads_total{result=\"ok\"} 1").await?;
    let (_, metrics) = agent.get("/metrics").await?;
    ensure!(!metrics.contains("muster_watches_cap"), "{metrics}");

    let free = json!({"spec": {"holderIdentity": ""}});
    let path = format!("{leases}/work-agent-lock");
    rest.merge_patch(&path, &free).await?.ok()?;
    tells(&agent, "muster_watches_cap 4").await?;
    write("[watch]\nmax_watches = 5\n")?;
    tells(&agent, "muster_watches_cap 5").await
}

async fn all_agents_of_a_process_follow_its_file_and_no_mistake_in_it(
    _: Arc<Servers>,
) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let config = "[hub]\nlisten = \"HUB\"\n[watch]\nmax_watches = 7\n\
        [[clusters]]\nname = \"one\"\nsimulated = true\n\
        [[clusters]]\nname = \"two\"\nsimulated = true\n";
    let muster = Muster::start(dir.path(), "run", config).await?;
    let file = dir.path().join("muster.toml");
    let log = || std::fs::read_to_string(dir.path().join("muster.log"));
    let good = std::fs::read_to_string(&file)?;
    let becomes = |cap: u8, result: &'static str, times: u8| {
        let muster = &muster;
        let is = |found: f64, wanted: u8| found.total_cmp(&wanted.into()).is_eq();
        eventually(LIMIT, "the settings to be read again", move || async move {
            let name = "muster_config_reloads_total";
            let counted = muster.metric(name, &format!("\"{result}\"")).await?;
            ensure!(is(counted, times), "{result} is {counted}\n{}", log()?);
            for cluster in ["one", "two"] {
                let cap_now = muster.metric("muster_watches_cap", cluster).await?;
                ensure!(is(cap_now, cap), "the cap of {cluster} is {cap_now}");
            }
            Ok(())
        })
    };
    becomes(7, "ok", 0).await?;
    std::fs::write(&file, good.replace("= 7", "= 9"))?;
    becomes(9, "ok", 1).await?;

    // As a ConfigMap is replaced, and with a key that waits.
    let lower = good.replace("= 7", "= 2");
    let lower = lower.replace("[hub]", "[hub]\ncontext = \"c\"");
    let next = dir.path().join("next");
    std::fs::write(&next, lower)?;
    std::fs::rename(&next, &file)?;
    becomes(2, "ok", 2).await?;
    let waits = "need a restart keys=\"hub.context\"";
    ensure!(log()?.contains(waits), "{}", log()?);

    std::fs::write(&file, good.replace("= 7", "= \"many\""))?;
    becomes(2, "failed", 1).await?;
    let error = "muster.toml:4: watch.max_watches is \"many\"";
    ensure!(log()?.matches(error).count() == 1, "{}", log()?);
    std::fs::remove_file(&file)?;
    becomes(2, "failed", 2).await?;
    let error = "failed to read settings file";
    ensure!(log()?.matches(error).count() == 1, "{}", log()?);

    std::fs::write(&file, good.replace("= 7", "= 0"))?;
    becomes(0, "ok", 3).await?;
    muster.kill().await
}
