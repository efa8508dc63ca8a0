//! Roles and their bindings: rights that somebody adds on the cluster are taken away again.

use serde_json::Value;

use super::defaults::objects;
use super::{Object, Rule};
use crate::apply::ApplyError;

const GROUP: &str = "rbac.authorization.k8s.io";

/// Role: every rule is the manifest's.
#[derive(Debug)]
pub(super) struct Role;

impl Rule for Role {
    fn owned(&self) -> &'static [&'static str] {
        &["rules"]
    }
}

/// ClusterRole: as Role, unless the cluster gathers the rules from other roles.
#[derive(Debug)]
pub(super) struct ClusterRole;

impl Rule for ClusterRole {
    fn keep(&self, wanted: &mut Object, live: &Object) {
        if wanted.get("aggregationRule").is_none_or(Value::is_null) {
            return;
        }
        match live.get("rules") {
            Some(rules) => wanted.insert("rules".into(), rules.clone()),
            None => wanted.remove("rules"),
        };
    }

    fn owned(&self) -> &'static [&'static str] {
        &["rules", "aggregationRule"]
    }
}

/// RoleBinding and ClusterRoleBinding. The role of a binding cannot be changed; an update that
/// tries is sent all the same, so that the server's text tells the user.
#[derive(Debug)]
pub(super) struct Binding;

impl Rule for Binding {
    /// Sets the API groups, of which there is but one choice.
    fn prepare(&self, manifest: &mut Object) -> Result<(), ApplyError> {
        if let Some(Value::Object(role)) = manifest.get_mut("roleRef") {
            role.insert("apiGroup".into(), GROUP.into());
        }
        for subject in objects(manifest, "subjects") {
            match subject.get("kind").and_then(Value::as_str) {
                Some("User" | "Group") => {
                    subject.insert("apiGroup".into(), GROUP.into());
                }
                Some("ServiceAccount") => {
                    subject.remove("apiGroup");
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn owned(&self) -> &'static [&'static str] {
        &["subjects", "roleRef"]
    }
}
