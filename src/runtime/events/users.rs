//! The file that says who may connect to the broker.

use muster_broker::{Identities, IdentityError};
use muster_cloudevents::access::Principal;

/// What a line looks like.
const FORM: &str = "expected `user NAME HASH` or `certificate NAME`, then `agent CLUSTER`, \
                    `source ID` or `everything`, and then maybe `client-id ID…`";

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
    /// Client ids that it may use beside those derived from its name.
    client_ids: Vec<String>,
}

impl User {
    pub(super) fn add_to(&self, identities: Identities) -> Result<Identities, IdentityError> {
        let principal = self.principal.clone();
        let identities = match &self.hash {
            Some(hash) => identities.user(&self.name, hash, principal),
            None => identities.certificate(&self.name, principal),
        }?;
        let mut ids = self.client_ids.iter();
        ids.try_fold(identities, |identities, id| {
            identities.client_id(id, &self.principal)
        })
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
    let (principal, rest) = match role {
        ["agent", cluster, rest @ ..] => (Principal::Agent((*cluster).to_owned()), rest),
        ["source", id, rest @ ..] => (Principal::Source((*id).to_owned()), rest),
        ["everything", rest @ ..] => (Principal::Everything, rest),
        _ => return None,
    };
    let client_ids = match rest {
        [] => Vec::new(),
        ["client-id", ids @ ..] if !ids.is_empty() => {
            ids.iter().map(|id| (*id).to_owned()).collect()
        }
        _ => return None,
    };
    Some(User {
        name: (*name).to_owned(),
        hash,
        principal,
        client_ids,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_somebody() {
        let text = "# who\n\nuser a $argon2id$x agent edge-a\n  certificate c source hub\nuser o h everything\nuser b h agent edge-b client-id factory-7 factory-8\n";
        let users = read(text).unwrap();
        assert_eq!(users.len(), 4);
        assert_eq!(users[3].client_ids, ["factory-7", "factory-8"]);
        assert!(users[0].client_ids.is_empty());
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
            "user a h agent b client-id",
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
