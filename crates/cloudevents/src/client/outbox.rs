//! What has changed and is not at the broker yet.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::Action;

/// What is to be said of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum What {
    /// How it is, by an event of this action.
    Change(Action),
    /// That its source does not have it.
    Forget {
        /// For whom it is.
        cluster: String,
        /// The version that the agent has.
        version: i64,
    },
}

impl What {
    /// Answers to a request may be many: what has just changed goes first.
    const fn is_answer(&self) -> bool {
        matches!(
            self,
            Self::Change(Action::ResyncResponse) | Self::Forget { .. }
        )
    }
}

/// Uids by what is to be said of them. Each is in it once, however often it changes.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    state: Mutex<State>,
    more: Notify,
    /// Who is to be asked for what may have been missed.
    to_ask: Mutex<BTreeSet<String>>,
    more_to_ask: Notify,
}

#[derive(Debug, Default)]
struct State {
    waiting: HashMap<String, What>,
    /// Those that changed, and those that were asked for. May hold uids that wait no more, or that
    /// have moved.
    changed: VecDeque<String>,
    asked: VecDeque<String>,
    /// On their way. One that changes meanwhile waits until it has arrived, so that none overtakes
    /// itself.
    sending: HashSet<String>,
}

impl State {
    fn queue(&mut self, uid: &str, what: &What) {
        let queue = if what.is_answer() {
            &mut self.asked
        } else {
            &mut self.changed
        };
        queue.push_back(uid.to_owned());
    }
}

impl Outbox {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something is to be said of a resource.
    pub(super) fn add(&self, uid: &str, what: What) {
        let mut state = self.state();
        match state.waiting.get(uid) {
            // A creation that was changed before it was sent is still one.
            Some(What::Change(Action::CreateRequest))
                if what == What::Change(Action::UpdateRequest) => {}
            Some(before) if before.is_answer() == what.is_answer() => {
                state.waiting.insert(uid.to_owned(), what);
            }
            // An answer says the same as the change that waits.
            Some(What::Change(_)) if what == What::Change(Action::ResyncResponse) => {}
            _ => {
                if !state.sending.contains(uid) {
                    state.queue(uid, &what);
                }
                state.waiting.insert(uid.to_owned(), what);
            }
        }
        drop(state);
        self.more.notify_one();
    }

    /// The other side has come, or may have: it may have missed what was said, and what it said may
    /// have been missed.
    pub(super) fn ask(&self, name: &str) {
        let mut to_ask = self.to_ask.lock().unwrap_or_else(PoisonError::into_inner);
        to_ask.insert(name.to_owned());
        drop(to_ask);
        self.more_to_ask.notify_one();
    }

    /// All who are to be asked, once there are some.
    pub(super) async fn to_ask(&self) -> BTreeSet<String> {
        loop {
            let to_ask =
                std::mem::take(&mut *self.to_ask.lock().unwrap_or_else(PoisonError::into_inner));
            if !to_ask.is_empty() {
                return to_ask;
            }
            self.more_to_ask.notified().await;
        }
    }

    /// The next, which from now on counts as on its way.
    pub(super) fn next(&self) -> Option<(String, What)> {
        let mut state = self.state();
        loop {
            let uid = state.changed.pop_front();
            let uid = uid.or_else(|| state.asked.pop_front())?;
            if state.sending.contains(&uid) {
                continue;
            }
            if let Some(what) = state.waiting.remove(&uid) {
                state.sending.insert(uid.clone());
                return Some((uid, what));
            }
        }
    }

    /// It has arrived, or never will.
    pub(super) fn done(&self, uid: &str) {
        let mut state = self.state();
        state.sending.remove(uid);
        if let Some(what) = state.waiting.get(uid).cloned() {
            state.queue(uid, &what);
            drop(state);
            self.more.notify_one();
        }
    }

    /// It did not arrive, and is still to be said unless there is something newer to say.
    pub(super) fn failed(&self, uid: &str, what: What) {
        let mut state = self.state();
        state.waiting.entry(uid.to_owned()).or_insert(what);
        drop(state);
        self.done(uid);
    }

    /// Done when there may be more than before.
    pub(super) async fn more(&self) {
        self.more.notified().await;
    }

    /// How many are not at the broker yet.
    pub(super) fn len(&self) -> usize {
        let state = self.state();
        let again = state.sending.iter();
        let only_sending = again.filter(|uid| !state.waiting.contains_key(*uid));
        state.waiting.len() + only_sending.count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CREATE: What = What::Change(Action::CreateRequest);
    const UPDATE: What = What::Change(Action::UpdateRequest);
    const ANSWER: What = What::Change(Action::ResyncResponse);

    fn drained(outbox: &Outbox) -> Vec<(String, What)> {
        std::iter::from_fn(|| outbox.next()).collect()
    }

    fn pair(uid: &str, what: What) -> (String, What) {
        (uid.to_owned(), what)
    }

    #[test]
    fn each_is_sent_once_however_often_it_changes() {
        let outbox = Outbox::default();
        outbox.add("a", CREATE);
        outbox.add("b", UPDATE);
        outbox.add("a", UPDATE);
        assert_eq!(outbox.len(), 2);
        assert_eq!(drained(&outbox), [pair("a", CREATE), pair("b", UPDATE)]);
        assert_eq!(outbox.len(), 2, "on their way");
        outbox.done("a");
        outbox.done("b");
        assert_eq!(outbox.len(), 0);
    }

    #[test]
    fn what_has_changed_goes_before_what_was_asked_for() {
        let outbox = Outbox::default();
        let forget = What::Forget {
            cluster: "c".to_owned(),
            version: 7,
        };
        outbox.add("a", ANSWER);
        outbox.add("orphan", forget.clone());
        outbox.add("b", ANSWER);
        outbox.add("c", UPDATE);
        outbox.add("b", UPDATE);
        outbox.add("c", ANSWER);
        let expected = [
            pair("c", UPDATE),
            pair("b", UPDATE),
            pair("a", ANSWER),
            pair("orphan", forget),
        ];
        assert_eq!(drained(&outbox), expected);
    }

    #[test]
    fn none_overtakes_itself() {
        let outbox = Outbox::default();
        outbox.add("a", UPDATE);
        assert_eq!(outbox.next(), Some(pair("a", UPDATE)));
        outbox.add("a", UPDATE);
        assert_eq!(outbox.next(), None);
        outbox.done("a");
        assert_eq!(outbox.next(), Some(pair("a", UPDATE)));
        outbox.done("a");
        assert_eq!(outbox.next(), None);
    }

    #[test]
    fn what_failed_is_sent_again_as_it_then_is() {
        let outbox = Outbox::default();
        outbox.add("a", CREATE);
        outbox.next();
        outbox.failed("a", CREATE);
        assert_eq!(outbox.next(), Some(pair("a", CREATE)));
        outbox.add("a", What::Change(Action::DeleteRequest));
        outbox.failed("a", CREATE);
        let delete = What::Change(Action::DeleteRequest);
        assert_eq!(outbox.next(), Some(pair("a", delete)));
        assert_eq!(outbox.len(), 1);
    }

    #[tokio::test]
    async fn all_who_are_to_be_asked_are_asked_at_once() {
        let outbox = Outbox::default();
        for name in ["a", "b", "a"] {
            outbox.ask(name);
        }
        let both = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
        assert_eq!(outbox.to_ask().await, both);
        assert!(outbox.to_ask.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn whoever_waits_is_woken() {
        let outbox = Outbox::default();
        outbox.add("a", UPDATE);
        outbox.more().await;
    }
}
