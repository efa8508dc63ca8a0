//! The agent's side of the hub: the works in its namespace, read and written.

use jiff::Timestamp;
use kube::api::{GetParams, Patch, PatchParams};
use kube::core::Request;
use muster_api::constants::{DEFAULT_FIELD_MANAGER, MANIFEST_WORK_FINALIZER};
use muster_api::work::{ManifestWorkStatus, RawManifestWork};
use muster_core::feedback::RefusedValues;
use serde_json::{Value, json};

use super::calls::{ApiError, Calls, if_found};
use super::metrics::{self, PatchResult};
use super::work::Work;

/// Tries of a patch when others change the work at the same time.
const TRIES: usize = 4;

/// The works of one cluster on the hub. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Hub {
    calls: Calls,
    namespace: String,
}

impl Hub {
    pub(super) fn new(client: kube::Client, cluster: &str) -> Self {
        Self {
            calls: Calls::new(client),
            namespace: cluster.to_owned(),
        }
    }

    fn requests(&self) -> Request {
        let Self { namespace, .. } = self;
        Request::new(format!(
            "/apis/work.open-cluster-management.io/v1/namespaces/{namespace}/manifestworks"
        ))
    }

    async fn get(&self, name: &str) -> Result<Option<Work>, ApiError> {
        let request = self.requests().get(name, &GetParams::default());
        let raw: Option<RawManifestWork> = if_found(self.calls.send(request).await)?;
        Ok(raw.map(Work::from))
    }

    /// Adds the agent's finalizer.
    pub(super) async fn add_finalizer(&self, work: &Work) -> Result<Work, ApiError> {
        let mut finalizers = work.finalizers.to_vec();
        finalizers.push(MANIFEST_WORK_FINALIZER.to_owned());
        self.set_finalizers(work, &finalizers).await
    }

    /// Removes the agent's finalizer: the hub may forget the work. A work that is gone already is
    /// as good.
    pub(super) async fn remove_finalizer(&self, work: &Work) -> Result<(), ApiError> {
        let mut work = work.clone();
        for attempt in 1.. {
            if !work.has_finalizer() {
                break;
            }
            let mut finalizers = work.finalizers.to_vec();
            finalizers.retain(|name| name != MANIFEST_WORK_FINALIZER);
            match if_found(self.set_finalizers(&work, &finalizers).await) {
                Err(error) if error.is_conflict() && attempt < TRIES => {
                    match self.get(&work.name).await? {
                        Some(fresh) if fresh.uid == work.uid => work = fresh,
                        _ => break,
                    }
                }
                answer => return answer.map(|_| ()),
            }
        }
        Ok(())
    }

    async fn set_finalizers(&self, work: &Work, finalizers: &[String]) -> Result<Work, ApiError> {
        let mut patch = precondition(work);
        patch["metadata"]["finalizers"] = json!(finalizers);
        let params = patched();
        let request = self
            .requests()
            .patch(&work.name, &params, &Patch::Merge(&patch));
        let raw: RawManifestWork = self.calls.send(request).await?;
        Ok(raw.into())
    }

    /// Brings the status to what `compose` makes of the present one; writes nothing if that is
    /// the same. Returns the work as it is then, or `None` if it is gone.
    ///
    /// Lists are written whole, so the patch holds only for the resource version it was made
    /// from; a conflict reads the work again and composes anew.
    pub(super) async fn patch_status(
        &self,
        work: &Work,
        compose: impl Fn(&ManifestWorkStatus) -> ManifestWorkStatus,
    ) -> Result<Option<Work>, ApiError> {
        let mut refused = RefusedValues::default();
        self.patch_feedback(work, &mut refused, compose).await
    }

    /// As [`Hub::patch_status`], without the values that the API server has `refused`. If it refuses
    /// others, these are left out, too, and the status is sent once more.
    pub(super) async fn patch_feedback(
        &self,
        work: &Work,
        refused: &mut RefusedValues,
        compose: impl Fn(&ManifestWorkStatus) -> ManifestWorkStatus,
    ) -> Result<Option<Work>, ApiError> {
        let mut work = work.clone();
        for attempt in 1.. {
            let present = work.status();
            let mut wanted = compose(&present);
            refused.take_out(
                &mut wanted.resource_status.manifests,
                &present.resource_status.manifests,
                Timestamp::now(),
            );
            let Some(patch) = status_patch(&work, &present, &wanted) else {
                return Ok(Some(work));
            };
            let params = patched();
            let body = Patch::Merge(&patch);
            let request = self
                .requests()
                .patch_subresource("status", &work.name, &params, &body);
            match if_found(self.calls.send::<RawManifestWork>(request).await) {
                Ok(written) => {
                    metrics::status_patched(PatchResult::Written);
                    return Ok(written.map(Work::from));
                }
                Err(error) if error.is_conflict() && attempt < TRIES => {
                    metrics::status_patched(PatchResult::Conflict);
                    match self.get(&work.name).await? {
                        Some(fresh) if fresh.uid == work.uid => work = fresh,
                        _ => return Ok(None),
                    }
                }
                Err(error) => {
                    metrics::status_patched(PatchResult::Failed);
                    let sent = &wanted.resource_status.manifests;
                    if attempt >= TRIES || !refused.learn(sent, error.fields()) {
                        return Err(error);
                    }
                }
            }
        }
        Ok(None)
    }
}

fn patched() -> PatchParams {
    PatchParams {
        field_manager: Some(DEFAULT_FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

/// Names the state of the work that a patch was made from.
fn precondition(work: &Work) -> Value {
    json!({"metadata": {
        "uid": &*work.uid,
        "resourceVersion": &*work.resource_version,
    }})
}

/// The merge patch from one status to another, with only the part that differs.
fn status_patch(
    work: &Work,
    present: &ManifestWorkStatus,
    wanted: &ManifestWorkStatus,
) -> Option<Value> {
    let mut status = serde_json::Map::new();
    if present.conditions != wanted.conditions {
        status.insert("conditions".to_owned(), json!(wanted.conditions));
    }
    if present.resource_status != wanted.resource_status {
        let manifests = &wanted.resource_status.manifests;
        status.insert(
            "resourceStatus".to_owned(),
            json!({ "manifests": manifests }),
        );
    }
    (!status.is_empty()).then(|| {
        let mut patch = precondition(work);
        patch["status"] = Value::Object(status);
        patch
    })
}
