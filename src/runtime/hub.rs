//! The hub's API: embedded in this process, or a Kubernetes cluster.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use muster_apiserver::{ApiServer, ConnectionLimits, ServeOptions, Serving, Storage};
use tracing::info;

use super::admission::WorkAdmission;
use super::process::{self, RuntimeKubeconfig};
use crate::settings::{HubApi, Settings};

/// File in the data directory that holds the embedded hub's objects.
const STORE: &str = "hub.redb";
/// Directory in the data directory that holds CA and token.
const IDENTITY: &str = "pki";

/// Why the hub's API is not there.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The data directory cannot be made.
    #[error("hub.data_dir: failed to create {path}: {source}")]
    DataDir {
        /// The directory.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The kubeconfig of the embedded API server cannot be left in the data directory.
    #[error("hub.data_dir: failed to write a kubeconfig to {path}: {source}")]
    WriteKubeconfig {
        /// The directory.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The embedded API server cannot start, for example over a damaged store.
    #[error("failed to start the embedded hub API: {0}")]
    Build(#[from] muster_apiserver::BuildError),
    /// The embedded API server cannot be served.
    #[error("hub.listen: {0}")]
    Serve(#[from] muster_apiserver::ServeError),
    /// The kubeconfig of the hub is missing or wrong.
    #[error("hub.kubeconfig: {0}")]
    Kubeconfig(#[from] Box<kube::config::KubeconfigError>),
    /// Neither a kubeconfig nor a service account was found.
    #[error("hub.api is \"kubeconfig\", and none was found: {0}")]
    Infer(#[from] kube::config::InferConfigError),
    /// The settings do not make a client.
    #[error("failed to create a client for the hub: {0}")]
    Client(#[from] kube::Error),
}

/// A hub's API with what keeps it up.
pub(super) enum Hub {
    Embedded {
        api: ApiServer,
        serving: Box<Serving>,
        /// For other commands, where there is no data directory.
        _kubeconfig: Option<RuntimeKubeconfig>,
    },
    Kubernetes(Client),
}

/// Without the client, which has nothing to show.
impl std::fmt::Debug for Hub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Embedded { .. } => "Embedded",
            Self::Kubernetes(_) => "Kubernetes",
        })
    }
}

/// How to reach the hub's API on a Kubernetes cluster.
pub(super) async fn config_of_hub(settings: &Settings) -> Result<kube::Config, HubError> {
    let context = KubeConfigOptions {
        context: settings.hub.context.clone(),
        ..Default::default()
    };
    Ok(match (&settings.hub.kubeconfig, &settings.hub.context) {
        (Some(file), _) => {
            let kubeconfig = Kubeconfig::read_from(file).map_err(Box::new)?;
            kube::Config::from_custom_kubeconfig(kubeconfig, &context)
                .await
                .map_err(Box::new)?
        }
        (None, Some(_)) => kube::Config::from_kubeconfig(&context)
            .await
            .map_err(Box::new)?,
        (None, None) => kube::Config::infer().await?,
    })
}

impl Hub {
    pub(super) async fn start(settings: &Settings) -> Result<Self, HubError> {
        match settings.hub.api {
            HubApi::Embedded => Self::embedded(settings).await,
            HubApi::Kubeconfig => Self::kubernetes(settings).await,
        }
    }

    async fn embedded(settings: &Settings) -> Result<Self, HubError> {
        let data_dir = settings.hub.data_dir.clone();
        if let Some(path) = &data_dir {
            muster_privatefiles::create_dir_all(path).map_err(|source| HubError::DataDir {
                path: path.clone(),
                source,
            })?;
        }
        let storage = data_dir
            .as_ref()
            .map_or(Storage::Memory, |dir| Storage::Redb(dir.join(STORE)));
        let mut builder = ApiServer::builder()
            .storage(storage)
            .admission(Arc::new(WorkAdmission));
        for crd in muster_api::crds::hub() {
            builder = builder.crd(crd);
        }
        let api = builder.build().await?;
        let options = ServeOptions {
            listen: settings.hub.listen,
            dir: data_dir.as_ref().map(|dir| dir.join(IDENTITY)),
            tokens: BTreeMap::new(),
            limits: ConnectionLimits::default(),
        };
        let serving = api.serve(options).await?;
        let mut kept = None;
        if let Some(path) = data_dir {
            process::write_kubeconfig(&path, &serving.kubeconfig())
                .map_err(|source| HubError::WriteKubeconfig { path, source })?;
        } else if let Some(file) = process::runtime_kubeconfig(settings.hub.listen) {
            match RuntimeKubeconfig::write(file, &serving.kubeconfig()) {
                Ok(written) => kept = Some(written),
                // As on a read-only root, where nobody runs other commands either.
                Err(error) => info!(%error, "no kubeconfig for other commands was written"),
            }
        }
        info!(address = %serving.addr(), "serving the embedded hub API");
        Ok(Self::Embedded {
            api,
            serving: Box::new(serving),
            _kubeconfig: kept,
        })
    }

    async fn kubernetes(settings: &Settings) -> Result<Self, HubError> {
        let mut config = config_of_hub(settings).await?;
        // The hub's actors retry on their own, each write at its own pace.
        config.default_retry = false;
        info!(server = %config.cluster_url, "using the hub API of a Kubernetes cluster");
        let client = Client::try_from(config)?;
        Ok(Self::Kubernetes(client))
    }

    pub(super) fn client(&self) -> Client {
        match self {
            Self::Embedded { api, .. } => api.client(),
            Self::Kubernetes(client) => client.clone(),
        }
    }

    pub(super) fn kubeconfig(&self) -> Option<Kubeconfig> {
        match self {
            Self::Embedded { serving, .. } => Some(serving.kubeconfig()),
            Self::Kubernetes(_) => None,
        }
    }

    pub(super) async fn stop(self) {
        if let Self::Embedded { api, serving, .. } = self {
            serving.stop().await;
            api.shutdown().await;
        }
    }
}
