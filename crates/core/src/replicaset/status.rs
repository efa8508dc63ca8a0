//! What the status of a replica set says.
//!
//! Reasons and meanings of the first three conditions are upstream's; `Progressing`, `Ready`, phase
//! and message follow the design "Progressing and Ready conditions for ManifestWorkReplicaSet".

use std::fmt::Write as _;

use super::obstacles::{Turns, second};
use super::share::Share;
use super::troubles::{TroubleKind, Troubles};
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
    /// Current work with condition `Degraded`, or that could not be applied.
    ///
    /// Differs from upstream, where what cannot be applied is counted nowhere.
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
        degraded: count.degraded + count.failed,
        desired_total: u32::try_from(desired).unwrap_or(u32::MAX),
        updated: count.updated,
    }
}

impl ReplicaSet {
    /// The status as of the last [`ReplicaSet::take_actions`] and the works since. Costs O(placements +
    /// distinct feedback values).
    pub fn status(&self) -> StatusDraft {
        let mut all = Share::default();
        let mut selected: u32 = 0;
        let mut in_placements = 0;
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
            in_placements += facts.clusters.len();
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
        // Clusters that several placements select are one each.
        all.subtract(self.overlap.total);
        let twice = in_placements - self.desired;
        let selected = selected.saturating_sub(u32::try_from(twice).unwrap_or(u32::MAX));
        let mut summary = summary(all, self.desired);
        let unknown = self.unknown();
        summary.available -= unknown.available;
        let deletion = self.hindrances.deleting.then(|| {
            let waits = self.deletion_waits_for();
            waits.unwrap_or_else(|| "it is being deleted".to_owned())
        });
        let verdict = Verdict {
            count: all,
            summary,
            selected,
            missing,
            problem,
            unknown,
            turns: self.turns(),
            troubles: &self.troubles,
            hindrances: self.hindrances.text(),
            deletion,
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
    troubles: &'a Troubles,
    hindrances: Option<String>,
    /// What the deletion of the set waits for, where it is being deleted.
    deletion: Option<String>,
}

/// Clusters with works whose agents are away.
#[derive(Default)]
struct Unknown<'a> {
    number: usize,
    /// Those that were available when their agents were last heard of.
    available: u32,
    /// The one that has been away longest, and since when.
    longest: Option<(Timestamp, &'a str)>,
}

impl ReplicaSet {
    /// Costs O(agents that are away).
    fn unknown(&self) -> Unknown<'_> {
        let mut unknown = Unknown::default();
        for (cluster, since) in &*self.away {
            let share = self.share_of_cluster(cluster);
            if share.total == 0 {
                continue; // nobody waits for it
            }
            let one = (*since, cluster.as_str());
            unknown.number += 1;
            unknown.available += share.available;
            unknown.longest = Some(unknown.longest.map_or(one, |longest| longest.min(one)));
        }
        unknown
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
        self.deletion.is_none()
            && self.missing.is_empty()
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

    /// `, 2 failed, 1 degraded`; empty if nothing is wrong.
    fn wrong(&self) -> String {
        let Share {
            failed, degraded, ..
        } = self.count;
        let kinds = [
            (failed, TroubleKind::Failed),
            (degraded, TroubleKind::Degraded),
        ];
        let some = kinds.into_iter().filter(|(number, _)| *number > 0);
        some.fold(String::new(), |mut text, (number, kind)| {
            let _ = write!(text, ", {number} {kind}"); // a String never fails
            text
        })
    }

    /// The first cluster of each kind of trouble, with what is wrong there.
    fn named(&self) -> String {
        use TroubleKind::{Degraded, Failed, NotAvailable};
        [Failed, Degraded, NotAvailable]
            .into_iter()
            .filter_map(|kind| Some((kind, self.troubles.first(kind)?)))
            .fold(String::new(), |mut text, (kind, (cluster, trouble))| {
                let _ = write!(text, "; first {kind} {cluster}: {}", trouble.text);
                text
            })
    }

    /// `unknown in 1: the agent of c1 is away since 2026-01-01T00:00:00Z`
    fn away(&self) -> Option<String> {
        // Since when, and not for how long: the text stays the same while it does.
        let (since, cluster) = self.unknown.longest?;
        let number = self.unknown.number;
        let others = match number - 1 {
            0 => String::new(),
            others => format!(" and {others} more"),
        };
        let since = second(since);
        Some(format!(
            "unknown in {number}: the agent of {cluster}{others} is away since {since}"
        ))
    }

    fn available(&self) -> String {
        let SummaryDraft {
            available,
            desired_total,
            ..
        } = self.summary;
        let mut text = format!("ManifestWorks available in {available}/{desired_total} clusters");
        text.push_str(&self.wrong());
        if let Some(away) = self.away() {
            let _ = write!(text, ", {away}");
        }
        text + &self.named()
    }

    fn message(&self) -> String {
        if let Some(waits) = &self.deletion {
            return waits.clone();
        }
        if let Some((_, text)) = self.nothing() {
            return self.with_hindrances(text);
        }
        let obstacles = self.problem.iter().cloned().chain(self.turns.obstacles());
        let text = obstacles.fold(self.available(), |text, obstacle| text + "; " + &obstacle);
        self.with_hindrances(text)
    }

    fn with_hindrances(&self, mut text: String) -> String {
        if let Some(more) = &self.hindrances {
            let _ = write!(text, "; {more}");
        }
        text
    }

    fn phase(&self) -> Option<ReplicaSetPhase> {
        if self.deletion.is_some() {
            Some(ReplicaSetPhase::Progressing)
        } else if self.nothing().is_some() {
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
            progressing,
            degraded,
            updated,
            ..
        } = self.summary;
        let available = self.count.available; // also where the agent is away now
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
        let Share {
            updated,
            succeeded,
            spoiled,
            failed,
            degraded,
            ..
        } = self.count;
        let wrong = self.wrong();
        if let Some(waits) = &self.deletion {
            return (true, names::REASON_DELETING, waits.clone());
        }
        if let Some((reason, text)) = self.nothing() {
            return (false, reason, self.with_hindrances(text));
        }
        if self.ready() {
            let text = format!("{succeeded} of {desired} clusters reporting Completed state");
            return (false, names::REASON_ALL_CLUSTERS_READY, text);
        }
        if self.phase() == Some(ReplicaSetPhase::Failed) && self.turns.is_over() {
            let completed = succeeded - spoiled;
            let text = format!(
                "{completed} of {desired} clusters reporting Completed state{wrong}{}{}",
                self.turns.timed_out(),
                self.named()
            );
            return (
                false,
                names::REASON_CLUSTERS_FAILED,
                self.with_hindrances(text),
            );
        }
        if let Some(why) = self.problem.clone().or_else(|| self.turns.why_paused()) {
            let why = self.with_hindrances(why + &self.named());
            return (true, names::REASON_PAUSED, why);
        }
        if self.rolled_out() && degraded == 0 {
            // All of them have got there; what is missing is not the rollout's.
            if let Some(away) = self.away() {
                return (true, names::REASON_AGENT_AWAY, away);
            }
            return (
                true,
                names::REASON_NOT_ALL_CLUSTERS_AVAILABLE,
                self.available(),
            );
        }
        let number = updated.saturating_sub(failed + degraded);
        let text = format!(
            "{number} of {desired} clusters reporting progressing state{wrong}{}",
            self.named()
        );
        (
            true,
            names::REASON_ROLLING_OUT_TO_CLUSTERS,
            self.with_hindrances(text),
        )
    }

    fn readiness(&self) -> (bool, &'static str, String) {
        if let Some(waits) = &self.deletion {
            return (false, names::REASON_DELETING, waits.clone());
        }
        let text = match &self.hindrances {
            Some(_) => self.message(),
            None => self.available(),
        };
        match self.nothing() {
            Some((reason, text)) => (false, reason, self.with_hindrances(text)),
            None if self.ready() => (true, names::REASON_ALL_CLUSTERS_AVAILABLE, text),
            None => (false, names::REASON_NOT_ALL_CLUSTERS_AVAILABLE, text),
        }
    }
}
