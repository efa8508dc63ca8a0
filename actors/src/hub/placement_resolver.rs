//! Decides placements on a hub that has no scheduler of its own.
//!
//! Watches ManagedClusters, Placements and PlacementDecisions; whenever one of them changes, the
//! placements concerned are decided again by [`muster_core::placement`] and their decisions and
//! status brought in line. Holds no state that the API does not hold, so a restart loses nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use actix::{
    Actor, ActorContext, ActorFutureExt, Addr, AsyncContext, Context, Handler, MessageResult,
    StreamHandler, Supervised, WrapFuture,
};
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, OwnerReference, Time};
use kube::api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::core::Resource;
use kube::runtime::watcher;
use kube::{Api, Client};
use muster_api::cluster::ManagedCluster;
use muster_api::conditions::{self, FALSE, TRUE};
use muster_api::constants as names;
use muster_api::placement::{
    ClusterDecision, DecisionGroupStatus, Placement, PlacementDecision, PlacementDecisionStatus,
    PlacementStatus,
};
use muster_core::placement::{ClusterFacts, PlacementError, decision_chunks, select};
use serde::Serialize;
use serde_json::json;
use tracing::{info, warn};

use super::HubDeps;
use super::views::ObjectName;
use crate::api_text;
use crate::supervision::{Backoff, BackoffPolicy, IoError, Registry, Snapshot, Stop};
use crate::watching::{Seen, watch};

/// Questions only: what this actor lives on comes from its streams.
const MAILBOX: usize = 16;
/// A burst of cluster events, as at start, is answered once.
const SETTLE: Duration = Duration::from_millis(5);

/// A write failed.
#[derive(Debug, thiserror::Error)]
enum ResolveError {
    /// The API server refused, or could not be reached.
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// The task did not end by itself.
    #[error(transparent)]
    Io(#[from] IoError),
}

impl ResolveError {
    fn text(&self) -> String {
        match self {
            Self::Api(error) => api_text::text(error),
            Self::Io(error) => error.to_string(),
        }
    }
}

/// One event of one of the watches.
#[derive(Debug)]
enum Event {
    Cluster(Seen<ManagedCluster>),
    Placement(Seen<Placement>),
    Decision(Seen<PlacementDecision>),
}

/// What the resolver publishes.
#[derive(Debug, Serialize)]
struct State {
    clusters: usize,
    placements: usize,
    waiting: usize,
    synced: bool,
}

/// The resolver. See the module.
#[derive(Debug)]
pub struct PlacementResolver {
    deps: HubDeps,
    clusters: BTreeMap<String, ClusterFacts>,
    placements: HashMap<ObjectName, Placement>,
    /// Decisions by placement and by name.
    decisions: HashMap<ObjectName, BTreeMap<String, PlacementDecision>>,
    /// Lists that are complete, by kind.
    synced: [bool; 3],
    /// Placements to decide.
    waiting: HashSet<ObjectName>,
    in_flight: HashSet<ObjectName>,
    backoffs: HashMap<ObjectName, Backoff>,
    timer: bool,
}

impl PlacementResolver {
    /// Starts the resolver on the current arbiter.
    pub fn start(deps: HubDeps) -> Addr<Self> {
        let registry: Registry = deps.registry.clone();
        registry.start("PlacementResolver", "hub", Self::new(deps))
    }

    fn new(deps: HubDeps) -> Self {
        Self {
            deps,
            clusters: BTreeMap::new(),
            placements: HashMap::new(),
            decisions: HashMap::new(),
            synced: [false; 3],
            waiting: HashSet::new(),
            in_flight: HashSet::new(),
            backoffs: HashMap::new(),
            timer: false,
        }
    }

    fn synced(&self) -> bool {
        self.synced.iter().all(|synced| *synced)
    }

    fn cluster_changed(&mut self, cluster: ManagedCluster) {
        let name = cluster.metadata.name.unwrap_or_default();
        let facts = ClusterFacts {
            labels: cluster.metadata.labels.unwrap_or_default(),
            claims: cluster.status.unwrap_or_default().cluster_claims,
            taints: cluster.spec.taints,
            accepted: cluster.spec.hub_accepts_client,
            deleting: cluster.metadata.deletion_timestamp.is_some(),
        };
        if self.clusters.get(&name) != Some(&facts) {
            self.clusters.insert(name, facts);
            self.decide_all();
        }
    }

    fn decide_all(&mut self) {
        self.waiting.extend(self.placements.keys().cloned());
    }

    fn placement_changed(&mut self, placement: Placement) {
        let id = ObjectName::of(&placement.metadata);
        self.waiting.insert(id.clone());
        self.placements.insert(id, placement);
    }

    fn decision_changed(&mut self, decision: PlacementDecision) {
        let id = ObjectName::of(&decision.metadata);
        let labels = decision.metadata.labels.as_ref();
        let Some(placement) = labels.and_then(|labels| labels.get(names::PLACEMENT_LABEL)) else {
            return;
        };
        let placement = ObjectName {
            namespace: id.namespace,
            name: placement.clone(),
        };
        self.waiting.insert(placement.clone());
        self.decisions
            .entry(placement)
            .or_default()
            .insert(id.name, decision);
    }

    fn decision_gone(&mut self, decision: &PlacementDecision) {
        let id = ObjectName::of(&decision.metadata);
        for (placement, decisions) in &mut self.decisions {
            if placement.namespace == id.namespace && decisions.remove(&id.name).is_some() {
                self.waiting.insert(placement.clone());
            }
        }
        self.decisions.retain(|_, decisions| !decisions.is_empty());
    }

    /// Decides what waits, soon.
    fn pump_soon(&mut self, ctx: &mut Context<Self>) {
        if !self.timer && self.synced() && !self.waiting.is_empty() {
            self.timer = true;
            ctx.run_later(SETTLE, |actor, ctx| {
                actor.timer = false;
                actor.pump(ctx);
            });
        }
    }

    fn pump(&mut self, ctx: &mut Context<Self>) {
        if !self.synced() {
            return; // a list has begun since; its end comes back here
        }
        for id in std::mem::take(&mut self.waiting) {
            if self.in_flight.contains(&id) {
                self.waiting.insert(id); // looked at again when its writes are done
                continue;
            }
            let existing = self.decisions.get(&id).cloned().unwrap_or_default();
            let Some(plan) = self.plan(&id, &existing) else {
                continue;
            };
            self.in_flight.insert(id.clone());
            let client = self.deps.client.clone();
            let namespace = id.namespace.clone();
            let task = self.deps.io.run(plan.carry_out(client, namespace));
            let done = async move {
                task.await
                    .map_err(ResolveError::from)
                    .and_then(|result| result)
            };
            ctx.spawn(done.into_actor(self).map(move |result, actor, ctx| {
                actor.in_flight.remove(&id);
                match result {
                    Ok(()) => {
                        actor.backoffs.remove(&id);
                        actor.pump_soon(ctx);
                    }
                    Err(error) => {
                        let backoff = actor.backoffs.entry(id.clone());
                        let delay = backoff
                            .or_insert_with(|| Backoff::new(BackoffPolicy::REQUEST))
                            .failed();
                        let error = error.text();
                        warn!(placement = %id, error, ?delay, "failed to write decisions, retrying");
                        ctx.run_later(delay, move |actor, ctx| {
                            actor.waiting.insert(id);
                            actor.pump_soon(ctx);
                        });
                    }
                }
            }));
        }
    }

    /// The writes that bring the decisions of a placement in line; `None` where they are.
    fn plan(
        &self,
        id: &ObjectName,
        existing: &BTreeMap<String, PlacementDecision>,
    ) -> Option<Plan> {
        let placement = self
            .placements
            .get(id)
            .filter(|p| p.metadata.deletion_timestamp.is_none());
        let plan = placement.map_or_else(
            || Plan {
                deletes: existing.keys().cloned().collect(),
                ..Plan::default()
            },
            |placement| decide(placement, &self.clusters, existing, Timestamp::now()),
        );
        (!plan.is_empty()).then_some(plan)
    }
}

/// Writes that a placement needs.
#[derive(Debug, Default)]
struct Plan {
    creates: Vec<PlacementDecision>,
    /// Status patches of decisions, by name, also of those that are created.
    decisions: Vec<(String, PlacementDecisionStatus)>,
    deletes: Vec<String>,
    status: Option<(String, PlacementStatus)>,
}

impl Plan {
    fn is_empty(&self) -> bool {
        self.creates.is_empty()
            && self.decisions.is_empty()
            && self.deletes.is_empty()
            && self.status.is_none()
    }

    /// Decisions first, then the placement's own status, so that its count is never ahead.
    async fn carry_out(self, client: Client, namespace: String) -> Result<(), ResolveError> {
        let decisions: Api<PlacementDecision> = Api::namespaced(client.clone(), &namespace);
        let placements: Api<Placement> = Api::namespaced(client, &namespace);
        for decision in &self.creates {
            match decisions.create(&PostParams::default(), decision).await {
                Err(kube::Error::Api(status)) if status.is_already_exists() => {}
                result => drop(result?),
            }
        }
        for (name, status) in &self.decisions {
            let patch = Patch::Merge(json!({ "status": status }));
            decisions
                .patch_status(name, &PatchParams::default(), &patch)
                .await?;
        }
        for name in &self.deletes {
            match decisions.delete(name, &DeleteParams::default()).await {
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                result => drop(result?),
            }
        }
        if let Some((name, status)) = &self.status {
            let patch = Patch::Merge(json!({ "status": status }));
            placements
                .patch_status(name, &PatchParams::default(), &patch)
                .await?;
        }
        Ok(())
    }
}

/// Decides one placement against its existing decisions.
fn decide(
    placement: &Placement,
    clusters: &BTreeMap<String, ClusterFacts>,
    existing: &BTreeMap<String, PlacementDecision>,
    now: Timestamp,
) -> Plan {
    let name = placement.metadata.name.clone().unwrap_or_default();
    let decided =
        |decision: &PlacementDecision| decision.status.clone().unwrap_or_default().decisions;
    let previous: BTreeSet<String> = existing
        .values()
        .flat_map(decided)
        .map(|decision| decision.cluster_name)
        .collect();
    let selected = select(&placement.spec, clusters, &previous);
    let before = placement.status.clone().unwrap_or_default();

    let mut plan = Plan::default();
    let mut decision_names = Vec::new();
    // A placement that cannot be decided keeps what it has: a typo must not empty clusters.
    let (chosen, fault) = match selected {
        Ok(chosen) => (chosen, None),
        Err(fault) => (previous.into_iter().collect(), Some(fault)),
    };
    for (index, chunk) in decision_chunks(&chosen).into_iter().enumerate() {
        let decision_name = format!("{name}-decision-{}", index + 1);
        let wanted = PlacementDecisionStatus {
            decisions: chunk
                .iter()
                .map(|cluster| ClusterDecision {
                    cluster_name: cluster.clone(),
                    ..ClusterDecision::default()
                })
                .collect(),
        };
        match existing.get(&decision_name) {
            Some(decision) if decision.status.as_ref() == Some(&wanted) => {}
            Some(_) => plan.decisions.push((decision_name.clone(), wanted)),
            None => {
                plan.creates
                    .push(decision_object(placement, &decision_name));
                plan.decisions.push((decision_name.clone(), wanted));
            }
        }
        decision_names.push(decision_name);
    }
    plan.deletes = existing
        .keys()
        .filter(|name| !decision_names.contains(name))
        .cloned()
        .collect();

    let count = i32::try_from(chosen.len()).unwrap_or(i32::MAX);
    let groups = if chosen.is_empty() {
        Vec::new()
    } else {
        vec![DecisionGroupStatus {
            decision_group_index: 0,
            decision_group_name: String::new(),
            decisions: decision_names,
            clusters_count: count,
        }]
    };
    let status = PlacementStatus {
        number_of_selected_clusters: count,
        decision_groups: groups,
        conditions: conditions_of(placement, &before, count, fault.as_ref(), now),
        last_score_update_time: before.last_score_update_time.clone(),
    };
    if placement.status.as_ref() != Some(&status) {
        plan.status = Some((name, status));
    }
    plan
}

fn conditions_of(
    placement: &Placement,
    before: &PlacementStatus,
    count: i32,
    fault: Option<&PlacementError>,
    now: Timestamp,
) -> Vec<Condition> {
    let wanted = placement.spec.number_of_clusters;
    let satisfied = match (fault, wanted) {
        (Some(_), _) => (
            FALSE,
            "Misconfigured",
            "The placement is misconfigured".to_owned(),
        ),
        (None, _) if count == 0 => (
            FALSE,
            "NoManagedClusterMatched",
            "No ManagedCluster matches".to_owned(),
        ),
        (None, Some(wanted)) if count < wanted => (
            FALSE,
            "NotAllDecisionsScheduled",
            format!("{count} of {wanted} wanted clusters match"),
        ),
        (None, _) => (
            TRUE,
            "AllDecisionsScheduled",
            "All cluster decisions scheduled".to_owned(),
        ),
    };
    let misconfigured = match fault {
        Some(fault) => (TRUE, "Misconfigured", fault.to_string()),
        None => (
            FALSE,
            "Succeedconfigured",
            "Placement configurations check pass".to_owned(),
        ),
    };
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let condition = |kind: &str, (status, reason, message): (&str, &str, String)| Condition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        observed_generation: placement.metadata.generation,
        last_transition_time: conditions::find(&before.conditions, kind)
            .filter(|old| old.status == status)
            .map_or(Time(now), |old| old.last_transition_time.clone()),
    };
    vec![
        condition(names::PLACEMENT_CONDITION_SATISFIED, satisfied),
        condition(names::PLACEMENT_CONDITION_MISCONFIGURED, misconfigured),
    ]
}

fn decision_object(placement: &Placement, name: &str) -> PlacementDecision {
    let metadata = &placement.metadata;
    let labels = [
        (
            names::PLACEMENT_LABEL,
            metadata.name.clone().unwrap_or_default(),
        ),
        (names::DECISION_GROUP_INDEX_LABEL, "0".to_owned()),
        (names::DECISION_GROUP_NAME_LABEL, String::new()),
    ];
    PlacementDecision {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: metadata.namespace.clone(),
            labels: Some(labels.map(|(key, value)| (key.to_owned(), value)).into()),
            owner_references: Some(vec![OwnerReference {
                api_version: Placement::api_version(&()).into_owned(),
                kind: Placement::kind(&()).into_owned(),
                name: metadata.name.clone().unwrap_or_default(),
                uid: metadata.uid.clone().unwrap_or_default(),
                controller: Some(true),
                block_owner_deletion: Some(true),
            }]),
            ..ObjectMeta::default()
        },
        ..PlacementDecision::default()
    }
}

/// Makes a cluster known to the hub: its ManagedCluster, accepted and with `labels`, and its
/// namespace. Labels that others put on it are kept. Safe to repeat.
///
/// # Errors
///
/// The API server's refusal.
pub async fn register_cluster(
    client: &Client,
    name: &str,
    labels: &BTreeMap<String, String>,
) -> Result<(), kube::Error> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = Namespace {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some([(names::CLUSTER_NAME_LABEL_KEY.to_owned(), name.to_owned())].into()),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    };
    match namespaces.create(&PostParams::default(), &namespace).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        result => drop(result?),
    }
    let clusters: Api<ManagedCluster> = Api::all(client.clone());
    let known = clusters
        .list(&ListParams::default().fields(&format!("metadata.name={name}")))
        .await?;
    if let Some(cluster) = known.items.first() {
        let carried = cluster.metadata.labels.clone().unwrap_or_default();
        let lacks_label = labels
            .iter()
            .any(|(key, value)| carried.get(key) != Some(value));
        if lacks_label || !cluster.spec.hub_accepts_client {
            let patch = json!({"metadata": {"labels": labels}, "spec": {"hubAcceptsClient": true}});
            clusters
                .patch(name, &PatchParams::default(), &Patch::Merge(patch))
                .await?;
        }
        return Ok(());
    }
    let mut cluster = ManagedCluster::default();
    cluster.metadata.name = Some(name.to_owned());
    cluster.metadata.labels = Some(labels.clone());
    cluster.spec.hub_accepts_client = true;
    clusters.create(&PostParams::default(), &cluster).await?;
    info!(cluster = name, "registered cluster");
    Ok(())
}

impl Actor for PlacementResolver {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(MAILBOX);
        let HubDeps {
            client, io, health, ..
        } = &self.deps;
        let all = watcher::Config::default;
        let clusters: Api<ManagedCluster> = Api::all(client.clone());
        let placements: Api<Placement> = Api::all(client.clone());
        let decisions: Api<PlacementDecision> = Api::all(client.clone());
        let stream = |name: &str| health.stream(format!("resolver/{name}"));
        ctx.add_stream(
            watch(io, clusters, all(), stream("managedclusters"), |c| c).map(Event::Cluster),
        );
        ctx.add_stream(
            watch(io, placements, all(), stream("placements"), |p| p).map(Event::Placement),
        );
        ctx.add_stream(
            watch(io, decisions, all(), stream("placementdecisions"), |d| d).map(Event::Decision),
        );
    }
}

impl Supervised for PlacementResolver {
    fn restarting(&mut self, _: &mut Self::Context) {
        *self = Self::new(self.deps.clone());
    }
}

impl StreamHandler<Event> for PlacementResolver {
    fn handle(&mut self, event: Event, ctx: &mut Self::Context) {
        match event {
            // A list replaces what is known; nothing is decided before it is complete.
            Event::Cluster(Seen::Listing) => {
                self.synced[0] = false;
                self.clusters.clear();
            }
            Event::Cluster(Seen::Item(c) | Seen::Changed(c)) => self.cluster_changed(c),
            Event::Cluster(Seen::Gone(c)) => {
                self.clusters.remove(&c.metadata.name.unwrap_or_default());
                self.decide_all();
            }
            Event::Cluster(Seen::Listed) => {
                self.synced[0] = true;
                self.decide_all();
            }
            Event::Placement(Seen::Listing) => {
                self.synced[1] = false;
                self.placements.clear();
            }
            Event::Placement(Seen::Item(p) | Seen::Changed(p)) => self.placement_changed(p),
            Event::Placement(Seen::Gone(p)) => {
                let id = ObjectName::of(&p.metadata);
                self.placements.remove(&id);
                self.waiting.insert(id);
            }
            Event::Placement(Seen::Listed) => {
                self.synced[1] = true;
                self.waiting.extend(self.decisions.keys().cloned());
            }
            Event::Decision(Seen::Listing) => {
                self.synced[2] = false;
                self.decisions.clear();
            }
            Event::Decision(Seen::Item(d) | Seen::Changed(d)) => self.decision_changed(d),
            Event::Decision(Seen::Gone(d)) => self.decision_gone(&d),
            Event::Decision(Seen::Listed) => {
                self.synced[2] = true;
                self.decide_all();
            }
        }
        self.pump_soon(ctx);
    }

    /// The streams end only with the runtime; the default would stop this actor.
    fn finished(&mut self, _: &mut Self::Context) {}
}

impl Handler<Snapshot> for PlacementResolver {
    type Result = MessageResult<Snapshot>;

    fn handle(&mut self, _: Snapshot, _: &mut Self::Context) -> Self::Result {
        Snapshot::of(&State {
            clusters: self.clusters.len(),
            placements: self.placements.len(),
            waiting: self.waiting.len() + self.in_flight.len(),
            synced: self.synced(),
        })
    }
}

impl Handler<Stop> for PlacementResolver {
    type Result = ();

    /// Nothing to flush: a decision under way is taken again by the next life.
    fn handle(&mut self, _: Stop, ctx: &mut Self::Context) {
        ctx.stop();
    }
}
