//! What the demo shows: replica sets, clusters, progress and feedback values. Pure.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use comfy_table::{Table, presets};
use kube::ResourceExt;
use muster_api::conditions;
use muster_api::constants as names;
use muster_api::replicaset::{ManifestWorkReplicaSet, ReplicaSetPhase};
use muster_api::work::{FieldValue, ManifestWork};
use serde_json::Value;

/// Width of a progress bar in characters.
const BAR: usize = 20;

/// Everything that is on the board.
#[derive(Debug, Default)]
pub(super) struct Board {
    sets: BTreeMap<String, ManifestWorkReplicaSet>,
    works: BTreeMap<String, ManifestWork>,
}

fn key(object: &impl ResourceExt) -> String {
    format!(
        "{}/{}",
        object.namespace().unwrap_or_default(),
        object.name_any()
    )
}

/// Feedback value that progress is told by.
const READY_REPLICAS: &str = "ReadyReplicas";

/// How far one cluster is with one work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Progress {
    /// Ready replicas and wanted replicas, over all workloads of the work that report them.
    replicas: Option<(i64, i64)>,
    applied: bool,
    available: bool,
}

impl Progress {
    fn of(work: &ManifestWork) -> Self {
        let generation = work.metadata.generation.unwrap_or_default();
        let status = work.status.clone().unwrap_or_default();
        let holds = |kind| conditions::is_true_for(&status.conditions, kind, generation);
        let mut replicas = None;
        for (ordinal, manifest) in work.spec.workload.manifests.iter().enumerate() {
            let wanted = manifest
                .read::<Value>()
                .ok()
                .and_then(|m| m["spec"]["replicas"].as_i64());
            let Some(wanted) = wanted else { continue };
            let reported =
                status.resource_status.manifests.iter().find(|reported| {
                    usize::try_from(reported.resource_meta.ordinal) == Ok(ordinal)
                });
            let ready = reported.and_then(|reported| {
                let values = &reported.status_feedback.values;
                values
                    .iter()
                    .find(|v| v.name == READY_REPLICAS)
                    .and_then(|v| v.value.integer)
            });
            let asked = work.spec.manifest_configs.iter().any(|config| {
                config
                    .feedback_rules
                    .iter()
                    .any(|rule| rule.type_ == muster_api::work::FeedBackType::WellKnownStatus)
            });
            if asked {
                let (sum, total) = replicas.unwrap_or((0, 0));
                replicas = Some((sum + ready.unwrap_or(0), total + wanted));
            }
        }
        Self {
            replicas,
            applied: holds(names::WORK_APPLIED),
            available: holds(names::WORK_AVAILABLE),
        }
    }

    /// Applied and available, with every wanted replica ready.
    fn is_there(&self) -> bool {
        self.applied && self.available && self.replicas.is_none_or(|(ready, all)| ready >= all)
    }

    fn bar(&self) -> String {
        let (done, all, text) = if let Some((ready, all)) = self.replicas {
            (ready, all, format!("{ready}/{all} ready"))
        } else {
            let text = match (self.applied, self.available) {
                (true, true) => "available",
                (true, false) => "applied",
                _ => "waiting",
            };
            let done = i64::from(self.applied) + i64::from(self.available);
            (done, 2, text.to_owned())
        };
        let share = usize::try_from(done.clamp(0, all) * 20 / all.max(1))
            .unwrap_or(0)
            .min(BAR);
        format!("{}{} {text}", "█".repeat(share), "░".repeat(BAR - share))
    }
}

fn value_text(value: &FieldValue) -> String {
    value
        .integer
        .map(|n| n.to_string())
        .or_else(|| value.boolean.map(|b| b.to_string()))
        .or_else(|| value.string.clone())
        .or_else(|| value.json_raw.clone())
        .unwrap_or_default()
}

impl Board {
    pub(super) fn set_changed(&mut self, set: ManifestWorkReplicaSet) {
        self.sets.insert(key(&set), set);
    }

    pub(super) fn set_gone(&mut self, set: &ManifestWorkReplicaSet) {
        self.sets.remove(&key(set));
    }

    pub(super) fn work_changed(&mut self, work: ManifestWork) {
        self.works.insert(key(&work), work);
    }

    pub(super) fn work_gone(&mut self, work: &ManifestWork) {
        self.works.remove(&key(work));
    }

    /// The works of a set.
    fn works_of(&self, set: &ManifestWorkReplicaSet) -> impl Iterator<Item = &ManifestWork> {
        let namespace = set.namespace().unwrap_or_default();
        let label = muster_core::replicaset::owner_label(&namespace, &set.name_any());
        let owner = names::MANIFEST_WORK_REPLICA_SET_CONTROLLER_NAME_LABEL_KEY;
        let works = self.works.values();
        works.filter(move |work| work.labels().get(owner) == Some(&label))
    }

    /// Whether the set's sum of ready replicas, if it tells one, is that of its works: it follows them
    /// by a moment.
    fn has_summed(&self, set: &ManifestWorkReplicaSet) -> bool {
        let resources = set.status.iter().flat_map(|status| &status.feedback);
        let mut sums = resources
            .flat_map(|resource| &resource.values)
            .filter(|value| value.name == READY_REPLICAS)
            .filter_map(|value| value.sum)
            .peekable();
        if sums.peek().is_none() {
            return true;
        }
        let statuses = self.works_of(set).filter_map(|work| work.status.as_ref());
        let reported: i64 = statuses
            .flat_map(|status| &status.resource_status.manifests)
            .flat_map(|manifest| &manifest.status_feedback.values)
            .filter(|value| value.name == READY_REPLICAS)
            .filter_map(|value| value.value.integer)
            .sum();
        sums.sum::<i64>() == reported
    }

    /// Whether every replica set is ready and every one of its clusters got there, and the sets say so.
    pub(super) fn everyone_is_there(&self) -> bool {
        let ready = |set: &ManifestWorkReplicaSet| {
            let status = set.status.clone().unwrap_or_default();
            let observed = conditions::find(
                &status.conditions,
                names::MANIFEST_WORK_REPLICA_SET_CONDITION_READY,
            )
            .and_then(|condition| condition.observed_generation);
            status.phase == Some(ReplicaSetPhase::Ready) && observed == set.metadata.generation
        };
        !self.sets.is_empty()
            && self
                .sets
                .values()
                .all(|set| ready(set) && self.has_summed(set))
            && self
                .works
                .values()
                .all(|work| Progress::of(work).is_there())
    }

    /// How many works got there, of how many.
    pub(super) fn count(&self) -> (usize, usize) {
        let there = self
            .works
            .values()
            .filter(|work| Progress::of(work).is_there())
            .count();
        (there, self.works.len())
    }

    /// The board as text, one line for each set and one row for each of its clusters.
    pub(super) fn render(&self) -> String {
        let mut text = String::new();
        for (name, set) in &self.sets {
            let status = set.status.clone().unwrap_or_default();
            let phase = status.phase.as_ref().map_or("-", ReplicaSetPhase::as_str);
            // Writing to a String does not fail.
            let _ = writeln!(text, "{name}  {phase}  {}", status.message);
            for resource in &status.feedback {
                let sums: Vec<String> = resource
                    .values
                    .iter()
                    .map(|value| {
                        if let Some(sum) = value.sum {
                            return format!("{} Σ {sum}", value.name);
                        }
                        let counts = value.counts.iter();
                        let counts: Vec<String> = counts
                            .map(|c| format!("{} ×{}", c.value, c.count))
                            .collect();
                        format!("{} {}", value.name, counts.join(" "))
                    })
                    .collect();
                let _ = writeln!(
                    text,
                    "  {}/{}: {}",
                    resource.resource,
                    resource.name,
                    sums.join(", ")
                );
            }
            let mut table = Table::new();
            table
                .load_style(presets::NOTHING)
                .set_header(["  CLUSTER", "PROGRESS", "FEEDBACK"]);
            for work in self.works_of(set) {
                let values: Vec<String> = work
                    .status
                    .iter()
                    .flat_map(|status| &status.resource_status.manifests)
                    .flat_map(|manifest| &manifest.status_feedback.values)
                    .map(|value| format!("{}={}", value.name, value_text(&value.value)))
                    .collect();
                table.add_row([
                    format!("  {}", work.namespace().unwrap_or_default()),
                    Progress::of(work).bar(),
                    values.join(" "),
                ]);
            }
            let _ = writeln!(text, "{}", table.trim_fmt());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn work(cluster: &str, ready: i64) -> ManifestWork {
        serde_json::from_value(json!({
            "metadata": {"namespace": cluster, "name": "hello", "generation": 1,
                "labels": {"work.open-cluster-management.io/manifestworkreplicaset": "default.hello"}},
            "spec": {
                "workload": {"manifests": [
                    {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 4}}]},
                "manifestConfigs": [{
                    "resourceIdentifier": {"group": "apps", "resource": "deployments", "name": "web"},
                    "feedbackRules": [{"type": "WellKnownStatus"}]}]},
            "status": {
                "conditions": [
                    {"type": "Applied", "status": "True", "observedGeneration": 1, "reason": "R",
                        "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"},
                    {"type": "Available", "status": "True", "observedGeneration": 1, "reason": "R",
                        "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
                "resourceStatus": {"manifests": [{
                    "resourceMeta": {"ordinal": 0, "resource": "deployments", "name": "web"},
                    "conditions": [],
                    "statusFeedback": {"values": [{"name": "ReadyReplicas",
                        "fieldValue": {"type": "Integer", "integer": ready}}]}}]}}
        }))
        .unwrap()
    }

    fn set(phase: &str, observed: i64, ready: i64) -> ManifestWorkReplicaSet {
        serde_json::from_value(json!({
            "metadata": {"namespace": "default", "name": "hello", "generation": 2},
            "spec": {"placementRefs": [{"name": "p"}]},
            "status": {"phase": phase, "message": "available in 1/2",
                "conditions": [{"type": "Ready", "status": "True", "observedGeneration": observed,
                    "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
                "feedback": [{"group": "apps", "resource": "deployments", "name": "web",
                    "values": [{"name": "ReadyReplicas", "clusters": 2, "sum": ready, "min": 1, "max": 4}]}]}
        }))
        .unwrap()
    }

    #[test]
    fn a_board_shows_sets_clusters_bars_and_values() {
        let mut board = Board::default();
        board.set_changed(set("Progressing", 2, 5));
        board.work_changed(work("c1", 1));
        board.work_changed(work("c2", 4));
        let text = board.render();
        assert!(
            text.contains("default/hello  Progressing  available in 1/2"),
            "{text}"
        );
        assert!(
            text.contains("deployments/web: ReadyReplicas Σ 5"),
            "{text}"
        );
        assert!(text.contains("█████░░░░░░░░░░░░░░░ 1/4 ready"), "{text}");
        assert!(text.contains("████████████████████ 4/4 ready"), "{text}");
        assert!(text.contains("ReadyReplicas=1"), "{text}");
        assert_eq!(board.count(), (1, 2));
    }

    #[test]
    fn everyone_is_there_only_with_all_replicas_and_a_current_status() {
        let mut board = Board::default();
        assert!(!board.everyone_is_there(), "an empty board is no success");
        board.set_changed(set("Ready", 2, 3));
        board.work_changed(work("c1", 4));
        assert!(!board.everyone_is_there(), "the sum is of an older state");
        board.set_changed(set("Ready", 2, 4));
        assert!(board.everyone_is_there());
        board.set_changed(set("Ready", 1, 4));
        assert!(
            !board.everyone_is_there(),
            "the status is about an older generation"
        );
        board.set_changed(set("Ready", 2, 7));
        board.work_changed(work("c2", 3));
        assert!(!board.everyone_is_there(), "a replica is missing");
        board.work_gone(&work("c2", 3));
        board.set_changed(set("Ready", 2, 4));
        assert!(board.everyone_is_there());
        board.set_changed(set("Progressing", 2, 4));
        assert!(!board.everyone_is_there());
    }
}
