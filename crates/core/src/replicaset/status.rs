//! What the status of a replica set says.
//!
//! Reasons and meanings of the first three conditions are upstream's; `Progressing`, `Ready`, phase
//! and message follow the design "Progressing and Ready conditions for ManifestWorkReplicaSet".

use std::fmt::Write as _;

use super::obstacles::Turns;
use super::share::Share;
use super::{ReplicaSet, ResourceSum};

use jiff::Timestamp;
use muster_api::constants as names;
use muster_api::replicaset::ReplicaSetPhase;

/// A condition without times; the writer keeps the transition time while the status stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConditionDraft {
    /// Condition type.
    pub kind: &'static str,
    /// `True` or `False`.
    pub status: bool,
    /// Machine-readable reason.
    pub reason: &'static str,
    /// Text for people; empty where upstream's is empty.
    pub message: String,
}

/// Numbers of clusters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SummaryDraft {
    /// With a work, whatever its template.
    pub total: u32,
    /// Current work with condition `Applied`.
    pub applied: u32,
    /// Current work with condition `Available`.
    pub available: u32,
    /// Current work that is on its way.
    pub progressing: u32,
    /// Current work with condition `Degraded`.
    pub degraded: u32,
    /// Selected.
    pub desired_total: u32,
    /// With a work that carries the current template.
    pub updated: u32,
}

/// Status of a replica set, without times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusDraft {
    /// Generation that this status is about.
    pub generation: i64,
    /// Sums over all placements.
    pub summary: SummaryDraft,
    /// Name, progress text and numbers of each placement, in the order of the spec.
    pub placements: Vec<(String, String, SummaryDraft)>,
    /// In a fixed order.
    pub conditions: Vec<ConditionDraft>,
    /// `None` while no cluster is selected.
    pub phase: Option<ReplicaSetPhase>,
    /// One line that says how it stands.
    pub message: String,
    /// Summed-up feedback.
    pub feedback: Vec<ResourceSum>,
}

fn summary(count: Share, desired: usize) -> SummaryDraft {
    SummaryDraft {
        total: count.total,
        applied: count.applied,
        available: count.available,
        progressing: count.progressing,
        degraded: count.degraded,
        desired_total: u32::try_from(desired).unwrap_or(u32::MAX),
        updated: count.updated,
    }
}

impl ReplicaSet {
    /// The status as of the last [`ReplicaSet::take_actions`] and the works since. Costs O(placements +
    /// distinct feedback values).
    pub fn status(&self) -> StatusDraft {
        let mut all = Share::default();
        let mut selected = 0;
        let mut missing = Vec::new();
        let mut problem = None;
        let mut placements = Vec::new();
        let referenced = self
            .template
            .as_ref()
            .map_or(&[][..], |template| &template.placements);
        for reference in referenced {
            let name = &reference.name;
            let Some(placement) = self.placements.get(name) else {
                continue;
            };
            all.add(placement.count);
            let Some(facts) = &placement.facts else {
                missing.push(name.as_str());
                continue;
            };
            selected += facts.selected;
            if let (None, Some(Err(error))) = (&problem, &placement.rollout) {
                problem = Some(format!("placement {name}: {error}"));
            }
            let text = format!(
                "{} ({} / {} clusters applied)",
                facts.decision_groups, placement.count.updated, facts.selected
            );
            let summary = summary(placement.count, facts.clusters.len());
            placements.push((name.clone(), text, summary));
        }
        let summary = summary(all, self.desired_total());
        let verdict = Verdict {
            count: all,
            summary,
            selected,
            missing,
            problem,
            unknown: self.unknown(),
            turns: self.turns(),
        };
        StatusDraft {
            generation: self
                .template
                .as_ref()
                .map_or(0, |template| template.generation),
            summary,
            placements,
            conditions: verdict.conditions(),
            phase: verdict.phase(),
            message: verdict.message(),
            feedback: self.sums.sums(),
        }
    }
}

/// Everything the conditions are decided from.
struct Verdict<'a> {
    count: Share,
    summary: SummaryDraft,
    /// Sum of the placements' own numbers of selected clusters.
    selected: u32,
    missing: Vec<&'a str>,
    /// A strategy or a group that does not read.
    problem: Option<String>,
    unknown: Unknown<'a>,
    turns: Turns<'a>,
}

/// Clusters with works whose agents are away.
#[derive(Default)]
struct Unknown<'a> {
    number: usize,
    /// The one that has been away longest, and since when.
    longest: Option<(Timestamp, &'a str)>,
}

impl ReplicaSet {
    /// Costs O(agents that are away).
    fn unknown(&self) -> Unknown<'_> {
        let has_work = |cluster: &str| {
            let mut placements = self.placements.values();
            placements.any(|placement| placement.works.contains_key(cluster))
        };
        let away = self.away.iter().filter(|(cluster, _)| has_work(cluster));
        let away = away.map(|(cluster, since)| (*since, cluster.as_str()));
        away.fold(Unknown::default(), |unknown, one| Unknown {
            number: unknown.number + 1,
            longest: Some(unknown.longest.map_or(one, |longest| longest.min(one))),
        })
    }
}

impl Verdict<'_> {
    const fn empty(&self) -> bool {
        self.summary.desired_total == 0
    }

    const fn rolled_out(&self) -> bool {
        let desired = self.summary.desired_total;
        !self.empty()
            && self.count.updated == desired
            && self.count.succeeded == desired
            && self.count.succeeded == self.selected
    }

    fn ready(&self) -> bool {
        self.missing.is_empty()
            && self.rolled_out()
            && self.summary.available == self.summary.desired_total
            && self.summary.degraded == 0
            && self.unknown.number == 0
    }

    /// Why there is nothing to roll out to, if so: reason and text.
    fn nothing(&self) -> Option<(&'static str, String)> {
        if !self.missing.is_empty() {
            let text = format!("placement {} does not exist", self.missing.join(", "));
            return Some((names::REASON_PLACEMENT_DECISION_NOT_FOUND, text));
        }
        self.empty().then(|| {
            (
                names::REASON_PLACEMENT_DECISION_EMPTY,
                "no cluster is selected".to_owned(),
            )
        })
    }

    fn available(&self) -> String {
        let SummaryDraft {
            available,
            desired_total,
            degraded,
            ..
        } = self.summary;
        let mut text = format!("ManifestWorks available in {available}/{desired_total} clusters");
        if degraded > 0 {
            let _ = write!(text, ", {degraded} degraded"); // a String never fails
        }
        if let Unknown {
            number,
            longest: Some((since, cluster)),
        } = &self.unknown
        {
            // Since when, and not for how long: the text stays the same while it does.
            let since = since.strftime("%Y-%m-%dT%H:%M:%SZ");
            let others = match number - 1 {
                0 => String::new(),
                others => format!(" and {others} more"),
            };
            let _ = write!(
                text,
                ", unknown in {number}: the agent of {cluster}{others} is away since {since}"
            );
        }
        text
    }

    fn message(&self) -> String {
        if let Some((_, text)) = self.nothing() {
            return text;
        }
        let obstacles = self.problem.iter().cloned().chain(self.turns.obstacles());
        obstacles.fold(self.available(), |text, obstacle| text + "; " + &obstacle)
    }

    fn phase(&self) -> Option<ReplicaSetPhase> {
        if self.nothing().is_some() {
            None
        } else if self.summary.degraded > 0 || self.turns.failed() {
            Some(ReplicaSetPhase::Failed)
        } else if self.ready() {
            Some(ReplicaSetPhase::Ready)
        } else {
            Some(ReplicaSetPhase::Progressing)
        }
    }

    fn conditions(&self) -> Vec<ConditionDraft> {
        let condition =
            |kind, (status, reason, message): (bool, &'static str, String)| ConditionDraft {
                kind,
                status,
                reason,
                message,
            };
        vec![
            condition(
                names::MANIFEST_WORK_REPLICA_SET_CONDITION_PLACEMENT_VERIFIED,
                self.placement_verified(),
            ),
            condition(
                names::MANIFEST_WORK_REPLICA_SET_CONDITION_PLACEMENT_ROLLED_OUT,
                self.placement_rolled_out(),
            ),
            condition(
                names::MANIFEST_WORK_REPLICA_SET_CONDITION_MANIFESTWORK_APPLIED,
                self.works_applied(),
            ),
            condition(
                names::MANIFEST_WORK_REPLICA_SET_CONDITION_PROGRESSING,
                self.progressing(),
            ),
            condition(
                names::MANIFEST_WORK_REPLICA_SET_CONDITION_READY,
                self.readiness(),
            ),
        ]
    }

    fn placement_verified(&self) -> (bool, &'static str, String) {
        match (self.nothing(), &self.problem) {
            (Some((reason, text)), _) => (false, reason, text),
            (None, Some(problem)) => (false, names::REASON_NOT_AS_EXPECTED, problem.clone()),
            (None, None) => (true, names::REASON_AS_EXPECTED, String::new()),
        }
    }

    fn placement_rolled_out(&self) -> (bool, &'static str, String) {
        let (status, reason) = if self.rolled_out() {
            (true, names::REASON_COMPLETE)
        } else if self.empty() && self.missing.is_empty() {
            // Differs from upstream, which shows True for zero clusters.
            (false, names::REASON_PLACEMENT_DECISION_EMPTY)
        } else {
            (false, names::REASON_PROGRESSING)
        };
        (status, reason, String::new())
    }

    fn works_applied(&self) -> (bool, &'static str, String) {
        let SummaryDraft {
            total,
            applied,
            available,
            progressing,
            degraded,
            updated,
            ..
        } = self.summary;
        let settled = total > 0 && available == total && applied == total;
        let under_way = progressing > 0 || self.count.succeeded < total || updated < total;
        let (status, reason) = if settled && progressing == 0 && degraded == 0 {
            (true, names::REASON_AS_EXPECTED)
        } else if total == 0 && self.empty() && self.missing.is_empty() {
            (false, names::REASON_PLACEMENT_DECISION_EMPTY)
        } else if total > 0 && under_way && degraded == 0 {
            (false, names::REASON_PROCESSING)
        } else {
            (false, names::REASON_NOT_AS_EXPECTED)
        };
        (status, reason, String::new())
    }

    fn progressing(&self) -> (bool, &'static str, String) {
        let desired = self.summary.desired_total;
        if let Some((reason, text)) = self.nothing() {
            (false, reason, text)
        } else if self.rolled_out() {
            let succeeded = self.count.succeeded;
            let text = format!("{succeeded} of {desired} clusters reporting Completed state");
            (false, names::REASON_ALL_CLUSTERS_READY, text)
        } else if let Some(why) = self.problem.clone().or_else(|| self.turns.why_paused()) {
            (true, names::REASON_PAUSED, why)
        } else {
            let updated = self.summary.updated;
            let text = format!("{updated} of {desired} clusters reporting progressing state");
            (true, names::REASON_ROLLING_OUT_TO_CLUSTERS, text)
        }
    }

    fn readiness(&self) -> (bool, &'static str, String) {
        match self.nothing() {
            Some((reason, text)) => (false, reason, text),
            None if self.ready() => (true, names::REASON_ALL_CLUSTERS_AVAILABLE, self.available()),
            None => (
                false,
                names::REASON_NOT_ALL_CLUSTERS_AVAILABLE,
                self.available(),
            ),
        }
    }
}
