//! P4: what one status event costs the hub for a replica set of N clusters.
//!
//! A pure library bench. Subject: `muster_core::replicaset` takes the event in, adjusts counters
//! and sums, and looks for wanted writes. Control, in the same rounds: the state is computed from
//! scratch for each event; its cost must grow with N, or the bench cannot see growth. Floor, in the
//! same rounds: a hash map that keeps the newest facts of each work and nothing else. It grows too,
//! since of 100,000 works fewer are in the CPU's caches.
//!
//! Events are made just before they are taken in, as they are by the hub, which has read them.

use std::collections::HashMap;
use std::hint::black_box;

use muster_core::replicaset::{WorkFacts, WorkKey};
use serde_json::json;

use crate::support::figure::{Figure, Report};
use crate::support::machine::{Calibration, cpu_each, micros, thread_cpu};
use crate::support::replica_set::{Event, Subject};
use crate::support::rounds::{Ratio, exponent, median};
use crate::support::size::sized;
use crate::support::slow;

const ROUNDS: usize = sized(7, 2);
const ALL_SIZES: [usize; 5] = [100, 1_000, 5_000, 10_000, 100_000];
const SIZES: &[usize] = ALL_SIZES.split_at(sized(5, 2)).0;
const EVENTS: usize = sized(4_000, 400);
/// Events made at a time: few enough to stay in a CPU's cache.
const AT_ONCE: usize = 100;
/// The goal: at most so many µs an event.
const MOST_MICROS: f64 = 5.0;
/// The goal: at most this slope of log(cost) over log(clusters).
const MOST_SLOPE: f64 = 0.05;
/// The goal: at most this exponent of a wave over all clusters.
const MOST_WAVE_EXPONENT: f64 = 1.05;

/// CPU milliseconds that one event costs upstream's controller, and the ratio that the goal asks
/// for where it names one. Some are computed from the law of the others, 0.55 ms a cluster.
const PEER: [(f64, Option<f64>, &str); 5] = [
    (55.0, Some(10_000.0), "measured"),
    (522.0, None, "measured"),
    (2_750.0, None, "computed"),
    (5_450.0, Some(1_000_000.0), "measured"),
    (55_000.0, None, "computed"),
];

/// Costs in µs, by size and round.
struct Costs {
    ours: Vec<Vec<f64>>,
    floors: Vec<Vec<f64>>,
    recounts: Vec<Vec<f64>>,
}

pub(crate) fn run() {
    let mut report = Report::start();
    let calibration = Calibration::measure();
    let events = if slow::injected() { 3 } else { EVENTS };
    let costs = Costs::measure(events);
    for (index, clusters) in SIZES.iter().copied().enumerate() {
        costs.tell_size(&mut report, index, clusters, events, calibration);
    }
    costs.tell_slopes(&mut report);
    report.add(wave());
}

impl Costs {
    #[allow(clippy::cast_precision_loss, reason = "at most 4,000 events")]
    fn measure(events: usize) -> Self {
        let mut subjects: Vec<Subject> = SIZES.iter().map(|n| Subject::new(*n)).collect();
        let mut maps: Vec<HashMap<WorkKey, WorkFacts>> = subjects
            .iter_mut()
            .map(|subject| subject.wave().into_iter().collect())
            .collect();
        let none = || vec![Vec::new(); SIZES.len()];
        let (mut ours, mut floors, mut recounts) = (none(), none(), none());
        for _ in 0..ROUNDS {
            for (index, subject) in subjects.iter_mut().enumerate() {
                warm_up(subject);
                let (mut spent, mut least) = (0.0, 0.0);
                for _ in 0..events.div_ceil(AT_ONCE) {
                    let batch = subject.events(events.min(AT_ONCE));
                    spent += micros_of(subject, batch, 1);
                    let batch = subject.events(events.min(AT_ONCE));
                    least += micros_of_map(&mut maps[index], batch);
                }
                ours[index].push(spent / events as f64);
                floors[index].push(least / events as f64);
                // A few at the small sizes, where one is short against the clock's resolution.
                let times = (2_000 / SIZES[index]).max(1);
                recounts[index].push(cpu_each(times, || subject.recount()));
            }
        }
        Self {
            ours,
            floors,
            recounts,
        }
    }

    fn tell_size(
        &self,
        report: &mut Report,
        index: usize,
        clusters: usize,
        events: usize,
        calibration: Calibration,
    ) {
        let value = median(&self.ours[index]);
        let (peer_millis, wanted_ratio, how) = PEER[index];
        let peer = calibration.scaled(peer_millis * 1e3);
        let met = value <= MOST_MICROS && wanted_ratio.is_none_or(|ratio| peer / value >= ratio);
        let params = json!({"clusters": clusters, "events": events, "rounds": ROUNDS, "seed": 4});
        let named = |name: &str| {
            let figure = Figure::new("P4", format!("{name}, {clusters} clusters"), value, "µs");
            figure.params(params.clone())
        };
        report.add(
            named("CPU of one status event")
                .below(
                    peer,
                    format!("OCM controller, {how}, scaled by calibration"),
                )
                .met(met)
                .params(calibration.params()),
        );
        for (name, baseline, rounds) in [
            (
                "the same beside a recount",
                "recount of everything, same run",
                &self.recounts[index],
            ),
            (
                "the same beside a hash map",
                "hash map of the newest facts, same run",
                &self.floors[index],
            ),
        ] {
            let ratio = Ratio::of(rounds, &self.ours[index]);
            report.add(named(name).in_rounds(median(rounds), baseline, ratio));
        }
    }

    fn tell_slopes(&self, report: &mut Report) {
        let slope = slope_of(&self.ours);
        let named = |name| {
            let params = json!({"clusters": SIZES, "rounds": ROUNDS});
            Figure::new("P4", name, slope, "").params(params)
        };
        report.add(
            named("slope of log(cost of an event) over log(clusters)")
                .below(slope_of(&self.recounts), "recount of everything, same run")
                .met_in_full(slope <= MOST_SLOPE),
        );
        report.add(named("the same slope beside a hash map's").control(
            slope_of(&self.floors),
            "hash map of the newest facts, same run",
        ));
    }
}

/// Median over the rounds of the slope of log(cost) over log(clusters).
#[allow(clippy::cast_precision_loss, reason = "at most 100,000 clusters")]
fn slope_of(costs: &[Vec<f64>]) -> f64 {
    let of_round = |round: usize| {
        let points: Vec<(f64, f64)> = SIZES
            .iter()
            .zip(costs)
            .map(|(n, rounds)| (*n as f64, rounds[round]))
            .collect();
        exponent(&points)
    };
    median(&(0..ROUNDS).map(of_round).collect::<Vec<f64>>())
}

/// CPU time in µs that the floor needs for `events`.
fn micros_of_map(map: &mut HashMap<WorkKey, WorkFacts>, events: Vec<Event>) -> f64 {
    let begin = thread_cpu();
    for (key, facts) in events {
        black_box(map.insert(key, facts));
    }
    micros(thread_cpu().saturating_sub(begin))
}

/// Brings caches to the subject, and lets the allocator tidy up what a recount before it left: at
/// 100,000 clusters that takes 50 ms, which are not the next subject's.
fn warm_up(subject: &mut Subject) {
    subject.recount();
    for event in subject.events(500) {
        subject.take(event);
    }
}

/// CPU time in µs of `events`, with a recount after every `slow_step`th of them if slowness is asked
/// for.
fn micros_of(subject: &mut Subject, events: Vec<Event>, slow_step: usize) -> f64 {
    let begin = thread_cpu();
    for (index, event) in events.into_iter().enumerate() {
        subject.take(event);
        if slow::injected() && index % slow_step == 0 {
            subject.recount();
        }
    }
    micros(thread_cpu().saturating_sub(begin))
}

/// One event of every cluster: the whole must grow no faster than the number of clusters.
#[allow(clippy::cast_precision_loss, reason = "at most 100,000 clusters")]
fn wave() -> Figure {
    // With a recount for every tenth event, 100,000 clusters would take an hour.
    let sizes = if slow::injected() {
        &[100, 300, 1_000, 2_000, 3_000][..sized(5, 2)]
    } else {
        SIZES
    };
    let mut exponents = Vec::new();
    for _ in 0..3 {
        let mut points = Vec::new();
        for clusters in sizes.iter().copied() {
            let mut subject = Subject::new(clusters);
            // Small waves are repeated, so that each size measures for about as long.
            let repeats = (10_000 / clusters).max(1);
            let mut spent = 0.0;
            for _ in 0..repeats {
                let events = subject.wave();
                spent += micros_of(&mut subject, events, 10);
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
    .met_in_full(value <= MOST_WAVE_EXPONENT)
    .params(json!({"clusters": sizes, "rounds": exponents.len(), "seed": 4}))
}
