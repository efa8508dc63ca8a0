//! From a request's body to an object of the request's type.

use serde_json::Value;

use crate::object;
use crate::status::{ApiError, ApiResult};
use crate::validation;
use crate::verbs::call::Call;

/// What to do about unknown fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

impl FieldValidation {
    /// The request's `fieldValidation`; the server's default is to warn.
    pub(crate) fn of(call: &Call) -> ApiResult<Self> {
        match call.query.get("fieldValidation") {
            None | Some("Warn") => Ok(Self::Warn),
            Some("Ignore") => Ok(Self::Ignore),
            Some("Strict") => Ok(Self::Strict),
            Some(other) => Err(ApiError::invalid(
                &crate::status::Subject::new("meta.k8s.io", "CreateOptions", ""),
                &[crate::status::FieldError::not_supported(
                    "fieldValidation",
                    &Value::String(other.to_owned()),
                    &["", "Ignore", "Strict", "Warn"].map(str::to_owned),
                )],
            )),
        }
    }
}

/// An object and what its sender should be told about it.
pub(crate) struct Decoded {
    pub(crate) object: Value,
    pub(crate) warnings: Vec<String>,
}

/// Parses the body as JSON.
pub(crate) fn body(call: &Call) -> ApiResult<Value> {
    match call.content_type.as_str() {
        "" | "application/json" => serde_json::from_slice(&call.body).map_err(|e| {
            let text: String = String::from_utf8_lossy(&call.body).chars().take(30).collect();
            ApiError::bad_request(format!(
                "the object provided is unrecognized (must be of type {}): couldn't get version/kind; json parse error: {e} ({text})",
                call.def.kind
            ))
        }),
        // Named as the real server does, although only JSON is read here.
        _ if call.def.builtin.is_some() => Err(ApiError::unsupported_media_type(
            "application/json, application/yaml, application/vnd.kubernetes.protobuf",
        )),
        _ => Err(ApiError::unsupported_media_type("application/json, application/yaml")),
    }
}

/// Checks that a value is an object of the request's type, and brings it into the type's shape:
/// unknown fields go, defaults come.
pub(crate) fn object(call: &Call, mut value: Value, mode: FieldValidation) -> ApiResult<Decoded> {
    let kind = call.def.kind.as_str();
    let api_version = call.api_version();
    let text = |value: &Value, field: &str| -> String {
        value
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    if !value.is_object() {
        return Err(cannot_be_handled(
            call,
            &format!(
                "json: cannot unmarshal {} into Go value",
                validation::go_kind(&value)
            ),
        ));
    }
    if object::depth(&value) > object::MAX_DEPTH {
        let why = format!("json: exceeded max depth of {}", object::MAX_DEPTH);
        return Err(cannot_be_handled(call, &why));
    }
    let (given_kind, given_version) = (text(&value, "kind"), text(&value, "apiVersion"));
    // Custom types are decoded without a default for what is missing.
    if call.def.builtin.is_none() && given_kind.is_empty() {
        return Err(ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): Object 'Kind' is missing in '{}'",
            shorten(&value)
        )));
    }
    if !given_version.is_empty() && given_version != api_version {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({given_version}) does not match the expected API version ({api_version})"
        )));
    }
    if !given_kind.is_empty() && given_kind != kind {
        return Err(ApiError::bad_request(format!(
            "{given_kind} in version {:?} cannot be handled as a {kind}: converting ({given_kind}) to ({kind}): unknown conversion",
            call.path.version
        )));
    }
    value["kind"] = kind.into();
    value["apiVersion"] = api_version.into();
    if let Some(metadata) = value.get("metadata").filter(|m| !m.is_null())
        && let Some(problem) = validation::metadata_type_problem(metadata)
    {
        return Err(cannot_be_handled(call, &problem));
    }
    object::metadata_mut(&mut value);
    let unknown = crate::strategy::shape(call, &mut value)?;
    let warnings = match mode {
        FieldValidation::Ignore => Vec::new(),
        FieldValidation::Warn => unknown
            .iter()
            .map(|f| format!("unknown field {f:?}"))
            .collect(),
        FieldValidation::Strict if unknown.is_empty() => Vec::new(),
        FieldValidation::Strict => {
            let list: Vec<String> = unknown
                .iter()
                .map(|f| format!("unknown field {f:?}"))
                .collect();
            return Err(cannot_be_handled(
                call,
                &format!("strict decoding error: {}", list.join(", ")),
            ));
        }
    };
    Ok(Decoded {
        object: value,
        warnings,
    })
}

/// The refusal of a body that does not decode as the request's type.
pub(crate) fn cannot_be_handled(call: &Call, why: &str) -> ApiError {
    let kind = &call.def.kind;
    ApiError::bad_request(format!(
        "{kind} in version {:?} cannot be handled as a {kind}: {why}",
        call.path.version
    ))
}

fn shorten(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= 200 {
        text
    } else {
        text.chars().take(200).collect()
    }
}
