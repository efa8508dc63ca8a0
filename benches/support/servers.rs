//! Embedded servers, and the threads that benches run on.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use muster_apiserver::{ApiServer, ConnectionLimits, ServeOptions, Serving, Storage};

/// No bench takes longer; one that hangs ends here.
const BENCH_LIMIT: Duration = Duration::from_secs(180);

/// Runs `bench` in an actix system whose requests run on worker threads, as muster itself does.
pub fn block_on(bench: impl Future<Output = Result<()>>) -> Result<()> {
    block_on_for(BENCH_LIMIT, bench)
}

/// The same for a bench that has much to build up, and takes at most so long.
pub fn block_on_for(limit: Duration, bench: impl Future<Output = Result<()>>) -> Result<()> {
    // Twice only where a program calls this twice; the first choice stays then.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let system = actix::System::with_tokio_rt(|| {
        tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .expect("the system gives a process threads and an event queue")
    });
    system.block_on(async {
        tokio::time::timeout(limit, bench)
            .await
            .with_context(|| format!("the bench was not at its end after {limit:?}"))?
    })
}

/// A hub's API, in memory.
pub async fn hub_api() -> Result<ApiServer> {
    let mut builder = ApiServer::builder().storage(Storage::Memory);
    for crd in muster_api::crds::hub() {
        builder = builder.crd(crd);
    }
    Ok(builder.build().await?)
}

/// A managed cluster's API, in memory.
pub async fn spoke_api() -> Result<ApiServer> {
    let mut builder = ApiServer::builder().storage(Storage::Memory);
    for crd in muster_api::crds::spoke() {
        builder = builder.crd(crd);
    }
    Ok(builder.build().await?)
}

/// Serves an API over HTTPS on a free port of loopback.
pub async fn serve(api: &ApiServer) -> Result<Serving> {
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    Ok(api
        .serve(ServeOptions {
            listen,
            dir: None,
            tokens: BTreeMap::new(),
            limits: ConnectionLimits::default(),
        })
        .await?)
}

/// A client over HTTPS.
pub async fn client(kubeconfig: Kubeconfig) -> Result<Client> {
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    Ok(Client::try_from(config)?)
}

/// Looks again and again until `look` says true; fails after `limit`.
pub async fn until(
    limit: Duration,
    what: &str,
    mut look: impl AsyncFnMut() -> Result<bool>,
) -> Result<()> {
    let looks = async {
        while !look().await? {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    };
    tokio::time::timeout(limit, looks)
        .await
        .with_context(|| format!("waited {limit:?} for {what}"))?
}
