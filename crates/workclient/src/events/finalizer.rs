//! The finalizer of works on a hub: it holds a work until its agent has cleaned up.

use kube::Api;
use kube::api::{Patch, PatchParams};
use muster_api::constants::MANIFEST_WORK_FINALIZER;
use muster_api::work::RawManifestWork;
use serde_json::json;

/// How often a change is tried against others who change the same work.
const TRIES: usize = 5;

pub(super) fn is_there(work: &RawManifestWork) -> bool {
    let mut finalizers = work.metadata.finalizers.iter().flatten();
    finalizers.any(|name| name == MANIFEST_WORK_FINALIZER)
}

/// Puts it there, or takes it away. Gives the work as it then is; `None` if it is gone, or is
/// another one.
pub(super) async fn set(
    api: &Api<RawManifestWork>,
    name: &str,
    uid: &str,
    wanted: bool,
) -> Result<Option<RawManifestWork>, kube::Error> {
    let mut last = None;
    for _ in 0..TRIES {
        let Some(work) = api.get_opt(name).await? else {
            return Ok(None);
        };
        if work.metadata.uid.as_deref() != Some(uid) {
            return Ok(None);
        }
        // Nobody may hold up a deletion that has begun.
        if is_there(&work) == wanted || (wanted && work.metadata.deletion_timestamp.is_some()) {
            return Ok(Some(work));
        }
        let mut finalizers = work.metadata.finalizers.clone().unwrap_or_default();
        finalizers.retain(|name| name != MANIFEST_WORK_FINALIZER);
        if wanted {
            finalizers.push(MANIFEST_WORK_FINALIZER.to_owned());
        }
        let metadata = json!({
            "uid": uid,
            "resourceVersion": work.metadata.resource_version,
            "finalizers": finalizers,
        });
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        match api.patch(name, &PatchParams::default(), &patch).await {
            Ok(patched) => return Ok(Some(patched)),
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(None),
            Err(kube::Error::Api(status)) if status.code == 409 => {
                last = Some(kube::Error::Api(status));
            }
            Err(error) => return Err(error),
        }
    }
    match last {
        Some(error) => Err(error),
        None => Ok(None),
    }
}
