//! Why something is not done yet: the objects that were read, as a tree that says of each how it
//! stands.
//!
//! ```text
//! ManifestWorkReplicaSet ─ Placement ─ ManagedCluster ─ ManifestWork ─ object of a manifest
//! WatchRule              ─ Sink, Resource
//! ```
//!
//! [`explain_set`], [`explain_work_on_cluster`] and [`explain_rule`] build it, and [`first_cause`] finds the
//! node in it that everything else waits for. [`work_verdict`] says it of a work in a word.

mod cause;
mod cluster;
mod node;
mod rule;
mod set;
mod work;

pub use cause::{Cause, first_cause};
pub use cluster::{agent_verdict, explain_work_on_cluster};
pub use node::{Node, State, Verdict};
pub use rule::{RuleSeen, explain_rule};
pub use set::{Found, SetSeen, explain_owner, explain_set};
pub use work::{WorkSeen, trouble, work_verdict};

/// Reasons that no condition has, since there is none to read.
pub mod reasons {
    /// Nobody who should has looked at the object, or at this generation of it.
    pub const NOT_SEEN: &str = "NotSeen";
    /// The agent of the cluster is away.
    pub const AGENT_AWAY: &str = muster_api::constants::REASON_AGENT_AWAY;
    /// Somebody paused it.
    pub const PAUSED: &str = muster_api::constants::REASON_PAUSED;
    /// It is being deleted.
    pub const DELETING: &str = muster_api::constants::REASON_DELETING;
    /// The hub has not written the work, or not this template.
    pub const NOT_WRITTEN: &str = "NotWritten";
    /// The hub's API refuses the work.
    pub const WRITE_REFUSED: &str = "WriteRefused";
    /// Other clusters go first.
    pub const WAITS_FOR_TURN: &str = "WaitsForTurn";
    /// Other clusters have to stay well for a while first.
    pub const WAITS_FOR_SOAK: &str = "WaitsForSoak";
    /// More clusters failed than may.
    pub const ROLLOUT_STOPPED: &str = "RolloutStopped";
    /// The cluster did not succeed in time.
    pub const TIMED_OUT: &str = "TimedOut";
    /// The placement does not select the cluster any more.
    pub const NOT_SELECTED: &str = "NotSelected";
    /// The object could not be read.
    pub const NOT_READ: &str = "NotRead";
}

#[cfg(test)]
mod tests;
