//! A bus that loses, repeats and delays messages, and breaks connections, until it is told to be
//! calm.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use muster_cloudevents::Outgoing;
use muster_cloudevents::bus::{
    Bus, BusEvent, Connection, Delivery, Loopback, Publish, PublishError, Publisher, Session,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::sync::mpsc;

#[derive(Clone)]
pub(crate) struct Flaky {
    inner: Loopback,
    state: Arc<State>,
}

struct State {
    random: Mutex<StdRng>,
    calm: AtomicBool,
    harm: AtomicUsize,
}

impl State {
    /// Whether something of this probability happens.
    fn happens(&self, probability: f64) -> bool {
        let happens = !self.calm.load(Ordering::SeqCst)
            && self.random.lock().unwrap().random_bool(probability);
        if happens {
            self.harm.fetch_add(1, Ordering::SeqCst);
        }
        happens
    }
}

impl Flaky {
    pub(crate) fn new(inner: Loopback, seed: u64) -> Self {
        let state = Arc::new(State {
            random: Mutex::new(StdRng::seed_from_u64(seed)),
            calm: AtomicBool::new(false),
            harm: AtomicUsize::new(0),
        });
        Self { inner, state }
    }

    /// From now on everything arrives. Gives how often it has done harm.
    pub(crate) fn calm(&self) -> usize {
        self.state.calm.store(true, Ordering::SeqCst);
        self.state.harm.load(Ordering::SeqCst)
    }
}

struct FlakyPublisher {
    inner: Publisher,
    state: Arc<State>,
}

impl Publish for FlakyPublisher {
    fn publish(&self, outgoing: Outgoing, retain: bool) -> BoxFuture<'_, Result<(), PublishError>> {
        async move {
            if self.state.happens(0.05) {
                return Err(PublishError::Lost);
            }
            if retain {
                self.inner.publish_retained(outgoing).await?;
            } else {
                self.inner.publish(outgoing).await?;
            }
            // It has it, and its word is lost.
            if self.state.happens(0.05) {
                return Err(PublishError::Lost);
            }
            Ok(())
        }
        .boxed()
    }
}

/// Clients use one publisher for all connections; it leads to the bus of the moment.
impl Bus for Flaky {
    fn open(&self, session: Session) -> Connection {
        let (sender, events) = mpsc::channel(100);
        let first = self.inner.open(session.clone());
        let publisher = Publisher::new(FlakyPublisher {
            inner: first.publisher.clone(),
            state: Arc::clone(&self.state),
        });
        tokio::spawn(self.clone().carry(session, first, sender));
        Connection { publisher, events }
    }
}

impl Flaky {
    async fn carry(
        self,
        session: Session,
        mut connection: Connection,
        sender: mpsc::Sender<BusEvent>,
    ) {
        let mut late: VecDeque<Delivery> = VecDeque::new();
        loop {
            let next = tokio::select! {
                event = connection.events.recv() => event,
                () = tokio::time::sleep(Duration::from_millis(50)) => None,
                () = sender.closed() => return,
            };
            let mut out: Vec<BusEvent> = Vec::new();
            match next {
                Some(BusEvent::Message(delivery)) => {
                    let copy =
                        || Delivery::new(delivery.topic.clone(), delivery.message.clone(), None);
                    if self.state.happens(0.05) {
                        // Lost, with the connection: brokers lose nothing else.
                        drop(delivery);
                        late.clear();
                        let reason = "broken".to_owned();
                        let retry_in = Duration::from_millis(10);
                        out.push(BusEvent::Lost { reason, retry_in });
                        connection = self.inner.open(session.clone());
                    } else if self.state.happens(0.1) {
                        late.push_back(delivery);
                    } else {
                        if self.state.happens(0.1) {
                            out.push(BusEvent::Message(copy()));
                        }
                        out.push(BusEvent::Message(delivery));
                        if late.len() > 2 {
                            out.extend(late.pop_front().map(BusEvent::Message));
                        }
                    }
                }
                Some(other) => out.push(other),
                None => out.extend(late.pop_front().map(BusEvent::Message)),
            }
            for event in out {
                if sender.send(event).await.is_err() {
                    return;
                }
            }
        }
    }
}
