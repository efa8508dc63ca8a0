//! Metrics of connections, of all ports that speak HTTP.

use metrics::{counter, gauge};
use muster_apiserver::ConnectionCounts;
use muster_metrics::{Label, Metric};

const PORTS: Label = Label::one_of(
    "port",
    &[
        ("hub", "the embedded hub API"),
        ("telemetry", "metrics, probes and dashboard"),
        ("https", "metrics and probes over HTTPS"),
    ],
);
const OPEN: Metric =
    Metric::gauge("muster_http_connections", "Connections open, by port.").labels(&[PORTS]);
const ACCEPTED: Metric = Metric::counter(
    "muster_http_connections_accepted_total",
    "Connections accepted, by port.",
)
.labels(&[PORTS]);
const CLOSED: Metric = Metric::counter(
    "muster_http_connections_closed_total",
    "Connections that were closed because of a limit, by port and reason.",
)
.labels(&[
    PORTS,
    Label::one_of(
        "reason",
        &[
            ("full", "refused: all places have requests under way"),
            ("displaced", "one without a request, for a new one"),
            (
                "timeout",
                "handshake, head of a request or pause took too long",
            ),
        ],
    ),
]);
const UNAUTHORIZED: Metric = Metric::counter(
    "muster_http_unauthorized_total",
    "Requests without a valid token, by port.",
)
.labels(&[PORTS]);

/// What this module records.
pub const METRICS: &[Metric] = &[OPEN, ACCEPTED, CLOSED, UNAUTHORIZED];

/// Records what has happened to the connections of a port.
#[allow(clippy::cast_precision_loss, reason = "there are no 2^52 connections")]
pub fn record(port: &'static str, counts: &ConnectionCounts) {
    gauge!(OPEN.name, "port" => port).set(counts.open as f64);
    counter!(ACCEPTED.name, "port" => port).absolute(counts.accepted);
    for (reason, count) in [
        ("full", counts.refused),
        ("displaced", counts.displaced),
        ("timeout", counts.timed_out),
    ] {
        counter!(CLOSED.name, "port" => port, "reason" => reason).absolute(count);
    }
    counter!(UNAUTHORIZED.name, "port" => port).absolute(counts.unauthorized);
}
