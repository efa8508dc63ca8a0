//! Server-side apply.

use http::StatusCode;
use serde_json::Value;

use super::call::{Call, Outcome};
use super::write::{self, Written};
use crate::decode::{self, FieldValidation};
use crate::managed::ApplyError;
use crate::object;
use crate::status::{ApiError, ApiResult};
use crate::strategy::Part;

/// The content type of an applied object, in YAML or JSON.
pub(crate) const CONTENT_TYPE: &str = "application/apply-patch+yaml";

/// How often an object is applied anew when the live one changes under it.
const ATTEMPTS: usize = 5;

pub(crate) async fn apply(call: &Call, part: Part) -> ApiResult<Outcome> {
    let (applied, duplicate) = parse(&call.body)?;
    check_type(&applied, &call.api_version(), &call.def.kind)?;
    let warnings = match (duplicate, FieldValidation::of(call)?) {
        (Some(why), FieldValidation::Strict) => {
            return Err(ApiError::bad_request(format!(
                "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  {why}"
            )));
        }
        (Some(why), FieldValidation::Warn) => vec![why],
        _ => Vec::new(),
    };
    let (written, code) = apply_object(call, part, &applied).await?;
    write::finish(call, written, code, warnings).await
}

/// Applies an object of the request's type; gives 201 with what was created, else 200.
pub(super) async fn apply_object(
    call: &Call,
    part: Part,
    applied: &Value,
) -> ApiResult<(Written, StatusCode)> {
    let force = call.query.flag("force");
    let names_revision = !object::meta_str(applied, "resourceVersion").is_empty();
    let mut attempts = ATTEMPTS;
    loop {
        attempts -= 1;
        let current = call.server.store.get(&call.def.key, &call.key());
        if current.is_none() && call.subresource().is_some() {
            return Err(ApiError::not_found(&call.subject(call.name())));
        }
        let live = current.as_ref().map(|current| {
            let mut live = current.value();
            live["apiVersion"] = call.api_version().into();
            live
        });
        let merged = call
            .tracker()
            .apply(live.as_ref(), applied, force)
            .map_err(|e| refused(&e))?;
        write::check_namespace_of(call, &merged)?;
        write::check_name(call, &merged)?;
        let written = match &current {
            Some(current) => {
                write::check_uid(call, current, &merged)?;
                let decoded = decode::object(call, merged, FieldValidation::Ignore)?;
                let written = write::change_object(call, part, current, decoded.object).await;
                written.map(|written| (written, StatusCode::OK))
            }
            None => create(call, merged)
                .await
                .map(|written| (written, StatusCode::CREATED)),
        };
        match written {
            Err(error) if is_race(&error, names_revision) && attempts > 0 => {}
            other => return other,
        }
    }
}

async fn create(call: &Call, merged: Value) -> ApiResult<Written> {
    let uid = object::meta_str(&merged, "uid");
    if !uid.is_empty() {
        return Err(ApiError::conflict(
            &call.subject(call.name()),
            &format!(
                "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            ),
        ));
    }
    let mut decoded = decode::object(call, merged, FieldValidation::Ignore)?;
    object::set_meta(&mut decoded.object, "resourceVersion", Value::Null);
    write::set_namespace(call, &mut decoded.object)?;
    write::create_object(call, decoded.object).await
}

/// True when another write came between our read and our write.
fn is_race(error: &ApiError, names_revision: bool) -> bool {
    match error.reason {
        "AlreadyExists" => true,
        "Conflict" => !names_revision,
        _ => false,
    }
}

fn refused(error: &ApplyError) -> ApiError {
    match error {
        ApplyError::Typing { .. } => ApiError::unexpected(error.to_string()),
        ApplyError::Conflict(_) => ApiError::apply_conflict(error.to_string(), &error.causes()),
    }
}

/// Deepest nesting of a body that is parsed; what is deeper than an object may be is refused
/// later, by name. The library bounds aliases and the number of nodes.
const MAX_YAML_DEPTH: usize = 120;

/// Stack for parsing, of which only what is used takes memory.
const PARSER_STACK_BYTES: usize = 32 << 20;

/// The applied object, and what is wrong with its form if it has a key twice (the last wins).
///
/// On a thread of its own: the parser recurses, and where nothing is optimized takes more of the
/// stack for an object of the largest depth than a thread usually has.
pub(super) fn parse(body: &[u8]) -> ApiResult<(Value, Option<String>)> {
    std::thread::scope(|threads| {
        let parser = std::thread::Builder::new()
            .name("yaml-parser".into())
            .stack_size(PARSER_STACK_BYTES)
            .spawn_scoped(threads, || parse_here(body))
            .map_err(ApiError::internal)?;
        parser
            .join()
            .unwrap_or_else(|_| Err(ApiError::internal("the YAML parser panicked")))
    })
}

fn parse_here(body: &[u8]) -> ApiResult<(Value, Option<String>)> {
    use serde_saphyr::options::DuplicateKeyPolicy;
    let invalid = |why: &str| ApiError::bad_request(format!("error decoding YAML: {why}"));
    let text = std::str::from_utf8(body)
        .map_err(|_| invalid("error converting YAML to JSON: yaml: invalid UTF-8"))?;
    if text.trim().is_empty() {
        return Ok((Value::Null, None));
    }
    // YAML, of which JSON is a part, is read twice only where a key may be twice.
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_depth: MAX_YAML_DEPTH },
    };
    let strict = serde_saphyr::from_str_with_options::<Value>(text, options);
    let (value, duplicate) = match strict {
        Ok(value) => (value, None),
        Err(error) => {
            let options = serde_saphyr::options! {
                budget: serde_saphyr::budget! { max_depth: MAX_YAML_DEPTH },
                duplicate_keys: DuplicateKeyPolicy::LastWins,
            };
            let value =
                serde_saphyr::from_str_with_options::<Value>(text, options).map_err(|e| {
                    let why = e.without_snippet();
                    invalid(&format!("error converting YAML to JSON: yaml: {why}"))
                })?;
            (value, Some(duplicate_key(&error)))
        }
    };
    if value.is_object() || value.is_null() {
        return Ok((value, duplicate));
    }
    Err(invalid(&format!(
        "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
        crate::validation::go_kind(&value)
    )))
}

fn duplicate_key(error: &serde_saphyr::Error) -> String {
    match error.without_snippet() {
        serde_saphyr::Error::DuplicateMappingKey {
            key: Some(key),
            location,
        } => format!("line {}: key {key:?} already set in map", location.line()),
        other => other.to_string(),
    }
}

/// The object has to be of the type and version that the path names, and cannot say who owns
/// its fields.
pub(super) fn check_type(applied: &Value, api_version: &str, kind: &str) -> ApiResult<()> {
    let text = |field: &str| {
        applied
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let (given_version, given_kind) = (text("apiVersion"), text("kind"));
    if given_version != api_version || given_kind != kind {
        let (group, version) = given_version.split_once('/').unwrap_or(("", given_version));
        return Err(ApiError::bad_request(format!(
            "invalid object type: {group}/{version}, Kind={given_kind}"
        )));
    }
    if applied
        .pointer("/metadata/managedFields")
        .is_some_and(|fields| !fields.is_null())
    {
        return Err(ApiError::bad_request("metadata.managedFields must be nil"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn depth_and_aliases_of_yaml_are_bounded() {
        let nested = |levels: usize| format!("a: {}1{}", "[".repeat(levels), "]".repeat(levels));
        assert!(parse(nested(100).as_bytes()).is_ok());
        let mut laughs = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for at in 1..12 {
            let before = vec![format!("*a{}", at - 1); 10].join(", ");
            laughs += &format!("a{at}: &a{at} [{before}]\n");
        }
        for body in [nested(200), nested(100_000), laughs] {
            let error = parse(body.as_bytes()).unwrap_err();
            assert_eq!(error.code, http::StatusCode::BAD_REQUEST, "{body:.80}");
        }
    }

    #[test]
    fn bodies_are_yaml_or_json() {
        let want = json!({"kind": "ConfigMap", "data": {"a": "1", "on": true, "n": 5}});
        for body in [
            "kind: ConfigMap\ndata:\n  a: \"1\"\n  on: true\n  n: 5\n",
            r#"{"kind":"ConfigMap","data":{"a":"1","on":true,"n":5}}"#,
        ] {
            assert_eq!(parse(body.as_bytes()).unwrap(), (want.clone(), None));
        }
        assert_eq!(parse(b"").unwrap().0, Value::Null);
    }

    #[test]
    fn of_a_key_twice_the_last_wins_and_it_is_told() {
        for body in [
            "data:\n  a: \"1\"\n  a: \"2\"\n",
            r#"{"data":{"a":"1","a":"2"}}"#,
        ] {
            let (value, duplicate) = parse(body.as_bytes()).unwrap();
            assert_eq!(value, json!({"data": {"a": "2"}}));
            assert!(duplicate.unwrap().ends_with("key \"a\" already set in map"));
        }
    }

    #[test]
    fn bodies_that_are_no_objects_are_refused() {
        for (body, want) in [
            (
                &b"[]"[..],
                "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array",
            ),
            (
                b"{a: b: c}",
                "error decoding YAML: error converting YAML to JSON: yaml: ",
            ),
            (
                b"\xff",
                "error decoding YAML: error converting YAML to JSON: yaml: invalid UTF-8",
            ),
        ] {
            let error = parse(body).unwrap_err();
            assert_eq!(error.code, StatusCode::BAD_REQUEST);
            assert!(error.message.starts_with(want), "{}", error.message);
        }
    }

    #[test]
    fn objects_of_another_type_are_refused() {
        let cases = [
            (
                json!({"kind": "Deployment"}),
                "invalid object type: /, Kind=Deployment",
            ),
            (
                json!({"apiVersion": "apps/v2", "kind": "Deployment"}),
                "invalid object type: apps/v2, Kind=Deployment",
            ),
            (
                json!({"apiVersion": "v1", "kind": "Deployment"}),
                "invalid object type: /v1, Kind=Deployment",
            ),
            (
                json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"managedFields": []}}),
                "metadata.managedFields must be nil",
            ),
        ];
        for (object, want) in cases {
            let error = check_type(&object, "apps/v1", "Deployment").unwrap_err();
            assert_eq!(error.message, want);
        }
        let fine = json!({"apiVersion": "apps/v1", "kind": "Deployment"});
        assert!(check_type(&fine, "apps/v1", "Deployment").is_ok());
    }
}
