//! From group, version and kind to the path of the API: one table per cluster, filled by discovery.
//!
//! Only the group version that is asked for is discovered, so that a broken API group (an
//! aggregated server that is down, a CRD conversion that fails) costs its own kinds and no others.
//! A kind that is not in the table is looked up again at most once a second, by one request at a
//! time: a thousand works that wait for one CRD ask as often as one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use muster_core::manifest::Gvk;
use tokio::time::Instant;

use super::calls::{ApiError, Calls, within_limit};

/// Least time between two discoveries of one group version.
const REFRESH_AFTER: Duration = Duration::from_secs(1);

/// Where objects of a kind live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mapping {
    /// Resource name in plural.
    pub(super) resource: String,
    /// Whether the objects have a namespace.
    pub(super) namespaced: bool,
}

/// Why a kind has no path.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum MapError {
    /// The server does not have it, for now. The text is upstream's.
    #[error("the server doesn't have a resource type {kind:?}")]
    NoKind {
        /// The kind.
        kind: String,
    },
    /// The server could not be asked.
    #[error("failed to discover {group_version}: {source}")]
    Discovery {
        /// Group and version.
        group_version: String,
        /// What went wrong.
        #[source]
        source: ApiError,
    },
}

/// What discovery last said about a group version.
#[derive(Debug)]
struct Known {
    /// By kind; empty if the group version is not served.
    kinds: Result<HashMap<String, Mapping>, ApiError>,
    asked_at: Instant,
}

type Slot = Arc<tokio::sync::Mutex<Option<Known>>>;

/// The table of one cluster. Cheap to clone; clones share it.
#[derive(Debug, Clone)]
pub(super) struct RestMapper {
    calls: Calls,
    /// One slot a group version, locked while it is being asked.
    slots: Arc<Mutex<HashMap<String, Slot>>>,
}

impl RestMapper {
    /// An empty table.
    pub(super) fn new(calls: Calls) -> Self {
        Self {
            calls,
            slots: Arc::default(),
        }
    }

    /// Finds the path of a kind, asking the server if the table does not have it.
    ///
    /// # Errors
    ///
    /// [`MapError`]; a failed question is not repeated within a second.
    pub(super) async fn find(&self, gvk: Gvk<'_>) -> Result<Mapping, MapError> {
        let group_version = group_version(gvk);
        let slot = self.slot(&group_version);
        let mut known = slot.lock().await;
        if let Some(mapping) = known.as_ref().and_then(|known| known.get(gvk.kind)) {
            return Ok(mapping);
        }
        let stale = |known: &Known| known.asked_at.elapsed() >= REFRESH_AFTER;
        if known.as_ref().is_none_or(stale) {
            let kinds = self.discover(gvk, &group_version).await;
            *known = Some(Known {
                kinds,
                asked_at: Instant::now(),
            });
        }
        match known.as_ref().map(|known| &known.kinds) {
            Some(Err(source)) => Err(MapError::Discovery {
                group_version,
                source: source.clone(),
            }),
            Some(Ok(kinds)) if kinds.contains_key(gvk.kind) => Ok(kinds[gvk.kind].clone()),
            _ => Err(MapError::NoKind {
                kind: gvk.kind.to_owned(),
            }),
        }
    }

    /// Forgets a kind, since the server denied the path that the table had for it.
    pub(super) async fn forget(&self, gvk: Gvk<'_>) {
        let slot = self.slot(&group_version(gvk));
        if let Some(Known {
            kinds: Ok(kinds), ..
        }) = slot.lock().await.as_mut()
        {
            kinds.remove(gvk.kind);
        }
    }

    fn slot(&self, group_version: &str) -> Slot {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(slots.entry(group_version.to_owned()).or_default())
    }

    /// Asks about one group version. One that is not served has no kinds.
    async fn discover(
        &self,
        gvk: Gvk<'_>,
        group_version: &str,
    ) -> Result<HashMap<String, Mapping>, ApiError> {
        let client = self.calls.client();
        let answer = if gvk.group.is_empty() {
            within_limit(client.list_core_api_resources(gvk.version)).await
        } else {
            within_limit(client.list_api_group_resources(group_version)).await
        };
        match answer {
            Ok(list) => Ok(kinds_of(list)),
            Err(error) if error.is_not_found() => Ok(HashMap::new()),
            Err(error) => Err(error),
        }
    }
}

impl Known {
    fn get(&self, kind: &str) -> Option<Mapping> {
        self.kinds.as_ref().ok()?.get(kind).cloned()
    }
}

fn group_version(gvk: Gvk<'_>) -> String {
    if gvk.group.is_empty() {
        gvk.version.to_owned()
    } else {
        format!("{}/{}", gvk.group, gvk.version)
    }
}

/// The resources by kind, without subresources (`pods/status`). A kind with several resources is
/// known by the first.
fn kinds_of(list: APIResourceList) -> HashMap<String, Mapping> {
    let mut kinds = HashMap::with_capacity(list.resources.len());
    for resource in list.resources {
        if !resource.name.contains('/') {
            kinds.entry(resource.kind).or_insert(Mapping {
                resource: resource.name,
                namespaced: resource.namespaced,
            });
        }
    }
    kinds
}
