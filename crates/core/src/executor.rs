//! In whose name a work is applied, and what that identity must be allowed to do.
//!
//! The agent writes with its own rights; an executor is an identity that must have them, too. So
//! before an object is touched the cluster is asked whether the executor could have done it.

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use muster_api::work::{ManifestWorkExecutor, ManifestWorkExecutorSubjectType};
use thiserror::Error;

use crate::ownership::ObjectId;

/// Group whose objects give rights.
const RBAC_GROUP: &str = "rbac.authorization.k8s.io";

/// Seconds after which a refused manifest is tried again without a reason.
pub const RETRY_SECONDS: u64 = 60;

/// Why the executor of a work names no identity. The texts are upstream's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ExecutorError {
    /// A kind of subject that is not known.
    #[error("only support ServiceAccount type for the executor")]
    Type,
    /// The service account is missing.
    #[error("the executor service account is nil")]
    NoServiceAccount,
}

/// A service account of the managed cluster, as the identity that a work is applied for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Executor {
    namespace: String,
    name: String,
}

impl Executor {
    /// Reads the identity from a work.
    ///
    /// # Errors
    ///
    /// The executor names none.
    pub fn of(executor: &ManifestWorkExecutor) -> Result<Self, ExecutorError> {
        let subject = &executor.subject;
        if subject.type_ != ManifestWorkExecutorSubjectType::ServiceAccount {
            return Err(ExecutorError::Type);
        }
        let account = subject.service_account.as_ref();
        let account = account.ok_or(ExecutorError::NoServiceAccount)?;
        Ok(Self {
            namespace: account.namespace.clone(),
            name: account.name.clone(),
        })
    }

    /// Its user name for the API server.
    pub fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }

    /// The groups that the API server gives every service account.
    pub fn groups(&self) -> [String; 3] {
        [
            "system:serviceaccounts".to_owned(),
            "system:authenticated".to_owned(),
            format!("system:serviceaccounts:{}", self.namespace),
        ]
    }

    /// The question whether it may do this to an object of this version.
    pub fn review(&self, verb: Verb, object: ObjectId<'_>, version: &str) -> SubjectAccessReview {
        SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(self.user()),
                groups: Some(self.groups().to_vec()),
                resource_attributes: Some(ResourceAttributes {
                    group: Some(object.group.to_owned()),
                    version: Some(version.to_owned()),
                    resource: Some(object.resource.to_owned()),
                    namespace: Some(object.namespace.to_owned()),
                    name: Some(object.name.to_owned()),
                    verb: Some(verb.as_str().to_owned()),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        }
    }
}

/// What an executor may need to be allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Create the object.
    Create,
    /// Replace it.
    Update,
    /// Change it.
    Patch,
    /// Read it, and so its feedback.
    Get,
    /// Delete it.
    Delete,
}

impl Verb {
    /// As RBAC has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Get => "get",
            Self::Delete => "delete",
        }
    }
}

/// What applying a manifest takes, in the order in which it is asked; the first refusal ends it.
/// An object that goes with the work needs `delete`, too.
pub const fn verbs_to_apply(goes_with_work: bool) -> &'static [Verb] {
    const VERBS: [Verb; 5] = [
        Verb::Create,
        Verb::Update,
        Verb::Patch,
        Verb::Get,
        Verb::Delete,
    ];
    if goes_with_work {
        &VERBS
    } else {
        VERBS.split_at(4).0
    }
}

/// Whether writing an object of this kind could give the executor rights that it lacks. The API
/// server refuses that to the executor itself, but not to the agent, so it is asked in the
/// executor's name.
pub fn could_escalate(object: ObjectId<'_>) -> bool {
    object.group == RBAC_GROUP
        && matches!(
            object.resource,
            "roles" | "rolebindings" | "clusterroles" | "clusterrolebindings"
        )
}

/// What is in the way of an executor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Denial {
    /// It may not do this to the object.
    Verb(Verb),
    /// The object would give it rights that it does not have; the server's text.
    Escalation(String),
}

/// The text of a refusal, as upstream's up to the last colon.
///
/// Differs from upstream: the text goes on with who lacks what. Upstream's names the object alone,
/// so that five verbs have to be tried out to find the one that is missing.
pub fn refusal(executor: &Executor, object: ObjectId<'_>, denial: &Denial) -> String {
    let ObjectId {
        group,
        resource,
        namespace,
        name,
    } = object;
    let (escalation, why) = match denial {
        Denial::Verb(verb) => (
            "",
            format!("{} has no permission to {}", executor.user(), verb.as_str()),
        ),
        Denial::Escalation(text) => (", error: permission escalation", text.clone()),
    };
    format!(
        "not allowed to apply the resource {group} {resource}, {namespace} {name}{escalation}, \
         will try again in 1m0s: {why}"
    )
}

/// The error of feedback that the executor may not see.
pub fn unreadable(executor: &Executor, object: ObjectId<'_>) -> String {
    format!(
        "{} has no permission to get {} {}",
        executor.user(),
        object.resource,
        object.name
    )
}

#[cfg(test)]
mod tests {
    use muster_api::work::{ManifestWorkExecutorSubject, ManifestWorkSubjectServiceAccount};

    use super::*;

    const CM: ObjectId<'static> = ObjectId {
        group: "",
        resource: "configmaps",
        namespace: "ns1",
        name: "cm1",
    };

    fn executor() -> Executor {
        Executor {
            namespace: "ns".to_owned(),
            name: "sa".to_owned(),
        }
    }

    fn spec(
        type_: ManifestWorkExecutorSubjectType,
        account: Option<ManifestWorkSubjectServiceAccount>,
    ) -> ManifestWorkExecutor {
        ManifestWorkExecutor {
            subject: ManifestWorkExecutorSubject {
                type_,
                service_account: account,
            },
        }
    }

    #[test]
    fn only_a_service_account_is_an_executor() {
        let account = ManifestWorkSubjectServiceAccount {
            namespace: "ns".to_owned(),
            name: "sa".to_owned(),
        };
        let other = ManifestWorkExecutorSubjectType::Unrecognized("User".to_owned());
        let error = Executor::of(&spec(other, Some(account.clone()))).unwrap_err();
        assert_eq!(
            error.to_string(),
            "only support ServiceAccount type for the executor"
        );
        let type_ = ManifestWorkExecutorSubjectType::ServiceAccount;
        let error = Executor::of(&spec(type_.clone(), None)).unwrap_err();
        assert_eq!(error.to_string(), "the executor service account is nil");
        assert_eq!(
            Executor::of(&spec(type_, Some(account))).unwrap(),
            executor()
        );
    }

    #[test]
    fn a_review_names_the_full_identity_and_the_object() {
        let review = executor().review(Verb::Patch, CM, "v1");
        let expected = serde_json::json!({
            "user": "system:serviceaccount:ns:sa",
            "groups": [
                "system:serviceaccounts", "system:authenticated", "system:serviceaccounts:ns",
            ],
            "resourceAttributes": {
                "group": "", "version": "v1", "resource": "configmaps",
                "namespace": "ns1", "name": "cm1", "verb": "patch",
            },
        });
        assert_eq!(serde_json::to_value(review.spec).unwrap(), expected);
    }

    #[test]
    fn deleting_is_asked_only_of_what_goes_with_the_work() {
        assert!(verbs_to_apply(true).contains(&Verb::Delete));
        assert!(!verbs_to_apply(false).contains(&Verb::Delete));
        assert_eq!(verbs_to_apply(false).len(), 4);
    }

    #[test]
    fn only_kinds_that_give_rights_can_escalate() {
        let of = |group, resource| ObjectId {
            group,
            resource,
            ..CM
        };
        for resource in [
            "roles",
            "rolebindings",
            "clusterroles",
            "clusterrolebindings",
        ] {
            assert!(could_escalate(of(RBAC_GROUP, resource)));
            assert!(!could_escalate(of("example.io", resource)));
        }
        assert!(!could_escalate(CM));
    }

    #[test]
    fn a_refusal_says_who_lacks_what() {
        assert_eq!(
            refusal(&executor(), CM, &Denial::Verb(Verb::Delete)),
            "not allowed to apply the resource  configmaps, ns1 cm1, will try again in 1m0s: \
             system:serviceaccount:ns:sa has no permission to delete"
        );
        let role = ObjectId {
            group: RBAC_GROUP,
            resource: "roles",
            ..CM
        };
        assert_eq!(
            refusal(&executor(), role, &Denial::Escalation("no".to_owned())),
            "not allowed to apply the resource rbac.authorization.k8s.io roles, ns1 cm1, error: \
             permission escalation, will try again in 1m0s: no"
        );
    }
}
