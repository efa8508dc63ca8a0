//! What a sink has been told, kept over restarts of the agent.
//!
//! Without it an agent that starts again would tell of everything as new, and of nothing that has
//! gone meanwhile. It is written after the sink has taken an event: an agent that is killed between
//! the two tells it once more.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use muster_core::rule_events::{ObjectKey, Record, State};
use muster_core::watch_plan::Resource;
use redb::backends::FileBackend;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};

/// Hash, uid and the rules that want to hear when it is gone.
type Had = (&'static [u8; 32], &'static str, Vec<&'static str>);

/// Object, as [`text_of`] names it, to what the sink has of it.
const TOLD: TableDefinition<'_, &str, Had> = TableDefinition::new("objects");

/// What a sink was told of objects. Their versions are of another life, and 0.
pub(super) type Told = HashMap<ObjectKey, State>;

/// The file of one sink of one cluster.
#[derive(Debug)]
pub(super) struct Memory(Database);

/// A list as JSON: no part of it can be taken for another, whatever is in it.
fn text_of(key: &ObjectKey) -> serde_json::Result<String> {
    let resource = &key.resource;
    let (namespace, name) = (&*key.namespace, &*key.name);
    serde_json::to_string(&[
        resource.group(),
        resource.version(),
        resource.resource(),
        namespace,
        name,
    ])
}

fn key_of(text: &str) -> serde_json::Result<ObjectKey> {
    let [group, version, resource, namespace, name]: [String; 5] = serde_json::from_str(text)?;
    Ok(ObjectKey {
        resource: Resource::new(group, version, resource),
        namespace: namespace.into(),
        name: name.into(),
    })
}

/// What failed, with the file.
fn told(path: &Path, error: impl std::fmt::Display) -> String {
    format!("{}: {error}", path.display())
}

impl Memory {
    /// Opens the file, or makes it.
    ///
    /// # Errors
    ///
    /// A text with the path. A file that is damaged is not replaced: that would tell everything anew.
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        if let Some(folder) = path.parent() {
            muster_privatefiles::create_dir_all(folder).map_err(|error| told(path, error))?;
        }
        let mut options = std::fs::OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file =
            muster_privatefiles::open(path, &mut options).map_err(|error| told(path, error))?;
        let file = FileBackend::new(file).map_err(|error| told(path, error))?;
        let database = Database::builder()
            .create_with_backend(file)
            .map_err(|error| told(path, error))?;
        Ok(Self(database))
    }

    /// All that the sink has been told and that is still there, as far as it knows.
    pub(super) fn load(&self) -> Result<Told, String> {
        let load = || -> Result<_, redb::Error> {
            let read = self.0.begin_read()?;
            let table = match read.open_table(TOLD) {
                Ok(table) => table,
                Err(redb::TableError::TableDoesNotExist(_)) => return Ok(HashMap::new()),
                Err(error) => return Err(error.into()),
            };
            let mut all = HashMap::new();
            for entry in table.iter()? {
                let (key, value) = entry?;
                let (hash, uid, rules) = value.value();
                if let Ok(key) = key_of(key.value()) {
                    let state = State {
                        uid: uid.into(),
                        version: 0,
                        hash: *hash,
                        on_delete: rules.into_iter().map(Arc::from).collect(),
                    };
                    all.insert(key, state);
                }
            }
            Ok(all)
        };
        load().map_err(|error| error.to_string())
    }

    /// Keeps these, all or none.
    pub(super) fn record(&self, records: &[Record]) -> Result<(), String> {
        let record = || -> Result<(), redb::Error> {
            let write = self.0.begin_write()?;
            {
                let mut table = write.open_table(TOLD)?;
                for Record { key, has } in records {
                    // Texts always have a form in JSON.
                    let Ok(key) = text_of(key) else { continue };
                    match has {
                        Some(state) => {
                            let rules = state.on_delete.iter().map(|rule| &**rule).collect();
                            let had = (&state.hash, &*state.uid, rules);
                            drop(table.insert(key.as_str(), had)?);
                        }
                        None => drop(table.remove(key.as_str())?),
                    }
                }
            }
            write.commit()?;
            Ok(())
        };
        record().map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(group: &str, namespace: &str, name: &str) -> ObjectKey {
        ObjectKey {
            resource: Resource::new(group, "v1", "things"),
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    #[test]
    fn what_was_told_is_there_in_the_next_life() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c1/sink.redb");
        // Names that would be taken for each other, were they only put together.
        let keys = [
            key("", "a", "b"),
            key("", "", "a/b"),
            key("x.example", "a\"", "b"),
        ];
        let has = |n: u8| {
            let rules = (0..n).map(|rule| Arc::from(format!("ns/{rule}")));
            Some(State {
                uid: format!("u{n}").into(),
                version: 0,
                hash: [n; 32],
                on_delete: rules.collect(),
            })
        };
        let memory = Memory::open(&path).unwrap();
        assert!(memory.load().unwrap().is_empty());
        let records: Vec<Record> = (0..)
            .zip(&keys)
            .map(|(n, key)| Record {
                key: key.clone(),
                has: has(n),
            })
            .collect();
        memory.record(&records).unwrap();
        let gone = Record {
            key: keys[0].clone(),
            has: None,
        };
        memory.record(&[gone]).unwrap();
        drop(memory);
        let had = Memory::open(&path).unwrap().load().unwrap();
        assert_eq!(had.len(), 2);
        for (n, key) in (1..).zip(&keys[1..]) {
            assert_eq!(had.get(key).cloned(), has(n), "{key}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_used_is_named_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sink.redb");
        std::fs::write(&path, "something else").unwrap();
        let error = Memory::open(&path).unwrap_err();
        assert!(error.contains("sink.redb"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "something else");
        let error = Memory::open(&path.join("below/it")).unwrap_err();
        assert!(error.contains("below/it"), "{error}");
    }
}
