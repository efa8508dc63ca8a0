//! Works as CloudEvents: the broker of this process, and the links of hub and agents.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use muster_broker::{
    Broker, BrokerError, BrokerSettings, Identities, IdentityError, Limits, TlsFiles, hash_password,
};
use muster_cloudevents::access::{Access, Principal};
use muster_cloudevents::bus::mqtt::{
    ConfigError, DriverConfig, Mqtt, MqttOptions, Pem, Tls, TlsError,
};
use muster_cloudevents::client::ClientOptions;
use muster_cloudevents::work::Form;
use muster_cloudevents::{Dialect, Topics};
use muster_workclient::events::{AgentEvents, EventsError, HubEvents, SourceEvents};
use muster_workclient::{Driver, LOOPBACK_HUB_ID};

use super::whole;
use crate::settings::{self, EventDialect, Settings};
use tracing::warn;
use users::UsersError;

mod source_id;
mod users;

/// The id of a hub among sources that has been given none, at the broker of its own process.
const SOURCE: &str = "hub";
/// How often files of certificates are looked at.
const LOOK_AT_FILES: Duration = Duration::from_secs(60);

/// Why works cannot travel as events.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// A file cannot be read.
    #[error("{key}: cannot read {}: {source}", path.display())]
    Read {
        /// The setting that names it.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// OCM's file is none.
    #[error("mqtt.config_file: {}: {source}", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// What is wrong in it.
        source: ConfigError,
    },
    /// The file of users is none.
    #[error("broker.users_file: {}: {source}", path.display())]
    Users {
        /// The file.
        path: PathBuf,
        /// What is wrong in it.
        source: UsersError,
    },
    /// A user of the broker is there twice, or its hash is none.
    #[error("broker.users_file: {0}")]
    Identity(#[from] IdentityError),
    /// The hub has no id among sources.
    #[error(transparent)]
    SourceId(#[from] source_id::SourceIdError),
    /// The broker cannot start.
    #[error("broker: {0}")]
    Broker(#[from] BrokerError),
    /// The certificates for the broker cannot be used.
    #[error("mqtt: {0}")]
    Tls(#[from] TlsError),
    /// Names and topics do not go together.
    #[error("mqtt: {0}")]
    Events(#[from] EventsError),
    /// Directory for works cannot be made.
    #[error("mqtt.data_dir: failed to create {}: {source}", path.display())]
    DataDir {
        /// The directory.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
}

impl LinkError {
    /// The setting, or the section, that it is about.
    pub(super) const fn key(&self) -> &'static str {
        match self {
            Self::Read { key, .. } => key,
            Self::Config { .. } => "mqtt.config_file",
            Self::Users { .. } | Self::Identity(_) => "broker.users_file",
            Self::Broker(_) => "broker.listen",
            Self::Tls(_) => "mqtt.broker",
            Self::SourceId(_) | Self::Events(_) => "mqtt.source",
            Self::DataDir { .. } => "mqtt.data_dir",
        }
    }
}

pub(super) fn read(key: &'static str, path: &std::path::Path) -> Result<String, LinkError> {
    std::fs::read_to_string(path).map_err(|source| LinkError::Read {
        key,
        path: path.to_owned(),
        source,
    })
}

/// The broker of this process, and how to reach it, or another.
#[derive(Debug)]
pub(super) struct Links {
    broker: Option<Broker>,
    /// The password of this process's own clients at its own broker.
    own_password: Option<String>,
    config: Option<DriverConfig>,
    /// The id of the hub among sources, where neither settings nor topics name one.
    own_source: String,
    settings: Settings,
}

impl Links {
    /// Reads files and starts the broker, if there is to be one.
    pub(super) async fn start(settings: &Settings) -> Result<Self, LinkError> {
        let mut links = Self::read(settings)?;
        // At a broker elsewhere there may be other hubs.
        if settings.transport.driver == settings::Driver::Mqtt && !links.is_own_broker() {
            links.own_source = source_id::of(settings)?;
        }
        if let Some(listen) = settings.broker.listen {
            let broker = links.broker_settings(listen)?;
            links.broker = Some(Broker::start(broker).await?);
        }
        Ok(links)
    }

    /// Reads the files that a start reads, and checks what it checks, without starting anything.
    pub(super) fn check(settings: &Settings) -> Result<(), LinkError> {
        let mut links = Self::read(settings)?;
        if let Some(listen) = settings.broker.listen {
            links.broker_settings(listen)?.check()?;
        }
        if settings.transport.driver == settings::Driver::Mqtt || settings.has_mqtt_sinks() {
            let source = links.source();
            if let Dialect::SdkGo(topics) = links.dialect(Some(&source)) {
                topics.check().map_err(EventsError::from)?;
            }
            links.bus("check", &Principal::Source(source))?;
        }
        Ok(())
    }

    fn read(settings: &Settings) -> Result<Self, LinkError> {
        let config = match &settings.mqtt.config_file {
            None => None,
            Some(path) => {
                let yaml = read("mqtt.config_file", path)?;
                let config = DriverConfig::read(&yaml).map_err(|source| LinkError::Config {
                    path: path.clone(),
                    source,
                })?;
                Some(config)
            }
        };
        Ok(Self {
            broker: None,
            own_password: None,
            config,
            own_source: SOURCE.to_owned(),
            settings: settings.clone(),
        })
    }

    fn broker_settings(&mut self, listen: SocketAddr) -> Result<BrokerSettings, LinkError> {
        let broker = &self.settings.broker;
        let mut identities = Identities::default();
        if let Some(path) = &broker.users_file {
            let text = read("broker.users_file", path)?;
            let users = users::read(&text).map_err(|source| LinkError::Users {
                path: path.clone(),
                source,
            })?;
            for user in users {
                identities = user.add_to(identities)?;
            }
        }
        if broker.allow_anonymous {
            identities = identities.allow_anonymous(Principal::Everything);
        }
        if self.is_own_broker() {
            let clusters = self.settings.clusters.iter();
            let mut clients: Vec<_> = clusters
                .map(|cluster| Principal::Agent(cluster.name.clone()))
                .collect();
            clients.push(Principal::Source(self.source()));
            if self.settings.has_mqtt_sinks() {
                clients.push(Principal::Everything);
            }
            let password = format!("{:032x}", rand::random::<u128>());
            let hash = hash_password(&password);
            // The client that is called as the settings say: see `source_of` and `agent_of`.
            if let (Some(id), Some(client)) = (&self.settings.mqtt.client_id, clients.first())
                && self.settings.clusters.len() <= 1
            {
                identities = identities.client_id(id, client)?;
            }
            for principal in clients {
                identities = identities.user(&own_user(&principal), &hash, principal)?;
            }
            self.own_password = Some(password);
        }
        let tls = broker.cert_file.as_ref().zip(broker.key_file.as_ref());
        Ok(BrokerSettings {
            listen,
            tls: tls.map(|(certificate, key)| TlsFiles {
                certificate: certificate.clone(),
                key: key.clone(),
                client_ca: broker.client_ca_file.clone(),
            }),
            identities,
            access: Access {
                dialect: self.dialect(None),
            },
            limits: limits(broker),
        })
    }

    /// Whether the clients of this process are at the broker of this process.
    fn is_own_broker(&self) -> bool {
        self.config.is_none() && self.settings.mqtt.broker.is_none()
    }

    /// The id of the hub among sources.
    fn source(&self) -> String {
        let named = self.settings.mqtt.source.clone();
        let of_topics = || {
            let topics = self.config.as_ref()?.topics.clone();
            let dialect = Dialect::SdkGo(topics);
            dialect.only_source().map(ToOwned::to_owned)
        };
        named
            .or_else(of_topics)
            .unwrap_or_else(|| self.own_source.clone())
    }

    /// Topics of this source, or of any.
    fn dialect(&self, source: Option<&str>) -> Dialect {
        if self.settings.mqtt.dialect == EventDialect::Enhancement {
            return Dialect::Enhancement;
        }
        if let Some(config) = &self.config {
            return Dialect::SdkGo(config.topics.clone());
        }
        let source = source.unwrap_or("+");
        Dialect::SdkGo(Topics {
            source_events: format!("sources/{source}/clusters/+/sourceevents"),
            agent_events: format!("sources/{source}/clusters/+/agentevents"),
            source_broadcast: Some(format!("sources/{source}/sourcebroadcast")),
            agent_broadcast: Some("clusters/+/agentbroadcast".to_owned()),
        })
    }

    const fn form(&self) -> Form {
        match self.settings.mqtt.dialect {
            EventDialect::SdkGo => Form::Bundles,
            EventDialect::Enhancement => Form::Bundle,
        }
    }

    const fn client_options(&self) -> ClientOptions {
        ClientOptions {
            resync_interval: Some(self.settings.mqtt.resync_interval),
            most_in_flight: 64,
            presence: self.settings.mqtt.presence,
        }
    }

    fn bus(&self, client_id: &str, principal: &Principal) -> Result<Arc<Mqtt>, LinkError> {
        let mqtt = &self.settings.mqtt;
        let options = if let Some(config) = &self.config {
            config.options(client_id)
        } else if let Some(broker) = &mqtt.broker {
            let password = match &mqtt.password_file {
                // Editors leave a line end.
                Some(path) => Some(read("mqtt.password_file", path)?.trim_end().to_owned()),
                None => None,
            };
            let identity = mqtt
                .client_cert_file
                .clone()
                .zip(mqtt.client_key_file.clone())
                .map(|(certificate, key)| (Pem::File(certificate), Pem::File(key)));
            let ca = mqtt.ca_file.clone().map(Pem::File);
            if password.is_some() && !mqtt.uses_tls() {
                warn!(
                    broker,
                    "no TLS (mqtt.tls): the password travels in the clear"
                );
            }
            MqttOptions {
                username: mqtt.username.clone(),
                password,
                tls: mqtt.uses_tls().then_some(Tls {
                    ca,
                    identity,
                    check_interval: LOOK_AT_FILES,
                }),
                ..MqttOptions::new(broker.clone(), client_id)
            }
        } else {
            let address = self.broker.as_ref().map(Broker::address);
            MqttOptions {
                password: self.own_password.clone(),
                username: Some(own_user(principal)),
                ..MqttOptions::new(
                    address
                        .map(|address| address.to_string())
                        .unwrap_or_default(),
                    client_id,
                )
            }
        };
        Ok(Arc::new(Mqtt::new(options)?))
    }

    /// The hub's works as a source, and its bus.
    pub(super) fn source_of(&self, hub: Client) -> Result<(HubEvents, Arc<Mqtt>), LinkError> {
        let source = self.source();
        let alone = self.settings.clusters.is_empty();
        let client_id = self.settings.mqtt.client_id.clone().filter(|_| alone);
        let client_id = client_id.unwrap_or_else(|| format!("{source}-source"));
        let bus = self.bus(&client_id, &Principal::Source(source.clone()))?;
        Ok((HubEvents::new(self.source_events(source), hub)?, bus))
    }

    fn source_events(&self, source: String) -> SourceEvents {
        let except = self.settings.mqtt.except_clusters.iter().cloned();
        SourceEvents {
            dialect: self.dialect(Some(&source)),
            source,
            form: self.form(),
            others: except.collect::<BTreeSet<_>>(),
            options: self.client_options(),
        }
    }

    /// What gives the agent of a cluster its works.
    pub(super) fn agent_of(&self, cluster: &str) -> Result<Driver, LinkError> {
        let mqtt = &self.settings.mqtt;
        // One name for several clients would have them throw each other out.
        let single = self.settings.clusters.len() == 1;
        let client_id = mqtt.client_id.clone().filter(|_| single);
        let agent = client_id.unwrap_or_else(|| format!("{cluster}-work-agent"));
        let bus = self.bus(&agent, &Principal::Agent(cluster.to_owned()))?;
        let file = match &mqtt.data_dir {
            None => None,
            Some(dir) => {
                muster_privatefiles::create_dir_all(dir).map_err(|source| LinkError::DataDir {
                    path: dir.clone(),
                    source,
                })?;
                Some(dir.join(format!("{cluster}.redb")))
            }
        };
        let hub_id = match (&self.config, &mqtt.broker) {
            (Some(config), _) => config.broker.clone(),
            (None, Some(broker)) => broker.clone(),
            (None, None) => LOOPBACK_HUB_ID.to_owned(),
        };
        Ok(Driver::Events {
            agent: Box::new(AgentEvents {
                cluster: cluster.to_owned(),
                agent,
                dialect: self.dialect(None),
                form: self.form(),
                file,
                options: self.client_options(),
            }),
            bus,
            hub_id,
        })
    }

    /// What a sink of rules of a cluster publishes with.
    pub(super) fn sink_of(&self, cluster: &str, sink: &str) -> Result<Arc<Mqtt>, LinkError> {
        let client_id = format!("{cluster}-rules-{sink}");
        self.bus(&client_id, &Principal::Everything)
    }

    /// Where the broker of this process listens.
    pub(super) fn broker_address(&self) -> Option<SocketAddr> {
        self.broker.as_ref().map(Broker::address)
    }

    pub(super) async fn stop(self) {
        if let Some(broker) = self.broker {
            broker.stop().await;
        }
    }
}

fn limits(broker: &settings::Broker) -> Limits {
    Limits {
        max_packet_size: broker.max_packet_bytes.get(),
        max_connections: whole(broker.max_connections.get()),
        max_connections_of_peer: whole(broker.max_connections_of_address.get()),
        max_sessions: whole(broker.max_sessions.get()),
        max_sessions_of_user: whole(broker.max_sessions_of_user.get()),
        max_queued_messages: whole(broker.max_queued_messages.get()),
        ..Limits::default()
    }
}

/// The name of one of this process's own clients at its own broker. No line of a file makes one: it
/// has a space.
fn own_user(principal: &Principal) -> String {
    match principal {
        Principal::Source(source) => format!("own source {source}"),
        Principal::Agent(cluster) => format!("own agent {cluster}"),
        Principal::Everything => "own".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use muster_workclient::events::ConnectionState;

    use super::*;
    use crate::settings::Sources;

    fn settings(set: &[(&str, &str)]) -> Settings {
        let with = |sources: Sources, (key, value): &(&str, &str)| sources.with_flag(*key, *value);
        Settings::load(&set.iter().fold(Sources::default(), with)).unwrap()
    }

    const MQTT: (&str, &str) = ("transport.driver", "mqtt");
    const LISTEN: (&str, &str) = ("broker.listen", "127.0.0.1:0");
    const BROKER: (&str, &str) = ("mqtt.broker", "broker:1883");

    async fn error(set: &[(&str, &str)]) -> String {
        match Links::start(&settings(set)).await {
            Ok(links) => links.agent_of("edge-a").unwrap_err().to_string(),
            Err(error) => error.to_string(),
        }
    }

    #[tokio::test]
    async fn what_is_wrong_is_named_with_its_setting() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let junk = file("junk", "junk here");
        let twice = file(
            "twice",
            "user a $argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHQ$aGFzaGhhc2hoYXNo agent a\nuser a x agent b",
        );
        let missing = "/no/such/file";
        for (set, start) in [
            (
                &[MQTT, ("mqtt.config_file", missing)][..],
                "mqtt.config_file: cannot read /no/such/file: ",
            ),
            (&[MQTT, ("mqtt.config_file", &junk)], "mqtt.config_file: "),
            (
                &[LISTEN, ("broker.users_file", missing)],
                "broker.users_file: cannot read /no/such/file: ",
            ),
            (
                &[LISTEN, ("broker.users_file", &junk)],
                "broker.users_file: ",
            ),
            (
                &[LISTEN, ("broker.users_file", &twice)],
                "broker.users_file: user \"a\"",
            ),
            (
                &[("broker.listen", "192.0.2.1:1")],
                "broker: the MQTT broker cannot listen on 192.0.2.1:1: ",
            ),
            (
                &[MQTT, BROKER, ("mqtt.password_file", missing)],
                "mqtt.password_file: cannot read /no/such/file: ",
            ),
            (&[MQTT, BROKER, ("mqtt.ca_file", missing)], "mqtt: "),
            (
                &[MQTT, BROKER, ("mqtt.data_dir", &format!("{junk}/below"))],
                "mqtt.data_dir: failed to create ",
            ),
        ] {
            let error = error(set).await;
            assert!(error.starts_with(start), "{error}");
        }
    }

    /// What an agent gets: its name at the broker, what it calls its hub, and what it is told of.
    async fn agent(set: &[(&str, &str)], cluster: &str) -> (String, String, Dialect) {
        let links = Links::start(&settings(set)).await.unwrap();
        match links.agent_of(cluster).unwrap() {
            Driver::Events { agent, hub_id, .. } => (agent.agent, hub_id, agent.dialect),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn an_agent_is_called_after_its_cluster_and_its_hub_after_the_broker() {
        let (name, hub, dialect) = agent(&[MQTT, BROKER], "edge-a").await;
        assert_eq!((&*name, &*hub), ("edge-a-work-agent", "broker:1883"));
        assert_eq!(dialect.only_source(), None);
        // One name is for one client.
        let id = ("mqtt.client_id", "me");
        assert_eq!(
            agent(&[MQTT, BROKER, id], "edge-a").await.0,
            "edge-a-work-agent"
        );
        let (_, hub, dialect) =
            agent(&[MQTT, LISTEN, ("mqtt.dialect", "enhancement")], "edge-a").await;
        assert_eq!((&*hub, dialect), (LOOPBACK_HUB_ID, Dialect::Enhancement));
    }

    #[tokio::test]
    async fn a_file_of_ocm_says_it_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mqtt.yaml");
        let yaml = "brokerHost: ocm:1883\ntopics:\n  sourceEvents: sources/maestro/consumers/+/sourceevents\n  agentEvents: sources/maestro/consumers/+/agentevents\n";
        std::fs::write(&path, yaml).unwrap();
        let file = ("mqtt.config_file", path.to_str().unwrap());
        let (_, hub, dialect) = agent(&[MQTT, file], "edge-a").await;
        assert_eq!(
            (&*hub, dialect.only_source()),
            ("ocm:1883", Some("maestro"))
        );
        let links = Links::start(&settings(&[MQTT, file])).await.unwrap();
        assert_eq!(links.source(), "maestro");
        let named = settings(&[MQTT, file, ("mqtt.source", "other")]);
        assert_eq!(Links::start(&named).await.unwrap().source(), "other");
        // Without any, hubs at one broker have ids of their own, and at that of its process it is the
        // only one.
        let links = Links::start(&settings(&[MQTT, BROKER])).await.unwrap();
        assert!(links.source().starts_with("hub-"), "{}", links.source());
        let links = Links::start(&settings(&[MQTT, LISTEN])).await.unwrap();
        assert_eq!(links.source(), "hub");
    }

    #[test]
    fn limits_of_the_broker_are_those_of_the_settings() {
        assert_eq!(limits(&settings(&[]).broker), Limits::default());
        let set = settings(&[
            ("broker.max_packet_bytes", "1"),
            ("broker.max_connections", "2"),
            ("broker.max_sessions", "3"),
            ("broker.max_queued_messages", "4"),
            ("broker.max_connections_of_address", "5"),
            ("broker.max_sessions_of_user", "6"),
        ]);
        let wanted = Limits {
            max_packet_size: 1,
            max_connections: 2,
            max_sessions: 3,
            max_queued_messages: 4,
            max_connections_of_peer: 5,
            max_sessions_of_user: 6,
            ..Limits::default()
        };
        assert_eq!(limits(&set.broker), wanted);
    }

    /// A CA in a directory, and certificates for `localhost` that it has signed.
    struct Ca {
        dir: tempfile::TempDir,
        issuer: rcgen::CertifiedIssuer<'static, rcgen::KeyPair>,
    }

    impl Ca {
        fn new() -> Self {
            let mut params = rcgen::CertificateParams::default();
            params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
            let key = rcgen::KeyPair::generate().unwrap();
            let issuer = rcgen::CertifiedIssuer::self_signed(params, key).unwrap();
            let ca = Self {
                dir: tempfile::tempdir().unwrap(),
                issuer,
            };
            ca.file("ca.crt", &ca.issuer.pem());
            ca
        }

        fn file(&self, name: &str, text: &str) -> String {
            let path = self.dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        }

        fn path(&self, name: &str) -> String {
            self.dir.path().join(name).to_str().unwrap().to_owned()
        }

        /// Leaves `<name>.crt` and `<name>.key`.
        fn sign(&self, name: &str) -> (String, String) {
            let names = ["localhost".to_owned()];
            let mut params = rcgen::CertificateParams::new(names).unwrap();
            params.distinguished_name = rcgen::DistinguishedName::new();
            let subject = &mut params.distinguished_name;
            subject.push(rcgen::DnType::CommonName, name);
            let key = rcgen::KeyPair::generate().unwrap();
            let certificate = params.signed_by(&key, &self.issuer).unwrap();
            (
                self.file(&format!("{name}.crt"), &certificate.pem()),
                self.file(&format!("{name}.key"), &key.serialize_pem()),
            )
        }
    }

    /// How the link of an agent with these settings goes, once that is known.
    async fn link_of(set: &[(&str, &str)], cluster: &str) -> String {
        let links = Links::start(&settings(set)).await.unwrap();
        let driver = links.agent_of(cluster).unwrap();
        let works = muster_workclient::WorkClient::builder(driver).build().await;
        let mut state = works.as_ref().unwrap().link().unwrap().state;
        let known = state.wait_for(|state| *state != ConnectionState::Connecting);
        let known = tokio::time::timeout(Duration::from_secs(60), known).await;
        format!("{:?}", *known.unwrap().unwrap())
    }

    #[tokio::test]
    async fn clients_come_by_certificate_by_password_and_not_otherwise() {
        let ca = Ca::new();
        let ((broker_cert, broker_key), (cert, key)) = (ca.sign("broker"), ca.sign("edge-a"));
        let ca_file = ca.path("ca.crt");
        let hash = hash_password("secret");
        let users = format!("user b {hash} agent edge-b\ncertificate edge-a agent edge-a\n");
        let users = ca.file("users", &users);
        let broker = settings(&[
            LISTEN,
            ("broker.users_file", &users),
            ("broker.cert_file", &broker_cert),
            ("broker.key_file", &broker_key),
            ("broker.client_ca_file", &ca_file),
        ]);
        let broker = Links::start(&broker).await.unwrap();
        let address = format!("localhost:{}", broker.broker_address().unwrap().port());
        let there = [MQTT, ("mqtt.broker", &*address), ("mqtt.ca_file", &ca_file)];

        let by_certificate = [
            ("mqtt.client_cert_file", &*cert),
            ("mqtt.client_key_file", &*key),
        ];
        let set = [&there[..], &by_certificate].concat();
        assert_eq!(link_of(&set, "edge-a").await, "Subscribed");
        // It is nobody else.
        let lost = link_of(&set, "edge-c").await;
        assert!(lost.contains("ClientIdentifierNotValid"), "{lost}");

        let password = ca.file("password", "secret\n");
        let by_password = [
            ("mqtt.username", "b"),
            ("mqtt.password_file", password.as_str()),
        ];
        let set = [&there[..], &by_password].concat();
        assert_eq!(link_of(&set, "edge-b").await, "Subscribed");
        ca.file("password", "wrong");
        let lost = link_of(&set, "edge-b").await;
        assert!(lost.contains("BadUsernameOrPassword"), "{lost}");
        let lost = link_of(&there, "edge-b").await;
        assert!(lost.contains("NotAuthorized"), "{lost}");
        // Without TLS it does not even get to that.
        let set = [&there[..], &by_password, &[("mqtt.tls", "false")]].concat();
        let lost = link_of(&set, "edge-b").await;
        assert!(lost.starts_with("Lost"), "{lost}");
        broker.stop().await;
    }

    #[tokio::test]
    async fn whoever_says_nothing_is_let_in_if_told_so() {
        for (allow, begins) in [("true", "Subscribed"), ("false", "Lost")] {
            let set = settings(&[LISTEN, ("broker.allow_anonymous", allow)]);
            let broker = Links::start(&set).await.unwrap();
            let address = broker.broker_address().unwrap().to_string();
            let state = link_of(&[MQTT, ("mqtt.broker", &address)], "edge-a").await;
            assert!(state.starts_with(begins), "{allow}: {state}");
            broker.stop().await;
        }
    }

    #[tokio::test]
    async fn clusters_that_read_the_hubs_api_are_sent_nothing() {
        let set = settings(&[MQTT, BROKER, ("mqtt.except_clusters", "edge-a,edge-b")]);
        let links = Links::start(&set).await.unwrap();
        let events = links.source_events(links.source());
        assert_eq!(
            events.others,
            ["edge-a".to_owned(), "edge-b".to_owned()].into()
        );
        assert_eq!(
            events.options.resync_interval,
            Some(Duration::from_secs(600))
        );
    }
}
