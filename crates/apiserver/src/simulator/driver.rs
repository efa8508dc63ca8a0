//! One controller per kind of workload: a watch, and a task per object that steps its status.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::SimulatorOptions;
use super::failure::{self, Failure};

/// Pause before a failed status write is tried again.
const RETRY: Duration = Duration::from_millis(500);

/// What a workload does next.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Next {
    /// Nothing until it changes.
    Settled,
    /// Gets this status at once.
    Now(Value),
    /// Gets this status after the time that a replica takes.
    Paced(Value),
    /// Gets this status after its own time.
    After(Duration, Value),
}

/// What a step looks at.
pub(super) struct Look<'a> {
    pub(super) object: &'a Value,
    /// The template differs from the one seen last.
    pub(super) new_template: bool,
    /// A short hash of the template, as in names of `ReplicaSet`s.
    pub(super) template_hash: &'a str,
    pub(super) failure: Option<Failure>,
}

/// A kind of workload.
#[derive(Clone, Copy)]
pub(super) struct Kind {
    pub(super) group: &'static str,
    pub(super) name: &'static str,
    pub(super) plural: &'static str,
    pub(super) step: fn(&Look<'_>) -> Next,
}

/// A controller for one kind.
pub(super) struct Driver {
    pub(super) client: Client,
    pub(super) options: SimulatorOptions,
    pub(super) kind: Kind,
}

type Key = (String, String);

impl Driver {
    fn resource(&self) -> ApiResource {
        let gvk = GroupVersionKind::gvk(self.kind.group, "v1", self.kind.name);
        ApiResource::from_gvk_with_plural(&gvk, self.kind.plural)
    }

    /// Follows all objects of the kind, for ever.
    pub(super) async fn run(self) {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &self.resource());
        let mut events = watcher(api, watcher::Config::default())
            .default_backoff()
            .boxed();
        let mut objects: HashMap<Key, watch::Sender<DynamicObject>> = HashMap::new();
        let mut fresh: HashSet<Key> = HashSet::new();
        let mut tasks = JoinSet::new();
        loop {
            match events.try_next().await {
                Ok(Some(watcher::Event::Init)) => fresh.clear(),
                Ok(Some(watcher::Event::InitApply(object))) => {
                    fresh.insert(key(&object));
                    self.seen(object, &mut objects, &mut tasks);
                }
                Ok(Some(watcher::Event::InitDone)) => {
                    objects.retain(|key, _| fresh.contains(key));
                }
                Ok(Some(watcher::Event::Apply(object))) => {
                    self.seen(object, &mut objects, &mut tasks);
                }
                Ok(Some(watcher::Event::Delete(object))) => {
                    objects.remove(&key(&object));
                }
                Ok(None) => return,
                Err(e) => tracing::debug!(kind = self.kind.name, error = %e, "watch failed"),
            }
            while tasks.try_join_next().is_some() {}
        }
    }

    fn seen(
        &self,
        object: DynamicObject,
        objects: &mut HashMap<Key, watch::Sender<DynamicObject>>,
        tasks: &mut JoinSet<()>,
    ) {
        let key = key(&object);
        if let Some(known) = objects.get(&key)
            && known.borrow().uid() == object.uid()
        {
            known.send_replace(object);
            return;
        }
        let api = Api::namespaced_with(self.client.clone(), &key.0, &self.resource());
        let (sender, receiver) = watch::channel(object);
        objects.insert(key, sender);
        tasks.spawn(drive(api, self.options.clone(), self.kind, receiver));
    }
}

fn key(object: &DynamicObject) -> Key {
    (object.namespace().unwrap_or_default(), object.name_any())
}

fn hash(value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.to_string().hash(&mut hasher);
    hasher.finish()
}

/// Takes one object through its steps until it is gone.
async fn drive(
    api: Api<DynamicObject>,
    options: SimulatorOptions,
    kind: Kind,
    mut objects: watch::Receiver<DynamicObject>,
) {
    let mut current = objects.borrow_and_update().clone();
    let name = current.name_any();
    let failure = failure::of(&options.failures, &name);
    let pace = spread(&options, &name);
    let mut template: Option<u64> = None;
    loop {
        let object = serde_json::to_value(&current).expect("Kubernetes objects serialise");
        let hash = hash(&object["spec"]["template"]);
        let settled_before =
            object["status"]["observedGeneration"] == object["metadata"]["generation"];
        let look = Look {
            object: &object,
            // After a restart of the simulator a settled workload is taken for up to date.
            new_template: template.map_or(!settled_before, |seen| seen != hash),
            template_hash: &format!("{:010x}", hash & 0xff_ffff_ffff),
            failure,
        };
        let (delay, status) = match (kind.step)(&look) {
            Next::Settled => {
                template = Some(hash);
                if objects.changed().await.is_err() {
                    return;
                }
                newest(&mut current, &mut objects);
                continue;
            }
            Next::Now(status) => (Duration::ZERO, status),
            Next::Paced(status) => (pace, status),
            Next::After(delay, status) => (delay, status),
        };
        let due = tokio::time::Instant::now() + delay;
        let superseded = loop {
            tokio::select! {
                biased;
                changed = objects.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    // The echo of the last write is no news, and must not cut the wait short.
                    if newest(&mut current, &mut objects) {
                        break true;
                    }
                }
                () = tokio::time::sleep_until(due) => break false,
            }
        };
        if superseded {
            continue;
        }
        match write(&api, &current, status).await {
            Ok(written) => {
                template = Some(hash);
                current = written;
            }
            Err(kube::Error::Api(status)) if status.is_not_found() => return,
            Err(kube::Error::Api(status)) if status.is_conflict() => {
                // The change that was quicker comes through the watch.
                if objects.changed().await.is_err() {
                    return;
                }
                newest(&mut current, &mut objects);
            }
            Err(e) => {
                tracing::debug!(%name, error = %e, "failed to write a status");
                tokio::time::sleep(RETRY).await;
                newest(&mut current, &mut objects);
            }
        }
    }
}

/// Takes the watched object if it is newer than what the last write gave.
fn newest(current: &mut DynamicObject, objects: &mut watch::Receiver<DynamicObject>) -> bool {
    let number = |object: &DynamicObject| -> u64 {
        object
            .resource_version()
            .and_then(|v| v.parse().ok())
            .unwrap_or_default()
    };
    let seen = objects.borrow_and_update();
    let newer = number(&seen) > number(current);
    if newer {
        *current = seen.clone();
    }
    newer
}

/// The pace of one workload: up to a tenth longer, by seed and name.
fn spread(options: &SimulatorOptions, name: &str) -> Duration {
    let mut hasher = DefaultHasher::new();
    (options.seed, name).hash(&mut hasher);
    let share = u32::try_from(hasher.finish() % 100).unwrap_or_default();
    options.pace + options.pace * share / 1000
}

async fn write(
    api: &Api<DynamicObject>,
    current: &DynamicObject,
    status: Value,
) -> kube::Result<DynamicObject> {
    // Fields that go away have to be named in a merge patch.
    let before = current.data.get("status").and_then(Value::as_object);
    let mut status = status;
    for field in before.into_iter().flatten().map(|(field, _)| field) {
        if status.get(field).is_none() {
            status[field] = Value::Null;
        }
    }
    let patch = json!({
        "metadata": {"resourceVersion": current.resource_version()}, "status": status,
    });
    api.patch_status(
        &current.name_any(),
        &PatchParams::default(),
        &Patch::Merge(patch),
    )
    .await
}
