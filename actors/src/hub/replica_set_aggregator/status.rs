//! When and how an aggregator writes the status of its set.

use std::time::Duration;

use actix::{ActorFutureExt, AsyncContext, Context, SpawnHandle, WrapFuture};
use jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::core::Resource;
use muster_api::replicaset::ManifestWorkReplicaSetStatus;
use muster_core::events::{Happening, of_set};
use muster_core::replicaset::{Hindrances, StatusDraft};
use tokio::time::Instant;
use tracing::warn;

use super::super::views::SetView;
use super::super::work_writes::WriteError;
use super::super::{metrics, status_writer};
use super::ReplicaSetAggregator;
use crate::events::reference;
use crate::supervision::{Backoff, BackoffPolicy};

/// When the status is written next.
#[derive(Debug)]
pub(super) struct StatusWrites {
    in_flight: bool,
    /// Something happened that may show in the status.
    pub(super) due: bool,
    /// Set while a write waits for the coalescing time or a back-off to end.
    timer: Option<SpawnHandle>,
    last: Option<Instant>,
    pub(super) backoff: Backoff,
}

impl Default for StatusWrites {
    fn default() -> Self {
        let backoff = Backoff::new(BackoffPolicy::REQUEST);
        Self {
            in_flight: false,
            due: false,
            timer: None,
            last: None,
            backoff,
        }
    }
}

impl ReplicaSetAggregator {
    /// Writes the status at once if the last write is longer ago than the coalescing time, else at
    /// its end: the first change is seen immediately, a burst costs one write per interval, and the
    /// last state always arrives.
    pub(super) fn schedule_status(&mut self, ctx: &mut Context<Self>) {
        if self.status_writes.in_flight
            || self.status_writes.timer.is_some()
            || !self.status_writes.due
        {
            return;
        }
        let coalesce = self.deps.settings.coalesce;
        let elapsed = self
            .status_writes
            .last
            .map_or(coalesce, |last| last.elapsed());
        if elapsed >= coalesce {
            self.write_status(ctx);
        } else {
            self.status_later(coalesce.saturating_sub(elapsed), ctx);
        }
    }

    pub(super) fn status_later(&mut self, delay: Duration, ctx: &mut Context<Self>) {
        self.status_writes.timer = Some(ctx.run_later(delay, |actor, ctx| {
            actor.status_writes.timer = None;
            actor.schedule_status(ctx);
        }));
    }

    /// The status as it is to be, with what only the hub knows.
    pub(super) fn draft(&mut self) -> StatusDraft {
        let first = self.failing.iter().next();
        self.set.set_hindrances(Hindrances {
            deleting: self.deleting(),
            refused: self.failing.len(),
            first_refused: first.map(|(key, (_, text))| (key.cluster.clone(), text.clone())),
            revisions: self.revision_troubles(),
        });
        self.set.status()
    }

    /// Starts the status patch, if it changes anything. Returns whether one is under way.
    pub(super) fn write_status(&mut self, ctx: &mut Context<Self>) {
        self.status_writes.due = false;
        let draft = self.draft();
        self.counted.follow(&draft);
        let next = status_writer::status(draft, &self.status, Timestamp::now());
        if next == self.status {
            return;
        }
        self.status_writes.in_flight = true;
        self.status_writes.last = Some(Instant::now());
        let task = self.patch_status(&next);
        ctx.spawn(task.into_actor(self).map(|result, actor, ctx| {
            actor.status_written(next, result, ctx);
        }));
    }

    pub(super) fn patch_status(
        &self,
        next: &ManifestWorkReplicaSetStatus,
    ) -> impl Future<Output = Result<(), WriteError>> + 'static {
        let patch = status_writer::patch(next);
        let sets: Api<SetView> = Api::namespaced(self.deps.client.clone(), &self.id.namespace);
        let name = self.id.name.clone();
        let task = self.deps.io.run(async move {
            sets.patch_status(&name, &PatchParams::default(), &Patch::Merge(patch))
                .await
        });
        async move {
            task.await??;
            Ok(())
        }
    }

    /// Tells what has happened to the set as an Event.
    pub(super) fn tell(&self, happening: Happening) {
        if let (Some(events), Some(view)) = (&self.deps.events, &self.view) {
            let (version, kind) = (SetView::api_version(&()), SetView::kind(&()));
            events.tell(reference(&version, &kind, &view.metadata), happening);
        }
    }

    pub(super) fn status_written(
        &mut self,
        written: ManifestWorkReplicaSetStatus,
        result: Result<(), WriteError>,
        ctx: &mut Context<Self>,
    ) {
        self.status_writes.in_flight = false;
        metrics::status_patched(result.is_ok());
        match result {
            Ok(()) => {
                self.status_writes.backoff.succeeded();
                for happening in of_set(&self.status, &written) {
                    self.tell(happening);
                }
                self.status = written;
                self.schedule_status(ctx);
            }
            Err(error) if error.is_not_found() => {} // the set is gone; the watch will say so
            Err(error) => {
                let delay = self.status_writes.backoff.failed();
                warn!(replica_set = %self.id, error = error.text(), ?delay, "status not written");
                self.status_writes.due = true;
                self.status_later(delay, ctx);
            }
        }
    }
}
