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
mod events;
mod layers;
mod lease;
mod list;
mod problem;
#[cfg(test)]
mod reference;
mod running;
mod sink;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::time::Duration;

use config::{Config, Value, ValueKind};
use serde::Deserialize;

pub(crate) use cluster::check_name;
pub use cluster::{Cluster, ClusterAccess};
pub use duration::parse as parse_duration;
pub use events::{Broker, EventDialect, Mqtt};
pub use lease::{LEASE_JITTER, LeaseTimes};
use problem::Conflict;
pub use problem::{Problem, SettingsError};
pub use running::{Changes, Running};
pub use sink::{GitSink, Sink, SinkKind};

/// Settings of a process.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Settings {
    /// The hub and its API server.
    pub hub: Hub,
    /// How works and status travel.
    pub transport: Transport,
    /// Works as CloudEvents over MQTT.
    pub mqtt: Mqtt,
    /// The MQTT broker of this process.
    pub broker: Broker,
    /// The clusters whose agents run in this process.
    #[serde(default)]
    pub clusters: Vec<Cluster>,
    /// How live values come back.
    pub feedback: Feedback,
    /// Watches of objects whose values come back.
    pub watch: Watch,
    /// What of watch rules is not in the rules.
    pub rules: Rules,
    /// Where the events of watch rules go. Without any, agents have no rules.
    #[serde(default)]
    pub sinks: Vec<Sink>,
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
    /// Most connections to the embedded API server; `None` follows from the descriptor limit.
    pub max_connections: Option<NonZeroUsize>,
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
    /// How long the agent of a cluster that was given up may still come back.
    #[serde(deserialize_with = "duration::deserialize")]
    pub abandon_after: Duration,
    /// Whether the hub on a Kubernetes cluster works only while this process holds a lease there.
    /// `None`: in a pod, or where the lease has a namespace. There is none over the embedded API
    /// server.
    pub leader_election: Option<bool>,
    /// Namespace of the lease; `None` is the pod's, else `open-cluster-management-hub`.
    pub lease_namespace: Option<String>,
    /// How long others wait for a holder that does not renew.
    #[serde(deserialize_with = "duration::deserialize")]
    pub lease_duration: Duration,
    /// How long a holder that cannot renew goes on.
    #[serde(deserialize_with = "duration::deserialize")]
    pub lease_renew_deadline: Duration,
    /// Time between two tries to take or renew.
    #[serde(deserialize_with = "duration::deserialize")]
    pub lease_retry_period: Duration,
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
    /// As CloudEvents over an MQTT broker.
    Mqtt,
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

/// Watches of objects whose values come back.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Watch {
    /// Most watch requests that an agent has open for them; 0 polls everything.
    pub max_watches: u32,
    /// Objects of one type in one namespace from which on they share a watch.
    pub widen_after: NonZeroU32,
    /// Whether works that are ready give their watches back.
    pub stop_when_ready: bool,
    /// How long watch rules have to stay as they are before their watches follow.
    #[serde(deserialize_with = "duration::deserialize")]
    pub debounce: Duration,
    /// How long the watches of rules that keep changing wait at most.
    #[serde(deserialize_with = "duration::deserialize")]
    pub debounce_max: Duration,
    /// How often the watches of rules are looked over, whatever happens.
    #[serde(deserialize_with = "duration::deserialize")]
    pub heartbeat: Duration,
    /// Which watches of rules are opened anew when rules change what is watched.
    pub restart: Restart,
}

impl Watch {
    fn conflicts(&self) -> Option<Conflict> {
        (self.debounce > self.debounce_max).then(|| Conflict {
            key: "watch.debounce",
            found: format!("{:?}", self.debounce),
            rule: format!(
                "must not be more than watch.debounce_max, {:?}",
                self.debounce_max
            ),
            others: &["watch.debounce_max"],
        })
    }
}

/// Which watches of rules are opened anew when rules change what is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Restart {
    /// All of them.
    Wholesale,
    /// Those that are new.
    Incremental,
}

/// What of watch rules is not in the rules.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Rules {
    /// Most events that wait for a sink.
    pub queue_events: NonZeroU32,
    /// Most bytes of objects in them.
    pub queue_bytes: NonZeroU32,
    /// Where what sinks have been told is kept over restarts; `None` keeps it nowhere.
    pub data_dir: Option<PathBuf>,
    /// Resources that are not watched even if a rule names them, each `resource.group`.
    #[serde(deserialize_with = "list::deserialize")]
    pub never_watch: Vec<String>,
}

/// What all agents of the process share.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Agent {
    /// Works that are applied at the same time.
    pub workers: NonZeroUsize,
    /// Whose AppliedManifestWorks the agents take for their own; `None` is the hash of the hub's
    /// address.
    pub agent_id: Option<String>,
    /// How long objects stay whose work is gone from the hub without having been deleted there.
    #[serde(deserialize_with = "duration::deserialize")]
    pub eviction_grace: Duration,
    /// Requests a second to a cluster, on average; below 0 as many as there are.
    pub spoke_qps: f64,
    /// Requests to a cluster that may come at once.
    pub spoke_burst: NonZeroU32,
    /// Requests a second to the hub, on average; below 0 as many as there are.
    pub hub_qps: f64,
    /// Requests to the hub that may come at once.
    pub hub_burst: NonZeroU32,
    /// Whether the agents work only while this process holds a lease. `None`: in a pod, or where
    /// the lease has a namespace or a kubeconfig.
    pub leader_election: Option<bool>,
    /// Namespace of the lease; `None` is the pod's, else `open-cluster-management-agent`.
    pub lease_namespace: Option<String>,
    /// Access to the cluster that has the lease; `None` is the pod's, else the agent's own cluster.
    pub lease_kubeconfig: Option<PathBuf>,
    /// How long others wait for a holder that does not renew.
    #[serde(deserialize_with = "duration::deserialize")]
    pub lease_duration: Duration,
    /// How long a holder that cannot renew goes on.
    #[serde(deserialize_with = "duration::deserialize")]
    pub lease_renew_deadline: Duration,
    /// Time between two tries to take or renew.
    #[serde(deserialize_with = "duration::deserialize")]
    pub lease_retry_period: Duration,
    /// Files whose change ends the process, so that it starts again with what they hold now.
    #[serde(default, deserialize_with = "list::deserialize")]
    pub terminate_on_files: Vec<String>,
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
    /// Where metrics and probes are served, over HTTP.
    pub listen: SocketAddr,
    /// Where metrics and probes are served over HTTPS. `None`: for agents alone in a pod on
    /// `0.0.0.0:8443`, else nowhere.
    pub https_listen: Option<SocketAddr>,
    /// Least version of TLS there; `None` is 1.2.
    pub tls_min_version: Option<TlsVersion>,
    /// Cipher suites of TLS 1.2 there, by their IANA names; none means all.
    #[serde(default, deserialize_with = "list::deserialize")]
    pub tls_cipher_suites: Vec<String>,
    /// Names that are answered to over HTTP, beside addresses and `localhost`.
    #[serde(default, deserialize_with = "list::deserialize")]
    pub allowed_hosts: Vec<String>,
    /// Most connections to each of these ports; `None` follows from the descriptor limit.
    pub max_connections: Option<NonZeroUsize>,
    /// Form of the log.
    pub log_format: LogFormat,
    /// Filter of the log, in `tracing`'s `EnvFilter` syntax.
    pub log_level: String,
}

/// Versions of TLS, as Kubernetes spells them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum TlsVersion {
    /// 1.2.
    #[serde(rename = "VersionTLS12")]
    V12,
    /// 1.3.
    #[serde(rename = "VersionTLS13")]
    V13,
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
    flags: Vec<Flag>,
}

/// A setting from the command line.
#[derive(Debug, Clone)]
struct Flag {
    key: String,
    value: String,
    origin: String,
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
    pub fn with_flag(self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.with_named_flag(key, value, "command line")
    }

    /// [`Sources::with_flag`] for a flag with a name of its own, which problems then tell.
    #[must_use]
    pub fn with_named_flag(
        mut self,
        key: impl Into<String>,
        value: impl Into<String>,
        origin: impl Into<String>,
    ) -> Self {
        self.flags.push(Flag {
            key: key.into(),
            value: value.into(),
            origin: origin.into(),
        });
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

impl Sources {
    /// The file that is read, if any.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }
}

impl Settings {
    /// Brings the layers together.
    ///
    /// # Errors
    ///
    /// Tells every problem of every layer; see [`Problem`].
    pub fn load(sources: &Sources) -> Result<Self, SettingsError> {
        Self::read(merge(sources)?)
    }

    /// Reads the layers that were laid over each other, and checks what goes together.
    fn read(merged: Config) -> Result<Self, SettingsError> {
        let places = merged.cache.clone();
        let settings: Self = merged
            .try_deserialize()
            .map_err(|source| SettingsError::from(Problem::Merged { source }))?;
        let mut conflicts = settings.hub.lease_conflicts();
        conflicts.extend(settings.agent.lease_conflicts());
        conflicts.extend(settings.event_conflicts());
        conflicts.extend(settings.watch.conflicts());
        let conflict = |conflict: Conflict| {
            let mut keys = std::iter::once(&conflict.key).chain(conflict.others);
            let set = keys.find_map(|key| set_at(&places, key));
            Problem::Together {
                place: set.unwrap_or_else(|| "default".to_owned()),
                key: conflict.key,
                found: conflict.found,
                rule: conflict.rule,
            }
        };
        let mut problems: Vec<_> = conflicts.into_iter().map(conflict).collect();
        problems.extend(settings.sink_problems(&places));
        if problems.is_empty() {
            Ok(settings)
        } else {
            Err(SettingsError { problems })
        }
    }
}

/// Where a key, with its section, or an entry of a list, as `sinks[0]`, is set; `None` if only the
/// defaults have it.
fn set_at(merged: &Value, key: &str) -> Option<String> {
    let mut value = merged;
    for part in key.split('.') {
        let (name, index) = match part.split_once('[') {
            Some((name, index)) => (name, index.trim_end_matches(']').parse::<usize>().ok()),
            None => (part, None),
        };
        value = field(value, name)?;
        if let Some(index) = index {
            let ValueKind::Array(entries) = &value.kind else {
                return None;
            };
            value = entries.get(index)?;
        }
    }
    let origin = value.origin()?;
    (origin != "default").then(|| origin.to_owned())
}

/// The value of one key as text, whatever the others are; `None` where the layers cannot be read.
pub(crate) fn value_of(sources: &Sources, key: &str) -> Option<String> {
    let merged = merge(sources).ok()?.cache;
    let value = key.split('.').try_fold(&merged, field)?;
    Some(value.to_string())
}

/// Something that a setting names cannot be used.
#[derive(Debug)]
pub struct Unusable {
    /// The key with its section.
    pub key: String,
    /// What is wrong, with the key.
    pub message: String,
}

/// Problems with what settings name, each with the place where it is named.
///
/// # Errors
///
/// All of them, if there are any.
pub fn refuse(sources: &Sources, unusable: Vec<Unusable>) -> Result<(), SettingsError> {
    if unusable.is_empty() {
        return Ok(());
    }
    let places = merge(sources)?.cache;
    let problem = |Unusable { key, message }: Unusable| Problem::Unusable {
        place: set_at(&places, &key),
        message,
    };
    Err(SettingsError {
        problems: unusable.into_iter().map(problem).collect(),
    })
}

/// Lists every setting with its origin: all known keys in the order of `config/default.toml`, then
/// clusters and sinks.
///
/// # Errors
///
/// Fails like [`Settings::load`].
pub fn effective(sources: &Sources) -> Result<Vec<Effective>, SettingsError> {
    let merged = merge(sources)?;
    Settings::read(merged.clone())?;
    let merged = merged.cache;
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
    for list in check::LISTS {
        let Some(ValueKind::Array(entries)) = field(&merged, list).map(|value| &value.kind) else {
            continue;
        };
        for (index, entry) in entries.iter().enumerate() {
            if let ValueKind::Table(fields) = &entry.kind {
                let sorted: BTreeMap<_, _> = fields.iter().collect();
                let fields = sorted.into_iter();
                listing.extend(
                    fields.map(|(name, value)| listed(format!("{list}[{index}].{name}"), value)),
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
