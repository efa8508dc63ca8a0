//! Settings: what they are, and how they come together from files, environment and flags.
//!
//! Layers, each over the one before: `config/default.toml` (built in, with every key), a TOML file,
//! the environment (`MUSTER__FEEDBACK__POLL_INTERVAL=30s`), flags. Every layer is checked as it
//! stands, against one table of keys, so that all problems are told at once and each with its
//! place.
//!
//! ```
//! use muster::settings::{Settings, Sources};
//!
//! let sources = Sources::default().with_flag("feedback.poll_interval", "30s");
//! let settings = Settings::load(&sources)?;
//! assert_eq!(settings.feedback.poll_interval.as_secs(), 30);
//!
//! let sources = Sources::default().with_flag("feedback.pol_interval", "30s");
//! let error = Settings::load(&sources).unwrap_err();
//! assert!(error.to_string().contains("feedback.poll_interval"));
//! # Ok::<(), muster::settings::SettingsError>(())
//! ```

mod check;
mod cluster;
mod duration;
mod layers;
mod problem;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use config::{Config, Value, ValueKind};
use serde::Deserialize;

pub use cluster::{Cluster, ClusterAccess};
pub use duration::parse as parse_duration;
pub use problem::{Problem, SettingsError};

/// Settings of a process.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Settings {
    /// The hub and its API server.
    pub hub: Hub,
    /// How works and status travel.
    pub transport: Transport,
    /// The clusters whose agents run in this process.
    #[serde(default)]
    pub clusters: Vec<Cluster>,
    /// How live values come back.
    pub feedback: Feedback,
    /// What all agents of the process share.
    pub agent: Agent,
    /// Simulated clusters.
    pub simulator: Simulator,
    /// Logs, metrics and probes.
    pub telemetry: Telemetry,
}

/// The hub and its API server.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Hub {
    /// Where the hub's objects live.
    pub api: HubApi,
    /// Where the embedded API server listens.
    pub listen: SocketAddr,
    /// Where the embedded API server keeps its objects; `None` keeps them in memory.
    pub data_dir: Option<PathBuf>,
    /// Access to the hub's cluster; `None` infers it as kubectl does.
    pub kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig; `None` takes the current one.
    pub context: Option<String>,
    /// Whether CRDs that the hub's cluster lacks are created there.
    pub install_crds: bool,
    /// Whether this hub decides placements and registers the configured clusters; `None` does so
    /// with the embedded API server, where nobody else would.
    pub resolve_placements: Option<bool>,
}

impl Hub {
    /// [`Hub::resolve_placements`] with its default.
    pub fn resolves_placements(&self) -> bool {
        self.resolve_placements
            .unwrap_or(self.api == HubApi::Embedded)
    }
}

/// Where the hub's objects live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HubApi {
    /// In muster's own API server.
    Embedded,
    /// In a Kubernetes cluster.
    Kubeconfig,
}

/// How works and status travel.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Transport {
    /// The way they take.
    pub driver: Driver,
}

/// Ways for works and status to travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Driver {
    /// Within the process.
    Loopback,
    /// Through the hub's API server.
    Kube,
}

/// How live values come back.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Feedback {
    /// Time between two reads of an object whose scrape type is Poll.
    #[serde(deserialize_with = "duration::deserialize")]
    pub poll_interval: Duration,
    /// Longest list or object that a value may hold, in bytes of JSON.
    pub max_json_raw_bytes: NonZeroU32,
    /// How long a change of status waits for others to be sent along.
    #[serde(deserialize_with = "duration::deserialize")]
    pub coalesce: Duration,
    /// Whether lists and objects are reported, as JSON text.
    pub raw_json: bool,
}

/// What all agents of the process share.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Agent {
    /// Works that are applied at the same time.
    pub workers: NonZeroUsize,
}

/// Simulated clusters.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Simulator {
    /// How long a replica takes to become ready.
    #[serde(deserialize_with = "duration::deserialize")]
    pub pace: Duration,
}

/// Logs, metrics and probes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Telemetry {
    /// Where metrics and probes are served.
    pub listen: SocketAddr,
    /// Form of the log.
    pub log_format: LogFormat,
    /// Filter of the log, in `tracing`'s `EnvFilter` syntax.
    pub log_level: String,
}

/// Form of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// A line for people.
    Text,
    /// A JSON object a line.
    Json,
}

/// Where settings come from, besides the built-in defaults.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    file: Option<PathBuf>,
    environment: BTreeMap<String, String>,
    flags: Vec<(String, String)>,
}

impl Sources {
    /// The file named by `--config`, else by `MUSTER_CONFIG`, and the environment of the process.
    pub fn of_process(config: Option<PathBuf>) -> Self {
        let file = config.or_else(|| std::env::var_os("MUSTER_CONFIG").map(PathBuf::from));
        let sources = Self::default().with_environment(std::env::vars_os());
        match file {
            Some(file) => sources.with_file(file),
            None => sources,
        }
    }

    /// Reads a TOML file.
    #[must_use]
    pub fn with_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.file = Some(file.into());
        self
    }

    /// Reads variables that begin with `MUSTER__`; others are left out.
    #[must_use]
    pub fn with_environment<K: Into<OsString>, V: Into<OsString>>(
        mut self,
        variables: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        for (name, value) in variables {
            let name = name.into().to_string_lossy().into_owned();
            if layers::is_variable(&name) {
                // A value that is not Unicode is refused by the check of its key, or harmless.
                self.environment
                    .insert(name, value.into().to_string_lossy().into_owned());
            }
        }
        self
    }

    /// Sets a key, named with its section, over all other layers.
    #[must_use]
    pub fn with_flag(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.flags.push((key.into(), value.into()));
        self
    }
}

/// A setting as it came out, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effective {
    /// The key with its section, for example `hub.listen` or `clusters[0].name`.
    pub key: String,
    /// The value as text; `None` where neither a layer nor the defaults give one.
    pub value: Option<String>,
    /// Where the value comes from: `default`, `<file>:<line>`, a variable, or the command line.
    pub origin: String,
}

impl Settings {
    /// Brings the layers together.
    ///
    /// # Errors
    ///
    /// Tells every problem of every layer; see [`Problem`].
    pub fn load(sources: &Sources) -> Result<Self, SettingsError> {
        let merged = merge(sources)?;
        merged
            .try_deserialize()
            .map_err(|source| SettingsError::from(Problem::Merged { source }))
    }
}

/// Lists every setting with its origin: all known keys in the order of `config/default.toml`, then
/// clusters.
///
/// # Errors
///
/// Fails like [`Settings::load`].
pub fn effective(sources: &Sources) -> Result<Vec<Effective>, SettingsError> {
    let merged = merge(sources)?.cache;
    let mut listing: Vec<_> = check::keys()
        .map(|key| {
            let value = key.split('.').try_fold(&merged, field);
            value.map_or_else(
                || Effective {
                    key: key.to_owned(),
                    value: None,
                    origin: "unset".to_owned(),
                },
                |value| listed(key.to_owned(), value),
            )
        })
        .collect();
    if let Some(ValueKind::Array(clusters)) = field(&merged, "clusters").map(|value| &value.kind) {
        for (index, cluster) in clusters.iter().enumerate() {
            if let ValueKind::Table(fields) = &cluster.kind {
                let sorted: BTreeMap<_, _> = fields.iter().collect();
                let fields = sorted.into_iter();
                listing.extend(
                    fields.map(|(name, value)| listed(format!("clusters[{index}].{name}"), value)),
                );
            }
        }
    }
    Ok(listing)
}

fn field<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    match &value.kind {
        ValueKind::Table(fields) => fields.get(name),
        _ => None,
    }
}

fn listed(key: String, value: &Value) -> Effective {
    Effective {
        key,
        value: Some(value.to_string()),
        origin: value.origin().unwrap_or_default().to_owned(),
    }
}

/// Reads and checks every layer, and lays them over each other.
fn merge(sources: &Sources) -> Result<Config, SettingsError> {
    let (layers, mut problems) = layers::read(sources);
    let mut builder = Config::builder();
    for layer in layers {
        problems.extend(check::layer(&layer));
        builder = builder.add_source(layer);
    }
    if problems.is_empty() {
        builder
            .build()
            .map_err(|source| SettingsError::from(Problem::Merged { source }))
    } else {
        Err(SettingsError { problems })
    }
}

#[cfg(test)]
mod tests;
