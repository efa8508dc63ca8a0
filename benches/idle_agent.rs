//! P9, P12, P13: what an agent costs that has nothing to do.
//!
//! The agent (ClusterAgent and its works, polling) runs in a process of its own. Hub and cluster are
//! embedded API servers in the first process, reached over HTTPS, so that only the agent counts.
//! Works are loaded in five steps; after each, once every work has reported its feedback, the agent
//! tells its resident memory. Then nothing happens for a while, and what it uses and asks for
//! meanwhile is its idle cost.

use std::time::Duration;

use anyhow::Result;
use muster_actors::hub::register_cluster;
use serde_json::json;

use crate::support::agent::{CLUSTER, KUBECONFIGS};
use crate::support::figure::{Figure, Report};
use crate::support::idle::{
    Backend, IDLE_POLL, Load, Measured, WINDOW, WINDOW_WITHOUT, measure, windows_in,
};
use crate::support::machine::Calibration;
use crate::support::rounds::slope;
use crate::support::servers;
use crate::support::size::{REHEARSAL, lasting, sized};

const WORKS: usize = sized(1_000, 20);
/// A ConfigMap and a Deployment.
const LOAD: Load = Load {
    steps: if REHEARSAL {
        &[0, 10, WORKS]
    } else {
        &[0, 100, 250, 500, WORKS]
    },
    manifests: 2,
    poll: lasting(3_000, 500),
};
const MINUTE: Duration = Duration::from_secs(60);

/// The goals: a lone agent, a work, and an idle minute with 1,000 works.
const MOST_ALONE_BYTES: f64 = 8e6;
const MOST_WORK_BYTES: f64 = 3e3;
const MOST_MINUTE_MILLIS: f64 = 5.0;
/// One list per type and namespace and poll: ConfigMaps and Deployments of one namespace.
const LISTS_A_POLL: f64 = 2.0;

const MIB: f64 = 1024.0 * 1024.0;

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
        let backend = Backend::Embedded { hub, spoke };
        let measured = measure(&backend, dir.path(), LOAD).await?;
        tell_memory(&mut report, &measured);
        tell_idle(&mut report, &measured, calibration);
        Ok(())
    })
}

#[allow(
    clippy::cast_precision_loss,
    reason = "bytes of memory are far below 2^52"
)]
fn tell_memory(report: &mut Report, measured: &Measured) {
    let Measured { resident, .. } = measured;
    let params = json!({"allocator": "system", "works": LOAD.steps,
        "poll_interval_s": LOAD.poll.as_secs()});
    // Recorded in MB of the resident set; where two modes were, the one that polls, as we do.
    let peers = [
        (0, 81e6, ""),
        (100, 108e6, ", watch mode"),
        (1_000, 112e6, ", poll mode"),
    ];
    for (works, bytes) in resident {
        let Some((_, peer, mode)) = peers.iter().find(|(at, ..)| at == works) else {
            continue;
        };
        let bytes = *bytes as f64;
        let name = format!("agent with {works} works, resident");
        let figure = Figure::new("P12", name, bytes / MIB, "MiB")
            .below(peer / MIB, format!("OCM work agent{mode}, recorded"))
            .params(params.clone());
        // The goal is about a lone agent.
        report.add(if *works == 0 {
            figure.met(bytes <= MOST_ALONE_BYTES)
        } else {
            figure
        });
    }
    let points: Vec<(f64, f64)> = resident
        .iter()
        .map(|(works, bytes)| (*works as f64, *bytes as f64))
        .collect();
    let per_work = slope(&points);
    let name = "agent's memory for each work, slope (polled, part)";
    report.add(
        Figure::new("P9", name, per_work / 1e3, "KB")
            .below(31.0, "OCM work agent, poll mode, recorded")
            .met_in_full(per_work <= MOST_WORK_BYTES)
            .params(params)
            .params(json!({"resident_bytes_by_works": resident})),
    );
}

#[allow(
    clippy::cast_precision_loss,
    reason = "requests of a minute are far below 2^52"
)]
fn tell_idle(report: &mut Report, measured: &Measured, calibration: Calibration) {
    let params = json!({"poll_interval_s": IDLE_POLL.as_secs(), "mode": "poll",
        "window_s": WINDOW.as_secs(), "requests_in_window": measured.requests.params()});
    report.add(
        Figure::new(
            "P13",
            "CPU of an idle minute, 0 works",
            measured.cpu_alone,
            "ms",
        )
        .below(
            calibration.scaled(380.0),
            "OCM work agent, recorded, scaled by calibration",
        )
        .params(calibration.params())
        .params(json!({"window_s": WINDOW_WITHOUT.as_secs()})),
    );
    let peer = "OCM work agent, poll mode, recorded, scaled by calibration";
    report.add(
        Figure::new(
            "P13",
            format!("CPU of an idle minute, {WORKS} works"),
            measured.cpu,
            "ms",
        )
        .below(calibration.scaled(5_000.0), peer)
        .met(measured.cpu <= MOST_MINUTE_MILLIS)
        .params(calibration.params())
        .params(params.clone()),
    );
    let in_minute = |server: &str| {
        let count = measured.requests.count(|kind| kind.server == server);
        count as f64 * windows_in(MINUTE, WINDOW)
    };
    let at_hub = in_minute("hub");
    let name = format!("requests at the hub in an idle minute, {WORKS} works");
    report.add(
        Figure::new("P13", name, at_hub, "requests")
            .met_in_full(at_hub <= 0.0)
            .params(params.clone()),
    );
    let at_spoke = in_minute("spoke");
    let most = LISTS_A_POLL * windows_in(MINUTE, IDLE_POLL);
    let name = format!("requests at the cluster in an idle minute, {WORKS} works");
    report.add(
        Figure::new("P13", name, at_spoke, "requests")
            .below(
                3_000.0,
                "OCM work agent, poll mode, at its limit of 50/s, recorded",
            )
            .met_in_full(at_spoke <= most)
            .params(params)
            .params(json!({"goal_requests": most})),
    );
}
