//! Requests to one API server, with a time limit and errors that say what to do next.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::header::RETRY_AFTER;
use kube::Client;
use kube::client::Body;
use kube::core::Status;
use kube::core::response::StatusDetails;
use serde::de::DeserializeOwned;

/// How long one request may take. An API server answers even a slow admission chain (its own limit
/// is 10 s a webhook) within this; a half-open connection never would.
const REQUEST_LIMIT: Duration = Duration::from_secs(30);

/// Why a request had no success. The texts end up in conditions that everyone on the hub can read:
/// they hold what the server said or how the connection failed, and no credentials.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum ApiError {
    /// The server refused.
    #[error("{}", refusal(.0))]
    Refused(Box<Status>),
    /// No answer, since no connection could be made or it broke.
    #[error("the API server cannot be reached: {0}")]
    Unreachable(String),
    /// No answer in time.
    #[error("the API server cannot be reached: no answer within {} s", .0.as_secs())]
    TimedOut(Duration),
    /// This client cannot log in; details may hold secrets and stay here.
    #[error("the client cannot authenticate to the API server")]
    Login,
    /// The request could not be built, or the answer not be read.
    #[error("{0}")]
    Malformed(String),
}

/// What a refusal says; some proxies and old servers answer without a text.
fn refusal(status: &Status) -> String {
    match (status.message.trim(), status.reason.trim()) {
        ("", "") => format!("the API server answered with HTTP status {}", status.code),
        ("", reason) => reason.to_owned(),
        (message, _) => message.to_owned(),
    }
}

impl ApiError {
    /// The object does not exist, or its type does not.
    pub(super) fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// What does not exist is the path rather than the object: the type is not served, or not in
    /// this version. Only what is said of an object names it.
    pub(super) fn is_missing_route(&self) -> bool {
        let Self::Refused(status) = self else {
            return false;
        };
        let details = status.details.as_ref();
        self.is_not_found() && details.is_none_or(|details| details.name.is_empty())
    }

    /// What does not exist is the namespace that the object is to be in.
    pub(super) fn is_missing_namespace(&self) -> bool {
        let Self::Refused(status) = self else {
            return false;
        };
        let details = status.details.as_ref();
        self.is_not_found() && details.is_some_and(|details| details.kind == "namespaces")
    }

    /// The object has changed since it was read (not: it exists already,
    /// nor: its fields belong to others).
    pub(super) fn is_conflict(&self) -> bool {
        matches!(self, Self::Refused(status) if status.code == 409 && !exists(status))
            && !self.is_field_conflict()
    }

    /// Fields to apply belong to somebody else, who is named in the text. Trying again is of no
    /// use until somebody gives way.
    pub(super) fn is_field_conflict(&self) -> bool {
        self.causes()
            .any(|(reason, _)| reason == "FieldManagerConflict")
    }

    /// Reasons and messages of what is in the way in detail.
    pub(super) fn causes(&self) -> impl Iterator<Item = (&str, &str)> {
        let details = match self {
            Self::Refused(status) => status.details.as_ref(),
            _ => None,
        };
        let causes = details.into_iter().flat_map(|details| &details.causes);
        causes.map(|cause| (cause.reason.as_str(), cause.message.as_str()))
    }

    /// Fields that are in the way, each with what the server says of it.
    pub(super) fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        let details = match self {
            Self::Refused(status) if status.code == 422 => status.details.as_ref(),
            _ => None,
        };
        let causes = details.into_iter().flat_map(|details| &details.causes);
        causes.map(|cause| (cause.field.as_str(), cause.message.as_str()))
    }

    /// An object of this name exists.
    pub(super) fn is_already_exists(&self) -> bool {
        matches!(self, Self::Refused(status) if status.code == 409 && exists(status))
    }

    /// The caller lacks a permission.
    pub(super) fn is_forbidden(&self) -> bool {
        self.code() == Some(403)
    }

    /// The object is not one that the server would store.
    pub(super) fn is_invalid(&self) -> bool {
        matches!(self.code(), Some(400 | 422))
    }

    /// The server was not reached, so that further requests are of no use for now.
    pub(super) const fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::TimedOut(_) | Self::Login)
    }

    /// How long the server asks to be left alone.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        let Self::Refused(status) = self else {
            return None;
        };
        let seconds = status.details.as_ref()?.retry_after_seconds;
        (seconds > 0).then(|| Duration::from_secs(seconds.into()))
    }

    fn code(&self) -> Option<u16> {
        match self {
            Self::Refused(status) => Some(status.code),
            _ => None,
        }
    }
}

fn exists(status: &Status) -> bool {
    status.reason == "AlreadyExists"
}

impl From<kube::Error> for ApiError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::Refused(status),
            // The output of a credential plugin is part of these texts.
            kube::Error::Auth(_) => Self::Login,
            kube::Error::Service(error) => Self::Unreachable(innermost(error.as_ref())),
            kube::Error::HyperError(error) => Self::Unreachable(innermost(&error)),
            other => Self::Malformed(other.to_string()),
        }
    }
}

impl From<kube::core::request::Error> for ApiError {
    fn from(error: kube::core::request::Error) -> Self {
        Self::Malformed(innermost(&error))
    }
}

/// The text of the first cause: "Connection refused" tells more than "client error (Connect)".
fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// Sends requests to one API server. Cheap to clone.
#[derive(Clone)]
pub(super) struct Calls(Client);

impl fmt::Debug for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Calls")
    }
}

impl Calls {
    /// Uses `client`.
    pub(super) const fn new(client: Client) -> Self {
        Self(client)
    }

    /// The client, for requests that are not made here.
    pub(super) fn client(&self) -> Client {
        self.0.clone()
    }

    /// Sends what the builder made and reads the answer as `T`.
    pub(super) async fn send<T: DeserializeOwned>(
        &self,
        request: Result<Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<T, ApiError> {
        let bytes = within_limit(self.answer(request?)).await?;
        serde_json::from_slice(&bytes).map_err(|error| ApiError::Malformed(error.to_string()))
    }

    /// Sends a delete, whose answer is the object or a status.
    pub(super) async fn delete(
        &self,
        request: Result<Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<(), ApiError> {
        within_limit(self.answer(request?)).await?;
        Ok(())
    }

    /// The body of a good answer.
    ///
    /// kube's own way from a bad answer to an error drops the headers, and with them the time that
    /// a throttling server asks for: API priority and fairness gives it nowhere else.
    async fn answer(&self, request: Request<Vec<u8>>) -> Result<Bytes, ApiError> {
        let response = self.0.send(request.map(Body::from)).await?;
        let (head, body) = response.into_parts();
        let bytes = body.collect_bytes().await?;
        if !head.status.is_client_error() && !head.status.is_server_error() {
            return Ok(bytes);
        }
        let mut status: Status = serde_json::from_slice(&bytes).unwrap_or_else(|_| {
            let text = String::from_utf8_lossy(&bytes);
            Status::failure(text.trim(), "")
        });
        status.code = head.status.as_u16();
        let header = head.headers.get(RETRY_AFTER);
        let seconds = header.and_then(|seconds| seconds.to_str().ok()?.trim().parse().ok());
        if let Some(seconds) = seconds {
            let details = status.details.get_or_insert_with(no_details);
            details.retry_after_seconds = details.retry_after_seconds.max(seconds);
        }
        Err(ApiError::Refused(Box::new(status)))
    }
}

const fn no_details() -> StatusDetails {
    StatusDetails {
        name: String::new(),
        group: String::new(),
        kind: String::new(),
        uid: String::new(),
        causes: Vec::new(),
        retry_after_seconds: 0,
    }
}

/// Bounds a request in time.
pub(super) async fn within_limit<T, E>(
    request: impl Future<Output = Result<T, E>>,
) -> Result<T, ApiError>
where
    ApiError: From<E>,
{
    match tokio::time::timeout(REQUEST_LIMIT, request).await {
        Ok(answer) => answer.map_err(ApiError::from),
        Err(_) => Err(ApiError::TimedOut(REQUEST_LIMIT)),
    }
}

/// What came of looking for an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Lookup<T> {
    /// It is there.
    Found(T),
    /// It does not exist.
    NoObject,
    /// The path does not exist, so it is not known whether the object does.
    NoRoute,
}

impl<T> Lookup<T> {
    /// Reads the answer to a request for an object.
    pub(super) fn of(answer: Result<T, ApiError>) -> Result<Self, ApiError> {
        match answer {
            Ok(object) => Ok(Self::Found(object)),
            Err(error) if error.is_missing_route() => Ok(Self::NoRoute),
            Err(error) if error.is_not_found() => Ok(Self::NoObject),
            Err(error) => Err(error),
        }
    }
}

/// Turns the answer that an object does not exist into `None`.
pub(super) fn if_found<T>(answer: Result<T, ApiError>) -> Result<Option<T>, ApiError> {
    match answer {
        Ok(object) => Ok(Some(object)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(json: serde_json::Value) -> ApiError {
        ApiError::Refused(Box::new(serde_json::from_value(json).unwrap()))
    }

    #[test]
    fn a_conflict_and_an_existing_object_are_told_apart() {
        let conflict = refused(serde_json::json!({"code": 409, "reason": "Conflict"}));
        assert!(conflict.is_conflict() && !conflict.is_already_exists());
        let exists = refused(serde_json::json!({"code": 409, "reason": "AlreadyExists"}));
        assert!(exists.is_already_exists() && !exists.is_conflict());
        let fields = refused(serde_json::json!({
            "code": 409, "reason": "Conflict", "details": {"causes": [{
                "reason": "FieldManagerConflict", "field": ".spec.replicas",
                "message": "conflict with \"kubectl\"",
            }]},
        }));
        assert!(fields.is_field_conflict() && !fields.is_conflict());
        assert!(!conflict.is_field_conflict() && !exists.is_field_conflict());
    }

    #[test]
    fn a_missing_path_and_a_missing_object_are_told_apart() {
        let lookup = |error: ApiError| Lookup::<()>::of(Err(error)).unwrap();
        let object = serde_json::json!({"code": 404, "reason": "NotFound",
            "message": "gears.example.org \"a\" not found",
            "details": {"name": "a", "group": "example.org", "kind": "gears"}});
        assert_eq!(lookup(refused(object)), Lookup::NoObject);
        for path in [
            serde_json::json!({"code": 404, "message": "404 page not found"}),
            serde_json::json!({"code": 404, "reason": "NotFound", "details": {},
                "message": "the server could not find the requested resource"}),
        ] {
            assert_eq!(lookup(refused(path)), Lookup::NoRoute);
        }
        let forbidden = refused(serde_json::json!({"code": 403}));
        assert!(Lookup::<()>::of(Err(forbidden)).is_err());
    }

    #[test]
    fn a_refusal_always_has_a_text() {
        for (json, text) in [
            (
                serde_json::json!({"code": 403, "message": "no", "reason": "Forbidden"}),
                "no",
            ),
            (
                serde_json::json!({"code": 403, "reason": "Forbidden"}),
                "Forbidden",
            ),
            (
                serde_json::json!({"code": 502}),
                "the API server answered with HTTP status 502",
            ),
        ] {
            assert_eq!(refused(json).to_string(), text);
        }
    }

    #[test]
    fn the_wish_of_a_throttling_server_is_read() {
        let throttled = refused(serde_json::json!({
            "code": 429, "message": "slow down", "details": {"retryAfterSeconds": 7},
        }));
        assert_eq!(throttled.retry_after(), Some(Duration::from_secs(7)));
        assert_eq!(
            refused(serde_json::json!({"code": 429})).retry_after(),
            None
        );
    }

    #[tokio::test]
    async fn a_refused_connection_is_told_by_its_cause() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let url = format!("http://127.0.0.1:{port}").parse().unwrap();
        let client = Client::try_from(kube::Config::new(url)).unwrap();
        let request = kube::core::Request::new("/api").get("v1", &kube::api::GetParams::default());
        let error = Calls::new(client)
            .send::<serde_json::Value>(request)
            .await
            .unwrap_err();
        assert!(error.is_unreachable(), "{error:?}");
        assert!(
            error
                .to_string()
                .starts_with("the API server cannot be reached: Connection refused"),
            "{error}"
        );
    }

    /// What kube-apiserver's priority and fairness answers: a text, and the time in a header.
    #[tokio::test]
    async fn the_header_of_a_throttling_server_is_read() {
        let service = tower::service_fn(|_: Request<Body>| async {
            let answer = http::Response::builder()
                .status(429)
                .header(RETRY_AFTER, "3")
                .body(Body::from(
                    b"Too many requests, please try again later.\n".to_vec(),
                ));
            answer.map_err(tower::BoxError::from)
        });
        let calls = Calls::new(Client::new(service, "default"));
        let request = kube::core::Request::new("/api").get("v1", &kube::api::GetParams::default());
        let error = calls.send::<serde_json::Value>(request).await.unwrap_err();
        assert_eq!(error.retry_after(), Some(Duration::from_secs(3)));
        assert_eq!(
            error.to_string(),
            "Too many requests, please try again later."
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_without_an_answer_ends_in_time() {
        let error = within_limit(std::future::pending::<kube::Result<()>>())
            .await
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "the API server cannot be reached: no answer within 30 s"
        );
    }
}
