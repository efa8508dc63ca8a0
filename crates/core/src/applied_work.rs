//! Names of `AppliedManifestWork`s: `<hub hash>-<work name>`.

use std::fmt::Write as _; // Writing to a String cannot fail.

use sha2::{Digest, Sha256};

/// Longest name of a work whose `AppliedManifestWork` still has a valid name: 253 bytes, less the
/// hash and the hyphen.
pub const MAX_WORK_NAME_BYTES: usize = 253 - 64 - 1;

/// The hash of a hub: SHA-256, in lower-case hex, of the URL of its API server, or of the
/// broker's address, exactly as it is written in the agent's settings. Two spellings of one URL
/// make two hubs.
pub fn hub_hash(url: &str) -> String {
    Sha256::digest(url)
        .iter()
        .fold(String::with_capacity(64), |mut hash, byte| {
            let _ = write!(hash, "{byte:02x}");
            hash
        })
}

/// The name of the `AppliedManifestWork` of a work.
pub fn applied_work_name(hub_hash: &str, work: &str) -> String {
    format!("{hub_hash}-{work}")
}

/// Whether an `AppliedManifestWork` belongs to a hub. As in the reference only its first
/// characters decide.
pub fn belongs_to_hub(hub_hash: &str, applied_work: &str) -> bool {
    applied_work.starts_with(hub_hash)
}

/// The name of the work of an `AppliedManifestWork`, if that belongs to the hub.
pub fn work_name<'a>(hub_hash: &str, applied_work: &'a str) -> Option<&'a str> {
    let rest = applied_work.strip_prefix(hub_hash)?;
    Some(rest.strip_prefix('-').unwrap_or(applied_work))
}
