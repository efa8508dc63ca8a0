//! How much a client, and all of them together, may take.

use std::time::Duration;

use mqtt5::broker::StorageConfig;
use mqtt5::broker::config::BrokerConfig;

use crate::peers::Places;

/// How many files this process may have open, where the system says so.
pub(crate) fn open_files() -> Option<usize> {
    files_in(&std::fs::read_to_string("/proc/self/limits").ok()?)
}

fn files_in(limits: &str) -> Option<usize> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The limits of a broker.
///
/// The most memory that one client can hold is about
/// `4 × receive_maximum × max_packet_size + max_queued_bytes`: what it has sent with QoS 2 and not
/// released, what it has received and not acknowledged, and two lanes of the same length of what
/// waits to be sent. With the defaults that is 4 × 32 × 1 MiB + 16 MiB = 144 MiB, for a client that
/// does its worst with the largest packets. With works of 10 KiB it is 17 MiB, and an idle client
/// holds some 50 KiB, so 5,000 of them 250 MiB.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The largest packet in bytes. The default is 1 MiB: works of up to 512,000 bytes, twice that
    /// in the worst case as JSON in JSON, which is etcd's limit for an object, too.
    pub max_packet_size: u32,
    /// Clients that are connected. The default is 5,000: an agent for each of 2,000 clusters, twice
    /// while a restart leaves the old connections open, and some sources.
    pub max_connections: usize,
    /// Connections of one address, or of one network of IPv6. The default is half of all: a fleet
    /// behind one address is served, and no address takes all.
    pub max_connections_of_peer: usize,
    /// Connections that have not logged in yet; where there are more, the oldest of the address with
    /// the most is closed. The default is 512: a login takes some milliseconds.
    pub max_half_open: usize,
    /// Sessions, those of clients that are away included. The default is twice as many.
    pub max_sessions: usize,
    /// Those of one user that is not an operator. The default is 8: an agent has one, and a source
    /// one for each of its processes. With [`max_queued_bytes`](Self::max_queued_bytes) it is also
    /// what may wait for one user: 128 MiB.
    pub max_sessions_of_user: usize,
    /// How long a session is kept for a client that is away; it may ask for less. The default is an
    /// hour: after that, a resync is cheaper than what has queued up.
    pub session_expiry: Duration,
    /// Messages that wait for a client that is away or slow; then the oldest goes. The default is
    /// 10,000: the works of a large cluster, each changed a few times.
    pub max_queued_messages: usize,
    /// Their bytes. The default is 16 MiB: 1,600 works of 10 KiB.
    pub max_queued_bytes: usize,
    /// Messages of QoS 1 and 2 on their way without an acknowledgement, in either direction. The
    /// default is 32: at 20 ms a round trip that is 1,600 messages a second for one client.
    pub receive_maximum: u16,
    /// Filters that a client may subscribe to. The default is 64; an agent has two.
    pub max_subscriptions: usize,
    /// Retained messages of all clients. The default is 10,000: the presence of each agent, and
    /// more than there may be connections.
    pub max_retained_messages: usize,
    /// Topics on which one user that is not an operator may have a message retained, beside its
    /// wills. The default is 16; presence takes one.
    pub max_retained_of_user: usize,
    /// The payload of a retained message in bytes. The default is 4 KiB: presence is a short event,
    /// and 10,000 of them are 40 MiB.
    pub max_retained_size: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_packet_size: 1024 * 1024,
            max_connections: 5_000,
            max_connections_of_peer: 2_500,
            max_half_open: 512,
            max_sessions: 10_000,
            max_sessions_of_user: 8,
            session_expiry: Duration::from_secs(60 * 60),
            max_queued_messages: 10_000,
            max_queued_bytes: 16 * 1024 * 1024,
            receive_maximum: 32,
            max_subscriptions: 64,
            max_retained_messages: 10_000,
            max_retained_of_user: 16,
            max_retained_size: 4 * 1024,
        }
    }
}

/// Topics that a client may give a number to, to send the number only. Each client's are kept.
const TOPIC_ALIASES: u16 = 16;

impl Limits {
    /// The first limit that would let nothing through.
    pub(crate) fn zero(&self) -> Option<&'static str> {
        // mqtt5 reads no limit at all from some of these.
        [
            ("max_packet_size", self.max_packet_size == 0),
            ("max_connections", self.max_connections == 0),
            ("max_connections_of_peer", self.max_connections_of_peer == 0),
            ("max_half_open", self.max_half_open == 0),
            ("max_sessions", self.max_sessions == 0),
            ("max_sessions_of_user", self.max_sessions_of_user == 0),
            ("max_queued_messages", self.max_queued_messages == 0),
            ("max_queued_bytes", self.max_queued_bytes == 0),
            ("receive_maximum", self.receive_maximum == 0),
            ("max_subscriptions", self.max_subscriptions == 0),
            ("max_retained_messages", self.max_retained_messages == 0),
            ("max_retained_of_user", self.max_retained_of_user == 0),
            ("max_retained_size", self.max_retained_size == 0),
        ]
        .into_iter()
        .find_map(|(name, zero)| zero.then_some(name))
    }

    /// The limits of connections, where the process may have so many files open. A part of those is
    /// left for everything else that it does.
    pub(crate) fn places(&self, files: Option<usize>) -> Places {
        let most = files.map_or(usize::MAX, |files| (files / 4 * 3).max(1));
        let total = self.max_connections.min(most);
        Places {
            total,
            of_peer: self.max_connections_of_peer.min(total),
            half_open: self.max_half_open.min((most / 2).max(1)),
        }
    }

    /// These limits in mqtt5's words. What it does at its own door is done at ours.
    pub(crate) fn config(&self) -> BrokerConfig {
        BrokerConfig {
            bind_addresses: Vec::new(),
            max_packet_size: usize::try_from(self.max_packet_size).unwrap_or(usize::MAX),
            session_expiry_interval: self.session_expiry,
            topic_alias_maximum: TOPIC_ALIASES,
            max_subscriptions_per_client: self.max_subscriptions,
            max_retained_messages: self.max_retained_messages,
            max_retained_message_size: self.max_retained_size,
            // A full lane holds its publisher up for a moment, once; then the queue is used.
            client_channel_capacity: usize::from(self.receive_maximum),
            max_outbound_inflight: self.receive_maximum,
            server_receive_maximum: Some(self.receive_maximum),
            sys_topics_enabled: false,
            storage_config: StorageConfig {
                max_queued_messages_per_client: self.max_queued_messages,
                max_queued_bytes_per_client: self.max_queued_bytes,
                ..StorageConfig::default()
            },
            ..BrokerConfig::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_zero_is_named() {
        assert_eq!(Limits::default().zero(), None);
        let zero = Limits {
            receive_maximum: 0,
            ..Limits::default()
        };
        assert_eq!(zero.zero(), Some("receive_maximum"));
    }

    #[test]
    fn the_largest_work_fits_into_a_packet() {
        let limits = Limits::default();
        assert!(limits.max_packet_size >= 2 * 512_000);
        assert!(limits.max_queued_bytes >= limits.max_packet_size as usize);
    }

    #[test]
    fn files_are_left_for_the_rest_of_the_process() {
        let places = |files| Limits::default().places(files);
        assert_eq!(places(None).total, 5_000);
        assert_eq!(places(Some(1_048_576)), places(None));
        let few = Places {
            total: 150,
            of_peer: 150,
            half_open: 75,
        };
        assert_eq!(places(Some(200)), few);
        let text = "Limit   Soft Limit  Hard Limit  Units\nMax open files            1024                 4096                 files\n";
        assert_eq!(files_in(text), Some(1024));
        let none = "Max open files            unlimited            unlimited            files\n";
        assert_eq!((files_in(none), files_in("")), (None, None));
    }
}
