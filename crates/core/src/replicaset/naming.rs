//! Deterministic identity of the works of a replica set.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

/// Longest label value that Kubernetes takes.
pub const MAX_LABEL_VALUE: usize = 63;

/// Hex digits of the hash in names: 40 bits. Names must only differ within one cluster namespace,
/// where 1,000 replica sets of one name prefix collide with a chance of 1 in 2 million.
const HASH_DIGITS: usize = 10;

/// Longest ManifestWork name for which the AppliedManifestWork name, which puts a 64-digit hub hash
/// and a dash in front, still fits into 253 characters.
pub const MAX_WORK_NAME: usize = 188;

/// Longest name of an object whose name is a DNS subdomain.
const MAX_NAME: usize = 253;

fn hash<P: AsRef<[u8]>>(parts: &[P]) -> String {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update(part.as_ref());
        digest.update([0]);
    }
    let mut text = String::with_capacity(HASH_DIGITS);
    for byte in digest.finalize().iter().take(HASH_DIGITS / 2) {
        let _ = write!(text, "{byte:02x}"); // a String never fails
    }
    text
}

/// `text` cut to `max` bytes and freed of trailing characters that may not precede a dash or end a
/// name; Kubernetes names are ASCII, so a byte is a character.
fn cut(text: &str, max: usize) -> &str {
    let mut end = text.len().min(max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].trim_end_matches(['-', '.', '_'])
}

/// Value of the owner label on a work: `<namespace>.<name>`, as upstream.
///
/// Differs from upstream: where that is longer than a label value may be, a cut form with a hash
/// is used; upstream creates no work then and reports `InvalidManifestWorkName`.
pub fn owner_label(namespace: &str, name: &str) -> String {
    let plain = format!("{namespace}.{name}");
    if plain.len() <= MAX_LABEL_VALUE {
        return plain;
    }
    let hash = hash(&[namespace, name]);
    format!("{}-{hash}", cut(&plain, MAX_LABEL_VALUE - HASH_DIGITS - 1))
}

/// Name of the work that a replica set keeps in each cluster of a placement.
///
/// Differs from upstream: the same for every try, so that a create that is repeated (a stale
/// cache, a restart, two hubs) meets the existing work instead of adding one; upstream lets the
/// API server generate a name. The hash keeps it apart from works that users create by hand.
pub fn work_name(namespace: &str, name: &str, placement: &str) -> String {
    let hash = hash(&[namespace, name, placement]);
    format!("{}-{hash}", cut(name, MAX_WORK_NAME - HASH_DIGITS - 1))
}

/// Name of the revision that keeps a template of a replica set.
///
/// The same for every try, as with [`work_name`]; with the uid, so that a set that is made anew
/// under an old name does not meet what is left of the old one.
pub fn revision_name(name: &str, uid: &str, template: &[u8; 32]) -> String {
    let hash = hash(&[uid.as_bytes(), template]);
    format!("{}-{hash}", cut(name, MAX_NAME - HASH_DIGITS - 1))
}

/// Value of the placement label on a work: the placement's name, hashed where it is too long.
pub fn placement_label(placement: &str) -> String {
    if placement.len() <= MAX_LABEL_VALUE {
        return placement.to_owned();
    }
    let hash = hash(&[placement]);
    format!(
        "{}-{hash}",
        cut(placement, MAX_LABEL_VALUE - HASH_DIGITS - 1)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C065, K07.
    #[test]
    fn a_label_of_63_characters_stays_and_one_of_64_is_hashed() {
        let name = "n".repeat(63 - "ns.".len());
        assert_eq!(owner_label("ns", &name), format!("ns.{name}"));
        let label = owner_label("ns", &format!("{name}n"));
        assert_eq!(label.len(), 63);
        assert!(label.starts_with("ns.nnn"), "{label}");
        assert_ne!(label, owner_label("ns", &format!("{name}m")));
    }

    #[test]
    fn names_are_stable_distinct_and_short_enough() {
        let name = work_name("default", "web", "all");
        assert_eq!(name, work_name("default", "web", "all"));
        assert!(name.starts_with("web-") && name.len() == 14, "{name}");
        assert_ne!(name, work_name("default", "web", "other"));
        assert_ne!(name, work_name("other", "web", "all"));
        // Without a separator between the hashed parts these two would be one.
        assert_ne!(work_name("a", "b", "cd"), work_name("a", "b", "c"));
        assert!(work_name("ns", &"x".repeat(253), "p").len() <= MAX_WORK_NAME);
        assert!(work_name("ns", &format!("{}.y", "x".repeat(176)), "p").contains("x-"));
    }

    #[test]
    fn revisions_are_told_apart_by_set_and_template() {
        let name = revision_name("web", "uid", &[1; 32]);
        assert!(name.starts_with("web-") && name.len() == 14, "{name}");
        assert_eq!(name, revision_name("web", "uid", &[1; 32]));
        assert_ne!(name, revision_name("web", "uid", &[2; 32]));
        assert_ne!(name, revision_name("web", "other", &[1; 32]));
        assert_eq!(revision_name(&"x".repeat(253), "uid", &[1; 32]).len(), 253);
    }

    #[test]
    fn long_placement_names_become_valid_labels() {
        assert_eq!(placement_label("all"), "all");
        assert_eq!(placement_label(&"p".repeat(200)).len(), 63);
    }
}
