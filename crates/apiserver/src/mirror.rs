//! Objects that another server has, kept here with the identity they have there.
//!
//! A [`Mirror`] writes past what a client may: uid, generation and deletion time stay as they are
//! given. Whoever reads, watches or patches such an object sees nothing of that: removing the last
//! finalizer of one that is being deleted removes it, as always.

use std::fmt;
use std::sync::Arc;

use kube::Resource;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::object;
use crate::registry::{ResourceDef, resource_key};
use crate::server::{ApiServer, Inner};
use crate::store::{Expect, ObjectKey, Scope, Stored, WriteError};

/// Why an object could not be mirrored.
#[derive(Debug, thiserror::Error)]
pub enum MirrorError {
    /// The type is not, or no more, served here.
    #[error("{0} is not served")]
    Unknown(String),
    /// The object's name or namespace is not that of its place.
    #[error("the object is {found}, expected {expected}")]
    Misplaced {
        /// What it says.
        found: String,
        /// Where it was to go.
        expected: String,
    },
    /// The storage did not take it.
    #[error("failed to write {what}: {why}")]
    Write {
        /// The object.
        what: String,
        /// What the storage says.
        why: String,
    },
}

/// Writes objects of one type as another server has them.
#[derive(Clone)]
pub struct Mirror {
    server: Arc<Inner>,
    resource: Arc<str>,
}

impl fmt::Debug for Mirror {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Mirror").field(&self.resource).finish()
    }
}

impl ApiServer {
    /// Mirrors objects of this type, which has to be served.
    ///
    /// # Errors
    ///
    /// [`MirrorError::Unknown`].
    pub fn mirror<K: Resource<DynamicType = ()>>(&self) -> Result<Mirror, MirrorError> {
        let resource = resource_key(&K::group(&()), &K::plural(&()));
        let mirror = Mirror {
            server: Arc::clone(&self.inner),
            resource,
        };
        mirror.def().map(|_| mirror.clone())
    }
}

impl Mirror {
    fn def(&self) -> Result<Arc<ResourceDef>, MirrorError> {
        let types = self.server.registry.types();
        let def = types.by_key(&self.resource).cloned();
        def.ok_or_else(|| MirrorError::Unknown(self.resource.to_string()))
    }

    fn stored(&self, key: &ObjectKey) -> Option<Arc<Stored>> {
        self.server.store.get(&self.resource, key)
    }

    /// An object, decoded; `None` if it is not there or is something else.
    pub fn get<K: DeserializeOwned>(&self, namespace: &str, name: &str) -> Option<K> {
        let stored = self.stored(&ObjectKey::new(namespace, name))?;
        serde_json::from_slice(stored.bytes()).ok()
    }

    /// All objects of a namespace, decoded, save for those that are something else.
    pub fn list<K: DeserializeOwned>(&self, namespace: &str) -> Vec<K> {
        let scope = Scope::Namespace(namespace.to_owned());
        let (objects, _) = self.server.store.list(&self.resource, &scope);
        let decoded = objects.iter();
        decoded
            .filter_map(|stored| serde_json::from_slice(stored.bytes()).ok())
            .collect()
    }

    /// Changes an object from what it is to what it is to be, as one step; `None` stands for none.
    /// `change` is asked again when the object has changed meanwhile. Gives what came out.
    ///
    /// # Errors
    ///
    /// The type is not served, the object says that it is another, or the storage fails.
    pub async fn update(
        &self,
        namespace: &str,
        name: &str,
        mut change: impl FnMut(Option<Value>) -> Option<Value> + Send,
    ) -> Result<Option<Value>, MirrorError> {
        let def = self.def()?;
        let key = ObjectKey::new(namespace, name);
        loop {
            let before = self.stored(&key);
            let old = before.as_ref().map(|stored| stored.value());
            let new = change(old.clone());
            let written = match (before, new) {
                (None, None) => return Ok(None),
                (Some(before), None) => {
                    let last = old.unwrap_or_default();
                    let removed = self.server.remove(&def, &key, before.revision, last).await;
                    removed.map(|_| None)
                }
                (before, Some(new)) => {
                    expect_place(&key, &new)?;
                    if before.is_some() && same(old.as_ref(), &new) {
                        return Ok(old);
                    }
                    let expect =
                        before.map_or(Expect::Absent, |stored| Expect::Revision(stored.revision));
                    let put = self.server.put(&def, &key, expect, new).await;
                    put.map(|stored| Some(stored.value()))
                }
            };
            match written {
                Ok(outcome) => return Ok(outcome),
                Err(WriteError::Exists | WriteError::Missing | WriteError::Modified) => {}
                Err(error) => {
                    return Err(MirrorError::Write {
                        what: format!("{} {namespace}/{name}", def.singular),
                        why: error.to_string(),
                    });
                }
            }
        }
    }
}

/// Whether an object is to stay as it is; its revision is not its own to choose.
fn same(old: Option<&Value>, new: &Value) -> bool {
    let mut new = new.clone();
    if let Some(old) = old {
        let revision = object::meta_str(old, "resourceVersion");
        object::set_meta(&mut new, "resourceVersion", json!(revision));
        for field in ["kind", "apiVersion"] {
            new[field] = old[field].clone();
        }
    }
    old == Some(&new)
}

fn expect_place(key: &ObjectKey, object: &Value) -> Result<(), MirrorError> {
    let found = [
        object::meta_str(object, "namespace"),
        object::meta_str(object, "name"),
    ];
    if found == [&*key.namespace, &*key.name] {
        return Ok(());
    }
    Err(MirrorError::Misplaced {
        found: found.join("/"),
        expected: format!("{}/{}", key.namespace, key.name),
    })
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    use kube::api::{Patch, PatchParams, WatchEvent, WatchParams};
    use kube::{Api, ResourceExt};

    use super::*;

    fn map(text: &str) -> Value {
        json!({
            "metadata": {
                "namespace": "far", "name": "one", "uid": "u-1", "generation": 7,
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "data": {"text": text},
        })
    }

    async fn started() -> (ApiServer, Mirror, Api<ConfigMap>) {
        let server = ApiServer::builder().build().await.unwrap();
        let mirror = server.mirror::<ConfigMap>().unwrap();
        let api = Api::namespaced(server.client(), "far");
        (server, mirror, api)
    }

    #[tokio::test]
    async fn an_object_keeps_the_identity_it_has_elsewhere() {
        let (_server, mirror, api) = started().await;
        let put = |text| mirror.update("far", "one", move |_| Some(map(text)));
        put("a").await.unwrap();
        let found = api.get("one").await.unwrap();
        assert_eq!(found.uid().as_deref(), Some("u-1"));
        assert_eq!(found.meta().generation, Some(7));
        let mut events = api
            .watch(&WatchParams::default(), &found.resource_version().unwrap())
            .await
            .unwrap()
            .boxed();
        // The same again is no change.
        put("a").await.unwrap();
        put("b").await.unwrap();
        let Some(Ok(WatchEvent::Modified(changed))) = events.next().await else {
            panic!("no change");
        };
        assert_eq!(changed.data.unwrap()["text"], "b");
        assert_eq!(mirror.list::<ConfigMap>("far").len(), 1);
        assert_eq!(mirror.list::<ConfigMap>("near").len(), 0);
        mirror.update("far", "one", |_| None).await.unwrap();
        assert!(matches!(
            events.next().await,
            Some(Ok(WatchEvent::Deleted(_)))
        ));
        assert_eq!(mirror.get::<ConfigMap>("far", "one"), None);
        assert_eq!(mirror.update("far", "one", |_| None).await.unwrap(), None);
    }

    #[tokio::test]
    async fn what_is_being_deleted_goes_with_its_last_finalizer() {
        let (_server, mirror, api) = started().await;
        let mut going = map("a");
        going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        going["metadata"]["finalizers"] = json!(["example.org/cleanup"]);
        let put = mirror.update("far", "one", move |_| Some(going.clone()));
        put.await.unwrap();
        let patch = json!({"metadata": {"finalizers": null}});
        let patched = api
            .patch("one", &PatchParams::default(), &Patch::Merge(patch))
            .await;
        patched.unwrap();
        assert_eq!(api.get_opt("one").await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_change_meanwhile_is_seen() {
        let (_server, mirror, _api) = started().await;
        let count = |object: Option<Value>| {
            let mut object = object.unwrap_or_else(|| map("0"));
            let text = object["data"]["text"].as_str().unwrap();
            let next = text.parse::<u32>().unwrap() + 1;
            object["data"]["text"] = json!(next.to_string());
            Some(object)
        };
        let tasks: Vec<_> = (0..20)
            .map(|_| {
                let mirror = mirror.clone();
                tokio::spawn(async move { mirror.update("far", "one", count).await.unwrap() })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        let found: ConfigMap = mirror.get("far", "one").unwrap();
        assert_eq!(found.data.unwrap()["text"], "20");
    }

    #[tokio::test]
    async fn what_cannot_be_mirrored_is_named() {
        let (server, mirror, _api) = started().await;
        let error = mirror.update("far", "two", |_| Some(map("a"))).await;
        let error = error.unwrap_err().to_string();
        assert_eq!(error, "the object is far/one, expected far/two");
        assert!(server.mirror::<Secret>().is_ok());
        let unknown = server.mirror::<k8s_openapi::api::storage::v1::VolumeAttachment>();
        let error = unknown.unwrap_err().to_string();
        assert_eq!(error, "volumeattachments.storage.k8s.io is not served");
    }
}
