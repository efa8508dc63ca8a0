//! Clients that take more than is theirs: others go on, and those are told why.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking"
)]

mod support;

use std::net::SocketAddr;
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusBuilder;
use muster_broker::{Broker, BrokerSettings, Identities, Limits, TlsFiles, hash_password};
use muster_cloudevents::access::{Access, Principal};
use muster_cloudevents::{Dialect, Topics};
use rumqttc::v5::mqttbytes::v5::{ConnectReturnCode, DisconnectReasonCode, PubAckReason};
use support::certificates::{Ca, write};
use support::client::{Client, Hello};
use support::{SOON, cheap_hash};
use tokio::net::TcpStream;
use tokio::time::timeout;

const PASSWORD: &str = "open sesame";

fn agent(cluster: &str) -> Principal {
    Principal::Agent(cluster.to_owned())
}

fn settings(hash: &str) -> BrokerSettings {
    let mut identities = Identities::default();
    for name in ["edge-1", "edge-2"] {
        identities = identities.user(name, hash, agent(name)).unwrap();
    }
    let identities = identities
        .user("hub", hash, Principal::Source("hub".to_owned()))
        .unwrap();
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

async fn limited(change: impl FnOnce(&mut Limits)) -> Broker {
    let mut settings = settings(&cheap_hash(PASSWORD));
    change(&mut settings.limits);
    Broker::start(settings).await.unwrap()
}

fn user(name: &str) -> Hello {
    Hello::user(name, PASSWORD)
}

async fn connect(broker: &Broker, hello: Hello) -> Client {
    Client::connect(broker.address(), hello).await
}

/// The answer to CONNECT, with its words.
async fn answer(broker: &Broker, hello: Hello) -> (ConnectReturnCode, String) {
    let answer = Client::open(broker.address()).await.hello(hello).await;
    let text = answer
        .properties
        .and_then(|properties| properties.reason_string);
    (answer.code, text.unwrap_or_default())
}

#[tokio::test]
async fn the_client_id_of_another_cluster_is_refused_while_that_is_away() {
    let broker = limited(|_| {}).await;
    for client_id in [
        "edge-2-work-agent",
        "edge-2",
        "edge-2-work-agent-client",
        "hub-source",
        "x",
    ] {
        let (code, text) = answer(&broker, user("edge-1").id(client_id).session()).await;
        assert_eq!(
            code,
            ConnectReturnCode::ClientIdentifierNotValid,
            "{client_id}"
        );
        assert_eq!(text, "the client id is not one of agent/edge-1");
    }
    // Whose it is gets in, with a session of its own.
    for client_id in ["edge-2-work-agent", "edge-2"] {
        let mut client = Client::open(broker.address()).await;
        let welcome = client.hello(user("edge-2").id(client_id).session()).await;
        assert_eq!(welcome.code, ConnectReturnCode::Success, "{client_id}");
        assert!(!welcome.session_present);
    }
    connect(&broker, user("edge-1").id("edge-1-work-agent")).await;
}

#[tokio::test]
async fn one_user_has_a_share_of_sessions() {
    let broker = limited(|limits| limits.max_sessions_of_user = 3).await;
    for number in 0..3 {
        let hello = user("edge-1").id(&format!("edge-1:{number}")).session();
        connect(&broker, hello).await.leave().await;
    }
    let (code, text) = answer(&broker, user("edge-1").session()).await;
    assert_eq!(code, ConnectReturnCode::QuotaExceeded);
    assert_eq!(text, "there are too many sessions");
    connect(&broker, user("edge-1").id("edge-1:0").session()).await;
    connect(&broker, user("edge-2").session()).await;
}

#[tokio::test(start_paused = true)]
async fn one_user_has_a_share_of_retained_topics() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let broker = limited(|limits| limits.max_retained_of_user = 3).await;
    let topic =
        |source: u32, cluster: &str| format!("sources/s{source}/clusters/{cluster}/agentevents");
    let mut client = connect(&broker, user("edge-1")).await;
    let mut answers = Vec::new();
    for source in 0..10_000 {
        answers.push(client.publish_retained(&topic(source, "edge-1"), "x").await);
    }
    assert!(
        answers[..3]
            .iter()
            .all(|answer| *answer == PubAckReason::Success)
    );
    assert!(
        answers[3..]
            .iter()
            .all(|answer| *answer == PubAckReason::QuotaExceeded)
    );
    // A topic that is there can change, and one that goes makes room; others have shares of their own.
    let mut other = connect(&broker, user("edge-2")).await;
    for (topic, payload) in [
        (topic(0, "edge-1"), "y"),
        (topic(1, "edge-1"), ""),
        (topic(10, "edge-1"), "x"),
    ] {
        let answer = client.publish_retained(&topic, payload).await;
        assert_eq!(answer, PubAckReason::Success, "{topic}");
    }
    let others = other.publish_retained(&topic(0, "edge-2"), "x").await;
    assert_eq!(others, PubAckReason::Success);
    let refused = client.publish_retained(&topic(1, "edge-1"), "x").await;
    assert_eq!(refused, PubAckReason::QuotaExceeded);
    // Without being kept it goes through.
    let plain = client.publish(&topic(1, "edge-1"), "x").await;
    assert_eq!(plain, PubAckReason::Success);
    tokio::time::sleep(Duration::from_secs(6)).await;
    let metrics = recorder.handle().render();
    for expected in [
        r#"muster_broker_refused_total{reason="retained"} 9998"#,
        r#"muster_broker_largest_share{of="retained"} 1"#,
    ] {
        assert!(metrics.contains(expected), "{metrics}");
    }
}

/// With descriptors for so few, they have to make room for each other.
#[tokio::test]
async fn silent_connections_keep_nobody_out() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let dir = tempfile::tempdir().unwrap();
    let ca = Ca::new();
    let own = ca.sign("broker");
    let mut settings = settings(&cheap_hash(PASSWORD));
    settings.tls = Some(TlsFiles {
        certificate: write(dir.path(), "tls.crt", &own.certificate),
        key: write(dir.path(), "tls.key", &own.key),
        client_ca: None,
    });
    settings.limits.max_half_open = 16;
    let broker = Broker::start(settings).await.unwrap();
    let address = broker.address();
    let mut silent = Vec::new();
    for _ in 0..148 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    let mut client = Client::open_tls(address, ca.client(None)).await.unwrap();
    let welcome = client.hello(user("edge-1")).await;
    assert_eq!(welcome.code, ConnectReturnCode::Success);
    // The oldest are gone.
    for stream in &silent[..130] {
        stream.readable().await.unwrap();
        let read = stream.try_read(&mut [0]);
        assert!(
            matches!(read, Ok(0))
                || read.is_err_and(|error| error.kind() != std::io::ErrorKind::WouldBlock)
        );
    }
    let metrics = recorder.handle().render();
    assert!(
        metrics.contains(r#"muster_broker_refused_total{reason="half_open"} 13"#),
        "{metrics}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_login_has_ten_seconds_in_all() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let broker = limited(|_| {}).await;
    let mut slow = Client::open(broker.address()).await;
    slow.send_bytes(b"\x10\x0f\x00\x04MQTT").await;
    assert!(slow.ends().await);
    connect(&broker, user("edge-1")).await;
    let metrics = recorder.handle().render();
    assert!(
        metrics.contains(r#"muster_broker_refused_total{reason="timeout"} 1"#),
        "{metrics}"
    );
}

/// Whoever has logged in once does so again without a verification, and others are verified before
/// what has waited for long.
#[tokio::test]
async fn right_logins_get_in_during_a_flood_of_wrong_ones() {
    let broker = Broker::start(settings(&hash_password(PASSWORD)))
        .await
        .unwrap();
    let address = broker.address();
    connect(&broker, user("edge-1")).await.leave().await;
    let flood: Vec<_> = (0..200)
        .map(|guess| {
            tokio::spawn(async move {
                let guess = Hello::user("edge-2", &format!("guess {guess}"));
                Client::open(address).await.hello(guess).await.code
            })
        })
        .collect();
    for name in ["edge-1", "edge-2", "hub"] {
        let login = async { connect(&broker, user(name)).await };
        timeout(SOON, login).await.unwrap();
    }
    let waits = flood.iter().filter(|guess| !guess.is_finished()).count();
    assert!(
        waits > 0,
        "all wrong logins were answered before the right ones"
    );
    for guess in flood {
        let code = guess.await.unwrap();
        let refused = [
            ConnectReturnCode::BadUserNamePassword,
            ConnectReturnCode::ServerBusy,
        ];
        assert!(refused.contains(&code), "{code:?}");
    }
}

/// After CONNECT each gets DISCONNECT with a reason.
#[tokio::test]
async fn packets_that_no_client_may_send_end_their_connection_with_a_reason() {
    use DisconnectReasonCode::{MalformedPacket, PacketTooLarge, ProtocolError};
    let broker = limited(|limits| limits.max_packet_size = 1000).await;
    for (bytes, reason) in [
        (&b"\x32\x07\x00\x01a\x00\x00\x00x"[..], MalformedPacket),
        (b"\x82\x08\x00\x00\x00\x00\x02ab\x00", ProtocolError),
        (b"\xa2\x07\x00\x00\x00\x00\x02ab", ProtocolError),
        (b"\x40\x02\x00\x00", ProtocolError),
        (b"\x62\x02\x00\x00", ProtocolError),
        (b"\x90\x04\x00\x01\x00\x00", ProtocolError),
        (b"\xb0\x04\x00\x01\x00\x00", ProtocolError),
        (b"\x20\x03\x00\x00\x00", ProtocolError),
        (b"\xd0\x00", ProtocolError),
        // A second CONNECT.
        (
            b"\x10\x13\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x06edge-1",
            ProtocolError,
        ),
        (b"\x00\x00", MalformedPacket),
        (b"\x36\x07\x00\x01a\x00\x01\x00x", MalformedPacket),
        (b"\x80\x08\x00\x01\x00\x00\x02ab\x00", MalformedPacket),
        (b"\xc1\x00", MalformedPacket),
        (b"\xc0\xff\xff\xff\xff\x7f", MalformedPacket),
        (b"\x30\x03\x00\x01a", MalformedPacket),
        // A topic that is no UTF-8, one with a wildcard, a property that there is not.
        (b"\x30\x04\x00\x01\xff\x00", MalformedPacket),
        (
            b"\x30\x04\x00\x01+\x00",
            DisconnectReasonCode::TopicNameInvalid,
        ),
        (b"\x30\x06\x00\x01a\x02\x7f\x00", MalformedPacket),
        // SUBSCRIBE to nothing.
        (b"\x82\x03\x00\x01\x00", MalformedPacket),
        (b"\x32\xe6\x07", PacketTooLarge),
    ] {
        let mut client = connect(&broker, user("edge-1")).await;
        client.send_bytes(bytes).await;
        assert_eq!(client.closed().await, Some(reason), "{bytes:?}");
    }
    // What came before is answered.
    let mut client = connect(&broker, user("edge-1")).await;
    client.send_bytes(b"\xc0\x00\xd0\x00\xc0\x00").await;
    let mut answer = [0; 2];
    client.receive_bytes(&mut answer).await;
    assert_eq!(answer, [0xd0, 0]);
    assert_eq!(client.closed().await, Some(ProtocolError));
}

/// Before that, DISCONNECT has no place: CONNACK says it.
#[tokio::test]
async fn packets_before_connect_get_connack_with_a_reason() {
    let broker = limited(|_| {}).await;
    for (bytes, reason) in [
        (&b"\x30\x05\x00\x01a\x00x"[..], 0x82),
        (b"\xc0\x00", 0x82),
        (b"\x20\x03\x00\x00\x00", 0x82),
        (b"\x10\xff\xff\xff\xff\x7f", 0x81),
        (b"\x10\x04\x00\xffMQ", 0x81),
        (b"\x10\xe6\xff\x7f", 0x95),
        (b"GET / HTTP/1.1\r\n\r\n", 0x81),
    ] {
        let mut client = Client::open(broker.address()).await;
        client.send_bytes(bytes).await;
        let mut answer = [0; 5];
        client.receive_bytes(&mut answer).await;
        assert_eq!(answer, [0x20, 3, 0, reason, 0], "{bytes:?}");
        assert_eq!(client.closed().await, None);
    }
}
