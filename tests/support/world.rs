//! What a run shares: servers, started on first use and ended with the run.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::sync::OnceCell;

use super::api_server::RealApiServer;
use super::browser::Browser;
use super::cluster::{Cluster, unique_name};
use super::embedded::EmbeddedApiServer;
use super::etcd::Etcd;
use super::mosquitto::{Mosquitto, MosquittoConf, mqtt5};
use super::parts::{MissingPart, Part, Parts};
use super::prometheus::{Prometheus, Promtool};

/// Who serves the clusters of a story.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    /// muster's own API server, in process.
    Embedded,
    /// kube-apiserver with etcd.
    Real,
}

impl Backend {
    /// All of them: a story that tells of a cluster runs on each.
    pub(crate) const ALL: [Self; 2] = [Self::Embedded, Self::Real];

    /// The first part of a story's name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
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

    /// A program of this run, or a folder.
    pub(crate) fn part(&self, part: Part) -> Result<PathBuf> {
        self.servers.part(part)
    }

    /// The cluster that works are written to.
    pub(crate) async fn hub(&self) -> Result<Cluster> {
        self.cluster(&self.servers.hub).await
    }

    /// A cluster that works are applied to. `tokio::try_join!` with [`Self::hub`] starts both
    /// at a time.
    pub(crate) async fn spoke(&self) -> Result<Cluster> {
        self.cluster(&self.servers.spoke).await
    }

    /// The kubectl of this run.
    pub(crate) fn kubectl(&self) -> Result<PathBuf> {
        self.servers.kubectl()
    }

    /// A folder for files that are worth a look when the story fails.
    pub(crate) fn dir(&self, name: &str) -> Result<PathBuf> {
        self.servers.new_dir(name)
    }

    /// Who serves the clusters of the story.
    pub(crate) const fn backend(&self) -> Backend {
        self.backend
    }

    /// A cluster for this story alone, for what would disturb others: a hub whose controllers act
    /// on everything in it.
    pub(crate) async fn own_cluster(&self) -> Result<OwnCluster> {
        let servers = &self.servers;
        Ok(match self.backend {
            Backend::Embedded => OwnCluster::Embedded(Box::new(servers.own_embedded().await?)),
            Backend::Real => OwnCluster::Real(Box::new(servers.own_api_server().await?)),
        })
    }

    /// A mosquitto for this story alone.
    pub(crate) async fn mosquitto(&self, conf: MosquittoConf) -> Result<Mosquitto> {
        self.servers.mosquitto(conf).await
    }

    async fn cluster(&self, shared: &SharedCluster) -> Result<Cluster> {
        let servers = &self.servers;
        Ok(match self.backend {
            Backend::Embedded => {
                let start = Box::pin(servers.start_embedded(shared.name));
                shared.embedded.get(start).await?.cluster().clone()
            }
            Backend::Real => {
                let start = Box::pin(servers.start_real(shared.prefix));
                shared.real.get(start).await?.cluster().clone()
            }
        })
    }
}

/// A server that one story has for itself, until it drops or stops it.
#[derive(Debug)]
pub(crate) enum OwnCluster {
    Embedded(Box<EmbeddedApiServer>),
    Real(Box<RealApiServer>),
}

impl OwnCluster {
    /// The cluster that it serves.
    pub(crate) fn cluster(&self) -> &Cluster {
        match self {
            Self::Embedded(server) => server.cluster(),
            Self::Real(server) => server.cluster(),
        }
    }
}

/// The servers of a run.
#[derive(Debug)]
pub(crate) struct Servers {
    parts: Parts,
    dir: TempDir,
    etcd: Shared<Etcd>,
    hub: SharedCluster,
    spoke: SharedCluster,
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
            // The hub has the prefix of a server by default: it shows in some messages.
            hub: SharedCluster::new("hub", "registry"),
            spoke: SharedCluster::new("spoke", "spoke"),
        })
    }

    /// A real API server for one story alone, which may count its watches or kill it.
    pub(crate) async fn own_api_server(&self) -> Result<RealApiServer> {
        self.start_real(&unique_name("own")).await
    }

    /// The same, which writes down what is asked of it.
    pub(crate) async fn audited_api_server(&self) -> Result<RealApiServer> {
        self.start_real_with(&unique_name("audited"), true).await
    }

    /// A folder for one story.
    pub(crate) fn new_dir(&self, name: &str) -> Result<PathBuf> {
        let dir = self.dir.path().join(name);
        std::fs::create_dir(&dir)?;
        Ok(dir)
    }

    async fn start_real(&self, prefix: &str) -> Result<RealApiServer> {
        self.start_real_with(prefix, false).await
    }

    async fn start_real_with(&self, prefix: &str, audited: bool) -> Result<RealApiServer> {
        let etcd = self
            .etcd
            .get(Etcd::start(&self.parts, self.dir.path()))
            .await?;
        RealApiServer::start(&self.parts, self.dir.path(), etcd, prefix, audited).await
    }

    async fn start_embedded(&self, name: &str) -> Result<EmbeddedApiServer> {
        EmbeddedApiServer::start(&self.parts, self.dir.path(), name).await
    }

    /// The kubectl of this run.
    pub(crate) fn kubectl(&self) -> Result<PathBuf> {
        self.part(Part::Kubectl)
    }

    /// A program of this run.
    pub(crate) fn part(&self, part: Part) -> Result<PathBuf> {
        Ok(self.parts.path(part)?.to_owned())
    }

    /// An embedded API server for one story alone.
    pub(crate) async fn own_embedded(&self) -> Result<EmbeddedApiServer> {
        Box::pin(self.start_embedded(&unique_name("own"))).await
    }

    /// A Prometheus for one story alone, with these lines of settings.
    pub(crate) async fn prometheus(&self, settings: &str) -> Result<Prometheus> {
        let dir = self.new_dir(&unique_name("prometheus"))?;
        Prometheus::start(&self.parts, &dir, settings).await
    }

    /// The promtool of this run.
    pub(crate) fn promtool(&self) -> Result<Promtool> {
        Ok(Promtool::new(self.parts.path(Part::Promtool)?))
    }

    /// A `mosquitto_pub` that speaks MQTT 5 to any broker on this port.
    pub(crate) fn publisher(&self, port: u16) -> Result<Command> {
        Ok(mqtt5(self.parts.path(Part::MosquittoPub)?, port))
    }

    /// The same for `mosquitto_sub`.
    pub(crate) fn subscriber(&self, port: u16) -> Result<Command> {
        Ok(mqtt5(self.parts.path(Part::MosquittoSub)?, port))
    }

    /// A mosquitto for one story alone.
    pub(crate) async fn mosquitto(&self, conf: MosquittoConf) -> Result<Mosquitto> {
        let dir = self.dir.path().join(unique_name("mosquitto"));
        std::fs::create_dir(&dir)?;
        Mosquitto::start(&self.parts, &dir, conf).await
    }

    /// A browser for one story alone.
    pub(crate) async fn browser(&self) -> Result<Browser> {
        let dir = self.new_dir(&unique_name("browser"))?;
        Browser::start(&self.parts, &dir).await
    }

    /// Ends every server. The files go too, unless `keep_files` asks for them; then their
    /// folder is returned.
    pub(crate) async fn stop(self, keep_files: bool) -> Result<Option<PathBuf>> {
        for cluster in [self.hub, self.spoke] {
            if let Some(api_server) = cluster.embedded.into_inner() {
                api_server.stop().await;
            }
            if let Some(api_server) = cluster.real.into_inner() {
                api_server.stop().await?;
            }
        }
        if let Some(etcd) = self.etcd.into_inner() {
            etcd.stop().await?;
        }
        Ok(keep_files.then(|| self.dir.keep()))
    }
}

/// A cluster that stories share, on each backend.
#[derive(Debug)]
struct SharedCluster {
    name: &'static str,
    /// Where the real one keeps its objects in etcd.
    prefix: &'static str,
    embedded: Shared<EmbeddedApiServer>,
    real: Shared<RealApiServer>,
}

impl SharedCluster {
    const fn new(name: &'static str, prefix: &'static str) -> Self {
        Self {
            name,
            prefix,
            embedded: Shared::new(),
            real: Shared::new(),
        }
    }
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
