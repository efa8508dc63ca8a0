//! The metrics of actors and streams, each declared here once.

use metrics::{counter, gauge};
use muster_metrics::{Label, Metric};

const ROLE: Label = Label::names("role", "the type of the actor, as in `/debug/actors`");

const ACTORS: Metric = Metric::gauge("muster_actors", "Actors that are alive.").labels(&[ROLE]);
const PANICS: Metric = Metric::counter(
    "muster_actor_panics_total",
    "Panics of actors. Each is caught, and is a defect.",
)
.labels(&[ROLE]);
const RESTARTS: Metric = Metric::counter(
    "muster_actor_restarts_total",
    "Restarts of actors after a panic.",
)
.labels(&[ROLE]);
const REFUSED: Metric = Metric::counter(
    "muster_actor_mail_refused_total",
    "Messages that a mailbox did not take. Their senders keep them.",
)
.labels(&[
    Label::names("message", "the type of the message"),
    Label::one_of(
        "reason",
        &[
            ("full", "it held as many as it may"),
            ("closed", "its actor had ended"),
        ],
    ),
]);
const STREAM_ERRORS: Metric = Metric::counter(
    "muster_watch_errors_total",
    "Failures of lists and watches, which are tried again.",
);
const NOT_READY: Metric = Metric::gauge(
    "muster_streams_not_ready",
    "Streams that are dead or have not begun, as `/readyz` lists them; 0 is ready.",
);
const STALLS: Metric = Metric::counter(
    "muster_thread_stalls_total",
    "Threads that were held for more than 5 seconds without a break. Each is a defect; the log \
     names the actor and the object.",
)
.labels(&[ROLE]);
const STALLED: Metric = Metric::gauge(
    "muster_threads_stalled",
    "Threads that are held for more than 5 seconds now, as `/readyz` lists them.",
);

/// What is recorded of actors and streams.
pub const METRICS: &[Metric] = &[
    ACTORS,
    PANICS,
    RESTARTS,
    REFUSED,
    STREAM_ERRORS,
    NOT_READY,
    STALLS,
    STALLED,
];

pub(super) fn actor_began(role: &'static str) {
    gauge!(ACTORS.name, "role" => role).increment(1.0);
}

pub(super) fn actor_ended(role: &'static str) {
    gauge!(ACTORS.name, "role" => role).decrement(1.0);
}

pub(super) fn panicked(role: &'static str) {
    counter!(PANICS.name, "role" => role).increment(1);
}

pub(super) fn restarted(role: &'static str) {
    counter!(RESTARTS.name, "role" => role).increment(1);
}

pub(super) fn mail_refused(message: &'static str, reason: &'static str) {
    counter!(REFUSED.name, "message" => message, "reason" => reason).increment(1);
}

/// A list or watch has failed.
pub(crate) fn stream_failed() {
    counter!(STREAM_ERRORS.name).increment(1);
}

pub(super) fn stalled(role: &'static str) {
    counter!(STALLS.name, "role" => role).increment(1);
}

#[allow(clippy::cast_precision_loss, reason = "there are few")]
pub(super) fn threads_stalled(threads: usize) {
    gauge!(STALLED.name).set(threads as f64);
}

#[allow(clippy::cast_precision_loss, reason = "there are few")]
pub(super) fn not_ready(streams: usize) {
    gauge!(NOT_READY.name).set(streams as f64);
}
