//! The actors themselves: start, stop, restart, settings.

use actix::{Handler, StreamHandler};
use muster_api::constants::WORK_APPLIED;
use muster_api::work::RawManifestWork;
use serde_json::{Value, json};

use super::super::ChangeSettings;
use super::super::Work;
use super::*;
use crate::supervision::{Snapshot, Stop};
use crate::watching::Seen;

async fn snapshot(world: &World) -> Value {
    world.agent.send(Snapshot).await.unwrap()
}

/// Makes an actor panic.
#[derive(Debug, actix::Message)]
#[rtype(result = "()")]
struct Panic;

/// Asks the agent for the actor of a work.
#[derive(Debug, actix::Message)]
#[rtype(result = "Option<Addr<super::super::ManifestWork>>")]
struct ActorOf(&'static str);

impl Handler<Panic> for super::super::ManifestWork {
    type Result = ();
    fn handle(&mut self, _: Panic, _: &mut Self::Context) {
        panic!("asked to");
    }
}

impl Handler<Panic> for ClusterAgent {
    type Result = ();
    fn handle(&mut self, _: Panic, _: &mut Self::Context) {
        panic!("asked to");
    }
}

impl Handler<ActorOf> for ClusterAgent {
    type Result = Option<Addr<super::super::ManifestWork>>;
    fn handle(&mut self, ActorOf(name): ActorOf, _: &mut Self::Context) -> Self::Result {
        self.child(&name.into())
    }
}

/// Steps of the watch, all in one breath.
#[derive(Debug, actix::Message)]
#[rtype(result = "()")]
struct Feed {
    steps: Vec<Seen<Work>>,
    then_panic: bool,
}

impl Feed {
    fn of(steps: Vec<Seen<Work>>) -> Self {
        let then_panic = false;
        Self { steps, then_panic }
    }
}

async fn observed(world: &World, name: &str) -> Work {
    let api: Api<RawManifestWork> = Api::namespaced(world.hub.clone(), CLUSTER);
    Work::from(api.get(name).await.unwrap())
}

impl Handler<Feed> for ClusterAgent {
    type Result = ();
    fn handle(&mut self, feed: Feed, ctx: &mut Self::Context) {
        for step in feed.steps {
            StreamHandler::handle(self, step, ctx);
        }
        assert!(!feed.then_panic, "asked to");
    }
}

#[actix::test]
async fn a_work_that_comes_back_while_its_actor_stops_gets_a_new_one() {
    let world = World::start().await;
    world
        .create_work("w", workload([config_map("cm1", json!({}))]))
        .await;
    world.settled("w").await;
    let work = observed(&world, "w").await;
    let old = world.agent.send(ActorOf("w")).await.unwrap().unwrap();
    let steps = vec![Seen::Gone(work.clone()), Seen::Changed(work)];
    world.agent.send(Feed::of(steps)).await.unwrap();
    eventually(|| snapshot(&world), |state| state["works"] == 1).await;
    let new = world.agent.send(ActorOf("w")).await.unwrap().unwrap();
    assert!(!old.connected() && new.connected());
    world.end().await;
}

#[actix::test]
async fn a_panic_of_one_works_actor_leaves_the_others_alone() {
    let world = World::start().await;
    for name in ["a", "b"] {
        world
            .create_work(name, workload([config_map(name, json!({"n": "1"}))]))
            .await;
        world.settled(name).await;
    }
    let a = world.agent.send(ActorOf("a")).await.unwrap().unwrap();
    assert!(a.send(Panic).await.is_err());
    for name in ["a", "b"] {
        world
            .edit_work(name, workload([config_map(name, json!({"n": "2"}))]))
            .await;
        world.settled(name).await;
        assert_eq!(world.get(cm(name)).await.unwrap()["data"]["n"], "2");
    }
    let report = world.deps.registry.report(Duration::from_secs(1)).await;
    let restarts: Vec<_> = report
        .iter()
        .filter(|actor| actor.role == "ManifestWork")
        .map(|actor| (actor.name.as_str(), actor.restarts))
        .collect();
    assert_eq!(restarts, [("cluster1/a", 1), ("cluster1/b", 0)]);
    world.end().await;
}

#[actix::test]
async fn a_panic_of_the_agent_keeps_the_actors_and_lists_anew() {
    let world = World::start().await;
    for name in ["a", "b"] {
        world
            .create_work(name, workload([config_map(name, json!({}))]))
            .await;
        world.settled(name).await;
    }
    let before = world.agent.send(ActorOf("a")).await.unwrap().unwrap();
    assert!(world.agent.send(Panic).await.is_err());
    // Gone while nobody watches.
    world
        .patch_work("b", json!({"metadata": {"finalizers": null}}))
        .await;
    world.delete_work("b").await;
    eventually(
        || snapshot(&world),
        |state| state["synced"] == true && state["works"] == 1,
    )
    .await;
    let after = world.agent.send(ActorOf("a")).await.unwrap().unwrap();
    assert!(before == after, "the same actor");
    world
        .edit_work("a", workload([config_map("a2", json!({}))]))
        .await;
    world.settled("a").await;
    world.end().await;
}

#[actix::test]
async fn one_actor_a_work_and_none_without() {
    let world = World::start().await;
    eventually(|| snapshot(&world), |state| state["synced"] == true).await;
    let always = ["ClusterAgent/cluster1", "WatchSupervisor/cluster1"];
    assert_eq!(world.deps.registry.leftovers(), always);
    for name in ["a", "b"] {
        world
            .create_work(name, workload([config_map(name, json!({}))]))
            .await;
        world.settled(name).await;
    }
    let names = world.deps.registry.leftovers();
    assert_eq!(
        names,
        [
            "ClusterAgent/cluster1",
            "WatchSupervisor/cluster1",
            "ManifestWork/cluster1/a",
            "ManifestWork/cluster1/b"
        ]
    );
    world.delete_work("a").await;
    world.work_gone("a").await;
    eventually(|| snapshot(&world), |state| state["works"] == 1).await;
    world.end().await;
}

#[actix::test]
async fn a_work_that_vanished_while_the_watch_was_down_loses_its_actor() {
    let world = World::start().await;
    world
        .create_work("w", workload([config_map("cm1", json!({}))]))
        .await;
    world.settled("w").await;
    // A restart of the agent's actor lists anew; the actors of works live on.
    assert!(stop(&world.agent, Duration::from_secs(10)).await);
    world
        .patch_work("w", json!({"metadata": {"finalizers": null}}))
        .await;
    world.delete_work("w").await;
    let agent = start(world.deps.clone());
    let world = World { agent, ..world };
    eventually(|| snapshot(&world), |state| state["synced"] == true).await;
    assert_eq!(snapshot(&world).await["works"], 0);
    assert!(world.get(cm("cm1")).await.is_some(), "left to eviction");
    world.end().await;
}

#[actix::test]
async fn new_settings_take_effect_at_once() {
    let world = World::with(|settings| settings.poll_interval = Duration::from_secs(3_600)).await;
    world
        .create_work("w", workload([config_map("cm1", json!({"a": "b"}))]))
        .await;
    world.settled("w").await;
    world
        .merge(cm("cm1"), json!({"data": {"a": "changed"}}))
        .await;
    let settings = AgentSettings {
        poll_interval: Duration::from_secs(1),
        ..world.deps.settings.clone()
    };
    world.agent.send(ChangeSettings(settings)).await.unwrap();
    let begin = tokio::time::Instant::now();
    world
        .object(cm("cm1"), |object| object.unwrap()["data"]["a"] == "b")
        .await;
    assert!(
        begin.elapsed() < Duration::from_secs(2),
        "{:?}",
        begin.elapsed()
    );
    world.end().await;
}

#[actix::test]
async fn changes_during_a_pass_lead_to_one_more() {
    let world = World::with(|settings| settings.poll_interval = Duration::from_secs(3_600)).await;
    world
        .create_work("w", workload([config_map("cm1", json!({"n": "0"}))]))
        .await;
    world.settled("w").await;
    // The cluster is slow: the first pass hangs until its limit while the spec changes.
    let mut hung = false;
    world.spoke_tap.fail(move |_, path| {
        let hang = path.contains("configmaps") && !std::mem::replace(&mut hung, true);
        hang.then_some(tap::Fault::Silent)
    });
    world.spoke_tap.clear();
    for n in 1..=10 {
        let n = n.to_string();
        world
            .edit_work("w", workload([config_map("cm1", json!({ "n": n }))]))
            .await;
    }
    world
        .work_within(Duration::from_secs(60), "w", |work| {
            current(work, WORK_APPLIED, "True")
        })
        .await;
    assert_eq!(world.get(cm("cm1")).await.unwrap()["data"]["n"], "10");
    let puts = world
        .spoke_tap
        .writes()
        .into_iter()
        .filter(|(method, _)| method == "PUT");
    assert_eq!(puts.count(), 1);
    world.end().await;
}

#[actix::test]
async fn a_stop_does_not_wait_for_a_silent_cluster() {
    let world = World::start().await;
    world.spoke_tap.fail(|_, _| Some(tap::Fault::Silent));
    world
        .create_work("w", workload([config_map("cm1", json!({}))]))
        .await;
    eventually(|| snapshot(&world), |state| state["works"] == 1).await;
    let begin = tokio::time::Instant::now();
    world.end().await;
    assert!(
        begin.elapsed() < Duration::from_secs(1),
        "{:?}",
        begin.elapsed()
    );
}

#[actix::test]
async fn a_panicking_pass_leaves_other_works_alone_and_is_tried_again() {
    let world = World::start().await;
    let mut panics = 2;
    world.spoke_tap.fail(move |_, path| {
        if path.ends_with("-bad") && panics > 0 {
            panics -= 1;
            panic!("asked to");
        }
        None
    });
    world
        .create_work("bad", workload([config_map("cm1", json!({}))]))
        .await;
    world
        .create_work("good", workload([config_map("cm2", json!({}))]))
        .await;
    world.settled("good").await;
    world.settled("bad").await;
    world.end().await;
}

#[actix::test]
async fn a_panic_while_a_work_stops_does_not_strand_it() {
    let world = World::start().await;
    world
        .create_work("w", workload([config_map("cm1", json!({}))]))
        .await;
    world.settled("w").await;
    let old = world.agent.send(ActorOf("w")).await.unwrap().unwrap();
    let gone_then_panic = Feed {
        steps: vec![Seen::Gone(observed(&world, "w").await)],
        then_panic: true,
    };
    assert!(world.agent.send(gone_then_panic).await.is_err());
    // The list finds the work, which needs a new actor.
    eventually(|| snapshot(&world), |state| state["works"] == 1).await;
    let new = world.agent.send(ActorOf("w")).await.unwrap().unwrap();
    assert!(new != old, "not the one that was stopping");
    let names = [
        "ClusterAgent/cluster1",
        "WatchSupervisor/cluster1",
        "ManifestWork/cluster1/w",
    ];
    let leftovers = || async { world.deps.registry.leftovers() };
    eventually(leftovers, |leftovers| *leftovers == names).await;
    world.end().await;
}

#[actix::test]
async fn a_work_that_is_seen_while_the_agent_stops_gets_no_actor() {
    let world = World::start().await;
    world
        .create_work("w", workload([config_map("cm1", json!({}))]))
        .await;
    world.settled("w").await;
    let mut late = observed(&world, "w").await;
    late.name = "late".into();
    // What a watch had ready when it was cancelled comes after the order to stop.
    let seen = Feed::of(vec![Seen::Changed(late)]);
    let (stopped, _) = tokio::join!(world.agent.send(Stop), world.agent.send(seen));
    assert!(stopped.is_ok());
    assert_eq!(world.deps.registry.ended(POLL).await, Ok(()));
    world.end().await;
}

#[actix::test]
async fn of_more_states_than_a_mailbox_holds_the_newest_arrives() {
    let world = World::start().await;
    world
        .create_work("w", workload([config_map("cm1", json!({}))]))
        .await;
    world.settled("w").await;
    let work = observed(&world, "w").await;
    // The hub does not know these states, so it must not hear of them and answer.
    world.hub_tap.fail(|method, _| {
        let refused = tap::Fault::Refused(403, "Forbidden", "not now");
        (method == "PATCH").then_some(refused)
    });
    let state = |n: i64| {
        let mut state = work.clone();
        state.generation += n;
        state.resource_version = (1_000_000 + n).to_string().into();
        Seen::Changed(state)
    };
    let steps = (1..=200).map(state).collect();
    world.agent.send(Feed::of(steps)).await.unwrap();
    let actor = world.agent.send(ActorOf("w")).await.unwrap().unwrap();
    let generation = || async { actor.send(Snapshot).await.unwrap()["generation"].clone() };
    let newest = json!(work.generation + 200);
    eventually(generation, |generation| *generation == newest).await;
    world.end().await;
}
