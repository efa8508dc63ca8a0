//! What clients count, each metric declared here once.

use metrics::{counter, gauge};
use muster_metrics::{Label, Metric};

const SIDE: Label = Label::one_of(
    "side",
    &[
        ("source", "who sends resources and hears their statuses"),
        ("agent", "who takes resources and sends their statuses"),
    ],
);
const CLIENT: Label = Label::names("client", "id of the source, or name of the agent's cluster");
const EVENT: Label = Label::one_of(
    "event",
    &[
        ("spec.create_request", "a resource, as it is first sent"),
        ("spec.update_request", "a resource that has changed"),
        ("spec.delete_request", "a resource that is on its way out"),
        (
            "spec.resync_request",
            "an agent asks for what it may have missed",
        ),
        ("spec.resync_response", "an answer to that"),
        ("status.update_request", "a status"),
        (
            "status.resync_request",
            "a source asks for statuses that it may have missed",
        ),
        ("status.resync_response", "an answer to that"),
        ("other", "any other type"),
    ],
);

const CONNECTED: Metric = Metric::gauge(
    "muster_event_client_connected",
    "1 while a client is subscribed at its broker, else 0.",
)
.labels(&[SIDE, CLIENT]);
const WAITING: Metric = Metric::gauge(
    "muster_event_client_waiting",
    "Resources that have changed and are not at the broker yet.",
)
.labels(&[SIDE, CLIENT]);
const SENT: Metric = Metric::counter("muster_events_sent_total", "Events that were to be sent.")
    .labels(&[
        SIDE,
        CLIENT,
        EVENT,
        Label::one_of(
            "result",
            &[
                ("sent", "the broker has it"),
                ("not_connected", "there was no connection; it is sent on the next"),
                ("lost", "the connection ended; it is sent on the next"),
                ("timeout", "the broker did not answer; it is sent on the next connection"),
                ("refused", "the broker does not want it; tried again, 1 to 60 s later"),
                (
                    "too_large",
                    "larger than the broker takes; not tried again until the resource changes",
                ),
                ("malformed", "it cannot be made a message"),
                (
                    "unsendable",
                    "it cannot be encoded, or there is no topic for it, as for a cluster with a dot in \
                     its name",
                ),
            ],
        ),
    ]);
const RECEIVED: Metric = Metric::counter("muster_events_received_total", "Events that came.")
    .labels(&[
        SIDE,
        CLIENT,
        EVENT,
        Label::one_of(
            "result",
            &[
                ("taken", "it is in the store"),
                ("asked", "a request for a resync; it was answered"),
                ("part", "part of a request; it is answered when the last has come"),
                ("presence", "the other side has come or gone"),
                ("failed", "it could not be kept, and is asked for again: the log says why"),
                (
                    "stale",
                    "an older version (agent), or a status that is older or of a spec that the source \
                     does not have (source)",
                ),
                (
                    "imposter",
                    "the sender is not who it says: the event's source or cluster is not that of its \
                     topic, or the resource belongs to another source or cluster. Two sources with \
                     one uid, or somebody who tries",
                ),
                ("elsewhere", "it is for another cluster or source"),
                (
                    "type",
                    "another data type, such as the other dialect, or presence at an agent; or what \
                     this side sends itself",
                ),
                (
                    "payload",
                    "the data cannot be read, or its manifests cannot be applied: none at all, no \
                     name, `generateName`, more than 512,000 bytes. Nothing goes back, as with OCM's \
                     agent",
                ),
                ("extension", "an extension is missing or malformed"),
                ("request", "the list of a request cannot be read"),
                ("no_event", "it is no CloudEvent"),
                ("deleting", "at an agent: a spec for a resource that is being deleted"),
                (
                    "unknown",
                    "at a source: a status of a resource that it does not have; the agent is told to \
                     drop the resource",
                ),
                (
                    "incomparable",
                    "at a source: its sequence id is none, or of another generator",
                ),
            ],
        ),
    ]);
const RESYNCS: Metric = Metric::counter(
    "muster_event_resyncs_total",
    "Requests for what may have been missed.",
)
.labels(&[SIDE, CLIENT]);

/// What clients record. Whoever has a recorder describes them to it.
pub const METRICS: &[Metric] = &[CONNECTED, WAITING, SENT, RECEIVED, RESYNCS];

/// The side of a client, and whose it is.
#[derive(Debug, Clone)]
pub(super) struct Meter {
    side: &'static str,
    name: String,
}

impl Meter {
    pub(super) fn new(side: &'static str, name: &str) -> Self {
        Self {
            side,
            name: name.to_owned(),
        }
    }

    pub(super) fn received(&self, event: &'static str, result: &'static str) {
        let name = self.name.clone();
        counter!(RECEIVED.name, "side" => self.side, "client" => name, "event" => event, "result" => result)
            .increment(1);
    }

    pub(super) fn sent(&self, event: &'static str, result: &'static str) {
        let name = self.name.clone();
        counter!(SENT.name, "side" => self.side, "client" => name, "event" => event, "result" => result)
            .increment(1);
    }

    pub(super) fn resync(&self) {
        counter!(RESYNCS.name, "side" => self.side, "client" => self.name.clone()).increment(1);
    }

    pub(super) fn connected(&self, is: bool) {
        gauge!(CONNECTED.name, "side" => self.side, "client" => self.name.clone()).set(if is {
            1.0
        } else {
            0.0
        });
    }

    pub(super) fn waiting(&self, number: usize) {
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
        gauge!(WAITING.name, "side" => self.side, "client" => self.name.clone()).set(number as f64);
    }
}

/// The half and action of an event of this type, from a fixed set: others can send anything.
pub(super) fn event_name(kind: &str) -> &'static str {
    const NAMES: [&str; 8] = [
        "spec.create_request",
        "spec.update_request",
        "spec.delete_request",
        "spec.resync_request",
        "spec.resync_response",
        "status.update_request",
        "status.resync_request",
        "status.resync_response",
    ];
    let mut names = NAMES.into_iter();
    names
        .find(|name| {
            let rest = kind.strip_suffix(name);
            rest.is_some_and(|rest| rest.ends_with('.'))
        })
        .unwrap_or("other")
}
