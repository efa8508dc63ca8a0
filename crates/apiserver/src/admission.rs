//! The seam for a validating webhook's decisions, called in process.

use std::fmt;

use serde_json::Value;

use crate::authz::{Authorize, UserInfo};

/// What a request wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A new object.
    Create,
    /// A changed object, by update, patch or server-side apply.
    Update,
    /// A deletion.
    Delete,
}

/// One request as a validating webhook sees it.
#[derive(Clone, Copy, Debug)]
pub struct AdmissionRequest<'a> {
    /// What is asked for.
    pub operation: Operation,
    /// API group, empty for core.
    pub group: &'a str,
    /// Version of the request.
    pub version: &'a str,
    /// Plural resource name, for example `deployments`.
    pub resource: &'a str,
    /// Subresource, for example `status`.
    pub subresource: Option<&'a str>,
    /// Namespace; absent for cluster-wide objects.
    pub namespace: Option<&'a str>,
    /// Name of the object.
    pub name: &'a str,
    /// The object as it would be stored; null for a deletion.
    pub object: &'a Value,
    /// The stored object, for updates and deletions.
    pub old: Option<&'a Value>,
    /// Who asks, after impersonation.
    pub user: &'a UserInfo,
    /// Tells what users may do.
    pub authorizer: &'a dyn Authorize,
}

/// Decides on writes after validation. Must be pure and quick: it runs on the request's task.
pub trait Admission: Send + Sync {
    /// Name of the webhook in the texts of refusals.
    fn name(&self) -> &str;

    /// Admits the request, or refuses it with a text for the person who made it.
    fn admit(&self, request: &AdmissionRequest<'_>) -> Result<(), String>;
}

impl fmt::Debug for dyn Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Admission({})", self.name())
    }
}
