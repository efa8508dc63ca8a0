//! The floor of a hub: works and a replica set whose status a bare watch and a bare patch keep.

use std::collections::HashMap;

use anyhow::{Context, Result};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client};
use muster_api::replicaset::ManifestWorkReplicaSet;
use muster_api::work::{FieldValue, ManifestWork};
use serde_json::{Value, json};

use super::fixtures;
use super::hub::{self, cluster};
use super::servers;

/// Name of the work in each cluster.
pub const WORK: &str = "web";
/// The value that works report.
pub const VALUE: &str = "ReadyReplicas";

/// Starts a hub with a work in each of so many clusters. Nobody looks after it but one who patches
/// the replica set for each event of a work.
pub async fn start(clusters: usize) -> Result<Client> {
    let client = servers::hub_api().await?.client();
    hub::create_set(&client, &fixtures::work_spec(WORK, "default")).await?;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    for index in 0..clusters {
        let namespace = json!({"metadata": {"name": cluster(index)}});
        let namespace = serde_json::from_value(namespace)?;
        namespaces
            .create(&PostParams::default(), &namespace)
            .await?;
        let work = json!({
            "apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
            "metadata": {"name": WORK}, "spec": fixtures::work_spec(WORK, "default")});
        let works: Api<ManifestWork> = Api::namespaced(client.clone(), &cluster(index));
        works
            .create(&PostParams::default(), &serde_json::from_value(work)?)
            .await?;
    }
    let works: Api<ManifestWork> = Api::all(client.clone());
    let version = works
        .list(&ListParams::default())
        .await?
        .metadata
        .resource_version;
    let version = version.context("a list has a version")?;
    tokio::spawn(relay(client.clone(), version));
    Ok(client)
}

/// What an agent reports of a work whose Deployment has so many ready replicas.
pub fn work_status(ready: u64) -> Value {
    let condition = |kind: &str| {
        json!({"type": kind, "status": "True", "observedGeneration": 1, "reason": "Bench",
            "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    json!({"status": {
        "conditions": [condition("Applied"), condition("Available")],
        "resourceStatus": {"manifests": [{
            "resourceMeta": {"ordinal": 1, "group": "apps", "version": "v1", "kind": "Deployment",
                "resource": "deployments", "name": "web", "namespace": "default"},
            "conditions": [],
            "statusFeedback": {"values": [
                {"name": VALUE, "fieldValue": {"type": "Integer", "integer": ready}}]},
        }]},
    }})
}

/// The [`VALUE`] that a work reports.
pub fn reported(work: &ManifestWork) -> Option<i64> {
    let manifests = &work.status.as_ref()?.resource_status.manifests;
    let mut values = manifests
        .iter()
        .flat_map(|manifest| &manifest.status_feedback.values);
    let FieldValue { integer, .. } = &values.find(|value| value.name == VALUE)?.value;
    *integer
}

/// The least that a hub has to do: for each event of a work, one patch of the replica set.
async fn relay(client: Client, version: String) -> Result<()> {
    let works: Api<ManifestWork> = Api::all(client.clone());
    let sets: Api<ManifestWorkReplicaSet> = Api::namespaced(client, "default");
    let mut events = works
        .watch(&WatchParams::default(), &version)
        .await?
        .boxed();
    let mut by_cluster = HashMap::new();
    let mut sum = 0;
    while let Some(event) = events.next().await {
        let WatchEvent::Modified(work) = event? else {
            continue;
        };
        let Some(ready) = reported(&work) else {
            continue;
        };
        let before = by_cluster.insert(work.metadata.namespace, ready);
        sum += ready - before.unwrap_or_default();
        let patch = json!({"status": {"feedback": [{
            "group": "apps", "version": "v1", "resource": "deployments", "name": "web",
            "namespace": "default",
            "values": [{"name": VALUE, "clusters": by_cluster.len(), "sum": sum}],
        }]}});
        sets.patch_status(hub::SET, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
    }
    Ok(())
}
