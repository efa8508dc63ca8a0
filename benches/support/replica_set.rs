//! A replica set as pure state, with one work in each of N clusters, and status events for it.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;

use jiff::Timestamp;
use muster_core::replicaset::{
    Decision, PlacementFacts, PlacementRef, ReplicaSet, Report, ResourceKey, Template, Value,
    WorkFacts, WorkKey, work_name,
};
use muster_core::rollout::{ConditionFacts, Strategy, Truth, WorkConditions};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

const PLACEMENT: &str = "all";
const SPEC_HASH: [u8; 32] = [7; 32];

/// The state, and what is needed to make the next event.
#[derive(Debug)]
pub struct Subject {
    set: ReplicaSet,
    labels: Arc<BTreeMap<String, String>>,
    work: String,
    /// The value that each cluster reported last.
    ready: Vec<i64>,
    random: StdRng,
}

/// One work's new state.
pub type Event = (WorkKey, WorkFacts);

fn cluster(index: usize) -> String {
    format!("cluster-{index:06}")
}

impl Subject {
    /// A rolled out set over `clusters` clusters.
    pub fn new(clusters: usize) -> Self {
        let mut set = ReplicaSet::new("default", "web");
        set.set_template(Template {
            generation: 1,
            spec_hash: SPEC_HASH,
            labels: BTreeMap::new(),
            placements: vec![PlacementRef {
                name: PLACEMENT.to_owned(),
                strategy: Ok(Strategy::default()),
            }],
        });
        let decision = Decision {
            name: format!("{PLACEMENT}-decision-1"),
            group_index: Some("0".to_owned()),
            group_name: String::new(),
            clusters: (0..clusters).map(cluster).collect(),
        };
        let number = u32::try_from(clusters).unwrap_or(u32::MAX);
        let selected = PlacementFacts::of(number, 1, [&decision]);
        set.set_placement(PLACEMENT, Some(Arc::new(selected)));
        let labels = Arc::new(set.work_labels(PLACEMENT));
        let mut subject = Self {
            set,
            labels,
            work: work_name("default", "web", PLACEMENT),
            ready: vec![0; clusters],
            random: StdRng::seed_from_u64(4),
        };
        for event in subject.wave() {
            subject.take(event);
        }
        subject
    }

    /// Status events of random clusters; each changes the reported values.
    pub fn events(&mut self, count: usize) -> Vec<Event> {
        (0..count)
            .map(|_| {
                let index = self.random.random_range(0..self.ready.len());
                self.event(index)
            })
            .collect()
    }

    /// One status event of each cluster, in random order.
    pub fn wave(&mut self) -> Vec<Event> {
        let mut order: Vec<usize> = (0..self.ready.len()).collect();
        order.shuffle(&mut self.random);
        order.into_iter().map(|index| self.event(index)).collect()
    }

    fn event(&mut self, index: usize) -> Event {
        let ready = (self.ready[index] + 1) % 4;
        self.ready[index] = ready;
        let is_true = Some(ConditionFacts {
            status: Truth::True,
            observed_generation: Some(1),
            transition: Timestamp::UNIX_EPOCH,
        });
        let facts = WorkFacts {
            placement: PLACEMENT.to_owned(),
            generation: 1,
            spec_hash: SPEC_HASH,
            labels: Arc::clone(&self.labels),
            version: Some(1),
            started: None,
            unannotated: None,
            deleting: false,
            waits_for: None,
            trouble: None,
            conditions: WorkConditions {
                applied: is_true,
                available: is_true,
                ..WorkConditions::default()
            },
            report: report(ready),
        };
        (
            WorkKey {
                cluster: cluster(index),
                name: self.work.clone(),
            },
            facts,
        )
    }

    /// What the hub does for each event, up to the status write: takes it in and looks for
    /// wanted writes.
    pub fn take(&mut self, (key, facts): Event) {
        self.set.set_work(key, facts);
        black_box(self.set.take_actions(usize::MAX));
    }

    /// Computes everything again, as a hub without running counters would.
    pub fn recount(&self) {
        black_box(self.set.recount());
    }
}

/// The three well-known values of a Deployment.
fn report(ready: i64) -> Report {
    let resource = ResourceKey {
        group: "apps".to_owned(),
        version: "v1".to_owned(),
        resource: "deployments".to_owned(),
        name: "web".to_owned(),
        namespace: "default".to_owned(),
    };
    let value = |name: &str, value| (name.to_owned(), Value::Integer(value));
    let values = vec![
        value("ReadyReplicas", ready),
        value("Replicas", 3),
        value("AvailableReplicas", ready),
    ];
    Report::from_iter([(resource, values)])
}
