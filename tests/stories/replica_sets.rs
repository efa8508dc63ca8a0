//! Replica sets by the program itself and as kubectl shows them: rollouts under a strategy, pauses,
//! names and deletions.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::rollout::{Fleet, cluster_section, config_map, placement, set};
use crate::support::ages::is_age;
use crate::support::{Backend, Story, World, eventually, kubectl_at};

pub(crate) fn stories() -> Vec<Story> {
    on_each_backend![
        two_clusters_go_through_the_steps_of_the_design,
        a_paused_set_and_a_paused_cluster_get_nothing,
        a_strategy_that_does_not_read_is_told_in_one_line,
        a_set_with_a_long_name_comes_and_goes,
        a_deletion_that_waits_names_cluster_and_object,
    ]
}

const LIMIT: Duration = Duration::from_secs(60);

/// Beside the cluster of each fleet, `simulated`.
pub(super) const ANOTHER: &str = "[[clusters]]\nname = \"west\"\nsimulated = true";

pub(super) fn progressive(body: &Value) -> Value {
    let mut set = set(&json!([config_map("app")]));
    set["spec"]["placementRefs"] = json!([{"name": "all",
        "rolloutStrategy": {"type": "Progressive", "progressive": body}}]);
    set
}

impl Fleet {
    /// Conditions of the set as `TYPE=STATUS REASON MESSAGE`, in their order.
    pub(super) async fn conditions(&self) -> Result<Vec<String>> {
        let set = self.get(&["mwrs", "web"]).await?;
        let all = set["status"]["conditions"].as_array().cloned();
        let text = |condition: &Value, field: &str| -> String {
            condition[field].as_str().unwrap_or_default().to_owned()
        };
        let line = |condition: Value| {
            let [kind, status, reason, message] =
                ["type", "status", "reason", "message"].map(|field| text(&condition, field));
            format!("{kind}={status} {reason} {message}")
                .trim_end()
                .to_owned()
        };
        Ok(all.unwrap_or_default().into_iter().map(line).collect())
    }

    /// Waits until the conditions are these.
    async fn conditions_are(&self, expected: [&str; 5]) -> Result<()> {
        eventually(LIMIT, "the conditions of a step", || async {
            let seen = self.conditions().await?;
            ensure!(seen == expected, "{seen:#?}");
            Ok(())
        })
        .await
    }

    /// What `kubectl get mwrs` prints, with one space between columns.
    pub(super) async fn table(&self, more: &[&str]) -> Result<Vec<String>> {
        let table = self.kubectl(&[&["get", "mwrs"], more].concat()).await?;
        let line = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        Ok(table.lines().map(line).collect())
    }

    /// Data of the map in the template of each cluster's work.
    pub(super) async fn data(&self, cluster: &str) -> Result<Option<Value>> {
        let works = self.get(&["manifestworks", "-n", cluster]).await?;
        let manifest = &works["items"][0]["spec"]["workload"]["manifests"][0];
        Ok((!manifest.is_null()).then(|| manifest["data"].clone()))
    }

    pub(super) async fn change(&self, value: &str) -> Result<()> {
        let place = "/spec/manifestWorkTemplate/workload/manifests/0/data";
        let patch = json!([{"op": "replace", "path": place, "value": {"a": value}}]);
        self.patch("web", &patch).await
    }
}

async fn two_clusters_go_through_the_steps_of_the_design(world: World) -> Result<()> {
    let fleet = Fleet::on(&world, ANOTHER).await?;
    fleet.create(&placement()).await?;
    let body = json!({"maxConcurrency": 1, "minSuccessTime": "10s"});
    fleet.create(&progressive(&body)).await?;
    // The first is there, and has to stay so for a while: long enough to be looked at.
    fleet
        .conditions_are([
            "PlacementVerified=True AsExpected",
            "PlacementRolledOut=False Progressing",
            "ManifestworkApplied=True AsExpected",
            "Progressing=True Paused Rollout is paused to wait for progressive rules",
            "Ready=False NotAllClustersAvailable ManifestWorks available in 1/2 clusters",
        ])
        .await?;
    let table = fleet.table(&[]).await?;
    let header = "NAME PLACEMENT FOUND MANIFESTWORKS APPLIED STATUS READY";
    let line = "web AsExpected True AsExpected True Progressing ManifestWorks available in 1/2 \
                clusters; paused until 20";
    ensure!(
        table.len() == 2
            && table[0] == header
            && table[1].starts_with(line)
            && table[1].ends_with("Z, when simulated has been well for minSuccessTime"),
        "{table:#?}"
    );
    ensure!(fleet.data("west").await?.is_none(), "too soon");
    // Nothing happens, and yet the second has its turn.
    fleet
        .conditions_are([
            "PlacementVerified=True AsExpected",
            "PlacementRolledOut=True Complete",
            "ManifestworkApplied=True AsExpected",
            "Progressing=False AllClustersReady 2 of 2 clusters reporting Completed state",
            "Ready=True AllClustersAvailable ManifestWorks available in 2/2 clusters",
        ])
        .await?;
    let table = fleet.table(&["-o", "wide"]).await?;
    let (line, age) = table[1].rsplit_once(' ').unwrap_or_default();
    ensure!(
        table[0]
            == "NAME PLACEMENT FOUND MANIFESTWORKS APPLIED STATUS READY TOTAL AVAILABLE \
                PROGRESSING DEGRADED AGE"
            && line
                == "web AsExpected True AsExpected True Ready ManifestWorks available in 2/2 \
                    clusters 2 2 0 0"
            && is_age(age),
        "{table:#?}"
    );
    let set = fleet.get(&["mwrs", "web"]).await?;
    let generation = &set["metadata"]["generation"];
    let conditions = set["status"]["conditions"].as_array().cloned();
    for condition in conditions.unwrap_or_default() {
        ensure!(
            condition["observedGeneration"] == *generation,
            "{condition}"
        );
    }
    let summary = json!({"total": 2, "progressing": 0, "available": 2, "degraded": 0,
        "applied": 2, "desiredTotal": 2, "updated": 2});
    ensure!(set["status"]["summary"] == summary, "{}", set["status"]);

    // A change goes the same way: while the first has it, the second keeps what it had.
    fleet.change("c").await?;
    let has = async |cluster: &str, value: &str| {
        eventually(LIMIT, "a change", || async {
            let data = fleet.data(cluster).await?;
            ensure!(data == Some(json!({"a": value})), "{data:?}");
            Ok(())
        })
        .await
    };
    has("simulated", "c").await?;
    has("west", "b").await?;
    has("west", "c").await?;
    fleet
        .kubectl(&["wait", "mwrs/web", "--for=condition=Ready", "--timeout=60s"])
        .await?;
    fleet
        .kubectl(&["delete", "mwrs", "web", "--timeout=60s"])
        .await?;
    Ok(())
}

async fn a_paused_set_and_a_paused_cluster_get_nothing(world: World) -> Result<()> {
    let fleet = Fleet::on(&world, ANOTHER).await?;
    fleet.create(&placement()).await?;
    fleet.create(&progressive(&json!({}))).await?;
    let ready = ["wait", "mwrs/web", "--for=condition=Ready", "--timeout=60s"];
    fleet.kubectl(&ready).await?;
    let line = async |expected: &str| {
        eventually(LIMIT, "a line of the table", || async {
            let table = fleet.table(&[]).await?;
            ensure!(
                table.get(1).is_some_and(|line| line == expected),
                "{table:#?}"
            );
            Ok(())
        })
        .await
    };
    fleet
        .kubectl(&["annotate", "mwrs", "web", "muster.dev/paused=true"])
        .await?;
    fleet.change("c").await?;
    line(
        "web AsExpected True Processing False Progressing ManifestWorks available in 0/2 clusters; \
         paused by annotation muster.dev/paused",
    )
    .await?;
    ensure!(
        fleet.data("west").await? == Some(json!({"a": "b"})),
        "written"
    );
    // On with all clusters but one.
    fleet
        .kubectl(&[
            "annotate",
            "managedcluster",
            "west",
            "muster.dev/paused=true",
        ])
        .await?;
    fleet
        .kubectl(&["annotate", "mwrs", "web", "muster.dev/paused-"])
        .await?;
    line(
        "web AsExpected True Processing False Progressing ManifestWorks available in 1/2 clusters; \
         paused in 1 cluster, first west",
    )
    .await?;
    ensure!(
        fleet.data("west").await? == Some(json!({"a": "b"})),
        "written"
    );
    fleet
        .kubectl(&["annotate", "managedcluster", "west", "muster.dev/paused-"])
        .await?;
    line("web AsExpected True AsExpected True Ready ManifestWorks available in 2/2 clusters").await
}

async fn a_strategy_that_does_not_read_is_told_in_one_line(world: World) -> Result<()> {
    let fleet = Fleet::on(&world, "").await?;
    fleet.create(&placement()).await?;
    let created = fleet
        .create(&progressive(&json!({"progressDeadline": "10|"})))
        .await;
    if world.backend() == Backend::Embedded {
        let refused = created.err().map(|error| format!("{error:#}"));
        let why = "spec.placementRefs[0].rolloutStrategy.progressive.progressDeadline: time: \
                   unknown unit \"|\" in duration \"10|\"";
        ensure!(
            refused
                .as_ref()
                .is_some_and(|refused| refused.contains(why)),
            "{refused:?}"
        );
        return Ok(());
    }
    created?; // no webhook there
    eventually(LIMIT, "the line to say so", || async {
        let table = fleet.table(&["--no-headers"]).await?;
        ensure!(
            table
                == [
                    "web NotAsExpected False NotAsExpected False Progressing ManifestWorks \
                     available in 0/1 clusters; placement all: \
                     rolloutStrategy.progressive.progressDeadline: time: unknown unit \"|\" in \
                     duration \"10|\""
                ],
            "{table:#?}"
        );
        Ok(())
    })
    .await?;
    ensure!(
        fleet.data("simulated").await?.is_none(),
        "a work was written"
    );
    Ok(())
}

/// Its owner label would be longer than a label may be.
async fn a_set_with_a_long_name_comes_and_goes(world: World) -> Result<()> {
    let name = "long-name-of-a-replica-set-".repeat(4) + "web";
    let fleet = Fleet::on(&world, "").await?;
    fleet.create(&placement()).await?;
    let mut long = set(&json!([config_map("app")]));
    long["metadata"]["name"] = json!(name);
    fleet.create(&long).await?;
    let object = format!("mwrs/{name}");
    fleet
        .kubectl(&["wait", &object, "--for=condition=Ready", "--timeout=60s"])
        .await?;
    fleet.kubectl(&["delete", &object, "--timeout=60s"]).await?;
    eventually(LIMIT, "its work to go", || async {
        let data = fleet.data("simulated").await?;
        ensure!(data.is_none(), "{data:?}");
        Ok(())
    })
    .await
}

async fn a_deletion_that_waits_names_cluster_and_object(world: World) -> Result<()> {
    let spoke = world.own_cluster().await?;
    let spoke = spoke.cluster();
    let fleet = Fleet::on(&world, &cluster_section("edge", spoke.kubeconfig())).await?;
    fleet.create(&placement()).await?;
    let mut foreground = set(&json!([config_map("app")]));
    foreground["spec"]["cascadeDeletionPolicy"] = json!("Foreground");
    fleet.create(&foreground).await?;
    let ready = ["wait", "mwrs/web", "--for=condition=Ready", "--timeout=60s"];
    fleet.kubectl(&ready).await?;
    let kubectl = world.kubectl()?;
    let hold = async |finalizers: Value| {
        let patch = json!({"metadata": {"finalizers": finalizers}}).to_string();
        let args = ["patch", "configmap", "app", "--type=merge", "-p", &patch];
        kubectl_at(&kubectl, spoke.kubeconfig(), &args, "")
            .await?
            .ok()
    };
    hold(json!(["example.org/hold"])).await?;
    fleet
        .kubectl(&["delete", "mwrs", "web", "--wait=false"])
        .await?;
    eventually(LIMIT, "the line to say what for", || async {
        let line = fleet.table(&["--no-headers"]).await?.join("");
        let parts = [
            "deletion waits for 1 ManifestWorks, first edge/web-",
            "app",
            "example.org/hold",
        ];
        ensure!(parts.iter().all(|part| line.contains(part)), "{line}");
        // Phase and conditions say the same.
        let set = fleet.get(&["mwrs", "web"]).await?;
        let message = set["status"]["message"].as_str().unwrap_or_default();
        ensure!(set["status"]["phase"] == "Progressing", "{set}");
        let conditions = fleet.conditions().await?;
        let expected = [
            format!("Progressing=True Deleting {message}"),
            format!("Ready=False Deleting {message}"),
        ];
        ensure!(conditions[3..] == expected, "{conditions:#?}");
        Ok(())
    })
    .await?;
    hold(json!([])).await?;
    fleet
        .kubectl(&["wait", "mwrs/web", "--for=delete", "--timeout=60s"])
        .await?;
    Ok(())
}
