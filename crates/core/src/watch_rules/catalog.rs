//! Which types the API server serves, as far as its answers can be trusted.
//!
//! | What a scan says | What becomes of the types |
//! |---|---|
//! | a group version answers with an error | they stay for as long as that lasts; it is degraded |
//! | a group version answers without a type | the type goes after the grace, unless it comes back |
//! | a group version is missing from a complete scan | the same, for all of its types |
//! | a group version is missing from an incomplete scan | nothing |
//! | no scan has come yet | it is not known which types there are, which is not "none" |
//!
//! So neither a broken aggregated API nor a hiccup of discovery stops a watch.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::selector::TypeFacts;
use crate::watch_plan::Resource;

/// How long a type stays after a scan has not shown it any more.
pub const REMOVAL_GRACE: SignedDuration = SignedDuration::from_secs(60);

/// A group and one of its versions.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupVersion {
    /// API group; empty for the core group.
    pub group: Arc<str>,
    /// API version.
    pub version: Arc<str>,
}

impl GroupVersion {
    /// From group (empty for the core group) and version.
    pub fn new(group: &str, version: &str) -> Self {
        Self {
            group: group.into(),
            version: version.into(),
        }
    }
}

/// As `apiVersion` has it.
impl fmt::Display for GroupVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.group.is_empty() {
            write!(f, "{}/", self.group)?;
        }
        f.write_str(&self.version)
    }
}

/// A resource as discovery lists it in its group version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundResource {
    /// Name in plural; one with a slash is a subresource, and passed over.
    pub resource: String,
    /// Kind of its objects.
    pub kind: String,
    /// Whether its objects have a namespace.
    pub namespaced: bool,
    /// What can be done with it: `list`, `watch` …
    pub verbs: BTreeSet<String>,
}

/// What the API server says of one group version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Whether the group names this version as its preferred one.
    pub preferred: bool,
    /// Its resources; or why they are not known, for people.
    pub resources: Result<Vec<FoundResource>, String>,
}

/// One look at what the API server serves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scan {
    /// Group versions that are served, with their answers.
    pub answers: BTreeMap<GroupVersion, Answer>,
    /// Whether these are all group versions there are. One that failed to answer is among them, with
    /// its error, and does not make the scan incomplete.
    pub complete: bool,
}

/// A type that is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedType {
    /// Group, version and resource name.
    pub resource: Resource,
    /// Kind of its objects.
    pub kind: Arc<str>,
    /// Whether its objects have a namespace.
    pub namespaced: bool,
    /// What can be done with it.
    pub verbs: BTreeSet<String>,
    /// Whether its version is the preferred one of its group.
    pub preferred: bool,
    /// Whether the last scan that could tell did not show it: it is in its grace.
    pub missing: bool,
}

impl ServedType {
    /// Whether it can be listed and watched.
    pub fn is_watchable(&self) -> bool {
        ["list", "watch"]
            .iter()
            .all(|verb| self.verbs.contains(*verb))
    }

    /// What rules ask about it.
    pub fn facts(&self) -> TypeFacts<'_> {
        TypeFacts {
            group: self.resource.group(),
            version: self.resource.version(),
            resource: self.resource.resource(),
            namespaced: self.namespaced,
        }
    }
}

#[derive(Debug)]
struct Entry {
    served: ServedType,
    missing_since: Option<Timestamp>,
}

/// The types of an API server. See the module.
#[derive(Debug)]
pub struct Catalog {
    grace: SignedDuration,
    loaded: bool,
    /// The last scan showed every group version.
    complete: bool,
    /// By group version and resource name.
    types: BTreeMap<GroupVersion, BTreeMap<Arc<str>, Entry>>,
    /// Group versions whose last answer was an error: the first one since they last answered.
    degraded: BTreeMap<GroupVersion, String>,
}

impl Default for Catalog {
    fn default() -> Self {
        Self::new(REMOVAL_GRACE)
    }
}

impl Catalog {
    /// An empty catalog that is not loaded; types leave it after `grace`.
    pub fn new(grace: SignedDuration) -> Self {
        Self {
            grace,
            loaded: false,
            complete: false,
            types: BTreeMap::new(),
            degraded: BTreeMap::new(),
        }
    }

    /// Takes in a scan that ended at `now`, and removes the types whose grace is over. Says whether a
    /// plan may come out differently now.
    pub fn observe(&mut self, now: Timestamp, scan: Scan) -> bool {
        let answered = scan.answers.values().any(|answer| answer.resources.is_ok());
        // Every server serves something: from one that shows nothing, nothing follows.
        let complete = scan.complete && answered;
        let mut changed = self.complete != complete || self.loaded != (self.loaded || answered);
        self.complete = complete;
        self.loaded |= answered;

        let shown: BTreeSet<GroupVersion> = scan.answers.keys().cloned().collect();
        for (of, answer) in scan.answers {
            changed |= match answer.resources {
                Ok(resources) => self.answered(now, of, answer.preferred, resources),
                Err(error) => self.failed(of, answer.preferred, error),
            };
        }
        if complete {
            let known = self.degraded.len();
            self.degraded.retain(|of, _| shown.contains(of));
            changed |= self.degraded.len() != known;
            for (of, entries) in &mut self.types {
                if !shown.contains(of) {
                    for entry in entries.values_mut() {
                        changed |= entry.miss(now);
                    }
                }
            }
        }
        changed | self.remove_due(now)
    }

    /// Whether the server has told of any type. Before, nobody may conclude that there are none.
    pub const fn is_loaded(&self) -> bool {
        self.loaded
    }

    /// Whether the last scan showed every group version that there is.
    pub const fn is_complete(&self) -> bool {
        self.complete
    }

    /// All types, by group version and resource name.
    pub fn types(&self) -> impl Iterator<Item = &ServedType> {
        let entries = self.types.values().flat_map(BTreeMap::values);
        entries.map(|entry| &entry.served)
    }

    /// The types of this resource name, in any group and version.
    pub fn named<'a>(&'a self, resource: &str) -> impl Iterator<Item = &'a ServedType> {
        let entries = self.types.values().filter_map(move |of| of.get(resource));
        entries.map(|entry| &entry.served)
    }

    /// Whether the type is served, or was so not long ago.
    pub fn has(&self, resource: &Resource) -> bool {
        let of = GroupVersion::new(resource.group(), resource.version());
        let entries = self.types.get(&of);
        entries.is_some_and(|entries| entries.contains_key(resource.resource()))
    }

    /// Group versions that failed to answer, and why.
    pub fn degraded(&self) -> impl Iterator<Item = (&GroupVersion, &str)> {
        self.degraded.iter().map(|(of, error)| (of, error.as_str()))
    }

    /// Whether any type of a group version is known.
    pub fn knows(&self, of: &GroupVersion) -> bool {
        self.types.contains_key(of)
    }

    fn answered(
        &mut self,
        now: Timestamp,
        of: GroupVersion,
        preferred: bool,
        resources: Vec<FoundResource>,
    ) -> bool {
        let mut changed = self.degraded.remove(&of).is_some();
        let mut found: BTreeMap<Arc<str>, ServedType> = resources
            .into_iter()
            .filter(|found| !found.resource.contains('/'))
            .map(|found| {
                let served = ServedType {
                    resource: Resource::new(&*of.group, &*of.version, found.resource.as_str()),
                    kind: found.kind.into(),
                    namespaced: found.namespaced,
                    verbs: found.verbs,
                    preferred,
                    missing: false,
                };
                (found.resource.into(), served)
            })
            .collect();
        let entries = self.types.entry(of).or_default();
        for (name, entry) in entries.iter_mut() {
            if let Some(served) = found.remove(name) {
                changed |= entry.served != served;
                entry.served = served;
                entry.missing_since = None;
            } else {
                changed |= entry.miss(now) || entry.served.preferred != preferred;
                entry.served.preferred = preferred;
            }
        }
        changed |= !found.is_empty();
        entries.extend(found.into_iter().map(|(name, served)| {
            let missing_since = None;
            let entry = Entry {
                served,
                missing_since,
            };
            (name, entry)
        }));
        changed
    }

    fn failed(&mut self, of: GroupVersion, preferred: bool, error: String) -> bool {
        let mut changed = false;
        for entry in self
            .types
            .get_mut(&of)
            .into_iter()
            .flat_map(BTreeMap::values_mut)
        {
            // Listed and not answering: it cannot be said any more that the type is gone.
            changed |= entry.served.missing || entry.served.preferred != preferred;
            entry.served.missing = false;
            entry.served.preferred = preferred;
            entry.missing_since = None;
        }
        // The first error is kept: texts that differ each time would change the plan each time.
        changed |= !self.degraded.contains_key(&of);
        self.degraded.entry(of).or_insert(error);
        changed
    }

    fn remove_due(&mut self, now: Timestamp) -> bool {
        let grace = self.grace;
        let mut changed = false;
        self.types.retain(|_, entries| {
            entries.retain(|_, entry| {
                let due = entry
                    .missing_since
                    .is_some_and(|since| now.duration_since(since) >= grace);
                changed |= due;
                !due
            });
            !entries.is_empty()
        });
        changed
    }
}

impl Entry {
    /// Begins the grace, if it has not begun, and says whether it has now.
    fn miss(&mut self, now: Timestamp) -> bool {
        let new = self.missing_since.is_none();
        self.missing_since.get_or_insert(now);
        self.served.missing = true;
        new
    }
}
