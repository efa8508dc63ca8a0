//! P12, P13: what an idle agent costs whose works have five manifests each, and what it asks a
//! real kube-apiserver for, which is its hub and its cluster at once.
//!
//! The aim is that an idle agent writes nothing and reads only what its polls are for. The server
//! counts (`apiserver_request_total`), not the agent. No controller runs beside it: the bench makes
//! Deployments ready. Where this machine has no kube-apiserver, that is said and there are no
//! figures.
//!
//! Upstream's numbers, recorded on such a server, are for works of one Deployment each.

use std::time::Duration;

use anyhow::{Result, ensure};
use muster_actors::hub::register_cluster;
use serde_json::{Value, json};

use crate::support::agent::{CLUSTER, KUBECONFIGS};
use crate::support::figure::{Figure, Report};
use crate::support::idle::{Backend, IDLE_POLL, Load, Measured, WINDOW, measure, windows_in};
use crate::support::machine::Calibration;
use crate::support::requests::Kind;
use crate::support::servers;
use crate::support::size::sized;
use crate::tests_support::{RealApiServer, Servers, install_definitions};

/// Works that upstream's numbers were recorded with.
const PEER_WORKS: usize = 1_000;
const WORKS: usize = sized(PEER_WORKS, 20);
/// Four ConfigMaps and a Deployment.
const LOAD: Load = Load {
    steps: &[WORKS],
    manifests: 5,
    // Some 450 reads a second, beside the writes: a shorter one would keep the server busy.
    poll: IDLE_POLL,
};
/// What the manifests are.
const POLLED: [&str; 2] = ["configmaps", "deployments"];

const HOUR: Duration = Duration::from_secs(60 * 60);
/// The goal: one list per type and namespace and poll, and all works are in one namespace.
const LISTS_A_POLL: f64 = 2.0;
/// The goal until then: each manifest is read once. Polls under way when the window begins and
/// ends make up to a hundredth of difference.
const MOST_READS: f64 = 1.01 * 5.0;

const MIB: f64 = 1024.0 * 1024.0;

pub(crate) fn run() -> Result<()> {
    servers::block_on(async {
        let mut report = Report::start();
        let shared = Servers::new()?;
        let measured = match shared.own_api_server().await {
            Ok(real) => {
                let measured = on(&real).await;
                real.stop().await?;
                measured.map(Some)
            }
            Err(error) if std::env::var("CI").as_deref() == Ok("true") => Err(error),
            Err(error) => {
                eprintln!("no real kube-apiserver to run an agent against: {error:#}");
                Ok(None)
            }
        };
        shared.stop(false).await?;
        if let Some(measured) = measured? {
            let calibration = Calibration::measure();
            tell_use(&mut report, &measured, calibration);
            tell_requests(&mut report, &measured)?;
        }
        Ok(())
    })
}

async fn on(real: &RealApiServer) -> Result<Measured> {
    let cluster = real.cluster();
    install_definitions(cluster).await?;
    register_cluster(&cluster.client(), CLUSTER, &[].into()).await?;
    let dir = tempfile::tempdir()?;
    for name in KUBECONFIGS {
        std::fs::copy(cluster.kubeconfig(), dir.path().join(name))?;
    }
    measure(&Backend::Real(cluster.client()), dir.path(), LOAD).await
}

#[allow(
    clippy::cast_precision_loss,
    reason = "bytes of memory are far below 2^52"
)]
fn tell_use(report: &mut Report, measured: &Measured, calibration: Calibration) {
    let params = json!({"manifests_a_work": LOAD.manifests, "server": "kube-apiserver",
        "poll_interval_s": IDLE_POLL.as_secs()});
    let peer = "OCM work agent, poll mode, 1,000 works of one manifest, recorded";
    if let Some((_, bytes)) = measured.resident.last() {
        let name = format!("agent with {WORKS} works of 5 manifests, real API server, resident");
        report.add(
            Figure::new("P12", name, *bytes as f64 / MIB, "MiB")
                .beside_peer(112e6 / MIB, peer)
                .params(params.clone())
                .params(json!({"allocator": "system"})),
        );
    }
    let name = format!("CPU of an idle minute, {WORKS} works of 5 manifests");
    report.add(
        Figure::new("P13", name, measured.cpu, "ms")
            .beside_peer(
                calibration.scaled(5_000.0),
                format!("{peer}, scaled by calibration"),
            )
            .params(calibration.params())
            .params(params)
            .params(json!({"window_s": WINDOW.as_secs()})),
    );
}

/// Upstream's numbers are for 1,000 works: beside fewer they would say nothing.
trait BesidePeer {
    fn beside_peer(self, baseline: f64, is: impl Into<String>) -> Self;
}

impl BesidePeer for Figure {
    fn beside_peer(self, baseline: f64, is: impl Into<String>) -> Self {
        if WORKS == PEER_WORKS {
            self.below(baseline, is)
        } else {
            self
        }
    }
}

/// Whether a poll is why this was asked for.
fn of_a_poll(kind: &Kind) -> bool {
    kind.reads() && POLLED.contains(&kind.resource.as_str())
}

#[allow(
    clippy::cast_precision_loss,
    reason = "requests of an hour are far below 2^52"
)]
fn tell_requests(report: &mut Report, measured: &Measured) -> Result<()> {
    let Measured {
        requests, looks, ..
    } = measured;
    let params: Value = json!({"manifests_a_work": LOAD.manifests, "window_s": WINDOW.as_secs(),
        "poll_interval_s": IDLE_POLL.as_secs(), "looks_in_window": looks,
        "requests_in_window": requests.params()});
    let in_hour = |count: u64| count as f64 * windows_in(HOUR, WINDOW);

    let polls = requests.count(of_a_poll);
    // Else "no writes" would only mean that the counts are not read right.
    ensure!(
        *looks > 0 && polls > 0,
        "the agent looked {looks} times at works, and the server counted {polls} reads for it"
    );
    let writes = requests.count(|kind| !kind.reads());
    let name = format!("writes of an idle hour, {WORKS} works of 5 manifests");
    report.add(
        Figure::new("P13", name, in_hour(writes), "requests")
            .met_in_full(writes == 0)
            .params(params.clone()),
    );
    // A watch that goes on by another request costs the same however little a window sees of it.
    let is_watch = |kind: &Kind| kind.verb == "WATCH";
    let others = requests.count(|kind| kind.reads() && !of_a_poll(kind) && !is_watch(kind));
    let name = "reads of an idle hour that are of no poll";
    report.add(
        Figure::new("P13", name, in_hour(others), "requests")
            .met_in_full(others == 0)
            .params(params.clone()),
    );
    let each = polls as f64 / *looks as f64;
    let name = "reads for each poll of a work of 5 manifests";
    report.add(
        Figure::new("P13", name, each, "requests")
            .below(5.0, "OCM work agent, one for each manifest, read")
            .met_in_full(each <= MOST_READS)
            .params(params.clone()),
    );
    let reads = in_hour(polls + others);
    let most = LISTS_A_POLL * windows_in(HOUR, IDLE_POLL);
    let name = format!("reads of an idle hour, {WORKS} works of 5 manifests");
    report.add(
        Figure::new("P13", name, reads, "requests")
            .beside_peer(
                180_000.0,
                "OCM work agent, poll mode, at its limit of 50/s (polls late), recorded",
            )
            .met_in_full(reads <= most)
            .params(params)
            .params(json!({"goal_requests": most})),
    );
    Ok(())
}
