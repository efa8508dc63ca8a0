//! The sink `mqtt`: a CloudEvent for each event, in binary mode, with QoS 1.
//!
//! | Attribute | Value |
//! |---|---|
//! | `type` | `dev.muster.rules.v1alpha1.create`, `….update`, `….delete` |
//! | `source` | `muster/clusters/<cluster>` |
//! | `subject` | `apps/v1/deployments ns1/web` |
//! | `id` | the same whenever the event is sent again; with `source` unique |
//! | `sequence` | in order for one life of the agent, as the CloudEvents extension of that name |
//! | `clustername`, `resourceid`, `resourceversion` | cluster, uid, resource version |
//!
//! The data is the event as the sink `log` writes it, without time, sequence and cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use muster_cloudevents::bus::{Bus, Connection, Publisher, Session};
use muster_cloudevents::{Message, Outgoing};
use muster_core::rule_events::{Event, Operation};
use tokio_util::task::AbortOnDropHandle;

use super::body::Body;
use super::{Sink, SinkError, refused_in_plain};
use crate::rules::SinkMaker;

/// Messages under way at a time: a round trip to the broker is shared by so many.
const IN_FLIGHT: usize = 64;

/// The sink. See the module.
struct MqttSink {
    cluster: Arc<str>,
    /// Names this life of the sink, so that ids of another are others.
    life: uuid::Uuid,
    topic: String,
    /// `None` for a cluster that has none, which is told with each event.
    bus: Option<Arc<dyn Bus>>,
    open: Option<Open>,
}

/// Makes sinks that publish.
pub struct MqttSinks {
    topic: String,
    /// By cluster: at a broker no two clients have one name.
    buses: BTreeMap<String, Arc<dyn Bus>>,
    plain_secrets: bool,
}

impl MqttSinks {
    /// Sinks that publish to this topic, with `{cluster}` in it replaced, each over the bus of its
    /// cluster.
    pub fn new(topic: impl Into<String>, buses: BTreeMap<String, Arc<dyn Bus>>) -> Self {
        let topic = topic.into();
        Self {
            topic,
            buses,
            plain_secrets: false,
        }
    }

    /// Whether Secrets are published, too, as they are.
    #[must_use]
    pub fn plain_secrets(self, plain_secrets: bool) -> Self {
        Self {
            plain_secrets,
            ..self
        }
    }
}

impl std::fmt::Debug for MqttSinks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MqttSinks")
            .field("topic", &self.topic)
            .finish_non_exhaustive()
    }
}

impl SinkMaker for MqttSinks {
    fn make(&self, cluster: &str, _: bool) -> Box<dyn Sink> {
        let bus = self.buses.get(cluster).cloned();
        Box::new(MqttSink::new(cluster, &self.topic, bus))
    }

    fn refuses(&self) -> Vec<((&str, &str), &str)> {
        refused_in_plain(self.plain_secrets)
    }
}

/// A connection that is kept up.
struct Open {
    publisher: Publisher,
    /// Takes what happens on it off its hands: nothing is listened to.
    _events: AbortOnDropHandle<()>,
}

impl std::fmt::Debug for MqttSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MqttSink")
            .field("cluster", &self.cluster)
            .field("topic", &self.topic)
            .finish_non_exhaustive()
    }
}

impl MqttSink {
    /// A sink for what happens on `cluster`, which publishes to `topic` with `{cluster}` in it
    /// replaced. Connects with the first event.
    fn new(cluster: impl Into<Arc<str>>, topic: &str, bus: Option<Arc<dyn Bus>>) -> Self {
        let cluster = cluster.into();
        Self {
            topic: topic.replace("{cluster}", &cluster),
            cluster,
            life: uuid::Uuid::new_v4(),
            bus,
            open: None,
        }
    }

    fn publisher(&mut self) -> Result<Publisher, SinkError> {
        if let Some(open) = &self.open {
            return Ok(open.publisher.clone());
        }
        let bus = self.bus.as_ref();
        let bus = bus.ok_or_else(|| SinkError::new(format!("no broker for {}", self.cluster)))?;
        let Connection {
            publisher,
            mut events,
        } = bus.open(Session::default());
        let drained = tokio::spawn(async move { while events.recv().await.is_some() {} });
        self.open = Some(Open {
            publisher: publisher.clone(),
            _events: AbortOnDropHandle::new(drained),
        });
        Ok(publisher)
    }

    fn outgoing(&self, event: &Event) -> serde_json::Result<Outgoing> {
        let stamp = muster_cloudevents::Stamp {
            id: format!("{}-{}", self.life, event.sequence),
            time: event.seen,
        };
        let operation = match event.operation {
            Operation::Create => "create",
            Operation::Update => "update",
            Operation::Delete => "delete",
        };
        let mut cloud_event = muster_cloudevents::Event {
            id: stamp.id,
            source: format!("muster/clusters/{}", self.cluster),
            kind: format!("dev.muster.rules.v1alpha1.{operation}"),
            time: Some(stamp.time.to_string()),
            content_type: None,
            extensions: BTreeMap::new(),
            data: bytes::Bytes::new(),
        }
        .with("subject", event.key.to_string())
        // Sorts as text, as the extension asks.
        .with("sequence", format!("{:020}", event.sequence))
        .with("clustername", &*self.cluster)
        .with_json(serde_json::to_vec(&Body::of(event)?)?);
        if event.version > 0 {
            cloud_event = cloud_event
                .with("resourceid", &*event.uid)
                .with("resourceversion", event.version.to_string());
        }
        Ok(Outgoing {
            topic: self.topic.clone(),
            message: Message::from(&cloud_event),
        })
    }
}

impl Sink for MqttSink {
    fn deliver<'a>(&'a mut self, events: &'a [Event]) -> BoxFuture<'a, Result<(), SinkError>> {
        async move {
            let publisher = self.publisher()?;
            let outgoing: Result<Vec<Outgoing>, _> =
                events.iter().map(|event| self.outgoing(event)).collect();
            let outgoing =
                outgoing.map_err(|error| SinkError::new(format!("event not encoded: {error}")))?;
            stream::iter(outgoing)
                .map(|outgoing| publisher.publish(outgoing))
                .buffered(IN_FLIGHT)
                .try_for_each(|()| async { Ok(()) })
                .await
                .map_err(|error| SinkError::new(error.to_string()))
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use muster_cloudevents::bus::{BusEvent, Loopback};
    use serde_json::{Value, json};

    use super::super::body;
    use super::*;

    fn event(sequence: u64, operation: Operation) -> Event {
        let object = (operation != Operation::Delete).then_some(r#"{"a":1}"#);
        Event {
            sequence,
            ..body::tests::event(operation, object)
        }
    }

    #[tokio::test]
    async fn each_event_is_a_cloud_event_in_order() {
        let bus = Arc::new(Loopback::new());
        let mut listening = bus.open(Session {
            filters: vec!["rules/+".to_owned()],
            will: None,
        });
        let mut sink = MqttSink::new("c1", "rules/{cluster}", Some(bus));
        let events = [event(1, Operation::Update), event(2, Operation::Delete)];
        sink.deliver(&events).await.unwrap();
        sink.deliver(&events[..1]).await.unwrap();
        let mut heard = Vec::new();
        while heard.len() < 3 {
            match listening.events.recv().await.unwrap() {
                BusEvent::Message(delivery) => {
                    assert_eq!(delivery.topic, "rules/c1");
                    let event = muster_cloudevents::Event::try_from(delivery.message.clone());
                    heard.push(event.unwrap());
                }
                BusEvent::Subscribed => {}
                BusEvent::Lost { reason, .. } => panic!("{reason}"),
            }
        }
        let update = &heard[0];
        assert_eq!(update.kind, "dev.muster.rules.v1alpha1.update");
        assert_eq!(update.source, "muster/clusters/c1");
        assert_eq!(update.time.as_deref(), Some("1970-01-01T00:00:00Z"));
        for (name, value) in [
            ("subject", "apps/v1/deployments ns1/web"),
            ("sequence", "00000000000000000001"),
            ("clustername", "c1"),
            ("resourceid", "u-1"),
            ("resourceversion", "41"),
        ] {
            assert_eq!(update.get(name), Some(value), "{name}");
        }
        let data = |event: &muster_cloudevents::Event| -> Value {
            serde_json::from_slice(&event.data).unwrap()
        };
        let common = json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "resource": "deployments", "namespace": "ns1", "name": "web", "rules": ["ns1/all"]});
        let with = |more: Value| {
            let mut all = common.clone();
            let more = more.as_object().unwrap().clone();
            all.as_object_mut().unwrap().extend(more);
            all
        };
        let object = json!({"a": 1});
        let expected = with(
            json!({"operation": "UPDATE", "object": object, "uid": "u-1",
            "resourceVersion": "41"}),
        );
        assert_eq!(data(update), expected);
        assert_eq!(data(&heard[1]), with(json!({"operation": "DELETE"})));
        assert_eq!(heard[1].get("resourceid"), None);
        // What is sent again is known by its id.
        assert_eq!(heard[2].id, update.id);
        assert_ne!(heard[1].id, update.id);
    }
}
