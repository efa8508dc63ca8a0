//! Accepts connections, gives each to mqtt5 with a gate of its own, and cleans up after them.

use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt;
use mqtt5::MqttError;
use mqtt5::broker::client_handler::ClientHandler;
use mqtt5::broker::config::BrokerConfig;
use mqtt5::broker::resource_monitor::ResourceMonitor;
use mqtt5::broker::router::MessageRouter;
use mqtt5::broker::storage::{DynamicStorage, StorageBackend};
use mqtt5::broker::sys_topics::BrokerStats;
use mqtt5::broker::transport::BrokerTransport;
use mqtt5::protocol::v5::reason_codes::ReasonCode;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, error, warn};

use crate::gate::{Gate, Rules};
use crate::metrics::{self, Reason};
use crate::peers::{Peers, Seat};
use crate::stream::{Duplex, Inspected, Refusal, Wire, end};
use crate::tls::common_name;

/// How long a client may take until it has logged in, with the TLS handshake.
const LOGIN: Duration = Duration::from_secs(10);
/// How long the clients have to take their DISCONNECT when the broker stops.
const FAREWELL: Duration = Duration::from_secs(2);
/// How long to wait when there is no file descriptor for a connection.
const BREATH: Duration = Duration::from_millis(100);
/// How often to drop what has expired, and to count.
const HOUSEKEEPING: Duration = Duration::from_secs(5);

/// The parts of mqtt5's broker that all connections share.
pub(crate) struct House {
    pub(crate) rules: Arc<Rules>,
    pub(crate) tls: Option<TlsAcceptor>,
    pub(crate) config: Arc<BrokerConfig>,
    pub(crate) router: Arc<MessageRouter>,
    pub(crate) storage: Arc<DynamicStorage>,
    pub(crate) stats: Arc<BrokerStats>,
    pub(crate) monitor: Arc<ResourceMonitor>,
    pub(crate) counted: Counted,
    /// The share of one user of sessions, and of retained topics.
    pub(crate) shares: [usize; 2],
}

/// The messages that the metrics know already.
#[derive(Default)]
pub(crate) struct Counted {
    received: AtomicU64,
    sent: AtomicU64,
}

/// Serves clients until told to stop.
pub(crate) async fn serve(
    house: Arc<House>,
    listener: TcpListener,
    peers: Peers,
    mut stop: broadcast::Receiver<()>,
) {
    let mut clients = JoinSet::new();
    let mut housekeeping = interval(HOUSEKEEPING);
    housekeeping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, from)) => match peers.arrive(from.ip()) {
                    Ok(seat) => {
                        let stop = stop.resubscribe();
                        clients.spawn(welcome(Arc::clone(&house), stream, from, stop, seat));
                    }
                    Err(reason) => {
                        let refusals = &house.rules.refusals;
                        refusals.note(reason, from.ip(), "", "no place for one more connection");
                    }
                },
                Err(error) => {
                    warn!(%error, "failed to accept an MQTT connection");
                    sleep(BREATH).await;
                }
            },
            Some(_) = clients.join_next() => {}
            _ = housekeeping.tick() => house.keep().await,
            _ = stop.recv() => break,
        }
    }
    drop(listener);
    let goodbyes = async { while clients.join_next().await.is_some() {} };
    if timeout(FAREWELL, goodbyes).await.is_err() {
        clients.shutdown().await;
    }
    house.count_messages();
}

/// Serves a client, unless it does not log in in time, or others need its place until then.
async fn welcome(
    house: Arc<House>,
    stream: TcpStream,
    from: SocketAddr,
    stop: broadcast::Receiver<()>,
    seat: Seat,
) {
    let until = Instant::now() + LOGIN;
    let seat = Arc::new(seat);
    if let Err(error) = stream.set_nodelay(true) {
        debug!(%from, %error, "failed to turn Nagle's algorithm off");
    }
    let shaking = handshake(&house, stream, from);
    let (stream, common_name) = tokio::select! {
        biased;
        () = seat.closed() => return,
        () = sleep_until(until) => {
            house.refuse(Reason::Tls, from, "no TLS handshake in time");
            return;
        }
        shaken = shaking => match shaken {
            Some(shaken) => shaken,
            None => return,
        },
    };
    let wire = Arc::new(Wire::default());
    let (inspected, comes_back) = Inspected::new(stream, from, Arc::clone(&wire));
    let gate = Gate::new(
        Arc::clone(&house.rules),
        common_name,
        Arc::clone(&seat),
        Arc::clone(&wire),
    );
    let gate = Arc::new(gate);
    let handler = ClientHandler::new(
        BrokerTransport::WebSocket(Box::new(inspected)),
        from,
        Arc::clone(&house.config),
        Arc::clone(&house.router),
        Arc::clone(&gate) as _,
        Some(Arc::clone(&house.storage)),
        Arc::clone(&house.stats),
        Arc::clone(&house.monitor),
        stop,
    );
    // A defect of mqtt5 may cost one connection, not the client's id.
    let running = AssertUnwindSafe(Box::pin(handler.run())).catch_unwind();
    let no_login = async {
        tokio::select! {
            () = seat.closed() => {}
            () = sleep_until(until) => {}
        }
        if seat.is_kept() {
            std::future::pending::<()>().await;
        }
    };
    let ended = tokio::select! {
        biased;
        ended = running => ended,
        () = no_login => {
            house.refuse(Reason::Timeout, from, "no login in time");
            return;
        }
    };
    gate.leave().await;
    house.count_messages();
    let why = match ended {
        Ok(Ok(())) => None,
        // Whatever comes after DISCONNECT is nobody's business.
        Ok(Err(error)) if error.is_normal_disconnect() => None,
        Ok(Err(error)) => {
            let offence = wire
                .offence()
                .map(|offence| (Reason::Protocol, offence.reason()));
            let offence = offence.or_else(|| offence_in(&error));
            debug!(%from, %error, "connection ended");
            // mqtt5 counts the time, too.
            if matches!(error, MqttError::Timeout) && !seat.is_kept() {
                house.refuse(Reason::Timeout, from, "no login in time");
            }
            offence.map(|(reason, code)| {
                if let Some(reason) = reason_to_count(reason, &error) {
                    house.refuse(reason, from, &error.to_string());
                }
                let text = String::new();
                Refusal { code, text }
            })
        }
        Err(_) => {
            error!(%from, "the MQTT broker panicked, the connection is closed");
            let (code, text) = (ReasonCode::UnspecifiedError, String::new());
            Some(Refusal { code, text })
        }
    };
    if let Ok(stream) = comes_back.await {
        end(stream, &wire, why).await;
    }
    drop(seat);
}

/// The client's stream, and the name in its certificate; nothing if it does not get that far.
async fn handshake(
    house: &House,
    stream: TcpStream,
    from: SocketAddr,
) -> Option<(Box<dyn Duplex>, Option<String>)> {
    let Some(acceptor) = &house.tls else {
        return Some((Box::new(stream), None));
    };
    match acceptor.accept(stream).await {
        Ok(stream) => {
            let chain = stream.get_ref().1.peer_certificates();
            let name = chain.and_then(<[_]>::first).and_then(common_name);
            Some((Box::new(stream), name))
        }
        Err(error) => {
            house.refuse(Reason::Tls, from, &error.to_string());
            None
        }
    }
}

/// What a client has done for which its connection was closed, and what it gets to know.
fn offence_in(error: &MqttError) -> Option<(Reason, ReasonCode)> {
    Some(match error {
        MqttError::PacketTooLarge { .. } => (Reason::PacketSize, ReasonCode::PacketTooLarge),
        MqttError::ProtocolError(_) => (Reason::Protocol, ReasonCode::ProtocolError),
        MqttError::MalformedPacket(_)
        | MqttError::InvalidPacketType(_)
        | MqttError::InvalidPropertyId(_)
        | MqttError::DuplicatePropertyId(_)
        | MqttError::InvalidQoS(_)
        | MqttError::InvalidReasonCode(_) => (Reason::Protocol, ReasonCode::MalformedPacket),
        MqttError::InvalidTopicName(_) => (Reason::Protocol, ReasonCode::TopicNameInvalid),
        MqttError::InvalidTopicFilter(_) => (Reason::Protocol, ReasonCode::TopicFilterInvalid),
        MqttError::InvalidClientId(_) => (Reason::ClientId, ReasonCode::ClientIdentifierNotValid),
        MqttError::KeepAliveTimeout => (Reason::Timeout, ReasonCode::KeepAliveTimeout),
        _ => return None,
    })
}

/// Under what an end is counted. Who is away for long has done nothing.
const fn reason_to_count(reason: Reason, error: &MqttError) -> Option<Reason> {
    match error {
        MqttError::KeepAliveTimeout => None,
        _ => Some(reason),
    }
}

impl House {
    async fn keep(&self) {
        if let Err(error) = self.storage.cleanup_expired().await {
            warn!(%error, "failed to drop what has expired in the MQTT broker");
        }
        self.router.sweep_sessions().await;
        let (sessions, retained) = (&self.rules.sessions, &self.rules.retained);
        sessions.prune().await;
        retained.prune(&self.router).await;
        let [of_sessions, of_retained] = self.shares;
        metrics::largest_share("sessions", sessions.most().await, of_sessions);
        metrics::largest_share("retained", retained.most(), of_retained);
        self.rules.refusals.sum_up();
        let most = self.config.storage_config.max_queued_messages_per_client;
        metrics::full_queues(sessions.with_queue_of(most).await);
        self.count_messages();
    }

    fn refuse(&self, reason: Reason, from: SocketAddr, why: &str) {
        self.rules.refusals.note(reason, from.ip(), "", why);
    }

    fn count_messages(&self) {
        let since = |counted: &AtomicU64, now: &AtomicU64| {
            let now = now.load(Ordering::Relaxed);
            now.saturating_sub(counted.fetch_max(now, Ordering::Relaxed))
        };
        metrics::messages(
            since(&self.counted.received, &self.stats.publish_received),
            since(&self.counted.sent, &self.stats.publish_sent),
        );
    }
}
