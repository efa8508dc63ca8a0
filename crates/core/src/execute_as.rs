//! Who may name whom as the executor of a work: the hub's check when a work is written.

use std::collections::BTreeMap;

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReviewSpec};
use muster_api::constants::WORK_GROUP_NAME;
use muster_api::work::ManifestWorkExecutor;

/// The verb on `manifestworks` that lets a user name an executor.
pub const EXECUTE_AS: &str = "execute-as";

/// Who writes a work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requester {
    /// User name.
    pub username: String,
    /// Identifier of the user; may be empty.
    pub uid: String,
    /// Groups of the user.
    pub groups: Vec<String>,
    /// What else is known of the user. Policy may decide by it, so all of it is passed on.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// The question about one write.
#[derive(Clone, Debug, PartialEq)]
pub struct ExecutorCheck {
    /// What the access review has to ask.
    pub review: SubjectAccessReviewSpec,
    /// The refusal, should the review deny it.
    pub refusal: ExecutorError,
}

/// Why a work with an executor is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExecutorError {
    /// The subject names no service account.
    #[error("executor service account can not be nil")]
    NoServiceAccount,
    /// The user may not name this executor.
    #[error(
        "user {user} cannot manipulate the Manifestwork with executor {executor} in namespace {cluster}"
    )]
    Denied {
        /// Name of the user.
        user: String,
        /// Namespace and name of the service account, joined by `/`.
        executor: String,
        /// Namespace of the work.
        cluster: String,
    },
}

/// Gives the question to ask before a work in namespace `cluster` is written; none when it
/// names no executor, or the same as before the write.
///
/// # Errors
///
/// Fails when the executor names no service account.
pub fn executor_check(
    requester: &Requester,
    cluster: &str,
    new: Option<&ManifestWorkExecutor>,
    old: Option<&ManifestWorkExecutor>,
) -> Result<Option<ExecutorCheck>, ExecutorError> {
    let Some(executor) = new.filter(|new| old != Some(*new)) else {
        return Ok(None);
    };
    let account = executor
        .subject
        .service_account
        .as_ref()
        .ok_or(ExecutorError::NoServiceAccount)?;
    let attributes = ResourceAttributes {
        verb: Some(EXECUTE_AS.to_owned()),
        group: Some(WORK_GROUP_NAME.to_owned()),
        resource: Some("manifestworks".to_owned()),
        namespace: Some(cluster.to_owned()),
        name: Some(format!(
            "system:serviceaccount:{}:{}",
            account.namespace, account.name
        )),
        ..ResourceAttributes::default()
    };
    Ok(Some(ExecutorCheck {
        review: SubjectAccessReviewSpec {
            user: Some(requester.username.clone()),
            uid: Some(requester.uid.clone()).filter(|uid| !uid.is_empty()),
            groups: Some(requester.groups.clone()).filter(|groups| !groups.is_empty()),
            extra: Some(requester.extra.clone()).filter(|extra| !extra.is_empty()),
            resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        },
        refusal: ExecutorError::Denied {
            user: requester.username.clone(),
            executor: format!("{}/{}", account.namespace, account.name),
            cluster: cluster.to_owned(),
        },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_value, json, to_value};

    fn executor(name: &str) -> ManifestWorkExecutor {
        from_value(json!({"subject": {
            "type": "ServiceAccount", "serviceAccount": {"namespace": "ns1", "name": name},
        }}))
        .unwrap()
    }

    fn requester() -> Requester {
        Requester {
            username: "u".to_owned(),
            uid: "x".to_owned(),
            groups: vec!["g".to_owned()],
            extra: [("example.io/tenant".to_owned(), vec!["blue".to_owned()])].into(),
        }
    }

    #[test]
    fn the_review_carries_all_that_is_known_of_the_user() {
        let check = executor_check(&requester(), "c1", Some(&executor("sa")), None)
            .unwrap()
            .unwrap();
        assert_eq!(
            to_value(&check.review).unwrap(),
            json!({
                "user": "u", "uid": "x", "groups": ["g"],
                "extra": {"example.io/tenant": ["blue"]},
                "resourceAttributes": {
                    "verb": "execute-as", "group": "work.open-cluster-management.io",
                    "resource": "manifestworks", "namespace": "c1",
                    "name": "system:serviceaccount:ns1:sa",
                },
            })
        );
        assert_eq!(
            check.refusal.to_string(),
            "user u cannot manipulate the Manifestwork with executor ns1/sa in namespace c1"
        );
    }

    #[test]
    fn only_a_changed_executor_is_asked_about() {
        let (a, b) = (executor("a"), executor("b"));
        let asks = |new: Option<&ManifestWorkExecutor>, old: Option<&ManifestWorkExecutor>| {
            executor_check(&requester(), "c1", new, old)
                .unwrap()
                .is_some()
        };
        assert!(!asks(None, None));
        assert!(!asks(None, Some(&a)));
        assert!(!asks(Some(&a), Some(&a)));
        assert!(asks(Some(&a), None));
        assert!(asks(Some(&b), Some(&a)));
    }

    #[test]
    fn an_executor_needs_a_service_account() {
        let nobody: ManifestWorkExecutor =
            from_value(json!({"subject": {"type": "ServiceAccount"}})).unwrap();
        let error = executor_check(&requester(), "c1", Some(&nobody), None).unwrap_err();
        assert_eq!(error.to_string(), "executor service account can not be nil");
    }
}
