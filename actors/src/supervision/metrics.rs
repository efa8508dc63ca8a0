//! The metrics of actors and streams, each named and described here once.

use std::sync::Once;

use metrics::{counter, describe_counter, describe_gauge, gauge};

const ACTORS: &str = "muster_actors";
const PANICS: &str = "muster_actor_panics_total";
const RESTARTS: &str = "muster_actor_restarts_total";
const REFUSED: &str = "muster_actor_mail_refused_total";
const STREAM_ERRORS: &str = "muster_watch_errors_total";
const NOT_READY: &str = "muster_streams_not_ready";

/// Describes the metrics to the recorder; later calls do nothing.
pub(super) fn describe() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        describe_gauge!(ACTORS, "Actors that are alive, by role.");
        describe_counter!(PANICS, "Panics of actors, by role.");
        describe_counter!(RESTARTS, "Restarts of actors after a panic, by role.");
        describe_counter!(
            REFUSED,
            "Messages that a mailbox did not take, by message and reason: it was full, or its actor \
             had ended."
        );
        describe_counter!(
            STREAM_ERRORS,
            "Failures of lists and watches, which are tried again."
        );
        describe_gauge!(
            NOT_READY,
            "Streams that are not alive, as /readyz lists them; 0 is ready."
        );
    });
}

pub(super) fn actor_began(role: &'static str) {
    gauge!(ACTORS, "role" => role).increment(1.0);
}

pub(super) fn actor_ended(role: &'static str) {
    gauge!(ACTORS, "role" => role).decrement(1.0);
}

pub(super) fn panicked(role: &'static str) {
    counter!(PANICS, "role" => role).increment(1);
}

pub(super) fn restarted(role: &'static str) {
    counter!(RESTARTS, "role" => role).increment(1);
}

pub(super) fn mail_refused(message: &'static str, reason: &'static str) {
    counter!(REFUSED, "message" => message, "reason" => reason).increment(1);
}

/// A list or watch has failed.
pub(crate) fn stream_failed() {
    counter!(STREAM_ERRORS).increment(1);
}

#[allow(clippy::cast_precision_loss, reason = "there are few")]
pub(super) fn not_ready(streams: usize) {
    gauge!(NOT_READY).set(streams as f64);
}
