//! The sinks of a cluster, each with what it has and the actor that tells it more.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use actix::Addr;
use futures::future::join_all;
use muster_core::watch_plan::Resource;
use muster_core::watch_rules::RuleName;
use tokio::sync::Notify;
use tracing::warn;

use super::event_queue::{EventQueue, Look};
use super::memory::{Memory, Told};
use super::outlet::Outlet;
use super::{RuleSettings, SinkMaker};
use crate::supervision::{Io, Registry, stop};

/// How long an actor of a sink may take to end: it gives the sink what waits.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// A sink of this cluster.
#[derive(Debug)]
struct Destination {
    outlet: Arc<Outlet>,
    /// `None` while what is kept of it cannot be read: it is told nothing then.
    queue: Option<Addr<EventQueue>>,
}

/// What was kept of a sink, and what it said.
type Kept = Option<(Arc<Memory>, Told)>;

/// Sinks that can be started, or why not.
pub(super) type Opened = Vec<(Arc<str>, Result<Kept, String>)>;

/// See the module.
pub(super) struct Destinations {
    deps: DestinationDeps,
    by_name: BTreeMap<Arc<str>, Destination>,
}

/// What they are made of.
pub(super) struct DestinationDeps {
    pub(super) cluster: String,
    pub(super) makers: BTreeMap<String, Arc<dyn SinkMaker>>,
    pub(super) settings: RuleSettings,
    pub(super) io: Io,
    pub(super) registry: Registry,
    pub(super) look: Arc<dyn Look>,
    /// Told when a sink begins to fail, and when it ends that.
    pub(super) changed: Arc<Notify>,
}

impl Destinations {
    /// Starts none yet.
    pub(super) const fn new(deps: DestinationDeps) -> Self {
        Self {
            deps,
            by_name: BTreeMap::new(),
        }
    }

    /// Reads what is kept of the sinks that are not started. Nothing changes until
    /// [`Destinations::start`] is called with it.
    pub(super) fn open(&self) -> impl Future<Output = Opened> + use<> {
        let missing = self
            .deps
            .makers
            .keys()
            .filter(|name| !self.is_started(name));
        let missing: Vec<(Arc<str>, Option<PathBuf>)> = missing
            .map(|name| {
                let folder = self.deps.settings.data_dir.as_ref();
                let file = format!("{name}.redb");
                let path = folder.map(|folder| folder.join(&self.deps.cluster).join(file));
                (Arc::from(name.as_str()), path)
            })
            .collect();
        let folder = self.deps.settings.data_dir.clone();
        let open = move || {
            let open = |(name, path): (Arc<str>, Option<PathBuf>)| {
                (name, open_memory(folder.as_deref(), path))
            };
            missing.into_iter().map(open).collect()
        };
        let opened = self
            .deps
            .io
            .run(async { tokio::task::spawn_blocking(open).await });
        async move {
            match opened.await {
                Ok(Ok(opened)) => opened,
                Ok(Err(_)) | Err(_) => Vec::new(), // the process ends
            }
        }
    }

    /// Starts these.
    pub(super) fn start(&mut self, opened: Opened) {
        for (name, kept) in opened {
            self.start_one(&name, kept);
        }
    }

    fn start_one(&mut self, name: &Arc<str>, kept: Result<Kept, String>) {
        let Some(maker) = self.deps.makers.get(&**name) else {
            return;
        };
        let destination = self.by_name.entry(Arc::clone(name));
        let destination = destination.or_insert_with(|| {
            let changed = Arc::clone(&self.deps.changed);
            Destination {
                outlet: Outlet::new(
                    self.deps.cluster.as_str(),
                    Arc::clone(name),
                    self.deps.settings.room,
                    changed,
                ),
                queue: None,
            }
        });
        let mut was_told = false;
        let memory = match kept {
            Ok(Some((memory, had))) => {
                was_told = !had.is_empty();
                destination.outlet.remember(had);
                Some(memory)
            }
            Ok(None) => None,
            Err(error) => {
                // An empty one in its place would have everything told anew.
                warn!(cluster = self.deps.cluster, sink = %name, error, "sink not started, retrying");
                destination.outlet.set_failing(Some(error));
                return;
            }
        };
        destination.outlet.set_failing(None);
        let queue = EventQueue::new(
            Arc::clone(&destination.outlet),
            Arc::clone(&self.deps.look),
            self.deps.io.clone(),
            memory,
            maker.make(&self.deps.cluster, was_told),
        );
        let label = format!("{} {name}", self.deps.cluster);
        destination.queue = Some(self.deps.registry.start("EventQueue", label, queue));
    }

    /// Whether there is a sink of this name that can be told of something.
    pub(super) fn is_started(&self, sink: &str) -> bool {
        let known = self.by_name.get(sink);
        known.is_some_and(|known| known.queue.is_some())
    }

    /// Whether each has been started.
    pub(super) fn are_started(&self) -> bool {
        self.deps.makers.keys().all(|name| self.is_started(name))
    }

    /// What a sink has; `None` before it has been opened for the first time.
    pub(super) fn outlet(&self, sink: &str) -> Option<&Arc<Outlet>> {
        Some(&self.by_name.get(sink)?.outlet)
    }

    /// Whether the settings have a sink of this name.
    pub(super) fn knows(&self, sink: &str) -> bool {
        self.deps.makers.contains_key(sink)
    }

    /// Their names.
    pub(super) fn names(&self) -> Vec<String> {
        self.deps.makers.keys().cloned().collect()
    }

    /// All areas that rules want have been joined; see [`Outlet::forget_others`].
    pub(super) fn forget_others<'a>(
        &self,
        is_served: impl Fn(&Resource) -> bool,
        rules: impl IntoIterator<Item = &'a RuleName>,
    ) {
        let rules: BTreeSet<String> = rules.into_iter().map(ToString::to_string).collect();
        for destination in self.by_name.values() {
            let outlet = &destination.outlet;
            outlet.forget_others(&is_served, |rule| rules.contains(rule));
        }
    }

    /// There are only these rules.
    pub(super) fn count_only<'a>(&self, rules: impl IntoIterator<Item = &'a RuleName>) {
        let rules: BTreeSet<String> = rules.into_iter().map(ToString::to_string).collect();
        for destination in self.by_name.values() {
            destination.outlet.count_only(&rules);
        }
    }

    /// Gives each what waits for it and ends.
    pub(super) fn stop(&self) -> impl Future<Output = ()> + use<> {
        let all = self.by_name.values();
        let queues: Vec<_> = all.filter_map(|it| it.queue.clone()).collect();
        async move {
            join_all(queues.iter().map(|queue| stop(queue, STOP_LIMIT))).await;
        }
    }
}

fn open_memory(folder: Option<&Path>, path: Option<PathBuf>) -> Result<Kept, String> {
    let (Some(folder), Some(path)) = (folder, path) else {
        return Ok(None);
    };
    muster_privatefiles::create_dir_all(folder)
        .map_err(|error| format!("{}: {error}", folder.display()))?;
    let memory = Memory::open(&path)?;
    let had = memory
        .load()
        .map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(Some((Arc::new(memory), had)))
}
