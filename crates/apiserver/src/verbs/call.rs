//! One request for objects, with everything that its verb needs, and its answer.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use crate::admission::{AdmissionRequest, Operation};
use crate::authz::UserInfo;
use crate::http::body::Lines;
use crate::http::negotiate::Form;
use crate::http::path::ResourcePath;
use crate::http::query::Query;
use crate::registry::{ResourceDef, VersionDef, api_version};
use crate::server::Inner;
use crate::status::{ApiError, ApiResult, FieldError, Subject};
use crate::store::{ObjectKey, Scope, Stored, WriteError};

/// One request for objects.
pub(crate) struct Call {
    pub(crate) server: Arc<Inner>,
    pub(crate) def: Arc<ResourceDef>,
    pub(crate) path: ResourcePath,
    pub(crate) query: Query,
    pub(crate) form: Form,
    pub(crate) content_type: String,
    pub(crate) body: Bytes,
    /// Who writes, as far as field management goes.
    pub(crate) manager: String,
    /// Who asks, after impersonation.
    pub(crate) user: Arc<UserInfo>,
    /// The request appears in the statistics.
    pub(crate) counted: bool,
}

/// What a verb gives.
pub(crate) enum Answer {
    /// A stored object, in the form that was asked for.
    Object(StatusCode, Arc<Stored>),
    /// An object that is not stored as such (dry runs, Scale, Status).
    Value(StatusCode, Value),
    /// Ready JSON.
    Json(Bytes),
    /// A watch.
    Lines(Lines),
}

/// A successful verb's answer with the warnings for the client.
pub(crate) struct Outcome {
    pub(crate) answer: Answer,
    pub(crate) warnings: Vec<String>,
}

impl From<Answer> for Outcome {
    fn from(answer: Answer) -> Self {
        Self {
            answer,
            warnings: Vec::new(),
        }
    }
}

impl Call {
    pub(crate) fn namespace(&self) -> &str {
        self.path.namespace.as_deref().unwrap_or_default()
    }

    pub(crate) fn name(&self) -> &str {
        self.path.name.as_deref().unwrap_or_default()
    }

    pub(crate) fn subresource(&self) -> Option<&str> {
        self.path.subresource.as_deref()
    }

    pub(crate) fn key(&self) -> ObjectKey {
        ObjectKey::new(self.namespace(), self.name())
    }

    pub(crate) fn version(&self) -> &VersionDef {
        self.def
            .version(&self.path.version)
            .expect("the service routes served versions only")
    }

    /// The group and version that the client speaks.
    pub(crate) fn api_version(&self) -> String {
        api_version(&self.path.group, &self.path.version)
    }

    pub(crate) fn dry_run(&self) -> bool {
        self.query.get("dryRun").is_some()
    }

    /// Refuses a `dryRun` other than `All`.
    pub(crate) fn check_dry_run(&self, options: &str) -> ApiResult<()> {
        match self.query.get("dryRun") {
            None | Some("All") => Ok(()),
            Some(other) => Err(ApiError::invalid(
                &Subject::new("meta.k8s.io", options, ""),
                &[FieldError::not_supported(
                    "dryRun",
                    &json!([other]),
                    &["All".to_owned()],
                )],
            )),
        }
    }

    /// The object as errors about it name it.
    pub(crate) fn subject(&self, name: &str) -> Subject {
        Subject::new(&self.def.group, &self.def.plural, name)
    }

    /// The object as validation errors name it: by kind.
    pub(crate) fn kind_subject(&self, name: &str) -> Subject {
        Subject::new(&self.def.group, &self.def.kind, name)
    }

    pub(crate) fn scope(&self) -> Scope {
        match &self.path.namespace {
            Some(namespace) => Scope::Namespace(namespace.clone()),
            None => Scope::All,
        }
    }

    pub(crate) fn stored(&self) -> ApiResult<Arc<Stored>> {
        self.server
            .store
            .get(&self.def.key, &self.key())
            .ok_or_else(|| ApiError::not_found(&self.subject(self.name())))
    }

    /// Asks admission about a write.
    pub(crate) fn admit(
        &self,
        operation: Operation,
        name: &str,
        object: &Value,
        old: Option<&Value>,
    ) -> ApiResult<()> {
        let Some(admission) = &self.server.admission else {
            return Ok(());
        };
        let request = AdmissionRequest {
            operation,
            group: &self.path.group,
            version: &self.path.version,
            resource: &self.def.plural,
            subresource: self.subresource(),
            namespace: self.path.namespace.as_deref(),
            name,
            object,
            old,
            user: &self.user,
            authorizer: &*self.server,
        };
        admission.admit(&request).map_err(|why| {
            ApiError::bad_request(format!(
                "admission webhook {:?} denied the request: {why}",
                admission.name()
            ))
        })
    }

    /// The storage's refusal as an answer.
    pub(crate) fn write_error(&self, name: &str, error: WriteError) -> ApiError {
        let subject = self.subject(name);
        match error {
            WriteError::Exists => ApiError::already_exists(&subject),
            WriteError::Missing => ApiError::not_found(&subject),
            WriteError::Modified => ApiError::modified(&subject),
            WriteError::Busy => ApiError::too_many_requests(),
            WriteError::Failed(why) => ApiError::internal(why),
        }
    }
}
