//! Certificates from files, which may be replaced while a connection stands.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use sha2::{Digest, Sha256};
use tracing::warn;

use super::options::{Pem, Tls};

/// Certificates or keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("failed to read {what} {path}: {error}")]
    Read {
        /// What is in it.
        what: &'static str,
        /// The file.
        path: String,
        /// What is wrong.
        error: std::io::Error,
    },
    /// A file, or data, is not what it should be.
    #[error("{what} {path} cannot be used: {error}")]
    Malformed {
        /// What it should be.
        what: &'static str,
        /// The file.
        path: String,
        /// What is wrong.
        error: String,
    },
    /// Certificate and key do not go together.
    #[error("the client certificate {path} and its key do not go together: {error}")]
    Pair {
        /// The file of the certificate.
        path: String,
        /// What is wrong.
        error: String,
    },
}

fn path(pem: &Pem) -> String {
    match pem {
        Pem::File(path) => path.display().to_string(),
        Pem::Data(_) => "in the config".to_owned(),
    }
}

fn bytes(what: &'static str, pem: &Pem) -> Result<Vec<u8>, TlsError> {
    match pem {
        Pem::Data(bytes) => Ok(bytes.clone()),
        Pem::File(file) => std::fs::read(file).map_err(|error| TlsError::Read {
            what,
            path: path(pem),
            error,
        }),
    }
}

fn certificates(what: &'static str, pem: &Pem) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let malformed = |error: String| TlsError::Malformed {
        what,
        path: path(pem),
        error,
    };
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes(what, pem)?).collect();
    let read = read.map_err(|error| malformed(error.to_string()))?;
    if read.is_empty() {
        return Err(malformed("it has no certificate".to_owned()));
    }
    Ok(read)
}

/// What a connection is secured with, read anew for each.
pub(super) struct TlsSource {
    tls: Tls,
    last: Option<(Fingerprint, Arc<ClientConfig>)>,
}

/// Tells one content of the files from another.
pub(super) type Fingerprint = [u8; 32];

impl TlsSource {
    pub(super) const fn new(tls: Tls) -> Self {
        Self { tls, last: None }
    }

    pub(super) const fn check_interval(&self) -> std::time::Duration {
        self.tls.check_interval
    }

    /// What to connect with: the files as they are now or, where they are of no use, as when one of
    /// a pair has not been replaced yet, as they were.
    ///
    /// # Errors
    ///
    /// They are of no use, and never were.
    pub(super) fn load(&mut self) -> Result<Arc<ClientConfig>, TlsError> {
        match self.read() {
            Ok((fingerprint, config)) => {
                self.last = Some((fingerprint, config.clone()));
                Ok(config)
            }
            Err(error) => match &self.last {
                Some((_, config)) => {
                    warn!(%error, "certificates not taken, those before are still used");
                    Ok(config.clone())
                }
                None => Err(error),
            },
        }
    }

    /// Whether the files hold something else than what was loaded, that can be used.
    pub(super) fn has_news(&self) -> bool {
        let last = self.last.as_ref().map(|(fingerprint, _)| fingerprint);
        self.read()
            .is_ok_and(|(fingerprint, _)| Some(&fingerprint) != last)
    }

    fn read(&self) -> Result<(Fingerprint, Arc<ClientConfig>), TlsError> {
        let mut digest = Sha256::new();
        let mut roots = RootCertStore::empty();
        // Roots that cannot be read are none: the certificate of the broker tells.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if let Some(ca) = &self.tls.ca {
            for certificate in certificates("the CA", ca)? {
                digest.update(&certificate);
                roots
                    .add(certificate)
                    .map_err(|error| TlsError::Malformed {
                        what: "the CA",
                        path: path(ca),
                        error: error.to_string(),
                    })?;
            }
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let malformed = |error: rustls::Error| TlsError::Malformed {
            what: "TLS",
            path: String::new(),
            error: error.to_string(),
        };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(malformed)?
            .with_root_certificates(roots);
        let Some((certificate, key)) = &self.tls.identity else {
            let config = config.with_no_client_auth();
            return Ok((digest.finalize().into(), Arc::new(config)));
        };
        let chain = certificates("the client certificate", certificate)?;
        for certificate in &chain {
            digest.update(certificate);
        }
        let bytes = bytes("the client key", key)?;
        digest.update(&bytes);
        let parsed =
            PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| TlsError::Malformed {
                what: "the client key",
                path: path(key),
                error: error.to_string(),
            })?;
        let config = config
            .with_client_auth_cert(chain, parsed)
            .map_err(|error| TlsError::Pair {
                path: path(certificate),
                error: error.to_string(),
            })?;
        Ok((digest.finalize().into(), Arc::new(config)))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    struct Pair {
        certificate: String,
        key: String,
    }

    fn pair() -> Pair {
        let made = rcgen::generate_simple_self_signed(["client".to_owned()]).unwrap();
        Pair {
            certificate: made.cert.pem(),
            key: made.signing_key.serialize_pem(),
        }
    }

    fn source(dir: &Path) -> TlsSource {
        let file = |name: &str| Pem::File(dir.join(name));
        TlsSource::new(Tls {
            ca: None,
            identity: Some((file("crt"), file("key"))),
            check_interval: std::time::Duration::ZERO,
        })
    }

    /// C126: half of a new pair is not used.
    #[test]
    fn a_pair_is_taken_when_both_halves_are_there() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        let (old, new) = (pair(), pair());
        write("crt", &old.certificate);
        write("key", &old.key);
        let mut source = source(dir.path());
        let first = source.load().unwrap();
        assert!(!source.has_news());
        write("key", &new.key);
        assert!(!source.has_news(), "half of it");
        assert!(Arc::ptr_eq(&source.load().unwrap(), &first));
        write("crt", &new.certificate);
        assert!(source.has_news());
        assert!(!Arc::ptr_eq(&source.load().unwrap(), &first));
        assert!(!source.has_news());
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        let error = || source(dir.path()).load().unwrap_err().to_string();
        assert!(error().starts_with("failed to read the client certificate"));
        write("crt", "no PEM");
        assert!(error().ends_with("it has no certificate"), "{}", error());
        write("crt", &pair().certificate);
        assert!(error().starts_with("failed to read the client key"));
        write("key", "no PEM");
        assert!(error().starts_with("the client key"), "{}", error());
        write("key", &pair().key);
        assert!(error().contains("do not go together"), "{}", error());
        let ca = Tls {
            ca: Some(Pem::Data(b"?".to_vec())),
            ..Tls::default()
        };
        let error = TlsSource::new(ca).load().unwrap_err().to_string();
        assert!(
            error.starts_with("the CA in the config cannot be used"),
            "{error}"
        );
    }
}
