//! Every situation that an explanation knows, and what it says of it.

mod rule;
mod set;
mod work;

use std::collections::BTreeMap;

use muster_api::replicaset::ManifestWorkReplicaSet;
use serde_json::{Value, json};

use super::*;
use crate::replicaset::{owner_label, work_name};

const NOW: &str = "2026-01-02T00:12:00Z";
/// What began at midnight.
const SINCE: &str = "2026-01-02T00:00:00Z";

fn condition(type_: &str, status: &str, generation: i64, reason: &str, message: &str) -> Value {
    json!({"type": type_, "status": status, "observedGeneration": generation, "reason": reason,
        "message": message, "lastTransitionTime": SINCE})
}

/// The conditions of a work of generation 1 that is as it should be.
fn well() -> Vec<Value> {
    vec![
        condition("Applied", "True", 1, "AppliedManifestWorkComplete", "done"),
        condition("Available", "True", 1, "ResourcesAvailable", "there"),
    ]
}

fn template() -> Value {
    json!({"workload": {"manifests": [{"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "default"}}]}})
}

/// A work of the set `default/web` in a cluster, with the template.
fn work(cluster: &str, conditions: &[Value]) -> Value {
    json!({
        "metadata": {
            "namespace": cluster, "name": work_name("default", "web", "all"), "generation": 1,
            "creationTimestamp": SINCE,
            "labels": {
                "work.open-cluster-management.io/manifestworkreplicaset":
                    owner_label("default", "web"),
                "work.open-cluster-management.io/placementname": "all"}},
        "spec": template(),
        "status": {"conditions": conditions}})
}

fn read(work: &Value) -> WorkSeen {
    WorkSeen::read(serde_json::from_value(work.clone()).unwrap())
}

/// The set `default/web` over the placement `all`, and what was read about it.
struct Fleet {
    set: Value,
    placement: Option<Value>,
    decisions: Option<Vec<Value>>,
    works: Vec<Value>,
    clusters: BTreeMap<String, Value>,
}

impl Fleet {
    /// A set whose status says `message`, over these clusters.
    fn over(clusters: &[&str], message: &str) -> Self {
        let decisions: Vec<Value> = clusters
            .iter()
            .map(|cluster| json!({"clusterName": cluster, "reason": ""}))
            .collect();
        let label = "cluster.open-cluster-management.io/placement";
        let index = "cluster.open-cluster-management.io/decision-group-index";
        Self {
            set: json!({
                "metadata": {"namespace": "default", "name": "web", "generation": 1,
                    "creationTimestamp": SINCE, "annotations": {}},
                "spec": {"placementRefs": [{"name": "all"}], "manifestWorkTemplate": template()},
                "status": {
                    "message": message, "phase": "Progressing",
                    "summary": {"desiredTotal": clusters.len()},
                    "conditions": [
                        condition("Ready", "False", 1, "NotAllClustersAvailable", ""),
                        condition("Progressing", "True", 1, "RollingOutToClusters", "")]}}),
            placement: Some(json!({
                "metadata": {"namespace": "default", "name": "all", "creationTimestamp": SINCE},
                "spec": {},
                "status": {"conditions": [
                    condition("PlacementSatisfied", "True", 1, "AllDecisionsScheduled", "")]}})),
            decisions: Some(vec![json!({
                "metadata": {"name": "all-1", "labels": {label: "all", index: "0"}},
                "status": {"decisions": decisions}})]),
            works: Vec::new(),
            clusters: BTreeMap::new(),
        }
    }

    /// With a work in a cluster.
    fn with(mut self, work: Value) -> Self {
        self.works.push(work);
        self
    }

    /// With another rollout strategy.
    fn strategy(mut self, strategy: Value) -> Self {
        self.set["spec"]["placementRefs"][0]["rolloutStrategy"] = strategy;
        self
    }

    fn seen(&self) -> SetSeen {
        fn of<T: serde::de::DeserializeOwned>(value: &Value) -> T {
            serde_json::from_value(value.clone()).unwrap()
        }
        let mut set: ManifestWorkReplicaSet = of(&self.set);
        set.metadata.managed_fields = None;
        let placement = match &self.placement {
            Some(placement) => Found::There(of(placement)),
            None => Found::Missing,
        };
        SetSeen {
            set,
            placements: BTreeMap::from([("all".to_owned(), placement)]),
            decisions: self
                .decisions
                .as_ref()
                .map(|all| all.iter().map(of).collect()),
            works: self.works.iter().map(read).collect(),
            clusters: self
                .clusters
                .iter()
                .map(|(name, cluster)| (name.clone(), of(cluster)))
                .collect(),
            now: NOW.parse().unwrap(),
        }
    }

    fn explain(&self) -> Node {
        explain_set(&self.seen())
    }
}

/// The cause in a line: node, cluster, state, reason, message, since.
fn cause(root: &Node) -> String {
    let Some(Cause { node, cluster }) = first_cause(root) else {
        return "none".to_owned();
    };
    let since = node.since.map_or_else(
        || "?".to_owned(),
        |since| since.strftime("%H:%M").to_string(),
    );
    format!(
        "{node} @{} {} {}: {} since {since}",
        cluster.unwrap_or("-"),
        node.own_state,
        node.reason,
        node.message
    )
}
