//! Loads an agent with works in steps, then lets it idle, and takes down what that costs.

use std::collections::HashSet;
use std::fmt::Debug;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::{Stream, StreamExt, TryStreamExt, stream};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use muster_api::work::ManifestWork;
use muster_apiserver::ApiServer;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::agent::{Agent, CLUSTER};
use super::requests::Requests;
use super::size::lasting;
use super::{fixtures, machine};

/// Poll interval while idle: upstream's default, for which its numbers were recorded.
pub const IDLE_POLL: Duration = lasting(10_000, 1_000);
/// How long the agent is watched idling, without works and with all of them.
pub const WINDOW_WITHOUT: Duration = lasting(6_000, 1_000);
pub const WINDOW: Duration = lasting(20_000, 3_000);

/// From the last report to the reading of memory.
const SETTLE: Duration = lasting(2_000, 500);
/// How long a step may take.
const LOAD_LIMIT: Duration = Duration::from_secs(140);
/// Works created at a time.
const AT_A_TIME: usize = 16;

/// How many such windows make `whole`.
pub fn windows_in(whole: Duration, window: Duration) -> f64 {
    whole.as_secs_f64() / window.as_secs_f64()
}

/// Who answers the agent, and counts.
pub enum Backend {
    /// Two servers in this process.
    Embedded {
        /// The hub.
        hub: ApiServer,
        /// The cluster.
        spoke: ApiServer,
    },
    /// One kube-apiserver, hub and cluster at once.
    Real(Client),
}

impl Backend {
    fn hub(&self) -> Client {
        match self {
            Self::Embedded { hub, .. } => hub.client(),
            Self::Real(client) => client.clone(),
        }
    }

    fn spoke(&self) -> Client {
        match self {
            Self::Embedded { spoke, .. } => spoke.client(),
            Self::Real(client) => client.clone(),
        }
    }

    /// Requests so far.
    async fn requests(&self) -> Result<Requests> {
        match self {
            Self::Embedded { hub, spoke } => {
                let at_hub = Requests::of_embedded("hub", hub);
                Ok(at_hub.and(Requests::of_embedded("spoke", spoke)))
            }
            Self::Real(client) => Requests::of_real(client).await,
        }
    }
}

/// What the agent is loaded with.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Works at each step.
    pub steps: &'static [usize],
    /// Manifests of each work: a Deployment with feedback rules, the others are ConfigMaps.
    pub manifests: usize,
    /// Poll interval meanwhile, so that each work has reported soon.
    pub poll: Duration,
}

/// What was measured.
pub struct Measured {
    /// Resident bytes at each number of works.
    pub resident: Vec<(usize, u64)>,
    /// CPU milliseconds of an idle minute with all works, and without works, which is not a number
    /// if there is no such step.
    pub cpu: f64,
    pub cpu_alone: f64,
    /// Within [`WINDOW`]: requests, and how often a work was looked at.
    pub requests: Requests,
    pub looks: u64,
}

/// The agent's surroundings.
struct World {
    works: Api<ManifestWork>,
    load: Load,
    /// Works that have reported that their Deployment is ready.
    reported: watch::Receiver<usize>,
}

impl World {
    /// Loads works up to `count` and waits until each reports that its Deployment is ready.
    async fn load(&mut self, from: usize, count: usize) -> Result<()> {
        let (works, manifests) = (&self.works, self.load.manifests);
        let create = async |number| {
            let name = format!("work-{number:04}");
            let work = json!({
                "apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
                "metadata": {"name": name},
                "spec": fixtures::work_spec_of(&name, "default", manifests)});
            works
                .create(&PostParams::default(), &serde_json::from_value(work)?)
                .await?;
            anyhow::Ok(())
        };
        stream::iter(from..count)
            .map(Ok)
            .try_for_each_concurrent(AT_A_TIME, create)
            .await?;
        let all = self.reported.wait_for(|reported| *reported == count);
        let waited = timeout(LOAD_LIMIT, all).await.map(|seen| seen.map(drop));
        let reported = *self.reported.borrow();
        waited.with_context(|| {
            format!("{reported} of {count} works had reported after {LOAD_LIMIT:?}")
        })??;
        Ok(())
    }
}

fn reports_ready(work: &ManifestWork) -> bool {
    let manifests = work
        .status
        .iter()
        .flat_map(|status| &status.resource_status.manifests);
    manifests
        .flat_map(|manifest| &manifest.status_feedback.values)
        .any(|value| value.name == "ReadyReplicas" && value.value.integer == Some(3))
}

/// The objects of `api` and each change to one. A watch that a server has no room or no memory for
/// begins again; right after its type was defined, a real one is not sure of its versions.
fn seen<K>(api: Api<K>) -> impl Stream<Item = K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let objects = watcher(api, watcher::Config::default())
        .default_backoff()
        .applied_objects();
    objects.filter_map(async |seen| {
        seen.inspect_err(|error| eprintln!("watching again: {error}"))
            .ok()
    })
}

/// Counts works that have reported once; told by a watch, since lists would keep the server busy.
async fn count_reports(works: Api<ManifestWork>, counted: watch::Sender<usize>) -> Result<()> {
    let mut reported = HashSet::new();
    let mut works = pin!(seen(works));
    while let Some(work) = works.next().await {
        if reports_ready(&work) && reported.insert(work.name_any()) {
            counted.send_replace(reported.len());
        }
    }
    Ok(())
}

/// Makes every new Deployment ready at once, as no controller does here.
async fn make_ready(client: Client) -> Result<()> {
    let deployments: Api<Deployment> = Api::namespaced(client, "default");
    let mut created = pin!(seen(deployments.clone()));
    while let Some(deployment) = created.next().await {
        let status = deployment.status.as_ref();
        if status.is_none_or(|status| status.ready_replicas.is_none()) {
            let patch = Patch::Merge(json!({"status": fixtures::deployment_status(3)}));
            let name = deployment.name_any();
            deployments
                .patch_status(&name, &PatchParams::default(), &patch)
                .await?;
        }
    }
    Ok(())
}

/// Measures an agent that reaches its servers with the kubeconfigs in `dir`. Its cluster is
/// registered.
pub async fn measure(backend: &Backend, dir: &Path, load: Load) -> Result<Measured> {
    let works: Api<ManifestWork> = Api::namespaced(backend.hub(), CLUSTER);
    let (counted, reported) = watch::channel(0);
    let mut world = World {
        works: works.clone(),
        load,
        reported,
    };
    let agent = Agent::start(dir, load.poll)?;
    let helpers = Box::pin(async {
        let spoke = backend.spoke();
        tokio::try_join!(make_ready(spoke), count_reports(works, counted))
    });
    tokio::select! {
        ended = helpers => {
            ended?;
            anyhow::bail!("a watch of the bench ended")
        }
        measured = Box::pin(steps(backend, &mut world, agent)) => measured,
    }
}

async fn steps(backend: &Backend, world: &mut World, mut agent: Agent) -> Result<Measured> {
    let mut resident = Vec::new();
    let mut cpu_alone = f64::NAN;
    let mut loaded = 0;
    for &works in world.load.steps {
        world.load(loaded, works).await?;
        loaded = works;
        sleep(SETTLE).await;
        if works == 0 {
            cpu_alone = idle(&mut agent, WINDOW_WITHOUT).await?;
        }
        resident.push((works, agent.usage().await?.resident_kib * 1024));
    }
    agent.poll_each(IDLE_POLL).await?;
    sleep(SETTLE).await;
    let (looks, requests) = (agent.looks().await?, backend.requests().await?);
    let cpu = idle(&mut agent, WINDOW).await?;
    Ok(Measured {
        resident,
        cpu_alone,
        cpu,
        requests: backend.requests().await?.since(&requests),
        looks: agent.looks().await? - looks,
    })
}

/// CPU milliseconds a minute while nothing happens.
async fn idle(agent: &mut Agent, window: Duration) -> Result<f64> {
    let before = agent.usage().await?.cpu_nanos;
    sleep(window).await;
    let used = agent.usage().await?.cpu_nanos - before;
    let minute = Duration::from_secs(60);
    Ok(machine::millis(Duration::from_nanos(used)) * windows_in(minute, window))
}
