//! A hub and two agents with nothing but a broker between them, each a process of its own.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DynamicObject, ListParams};
use kube::{Api, Client, ResourceExt};
use muster_api::work::ManifestWork;
use tempfile::TempDir;

use crate::support::muster::{Muster, hub_kubeconfig, run_with};
use crate::support::{
    Backend, Mosquitto, MosquittoConf, OwnCluster, World, client_of, on_free_ports,
};

/// Clusters of a site: one of the backend, and a simulated one.
pub(super) const EDGE: &str = "edge-a";
pub(super) const SIMULATED: &str = "edge-b";
/// Users of the broker with their passwords.
const USERS: [(&str, &str); 3] = [("hub", "of-hub"), (EDGE, "of-a"), (SIMULATED, "of-b")];

/// The rules of muster's own broker, for mosquitto.
const ACL: &str = "
user hub
topic write sources/hub/clusters/+/sourceevents
topic write sources/hub/sourcebroadcast
topic read sources/hub/clusters/+/agentevents
topic read clusters/+/agentbroadcast

topic write /sources/hub/clusters/+/spec
topic write /sources/hub/clusters/statusresync
topic read /sources/hub/clusters/+/status
topic read /sources/clusters/+/specresync

pattern write sources/+/clusters/%u/agentevents
pattern write clusters/%u/agentbroadcast
pattern read sources/+/clusters/%u/sourceevents
pattern read sources/+/sourcebroadcast
pattern write /sources/+/clusters/%u/status
pattern write /sources/clusters/%u/specresync
pattern read /sources/+/clusters/%u/spec
pattern read /sources/+/clusters/statusresync
";

/// The broker between.
enum Broker {
    /// In a muster that does nothing else.
    Own {
        muster: Muster,
        dir: PathBuf,
        listen: String,
    },
    Mosquitto(Mosquitto),
}

impl Broker {
    async fn start(world: &World, dir: &Path, mqtt: &str) -> Result<Self> {
        if world.backend() == Backend::Real {
            let conf = MosquittoConf {
                users: &USERS,
                acl: ACL,
            };
            return Ok(Self::Mosquitto(world.mosquitto(conf).await?));
        }
        let users = users_file(dir).await?;
        on_free_ports(|[port]| {
            let (users, dir) = (users.clone(), dir.join("broker"));
            async move {
                let listen = format!("127.0.0.1:{port}");
                let config = format!(
                    "[hub]\nlisten = \"HUB\"\n[broker]\nlisten = \"{listen}\"\nusers_file = \"{}\"\n[mqtt]\n{mqtt}\n",
                    users.display()
                );
                std::fs::create_dir_all(&dir)?;
                std::fs::write(dir.join("broker.toml"), &config)?;
                let muster = Muster::start(&dir, "hub", &config).await?;
                Ok(Self::Own { muster, dir, listen })
            }
        })
        .await
    }

    fn address(&self) -> String {
        match self {
            Self::Own { listen, .. } => listen.clone(),
            Self::Mosquitto(mosquitto) => mosquitto.address(),
        }
    }

    async fn kill_and_start(self) -> Result<Self> {
        match self {
            Self::Mosquitto(mosquitto) => Ok(Self::Mosquitto(mosquitto.kill_and_start().await?)),
            Self::Own {
                muster,
                dir,
                listen,
            } => {
                muster.kill().await?;
                let config = std::fs::read_to_string(dir.join("broker.toml"))?;
                let muster = Muster::start(&dir, "hub", &config).await?;
                Ok(Self::Own {
                    muster,
                    dir,
                    listen,
                })
            }
        }
    }
}

/// Who may connect to muster's own broker.
async fn users_file(dir: &Path) -> Result<PathBuf> {
    let mut text = String::new();
    for (name, password) in USERS {
        let hashed = run_with(&["hash-password"], password).await?;
        ensure!(hashed.code == Some(0), "{hashed:?}");
        let hash = hashed.stdout;
        let kind = if name == "hub" { "source" } else { "agent" };
        writeln!(text, "user {name} {} {kind} {name}", hash.trim())?;
    }
    let file = dir.join("users");
    std::fs::write(&file, text)?;
    Ok(file)
}

/// See the module.
pub(super) struct Site {
    broker: Option<Broker>,
    hub: Option<Muster>,
    agents: BTreeMap<&'static str, Muster>,
    hub_config: String,
    hub_file: PathBuf,
    spoke: OwnCluster,
    _hub_api: Option<OwnCluster>,
    dir: TempDir,
    /// Added to the section of each process.
    mqtt: String,
}

impl Site {
    /// With this more in the section `mqtt` of all.
    pub(super) async fn start(world: &World, mqtt: &str) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let broker = Broker::start(world, dir.path(), mqtt).await?;
        let spoke = world.own_cluster().await?;
        let data = dir.path().join("data");
        let (api, hub_file, section) = if world.backend() == Backend::Embedded {
            let section = format!("listen = \"HUB\"\ndata_dir = \"{}\"", data.display());
            (None, hub_kubeconfig(&data), section)
        } else {
            let api = world.own_cluster().await?;
            let file = api.cluster().kubeconfig().to_owned();
            let section = format!(
                "api = \"kubeconfig\"\nkubeconfig = \"{}\"\nresolve_placements = true",
                file.display()
            );
            (Some(api), file, section)
        };
        let mut site = Self {
            hub_config: String::new(),
            broker: Some(broker),
            hub: None,
            agents: BTreeMap::new(),
            hub_file,
            spoke,
            _hub_api: api,
            dir,
            mqtt: mqtt.to_owned(),
        };
        // Registered as a hub with agents elsewhere has them: by its operator.
        site.hub_config = format!("[hub]\n{section}\n{}", site.transport("hub", "of-hub")?);
        site.start_hub().await?;
        site.register().await?;
        site.start_agent(EDGE).await?;
        site.start_agent(SIMULATED).await?;
        Ok(site)
    }

    /// The sections that join a process to the broker.
    fn transport(&self, user: &str, password: &str) -> Result<String> {
        let file = self.dir.path().join(format!("password-{password}"));
        std::fs::write(&file, format!("{password}\n"))?;
        let broker = self.broker.as_ref().context("there is a broker")?;
        Ok(format!(
            "[transport]\ndriver = \"mqtt\"\n[mqtt]\nbroker = \"{}\"\nusername = \"{user}\"\n\
             password_file = \"{}\"\naway_after = \"500ms\"\n{}\n",
            broker.address(),
            file.display(),
            self.mqtt,
        ))
    }

    pub(super) async fn start_hub(&mut self) -> Result<()> {
        let dir = self.dir.path().join("hub");
        self.hub = Some(Muster::start(&dir, "hub", &self.hub_config).await?);
        Ok(())
    }

    pub(super) async fn kill_hub(&mut self) -> Result<()> {
        match self.hub.take() {
            Some(hub) => hub.kill().await,
            None => Ok(()),
        }
    }

    /// The settings of the agent of a cluster that comes as this user.
    pub(super) fn agent_config(&self, cluster: &str, user: &str) -> Result<String> {
        let password = USERS.iter().find(|(name, _)| *name == user);
        let (_, password) = password.context("it is a user")?;
        let access = if cluster == EDGE {
            let file = self.spoke.cluster().kubeconfig().display();
            format!("kubeconfig = \"{file}\"")
        } else {
            "simulated = true".to_owned()
        };
        Ok(format!(
            "{}[agent]\nleader_election = false\n[simulator]\npace = \"20ms\"\n[feedback]\n\
             poll_interval = \"300ms\"\n[[clusters]]\nname = \"{cluster}\"\n{access}\n",
            self.transport(user, password)?
        ))
    }

    pub(super) async fn start_agent(&mut self, cluster: &'static str) -> Result<()> {
        let config = self.agent_config(cluster, cluster)?;
        let dir = self.dir.path().join(cluster);
        let agent = Muster::start(&dir, "agent", &config).await?;
        self.agents.insert(cluster, agent);
        Ok(())
    }

    pub(super) async fn kill_agent(&mut self, cluster: &str) -> Result<()> {
        match self.agents.remove(cluster) {
            Some(agent) => agent.kill().await,
            None => Ok(()),
        }
    }

    pub(super) async fn kill_and_start_broker(&mut self) -> Result<()> {
        let broker = self.broker.take().context("there is a broker")?;
        self.broker = Some(broker.kill_and_start().await?);
        Ok(())
    }

    /// Access to the hub for kubectl.
    pub(super) fn hub_file(&self) -> &Path {
        &self.hub_file
    }

    pub(super) async fn config_map_uid(&self, name: &str) -> Result<Option<String>> {
        let client = self.spoke.cluster().client();
        let maps: Api<ConfigMap> = Api::namespaced(client, "default");
        Ok(maps.get(name).await?.uid())
    }

    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A client of the hub's API.
    pub(super) async fn client(&self) -> Result<Client> {
        client_of(&self.hub_file).await
    }

    /// Works of a cluster on the hub.
    pub(super) async fn works(&self, cluster: &str) -> Result<Api<ManifestWork>> {
        Ok(Api::namespaced(self.client().await?, cluster))
    }

    /// The config maps that works have brought to the cluster of the backend: their text by name.
    pub(super) async fn config_maps(&self) -> Result<BTreeMap<String, String>> {
        let client = self.spoke.cluster().client();
        let maps: Api<ConfigMap> = Api::namespaced(client, "default");
        let maps = maps.list(&ListParams::default()).await?.into_iter();
        let ours = maps.filter(|map| map.name_any().starts_with("work-"));
        let text = |map: ConfigMap| {
            let text = map.data.as_ref().and_then(|data| data.get("text").cloned());
            (map.name_any(), text.unwrap_or_default())
        };
        Ok(ours.map(text).collect())
    }

    /// Clusters and their namespaces.
    async fn register(&self) -> Result<()> {
        let client = self.client().await?;
        for cluster in [EDGE, SIMULATED] {
            muster_actors::hub::register_cluster(&client, cluster, &BTreeMap::new()).await?;
        }
        Ok(())
    }

    /// Any object of the hub.
    pub(super) async fn set(&self) -> Result<Api<DynamicObject>> {
        let resource = kube::api::ApiResource {
            group: "work.open-cluster-management.io".to_owned(),
            version: "v1alpha1".to_owned(),
            api_version: "work.open-cluster-management.io/v1alpha1".to_owned(),
            kind: "ManifestWorkReplicaSet".to_owned(),
            plural: "manifestworkreplicasets".to_owned(),
        };
        Ok(Api::namespaced_with(
            self.client().await?,
            "default",
            &resource,
        ))
    }
}
