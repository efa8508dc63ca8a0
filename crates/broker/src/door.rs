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
use mqtt5::broker::tls_acceptor::TlsStreamWrapper;
use mqtt5::broker::transport::BrokerTransport;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, error, warn};

use crate::gate::{Gate, Rules};
use crate::metrics::{self, Reason};
use crate::tls::common_name;

/// How long a client may take for the TLS handshake. mqtt5 waits as long for CONNECT.
const HANDSHAKE: Duration = Duration::from_secs(10);
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
    places: usize,
    mut stop: broadcast::Receiver<()>,
) {
    let places = Arc::new(Semaphore::new(places.min(Semaphore::MAX_PERMITS)));
    let mut clients = JoinSet::new();
    let mut housekeeping = interval(HOUSEKEEPING);
    housekeeping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, from)) => {
                    if let Ok(place) = Arc::clone(&places).try_acquire_owned() {
                        let stop = stop.resubscribe();
                        clients.spawn(welcome(Arc::clone(&house), stream, from, stop, place));
                    } else {
                        metrics::refused(Reason::Connections);
                        debug!(%from, "no place for one more connection");
                    }
                }
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

async fn welcome(
    house: Arc<House>,
    stream: TcpStream,
    from: SocketAddr,
    stop: broadcast::Receiver<()>,
    _place: OwnedSemaphorePermit,
) {
    if let Err(error) = stream.set_nodelay(true) {
        debug!(%from, %error, "failed to turn Nagle's algorithm off");
    }
    let (transport, common_name) = match &house.tls {
        None => (BrokerTransport::tcp(stream), None),
        Some(acceptor) => match timeout(HANDSHAKE, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => {
                let chain = stream.get_ref().1.peer_certificates();
                let name = chain.and_then(<[_]>::first).and_then(common_name);
                (BrokerTransport::tls(TlsStreamWrapper::new(stream)), name)
            }
            failed => {
                metrics::refused(Reason::Tls);
                debug!(%from, ?failed, "TLS handshake failed");
                return;
            }
        },
    };
    let gate = Arc::new(Gate::new(Arc::clone(&house.rules), common_name));
    let handler = ClientHandler::new(
        transport,
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
    let ended = AssertUnwindSafe(Box::pin(handler.run()));
    let ended = ended.catch_unwind().await;
    gate.leave().await;
    house.count_messages();
    match ended {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            if let Some(reason) = offence(&error) {
                metrics::refused(reason);
            }
            debug!(%from, %error, "connection ended");
        }
        Err(_) => error!(%from, "the MQTT broker panicked, the connection is closed"),
    }
}

/// What a client has done for which its connection was closed. What the gate refused is counted
/// there.
fn offence(error: &MqttError) -> Option<Reason> {
    match error {
        MqttError::PacketTooLarge { .. } => Some(Reason::PacketSize),
        MqttError::ProtocolError(_)
        | MqttError::MalformedPacket(_)
        | MqttError::InvalidPacketType(_)
        | MqttError::InvalidPropertyId(_)
        | MqttError::DuplicatePropertyId(_)
        | MqttError::InvalidTopicName(_)
        | MqttError::InvalidQoS(_)
        | MqttError::InvalidReasonCode(_) => Some(Reason::Protocol),
        MqttError::InvalidClientId(_) => Some(Reason::ClientId),
        _ => None,
    }
}

impl House {
    async fn keep(&self) {
        if let Err(error) = self.storage.cleanup_expired().await {
            warn!(%error, "failed to drop what has expired in the MQTT broker");
        }
        self.router.sweep_sessions().await;
        let sessions = &self.rules.sessions;
        sessions.prune().await;
        let most = self.config.storage_config.max_queued_messages_per_client;
        metrics::full_queues(sessions.with_queue_of(most).await);
        self.count_messages();
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
