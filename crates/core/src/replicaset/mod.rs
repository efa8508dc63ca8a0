//! A ManifestWorkReplicaSet as pure state: facts in, wanted actions and status out.
//!
//! ```text
//! set_template ─┐                         ┌─► take_actions(): create, patch, delete works
//! set_placement ┼─► ReplicaSet (indexes,  ┼─► status(): summary, conditions, phase, feedback
//! set_work ─────┤   counters, sums, one   └─► wake_at(): when time alone changes something
//! set_pause ────┤   Rollout a placement)
//! tick ─────────┘
//! ```
//!
//! Several placements may select one cluster, which then has a work of each. They hold the same
//! objects, so they change together: the first placement of the set that selects a cluster decides
//! when its turn is, and counts it in its concurrency and failures.
//!
//! One work event costs O(log) whatever the number of clusters: counters and sums are adjusted by
//! the difference that the work makes (contract C10). [`ReplicaSet::recount`] computes the same
//! numbers from scratch, for tests and for the periodic self-check.

mod cluster_standing;
mod facts;
mod hindrances;
mod naming;
mod obstacles;
mod overlap;
mod progress;
mod report;
mod revisions;
mod share;
mod standing;
mod status;
mod sums;
mod troubles;
mod turns;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

pub use cluster_standing::{ClusterStanding, Stand};
pub use facts::{
    Decision, Pause, PlacementFacts, PlacementRef, Template, WorkFacts, WorkKey, is_paused,
};
pub use hindrances::Hindrances;
pub use naming::{
    MAX_LABEL_VALUE, MAX_WORK_NAME, owner_label, placement_label, revision_name, work_name,
};
pub use progress::{Progress, progress_line};
pub use report::{Report, ResourceKey, Value};
pub use revisions::{
    DEFAULT_HISTORY_LIMIT, HistoryLimitError, Revision, RevisionWrite, Undo, UndoError, Wanted,
    history_limit, is_controlled_by, plan_revisions, revised_template, undo,
};
pub use standing::{STALLED_AFTER, Standing};
pub use status::{ConditionDraft, StatusDraft, SummaryDraft};
pub use sums::{FeedbackSums, ResourceSum, ValueSum};
pub use troubles::{MAX_TROUBLE_BYTES, Trouble, TroubleKind};

use jiff::Timestamp;
use muster_api::constants as names;

use crate::rollout::Rollout;
use overlap::Overlap;
use report::Shapes;
use share::{Part, Share};
use troubles::Troubles;

/// A write that the set wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkAction {
    /// Create the work, or take it over if it exists with this set's labels.
    Create {
        /// The work.
        key: WorkKey,
        /// Name of the placement that selects the cluster.
        placement: String,
    },
    /// Bring the work up to date.
    Patch {
        /// The work.
        key: WorkKey,
        /// Name of the placement that selects the cluster.
        placement: String,
        /// Spec and labels; else only the labels: the spec is right, or has not had its turn.
        template: bool,
    },
    /// Delete the work: its cluster or placement is not selected any more.
    Delete {
        /// The work.
        key: WorkKey,
    },
}

impl WorkAction {
    /// The work that is written.
    pub const fn key(&self) -> &WorkKey {
        match self {
            Self::Create { key, .. } | Self::Patch { key, .. } | Self::Delete { key } => key,
        }
    }
}

/// Why rollouts have to be built anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Replan {
    /// Placements or strategies have changed.
    Clusters,
    /// The template has: every cluster needs its turn again.
    Template,
}

#[derive(Debug)]
struct Work {
    facts: WorkFacts,
    part: Part,
    /// Whether `facts.report` is part of the sums.
    reported: bool,
}

impl Work {
    /// Whether it counts, and has the current template.
    const fn is_current(&self) -> bool {
        self.part.is_current()
    }
}

#[derive(Debug, Default)]
struct Placement {
    /// `None` while the Placement does not exist.
    facts: Option<Arc<PlacementFacts>>,
    /// Over the clusters that no earlier placement selects; or why there can be none.
    rollout: Option<Result<Rollout, String>>,
    count: Share,
    /// The work that stands for a cluster: the first by name among those not deleting.
    works: BTreeMap<String, BTreeSet<String>>,
}

/// State of one replica set. See the module.
#[derive(Debug)]
pub struct ReplicaSet {
    namespace: String,
    name: String,
    template: Option<Template>,
    /// Keys of labels that an earlier template had and this one has not: they leave the works.
    retired_labels: BTreeSet<String>,
    placements: BTreeMap<String, Placement>,
    works: HashMap<WorkKey, Work>,
    sums: FeedbackSums,
    shapes: Shapes,
    overlap: Overlap,
    troubles: Troubles,
    /// The trouble that was told last: mostly, all clusters have the same.
    last_trouble: Option<Arc<Trouble>>,
    /// Number of selected clusters.
    desired: usize,
    hindrances: Hindrances,
    /// Clusters whose agents are away, and since when.
    away: Arc<BTreeMap<String, Timestamp>>,
    pause: Pause,
    /// Whether the rollouts have to be built anew, and for a new template.
    replan: Option<Replan>,
    /// The time that was told last.
    now: Timestamp,
    /// Clusters whose wanted and existing works may differ, per placement name. The empty name
    /// stands for works of placements that are not referenced.
    dirty: BTreeSet<(String, String)>,
}

impl Placement {
    fn rollout(&self) -> Option<&Rollout> {
        self.rollout.as_ref()?.as_ref().ok()
    }

    fn rollout_mut(&mut self) -> Option<&mut Rollout> {
        self.rollout.as_mut()?.as_mut().ok()
    }

    fn selects(&self, cluster: &str) -> bool {
        let facts = self.facts.as_ref();
        facts.is_some_and(|facts| facts.clusters.contains(cluster))
    }
}

impl ReplicaSet {
    /// A set that knows nothing yet.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            template: None,
            retired_labels: BTreeSet::new(),
            placements: BTreeMap::new(),
            works: HashMap::new(),
            sums: FeedbackSums::default(),
            shapes: Shapes::default(),
            overlap: Overlap::default(),
            troubles: Troubles::default(),
            last_trouble: None,
            desired: 0,
            hindrances: Hindrances::default(),
            away: Arc::default(),
            pause: Pause::default(),
            replan: None,
            now: Timestamp::UNIX_EPOCH,
            dirty: BTreeSet::new(),
        }
    }

    /// Which agents are away, and since when: nobody knows how their clusters are now.
    pub fn set_away(&mut self, away: Arc<BTreeMap<String, Timestamp>>) {
        self.away = away;
    }

    /// What else stands in the way, which only the hub knows.
    pub fn set_hindrances(&mut self, hindrances: Hindrances) {
        self.hindrances = hindrances;
    }

    /// The set changed: every work is compared again.
    pub fn set_template(&mut self, template: Template) {
        if self.template.as_ref() == Some(&template) {
            return;
        }
        let named = |name: &String| template.placements.iter().any(|p| p.name == *name);
        self.placements.retain(|name, _| named(name));
        for placement in &template.placements {
            self.placements.entry(placement.name.clone()).or_default();
        }
        let before = self.template.take();
        let spec_changed = before
            .as_ref()
            .is_none_or(|before| before.spec_hash != template.spec_hash);
        if let Some(before) = before {
            self.retired_labels.extend(before.labels.into_keys());
        }
        self.retired_labels
            .retain(|key| !template.labels.contains_key(key));
        self.template = Some(template);
        self.rebuild(spec_changed);
    }

    /// What a referenced placement selects; `None` when it does not exist. Placements that the
    /// template does not reference are ignored.
    pub fn set_placement(&mut self, name: &str, facts: Option<Arc<PlacementFacts>>) {
        let Some(placement) = self.placements.get_mut(name) else {
            return;
        };
        if placement.facts == facts {
            return;
        }
        let none = BTreeSet::new();
        let before = placement.facts.take();
        placement.facts = facts;
        let old = before.as_ref().map_or(&none, |facts| &facts.clusters);
        let new = placement
            .facts
            .as_ref()
            .map_or(&none, |facts| &facts.clusters);
        let changed = old.symmetric_difference(new);
        let mut changed: BTreeSet<String> = changed.map(ToString::to_string).collect();
        if before.is_some() != placement.facts.is_some() {
            // Works of clusters that the placement may no longer select count while it is missing.
            changed.extend(placement.works.keys().cloned());
        }
        self.count_desired();
        for cluster in &changed {
            self.reweigh(cluster);
        }
        self.dirty.extend(
            changed
                .into_iter()
                .map(|cluster| (name.to_owned(), cluster)),
        );
        self.replan.get_or_insert(Replan::Clusters);
    }

    /// A work of this set appeared or changed.
    pub fn set_work(&mut self, key: WorkKey, mut facts: WorkFacts) {
        self.shapes.share(&mut facts.report);
        self.share_trouble(&mut facts.trouble);
        let Some(facts) = self.update(&key, facts) else {
            return;
        };
        self.forget(&key);
        let cluster = key.cluster.clone();
        let placement = self.placement_of(&facts.placement);
        if let Some(placement) = placement
            .as_ref()
            .and_then(|name| self.placements.get_mut(name))
        {
            placement
                .works
                .entry(cluster.clone())
                .or_default()
                .insert(key.name.clone());
        }
        self.works.insert(
            key,
            Work {
                facts,
                part: Part::default(),
                reported: false,
            },
        );
        let placement = placement.unwrap_or_default();
        self.reweigh(&cluster);
        self.dirty.insert((placement, cluster));
    }

    /// Takes in what the agent of a known work says; gives back what more than that has changed.
    ///
    /// This is nearly every event, so it costs the same for any number of clusters: no index is
    /// touched, and nothing is to be written to the work.
    fn update(&mut self, key: &WorkKey, mut facts: WorkFacts) -> Option<WorkFacts> {
        let Some(work) = self.works.get_mut(key) else {
            return Some(facts);
        };
        let Work {
            facts: known,
            part,
            reported,
        } = work;
        if *known == facts {
            return None;
        }
        let same = known.spec_hash == facts.spec_hash
            && known.deleting == facts.deleting
            && known.placement == facts.placement
            && known.labels == facts.labels;
        let placement = self.placements.get_mut(&facts.placement).filter(|_| same);
        let Some(placement) = placement else {
            return Some(facts);
        };
        let mut share = part.share();
        let mut changed = false;
        if part.counts() {
            let current = share.updated > 0;
            placement.count.subtract(share);
            share = Share::of(&facts, current);
            placement.count.add(share);
            changed = *part != Part::of(share);
            *part = Part::of(share);
            if current {
                let (before, now) = (known.trouble.as_ref(), facts.trouble.as_ref());
                self.troubles.replace(key, before, now);
                if let Some(rollout) = placement.rollout_mut() {
                    let says = turns::says(&facts, self.now);
                    turns::tell(rollout, &key.cluster, Some(says), self.now);
                }
            }
        }
        if *reported {
            self.sums.replace(&known.report, &facts.report);
        }
        // The text that was read with the event is freed while it is still in the CPU's cache.
        std::mem::swap(&mut known.placement, &mut facts.placement);
        *known = facts;
        if changed {
            self.measure_overlap(&key.cluster);
        }
        None
    }

    /// Has equal troubles of many works kept once.
    fn share_trouble(&mut self, trouble: &mut Option<Arc<Trouble>>) {
        let Some(told) = trouble else { return };
        match &self.last_trouble {
            Some(last) if last == told => *told = Arc::clone(last),
            _ => self.last_trouble = Some(Arc::clone(told)),
        }
    }

    /// A work of this set is gone.
    pub fn remove_work(&mut self, key: &WorkKey) {
        if let Some(placement) = self.forget(key) {
            self.reweigh(&key.cluster);
            self.dirty.insert((placement, key.cluster.clone()));
        }
    }

    /// Keys of the works that exist.
    pub fn work_keys(&self) -> impl Iterator<Item = &WorkKey> {
        self.works.keys()
    }

    /// Whether a work exists and is not being deleted.
    pub fn has_live_work(&self, key: &WorkKey) -> bool {
        self.works.get(key).is_some_and(|work| !work.facts.deleting)
    }

    /// Marks a cluster for another comparison: a write to it failed.
    pub fn retry(&mut self, key: &WorkKey) {
        let placement = match self.works.get(key) {
            Some(work) => self.placement_of(&work.facts.placement).unwrap_or_default(),
            None => match self.placements.iter().find(|(placement, _)| {
                work_name(&self.namespace, &self.name, placement) == key.name
            }) {
                Some((placement, _)) => placement.clone(),
                None => return,
            },
        };
        self.dirty.insert((placement, key.cluster.clone()));
    }

    /// The writes that are wanted now, of so many clusters that they are at least `limit`; each is handed out once, until something
    /// about its cluster changes or [`ReplicaSet::retry`] is called.
    ///
    /// Begins with what changed placements and templates mean for rollouts, which is put off until
    /// here: one placement may change a hundred times before anything is to be written.
    pub fn take_actions(&mut self, limit: usize) -> Vec<WorkAction> {
        let mut actions = Vec::new();
        self.plan();
        if self.pause.all {
            return actions;
        }
        self.advance();
        while actions.len() < limit {
            let Some((placement, cluster)) = self.dirty.pop_first() else {
                break;
            };
            self.decide(&placement, &cluster, &mut actions);
        }
        actions
    }

    /// Whether [`ReplicaSet::take_actions`] may have more.
    pub fn has_actions(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// The labels that the work of a cluster selected by `placement` must carry. It may carry
    /// others, which are left alone.
    pub fn work_labels(&self, placement: &str) -> BTreeMap<String, String> {
        let mut labels = self
            .template
            .as_ref()
            .map(|template| template.labels.clone())
            .unwrap_or_default();
        labels.insert(
            names::MANIFEST_WORK_REPLICA_SET_CONTROLLER_NAME_LABEL_KEY.to_owned(),
            owner_label(&self.namespace, &self.name),
        );
        labels.insert(
            names::MANIFEST_WORK_REPLICA_SET_PLACEMENT_NAME_LABEL_KEY.to_owned(),
            placement_label(placement),
        );
        labels
    }

    /// Keys in `labels` that an earlier template put there and this one does not want.
    pub fn stale_labels<'a>(
        &'a self,
        labels: &'a BTreeMap<String, String>,
    ) -> impl Iterator<Item = &'a String> {
        labels
            .keys()
            .filter(|key| self.retired_labels.contains(*key))
    }

    /// What is known of a work.
    pub fn work(&self, key: &WorkKey) -> Option<&WorkFacts> {
        self.works.get(key).map(|work| &work.facts)
    }

    /// Hash of the template that works are to carry; `None` while none is known.
    pub fn template_hash(&self) -> Option<[u8; 32]> {
        self.template.as_ref().map(|template| template.spec_hash)
    }

    /// Whether nothing of the set is to be written for now.
    pub const fn is_paused(&self) -> bool {
        self.pause.all
    }

    /// Clusters selected by any placement.
    pub const fn desired_total(&self) -> usize {
        self.desired
    }

    fn decide(&self, placement_name: &str, cluster: &str, actions: &mut Vec<WorkAction>) {
        let Some(template) = &self.template else {
            return;
        };
        if self.held(cluster) {
            return; // looked at again when it is not
        }
        let Some(placement) = self.placements.get(placement_name) else {
            // Works whose placement is not referenced any more.
            let orphans = self.works.iter().filter(|(key, work)| {
                key.cluster == cluster
                    && !work.facts.deleting
                    && self.placement_of(&work.facts.placement).is_none()
            });
            let mut keys: Vec<WorkKey> = orphans.map(|(key, _)| key.clone()).collect();
            keys.sort();
            actions.extend(keys.into_iter().map(|key| WorkAction::Delete { key }));
            return;
        };
        let Some(facts) = &placement.facts else {
            return;
        };
        let key_of = |name: &str| WorkKey {
            cluster: cluster.to_owned(),
            name: name.to_owned(),
        };
        let live: Vec<&String> = placement
            .works
            .get(cluster)
            .into_iter()
            .flatten()
            .filter(|name| self.has_live_work(&key_of(name)))
            .collect();
        if !facts.clusters.contains(cluster) {
            actions.extend(
                live.into_iter()
                    .map(|name| WorkAction::Delete { key: key_of(name) }),
            );
            return;
        }
        let turn = self.turn(cluster);
        let has_come = turn.is_some_and(crate::rollout::Turn::has_come);
        // Two works for one cluster come from a hub that generated names: the first stays.
        let mut live = live.into_iter();
        match live.next() {
            None if !has_come => {}
            None => {
                let name = work_name(&self.namespace, &self.name, placement_name);
                let key = key_of(&name);
                // A work of this name that is being deleted must be gone first; its removal marks
                // the cluster again.
                if !self.works.contains_key(&key) {
                    let placement = placement_name.to_owned();
                    actions.push(WorkAction::Create { key, placement });
                }
            }
            Some(name) => {
                let key = key_of(name);
                let wanted = self.work_labels(placement_name);
                if let Some(Work { facts, .. }) = self.works.get(&key) {
                    let labelled = wanted
                        .iter()
                        .all(|(key, value)| facts.labels.get(key) == Some(value))
                        && self.stale_labels(&facts.labels).next().is_none();
                    let template = has_come && facts.spec_hash != template.spec_hash;
                    if template || !labelled {
                        actions.push(WorkAction::Patch {
                            key,
                            placement: placement_name.to_owned(),
                            template,
                        });
                    }
                }
            }
        }
        actions.extend(live.map(|name| WorkAction::Delete { key: key_of(name) }));
    }

    /// The referenced placement that a label value means.
    fn placement_of(&self, label: &str) -> Option<String> {
        if self.placements.contains_key(label) {
            return Some(label.to_owned());
        }
        self.placements
            .keys()
            .find(|name| placement_label(name) == label)
            .cloned()
    }

    /// Takes a work out of all indexes; returns the name of its placement (empty: unreferenced).
    fn forget(&mut self, key: &WorkKey) -> Option<String> {
        let work = self.works.remove(key)?;
        if work.reported {
            self.sums.remove(&work.facts.report);
        }
        if work.is_current() {
            self.troubles
                .replace(key, work.facts.trouble.as_ref(), None);
        }
        let name = self.placement_of(&work.facts.placement);
        if let Some(placement) = name.as_ref().and_then(|name| self.placements.get_mut(name)) {
            placement.count.subtract(work.part.share());
            if let Some(names) = placement.works.get_mut(&key.cluster) {
                names.remove(&key.name);
                if names.is_empty() {
                    placement.works.remove(&key.cluster);
                }
            }
        }
        Some(name.unwrap_or_default())
    }

    /// Brings the shares of a cluster's works up to date: of each placement that selects it, one
    /// live work counts, the others do not.
    fn reweigh(&mut self, cluster: &str) {
        let Some(template) = &self.template else {
            return;
        };
        // Of several placements with the cluster, the first whose work has the template reports for
        // it: the objects are the same.
        let mut told = false;
        for reference in &template.placements {
            let Some(placement) = self.placements.get_mut(&reference.name) else {
                continue;
            };
            // A placement that is gone says nothing about its clusters: their works stay and count.
            let selected = placement
                .facts
                .as_ref()
                .is_none_or(|facts| facts.clusters.contains(cluster));
            let mut counted = false;
            let mut says = None;
            for name in placement.works.get(cluster).into_iter().flatten() {
                let key = WorkKey {
                    cluster: cluster.to_owned(),
                    name: name.clone(),
                };
                let Some(work) = self.works.get_mut(&key) else {
                    continue;
                };
                let counts = selected && !counted && !work.facts.deleting;
                counted |= counts;
                let current = counts && work.facts.spec_hash == template.spec_hash;
                let share = if counts {
                    Share::of(&work.facts, current)
                } else {
                    Share::default()
                };
                if current != work.is_current() {
                    let trouble = work.facts.trouble.as_ref();
                    let (before, now) = if current {
                        (None, trouble)
                    } else {
                        (trouble, None)
                    };
                    self.troubles.replace(&key, before, now);
                }
                placement.count.subtract(work.part.share());
                placement.count.add(share);
                work.part = Part::of(share);
                let reports = current && !told;
                told |= reports;
                if reports != work.reported {
                    if reports {
                        self.sums.add(&work.facts.report);
                    } else {
                        self.sums.remove(&work.facts.report);
                    }
                    work.reported = reports;
                }
                if current {
                    says = Some(turns::says(&work.facts, self.now));
                }
            }
            if let Some(rollout) = placement.rollout.as_mut().and_then(|r| r.as_mut().ok()) {
                turns::tell(rollout, cluster, says, self.now);
            }
        }
        self.measure_overlap(cluster);
    }

    /// Builds every index and counter again and marks every cluster; for a changed template.
    fn rebuild(&mut self, spec_changed: bool) {
        self.sums = FeedbackSums::default();
        self.overlap.clear();
        self.troubles.clear();
        self.count_desired();
        for placement in self.placements.values_mut() {
            placement.count = Share::default();
            placement.works.clear();
        }
        let keys: Vec<(WorkKey, Option<String>)> = self
            .works
            .iter()
            .map(|(key, work)| (key.clone(), self.placement_of(&work.facts.placement)))
            .collect();
        for (key, placement) in keys {
            if let Some(work) = self.works.get_mut(&key) {
                work.part = Part::default();
                work.reported = false;
            }
            let name = placement.unwrap_or_default();
            if let Some(placement) = self.placements.get_mut(&name) {
                placement
                    .works
                    .entry(key.cluster.clone())
                    .or_default()
                    .insert(key.name);
            }
            self.dirty.insert((name, key.cluster));
        }
        let mut clusters: BTreeSet<(String, String)> = self.dirty.clone();
        for (name, placement) in &self.placements {
            let selected = placement.facts.iter().flat_map(|facts| &facts.clusters);
            clusters.extend(selected.map(|cluster| (name.clone(), cluster.to_string())));
        }
        if spec_changed {
            self.replan = Some(Replan::Template);
        }
        self.replan.get_or_insert(Replan::Clusters);
        let names: BTreeSet<&String> = clusters.iter().map(|(_, cluster)| cluster).collect();
        for cluster in names {
            self.reweigh(cluster);
        }
        self.dirty = clusters;
    }

    /// Computes the status from scratch, by building a fresh set from the same facts.
    pub fn recount(&self) -> StatusDraft {
        let mut fresh = Self::new(self.namespace.clone(), self.name.clone());
        fresh.now = self.now;
        if let Some(template) = &self.template {
            fresh.set_template(template.clone());
        }
        for (name, placement) in &self.placements {
            fresh.set_placement(name, placement.facts.clone());
        }
        for (key, work) in &self.works {
            fresh.set_work(key.clone(), work.facts.clone());
        }
        fresh.set_away(Arc::clone(&self.away));
        fresh.set_hindrances(self.hindrances.clone());
        fresh.set_pause(self.pause.clone());
        // Who was told to begin, and when a cluster proved itself, no work tells.
        for (name, placement) in &self.placements {
            if let Some(copy) = fresh.placements.get_mut(name) {
                copy.rollout = match &placement.rollout {
                    Some(Ok(rollout)) => Some(Ok(rollout.recounted())),
                    other => other.clone(),
                };
            }
        }
        fresh.status()
    }
}

#[cfg(test)]
mod agreement_tests;
#[cfg(test)]
mod rollout_tests;
#[cfg(test)]
mod tests;
