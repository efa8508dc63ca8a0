//! What a run shares: servers, started on first use and ended with the run.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use tempfile::TempDir;
use tokio::sync::OnceCell;

use super::api_server::RealApiServer;
use super::cluster::{Cluster, unique_name};
use super::etcd::Etcd;
use super::mosquitto::{Mosquitto, MosquittoConf};
use super::parts::{MissingPart, Parts};

/// Who serves the clusters of a story.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    /// kube-apiserver with etcd.
    Real,
}

impl Backend {
    /// All of them: a story that tells of a cluster runs on each.
    pub(crate) const ALL: [Self; 1] = [Self::Real];

    /// The first part of a story's name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Real => "real",
        }
    }
}

/// What a story may ask for.
#[derive(Clone, Debug)]
pub(crate) struct World {
    backend: Backend,
    servers: Arc<Servers>,
}

impl World {
    pub(crate) fn new(backend: Backend, servers: Arc<Servers>) -> Self {
        Self { backend, servers }
    }

    /// The cluster that works are written to.
    pub(crate) async fn hub(&self) -> Result<Cluster> {
        match self.backend {
            Backend::Real => Ok(self.servers.real_hub().await?.cluster().clone()),
        }
    }
}

/// The servers of a run.
#[derive(Debug)]
pub(crate) struct Servers {
    parts: Parts,
    dir: TempDir,
    etcd: Shared<Etcd>,
    real_hub: Shared<RealApiServer>,
}

/// A server that stories share: started by the first that asks, and once only, since one that
/// fails to start would fail again for every story, at the price of its time limit.
#[derive(Debug)]
struct Shared<T>(OnceCell<Result<T, String>>);

impl<T> Shared<T> {
    const fn new() -> Self {
        Self(OnceCell::const_new())
    }

    async fn get(&self, start: impl Future<Output = Result<T>>) -> Result<&T> {
        let started = self.0.get_or_try_init(|| async {
            match start.await {
                Err(missing) if missing.is::<MissingPart>() => Err(missing),
                started => Ok(started.map_err(|err| format!("{err:#}"))),
            }
        });
        started.await?.as_ref().map_err(|err| anyhow!("{err}"))
    }

    fn into_inner(self) -> Option<T> {
        self.0.into_inner()?.ok()
    }
}

impl Servers {
    /// Nothing is started yet. Logs and data go under the build's own folder for such things.
    pub(crate) fn new() -> Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("stories-")
            .tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
        Ok(Self {
            parts: Parts::find()?,
            dir,
            etcd: Shared::new(),
            real_hub: Shared::new(),
        })
    }

    /// The real API server that stories share.
    pub(crate) async fn real_hub(&self) -> Result<&RealApiServer> {
        self.real_hub.get(self.start_api_server("hub")).await
    }

    /// A real API server for one story alone, which may count its watches or kill it.
    pub(crate) async fn own_api_server(&self) -> Result<RealApiServer> {
        self.start_api_server(&unique_name("own")).await
    }

    async fn start_api_server(&self, prefix: &str) -> Result<RealApiServer> {
        let etcd = self
            .etcd
            .get(Etcd::start(&self.parts, self.dir.path()))
            .await?;
        RealApiServer::start(&self.parts, self.dir.path(), etcd, prefix).await
    }

    /// A mosquitto for one story alone.
    pub(crate) async fn mosquitto(&self, conf: MosquittoConf) -> Result<Mosquitto> {
        let dir = self.dir.path().join(unique_name("mosquitto"));
        std::fs::create_dir(&dir)?;
        Mosquitto::start(&self.parts, &dir, conf).await
    }

    /// Ends every server. The files go too, unless `keep_files` asks for them; then their
    /// folder is returned.
    pub(crate) async fn stop(self, keep_files: bool) -> Result<Option<PathBuf>> {
        if let Some(api_server) = self.real_hub.into_inner() {
            api_server.stop().await?;
        }
        if let Some(etcd) = self.etcd.into_inner() {
            etcd.stop().await?;
        }
        Ok(keep_files.then(|| self.dir.keep()))
    }
}
