//! The broker's metrics, each named and described here once.
//!
//! There is none of messages that the broker drops: mqtt5 drops the oldest message of a full
//! queue, and one of QoS 0 for a slow client, without telling. `muster_broker_full_queues` shows
//! where that is about to happen.

use std::sync::Once;

use metrics::{counter, describe_counter, describe_gauge, gauge};

const CONNECTIONS: &str = "muster_broker_connections";
const REFUSED: &str = "muster_broker_refused_total";
const MESSAGES: &str = "muster_broker_messages_total";
const FULL_QUEUES: &str = "muster_broker_full_queues";

/// Describes the metrics to the recorder; later calls do nothing.
pub(crate) fn describe() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        describe_gauge!(
            CONNECTIONS,
            "Clients connected to the embedded MQTT broker."
        );
        describe_counter!(
            REFUSED,
            "Connections, subscriptions and messages that the embedded MQTT broker refused, by \
             reason."
        );
        describe_counter!(
            MESSAGES,
            "Messages that the embedded MQTT broker received (in; refused ones too) and sent (out)."
        );
        describe_gauge!(
            FULL_QUEUES,
            "Clients for which as many messages wait as may (max_queued_messages): each further \
             one displaces the oldest."
        );
    });
}

/// Why something was refused: the label `reason`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    Sessions,
    Connections,
    Publish,
    Subscribe,
}

impl Reason {
    fn label(self) -> &'static str {
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
            Self::Connections => "connections",
            Self::Publish => "publish",
            Self::Subscribe => "subscribe",
        }
    }
}

pub(crate) fn refused(reason: Reason) {
    counter!(REFUSED, "reason" => reason.label()).increment(1);
}

pub(crate) fn connected() {
    gauge!(CONNECTIONS).increment(1.0);
}

pub(crate) fn disconnected() {
    gauge!(CONNECTIONS).decrement(1.0);
}

pub(crate) fn messages(received: u64, sent: u64) {
    counter!(MESSAGES, "direction" => "in").increment(received);
    counter!(MESSAGES, "direction" => "out").increment(sent);
}

#[allow(clippy::cast_precision_loss, reason = "no broker has 2^52 clients")]
pub(crate) fn full_queues(count: usize) {
    gauge!(FULL_QUEUES).set(count as f64);
}
