//! Which events a rule selects: the one definition, for the planner and for the router.
//!
//! An item takes an event if every facet of it does. The facets of the type (group, version,
//! resource, whether it has namespaces) say what has to be watched, [`ItemSelector::takes_type`];
//! those of the object (namespace, labels), [`ItemSelector::takes_object`], and of the change are
//! asked for each event.
//!
//! | Facet | Empty | `*` | Else |
//! |---|---|---|---|
//! | operations | all | all | those named |
//! | groups, versions | all; the planner takes one of them | all | those named, exactly |
//! | resources | – | all | names in any case; `x/*` is any subresource of x, and not x; `x/y` is one |

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use kube::core::{Expression, SelectorExt};

/// A kind of change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// The object is new.
    Create,
    /// The object has changed.
    Update,
    /// The object is gone, or on its way out.
    Delete,
}

impl Operation {
    /// Each of them.
    pub const ALL: [Self; 3] = [Self::Create, Self::Update, Self::Delete];

    /// As rules and events have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Some of the operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Operations(u8);

impl Operations {
    /// None of them.
    pub const NONE: Self = Self(0);
    /// All of them.
    pub const ALL: Self = Self(0b111);

    /// Adds one.
    pub const fn insert(&mut self, operation: Operation) {
        self.0 |= 1 << operation as u8;
    }

    /// Adds these.
    pub const fn insert_all(&mut self, others: Self) {
        self.0 |= others.0;
    }

    /// Whether it is one of them.
    pub const fn contains(self, operation: Operation) -> bool {
        self.0 & (1 << operation as u8) != 0
    }
}

/// The groups or the versions that an item names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Facet {
    /// It names none. All match, and the planner takes the one that is meant.
    Unnamed,
    /// It names all, by `*`.
    All,
    /// It names these.
    Only(BTreeSet<Arc<str>>),
}

impl Facet {
    /// The facet of a list of names.
    pub fn of<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let names: BTreeSet<Arc<str>> = names.map(Into::into).collect();
        if names.is_empty() {
            Self::Unnamed
        } else if names.contains("*") {
            Self::All
        } else {
            Self::Only(names)
        }
    }

    /// Whether the name is one of them.
    pub fn takes(&self, name: &str) -> bool {
        match self {
            Self::Unnamed | Self::All => true,
            Self::Only(names) => names.contains(name),
        }
    }
}

/// A resource as an item names it, in small letters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResourcePattern {
    /// `*`: every resource.
    All,
    /// A resource by its plural.
    Named(Arc<str>),
    /// `x/*`: the subresources of x.
    Subresources(Arc<str>),
    /// `x/y`: one subresource.
    Subresource(Arc<str>, Arc<str>),
}

impl ResourcePattern {
    /// Reads a pattern; space around it and the case of letters mean nothing.
    pub fn parse(text: &str) -> Self {
        let text = text.trim().to_lowercase();
        match text.split_once('/') {
            None if text == "*" => Self::All,
            None => Self::Named(text.into()),
            Some((resource, "*")) => Self::Subresources(resource.into()),
            Some((resource, subresource)) => Self::Subresource(resource.into(), subresource.into()),
        }
    }

    /// Whether it is this resource, or this subresource where there is a slash. The empty name is
    /// no resource.
    pub fn takes(&self, resource: &str) -> bool {
        let same = |a: &str, b: &str| !a.is_empty() && a == b.to_lowercase();
        match (self, resource.split_once('/')) {
            (Self::All, _) => true,
            (Self::Named(own), None) => same(own, resource),
            (Self::Subresources(own), Some((resource, _))) => same(own, resource),
            (Self::Subresource(own, part), Some((resource, subresource))) => {
                same(own, resource) && same(part, subresource)
            }
            _ => false,
        }
    }
}

impl fmt::Display for ResourcePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("*"),
            Self::Named(name) => f.write_str(name),
            Self::Subresources(resource) => write!(f, "{resource}/*"),
            Self::Subresource(resource, subresource) => write!(f, "{resource}/{subresource}"),
        }
    }
}

/// Where the objects of an item are.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reach {
    /// They have no namespace.
    Cluster,
    /// They are in any namespace.
    AllNamespaces,
    /// They are in this namespace: what a WatchRule reaches, whatever it says.
    Namespace(Arc<str>),
}

impl Reach {
    /// Whether types with namespaces are meant, or those without.
    pub const fn is_namespaced(&self) -> bool {
        !matches!(self, Self::Cluster)
    }

    /// Whether an object is there; `None` is one without a namespace.
    pub fn takes(&self, namespace: Option<&str>) -> bool {
        match self {
            Self::Cluster => namespace.is_none(),
            Self::AllNamespaces => namespace.is_some(),
            Self::Namespace(own) => namespace == Some(&**own),
        }
    }
}

/// A type, as far as rules ask about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TypeFacts<'a> {
    /// API group; empty for the core group.
    pub group: &'a str,
    /// API version.
    pub version: &'a str,
    /// Resource name in plural.
    pub resource: &'a str,
    /// Whether its objects have a namespace.
    pub namespaced: bool,
}

/// One item of a rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ItemSelector {
    /// Where its objects are.
    pub reach: Reach,
    /// API groups.
    pub groups: Facet,
    /// API versions.
    pub versions: Facet,
    /// Resources; one of them has to match.
    pub resources: BTreeSet<ResourcePattern>,
    /// Kinds of change.
    pub operations: Operations,
    /// Requirements on labels, all of which have to hold.
    pub labels: BTreeSet<Expression>,
}

impl ItemSelector {
    /// Whether objects of this type can be meant.
    pub fn takes_type(&self, of: TypeFacts<'_>) -> bool {
        self.takes_scope(of.namespaced)
            && self.groups.takes(of.group)
            && self.versions.takes(of.version)
            && self.resources.iter().any(|own| own.takes(of.resource))
    }

    /// Whether types that have namespaces, or those that have none, can be meant.
    pub const fn takes_scope(&self, namespaced: bool) -> bool {
        self.reach.is_namespaced() == namespaced
    }

    /// Whether an object of a type that is meant is itself. The namespace is asked of every object,
    /// whatever the watch that brought it shows.
    pub fn takes_object(&self, namespace: Option<&str>, labels: &BTreeMap<String, String>) -> bool {
        self.reach.takes(namespace) && self.labels.iter().all(|own| own.matches(labels))
    }

    /// Whether an event is meant.
    pub fn takes(
        &self,
        operation: Operation,
        of: TypeFacts<'_>,
        namespace: Option<&str>,
        labels: &BTreeMap<String, String>,
    ) -> bool {
        self.operations.contains(operation)
            && self.takes_type(of)
            && self.takes_object(namespace, labels)
    }
}
