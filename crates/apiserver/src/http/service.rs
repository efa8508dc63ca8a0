//! The server as a tower service: routing, forms of answers, errors.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WARNING};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use muster_watchdog::Task;
use serde_json::{Value, json};

use super::body::ApiBody;
use super::heavy;
use super::negotiate::{self, Form};
use super::path::{self, ResourcePath, Target};
use super::query::Query;
use crate::authz::UserInfo;
use crate::discovery;
use crate::openapi;
use crate::registry::Types;
use crate::server::Inner;
use crate::status::{ApiError, ApiResult, NO_SUCH_PAGE};
use crate::strategy::Part;
use crate::table;
use crate::verbs::call::{Answer, Call, Outcome};
use crate::verbs::{delete, manager, read, scale, watch, write};

/// Largest request body, as in the real server.
const MAX_BODY_BYTES: usize = 3 * 1024 * 1024;

/// Longest time for a request's body, as long as the real server gives a request.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// The server behind [`kube::Client`]s and connections.
#[derive(Clone)]
pub(crate) struct ApiService {
    pub(crate) server: Arc<Inner>,
    /// Requests appear in the statistics.
    pub(crate) counted: bool,
    /// Whom requests come from.
    pub(crate) user: Arc<UserInfo>,
}

impl<B> tower::Service<Request<B>> for ApiService
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<ApiBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let service = self.clone();
        let name = format!("{} {}", request.method(), request.uri().path());
        Box::pin(Task::new("Request", name).watch(async move {
            Ok(match service.handle(request).await {
                Ok(response) => response,
                Err(error) => error_response(&error),
            })
        }))
    }
}

impl ApiService {
    async fn handle<B>(self, request: Request<B>) -> ApiResult<Response<ApiBody>>
    where
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let Self {
            server, counted, ..
        } = self;
        if server.stopping.is_cancelled() {
            return Err(ApiError::shutting_down());
        }
        let (parts, body) = request.into_parts();
        let target = path::parse(parts.uri.path());
        let query = Query::parse(parts.uri.query());
        let user = server.admit_user(&self.user, &parts, &target, &query)?;
        let path = match target {
            Target::Resource(path) => path,
            other => {
                if parts.method != Method::GET && parts.method != Method::HEAD {
                    return Err(ApiError::no_such_path());
                }
                return plain(&server, &other, &parts.headers);
            }
        };
        let types = server.registry.types();
        let def = types
            .find(&path.group, &path.plural)
            .filter(|d| d.version(&path.version).is_some())
            .filter(|d| d.namespaced || path.namespace.is_none())
            .cloned()
            .ok_or_else(|| no_such_resource(&types, &path.group))?;
        let form = negotiate::accepted(&parts.headers)?;
        let body = collect(body).await?;
        let call = Call {
            server,
            def,
            manager: manager::of(&parts.headers, &query),
            query,
            form,
            content_type: negotiate::content_type(&parts.headers).to_owned(),
            path,
            body,
            user,
            counted,
        };
        let verb = Verb::of(&parts.method, &call)?;
        if counted {
            call.server.meter.request(verb.name(), &call.def.key);
        }
        call.check_dry_run(verb.options())?;
        call.check_manager(verb.options())?;
        let heavy = verb.is_write().then(|| heavy::shares(&call)).flatten();
        match heavy {
            Some(shares) => {
                let server = call.server.clone();
                server.heavy.run(shares, move || dispatch(verb, call)).await
            }
            None => dispatch(verb, call).await,
        }
    }
}

/// Groups of CRDs and unknown groups answer in plain text, as the real server does.
fn no_such_resource(types: &Types, group: &str) -> ApiError {
    if types
        .all
        .iter()
        .any(|d| d.group == group && d.builtin.is_some())
    {
        ApiError::no_such_path()
    } else {
        ApiError::no_such_page()
    }
}

async fn collect<B>(body: B) -> ApiResult<Bytes>
where
    B: Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let all = Limited::new(body, MAX_BODY_BYTES).collect();
    let Ok(all) = tokio::time::timeout(BODY_TIMEOUT, all).await else {
        return Err(ApiError::timed_out(
            "request did not complete within the allotted timeout",
        ));
    };
    match all {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(e) if e.is::<LengthLimitError>() => Err(ApiError::too_large(MAX_BODY_BYTES)),
        Err(e) => Err(ApiError::bad_request(format!(
            "failed to read the request's body: {e}"
        ))),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

impl Verb {
    fn of(method: &Method, call: &Call) -> ApiResult<Self> {
        let ResourcePath {
            name, subresource, ..
        } = &call.path;
        let verb = match (method.as_str(), name.is_some()) {
            ("GET" | "HEAD", _) if call.query.flag("watch") => Self::Watch,
            ("GET" | "HEAD", true) => Self::Get,
            ("GET" | "HEAD", false) => Self::List,
            ("POST", false) => Self::Create,
            ("PUT", true) => Self::Update,
            ("PATCH", true) => Self::Patch,
            ("DELETE", true) => Self::Delete,
            ("DELETE", false) => Self::DeleteCollection,
            _ => return Err(not_allowed()),
        };
        let review = call.def.builtin.is_some_and(|b| b.review);
        if review && verb != Self::Create {
            return Err(not_allowed());
        }
        let version = call.version();
        match subresource.as_deref() {
            None => {}
            Some("status") if version.status => {}
            Some("scale") if version.scale.is_some() => {}
            Some("finalize") if &*call.def.key == crate::builtin::NAMESPACES => {}
            Some(_) if call.def.builtin.is_none() => {
                return Err(ApiError::not_found(&call.subject(call.name())));
            }
            Some(_) => return Err(ApiError::no_such_path()),
        }
        let on_subresource = matches!(verb, Self::Get | Self::Update | Self::Patch);
        if subresource.is_some() && !on_subresource {
            return Err(not_allowed());
        }
        Ok(verb)
    }

    /// Whether an object in the request is checked and stored.
    fn is_write(self) -> bool {
        matches!(self, Self::Create | Self::Update | Self::Patch)
    }

    /// The kind of the verb's options, for errors about them.
    fn options(self) -> &'static str {
        match self {
            Self::Get | Self::List | Self::Watch => "ListOptions",
            Self::Create => "CreateOptions",
            Self::Update => "UpdateOptions",
            Self::Patch => "PatchOptions",
            Self::Delete | Self::DeleteCollection => "DeleteOptions",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }
}

fn not_allowed() -> ApiError {
    ApiError::method_not_allowed("the server does not allow this method on the requested resource")
}

async fn dispatch(verb: Verb, call: Call) -> ApiResult<Response<ApiBody>> {
    if verb == Verb::Watch {
        let outcome = watch::watch(call)?;
        return Ok(lines_response(outcome));
    }
    let part = match call.subresource() {
        Some("status") => Part::Status,
        Some("finalize") => Part::Finalize,
        _ => Part::Main,
    };
    let is_scale = call.subresource() == Some("scale");
    let outcome = match verb {
        Verb::Get if is_scale => scale::get(&call)?,
        Verb::Update | Verb::Patch if is_scale => {
            Box::pin(scale::change(&call, verb == Verb::Patch)).await?
        }
        Verb::Get => read::get(&call)?,
        Verb::List => read::list(&call)?,
        Verb::Create => Box::pin(write::create(&call)).await?,
        Verb::Update => Box::pin(write::update(&call, part)).await?,
        Verb::Patch => Box::pin(write::patch(&call, part)).await?,
        Verb::Delete => Box::pin(delete::delete(&call)).await?,
        Verb::DeleteCollection => Box::pin(delete::delete_collection(&call)).await?,
        Verb::Watch => unreachable!("answered above"),
    };
    let warnings = match &call.version().deprecation_warning {
        Some(text) => outcome.warnings.iter().chain([text]).cloned().collect(),
        None => outcome.warnings,
    };
    let mut response = match outcome.answer {
        Answer::Json(bytes) => json_response(StatusCode::OK, bytes),
        Answer::Value(code, value) => value_response(code, &value),
        Answer::Object(code, stored) => {
            let bytes = match call.form {
                Form::Table => {
                    let metadata = json!({"resourceVersion": stored.revision.to_string()});
                    let table = table::render(&call, &metadata, &[stored], true);
                    return Ok(value_response(code, &table));
                }
                Form::Metadata => stored.metadata_bytes(),
                _ => stored.bytes_as(&call.def.kind, &call.api_version()),
            };
            json_response(code, bytes)
        }
        Answer::Lines(_) => unreachable!("only watches stream"),
    };
    for text in warnings {
        let text = text.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{text}\"")) {
            response.headers_mut().append(WARNING, value);
        }
    }
    Ok(response)
}

fn plain(server: &Inner, target: &Target, headers: &HeaderMap) -> ApiResult<Response<ApiBody>> {
    let types = server.registry.types();
    let form = negotiate::accepted(headers).unwrap_or(Form::Object);
    let aggregated = form == Form::AggregatedDiscovery;
    let value = match target {
        Target::CoreVersions | Target::Groups if aggregated => {
            let value = discovery::aggregated(&types, *target == Target::CoreVersions);
            let mut response = value_response(StatusCode::OK, &value);
            response.headers_mut().insert(
                CONTENT_TYPE,
                HeaderValue::from_static(
                    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
                ),
            );
            return Ok(response);
        }
        Target::CoreVersions => Some(discovery::core_versions()),
        Target::Groups => Some(discovery::groups(&types)),
        Target::Group(group) => discovery::one_group(&types, group),
        Target::GroupVersion { group, version } => discovery::resources(&types, group, version),
        Target::Plain(path) => match path.trim_end_matches('/') {
            "/version" => Some(discovery::version()),
            "/openapi/v2" if negotiate::wants_openapi_protobuf(headers) => {
                // In this form, a document that has nothing has no bytes.
                let mut response = json_response(StatusCode::OK, Bytes::new());
                response.headers_mut().insert(
                    CONTENT_TYPE,
                    HeaderValue::from_static(negotiate::OPENAPI_PROTOBUF),
                );
                return Ok(response);
            }
            "/openapi/v2" => Some(openapi::version_2()),
            "/openapi/v3" => Some(openapi::index(&types)),
            path if path.starts_with("/openapi/v3/") => {
                openapi::document(server, &path["/openapi/v3/".len()..])
            }
            "/healthz" | "/readyz" | "/livez" => return Ok(text_response("ok")),
            _ => None,
        },
        Target::Resource(_) => None,
    };
    value
        .map(|v| value_response(StatusCode::OK, &v))
        .ok_or_else(ApiError::no_such_page)
}

fn json_response(code: StatusCode, bytes: Bytes) -> Response<ApiBody> {
    let mut response = Response::new(ApiBody::Whole(Some(bytes)));
    *response.status_mut() = code;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn value_response(code: StatusCode, value: &Value) -> Response<ApiBody> {
    json_response(code, Bytes::from(value.to_string()))
}

fn text_response(text: &'static str) -> Response<ApiBody> {
    let mut response = Response::new(ApiBody::Whole(Some(Bytes::from_static(text.as_bytes()))));
    response.headers_mut().insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    response
}

fn lines_response(outcome: Outcome) -> Response<ApiBody> {
    let Answer::Lines(lines) = outcome.answer else {
        unreachable!("watches stream")
    };
    let mut response = Response::new(ApiBody::Lines(lines));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// An error as the client gets it.
pub(crate) fn error_response(error: &ApiError) -> Response<ApiBody> {
    if error.reason == NO_SUCH_PAGE {
        let mut response = text_response("404 page not found\n");
        *response.status_mut() = error.code;
        return response;
    }
    let mut response = value_response(error.code, &error.to_value());
    let retry = error
        .details
        .as_ref()
        .and_then(|d| d["retryAfterSeconds"].as_u64());
    if let Some(seconds) = retry {
        response
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if error.code == StatusCode::METHOD_NOT_ALLOWED {
        response
            .headers_mut()
            .insert(ALLOW, HeaderValue::from_static("GET"));
    }
    response
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use http_body::Frame;

    use super::*;

    /// A body that never comes.
    struct Silent;

    impl Body for Silent {
        type Data = Bytes;
        type Error = std::io::Error;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
            Poll::Pending
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_come_is_given_up() {
        let began = tokio::time::Instant::now();
        let refused = collect(Silent).await.unwrap_err();
        assert_eq!(refused.code, StatusCode::GATEWAY_TIMEOUT);
        assert_eq!(began.elapsed(), BODY_TIMEOUT);
    }

    #[tokio::test]
    async fn a_body_that_is_too_long_is_refused() {
        let longest = http_body_util::Full::new(Bytes::from(vec![b' '; MAX_BODY_BYTES]));
        assert_eq!(collect(longest).await.unwrap().len(), MAX_BODY_BYTES);
        let longer = http_body_util::Full::new(Bytes::from(vec![b' '; MAX_BODY_BYTES + 1]));
        let refused = collect(longer).await.unwrap_err();
        assert_eq!(refused.code, StatusCode::PAYLOAD_TOO_LARGE);
    }
}
