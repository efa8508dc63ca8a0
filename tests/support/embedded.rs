//! muster's own API server, in process.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use anyhow::Result;
use muster_apiserver::{ApiServer, Authorization, ServeOptions, Serving, Storage};

use super::cluster::Cluster;
use super::parts::Parts;
use super::rest::Rest;

/// How many past events of a type a watch can resume from. Few, so that a story can make the
/// server forget; many beside the handful that a story writes between a list and its watch.
const HISTORY_EVENTS: usize = 250;

/// A running embedded API server: stories call it in process, kubectl over HTTPS on loopback.
#[derive(Debug)]
pub(crate) struct EmbeddedApiServer {
    server: ApiServer,
    serving: Serving,
    cluster: Cluster,
}

impl EmbeddedApiServer {
    /// Starts a server that keeps its objects in memory. Its kubeconfig is written under `dir`.
    pub(crate) async fn start(parts: &Parts, dir: &Path, name: &str) -> Result<Self> {
        let server = ApiServer::builder()
            .storage(Storage::Memory)
            .authorization(Authorization::Rbac)
            .watch_history(HISTORY_EVENTS)
            .build()
            .await?;
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let serving = server
            .serve(ServeOptions {
                listen,
                dir: None,
                tokens: BTreeMap::new(),
                limits: muster_apiserver::ConnectionLimits::default(),
            })
            .await?;
        let kubeconfig = dir.join(format!("embedded-{name}.kubeconfig"));
        // JSON is YAML.
        std::fs::write(&kubeconfig, serde_json::to_vec(&serving.kubeconfig())?)?;
        let client = server.client();
        let cluster = Cluster::new(client.clone(), Rest::new(client), kubeconfig, parts);
        Ok(Self {
            server,
            serving,
            cluster,
        })
    }

    /// The cluster that it serves.
    pub(crate) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Ends it.
    pub(crate) async fn stop(self) {
        self.serving.stop().await;
        self.server.shutdown().await;
    }
}
