//! One client's checks, from CONNECT on: mqtt5 asks here whom it may let in, and what a client may
//! publish and read. Each connection has a gate of its own, so that it knows the certificate.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use mqtt5::broker::{AuthProvider, AuthResult};
use mqtt5::packet::connect::ConnectPacket;
use mqtt5::protocol::v5::reason_codes::ReasonCode;
use muster_cloudevents::access::{Access, Principal, Rights};
use tracing::{debug, info};

use crate::identity::{Identities, Unknown};
use crate::metrics::{self, Reason};
use crate::sessions::Sessions;

/// What is the same for all clients.
pub(crate) struct Rules {
    pub(crate) access: Access,
    pub(crate) identities: Identities,
    pub(crate) sessions: Sessions,
}

pub(crate) struct Gate {
    rules: Arc<Rules>,
    /// The name in the client's certificate.
    common_name: Option<String>,
    /// Since CONNECT.
    admitted: OnceLock<Admitted>,
}

struct Admitted {
    client_id: String,
    rights: Rights,
}

type Answer<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

impl Gate {
    pub(crate) fn new(rules: Arc<Rules>, common_name: Option<String>) -> Self {
        Self {
            rules,
            common_name,
            admitted: OnceLock::new(),
        }
    }

    async fn admit(&self, connect: &ConnectPacket) -> Result<Principal, Reason> {
        // Version 4 (3.1.1) has no words for a refused message.
        if connect.protocol_version < 5 {
            return Err(Reason::Version);
        }
        let identities = &self.rules.identities;
        let user = connect.username.as_deref();
        let password = connect.password.as_deref();
        let name = self.common_name.as_deref();
        let identity = identities.identify(name, user, password).await;
        let identity = identity.map_err(|unknown| match unknown {
            Unknown::Credentials => Reason::Credentials,
            Unknown::Certificate => Reason::Certificate,
            Unknown::Anonymous => Reason::Anonymous,
        })?;
        let rights = self.rules.access.rights(&identity.principal);
        let will = connect.will.as_ref();
        if will.is_some_and(|will| !rights.may_publish(&will.topic)) {
            return Err(Reason::Will);
        }
        let client_id = connect.client_id.clone();
        let sessions = &self.rules.sessions;
        sessions.enter(&client_id, &identity.principal).await?;
        info!(client_id, name = identity.name, principal = ?identity.principal, "client admitted");
        // mqtt5 authenticates a connection once.
        if self.admitted.set(Admitted { client_id, rights }).is_ok() {
            metrics::connected();
        }
        Ok(identity.principal)
    }

    fn allows(&self, what: Reason, allowed: impl FnOnce(&Rights) -> bool) -> bool {
        let admitted = self.admitted.get();
        let allowed = admitted.is_some_and(|admitted| allowed(&admitted.rights));
        if !allowed {
            metrics::refused(what);
        }
        allowed
    }

    /// The connection is closed.
    pub(crate) async fn leave(&self) {
        if let Some(admitted) = self.admitted.get() {
            self.rules.sessions.leave(&admitted.client_id).await;
            metrics::disconnected();
        }
    }
}

/// What a refused client gets to know.
fn answer(reason: Reason) -> ReasonCode {
    match reason {
        Reason::Version => ReasonCode::UnsupportedProtocolVersion,
        Reason::Credentials => ReasonCode::BadUsernameOrPassword,
        Reason::ClientId => ReasonCode::ClientIdentifierNotValid,
        Reason::Sessions => ReasonCode::QuotaExceeded,
        _ => ReasonCode::NotAuthorized,
    }
}

/// As which user mqtt5 knows a client. Readers see it as `x-mqtt-sender`.
fn user_id(principal: &Principal) -> String {
    match principal {
        Principal::Source(name) => format!("source/{name}"),
        Principal::Agent(name) => format!("agent/{name}"),
        Principal::Everything => "operator".to_owned(),
    }
}

impl AuthProvider for Gate {
    fn authenticate<'a>(
        &'a self,
        connect: &'a ConnectPacket,
        from: SocketAddr,
    ) -> Answer<'a, mqtt5::Result<AuthResult>> {
        Box::pin(async move {
            Ok(match self.admit(connect).await {
                Ok(principal) => AuthResult::success_with_user(user_id(&principal)),
                Err(reason) => {
                    metrics::refused(reason);
                    debug!(%from, client_id = connect.client_id, ?reason, "client refused");
                    AuthResult::fail(answer(reason))
                }
            })
        })
    }

    fn authorize_publish<'a>(
        &'a self,
        _: &str,
        _: Option<&'a str>,
        topic: &'a str,
    ) -> Answer<'a, bool> {
        let allowed = self.allows(Reason::Publish, |rights| rights.may_publish(topic));
        Box::pin(std::future::ready(allowed))
    }

    fn authorize_subscribe<'a>(
        &'a self,
        _: &str,
        _: Option<&'a str>,
        filter: &'a str,
    ) -> Answer<'a, bool> {
        let allowed = self.allows(Reason::Subscribe, |rights| rights.may_subscribe(filter));
        Box::pin(std::future::ready(allowed))
    }
}
