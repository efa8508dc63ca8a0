//! What is in `deploy/`, on a real API server.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::support::{Cluster, Servers, Story, unique_name};

pub(crate) fn stories() -> Vec<Story> {
    once![
        every_kustomization_is_taken,
        what_is_there_twice_is_the_same,
    ]
}

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
