//! Passwords, kept as argon2 hashes only.

use std::sync::Arc;

use argon2::password_hash::{PasswordHash, PasswordHashString, SaltString};
use argon2::{Algorithm, Argon2, Params, PasswordHasher, PasswordVerifier};
use tokio::sync::Semaphore;

/// A text is no hash of a password that this broker can verify.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("this is no argon2 hash in PHC form ($argon2id$v=19$…): {0}")]
pub struct HashError(String);

/// The hash of a password, as [`Identities::user`](crate::Identities::user) takes it: argon2id with
/// 19 MiB and two passes, which is OWASP's advice, and a salt of its own.
///
/// # Panics
///
/// Never: the parameters and the length of the salt are fixed.
pub fn hash_password(password: &str) -> String {
    let salt: [u8; 16] = rand::random();
    let salt = SaltString::encode_b64(&salt).expect("16 bytes are a salt");
    let hash = Argon2::default().hash_password(password.as_bytes(), &salt);
    hash.expect("the default parameters are valid").to_string()
}

/// A hash that can be verified.
#[derive(Clone)]
pub(crate) struct Hash(pub(crate) Arc<PasswordHashString>);

impl std::fmt::Debug for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hash(…)")
    }
}

impl Hash {
    pub(crate) fn parse(text: &str) -> Result<Self, HashError> {
        let bad = |error: argon2::password_hash::Error| HashError(error.to_string());
        let hash = PasswordHash::new(text).map_err(bad)?;
        Algorithm::try_from(hash.algorithm).map_err(bad)?;
        Params::try_from(&hash).map_err(bad)?;
        if hash.salt.is_none() || hash.hash.is_none() {
            return Err(HashError("salt or hash is missing".to_owned()));
        }
        Ok(Self(Arc::new(hash.serialize())))
    }

    fn matches(&self, password: &[u8]) -> bool {
        let hash = self.0.password_hash();
        Argon2::default().verify_password(password, &hash).is_ok()
    }
}

/// Verifies passwords off the threads that serve clients.
///
/// A verification takes 19 MiB and some 20 ms of a core. One a core at a time is as fast as more,
/// and keeps a flood of logins from taking all memory.
#[derive(Debug)]
pub(crate) struct Verifier(Arc<Semaphore>);

impl Default for Verifier {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self(Arc::new(Semaphore::new(cores)))
    }
}

impl Verifier {
    pub(crate) async fn verify(&self, hash: &Hash, password: &[u8]) -> bool {
        let (hash, password) = (hash.clone(), password.to_vec());
        let Ok(permit) = Arc::clone(&self.0).acquire_owned().await else {
            return false;
        };
        // The permit goes with the work, which goes on when the client hangs up.
        let verify = move || {
            let matches = hash.matches(&password);
            drop(permit);
            matches
        };
        tokio::task::spawn_blocking(verify).await.unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_of_one_password_and_has_its_own_salt() {
        let [first, second] = [hash_password("secret"), hash_password("secret")];
        assert_ne!(first, second);
        assert!(
            first.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"),
            "{first}"
        );
        let hash = Hash::parse(&first).unwrap();
        assert!(hash.matches(b"secret"));
        assert!(!hash.matches(b"Secret"));
        assert!(!hash.matches(b""));
    }

    #[test]
    fn what_cannot_be_verified_is_refused_at_once() {
        for text in [
            "",
            "secret",
            "$2b$12$abcdefghijklmnopqrstuv",
            "$pbkdf2-sha256$i=1000$c2FsdHNhbHQ$aGFzaGhhc2hoYXNo",
            "$argon2id$v=19$m=19456,t=2,p=1",
            "$argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbHQ",
            "$argon2id$v=19$m=1,t=0,p=1$c2FsdHNhbHQ$aGFzaGhhc2hoYXNo",
        ] {
            let error = Hash::parse(text).unwrap_err().to_string();
            assert!(
                error.contains("no argon2 hash in PHC form"),
                "{text}: {error}"
            );
        }
    }
}
