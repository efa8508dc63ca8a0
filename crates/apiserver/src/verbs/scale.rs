//! The `scale` subresource: replicas of any type as `autoscaling/v1` Scale.

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};

use super::apply;
use super::call::{Answer, Call, Outcome};
use super::write::{Written, update_object};
use crate::object;
use crate::patch::{Patch, PatchKind};
use crate::registry::Scale;
use crate::status::{ApiError, ApiResult, FieldError, Subject};
use crate::store::Stored;
use crate::strategy::Part;

pub(crate) fn get(call: &Call) -> ApiResult<Outcome> {
    let stored = call.stored()?;
    Ok(Answer::Value(StatusCode::OK, view(paths(call)?, &stored.value())).into())
}

/// Update (with a Scale as body) and patch (of the Scale).
pub(crate) async fn change(call: &Call, is_patch: bool) -> ApiResult<Outcome> {
    let paths = paths(call)?;
    let current = call.stored()?;
    let mut scale = view(paths, &current.value());
    if is_patch && call.content_type == apply::CONTENT_TYPE {
        return apply_scale(call, paths).await;
    }
    if is_patch {
        let kind = PatchKind::of(&call.content_type, true)?;
        Patch::parse(kind, &call.body)?.apply(&mut scale, None)?;
    } else {
        scale = crate::decode::body(call)?;
    }
    let written = set_replicas(call, paths, &current, &scale).await?;
    finish(call, paths, &written).await
}

/// Applies a Scale as an object of the request's type that has nothing but its replicas.
async fn apply_scale(call: &Call, paths: &Scale) -> ApiResult<Outcome> {
    let (scale, _) = apply::parse(&call.body)?;
    apply::check_type(&scale, "autoscaling/v1", "Scale")?;
    let replicas = replicas(&scale)?;
    let mut applied = json!({
        "apiVersion": call.api_version(), "kind": call.def.kind,
        "metadata": scale.get("metadata").cloned().unwrap_or_default(),
    });
    set_path(&mut applied, &paths.spec_replicas, json!(replicas));
    let (written, _) = apply::apply_object(call, Part::Main, &applied).await?;
    finish(call, paths, &written).await
}

async fn finish(call: &Call, paths: &Scale, written: &Written) -> ApiResult<Outcome> {
    if let Written::Stored(stored) = written {
        call.server.after_write(&call.def, stored).await?;
    }
    Ok(Answer::Value(StatusCode::OK, view(paths, &written.value())).into())
}

fn paths(call: &Call) -> ApiResult<&Scale> {
    call.version()
        .scale
        .as_ref()
        .ok_or_else(ApiError::no_such_path)
}

async fn set_replicas(
    call: &Call,
    paths: &Scale,
    current: &Arc<Stored>,
    scale: &Value,
) -> ApiResult<Written> {
    let name = object::meta_str(scale, "name");
    if name != call.name() {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            call.name()
        )));
    }
    let replicas = replicas(scale)?;
    let mut new = current.value();
    new["apiVersion"] = json!(call.api_version());
    for field in ["resourceVersion", "uid"] {
        let given = object::meta_str(scale, field);
        if !given.is_empty() {
            object::set_meta(&mut new, field, json!(given));
        }
    }
    set_path(&mut new, &paths.spec_replicas, json!(replicas));
    update_object(call, Part::Main, current, new).await
}

/// The replicas that a Scale asks for.
fn replicas(scale: &Value) -> ApiResult<i64> {
    let replicas = match scale.pointer("/spec/replicas") {
        None => 0,
        Some(value) => value.as_i64().ok_or_else(|| {
            ApiError::bad_request(format!(
                "Scale in version \"v1\" cannot be handled as a Scale: json: cannot unmarshal {} into Go struct field ScaleSpec.spec.replicas of type int32",
                crate::validation::go_kind(value)
            ))
        })?,
    };
    if replicas < 0 {
        return Err(ApiError::invalid(
            &Subject::new("autoscaling", "Scale", object::meta_str(scale, "name")),
            &[FieldError::invalid(
                "spec.replicas",
                &json!(replicas),
                "must be greater than or equal to 0",
            )],
        ));
    }
    Ok(replicas)
}

fn set_path(object: &mut Value, path: &str, value: Value) {
    let mut place = object;
    for part in path.split('.') {
        place = object::as_object_mut(place)
            .entry(part)
            .or_insert(Value::Null);
    }
    *place = value;
}

fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.')
        .try_fold(object, |value, part| value.get(part))
}

/// The Scale of an object.
fn view(paths: &Scale, object: &Value) -> Value {
    let mut metadata = json!({});
    for field in [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
    ] {
        if let Some(value) = object.pointer(&format!("/metadata/{field}")) {
            metadata[field] = value.clone();
        }
    }
    let number = |path: &str| at(object, path).and_then(Value::as_i64).unwrap_or_default();
    let mut scale = json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata,
        "spec": {}, "status": {"replicas": number(&paths.status_replicas)},
    });
    let wanted = number(&paths.spec_replicas);
    if wanted != 0 {
        scale["spec"]["replicas"] = json!(wanted);
    }
    let selector = match &paths.label_selector {
        Some(path) => at(object, path).and_then(Value::as_str).map(str::to_owned),
        None => object.pointer("/spec/selector").map(selector_text),
    };
    if let Some(selector) = selector.filter(|s| !s.is_empty()) {
        scale["status"]["selector"] = json!(selector);
    }
    scale
}

/// A label selector in its query form.
pub(crate) fn selector_text(selector: &Value) -> String {
    let mut terms = Vec::new();
    // ReplicationControllers have a plain map.
    let labels = match selector.get("matchLabels") {
        Some(labels) => Some(labels),
        None if selector.get("matchExpressions").is_none() => Some(selector),
        None => None,
    };
    for (key, value) in labels.and_then(Value::as_object).into_iter().flatten() {
        terms.push(format!("{key}={}", value.as_str().unwrap_or_default()));
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for expression in selector
        .get("matchExpressions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let key = text(&expression["key"]);
        let values: Vec<String> = expression["values"]
            .as_array()
            .into_iter()
            .flatten()
            .map(text)
            .collect();
        terms.push(match expression["operator"].as_str().unwrap_or_default() {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "DoesNotExist" => format!("!{key}"),
            _ => key,
        });
    }
    terms.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_shows_replicas_and_selector() {
        let paths = Scale {
            spec_replicas: "spec.replicas".to_owned(),
            status_replicas: "status.replicas".to_owned(),
            label_selector: None,
        };
        let object = json!({
            "metadata": {"name": "web", "labels": {"a": "b"}},
            "spec": {"replicas": 3, "selector": {
                "matchLabels": {"app": "web"},
                "matchExpressions": [{"key": "tier", "operator": "In", "values": ["a", "b"]}],
            }},
            "status": {"replicas": 2},
        });
        assert_eq!(
            view(&paths, &object),
            json!({
                "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": "web"},
                "spec": {"replicas": 3},
                "status": {"replicas": 2, "selector": "app=web,tier in (a,b)"},
            })
        );
    }
}
