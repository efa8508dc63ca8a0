//! The finished works that wait for their end, in the order of time.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;

use super::super::views::ObjectName;
use crate::supervision::{Backoff, BackoffPolicy};

/// The end of a work, as of one version of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct End {
    /// The object, and no later one of the same name.
    pub(super) uid: String,
    /// What was looked at when this was decided.
    pub(super) resource_version: String,
    /// When the work is to be deleted.
    pub(super) due: Timestamp,
}

#[derive(Debug)]
struct Entry {
    end: End,
    /// When the next try is due, its place in the order; `None` while a try is under way.
    attempt: Option<Timestamp>,
    backoff: Backoff,
    /// The list in which the work was last seen.
    list: u64,
}

/// Works by the time of their next try. Nothing is kept of other works.
#[derive(Debug, Default)]
pub(super) struct Queue {
    entries: HashMap<Arc<ObjectName>, Entry>,
    order: BTreeSet<(Timestamp, Arc<ObjectName>)>,
    /// Counts lists.
    list: u64,
}

impl Queue {
    /// How many works wait, with those that are being deleted.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// When the next try is due.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.order.first().map(|(at, _)| *at)
    }

    /// A work has this end. A failed try of the same end keeps its pause.
    pub(super) fn set(&mut self, name: ObjectName, end: End) {
        let list = self.list;
        if let Some(entry) = self.entries.get_mut(&name)
            && (&entry.end.uid, entry.end.due) == (&end.uid, end.due)
        {
            entry.end = end;
            entry.list = list;
            return;
        }
        self.remove(&name);
        let (name, attempt) = (Arc::new(name), end.due);
        self.order.insert((attempt, Arc::clone(&name)));
        let entry = Entry {
            end,
            attempt: Some(attempt),
            backoff: Backoff::new(BackoffPolicy::REQUEST),
            list,
        };
        self.entries.insert(name, entry);
    }

    /// A work is gone, or is to stay.
    pub(super) fn remove(&mut self, name: &ObjectName) {
        if let Some((name, entry)) = self.entries.remove_entry(name)
            && let Some(attempt) = entry.attempt
        {
            self.order.remove(&(attempt, name));
        }
    }

    /// All works are named anew, up to [`Self::listed`].
    pub(super) const fn listing(&mut self) {
        self.list += 1;
    }

    /// Works that were not named are gone.
    pub(super) fn listed(&mut self) {
        let list = self.list;
        let gone = self.entries.iter().filter(|(_, entry)| entry.list != list);
        let gone: Vec<_> = gone.map(|(name, _)| Arc::clone(name)).collect();
        for name in gone {
            self.remove(&name);
        }
    }

    /// Takes a work whose try is due.
    pub(super) fn take(&mut self, now: Timestamp) -> Option<(Arc<ObjectName>, End)> {
        if self.next()? > now {
            return None;
        }
        let (_, name) = self.order.pop_first()?;
        let entry = self.entries.get_mut(&name)?;
        entry.attempt = None;
        Some((name, entry.end.clone()))
    }

    /// The try of this end is over, and so is the work.
    pub(super) fn done(&mut self, name: &ObjectName, tried: &End) {
        if self.under_way(name, tried).is_some() {
            self.remove(name);
        }
    }

    /// The try of this end has failed. `pause` gives the time of the next one; it is not asked if
    /// the work has got another end meanwhile.
    pub(super) fn failed(
        &mut self,
        name: &Arc<ObjectName>,
        tried: &End,
        pause: impl FnOnce(&mut Backoff) -> Timestamp,
    ) {
        if let Some(entry) = self.under_way(name, tried) {
            let attempt = pause(&mut entry.backoff);
            entry.attempt = Some(attempt);
            self.order.insert((attempt, Arc::clone(name)));
        }
    }

    fn under_way(&mut self, name: &ObjectName, tried: &End) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(name)?;
        let same = entry.end.uid == tried.uid && entry.end.due == tried.due;
        (same && entry.attempt.is_none()).then_some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> ObjectName {
        ObjectName {
            namespace: "c1".to_owned(),
            name: name.to_owned(),
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn end(uid: &str, due: i64) -> End {
        End {
            uid: uid.to_owned(),
            resource_version: "1".to_owned(),
            due: at(due),
        }
    }

    /// What is due at `now`, taken in order.
    fn take_all(queue: &mut Queue, now: i64) -> Vec<String> {
        std::iter::from_fn(|| queue.take(at(now)))
            .map(|(name, _)| name.name.clone())
            .collect()
    }

    #[test]
    fn works_come_in_the_order_of_time_and_not_before() {
        let mut queue = Queue::default();
        for (work, due) in [("b", 20), ("a", 10), ("c", 30), ("d", 10)] {
            queue.set(name(work), end(work, due));
        }
        assert_eq!((queue.len(), queue.next()), (4, Some(at(10))));
        assert!(take_all(&mut queue, 9).is_empty());
        assert_eq!(take_all(&mut queue, 20), ["a", "d", "b"]);
        assert_eq!(queue.next(), Some(at(30)));
    }

    #[test]
    fn a_changed_work_has_its_new_time_only() {
        let mut queue = Queue::default();
        queue.set(name("a"), end("a", 10));
        queue.set(name("a"), end("a", 30));
        assert!(take_all(&mut queue, 29).is_empty());
        queue.remove(&name("a"));
        queue.remove(&name("never there"));
        assert!(take_all(&mut queue, 30).is_empty());
        assert_eq!((queue.len(), queue.order.len()), (0, 0));
    }

    #[test]
    fn a_list_drops_what_it_does_not_name() {
        let mut queue = Queue::default();
        queue.set(name("a"), end("a", 10));
        queue.set(name("b"), end("b", 10));
        queue.listing();
        queue.set(name("b"), end("b", 10));
        queue.listed();
        assert_eq!(take_all(&mut queue, 10), ["b"]);
    }

    #[test]
    fn a_failed_try_waits_however_often_the_work_is_seen() {
        let mut queue = Queue::default();
        queue.set(name("a"), end("a", 10));
        let (taken, tried) = queue.take(at(10)).unwrap();
        queue.set(name("a"), end("a", 10));
        assert_eq!(queue.take(at(10)), None, "one try at a time");
        queue.failed(&taken, &tried, |_| at(50));
        let mut newer = end("a", 10);
        newer.resource_version = "2".to_owned();
        queue.set(name("a"), newer.clone());
        assert_eq!(queue.take(at(49)), None);
        assert_eq!(queue.take(at(50)), Some((taken, newer)));
    }

    #[test]
    fn an_answer_for_an_earlier_work_of_the_name_says_nothing() {
        let mut queue = Queue::default();
        queue.set(name("a"), end("first", 10));
        let (taken, tried) = queue.take(at(10)).unwrap();
        queue.set(name("a"), end("second", 20));
        queue.done(&taken, &tried);
        queue.failed(&taken, &tried, |_| panic!("not asked"));
        assert_eq!(queue.next(), Some(at(20)));
        let (taken, tried) = queue.take(at(20)).unwrap();
        queue.done(&taken, &tried);
        assert_eq!((queue.len(), queue.next()), (0, None));
    }
}
