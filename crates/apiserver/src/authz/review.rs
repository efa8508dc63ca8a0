//! Access reviews: answered at once, never stored.

use http::StatusCode;
use k8s_openapi::api::authorization::v1::{SelfSubjectRulesReviewSpec, SubjectAccessReviewSpec};
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::policy::joined;
use super::{Authorization, Authorize};
use crate::decode;
use crate::object;
use crate::status::{ApiError, ApiResult, FieldError, Subject};
use crate::verbs::call::{Answer, Call};

/// The review with its verdict.
pub(crate) fn answer(call: &Call, mut review: Value) -> ApiResult<Answer> {
    object::metadata_mut(&mut review);
    object::drop_nulls(&mut review["metadata"]);
    match call.def.kind.as_str() {
        "SelfSubjectReview" => {
            object::set_meta(&mut review, "creationTimestamp", json!(object::now()));
            review["status"] = json!({"userInfo": &*call.user});
        }
        "SelfSubjectRulesReview" => {
            review["status"] = rules(call, &spec(call, &review)?)?;
            // As the real server answers: it does not repeat the question.
            review["spec"] = json!({});
        }
        kind => {
            let own = kind == "SelfSubjectAccessReview";
            let local = kind == "LocalSubjectAccessReview";
            if local {
                set_namespace(call, &mut review)?;
            }
            let mut asked: SubjectAccessReviewSpec = spec(call, &review)?;
            if own {
                asked.user = Some(call.user.username.clone());
                asked.groups = Some(call.user.groups.clone());
            }
            validate(call, &review, &asked, local)?;
            review["status"] = verdict(call, &asked);
        }
    }
    Ok(Answer::Value(StatusCode::CREATED, review))
}

fn set_namespace(call: &Call, review: &mut Value) -> ApiResult<()> {
    let given = object::meta_str(review, "namespace");
    if !given.is_empty() && given != call.namespace() {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    object::set_meta(review, "namespace", json!(call.namespace()));
    Ok(())
}

fn spec<T: DeserializeOwned>(call: &Call, review: &Value) -> ApiResult<T> {
    let spec = review.get("spec").filter(|s| !s.is_null());
    let spec = spec.cloned().unwrap_or_else(|| json!({}));
    serde_json::from_value(spec)
        .map_err(|e| decode::cannot_be_handled(call, &format!("json: cannot unmarshal spec: {e}")))
}

fn verdict(call: &Call, asked: &SubjectAccessReviewSpec) -> Value {
    let decision = call.server.review(asked);
    let mut status = json!({"allowed": decision.allowed});
    if !decision.reason.is_empty() {
        status["reason"] = json!(decision.reason);
    }
    status
}

fn validate(
    call: &Call,
    review: &Value,
    asked: &SubjectAccessReviewSpec,
    local: bool,
) -> ApiResult<()> {
    let mut errors = Vec::new();
    let path = asked.non_resource_attributes.as_ref().map(|path| {
        json!({
            "Path": path.path.as_deref().unwrap_or_default(),
            "Verb": path.verb.as_deref().unwrap_or_default(),
        })
    });
    match (&asked.resource_attributes, &path) {
        (Some(_), Some(path)) => errors.push(FieldError::invalid(
            "spec.nonResourceAttributes",
            path,
            "cannot be specified in combination with resourceAttributes",
        )),
        (None, None) => errors.push(FieldError::invalid(
            "spec.resourceAttributes",
            &Value::Null,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        )),
        _ => {}
    }
    let nobody = asked.user.as_deref().unwrap_or_default().is_empty()
        && asked.groups.as_ref().is_none_or(Vec::is_empty);
    if nobody {
        errors.push(FieldError::invalid(
            "spec.user",
            &json!(""),
            "at least one of user or group must be specified",
        ));
    }
    let given = given_metadata(review, local);
    if given.as_object().is_some_and(|m| !m.is_empty()) {
        errors.push(FieldError::invalid("metadata", &given, "must be empty"));
    }
    if local {
        if let Some(resource) = &asked.resource_attributes {
            let namespace = resource.namespace.as_deref().unwrap_or_default();
            if namespace != call.namespace() {
                errors.push(FieldError::invalid(
                    "spec.resourceAttributes.namespace",
                    &json!(namespace),
                    "must match metadata.namespace",
                ));
            }
        }
        if let Some(path) = &path {
            errors.push(FieldError::invalid(
                "spec.nonResourceAttributes",
                path,
                "disallowed on this kind of request",
            ));
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    // The real server names neither kind nor object here.
    Err(ApiError::invalid(
        &Subject::new(&call.def.group, "", ""),
        &errors,
    ))
}

/// What a client has put into the metadata of a review, which is nothing to store.
fn given_metadata(review: &Value, local: bool) -> Value {
    let mut given = review.get("metadata").cloned().unwrap_or_default();
    if let Some(fields) = given.as_object_mut() {
        fields.remove("managedFields");
        if local {
            fields.remove("namespace");
        }
    }
    given
}

/// Everything that the user may do in a namespace.
fn rules(call: &Call, asked: &SelfSubjectRulesReviewSpec) -> ApiResult<Value> {
    let namespace = asked.namespace.as_deref().unwrap_or_default();
    if namespace.is_empty() {
        return Err(ApiError::bad_request("no namespace on request"));
    }
    if call.server.authorizer.mode == Authorization::AlwaysAllow {
        return Ok(json!({
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            "incomplete": false,
        }));
    }
    let policy = call.server.policy();
    let (rules, errors) = policy.rules_for(&call.user, namespace);
    let of = |part: fn(&PolicyRule) -> &Option<Vec<String>>| -> Vec<&PolicyRule> {
        let named = |rule: &PolicyRule| part(rule).as_ref().is_some_and(|p| !p.is_empty());
        rules.iter().copied().filter(|rule| named(rule)).collect()
    };
    let mut status = json!({
        "resourceRules": of(|rule| &rule.resources),
        "nonResourceRules": of(|rule| &rule.non_resource_urls),
        "incomplete": false,
    });
    if !errors.is_empty() {
        status["evaluationError"] = json!(joined(&errors));
    }
    Ok(status)
}
