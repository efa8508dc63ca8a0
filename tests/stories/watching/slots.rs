//! How many watches there are, counted by the real server itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, ensure};
use serde_json::json;
use tokio_util::task::AbortOnDropHandle;

use super::{NO_POLL, map, reports, says, spec, watched};
use crate::support::agent::Agent;
use crate::support::live::LIMIT;
use crate::support::works::{integer, string};
use crate::support::{OwnCluster, Story, World, eventually};

pub(super) fn stories() -> Vec<Story> {
    on_each_backend![
        c048_what_does_not_fit_is_polled_until_a_slot_is_free,
        c048_what_waits_for_a_slot_is_up_to_date_at_each_poll,
        c049_two_works_share_a_watch_that_ends_with_the_second,
        c050_a_watch_ends_with_its_reason,
        a_thousand_objects_take_one_watch,
        a_new_cap_takes_effect_while_the_agent_runs,
        another_plan_replaces_every_watch_and_loses_nothing,
    ]
}

/// The types that these stories watch. The server itself watches each, too: what counts is the
/// difference.
const TYPES: [&str; 4] = ["configmaps", "limitranges", "services", "cronjobs"];

/// A cluster of the story's own, whose open watches can be counted.
struct Counted {
    cluster: Arc<OwnCluster>,
    before: u64,
}

impl Counted {
    async fn new(world: &World) -> Result<Self> {
        let cluster = Arc::new(world.own_cluster().await?);
        Ok(Self {
            before: open(&cluster).await?,
            cluster,
        })
    }

    async fn agent(&self, world: &World, flags: &[&str]) -> Result<Agent> {
        let (hub, spoke) = (world.hub().await?, self.cluster.cluster().clone());
        let mut agent = Agent::between(world, hub, spoke, flags).await?;
        agent.run().await?;
        Ok(agent)
    }

    /// Waits until just so many are open. The embedded server does not count them: there what the
    /// agent says of itself has to do.
    async fn are(&self, agent: &Agent, wanted: u64) -> Result<()> {
        eventually(LIMIT, &format!("{wanted} watches to be open"), || async {
            let told = agent.metric("muster_watches_open", "").await?;
            ensure!(
                (told - f64::from(u32::try_from(wanted)?)).abs() < 0.5,
                "{told} told"
            );
            if self.is_real() {
                let seen = open(&self.cluster).await? - self.before;
                ensure!(seen == wanted, "{seen} seen by the server");
            }
            Ok(())
        })
        .await
    }

    fn is_real(&self) -> bool {
        matches!(*self.cluster, OwnCluster::Real(_))
    }

    /// Counts all the time.
    fn most(&self) -> Most {
        let most = Arc::new(AtomicU64::new(0));
        let (cluster, before, seen) = (Arc::clone(&self.cluster), self.before, Arc::clone(&most));
        let task = async move {
            loop {
                if let Ok(now) = open(&cluster).await {
                    seen.fetch_max(now.saturating_sub(before), Ordering::Relaxed);
                }
                tokio::task::yield_now().await;
            }
        };
        Most {
            most,
            _task: AbortOnDropHandle::new(tokio::spawn(task)),
        }
    }
}

struct Most {
    most: Arc<AtomicU64>,
    _task: AbortOnDropHandle<()>,
}

impl Most {
    fn seen(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }
}

async fn open(cluster: &OwnCluster) -> Result<u64> {
    let OwnCluster::Real(server) = cluster else {
        return Ok(0);
    };
    server.open_watches_of_all(&TYPES).await
}

fn limits(agent: &Agent, name: &str) -> serde_json::Value {
    let object = json!({"apiVersion": "v1", "kind": "LimitRange",
        "metadata": {"namespace": agent.name(), "name": name},
        "spec": {"limits": [{"type": "Pod", "max": {"cpu": "1"}}]}});
    let read = [
        ("kind", ".spec.limits[0].type"),
        ("zone", ".metadata.labels.zone"),
    ];
    spec([object], [watched(agent, "", "limitranges", name, &read)])
}

fn service(agent: &Agent, name: &str) -> serde_json::Value {
    let object = json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"namespace": agent.name(), "name": name},
        "spec": {"ports": [{"port": 80}]}});
    let read = [("zone", ".metadata.labels.zone")];
    spec([object], [watched(agent, "", "services", name, &read)])
}

async fn c048_what_does_not_fit_is_polled_until_a_slot_is_free(world: World) -> Result<()> {
    let counted = Counted::new(&world).await?;
    let agent = counted
        .agent(&world, &[NO_POLL, "--max-feedback-watch=2"])
        .await?;
    let most = counted.most();
    agent.applied("first", map(&agent, "cm1", "1")).await?;
    counted.are(&agent, 1).await?;
    agent.applied("second", limits(&agent, "lr1")).await?;
    counted.are(&agent, 2).await?;
    agent.applied("third", service(&agent, "svc1")).await?;
    let why = says(&agent, "third", |message| !message.is_empty()).await?;
    ensure!(
        why == "polled instead of watched: all 2 watches of the agent (watch.max_watches) serve \
                other objects",
        "{why}"
    );
    ensure!(agent.metric("muster_watches_waiting", "").await? > 0.5);
    // The two go on.
    let zone = json!({"metadata": {"labels": {"zone": "z1"}}});
    agent
        .object("limitranges", "lr1")
        .merge(zone.clone())
        .await?;
    reports(
        &agent,
        "second",
        &[string("kind", "Pod"), string("zone", "z1")],
    )
    .await?;

    agent.work("first").delete().await?;
    agent.work("first").disappears().await?;
    says(&agent, "third", str::is_empty).await?;
    agent.object("services", "svc1").merge(zone).await?;
    reports(&agent, "third", &[string("zone", "z1")]).await?;
    counted.are(&agent, 2).await?;
    ensure!(most.seen() <= 2, "{} watches at a time", most.seen());
    Ok(())
}

async fn c048_what_waits_for_a_slot_is_up_to_date_at_each_poll(world: World) -> Result<()> {
    let counted = Counted::new(&world).await?;
    let flags = ["--status-sync-interval=1s", "--max-feedback-watch=1"];
    let agent = counted.agent(&world, &flags).await?;
    let most = counted.most();
    agent.applied("watched", limits(&agent, "lr1")).await?;
    counted.are(&agent, 1).await?;
    agent.applied("waits", service(&agent, "svc1")).await?;
    says(&agent, "waits", |message| !message.is_empty()).await?;
    for zone in ["z1", "z2"] {
        let labels = json!({"metadata": {"labels": {"zone": zone}}});
        agent.object("services", "svc1").merge(labels).await?;
        reports(&agent, "waits", &[string("zone", zone)]).await?;
    }
    // However many polls there are, they take the slot from nobody.
    agent.looks_again("waits", 2).await?;
    says(&agent, "waits", |message| message.contains("all 1 watches")).await?;
    counted.are(&agent, 1).await?;
    ensure!(most.seen() <= 1, "{} watches at a time", most.seen());
    Ok(())
}

async fn c049_two_works_share_a_watch_that_ends_with_the_second(world: World) -> Result<()> {
    let counted = Counted::new(&world).await?;
    let agent = counted.agent(&world, &[NO_POLL]).await?;
    for work in ["a", "b"] {
        agent.applied(work, map(&agent, work, "1")).await?;
    }
    counted.are(&agent, 1).await?;
    agent.work("a").delete().await?;
    agent.work("a").disappears().await?;
    agent.edit("b", map(&agent, "b", "2")).await?;
    reports(&agent, "b", &[string("v", "2")]).await?;
    counted.are(&agent, 1).await?;
    agent.cm("b").merge(json!({"data": {"v": "3"}})).await?;
    agent.cm("b").has_data(json!({"v": "2"})).await?;
    agent.work("b").delete().await?;
    agent.work("b").disappears().await?;
    counted.are(&agent, 0).await
}

async fn c050_a_watch_ends_with_its_reason(world: World) -> Result<()> {
    let counted = Counted::new(&world).await?;
    let agent = counted
        .agent(&world, &["--status-sync-interval=1s"])
        .await?;
    agent.applied("work", map(&agent, "cm1", "1")).await?;
    counted.are(&agent, 1).await?;
    // a) values go on by poll
    let mut polled = map(&agent, "cm1", "1");
    polled["manifestConfigs"][0]["feedbackScrapeType"] = "Poll".into();
    polled["manifestConfigs"][0]["updateStrategy"] = json!({"type": "CreateOnly"});
    agent.edit("work", polled.clone()).await?;
    counted.are(&agent, 0).await?;
    agent.cm("cm1").merge(json!({"data": {"v": "2"}})).await?;
    reports(&agent, "work", &[string("v", "2")]).await?;
    // in the spelling of the first design, too
    let mut spelled = polled;
    spelled["manifestConfigs"][0]["feedbackScrapeType"] = "WATCH".into();
    agent.edit("work", spelled).await?;
    counted.are(&agent, 1).await?;
    // b) the manifest leaves
    let mut other = map(&agent, "other", "1");
    other["manifestConfigs"] = json!([]);
    agent.edit("work", other).await?;
    counted.are(&agent, 0).await?;
    // c) the work goes
    agent.edit("work", map(&agent, "cm2", "1")).await?;
    counted.are(&agent, 1).await?;
    agent.work("work").delete().await?;
    agent.work("work").disappears().await?;
    counted.are(&agent, 0).await
}

async fn a_thousand_objects_take_one_watch(world: World) -> Result<()> {
    const WORKS: usize = 20;
    const OBJECTS: usize = 50;
    let counted = Counted::new(&world).await?;
    let flags = [
        NO_POLL,
        "--max-feedback-watch=1",
        "--kube-api-qps=-1",
        "--hub-kube-api-qps=-1",
    ];
    let agent = counted.agent(&world, &flags).await?;
    let most = counted.most();
    for work in 0..WORKS {
        let names: Vec<_> = (0..OBJECTS).map(|at| format!("cm-{work}-{at}")).collect();
        let objects: Vec<_> = names
            .iter()
            .map(|name| agent.config_map(name, json!({"v": "0"})))
            .collect();
        let all = format!("cm-{work}-*");
        let mut config = watched(&agent, "", "configmaps", &all, &[("v", ".data.v")]);
        config["updateStrategy"] = json!({"type": "CreateOnly"});
        agent
            .create(&format!("work-{work}"), spec(objects, [config]))
            .await?;
    }
    for work in 0..WORKS {
        agent.settled(&format!("work-{work}")).await?;
    }
    counted.are(&agent, 1).await?;
    for (work, at) in [(0, 0), (7, 49), (19, 25)] {
        agent
            .cm(&format!("cm-{work}-{at}"))
            .merge(json!({"data": {"v": "1"}}))
            .await?;
        let name = format!("work-{work}");
        agent
            .work(&name)
            .is("report the change", |work| {
                crate::support::works::values(work, at) == json!([string("v", "1")])
            })
            .await?;
    }
    ensure!(most.seen() <= 1, "{} watches at a time", most.seen());
    let missed = agent.metric("muster_watch_missed_total", "").await?;
    ensure!(missed < 0.5, "{missed} changes missed");
    Ok(())
}

async fn a_new_cap_takes_effect_while_the_agent_runs(world: World) -> Result<()> {
    let counted = Counted::new(&world).await?;
    let hub = world.hub().await?;
    let spoke = counted.cluster.cluster().clone();
    let mut agent = Agent::between(&world, hub, spoke, &[NO_POLL]).await?;
    agent.set("[watch]\nmax_watches = 2\n");
    agent.run().await?;
    let most = counted.most();
    agent.applied("first", map(&agent, "cm1", "1")).await?;
    let ready = [("ready", ".status.readyReplicas")];
    let config = watched(&agent, "apps", "deployments", "web", &ready);
    agent
        .applied("second", spec([agent.deployment("web", 3)], [config]))
        .await?;
    says(&agent, "second", str::is_empty).await?;
    let set = |count: i64| json!({"replicas": count, "readyReplicas": count});
    let live = agent.object("deployments", "web");
    live.set_status(set(1)).await?;
    reports(&agent, "second", &[integer("ready", 1)]).await?;

    // Lowered: what changed meanwhile is not lost.
    agent.change_settings("[watch]\nmax_watches = 1\n")?;
    live.set_status(set(2)).await?;
    says(&agent, "second", |message| {
        message.contains("all 1 watches")
    })
    .await?;
    reports(&agent, "second", &[integer("ready", 2)]).await?;
    // None at all, then room for all.
    agent.change_settings("[watch]\nmax_watches = 0\n")?;
    says(&agent, "first", |message| message.contains("all 0 watches")).await?;
    counted.are(&agent, 0).await?;
    live.set_status(set(3)).await?;
    agent.change_settings("[watch]\nmax_watches = 9\n")?;
    for work in ["first", "second"] {
        says(&agent, work, str::is_empty).await?;
    }
    reports(&agent, "second", &[integer("ready", 3)]).await?;
    live.set_status(set(4)).await?;
    reports(&agent, "second", &[integer("ready", 4)]).await?;
    ensure!(most.seen() <= 2, "{} watches at a time", most.seen());
    Ok(())
}

/// All watches begin anew while what they show changes.
async fn another_plan_replaces_every_watch_and_loses_nothing(world: World) -> Result<()> {
    let counted = Counted::new(&world).await?;
    let hub = world.hub().await?;
    let spoke = counted.cluster.cluster().clone();
    let mut agent = Agent::between(&world, hub, spoke, &[NO_POLL]).await?;
    let settings = |widen_after| format!("[watch]\nmax_watches = 4\nwiden_after = {widen_after}\n");
    agent.set(&settings(2));
    agent.run().await?;
    let most = counted.most();
    let mut changing = map(&agent, "cm1", "0");
    changing["manifestConfigs"][0]["updateStrategy"] = json!({"type": "CreateOnly"});
    for (work, spec) in [
        ("changing", changing),
        ("limits", limits(&agent, "lr1")),
        ("service", service(&agent, "svc1")),
    ] {
        agent.applied(work, spec).await?;
    }
    counted.are(&agent, 3).await?;
    let opened = agent.metric("muster_watches_opened_total", "").await?;

    agent.change_settings(&settings(5))?;
    let mut round = 0_u32;
    eventually(LIMIT, "every watch to be replaced", || {
        round += 1;
        let (agent, value) = (&agent, json!({"data": {"v": round.to_string()}}));
        async move {
            agent.cm("cm1").merge(value).await?;
            let more = agent.metric("muster_watches_opened_total", "").await? - opened;
            ensure!(more > 2.5, "{more} watches opened");
            Ok(())
        }
    })
    .await?;
    reports(&agent, "changing", &[string("v", &round.to_string())]).await?;
    // The old requests are closed, also where the server looks.
    counted.are(&agent, 3).await?;
    ensure!(most.seen() <= 4, "{} watches at a time", most.seen());
    ensure!(agent.metric("muster_watch_restarts_total", "").await? > 0.5);
    agent
        .cm("cm1")
        .merge(json!({"data": {"v": "last"}}))
        .await?;
    reports(&agent, "changing", &[string("v", "last")]).await?;
    let zone = json!({"metadata": {"labels": {"zone": "z1"}}});
    agent.object("services", "svc1").merge(zone).await?;
    reports(&agent, "service", &[string("zone", "z1")]).await?;
    let missed = agent.metric("muster_watch_missed_total", "").await?;
    ensure!(missed < 0.5, "{missed} changes missed");
    Ok(())
}
