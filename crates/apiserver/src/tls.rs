//! The identity of a server on a socket: a CA of its own, a server certificate, a token.

use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};

/// Files in the identity's directory.
const CA_CERTIFICATE: &str = "ca.crt";
const CA_KEY: &str = "ca.key";
const TOKEN: &str = "token";

/// Why an identity could not be made or read.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// A file is there but cannot be used. It is left as it is.
    #[error("failed to read {}: {why}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A file could not be written.
    #[error("failed to write {}: {why}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system says.
        why: String,
    },
    /// Certificates could not be made.
    #[error("failed to make certificates: {0}")]
    Certificate(String),
}

/// A CA and a token, kept in a directory if there is one.
pub(crate) struct Identity {
    pub(crate) ca_pem: String,
    pub(crate) token: String,
    ca_key: KeyPair,
}

fn made(error: impl std::fmt::Display) -> IdentityError {
    IdentityError::Certificate(error.to_string())
}

impl Identity {
    /// Reads the identity of a directory, or makes one and keeps it there.
    pub(crate) fn load(dir: Option<&Path>) -> Result<Self, IdentityError> {
        let Some(dir) = dir else {
            return Self::generate();
        };
        let found = [CA_CERTIFICATE, CA_KEY, TOKEN].map(|name| dir.join(name));
        if found.iter().all(|path| !path.exists()) {
            let identity = Self::generate()?;
            identity.save(dir)?;
            return Ok(identity);
        }
        let [certificate, key, token] = found;
        for secret in [dir, &key, &token] {
            // One that is missing is told below.
            if secret.exists() {
                muster_privatefiles::narrow(secret).map_err(|e| IdentityError::Read {
                    path: secret.to_owned(),
                    why: e.to_string(),
                })?;
            }
        }
        let ca_pem = read(&certificate)?;
        CertificateDer::from_pem_slice(ca_pem.as_bytes()).map_err(|e| IdentityError::Read {
            path: certificate,
            why: format!("it holds no certificate: {e}"),
        })?;
        let ca_key = KeyPair::from_pem(&read(&key)?).map_err(|e| IdentityError::Read {
            path: key,
            why: format!("it holds no private key: {e}"),
        })?;
        let text = read(&token)?.trim().to_owned();
        if text.is_empty() {
            return Err(IdentityError::Read {
                path: token,
                why: "it is empty".to_owned(),
            });
        }
        Ok(Self {
            ca_pem,
            token: text,
            ca_key,
        })
    }

    fn generate() -> Result<Self, IdentityError> {
        let ca_key = KeyPair::generate().map_err(made)?;
        let certificate = ca_params()?.self_signed(&ca_key).map_err(made)?;
        let secret: [u8; 32] = rand::random();
        let token = crate::object::hex(&secret);
        Ok(Self {
            ca_pem: certificate.pem(),
            token,
            ca_key,
        })
    }

    fn save(&self, dir: &Path) -> Result<(), IdentityError> {
        muster_privatefiles::create_dir_all(dir).map_err(|e| IdentityError::Write {
            path: dir.to_owned(),
            why: e.to_string(),
        })?;
        write(&dir.join(CA_KEY), &self.ca_key.serialize_pem())?;
        write(&dir.join(TOKEN), &self.token)?;
        write(&dir.join(CA_CERTIFICATE), &self.ca_pem)
    }

    /// TLS for connections to the given address, with a fresh server certificate.
    pub(crate) fn server_config(&self, listen: IpAddr) -> Result<ServerConfig, IdentityError> {
        let issuer = Issuer::new(ca_params()?, &self.ca_key);
        let names = [
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
        ];
        let mut params = CertificateParams::new(names.map(str::to_owned).to_vec()).map_err(made)?;
        for address in [
            listen,
            IpAddr::from([127, 0, 0, 1]),
            IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]),
        ] {
            params.subject_alt_names.push(SanType::IpAddress(address));
        }
        params
            .distinguished_name
            .push(DnType::CommonName, "muster-apiserver");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate().map_err(made)?;
        let certificate = params.signed_by(&key, &issuer).map_err(made)?;
        let private = PrivatePkcs8KeyDer::from(key.serialize_der());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(made)?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], private.into())
            .map_err(made)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

/// The CA's fixed properties: certificates that it signs name it by these.
fn ca_params() -> Result<CertificateParams, IdentityError> {
    let mut params = CertificateParams::new(Vec::new()).map_err(made)?;
    params
        .distinguished_name
        .push(DnType::CommonName, "muster-apiserver-ca");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    Ok(params)
}

fn read(path: &Path) -> Result<String, IdentityError> {
    std::fs::read_to_string(path).map_err(|e| IdentityError::Read {
        path: path.to_owned(),
        why: e.to_string(),
    })
}

fn write(path: &Path, text: &str) -> Result<(), IdentityError> {
    let mut options = std::fs::OpenOptions::new();
    muster_privatefiles::open(path, options.write(true).create_new(true))
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|e| IdentityError::Write {
            path: path.to_owned(),
            why: e.to_string(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_kept_in_its_directory() {
        let dir = tempfile::tempdir().unwrap();
        let first = Identity::load(Some(dir.path())).unwrap();
        let second = Identity::load(Some(dir.path())).unwrap();
        assert_eq!(
            (&first.ca_pem, &first.token),
            (&second.ca_pem, &second.token)
        );
        assert_ne!(Identity::load(None).unwrap().token, first.token);
    }

    #[test]
    fn damaged_files_are_named_and_left_alone() {
        for (name, text) in [(CA_CERTIFICATE, "x"), (CA_KEY, "x"), (TOKEN, "\n")] {
            let dir = tempfile::tempdir().unwrap();
            Identity::load(Some(dir.path())).unwrap();
            std::fs::write(dir.path().join(name), text).unwrap();
            let error = Identity::load(Some(dir.path())).err().unwrap().to_string();
            assert!(error.contains(name), "{error}");
            assert_eq!(
                std::fs::read_to_string(dir.path().join(name)).unwrap(),
                text
            );
        }
        let dir = tempfile::tempdir().unwrap();
        Identity::load(Some(dir.path())).unwrap();
        std::fs::remove_file(dir.path().join(CA_KEY)).unwrap();
        assert!(Identity::load(Some(dir.path())).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn secrets_are_readable_by_their_owner_only() {
        use std::os::unix::fs::PermissionsExt;
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("pki");
        let modes = || {
            let of = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
            [of(&dir), of(&dir.join(CA_KEY)), of(&dir.join(TOKEN))]
        };
        Identity::load(Some(&dir)).unwrap();
        assert_eq!(modes(), [0o700, 0o600, 0o600]);
        // As an earlier version, or a copy, may have left them.
        for (path, mode) in [
            (&dir, 0o755),
            (&dir.join(CA_KEY), 0o644),
            (&dir.join(TOKEN), 0o640),
        ] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        Identity::load(Some(&dir)).unwrap();
        assert_eq!(modes(), [0o700, 0o600, 0o600]);
    }
}
