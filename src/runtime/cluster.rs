//! The API of one cluster: real, or simulated in this process.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use muster_apiserver::{ApiServer, Storage};
use muster_apiserver::{SimulatorOptions, WorkloadSimulator};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::crds;
use super::throttle::throttled;
use crate::settings::{self, ClusterAccess, Settings};

/// Name under which the agent shows at API servers, as OCM's does: objects that it writes carry
/// it as their field manager.
const USER_AGENT: &str = muster_api::constants::DEFAULT_FIELD_MANAGER;

/// Why a cluster's API is not there.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The kubeconfig is missing or wrong.
    #[error("kubeconfig: {0}")]
    Kubeconfig(#[from] Box<kube::config::KubeconfigError>),
    /// This process does not run in a pod.
    #[error("in_cluster: {0}")]
    InCluster(#[from] kube::config::InClusterError),
    /// The settings do not make a client.
    #[error("failed to make a client: {0}")]
    Client(#[from] kube::Error),
    /// It is not clear which cluster has the agents' lease.
    #[error(
        "agent.leader_election: no single real cluster to hold the lease; set \
         agent.lease_kubeconfig"
    )]
    Lease,
    /// The simulated cluster cannot start.
    #[error("failed to start the simulated cluster: {0}")]
    Simulated(#[from] muster_apiserver::BuildError),
}

/// A cluster in this process: an API server and what makes workloads progress.
#[derive(Debug)]
pub struct SimulatedCluster {
    api: ApiServer,
    workloads: JoinHandle<()>,
    stop: CancellationToken,
}

impl SimulatedCluster {
    /// Starts an empty cluster whose workloads take `pace` for each step of a replica.
    ///
    /// # Errors
    ///
    /// The API server's.
    pub async fn start(pace: Duration) -> Result<Self, muster_apiserver::BuildError> {
        Self::with_crds(pace, muster_api::crds::spoke()).await
    }

    async fn with_crds(
        pace: Duration,
        crds: Vec<CustomResourceDefinition>,
    ) -> Result<Self, muster_apiserver::BuildError> {
        let mut builder = ApiServer::builder().storage(Storage::Memory);
        for crd in crds {
            builder = builder.crd(crd);
        }
        let api = builder.build().await?;
        let stop = CancellationToken::new();
        let options = SimulatorOptions {
            pace,
            ..SimulatorOptions::default()
        };
        let simulator = WorkloadSimulator::new(api.uncounted_client(), options);
        let workloads = tokio::spawn(simulator.run(stop.clone()));
        Ok(Self {
            api,
            workloads,
            stop,
        })
    }

    /// A client of the cluster.
    pub fn client(&self) -> Client {
        self.api.client()
    }

    /// Stops workloads and API server.
    pub async fn stop(self) {
        self.stop.cancel();
        let _ = self.workloads.await; // a panic was logged where it happened
        self.api.shutdown().await;
    }
}

/// What an agent with these settings needs on its cluster.
fn crds_of(settings: &Settings) -> Vec<CustomResourceDefinition> {
    let mut crds = muster_api::crds::spoke();
    if !settings.sinks.is_empty() {
        crds.extend(muster_api::crds::rules());
    }
    crds
}

/// A cluster whose agent runs in this process.
#[derive(Debug)]
pub(super) struct Cluster {
    name: String,
    api: Api,
}

enum Api {
    Simulated(SimulatedCluster),
    Real(Client),
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Simulated(_) => "Simulated",
            Self::Real(_) => "Real",
        })
    }
}

impl Cluster {
    pub(super) async fn start(
        cluster: &settings::Cluster,
        settings: &Settings,
        shutdown: &CancellationToken,
    ) -> Result<Self, ClusterError> {
        let Some(config) = config_of(&cluster.access).await? else {
            let simulated =
                SimulatedCluster::with_crds(settings.simulator.pace, crds_of(settings)).await?;
            return Ok(Self {
                name: cluster.name.clone(),
                api: Api::Simulated(simulated),
            });
        };
        let client = Client::try_from(config)?;
        let agent = &settings.agent;
        let client = throttled(client, agent.spoke_qps, agent.spoke_burst.get());
        // The agent retries on its own, so that a cluster that is away holds up nobody.
        tokio::spawn(crds::ensure(
            client.clone(),
            crds_of(settings),
            format!("cluster {}", cluster.name),
            shutdown.clone(),
        ));
        Ok(Self {
            name: cluster.name.clone(),
            api: Api::Real(client),
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn client(&self) -> Client {
        match &self.api {
            Api::Simulated(simulated) => simulated.client(),
            Api::Real(client) => client.clone(),
        }
    }

    pub(super) async fn stop(self) {
        if let Api::Simulated(simulated) = self.api {
            simulated.stop().await;
        }
    }
}

/// How to reach a real cluster; `None` for a simulated one.
pub(super) async fn config_of(access: &ClusterAccess) -> Result<Option<Config>, ClusterError> {
    let mut config = match access {
        ClusterAccess::Simulated => return Ok(None),
        ClusterAccess::InCluster => Config::incluster()?,
        ClusterAccess::Kubeconfig { file, context } => {
            let options = KubeConfigOptions {
                context: context.clone(),
                ..KubeConfigOptions::default()
            };
            match file {
                Some(file) => {
                    let kubeconfig = Kubeconfig::read_from(file).map_err(Box::new)?;
                    Config::from_custom_kubeconfig(kubeconfig, &options).await
                }
                None => Config::from_kubeconfig(&options).await,
            }
            .map_err(Box::new)?
        }
    };
    // The agent retries on its own and knows what for. The client would sit on a 503 of one broken
    // API group for minutes, and the agent take the whole cluster for silent.
    config.default_retry = false;
    config.headers.push((
        http::header::USER_AGENT,
        http::HeaderValue::from_static(USER_AGENT),
    ));
    Ok(Some(config))
}
