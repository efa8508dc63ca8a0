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
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, PostParams, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use muster_apiserver::{ApiServer, ConnectionLimits, ServeOptions, Serving};
use rustls::pki_types::pem::PemObject;
use std::pin::pin;
use support::{config_map, next, refused, server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

fn options(dir: Option<&std::path::Path>) -> ServeOptions {
    ServeOptions {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        dir: dir.map(std::path::Path::to_owned),
        tokens: BTreeMap::new(),
        limits: muster_apiserver::ConnectionLimits::default(),
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
        limits: muster_apiserver::ConnectionLimits::default(),
    };
    let error = server.serve(taken).await.unwrap_err().to_string();
    assert!(error.contains(&serving.addr().to_string()), "{error}");
}

/// A server with few places and short times, and its address.
async fn narrow(limits: ConnectionLimits) -> (ApiServer, Serving) {
    let server = server().await;
    let options = ServeOptions {
        limits,
        ..options(None)
    };
    let serving = server.serve(options).await.unwrap();
    (server, serving)
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let all = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let done = tokio::time::timeout(support::SOON, all).await;
    assert!(done.is_ok(), "{what}");
}

#[tokio::test]
async fn connections_that_say_nothing_keep_nobody_out() {
    let limits = ConnectionLimits {
        total: 20,
        ..ConnectionLimits::default()
    };
    let (_server, serving) = narrow(limits).await;
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(TcpStream::connect(serving.addr()).await.unwrap());
    }
    let maps: Api<ConfigMap> = Api::namespaced(connect(serving.kubeconfig()).await, "default");
    let mut events = pin!(maps.watch(&WatchParams::default(), "0").await.unwrap());
    for _ in 0..100 {
        silent.push(TcpStream::connect(serving.addr()).await.unwrap());
    }
    maps.create(&PostParams::default(), &config_map("a", "1"))
        .await
        .unwrap();
    // The one with the watch is none of those that gave way.
    next(&mut events).await.unwrap();
    let counts = serving.connections().counts();
    assert!(counts.open <= 20, "{counts:?}");
    assert!(counts.displaced >= 180, "{counts:?}");
    serving.stop().await;
}

/// Nothing at all, half a handshake, half a head: each is closed, and counted.
#[tokio::test]
async fn handshakes_and_heads_have_a_time() {
    let limits = ConnectionLimits {
        handshake: Duration::from_millis(200),
        first_request: Duration::from_millis(200),
        ..ConnectionLimits::default()
    };
    let (_server, serving) = narrow(limits).await;
    let closed = |mut socket: TcpStream| async move {
        let mut rest = Vec::new();
        let end = tokio::time::timeout(support::SOON, socket.read_to_end(&mut rest)).await;
        assert!(end.is_ok(), "the connection stays open");
    };
    closed(TcpStream::connect(serving.addr()).await.unwrap()).await;
    let mut half = TcpStream::connect(serving.addr()).await.unwrap();
    half.write_all(&[0x16, 0x03, 0x01]).await.unwrap();
    closed(half).await;
    let client = rustls_client(&serving);
    let socket = TcpStream::connect(serving.addr()).await.unwrap();
    let name = "localhost".try_into().unwrap();
    let mut stream = client.connect(name, socket).await.unwrap();
    stream
        .write_all(b"GET /version HTTP/1.1\r\nHost: lo")
        .await
        .unwrap();
    let mut rest = Vec::new();
    let end = tokio::time::timeout(support::SOON, stream.read_to_end(&mut rest)).await;
    assert!(end.is_ok(), "half a head keeps a connection open");
    until("all are counted", || {
        serving.connections().counts().timed_out == 3
    })
    .await;
    until("all are closed", || {
        serving.connections().counts().open == 0
    })
    .await;
    serving.stop().await;
}

#[tokio::test]
async fn wrong_tokens_are_counted() {
    let server = server().await;
    let serving = serve(&server).await;
    let mut kubeconfig = serving.kubeconfig();
    let user = kubeconfig.auth_infos[0].auth_info.as_mut().unwrap();
    user.token = Some("wrong".to_owned().into());
    let maps: Api<ConfigMap> = Api::namespaced(connect(kubeconfig).await, "default");
    for _ in 0..3 {
        assert_eq!(refused(maps.get("a").await).code, 401);
    }
    assert_eq!(serving.connections().counts().unauthorized, 3);
}

fn rustls_client(serving: &Serving) -> tokio_rustls::TlsConnector {
    let mut roots = rustls::RootCertStore::empty();
    let cluster = &serving.kubeconfig().clusters[0];
    let data = cluster.cluster.as_ref().unwrap();
    let pem = data.certificate_authority_data.as_ref().unwrap();
    let pem = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, pem).unwrap();
    for certificate in rustls::pki_types::CertificateDer::pem_slice_iter(&pem) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config).into()
}
