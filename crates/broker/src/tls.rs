//! TLS: certificates and keys in PEM files.
//!
//! TLS 1.2 and 1.3, as rustls has them; older versions do not exist in it. A client may show a
//! certificate where there is a CA for them, and has to log in otherwise.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The files of a broker that speaks TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The broker's certificate, and what is between it and its CA.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// Who signs the certificates of clients, if they may have any.
    pub client_ca: Option<PathBuf>,
}

/// A file is not as it should be. Each error names it.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// It cannot be read.
    #[error("cannot read {}: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// It is no PEM, or has something else in it.
    #[error("{} is no PEM file with {what}", file.display())]
    Pem {
        /// The file.
        file: PathBuf,
        /// What should be in it.
        what: &'static str,
    },
    /// The certificate, the key or the CA cannot be used, or they do not belong together.
    #[error("{} cannot be used: {reason}", file.display())]
    Unusable {
        /// The file.
        file: PathBuf,
        /// Why.
        reason: String,
    },
}

fn read(file: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(file).map_err(|source| TlsError::Read {
        file: file.to_owned(),
        source,
    })
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = read(file)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(TlsError::Pem {
            file: file.to_owned(),
            what: "certificates",
        }),
    }
}

fn unusable<E: std::fmt::Display>(file: &Path) -> impl FnOnce(E) -> TlsError {
    let file = file.to_owned();
    move |error| TlsError::Unusable {
        file,
        reason: error.to_string(),
    }
}

impl TlsFiles {
    pub(crate) fn acceptor(&self) -> Result<TlsAcceptor, TlsError> {
        let chain = certificates(&self.certificate)?;
        let key = PrivateKeyDer::from_pem_slice(&read(&self.key)?);
        let key = key.map_err(|_| TlsError::Pem {
            file: self.key.clone(),
            what: "a private key",
        })?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(unusable(&self.certificate))?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(file) => {
                let mut roots = RootCertStore::empty();
                for root in certificates(file)? {
                    roots.add(root).map_err(unusable(file))?;
                }
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                        .allow_unauthenticated()
                        .build()
                        .map_err(unusable(file))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let config = builder.with_single_cert(chain, key);
        let mut config = config.map_err(unusable(&self.certificate))?;
        config.alpn_protocols = vec![b"mqtt".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

/// The common name in a certificate, if it has exactly one.
pub(crate) fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let mut names = certificate.subject().iter_common_name();
    let name = names.next()?.as_str().ok()?.to_owned();
    names.next().is_none().then_some(name)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn files(dir: &Path) -> TlsFiles {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let files = TlsFiles {
            certificate: dir.join("tls.crt"),
            key: dir.join("tls.key"),
            client_ca: Some(dir.join("ca.crt")),
        };
        fs::write(&files.certificate, made.cert.pem()).unwrap();
        fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
        fs::write(dir.join("ca.crt"), made.cert.pem()).unwrap();
        files
    }

    #[test]
    fn a_wrong_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let good = files(dir.path());
        assert!(good.acceptor().is_ok());
        let other = tempfile::tempdir().unwrap();
        files(other.path());
        let junk = dir.path().join("junk");
        fs::write(
            &junk,
            "-----BEGIN CERTIFICATE-----\nnone\n-----END CERTIFICATE-----",
        )
        .unwrap();
        let none = dir.path().join("none");
        for (change, named) in [
            (
                TlsFiles {
                    certificate: none.clone(),
                    ..good.clone()
                },
                "none",
            ),
            (
                TlsFiles {
                    key: none.clone(),
                    ..good.clone()
                },
                "none",
            ),
            (
                TlsFiles {
                    client_ca: Some(none),
                    ..good.clone()
                },
                "none",
            ),
            (
                TlsFiles {
                    certificate: junk.clone(),
                    ..good.clone()
                },
                "junk",
            ),
            (
                TlsFiles {
                    key: junk.clone(),
                    ..good.clone()
                },
                "junk",
            ),
            (
                TlsFiles {
                    client_ca: Some(junk),
                    ..good.clone()
                },
                "junk",
            ),
            (
                TlsFiles {
                    certificate: good.key.clone(),
                    ..good.clone()
                },
                "tls.key",
            ),
            (
                TlsFiles {
                    key: good.certificate.clone(),
                    ..good.clone()
                },
                "tls.crt",
            ),
            (
                TlsFiles {
                    key: other.path().join("tls.key"),
                    ..good.clone()
                },
                "tls.crt",
            ),
        ] {
            let Err(error) = change.acceptor() else {
                unreachable!("{change:?} is wrong");
            };
            assert!(error.to_string().contains(named), "{error}");
        }
    }

    #[test]
    fn a_certificate_has_one_common_name_or_none_counts() {
        let named = |names: &[&str]| {
            let mut params = rcgen::CertificateParams::default();
            params.distinguished_name = rcgen::DistinguishedName::new();
            for name in names {
                params
                    .distinguished_name
                    .push(rcgen::DnType::CommonName, *name);
            }
            let key = rcgen::KeyPair::generate().unwrap();
            common_name(params.self_signed(&key).unwrap().der())
        };
        assert_eq!(named(&["c1"]).as_deref(), Some("c1"));
        assert_eq!(named(&[]), None);
        assert_eq!(common_name(&CertificateDer::from(vec![0x30, 0x00])), None);
    }
}
