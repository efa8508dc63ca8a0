//! An agent (ClusterAgent and its works) in a process of its own. Only the agent counts there, not the servers and not who measures.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, Patch, PatchParams};
use kube::config::Kubeconfig;
use kube::{Api, Client, ResourceExt};
use muster_actors::agent::{self, AgentDeps, AgentSettings, ChangeSettings};
use muster_actors::rules::RulesDeps;
use muster_actors::sinks::{LogSinks, LogTarget};
use muster_actors::supervision::{Health, Io, Registry};
use muster_api::work::ManifestWork;
use serde_json::json;
use tokio::time::sleep;

use super::process::{self, Process, Usage};
use super::{ruled, servers, slow};

/// The agent's cluster.
pub const CLUSTER: &str = "c1";
/// The program's argument that makes it an agent.
pub const ARGUMENT: &str = "agent";

/// Names of the kubeconfigs in the folder that an agent is started with.
pub const KUBECONFIGS: [&str; 2] = ["hub", "spoke"];
/// Name of the file in that folder that an agent with rules writes events to.
pub const EVENTS_FILE: &str = "events.log";

/// What each look at its use costs an agent that is to be slow.
const WASTED_EACH_LOOK: usize = 16 << 20;

/// What actors count that the agent is asked for: looks at a work, and states of wanted objects that
/// a watch has shown.
const LOOKS: &str = "passes";
const SIGHTINGS: &str = "wanted";
const COUNTS: [&str; 2] = [LOOKS, SIGHTINGS];

/// How long a busy work may take to say how often it was looked at.
const REPORT_LIMIT: Duration = Duration::from_secs(5);

/// It ends by the end of its commands; this is for a bench that hangs.
const LIMIT: Duration = Duration::from_secs(900);

/// Runs the agent: `agent FOLDER POLL_MILLISECONDS [DEBOUNCE_MILLISECONDS]`, with watch rules if a
/// debounce of theirs is given. Obeys `poll MILLISECONDS`, `usage` and what it is
/// to count ([`COUNTS`]) from standard input until its end.
pub fn run() -> Result<()> {
    let mut arguments = std::env::args().skip_while(|arg| arg != ARGUMENT).skip(1);
    let dir = PathBuf::from(arguments.next().context("no folder with kubeconfigs")?);
    let poll = arguments.next().context("no poll interval")?;
    let debounce = arguments.next().map(|millis| millis.parse()).transpose()?;
    let rules = debounce.map(|millis| with_rules(&dir, Duration::from_millis(millis)));
    servers::block_on_for(LIMIT, obey(&dir, settings(&poll)?, rules))
}

fn with_rules(dir: &Path, debounce: Duration) -> RulesDeps {
    let sink = LogSinks::new(LogTarget::File {
        path: dir.join(EVENTS_FILE),
        max_bytes: u64::MAX,
        keep: 0,
    });
    ruled::rules_of(debounce, Arc::new(sink))
}

fn settings(poll_millis: &str) -> Result<AgentSettings> {
    Ok(AgentSettings {
        poll_interval: Duration::from_millis(poll_millis.parse()?),
        ..AgentSettings::default()
    })
}

async fn obey(dir: &Path, begin_with: AgentSettings, rules: Option<RulesDeps>) -> Result<()> {
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
        hub_link: None,
        hub_id: hub_id.context("the kubeconfig names a server")?,
        agent_id: None,
        rules,
        spoke,
        settings: begin_with,
        io: Io::current(),
        registry: registry.clone(),
        health: Health::new(),
    });
    let mut commands = process::commands();
    let mut ballast = Vec::new();
    while let Some(command) = commands.recv().await {
        if let Some(state) = COUNTS.iter().find(|state| **state == command) {
            println!("{}", count(&registry, state).await);
            continue;
        }
        if let Some(poll) = command.strip_prefix("poll ") {
            agent.send(ChangeSettings(settings(poll)?)).await?;
        }
        if slow::injected() {
            ballast.push(vec![1_u8; WASTED_EACH_LOOK]);
        }
        let usage = Usage::now()?;
        println!("{}", serde_json::to_string(&usage)?);
    }
    Ok(())
}

/// A number that actors show of themselves, summed over all of them.
async fn count(registry: &Registry, state: &str) -> u64 {
    let actors = registry.report(REPORT_LIMIT).await;
    actors
        .iter()
        .filter_map(|actor| actor.state[state].as_u64())
        .sum()
}

/// The known slowness: memory that no agent needs, more for each work, CPU, reads of works and of
/// their objects, and writes, also of a status.
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
            if let Some(work) = list.items.first() {
                let nothing = Patch::Merge(json!({"status": {}}));
                let params = PatchParams::default();
                let _ = works
                    .patch_status(&work.name_any(), &params, &nothing)
                    .await;
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
pub struct Agent(Process);

impl Agent {
    /// Starts it with the kubeconfigs in `dir`.
    pub fn start(dir: &Path, poll: Duration) -> Result<Self> {
        let dir = dir.to_str().context("an odd folder for temporary files")?;
        Process::start(&[ARGUMENT, dir, &poll.as_millis().to_string()]).map(Self)
    }

    /// Starts it with watch rules, whose events it writes to [`EVENTS_FILE`] in `dir`.
    pub fn start_with_rules(dir: &Path, poll: Duration, debounce: Duration) -> Result<Self> {
        let dir = dir.to_str().context("an odd folder for temporary files")?;
        let [poll, debounce] = [poll, debounce].map(|time| time.as_millis().to_string());
        Process::start(&[ARGUMENT, dir, &poll, &debounce]).map(Self)
    }

    /// What it uses now.
    pub async fn usage(&mut self) -> Result<Usage> {
        self.0.usage().await
    }

    /// How often it has looked at works so far, all works together.
    pub async fn looks(&mut self) -> Result<u64> {
        self.0.tell(LOOKS).await
    }

    /// How many states of watched objects it has been shown so far.
    pub async fn sightings(&mut self) -> Result<u64> {
        self.0.tell(SIGHTINGS).await
    }

    /// Sets its poll interval.
    pub async fn poll_each(&mut self, interval: Duration) -> Result<()> {
        let command = format!("poll {}", interval.as_millis());
        self.0.tell::<Usage>(&command).await.map(drop)
    }
}
