//! The broker, as clients see it: who gets in, who reads and writes what, and how much.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking"
)]

mod support;

use std::net::SocketAddr;
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusBuilder;
use muster_broker::{Broker, BrokerSettings, Identities, Limits, TlsFiles};
use muster_cloudevents::access::{Access, Principal};
use muster_cloudevents::{Dialect, Topics};
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{
    ConnectReturnCode, DisconnectReasonCode, PubAckReason, SubscribeReasonCode,
};
use support::certificates::{Ca, write};
use support::client::{Client, Hello};
use support::{SOON, cheap_hash};
use tokio::net::TcpStream;
use tokio::time::timeout;

const GRANTED: SubscribeReasonCode = SubscribeReasonCode::Success(QoS::AtLeastOnce);

/// The password of every user.
const PASSWORD: &str = "open sesame";

fn agent(cluster: &str) -> Principal {
    Principal::Agent(cluster.to_owned())
}

fn source(name: &str) -> Principal {
    Principal::Source(name.to_owned())
}

/// Two sources, two agents and an operator, with the topics that sdk-go has by default.
fn settings() -> BrokerSettings {
    let mut identities = Identities::default();
    for (name, principal) in [
        ("hub1", source("hub1")),
        ("hub2", source("hub2")),
        ("c1", agent("c1")),
        ("c2", agent("c2")),
        ("root", Principal::Everything),
    ] {
        identities = identities
            .user(name, &cheap_hash(PASSWORD), principal)
            .unwrap();
    }
    BrokerSettings {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        tls: None,
        identities,
        access: Access {
            dialect: Dialect::SdkGo(Topics {
                source_events: "sources/+/clusters/+/sourceevents".to_owned(),
                agent_events: "sources/+/clusters/+/agentevents".to_owned(),
                source_broadcast: Some("sources/+/sourcebroadcast".to_owned()),
                agent_broadcast: Some("clusters/+/agentbroadcast".to_owned()),
            }),
        },
        limits: Limits::default(),
    }
}

async fn start() -> Broker {
    Broker::start(settings()).await.unwrap()
}

fn user(name: &str) -> Hello {
    Hello::user(name, PASSWORD)
}

async fn connect(broker: &Broker, hello: Hello) -> Client {
    Client::connect(broker.address(), hello).await
}

/// The answer to CONNECT.
async fn answer(broker: &Broker, hello: Hello) -> ConnectReturnCode {
    Client::open(broker.address()).await.hello(hello).await.code
}

#[tokio::test]
async fn a_password_lets_its_user_in_and_nothing_else_does() {
    let broker = start().await;
    connect(&broker, user("c1")).await.leave().await;
    for hello in [
        Hello::user("c1", "something else"),
        Hello::user("c1", ""),
        Hello::user("nobody", PASSWORD),
    ] {
        let refused = ConnectReturnCode::BadUserNamePassword;
        assert_eq!(answer(&broker, hello.clone()).await, refused, "{hello:?}");
    }
    let refused = ConnectReturnCode::NotAuthorized;
    assert_eq!(answer(&broker, Hello::anonymous("c1")).await, refused);
}

#[tokio::test]
async fn anonymous_clients_are_let_in_when_told_so() {
    let settings = settings();
    let identities = settings.identities.allow_anonymous(source("hub1"));
    let broker = Broker::start(BrokerSettings {
        identities,
        ..settings
    });
    let broker = broker.await.unwrap();
    let mut client = connect(&broker, Hello::anonymous("hub1-any")).await;
    let own = "sources/hub1/clusters/+/agentevents";
    assert_eq!(client.subscribe(own).await, GRANTED);
    let foreign = "sources/hub2/clusters/+/agentevents";
    let refused = SubscribeReasonCode::NotAuthorized;
    assert_eq!(client.subscribe(foreign).await, refused);
    let wrong = Hello::user("c1", "something else");
    let refused = ConnectReturnCode::BadUserNamePassword;
    assert_eq!(answer(&broker, wrong).await, refused);
}

#[tokio::test]
async fn an_old_protocol_is_refused() {
    let broker = start().await;
    let mut client = Client::open(broker.address()).await;
    // CONNECT of MQTT 3.1.1: clean session, client id "c1", user "c1".
    let connect = b"\x10\x12\x00\x04MQTT\x04\x82\x00\x3c\x00\x02c1\x00\x02c1";
    client.send_bytes(connect).await;
    // CONNACK: unacceptable protocol version.
    let mut answer = [0; 4];
    client.receive_bytes(&mut answer).await;
    assert_eq!(answer, [0x20, 2, 0, 1]);
    assert_eq!(client.closed().await, None);
}

/// The broker's files, its CA and that of its clients.
struct Tls {
    dir: tempfile::TempDir,
    server: Ca,
    clients: Ca,
}

impl Tls {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            server: Ca::new(),
            clients: Ca::new(),
        }
    }

    async fn start(&self, identities: Identities) -> Broker {
        let dir = self.dir.path();
        let own = self.server.sign("broker");
        let tls = Some(TlsFiles {
            certificate: write(dir, "tls.crt", &own.certificate),
            key: write(dir, "tls.key", &own.key),
            client_ca: Some(write(dir, "clients.crt", &self.clients.pem())),
        });
        let settings = BrokerSettings {
            tls,
            identities,
            ..settings()
        };
        Broker::start(settings).await.unwrap()
    }

    /// A connection of a client whose certificate has this name.
    async fn named(&self, broker: &Broker, common_name: &str) -> Client {
        let own = self.clients.sign(common_name);
        let config = self.server.client(Some(&own));
        let client = Client::open_tls(broker.address(), config).await;
        client.unwrap()
    }
}

#[tokio::test]
async fn a_client_certificate_says_who_a_client_is() {
    let tls = Tls::new();
    let known = settings().identities.certificate("hub", source("hub1"));
    let broker = tls.start(known.unwrap()).await;

    let mut hub = tls.named(&broker, "hub").await;
    let welcome = hub.hello(Hello::anonymous("hub")).await;
    assert_eq!(welcome.code, ConnectReturnCode::Success);
    let own = "sources/hub1/clusters/+/agentevents";
    assert_eq!(hub.subscribe(own).await, GRANTED);

    let ocm = "system:open-cluster-management:c1:agent-x";
    let mut agent = tls.named(&broker, ocm).await;
    let welcome = agent.hello(Hello::anonymous("c1-work-agent")).await;
    assert_eq!(welcome.code, ConnectReturnCode::Success);
    let events = "sources/hub1/clusters/c1/agentevents";
    assert_eq!(agent.publish(events, "one").await, PubAckReason::Success);
    let foreign = "sources/hub1/clusters/c2/agentevents";
    let refused = PubAckReason::NotAuthorized;
    assert_eq!(agent.publish(foreign, "two").await, refused);
    assert_eq!(hub.text().await, "one");

    let mut stranger = tls.named(&broker, "stranger").await;
    let refused = stranger.hello(Hello::anonymous("stranger")).await;
    assert_eq!(refused.code, ConnectReturnCode::NotAuthorized);
}

#[tokio::test]
async fn passwords_work_over_tls_also_without_a_certificate() {
    let tls = Tls::new();
    let broker = tls.start(settings().identities).await;
    let address = broker.address();
    let without = Client::open_tls(address, tls.server.client(None)).await;
    let welcome = without.unwrap().hello(user("c1")).await;
    assert_eq!(welcome.code, ConnectReturnCode::Success);
    let unknown = tls.named(&broker, "stranger").await.hello(user("c2")).await;
    assert_eq!(unknown.code, ConnectReturnCode::Success);
}

#[tokio::test]
async fn certificates_of_another_ca_and_plain_text_are_refused() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let tls = Tls::new();
    let broker = tls.start(settings().identities).await;
    let address = broker.address();
    let forged = Ca::new().sign("system:open-cluster-management:c1:agent-x");
    let client = Client::open_tls(address, tls.server.client(Some(&forged))).await;
    // With TLS 1.3, the client is done before the broker has looked at its certificate.
    if let Ok(client) = client {
        assert_eq!(client.closed().await, None);
    }
    let mut plain = Client::open(address).await;
    plain
        .send_bytes(b"\x10\x0f\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x02c1")
        .await;
    assert!(plain.ends().await);
    let stranger = Ca::new();
    assert!(
        Client::open_tls(address, stranger.client(None))
            .await
            .is_err()
    );
    broker.stop().await;
    let refused = r#"muster_broker_refused_total{reason="tls"} 3"#;
    let metrics = recorder.handle().render();
    assert!(metrics.contains(refused), "{metrics}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_says_nothing_is_sent_away() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let broker = start().await;
    assert!(Client::open(broker.address()).await.ends().await);
    let broker = Tls::new().start(settings().identities).await;
    assert!(Client::open(broker.address()).await.ends().await);
    broker.stop().await;
    let metrics = recorder.handle().render();
    let refused = r#"muster_broker_refused_total{reason="tls"} 1"#;
    assert!(metrics.contains(refused), "{metrics}");
}

#[tokio::test]
async fn events_go_both_ways() {
    let broker = start().await;
    let mut hub = connect(&broker, user("hub1")).await;
    let mut agent = connect(&broker, user("c1")).await;
    let specs = "sources/+/clusters/c1/sourceevents";
    assert_eq!(agent.subscribe(specs).await, GRANTED);
    let statuses = "$share/hubs/sources/hub1/clusters/+/agentevents";
    assert_eq!(hub.subscribe(statuses).await, GRANTED);
    let spec = "sources/hub1/clusters/c1/sourceevents";
    assert_eq!(hub.publish(spec, "spec").await, PubAckReason::Success);
    let message = agent.message().await;
    assert_eq!(
        (&message.topic[..], &message.payload[..]),
        (spec.as_bytes(), &b"spec"[..])
    );
    // Who has sent it, as the broker knows him.
    let properties = message.properties.unwrap().user_properties;
    let sender = ("x-mqtt-sender".to_owned(), "source/hub1".to_owned());
    assert!(properties.contains(&sender), "{properties:?}");
    let status = "sources/hub1/clusters/c1/agentevents";
    assert_eq!(agent.publish(status, "status").await, PubAckReason::Success);
    assert_eq!(hub.text().await, "status");
}

#[tokio::test]
async fn another_cluster_gets_nothing_and_writes_nothing() {
    let broker = start().await;
    let mut other = connect(&broker, user("c2")).await;
    let mut own = connect(&broker, user("c1")).await;
    let mut root = connect(&broker, user("root")).await;
    assert_eq!(root.subscribe("#").await, GRANTED);
    for filter in [
        "sources/hub1/clusters/c1/sourceevents",
        "sources/+/clusters/+/sourceevents",
        "$share/g/sources/+/clusters/c1/sourceevents",
        "sources/#",
        "#",
        "$SYS/#",
        "clusters/+/agentbroadcast",
    ] {
        let refused = SubscribeReasonCode::NotAuthorized;
        assert_eq!(other.subscribe(filter).await, refused, "{filter}");
    }
    for topic in [
        "sources/hub1/clusters/c1/agentevents",
        "sources/hub1/clusters/c1/sourceevents",
        "sources/hub1/clusters/c2/sourceevents",
        "sources/hub1/sourcebroadcast",
        "clusters/c1/agentbroadcast",
        "$SYS/broker",
    ] {
        let refused = PubAckReason::NotAuthorized;
        assert_eq!(other.publish(topic, "no").await, refused, "{topic}");
        assert_eq!(
            other.publish_retained(topic, "no").await,
            refused,
            "{topic}"
        );
    }
    // Nothing of that came through: what is allowed arrives first.
    let specs = "sources/+/clusters/c2/sourceevents";
    assert_eq!(other.subscribe(specs).await, GRANTED);
    let own_specs = "sources/+/clusters/c1/sourceevents";
    assert_eq!(own.subscribe(own_specs).await, GRANTED);
    let mut hub = connect(&broker, user("hub1")).await;
    for cluster in ["c1", "c2"] {
        let topic = format!("sources/hub1/clusters/{cluster}/sourceevents");
        assert_eq!(hub.publish(&topic, cluster).await, PubAckReason::Success);
    }
    assert_eq!(other.text().await, "c2");
    assert_eq!(own.text().await, "c1");
    assert_eq!(root.text().await, "c1");
    assert_eq!(root.text().await, "c2");
}

#[tokio::test]
async fn a_will_needs_the_right_to_publish() {
    let broker = start().await;
    let foreign = user("c2").will("clusters/c1/agentbroadcast", "gone");
    let refused = ConnectReturnCode::NotAuthorized;
    assert_eq!(answer(&broker, foreign).await, refused);
    let own = user("c2").will("clusters/c2/agentbroadcast", "gone");
    assert_eq!(answer(&broker, own).await, ConnectReturnCode::Success);
}

/// The client that the rest of muster uses.
#[tokio::test]
async fn the_client_of_mqtt5_learns_what_is_refused_and_comes_back() {
    let broker = start().await;
    let address = broker.address();
    let url = format!("mqtt://{address}");
    let wrong = mqtt5::ConnectOptions::new("c1").with_credentials("c1", "something else");
    let refused = mqtt5::MqttClient::with_options(wrong).connect(&url).await;
    assert!(refused.is_err());

    let options = mqtt5::ConnectOptions::new("c1").with_credentials("c1", PASSWORD);
    let agent = mqtt5::MqttClient::with_options(options);
    agent.connect(&url).await.unwrap();
    let (arrived, mut arrivals) = tokio::sync::mpsc::unbounded_channel();
    let specs = mqtt5::SubscribeOptions {
        qos: mqtt5::QoS::AtLeastOnce,
        ..Default::default()
    };
    let hand_over = move |message: mqtt5::Message| {
        arrived.send(message.payload.clone()).unwrap();
    };
    let own = "sources/+/clusters/c1/sourceevents";
    agent
        .subscribe_with_options(own, specs, hand_over)
        .await
        .unwrap();
    let foreign = "sources/+/clusters/c2/sourceevents";
    assert!(agent.subscribe(foreign, drop).await.is_err());
    let status = "sources/hub1/clusters/c1/agentevents";
    agent.publish_qos1(status, "status").await.unwrap();
    let foreign = "sources/hub1/clusters/c2/agentevents";
    assert!(agent.publish_qos1(foreign, "status").await.is_err());

    let spec = "sources/hub1/clusters/c1/sourceevents";
    connect(&broker, user("hub1"))
        .await
        .publish(spec, "one")
        .await;
    let arrival = timeout(SOON, arrivals.recv()).await.unwrap();
    assert_eq!(arrival.unwrap(), b"one");

    broker.stop().await;
    let listen = address;
    let broker = Broker::start(BrokerSettings {
        listen,
        ..settings()
    });
    let broker = broker.await.unwrap();
    // Whether the agent is there already or not yet.
    let mut hub = connect(&broker, user("hub1")).await;
    hub.publish_retained(spec, "two").await;
    let arrival = timeout(SOON, arrivals.recv()).await.unwrap();
    assert_eq!(arrival.unwrap(), b"two");
}

#[tokio::test]
async fn presence_is_retained_and_ends_with_the_will() {
    let broker = start().await;
    let topic = "clusters/c1/agentbroadcast";
    let mut agent = connect(&broker, user("c1").retained_will(topic, "gone")).await;
    let here = agent.publish_retained(topic, "here").await;
    assert_eq!(here, PubAckReason::Success);

    let filter = "clusters/+/agentbroadcast";
    let mut hub = connect(&broker, user("hub1")).await.reads(filter).await;
    let message = hub.message().await;
    assert_eq!((&message.payload[..], message.retain), (&b"here"[..], true));
    drop(agent);
    assert_eq!(hub.text().await, "gone");

    // Who comes later learns it, too.
    let mut late = connect(&broker, user("hub2")).await.reads(filter).await;
    assert_eq!(late.text().await, "gone");

    // An agent that says goodbye has told it by itself.
    let mut agent = connect(&broker, user("c1").retained_will(topic, "gone")).await;
    let bye = agent.publish_retained(topic, "stopped").await;
    assert_eq!(bye, PubAckReason::Success);
    agent.leave().await;
    let mut next = connect(&broker, user("c2")).await;
    let last = next.publish("clusters/c2/agentbroadcast", "c2").await;
    assert_eq!(last, PubAckReason::Success);
    assert_eq!(hub.text().await, "stopped");
    assert_eq!(hub.text().await, "c2");
}

#[tokio::test]
async fn a_client_id_is_taken_over_by_its_principal_only() {
    let settings = settings();
    let identities = settings.identities.client_id("agent", &agent("c1"));
    let broker = Broker::start(BrokerSettings {
        identities: identities.unwrap(),
        ..settings
    });
    let broker = broker.await.unwrap();
    let old = connect(&broker, user("c1").id("agent").session()).await;
    let refused = ConnectReturnCode::ClientIdentifierNotValid;
    assert_eq!(answer(&broker, user("c2").id("agent")).await, refused);

    let new = connect(&broker, user("c1").id("agent").session()).await;
    let taken_over = DisconnectReasonCode::SessionTakenOver;
    assert_eq!(old.closed().await, Some(taken_over));

    // Its session waits for it, also for a clean start of another.
    new.leave().await;
    assert_eq!(answer(&broker, user("c2").id("agent")).await, refused);
    let mut back = Client::open(broker.address()).await;
    let welcome = back.hello(user("c1").id("agent").session()).await;
    assert!(welcome.session_present);
}

#[tokio::test]
async fn messages_wait_for_a_client_that_is_away() {
    let broker = start().await;
    let specs = "sources/+/clusters/c1/sourceevents";
    let agent = connect(&broker, user("c1").session()).await;
    agent.reads(specs).await.leave().await;
    let mut hub = connect(&broker, user("hub1")).await;
    let topic = "sources/hub1/clusters/c1/sourceevents";
    for text in ["one", "two"] {
        assert_eq!(hub.publish(topic, text).await, PubAckReason::Success);
    }
    let mut agent = connect(&broker, user("c1").session()).await;
    assert_eq!(agent.text().await, "one");
    assert_eq!(agent.text().await, "two");
}

#[tokio::test]
async fn of_too_many_waiting_messages_the_oldest_go() {
    let broker = limited(|limits| limits.max_queued_messages = 2).await;
    let specs = "sources/+/clusters/c1/sourceevents";
    let agent = connect(&broker, user("c1").session()).await;
    agent.reads(specs).await.leave().await;
    let mut hub = connect(&broker, user("hub1")).await;
    let topic = "sources/hub1/clusters/c1/sourceevents";
    for text in ["one", "two", "three"] {
        assert_eq!(hub.publish(topic, text).await, PubAckReason::Success);
    }
    let mut agent = connect(&broker, user("c1").session()).await;
    assert_eq!(agent.text().await, "two");
    assert_eq!(agent.text().await, "three");
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_is_counted_while_it_is_full() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let housekeeping = Duration::from_secs(6);
    let broker = limited(|limits| limits.max_queued_messages = 2).await;
    let specs = "sources/+/clusters/c1/sourceevents";
    let agent = connect(&broker, user("c1").session()).await;
    agent.reads(specs).await.leave().await;
    let mut hub = connect(&broker, user("hub1")).await;
    let topic = "sources/hub1/clusters/c1/sourceevents";
    for (text, full) in [("one", 0), ("two", 1), ("three", 1)] {
        assert_eq!(hub.publish(topic, text).await, PubAckReason::Success);
        tokio::time::sleep(housekeeping).await;
        let metrics = recorder.handle().render();
        let expected = format!("muster_broker_full_queues {full}\n");
        assert!(metrics.contains(&expected), "{metrics}");
    }
    let mut agent = connect(&broker, user("c1").session()).await;
    assert_eq!(agent.text().await, "two");
    tokio::time::sleep(housekeeping).await;
    let metrics = recorder.handle().render();
    assert!(
        metrics.contains("muster_broker_full_queues 0\n"),
        "{metrics}"
    );
}

async fn limited(change: impl FnOnce(&mut Limits)) -> Broker {
    let mut settings = settings();
    change(&mut settings.limits);
    Broker::start(settings).await.unwrap()
}

#[tokio::test]
async fn a_packet_that_is_too_large_ends_the_connection() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let broker = limited(|limits| limits.max_packet_size = 1000).await;
    let mut hub = Client::open(broker.address()).await;
    let welcome = hub.hello(user("hub1")).await;
    assert_eq!(welcome.properties.unwrap().max_packet_size, Some(1000));
    let topic = "sources/hub1/clusters/c1/sourceevents";
    let fits = "x".repeat(900);
    assert_eq!(hub.publish(topic, &fits).await, PubAckReason::Success);
    // PUBLISH of 1001 bytes.
    hub.send_bytes(b"\x32\xe6\x07").await;
    assert!(hub.ends().await);
    broker.stop().await;
    let metrics = recorder.handle().render();
    let refused = r#"muster_broker_refused_total{reason="packet_size"} 1"#;
    assert!(metrics.contains(refused), "{metrics}");
}

#[tokio::test]
async fn sessions_and_connections_have_an_end() {
    let broker = limited(|limits| limits.max_sessions = 2).await;
    connect(&broker, user("c1").session()).await.leave().await;
    let hub = connect(&broker, user("hub1")).await;
    let refused = ConnectReturnCode::QuotaExceeded;
    assert_eq!(answer(&broker, user("c2")).await, refused);
    // One that is there may come back; one that is over makes place.
    connect(&broker, user("c1").session()).await.leave().await;
    hub.leave().await;
    connect(&broker, user("c2")).await;

    let broker = limited(|limits| limits.max_connections = 1).await;
    let first = connect(&broker, user("c1")).await;
    let second = Client::open(broker.address()).await;
    assert!(second.ends().await);
    first.leave().await;
    connect(&broker, user("c2")).await;
}

#[tokio::test]
async fn filters_and_retained_messages_have_an_end() {
    let broker = limited(|limits| {
        limits.max_subscriptions = 1;
        limits.max_retained_messages = 1;
        limits.max_retained_size = 4;
    })
    .await;
    let filter = "clusters/+/agentbroadcast";
    let mut hub = connect(&broker, user("hub1")).await.reads(filter).await;
    let another = hub.subscribe("sources/hub1/clusters/+/agentevents").await;
    assert_eq!(another, SubscribeReasonCode::QuotaExceeded);
    let mut agent = connect(&broker, user("c1")).await;
    let topic = "clusters/c1/agentbroadcast";
    for (topic, payload, answer) in [
        (topic, "large", PubAckReason::QuotaExceeded),
        (topic, "here", PubAckReason::Success),
        (topic, "gone", PubAckReason::Success),
        (
            "sources/hub1/clusters/c1/agentevents",
            "here",
            PubAckReason::QuotaExceeded,
        ),
    ] {
        assert_eq!(
            agent.publish_retained(topic, payload).await,
            answer,
            "{topic}"
        );
    }
}

#[tokio::test]
async fn malformed_packets_end_their_connection_only() {
    let broker = start().await;
    let mut agent = connect(&broker, user("c1")).await;
    for bytes in [
        // No packet at all, CONNACK, PUBLISH before CONNECT, and lengths that lie.
        &b"GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\nUser-Agent: a browser of old\r\n\r\n"[..],
        b"\x20\x03\x00\x00\x00",
        b"\x30\x03\x00\x01a",
        b"\x10\xff\xff\xff\xff\x7f",
        b"\x10\x04\x00\xffMQ",
    ] {
        let mut client = Client::open(broker.address()).await;
        client.send_bytes(bytes).await;
        assert!(client.ends().await, "{bytes:?}");
    }
    let own = "clusters/c1/agentbroadcast";
    assert_eq!(agent.publish(own, "here").await, PubAckReason::Success);
}

#[tokio::test]
async fn clients_are_told_when_the_broker_stops() {
    let broker = start().await;
    let address = broker.address();
    let agent = connect(&broker, user("c1")).await;
    let silent = Client::open(address).await;
    broker.stop().await;
    let reason = DisconnectReasonCode::ServerShuttingDown;
    assert_eq!(agent.closed().await, Some(reason));
    assert!(silent.ends().await);
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn a_dropped_broker_stops() {
    let broker = start().await;
    let agent = connect(&broker, user("c1")).await;
    drop(broker);
    let reason = DisconnectReasonCode::ServerShuttingDown;
    assert_eq!(agent.closed().await, Some(reason));
}

#[tokio::test]
async fn metrics_tell_what_happens() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let broker = start().await;
    let own = "clusters/c1/agentbroadcast";
    let filter = "clusters/+/agentbroadcast";
    let mut hub = connect(&broker, user("hub1")).await.reads(filter).await;
    let mut agent = connect(&broker, user("c1")).await;
    agent.publish(own, "here").await;
    hub.text().await;
    agent.publish("clusters/c2/agentbroadcast", "no").await;
    agent.subscribe("#").await;
    answer(&broker, Hello::user("c2", "something else")).await;
    answer(&broker, Hello::anonymous("c2")).await;
    answer(&broker, user("c2").will(own, "no")).await;
    answer(&broker, user("c2").id("c1")).await;
    // Gone for the broker, too, before it is counted.
    agent.leave().await;
    let metrics = recorder.handle().render();
    let lines: Vec<_> = metrics.lines().collect();
    for expected in [
        "muster_broker_connections 1",
        r#"muster_broker_messages_total{direction="in"} 2"#,
        r#"muster_broker_messages_total{direction="out"} 1"#,
        r#"muster_broker_refused_total{reason="publish"} 1"#,
        r#"muster_broker_refused_total{reason="subscribe"} 1"#,
        r#"muster_broker_refused_total{reason="credentials"} 1"#,
        r#"muster_broker_refused_total{reason="anonymous"} 1"#,
        r#"muster_broker_refused_total{reason="will"} 1"#,
        r#"muster_broker_refused_total{reason="client_id"} 1"#,
    ] {
        assert!(
            lines.contains(&expected),
            "{expected} is missing in\n{metrics}"
        );
    }
}
