//! What one sink has, and what waits for it: shared by the watches, which add to it, and by the
//! sink's [`EventQueue`](super::EventQueue), which takes from it.
//!
//! Called on the threads of the watches, so it never waits: what finds no room is not remembered as
//! had, and the area is looked at again when there is room.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use muster_core::rule_events::{
    Event, Mirror, ObjectKey, Operation, Pending, Record, Room, RuleNames, State, Verdict,
};
use muster_core::watch_plan::Resource;
use muster_core::watch_rules::Interest;
use tokio::sync::Notify;

use super::memory::Told;
use super::metrics;
use crate::watch::{Area, Listed};

/// An object as the sink would have it.
#[derive(Debug)]
pub(super) struct Shown {
    pub(super) key: ObjectKey,
    pub(super) kind: Arc<str>,
    pub(super) state: State,
    pub(super) object: Arc<str>,
}

/// Something that has to be read before the sink can be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Doubt {
    pub(super) area: Area,
    pub(super) namespace: Arc<str>,
    pub(super) name: Arc<str>,
    /// What the mirror had counted when the doubt arose.
    pub(super) asked: u64,
}

/// An object in a version of its type that is not watched any more.
#[derive(Debug)]
struct Former {
    key: ObjectKey,
    on_delete: RuleNames,
}

#[derive(Debug)]
struct OutletState {
    mirrors: BTreeMap<Area, Mirror>,
    pending: Pending,
    /// Areas that have more than there was room for, in the order in which they are looked at.
    behind: VecDeque<Area>,
    /// The area that is being looked at because of that, and whether it has more once again.
    looked_at: Option<(Area, bool)>,
    doubts: VecDeque<Doubt>,
    /// Events of each rule so far, and when the last one was.
    counts: BTreeMap<Arc<str>, (u64, Timestamp)>,
    /// Why the sink does not take events.
    failing: Option<String>,
    /// What the sink had in an earlier life, of areas that no rule has wanted yet.
    remembered: Told,
    /// Objects that the sink has in a version of their type that is not watched any more, by their keys
    /// in the one that is: the end of the one is told before the begin of the other.
    moved: HashMap<ObjectKey, Former>,
    /// What is to be remembered of objects of which nothing waits.
    records: Vec<Record>,
}

impl OutletState {
    /// Has this remembered, after what waits for the object.
    fn note(&mut self, key: ObjectKey, has: Option<State>) {
        let record = self.pending.settle(Record { key, has });
        self.records.extend(record);
    }

    /// Areas of the same objects in another version of their type.
    fn in_other_versions(&self, of: &Resource) -> Vec<Area> {
        let is_other = |area: &&Area| {
            let other = &area.resource;
            of.group() == other.group()
                && of.resource() == other.resource()
                && of.version() != other.version()
        };
        self.mirrors.keys().filter(is_other).cloned().collect()
    }

    /// What the sink has of an object that no area has any more: it keeps it, unless it gets the
    /// object by this one, in another version of its type.
    fn left(&mut self, key: ObjectKey, on_delete: RuleNames, gets_it: Option<&Area>) {
        let Some(area) = gets_it else {
            self.note(key, None);
            return;
        };
        let now = ObjectKey {
            resource: area.resource.clone(),
            ..key.clone()
        };
        self.moved.insert(now, Former { key, on_delete });
    }

    fn is_behind(&mut self, area: &Area) {
        match &mut self.looked_at {
            // Not at once: what did not work a moment ago would not work now.
            Some((at, again)) if at == area => *again = true,
            _ if self.behind.contains(area) => {}
            _ => self.behind.push_back(area.clone()),
        }
    }
}

/// What a sink is told. See the module.
#[derive(Debug)]
pub(super) struct Outlet {
    cluster: Arc<str>,
    sink: Arc<str>,
    state: Mutex<OutletState>,
    /// There is something to do for the queue.
    pub(super) work: Notify,
    /// The sink has begun to fail, or ended it.
    changed: Arc<Notify>,
}

impl Outlet {
    /// `changed` is told when the sink begins to fail, and when it ends that.
    pub(super) fn new(
        cluster: impl Into<Arc<str>>,
        sink: impl Into<Arc<str>>,
        room: Room,
        changed: Arc<Notify>,
    ) -> Arc<Self> {
        let state = OutletState {
            mirrors: BTreeMap::new(),
            pending: Pending::new(room),
            behind: VecDeque::new(),
            looked_at: None,
            doubts: VecDeque::new(),
            counts: BTreeMap::new(),
            failing: None,
            remembered: Told::new(),
            moved: HashMap::new(),
            records: Vec::new(),
        };
        Arc::new(Self {
            cluster: cluster.into(),
            sink: sink.into(),
            state: Mutex::new(state),
            work: Notify::new(),
            changed,
        })
    }

    pub(super) const fn cluster(&self) -> &Arc<str> {
        &self.cluster
    }

    pub(super) const fn sink(&self) -> &Arc<str> {
        &self.sink
    }

    fn lock(&self) -> MutexGuard<'_, OutletState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the sink had in an earlier life. To be told before the first area is joined.
    pub(super) fn remember(&self, had: Told) {
        self.lock().remembered = had;
    }

    /// All areas that rules want have been joined: what is remembered of others is not wanted any more,
    /// or is gone with its type, if `is_served` says so.
    pub(super) fn forget_others(
        &self,
        is_served: impl Fn(&Resource) -> bool,
        is_rule: impl Fn(&str) -> bool,
    ) {
        let mut state = self.lock();
        let state = &mut *state;
        let remembered = std::mem::take(&mut state.remembered);
        let remembered: BTreeMap<_, _> = remembered.into_iter().collect();
        for (key, had) in remembered {
            let others = state.in_other_versions(&key.resource);
            let gets_it = others.iter().find(|area| area.has(&key.namespace));
            if gets_it.is_none() && !is_served(&key.resource) {
                let rules = had.on_delete.iter().filter(|rule| is_rule(rule));
                // Of what kind it was is not remembered.
                let event = end_of(key, &Arc::default(), 0, rules.cloned().collect());
                self.push(state, event);
            } else {
                state.left(key, had.on_delete, gets_it);
            }
        }
        let resources: BTreeSet<_> = state.moved.keys().map(|key| key.resource.clone()).collect();
        let areas = state.mirrors.keys();
        let areas = areas.filter(|area| resources.contains(&area.resource));
        for area in areas.cloned().collect::<Vec<_>>() {
            state.is_behind(&area);
        }
        self.work.notify_one();
    }

    /// Rules want something of this area.
    pub(super) fn join(&self, area: &Area) {
        let mut guard = self.lock();
        let state = &mut *guard;
        if state.mirrors.contains_key(area) {
            return;
        }
        let mut mirror = Mirror::new();
        let inside = |namespace: &Arc<str>| area.has(namespace);
        if let Some(wider) = wider(area).and_then(|it| state.mirrors.get_mut(&it)) {
            wider.hand_over(area.namespace.as_deref(), &mut mirror);
        }
        let wanted = |key: &ObjectKey| key.resource == area.resource && inside(&key.namespace);
        for (key, had) in state.remembered.extract_if(|key, _| wanted(key)) {
            mirror.restore(key.namespace, key.name, had);
        }
        state.mirrors.insert(area.clone(), mirror);
    }

    /// No rule wants anything by this area any more: what the sink has of it is another area's, or it
    /// keeps that and hears no more.
    pub(super) fn leave(&self, area: &Area) {
        self.leave_for(area, None);
    }

    /// The type of the area is not served any more: what the sink has of it and gets by no other area
    /// is gone. `wanted` is what rules wanted of the area.
    pub(super) fn end(&self, area: &Area, kind: &Arc<str>, wanted: &Interest) {
        self.leave_for(area, Some((kind, wanted)));
    }

    fn leave_for(&self, area: &Area, ended: Option<(&Arc<str>, &Interest)>) {
        let mut guard = self.lock();
        let state = &mut *guard;
        if let Some(mut mirror) = state.mirrors.remove(area) {
            if let Some(wide) = wider(area)
                && let Some(wider) = state.mirrors.get_mut(&wide)
            {
                mirror.hand_over(None, wider);
                // It has left alone whatever has happened there.
                state.is_behind(&wide);
            }
            let is_left = |key: &ObjectKey| {
                let mut others = state.mirrors.keys();
                key.resource == area.resource
                    && area.has(&key.namespace)
                    && !others.any(|it| it.resource == key.resource && it.has(&key.namespace))
            };
            let unseen = state.moved.extract_if(|key, _| is_left(key));
            for former in unseen.map(|(_, former)| former).collect::<Vec<_>>() {
                match ended {
                    Some((kind, wanted)) => {
                        let event = gone(former.key, kind, 0, &former.on_delete, wanted);
                        self.push(state, event);
                    }
                    None => state.note(former.key, None),
                }
            }
            let others = state.in_other_versions(&area.resource);
            let mut told: Vec<_> = mirror.told().collect();
            told.sort_by_key(|(namespace, name, _)| (*namespace, *name));
            for (namespace, name, had) in told {
                let key = ObjectKey {
                    resource: area.resource.clone(),
                    namespace: Arc::clone(namespace),
                    name: Arc::clone(name),
                };
                // A rule may name both versions, and then one of them no more.
                let gets_it = |area: &&Area| {
                    let mirror = state.mirrors.get(area);
                    area.has(namespace) && mirror.is_some_and(|it| !it.has(namespace, name))
                };
                match (others.iter().find(gets_it), ended) {
                    (None, Some((kind, wanted))) => {
                        let event = gone(key, kind, 0, &had.on_delete, wanted);
                        self.push(state, event);
                    }
                    (gets_it, _) => state.left(key, Arc::clone(&had.on_delete), gets_it),
                }
            }
            self.work.notify_one();
        }
        state.behind.retain(|other| other != area);
        state.doubts.retain(|doubt| doubt.area != *area);
    }

    pub(super) fn listing(&self, area: &Area, watch: u64) {
        if let Some(mirror) = self.lock().mirrors.get_mut(area) {
            mirror.listing(watch);
        }
    }

    /// An object has this state, in which these rules want it, as a watch or a look says.
    pub(super) fn wanted(&self, area: &Area, watch: u64, shown: Shown, interest: &Interest) {
        let mut state = self.lock();
        let state = &mut *state;
        let Some(mirror) = mirror_of(&mut state.mirrors, area, &shown.key) else {
            return;
        };
        let Shown {
            key,
            kind,
            state: seen,
            object,
        } = shown;
        let room = state.pending.has_room(&key, object.len());
        let verdict = mirror.wanted(watch, &key.namespace, &key.name, seen.clone(), room);
        let asked = mirror.count();
        if !matches!(verdict, Verdict::Missed | Verdict::Doubtful) {
            self.end_former(state, &key, &kind, interest);
        }
        match verdict {
            Verdict::Tell(operation) => {
                let event = Event {
                    sequence: 0,
                    key,
                    kind,
                    operation,
                    uid: Arc::clone(&seen.uid),
                    version: seen.version,
                    object: Some(object),
                    rules: Arc::clone(interest.of(operation)),
                    has: Some(seen),
                    seen: Timestamp::now(),
                };
                self.push(state, event);
            }
            Verdict::Known => metrics::event(self, None, "known"),
            Verdict::OtherRules => {
                metrics::event(self, None, "known");
                state.note(key, Some(seen));
                self.work.notify_one();
            }
            Verdict::Doubtful => {
                state.doubts.push_back(Doubt {
                    area: area.clone(),
                    namespace: key.namespace,
                    name: key.name,
                    asked,
                });
                self.work.notify_one();
            }
            Verdict::Missed => {
                metrics::event(self, None, "missed");
                state.is_behind(area);
                self.work.notify_one();
            }
        }
    }

    /// An object has gone in this version, or no rule wants it any more. `wanted` is what rules want
    /// of the area now: one that has gone hears of nothing, and the sink keeps what it has by it.
    pub(super) fn unwanted(
        &self,
        area: &Area,
        key: ObjectKey,
        kind: &Arc<str>,
        version: u64,
        wanted: &Interest,
    ) {
        let mut state = self.lock();
        let state = &mut *state;
        let Some(mirror) = mirror_of(&mut state.mirrors, area, &key) else {
            return;
        };
        let rules = mirror.unwanted(&key.namespace, &key.name, version);
        self.end_former(state, &key, kind, wanted);
        if let Some(rules) = rules {
            self.push(state, gone(key, kind, version, &rules, wanted));
        }
    }

    /// Tells of the end of an object in a version of its type that is not watched any more.
    fn end_former(
        &self,
        state: &mut OutletState,
        key: &ObjectKey,
        kind: &Arc<str>,
        wanted: &Interest,
    ) {
        if let Some(Former { key, on_delete }) = state.moved.remove(key) {
            self.push(state, gone(key, kind, 0, &on_delete, wanted));
        }
    }

    /// A watch has listed all of an area; `wanted` is as in [`Outlet::unwanted`].
    pub(super) fn listed(
        &self,
        area: &Area,
        watch: u64,
        listed: &Listed,
        kind: &Arc<str>,
        wanted: &Interest,
    ) {
        let mut state = self.lock();
        let state = &mut *state;
        let Some(mirror) = state.mirrors.get_mut(area) else {
            return;
        };
        let absent = mirror.listed(watch, |namespace, name| listed.holds(namespace, name));
        let asked = mirror.count();
        for it in absent.gone {
            let key = ObjectKey {
                resource: area.resource.clone(),
                namespace: it.namespace,
                name: it.name,
            };
            self.push(state, gone(key, kind, 0, &it.on_delete, wanted));
        }
        let unlisted = |key: &ObjectKey| {
            key.resource == area.resource
                && area.has(&key.namespace)
                && !listed.holds(&key.namespace, &key.name)
        };
        let unlisted: Vec<ObjectKey> = state
            .moved
            .keys()
            .filter(|it| unlisted(it))
            .cloned()
            .collect();
        for key in unlisted {
            self.end_former(state, &key, kind, wanted);
        }
        if !absent.doubtful.is_empty() {
            let doubts = absent.doubtful.into_iter().map(|(namespace, name)| Doubt {
                area: area.clone(),
                namespace,
                name,
                asked,
            });
            state.doubts.extend(doubts);
            self.work.notify_one();
        }
    }

    /// Somebody has read an object that was in doubt, and it was not there; `wanted` is as in
    /// [`Outlet::unwanted`].
    pub(super) fn absent(&self, doubt: &Doubt, kind: &Arc<str>, wanted: &Interest) {
        let mut state = self.lock();
        let state = &mut *state;
        let Some(mirror) = state.mirrors.get_mut(&doubt.area) else {
            return;
        };
        if let Some(rules) = mirror.absent(&doubt.namespace, &doubt.name, doubt.asked) {
            let key = ObjectKey {
                resource: doubt.area.resource.clone(),
                namespace: Arc::clone(&doubt.namespace),
                name: Arc::clone(&doubt.name),
            };
            self.push(state, gone(key, kind, 0, &rules, wanted));
        }
    }

    fn push(&self, state: &mut OutletState, event: Event) {
        if event.rules.is_empty() {
            metrics::event(self, Some(event.operation), "filtered");
            state.note(event.key, event.has);
            self.work.notify_one();
            return;
        }
        metrics::event(self, Some(event.operation), "queued");
        for rule in event.rules.iter() {
            if let Some((count, last)) = state.counts.get_mut(rule) {
                (*count, *last) = (*count + 1, event.seen);
            } else {
                state.counts.insert(Arc::clone(rule), (1, event.seen));
            }
        }
        state.pending.push(event);
        metrics::queue(self, &state.pending);
        self.work.notify_one();
    }

    /// The next events for the sink.
    pub(super) fn take(&self, events: usize, bytes: usize) -> Vec<Event> {
        self.lock().pending.take(events, bytes)
    }

    /// Whether there is something to be remembered although nothing waits.
    pub(super) fn has_records(&self) -> bool {
        !self.lock().records.is_empty()
    }

    /// The sink has what was taken, up to the event with this sequence: what is to be remembered now,
    /// in order.
    pub(super) fn delivered(&self, last: u64) -> Vec<Record> {
        let mut state = self.lock();
        let mut records = std::mem::take(&mut state.records);
        records.extend(state.pending.done(last));
        metrics::queue(self, &state.pending);
        records
    }

    /// The sink does not have what was taken, and is given it again.
    pub(super) fn not_delivered(&self) {
        let mut state = self.lock();
        state.pending.again();
        metrics::queue(self, &state.pending);
    }

    /// Doubts, oldest first.
    pub(super) fn doubts(&self) -> Vec<Doubt> {
        self.lock().doubts.drain(..).collect()
    }

    /// An area that has more than there was room for, now that there is.
    pub(super) fn behind(&self) -> Option<Area> {
        let mut state = self.lock();
        if !state.pending.has_ease() {
            return None;
        }
        let area = state.behind.pop_front()?;
        state.looked_at = Some((area.clone(), false));
        Some(area)
    }

    /// [`Outlet::behind`]'s area has been looked at, and all of it was seen if `whole`. Gives it back
    /// if it has to be looked at once more.
    pub(super) fn looked(&self, whole: bool) -> Option<Area> {
        let (area, again) = self.lock().looked_at.take()?;
        (again || !whole).then_some(area)
    }

    /// It has to be looked at again.
    pub(super) fn is_behind(&self, area: &Area) {
        let mut state = self.lock();
        if state.mirrors.contains_key(area) {
            state.is_behind(area);
            self.work.notify_one();
        }
    }

    /// Why the sink does not take events; `None` while it does.
    pub(super) fn failing(&self) -> Option<String> {
        self.lock().failing.clone()
    }

    pub(super) fn set_failing(&self, failing: Option<String>) {
        let changed = {
            let mut state = self.lock();
            let changed = state.failing != failing;
            state.failing = failing;
            changed
        };
        if changed {
            self.changed.notify_one();
        }
    }

    /// The sink has nothing any more: it is told everything that is there as new. Nothing waits then,
    /// nor is anything remembered as had.
    pub(super) fn tell_anew(&self) {
        let mut guard = self.lock();
        let state = &mut *guard;
        state.pending.clear();
        state.doubts.clear();
        for (_, former) in std::mem::take(&mut state.moved) {
            state.note(former.key, None);
        }
        for (area, mirror) in &mut state.mirrors {
            let had = std::mem::take(mirror);
            let records = had.told().map(|(namespace, name, _)| Record {
                key: ObjectKey {
                    resource: area.resource.clone(),
                    namespace: Arc::clone(namespace),
                    name: Arc::clone(name),
                },
                has: None,
            });
            state.records.extend(records);
        }
        let areas: Vec<Area> = state.mirrors.keys().cloned().collect();
        for area in areas {
            state.is_behind(&area);
        }
        metrics::queue(self, &state.pending);
        self.work.notify_one();
    }

    /// Events that wait.
    pub(super) fn waiting(&self) -> usize {
        self.lock().pending.len()
    }

    /// Whether less than half of the room is taken.
    pub(super) fn has_ease(&self) -> bool {
        self.lock().pending.has_ease()
    }

    /// How many objects the sink has, and areas that are behind.
    pub(super) fn sizes(&self) -> (usize, usize) {
        let state = self.lock();
        let objects = state.mirrors.values().map(Mirror::len).sum();
        (objects, state.behind.len())
    }

    /// Events of a rule so far, and when the last one was.
    pub(super) fn count_of(&self, rule: &str) -> (u64, Option<Timestamp>) {
        let state = self.lock();
        let count = state.counts.get(rule);
        count.map_or((0, None), |(count, last)| (*count, Some(*last)))
    }

    /// There are only these rules: how many events others had is forgotten.
    pub(super) fn count_only(&self, rules: &BTreeSet<String>) {
        let mut state = self.lock();
        state.counts.retain(|rule, _| rules.contains(&**rule));
    }
}

/// The area of the whole cluster that this one is a part of.
fn wider(area: &Area) -> Option<Area> {
    area.namespace.as_ref()?;
    Some(Area {
        resource: area.resource.clone(),
        namespace: None,
    })
}

/// What the sink has of an area to which this object belongs. A sink that hears of the object's
/// namespace by an area of its own hears nothing of it by the cluster's.
fn mirror_of<'a>(
    mirrors: &'a mut BTreeMap<Area, Mirror>,
    area: &Area,
    key: &ObjectKey,
) -> Option<&'a mut Mirror> {
    if area.namespace.is_none() {
        let narrow = Area {
            resource: area.resource.clone(),
            namespace: Some(Arc::clone(&key.namespace)),
        };
        if mirrors.contains_key(&narrow) {
            return None;
        }
    }
    mirrors.get_mut(area)
}

/// The end of an object, for those of these rules that still want to hear of it.
fn gone(
    key: ObjectKey,
    kind: &Arc<str>,
    version: u64,
    rules: &RuleNames,
    wanted: &Interest,
) -> Event {
    let now = wanted.of(Operation::Delete);
    let rules = if rules == now {
        Arc::clone(now)
    } else {
        let still = rules.iter().filter(|rule| now.contains(rule));
        still.cloned().collect()
    };
    end_of(key, kind, version, rules)
}

/// The end of an object, for these rules.
fn end_of(key: ObjectKey, kind: &Arc<str>, version: u64, rules: RuleNames) -> Event {
    Event {
        sequence: 0,
        key,
        kind: Arc::clone(kind),
        operation: Operation::Delete,
        uid: Arc::default(),
        version,
        object: None,
        rules,
        has: None,
        seen: Timestamp::now(),
    }
}
