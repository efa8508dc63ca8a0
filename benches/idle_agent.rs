//! P9, P12, P13: what an agent costs that has nothing to do.
//!
//! The agent (ClusterAgent and its works, polling) runs in a process of its own: this program,
//! started again. Hub and cluster are embedded API servers in the first process, reached over
//! HTTPS, so that only the agent counts. Works are loaded in five steps; after each, once every
//! work has reported its feedback, the agent tells its resident memory. Then nothing happens for
//! a while, and what it uses and asks for meanwhile is its idle cost.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::config::Kubeconfig;
use kube::{Api, Client, ResourceExt};
use muster_actors::agent::{self, AgentDeps, AgentSettings, ChangeSettings};
use muster_actors::hub::register_cluster;
use muster_actors::supervision::{Health, Io, Registry};
use muster_api::work::ManifestWork;
use muster_apiserver::ApiServer;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::sleep;

use crate::support::figure::{Figure, Report};
use crate::support::machine::{self, Calibration};
use crate::support::rounds::slope;
use crate::support::{fixtures, servers, slow};

const CLUSTER: &str = "c1";
/// Works at each step.
const STEPS: [usize; 5] = [0, 100, 250, 500, 1_000];
/// Poll interval while works are loaded, so that each has reported soon.
const LOADING_POLL: Duration = Duration::from_secs(3);
/// Poll interval while idle: upstream's default, for which its numbers were recorded.
const IDLE_POLL: Duration = Duration::from_secs(10);
/// From the last report to the reading of memory.
const SETTLE: Duration = Duration::from_secs(2);
/// How long the agent is watched idling, without works and with all of them.
const WINDOW_WITHOUT: Duration = Duration::from_secs(6);
const WINDOW: Duration = Duration::from_secs(20);

/// The goals: a lone agent, a work, and an idle minute with 1,000 works.
const MOST_ALONE_BYTES: f64 = 8e6;
const MOST_WORK_BYTES: f64 = 3e3;
const MOST_MINUTE_MILLIS: f64 = 5.0;
/// One list per type and namespace and poll: ConfigMaps and Deployments of one namespace.
const LISTS_A_POLL: f64 = 2.0;

const MIB: f64 = 1024.0 * 1024.0;

/// Set for the agent's process: the folder with its kubeconfigs.
const AGENT_DIR: &str = "MUSTER_BENCH_AGENT";

pub(crate) fn run() -> Result<()> {
    servers::block_on(async {
        if let Some(dir) = std::env::var_os(AGENT_DIR) {
            return agent_process(&PathBuf::from(dir)).await;
        }
        let mut report = Report::start();
        let calibration = Calibration::measure();
        let measured = measure().await?;
        tell_memory(&mut report, &measured);
        tell_idle(&mut report, &measured, calibration);
        Ok(())
    })
}

/// What the agent's process tells of itself.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Usage {
    resident_kib: u64,
    cpu_nanos: u64,
}

/// Runs the agent; obeys `poll MILLISECONDS` and `usage` from standard input until its end.
async fn agent_process(dir: &Path) -> Result<()> {
    let hub_config = Kubeconfig::read_from(dir.join("hub"))?;
    let hub_id = hub_config
        .clusters
        .first()
        .and_then(|named| named.cluster.as_ref()?.server.clone());
    let hub = servers::client(hub_config).await?;
    let spoke = servers::client(Kubeconfig::read_from(dir.join("spoke"))?).await?;
    let settings = |poll_interval| AgentSettings {
        poll_interval,
        ..AgentSettings::default()
    };
    if slow::injected() {
        tokio::spawn(waste(hub.clone()));
    }
    let agent = agent::start(AgentDeps {
        cluster: CLUSTER.to_owned(),
        hub,
        hub_id: hub_id.context("the kubeconfig names a server")?,
        agent_id: None,
        spoke,
        settings: settings(LOADING_POLL),
        io: Io::current(),
        registry: Registry::new(),
        health: Health::new(),
    });
    let (sender, mut commands) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for command in std::io::stdin().lines().map_while(Result::ok) {
            if sender.send(command).is_err() {
                break;
            }
        }
    });
    while let Some(command) = commands.recv().await {
        if let Some(poll) = command.strip_prefix("poll ") {
            agent
                .send(ChangeSettings(settings(Duration::from_millis(
                    poll.parse()?,
                ))))
                .await?;
        }
        let usage = Usage {
            resident_kib: machine::resident_kib()?,
            cpu_nanos: u64::try_from(machine::process_cpu().as_nanos())?,
        };
        println!("{}", serde_json::to_string(&usage)?);
    }
    Ok(())
}

/// The known slowness: memory that no agent needs, more for each work, CPU, and reads of works.
async fn waste(hub: Client) {
    let works: Api<ManifestWork> = Api::namespaced(hub, CLUSTER);
    let mut ballast = vec![vec![1_u8; 100 << 20]];
    loop {
        if let Ok(list) = works.list(&ListParams::default()).await {
            while ballast.len() < list.items.len() {
                ballast.push(vec![1_u8; 64 << 10]);
            }
        }
        slow::spin(Duration::from_millis(100));
        sleep(Duration::from_secs(1)).await;
    }
}

/// The agent's process, from outside.
struct Agent {
    _process: Child,
    commands: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Agent {
    fn start(dir: &Path) -> Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg("idle_agent")
            .env(AGENT_DIR, dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let commands = process
            .stdin
            .take()
            .context("its standard input is a pipe")?;
        let answers = process
            .stdout
            .take()
            .context("its standard output is a pipe")?;
        let answers = BufReader::new(answers).lines();
        Ok(Self {
            _process: process,
            commands,
            answers,
        })
    }

    async fn tell(&mut self, command: &str) -> Result<Usage> {
        self.commands
            .write_all(format!("{command}\n").as_bytes())
            .await?;
        let answer = self
            .answers
            .next_line()
            .await?
            .context("the agent's process ended")?;
        Ok(serde_json::from_str(&answer)?)
    }

    /// CPU milliseconds a minute while nothing happens.
    async fn idle(&mut self, window: Duration) -> Result<f64> {
        let before = self.tell("usage").await?.cpu_nanos;
        sleep(window).await;
        let used = self.tell("usage").await?.cpu_nanos - before;
        Ok(machine::millis(Duration::from_nanos(used)) * a_minute(window))
    }
}

/// How many such windows make a minute.
fn a_minute(window: Duration) -> f64 {
    60.0 / window.as_secs_f64()
}

/// The agent's surroundings: its hub and its cluster.
struct World {
    hub: ApiServer,
    spoke: ApiServer,
    works: Api<ManifestWork>,
}

impl World {
    /// Loads works up to `count` and waits until each reports that its Deployment is ready.
    async fn load(&self, from: usize, count: usize) -> Result<()> {
        for number in from..count {
            let name = format!("work-{number:04}");
            let work = json!({
                "apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
                "metadata": {"name": name}, "spec": fixtures::work_spec(&name, "default")});
            self.works
                .create(&PostParams::default(), &serde_json::from_value(work)?)
                .await?;
        }
        servers::until(
            Duration::from_secs(90),
            "feedback of every work",
            async || {
                sleep(Duration::from_millis(300)).await;
                let works = self.works.list(&ListParams::default()).await?;
                Ok(works
                    .items
                    .iter()
                    .filter(|work| reports_ready(work))
                    .count()
                    == count)
            },
        )
        .await
    }

    /// Requests so far, by server, verb and resource.
    fn requests(&self) -> BTreeMap<String, u64> {
        let of = |side: &'static str, api: &ApiServer| {
            let requests = api.stats().requests;
            requests
                .into_iter()
                .map(move |((verb, resource), n)| (format!("{side} {verb} {resource}"), n))
        };
        of("hub", &self.hub)
            .chain(of("spoke", &self.spoke))
            .collect()
    }
}

fn reports_ready(work: &ManifestWork) -> bool {
    let manifests = work
        .status
        .iter()
        .flat_map(|status| &status.resource_status.manifests);
    manifests
        .flat_map(|manifest| &manifest.status_feedback.values)
        .any(|value| value.name == "ReadyReplicas" && value.value.integer == Some(3))
}

/// Makes every new Deployment ready at once.
async fn make_ready(client: Client, version: String) -> Result<()> {
    let deployments: Api<Deployment> = Api::namespaced(client, "default");
    let events = deployments
        .watch(&WatchParams::default(), &version)
        .await?
        .boxed();
    events
        .map_err(anyhow::Error::from)
        .try_for_each(async |event| {
            if let WatchEvent::Added(deployment) = event {
                let patch = Patch::Merge(json!({"status": fixtures::deployment_status(3)}));
                let name = deployment.name_any();
                deployments
                    .patch_status(&name, &PatchParams::default(), &patch)
                    .await?;
            }
            Ok(())
        })
        .await
}

/// What was measured.
struct Measured {
    /// Resident bytes at each number of works.
    resident: Vec<(usize, u64)>,
    /// CPU milliseconds of an idle minute, without works and with all of them.
    cpu_alone: f64,
    cpu: f64,
    /// Requests within [`WINDOW`], by server, verb and resource.
    requests: BTreeMap<String, u64>,
}

async fn measure() -> Result<Measured> {
    let (hub, spoke) = (servers::hub_api().await?, servers::spoke_api().await?);
    register_cluster(&hub.client(), CLUSTER, &[].into()).await?;
    let served = [servers::serve(&hub).await?, servers::serve(&spoke).await?];
    let dir = tempfile::tempdir()?;
    for (name, serving) in ["hub", "spoke"].into_iter().zip(&served) {
        let kubeconfig = serde_json::to_string(&serving.kubeconfig())?;
        std::fs::write(dir.path().join(name), kubeconfig)?;
    }
    let works = Api::namespaced(hub.client(), CLUSTER);
    let deployments: Api<Deployment> = Api::all(spoke.client());
    let list = deployments.list(&ListParams::default()).await?;
    let version = list.metadata.resource_version.unwrap_or_default();
    tokio::spawn(make_ready(spoke.client(), version));
    let world = World { hub, spoke, works };

    let mut agent = Agent::start(dir.path())?;
    let mut resident = Vec::new();
    let mut cpu_alone = 0.0;
    let mut loaded = 0;
    for works in STEPS {
        world.load(loaded, works).await?;
        loaded = works;
        sleep(SETTLE).await;
        if works == 0 {
            cpu_alone = agent.idle(WINDOW_WITHOUT).await?;
        }
        resident.push((works, agent.tell("usage").await?.resident_kib * 1024));
    }
    let poll = format!("poll {}", IDLE_POLL.as_millis());
    agent.tell(&poll).await?;
    sleep(SETTLE).await;
    let before = world.requests();
    let cpu = agent.idle(WINDOW).await?;
    let mut requests = world.requests();
    requests.retain(|what, count| {
        *count -= before.get(what).copied().unwrap_or_default();
        *count > 0
    });
    Ok(Measured {
        resident,
        cpu_alone,
        cpu,
        requests,
    })
}

#[allow(
    clippy::cast_precision_loss,
    reason = "bytes of memory are far below 2^52"
)]
fn tell_memory(report: &mut Report, measured: &Measured) {
    let Measured { resident, .. } = measured;
    let params = json!({"allocator": "system", "works": STEPS,
        "poll_interval_s": LOADING_POLL.as_secs()});
    // Recorded in MB of the resident set; where two modes were, the one that polls, as we do.
    let peers = [
        (0, 81e6, ""),
        (100, 108e6, ", watch mode"),
        (1_000, 112e6, ", poll mode"),
    ];
    for (works, bytes) in resident {
        let Some((_, peer, mode)) = peers.iter().find(|(at, ..)| at == works) else {
            continue;
        };
        let bytes = *bytes as f64;
        let name = format!("agent with {works} works, resident");
        let figure = Figure::new("P12", name, bytes / MIB, "MiB")
            .below(peer / MIB, format!("OCM work agent{mode}, recorded"))
            .params(params.clone());
        // The goal is about a lone agent.
        report.add(if *works == 0 {
            figure.met(bytes <= MOST_ALONE_BYTES)
        } else {
            figure
        });
    }
    let points: Vec<(f64, f64)> = resident
        .iter()
        .map(|(works, bytes)| (*works as f64, *bytes as f64))
        .collect();
    let per_work = slope(&points);
    let name = "agent's memory for each work, slope (polled, part)";
    report.add(
        Figure::new("P9", name, per_work / 1e3, "KB")
            .below(31.0, "OCM work agent, poll mode, recorded")
            .met(per_work <= MOST_WORK_BYTES)
            .params(params)
            .params(json!({"resident_bytes_by_works": resident})),
    );
}

#[allow(
    clippy::cast_precision_loss,
    reason = "requests of a minute are far below 2^52"
)]
fn tell_idle(report: &mut Report, measured: &Measured, calibration: Calibration) {
    let params = json!({"poll_interval_s": IDLE_POLL.as_secs(), "mode": "poll",
        "window_s": WINDOW.as_secs(), "requests_in_window": measured.requests});
    report.add(
        Figure::new(
            "P13",
            "CPU of an idle minute, 0 works",
            measured.cpu_alone,
            "ms",
        )
        .below(
            calibration.scaled(380.0),
            "OCM work agent, recorded, scaled by calibration",
        )
        .params(calibration.params())
        .params(json!({"window_s": WINDOW_WITHOUT.as_secs()})),
    );
    let peer = "OCM work agent, poll mode, recorded, scaled by calibration";
    report.add(
        Figure::new(
            "P13",
            "CPU of an idle minute, 1,000 works",
            measured.cpu,
            "ms",
        )
        .below(calibration.scaled(5_000.0), peer)
        .met(measured.cpu <= MOST_MINUTE_MILLIS)
        .params(calibration.params())
        .params(params.clone()),
    );
    let in_window = |server: &str| -> u64 {
        let of_server = measured
            .requests
            .iter()
            .filter(|(what, _)| what.starts_with(server));
        of_server.map(|(_, count)| count).sum()
    };
    let at_hub = in_window("hub ");
    let name = "requests at the hub in an idle minute, 1,000 works";
    report.add(
        Figure::new("P13", name, at_hub as f64 * a_minute(WINDOW), "requests")
            .met(at_hub == 0)
            .params(params.clone()),
    );
    let at_spoke = in_window("spoke ") as f64 * a_minute(WINDOW);
    let most = LISTS_A_POLL * a_minute(IDLE_POLL);
    let name = "requests at the cluster in an idle minute, 1,000 works";
    report.add(
        Figure::new("P13", name, at_spoke, "requests")
            .below(
                3_000.0,
                "OCM work agent, poll mode, at its limit of 50/s, recorded",
            )
            .met(at_spoke <= most)
            .params(params)
            .params(json!({"goal_requests": most})),
    );
}
