//! P4, P7: allocations per status event and per evaluation of feedback.
//!
//! A program of its own, since the counting allocator would be part of what others measure.

mod support;

use std::alloc::System;
use std::hint::black_box;

use muster_core::feedback::{FeedbackLimits, FeedbackPlan};
use serde_json::{Value, json};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

use support::figure::{Figure, Report};
use support::fixtures;
use support::replica_set::Subject;
use support::slow;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const TIMES: usize = 1_000;
const CLUSTERS: usize = 10_000;
/// The goal for feedback from bytes.
const MOST_FROM_BYTES: f64 = 6.0;

/// Allocations, reallocations included, that `work` takes for each of `TIMES`.
#[allow(clippy::cast_precision_loss, reason = "no bench counts to 2^52")]
fn each(mut work: impl FnMut()) -> f64 {
    let region = Region::new(ALLOCATOR);
    for _ in 0..TIMES {
        if slow::injected() {
            for size in 1..100 {
                black_box(vec![0_u8; size]);
            }
        }
        work();
    }
    let change = region.change();
    (change.allocations + change.reallocations) as f64 / TIMES as f64
}

fn main() {
    let mut report = Report::start();
    let mut subject = Subject::new(CLUSTERS);
    let mut events = subject.events(TIMES).into_iter();
    let event = each(|| {
        if let Some(event) = events.next() {
            subject.take(event);
        }
    });
    report.add(
        Figure::new(
            "P4",
            "allocations of one status event",
            event,
            "allocations",
        )
        .below(64e6, "OCM controller at 10,000 clusters, recorded")
        .params(json!({"clusters": CLUSTERS, "events": TIMES})),
    );

    let object = fixtures::deployment();
    let bytes = object.to_string().into_bytes();
    let plan = FeedbackPlan::compile(&fixtures::feedback_rules());
    let evaluate =
        |object: &Value| drop(black_box(plan.evaluate(object, FeedbackLimits::default())));
    let decoded = each(|| evaluate(&object));
    let from_bytes = each(|| {
        if let Ok(object) = serde_json::from_slice(&bytes) {
            evaluate(&object);
        }
    });
    let params = json!({"object_bytes": bytes.len(), "evaluations": TIMES});
    report.add(
        Figure::new(
            "P7",
            "allocations of feedback from an object's bytes",
            from_bytes,
            "allocations",
        )
        .below(399.0, "OCM statusfeedback, recorded")
        .met(from_bytes <= MOST_FROM_BYTES)
        .params(params.clone()),
    );
    report.add(
        Figure::new(
            "P7",
            "allocations of feedback from a decoded object",
            decoded,
            "allocations",
        )
        .below(245.0, "OCM statusfeedback, recorded")
        .params(params),
    );
}
