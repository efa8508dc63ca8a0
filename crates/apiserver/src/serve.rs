//! The server on a socket: HTTPS with a bearer token, never without.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::AUTHORIZATION;
use http::{HeaderMap, Request, Response};
use hyper::body::Incoming;
use kube::config::Kubeconfig;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::Service;

use crate::authz::{Authorization, UserInfo};
use crate::connections::{ConnectionLimits, Connections, Visitor};
use crate::http::body::ApiBody;
use crate::http::service::{ApiService, error_response};
use crate::server::ApiServer;
use crate::status::ApiError;
use crate::tls::{Identity, IdentityError};

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
    /// Limits on connections.
    pub limits: ConnectionLimits,
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
    connections: Connections,
    serving: JoinHandle<()>,
}

impl Serving {
    /// The connections of the socket.
    pub fn connections(&self) -> &Connections {
        &self.connections
    }

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
        // It ends by itself; a panic in there is no reason for another one here.
        let _ = self.serving.await;
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
        let stop = self.inner.stopping.child_token();
        let users = Users::new(&identity.token, options.tokens, self.inner.authorizer.mode);
        let door = Arc::new(Door {
            server: self.clone(),
            users,
            intruders: Intruders::default(),
        });
        let connections = Connections::new(options.limits);
        let tls = TlsAcceptor::from(Arc::new(config));
        let entrance = move |peer, visitor| Entrance {
            door: door.clone(),
            peer,
            visitor,
        };
        let serving = connections
            .clone()
            .serve(listener, Some(tls), stop.clone(), entrance);
        let serving = tokio::spawn(serving);
        Ok(Serving {
            addr,
            ca_pem: identity.ca_pem,
            token: identity.token,
            stop,
            connections,
            serving,
        })
    }
}

/// Most addresses whose wrong tokens are counted for the log.
const NOTED_PEERS: usize = 1024;
/// How often the log names an address with wrong tokens.
const NOTE_INTERVAL: Duration = Duration::from_secs(60);

/// Requests with wrong tokens by address, so that the log has a line a minute and not one for each.
#[derive(Debug, Default)]
struct Intruders(Mutex<HashMap<IpAddr, (Instant, u64)>>);

impl Intruders {
    /// Notes one, and says how many there were since the last line if there is to be one now.
    fn note(&self, peer: IpAddr) -> Option<u64> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if known.len() >= NOTED_PEERS && !known.contains_key(&peer) {
            known.retain(|_, (since, _)| now.duration_since(*since) < NOTE_INTERVAL);
        }
        if known.len() >= NOTED_PEERS && !known.contains_key(&peer) {
            return None;
        }
        match known.get_mut(&peer) {
            Some((since, count)) if now.duration_since(*since) < NOTE_INTERVAL => {
                *count += 1;
                None
            }
            Some((since, count)) => {
                *since = now;
                Some(std::mem::take(count) + 1)
            }
            None => {
                known.insert(peer, (now, 0));
                Some(1)
            }
        }
    }
}

/// What all connections share.
struct Door {
    server: ApiServer,
    users: Users,
    intruders: Intruders,
}

/// The service of one connection.
#[derive(Clone)]
struct Entrance {
    door: Arc<Door>,
    peer: SocketAddr,
    visitor: Visitor,
}

impl Service<Request<Incoming>> for Entrance {
    type Response = Response<ApiBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let Some(user) = self.door.users.of(request.headers()) else {
            self.visitor.is_unauthorized();
            if let Some(count) = self.door.intruders.note(self.peer.ip()) {
                let peer = self.peer;
                tracing::warn!(%peer, count, "refused requests without a valid token");
            }
            let refused = error_response(&ApiError::unauthorized());
            return Box::pin(std::future::ready(Ok(refused)));
        };
        if request.headers().contains_key(AUTHORIZATION) {
            self.visitor.is_known();
        }
        let mut service = ApiService {
            server: self.door.server.inner.clone(),
            counted: true,
            user,
        };
        service.call(request)
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

    #[tokio::test(start_paused = true)]
    async fn wrong_tokens_are_logged_once_a_minute_with_their_number() {
        let intruders = Intruders::default();
        let peer = |host: u8| IpAddr::from([192, 0, 2, host]);
        assert_eq!(intruders.note(peer(1)), Some(1));
        for _ in 0..1000 {
            assert_eq!(intruders.note(peer(1)), None);
        }
        assert_eq!(intruders.note(peer(2)), Some(1));
        tokio::time::advance(NOTE_INTERVAL).await;
        assert_eq!(intruders.note(peer(1)), Some(1001));
        for at in 0..100_000_u32 {
            intruders.note(IpAddr::from(at.to_be_bytes()));
        }
        assert!(intruders.0.lock().unwrap().len() <= NOTED_PEERS);
    }

    #[test]
    fn only_equal_tokens_are_the_same() {
        assert!(same(b"abc", b"abc"));
        assert!(!same(b"abc", b"abd"));
        assert!(!same(b"abc", b"ab"));
        assert!(!same(b"", b"a"));
    }
}
