//! Many rules, many changes of them, and many threads.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use muster_core::rule_events::Room;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::cluster::{MAPS_OF_A, Ruled, Start, item};
use super::types::watchable;
use super::{Ear, World, eventually, show};

/// C128: 200 rules for all types there are, most of which go at once, while the API server takes a
/// second to tell what it serves: they are one update, nobody who writes a rule waits, and what is
/// watched in the end is what the rules that are left want.
#[actix::test]
async fn many_rules_that_change_together_are_one_update() {
    let ruled = Ruled::start_as(Start {
        max_watches: 100,
        ..Start::default()
    })
    .await;
    let own = ["watchrules", "customresourcedefinitions"];
    let paths = watchable(&ruled.server, true).await;
    let types: Vec<(&str, &str)> = paths
        .iter()
        .filter_map(|path| path.rsplit_once('/'))
        .filter(|(_, plural)| !own.contains(plural))
        .collect();
    let (updates, wait) = (ruled.updates().await, Duration::from_secs(1));
    ruled.gate.slow_down("/apis", wait);
    for n in 0..200 {
        let before = Instant::now();
        let (_, plural) = types[n % types.len()];
        ruled
            .put(&format!("r{n}"), "one", json!([item(&[plural])]))
            .await;
        assert!(before.elapsed() < Duration::from_millis(50), "r{n}");
        sleep(Duration::from_micros(500)).await;
    }
    for n in 10..200 {
        ruled.remove(&format!("r{n}")).await;
    }
    sleep(Duration::from_secs(5)).await;
    let left = (0..10).map(|n| types[n % types.len()]);
    let left: BTreeSet<String> = left
        .map(|(root, plural)| format!("{root}/namespaces/a/{plural}"))
        .collect();
    let left: Vec<&str> = left.iter().map(String::as_str).collect();
    ruled.open(&left).await;
    assert_eq!(ruled.updates().await - updates, 1);
    ruled.end().await;
}

/// What is there besides counters of what has been: actors with what they show of themselves, and the
/// watches that are open.
async fn held(ruled: &Ruled) -> (BTreeSet<String>, Vec<Value>) {
    let actors = ruled.registry.report(Duration::from_secs(1)).await;
    let states = actors.into_iter().map(|actor| {
        let mut state = actor.state;
        for counter in ["revision", "updates", "delivered", "changes", "restarts"] {
            if let Some(fields) = state.as_object_mut() {
                fields.remove(counter);
            }
        }
        json!([actor.role, actor.name, state])
    });
    let mut states: Vec<Value> = states.collect();
    states.sort_by_key(Value::to_string);
    (ruled.gate.open(), states)
}

/// K8: rules that come and go 200 times leave nothing behind, not even how many events they had.
#[actix::test]
async fn rules_that_come_and_go_leave_nothing_behind() {
    let ruled = Ruled::start().await;
    ruled.write("a", "x", "1", json!({})).await;
    let before = held(&ruled).await;
    for round in 0..200 {
        let name = format!("r{}", round % 100);
        ruled
            .put(&name, "one", json!([item(&["configmaps"])]))
            .await;
        sleep(Duration::from_millis(2_500)).await;
        if round % 50 == 0 {
            ruled.open(&[MAPS_OF_A]).await;
        }
        ruled.remove(&name).await;
        sleep(Duration::from_millis(2_500)).await;
    }
    assert_eq!(ruled.ears["one"].told(), vec!["CREATE x"; 200]);
    assert_eq!(held(&ruled).await, before);
    // A rule of an old name is a new one.
    ruled.put("r0", "one", json!([item(&["configmaps"])])).await;
    let events = async || {
        let rules: kube::Api<muster_api::rules::WatchRule> =
            kube::Api::namespaced(ruled.server.client(), "a");
        rules
            .get("r0")
            .await
            .unwrap()
            .status
            .unwrap_or_default()
            .events
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    while events().await == 0 {
        assert!(Instant::now() < deadline);
        sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(events().await, 1);
    ruled.end().await;
}

/// S88: watches tell a sink from as many threads as they like: it is told all, and of each object in
/// order.
#[actix::test]
async fn what_many_threads_tell_is_told_in_the_order_of_each_object() {
    const THREADS: usize = 10;
    // So much that no event takes the place of another.
    let room = Room {
        events: 4 * THREADS * 100,
        ..Room::default()
    };
    let world = World::start(room, Ear::new());
    let threads = (0..THREADS).map(|thread| {
        let outlet = Arc::clone(&world.outlet);
        tokio::task::spawn_blocking(move || {
            for (version, content) in (1..).zip(0..100) {
                show(&outlet, &format!("n{thread}"), version, content);
            }
        })
    });
    for ended in join_all(threads).await {
        ended.unwrap();
    }
    let told = || world.ear.heard.lock().unwrap().len();
    eventually(told, |told| *told == THREADS * 100).await;
    let heard = world.ear.heard.lock().unwrap().clone();
    for thread in 0..THREADS {
        let name = format!("n{thread}");
        let versions = heard.iter().filter(|event| *event.key.name == *name);
        assert!(versions.map(|event| event.version).eq(1..=100), "{name}");
    }
    world.end().await;
}
