//! The server's handle and its builder.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::admission::Admission;
use crate::authz::{self, Authorization, Authorizer, UserInfo};
use crate::builtin::NAMESPACES;
use crate::http::heavy::Heavy;
use crate::http::service::ApiService;
use crate::object;
use crate::registry::{Registry, ResourceDef};
use crate::stats::{Meter, Stats};
use crate::store::durable::OpenError;
use crate::store::{Expect, Limits, ObjectKey, Store, Stored, WriteError};
use crate::verbs::pages::Pages;

/// Namespaces that every cluster has.
const FIRST_NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// Past events kept per resource. The real watch cache grows to 102,400; 4,096 covers a client
/// that was away for 40 s at 100 changes a second.
const HISTORY_EVENTS: usize = 4096;

/// Events queued per watch. The real server allows 100 to 1,000 depending on the resource; in
/// one process a burst of 1,000 changes must not close a watch that is polled right after it.
const WATCHER_QUEUE_EVENTS: usize = 4096;

/// Where objects live.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Storage {
    /// In memory only.
    #[default]
    Memory,
    /// In memory, mirrored to this database file. A write is acknowledged after its commit.
    Redb(PathBuf),
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The database file cannot be used; it is left as it is.
    #[error(transparent)]
    Storage(#[from] OpenError),
    /// A type given to the builder is not valid.
    #[error("failed to install custom resource definition {name}: {why}")]
    Crd {
        /// The definition's name.
        name: String,
        /// What the server says about it.
        why: String,
    },
    /// The first objects could not be written.
    #[error("failed to write {what}: {why}")]
    Write {
        /// The object.
        what: String,
        /// What the storage says.
        why: String,
    },
}

/// Settings of a server that is about to start.
#[derive(Debug)]
#[must_use]
pub struct ApiServerBuilder {
    storage: Storage,
    admission: Option<Arc<dyn Admission>>,
    authorization: Authorization,
    crds: Vec<CustomResourceDefinition>,
    limits: Limits,
}

impl ApiServerBuilder {
    /// Sets where objects live; in memory if not called.
    pub fn storage(mut self, storage: Storage) -> Self {
        self.storage = storage;
        self
    }

    /// Sets who decides on writes beside the server itself.
    pub fn admission(mut self, admission: Arc<dyn Admission>) -> Self {
        self.admission = Some(admission);
        self
    }

    /// Sets whether requests need rights; they need none if not called.
    pub fn authorization(mut self, authorization: Authorization) -> Self {
        self.authorization = authorization;
        self
    }

    /// Installs a custom type before the server is handed out; an existing one is replaced.
    pub fn crd(mut self, crd: CustomResourceDefinition) -> Self {
        self.crds.push(crd);
        self
    }

    /// Sets how many past events per resource a watch can resume from.
    pub fn watch_history(mut self, events: usize) -> Self {
        self.limits.history_events = events;
        self
    }

    /// Sets how many events may wait for one watch before it is closed as too slow.
    pub fn watch_queue(mut self, events: usize) -> Self {
        self.limits.watcher_queue_events = events.max(1);
        self
    }

    /// Opens the storage and starts the server.
    ///
    /// # Errors
    ///
    /// Fails when the storage is damaged, foreign or not reachable, and when a CRD is invalid.
    pub async fn build(self) -> Result<ApiServer, BuildError> {
        let registry = Registry::new();
        let store = match &self.storage {
            Storage::Memory => Store::in_memory(self.limits),
            Storage::Redb(path) => Store::durable(self.limits, path, |resource| {
                registry
                    .types()
                    .by_key(resource)
                    .map(|d| d.selectable.clone())
                    .unwrap_or_default()
            })?,
        };
        let inner = Arc::new(Inner {
            store,
            registry,
            admission: self.admission,
            authorizer: Authorizer::new(self.authorization),
            meter: Meter::default(),
            pages: Pages::default(),
            heavy: Heavy::default(),
            stopping: CancellationToken::new(),
        });
        inner.load_crds().await.map_err(|e| BuildError::Write {
            what: "custom resource definitions".to_owned(),
            why: e.message,
        })?;
        inner.create_first_objects().await?;
        let server = ApiServer { inner };
        for crd in self.crds {
            install(&server, crd).await?;
        }
        Ok(server)
    }
}

/// Creates a CRD, or replaces the one of its name.
async fn install(server: &ApiServer, mut crd: CustomResourceDefinition) -> Result<(), BuildError> {
    let name = crd.metadata.name.clone().unwrap_or_default();
    let api: Api<CustomResourceDefinition> = Api::all(server.client());
    let installed = async {
        match api.get_opt(&name).await? {
            None => api.create(&PostParams::default(), &crd).await,
            Some(old) => {
                crd.metadata.resource_version = old.metadata.resource_version;
                crd.metadata.finalizers = old.metadata.finalizers;
                api.replace(&name, &PostParams::default(), &crd).await
            }
        }
    };
    match installed.await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err(BuildError::Crd {
            name,
            why: status.message,
        }),
        Err(e) => Err(BuildError::Crd {
            name,
            why: e.to_string(),
        }),
    }
}

/// A running server; clones are handles to the same one.
#[derive(Clone)]
pub struct ApiServer {
    pub(crate) inner: Arc<Inner>,
}

impl fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiServer")
            .field("revision", &self.inner.store.revision())
            .finish()
    }
}

impl ApiServer {
    /// Starts the description of a server.
    pub fn builder() -> ApiServerBuilder {
        ApiServerBuilder {
            storage: Storage::Memory,
            admission: None,
            authorization: Authorization::default(),
            crds: Vec::new(),
            limits: Limits {
                history_events: HISTORY_EVENTS,
                watcher_queue_events: WATCHER_QUEUE_EVENTS,
            },
        }
    }

    /// Gives a client that calls the server in process, without socket, TLS or token.
    ///
    /// The client's worker task lives on the tokio runtime of the caller.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime, as [`kube::Client::new`] does.
    pub fn client(&self) -> kube::Client {
        self.client_of(UserInfo::admin(), true)
    }

    /// As [`ApiServer::client`], for a client that acts as this user, who counts as
    /// authenticated. [`ApiServer::client`] itself acts as an administrator.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime, as [`kube::Client::new`] does.
    pub fn client_as(&self, user: UserInfo) -> kube::Client {
        self.client_of(user.authenticated(), true)
    }

    /// Gives a client whose requests and watches do not appear in [`ApiServer::stats`]: for
    /// the simulator and other helpers, so that tests count only what they test.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime, as [`kube::Client::new`] does.
    pub fn uncounted_client(&self) -> kube::Client {
        self.client_of(UserInfo::admin(), false)
    }

    fn client_of(&self, user: UserInfo, counted: bool) -> kube::Client {
        kube::Client::new(
            ApiService {
                server: self.inner.clone(),
                counted,
                user: Arc::new(user),
            },
            "default",
        )
    }

    /// Counts requests and watches.
    pub fn stats(&self) -> Stats {
        self.inner.meter.snapshot()
    }

    /// Ends every watch, refuses further requests and waits until all writes are on disk.
    pub async fn shutdown(self) {
        self.inner.stopping.cancel();
        self.inner.store.close().await;
    }
}

/// The server itself.
pub(crate) struct Inner {
    pub(crate) store: Store,
    pub(crate) registry: Registry,
    pub(crate) admission: Option<Arc<dyn Admission>>,
    pub(crate) authorizer: Authorizer,
    pub(crate) meter: Meter,
    pub(crate) pages: Pages,
    /// Where writes run that can compute for a while.
    pub(crate) heavy: Heavy,
    pub(crate) stopping: CancellationToken,
}

impl Inner {
    /// Stores an object of a type under the type's storage version.
    pub(crate) async fn put(
        &self,
        def: &ResourceDef,
        key: &ObjectKey,
        expect: Expect,
        object: Value,
    ) -> Result<Arc<Stored>, WriteError> {
        self.store
            .put(&def.key, key, expect, |revision| {
                sealed(def, object, revision)
            })
            .await
    }

    /// Removes an object of a type; `object` is its last state.
    pub(crate) async fn remove(
        &self,
        def: &ResourceDef,
        key: &ObjectKey,
        revision: u64,
        object: Value,
    ) -> Result<Arc<Stored>, WriteError> {
        self.store
            .remove(&def.key, key, revision, |revision| {
                sealed(def, object, revision)
            })
            .await
    }

    /// Creates what every cluster has, unless it is there.
    async fn create_first_objects(&self) -> Result<(), BuildError> {
        for name in FIRST_NAMESPACES {
            let namespace = json!({
                "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
                "spec": {"finalizers": ["kubernetes"]},
                "status": {"phase": "Active"},
            });
            self.create_first(NAMESPACES, namespace).await?;
        }
        if self.authorizer.mode == Authorization::Rbac {
            for (resource, object) in authz::first_objects() {
                self.create_first(resource, object).await?;
            }
        }
        Ok(())
    }

    async fn create_first(&self, resource: &str, mut object: Value) -> Result<(), BuildError> {
        let types = self.registry.types();
        let def = types.by_key(resource).expect("it is a built-in type");
        let key = ObjectKey::new("", object::meta_str(&object, "name"));
        if self.store.get(&def.key, &key).is_some() {
            return Ok(());
        }
        crate::strategy::prepare_create_metadata(def, &mut object);
        self.put(def, &key, Expect::Absent, object)
            .await
            .map(|_| ())
            .map_err(|e| BuildError::Write {
                what: format!("{} {}", def.singular, key.name),
                why: e.to_string(),
            })
    }
}

/// The object with its revision, as it is stored.
fn sealed(def: &ResourceDef, mut object: Value, revision: u64) -> Stored {
    object["kind"] = json!(def.kind);
    object["apiVersion"] = json!(def.storage_api_version());
    object::set_meta(&mut object, "resourceVersion", json!(revision.to_string()));
    Stored::new(object, &def.selectable)
}
