//! Sinks: where the events of watch rules go.

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use config::Value;
use serde::Deserialize;

use super::check::Entry;
use super::{Problem, Settings, parse_duration, set_at};

/// A sink, which rules name as their destination.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Raw")]
pub struct Sink {
    /// Name.
    pub name: String,
    /// What it does.
    pub kind: SinkKind,
}

/// What a sink does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SinkKind {
    /// Writes a line of JSON for each event.
    Log {
        /// The file; `None` is standard output.
        path: Option<PathBuf>,
        /// Most bytes of a file, before the next one is begun.
        max_bytes: NonZeroU64,
        /// Older files that are kept.
        keep: u32,
        /// Secrets are written, too, as they are.
        plain_secrets: bool,
    },
    /// Publishes a CloudEvent for each event to the broker of the section `mqtt`.
    Mqtt {
        /// The topic; `{cluster}` in it is the cluster's name.
        topic: String,
        /// Secrets are published, too, as they are.
        plain_secrets: bool,
    },
    /// Keeps each object as a file on a branch of a Git repository.
    Git(Box<GitSink>),
}

/// A branch of a Git repository that objects are kept on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitSink {
    /// A folder of this machine, or a URL with `file`, `git`, `http` or `https`.
    pub url: String,
    /// The branch.
    pub branch: String,
    /// The folder in the repository; `{cluster}` in it is the cluster's name. Empty for all of it.
    pub folder: String,
    /// Who commits.
    pub author_name: String,
    /// The address of whoever commits.
    pub author_email: String,
    /// User and file with the password or token, for HTTP.
    pub login: Option<(String, PathBuf)>,
    /// CA of the server, where it is none of the system's.
    pub ca_file: Option<PathBuf>,
    /// Where objects of the repository are kept; `None`: below `rules.data_dir`.
    pub work_dir: Option<PathBuf>,
    /// What encrypts a Secret, from standard input to standard output.
    pub encrypt: Option<Vec<String>>,
    /// Changes that come within this time of the first make one commit.
    pub window: Duration,
}

/// A sink as it is written.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Raw {
    name: Option<String>,
    kind: Option<String>,
    path: Option<PathBuf>,
    max_bytes: Option<NonZeroU64>,
    keep: Option<u32>,
    topic: Option<String>,
    plain_secrets: Option<bool>,
    url: Option<String>,
    branch: Option<String>,
    folder: Option<String>,
    author_name: Option<String>,
    author_email: Option<String>,
    username: Option<String>,
    password_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
    work_dir: Option<PathBuf>,
    encrypt: Option<Vec<String>>,
    window: Option<String>,
}

/// Most bytes of a file, unless set: ten days of a change a second, each 100 bytes.
const MAX_BYTES: NonZeroU64 = NonZeroU64::new(100 << 20).unwrap();
const KEEP: u32 = 3;
/// Short enough that a change is in the repository within five seconds of a rule for it.
const WINDOW: Duration = Duration::from_secs(1);
const TOPIC: &str = "muster/clusters/{cluster}/rules/{sink}";

impl Entry for Raw {
    fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    fn check(&self) -> Result<(), String> {
        self.name.as_deref().ok_or("has no name")?;
        self.kind().map(|_| ())
    }
}

impl Raw {
    fn kind(&self) -> Result<SinkKind, String> {
        let kind = self
            .kind
            .as_deref()
            .ok_or("has no kind: \"log\", \"mqtt\" or \"git\"")?;
        // Each key with the kind that has it, and whether it is set.
        let keys = [
            ("path", "log", self.path.is_some()),
            ("max_bytes", "log", self.max_bytes.is_some()),
            ("keep", "log", self.keep.is_some()),
            ("topic", "mqtt", self.topic.is_some()),
            ("url", "git", self.url.is_some()),
            ("branch", "git", self.branch.is_some()),
            ("folder", "git", self.folder.is_some()),
            ("author_name", "git", self.author_name.is_some()),
            ("author_email", "git", self.author_email.is_some()),
            ("username", "git", self.username.is_some()),
            ("password_file", "git", self.password_file.is_some()),
            ("ca_file", "git", self.ca_file.is_some()),
            ("work_dir", "git", self.work_dir.is_some()),
            ("encrypt", "git", self.encrypt.is_some()),
            ("window", "git", self.window.is_some()),
        ];
        for (key, of, set) in keys {
            if set && of != kind {
                return Err(format!("has {key}, which a sink of kind {kind:?} has not"));
            }
        }
        if kind == "git" && self.plain_secrets.is_some() {
            return Err("has plain_secrets, which a sink of kind \"git\" has not".to_owned());
        }
        match kind {
            "mqtt" => self.mqtt(),
            "git" => self.git(),
            _ => self.log(),
        }
    }

    fn log(&self) -> Result<SinkKind, String> {
        if self.path.is_none() && (self.max_bytes.is_some() || self.keep.is_some()) {
            return Err("has max_bytes or keep, which are for a file, and no path".to_owned());
        }
        Ok(SinkKind::Log {
            path: self.path.clone(),
            max_bytes: self.max_bytes.unwrap_or(MAX_BYTES),
            keep: self.keep.unwrap_or(KEEP),
            plain_secrets: self.plain_secrets.unwrap_or_default(),
        })
    }

    fn mqtt(&self) -> Result<SinkKind, String> {
        let topic = self.topic.as_deref().unwrap_or(TOPIC);
        if topic.contains(['+', '#']) {
            return Err(format!("has a topic with a wildcard: {topic}"));
        }
        Ok(SinkKind::Mqtt {
            topic: topic.replace("{sink}", self.name.as_deref().unwrap_or_default()),
            plain_secrets: self.plain_secrets.unwrap_or_default(),
        })
    }

    fn git(&self) -> Result<SinkKind, String> {
        let login = match (&self.username, &self.password_file) {
            (Some(user), Some(file)) => Some((user.clone(), file.clone())),
            (None, None) => None,
            _ => return Err("has one of username and password_file without the other".to_owned()),
        };
        let text =
            |value: &Option<String>, usual: &str| value.clone().unwrap_or_else(|| usual.to_owned());
        Ok(SinkKind::Git(Box::new(GitSink {
            url: self.url.clone().ok_or("has no url")?,
            branch: text(&self.branch, "main"),
            folder: text(&self.folder, "clusters/{cluster}"),
            author_name: text(&self.author_name, "muster"),
            author_email: text(&self.author_email, "muster@localhost"),
            login,
            ca_file: self.ca_file.clone(),
            work_dir: self.work_dir.clone(),
            encrypt: self.encrypt.clone(),
            window: match &self.window {
                Some(text) => parse_duration(text).ok_or_else(|| {
                    format!("has an invalid window {text:?} (examples: 1s, 500ms)")
                })?,
                None => WINDOW,
            },
        })))
    }
}

impl TryFrom<Raw> for Sink {
    type Error = String;

    fn try_from(raw: Raw) -> Result<Self, String> {
        raw.check()?;
        let kind = raw.kind()?;
        Ok(Self {
            name: raw.name.unwrap_or_default(),
            kind,
        })
    }
}

impl Settings {
    /// A sink that has no place for what it keeps.
    pub(super) fn sink_problems(&self, places: &Value) -> Vec<Problem> {
        let homeless = |sink: &Sink| match &sink.kind {
            SinkKind::Git(git) => git.work_dir.is_none() && self.rules.data_dir.is_none(),
            SinkKind::Log { .. } | SinkKind::Mqtt { .. } => false,
        };
        let sinks = self.sinks.iter().enumerate();
        let problem = |(index, sink): (usize, &Sink)| {
            let entry = format!("sinks[{index}]");
            Problem::Entry {
                place: set_at(places, &entry).unwrap_or_default(),
                entry: format!("{entry} ({})", sink.name),
                message: "needs work_dir, or rules.data_dir for all sinks".to_owned(),
            }
        };
        sinks
            .filter(|(_, sink)| homeless(sink))
            .map(problem)
            .collect()
    }
}
