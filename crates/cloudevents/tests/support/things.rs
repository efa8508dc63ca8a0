//! Resources for tests of clients, and an agent's hand for them.

use std::sync::Arc;

use muster_cloudevents::DataType;
use muster_cloudevents::client::AgentClient;
use muster_cloudevents::document::{Document, DocumentCodec};
use muster_cloudevents::memory::MemoryStore;

pub(crate) type Thing = Document<String, String>;
pub(crate) type Store = MemoryStore<String, String>;
pub(crate) type Codec = DocumentCodec<String, String>;

pub(crate) fn codec() -> Codec {
    DocumentCodec::new(DataType::new("g", "v1", "things"))
}

pub(crate) fn store() -> Arc<Store> {
    Arc::new(Store::new(codec()))
}

pub(crate) fn thing(uid: &str, cluster: &str) -> Thing {
    Thing::new(uid, cluster, format!("{uid}, first"))
}

/// The status that a spec comes to.
pub(crate) fn outcome(thing: &Thing) -> Option<String> {
    let spec = thing.spec.as_ref()?;
    Some(format!("{spec} at {}", thing.version))
}

/// Whether nothing is to go any more, and each has the status that its spec comes to.
pub(crate) fn is_done(store: &Store) -> bool {
    let things = store.list();
    let mut things = things.iter();
    things.all(|thing| thing.deleting.is_none() && thing.status == outcome(thing))
}

/// Does to what the store of an agent has what its spec wants, for ever.
pub(crate) async fn work(client: AgentClient<Codec, Store>, store: Arc<Store>) {
    let mut changes = store.changes();
    loop {
        for thing in store.list() {
            let wanted = outcome(&thing);
            if thing.deleting.is_some() && !thing.gone {
                store.set_gone(&thing.uid);
            } else if thing.deleting.is_none() && thing.status != wanted {
                store.change(&thing.uid, |thing| thing.status = wanted);
            } else {
                continue;
            }
            client.changed(&thing.uid);
        }
        changes.changed().await.unwrap();
    }
}
