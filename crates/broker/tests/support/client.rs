//! A client that sends and expects single packets, with a codec that is not the broker's.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{Buf, BytesMut};
use rumqttc::v5::mqttbytes::v5::{
    ConnAck, Connect, ConnectProperties, ConnectReturnCode, Disconnect, DisconnectReasonCode,
    Filter, LastWill, Login, Packet, PubAck, PubAckReason, Publish, Subscribe, SubscribeReasonCode,
};
use rumqttc::v5::mqttbytes::{Error, QoS};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::SOON;

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// What a client says about itself in CONNECT.
#[derive(Clone, Debug)]
pub(crate) struct Hello {
    connect: Connect,
    will: Option<LastWill>,
    login: Option<Login>,
}

impl Hello {
    /// An anonymous client with a clean start and no session to come back to.
    pub(crate) fn anonymous(client_id: &str) -> Self {
        Self {
            connect: Connect {
                keep_alive: 60,
                client_id: client_id.to_owned(),
                clean_start: true,
                properties: None,
            },
            will: None,
            login: None,
        }
    }

    /// A client with a password; its id is its name.
    pub(crate) fn user(name: &str, password: &str) -> Self {
        Self {
            login: Some(Login::new(name, password)),
            ..Self::anonymous(name)
        }
    }

    pub(crate) fn id(mut self, client_id: &str) -> Self {
        client_id.clone_into(&mut self.connect.client_id);
        self
    }

    pub(crate) fn will(mut self, topic: &str, payload: &str) -> Self {
        self.will = Some(LastWill::new(topic, payload, QoS::AtLeastOnce, false, None));
        self
    }

    /// A will that stays.
    pub(crate) fn retained_will(self, topic: &str, payload: &str) -> Self {
        let mut hello = self.will(topic, payload);
        hello.will.as_mut().unwrap().retain = true;
        hello
    }

    /// A session that outlives the connection; an old one is resumed.
    pub(crate) fn session(mut self) -> Self {
        self.connect.clean_start = false;
        self.connect.properties = Some(ConnectProperties {
            session_expiry_interval: Some(600),
            ..ConnectProperties::new()
        });
        self
    }
}

pub(crate) struct Client {
    stream: Box<dyn Stream>,
    buffer: BytesMut,
    /// Messages that came while something else was expected.
    early: VecDeque<Publish>,
    id: u16,
}

impl Client {
    pub(crate) async fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self::on(stream)
    }

    /// Opens a TLS connection to a server that is called `localhost`.
    pub(crate) async fn open_tls(
        address: SocketAddr,
        config: Arc<rustls::ClientConfig>,
    ) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from("localhost").unwrap();
        let stream = TlsConnector::from(config).connect(name, stream).await?;
        Ok(Self::on(stream))
    }

    fn on(stream: impl Stream + 'static) -> Self {
        Self {
            stream: Box::new(stream),
            buffer: BytesMut::new(),
            early: VecDeque::new(),
            id: 0,
        }
    }

    /// Opens a connection and says hello, which has to be welcome.
    pub(crate) async fn connect(address: SocketAddr, hello: Hello) -> Self {
        let mut client = Self::open(address).await;
        assert_eq!(client.hello(hello).await.code, ConnectReturnCode::Success);
        client
    }

    pub(crate) async fn hello(&mut self, hello: Hello) -> ConnAck {
        self.send(&Packet::Connect(hello.connect, hello.will, hello.login))
            .await;
        match self.receive().await {
            Some(Packet::ConnAck(answer)) => answer,
            other => panic!("no CONNACK but {other:?}"),
        }
    }

    pub(crate) async fn send(&mut self, packet: &Packet) {
        let mut bytes = BytesMut::new();
        packet.write(&mut bytes, None).unwrap();
        self.send_bytes(&bytes).await;
    }

    pub(crate) async fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// The next packet, or nothing if the broker closes the connection.
    pub(crate) async fn receive(&mut self) -> Option<Packet> {
        loop {
            // The codec wants the length of the properties, which DISCONNECT may leave out.
            if let [0xe0, 1, reason, ..] = self.buffer[..] {
                self.buffer.advance(3);
                let whole = BytesMut::from(&[0xe0, 2, reason, 0][..]);
                let rest = std::mem::replace(&mut self.buffer, whole);
                self.buffer.extend_from_slice(&rest);
            }
            match Packet::read(&mut self.buffer, None) {
                Ok(packet) => return Some(packet),
                Err(Error::InsufficientBytes(_)) => {}
                Err(error) => panic!("the broker sent what is no packet: {error}"),
            }
            let read = timeout(SOON, self.stream.read_buf(&mut self.buffer)).await;
            match read.expect("a packet should have come") {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    pub(crate) async fn receive_bytes(&mut self, bytes: &mut [u8]) {
        let read = timeout(SOON, self.stream.read_exact(bytes)).await;
        read.expect("an answer should have come").unwrap();
    }

    /// Whether the broker hangs up, whatever it sends before.
    pub(crate) async fn ends(mut self) -> bool {
        let mut rest = Vec::new();
        let read = timeout(SOON, self.stream.read_to_end(&mut rest)).await;
        // A reset is an end, too.
        read.is_ok()
    }

    /// The next packet that is no message.
    async fn answer(&mut self) -> Option<Packet> {
        loop {
            match self.receive().await {
                Some(Packet::Publish(message)) => self.early.push_back(message),
                other => return other,
            }
        }
    }

    fn next_id(&mut self) -> u16 {
        self.id += 1;
        self.id
    }

    /// Subscribes with QoS 1.
    pub(crate) async fn subscribe(&mut self, filter: &str) -> SubscribeReasonCode {
        let mut subscribe = Subscribe::new(Filter::new(filter, QoS::AtLeastOnce), None);
        subscribe.pkid = self.next_id();
        let id = subscribe.pkid;
        self.send(&Packet::Subscribe(subscribe)).await;
        match self.answer().await {
            Some(Packet::SubAck(answer)) if answer.pkid == id => answer.return_codes[0],
            other => panic!("no SUBACK for {filter} but {other:?}"),
        }
    }

    /// Subscribes, which has to be allowed.
    pub(crate) async fn reads(mut self, filter: &str) -> Self {
        let granted = SubscribeReasonCode::Success(QoS::AtLeastOnce);
        assert_eq!(self.subscribe(filter).await, granted, "{filter}");
        self
    }

    /// Publishes with QoS 1.
    pub(crate) async fn publish(&mut self, topic: &str, payload: &str) -> PubAckReason {
        let message = Publish::new(topic, QoS::AtLeastOnce, payload.to_owned(), None);
        self.publish_this(message).await
    }

    pub(crate) async fn publish_retained(&mut self, topic: &str, payload: &str) -> PubAckReason {
        let mut message = Publish::new(topic, QoS::AtLeastOnce, payload.to_owned(), None);
        message.retain = true;
        self.publish_this(message).await
    }

    async fn publish_this(&mut self, mut message: Publish) -> PubAckReason {
        message.pkid = self.next_id();
        let id = message.pkid;
        self.send(&Packet::Publish(message)).await;
        match self.answer().await {
            Some(Packet::PubAck(answer)) if answer.pkid == id => answer.reason,
            other => panic!("no PUBACK but {other:?}"),
        }
    }

    /// The next message, acknowledged.
    pub(crate) async fn message(&mut self) -> Publish {
        let message = match self.early.pop_front() {
            Some(message) => message,
            None => match self.receive().await {
                Some(Packet::Publish(message)) => message,
                other => panic!("no message but {other:?}"),
            },
        };
        if message.qos == QoS::AtLeastOnce {
            self.send(&Packet::PubAck(PubAck::new(message.pkid, None)))
                .await;
        }
        message
    }

    /// The payload of the next message.
    pub(crate) async fn text(&mut self) -> String {
        String::from_utf8(self.message().await.payload.to_vec()).unwrap()
    }

    /// Says goodbye, so that the will is not published.
    pub(crate) async fn leave(self) {
        self.leave_with(DisconnectReasonCode::NormalDisconnection)
            .await;
    }

    /// Says goodbye, and that the will is to be published all the same.
    pub(crate) async fn die(self) {
        self.leave_with(DisconnectReasonCode::DisconnectWithWillMessage)
            .await;
    }

    async fn leave_with(mut self, reason: DisconnectReasonCode) {
        let goodbye = Disconnect::new(reason);
        self.send(&Packet::Disconnect(goodbye)).await;
        assert!(self.answer().await.is_none(), "the broker should hang up");
    }

    /// Waits until the broker hangs up; the reason that it gives, if any.
    pub(crate) async fn closed(mut self) -> Option<DisconnectReasonCode> {
        match self.answer().await? {
            Packet::Disconnect(goodbye) => {
                assert!(
                    self.answer().await.is_none(),
                    "nothing comes after DISCONNECT"
                );
                Some(goodbye.reason_code)
            }
            other => panic!("the broker should hang up, but sent {other:?}"),
        }
    }
}
