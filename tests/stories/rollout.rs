//! The main job from end to end, by the program itself: a replica set on the hub, its works, the
//! objects on the clusters, their values back on the hub, and all of it gone again.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use muster_apiserver::{SimulatorOptions, WorkloadSimulator};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::support::muster::{Ended, Muster, hub_kubeconfig, run_to_end};
use crate::support::{Backend, Cluster, OwnCluster, Servers, Story, World, eventually, kubectl_at};

pub(crate) fn stories() -> Vec<Story> {
    let mut stories = on_each_backend![
        values_of_a_real_and_a_simulated_cluster_reach_the_set,
        one_bad_manifest_stops_nothing_else,
        a_cluster_that_is_away_says_so_and_others_go_on,
        an_agent_alone_takes_its_works_from_a_hub_elsewhere,
    ];
    stories.extend(once![
        kubectl_drives_the_embedded_hub,
        a_killed_hub_loses_nothing_that_was_acknowledged,
        probes_and_metrics_tell_how_it_goes,
        bad_works_are_refused_at_the_door_of_the_embedded_hub,
    ]);
    stories
}

const LIMIT: Duration = Duration::from_secs(60);

/// A hub of the story's own, with a cluster of the backend and a simulated one, in one process.
pub(super) struct Fleet {
    pub(super) muster: Muster,
    kubectl: PathBuf,
    /// Access to the hub for kubectl.
    pub(super) hub: PathBuf,
    /// The hub's API server, where it is not muster's own.
    _api_server: Option<OwnCluster>,
    dir: TempDir,
}

impl Fleet {
    /// The settings of its process.
    pub(super) fn settings(&self) -> PathBuf {
        self.dir.path().join("muster.toml")
    }

    /// `clusters` in TOML follow a simulated one named `simulated`.
    async fn start(kubectl: PathBuf, hub_section: &str, clusters: &str) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let data = dir.path().join("data");
        let config = format!(
            "[hub]\n{}\n[simulator]\npace = \"50ms\"\n[feedback]\npoll_interval = \"200ms\"\n\
             [[clusters]]\nname = \"simulated\"\nsimulated = true\n{clusters}\n",
            hub_section.replace("DATA", &data.display().to_string()),
        );
        let muster = Muster::start(dir.path(), "run", &config).await?;
        Ok(Self {
            muster,
            kubectl,
            hub: hub_kubeconfig(&data),
            _api_server: None,
            dir,
        })
    }

    /// With the hub that the backend of the story has: muster's own, or a Kubernetes API server.
    pub(super) async fn on(world: &World, clusters: &str) -> Result<Self> {
        Self::with(world, clusters, "").await
    }

    /// With more settings of the hub.
    pub(super) async fn with(world: &World, clusters: &str, more: &str) -> Result<Self> {
        let kubectl = world.kubectl()?;
        if world.backend() == Backend::Embedded {
            return Self::start(kubectl, &format!("{EMBEDDED}\n{more}"), clusters).await;
        }
        let api_server = world.own_cluster().await?;
        let hub = api_server.cluster().kubeconfig().to_owned();
        let section = format!(
            "api = \"kubeconfig\"\nkubeconfig = \"{}\"\nresolve_placements = true\n{more}",
            hub.display()
        );
        let fleet = Self::start(kubectl, &section, clusters).await?;
        Ok(Self {
            hub,
            _api_server: Some(api_server),
            ..fleet
        })
    }

    pub(super) async fn kubectl(&self, args: &[&str]) -> Result<String> {
        kubectl_at(&self.kubectl, &self.hub, args, "").await?.ok()
    }

    /// `muster …` with access as kubectl has it, to its end.
    pub(super) async fn run(&self, args: &[&str]) -> Result<Ended> {
        let hub = self.hub.display().to_string();
        run_to_end(&[args, &["--kubeconfig", &hub]].concat()).await
    }

    pub(super) async fn create(&self, object: &Value) -> Result<()> {
        kubectl_at(
            &self.kubectl,
            &self.hub,
            &["create", "-f", "-"],
            &object.to_string(),
        )
        .await?
        .ok()?;
        Ok(())
    }

    /// Changes a set by the operations of a JSON patch.
    pub(super) async fn patch(&self, set: &str, operations: &Value) -> Result<()> {
        let operations = operations.to_string();
        let args = ["patch", "mwrs", set, "--type=json", "-p", &operations];
        self.kubectl(&args).await?;
        Ok(())
    }

    /// Adds a manifest to the template of the set `web`.
    pub(super) async fn add_manifest(&self, manifest: &Value) -> Result<()> {
        let end = "/spec/manifestWorkTemplate/workload/manifests/-";
        let add = json!([{"op": "add", "path": end, "value": manifest}]);
        self.patch("web", &add).await
    }

    pub(super) async fn get(&self, args: &[&str]) -> Result<Value> {
        let args = [&["get", "-o", "json"], args].concat();
        Ok(serde_json::from_str(&self.kubectl(&args).await?)?)
    }

    /// The only work in a cluster.
    async fn work(&self, cluster: &str) -> Result<Value> {
        let list = self.get(&["manifestworks", "-n", cluster]).await?;
        let items = list["items"].as_array().cloned().unwrap_or_default();
        ensure!(items.len() == 1, "{} works in {cluster}", items.len());
        Ok(items.into_iter().next().unwrap_or_default())
    }
}

const EMBEDDED: &str = "listen = \"HUB\"\ndata_dir = \"DATA\"";

pub(super) fn placement() -> Value {
    json!({
        "apiVersion": "cluster.open-cluster-management.io/v1beta1", "kind": "Placement",
        "metadata": {"namespace": "default", "name": "all"}, "spec": {}})
}

/// A set of `manifests` with feedback of the Deployment `web`, where there is one.
pub(super) fn set(manifests: &Value) -> Value {
    json!({
        "apiVersion": "work.open-cluster-management.io/v1alpha1", "kind": "ManifestWorkReplicaSet",
        "metadata": {"namespace": "default", "name": "web"},
        "spec": {
            "placementRefs": [{"name": "all"}],
            "manifestWorkTemplate": {
                "workload": {"manifests": manifests},
                "manifestConfigs": [{
                    "resourceIdentifier": {"group": "apps", "resource": "deployments",
                        "namespace": "default", "name": "web"},
                    "feedbackRules": [
                        {"type": "WellKnownStatus"},
                        {"type": "JSONPaths", "jsonPaths": [
                            {"name": "image", "path": ".spec.template.spec.containers[0].image"}]}]}]}}})
}

fn deployment(replicas: u32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"namespace": "default", "name": "web"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "web", "image": "example/web:1"}]}}}})
}

pub(super) fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": "default", "name": name}, "data": {"a": "b"}})
}

pub(super) fn cluster_section(name: &str, kubeconfig: &Path) -> String {
    format!(
        "[[clusters]]\nname = \"{name}\"\nkubeconfig = \"{}\"",
        kubeconfig.display()
    )
}

/// The demo's own objects, as a user would create them.
const SAMPLE: &str = include_str!("../../src/demo/sample.yaml");

async fn values_of_a_real_and_a_simulated_cluster_reach_the_set(world: World) -> Result<()> {
    let spoke = world.own_cluster().await?;
    let spoke = spoke.cluster();
    // The API servers of stories have no controllers: these make the Deployment progress and let
    // namespaces end.
    let options = SimulatorOptions {
        pace: Duration::from_millis(50),
        ..Default::default()
    };
    let stop = CancellationToken::new();
    let workloads = WorkloadSimulator::new(spoke.client(), options);
    tokio::spawn(workloads.run(stop.clone()));
    let _stop = stop.drop_guard();

    let fleet = Fleet::on(&world, &cluster_section("edge", spoke.kubeconfig())).await?;
    kubectl_at(&fleet.kubectl, &fleet.hub, &["create", "-f", "-"], SAMPLE)
        .await?
        .ok()?;
    let values_are = async |sum: i64, image: &str| {
        eventually(
            LIMIT,
            &format!("ReadyReplicas to add up to {sum}"),
            || async {
                let values = fleet
                    .kubectl(&[
                        "get",
                        "mwrs",
                        "hello",
                        "-o",
                        "jsonpath={.status.feedback[0].values}",
                    ])
                    .await?;
                let values: Value = serde_json::from_str(&values)?;
                let of = |name: &str| {
                    let all = values.as_array().map(Vec::as_slice).unwrap_or_default();
                    all.iter()
                        .find(|value| value["name"] == name)
                        .cloned()
                        .unwrap_or_default()
                };
                let ready = of("ReadyReplicas");
                ensure!(ready["sum"] == sum && ready["clusters"] == 2, "{values}");
                ensure!(
                    of("Rollout")["counts"] == json!([{"value": image, "count": 2}]),
                    "{values}"
                );
                Ok(())
            },
        )
        .await
    };
    values_are(10, "NewReplicaSetAvailable").await?;
    fleet
        .kubectl(&[
            "wait",
            "mwrs/hello",
            "--for=condition=Ready",
            "--timeout=60s",
        ])
        .await?;
    let line = fleet
        .kubectl(&["get", "mwrs", "hello", "--no-headers"])
        .await?;
    let columns: Vec<&str> = line.split_whitespace().take(6).collect();
    ensure!(
        columns == ["hello", "AsExpected", "True", "AsExpected", "True", "Ready"],
        "{line}"
    );
    ensure!(
        line.contains("ManifestWorks available in 2/2 clusters"),
        "{line}"
    );

    // A changed template reaches both, and the values follow.
    let replicas = "/spec/manifestWorkTemplate/workload/manifests/2/spec/replicas";
    let scale = json!([{"op": "replace", "path": replicas, "value": 2}]);
    fleet.patch("hello", &scale).await?;
    values_are(4, "NewReplicaSetAvailable").await?;

    agent_left_its_record(spoke).await?;

    fleet
        .kubectl(&["delete", "mwrs", "hello", "--timeout=60s"])
        .await?;
    eventually(LIMIT, "the cluster to be empty again", || async {
        let everything = [
            "get",
            "namespace/hello,appliedmanifestworks",
            "--ignore-not-found",
        ];
        let left = spoke.kubectl(&everything).await?;
        ensure!(left.stdout.is_empty(), "{}", left.stdout);
        Ok(())
    })
    .await?;
    fleet.muster.kill().await
}

/// What an agent leaves on a cluster beside the objects: its record, which owns them.
async fn agent_left_its_record(spoke: &Cluster) -> Result<()> {
    let record = spoke
        .kubectl(&["get", "appliedmanifestworks", "-o", "json"])
        .await?
        .ok()?;
    let record: Value = serde_json::from_str(&record)?;
    let record = &record["items"][0];
    let resources: Vec<&str> = record["status"]["appliedResources"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|resource| resource["resource"].as_str())
        .collect();
    ensure!(
        resources == ["configmaps", "namespaces", "deployments"],
        "{record}"
    );
    let greeting = ["get", "configmap", "greeting", "-n", "hello", "-o", "json"];
    let greeting: Value = serde_json::from_str(&spoke.kubectl(&greeting).await?.ok()?)?;
    let owner = &greeting["metadata"]["ownerReferences"][0];
    ensure!(
        owner["kind"] == "AppliedManifestWork" && owner["uid"] == record["metadata"]["uid"],
        "{greeting}"
    );
    Ok(())
}

async fn one_bad_manifest_stops_nothing_else(world: World) -> Result<()> {
    let fleet = Fleet::on(&world, "").await?;
    fleet.create(&placement()).await?;
    let unknown = json!({"apiVersion": "nowhere.example.com/v1", "kind": "Nothing",
        "metadata": {"namespace": "default", "name": "n"}});
    let mut template = set(&json!([unknown, deployment(1), config_map("cm")]));
    template["spec"]["manifestWorkTemplate"]["manifestConfigs"][0]["feedbackRules"][1] = json!(
        {"type": "JSONPaths", "jsonPaths": [
            {"name": "bad", "path": ".spec.containers["},
            {"name": "image", "path": ".spec.template.spec.containers[0].image"}]});
    fleet.create(&template).await?;
    let manifests = eventually(LIMIT, "the work to tell about each manifest", || async {
        let work = fleet.work("simulated").await?;
        let manifests = work["status"]["resourceStatus"]["manifests"].clone();
        let state = |ordinal: usize, kind: &str| {
            let all = manifests[ordinal]["conditions"].as_array()?;
            let found = all.iter().find(|condition| condition["type"] == kind)?;
            Some((
                found["status"].clone(),
                found["message"].as_str()?.to_owned(),
            ))
        };
        let told = (
            state(0, "Applied"),
            state(1, "StatusFeedbackSynced"),
            state(2, "Applied"),
        );
        let (Some(unknown), Some(feedback), Some(config_map)) = told else {
            anyhow::bail!("{manifests}");
        };
        ensure!(
            unknown.0 == "False"
                && unknown
                    .1
                    .contains("the server doesn't have a resource type \"Nothing\""),
            "{unknown:?}"
        );
        ensure!(
            feedback.0 == "False" && feedback.1.contains("bad"),
            "{feedback:?}"
        );
        ensure!(config_map.0 == "True", "{config_map:?}");
        Ok(manifests)
    })
    .await?;
    let values = manifests[1]["statusFeedback"]["values"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    ensure!(
        values.iter().any(|v| v["name"] == "image"),
        "the good values come: {values:?}"
    );
    fleet.muster.kill().await
}

async fn a_cluster_that_is_away_says_so_and_others_go_on(world: World) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let nowhere = dir.path().join("nowhere.kubeconfig");
    std::fs::write(
        &nowhere,
        "apiVersion: v1\nkind: Config\ncurrent-context: x\n\
         clusters: [{name: x, cluster: {server: 'https://127.0.0.1:1'}}]\n\
         users: [{name: x, user: {}}]\n\
         contexts: [{name: x, context: {cluster: x, user: x}}]\n",
    )?;
    let fleet = Fleet::on(&world, &cluster_section("away", &nowhere)).await?;
    fleet.create(&placement()).await?;
    fleet.create(&set(&json!([config_map("cm")]))).await?;
    eventually(LIMIT, "the other cluster to be available", || async {
        let message = fleet
            .kubectl(&["get", "mwrs", "web", "-o", "jsonpath={.status.message}"])
            .await?;
        // The cause is known, and told with the cluster's name.
        let start = "ManifestWorks available in 1/2 clusters, 1 failed; first failed away: Failed to \
                     apply manifest work: 1 of 1 failed";
        ensure!(message.starts_with(start), "{message}");
        Ok(())
    })
    .await?;
    eventually(
        LIMIT,
        "the work of the cluster that is away to say so",
        || async {
            let work = fleet.work("away").await?;
            let conditions = work["status"]["conditions"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            let applied = conditions
                .iter()
                .find(|condition| condition["type"] == "Applied");
            ensure!(
                applied.is_some_and(|applied| applied["status"] == "False"),
                "{conditions:?}"
            );
            Ok(())
        },
    )
    .await?;
    let (code, reasons) = fleet.muster.get("/readyz").await?;
    ensure!(code == 503 && reasons.contains("away"), "{code} {reasons}");
    fleet.muster.kill().await
}

async fn an_agent_alone_takes_its_works_from_a_hub_elsewhere(world: World) -> Result<()> {
    let spoke = world.own_cluster().await?;
    let spoke = spoke.cluster();
    let kubectl = world.kubectl()?;
    let dir = tempfile::tempdir()?;
    let data = dir.path().join("data");
    let config = format!(
        "[hub]\nlisten = \"HUB\"\ndata_dir = \"{}\"\n",
        data.display()
    );
    let hub = Muster::start(&dir.path().join("hub"), "hub", &config).await?;
    let access = hub_kubeconfig(&data);
    // The cluster joins as an administrator lets it.
    let cluster = json!({"apiVersion": "cluster.open-cluster-management.io/v1",
        "kind": "ManagedCluster", "metadata": {"name": "edge"}, "spec": {"hubAcceptsClient": true}});
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "edge"}});
    for object in [
        cluster,
        namespace,
        placement(),
        set(&json!([config_map("cm")])),
    ] {
        kubectl_at(
            &kubectl,
            &access,
            &["create", "-f", "-"],
            &object.to_string(),
        )
        .await?
        .ok()?;
    }
    let flag =
        |name: &str, file: &Path| -> OsString { format!("--{name}={}", file.display()).into() };
    let flags = [
        "--spoke-cluster-name=edge".into(),
        flag("spoke-kubeconfig", spoke.kubeconfig()),
        flag("hub-kubeconfig", &access),
        "--status-sync-interval=200ms".into(),
    ];
    let agent = Muster::start_with(&dir.path().join("agent"), "agent", "", &flags).await?;
    let wait = ["wait", "mwrs/web", "--for=condition=Ready", "--timeout=60s"];
    kubectl_at(&kubectl, &access, &wait, "").await?.ok()?;
    let live = spoke
        .kubectl(&["get", "configmap", "cm", "-o", "jsonpath={.data.a}"])
        .await?
        .ok()?;
    ensure!(live == "b", "{live}");
    // The record on the cluster names the hub by the address in the agent's kubeconfig.
    let kubeconfig = kube::config::Kubeconfig::read_from(&access)?;
    let server = kubeconfig.clusters[0]
        .cluster
        .as_ref()
        .and_then(|c| c.server.clone());
    let hash = muster_core::applied_work::hub_hash(&server.unwrap_or_default());
    let records = spoke
        .kubectl(&["get", "appliedmanifestworks", "-o", "name"])
        .await?
        .ok()?;
    ensure!(
        records.contains(&format!("/{hash}-web-")),
        "{records} is not of hub {hash}"
    );
    agent.kill().await?;
    hub.kill().await
}

async fn kubectl_drives_the_embedded_hub(servers: Arc<Servers>) -> Result<()> {
    let fleet = Fleet::start(servers.kubectl()?, EMBEDDED, "").await?;
    fleet.create(&placement()).await?;
    fleet.create(&set(&json!([deployment(2)]))).await?;
    fleet
        .kubectl(&["wait", "mwrs/web", "--for=condition=Ready", "--timeout=60s"])
        .await?;
    let table = fleet.kubectl(&["get", "mwrs", "-o", "wide"]).await?;
    let header: Vec<&str> = table
        .lines()
        .next()
        .unwrap_or("")
        .split_whitespace()
        .collect();
    ensure!(
        header
            == [
                "NAME",
                "PLACEMENT",
                "FOUND",
                "MANIFESTWORKS",
                "APPLIED",
                "STATUS",
                "READY",
                "TOTAL",
                "AVAILABLE",
                "PROGRESSING",
                "DEGRADED",
                "AGE"
            ],
        "{table}"
    );
    let placements = fleet
        .kubectl(&["get", "placements", "--no-headers"])
        .await?;
    let columns: Vec<&str> = placements.split_whitespace().collect();
    ensure!(
        columns[..4] == ["all", "True", "AllDecisionsScheduled", "1"],
        "{placements}"
    );
    fleet
        .kubectl(&["delete", "mwrs", "web", "--timeout=60s"])
        .await?;
    eventually(LIMIT, "no work to be left", || async {
        let left = kubectl_at(
            &fleet.kubectl,
            &fleet.hub,
            &["get", "manifestworks", "-A"],
            "",
        )
        .await?;
        ensure!(left.stdout.is_empty(), "{}", left.stdout);
        Ok(())
    })
    .await?;
    fleet.muster.kill().await
}

async fn a_killed_hub_loses_nothing_that_was_acknowledged(servers: Arc<Servers>) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let data = dir.path().join("data");
    let config = format!(
        "[hub]\nlisten = \"HUB\"\ndata_dir = \"{}\"\n[feedback]\npoll_interval = \"200ms\"\n\
         [[clusters]]\nname = \"simulated\"\nsimulated = true\n",
        data.display()
    );
    let hub = hub_kubeconfig(&data);
    let kubectl = servers.kubectl()?;
    let muster = Muster::start(dir.path(), "run", &config).await?;
    for object in [placement(), set(&json!([config_map("cm")]))] {
        kubectl_at(&kubectl, &hub, &["create", "-f", "-"], &object.to_string())
            .await?
            .ok()?;
    }
    let identity = async || {
        let args = ["get", "mwrs", "web", "-o", "jsonpath={.metadata.uid}"];
        kubectl_at(&kubectl, &hub, &args, "").await?.ok()
    };
    let before = identity().await?;
    muster.kill().await?;

    let muster = Muster::start(dir.path(), "run", &config).await?;
    ensure!(identity().await? == before, "another object came back");
    // The simulated cluster is new and empty: the works that were kept reach it.
    let wait = ["wait", "mwrs/web", "--for=condition=Ready", "--timeout=60s"];
    kubectl_at(&kubectl, &hub, &wait, "").await?.ok()?;
    muster.kill().await
}

async fn probes_and_metrics_tell_how_it_goes(servers: Arc<Servers>) -> Result<()> {
    let fleet = Fleet::start(servers.kubectl()?, EMBEDDED, "").await?;
    fleet.create(&placement()).await?;
    fleet.create(&set(&json!([config_map("cm")]))).await?;
    fleet
        .kubectl(&["wait", "mwrs/web", "--for=condition=Ready", "--timeout=60s"])
        .await?;
    ensure!(fleet.muster.get("/healthz").await? == (200, "ok\n".to_owned()));
    ensure!(fleet.muster.get("/readyz").await? == (200, "ok\n".to_owned()));
    let (code, actors) = fleet.muster.get("/debug/actors").await?;
    let actors: Value = serde_json::from_str(&actors)?;
    let roles: Vec<&str> = actors
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|actor| actor["role"].as_str())
        .collect();
    for role in [
        "ReplicaSets",
        "ReplicaSetAggregator",
        "PlacementResolver",
        "ClusterAgent",
        "ManifestWork",
    ] {
        ensure!(code == 200 && roles.contains(&role), "no {role}: {actors}");
    }
    let (_, metrics) = fleet.muster.get("/metrics").await?;
    for metric in [
        "muster_mwrs_work_writes_total",
        "muster_mwrs_status_patches_total",
        "muster_actors",
    ] {
        ensure!(metrics.contains(metric), "no {metric}:\n{metrics}");
    }
    fleet.muster.kill().await
}

async fn bad_works_are_refused_at_the_door_of_the_embedded_hub(
    servers: Arc<Servers>,
) -> Result<()> {
    let fleet = Fleet::start(servers.kubectl()?, EMBEDDED, "").await?;
    let work = |manifests: Value| {
        json!({"apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
            "metadata": {"namespace": "simulated", "name": "w"},
            "spec": {"workload": {"manifests": manifests}}})
    };
    let nameless =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "x-"}});
    let cron_job = |api_version: &str| {
        json!({"apiVersion": api_version, "kind": "CronJob",
            "metadata": {"namespace": "d", "name": "a"}})
    };
    for (manifests, text) in [
        (json!([]), "manifests should not be empty"),
        (json!([nameless]), "must"),
        (
            json!([config_map("a"), config_map("a")]),
            "duplicate manifest for resource default/a",
        ),
        (
            json!([
                cron_job("batch/v1"),
                config_map("a"),
                cron_job("batch/v1beta1")
            ]),
            "duplicate manifest for resource d/a with resource type batch/v1beta1.CronJob: \
             manifests 0 and 2 are for the same object",
        ),
    ] {
        let object = work(manifests).to_string();
        let refused =
            kubectl_at(&fleet.kubectl, &fleet.hub, &["create", "-f", "-"], &object).await?;
        ensure!(
            refused.code == Some(1) && refused.stderr.contains(text),
            "{refused:?}"
        );
    }
    fleet.muster.kill().await
}
