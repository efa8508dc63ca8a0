//! Feedback values of one work.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

/// An object that works of one template put on every cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceKey {
    /// API group, empty for the core group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Plural resource name.
    pub resource: String,
    /// Object name.
    pub name: String,
    /// Namespace, empty for cluster-scoped objects.
    pub namespace: String,
}

/// One value that a cluster reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// An integer.
    Integer(i64),
    /// Text, also raw JSON.
    Text(String),
    /// A boolean.
    Boolean(bool),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(value) => value.fmt(f),
            Self::Text(value) => value.fmt(f),
            Self::Boolean(value) => value.fmt(f),
        }
    }
}

/// What values there are: objects, each with the names of its values.
type Shape = Vec<(ResourceKey, Vec<String>)>;

/// What one cluster reports for the objects of a template.
///
/// What the values are called is kept apart from them, since that is the same for all clusters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    shape: Arc<Shape>,
    /// In the order of the names in `shape`, of all objects.
    values: Box<[Value]>,
}

impl Report {
    /// Each object with its values.
    pub fn resources(
        &self,
    ) -> impl Iterator<
        Item = (
            &ResourceKey,
            impl ExactSizeIterator<Item = (&str, &Value)> + Clone,
        ),
    > {
        let mut rest = &*self.values;
        self.shape.iter().map(move |(resource, names)| {
            let (own, after) = rest.split_at(names.len());
            rest = after;
            (resource, names.iter().map(String::as_str).zip(own))
        })
    }

    /// Whether it has the same values as `other`, though they may differ in what they are.
    pub(super) fn is_shaped_like(&self, other: &Self) -> bool {
        self.shape == other.shape
    }
}

impl FromIterator<(ResourceKey, Vec<(String, Value)>)> for Report {
    fn from_iter<I: IntoIterator<Item = (ResourceKey, Vec<(String, Value)>)>>(all: I) -> Self {
        let mut values = Vec::new();
        let mut shape = Shape::new();
        for (resource, of_this) in all {
            let (names, of_this): (Vec<String>, Vec<Value>) = of_this.into_iter().unzip();
            shape.push((resource, names));
            values.extend(of_this);
        }
        Self {
            shape: Arc::new(shape),
            values: values.into(),
        }
    }
}

/// The shapes of a set's reports, of which equal ones are kept once.
#[derive(Debug, Default)]
pub(super) struct Shapes {
    known: HashSet<Arc<Shape>>,
}

impl Shapes {
    /// Below this many, shapes that nobody uses any more are not worth a look.
    const FEW: usize = 16;

    /// Has `report` use the shape that is known, if an equal one is.
    pub(super) fn share(&mut self, report: &mut Report) {
        if let Some(known) = self.known.get(&report.shape) {
            report.shape = Arc::clone(known);
            return;
        }
        // Only when there is no room without: so each shape that is added pays for a few others.
        if self.known.len() >= Self::FEW && self.known.len() == self.known.capacity() {
            self.known.retain(|shape| Arc::strong_count(shape) > 1);
        }
        self.known.insert(Arc::clone(&report.shape));
    }
}
