//! What is between a client and its broker, and does harm to whole packets.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    ToBroker,
    ToClient,
}

/// The types of packets, as they are in the first half of a byte.
pub(crate) const PUBLISH: u8 = 3;
pub(crate) const PUBACK: u8 = 4;
pub(crate) const PINGRESP: u8 = 13;

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Passes,
    /// Nobody gets it.
    Vanishes,
    /// With the mark of a duplicate, if it is a PUBLISH.
    ComesTwice,
    /// After the next one, or a little later.
    ComesLate,
    /// The connection ends before it gets through.
    Cuts,
}

type Rule = Box<dyn FnMut(Way, u8) -> Fate + Send>;

pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
    task: JoinHandle<()>,
}

struct State {
    upstream: SocketAddr,
    rule: Mutex<Rule>,
    /// Connections up to this one are dead, without anybody being told.
    frozen: watch::Sender<u64>,
    /// Those up to this one are closed.
    cut: watch::Sender<u64>,
    opened: watch::Sender<u64>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
        // The end of the senders ends what is open.
        self.state.cut.send_replace(u64::MAX);
    }
}

impl Proxy {
    pub(crate) async fn to(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let state = Arc::new(State {
            upstream,
            rule: Mutex::new(Box::new(|_, _| Fate::Passes)),
            frozen: watch::Sender::new(0),
            cut: watch::Sender::new(0),
            opened: watch::Sender::new(0),
        });
        Self {
            address: listener.local_addr().unwrap(),
            state: Arc::clone(&state),
            task: tokio::spawn(async move {
                loop {
                    let (client, _) = listener.accept().await.unwrap();
                    let link = *state.opened.borrow() + 1;
                    state.opened.send_replace(link);
                    tokio::spawn(Arc::clone(&state).join(client, link));
                }
            }),
        }
    }

    pub(crate) fn broker(&self) -> String {
        self.address.to_string()
    }

    /// From now on packets of these types fare like this.
    pub(crate) fn rule(&self, rule: impl FnMut(Way, u8) -> Fate + Send + 'static) {
        *self.state.rule.lock().unwrap() = Box::new(rule);
    }

    pub(crate) fn calm(&self) {
        self.rule(|_, _| Fate::Passes);
    }

    /// The connections of now carry nothing any more, and stay open.
    pub(crate) fn freeze(&self) {
        let link = *self.state.opened.borrow();
        self.state.frozen.send_replace(link);
    }

    /// The connections of now end, without a word.
    pub(crate) fn cut(&self) {
        let link = *self.state.opened.borrow();
        self.state.cut.send_replace(link);
    }

    /// Counts connections.
    pub(crate) fn opened(&self) -> watch::Receiver<u64> {
        self.state.opened.subscribe()
    }
}

impl State {
    async fn join(self: Arc<Self>, client: TcpStream, link: u64) {
        let Ok(broker) = TcpStream::connect(self.upstream).await else {
            return;
        };
        client.set_nodelay(true).unwrap();
        broker.set_nodelay(true).unwrap();
        let (from_client, to_client) = client.into_split();
        let (from_broker, to_broker) = broker.into_split();
        let mut cut = self.cut.subscribe();
        tokio::select! {
            () = self.carry(Way::ToBroker, from_client, to_broker, link) => {}
            () = self.carry(Way::ToClient, from_broker, to_client, link) => {}
            () = reaches(&mut cut, link) => {}
        }
    }

    async fn carry(&self, way: Way, mut from: OwnedReadHalf, mut to: OwnedWriteHalf, link: u64) {
        let mut frozen = self.frozen.subscribe();
        let mut buffer = BytesMut::new();
        let mut late: Vec<BytesMut> = Vec::new();
        loop {
            let mut out = BytesMut::new();
            if let Some(packet) = take(&mut buffer) {
                let fate = (self.rule.lock().unwrap())(way, packet[0] >> 4);
                match fate {
                    Fate::Passes => out.extend_from_slice(&packet),
                    Fate::Vanishes => {}
                    Fate::ComesTwice => {
                        out.extend_from_slice(&packet);
                        let again = out.len();
                        out.extend_from_slice(&packet);
                        if packet[0] >> 4 == PUBLISH {
                            out[again] |= 0b1000;
                        }
                    }
                    Fate::ComesLate => {
                        late.push(packet);
                        continue;
                    }
                    Fate::Cuts => return,
                }
                for packet in late.drain(..) {
                    out.extend_from_slice(&packet);
                }
            } else {
                tokio::select! {
                    read = from.read_buf(&mut buffer) => match read {
                        Ok(1..) => continue,
                        _ => return,
                    },
                    () = tokio::time::sleep(Duration::from_millis(20)), if !late.is_empty() => {
                        for packet in late.drain(..) {
                            out.extend_from_slice(&packet);
                        }
                    }
                    () = reaches(&mut frozen, link) => {
                        return std::future::pending().await;
                    }
                }
            }
            if to.write_all(&out).await.is_err() {
                return;
            }
        }
    }
}

async fn reaches(watched: &mut watch::Receiver<u64>, link: u64) {
    let reached = watched.wait_for(|value| *value >= link).await.is_ok();
    assert!(reached, "the sender is with whoever waits");
}

/// Takes a packet out of the front, if it is whole.
fn take(buffer: &mut BytesMut) -> Option<BytesMut> {
    let mut length = 0;
    for at in 1..=4 {
        let byte = *buffer.get(at)?;
        length |= usize::from(byte & 0x7F) << (7 * (at - 1));
        if byte & 0x80 == 0 {
            let whole = at + 1 + length;
            return (buffer.len() >= whole).then(|| buffer.split_to(whole));
        }
    }
    panic!("this is no MQTT: {buffer:?}");
}
