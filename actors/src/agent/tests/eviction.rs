//! Records that no work on the hub stands for.

use jiff::{SignedDuration, Timestamp};
use muster_api::work::AppliedManifestWorkSpec;

use super::tap::Fault;
use super::*;

const GRACE: Duration = Duration::from_secs(600);

fn record_target(name: &str) -> Target<'_> {
    Target {
        group: "work.open-cluster-management.io",
        version: "v1",
        resource: "appliedmanifestworks",
        namespace: "",
        name,
    }
}

fn record_of(hub_id: &str, agent_id: &str, work: &str) -> AppliedManifestWork {
    let hash = hub_hash(hub_id);
    let name = applied_work_name(&hash, work);
    let spec = AppliedManifestWorkSpec {
        hub_hash: hash,
        agent_id: agent_id.to_owned(),
        manifest_work_name: work.to_owned(),
    };
    let mut record = AppliedManifestWork::new(&name, spec);
    record.metadata.finalizers = Some(vec![
        muster_api::constants::APPLIED_MANIFEST_WORK_FINALIZER.to_owned(),
    ]);
    record
}

fn name(record: &AppliedManifestWork) -> &str {
    record.metadata.name.as_deref().unwrap()
}

fn start_of(record: Option<&Value>) -> Option<&str> {
    record?["status"]["evictionStartTime"].as_str()
}

/// Makes a record with one object that it owns.
async fn leave_behind(world: &World, record: &AppliedManifestWork, object: &str) {
    let created: AppliedManifestWork = world
        .spoke
        .create(record_target(name(record)), record)
        .await
        .unwrap();
    let mut config_map = config_map(object, json!({}));
    config_map["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "work.open-cluster-management.io/v1", "kind": "AppliedManifestWork",
        "name": name(&created), "uid": created.metadata.uid,
    }]);
    let object: Value = if world.get(cm(object)).await.is_some() {
        let owners = json!({"metadata": {
            "ownerReferences": config_map["metadata"]["ownerReferences"],
        }});
        world.merge(cm(object), owners).await
    } else {
        world.spoke.create(cm(object), &config_map).await.unwrap()
    };
    let resources = json!([{
        "version": "v1", "resource": "configmaps", "namespace": "ns1",
        "name": object["metadata"]["name"], "uid": object["metadata"]["uid"],
    }]);
    let status = json!({"appliedResources": resources});
    world.set_status(record_target(name(record)), status).await;
}

/// Moves the start of an eviction into the past.
async fn age(world: &World, record: &AppliedManifestWork, by: Duration) {
    let start = Timestamp::now() - SignedDuration::try_from(by).unwrap();
    let status = json!({"evictionStartTime": start.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()});
    world.set_status(record_target(name(record)), status).await;
}

async fn world() -> World {
    World::with(|settings| settings.eviction_grace = GRACE).await
}

#[actix::test]
async fn a_record_without_a_work_goes_after_the_grace_period() {
    let world = world().await;
    let record = record_of(HUB_ID, &hub_hash(HUB_ID), "fakework");
    leave_behind(&world, &record, "cm1").await;
    let target = record_target(name(&record));
    world
        .object(target, |record| start_of(record).is_some())
        .await;
    assert!(world.get(cm("cm1")).await.is_some());
    // Others that change the record do not put the end off, nor bring it on.
    world
        .merge(target, json!({"metadata": {"labels": {"a": "b"}}}))
        .await;
    age(&world, &record, GRACE / 2).await;
    world.polls(1).await;
    assert!(world.get(target).await.is_some());
    age(&world, &record, GRACE + Duration::from_secs(2)).await;
    world.object(target, |record| record.is_none()).await;
    assert!(world.get(cm("cm1")).await.is_none());
    world.end().await;
}

/// An agent that hears nothing of works does not take them for gone, however long that lasts; nor at
/// once when it hears again: what its sources have is still to come.
#[actix::test]
async fn without_a_source_nothing_is_evicted() {
    let (link, state) = watch::channel(ConnectionState::Connecting);
    let (source, heard) = watch::channel(None);
    let hub_link = HubLink { state, heard };
    let world = World::linked(|settings| settings.eviction_grace = GRACE, hub_link).await;
    let record = record_of(HUB_ID, &hub_hash(HUB_ID), "fakework");
    leave_behind(&world, &record, "cm1").await;
    let target = record_target(name(&record));
    age(&world, &record, GRACE * 10).await;
    world.polls(2).await;
    assert!(world.get(target).await.is_some());
    let not_ready = world.deps.health.not_ready();
    assert_eq!(not_ready, ["cluster1 events: not synced yet"]);

    let lost = ConnectionState::Lost {
        reason: "connection refused".to_owned(),
        since: Timestamp::UNIX_EPOCH,
    };
    link.send_replace(lost.clone());
    world.polls(2).await;
    assert!(world.get(target).await.is_some());
    let not_ready = world.deps.health.not_ready();
    assert!(
        not_ready[0].contains("connection refused (lost at 1970"),
        "{not_ready:?}"
    );

    link.send_replace(ConnectionState::Subscribed);
    world.polls(2).await;
    assert!(world.get(target).await.is_some(), "there is no source");
    assert_eq!(world.deps.health.not_ready(), [""; 0]);
    source.send_replace(Some(Timestamp::now()));
    world.polls(2).await;
    assert!(world.get(target).await.is_some(), "its time begins now");
    // One that has been there for long has had the time to send it.
    source.send_replace(Some(Timestamp::UNIX_EPOCH));
    world.object(target, |record| record.is_none()).await;
    assert!(world.get(cm("cm1")).await.is_none());
    world.end().await;
}

#[actix::test]
async fn an_eviction_waits_for_objects_that_are_held() {
    let world = world().await;
    let record = record_of(HUB_ID, &hub_hash(HUB_ID), "fakework");
    leave_behind(&world, &record, "cm1").await;
    world
        .merge(
            cm("cm1"),
            json!({"metadata": {"finalizers": ["x.io/hold"]}}),
        )
        .await;
    let target = record_target(name(&record));
    world
        .object(target, |record| start_of(record).is_some())
        .await;
    age(&world, &record, GRACE * 2).await;
    world
        .object(target, |record| {
            record.is_some_and(|record| record["metadata"]["deletionTimestamp"].is_string())
        })
        .await;
    world.polls(2).await;
    assert!(world.get(target).await.is_some());
    world
        .merge(cm("cm1"), json!({"metadata": {"finalizers": null}}))
        .await;
    world
        .object_within(Duration::from_secs(120), target, |record| record.is_none())
        .await;
    world.end().await;
}

#[actix::test]
async fn a_work_that_is_back_in_time_keeps_its_record() {
    let world = world().await;
    let record = record_of(HUB_ID, &hub_hash(HUB_ID), "w");
    leave_behind(&world, &record, "cm1").await;
    let target = record_target(name(&record));
    let before = world
        .object(target, |record| start_of(record).is_some())
        .await;
    world
        .create_work("w", workload([config_map("cm1", json!({}))]))
        .await;
    world.settled("w").await;
    let after = world
        .object(target, |record| start_of(record).is_none())
        .await;
    let uid = |record: &Option<Value>| record.as_ref().unwrap()["metadata"]["uid"].clone();
    assert_eq!(uid(&before), uid(&after));
    world.polls(2).await;
    assert!(world.get(cm("cm1")).await.is_some());
    world.end().await;
}

#[actix::test]
async fn a_century_of_grace_evicts_nothing() {
    let world = World::with(|settings| settings.eviction_grace = AgentSettings::EVICTION_OFF).await;
    let record = record_of(HUB_ID, &hub_hash(HUB_ID), "fakework");
    leave_behind(&world, &record, "cm1").await;
    age(&world, &record, GRACE * 100).await;
    let target = record_target(name(&record));
    world
        .object(target, |record| start_of(record).is_none())
        .await;
    world.polls(2).await;
    assert!(world.get(target).await.is_some());
    world.end().await;
}

#[actix::test]
async fn the_record_of_another_hub_goes_and_its_objects_stay() {
    let world = world().await;
    // What this agent left when it had another hub: the identity is its own, the hash is not.
    let old = record_of("https://old-hub:6443", &hub_hash(HUB_ID), "w");
    leave_behind(&world, &old, "cm1").await;
    world
        .create_work("w", workload([config_map("cm1", json!({}))]))
        .await;
    world.settled("w").await;
    let owners = |object: &Value| {
        object["metadata"]["ownerReferences"]
            .as_array()
            .unwrap()
            .len()
    };
    let shared = world.get(cm("cm1")).await.unwrap();
    assert_eq!(owners(&shared), 2);
    age(&world, &old, GRACE * 2).await;
    world
        .object(record_target(name(&old)), |record| record.is_none())
        .await;
    let left = world.get(cm("cm1")).await.unwrap();
    assert_eq!(left["metadata"]["uid"], shared["metadata"]["uid"]);
    assert_eq!(owners(&left), 1);
    assert_eq!(
        left["metadata"]["ownerReferences"][0]["name"],
        World::record_name("w")
    );
    world.end().await;
}

#[actix::test]
async fn the_records_of_another_agent_are_left_alone() {
    let world = world().await;
    let record = record_of(HUB_ID, "another-agent", "fakework");
    leave_behind(&world, &record, "cm1").await;
    age(&world, &record, GRACE * 2).await;
    world.polls(2).await;
    assert!(world.get(record_target(name(&record))).await.is_some());
    world.end().await;
}

#[actix::test]
async fn a_record_that_somebody_deletes_is_made_anew_at_once() {
    let world = world().await;
    world
        .create_work("w", workload([config_map("cm1", json!({}))]))
        .await;
    world.settled("w").await;
    world.polls(1).await;
    let before = world.record("w").await.unwrap();
    let hands = &world.spoke;
    let uid = before.metadata.uid.as_deref().unwrap();
    hands
        .delete(record_target(name(&before)), uid)
        .await
        .unwrap();
    // Well within a poll.
    let wanted = |record: Option<&Value>| {
        record.is_some_and(|record| record["metadata"]["uid"].as_str() != Some(uid))
    };
    world
        .object_within(Duration::from_secs(2), record_target(name(&before)), wanted)
        .await;
    world.object(cm("cm1"), |object| object.is_some()).await;
    world.settled("w").await;
    world.end().await;
}

#[actix::test]
async fn an_idle_work_does_not_read_its_record() {
    let world = world().await;
    world
        .create_work("w", workload([config_map("cm1", json!({}))]))
        .await;
    world.settled("w").await;
    world.polls(2).await;
    world.spoke_tap.clear();
    world.polls(3).await;
    let reads = world.spoke_tap.reads();
    assert!(
        reads.keys().all(|path| path.ends_with("/configmaps/cm1")),
        "{reads:?}"
    );
    assert!(!reads.is_empty());
    assert_eq!(world.spoke_tap.writes(), []);
    world.end().await;
}

/// Waits until the eviction has begun, and lets its grace period be over for long.
async fn overdue(world: &World, record: &AppliedManifestWork) {
    let target = record_target(name(record));
    world
        .object(target, |record| start_of(record).is_some())
        .await;
    age(world, record, GRACE * 2).await;
    world.polls(5).await;
}

/// The agent has another hub, whose work has the same object and cannot write it for a while.
#[actix::test]
async fn a_record_stays_until_the_new_owner_is_on_its_objects() {
    let world = world().await;
    let old = record_of("https://other-hub:6443", &hub_hash(HUB_ID), "w");
    leave_behind(&world, &old, "cm1").await;
    let before = world.get(cm("cm1")).await.unwrap();
    world.spoke_tap.fail(|method, path| {
        let refused = Fault::Refused(500, "InternalError", "no");
        let writes = *method != http::Method::GET && path.contains("configmaps");
        writes.then_some(refused)
    });
    world
        .create_work("w", workload([config_map("cm1", json!({"a": "b"}))]))
        .await;
    overdue(&world, &old).await;
    assert!(world.get(record_target(name(&old))).await.is_some());
    let live = world.get(cm("cm1")).await.unwrap();
    assert_eq!(live["metadata"]["uid"], before["metadata"]["uid"]);

    world.spoke_tap.heal();
    world.settled("w").await;
    let gone = |object: Option<&Value>| object.is_none();
    world
        .object_within(Duration::from_secs(90), record_target(name(&old)), gone)
        .await;
    let live = world.get(cm("cm1")).await.unwrap();
    assert_eq!(live["metadata"]["uid"], before["metadata"]["uid"]);
    let owners = live["metadata"]["ownerReferences"].as_array().unwrap();
    assert_eq!(owners.len(), 1);
    assert_eq!(owners[0]["name"], World::record_name("w"));
    world.end().await;
}

/// Nor is anything evicted while a work is not known whole: the hub refuses its finalizer.
#[actix::test]
async fn a_record_stays_while_a_work_could_not_be_looked_at() {
    let world = world().await;
    let old = record_of("https://other-hub:6443", &hub_hash(HUB_ID), "w");
    leave_behind(&world, &old, "cm1").await;
    world.hub_tap.fail(|method, _| {
        let refused = Fault::Refused(500, "InternalError", "no");
        (*method == http::Method::PATCH).then_some(refused)
    });
    world
        .create_work("w", workload([config_map("other", json!({}))]))
        .await;
    overdue(&world, &old).await;
    assert!(world.get(cm("cm1")).await.is_some());
    world.hub_tap.heal();
    let gone = |object: Option<&Value>| object.is_none();
    world
        .object_within(Duration::from_secs(120), cm("cm1"), gone)
        .await;
    world.end().await;
}
