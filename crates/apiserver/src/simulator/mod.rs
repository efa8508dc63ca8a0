//! Makes a bare API server behave like a cluster: workloads progress, namespaces finish their
//! deletion, orphans are collected.
//!
//! The simulator works through any [`kube::Client`], so it brings life to the embedded server
//! and to a real kube-apiserver without controllers alike. It creates no pods and no
//! `ReplicaSet`s: the statuses of the workloads tell what pods would do.

mod conditions;
mod daemon_set;
mod deployment;
mod driver;
mod failure;
mod garbage;
mod job;
mod namespace;
mod stateful_set;

use std::time::Duration;

use kube::Client;
use tokio_util::sync::CancellationToken;

pub use failure::{Failure, FailureRule};

use driver::{Driver, Kind};

/// How simulated workloads behave.
#[derive(Clone, Debug)]
pub struct SimulatorOptions {
    /// Time that one replica takes to become ready.
    pub pace: Duration,
    /// Workloads that fail; the first rule that fits counts.
    pub failures: Vec<FailureRule>,
    /// Spreads the steps of different workloads: equal seeds give equal spreads.
    pub seed: u64,
}

impl Default for SimulatorOptions {
    fn default() -> Self {
        Self {
            pace: Duration::from_millis(200),
            failures: Vec::new(),
            seed: 0,
        }
    }
}

/// Controllers for a cluster that has none.
#[derive(Clone)]
pub struct WorkloadSimulator {
    client: Client,
    options: SimulatorOptions,
}

impl std::fmt::Debug for WorkloadSimulator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkloadSimulator")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl WorkloadSimulator {
    /// Prepares a simulator for the client's cluster.
    pub fn new(client: Client, options: SimulatorOptions) -> Self {
        Self { client, options }
    }

    /// Runs until the token is cancelled. Errors are retried, never returned: a cluster's
    /// controllers do not give up either.
    pub async fn run(self, stop: CancellationToken) {
        let kinds = [
            Kind {
                group: "apps",
                name: "Deployment",
                plural: "deployments",
                step: deployment::step,
            },
            Kind {
                group: "apps",
                name: "StatefulSet",
                plural: "statefulsets",
                step: stateful_set::step,
            },
            Kind {
                group: "apps",
                name: "DaemonSet",
                plural: "daemonsets",
                step: daemon_set::step,
            },
            Kind {
                group: "batch",
                name: "Job",
                plural: "jobs",
                step: job::step,
            },
        ];
        let drivers = kinds.map(|kind| {
            Driver {
                client: self.client.clone(),
                options: self.options.clone(),
                kind,
            }
            .run()
        });
        tokio::select! {
            () = stop.cancelled() => {}
            _ = futures::future::join_all(drivers) => {}
            () = namespace::run(self.client.clone()) => {}
            () = garbage::run(self.client) => {}
        }
    }
}
