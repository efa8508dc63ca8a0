//! What waits for a sink.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;

use super::{ObjectKey, Operation, RuleNames, State};

/// One event for a sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Rises by one with each event of the sink, for as long as the process lives.
    pub sequence: u64,
    /// The object.
    pub key: ObjectKey,
    /// Its kind.
    pub kind: Arc<str>,
    /// What has become of it.
    pub operation: Operation,
    /// `metadata.uid` of the state that was seen last; empty if none was.
    pub uid: Arc<str>,
    /// `metadata.resourceVersion` of it; 0 if none was.
    pub version: u64,
    /// The object as JSON, without what servers set; `None` for a deletion.
    pub object: Option<Arc<str>>,
    /// The rules that want to hear of it.
    pub rules: RuleNames,
    /// What the sink has once it has taken this; `None` if the object is gone.
    pub has: Option<State>,
    /// When it was seen.
    pub seen: Timestamp,
}

impl Event {
    fn bytes(&self) -> usize {
        self.object.as_ref().map_or(0, |object| object.len())
    }
}

/// What a sink has of an object, to be remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The object.
    pub key: ObjectKey,
    /// Its state; `None` if it is gone, or not wanted any more.
    pub has: Option<State>,
}

/// How much may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Events.
    pub events: usize,
    /// Bytes of objects in them.
    pub bytes: usize,
}

impl Default for Room {
    /// An event without its object takes some 300 B: 8.3 MiB in all.
    fn default() -> Self {
        Self {
            events: 1_024,
            bytes: 8 << 20,
        }
    }
}

/// What waits for a sink, in order. See [`super`].
#[derive(Debug)]
pub struct Pending {
    room: Room,
    /// Those that the sink is being told, which may have to be told once more.
    taken: VecDeque<Event>,
    waiting: VecDeque<Event>,
    bytes: usize,
    sequence: u64,
    /// Sequence of the newest event that waits for an object.
    newest: HashMap<ObjectKey, u64>,
}

impl Pending {
    /// Nothing waits.
    pub fn new(room: Room) -> Self {
        Self {
            room,
            taken: VecDeque::new(),
            waiting: VecDeque::new(),
            bytes: 0,
            sequence: 0,
            newest: HashMap::new(),
        }
    }

    /// Whether an event with an object of so many bytes has room. One for an object of which an
    /// event waits takes its place when it gets tight, and one that is larger than all room has it
    /// while nothing else waits.
    pub fn has_room(&self, key: &ObjectKey, bytes: usize) -> bool {
        if self.is_empty() {
            return true;
        }
        let fits = self.len() < self.room.events || self.replaces(key).is_some();
        fits && self.bytes + bytes <= self.room.bytes
    }

    /// Whether less than half of the room is taken: what was missed can be looked for.
    pub fn has_ease(&self) -> bool {
        self.len() * 2 <= self.room.events && self.bytes * 2 <= self.room.bytes
    }

    /// Adds an event; its sequence is set here. Deletions are taken without room, too: they have no
    /// object, and there is one at most for each object that the sink has.
    pub fn push(&mut self, mut event: Event) {
        if let Some(index) = self.replaces(&event.key) {
            let before = &self.waiting[index];
            event.sequence = before.sequence;
            event.operation = both(before.operation, event.operation);
            event.rules = all_of(&before.rules, event.rules);
            self.bytes -= before.bytes();
            // At the place of the one before, so that the object waits no longer.
            self.bytes += event.bytes();
            self.waiting[index] = event;
            return;
        }
        self.sequence += 1;
        event.sequence = self.sequence;
        self.bytes += event.bytes();
        self.newest.insert(event.key.clone(), event.sequence);
        self.waiting.push_back(event);
    }

    /// Where an event waits in whose place one for the same object comes, once it gets tight.
    fn replaces(&self, key: &ObjectKey) -> Option<usize> {
        if self.has_ease() {
            return None;
        }
        self.newest_of(key)
    }

    /// Where the newest event waits for an object.
    fn newest_of(&self, key: &ObjectKey) -> Option<usize> {
        let newest = self.newest.get(key)?;
        let found = self
            .waiting
            .binary_search_by_key(newest, |event| event.sequence);
        found.ok()
    }

    /// Something about an object that the sink need not hear of, and that is to be remembered. What
    /// waits for the object takes it along; it is given back if nothing does.
    pub fn settle(&mut self, record: Record) -> Option<Record> {
        let Record { key, has } = record;
        let event = match self.newest_of(&key) {
            Some(index) => self.waiting.get_mut(index),
            None => self.taken.iter_mut().rev().find(|event| event.key == key),
        };
        match event {
            Some(event) => event.has = has,
            None => return Some(Record { key, has }),
        }
        None
    }

    /// The next events, so many and with so many bytes of objects at most, but one in any case. They
    /// are to be [taken off](Pending::done) or [put back](Pending::again) before the next are taken.
    pub fn take(&mut self, events: usize, bytes: usize) -> Vec<Event> {
        let mut size = 0;
        while let Some(event) = self.waiting.front()
            && self.taken.len() < events.max(1)
            && (self.taken.is_empty() || size + event.bytes() <= bytes)
        {
            size += event.bytes();
            if let Some(event) = self.waiting.pop_front() {
                if self.newest.get(&event.key) == Some(&event.sequence) {
                    self.newest.remove(&event.key);
                }
                self.taken.push_back(event);
            }
        }
        self.taken.iter().cloned().collect()
    }

    /// The sink has what was taken, up to the event with this sequence: what is to be remembered of
    /// it, in order.
    pub fn done(&mut self, last: u64) -> Vec<Record> {
        let number = self.taken.partition_point(|event| event.sequence <= last);
        let record = |event: Event| {
            self.bytes -= event.bytes();
            let Event { key, has, .. } = event;
            Record { key, has }
        };
        self.taken.drain(..number).map(record).collect()
    }

    /// The sink does not have it: it is taken again, before all others.
    pub fn again(&mut self) {
        while let Some(event) = self.taken.pop_back() {
            let newest = self.newest.entry(event.key.clone());
            newest.or_insert(event.sequence);
            self.waiting.push_front(event);
        }
    }

    /// Nothing waits any more, and nothing is taken.
    pub fn clear(&mut self) {
        self.taken.clear();
        self.waiting.clear();
        self.newest.clear();
        self.bytes = 0;
    }

    /// Events that wait or are taken.
    pub fn len(&self) -> usize {
        self.taken.len() + self.waiting.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// When the oldest that waits was seen.
    pub fn oldest(&self) -> Option<Timestamp> {
        let all = self.taken.iter().chain(&self.waiting);
        all.map(|event| event.seen).next()
    }
}

/// The rules of two events that become one.
fn all_of(first: &RuleNames, second: RuleNames) -> RuleNames {
    if first.iter().all(|rule| second.contains(rule)) {
        return second;
    }
    let more = second.iter().filter(|rule| !first.contains(rule));
    first.iter().chain(more).cloned().collect()
}

/// What has become of an object by two operations of which the sink has heard of neither.
const fn both(first: Operation, second: Operation) -> Operation {
    match (first, second) {
        (_, Operation::Delete) => Operation::Delete,
        (Operation::Create, _) => Operation::Create,
        (Operation::Update | Operation::Delete, _) => Operation::Update,
    }
}
