//! What a placement of a replica set comes to in one cluster.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use muster_api::cluster::ManagedCluster;
use muster_api::conditions::{self, TRUE};
use muster_api::constants as names;

use super::node::{Node, State, Verdict};
use super::reasons;
use super::work::{WorkSeen, explain_work};
use crate::replicaset::{Pause, ReplicaSet};
use crate::rollout::Turn;

/// How many clusters are named that others wait for.
const NAMED: usize = 3;

/// Whether the agent of a cluster is there, as far as the hub says.
pub fn agent_verdict(cluster: &ManagedCluster) -> Verdict {
    let status = cluster.status.as_ref();
    let conditions = status.map_or(&[][..], |status| &status.conditions);
    let available = conditions::find(conditions, names::MANAGED_CLUSTER_CONDITION_AVAILABLE);
    match available.filter(|found| found.status != TRUE) {
        Some(found) => Verdict {
            reason: reasons::AGENT_AWAY.to_owned(),
            message: format!("its agent is away: {}", found.message),
            ..Verdict::of(State::Unknown, found)
        },
        None => Verdict::default(),
    }
}

/// The clusters that others of the placement wait for.
#[derive(Debug, Default)]
pub(super) struct Ahead<'a> {
    moving: Vec<&'a str>,
    soaking: Vec<&'a str>,
    failed: Vec<&'a str>,
    /// Why no further cluster begins.
    stopped: Option<String>,
}

impl<'a> Ahead<'a> {
    pub(super) fn of(set: &ReplicaSet, clusters: &'a BTreeSet<Arc<str>>) -> Self {
        let mut ahead = Self {
            stopped: set.why_stopped(),
            ..Self::default()
        };
        for cluster in clusters {
            match set.turn(cluster) {
                Some(Turn::Started | Turn::Progressing) => ahead.moving.push(cluster),
                Some(Turn::Soaking) => ahead.soaking.push(cluster),
                Some(Turn::Failed | Turn::TimedOut) => ahead.failed.push(cluster),
                _ => {}
            }
        }
        ahead
    }
}

/// What is the same for all clusters of a placement.
pub(super) struct ClusterSeen<'a> {
    /// The set as the hub has it.
    pub(super) set: &'a ReplicaSet,
    /// Hash of the template.
    pub(super) template: Option<[u8; 32]>,
    /// The set is being deleted.
    pub(super) deleting: bool,
    /// Every pause that concerns the set.
    pub(super) pause: &'a Pause,
    /// Those that the set asks for itself.
    pub(super) own_pause: &'a Pause,
    /// `status.message` of the set.
    pub(super) message: &'a str,
    /// The clusters that the placement selects.
    pub(super) selected: &'a BTreeSet<Arc<str>>,
    /// Those of them that go first.
    pub(super) ahead: Ahead<'a>,
}

/// Explains one cluster of a placement.
pub(super) fn cluster_node(
    here: &ClusterSeen<'_>,
    cluster: &str,
    work: Option<&WorkSeen>,
    managed: Option<&ManagedCluster>,
) -> Node {
    let work_node = work.map(explain_work);
    let waits = here.waits(cluster, work);
    let mut waits_for = Vec::new();
    let verdict = if let Some((verdict, clusters)) = waits {
        waits_for = clusters;
        verdict
    } else if let Some(away) = away(cluster, managed, here.message)
        && away_matters(work_node.as_ref())
    {
        away
    } else if here.set.turn(cluster) == Some(Turn::TimedOut) {
        let work = work_node.as_ref().filter(|node| !node.message.is_empty());
        let work = work.map(|node| format!(": {}", node.message));
        let message = format!(
            "it did not succeed within progressDeadline{}",
            work.unwrap_or_default()
        );
        Verdict::new(State::Failed, reasons::TIMED_OUT, message)
            .since(here.set.timed_out_at(cluster))
    } else {
        Verdict::default()
    };
    let mut node = Node::new("ManagedCluster", "", cluster)
        .with(verdict)
        .over(work_node.into_iter().collect());
    node.waits_for = waits_for;
    node
}

/// Whether it says more than the work that its agent is away: what has failed has failed with the
/// agent there.
fn away_matters(work: Option<&Node>) -> bool {
    work.is_some_and(|work| work.state != State::Failed)
}

impl ClusterSeen<'_> {
    /// What the cluster waits for, or why its work is not as the set wants it; and the clusters that
    /// go first. `None` where the work has the template.
    fn waits(&self, cluster: &str, work: Option<&WorkSeen>) -> Option<(Verdict, Vec<String>)> {
        if work.is_some_and(|work| work.metadata.deletion_timestamp.is_some()) {
            return None; // the work says what its deletion waits for
        }
        let alone = |verdict| Some((verdict, Vec::new()));
        let waiting = |reason, message: String| Verdict::new(State::Waiting, reason, message);
        if !self.selected.contains(cluster) || self.deleting {
            let message = if self.deleting {
                "its work is to be deleted with the set"
            } else {
                "it is not selected any more, and its work is to be deleted"
            };
            work?;
            return alone(self.written(cluster, reasons::NOT_SELECTED, message));
        }
        let current = work.is_some_and(|work| Some(work.spec_hash) == self.template);
        if current {
            return None;
        }
        let what = match work {
            None => "it has no work",
            Some(_) => "its work has another template",
        };
        if self.pause.all {
            // The set says so; here it is the reason that nothing comes.
            let by = format!("{what}, and the set is paused");
            return alone(waiting(reasons::PAUSED, by));
        }
        if self.pause.clusters.contains(cluster) {
            let (annotation, on) = if self.own_pause.clusters.contains(cluster) {
                (names::PAUSED_CLUSTERS_ANNOTATION, "the set")
            } else {
                (names::PAUSED_ANNOTATION, "the ManagedCluster")
            };
            let by = format!("{what}, and it is paused by annotation {annotation} on {on}");
            return alone(waiting(reasons::PAUSED, by));
        }
        if self.set.turn(cluster) == Some(Turn::Waiting) {
            return Some(self.turn(what));
        }
        let message = format!("{what}, and the hub has not written it yet");
        alone(self.written(cluster, reasons::NOT_WRITTEN, &message))
    }

    /// A write that is still to come; or why the API refuses it.
    fn written(&self, cluster: &str, reason: &str, message: &str) -> Verdict {
        match refusal(self.message, cluster) {
            Some(text) => {
                let message = format!("the hub's API refuses its work: {text}");
                Verdict::new(State::Failed, reasons::WRITE_REFUSED, message)
            }
            None => Verdict::new(State::Waiting, reason, message),
        }
    }

    /// Why its turn has not come.
    fn turn(&self, what: &str) -> (Verdict, Vec<String>) {
        let owned = |clusters: &[&str]| clusters.iter().map(|c| (*c).to_owned()).collect();
        let waiting = |reason, why: String| {
            Verdict::new(State::Waiting, reason, format!("{what}, and {why}"))
        };
        let Ahead {
            moving,
            soaking,
            failed,
            stopped,
        } = &self.ahead;
        if let Some(why) = stopped {
            let why = format!("the rollout is stopped: {why}");
            return (waiting(reasons::ROLLOUT_STOPPED, why), owned(failed));
        }
        if !moving.is_empty() || soaking.is_empty() {
            let first: Vec<&str> = moving.iter().chain(failed).copied().collect();
            let why = format!("waits until {} done", are(&first));
            return (waiting(reasons::WAITS_FOR_TURN, why), owned(&first));
        }
        let until = self.set.wake_at().map_or_else(String::new, |until| {
            format!(", until {}", until.strftime("%Y-%m-%dT%H:%M:%SZ"))
        });
        let why = format!(
            "waits until {} well for minSuccessTime{until}",
            have_been(soaking)
        );
        (waiting(reasons::WAITS_FOR_SOAK, why), owned(soaking))
    }
}

/// Whether the agent of a cluster is away, and since when, by the cluster or by the message of a
/// set.
fn away(cluster: &str, managed: Option<&ManagedCluster>, message: &str) -> Option<Verdict> {
    if let Some(away) = managed.map(agent_verdict).filter(|agent| !agent.is_ok()) {
        return Some(away);
    }
    let since = away_since(message, cluster)?;
    let message = "its agent is away";
    Some(Verdict::new(State::Unknown, reasons::AGENT_AWAY, message).since(since))
}

/// Explains a work together with its cluster; `message` is that of the set that made it.
pub fn explain_work_on_cluster(
    work: &WorkSeen,
    managed: Option<&ManagedCluster>,
    message: &str,
) -> Node {
    let cluster = work.cluster();
    let work = explain_work(work);
    let away = away(cluster, managed, message).filter(|_| away_matters(Some(&work)));
    Node::new("ManagedCluster", "", cluster)
        .with(away.unwrap_or_default())
        .over(vec![work])
}

/// `c1 is`, `c1, c2 are`, `c1, c2, c3 and 4 more are`
fn are(clusters: &[&str]) -> String {
    let verb = if clusters.len() == 1 { "is" } else { "are" };
    format!("{} {verb}", listed(clusters))
}

fn have_been(clusters: &[&str]) -> String {
    let verb = if clusters.len() == 1 {
        "has been"
    } else {
        "have been"
    };
    format!("{} {verb}", listed(clusters))
}

fn listed(clusters: &[&str]) -> String {
    let named = &clusters[..clusters.len().min(NAMED)];
    match clusters.len() - named.len() {
        0 if named.is_empty() => "others".to_owned(),
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

/// What the message of a set says that the hub's API refuses in a cluster. The text is the hub's
/// (`replica_set_aggregator/status.rs` in `actors`); a story holds both together.
fn refusal<'a>(message: &'a str, cluster: &str) -> Option<&'a str> {
    let (_, text) = message.split_once(&format!("; cluster {cluster}: "))?;
    // What may come after it.
    let ends = [", and ", ", revisions are not kept"].map(|end| text.find(end));
    let end = ends.into_iter().flatten().min();
    Some(&text[..end.unwrap_or(text.len())])
}

/// Since when the agent of a cluster is away, as the message of a set tells of one of them.
fn away_since(message: &str, cluster: &str) -> Option<Timestamp> {
    let (_, text) = message.split_once(&format!(": the agent of {cluster} "))?;
    let (_, since) = text.split_once("away since ")?;
    let end = since.find('Z')? + 1;
    since[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_message_of_a_set_says_of_a_cluster_is_found() {
        let message = "ManifestWorks available in 0/3 clusters, unknown in 2: the agent of c3 and 1 \
                       more is away since 2026-01-02T03:04:05Z; cluster c1: namespaces \"c1\" not \
                       found, and 2 more, revisions are not kept: x";
        assert_eq!(refusal(message, "c1"), Some("namespaces \"c1\" not found"));
        assert_eq!(refusal(message, "c"), None);
        assert_eq!(refusal("m; cluster c1: x, y", "c1"), Some("x, y"));
        assert_eq!(
            away_since(message, "c3"),
            "2026-01-02T03:04:05Z".parse().ok()
        );
        assert_eq!(away_since(message, "c1"), None);
    }

    #[test]
    fn clusters_are_listed_up_to_three() {
        assert_eq!(are(&["a"]), "a is");
        assert_eq!(are(&["a", "b"]), "a, b are");
        assert_eq!(are(&["a", "b", "c", "d"]), "a, b, c and 1 more are");
        assert_eq!(have_been(&["a"]), "a has been");
    }
}
