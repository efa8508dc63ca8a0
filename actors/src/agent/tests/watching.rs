//! Objects that are watched. Polls are an hour apart: what is seen here, no poll has brought.

use muster_api::constants::{STATUS_FEEDBACK_SYNCED, WORK_AVAILABLE};
use muster_core::watch_plan::WatchLimits;
use serde_json::{Value, json};

use super::tap::Fault;
use super::*;

const NO_POLL: Duration = Duration::from_secs(3_600);

/// Long enough for all that a change leads to, far less than a poll.
const SOON: Duration = Duration::from_secs(5);

async fn world(adjust: impl FnOnce(&mut AgentSettings)) -> World {
    World::with(|settings| {
        settings.poll_interval = NO_POLL;
        adjust(settings);
    })
    .await
}

fn watch(group: &str, resource: &str, name: &str, rules: Value) -> Value {
    let mut config = json!({
        "resourceIdentifier": {
            "group": group, "resource": resource, "namespace": "ns1", "name": name,
        },
        "feedbackScrapeType": "Watch",
    });
    config["feedbackRules"] = rules;
    config
}

fn data(name: &str) -> Value {
    json!([{"type": "JSONPaths", "jsonPaths": [{"name": name, "path": format!(".data.{name}")}]}])
}

fn spec(manifests: impl Into<Vec<Value>>, configs: impl Into<Vec<Value>>) -> Value {
    let mut spec = workload(manifests);
    spec["manifestConfigs"] = configs.into().into();
    spec
}

/// A Deployment that is watched for its replicas.
fn deployed(name: &str) -> Value {
    let rules = json!([{"type": "WellKnownStatus"}]);
    spec(
        [deployment(name)],
        [watch("apps", "deployments", name, rules)],
    )
}

fn replicas(count: i64) -> Value {
    json!({
        "replicas": count, "readyReplicas": count, "availableReplicas": count,
        "updatedReplicas": count,
    })
}

fn ready(work: &ManifestWork) -> Option<i64> {
    let values = values(work, 0);
    let ready = values.iter().find(|(name, _)| *name == "ReadyReplicas");
    ready.and_then(|(_, value)| value.as_i64())
}

/// Waits until the first pass and the first list of the watches are through.
async fn at_rest(world: &World, work: &str) {
    world.settled(work).await;
    tokio::time::sleep(SOON).await;
    world.hub_tap.clear();
    world.spoke_tap.clear();
}

/// A world at rest with an object of others that is watched for its phase.
async fn with_a_chatty_object() -> World {
    let world = world(|_| {}).await;
    let object = config_map("chatty", json!({"phase": "a"}));
    let mut config = watch("", "configmaps", "chatty", data("phase"));
    config["updateStrategy"] = json!({"type": "ReadOnly"});
    let _: Value = world.spoke.create(cm("chatty"), &object).await.unwrap();
    world.create_work("w", spec([object], [config])).await;
    at_rest(&world, "w").await;
    world
}

#[actix::test]
async fn a_change_is_reported_at_once_and_without_a_look_at_the_cluster() {
    let world = world(|_| {}).await;
    world.create_work("w", deployed("web")).await;
    at_rest(&world, "w").await;
    for count in 1..4 {
        world.set_status(deploy("web"), replicas(count)).await;
        world
            .work_within(SOON, "w", |work| ready(work) == Some(count))
            .await;
    }
    assert_eq!(world.spoke_tap.requests(), []);
    assert_eq!(world.hub_tap.requests().len(), 3, "one patch a change");
    world.end().await;
}

/// C053.
#[actix::test]
async fn what_nobody_reports_writes_nothing_and_a_restless_value_writes_little() {
    let world = with_a_chatty_object().await;
    let status = |beat: i64| json!({"metadata": {"annotations": null}, "status": {"beat": beat}});
    for beat in 0..100 {
        world.merge(cm("chatty"), status(beat)).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(world.hub_tap.writes(), []);
    assert_eq!(world.spoke_tap.requests(), []);

    let began = tokio::time::Instant::now();
    for flip in 0..500 {
        let phase = if flip % 2 == 0 { "b" } else { "c" };
        world
            .merge(cm("chatty"), json!({"data": {"phase": phase}}))
            .await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    world
        .merge(cm("chatty"), json!({"data": {"phase": "last"}}))
        .await;
    let last = [("phase", json!("last"))];
    world
        .work_within(SOON, "w", |work| values(work, 0) == last)
        .await;
    // The clock also runs on while a server works, so the time that it took counts: two writes a second,
    // and what may come at once.
    let took = began.elapsed();
    let writes = world.hub_tap.writes().len();
    let most = took.as_millis() / 500 + 15;
    assert!(
        writes >= 10 && writes as u128 <= most,
        "{writes} in {took:?}"
    );
    world.end().await;
}

/// What a watch has shown is reported before the agent ends, though its turn had not come.
#[actix::test]
async fn the_last_value_is_told_before_the_end() {
    let world = with_a_chatty_object().await;
    // So many that the next report has to wait for half a second.
    for flip in 0..40 {
        let change = json!({"data": {"phase": format!("p{flip}")}});
        world.merge(cm("chatty"), change).await;
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    let hub = world.works();
    let before = values(&hub.get("w").await.unwrap(), 0)[0].1.clone();
    assert_ne!(before, json!("p39"), "it is told already");
    let begin = tokio::time::Instant::now();
    world.end().await;
    assert!(begin.elapsed() < Duration::from_millis(400));
    let after = hub.get("w").await.unwrap();
    assert_eq!(values(&after, 0), [("phase", json!("p39"))]);
}

/// A hub that takes nothing holds up the end for a moment only.
#[actix::test]
async fn the_end_does_not_wait_long_for_a_silent_hub() {
    let world = world(|_| {}).await;
    world.create_work("w", deployed("web")).await;
    at_rest(&world, "w").await;
    world
        .hub_tap
        .fail(|method, _| (method == "PATCH").then_some(Fault::Silent));
    world.set_status(deploy("web"), replicas(2)).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let begin = tokio::time::Instant::now();
    world.end().await;
    let took = begin.elapsed();
    assert!((1..4).contains(&took.as_secs()), "{took:?}");
}

/// C045: a deletion shows before it is repaired.
#[actix::test]
async fn a_deleted_object_is_told_and_made_anew_at_once() {
    let world = world(|_| {}).await;
    world.create_work("w", deployed("web")).await;
    at_rest(&world, "w").await;
    world.set_status(deploy("web"), replicas(2)).await;
    world
        .work_within(SOON, "w", |work| ready(work) == Some(2))
        .await;
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let heard = std::sync::Arc::clone(&seen);
    let works = world.works();
    let watching = tokio::spawn(async move {
        use futures::StreamExt;
        let config = kube::runtime::watcher::Config::default();
        let mut events = std::pin::pin!(kube::runtime::watcher(works, config));
        while let Some(Ok(event)) = events.next().await {
            if let kube::runtime::watcher::Event::Apply(work) = event {
                let available = manifests(&work, WORK_AVAILABLE).join("");
                heard.lock().unwrap().push((available, ready(&work)));
            }
        }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    let before = world.get(deploy("web")).await.unwrap();
    let uid = before["metadata"]["uid"].as_str().unwrap().to_owned();
    world.spoke.delete(deploy("web"), &uid).await.unwrap();
    let anew = |object: Option<&Value>| {
        object.is_some_and(|object| object["metadata"]["uid"] != before["metadata"]["uid"])
    };
    world.object_within(SOON, deploy("web"), anew).await;
    world
        .work_within(SOON, "w", |work| {
            current(work, WORK_AVAILABLE, "True") && ready(work).is_none()
        })
        .await;
    tokio::time::sleep(SOON).await;
    watching.abort();
    let seen = seen.lock().unwrap().clone();
    assert_eq!(seen.first(), Some(&("False".to_owned(), None)), "{seen:?}");
    let record = world.record("w").await.unwrap();
    let recorded = &record.status.unwrap().applied_resources[0].uid;
    assert_ne!(**recorded, uid, "the record follows");
    world.end().await;
}

#[actix::test]
async fn drift_is_repaired_at_once_and_a_fight_is_no_hot_loop() {
    let world = world(|_| {}).await;
    let object = config_map("cm1", json!({"a": "wanted"}));
    let config = watch("", "configmaps", "cm1", data("a"));
    world.create_work("w", spec([object], [config])).await;
    at_rest(&world, "w").await;
    let wanted = |object: Option<&Value>| object.is_some_and(|it| it["data"]["a"] == "wanted");
    world
        .merge(cm("cm1"), json!({"data": {"a": "other"}}))
        .await;
    world.object_within(SOON, cm("cm1"), wanted).await;

    world.spoke_tap.clear();
    for _ in 0..1_000 {
        world
            .merge(cm("cm1"), json!({"data": {"a": "other"}}))
            .await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let writes = world.spoke_tap.writes().len();
    assert!((5..=15).contains(&writes), "{writes} repairs in 20 s");
    world
        .object_within(Duration::from_secs(120), cm("cm1"), wanted)
        .await;
    world.end().await;
}

#[actix::test]
async fn an_object_that_comes_later_is_reported_when_it_comes() {
    let world = world(|_| {}).await;
    let object = config_map("late", json!({}));
    let mut config = watch("", "configmaps", "late", data("v"));
    config["updateStrategy"] = json!({"type": "ReadOnly"});
    world.create_work("w", spec([object], [config])).await;
    world
        .work("w", |work| manifests(work, WORK_AVAILABLE) == ["False"])
        .await;
    tokio::time::sleep(SOON).await;
    let object = config_map("late", json!({"v": "7"}));
    let _: Value = world.spoke.create(cm("late"), &object).await.unwrap();
    let seven = [("v", json!("7"))];
    world
        .work_within(SOON, "w", |work| {
            values(work, 0) == seven && manifests(work, WORK_AVAILABLE) == ["True"]
        })
        .await;
    world.end().await;
}

fn open(world: &World) -> usize {
    world.spoke_tap.watches("configmaps") + world.spoke_tap.watches("deployments")
}

/// C050.
#[actix::test]
async fn a_watch_ends_with_its_reason() {
    let world = world(|_| {}).await;
    let config = |scrape: &str| {
        let mut config = watch("", "configmaps", "cm1", data("a"));
        config["feedbackScrapeType"] = scrape.into();
        config
    };
    let object = || config_map("cm1", json!({"a": "1"}));
    world
        .create_work("w", spec([object()], [config("Watch")]))
        .await;
    eventually(|| async { open(&world) }, |open| *open == 1).await;
    world
        .edit_work("w", spec([object()], [config("Poll")]))
        .await;
    eventually(|| async { open(&world) }, |open| *open == 0).await;
    world
        .edit_work("w", spec([object()], [config("WATCH")]))
        .await;
    eventually(|| async { open(&world) }, |open| *open == 1).await;
    world
        .edit_work(
            "w",
            spec([config_map("other", json!({}))], [config("Watch")]),
        )
        .await;
    eventually(|| async { open(&world) }, |open| *open == 0).await;
    world
        .edit_work("w", spec([object()], [config("Watch")]))
        .await;
    eventually(|| async { open(&world) }, |open| *open == 1).await;
    world.delete_work("w").await;
    world.work_gone("w").await;
    eventually(|| async { open(&world) }, |open| *open == 0).await;
    world.end().await;
}

/// C048.
#[actix::test]
async fn what_does_not_fit_says_so_and_gets_a_slot_that_is_free() {
    let world = world(|settings| settings.watch.max_watches = 1).await;
    let watched = |name: &str| {
        let config = watch("", "configmaps", name, data("a"));
        spec([config_map(name, json!({"a": "1"}))], [config])
    };
    world.create_work("first", watched("cm1")).await;
    at_rest(&world, "first").await;
    world.create_work("second", deployed("web")).await;
    let why = "polled instead of watched: all 1 watches of the agent (watch.max_watches) serve \
               other objects";
    let told = |work: &ManifestWork| {
        manifests(work, STATUS_FEEDBACK_SYNCED) == ["True"]
            && message(work, 0, STATUS_FEEDBACK_SYNCED) == why
    };
    world.work("second", told).await;
    world.delete_work("first").await;
    world.work_gone("first").await;
    world
        .work("second", |work| {
            message(work, 0, STATUS_FEEDBACK_SYNCED).is_empty()
        })
        .await;
    world.set_status(deploy("web"), replicas(3)).await;
    world
        .work_within(SOON, "second", |work| ready(work) == Some(3))
        .await;

    // The cap is lowered while it runs: the value that the watch has not shown any more is polled.
    let limits = WatchLimits {
        max_watches: 0,
        ..WatchLimits::default()
    };
    let settings = AgentSettings {
        watch: limits,
        ..world.deps.settings.clone()
    };
    world
        .agent
        .send(crate::agent::ChangeSettings(settings))
        .await
        .unwrap();
    world.set_status(deploy("web"), replicas(4)).await;
    world
        .work_within(SOON, "second", |work| {
            ready(work) == Some(4)
                && message(work, 0, STATUS_FEEDBACK_SYNCED).contains("all 0 watches")
        })
        .await;
    assert_eq!(open(&world), 0);
    world.end().await;
}

#[actix::test]
async fn conditions_by_rules_follow_at_once() {
    let world = world(|_| {}).await;
    let mut config = watch("", "configmaps", "cm1", json!([]));
    config["conditionRules"] = json!([{
        "type": "CEL", "condition": "Ripe",
        "celExpressions": ["object.data.a == 'ripe'"],
    }]);
    config["updateStrategy"] = json!({"type": "CreateOnly"});
    let object = config_map("cm1", json!({"a": "green"}));
    world.create_work("w", spec([object], [config])).await;
    world
        .work("w", |work| manifests(work, "Ripe") == ["False"])
        .await;
    tokio::time::sleep(SOON).await;
    world.merge(cm("cm1"), json!({"data": {"a": "ripe"}})).await;
    world
        .work_within(SOON, "w", |work| manifests(work, "Ripe") == ["True"])
        .await;
    world.end().await;
}

#[actix::test]
async fn a_ready_work_gives_its_watch_back_if_it_is_told_to() {
    let world = world(|settings| {
        settings.stop_when_ready = true;
        settings.poll_interval = Duration::from_secs(60);
    })
    .await;
    let opens = || eventually(|| async { open(&world) }, |open| *open == 1);
    let ends = || {
        let ask = || async { open(&world) };
        eventually_within(Duration::from_secs(240), ask, |open| *open == 0)
    };
    world.create_work("w", deployed("web")).await;
    opens().await;
    ends().await;
    // A poll finds other values: they are of interest again, until they rest.
    world.set_status(deploy("web"), replicas(3)).await;
    world
        .work_within(Duration::from_secs(120), "w", |work| ready(work) == Some(3))
        .await;
    opens().await;
    ends().await;
    // So they are when the work changes.
    let mut spec = deployed("web");
    spec["workload"]["manifests"][0]["spec"]["replicas"] = 2.into();
    world.edit_work("w", spec).await;
    opens().await;
    ends().await;
    world.end().await;
}

/// C145: a connection that is dead without either end knowing.
#[actix::test]
async fn a_watch_that_shows_nothing_any_more_is_found_out_and_replaced() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let missed = || {
        let metrics = recorder.handle().render();
        let mut lines = metrics.lines();
        let line = lines.find_map(|line| line.strip_prefix("muster_watch_missed_total "));
        line.map(ToOwned::to_owned)
    };
    let world = world(|settings| settings.poll_interval = Duration::from_secs(60)).await;
    world.create_work("w", deployed("web")).await;
    at_rest(&world, "w").await;
    world.set_status(deploy("web"), replicas(1)).await;
    world
        .work_within(SOON, "w", |work| ready(work) == Some(1))
        .await;
    world.spoke_tap.mute_watches();
    world.set_status(deploy("web"), replicas(2)).await;
    // The poll has it in any case.
    world
        .work_within(Duration::from_secs(80), "w", |work| ready(work) == Some(2))
        .await;
    assert_eq!(missed(), None);
    // The one after it knows that the watch has not.
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(missed().as_deref(), Some("1"));
    world.set_status(deploy("web"), replicas(3)).await;
    world
        .work_within(SOON, "w", |work| ready(work) == Some(3))
        .await;
    world.end().await;
}

#[actix::test]
async fn a_report_that_fails_is_made_up_for() {
    let world = world(|_| {}).await;
    world.create_work("w", deployed("web")).await;
    at_rest(&world, "w").await;
    world
        .hub_tap
        .fail(|method, _| (method == http::Method::PATCH).then_some(super::tap::Fault::Broken));
    world.set_status(deploy("web"), replicas(3)).await;
    tokio::time::sleep(SOON).await;
    world.hub_tap.heal();
    world
        .work_within(Duration::from_secs(60), "w", |work| ready(work) == Some(3))
        .await;
    world.end().await;
}

/// The watch is told by the wide scope, the object by its name.
#[actix::test]
async fn many_objects_of_one_work_share_a_watch() {
    let world = world(|settings| settings.watch.max_watches = 1).await;
    let names: Vec<_> = (0..40).map(|at| format!("cm{at}")).collect();
    let objects: Vec<_> = names
        .iter()
        .map(|name| config_map(name, json!({"a": "0"})))
        .collect();
    let mut config = watch("", "configmaps", "*", data("a"));
    config["updateStrategy"] = json!({"type": "CreateOnly"});
    world.create_work("w", spec(objects, [config])).await;
    at_rest(&world, "w").await;
    assert_eq!(open(&world), 1);
    for name in &names {
        world.merge(cm(name), json!({"data": {"a": "1"}})).await;
    }
    let one = [("a", json!("1"))];
    world
        .work_within(SOON, "w", |work| (0..40).all(|at| values(work, at) == one))
        .await;
    let patches = world.hub_tap.writes().len();
    assert!(
        patches < 20,
        "{patches}: changes that come together are told together"
    );
    world.end().await;
}
