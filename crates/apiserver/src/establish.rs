//! What the server does when a CRD comes, changes or goes, and when the last object of a type
//! that goes is gone.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::builtin::CRDS;
use crate::crd;
use crate::object;
use crate::registry::ResourceDef;
use crate::server::Inner;
use crate::status::{ApiError, ApiResult};
use crate::store::{Expect, ObjectKey, Scope, Stored, WriteError};
use crate::verbs::delete::delete_as_server;

impl Inner {
    /// Does what a write brings with it for types that the server acts on itself.
    pub(crate) async fn after_write(
        self: &Arc<Self>,
        def: &ResourceDef,
        stored: &Stored,
    ) -> ApiResult<()> {
        if &*def.key == CRDS {
            return self.crd_changed(&stored.key).await;
        }
        if def.builtin.is_none() && self.store.get(&def.key, &stored.key).is_none() {
            let terminating = self
                .registry
                .types()
                .by_key(&def.key)
                .is_some_and(|d| d.terminating);
            if terminating {
                return self.finish_crd(&ObjectKey::new("", &def.key)).await;
            }
        }
        Ok(())
    }

    /// Registers the types of the CRDs that the storage has.
    pub(crate) async fn load_crds(self: &Arc<Self>) -> ApiResult<()> {
        for stored in self.store.list(CRDS, &Scope::All).0 {
            // One that another release has stored must not keep the server from starting.
            if let Err(e) = self.crd_changed(&stored.key).await {
                let name = &stored.key.name;
                tracing::error!(crd = %name, error = %e.message, "failed to load the type, it is not served");
            }
        }
        Ok(())
    }

    async fn crd_changed(self: &Arc<Self>, key: &ObjectKey) -> ApiResult<()> {
        let Some(stored) = self.store.get(CRDS, key) else {
            self.forget_type(&key.name);
            return Ok(());
        };
        let mut crd = stored.value();
        if !object::is_deleting(&crd)
            && let Some(new) = crd::served(&self.registry.types(), &crd)
        {
            crd = new;
            let types = self.registry.types();
            let def = types.by_key(CRDS).expect("CRDs are a built-in type");
            match self
                .put(def, key, Expect::Revision(stored.revision), crd.clone())
                .await
            {
                // Somebody else changed it and comes through here as well.
                Err(WriteError::Modified | WriteError::Missing) => return Ok(()),
                Err(e) => return Err(ApiError::internal(e)),
                Ok(_) => {}
            }
        }
        if !crd::is_established(&crd) {
            return Ok(());
        }
        let def = crd::definition(&crd).map_err(ApiError::internal)?;
        let selectable = def.selectable.clone();
        let before = self
            .registry
            .types()
            .by_key(&def.key)
            .map(|d| d.selectable.clone());
        self.registry.set(def);
        if before.is_none_or(|b| b != selectable) {
            self.store.reindex(&key.name, &selectable);
        }
        if object::is_deleting(&crd) {
            return self.delete_objects_of(key).await;
        }
        Ok(())
    }

    /// Deletes what is left of a type whose CRD is going.
    async fn delete_objects_of(self: &Arc<Self>, key: &ObjectKey) -> ApiResult<()> {
        let def = self.registry.types().by_key(&key.name).cloned();
        if let Some(def) = def {
            for stored in self.store.list(&def.key, &Scope::All).0 {
                Box::pin(delete_as_server(self, &def, stored)).await?;
            }
        }
        self.finish_crd(key).await
    }

    /// Removes a deleted CRD once no object of its type is left.
    async fn finish_crd(self: &Arc<Self>, key: &ObjectKey) -> ApiResult<()> {
        loop {
            if !self.store.list(&key.name, &Scope::All).0.is_empty() {
                return Ok(());
            }
            let Some(stored) = self.store.get(CRDS, key) else {
                return Ok(());
            };
            let mut crd = stored.value();
            let left: Vec<Value> = object::finalizers(&crd)
                .into_iter()
                .filter(|f| *f != crd::CLEANUP_FINALIZER)
                .map(|f| json!(f))
                .collect();
            let finished = left.is_empty();
            object::set_meta(
                &mut crd,
                "finalizers",
                if finished { Value::Null } else { json!(left) },
            );
            let types = self.registry.types();
            let def = types.by_key(CRDS).expect("CRDs are a built-in type");
            let result = if finished {
                self.remove(def, key, stored.revision, crd).await
            } else {
                self.put(def, key, Expect::Revision(stored.revision), crd)
                    .await
            };
            match result {
                Ok(_) if finished => {
                    self.forget_type(&key.name);
                    return Ok(());
                }
                Ok(_) | Err(WriteError::Missing) => return Ok(()),
                Err(WriteError::Modified) => {}
                Err(e) => return Err(ApiError::internal(e)),
            }
        }
    }

    fn forget_type(&self, name: &str) {
        self.registry.remove(name);
        self.store.close_resource(name);
    }
}
