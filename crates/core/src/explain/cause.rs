//! What everything else waits for.

use jiff::Timestamp;

use super::node::{Node, State};
use super::reasons;

/// The node to begin with, and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause<'a> {
    /// The node.
    pub node: &'a Node,
    /// Cluster that it is on or about, where there is one.
    pub cluster: Option<&'a str>,
}

/// How near a node is to what has to change; the smaller, the nearer. `None` for one that is well,
/// or where only something below it is not.
fn rank(node: &Node) -> Option<u8> {
    if node.reason.is_empty() {
        return None;
    }
    match (node.own_state, node.reason.as_str()) {
        (State::Ok, _) => None,
        // These wait for other nodes.
        (_, reasons::WAITS_FOR_TURN | reasons::WAITS_FOR_SOAK | reasons::ROLLOUT_STOPPED) => {
            Some(3)
        }
        (State::Failed, _) => Some(0),
        // Somebody did that, and it does not pass.
        (_, reasons::PAUSED) | (State::Unknown, _) => Some(1),
        (State::Waiting, _) => Some(2),
    }
}

/// Finds the node that everything else waits for: what failed before what nobody can tell and what
/// is paused, that before what is only not done yet, and last what waits for others. Of equals it is
/// the one that concerns all clusters, then the one that has been so longest, then the first.
/// `None` if all is well.
pub fn first_cause(root: &Node) -> Option<Cause<'_>> {
    let mut best: Option<(Key, Cause<'_>)> = None;
    look(root, None, &mut best);
    let (_, mut cause) = best?;
    // What is said of it by what is below it is nearer to the point.
    while let Some(child) = cause
        .node
        .children
        .iter()
        .filter(|child| rank(child).is_some() && rank(child) == rank(cause.node))
        .min_by_key(|child| child.since.unwrap_or(Timestamp::MAX))
    {
        cause = Cause {
            node: child,
            cluster: cluster_of(child).or(cause.cluster),
        };
    }
    Some(cause)
}

/// Rank, whether it concerns one cluster only, since when.
type Key = (u8, bool, Timestamp);

fn look<'a>(node: &'a Node, cluster: Option<&'a str>, best: &mut Option<(Key, Cause<'a>)>) {
    let cluster = cluster_of(node).or(cluster);
    if let Some(rank) = rank(node) {
        let key = (
            rank,
            cluster.is_some(),
            node.since.unwrap_or(Timestamp::MAX),
        );
        if best.as_ref().is_none_or(|(known, _)| key < *known) {
            *best = Some((key, Cause { node, cluster }));
        }
    }
    for child in &node.children {
        look(child, cluster, best);
    }
}

fn cluster_of(node: &Node) -> Option<&str> {
    match node.kind.as_str() {
        "ManagedCluster" => Some(&node.name),
        "ManifestWork" => Some(&node.namespace),
        _ => None,
    }
}
