//! The MQTT driver at a broker that takes less than it says.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use mqtt5_protocol::packet::connack::ConnAckPacket;
use mqtt5_protocol::packet::disconnect::DisconnectPacket;
use mqtt5_protocol::packet::puback::PubAckPacket;
use mqtt5_protocol::packet::publish::PublishPacket;
use mqtt5_protocol::packet::suback::{SubAckPacket, SubAckReasonCode};
use mqtt5_protocol::packet::{FixedHeader, MqttPacket, Packet};
use mqtt5_protocol::{QoS, ReasonCode};
use muster_cloudevents::bus::{
    Bus, BusEvent, Connection, Mqtt, MqttOptions, PublishError, Session,
};
use muster_cloudevents::{Message, Outgoing};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(45);

/// A broker without limits in its CONNACK, which ends the connection of whoever sends more than it
/// takes.
struct Broker {
    address: String,
    connections: Arc<AtomicUsize>,
    /// Messages that were too large.
    large: Arc<AtomicUsize>,
}

/// Sends so many messages to whoever subscribes, whatever it may have ahead.
async fn broker(most: usize, sends: usize) -> Broker {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let broker = Broker {
        address: listener.local_addr().unwrap().to_string(),
        connections: Arc::default(),
        large: Arc::default(),
    };
    let (connections, large) = (Arc::clone(&broker.connections), Arc::clone(&broker.large));
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            connections.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(serve(stream, most, sends, Arc::clone(&large)));
        }
    });
    broker
}

async fn serve(mut stream: TcpStream, most: usize, sends: usize, large: Arc<AtomicUsize>) {
    let mut buffer = BytesMut::new();
    loop {
        let Some((bytes, packet)) = take(&mut buffer) else {
            if stream.read_buf(&mut buffer).await.unwrap_or(0) == 0 {
                return;
            }
            continue;
        };
        let mut out = BytesMut::new();
        match packet {
            Packet::Connect(_) => ConnAckPacket::new(false, ReasonCode::Success)
                .encode(&mut out)
                .unwrap(),
            Packet::Subscribe(subscribe) => {
                let mut ack = SubAckPacket::new(subscribe.packet_id);
                ack.reason_codes = vec![SubAckReasonCode::GrantedQoS1];
                ack.encode(&mut out).unwrap();
                for id in 1..=sends {
                    let mut message =
                        PublishPacket::new("things", id.to_string().into_bytes(), QoS::AtLeastOnce);
                    message.packet_id = Some(u16::try_from(id).unwrap());
                    message.encode(&mut out).unwrap();
                }
            }
            Packet::Publish(_) if bytes > most => {
                large.fetch_add(1, Ordering::SeqCst);
                DisconnectPacket::new(ReasonCode::PacketTooLarge)
                    .encode(&mut out)
                    .unwrap();
                let _ = stream.write_all(&out).await;
                return;
            }
            Packet::Publish(publish) => PubAckPacket::new(publish.packet_id.unwrap())
                .encode(&mut out)
                .unwrap(),
            _ => {}
        }
        if stream.write_all(&out).await.is_err() {
            return;
        }
    }
}

fn take(buffer: &mut BytesMut) -> Option<(usize, Packet)> {
    let mut at = buffer.clone().freeze();
    let before = at.remaining();
    let header = FixedHeader::decode(&mut at).ok()?;
    let rest = usize::try_from(header.remaining_length).unwrap();
    if at.remaining() < rest {
        return None;
    }
    let whole = before - at.remaining() + rest;
    let mut body = at.split_to(rest);
    buffer.advance(whole);
    let packet = Packet::decode_from_body(header.packet_type, &header, &mut body);
    Some((whole, packet.unwrap()))
}

fn open(broker: &Broker, filters: &[&str]) -> Connection {
    let mut options = MqttOptions::new(broker.address.clone(), "me");
    options.first_pause = Duration::from_millis(20);
    options.ack_timeout = Duration::from_secs(20);
    Mqtt::new(options).unwrap().open(Session {
        filters: filters.iter().map(|filter| (*filter).to_owned()).collect(),
        will: None,
    })
}

fn message(bytes: usize) -> Outgoing {
    Outgoing {
        topic: "things".to_owned(),
        message: Message {
            payload: vec![b'x'; bytes].into(),
            ..Message::default()
        },
    }
}

async fn subscribed(connection: &mut Connection) {
    loop {
        let event = timeout(SOON, connection.events.recv()).await.unwrap();
        if matches!(event.unwrap(), BusEvent::Subscribed) {
            return;
        }
    }
}

/// A broker that ends the connection for the size of a message: it is sent once, and never again.
#[tokio::test]
async fn a_message_that_ends_its_connection_is_refused_and_not_sent_again() {
    let broker = broker(10_000, 0).await;
    let mut connection = open(&broker, &[]);
    subscribed(&mut connection).await;
    let publisher = connection.publisher.clone();
    let small: Vec<_> = (0..20)
        .map(|_| {
            let publisher = publisher.clone();
            // What was on its way then is lost, and sent again by whoever has it.
            tokio::spawn(async move {
                while let Err(error) = publisher.publish(message(100)).await {
                    assert!(error.is_of_connection(), "{error}");
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            })
        })
        .collect();
    let refused = publisher.publish(message(20_000)).await.unwrap_err();
    let PublishError::TooLarge { bytes, .. } = refused else {
        panic!("{refused}");
    };
    assert!((20_000..20_100).contains(&bytes), "{bytes}");
    assert!(refused.is_final());
    for small in small {
        timeout(SOON, small).await.unwrap().unwrap();
    }
    subscribed(&mut connection).await;
    // From now on it is known.
    for bytes in [20_000, 50_000] {
        let refused = publisher.publish(message(bytes)).await.unwrap_err();
        assert!(
            matches!(refused, PublishError::TooLarge { .. }),
            "{refused}"
        );
    }
    publisher.publish(message(9_000)).await.unwrap();
    assert_eq!(broker.large.load(Ordering::SeqCst), 1);
    assert_eq!(broker.connections.load(Ordering::SeqCst), 2);
}

/// A broker that sends more ahead than it may: acknowledgements are read all the same.
#[tokio::test]
async fn acknowledgements_do_not_wait_behind_messages_that_nobody_takes() {
    let broker = broker(10_000, 1_000).await;
    let mut connection = open(&broker, &["things"]);
    subscribed(&mut connection).await;
    for _ in 0..300 {
        connection.publisher.publish(message(100)).await.unwrap();
    }
    for id in 1..=1_000 {
        let event = timeout(SOON, connection.events.recv()).await.unwrap();
        let Some(BusEvent::Message(delivery)) = event else {
            panic!("{event:?}");
        };
        assert_eq!(delivery.message.payload, id.to_string());
    }
    assert_eq!(broker.connections.load(Ordering::SeqCst), 1);
}
