//! A replica set, its placements, and what they come to in each cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use muster_api::cluster::ManagedCluster;
use muster_api::conditions::{self, FALSE, TRUE};
use muster_api::constants as names;
use muster_api::placement::{Placement, PlacementDecision};
use muster_api::replicaset::ManifestWorkReplicaSet;

use super::cluster::{Ahead, ClusterSeen, cluster_node};
use super::node::{Node, State, Verdict};
use super::reasons;
use super::work::{WorkSeen, started};
use crate::apply::spec_hash;
use crate::replicaset::{
    Decision, Pause, PlacementFacts, PlacementRef, Progress, ReplicaSet, Report, Template,
    WorkFacts, WorkKey, is_paused, placement_label, progress_line,
};
use crate::rollout::WorkConditions;

/// What came of reading an object.
#[derive(Debug, Clone, PartialEq)]
pub enum Found<T> {
    /// It is there.
    There(T),
    /// It does not exist.
    Missing,
    /// It could not be read; why.
    Unread(String),
}

/// A replica set with everything that was read about it.
#[derive(Debug, Clone, PartialEq)]
pub struct SetSeen {
    /// The set.
    pub set: ManifestWorkReplicaSet,
    /// The placements that it refers to, by name.
    pub placements: BTreeMap<String, Found<Placement>>,
    /// The decisions of these placements; `None` if they could not be read.
    pub decisions: Option<Vec<PlacementDecision>>,
    /// Its works.
    pub works: Vec<WorkSeen>,
    /// The clusters that the hub knows, as far as they could be read.
    pub clusters: BTreeMap<String, ManagedCluster>,
    /// When all that was read.
    pub now: Timestamp,
}

impl SetSeen {
    /// The works with this label of a placement, by cluster: of several in one cluster the first by
    /// name that is not being deleted, which is the one that counts.
    fn works_of(&self, label: &str) -> BTreeMap<&str, &WorkSeen> {
        let key = names::MANIFEST_WORK_REPLICA_SET_PLACEMENT_NAME_LABEL_KEY;
        let mut works: Vec<&WorkSeen> = self
            .works
            .iter()
            .filter(|work| work.label(key) == label)
            .collect();
        works.sort_by_key(|work| {
            let deleting = work.metadata.deletion_timestamp.is_some();
            (!deleting, std::cmp::Reverse(work.metadata.name.as_deref()))
        });
        // The last of a cluster stays.
        works
            .into_iter()
            .map(|work| (work.cluster(), work))
            .collect()
    }

    /// Labels of placements that works have and the set does not refer to.
    fn labels_of_former_placements(&self, references: &[PlacementRef]) -> BTreeSet<&str> {
        let known: BTreeSet<String> = references
            .iter()
            .map(|reference| placement_label(&reference.name))
            .collect();
        let key = names::MANIFEST_WORK_REPLICA_SET_PLACEMENT_NAME_LABEL_KEY;
        let labels = self.works.iter().map(|work| work.label(key));
        labels.filter(|label| !known.contains(*label)).collect()
    }

    /// What a placement selects; `None` if it does not exist.
    fn selection(&self, placement: &str) -> Option<PlacementFacts> {
        if self.placements.get(placement) == Some(&Found::Missing) {
            return None;
        }
        let label = |decision: &&PlacementDecision| {
            let labels = decision.metadata.labels.as_ref();
            labels.and_then(|labels| labels.get(names::PLACEMENT_LABEL))
                == Some(&placement.to_owned())
        };
        let decisions: Vec<Decision> = match &self.decisions {
            Some(all) => all.iter().filter(label).map(Decision::read).collect(),
            // Where there are works, there were decisions.
            None => vec![Decision {
                clusters: self
                    .works_of(&placement_label(placement))
                    .into_keys()
                    .map(ToOwned::to_owned)
                    .collect(),
                group_index: Some("0".to_owned()),
                ..Decision::default()
            }],
        };
        let clusters = decisions.iter().map(|decision| decision.clusters.len());
        let selected = u32::try_from(clusters.sum::<usize>()).unwrap_or(u32::MAX);
        Some(PlacementFacts::of(selected, 1, &decisions))
    }

    /// What is not to be written for now.
    fn pause(&self) -> Pause {
        let mut pause = Pause::read(self.set.metadata.annotations.as_ref());
        let paused = self.clusters.iter().filter(|(_, cluster)| {
            // The annotation is the same on both kinds.
            is_paused(cluster.metadata.annotations.as_ref())
        });
        pause.clusters.extend(paused.map(|(name, _)| name.clone()));
        pause
    }

    /// The set as the hub has it: whose turn it is follows from what was read.
    fn replica_set(&self, references: &[PlacementRef]) -> ReplicaSet {
        let meta = &self.set.metadata;
        let mut set = ReplicaSet::new(
            meta.namespace.clone().unwrap_or_default(),
            meta.name.clone().unwrap_or_default(),
        );
        set.tick(self.now);
        set.set_pause(self.pause());
        set.set_template(Template {
            generation: meta.generation.unwrap_or_default(),
            spec_hash: spec_hash(&self.set.spec.manifest_work_template).unwrap_or_default(),
            labels: BTreeMap::new(),
            placements: references.to_vec(),
        });
        for reference in references {
            let facts = self.selection(&reference.name).map(Arc::new);
            set.set_placement(&reference.name, facts);
        }
        for work in &self.works {
            let key = WorkKey {
                cluster: work.cluster().to_owned(),
                name: work.metadata.name.clone().unwrap_or_default(),
            };
            let placement = names::MANIFEST_WORK_REPLICA_SET_PLACEMENT_NAME_LABEL_KEY;
            let facts = WorkFacts {
                placement: work.label(placement).to_owned(),
                generation: work.metadata.generation.unwrap_or_default(),
                version: None,
                spec_hash: work.spec_hash,
                labels: Arc::default(),
                started: started(&work.metadata),
                unannotated: None,
                deleting: work.metadata.deletion_timestamp.is_some(),
                waits_for: None,
                conditions: WorkConditions::read(&work.status.conditions),
                trouble: None,
                report: Report::default(),
            };
            set.set_work(key, facts);
        }
        // Plans the rollouts and lets begin whose turn it is; what would be written is not asked for.
        set.take_actions(usize::MAX);
        set
    }

    /// A placement by itself.
    fn placement_verdict(&self, reference: &PlacementRef, selects: usize) -> Verdict {
        let name = &reference.name;
        let status = self.set.status.as_ref();
        let verified = conditions::find(
            status.map_or(&[][..], |status| &status.conditions),
            names::MANIFEST_WORK_REPLICA_SET_CONDITION_PLACEMENT_VERIFIED,
        );
        let since = |reason: &str| {
            let verified = verified.filter(|found| found.reason == reason);
            verified.map(|found| found.last_transition_time.0)
        };
        let placement = match self.placements.get(name) {
            Some(Found::There(placement)) => placement,
            Some(Found::Unread(why)) if selects == 0 => {
                return Verdict::new(State::Unknown, reasons::NOT_READ, why);
            }
            Some(Found::Unread(_)) => return Verdict::default(),
            Some(Found::Missing) | None => {
                let reason = names::REASON_PLACEMENT_DECISION_NOT_FOUND;
                let message = "it does not exist";
                return Verdict::new(State::Waiting, reason, message).since(since(reason));
            }
        };
        if let Err(error) = &reference.strategy {
            let message = format!("rolloutStrategy.{error}");
            return Verdict::new(State::Failed, names::REASON_NOT_AS_EXPECTED, message)
                .since(since(names::REASON_NOT_AS_EXPECTED));
        }
        let problem = verified
            .filter(|found| found.reason == names::REASON_NOT_AS_EXPECTED)
            .and_then(|found| found.message.strip_prefix(&format!("placement {name}: ")));
        if let Some(problem) = problem {
            return Verdict::new(State::Failed, names::REASON_NOT_AS_EXPECTED, problem)
                .since(since(names::REASON_NOT_AS_EXPECTED));
        }
        let none = Vec::new();
        let all = placement.status.as_ref().map_or(&none, |it| &it.conditions);
        let find = |type_: &str| conditions::find(all, type_);
        if let Some(wrong) = find(names::PLACEMENT_CONDITION_MISCONFIGURED)
            && wrong.status == TRUE
        {
            return Verdict::of(State::Failed, wrong);
        }
        if selects > 0 {
            return Verdict::default();
        }
        match find(names::PLACEMENT_CONDITION_SATISFIED) {
            Some(satisfied) if satisfied.status == FALSE => {
                let mut verdict = Verdict::of(State::Waiting, satisfied);
                verdict.message = format!("it selects no cluster: {}", verdict.message);
                verdict
            }
            Some(_) => {
                let reason = names::REASON_PLACEMENT_DECISION_EMPTY;
                Verdict::new(State::Waiting, reason, "it selects no cluster").since(since(reason))
            }
            None => {
                let message = "nobody has decided which clusters it selects";
                let created = placement.metadata.creation_timestamp.as_ref();
                Verdict::new(State::Waiting, reasons::NOT_SEEN, message)
                    .since(created.map(|time| time.0))
            }
        }
    }

    fn placement_warnings(&self, name: &str) -> Vec<String> {
        let Some(Found::There(placement)) = self.placements.get(name) else {
            return Vec::new();
        };
        let status = placement.status.iter();
        let conditions = status.flat_map(|status| &status.conditions);
        conditions
            .filter(|found| found.type_ == names::PLACEMENT_CONDITION_SATISFIED)
            .filter(|found| found.status == FALSE)
            .map(|found| found.message.clone())
            .collect()
    }
}

/// What the line on the progress says after the name of the set.
fn rest_of_line(set: &ManifestWorkReplicaSet) -> String {
    let line = progress_line(set);
    let rest = line.split_once(": ").map(|(_, rest)| rest.to_owned());
    rest.unwrap_or(line)
}

/// The set by itself.
fn set_verdict(set: &ManifestWorkReplicaSet) -> Verdict {
    let meta = &set.metadata;
    let status = set.status.clone().unwrap_or_default();
    if let Some(since) = &meta.deletion_timestamp {
        let waits = status.message.split("; ").find_map(|part| {
            let waits = part.starts_with("deletion waits for ");
            waits.then(|| part.to_owned())
        });
        let message = waits.unwrap_or_else(|| "it is being deleted".to_owned());
        return Verdict::new(State::Waiting, reasons::DELETING, message).since(since.0);
    }
    let progress = Progress::of(set);
    if progress == Progress::Unseen {
        let generation = meta.generation.unwrap_or_default();
        let message = format!("no hub has looked at generation {generation}");
        let created = meta.creation_timestamp.as_ref().map(|time| time.0);
        return Verdict::new(State::Waiting, reasons::NOT_SEEN, message)
            .since(created.filter(|_| status.conditions.is_empty()));
    }
    if progress != Progress::Ready && is_paused(meta.annotations.as_ref()) {
        let progressing = conditions::find(
            &status.conditions,
            names::MANIFEST_WORK_REPLICA_SET_CONDITION_PROGRESSING,
        );
        let since = progressing.filter(|found| found.reason == names::REASON_PAUSED);
        let message = format!("paused by annotation {}", names::PAUSED_ANNOTATION);
        return Verdict::new(State::Waiting, reasons::PAUSED, message)
            .since(since.map(|found| found.last_transition_time.0));
    }
    Verdict {
        message: rest_of_line(set),
        ..Verdict::default()
    }
}

/// The set that made a work, by itself.
pub fn explain_owner(set: &ManifestWorkReplicaSet, work: &WorkSeen) -> Node {
    let meta = &set.metadata;
    let mut node = Node::new(
        "ManifestWorkReplicaSet",
        meta.namespace.clone().unwrap_or_default(),
        meta.name.clone().unwrap_or_default(),
    );
    let template = spec_hash(&set.spec.manifest_work_template).ok();
    if template.is_some_and(|template| template != work.spec_hash) {
        let warning = "the work has not its current template";
        node.warnings.push(warning.to_owned());
    }
    node.with(set_verdict(set))
}

/// Explains a replica set.
pub fn explain_set(seen: &SetSeen) -> Node {
    let meta = &seen.set.metadata;
    let namespace = meta.namespace.clone().unwrap_or_default();
    let references = PlacementRef::read_all(&seen.set.spec.placement_refs);
    let set = seen.replica_set(&references);
    let (pause, own_pause) = (seen.pause(), Pause::read(meta.annotations.as_ref()));
    let message = seen
        .set
        .status
        .as_ref()
        .map_or("", |status| &*status.message);
    let verdict = set_verdict(&seen.set);
    let clusters_of = |works: &BTreeMap<&str, &WorkSeen>, selected: &BTreeSet<Arc<str>>| {
        let here = ClusterSeen {
            set: &set,
            template: set.template_hash(),
            deleting: verdict.reason == reasons::DELETING,
            pause: &pause,
            own_pause: &own_pause,
            message,
            selected,
            ahead: Ahead::of(&set, selected),
        };
        let selected = selected.iter().map(|cluster| &**cluster);
        let clusters: BTreeSet<&str> = selected.chain(works.keys().copied()).collect();
        let nodes = clusters.into_iter().map(|cluster| {
            let work = works.get(cluster).copied();
            cluster_node(&here, cluster, work, seen.clusters.get(cluster))
        });
        nodes.collect::<Vec<Node>>()
    };
    let placements = references.iter().map(|reference| {
        let name = &reference.name;
        let selected = seen.selection(name).unwrap_or_default().clusters;
        let clusters = clusters_of(&seen.works_of(&placement_label(name)), &selected);
        let verdict = seen.placement_verdict(reference, selected.len());
        let mut node = Node::new("Placement", &*namespace, name);
        if verdict.is_ok() {
            node.warnings = seen.placement_warnings(name);
        }
        node.with(verdict).over(clusters)
    });
    let mut children: Vec<Node> = placements.collect();
    for label in seen.labels_of_former_placements(&references) {
        let clusters = clusters_of(&seen.works_of(label), &BTreeSet::new());
        let node = Node::new("Placement", &*namespace, label).over(clusters);
        children.push(Node {
            message: "the set does not refer to it any more".to_owned(),
            ..node
        });
    }
    let mut node = Node::new(
        "ManifestWorkReplicaSet",
        namespace,
        meta.name.clone().unwrap_or_default(),
    );
    let parts = message.split("; ").flat_map(|part| part.split(", "));
    let revisions = parts.filter(|part| part.starts_with("revisions are not kept"));
    node.warnings = revisions.map(ToOwned::to_owned).collect();
    if verdict.is_ok() && own_pause.all {
        let warning = format!("paused by annotation {}", names::PAUSED_ANNOTATION);
        node.warnings.push(warning);
    }
    node.with(verdict).over(children)
}
