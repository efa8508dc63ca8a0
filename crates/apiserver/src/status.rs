//! Errors as a Kubernetes API server writes them: `metav1.Status` with code, reason, details.
//!
//! Message texts and codes follow `k8s.io/apimachinery/pkg/api/errors`, since clients and tests
//! match on them.

use http::StatusCode;
use serde_json::{Value, json};

/// One problem in an object, named by its field path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldError {
    /// Machine-readable kind, for example `FieldValueInvalid`.
    pub(crate) reason: &'static str,
    /// Text without the field path, for example `Required value`.
    pub(crate) message: String,
    /// Path from the object's root, for example `spec.containers[0].name`.
    pub(crate) field: String,
}

impl FieldError {
    pub(crate) fn required(field: impl Into<String>, detail: &str) -> Self {
        let message = if detail.is_empty() {
            "Required value".to_owned()
        } else {
            format!("Required value: {detail}")
        };
        Self {
            reason: "FieldValueRequired",
            message,
            field: field.into(),
        }
    }

    pub(crate) fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        let message = format!("Invalid value: {}: {detail}", go_value(value));
        Self {
            reason: "FieldValueInvalid",
            message,
            field: field.into(),
        }
    }

    /// As [`Self::invalid`], with the offending value already in Go's spelling.
    pub(crate) fn invalid_text(field: impl Into<String>, value: &str, detail: &str) -> Self {
        let message = format!("Invalid value: {value}: {detail}");
        Self {
            reason: "FieldValueInvalid",
            message,
            field: field.into(),
        }
    }

    pub(crate) fn type_invalid(field: impl Into<String>, value: &str, detail: &str) -> Self {
        let message = format!("Invalid value: {value:?}: {detail}");
        Self {
            reason: "FieldValueTypeInvalid",
            message,
            field: field.into(),
        }
    }

    pub(crate) fn not_supported(
        field: impl Into<String>,
        value: &Value,
        supported: &[String],
    ) -> Self {
        let list: Vec<String> = supported.iter().map(|s| format!("{s:?}")).collect();
        let message = format!(
            "Unsupported value: {}: supported values: {}",
            go_value(value),
            list.join(", ")
        );
        Self {
            reason: "FieldValueNotSupported",
            message,
            field: field.into(),
        }
    }

    pub(crate) fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        let message = format!("Forbidden: {detail}");
        Self {
            reason: "FieldValueForbidden",
            message,
            field: field.into(),
        }
    }

    pub(crate) fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        let message = format!("Duplicate value: {}", go_value(value));
        Self {
            reason: "FieldValueDuplicate",
            message,
            field: field.into(),
        }
    }

    pub(crate) fn too_long(field: impl Into<String>, max: u64) -> Self {
        let unit = if max == 1 { "byte" } else { "bytes" };
        let message = format!("Too long: may not be more than {max} {unit}");
        Self {
            reason: "FieldValueTooLong",
            message,
            field: field.into(),
        }
    }

    pub(crate) fn too_many(field: impl Into<String>, actual: usize, max: u64) -> Self {
        let unit = if max == 1 { "item" } else { "items" };
        let message = format!("Too many: {actual}: must have at most {max} {unit}");
        Self {
            reason: "FieldValueTooMany",
            message,
            field: field.into(),
        }
    }
}

impl std::fmt::Display for FieldError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// Spells a value as Go's field errors do: strings quoted, the rest as JSON.
pub(crate) fn go_value(value: &Value) -> String {
    match value {
        Value::String(s) => format!("{s:?}"),
        Value::Null => "null".to_owned(),
        other => other.to_string(),
    }
}

/// The resource and object that an error is about.
#[derive(Clone, Debug, Default)]
pub(crate) struct Subject {
    pub(crate) group: String,
    /// Plural resource name, or the kind for validation errors.
    pub(crate) resource: String,
    pub(crate) name: String,
}

impl Subject {
    pub(crate) fn new(group: &str, resource: &str, name: &str) -> Self {
        Self {
            group: group.to_owned(),
            resource: resource.to_owned(),
            name: name.to_owned(),
        }
    }

    /// `deployments.apps`, or `pods` for the core group.
    fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.resource.clone()
        } else {
            format!("{}.{}", self.resource, self.group)
        }
    }

    fn details(&self) -> Value {
        let mut details = serde_json::Map::new();
        for (key, value) in [
            ("name", &self.name),
            ("group", &self.group),
            ("kind", &self.resource),
        ] {
            if !value.is_empty() {
                details.insert(key.to_owned(), Value::String(value.clone()));
            }
        }
        Value::Object(details)
    }
}

/// Marks the one error that has no Status as its body.
pub(crate) const NO_SUCH_PAGE: &str = "NoSuchPage";

/// An answer other than success.
#[derive(Clone, Debug)]
pub(crate) struct ApiError {
    pub(crate) code: StatusCode,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) details: Option<Value>,
}

/// Result of anything that a request asks for.
pub(crate) type ApiResult<T> = Result<T, ApiError>;

impl ApiError {
    fn new(
        code: StatusCode,
        reason: &'static str,
        message: impl Into<String>,
        details: Option<Value>,
    ) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details,
        }
    }

    pub(crate) fn not_found(subject: &Subject) -> Self {
        let message = format!("{} {:?} not found", subject.qualified(), subject.name);
        Self::new(
            StatusCode::NOT_FOUND,
            "NotFound",
            message,
            Some(subject.details()),
        )
    }

    /// No such path: an unknown group, version, resource or subresource.
    pub(crate) fn no_such_path() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "NotFound",
            "the server could not find the requested resource",
            Some(json!({})),
        )
    }

    pub(crate) fn already_exists(subject: &Subject) -> Self {
        let message = format!("{} {:?} already exists", subject.qualified(), subject.name);
        Self::new(
            StatusCode::CONFLICT,
            "AlreadyExists",
            message,
            Some(subject.details()),
        )
    }

    pub(crate) fn conflict(subject: &Subject, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} {:?}: {why}",
            subject.qualified(),
            subject.name
        );
        Self::new(
            StatusCode::CONFLICT,
            "Conflict",
            message,
            Some(subject.details()),
        )
    }

    /// An apply would take fields from others; `causes` name them.
    pub(crate) fn apply_conflict(message: impl Into<String>, causes: &[Value]) -> Self {
        Self::new(
            StatusCode::CONFLICT,
            "Conflict",
            message,
            Some(json!({"causes": causes})),
        )
    }

    /// The write was based on an older object than the stored one.
    pub(crate) fn modified(subject: &Subject) -> Self {
        Self::conflict(
            subject,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// Validation failed; `subject.resource` is the kind here.
    pub(crate) fn invalid(subject: &Subject, errors: &[FieldError]) -> Self {
        // The same problem found twice is two causes and one text.
        let mut texts: Vec<String> = Vec::new();
        for text in errors.iter().map(ToString::to_string) {
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let text = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let message = format!(
            "{} {:?} is invalid: {text}",
            subject.qualified(),
            subject.name
        );
        let causes: Vec<Value> = errors
            .iter()
            .map(|e| json!({"reason": e.reason, "message": e.message, "field": e.field}))
            .collect();
        let mut details = subject.details();
        details["causes"] = Value::Array(causes);
        Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "Invalid",
            message,
            Some(details),
        )
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message, None)
    }

    pub(crate) fn forbidden(subject: &Subject, why: &str) -> Self {
        let message = match (subject.resource.as_str(), subject.name.as_str()) {
            ("", _) => format!("forbidden: {why}"),
            (_, "") => format!("{} is forbidden: {why}", subject.qualified()),
            (_, name) => format!("{} {name:?} is forbidden: {why}", subject.qualified()),
        };
        Self::new(
            StatusCode::FORBIDDEN,
            "Forbidden",
            message,
            Some(subject.details()),
        )
    }

    pub(crate) fn namespace_terminating(subject: &Subject, namespace: &str) -> Self {
        let why = format!(
            "unable to create new content in namespace {namespace} because it is being terminated"
        );
        let mut error = Self::forbidden(subject, &why);
        if let Some(details) = &mut error.details {
            details["causes"] = json!([{
                "reason": "NamespaceTerminating",
                "message": format!("namespace {namespace} is being terminated"),
                "field": "metadata.namespace",
            }]);
        }
        error
    }

    pub(crate) fn unauthorized() -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            "Unauthorized",
            "Unauthorized",
            None,
        )
    }

    pub(crate) fn method_not_allowed(message: impl Into<String>) -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "MethodNotAllowed",
            message,
            Some(json!({})),
        )
    }

    pub(crate) fn unsupported_media_type(supported: &str) -> Self {
        Self::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "UnsupportedMediaType",
            format!(
                "the body of the request was in an unknown format - accepted media types include: {supported}"
            ),
            None,
        )
    }

    pub(crate) fn not_acceptable() -> Self {
        Self::new(
            StatusCode::NOT_ACCEPTABLE,
            "NotAcceptable",
            "only the following media types are accepted: application/json",
            None,
        )
    }

    pub(crate) fn too_large(limit_bytes: usize) -> Self {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "RequestEntityTooLarge",
            format!("Request entity too large: limit is {limit_bytes}"),
            None,
        )
    }

    /// As [`Self::too_large`], for another reason than the size of the body.
    pub(crate) fn too_large_because(why: &str) -> Self {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "RequestEntityTooLarge",
            format!("Request entity too large: {why}"),
            None,
        )
    }

    /// The revision asked for is no longer in the watch history.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message, None)
    }

    /// A request that took too long.
    pub(crate) fn timed_out(why: &str) -> Self {
        Self::new(
            StatusCode::GATEWAY_TIMEOUT,
            "Timeout",
            format!("Timeout: {why}"),
            None,
        )
    }

    /// The revision asked for does not exist yet.
    pub(crate) fn future_revision(asked: u64, current: u64) -> Self {
        let text = format!("Too large resource version: {asked}, current: {current}");
        Self::new(
            StatusCode::GATEWAY_TIMEOUT,
            "Timeout",
            text,
            Some(json!({
                "causes": [{
                    "reason": "ResourceVersionTooLarge",
                    "message": "Too large resource version",
                }],
                "retryAfterSeconds": 1,
            })),
        )
    }

    /// A JSON patch that does not fit the object, for example a failed `test`.
    pub(crate) fn unprocessable(why: &str) -> Self {
        Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "Invalid",
            "the server rejected our request due to an error in our request",
            Some(json!({
                "causes": [{"reason": "UnexpectedServerResponse", "message": why}],
            })),
        )
    }

    pub(crate) fn too_many_requests() -> Self {
        Self::new(
            StatusCode::TOO_MANY_REQUESTS,
            "TooManyRequests",
            "the storage's write queue is full, please try again later",
            Some(json!({"retryAfterSeconds": 1})),
        )
    }

    pub(crate) fn internal(why: impl std::fmt::Display) -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "InternalError",
            format!("Internal error occurred: {why}"),
            Some(json!({"causes": [{"message": why.to_string()}]})),
        )
    }

    /// An error that the real server has no reason for.
    pub(crate) fn unexpected(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", message, None)
    }

    /// No handler at all, answered in plain text by the real server.
    pub(crate) fn no_such_page() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            NO_SUCH_PAGE,
            "404 page not found\n",
            None,
        )
    }

    /// The name is taken by an object that waits for its deletion.
    pub(crate) fn still_deleting(subject: &Subject) -> Self {
        let mut error = Self::already_exists(subject);
        error.message = format!("object is being deleted: {}", error.message);
        error
    }

    pub(crate) fn shutting_down() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "ServiceUnavailable",
            "the server is shutting down",
            Some(json!({"retryAfterSeconds": 1})),
        )
    }

    /// The body of the answer.
    pub(crate) fn to_value(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "code": self.code.as_u16(),
        });
        if !self.reason.is_empty() {
            status["reason"] = json!(self.reason);
        }
        if let Some(details) = &self.details {
            status["details"] = details.clone();
        }
        status
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_read_as_the_real_server_writes_them() {
        let deployment = Subject::new("apps", "deployments", "web");
        let pod = Subject::new("", "pods", "web");
        let kind = Subject::new("apps", "Deployment", "web");
        let cases = [
            (
                ApiError::not_found(&deployment),
                r#"deployments.apps "web" not found"#,
            ),
            (ApiError::not_found(&pod), r#"pods "web" not found"#),
            (
                ApiError::already_exists(&pod),
                r#"pods "web" already exists"#,
            ),
            (
                ApiError::modified(&deployment),
                "Operation cannot be fulfilled on deployments.apps \"web\": the object has been modified; please apply your changes to the latest version and try again",
            ),
            (
                ApiError::invalid(&kind, &[FieldError::required("spec.selector", "")]),
                r#"Deployment.apps "web" is invalid: spec.selector: Required value"#,
            ),
            (
                ApiError::invalid(
                    &kind,
                    &[
                        FieldError::required("spec.a", ""),
                        FieldError::invalid("spec.b", &json!("x"), "must be y"),
                    ],
                ),
                r#"Deployment.apps "web" is invalid: [spec.a: Required value, spec.b: Invalid value: "x": must be y]"#,
            ),
        ];
        for (error, message) in cases {
            assert_eq!(error.message, message);
        }
    }

    #[test]
    fn status_body_names_the_object_and_every_cause() {
        let error = ApiError::invalid(
            &Subject::new("apps", "Deployment", "web"),
            &[FieldError::required("spec.selector", "")],
        );
        assert_eq!(
            error.to_value(),
            json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": r#"Deployment.apps "web" is invalid: spec.selector: Required value"#,
                "reason": "Invalid", "code": 422,
                "details": {"name": "web", "group": "apps", "kind": "Deployment", "causes": [
                    {"reason": "FieldValueRequired", "message": "Required value", "field": "spec.selector"},
                ]},
            })
        );
    }
}
