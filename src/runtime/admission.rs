//! What the embedded hub refuses at the door, as OCM's webhook does.

use muster_api::constants as names;
use muster_api::rollout::RolloutStrategy;
use muster_api::work::{Manifest, ManifestWorkExecutor};
use muster_apiserver::{Admission, AdmissionRequest, Operation};
use muster_core::execute_as::{Requester, executor_check};
use muster_core::manifest::{DEFAULT_MANIFEST_LIMIT_BYTES, validate_manifests};
use muster_core::rollout::Strategy;
use serde_json::Value;

/// Checks the manifests of ManifestWorks, and the templates and strategies of replica sets, where
/// upstream ships no webhook and lets the error show up in every cluster or nowhere; and whether the user may name
/// the executor of a ManifestWork.
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
        check_manifests(request, path)?;
        if request.resource == "manifestworkreplicasets" {
            check_strategies(request)?;
        }
        if request.resource == "manifestworks" {
            check_executor(request)?;
        }
        Ok(())
    }
}

fn check_manifests(request: &AdmissionRequest<'_>, path: &str) -> Result<(), String> {
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
    validate_manifests(&manifests, DEFAULT_MANIFEST_LIMIT_BYTES).map_err(|error| error.to_string())
}

/// A strategy that does not read would let the whole set wait.
fn check_strategies(request: &AdmissionRequest<'_>) -> Result<(), String> {
    const PATH: &str = "/spec/placementRefs";
    let refs = request.object.pointer(PATH);
    // See above: what is there already has to be deletable.
    if request.old.is_some_and(|old| old.pointer(PATH) == refs) {
        return Ok(());
    }
    let refs = refs.and_then(Value::as_array).map(Vec::as_slice);
    for (index, reference) in refs.unwrap_or_default().iter().enumerate() {
        let strategy = reference.get("rolloutStrategy").cloned();
        let path = format!("spec.placementRefs[{index}].rolloutStrategy");
        let strategy: Option<RolloutStrategy> =
            serde_json::from_value(strategy.unwrap_or(Value::Null))
                .map_err(|error| format!("{path}: {error}"))?;
        Strategy::read(&strategy.unwrap_or_default()).map_err(|error| format!("{path}.{error}"))?;
    }
    Ok(())
}

/// Asks whether the user may have a work applied as its executor.
fn check_executor(request: &AdmissionRequest<'_>) -> Result<(), String> {
    let new = executor(request.object)?;
    // An old one that does not read is as good as another one.
    let old = request.old.and_then(|old| executor(old).ok().flatten());
    let requester = Requester {
        username: request.user.username.clone(),
        uid: request.user.uid.clone(),
        groups: request.user.groups.clone(),
        extra: request.user.extra.clone(),
    };
    let cluster = request.namespace.unwrap_or_default();
    let check = executor_check(&requester, cluster, new.as_ref(), old.as_ref())
        .map_err(|error| error.to_string())?;
    match check {
        Some(check) if !request.authorizer.review(&check.review).allowed => {
            Err(check.refusal.to_string())
        }
        _ => Ok(()),
    }
}

fn executor(work: &Value) -> Result<Option<ManifestWorkExecutor>, String> {
    let executor = work
        .pointer("/spec/executor")
        .cloned()
        .unwrap_or(Value::Null);
    serde_json::from_value(executor)
        .map_err(|error| format!("spec.executor cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::authorization::v1::SubjectAccessReviewSpec;
    use muster_apiserver::{Authorize, Decision, UserInfo};
    use serde_json::json;
    use std::sync::Mutex;

    /// Allows the user `root` everything, and keeps what it was asked.
    #[derive(Default)]
    struct Asked(Mutex<Vec<SubjectAccessReviewSpec>>);

    impl Authorize for Asked {
        fn review(&self, spec: &SubjectAccessReviewSpec) -> Decision {
            self.0.lock().unwrap().push(spec.clone());
            Decision {
                allowed: spec.user.as_deref() == Some("root"),
                reason: String::new(),
            }
        }
    }

    fn admit(resource: &str, object: &Value, old: Option<&Value>) -> Result<(), String> {
        admit_as(
            &UserInfo::new("u"),
            &Asked::default(),
            resource,
            object,
            old,
        )
    }

    fn admit_as(
        user: &UserInfo,
        authorizer: &Asked,
        resource: &str,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<(), String> {
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
            user,
            authorizer,
        })
    }

    #[test]
    fn a_strategy_has_to_read_when_it_is_new() {
        let set = |strategy: Value| {
            let manifests = json!([config_map("cm")]);
            json!({"spec": {"manifestWorkTemplate": work(&manifests)["spec"], "placementRefs": [
                {"name": "a"}, {"name": "b", "rolloutStrategy": strategy}]}})
        };
        let admit = |new: &Value, old: Option<&Value>| admit("manifestworkreplicasets", new, old);
        let good = set(json!({"type": "Progressive", "progressive": {"maxConcurrency": "50%"}}));
        assert_eq!(admit(&good, None), Ok(()));
        let bad = set(json!({"type": "Progressive", "progressive": {"maxConcurrency": "5"}}));
        let why = "spec.placementRefs[1].rolloutStrategy.progressive.maxConcurrency: '5' is an \
                   invalid maximum threshold value: string is not a percentage";
        assert_eq!(admit(&bad, None), Err(why.to_owned()));
        assert_eq!(admit(&bad, Some(&good)), Err(why.to_owned()));
        assert_eq!(admit(&bad, Some(&bad)), Ok(()), "it has to be deletable");
        for nothing in [json!(0), json!("0%"), json!(-1)] {
            let body = json!({"maxConcurrency": nothing});
            let none = set(json!({"type": "Progressive", "progressive": body}));
            let why = "spec.placementRefs[1].rolloutStrategy.progressive.maxConcurrency: must be \
                       more than 0; leave it out for all clusters at once";
            assert_eq!(admit(&none, None), Err(why.to_owned()), "{nothing}");
        }
        let wrong = admit(&set(json!({"type": 5})), None).unwrap_err();
        assert!(
            wrong.starts_with("spec.placementRefs[1].rolloutStrategy: "),
            "{wrong}"
        );
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
            "duplicate manifest for resource ns/a with resource type v1.ConfigMap: manifests 0 \
             and 1 are for the same object"
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

    fn with_executor(name: &str) -> Value {
        let mut work = work(&json!([config_map("a")]));
        work["spec"]["executor"] = json!({"subject": {
            "type": "ServiceAccount", "serviceAccount": {"namespace": "ns1", "name": name},
        }});
        work
    }

    #[test]
    fn a_user_needs_a_right_to_name_an_executor() {
        let mut user = UserInfo::new("u").group("g");
        user.uid = "x".to_owned();
        user.extra
            .insert("example.io/tenant".to_owned(), vec!["blue".to_owned()]);
        let asked = Asked::default();
        let sa = with_executor("sa");
        assert_eq!(
            admit_as(&user, &asked, "manifestworks", &sa, None).unwrap_err(),
            "user u cannot manipulate the Manifestwork with executor ns1/sa in namespace c1"
        );
        let spec = asked.0.lock().unwrap().pop().unwrap();
        assert_eq!((spec.uid, spec.extra), (Some(user.uid), Some(user.extra)));
        let attributes = spec.resource_attributes.unwrap();
        assert_eq!(attributes.verb.as_deref(), Some("execute-as"));
        assert_eq!(
            attributes.name.as_deref(),
            Some("system:serviceaccount:ns1:sa")
        );

        let root = UserInfo::new("root");
        assert_eq!(admit_as(&root, &asked, "manifestworks", &sa, None), Ok(()));
        // Nobody is asked about what was there before.
        let unchanged = Asked::default();
        let mut labelled = sa.clone();
        labelled["metadata"] = json!({"labels": {"a": "b"}});
        let same = admit_as(
            &UserInfo::new("u"),
            &unchanged,
            "manifestworks",
            &labelled,
            Some(&sa),
        );
        assert_eq!(same, Ok(()));
        assert!(unchanged.0.lock().unwrap().is_empty());
        assert!(admit("manifestworks", &with_executor("other"), Some(&sa)).is_err());
    }

    #[test]
    fn executors_that_name_nobody_are_refused() {
        let mut work = with_executor("sa");
        work["spec"]["executor"] = json!({"subject": {"type": "ServiceAccount"}});
        assert_eq!(
            admit("manifestworks", &work, None).unwrap_err(),
            "executor service account can not be nil"
        );
        work["spec"]["executor"] = json!({"subject": 1});
        let refusal = admit("manifestworks", &work, None).unwrap_err();
        assert!(
            refusal.starts_with("spec.executor cannot be read"),
            "{refusal}"
        );
    }

    #[test]
    fn templates_with_an_executor_are_checked_when_they_become_works() {
        let template = with_executor("sa")["spec"].clone();
        let set = json!({"spec": {"manifestWorkTemplate": template}});
        assert_eq!(admit("manifestworkreplicasets", &set, None), Ok(()));
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
