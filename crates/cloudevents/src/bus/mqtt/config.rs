//! OCM's file for its MQTT driver, read as it is.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::options::{CHECK_INTERVAL, MqttOptions, Pem, Tls};
use crate::{TopicError, Topics};

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It is no YAML, or a key has a value of another type.
    #[error("{0}")]
    Malformed(String),
    /// It names no broker.
    #[error("brokerHost is required")]
    NoBroker,
    /// A certificate goes with a key.
    #[error("either both or none of clientCertFile and clientKeyFile must be set")]
    HalfAPair,
    /// A key has a value that cannot be.
    #[error("{key} {value:?} {expected}")]
    Value {
        /// The key.
        key: &'static str,
        /// Its value.
        value: String,
        /// What it should be.
        expected: &'static str,
    },
    /// Its topics are no topics.
    #[error(transparent)]
    Topics(#[from] TopicError),
}

/// What OCM's MQTT driver is configured with. Unknown keys mean nothing, as there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriverConfig {
    /// Host and port.
    pub broker: String,
    /// User.
    pub username: Option<String>,
    password: Secret,
    /// See [`MqttOptions::keep_alive`].
    pub keep_alive: Duration,
    /// See [`MqttOptions::dial_timeout`].
    pub dial_timeout: Duration,
    /// 0, 1 or 2; 2 is treated as 1, which suffices since nobody minds what comes twice.
    pub publish_qos: u8,
    /// As `publish_qos`, for what comes.
    pub subscribe_qos: u8,
    /// TLS, unless nothing of it is configured. sdk-go connects without TLS where there is a CA and
    /// no client certificate; muster uses the CA.
    pub tls: Option<Tls>,
    /// The topics.
    pub topics: Topics,
}

#[derive(Clone, PartialEq, Eq)]
struct Secret(Option<String>);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(clippy::struct_field_names, reason = "keys of the file")]
struct File {
    broker_host: String,
    username: String,
    password: String,
    keep_alive: u16,
    dial_timeout: GoDuration,
    #[serde(rename = "pubQoS")]
    publish_qos: u8,
    #[serde(rename = "subQoS")]
    subscribe_qos: u8,
    ca_file: String,
    ca_data: String,
    client_cert_file: String,
    client_cert_data: String,
    client_key_file: String,
    client_key_data: String,
    topics: Option<Topics>,
}

impl Default for File {
    fn default() -> Self {
        Self {
            broker_host: String::new(),
            username: String::new(),
            password: String::new(),
            keep_alive: 60,
            dial_timeout: GoDuration::Nanoseconds(60_000_000_000),
            publish_qos: 1,
            subscribe_qos: 1,
            ca_file: String::new(),
            ca_data: String::new(),
            client_cert_file: String::new(),
            client_cert_data: String::new(),
            client_key_file: String::new(),
            client_key_data: String::new(),
            topics: None,
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum GoDuration {
    Nanoseconds(u64),
    Text(String),
}

impl GoDuration {
    fn read(self) -> Result<Duration, ConfigError> {
        match self {
            Self::Nanoseconds(nanoseconds) => Ok(Duration::from_nanos(nanoseconds)),
            Self::Text(text) => go_duration(&text).ok_or(ConfigError::Value {
                key: "dialTimeout",
                value: text,
                expected: "is no duration as in 1m30s",
            }),
        }
    }
}

/// A duration as Go writes it: `1m30s`, `500ms`, `1.5h`.
fn go_duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    let mut seconds = 0.0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit = rest
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(rest.len());
        seconds += number
            * match &rest[..unit] {
                "ns" => 1e-9,
                "us" | "µs" => 1e-6,
                "ms" => 1e-3,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                _ => return None,
            };
        rest = &rest[unit..];
    }
    Duration::try_from_secs_f64(seconds).ok()
}

fn pem(key: &'static str, file: &str, data: &str) -> Result<Option<Pem>, ConfigError> {
    use base64::Engine;
    // Data wins, as in sdk-go; it is what Go makes of bytes in YAML.
    if !data.is_empty() {
        let standard = base64::engine::general_purpose::STANDARD;
        let compact: String = data.split_whitespace().collect();
        return match standard.decode(compact) {
            Ok(bytes) => Ok(Some(Pem::Data(bytes))),
            Err(_) => Err(ConfigError::Value {
                key,
                value: "(data)".to_owned(),
                expected: "is no base64",
            }),
        };
    }
    Ok((!file.is_empty()).then(|| Pem::File(PathBuf::from(file))))
}

impl DriverConfig {
    /// Reads the text of a file.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong, in sdk-go's words where it has some.
    pub fn read(yaml: &str) -> Result<Self, ConfigError> {
        let file: File = serde_saphyr::from_str(yaml)
            .map_err(|error| ConfigError::Malformed(error.to_string()))?;
        if file.broker_host.is_empty() {
            return Err(ConfigError::NoBroker);
        }
        let ca = pem("caData", &file.ca_file, &file.ca_data)?;
        let certificate = pem(
            "clientCertData",
            &file.client_cert_file,
            &file.client_cert_data,
        )?;
        let key = pem(
            "clientKeyData",
            &file.client_key_file,
            &file.client_key_data,
        )?;
        let identity = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => return Err(ConfigError::HalfAPair),
        };
        for (key, qos) in [("pubQoS", file.publish_qos), ("subQoS", file.subscribe_qos)] {
            if qos > 2 {
                return Err(ConfigError::Value {
                    key,
                    value: qos.to_string(),
                    expected: "is not 0, 1 or 2",
                });
            }
        }
        let topics = file.topics.unwrap_or_default();
        topics.check()?;
        let optional = |text: String| (!text.is_empty()).then_some(text);
        Ok(Self {
            broker: file.broker_host,
            username: optional(file.username),
            password: Secret(optional(file.password)),
            keep_alive: Duration::from_secs(file.keep_alive.into()),
            dial_timeout: file.dial_timeout.read()?,
            publish_qos: file.publish_qos,
            subscribe_qos: file.subscribe_qos,
            tls: (ca.is_some() || identity.is_some()).then_some(Tls {
                ca,
                identity,
                check_interval: CHECK_INTERVAL,
            }),
            topics,
        })
    }

    /// The options for a client.
    pub fn options(&self, client_id: impl Into<String>) -> MqttOptions {
        MqttOptions {
            username: self.username.clone(),
            password: self.password.0.clone(),
            keep_alive: self.keep_alive,
            dial_timeout: self.dial_timeout,
            acknowledged: self.publish_qos > 0,
            acknowledges: self.subscribe_qos > 0,
            tls: self.tls.clone(),
            ..MqttOptions::new(self.broker.clone(), client_id)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOPICS: &str = "
topics:
  sourceEvents: sources/hub1/clusters/+/sourceevents
  agentEvents: sources/hub1/clusters/+/agentevents
";

    fn read(yaml: &str) -> Result<DriverConfig, String> {
        DriverConfig::read(&format!("{yaml}{TOPICS}")).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_left_out_is_as_in_sdk_go() {
        let config = read("brokerHost: broker:1883\nunknown: 1").unwrap();
        assert_eq!(config.keep_alive, Duration::from_secs(60));
        assert_eq!(config.dial_timeout, Duration::from_secs(60));
        assert_eq!((config.publish_qos, config.subscribe_qos), (1, 1));
        assert_eq!((&config.tls, &config.username), (&None, &None));
        assert_eq!(config.topics.source_broadcast, None);
        let options = config.options("me");
        assert!(options.acknowledged && options.acknowledges);
    }

    #[test]
    fn everything_is_read() {
        let config = read(
            "brokerHost: broker:8883
username: user
password: s3cret
keepAlive: 30
dialTimeout: 1m30s
pubQoS: 0
subQoS: 2
caFile: /ca
clientCertFile: /crt
clientKeyData: aGVs
  bG8=
clientKeyFile: /ignored",
        )
        .unwrap();
        let tls = config.tls.clone().unwrap();
        assert_eq!(tls.ca, Some(Pem::File("/ca".into())));
        let identity = (Pem::File("/crt".into()), Pem::Data(b"hello".to_vec()));
        assert_eq!(tls.identity, Some(identity));
        let options = config.options("me");
        assert_eq!(options.keep_alive, Duration::from_secs(30));
        assert_eq!(options.dial_timeout, Duration::from_secs(90));
        assert!(!options.acknowledged && options.acknowledges);
        assert_eq!(options.password.as_deref(), Some("s3cret"));
        let shown = format!("{config:?} {options:?}");
        assert!(
            !shown.contains("s3cret") && !shown.contains("hello"),
            "{shown}"
        );
        let json = r#"{"brokerHost": "b:1", "dialTimeout": 5000000000, "topics": {
            "sourceEvents": "sources/+/clusters/+/sourceevents",
            "agentEvents": "sources/+/clusters/+/agentevents"}}"#;
        let config = DriverConfig::read(json).unwrap();
        assert_eq!(config.dial_timeout, Duration::from_secs(5));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (yaml, error) in [
            ("username: x", "brokerHost is required"),
            (
                "brokerHost: b:1\nclientCertFile: x",
                "either both or none of clientCertFile and clientKeyFile must be set",
            ),
            (
                "brokerHost: b:1\npubQoS: 3",
                "pubQoS \"3\" is not 0, 1 or 2",
            ),
            (
                "brokerHost: b:1\ndialTimeout: soon",
                "dialTimeout \"soon\" is no duration as in 1m30s",
            ),
            (
                "brokerHost: b:1\ncaData: '?'",
                "caData \"(data)\" is no base64",
            ),
        ] {
            assert_eq!(read(yaml).unwrap_err(), error);
        }
        let error = DriverConfig::read("brokerHost: b:1").unwrap_err();
        assert_eq!(error.to_string(), "the topics must be set");
        assert!(read("brokerHost: [b]").unwrap_err().contains("line 1"));
    }

    #[test]
    fn durations_are_gos() {
        for (text, millis) in [
            ("1h", 3_600_000),
            ("1m30s", 90_000),
            ("1.5s", 1_500),
            ("0", 0),
        ] {
            assert_eq!(go_duration(text), Some(Duration::from_millis(millis)));
        }
        for text in ["", "5", "s", "1d", "-1s", "1s5"] {
            assert_eq!(go_duration(text), None, "{text}");
        }
    }
}
