//! From rules and served types to the streams of events that serve them.
//!
//! Each item of a rule is resolved against the catalog: the product of its groups, versions and
//! resources, as far as it is served. What an item leaves open is decided like this:
//!
//! | The item names | It gets |
//! |---|---|
//! | no group | the group that serves the resource; if several do, nothing, and the rule says so |
//! | no group, resource `*` | every group |
//! | no version | the preferred one of the group, or the best by Kubernetes' order if that one does not serve the resource |
//! | versions | each of them. They are what its author wants, and events of both go to the sink, which can tell them by the version of their key |
//! | version `*` | a stream for each, and events from one: the one that it would get without a version. The others are there to take over |
//!
//! So a sink gets a change of one object once, however many versions show it, unless versions were
//! asked for by name.
//!
//! A WatchRule has streams of its own namespace, a ClusterWatchRule of the whole cluster, and a type
//! may have both: rules and operations differ. Where both lead an event to one sink, the sink's
//! queue sees equal keys with equal content.
//!
//! Whatever a rule names and does not get is in [`RulePart::unresolved`], with what to do about it;
//! it neither stops the rest of the rule nor other rules.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use super::catalog::Catalog;
use super::exclusions::Exclusions;
use super::resolve::{Offer, Unresolved, resolve};
use super::rule::{CompiledRule, RuleName};
use super::selector::Reach;
use super::store::RuleSnapshot;
use crate::watch_plan::Resource;

/// Which events a stream brings.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamKey {
    /// Of objects of which type.
    pub resource: Resource,
    /// In which namespace; `None` is the whole cluster.
    pub namespace: Option<Arc<str>>,
}

impl StreamKey {
    /// The stream of that type from the whole cluster.
    #[must_use]
    pub fn of_cluster(&self) -> Self {
        Self {
            resource: self.resource.clone(),
            namespace: None,
        }
    }
}

/// Rules that a stream has events for, each with the positions of the items that chose it in
/// [`CompiledRule::items`]. Other items of the rule mean other streams.
pub type Takers = BTreeMap<RuleName, BTreeSet<usize>>;

/// A stream of events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stream {
    /// Kind of its objects.
    pub kind: Arc<str>,
    /// Whether its objects have a namespace.
    pub namespaced: bool,
    /// Sinks, with the rules on whose behalf they get events. Empty if every rule gets the events
    /// from another version of the type.
    pub destinations: BTreeMap<Arc<str>, Takers>,
}

/// What a rule gets of a plan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RulePart {
    /// How many types it resolves to; each version is one.
    pub types: usize,
    /// The streams that serve it, in order, those that only stand by included.
    pub streams: Vec<StreamKey>,
    /// What it names and does not get.
    pub unresolved: Vec<Unresolved>,
}

/// Which streams to have, and what each rule gets of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RulePlan {
    /// The streams.
    pub streams: BTreeMap<StreamKey, Stream>,
    /// Every rule has its part, if only with reasons.
    pub rules: BTreeMap<RuleName, RulePart>,
}

/// Plans the streams for the rules. The same input gives the same plan.
///
/// While the catalog is not loaded ([`Catalog::is_loaded`]) no type is known, and the plan is not to
/// be acted on: each rule only says that its types are not known.
pub fn plan_rules(rules: &RuleSnapshot, catalog: &Catalog, exclusions: &Exclusions) -> RulePlan {
    let offer = Offer::new(catalog, exclusions);
    let mut plan = RulePlan::default();
    for (name, rule) in &rules.rules {
        let part = add_rule(&mut plan.streams, rule, &offer);
        plan.rules.insert(name.clone(), part);
    }
    plan
}

fn add_rule(
    streams: &mut BTreeMap<StreamKey, Stream>,
    rule: &CompiledRule,
    offer: &Offer<'_>,
) -> RulePart {
    let mut keys = BTreeSet::new();
    let mut unresolved: Vec<Unresolved> = Vec::new();
    let mut known = HashSet::new();
    for (index, item) in rule.items.iter().enumerate() {
        let resolved = resolve(item, &rule.destination, offer);
        for chosen in resolved.types {
            let key = StreamKey {
                resource: chosen.of.resource.clone(),
                namespace: match &item.reach {
                    Reach::Namespace(namespace) => Some(Arc::clone(namespace)),
                    Reach::Cluster | Reach::AllNamespaces => None,
                },
            };
            let stream = streams.entry(key.clone()).or_insert_with(|| Stream {
                kind: Arc::clone(&chosen.of.kind),
                namespaced: chosen.of.namespaced,
                destinations: BTreeMap::new(),
            });
            if chosen.reports {
                let destination = Arc::clone(&rule.destination);
                let takers = stream.destinations.entry(destination).or_default();
                takers.entry(rule.name.clone()).or_default().insert(index);
            }
            keys.insert(key);
        }
        for one in resolved.unresolved {
            if known.insert(one.clone()) {
                unresolved.push(one);
            }
        }
    }
    let types: BTreeSet<&Resource> = keys.iter().map(|key| &key.resource).collect();
    RulePart {
        types: types.len(),
        streams: keys.iter().cloned().collect(),
        unresolved,
    }
}
