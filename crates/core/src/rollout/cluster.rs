//! How far one cluster is with the current template.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use muster_api::{conditions, constants as names};

/// Truth value of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Truth {
    /// Status `True`.
    True,
    /// Status `False`.
    False,
    /// Status `Unknown`, or text that is none of the three.
    Unknown,
}

impl Truth {
    /// Reads a condition's `status` text.
    pub fn parse(text: &str) -> Self {
        match text {
            "True" => Self::True,
            "False" => Self::False,
            _ => Self::Unknown,
        }
    }
}

/// What rollouts need of one work condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConditionFacts {
    /// The condition's status.
    pub status: Truth,
    /// `observedGeneration`, where the agent wrote one.
    pub observed_generation: Option<i64>,
    /// `lastTransitionTime`.
    pub transition: Timestamp,
}

impl ConditionFacts {
    const fn is_true(self) -> bool {
        matches!(self.status, Truth::True)
    }

    fn is_of(self, generation: i64) -> bool {
        self.observed_generation == Some(generation)
    }
}

/// The work conditions that decide about a rollout; `None` where the work carries none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WorkConditions {
    /// All manifests are applied.
    pub applied: Option<ConditionFacts>,
    /// All objects are available.
    pub available: Option<ConditionFacts>,
    /// Made by a condition rule of that name.
    pub progressing: Option<ConditionFacts>,
    /// Made by a condition rule of that name.
    pub degraded: Option<ConditionFacts>,
}

impl WorkConditions {
    /// Reads them off the conditions of a work.
    pub fn read(all: &[Condition]) -> Self {
        let find = |type_: &str| {
            conditions::find(all, type_).map(|condition| ConditionFacts {
                status: Truth::parse(&condition.status),
                observed_generation: condition.observed_generation,
                transition: condition.last_transition_time.0,
            })
        };
        Self {
            applied: find(names::WORK_APPLIED),
            available: find(names::WORK_AVAILABLE),
            progressing: find(names::WORK_PROGRESSING),
            degraded: find(names::WORK_DEGRADED),
        }
    }
}

/// State of one cluster in a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClusterState {
    /// The agent has not yet applied this generation.
    ToApply,
    /// Applied, and on its way.
    Progressing,
    /// There.
    Succeeded,
    /// On its way and degraded.
    Failed,
}

/// State of the cluster whose work has `generation` and these conditions, with the time of the
/// transition into it (none for [`ClusterState::ToApply`]).
///
/// The table is sdk-go's mapping as OCM's replica set controller uses it.
///
/// Differs from upstream: a work without a `Progressing` condition counts as succeeded when
/// `Applied` and `Available` are True, and as progressing while only `Applied` is. Upstream leaves
/// such a cluster in `ToApply` for ever, so that progressive rollouts stall unless the user writes
/// a condition rule named `Progressing`.
pub fn cluster_state(
    generation: i64,
    conditions: &WorkConditions,
) -> (ClusterState, Option<Timestamp>) {
    let applied = conditions
        .applied
        .filter(|applied| applied.is_of(generation));
    let Some(applied) = applied.filter(|applied| applied.is_true()) else {
        return (ClusterState::ToApply, None);
    };
    if conditions
        .degraded
        .is_some_and(|degraded| !degraded.is_of(generation))
    {
        return (ClusterState::ToApply, None);
    }
    let Some(progressing) = conditions.progressing else {
        return match conditions.available {
            Some(available) if available.is_true() && available.is_of(generation) => (
                ClusterState::Succeeded,
                Some(available.transition.max(applied.transition)),
            ),
            _ => (ClusterState::Progressing, Some(applied.transition)),
        };
    };
    if !progressing.is_of(generation) {
        return (ClusterState::ToApply, None);
    }
    match (progressing.status, conditions.degraded) {
        (Truth::True, Some(degraded)) if degraded.is_true() => {
            (ClusterState::Failed, Some(degraded.transition))
        }
        (Truth::True | Truth::Unknown, _) => {
            (ClusterState::Progressing, Some(progressing.transition))
        }
        (Truth::False, _) => (ClusterState::Succeeded, Some(progressing.transition)),
    }
}

/// Whether the agent says that it could not apply this generation.
pub fn is_refused(generation: i64, conditions: &WorkConditions) -> bool {
    let says_no =
        |applied: ConditionFacts| applied.status == Truth::False && applied.is_of(generation);
    conditions.applied.is_some_and(says_no)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    /// `clusterStatus` of the golden rollouts: what the reference makes of a work's conditions.
    #[test]
    fn states_match_the_reference_where_a_progressing_condition_exists() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/golden/rollout.json"
        );
        let golden: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let now: Timestamp = golden["now"].as_str().unwrap().parse().unwrap();
        let (mut same, mut ours) = (0, 0);
        for record in golden["clusterStatus"].as_array().unwrap() {
            let generation = record["generation"].as_i64().unwrap();
            let find = |kind: &str| {
                let all = record["conditions"].as_array().unwrap();
                all.iter()
                    .find(|c| c["type"] == kind)
                    .map(|c| ConditionFacts {
                        status: Truth::parse(c["status"].as_str().unwrap()),
                        observed_generation: c["observedGeneration"].as_i64(),
                        transition: now
                            - jiff::SignedDuration::from_secs(c["secondsAgo"].as_i64().unwrap()),
                    })
            };
            let conditions = WorkConditions {
                applied: find("Applied"),
                available: find("Available"),
                progressing: find("Progressing"),
                degraded: find("Degraded"),
            };
            let (state, since) = cluster_state(generation, &conditions);
            if conditions.progressing.is_none() && state != ClusterState::ToApply {
                ours += 1; // the documented difference
                continue;
            }
            same += 1;
            assert_eq!(
                format!("{state:?}"),
                record["status"].as_str().unwrap(),
                "{record}"
            );
            let ago = since.map(|since| (now - since).total(jiff::Unit::Second).unwrap());
            assert_eq!(ago, record["secondsAgo"].as_f64(), "{record}");
        }
        assert!(
            same > 100,
            "only {same} records compared, {ours} left to us"
        );
    }

    #[test]
    fn without_a_progressing_rule_availability_decides() {
        let at = |status| {
            Some(ConditionFacts {
                status,
                observed_generation: Some(3),
                transition: Timestamp::UNIX_EPOCH,
            })
        };
        let mut conditions = WorkConditions {
            applied: at(Truth::True),
            ..Default::default()
        };
        assert_eq!(cluster_state(3, &conditions).0, ClusterState::Progressing);
        conditions.available = at(Truth::False);
        assert_eq!(cluster_state(3, &conditions).0, ClusterState::Progressing);
        conditions.available = at(Truth::True);
        assert_eq!(cluster_state(3, &conditions).0, ClusterState::Succeeded);
        assert_eq!(
            cluster_state(4, &conditions).0,
            ClusterState::ToApply,
            "an older generation"
        );
    }
}
