//! muster's own API server, in process.

use std::path::Path;

use anyhow::Result;
use muster_apiserver::{ApiServer, Storage};

use super::cluster::Cluster;
use super::parts::Parts;
use super::rest::Rest;

/// A running embedded API server.
#[derive(Debug)]
pub(crate) struct EmbeddedApiServer {
    server: ApiServer,
    cluster: Cluster,
}

impl EmbeddedApiServer {
    /// Starts a server that keeps its objects in memory. Its kubeconfig is written under `dir`.
    pub(crate) async fn start(parts: &Parts, dir: &Path, name: &str) -> Result<Self> {
        let server = ApiServer::builder()
            .storage(Storage::Memory)
            .build()
            .await?;
        let client = server.client();
        let kubeconfig = dir.join(format!("{name}.kubeconfig"));
        let cluster = Cluster::new(client.clone(), Rest::new(client), kubeconfig, parts);
        Ok(Self { server, cluster })
    }

    /// The cluster that it serves.
    pub(crate) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Ends it.
    pub(crate) async fn stop(self) {
        self.server.shutdown().await;
    }
}
