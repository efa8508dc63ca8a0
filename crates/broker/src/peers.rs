//! How many connections there are, in all, of each peer, and of clients that have not said yet who
//! they are.
//!
//! Anybody can open connections and say nothing. So those that have not logged in yet are few, and
//! where there are too many the oldest of whoever has the most is closed: a client that means it
//! logs in before its turn comes.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::metrics::Reason;

/// The peer that an address stands for: of IPv6 it is the network, of which one machine has all
/// addresses.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            let bits = u128::from(address) & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from(bits))
        }
    }
}

/// Limits of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Places {
    /// In all.
    pub(crate) total: usize,
    /// Of a peer.
    pub(crate) of_peer: usize,
    /// That have not logged in.
    pub(crate) half_open: usize,
}

/// See the module. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct Peers {
    places: Places,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    open: usize,
    of: HashMap<IpAddr, Peer>,
    half_open: usize,
}

#[derive(Debug, Default)]
struct Peer {
    open: usize,
    /// Those that have not logged in, oldest first, with what closes them.
    half_open: BTreeMap<u64, CancellationToken>,
}

/// A connection's place, until this is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    peers: Peers,
    peer: IpAddr,
    number: u64,
    closed: CancellationToken,
    kept: AtomicBool,
}

impl Peers {
    pub(crate) fn new(places: Places) -> Self {
        Self {
            places,
            state: Arc::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client has connected. It gets a place, if need be in the place of one that has not logged in.
    pub(crate) fn arrive(&self, address: IpAddr) -> Result<Seat, Reason> {
        let peer = network(address);
        let mut guard = self.state();
        let state = &mut *guard;
        let of_peer = state.of.get(&peer).map_or(0, |peer| peer.open);
        if of_peer >= self.places.of_peer && !state.close_oldest_of(peer) {
            return Err(Reason::Peer);
        }
        let no_room = state.open >= self.places.total || state.half_open >= self.places.half_open;
        if no_room && !state.close_oldest() {
            return Err(Reason::Connections);
        }
        let (number, closed) = (state.next, CancellationToken::new());
        state.next += 1;
        state.open += 1;
        state.half_open += 1;
        let entry = state.of.entry(peer).or_default();
        entry.open += 1;
        entry.half_open.insert(number, closed.clone());
        Ok(Seat {
            peers: self.clone(),
            peer,
            number,
            closed,
            kept: AtomicBool::new(false),
        })
    }

    #[cfg(test)]
    fn counts(&self) -> (usize, usize, usize) {
        let state = self.state();
        (state.open, state.half_open, state.of.len())
    }
}

impl State {
    /// Closes the oldest of the peer with the most that have not logged in. Its place is free from
    /// now on, though it takes a moment to go.
    fn close_oldest(&mut self) -> bool {
        let most = self
            .of
            .iter()
            .filter(|(_, peer)| !peer.half_open.is_empty())
            .max_by_key(|(_, peer)| peer.half_open.len());
        let Some(peer) = most.map(|(peer, _)| *peer) else {
            return false;
        };
        self.close_oldest_of(peer)
    }

    fn close_oldest_of(&mut self, peer: IpAddr) -> bool {
        let Some((number, closed)) = self
            .of
            .get_mut(&peer)
            .and_then(|peer| peer.half_open.pop_first())
        else {
            return false;
        };
        tracing::debug!(%peer, number, "closed a connection that has not logged in");
        crate::metrics::refused(Reason::HalfOpen);
        self.half_open -= 1;
        self.gone(peer);
        closed.cancel();
        true
    }

    fn gone(&mut self, peer: IpAddr) {
        self.open -= 1;
        if let Some(entry) = self.of.get_mut(&peer) {
            entry.open -= 1;
            if entry.open == 0 {
                self.of.remove(&peer);
            }
        }
    }
}

impl Seat {
    /// Done when another client needs the place.
    pub(crate) async fn closed(&self) {
        self.closed.cancelled().await;
    }

    /// The client has logged in. Whether it still has its place.
    pub(crate) fn keep(&self) -> bool {
        self.kept.store(true, Ordering::Release);
        self.is_there()
    }

    /// Whether the client has logged in.
    pub(crate) fn is_kept(&self) -> bool {
        self.kept.load(Ordering::Acquire)
    }

    /// Takes it off the list of those without a login. Whether it still has its place.
    fn is_there(&self) -> bool {
        let mut state = self.peers.state();
        let entry = state.of.get_mut(&self.peer);
        let was_half_open = entry.is_some_and(|peer| peer.half_open.remove(&self.number).is_some());
        if was_half_open {
            state.half_open -= 1;
        }
        !self.closed.is_cancelled()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        // Whoever has taken the place has counted it already.
        if self.is_there() {
            self.peers.state().gone(self.peer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn peers(total: usize, of_peer: usize, half_open: usize) -> Peers {
        Peers::new(Places {
            total,
            of_peer,
            half_open,
        })
    }

    #[test]
    fn a_network_is_one_peer() {
        let network = |text: &str| network(text.parse().unwrap()).to_string();
        assert_eq!(network("192.0.2.1"), "192.0.2.1");
        assert_eq!(network("::ffff:192.0.2.1"), "192.0.2.1");
        assert_eq!(network("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
    }

    #[tokio::test]
    async fn the_oldest_that_has_not_logged_in_makes_room() {
        let peers = peers(100, 100, 3);
        let silent: Vec<_> = (0..3).map(|_| peers.arrive(peer(1)).unwrap()).collect();
        let logs_in = peers.arrive(peer(2)).unwrap();
        silent[0].closed().await;
        assert!(!silent[1].closed.is_cancelled());
        assert!(logs_in.keep());
        assert!(!silent[0].keep());
        assert_eq!(peers.counts(), (3, 2, 2));
        // Those of whoever has the most go first, not those of others.
        let other = peers.arrive(peer(3)).unwrap();
        let _more = peers.arrive(peer(1)).unwrap();
        silent[1].closed().await;
        assert!(!other.closed.is_cancelled() && !logs_in.closed.is_cancelled());
        drop((silent, other, logs_in));
        assert_eq!(peers.counts(), (1, 1, 1));
    }

    #[test]
    fn those_that_have_logged_in_keep_their_places() {
        let peers = peers(2, 2, 2);
        let seats: Vec<_> = (0..2).map(|_| peers.arrive(peer(1)).unwrap()).collect();
        assert!(seats.iter().all(Seat::keep));
        assert_eq!(peers.arrive(peer(2)).unwrap_err(), Reason::Connections);
        drop(seats);
        assert!(peers.arrive(peer(2)).is_ok());
        assert_eq!(peers.counts(), (0, 0, 0));
    }

    #[test]
    fn a_peer_has_its_share_and_no_more() {
        let peers = peers(10, 2, 10);
        let seats: Vec<_> = (0..2).map(|_| peers.arrive(peer(1)).unwrap()).collect();
        assert!(seats[1].keep());
        // One that says nothing makes room for the next.
        let third = peers.arrive(peer(1)).unwrap();
        assert!(!seats[0].keep() && third.keep());
        assert_eq!(peers.arrive(peer(1)).unwrap_err(), Reason::Peer);
        assert!(peers.arrive(peer(2)).is_ok());
    }
}
