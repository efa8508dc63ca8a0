//! Gives a [`kube::Client`] for ManifestWorks over any driver.
//!
//! An agent reads and writes its works through this client and does not know what carries them:
//!
//! | Driver | The works are in |
//! |---|---|
//! | [`Driver::Kube`] | the API of the hub, reached with a kubeconfig |
//! | [`Driver::Loopback`] | the API of a hub in the same process, called without a socket |
//! | [`Driver::Events`] | an API server of the agent's own, kept as CloudEvents over a bus say; see [`events`] |
//!
//! Beside the client goes the [hub id](WorkClient::hub_id): the text that the names of
//! AppliedManifestWorks are derived from.

pub mod events;
mod hub;

use std::sync::Arc;

use kube::Client;
pub use muster_cloudevents::bus::Bus;

pub use hub::HubConfig;

use events::{AgentEvents, AgentWorks, EventsError, HubLink};

/// Hub id of the loopback driver unless the builder is told another: a hub in the same process has
/// no address.
pub const LOOPBACK_HUB_ID: &str = "loopback";

/// What carries the works between hub and agent.
#[derive(Clone)]
#[non_exhaustive]
pub enum Driver {
    /// The API server of the hub.
    Kube(HubConfig),
    /// The API of a hub in this process.
    Loopback(Client),
    /// Events of sources.
    Events {
        /// How the agent gets them.
        agent: Box<AgentEvents>,
        /// What carries them.
        bus: Arc<dyn Bus>,
        /// The text that names the sources together, such as the address of their broker.
        hub_id: String,
    },
}

/// Without the client, which has nothing to show.
impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Kube(hub) => f.debug_tuple("Kube").field(hub).finish(),
            Self::Loopback(_) => f.write_str("Loopback"),
            Self::Events { agent, .. } => f.debug_tuple("Events").field(agent).finish(),
        }
    }
}

/// Why no work client could be built. Each text names the file, context or address at fault and
/// never a credential.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The kubeconfig cannot be read or does not hang together.
    #[error("failed to read the kubeconfig {path} of the hub")]
    Kubeconfig {
        /// Where it was looked for.
        path: String,
        /// What is wrong with it.
        #[source]
        source: Box<kube::config::KubeconfigError>,
    },
    /// This process does not run in a pod of the hub.
    #[error("failed to find the API server of the hub from inside a pod")]
    InCluster(#[source] kube::config::InClusterError),
    /// The context, or the cluster that it names, has no server address.
    #[error("the kubeconfig {path} of the hub has no server for context {context}")]
    NoServer {
        /// The kubeconfig.
        path: String,
        /// The context that was asked for.
        context: String,
    },
    /// The settings do not make a client, for example since a certificate cannot be read.
    #[error("failed to set up a client for the hub {hub_id}")]
    Client {
        /// Address of the hub.
        hub_id: String,
        /// What is wrong.
        #[source]
        source: Box<kube::Error>,
    },
    /// Works cannot come as events.
    #[error(transparent)]
    Events(Box<EventsError>),
}

impl From<EventsError> for BuildError {
    fn from(source: EventsError) -> Self {
        Self::Events(Box::new(source))
    }
}

/// Builds a [`WorkClient`].
#[derive(Debug, Clone)]
pub struct WorkClientBuilder {
    driver: Driver,
    hub_id: Option<String>,
}

impl WorkClientBuilder {
    /// Sets the hub id in place of the driver's own, so that an agent that reaches its hub under a
    /// new address keeps its AppliedManifestWorks.
    #[must_use]
    pub fn hub_id(mut self, hub_id: impl Into<String>) -> Self {
        self.hub_id = Some(hub_id.into());
        self
    }

    /// Reads the settings and makes the client. Nothing is sent yet.
    ///
    /// # Errors
    ///
    /// [`BuildError`] when the settings are missing or wrong.
    pub async fn build(self) -> Result<WorkClient, BuildError> {
        let mut works = None;
        let (client, hub_id) = match self.driver {
            Driver::Loopback(client) => (client, LOOPBACK_HUB_ID.to_owned()),
            Driver::Events { agent, bus, hub_id } => {
                let started = AgentWorks::start(*agent, &*bus).await?;
                let client = started.client();
                works = Some(Arc::new(started));
                (client, hub_id)
            }
            Driver::Kube(hub) => {
                let (config, hub_id) = hub.resolve().await?;
                let client = Client::try_from(config).map_err(|source| BuildError::Client {
                    hub_id: hub_id.clone(),
                    source: Box::new(source),
                })?;
                (client, hub_id)
            }
        };
        Ok(WorkClient {
            client,
            hub_id: self.hub_id.unwrap_or(hub_id),
            works,
        })
    }
}

/// A client for ManifestWorks, whatever carries them. Cheap to clone.
#[derive(Clone)]
pub struct WorkClient {
    client: Client,
    hub_id: String,
    works: Option<Arc<AgentWorks>>,
}

impl std::fmt::Debug for WorkClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkClient")
            .field("hub_id", &self.hub_id)
            .finish_non_exhaustive()
    }
}

impl WorkClient {
    /// Begins a client over `driver`.
    pub const fn builder(driver: Driver) -> WorkClientBuilder {
        WorkClientBuilder {
            driver,
            hub_id: None,
        }
    }

    /// The client.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// How the link to the bus goes, where works come as events.
    pub fn link(&self) -> Option<HubLink> {
        self.works.as_ref().map(|works| works.hub_link())
    }

    /// Waits until what has been written is on disk, where works are kept here.
    pub async fn close(&self) {
        if let Some(works) = &self.works {
            works.close().await;
        }
    }

    /// The text that names the hub: the server address exactly as the kubeconfig spells it, or
    /// [`LOOPBACK_HUB_ID`]. Two spellings of one address are two hubs, as upstream.
    pub fn hub_id(&self) -> &str {
        &self.hub_id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn idle_client() -> Client {
        let config = kube::Config::new("http://127.0.0.1:9".parse().unwrap());
        Client::try_from(config).unwrap()
    }

    #[tokio::test]
    async fn a_loopback_hub_has_a_fixed_id_unless_told_another() {
        let driver = Driver::Loopback(idle_client());
        let client = WorkClient::builder(driver.clone()).build().await.unwrap();
        assert_eq!(client.hub_id(), "loopback");
        let client = WorkClient::builder(driver)
            .hub_id("hub-a")
            .build()
            .await
            .unwrap();
        assert_eq!(client.hub_id(), "hub-a");
        assert_eq!(client.client().default_namespace(), "default");
    }

    #[tokio::test]
    async fn debug_texts_show_no_credentials() {
        let mut config = kube::Config::new("http://hub:80".parse().unwrap());
        config.auth_info.token = Some("s3cret".to_owned().into());
        let driver = Driver::Kube(HubConfig::from(config));
        let builder = WorkClient::builder(driver);
        let text = format!("{builder:?} {:?}", builder.clone().build().await.unwrap());
        assert!(
            text.contains("http://hub") && !text.contains("s3cret"),
            "{text}"
        );
    }
}
