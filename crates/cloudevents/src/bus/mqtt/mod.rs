//! MQTT 5: the bus between machines.
//!
//! Each connection is a clean start, as in sdk-go: what was sent while it was down is asked for
//! anew, so that no broker has to keep anything. A message counts as sent when the broker has
//! acknowledged it, and is acknowledged to the broker when it has been handled.

mod config;
mod options;
mod session;
mod tls;
mod wire;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use futures::FutureExt;
use futures::future::BoxFuture;
use rand::Rng;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::{info, warn};

pub use config::{ConfigError, DriverConfig};
pub use options::{MqttOptions, Pem, Tls};
pub use tls::TlsError;

use self::session::{Ended, Learned, Link};
use self::tls::TlsSource;
use super::{AHEAD, Bus, BusEvent, Connection, Publish, PublishError, Publisher, Session};
use crate::Outgoing;

/// Least pause after another client has taken the session: more often would be a duel.
const AFTER_TAKEOVER: Duration = Duration::from_secs(5);

/// A broker.
#[derive(Debug, Clone)]
pub struct Mqtt {
    options: Arc<MqttOptions>,
}

impl Mqtt {
    /// A broker, to be connected to as these options say. Files of certificates are read now, and
    /// again before each connection.
    ///
    /// # Errors
    ///
    /// The files cannot be used.
    pub fn new(options: MqttOptions) -> Result<Self, TlsError> {
        if let Some(tls) = &options.tls {
            TlsSource::new(tls.clone()).load()?;
        }
        Ok(Self {
            options: Arc::new(options),
        })
    }
}

/// What publishers reach a connection by, while there is one.
#[derive(Clone, Default)]
struct Door(Arc<Mutex<Option<Link>>>);

impl Door {
    fn set(&self, link: Option<Link>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = link;
    }

    fn get(&self) -> Option<Link> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Publish for Door {
    fn publish(&self, outgoing: Outgoing, retain: bool) -> BoxFuture<'_, Result<(), PublishError>> {
        async move {
            let link = self.get().ok_or(PublishError::NotConnected)?;
            link.publish(outgoing, retain).await
        }
        .boxed()
    }
}

impl Bus for Mqtt {
    fn open(&self, session: Session) -> Connection {
        // One more than the broker may send unacknowledged, for what happens beside messages.
        let (sender, events) = mpsc::channel(AHEAD + 1);
        let door = Door::default();
        let publisher = Publisher::new(door.clone());
        let driver = Driver {
            options: self.options.clone(),
            session,
            door,
            events: sender,
        };
        tokio::spawn(driver.run());
        Connection { publisher, events }
    }
}

/// Keeps a connection up.
struct Driver {
    options: Arc<MqttOptions>,
    session: Session,
    door: Door,
    events: mpsc::Sender<BusEvent>,
}

impl Driver {
    async fn run(self) {
        let mut tls = self.options.tls.clone().map(TlsSource::new);
        let pauses = ExponentialBuilder::new()
            .with_min_delay(self.options.first_pause)
            .with_max_delay(self.options.longest_pause)
            .without_max_times();
        let mut pause = pauses.build();
        let mut retains = true;
        let mut learned = Learned::default();
        // A connection that has lasted this long was a good one: the next pause is a short one again.
        // Two clients that throw each other out do not get there.
        let steady = 3 * self.options.longest_pause;
        loop {
            let begun = Instant::now();
            let ended = session::run(
                &self.options,
                tls.as_mut(),
                &self.session,
                retains,
                &mut learned,
                &self.door,
                &self.events,
            )
            .await;
            self.door.set(None);
            let broker = &self.options.broker;
            if matches!(ended, Ended::Closed) {
                info!(%broker, "disconnected from the broker");
                return;
            }
            retains &= !matches!(ended, Ended::RetainsNothing);
            // A message that is too large is not sent again: the next connection is a better one.
            if begun.elapsed() > steady || ended.is_size() {
                pause = pauses.build();
            }
            let mut retry_in = pause.next().unwrap_or(self.options.longest_pause);
            if ended.is_takeover() {
                retry_in = retry_in.max(AFTER_TAKEOVER);
            }
            // Up to twice as long, so that a fleet does not come back at once.
            retry_in = retry_in.mul_f64(1.0 + rand::rng().random::<f64>());
            let reason = ended.to_string();
            warn!(%broker, client_id = %self.options.client_id, reason, ?retry_in, "no connection to the broker");
            let lost = BusEvent::Lost { reason, retry_in };
            tokio::select! {
                biased;
                () = self.events.closed() => return,
                () = async {
                    // Whoever is slow hears of it after what it has not handled yet.
                    let _ = self.events.send(lost).await;
                    tokio::time::sleep(retry_in).await;
                } => {}
            }
        }
    }
}
