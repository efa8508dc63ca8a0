//! What is in `deploy/`, on a real API server.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::support::parts::Part;
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

/// Puts the types of the Prometheus operator on a cluster.
pub(super) async fn install_operator_crds(servers: &Servers, cluster: &Cluster) -> Result<()> {
    let files = servers.part(Part::OperatorCrds)?.display().to_string();
    let args = ["apply", "--server-side", "-f", &files];
    cluster.kubectl(&args).await?.ok()?;
    for types in ["prometheusrules", "servicemonitors"] {
        let name = format!("crd/{types}.monitoring.coreos.com");
        let args = ["wait", "--for=condition=Established", &name];
        cluster.kubectl(&args).await?.ok()?;
    }
    Ok(())
}

/// With each component that goes with it.
async fn every_kustomization_is_taken(servers: Arc<Servers>) -> Result<()> {
    let server = servers.own_api_server().await?;
    let cluster = server.cluster();
    install_operator_crds(&servers, cluster).await?;
    for (base, components) in [
        ("hub", &[][..]),
        (
            "hub",
            &[
                "resolve-placements",
                "hub-mqtt",
                "crds-by-hand",
                "monitoring",
            ],
        ),
        ("agent", &[]),
        (
            "agent",
            &[
                "watch-rules",
                "executors",
                "works-cluster-admin",
                "crds-by-hand",
                "monitoring",
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
    // Where what they are about is.
    for namespace in ["muster-hub", "muster-agent"] {
        for object in [
            "servicemonitor/muster",
            "prometheusrule/muster",
            "configmap/muster-dashboard",
        ] {
            let args = ["get", object, "-n", namespace];
            cluster.kubectl(&args).await?.ok()?;
        }
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
