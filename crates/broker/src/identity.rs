//! Who a client is.
//!
//! In this order: by the name in its certificate, where that is known; by user and password, where
//! it gives a user; as an anonymous client, where that is allowed. So a client with a certificate
//! that a proxy or another server gave it can still log in, and a wrong password never falls back.

use std::collections::HashMap;
use std::net::IpAddr;

use muster_cloudevents::access::Principal;

use crate::client_ids::ClientIds;
use crate::password::{Hash, HashError};
use crate::verifier::{Verdict, Verifier};

/// The clients that a broker knows.
#[derive(Debug, Default)]
pub struct Identities {
    users: HashMap<String, (Hash, Principal)>,
    certificates: HashMap<String, Principal>,
    anonymous: Option<Principal>,
    /// What the password of an unknown user is verified against, so that it takes as long.
    decoy: Option<Hash>,
    verifier: Verifier,
    client_ids: ClientIds,
}

/// A client cannot be set up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// The hash of a password is none.
    #[error("user {user:?}: {source}")]
    Hash {
        /// The user.
        user: String,
        /// What is wrong.
        source: HashError,
    },
    /// A name is there twice.
    #[error("{what} {name:?} is there twice")]
    Twice {
        /// A user, a certificate or a client id.
        what: &'static str,
        /// Its name.
        name: String,
    },
}

/// A client, as it is known after CONNECT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    /// By what it is known; nothing for anonymous clients.
    pub(crate) name: Option<String>,
    /// Whether that is the name in a certificate.
    pub(crate) certified: bool,
    pub(crate) principal: Principal,
}

/// Why a client is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unknown {
    Credentials,
    /// Too many log in at a time.
    Busy,
    Certificate,
    Anonymous,
}

impl Identities {
    /// Lets a user in who knows the password of this hash; see
    /// [`hash_password`](crate::hash_password).
    ///
    /// # Errors
    ///
    /// The hash is none of argon2, or the user is there already.
    pub fn user(
        mut self,
        name: &str,
        hash: &str,
        principal: Principal,
    ) -> Result<Self, IdentityError> {
        let hash = Hash::parse(hash).map_err(|source| IdentityError::Hash {
            user: name.to_owned(),
            source,
        })?;
        self.decoy.get_or_insert_with(|| hash.clone());
        self.know(name, &principal);
        match self.users.insert(name.to_owned(), (hash, principal)) {
            None => Ok(self),
            Some(_) => Err(IdentityError::Twice {
                what: "user",
                name: name.to_owned(),
            }),
        }
    }

    /// Lets the holder of a certificate with this common name in. Certificates that OCM gives its
    /// agents (`system:open-cluster-management:<cluster>:<agent>`) are known without.
    ///
    /// # Errors
    ///
    /// The name is there already.
    pub fn certificate(
        mut self,
        common_name: &str,
        principal: Principal,
    ) -> Result<Self, IdentityError> {
        self.know(common_name, &principal);
        match self.certificates.insert(common_name.to_owned(), principal) {
            None => Ok(self),
            Some(_) => Err(IdentityError::Twice {
                what: "certificate",
                name: common_name.to_owned(),
            }),
        }
    }

    /// Lets a principal use a client id that is not derived from its name, and nobody else. Those
    /// that are (`edge-1-work-agent` of the agent of `edge-1`) need no entry.
    ///
    /// # Errors
    ///
    /// The client id is another's already.
    pub fn client_id(
        mut self,
        client_id: &str,
        principal: &Principal,
    ) -> Result<Self, IdentityError> {
        if self.client_ids.list(client_id, principal) {
            return Ok(self);
        }
        Err(IdentityError::Twice {
            what: "client id",
            name: client_id.to_owned(),
        })
    }

    fn know(&mut self, login: &str, principal: &Principal) {
        self.client_ids.name(login, principal);
        if let Principal::Agent(name) | Principal::Source(name) = principal {
            self.client_ids.name(name, principal);
        }
    }

    /// Certificates name clusters that are on no list.
    pub(crate) fn expect_unlisted(&mut self) {
        self.client_ids.open();
    }

    /// Whether a client may call itself so.
    pub(crate) fn may_use(&self, identity: &Identity, client_id: &str) -> bool {
        let login = identity.name.as_deref();
        self.client_ids
            .may_use(&identity.principal, login, client_id)
    }

    /// Lets clients in that say nothing about themselves. They are this principal.
    #[must_use]
    pub fn allow_anonymous(mut self, principal: Principal) -> Self {
        if let Principal::Agent(name) | Principal::Source(name) = &principal {
            self.client_ids.name(name, &principal);
        }
        self.anonymous = Some(principal);
        self
    }

    /// Everyone who is set up by name, and how to call him.
    pub(crate) fn principals(&self) -> impl Iterator<Item = (String, &Principal)> {
        let users = self.users.iter();
        let users = users.map(|(name, (_, principal))| (format!("user {name:?}"), principal));
        let certificates = self.certificates.iter();
        let certificates =
            certificates.map(|(name, principal)| (format!("certificate {name:?}"), principal));
        let anonymous = self.anonymous.iter();
        let anonymous = anonymous.map(|principal| ("anonymous clients".to_owned(), principal));
        users.chain(certificates).chain(anonymous)
    }

    pub(crate) fn has_certificates(&self) -> bool {
        !self.certificates.is_empty()
    }

    /// Who a client is that shows this name in its certificate and says this about itself.
    pub(crate) async fn identify(
        &self,
        from: IpAddr,
        common_name: Option<&str>,
        user: Option<&str>,
        password: Option<&[u8]>,
    ) -> Result<Identity, Unknown> {
        if let Some(name) = common_name
            && let Some(principal) = self.holder(name)
        {
            return Ok(Identity {
                name: Some(name.to_owned()),
                certified: true,
                principal,
            });
        }
        // A password without a user is a login, too.
        if user.is_some() || password.is_some() {
            let user = user.unwrap_or_default();
            let password = password.unwrap_or_default();
            return self.login(from, user, password).await;
        }
        match &self.anonymous {
            Some(principal) => Ok(Identity {
                name: None,
                certified: false,
                principal: principal.clone(),
            }),
            None if common_name.is_some() => Err(Unknown::Certificate),
            None => Err(Unknown::Anonymous),
        }
    }

    fn holder(&self, common_name: &str) -> Option<Principal> {
        let known = self.certificates.get(common_name).cloned();
        known.or_else(|| cluster_of(common_name).map(|name| Principal::Agent(name.to_owned())))
    }

    async fn login(&self, from: IpAddr, user: &str, password: &[u8]) -> Result<Identity, Unknown> {
        let known = self.users.get(user);
        let Some(hash) = known.map(|(hash, _)| hash).or(self.decoy.as_ref()) else {
            return Err(Unknown::Credentials);
        };
        match (
            self.verifier.verify(from, user, hash, password).await,
            known,
        ) {
            (Verdict::Right, Some((_, principal))) => Ok(Identity {
                name: Some(user.to_owned()),
                certified: false,
                principal: principal.clone(),
            }),
            (Verdict::Busy, _) => Err(Unknown::Busy),
            (Verdict::Right | Verdict::Wrong, _) => {
                self.verifier.slow_down(from).await;
                Err(Unknown::Credentials)
            }
        }
    }
}

/// The cluster in the common name of an agent's certificate, as OCM's hub signs them.
fn cluster_of(common_name: &str) -> Option<&str> {
    let rest = common_name.strip_prefix("system:open-cluster-management:")?;
    let (cluster, agent) = rest.split_once(':')?;
    (!cluster.is_empty() && !agent.is_empty() && !agent.contains(':')).then_some(cluster)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn agent(name: &str) -> Principal {
        Principal::Agent(name.to_owned())
    }

    /// A hash that costs next to nothing.
    fn hash(password: &str) -> String {
        use argon2::password_hash::{PasswordHasher, SaltString};
        let params = argon2::Params::new(8, 1, 1, None).unwrap();
        let salt = SaltString::encode_b64(b"salt of a test").unwrap();
        argon2::Argon2::new(argon2::Algorithm::Argon2id, argon2::Version::V0x13, params)
            .hash_password(password.as_bytes(), &salt)
            .unwrap()
            .to_string()
    }

    fn known() -> Identities {
        Identities::default()
            .user("one", &hash("secret"), agent("c1"))
            .unwrap()
            .certificate("hub", Principal::Source("hub1".to_owned()))
            .unwrap()
    }

    #[test]
    fn certificates_of_ocm_name_their_cluster() {
        for (name, cluster) in [
            ("system:open-cluster-management:c1:agent-x", Some("c1")),
            ("system:open-cluster-management:c1", None),
            ("system:open-cluster-management:c1:", None),
            ("system:open-cluster-management::agent", None),
            ("system:open-cluster-management:c1:addon:x", None),
            ("system:open-cluster-managementc1:agent", None),
            ("c1", None),
        ] {
            assert_eq!(cluster_of(name), cluster, "{name}");
        }
    }

    #[tokio::test]
    async fn a_known_certificate_comes_first_then_the_password() {
        let known = known();
        let by = async |name, user: Option<&str>, password: Option<&str>| {
            let password = password.map(str::as_bytes);
            let identity = known.identify(HERE, name, user, password).await;
            identity.map(|identity| identity.principal)
        };
        let source = Ok(Principal::Source("hub1".to_owned()));
        assert_eq!(by(Some("hub"), None, None).await, source);
        assert_eq!(by(Some("hub"), Some("one"), Some("no")).await, source);
        let ocm = Some("system:open-cluster-management:c2:a");
        assert_eq!(by(ocm, None, None).await, Ok(agent("c2")));
        let login = by(Some("other"), Some("one"), Some("secret")).await;
        assert_eq!(login, Ok(agent("c1")));
        assert_eq!(
            by(Some("other"), None, None).await,
            Err(Unknown::Certificate)
        );
        assert_eq!(by(None, None, None).await, Err(Unknown::Anonymous));
    }

    /// Also where anonymous clients are let in.
    #[tokio::test]
    async fn a_failed_login_never_falls_back() {
        for known in [known(), known().allow_anonymous(Principal::Everything)] {
            for (user, password) in [
                (Some("one"), Some("wrong")),
                (Some("one"), None),
                (Some("two"), Some("secret")),
                (Some(""), Some("secret")),
                (None, Some("secret")),
            ] {
                let found = known
                    .identify(HERE, None, user, password.map(str::as_bytes))
                    .await;
                assert_eq!(found, Err(Unknown::Credentials), "{user:?} {password:?}");
            }
        }
    }

    /// The cost of a login is that of the hash, and an unknown user has one.
    #[test]
    fn unknown_users_are_verified_against_a_real_hash() {
        let known = known();
        assert_eq!(known.decoy.unwrap().0, known.users["one"].0.0);
    }

    #[test]
    fn names_are_there_once_and_hashes_are_hashes() {
        let error = known().user("one", &hash("x"), agent("c2")).unwrap_err();
        assert_eq!(error.to_string(), "user \"one\" is there twice");
        let error = known().certificate("hub", agent("c2")).unwrap_err();
        assert_eq!(error.to_string(), "certificate \"hub\" is there twice");
        let error = known().user("two", "secret", agent("c2")).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("user \"two\": this is no argon2 hash")
        );
    }
}
