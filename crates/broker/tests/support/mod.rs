//! What the tests share.

#![allow(dead_code, reason = "each test binary uses its own part")]

pub(crate) mod certificates;
pub(crate) mod client;
pub(crate) mod mosquitto;

use std::time::Duration;

/// Longest wait for something that should happen at once.
pub(crate) const SOON: Duration = Duration::from_secs(45);

/// The hash of a password, with parameters that cost next to nothing.
pub(crate) fn cheap_hash(password: &str) -> String {
    use argon2::password_hash::{PasswordHasher, SaltString};
    let params = argon2::Params::new(8, 1, 1, None).unwrap();
    let salt = SaltString::encode_b64(b"salt of a test").unwrap();
    argon2::Argon2::new(argon2::Algorithm::Argon2id, argon2::Version::V0x13, params)
        .hash_password(password.as_bytes(), &salt)
        .unwrap()
        .to_string()
}
