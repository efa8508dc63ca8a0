//! Processes of muster, each with a trouble that operators want to hear of.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::fs;
use std::future::Future;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

use super::defects::Defects;
use crate::support::door::Door;
use crate::support::muster::Muster;
use crate::support::{
    Cluster, EmbeddedApiServer, Servers, eventually, install_definitions, on_free_ports,
    unique_name,
};

/// How often users change something. A failure each time, since what fails is left alone for longer
/// and longer.
const PACE: Duration = Duration::from_millis(400);

/// How long a sink may take; rules are followed two seconds after they have come.
const LIMIT: Duration = Duration::from_secs(30);

const WATCHED: &str = "/api/v1/namespaces/default/configmaps/watched";
const WORK: &str = "work.open-cluster-management.io";

/// | Process | Its trouble |
/// |---|---|
/// | `hub` | a selected cluster has no namespace, a work is never applied in time; it may not write statuses of sets |
/// | `standby` | the lease is somebody else's |
/// | `agents` | of three clusters: works that cannot be applied, and fewer watches than wanted; no right to watch, nor to write its statuses; no answer |
/// | `rules` | its broker is away; one sink works now and then, one never; a rule that means nothing |
/// | `bus` | a hub with a broker: it may write no status, nor change the works of a cluster, one work is too large, a client is away, and another lies |
/// | `edge` | none: an agent at that broker |
/// | `defects` | see [`Defects`] |
pub(super) struct Fleet {
    hub: Muster,
    standby: Option<Muster>,
    agents: Muster,
    rules: Muster,
    bus: Muster,
    edge: Muster,
    defects: Defects,
    /// Where the sets and the works of `agents` are.
    hub_api: EmbeddedApiServer,
    /// Where the works of `edge` are.
    bus_api: EmbeddedApiServer,
    spoke: EmbeddedApiServer,
    _away: Door,
    standby_address: String,
    dir: PathBuf,
}

impl Fleet {
    pub(super) async fn start(servers: &Servers) -> Result<Self> {
        let dir = servers.new_dir(&unique_name("fleet"))?;
        let own = || servers.own_embedded();
        let (hub_api, bus_api, spoke) = tokio::try_join!(own(), own(), own())?;
        let apis = [&hub_api, &bus_api, &spoke].map(EmbeddedApiServer::cluster);
        for api in apis {
            install_definitions(api).await?;
        }
        let [hub_at, bus_at, spoke_at] = apis;
        prepare_hub(hub_at).await?;
        let hub = Muster::start(&dir.join("hub"), "hub", &{
            let file = hub_at.kubeconfig_as("hub", &dir)?;
            hub_settings(&file, "leader_election = true")
        })
        .await?;
        let standby = Muster::start(&dir.join("standby"), "hub", &{
            hub_settings(hub_at.kubeconfig(), "lease_namespace = \"standby\"")
        })
        .await?;

        let closed = dir.join("away.kubeconfig");
        let away = Door::open(spoke_at.kubeconfig(), &closed).await?;
        away.close();
        let agents = start_agents(&dir, hub_at, spoke_at, &closed).await?;
        let rules = start_rules(&dir, spoke_at).await?;
        let (bus, edge) = start_bus(servers, &dir, bus_at).await?;
        Ok(Self {
            hub,
            standby_address: standby.address(),
            standby: Some(standby),
            agents,
            rules,
            bus,
            edge,
            defects: Defects::start().await?,
            hub_api,
            bus_api,
            spoke,
            _away: away,
            dir,
        })
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where its processes are scraped, by job.
    pub(super) fn targets(&self) -> Vec<(&'static str, String)> {
        vec![
            ("muster-hub", self.hub.address()),
            ("muster-hub", self.bus.address()),
            ("muster-standby", self.standby_address.clone()),
            ("muster-agent", self.agents.address()),
            ("muster-agent", self.rules.address()),
            ("muster-agent", self.edge.address()),
            ("muster-defects", self.defects.address()),
        ]
    }

    /// What those processes serve that live.
    pub(super) async fn scrapes(&self) -> Result<Vec<String>> {
        let mut scrapes = Vec::new();
        for process in [&self.hub, &self.agents, &self.rules, &self.bus, &self.edge] {
            let (code, text) = process.get("/metrics").await?;
            ensure!(code == 200, "{code}: {text}");
            scrapes.push(text);
        }
        Ok(scrapes)
    }

    /// Goes on changing things until `end` has come, so that what fails goes on failing.
    pub(super) async fn in_trouble_until<T>(
        &self,
        end: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        tokio::select! {
            end = end => end,
            failed = self.change_for_ever() => {
                let Err(error) = failed;
                Err(error)
            }
            failed = self.fail_a_sink_for_ever() => {
                let Err(error) = failed;
                Err(error)
            }
        }
    }

    async fn change_for_ever(&self) -> Result<Infallible> {
        let mut pace = interval(PACE);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            pace.tick().await;
            self.change().await?;
        }
    }

    async fn change(&self) -> Result<()> {
        let name = unique_name("turn");
        // A set whose works no agent can apply: nothing is in this namespace.
        let lost = config_map("missing", &name, "1");
        let set = json!({"apiVersion": format!("{WORK}/v1alpha1"), "kind": "ManifestWorkReplicaSet",
            "metadata": {"namespace": "default", "name": name},
            "spec": {"placementRefs": [{"name": "all"}],
                "manifestWorkTemplate": {"workload": {"manifests": [lost]}}}});
        create(self.hub_api.cluster(), &set).await?;
        // What is watched.
        let value = json!({"data": {"v": name}});
        let spoke = self.spoke.cluster().rest();
        let answer = spoke.merge_patch(WATCHED, &value).await?;
        ensure!(matches!(answer.code, 200 | 404), "{answer:?}");
        // A work for the agent at the broker, and for the client that is away.
        let work = work("edge", &name, &config_map("default", &name, "1"));
        create(self.bus_api.cluster(), &work).await
    }

    /// A sink fails, and works again so that the next failure is not waited for: its folder is one, or
    /// a file.
    async fn fail_a_sink_for_ever(&self) -> Result<Infallible> {
        loop {
            point_sink_at(&self.dir, "full")?;
            self.sink_delivers("error").await?;
            point_sink_at(&self.dir, "folder")?;
            self.sink_delivers("ok").await?;
        }
    }

    /// Something changes that the sink wants, until there is one more such result.
    async fn sink_delivers(&self, result: &str) -> Result<()> {
        let label = format!("sink=\"now-and-then\",result=\"{result}\"");
        let count = || self.rules.metric("muster_rule_deliveries_total", &label);
        let before = count().await?;
        let what = format!("the sink to say {result}");
        create(
            self.spoke.cluster(),
            &config_map("default", &unique_name("event"), "1"),
        )
        .await?;
        eventually(LIMIT, &what, || async {
            let now = count().await?;
            ensure!(now > before, "{now}");
            Ok(())
        })
        .await
    }

    /// Kills a process, and gives another settings that are wrong.
    pub(super) async fn lose_a_process_and_get_wrong_settings(&mut self) -> Result<()> {
        let standby = self.standby.take().context("it is gone already")?;
        standby.kill().await?;
        let file = self.dir.join("rules/muster.toml");
        let text = fs::read_to_string(&file)?;
        fs::write(&file, text.replace("[feedback]", "[feedbck]"))?;
        Ok(())
    }

    pub(super) async fn stop(self) -> Result<()> {
        for process in [self.hub, self.agents, self.rules, self.edge, self.bus] {
            process.kill().await?;
        }
        for api in [self.hub_api, self.bus_api, self.spoke] {
            api.stop().await;
        }
        Ok(())
    }
}

/// The setting that names this file.
fn access(kubeconfig: &Path) -> String {
    format!("kubeconfig = \"{}\"\n", kubeconfig.display())
}

fn hub_settings(kubeconfig: &Path, more: &str) -> String {
    format!(
        "[hub]\napi = \"kubeconfig\"\n{}install_crds = false\nlease_retry_period = \"1s\"\n{more}\n\
         [transport]\ndriver = \"kube\"\n",
        access(kubeconfig)
    )
}

/// Namespaces, a placement of two clusters of which one has none, and what the hub may do.
async fn prepare_hub(hub: &Cluster) -> Result<()> {
    for name in [
        "open-cluster-management-hub",
        "standby",
        "works",
        "refused",
        "away",
    ] {
        namespace(hub, name).await?;
    }
    let placement = json!({"apiVersion": "cluster.open-cluster-management.io/v1beta1",
        "kind": "Placement", "metadata": {"namespace": "default", "name": "all"}, "spec": {}});
    create(hub, &placement).await?;
    let decision = json!({"apiVersion": "cluster.open-cluster-management.io/v1beta1",
        "kind": "PlacementDecision",
        "metadata": {"namespace": "default", "name": "all-decision-1",
            "labels": {"cluster.open-cluster-management.io/placement": "all"}}});
    create(hub, &decision).await?;
    let chosen = ["works", "nowhere"].map(|name| json!({"clusterName": name, "reason": ""}));
    for (kind, name, status) in [
        ("placements", "all", json!({"numberOfSelectedClusters": 2})),
        (
            "placementdecisions",
            "all-decision-1",
            json!({"decisions": chosen}),
        ),
    ] {
        let path = format!(
            "/apis/cluster.open-cluster-management.io/v1beta1/namespaces/default/{kind}/{name}/status"
        );
        let status = json!({ "status": status });
        hub.rest().merge_patch(&path, &status).await?.ok()?;
    }
    let somebody = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"namespace": "standby", "name": "work-manager-lock"},
        "spec": {"holderIdentity": "somebody", "leaseDurationSeconds": 3600,
            "leaseTransitions": 0, "acquireTime": "2026-01-01T00:00:00.000000Z",
            "renewTime": "2026-01-01T00:00:00.000000Z"}});
    create(hub, &somebody).await?;
    let hopeless = json!({"apiVersion": format!("{WORK}/v1alpha1"), "kind": "ManifestWorkReplicaSet",
        "metadata": {"namespace": "default", "name": "hopeless"},
        "spec": {
            "placementRefs": [{"name": "all", "rolloutStrategy": {
                "type": "All", "all": {"progressDeadline": "1s"}}}],
            "manifestWorkTemplate": {"workload": {
                "manifests": [config_map("missing", "hopeless", "1")]}}}});
    create(hub, &hopeless).await?;
    // All but the status of sets.
    may(
        hub,
        "hub",
        &[
            (
                WORK,
                &[
                    "manifestworkreplicasets",
                    "manifestworkreplicasets/finalizers",
                    "manifestworks",
                ],
                "*",
            ),
            ("cluster.open-cluster-management.io", &["*"], "*"),
            ("apps", &["controllerrevisions"], "*"),
            ("coordination.k8s.io", &["leases"], "*"),
        ],
    )
    .await
}

/// A user may do this: group, resources and verb.
async fn may(cluster: &Cluster, user: &str, rights: &[(&str, &[&str], &str)]) -> Result<()> {
    let rules = rights.iter().map(|(group, resources, verb)| {
        json!({"apiGroups": [group], "resources": resources, "verbs": verb.split(' ').collect::<Vec<_>>()})
    });
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": user}, "rules": rules.collect::<Vec<_>>()});
    create(cluster, &role).await?;
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]});
    create(cluster, &binding).await
}

/// A user may change these resources in a namespace.
async fn may_in(cluster: &Cluster, namespace: &str, user: &str, resources: &str) -> Result<()> {
    let metadata = json!({"namespace": namespace, "name": user});
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": metadata,
        "rules": [{"apiGroups": [WORK], "resources": [resources], "verbs": ["*"]}]});
    create(cluster, &role).await?;
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": user},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]});
    create(cluster, &binding).await
}

/// Agents of three clusters in one process: of the spoke with all rights, of the spoke without the
/// right to watch, and of one that does not answer.
async fn start_agents(dir: &Path, hub: &Cluster, spoke: &Cluster, away: &Path) -> Result<Muster> {
    may(
        spoke,
        "refused",
        &[
            (WORK, &["*"], "*"),
            ("", &["configmaps"], "get list create update patch delete"),
        ],
    )
    .await?;
    let refused = spoke.kubeconfig_as("refused", dir)?;
    // On the hub they may write the statuses of one cluster only.
    may(hub, "agents", &[(WORK, &["manifestworks"], "*")]).await?;
    may_in(hub, "works", "agents", "manifestworks/status").await?;
    let hub_file = hub.kubeconfig_as("agents", dir)?;
    let mut settings = format!(
        "[hub]\n{}[transport]\ndriver = \"kube\"\n[agent]\nleader_election = false\n\
         [watch]\nmax_watches = 1\n[feedback]\npoll_interval = \"1s\"\n",
        access(&hub_file)
    );
    for (name, file) in [
        ("works", spoke.kubeconfig()),
        ("refused", &refused),
        ("away", away),
    ] {
        writeln!(
            settings,
            "[[clusters]]\nname = \"{name}\"\n{}",
            access(file)
        )?;
    }
    let agents = Muster::start(&dir.join("agents"), "agent", &settings).await?;
    // More than may be watched.
    let secret = json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"namespace": "default", "name": "watched"}, "stringData": {"v": "1"}});
    let mut first = work("works", "watched", &Value::Null);
    first["spec"]["workload"]["manifests"] = json!([config_map("default", "watched", "1"), secret]);
    first["spec"]["manifestConfigs"] = json!([watched("configmaps"), watched("secrets")]);
    // It does not change what others have put there.
    for config in 0..2 {
        first["spec"]["manifestConfigs"][config]["updateStrategy"] = json!({"type": "CreateOnly"});
    }
    let mut second = first.clone();
    second["metadata"]["namespace"] = json!("refused");
    second["spec"]["workload"]["manifests"] = json!([config_map("default", "watched", "1")]);
    second["spec"]["manifestConfigs"] = json!([first["spec"]["manifestConfigs"][0]]);
    // It is not reached, which a try to apply something tells.
    let third = work("away", "away", &config_map("default", "away", "1"));
    for work in [first, second, third] {
        create(hub, &work).await?;
    }
    Ok(agents)
}

/// Has the path of a sink lead there, in one step: the sink makes a folder that it misses.
fn point_sink_at(dir: &Path, target: &str) -> Result<()> {
    let new = dir.join("sink-new");
    symlink(target, &new)?;
    Ok(fs::rename(&new, dir.join("sink"))?)
}

/// An agent whose broker is away, with two sinks, and rules for either.
async fn start_rules(dir: &Path, spoke: &Cluster) -> Result<Muster> {
    fs::create_dir(dir.join("folder"))?;
    fs::write(dir.join("full"), "no folder")?;
    point_sink_at(dir, "folder")?;
    let sink = |name: &str, folder: &str| {
        let path = dir.join(folder).join("events.log").display().to_string();
        // A new file for each line, so that none stays open.
        format!(
            "[[sinks]]\nname = \"{name}\"\nkind = \"log\"\npath = \"{path}\"\n\
             max_bytes = 1\nkeep = 1\n"
        )
    };
    let settings = format!(
        "[transport]\ndriver = \"mqtt\"\n[mqtt]\nbroker = \"127.0.0.1:1\"\n[agent]\n\
         leader_election = false\n[feedback]\npoll_interval = \"1s\"\n[[clusters]]\n\
         name = \"rules\"\n{}{}{}",
        access(spoke.kubeconfig()),
        sink("now-and-then", "sink"),
        sink("never", "full"),
    );
    let rules = Muster::start_unready(&dir.join("rules"), "agent", &settings).await?;
    for sink in ["now-and-then", "never"] {
        let rule = json!({"apiVersion": "rules.muster.dev/v1alpha1", "kind": "WatchRule",
            "metadata": {"namespace": "default", "name": sink},
            "spec": {"destination": sink, "rules": [{"resources": ["configmaps"]},
                // These are in no namespace.
                {"resources": ["namespaces"]}]}});
        create(spoke, &rule).await?;
    }
    Ok(rules)
}

/// A hub with a broker, and an agent there.
async fn start_bus(servers: &Servers, dir: &Path, api: &Cluster) -> Result<(Muster, Muster)> {
    for name in ["edge", "held"] {
        namespace(api, name).await?;
    }
    let all = ["manifestworks", "manifestworkreplicasets"];
    may(
        api,
        "bus",
        &[
            (WORK, &all, "get list watch"),
            ("cluster.open-cluster-management.io", &["*"], "*"),
            ("apps", &["controllerrevisions"], "*"),
        ],
    )
    .await?;
    // Works of other clusters it may not change, so they never get the finalizer that goes first.
    may_in(api, "edge", "bus", "manifestworks").await?;
    let access = access(&api.kubeconfig_as("bus", dir)?);
    let (bus, edge) = on_free_ports(|[port]| {
        let broker = format!("127.0.0.1:{port}");
        let bus = format!(
            "[hub]\napi = \"kubeconfig\"\n{access}install_crds = false\n\
             [transport]\ndriver = \"mqtt\"\n[broker]\nlisten = \"{broker}\"\n\
             allow_anonymous = true\nmax_packet_bytes = 32768\nmax_queued_messages = 5\n"
        );
        let edge = format!(
            "[transport]\ndriver = \"mqtt\"\n[mqtt]\nbroker = \"{broker}\"\n[agent]\n\
             leader_election = false\n[[clusters]]\nname = \"edge\"\nsimulated = true\n"
        );
        async move {
            let bus = Muster::start(&dir.join("bus"), "hub", &bus).await?;
            slow_client(servers, port).await?;
            imposter(servers, port).await?;
            let edge = Muster::start(&dir.join("edge"), "agent", &edge).await?;
            Ok((bus, edge))
        }
    })
    .await?;
    let large = "x".repeat(40_000);
    for work in [
        work("held", "held", &config_map("default", "held", "1")),
        work("edge", "large", &config_map("default", "large", &large)),
    ] {
        create(api, &work).await?;
    }
    Ok((bus, edge))
}

/// A client that has a session for all works, and is away.
async fn slow_client(servers: &Servers, port: u16) -> Result<()> {
    let mut client = servers.subscriber(port)?;
    client.args(["-i", "slow", "-c", "-x", "3600", "-q", "1"]);
    let subscribed = client.args(["-t", "sources/#", "-E"]).output().await?;
    ensure!(subscribed.status.success(), "{subscribed:?}");
    Ok(())
}

/// Somebody says something about the works of a cluster in the name of another.
async fn imposter(servers: &Servers, port: u16) -> Result<()> {
    let mut client = servers.publisher(port)?;
    client.args([
        "-q",
        "1",
        "-t",
        "sources/hub/clusters/edge/agentevents",
        "-m",
        "{}",
    ]);
    client.args(["-D", "publish", "content-type", "application/json"]);
    let kind = "io.open-cluster-management.works.v1alpha1.manifestbundles.status.update_request";
    for (name, value) in [
        ("ce-specversion", "1.0"),
        ("ce-id", "1"),
        ("ce-type", kind),
        ("ce-source", "other"),
        ("ce-clustername", "other"),
        ("ce-originalsource", "hub"),
        ("ce-resourceid", "1"),
        ("ce-resourceversion", "1"),
    ] {
        client.args(["-D", "publish", "user-property", name, value]);
    }
    let published = client.output().await?;
    ensure!(published.status.success(), "{published:?}");
    Ok(())
}

fn config_map(namespace: &str, name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": namespace, "name": name}, "data": {"v": value}})
}

fn work(cluster: &str, name: &str, manifest: &Value) -> Value {
    json!({"apiVersion": format!("{WORK}/v1"), "kind": "ManifestWork",
        "metadata": {"namespace": cluster, "name": name},
        "spec": {"workload": {"manifests": [manifest]}}})
}

/// The option that has the object `watched` of this type watched.
fn watched(resource: &str) -> Value {
    json!({"resourceIdentifier": {"group": "", "resource": resource, "namespace": "default",
            "name": "watched"},
        "feedbackScrapeType": "Watch",
        "feedbackRules": [{"type": "JSONPaths", "jsonPaths": [{"name": "v", "path": ".data.v"}]}]})
}

async fn namespace(cluster: &Cluster, name: &str) -> Result<()> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    create(cluster, &namespace).await
}

/// Creates an object of a type that the fleet uses.
async fn create(cluster: &Cluster, object: &Value) -> Result<()> {
    let of = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
    let (version, kind) = (of("apiVersion"), of("kind").to_lowercase());
    let root = if version.contains('/') { "apis" } else { "api" };
    let api = format!("/{root}/{version}");
    let collection = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{api}/namespaces/{namespace}/{kind}s"),
        None => format!("{api}/{kind}s"),
    };
    cluster.rest().post(&collection, object).await?.created()?;
    Ok(())
}
