//! Checks one layer against the table of keys.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use config::{Map, Value, ValueKind};
use serde::de::DeserializeOwned;

use super::layers::Layer;
use super::{Problem, cluster, duration, list, sink};
use crate::telemetry;

/// What a key takes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Expect {
    Text,
    /// A text, also an empty one.
    MayBeEmpty,
    Address,
    LogFilter,
    Boolean,
    OneOf(&'static [&'static str]),
    /// At least one.
    Count,
    /// Zero or more.
    Number,
    Duration {
        least: Duration,
    },
    /// A number but zero.
    Rate,
    /// Texts, none of them empty.
    Texts,
    /// Text by text.
    Labels,
}

const ANY_DURATION: Expect = Expect::Duration {
    least: Duration::ZERO,
};

const SECOND: Duration = Duration::from_secs(1);
const TENTH: Duration = Duration::from_millis(100);

/// Leases count in whole seconds.
const LEASE: Expect = Expect::Duration { least: SECOND };
const PART_OF_LEASE: Expect = Expect::Duration { least: TENTH };

/// Every key, in the order of `config/default.toml`.
const KEYS: &[(&str, Expect)] = &[
    ("hub.api", Expect::OneOf(&["embedded", "kubeconfig"])),
    ("hub.listen", Expect::Address),
    ("hub.max_connections", Expect::Count),
    ("hub.data_dir", Expect::Text),
    ("hub.kubeconfig", Expect::Text),
    ("hub.context", Expect::Text),
    ("hub.install_crds", Expect::Boolean),
    ("hub.resolve_placements", Expect::Boolean),
    ("hub.abandon_after", ANY_DURATION),
    ("hub.leader_election", Expect::Boolean),
    ("hub.lease_namespace", Expect::Text),
    ("hub.lease_duration", LEASE),
    ("hub.lease_renew_deadline", PART_OF_LEASE),
    ("hub.lease_retry_period", PART_OF_LEASE),
    (
        "transport.driver",
        Expect::OneOf(&["loopback", "kube", "mqtt"]),
    ),
    ("mqtt.broker", Expect::Text),
    ("mqtt.username", Expect::Text),
    ("mqtt.password_file", Expect::Text),
    ("mqtt.tls", Expect::Boolean),
    ("mqtt.ca_file", Expect::Text),
    ("mqtt.client_cert_file", Expect::Text),
    ("mqtt.client_key_file", Expect::Text),
    ("mqtt.config_file", Expect::Text),
    ("mqtt.dialect", Expect::OneOf(&["sdk-go", "enhancement"])),
    ("mqtt.source", Expect::Text),
    ("mqtt.client_id", Expect::Text),
    ("mqtt.resync_interval", Expect::Duration { least: SECOND }),
    ("mqtt.away_after", ANY_DURATION),
    ("mqtt.presence", Expect::Boolean),
    ("mqtt.data_dir", Expect::Text),
    ("mqtt.except_clusters", Expect::Texts),
    ("broker.listen", Expect::Address),
    ("broker.users_file", Expect::Text),
    ("broker.cert_file", Expect::Text),
    ("broker.key_file", Expect::Text),
    ("broker.client_ca_file", Expect::Text),
    ("broker.allow_anonymous", Expect::Boolean),
    ("broker.max_packet_bytes", Expect::Count),
    ("broker.max_connections", Expect::Count),
    ("broker.max_connections_of_address", Expect::Count),
    ("broker.max_sessions", Expect::Count),
    ("broker.max_sessions_of_user", Expect::Count),
    ("broker.max_queued_messages", Expect::Count),
    // Polling faster is a busy loop over the API server; whoever wants that wants Watch.
    ("feedback.poll_interval", Expect::Duration { least: TENTH }),
    ("feedback.max_json_raw_bytes", Expect::Count),
    ("feedback.coalesce", ANY_DURATION),
    ("feedback.raw_json", Expect::Boolean),
    ("watch.max_watches", Expect::Number),
    ("watch.widen_after", Expect::Count),
    ("watch.stop_when_ready", Expect::Boolean),
    ("watch.debounce", ANY_DURATION),
    ("watch.debounce_max", ANY_DURATION),
    ("watch.heartbeat", Expect::Duration { least: SECOND }),
    (
        "watch.restart",
        Expect::OneOf(&["wholesale", "incremental"]),
    ),
    ("rules.data_dir", Expect::Text),
    ("rules.queue_events", Expect::Count),
    ("rules.queue_bytes", Expect::Count),
    ("rules.never_watch", Expect::Texts),
    ("agent.workers", Expect::Count),
    ("agent.agent_id", Expect::Text),
    ("agent.eviction_grace", ANY_DURATION),
    ("agent.spoke_qps", Expect::Rate),
    ("agent.spoke_burst", Expect::Count),
    ("agent.hub_qps", Expect::Rate),
    ("agent.hub_burst", Expect::Count),
    ("agent.leader_election", Expect::Boolean),
    ("agent.lease_namespace", Expect::Text),
    ("agent.lease_kubeconfig", Expect::Text),
    ("agent.lease_duration", LEASE),
    ("agent.lease_renew_deadline", PART_OF_LEASE),
    ("agent.lease_retry_period", PART_OF_LEASE),
    ("agent.terminate_on_files", Expect::Texts),
    ("simulator.pace", ANY_DURATION),
    ("telemetry.listen", Expect::Address),
    ("telemetry.https_listen", Expect::Address),
    (
        "telemetry.tls_min_version",
        Expect::OneOf(&["VersionTLS12", "VersionTLS13"]),
    ),
    ("telemetry.tls_cipher_suites", Expect::Texts),
    ("telemetry.allowed_hosts", Expect::Texts),
    ("telemetry.max_connections", Expect::Count),
    ("telemetry.log_format", Expect::OneOf(&["text", "json"])),
    ("telemetry.log_level", Expect::LogFilter),
];

/// The keys of one cluster.
const CLUSTER_KEYS: &[(&str, Expect)] = &[
    ("name", Expect::Text),
    ("kubeconfig", Expect::Text),
    ("context", Expect::Text),
    ("in_cluster", Expect::Boolean),
    ("simulated", Expect::Boolean),
    ("labels", Expect::Labels),
];

/// The keys of one sink.
const SINK_KEYS: &[(&str, Expect)] = &[
    ("name", Expect::Text),
    ("kind", Expect::OneOf(&["log", "mqtt", "git"])),
    ("path", Expect::Text),
    ("max_bytes", Expect::Count),
    ("keep", Expect::Number),
    ("topic", Expect::Text),
    ("plain_secrets", Expect::Boolean),
    ("url", Expect::Text),
    ("branch", Expect::Text),
    ("folder", Expect::MayBeEmpty),
    ("author_name", Expect::Text),
    ("author_email", Expect::Text),
    ("username", Expect::Text),
    ("password_file", Expect::Text),
    ("ca_file", Expect::Text),
    ("work_dir", Expect::Text),
    ("encrypt", Expect::Texts),
    ("window", ANY_DURATION),
];

/// An entry of a list, as it is written.
pub(super) trait Entry: DeserializeOwned {
    /// Its name, by which it is known.
    fn name(&self) -> Option<&str>;
    /// What is wrong, as the rest of a sentence about it.
    fn check(&self) -> Result<(), String>;
}

const CLUSTERS: &str = "clusters";
const SINKS: &str = "sinks";
/// Lists of tables, which only a file can have.
pub(super) const LISTS: [&str; 2] = [CLUSTERS, SINKS];

/// The keys outside of clusters, with their sections.
pub(super) fn keys() -> impl Iterator<Item = &'static str> {
    KEYS.iter().map(|(key, _)| *key)
}

/// What a key outside of lists takes.
#[cfg(test)]
pub(super) fn expected(key: &str) -> Option<Expect> {
    find(KEYS, key)
}

/// The keys of an entry of a list, and what they take.
#[cfg(test)]
pub(super) fn list_keys(list: &str) -> impl Iterator<Item = (&'static str, Expect)> {
    let keys = if list == CLUSTERS {
        CLUSTER_KEYS
    } else {
        SINK_KEYS
    };
    keys.iter().copied()
}

/// Everything wrong in a layer, by line.
pub(super) fn layer(layer: &Layer) -> Vec<Problem> {
    let mut check = Check {
        textual: layer.textual,
        problems: Vec::new(),
    };
    check.entries("", &layer.values);
    check.problems.sort_by_key(|(line, _)| *line);
    check
        .problems
        .into_iter()
        .map(|(_, problem)| problem)
        .collect()
}

struct Check {
    textual: bool,
    /// With the line, 0 where there is none.
    problems: Vec<(usize, Problem)>,
}

impl Check {
    fn add(&mut self, value: &Value, problem: Problem) {
        let line = value
            .origin()
            .and_then(|origin| origin.rsplit_once(':')?.1.parse().ok());
        self.problems.push((line.unwrap_or(0), problem));
    }

    /// `path` is empty for the root. Keys of textual layers are whole paths.
    fn entries(&mut self, path: &str, table: &Map<String, Value>) {
        for (name, value) in sorted(table) {
            let key = if path.is_empty() {
                name.clone()
            } else {
                format!("{path}.{name}")
            };
            if let Some(expect) = find(KEYS, &key) {
                self.value(&key, value, expect);
            } else if key.split('.').next() == Some(CLUSTERS) {
                self.list::<cluster::Raw>(CLUSTERS, CLUSTER_KEYS, value);
            } else if key.split('.').next() == Some(SINKS) {
                self.list::<sink::Raw>(SINKS, SINK_KEYS, value);
            } else if sections().any(|section| section == key) {
                match &value.kind {
                    ValueKind::Table(section) => self.entries(&key, section),
                    _ => self.wrong(&key, value, "a section"),
                }
            } else {
                let known = keys().chain(sections()).chain(LISTS);
                self.unknown(&key, value, known.map(str::to_owned));
            }
        }
    }

    fn list<T: Entry>(&mut self, list: &str, keys: &[(&str, Expect)], value: &Value) {
        let ValueKind::Array(entries) = &value.kind else {
            return self.wrong(list, value, "a list in the settings file");
        };
        let mut names = BTreeMap::new();
        for (index, entry) in entries.iter().enumerate() {
            let path = format!("{list}[{index}]");
            let ValueKind::Table(table) = &entry.kind else {
                self.wrong(&path, entry, "a table");
                continue;
            };
            let before = self.problems.len();
            for (name, value) in sorted(table) {
                let key = format!("{path}.{name}");
                if let Some(expect) = find(keys, name) {
                    self.value(&key, value, expect);
                } else {
                    let known = keys.iter();
                    self.unknown(&key, value, known.map(|(name, _)| format!("{path}.{name}")));
                }
            }
            if self.problems.len() > before {
                continue;
            }
            match entry.clone().try_deserialize::<T>() {
                Ok(raw) => {
                    let name = raw.name().map(str::to_owned);
                    if let Err(message) = raw.check() {
                        self.entry(&path, name.as_deref(), entry, message);
                    }
                    let taken = name
                        .clone()
                        .and_then(|name| names.insert(name, path.clone()));
                    if let Some(first) = taken {
                        let message = format!("has the name of {first}");
                        self.entry(&path, name.as_deref(), entry, message);
                    }
                }
                Err(source) => self.add(entry, Problem::Merged { source }),
            }
        }
    }

    fn entry(&mut self, path: &str, name: Option<&str>, value: &Value, message: String) {
        let entry = match name {
            Some(name) => format!("{path} ({name})"),
            None => path.to_owned(),
        };
        self.add(
            value,
            Problem::Entry {
                place: place(value),
                entry,
                message,
            },
        );
    }

    fn value(&mut self, key: &str, value: &Value, expect: Expect) {
        if let Some(expected) = expect.unmet(value, self.textual) {
            self.wrong(key, value, &expected);
        }
    }

    fn wrong(&mut self, key: &str, value: &Value, expected: &str) {
        let found = match &value.kind {
            ValueKind::String(text) => format!("{text:?}"),
            ValueKind::Table(_) => "a section".to_owned(),
            ValueKind::Array(_) => "a list".to_owned(),
            other => other.to_string(),
        };
        let problem = Problem::WrongValue {
            place: place(value),
            key: key.to_owned(),
            found,
            expected: expected.to_owned(),
        };
        self.add(value, problem);
    }

    fn unknown(&mut self, key: &str, value: &Value, known: impl Iterator<Item = String>) {
        let nearest = known
            .map(|known| (strsim::normalized_damerau_levenshtein(key, &known), known))
            .max_by(|(mine, _), (theirs, _)| mine.total_cmp(theirs))
            .map(|(_, known)| known)
            .unwrap_or_default();
        let problem = Problem::UnknownKey {
            place: place(value),
            key: key.to_owned(),
            nearest,
        };
        self.add(value, problem);
    }
}

impl Expect {
    /// What was expected instead of `value`; `None` if it will do.
    fn unmet(self, value: &Value, textual: bool) -> Option<String> {
        let text = match &value.kind {
            ValueKind::String(text) => Some(text.as_str()),
            _ => None,
        };
        let spelled = text.filter(|_| textual);
        let met = match self {
            Self::Text => text.is_some_and(|text| !text.is_empty()),
            Self::MayBeEmpty => text.is_some(),
            Self::Address => text.is_some_and(|text| text.parse::<SocketAddr>().is_ok()),
            Self::LogFilter => text.is_some_and(telemetry::is_log_filter),
            Self::OneOf(choices) => text.is_some_and(|text| choices.contains(&text)),
            Self::Boolean => {
                matches!(value.kind, ValueKind::Boolean(_))
                    || matches!(spelled, Some("true" | "false"))
            }
            Self::Count => whole(&value.kind, spelled).is_some_and(|number| number > 0),
            Self::Number => whole(&value.kind, spelled).is_some(),
            Self::Duration { least } => text
                .and_then(duration::parse)
                .is_some_and(|duration| duration >= least),
            Self::Rate => {
                let number = match (&value.kind, spelled) {
                    // Far beyond any rate before it loses a digit.
                    (ValueKind::I64(number), _) => i32::try_from(*number).ok().map(f64::from),
                    (ValueKind::Float(number), _) => Some(*number),
                    (_, Some(text)) => text.parse().ok(),
                    _ => None,
                };
                number.is_some_and(|number| number.is_finite() && number != 0.0)
            }
            Self::Texts => match (&value.kind, spelled) {
                (ValueKind::Array(items), _) => items
                    .iter()
                    .all(|item| matches!(&item.kind, ValueKind::String(text) if !text.is_empty())),
                (_, Some(text)) => !list::parse(text).is_empty(),
                _ => false,
            },
            Self::Labels => match &value.kind {
                ValueKind::Table(labels) => labels
                    .values()
                    .all(|label| matches!(label.kind, ValueKind::String(_))),
                _ => false,
            },
        };
        (!met).then(|| self.describe())
    }

    fn describe(self) -> String {
        match self {
            Self::Text => "a text that is not empty".to_owned(),
            Self::MayBeEmpty => "a text".to_owned(),
            Self::Address => "an address with port, such as \"127.0.0.1:6443\"".to_owned(),
            Self::LogFilter => "a log level, such as \"info\" or \"info,kube=debug\"".to_owned(),
            Self::Boolean => "true or false".to_owned(),
            Self::OneOf(choices) => {
                let quoted: Vec<_> = choices.iter().map(|choice| format!("{choice:?}")).collect();
                quoted.join(" or ")
            }
            Self::Count => format!("a whole number from 1 to {}", u32::MAX),
            Self::Number => format!("a whole number from 0 to {}", u32::MAX),
            Self::Duration { least } if least.is_zero() => {
                "a duration, such as \"60s\" or \"10m\"".to_owned()
            }
            Self::Duration { least } => {
                format!("a duration of at least {least:?}, such as \"60s\" or \"10m\"")
            }
            Self::Rate => "a number, such as 50 or 0.5, or -1 for no limit".to_owned(),
            Self::Texts => "a list of texts".to_owned(),
            Self::Labels => "a table of texts".to_owned(),
        }
    }
}

fn whole(value: &ValueKind, spelled: Option<&str>) -> Option<u32> {
    match (value, spelled) {
        (ValueKind::I64(number), _) => u32::try_from(*number).ok(),
        (_, Some(text)) => text.parse().ok(),
        _ => None,
    }
}

fn find(keys: &[(&str, Expect)], name: &str) -> Option<Expect> {
    keys.iter()
        .find(|(key, _)| *key == name)
        .map(|(_, expect)| *expect)
}

fn sections() -> impl Iterator<Item = &'static str> {
    keys()
        .filter_map(|key| key.split_once('.'))
        .map(|(section, _)| section)
}

fn sorted(table: &Map<String, Value>) -> BTreeMap<&String, &Value> {
    table.iter().collect()
}

fn place(value: &Value) -> String {
    value.origin().unwrap_or("settings").to_owned()
}
