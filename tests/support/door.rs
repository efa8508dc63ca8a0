//! A way to a server that one story has for itself.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Passes connections on to a server that stories share, under an address of its own, so that
/// an agent behind it has a hub that no other has: a hub is known by its URL. Closed, it is a
/// server that cannot be reached; stalled, a network that has forgotten its connections.
#[derive(Debug)]
pub(crate) struct Door {
    url: String,
    open: watch::Sender<bool>,
    /// Changed, it stalls the connections there are.
    stalls: watch::Sender<()>,
    _stop: DropGuard,
}

impl Door {
    /// Opens a door to the server of `kubeconfig`, and writes a kubeconfig that uses it to `to`.
    pub(crate) async fn open(kubeconfig: &Path, to: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(kubeconfig)?;
        let mut config: Value = serde_saphyr::from_str(&text)?;
        let server = config["clusters"][0]["cluster"]["server"]
            .as_str()
            .and_then(|server| server.strip_prefix("https://"))
            .with_context(|| format!("no server in {}", kubeconfig.display()))?;
        let server: SocketAddr = server.trim_end_matches('/').parse()?;

        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let url = format!("https://{}", listener.local_addr()?);
        config["clusters"][0]["cluster"]["server"] = Value::from(url.as_str());
        // JSON is YAML.
        std::fs::write(to, config.to_string())?;

        let (open, stalls) = (watch::Sender::new(true), watch::Sender::new(()));
        let stop = CancellationToken::new();
        let serve = serve(listener, server, open.subscribe(), stalls.subscribe());
        tokio::spawn(stop.clone().run_until_cancelled_owned(serve));
        Ok(Self {
            url,
            open,
            stalls,
            _stop: stop.drop_guard(),
        })
    }

    /// The server's URL, as the kubeconfig has it.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Cuts every connection, and each new one at once.
    pub(crate) fn close(&self) {
        self.open.send_replace(false);
    }

    /// Lets connections through again.
    pub(crate) fn reopen(&self) {
        self.open.send_replace(true);
    }

    /// From now on nothing passes through the connections there are, and nobody is told: they stay
    /// open on both sides. New ones work.
    pub(crate) fn stall(&self) {
        self.stalls.send_replace(());
    }
}

async fn serve(
    listener: TcpListener,
    server: SocketAddr,
    open: watch::Receiver<bool>,
    stalls: watch::Receiver<()>,
) {
    while let Ok((client, _)) = listener.accept().await {
        let (mut open, mut stalls) = (open.clone(), stalls.clone());
        stalls.mark_unchanged();
        tokio::spawn(async move {
            // A door that is dropped closes, too. How a connection ended is for its two ends.
            tokio::select! {
                _ = open.wait_for(|open| !open) => {}
                _ = pass(client, server, &mut stalls) => {}
            }
        });
    }
}

async fn pass(
    mut client: TcpStream,
    server: SocketAddr,
    stalls: &mut watch::Receiver<()>,
) -> std::io::Result<()> {
    let mut server = TcpStream::connect(server).await?;
    tokio::select! {
        ended = tokio::io::copy_bidirectional(&mut client, &mut server) => ended.map(|_| ()),
        _ = stalls.changed() => std::future::pending().await,
    }
}
