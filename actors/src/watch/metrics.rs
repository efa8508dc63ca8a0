//! The metrics of watches, each declared here once.

use metrics::{counter, gauge};
use muster_metrics::{Label, Metric};

const OPEN: Metric = Metric::gauge(
    "muster_watches_open",
    "Watch requests open at the API server of a cluster, for feedback and for rules. One that fails \
     is not open until it works again.",
)
.labels(&[Label::CLUSTER]);
const CAP: Metric = Metric::gauge(
    "muster_watches_cap",
    "Most of them that there may be (watch.max_watches).",
)
.labels(&[Label::CLUSTER]);
const WAITING: Metric = Metric::gauge(
    "muster_watches_waiting",
    "Watches that would be opened if there were room. What they would show is polled.",
)
.labels(&[Label::CLUSTER]);
const REFUSED: Metric = Metric::gauge(
    "muster_watches_refused",
    "Watches that the API server refuses, by permission or because it does not have the type. They \
     are tried again; meanwhile their objects are polled.",
)
.labels(&[Label::CLUSTER]);
const EVENTS: Metric = Metric::counter(
    "muster_watch_events_total",
    "Objects that watches have shown, in lists and events.",
)
.labels(&[Label::one_of(
    "wanted",
    &[
        ("true", "somebody had asked for the object"),
        ("false", "the watch has shown it beside others"),
    ],
)]);
const OPENED: Metric = Metric::counter("muster_watches_opened_total", "Watches opened.");
const RESTARTS: Metric = Metric::counter(
    "muster_watch_restarts_total",
    "Times that all watches of a cluster were replaced by new ones.",
);

/// What is recorded of watches.
pub const METRICS: &[Metric] = &[OPEN, CAP, WAITING, REFUSED, EVENTS, OPENED, RESTARTS];

#[allow(clippy::cast_precision_loss, reason = "no agent has 2^52 watches")]
pub(super) fn state(cluster: &str, open: usize, cap: usize, waiting: usize, refused: usize) {
    let set = |metric: Metric, value: usize| {
        gauge!(metric.name, "cluster" => cluster.to_owned()).set(value as f64);
    };
    set(OPEN, open);
    set(CAP, cap);
    set(WAITING, waiting);
    set(REFUSED, refused);
}

pub(super) fn event(wanted: bool) {
    counter!(EVENTS.name, "wanted" => if wanted { "true" } else { "false" }).increment(1);
}

pub(super) fn opened() {
    counter!(OPENED.name).increment(1);
}

pub(super) fn restarted() {
    counter!(RESTARTS.name).increment(1);
}
