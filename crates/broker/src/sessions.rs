//! Whose client id is whose.
//!
//! mqtt5 compares users where a session is resumed, and lets anybody take over a client id with a
//! clean start. Here, a client id belongs to one principal from CONNECT until its session ends, so
//! that nobody can push another one's client off, or get its queue.

use std::collections::HashMap;
use std::sync::Arc;

use mqtt5::broker::storage::{DynamicStorage, StorageBackend};
use muster_cloudevents::access::Principal;
use tokio::sync::Mutex;

use crate::metrics::Reason;

pub(crate) struct Sessions {
    storage: Arc<DynamicStorage>,
    max: usize,
    /// Of one principal that is not an operator.
    share: usize,
    held: Mutex<Holders>,
}

/// Who holds which client id, and how many.
#[derive(Default)]
struct Holders {
    of: HashMap<String, Held>,
    counts: HashMap<Principal, usize>,
}

impl Holders {
    fn insert(&mut self, client_id: &str, held: Held) {
        self.remove(client_id);
        *self.counts.entry(held.by.clone()).or_default() += 1;
        self.of.insert(client_id.to_owned(), held);
    }

    fn remove(&mut self, client_id: &str) {
        let Some(held) = self.of.remove(client_id) else {
            return;
        };
        if let Some(count) = self.counts.get_mut(&held.by) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&held.by);
            }
        }
    }
}

struct Held {
    by: Principal,
    /// Open ones: two while one takes over from the other.
    connections: usize,
}

impl Sessions {
    pub(crate) fn new(storage: Arc<DynamicStorage>, max: usize, share: usize) -> Self {
        Self {
            storage,
            max,
            share,
            held: Mutex::default(),
        }
    }

    /// A client of this principal comes with this client id.
    pub(crate) async fn enter(&self, client_id: &str, by: &Principal) -> Result<(), Reason> {
        let mut held = self.held.lock().await;
        let (len, own) = (held.of.len(), held.counts.get(by).copied());
        let full = len >= self.max
            || (*by != Principal::Everything && own.unwrap_or_default() >= self.share);
        match held.of.get_mut(client_id) {
            Some(entry) if entry.by == *by => {
                entry.connections += 1;
                return Ok(());
            }
            Some(entry) if entry.connections > 0 || self.is_stored(client_id).await => {
                return Err(Reason::ClientId);
            }
            // Its session is over, and nobody has cleaned up yet.
            Some(_) => held.remove(client_id),
            None if full => return Err(Reason::Sessions),
            None => {}
        }
        let by = by.clone();
        held.insert(client_id, Held { by, connections: 1 });
        Ok(())
    }

    /// A client that has entered is gone; its session may be kept.
    pub(crate) async fn leave(&self, client_id: &str) {
        let mut held = self.held.lock().await;
        let Some(entry) = held.of.get_mut(client_id) else {
            return;
        };
        entry.connections = entry.connections.saturating_sub(1);
        if entry.connections == 0 && !self.is_stored(client_id).await {
            held.remove(client_id);
        }
    }

    /// Forgets the sessions that have expired.
    pub(crate) async fn prune(&self) {
        let mut held = self.held.lock().await;
        let mut over = Vec::new();
        for (client_id, entry) in &held.of {
            if entry.connections == 0 && !self.is_stored(client_id).await {
                over.push(client_id.clone());
            }
        }
        for client_id in over {
            held.remove(&client_id);
        }
    }

    /// How many there are for which at least so many messages wait.
    pub(crate) async fn with_queue_of(&self, messages: usize) -> usize {
        let held = self.held.lock().await;
        let queues = held
            .of
            .keys()
            .map(|id| self.storage.queue_handle(id).count());
        queues.filter(|count| *count >= messages).count()
    }

    /// The most that one principal has that is not an operator.
    pub(crate) async fn most(&self) -> usize {
        let held = self.held.lock().await;
        let counts = held.counts.iter();
        let shared = counts.filter(|(by, _)| **by != Principal::Everything);
        shared.map(|(_, count)| *count).max().unwrap_or_default()
    }

    async fn is_stored(&self, client_id: &str) -> bool {
        // What cannot be read may be there.
        !matches!(self.storage.get_session(client_id).await, Ok(None))
    }
}

#[cfg(test)]
mod tests {
    use mqtt5::broker::MemoryBackend;
    use mqtt5::broker::storage::ClientSession;

    use super::*;

    fn storage() -> Arc<DynamicStorage> {
        Arc::new(DynamicStorage::Memory(MemoryBackend::new()))
    }

    fn agent(name: &str) -> Principal {
        Principal::Agent(name.to_owned())
    }

    /// As the broker leaves it for a client that comes back.
    async fn store(storage: &DynamicStorage, client_id: &str) {
        let mut session = ClientSession::new(client_id, true, Some(60));
        session.mark_disconnected(mqtt5::broker::storage::unix_millis_now());
        storage.store_session(session).await.unwrap();
    }

    #[tokio::test]
    async fn an_open_connection_is_taken_over_by_its_principal_only() {
        let sessions = Sessions::new(storage(), 10, 10);
        sessions.enter("a", &agent("c1")).await.unwrap();
        assert_eq!(
            sessions.enter("a", &agent("c2")).await,
            Err(Reason::ClientId)
        );
        sessions.enter("a", &agent("c1")).await.unwrap();
        sessions.leave("a").await;
        assert_eq!(
            sessions.enter("a", &agent("c2")).await,
            Err(Reason::ClientId)
        );
        sessions.leave("a").await;
        sessions.enter("a", &agent("c2")).await.unwrap();
    }

    #[tokio::test]
    async fn a_stored_session_is_resumed_by_its_principal_only() {
        let storage = storage();
        let sessions = Sessions::new(Arc::clone(&storage), 10, 10);
        sessions.enter("a", &agent("c1")).await.unwrap();
        store(&storage, "a").await;
        sessions.leave("a").await;
        assert_eq!(
            sessions.enter("a", &agent("c2")).await,
            Err(Reason::ClientId)
        );
        storage.remove_session("a").await.unwrap();
        sessions.enter("a", &agent("c2")).await.unwrap();
    }

    #[tokio::test]
    async fn stored_sessions_count_until_they_are_over() {
        let storage = storage();
        let sessions = Sessions::new(Arc::clone(&storage), 2, 2);
        sessions.enter("a", &agent("c1")).await.unwrap();
        sessions.enter("b", &agent("c1")).await.unwrap();
        store(&storage, "a").await;
        sessions.leave("a").await;
        assert_eq!(
            sessions.enter("c", &agent("c1")).await,
            Err(Reason::Sessions)
        );
        sessions.enter("a", &agent("c1")).await.unwrap();
        sessions.leave("a").await;
        storage.remove_session("a").await.unwrap();
        sessions.prune().await;
        sessions.enter("c", &agent("c1")).await.unwrap();
        sessions.leave("b").await;
        sessions.enter("d", &agent("c1")).await.unwrap();
    }

    #[tokio::test]
    async fn each_principal_has_a_share() {
        let storage = storage();
        let sessions = Sessions::new(Arc::clone(&storage), 10, 2);
        for id in ["a", "b"] {
            sessions.enter(id, &agent("c1")).await.unwrap();
        }
        let refused = Err(Reason::Sessions);
        assert_eq!(sessions.enter("c", &agent("c1")).await, refused);
        sessions.enter("a", &agent("c1")).await.unwrap();
        sessions.enter("c", &agent("c2")).await.unwrap();
        for id in ["d", "e", "f"] {
            sessions.enter(id, &Principal::Everything).await.unwrap();
        }
        assert_eq!(sessions.most().await, 2);
        sessions.leave("b").await;
        sessions.enter("g", &agent("c1")).await.unwrap();
    }
}
