//! Passwords, kept as argon2 hashes only.

use std::sync::Arc;

use argon2::password_hash::{Output, PasswordHash, PasswordHashString, Salt, SaltString};
use argon2::{Algorithm, Argon2, Block, Params, PasswordHasher, Version};

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

    /// Whether it is the hash of this password. The memory that this takes is kept in `memory`.
    pub(crate) fn matches(&self, password: &[u8], memory: &mut Vec<Block>) -> bool {
        self.compute(password, memory)
            .is_some_and(|(found, wanted)| {
                // Takes as long wherever they differ.
                found == wanted
            })
    }

    fn compute(&self, password: &[u8], memory: &mut Vec<Block>) -> Option<(Output, Output)> {
        let hash = self.0.password_hash();
        let (salt, wanted) = (hash.salt?, hash.hash?);
        let algorithm = Algorithm::try_from(hash.algorithm).ok()?;
        let version = hash.version.map(Version::try_from);
        let version = version.transpose().ok()?.unwrap_or_default();
        let params = Params::try_from(&hash).ok()?;
        let mut bytes = [0; Salt::MAX_LENGTH];
        let salt = salt.decode_b64(&mut bytes).ok()?;
        memory.resize(params.block_count().max(memory.len()), Block::default());
        let found = Output::init_with(wanted.len(), |out| {
            Argon2::new(algorithm, version, params.clone())
                .hash_password_into_with_memory(password, salt, out, &mut memory[..])
                .map_err(|_| argon2::password_hash::Error::Crypto)
        });
        Some((found.ok()?, wanted))
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
        let mut memory = Vec::new();
        let mut matches = |password| hash.matches(password, &mut memory);
        assert!(matches(b"secret"));
        assert!(!matches(b"Secret"));
        assert!(!matches(b""));
        assert!(matches(b"secret"), "in memory that was used before");
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
