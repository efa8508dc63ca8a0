//! `muster explain`, by the program itself: what it finds as the first cause.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::rollout::{Fleet, config_map, placement, set};
use crate::support::muster::run_to_end;
use crate::support::{Story, World, eventually};

pub(crate) fn stories() -> Vec<Story> {
    on_each_backend![
        a_manifest_that_is_refused_is_the_cause,
        a_set_waits_for_its_placement_and_for_who_paused_it,
        a_cluster_without_an_agent_holds_up_the_next,
        a_work_that_the_hub_may_not_write_says_why,
        a_deletion_says_which_agent_it_waits_for,
        a_rule_says_what_is_not_watched,
        what_is_not_there_is_named,
    ]
}

const LIMIT: Duration = Duration::from_secs(60);

impl Fleet {
    /// What `muster explain` prints.
    async fn explains(&self, args: &[&str]) -> Result<String> {
        let ended = self.run(&[&["explain"], args].concat()).await?;
        ensure!(
            ended.code == Some(0) && ended.stderr.is_empty(),
            "{args:?}: {ended:?}"
        );
        Ok(ended.stdout)
    }

    /// Waits until its first line begins so; gives all of it.
    async fn finds(&self, args: &[&str], cause: &str) -> Result<String> {
        eventually(LIMIT, &format!("{args:?} to find {cause:?}"), || async {
            let said = self.explains(args).await?;
            ensure!(said.starts_with(cause), "{said}");
            Ok(said)
        })
        .await
    }

    /// A cluster that the hub knows and no agent works for, with the hub's namespace for it or not.
    pub(super) async fn add_cluster(&self, name: &str, with_namespace: bool) -> Result<()> {
        if with_namespace {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": name}});
            self.create(&namespace).await?;
        }
        self.create(&json!({
            "apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster",
            "metadata": {"name": name}, "spec": {"hubAcceptsClient": true}}))
            .await
    }

    pub(super) async fn patch_status(&self, what: &[&str], status: &Value) -> Result<()> {
        let patch = json!({ "status": status }).to_string();
        let patch = ["--subresource=status", "--type=merge", "-p", &patch];
        self.kubectl(&[&["patch"], what, &patch].concat()).await?;
        Ok(())
    }
}

fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": type_, "status": status, "reason": reason, "message": message,
        "observedGeneration": 1, "lastTransitionTime": "2026-01-02T00:00:00Z"})
}

async fn a_manifest_that_is_refused_is_the_cause(world: World) -> Result<()> {
    let fleet = Fleet::on(&world, "").await?;
    fleet.create(&placement()).await?;
    fleet.create(&set(&json!([config_map("app")]))).await?;
    let fine = fleet
        .finds(
            &["mwrs", "web"],
            "ok: ManifestWorkReplicaSet default/web: rolled out; 1 of 1 clusters updated, 1 \
             available\n",
        )
        .await?;
    ensure!(fine.ends_with("\n└─ 1 placement is fine\n"), "{fine}");

    let widget = json!({"apiVersion": "example.io/v1", "kind": "Widget",
        "metadata": {"namespace": "default", "name": "w"}});
    fleet.add_manifest(&widget).await?;
    let cause = "failed: Widget default/w on cluster simulated: Failed to apply manifest: ";
    let said = fleet.finds(&["mwrs", "mwrs/web"], cause).await?;
    let line = said.lines().next().unwrap_or_default();
    ensure!(
        line.contains("(AppliedManifestFailed), since ") && line.contains("Widget"),
        "{said}"
    );
    ensure!(
        said.contains("\n   └─ ManagedCluster simulated  failed\n")
            && said.contains("1 more object is fine"),
        "{said}"
    );
    // The hub sums up a moment later.
    eventually(LIMIT, "the set to say the same", || async {
        let said = fleet.explains(&["mwrs", "web"]).await?;
        let start = "ManifestWorkReplicaSet default/web: 1 of 1 clusters updated, 0 available, 1 \
                     failed; first failed simulated: Failed to apply manifest work: 1 of 2 failed, \
                     first: Widget default/w: ";
        let line = said.lines().nth(1).unwrap_or_default();
        ensure!(line.starts_with(start), "{said}");
        Ok(())
    })
    .await?;
    let wide = fleet.explains(&["mwrs", "web", "-o", "wide"]).await?;
    ensure!(wide.contains("ConfigMap default/app  ok"), "{wide}");

    // The same as a document, and from the work.
    let json = fleet.explains(&["mwrs", "web", "-o", "json"]).await?;
    let json: Value = serde_json::from_str(&json)?;
    let cause_of = &json["cause"];
    ensure!(
        cause_of["kind"] == "Widget"
            && cause_of["cluster"] == "simulated"
            && cause_of["state"] == "failed"
            && cause_of["reason"] == "AppliedManifestFailed"
            && json["tree"]["children"][0]["kind"] == "Placement",
        "{json}"
    );
    let yaml = fleet.explains(&["mwrs", "web", "-o", "yaml"]).await?;
    let yaml: Value = serde_saphyr::from_str(&yaml)?;
    ensure!(yaml["tree"] == json["tree"], "{yaml}");
    let work = json["tree"]["children"][0]["children"][0]["children"][0]["name"].clone();
    let work = work.as_str().context("no work")?;
    for access in [["--cluster", "simulated"], ["-n", "simulated"]] {
        let said = fleet
            .explains(&[&["work", work][..], &access].concat())
            .await?;
        ensure!(
            said.starts_with(cause)
                && said.contains("\nmade by ManifestWorkReplicaSet default/web: 1 of 1 clusters"),
            "{said}"
        );
    }
    fleet.muster.kill().await
}

async fn a_set_waits_for_its_placement_and_for_who_paused_it(world: World) -> Result<()> {
    let fleet = Fleet::on(&world, "").await?;
    fleet.create(&set(&json!([config_map("app")]))).await?;
    let missing = fleet
        .finds(
            &["mwrs", "web"],
            "waiting: Placement default/all: it does not exist (PlacementDecisionNotFound), since ",
        )
        .await?;
    let line = missing.lines().next().unwrap_or_default();
    ensure!(line.ends_with("Z)"), "{missing}");
    let mut nothing = placement();
    nothing["spec"] = json!({"predicates": [{"requiredClusterSelector":
        {"labelSelector": {"matchLabels": {"no": "such"}}}}]});
    fleet.create(&nothing).await?;
    fleet
        .finds(
            &["mwrs", "web"],
            "waiting: Placement default/all: it selects no cluster: ",
        )
        .await?;

    fleet
        .kubectl(&["annotate", "mwrs", "web", "muster.dev/paused=true"])
        .await?;
    let every = json!({"spec": {"predicates": null}}).to_string();
    fleet
        .kubectl(&["patch", "placement", "all", "--type=merge", "-p", &every])
        .await?;
    let paused = fleet
        .finds(
            &["mwrs", "web"],
            "waiting: ManifestWorkReplicaSet default/web: paused by annotation muster.dev/paused \
             (Paused",
        )
        .await?;
    ensure!(
        paused.contains("ManagedCluster simulated  waiting, Paused: it has no work"),
        "{paused}"
    );
    fleet
        .kubectl(&["annotate", "mwrs", "web", "muster.dev/paused-"])
        .await?;
    fleet
        .finds(&["mwrs", "web"], "ok: ManifestWorkReplicaSet default/web")
        .await?;
    fleet.muster.kill().await
}

async fn a_cluster_without_an_agent_holds_up_the_next(world: World) -> Result<()> {
    let fleet = Fleet::on(&world, "").await?;
    fleet.add_cluster("lonely", true).await?;
    fleet.create(&placement()).await?;
    let mut one_by_one = set(&json!([config_map("app")]));
    one_by_one["spec"]["placementRefs"][0]["rolloutStrategy"] =
        json!({"type": "Progressive", "progressive": {"maxConcurrency": 1}});
    fleet.create(&one_by_one).await?;
    let unseen = fleet
        .finds(&["mwrs", "web"], "waiting: ManifestWork lonely/web-")
        .await?;
    let line = unseen.lines().next().unwrap_or_default();
    ensure!(
        line.contains(": no agent has looked at it (NotSeen), since "),
        "{unseen}"
    );
    ensure!(
        unseen.contains(
            "ManagedCluster simulated  waiting, WaitsForTurn: it has no work, and waits until \
             lonely is done"
        ),
        "{unseen}"
    );
    let away = condition(
        "ManagedClusterConditionAvailable",
        "Unknown",
        "ManagedClusterLeaseUpdateStopped",
        "the lease is old",
    );
    fleet
        .patch_status(
            &["managedcluster", "lonely"],
            &json!({"conditions": [away]}),
        )
        .await?;
    fleet
        .finds(
            &["mwrs", "web"],
            "unknown: ManagedCluster lonely: its agent is away: the lease is old (AgentAway), since ",
        )
        .await?;
    fleet.muster.kill().await
}

async fn a_work_that_the_hub_may_not_write_says_why(world: World) -> Result<()> {
    let fleet = Fleet::on(&world, "").await?;
    fleet.add_cluster("ghost", false).await?;
    fleet.create(&placement()).await?;
    fleet.create(&set(&json!([config_map("app")]))).await?;
    let said = fleet
        .finds(
            &["mwrs", "web"],
            "failed: ManagedCluster ghost: the hub's API refuses its work: namespaces \"ghost\" not \
             found (WriteRefused)\n",
        )
        .await?;
    ensure!(
        said.contains("ManagedCluster ghost  failed, WriteRefused: "),
        "{said}"
    );
    fleet.muster.kill().await
}

async fn a_deletion_says_which_agent_it_waits_for(world: World) -> Result<()> {
    let fleet = Fleet::on(&world, "").await?;
    fleet.add_cluster("lonely", true).await?;
    let mut work = json!({
        "apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
        "metadata": {"namespace": "lonely", "name": "mine"},
        "spec": {"workload": {"manifests": [config_map("app")]}}});
    work["metadata"]["finalizers"] =
        json!(["cluster.open-cluster-management.io/manifest-work-cleanup"]);
    fleet.create(&work).await?;
    fleet
        .kubectl(&[
            "delete",
            "manifestwork",
            "-n",
            "lonely",
            "mine",
            "--wait=false",
        ])
        .await?;
    fleet
        .finds(
            &["work", "mine", "--cluster", "lonely"],
            "waiting: ManifestWork lonely/mine: it is being deleted, and its agent has not begun to \
             clean up (Deleting), since ",
        )
        .await?;
    fleet.muster.kill().await
}

async fn a_rule_says_what_is_not_watched(world: World) -> Result<()> {
    let fleet = Fleet::on(&world, "").await?;
    // Any API server with the definitions is a cluster to it.
    let crds = run_to_end(&["crds", "rules"]).await?.stdout;
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("crds.yaml");
    std::fs::write(&file, crds)?;
    let file = file.display().to_string();
    fleet.kubectl(&["apply", "-f", &file]).await?;
    let wait = ["--for=condition=Established", "--timeout=60s"];
    for crd in ["watchrules", "clusterwatchrules"] {
        let crd = format!("crd/{crd}.rules.muster.dev");
        fleet
            .kubectl(&[&["wait", crd.as_str()][..], &wait].concat())
            .await?;
    }
    let rule = json!({
        "apiVersion": "rules.muster.dev/v1alpha1", "kind": "WatchRule",
        "metadata": {"namespace": "default", "name": "config"},
        "spec": {"destination": "audit", "rules": [{"resources": ["gadgets"]}]}});
    fleet.create(&rule).await?;
    fleet
        .finds(
            &["rule", "config"],
            "waiting: WatchRule default/config: no agent has looked at generation 1: only one whose \
             settings have sinks does (NotSeen), since ",
        )
        .await?;
    let status = |reason: &str, message: &str, unresolved: Value| {
        json!({"observedGeneration": 1, "unresolved": unresolved,
            "conditions": [condition("Ready", "False", reason, message)]})
    };
    let unknown =
        json!([{"resource": "gadgets", "reason": "TypeUnknown", "message": "not served"}]);
    fleet
        .patch_status(
            &["watchrule", "config"],
            &status("TypeUnknown", "gadgets: not served", unknown),
        )
        .await?;
    fleet
        .finds(
            &["rule", "config"],
            "failed: Resource gadgets: not served (TypeUnknown), since ",
        )
        .await?;

    let mut wide = rule;
    wide["kind"] = json!("ClusterWatchRule");
    wide["metadata"] = json!({"name": "config"});
    wide["spec"]["rules"][0]["scope"] = json!("Cluster");
    fleet.create(&wide).await?;
    fleet
        .patch_status(
            &["clusterwatchrule", "config"],
            &status("SinkFailing", "sink audit: disk full", json!([])),
        )
        .await?;
    let which = fleet.run(&["explain", "rule", "config"]).await?;
    ensure!(
        which.code == Some(1)
            && which.stderr.trim_end()
                == "muster: there is watchrule default/config and clusterwatchrule config: say \
                    which, as watchrule/config or clusterwatchrule/config",
        "{which:?}"
    );
    fleet
        .finds(
            &["rule", "clusterwatchrule/config"],
            "failed: Sink audit: sink audit: disk full (SinkFailing), since ",
        )
        .await?;
    fleet
        .finds(&["rule", "watchrule/config"], "failed: Resource gadgets: ")
        .await?;
    fleet.muster.kill().await
}

async fn what_is_not_there_is_named(world: World) -> Result<()> {
    let fleet = Fleet::on(&world, "").await?;
    for (args, code, text) in [
        (
            &["mwrs", "none"][..],
            1,
            "muster: mwrs default/none not found",
        ),
        (
            &["mwrs", "none", "-n", "nowhere"],
            1,
            "muster: namespace nowhere not found",
        ),
        (
            &["work", "none", "--cluster", "simulated"],
            1,
            "muster: work simulated/none not found",
        ),
        (
            &["work", "none", "--cluster", "nowhere"],
            1,
            "muster: namespace nowhere not found",
        ),
        // A cluster without the definitions.
        (
            &["rule", "watchrule/none"],
            1,
            "muster: failed to read watchrule default/none: ",
        ),
        (&["work", "a/b"], 2, "is not a ManifestWork name"),
        (&["rule"], 2, "<NAME>"),
        (
            &["work", "w", "--cluster", "c1", "-n", "c1"],
            2,
            "cannot be used with",
        ),
    ] {
        let ended = fleet.run(&[&["explain"], args].concat()).await?;
        ensure!(
            ended.code == Some(code) && ended.stderr.contains(text),
            "{args:?} should end with {code} and {text:?}: {ended:?}"
        );
    }
    fleet.muster.kill().await
}
