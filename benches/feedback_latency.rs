//! P1: how long it takes until the hub shows that an object in a cluster has changed, all in one
//! process.
//!
//! The status of a Deployment in a cluster changes → the status of its work says so → the status of
//! the replica set says so. At 10 and 100 clusters, open loop, each work once a second: an agent
//! reports no more than ten changes of a work at once and then two a second. Floor, in rounds that
//! alternate with muster's: a bare watch and a bare patch for either leg, through API servers of the
//! same kind. Then the same by poll, which its interval dominates.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use actix::Addr;
use anyhow::{Context, Result};
use futures::stream::select;
use futures::{FutureExt, StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client, Resource};
use muster_actors::agent::{self, AgentDeps, AgentSettings, ClusterAgent};
use muster_api::replicaset::ManifestWorkReplicaSet;
use muster_api::work::ManifestWork;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::Instant;

use crate::support::bare_hub::{self, VALUE, work_status};
use crate::support::figure::{Figure, Report};
use crate::support::hub::{Hub, cluster};
use crate::support::open_loop::{self, Change, Seen};
use crate::support::rounds::{Ratio, percentile};
use crate::support::servers::{self, until};
use crate::support::size::sized;
use crate::support::{fixtures, slow};

/// The goal in one process: p50 in ms, for all of the way.
const MOST_P50: f64 = 0.2;
const ROUNDS: usize = sized(5, 2);
/// Clusters, which is also changes a second over all of them: each work changes once a second.
const CLUSTERS: [usize; 2] = [sized(10, 2), sized(100, 4)];
/// Seconds of changes in a round, and of changes by poll.
const ROUND: usize = sized(2, 1);
const BY_POLL: usize = sized(8, 2);
const POLL: Duration = Duration::from_secs(1);
/// So long that no poll of a watched work falls into the bench.
const NEVER: Duration = Duration::from_secs(30 * 24 * 60 * 60);
const PATIENCE: Duration = Duration::from_secs(6);
/// Names of the two places where changes are seen.
const STAGES: [&str; 2] = ["work status", "MWRS status"];
/// What OCM's agent takes from the change to the hub, with 100 works watched, and by poll with 200
/// works at its default interval of 10 s: recorded, p50 and p99 in ms.
const OCM_WATCH: [f64; 2] = [13.0, 29.0];
const OCM_POLL: [f64; 2] = [9_960.0, 15_700.0];
const OCM_INTERVAL: Duration = Duration::from_secs(10);

pub(crate) fn run() -> Result<()> {
    servers::block_on(async {
        let mut report = Report::start();
        for clusters in CLUSTERS {
            watched(&mut report, clusters).await?;
        }
        for clusters in CLUSTERS {
            polled(&mut report, clusters).await?;
        }
        Ok(())
    })
}

/// A hub and its clusters, each of which has the Deployment of one work.
struct System {
    deployments: Vec<Api<Deployment>>,
    /// Changes so far of each.
    made: Vec<u64>,
    /// And of all.
    changes: usize,
    /// Whether slowness may be injected here.
    ours: bool,
    seen: UnboundedReceiver<Seen>,
    _hub: Option<Hub>,
    _agents: Vec<Addr<ClusterAgent>>,
}

impl System {
    async fn muster(clusters: usize, scrape: &str, poll_interval: Duration) -> Result<Self> {
        let hub = Hub::start(clusters).await?;
        let mut deployments = Vec::new();
        let mut agents = Vec::new();
        for index in 0..clusters {
            let spoke = servers::spoke_api().await?.client();
            deployments.push(Api::namespaced(spoke.clone(), "default"));
            agents.push(agent::start(AgentDeps {
                cluster: cluster(index),
                hub: hub.client.clone(),
                hub_link: None,
                hub_id: "loopback".to_owned(),
                agent_id: None,
                rules: None,
                spoke,
                settings: AgentSettings {
                    poll_interval,
                    ..AgentSettings::default()
                },
                io: hub.deps.io.clone(),
                registry: hub.deps.registry.clone(),
                health: hub.deps.health.clone(),
            }));
        }
        let mut template = fixtures::work_spec("web", "default");
        template["manifestConfigs"][0]["feedbackScrapeType"] = json!(scrape);
        hub.roll_out(&template, clusters).await?;
        let client = hub.client.clone();
        Self::new(&client, deployments, Some(hub), agents).await
    }

    /// The least that an agent and a hub have to do.
    async fn bare(clusters: usize) -> Result<Self> {
        let hub = bare_hub::start(clusters).await?;
        let mut deployments = Vec::new();
        for index in 0..clusters {
            let spoke = servers::spoke_api().await?.client();
            let of_spoke: Api<Deployment> = Api::namespaced(spoke, "default");
            let manifest = serde_json::from_value(fixtures::manifest("web", "default"))?;
            of_spoke.create(&PostParams::default(), &manifest).await?;
            let works = Api::namespaced(hub.clone(), &cluster(index));
            tokio::spawn(relay(changes_of(of_spoke.clone()).await?, works));
            deployments.push(of_spoke);
        }
        Self::new(&hub, deployments, None, Vec::new()).await
    }

    async fn new(
        client: &Client,
        deployments: Vec<Api<Deployment>>,
        hub: Option<Hub>,
        agents: Vec<Addr<ClusterAgent>>,
    ) -> Result<Self> {
        for deployments in &deployments {
            until(
                Duration::from_secs(60),
                "the Deployment in each cluster",
                async || Ok(deployments.get_opt("web").await?.is_some()),
            )
            .await?;
        }
        let mut system = Self {
            made: vec![0; deployments.len()],
            deployments,
            changes: 0,
            ours: hub.is_some(),
            seen: observe(client).await?,
            _hub: hub,
            _agents: agents,
        };
        // Once around, so that every work has reported.
        system.round(1).await?;
        Ok(system)
    }

    /// Changes every Deployment once a second, for so many seconds.
    async fn round(&mut self, seconds: usize) -> Result<[Vec<f64>; 2]> {
        let clusters = self.deployments.len();
        let gap = Duration::from_secs(1) / u32::try_from(clusters)?;
        let changes = (0..seconds * clusters).map(|_| self.next()).collect();
        open_loop::run_through(changes, gap, PATIENCE, &mut self.seen).await
    }

    fn next(&mut self) -> Change {
        let index = self.changes % self.deployments.len();
        self.changes += 1;
        self.made[index] += 1;
        let (number, ours) = (self.made[index], self.ours);
        let deployments = self.deployments[index].clone();
        let patch = json!({"status": {"readyReplicas": number}});
        let make = async move {
            if ours {
                slow::spin(Duration::from_millis(5));
            }
            deployments
                .patch_status("web", &PatchParams::default(), &Patch::Merge(patch))
                .await?;
            Ok(())
        };
        Change {
            key: index,
            number,
            make: make.boxed(),
        }
    }
}

type Changes<K> = futures::stream::BoxStream<'static, kube::Result<K>>;

/// A bare watch, from now on.
async fn changes_of<K>(api: Api<K>) -> Result<Changes<K>>
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    let list = api.list(&ListParams::default()).await?;
    let version = list.metadata.resource_version;
    let version = version.context("a list has a version")?;
    let events = api.watch(&WatchParams::default(), &version).await?;
    let changed = events.try_filter_map(async |event| {
        Ok(match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => Some(object),
            _ => None,
        })
    });
    Ok(changed.boxed())
}

/// The least that an agent has to do: for each event of an object, one patch of its work.
async fn relay(mut changes: Changes<Deployment>, works: Api<ManifestWork>) -> Result<()> {
    while let Some(deployment) = changes.try_next().await? {
        let status = deployment.status.unwrap_or_default();
        let ready = status.ready_replicas.unwrap_or_default();
        let patch = Patch::Merge(work_status(u64::try_from(ready)?));
        works
            .patch_status(bare_hub::WORK, &PatchParams::default(), &patch)
            .await?;
    }
    Ok(())
}

/// What is seen at the hub. A work shows its own value, the replica set the sum of all. It takes in
/// works in the order of their events, as everybody does, so it shows a change once its sum is what
/// all works together had reported with that change.
#[derive(Default)]
struct Progress {
    values: HashMap<usize, u64>,
    total: u64,
    /// Changes that works show, with the total at that time, and the replica set may not.
    waiting: VecDeque<(u64, usize, u64)>,
    /// What the replica set has shown, and when; it may be seen there first.
    sums: VecDeque<(u64, Instant)>,
}

impl Progress {
    fn work(&mut self, key: usize, number: u64) -> bool {
        let before = self.values.insert(key, number).unwrap_or_default();
        if number <= before {
            return false;
        }
        self.total += number - before;
        self.waiting.push_back((self.total, key, number));
        true
    }

    fn set(&mut self, sum: u64) {
        self.sums.push_back((sum, Instant::now()));
    }

    /// The next change that the replica set shows.
    fn shown(&mut self) -> Option<Seen> {
        let (total, key, number) = *self.waiting.front()?;
        while self.sums.front().is_some_and(|(sum, _)| *sum < total) {
            self.sums.pop_front();
        }
        let (_, at) = *self.sums.front()?;
        self.waiting.pop_front();
        Some(Seen {
            stage: 1,
            key,
            number,
            at,
        })
    }
}

async fn observe(hub: &Client) -> Result<UnboundedReceiver<Seen>> {
    enum Event {
        Work(usize, u64),
        Set(u64),
    }
    let works = changes_of(Api::<ManifestWork>::all(hub.clone())).await?;
    let works = works.try_filter_map(async |work| {
        let key = work.metadata.namespace.as_deref();
        let key = key.and_then(|cluster| cluster.strip_prefix('c')?.parse().ok());
        let value = bare_hub::reported(&work).and_then(|value| u64::try_from(value).ok());
        Ok(key.zip(value).map(|(key, value)| Event::Work(key, value)))
    });
    let sets: Api<ManifestWorkReplicaSet> = Api::namespaced(hub.clone(), "default");
    let sets = changes_of(sets).await?.try_filter_map(async |set| {
        let mut values = set
            .status
            .iter()
            .flat_map(|status| &status.feedback)
            .flat_map(|object| &object.values);
        let sum = values.find_map(|value| value.sum.filter(|_| value.name == VALUE));
        Ok(sum.and_then(|sum| u64::try_from(sum).ok()).map(Event::Set))
    });
    let mut events = select(works.boxed(), sets.boxed());
    let (sender, receiver) = unbounded_channel();
    tokio::spawn(async move {
        let mut progress = Progress::default();
        while let Some(Ok(event)) = events.next().await {
            match event {
                Event::Work(key, number) => {
                    let at = Instant::now();
                    let stage = 0;
                    let seen = Seen {
                        stage,
                        key,
                        number,
                        at,
                    };
                    if progress.work(key, number) && sender.send(seen).is_err() {
                        return;
                    }
                }
                Event::Set(sum) => progress.set(sum),
            }
            while let Some(seen) = progress.shown() {
                if sender.send(seen).is_err() {
                    return;
                }
            }
        }
    });
    Ok(receiver)
}

const SHARES: [(&str, f64); 2] = [("p50", 0.5), ("p99", 0.99)];

fn params(clusters: usize) -> Value {
    json!({"clusters": clusters, "changes_per_s": clusters, "changes_per_s_and_work": 1,
        "coalesce_ms": 20})
}

/// The goal is about the middle of all of the way, which its first part must not exceed either.
fn judged(figure: Figure, share: f64, value: f64) -> Figure {
    if share < 0.9 {
        figure.met(value <= MOST_P50)
    } else {
        figure
    }
}

async fn watched(report: &mut Report, clusters: usize) -> Result<()> {
    let mut muster = System::muster(clusters, "Watch", NEVER).await?;
    let mut bare = System::bare(clusters).await?;
    let (mut ours, mut floors) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(muster.round(ROUND).await?);
        floors.push(bare.round(ROUND).await?);
    }
    let params = params(clusters);
    for (stage, place) in STAGES.into_iter().enumerate() {
        for ((name, share), ocm) in SHARES.into_iter().zip(OCM_WATCH) {
            let each = |rounds: &[[Vec<f64>; 2]]| -> Vec<f64> {
                let latencies = rounds.iter().map(|round| percentile(&round[stage], share));
                latencies.collect()
            };
            let all = |rounds: &[[Vec<f64>; 2]]| {
                let latencies = rounds.iter().flat_map(|round| round[stage].clone());
                percentile(&latencies.collect::<Vec<_>>(), share)
            };
            let ratio = Ratio::of(&each(&floors), &each(&ours));
            let value = all(&ours);
            let what = format!("spoke change to {place}, {name}, {clusters} clusters, watched");
            let baseline = "bare watches and bare patches through API servers alike, same run";
            let figure = Figure::new("P1", what, value, "ms")
                .in_rounds(all(&floors), baseline, ratio)
                .params(params.clone())
                .params(json!({"changes_per_round": ROUND * clusters,
                    "ocm_watch_to_work_status_recorded_ms": ocm}));
            report.add(judged(figure, share, value));
        }
    }
    Ok(())
}

async fn polled(report: &mut Report, clusters: usize) -> Result<()> {
    let mut muster = System::muster(clusters, "Poll", POLL).await?;
    let latencies = muster.round(BY_POLL).await?;
    let interval = POLL.as_secs_f64() / OCM_INTERVAL.as_secs_f64();
    let baseline = "OCM poll mode to work status, 200 works, recorded at 10 s, scaled to 1 s";
    for (latencies, place) in latencies.iter().zip(STAGES) {
        for ((name, share), ocm) in SHARES.into_iter().zip(OCM_POLL) {
            let value = percentile(latencies, share);
            let seconds = POLL.as_secs();
            let what = format!(
                "spoke change to {place}, {name}, {clusters} clusters, polled each {seconds} s"
            );
            let figure = Figure::new("P1", what, value, "ms")
                .below(ocm * interval, baseline)
                .params(params(clusters))
                .params(json!({"changes": BY_POLL * clusters,
                    "poll_interval_ms": POLL.as_millis(),
                    "max_ms": percentile(latencies, 1.0)}));
            report.add(judged(figure, share, value));
        }
    }
    Ok(())
}
