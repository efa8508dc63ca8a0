//! An agent (ClusterAgent and its works, polling) in a process of its own: this program, started
//! again. Only the agent counts there, not the servers and not who measures.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, Patch, PatchParams};
use kube::config::Kubeconfig;
use kube::{Api, Client, ResourceExt};
use muster_actors::agent::{self, AgentDeps, AgentSettings, ChangeSettings};
use muster_actors::supervision::{Health, Io, Registry};
use muster_api::work::ManifestWork;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::sleep;

use super::{machine, servers, slow};

/// The agent's cluster.
pub const CLUSTER: &str = "c1";
/// The program's argument that makes it an agent.
pub const ARGUMENT: &str = "agent";

/// Names of the kubeconfigs in the folder that an agent is started with.
pub const KUBECONFIGS: [&str; 2] = ["hub", "spoke"];

/// How long a busy work may take to say how often it was looked at.
const REPORT_LIMIT: Duration = Duration::from_secs(5);

/// What the agent's process tells of itself.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Usage {
    /// Resident memory.
    pub resident_kib: u64,
    /// CPU time since its start.
    pub cpu_nanos: u64,
}

/// Runs the agent: `agent FOLDER POLL_MILLISECONDS`. Obeys `poll MILLISECONDS`, `usage` and `looks`
/// from standard input until its end.
pub fn run() -> Result<()> {
    let mut arguments = std::env::args().skip_while(|arg| arg != ARGUMENT).skip(1);
    let dir = PathBuf::from(arguments.next().context("no folder with kubeconfigs")?);
    let poll = arguments.next().context("no poll interval")?;
    servers::block_on(obey(&dir, settings(&poll)?))
}

fn settings(poll_millis: &str) -> Result<AgentSettings> {
    Ok(AgentSettings {
        poll_interval: Duration::from_millis(poll_millis.parse()?),
        ..AgentSettings::default()
    })
}

async fn obey(dir: &Path, begin_with: AgentSettings) -> Result<()> {
    let [hub, spoke] = KUBECONFIGS.map(|name| Kubeconfig::read_from(dir.join(name)));
    let (hub, spoke) = (hub?, spoke?);
    let hub_id = hub
        .clusters
        .first()
        .and_then(|named| named.cluster.as_ref()?.server.clone());
    let hub = servers::client(hub).await?;
    let spoke = servers::client(spoke).await?;
    if slow::injected() {
        tokio::spawn(waste(hub.clone(), spoke.clone()));
    }
    let registry = Registry::new();
    let agent = agent::start(AgentDeps {
        cluster: CLUSTER.to_owned(),
        hub,
        hub_id: hub_id.context("the kubeconfig names a server")?,
        agent_id: None,
        spoke,
        settings: begin_with,
        io: Io::current(),
        registry: registry.clone(),
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
        if command == "looks" {
            println!("{}", looks(&registry).await);
            continue;
        }
        if let Some(poll) = command.strip_prefix("poll ") {
            agent.send(ChangeSettings(settings(poll)?)).await?;
        }
        let usage = Usage {
            resident_kib: machine::resident_kib()?,
            cpu_nanos: u64::try_from(machine::process_cpu().as_nanos())?,
        };
        println!("{}", serde_json::to_string(&usage)?);
    }
    Ok(())
}

/// How often works were looked at, as their actors tell.
async fn looks(registry: &Registry) -> u64 {
    let actors = registry.report(REPORT_LIMIT).await;
    actors
        .iter()
        .filter_map(|actor| actor.state["passes"].as_u64())
        .sum()
}

/// The known slowness: memory that no agent needs, more for each work, CPU, reads of works and of
/// their objects, and writes.
async fn waste(hub: Client, spoke: Client) {
    const READ_AGAIN: usize = 100;
    let works: Api<ManifestWork> = Api::namespaced(hub, CLUSTER);
    let config_maps: Api<ConfigMap> = Api::namespaced(spoke, "default");
    let mut ballast = vec![vec![1_u8; 100 << 20]];
    for round in 0_u64.. {
        if let Ok(list) = works.list(&ListParams::default()).await {
            while ballast.len() < list.items.len() {
                ballast.push(vec![1_u8; 64 << 10]);
            }
            for work in list.items.iter().take(READ_AGAIN) {
                // Its first ConfigMap has its name.
                let name = work.name_any();
                let _ = tokio::join!(works.get(&name), config_maps.get(&name));
            }
        }
        let wasted = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "waste"},
            "data": {"round": round.to_string()}});
        let params = PatchParams::apply("waste").force();
        if let Err(error) = config_maps
            .patch("waste", &params, &Patch::Apply(&wasted))
            .await
        {
            eprintln!("slowness without its writes: {error}");
        }
        slow::spin(Duration::from_millis(100));
        sleep(Duration::from_secs(1)).await;
    }
}

/// The agent's process, from outside.
pub struct Agent {
    _process: Child,
    commands: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Agent {
    /// Starts it with the kubeconfigs in `dir`.
    pub fn start(dir: &Path, poll: Duration) -> Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg(ARGUMENT)
            .arg(dir)
            .arg(poll.as_millis().to_string())
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

    async fn tell<T: DeserializeOwned>(&mut self, command: &str) -> Result<T> {
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

    /// What it uses now.
    pub async fn usage(&mut self) -> Result<Usage> {
        self.tell("usage").await
    }

    /// How often it has looked at works so far, all works together.
    pub async fn looks(&mut self) -> Result<u64> {
        self.tell("looks").await
    }

    /// Sets its poll interval.
    pub async fn poll_each(&mut self, interval: Duration) -> Result<()> {
        let _: Usage = self.tell(&format!("poll {}", interval.as_millis())).await?;
        Ok(())
    }
}
