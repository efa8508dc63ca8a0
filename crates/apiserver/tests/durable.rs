//! State across restarts.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::needless_pass_by_value,
    reason = "helpers of tests fail by panicking and take what reads best"
)]

mod support;

use std::path::Path;
use std::pin::pin;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt};
use muster_apiserver::{ApiServer, Storage};
use support::{config_map, next, refused};

async fn open(path: &Path) -> ApiServer {
    ApiServer::builder()
        .storage(Storage::Redb(path.to_owned()))
        .build()
        .await
        .unwrap()
}

fn maps(server: &ApiServer) -> Api<ConfigMap> {
    Api::namespaced(server.client(), "default")
}

#[tokio::test]
async fn objects_and_revisions_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.redb");
    let server = open(&path).await;
    let a = maps(&server)
        .create(&PostParams::default(), &config_map("a", "1"))
        .await
        .unwrap();
    maps(&server)
        .create(&PostParams::default(), &config_map("b", "1"))
        .await
        .unwrap();
    maps(&server)
        .delete("b", &DeleteParams::default())
        .await
        .unwrap();
    let before = maps(&server).list(&ListParams::default()).await.unwrap();
    server.shutdown().await;

    let server = open(&path).await;
    let after = maps(&server).list(&ListParams::default()).await.unwrap();
    assert_eq!(after.items, [a]);
    assert_eq!(
        after.metadata.resource_version,
        before.metadata.resource_version
    );
    let c = maps(&server)
        .create(&PostParams::default(), &config_map("c", "1"))
        .await
        .unwrap();
    let number = |rv: Option<String>| rv.unwrap().parse::<u64>().unwrap();
    assert!(number(c.resource_version()) > number(before.metadata.resource_version));
}

#[tokio::test]
async fn watches_cannot_resume_from_before_the_restart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.redb");
    let server = open(&path).await;
    let a = maps(&server)
        .create(&PostParams::default(), &config_map("a", "1"))
        .await
        .unwrap();
    let b = maps(&server)
        .create(&PostParams::default(), &config_map("b", "1"))
        .await
        .unwrap();
    server.shutdown().await;
    let server = open(&path).await;
    let api = maps(&server);
    let old = a.resource_version().unwrap();
    let mut events = pin!(api.watch(&WatchParams::default(), &old).await.unwrap());
    let WatchEvent::Error(status) = next(&mut events).await.unwrap() else {
        panic!("no error")
    };
    assert_eq!(status.code, 410);
    let last = b.resource_version().unwrap();
    let mut events = pin!(api.watch(&WatchParams::default(), &last).await.unwrap());
    api.create(&PostParams::default(), &config_map("c", "1"))
        .await
        .unwrap();
    let WatchEvent::Added(c) = next(&mut events).await.unwrap() else {
        panic!("not added")
    };
    assert_eq!(c.name_any(), "c");
}

#[tokio::test]
async fn many_writers_share_commits_and_see_their_own_writes() {
    let dir = tempfile::tempdir().unwrap();
    let server = open(&dir.path().join("state.redb")).await;
    let writes = (0..200).map(|n| {
        let api = maps(&server);
        async move {
            let name = format!("m{n}");
            api.create(&PostParams::default(), &config_map(&name, "1"))
                .await
                .unwrap();
            api.get(&name).await.unwrap();
        }
    });
    futures::future::join_all(writes).await;
    assert_eq!(
        maps(&server)
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .len(),
        200
    );
}

#[tokio::test]
async fn damaged_and_foreign_files_are_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let good = dir.path().join("good.redb");
    open(&good).await.shutdown().await;
    let whole = std::fs::read(&good).unwrap();
    let mut flipped = whole.clone();
    flipped[..512].fill(0xff);
    let cases: [(&str, Vec<u8>); 4] = [
        ("text.redb", b"this is no database".to_vec()),
        ("empty.redb", Vec::new()),
        ("cut.redb", whole[..whole.len() / 3].to_vec()),
        ("flipped.redb", flipped),
    ];
    for (name, bytes) in cases {
        let path = dir.path().join(name);
        std::fs::write(&path, &bytes).unwrap();
        let build = ApiServer::builder()
            .storage(Storage::Redb(path.clone()))
            .build()
            .await;
        let error = build.expect_err(name).to_string();
        assert!(error.contains(name), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "{name}");
    }
    let foreign = dir.path().join("foreign.redb");
    let database = redb::Database::create(&foreign).unwrap();
    let write = database.begin_write().unwrap();
    write
        .open_table(redb::TableDefinition::<&str, u64>::new("other"))
        .unwrap();
    write.commit().unwrap();
    drop(database);
    let build = ApiServer::builder()
        .storage(Storage::Redb(foreign))
        .build()
        .await;
    let error = build.unwrap_err().to_string();
    assert!(
        error.contains("foreign.redb") && error.contains("another program"),
        "{error}"
    );
}

#[tokio::test]
async fn a_file_in_use_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.redb");
    let _server = open(&path).await;
    let build = ApiServer::builder()
        .storage(Storage::Redb(path))
        .build()
        .await;
    let error = build.unwrap_err().to_string();
    assert!(
        error.contains("state.redb") && error.contains("open"),
        "{error}"
    );
}

#[tokio::test]
async fn writes_after_shutdown_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let server = open(&dir.path().join("state.redb")).await;
    let api = maps(&server);
    server.shutdown().await;
    let status = refused(
        api.create(&PostParams::default(), &config_map("a", "1"))
            .await,
    );
    assert_eq!(status.code, 503);
}
