//! What the actor of a work does with what watches have shown.
//!
//! ```text
//!  Sighted ──► pace ──► observe (one patch, no look at the cluster) ──┐
//!                                                                     ├─► something may not be as
//!              nothing to report ─────────────────────────────────────┘   wanted: a pass, with a
//!                                                                         back-off
//! ```
//!
//! A report takes the place of a pass: there is never more than one of either under way.

use std::sync::Arc;
use std::time::Duration;

use actix::{ActorFutureExt, AsyncContext, Context, Handler, fut::wrap_future};
use tracing::warn;

use super::{ManifestWork, Running};
use crate::agent::metrics::ReconcileResult;
use crate::agent::observation::observe;
use crate::agent::observer::{Sight, Sighted, Sighting};
use crate::agent::reconcile::Outcome;
use crate::supervision::{BackoffPolicy, IoError};

/// For objects that others change, and would change again after each repair. The first is repaired
/// at once.
pub(super) const DRIFT: BackoffPolicy = BackoffPolicy {
    first: Duration::from_millis(20),
    max: Duration::from_secs(60),
    reset_after: Duration::from_secs(60),
};

impl ManifestWork {
    /// Sees to what watches have shown, unless that is on its way.
    pub(super) fn look_at_inbox(&mut self, ctx: &mut Context<Self>) {
        if self.stopping || self.running.is_some() || self.report.is_some() || self.inbox.is_empty()
        {
            return;
        }
        let pause = self.pace.pause(self.env.settings().coalesce);
        self.report = Some(ctx.run_later(pause, |actor, ctx| {
            actor.report = None;
            actor.empty_inbox(ctx);
        }));
    }

    fn empty_inbox(&mut self, ctx: &mut Context<Self>) {
        if self.running.is_some() {
            return; // its end looks again
        }
        let (sightings, coverage) = self.inbox.drain();
        if self.work.deleting {
            // What a deletion waits for may be among them.
            let is_gone = |sighting: &Sighting| !matches!(sighting.object, Sight::Present(_));
            if self.retry.is_some() && sightings.values().any(is_gone) {
                self.repair(ctx);
            }
            return;
        }
        if !self.memory.is_of(&self.work) {
            self.run(ctx);
            return;
        }
        let news = |key: &Arc<str>, sighting: &Sighting| {
            let watched = self.memory.watched.get(key);
            watched.is_some_and(|watched| watched.is_news(sighting))
        };
        let news: Vec<_> = sightings
            .into_iter()
            .filter(|(key, sighting)| news(key, sighting))
            .collect();
        let drifted = coverage || news.iter().any(|(_, sighting)| sighting.drifted);
        let reports: Vec<_> = news
            .into_iter()
            .filter(|(_, sighting)| sighting.reportable)
            .collect();
        if reports.is_empty() {
            if drifted {
                self.repair(ctx);
            }
        } else {
            self.observe(reports, drifted, ctx);
        }
    }

    fn observe(
        &mut self,
        sightings: Vec<(Arc<str>, Sighting)>,
        drifted: bool,
        ctx: &mut Context<Self>,
    ) {
        self.running = Some(Running::Report);
        let env = Arc::clone(&self.env);
        let work = self.work.clone();
        let before = Arc::clone(&work.resource_version);
        let memory = std::mem::take(&mut self.memory);
        let report = self
            .io
            .run(async move { observe(&env, work, memory, &sightings).await });
        ctx.spawn(
            wrap_future::<_, Self>(report).map(move |outcome, actor, ctx| {
                actor.observed(outcome, &before, drifted, ctx);
            }),
        );
    }

    fn observed(
        &mut self,
        outcome: Result<Outcome, IoError>,
        before: &Arc<str>,
        drifted: bool,
        ctx: &mut Context<Self>,
    ) {
        self.running = None;
        match outcome {
            // What could not be reported, a pass finds for itself.
            Ok(outcome) if outcome.result == ReconcileResult::Ok => {
                self.memory = outcome.memory;
                // The event of the write may have been here before its answer.
                let written = outcome.work.as_ref();
                if written.is_some_and(|work| work.resource_version == *before) {
                    self.pace.not_needed();
                }
                self.take_written(outcome.work);
            }
            failed => {
                let error = match failed {
                    Ok(outcome) => {
                        self.memory = outcome.memory;
                        outcome.error.unwrap_or_default()
                    }
                    Err(error) => error.to_string(),
                };
                let (cluster, work) = (&self.env.cluster, &self.work.name);
                warn!(cluster, %work, error, "watched values not reported, retrying");
                let delay = self.requests.failed();
                self.run_after(delay, ctx);
            }
        }
        if self.stopping {
            self.report_the_last(ctx);
        } else if std::mem::take(&mut self.again) || self.record_has_moved() {
            self.run(ctx);
        } else if drifted {
            self.repair(ctx);
        }
        self.look_at_inbox(ctx);
    }

    /// Reports what is left to report, for one that stops. While a pass runs, it knows what that would
    /// take.
    pub(super) fn report_the_last(&mut self, ctx: &mut Context<Self>) {
        self.empty_inbox(ctx);
        if self.running != Some(Running::Report) {
            self.last_word = None;
        }
    }

    /// Has a look at objects that may not be as they should.
    fn repair(&mut self, ctx: &mut Context<Self>) {
        if self.repair.is_none() {
            let delay = self.drift.failed();
            self.repair = Some(ctx.run_later(delay, |actor, ctx| {
                actor.repair = None;
                actor.run(ctx);
            }));
        }
    }
}

impl Handler<Sighted> for ManifestWork {
    type Result = ();

    fn handle(&mut self, _: Sighted, ctx: &mut Self::Context) {
        self.look_at_inbox(ctx);
    }
}
