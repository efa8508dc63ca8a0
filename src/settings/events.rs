//! Works as CloudEvents over MQTT, and the broker for them.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::problem::Conflict;
use super::{Driver, Settings, SinkKind, duration, list};

/// Works as CloudEvents over MQTT.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Mqtt {
    /// Host and port of the broker; `None` is the one of this process.
    pub broker: Option<String>,
    /// User at the broker.
    pub username: Option<String>,
    /// File with its password.
    pub password_file: Option<PathBuf>,
    /// Whether the connection is TLS; `None`: with a CA or a certificate of its own, or to port 8883.
    pub tls: Option<bool>,
    /// A CA beside the system's.
    pub ca_file: Option<PathBuf>,
    /// Certificate to show to the broker.
    pub client_cert_file: Option<PathBuf>,
    /// Its key.
    pub client_key_file: Option<PathBuf>,
    /// OCM's file for its MQTT driver, in place of the above.
    pub config_file: Option<PathBuf>,
    /// Form of topics and events.
    pub dialect: EventDialect,
    /// The hub's id among sources.
    pub source: Option<String>,
    /// Name of the client at the broker.
    pub client_id: Option<String>,
    /// Time between two requests for what may have been missed.
    #[serde(deserialize_with = "duration::deserialize")]
    pub resync_interval: Duration,
    /// How long an agent may be away before its cluster counts as unknown.
    #[serde(deserialize_with = "duration::deserialize")]
    pub away_after: Duration,
    /// Whether agents and hubs say that they are there.
    pub presence: bool,
    /// Where agents keep their works.
    pub data_dir: Option<PathBuf>,
    /// Clusters that nothing is sent to.
    #[serde(default, deserialize_with = "list::deserialize")]
    pub except_clusters: Vec<String>,
}

impl Mqtt {
    /// [`Mqtt::tls`] with its default.
    pub fn uses_tls(&self) -> bool {
        let is_usual = |broker: &String| broker.ends_with(":8883");
        self.tls.unwrap_or_else(|| {
            self.ca_file.is_some()
                || self.client_cert_file.is_some()
                || self.broker.as_ref().is_some_and(is_usual)
        })
    }
}

/// Forms of topics and events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventDialect {
    /// As OCM's `sdk-go` has it.
    SdkGo,
    /// As OCM's design proposed it.
    Enhancement,
}

/// The MQTT broker of this process.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Broker {
    /// Where it listens; `None`: there is none.
    pub listen: Option<SocketAddr>,
    /// Who may connect.
    pub users_file: Option<PathBuf>,
    /// Its certificate.
    pub cert_file: Option<PathBuf>,
    /// The key of that.
    pub key_file: Option<PathBuf>,
    /// CA of clients that show certificates.
    pub client_ca_file: Option<PathBuf>,
    /// Whether clients may connect that say nothing of themselves.
    pub allow_anonymous: bool,
    /// Largest packet, in bytes.
    pub max_packet_bytes: NonZeroU32,
    /// Clients at a time.
    pub max_connections: NonZeroU32,
    /// Those of one address.
    pub max_connections_of_address: NonZeroU32,
    /// Sessions, also of clients that are away.
    pub max_sessions: NonZeroU32,
    /// Those of one user.
    pub max_sessions_of_user: NonZeroU32,
    /// Messages that wait for a client.
    pub max_queued_messages: NonZeroU32,
}

fn shown(path: Option<&PathBuf>) -> String {
    path.map_or_else(String::new, |path| path.display().to_string())
}

impl Settings {
    /// Whether a sink of rules publishes to the broker.
    pub fn has_mqtt_sinks(&self) -> bool {
        let mut sinks = self.sinks.iter();
        sinks.any(|sink| matches!(sink.kind, SinkKind::Mqtt { .. }))
    }

    /// What does not go together.
    pub(super) fn event_conflicts(&self) -> Vec<Conflict> {
        let mut conflicts = Vec::new();
        let mut wrong = |key: &'static str, found: String, rule: &str| {
            conflicts.push(Conflict {
                key,
                found,
                rule: rule.to_owned(),
                others: &[],
            });
        };
        let (mqtt, broker) = (&self.mqtt, &self.broker);
        if broker.listen.is_some() {
            let both = "needs the other of broker.cert_file and broker.key_file";
            match (&broker.cert_file, &broker.key_file) {
                (Some(file), None) => wrong("broker.cert_file", file.display().to_string(), both),
                (None, Some(file)) => wrong("broker.key_file", file.display().to_string(), both),
                (None, None) if broker.client_ca_file.is_some() => wrong(
                    "broker.client_ca_file",
                    shown(broker.client_ca_file.as_ref()),
                    "needs broker.cert_file and broker.key_file",
                ),
                _ => {}
            }
        }
        let of_sinks = self.has_mqtt_sinks();
        if self.transport.driver != Driver::Mqtt && !of_sinks {
            return conflicts;
        }
        let both = "needs the other of mqtt.client_cert_file and mqtt.client_key_file";
        match (&mqtt.client_cert_file, &mqtt.client_key_file) {
            (Some(file), None) => wrong("mqtt.client_cert_file", file.display().to_string(), both),
            (None, Some(file)) => wrong("mqtt.client_key_file", file.display().to_string(), both),
            _ => {}
        }
        let (named, filed) = (mqtt.broker.is_some(), mqtt.config_file.is_some());
        if named && filed {
            wrong(
                "mqtt.config_file",
                shown(mqtt.config_file.as_ref()),
                "has the place of mqtt.broker: set one of them",
            );
        }
        if !named && !filed && broker.listen.is_none() {
            let key = if self.transport.driver == Driver::Mqtt {
                "transport.driver"
            } else {
                "sinks"
            };
            let rule = "needs mqtt.broker, mqtt.config_file or broker.listen";
            wrong(key, "\"mqtt\"".to_owned(), rule);
        }
        if !named && !filed && broker.listen.is_some() && broker.cert_file.is_some() {
            wrong(
                "broker.cert_file",
                shown(broker.cert_file.as_ref()),
                "needs mqtt.broker: the address that the certificate is for",
            );
        }
        conflicts
    }
}

#[cfg(test)]
mod tests {
    use super::super::Sources;
    use super::*;

    fn load(set: &[(&str, &str)]) -> Result<Settings, String> {
        let with = |sources: Sources, (key, value): &(&str, &str)| sources.with_flag(*key, *value);
        let sources = set.iter().fold(Sources::default(), with);
        Settings::load(&sources).map_err(|error| error.to_string())
    }

    #[test]
    fn tls_is_used_where_it_is_usual_unless_told_otherwise() {
        for (set, expected) in [
            (&[("mqtt.broker", "b:1883")][..], false),
            (&[("mqtt.broker", "b:8883")], true),
            (&[("mqtt.broker", "b:1883"), ("mqtt.ca_file", "/f")], true),
            (&[("mqtt.broker", "b:8883"), ("mqtt.tls", "false")], false),
            (&[("mqtt.broker", "b:1"), ("mqtt.tls", "true")], true),
        ] {
            assert_eq!(load(set).unwrap().mqtt.uses_tls(), expected, "{set:?}");
        }
    }

    #[test]
    fn what_does_not_go_together_is_told() {
        const MQTT: (&str, &str) = ("transport.driver", "mqtt");
        const LISTEN: (&str, &str) = ("broker.listen", "127.0.0.1:0");
        for (set, rule) in [
            (
                &[MQTT][..],
                "needs mqtt.broker, mqtt.config_file or broker.listen",
            ),
            (
                &[MQTT, ("mqtt.broker", "b:1"), ("mqtt.config_file", "/f")],
                "has the place of mqtt.broker",
            ),
            (
                &[MQTT, ("mqtt.broker", "b:1"), ("mqtt.client_key_file", "/f")],
                "mqtt.client_cert_file",
            ),
            (&[LISTEN, ("broker.cert_file", "/f")], "broker.key_file"),
            (
                &[LISTEN, ("broker.client_ca_file", "/f")],
                "needs broker.cert_file",
            ),
            (
                &[
                    MQTT,
                    LISTEN,
                    ("broker.cert_file", "/f"),
                    ("broker.key_file", "/f"),
                ],
                "needs mqtt.broker",
            ),
        ] {
            let error = load(set).unwrap_err();
            assert!(error.contains(rule), "{error}");
        }
        for set in [
            &[MQTT, ("mqtt.broker", "b:1")][..],
            &[MQTT, ("mqtt.config_file", "/f")],
            &[MQTT, LISTEN],
            &[LISTEN],
        ] {
            load(set).unwrap();
        }
    }
}
