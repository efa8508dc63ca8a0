//! P4, P7, P8: allocations per status event, per evaluation of feedback and per state of a watched
//! object, and the bytes that a watched object takes.
//!
//! A program of its own, since the counting allocator would be part of what others measure.

mod support;

use std::alloc::System;
use std::hint::black_box;
use std::sync::Arc;

use anyhow::{Result, ensure};
use muster_actors::agent::WatchedGroup;
use muster_actors::watch::{WatchedObject, Watches};
use muster_core::feedback::{FeedbackLimits, FeedbackPlan};
use serde_json::{Value, json};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

use support::figure::{Figure, Report};
use support::fixtures;
use support::replica_set::Subject;
use support::size::sized;
use support::slow;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const TIMES: usize = sized(1_000, 100);
const CLUSTERS: usize = sized(10_000, 500);
/// The goal for feedback from bytes.
const MOST_FROM_BYTES: f64 = 6.0;
/// Watched objects, in namespaces of so many.
const OBJECTS: usize = sized(10_000, 1_000);
const IN_NAMESPACE: usize = 200;
/// The goal for the bytes of one.
const MOST_OBJECT_BYTES: f64 = 400.0;

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

/// Bytes that `make` allocates and does not free, for each of `count`.
#[allow(clippy::cast_precision_loss, reason = "no bench counts to 2^52")]
fn kept<T>(count: usize, make: impl FnOnce() -> T) -> f64 {
    let region = Region::new(ALLOCATOR);
    let result = make();
    let change = region.change();
    drop(result);
    let kept = change
        .bytes_allocated
        .saturating_sub(change.bytes_deallocated);
    kept as f64 / count as f64
}

fn watched(report: &mut Report) -> Result<()> {
    let rules = fixtures::feedback_rules();
    let names: Vec<_> = (0..OBJECTS)
        .map(|number| format!("web-{number:04}"))
        .collect();
    let all = kept(OBJECTS, || {
        let watches = Watches::new();
        let groups: Vec<_> = names
            .chunks(IN_NAMESPACE)
            .enumerate()
            .map(|(namespace, names)| {
                let mut group = WatchedGroup::default();
                let namespace = format!("n{namespace}");
                for name in names {
                    let meta = fixtures::deployment_meta(name, &namespace);
                    group.watch(&watches, &meta, &rules);
                }
                group
            })
            .collect();
        let slowness = slow::injected().then(|| vec![1_u8; OBJECTS << 10]);
        (watches, groups, slowness)
    });
    let plan = kept(1, || FeedbackPlan::compile(&rules));
    report.add(
        Figure::new("P8", "bytes of a watched object in the agent", all, "B")
            .below(39_000.0, "OCM agent, informer and registration, recorded")
            .met(all <= MOST_OBJECT_BYTES)
            .params(
                json!({"objects": OBJECTS, "objects_in_namespace": IN_NAMESPACE,
                "bytes_of_compiled_rules": plan, "name_bytes": names[0].len()}),
            ),
    );

    let watches = Watches::new();
    let mut group = WatchedGroup::default();
    let meta = fixtures::deployment_meta("web", "default");
    group.watch(&watches, &meta, &rules);
    let mut object = fixtures::deployment();
    let mut version = 0;
    let mut state = || {
        version += 1;
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        object["status"]["collisionCount"] = json!(version);
        object.to_string()
    };
    let states: Vec<_> = (0..TIMES).map(|_| state()).collect();
    let show = |text: &String| {
        if let Ok(object) = serde_json::from_str::<WatchedObject>(text) {
            group.show(&meta, &Arc::new(object));
        }
    };
    show(&states[0]);
    let mut next = states.iter();
    let shown = each(|| next.next().into_iter().for_each(show));
    let mut next = states.iter();
    let decoded = each(|| {
        let value = next.next().map(|text| serde_json::from_str::<Value>(text));
        drop(black_box(value));
    });
    // Else states were not understood, or were news.
    let news = group.report();
    ensure!(news == 1, "{news} states let through instead of the first");
    report.add(
        Figure::new(
            "P8",
            "allocations of a state of which nobody reports anything new",
            shown,
            "allocations",
        )
        .below(decoded, "serde_json decoding it into a Value, same run")
        .params(json!({"object_bytes": states[0].len(), "states": TIMES})),
    );
    Ok(())
}

fn main() -> Result<()> {
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
    watched(&mut report)
}
