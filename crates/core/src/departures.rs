//! What becomes of works that are being deleted while the agent of their cluster is away.
//!
//! ```text
//! agent away ──► the condition Deleting says so ──► the agent is back: it cleans up
//!                                  └──► the cluster is given up ──(grace)──► the finalizer goes
//! ```
//!
//! Differs from upstream, where such a work stays until somebody edits its finalizers by hand.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use muster_api::conditions as read;
use muster_api::constants as names;

use crate::conditions::{Status, new};

/// Why a cluster is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum GivenUp {
    /// Its ManagedCluster is deleted.
    Deleted,
    /// Its ManagedCluster has the annotation.
    Annotated,
    /// The work has the label.
    Labelled,
}

/// How a cluster stands whose works may wait for nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Departure {
    /// Its agent is away, since then.
    Away(Timestamp),
    /// It will not come back.
    GivenUp(GivenUp),
}

/// What to do about a work.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Nothing.
    Leave,
    /// Say in its status what it waits for.
    Say(Box<Condition>),
    /// Take the agent's finalizer away: its time is over.
    LetGo,
}

/// Decides about a work in a cluster that stands like this. `grace`: how long after a cluster was
/// given up its agent may still come and clean up.
pub fn decide(
    metadata: &ObjectMeta,
    conditions: &[Condition],
    departure: Departure,
    grace: Duration,
    now: Timestamp,
) -> Step {
    let finalizers = metadata.finalizers.iter().flatten();
    let held = finalizers
        .into_iter()
        .any(|name| name == names::MANIFEST_WORK_FINALIZER);
    if metadata.deletion_timestamp.is_none() || !held {
        return Step::Leave;
    }
    let known = read::find(conditions, names::WORK_DELETING);
    let cluster = metadata.namespace.as_deref().unwrap_or_default();
    let say = |reason: &str, message: String, since: Timestamp| {
        let generation = metadata.generation;
        let message = format!("ManifestWork is being deleted: {message}");
        if known.is_some_and(|known| known.reason == reason && known.message == message) {
            return Step::Leave;
        }
        let condition = new(
            names::WORK_DELETING,
            Status::True,
            reason,
            message,
            generation,
            since,
        );
        Step::Say(Box::new(condition))
    };
    match departure {
        Departure::Away(since) => say(
            names::REASON_AGENT_AWAY,
            format!(
                "the agent of cluster {cluster} is away since {}; if it is gone for good, delete \
                 ManagedCluster {cluster} or annotate it with {}=true",
                second(since),
                names::ABANDONED
            ),
            now,
        ),
        Departure::GivenUp(why) => {
            let given_up = known
                .filter(|known| known.reason == names::REASON_CLUSTER_ABANDONED)
                .map(|known| known.last_transition_time.0);
            let since = given_up.unwrap_or(now);
            let grace = SignedDuration::try_from(grace).unwrap_or(SignedDuration::MAX);
            let until = since.checked_add(grace).unwrap_or(Timestamp::MAX);
            if given_up.is_some() && until <= now {
                return Step::LetGo;
            }
            let why = match why {
                GivenUp::Deleted => format!("ManagedCluster {cluster} is deleted"),
                GivenUp::Annotated => {
                    format!(
                        "ManagedCluster {cluster} has the annotation {}",
                        names::ABANDONED
                    )
                }
                GivenUp::Labelled => format!("it has the label {}", names::ABANDONED),
            };
            let message = format!(
                "{why}; unless the agent comes back, the work goes at {} without its objects",
                second(until)
            );
            say(names::REASON_CLUSTER_ABANDONED, message, since)
        }
    }
}

fn second(time: Timestamp) -> impl std::fmt::Display {
    time.strftime("%Y-%m-%dT%H:%M:%SZ")
}

/// What the condition of a ManagedCluster is to say of an agent that says itself whether it is
/// connected; `None` if it says so, or if somebody else looks after the condition.
pub fn availability(
    known: Option<&Condition>,
    connected: bool,
    since: Timestamp,
) -> Option<Condition> {
    let ours = [names::REASON_AGENT_CONNECTED, names::REASON_AGENT_AWAY];
    let reason = if connected { ours[0] } else { ours[1] };
    match known {
        // Nobody asks whether an agent is there that has always been.
        None if connected => return None,
        Some(known) if !ours.contains(&&*known.reason) || known.reason == reason => return None,
        _ => {}
    }
    let (status, message) = if connected {
        (Status::True, "connected".to_owned())
    } else {
        let message = format!("not connected since {}", second(since));
        (Status::Unknown, message)
    };
    let type_ = names::MANAGED_CLUSTER_CONDITION_AVAILABLE;
    Some(new(type_, status, reason, message, None, since))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const GRACE: Duration = Duration::from_secs(300);

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + seconds).unwrap()
    }

    fn dying() -> ObjectMeta {
        serde_json::from_value(json!({"namespace": "edge-1", "name": "w", "generation": 2,
            "deletionTimestamp": "2026-01-01T00:00:00Z",
            "finalizers": ["other", names::MANIFEST_WORK_FINALIZER]}))
        .unwrap()
    }

    fn said(step: Step) -> Condition {
        let Step::Say(condition) = step else {
            panic!("{step:?}")
        };
        *condition
    }

    #[test]
    fn a_work_that_waits_for_an_agent_that_is_away_names_the_cluster_and_the_way_out() {
        let away = Departure::Away(at(0));
        let step = |conditions: &[Condition]| decide(&dying(), conditions, away, GRACE, at(9));
        let condition = said(step(&[]));
        assert_eq!(
            (&*condition.type_, &*condition.status),
            ("Deleting", "True")
        );
        assert_eq!(
            (&*condition.reason, &*condition.message),
            (
                "AgentAway",
                "ManifestWork is being deleted: the agent of cluster edge-1 is away since \
                 1970-01-12T13:46:40Z; if it is gone for good, delete ManagedCluster edge-1 or \
                 annotate it with muster.dev/abandoned=true"
            )
        );
        assert_eq!(step(&[condition]), Step::Leave, "said once");
    }

    #[test]
    fn a_cluster_that_is_given_up_lets_its_works_go_after_the_grace() {
        for (why, text) in [
            (GivenUp::Deleted, "ManagedCluster edge-1 is deleted"),
            (
                GivenUp::Annotated,
                "ManagedCluster edge-1 has the annotation muster.dev/abandoned",
            ),
            (GivenUp::Labelled, "it has the label muster.dev/abandoned"),
        ] {
            let departure = Departure::GivenUp(why);
            let step = |conditions: &[Condition], seconds| {
                decide(&dying(), conditions, departure, GRACE, at(seconds))
            };
            // What the agent said last does not begin the grace.
            let agents = said(decide(&dying(), &[], Departure::Away(at(0)), GRACE, at(0)));
            let condition = said(step(&[agents], 10));
            assert_eq!(
                (&*condition.reason, &*condition.message),
                (
                    "ClusterAbandoned",
                    &*format!(
                        "ManifestWork is being deleted: {text}; unless the agent comes back, the \
                         work goes at 1970-01-12T13:51:50Z without its objects"
                    )
                )
            );
            let conditions = [condition];
            assert_eq!(step(&conditions, 309), Step::Leave);
            assert_eq!(step(&conditions, 310), Step::LetGo);
        }
    }

    #[test]
    fn works_that_nobody_deletes_or_the_agent_has_left_are_left_alone() {
        let departure = Departure::GivenUp(GivenUp::Deleted);
        let step = |change: fn(&mut ObjectMeta)| {
            let mut metadata = dying();
            change(&mut metadata);
            decide(&metadata, &[], departure, GRACE, at(0))
        };
        assert_eq!(step(|meta| meta.deletion_timestamp = None), Step::Leave);
        assert_eq!(
            step(|meta| meta.finalizers = Some(vec!["other".to_owned()])),
            Step::Leave
        );
        assert_eq!(step(|meta| meta.finalizers = None), Step::Leave);
    }

    #[test]
    fn the_condition_of_a_cluster_follows_its_agent_unless_somebody_else_writes_it() {
        let theirs = |status: &str| -> Condition {
            let condition: Value = json!({"type": "ManagedClusterConditionAvailable",
                "status": status, "reason": "ManagedClusterAvailable", "message": "m",
                "lastTransitionTime": "2026-01-01T00:00:00Z"});
            serde_json::from_value(condition).unwrap()
        };
        assert_eq!(availability(None, true, at(0)), None);
        assert_eq!(availability(Some(&theirs("True")), false, at(0)), None);
        let away = availability(None, false, at(0)).unwrap();
        assert_eq!(
            (&*away.status, &*away.reason, &*away.message),
            (
                "Unknown",
                "AgentAway",
                "not connected since 1970-01-12T13:46:40Z"
            )
        );
        assert_eq!(availability(Some(&away), false, at(0)), None);
        let back = availability(Some(&away), true, at(60)).unwrap();
        assert_eq!((&*back.status, &*back.reason), ("True", "AgentConnected"));
        assert_eq!(back.last_transition_time.0, at(60));
        assert_eq!(availability(Some(&back), true, at(90)), None);
    }
}
