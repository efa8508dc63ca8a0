//! What the tests share.

#![allow(dead_code, reason = "each test binary uses its own part")]

use std::time::Duration;

use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use muster_apiserver::ApiServer;

/// Longest wait for something that should happen at once.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// A server in memory.
pub(crate) async fn server() -> ApiServer {
    ApiServer::builder().build().await.unwrap()
}

/// A `ConfigMap` with one key.
pub(crate) fn config_map(name: &str, value: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        data: Some([("k".to_owned(), value.to_owned())].into()),
        ..ConfigMap::default()
    }
}

/// Creates a namespace.
pub(crate) async fn create_namespace(client: &kube::Client, name: &str) {
    let namespace = Namespace {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    };
    Api::<Namespace>::all(client.clone())
        .create(&PostParams::default(), &namespace)
        .await
        .unwrap();
}

/// The status of a refused request.
#[track_caller]
pub(crate) fn refused<T: std::fmt::Debug>(result: kube::Result<T>) -> kube::core::Status {
    match result {
        Err(kube::Error::Api(status)) => *status,
        other => panic!("expected a Status, got {other:?}"),
    }
}

/// The next item of a stream that should have one.
pub(crate) async fn next<S: Stream + Unpin>(stream: &mut S) -> S::Item {
    tokio::time::timeout(SOON, stream.next())
        .await
        .expect("nothing came in time")
        .expect("the stream ended")
}
