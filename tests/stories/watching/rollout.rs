//! What a replica set shows of watched values.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tokio_util::task::AbortOnDropHandle;

use crate::support::live::{LIMIT, Live};
use crate::support::muster::Muster;
use crate::support::{Cluster, OwnCluster, Story, World, eventually, unique_name};

pub(super) fn stories() -> Vec<Story> {
    on_each_backend![a_set_shows_the_steps_of_its_clusters_and_not_only_the_last]
}

/// How many replicas become ready in each cluster, one after the other.
const STEPS: i64 = 10;
/// The pace of the design text's own story is ten seconds a step; this is a hundred times that.
const PACE: Duration = Duration::from_millis(100);

/// A process with a hub and two clusters, all of them API servers that others have made.
struct Fleet {
    name: String,
    hub: Cluster,
    /// Its server.
    _own: OwnCluster,
    clusters: [Cluster; 2],
    muster: Muster,
}

impl Fleet {
    async fn start(world: &World) -> Result<Self> {
        let (own, one, two) = tokio::try_join!(world.own_cluster(), world.spoke(), world.hub())?;
        let hub = own.cluster().clone();
        let name = unique_name("fleet");
        let section = |at: usize, cluster: &Cluster| {
            let kubeconfig = cluster.kubeconfig().display();
            format!("[[clusters]]\nname = \"{name}-{at}\"\nkubeconfig = \"{kubeconfig}\"\n")
        };
        let config = format!(
            "[hub]\napi = \"kubeconfig\"\nkubeconfig = \"{}\"\nresolve_placements = true\n\
             [feedback]\npoll_interval = \"1h\"\n{}{}",
            hub.kubeconfig().display(),
            section(1, &one),
            section(2, &two)
        );
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        for cluster in [&one, &two] {
            let answer = cluster
                .rest()
                .post("/api/v1/namespaces", &namespace)
                .await?;
            answer.created()?;
        }
        let muster = Muster::start(&world.dir(&name)?, "run", &config).await?;
        Ok(Self {
            name,
            hub,
            _own: own,
            clusters: [one, two],
            muster,
        })
    }

    fn set(&self) -> Live {
        let sets = "/apis/work.open-cluster-management.io/v1alpha1/namespaces/default/\
                    manifestworkreplicasets";
        Live::new(self.hub.rest(), sets, "web")
    }

    fn deployment(&self, at: usize) -> Live {
        let collection = format!("/apis/apps/v1/namespaces/{}/deployments", self.name);
        Live::new(self.clusters[at].rest(), &collection, "web")
    }

    async fn create(&self, scrape: &str) -> Result<()> {
        let placement = json!({
            "apiVersion": "cluster.open-cluster-management.io/v1beta1", "kind": "Placement",
            "metadata": {"namespace": "default", "name": "all"}, "spec": {}});
        let placements = "/apis/cluster.open-cluster-management.io/v1beta1/namespaces/default/\
                          placements";
        Live::new(self.hub.rest(), placements, "all")
            .create(&placement)
            .await?;
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"namespace": self.name, "name": "web"},
            "spec": {
                "replicas": STEPS, "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {"containers": [{"name": "web", "image": "example/web:1"}]}}}});
        let set = json!({
            "apiVersion": "work.open-cluster-management.io/v1alpha1",
            "kind": "ManifestWorkReplicaSet",
            "metadata": {"namespace": "default", "name": "web"},
            "spec": {
                "placementRefs": [{"name": "all"}],
                "manifestWorkTemplate": {
                    "workload": {"manifests": [deployment]},
                    "manifestConfigs": [{
                        "resourceIdentifier": {"group": "apps", "resource": "deployments",
                            "namespace": self.name, "name": "web"},
                        "feedbackScrapeType": scrape,
                        "feedbackRules": [{"type": "WellKnownStatus"}]}]}}});
        self.set().create(&set).await?;
        Ok(())
    }

    /// A controller tells how many replicas are ready.
    async fn ready(&self, at: usize, count: i64) -> Result<()> {
        let status = json!({"replicas": STEPS, "readyReplicas": count});
        self.deployment(at).set_status(status).await?;
        Ok(())
    }
}

/// The ready replicas of all clusters that the set shows.
fn sum(set: &Value) -> Option<i64> {
    let values = set["status"]["feedback"][0]["values"].as_array()?;
    let mut values = values.iter();
    let ready = values.find(|value| value["name"] == "ReadyReplicas")?;
    ready["sum"].as_i64()
}

async fn shows(fleet: &Fleet, wanted: i64) -> Result<()> {
    let set = fleet.set();
    set.is(&format!("show {wanted} ready replicas"), |set| {
        sum(set) == Some(wanted)
    })
    .await?;
    Ok(())
}

async fn a_set_shows_the_steps_of_its_clusters_and_not_only_the_last(world: World) -> Result<()> {
    let fleet = Fleet::start(&world).await?;
    fleet.create("Watch").await?;
    for at in 0..2 {
        fleet.deployment(at).appears().await?;
        fleet.ready(at, 0).await?;
    }
    fleet
        .set()
        .is("be everywhere", |set| {
            set["status"]["summary"]["available"] == 2
        })
        .await?;

    // Looks without a pause for all that the set shows.
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let (set, noted) = (fleet.set(), Arc::clone(&seen));
    let looking = AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            if let Ok(set) = set.get().await
                && let Some(sum) = sum(&set)
            {
                noted
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .insert(sum);
            }
        }
    }));
    for count in 1..=STEPS {
        tokio::try_join!(fleet.ready(0, count), fleet.ready(1, count))?;
        tokio::time::sleep(PACE).await;
    }
    shows(&fleet, 2 * STEPS).await?;
    drop(looking);
    let seen = seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let between = seen.range(1..2 * STEPS).count();
    ensure!(
        between >= 3,
        "of {} steps only {seen:?} were shown",
        2 * STEPS
    );

    // A deletion counts, too: the values of that cluster go until there are new ones.
    fleet.deployment(0).delete().await?;
    shows(&fleet, STEPS).await?;
    fleet.deployment(0).appears().await?;

    // The template is where the user says how: the works and their watches follow.
    let poll = json!([{"op": "replace",
        "path": "/spec/manifestWorkTemplate/manifestConfigs/0/feedbackScrapeType",
        "value": "Poll"}]);
    let answer = fleet
        .hub
        .rest()
        .json_patch(fleet.set().path(), &poll)
        .await?;
    answer.ok()?;
    eventually(LIMIT, "the works to be polled", || async {
        for at in 1..=2 {
            let works = format!(
                "/apis/work.open-cluster-management.io/v1/namespaces/{}-{at}/manifestworks",
                fleet.name
            );
            let works = fleet.hub.rest().get(&works).await?.ok()?;
            let scrape = &works["items"][0]["spec"]["manifestConfigs"][0]["feedbackScrapeType"];
            ensure!(scrape == "Poll", "{scrape}");
        }
        let open = fleet.muster.metric("muster_watches_open", "").await?;
        ensure!(open < 0.5, "{open} watches");
        Ok(())
    })
    .await
}
