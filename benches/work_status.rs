//! P3 (part): what it costs to compute the status of a work with 1, 10 and 100 manifests, of which
//! each has four feedback values, and one shows other values than before.
//!
//! A pure library bench. Subject: the functions of `muster_core` that the agent computes a status of,
//! one after the other as there. Beside it, in the same rounds: `serde_json` encodes the status,
//! which is what a write would cost at least. Control for growth: the status is computed anew for
//! each manifest, which must grow by one power more, or the bench cannot see growth.

use std::hint::black_box;

use anyhow::{Result, ensure};
use jiff::Timestamp;
use muster_api::work::{
    ManifestCondition, ManifestResourceMeta, ManifestWorkStatus, StatusFeedbackResult,
};
use muster_core::availability::{Sighting, available_of_manifest};
use muster_core::conditions::{
    self, aggregate, applied_of_manifest, applied_of_work, merge_manifest_conditions,
    prune_rule_conditions,
};
use muster_core::feedback::{self, Feedback, FeedbackLimits, FeedbackPlan};
use serde_json::json;

use crate::support::figure::{Figure, Report};
use crate::support::fixtures;
use crate::support::machine::cpu_each;
use crate::support::rounds::{Ratio, exponent, median};
use crate::support::size::sized;
use crate::support::slow;

const ROUNDS: usize = sized(9, 2);
const SIZES: [usize; 3] = [1, 10, 100];
/// Manifests that are gone through in each measurement, over all repetitions.
const MANIFESTS: usize = sized(4_000, 400);
const GENERATION: i64 = 1;
const NOW: Timestamp = Timestamp::UNIX_EPOCH;
/// The goal: at most this exponent of growth over the number of manifests.
const MOST_EXPONENT: f64 = 1.05;

/// What was seen of one manifest: found, and read.
struct Seen {
    meta: ManifestResourceMeta,
    feedback: Feedback,
}

/// A work of so many manifests, and what two passes saw of it.
struct Subject {
    plan: FeedbackPlan,
    before: ManifestWorkStatus,
    seen: Vec<Seen>,
}

impl Subject {
    fn new(manifests: usize) -> Result<Self> {
        let plan = FeedbackPlan::compile(&fixtures::feedback_rules());
        let seen = |index, ready| {
            let mut object = fixtures::deployment();
            object["status"] = fixtures::deployment_status(ready);
            Ok(Seen {
                meta: ManifestResourceMeta {
                    ordinal: i32::try_from(index)?,
                    group: "apps".to_owned(),
                    version: "v1".to_owned(),
                    kind: "Deployment".to_owned(),
                    resource: "deployments".to_owned(),
                    name: format!("web-{index}"),
                    namespace: "default".to_owned(),
                },
                feedback: plan.evaluate(&object, FeedbackLimits::default()),
            })
        };
        let mut all: Vec<Seen> = (0..manifests)
            .map(|index| seen(index, 2))
            .collect::<Result<_>>()?;
        let before = compose(&ManifestWorkStatus::default(), &all, &plan);
        if let Some(last) = all.last_mut() {
            *last = seen(manifests - 1, 3)?;
        }
        let subject = Self {
            plan,
            before,
            seen: all,
        };
        let after = subject.status();
        let values = after.resource_status.manifests.iter();
        let values: usize = values.map(|it| it.status_feedback.values.len()).sum();
        ensure!(
            values == 4 * manifests && after != subject.before,
            "odd status: {after:?}"
        );
        Ok(subject)
    }

    fn status(&self) -> ManifestWorkStatus {
        compose(black_box(&self.before), &self.seen, &self.plan)
    }

    /// The control.
    fn status_of_each(&self) {
        for _ in &self.seen {
            drop(black_box(self.status()));
        }
    }
}

/// As the agent does it for objects that it has found.
fn compose(before: &ManifestWorkStatus, seen: &[Seen], plan: &FeedbackPlan) -> ManifestWorkStatus {
    let applied = seen
        .iter()
        .map(|seen| ManifestCondition {
            resource_meta: seen.meta.clone(),
            status_feedback: StatusFeedbackResult::default(),
            conditions: vec![applied_of_manifest(Ok(()), GENERATION, NOW)],
        })
        .collect();
    let mut manifests = merge_manifest_conditions(&before.resource_status.manifests, applied);
    for (manifest, seen) in manifests.iter_mut().zip(seen) {
        let available = available_of_manifest(Sighting::Found, NOW);
        conditions::set(&mut manifest.conditions, available);
        feedback::record(manifest, plan, seen.feedback.clone(), NOW);
        prune_rule_conditions(&mut manifest.conditions, GENERATION);
    }
    let mut status = before.clone();
    for condition in applied_of_work(&manifests, GENERATION, NOW)
        .into_iter()
        .chain(aggregate(&manifests, GENERATION, NOW))
    {
        conditions::set(&mut status.conditions, condition);
    }
    prune_rule_conditions(&mut status.conditions, GENERATION);
    status.resource_status.manifests = manifests;
    status
}

#[allow(clippy::cast_precision_loss, reason = "at most 100 manifests")]
pub(crate) fn run() -> Result<()> {
    let mut report = Report::start();
    let subjects = SIZES.map(Subject::new);
    let subjects = subjects.into_iter().collect::<Result<Vec<_>>>()?;
    let mut ours = vec![Vec::new(); SIZES.len()];
    let mut encoded = vec![Vec::new(); SIZES.len()];
    let mut controls = vec![Vec::new(); SIZES.len()];
    for _ in 0..ROUNDS {
        for (index, subject) in subjects.iter().enumerate() {
            let times = MANIFESTS / SIZES[index];
            let status = subject.status();
            encoded[index].push(cpu_each(times, || {
                drop(black_box(serde_json::to_vec(black_box(&status))));
            }));
            ours[index].push(cpu_each(times, || {
                if slow::injected() {
                    subject.status_of_each();
                }
                drop(black_box(subject.status()));
            }));
            controls[index].push(cpu_each((times / SIZES[index]).max(1), || {
                subject.status_of_each();
            }));
        }
    }
    for (index, manifests) in SIZES.into_iter().enumerate() {
        report.add(
            Figure::new(
                "P3",
                format!("CPU of a work's status, manifests: {manifests} (part)"),
                median(&ours[index]),
                "µs",
            )
            .in_rounds(
                median(&encoded[index]),
                "serde_json encodes it, same rounds",
                Ratio::of(&encoded[index], &ours[index]),
            )
            .params(json!({"manifests": manifests, "values_each": 4,
                "times": MANIFESTS / manifests})),
        );
    }
    let exponents = |costs: &[Vec<f64>]| -> f64 {
        let of_round = |round: usize| {
            let sizes = SIZES.iter().map(|size| *size as f64);
            let points: Vec<(f64, f64)> = sizes
                .zip(costs.iter().map(|rounds| rounds[round]))
                .collect();
            exponent(&points)
        };
        median(&(0..ROUNDS).map(of_round).collect::<Vec<f64>>())
    };
    let growth = exponents(&ours);
    let name = "exponent of a work's status over its manifests";
    report.add(
        Figure::new("P3", name, growth, "")
            .below(
                exponents(&controls),
                "computed anew for each manifest, same rounds",
            )
            .met_in_full(growth <= MOST_EXPONENT)
            .params(json!({"manifests": SIZES, "rounds": ROUNDS})),
    );
    Ok(())
}
