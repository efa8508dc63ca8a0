//! An object as a watch gives it: its JSON text, and just enough decoded to tell which state of
//! which object it is.
//!
//! A watch may show thousands of objects of which few are asked for, and of those most changes
//! concern nobody. So nothing is decoded before somebody needs it, and nothing is kept.

use std::borrow::Cow;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::{ApiResource, DynamicResourceScope};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// One state of an object of any type.
#[derive(Clone)]
pub struct WatchedObject {
    /// Only name, namespace, uid and resource version.
    meta: ObjectMeta,
    json: Box<RawValue>,
}

impl WatchedObject {
    /// Name.
    pub fn name(&self) -> &str {
        self.meta.name.as_deref().unwrap_or_default()
    }

    /// Namespace; empty for an object without one.
    pub fn namespace(&self) -> &str {
        self.meta.namespace.as_deref().unwrap_or_default()
    }

    /// Resource version as a number, as Kubernetes lets them be compared within one type; 0 if it
    /// is none.
    pub fn version(&self) -> u64 {
        let version = self.meta.resource_version.as_deref();
        version
            .and_then(|version| version.parse().ok())
            .unwrap_or(0)
    }

    /// The object as JSON text.
    pub fn json(&self) -> &str {
        self.json.get()
    }

    /// The object, with API version and kind, which items of a list come without.
    ///
    /// # Errors
    ///
    /// The text is JSON, so only one that is nested too deeply fails.
    pub fn decode(&self, api_version: &str, kind: &str) -> serde_json::Result<Value> {
        let mut object: Value = serde_json::from_str(self.json())?;
        if let Some(fields) = object.as_object_mut() {
            let mut fill = |key: &str, value: &str| {
                fields
                    .entry(key)
                    .or_insert_with(|| Value::String(value.to_owned()));
            };
            fill("apiVersion", api_version);
            fill("kind", kind);
        }
        Ok(object)
    }
}

/// Objects hold Secrets: shown is only which one it is.
impl fmt::Debug for WatchedObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchedObject")
            .field("namespace", &self.meta.namespace)
            .field("name", &self.meta.name)
            .field("resource_version", &self.meta.resource_version)
            .finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow, default)]
    metadata: HeadMeta<'a>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct HeadMeta<'a> {
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    namespace: Option<Cow<'a, str>>,
    #[serde(borrow)]
    uid: Option<Cow<'a, str>>,
    #[serde(borrow)]
    resource_version: Option<Cow<'a, str>>,
}

impl<'de> Deserialize<'de> for WatchedObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Box::<RawValue>::deserialize(deserializer)?;
        let Head { metadata } = serde_json::from_str(json.get()).map_err(D::Error::custom)?;
        let text = |part: Option<Cow<'_, str>>| part.map(Cow::into_owned);
        let meta = ObjectMeta {
            name: text(metadata.name),
            namespace: text(metadata.namespace),
            uid: text(metadata.uid),
            resource_version: text(metadata.resource_version),
            ..ObjectMeta::default()
        };
        Ok(Self { meta, json })
    }
}

impl Resource for WatchedObject {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        resource.kind.as_str().into()
    }

    fn group(resource: &ApiResource) -> Cow<'_, str> {
        resource.group.as_str().into()
    }

    fn version(resource: &ApiResource) -> Cow<'_, str> {
        resource.version.as_str().into()
    }

    fn api_version(resource: &ApiResource) -> Cow<'_, str> {
        resource.api_version.as_str().into()
    }

    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        resource.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}

#[cfg(test)]
mod tests {
    use kube::core::{ObjectList, WatchEvent};

    use super::*;

    const OBJECT: &str = r#"{"metadata": {"name": "a", "namespace": "ns\u0031",
        "resourceVersion": "17", "uid": "u"}, "data": {"password": "hunter2"}}"#;

    #[test]
    fn an_object_is_known_by_its_head_and_decoded_on_demand() {
        let object: WatchedObject = serde_json::from_str(OBJECT).unwrap();
        assert_eq!(
            (object.namespace(), object.name(), object.version()),
            ("ns1", "a", 17)
        );
        assert_eq!(object.json(), OBJECT);
        let decoded = object.decode("v1", "Secret").unwrap();
        assert_eq!(decoded["kind"], "Secret");
        assert_eq!(decoded["apiVersion"], "v1");
        assert_eq!(decoded["data"]["password"], "hunter2");
        let text = format!("{object:?}");
        assert!(text.contains("ns1") && !text.contains("hunter2"), "{text}");
    }

    #[test]
    fn what_an_object_says_of_itself_stays() {
        let json = r#"{"kind": "Other", "metadata": {}}"#;
        let object: WatchedObject = serde_json::from_str(json).unwrap();
        assert_eq!(object.decode("v1", "Secret").unwrap()["kind"], "Other");
        assert_eq!((object.name(), object.version()), ("", 0));
    }

    #[test]
    fn lists_and_events_decode() {
        let list = format!(
            r#"{{"metadata": {{"resourceVersion": "20", "continue": "x"}}, "items": [{OBJECT}]}}"#
        );
        let list: ObjectList<WatchedObject> = serde_json::from_str(&list).unwrap();
        assert_eq!(list.items[0].name(), "a");
        let event = format!(r#"{{"type": "DELETED", "object": {OBJECT}}}"#);
        let event: WatchEvent<WatchedObject> = serde_json::from_str(&event).unwrap();
        assert!(matches!(event, WatchEvent::Deleted(object) if object.version() == 17));
        assert!(serde_json::from_str::<WatchedObject>(r#"{"metadata": 7}"#).is_err());
    }
}
