//! One look at the works of clusters whose agents are away; runs on a worker thread.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::Resource;
use kube::{Api, Client};
use muster_api::cluster::ManagedCluster;
use muster_api::constants as names;
use muster_api::work::ManifestWork;
use muster_core::conditions::set;
use muster_core::departures::{Departure, GivenUp, Step, decide};
use muster_core::events::{Happening, reasons};
use serde_json::json;
use tracing::{info, warn};

use super::super::metrics;
use super::super::views::{FinishView, ObjectName};
use crate::events::{Recorder, reference};

/// Works in one answer.
const PAGE: u32 = 500;

/// What a ManagedCluster is to say of its agent.
#[derive(Debug)]
pub(super) struct Availability {
    pub(super) cluster: String,
    pub(super) condition: Condition,
}

/// What is looked at.
pub(super) struct Look {
    pub(super) client: Client,
    pub(super) events: Option<Recorder>,
    pub(super) grace: Duration,
    pub(super) clusters: Vec<(String, Departure)>,
    pub(super) labelled: Vec<ObjectName>,
    pub(super) clusters_say: Vec<Availability>,
}

/// Looks once at everything; gives the clusters that have no works. What fails is tried again by the
/// next look.
pub(super) async fn look(look: Look) -> Vec<String> {
    for say in &look.clusters_say {
        if let Err(error) = look.say_of_cluster(say).await {
            warn!(cluster = say.cluster, %error, "failed to write whether its agent is there");
        }
    }
    for name in &look.labelled {
        let works: Api<FinishView> = Api::namespaced(look.client.clone(), &name.namespace);
        match works.get_opt(&name.name).await {
            Ok(Some(work)) => {
                let departure = Departure::GivenUp(GivenUp::Labelled);
                look.take_step(&work, departure).await;
            }
            Ok(None) => {}
            Err(error) => warn!(work = %name, %error, "failed to read a work, retrying"),
        }
    }
    let mut empty = Vec::new();
    for (cluster, departure) in &look.clusters {
        match look.look_at_cluster(cluster, *departure).await {
            Ok(0) => empty.push(cluster.clone()),
            Ok(_) => {}
            Err(error) => warn!(cluster, %error, "failed to list the works, retrying"),
        }
    }
    empty
}

impl Look {
    async fn say_of_cluster(&self, say: &Availability) -> kube::Result<()> {
        let clusters: Api<ManagedCluster> = Api::all(self.client.clone());
        let Some(cluster) = clusters.get_opt(&say.cluster).await? else {
            return Ok(());
        };
        let mut conditions = cluster.status.unwrap_or_default().conditions;
        if set(&mut conditions, say.condition.clone()) {
            let patch = json!({
                "metadata": {"resourceVersion": cluster.metadata.resource_version},
                "status": {"conditions": conditions}});
            let params = PatchParams::default();
            clusters
                .patch_status(&say.cluster, &params, &Patch::Merge(patch))
                .await?;
        }
        Ok(())
    }

    /// Gives the number of works that there are.
    async fn look_at_cluster(&self, cluster: &str, departure: Departure) -> kube::Result<usize> {
        let works: Api<FinishView> = Api::namespaced(self.client.clone(), cluster);
        let mut number = 0;
        let mut params = ListParams::default().limit(PAGE);
        loop {
            let page = works.list(&params).await?;
            number += page.items.len();
            for work in &page.items {
                self.take_step(work, departure).await;
            }
            match page.metadata.continue_ {
                Some(token) if !token.is_empty() => params = params.continue_token(&token),
                _ => return Ok(number),
            }
        }
    }

    async fn take_step(&self, work: &FinishView, departure: Departure) {
        let now = Timestamp::now();
        let step = decide(
            &work.metadata,
            work.conditions(),
            departure,
            self.grace,
            now,
        );
        let done = match step {
            Step::Leave => return,
            Step::Say(condition) => self.say(work, *condition).await,
            Step::LetGo => self.let_go(work).await,
        };
        if let Err(error) = done {
            let work = ObjectName::of(&work.metadata);
            warn!(%work, %error, "failed to handle a work that waits for its agent, retrying");
        }
    }

    /// The same object as was looked at.
    fn api_of(&self, work: &FinishView) -> (Api<FinishView>, String) {
        let ObjectName { namespace, name } = ObjectName::of(&work.metadata);
        (Api::namespaced(self.client.clone(), &namespace), name)
    }

    async fn say(&self, work: &FinishView, condition: Condition) -> kube::Result<()> {
        let (works, name) = self.api_of(work);
        let happening = match &*condition.reason {
            names::REASON_CLUSTER_ABANDONED => {
                Happening::warning(reasons::CLUSTER_ABANDONED, &*condition.message)
            }
            _ => Happening::warning(reasons::AGENT_AWAY, &*condition.message),
        };
        // Not by `set`, which keeps the time of a condition that stays True: the grace begins now.
        let mut conditions = work.conditions().to_vec();
        conditions.retain(|known| known.type_ != condition.type_);
        conditions.push(condition);
        let patch = json!({
            "metadata": {"resourceVersion": work.metadata.resource_version},
            "status": {"conditions": conditions}});
        works
            .patch_status(&name, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        self.tell(work, happening);
        Ok(())
    }

    async fn let_go(&self, work: &FinishView) -> kube::Result<()> {
        let (works, name) = self.api_of(work);
        let finalizers = work.metadata.finalizers.iter().flatten();
        let others: Vec<&String> = finalizers
            .filter(|name| *name != names::MANIFEST_WORK_FINALIZER)
            .collect();
        let patch = json!({"metadata": {
            "resourceVersion": work.metadata.resource_version, "finalizers": others}});
        works
            .patch_metadata(&name, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        metrics::work_abandoned();
        let text = "the cluster was given up: the work goes, and its objects stay in the cluster";
        info!(work = %ObjectName::of(&work.metadata), "let go a work of a cluster that was given up");
        self.tell(work, Happening::warning(reasons::CLUSTER_ABANDONED, text));
        Ok(())
    }

    fn tell(&self, work: &FinishView, happening: Happening) {
        if let Some(events) = &self.events {
            let (version, kind) = (ManifestWork::api_version(&()), ManifestWork::kind(&()));
            events.tell(reference(&version, &kind, &work.metadata), happening);
        }
    }
}
