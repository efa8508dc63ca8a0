//! `muster agent` as users run it, on a cluster of its own as far as works can tell.
//!
//! The servers are those that all stories share. An agent has its name and so its namespace for
//! itself, on both sides, and reaches each server by a [`Door`]: the URL of its hub, and so the
//! names of its records, are its own, and each side can be cut off.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::cluster::{Cluster, unique_name};
use super::definitions::install_definitions;
use super::door::Door;
use super::live::{LIMIT, Live};
use super::muster::Muster;
use super::waiting::eventually;
use super::works::shows;
use super::world::World;

/// How often the agents of stories look without a reason. Short, as most of what a story waits
/// for comes with a look; long against what a look costs.
const POLL: &str = "--status-sync-interval=500ms";

const WORKS: &str = "/apis/work.open-cluster-management.io/v1";

/// An agent, its hub and its cluster.
pub(crate) struct Agent {
    name: String,
    hub: Cluster,
    spoke: Cluster,
    hub_door: Door,
    spoke_door: Door,
    /// Flags beside those that say who and where.
    flags: Vec<String>,
    /// TOML.
    settings: String,
    dir: PathBuf,
    muster: Option<Muster>,
}

impl Agent {
    /// A running agent with the settings that stories have.
    pub(crate) async fn start(world: &World) -> Result<Self> {
        Self::start_with(world, &[]).await
    }

    /// A running agent with these flags, too.
    pub(crate) async fn start_with(world: &World, flags: &[&str]) -> Result<Self> {
        let mut agent = Self::prepare(world, flags).await?;
        agent.run().await?;
        Ok(agent)
    }

    /// All that an agent needs; [`Self::run`] starts it.
    pub(crate) async fn prepare(world: &World, flags: &[&str]) -> Result<Self> {
        let (hub, spoke) = tokio::try_join!(world.hub(), world.spoke())?;
        Self::between(world, hub, spoke, flags).await
    }

    /// [`Self::prepare`], for clusters that are not those of all stories.
    pub(crate) async fn between(
        world: &World,
        hub: Cluster,
        spoke: Cluster,
        flags: &[&str],
    ) -> Result<Self> {
        tokio::try_join!(install_definitions(&hub), install_definitions(&spoke))?;
        let name = unique_name("agent");
        let dir = world.dir(&name)?;
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        for cluster in [&hub, &spoke] {
            let rest = cluster.rest();
            rest.post("/api/v1/namespaces", &namespace)
                .await?
                .created()?;
        }
        Ok(Self {
            hub_door: Door::open(hub.kubeconfig(), &dir.join("hub.kubeconfig")).await?,
            spoke_door: Door::open(spoke.kubeconfig(), &dir.join("spoke.kubeconfig")).await?,
            name,
            hub,
            spoke,
            flags: flags.iter().map(ToString::to_string).collect(),
            settings: String::new(),
            dir,
            muster: None,
        })
    }

    /// Settings that have no flag, in TOML, from the next start on.
    pub(crate) fn set(&mut self, settings: &str) {
        settings.clone_into(&mut self.settings);
    }

    /// Writes other settings into the file of the running process.
    pub(crate) fn change_settings(&mut self, settings: &str) -> Result<()> {
        self.set(settings);
        let file = self.dir.join("muster.toml");
        let text = std::fs::read_to_string(&file)?;
        let rest = text.find("\n[telemetry]").context("no [telemetry]")?;
        std::fs::write(&file, format!("{settings}{}", &text[rest..]))?;
        Ok(())
    }

    /// Gives the agent, which must not run yet, the rights of this user on its cluster.
    pub(crate) fn acts_on_its_cluster_as(&self, user: &str) -> Result<()> {
        let file = self.dir.join("spoke.kubeconfig");
        let mut config: Value = serde_json::from_str(&std::fs::read_to_string(&file)?)?;
        config["users"][0]["user"]["as"] = user.into();
        Ok(std::fs::write(&file, config.to_string())?)
    }

    /// All that the process has logged.
    pub(crate) fn log(&self) -> Result<String> {
        Ok(std::fs::read_to_string(self.dir.join("muster.log"))?)
    }

    /// Starts the process and waits until it is ready.
    pub(crate) async fn run(&mut self) -> Result<()> {
        ensure!(self.muster.is_none(), "the agent runs already");
        let flag = |name: &str, file: &Path| format!("--{name}={}", file.display());
        let mut flags = vec![
            format!("--spoke-cluster-name={}", self.name),
            flag("spoke-kubeconfig", &self.dir.join("spoke.kubeconfig")),
            flag("hub-kubeconfig", &self.dir.join("hub.kubeconfig")),
        ];
        if !self
            .flags
            .iter()
            .any(|flag| flag.starts_with("--status-sync-interval"))
        {
            flags.push(POLL.to_owned());
        }
        flags.extend(self.flags.iter().cloned());
        let flags: Vec<OsString> = flags.into_iter().map(OsString::from).collect();
        self.muster = Some(Muster::start_with(&self.dir, "agent", &self.settings, &flags).await?);
        Ok(())
    }

    /// Where a browser finds a path of its telemetry port.
    pub(crate) fn url(&self, path: &str) -> Result<String> {
        let muster = self.muster.as_ref().context("the agent does not run")?;
        Ok(muster.url(path))
    }

    /// Kills the process as a power cut would.
    pub(crate) async fn kill(&mut self) -> Result<()> {
        let muster = self.muster.take().context("the agent does not run")?;
        muster.kill().await
    }

    /// Moves the agent, which must not run, to another hub: another URL of the same server. The
    /// works there are the same.
    pub(crate) async fn move_hub(&mut self) -> Result<()> {
        ensure!(self.muster.is_none(), "the agent runs");
        let file = self.dir.join("hub.kubeconfig");
        self.hub_door = Door::open(self.hub.kubeconfig(), &file).await?;
        Ok(())
    }

    /// The name of the cluster and of its namespaces.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The cluster that it applies to.
    pub(crate) fn spoke(&self) -> &Cluster {
        &self.spoke
    }

    /// The server that works are on.
    pub(crate) fn hub(&self) -> &Cluster {
        &self.hub
    }

    /// The way to the hub.
    pub(crate) fn hub_door(&self) -> &Door {
        &self.hub_door
    }

    /// The way to the cluster.
    pub(crate) fn spoke_door(&self) -> &Door {
        &self.spoke_door
    }

    /// What the hub is called in the names of records.
    pub(crate) fn hub_hash(&self) -> String {
        muster_core::applied_work::hub_hash(self.hub_door.url())
    }

    /// The name of the record of a work.
    pub(crate) fn record_name(&self, work: &str) -> String {
        format!("{}-{work}", self.hub_hash())
    }

    /// The record of a work, on the cluster.
    pub(crate) fn record(&self, work: &str) -> Live {
        self.record_named(&self.record_name(work))
    }

    /// A record by its own name.
    pub(crate) fn record_named(&self, name: &str) -> Live {
        let records = format!("{WORKS}/appliedmanifestworks");
        Live::new(self.spoke.rest(), &records, name)
    }

    /// A work, on the hub.
    pub(crate) fn work(&self, name: &str) -> Live {
        let works = format!("{WORKS}/namespaces/{}/manifestworks", self.name);
        Live::new(self.hub.rest(), &works, name)
    }

    /// An object on the cluster; one that has a namespace is in the agent's own.
    pub(crate) fn object(&self, resource: &str, name: &str) -> Live {
        let in_namespace = |api: &str| format!("{api}/namespaces/{}/{resource}", self.name);
        let collection = match resource {
            "namespaces" => format!("/api/v1/{resource}"),
            "clusterroles" | "clusterrolebindings" => {
                format!("/apis/rbac.authorization.k8s.io/v1/{resource}")
            }
            "customresourcedefinitions" => format!("/apis/apiextensions.k8s.io/v1/{resource}"),
            "deployments" | "daemonsets" | "statefulsets" => in_namespace("/apis/apps/v1"),
            "jobs" | "cronjobs" => in_namespace("/apis/batch/v1"),
            "roles" | "rolebindings" => in_namespace("/apis/rbac.authorization.k8s.io/v1"),
            _ => in_namespace("/api/v1"),
        };
        Live::new(self.spoke.rest(), &collection, name)
    }

    /// A config map on the cluster.
    pub(crate) fn cm(&self, name: &str) -> Live {
        self.object("configmaps", name)
    }

    /// A user creates a work.
    pub(crate) async fn create(&self, name: &str, spec: Value) -> Result<Value> {
        self.create_labelled(name, json!({}), spec).await
    }

    /// A user creates a work with labels.
    pub(crate) async fn create_labelled(
        &self,
        name: &str,
        labels: Value,
        spec: Value,
    ) -> Result<Value> {
        let work = json!({
            "apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
            "metadata": {"namespace": self.name, "name": name, "labels": labels},
            "spec": spec});
        self.work(name).create(&work).await
    }

    /// A user changes the spec of a work, by a JSON merge patch.
    pub(crate) async fn edit(&self, name: &str, spec: Value) -> Result<Value> {
        self.work(name).merge(json!({ "spec": spec })).await
    }

    /// Waits until a work shows these statuses of its manifests, a letter each, and what follows
    /// from them, all for its newest spec: `[("Applied", "FTT"), ("Available", "FTT")]`.
    pub(crate) async fn shows(&self, name: &str, expected: &[(&str, &str)]) -> Result<Value> {
        let what = format!("work {name} to show {expected:?}");
        eventually(LIMIT, &what, || async {
            let work = self.work(name).get().await?;
            for (kind, letters) in expected {
                shows(&work, kind, letters)?;
            }
            Ok(work)
        })
        .await
    }

    /// Waits until a work is applied and available, each of its manifests.
    pub(crate) async fn settled(&self, name: &str) -> Result<Value> {
        let spec = self.work(name).get().await?;
        let all = spec["spec"]["workload"]["manifests"].as_array();
        let letters = "T".repeat(all.map_or(0, Vec::len));
        self.shows(name, &[("Applied", &letters), ("Available", &letters)])
            .await
    }

    /// Creates a work and waits until it is applied and available.
    pub(crate) async fn applied(&self, name: &str, spec: Value) -> Result<Value> {
        self.create(name, spec).await?;
        self.settled(name).await
    }

    /// Waits until the record lists exactly these objects, in this order, each as
    /// `resource namespace/name`, and gives its entries.
    pub(crate) async fn records(&self, work: &str, expected: &[&str]) -> Result<Vec<Value>> {
        let entries = |record: &Value| {
            let resources = record["status"]["appliedResources"].as_array();
            resources.cloned().unwrap_or_default()
        };
        let describe = |entry: &Value| {
            let field = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
            match field("namespace") {
                namespace if namespace.is_empty() => {
                    format!("{} {}", field("resource"), field("name"))
                }
                namespace if namespace == self.name => {
                    format!("{} {}", field("resource"), field("name"))
                }
                namespace => format!("{} {namespace}/{}", field("resource"), field("name")),
            }
        };
        let record = self.record(work);
        let record = record
            .is(&format!("list {expected:?}"), |record| {
                entries(record)
                    .iter()
                    .map(describe)
                    .eq(expected.iter().copied())
            })
            .await?;
        Ok(entries(&record))
    }

    /// Passes that the agent has made over a work.
    async fn passes(&self, work: &str) -> Result<u64> {
        let state = self.state_of(work).await?;
        let passes = state["passes"].as_u64();
        passes.with_context(|| format!("no passes in {state}"))
    }

    /// What the actor of a work shows of itself.
    async fn state_of(&self, work: &str) -> Result<Value> {
        let muster = self.muster.as_ref().context("the agent does not run")?;
        let (code, actors) = muster.get("/debug/actors").await?;
        ensure!(code == 200, "{actors}");
        let actors: Value = serde_json::from_str(&actors)?;
        let name = format!("{}/{work}", self.name);
        let actor = actors.as_array().into_iter().flatten();
        let mut actor =
            actor.filter(|actor| actor["role"] == "ManifestWork" && actor["name"] == name);
        let Some(actor) = actor.next() else {
            bail!("no actor of work {work}: {actors}")
        };
        Ok(actor["state"].clone())
    }

    /// Waits until the agent has looked at a work `count` times more, each time from beginning
    /// to end, for what must not change.
    pub(crate) async fn looks_again(&self, work: &str, count: u64) -> Result<()> {
        let until = eventually(LIMIT, "the agent to tell its passes", || self.passes(work)).await?;
        // The pass that is under way may have seen an older state.
        let until = until + 1 + count;
        eventually(LIMIT, &format!("pass {until} over work {work}"), || async {
            let passes = self.passes(work).await?;
            ensure!(passes >= until, "{passes} passes");
            Ok(())
        })
        .await
    }

    /// Waits until the process says that it is ready, or that it is not; so does its metric.
    pub(crate) async fn says_ready(&self, ready: bool) -> Result<()> {
        let muster = self.muster.as_ref().context("the agent does not run")?;
        let code = if ready { 200 } else { 503 };
        eventually(LIMIT, &format!("/readyz to give {code}"), || async {
            let (seen, reasons) = muster.get("/readyz").await?;
            ensure!(seen == code, "{seen}: {reasons}");
            let counted = muster.metric("muster_streams_not_ready", "").await?;
            let listed = if ready { 0 } else { reasons.lines().count() };
            ensure!(
                counted.to_string() == listed.to_string(),
                "{counted}: {reasons}"
            );
            Ok(())
        })
        .await
    }

    /// A metric of the process, summed over the labels that contain `label`.
    pub(crate) async fn metric(&self, name: &str, label: &str) -> Result<f64> {
        let muster = self.muster.as_ref().context("the agent does not run")?;
        muster.metric(name, label).await
    }
}
