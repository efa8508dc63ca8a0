//! One accept loop for all that speaks HTTP, with limits on who is connected and for how long.
//!
//! Anybody can connect, without a token and without saying a word. A connection therefore has a
//! time for its handshake, for its first request and for pauses between requests, and there are
//! most connections at one time, in all and from one address. Beyond that a new one takes the
//! place of the one that has waited longest without a request; those that have shown who they are
//! go last. So whoever only holds connections open keeps nobody out.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service;

/// Pause after a failed accept (out of file descriptors), so that the loop does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// What requests in flight get when the port is closed.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// Pings on HTTP/2 connections, and how long their answer may take: a peer that is gone without
/// a word must not hold its watches open.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// Limits on the connections of one port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Most connections at one time.
    pub total: usize,
    /// Most connections from one address that is not of this host.
    pub per_peer: usize,
    /// Longest TLS handshake.
    pub handshake: Duration,
    /// Longest time until the head of the first request is there, as in kube-apiserver.
    pub first_request: Duration,
    /// Longest time without a request, as in kube-apiserver.
    pub idle: Duration,
}

impl Default for ConnectionLimits {
    /// A quarter of the files that the process may open, and of these a quarter for one address.
    fn default() -> Self {
        Self::of_files(open_files())
    }
}

impl ConnectionLimits {
    fn of_files(files: usize) -> Self {
        let total = (files / 4).clamp(16, 4096);
        Self {
            total,
            per_peer: total / 4,
            handshake: Duration::from_secs(10),
            first_request: Duration::from_secs(32),
            idle: Duration::from_secs(90),
        }
    }
}

/// How many files the process may open; what most systems have if this one does not say.
fn open_files() -> usize {
    const USUAL: usize = 1024;
    let Ok(limits) = std::fs::read_to_string("/proc/self/limits") else {
        return USUAL;
    };
    let line = limits
        .lines()
        .find_map(|l| l.strip_prefix("Max open files"));
    let soft = line.and_then(|line| line.split_whitespace().next());
    soft.map_or(USUAL, |soft| soft.parse().unwrap_or(usize::MAX))
}

/// What has happened to connections since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionCounts {
    /// Open now.
    pub open: usize,
    /// Accepted.
    pub accepted: u64,
    /// Closed at once: all places are taken by connections with a request.
    pub refused: u64,
    /// Closed without a request, so that another one had a place.
    pub displaced: u64,
    /// Closed because the handshake, the first request or the next one took too long.
    pub timed_out: u64,
    /// Requests with a token that nobody has.
    pub unauthorized: u64,
}

#[derive(Debug, Default)]
struct Counters {
    accepted: AtomicU64,
    refused: AtomicU64,
    displaced: AtomicU64,
    timed_out: AtomicU64,
    unauthorized: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// The connections of one port; clones are handles to the same.
#[derive(Clone, Debug)]
pub struct Connections {
    limits: Arc<ConnectionLimits>,
    counters: Arc<Counters>,
    places: Arc<Mutex<Places>>,
}

#[derive(Debug, Default)]
struct Places {
    next: u64,
    open: HashMap<u64, Arc<Connection>>,
    peers: HashMap<IpAddr, usize>,
}

impl Places {
    fn leave(&mut self, id: u64) -> Option<Arc<Connection>> {
        let connection = self.open.remove(&id)?;
        if let Some(count) = self.peers.get_mut(&connection.peer) {
            *count -= 1;
            if *count == 0 {
                self.peers.remove(&connection.peer);
            }
        }
        Some(connection)
    }

    /// Makes room among the connections that `of` selects. False if all of them have requests.
    fn displace(&mut self, of: impl Fn(&Connection) -> bool) -> bool {
        let waiting = self
            .open
            .iter()
            .filter(|(_, c)| of(c))
            .filter_map(|(id, c)| {
                let state = c.state();
                (state.requests == 0).then_some((state.known, state.since, *id))
            });
        let Some((.., id)) = waiting.min() else {
            return false;
        };
        if let Some(connection) = self.leave(id) {
            connection.displaced.cancel();
        }
        true
    }
}

/// One connection as the others see it.
#[derive(Debug)]
struct Connection {
    peer: IpAddr,
    displaced: CancellationToken,
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    /// Requests that are not answered to their end.
    requests: usize,
    /// Whether there has been a request.
    served: bool,
    /// Whether the peer has shown who it is.
    known: bool,
    /// When the connection or its last answer began or ended.
    since: Instant,
}

impl Connection {
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn state(&self) -> State {
        self.change(|state| *state)
    }
}

/// The place of one connection; it is free again once this is dropped.
#[derive(Clone, Debug)]
pub struct Visitor {
    seat: Arc<Seat>,
}

#[derive(Debug)]
struct Seat {
    id: u64,
    connection: Arc<Connection>,
    connections: Connections,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.connections.with(|places| places.leave(self.id));
    }
}

impl Visitor {
    /// The peer has shown who it is: its connection is closed last if places get rare.
    pub fn is_known(&self) {
        self.seat.connection.change(|state| state.known = true);
    }

    /// Counts a request with a token that nobody has.
    pub(crate) fn is_unauthorized(&self) {
        count(&self.seat.connections.counters.unauthorized);
    }

    fn begin(&self) -> Answering {
        self.seat.connection.change(|state| {
            state.requests += 1;
            state.served = true;
        });
        Answering(self.seat.connection.clone())
    }
}

/// A request until the end of its answer.
struct Answering(Arc<Connection>);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.change(|state| {
            state.requests -= 1;
            state.since = Instant::now();
        });
    }
}

/// The body of an answer, which lasts as long as the request does.
struct Answer<B> {
    body: B,
    _request: Answering,
}

impl<B: Body<Data = Bytes> + Unpin> Body for Answer<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Connections {
    /// No connections yet.
    pub fn new(limits: ConnectionLimits) -> Self {
        Self {
            limits: Arc::new(limits),
            counters: Arc::default(),
            places: Arc::default(),
        }
    }

    fn with<T>(&self, change: impl FnOnce(&mut Places) -> T) -> T {
        change(&mut self.places.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What has happened so far.
    pub fn counts(&self) -> ConnectionCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ConnectionCounts {
            open: self.with(|places| places.open.len()),
            accepted: read(&self.counters.accepted),
            refused: read(&self.counters.refused),
            displaced: read(&self.counters.displaced),
            timed_out: read(&self.counters.timed_out),
            unauthorized: read(&self.counters.unauthorized),
        }
    }

    /// A place for a connection, if there is one or one can be made.
    fn admit(&self, peer: IpAddr) -> Option<Visitor> {
        let limits = &self.limits;
        let seat = self.with(|places| {
            let from_here = places.peers.get(&peer).copied().unwrap_or_default();
            let crowded = from_here >= limits.per_peer && !peer.is_loopback();
            let full = places.open.len() >= limits.total;
            if crowded || full {
                let room = places.displace(|other| !crowded || other.peer == peer);
                if !room {
                    return None;
                }
                count(&self.counters.displaced);
            }
            let id = places.next;
            places.next += 1;
            let connection = Arc::new(Connection {
                peer,
                displaced: CancellationToken::new(),
                state: Mutex::new(State {
                    requests: 0,
                    served: false,
                    known: false,
                    since: Instant::now(),
                }),
            });
            places.open.insert(id, connection.clone());
            *places.peers.entry(peer).or_default() += 1;
            Some((id, connection))
        });
        let Some((id, connection)) = seat else {
            count(&self.counters.refused);
            return None;
        };
        count(&self.counters.accepted);
        let seat = Seat {
            id,
            connection,
            connections: self.clone(),
        };
        Some(Visitor {
            seat: Arc::new(seat),
        })
    }

    /// Serves HTTP on a listener until `stop`, and then for a moment what is being answered.
    /// `service` makes the service of one connection.
    pub async fn serve<F, S, B>(
        self,
        listener: TcpListener,
        tls: Option<TlsAcceptor>,
        stop: CancellationToken,
        service: F,
    ) where
        F: Fn(SocketAddr, Visitor) -> S + Clone + Send + 'static,
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>
            + Clone
            + Send
            + 'static,
        S::Future: Send,
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let tasks = TaskTracker::new();
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                accepted = listener.accept() => accepted,
            };
            let (socket, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(e) => {
                    tracing::warn!(error = %e, "failed to accept a connection");
                    // Whoever waits longest gives its descriptor.
                    if self.with(|places| places.displace(|_| true)) {
                        count(&self.counters.displaced);
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let Some(visitor) = self.admit(peer.ip()) else {
                tracing::debug!(%peer, "too many connections");
                continue;
            };
            let service = service(peer, visitor.clone());
            let one =
                self.clone()
                    .connection(socket, peer, visitor, tls.clone(), stop.clone(), service);
            tasks.spawn(one);
        }
        drop(listener);
        tasks.close();
        tasks.wait().await;
    }

    async fn connection<S, B>(
        self,
        socket: TcpStream,
        peer: SocketAddr,
        visitor: Visitor,
        tls: Option<TlsAcceptor>,
        stop: CancellationToken,
        service: S,
    ) where
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>
            + Clone
            + Send
            + 'static,
        S::Future: Send,
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        // Watch events are small and must not wait for each other.
        let _ = socket.set_nodelay(true);
        let Some(tls) = tls else {
            return self.requests(socket, peer, visitor, stop, service).await;
        };
        let handshake = tokio::time::timeout(self.limits.handshake, tls.accept(socket));
        let stream = tokio::select! {
            () = stop.cancelled() => return,
            () = visitor.seat.connection.displaced.cancelled() => return,
            stream = handshake => stream,
        };
        match stream {
            Ok(Ok(stream)) => self.requests(stream, peer, visitor, stop, service).await,
            Ok(Err(e)) => tracing::debug!(%peer, error = %e, "TLS handshake failed"),
            Err(_) => count(&self.counters.timed_out),
        }
    }

    async fn requests<I, S, B>(
        self,
        stream: I,
        peer: SocketAddr,
        visitor: Visitor,
        stop: CancellationToken,
        service: S,
    ) where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>
            + Clone
            + Send
            + 'static,
        S::Future: Send,
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let connection = visitor.seat.connection.clone();
        let counted = service_fn(move |request: Request<Incoming>| {
            let (request_under_way, mut service) = (visitor.begin(), service.clone());
            async move {
                let answer = service.call(request).await;
                answer.map(|response| {
                    response.map(|body| Answer {
                        body,
                        _request: request_under_way,
                    })
                })
            }
        });
        let mut builder = auto::Builder::new(TokioExecutor::new());
        // The time for heads is kept below, for both protocols.
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(None);
        builder
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT);
        let serving = builder.serve_connection(TokioIo::new(stream), counted);
        let mut serving = std::pin::pin!(serving);
        loop {
            let wake = self.wake(&connection);
            tokio::select! {
                result = serving.as_mut() => {
                    if let Err(e) = result {
                        tracing::debug!(%peer, error = %e, "connection ended");
                    }
                    return;
                }
                () = stop.cancelled() => {
                    serving.as_mut().graceful_shutdown();
                    break;
                }
                () = connection.displaced.cancelled() => return,
                () = tokio::time::sleep_until(wake) => {
                    if connection.state().requests == 0 && self.wake(&connection) <= Instant::now() {
                        count(&self.counters.timed_out);
                        return;
                    }
                }
            }
        }
        // Watches do not end by themselves when only the port is closed.
        let _ = tokio::time::timeout(DRAIN_TIMEOUT, serving).await;
    }

    /// When to look whether the connection has been without a request for too long.
    fn wake(&self, connection: &Connection) -> Instant {
        let state = connection.state();
        match (state.requests, state.served) {
            (0, false) => state.since + self.limits.first_request,
            (0, true) => state.since + self.limits.idle,
            // Not before the answer ends.
            _ => Instant::now() + self.limits.idle,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connections(total: usize, per_peer: usize) -> Connections {
        Connections::new(ConnectionLimits {
            total,
            per_peer,
            ..ConnectionLimits::of_files(1024)
        })
    }

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn far(host: u8) -> IpAddr {
        [192, 0, 2, host].into()
    }

    fn is_displaced(visitor: &Visitor) -> bool {
        visitor.seat.connection.displaced.is_cancelled()
    }

    #[test]
    fn limits_follow_from_the_files_that_may_be_open() {
        for (files, total) in [(20, 16), (200, 50), (1024, 256), (1 << 20, 4096)] {
            assert_eq!(ConnectionLimits::of_files(files).total, total, "{files}");
        }
        assert!(open_files() > 0);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_says_nothing_gives_way_and_the_known_go_last() {
        let connections = connections(3, 3);
        let first = connections.admit(HERE).unwrap();
        first.is_known();
        tokio::time::advance(Duration::from_secs(1)).await;
        let silent = connections.admit(HERE).unwrap();
        tokio::time::advance(Duration::from_secs(1)).await;
        let later = connections.admit(HERE).unwrap();
        let fourth = connections.admit(HERE).unwrap();
        let displaced = [&first, &silent, &later, &fourth].map(is_displaced);
        assert_eq!(displaced, [false, true, false, false]);
        drop(silent);
        let counts = connections.counts();
        assert_eq!((counts.open, counts.accepted, counts.displaced), (3, 4, 1));
        drop((first, later, fourth));
        assert_eq!(connections.counts().open, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_has_a_request_keeps_the_place() {
        let connections = connections(2, 2);
        let visitors = [connections.admit(HERE), connections.admit(HERE)];
        let visitors = visitors.map(Option::unwrap);
        let requests = [visitors[0].begin(), visitors[1].begin()];
        assert!(connections.admit(HERE).is_none());
        assert_eq!(connections.counts().refused, 1);
        drop(requests);
        assert!(connections.admit(HERE).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn one_address_takes_its_own_places_only() {
        let connections = connections(10, 2);
        let other = connections.admit(far(2)).unwrap();
        let mut crowd: Vec<Visitor> = Vec::new();
        for _ in 0..50 {
            crowd.push(connections.admit(far(1)).unwrap());
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert_eq!(connections.counts().open, 3);
        assert!(!is_displaced(&other));
        assert_eq!(crowd.iter().filter(|v| !is_displaced(v)).count(), 2);
        // Whoever asks from this host shares its address with all others here.
        let local: Vec<_> = (0..5).map(|_| connections.admit(HERE).unwrap()).collect();
        assert!(local.iter().all(|visitor| !is_displaced(visitor)));
    }
}
