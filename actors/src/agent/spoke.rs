//! The managed cluster: objects of any type, by path.
//!
//! Objects are plain JSON values: what is read is compared and written back whole, and typed
//! structs would drop the fields they do not know.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use http::HeaderValue;
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::api::{DeleteParams, GetParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Request;
use muster_api::constants::DEFAULT_FIELD_MANAGER;
use muster_api::work::{AppliedManifestResourceMeta, ManifestResourceMeta};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;

use super::calls::{ApiError, Calls, Lookup, if_found};
use super::metrics;
use super::rest_mapper::RestMapper;
use super::served::{Served, served};
use crate::supervision::{Health, StreamHealth};

/// Identifies an object on the cluster by its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Target<'a> {
    /// API group; empty for the core group.
    pub(super) group: &'a str,
    /// API version.
    pub(super) version: &'a str,
    /// Resource name in plural.
    pub(super) resource: &'a str,
    /// Namespace; empty for objects without one.
    pub(super) namespace: &'a str,
    /// Name.
    pub(super) name: &'a str,
}

impl<'a> From<&'a ManifestResourceMeta> for Target<'a> {
    fn from(meta: &'a ManifestResourceMeta) -> Self {
        Self {
            group: &meta.group,
            version: &meta.version,
            resource: &meta.resource,
            namespace: &meta.namespace,
            name: &meta.name,
        }
    }
}

impl<'a> From<&'a AppliedManifestResourceMeta> for Target<'a> {
    fn from(meta: &'a AppliedManifestResourceMeta) -> Self {
        Self {
            group: &meta.group,
            version: &meta.version,
            resource: &meta.resource,
            namespace: &meta.namespace,
            name: &meta.name,
        }
    }
}

/// For people: `configmaps ns1/a`.
impl fmt::Display for Target<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        match self.namespace {
            "" => write!(f, " {}", self.name),
            namespace => write!(f, " {namespace}/{}", self.name),
        }
    }
}

impl Target<'_> {
    /// The collection's requests.
    ///
    /// # Errors
    ///
    /// A name or namespace that is no path segment: pasted into a path it would reach another
    /// object than the one it names.
    fn requests(&self) -> Result<Request, ApiError> {
        check_segment("metadata.name", self.name)?;
        check_segment("metadata.namespace", self.namespace)?;
        let mut path = match self.group {
            "" => format!("/api/{}", self.version),
            group => format!("/apis/{group}/{}", self.version),
        };
        if !self.namespace.is_empty() {
            path.push_str("/namespaces/");
            path.push_str(self.namespace);
        }
        path.push('/');
        path.push_str(self.resource);
        Ok(Request::new(path))
    }
}

/// Accepts what every kind's names are made of; the server has the finer rules.
fn check_segment(field: &str, text: &str) -> Result<(), ApiError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-._~:@!$&'()*+,;=".contains(c);
    if text == "." || text == ".." || !text.chars().all(allowed) {
        return Err(ApiError::Malformed(format!(
            "{field}: Invalid value: {text:?}: not a name that a path can hold"
        )));
    }
    Ok(())
}

/// What became of a delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deletion {
    /// Accepted; finalizers may still hold the object.
    Requested,
    /// There is no such object (any more), or another one took its place.
    Gone,
}

/// One managed cluster. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Spoke {
    calls: Calls,
    /// Paths of its kinds.
    pub(super) mapper: RestMapper,
    reachability: Arc<Reachability>,
}

/// Whether the cluster answers. It is a stream of [`Health`] only while it does not: a cluster
/// that nobody has to talk to is not asked whether it is there.
#[derive(Debug)]
struct Reachability {
    cluster: String,
    health: Health,
    failing: Mutex<Option<StreamHealth>>,
}

impl Reachability {
    fn note(&self, error: Option<&ApiError>) {
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = error {
            failing
                .get_or_insert_with(|| self.health.stream(format!("{} spoke", self.cluster)))
                .failing(error);
            metrics::spoke_reachable(&self.cluster, false);
        } else if failing.take().is_some() {
            metrics::spoke_reachable(&self.cluster, true);
        }
    }
}

fn posted() -> PostParams {
    PostParams {
        field_manager: Some(DEFAULT_FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    }
}

fn patched() -> PatchParams {
    PatchParams {
        field_manager: Some(DEFAULT_FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

fn encoded(object: &impl serde::Serialize) -> Result<Vec<u8>, ApiError> {
    serde_json::to_vec(object).map_err(|error| ApiError::Malformed(error.to_string()))
}

impl Spoke {
    /// The cluster behind `client`; failures to reach it show in `health` as `<cluster> spoke`.
    pub(super) fn new(cluster: &str, client: kube::Client, health: Health) -> Self {
        let calls = Calls::new(client);
        Self {
            mapper: RestMapper::new(calls.clone()),
            calls,
            reachability: Arc::new(Reachability {
                cluster: cluster.to_owned(),
                health,
                failing: Mutex::default(),
            }),
        }
    }

    /// Says that nobody has to talk to the cluster any more, reachable or not.
    pub(super) fn idle(&self) {
        self.reachability.note(None);
    }

    /// Reads an object.
    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        target: Target<'_>,
    ) -> Result<Option<T>, ApiError> {
        let request = target.requests()?.get(target.name, &GetParams::default());
        if_found(self.noted(self.calls.send(request).await))
    }

    /// Looks for an object.
    pub(super) async fn find<T: DeserializeOwned>(
        &self,
        target: Target<'_>,
    ) -> Result<Lookup<T>, ApiError> {
        let request = target.requests()?.get(target.name, &GetParams::default());
        Lookup::of(self.noted(self.calls.send(request).await))
    }

    /// In which versions the cluster serves a type.
    pub(super) async fn served(&self, group: &str, resource: &str) -> Result<Served, ApiError> {
        self.noted(served(&self.calls, group, resource).await)
    }

    /// Creates an object.
    pub(super) async fn create<T: DeserializeOwned>(
        &self,
        target: Target<'_>,
        object: &impl serde::Serialize,
    ) -> Result<T, ApiError> {
        let request = target.requests()?.create(&posted(), encoded(object)?);
        self.noted(self.calls.send(request).await)
    }

    /// Asks the cluster's authorizer.
    pub(super) async fn review(
        &self,
        review: &SubjectAccessReview,
    ) -> Result<SubjectAccessReview, ApiError> {
        let requests = Request::new("/apis/authorization.k8s.io/v1/subjectaccessreviews");
        let request = requests.create(&PostParams::default(), encoded(review)?);
        self.noted(self.calls.send(request).await)
    }

    /// Tries in the name of a service account whether an object could be created; creates nothing.
    ///
    /// Its groups are not named: the API server adds those that all service accounts have, and who
    /// names one needs the right to impersonate it, which for `groups` is a right to nearly everything.
    pub(super) async fn try_create_as(
        &self,
        target: Target<'_>,
        object: &Value,
        account: &str,
    ) -> Result<(), ApiError> {
        let params = PostParams {
            dry_run: true,
            ..posted()
        };
        let mut request = target.requests()?.create(&params, encoded(object)?)?;
        let account = HeaderValue::from_str(account)
            .map_err(|_| ApiError::Malformed(format!("{account:?} cannot be a user")))?;
        request.headers_mut().insert("Impersonate-User", account);
        let answer = self.calls.send::<IgnoredAny>(Ok(request)).await;
        self.noted(answer).map(|_| ())
    }

    /// Writes an object over the one of the resource version that it carries.
    pub(super) async fn replace(
        &self,
        target: Target<'_>,
        object: &Value,
    ) -> Result<Value, ApiError> {
        let requests = target.requests()?;
        let request = requests.replace(target.name, &posted(), encoded(object)?);
        self.noted(self.calls.send(request).await)
    }

    /// Applies an object by server-side apply as `manager`; creates it if there is none.
    pub(super) async fn apply(
        &self,
        target: Target<'_>,
        object: &Value,
        manager: &str,
        force: bool,
    ) -> Result<Value, ApiError> {
        let params = PatchParams {
            field_manager: Some(manager.to_owned()),
            force,
            ..PatchParams::default()
        };
        let requests = target.requests()?;
        let request = requests.patch(target.name, &params, &Patch::Apply(object));
        self.noted(self.calls.send(request).await)
    }

    /// Changes an object by a JSON merge patch.
    pub(super) async fn merge<T: DeserializeOwned>(
        &self,
        target: Target<'_>,
        patch: &Value,
    ) -> Result<T, ApiError> {
        let requests = target.requests()?;
        let request = requests.patch(target.name, &patched(), &Patch::Merge(patch));
        self.noted(self.calls.send(request).await)
    }

    /// Changes the status of an object by a JSON merge patch.
    pub(super) async fn merge_status<T: DeserializeOwned>(
        &self,
        target: Target<'_>,
        patch: &Value,
    ) -> Result<T, ApiError> {
        let requests = target.requests()?;
        let patch = Patch::Merge(patch);
        let request = requests.patch_subresource("status", target.name, &patched(), &patch);
        self.noted(self.calls.send(request).await)
    }

    /// Deletes the object if it still is the one of this uid; its dependents follow in the
    /// background.
    pub(super) async fn delete(&self, target: Target<'_>, uid: &str) -> Result<Deletion, ApiError> {
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(uid.to_owned()),
                resource_version: None,
            }),
            ..DeleteParams::background()
        };
        let request = target.requests()?.delete(target.name, &params);
        match self.noted(self.calls.delete(request).await) {
            Ok(()) => Ok(Deletion::Requested),
            Err(error) if error.is_missing_route() => Err(error),
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(Deletion::Gone),
            Err(error) => Err(error),
        }
    }

    fn noted<T>(&self, answer: Result<T, ApiError>) -> Result<T, ApiError> {
        match &answer {
            Err(error) if error.is_unreachable() => self.reachability.note(Some(error)),
            // Not sent, so nothing is known.
            Err(ApiError::Malformed(_)) => {}
            _ => self.reachability.note(None),
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Target<'static> = Target {
        group: "apps",
        version: "v1",
        resource: "deployments",
        namespace: "ns1",
        name: "web",
    };

    fn uri(target: Target<'_>) -> String {
        let request = target.requests().unwrap();
        let request = request.get(target.name, &GetParams::default()).unwrap();
        request.uri().path().to_owned()
    }

    #[test]
    fn paths_are_those_of_the_kubernetes_api() {
        assert_eq!(uri(TARGET), "/apis/apps/v1/namespaces/ns1/deployments/web");
        let role = Target {
            group: "",
            resource: "namespaces",
            namespace: "",
            name: "ns1",
            ..TARGET
        };
        assert_eq!(uri(role), "/api/v1/namespaces/ns1");
        assert_eq!(role.to_string(), "namespaces ns1");
        assert_eq!(TARGET.to_string(), "deployments.apps ns1/web");
        let system = Target {
            name: "system:auth-delegator",
            ..TARGET
        };
        assert!(uri(system).ends_with("/system:auth-delegator"));
    }

    /// Whatever the client behind it calls itself: the server would take its user agent.
    #[test]
    fn writes_are_in_the_agents_name() {
        let requests = || TARGET.requests().unwrap();
        let patch = Patch::Merge(serde_json::json!({}));
        for request in [
            requests().create(&posted(), Vec::new()),
            requests().replace("web", &posted(), Vec::new()),
            requests().patch("web", &patched(), &patch),
            requests().patch_subresource("status", "web", &patched(), &patch),
        ] {
            let request = request.unwrap();
            let query = request.uri().query().unwrap_or_default();
            assert!(query.contains("fieldManager=work-agent"), "{request:?}");
        }
    }

    #[test]
    fn a_name_cannot_leave_its_place_in_the_path() {
        for name in [
            "../../secrets/s",
            "a/b",
            "..",
            "a?b",
            "a#b",
            "a%2fb",
            "a b",
            "ü",
        ] {
            let error = Target { name, ..TARGET }.requests().unwrap_err();
            assert!(
                error
                    .to_string()
                    .starts_with("metadata.name: Invalid value"),
                "{error}"
            );
            let namespace = name;
            assert!(
                Target {
                    namespace,
                    ..TARGET
                }
                .requests()
                .is_err()
            );
        }
    }

    #[tokio::test]
    async fn a_cluster_that_does_not_answer_shows_in_health_until_it_does() {
        let health = Health::new();
        let config = kube::Config::new("http://127.0.0.1:9".parse().unwrap());
        let client = kube::Client::try_from(config).unwrap();
        let spoke = Spoke::new("c1", client, health.clone());
        assert!(health.not_ready().is_empty(), "nobody had to talk to it");
        let answer = spoke.get::<Value>(TARGET).await;
        assert!(answer.unwrap_err().is_unreachable());
        let reasons = health.not_ready();
        assert!(
            reasons[0].starts_with("c1 spoke: the API server cannot be reached"),
            "{reasons:?}"
        );
        spoke.idle();
        assert!(health.not_ready().is_empty());
    }
}
