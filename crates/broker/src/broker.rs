//! Starts and stops a broker.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use mqtt5::broker::MemoryBackend;
use mqtt5::broker::resource_monitor::{ResourceLimits, ResourceMonitor};
use mqtt5::broker::router::MessageRouter;
use mqtt5::broker::storage::{DynamicStorage, QueueLimits};
use mqtt5::broker::sys_topics::BrokerStats;
use muster_cloudevents::access::{Access, Principal, Rights};
use tokio::net::TcpListener;
use tokio::sync::broadcast;
use tokio::task::JoinHandle;
use tracing::{error, info, warn};

use crate::door::{self, Counted, House};
use crate::gate::Rules;
use crate::identity::Identities;
use crate::limits::{Limits, open_files};
use crate::peers::Peers;
use crate::refusals::Refusals;
use crate::retained::Retained;
use crate::sessions::Sessions;
use crate::tls::{TlsError, TlsFiles};

/// What a broker is to be.
#[derive(Debug)]
pub struct BrokerSettings {
    /// Where it listens. Port 0 is any that is free.
    pub listen: SocketAddr,
    /// Its certificate; without one, it does not speak TLS.
    pub tls: Option<TlsFiles>,
    /// Whom it knows.
    pub identities: Identities,
    /// What they may do.
    pub access: Access,
    /// How much.
    pub limits: Limits,
}

/// A running broker. It stops when this is dropped.
#[derive(Debug)]
pub struct Broker {
    address: SocketAddr,
    stop: broadcast::Sender<()>,
    door: Option<JoinHandle<()>>,
}

/// A broker cannot start.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    /// A limit would let nothing through.
    #[error("the MQTT broker's limit {0} is zero")]
    Limit(&'static str),
    /// Its files are not as they should be.
    #[error("TLS of the MQTT broker: {0}")]
    Tls(#[from] TlsError),
    /// Nobody can show a certificate to it.
    #[error("the MQTT broker knows clients by certificate, but has no CA for them (client_ca)")]
    NoClientCa,
    /// A name cannot be part of a topic, or another is fixed in the topics.
    #[error("{who} of the MQTT broker may do nothing: no topic can be that of {principal:?}")]
    Rightless {
        /// The user or certificate.
        who: String,
        /// As what it is known.
        principal: Principal,
    },
    /// The address is taken, or none of this machine.
    #[error("the MQTT broker cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
}

impl BrokerSettings {
    /// Checks all that a start checks but the address, and reads the files.
    ///
    /// # Errors
    ///
    /// The settings cannot work.
    pub fn check(&self) -> Result<(), BrokerError> {
        self.tls.as_ref().map(TlsFiles::acceptor).transpose()?;
        if let Some(limit) = self.limits.zero() {
            return Err(BrokerError::Limit(limit));
        }
        let client_ca = self.tls.as_ref().and_then(|tls| tls.client_ca.as_ref());
        if self.identities.has_certificates() && client_ca.is_none() {
            return Err(BrokerError::NoClientCa);
        }
        for (who, principal) in self.identities.principals() {
            if let Rights::Topics { publish, subscribe } = self.access.rights(principal)
                && publish.is_empty()
                && subscribe.is_empty()
            {
                let principal = principal.clone();
                return Err(BrokerError::Rightless { who, principal });
            }
        }
        Ok(())
    }
}

impl Broker {
    /// Starts one. It accepts connections when this returns.
    ///
    /// # Errors
    ///
    /// The settings cannot work, or the address is taken.
    pub async fn start(mut settings: BrokerSettings) -> Result<Self, BrokerError> {
        settings.check()?;
        if settings
            .tls
            .as_ref()
            .is_some_and(|tls| tls.client_ca.is_some())
        {
            settings.identities.expect_unlisted();
        }
        let tls = settings.tls.as_ref().map(TlsFiles::acceptor).transpose()?;
        let listen = |source| BrokerError::Listen {
            address: settings.listen,
            source,
        };
        let listener = TcpListener::bind(settings.listen).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        if tls.is_none() && !address.ip().is_loopback() {
            warn!(%address, "the MQTT broker speaks no TLS: passwords travel in the clear");
        }
        let limits = settings.limits;
        let house = House {
            tls,
            ..house(&limits, settings.access, settings.identities)
        };
        let (stop, stopped) = broadcast::channel(1);
        let files = open_files();
        let places = limits.places(files);
        if places.total < limits.max_connections {
            let (wanted, most) = (limits.max_connections, places.total);
            info!(
                files,
                wanted,
                most,
                "the MQTT broker takes fewer connections: this process may open too few files"
            );
        }
        let peers = Peers::new(places);
        let door = tokio::spawn(door::serve(Arc::new(house), listener, peers, stopped));
        info!(%address, "the MQTT broker listens");
        Ok(Self {
            address,
            stop,
            door: Some(door),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops: each client gets a DISCONNECT, and the port is free when this returns.
    pub async fn stop(mut self) {
        self.tell();
        if let Some(door) = self.door.take()
            && let Err(error) = door.await
        {
            error!(%error, "the MQTT broker did not stop in order");
        }
    }

    fn tell(&self) {
        // Nobody hears it if it has stopped by itself.
        let _ = self.stop.send(());
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.tell();
    }
}

fn house(limits: &Limits, access: Access, identities: Identities) -> House {
    let queues = QueueLimits {
        max_messages: limits.max_queued_messages,
        max_bytes: limits.max_queued_bytes,
    };
    let storage = MemoryBackend::with_queue_limits(queues);
    let storage = Arc::new(DynamicStorage::Memory(storage));
    let router = MessageRouter::with_storage(Arc::clone(&storage))
        .with_fallback_queue_limits(queues)
        .with_retained_limits(limits.max_retained_messages, limits.max_retained_size);
    // Connections are counted at the door, and the rates of messages by what clients acknowledge.
    let monitor = ResourceMonitor::new(ResourceLimits {
        max_message_rate_per_client: 0,
        max_bandwidth_per_client: 0,
        ..ResourceLimits::default()
    });
    House {
        rules: Arc::new(Rules {
            access,
            identities,
            sessions: Sessions::new(
                Arc::clone(&storage),
                limits.max_sessions,
                limits.max_sessions_of_user,
            ),
            retained: Retained::new(limits.max_retained_of_user),
            refusals: Refusals::default(),
        }),
        tls: None,
        config: Arc::new(limits.config()),
        router: Arc::new(router),
        storage,
        stats: Arc::new(BrokerStats::new()),
        monitor: Arc::new(monitor),
        counted: Counted::default(),
        shares: [limits.max_sessions_of_user, limits.max_retained_of_user],
    }
}

#[cfg(test)]
mod tests {
    use muster_cloudevents::Dialect;

    use super::*;

    fn settings(identities: Identities) -> BrokerSettings {
        BrokerSettings {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            tls: None,
            identities,
            access: Access {
                dialect: Dialect::Enhancement,
            },
            limits: Limits::default(),
        }
    }

    #[tokio::test]
    async fn settings_that_cannot_work_are_named() {
        let named = Identities::default().certificate("hub", Principal::Everything);
        let wrong_name = Identities::default().allow_anonymous(Principal::Agent("C+".to_owned()));
        let no_places = Limits {
            max_connections: 0,
            ..Limits::default()
        };
        let taken = Broker::start(settings(Identities::default()))
            .await
            .unwrap();
        for (settings, text) in [
            (settings(named.unwrap()), "no CA for them (client_ca)"),
            (
                settings(wrong_name),
                "anonymous clients of the MQTT broker may do nothing",
            ),
            (
                BrokerSettings {
                    limits: no_places,
                    ..settings(Identities::default())
                },
                "limit max_connections is zero",
            ),
            (
                BrokerSettings {
                    listen: taken.address(),
                    ..settings(Identities::default())
                },
                "cannot listen on 127.0.0.1:",
            ),
        ] {
            let error = Broker::start(settings).await.unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
    }

    #[tokio::test]
    async fn the_port_is_free_after_a_stop() {
        let broker = Broker::start(settings(Identities::default()))
            .await
            .unwrap();
        let address = broker.address();
        broker.stop().await;
        TcpListener::bind(address).await.unwrap();
    }
}
