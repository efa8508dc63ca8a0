//! Who may do what: users, impersonation, RBAC, access reviews.

mod attributes;
mod bootstrap;
pub(crate) mod escalation;
mod impersonation;
mod policy;
pub(crate) mod review;
mod rule;
mod user;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use http::request;
use k8s_openapi::api::authorization::v1::SubjectAccessReviewSpec;

pub(crate) use bootstrap::objects as first_objects;
pub use user::UserInfo;

use attributes::{Attributes, ResourceAccess};
use policy::Policy;

use crate::http::path::Target;
use crate::http::query::Query;
use crate::server::Inner;
use crate::status::ApiResult;
use crate::store::{Scope, Store};
use crate::verbs::call::Call;

pub(crate) const ROLES: &str = "roles.rbac.authorization.k8s.io";
pub(crate) const CLUSTER_ROLES: &str = "clusterroles.rbac.authorization.k8s.io";
pub(crate) const BINDINGS: &str = "rolebindings.rbac.authorization.k8s.io";
pub(crate) const CLUSTER_BINDINGS: &str = "clusterrolebindings.rbac.authorization.k8s.io";

/// Whether requests need rights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Authorization {
    /// Every authenticated user may do everything.
    #[default]
    AlwaysAllow,
    /// Roles and bindings decide, as with kube-apiserver's `--authorization-mode=RBAC`.
    /// Members of `system:masters` may do everything.
    Rbac,
}

/// What an authorizer says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// It may be done.
    pub allowed: bool,
    /// Why; may be empty.
    pub reason: String,
}

/// Answers access reviews, for admission that has to know what somebody may do.
pub trait Authorize: Send + Sync {
    /// Decides on the review's request. One that names neither a resource nor a path is denied.
    fn review(&self, spec: &SubjectAccessReviewSpec) -> Decision;
}

impl fmt::Debug for dyn Authorize + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authorize")
    }
}

/// The server's authorizer.
#[derive(Debug)]
pub(crate) struct Authorizer {
    pub(crate) mode: Authorization,
    /// What was read last, and the state of the store that it was read from.
    read: Mutex<Option<([u64; 4], Arc<Policy>)>>,
}

impl Authorizer {
    pub(crate) fn new(mode: Authorization) -> Self {
        Self {
            mode,
            read: Mutex::default(),
        }
    }

    /// Roles and bindings as they are now; read anew only after one of them has changed.
    fn policy(&self, store: &Store) -> Arc<Policy> {
        // Taken before the objects: a change in between is read twice, not missed.
        let changes = store.changes([CLUSTER_ROLES, ROLES, CLUSTER_BINDINGS, BINDINGS]);
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, policy)) = &*read
            && *at == changes
        {
            return policy.clone();
        }
        let list = |resource| store.list(resource, &Scope::All).0;
        let policy = Arc::new(Policy::new(
            &list(CLUSTER_ROLES),
            &list(ROLES),
            &list(CLUSTER_BINDINGS),
            &list(BINDINGS),
        ));
        *read = Some((changes, policy.clone()));
        policy
    }
}

impl Inner {
    fn policy(&self) -> Arc<Policy> {
        self.authorizer.policy(&self.store)
    }

    /// Decides whether the user may do it.
    fn decide(&self, user: &UserInfo, asked: &Attributes) -> Decision {
        let (allowed, reason) = match self.authorizer.mode {
            Authorization::AlwaysAllow => (true, String::new()),
            Authorization::Rbac if user.is_master() => (true, String::new()),
            Authorization::Rbac => self.policy().decide(user, asked),
        };
        Decision { allowed, reason }
    }

    fn require(&self, user: &UserInfo, asked: &Attributes) -> ApiResult<()> {
        let decision = self.decide(user, asked);
        if decision.allowed {
            Ok(())
        } else {
            Err(asked.forbidden(user, &decision.reason))
        }
    }

    /// The user that a request is made as, after impersonation, provided that this user may
    /// make it.
    pub(crate) fn admit_user(
        &self,
        user: &Arc<UserInfo>,
        request: &request::Parts,
        target: &Target,
        query: &Query,
    ) -> ApiResult<Arc<UserInfo>> {
        let wanted = impersonation::wanted(&request.headers)?;
        let free = self.authorizer.mode == Authorization::AlwaysAllow || user.is_master();
        if wanted.is_none() && free {
            return Ok(user.clone());
        }
        let asked = Attributes::of(&request.method, request.uri.path(), target, query);
        let user = match wanted {
            Some(wanted) => Arc::new(impersonation::impersonate(self, user, &wanted, &asked)?),
            None => user.clone(),
        };
        self.require(&user, &asked)?;
        Ok(user)
    }
}

/// Requires the right to create from whoever creates by applying, which was allowed as a patch.
pub(crate) fn require_create(call: &Call) -> ApiResult<()> {
    if call.name().is_empty() {
        return Ok(());
    }
    let asked = Attributes::Resource(ResourceAccess {
        verb: "create".to_owned(),
        group: call.def.group.clone(),
        resource: call.def.plural.clone(),
        namespace: call.namespace().to_owned(),
        name: call.name().to_owned(),
        ..ResourceAccess::default()
    });
    call.server.require(&call.user, &asked)
}

impl Authorize for Inner {
    fn review(&self, spec: &SubjectAccessReviewSpec) -> Decision {
        let user = UserInfo {
            username: spec.user.clone().unwrap_or_default(),
            uid: spec.uid.clone().unwrap_or_default(),
            groups: spec.groups.clone().unwrap_or_default(),
            extra: spec.extra.clone().unwrap_or_default(),
        };
        let asked = match (&spec.resource_attributes, &spec.non_resource_attributes) {
            (Some(resource), _) => Attributes::from(resource),
            (None, Some(path)) => Attributes::from(path),
            (None, None) => return Decision::default(),
        };
        self.decide(&user, &asked)
    }
}
