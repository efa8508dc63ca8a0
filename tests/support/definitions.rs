//! Our own types, as `deploy/crds/` defines them for people.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::cluster::Cluster;
use super::waiting::eventually;

const LIMIT: Duration = Duration::from_secs(20);
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// The files of `deploy/crds/`.
fn definitions() -> Result<Vec<Value>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/crds");
    let mut definitions = Vec::new();
    for file in std::fs::read_dir(&dir)? {
        let path = file?.path();
        let text = std::fs::read_to_string(&path)?;
        definitions
            .push(serde_saphyr::from_str(&text).with_context(|| path.display().to_string())?);
    }
    ensure!(!definitions.is_empty(), "no file in {}", dir.display());
    Ok(definitions)
}

/// Creates what is missing and waits until all are established. Stories share the server, so
/// another may have been first.
pub(crate) async fn install_definitions(cluster: &Cluster) -> Result<Vec<Value>> {
    let mut installed = Vec::new();
    for definition in definitions()? {
        let name = definition["metadata"]["name"]
            .as_str()
            .context("a definition has no name")?;
        let answer = cluster.rest().post(CRDS, &definition).await?;
        ensure!(matches!(answer.code, 201 | 409), "{name}: {answer:?}");
        let established = eventually(LIMIT, &format!("{name} to be established"), || async {
            let definition = cluster.rest().get(&format!("{CRDS}/{name}")).await?.ok()?;
            let conditions = definition["status"]["conditions"].as_array().cloned();
            let established = conditions.unwrap_or_default().iter().any(|condition| {
                condition["type"] == "Established" && condition["status"] == "True"
            });
            ensure!(established, "{}", definition["status"]);
            Ok(definition)
        })
        .await?;
        installed.push(established);
    }
    Ok(installed)
}
