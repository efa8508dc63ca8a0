//! P9, P14 (part): what 100,000 works over events cost a hub, and how soon it is back.
//!
//! The hub is a process of its own with an API server on a file, and 100 works in each cluster, all of
//! them with a status. Its start is timed from the first line of the program: the file is opened, works
//! are listed into the index, and the broker is joined. No agent runs: it is the hub that is measured.
//! After that it tells all works once, since it cannot know what its agents have heard. Baseline, in
//! alternating rounds: a process that opens the same file and only lists the works.
//!
//! The memory of the index for each work is the slope over five steps, in a process that has no
//! works in its API.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::support::event_side::{EventSide, Started};
use crate::support::events::broker;
use crate::support::figure::{Figure, Report};
use crate::support::rounds::{Ratio, median, slope};
use crate::support::servers;
use crate::support::size::sized;

const WORKS: usize = sized(100_000, 500);
const STEPS: usize = 5;
const ROUNDS: usize = sized(3, 1);
const LIMIT: Duration = Duration::from_secs(480);
/// The goals: seconds and bytes of a restart, and bytes of a work.
const MOST_SECONDS: f64 = 3.0;
const MOST_BYTES: f64 = 400e6;
const MOST_WORK_BYTES: f64 = 450.0;
/// KubeFleet's hub agent with 100,000 works: until all are reprocessed after a restart, and its memory.
const KUBEFLEET_SECONDS: f64 = 675.0;
const KUBEFLEET_BYTES: f64 = 8e9;
const MIB: f64 = 1024.0 * 1024.0;

pub(crate) fn run() -> Result<()> {
    servers::block_on_for(LIMIT, async {
        let mut report = Report::start();
        index(&mut report).await?;
        restart(&mut report).await
    })
}

#[allow(clippy::cast_precision_loss, reason = "no bench counts to 2^52")]
async fn index(report: &mut Report) -> Result<()> {
    let mut side = EventSide::start(&["index"])?;
    let mut points = Vec::new();
    for step in 0..=STEPS {
        let usage = side.add(if step == 0 { 0 } else { WORKS / STEPS }).await?;
        points.push((
            (step * WORKS / STEPS) as f64,
            usage.resident_kib as f64 * 1024.0,
        ));
    }
    let bytes = slope(&points);
    report.add(
        Figure::new(
            "P9",
            "memory of the hub's index for each work over events",
            bytes,
            "B",
        )
        .below(
            4_400.0,
            "OCM's informer store on the hub, Go heap, recorded",
        )
        .met_in_full(bytes <= MOST_WORK_BYTES)
        .params(
            json!({"works": WORKS, "steps": STEPS, "allocator": "system",
                "resident_by_works": points}),
        ),
    );
    Ok(())
}

#[allow(clippy::cast_precision_loss, reason = "no bench counts to 2^52")]
async fn restart(report: &mut Report) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("hub.redb");
    let file = file.to_str().context("an odd folder for temporary files")?;
    EventSide::fill(file, WORKS).await?;
    let broker = broker(0).await?;
    let address = broker.address().to_string();
    let (mut joined, mut sent, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let mut hub = EventSide::start(&["restart", file, &address])?;
        joined.push(hub.started().await?);
        sent.push(hub.sent().await?);
        hub.end().await?;
        let mut lister = EventSide::start(&["list", file])?;
        bare.push(lister.started().await?);
        lister.end().await?;
    }
    broker.stop().await;
    for started in joined.iter().chain(&bare) {
        let works = started.works;
        ensure!(works == WORKS, "{works} of {WORKS} works after a restart");
    }
    let of = |rounds: &[Started], value: fn(&Started) -> f64| -> Vec<f64> {
        rounds.iter().map(value).collect()
    };
    let seconds = |rounds: &[Started]| of(rounds, |it| it.joined);
    let peak = |rounds: &[Started]| of(rounds, |it| it.peak_kib as f64 * 1024.0);
    let params = json!({"works": WORKS, "works_in_cluster": 100, "storage": "redb",
        "s_until_opened": median(&of(&joined, |it| it.opened)),
        "s_until_listed": median(&of(&joined, |it| it.listed))});
    let ratio = Ratio::of(&seconds(&bare), &seconds(&joined));
    let took = median(&seconds(&joined));
    let name = format!("start of a hub with {WORKS} works over events, until joined");
    report.add(
        Figure::new("P14", name, took, "s")
            .in_rounds(
                median(&seconds(&bare)),
                "a process that opens the file and lists the works, alternating",
                ratio,
            )
            .met(took <= MOST_SECONDS)
            .params(params.clone()),
    );
    let name = format!("start of a hub with {WORKS} works, until all are told once");
    report.add(
        Figure::new("P14", name, median(&seconds(&sent)), "s")
            .below(
                KUBEFLEET_SECONDS,
                "KubeFleet, 100,000 works reprocessed, published",
            )
            .params(params.clone()),
    );
    let bytes = median(&peak(&sent));
    let name = format!("peak memory of a hub that starts with {WORKS} works");
    report.add(
        Figure::new("P14", &*name, bytes / MIB, "MiB")
            .below(KUBEFLEET_BYTES / MIB, "KubeFleet's hub agent, published")
            .met_in_full(bytes <= MOST_BYTES)
            .params(params.clone()),
    );
    report.add(
        Figure::new(
            "P14",
            format!("{name}, beside a bare list"),
            bytes / MIB,
            "MiB",
        )
        .in_rounds(
            median(&peak(&bare)) / MIB,
            "a process that opens the file and lists the works, alternating",
            Ratio::of(&peak(&bare), &peak(&sent)),
        )
        .params(params)
        .params(json!({"resident_mib":
                median(&of(&sent, |it| it.resident_kib as f64 * 1024.0 / MIB))})),
    );
    Ok(())
}
