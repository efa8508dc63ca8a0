//! The writes of works: what is sent, and what comes of it.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::Api;
use kube::api::{DeleteParams, PostParams, Request};
use kube::core::Resource;
use muster_api::constants as names;
use muster_api::work::ManifestWork;
use muster_core::replicaset::WorkKey;
use serde::Serialize;
use serde_json::value::RawValue;

use super::views::WorkView;
use crate::supervision::IoError;

/// Why a write did not happen.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    /// The API server refused, or could not be reached.
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// The task did not end by itself.
    #[error(transparent)]
    Io(#[from] IoError),
    /// The request could not be built.
    #[error("failed to build the request: {0}")]
    Request(String),
    /// A work of that name exists without this set's label.
    #[error("ManifestWork {0} exists and does not belong to this replica set")]
    NotOurs(String),
    /// A revision of that name exists and is of another owner.
    #[error("ControllerRevision {0} exists and does not belong to this replica set")]
    RevisionNotOurs(String),
}

impl WriteError {
    pub(super) fn is_not_found(&self) -> bool {
        matches!(self, Self::Api(kube::Error::Api(status)) if status.is_not_found())
    }

    /// The object has changed since it was seen.
    pub(super) fn is_conflict(&self) -> bool {
        matches!(self, Self::Api(kube::Error::Api(status)) if status.is_conflict())
    }

    /// The same request will be refused again: the right, or the type, is not there.
    pub(super) fn is_final(&self) -> bool {
        matches!(self, Self::Api(kube::Error::Api(status))
            if status.is_forbidden() || status.is_not_found())
    }

    /// How long the server asks to be left alone.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        let Self::Api(kube::Error::Api(status)) = self else {
            return None;
        };
        let seconds = status.details.as_ref()?.retry_after_seconds;
        (seconds > 0).then(|| Duration::from_secs(seconds.into()))
    }

    /// One line for a status: the server's message without the client's wrapping.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Api(kube::Error::Api(status)) => status.message.clone(),
            other => other.to_string(),
        }
    }
}

/// A successful write.
#[derive(Debug)]
pub(super) enum Written {
    /// The work as it is now.
    Work(Box<WorkView>),
    /// Deletion was accepted; the watch tells when the work is gone.
    DeleteAccepted,
    /// There was nothing to delete.
    Absent,
}

/// A JSON pointer (RFC 6901) to an entry of `labels` or `annotations`.
pub(super) fn metadata_path(map: &str, key: &str) -> String {
    let key = key.replace('~', "~0").replace('/', "~1");
    format!("/metadata/{map}/{key}")
}

/// The body of a write, encoded on the arbiter since it borrows the template.
#[derive(Debug)]
pub(super) enum WorkRequest {
    Create(Vec<u8>),
    Patch(Vec<u8>),
    Delete,
}

impl WorkRequest {
    pub(super) fn create(
        key: &WorkKey,
        labels: &BTreeMap<String, String>,
        annotations: &BTreeMap<&str, String>,
        template: &RawValue,
    ) -> Result<Self, WriteError> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Body<'a> {
            api_version: std::borrow::Cow<'a, str>,
            kind: std::borrow::Cow<'a, str>,
            metadata: Meta<'a>,
            spec: &'a RawValue,
        }
        #[derive(Serialize)]
        struct Meta<'a> {
            namespace: &'a str,
            name: &'a str,
            labels: &'a BTreeMap<String, String>,
            annotations: &'a BTreeMap<&'a str, String>,
        }
        let body = Body {
            api_version: ManifestWork::api_version(&()),
            kind: ManifestWork::kind(&()),
            metadata: Meta {
                namespace: &key.cluster,
                name: &key.name,
                labels,
                annotations,
            },
            spec: template,
        };
        serde_json::to_vec(&body)
            .map(Self::Create)
            .map_err(|error| WriteError::Request(error.to_string()))
    }

    /// `template`: the spec, where it is to change.
    pub(super) fn patch(
        operations: &[serde_json::Value],
        template: Option<&RawValue>,
    ) -> Result<Self, WriteError> {
        #[derive(Serialize)]
        struct Spec<'a> {
            op: &'static str,
            path: &'static str,
            value: &'a RawValue,
        }
        let encode = || -> serde_json::Result<Vec<u8>> {
            let mut body = b"[".to_vec();
            for operation in operations {
                serde_json::to_writer(&mut body, operation)?;
                body.push(b',');
            }
            if let Some(value) = template {
                // "add" replaces what is there and does not mind when nothing is.
                let (op, path) = ("add", "/spec");
                serde_json::to_writer(&mut body, &Spec { op, path, value })?;
            } else {
                body.pop(); // the last comma; there is no patch without operations
            }
            body.push(b']');
            Ok(body)
        };
        encode()
            .map(Self::Patch)
            .map_err(|error| WriteError::Request(error.to_string()))
    }
}

/// Sends one write; runs on a worker thread.
pub(super) async fn carry_out(
    client: kube::Client,
    key: WorkKey,
    owner: String,
    request: Result<WorkRequest, WriteError>,
) -> Result<Written, WriteError> {
    let url = ManifestWork::url_path(&(), Some(&key.cluster));
    let build = |built: Result<http::Request<Vec<u8>>, kube::core::request::Error>| {
        built.map_err(|error| WriteError::Request(error.to_string()))
    };
    match request? {
        WorkRequest::Create(body) => {
            let request = build(Request::new(url).create(&PostParams::default(), body))?;
            match client.request::<WorkView>(request).await {
                Ok(work) => Ok(Written::Work(Box::new(work))),
                Err(kube::Error::Api(status)) if status.is_already_exists() => {
                    adopt(client, &key, &owner).await
                }
                Err(error) => Err(error.into()),
            }
        }
        WorkRequest::Patch(body) => {
            let path = format!("{url}/{}", key.name);
            let request = http::Request::patch(path)
                .header(http::header::CONTENT_TYPE, "application/json-patch+json")
                .header(http::header::ACCEPT, "application/json")
                .body(body)
                .map_err(|error| WriteError::Request(error.to_string()))?;
            match client.request::<WorkView>(request).await {
                Ok(work) => Ok(Written::Work(Box::new(work))),
                // Deleted since it was seen: the comparison that follows creates it again.
                Err(kube::Error::Api(status)) if status.is_not_found() => Ok(Written::Absent),
                Err(error) => Err(error.into()),
            }
        }
        WorkRequest::Delete => {
            let works: Api<WorkView> = Api::namespaced(client, &key.cluster);
            match works.delete(&key.name, &DeleteParams::default()).await {
                Ok(_) => Ok(Written::DeleteAccepted),
                Err(kube::Error::Api(status)) if status.is_not_found() => Ok(Written::Absent),
                Err(error) => Err(error.into()),
            }
        }
    }
}

/// A work of the wanted name exists: it is ours if it carries our label.
async fn adopt(client: kube::Client, key: &WorkKey, owner: &str) -> Result<Written, WriteError> {
    let works: Api<WorkView> = Api::namespaced(client, &key.cluster);
    let work = works.get(&key.name).await?;
    let label = names::MANIFEST_WORK_REPLICA_SET_CONTROLLER_NAME_LABEL_KEY;
    let labels = Resource::meta(&work).labels.as_ref();
    if labels
        .and_then(|labels| labels.get(label))
        .map(String::as_str)
        == Some(owner)
    {
        Ok(Written::Work(Box::new(work)))
    } else {
        Err(WriteError::NotOurs(format!("{}/{}", key.cluster, key.name)))
    }
}
