//! P1: how long it takes until the status of a replica set shows a change of a work's status, all
//! in one process: the hub's leg of the way that `feedback_latency` measures as a whole.
//!
//! At 10 and 100 clusters, open loop. Floor, in alternating rounds: a bare watch of works and a bare
//! status patch for each event, through an API server of the same kind.

use std::time::Duration;

use anyhow::Result;
use futures::FutureExt;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use muster_api::replicaset::AggregatedValue;
use muster_api::work::ManifestWork;
use serde_json::json;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::support::figure::{Figure, Report};
use crate::support::hub::{self, Hub, cluster};
use crate::support::open_loop::{self, Change, Seen};
use crate::support::rounds::{Ratio, percentile};
use crate::support::servers;
use crate::support::size::{REHEARSAL, sized};
use crate::support::{bare_hub, fixtures, slow};

/// The goal in one process: p50 in ms.
const MOST_P50: f64 = 0.2;
const ROUNDS: usize = sized(5, 2);
/// Clusters, changes a second over all of them, changes a round.
const HUB_LEG: [(usize, u32, usize); 2] = if REHEARSAL {
    [(2, 10, 4), (4, 20, 8)]
} else {
    [(10, 10, 20), (100, 100, 150)]
};
const PATIENCE: Duration = Duration::from_secs(6);

pub(crate) fn run() -> Result<()> {
    servers::block_on(async {
        let mut report = Report::start();
        for (clusters, rate, changes) in HUB_LEG {
            hub_leg(&mut report, clusters, rate, changes).await?;
        }
        Ok(())
    })
}

/// One of the two systems of the hub leg: works to change, and a replica set to look at.
struct Side {
    client: Client,
    work: String,
    /// What each work reports.
    reported: Vec<u64>,
    /// Changes made so far, which is the sum over all works.
    changes: u64,
    /// Whether slowness may be injected here.
    ours: bool,
    seen: UnboundedReceiver<Seen>,
}

impl Side {
    async fn muster(clusters: usize) -> Result<Self> {
        let hub = Hub::start(clusters).await?;
        let work = hub
            .roll_out(&fixtures::work_spec("web", "default"), clusters)
            .await?;
        Self::new(hub.client, work, clusters, true).await
    }

    /// A hub without actors.
    async fn floor(clusters: usize) -> Result<Self> {
        let client = bare_hub::start(clusters).await?;
        Self::new(client, bare_hub::WORK.to_owned(), clusters, false).await
    }

    async fn new(client: Client, work: String, clusters: usize, ours: bool) -> Result<Self> {
        let sum = |value: &AggregatedValue| {
            let sum = value.sum.filter(|_| value.name == bare_hub::VALUE)?;
            Some((0, u64::try_from(sum).ok()?))
        };
        let seen = hub::observe(&client, sum).await?;
        let mut side = Self {
            client,
            work,
            reported: vec![0; clusters],
            changes: 0,
            ours,
            seen,
        };
        // Once around, so that every work is there with a status.
        side.round(clusters, Duration::from_millis(20)).await?;
        Ok(side)
    }

    async fn round(&mut self, count: usize, gap: Duration) -> Result<Vec<f64>> {
        let changes = (0..count).map(|_| self.next()).collect();
        open_loop::run(changes, gap, PATIENCE, &mut self.seen).await
    }

    /// Raises what the next work reports by one. Changes are far enough apart to come in order,
    /// so the sum over all works tells which of them the replica set shows.
    fn next(&mut self) -> Change {
        let index = usize::try_from(self.changes).unwrap_or_default() % self.reported.len();
        self.changes += 1;
        self.reported[index] += 1;
        let works: Api<ManifestWork> = Api::namespaced(self.client.clone(), &cluster(index));
        let (work, patch) = (
            self.work.clone(),
            bare_hub::work_status(self.reported[index]),
        );
        let ours = self.ours;
        let make = async move {
            if ours {
                slow::spin(Duration::from_millis(5));
            }
            works
                .patch_status(&work, &PatchParams::default(), &Patch::Merge(patch))
                .await?;
            Ok(())
        };
        Change {
            key: 0,
            number: self.changes,
            make: make.boxed(),
        }
    }
}

async fn hub_leg(report: &mut Report, clusters: usize, rate: u32, changes: usize) -> Result<()> {
    let gap = Duration::from_secs(1) / rate;
    let mut muster = Side::muster(clusters).await?;
    let mut floor = Side::floor(clusters).await?;
    let (mut ours, mut floors) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(muster.round(changes, gap).await?);
        floors.push(floor.round(changes, gap).await?);
    }
    let params = json!({"clusters": clusters, "changes_per_s": rate, "rounds": ROUNDS,
        "changes_per_round": changes, "coalesce_ms": 20});
    let baseline = "bare watch and bare patch through the same API server, same run";
    for (name, share) in [("p50", 0.5), ("p99", 0.99)] {
        let of = |rounds: &[Vec<f64>]| -> Vec<f64> {
            rounds
                .iter()
                .map(|latencies| percentile(latencies, share))
                .collect()
        };
        let ratio = Ratio::of(&of(&floors), &of(&ours));
        let value = percentile(&ours.concat(), share);
        let what =
            format!("work status to MWRS status, {name}, {clusters} clusters (hub leg, part)");
        let figure = Figure::new("P1", what, value, "ms")
            .in_rounds(percentile(&floors.concat(), share), baseline, ratio)
            .params(params.clone());
        // The goal's p99 is one against a raw MQTT ping; in one process it names p50 alone.
        report.add(if share < 0.9 {
            figure.met(value <= MOST_P50)
        } else {
            figure
        });
    }
    Ok(())
}
