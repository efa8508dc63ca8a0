//! One client's checks, from CONNECT on: mqtt5 asks here whom it may let in, and what a client may
//! publish and read. Each connection has a gate of its own, so that it knows the certificate.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use mqtt5::broker::{AuthProvider, AuthResult};
use mqtt5::packet::connect::ConnectPacket;
use mqtt5::protocol::v5::reason_codes::ReasonCode;
use muster_cloudevents::access::{Access, Principal, Rights};
use tracing::info;

use crate::identity::{Identities, Unknown};
use crate::metrics::{self, Reason};
use crate::peers::Seat;
use crate::refusals::Refusals;
use crate::retained::Retained;
use crate::sessions::Sessions;
use crate::stream::Wire;

/// What is the same for all clients.
pub(crate) struct Rules {
    pub(crate) access: Access,
    pub(crate) identities: Identities,
    pub(crate) sessions: Sessions,
    pub(crate) retained: Retained,
    pub(crate) refusals: Refusals,
}

pub(crate) struct Gate {
    rules: Arc<Rules>,
    /// The name in the client's certificate.
    common_name: Option<String>,
    seat: Arc<Seat>,
    wire: Arc<Wire>,
    /// Since CONNECT.
    admitted: OnceLock<Admitted>,
}

struct Admitted {
    client_id: String,
    principal: Principal,
    rights: Rights,
    /// The topic of its will, if that is to be retained.
    kept_will: Option<String>,
}

type Answer<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

impl Gate {
    pub(crate) fn new(
        rules: Arc<Rules>,
        common_name: Option<String>,
        seat: Arc<Seat>,
        wire: Arc<Wire>,
    ) -> Self {
        Self {
            rules,
            common_name,
            seat,
            wire,
            admitted: OnceLock::new(),
        }
    }

    async fn admit(
        &self,
        connect: &ConnectPacket,
        from: SocketAddr,
    ) -> Result<Principal, (Reason, String)> {
        // Version 4 (3.1.1) has no words for a refused message.
        if connect.protocol_version < 5 {
            let text = format!("MQTT 5 is needed, not {}", connect.protocol_version);
            return Err((Reason::Version, text));
        }
        let identities = &self.rules.identities;
        let user = connect.username.as_deref();
        let password = connect.password.as_deref();
        let name = self.common_name.as_deref();
        let identity = identities.identify(from.ip(), name, user, password).await;
        let identity = identity.map_err(|unknown| {
            let (reason, text) = match unknown {
                Unknown::Credentials => (Reason::Credentials, "wrong user or password"),
                Unknown::Busy => (Reason::Busy, "too many logins at a time"),
                Unknown::Certificate => (Reason::Certificate, "nobody has this certificate"),
                Unknown::Anonymous => (Reason::Anonymous, "a login is needed"),
            };
            (reason, text.to_owned())
        })?;
        let principal = identity.principal.clone();
        let client_id = connect.client_id.clone();
        if !identities.may_use(&identity, &client_id) {
            let text = format!("the client id is not one of {}", user_id(&principal));
            return Err((Reason::ClientId, text));
        }
        let rights = self.rules.access.rights(&principal);
        let will = connect.will.as_ref();
        if let Some(will) = will.filter(|will| !rights.may_publish(&will.topic)) {
            let text = format!("{} may not have a will there", user_id(&principal));
            let why = (Reason::Will, text);
            tracing::debug!(client_id, topic = will.topic, "will refused");
            return Err(why);
        }
        if !self.seat.keep() {
            return Err((Reason::HalfOpen, "the login took too long".to_owned()));
        }
        let sessions = &self.rules.sessions;
        sessions
            .enter(&client_id, &principal)
            .await
            .map_err(|reason| {
                let text = match reason {
                    Reason::Sessions => "there are too many sessions",
                    _ => "another user has this client id",
                };
                (reason, text.to_owned())
            })?;
        let kind = if identity.certified {
            "certificate"
        } else {
            "user"
        };
        info!(
            client_id,
            name = identity.name,
            kind,
            ?principal,
            "client admitted"
        );
        let kept_will = will
            .filter(|will| will.retain)
            .map(|will| will.topic.clone());
        let admitted = Admitted {
            client_id,
            principal: principal.clone(),
            rights,
            kept_will,
        };
        // mqtt5 authenticates a connection once.
        if self.admitted.set(admitted).is_ok() {
            metrics::connected();
        }
        Ok(principal)
    }

    /// Whether the client may publish this; a refusal for its share has its own words.
    fn may_publish(&self, topic: &str) -> bool {
        let publish = self.wire.next_publish();
        let Some(admitted) = self.admitted.get() else {
            return false;
        };
        if !admitted.rights.may_publish(topic) {
            metrics::refused(Reason::Publish);
            return false;
        }
        let retained = &self.rules.retained;
        match publish {
            Some(publish) if publish.keeps => {
                let allowed = retained.keep(topic, &admitted.principal);
                if !allowed {
                    metrics::refused(Reason::Retained);
                    let text = "too many retained topics of this user";
                    self.wire.refuse(ReasonCode::QuotaExceeded, text);
                }
                allowed
            }
            Some(publish) => {
                if publish.forgets {
                    retained.forget(topic);
                }
                true
            }
            None => {
                if admitted.kept_will.as_deref() == Some(topic) {
                    retained.keep_will(topic, &admitted.principal);
                }
                true
            }
        }
    }

    fn may_subscribe(&self, filter: &str) -> bool {
        let admitted = self.admitted.get();
        let allowed = admitted.is_some_and(|admitted| admitted.rights.may_subscribe(filter));
        if !allowed {
            metrics::refused(Reason::Subscribe);
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
        Reason::Busy | Reason::HalfOpen => ReasonCode::ServerBusy,
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
            Ok(match self.admit(connect, from).await {
                Ok(principal) => AuthResult::success_with_user(user_id(&principal)),
                Err((reason, text)) => {
                    let refusals = &self.rules.refusals;
                    refusals.note(reason, from.ip(), &connect.client_id, &text);
                    // CONNACK of version 4 has no properties.
                    if reason != Reason::Version {
                        self.wire.refuse(answer(reason), text);
                    }
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
        Box::pin(std::future::ready(self.may_publish(topic)))
    }

    fn authorize_subscribe<'a>(
        &'a self,
        _: &str,
        _: Option<&'a str>,
        filter: &'a str,
    ) -> Answer<'a, bool> {
        Box::pin(std::future::ready(self.may_subscribe(filter)))
    }
}
