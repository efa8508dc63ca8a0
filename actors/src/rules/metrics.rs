//! What operators see of rules, each metric named and described here once.

use std::sync::{Arc, Once};
use std::time::Duration;

use jiff::Timestamp;
use metrics::{
    Label, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};
use muster_core::rule_events::{Operation, Pending};

use super::outlet::Outlet;

const EVENTS: &str = "muster_rule_events_total";
const DEPTH: &str = "muster_rule_queue_depth";
const AGE: &str = "muster_rule_queue_age_seconds";
const DELIVERIES: &str = "muster_rule_deliveries_total";
const LATENCY: &str = "muster_rule_delivery_latency_seconds";
const SIGNALS: &str = "muster_rule_signals_total";
const SIGNAL_DEPTH: &str = "muster_rule_signal_depth";
const GVRS: &str = "muster_watch_manager_gvrs_active";
const UPDATES: &str = "muster_watch_manager_updates_total";
const UPDATE_DURATION: &str = "muster_watch_manager_update_duration_seconds";
const UNRESOLVED: &str = "muster_watch_manager_unresolved";

/// Describes the metrics to the recorder; later calls do nothing.
pub(super) fn describe() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        describe_counter!(
            EVENTS,
            "States of objects that rules want, by cluster, sink, operation and what came of it: queued for \
             the sink, known to it already, filtered by the operations of the rules, or missed for \
             want of room and looked for again."
        );
        describe_gauge!(DEPTH, "Events that wait for a sink.");
        describe_gauge!(
            AGE,
            Unit::Seconds,
            "Age of the oldest event that waits for a sink; 0 if none does."
        );
        describe_counter!(DELIVERIES, "Batches given to a sink, by result.");
        describe_histogram!(
            LATENCY,
            Unit::Seconds,
            "Time from a state of an object being seen to the sink having it."
        );
        describe_counter!(
            SIGNALS,
            "Changes of rules, by whether the signal was sent or one was under way already."
        );
        describe_gauge!(
            SIGNAL_DEPTH,
            "Signals of changed rules that wait; at most 1."
        );
        describe_gauge!(GVRS, "Types that are watched for rules.");
        describe_counter!(
            UPDATES,
            "Plans of watches for rules, by result and by what asked for them."
        );
        describe_histogram!(
            UPDATE_DURATION,
            Unit::Seconds,
            "Time from a plan being made to all its watches having listed."
        );
        describe_gauge!(
            UNRESOLVED,
            "Resources that rules name and nothing watches, by reason."
        );
    });
}

/// Whose figures: a process may have agents of several clusters, each with all sinks.
fn labels(outlet: &Outlet) -> Vec<Label> {
    vec![
        Label::new("cluster", Arc::clone(outlet.cluster())),
        Label::new("sink", Arc::clone(outlet.sink())),
    ]
}

fn labels_and<const N: usize>(
    outlet: &Outlet,
    more: [(&'static str, &'static str); N],
) -> Vec<Label> {
    let more = more.map(|(name, value)| Label::from_static_parts(name, value));
    let mut labels = labels(outlet);
    labels.extend(more);
    labels
}

pub(super) fn event(outlet: &Outlet, operation: Option<Operation>, result: &'static str) {
    let operation = operation.map_or("", Operation::as_str);
    let more = [("operation", operation), ("result", result)];
    counter!(EVENTS, labels_and(outlet, more)).increment(1);
}

#[allow(clippy::cast_precision_loss, reason = "queues are short")]
pub(super) fn queue(outlet: &Outlet, pending: &Pending) {
    gauge!(DEPTH, labels(outlet)).set(pending.len() as f64);
    let age = pending.oldest().map(age).unwrap_or_default();
    gauge!(AGE, labels(outlet)).set(age.as_secs_f64());
}

fn age(seen: Timestamp) -> Duration {
    Duration::try_from(Timestamp::now().duration_since(seen)).unwrap_or_default()
}

pub(super) fn delivery(outlet: &Outlet, oldest: Option<Timestamp>, delivered: bool) {
    let result = if delivered { "ok" } else { "error" };
    counter!(DELIVERIES, labels_and(outlet, [("result", result)])).increment(1);
    if let Some(seen) = oldest.filter(|_| delivered) {
        histogram!(LATENCY, labels(outlet)).record(age(seen));
    }
}

pub(super) fn signal(sent: bool, depth: usize) {
    let result = if sent { "sent" } else { "coalesced" };
    counter!(SIGNALS, "result" => result).increment(1);
    signal_depth(depth);
}

#[allow(clippy::cast_precision_loss, reason = "0 or 1")]
pub(super) fn signal_depth(depth: usize) {
    gauge!(SIGNAL_DEPTH).set(depth as f64);
}

/// Types that are watched for rules, and resources that nothing watches, by reason.
#[allow(clippy::cast_precision_loss, reason = "there are few")]
pub(super) fn plan(cluster: &str, types: usize, unresolved: &[(&'static str, usize)]) {
    gauge!(GVRS, "cluster" => cluster.to_owned()).set(types as f64);
    for (reason, number) in unresolved {
        gauge!(UNRESOLVED, "cluster" => cluster.to_owned(), "reason" => *reason)
            .set(*number as f64);
    }
}

pub(super) fn update(result: &'static str, trigger: &'static str) {
    counter!(UPDATES, "result" => result, "trigger" => trigger).increment(1);
}

pub(super) fn update_took(duration: Duration) {
    histogram!(UPDATE_DURATION).record(duration);
}
