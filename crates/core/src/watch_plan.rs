//! Which watches an agent opens for the objects that are to be watched, under a cap.
//!
//! A watch costs a request that stays open, whatever it serves, so few wide ones beat many narrow
//! ones. But a wide watch sends what nobody asked for. The plan therefore takes
//!
//! 1. for a single object a watch of its own;
//! 2. from [`WatchLimits::widen_after`] objects of a type in one namespace on, one of the namespace;
//! 3. one of the whole cluster only for a type that is watched in several places, and only as long
//!    as there would otherwise be more watches than [`WatchLimits::max_watches`];
//! 4. where everything in a place is wanted ([`Place::whole`]), one of that place, whatever it holds:
//!    what is to be created has no name yet.
//!
//! Scopes that the agent may not watch are avoided: a wide one falls back to narrower ones. What
//! does not fit waits; a watch that is open is not taken away for one that waits, and among those
//! that wait the longest goes first.
//!
//! ```
//! use std::collections::BTreeSet;
//! use muster_core::watch_plan::{Place, Resource, Scope, WatchKey, WatchLimits, plan};
//!
//! let pods = Resource::new("", "v1", "pods");
//! let place = |namespace: &str, name: &str| Place {
//!     resource: pods.clone(),
//!     namespace: namespace.into(),
//!     since: 1,
//!     objects: 1,
//!     names: vec![name.into()],
//!     whole: false,
//! };
//! let places = [place("a", "web"), place("b", "web")];
//! let limits = WatchLimits { max_watches: 1, ..WatchLimits::default() };
//! let plan = plan(&places, limits, &BTreeSet::new(), |_| false);
//! assert_eq!(plan.watches, [WatchKey { resource: pods, scope: Scope::Cluster }]);
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// A type of objects, as its path names it. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource(Arc<ResourceParts>);

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct ResourceParts {
    group: String,
    resource: String,
    version: String,
}

impl Resource {
    /// A type by API group (empty for the core group), API version and resource name in plural.
    pub fn new(
        group: impl Into<String>,
        version: impl Into<String>,
        resource: impl Into<String>,
    ) -> Self {
        Self(Arc::new(ResourceParts {
            group: group.into(),
            version: version.into(),
            resource: resource.into(),
        }))
    }

    /// API group; empty for the core group.
    pub fn group(&self) -> &str {
        &self.0.group
    }

    /// API version.
    pub fn version(&self) -> &str {
        &self.0.version
    }

    /// Resource name in plural.
    pub fn resource(&self) -> &str {
        &self.0.resource
    }
}

/// For people: `deployments.v1.apps`, `configmaps.v1`.
impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (resource, version, group) = (self.resource(), self.version(), self.group());
        if group.is_empty() {
            write!(f, "{resource}.{version}")
        } else {
            write!(f, "{resource}.{version}.{group}")
        }
    }
}

/// Which objects of a type a watch shows.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// All.
    Cluster,
    /// Those of one namespace.
    Namespace(Arc<str>),
    /// One.
    Object {
        /// Its namespace; empty for an object without one.
        namespace: Arc<str>,
        /// Its name.
        name: Arc<str>,
    },
}

impl Scope {
    /// Whether the watch shows this object.
    pub fn covers(&self, namespace: &str, name: &str) -> bool {
        match self {
            Self::Cluster => true,
            Self::Namespace(own) => **own == *namespace,
            Self::Object {
                namespace: own,
                name: only,
            } => **own == *namespace && **only == *name,
        }
    }

    /// Whether the watch shows everything that the other one shows.
    pub fn includes(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Cluster, _) => true,
            (_, Self::Cluster) => false,
            (Self::Namespace(own), Self::Namespace(namespace) | Self::Object { namespace, .. }) => {
                own == namespace
            }
            (Self::Object { .. }, _) => self == other,
        }
    }
}

/// For people: `in all namespaces`, `in ns1`, `ns1/web`.
impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster => f.write_str("in the whole cluster"),
            Self::Namespace(namespace) => write!(f, "in {namespace}"),
            Self::Object { namespace, name } if namespace.is_empty() => f.write_str(name),
            Self::Object { namespace, name } => write!(f, "{namespace}/{name}"),
        }
    }
}

/// One watch.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchKey {
    /// What it watches.
    pub resource: Resource,
    /// Where.
    pub scope: Scope,
}

/// For people: `deployments.v1.apps in ns1`.
impl fmt::Display for WatchKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.resource, self.scope)
    }
}

/// The objects of one type that are to be watched in one namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Their type.
    pub resource: Resource,
    /// Their namespace; empty for objects without one, and for those of all namespaces where the
    /// place is `whole`.
    pub namespace: Arc<str>,
    /// When the first of them was asked for; only the order counts.
    pub since: u64,
    /// How many there are.
    pub objects: usize,
    /// Their names; may be cut short where `objects` exceeds [`WatchLimits::widen_after`], unless
    /// the wide watch is refused.
    pub names: Vec<Arc<str>>,
    /// Everything in the place is wanted, also what is created later.
    pub whole: bool,
}

impl Place {
    /// The watch of the whole place.
    pub fn wide(&self) -> WatchKey {
        let scope = if self.namespace.is_empty() {
            Scope::Cluster
        } else {
            Scope::Namespace(Arc::clone(&self.namespace))
        };
        self.key(scope)
    }

    fn key(&self, scope: Scope) -> WatchKey {
        WatchKey {
            resource: self.resource.clone(),
            scope,
        }
    }
}

/// What an operator sets about watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchLimits {
    /// Most watches of the agent at the cluster's API server. Upstream: `--max-feedback-watch`.
    pub max_watches: usize,
    /// Objects of a type in one namespace from which on they share a watch; at least 1.
    pub widen_after: usize,
}

impl Default for WatchLimits {
    fn default() -> Self {
        Self {
            max_watches: 50,
            widen_after: 2,
        }
    }
}

/// What to watch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WatchPlan {
    /// Watches to have, those that are open first, then by how long they have been waited for.
    pub watches: Vec<WatchKey>,
    /// Watches that would be had if there were room, in the order of their turns.
    pub waiting: Vec<WatchKey>,
}

/// A watch that would serve its objects.
#[derive(Debug)]
struct Candidate {
    key: WatchKey,
    since: u64,
}

/// The candidates of one type.
#[derive(Debug, Default)]
struct OfType {
    narrow: Vec<Candidate>,
    /// One for the whole cluster takes their place.
    wide: bool,
}

impl OfType {
    fn len(&self) -> usize {
        if self.wide { 1 } else { self.narrow.len() }
    }

    /// Whether one watch could take the place of several.
    fn can_widen(&self, resource: &Resource, refused: &impl Fn(&WatchKey) -> bool) -> bool {
        !self.wide && self.narrow.len() > 1 && !refused(&cluster_wide(resource))
    }
}

fn cluster_wide(resource: &Resource) -> WatchKey {
    WatchKey {
        resource: resource.clone(),
        scope: Scope::Cluster,
    }
}

/// Plans the watches for these places; each type and namespace is to occur once.
///
/// `open` are the watches there are, `refused` says which ones the cluster does not allow. The same
/// input gives the same plan, and the cost grows with the places, not with their objects.
pub fn plan(
    places: &[Place],
    limits: WatchLimits,
    open: &BTreeSet<WatchKey>,
    refused: impl Fn(&WatchKey) -> bool,
) -> WatchPlan {
    let mut types: BTreeMap<&Resource, OfType> = BTreeMap::new();
    for place in places {
        let of_type = types.entry(&place.resource).or_default();
        let wide = place.whole && place.wide().scope == Scope::Cluster;
        of_type.wide |= wide && !refused(&cluster_wide(&place.resource));
        of_type
            .narrow
            .extend(candidates(place, limits, open, &refused));
    }
    widen(&mut types, limits.max_watches, open, &refused);

    let mut candidates: Vec<_> = types
        .into_iter()
        .flat_map(|(resource, of_type)| {
            if of_type.wide {
                let since = of_type.narrow.iter().map(|narrow| narrow.since).min();
                vec![Candidate {
                    key: cluster_wide(resource),
                    since: since.unwrap_or_default(),
                }]
            } else {
                of_type.narrow
            }
        })
        .collect();
    candidates.sort_by_cached_key(|candidate| {
        let open = open.contains(&candidate.key);
        (!open, candidate.since, candidate.key.clone())
    });
    let mut watches: Vec<_> = candidates.into_iter().map(|narrow| narrow.key).collect();
    let waiting = watches.split_off(watches.len().min(limits.max_watches));
    WatchPlan { watches, waiting }
}

/// The narrowest watches for the objects of a place.
fn candidates(
    place: &Place,
    limits: WatchLimits,
    open: &BTreeSet<WatchKey>,
    refused: &impl Fn(&WatchKey) -> bool,
) -> Vec<Candidate> {
    let wide = place.wide();
    // A watch of a namespace that is there already serves a single object as well as a new one
    // would. One of the cluster is not kept for that.
    let kept = wide.scope != Scope::Cluster && open.contains(&wide);
    let enough = place.objects >= limits.widen_after.max(1);
    // With `widen_after = 1` a single object without a namespace would take all of its type.
    let single_of_cluster = wide.scope == Scope::Cluster && place.objects < 2;
    let several = place.objects > 0 && (enough && !single_of_cluster || kept);
    if (place.whole || several) && !refused(&wide) {
        return vec![Candidate {
            key: wide,
            since: place.since,
        }];
    }
    let of_object = |name: &Arc<str>| {
        place.key(Scope::Object {
            namespace: Arc::clone(&place.namespace),
            name: Arc::clone(name),
        })
    };
    place
        .names
        .iter()
        .map(of_object)
        .filter(|key| !refused(key))
        .map(|key| Candidate {
            key,
            since: place.since,
        })
        .collect()
}

/// Lets types take one watch of the cluster until the rest fits.
fn widen(
    types: &mut BTreeMap<&Resource, OfType>,
    max_watches: usize,
    open: &BTreeSet<WatchKey>,
    refused: &impl Fn(&WatchKey) -> bool,
) {
    let mut total: usize = types.values().map(OfType::len).sum();
    // What is wide stays so until there is some air, else one object that comes and goes would
    // have it opened and closed each time.
    let air = max_watches - max_watches / 4;
    for (resource, of_type) in types.iter_mut() {
        if total > air
            && open.contains(&cluster_wide(resource))
            && of_type.can_widen(resource, refused)
        {
            total -= of_type.len() - 1;
            of_type.wide = true;
        }
    }
    while total > max_watches {
        // The type with the most watches gives the most room; the first of several.
        let most = types
            .iter_mut()
            .filter(|(resource, of_type)| of_type.can_widen(resource, refused))
            .max_by(|(a_name, a), (b_name, b)| a.len().cmp(&b.len()).then(b_name.cmp(a_name)));
        let Some((_, of_type)) = most else { return };
        total -= of_type.len() - 1;
        of_type.wide = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployments() -> Resource {
        Resource::new("apps", "v1", "deployments")
    }

    fn pods() -> Resource {
        Resource::new("", "v1", "pods")
    }

    fn nodes() -> Resource {
        Resource::new("", "v1", "nodes")
    }

    fn place(resource: &Resource, namespace: &str, since: u64, names: &[&str]) -> Place {
        Place {
            resource: resource.clone(),
            namespace: namespace.into(),
            since,
            objects: names.len(),
            names: names.iter().map(|name| (*name).into()).collect(),
            whole: false,
        }
    }

    fn whole(resource: &Resource, namespace: &str, since: u64) -> Place {
        Place {
            whole: true,
            ..place(resource, namespace, since, &[])
        }
    }

    fn limits(max_watches: usize) -> WatchLimits {
        WatchLimits {
            max_watches,
            widen_after: 2,
        }
    }

    fn texts(keys: &[WatchKey]) -> Vec<String> {
        keys.iter().map(ToString::to_string).collect()
    }

    fn fresh(places: &[Place], max_watches: usize) -> WatchPlan {
        plan(places, limits(max_watches), &BTreeSet::new(), |_| false)
    }

    #[test]
    fn a_place_of_which_everything_is_wanted_has_its_watch_whatever_it_holds() {
        let empty = fresh(&[whole(&pods(), "a", 1)], 10);
        assert_eq!(texts(&empty.watches), ["pods.v1 in a"]);
        let one = Place {
            whole: true,
            ..place(&pods(), "a", 1, &["web"])
        };
        assert_eq!(fresh(&[one], 10).watches, empty.watches);
        // One of the cluster serves the places in it, too.
        let all = [
            place(&pods(), "a", 1, &["web"]),
            whole(&pods(), "b", 2),
            whole(&pods(), "", 3),
            place(&deployments(), "a", 4, &["web"]),
        ];
        let shared = fresh(&all, 10);
        let expected = ["pods.v1 in the whole cluster", "deployments.v1.apps a/web"];
        assert_eq!(texts(&shared.watches), expected);
    }

    #[test]
    fn a_whole_place_that_may_not_be_watched_leaves_its_objects_theirs() {
        let denied = |key: &WatchKey| matches!(key.scope, Scope::Cluster | Scope::Namespace(_));
        let all = [
            Place {
                whole: true,
                ..place(&pods(), "a", 1, &["web"])
            },
            whole(&pods(), "", 2),
        ];
        let plan = plan(&all, limits(10), &BTreeSet::new(), denied);
        assert_eq!(texts(&plan.watches), ["pods.v1 a/web"]);
    }

    #[test]
    fn whole_places_wait_for_room_as_others_do() {
        let all = [
            place(&deployments(), "a", 1, &["web"]),
            whole(&pods(), "a", 2),
            whole(&nodes(), "", 3),
        ];
        let plan = fresh(&all, 2);
        assert_eq!(
            texts(&plan.watches),
            ["deployments.v1.apps a/web", "pods.v1 in a"]
        );
        assert_eq!(texts(&plan.waiting), ["nodes.v1 in the whole cluster"]);
    }

    #[test]
    fn one_object_is_watched_alone_and_two_share_the_watch_of_their_namespace() {
        let one = fresh(&[place(&deployments(), "a", 1, &["web"])], 10);
        assert_eq!(texts(&one.watches), ["deployments.v1.apps a/web"]);
        let two = fresh(&[place(&deployments(), "a", 1, &["web", "db"])], 10);
        assert_eq!(texts(&two.watches), ["deployments.v1.apps in a"]);
        let thousands = Place {
            objects: 5_000,
            ..place(&deployments(), "a", 1, &["web"])
        };
        assert_eq!(fresh(&[thousands], 10).watches, two.watches);
    }

    #[test]
    fn objects_without_a_namespace_share_the_watch_of_their_type() {
        let one = fresh(&[place(&nodes(), "", 1, &["n1"])], 10);
        assert_eq!(texts(&one.watches), ["nodes.v1 n1"]);
        let two = fresh(&[place(&nodes(), "", 1, &["n1", "n2"])], 10);
        assert_eq!(texts(&two.watches), ["nodes.v1 in the whole cluster"]);
    }

    #[test]
    fn a_single_object_never_takes_the_whole_cluster() {
        let nodes = place(&nodes(), "", 1, &["n1"]);
        let eager = WatchLimits {
            max_watches: 1,
            widen_after: 1,
        };
        let open = BTreeSet::from([nodes.wide()]);
        for open in [BTreeSet::new(), open] {
            let plan = plan(std::slice::from_ref(&nodes), eager, &open, |_| false);
            assert_eq!(texts(&plan.watches), ["nodes.v1 n1"]);
        }
        let pod = place(&pods(), "a", 1, &["p"]);
        let open = BTreeSet::from([cluster_wide(&pods())]);
        let plan = plan(&[pod], limits(1), &open, |_| false);
        assert_eq!(texts(&plan.watches), ["pods.v1 a/p"]);
    }

    #[test]
    fn the_cluster_is_watched_only_when_the_rest_would_not_fit() {
        let places = [
            place(&pods(), "a", 1, &["p"]),
            place(&pods(), "b", 2, &["p"]),
            place(&pods(), "c", 3, &["p", "q"]),
            place(&deployments(), "a", 4, &["d"]),
            place(&deployments(), "b", 5, &["d"]),
        ];
        let all = fresh(&places, 5);
        assert_eq!(all.watches.len(), 5);
        let tight = fresh(&places, 4);
        assert_eq!(
            texts(&tight.watches),
            [
                "pods.v1 in the whole cluster",
                "deployments.v1.apps a/d",
                "deployments.v1.apps b/d"
            ]
        );
        let least = fresh(&places, 2);
        assert_eq!(
            texts(&least.watches),
            [
                "pods.v1 in the whole cluster",
                "deployments.v1.apps in the whole cluster"
            ]
        );
        assert!(least.waiting.is_empty());
        let less = fresh(&places, 1);
        assert_eq!(texts(&less.watches), ["pods.v1 in the whole cluster"]);
        assert_eq!(
            texts(&less.waiting),
            ["deployments.v1.apps in the whole cluster"]
        );
        assert!(fresh(&places, 0).watches.is_empty());
    }

    #[test]
    fn a_freed_slot_goes_to_the_longest_waiting_and_no_open_watch_is_taken_away() {
        let types: Vec<_> = ["a", "b", "c"]
            .map(|name| Resource::new("x", "v1", name))
            .to_vec();
        let places = [
            place(&types[0], "ns", 7, &["o"]),
            place(&types[1], "ns", 9, &["o"]),
            place(&types[2], "ns", 8, &["o"]),
        ];
        let plan_with =
            |open: &BTreeSet<WatchKey>, max| plan(&places, limits(max), open, |_| false);
        let first = plan_with(&BTreeSet::new(), 1);
        assert_eq!(texts(&first.watches), ["a.v1.x ns/o"]);
        assert_eq!(texts(&first.waiting), ["c.v1.x ns/o", "b.v1.x ns/o"]);
        let open = BTreeSet::from([first.waiting[1].clone()]);
        let kept = plan_with(&open, 1);
        assert_eq!(texts(&kept.watches), ["b.v1.x ns/o"]);
        // The cap was lowered: the youngest goes.
        let open = kept.watches.iter().chain(&kept.waiting).cloned().collect();
        assert_eq!(texts(&plan_with(&open, 2).waiting), ["b.v1.x ns/o"]);
    }

    #[test]
    fn a_refused_wide_watch_falls_back_to_narrow_ones() {
        let places = [
            place(&pods(), "a", 1, &["p", "q"]),
            place(&pods(), "b", 2, &["p"]),
        ];
        let open = BTreeSet::new();
        let no_namespace = |key: &WatchKey| matches!(key.scope, Scope::Namespace(_));
        let narrow = plan(&places, limits(5), &open, no_namespace);
        assert_eq!(
            texts(&narrow.watches),
            ["pods.v1 a/p", "pods.v1 a/q", "pods.v1 b/p"]
        );
        let no_cluster = |key: &WatchKey| key.scope == Scope::Cluster;
        let some = plan(&places, limits(1), &open, no_cluster);
        assert_eq!(texts(&some.watches), ["pods.v1 in a"]);
        assert_eq!(texts(&some.waiting), ["pods.v1 b/p"]);
        let nothing = plan(&places, limits(5), &open, |_| true);
        assert_eq!(nothing, WatchPlan::default());
    }

    #[test]
    fn what_is_wide_stays_so_until_there_is_air() {
        let in_namespaces = |count: usize| -> Vec<Place> {
            (0_u64..)
                .take(count)
                .map(|at| place(&pods(), &format!("ns{at}"), at, &["p"]))
                .collect()
        };
        let wide = fresh(&in_namespaces(9), 8);
        assert_eq!(texts(&wide.watches), ["pods.v1 in the whole cluster"]);
        let open: BTreeSet<_> = wide.watches.into_iter().collect();
        let count = |places: usize| {
            plan(&in_namespaces(places), limits(8), &open, |_| false)
                .watches
                .len()
        };
        assert_eq!(count(8), 1);
        assert_eq!(count(7), 1);
        assert_eq!(count(6), 6);
        let namespace = place(&pods(), "a", 1, &["p"]);
        let open = BTreeSet::from([namespace.wide()]);
        let kept = plan(&[namespace], limits(8), &open, |_| false);
        assert_eq!(texts(&kept.watches), ["pods.v1 in a"]);
    }

    #[test]
    fn scopes_know_what_they_show() {
        let object = |namespace: &str, name: &str| Scope::Object {
            namespace: namespace.into(),
            name: name.into(),
        };
        let namespace = Scope::Namespace("a".into());
        assert!(Scope::Cluster.covers("a", "x") && Scope::Cluster.covers("", "x"));
        assert!(namespace.covers("a", "x") && !namespace.covers("b", "x"));
        assert!(object("a", "x").covers("a", "x") && !object("a", "x").covers("a", "y"));
        assert!(Scope::Cluster.includes(&namespace) && !namespace.includes(&Scope::Cluster));
        assert!(namespace.includes(&object("a", "x")) && !namespace.includes(&object("b", "x")));
        assert!(!object("a", "x").includes(&namespace));
        assert!(object("a", "x").includes(&object("a", "x")));
    }

    /// Whatever is wanted, open, refused and allowed: the cap holds, every object is either shown
    /// by a watch, or by one that waits, or all that could show it is refused; and no object has the
    /// whole cluster for itself.
    #[test]
    fn plans_hold_what_they_promise() {
        let mut random = 42_u64;
        let mut next = |below: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        let types = [deployments(), pods(), nodes()];
        let names = ["n", "o", "p"];
        let mut open = BTreeSet::new();
        for round in 0..5_000 {
            let mut places = Vec::new();
            for resource in &types {
                let namespaces: &[&str] = if *resource == nodes() {
                    &[""]
                } else {
                    &["a", "b", "c", "d"]
                };
                for namespace in namespaces {
                    let count = usize::try_from(next(4)).unwrap();
                    if count > 0 {
                        places.push(place(resource, namespace, next(100), &names[..count]));
                    }
                }
            }
            let limits = WatchLimits {
                max_watches: usize::try_from(next(9)).unwrap(),
                widen_after: 1 + usize::try_from(next(3)).unwrap(),
            };
            let (no_cluster, no_namespace) = (next(3) == 0, next(3) == 0);
            let refused = |key: &WatchKey| match key.scope {
                Scope::Cluster => no_cluster,
                Scope::Namespace(_) => no_namespace,
                Scope::Object { .. } => false,
            };
            let made = plan(&places, limits, &open, refused);
            let why = format!("round {round}: {places:?} {limits:?} {made:?}");
            assert!(made.watches.len() <= limits.max_watches, "{why}");
            let all: Vec<_> = made.watches.iter().chain(&made.waiting).collect();
            let shown = |resource: &Resource, namespace: &str, name: &str| {
                all.iter()
                    .any(|key| key.resource == *resource && key.scope.covers(namespace, name))
            };
            for place in &places {
                for name in &place.names {
                    let (resource, namespace) = (&place.resource, &place.namespace);
                    assert!(shown(resource, namespace, name), "{name} of {why}");
                }
            }
            for key in &all {
                assert!(!refused(key), "{why}");
                let of_type = places.iter().filter(|place| place.resource == key.resource);
                let objects: usize = of_type.map(|place| place.objects).sum();
                assert!(key.scope != Scope::Cluster || objects > 1, "{why}");
            }
            let different: BTreeSet<_> = all.iter().collect();
            assert_eq!(different.len(), all.len(), "{why}");
            open = made.watches.into_iter().collect();
        }
    }
}
