//! What is done with what watches have shown: values go to the hub without a look at the cluster.

use std::sync::Arc;

use jiff::Timestamp;
use muster_watchdog::working_on;

use super::evaluation::derive_conditions;
use super::hub::Hub;
use super::manifest::key_of;
use super::metrics::{self, ReconcileResult};
use super::observer::{Sight, Sighting};
use super::reconcile::{Env, Memory, Outcome};
use super::status::{self, Observed};
use super::work::Work;

/// Reports what watches have shown of objects whose work has been looked at before. Objects that
/// are not watched any more are left out.
pub(super) async fn observe(
    env: &Env,
    work: Work,
    mut memory: Memory,
    sightings: &[(Arc<str>, Sighting)],
) -> Outcome {
    let generation = work.generation;
    let before = work.status();
    let mut observed = Vec::with_capacity(sightings.len());
    for (key, sighting) in sightings {
        let Some(watched) = memory.watched.get_mut(key) else {
            continue;
        };
        let manifests = &before.resource_status.manifests;
        let known = usize::try_from(watched.ordinal)
            .ok()
            .and_then(|ordinal| manifests.get(ordinal))
            .filter(|known| key_of(&known.resource_meta) == **key);
        let Some(known) = known else { continue };
        working_on(Arc::clone(key));
        let subject = Arc::clone(&watched.observer);
        let plans = subject.plans.clone();
        let read = match &sighting.object {
            Sight::Present(object) => {
                let (feedback, derived) = if let Some(feedback) = &sighting.feedback {
                    (feedback.clone(), None)
                } else {
                    let Ok(object) = subject.decode(object) else {
                        continue;
                    };
                    let feedback = plans.feedback.evaluate(&object, subject.limits);
                    let derived = derive_conditions(plans.rules.clone(), object, generation).await;
                    (feedback, derived)
                };
                if !plans.feedback.is_empty() {
                    metrics::feedback_evaluated(!feedback.errors.is_empty());
                }
                Some((feedback, derived))
            }
            Sight::Deleted(_) => None,
            Sight::Absent => continue,
        };
        watched.note(&sighting.object);
        memory.quiet_since = None;
        observed.push(Observed {
            meta: known.resource_meta.clone(),
            read,
            plans,
            polled: watched.polled(),
        });
    }
    let now = Timestamp::now();
    let compose = |before: &_| status::observe(before, &observed, generation, now);
    let hub: &Hub = &env.hub;
    let refused = &mut memory.refused;
    let written = hub.patch_feedback(&work, refused, compose).await;
    let mut outcome = Outcome::new(Some(work), memory, ReconcileResult::Ok);
    match written {
        Ok(work) => {
            for (_, sighting) in sightings {
                metrics::feedback_latency(sighting.since.elapsed());
            }
            outcome.work = work;
            outcome
        }
        Err(error) => outcome.failed(&error, "hub"),
    }
}
