//! `muster demo`: the first thing that a user runs.

use anyhow::{Result, ensure};
use std::sync::Arc;
use std::time::Duration;

use crate::support::muster::{Ended, run_to_end, run_until_terminated};
use crate::support::{Servers, Story};

pub(crate) fn stories() -> Vec<Story> {
    let stories = once![
        every_cluster_gets_there,
        many_at_once_all_get_there,
        a_file_takes_the_place_of_the_sample,
        a_rollout_that_does_not_end_is_told_by_the_exit_code,
        a_bad_file_is_refused_with_its_name,
        sigterm_ends_it_in_order,
    ];
    // How long a demo takes is up to the machine, and many run at once.
    let limited = stories.into_iter().map(|story| story.within(LIMIT));
    limited.collect()
}

const LIMIT: Duration = Duration::from_secs(900);

fn shows(ended: &Ended, code: i32, text: &str) -> Result<()> {
    ensure!(
        ended.code == Some(code) && (ended.stdout.contains(text) || ended.stderr.contains(text)),
        "expected exit code {code} and {text:?}: {ended:?}"
    );
    Ok(())
}

async fn every_cluster_gets_there(_: Arc<Servers>) -> Result<()> {
    let ended = run_to_end(&["demo", "--once", "--pace", "50ms", "--timeout", "120s"]).await?;
    shows(&ended, 0, "all 3 clusters got there")?;
    shows(
        &ended,
        0,
        "default/hello  Ready  ManifestWorks available in 3/3 clusters",
    )?;
    shows(&ended, 0, "ReadyReplicas Σ 15")?;
    // A line for each change, and not all of them again.
    for part in [
        "default/hello  cluster1  ",
        "default/hello  deployments/web: ",
    ] {
        let lines = ended.stdout.lines();
        let mut of_part: Vec<&str> = lines.filter(|line| line.starts_with(part)).collect();
        let all = of_part.len();
        of_part.dedup();
        ensure!(all > 1 && of_part.len() == all, "{part}: {ended:?}");
    }
    ensure!(!ended.stdout.contains("PROGRESS"), "{ended:?}");
    for cluster in ["cluster1", "cluster2", "cluster3"] {
        shows(&ended, 0, cluster)?;
    }
    shows(&ended, 0, "5/5 ready")
}

/// However little time each has: what waits for an event that was lost would wait for ever.
async fn many_at_once_all_get_there(_: Arc<Servers>) -> Result<()> {
    let args = ["demo", "--once", "--pace", "10ms", "--timeout", "600s"];
    let all = (0..6).map(|_| run_to_end(&args));
    for ended in futures::future::try_join_all(all).await? {
        shows(&ended, 0, "all 3 clusters got there")?;
    }
    Ok(())
}

fn file(text: &str) -> Result<tempfile::NamedTempFile> {
    let file = tempfile::NamedTempFile::with_suffix(".yaml")?;
    std::fs::write(file.path(), text)?;
    Ok(file)
}

const SET: &str = "
apiVersion: work.open-cluster-management.io/v1alpha1
kind: ManifestWorkReplicaSet
metadata: {namespace: default, name: mine}
spec:
  placementRefs: [{name: anywhere}]
  manifestWorkTemplate:
    workload:
      manifests:
        - {apiVersion: v1, kind: ConfigMap, metadata: {namespace: NAMESPACE, name: cm}, data: {a: b}}
";

async fn a_file_takes_the_place_of_the_sample(_: Arc<Servers>) -> Result<()> {
    let file = file(&SET.replace("NAMESPACE", "default"))?;
    let path = file.path().to_string_lossy();
    let ended = run_to_end(&["demo", "--once", "--clusters", "2", "-f", &path]).await?;
    shows(&ended, 0, "placement anywhere is not in the file")?;
    shows(&ended, 0, "all 2 clusters got there")?;
    ensure!(
        !ended.stdout.contains("hello"),
        "the sample was used, too: {ended:?}"
    );
    Ok(())
}

async fn a_rollout_that_does_not_end_is_told_by_the_exit_code(_: Arc<Servers>) -> Result<()> {
    let file = file(&SET.replace("NAMESPACE", "missing"))?;
    let path = file.path().to_string_lossy();
    let args = [
        "demo",
        "--once",
        "--timeout",
        "2s",
        "--clusters",
        "1",
        "-f",
        &path,
    ];
    // How far it comes in that time depends on the machine; nowhere is as far as it can.
    let ended = run_to_end(&args).await?;
    shows(&ended, 3, "muster: 0 of ")?;
    shows(&ended, 3, "got there within 2s")?;
    ensure!(!ended.stderr.contains("did not end"), "{ended:?}");
    Ok(())
}

async fn a_bad_file_is_refused_with_its_name(_: Arc<Servers>) -> Result<()> {
    let file = file("kind: ConfigMap\napiVersion: v1\nmetadata: {name: a}\n")?;
    let path = file.path().to_string_lossy();
    let ended = run_to_end(&["demo", "--once", "-f", &path]).await?;
    shows(
        &ended,
        2,
        &format!("muster: {path}: no ManifestWorkReplicaSet in it"),
    )
}

async fn sigterm_ends_it_in_order(_: Arc<Servers>) -> Result<()> {
    let ended = run_until_terminated(&["demo", "--clusters", "2"], "created on the hub").await?;
    shows(&ended, 0, "look for yourself")
}
