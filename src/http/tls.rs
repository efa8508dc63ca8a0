//! HTTPS for probes: a certificate made at each start, in memory only.
//!
//! Whoever asks cannot know the certificate; kubelets do not check it. It keeps what is asked from
//! those who listen in on the network, no more.

use std::io;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::version::{TLS12, TLS13};
use tracing::warn;

use crate::settings::TlsVersion;

/// Makes a certificate and the settings of TLS around it.
///
/// `suites` are IANA names and concern TLS 1.2 only, as in Go: the suites of 1.3 are always there.
/// Names that are unknown here are left out with a warning; Go knows more, all of them weaker.
///
/// # Errors
///
/// What the makers of certificates say.
pub fn config(least: Option<TlsVersion>, suites: &[String]) -> io::Result<ServerConfig> {
    let key = rcgen::KeyPair::generate().map_err(io::Error::other)?;
    let names = vec!["localhost".to_owned()];
    let mut params = rcgen::CertificateParams::new(names).map_err(io::Error::other)?;
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, "muster");
    let certificate = params.self_signed(&key).map_err(io::Error::other)?;
    let private = PrivatePkcs8KeyDer::from(key.serialize_der());
    let versions: &[_] = match least {
        None | Some(TlsVersion::V12) => &[&TLS12, &TLS13],
        Some(TlsVersion::V13) => &[&TLS13],
    };
    ServerConfig::builder_with_provider(Arc::new(provider(suites)))
        .with_protocol_versions(versions)
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private.into())
        .map_err(io::Error::other)
}

fn provider(suites: &[String]) -> CryptoProvider {
    let mut provider = ring::default_provider();
    if suites.is_empty() {
        return provider;
    }
    let is_13 = |name: &str| name.starts_with("TLS13_");
    // rustls marks the names of 1.3.
    let iana = |name: &str| name.replace("TLS13_", "TLS_");
    let known = |wanted: &String| {
        let all = &ring::default_provider().cipher_suites;
        all.iter().any(|suite| {
            suite
                .suite()
                .as_str()
                .is_some_and(|name| iana(name) == *wanted)
        })
    };
    for name in suites.iter().filter(|name| !known(name)) {
        warn!(
            name,
            "unknown cipher suite in telemetry.tls_cipher_suites, left out"
        );
    }
    provider.cipher_suites.retain(|suite| {
        let name = suite.suite().as_str().unwrap_or_default();
        is_13(name) || suites.iter().any(|wanted| wanted == name)
    });
    provider
}

#[cfg(test)]
mod tests {
    use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
    use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
    use rustls::{
        ClientConfig, DigitallySignedStruct, Error, ProtocolVersion, SignatureScheme,
        SupportedProtocolVersion,
    };
    use std::net::SocketAddr;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio_rustls::TlsConnector;
    use tokio_util::sync::CancellationToken;

    use super::super::tests::{any_port, probes};
    use super::*;

    /// Takes any certificate, as kubelets do.
    #[derive(Debug)]
    struct Kubelet;

    impl ServerCertVerifier for Kubelet {
        fn verify_server_cert(
            &self,
            _: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            _: UnixTime,
        ) -> Result<ServerCertVerified, Error> {
            Ok(ServerCertVerified::assertion())
        }

        fn verify_tls12_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let schemes = ring::default_provider().signature_verification_algorithms;
            rustls::crypto::verify_tls12_signature(message, certificate, signed, &schemes)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let schemes = ring::default_provider().signature_verification_algorithms;
            rustls::crypto::verify_tls13_signature(message, certificate, signed, &schemes)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            ring::default_provider()
                .signature_verification_algorithms
                .supported_schemes()
        }
    }

    struct Answer {
        text: String,
        version: ProtocolVersion,
        suite: String,
    }

    async fn get(
        address: SocketAddr,
        path: &str,
        version: &'static SupportedProtocolVersion,
    ) -> io::Result<Answer> {
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[version])
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Kubelet))
            .with_no_client_auth();
        let socket = TcpStream::connect(address).await?;
        let name = ServerName::try_from("10.0.0.1").unwrap();
        let connector = TlsConnector::from(Arc::new(config));
        let mut stream = connector.connect(name, socket).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut text = String::new();
        let read = stream.read_to_string(&mut text).await;
        read?;
        let connection = stream.get_ref().1;
        Ok(Answer {
            text,
            version: connection.protocol_version().unwrap(),
            suite: format!(
                "{:?}",
                connection.negotiated_cipher_suite().unwrap().suite()
            ),
        })
    }

    async fn serve(config: ServerConfig) -> (SocketAddr, CancellationToken) {
        let shutdown = CancellationToken::new();
        let served = super::super::serve_tls(any_port(), probes(&[]), config, shutdown.clone());
        let (address, _) = served.await.unwrap();
        (address, shutdown)
    }

    #[tokio::test]
    async fn a_kubelet_gets_its_answers_and_actors_stay_private() {
        let (address, shutdown) = serve(config(None, &[]).unwrap()).await;
        // A client that never speaks holds up nobody.
        let silent = TcpStream::connect(address).await.unwrap();
        for (path, code) in [
            ("/healthz", "200"),
            ("/livez", "200"),
            ("/readyz", "200"),
            ("/metrics", "200"),
            ("/debug/actors", "404"),
            ("/", "404"),
            ("/dashboard/overview", "404"),
        ] {
            let answer = get(address, path, &TLS13).await.unwrap();
            let line = format!("HTTP/1.1 {code} ");
            assert!(answer.text.starts_with(&line), "{path}: {}", answer.text);
            assert_eq!(answer.version, ProtocolVersion::TLSv1_3);
        }
        let answer = get(address, "/healthz", &TLS12).await.unwrap();
        assert_eq!(answer.version, ProtocolVersion::TLSv1_2);
        drop(silent);
        shutdown.cancel();
    }

    #[tokio::test]
    async fn version_and_suites_are_those_asked_for() {
        let (address, shutdown) = serve(config(Some(TlsVersion::V13), &[]).unwrap()).await;
        assert!(get(address, "/healthz", &TLS12).await.is_err());
        get(address, "/healthz", &TLS13).await.unwrap();
        shutdown.cancel();

        let wanted = "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256";
        let suites = [wanted.to_owned(), "TLS_RSA_WITH_RC4_128_SHA".to_owned()];
        let (address, shutdown) = serve(config(None, &suites).unwrap()).await;
        let answer = get(address, "/healthz", &TLS12).await.unwrap();
        assert_eq!(answer.suite, wanted);
        get(address, "/healthz", &TLS13).await.unwrap();
        shutdown.cancel();

        let weak = ["TLS_RSA_WITH_AES_128_CBC_SHA".to_owned()];
        let (address, shutdown) = serve(config(None, &weak).unwrap()).await;
        assert!(get(address, "/healthz", &TLS12).await.is_err());
        get(address, "/healthz", &TLS13).await.unwrap();
        shutdown.cancel();
    }

    #[tokio::test]
    async fn plain_http_is_not_answered() {
        let (address, shutdown) = serve(config(None, &[]).unwrap()).await;
        let mut plain = TcpStream::connect(address).await.unwrap();
        plain
            .write_all(b"GET /healthz HTTP/1.1\r\n\r\n")
            .await
            .unwrap();
        let mut answer = Vec::new();
        let _ = plain.read_to_end(&mut answer).await;
        assert!(!answer.starts_with(b"HTTP"));
        shutdown.cancel();
    }
}
