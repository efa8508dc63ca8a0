//! One etcd for all real API servers of a run, each under its own prefix.

use std::ffi::OsString;
use std::path::Path;

use anyhow::Result;
use tokio::net::TcpStream;

use super::parts::{Part, Parts};
use super::ports::on_free_ports;
use super::process::Process;

/// A running etcd.
#[derive(Debug)]
pub(crate) struct Etcd {
    process: Process,
    url: String,
}

impl Etcd {
    /// Starts an empty etcd with its data under `dir`.
    pub(crate) async fn start(parts: &Parts, dir: &Path) -> Result<Self> {
        let program = parts.path(Part::Etcd)?;
        on_free_ports(|[client, peer]| async move {
            let url = format!("http://127.0.0.1:{client}");
            let peer_url = format!("http://127.0.0.1:{peer}");
            let args: Vec<OsString> = vec![
                "--name=tests".into(),
                format!("--data-dir={}", dir.join("etcd").display()).into(),
                format!("--listen-client-urls={url}").into(),
                format!("--advertise-client-urls={url}").into(),
                format!("--listen-peer-urls={peer_url}").into(),
                format!("--initial-advertise-peer-urls={peer_url}").into(),
                format!("--initial-cluster=tests={peer_url}").into(),
                // Stories do not measure etcd's durability.
                "--unsafe-no-fsync".into(),
            ];
            let listens =
                || async move { Ok(TcpStream::connect(("127.0.0.1", client)).await.map(drop)?) };
            let log = dir.join("etcd.log");
            let (process, ()) = Process::start("etcd", program, &args, &log, listens).await?;
            Ok(Self { process, url })
        })
        .await
    }

    /// The URL of its client port.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Ends it.
    pub(crate) async fn stop(self) -> Result<()> {
        self.process.kill().await
    }
}
