//! One side of works over MQTT in a process of its own: a hub or an agent, each with its API server;
//! or a hub that only starts. Only the side counts there, not the broker and not who measures.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use muster_api::constants::MANIFEST_WORK_FINALIZER;
use muster_api::work::{ManifestWork, RawManifestWork};
use muster_apiserver::{ApiServer, Storage};
use muster_cloudevents::bus::{Bus, Loopback};
use muster_cloudevents::client::{ClientOptions, ConnectionState};
use muster_workclient::events::{AgentEvents, AgentWorks, EventLink, HubEvents, SourceEvents};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use super::events::{CODEC, Counted, Meter, SOURCE, Traffic, agent_of, dialect, mqtt};
use super::process::{self, Process, Usage};
use super::{fixtures, machine, servers, slow};

/// The program's argument that makes it a side.
pub const ARGUMENT: &str = "event_side";
/// The cluster of the hub and the agent.
pub const CLUSTER: &str = "c0";
/// Works that are written at a time.
const AT_A_TIME: usize = 16;
/// A hub that restarts may take a while with all its works.
const LIMIT: Duration = Duration::from_secs(600);
/// Works of a cluster, where a hub has many.
const IN_CLUSTER: usize = 100;

/// What a side tells of itself.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct State {
    /// What went over its bus.
    pub traffic: Traffic,
    /// Works whose last state is not at the broker yet.
    pub waiting: usize,
    /// Works that have the status of their generation.
    pub done: usize,
    /// Resident memory, now and at most since that was last forgotten.
    pub resident_kib: u64,
    /// See `resident_kib`.
    pub peak_kib: u64,
}

/// What the start of a hub took.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Started {
    /// Seconds until its API has opened its file.
    pub opened: f64,
    /// Seconds until works have been listed.
    pub listed: f64,
    /// Seconds until it has joined the broker; as `listed` where it does not join.
    pub joined: f64,
    /// Works.
    pub works: usize,
    /// Resident memory at that time, and at most until then.
    pub resident_kib: u64,
    /// See `resident_kib`.
    pub peak_kib: u64,
}

/// Runs a side until the end of standard input: `event_side KIND ARGUMENTS`.
pub fn run() -> Result<()> {
    let begun = Instant::now();
    let mut arguments = std::env::args().skip_while(|arg| arg != ARGUMENT).skip(1);
    let kind = arguments.next().context("a side of no kind")?;
    let arguments: Vec<String> = arguments.collect();
    let given: Vec<&str> = arguments.iter().map(String::as_str).collect();
    servers::block_on_for(LIMIT, async {
        match (kind.as_str(), given.as_slice()) {
            ("hub", [broker, works]) => hub(broker, works.parse()?).await,
            ("agent", [broker]) => agent(broker).await,
            ("fill", [file, works]) => fill(Path::new(file), works.parse()?).await,
            ("restart", [file, broker]) => restart(begun, file.into(), Some(broker)).await,
            ("list", [file]) => restart(begun, file.into(), None).await,
            ("index", []) => index().await,
            other => bail!("no such side: {other:?}"),
        }
    })
}

/// Which works have the status of their generation.
#[derive(Default)]
struct Tally {
    done: AtomicUsize,
    by_uid: Mutex<HashMap<String, bool>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Generation {
    observed_generation: Option<i64>,
}

#[derive(Deserialize)]
struct Observed {
    #[serde(default)]
    conditions: Vec<Generation>,
}

fn is_done(work: &RawManifestWork) -> bool {
    let status = work.status.as_deref();
    let observed = status.and_then(|raw| serde_json::from_str::<Observed>(raw.get()).ok());
    let first = observed.and_then(|observed| observed.conditions.into_iter().next());
    first.is_some_and(|first| first.observed_generation == work.metadata.generation)
}

impl Tally {
    fn seen(&self, work: &RawManifestWork, meter: &Meter) {
        let done = is_done(work);
        let mut by_uid = self.by_uid.lock().unwrap_or_else(PoisonError::into_inner);
        let before = by_uid.insert(work.uid().unwrap_or_default(), done);
        match (before.unwrap_or_default(), done) {
            (false, true) => {
                self.done.fetch_add(1, Ordering::SeqCst);
                meter.touch();
            }
            (true, false) => {
                self.done.fetch_sub(1, Ordering::SeqCst);
            }
            _ => {}
        }
    }
}

/// Answers `state` and `forget`; everything else is done by `other`.
async fn obey(
    link: &EventLink,
    meter: &Meter,
    tally: &Tally,
    mut other: impl AsyncFnMut(&str) -> Result<()>,
) -> Result<()> {
    let mut commands = process::commands();
    let mut ballast = Vec::new();
    while let Some(command) = commands.recv().await {
        match command.as_str() {
            "state" => {}
            "forget" => {
                drop(std::mem::take(&mut ballast));
                machine::forget_peak()?;
                if slow::injected() {
                    // As much again and again as there is.
                    let bytes = usize::try_from(machine::resident_kib()? * 1024 * 3)?;
                    ballast = vec![1_u8; bytes];
                }
            }
            command => other(command).await?,
        }
        let state = State {
            traffic: meter.read(),
            waiting: link.waiting(),
            done: tally.done.load(Ordering::SeqCst),
            resident_kib: machine::resident_kib()?,
            peak_kib: machine::peak_kib()?,
        };
        println!("{}", serde_json::to_string(&state)?);
    }
    Ok(())
}

fn source_events(client: Client) -> Result<HubEvents> {
    let source = SourceEvents {
        source: SOURCE.to_owned(),
        dialect: dialect(),
        form: CODEC.0,
        others: BTreeSet::new(),
        options: ClientOptions::default(),
    };
    Ok(HubEvents::new(source, client)?)
}

/// Keeps telling what the hub's API has; `listed` is told when that has been done once.
async fn watch(
    client: Client,
    listed: oneshot::Sender<()>,
    mut tell: impl FnMut(&watcher::Event<RawManifestWork>),
) -> Result<()> {
    let mut listed = Some(listed);
    let api: Api<RawManifestWork> = Api::all(client);
    let mut steps = watcher(api, watcher::Config::default())
        .default_backoff()
        .boxed();
    while let Some(step) = steps.next().await {
        let step = step?;
        tell(&step);
        if matches!(step, watcher::Event::InitDone) {
            listed.take().map(|listed| listed.send(()));
        }
    }
    Ok(())
}

fn tell_events(events: &HubEvents, step: &watcher::Event<RawManifestWork>) {
    match step {
        watcher::Event::Init => events.listing(),
        watcher::Event::InitApply(work) | watcher::Event::Apply(work) => events.seen(work),
        watcher::Event::InitDone => events.listed(),
        watcher::Event::Delete(work) => events.gone(work.uid().unwrap_or_default().as_str()),
    }
}

fn work_name(number: usize) -> String {
    format!("web-{number}")
}

async fn hub(broker: &str, works: usize) -> Result<()> {
    let server = servers::hub_api().await?;
    let client = server.client();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = serde_json::from_value(json!({"metadata": {"name": CLUSTER}}))?;
    let params = PostParams::default();
    namespaces.create(&params, &namespace).await?;
    let api: Api<ManifestWork> = Api::namespaced(client.clone(), CLUSTER);
    let create = async |number| -> Result<()> {
        let mut work = fixtures::event_work("", &work_name(number), CLUSTER)?;
        work.metadata.uid = None;
        api.create(&params, &work).await?;
        Ok(())
    };
    stream::iter((0..works).map(create))
        .buffer_unordered(AT_A_TIME)
        .try_collect::<()>()
        .await?;
    let (meter, tally) = (Arc::new(Meter::default()), Arc::new(Tally::default()));
    let events = source_events(client.clone())?;
    let (listed, first) = oneshot::channel();
    let (told, counted, at) = (events.clone(), Arc::clone(&tally), Arc::clone(&meter));
    tokio::spawn(watch(client, listed, move |step| {
        tell_events(&told, step);
        if let watcher::Event::InitApply(work) | watcher::Event::Apply(work) = step {
            counted.seen(work, &at);
        }
    }));
    first.await?;
    let bus = Counted::new(mqtt(broker, "hub-source")?, Arc::clone(&meter));
    let link = events.join(&bus);
    let mut image = 0;
    obey(&link, &meter, &tally, async |command| {
        let count: usize = command
            .strip_prefix("change ")
            .context("a hub changes works")?
            .parse()?;
        image += 1;
        let image = format!("registry.example.org/shop/web:2.{image}");
        let change = async |number| -> Result<()> {
            let name = work_name(number);
            let mut work = fixtures::event_work("", &name, CLUSTER)?.spec;
            let manifest = work.workload.manifests.first_mut();
            let manifest = manifest.context("the work has a manifest")?;
            let mut object = manifest.to_value()?;
            object["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
            *manifest = serde_json::from_value(object)?;
            let patch = Patch::Merge(json!({ "spec": work }));
            api.patch(&name, &PatchParams::default(), &patch).await?;
            Ok(())
        };
        stream::iter((0..count).map(change))
            .buffer_unordered(AT_A_TIME)
            .try_collect::<()>()
            .await
    })
    .await
}

async fn agent(broker: &str) -> Result<()> {
    let (meter, tally) = (Arc::new(Meter::default()), Arc::new(Tally::default()));
    let bus = Counted::new(mqtt(broker, &agent_of(CLUSTER))?, Arc::clone(&meter));
    let agent = AgentEvents {
        cluster: CLUSTER.to_owned(),
        agent: agent_of(CLUSTER),
        dialect: dialect(),
        form: CODEC.0,
        file: None,
        options: ClientOptions::default(),
    };
    let works = AgentWorks::start(agent, &bus).await?;
    let api = Api::namespaced(works.client(), CLUSTER);
    tokio::spawn(apply(api, Arc::clone(&tally), Arc::clone(&meter)));
    obey(works.link(), &meter, &tally, async |command| {
        bail!("an agent does not know {command}")
    })
    .await
}

/// Does what an agent does with works, save for what is in them.
async fn apply(api: Api<RawManifestWork>, tally: Arc<Tally>, meter: Arc<Meter>) {
    let works = watcher(api.clone(), watcher::Config::default())
        .default_backoff()
        .applied_objects();
    // A watch that was too slow is told so once, and begins anew.
    let works = works.filter_map(|work| std::future::ready(work.ok()));
    works
        .for_each_concurrent(AT_A_TIME, |work| {
            tally.seen(&work, &meter);
            let api = api.clone();
            async move {
                if let Err(error) = write(&api, &work).await {
                    eprintln!("{} not written: {error}", work.name_any());
                }
            }
        })
        .await;
}

async fn write(api: &Api<RawManifestWork>, work: &RawManifestWork) -> kube::Result<()> {
    if is_done(work) {
        return Ok(());
    }
    let (name, params) = (work.name_any(), PatchParams::default());
    if work.finalizers().is_empty() {
        let finalizers = json!({"metadata": {"finalizers": [MANIFEST_WORK_FINALIZER]}});
        // That is told, and the status follows.
        api.patch(&name, &params, &Patch::Merge(finalizers)).await?;
    } else {
        let generation = work.metadata.generation.unwrap_or_default();
        let status = json!({"status": fixtures::event_status(generation)});
        api.patch_status(&name, &params, &Patch::Merge(status))
            .await?;
    }
    Ok(())
}

fn hub_cluster(number: usize) -> String {
    format!("c{}", number / IN_CLUSTER)
}

/// A work as a hub has it that has sent it, with the status that its agent has sent.
fn settled(number: usize) -> serde_json::Result<serde_json::Value> {
    let (cluster, name) = (hub_cluster(number), work_name(number));
    let uid = muster_cloudevents::work::uid(SOURCE, &cluster, &name);
    let mut work = fixtures::event_work(&uid, &name, &cluster)?;
    work.metadata.finalizers = Some(vec![MANIFEST_WORK_FINALIZER.to_owned()]);
    serde_json::to_value(work)
}

/// Fills a file with the settled works of a hub.
async fn fill(file: &Path, works: usize) -> Result<()> {
    let server = durable_api(file.to_owned()).await?;
    let mirror = server.mirror::<ManifestWork>()?;
    let write = async |number| -> Result<()> {
        let work = settled(number)?;
        let (cluster, name) = (hub_cluster(number), work_name(number));
        mirror
            .update(&cluster, &name, |_| Some(work.clone()))
            .await?;
        Ok(())
    };
    stream::iter((0..works).map(write))
        .buffer_unordered(1024)
        .try_collect::<()>()
        .await?;
    server.shutdown().await;
    println!("{works}");
    Ok(())
}

async fn durable_api(file: PathBuf) -> Result<ApiServer> {
    let mut builder = ApiServer::builder().storage(Storage::Redb(file));
    for crd in muster_api::crds::hub() {
        builder = builder.crd(crd);
    }
    Ok(builder.build().await?)
}

/// Starts a hub with the works of a file, or, without a broker, only lists them. Tells what that took
/// when asked to (`started`), and what it uses when all works are with the broker (`sent`).
async fn restart(begun: Instant, file: PathBuf, broker: Option<&str>) -> Result<()> {
    let server = durable_api(file).await?;
    let opened = begun.elapsed();
    let client = server.client();
    let (listed, first) = oneshot::channel();
    let works = Arc::new(AtomicUsize::new(0));
    let events = source_events(client.clone())?;
    let (count, told) = (Arc::clone(&works), broker.map(|_| events.clone()));
    tokio::spawn(watch(client, listed, move |step| {
        if let watcher::Event::InitApply(_) = step {
            count.fetch_add(1, Ordering::SeqCst);
        }
        if let Some(told) = &told {
            tell_events(told, step);
        }
    }));
    first.await?;
    let listed = begun.elapsed();
    let link = match broker {
        Some(broker) => {
            slow::spin(Duration::from_secs(3));
            let link = events.join(&mqtt(broker, "hub-source")?);
            let mut state = link.state();
            let joined = state.wait_for(|state| *state == ConnectionState::Subscribed);
            joined.await?;
            Some(link)
        }
        None => None,
    };
    let started = Started {
        opened: opened.as_secs_f64(),
        listed: listed.as_secs_f64(),
        joined: begun.elapsed().as_secs_f64(),
        works: works.load(Ordering::SeqCst),
        resident_kib: machine::resident_kib()?,
        peak_kib: machine::peak_kib()?,
    };
    let mut commands = process::commands();
    while let Some(command) = commands.recv().await {
        match command.as_str() {
            "started" => println!("{}", serde_json::to_string(&started)?),
            "sent" => {
                while link.as_ref().is_some_and(|link| link.waiting() > 0) {
                    sleep(Duration::from_millis(5)).await;
                }
                let sent = Started {
                    joined: begun.elapsed().as_secs_f64(),
                    resident_kib: machine::resident_kib()?,
                    peak_kib: machine::peak_kib()?,
                    ..started
                };
                println!("{}", serde_json::to_string(&sent)?);
            }
            other => bail!("a hub that starts does not know {other}"),
        }
    }
    drop(link);
    server.shutdown().await;
    Ok(())
}

/// Keeps an index of works that are in no API: `add COUNT` adds so many.
async fn index() -> Result<()> {
    let server = servers::hub_api().await?;
    let events = source_events(server.uncounted_client())?;
    events.listing();
    events.listed();
    let link = events.join(&Loopback::new() as &dyn Bus);
    let mut added = 0;
    let mut ballast = Vec::new();
    let mut commands = process::commands();
    while let Some(command) = commands.recv().await {
        let count: usize = command.strip_prefix("add ").context("odd")?.parse()?;
        for number in added..added + count {
            let work = settled(number)?.to_string();
            events.seen(&serde_json::from_str(&work)?);
            if slow::injected() {
                ballast.push(vec![1_u8; 1 << 10]);
            }
        }
        added += count;
        // Nothing of them can be sent.
        while link.waiting() > 0 {
            sleep(Duration::from_millis(5)).await;
        }
        println!("{}", serde_json::to_string(&Usage::now()?)?);
    }
    Ok(())
}

/// Such a process, from outside.
pub struct EventSide(Process);

impl EventSide {
    /// Starts it.
    pub fn start(arguments: &[&str]) -> Result<Self> {
        Process::start(&[&[ARGUMENT], arguments].concat()).map(Self)
    }

    /// Fills a file with the works of a hub.
    pub async fn fill(file: &str, works: usize) -> Result<()> {
        let mut process = Process::start(&[ARGUMENT, "fill", file, &works.to_string()])?;
        process.tell::<usize>("").await.map(drop)
    }

    /// Gives a command to a hub or an agent.
    pub async fn tell(&mut self, command: &str) -> Result<State> {
        self.0.tell(command).await
    }

    /// Ends it, and waits until it has let go of its file.
    pub async fn end(self) -> Result<()> {
        self.0.end().await
    }

    /// What the start took.
    pub async fn started(&mut self) -> Result<Started> {
        self.0.tell("started").await
    }

    /// The same when all works have been sent.
    pub async fn sent(&mut self) -> Result<Started> {
        self.0.tell("sent").await
    }

    /// Adds so many works to an index.
    pub async fn add(&mut self, works: usize) -> Result<Usage> {
        self.0.tell(&format!("add {works}")).await
    }
}
