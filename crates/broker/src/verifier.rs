//! Verifies passwords, off the threads that serve clients.
//!
//! A verification takes 19 MiB and some 20 ms of a core, and anybody can ask for one. So there is a
//! queue for them with an end, in which each peer has its turn and the newest of a peer goes first:
//! whoever waits long has given up by then. A login that was right once needs no second
//! verification, and a wrong one that comes again gets its answer at once.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use argon2::Block;
use sha2::{Digest, Sha256};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use crate::metrics;
use crate::password::Hash;
use crate::peers::network;

/// Logins of one peer that wait. At 20 ms each it is a third of a second.
const WAITING_OF_PEER: usize = 16;
/// Logins that wait in all: some five seconds, half of what a client has for CONNECT.
const WAITING: usize = 256;
/// Wrong logins that are remembered, and how long.
const REMEMBERED: usize = 4_096;
const REMEMBERED_FOR: Duration = Duration::from_secs(60);
/// Peers whose wrong logins are counted, each until a minute after its last one.
const PEERS: usize = 4_096;
/// What each wrong login adds to the time until a peer gets its answers, and the most.
const SLOWER: Duration = Duration::from_millis(100);
const SLOWEST: Duration = Duration::from_secs(2);

/// What is known of a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Right,
    Wrong,
    /// Too many wait to be verified.
    Busy,
}

/// What stands for a user with a password; nobody else can compute it.
type Fingerprint = [u8; 32];

/// See the module.
pub(crate) struct Verifier {
    key: [u8; 32],
    at_once: usize,
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Verifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Verifier").finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Shared(Mutex<State>);

#[derive(Default)]
struct State {
    queue: Queue<Job>,
    /// Verifications at work, and the memory of those that are not.
    running: usize,
    memory: Vec<Vec<Block>>,
    /// The last right login of each user.
    right: HashMap<String, Fingerprint>,
    wrong: HashMap<Fingerprint, Instant>,
    failures: HashMap<IpAddr, (u32, Instant)>,
}

struct Job {
    hash: Hash,
    password: Vec<u8>,
    answer: oneshot::Sender<bool>,
}

impl Default for Verifier {
    fn default() -> Self {
        // The other cores are for the clients that are there.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            key: rand::random(),
            at_once: (cores / 2).max(1),
            shared: Arc::default(),
        }
    }
}

impl Verifier {
    /// Whether this is the user's password, of which this is the hash.
    pub(crate) async fn verify(
        &self,
        from: IpAddr,
        user: &str,
        hash: &Hash,
        password: &[u8],
    ) -> Verdict {
        let fingerprint = self.fingerprint(user, password);
        let (answer, answered) = oneshot::channel();
        {
            let mut state = self.shared.state();
            if let Some(known) = state.known(user, &fingerprint) {
                return known;
            }
            let job = Job {
                hash: hash.clone(),
                password: password.to_vec(),
                answer,
            };
            // Dropping the one that has to go tells whoever waits for it.
            drop(state.queue.push(network(from), job));
            if state.running < self.at_once {
                state.running += 1;
                let shared = Arc::clone(&self.shared);
                tokio::task::spawn_blocking(move || shared.work());
            }
        }
        let Ok(right) = answered.await else {
            return Verdict::Busy;
        };
        let mut state = self.shared.state();
        if right {
            state.right.insert(user.to_owned(), fingerprint);
            return Verdict::Right;
        }
        state.remember_wrong(fingerprint);
        Verdict::Wrong
    }

    /// Waits, the longer the more logins of this peer were wrong within the last minute.
    pub(crate) async fn slow_down(&self, from: IpAddr) {
        let pause = self.shared.state().failed(network(from));
        sleep(pause).await;
    }

    fn fingerprint(&self, user: &str, password: &[u8]) -> Fingerprint {
        let mut hasher = Sha256::new();
        hasher.update(self.key);
        hasher.update(user.len().to_le_bytes());
        hasher.update(user);
        hasher.update(password);
        hasher.finalize().into()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Verifies until nothing waits.
    fn work(&self) {
        let mut memory = self.state().memory.pop().unwrap_or_default();
        loop {
            let job = {
                let mut state = self.state();
                let Some(job) = state.queue.pop() else {
                    state.running -= 1;
                    // A block that is freed and allocated again stays with each thread that did.
                    state.memory.push(memory);
                    return;
                };
                metrics::logins_waiting(state.queue.len());
                job
            };
            // Who has hung up meanwhile costs nothing.
            if !job.answer.is_closed() {
                let right = job.hash.matches(&job.password, &mut memory);
                let _ = job.answer.send(right);
            }
        }
    }
}

impl State {
    fn known(&self, user: &str, fingerprint: &Fingerprint) -> Option<Verdict> {
        if self.right.get(user) == Some(fingerprint) {
            return Some(Verdict::Right);
        }
        let at = self.wrong.get(fingerprint)?;
        (at.elapsed() < REMEMBERED_FOR).then_some(Verdict::Wrong)
    }

    fn remember_wrong(&mut self, fingerprint: Fingerprint) {
        if self.wrong.len() >= REMEMBERED {
            self.wrong.retain(|_, at| at.elapsed() < REMEMBERED_FOR);
        }
        if self.wrong.len() < REMEMBERED {
            self.wrong.insert(fingerprint, Instant::now());
        }
    }

    /// A login of this peer was wrong: the pause before its answer.
    fn failed(&mut self, peer: IpAddr) -> Duration {
        if self.failures.len() >= PEERS && !self.failures.contains_key(&peer) {
            self.failures
                .retain(|_, (_, at)| at.elapsed() < REMEMBERED_FOR);
            if self.failures.len() >= PEERS {
                return SLOWEST;
            }
        }
        let now = Instant::now();
        let (count, last) = self.failures.entry(peer).or_insert((0, now));
        if last.elapsed() >= REMEMBERED_FOR {
            *count = 0;
        }
        *count = count.saturating_add(1);
        *last = now;
        (SLOWER * *count).min(SLOWEST)
    }
}

/// What waits, by peer. Each peer has its turn, and of a peer the newest goes first.
#[derive(Debug)]
struct Queue<T> {
    of: HashMap<IpAddr, VecDeque<T>>,
    turns: VecDeque<IpAddr>,
    len: usize,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self {
            of: HashMap::new(),
            turns: VecDeque::new(),
            len: 0,
        }
    }
}

impl<T> Queue<T> {
    fn len(&self) -> usize {
        self.len
    }

    /// Adds one; gives the one that has to go for it, which is the oldest of that peer, or of the
    /// peer with the most.
    fn push(&mut self, peer: IpAddr, job: T) -> Option<T> {
        let waiting = self.of.entry(peer).or_default();
        if waiting.is_empty() {
            self.turns.push_back(peer);
        }
        waiting.push_back(job);
        self.len += 1;
        if waiting.len() > WAITING_OF_PEER {
            self.len -= 1;
            return waiting.pop_front();
        }
        if self.len <= WAITING {
            return None;
        }
        let (_, most) = self.of.iter_mut().max_by_key(|(_, of)| of.len())?;
        self.len -= 1;
        most.pop_front()
    }

    fn pop(&mut self) -> Option<T> {
        loop {
            let peer = self.turns.pop_front()?;
            let waiting = self.of.get_mut(&peer)?;
            let newest = waiting.pop_back();
            if waiting.is_empty() {
                self.of.remove(&peer);
            } else {
                self.turns.push_back(peer);
            }
            // One whose only job had to go has none.
            if let Some(job) = newest {
                self.len -= 1;
                return Some(job);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash_password;

    fn peer(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[test]
    fn each_peer_has_its_turn_and_the_newest_goes_first() {
        let mut queue = Queue::default();
        for job in 1..=3 {
            assert_eq!(queue.push(peer(1), job), None);
        }
        queue.push(peer(2), 20);
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, [3, 20, 2, 1]);
        assert_eq!((queue.len(), queue.of.len(), queue.turns.len()), (0, 0, 0));
    }

    #[test]
    fn a_full_queue_drops_the_oldest_of_whoever_has_the_most() {
        let mut queue = Queue::default();
        let mut gone = 0;
        for job in 0..100 {
            gone += usize::from(queue.push(peer(1), job).is_some());
        }
        assert_eq!(
            (queue.len(), gone),
            (WAITING_OF_PEER, 100 - WAITING_OF_PEER)
        );
        assert_eq!(queue.pop(), Some(99));
        let mut other = 0_u8;
        while queue.len() < WAITING {
            other += 1;
            assert_eq!(queue.push(peer(100 + other % 100), 0), None);
        }
        assert!(queue.push(peer(2), 7).is_some());
        assert_eq!(queue.len(), WAITING);
        while let Some(job) = queue.pop() {
            if job == 7 {
                return;
            }
        }
        panic!("the new one should be there");
    }

    #[tokio::test(start_paused = true)]
    async fn wrong_logins_slow_their_peer_down() {
        let verifier = Verifier::default();
        for (wrong, millis) in [(1, 100), (2, 200), (3, 300)] {
            let begun = Instant::now();
            verifier.slow_down(peer(1)).await;
            assert_eq!(begun.elapsed().as_millis(), millis, "{wrong}");
        }
        for _ in 0..30 {
            verifier.slow_down(peer(1)).await;
        }
        let begun = Instant::now();
        verifier.slow_down(peer(1)).await;
        assert_eq!(begun.elapsed(), SLOWEST);
        let begun = Instant::now();
        verifier.slow_down(peer(2)).await;
        assert_eq!(begun.elapsed(), SLOWER, "another peer");
        tokio::time::advance(REMEMBERED_FOR).await;
        let begun = Instant::now();
        verifier.slow_down(peer(1)).await;
        assert_eq!(begun.elapsed(), SLOWER, "a minute later");
    }

    #[tokio::test]
    async fn what_is_known_of_a_login_is_not_verified_again() {
        let verifier = Verifier::default();
        let hash = Hash::parse(&hash_password("secret")).unwrap();
        let verify = async |password: &str| {
            verifier
                .verify(peer(1), "one", &hash, password.as_bytes())
                .await
        };
        for _ in 0..2 {
            assert_eq!(verify("secret").await, Verdict::Right);
            assert_eq!(verify("wrong").await, Verdict::Wrong);
        }
        let (right, wrong) = ("secret".as_bytes(), "wrong".as_bytes());
        let state = verifier.shared.state();
        let known = |user, password| state.known(user, &verifier.fingerprint(user, password));
        assert_eq!(known("one", right), Some(Verdict::Right));
        assert_eq!(known("one", wrong), Some(Verdict::Wrong));
        // Another user's login is another login.
        assert_eq!(known("two", right), None);
        assert_eq!(known("on", b"esecret"), None);
    }

    /// Two hundred at a time, each with another password, and a right one after them.
    #[tokio::test]
    async fn a_flood_of_wrong_logins_has_an_end_and_takes_no_memory() {
        let verifier = Arc::new(Verifier::default());
        let hash = Hash::parse(&hash_password("secret")).unwrap();
        let login = |from: IpAddr, password: String| {
            let (verifier, hash) = (Arc::clone(&verifier), hash.clone());
            async move {
                verifier
                    .verify(from, "one", &hash, password.as_bytes())
                    .await
            }
        };
        let flood: Vec<_> = (0..200)
            .map(|guess| tokio::spawn(login(peer(1), guess.to_string())))
            .collect();
        let first = || flood.iter().any(tokio::task::JoinHandle::is_finished);
        while !first() {
            tokio::task::yield_now().await;
        }
        assert_eq!(
            login(peer(1), "secret".to_owned()).await,
            Verdict::Right,
            "of the same peer"
        );
        let mut verdicts = Vec::new();
        for guess in flood {
            verdicts.push(guess.await.unwrap());
        }
        assert!(!verdicts.contains(&Verdict::Right));
        let busy = verdicts.iter().filter(|verdict| **verdict == Verdict::Busy);
        assert!(busy.count() >= 200 - WAITING_OF_PEER - verifier.at_once - 1);
        let state = verifier.shared.state();
        assert!(state.memory.len() <= verifier.at_once);
        assert_eq!(state.queue.len(), 0);
    }
}
