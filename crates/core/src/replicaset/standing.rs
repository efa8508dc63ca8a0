//! Where a set stands, in one word, for whoever counts sets.

use std::time::Duration;

use muster_api::constants as names;
use muster_api::replicaset::ReplicaSetPhase;

use super::StatusDraft;

/// How long a rollout that is under way may go without any count of clusters changing. Three times the
/// ten minutes that a Deployment has to make progress in, since it may be that of a work.
pub const STALLED_AFTER: Duration = Duration::from_secs(30 * 60);

/// Where a set stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// No cluster is selected.
    Empty,
    /// Rolled out, and every work available.
    Ready,
    /// Under way.
    Progressing,
    /// Not there, and nothing is on its way: somebody paused it, or a soak or a deadline is waited for.
    Paused,
    /// Under way, and nothing has changed for [`STALLED_AFTER`].
    Stalled,
    /// A work is degraded, or has not got there in its time.
    Failed,
}

impl Standing {
    /// The standing of a set with this status, whose counts of clusters have been the same for so long.
    pub fn of(status: &StatusDraft, still_for: Duration) -> Self {
        let is_paused = status.conditions.iter().any(|condition| {
            condition.kind == names::MANIFEST_WORK_REPLICA_SET_CONDITION_PROGRESSING
                && condition.reason == names::REASON_PAUSED
        });
        match status.phase {
            None => Self::Empty,
            Some(ReplicaSetPhase::Ready) => Self::Ready,
            Some(ReplicaSetPhase::Failed) => Self::Failed,
            Some(_) if is_paused => Self::Paused,
            Some(_) if still_for >= STALLED_AFTER => Self::Stalled,
            Some(_) => Self::Progressing,
        }
    }

    /// The word for metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Ready => "Ready",
            Self::Progressing => "Progressing",
            Self::Paused => "Paused",
            Self::Stalled => "Stalled",
            Self::Failed => "Failed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ConditionDraft, SummaryDraft};
    use super::*;

    fn status(phase: Option<ReplicaSetPhase>, reason: &'static str) -> StatusDraft {
        StatusDraft {
            generation: 1,
            summary: SummaryDraft::default(),
            placements: Vec::new(),
            conditions: vec![ConditionDraft {
                kind: names::MANIFEST_WORK_REPLICA_SET_CONDITION_PROGRESSING,
                status: true,
                reason,
                message: String::new(),
            }],
            phase,
            message: String::new(),
            feedback: Vec::new(),
        }
    }

    #[test]
    fn only_what_is_under_way_stalls() {
        use ReplicaSetPhase::{Failed, Progressing, Ready};
        let rolling = names::REASON_ROLLING_OUT_TO_CLUSTERS;
        let paused = names::REASON_PAUSED;
        for (phase, reason, soon, late) in [
            (None, rolling, "Empty", "Empty"),
            (Some(Ready), rolling, "Ready", "Ready"),
            (Some(Failed), rolling, "Failed", "Failed"),
            (Some(Failed), paused, "Failed", "Failed"),
            (Some(Progressing), paused, "Paused", "Paused"),
            (Some(Progressing), rolling, "Progressing", "Stalled"),
        ] {
            let status = status(phase.clone(), reason);
            let moment = Duration::from_secs(1);
            let standings = [STALLED_AFTER.saturating_sub(moment), STALLED_AFTER]
                .map(|still_for| Standing::of(&status, still_for).as_str());
            assert_eq!(standings, [soon, late], "{phase:?} {reason}");
        }
    }
}
