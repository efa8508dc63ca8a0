//! What clients count.

use metrics::{counter, describe_counter, describe_gauge, gauge};

const RECEIVED: &str = "muster_events_received_total";
const SENT: &str = "muster_events_sent_total";
const RESYNCS: &str = "muster_event_resyncs_total";
const CONNECTED: &str = "muster_event_client_connected";
const WAITING: &str = "muster_event_client_waiting";

/// Gives the metrics their help texts.
pub fn describe() {
    describe_counter!(
        RECEIVED,
        "events that came, by side, type and result; all but taken, asked, part and presence were dropped"
    );
    describe_counter!(SENT, "events sent, by side, type and result");
    describe_counter!(RESYNCS, "requests for what may have been missed, by side");
    describe_gauge!(CONNECTED, "1 while a client is subscribed at its broker");
    describe_gauge!(
        WAITING,
        "resources that have changed and are not at the broker yet, by side"
    );
}

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
        counter!(RECEIVED, "side" => self.side, "client" => name, "event" => event, "result" => result)
            .increment(1);
    }

    pub(super) fn sent(&self, event: &'static str, result: &'static str) {
        let name = self.name.clone();
        counter!(SENT, "side" => self.side, "client" => name, "event" => event, "result" => result)
            .increment(1);
    }

    pub(super) fn resync(&self) {
        counter!(RESYNCS, "side" => self.side, "client" => self.name.clone()).increment(1);
    }

    pub(super) fn connected(&self, is: bool) {
        gauge!(CONNECTED, "side" => self.side, "client" => self.name.clone()).set(if is {
            1.0
        } else {
            0.0
        });
    }

    pub(super) fn waiting(&self, number: usize) {
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
        gauge!(WAITING, "side" => self.side, "client" => self.name.clone()).set(number as f64);
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
