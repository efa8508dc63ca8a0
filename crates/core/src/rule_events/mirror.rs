//! What a sink is known to have of one area.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::{Operation, RuleNames};

/// Numbers of lists from this one on are of no watch: somebody looks at an area once.
pub const FIRST_LOOK: u64 = 1 << 63;

/// Lists under way that are remembered. There are two while one watch takes the place of another;
/// more have been given up without a word.
const MOST_LISTS: usize = 4;

/// Namespace and name.
type Key = (Arc<str>, Arc<str>);

/// A state of an object that rules want.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// `metadata.uid`.
    pub uid: Arc<str>,
    /// `metadata.resourceVersion` as the number that it is.
    pub version: u64,
    /// Hash of what the sink would get.
    pub hash: [u8; 32],
    /// The rules that want to hear when it is gone. Kept with it, since what goes often says no more
    /// what it was like.
    pub on_delete: RuleNames,
}

impl State {
    /// Whether the sink need not hear of this one after the other.
    fn is_like(&self, other: &Self) -> bool {
        self.uid == other.uid && self.hash == other.hash
    }
}

/// What a state means for the sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It has to hear of it.
    Tell(Operation),
    /// It has it, or has had it.
    Known,
    /// It has it. Other rules than before want to hear when it is gone.
    OtherRules,
    /// It does not have it, and a watch says so that another has taken the place of: the object has to
    /// be read, since it may have gone.
    Doubtful,
    /// It would have to hear of it, and there is no room: the area has to be looked at again.
    Missed,
}

/// What a complete list has left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Absent {
    /// Gone.
    pub gone: Vec<Gone>,
    /// Another watch has shown these since the list began, which may be from before: they have to be
    /// read.
    pub doubtful: Vec<(Arc<str>, Arc<str>)>,
}

/// An object that the sink has and that is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gone {
    /// Its namespace; empty for an object without one.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// [`State::on_delete`] of its last state.
    pub on_delete: RuleNames,
}

#[derive(Debug, Clone)]
struct Known {
    state: State,
    /// When it was seen last, by the mirror's own count.
    seen: u64,
}

/// What a sink is known to have of one area: all objects of a type in a namespace, or in the cluster.
/// See the module.
#[derive(Debug, Default)]
pub struct Mirror {
    known: HashMap<Key, Known>,
    /// Versions of what has been deleted while a list is under way that may still show it.
    tombstones: HashMap<Key, u64>,
    /// Lists under way, by watch, and the count when they began.
    lists: BTreeMap<u64, u64>,
    /// The newest watch that has listed everything; older ones may tell something yet.
    watch: u64,
    count: u64,
}

impl Mirror {
    /// A sink that has nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// What the sink had in an earlier life, which the next list is compared with. `state` has
    /// version 0.
    pub fn restore(&mut self, namespace: Arc<str>, name: Arc<str>, state: State) {
        let known = Known { state, seen: 0 };
        self.known.insert((namespace, name), known);
    }

    /// The mirror of another area takes over what the sink has in a namespace, or in all of them, as
    /// if it had just seen it.
    pub fn hand_over(&mut self, namespace: Option<&str>, to: &mut Self) {
        let inside = |(own, _): &Key| namespace.is_none_or(|namespace| *namespace == **own);
        for (key, known) in self.known.extract_if(|key, _| inside(key)) {
            to.count += 1;
            let seen = to.count;
            to.known.insert(key, Known { seen, ..known });
        }
    }

    /// How many objects the sink has.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether the sink has nothing.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// What the sink has: namespace, name and state.
    pub fn told(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>, &State)> {
        let all = self.known.iter();
        all.map(|((namespace, name), known)| (namespace, name, &known.state))
    }

    /// Whether the sink has this object.
    pub fn has(&self, namespace: &Arc<str>, name: &Arc<str>) -> bool {
        let key = (Arc::clone(namespace), Arc::clone(name));
        self.known.contains_key(&key)
    }

    /// A watch begins to list the area.
    pub fn listing(&mut self, watch: u64) {
        self.lists.insert(watch, self.count);
        while self.lists.len() > MOST_LISTS {
            self.lists.pop_first();
        }
    }

    /// An object has a state that rules want, as this watch or look says. `room` tells whether the
    /// sink can be told of one more.
    pub fn wanted(
        &mut self,
        watch: u64,
        namespace: &Arc<str>,
        name: &Arc<str>,
        state: State,
        room: bool,
    ) -> Verdict {
        let key = (Arc::clone(namespace), Arc::clone(name));
        if self.is_late(&key, state.version) {
            return Verdict::Known;
        }
        if watch < self.watch && !self.known.contains_key(&key) {
            return Verdict::Doubtful;
        }
        self.count += 1;
        let count = self.count;
        let known = Known { state, seen: count };
        match self.known.get_mut(&key) {
            None if room => {
                self.known.insert(key, known);
                Verdict::Tell(Operation::Create)
            }
            None => Verdict::Missed,
            Some(before) if before.state.is_like(&known.state) => {
                let other_rules = before.state.on_delete != known.state.on_delete;
                *before = known;
                if other_rules {
                    Verdict::OtherRules
                } else {
                    Verdict::Known
                }
            }
            Some(before) if room => {
                *before = known;
                Verdict::Tell(Operation::Update)
            }
            Some(before) => {
                before.seen = count;
                Verdict::Missed
            }
        }
    }

    /// An object has, in this version, gone, or is such that no rule wants it. If the sink has it,
    /// it has to hear of its end: gives back [`State::on_delete`].
    pub fn unwanted(
        &mut self,
        namespace: &Arc<str>,
        name: &Arc<str>,
        version: u64,
    ) -> Option<RuleNames> {
        let key = (Arc::clone(namespace), Arc::clone(name));
        if self.is_late(&key, version) {
            return None;
        }
        if !self.lists.is_empty() {
            self.tombstones.insert(key.clone(), version);
        }
        Some(self.known.remove(&key)?.state.on_delete)
    }

    /// A newer state of the object has been seen.
    fn is_late(&mut self, key: &Key, version: u64) -> bool {
        if self
            .tombstones
            .get(key)
            .is_some_and(|gone| version <= *gone)
        {
            return true;
        }
        let Some(known) = self.known.get_mut(key) else {
            return false;
        };
        let late = version < known.state.version;
        if late {
            self.count += 1;
            known.seen = self.count;
        }
        late
    }

    /// A watch has listed everything in the area, and `listed` says what that was.
    pub fn listed(&mut self, watch: u64, listed: impl Fn(&str, &str) -> bool) -> Absent {
        let mut absent = Absent::default();
        let Some(began) = self.lists.remove(&watch) else {
            return absent; // it began before anybody listened
        };
        if watch < FIRST_LOOK {
            self.watch = self.watch.max(watch);
        }
        self.known.retain(|(namespace, name), known| {
            if listed(namespace, name) {
                return true;
            }
            let (namespace, name) = (Arc::clone(namespace), Arc::clone(name));
            if known.seen > began {
                absent.doubtful.push((namespace, name));
                return true;
            }
            absent.gone.push(Gone {
                namespace,
                name,
                on_delete: Arc::clone(&known.state.on_delete),
            });
            false
        });
        if self.lists.is_empty() {
            self.tombstones.clear();
        }
        absent
            .gone
            .sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        absent.doubtful.sort();
        absent
    }

    /// Somebody has read an object, and it was not there. Gives back [`State::on_delete`], unless it
    /// has been seen meanwhile, that is after [`Mirror::count`] was `asked`.
    pub fn absent(
        &mut self,
        namespace: &Arc<str>,
        name: &Arc<str>,
        asked: u64,
    ) -> Option<RuleNames> {
        let key = (Arc::clone(namespace), Arc::clone(name));
        let unseen = self.known.get(&key)?.seen <= asked;
        let known = unseen.then(|| self.known.remove(&key))??;
        Some(known.state.on_delete)
    }

    /// How many states have been seen.
    pub const fn count(&self) -> u64 {
        self.count
    }
}
