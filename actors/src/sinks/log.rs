//! The sink `log`: one line of JSON for each event, to standard output or to a file.
//!
//! ```json
//! {"time":"2026-01-01T00:00:00Z","sequence":7,"cluster":"edge-1","operation":"UPDATE","apiVersion":"v1","kind":"ConfigMap","resource":"configmaps","namespace":"ns1","name":"a","uid":"…","resourceVersion":"41","rules":["ns1/maps"],"object":{…}}
//! ```
//!
//! A file that would grow beyond its limit is renamed first, `events.log` to `events.log.1` and so
//! on; the oldest is deleted. Lines are whole: one that was cut short by a full disk is ended before
//! the next try, and its event comes again.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt;
use futures::future::BoxFuture;
use muster_core::rule_events::Event;
use serde::Serialize;

use super::body::Body;
use super::{Sink, SinkError, refused_in_plain};
use crate::rules::SinkMaker;

/// Where lines go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogTarget {
    /// Standard output.
    Stdout,
    /// A file, with older ones beside it.
    File {
        /// Its path; missing folders are made.
        path: PathBuf,
        /// Most bytes of a file. A line that is longer has one of its own.
        max_bytes: u64,
        /// Older files that are kept.
        keep: u32,
    },
}

/// The sink. See the module.
#[derive(Debug)]
struct LogSink {
    cluster: Arc<str>,
    writer: Arc<Mutex<Writer>>,
}

#[derive(Debug)]
struct Writer {
    target: LogTarget,
    file: Option<(File, u64)>,
    /// The last line has no end.
    cut: bool,
}

/// Makes sinks that write to one target. Clusters of one process share its file.
#[derive(Debug)]
pub struct LogSinks {
    writer: Arc<Mutex<Writer>>,
    plain_secrets: bool,
}

impl LogSinks {
    /// Opens nothing yet.
    pub fn new(target: LogTarget) -> Self {
        let writer = Writer {
            target,
            file: None,
            cut: false,
        };
        Self {
            writer: Arc::new(Mutex::new(writer)),
            plain_secrets: false,
        }
    }

    /// Whether Secrets are written, too, as they are.
    #[must_use]
    pub fn plain_secrets(self, plain_secrets: bool) -> Self {
        Self {
            plain_secrets,
            ..self
        }
    }

    fn of(&self, cluster: &str) -> LogSink {
        LogSink {
            cluster: cluster.into(),
            writer: Arc::clone(&self.writer),
        }
    }
}

impl SinkMaker for LogSinks {
    fn make(&self, cluster: &str, _: bool) -> Box<dyn Sink> {
        Box::new(self.of(cluster))
    }

    fn refuses(&self) -> Vec<((&str, &str), &str)> {
        refused_in_plain(self.plain_secrets)
    }
}

impl Sink for LogSink {
    fn deliver<'a>(&'a mut self, events: &'a [Event]) -> BoxFuture<'a, Result<(), SinkError>> {
        let lines: Result<Vec<String>, _> = events
            .iter()
            .map(|event| line(&self.cluster, event))
            .collect();
        let writer = Arc::clone(&self.writer);
        async move {
            let lines =
                lines.map_err(|error| SinkError::new(format!("event not encoded: {error}")))?;
            let written = tokio::task::spawn_blocking(move || {
                let mut writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
                writer.write(&lines)
            });
            let written = written
                .await
                .map_err(|error| SinkError::new(error.to_string()))?;
            written.map_err(SinkError::new)
        }
        .boxed()
    }
}

#[derive(Serialize)]
struct Line<'a> {
    time: String,
    sequence: u64,
    cluster: &'a str,
    #[serde(flatten)]
    body: Body<'a>,
}

fn line(cluster: &str, event: &Event) -> serde_json::Result<String> {
    let line = Line {
        time: event.seen.to_string(),
        sequence: event.sequence,
        cluster,
        body: Body::of(event)?,
    };
    let mut line = serde_json::to_string(&line)?;
    line.push('\n');
    Ok(line)
}

/// The name of the `n`th older file.
fn older(path: &Path, n: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{n}"));
    name.into()
}

impl Writer {
    fn write(&mut self, lines: &[String]) -> Result<(), String> {
        match self.target.clone() {
            LogTarget::Stdout => {
                let mut out = io::stdout().lock();
                let all = lines.concat();
                let written = out.write_all(all.as_bytes()).and_then(|()| out.flush());
                written.map_err(|error| format!("standard output: {error}"))
            }
            LogTarget::File {
                path,
                max_bytes,
                keep,
            } => {
                for line in lines {
                    let written = self.write_to(&path, line, max_bytes, keep);
                    if let Err(error) = written {
                        self.file = None; // opened anew, should somebody have moved it
                        return Err(format!("{}: {error}", path.display()));
                    }
                }
                Ok(())
            }
        }
    }

    fn write_to(&mut self, path: &Path, line: &str, max_bytes: u64, keep: u32) -> io::Result<()> {
        let length = line.len() as u64;
        let (mut file, mut size) = if let Some(open) = self.file.take() {
            open
        } else {
            let older = (1..=keep).map(|n| older(path, n));
            for older in older.take_while(|older| older.exists()) {
                muster_privatefiles::narrow(&older)?;
            }
            open(path)?
        };
        if size > 0 && size + length > max_bytes {
            drop(file);
            rotate(path, keep)?;
            (file, size) = open(path)?;
            self.cut = false;
        }
        if self.cut {
            file.write_all(b"\n")?;
            self.cut = false;
        }
        self.cut = true;
        file.write_all(line.as_bytes())?;
        self.cut = false;
        self.file = Some((file, size + length));
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<(File, u64)> {
    muster_privatefiles::create_parents(path)?;
    let mut options = OpenOptions::new();
    let file = muster_privatefiles::open(path, options.create(true).append(true))?;
    let size = file.metadata()?.len();
    Ok((file, size))
}

/// Moves each file one on; the oldest goes.
fn rotate(path: &Path, keep: u32) -> io::Result<()> {
    let missing = |result: io::Result<()>| match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    };
    if keep == 0 {
        return missing(fs::remove_file(path));
    }
    for n in (1..keep).rev() {
        missing(fs::rename(older(path, n), older(path, n + 1)))?;
    }
    missing(fs::rename(path, older(path, 1)))
}

#[cfg(test)]
mod tests {
    use muster_core::rule_events::Operation;
    use serde_json::{Value, json};

    use super::super::body;
    use super::*;

    fn event(sequence: u64, operation: Operation, object: Option<&str>) -> Event {
        Event {
            sequence,
            ..body::tests::event(operation, object)
        }
    }

    fn sink(path: &Path, max_bytes: u64, keep: u32) -> LogSink {
        let path = path.to_owned();
        let target = LogTarget::File {
            path,
            max_bytes,
            keep,
        };
        LogSinks::new(target).of("c1")
    }

    fn lines(path: &Path) -> Vec<Value> {
        let text = fs::read_to_string(path).unwrap();
        assert!(text.ends_with('\n'), "{text}");
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn files_are_for_their_owner_only() {
        use std::os::unix::fs::PermissionsExt;

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/events.log");
        let event = event(1, Operation::Delete, None);
        sink(&path, 1_000, 2)
            .deliver(std::slice::from_ref(&event))
            .await
            .unwrap();
        let files = [path.clone(), older(&path, 1), older(&path, 2)];
        // As an earlier version has left them.
        for file in &files {
            fs::write(file, "{}\n").unwrap();
            fs::set_permissions(file, fs::Permissions::from_mode(0o644)).unwrap();
        }
        sink(&path, 1_000, 2).deliver(&[event]).await.unwrap();
        for file in &files {
            let mode = fs::metadata(file).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o600, "{}", file.display());
        }
        let mode = fs::metadata(path.parent().unwrap())
            .unwrap()
            .permissions()
            .mode()
            & 0o777;
        assert_eq!(mode, 0o700);
    }

    #[tokio::test]
    async fn an_event_is_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/events.log");
        let mut sink = sink(&path, 1_000_000, 3);
        let object = r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"}}"#;
        let events = [
            event(7, Operation::Update, Some(object)),
            event(8, Operation::Delete, None),
        ];
        sink.deliver(&events).await.unwrap();
        let common = json!({"time": "1970-01-01T00:00:00Z", "cluster": "c1", "apiVersion": "apps/v1",
            "kind": "Deployment", "resource": "deployments", "namespace": "ns1", "name": "web",
            "rules": ["ns1/all"]});
        let with = |more: Value| {
            let mut line = common.clone();
            let more = more.as_object().unwrap().clone();
            line.as_object_mut().unwrap().extend(more);
            line
        };
        let object: Value = serde_json::from_str(object).unwrap();
        let update = with(json!({"sequence": 7, "operation": "UPDATE", "uid": "u-1",
            "resourceVersion": "41", "object": object}));
        let delete = with(json!({"sequence": 8, "operation": "DELETE"}));
        assert_eq!(lines(&path), [update, delete]);
    }

    #[tokio::test]
    async fn a_file_that_is_full_makes_room_for_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.log");
        let mut sink = sink(&path, 600, 2);
        for sequence in 1..=8 {
            let event = event(sequence, Operation::Update, None);
            sink.deliver(&[event]).await.unwrap();
        }
        let sequences = |path: &Path| -> Vec<u64> {
            let lines = lines(path);
            lines
                .iter()
                .map(|line| line["sequence"].as_u64().unwrap())
                .collect()
        };
        let all: Vec<u64> = [older(&path, 2), older(&path, 1), path.clone()]
            .iter()
            .flat_map(|path| sequences(path))
            .collect();
        let first = all[0];
        assert!(first > 1 && all.iter().copied().eq(first..=8), "{all:?}");
        assert!(!older(&path, 3).exists());
        for path in [&path, &older(&path, 1)] {
            assert!(fs::metadata(path).unwrap().len() <= 600);
        }
        // A new life goes on in the file that is there.
        let mut again = self::sink(&path, 1_000_000, 2);
        again
            .deliver(&[event(9, Operation::Delete, None)])
            .await
            .unwrap();
        assert_eq!(sequences(&path).last(), Some(&9));
        assert!(sequences(&path).len() > 1);
    }

    #[tokio::test]
    async fn an_event_larger_than_a_file_has_one_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.log");
        let mut sink = sink(&path, 10, 0);
        for sequence in 1..=2 {
            let event = event(sequence, Operation::Delete, None);
            sink.deliver(&[event]).await.unwrap();
            assert_eq!(lines(&path).len(), 1);
        }
    }

    #[tokio::test]
    async fn what_cannot_be_written_is_told_with_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file/events.log");
        fs::write(folder.path().join("file"), "").unwrap();
        let mut sink = sink(&path, 10, 0);
        let error = sink.deliver(&[event(1, Operation::Delete, None)]).await;
        let text = error.unwrap_err().to_string();
        assert!(text.contains("file/events.log"), "{text}");
        // As soon as it can, it is.
        fs::remove_file(folder.path().join("file")).unwrap();
        sink.deliver(&[event(1, Operation::Delete, None)])
            .await
            .unwrap();
        assert_eq!(lines(&path).len(), 1);
    }
}
