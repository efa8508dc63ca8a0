//! A client's connection, as mqtt5 gets it: packets are looked at on their way in, refusals get our
//! words on their way out, and when mqtt5 is done with it, it comes back, so that the client can be
//! told why it ends.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use mqtt5::broker::transport::WebSocketTransport;
use mqtt5::protocol::v5::reason_codes::ReasonCode;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::frames::{Offence, Publish, Scanner};

/// How long a client may take to read why its connection ends, and what of its own is read until
/// then: bytes that nobody reads would have the system throw the answer away.
const LAST_WORDS: Duration = Duration::from_secs(2);
const LAST_BYTES: u64 = 4 * 1024 * 1024;

const CONNACK: u8 = 0x20;
const PUBACK: u8 = 0x40;
const PUBREC: u8 = 0x50;
const DISCONNECT: u8 = 0xE0;
const REASON_STRING: u8 = 0x1F;

pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Sync + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Duplex for T {}

/// Why something is refused, in our words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: ReasonCode,
    pub(crate) text: String,
}

/// What a connection's stream and its gate tell each other.
#[derive(Debug, Default)]
pub(crate) struct Wire(Mutex<Told>);

#[derive(Debug, Default)]
struct Told {
    /// Messages that mqtt5 has not asked the gate about yet, in order.
    publishes: VecDeque<Publish>,
    /// The words for the next answer, if that is a refusal.
    refusal: Option<Refusal>,
    connack: bool,
    disconnect: bool,
    offence: Option<Offence>,
}

impl Wire {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next message that mqtt5 asks about; none if it is a will.
    pub(crate) fn next_publish(&self) -> Option<Publish> {
        self.told().publishes.pop_front()
    }

    /// What mqtt5 is about to refuse gets these words.
    pub(crate) fn refuse(&self, code: ReasonCode, text: impl Into<String>) {
        let text = text.into();
        self.told().refusal = Some(Refusal { code, text });
    }

    /// The packet for which the connection ends.
    pub(crate) fn offence(&self) -> Option<Offence> {
        self.told().offence
    }
}

/// See the module.
pub(crate) struct Inspected {
    /// There until it is dropped.
    stream: Option<Box<dyn Duplex>>,
    back: Option<oneshot::Sender<Box<dyn Duplex>>>,
    peer: SocketAddr,
    wire: Arc<Wire>,
    scanner: Scanner,
    /// Bytes to come of the packet that is being written.
    writing: usize,
    /// What is written in place of a packet of mqtt5's.
    instead: Bytes,
}

impl Inspected {
    /// The stream for mqtt5, and where it comes back.
    pub(crate) fn new(
        stream: Box<dyn Duplex>,
        peer: SocketAddr,
        wire: Arc<Wire>,
    ) -> (Self, oneshot::Receiver<Box<dyn Duplex>>) {
        let (back, comes_back) = oneshot::channel();
        let inspected = Self {
            stream: Some(stream),
            back: Some(back),
            peer,
            wire,
            scanner: Scanner::default(),
            writing: 0,
            instead: Bytes::new(),
        };
        (inspected, comes_back)
    }

    fn stream(&mut self) -> io::Result<Pin<&mut Box<dyn Duplex>>> {
        let gone = || io::Error::from(io::ErrorKind::NotConnected);
        self.stream.as_mut().map(Pin::new).ok_or_else(gone)
    }

    /// A packet of mqtt5's begins with these bytes.
    fn begins(&mut self, bytes: &[u8]) {
        self.writing = length(bytes).unwrap_or(bytes.len());
        let mut told = self.wire.told();
        let kind = bytes[0] & 0xF0;
        match kind {
            CONNACK => told.connack = true,
            DISCONNECT => told.disconnect = true,
            _ => {}
        }
        if [CONNACK, PUBACK, PUBREC].contains(&kind)
            && let Some(refusal) = told.refusal.take()
        {
            self.instead = refused(bytes, &refusal);
        }
    }
}

impl Drop for Inspected {
    fn drop(&mut self) {
        if let (Some(stream), Some(back)) = (self.stream.take(), self.back.take()) {
            // Nobody waits for it where the broker stops.
            let _ = back.send(stream);
        }
    }
}

impl AsyncRead for Inspected {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.wire.offence().is_some() {
            return Poll::Ready(Err(not_for_clients()));
        }
        let before = buf.filled().len();
        ready!(this.stream()?.poll_read(cx, buf))?;
        let wire = &this.wire;
        let scanned = this.scanner.scan(&buf.filled()[before..], |publish| {
            wire.told().publishes.push_back(publish);
        });
        if let Err((good, offence)) = scanned {
            buf.set_filled(before + good);
            wire.told().offence = Some(offence);
            // mqtt5 gets what came before, and then an error: the rest is never asked for.
            if good == 0 {
                return Poll::Ready(Err(not_for_clients()));
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Inspected {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        if this.writing == 0 {
            this.begins(bytes);
        }
        if !this.instead.is_empty() {
            while !this.instead.is_empty() {
                let instead = this.instead.clone();
                let written = ready!(this.stream()?.poll_write(cx, &instead))?;
                if written == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                this.instead.advance(written);
            }
            // mqtt5 writes a packet at once.
            let whole = this.writing.min(bytes.len());
            this.writing = 0;
            return Poll::Ready(Ok(whole));
        }
        let most = this.writing.min(bytes.len());
        let written = ready!(this.stream()?.poll_write(cx, &bytes[..most]))?;
        this.writing -= written;
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().stream()?.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().stream()?.poll_shutdown(cx)
    }
}

impl WebSocketTransport for Inspected {
    fn peer_addr(&self) -> mqtt5::Result<SocketAddr> {
        Ok(self.peer)
    }
}

fn not_for_clients() -> io::Error {
    let text = "a packet that no client may send";
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// The length of the packet that begins with these bytes, if they say it.
fn length(bytes: &[u8]) -> Option<usize> {
    let mut length = 0;
    for (at, byte) in bytes.iter().enumerate().skip(1).take(4) {
        length |= usize::from(byte & 0x7F) << (7 * (at - 1));
        if byte & 0x80 == 0 {
            return Some(at + 1 + length);
        }
    }
    None
}

/// An answer of mqtt5's with another reason.
fn refused(answer: &[u8], refusal: &Refusal) -> Bytes {
    let text = refusal.text.as_bytes();
    let code = u8::from(refusal.code);
    let kind = answer[0] & 0xF0;
    if kind == CONNACK {
        return packet(CONNACK, &[0, code], text);
    }
    // The id of the message; a reason only where mqtt5 gives one, since a client can ask for none.
    let (Some(id), wants_text) = (answer.get(2..4), answer.len() > 6) else {
        return Bytes::copy_from_slice(answer);
    };
    let text = if wants_text { text } else { &[] };
    packet(kind, &[id[0], id[1], code], text)
}

/// A packet with a text as its reason. Texts are short: a line of ours.
fn packet(kind: u8, head: &[u8], text: &[u8]) -> Bytes {
    let text = &text[..text.len().min(80)];
    let properties = if text.is_empty() { 0 } else { text.len() + 3 };
    let mut bytes = BytesMut::new();
    bytes.put_u8(kind);
    // Below 128, so that each length is one byte.
    bytes.put_u8(u8::try_from(head.len() + 1 + properties).unwrap_or_default());
    bytes.put_slice(head);
    bytes.put_u8(u8::try_from(properties).unwrap_or_default());
    if !text.is_empty() {
        bytes.put_u8(REASON_STRING);
        bytes.put_u16(u16::try_from(text.len()).unwrap_or_default());
        bytes.put_slice(text);
    }
    bytes.freeze()
}

/// Tells a client why its connection ends, unless it has been told, and closes it.
pub(crate) async fn end(mut stream: Box<dyn Duplex>, wire: &Wire, why: Option<Refusal>) {
    let last = {
        let told = wire.told();
        why.filter(|_| !told.disconnect).map(|why| {
            let (code, text) = (u8::from(why.code), why.text.into_bytes());
            if told.connack {
                packet(DISCONNECT, &[code], &text)
            } else {
                packet(CONNACK, &[0, code], &text)
            }
        })
    };
    let telling = async {
        if let Some(last) = last {
            stream.write_all(&last).await?;
        }
        stream.shutdown().await?;
        let mut rest = (&mut stream).take(LAST_BYTES);
        tokio::io::copy(&mut rest, &mut tokio::io::sink()).await
    };
    // A client that does not read it misses the reason.
    let _ = timeout(LAST_WORDS, telling).await;
}

#[cfg(test)]
mod tests {
    use mqtt5::packet::Packet;
    use mqtt5::packet::connack::ConnAckPacket;
    use mqtt5::packet::puback::PubAckPacket;
    use mqtt5::protocol::v5::properties::{Properties, PropertyId, PropertyValue};
    use mqtt5::transport::packet_io::{decode_buffered_packet, encode_packet_to_buffer};

    use super::*;

    fn bytes(packet: &Packet) -> BytesMut {
        let mut bytes = BytesMut::new();
        encode_packet_to_buffer(packet, &mut bytes).unwrap();
        bytes
    }

    fn read(bytes: &[u8]) -> Packet {
        let mut bytes = BytesMut::from(bytes);
        let packet = decode_buffered_packet(&mut bytes, 5, 1000).unwrap();
        assert!(bytes.is_empty());
        packet.unwrap()
    }

    fn text_of(properties: &Properties) -> Option<String> {
        match properties.get(PropertyId::ReasonString) {
            Some(PropertyValue::Utf8String(text)) => Some(text.clone()),
            _ => None,
        }
    }

    fn quota() -> Refusal {
        Refusal {
            code: ReasonCode::QuotaExceeded,
            text: "too many".to_owned(),
        }
    }

    #[test]
    fn a_refusal_gets_our_words() {
        let connack = Packet::ConnAck(ConnAckPacket::new(false, ReasonCode::NotAuthorized));
        let Packet::ConnAck(answer) = read(&refused(&bytes(&connack), &quota())) else {
            panic!("no CONNACK");
        };
        assert_eq!(answer.reason_code, ReasonCode::QuotaExceeded);
        assert_eq!(text_of(&answer.properties), Some("too many".to_owned()));
        let mut puback = PubAckPacket::new(515);
        puback.reason_code = ReasonCode::NotAuthorized;
        for text in [None, Some("no".to_owned())] {
            if let Some(text) = text.clone() {
                puback.properties.set_reason_string(text);
            }
            let refused = refused(&bytes(&Packet::PubAck(puback.clone())), &quota());
            let Packet::PubAck(answer) = read(&refused) else {
                panic!("no PUBACK");
            };
            assert_eq!(
                (answer.packet_id, answer.reason_code),
                (515, ReasonCode::QuotaExceeded)
            );
            let expected = text.map(|_| "too many".to_owned());
            assert_eq!(text_of(&answer.properties), expected);
        }
    }

    #[tokio::test]
    async fn packets_are_written_as_they_are_save_for_the_one_refused() {
        let (ours, mut theirs) = tokio::io::duplex(4096);
        let wire = Arc::new(Wire::default());
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        let (mut stream, back) = Inspected::new(Box::new(ours), peer, Arc::clone(&wire));
        let ping = [0xD0, 0];
        let mut puback = PubAckPacket::new(7);
        puback.reason_code = ReasonCode::NotAuthorized;
        let puback = bytes(&Packet::PubAck(puback));
        wire.refuse(ReasonCode::QuotaExceeded, "x");
        stream.write_all(&ping).await.unwrap();
        stream.write_all(&puback).await.unwrap();
        stream.write_all(&puback).await.unwrap();
        drop(stream);
        end(back.await.unwrap(), &wire, None).await;
        let mut sent = Vec::new();
        theirs.read_to_end(&mut sent).await.unwrap();
        let expected = [&ping[..], b"\x40\x04\x00\x07\x97\x00", &puback].concat();
        assert_eq!(sent, expected);
    }

    #[tokio::test]
    async fn a_packet_that_may_not_be_sent_ends_the_connection_with_a_reason() {
        let (ours, mut theirs) = tokio::io::duplex(4096);
        let wire = Arc::new(Wire::default());
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        let (mut stream, back) = Inspected::new(Box::new(ours), peer, Arc::clone(&wire));
        stream.write_all(b"\x20\x03\x00\x00\x00").await.unwrap();
        theirs.write_all(b"\xc0\x00\xd0\x00\xc0\x00").await.unwrap();
        let mut read = Vec::new();
        let error = stream.read_to_end(&mut read).await.unwrap_err();
        assert_eq!(
            (read.as_slice(), error.kind()),
            (&b"\xc0\x00"[..], io::ErrorKind::InvalidData)
        );
        assert_eq!(wire.offence(), Some(Offence::Protocol));
        drop(stream);
        let why = Refusal {
            code: Offence::Protocol.reason(),
            text: String::new(),
        };
        end(back.await.unwrap(), &wire, Some(why)).await;
        let mut sent = Vec::new();
        theirs.read_to_end(&mut sent).await.unwrap();
        assert_eq!(sent, b"\x20\x03\x00\x00\x00\xe0\x02\x82\x00");
    }
}
