//! What operators see of rules, each metric declared here once.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use metrics::{Label as Pair, counter, gauge, histogram};
use muster_core::rule_events::{Operation, Pending};
use muster_metrics::{Label, Metric};

use super::outlet::Outlet;

const SINK: Label = Label::names("sink", "name of the sink in the settings");

const EVENTS: Metric = Metric::counter(
    "muster_rule_events_total",
    "States of objects that rules want, by what came of them.",
)
.labels(&[
    Label::CLUSTER,
    SINK,
    Label::one_of(
        "operation",
        &[
            ("CREATE", "the sink did not have the object"),
            ("UPDATE", "the object has changed"),
            ("DELETE", "the object is gone, or no rule wants it any more"),
            ("", "it was not decided"),
        ],
    ),
    Label::one_of(
        "result",
        &[
            ("queued", "an event waits for the sink"),
            ("known", "the sink has it already"),
            ("filtered", "no rule wants this operation"),
            (
                "missed",
                "there was no room; it is looked for again once there is",
            ),
        ],
    ),
]);
const DEPTH: Metric = Metric::gauge("muster_rule_queue_depth", "Events that wait for a sink.")
    .labels(&[Label::CLUSTER, SINK]);
const AGE: Metric = Metric::gauge(
    "muster_rule_queue_age_seconds",
    "Age of the oldest event that waits for a sink; 0 if none does.",
)
.in_seconds()
.labels(&[Label::CLUSTER, SINK]);
const DELIVERIES: Metric =
    Metric::counter("muster_rule_deliveries_total", "Batches given to a sink.").labels(&[
        Label::CLUSTER,
        SINK,
        Label::one_of(
            "result",
            &[
                ("ok", "the sink has it"),
                ("error", "it does not, and gets it again after a pause"),
            ],
        ),
    ]);
const LATENCY: Metric = Metric::durations(
    "muster_rule_delivery_latency_seconds",
    "Time from a state of an object being seen to the sink having it.",
)
.labels(&[Label::CLUSTER, SINK]);
const SIGNALS: Metric = Metric::counter("muster_rule_signals_total", "Changes of what rules mean.")
    .labels(&[Label::one_of(
        "result",
        &[
            ("sent", "a signal was sent"),
            ("coalesced", "one was under way already"),
        ],
    )]);
const SIGNAL_DEPTH: Metric = Metric::gauge(
    "muster_rule_signal_depth",
    "Signals of changed rules that wait; at most 1.",
);
const GVRS: Metric = Metric::gauge(
    "muster_watch_manager_gvrs_active",
    "Types of which a watch for rules is open. Those that wait for one, or whose watch fails, do not \
     count.",
)
.labels(&[Label::CLUSTER]);
const UPDATES: Metric = Metric::counter(
    "muster_watch_manager_updates_total",
    "Plans of watches for rules.",
)
.labels(&[
    Label::one_of(
        "result",
        &[
            (
                "applied",
                "watches have changed, and all that rules name is watched",
            ),
            (
                "partial",
                "watches have changed, and not all that rules name is watched",
            ),
            (
                "routed",
                "the watches are as before, and other events go to sinks",
            ),
            ("noop", "nothing had to change"),
            ("error", "the API server did not tell what it serves"),
        ],
    ),
    Label::one_of(
        "trigger",
        &[
            ("rule", "rules have changed"),
            ("discovery", "a type has come or gone"),
            ("periodic", "it was time for a look (watch.heartbeat)"),
        ],
    ),
]);
const UPDATE_DURATION: Metric = Metric::durations(
    "muster_watch_manager_update_duration_seconds",
    "Time from a plan being made to all its watches having listed.",
);
const UNRESOLVED: Metric = Metric::gauge(
    "muster_watch_manager_unresolved",
    "Resources that rules name and nothing watches.",
)
.labels(&[
    Label::CLUSTER,
    Label::one_of(
        "reason",
        &[
            ("TypeUnknown", "it is not served"),
            ("Ambiguous", "it could be one of several types"),
            ("Excluded", "the settings exclude it"),
            ("RefusedBySink", "the sink of the rule takes nothing of it"),
            ("NotWatchable", "it cannot be listed and watched"),
            (
                "WrongScope",
                "it has namespaces where the rule means objects without, or the other way round",
            ),
            (
                "DiscoveryFailed",
                "the API server did not tell whether it is served",
            ),
        ],
    ),
]);

/// What is recorded of rules.
pub const METRICS: &[Metric] = &[
    EVENTS,
    DEPTH,
    AGE,
    DELIVERIES,
    LATENCY,
    SIGNALS,
    SIGNAL_DEPTH,
    GVRS,
    UPDATES,
    UPDATE_DURATION,
    UNRESOLVED,
];

/// Whose figures: a process may have agents of several clusters, each with all sinks.
fn labels(outlet: &Outlet) -> Vec<Pair> {
    vec![
        Pair::new("cluster", Arc::clone(outlet.cluster())),
        Pair::new("sink", Arc::clone(outlet.sink())),
    ]
}

fn labels_and<const N: usize>(
    outlet: &Outlet,
    more: [(&'static str, &'static str); N],
) -> Vec<Pair> {
    let more = more.map(|(name, value)| Pair::from_static_parts(name, value));
    let mut labels = labels(outlet);
    labels.extend(more);
    labels
}

pub(super) fn event(outlet: &Outlet, operation: Option<Operation>, result: &'static str) {
    let operation = operation.map_or("", Operation::as_str);
    let more = [("operation", operation), ("result", result)];
    counter!(EVENTS.name, labels_and(outlet, more)).increment(1);
}

#[allow(clippy::cast_precision_loss, reason = "queues are short")]
pub(super) fn queue(outlet: &Outlet, pending: &Pending) {
    gauge!(DEPTH.name, labels(outlet)).set(pending.len() as f64);
    let age = pending.oldest().map(age).unwrap_or_default();
    gauge!(AGE.name, labels(outlet)).set(age.as_secs_f64());
}

fn age(seen: Timestamp) -> Duration {
    Duration::try_from(Timestamp::now().duration_since(seen)).unwrap_or_default()
}

pub(super) fn delivery(outlet: &Outlet, oldest: Option<Timestamp>, delivered: bool) {
    let result = if delivered { "ok" } else { "error" };
    counter!(DELIVERIES.name, labels_and(outlet, [("result", result)])).increment(1);
    if let Some(seen) = oldest.filter(|_| delivered) {
        histogram!(LATENCY.name, labels(outlet)).record(age(seen));
    }
}

pub(super) fn signal(sent: bool, depth: usize) {
    let result = if sent { "sent" } else { "coalesced" };
    counter!(SIGNALS.name, "result" => result).increment(1);
    signal_depth(depth);
}

#[allow(clippy::cast_precision_loss, reason = "0 or 1")]
pub(super) fn signal_depth(depth: usize) {
    gauge!(SIGNAL_DEPTH.name).set(depth as f64);
}

/// Types that are watched for rules, and resources that nothing watches, by reason.
#[allow(clippy::cast_precision_loss, reason = "there are few")]
pub(super) fn plan(cluster: &str, types: usize, unresolved: &[(&'static str, usize)]) {
    self::types(cluster, types);
    for (reason, number) in unresolved {
        gauge!(UNRESOLVED.name, "cluster" => cluster.to_owned(), "reason" => *reason)
            .set(*number as f64);
    }
}

/// Types of which a watch is open.
#[allow(clippy::cast_precision_loss, reason = "there are few")]
pub(super) fn types(cluster: &str, types: usize) {
    gauge!(GVRS.name, "cluster" => cluster.to_owned()).set(types as f64);
}

pub(super) fn update(result: &'static str, trigger: &'static str) {
    counter!(UPDATES.name, "result" => result, "trigger" => trigger).increment(1);
}

pub(super) fn update_took(duration: Duration) {
    histogram!(UPDATE_DURATION.name).record(duration);
}
