//! The broker's metrics, each declared here once.
//!
//! There is none of messages that the broker drops: mqtt5 drops the oldest message of a full
//! queue, and one of QoS 0 for a slow client, without telling. `muster_broker_full_queues` shows
//! where that is about to happen.

use metrics::{counter, gauge};
use muster_metrics::{Label, Metric};

const CONNECTIONS: Metric = Metric::gauge(
    "muster_broker_connections",
    "Clients connected to the embedded MQTT broker.",
);
const REFUSED: Metric = Metric::counter(
    "muster_broker_refused_total",
    "Connections, subscriptions and messages that the embedded MQTT broker refused. Who was let in is \
     in its log (`client admitted`); who was not, with the level `debug`.",
)
.labels(&[Label::one_of(
    "reason",
    &[
        ("tls", "a handshake: failed, or not done within 10 s"),
        ("protocol", "a connection, ended for a malformed packet"),
        ("version", "MQTT 3"),
        ("packet_size", "a connection, ended for a packet that is too large"),
        ("credentials", "a login: wrong user or password"),
        ("certificate", "a login: a certificate that nobody knows"),
        ("anonymous", "a connection without a login"),
        ("will", "a connection whose last will goes to a foreign topic"),
        ("client_id", "a client id that is not this user's, or too long, or with a slash"),
        ("busy", "a login: too many wait to be verified"),
        ("sessions", "one more session than there may be, in all or of one user"),
        ("connections", "one more connection than there may be"),
        ("peer", "one more connection of one address than there may be"),
        ("half_open", "a connection without a login, closed for one that is new"),
        ("timeout", "a connection without a login for 10 s"),
        ("retained", "one more retained topic of one user than there may be"),
        ("publish", "a message to a foreign topic"),
        ("subscribe", "a subscription to foreign topics"),
    ],
)]);
const MESSAGES: Metric = Metric::counter(
    "muster_broker_messages_total",
    "Messages that the embedded MQTT broker has passed.",
)
.labels(&[Label::one_of(
    "direction",
    &[("in", "received, refused ones too"), ("out", "sent")],
)]);
const FULL_QUEUES: Metric = Metric::gauge(
    "muster_broker_full_queues",
    "Clients for which as many messages wait as may (broker.max_queued_messages): each further one \
     displaces the oldest.",
);

const LOGINS_WAITING: Metric = Metric::gauge(
    "muster_broker_logins_waiting",
    "Logins at the embedded MQTT broker whose passwords are not verified yet.",
);
const LARGEST_SHARE: Metric = Metric::gauge(
    "muster_broker_largest_share",
    "How much of its share the user has taken that has taken the most: 1 is all, and more is refused.",
)
.labels(&[Label::one_of(
    "of",
    &[
        ("sessions", "sessions"),
        ("retained", "retained topics"),
    ],
)]);

/// What is recorded of the broker.
pub const METRICS: &[Metric] = &[
    CONNECTIONS,
    REFUSED,
    MESSAGES,
    FULL_QUEUES,
    LOGINS_WAITING,
    LARGEST_SHARE,
];

/// Why something was refused: the label `reason`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Reason {
    Tls,
    Protocol,
    Version,
    PacketSize,
    Credentials,
    Certificate,
    Anonymous,
    Will,
    ClientId,
    Busy,
    Sessions,
    Connections,
    Peer,
    HalfOpen,
    Timeout,
    Retained,
    Publish,
    Subscribe,
}

impl Reason {
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Tls => "tls",
            Self::Protocol => "protocol",
            Self::Version => "version",
            Self::PacketSize => "packet_size",
            Self::Credentials => "credentials",
            Self::Certificate => "certificate",
            Self::Anonymous => "anonymous",
            Self::Will => "will",
            Self::ClientId => "client_id",
            Self::Sessions => "sessions",
            Self::Busy => "busy",
            Self::Connections => "connections",
            Self::Peer => "peer",
            Self::HalfOpen => "half_open",
            Self::Timeout => "timeout",
            Self::Retained => "retained",
            Self::Publish => "publish",
            Self::Subscribe => "subscribe",
        }
    }
}

pub(crate) fn refused(reason: Reason) {
    counter!(REFUSED.name, "reason" => reason.label()).increment(1);
}

pub(crate) fn connected() {
    gauge!(CONNECTIONS.name).increment(1.0);
}

pub(crate) fn disconnected() {
    gauge!(CONNECTIONS.name).decrement(1.0);
}

pub(crate) fn messages(received: u64, sent: u64) {
    counter!(MESSAGES.name, "direction" => "in").increment(received);
    counter!(MESSAGES.name, "direction" => "out").increment(sent);
}

#[allow(clippy::cast_precision_loss, reason = "no broker has 2^52 clients")]
pub(crate) fn full_queues(count: usize) {
    gauge!(FULL_QUEUES.name).set(count as f64);
}

#[allow(clippy::cast_precision_loss, reason = "the queue has an end")]
pub(crate) fn logins_waiting(count: usize) {
    gauge!(LOGINS_WAITING.name).set(count as f64);
}

#[allow(clippy::cast_precision_loss, reason = "a share is far from 2^52")]
pub(crate) fn largest_share(of: &'static str, taken: usize, share: usize) {
    gauge!(LARGEST_SHARE.name, "of" => of).set(taken as f64 / share.max(1) as f64);
}
