//! Bare MQTT messages, QoS 1, through the same driver as works: the floor of everything over a broker.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use muster_cloudevents::bus::{Bus, BusEvent, Connection, Publisher, Session};
use muster_cloudevents::{Message, Outgoing};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::events;

/// As many as a client of works has on their way.
const AT_A_TIME: usize = 64;

/// How long listeners may take to hear what the broker has.
const PATIENCE: Duration = Duration::from_secs(20);

/// One that publishes, and listeners that do nothing.
pub struct Bare {
    publisher: Publisher,
    /// Its end is the end of the connection.
    _events: mpsc::Receiver<BusEvent>,
    topics: Vec<String>,
    heard: Arc<Heard>,
    /// They end with this.
    _listeners: JoinSet<()>,
}

#[derive(Default)]
struct Heard {
    missing: AtomicUsize,
    all: Notify,
}

async fn open(broker: &str, client_id: &str, filters: Vec<String>) -> Result<Connection> {
    let session = Session {
        filters,
        will: None,
    };
    let mut connection = events::mqtt(broker, client_id)?.open(session);
    match connection.events.recv().await.context("no connection")? {
        BusEvent::Subscribed => Ok(connection),
        other => bail!("{client_id} at {broker}: {other:?}"),
    }
}

impl Bare {
    /// Connects to a broker, with so many listeners.
    pub async fn start(broker: &str, listeners: usize) -> Result<Self> {
        let heard = Arc::new(Heard::default());
        let mut topics = Vec::new();
        let mut tasks = JoinSet::new();
        for number in 0..listeners {
            let topic = format!("bare/clusters/c{number}/events");
            let client_id = format!("bare-listener-{number}");
            let mut connection = open(broker, &client_id, vec![topic.clone()]).await?;
            topics.push(topic);
            let heard = Arc::clone(&heard);
            tasks.spawn(async move {
                while let Some(event) = connection.events.recv().await {
                    if matches!(event, BusEvent::Message(_))
                        && heard.missing.fetch_sub(1, Ordering::SeqCst) == 1
                    {
                        heard.all.notify_one();
                    }
                }
            });
        }
        let connection = open(broker, "bare-publisher", Vec::new()).await?;
        Ok(Self {
            publisher: connection.publisher,
            _events: connection.events,
            topics,
            heard,
            _listeners: tasks,
        })
    }

    /// Publishes this so many times, to one listener after the other; seconds until the broker has
    /// acknowledged all, and all have been heard.
    pub async fn send(&self, message: &Message, count: usize) -> Result<f64> {
        ensure!(count > 0, "nothing to send");
        self.heard.missing.store(count, Ordering::SeqCst);
        let begin = Instant::now();
        let publish = |topic: &String| {
            let outgoing = Outgoing {
                topic: topic.clone(),
                message: message.clone(),
            };
            self.publisher.publish(outgoing)
        };
        stream::iter(self.topics.iter().cycle().take(count).map(publish))
            .buffer_unordered(AT_A_TIME)
            .try_collect::<()>()
            .await?;
        let heard = tokio::time::timeout(PATIENCE, self.heard.all.notified());
        heard.await.with_context(|| {
            let missing = self.heard.missing.load(Ordering::SeqCst);
            format!("{missing} of {count} bare messages were not heard within {PATIENCE:?}")
        })?;
        Ok(begin.elapsed().as_secs_f64())
    }
}
