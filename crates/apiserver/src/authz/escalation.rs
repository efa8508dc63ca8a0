//! Nobody grants what they do not have: the check of writes to roles and bindings.

use k8s_openapi::api::rbac::v1::{PolicyRule, RoleRef};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::attributes::{Attributes, ResourceAccess};
use super::policy::{Policy, RoleError, joined};
use super::user::UserInfo;
use super::{Authorization, BINDINGS, CLUSTER_BINDINGS, CLUSTER_ROLES, ROLES, rule};
use crate::object;
use crate::status::{ApiError, ApiResult};
use crate::verbs::call::Call;

const GROUP: &str = "rbac.authorization.k8s.io";

/// Refuses the write of a role or binding that would grant more than the user holds, unless
/// the user has the verb `escalate` on the role, or `bind` on the role that is bound.
pub(crate) fn check(call: &Call, object: &Value, old: Option<&Value>) -> ApiResult<()> {
    let server = &call.server;
    let free = server.authorizer.mode == Authorization::AlwaysAllow || call.user.is_master();
    if free || old.is_some_and(|old| only_metadata_of_deletion(old, object)) {
        return Ok(());
    }
    match &*call.def.key {
        ROLES | CLUSTER_ROLES => role(call, object, old),
        BINDINGS | CLUSTER_BINDINGS => binding(call, object),
        _ => Ok(()),
    }
}

/// True when a write changes no more than owners and finalizers, so that a deletion that was
/// allowed can come to its end.
fn only_metadata_of_deletion(old: &Value, new: &Value) -> bool {
    let rest = |object: &Value| {
        let mut object = object.clone();
        for field in [
            "ownerReferences",
            "finalizers",
            "resourceVersion",
            "managedFields",
        ] {
            object::set_meta(&mut object, field, Value::Null);
        }
        object
    };
    rest(old) == rest(new)
}

fn parsed<T: DeserializeOwned + Default>(object: &Value, field: &str) -> T {
    // The object's shape was checked when it was decoded; validation names what is missing.
    object
        .get(field)
        .and_then(|value| serde_json::from_value(value.clone()).ok())
        .unwrap_or_default()
}

fn may(call: &Call, verb: &str, resource: &str, name: &str) -> bool {
    let asked = Attributes::Resource(ResourceAccess {
        verb: verb.to_owned(),
        group: GROUP.to_owned(),
        resource: resource.to_owned(),
        namespace: call.namespace().to_owned(),
        name: name.to_owned(),
        subresource: String::new(),
    });
    call.server.decide(&call.user, &asked).allowed
}

fn role(call: &Call, object: &Value, old: Option<&Value>) -> ApiResult<()> {
    // A new role has no name in its path, so a right to escalate one by name does not cover it.
    if may(call, "escalate", &call.def.plural, call.name()) {
        return Ok(());
    }
    let subject = call.subject(object::meta_str(object, "name"));
    let policy = call.server.policy();
    let held = |rules: &[PolicyRule]| held(&policy, &call.user, call.namespace(), rules);
    held(&parsed::<Vec<PolicyRule>>(object, "rules"))
        .map_err(|why| ApiError::forbidden(&subject, &why))?;
    let aggregates = |object: &Value| {
        object
            .pointer("/aggregationRule/clusterRoleSelectors")
            .and_then(Value::as_array)
            .is_some_and(|selectors| !selectors.is_empty())
    };
    if aggregates(object) || old.is_some_and(aggregates) {
        // It can gather anything.
        held(&everything()).map_err(|_| {
            ApiError::forbidden(
                &subject,
                "must have cluster-admin privileges to use the aggregationRule",
            )
        })?;
    }
    Ok(())
}

fn everything() -> [PolicyRule; 2] {
    let all = || vec!["*".to_owned()];
    [
        PolicyRule {
            api_groups: Some(all()),
            resources: Some(all()),
            verbs: all(),
            ..PolicyRule::default()
        },
        PolicyRule {
            non_resource_urls: Some(all()),
            verbs: all(),
            ..PolicyRule::default()
        },
    ]
}

fn binding(call: &Call, object: &Value) -> ApiResult<()> {
    let bound: RoleRef = parsed(object, "roleRef");
    let resource = match bound.kind.as_str() {
        "Role" => Some("roles"),
        "ClusterRole" => Some("clusterroles"),
        _ => None,
    };
    if resource.is_some_and(|resource| may(call, "bind", resource, &bound.name)) {
        return Ok(());
    }
    let policy = call.server.policy();
    let rules = policy
        .rules_of(&bound, call.namespace())
        .map_err(|error| match error {
            // Named as the real server does: the role's name with the binding's resource.
            RoleError::NotFound { name, .. } => ApiError::not_found(&call.subject(&name)),
            RoleError::Kind { .. } => ApiError::unexpected(error.to_string()),
        })?;
    held(&policy, &call.user, call.namespace(), rules)
        .map_err(|why| ApiError::forbidden(&call.subject(object::meta_str(object, "name")), &why))
}

/// Checks that the user holds all of the rules, or tells what is missing.
fn held(
    policy: &Policy,
    user: &UserInfo,
    namespace: &str,
    wanted: &[PolicyRule],
) -> Result<(), String> {
    let (rules, errors) = policy.rules_for(user, namespace);
    let missing = rule::missing(&rules, wanted);
    if missing.is_empty() {
        return Ok(());
    }
    let errors = if errors.is_empty() {
        String::new()
    } else {
        format!("; resolution errors: [{}]", joined(&errors))
    };
    Err(format!(
        "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}{errors}",
        user.username,
        rule::quoted(&user.groups),
        rule::describe(&missing)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn owners_and_finalizers_grant_nothing() {
        let old = json!({"metadata": {"name": "r", "resourceVersion": "1"}, "rules": [{"verbs": ["get"]}]});
        let mut new = old.clone();
        new["metadata"]["finalizers"] = json!(["a"]);
        new["metadata"]["ownerReferences"] = json!([{"name": "o"}]);
        new["metadata"]["resourceVersion"] = json!("2");
        assert!(only_metadata_of_deletion(&old, &new));
        new["metadata"]["labels"] = json!({"a": "b"});
        assert!(!only_metadata_of_deletion(&old, &new));
        new = old.clone();
        new["rules"] = json!([]);
        assert!(!only_metadata_of_deletion(&old, &new));
    }

    #[test]
    fn refusals_list_what_is_missing_and_what_could_not_be_read() {
        let user = UserInfo::new("u").group("g1").group("g2");
        let all = everything();
        assert_eq!(
            held(&Policy::default(), &user, "", &all).unwrap_err(),
            "user \"u\" (groups=[\"g1\" \"g2\"]) is attempting to grant RBAC permissions not currently held:\n\
             {APIGroups:[\"*\"], Resources:[\"*\"], Verbs:[\"*\"]}\n{NonResourceURLs:[\"*\"], Verbs:[\"*\"]}"
        );
        assert_eq!(held(&Policy::default(), &user, "", &[]), Ok(()));
    }
}
