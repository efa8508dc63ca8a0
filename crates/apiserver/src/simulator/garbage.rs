//! Collects objects whose owners are gone, as the garbage collector of a cluster does.
//!
//! Follows the metadata of every type that can be deleted. Background deletion removes
//! dependents after their owner, foreground deletion before it, orphaning cuts them loose.

mod graph;

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, Preconditions};
use kube::core::PartialObjectMeta;
use kube::discovery::{Discovery, Scope, verbs};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use graph::{Action, Graph, Node, ObjectRef};

/// Events that wait for the graph: the watches of some 40 types share it, each delivers its
/// first list in pages of 500.
const QUEUE: usize = 1024;

/// How often types that came since are looked for; CRD changes trigger it at once.
const REDISCOVER: Duration = Duration::from_secs(30);

/// Types that own nothing and are owned by nothing worth the traffic.
const IGNORED: [&str; 2] = ["events", "events.events.k8s.io"];

type Metadata = PartialObjectMeta<DynamicObject>;

struct Seen {
    resource: String,
    event: watcher::Event<Metadata>,
}

/// A type that is followed.
struct Followed {
    resource: ApiResource,
    namespaced: bool,
    task: AbortHandle,
}

/// Runs for ever.
pub(super) async fn run(client: Client) {
    let (sender, mut events) = mpsc::channel(QUEUE);
    let mut collector = Collector {
        client,
        sender,
        types: HashMap::new(),
        listed: HashSet::new(),
        listing: HashMap::new(),
        graph: Graph::default(),
        tasks: tokio::task::JoinSet::new(),
    };
    let mut discover = tokio::time::interval(REDISCOVER);
    loop {
        tokio::select! {
            _ = discover.tick() => collector.discover().await,
            Some(seen) = events.recv() => {
                let is_crd = seen.resource == crate::builtin::CRDS;
                let initial = matches!(
                    seen.event,
                    watcher::Event::Init | watcher::Event::InitApply(_) | watcher::Event::InitDone
                );
                let actions = collector.observe(seen);
                for action in actions {
                    collector.carry_out(action).await;
                }
                if is_crd && !initial {
                    collector.discover().await;
                }
            }
        }
    }
}

struct Collector {
    client: Client,
    sender: mpsc::Sender<Seen>,
    types: HashMap<String, Followed>,
    /// Types whose first list is through.
    listed: HashSet<String>,
    /// What the list in progress of a type has shown so far.
    listing: HashMap<String, HashSet<String>>,
    graph: Graph,
    tasks: tokio::task::JoinSet<()>,
}

impl Collector {
    /// Follows new types and lets go of those that are no longer served.
    async fn discover(&mut self) {
        let discovery = match Discovery::new(self.client.clone()).run_aggregated().await {
            Ok(discovery) => discovery,
            Err(e) => {
                tracing::debug!(error = %e, "discovery failed");
                return;
            }
        };
        let mut served = HashSet::new();
        for group in discovery.groups() {
            for (resource, capabilities) in group.recommended_resources() {
                let usable = [verbs::LIST, verbs::WATCH, verbs::DELETE]
                    .into_iter()
                    .all(|verb| capabilities.supports_operation(verb));
                let key =
                    crate::registry::resource_key(&resource.group, &resource.plural).to_string();
                if !usable || IGNORED.contains(&key.as_str()) {
                    continue;
                }
                served.insert(key.clone());
                if !self.types.contains_key(&key) {
                    self.follow(key, resource, capabilities.scope == Scope::Namespaced);
                }
            }
        }
        let (graph, listed) = (&mut self.graph, &mut self.listed);
        self.types.retain(|key, followed| {
            let keep = served.contains(key);
            if !keep {
                followed.task.abort();
                listed.remove(key);
                graph.forget_type(key);
            }
            keep
        });
        while self.tasks.try_join_next().is_some() {}
    }

    fn follow(&mut self, key: String, resource: ApiResource, namespaced: bool) {
        let api: Api<Metadata> = Api::all_with(self.client.clone(), &resource);
        let sender = self.sender.clone();
        let name = key.clone();
        let task = self.tasks.spawn(async move {
            let config = watcher::Config::default();
            let mut events = watcher(api, config).default_backoff().boxed();
            loop {
                match events.try_next().await {
                    Ok(Some(event)) => {
                        let seen = Seen {
                            resource: name.clone(),
                            event,
                        };
                        if sender.send(seen).await.is_err() {
                            return;
                        }
                    }
                    Ok(None) => return,
                    Err(e) => tracing::debug!(resource = %name, error = %e, "watch failed"),
                }
            }
        });
        self.types.insert(
            key,
            Followed {
                resource,
                namespaced,
                task,
            },
        );
    }

    fn observe(&mut self, seen: Seen) -> Vec<Action> {
        let Seen { resource, event } = seen;
        match event {
            watcher::Event::Init => {
                self.listing.insert(resource, HashSet::new());
                Vec::new()
            }
            watcher::Event::InitApply(object) => {
                if let (Some(uids), Some(uid)) =
                    (self.listing.get_mut(&resource), object.metadata.uid.clone())
                {
                    uids.insert(uid);
                }
                self.graph.apply(node(resource, &object))
            }
            watcher::Event::InitDone => {
                self.listed.insert(resource.clone());
                let present = self.listing.remove(&resource).unwrap_or_default();
                let mut actions = self.graph.keep_only(&resource, &present);
                if self.listed.len() == self.types.len() {
                    actions.extend(self.graph.all_listed());
                }
                actions
            }
            watcher::Event::Apply(object) => self.graph.apply(node(resource, &object)),
            watcher::Event::Delete(object) => self
                .graph
                .remove(object.metadata.uid.as_deref().unwrap_or_default()),
        }
    }

    async fn carry_out(&mut self, action: Action) {
        let result = match &action {
            Action::Delete(object) => self.delete(object).await,
            Action::Verify { dependent, owner } => {
                if self.owner_exists(dependent, owner).await {
                    Ok(())
                } else {
                    self.delete(dependent).await
                }
            }
            Action::Orphan {
                dependent,
                owner_uid,
            } => self.orphan(dependent, owner_uid).await,
            Action::RemoveFinalizer { object, finalizer } => {
                self.remove_finalizer(object, finalizer).await
            }
        };
        match result {
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
            Err(e) => tracing::debug!(?action, error = %e, "garbage collection failed"),
            Ok(()) => {}
        }
    }

    fn api(&self, object: &ObjectRef) -> Option<Api<DynamicObject>> {
        let followed = self.types.get(&object.resource)?;
        Some(if followed.namespaced {
            Api::namespaced_with(self.client.clone(), &object.namespace, &followed.resource)
        } else {
            Api::all_with(self.client.clone(), &followed.resource)
        })
    }

    async fn delete(&self, object: &ObjectRef) -> kube::Result<()> {
        let Some(api) = self.api(object) else {
            return Ok(());
        };
        let params = DeleteParams::background().preconditions(Preconditions {
            uid: Some(object.uid.clone()),
            resource_version: None,
        });
        api.delete(&object.name, &params).await.map(|_| ())
    }

    /// Asks the API about an owner that no watch has shown. In doubt it exists.
    async fn owner_exists(&self, dependent: &ObjectRef, owner: &graph::Owner) -> bool {
        let found = self
            .types
            .values()
            .find(|t| t.resource.kind == owner.kind && t.resource.api_version == owner.api_version);
        let Some(followed) = found else { return true };
        let api: Api<DynamicObject> = if followed.namespaced {
            Api::namespaced_with(
                self.client.clone(),
                &dependent.namespace,
                &followed.resource,
            )
        } else {
            Api::all_with(self.client.clone(), &followed.resource)
        };
        match api.get_metadata_opt(&owner.name).await {
            Ok(Some(object)) => object.metadata.uid.as_deref() == Some(owner.uid.as_str()),
            Ok(None) => false,
            Err(_) => true,
        }
    }

    async fn orphan(&self, dependent: &ObjectRef, owner_uid: &str) -> kube::Result<()> {
        let Some(api) = self.api(dependent) else {
            return Ok(());
        };
        let object = api.get_metadata(&dependent.name).await?;
        let left: Vec<_> = object
            .owner_references()
            .iter()
            .filter(|o| o.uid != owner_uid)
            .cloned()
            .collect();
        let patch = json!({"metadata": {
            "resourceVersion": object.metadata.resource_version, "ownerReferences": left,
        }});
        api.patch_metadata(
            &dependent.name,
            &PatchParams::default(),
            &Patch::Merge(patch),
        )
        .await
        .map(|_| ())
    }

    async fn remove_finalizer(&self, object: &ObjectRef, finalizer: &str) -> kube::Result<()> {
        let Some(api) = self.api(object) else {
            return Ok(());
        };
        let current = api.get_metadata(&object.name).await?;
        let left: Vec<_> = current
            .finalizers()
            .iter()
            .filter(|f| *f != finalizer)
            .collect();
        let patch = json!({"metadata": {
            "resourceVersion": current.metadata.resource_version, "finalizers": left,
        }});
        api.patch_metadata(&object.name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .map(|_| ())
    }
}

fn node(resource: String, object: &Metadata) -> Node {
    let owners = object
        .owner_references()
        .iter()
        .map(|o| graph::Owner {
            uid: o.uid.clone(),
            api_version: o.api_version.clone(),
            kind: o.kind.clone(),
            name: o.name.clone(),
            blocks: o.block_owner_deletion.unwrap_or_default(),
        })
        .collect();
    Node {
        object: ObjectRef {
            resource,
            namespace: object.namespace().unwrap_or_default(),
            name: object.name_any(),
            uid: object.uid().unwrap_or_default(),
        },
        owners,
        deleting: object.metadata.deletion_timestamp.is_some(),
        finalizers: object.finalizers().to_vec(),
    }
}
