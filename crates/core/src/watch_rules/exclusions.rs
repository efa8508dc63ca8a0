//! Types that are not watched for rules although they could be.

use std::collections::{BTreeMap, BTreeSet};

use crate::watch_plan::Resource;

/// A type by group (empty for the core group) and resource name in plural, whatever its version.
type Type = (String, String);

fn lower((group, resource): (&str, &str)) -> Type {
    (group.to_lowercase(), resource.to_lowercase())
}

fn type_of(resource: &Resource) -> Type {
    let (group, resource) = (resource.group(), resource.resource());
    (group.to_owned(), resource.to_owned())
}

/// Types that are not watched for any rule, and those that are not for rules with some sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exclusions {
    of_all: BTreeSet<Type>,
    /// By sink, with the reason.
    of_sinks: BTreeMap<String, BTreeMap<Type, String>>,
}

/// Those that change all the time without anybody wanting it, or are derived from others.
const DEFAULT_EXCLUSIONS: [(&str, &str); 11] = [
    ("", "pods"),
    ("", "events"),
    ("", "endpoints"),
    ("events.k8s.io", "events"),
    ("discovery.k8s.io", "endpointslices"),
    ("coordination.k8s.io", "leases"),
    ("apps", "controllerrevisions"),
    ("flowcontrol.apiserver.k8s.io", "flowschemas"),
    (
        "flowcontrol.apiserver.k8s.io",
        "prioritylevelconfigurations",
    ),
    ("batch", "jobs"),
    ("batch", "cronjobs"),
];

impl Exclusions {
    /// These types, as group (empty for the core group) and resource name in plural.
    pub fn new<'a>(types: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        Self {
            of_all: types.into_iter().map(lower).collect(),
            of_sinks: BTreeMap::new(),
        }
    }

    /// That a sink takes nothing of a type, and, for people, why.
    pub fn refuse(&mut self, sink: &str, of: (&str, &str), why: impl Into<String>) {
        let of_sink = self.of_sinks.entry(sink.to_owned()).or_default();
        of_sink.insert(lower(of), why.into());
    }

    /// Whether the type is watched for no rule at all.
    pub fn contains(&self, resource: &Resource) -> bool {
        self.of_all.contains(&type_of(resource))
    }

    /// Why a sink takes nothing of a type; `None` if it does.
    pub fn refusal(&self, sink: &str, resource: &Resource) -> Option<&str> {
        let of_sink = self.of_sinks.get(sink)?;
        of_sink.get(&type_of(resource)).map(String::as_str)
    }
}

impl Default for Exclusions {
    fn default() -> Self {
        Self::new(DEFAULT_EXCLUSIONS)
    }
}
