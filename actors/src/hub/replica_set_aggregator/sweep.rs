//! The regular look at which works there are, beside the watch that tells of them.
//!
//! A watch that has lost an event, or a router that has, would leave a set at odds with its works for
//! ever. What differs is read anew, one by one, and taken like any other fact; each difference is a
//! defect, and counted.

use std::collections::HashSet;

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};
use jiff::Timestamp;
use kube::Api;
use kube::api::ListParams;
use kube::core::{ObjectMeta, PartialObjectMeta};
use muster_api::constants as names;
use muster_core::replicaset::{WorkKey, owner_label};
use tracing::{debug, warn};

use super::super::metrics;
use super::super::views::{ObjectName, OwnedWork, WorkView, version_of};
use super::super::work_writes::WriteError;
use super::{Listing, ReplicaSetAggregator};

/// Works in one answer: names, labels and annotations only, 1 KB each.
const PAGE: u32 = 500;

impl ReplicaSetAggregator {
    /// Lists what there is of the works, and compares.
    pub(super) fn sweep(&mut self, ctx: &mut Context<Self>) {
        if !self.complete() || self.listing != Listing::Not {
            return;
        }
        self.listing = Listing::Sweep;
        self.fresher_than_list.clear();
        let owner = owner_label(&self.id.namespace, &self.id.name);
        let label = names::MANIFEST_WORK_REPLICA_SET_CONTROLLER_NAME_LABEL_KEY;
        let selector = format!("{label}={owner}");
        let works: Api<WorkView> = Api::all(self.deps.client.clone());
        let task = self.deps.io.run(list(works, selector));
        ctx.spawn(task.into_actor(self).map(|result, actor, ctx| {
            let listed = result.map_err(WriteError::from);
            match listed.and_then(|answer| answer.map_err(Into::into)) {
                Ok(listed) => actor.compare(&listed, ctx),
                // The next one is not far.
                Err(error) => debug!(replica_set = %actor.id, error = error.text(), "not swept"),
            }
            actor.listing = Listing::Not;
            actor.fresher_than_list.clear();
        }));
    }

    fn compare(&mut self, listed: &[ObjectMeta], ctx: &mut Context<Self>) {
        let mut there = HashSet::new();
        let mut differ = Vec::new();
        for meta in listed {
            let ObjectName { namespace, name } = ObjectName::of(meta);
            let key = WorkKey {
                cluster: namespace,
                name,
            };
            let known = self.set.work(&key);
            let version = version_of(meta);
            if known.is_none_or(|known| known.version != version) {
                differ.push((key.clone(), known.and_then(|known| known.version)));
            }
            there.insert(key);
        }
        let gone = self.set.work_keys().filter(|key| !there.contains(*key));
        differ.extend(gone.map(|key| (key.clone(), self.version_known(key))));
        // What was told since the list was asked for is newer than it.
        differ.retain(|(key, _)| {
            !self.fresher_than_list.contains(key) && !self.in_flight.contains(key)
        });
        for (key, known) in differ {
            self.read_again(key, known, ctx);
        }
    }

    fn version_known(&self, key: &WorkKey) -> Option<u64> {
        self.set.work(key).and_then(|known| known.version)
    }

    /// Reads one work that is not as it was told to be, of which this version is `known`.
    fn read_again(&self, key: WorkKey, known: Option<u64>, ctx: &mut Context<Self>) {
        let works: Api<WorkView> = Api::namespaced(self.deps.client.clone(), &key.cluster);
        let name = key.name.clone();
        let task = self.deps.io.run(async move { works.get_opt(&name).await });
        ctx.spawn(task.into_actor(self).map(move |result, actor, ctx| {
            let Ok(Ok(work)) = result else {
                return; // the next sweep finds it again
            };
            let facts = work.and_then(|work| actor.reducer.reduce(work).ok());
            let facts = facts.map(|OwnedWork { facts, .. }| facts);
            if actor.version_known(&key) != known {
                return; // it has been told meanwhile
            }
            warn!(
                replica_set = %actor.id, cluster = key.cluster, work = key.name,
                "a work is not as its events told"
            );
            metrics::work_differed();
            // Whatever was known of it: a hub that was put back to a backup has lower versions.
            actor.set.tick(Timestamp::now());
            match facts {
                Some(facts) => actor.set.set_work(key, facts),
                None => actor.work_changed(key, None),
            }
            actor.status_writes.due = true;
            actor.pump(ctx);
        }));
    }
}

async fn list(works: Api<WorkView>, selector: String) -> kube::Result<Vec<ObjectMeta>> {
    let mut all = Vec::new();
    let mut params = ListParams::default().labels(&selector).limit(PAGE);
    loop {
        let page = works.list_metadata(&params).await?;
        let meta = |item: PartialObjectMeta<WorkView>| item.metadata;
        all.extend(page.items.into_iter().map(meta));
        match page.metadata.continue_ {
            Some(token) if !token.is_empty() => params = params.continue_token(&token),
            _ => return Ok(all),
        }
    }
}
