//! P7: what it costs to read the feedback values of an object.
//!
//! Subject: `muster_core::feedback` reads the three well-known values of a Deployment and one path
//! with a filter, from the object's bytes and from the decoded object. Floor, in the same rounds:
//! `serde_json` decoding the bytes and nothing else. Peer: upstream's evaluation, as recorded.
//!
//! Then each rule on its own, from the decoded object and from its bytes. Floors, in the same rounds:
//! the same fields looked up by hand, for nobody to report, and `serde_json` alone.

use std::hint::black_box;

use anyhow::{Result, ensure};
use muster_api::work::FeedbackRule;
use muster_core::feedback::{FeedbackLimits, FeedbackPlan};
use serde_json::{Value, json};

use crate::support::figure::{Figure, Report};
use crate::support::fixtures;
use crate::support::machine::{Calibration, cpu_each};
use crate::support::rounds::{Ratio, median};
use crate::support::size::sized;
use crate::support::slow;

const ROUNDS: usize = sized(15, 2);
const EVALUATIONS: usize = sized(2_000, 200);
const NS_PER_US: f64 = 1_000.0;

/// The goals in µs and as a ratio to upstream's CPU time, which follows, in µs.
const FROM_BYTES: (f64, f64, f64) = (1.5, 25.0, 38.8);
const DECODED: (f64, f64, f64) = (0.4, 50.0, 19.6);

pub(crate) fn run() -> Result<()> {
    let mut report = Report::start();
    let calibration = Calibration::measure();
    let object = fixtures::deployment();
    let bytes = object.to_string().into_bytes();
    let rules = fixtures::feedback_rules();
    let plan = FeedbackPlan::compile(&rules);
    let limits = FeedbackLimits::default();
    let values = plan.evaluate(&object, limits);
    ensure!(
        values.values.len() == 4 && values.errors.is_empty(),
        "odd feedback: {values:?}"
    );

    let evaluate = |object: &Value| {
        if slow::injected() {
            // What upstream does, many times over: paths are parsed again for each object.
            for _ in 0..50 {
                black_box(FeedbackPlan::compile(&rules));
            }
        }
        drop(black_box(plan.evaluate(black_box(object), limits)));
    };
    let decode = || serde_json::from_slice::<Value>(black_box(&bytes));
    let (mut floors, mut from_bytes, mut decoded) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        floors.push(cpu_each(EVALUATIONS, || drop(black_box(decode()))));
        from_bytes.push(cpu_each(EVALUATIONS, || {
            if let Ok(object) = decode() {
                evaluate(&object);
            }
        }));
        decoded.push(cpu_each(EVALUATIONS, || evaluate(&object)));
    }

    let params = json!({"object_bytes": bytes.len(), "values": 4, "rounds": ROUNDS,
        "evaluations": EVALUATIONS});
    for (figure, measured, (most, wanted_ratio, recorded)) in [
        (
            "CPU of feedback from an object's bytes",
            &from_bytes,
            FROM_BYTES,
        ),
        ("CPU of feedback from a decoded object", &decoded, DECODED),
    ] {
        let value = median(measured);
        let peer = calibration.scaled(recorded);
        report.add(
            Figure::new("P7", figure, value, "µs")
                .below(peer, "OCM statusfeedback, recorded, scaled by calibration")
                .met(value <= most && peer / value >= wanted_ratio)
                .params(calibration.params())
                .params(params.clone()),
        );
    }
    let ratio = Ratio::of(&floors, &from_bytes);
    report.add(
        Figure::new(
            "P7",
            "feedback from bytes beside its floor",
            median(&from_bytes),
            "µs",
        )
        .in_rounds(
            median(&floors),
            "serde_json decoding the object to a Value, same run",
            ratio,
        )
        .params(params),
    );
    single_rules(&mut report, &object, &rules, calibration)
}

/// A rule on its own.
struct Single {
    name: &'static str,
    /// A way to its fields without the rule; tells how many there are.
    by_hand: fn(&Value) -> usize,
    by_hand_is: &'static str,
    /// Upstream's CPU time from the decoded object, in µs.
    recorded: f64,
}

const SINGLES: [Single; 2] = [
    Single {
        name: "well-known values of a Deployment",
        by_hand: well_known_by_hand,
        by_hand_is: "three JSON pointers into the object, same rounds",
        recorded: 6.8,
    },
    Single {
        name: "one path with a filter",
        by_hand: filter_by_hand,
        by_hand_is: "a loop over the list, same rounds",
        recorded: 15.1,
    },
];

fn single_rules(
    report: &mut Report,
    object: &Value,
    rules: &[FeedbackRule],
    calibration: Calibration,
) -> Result<()> {
    let limits = FeedbackLimits::default();
    let bytes = object.to_string().into_bytes();
    let decode = || serde_json::from_slice::<Value>(black_box(&bytes));
    for (single, rule) in SINGLES.iter().zip(rules) {
        let Single { name, by_hand, .. } = single;
        let plan = FeedbackPlan::compile(std::slice::from_ref(rule));
        let found = plan.evaluate(object, limits).values.len();
        ensure!(
            found == by_hand(object),
            "{name}: the rule finds {found} values"
        );
        let evaluate = |object: &Value| {
            if slow::injected() {
                black_box(FeedbackPlan::compile(rules));
            }
            drop(black_box(plan.evaluate(black_box(object), limits)));
        };
        let (mut hands, mut decoded) = (Vec::new(), Vec::new());
        let (mut decoding, mut from_bytes) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            hands.push(cpu_each(EVALUATIONS, || {
                black_box(by_hand(black_box(object)));
            }));
            decoded.push(cpu_each(EVALUATIONS, || evaluate(object)));
            decoding.push(cpu_each(EVALUATIONS, || drop(black_box(decode()))));
            from_bytes.push(cpu_each(EVALUATIONS, || {
                if let Ok(object) = decode() {
                    evaluate(&object);
                }
            }));
        }
        let params = json!({"values": found, "evaluations": EVALUATIONS,
            "object_bytes": bytes.len()});
        let nanos = |rounds: &[f64]| median(rounds) * NS_PER_US;
        let figure = |what: &str, rounds: &[f64]| {
            Figure::new("P7", format!("CPU of {name}, {what}"), nanos(rounds), "ns")
                .params(params.clone())
        };
        report.add(
            figure("decoded", &decoded)
                .below(
                    calibration.scaled(single.recorded) * NS_PER_US,
                    "OCM statusfeedback, recorded, scaled by calibration",
                )
                .params(calibration.params()),
        );
        report.add(figure("decoded, beside its floor", &decoded).in_rounds(
            nanos(&hands),
            single.by_hand_is,
            Ratio::of(&hands, &decoded),
        ));
        report.add(
            figure("from bytes, beside its floor", &from_bytes).in_rounds(
                nanos(&decoding),
                "serde_json decoding the object to a Value, same rounds",
                Ratio::of(&decoding, &from_bytes),
            ),
        );
    }
    Ok(())
}

fn well_known_by_hand(object: &Value) -> usize {
    let fields = [
        "/status/readyReplicas",
        "/status/replicas",
        "/status/availableReplicas",
    ];
    fields
        .iter()
        .filter_map(|field| object.pointer(field)?.as_i64())
        .count()
}

fn filter_by_hand(object: &Value) -> usize {
    let conditions = object
        .pointer("/status/conditions")
        .and_then(Value::as_array);
    conditions
        .into_iter()
        .flatten()
        .filter(|condition| condition["type"] == "Available")
        .filter_map(|condition| condition["status"].as_str())
        .count()
}
