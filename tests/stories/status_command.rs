//! `muster status`, by the program itself.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{ChildStdout, Command};

use super::rollout::{Fleet, config_map, placement, set};
use crate::support::muster::{PROGRAM, run_to_end};
use crate::support::within;
use crate::support::{Story, World, eventually};

pub(crate) fn stories() -> Vec<Story> {
    on_each_backend![
        a_fleet_is_summed_up_and_failures_end_with_3,
        a_fleet_is_shown_again_whenever_it_changes,
        what_cannot_be_shown_is_refused,
    ]
}

const LIMIT: Duration = Duration::from_secs(60);

fn widget_work() -> Value {
    json!({
        "apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
        "metadata": {"namespace": "simulated", "name": "mine"},
        "spec": {"workload": {"manifests": [
            {"apiVersion": "example.io/v1", "kind": "Widget",
                "metadata": {"namespace": "default", "name": "w"}}]}}})
}

/// The words of the lines.
fn words(text: &str) -> Vec<Vec<&str>> {
    let words = |line| str::split_whitespace(line).collect();
    text.lines().map(words).collect()
}

async fn a_fleet_is_summed_up_and_failures_end_with_3(world: World) -> Result<()> {
    let fleet = Fleet::on(&world, "").await?;
    fleet.create(&placement()).await?;
    fleet.create(&set(&json!([config_map("app")]))).await?;
    let sets = [
        "NAMESPACE SET PHASE DESIRED UPDATED AVAILABLE FAILED MESSAGE",
        "default web Ready 1 1 1 0 ManifestWorks available in 1/1 clusters",
    ];
    let clusters = [
        "",
        "CLUSTER STATE WORKS APPLIED AVAILABLE FAILING SINCE",
        "simulated ok 1 1 1 0",
    ];
    eventually(LIMIT, "the fleet to be well", || async {
        for more in [&[][..], &["-A"], &["-n", "default"]] {
            let ended = fleet.run(&[&["status"], more].concat()).await?;
            let expected = [&sets[..], &clusters].concat().join("\n");
            ensure!(
                ended.code == Some(0)
                    && ended.stderr.is_empty()
                    && words(&ended.stdout) == words(&expected),
                "{ended:?}"
            );
        }
        Ok(())
    })
    .await?;

    fleet.create(&widget_work()).await?;
    eventually(LIMIT, "the failure to be seen", || async {
        let ended = fleet.run(&["status", "-o", "wide"]).await?;
        ensure!(
            ended.code == Some(3)
                && ended.stderr.trim_end()
                    == "muster: something has failed in 0 sets and 1 cluster; muster explain says \
                        what",
            "{ended:?}"
        );
        let lines = words(&ended.stdout);
        let row = lines.iter().find(|line| line.first() == Some(&"simulated"));
        let row = row.context("no row of the cluster")?;
        ensure!(
            row[..6] == ["simulated", "failed", "2", "1", "1", "1"],
            "{row:?}"
        );
        ensure!(
            row[7] == "mine:" && ended.stdout.contains("WORK OF NO SET"),
            "{ended:?}"
        );
        Ok(())
    })
    .await?;
    let json = fleet.run(&["status", "-o", "json"]).await?;
    let json: Value = serde_json::from_str(&json.stdout)?;
    ensure!(
        json["state"] == "failed"
            && json["sets"][0]["state"] == "ok"
            && json["clusters"][0]["failing"] == 1
            && json["works"][0]["name"] == "mine"
            && json["works"][0]["reason"] == "AppliedManifestWorkFailed",
        "{json}"
    );
    // The sets of a namespace have nothing to do with it.
    let own = fleet
        .run(&["status", "-n", "default", "-o", "yaml"])
        .await?;
    let yaml: Value = serde_saphyr::from_str(&own.stdout)?;
    ensure!(
        own.code == Some(0) && yaml["state"] == "ok" && yaml["works"] == json!([]),
        "{own:?}"
    );
    fleet.muster.kill().await
}

/// Reads lines until there is one with this text.
async fn read_until(lines: &mut Lines<BufReader<ChildStdout>>, text: &str) -> Result<()> {
    let found = async {
        let mut seen = Vec::new();
        while let Some(line) = lines.next_line().await? {
            if line.contains(text) {
                return Ok(());
            }
            seen.push(line);
        }
        anyhow::bail!("no {text:?} in {seen:#?}")
    };
    within(LIMIT, &format!("a line with {text:?}"), found).await?
}

async fn a_fleet_is_shown_again_whenever_it_changes(world: World) -> Result<()> {
    let fleet = Fleet::on(&world, "").await?;
    let hub = fleet.hub.display().to_string();
    let mut child = Command::new(PROGRAM)
        .args(["status", "--watch", "--kubeconfig", &hub])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let stdout = child.stdout.take().context("no stdout")?;
    let mut lines = BufReader::new(stdout).lines();
    read_until(&mut lines, "no ManifestWorkReplicaSets").await?;
    fleet.create(&placement()).await?;
    fleet.create(&set(&json!([config_map("app")]))).await?;
    read_until(&mut lines, "ManifestWorks available in 1/1 clusters").await?;
    fleet.create(&widget_work()).await?;
    read_until(&mut lines, "WORK OF NO SET").await?;
    fleet
        .kubectl(&["delete", "mwrs", "web", "--timeout=60s"])
        .await?;
    read_until(&mut lines, "no ManifestWorkReplicaSets").await?;
    child.kill().await?;
    fleet.muster.kill().await
}

async fn what_cannot_be_shown_is_refused(world: World) -> Result<()> {
    let fleet = Fleet::on(&world, "").await?;
    for (args, code, text) in [
        (&["-A", "-n", "default"][..], 2, "cannot be used with"),
        (&["-n", "a/b"], 2, "is not a namespace name"),
    ] {
        let ended = fleet.run(&[&["status"], args].concat()).await?;
        ensure!(
            ended.code == Some(code) && ended.stderr.contains(text),
            "{args:?}: {ended:?}"
        );
    }
    // An API server without the definitions is no hub.
    let other = world.own_cluster().await?;
    let other = other.cluster().kubeconfig().display().to_string();
    for (more, verb) in [(&[][..], "list"), (&["--watch"], "watch")] {
        let args = [&["status", "--kubeconfig", &other][..], more].concat();
        let ended = run_to_end(&args).await?;
        let text = format!("muster: failed to {verb} ManifestWork"); // sets or works
        ensure!(
            ended.code == Some(1) && ended.stderr.starts_with(&text),
            "{ended:?}"
        );
    }
    fleet.muster.kill().await
}
