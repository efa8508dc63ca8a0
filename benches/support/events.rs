//! Works over MQTT: who talks to whom, brokers, and a bus that counts.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use futures::FutureExt;
use futures::future::BoxFuture;
use muster_broker::{Broker, BrokerSettings, Identities, Limits};
use muster_cloudevents::access::{Access, Principal};
use muster_cloudevents::bus::{
    Bus, BusEvent, Connection, Delivery, Mqtt, MqttOptions, Publish, PublishError, Publisher,
    Session,
};
use muster_cloudevents::work::{Form, WorkCodec};
use muster_cloudevents::{Dialect, Message, Outgoing, Topics};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::machine::monotonic;
use super::slow;

/// The only source.
pub const SOURCE: &str = "hub";
/// What OCM speaks.
pub const CODEC: WorkCodec = WorkCodec(Form::Bundles);

/// The topics that OCM's documentation names.
pub fn dialect() -> Dialect {
    Dialect::SdkGo(Topics {
        source_events: format!("sources/{SOURCE}/clusters/+/sourceevents"),
        agent_events: format!("sources/{SOURCE}/clusters/+/agentevents"),
        source_broadcast: Some(format!("sources/{SOURCE}/sourcebroadcast")),
        agent_broadcast: Some("clusters/+/agentbroadcast".to_owned()),
    })
}

/// The id of the agent of a cluster.
pub fn agent_of(cluster: &str) -> String {
    format!("{cluster}-work-agent")
}

/// Muster's own broker, in this process, that lets everybody do everything; port 0 is any.
pub async fn broker(port: u16) -> Result<Broker> {
    Ok(Broker::start(BrokerSettings {
        listen: SocketAddr::from(([127, 0, 0, 1], port)),
        tls: None,
        identities: Identities::default().allow_anonymous(Principal::Everything),
        access: Access { dialect: dialect() },
        limits: Limits::default(),
    })
    .await?)
}

/// A client's way to a broker. Pauses do not grow: brokers that go again and again are the bench's.
pub fn mqtt(broker: &str, client_id: &str) -> Result<Mqtt> {
    let options = MqttOptions::new(broker, client_id);
    let longest_pause = options.first_pause;
    Ok(Mqtt::new(MqttOptions {
        longest_pause,
        ..options
    })?)
}

/// Bytes of a message without what MQTT adds: topic, content type, properties, payload.
pub fn bytes_of(topic: &str, message: &Message) -> usize {
    let properties = message.properties.iter();
    let properties: usize = properties
        .map(|(name, value)| name.len() + value.len())
        .sum();
    let content_type = message.content_type.as_ref().map_or(0, String::len);
    topic.len() + content_type + properties + message.payload.len()
}

/// What has gone over a bus.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Traffic {
    /// Subscriptions so far.
    pub sessions: u64,
    /// When the last one was, on the clock that all processes share.
    pub subscribed_nanos: u64,
    /// Messages that the broker has acknowledged.
    pub sent: u64,
    /// Their bytes; see [`bytes_of`].
    pub sent_bytes: u64,
    /// Messages that came.
    pub received: u64,
    /// Those that have been dealt with.
    pub handled: u64,
    /// When any of that last happened.
    pub last_nanos: u64,
}

/// Counts [`Traffic`].
#[derive(Debug, Default)]
pub struct Meter {
    sessions: AtomicU64,
    subscribed: AtomicU64,
    sent: AtomicU64,
    sent_bytes: AtomicU64,
    received: AtomicU64,
    handled: AtomicU64,
    last: AtomicU64,
}

fn now() -> u64 {
    u64::try_from(monotonic().as_nanos()).unwrap_or(u64::MAX)
}

impl Meter {
    /// Something has happened just now.
    pub fn touch(&self) {
        self.last.store(now(), Ordering::SeqCst);
    }

    /// What has been counted.
    pub fn read(&self) -> Traffic {
        let read = |count: &AtomicU64| count.load(Ordering::SeqCst);
        Traffic {
            sessions: read(&self.sessions),
            subscribed_nanos: read(&self.subscribed),
            sent: read(&self.sent),
            sent_bytes: read(&self.sent_bytes),
            received: read(&self.received),
            handled: read(&self.handled),
            last_nanos: read(&self.last),
        }
    }

    fn count(&self, count: &AtomicU64, more: u64) {
        count.fetch_add(more, Ordering::SeqCst);
        self.touch();
    }
}

/// A bus that counts what goes over it.
#[derive(Debug, Clone)]
pub struct Counted<B> {
    inner: B,
    meter: Arc<Meter>,
}

impl<B> Counted<B> {
    /// Counts there.
    pub fn new(inner: B, meter: Arc<Meter>) -> Self {
        Self { inner, meter }
    }
}

struct CountedPublisher {
    inner: Publisher,
    meter: Arc<Meter>,
}

impl Publish for CountedPublisher {
    fn publish(&self, outgoing: Outgoing, retain: bool) -> BoxFuture<'_, Result<(), PublishError>> {
        async move {
            let bytes = bytes_of(&outgoing.topic, &outgoing.message);
            if retain {
                self.inner.publish_retained(outgoing).await?;
            } else {
                self.inner.publish(outgoing).await?;
            }
            let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
            self.meter.sent_bytes.fetch_add(bytes, Ordering::SeqCst);
            self.meter.count(&self.meter.sent, 1);
            Ok(())
        }
        .boxed()
    }
}

impl<B: Bus> Bus for Counted<B> {
    fn open(&self, session: Session) -> Connection {
        let Connection { publisher, events } = self.inner.open(session);
        let (sender, counted) = mpsc::channel(1);
        tokio::spawn(carry(events, sender, Arc::clone(&self.meter)));
        let meter = Arc::clone(&self.meter);
        let inner = publisher;
        Connection {
            publisher: Publisher::new(CountedPublisher { inner, meter }),
            events: counted,
        }
    }
}

async fn carry(
    mut events: mpsc::Receiver<BusEvent>,
    sender: mpsc::Sender<BusEvent>,
    meter: Arc<Meter>,
) {
    while let Some(event) = events.recv().await {
        let event = match event {
            BusEvent::Subscribed => {
                meter.subscribed.store(now(), Ordering::SeqCst);
                meter.count(&meter.sessions, 1);
                // The known slowness.
                slow::spin(Duration::from_millis(500));
                BusEvent::Subscribed
            }
            BusEvent::Message(mut delivery) => {
                meter.count(&meter.received, 1);
                let (topic, message) = (delivery.topic.clone(), delivery.take());
                let meter = Arc::clone(&meter);
                let handled = move || {
                    drop(delivery);
                    meter.count(&meter.handled, 1);
                };
                BusEvent::Message(Delivery::new(topic, message, Some(Box::new(handled))))
            }
            lost @ BusEvent::Lost { .. } => lost,
        };
        if sender.send(event).await.is_err() {
            return;
        }
    }
}
