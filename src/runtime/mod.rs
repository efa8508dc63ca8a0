//! What runs in a process, and in which order it starts and stops.
//!
//! ```text
//! start:  telemetry ► broker ► hub API ► hub's actors ► clusters ► ClusterAgents ► lease
//! stop:   ClusterAgents ► hub's actors ► lease ► broker ► clusters ► hub API ► telemetry
//! ```
//!
//! The hub's actors are PlacementResolver, ReplicaSets, FinishedWorks and, where works travel as
//! events, WorkSource.
//!
//! Agents stop first, while the hub still takes their last status; the hub's controllers next,
//! while its API still takes theirs; the API servers last, when nobody writes any more.
//!
//! One part of a process may work under a lease: the hub's actors on a Kubernetes cluster, or, in a
//! process of agents alone, clusters and agents. That part starts when the lease is taken,
//! by [`Runtime::work`], and the process counts as ready before, so that a rolling replacement does
//! not wait for itself. The lease is given back when no other actor is left.
//!
//! What a hub does whether it holds the lease or not can be done by several: it creates missing
//! CRDs and registers the configured clusters, whose agents, if they run in this process, do not
//! wait for the lease either.

mod admission;
mod cluster;
mod controllers;
mod crds;
mod events;
mod files;
mod hub;
mod lease;
mod overview;
mod preflight;
mod probe_thread;
mod process;
mod reload;
mod rules;
mod throttle;

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use actix::Addr;
use jiff::Timestamp;
use kube::Client;
use kube::config::Kubeconfig;
use muster_actors::agent::{self, AgentDeps, AgentSettings, ChangeSettings, ClusterAgent};
use muster_actors::api_text;
use muster_actors::events::{Recorder, Reporter};
use muster_actors::hub::{HubDeps, HubSettings, register_cluster};
use muster_actors::supervision::{
    Backoff, BackoffPolicy, Health, Io, Registry, stalled, stop, watch_threads,
};
use muster_core::feedback::FeedbackLimits;
use muster_core::watch_plan::WatchLimits;
use muster_watchdog::Watchdog;
use muster_workclient::{Bus, Driver as WorkDriver, HubConfig, WorkClient, WorkClientBuilder};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub use cluster::{ClusterError, SimulatedCluster};
pub use events::LinkError;
pub use files::change_of;
pub use hub::HubError;
use overview::Lookout;
pub use preflight::preflight;
pub use process::{
    EXIT_LIMIT, block_on, exit_after, kubeconfig_file, read_runtime_kubeconfig, runtime_kubeconfig,
    stop_signal, temporary_kubeconfig,
};
pub use reload::{Hangups, METRICS, Reloader, SettingsFile};

use self::controllers::{Controllers, Plan};
use self::lease::Lease;
use self::probe_thread::ProbeThread;
use crate::http::{self, Probes};
use crate::settings::{Driver, HubApi, Settings};
use crate::telemetry::Telemetry;

/// How long a stop waits for each group of actors. Kubernetes gives a pod 30 seconds; three groups
/// of eight leave a reserve.
const STOP_LIMIT: Duration = Duration::from_secs(8);
/// How long actors that have answered a stop may take to be gone, before the lease is kept because
/// of them. More is for those that did not answer, and they have had their time.
const LAST_WORDS_LIMIT: Duration = Duration::from_secs(1);
/// Where probes are expected in a pod: all addresses, the port of OCM's deployment.
const HTTPS_IN_POD: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 8443);
/// How long `/debug/actors` waits for one actor.
const REPORT_LIMIT: Duration = Duration::from_secs(1);

/// A client of the works in the API of a hub elsewhere.
fn hub_driver(settings: &Settings) -> WorkClientBuilder {
    WorkClient::builder(WorkDriver::Kube(HubConfig::Kubeconfig {
        path: settings.hub.kubeconfig.clone(),
        context: settings.hub.context.clone(),
    }))
}

/// Which parts of muster a process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Roles {
    /// Hub and the agents of the configured clusters.
    HubAndAgents,
    /// The hub alone.
    Hub,
    /// Agents alone; the hub is elsewhere.
    Agents,
}

impl Roles {
    /// Whether a hub is among them.
    pub const fn hub(self) -> bool {
        matches!(self, Self::HubAndAgents | Self::Hub)
    }

    const fn agents(self) -> bool {
        matches!(self, Self::HubAndAgents | Self::Agents)
    }
}

/// Why a process could not start. Each text names the part at fault.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The hub's API cannot be served or reached.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// A cluster cannot be served, or its settings are wrong.
    #[error("cluster {name}: {source}")]
    Cluster {
        /// Name of the cluster.
        name: String,
        /// What is wrong.
        source: ClusterError,
    },
    /// Works cannot travel as events.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The hub's works cannot be reached by an agent.
    #[error("failed to reach the works of the hub: {0}")]
    Works(#[from] muster_workclient::BuildError),
    /// The address for metrics and probes is taken.
    #[error("telemetry.listen: {0}")]
    Telemetry(std::io::Error),
    /// The address for metrics and probes over HTTPS is taken, or there is no certificate.
    #[error("telemetry.https_listen: {0}")]
    Https(std::io::Error),
    /// The cluster that has the lease cannot be reached.
    #[error("lease: {0}")]
    Lease(ClusterError),
    /// Agents alone, without a cluster or a way to the hub.
    #[error("{0}")]
    Nothing(&'static str),
}

/// Why a process that has started must end.
#[derive(Debug, thiserror::Error)]
pub enum WorkError {
    /// The agents could not start when their turn came.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Another process may work soon.
    #[error("{why}")]
    Lost {
        /// Which lease it was, and how it was lost.
        why: String,
        /// How long the stop may take until another may begin.
        grace: Duration,
    },
}

/// What starts when the lease is taken.
#[derive(Debug)]
enum Waiting {
    /// Clusters and agents, with their requests here.
    Agents(Io),
    /// The hub's actors.
    Hub(Box<Plan>),
}

/// A running process.
#[derive(Debug)]
pub struct Runtime {
    registry: Registry,
    health: Health,
    shutdown: CancellationToken,
    hub: Option<hub::Hub>,
    controllers: Option<Controllers>,
    links: Option<events::Links>,
    works: Vec<WorkClient>,
    clusters: Vec<cluster::Cluster>,
    agents: Vec<Addr<ClusterAgent>>,
    lease: Option<Lease>,
    /// What is there while, and only while, the lease is waited for.
    waiting: Option<Waiting>,
    http: Vec<(SocketAddr, JoinHandle<std::io::Result<()>>)>,
    /// Where probes are answered and stalls are looked for; there while telemetry is served.
    probes: Option<(ProbeThread, Watchdog)>,
    upkeep: Vec<JoinHandle<()>>,
}

impl Runtime {
    /// Starts what `roles` asks for. To be called inside an actix system whose tokio runtime has
    /// worker threads.
    ///
    /// # Errors
    ///
    /// The first part that does not start; what was started before is stopped again.
    pub async fn start(
        settings: &Settings,
        roles: Roles,
        telemetry: Option<Telemetry>,
    ) -> Result<Self, StartError> {
        let mut runtime = Self {
            registry: Registry::new(),
            health: Health::new(),
            shutdown: CancellationToken::new(),
            hub: None,
            controllers: None,
            links: None,
            works: Vec::new(),
            clusters: Vec::new(),
            agents: Vec::new(),
            lease: None,
            waiting: None,
            http: Vec::new(),
            probes: None,
            upkeep: Vec::new(),
        };
        // Probes are served first, and must not say ready before everything else is there.
        let start = runtime.health.stream("start");
        match runtime.start_parts(settings, roles, telemetry).await {
            Ok(()) => {
                drop(start);
                Ok(runtime)
            }
            Err(error) => {
                runtime.stop().await;
                Err(error)
            }
        }
    }

    async fn start_parts(
        &mut self,
        settings: &Settings,
        roles: Roles,
        telemetry: Option<Telemetry>,
    ) -> Result<(), StartError> {
        if roles == Roles::Agents && settings.clusters.is_empty() {
            return Err(StartError::Nothing(
                "no cluster is configured: add [[clusters]]",
            ));
        }
        if roles == Roles::Agents && settings.transport.driver == Driver::Loopback {
            return Err(StartError::Nothing(
                "transport.driver: \"loopback\" needs the hub in the same process; agents alone \
                 need \"kube\" or \"mqtt\"",
            ));
        }
        let io = Io::current();
        if let Some(telemetry) = telemetry {
            self.start_http(settings, roles, telemetry).await?;
        }
        let mqtt = settings.transport.driver == Driver::Mqtt || settings.has_mqtt_sinks();
        if mqtt || settings.broker.listen.is_some() {
            self.links = Some(events::Links::start(settings).await?);
        }
        if roles.hub() {
            self.hub = Some(hub::Hub::start(settings).await?);
        }
        let plan = match self.hub_client() {
            Some(client) => Some(self.plan(client, settings, &io)?),
            None => None,
        };
        let lease = lease::wanted(roles, settings, self.hub_client()).await;
        let lease = lease.map_err(StartError::Lease)?;
        if let Some(plan) = plan {
            let prepare = self.prepare_hub(plan.deps.client.clone(), settings);
            if settings.hub.api == HubApi::Embedded {
                prepare.await; // nothing there can be away
            } else {
                self.upkeep.push(tokio::spawn(prepare));
            }
            if lease.is_some() {
                self.waiting = Some(Waiting::Hub(Box::new(plan)));
            } else {
                self.controllers = Some(plan.start());
            }
        } else if lease.is_some() {
            self.waiting = Some(Waiting::Agents(io.clone()));
        }
        let agents_wait = matches!(self.waiting, Some(Waiting::Agents(_)));
        if roles.agents() && !agents_wait && !settings.clusters.is_empty() {
            self.start_agents(settings, &io).await?;
        }
        // Last, so that no process takes it that cannot start.
        if let Some((client, lease)) = lease {
            let (registry, health) = (self.registry.clone(), self.health.clone());
            self.lease = Some(Lease::start(client, lease, io, registry, health));
        }
        Ok(())
    }

    /// What the hub's actors start with. They keep these settings also where they start later, so
    /// that it holds what [`Running`](crate::settings::Running) says of them.
    fn plan(&self, client: Client, settings: &Settings, io: &Io) -> Result<Plan, StartError> {
        let source = match &self.links {
            Some(links) if settings.transport.driver == Driver::Mqtt => {
                let (events, bus) = links.source_of(client.clone())?;
                Some((events, bus as Arc<dyn Bus>))
            }
            _ => None,
        };
        Ok(Plan {
            deps: HubDeps {
                events: Some(Recorder::start(
                    io,
                    client.clone(),
                    Reporter {
                        component: "muster-hub",
                        // The embedded API server keeps what it gets.
                        prunes: settings.hub.api == HubApi::Embedded,
                    },
                )),
                client,
                agents: source.as_ref().map(|(events, _)| events.agents()),
                io: io.clone(),
                registry: self.registry.clone(),
                health: self.health.clone(),
                settings: HubSettings {
                    coalesce: settings.feedback.coalesce,
                    away_after: settings.mqtt.away_after,
                    abandon_after: settings.hub.abandon_after,
                    ..HubSettings::default()
                },
            },
            resolves_placements: settings.hub.resolves_placements(),
            source,
        })
    }

    /// Does what waits for the lease, brings changed settings to the agents, and gives why the
    /// process must end. Without a lease it does not end.
    pub async fn work(&mut self, mut settings: watch::Receiver<Settings>) -> WorkError {
        let plan = match self.waiting.take() {
            Some(Waiting::Agents(io)) => {
                if taken(&mut self.lease).await {
                    // Those of now, which may have changed since the process began to wait.
                    let settings = settings.borrow_and_update().clone();
                    if let Err(error) = self.start_agents(&settings, &io).await {
                        return error.into();
                    }
                }
                None
            }
            Some(Waiting::Hub(plan)) => Some(plan),
            None => None,
        };
        let (agents, lease, controllers) = (&self.agents, &mut self.lease, &mut self.controllers);
        // The agents of this process follow its settings while its hub waits.
        let led = async {
            if let Some(plan) = plan
                && taken(lease).await
            {
                *controllers = Some(plan.start());
            }
            lost(lease).await
        };
        tokio::select! {
            lost = led => lost,
            never = follow(agents, settings) => match never {},
        }
    }

    /// Installs CRDs and registers the clusters, with retries: the hub's API server may be away
    /// when muster starts.
    fn prepare_hub(
        &self,
        client: Client,
        settings: &Settings,
    ) -> impl Future<Output = ()> + Send + 'static {
        let crds = settings.hub.api == HubApi::Kubeconfig && settings.hub.install_crds;
        let clusters = if settings.hub.resolves_placements() {
            settings.clusters.clone()
        } else {
            Vec::new()
        };
        let (health, shutdown) = (self.health.stream("hub/clusters"), self.shutdown.clone());
        async move {
            if crds {
                let (crds, whose) = (muster_api::crds::hub(), "hub".to_owned());
                crds::ensure(client.clone(), crds, whose, shutdown.clone()).await;
            }
            let mut backoff = Backoff::new(BackoffPolicy::REQUEST);
            for cluster in clusters {
                while let Err(error) =
                    register_cluster(&client, &cluster.name, &cluster.labels).await
                {
                    let error = api_text::text(&error);
                    health.failing(format_args!("failed to register {}: {error}", cluster.name));
                    let delay = backoff.failed();
                    warn!(
                        cluster = cluster.name,
                        error,
                        ?delay,
                        "failed to register, retrying"
                    );
                    let pause = tokio::time::sleep(delay);
                    if shutdown.run_until_cancelled(pause).await.is_none() {
                        return;
                    }
                }
            }
        }
    }

    async fn start_agents(&mut self, settings: &Settings, io: &Io) -> Result<(), StartError> {
        let links = self.links.as_ref();
        let rules = rules::rules_of(settings, links)?;
        let links = links.filter(|_| settings.transport.driver == Driver::Mqtt);
        // Without events all agents share one.
        let mut shared: Option<(WorkClient, Client)> = None;
        for cluster in &settings.clusters {
            let spoke = cluster::Cluster::start(cluster, settings, &self.shutdown)
                .await
                .map_err(|source| StartError::Cluster {
                    name: cluster.name.clone(),
                    source,
                })?;
            let (works, hub) = if let Some(links) = links {
                let driver = links.agent_of(&cluster.name)?;
                let works = WorkClient::builder(driver).build().await?;
                let hub = works.client();
                (works, hub)
            } else if let Some(shared) = &shared {
                shared.clone()
            } else {
                shared.insert(self.hub_works(settings).await?).clone()
            };
            let agent = agent::start(AgentDeps {
                cluster: cluster.name.clone(),
                hub,
                hub_link: works.link(),
                hub_id: works.hub_id().to_owned(),
                agent_id: settings.agent.agent_id.clone(),
                spoke: spoke.client(),
                rules: rules.clone(),
                settings: agent_settings(settings),
                io: io.clone(),
                registry: self.registry.clone(),
                health: self.health.clone(),
            });
            self.works.push(works);
            self.clusters.push(spoke);
            self.agents.push(agent);
        }
        Ok(())
    }

    /// The works in the hub's API, in this process or elsewhere.
    async fn hub_works(&self, settings: &Settings) -> Result<(WorkClient, Client), StartError> {
        if let (Driver::Loopback, Some(hub)) = (settings.transport.driver, &self.hub) {
            let driver = WorkDriver::Loopback(hub.client());
            let works = WorkClient::builder(driver).build().await?;
            let client = works.client();
            return Ok((works, client));
        }
        let works = hub_driver(settings).build().await?;
        let agent = &settings.agent;
        let client = throttle::throttled(works.client(), agent.hub_qps, agent.hub_burst.get());
        Ok((works, client))
    }

    async fn start_http(
        &mut self,
        settings: &Settings,
        roles: Roles,
        telemetry: Telemetry,
    ) -> Result<(), StartError> {
        let (health, registry) = (self.health.clone(), self.registry.clone());
        let (metrics, measured) = (telemetry.clone(), health.clone());
        let lookout = Lookout {
            roles,
            started_at: Timestamp::now(),
            registry: registry.clone(),
            health: health.clone(),
        };
        let probes = Probes {
            metrics: Arc::new(move || {
                measured.measure();
                metrics.render_metrics()
            }),
            readiness: Arc::new(move || not_ready(&health)),
            actors: Arc::new(move || {
                let registry = registry.clone();
                Box::pin(async move {
                    let report = registry.report(REPORT_LIMIT).await;
                    serde_json::to_value(report).unwrap_or_default()
                })
            }),
            overview: Arc::new(move || {
                let lookout = lookout.clone();
                Box::pin(
                    async move { serde_json::to_value(lookout.look().await).unwrap_or_default() },
                )
            }),
        };
        let (thread, watchdog) = ProbeThread::start()
            .and_then(|thread| Ok((thread, watch_threads()?)))
            .map_err(StartError::Telemetry)?;
        let listen = settings.telemetry.listen;
        let served = http::serve(listen, probes.clone(), self.shutdown.clone());
        let served = thread.run(served).await.map_err(StartError::Telemetry)?;
        info!(address = %served.0, "serving dashboard, metrics and probes");
        self.http.push(served);
        let usual = (roles == Roles::Agents && lease::in_pod()).then_some(HTTPS_IN_POD);
        if let Some(listen) = settings.telemetry.https_listen.or(usual) {
            let (least, suites) = (
                settings.telemetry.tls_min_version,
                &settings.telemetry.tls_cipher_suites,
            );
            let tls = http::tls::config(least, suites).map_err(StartError::Https)?;
            let served = http::serve_tls(listen, probes, tls, self.shutdown.clone());
            let served = thread.run(served).await.map_err(StartError::Https)?;
            info!(address = %served.0, "serving metrics and probes over HTTPS");
            self.http.push(served);
        }
        self.probes = Some((thread, watchdog));
        self.upkeep
            .push(tokio::spawn(telemetry.upkeep(self.shutdown.clone())));
        Ok(())
    }

    /// A client of the hub's API, where this process runs a hub.
    pub fn hub_client(&self) -> Option<Client> {
        self.hub.as_ref().map(hub::Hub::client)
    }

    /// Access to the embedded hub API for others.
    pub fn hub_kubeconfig(&self) -> Option<Kubeconfig> {
        self.hub.as_ref().and_then(hub::Hub::kubeconfig)
    }

    /// Where the MQTT broker of this process listens.
    pub fn broker_address(&self) -> Option<SocketAddr> {
        self.links.as_ref().and_then(events::Links::broker_address)
    }

    /// Where metrics and probes are served.
    pub fn telemetry_address(&self) -> Option<SocketAddr> {
        self.http.first().map(|(address, _)| *address)
    }

    /// A client of a cluster whose agent runs here.
    pub fn cluster_client(&self, name: &str) -> Option<Client> {
        self.clusters
            .iter()
            .find(|cluster| cluster.name() == name)
            .map(cluster::Cluster::client)
    }

    /// Reasons why this process is not ready.
    pub fn not_ready(&self) -> Vec<String> {
        not_ready(&self.health)
    }

    /// Stops everything in order. Returns the actors that did not end, which is a defect.
    pub async fn stop(self) -> Vec<String> {
        self.stop_within(STOP_LIMIT).await
    }

    /// [`Self::stop`] with another time for each group of actors.
    pub(crate) async fn stop_within(self, limit: Duration) -> Vec<String> {
        let agents = self.agents.iter().map(|agent| stop(agent, limit));
        futures::future::join_all(agents).await;
        if let Some(controllers) = &self.controllers {
            controllers.stop(limit).await;
        }
        // Who still works keeps the lease: it lapses when the process is gone.
        if let Some(lease) = &self.lease
            && self.registry.ended_but(1, LAST_WORDS_LIMIT).await.is_ok()
        {
            lease.give_back(STOP_LIMIT).await;
        }
        let left = self.registry.ended(limit).await.err().unwrap_or_default();
        if !left.is_empty() {
            warn!(actors = ?left, "actors did not end in time");
        }
        self.shutdown.cancel();
        for works in self.works {
            works.close().await;
        }
        if let Some(links) = self.links {
            links.stop().await;
        }
        for cluster in self.clusters {
            cluster.stop().await;
        }
        if let Some(hub) = self.hub {
            hub.stop().await;
        }
        for task in self.upkeep {
            let _ = task.await; // ends on the token above
        }
        for (_, served) in self.http {
            // Open requests of probes are short; a client that holds one must not hold the process.
            let _ = tokio::time::timeout(STOP_LIMIT, served).await;
        }
        left
    }
}

/// Reasons why the process is not ready: dead streams, and threads that are held.
fn not_ready(health: &Health) -> Vec<String> {
    let mut reasons = health.not_ready();
    reasons.extend(stalled());
    reasons
}

/// Waits until the lease is taken; `false` if it never will be.
async fn taken(lease: &mut Option<Lease>) -> bool {
    match lease {
        Some(lease) => lease.taken().await,
        None => false,
    }
}

/// Waits until the lease is lost; for ever without one.
async fn lost(lease: &mut Option<Lease>) -> WorkError {
    let Some(lease) = lease else {
        return std::future::pending().await;
    };
    WorkError::Lost {
        why: lease.lost().await,
        grace: lease.grace(),
    }
}

/// Brings each change of the settings to every agent.
async fn follow(
    agents: &[Addr<ClusterAgent>],
    mut settings: watch::Receiver<Settings>,
) -> Infallible {
    let mut changed = settings.changed().await;
    while changed.is_ok() {
        let new = agent_settings(&settings.borrow_and_update());
        // Waits for room, since no later message would make up for this one. An agent that has
        // ended needs none.
        let told = agents
            .iter()
            .map(|agent| agent.send(ChangeSettings(new.clone())));
        let told = futures::future::join_all(told);
        // Newer settings do not wait for an agent that is slow to take these: they replace them.
        changed = tokio::select! {
            _ = told => settings.changed().await,
            newer = settings.changed() => newer,
        };
    }
    std::future::pending().await // nobody changes settings any more
}

fn whole(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn agent_settings(settings: &Settings) -> AgentSettings {
    AgentSettings {
        poll_interval: settings.feedback.poll_interval,
        coalesce: settings.feedback.coalesce,
        feedback: FeedbackLimits {
            raw_json: settings.feedback.raw_json,
            max_json_raw_bytes: whole(settings.feedback.max_json_raw_bytes.get()),
        },
        workers: settings.agent.workers.get(),
        eviction_grace: settings.agent.eviction_grace,
        watch: WatchLimits {
            max_watches: whole(settings.watch.max_watches),
            widen_after: whole(settings.watch.widen_after.get()),
        },
        stop_when_ready: settings.watch.stop_when_ready,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Sources;

    #[test]
    fn settings_of_an_agent_are_those_of_the_process() {
        let defaults = Settings::load(&Sources::default()).unwrap();
        assert_eq!(agent_settings(&defaults), AgentSettings::default());

        let set = [
            ("feedback.poll_interval", "7s"),
            ("feedback.coalesce", "8ms"),
            ("feedback.raw_json", "true"),
            ("feedback.max_json_raw_bytes", "9"),
            ("watch.max_watches", "0"),
            ("watch.widen_after", "11"),
            ("watch.stop_when_ready", "true"),
            ("agent.workers", "12"),
            ("agent.eviction_grace", "13s"),
        ];
        let sources = set
            .iter()
            .fold(Sources::default(), |sources, (key, value)| {
                sources.with_flag(*key, *value)
            });
        let wanted = AgentSettings {
            poll_interval: Duration::from_secs(7),
            coalesce: Duration::from_millis(8),
            feedback: FeedbackLimits {
                raw_json: true,
                max_json_raw_bytes: 9,
            },
            workers: 12,
            eviction_grace: Duration::from_secs(13),
            watch: WatchLimits {
                max_watches: 0,
                widen_after: 11,
            },
            stop_when_ready: true,
        };
        let settings = Settings::load(&sources).unwrap();
        assert_eq!(agent_settings(&settings), wanted);
    }
}
