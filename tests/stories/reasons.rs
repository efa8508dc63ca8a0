//! One look tells why something is not done: the line of `kubectl get`, conditions, Events.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::replica_sets::{ANOTHER, progressive};
use super::rollout::{Fleet, config_map, placement, set};
use crate::support::{Backend, Story, World, eventually};

pub(crate) fn stories() -> Vec<Story> {
    on_each_backend![
        what_fails_on_every_cluster_is_told_in_one_line_and_in_events,
        a_namespace_that_is_missing_on_every_cluster_is_named,
        a_cluster_of_two_placements_is_one_cluster,
        a_cluster_whose_agent_is_away_is_unknown,
        a_concurrency_of_nothing_begins_nothing,
        a_deletion_that_waits_for_a_cluster_that_is_gone_has_a_way_out,
        a_deletion_ends_when_the_cluster_is_deleted,
    ]
}

const LIMIT: Duration = Duration::from_secs(60);
/// The agent's finalizer.
const FINALIZER: &str = "cluster.open-cluster-management.io/manifest-work-cleanup";

impl Fleet {
    /// Waits until the line of the set begins so, and gives it.
    async fn line(&self, start: &str) -> Result<String> {
        eventually(LIMIT, &format!("a line that begins {start:?}"), || async {
            let line = self.table(&["--no-headers"]).await?.join("\n");
            ensure!(line.starts_with(start), "{line}");
            Ok(line)
        })
        .await
    }

    /// Waits until `kubectl describe` shows these words in this order in lines of its Events.
    async fn describes(&self, what: &[&str], events: &[&str]) -> Result<()> {
        let what = [&["describe"], what].concat();
        eventually(LIMIT, &format!("{what:?} to show {events:?}"), || async {
            let said = self.kubectl(&what).await?;
            let (_, said) = said.split_once("\nEvents:").context("no Events")?;
            for event in events {
                let words: Vec<&str> = event.split(' ').collect();
                let shown = said.lines().any(|line| {
                    let mut all = line.split_whitespace();
                    words.iter().all(|word| all.any(|has| has == *word))
                });
                ensure!(shown, "no {event:?} in {said}");
            }
            Ok(())
        })
        .await
    }
}

async fn what_fails_on_every_cluster_is_told_in_one_line_and_in_events(world: World) -> Result<()> {
    let fleet = Fleet::on(&world, ANOTHER).await?;
    fleet.create(&placement()).await?;
    let widget = json!({"apiVersion": "example.io/v1", "kind": "Widget",
        "metadata": {"namespace": "default", "name": "w"}});
    fleet.create(&set(&json!([widget]))).await?;
    let failed = "ManifestWorks available in 0/2 clusters, 2 failed; first failed simulated: Failed \
                  to apply manifest work: 1 of 1 failed, first: ";
    let line = format!("web AsExpected True NotAsExpected False Failed {failed}");
    let line = fleet.line(&line).await?;
    ensure!(line.contains("Widget"), "{line}");
    let conditions = fleet.conditions().await?;
    let progressing = "Progressing=False ClustersFailed 0 of 2 clusters reporting Completed state, 2 \
                       failed; first failed simulated: Failed to apply manifest work: ";
    let ready = format!("Ready=False NotAllClustersAvailable {failed}");
    ensure!(
        conditions[3].starts_with(progressing) && conditions[4].starts_with(&ready),
        "{conditions:#?}"
    );
    let summary = fleet.get(&["mwrs", "web"]).await?["status"]["summary"].clone();
    ensure!(
        summary["degraded"] == 2 && summary["applied"] == 0,
        "{summary}"
    );
    fleet
        .describes(
            &["mwrs", "web"],
            &[
                "Normal RollingOut muster-hub",
                "Warning ClustersFailed muster-hub",
            ],
        )
        .await?;
    let works = fleet.get(&["manifestworks", "-n", "west"]).await?;
    let name = works["items"][0]["metadata"]["name"]
        .as_str()
        .context("no name")?;
    fleet
        .describes(
            &["manifestwork", name, "-n", "west"],
            &["Warning NotApplied muster-hub"],
        )
        .await?;
    // It is mended, and that is told, too.
    let manifests = "/spec/manifestWorkTemplate/workload/manifests";
    let mend = json!([{"op": "replace", "path": manifests, "value": [config_map("app")]}]);
    fleet.patch("web", &mend).await?;
    fleet
        .line("web AsExpected True AsExpected True Ready ManifestWorks available in 2/2 clusters")
        .await?;
    fleet
        .describes(&["mwrs", "web"], &["Normal RolledOut muster-hub"])
        .await?;
    fleet
        .describes(
            &["manifestwork", name, "-n", "west"],
            &["Normal Applied muster-hub"],
        )
        .await
}

async fn a_namespace_that_is_missing_on_every_cluster_is_named(world: World) -> Result<()> {
    let fleet = Fleet::on(&world, ANOTHER).await?;
    fleet.create(&placement()).await?;
    let mut lost = config_map("app");
    lost["metadata"]["namespace"] = json!("nowhere");
    fleet.create(&set(&json!([lost]))).await?;
    let line = fleet
        .line(
            "web AsExpected True NotAsExpected False Failed ManifestWorks available in 0/2 \
             clusters, 2 failed; first failed simulated: Failed to apply manifest work: ",
        )
        .await?;
    ensure!(line.contains("namespaces \"nowhere\" not found"), "{line}");
    Ok(())
}

async fn a_cluster_of_two_placements_is_one_cluster(world: World) -> Result<()> {
    let fleet = Fleet::on(&world, "").await?;
    fleet.create(&placement()).await?;
    let mut other = placement();
    other["metadata"]["name"] = json!("other");
    fleet.create(&other).await?;
    let mut both = set(&json!([config_map("app")]));
    both["spec"]["placementRefs"] = json!([{"name": "all"}, {"name": "other"}]);
    fleet.create(&both).await?;
    fleet
        .line("web AsExpected True AsExpected True Ready ManifestWorks available in 1/1 clusters")
        .await?;
    let status = fleet.get(&["mwrs", "web"]).await?["status"].clone();
    let one = json!({"total": 1, "progressing": 0, "available": 1, "degraded": 0, "applied": 1,
        "desiredTotal": 1, "updated": 1});
    ensure!(status["summary"] == one, "{status}");
    let works = fleet.get(&["manifestworks", "-n", "simulated"]).await?;
    ensure!(
        works["items"].as_array().map(Vec::len) == Some(2),
        "{works}"
    );
    Ok(())
}

async fn a_cluster_whose_agent_is_away_is_unknown(world: World) -> Result<()> {
    let fleet = Fleet::on(&world, ANOTHER).await?;
    fleet.create(&placement()).await?;
    fleet.create(&set(&json!([config_map("app")]))).await?;
    let ready = "web AsExpected True AsExpected True Ready ManifestWorks available in 2/2 clusters";
    fleet.line(ready).await?;
    let agent_is = async |status: &str| {
        let available = json!({"conditions": [{
            "type": "ManagedClusterConditionAvailable", "status": status, "reason": "Test",
            "message": "no lease", "lastTransitionTime": "2026-01-02T00:00:00Z"}]});
        fleet
            .patch_status(&["managedcluster", "west"], &available)
            .await
    };
    agent_is("Unknown").await?;
    fleet
        .line(
            "web AsExpected True AsExpected True Progressing ManifestWorks available in 1/2 \
             clusters, unknown in 1: the agent of west is away since 2026-01-02T00:00:00Z",
        )
        .await?;
    let status = fleet.run(&["status"]).await?;
    ensure!(
        status.stdout.contains("west") && status.stdout.contains("unknown"),
        "{status:?}"
    );
    agent_is("True").await?;
    fleet.line(ready).await?;
    Ok(())
}

async fn a_concurrency_of_nothing_begins_nothing(world: World) -> Result<()> {
    let fleet = Fleet::on(&world, ANOTHER).await?;
    fleet.create(&placement()).await?;
    let why = "rolloutStrategy.progressive.maxConcurrency: must be more than 0; leave it out for all \
               clusters at once";
    for nothing in [json!(0), json!("0%"), json!(-1)] {
        let created = fleet
            .create(&progressive(&json!({"maxConcurrency": nothing})))
            .await;
        if world.backend() == Backend::Embedded {
            let refused = created.err().map(|error| format!("{error:#}"));
            ensure!(refused.is_some_and(|text| text.contains(why)), "{nothing}");
            continue;
        }
        created?; // no webhook there
        let line = fleet
            .line("web NotAsExpected False NotAsExpected False Progressing ")
            .await?;
        ensure!(line.contains(why), "{line}");
        for cluster in ["simulated", "west"] {
            ensure!(fleet.data(cluster).await?.is_none(), "{cluster} has a work");
        }
        fleet.kubectl(&["delete", "mwrs", "web"]).await?;
    }
    Ok(())
}

/// A cluster `lonely` without an agent, with a work that is being deleted and waits for one.
async fn with_a_work_that_waits(world: &World) -> Result<Fleet> {
    let fleet = Fleet::with(world, "", "abandon_after = \"1s\"").await?;
    fleet.add_cluster("lonely", true).await?;
    let mut work: Value = json!({
        "apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
        "metadata": {"namespace": "lonely", "name": "mine"},
        "spec": {"workload": {"manifests": [config_map("app")]}}});
    work["metadata"]["finalizers"] = json!([FINALIZER]);
    fleet.create(&work).await?;
    let args = [
        "delete",
        "manifestwork",
        "mine",
        "-n",
        "lonely",
        "--wait=false",
    ];
    fleet.kubectl(&args).await?;
    Ok(fleet)
}

impl Fleet {
    async fn waits_because(&self, reason: &str, text: &str) -> Result<()> {
        eventually(LIMIT, "the work to say what it waits for", || async {
            let work = self.get(&["manifestwork", "mine", "-n", "lonely"]).await?;
            let conditions = work["status"]["conditions"].as_array().cloned();
            let conditions = conditions.unwrap_or_default();
            let deleting = conditions.iter().find(|one| one["type"] == "Deleting");
            let deleting = deleting.context("no condition")?;
            let message = deleting["message"].as_str().unwrap_or_default();
            ensure!(
                deleting["reason"] == reason && message.contains(text),
                "{deleting}"
            );
            Ok(())
        })
        .await
    }

    async fn work_is_gone(&self) -> Result<()> {
        let args = [
            "wait",
            "manifestwork/mine",
            "-n",
            "lonely",
            "--for=delete",
            "--timeout=60s",
        ];
        self.kubectl(&args).await?;
        Ok(())
    }
}

async fn a_deletion_that_waits_for_a_cluster_that_is_gone_has_a_way_out(
    world: World,
) -> Result<()> {
    let fleet = with_a_work_that_waits(&world).await?;
    let away = json!({"conditions": [{"type": "ManagedClusterConditionAvailable",
        "status": "Unknown", "reason": "Test", "message": "no lease",
        "lastTransitionTime": "2026-01-02T00:00:00Z"}]});
    fleet
        .patch_status(&["managedcluster", "lonely"], &away)
        .await?;
    fleet
        .waits_because(
            "AgentAway",
            "the agent of cluster lonely is away since 2026-01-02T00:00:00Z",
        )
        .await?;
    fleet
        .describes(
            &["manifestwork", "mine", "-n", "lonely"],
            &["Warning AgentAway muster-hub"],
        )
        .await?;
    let said = fleet
        .run(&["explain", "work", "mine", "-n", "lonely"])
        .await?;
    ensure!(
        said.stdout.contains("agent of cluster lonely is away"),
        "{said:?}"
    );
    fleet
        .kubectl(&[
            "annotate",
            "managedcluster",
            "lonely",
            "muster.dev/abandoned=true",
        ])
        .await?;
    fleet.work_is_gone().await
}

async fn a_deletion_ends_when_the_cluster_is_deleted(world: World) -> Result<()> {
    let fleet = with_a_work_that_waits(&world).await?;
    fleet
        .kubectl(&["delete", "managedcluster", "lonely"])
        .await?;
    fleet.work_is_gone().await
}
