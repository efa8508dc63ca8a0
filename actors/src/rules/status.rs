//! What a rule's status says.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use muster_api::rules::{UnresolvedResource, WatchCounts, WatchRuleStatus};
use muster_api::{conditions, constants as names};
use muster_core::watch_rules::{RulePart, StreamKey};

use super::signal::SeenRule;
use crate::watch::{Area, Coverage, Denial, Unwatched};

/// What a rule's status is made of, besides the rule.
pub(super) struct Facts<'a> {
    /// What the plan has of it; `None` for a rule that does not read, or is not planned yet.
    pub(super) part: Option<&'a RulePart>,
    /// What the settings have no sink of the name for; the names that they have.
    pub(super) sinks: Option<Vec<String>>,
    /// Why it is not known what the API server serves.
    pub(super) discovery: Option<&'a str>,
    /// How each stream is watched that brings events; others stand by.
    pub(super) coverage: &'a BTreeMap<StreamKey, Coverage>,
    /// Why streams keep failing to be listed or watched.
    pub(super) failures: &'a BTreeMap<StreamKey, String>,
    /// Why the sink does not take events.
    pub(super) failing: Option<String>,
    pub(super) events: (u64, Option<Timestamp>),
}

/// The status that a rule is to have.
pub(super) fn status(
    destination: &str,
    seen: &SeenRule,
    facts: &Facts<'_>,
    now: Timestamp,
) -> WatchRuleStatus {
    let none = RulePart::default();
    let part = facts.part.unwrap_or(&none);
    let watched: Vec<&Coverage> = part
        .streams
        .iter()
        .filter_map(|stream| facts.coverage.get(stream))
        .collect();
    let synced = watched.iter().filter(|it| ***it == Coverage::Watched);
    let (ready, reason, message) = verdict(destination, seen, part, facts);
    let before = conditions::find(&seen.status.conditions, names::WATCH_RULE_READY);
    let text = if ready {
        conditions::TRUE
    } else {
        conditions::FALSE
    };
    let since = before
        .filter(|before| before.status == text)
        .map(|before| before.last_transition_time.clone());
    let unresolved = part.unresolved.iter().take(WatchRuleStatus::MAX_UNRESOLVED);
    let number = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    WatchRuleStatus {
        observed_generation: Some(seen.generation),
        conditions: vec![Condition {
            type_: names::WATCH_RULE_READY.to_owned(),
            status: text.to_owned(),
            reason: reason.to_owned(),
            message,
            observed_generation: Some(seen.generation),
            last_transition_time: since.unwrap_or(Time(now)),
        }],
        types: number(part.types),
        watches: WatchCounts {
            total: number(watched.len()),
            synced: number(synced.count()),
        },
        unresolved: unresolved
            .map(|unresolved| UnresolvedResource {
                resource: unresolved.resource.clone(),
                reason: unresolved.reason.as_str().to_owned(),
                message: unresolved.message.clone(),
            })
            .collect(),
        events: i64::try_from(facts.events.0).unwrap_or(i64::MAX),
        last_event_time: facts.events.1.map(Time),
    }
}

/// Whether the rule is ready, with the first thing that is in its way.
fn verdict(
    destination: &str,
    seen: &SeenRule,
    part: &RulePart,
    facts: &Facts<'_>,
) -> (bool, &'static str, String) {
    if let Some(error) = &seen.error {
        return (false, names::REASON_INVALID_RULE, error.clone());
    }
    if let Some(sinks) = &facts.sinks {
        let text = format!(
            "spec.destination: the agent has no sink {destination:?}; it has: {}",
            sinks.join(", ")
        );
        return (false, names::REASON_UNKNOWN_DESTINATION, text);
    }
    if let (Some(error), None) = (facts.discovery, facts.part) {
        let text = format!("the API server does not tell what it serves: {error}");
        return (false, names::REASON_DISCOVERY_FAILED, text);
    }
    if let Some(first) = part.unresolved.first() {
        let more = match part.unresolved.len() - 1 {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        let text = format!("{}: {}{more}", first.resource, first.message);
        return (false, first.reason.as_str(), text);
    }
    for stream in &part.streams {
        match facts.coverage.get(stream) {
            Some(Coverage::Polled(Unwatched::Refused(denial, why))) => {
                let reason = match denial {
                    Denial::Forbidden => names::REASON_FORBIDDEN,
                    Denial::NotServed => names::REASON_TYPE_UNKNOWN,
                    Denial::NotWatchable => names::REASON_NOT_WATCHABLE,
                };
                return (false, reason, format!("{}: {why}", Area::from(stream)));
            }
            Some(Coverage::Polled(Unwatched::Full(most))) => {
                let text = format!(
                    "{}: all {most} watches of the agent (watch.max_watches) serve others",
                    Area::from(stream)
                );
                return (false, names::REASON_WAITING_FOR_WATCH, text);
            }
            Some(Coverage::Opening | Coverage::Watched) | None => {}
        }
        if let Some(error) = facts.failures.get(stream) {
            let text = format!("{}: {error}", Area::from(stream));
            return (false, names::REASON_WATCH_FAILED, text);
        }
    }
    if let Some(error) = &facts.failing {
        let text = format!("sink {destination}: {error}");
        return (false, names::REASON_SINK_FAILING, text);
    }
    let opening = part.streams.iter().find(|stream| {
        let coverage = facts.coverage.get(stream);
        coverage.is_some_and(|it| *it != Coverage::Watched)
    });
    match opening {
        Some(stream) => (
            false,
            names::REASON_SYNCING,
            format!("{} is being listed", Area::from(stream)),
        ),
        None if facts.part.is_none() => {
            (false, names::REASON_SYNCING, "not looked at yet".to_owned())
        }
        None => {
            let watches = part
                .streams
                .iter()
                .filter(|stream| facts.coverage.contains_key(stream));
            let text = match watches.count() {
                1 => "1 watch".to_owned(),
                number => format!("{number} watches"),
            };
            (true, names::REASON_WATCHING, text)
        }
    }
}
