//! ManagedClusters as the hub's actors see them.

use futures::Stream;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::runtime::watcher;
use kube::{Api, ResourceExt};
use muster_api::cluster::ManagedCluster;
use muster_api::{conditions, constants as names};
use muster_core::departures::GivenUp;
use muster_core::explain::agent_verdict;
use muster_core::replicaset::is_paused;

use super::HubDeps;
use crate::watching::{ANEW_AFTER, Seen, answer_of, watch_some};

/// What matters of a ManagedCluster.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ClusterSeen {
    pub(super) name: String,
    /// Nothing is to be written there.
    pub(super) paused: bool,
    /// Since when its agent has been away, as its conditions say.
    pub(super) away: Option<Timestamp>,
    /// Somebody gave it up.
    pub(super) given_up: Option<GivenUp>,
    /// Its condition `Available`, where the hub wrote it.
    pub(super) available: Option<Box<Condition>>,
    /// Somebody else writes that condition.
    pub(super) others_say: bool,
}

impl ClusterSeen {
    fn of(cluster: &ManagedCluster) -> Self {
        let agent = agent_verdict(cluster);
        let annotations = cluster.metadata.annotations.as_ref();
        let annotated = annotations
            .and_then(|all| all.get(names::ABANDONED))
            .is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let deleted = cluster.metadata.deletion_timestamp.is_some();
        let status = cluster.status.as_ref();
        let all = status.map_or(&[][..], |status| &status.conditions);
        let available = conditions::find(all, names::MANAGED_CLUSTER_CONDITION_AVAILABLE);
        Self {
            name: cluster.name_any(),
            paused: is_paused(annotations),
            away: (!agent.is_ok()).then(|| agent.since.unwrap_or(Timestamp::UNIX_EPOCH)),
            given_up: if deleted {
                Some(GivenUp::Deleted)
            } else {
                annotated.then_some(GivenUp::Annotated)
            },
            others_say: available.is_some_and(|found| !is_ours(found)),
            available: available
                .filter(|found| is_ours(found))
                .cloned()
                .map(Box::new),
        }
    }
}

/// Whether the hub wrote this condition of a ManagedCluster.
fn is_ours(available: &Condition) -> bool {
    [names::REASON_AGENT_CONNECTED, names::REASON_AGENT_AWAY].contains(&&*available.reason)
}

/// One event of the watch of clusters.
#[derive(Debug)]
pub(super) enum ClusterEvent {
    Seen(Seen<ClusterSeen>),
    /// The hub may not read them, or its API has none: what it does for clusters goes on without.
    Unreadable(String),
}

/// Watches all ManagedClusters. A hub that must do without them is ready all the same.
pub(super) fn watch_clusters(
    deps: &HubDeps,
    stream: &str,
) -> impl Stream<Item = ClusterEvent> + Unpin + 'static {
    let clusters: Api<ManagedCluster> = Api::all(deps.client.clone());
    let config = watcher::Config {
        timeout: Some(ANEW_AFTER),
        ..watcher::Config::default()
    };
    let health = deps.health.optional_stream(stream);
    watch_some(&deps.io, clusters, config, health, |step| {
        let seen = match step {
            Ok(watcher::Event::Init) => Seen::Listing,
            Ok(watcher::Event::InitApply(cluster)) => Seen::Item(ClusterSeen::of(&cluster)),
            Ok(watcher::Event::InitDone) => Seen::Listed,
            Ok(watcher::Event::Apply(cluster)) => Seen::Changed(ClusterSeen::of(&cluster)),
            Ok(watcher::Event::Delete(cluster)) => Seen::Gone(ClusterSeen::of(&cluster)),
            Err(error) => {
                let answer = answer_of(error)?;
                let refused = answer.is_forbidden() || answer.is_not_found();
                return refused.then(|| ClusterEvent::Unreadable(answer.message.clone()));
            }
        };
        Some(ClusterEvent::Seen(seen))
    })
}
