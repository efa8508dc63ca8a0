//! Conversations over HTTP, gitprotocol-http(5): one request to look, one to fetch or push.

use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use url::Url;

use super::advertisement::broken;
use super::net::{Stream, Waiter};
use super::packet::{self, Packet};
use super::{Conversation, Service};
use crate::config::{Credentials, Limits};
use crate::error::{GitErrorKind, Result};

/// As many as the git program follows.
const REDIRECTS: usize = 20;

/// How to talk to an HTTP server.
pub(super) struct Client<'c> {
    pub(super) credentials: &'c Credentials,
    pub(super) authorities: Option<&'c Path>,
    pub(super) limits: &'c Limits,
}

impl Client<'_> {
    /// Looks at the repository at `url`.
    pub(super) fn open(&self, url: &Url, service: Service) -> Result<Box<dyn Conversation>> {
        let mut base = url.clone();
        let mut with_credentials = true;
        for _ in 0..REDIRECTS {
            let request = Request::builder().method(Method::GET).uri(target(
                &base,
                &format!("/info/refs?service={}", service.name()),
            ));
            let response = self.send(&base, request, Bytes::new(), with_credentials)?;
            if response.status.is_redirection() {
                let next = redirected(&base, service, response.location.as_deref())?;
                // Credentials are for the host that they were configured for.
                with_credentials &= next.host() == url.host()
                    && (next.scheme() == "https"
                        || next.port_or_known_default() == url.port_or_known_default());
                base = next;
                continue;
            }
            response.check(&format!("application/x-{}-advertisement", service.name()))?;
            return Ok(Box::new(HttpConversation {
                client: self.owned(),
                base,
                service,
                with_credentials,
                body: response.body,
                begun: false,
            }));
        }
        Err(GitErrorKind::Protocol {
            reason: format!("more than {REDIRECTS} redirects"),
        })
    }

    fn owned(&self) -> OwnedClient {
        OwnedClient {
            credentials: self.credentials.clone(),
            authorities: self.authorities.map(Path::to_owned),
            limits: self.limits.clone(),
        }
    }

    /// Sends one request on a connection of its own.
    fn send(
        &self,
        base: &Url,
        request: http::request::Builder,
        content: Bytes,
        with_credentials: bool,
    ) -> Result<Response> {
        let waiter = Waiter::new(self.limits)?;
        let stream = self.connect(&waiter, base)?;
        let host = base.host_str().unwrap_or_default();
        let authority = match base.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        let mut request = request
            .header(header::HOST, authority)
            .header(header::USER_AGENT, "git/muster")
            .header(header::ACCEPT, "*/*");
        if let Credentials::Basic { user, password } = self.credentials
            && with_credentials
        {
            let pair =
                base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
            let mut value = HeaderValue::try_from(format!("Basic {pair}")).map_err(malformed)?;
            value.set_sensitive(true);
            request = request.header(header::AUTHORIZATION, value);
        }
        let request = request.body(Full::new(content)).map_err(malformed)?;
        let response = waiter
            .wait_long(async {
                let (mut sender, connection) =
                    hyper::client::conn::http1::handshake(TokioIo::new(stream))
                        .await
                        .map_err(io::Error::other)?;
                tokio::spawn(async move {
                    // Its error comes out of the request or the body, too.
                    let _ = connection.await;
                });
                sender.send_request(request).await.map_err(io::Error::other)
            })
            .map_err(|error| GitErrorKind::Broken {
                reason: causes(&error),
            })?;
        let (head, body) = response.into_parts();
        let text = |name| {
            head.headers
                .get(name)
                .and_then(|value| value.to_str().ok())
                .map(str::to_owned)
        };
        Ok(Response {
            status: head.status,
            content_type: text(header::CONTENT_TYPE),
            location: text(header::LOCATION),
            body: Body {
                waiter,
                incoming: body,
                piece: Bytes::new(),
            },
        })
    }

    fn connect(&self, waiter: &Waiter, base: &Url) -> Result<Stream> {
        let host = base.host_str().unwrap_or_default().trim_matches(['[', ']']);
        let port = base.port_or_known_default().unwrap_or(443);
        let config = match base.scheme() {
            "https" => Some(tls(self.authorities)?),
            _ => None,
        };
        let stream = waiter.connect(host, port)?;
        let Some(config) = config else {
            return Ok(Stream::Plain(stream));
        };
        let name =
            ServerName::try_from(host.to_owned()).map_err(|error| GitErrorKind::Setting {
                field: "url",
                reason: error.to_string(),
            })?;
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        waiter
            .wait(connector.connect(name, stream))
            .map(|stream| Stream::Tls(Box::new(stream)))
            .map_err(|error| GitErrorKind::HostNotReachable {
                reason: format!("TLS with {host}:{port}: {error}"),
            })
    }
}

struct OwnedClient {
    credentials: Credentials,
    authorities: Option<std::path::PathBuf>,
    limits: Limits,
}

impl OwnedClient {
    fn as_client(&self) -> Client<'_> {
        Client {
            credentials: &self.credentials,
            authorities: self.authorities.as_deref(),
            limits: &self.limits,
        }
    }
}

struct HttpConversation {
    client: OwnedClient,
    base: Url,
    service: Service,
    with_credentials: bool,
    body: Body,
    begun: bool,
}

impl Conversation for HttpConversation {
    fn advertisement(&mut self) -> Result<&mut dyn Read> {
        if !self.begun {
            self.begun = true;
            // A section that says what it is comes first.
            let expected = format!("# service={}", self.service.name());
            match packet::read(&mut self.body).map_err(|error| broken(&error))? {
                Packet::Line(line) if line.trim_ascii_end() == expected.as_bytes() => {}
                _ => {
                    return Err(GitErrorKind::NotARepository {
                        reason: "the server does not speak Git's smart protocol".to_owned(),
                    });
                }
            }
            while packet::read(&mut self.body).map_err(|error| broken(&error))? != Packet::Flush {}
        }
        Ok(&mut self.body)
    }

    fn exchange(self: Box<Self>, request: Vec<u8>) -> Result<Box<dyn Read>> {
        let name = self.service.name();
        let head = Request::builder()
            .method(Method::POST)
            .uri(target(&self.base, &format!("/{name}")))
            .header(
                header::CONTENT_TYPE,
                format!("application/x-{name}-request"),
            );
        let client = self.client.as_client();
        let response = client.send(
            &self.base,
            head,
            Bytes::from(request),
            self.with_credentials,
        )?;
        response.check(&format!("application/x-{name}-result"))?;
        Ok(Box::new(response.body))
    }

    fn leave(self: Box<Self>) {}
}

/// Path and query for `rest` of the repository at `base`.
fn target(base: &Url, rest: &str) -> String {
    format!("{}{rest}", base.path().trim_end_matches('/'))
}

/// Where the repository is that was asked for at `base`.
fn redirected(base: &Url, service: Service, location: Option<&str>) -> Result<Url> {
    let protocol = |reason: String| GitErrorKind::Protocol { reason };
    let location = location.ok_or_else(|| protocol("a redirect to nowhere".to_owned()))?;
    let asked = base
        .join(&target(base, "/info/refs"))
        .map_err(|e| protocol(e.to_string()))?;
    let mut next = asked
        .join(location)
        .map_err(|e| protocol(format!("a redirect: {e}")))?;
    if !matches!(next.scheme(), "http" | "https")
        || (base.scheme() == "https" && next.scheme() == "http")
    {
        return Err(protocol(format!("a redirect to {}", next.scheme())));
    }
    let query = format!("service={}", service.name());
    let repository = next
        .path()
        .strip_suffix("/info/refs")
        .filter(|_| next.query() == Some(query.as_str()))
        .map(str::to_owned)
        // As of a server that sends everyone without a session to a page for logging in.
        .ok_or_else(|| GitErrorKind::NotARepository {
            reason: "the server redirects to something that is no repository".to_owned(),
        })?;
    next.set_path(&repository);
    next.set_query(None);
    let no_user = next.set_username("").and_then(|()| next.set_password(None));
    no_user.map_err(|()| protocol("a redirect to no host".to_owned()))?;
    Ok(next)
}

/// The head of an answer, and its body to be read.
struct Response {
    status: StatusCode,
    content_type: Option<String>,
    location: Option<String>,
    body: Body,
}

impl Response {
    fn check(&self, content_type: &str) -> Result<()> {
        let reason = || self.status.to_string();
        match self.status.as_u16() {
            200 => {}
            401 | 403 | 407 => {
                return Err(GitErrorKind::AuthenticationFailed { reason: reason() });
            }
            404 | 410 => return Err(GitErrorKind::NotARepository { reason: reason() }),
            status @ (408 | 429 | 500..) => return Err(GitErrorKind::ServerError { status }),
            _ => return Err(GitErrorKind::Protocol { reason: reason() }),
        }
        if self.content_type.as_deref() == Some(content_type) {
            return Ok(());
        }
        Err(GitErrorKind::NotARepository {
            reason: format!(
                "the server answers with {} where {content_type} is expected",
                self.content_type.as_deref().unwrap_or("no content type")
            ),
        })
    }
}

/// A body that blocks whoever reads it.
struct Body {
    waiter: Waiter,
    incoming: Incoming,
    piece: Bytes,
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            let frame = self.waiter.wait(async {
                match self.incoming.frame().await {
                    None => Ok(None),
                    Some(Ok(frame)) => Ok(Some(frame)),
                    Some(Err(error)) => Err(io::Error::other(error)),
                }
            });
            match frame.map_err(|error| io::Error::new(error.kind(), causes(&error)))? {
                None => return Ok(0),
                // Trailers have no data.
                Some(frame) => self.piece = frame.into_data().unwrap_or_default(),
            }
        }
        let count = self.piece.len().min(buffer.len());
        buffer[..count].copy_from_slice(&self.piece.split_to(count));
        Ok(count)
    }
}

fn tls(authorities: Option<&Path>) -> Result<ClientConfig> {
    let setting = |reason: String| GitErrorKind::Setting {
        field: "authorities",
        reason,
    };
    let mut roots = RootCertStore::empty();
    if let Some(path) = authorities {
        let unusable = |error: String| setting(format!("{}: {error}", path.display()));
        let certificates = CertificateDer::pem_file_iter(path)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| unusable(error.to_string()))?;
        for certificate in certificates {
            roots
                .add(certificate)
                .map_err(|error| unusable(error.to_string()))?;
        }
        if roots.is_empty() {
            return Err(unusable("it has no certificate".to_owned()));
        }
    } else {
        // Single odd certificates of a system are no reason to trust none.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            let none = "the system has no certificates; name a file";
            return Err(setting(none.to_owned()));
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| setting(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth())
}

fn malformed(error: impl std::fmt::Display) -> GitErrorKind {
    GitErrorKind::Setting {
        field: "url",
        reason: error.to_string(),
    }
}

/// An error with its causes; hyper's own text often says little.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base() -> Url {
        Url::parse("https://host/a/b.git").unwrap()
    }

    fn go(location: &str) -> Result<Url> {
        redirected(&base(), Service::UploadPack, Some(location))
    }

    #[test]
    fn follows_redirects_to_repositories() {
        let query = "info/refs?service=git-upload-pack";
        for (location, expected) in [
            (
                format!("https://other:77/c.git/{query}"),
                "https://other:77/c.git",
            ),
            (format!("/c/{query}"), "https://host/c"),
            (
                format!("https://ann:secret@host/c/{query}"),
                "https://host/c",
            ),
        ] {
            assert_eq!(go(&location).unwrap().as_str(), expected);
        }
    }

    #[test]
    fn refuses_other_redirects() {
        let query = "info/refs?service=git-upload-pack";
        let downgrade = go(&format!("http://host/c/{query}")).unwrap_err();
        assert!(
            matches!(downgrade, GitErrorKind::Protocol { .. }),
            "{downgrade}"
        );
        let scheme = go(&format!("ftp://host/c/{query}")).unwrap_err();
        assert!(matches!(scheme, GitErrorKind::Protocol { .. }), "{scheme}");
        let page = go("https://host/login").unwrap_err();
        assert!(
            matches!(page, GitErrorKind::NotARepository { .. }),
            "{page}"
        );
        let other = go("/c/info/refs?service=git-receive-pack").unwrap_err();
        assert!(
            matches!(other, GitErrorKind::NotARepository { .. }),
            "{other}"
        );
        let nowhere = redirected(&base(), Service::UploadPack, None).unwrap_err();
        assert!(
            matches!(nowhere, GitErrorKind::Protocol { .. }),
            "{nowhere}"
        );
    }

    #[test]
    fn unusable_authorities_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        let text = tls(Some(&path)).unwrap_err().to_string();
        assert!(
            text.starts_with("authorities cannot be used") && text.contains("ca.pem"),
            "{text}"
        );
        std::fs::write(&path, "nothing").unwrap();
        let text = tls(Some(&path)).unwrap_err().to_string();
        assert!(text.contains("it has no certificate"), "{text}");
    }
}
