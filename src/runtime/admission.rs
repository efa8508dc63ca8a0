//! What the embedded hub refuses at the door, as OCM's webhook does.

use muster_api::constants as names;
use muster_api::work::Manifest;
use muster_apiserver::{Admission, AdmissionRequest, Operation};
use muster_core::manifest::{DEFAULT_MANIFEST_LIMIT_BYTES, validate_manifests};
use serde_json::Value;

/// Checks the manifests of ManifestWorks, and of the templates of replica sets, where upstream
/// ships no webhook and lets the error show up in every cluster.
#[derive(Debug)]
pub(super) struct WorkAdmission;

impl Admission for WorkAdmission {
    fn name(&self) -> &'static str {
        "manifestworkvalidators.admission.work.open-cluster-management.io"
    }

    fn admit(&self, request: &AdmissionRequest<'_>) -> Result<(), String> {
        let checked = matches!(request.operation, Operation::Create | Operation::Update)
            && request.subresource.is_none()
            && request.group == names::WORK_GROUP_NAME;
        let path = match request.resource {
            "manifestworks" if checked => "/spec/workload/manifests",
            "manifestworkreplicasets" if checked => "/spec/manifestWorkTemplate/workload/manifests",
            _ => return Ok(()),
        };
        let wanted = request.object.pointer(path);
        // A write that leaves the manifests alone, such as a finalizer's, must always pass: an
        // object that got in under other rules has to be deletable.
        if request.old.is_some_and(|old| old.pointer(path) == wanted) {
            return Ok(());
        }
        let manifests = wanted
            .and_then(Value::as_array)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let manifests = manifests
            .iter()
            .map(Manifest::from_value)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| error.to_string())?;
        validate_manifests(&manifests, DEFAULT_MANIFEST_LIMIT_BYTES)
            .map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn admit(resource: &str, object: &Value, old: Option<&Value>) -> Result<(), String> {
        WorkAdmission.admit(&AdmissionRequest {
            operation: if old.is_some() {
                Operation::Update
            } else {
                Operation::Create
            },
            group: names::WORK_GROUP_NAME,
            version: "v1",
            resource,
            subresource: None,
            namespace: Some("c1"),
            name: "w",
            object,
            old,
        })
    }

    fn work(manifests: &Value) -> Value {
        json!({"spec": {"workload": {"manifests": manifests}}})
    }

    fn config_map(name: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "ns"}})
    }

    #[test]
    fn bad_manifests_are_refused_with_upstreams_texts() {
        let refusal =
            |manifests: Value| admit("manifestworks", &work(&manifests), None).unwrap_err();
        assert_eq!(refusal(json!([])), "manifests should not be empty");
        assert_eq!(
            refusal(json!([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}])),
            "name must be set in manifest"
        );
        assert_eq!(
            refusal(json!([config_map("a"), config_map("a")])),
            "duplicate manifest for resource ns/a with resource type v1.ConfigMap"
        );
        let big = "x".repeat(600 * 1024);
        let mut large = config_map("a");
        large["data"] = json!({"big": big});
        assert!(refusal(json!([large])).contains("exceeds the 512000 limit"));
        assert_eq!(
            admit("manifestworks", &work(&json!([config_map("a")])), None),
            Ok(())
        );
    }

    #[test]
    fn templates_of_replica_sets_are_checked_too() {
        let set = json!({"spec": {"manifestWorkTemplate": {"workload": {"manifests": []}}}});
        let refusal = admit("manifestworkreplicasets", &set, None).unwrap_err();
        assert_eq!(refusal, "manifests should not be empty");
    }

    #[test]
    fn writes_that_leave_the_manifests_alone_pass() {
        let old = work(&json!([]));
        let mut new = old.clone();
        new["metadata"] = json!({"finalizers": []});
        assert_eq!(admit("manifestworks", &new, Some(&old)), Ok(()));
        assert_eq!(admit("placements", &json!({}), None), Ok(()));
    }
}
