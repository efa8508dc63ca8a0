//! What is in `deploy/`, on a real API server.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::support::own_process::OwnProcess;
use crate::support::{
    Backend, Cluster, Servers, Story, World, eventually, install_definitions, unique_name,
};

pub(crate) fn stories() -> Vec<Story> {
    once![
        every_kustomization_is_taken,
        what_is_there_twice_is_the_same,
        the_unit_runs_an_agent,
    ]
}

const LIMIT: Duration = Duration::from_secs(60);

/// The path of a folder below `deploy/kustomize`, as a kustomization in `from` has to name it: one
/// that begins at the root is refused there.
fn named_from(from: &Path, folder: &str) -> String {
    let up = "../".repeat(from.components().count() - 1);
    let root = env!("CARGO_MANIFEST_DIR").trim_start_matches('/');
    format!("{up}{root}/deploy/kustomize/{folder}")
}

/// A kustomization of a base with components, as users write one.
pub(super) fn overlay(
    servers: &Servers,
    base: &str,
    components: &[&str],
    more: &Value,
) -> Result<PathBuf> {
    let dir = servers.new_dir(&unique_name(base))?.canonicalize()?;
    let components: Vec<_> = components
        .iter()
        .map(|name| named_from(&dir, &format!("components/{name}")))
        .collect();
    let mut own = json!({"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
        "resources": [named_from(&dir, base)], "components": components});
    for (key, value) in more.as_object().into_iter().flatten() {
        own[key] = value.clone();
    }
    std::fs::write(dir.join("kustomization.yaml"), own.to_string())?;
    Ok(dir)
}

pub(super) async fn apply(cluster: &Cluster, overlay: &Path) -> Result<String> {
    let overlay = overlay.display().to_string();
    let args = ["apply", "--server-side", "-k", &overlay];
    cluster.kubectl(&args).await?.ok()
}

/// With each component that goes with it; but `monitoring`, whose types are the Prometheus operator's.
async fn every_kustomization_is_taken(servers: Arc<Servers>) -> Result<()> {
    let server = servers.own_api_server().await?;
    let cluster = server.cluster();
    for (base, components) in [
        ("hub", &[][..]),
        ("hub", &["resolve-placements", "hub-mqtt", "crds-by-hand"]),
        ("agent", &[]),
        (
            "agent",
            &[
                "watch-rules",
                "executors",
                "works-cluster-admin",
                "crds-by-hand",
            ],
        ),
    ] {
        let overlay = overlay(&servers, base, components, &json!({}))?;
        let taken = apply(cluster, &overlay).await?;
        ensure!(
            taken.contains(&format!("deployment.apps/muster-{base}")),
            "{taken}"
        );
    }
    let monitoring = overlay(&servers, "hub", &["monitoring"], &json!({}))?;
    let monitoring = monitoring.display().to_string();
    let rendered = cluster.kubectl(&["kustomize", &monitoring]).await?.ok()?;
    for kind in ["ServiceMonitor", "PrometheusRule"] {
        ensure!(rendered.contains(&format!("kind: {kind}\n")), "no {kind}");
    }
    server.stop().await
}

async fn what_is_there_twice_is_the_same(_: Arc<Servers>) -> Result<()> {
    let sync = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/sync");
    let checked = tokio::process::Command::new(sync)
        .arg("--check")
        .output()
        .await?;
    ensure!(checked.status.success(), "{checked:?}");
    Ok(())
}

/// The systemd unit without systemd: its command, with its settings, and its credentials where it has
/// them put.
async fn the_unit_runs_an_agent(servers: Arc<Servers>) -> Result<()> {
    let dir = servers.new_dir(&unique_name("systemd"))?;
    let world = World::new(Backend::Embedded, servers);
    let (hub, spoke) = (world.hub().await?, world.spoke().await?);
    tokio::try_join!(install_definitions(&hub), install_definitions(&spoke))?;
    let name = unique_name("edge");
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let namespaces = "/api/v1/namespaces";
    hub.rest().post(namespaces, &namespace).await?.created()?;

    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/systemd");
    let unit = std::fs::read_to_string(files.join("muster-agent.service"))?;
    let values = |key: &str| -> Vec<&str> {
        let lines = unit.lines().filter_map(|line| line.split_once('='));
        lines
            .filter(|(name, _)| *name == key)
            .map(|(_, value)| value)
            .collect()
    };
    let credentials = values("LoadCredential");
    ensure!(credentials.len() == 2, "{credentials:?}");
    for credential in credentials {
        let (name, _) = credential.split_once(':').context("no source")?;
        let from = if name.starts_with("hub") {
            &hub
        } else {
            &spoke
        };
        std::fs::copy(from.kubeconfig(), dir.join(name))?;
    }
    let settings = std::fs::read_to_string(files.join("agent.toml"))?;
    let at = dir.display().to_string();
    let named = settings.replace("/run/credentials/muster-agent.service", &at);
    let named = named.replace("\"edge-1\"", &format!("\"{name}\""));
    ensure!(
        named.matches(&at).count() >= 2 && named.contains(&name),
        "{named}"
    );
    std::fs::write(dir.join("agent.toml"), named)?;

    let command = values("ExecStart");
    let [command] = command[..] else {
        anyhow::bail!("not one command: {command:?}")
    };
    let flags = command
        .strip_prefix("/usr/local/bin/muster agent ")
        .context("another program")?
        .replace("/etc/muster", &at);
    let flags: Vec<String> = flags.split_whitespace().map(str::to_owned).collect();
    let mut agent = OwnProcess::agent(&[], &flags, |command| command)?;
    agent.says("muster is up").await?;
    eventually(LIMIT, "the agent to be ready", || async {
        let (code, body) = agent.get("/readyz").await?;
        ensure!(code == 200, "{body}");
        Ok(())
    })
    .await?;
    agent.terminate().await?;
    ensure!(agent.ended().await?.success(), "{}", agent.log());
    Ok(())
}
