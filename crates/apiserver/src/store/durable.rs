//! The mirror of the state in a redb file: one writer thread, group commit.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, TrySendError};
use redb::backends::FileBackend;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use tokio::sync::oneshot;

use super::{Change, Publisher, Stored, WriteError};

/// Resource, namespace, name to JSON.
const OBJECTS: TableDefinition<'_, (&str, &str, &str), &[u8]> = TableDefinition::new("objects");
/// `format` and `revision`.
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("muster-apiserver");
const FORMAT: u64 = 1;

/// Writes that may wait for a commit. At 130 rows a commit of 0.4 ms the queue drains in 13 ms;
/// a fuller one would only add latency.
const QUEUE_WRITES: usize = 4096;
/// Writes that share one commit.
const BATCH_WRITES: usize = 1024;

/// Why a database file was not opened. The file is left as it is.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file exists and is not a database, or a damaged one.
    #[error("failed to open storage {}: the file is damaged or not a database: {why}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What the database says.
        why: String,
    },
    /// The file is a database of another program or of a newer format.
    #[error("failed to open storage {}: {why}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What was found.
        why: String,
    },
    /// The file cannot be reached.
    #[error("failed to open storage {}: {why}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        why: String,
    },
}

pub(super) struct Opened {
    pub(super) database: Database,
    pub(super) revision: u64,
    pub(super) objects: Vec<(Arc<str>, Stored)>,
}

/// Opens the file, or creates it if there is none. Never replaces an existing file.
pub(super) fn open(path: &Path) -> Result<Opened, OpenError> {
    let io = |why: String| OpenError::Io {
        path: path.to_owned(),
        why,
    };
    match std::fs::metadata(path) {
        Ok(found) if found.len() == 0 => {
            return Err(OpenError::Damaged {
                path: path.to_owned(),
                why: "the file is empty".to_owned(),
            });
        }
        Ok(_) => muster_privatefiles::narrow(path).map_err(|e| io(e.to_string()))?,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => create(path)?,
        Err(e) => return Err(io(e.to_string())),
    }
    let damaged = |why: String| OpenError::Damaged {
        path: path.to_owned(),
        why,
    };
    let mut database = match Database::builder().open(path) {
        Ok(database) => database,
        Err(redb::DatabaseError::DatabaseAlreadyOpen) => {
            return Err(io("another process has it open".to_owned()));
        }
        Err(redb::DatabaseError::Storage(redb::StorageError::Io(e)))
            if e.kind() == std::io::ErrorKind::PermissionDenied =>
        {
            return Err(io(e.to_string()));
        }
        Err(e) => return Err(damaged(e.to_string())),
    };
    // Bits that rotted inside a value would otherwise go unseen until somebody reads it.
    database
        .check_integrity()
        .map_err(|e| damaged(e.to_string()))?;
    let (revision, objects) = load(&database, path)?;
    Ok(Opened {
        database,
        revision,
        objects,
    })
}

/// Creates the file beside its place and moves it there, so that a crash leaves no half file.
fn create(path: &Path) -> Result<(), OpenError> {
    let io = |why: String| OpenError::Io {
        path: path.to_owned(),
        why,
    };
    muster_privatefiles::create_parents(path).map_err(|e| io(e.to_string()))?;
    let mut draft = path.as_os_str().to_owned();
    draft.push(".new");
    let draft = PathBuf::from(draft);
    match std::fs::remove_file(&draft) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(io(e.to_string())),
        _ => {}
    }
    let mut options = std::fs::OpenOptions::new();
    options.read(true).write(true).create_new(true);
    let file = muster_privatefiles::open(&draft, &mut options).map_err(|e| io(e.to_string()))?;
    let file = FileBackend::new(file).map_err(|e| io(e.to_string()))?;
    let database = Database::builder()
        .create_with_backend(file)
        .map_err(|e| io(e.to_string()))?;
    initialise(&database).map_err(|e| io(e.to_string()))?;
    drop(database);
    std::fs::rename(&draft, path).map_err(|e| io(e.to_string()))
}

fn initialise(database: &Database) -> Result<(), redb::Error> {
    let write = database.begin_write()?;
    {
        write.open_table(OBJECTS)?;
        let mut meta = write.open_table(META)?;
        meta.insert("format", FORMAT)?;
        meta.insert("revision", 1)?;
    }
    write.commit()?;
    Ok(())
}

type Loaded = (u64, Vec<(Arc<str>, Stored)>);

fn load(database: &Database, path: &Path) -> Result<Loaded, OpenError> {
    let damaged = |why: String| OpenError::Damaged {
        path: path.to_owned(),
        why,
    };
    let foreign = |why: String| OpenError::Foreign {
        path: path.to_owned(),
        why,
    };
    let read = database.begin_read().map_err(|e| damaged(e.to_string()))?;
    let meta = match read.open_table(META) {
        Ok(meta) => meta,
        Err(redb::TableError::TableDoesNotExist(_)) => {
            return Err(foreign("it belongs to another program".to_owned()));
        }
        Err(e) => return Err(damaged(e.to_string())),
    };
    let number = |key: &str| -> Result<u64, OpenError> {
        let found = meta.get(key).map_err(|e| damaged(e.to_string()))?;
        found
            .map(|v| v.value())
            .ok_or_else(|| damaged(format!("{key} is missing")))
    };
    let format = number("format")?;
    if format != FORMAT {
        return Err(foreign(format!("its format {format} is not {FORMAT}")));
    }
    let revision = number("revision")?;
    let table = read
        .open_table(OBJECTS)
        .map_err(|e| damaged(e.to_string()))?;
    let mut objects = Vec::new();
    let mut resource: Arc<str> = Arc::from("");
    for row in table.iter().map_err(|e| damaged(e.to_string()))? {
        let (key, value) = row.map_err(|e| damaged(e.to_string()))?;
        let (plural, namespace, name) = key.value();
        if *resource != *plural {
            resource = Arc::from(plural);
        }
        let stored = Stored::from_bytes(Bytes::copy_from_slice(value.value()), &[])
            .map_err(|why| damaged(format!("{plural} {namespace}/{name}: {why}")))?;
        if stored.key.namespace != namespace || stored.key.name != name {
            return Err(damaged(format!(
                "{plural} {namespace}/{name}: it holds another object"
            )));
        }
        objects.push((resource.clone(), stored));
    }
    Ok((revision, objects))
}

/// One write on its way to the disk.
pub(crate) struct Record {
    pub(crate) change: Change,
    done: Option<oneshot::Sender<Result<(), String>>>,
}

impl Record {
    pub(super) fn new(change: Change) -> Self {
        Self { change, done: None }
    }
}

/// The way to the writer thread.
pub(super) struct DurableHandle {
    queue: Mutex<Option<Sender<Record>>>,
    stopped: tokio::sync::watch::Receiver<bool>,
}

impl DurableHandle {
    /// Queues a write without waiting.
    pub(super) fn submit(
        &self,
        mut record: Record,
    ) -> Result<oneshot::Receiver<Result<(), String>>, WriteError> {
        let (done, committed) = oneshot::channel();
        record.done = Some(done);
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(queue) = queue.as_ref() else {
            return Err(WriteError::Failed("the server is shutting down".to_owned()));
        };
        match queue.try_send(record) {
            Ok(()) => Ok(committed),
            Err(TrySendError::Full(_)) => Err(WriteError::Busy),
            Err(TrySendError::Disconnected(_)) => {
                Err(WriteError::Failed("the writer has stopped".to_owned()))
            }
        }
    }

    /// Refuses further writes and waits until the queued ones are on disk and the file is closed.
    pub(super) async fn close(&self) {
        self.queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let mut stopped = self.stopped.clone();
        // An error means that the thread is gone, which is what is waited for.
        let _ = stopped.wait_for(|stopped| *stopped).await;
    }
}

/// Starts the thread that owns the database.
pub(super) fn spawn_writer(
    database: Database,
    path: PathBuf,
    publisher: Publisher,
) -> DurableHandle {
    let (queue, records) = crossbeam_channel::bounded(QUEUE_WRITES);
    let (stop, stopped) = tokio::sync::watch::channel(false);
    std::thread::Builder::new()
        .name("apiserver-store".to_owned())
        .spawn(move || {
            write_batches(&database, &path, &records, &publisher);
            drop(database);
            stop.send_replace(true);
        })
        .expect("the system can start one more thread");
    DurableHandle {
        queue: Mutex::new(Some(queue)),
        stopped,
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "the writer is a thread of its own"
)]
fn write_batches(
    database: &Database,
    path: &Path,
    records: &Receiver<Record>,
    publisher: &Publisher,
) {
    while let Ok(first) = records.recv() {
        let mut batch = vec![first];
        batch.extend(records.try_iter().take(BATCH_WRITES - 1));
        match commit(database, &batch) {
            Ok(()) => {
                publisher.committed(batch.iter().map(|r| r.change.clone()));
                answer(batch, &Ok(()));
            }
            Err(e) => {
                tracing::error!(path = %path.display(), error = %e, "failed to commit, writes are taken back");
                let undone = publisher.failed(batch, || records.try_iter().collect());
                answer(
                    undone,
                    &Err(format!("failed to write {}: {e}", path.display())),
                );
            }
        }
    }
}

fn answer(records: Vec<Record>, result: &Result<(), String>) {
    for done in records.into_iter().filter_map(|r| r.done) {
        // The caller may have gone away; its write stands all the same.
        let _ = done.send(result.clone());
    }
}

fn commit(database: &Database, batch: &[Record]) -> Result<(), redb::Error> {
    let write = database.begin_write()?;
    {
        let mut objects = write.open_table(OBJECTS)?;
        let mut meta = write.open_table(META)?;
        for Record { change, .. } in batch {
            let key = &change.object.key;
            let row = (&*change.resource, key.namespace.as_str(), key.name.as_str());
            if change.removed {
                objects.remove(row)?;
            } else {
                objects.insert(row, &**change.object.bytes())?;
            }
        }
        if let Some(last) = batch.last() {
            meta.insert("revision", last.change.object.revision)?;
        }
    }
    write.commit()?;
    Ok(())
}

#[cfg(test)]
mod tests;
