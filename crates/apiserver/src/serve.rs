//! The server on a socket: HTTPS with a bearer token, never without.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::AUTHORIZATION;
use http::{HeaderMap, Request};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use kube::config::Kubeconfig;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service;

use crate::authz::{Authorization, UserInfo};
use crate::http::service::{ApiService, error_response};
use crate::server::ApiServer;
use crate::status::ApiError;
use crate::tls::{Identity, IdentityError};

/// Longest TLS handshake; a client that needs more has gone or is up to no good.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// What requests in flight get when the socket is closed.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause after a failed accept (out of file descriptors), so that the loop does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Where and as whom to serve.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Address to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Keeps CA and token across restarts; without it they are new each time.
    pub dir: Option<PathBuf>,
    /// Bearer tokens beside the administrator's, each with its user, as kube-apiserver's
    /// `--token-auth-file` lists them.
    pub tokens: BTreeMap<String, UserInfo>,
}

/// Why the socket is not served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// CA or token could not be made or read.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The address could not be taken.
    #[error("failed to listen on {listen}: {source}")]
    Listen {
        /// The address.
        listen: SocketAddr,
        /// What the system says.
        source: std::io::Error,
    },
}

/// A served socket. It is closed by [`Serving::stop`] and when the server shuts down.
#[derive(Debug)]
pub struct Serving {
    addr: SocketAddr,
    ca_pem: String,
    token: String,
    stop: CancellationToken,
    connections: TaskTracker,
}

impl Serving {
    /// The address that is listened on.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The bearer token that requests need.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// A kubeconfig with address, CA and token.
    ///
    /// # Panics
    ///
    /// Never: the fields are those of the type.
    pub fn kubeconfig(&self) -> Kubeconfig {
        let mut address = self.addr;
        if address.ip().is_unspecified() {
            address.set_ip([127, 0, 0, 1].into());
        }
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "muster",
            "clusters": [{"name": "muster", "cluster": {
                "server": format!("https://{address}"),
                "certificate-authority-data": STANDARD.encode(&self.ca_pem),
            }}],
            "users": [{"name": "admin", "user": {"token": self.token}}],
            "contexts": [{"name": "muster", "context": {
                "cluster": "muster", "user": "admin", "namespace": "default",
            }}],
        });
        serde_json::from_value(config).expect("the kubeconfig has the fields of its type")
    }

    /// Closes the socket and its connections; the server itself goes on.
    pub async fn stop(self) {
        self.stop.cancel();
        self.connections.wait().await;
    }
}

impl ApiServer {
    /// Serves HTTPS with a certificate of the server's own CA; every request needs the token.
    ///
    /// # Errors
    ///
    /// Fails when the address is taken and when the identity's files are damaged.
    pub async fn serve(&self, options: ServeOptions) -> Result<Serving, ServeError> {
        let identity = Identity::load(options.dir.as_deref())?;
        let config = identity.server_config(options.listen.ip())?;
        let listen_error = |source| ServeError::Listen {
            listen: options.listen,
            source,
        };
        let listener = TcpListener::bind(options.listen)
            .await
            .map_err(listen_error)?;
        let addr = listener.local_addr().map_err(listen_error)?;
        let (stop, connections) = (self.inner.stopping.child_token(), TaskTracker::new());
        let acceptor = Acceptor {
            tls: TlsAcceptor::from(Arc::new(config)),
            server: self.clone(),
            users: Arc::new(Users::new(
                &identity.token,
                options.tokens,
                self.inner.authorizer.mode,
            )),
            stop: stop.clone(),
            connections: connections.clone(),
        };
        connections.spawn(acceptor.run(listener));
        connections.close();
        Ok(Serving {
            addr,
            ca_pem: identity.ca_pem,
            token: identity.token,
            stop,
            connections,
        })
    }
}

#[derive(Clone)]
struct Acceptor {
    tls: TlsAcceptor,
    server: ApiServer,
    users: Arc<Users>,
    stop: CancellationToken,
    connections: TaskTracker,
}

impl Acceptor {
    async fn run(self, listener: TcpListener) {
        loop {
            let accepted = tokio::select! {
                () = self.stop.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((socket, peer)) => {
                    self.connections
                        .spawn(self.clone().connection(socket, peer));
                }
                Err(e) => {
                    tracing::warn!(error = %e, "failed to accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn connection(self, socket: TcpStream, peer: SocketAddr) {
        // Watch events are small and must not wait for each other.
        let _ = socket.set_nodelay(true);
        let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, self.tls.accept(socket));
        let stream = tokio::select! {
            () = self.stop.cancelled() => return,
            stream = handshake => match stream {
                Ok(Ok(stream)) => stream,
                Ok(Err(e)) => {
                    tracing::debug!(%peer, error = %e, "TLS handshake failed");
                    return;
                }
                Err(_) => return,
            },
        };
        let (server, users) = (self.server.inner, self.users);
        let service = service_fn(move |request: Request<Incoming>| {
            let service = users.of(request.headers()).map(|user| ApiService {
                server: server.clone(),
                counted: true,
                user,
            });
            async move {
                match service {
                    Some(mut service) => service.call(request).await,
                    None => Ok(error_response(&ApiError::unauthorized())),
                }
            }
        });
        let builder = auto::Builder::new(TokioExecutor::new());
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        let mut connection = std::pin::pin!(connection);
        tokio::select! {
            result = connection.as_mut() => {
                if let Err(e) = result {
                    tracing::debug!(%peer, error = %e, "connection ended");
                }
                return;
            }
            () = self.stop.cancelled() => connection.as_mut().graceful_shutdown(),
        }
        // Watches do not end by themselves when only the socket is closed.
        let _ = tokio::time::timeout(DRAIN_TIMEOUT, connection).await;
    }
}

/// Who holds which token.
struct Users {
    tokens: Vec<(String, Arc<UserInfo>)>,
    /// Whoever brings no token, where such requests are not refused outright.
    nobody: Option<Arc<UserInfo>>,
}

impl Users {
    fn new(admin: &str, tokens: BTreeMap<String, UserInfo>, mode: Authorization) -> Self {
        let listed = tokens
            .into_iter()
            .map(|(token, user)| (token, Arc::new(user.authenticated())));
        let admin = (admin.to_owned(), Arc::new(UserInfo::admin()));
        // Where everybody may do everything, as with the real server, nobody is anonymous.
        let nobody = (mode == Authorization::Rbac).then(|| Arc::new(UserInfo::anonymous()));
        Self {
            tokens: std::iter::once(admin).chain(listed).collect(),
            nobody,
        }
    }

    /// The sender of a request; none if the token is unknown, or missing where one is needed.
    fn of(&self, headers: &HeaderMap) -> Option<Arc<UserInfo>> {
        let token = headers
            .get(AUTHORIZATION)
            .and_then(|v| v.to_str().ok())
            .and_then(|v| v.strip_prefix("Bearer "))
            .map(str::trim)
            .filter(|token| !token.is_empty());
        let Some(token) = token else {
            return self.nobody.clone();
        };
        self.tokens
            .iter()
            .find(|(known, _)| same(token.as_bytes(), known.as_bytes()))
            .map(|(_, user)| user.clone())
    }
}

/// Compares in a time that does not tell where the texts differ.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |all, (x, y)| all | (x ^ y)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_equal_tokens_are_the_same() {
        assert!(same(b"abc", b"abc"));
        assert!(!same(b"abc", b"abd"));
        assert!(!same(b"abc", b"ab"));
        assert!(!same(b"", b"a"));
    }
}
