//! What the demo shows: replica sets, clusters, progress and feedback values. Pure.
//!
//! Objects are reduced to what is shown of them when they change: with a thousand clusters, looking at
//! every object for every picture would take more than the rollout itself.

use std::collections::BTreeMap;

use comfy_table::{Table, presets};
use kube::ResourceExt;
use muster_api::conditions;
use muster_api::constants as names;
use muster_api::replicaset::{ManifestWorkReplicaSet, ReplicaSetPhase};
use muster_api::work::{FieldValue, ManifestWork};
use serde_json::Value;

/// Width of a progress bar in characters.
const BAR: usize = 20;

/// Lines that a picture has for clusters even where there is hardly any room.
const LEAST_ROWS: usize = 3;

/// Everything that is on the board.
#[derive(Debug, Default)]
pub(super) struct Board {
    sets: BTreeMap<String, Set>,
    works: BTreeMap<String, Work>,
}

/// A replica set, reduced to what is shown of it.
#[derive(Debug)]
struct Set {
    /// Of its works.
    label: String,
    /// Name, phase and message.
    line: String,
    /// A line for each resource with feedback.
    feedback: Vec<String>,
    /// The sum of ready replicas, if it reports one.
    ready: Option<i64>,
    /// Ready, in its current generation.
    is_ready: bool,
}

/// A work, reduced to what is shown of it.
#[derive(Debug)]
struct Work {
    cluster: String,
    /// The label of its set.
    owner: Option<String>,
    progress: Progress,
    /// Ready replicas that it reports.
    ready: i64,
    values: String,
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

impl Set {
    fn of(set: &ManifestWorkReplicaSet) -> Self {
        let status = set.status.clone().unwrap_or_default();
        let phase = status.phase.as_ref().map_or("-", ReplicaSetPhase::as_str);
        let feedback = status.feedback.iter().map(|resource| {
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
            format!(
                "  {}/{}: {}",
                resource.resource,
                resource.name,
                sums.join(", ")
            )
        });
        let values = status.feedback.iter().flat_map(|resource| &resource.values);
        let ready: Vec<i64> = values
            .filter(|value| value.name == READY_REPLICAS)
            .filter_map(|value| value.sum)
            .collect();
        let observed = conditions::find(
            &status.conditions,
            names::MANIFEST_WORK_REPLICA_SET_CONDITION_READY,
        )
        .and_then(|condition| condition.observed_generation);
        let namespace = set.namespace().unwrap_or_default();
        Self {
            label: muster_core::replicaset::owner_label(&namespace, &set.name_any()),
            line: format!("{}  {phase}  {}", key(set), status.message),
            feedback: feedback.collect(),
            ready: (!ready.is_empty()).then(|| ready.iter().sum()),
            is_ready: status.phase == Some(ReplicaSetPhase::Ready)
                && observed == set.metadata.generation,
        }
    }
}

impl Work {
    fn of(work: &ManifestWork) -> Self {
        let values = || {
            let statuses = work.status.iter();
            statuses
                .flat_map(|status| &status.resource_status.manifests)
                .flat_map(|manifest| &manifest.status_feedback.values)
        };
        let shown: Vec<String> = values()
            .map(|value| format!("{}={}", value.name, value_text(&value.value)))
            .collect();
        let owner = names::MANIFEST_WORK_REPLICA_SET_CONTROLLER_NAME_LABEL_KEY;
        Self {
            cluster: work.namespace().unwrap_or_default(),
            owner: work.labels().get(owner).cloned(),
            progress: Progress::of(work),
            ready: values()
                .filter(|value| value.name == READY_REPLICAS)
                .filter_map(|value| value.value.integer)
                .sum(),
            values: shown.join(" "),
        }
    }
}

impl Board {
    pub(super) fn set_changed(&mut self, set: &ManifestWorkReplicaSet) {
        self.sets.insert(key(set), Set::of(set));
    }

    pub(super) fn set_gone(&mut self, set: &ManifestWorkReplicaSet) {
        self.sets.remove(&key(set));
    }

    pub(super) fn work_changed(&mut self, work: &ManifestWork) {
        self.works.insert(key(work), Work::of(work));
    }

    pub(super) fn work_gone(&mut self, work: &ManifestWork) {
        self.works.remove(&key(work));
    }

    /// The works of a set.
    fn works_of<'a>(&'a self, set: &'a Set) -> impl Iterator<Item = &'a Work> {
        let works = self.works.values();
        works.filter(|work| work.owner.as_ref() == Some(&set.label))
    }

    /// Whether the set's sum of ready replicas, if it tells one, is that of its works: it follows them
    /// by a moment.
    fn has_summed(&self, set: &Set) -> bool {
        set.ready
            .is_none_or(|sum| sum == self.works_of(set).map(|work| work.ready).sum::<i64>())
    }

    /// Whether every replica set is ready and every one of its clusters got there, and the sets say so.
    pub(super) fn everyone_is_there(&self) -> bool {
        !self.sets.is_empty()
            && self
                .sets
                .values()
                .all(|set| set.is_ready && self.has_summed(set))
            && self.works.values().all(|work| work.progress.is_there())
    }

    /// How many works got there, of how many.
    pub(super) fn count(&self) -> (usize, usize) {
        let there = self.works.values();
        let there = there.filter(|work| work.progress.is_there()).count();
        (there, self.works.len())
    }

    /// The board as a picture of at most `height` lines, with a row for each cluster. Where there is
    /// no room for all, those that are not there yet come first.
    pub(super) fn render(&self, height: usize) -> String {
        let mut text = Vec::new();
        let heads: usize = self.sets.values().map(|set| set.feedback.len() + 2).sum();
        let room = height.saturating_sub(heads) / self.sets.len().max(1);
        for set in self.sets.values() {
            text.push(set.line.clone());
            text.extend(set.feedback.iter().cloned());
            let mut works: Vec<&Work> = self.works_of(set).collect();
            let mut left_out = None;
            if works.len() > room.max(LEAST_ROWS) {
                works.sort_by_key(|work| work.progress.is_there());
                let more = works.split_off(room.saturating_sub(1).max(LEAST_ROWS));
                let there = more.iter().filter(|work| work.progress.is_there()).count();
                left_out = Some(format!("  and {} more, {there} of them done", more.len()));
            }
            let mut table = Table::new();
            table
                .load_style(presets::NOTHING)
                .set_header(["  CLUSTER", "PROGRESS", "FEEDBACK"]);
            for work in works {
                table.add_row([
                    format!("  {}", work.cluster),
                    work.progress.bar(),
                    work.values.clone(),
                ]);
            }
            text.push(table.trim_fmt());
            text.extend(left_out);
        }
        text.join("\n")
    }

    /// The board as a line for each set, resource and cluster, under a key that stays the same: for
    /// readers that are told of changes.
    pub(super) fn lines(&self) -> BTreeMap<String, String> {
        let mut lines = BTreeMap::new();
        for (name, set) in &self.sets {
            lines.insert(name.clone(), set.line.clone());
            for (index, line) in set.feedback.iter().enumerate() {
                lines.insert(format!("{name} {index}"), format!("{name}{line}"));
            }
            for work in self.works_of(set) {
                let Work {
                    cluster, values, ..
                } = work;
                let line = format!("{name}  {cluster}  {}  {values}", work.progress.bar());
                lines.insert(format!("{name} of {cluster}"), line.trim_end().to_owned());
            }
        }
        lines
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
        board.set_changed(&set("Progressing", 2, 5));
        board.work_changed(&work("c1", 1));
        board.work_changed(&work("c2", 4));
        let text = board.render(usize::MAX);
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
    fn a_board_that_is_too_high_shows_who_is_not_there_yet() {
        let mut board = Board::default();
        board.set_changed(&set("Progressing", 2, 5));
        for index in 0..100 {
            let ready = if index == 77 { 1 } else { 4 };
            board.work_changed(&work(&format!("c{index:03}"), ready));
        }
        for height in [8, 24, 50] {
            let text = board.render(height);
            assert_eq!(text.lines().count(), height, "{text}");
            assert!(text.contains("  c077 "), "{text}");
            let more = 100 - (height - 4);
            let rest = format!("  and {more} more, {more} of them done");
            assert_eq!(text.lines().last(), Some(rest.as_str()));
        }
        assert_eq!(board.render(103).lines().count(), 103, "all of them");
        assert!(!board.render(103).contains("more"));
        // Nothing can be shown on less than this.
        assert_eq!(board.render(1).lines().count(), 7);
    }

    #[test]
    fn a_board_is_a_line_for_each_of_its_parts() {
        let mut board = Board::default();
        board.set_changed(&set("Progressing", 2, 5));
        board.work_changed(&work("c1", 1));
        let lines: Vec<String> = board.lines().into_values().collect();
        assert_eq!(
            lines,
            [
                "default/hello  Progressing  available in 1/2",
                "default/hello  deployments/web: ReadyReplicas Σ 5",
                "default/hello  c1  █████░░░░░░░░░░░░░░░ 1/4 ready  ReadyReplicas=1",
            ]
        );
    }

    #[test]
    fn everyone_is_there_only_with_all_replicas_and_a_current_status() {
        let mut board = Board::default();
        assert!(!board.everyone_is_there(), "an empty board is no success");
        board.set_changed(&set("Ready", 2, 3));
        board.work_changed(&work("c1", 4));
        assert!(!board.everyone_is_there(), "the sum is of an older state");
        board.set_changed(&set("Ready", 2, 4));
        assert!(board.everyone_is_there());
        board.set_changed(&set("Ready", 1, 4));
        assert!(
            !board.everyone_is_there(),
            "the status is about an older generation"
        );
        board.set_changed(&set("Ready", 2, 7));
        board.work_changed(&work("c2", 3));
        assert!(!board.everyone_is_there(), "a replica is missing");
        board.work_gone(&work("c2", 3));
        board.set_changed(&set("Ready", 2, 4));
        assert!(board.everyone_is_there());
        board.set_changed(&set("Progressing", 2, 4));
        assert!(!board.everyone_is_there());
    }
}
