//! A hub with its actors and one replica set over N clusters, in this process.

use std::collections::HashMap;
use std::time::Duration;

use actix::Addr;
use anyhow::{Context, Result};
use futures::StreamExt;
use kube::api::{ListParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt};
use muster_actors::hub::{HubDeps, HubSettings, PlacementResolver, ReplicaSets, register_cluster};
use muster_actors::supervision::{Health, Io, Registry};
use muster_api::placement::Placement;
use muster_api::replicaset::{AggregatedValue, ManifestWorkReplicaSet};
use muster_api::work::ManifestWork;
use muster_apiserver::ApiServer;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::Instant;

use super::open_loop::Seen;
use super::servers::{hub_api, until};

/// Name of the replica set, in namespace `default`.
pub const SET: &str = "web";

/// Actors and API of a hub.
pub struct Hub {
    /// Its API.
    pub api: ApiServer,
    /// A client of it.
    pub client: Client,
    /// What its actors work with.
    pub deps: HubDeps,
    _actors: (Addr<PlacementResolver>, Addr<ReplicaSets>),
}

/// Name of a cluster.
pub fn cluster(index: usize) -> String {
    format!("c{index}")
}

impl Hub {
    /// Starts a hub that knows `clusters` clusters.
    pub async fn start(clusters: usize) -> Result<Self> {
        let api = hub_api().await?;
        let client = api.client();
        for index in 0..clusters {
            register_cluster(&client, &cluster(index), &[].into()).await?;
        }
        let deps = HubDeps {
            client: client.clone(),
            io: Io::current(),
            registry: Registry::new(),
            health: Health::new(),
            agents: None,
            events: None,
            settings: HubSettings::default(),
        };
        let actors = (
            PlacementResolver::start(deps.clone()),
            ReplicaSets::start(deps.clone()),
        );
        Ok(Self {
            api,
            client,
            deps,
            _actors: actors,
        })
    }

    /// Creates a replica set over all clusters and waits for its works; returns their name.
    pub async fn roll_out(&self, template: &Value, clusters: usize) -> Result<String> {
        create_set(&self.client, template).await?;
        let works: Api<ManifestWork> = Api::all(self.client.clone());
        let mut name = None;
        until(
            Duration::from_secs(60),
            "a work in each cluster",
            async || {
                let list = works.list(&ListParams::default()).await?;
                name = list.items.first().map(ResourceExt::name_any);
                Ok(list.items.len() == clusters)
            },
        )
        .await?;
        name.context("no work")
    }
}

/// Creates the replica set, and the placement that it refers to.
pub async fn create_set(client: &Client, template: &Value) -> Result<()> {
    create_set_by(client, template, &json!({"type": "All"})).await
}

/// The same, by a rollout strategy.
pub async fn create_set_by(client: &Client, template: &Value, strategy: &Value) -> Result<()> {
    let placement = json!({
        "apiVersion": "cluster.open-cluster-management.io/v1beta1", "kind": "Placement",
        "metadata": {"namespace": "default", "name": "all"}, "spec": {}});
    let placements: Api<Placement> = Api::namespaced(client.clone(), "default");
    placements
        .create(&PostParams::default(), &serde_json::from_value(placement)?)
        .await?;
    let set = json!({
        "apiVersion": "work.open-cluster-management.io/v1alpha1", "kind": "ManifestWorkReplicaSet",
        "metadata": {"namespace": "default", "name": SET},
        "spec": {"placementRefs": [{"name": "all", "rolloutStrategy": strategy}],
            "manifestWorkTemplate": template}});
    let sets: Api<ManifestWorkReplicaSet> = Api::namespaced(client.clone(), "default");
    sets.create(&PostParams::default(), &serde_json::from_value(set)?)
        .await?;
    Ok(())
}

/// Watches the replica set's status, as anybody would, and tells what each of its values shows:
/// `show` turns a value into a key and a number.
pub async fn observe(
    client: &Client,
    show: fn(&AggregatedValue) -> Option<(usize, u64)>,
) -> Result<UnboundedReceiver<Seen>> {
    let sets: Api<ManifestWorkReplicaSet> = Api::namespaced(client.clone(), "default");
    let version = sets
        .list(&ListParams::default())
        .await?
        .metadata
        .resource_version;
    let version = version.context("a list has a version")?;
    let mut events = sets.watch(&WatchParams::default(), &version).await?.boxed();
    let (sender, receiver) = unbounded_channel();
    tokio::spawn(async move {
        let mut shown: HashMap<usize, u64> = HashMap::new();
        while let Some(Ok(event)) = events.next().await {
            let (WatchEvent::Added(set) | WatchEvent::Modified(set)) = event else {
                continue;
            };
            let at = Instant::now();
            let feedback = set.status.iter().flat_map(|status| &status.feedback);
            for (key, number) in feedback.flat_map(|object| &object.values).filter_map(show) {
                let seen = Seen {
                    stage: 0,
                    key,
                    number,
                    at,
                };
                if shown.insert(key, number) != Some(number) && sender.send(seen).is_err() {
                    return;
                }
            }
        }
    });
    Ok(receiver)
}
