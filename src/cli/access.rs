//! The way to the API of a hub, or of a cluster.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::Api;
use kube::config::{InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

use super::ConfigArgs;
use super::error::CommandError;
use super::names::namespace;
use crate::runtime::{kubeconfig_file, read_runtime_kubeconfig, runtime_kubeconfig};
use crate::settings::{HubApi, Settings, SettingsError};

/// Where an object is.
#[derive(Debug, Args)]
pub(super) struct AccessArgs {
    /// Namespace of the object. Default: that of the kubeconfig's context, else `default`.
    #[arg(short, long, value_name = "NAMESPACE", value_parser = namespace)]
    namespace: Option<String>,
    #[command(flatten)]
    hub: HubArgs,
}

/// Where the hub is.
#[derive(Debug, Args)]
pub(super) struct HubArgs {
    /// Kubeconfig of the API server. Default: as kubectl (`KUBECONFIG`, `~/.kube/config`, the pod).
    #[arg(long, value_name = "FILE", conflicts_with_all = ["config", "set"])]
    kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// The hub's own settings say how to reach it, also an embedded one.
    #[command(flatten)]
    config: ConfigArgs,
}

/// Why there is no way to the hub.
#[derive(Debug, thiserror::Error)]
pub(super) enum AccessError {
    /// The settings are wrong.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// An embedded hub that leaves its kubeconfig nowhere.
    #[error(
        "hub.data_dir is not set and hub.listen has port 0: other commands cannot find such a hub"
    )]
    NoDataDir,
    /// The kubeconfig of a running hub is not there, or may be somebody else's.
    #[error("failed to read {}: {source} (is the hub running, as this user?)", file.display())]
    NotRunning {
        file: PathBuf,
        source: std::io::Error,
    },
    /// A kubeconfig that is missing or wrong.
    #[error("{}: {}{hint}", file.display(), told(source))]
    File {
        file: PathBuf,
        source: Box<KubeconfigError>,
        hint: &'static str,
    },
    /// A context that is not in the default kubeconfig.
    #[error("kubeconfig: {}", told(.0))]
    Context(Box<KubeconfigError>),
    /// No kubeconfig and no service account.
    #[error("no hub found: {0}; set --kubeconfig or --config")]
    Infer(#[from] InferConfigError),
    /// The settings do not make a client.
    #[error("failed to create a client for the hub: {0}")]
    Client(#[from] kube::Error),
}

/// An error with its causes, which its text leaves out.
pub(super) fn told(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = error.source();
    }
    text
}

/// The hub's API, and a namespace.
pub(super) struct Access {
    pub(super) client: Client,
    pub(super) namespace: String,
}

/// Whether an answer says that the object of this name does not exist, and not that its type
/// does not.
pub(super) fn is_missing(error: &kube::Error, name: &str) -> bool {
    let kube::Error::Api(status) = error else {
        return false;
    };
    let named = status.details.as_ref().map(|details| details.name.as_str());
    status.is_not_found() && named == Some(name)
}

/// The error for a namespace that does not exist, as far as the user may know.
pub(super) async fn lacks_namespace(client: &Client, namespace: &str) -> Option<CommandError> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let found = namespaces.get_metadata(namespace).await;
    let is_missing = found.is_err_and(|error| is_missing(&error, namespace));
    is_missing.then(|| CommandError::NotFound(format!("namespace {namespace}")))
}

impl Access {
    pub(super) async fn open(args: &AccessArgs) -> Result<Self, AccessError> {
        let config = args.hub.client_config().await?;
        let namespace = args.namespace.clone();
        Ok(Self {
            namespace: namespace.unwrap_or_else(|| config.default_namespace.clone()),
            client: Client::try_from(config)?,
        })
    }

    /// The error for an object of the namespace that does not exist; it may be the namespace that
    /// does not, as far as the user may know.
    pub(super) async fn missing(&self, what: &str) -> CommandError {
        match lacks_namespace(&self.client, &self.namespace).await {
            Some(error) => error,
            None => CommandError::NotFound(what.to_owned()),
        }
    }
}

impl HubArgs {
    pub(super) async fn client(&self) -> Result<Client, AccessError> {
        Ok(Client::try_from(self.client_config().await?)?)
    }

    async fn client_config(&self) -> Result<Config, AccessError> {
        if let Some(file) = &self.kubeconfig {
            return read(file.clone(), self.context.clone(), "").await;
        }
        let sources = self.config.sources();
        if !self.config.is_given() && (sources.file().is_none() || self.context.is_some()) {
            return infer(self.context.clone()).await;
        }
        let hub = Settings::load(&sources)?.hub;
        if hub.api == HubApi::Embedded {
            let hint = " (has the hub been started?)";
            if let Some(dir) = hub.data_dir {
                return read(kubeconfig_file(&dir), self.context.clone(), hint).await;
            }
            let (file, _) = running_hub(hub.listen)?;
            return read(file, self.context.clone(), hint).await;
        }
        let context = self.context.clone().or(hub.context);
        match hub.kubeconfig {
            Some(file) => read(file, context, "").await,
            None => infer(context).await,
        }
    }
}

/// The kubeconfig of an embedded hub that runs without a data directory, and its text.
pub(super) fn running_hub(listen: SocketAddr) -> Result<(PathBuf, Vec<u8>), AccessError> {
    let file = runtime_kubeconfig(listen).ok_or(AccessError::NoDataDir)?;
    match read_runtime_kubeconfig(&file) {
        Ok(text) => Ok((file, text)),
        Err(source) => Err(AccessError::NotRunning { file, source }),
    }
}

async fn read(
    file: PathBuf,
    context: Option<String>,
    hint: &'static str,
) -> Result<Config, AccessError> {
    let options = KubeConfigOptions {
        context,
        ..KubeConfigOptions::default()
    };
    let config = match Kubeconfig::read_from(&file) {
        Ok(kubeconfig) => Config::from_custom_kubeconfig(kubeconfig, &options).await,
        Err(error) => Err(error),
    };
    config.map_err(|source| AccessError::File {
        file,
        source: Box::new(source),
        hint,
    })
}

async fn infer(context: Option<String>) -> Result<Config, AccessError> {
    if context.is_none() {
        return Ok(Config::infer().await?);
    }
    let options = KubeConfigOptions {
        context,
        ..KubeConfigOptions::default()
    };
    let config = Config::from_kubeconfig(&options).await;
    config.map_err(|error| AccessError::Context(Box::new(error)))
}
