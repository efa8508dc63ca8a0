//! P4: what one status event costs the hub for a replica set of N clusters.
//!
//! A pure library bench. Subject: `muster_core::replicaset` takes the event in, adjusts counters
//! and sums, and looks for wanted writes. Control, in the same rounds: the state is computed from
//! scratch for each event; its cost must grow with N, or the bench cannot see growth.

use serde_json::json;

use crate::support::figure::{Figure, Report};
use crate::support::machine::{Calibration, cpu_each, micros, thread_cpu};
use crate::support::replica_set::{Event, Subject};
use crate::support::rounds::{Ratio, exponent, median};
use crate::support::slow;

const ROUNDS: usize = 7;
const SIZES: [usize; 4] = [100, 1_000, 10_000, 100_000];
const EVENTS: usize = 4_000;
/// The goal: at most so many µs an event.
const MOST_MICROS: f64 = 5.0;
/// The goal: at most this slope of log(cost) over log(clusters).
const MOST_SLOPE: f64 = 0.05;
/// The goal: at most this exponent of a wave over all clusters.
const MOST_WAVE_EXPONENT: f64 = 1.05;

/// CPU milliseconds that one event costs upstream's controller, and the ratio that the goal asks
/// for where it names one. The last is computed from the law of the others, 0.55 ms a cluster.
const PEER: [(f64, Option<f64>, &str); 4] = [
    (55.0, Some(10_000.0), "measured"),
    (522.0, None, "measured"),
    (5_450.0, Some(1_000_000.0), "measured"),
    (55_000.0, None, "computed"),
];

#[allow(clippy::cast_precision_loss, reason = "at most 100,000 clusters")]
pub(crate) fn run() {
    let mut report = Report::start();
    let calibration = Calibration::measure();
    let mut subjects: Vec<Subject> = SIZES.iter().map(|n| Subject::new(*n)).collect();
    let events = if slow::injected() { 3 } else { EVENTS };
    let mut ours = vec![Vec::new(); SIZES.len()];
    let mut recounts = vec![Vec::new(); SIZES.len()];
    for _ in 0..ROUNDS {
        for (index, subject) in subjects.iter_mut().enumerate() {
            warm_up(subject);
            let batch = subject.events(events);
            ours[index].push(micros_each(subject, batch, 1));
            // A few at the small sizes, where one is short against the clock's resolution.
            let times = (2_000 / SIZES[index]).max(1);
            recounts[index].push(cpu_each(times, || subject.recount()));
        }
    }
    for (index, clusters) in SIZES.into_iter().enumerate() {
        let value = median(&ours[index]);
        let (peer_millis, wanted_ratio, how) = PEER[index];
        let peer = calibration.scaled(peer_millis * 1e3);
        let met = value <= MOST_MICROS && wanted_ratio.is_none_or(|ratio| peer / value >= ratio);
        report.add(
            Figure::new(
                "P4",
                format!("CPU of one status event, {clusters} clusters"),
                value,
                "µs",
            )
            .below(
                peer,
                format!("OCM controller, {how}, scaled by calibration"),
            )
            .met(met)
            .params(calibration.params())
            .params(json!({"clusters": clusters, "events": events, "rounds": ROUNDS, "seed": 4})),
        );
        let ratio = Ratio::of(&recounts[index], &ours[index]);
        report.add(
            Figure::new(
                "P4",
                format!("the same beside a recount, {clusters} clusters"),
                value,
                "µs",
            )
            .in_rounds(
                median(&recounts[index]),
                "recount of everything, same run",
                ratio,
            )
            .params(json!({"clusters": clusters, "events": events})),
        );
    }
    let slopes = |costs: &[Vec<f64>]| -> f64 {
        let of_round = |round: usize| {
            let points: Vec<(f64, f64)> = SIZES
                .iter()
                .zip(costs)
                .map(|(n, rounds)| (*n as f64, rounds[round]))
                .collect();
            exponent(&points)
        };
        median(&(0..ROUNDS).map(of_round).collect::<Vec<f64>>())
    };
    let slope = slopes(&ours);
    report.add(
        Figure::new(
            "P4",
            "slope of log(cost of an event) over log(clusters)",
            slope,
            "",
        )
        .below(slopes(&recounts), "recount of everything, same run")
        .met(slope <= MOST_SLOPE)
        .params(json!({"clusters": SIZES, "rounds": ROUNDS})),
    );
    drop(subjects);
    report.add(wave());
}

/// Brings caches to the subject, and lets the allocator tidy up what a recount before it left: at
/// 100,000 clusters that takes 50 ms, which are not the next subject's.
fn warm_up(subject: &mut Subject) {
    subject.recount();
    for event in subject.events(500) {
        subject.take(event);
    }
}

/// CPU time in µs of each of `count` events, with a recount after every `slow_step`th of them if
/// slowness is asked for.
#[allow(clippy::cast_precision_loss, reason = "at most 100,000 events")]
fn micros_each(subject: &mut Subject, events: Vec<Event>, slow_step: usize) -> f64 {
    let count = events.len() as f64;
    let begin = thread_cpu();
    for (index, event) in events.into_iter().enumerate() {
        subject.take(event);
        if slow::injected() && index % slow_step == 0 {
            subject.recount();
        }
    }
    micros(thread_cpu().saturating_sub(begin)) / count
}

/// One event of every cluster: the whole must grow no faster than the number of clusters.
#[allow(clippy::cast_precision_loss, reason = "at most 100,000 clusters")]
fn wave() -> Figure {
    // With a recount for every tenth event, 100,000 clusters would take an hour.
    let sizes = if slow::injected() {
        [100, 300, 1_000, 3_000]
    } else {
        SIZES
    };
    let mut exponents = Vec::new();
    for _ in 0..3 {
        let mut points = Vec::new();
        for clusters in sizes {
            let mut subject = Subject::new(clusters);
            // Small waves are repeated, so that each size measures for about as long.
            let repeats = (10_000 / clusters).max(1);
            let mut spent = 0.0;
            for _ in 0..repeats {
                let events = subject.wave();
                spent += micros_each(&mut subject, events, 10) * clusters as f64;
            }
            points.push((clusters as f64, spent / repeats as f64));
        }
        exponents.push(exponent(&points));
    }
    let value = median(&exponents);
    Figure::new(
        "P4",
        "exponent of a wave: one event of every cluster",
        value,
        "",
    )
    .below(2.0, "OCM controller, measured")
    .met(value <= MOST_WAVE_EXPONENT)
    .params(json!({"clusters": sizes, "rounds": exponents.len(), "seed": 4}))
}
