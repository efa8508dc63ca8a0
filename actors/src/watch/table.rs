//! Which objects are asked for by whom, shared by those who ask and the watches that answer.
//!
//! Whoever wants to hear of an object subscribes here, before it reads the object, and is told of
//! every state from then on by whatever watch shows the object: its own, that of its namespace, or
//! that of the whole type. Which watches there are is decided by the
//! [`WatchSupervisor`](super::WatchSupervisor), and may change without any subscriber noticing.
//!
//! Whoever wants to hear of everything of a type in a namespace, or in the whole cluster, listens to
//! that [area](super::area) here, too, and shares the watches.
//!
//! Subscribers are called on the threads of the watches, so that an event which concerns nobody
//! costs a look into this table and no message.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use muster_core::watch_plan::{Place, Resource, Scope, WatchKey};
use tokio::sync::Notify;

use super::area::{Area, AreaListener, AreaSubscription, Areas, Listeners};
use super::object::WatchedObject;

/// Hears of one object. Called on worker threads, from several watches at a time while one takes
/// the place of another: states may come twice, and late.
pub trait Subscriber: Send + Sync + fmt::Debug {
    /// The object has, or had, this state.
    fn seen(&self, object: &Arc<WatchedObject>);
    /// The object is gone. Without its last state, a list did not name it: that may be a list from
    /// before it was created.
    fn gone(&self, last: Option<&Arc<WatchedObject>>);
    /// [`Subscription::coverage`] has another answer now, as far as users are told of it.
    fn coverage_changed(&self);
}

/// Identifies an object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ObjectPath {
    /// Its type.
    pub resource: Resource,
    /// Its namespace; empty for an object without one.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

impl ObjectPath {
    fn keys(&self) -> [WatchKey; 3] {
        let key = |scope| WatchKey {
            resource: self.resource.clone(),
            scope,
        };
        [
            key(Scope::Cluster),
            key(Scope::Namespace(Arc::clone(&self.namespace))),
            key(Scope::Object {
                namespace: Arc::clone(&self.namespace),
                name: Arc::clone(&self.name),
            }),
        ]
    }
}

/// How a subscriber hears of its object at present.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Coverage {
    /// Not yet, but it will.
    Opening,
    /// By a watch.
    Watched,
    /// Not at all: it has to look itself.
    Polled(Unwatched),
}

/// Why there is no watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unwatched {
    /// All watches that the agent may have, this many, serve others.
    Full(usize),
    /// The API server does not allow it; its words.
    Refused(Denial, Arc<str>),
    /// It has failed for a while and is retried; the first error.
    Failing(Arc<str>),
}

/// What the API server has against a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denial {
    /// The agent has no right to it.
    Forbidden,
    /// It does not have the type, or not any more.
    NotServed,
    /// The type cannot be listed, or not be watched.
    NotWatchable,
}

impl Denial {
    /// What the HTTP status code of an answer means; `None` for what another try may mend.
    pub(super) const fn of(code: u16) -> Option<Self> {
        match code {
            403 => Some(Self::Forbidden),
            404 => Some(Self::NotServed),
            405 => Some(Self::NotWatchable),
            _ => None,
        }
    }
}

/// For people, in a condition.
impl fmt::Display for Unwatched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(max) => write!(
                f,
                "polled instead of watched: all {max} watches of the agent (watch.max_watches) \
                 serve other objects"
            ),
            Self::Refused(_, why) => write!(f, "polled instead of watched: {why}"),
            Self::Failing(why) => write!(f, "polled instead of watched: the watch fails: {why}"),
        }
    }
}

/// What is known of a watch, by its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Cover {
    Watched,
    Unwatched(Unwatched),
}

pub(super) type Covers = HashMap<WatchKey, Cover>;

/// The objects of one namespace of a type.
#[derive(Debug)]
struct Namespace {
    since: u64,
    objects: HashMap<Arc<str>, Vec<Arc<dyn Subscriber>>>,
}

#[derive(Debug, Default)]
struct Table {
    types: HashMap<Resource, HashMap<Arc<str>, Namespace>>,
    areas: Areas,
    covers: Covers,
    /// Subscriptions so far, which orders them.
    count: u64,
    /// Objects whose watch has missed a change.
    mistrusted: Vec<ObjectPath>,
}

impl Table {
    fn coverage(covers: &Covers, path: &ObjectPath) -> Coverage {
        let mut unwatched = None;
        for key in path.keys() {
            match covers.get(&key) {
                Some(Cover::Watched) => return Coverage::Watched,
                Some(Cover::Unwatched(why)) => match &unwatched {
                    // A narrow watch that waits for room says more than a wide one that is refused.
                    Some(Unwatched::Full(_)) => {}
                    _ => unwatched = Some(why.clone()),
                },
                None => {}
            }
        }
        unwatched.map_or(Coverage::Opening, Coverage::Polled)
    }

    fn subscribers(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
    ) -> &[Arc<dyn Subscriber>] {
        let namespaces = self.types.get(resource);
        namespaces
            .and_then(|namespaces| namespaces.get(namespace)?.objects.get(name))
            .map_or(&[], Vec::as_slice)
    }

    /// Everybody whose object a watch shows.
    fn within<'a>(
        &'a self,
        key: &'a WatchKey,
    ) -> impl Iterator<Item = (&'a Arc<str>, &'a Arc<str>, &'a Vec<Arc<dyn Subscriber>>)> {
        let of_type = self.types.get(&key.resource);
        // Without a look at what lies elsewhere.
        let (all, one) = match &key.scope {
            Scope::Cluster => (of_type, None),
            Scope::Namespace(namespace) | Scope::Object { namespace, .. } => (
                None,
                of_type.and_then(|of_type| of_type.get_key_value(namespace)),
            ),
        };
        let namespaces = all.into_iter().flatten().chain(one);
        namespaces.flat_map(move |(namespace, of_namespace)| {
            let objects = &of_namespace.objects;
            let (all, one) = match &key.scope {
                Scope::Object { name, .. } => (None, objects.get_key_value(name)),
                Scope::Cluster | Scope::Namespace(_) => (Some(objects), None),
            };
            let objects = all.into_iter().flatten().chain(one);
            objects.map(move |(name, subscribers)| (namespace, name, subscribers))
        })
    }
}

/// The subscriptions of one agent.
#[derive(Debug, Default)]
pub struct Watches {
    table: Mutex<Table>,
    /// The wanted objects have changed.
    pub(super) changed: Notify,
}

impl Watches {
    /// No subscriptions yet.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells `subscriber` of an object until the returned subscription is dropped.
    pub fn subscribe(
        self: &Arc<Self>,
        mut path: ObjectPath,
        subscriber: Arc<dyn Subscriber>,
    ) -> Subscription {
        let mut table = self.lock();
        table.count += 1;
        let since = table.count;
        // The texts are kept once, however many objects there are.
        if let Some((resource, namespaces)) = table.types.get_key_value(&path.resource) {
            path.resource = resource.clone();
            if let Some((namespace, _)) = namespaces.get_key_value(&path.namespace) {
                path.namespace = Arc::clone(namespace);
            }
        }
        let namespaces = table.types.entry(path.resource.clone()).or_default();
        let namespace = namespaces.entry(Arc::clone(&path.namespace));
        let namespace = namespace.or_insert_with(|| Namespace {
            since,
            objects: HashMap::new(),
        });
        let news = if let Some(others) = namespace.objects.get_mut(&path.name) {
            others.push(Arc::clone(&subscriber));
            false
        } else {
            // Most objects have one subscriber: no room for more.
            let only = vec![Arc::clone(&subscriber)];
            namespace.objects.insert(Arc::clone(&path.name), only);
            true
        };
        drop(table);
        if news {
            self.changed.notify_one();
        }
        Subscription {
            watches: Arc::clone(self),
            path,
            subscriber,
        }
    }

    fn unsubscribe(&self, path: &ObjectPath, subscriber: &Arc<dyn Subscriber>) {
        let mut table = self.lock();
        let Some(namespaces) = table.types.get_mut(&path.resource) else {
            return;
        };
        let Some(namespace) = namespaces.get_mut(&path.namespace) else {
            return;
        };
        if let Some(subscribers) = namespace.objects.get_mut(&path.name) {
            subscribers.retain(|other| !Arc::ptr_eq(other, subscriber));
            if !subscribers.is_empty() {
                return;
            }
            namespace.objects.remove(&path.name);
        }
        if namespace.objects.is_empty() {
            namespaces.remove(&path.namespace);
        }
        if namespaces.is_empty() {
            table.types.remove(&path.resource);
        }
        drop(table);
        self.changed.notify_one();
    }

    /// Tells `listener` of everything in `area` until the returned subscription is dropped. It hears
    /// of a complete list before long, as soon as there is room for the watch.
    pub fn listen(
        self: &Arc<Self>,
        area: Area,
        listener: Arc<dyn AreaListener>,
    ) -> AreaSubscription {
        let mut table = self.lock();
        table.count += 1;
        let since = table.count;
        table.areas.add(&area, &listener, since);
        drop(table);
        self.changed.notify_one();
        AreaSubscription::new(Arc::clone(self), area, listener)
    }

    pub(super) fn end_listening(&self, area: &Area, listener: &Arc<dyn AreaListener>) {
        self.lock().areas.remove(area, listener);
        self.changed.notify_one();
    }

    pub(super) fn coverage_of(&self, area: &Area) -> Coverage {
        area.coverage(&self.lock().covers)
    }

    /// Areas to which somebody has begun to listen since the last time that this was asked: a watch
    /// that was there before has listed for others.
    pub(super) fn new_areas(&self) -> Vec<Area> {
        self.lock().areas.take_new()
    }

    /// Whether a watch shows something of an area to which somebody listens.
    pub(super) fn serves_area(&self, key: &WatchKey) -> bool {
        !self.lock().areas.of(key).is_empty()
    }

    /// What is wanted, for the plan; see [`Place::names`].
    pub(super) fn places(
        &self,
        widen_after: usize,
        refused: impl Fn(&WatchKey) -> bool,
    ) -> Vec<Place> {
        let table = self.lock();
        let mut places = table.areas.places();
        let whole: HashMap<(Resource, Arc<str>), usize> = places
            .iter()
            .enumerate()
            .map(|(index, place)| {
                (
                    (place.resource.clone(), Arc::clone(&place.namespace)),
                    index,
                )
            })
            .collect();
        for (resource, namespaces) in &table.types {
            for (namespace, of_namespace) in namespaces {
                let objects = of_namespace.objects.len();
                let mut place = Place {
                    resource: resource.clone(),
                    namespace: Arc::clone(namespace),
                    since: of_namespace.since,
                    objects,
                    names: Vec::new(),
                    whole: false,
                };
                let names = if refused(&place.wide()) {
                    objects
                } else {
                    widen_after.max(2)
                };
                place.names = of_namespace.objects.keys().take(names).cloned().collect();
                match whole.get(&(resource.clone(), Arc::clone(namespace))) {
                    // Objects without a namespace are in the place of the whole cluster.
                    Some(index) => {
                        place.whole = true;
                        place.since = place.since.min(places[*index].since);
                        places[*index] = place;
                    }
                    None => places.push(place),
                }
            }
        }
        places
    }

    /// Replaces what is known of the watches, and tells those who are watched no more, or again.
    pub(super) fn cover(&self, covers: Covers) {
        let mut guard = self.lock();
        let before = std::mem::replace(&mut guard.covers, covers);
        let table = &*guard;
        let listeners = table.areas.changed(&before, &table.covers);
        let told = |coverage| match coverage {
            Coverage::Polled(why) => Some(why),
            Coverage::Opening | Coverage::Watched => None,
        };
        let unwatched = |covers: &Covers| {
            let mut covers = covers.values();
            covers.any(|cover| matches!(cover, Cover::Unwatched(_)))
        };
        if !unwatched(&before) && !unwatched(&table.covers) {
            drop(guard);
            for listener in listeners {
                listener.coverage_changed();
            }
            return; // no subscriber was told, and there is nothing to tell
        }
        let keys: HashSet<_> = before.keys().chain(table.covers.keys()).collect();
        let changed = keys
            .into_iter()
            .filter(|key| before.get(key) != table.covers.get(key));
        let mut affected = Vec::new();
        for key in changed {
            for (namespace, name, subscribers) in table.within(key) {
                let path = ObjectPath {
                    resource: key.resource.clone(),
                    namespace: Arc::clone(namespace),
                    name: Arc::clone(name),
                };
                let was = told(Table::coverage(&before, &path));
                if was != told(Table::coverage(&table.covers, &path)) {
                    affected.extend(subscribers.iter().cloned());
                }
            }
        }
        let affected: Vec<Arc<dyn Subscriber>> = affected;
        drop(guard);
        for listener in listeners {
            listener.coverage_changed();
        }
        for subscriber in affected {
            subscriber.coverage_changed();
        }
    }

    /// Tells those who asked for it of a state of an object that a watch shows; says whether there are
    /// any.
    pub(super) fn seen(&self, resource: &Resource, watch: u64, object: WatchedObject) -> bool {
        let (subscribers, listeners) = self.who_wants(resource, &object);
        if subscribers.is_empty() && listeners.is_empty() {
            return false;
        }
        let object = Arc::new(object);
        for subscriber in subscribers {
            subscriber.seen(&object);
        }
        for listener in listeners {
            listener.seen(watch, &object);
        }
        true
    }

    /// Tells those who asked for it that an object was deleted; says whether there are any.
    pub(super) fn gone(&self, resource: &Resource, last: WatchedObject) -> bool {
        let (subscribers, listeners) = self.who_wants(resource, &last);
        if subscribers.is_empty() && listeners.is_empty() {
            return false;
        }
        let last = Arc::new(last);
        for subscriber in subscribers {
            subscriber.gone(Some(&last));
        }
        for listener in listeners {
            listener.gone(&last);
        }
        true
    }

    fn who_wants(
        &self,
        resource: &Resource,
        object: &WatchedObject,
    ) -> (Vec<Arc<dyn Subscriber>>, Listeners) {
        let (namespace, name) = (object.namespace(), object.name());
        let table = self.lock();
        let subscribers = table.subscribers(resource, namespace, name).to_vec();
        (subscribers, table.areas.around(resource, namespace))
    }

    /// A watch begins to list everything that it shows.
    pub(super) fn listing(&self, key: &WatchKey, watch: u64) {
        let listeners = self.lock().areas.within(key);
        for listener in listeners {
            listener.listing(watch);
        }
    }

    /// A list of everything that a watch shows named only these, as namespace and name.
    pub(super) fn listed(&self, key: &WatchKey, watch: u64, listed: &Listed) {
        let table = self.lock();
        let listeners = table.areas.within(key);
        let absent: Vec<_> = table
            .within(key)
            .filter(|(namespace, name, _)| !listed.holds(namespace, name))
            .flat_map(|(_, _, subscribers)| subscribers.iter().cloned())
            .collect();
        drop(table);
        for subscriber in absent {
            subscriber.gone(None);
        }
        for listener in listeners {
            listener.listed(watch, listed);
        }
    }

    /// Objects whose watch is not to be trusted, since the last time that this was asked.
    pub(super) fn mistrusted(&self) -> Vec<ObjectPath> {
        std::mem::take(&mut self.lock().mistrusted)
    }

    /// Whether anything of this type is wanted.
    pub(super) fn wants(&self, resource: &Resource) -> bool {
        let table = self.lock();
        table.types.contains_key(resource) || table.areas.has(resource)
    }

    /// How many objects are wanted.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        let table = self.lock();
        let namespaces = table.types.values().flat_map(HashMap::values);
        namespaces.map(|namespace| namespace.objects.len()).sum()
    }
}

/// The wanted objects that a list has named; where somebody listens to the area, all of it.
#[derive(Debug, Default)]
pub struct Listed(HashMap<Box<str>, HashSet<Box<str>>>);

impl Listed {
    pub(crate) fn add(&mut self, namespace: &str, name: &str) {
        if let Some(names) = self.0.get_mut(namespace) {
            names.insert(name.into());
        } else {
            self.0
                .insert(namespace.into(), HashSet::from([name.into()]));
        }
    }

    /// Whether the list has named this object.
    pub fn holds(&self, namespace: &str, name: &str) -> bool {
        self.0
            .get(namespace)
            .is_some_and(|names| names.contains(name))
    }
}

/// Being told of an object; ends when dropped.
#[derive(Debug)]
pub struct Subscription {
    watches: Arc<Watches>,
    path: ObjectPath,
    subscriber: Arc<dyn Subscriber>,
}

impl Subscription {
    /// What it is to.
    pub fn path(&self) -> &ObjectPath {
        &self.path
    }

    /// The subscriber has found out by itself what a watch should have shown: the watch may be
    /// dead without anybody knowing, and is replaced.
    pub fn mistrust(&self) {
        self.watches.lock().mistrusted.push(self.path.clone());
        self.watches.changed.notify_one();
    }

    /// How the subscriber hears of the object at present.
    pub fn coverage(&self) -> Coverage {
        Table::coverage(&self.watches.lock().covers, &self.path)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.watches.unsubscribe(&self.path, &self.subscriber);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes down what it hears.
    #[derive(Debug, Default)]
    struct Ear(Mutex<Vec<String>>);

    impl Ear {
        fn heard(&self) -> Vec<String> {
            std::mem::take(&mut *self.0.lock().unwrap())
        }

        fn note(&self, what: String) {
            self.0.lock().unwrap().push(what);
        }
    }

    impl Subscriber for Ear {
        fn seen(&self, object: &Arc<WatchedObject>) {
            self.note(format!("{} {}", object.name(), object.version()));
        }

        fn gone(&self, last: Option<&Arc<WatchedObject>>) {
            self.note(last.map_or("absent".to_owned(), |last| format!("{} gone", last.name())));
        }

        fn coverage_changed(&self) {
            self.note("coverage".to_owned());
        }
    }

    fn pods() -> Resource {
        Resource::new("", "v1", "pods")
    }

    fn path(namespace: &str, name: &str) -> ObjectPath {
        ObjectPath {
            resource: pods(),
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    fn key(scope: Scope) -> WatchKey {
        WatchKey {
            resource: pods(),
            scope,
        }
    }

    fn object(namespace: &str, name: &str, version: u64) -> WatchedObject {
        let json = serde_json::json!({"metadata": {
            "namespace": namespace, "name": name, "resourceVersion": version.to_string(),
        }});
        serde_json::from_str(&json.to_string()).unwrap()
    }

    fn ear() -> (Arc<Ear>, Arc<dyn Subscriber>) {
        let ear = Arc::new(Ear::default());
        (Arc::clone(&ear), ear)
    }

    #[test]
    fn everybody_hears_of_their_object_and_of_no_other() {
        let watches = Watches::new();
        let (a, as_a) = ear();
        let (b, as_b) = ear();
        let first = watches.subscribe(path("ns1", "x"), as_a);
        let _second = watches.subscribe(path("ns1", "x"), as_b);
        assert!(watches.seen(&pods(), 1, object("ns1", "x", 7)));
        assert!(!watches.seen(&pods(), 1, object("ns2", "x", 8)));
        assert!(!watches.seen(&Resource::new("", "v1", "nodes"), 1, object("ns1", "x", 8)));
        assert_eq!(a.heard(), ["x 7"]);
        assert_eq!(b.heard(), ["x 7"]);
        drop(first);
        assert!(watches.gone(&pods(), object("ns1", "x", 9)));
        assert_eq!(a.heard(), Vec::<String>::new());
        assert_eq!(b.heard(), ["x gone"]);
        assert!(watches.wants(&pods()));
    }

    #[test]
    fn what_nobody_wants_any_more_is_forgotten() {
        let watches = Watches::new();
        let subscription = watches.subscribe(path("ns1", "x"), ear().1);
        assert_eq!(watches.len(), 1);
        drop(subscription);
        assert_eq!(watches.len(), 0);
        assert!(!watches.wants(&pods()));
        assert!(!watches.gone(&pods(), object("ns1", "x", 1)));
        assert_eq!(watches.places(2, |_| false), []);
    }

    #[test]
    fn a_list_tells_of_what_it_does_not_name_within_its_scope() {
        let watches = Watches::new();
        let (x, as_x) = ear();
        let (y, as_y) = ear();
        let (other, as_other) = ear();
        let _all = [
            watches.subscribe(path("ns1", "x"), as_x),
            watches.subscribe(path("ns1", "y"), as_y),
            watches.subscribe(path("ns2", "x"), as_other),
        ];
        let mut listed = Listed::default();
        listed.add("ns1", "x");
        watches.listed(&key(Scope::Namespace("ns1".into())), 1, &listed);
        assert_eq!(x.heard(), Vec::<String>::new());
        assert_eq!(y.heard(), ["absent"]);
        assert_eq!(other.heard(), Vec::<String>::new());
        watches.listed(&key(Scope::Cluster), 1, &listed);
        assert_eq!(other.heard(), ["absent"]);
    }

    #[test]
    fn coverage_is_told_where_users_see_it() {
        let watches = Watches::new();
        let (x, as_x) = ear();
        let (other, as_other) = ear();
        let subscription = watches.subscribe(path("ns1", "x"), as_x);
        let elsewhere = watches.subscribe(path("ns2", "x"), as_other);
        let of_object = key(Scope::Object {
            namespace: "ns1".into(),
            name: "x".into(),
        });
        let wide = key(Scope::Cluster);
        assert_eq!(subscription.coverage(), Coverage::Opening);

        watches.cover(Covers::from([(of_object.clone(), Cover::Watched)]));
        assert_eq!(subscription.coverage(), Coverage::Watched);
        assert_eq!(x.heard(), Vec::<String>::new(), "as expected of it");

        let full = Unwatched::Full(1);
        let waits = Cover::Unwatched(full.clone());
        watches.cover(Covers::from([(of_object.clone(), waits.clone())]));
        assert_eq!(subscription.coverage(), Coverage::Polled(full));
        assert_eq!(x.heard(), ["coverage"]);
        watches.cover(Covers::from([(of_object.clone(), waits.clone())]));
        assert_eq!(x.heard(), Vec::<String>::new(), "nothing has changed");

        // A watch that shows it beats whatever is wrong with others.
        watches.cover(Covers::from([
            (of_object.clone(), waits),
            (wide.clone(), Cover::Watched),
        ]));
        assert_eq!(subscription.coverage(), Coverage::Watched);
        assert_eq!(x.heard(), ["coverage"]);
        assert_eq!(other.heard(), Vec::<String>::new());

        let refused = Unwatched::Refused(Denial::Forbidden, "pods is forbidden".into());
        watches.cover(Covers::from([(wide, Cover::Unwatched(refused))]));
        let Coverage::Polled(why) = elsewhere.coverage() else {
            panic!("{:?}", elsewhere.coverage());
        };
        assert_eq!(
            why.to_string(),
            "polled instead of watched: pods is forbidden"
        );
    }

    #[test]
    fn places_are_in_the_order_of_their_first_object() {
        let watches = Watches::new();
        let subscriptions: Vec<_> = [("b", "x"), ("a", "x"), ("b", "y"), ("b", "z")]
            .into_iter()
            .map(|(namespace, name)| watches.subscribe(path(namespace, name), ear().1))
            .collect();
        let mut places = watches.places(2, |_| false);
        places.sort_by_key(|place| place.since);
        let seen = |place: &Place| {
            (
                place.namespace.to_string(),
                place.objects,
                place.names.len(),
            )
        };
        let expected = [("b".to_owned(), 3, 2), ("a".to_owned(), 1, 1)];
        assert_eq!(places.iter().map(seen).collect::<Vec<_>>(), expected);
        // Without the wide watch each needs its own.
        let names: usize = watches
            .places(2, |_| true)
            .iter()
            .map(|place| place.names.len())
            .sum();
        assert_eq!(names, subscriptions.len());
    }
}
