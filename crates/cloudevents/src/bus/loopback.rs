//! A bus inside one process: what is published is handed to whoever listens.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use futures::future::BoxFuture;
use mqtt5_protocol::topic_matching;
use tokio::sync::mpsc;

use super::{
    AHEAD, Bus, BusEvent, Connection, Delivery, Publish, PublishError, Publisher, Session,
};
use crate::{Message, Outgoing};

/// A bus inside one process. Clones are the same bus.
#[derive(Debug, Clone, Default)]
pub struct Loopback {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    listeners: BTreeMap<u64, Listener>,
    next: u64,
    retained: BTreeMap<String, Message>,
}

#[derive(Debug)]
struct Listener {
    filters: Vec<String>,
    events: mpsc::Sender<BusEvent>,
    will: Option<Outgoing>,
}

/// A filter without the name of its shared subscription, of which here each is the only member.
fn unshared(filter: &str) -> &str {
    let shared = filter.strip_prefix("$share/");
    shared
        .and_then(|rest| rest.split_once('/'))
        .map_or(filter, |(_, filter)| filter)
}

impl Listener {
    fn wants(&self, topic: &str) -> bool {
        let mut filters = self.filters.iter();
        filters.any(|filter| topic_matching::matches(topic, unshared(filter)))
    }
}

fn event(topic: &str, message: &Message) -> BusEvent {
    BusEvent::Message(Delivery::new(topic.to_owned(), message.clone(), None))
}

impl Loopback {
    /// A bus that nobody is on yet.
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn deliver(&self, outgoing: Outgoing, retain: bool) {
        let listeners: Vec<_> = {
            let mut state = self.state();
            if retain {
                let Outgoing { topic, message } = outgoing.clone();
                state.retained.insert(topic, message);
            }
            let wanted = state.listeners.values();
            wanted
                .filter(|listener| listener.wants(&outgoing.topic))
                .map(|listener| listener.events.clone())
                .collect()
        };
        for events in listeners {
            // One that is gone misses nothing.
            let _ = events.send(event(&outgoing.topic, &outgoing.message)).await;
        }
    }

    /// Waits for the end of a listener and publishes its will.
    async fn bury(self, id: u64, events: mpsc::Sender<BusEvent>) {
        events.closed().await;
        let listener = self.state().listeners.remove(&id);
        if let Some(will) = listener.and_then(|listener| listener.will) {
            self.deliver(will, true).await;
        }
    }
}

impl Publish for Loopback {
    fn publish(&self, outgoing: Outgoing, retain: bool) -> BoxFuture<'_, Result<(), PublishError>> {
        self.deliver(outgoing, retain).map(Ok).boxed()
    }
}

impl Bus for Loopback {
    fn open(&self, session: Session) -> Connection {
        let mut state = self.state();
        let (sender, events) = mpsc::channel(AHEAD + 1 + state.retained.len());
        let id = state.next;
        state.next += 1;
        let listener = Listener {
            filters: session.filters,
            events: sender.clone(),
            will: session.will,
        };
        // There is room for them, and they come before anything else.
        let _ = sender.try_send(BusEvent::Subscribed);
        for (topic, message) in &state.retained {
            if listener.wants(topic) {
                let _ = sender.try_send(event(topic, message));
            }
        }
        state.listeners.insert(id, listener);
        drop(state);
        tokio::spawn(self.clone().bury(id, sender));
        Connection {
            publisher: Publisher::new(self.clone()),
            events,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outgoing(topic: &str, payload: &'static str) -> Outgoing {
        Outgoing {
            topic: topic.to_owned(),
            message: Message {
                payload: payload.into(),
                ..Message::default()
            },
        }
    }

    fn session(filter: &str) -> Session {
        Session {
            filters: vec![filter.to_owned()],
            will: None,
        }
    }

    async fn next(connection: &mut Connection) -> (String, String) {
        match connection.events.recv().await.unwrap() {
            BusEvent::Message(delivery) => (
                delivery.topic.clone(),
                String::from_utf8(delivery.message.payload.to_vec()).unwrap(),
            ),
            other => panic!("{other:?}"),
        }
    }

    async fn open(bus: &Loopback, session: Session) -> Connection {
        let mut connection = bus.open(session);
        let first = connection.events.recv().await;
        assert!(matches!(first, Some(BusEvent::Subscribed)));
        connection
    }

    #[tokio::test]
    async fn who_listens_hears() {
        let bus = Loopback::new();
        let mut one = open(&bus, session("a/+/c")).await;
        let mut shared = open(&bus, session("$share/g/a/b/c")).await;
        let publisher = one.publisher.clone();
        publisher.publish(outgoing("a/b/d", "no")).await.unwrap();
        publisher.publish(outgoing("a/b/c", "yes")).await.unwrap();
        let yes = ("a/b/c".to_owned(), "yes".to_owned());
        assert_eq!(next(&mut one).await, yes);
        assert_eq!(next(&mut shared).await, yes);
    }

    #[tokio::test]
    async fn what_is_retained_is_heard_later_and_a_will_is_done() {
        let bus = Loopback::new();
        let mut watcher = open(&bus, session("will")).await;
        let will = Some(outgoing("will", "gone"));
        let dying = open(
            &bus,
            Session {
                will,
                ..session("x")
            },
        )
        .await;
        let publisher = dying.publisher.clone();
        let there = outgoing("will", "there");
        publisher.publish_retained(there).await.unwrap();
        assert_eq!(next(&mut watcher).await.1, "there");
        assert_eq!(
            next(&mut open(&bus, session("will")).await).await.1,
            "there"
        );
        drop(dying);
        assert_eq!(next(&mut watcher).await.1, "gone");
        assert_eq!(next(&mut open(&bus, session("will")).await).await.1, "gone");
    }
}
