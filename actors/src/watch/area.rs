//! Listening to everything of a type in one namespace, or in the whole cluster.
//!
//! Watch rules want what nobody has named: all objects of a type, those that are created later, and
//! what has vanished while nobody looked. A listener shares its watch with subscribers of single
//! objects and with other listeners, and keeps what it knows itself.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use muster_core::watch_plan::{Place, Resource, Scope, WatchKey};
use muster_core::watch_rules::StreamKey;

use super::object::WatchedObject;
use super::table::{Cover, Coverage, Covers, Listed, Unwatched, Watches};

/// Hears of everything in an area. Called on worker threads, from several watches at a time while
/// one takes the place of another: states may come twice, and late.
pub trait AreaListener: Send + Sync + fmt::Debug {
    /// A watch, by its number, begins to list; what it lists comes as [`AreaListener::seen`].
    fn listing(&self, watch: u64);
    /// An object has, or had, this state, as this watch shows.
    fn seen(&self, watch: u64, object: &Arc<WatchedObject>);
    /// An object is gone; its last state.
    fn gone(&self, last: &Arc<WatchedObject>);
    /// A watch has listed everything in the area, and nothing else was there. The list may be from
    /// before what another watch has shown meanwhile.
    fn listed(&self, watch: u64, listed: &Listed);
    /// [`AreaSubscription::coverage`] has another answer now.
    fn coverage_changed(&self);
}

/// Those who listen to an area.
pub(super) type Listeners = Vec<Arc<dyn AreaListener>>;

/// All objects of a type in one namespace, or in the whole cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Area {
    /// The type.
    pub resource: Resource,
    /// The namespace; `None`: the whole cluster.
    pub namespace: Option<Arc<str>>,
}

impl Area {
    fn scope(&self) -> Scope {
        match &self.namespace {
            Some(namespace) => Scope::Namespace(Arc::clone(namespace)),
            None => Scope::Cluster,
        }
    }

    /// Whether it has the objects of this namespace, which is empty for those without one.
    pub(crate) fn has(&self, namespace: &str) -> bool {
        let own = self.namespace.as_deref();
        own.is_none_or(|own| own == namespace)
    }

    /// Whether a watch shows everything in the area.
    pub(super) fn is_within(&self, key: &WatchKey) -> bool {
        key.resource == self.resource && key.scope.includes(&self.scope())
    }

    pub(super) fn coverage(&self, covers: &Covers) -> Coverage {
        let mut unwatched = None;
        for scope in [Scope::Cluster, self.scope()] {
            let key = WatchKey {
                resource: self.resource.clone(),
                scope,
            };
            match covers.get(&key) {
                Some(Cover::Watched) => return Coverage::Watched,
                // Where a wider one is refused, the area has its own.
                Some(Cover::Unwatched(Unwatched::Refused(..))) if key.scope != self.scope() => {}
                Some(Cover::Unwatched(why)) => match &unwatched {
                    // The watch of the area itself says more than one that is wider.
                    Some(Unwatched::Full(_)) => {}
                    _ => unwatched = Some(why.clone()),
                },
                None => {}
            }
        }
        unwatched.map_or(Coverage::Opening, Coverage::Polled)
    }
}

impl From<&StreamKey> for Area {
    fn from(stream: &StreamKey) -> Self {
        Self {
            resource: stream.resource.clone(),
            namespace: stream.namespace.clone(),
        }
    }
}

/// For people: `configmaps.v1 in ns1`.
impl fmt::Display for Area {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.resource, self.scope())
    }
}

#[derive(Debug)]
struct Entry {
    since: u64,
    listeners: Listeners,
}

/// The areas to which somebody listens, by type and namespace; the empty name stands for the whole
/// cluster.
#[derive(Debug, Default)]
pub(super) struct Areas {
    types: HashMap<Resource, HashMap<Arc<str>, Entry>>,
    new: Vec<Area>,
}

impl Areas {
    pub(super) fn add(&mut self, area: &Area, listener: &Arc<dyn AreaListener>, since: u64) {
        let namespaces = self.types.entry(area.resource.clone()).or_default();
        let namespace = area.namespace.clone().unwrap_or_default();
        let entry = namespaces.entry(namespace).or_insert_with(|| Entry {
            since,
            listeners: Vec::new(),
        });
        entry.listeners.push(Arc::clone(listener));
        self.new.push(area.clone());
    }

    pub(super) fn remove(&mut self, area: &Area, listener: &Arc<dyn AreaListener>) {
        let Some(namespaces) = self.types.get_mut(&area.resource) else {
            return;
        };
        let namespace: &str = area.namespace.as_deref().unwrap_or_default();
        if let Some(entry) = namespaces.get_mut(namespace) {
            entry
                .listeners
                .retain(|other| !Arc::ptr_eq(other, listener));
            if !entry.listeners.is_empty() {
                return;
            }
            namespaces.remove(namespace);
        }
        if namespaces.is_empty() {
            self.types.remove(&area.resource);
        }
    }

    pub(super) fn take_new(&mut self) -> Vec<Area> {
        std::mem::take(&mut self.new)
    }

    pub(super) fn has(&self, resource: &Resource) -> bool {
        self.types.contains_key(resource)
    }

    /// Areas of which a watch shows something.
    pub(super) fn of(&self, key: &WatchKey) -> Vec<Area> {
        let shows = |area: &Area| {
            let scope = area.scope();
            key.scope.includes(&scope) || scope.includes(&key.scope)
        };
        self.entries(&key.resource)
            .map(|(area, _)| area)
            .filter(shows)
            .collect()
    }

    /// Those who listen to where an object is.
    pub(super) fn around(&self, resource: &Resource, namespace: &str) -> Listeners {
        let Some(namespaces) = self.types.get(resource) else {
            return Vec::new();
        };
        let own = (!namespace.is_empty()).then(|| namespaces.get(namespace));
        let entries = namespaces.get("").into_iter().chain(own.flatten());
        entries
            .flat_map(|entry| entry.listeners.iter().cloned())
            .collect()
    }

    fn entries<'a>(&'a self, resource: &'a Resource) -> impl Iterator<Item = (Area, &'a Entry)> {
        let namespaces = self.types.get(resource).into_iter().flatten();
        namespaces.map(|(namespace, entry)| {
            let namespace = (!namespace.is_empty()).then(|| Arc::clone(namespace));
            let resource = resource.clone();
            (
                Area {
                    resource,
                    namespace,
                },
                entry,
            )
        })
    }

    /// Those to whom a watch shows everything that they listen to.
    pub(super) fn within(&self, key: &WatchKey) -> Listeners {
        self.entries(&key.resource)
            .filter(|(area, _)| area.is_within(key))
            .flat_map(|(_, entry)| entry.listeners.iter().cloned())
            .collect()
    }

    pub(super) fn places(&self) -> Vec<Place> {
        let of_type = self
            .types
            .keys()
            .flat_map(|resource| self.entries(resource));
        of_type
            .map(|(area, entry)| Place {
                resource: area.resource,
                namespace: area.namespace.unwrap_or_default(),
                since: entry.since,
                objects: 0,
                names: Vec::new(),
                whole: true,
            })
            .collect()
    }

    /// Those whose area is covered otherwise by `now` than it was by `before`.
    pub(super) fn changed(&self, before: &Covers, now: &Covers) -> Listeners {
        let of_type = self
            .types
            .keys()
            .flat_map(|resource| self.entries(resource));
        of_type
            .filter(|(area, _)| area.coverage(before) != area.coverage(now))
            .flat_map(|(_, entry)| entry.listeners.iter().cloned())
            .collect()
    }
}

/// Listening to an area; ends when dropped.
#[derive(Debug)]
pub struct AreaSubscription {
    watches: Arc<Watches>,
    area: Area,
    listener: Arc<dyn AreaListener>,
}

impl AreaSubscription {
    pub(super) fn new(watches: Arc<Watches>, area: Area, listener: Arc<dyn AreaListener>) -> Self {
        Self {
            watches,
            area,
            listener,
        }
    }

    /// How the listener hears of the area at present.
    pub fn coverage(&self) -> Coverage {
        self.watches.coverage_of(&self.area)
    }
}

impl Drop for AreaSubscription {
    fn drop(&mut self) {
        self.watches.end_listening(&self.area, &self.listener);
    }
}
