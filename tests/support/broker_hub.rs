//! A hub whose broker one agent may use.

use std::path::Path;

use anyhow::Result;

use super::muster::{Muster, hub_kubeconfig, run_with};
use super::{Rest, client_of, on_free_ports};

/// A process that is hub and broker. Its source is called `hub`.
pub(crate) struct BrokerHub {
    muster: Muster,
    /// Where its broker listens, without TLS.
    pub(crate) broker: String,
    /// The hub's API.
    pub(crate) rest: Rest,
}

impl BrokerHub {
    /// Starts one with its files in `dir`, whose broker knows the agent of this cluster.
    pub(crate) async fn start(dir: &Path, cluster: &str, password: &str) -> Result<Self> {
        let hash = run_with(&["hash-password"], password).await?.stdout;
        let (users, data) = (dir.join("users"), dir.join("data"));
        let known = format!("user {cluster} {} agent {cluster}\n", hash.trim());
        std::fs::write(&users, known)?;
        let (muster, broker) = on_free_ports(|[port]| {
            let broker = format!("127.0.0.1:{port}");
            let config = format!(
                "[hub]\nlisten = \"HUB\"\ndata_dir = \"{}\"\n[transport]\ndriver = \"mqtt\"\n\
                 [mqtt]\nsource = \"hub\"\n\
                 [broker]\nlisten = \"{broker}\"\nusers_file = \"{}\"\n",
                data.display(),
                users.display()
            );
            async move { Ok((Muster::start(dir, "hub", &config).await?, broker)) }
        })
        .await?;
        let rest = Rest::new(client_of(&hub_kubeconfig(&data)).await?);
        Ok(Self {
            muster,
            broker,
            rest,
        })
    }

    /// Ends it.
    pub(crate) async fn kill(self) -> Result<()> {
        self.muster.kill().await
    }
}
