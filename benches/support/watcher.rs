//! Somebody who watches Deployments of a cluster, in a process of its own: muster's watches without
//! works around them, or what they are measured against.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use actix::{Actor, Addr, AsyncContext, Context, Handler};
use anyhow::{Context as _, Result, bail};
use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{DynamicObject, ListParams, WatchEvent, WatchParams};
use kube::config::Kubeconfig;
use kube::core::{ApiResource, Request};
use kube::runtime::reflector::{self, Store, reflector};
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client};
use muster_actors::agent::{Sighted, WatchedGroup};
use muster_actors::supervision::{Health, Io, Registry};
use muster_actors::watch::{WatchSupervisor, Watches};
use muster_core::watch_plan::WatchLimits;
use serde_json::Value;
use tokio::sync::watch;

use super::agent::KUBECONFIGS;
use super::process::{self, Process, Usage};
use super::{fixtures, servers, slow};

/// The program's argument that makes it a watcher.
pub const ARGUMENT: &str = "watcher";

/// How long it may take until something was seen.
const PATIENCE: Duration = Duration::from_secs(60);

/// The known slowness of muster's watches: bytes for each object, and busy time for each report of
/// an object, for every object that is watched.
const BALLAST: usize = 8 << 10;
const RECOUNT: Duration = if cfg!(debug_assertions) {
    Duration::from_micros(1)
} else {
    Duration::from_nanos(100)
};

/// Who watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `Watches`, their `WatchSupervisor`, and what an agent keeps of each watched object.
    Muster,
    /// kube's reflector with a store for each namespace.
    Reflector,
    /// A watch request for each namespace and `serde_json` into a `Value`, nothing kept.
    Values,
}

impl Kind {
    const ALL: [(Self, &'static str); 3] = [
        (Self::Muster, "muster"),
        (Self::Reflector, "reflector"),
        (Self::Values, "values"),
    ];
}

/// Name of the n-th Deployment of a namespace.
pub fn object_name(number: usize) -> String {
    format!("web-{number:04}")
}

/// Runs it: `watcher KIND FOLDER`. Obeys `watch OBJECTS NAMESPACE`, `seen COUNT` and `usage`.
pub fn run() -> Result<()> {
    let mut arguments = std::env::args().skip_while(|arg| arg != ARGUMENT).skip(1);
    let kind = arguments.next().context("no kind")?;
    let kind = Kind::ALL.into_iter().find(|(_, name)| *name == kind);
    let (kind, _) = kind.context("no such kind")?;
    let dir = PathBuf::from(arguments.next().context("no folder with kubeconfigs")?);
    servers::block_on(obey(kind, &dir))
}

async fn obey(kind: Kind, dir: &Path) -> Result<()> {
    let [_, spoke] = KUBECONFIGS.map(|name| dir.join(name));
    let client = servers::client(Kubeconfig::read_from(spoke)?).await?;
    let (seen, mut seen_so_far) = watch::channel(0);
    let mut observed = match kind {
        Kind::Muster => Observed::Muster(Muster::start(client)),
        Kind::Reflector => Observed::Reflector(client, Vec::new()),
        Kind::Values => Observed::Values(client),
    };
    let mut commands = process::commands();
    while let Some(command) = commands.recv().await {
        match command.split(' ').collect::<Vec<_>>()[..] {
            ["watch", objects, namespace] => {
                observed.watch(objects.parse()?, namespace, &seen).await?;
            }
            ["seen", count] => {
                let count: usize = count.parse()?;
                let all = seen_so_far.wait_for(|seen| *seen >= count);
                let waited = tokio::time::timeout(PATIENCE, all).await;
                waited
                    .map(|seen| seen.map(drop))
                    .with_context(|| format!("{kind:?} has not seen {count} in {PATIENCE:?}"))??;
            }
            ["usage"] => {}
            _ => bail!("odd command: {command}"),
        }
        println!("{}", serde_json::to_string(&Usage::now()?)?);
    }
    Ok(())
}

enum Observed {
    Muster(Muster),
    Reflector(Client, Vec<Store<DynamicObject>>),
    Values(Client),
}

impl Observed {
    /// Begins to watch the objects of one more namespace, and to count the states that it sees.
    async fn watch(
        &mut self,
        objects: usize,
        namespace: &str,
        seen: &watch::Sender<usize>,
    ) -> Result<()> {
        match self {
            Self::Muster(muster) => {
                muster.watch(objects, namespace, seen.clone());
                Ok(())
            }
            Self::Reflector(client, stores) => {
                stores.push(reflect(client.clone(), namespace, seen.clone()));
                Ok(())
            }
            Self::Values(client) => values(client.clone(), namespace, seen.clone()).await,
        }
    }
}

struct Muster {
    watches: Arc<Watches>,
    groups: Vec<Addr<Group>>,
    objects: Arc<AtomicU32>,
    _supervisor: Addr<WatchSupervisor>,
}

impl Muster {
    fn start(client: Client) -> Self {
        let (watches, registry) = (Watches::new(), Registry::new());
        let supervisor = WatchSupervisor::new(
            "bench",
            client,
            Arc::clone(&watches),
            WatchLimits::default(),
            Io::current(),
            registry.clone(),
            Health::new(),
        );
        Self {
            watches,
            groups: Vec::new(),
            objects: Arc::default(),
            _supervisor: registry.start("WatchSupervisor", "bench", supervisor),
        }
    }

    fn watch(&mut self, objects: usize, namespace: &str, seen: watch::Sender<usize>) {
        let rules = fixtures::feedback_rules();
        let mut watched = WatchedGroup::default();
        for number in 0..objects {
            let meta = fixtures::deployment_meta(&object_name(number), namespace);
            watched.watch(&self.watches, &meta, &rules);
        }
        let count = u32::try_from(objects).unwrap_or(u32::MAX);
        self.objects.fetch_add(count, Ordering::Relaxed);
        let ballast = if slow::injected() { BALLAST } else { 0 };
        let group = Group {
            watched,
            seen,
            objects: Arc::clone(&self.objects),
            _ballast: vec![1; objects * ballast],
        };
        self.groups.push(group.start());
    }
}

/// Has the part of a work: reads the values of what has changed.
struct Group {
    watched: WatchedGroup,
    seen: watch::Sender<usize>,
    /// Objects of all groups.
    objects: Arc<AtomicU32>,
    _ballast: Vec<u8>,
}

impl Actor for Group {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.watched.belongs_to(ctx.address().recipient());
    }
}

impl Handler<Sighted> for Group {
    type Result = ();

    fn handle(&mut self, _: Sighted, _: &mut Self::Context) {
        let reported = self.watched.report();
        for _ in 0..reported {
            slow::spin(RECOUNT * self.objects.load(Ordering::Relaxed));
        }
        self.seen.send_modify(|seen| *seen += reported);
    }
}

fn deployments() -> ApiResource {
    ApiResource::erase::<Deployment>(&())
}

fn reflect(client: Client, namespace: &str, seen: watch::Sender<usize>) -> Store<DynamicObject> {
    let resource = deployments();
    let api: Api<DynamicObject> = Api::namespaced_with(client, namespace, &resource);
    let writer = reflector::store::Writer::new(resource);
    let store = writer.as_reader();
    let events = reflector(writer, watcher(api, watcher::Config::default()));
    tokio::spawn(events.for_each(move |event| {
        match event {
            Ok(watcher::Event::InitApply(_) | watcher::Event::Apply(_)) => {
                seen.send_modify(|seen| *seen += 1);
            }
            Ok(_) => {}
            Err(error) => eprintln!("reflector: {error}"),
        }
        std::future::ready(())
    }));
    store
}

async fn values(client: Client, namespace: &str, seen: watch::Sender<usize>) -> Result<()> {
    let resource = deployments();
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let version = api.list(&ListParams::default().limit(1)).await?.metadata;
    let version = version.resource_version.context("a list has a version")?;
    let request = Request::new(api.resource_url());
    let request = request.watch(&WatchParams::default(), &version)?;
    let events = client.request_events::<Value>(request).await?;
    let mut events = Box::pin(events);
    tokio::spawn(async move {
        while let Some(event) = events.next().await {
            match event {
                Ok(WatchEvent::Modified(value)) => {
                    std::hint::black_box(value);
                    seen.send_modify(|seen| *seen += 1);
                }
                Ok(_) => {}
                Err(error) => eprintln!("watch: {error}"),
            }
        }
    });
    Ok(())
}

/// Its process, from outside.
pub struct Watcher {
    process: Process,
    seen: usize,
}

impl Watcher {
    /// Starts it with the kubeconfigs in `dir`.
    pub fn start(kind: Kind, dir: &Path) -> Result<Self> {
        let (_, name) = Kind::ALL
            .into_iter()
            .find(|(other, _)| *other == kind)
            .context("every kind has a name")?;
        let dir = dir.to_str().context("an odd folder for temporary files")?;
        Ok(Self {
            process: Process::start(&[ARGUMENT, name, dir])?,
            seen: 0,
        })
    }

    /// Begins to watch one more namespace, which has so many objects.
    pub async fn watch(&mut self, objects: usize, namespace: &str) -> Result<Usage> {
        self.process
            .tell(&format!("watch {objects} {namespace}"))
            .await
    }

    /// Waits until it has seen so many more states of objects.
    pub async fn sees(&mut self, more: usize) -> Result<Usage> {
        self.seen += more;
        self.process.tell(&format!("seen {}", self.seen)).await
    }

    /// What it uses now.
    pub async fn usage(&mut self) -> Result<Usage> {
        self.process.usage().await
    }
}
