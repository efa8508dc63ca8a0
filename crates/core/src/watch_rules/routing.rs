//! Who hears of the objects of a stream, and of what becomes of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::plan::{RulePlan, Stream, StreamKey};
use super::rule::CompiledRule;
use super::selector::{ItemSelector, Operation, Operations};
use super::store::RuleSnapshot;

/// Names of rules, for people. Cheap to clone.
pub type RuleNames = Arc<[Arc<str>]>;

/// The rules that want to hear of an object, by what becomes of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interest([RuleNames; 3]);

impl Interest {
    /// Of these rules, each with what it wants to hear of.
    pub fn new<'a>(rules: impl IntoIterator<Item = (&'a Arc<str>, Operations)>) -> Self {
        let mut names: [Vec<Arc<str>>; 3] = Default::default();
        for (name, operations) in rules {
            for operation in Operation::ALL {
                if operations.contains(operation) {
                    names[operation as usize].push(Arc::clone(name));
                }
            }
        }
        Self(names.map(Into::into))
    }

    /// The rules that want to hear of this operation.
    pub const fn of(&self, operation: Operation) -> &RuleNames {
        &self.0[operation as usize]
    }
}

/// A rule that has events from a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Taker {
    name: Arc<str>,
    /// The items that chose the stream; others of the rule mean other streams.
    items: Vec<ItemSelector>,
}

impl Taker {
    fn new(rule: &CompiledRule, items: &BTreeSet<usize>) -> Self {
        let items = items.iter().filter_map(|item| rule.items.get(*item));
        Self {
            name: rule.name.to_string().into(),
            items: items.cloned().collect(),
        }
    }

    /// What the items want to hear of that select the object.
    fn wants(&self, selects: impl Fn(&ItemSelector) -> bool) -> Operations {
        let mut all = Operations::NONE;
        for item in self.items.iter().filter(|item| selects(item)) {
            all.insert_all(item.operations);
        }
        all
    }
}

/// The rules because of which a sink hears of the objects of a stream. Equal ones let it hear of the
/// same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audience {
    takers: Vec<Taker>,
    all: Arc<Interest>,
}

impl Audience {
    fn new(takers: Vec<Taker>) -> Self {
        let all = takers.iter().map(|it| (&it.name, it.wants(|_| true)));
        let all = Arc::new(Interest::new(all));
        Self { takers, all }
    }

    /// The rules that may want an object of the stream: those that have to be thought of where
    /// nothing is known of it but that the sink has it.
    pub const fn all(&self) -> &Arc<Interest> {
        &self.all
    }

    /// The rules that want this object; `None` if no item selects it. Asked for each state of an
    /// object: if all items select it, as they do without selectors, nothing is allocated.
    pub fn of(
        &self,
        namespace: Option<&str>,
        labels: &BTreeMap<String, String>,
    ) -> Option<Arc<Interest>> {
        let selects = |item: &ItemSelector| item.takes_object(namespace, labels);
        let mut items = self.takers.iter().flat_map(|taker| &taker.items);
        if items.all(selects) {
            return (!self.takers.is_empty()).then(|| Arc::clone(&self.all));
        }
        let wants = self.takers.iter().map(|it| (&it.name, it.wants(selects)));
        let wants: Vec<_> = wants.filter(|(_, it)| *it != Operations::NONE).collect();
        (!wants.is_empty()).then(|| Arc::new(Interest::new(wants)))
    }
}

/// Sinks, each with the rules because of which it hears of a stream.
pub type Routes = BTreeMap<Arc<str>, Audience>;

impl RulePlan {
    /// For each stream the sinks that hear of its objects, as far as `hears` says that a sink is to
    /// hear of anything. `rules` are those that the plan was made from; one that is not among them
    /// wants nothing.
    ///
    /// A sink hears of an object from one stream: where it has that of the whole cluster, rules of
    /// namespaces add to that. Not so where that stream is `refused`: what may be watched in one
    /// namespace does not wait for what may not be watched in all.
    pub fn routes(
        &self,
        rules: &RuleSnapshot,
        hears: impl Fn(&str) -> bool,
        refused: impl Fn(&StreamKey) -> bool,
    ) -> BTreeMap<StreamKey, Routes> {
        let mut takers: BTreeMap<StreamKey, BTreeMap<Arc<str>, Vec<Taker>>> = BTreeMap::new();
        for (key, stream) in &self.streams {
            let sinks = stream.destinations.iter();
            for (sink, of) in sinks.filter(|(sink, _)| hears(sink)) {
                let wide = key.of_cluster();
                let has = |stream: &Stream| stream.destinations.contains_key(sink);
                let has_wide = self.streams.get(&wide).is_some_and(has) && !refused(&wide);
                let of = of.iter().filter_map(|(name, items)| {
                    let taker = Taker::new(rules.rules.get(name)?, items);
                    (!taker.items.is_empty()).then_some(taker)
                });
                let key = if has_wide { wide } else { key.clone() };
                let sinks = takers.entry(key).or_default();
                sinks.entry(Arc::clone(sink)).or_default().extend(of);
            }
        }
        let audience = |(sink, takers)| (sink, Audience::new(takers));
        takers
            .into_iter()
            .map(|(key, sinks)| (key, sinks.into_iter().map(audience).collect()))
            .collect()
    }
}
