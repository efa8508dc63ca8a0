//! P3, P13: what changes of watched objects cost an agent, those that nobody reports and those that
//! are reported.
//!
//! The agent runs in a process of its own, with 1,000 objects in 100 works, all of them watched. Hub
//! and cluster are embedded API servers in the first process, reached over HTTPS. Fields of statuses
//! change that no rule reads: the agent must not write to the hub, and not ask the cluster. Floor,
//! with the same changes: a process with a bare watch that decodes each into a `Value`. Then a value
//! of each work changes once a second, which the agent reports.

use std::time::Duration;

use anyhow::{Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use muster_actors::hub::register_cluster;
use muster_api::work::ManifestWork;
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::support::agent::{Agent, CLUSTER, KUBECONFIGS};
use crate::support::figure::{Figure, Report};
use crate::support::fixtures;
use crate::support::machine::Calibration;
use crate::support::requests::Requests;
use crate::support::rounds::{Ratio, median};
use crate::support::servers::{self, until};
use crate::support::size::{lasting, sized};
use crate::support::watcher::{Kind, Watcher, object_name};

const WORKS: usize = sized(100, 10);
const MANIFESTS: usize = 10;
const OBJECTS: usize = WORKS * MANIFESTS;
const NAMESPACE: &str = "default";
/// So long that no poll falls into the bench: a work that is watched is polled as well.
const NEVER: Duration = Duration::from_secs(30 * 24 * 60 * 60);
const ROUNDS: usize = sized(5, 2);
/// Irrelevant changes a second, and in a round.
const RATE: usize = sized(1_000, 100);
const IRRELEVANT: usize = 2 * RATE;
/// How often a part of them is made.
const TICK: Duration = Duration::from_millis(10);
/// For events on their way.
const SETTLE: Duration = lasting(500, 200);
/// Requests of the bench at a time.
const AT_A_TIME: usize = 16;
const LOAD_LIMIT: Duration = Duration::from_secs(100);

/// The goals: CPU of 1,000 events of watched objects, and of 1,000 changes that are reported.
const MOST_IRRELEVANT_MILLIS: f64 = 10.0;
const MOST_REPORTED_MILLIS: f64 = 50.0;

pub(crate) fn run() -> Result<()> {
    servers::block_on(async {
        let mut report = Report::start();
        let calibration = Calibration::measure();
        let (hub, spoke) = (servers::hub_api().await?, servers::spoke_api().await?);
        register_cluster(&hub.client(), CLUSTER, &[].into()).await?;
        let served = [servers::serve(&hub).await?, servers::serve(&spoke).await?];
        let dir = tempfile::tempdir()?;
        for (name, serving) in KUBECONFIGS.into_iter().zip(&served) {
            let kubeconfig = serde_json::to_string(&serving.kubeconfig())?;
            std::fs::write(dir.path().join(name), kubeconfig)?;
        }
        let requests = || {
            let at_hub = Requests::of_embedded("hub", &hub);
            at_hub.and(Requests::of_embedded("spoke", &spoke))
        };
        // What the bench itself asks for does not count.
        let works = Api::namespaced(hub.uncounted_client(), CLUSTER);
        let mut world = World {
            works,
            spoke: spoke.uncounted_client(),
            agent: Agent::start(dir.path(), NEVER)?,
            bare: Watcher::start(Kind::Values, dir.path())?,
            ready: 3,
        };
        world.load().await?;
        world.bare.watch(OBJECTS, NAMESPACE).await?;
        sleep(SETTLE).await;

        let before = requests();
        let irrelevant = world.irrelevant().await?;
        let asked = requests().since(&before);
        tell_irrelevant(&mut report, &irrelevant, &asked);

        let before = requests();
        let reported = world.reported().await?;
        let asked = requests().since(&before);
        tell_reported(&mut report, &reported, &asked, calibration);
        Ok(())
    })
}

/// The agent, the floor, and what changes around them.
struct World {
    works: Api<ManifestWork>,
    spoke: Client,
    agent: Agent,
    bare: Watcher,
    /// What the Deployments say last.
    ready: i64,
}

/// Rounds of irrelevant changes: CPU milliseconds for 1,000 of them.
struct Irrelevant {
    agent: Vec<f64>,
    bare: Vec<f64>,
    /// Changes a second.
    rates: Vec<f64>,
    /// Changes that there were, and states of objects that the agent was shown meanwhile.
    changes: usize,
    shown: u64,
}

/// CPU milliseconds for 1,000 of `count`.
#[allow(clippy::cast_precision_loss, reason = "a few thousand")]
fn millis_for_1000(nanos: f64, count: usize) -> f64 {
    nanos / 1e6 / (count as f64 / 1_000.0)
}

impl World {
    async fn patch(&self, number: usize, status: &Value) -> Result<()> {
        let deployments: Api<Deployment> = Api::namespaced(self.spoke.clone(), NAMESPACE);
        let patch = Patch::Merge(json!({"status": status}));
        let name = object_name(number);
        deployments
            .patch_status(&name, &PatchParams::default(), &patch)
            .await?;
        Ok(())
    }

    /// Patches one after the other, a few at a time.
    async fn patch_all(&self, numbers: impl Iterator<Item = usize>, status: &Value) -> Result<()> {
        stream::iter(numbers)
            .map(Ok)
            .try_for_each_concurrent(AT_A_TIME, |number| self.patch(number, status))
            .await
    }

    /// Creates the works and waits until each has reported all of its objects.
    async fn load(&self) -> Result<()> {
        for work in 0..WORKS {
            let first = work * MANIFESTS;
            let names: Vec<_> = (first..first + MANIFESTS).map(object_name).collect();
            let work = json!({
                "apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
                "metadata": {"name": format!("work-{work:03}")},
                "spec": fixtures::watched_spec(&names, NAMESPACE)});
            self.works
                .create(&PostParams::default(), &serde_json::from_value(work)?)
                .await?;
        }
        let deployments: Api<Deployment> = Api::namespaced(self.spoke.clone(), NAMESPACE);
        until(LOAD_LIMIT, "all Deployments", async || {
            let list = deployments.list_metadata(&ListParams::default()).await?;
            Ok(list.items.len() == OBJECTS)
        })
        .await?;
        let status = fixtures::deployment_status(self.ready);
        self.patch_all(0..OBJECTS, &status).await?;
        self.reports(OBJECTS, self.ready).await
    }

    /// Waits until works report this value of so many objects.
    async fn reports(&self, count: usize, ready: i64) -> Result<()> {
        until(LOAD_LIMIT, "what works report", async || {
            let works = self.works.list(&ListParams::default()).await?;
            let manifests = works
                .items
                .iter()
                .filter_map(|work| work.status.as_ref())
                .flat_map(|status| &status.resource_status.manifests);
            let values = manifests.flat_map(|manifest| &manifest.status_feedback.values);
            let reported = values.filter(|value| {
                value.name == "ReadyReplicas" && value.value.integer == Some(ready)
            });
            Ok(reported.count() == count)
        })
        .await
    }

    /// Changes a field that no rule reads, of one object after the other.
    async fn irrelevant(&mut self) -> Result<Irrelevant> {
        let mut measured = Irrelevant {
            agent: Vec::new(),
            bare: Vec::new(),
            rates: Vec::new(),
            changes: 0,
            shown: 0,
        };
        let shown = self.agent.sightings().await?;
        for _ in 0..ROUNDS {
            sleep(SETTLE).await;
            let (agent, bare) = (self.agent.usage().await?, self.bare.usage().await?);
            let begin = Instant::now();
            let mut ticks = interval(TICK);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
            let each = RATE / 100;
            for _ in 0..IRRELEVANT / each {
                ticks.tick().await;
                let from = measured.changes;
                measured.changes += each;
                let numbers = (from..measured.changes).map(|number| number % OBJECTS);
                // It stays a number of its own for 1,000 times around.
                let status = json!({"collisionCount": from / each + 1});
                self.patch_all(numbers, &status).await?;
            }
            #[allow(clippy::cast_precision_loss, reason = "a few thousand")]
            measured
                .rates
                .push(IRRELEVANT as f64 / begin.elapsed().as_secs_f64());
            self.bare.sees(IRRELEVANT).await?;
            sleep(SETTLE).await;
            let used = self.agent.usage().await?.nanos_since(&agent);
            measured.agent.push(millis_for_1000(used, IRRELEVANT));
            let used = self.bare.usage().await?.nanos_since(&bare);
            measured.bare.push(millis_for_1000(used, IRRELEVANT));
        }
        measured.shown = self.agent.sightings().await? - shown;
        // Else "no writes" would only mean that the agent does not watch.
        ensure!(
            measured.shown == measured.changes as u64,
            "the agent was shown {} of {} changes",
            measured.shown,
            measured.changes
        );
        Ok(measured)
    }

    /// Changes a value of one object of each work within a second: CPU milliseconds for 1,000.
    async fn reported(&mut self) -> Result<Vec<f64>> {
        let gap = Duration::from_secs(1) / u32::try_from(WORKS)?;
        let mut rounds = Vec::new();
        for round in 0..ROUNDS {
            sleep(SETTLE).await;
            let before = self.agent.usage().await?;
            self.ready += 1;
            let mut ticks = interval(gap);
            for work in 0..WORKS {
                ticks.tick().await;
                let number = work * MANIFESTS + round % MANIFESTS;
                let status = json!({"readyReplicas": self.ready});
                self.patch(number, &status).await?;
            }
            self.reports(WORKS, self.ready).await?;
            sleep(SETTLE).await;
            let used = self.agent.usage().await?.nanos_since(&before);
            rounds.push(millis_for_1000(used, WORKS));
        }
        Ok(rounds)
    }
}

fn params(asked: &Requests) -> Value {
    json!({"objects": OBJECTS, "works": WORKS, 
        "requests_in_window": asked.params()})
}

#[allow(clippy::cast_precision_loss, reason = "requests of some seconds")]
fn tell_irrelevant(report: &mut Report, measured: &Irrelevant, asked: &Requests) {
    let params = params(asked);
    let more = json!({"changes": measured.changes, "changes_per_s": median(&measured.rates),
        "states_shown_to_the_agent": measured.shown});
    let at = |server: &'static str| {
        let count = asked.count(|kind| kind.server == server);
        (count as f64, count == 0)
    };
    for (server, name) in [
        ("hub", "requests at the hub during irrelevant changes"),
        ("spoke", "requests at the cluster during irrelevant changes"),
    ] {
        let (count, none) = at(server);
        report.add(
            Figure::new("P13", name, count, "requests")
                .met_in_full(none)
                .params(params.clone())
                .params(more.clone()),
        );
    }
    let writes = asked.count(|kind| kind.server == "hub" && !kind.reads());
    let name = "status writes at the hub during irrelevant changes";
    report.add(
        Figure::new("P13", name, writes as f64, "requests")
            .met_in_full(writes == 0)
            .params(params.clone())
            .params(more.clone()),
    );
    let value = median(&measured.agent);
    let baseline = "bare kube watch decoding into serde_json::Value, the same changes";
    let ratio = Ratio::of(&measured.bare, &measured.agent);
    report.add(
        Figure::new(
            "P13",
            "agent's CPU for 1,000 irrelevant changes",
            value,
            "ms",
        )
        .in_rounds(median(&measured.bare), baseline, ratio)
        .met(value <= MOST_IRRELEVANT_MILLIS)
        .params(params)
        .params(more)
        .params(json!({"ocm_recorded_ms": 3_300})),
    );
}

fn tell_reported(report: &mut Report, rounds: &[f64], asked: &Requests, calibration: Calibration) {
    let value = median(rounds);
    report.add(
        Figure::new("P3", "agent's CPU for 1,000 reported changes", value, "ms")
            .below(
                calibration.scaled(14_100.0),
                "OCM work agent, 1,000 objects watched, recorded, scaled by calibration",
            )
            .met(value <= MOST_REPORTED_MILLIS)
            .params(calibration.params())
            .params(params(asked))
            .params(json!({"changes": ROUNDS * WORKS, "changes_per_s": WORKS,
                "changes_per_s_and_work": 1, "rounds_ms": rounds})),
    );
}
