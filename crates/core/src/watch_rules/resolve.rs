//! The types that one item of a rule means, and why it does not get what it names.

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use kube::core::Version;
use muster_api::constants as names;

use super::catalog::{Catalog, GroupVersion, ServedType};
use super::exclusions::Exclusions;
use super::selector::{Facet, ItemSelector, Reach, ResourcePattern};
use crate::watch_plan::Resource;

/// Why a rule does not get what it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UnresolvedReason {
    /// Not served, or not in the groups and versions that the rule names.
    TypeUnknown,
    /// It could be one of several types.
    Ambiguous,
    /// The settings exclude it.
    Excluded,
    /// The sink of the rule takes nothing of it.
    RefusedBySink,
    /// It cannot be listed and watched.
    NotWatchable,
    /// It has a namespace where the rule means objects without one, or the other way round.
    WrongScope,
    /// The server did not tell whether it is served.
    DiscoveryFailed,
}

impl UnresolvedReason {
    /// Each of them.
    pub const ALL: [Self; 7] = [
        Self::TypeUnknown,
        Self::Ambiguous,
        Self::Excluded,
        Self::RefusedBySink,
        Self::NotWatchable,
        Self::WrongScope,
        Self::DiscoveryFailed,
    ];

    /// The word for conditions.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TypeUnknown => names::REASON_TYPE_UNKNOWN,
            Self::Ambiguous => names::REASON_AMBIGUOUS,
            Self::Excluded => names::REASON_EXCLUDED,
            Self::RefusedBySink => names::REASON_REFUSED_BY_SINK,
            Self::NotWatchable => names::REASON_NOT_WATCHABLE,
            Self::WrongScope => names::REASON_WRONG_SCOPE,
            Self::DiscoveryFailed => names::REASON_DISCOVERY_FAILED,
        }
    }
}

/// Something that a rule names and does not get.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Unresolved {
    /// As the rule names it; `*.<group>` or `*.<version>` for a group or version that gives nothing.
    pub resource: String,
    /// Why, for programs.
    pub reason: UnresolvedReason,
    /// Why, for people, and what to do about it.
    pub message: String,
}

/// A type that an item means.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chosen<'a> {
    /// The type.
    pub(super) of: &'a ServedType,
    /// Whether events are taken from it, or from another version of the same objects.
    pub(super) reports: bool,
}

/// What comes of an item.
#[derive(Debug, Default)]
pub(super) struct Resolved<'a> {
    /// Types to watch; one may be there twice.
    pub(super) types: Vec<Chosen<'a>>,
    /// What is not to be had.
    pub(super) unresolved: Vec<Unresolved>,
}

/// What items are resolved against.
#[derive(Debug)]
pub(super) struct Offer<'a> {
    catalog: &'a Catalog,
    exclusions: &'a Exclusions,
    /// Types that share group, version and kind with another, and that other.
    twins: HashMap<&'a Resource, &'a ServedType>,
}

impl<'a> Offer<'a> {
    /// The types of the catalog, of which some are excluded.
    pub(super) fn new(catalog: &'a Catalog, exclusions: &'a Exclusions) -> Self {
        let mut first: HashMap<_, &ServedType> = HashMap::new();
        let mut twins = HashMap::new();
        for of in catalog.types().filter(|of| of.is_watchable()) {
            let resource = &of.resource;
            match first.entry((resource.group(), resource.version(), &*of.kind)) {
                Entry::Vacant(entry) => drop(entry.insert(of)),
                Entry::Occupied(entry) => {
                    let other = *entry.get();
                    twins.insert(resource, other);
                    twins.entry(&other.resource).or_insert(of);
                }
            }
        }
        Self {
            catalog,
            exclusions,
            twins,
        }
    }
}

/// Resolves an item of a rule with this sink against what is served.
pub(super) fn resolve<'a>(item: &ItemSelector, sink: &str, offer: &Offer<'a>) -> Resolved<'a> {
    let mut of_item = Resolver {
        item,
        sink,
        catalog: offer.catalog,
        offer,
        used_groups: BTreeSet::new(),
        used_versions: BTreeSet::new(),
    };
    let mut resolved = Resolved::default();
    for pattern in &item.resources {
        match of_item.pattern(pattern) {
            Ok(types) => resolved.types.extend(types),
            Err(unresolved) => resolved.unresolved.push(unresolved),
        }
    }
    // If no resource is found, that has been said already.
    if !resolved.types.is_empty() {
        resolved.unresolved.extend(of_item.unused());
        resolved.unresolved.extend(of_item.silent_versions());
    }
    resolved
}

struct Resolver<'a, 'i> {
    item: &'i ItemSelector,
    sink: &'i str,
    catalog: &'a Catalog,
    offer: &'i Offer<'a>,
    /// Groups and versions that served any of the resources.
    used_groups: BTreeSet<&'a str>,
    used_versions: BTreeSet<&'a str>,
}

impl<'a> Resolver<'a, '_> {
    fn pattern(&mut self, pattern: &ResourcePattern) -> Result<Vec<Chosen<'a>>, Unresolved> {
        let catalog = self.catalog;
        let unresolved = |(reason, message)| Unresolved {
            resource: pattern.to_string(),
            reason,
            message,
        };
        let types = match pattern {
            ResourcePattern::All => self.everything(),
            ResourcePattern::Named(name) => {
                let served: Vec<_> = catalog.named(name).collect();
                self.named(name, &served)
            }
            ResourcePattern::Subresources(name) | ResourcePattern::Subresource(name, _) => {
                let message =
                    format!("a watch shows no subresources; name {name} to have its changes");
                Err((UnresolvedReason::NotWatchable, message))
            }
        };
        Ok(self.versions(types.map_err(unresolved)?))
    }

    /// All types that fit and can be watched. That others cannot is no fault of the rule.
    fn everything(&mut self) -> Result<Vec<&'a ServedType>, (UnresolvedReason, String)> {
        let named = |of: &&ServedType| self.is_named(of);
        let served: Vec<_> = self.catalog.types().filter(named).collect();
        self.note(&served);
        let fits = |of: &&ServedType| {
            self.item.takes_scope(of.namespaced)
                && of.is_watchable()
                && !self.offer.exclusions.contains(&of.resource)
                && self.refusal(of).is_none()
                && !self.offer.twins.contains_key(&of.resource)
        };
        let types: Vec<_> = served.into_iter().filter(fits).collect();
        if types.is_empty() {
            return Err(self.unknown("*", &[]));
        }
        Ok(types)
    }

    /// The types of one name. The first reason for which none is left is the one that is told.
    fn named(
        &mut self,
        name: &str,
        served: &[&'a ServedType],
    ) -> Result<Vec<&'a ServedType>, (UnresolvedReason, String)> {
        let mut types: Vec<_> = served
            .iter()
            .copied()
            .filter(|of| self.is_named(of))
            .collect();
        if types.is_empty() {
            return Err(self.unknown(name, served));
        }
        if self.item.groups == Facet::Unnamed {
            types = one_group(name, types)?;
        }
        self.note(&types);

        types.retain(|of| self.item.takes_scope(of.namespaced));
        if types.is_empty() {
            return Err((UnresolvedReason::WrongScope, self.wrong_scope(name)));
        }
        types.retain(|of| !self.offer.exclusions.contains(&of.resource));
        if types.is_empty() {
            let message = format!(
                "{name} is on the list of types that this agent does not watch; take it off that \
                 list to have its changes"
            );
            return Err((UnresolvedReason::Excluded, message));
        }
        let refusal = types.iter().find_map(|of| self.refusal(of));
        types.retain(|of| self.refusal(of).is_none());
        if let (true, Some(why)) = (types.is_empty(), refusal) {
            let message = format!("the sink {} takes no {name}: {why}", self.sink);
            return Err((UnresolvedReason::RefusedBySink, message));
        }
        let first = types.first().copied();
        types.retain(|of| of.is_watchable());
        if types.is_empty() {
            let verbs: Vec<_> = first.iter().flat_map(|of| &of.verbs).cloned().collect();
            let message = format!(
                "{name} offers {} and not both list and watch, so its changes cannot be seen",
                join(&verbs, "nothing")
            );
            return Err((UnresolvedReason::NotWatchable, message));
        }
        let twins = &self.offer.twins;
        let twin = types.iter().find_map(|of| twins.get(&of.resource));
        types.retain(|of| !twins.contains_key(&of.resource));
        match twin {
            Some(other) if types.is_empty() => {
                let message = format!(
                    "{name} and {} have the same kind {}, so their objects cannot be told apart",
                    other.resource, other.kind
                );
                Err((UnresolvedReason::Ambiguous, message))
            }
            _ => Ok(types),
        }
    }

    /// Why the sink of the rule takes nothing of the type.
    fn refusal(&self, of: &ServedType) -> Option<&str> {
        self.offer.exclusions.refusal(self.sink, &of.resource)
    }

    fn is_named(&self, of: &ServedType) -> bool {
        self.item.groups.takes(of.resource.group())
            && self.item.versions.takes(of.resource.version())
    }

    fn note(&mut self, types: &[&'a ServedType]) {
        for of in types {
            self.used_groups.insert(of.resource.group());
            self.used_versions.insert(of.resource.version());
        }
    }

    /// Takes the versions that the item means, of each resource in its group.
    fn versions(&self, types: Vec<&'a ServedType>) -> Vec<Chosen<'a>> {
        let mut resources: BTreeMap<_, Vec<&ServedType>> = BTreeMap::new();
        for of in types {
            let resource = (of.resource.group(), of.resource.resource());
            resources.entry(resource).or_default().push(of);
        }
        let mut chosen = Vec::new();
        for mut versions in resources.into_values() {
            versions.sort_by_cached_key(|of| {
                let version = Version::parse(of.resource.version());
                (!of.preferred, of.missing, Reverse(version.priority()))
            });
            if self.item.versions == Facet::Unnamed {
                versions.truncate(1);
            }
            let by_name = matches!(self.item.versions, Facet::Only(_));
            let choose = |(rank, of)| Chosen {
                of,
                reports: by_name || rank == 0,
            };
            chosen.extend(versions.into_iter().enumerate().map(choose));
        }
        chosen
    }

    /// Nothing of this name is served where the rule looks for it; `elsewhere` it is.
    fn unknown(&self, name: &str, elsewhere: &[&ServedType]) -> (UnresolvedReason, String) {
        if !self.catalog.is_loaded() {
            let message = "the API server has not told yet which types it serves".to_owned();
            return (UnresolvedReason::DiscoveryFailed, message);
        }
        if let Some((of, error)) = self.failed_versions().next() {
            let message = format!(
                "the API server does not tell whether it serves {name} in {of}: {error}; it is \
                 asked again"
            );
            return (UnresolvedReason::DiscoveryFailed, message);
        }
        if !self.catalog.is_complete() {
            let message = format!(
                "the API server does not tell all that it serves, so {name} may be served or not; \
                 it is asked again"
            );
            return (UnresolvedReason::DiscoveryFailed, message);
        }
        (
            UnresolvedReason::TypeUnknown,
            self.not_served(name, elsewhere),
        )
    }

    fn not_served(&self, name: &str, elsewhere: &[&ServedType]) -> String {
        let what = match name {
            "*" => "nothing that can be watched".to_owned(),
            name => format!("no {name}"),
        };
        let group = match &self.item.groups {
            Facet::Only(groups) => {
                let groups: Vec<_> = groups.iter().map(|group| group_text(group)).collect();
                format!(" in the API group {}", groups.join(" or "))
            }
            Facet::Unnamed | Facet::All => String::new(),
        };
        let version = match &self.item.versions {
            Facet::Only(versions) => {
                let versions: Vec<_> = versions.iter().map(|version| &**version).collect();
                format!(" in version {}", versions.join(" or "))
            }
            Facet::Unnamed | Facet::All => String::new(),
        };
        let advice = match name.split_once('.') {
            Some((plural, group)) => {
                format!("; name {plural} in resources and {group} in apiGroups")
            }
            None if elsewhere.is_empty() => "; it is watched as soon as it is served".to_owned(),
            None => {
                let elsewhere: Vec<_> =
                    elsewhere.iter().map(|of| of.resource.to_string()).collect();
                format!(", but {}", elsewhere.join(", "))
            }
        };
        format!("the API server serves {what}{group}{version}{advice}")
    }

    fn wrong_scope(&self, name: &str) -> String {
        match self.item.reach {
            Reach::Namespace(_) => format!(
                "objects of {name} have no namespace, and a WatchRule shows those of its own; \
                 use a ClusterWatchRule with scope Cluster"
            ),
            Reach::AllNamespaces => {
                format!("objects of {name} have no namespace; use scope Cluster")
            }
            Reach::Cluster => format!("objects of {name} have a namespace; use scope Namespaced"),
        }
    }

    /// Groups and versions that the item names and that serve none of its resources.
    fn unused(&self) -> Vec<Unresolved> {
        let names = |facet: &'_ Facet| match facet {
            Facet::Only(names) => names.clone(),
            Facet::Unnamed | Facet::All => BTreeSet::new(),
        };
        let groups = names(&self.item.groups).into_iter().filter_map(|name| {
            let used = self.used_groups.contains(&*name);
            (!used).then(|| self.none_in(&name, |of| of.group == name))
        });
        let versions = names(&self.item.versions).into_iter().filter_map(|name| {
            let used = self.used_versions.contains(&*name);
            (!used).then(|| self.none_in(&name, |of| of.version == name))
        });
        groups.chain(versions).collect()
    }

    /// A group or version that gives nothing, or that may do so but has not answered.
    fn none_in(&self, name: &str, is_of: impl Fn(&GroupVersion) -> bool) -> Unresolved {
        let text = group_text(name);
        let failed = self.failed_versions().find(|(of, _)| is_of(of));
        let (reason, message) = match failed {
            Some((of, error)) => (UnresolvedReason::DiscoveryFailed, not_told(of, error)),
            None => (
                UnresolvedReason::TypeUnknown,
                format!(
                    "the API server serves none of the named resources in {text}; they are \
                     watched as soon as it does"
                ),
            ),
        };
        Unresolved {
            resource: format!("*.{text}"),
            reason,
            message,
        }
    }

    /// For an item with resource `*`: group versions of which nothing is known but that they are
    /// there.
    fn silent_versions(&self) -> Vec<Unresolved> {
        if !self.item.resources.contains(&ResourcePattern::All) {
            return Vec::new();
        }
        self.failed_versions()
            .filter(|(of, _)| !self.catalog.knows(of))
            .map(|(of, error)| Unresolved {
                resource: format!("*.{of}"),
                reason: UnresolvedReason::DiscoveryFailed,
                message: not_told(of, error),
            })
            .collect()
    }

    /// Group versions that the item may mean and that failed to answer.
    fn failed_versions(&self) -> impl Iterator<Item = (&'a GroupVersion, &'a str)> {
        self.catalog.degraded().filter(|(of, _)| {
            self.item.groups.takes(&of.group) && self.item.versions.takes(&of.version)
        })
    }
}

/// The types of the only group that they are of. A group in which nothing can be watched, such
/// as that of metrics with its own `pods`, is meant only if there is no other.
fn one_group<'a>(
    name: &str,
    mut types: Vec<&'a ServedType>,
) -> Result<Vec<&'a ServedType>, (UnresolvedReason, String)> {
    let groups = |types: &[&'a ServedType]| -> BTreeSet<&'a str> {
        types.iter().map(|of| of.resource.group()).collect()
    };
    let watchable: Vec<_> = types
        .iter()
        .copied()
        .filter(|of| of.is_watchable())
        .collect();
    if !watchable.is_empty() {
        let groups = groups(&watchable);
        types.retain(|of| groups.contains(of.resource.group()));
    }
    let groups: Vec<_> = groups(&types).into_iter().map(group_text).collect();
    if groups.len() < 2 {
        return Ok(types);
    }
    let message = format!(
        "{name} is served by several API groups: {}; name one in apiGroups",
        groups.join(", ")
    );
    Err((UnresolvedReason::Ambiguous, message))
}

/// The core group has no name that people could read.
fn group_text(group: &str) -> String {
    if group.is_empty() {
        "\"\" (core)".to_owned()
    } else {
        group.to_owned()
    }
}

fn not_told(of: &GroupVersion, error: &str) -> String {
    format!("the API server does not tell what it serves in {of}: {error}; it is asked again")
}

fn join(texts: &[String], none: &str) -> String {
    if texts.is_empty() {
        none.to_owned()
    } else {
        texts.join(", ")
    }
}
