//! The HTTP end points for Prometheus, for probes and for people.
//!
//! | Path | Answer |
//! |---|---|
//! | `/metrics` | metrics in Prometheus' text format |
//! | `/healthz` | 200 while the process can answer at all |
//! | `/livez` | the same |
//! | `/readyz` | 200, or 503 with a reason a line |
//! | `/` | the dashboard; not over HTTPS, which is open to the network |
//! | `/debug/actors` | the actors and their state, as JSON; neither |
//!
//! Whatever is not over HTTPS answers to addresses and allowed names only.
//!
//! Knows no actor: what it answers comes from the closures in [`Probes`].

mod dashboard;
mod hosts;
mod metrics;
pub mod tls;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use muster_apiserver::{ConnectionLimits, Connections};
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

pub use dashboard::Look;
pub use metrics::{METRICS, record as record_connections};

/// How long `/debug/actors` waits. An actor that does not answer is what one wants to find out, so
/// the page must not hang with it.
const ACTORS_TIMEOUT: Duration = Duration::from_secs(5);

/// Where the answers come from.
#[derive(Clone)]
pub struct Probes {
    /// Gives the metrics in Prometheus' text format.
    pub metrics: Arc<dyn Fn() -> String + Send + Sync>,
    /// Gives the reasons for not being ready; none means ready.
    pub readiness: Arc<dyn Fn() -> Vec<String> + Send + Sync>,
    /// Asks the actors for their state.
    pub actors: Look,
    /// What the dashboard shows.
    pub overview: Look,
    /// Names that are answered to, beside addresses and `localhost`; not over HTTPS, where a
    /// browser would not trust the certificate.
    pub allowed_hosts: Arc<[String]>,
    /// Limits on the connections of each port.
    pub limits: ConnectionLimits,
}

impl fmt::Debug for Probes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Probes").finish_non_exhaustive()
    }
}

/// Serves the end points until `shutdown`.
///
/// Gives the address bound, which tells the port when `listen` asked for port 0, and a handle that
/// ends once open requests are answered.
///
/// # Errors
///
/// Fails, naming the address, if it cannot be bound.
pub async fn serve(
    listen: SocketAddr,
    probes: Probes,
    shutdown: CancellationToken,
) -> io::Result<(SocketAddr, JoinHandle<io::Result<()>>)> {
    let (allowed, limits) = (probes.allowed_hosts.clone(), probes.limits.clone());
    let connections = Connections::new(limits);
    let routes = router(counted(probes, "telemetry", &connections), shutdown.clone());
    let guard = axum::middleware::from_fn_with_state(allowed, hosts::guard);
    start(listen, connections, None, routes.layer(guard), shutdown).await
}

/// The probes, whose metrics have the connections of a port as well.
fn counted(probes: Probes, port: &'static str, connections: &Connections) -> Probes {
    let (metrics, connections) = (probes.metrics, connections.clone());
    let metrics = move || {
        metrics::record(port, &connections.counts());
        metrics()
    };
    Probes {
        metrics: Arc::new(metrics),
        ..probes
    }
}

async fn start(
    listen: SocketAddr,
    connections: Connections,
    tls: Option<TlsAcceptor>,
    routes: Router,
    shutdown: CancellationToken,
) -> io::Result<(SocketAddr, JoinHandle<io::Result<()>>)> {
    let listener = bind(listen).await?;
    let bound = listener.local_addr()?;
    let serving = connections.serve(listener, tls, shutdown, move |_, _| routes.clone());
    let served = tokio::spawn(async move {
        serving.await;
        Ok(())
    });
    Ok((bound, served))
}

/// [`serve`] over HTTPS, without the dashboard and `/debug/actors`.
///
/// # Errors
///
/// Those of [`serve`].
pub async fn serve_tls(
    listen: SocketAddr,
    probes: Probes,
    tls: ServerConfig,
    shutdown: CancellationToken,
) -> io::Result<(SocketAddr, JoinHandle<io::Result<()>>)> {
    let connections = Connections::new(probes.limits.clone());
    let routes = public().with_state(counted(probes, "https", &connections));
    let tls = TlsAcceptor::from(Arc::new(tls));
    start(listen, connections, Some(tls), routes, shutdown).await
}

async fn bind(listen: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(listen).await.map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("failed to listen on {listen}: {error}"),
        )
    })
}

fn router(probes: Probes, shutdown: CancellationToken) -> Router {
    let dashboard = dashboard::router(Arc::clone(&probes.overview), shutdown);
    public()
        .route("/debug/actors", get(actors))
        .with_state(probes)
        .merge(dashboard)
}

/// What anybody may see.
fn public() -> Router<Probes> {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
}

async fn metrics(State(probes): State<Probes>) -> Response {
    // The version is part of Prometheus' content negotiation.
    let format = [(
        header::CONTENT_TYPE,
        "text/plain; version=0.0.4; charset=utf-8",
    )];
    (format, (probes.metrics)()).into_response()
}

async fn ready(State(probes): State<Probes>) -> Response {
    let reasons = (probes.readiness)();
    if reasons.is_empty() {
        return "ok\n".into_response();
    }
    let lines = reasons.join("\n") + "\n";
    (StatusCode::SERVICE_UNAVAILABLE, lines).into_response()
}

async fn actors(State(probes): State<Probes>) -> Response {
    let asked = (probes.actors)();
    let Ok(state) = tokio::time::timeout(ACTORS_TIMEOUT, asked).await else {
        let message = format!("no answer from the actors within {ACTORS_TIMEOUT:?}\n");
        return (StatusCode::GATEWAY_TIMEOUT, message).into_response();
    };
    Json(state).into_response()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;

    pub(super) fn probes(reasons: &'static [&'static str]) -> Probes {
        Probes {
            metrics: Arc::new(|| "muster_up 1\n".to_owned()),
            readiness: Arc::new(|| reasons.iter().map(|reason| (*reason).to_owned()).collect()),
            actors: Arc::new(|| Box::pin(async { json!([{"actor": "WorkSource", "mailbox": 0}]) })),
            overview: Arc::new(|| Box::pin(async { json!({}) })),
            allowed_hosts: Arc::new(["muster".to_owned()]),
            limits: ConnectionLimits::default(),
        }
    }

    pub(super) fn any_port() -> SocketAddr {
        ([127, 0, 0, 1], 0).into()
    }

    /// Status line and the rest of an answer, as they go over the wire.
    async fn get(address: SocketAddr, path: &str) -> (String, String) {
        get_as(address, path, "muster").await
    }

    async fn get_as(address: SocketAddr, path: &str, host: &str) -> (String, String) {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (status, rest) = answer.split_once("\r\n").unwrap();
        (status.to_owned(), rest.to_owned())
    }

    #[tokio::test]
    async fn end_points_answer_until_shutdown() {
        let shutdown = CancellationToken::new();
        let (address, server) = serve(any_port(), probes(&[]), shutdown.clone())
            .await
            .unwrap();

        let (status, rest) = get(address, "/metrics").await;
        assert_eq!(status, "HTTP/1.1 200 OK");
        assert!(
            rest.contains("content-type: text/plain; version=0.0.4"),
            "{rest}"
        );
        assert!(rest.ends_with("\r\n\r\nmuster_up 1\n"), "{rest}");

        let (status, rest) = get_as(address, "/metrics", "evil.example").await;
        assert_eq!(status, "HTTP/1.1 421 Misdirected Request");
        assert!(rest.ends_with("telemetry.allowed_hosts\n"), "{rest}");

        assert_eq!(get(address, "/healthz").await.0, "HTTP/1.1 200 OK");
        assert_eq!(get(address, "/readyz").await.0, "HTTP/1.1 200 OK");
        assert_eq!(get(address, "/elsewhere").await.0, "HTTP/1.1 404 Not Found");

        let (status, rest) = get(address, "/debug/actors").await;
        assert_eq!(status, "HTTP/1.1 200 OK");
        assert!(
            rest.ends_with(r#"[{"actor":"WorkSource","mailbox":0}]"#),
            "{rest}"
        );

        shutdown.cancel();
        server.await.unwrap().unwrap();
        assert!(TcpStream::connect(address).await.is_err());
    }

    #[tokio::test]
    async fn process_that_is_not_ready_says_why() {
        let probes = probes(&[
            "spoke cluster1: watch of deployments is dead",
            "bus: no connection",
        ]);
        let (address, _server) = serve(any_port(), probes, CancellationToken::new())
            .await
            .unwrap();
        let (status, rest) = get(address, "/readyz").await;
        assert_eq!(status, "HTTP/1.1 503 Service Unavailable");
        assert!(
            rest.ends_with("spoke cluster1: watch of deployments is dead\nbus: no connection\n"),
            "{rest}"
        );
        assert_eq!(get(address, "/healthz").await.0, "HTTP/1.1 200 OK");
    }

    /// Others' connections that say nothing, more of them than there may be, keep no probe out.
    #[tokio::test]
    async fn probes_answer_while_silent_connections_hold_all_places() {
        let limits = ConnectionLimits {
            total: 8,
            ..ConnectionLimits::default()
        };
        let probes = Probes {
            limits,
            ..probes(&[])
        };
        let (address, _server) = serve(any_port(), probes, CancellationToken::new())
            .await
            .unwrap();
        let mut silent = Vec::new();
        for _ in 0..40 {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        assert_eq!(get(address, "/healthz").await.0, "HTTP/1.1 200 OK");
    }

    #[tokio::test(start_paused = true)]
    async fn actors_that_do_not_answer_are_reported_and_not_waited_for() {
        let probes = Probes {
            actors: Arc::new(|| Box::pin(std::future::pending())),
            ..probes(&[])
        };
        let response = actors(State(probes)).await;
        assert_eq!(response.status(), StatusCode::GATEWAY_TIMEOUT);
    }

    #[tokio::test]
    async fn address_in_use_is_named() {
        let taken = TcpListener::bind(any_port()).await.unwrap();
        let address = taken.local_addr().unwrap();
        let error = serve(address, probes(&[]), CancellationToken::new())
            .await
            .unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    }
}
