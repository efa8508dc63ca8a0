//! How to reach a broker.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// How to reach a broker.
#[derive(Clone)]
pub struct MqttOptions {
    /// Host and port.
    pub broker: String,
    /// What the broker knows the client by. No other may use it at the same time.
    pub client_id: String,
    /// User, where the broker asks for one.
    pub username: Option<String>,
    /// Its password.
    pub password: Option<String>,
    /// Time without a sign of life after which a connection is checked, and given up after half as
    /// much again; zero for never.
    pub keep_alive: Duration,
    /// Time for a connection to be made.
    pub dial_timeout: Duration,
    /// Time for the broker to acknowledge a message that has been sent.
    pub ack_timeout: Duration,
    /// Whether the broker has to acknowledge messages; else they may be lost without anybody
    /// knowing.
    pub acknowledged: bool,
    /// Whether messages are to be acknowledged to the broker.
    pub acknowledges: bool,
    /// TLS, unless the connection is to be plain.
    pub tls: Option<Tls>,
    /// Largest packet that is taken, in bytes; the broker drops what is larger.
    pub most_bytes: u32,
    /// First pause before a connection is tried again; each is twice the one before, and up to
    /// twice as long at random.
    pub first_pause: Duration,
    /// Longest pause.
    pub longest_pause: Duration,
}

impl MqttOptions {
    /// The options of sdk-go, save for the pauses, which begin at 5 s there.
    pub fn new(broker: impl Into<String>, client_id: impl Into<String>) -> Self {
        Self {
            broker: broker.into(),
            client_id: client_id.into(),
            username: None,
            password: None,
            keep_alive: Duration::from_secs(60),
            dial_timeout: Duration::from_secs(60),
            ack_timeout: Duration::from_secs(30),
            acknowledged: true,
            acknowledges: true,
            tls: None,
            // A work has at most 500 KB of manifests; metadata comes on top, and manifests of
            // others may be larger.
            most_bytes: 4 * 1024 * 1024,
            first_pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(30),
        }
    }
}

/// Without the password.
impl fmt::Debug for MqttOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MqttOptions")
            .field("broker", &self.broker)
            .field("client_id", &self.client_id)
            .field("username", &self.username)
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}

/// What a connection is secured with. The roots of the system always count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tls {
    /// A CA more.
    pub ca: Option<Pem>,
    /// What the client shows: its certificate and key.
    pub identity: Option<(Pem, Pem)>,
    /// How often files are looked at: a new pair is used at once.
    pub check_interval: Duration,
}

/// How often sdk-go looks at files of certificates.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_secs(5 * 60);

/// Something in PEM.
#[derive(Clone, PartialEq, Eq)]
pub enum Pem {
    /// In a file.
    File(PathBuf),
    /// As it is.
    Data(Vec<u8>),
}

/// Keys are in it.
impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Data(_) => f.write_str("Data"),
        }
    }
}
