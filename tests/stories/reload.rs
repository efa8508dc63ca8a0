//! Settings that change while the program runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::json;
use tokio::process::Command;

use crate::support::muster::Muster;
use crate::support::own_process::OwnProcess;
use crate::support::{Servers, Story, World, eventually, install_definitions, unique_name};

pub(crate) fn stories() -> Vec<Story> {
    let mut stories = on_each_backend![
        a_signal_changes_the_cap_under_the_flag,
        agents_that_waited_for_the_lease_begin_with_the_newest_settings,
    ];
    stories.extend(once![a_process_follows_its_file_and_no_mistake_in_it]);
    stories
}

const LIMIT: Duration = Duration::from_secs(60);

/// The value of the line of `metrics` that begins with `series`.
fn value(metrics: &str, series: &str) -> Result<f64> {
    let line = metrics.lines().find_map(|line| line.strip_prefix(series));
    let line = line.with_context(|| format!("no {series} in {metrics}"))?;
    Ok(line.trim().parse()?)
}

/// Times that settings were read again, by result.
fn reloads(metrics: &str, result: &str) -> Result<f64> {
    value(
        metrics,
        &format!("muster_config_reloads_total{{result=\"{result}\"}}"),
    )
}

/// Whether the agent of `cluster` may open this many watches.
fn cap_is(metrics: &str, cluster: &str, wanted: f64) -> Result<()> {
    let series = format!("muster_watches_cap{{cluster=\"{cluster}\"}}");
    let cap = value(metrics, &series)?;
    ensure!(cap.total_cmp(&wanted).is_eq(), "the cap is {cap}");
    Ok(())
}

async fn a_process_follows_its_file_and_no_mistake_in_it(_: Arc<Servers>) -> Result<()> {
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
        eventually(LIMIT, "the settings to be read again", move || async move {
            let (_, metrics) = muster.get("/metrics").await?;
            let counted = reloads(&metrics, result)?;
            ensure!(counted >= times.into(), "{result} is {counted}\n{}", log()?);
            for cluster in ["one", "two"] {
                cap_is(&metrics, cluster, cap.into())?;
            }
            Ok(())
        })
    };
    becomes(7, "ok", 0).await?;
    std::fs::write(&file, good.replace("= 7", "= 9"))?;
    becomes(9, "ok", 1).await?;

    // As a ConfigMap is replaced, and with a key that waits.
    let lower = good
        .replace("= 7", "= 2")
        .replace("[hub]", "[hub]\ncontext = \"c\"");
    let next = dir.path().join("next");
    std::fs::write(&next, lower)?;
    std::fs::rename(&next, &file)?;
    becomes(2, "ok", 2).await?;
    let waits = "settings that take effect at a restart only keys=\"hub.context\"";
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

/// A `muster agent` with a settings file, a hub and a cluster.
struct Site {
    name: String,
    dir: tempfile::TempDir,
    config: String,
    spoke: crate::support::Cluster,
}

impl Site {
    async fn new(world: &World) -> Result<Self> {
        let (hub, spoke) = tokio::try_join!(world.hub(), world.spoke())?;
        tokio::try_join!(install_definitions(&hub), install_definitions(&spoke))?;
        let name = unique_name("reload");
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        for cluster in [&hub, &spoke] {
            let rest = cluster.rest();
            rest.post("/api/v1/namespaces", &namespace)
                .await?
                .created()?;
        }
        let quoted = |path: &Path| format!("{:?}", path.display().to_string());
        let config = format!(
            "[hub]\nkubeconfig = {}\n[[clusters]]\nname = \"{name}\"\nkubeconfig = {}\n",
            quoted(hub.kubeconfig()),
            quoted(spoke.kubeconfig())
        );
        Ok(Self {
            name,
            dir: tempfile::tempdir()?,
            config,
            spoke,
        })
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("muster.toml")
    }

    fn write(&self, more: &str) -> Result<()> {
        Ok(std::fs::write(
            self.file(),
            format!("{}{more}", self.config),
        )?)
    }

    fn agent(&self, more: &[String]) -> Result<OwnProcess> {
        let config = format!("--config={}", self.file().display());
        OwnProcess::agent(&[], &[&[config], more].concat(), |command| command)
    }

    async fn metrics(
        &self,
        agent: &OwnProcess,
        what: &str,
        look: impl Fn(&str) -> Result<()>,
    ) -> Result<()> {
        let look = &look;
        eventually(LIMIT, what, move || async move {
            let (_, metrics) = agent.get("/metrics").await?;
            look(&metrics).map_err(|error| anyhow!("{error:#}\n{}", agent.log()))
        })
        .await
    }

    async fn cap(&self, agent: &OwnProcess, cap: u8) -> Result<()> {
        let is = |metrics: &str| cap_is(metrics, &self.name, cap.into());
        self.metrics(agent, &format!("a cap of {cap}"), is).await
    }
}

async fn hang_up(agent: &OwnProcess) -> Result<()> {
    let id = agent.id()?.to_string();
    let sent = Command::new("kill").args(["-HUP", &id]).status().await?;
    ensure!(sent.success(), "kill failed");
    Ok(())
}

async fn a_signal_changes_the_cap_under_the_flag(world: World) -> Result<()> {
    let site = Site::new(&world).await?;
    site.write("[watch]\nmax_watches = 7\n")?;
    let capped = site.agent(&["--max-feedback-watch=3".to_owned()])?;
    let agent = site.agent(&[])?;
    site.cap(&agent, 7).await?;
    site.cap(&capped, 3).await?;
    let log = capped.log();
    ensure!(!log.contains("--max-feedback-watch"), "{log}");

    // The signal alone changes nothing, and does not end the process.
    hang_up(&agent).await?;
    let same = |metrics: &str| {
        let counted = reloads(metrics, "unchanged")?;
        ensure!(counted >= 1.0, "{counted}");
        Ok(())
    };
    site.metrics(&agent, "the settings to be the same", same)
        .await?;
    for cap in [9, 2] {
        site.write(&format!(
            "[watch]\nmax_watches = {cap}\nwiden_after = {cap}\n"
        ))?;
        hang_up(&agent).await?;
        hang_up(&capped).await?;
        site.cap(&agent, cap).await?;
        capped
            .says("settings changed keys=\"watch.widen_after\"")
            .await?;
        site.cap(&capped, 3).await?;
    }

    site.write("[watch]\nmax_watches = -1\n")?;
    hang_up(&agent).await?;
    let failed = |metrics: &str| {
        let counted = reloads(metrics, "failed")?;
        ensure!(counted >= 1.0, "{counted}");
        cap_is(metrics, &site.name, 2.0)
    };
    site.metrics(&agent, "the settings to be wrong", failed)
        .await?;
    agent.says("watch.max_watches is -1").await?;
    Ok(())
}

async fn agents_that_waited_for_the_lease_begin_with_the_newest_settings(
    world: World,
) -> Result<()> {
    let site = Site::new(&world).await?;
    let leases = format!(
        "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
        site.name
    );
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "work-agent-lock"},
        "spec": {"holderIdentity": "other", "leaseDurationSeconds": 3600,
            "renewTime": "2026-01-01T00:00:00.000000Z"}});
    let rest = site.spoke.rest();
    rest.post(&leases, &lease).await?.created()?;
    site.write("[watch]\nmax_watches = 7\n")?;
    let agent = site.agent(&[
        format!("--namespace={}", site.name),
        "--leader-election-retry-period=500ms".to_owned(),
    ])?;
    agent.says("muster is up").await?;
    site.write("[watch]\nmax_watches = 4\n")?;
    agent
        .says("settings changed keys=\"watch.max_watches\"")
        .await?;
    let (_, metrics) = agent.get("/metrics").await?;
    ensure!(!metrics.contains("muster_watches_cap"), "{metrics}");

    let free = json!({"spec": {"holderIdentity": ""}});
    let path = format!("{leases}/work-agent-lock");
    rest.merge_patch(&path, &free).await?.ok()?;
    site.cap(&agent, 4).await?;
    site.write("[watch]\nmax_watches = 5\n")?;
    site.cap(&agent, 5).await
}
