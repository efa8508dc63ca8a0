//! Servers that are away, and rights that come and go.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{NO_POLL, map, reports, says, watching};
use crate::support::agent::Agent;
use crate::support::live::LIMIT;
use crate::support::works::{shows, string, values};
use crate::support::{OwnCluster, Story, World, eventually, unique_name};

pub(super) fn stories() -> Vec<Story> {
    on_each_backend![
        c142_what_happens_while_the_cluster_is_away_is_told,
        c145_connections_that_fall_silent_are_given_up,
        what_changes_while_the_hub_is_away_is_told_when_it_is_back,
        a_server_that_is_killed_under_load_costs_no_value,
        rights_to_watch_come_and_go,
    ]
}

async fn c142_what_happens_while_the_cluster_is_away_is_told(world: World) -> Result<()> {
    let mut own = world.own_cluster().await?;
    let (hub, spoke) = (world.hub().await?, own.cluster().clone());
    let mut agent = Agent::between(&world, hub, spoke, &[NO_POLL]).await?;
    agent.run().await?;
    let read_only = |name: &str| {
        let mut spec = map(&agent, name, "1");
        spec["manifestConfigs"][0]["updateStrategy"] = json!({"type": "ReadOnly"});
        spec
    };
    for name in ["a", "b"] {
        let object = agent.config_map(name, json!({"v": "1"}));
        agent.cm(name).create(&object).await?;
        agent.create(name, read_only(name)).await?;
        reports(&agent, name, &[string("v", "1")]).await?;
    }
    // With a resource version that holds, and with one that the server has forgotten.
    for (value, forgets) in [("2", false), ("3", true)] {
        agent.spoke_door().close();
        let maps = format!("/api/v1/namespaces/{}/configmaps", agent.name());
        let last_seen = agent.spoke().rest().get(&maps).await?.ok()?;
        agent.cm("a").delete().await?;
        agent.cm("b").merge(json!({"data": {"v": value}})).await?;
        if forgets {
            own = forget(own, &agent).await?;
        }
        let code = resumed(&agent, &maps, &last_seen).await?;
        ensure!(code == if forgets { 410 } else { 200 }, "{code}");
        agent.spoke_door().reopen();
        reports(&agent, "b", &[string("v", value)]).await?;
        agent
            .work("a")
            .is("tell that its object is gone", |work| {
                shows(work, "Available", "F").is_ok()
            })
            .await?;
        let object = agent.config_map("a", json!({"v": value}));
        agent.cm("a").create(&object).await?;
        reports(&agent, "a", &[string("v", value)]).await?;
    }
    agent.says_ready(true).await?;
    drop(own);
    Ok(())
}

/// Makes a server forget the events that it has sent.
async fn forget(own: OwnCluster, agent: &Agent) -> Result<OwnCluster> {
    match own {
        // One that starts knows what is there, and not how that came about.
        OwnCluster::Real(server) => Ok(OwnCluster::Real(Box::new(server.restart().await?))),
        OwnCluster::Embedded(_) => {
            // More than it keeps.
            for other in 0..300 {
                let change = json!({"data": {"other": other.to_string()}});
                agent.cm("b").merge(change).await?;
            }
            Ok(own)
        }
    }
}

/// The code that a watch gets which goes on from a list.
async fn resumed(agent: &Agent, collection: &str, list: &Value) -> Result<u64> {
    let version = list["metadata"]["resourceVersion"].as_str();
    let version = version.context("no version")?;
    let path = format!("{collection}?watch=true&timeoutSeconds=5&resourceVersion={version}");
    let (kind, object) = agent.spoke().rest().watch(&path).await?.next().await?;
    if kind != "ERROR" {
        return Ok(200);
    }
    object["code"].as_u64().context("an error without a code")
}

/// No packet comes through any more and nobody says so, as when a firewall forgets a connection.
async fn c145_connections_that_fall_silent_are_given_up(world: World) -> Result<()> {
    // A minute beyond the half minute in which the case drops packets.
    const SILENCE: Duration = Duration::from_secs(30 + 60);
    // Polls find out what watches of objects have missed. Nothing polls the hub.
    let agent = Agent::start_with(&world, &["--status-sync-interval=10s"]).await?;
    let mut watched = map(&agent, "cm1", "1");
    watched["manifestConfigs"][0]["updateStrategy"] = json!({"type": "CreateOnly"});
    agent.applied("watched", watched).await?;
    reports(&agent, "watched", &[string("v", "1")]).await?;
    agent.applied("edited", map(&agent, "cm2", "1")).await?;
    reports(&agent, "edited", &[string("v", "1")]).await?;

    agent.spoke_door().stall();
    agent.hub_door().stall();
    agent.cm("cm1").merge(json!({"data": {"v": "2"}})).await?;
    agent.edit("edited", map(&agent, "cm2", "2")).await?;
    // Its own requests may wait for their time limit once more.
    eventually(SILENCE + LIMIT, "both changes to come through", || async {
        for work in ["watched", "edited"] {
            let seen = values(&agent.work(work).get().await?, 0);
            ensure!(seen == json!([string("v", "2")]), "{work}: {seen}");
        }
        Ok(())
    })
    .await
}

async fn what_changes_while_the_hub_is_away_is_told_when_it_is_back(world: World) -> Result<()> {
    let mut agent = watching(&world).await?;
    let mut spec = map(&agent, "cm1", "1");
    spec["manifestConfigs"][0]["updateStrategy"] = json!({"type": "CreateOnly"});
    agent.applied("work", spec).await?;
    reports(&agent, "work", &[string("v", "1")]).await?;

    agent.hub_door().close();
    agent.says_ready(false).await?;
    for value in ["2", "3"] {
        agent.cm("cm1").merge(json!({"data": {"v": value}})).await?;
    }
    agent.hub_door().reopen();
    reports(&agent, "work", &[string("v", "3")]).await?;

    // The same while the agent itself is not there.
    agent.kill().await?;
    agent.cm("cm1").merge(json!({"data": {"v": "4"}})).await?;
    agent.run().await?;
    reports(&agent, "work", &[string("v", "4")]).await?;
    agent.cm("cm1").merge(json!({"data": {"v": "5"}})).await?;
    reports(&agent, "work", &[string("v", "5")]).await?;
    Ok(())
}

/// Each of many objects is changed again and again, also while its server is killed and comes back.
async fn a_server_that_is_killed_under_load_costs_no_value(world: World) -> Result<()> {
    const WORKS: usize = 10;
    let mut own = world.own_cluster().await?;
    let (hub, spoke) = (world.hub().await?, own.cluster().clone());
    let mut agent = Agent::between(&world, hub, spoke, &[NO_POLL]).await?;
    agent.run().await?;
    let name = |work: usize| format!("work{work}");
    for work in 0..WORKS {
        let mut spec = map(&agent, &name(work), "0");
        spec["manifestConfigs"][0]["updateStrategy"] = json!({"type": "CreateOnly"});
        agent.applied(&name(work), spec).await?;
    }
    let mut round = 0;
    let change = async |agent: &Agent, round: usize| -> Result<()> {
        for work in 0..WORKS {
            let value = json!({"data": {"v": round.to_string()}});
            eventually(LIMIT, "a change to be taken", || async {
                agent.cm(&name(work)).merge(value.clone()).await
            })
            .await?;
        }
        Ok(())
    };
    for _ in 0..2 {
        for _ in 0..5 {
            round += 1;
            change(&agent, round).await?;
        }
        own = match own {
            OwnCluster::Real(server) => OwnCluster::Real(Box::new(server.restart().await?)),
            embedded @ OwnCluster::Embedded(_) => {
                // It lives in this process: all that can be lost is the way to it.
                agent.spoke_door().close();
                round += 1;
                change(&agent, round).await?;
                agent.spoke_door().reopen();
                embedded
            }
        };
        round += 1;
        change(&agent, round).await?;
        for work in 0..WORKS {
            let last = [string("v", &round.to_string())];
            reports(&agent, &name(work), &last).await?;
        }
    }
    agent.says_ready(true).await?;
    let missed = agent.metric("muster_watch_missed_total", "").await?;
    ensure!(missed < 0.5, "{missed} changes missed");
    drop(own);
    Ok(())
}

/// The agent's own rights on its cluster: a role that the story changes.
struct Rights {
    agent: Agent,
    role: String,
}

impl Rights {
    /// An agent that may do all it needs, save for what `of_maps` leaves out for config maps.
    async fn new(world: &World, of_maps: &[&str]) -> Result<Self> {
        let user = unique_name("agent-user");
        let mut agent = Agent::prepare(world, &["--status-sync-interval=1h"]).await?;
        let rbac = "rbac.authorization.k8s.io";
        let role = json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole",
            "metadata": {"name": user}, "rules": Self::rules(of_maps)});
        let binding = json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding",
            "metadata": {"name": user},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": user},
            "subjects": [{"apiGroup": rbac, "kind": "User", "name": user}]});
        agent.object("clusterroles", &user).create(&role).await?;
        agent
            .object("clusterrolebindings", &user)
            .create(&binding)
            .await?;
        agent.acts_on_its_cluster_as(&user)?;
        agent.run().await?;
        Ok(Self { agent, role: user })
    }

    fn rules(of_maps: &[&str]) -> Value {
        let of_maps = [&["get", "create", "update", "patch", "delete"], of_maps].concat();
        json!([
            {"apiGroups": ["work.open-cluster-management.io"], "resources": ["*"], "verbs": ["*"]},
            {"apiGroups": ["apiextensions.k8s.io"], "resources": ["*"], "verbs": ["*"]},
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": of_maps}])
    }

    async fn change(&self, of_maps: &[&str]) -> Result<()> {
        let role = self.agent.object("clusterroles", &self.role);
        role.merge(json!({"rules": Self::rules(of_maps)})).await?;
        Ok(())
    }
}

async fn rights_to_watch_come_and_go(world: World) -> Result<()> {
    let rights = Rights::new(&world, &[]).await?;
    let agent = &rights.agent;
    let mut spec = map(agent, "cm1", "1");
    spec["manifestConfigs"][0]["updateStrategy"] = json!({"type": "CreateOnly"});
    agent.applied("work", spec).await?;
    let why = says(agent, "work", |message| !message.is_empty()).await?;
    ensure!(
        why.starts_with("polled instead of watched: configmaps")
            && why.contains("is forbidden: User")
            && why.contains("cannot list resource"),
        "{why}"
    );
    ensure!(agent.metric("muster_watches_refused", "").await? > 0.5);
    agent.says_ready(true).await?;

    rights.change(&["list", "watch"]).await?;
    says(agent, "work", str::is_empty).await?;
    agent.cm("cm1").merge(json!({"data": {"v": "2"}})).await?;
    reports(agent, "work", &[string("v", "2")]).await?;

    // Taken back, the open watch goes on: a server asks for rights when a watch begins. The next
    // one is refused, and told.
    rights.change(&[]).await?;
    eventually(LIMIT, "the right to be gone", || async {
        let path = format!("/api/v1/namespaces/{}/configmaps", agent.name());
        let answer = agent
            .spoke()
            .rest()
            .acting("Impersonate-User", &rights.role)
            .get(&path)
            .await?;
        ensure!(answer.code == 403, "{}", answer.code);
        Ok(())
    })
    .await?;
    agent.spoke_door().close();
    // Long enough for the connection to be noticed, which the next request of the agent would.
    agent.says_ready(false).await.context("not noticed")?;
    agent.spoke_door().reopen();
    let why = says(agent, "work", |message| !message.is_empty()).await?;
    ensure!(why.contains("is forbidden"), "{why}");
    // One line a denial, however often it is tried.
    let opened = agent.metric("muster_watches_opened_total", "").await?;
    eventually(LIMIT, "the watch to be tried again", || async {
        let more = agent.metric("muster_watches_opened_total", "").await? - opened;
        ensure!(more > 0.5, "{more} tries");
        Ok(())
    })
    .await?;
    let log = agent.log()?;
    let lines = log.matches("watch refused, polling instead").count();
    ensure!(lines <= 4, "{lines} lines: {log}");
    rights.change(&["list", "watch"]).await?;
    says(agent, "work", str::is_empty).await?;
    Ok(())
}
