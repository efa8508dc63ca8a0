//! Who makes a request.

use std::collections::BTreeMap;

use serde::Serialize;

/// Members may do everything; no rule is looked at for them.
pub(crate) const MASTERS: &str = "system:masters";
const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";
const ANONYMOUS: &str = "system:anonymous";
const SERVICE_ACCOUNTS: &str = "system:serviceaccounts";
const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// A user as authentication or impersonation gives it. Serialised as
/// `authentication.k8s.io/v1` `UserInfo`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UserInfo {
    /// Name that rules and messages know the user by.
    pub username: String,
    /// Tells users of the same name apart over time; may be empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Groups that the user is in.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// What else the authenticator knows, by lower-case key.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

impl UserInfo {
    /// A user without groups.
    pub fn new(username: impl Into<String>) -> Self {
        Self {
            username: username.into(),
            ..Self::default()
        }
    }

    /// The user in one more group.
    #[must_use]
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.groups.push(group.into());
        self
    }

    /// A service account with the groups that all service accounts have.
    pub fn service_account(namespace: &str, name: &str) -> Self {
        let mut user = Self::new(format!("{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}"));
        user.groups = service_account_groups(namespace);
        user.authenticated()
    }

    /// The administrator, who may do everything.
    pub(crate) fn admin() -> Self {
        Self::new("system:admin").group(MASTERS).authenticated()
    }

    /// The server itself.
    pub(crate) fn server() -> Self {
        Self::new("system:apiserver").group(MASTERS).authenticated()
    }

    /// Whoever sends no credentials.
    pub(crate) fn anonymous() -> Self {
        Self::new(ANONYMOUS).authenticated()
    }

    /// The user with the group that tells whether it has authenticated, which every user has.
    pub(crate) fn authenticated(self) -> Self {
        let group = if self.username == ANONYMOUS {
            UNAUTHENTICATED
        } else if self.is_in(UNAUTHENTICATED) {
            return self;
        } else {
            AUTHENTICATED
        };
        if self.is_in(group) {
            self
        } else {
            self.group(group)
        }
    }

    pub(crate) fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }

    /// True for those who may do everything.
    pub(crate) fn is_master(&self) -> bool {
        self.is_in(MASTERS)
    }

    /// True when this is the named service account.
    pub(crate) fn is_service_account(&self, namespace: &str, name: &str) -> bool {
        split_service_account(&self.username) == Some((namespace, name))
    }
}

/// Groups of every service account of a namespace.
pub(crate) fn service_account_groups(namespace: &str) -> Vec<String> {
    vec![
        SERVICE_ACCOUNTS.to_owned(),
        format!("{SERVICE_ACCOUNTS}:{namespace}"),
    ]
}

/// Namespace and name, if the user name is that of a service account.
pub(crate) fn split_service_account(username: &str) -> Option<(&str, &str)> {
    let (namespace, name) = username
        .strip_prefix(SERVICE_ACCOUNT_PREFIX)?
        .split_once(':')?;
    let valid =
        crate::validation::is_dns_label(namespace) && crate::validation::is_dns_subdomain(name);
    valid.then_some((namespace, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_user_has_authenticated_or_not() {
        assert_eq!(
            UserInfo::new("u").group("g").authenticated().groups,
            ["g", "system:authenticated"]
        );
        assert_eq!(
            UserInfo::anonymous().authenticated().groups,
            ["system:unauthenticated"]
        );
        let told = UserInfo::new("u").group("system:unauthenticated");
        assert_eq!(told.authenticated().groups, ["system:unauthenticated"]);
    }

    #[test]
    fn service_accounts_are_known_by_their_names() {
        let account = UserInfo::service_account("ns", "sa");
        assert_eq!(account.username, "system:serviceaccount:ns:sa");
        assert_eq!(
            account.groups,
            [
                "system:serviceaccounts",
                "system:serviceaccounts:ns",
                "system:authenticated"
            ]
        );
        assert!(account.is_service_account("ns", "sa"));
        assert!(!account.is_service_account("ns", "s"));
        for other in [
            "system:serviceaccount:ns",
            "sa",
            "system:serviceaccount:A:sa",
        ] {
            assert_eq!(split_service_account(other), None, "{other}");
        }
    }
}
