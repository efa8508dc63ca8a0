//! Packets of MQTT 5 in bytes, and back.

use bytes::{Buf, Bytes, BytesMut};
use mqtt5_protocol::error::MqttError;
use mqtt5_protocol::packet::connack::ConnAckPacket;
use mqtt5_protocol::packet::connect::ConnectPacket;
use mqtt5_protocol::packet::disconnect::DisconnectPacket;
use mqtt5_protocol::packet::puback::PubAckPacket;
use mqtt5_protocol::packet::publish::PublishPacket;
use mqtt5_protocol::packet::subscribe::SubscribePacket;
use mqtt5_protocol::packet::{FixedHeader, MqttPacket, Packet, PacketType};
use mqtt5_protocol::protocol::v5::properties::{Properties, PropertyId, PropertyValue};
use mqtt5_protocol::types::{ConnectOptions, WillMessage, WillProperties};
use mqtt5_protocol::{QoS, ReasonCode};

use super::options::MqttOptions;
use crate::bus::{AHEAD, Session};
use crate::{Message, Outgoing};

pub(super) const PING: [u8; 2] = [0xC0, 0];

/// Bytes that are no packet, or one that is too large.
#[derive(Debug, thiserror::Error)]
pub(super) enum WireError {
    #[error("the broker sent a packet of {bytes} bytes, more than the {most} that it was told")]
    TooLarge { bytes: usize, most: usize },
    #[error("the broker sent what is no packet: {0}")]
    Malformed(#[from] MqttError),
}

/// Takes the next packet out of what has been read, if it is whole.
pub(super) fn take(buffer: &mut BytesMut, most: usize) -> Result<Option<Packet>, WireError> {
    let mut length = 0_usize;
    let mut at = 1;
    // The length is in up to four bytes of seven bits each.
    loop {
        let Some(byte) = buffer.get(at) else {
            return Ok(None);
        };
        length |= usize::from(byte & 0x7F) << (7 * (at - 1));
        if byte & 0x80 == 0 {
            break;
        }
        if at == 4 {
            let text = "its length has more than four bytes".to_owned();
            return Err(MqttError::MalformedPacket(text).into());
        }
        at += 1;
    }
    let whole = at + 1 + length;
    if whole > most {
        return Err(WireError::TooLarge { bytes: whole, most });
    }
    if buffer.len() < whole {
        // The rest comes in one allocation.
        buffer.reserve(whole - buffer.len());
        return Ok(None);
    }
    let mut packet = buffer.split_to(whole).freeze();
    let header = FixedHeader::decode(&mut packet)?;
    if header.packet_type == PacketType::PubAck && packet.len() > 2 {
        return Ok(Some(Packet::PubAck(refusal(&mut packet)?)));
    }
    let read = Packet::decode_from_body(header.packet_type, &header, &mut packet)?;
    Ok(Some(read))
}

/// An acknowledgement with a reason. Brokers give some that have no place there, as mosquitto does
/// where a message is too large; one message refused is no reason to leave the broker.
fn refusal(body: &mut Bytes) -> Result<PubAckPacket, MqttError> {
    let mut ack = PubAckPacket::new(body.get_u16());
    let code = body.get_u8();
    ack.reason_code = match ReasonCode::from_u8(code) {
        Some(reason) => reason,
        None if code < 0x80 => ReasonCode::Success,
        None => ReasonCode::UnspecifiedError,
    };
    if body.has_remaining() {
        ack.properties = Properties::decode(body)?;
    }
    Ok(ack)
}

fn bytes(packet: &impl MqttPacket) -> Result<Bytes, MqttError> {
    let mut buffer = BytesMut::new();
    packet.encode(&mut buffer)?;
    Ok(buffer.freeze())
}

/// The will is retained where the broker can do that.
pub(super) fn connect(
    options: &MqttOptions,
    session: &Session,
    retains: bool,
) -> Result<Bytes, MqttError> {
    let mut connect = ConnectOptions::new(options.client_id.clone())
        .with_clean_start(true)
        .with_keep_alive(options.keep_alive)
        .with_receive_maximum(u16::try_from(AHEAD).unwrap_or(u16::MAX));
    connect.properties.maximum_packet_size = Some(options.most_bytes);
    connect.username.clone_from(&options.username);
    connect.password = options.password.clone().map(String::into_bytes);
    connect.will = session.will.clone().map(|will| WillMessage {
        topic: will.topic,
        payload: will.message.payload.to_vec(),
        qos: QoS::AtLeastOnce,
        retain: retains,
        properties: WillProperties {
            content_type: will.message.content_type,
            user_properties: will.message.properties,
            ..WillProperties::default()
        },
    });
    bytes(&ConnectPacket::new(connect))
}

pub(super) fn subscribe(id: u16, filters: &[String], qos: QoS) -> Result<Bytes, MqttError> {
    let packet = SubscribePacket::new(id);
    let packet = filters
        .iter()
        .fold(packet, |packet, filter| packet.add_filter(filter, qos));
    bytes(&packet)
}

/// A message as a packet; with an id where it is to be acknowledged.
pub(super) fn publish(
    outgoing: Outgoing,
    id: Option<u16>,
    retain: bool,
) -> Result<Bytes, MqttError> {
    let Outgoing { topic, message } = outgoing;
    let qos = match id {
        Some(_) => QoS::AtLeastOnce,
        None => QoS::AtMostOnce,
    };
    let mut packet = PublishPacket::new(topic, message.payload, qos).with_retain(retain);
    packet.packet_id = id;
    if let Some(content_type) = message.content_type {
        packet.properties.set_content_type(content_type);
    }
    for (name, value) in message.properties {
        packet.properties.add_user_property(name, value);
    }
    bytes(&packet)
}

/// The message in a packet.
pub(super) fn message(packet: &PublishPacket) -> Message {
    let properties = packet.properties.get_all(PropertyId::UserProperty);
    let properties = properties.into_iter().flatten().filter_map(|property| {
        if let PropertyValue::Utf8StringPair(name, value) = property {
            Some((name.clone(), value.clone()))
        } else {
            None
        }
    });
    Message {
        content_type: packet.properties.get_content_type(),
        properties: properties.collect(),
        payload: packet.payload.clone(),
    }
}

pub(super) fn acknowledge(id: u16) -> Result<Bytes, MqttError> {
    bytes(&PubAckPacket::new(id))
}

/// Says goodbye; the broker then publishes the will, if there is one.
pub(super) fn disconnect(with_will: bool) -> Result<Bytes, MqttError> {
    bytes(&if with_will {
        DisconnectPacket::new(ReasonCode::DisconnectWithWillMessage)
    } else {
        DisconnectPacket::normal()
    })
}

/// Whether a broker keeps messages for those who subscribe later.
pub(super) fn can_retain(connack: &ConnAckPacket) -> bool {
    let said = connack.properties.get(PropertyId::RetainAvailable);
    !matches!(said, Some(PropertyValue::Byte(0)))
}

/// Whether a broker that has refused a message for this will do so again.
pub(super) const fn is_for_good(reason: ReasonCode) -> bool {
    matches!(
        reason,
        ReasonCode::PacketTooLarge
            | ReasonCode::PayloadFormatInvalid
            | ReasonCode::TopicNameInvalid
    )
}

/// What a broker says of a refusal.
pub(super) fn reason(code: impl std::fmt::Debug, properties: &Properties) -> String {
    match properties.get(PropertyId::ReasonString) {
        Some(PropertyValue::Utf8String(text)) if !text.is_empty() => format!("{code:?}: {text}"),
        _ => format!("{code:?}"),
    }
}

/// Whether a packet could be taken whole from the front.
#[cfg(test)]
fn taken(bytes: &[u8]) -> Option<Packet> {
    let mut buffer = BytesMut::from(bytes);
    let packet = take(&mut buffer, usize::MAX).unwrap();
    assert!(buffer.is_empty() || packet.is_none());
    packet
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::Value;

    use super::*;

    fn capture(name: &str) -> Value {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wire");
        serde_json::from_str(&std::fs::read_to_string(dir.join(name)).unwrap()).unwrap()
    }

    fn hex(capture: &Value) -> Vec<u8> {
        let text = capture["packet_hex"].as_str().unwrap();
        (0..text.len() / 2)
            .map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap())
            .collect()
    }

    #[test]
    fn subscriptions_are_those_of_sdk_go() {
        for side in ["agent", "source"] {
            let capture = capture(&format!("mqtt-subscribe-{side}.json"));
            let filters = capture["filters"].as_array().unwrap().iter();
            let filters: Vec<_> = filters
                .map(|filter| filter["filter"].as_str().unwrap().to_owned())
                .collect();
            let ours = subscribe(1, &filters, QoS::AtLeastOnce).unwrap();
            assert_eq!(ours, hex(&capture));
        }
    }

    /// Ours tell the broker how much it may send ahead; without that they are sdk-go's.
    #[test]
    fn a_connection_begins_as_sdk_gos_save_for_its_limits() {
        let capture = capture("mqtt-connect-agent.json");
        let mut options = MqttOptions::new("b:1", "edge-a-work-agent-client");
        options.keep_alive = std::time::Duration::from_secs(30);
        let ours = connect(&options, &Session::default(), true).unwrap();
        let Some(Packet::Connect(mut ours)) = taken(&ours) else {
            panic!("no CONNECT");
        };
        assert_eq!(ours.properties.get_receive_maximum(), Some(100));
        ours.properties = Properties::new();
        assert_eq!(bytes(&*ours).unwrap(), hex(&capture));
    }

    /// Whole packets of sdk-go: read, written and read again they say the same.
    #[test]
    fn events_of_sdk_go_are_read_from_their_packets() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wire");
        let mut seen = 0;
        for entry in std::fs::read_dir(dir).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let is_event = ["spec", "status-update", "statusresync"];
            if !is_event.iter().any(|start| name.starts_with(start)) {
                continue;
            }
            let bytes = hex(&capture(&name));
            let Some(Packet::Publish(packet)) = taken(&bytes) else {
                panic!("{name} is no PUBLISH");
            };
            let read = message(&packet);
            assert!(read.properties.len() > 5, "{name}");
            let outgoing = Outgoing {
                topic: packet.topic_name.clone(),
                message: read.clone(),
            };
            let ours = publish(outgoing, packet.packet_id, false).unwrap();
            assert_eq!(ours.len(), bytes.len(), "{name}");
            let Some(Packet::Publish(again)) = taken(&ours) else {
                panic!("{name} is no PUBLISH");
            };
            assert_eq!(message(&again), read, "{name}");
            seen += 1;
        }
        assert!(seen > 20, "{seen}");
    }

    #[test]
    fn packets_are_taken_when_they_are_whole() {
        let one = acknowledge(7).unwrap();
        for end in 0..one.len() {
            assert!(taken(&one[..end]).is_none(), "{end}");
        }
        let mut both = BytesMut::from(&one[..]);
        both.extend_from_slice(&[0xD0, 0]);
        let first = take(&mut both, 100).unwrap();
        assert!(matches!(first, Some(Packet::PubAck(ack)) if ack.packet_id == 7));
        assert!(matches!(take(&mut both, 100), Ok(Some(Packet::PingResp))));
        assert!(matches!(take(&mut both, 100), Ok(None)));
    }

    #[test]
    fn any_reason_of_an_acknowledgement_is_read() {
        for (bytes, reason) in [
            (&[0x40, 2, 0, 7][..], ReasonCode::Success),
            (&[0x40, 3, 0, 7, 0x10], ReasonCode::NoMatchingSubscribers),
            (&[0x40, 4, 0, 7, 0x87, 0], ReasonCode::NotAuthorized),
            (&[0x40, 3, 0, 7, 0x95], ReasonCode::PacketTooLarge),
            (&[0x40, 3, 0, 7, 0x7F], ReasonCode::Success),
            (&[0x40, 3, 0, 7, 0xFF], ReasonCode::UnspecifiedError),
        ] {
            let Some(Packet::PubAck(ack)) = taken(bytes) else {
                panic!("no PUBACK: {bytes:?}");
            };
            assert_eq!((ack.packet_id, ack.reason_code), (7, reason));
        }
    }

    #[test]
    fn what_is_no_packet_is_told() {
        let error = |bytes: &[u8]| take(&mut BytesMut::from(bytes), 100).unwrap_err();
        assert!(matches!(
            error(&[0x30, 0xFF, 0x01]),
            WireError::TooLarge {
                bytes: 258,
                most: 100
            }
        ));
        for bytes in [
            &[0x30, 0xFF, 0xFF, 0xFF, 0xFF][..],
            &[0x00, 0x00],
            &[0x36, 0x01, 0x00],
            &[0x40, 0x01, 0x00],
            &[0x40, 0x04, 0x00, 0x07, 0x87, 0x05],
        ] {
            assert!(matches!(error(bytes), WireError::Malformed(_)), "{bytes:?}");
        }
    }
}
