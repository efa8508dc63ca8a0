//! An event as JSON, as the sinks `log` and `mqtt` write it.

use std::sync::Arc;

use muster_core::rule_events::Event;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::watch::api_version;

/// See the module. What is not known is left out.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Body<'a> {
    operation: &'static str,
    api_version: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    kind: &'a str,
    resource: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_version: Option<String>,
    rules: &'a [Arc<str>],
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<&'a RawValue>,
}

impl<'a> Body<'a> {
    /// # Errors
    ///
    /// The object is not JSON.
    pub(super) fn of(event: &'a Event) -> serde_json::Result<Self> {
        let object = event.object.as_deref().map(serde_json::from_str);
        Ok(Self {
            operation: event.operation.as_str(),
            api_version: api_version(&event.key.resource),
            kind: &event.kind,
            resource: event.key.resource.resource(),
            namespace: &event.key.namespace,
            name: &event.key.name,
            uid: &event.uid,
            resource_version: (event.version > 0).then(|| event.version.to_string()),
            rules: &event.rules,
            object: object.transpose()?,
        })
    }
}

/// What tests give to sinks.
#[cfg(test)]
pub(super) mod tests {
    use jiff::Timestamp;
    use muster_core::rule_events::{ObjectKey, Operation};
    use muster_core::watch_plan::Resource;

    use super::Event;

    /// Something about the Deployment `ns1/web`, of which a deletion knows neither uid nor version.
    pub(in crate::sinks) fn event(operation: Operation, object: Option<&str>) -> Event {
        let gone = operation == Operation::Delete;
        Event {
            sequence: 1,
            key: ObjectKey {
                resource: Resource::new("apps", "v1", "deployments"),
                namespace: "ns1".into(),
                name: "web".into(),
            },
            kind: "Deployment".into(),
            operation,
            uid: if gone { "" } else { "u-1" }.into(),
            version: if gone { 0 } else { 41 },
            object: object.map(Into::into),
            rules: ["ns1/all".into()].into(),
            has: None,
            seen: Timestamp::UNIX_EPOCH,
        }
    }
}
