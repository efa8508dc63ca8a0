//! The server on a socket.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::needless_pass_by_value,
    reason = "helpers of tests fail by panicking and take what reads best"
)]

mod support;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, PostParams, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use muster_apiserver::{ApiServer, ServeOptions, Serving};
use std::pin::pin;
use support::{config_map, next, refused, server};

fn options(dir: Option<&std::path::Path>) -> ServeOptions {
    ServeOptions {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        dir: dir.map(std::path::Path::to_owned),
        tokens: BTreeMap::new(),
    }
}

async fn connect(kubeconfig: Kubeconfig) -> Client {
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap();
    Client::try_from(config).unwrap()
}

async fn serve(server: &ApiServer) -> Serving {
    server.serve(options(None)).await.unwrap()
}

#[tokio::test]
async fn objects_and_watches_pass_through_https() {
    let server = server().await;
    let serving = serve(&server).await;
    let maps: Api<ConfigMap> = Api::namespaced(connect(serving.kubeconfig()).await, "default");
    let mut events = pin!(maps.watch(&WatchParams::default(), "0").await.unwrap());
    maps.create(&PostParams::default(), &config_map("a", "1"))
        .await
        .unwrap();
    next(&mut events).await.unwrap();
    let in_process: Api<ConfigMap> = Api::namespaced(server.client(), "default");
    assert_eq!(
        in_process.get("a").await.unwrap(),
        maps.get("a").await.unwrap()
    );
}

#[tokio::test]
async fn requests_without_the_token_are_refused() {
    let server = server().await;
    let serving = serve(&server).await;
    for token in [None, Some("wrong")] {
        let mut kubeconfig = serving.kubeconfig();
        let user = kubeconfig.auth_infos[0].auth_info.as_mut().unwrap();
        user.token = token.map(|t| t.to_owned().into());
        let client = connect(kubeconfig).await;
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
        let status = refused(maps.list(&ListParams::default()).await);
        assert_eq!((status.code, status.reason.as_str()), (401, "Unauthorized"));
        assert_eq!(refused(client.apiserver_version().await).code, 401);
    }
}

#[tokio::test]
async fn identity_survives_a_restart_in_its_directory() {
    let dir = tempfile::tempdir().unwrap();
    let server = server().await;
    let first = server.serve(options(Some(dir.path()))).await.unwrap();
    let mut kubeconfig = first.kubeconfig();
    first.stop().await;
    let second = server.serve(options(Some(dir.path()))).await.unwrap();
    kubeconfig.clusters[0].cluster.as_mut().unwrap().server =
        Some(format!("https://{}", second.addr()));
    connect(kubeconfig).await.apiserver_version().await.unwrap();
}

#[tokio::test]
async fn stopping_closes_the_socket_and_keeps_the_server() {
    let server = server().await;
    let serving = serve(&server).await;
    let addr = serving.addr();
    let client = connect(serving.kubeconfig()).await;
    client.apiserver_version().await.unwrap();
    serving.stop().await;
    assert!(tokio::net::TcpStream::connect(addr).await.is_err());
    server.client().apiserver_version().await.unwrap();
}

#[tokio::test]
async fn a_taken_address_is_named() {
    let server = server().await;
    let serving = serve(&server).await;
    let taken = ServeOptions {
        listen: serving.addr(),
        dir: None,
        tokens: BTreeMap::new(),
    };
    let error = server.serve(taken).await.unwrap_err().to_string();
    assert!(error.contains(&serving.addr().to_string()), "{error}");
}
