//! Where the API server of the hub is, and what to call it.

use std::path::PathBuf;

use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};

use crate::BuildError;

/// How to reach the API server of the hub.
#[derive(Clone)]
#[non_exhaustive]
pub enum HubConfig {
    /// Settings that the caller has put together.
    Config(Box<Config>),
    /// A kubeconfig file.
    Kubeconfig {
        /// The file; `None` looks where kubectl does (`KUBECONFIG`, then `~/.kube/config`).
        path: Option<PathBuf>,
        /// The context; `None` takes the current one.
        context: Option<String>,
    },
    /// The service account of the pod this process runs in.
    InCluster,
}

impl From<Config> for HubConfig {
    fn from(config: Config) -> Self {
        Self::Config(Box::new(config))
    }
}

/// Without credentials.
impl std::fmt::Debug for HubConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Config(config) => f
                .debug_tuple("Config")
                .field(&config.cluster_url.to_string())
                .finish(),
            Self::Kubeconfig { path, context } => f
                .debug_struct("Kubeconfig")
                .field("path", path)
                .field("context", context)
                .finish(),
            Self::InCluster => f.write_str("InCluster"),
        }
    }
}

impl HubConfig {
    /// Returns the client settings and the hub id.
    pub(crate) async fn resolve(self) -> Result<(Config, String), BuildError> {
        match self {
            Self::Config(config) => {
                let hub_id = hub_id_of(&config);
                Ok((*config, hub_id))
            }
            Self::InCluster => {
                let config = Config::incluster().map_err(BuildError::InCluster)?;
                let hub_id = hub_id_of(&config);
                Ok((config, hub_id))
            }
            Self::Kubeconfig { path, context } => from_kubeconfig(path, context).await,
        }
    }
}

/// The address as Go spells it. A [`http::Uri`](kube::Config::cluster_url) without a path shows a
/// slash at the end that neither kubeconfigs nor Go's in-cluster settings have.
fn hub_id_of(config: &Config) -> String {
    let url = config.cluster_url.to_string();
    match url.strip_suffix('/') {
        Some(bare) if config.cluster_url.path() == "/" => bare.to_owned(),
        _ => url,
    }
}

async fn from_kubeconfig(
    path: Option<PathBuf>,
    context: Option<String>,
) -> Result<(Config, String), BuildError> {
    let shown = path
        .as_ref()
        .map_or_else(|| "(default)".to_owned(), |path| path.display().to_string());
    let wrong = |source| BuildError::Kubeconfig {
        path: shown.clone(),
        source: Box::new(source),
    };
    let kubeconfig = match path {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    }
    .map_err(wrong)?;
    // The text of the file, not of the parsed address: a slash more is another hub.
    let hub_id =
        server_of(&kubeconfig, context.as_deref()).ok_or_else(|| BuildError::NoServer {
            path: shown.clone(),
            context: context
                .clone()
                .or_else(|| kubeconfig.current_context.clone())
                .unwrap_or_default(),
        })?;
    let options = KubeConfigOptions {
        context,
        ..KubeConfigOptions::default()
    };
    let config = Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .map_err(wrong)?;
    Ok((config, hub_id))
}

/// The `server` of a context.
fn server_of(kubeconfig: &Kubeconfig, context: Option<&str>) -> Option<String> {
    let context = context.or(kubeconfig.current_context.as_deref())?;
    let context = kubeconfig
        .contexts
        .iter()
        .find(|named| named.name == context)?
        .context
        .as_ref()?;
    kubeconfig
        .clusters
        .iter()
        .find(|named| named.name == context.cluster)?
        .cluster
        .as_ref()?
        .server
        .clone()
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;

    const KUBECONFIG: &str = r#"
apiVersion: v1
kind: Config
current-context: a
contexts:
- {name: a, context: {cluster: one, user: u}}
- {name: b, context: {cluster: two, user: u}}
- {name: c, context: {cluster: missing, user: u}}
clusters:
- {name: one, cluster: {server: "http://hub.example:8080"}}
- {name: two, cluster: {server: "http://hub.example:8080/"}}
users:
- {name: u, user: {token: s3cret}}
"#;

    fn file() -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), KUBECONFIG).unwrap();
        file
    }

    async fn resolve(context: Option<&str>) -> Result<(Config, String), BuildError> {
        let file = file();
        HubConfig::Kubeconfig {
            path: Some(file.path().to_owned()),
            context: context.map(str::to_owned),
        }
        .resolve()
        .await
    }

    #[tokio::test]
    async fn the_hub_id_is_the_address_as_the_file_spells_it() {
        let (config, hub_id) = resolve(None).await.unwrap();
        assert_eq!(hub_id, "http://hub.example:8080");
        assert_eq!(config.cluster_url.host(), Some("hub.example"));
        let (_, hub_id) = resolve(Some("b")).await.unwrap();
        assert_eq!(hub_id, "http://hub.example:8080/");
    }

    #[tokio::test]
    async fn the_hub_id_of_given_settings_has_no_slash_of_its_own() {
        for (url, hub_id) in [
            ("https://hub:6443", "https://hub:6443"),
            ("https://hub:6443/k8s/", "https://hub:6443/k8s/"),
        ] {
            let config = Config::new(url.parse().unwrap());
            assert_eq!(HubConfig::from(config).resolve().await.unwrap().1, hub_id);
        }
    }

    #[tokio::test]
    async fn what_is_missing_is_named() {
        let error = resolve(Some("c")).await.unwrap_err();
        assert!(
            error.to_string().ends_with("has no server for context c"),
            "{error}"
        );
        let missing = HubConfig::Kubeconfig {
            path: Some("/no/such/kubeconfig".into()),
            context: None,
        };
        let error = missing.resolve().await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "failed to read the kubeconfig /no/such/kubeconfig of the hub"
        );
        assert!(error.source().is_some());
    }

    #[tokio::test]
    async fn outside_a_pod_there_is_no_cluster_to_be_in() {
        let result = HubConfig::InCluster.resolve().await;
        if std::env::var_os("KUBERNETES_SERVICE_HOST").is_none() {
            assert!(matches!(result, Err(BuildError::InCluster(_))));
        }
    }
}
