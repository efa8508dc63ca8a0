//! The metrics of watches, each named and described here once.

use std::sync::Once;

use metrics::{counter, describe_counter, describe_gauge, gauge};

const OPEN: &str = "muster_watches_open";
const CAP: &str = "muster_watches_cap";
const WAITING: &str = "muster_watches_waiting";
const REFUSED: &str = "muster_watches_refused";
const EVENTS: &str = "muster_watch_events_total";
const OPENED: &str = "muster_watches_opened_total";
const RESTARTS: &str = "muster_watch_restarts_total";

/// Describes the metrics to the recorder; later calls do nothing.
pub(super) fn describe() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        describe_gauge!(
            OPEN,
            "Watch requests open at the API server of a cluster, for objects that works want \
             watched."
        );
        describe_gauge!(CAP, "Most of them that there may be (watch.max_watches).");
        describe_gauge!(
            WAITING,
            "Watches that would be opened if there were room. What they would show is polled."
        );
        describe_gauge!(
            REFUSED,
            "Watches that the API server refuses, by permission or because it does not have the \
             type. They are tried again."
        );
        describe_counter!(
            EVENTS,
            "Objects that watches have shown, in lists and events, by whether a work wanted them."
        );
        describe_counter!(OPENED, "Watches opened.");
        describe_counter!(
            RESTARTS,
            "Times that all watches of a cluster were replaced by new ones."
        );
    });
}

// Cardinality of the label `cluster`: the clusters in the config of this process.

#[allow(clippy::cast_precision_loss, reason = "no agent has 2^52 watches")]
pub(super) fn state(cluster: &str, open: usize, cap: usize, waiting: usize, refused: usize) {
    let set = |name, value: usize| gauge!(name, "cluster" => cluster.to_owned()).set(value as f64);
    set(OPEN, open);
    set(CAP, cap);
    set(WAITING, waiting);
    set(REFUSED, refused);
}

pub(super) fn event(wanted: bool) {
    counter!(EVENTS, "wanted" => if wanted { "true" } else { "false" }).increment(1);
}

pub(super) fn opened() {
    counter!(OPENED).increment(1);
}

pub(super) fn restarted() {
    counter!(RESTARTS).increment(1);
}
