//! Watches through a `kube::Client` in process.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::needless_pass_by_value,
    reason = "helpers of tests fail by panicking and take what reads best"
)]

mod support;

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt};
use muster_apiserver::ApiServer;
use serde_json::json;
use std::pin::pin;
use support::{config_map, next, refused, server};

fn describe(event: &WatchEvent<ConfigMap>) -> String {
    match event {
        WatchEvent::Added(o) => format!("ADDED {}", o.name_any()),
        WatchEvent::Modified(o) => format!("MODIFIED {}", o.name_any()),
        WatchEvent::Deleted(o) => format!("DELETED {}", o.name_any()),
        WatchEvent::Bookmark(b) => format!("BOOKMARK {}", b.metadata.annotations.len()),
        WatchEvent::Error(s) => format!("ERROR {} {}", s.code, s.reason),
    }
}

async fn change(maps: &Api<ConfigMap>, name: &str, patch: serde_json::Value) -> ConfigMap {
    maps.patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap()
}

#[tokio::test]
async fn a_watch_sees_what_happens_after_its_revision() {
    let maps: Api<ConfigMap> = Api::namespaced(server().await.client(), "default");
    let a = maps
        .create(&PostParams::default(), &config_map("a", "1"))
        .await
        .unwrap();
    maps.create(&PostParams::default(), &config_map("b", "1"))
        .await
        .unwrap();
    let params = WatchParams::default();
    let mut events = pin!(
        maps.watch(&params, &a.resource_version().unwrap())
            .await
            .unwrap()
    );
    change(&maps, "a", json!({"data": {"k": "2"}})).await;
    maps.delete("b", &DeleteParams::default()).await.unwrap();
    for want in ["ADDED b", "MODIFIED a", "DELETED b"] {
        assert_eq!(describe(&next(&mut events).await.unwrap()), want);
    }
}

#[tokio::test]
async fn a_deletion_event_carries_the_revision_of_the_deletion() {
    let maps: Api<ConfigMap> = Api::namespaced(server().await.client(), "default");
    let a = maps
        .create(&PostParams::default(), &config_map("a", "1"))
        .await
        .unwrap();
    let rv = a.resource_version().unwrap();
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    let mut events = pin!(maps.watch(&WatchParams::default(), &rv).await.unwrap());
    let WatchEvent::Deleted(gone) = next(&mut events).await.unwrap() else {
        panic!("no deletion")
    };
    let (before, after): (u64, u64) = (
        rv.parse().unwrap(),
        gone.resource_version().unwrap().parse().unwrap(),
    );
    assert!(after > before);
}

#[tokio::test]
async fn revision_zero_starts_with_the_present_state() {
    let maps: Api<ConfigMap> = Api::namespaced(server().await.client(), "default");
    maps.create(&PostParams::default(), &config_map("a", "1"))
        .await
        .unwrap();
    let mut events = pin!(maps.watch(&WatchParams::default(), "0").await.unwrap());
    assert_eq!(describe(&next(&mut events).await.unwrap()), "ADDED a");
    maps.create(&PostParams::default(), &config_map("b", "1"))
        .await
        .unwrap();
    assert_eq!(describe(&next(&mut events).await.unwrap()), "ADDED b");
}

#[tokio::test]
async fn objects_enter_and_leave_a_selection() {
    let maps: Api<ConfigMap> = Api::namespaced(server().await.client(), "default");
    let created = maps
        .create(&PostParams::default(), &config_map("a", "1"))
        .await
        .unwrap();
    let params = WatchParams::default().labels("on=yes");
    let mut events = pin!(
        maps.watch(&params, &created.resource_version().unwrap())
            .await
            .unwrap()
    );
    change(&maps, "a", json!({"metadata": {"labels": {"on": "yes"}}})).await;
    change(&maps, "a", json!({"data": {"k": "2"}})).await;
    let left = change(&maps, "a", json!({"metadata": {"labels": {"on": "no"}}})).await;
    for want in ["ADDED a", "MODIFIED a"] {
        assert_eq!(describe(&next(&mut events).await.unwrap()), want);
    }
    let WatchEvent::Deleted(gone) = next(&mut events).await.unwrap() else {
        panic!("no deletion")
    };
    assert_eq!(gone.resource_version(), left.resource_version());
    assert_eq!(gone.labels()["on"], "yes");
}

#[tokio::test]
async fn a_single_object_is_watched_by_name() {
    let server = server().await;
    let maps: Api<ConfigMap> = Api::namespaced(server.client(), "default");
    let params = WatchParams::default().fields("metadata.name=b");
    let mut events = pin!(maps.watch(&params, "0").await.unwrap());
    maps.create(&PostParams::default(), &config_map("a", "1"))
        .await
        .unwrap();
    maps.create(&PostParams::default(), &config_map("b", "1"))
        .await
        .unwrap();
    assert_eq!(describe(&next(&mut events).await.unwrap()), "ADDED b");
    let stats = server.stats();
    assert_eq!(
        (stats.open_watches, stats.count("watch", "configmaps")),
        (1, 1)
    );
}

#[tokio::test]
async fn closed_watches_are_not_counted_as_open() {
    let server = server().await;
    let maps: Api<ConfigMap> = Api::namespaced(server.client(), "default");
    let events = maps.watch(&WatchParams::default(), "0").await.unwrap();
    assert_eq!(server.stats().open_watches, 1);
    drop(events);
    assert_eq!(
        (server.stats().open_watches, server.stats().peak_watches),
        (0, 1)
    );
}

#[tokio::test]
async fn a_revision_beyond_the_history_is_gone() {
    let server = ApiServer::builder().watch_history(2).build().await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(server.client(), "default");
    let first = maps
        .create(&PostParams::default(), &config_map("a", "0"))
        .await
        .unwrap();
    for n in 1..5 {
        change(&maps, "a", json!({"data": {"k": n.to_string()}})).await;
    }
    let rv = first.resource_version().unwrap();
    let mut events = pin!(maps.watch(&WatchParams::default(), &rv).await.unwrap());
    assert_eq!(
        describe(&next(&mut events).await.unwrap()),
        "ERROR 410 Expired"
    );
    assert!(events.try_next().await.unwrap().is_none());
    let exact = kube::api::ListParams::default()
        .at(&rv)
        .matching(kube::api::VersionMatch::Exact);
    let status = refused(maps.list(&exact).await);
    assert_eq!((status.code, status.reason.as_str()), (410, "Expired"));
}

#[tokio::test]
async fn a_list_at_an_exact_revision_shows_the_past() {
    let maps: Api<ConfigMap> = Api::namespaced(server().await.client(), "default");
    let a = maps
        .create(&PostParams::default(), &config_map("a", "old"))
        .await
        .unwrap();
    change(&maps, "a", json!({"data": {"k": "new"}})).await;
    maps.create(&PostParams::default(), &config_map("b", "1"))
        .await
        .unwrap();
    let exact = kube::api::ListParams::default()
        .at(&a.resource_version().unwrap())
        .matching(kube::api::VersionMatch::Exact);
    let list = maps.list(&exact).await.unwrap();
    assert_eq!(list.items, [a]);
}

#[tokio::test]
async fn a_streaming_list_ends_with_its_bookmark() {
    let maps: Api<ConfigMap> = Api::namespaced(server().await.client(), "default");
    maps.create(&PostParams::default(), &config_map("a", "1"))
        .await
        .unwrap();
    let params = WatchParams::default().initial_events();
    let mut events = pin!(maps.watch(&params, "0").await.unwrap());
    assert_eq!(describe(&next(&mut events).await.unwrap()), "ADDED a");
    let WatchEvent::Bookmark(end) = next(&mut events).await.unwrap() else {
        panic!("no bookmark")
    };
    assert_eq!(
        end.metadata.annotations["k8s.io/initial-events-end"],
        "true"
    );
}

#[tokio::test(start_paused = true)]
async fn a_quiet_watch_gets_bookmarks_and_ends_in_time() {
    let client = server().await.client();
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let other: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(client, "default");
    let params = WatchParams::default().timeout(90);
    let mut events = pin!(maps.watch(&params, "0").await.unwrap());
    let secret: k8s_openapi::api::core::v1::Secret =
        serde_json::from_value(json!({"metadata": {"name": "s"}})).unwrap();
    let secret = other.create(&PostParams::default(), &secret).await.unwrap();
    let Some(WatchEvent::Bookmark(mark)) = events.try_next().await.unwrap() else {
        panic!("no bookmark")
    };
    assert_eq!(
        Some(mark.metadata.resource_version),
        secret.resource_version()
    );
    assert!(events.try_next().await.unwrap().is_none());
}

#[tokio::test]
async fn a_watcher_that_cannot_keep_up_is_cut_off() {
    let server = ApiServer::builder().watch_queue(2).build().await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(server.client(), "default");
    let mut events = pin!(maps.watch(&WatchParams::default(), "0").await.unwrap());
    for n in 0..5 {
        maps.create(&PostParams::default(), &config_map(&format!("m{n}"), "1"))
            .await
            .unwrap();
    }
    let mut seen = 0;
    while events.try_next().await.unwrap().is_some() {
        seen += 1;
    }
    assert_eq!(seen, 2);
}

#[tokio::test]
async fn shutdown_ends_watches_and_refuses_requests() {
    let server = server().await;
    let maps: Api<ConfigMap> = Api::namespaced(server.client(), "default");
    let mut events = pin!(maps.watch(&WatchParams::default(), "0").await.unwrap());
    server.shutdown().await;
    assert!(events.try_next().await.unwrap().is_none());
    assert_eq!(
        refused(
            maps.create(&PostParams::default(), &config_map("a", "1"))
                .await
        )
        .code,
        503
    );
}
