//! The file that says who may connect to the broker.

use muster_broker::{Identities, IdentityError};
use muster_cloudevents::access::Principal;

/// What a line looks like.
const FORM: &str = "expected `user NAME HASH` or `certificate NAME`, and then `agent CLUSTER`, \
                    `source ID` or `everything`";

/// A line is none of the file's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {FORM}")]
pub struct UsersError {
    line: usize,
}

/// Who may connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct User {
    name: String,
    /// Of a user; a certificate has none.
    hash: Option<String>,
    principal: Principal,
}

impl User {
    pub(super) fn add_to(&self, identities: Identities) -> Result<Identities, IdentityError> {
        let principal = self.principal.clone();
        match &self.hash {
            Some(hash) => identities.user(&self.name, hash, principal),
            None => identities.certificate(&self.name, principal),
        }
    }
}

/// Reads the file. Empty lines and those that begin with `#` mean nothing.
pub(super) fn read(text: &str) -> Result<Vec<User>, UsersError> {
    let lines = text.lines().map(str::trim).zip(1..);
    let lines = lines.filter(|(line, _)| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|(text, line)| user(text).ok_or(UsersError { line }))
        .collect()
}

fn user(line: &str) -> Option<User> {
    let words: Vec<_> = line.split_whitespace().collect();
    let (name, hash, role) = match words.as_slice() {
        ["user", name, hash, role @ ..] => (name, Some((*hash).to_owned()), role),
        ["certificate", name, role @ ..] => (name, None, role),
        _ => return None,
    };
    let principal = match role {
        ["agent", cluster] => Principal::Agent((*cluster).to_owned()),
        ["source", id] => Principal::Source((*id).to_owned()),
        ["everything"] => Principal::Everything,
        _ => return None,
    };
    Some(User {
        name: (*name).to_owned(),
        hash,
        principal,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_somebody() {
        let text = "# who\n\nuser a $argon2id$x agent edge-a\n  certificate c source hub\nuser o h everything\n";
        let users = read(text).unwrap();
        assert_eq!(users.len(), 3);
        assert_eq!(users[0].principal, Principal::Agent("edge-a".to_owned()));
        assert_eq!(users[0].hash.as_deref(), Some("$argon2id$x"));
        assert_eq!((users[1].name.as_str(), &users[1].hash), ("c", &None));
        assert_eq!(users[2].principal, Principal::Everything);
    }

    #[test]
    fn a_line_that_is_nobody_is_named() {
        for line in [
            "user a",
            "user a h agent",
            "user a h agent b c",
            "certificate c",
            "a h agent b",
            "user a h king b",
        ] {
            let error = read(&format!("# who\n{line}\n")).unwrap_err();
            assert!(
                error
                    .to_string()
                    .starts_with("line 2: expected `user NAME HASH`")
            );
        }
    }
}
