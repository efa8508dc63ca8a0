//! One connection to a broker, from its beginning to its end.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::BytesMut;
use mqtt5_protocol::packet::Packet;
use mqtt5_protocol::packet::connack::ConnAckPacket;
use mqtt5_protocol::packet::puback::PubAckPacket;
use mqtt5_protocol::packet::publish::PublishPacket;
use mqtt5_protocol::packet::suback::{SubAckPacket, SubAckReasonCode};
use mqtt5_protocol::{QoS, ReasonCode};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use tracing::info;

use super::tls::{TlsError, TlsSource};
use super::wire::{self, WireError};
use super::{Door, MqttOptions};
use crate::Outgoing;
use crate::bus::{BusEvent, Delivery, PublishError, Session};

/// Messages that may be unacknowledged at a time, however many the broker would take: it is a
/// window of a few MB at most, and enough to keep a broker busy that is 10 ms away.
const MOST_IN_FLIGHT: u16 = 256;

/// Bytes that are written at once, at most, where much is waiting.
const WRITE_BYTES: usize = 64 * 1024;

/// Messages that have come and wait for whoever handles them, in bytes. A broker holds messages back
/// by our receive maximum; one that does not, or messages without acknowledgement, fill this. Beyond
/// it nothing is read.
const MOST_BACKLOG_BYTES: usize = 64 * 1024 * 1024;

/// How long a size is too large that a broker has refused: its limits may have been raised. It is
/// less than the time after which what was refused is tried again.
const LEARNED_FOR: Duration = Duration::from_secs(20 * 60);

/// Time for the last bytes of a connection.
const GOODBYE: Duration = Duration::from_secs(2);

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum Ended {
    /// Nobody wants it any more.
    #[error("closed")]
    Closed,
    #[error("failed to connect to {broker}: {error}")]
    Dial {
        broker: String,
        error: std::io::Error,
    },
    #[error("no answer from {broker} within {within:?}")]
    DialTimeout { broker: String, within: Duration },
    #[error("{0} is no address of a broker")]
    Address(String),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("the broker refused the connection: {0}")]
    Refused(String),
    #[error("the broker retains nothing, and will not be asked to")]
    RetainsNothing,
    #[error("the broker refused the subscription to {filter}: {reason}")]
    Subscription { filter: String, reason: String },
    #[error("the broker ended the connection: {}", takeover_or(*.0, .1))]
    Disconnected(ReasonCode, String),
    #[error(
        "the broker closed the connection without a word: it is gone, or another client has the \
         same client id"
    )]
    Hung,
    #[error("the connection to the broker failed: {0}")]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("the broker sent nothing for {0:?}")]
    Silent(Duration),
    #[error("the broker did not acknowledge a message within {0:?}")]
    Unacknowledged(Duration),
    #[error("the broker took nothing for {0:?}")]
    Stalled(Duration),
    #[error("the certificates were replaced")]
    Certificates,
    #[error("the broker sent a {0}, which has no place here")]
    Unexpected(&'static str),
}

fn takeover_or(code: ReasonCode, text: &str) -> String {
    if code == ReasonCode::SessionTakenOver {
        return "the session was taken over: another client has the same client id".to_owned();
    }
    text.to_owned()
}

impl Ended {
    pub(super) const fn is_takeover(&self) -> bool {
        matches!(self, Self::Disconnected(ReasonCode::SessionTakenOver, _))
    }

    /// Whether the broker ended the connection for the size of a message.
    pub(super) const fn is_size(&self) -> bool {
        matches!(self, Self::Disconnected(ReasonCode::PacketTooLarge, _))
    }
}

impl From<mqtt5_protocol::error::MqttError> for Ended {
    fn from(error: mqtt5_protocol::error::MqttError) -> Self {
        Self::Wire(error.into())
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

enum Command {
    Publish {
        outgoing: Outgoing,
        retain: bool,
        sent: oneshot::Sender<Sent>,
        permit: OwnedSemaphorePermit,
    },
    Acknowledge(u16),
}

/// A message has been written.
enum Sent {
    /// It will not be acknowledged.
    Unacknowledged,
    Waiting(oneshot::Receiver<Result<(), Nack>>),
    Failed(PublishError),
}

/// The broker does not take a message.
enum Nack {
    Refused { reason: String, for_good: bool },
    TooLarge { bytes: usize },
}

/// The largest message that a broker takes, as it has shown by ending a connection.
#[derive(Debug, Default)]
pub(super) struct Learned(Option<(usize, Instant)>);

impl Learned {
    fn most(&self) -> usize {
        match self.0 {
            Some((most, since)) if since.elapsed() < LEARNED_FOR => most,
            _ => usize::MAX,
        }
    }

    fn learn(&mut self, most: usize) {
        self.0 = Some((most.min(self.most()), Instant::now()));
    }
}

/// A message that waits for its acknowledgement.
struct Waiting {
    done: oneshot::Sender<Result<(), Nack>>,
    bytes: usize,
    /// One of those that may be on their way.
    _permit: OwnedSemaphorePermit,
}

type InFlight = Arc<Mutex<HashMap<u16, Waiting>>>;

fn lock(in_flight: &InFlight) -> MutexGuard<'_, HashMap<u16, Waiting>> {
    in_flight.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What publishers need of a connection.
#[derive(Clone)]
pub(super) struct Link {
    commands: mpsc::UnboundedSender<Command>,
    /// Bounds what is in `commands`, and what the broker has not acknowledged.
    window: Arc<Semaphore>,
    stuck: Arc<Notify>,
    ack_timeout: Duration,
}

impl Link {
    pub(super) async fn publish(
        &self,
        outgoing: Outgoing,
        retain: bool,
    ) -> Result<(), PublishError> {
        let topic = outgoing.topic.clone();
        let permit = self.window.clone().acquire_owned().await;
        let permit = permit.map_err(|_| PublishError::Lost)?;
        let (sent, written) = oneshot::channel();
        let command = Command::Publish {
            outgoing,
            retain,
            sent,
            permit,
        };
        self.commands
            .send(command)
            .map_err(|_| PublishError::Lost)?;
        let written = tokio::select! {
            biased;
            written = written => written.ok(),
            // A command that came as the connection ended may stay in the channel, which lives as
            // long as this does: nobody else would tell.
            () = self.commands.closed() => None,
        };
        let acknowledged = match written {
            Some(Sent::Unacknowledged) => return Ok(()),
            Some(Sent::Waiting(acknowledged)) => acknowledged,
            Some(Sent::Failed(error)) => return Err(error),
            None => return Err(PublishError::Lost),
        };
        match timeout(self.ack_timeout, acknowledged).await {
            Ok(Ok(Ok(()))) => Ok(()),
            Ok(Ok(Err(Nack::Refused { reason, for_good }))) => Err(PublishError::Refused {
                topic,
                reason,
                for_good,
            }),
            Ok(Ok(Err(Nack::TooLarge { bytes }))) => Err(PublishError::TooLarge {
                topic,
                bytes,
                most: bytes - 1,
            }),
            Ok(Err(_)) => Err(PublishError::Lost),
            Err(_) => {
                // Such a broker would never get better: begin anew.
                self.stuck.notify_one();
                Err(PublishError::TimedOut(self.ack_timeout))
            }
        }
    }
}

/// Connects, subscribes and carries messages until that ends.
pub(super) async fn run(
    options: &MqttOptions,
    mut tls: Option<&mut TlsSource>,
    session: &Session,
    retains: bool,
    learned: &mut Learned,
    door: &Door,
    events: &mpsc::Sender<BusEvent>,
) -> Ended {
    let dial = dial(options, tls.as_deref_mut(), session, retains);
    let dialled = tokio::select! {
        biased;
        () = events.closed() => return Ended::Closed,
        dialled = timeout(options.dial_timeout, dial) => dialled,
    };
    let (mut reader, writer, connack) = match dialled {
        Ok(Ok(parts)) => parts,
        Ok(Err(ended)) => return ended,
        Err(_) => {
            return Ended::DialTimeout {
                broker: options.broker.clone(),
                within: options.dial_timeout,
            };
        }
    };
    // The broker's word counts.
    let keep_alive = connack
        .properties
        .get_server_keep_alive()
        .map_or(options.keep_alive, |seconds| {
            Duration::from_secs(seconds.into())
        });
    reader.silence = keep_alive + keep_alive / 2;
    let window = connack
        .receive_maximum()
        .unwrap_or(u16::MAX)
        .min(MOST_IN_FLIGHT);
    let (commands, queue) = mpsc::unbounded_channel();
    let link = Link {
        commands,
        window: Arc::new(Semaphore::new(window.into())),
        stuck: Arc::new(Notify::new()),
        ack_timeout: options.ack_timeout,
    };
    let in_flight = InFlight::default();
    let mut writer = Writer {
        io: writer,
        queue,
        in_flight: in_flight.clone(),
        last_id: 0,
        acknowledged: options.acknowledged,
        retains: retains && wire::can_retain(&connack),
        most_bytes: connack
            .maximum_packet_size()
            .map_or(usize::MAX, |most| {
                usize::try_from(most).unwrap_or(usize::MAX)
            })
            .min(learned.most()),
        keep_alive,
        patience: options.ack_timeout,
    };
    let receiver = Receiver {
        options,
        filters: &session.filters,
        in_flight: in_flight.clone(),
        link: &link,
        door,
        events,
        backlog: VecDeque::new(),
        backlog_bytes: 0,
    };
    let mut receiving = std::pin::pin!(receiver.run(reader));
    let ended = tokio::select! {
        biased;
        () = events.closed() => Ended::Closed,
        ended = &mut receiving => ended,
        // The broker may have said why, before it hung up.
        ended = writer.run(&session.filters, options.acknowledges) => {
            door.set(None);
            link.window.close();
            timeout(GOODBYE, receiving).await.unwrap_or(ended)
        }
        () = link.stuck.notified() => Ended::Unacknowledged(options.ack_timeout),
        () = news(tls) => Ended::Certificates,
    };
    door.set(None);
    link.window.close();
    if ended.is_size() {
        refuse_largest(&in_flight, learned);
    }
    lock(&in_flight).clear();
    writer.goodbye(&ended, session.will.is_some()).await;
    ended
}

/// A broker that ends a connection for the size of a message does not say of which: it was too large
/// for the largest on its way in any case.
fn refuse_largest(in_flight: &InFlight, learned: &mut Learned) {
    let mut in_flight = lock(in_flight);
    let largest = in_flight.iter().max_by_key(|(_, waiting)| waiting.bytes);
    let Some(id) = largest.map(|(id, _)| *id) else {
        return;
    };
    if let Some(Waiting { done, bytes, .. }) = in_flight.remove(&id) {
        learned.learn(bytes - 1);
        let _ = done.send(Err(Nack::TooLarge { bytes }));
    }
}

/// Done when the files of certificates hold something new.
async fn news(tls: Option<&mut TlsSource>) {
    let Some(tls) = tls.filter(|tls| !tls.check_interval().is_zero()) else {
        return std::future::pending().await;
    };
    loop {
        tokio::time::sleep(tls.check_interval()).await;
        if tls.has_news() {
            return;
        }
    }
}

async fn dial(
    options: &MqttOptions,
    tls: Option<&mut TlsSource>,
    session: &Session,
    retains: bool,
) -> Result<(Reader, WriteHalf<Box<dyn Stream>>, ConnAckPacket), Ended> {
    let broker = &options.broker;
    let refused = |error| Ended::Dial {
        broker: broker.clone(),
        error,
    };
    let tcp = TcpStream::connect(broker).await.map_err(refused)?;
    // Each message is written at once and whole.
    tcp.set_nodelay(true)?;
    let stream: Box<dyn Stream> = match tls {
        None => Box::new(tcp),
        Some(tls) => {
            let config = tls.load()?;
            let host = broker
                .rsplit_once(':')
                .map_or(broker.as_str(), |(host, _)| host);
            let name = host.trim_matches(['[', ']']).to_owned();
            let name = name
                .try_into()
                .map_err(|_| Ended::Address(broker.clone()))?;
            let connector = TlsConnector::from(config);
            Box::new(connector.connect(name, tcp).await.map_err(refused)?)
        }
    };
    let (read, mut write) = tokio::io::split(stream);
    write
        .write_all(&wire::connect(options, session, retains)?)
        .await?;
    write.flush().await?;
    let mut reader = Reader {
        io: read,
        buffer: BytesMut::with_capacity(4096),
        most_bytes: usize::try_from(options.most_bytes).unwrap_or(usize::MAX),
        silence: Duration::ZERO,
        heard: Instant::now(),
    };
    match reader.next().await? {
        Packet::ConnAck(connack) if connack.reason_code == ReasonCode::Success => {
            Ok((reader, write, connack))
        }
        Packet::ConnAck(connack) if connack.reason_code == ReasonCode::RetainNotSupported => {
            Err(Ended::RetainsNothing)
        }
        Packet::ConnAck(connack) => Err(Ended::Refused(wire::reason(
            connack.reason_code,
            &connack.properties,
        ))),
        other => Err(Ended::Unexpected(other.packet_type_name())),
    }
}

struct Reader {
    io: ReadHalf<Box<dyn Stream>>,
    buffer: BytesMut,
    most_bytes: usize,
    /// Longest time without a byte; zero for any.
    silence: Duration,
    /// When the last byte came.
    heard: Instant,
}

impl Reader {
    /// The next packet. May be dropped and called again: what has come of it stays.
    async fn next(&mut self) -> Result<Packet, Ended> {
        loop {
            if let Some(packet) = wire::take(&mut self.buffer, self.most_bytes)? {
                return Ok(packet);
            }
            let read = self.io.read_buf(&mut self.buffer);
            let read = if self.silence.is_zero() {
                read.await
            } else {
                let silent = |_| Ended::Silent(self.silence);
                timeout_at(self.heard + self.silence, read)
                    .await
                    .map_err(silent)?
            };
            if read? == 0 {
                return Err(Ended::Hung);
            }
            self.heard = Instant::now();
        }
    }
}

/// Handles what comes.
struct Receiver<'a> {
    options: &'a MqttOptions,
    filters: &'a [String],
    in_flight: InFlight,
    link: &'a Link,
    door: &'a Door,
    events: &'a mpsc::Sender<BusEvent>,
    /// What has come and has no room in `events` yet. Acknowledgements must not wait behind it:
    /// whoever handles it may itself wait for one.
    backlog: VecDeque<BusEvent>,
    backlog_bytes: usize,
}

impl Receiver<'_> {
    async fn run(mut self, reader: Reader) -> Ended {
        match self.receive(reader).await {
            Err(ended) => ended,
        }
    }

    async fn receive(&mut self, mut reader: Reader) -> Result<Infallible, Ended> {
        // What is retained may come before the subscription is acknowledged.
        let mut early = Vec::new();
        let mut subscribed = self.filters.is_empty();
        if subscribed {
            self.subscribed();
        }
        loop {
            let has_room = self.backlog_bytes < MOST_BACKLOG_BYTES;
            let packet = tokio::select! {
                biased;
                room = self.events.reserve(), if !self.backlog.is_empty() => {
                    let room = room.map_err(|_| Ended::Closed)?;
                    if let Some(event) = self.backlog.pop_front() {
                        self.backlog_bytes -= size(&event);
                        room.send(event);
                    }
                    continue;
                }
                packet = reader.next(), if has_room => packet?,
            };
            match packet {
                Packet::Publish(packet) => {
                    let message = self.delivery(packet);
                    if subscribed {
                        self.tell(message);
                    } else {
                        early.push(message);
                    }
                }
                Packet::PubAck(ack) => self.acknowledged(&ack),
                Packet::SubAck(ack) if !subscribed => {
                    self.check(&ack)?;
                    subscribed = true;
                    self.subscribed();
                    for message in early.drain(..) {
                        self.tell(message);
                    }
                }
                Packet::PingResp => {}
                Packet::Disconnect(packet) => {
                    let reason = wire::reason(packet.reason_code, &packet.properties);
                    return Err(Ended::Disconnected(packet.reason_code, reason));
                }
                other => return Err(Ended::Unexpected(other.packet_type_name())),
            }
        }
    }

    fn subscribed(&mut self) {
        let broker = &self.options.broker;
        info!(%broker, client_id = %self.options.client_id, "connected to the broker");
        self.door.set(Some(self.link.clone()));
        self.tell(BusEvent::Subscribed);
    }

    fn check(&self, ack: &SubAckPacket) -> Result<(), Ended> {
        let codes = ack
            .reason_codes
            .iter()
            .map(Some)
            .chain(std::iter::repeat(None));
        for (filter, code) in self.filters.iter().zip(codes) {
            let granted = code.is_some_and(SubAckReasonCode::is_success);
            if !granted {
                let reason = match code {
                    Some(code) => wire::reason(code, &ack.properties),
                    None => "it says nothing of it".to_owned(),
                };
                return Err(Ended::Subscription {
                    filter: filter.clone(),
                    reason,
                });
            }
        }
        Ok(())
    }

    fn delivery(&self, packet: PublishPacket) -> BusEvent {
        let message = wire::message(&packet);
        let commands = self.link.commands.clone();
        let done = packet.packet_id.map(|id| -> Box<dyn FnOnce() + Send> {
            Box::new(move || {
                // Where the connection is gone, the broker forgets the message, too.
                let _ = commands.send(Command::Acknowledge(id));
            })
        });
        BusEvent::Message(Delivery::new(packet.topic_name, message, done))
    }

    fn acknowledged(&self, ack: &PubAckPacket) {
        let Some(waiting) = lock(&self.in_flight).remove(&ack.packet_id) else {
            return;
        };
        let result = if ack.reason_code.is_error() {
            Err(Nack::Refused {
                reason: wire::reason(ack.reason_code, &ack.properties),
                for_good: wire::is_for_good(ack.reason_code),
            })
        } else {
            Ok(())
        };
        // Whoever has stopped waiting sends again.
        let _ = waiting.done.send(result);
    }

    fn tell(&mut self, event: BusEvent) {
        self.backlog_bytes += size(&event);
        self.backlog.push_back(event);
    }
}

/// What an event holds, as far as it can be much.
fn size(event: &BusEvent) -> usize {
    let BusEvent::Message(delivery) = event else {
        return 0;
    };
    let message = &delivery.message;
    let properties = message.properties.iter();
    let properties: usize = properties
        .map(|(name, value)| name.len() + value.len())
        .sum();
    message.payload.len() + properties
}

/// Writes what goes.
struct Writer {
    io: WriteHalf<Box<dyn Stream>>,
    queue: mpsc::UnboundedReceiver<Command>,
    in_flight: InFlight,
    last_id: u16,
    acknowledged: bool,
    /// Whether the broker keeps what is to be retained; else it goes to those who listen now.
    retains: bool,
    most_bytes: usize,
    keep_alive: Duration,
    /// Longest time in which nothing can be written.
    patience: Duration,
}

impl Writer {
    async fn run(&mut self, filters: &[String], acknowledges: bool) -> Ended {
        match self.write(filters, acknowledges).await {
            Err(ended) => ended,
        }
    }

    async fn write(&mut self, filters: &[String], acknowledges: bool) -> Result<Infallible, Ended> {
        if !filters.is_empty() {
            let qos = if acknowledges {
                QoS::AtLeastOnce
            } else {
                QoS::AtMostOnce
            };
            let id = self.next_id();
            self.put(&wire::subscribe(id, filters, qos)?).await?;
        }
        let mut next_ping = Instant::now() + self.keep_alive;
        let mut buffer = BytesMut::new();
        let mut written = Vec::new();
        loop {
            let command = tokio::select! {
                biased;
                () = tokio::time::sleep_until(next_ping), if !self.keep_alive.is_zero() => {
                    self.put(&wire::PING).await?;
                    next_ping = Instant::now() + self.keep_alive;
                    continue;
                }
                command = self.queue.recv() => command.ok_or(Ended::Closed)?,
            };
            self.encode(command, &mut buffer, &mut written)?;
            while buffer.len() < WRITE_BYTES
                && let Ok(command) = self.queue.try_recv()
            {
                self.encode(command, &mut buffer, &mut written)?;
            }
            self.put(&buffer).await?;
            buffer.clear();
            for (sent, how) in written.drain(..) {
                // Whoever has stopped waiting does not need to know.
                let _: Result<(), Sent> = sent.send(how);
            }
        }
    }

    /// Writes all of this, however long it takes as long as it gets on.
    async fn put(&mut self, mut bytes: &[u8]) -> Result<(), Ended> {
        let patience = self.patience;
        let stalled = |_| Ended::Stalled(patience);
        while !bytes.is_empty() {
            let written = timeout(patience, self.io.write(bytes)).await;
            match written.map_err(stalled)?? {
                0 => return Err(Ended::Hung),
                written => bytes = &bytes[written..],
            }
        }
        Ok(timeout(patience, self.io.flush())
            .await
            .map_err(stalled)??)
    }

    fn encode(
        &mut self,
        command: Command,
        buffer: &mut BytesMut,
        written: &mut Vec<(oneshot::Sender<Sent>, Sent)>,
    ) -> Result<(), Ended> {
        let (outgoing, retain, sent, permit) = match command {
            Command::Acknowledge(id) => {
                buffer.extend_from_slice(&wire::acknowledge(id)?);
                return Ok(());
            }
            Command::Publish {
                outgoing,
                retain,
                sent,
                permit,
            } => (outgoing, retain, sent, permit),
        };
        let topic = outgoing.topic.clone();
        let id = self.acknowledged.then(|| self.next_id());
        let packet = match wire::publish(outgoing, id, retain && self.retains) {
            Ok(packet) if packet.len() <= self.most_bytes => packet,
            Ok(packet) => {
                let error = PublishError::TooLarge {
                    topic,
                    bytes: packet.len(),
                    most: self.most_bytes,
                };
                written.push((sent, Sent::Failed(error)));
                return Ok(());
            }
            Err(error) => {
                let error = error.to_string();
                let error = PublishError::Malformed { topic, error };
                written.push((sent, Sent::Failed(error)));
                return Ok(());
            }
        };
        buffer.extend_from_slice(&packet);
        let how = match id {
            None => Sent::Unacknowledged,
            Some(id) => {
                let (done, acknowledged) = oneshot::channel();
                let waiting = Waiting {
                    done,
                    bytes: packet.len(),
                    _permit: permit,
                };
                lock(&self.in_flight).insert(id, waiting);
                Sent::Waiting(acknowledged)
            }
        };
        written.push((sent, how));
        Ok(())
    }

    /// An id that no message on its way has. There are fewer of those than ids.
    fn next_id(&mut self) -> u16 {
        let mut in_flight = lock(&self.in_flight);
        loop {
            self.last_id = self.last_id.checked_add(1).unwrap_or(1);
            if let Entry::Vacant(_) = in_flight.entry(self.last_id) {
                return self.last_id;
            }
        }
    }

    /// Ends the connection politely where the other side may still be there. The will is done, too,
    /// unless the client comes back at once: gone is gone, however politely.
    async fn goodbye(&mut self, ended: &Ended, has_will: bool) {
        let polite = matches!(ended, Ended::Closed | Ended::Certificates);
        let with_will = has_will && matches!(ended, Ended::Closed);
        let bye = async {
            if let Ok(bytes) = wire::disconnect(with_will)
                && polite
            {
                self.io.write_all(&bytes).await?;
            }
            self.io.shutdown().await
        };
        // What does not get through is no loss.
        let _ = timeout(GOODBYE, bye).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Message;

    /// A command that nobody takes out any more, as where a thread was held up while it sent it and
    /// the connection ended meanwhile.
    #[tokio::test]
    async fn who_publishes_as_a_connection_ends_is_told() {
        let (commands, mut queue) = mpsc::unbounded_channel();
        let link = Link {
            commands,
            window: Arc::new(Semaphore::new(1)),
            stuck: Arc::new(Notify::new()),
            ack_timeout: Duration::from_secs(30),
        };
        let publishing = tokio::spawn(async move {
            let outgoing = Outgoing {
                topic: "t".to_owned(),
                message: Message::default(),
            };
            link.publish(outgoing, false).await
        });
        while queue.is_empty() {
            tokio::task::yield_now().await;
        }
        queue.close();
        let published = timeout(Duration::from_secs(10), publishing).await;
        assert_eq!(published.unwrap().unwrap(), Err(PublishError::Lost));
        assert_eq!(queue.len(), 1, "it is still there");
    }
}
