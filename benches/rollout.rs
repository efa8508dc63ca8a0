//! P5: how long a replica set takes to reach N clusters, when it is new and when its template
//! changes, by strategy; and what that asks of the API server.
//!
//! All in one process: the hub, its API in memory, and one that does for all clusters what agents
//! do as soon as they can: it writes that a work is applied and available. Floor, after each: as
//! many bare writes of works and of their statuses, through an API server of the same kind.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use muster_api::conditions;
use muster_api::replicaset::ManifestWorkReplicaSet;
use muster_api::work::{ManifestWork, RawManifestWork};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::figure::{Figure, Report};
use crate::support::hub::{self, Hub, SET, cluster};
use crate::support::requests::Requests;
use crate::support::rounds::exponent;
use crate::support::size::sized;
use crate::support::{fixtures, machine, servers, slow};

const SIZES: [usize; 2] = [sized(1_000, 10), sized(5_000, 20)];
/// Writes under way at a time, of the agents and of the floor: as many as one set has.
const AT_A_TIME: usize = 32;
const LIMIT: Duration = Duration::from_secs(900);
const PATIENCE: Duration = Duration::from_secs(300);
/// The goal: at most so many requests of the hub for each cluster that gets a template.
const MOST_REQUESTS: f64 = 1.1;
/// The goal: at most this exponent of the time over clusters.
const MOST_EXPONENT: f64 = 1.05;

/// How the set rolls out.
#[derive(Clone, Copy)]
enum Strategy {
    All,
    /// A tenth at a time.
    Progressive,
}

impl Strategy {
    const fn name(self) -> &'static str {
        match self {
            Self::All => "All",
            Self::Progressive => "Progressive with 10 % at a time",
        }
    }

    fn of_api(self) -> Value {
        match self {
            Self::All => json!({"type": "All"}),
            Self::Progressive => {
                json!({"type": "Progressive", "progressive": {"maxConcurrency": "10%"}})
            }
        }
    }
}

/// One rollout.
struct Run {
    millis: f64,
    requests: Requests,
    /// Those of the agents among them.
    of_agents: u64,
    peak_mib: f64,
}

pub(crate) fn run() -> Result<()> {
    servers::block_on_for(LIMIT, async {
        let mut report = Report::start();
        for strategy in [Strategy::All, Strategy::Progressive] {
            let mut changes = Vec::new();
            for clusters in SIZES {
                let (new, change) = roll_out(strategy, clusters).await?;
                let floor = bare_writes(clusters).await?;
                tell(&mut report, strategy, clusters, "new", &new, floor);
                tell(&mut report, strategy, clusters, "changed", &change, floor);
                #[allow(clippy::cast_precision_loss, reason = "at most 5,000")]
                changes.push((clusters as f64, change.millis));
            }
            let what = format!(
                "growth of the time of a change over clusters, {}",
                strategy.name()
            );
            let value = exponent(&changes);
            report.add(
                Figure::new("P5", what, value, "")
                    .met_in_full(value <= MOST_EXPONENT)
                    .params(json!({"clusters": SIZES})),
            );
        }
        Ok(())
    })
}

/// Has a set rolled out, and then another template of it.
async fn roll_out(strategy: Strategy, clusters: usize) -> Result<(Run, Run)> {
    let hub = Hub::start(clusters).await?;
    let written = Arc::new(AtomicU64::new(0));
    let agents = tokio::spawn(answer(hub.client.clone(), Arc::clone(&written)));
    let new = time(&hub, &written, async {
        hub::create_set_by(
            &hub.client,
            &fixtures::work_spec("web", "default"),
            &strategy.of_api(),
        )
        .await
    })
    .await?;
    let change = time(&hub, &written, async {
        let sets: Api<ManifestWorkReplicaSet> = Api::namespaced(hub.client.clone(), "default");
        let template = fixtures::work_spec("other", "default");
        let patch = json!({"spec": {"manifestWorkTemplate": template}});
        sets.patch(SET, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        Ok(())
    })
    .await?;
    agents.abort();
    Ok((new, change))
}

/// Runs `begin` and waits until the set says that it is rolled out.
async fn time(
    hub: &Hub,
    written: &AtomicU64,
    begin: impl Future<Output = Result<()>>,
) -> Result<Run> {
    machine::forget_peak()?;
    written.store(0, Ordering::SeqCst);
    let before = Requests::of_embedded("", &hub.api);
    let started = Instant::now();
    begin.await?;
    slow::spin(Duration::from_millis(500));
    let sets: Api<ManifestWorkReplicaSet> = Api::namespaced(hub.client.clone(), "default");
    let generation = sets.get(SET).await?.metadata.generation;
    let mut states = watcher(sets, watcher::Config::default())
        .applied_objects()
        .boxed();
    let rolled_out = async {
        while let Some(set) = states.try_next().await? {
            let all = set
                .status
                .map(|status| status.conditions)
                .unwrap_or_default();
            let done = conditions::find(&all, "PlacementRolledOut");
            if done
                .is_some_and(|done| done.status == "True" && done.observed_generation == generation)
            {
                return Ok(());
            }
        }
        anyhow::bail!("the watch ended")
    };
    if tokio::time::timeout(PATIENCE, rolled_out).await.is_err() {
        let all: Api<ManifestWorkReplicaSet> = Api::namespaced(hub.client.clone(), "default");
        let reached = all.get(SET).await?.status.unwrap_or_default();
        anyhow::bail!("not rolled out in {PATIENCE:?}: {}", reached.message);
    }
    #[allow(clippy::cast_precision_loss, reason = "no machine has that much")]
    Ok(Run {
        millis: started.elapsed().as_secs_f64() * 1e3,
        requests: Requests::of_embedded("", &hub.api).since(&before),
        of_agents: written.load(Ordering::SeqCst),
        peak_mib: machine::peak_kib()? as f64 / 1024.0,
    })
}

/// Does what agents do.
async fn answer(client: Client, written: Arc<AtomicU64>) -> Result<()> {
    let works: Api<RawManifestWork> = Api::all(client.clone());
    let seen = watcher(works, watcher::Config::default())
        .default_backoff()
        .applied_objects();
    seen.filter_map(|work| std::future::ready(work.ok()))
        .for_each_concurrent(AT_A_TIME, |work| {
            let (client, written) = (client.clone(), Arc::clone(&written));
            async move {
                let generation = work.metadata.generation.unwrap_or_default();
                let text = work.status.as_ref().map_or("", |status| status.get());
                if text.contains(&format!("\"observedGeneration\":{generation},")) {
                    return;
                }
                let cluster = work.namespace().unwrap_or_default();
                written.fetch_add(1, Ordering::SeqCst);
                if let Err(error) = say(&client, &cluster, &work.name_any(), generation).await {
                    eprintln!("{cluster}: {error}");
                }
            }
        })
        .await;
    Ok(())
}

async fn say(client: &Client, cluster: &str, name: &str, generation: i64) -> kube::Result<()> {
    let works: Api<RawManifestWork> = Api::namespaced(client.clone(), cluster);
    let condition = |kind| {
        json!({"type": kind, "status": "True", "observedGeneration": generation, "reason": "R",
            "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let status = json!({"status": {"conditions": [condition("Applied"), condition("Available")]}});
    works
        .patch_status(name, &PatchParams::default(), &Patch::Merge(status))
        .await?;
    Ok(())
}

/// Milliseconds that so many works and statuses take to write, with nobody who looks.
async fn bare_writes(clusters: usize) -> Result<f64> {
    let client = servers::hub_api().await?.client();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    for index in 0..clusters {
        let namespace = serde_json::from_value(json!({"metadata": {"name": cluster(index)}}))?;
        namespaces
            .create(&PostParams::default(), &namespace)
            .await?;
    }
    let work = json!({
        "apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
        "metadata": {"name": "web"}, "spec": fixtures::work_spec("web", "default")});
    let work: ManifestWork = serde_json::from_value(work)?;
    let started = Instant::now();
    let write = async |index| -> Result<()> {
        let works: Api<ManifestWork> = Api::namespaced(client.clone(), &cluster(index));
        works.create(&PostParams::default(), &work).await?;
        say(&client, &cluster(index), "web", 1).await?;
        Ok(())
    };
    stream::iter((0..clusters).map(write))
        .buffer_unordered(AT_A_TIME)
        .try_collect::<()>()
        .await?;
    Ok(started.elapsed().as_secs_f64() * 1e3)
}

fn tell(
    report: &mut Report,
    strategy: Strategy,
    clusters: usize,
    what: &str,
    run: &Run,
    floor: f64,
) {
    let writes = run.requests.count(|kind| !kind.reads());
    let of_hub = writes.saturating_sub(run.of_agents);
    #[allow(clippy::cast_precision_loss, reason = "no bench makes 2^52 requests")]
    let each = of_hub as f64 / clusters as f64;
    let name = strategy.name();
    let params = json!({"clusters": clusters, "strategy": name, "requests": run.requests.params(),
        "writes_of_agents": run.of_agents,
        "peak_mib": run.peak_mib, "writes_at_a_time": AT_A_TIME});
    report.add(
        Figure::new(
            "P5",
            format!("{what} set to {clusters} clusters, {name}"),
            run.millis,
            "ms",
        )
        .below(
            floor,
            "as many bare writes of works and statuses, right after",
        )
        .params(params.clone()),
    );
    report.add(
        Figure::new(
            "P5",
            format!("writes of the hub for each of {clusters} clusters, {what} set, {name}"),
            each,
            "",
        )
        .met(each <= MOST_REQUESTS)
        .params(params),
    );
}
