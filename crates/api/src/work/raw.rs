//! A ManifestWork with spec and status undecoded.

use std::borrow::Cow;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::NamespaceResourceScope;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::ManifestWork;

/// A ManifestWork on the wire, with spec and status as the JSON that they came in.
///
/// Who follows thousands of works and looks inside few decodes nothing in vain; and a work whose
/// spec does not decode is a problem of that work: the list it came in stays readable.
#[derive(Clone, Deserialize, Serialize)]
pub struct RawManifestWork {
    /// Name, identity, versions.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The spec.
    #[serde(default)]
    pub spec: Option<Box<RawValue>>,
    /// The status.
    #[serde(default)]
    pub status: Option<Box<RawValue>>,
}

impl Resource for RawManifestWork {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind(dt: &()) -> Cow<'_, str> {
        ManifestWork::kind(dt)
    }
    fn group(dt: &()) -> Cow<'_, str> {
        ManifestWork::group(dt)
    }
    fn version(dt: &()) -> Cow<'_, str> {
        ManifestWork::version(dt)
    }
    fn plural(dt: &()) -> Cow<'_, str> {
        ManifestWork::plural(dt)
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// Specs hold Secrets: only which state of which work it is.
impl fmt::Debug for RawManifestWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawManifestWork")
            .field("name", &self.metadata.name)
            .field("resource_version", &self.metadata.resource_version)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_debug_text_holds_no_payload() {
        let json = r#"{"metadata": {"name": "w"}, "spec": {"secret": "hunter2"}}"#;
        let raw = serde_json::from_str::<RawManifestWork>(json).unwrap();
        let text = format!("{raw:?}");
        assert!(
            text.contains("\"w\"") && !text.contains("hunter2"),
            "{text}"
        );
    }
}
