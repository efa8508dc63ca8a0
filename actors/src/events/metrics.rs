//! The metrics of Events.

use metrics::counter;
use muster_metrics::{Label, Metric};

const EVENTS: Metric = Metric::counter(
    "muster_kubernetes_events_total",
    "Kubernetes Events that were to be told.",
)
.labels(&[Label::one_of(
    "result",
    &[
        ("created", "the API has it"),
        ("repeated", "it was counted in one that the API has"),
        ("dropped", "too many at a time, or of one object"),
        (
            "error",
            "the API refused it or did not answer; it is not tried again",
        ),
    ],
)]);

/// What is recorded of Events.
pub const METRICS: &[Metric] = &[EVENTS];

pub(super) fn told(result: &'static str) {
    counter!(EVENTS.name, "result" => result).increment(1);
}
