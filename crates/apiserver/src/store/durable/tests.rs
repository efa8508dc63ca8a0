//! What happens when the disk does not take a write.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redb::StorageBackend;
use redb::backends::InMemoryBackend;
use serde_json::json;

use super::super::{Expect, Limits, ObjectKey, Publisher, Scope, State, Store};
use super::*;

/// A disk that can be broken.
#[derive(Debug)]
struct Disk {
    inner: InMemoryBackend,
    broken: Arc<AtomicBool>,
}

impl Disk {
    fn check(&self) -> io::Result<()> {
        if self.broken.load(Ordering::SeqCst) {
            return Err(io::Error::other("no space left on device"));
        }
        Ok(())
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.inner.read(offset, out)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.check()?;
        self.inner.set_len(len)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.check()?;
        self.inner.sync_data()
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check()?;
        self.inner.write(offset, data)
    }
}

fn store_on(disk: Disk) -> Store {
    let limits = Limits {
        history_events: 10,
        watcher_queue_events: 10,
    };
    let database = Database::builder().create_with_backend(disk).unwrap();
    initialise(&database).unwrap();
    let state = State {
        revision: 1,
        published: 1,
        base: 1,
        collections: HashMap::new(),
    };
    let state = Arc::new(Mutex::new(state));
    let publisher = Publisher {
        state: state.clone(),
        limits,
    };
    let durable = spawn_writer(database, PathBuf::from("hub.redb"), publisher);
    Store {
        state,
        limits,
        durable: Some(durable),
    }
}

fn object(name: &str, revision: u64) -> Stored {
    let value = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
        "namespace": "a", "name": name, "uid": "u", "resourceVersion": revision.to_string()}});
    Stored::new(value, &[])
}

#[tokio::test]
async fn a_write_that_the_disk_refuses_is_taken_back_and_reads_go_on() {
    let broken = Arc::new(AtomicBool::new(false));
    let store = store_on(Disk {
        inner: InMemoryBackend::new(),
        broken: broken.clone(),
    });
    let maps: Arc<str> = Arc::from("configmaps");
    let key = |name: &str| ObjectKey::new("a", name);
    let put = async |name: &'static str| {
        store
            .put(&maps, &key(name), Expect::Absent, |revision| {
                object(name, revision)
            })
            .await
    };
    put("kept").await.unwrap();
    let mut watch = store
        .watch(&maps, Scope::All, Some(store.revision()))
        .unwrap();

    broken.store(true, Ordering::SeqCst);
    let refused = put("lost").await.unwrap_err();
    let text = refused.to_string();
    assert!(
        text.contains("hub.redb") && text.contains("no space left"),
        "{text}"
    );
    assert!(
        store.get(&maps, &key("lost")).is_none(),
        "nobody sees what was not acknowledged"
    );
    assert!(store.get(&maps, &key("kept")).is_some());
    let event = tokio::time::timeout(Duration::from_secs(10), watch.events.recv()).await;
    assert!(
        event.unwrap().is_none(),
        "watches end, so that their clients list again"
    );
    assert!(
        put("later").await.is_err(),
        "writes are refused for as long as the disk is broken"
    );
    store.durable.as_ref().unwrap().close().await;
}

#[test]
fn a_full_queue_refuses_instead_of_waiting() {
    let (queue, _records) = crossbeam_channel::bounded(1);
    let handle = DurableHandle {
        queue: Mutex::new(Some(queue)),
        stopped: tokio::sync::watch::channel(false).1,
    };
    let record = || {
        Record::new(Change {
            resource: Arc::from("configmaps"),
            previous: None,
            object: Arc::new(object("a", 2)),
            removed: false,
        })
    };
    assert!(handle.submit(record()).is_ok());
    assert!(matches!(handle.submit(record()), Err(WriteError::Busy)));
    handle.queue.lock().unwrap().take();
    let closed = handle.submit(record()).map(|_| ()).unwrap_err().to_string();
    assert_eq!(closed, "storage failed: the server is shutting down");
}
