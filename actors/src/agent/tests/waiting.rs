//! What a work costs while it waits: its tries come ever further apart, in the same process that saw
//! it well, and end early where something is heard.

use muster_api::constants::{WORK_APPLIED, WORK_DELETING};
use serde_json::json;

use super::tap::Fault;
use super::*;
const MINUTE: Duration = Duration::from_secs(60);

/// Polls would hide what waiting costs.
async fn world() -> World {
    World::with(|settings| settings.poll_interval = 60 * MINUTE).await
}

async fn hold(world: &World, name: &str) {
    let patch = json!({"metadata": {"finalizers": ["x.io/hold"]}});
    world.merge(cm(name), patch).await;
}

/// Passes and requests a minute, rounded up, in ten minutes that begin when the tries have had time
/// to slow down.
async fn per_minute(world: &World) -> (u64, usize) {
    tokio::time::sleep(5 * MINUTE).await;
    world.hub_tap.clear();
    world.spoke_tap.clear();
    let before = passes(world).await;
    tokio::time::sleep(10 * MINUTE).await;
    let requests = world.hub_tap.requests().len() + world.spoke_tap.requests().len();
    let passes = passes(world).await - before;
    (passes.div_ceil(10), requests.div_ceil(10))
}

/// Passes of the only work so far.
async fn passes(world: &World) -> u64 {
    let actors = world.deps.registry.report(Duration::from_secs(1)).await;
    let work = actors.iter().find(|actor| actor.role == "ManifestWork");
    work.and_then(|actor| actor.state["passes"].as_u64())
        .unwrap()
}

fn one() -> Value {
    workload([config_map("cm1", json!({}))])
}

#[actix::test]
async fn a_deletion_that_waits_slows_down_and_goes_on_when_it_may() {
    let world = world().await;
    world.create_work("w", one()).await;
    world.settled("w").await;
    hold(&world, "cm1").await;
    world.delete_work("w").await;
    let (passes, requests) = per_minute(&world).await;
    assert!(
        passes <= 2 && requests <= 6,
        "{passes} passes, {requests} requests a minute"
    );

    // Somebody takes the record away: that is an event, and nothing is left to wait for.
    world
        .merge(cm("cm1"), json!({"metadata": {"finalizers": null}}))
        .await;
    let record = World::record_name("w");
    let record = Target {
        version: "v1",
        namespace: "",
        ..target(
            "work.open-cluster-management.io",
            "appliedmanifestworks",
            &record,
        )
    };
    world
        .merge(record, json!({"metadata": {"finalizers": null}}))
        .await;
    world.work_gone_within(Duration::from_secs(1), "w").await;
    world.end().await;
}

#[actix::test]
async fn a_deletion_goes_on_when_a_watched_object_has_gone() {
    let world = world().await;
    let mut spec = one();
    spec["manifestConfigs"] = json!([{
        "resourceIdentifier": {"resource": "configmaps", "namespace": "ns1", "name": "cm1"},
        "feedbackScrapeType": "Watch",
    }]);
    world.create_work("w", spec).await;
    world.settled("w").await;
    hold(&world, "cm1").await;
    world.delete_work("w").await;
    let (passes, _) = per_minute(&world).await;
    assert!(passes <= 2, "{passes} passes a minute");
    world
        .merge(cm("cm1"), json!({"metadata": {"finalizers": null}}))
        .await;
    world.work_gone_within(Duration::from_secs(1), "w").await;
    world.end().await;
}

#[actix::test]
async fn what_left_the_spec_and_is_held_is_asked_for_ever_more_seldom() {
    let world = world().await;
    world.create_work("w", one()).await;
    world.settled("w").await;
    hold(&world, "cm1").await;
    world
        .edit_work("w", workload([config_map("cm2", json!({}))]))
        .await;
    let (passes, requests) = per_minute(&world).await;
    assert!(
        passes <= 2 && requests <= 10,
        "{passes} passes, {requests} requests a minute"
    );
    world.end().await;
}

#[actix::test]
async fn a_missing_type_is_asked_for_at_its_own_pace() {
    let world = world().await;
    let odd = json!({"apiVersion": "odd.example.io/v1", "kind": "Odd",
        "metadata": {"name": "o", "namespace": "ns1"}});
    world.create_work("w", workload([odd])).await;
    world
        .work("w", |work| current(work, WORK_APPLIED, "False"))
        .await;
    let (passes, requests) = per_minute(&world).await;
    assert!(
        passes <= 16 && requests <= 20,
        "{passes} passes, {requests} requests a minute"
    );
    world.end().await;
}

/// With an answer to all requests for ConfigMaps, or to writes only.
async fn refused(code: u16, reason: &'static str, only_writes: bool) {
    let world = world().await;
    world.spoke_tap.fail(move |method, path| {
        let meant = path.contains("configmaps") && (!only_writes || method != http::Method::GET);
        meant.then_some(Fault::Refused(code, reason, "no"))
    });
    world.create_work("w", one()).await;
    world
        .work("w", |work| current(work, WORK_APPLIED, "False"))
        .await;
    let (passes, requests) = per_minute(&world).await;
    assert!(
        passes <= 3 && requests <= 12,
        "{passes} passes, {requests} requests a minute"
    );
    world.end().await;
}

#[actix::test]
async fn a_type_that_is_forbidden_slows_down() {
    refused(403, "Forbidden", false).await;
}

#[actix::test]
async fn an_object_that_is_refused_slows_down() {
    refused(422, "Invalid", true).await;
}

#[actix::test]
async fn a_server_that_fails_slows_down() {
    refused(500, "InternalError", false).await;
}

/// The record that others have changed is news to each pass, as long as none can read it.
#[actix::test]
async fn a_record_that_others_changed_and_that_cannot_be_read_slows_down() {
    let world = world().await;
    world.create_work("w", one()).await;
    world.settled("w").await;
    world.spoke_tap.fail(|_, path| {
        let refused = Fault::Refused(403, "Forbidden", "no");
        path.contains("/appliedmanifestworks/").then_some(refused)
    });
    let name = World::record_name("w");
    let record = Target {
        version: "v1",
        namespace: "",
        ..target(
            "work.open-cluster-management.io",
            "appliedmanifestworks",
            &name,
        )
    };
    world
        .merge(record, json!({"metadata": {"labels": {"by": "others"}}}))
        .await;
    let (passes, requests) = per_minute(&world).await;
    assert!(
        passes <= 3 && requests <= 12,
        "{passes} passes, {requests} requests a minute"
    );
    world.end().await;
}

#[actix::test]
async fn a_cluster_that_is_away_is_asked_seldom() {
    let world = world().await;
    world.create_work("w", one()).await;
    world.settled("w").await;
    world.spoke_tap.fail(|_, _| Some(Fault::Broken));
    world
        .edit_work("w", workload([config_map("cm2", json!({}))]))
        .await;
    let (passes, requests) = per_minute(&world).await;
    assert!(
        passes <= 3 && requests <= 14,
        "{passes} passes, {requests} requests a minute"
    );
    world.end().await;
}

#[actix::test]
async fn a_hub_that_is_away_is_asked_seldom() {
    let world = world().await;
    world.create_work("w", one()).await;
    world.settled("w").await;
    // The change still comes, and its status cannot be written.
    world
        .hub_tap
        .fail(|method, _| (method == http::Method::PATCH).then_some(Fault::Broken));
    world
        .edit_work("w", workload([config_map("cm2", json!({}))]))
        .await;
    world.object(cm("cm2"), |object| object.is_some()).await;
    world.hub_tap.fail(|_, _| Some(Fault::Broken));
    let (passes, requests) = per_minute(&world).await;
    assert!(
        passes <= 3 && requests <= 14,
        "{passes} passes, {requests} requests a minute"
    );
    world.end().await;
}

#[actix::test]
async fn a_finalizer_that_the_hub_refuses_slows_down() {
    let world = world().await;
    world.hub_tap.fail(|method, _| {
        let refused = Fault::Refused(403, "Forbidden", "no");
        (method == http::Method::PATCH).then_some(refused)
    });
    world.create_work("w", one()).await;
    let (passes, requests) = per_minute(&world).await;
    assert!(
        passes <= 3 && requests <= 6,
        "{passes} passes, {requests} requests a minute"
    );
    assert!(
        world.get(cm("cm1")).await.is_none(),
        "nothing without the finalizer"
    );
    world.end().await;
}

#[actix::test]
async fn a_deletion_whose_status_or_finalizer_the_hub_refuses_slows_down() {
    let world = world().await;
    world.create_work("w", one()).await;
    world.settled("w").await;
    world.hub_tap.fail(|method, _| {
        let refused = Fault::Refused(403, "Forbidden", "no");
        (method == http::Method::PATCH).then_some(refused)
    });
    world.delete_work("w").await;
    let (passes, requests) = per_minute(&world).await;
    assert!(
        passes <= 3 && requests <= 9,
        "{passes} passes, {requests} requests a minute"
    );
    world.hub_tap.heal();
    world.work_gone_within(MINUTE, "w").await;
    let deleting = |work: &ManifestWork| current(work, WORK_DELETING, "True");
    let left = world.works().get_opt("w").await.unwrap();
    assert!(left.is_none_or(|work| !deleting(&work)));
    world.end().await;
}
