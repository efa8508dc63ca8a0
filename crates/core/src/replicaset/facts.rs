//! What a replica set is told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use muster_api::constants as names;
use muster_api::placement::PlacementDecision;
use muster_api::replicaset::LocalPlacementReference;

use super::report::Report;
use super::troubles::Trouble;
use crate::rollout::{Group, Groups, Strategy, StrategyError, WorkConditions};

/// Identity of a work: the cluster's namespace and the work's name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkKey {
    /// Cluster name, which is the namespace on the hub.
    pub cluster: String,
    /// Work name.
    pub name: String,
}

/// What a replica set needs to know of one of its works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkFacts {
    /// Value of the placement label.
    pub placement: String,
    /// `metadata.generation`.
    pub generation: i64,
    /// `metadata.resourceVersion` as the number that it is: of two states the greater is the newer
    /// (Kubernetes has promised that since 1.35, and etcd has always made it so).
    pub version: Option<u64>,
    /// Canonical hash of the work's spec.
    pub spec_hash: [u8; 32],
    /// `metadata.labels`.
    pub labels: Arc<BTreeMap<String, String>>,
    /// When the work was given its template, by the hub's clock.
    pub started: Option<Timestamp>,
    /// Resource version of a work without annotations, which tells whether it still has none.
    pub unannotated: Option<Box<str>>,
    /// `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// What its deletion waits for, as far as its agent says.
    pub waits_for: Option<Box<str>>,
    /// The conditions that decide.
    pub conditions: WorkConditions,
    /// What is wrong with it, as [`trouble`](crate::explain::trouble) finds it in all its
    /// conditions.
    pub trouble: Option<Arc<Trouble>>,
    /// Feedback values.
    pub report: Report,
}

impl WorkFacts {
    /// Whether this state of a work is one from before `other`.
    pub fn is_before(&self, other: &Self) -> bool {
        let versions = self.version.zip(other.version);
        self.generation < other.generation || versions.is_some_and(|(own, other)| own < other)
    }
}

/// A PlacementDecision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    /// Its name.
    pub name: String,
    /// Text of its label with the index of the group.
    pub group_index: Option<String>,
    /// Name of the group.
    pub group_name: String,
    /// Selected clusters.
    pub clusters: Vec<String>,
}

impl Decision {
    /// Reads the object.
    pub fn read(object: &PlacementDecision) -> Self {
        let labels = object.metadata.labels.as_ref();
        let label = |name: &str| labels.and_then(|labels| labels.get(name)).cloned();
        let clusters = object.status.iter().flat_map(|status| &status.decisions);
        Self {
            name: object.metadata.name.clone().unwrap_or_default(),
            group_index: label(names::DECISION_GROUP_INDEX_LABEL),
            group_name: label(names::DECISION_GROUP_NAME_LABEL).unwrap_or_default(),
            clusters: clusters.map(|d| d.cluster_name.clone()).collect(),
        }
    }
}

/// What a placement selects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacementFacts {
    /// `status.numberOfSelectedClusters` of the Placement.
    pub selected: u32,
    /// Entries of `status.decisionGroups`.
    pub decision_groups: usize,
    /// Clusters in its PlacementDecisions.
    pub clusters: BTreeSet<Arc<str>>,
    /// The same by group; or which label does not read.
    pub groups: Result<Groups, String>,
}

impl Default for PlacementFacts {
    fn default() -> Self {
        Self {
            selected: 0,
            decision_groups: 0,
            clusters: BTreeSet::new(),
            groups: Ok(Groups::new()),
        }
    }
}

impl PlacementFacts {
    /// Puts together what a Placement's status and its decisions say.
    pub fn of<'a>(
        selected: u32,
        decision_groups: usize,
        decisions: impl IntoIterator<Item = &'a Decision>,
    ) -> Self {
        let mut facts = Self {
            selected,
            decision_groups,
            ..Self::default()
        };
        for decision in decisions {
            let clusters: Vec<Arc<str>> = decision
                .clusters
                .iter()
                .map(|cluster| match facts.clusters.get(cluster.as_str()) {
                    Some(known) => Arc::clone(known),
                    None => Arc::from(cluster.as_str()),
                })
                .collect();
            facts.clusters.extend(clusters.iter().cloned());
            let index = decision.group_index.as_deref().unwrap_or_default();
            match (index.parse(), &mut facts.groups) {
                (Ok(index), Ok(groups)) => {
                    let name = decision.group_name.clone();
                    groups
                        .entry(Group { index, name })
                        .or_default()
                        .extend(clusters);
                }
                (Err(_), Ok(_)) => {
                    facts.groups = Err(format!(
                        "PlacementDecision {}: label {}: incorrect group index {index:?}",
                        decision.name,
                        names::DECISION_GROUP_INDEX_LABEL
                    ));
                }
                (_, Err(_)) => {}
            }
        }
        facts
    }

    /// The groups that `strategy` goes by.
    ///
    /// Differs from upstream: a strategy that does not ask for groups needs no labels. Upstream
    /// refuses the placement whatever the strategy.
    ///
    /// # Errors
    ///
    /// A text that names the decision and its label, where a group's index does not read.
    pub(super) fn groups_for(&self, strategy: &Strategy) -> Result<Groups, String> {
        match &self.groups {
            Ok(groups) => Ok(groups.clone()),
            Err(_) if !strategy.needs_groups() => {
                Ok(Groups::from([(Group::default(), self.clusters.clone())]))
            }
            Err(error) => Err(error.clone()),
        }
    }
}

/// A placement that a set refers to.
#[derive(Debug, Clone, PartialEq)]
pub struct PlacementRef {
    /// Its name.
    pub name: String,
    /// How changes roll out over its clusters, if that reads.
    pub strategy: Result<Strategy, StrategyError>,
}

impl PlacementRef {
    /// Reads the references of a set, in order; of several to one placement, the first.
    pub fn read_all(references: &[LocalPlacementReference]) -> Vec<Self> {
        let mut placements: Vec<Self> = Vec::new();
        for reference in references {
            if placements.iter().all(|known| known.name != reference.name) {
                placements.push(Self {
                    name: reference.name.clone(),
                    strategy: Strategy::read(&reference.rollout_strategy),
                });
            }
        }
        placements
    }
}

/// What the set wants its works to be.
#[derive(Debug, Clone, PartialEq)]
pub struct Template {
    /// `metadata.generation` of the replica set.
    pub generation: i64,
    /// Canonical hash of the template.
    pub spec_hash: [u8; 32],
    /// Labels of the replica set, which its works carry too.
    pub labels: BTreeMap<String, String>,
    /// The referenced placements, in order; of several references to one, the first.
    pub placements: Vec<PlacementRef>,
}

/// What is not to be written for now. Status flows all the same.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pause {
    /// Nothing of the set.
    pub all: bool,
    /// Nothing in these clusters.
    pub clusters: BTreeSet<String>,
}

/// Whether annotations, of a replica set or of a cluster, ask not to write.
pub fn is_paused(annotations: Option<&BTreeMap<String, String>>) -> bool {
    let value = annotations.and_then(|all| all.get(names::PAUSED_ANNOTATION));
    value.is_some_and(|value| value.eq_ignore_ascii_case("true"))
}

impl Pause {
    /// What the annotations of a replica set ask not to write.
    pub fn read(annotations: Option<&BTreeMap<String, String>>) -> Self {
        let clusters = annotations.and_then(|all| all.get(names::PAUSED_CLUSTERS_ANNOTATION));
        let clusters = clusters.map(String::as_str).unwrap_or_default();
        Self {
            all: is_paused(annotations),
            clusters: clusters
                .split(',')
                .map(str::trim)
                .filter(|cluster| !cluster.is_empty())
                .map(ToOwned::to_owned)
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_read_off_annotations() {
        let read = |all: &[(&str, &str)]| {
            let all = all
                .iter()
                .map(|(key, value)| ((*key).into(), (*value).into()));
            Pause::read(Some(&all.collect()))
        };
        assert_eq!(Pause::read(None), Pause::default());
        assert!(read(&[(names::PAUSED_ANNOTATION, "true")]).all);
        assert!(read(&[(names::PAUSED_ANNOTATION, "True")]).all);
        for other in ["", "yes", "false", "1"] {
            assert!(!read(&[(names::PAUSED_ANNOTATION, other)]).all, "{other}");
        }
        let clusters = read(&[(names::PAUSED_CLUSTERS_ANNOTATION, " c2,, c1 ,")]).clusters;
        assert_eq!(Vec::from_iter(clusters), ["c1", "c2"]);
    }
}
