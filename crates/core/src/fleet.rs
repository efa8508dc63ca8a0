//! How a fleet stands: its replica sets, its clusters, and works that nobody but their makers look
//! after.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use muster_api::conditions;
use muster_api::constants as names;
use muster_api::replicaset::{ManifestWorkReplicaSet, ReplicaSetPhase};
use muster_api::work::RawManifestWork;
use serde::{Deserialize, Serialize};

use crate::explain::{State, Verdict, reasons, work_verdict};
use crate::replicaset::{Progress, owner_label};

/// Namespace and name of an object; the namespace of a work is its cluster.
pub type Id = (String, String);

/// A work, reduced to what a line can say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkLine {
    /// Label that names the set which made it; empty if none did.
    owner: String,
    verdict: Verdict,
    applied: bool,
    available: bool,
}

impl WorkLine {
    /// Reads a work; of its status only the conditions.
    pub fn read(work: &RawManifestWork) -> Self {
        #[derive(Default, Deserialize)]
        struct Status {
            #[serde(default)]
            conditions: Option<Vec<Condition>>,
        }
        let meta = &work.metadata;
        let status = work.status.as_deref();
        let status = status.map(|raw| serde_json::from_str::<Option<Status>>(raw.get()));
        let labels = meta.labels.as_ref();
        let owner = labels.and_then(|labels| {
            labels.get(names::MANIFEST_WORK_REPLICA_SET_CONTROLLER_NAME_LABEL_KEY)
        });
        let owner = owner.cloned().unwrap_or_default();
        match status.transpose() {
            Ok(status) => {
                let all = status.flatten().unwrap_or_default().conditions;
                let all = all.unwrap_or_default();
                let generation = meta.generation.unwrap_or_default();
                let holds = |type_| conditions::is_true_for(&all, type_, generation);
                Self {
                    owner,
                    verdict: work_verdict(meta, &all),
                    applied: holds(names::WORK_APPLIED),
                    available: holds(names::WORK_AVAILABLE),
                }
            }
            Err(error) => {
                let message = format!("its status does not read: {error}");
                Self {
                    owner,
                    verdict: Verdict::new(State::Unknown, reasons::NOT_READ, message),
                    applied: false,
                    available: false,
                }
            }
        }
    }
}

/// A replica set, reduced to what a line can say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetLine {
    progress: Progress,
    phase: Option<ReplicaSetPhase>,
    desired: i64,
    updated: i64,
    available: i64,
    message: String,
}

impl SetLine {
    /// Reads a set.
    pub fn read(set: &ManifestWorkReplicaSet) -> Self {
        let status = set.status.clone().unwrap_or_default();
        Self {
            progress: Progress::of(set),
            phase: status.phase,
            desired: status.summary.desired_total,
            updated: status.summary.updated,
            available: status.summary.available,
            message: status.message,
        }
    }
}

/// What was read of a fleet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fleet {
    /// Its replica sets.
    pub sets: BTreeMap<Id, SetLine>,
    /// Its works.
    pub works: BTreeMap<Id, WorkLine>,
    /// Its clusters by name, with [`agent_verdict`](crate::explain::agent_verdict) of each.
    pub clusters: BTreeMap<String, Verdict>,
}

/// How a fleet stands, as a document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FleetReport {
    /// The worst of what is below.
    pub state: State,
    /// The replica sets.
    pub sets: Vec<SetRow>,
    /// The clusters.
    pub clusters: Vec<ClusterRow>,
    /// Works that belong to no replica set.
    pub works: Vec<WorkRow>,
}

/// A replica set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SetRow {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// How it stands.
    pub state: State,
    /// Its phase; absent while no cluster is selected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<ReplicaSetPhase>,
    /// Clusters that are to have it.
    pub desired: i64,
    /// Clusters with the current template.
    pub updated: i64,
    /// Clusters in which it is available.
    pub available: i64,
    /// Clusters in which something of it failed.
    pub failed: usize,
    /// What the hub says of it.
    pub message: String,
}

/// A cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClusterRow {
    /// Its name.
    pub name: String,
    /// The worst of its works, or of its agent.
    pub state: State,
    /// Its works.
    pub works: usize,
    /// Those that are applied.
    pub applied: usize,
    /// Those whose objects are available.
    pub available: usize,
    /// Those that failed.
    pub failing: usize,
    /// Since when the cluster has not been as it should be: the first of its works, or its agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// What is wrong there.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// A work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WorkRow {
    /// The cluster that it is for.
    pub cluster: String,
    /// Its name.
    pub name: String,
    /// How it stands.
    pub state: State,
    /// Why, as a word.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Why, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

impl ClusterRow {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            state: State::Ok,
            works: 0,
            applied: 0,
            available: 0,
            failing: 0,
            since: None,
            message: String::new(),
        }
    }

    /// Takes what is said of something in the cluster.
    fn take(&mut self, what: &str, verdict: &Verdict) {
        let Verdict {
            state,
            message,
            since,
            ..
        } = verdict;
        if verdict.is_ok() {
            return;
        }
        // The worst is told, and of equals the one that has been so longest.
        let age = |since: Option<Timestamp>| since.unwrap_or(Timestamp::MAX);
        let worse = *state > self.state;
        if worse || (*state == self.state && age(*since) < age(self.since)) {
            self.state = *state;
            self.since = *since;
            self.message = format!("{what}{message}");
        }
    }
}

impl Fleet {
    /// The report on the whole fleet, or on the sets of a namespace and what they put on clusters.
    pub fn report(&self, namespace: Option<&str>) -> FleetReport {
        let shown = |id: &Id| namespace.is_none_or(|namespace| id.0 == namespace);
        let sets: BTreeMap<String, &Id> = self
            .sets
            .keys()
            .filter(|id| shown(id))
            .map(|id| (owner_label(&id.0, &id.1), id))
            .collect();
        let mut clusters: BTreeMap<&str, ClusterRow> = BTreeMap::new();
        if namespace.is_none() {
            for (name, agent) in &self.clusters {
                let row = clusters
                    .entry(name)
                    .or_insert_with(|| ClusterRow::new(name));
                row.take("", agent);
            }
        }
        let mut failed: BTreeMap<&Id, BTreeSet<&str>> = BTreeMap::new();
        let mut works = Vec::new();
        for ((cluster, name), work) in &self.works {
            let owner = sets.get(&work.owner).copied();
            if namespace.is_some() && owner.is_none() {
                continue;
            }
            let row = clusters.entry(cluster).or_insert_with(|| {
                let mut row = ClusterRow::new(cluster);
                if let Some(agent) = self.clusters.get(cluster) {
                    row.take("", agent);
                }
                row
            });
            row.works += 1;
            row.applied += usize::from(work.applied);
            row.available += usize::from(work.available);
            row.take(&format!("{name}: "), &work.verdict);
            if work.verdict.state == State::Failed {
                row.failing += 1;
                if let Some(set) = owner {
                    failed.entry(set).or_default().insert(cluster);
                }
            }
            if owner.is_none() {
                let verdict = work.verdict.clone();
                works.push(WorkRow {
                    cluster: cluster.clone(),
                    name: name.clone(),
                    state: verdict.state,
                    reason: verdict.reason,
                    message: verdict.message,
                    since: verdict.since,
                });
            }
        }
        let sets: Vec<SetRow> = self
            .sets
            .iter()
            .filter(|(id, _)| shown(id))
            .map(|(id, set)| set.row(id, failed.get(id).map_or(0, BTreeSet::len)))
            .collect();
        let clusters: Vec<ClusterRow> = clusters.into_values().collect();
        let of_sets = sets.iter().map(|row| row.state);
        let of_clusters = clusters.iter().map(|row| row.state);
        FleetReport {
            state: of_sets.chain(of_clusters).max().unwrap_or_default(),
            sets,
            clusters,
            works,
        }
    }
}

impl SetLine {
    fn row(&self, (namespace, name): &Id, failed: usize) -> SetRow {
        let state = if failed > 0 || self.phase == Some(ReplicaSetPhase::Failed) {
            State::Failed
        } else if self.progress == Progress::Ready {
            State::Ok
        } else {
            State::Waiting
        };
        let message = match self.progress {
            Progress::Unseen => "no hub has looked at it as it is now".to_owned(),
            _ => self.message.clone(),
        };
        SetRow {
            namespace: namespace.clone(),
            name: name.clone(),
            state,
            phase: self.phase.clone(),
            desired: self.desired,
            updated: self.updated,
            available: self.available,
            failed,
            message,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::explain::agent_verdict;

    fn condition(type_: &str, status: &str, since: &str) -> Value {
        json!({"type": type_, "status": status, "observedGeneration": 1, "reason": "R",
            "message": format!("{type_} is {status}"), "lastTransitionTime": since})
    }

    /// A set that the hub has seen, with one cluster.
    fn set(namespace: &str, name: &str, phase: &str, ready: &str) -> (Id, SetLine) {
        let since = "2026-01-01T00:00:00Z";
        let set = serde_json::from_value(json!({
            "metadata": {"namespace": namespace, "name": name, "generation": 1},
            "spec": {"placementRefs": [{"name": "all"}]},
            "status": {"phase": phase, "message": "so and so",
                "conditions": [condition("Ready", ready, since),
                    condition("Progressing", "False", since)],
                "summary": {"desiredTotal": 3, "updated": 2, "available": 1}}}))
        .unwrap();
        ((namespace.into(), name.into()), SetLine::read(&set))
    }

    fn work(cluster: &str, name: &str, owner: Option<&str>, conditions: &Value) -> (Id, WorkLine) {
        let key = "work.open-cluster-management.io/manifestworkreplicaset";
        let labels = owner.map_or(json!({}), |owner| json!({key: owner}));
        let work = serde_json::from_value(json!({
            "metadata": {"namespace": cluster, "name": name, "generation": 1, "labels": labels},
            "status": {"conditions": conditions}}))
        .unwrap();
        ((cluster.into(), name.into()), WorkLine::read(&work))
    }

    fn fleet() -> Fleet {
        let well = json!([
            condition("Applied", "True", "2026-01-01T00:00:00Z"),
            condition("Available", "True", "2026-01-01T00:00:00Z")
        ]);
        let failed = |at: &str| json!([condition("Applied", "False", at)]);
        let late = failed("2026-01-01T00:02:00Z");
        Fleet {
            sets: BTreeMap::from([
                set("default", "web", "Progressing", "False"),
                set("other", "db", "Ready", "True"),
            ]),
            works: BTreeMap::from([
                work("c1", "web-1", Some("default.web"), &well),
                work("c1", "db-1", Some("other.db"), &well),
                work("c2", "web-1", Some("default.web"), &late),
                work("c2", "own", None, &failed("2026-01-01T00:01:00Z")),
                work("c3", "web-1", Some("default.web"), &json!(null)),
            ]),
            clusters: BTreeMap::from([("c4".to_owned(), Verdict::default())]),
        }
    }

    #[test]
    fn a_fleet_is_summed_up_by_set_and_by_cluster() {
        let report = fleet().report(None);
        assert_eq!(report.state, State::Failed);
        let sets: Vec<_> = report
            .sets
            .iter()
            .map(|row| (&*row.name, row.state, row.desired, row.failed))
            .collect();
        assert_eq!(
            sets,
            [("web", State::Failed, 3, 1), ("db", State::Ok, 3, 0)]
        );
        let clusters: Vec<_> = report
            .clusters
            .iter()
            .map(|row| {
                let numbers = [row.works, row.applied, row.available, row.failing];
                (&*row.name, row.state, numbers, &*row.message)
            })
            .collect();
        assert_eq!(
            clusters,
            [
                ("c1", State::Ok, [2, 2, 2, 0], ""),
                // The one that failed first.
                ("c2", State::Failed, [2, 0, 0, 2], "own: Applied is False"),
                (
                    "c3",
                    State::Waiting,
                    [1, 0, 0, 0],
                    "web-1: no agent has looked at it"
                ),
                ("c4", State::Ok, [0, 0, 0, 0], "")
            ]
        );
        assert_eq!(
            report.clusters[1].since,
            "2026-01-01T00:01:00Z".parse().ok()
        );
        let works: Vec<_> = report
            .works
            .iter()
            .map(|row| (&*row.cluster, &*row.name))
            .collect();
        assert_eq!(works, [("c2", "own")]);
    }

    #[test]
    fn a_namespace_has_its_sets_and_what_they_put_on_clusters() {
        let report = fleet().report(Some("other"));
        assert_eq!(report.state, State::Ok);
        let clusters: Vec<_> = report
            .clusters
            .iter()
            .map(|row| (&*row.name, row.works))
            .collect();
        assert_eq!(
            (report.sets.len(), clusters, report.works.len()),
            (1, vec![("c1", 1)], 0)
        );
    }

    #[test]
    fn a_set_that_failed_says_so_whatever_its_works_say() {
        let mut fleet = Fleet::default();
        fleet
            .sets
            .extend([set("default", "web", "Failed", "False")]);
        assert_eq!(fleet.report(None).state, State::Failed);
        let unseen = serde_json::from_value(json!({
            "metadata": {"namespace": "default", "name": "web", "generation": 1}, "spec": {}}));
        let unseen = SetLine::read(&unseen.unwrap());
        fleet.sets.insert(("default".into(), "web".into()), unseen);
        let report = fleet.report(None);
        assert_eq!(
            (report.state, &*report.sets[0].message),
            (State::Waiting, "no hub has looked at it as it is now")
        );
    }

    #[test]
    fn an_agent_that_is_away_makes_its_cluster_unknown() {
        let away = serde_json::from_value(
            json!({"metadata": {}, "spec": {}, "status": {"conditions": [
            condition("ManagedClusterConditionAvailable", "Unknown", "2026-01-01T00:00:00Z")]}}),
        );
        let verdict = agent_verdict(&away.unwrap());
        assert_eq!(
            (&*verdict.reason, verdict.since),
            ("AgentAway", "2026-01-01T00:00:00Z".parse().ok())
        );
        let mut fleet = fleet();
        fleet.clusters.insert("c1".to_owned(), verdict);
        for namespace in [None, Some("other")] {
            let row = &fleet.report(namespace).clusters[0];
            assert_eq!((&*row.name, row.state), ("c1", State::Unknown));
        }
    }

    #[test]
    fn a_status_that_does_not_read_is_unknown() {
        let (id, line) = work("c1", "odd", None, &json!(5));
        let fleet = Fleet {
            works: BTreeMap::from([(id, line)]),
            ..Fleet::default()
        };
        let report = fleet.report(None);
        assert_eq!(report.state, State::Unknown);
        assert!(
            report.works[0]
                .message
                .starts_with("its status does not read")
        );
    }
}
