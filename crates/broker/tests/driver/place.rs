//! A broker of either kind that can be killed and comes back on the same port.

use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use muster_broker::{Broker, BrokerSettings, Identities, Limits, TlsFiles};
use muster_cloudevents::Dialect;
use muster_cloudevents::access::{Access, Principal};
use muster_cloudevents::bus::MqttOptions;
use muster_cloudevents::bus::mqtt::{Pem, Tls};
use tokio::process::{Child, Command};

use crate::support::certificates::{Ca, Signed, write};
use crate::support::cheap_hash;
use crate::support::mosquitto::{free_ports, programs, run};

const AGENTS: &str = include_str!("../../../../deploy/mosquitto/acl-agents");
const SOURCES: &str = include_str!("../../../../deploy/mosquitto/acl-sources");

pub(crate) const PASSWORD: &str = "open sesame";
pub(crate) const HUB: &str = "hub";
pub(crate) const CLUSTERS: [&str; 3] = ["edge-a", "edge-b", "edge-c"];
/// Of messages that are no events.
pub(crate) const OPERATOR: &str = "operator";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Embedded,
    Mosquitto,
}

pub(crate) struct Place {
    kind: Kind,
    port: u16,
    /// Of the broker's certificate, where it speaks TLS; then clients are known by theirs.
    pub(crate) tls: Option<Ca>,
    most_bytes: u32,
    /// Lines for the file of mosquitto.
    extra: String,
    dir: tempfile::TempDir,
    running: Option<Running>,
}

enum Running {
    Embedded(Broker),
    Mosquitto(Child),
}

fn principal(name: &str) -> Principal {
    match name {
        HUB => Principal::Source(name.to_owned()),
        OPERATOR => Principal::Everything,
        _ => Principal::Agent(name.to_owned()),
    }
}

fn names() -> impl Iterator<Item = &'static str> {
    CLUSTERS.into_iter().chain([HUB, OPERATOR])
}

impl Place {
    /// A broker that does not run yet; nothing where there is none of that kind.
    pub(crate) fn new(kind: Kind) -> Option<Self> {
        if kind == Kind::Mosquitto && programs().is_none() {
            eprintln!("skipped: no mosquitto here; tests/parts/provide gets it or tells how to");
            return None;
        }
        let [port] = free_ports();
        Some(Self {
            kind,
            port,
            tls: None,
            most_bytes: 1024 * 1024,
            extra: String::new(),
            dir: tempfile::tempdir().unwrap(),
            running: None,
        })
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    pub(crate) fn with_most_bytes(mut self, most_bytes: u32) -> Self {
        self.most_bytes = most_bytes;
        self
    }

    pub(crate) fn with_line(mut self, line: &str) -> Self {
        self.extra += line;
        self.extra += "\n";
        self
    }

    /// Speaks TLS, and knows clients by certificates that this CA has signed.
    pub(crate) fn with_tls(mut self, clients: &Ca) -> Self {
        let ca = Ca::new();
        let own = ca.sign("broker");
        self.write("broker.crt", &own.certificate);
        self.write("broker.key", &own.key);
        self.write("broker-ca.crt", &ca.pem());
        self.tls = Some(ca);
        self.trust(clients);
        self
    }

    /// Certificates of this CA are good from the next start on.
    pub(crate) fn trust(&self, clients: &Ca) {
        self.write("clients.crt", &clients.pem());
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> std::path::PathBuf {
        write(self.dir.path(), name, text)
    }

    pub(crate) async fn started(mut self) -> Self {
        self.start().await;
        self
    }

    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// Options of a client of this name, with short pauses.
    pub(crate) fn options(&self, name: &str) -> MqttOptions {
        self.options_at(&format!("localhost:{}", self.port), name)
    }

    /// As [`Self::options`], for what is in between.
    pub(crate) fn options_at(&self, broker: &str, name: &str) -> MqttOptions {
        let mut options = MqttOptions::new(broker, name);
        options.first_pause = Duration::from_millis(20);
        options.longest_pause = Duration::from_millis(200);
        if self.tls.is_none() {
            options.username = Some(name.to_owned());
            options.password = Some(PASSWORD.to_owned());
        }
        options
    }

    /// Options of a client that shows what is in files of this name.
    pub(crate) fn certified(&self, name: &str, check_interval: Duration) -> MqttOptions {
        let file = |end: &str| Pem::File(self.dir.path().join(format!("{name}.{end}")));
        let mut options = self.options(name);
        options.tls = Some(Tls {
            ca: Some(Pem::File(self.dir.path().join("broker-ca.crt"))),
            identity: Some((file("crt"), file("key"))),
            check_interval,
        });
        options
    }

    pub(crate) fn write_pair(&self, name: &str, signed: &Signed) {
        self.write(&format!("{name}.key"), &signed.key);
        self.write(&format!("{name}.crt"), &signed.certificate);
    }

    pub(crate) async fn start(&mut self) {
        assert!(self.running.is_none(), "it runs");
        self.running = Some(match self.kind {
            Kind::Embedded => Running::Embedded(self.embedded().await),
            Kind::Mosquitto => Running::Mosquitto(self.mosquitto().await),
        });
    }

    /// Ends it: mosquitto with SIGKILL, the embedded one with all it has in memory.
    pub(crate) async fn kill(&mut self) {
        match self.running.take().expect("it runs") {
            Running::Embedded(broker) => broker.stop().await,
            Running::Mosquitto(mut process) => process.kill().await.unwrap(),
        }
    }

    async fn embedded(&self) -> Broker {
        let hash = cheap_hash(PASSWORD);
        let file = |name: &str| self.dir.path().join(name);
        let mut identities = Identities::default();
        for name in names() {
            identities = if self.tls.is_some() {
                identities.certificate(name, principal(name)).unwrap()
            } else {
                identities.user(name, &hash, principal(name)).unwrap()
            };
        }
        let broker = Broker::start(BrokerSettings {
            listen: self.address(),
            tls: self.tls.as_ref().map(|_| TlsFiles {
                certificate: file("broker.crt"),
                key: file("broker.key"),
                client_ca: Some(file("clients.crt")),
            }),
            identities,
            access: Access {
                dialect: Dialect::Enhancement,
            },
            limits: Limits {
                max_packet_size: self.most_bytes,
                ..Limits::default()
            },
        });
        broker.await.unwrap()
    }

    async fn mosquitto(&self) -> Child {
        let (program, passwd) = programs().unwrap();
        let dir = self.dir.path();
        // The names are different, so that one listener does for both sides.
        let acl = self.write("acl", &format!("{AGENTS}\n{SOURCES}"));
        let mut conf = format!(
            "listener {} 127.0.0.1\nallow_anonymous false\nacl_file {}\nmax_packet_size {}\n\
             set_tcp_nodelay true\nmax_inflight_messages 32\nmax_queued_messages 10000\n\
             user root\nlog_dest stderr\n{}",
            self.port,
            acl.display(),
            self.most_bytes,
            self.extra,
        );
        if self.tls.is_some() {
            let dir = dir.display();
            write!(
                conf,
                "certfile {dir}/broker.crt\nkeyfile {dir}/broker.key\ncafile {dir}/clients.crt\n\
                 require_certificate true\nuse_identity_as_username true\n"
            )
            .unwrap();
        } else {
            let file = dir.join("passwords");
            if !file.exists() {
                write(dir, "passwords", "");
                for user in names() {
                    let mut command = Command::new(&passwd);
                    command.arg("-b").arg(&file).args([user, PASSWORD]);
                    let output = command.output().await.unwrap();
                    assert!(output.status.success(), "{output:?}");
                }
            }
            writeln!(conf, "password_file {}", file.display()).unwrap();
        }
        let process = run(&program, &self.write("mosquitto.conf", &conf)).await;
        process.expect("mosquitto runs")
    }
}
