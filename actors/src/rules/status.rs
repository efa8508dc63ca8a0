//! What a rule's status says.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use muster_api::rules::{UnresolvedResource, WatchCounts, WatchRuleStatus};
use muster_api::{conditions, constants as names};
use muster_core::conditions::{self as set_conditions, Status};
use muster_core::watch_rules::{RulePart, StreamKey};

use super::signal::SeenRule;
use crate::watch::{Area, Coverage, Denial, Unwatched};

/// Bytes of one reason that a status shows.
const MAX_MESSAGE_BYTES: usize = 1024;

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
    let missing = missing(part, facts.coverage);
    let (ready, reason, message) = verdict(destination, seen, part, facts, &missing);
    let reason = reason.to_owned();
    let before = conditions::find(&seen.status.conditions, names::WATCH_RULE_READY);
    let ready = if ready { Status::True } else { Status::False };
    let since = before
        .filter(|before| before.status == ready.as_str())
        .map(|before| before.last_transition_time.clone());
    let ready = set_conditions::new(
        names::WATCH_RULE_READY,
        ready,
        &reason,
        message,
        Some(seen.generation),
        now,
    );
    let number = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    WatchRuleStatus {
        observed_generation: Some(seen.generation),
        conditions: vec![Condition {
            last_transition_time: since.unwrap_or(ready.last_transition_time),
            ..ready
        }],
        types: number(part.types),
        watches: WatchCounts {
            total: number(watched.len()),
            synced: number(synced.count()),
        },
        unresolved: missing
            .into_iter()
            .take(WatchRuleStatus::MAX_UNRESOLVED)
            .collect(),
        events: i64::try_from(facts.events.0).unwrap_or(i64::MAX),
        last_event_time: facts.events.1.map(Time),
    }
}

/// Everything that a rule names and that is not watched, with the reason.
fn missing(part: &RulePart, coverage: &BTreeMap<StreamKey, Coverage>) -> Vec<UnresolvedResource> {
    let unresolved = part.unresolved.iter().map(|it| UnresolvedResource {
        resource: it.resource.clone(),
        reason: it.reason.as_str().to_owned(),
        message: it.message.clone(),
    });
    let unwatched = part.streams.iter().filter_map(|stream| {
        let (reason, message) = match coverage.get(stream)? {
            Coverage::Polled(Unwatched::Refused(denial, why)) => {
                let reason = match denial {
                    Denial::Forbidden => names::REASON_FORBIDDEN,
                    Denial::NotServed => names::REASON_TYPE_UNKNOWN,
                    Denial::NotWatchable => names::REASON_NOT_WATCHABLE,
                };
                (reason, why.to_string())
            }
            Coverage::Polled(Unwatched::Full(most)) => {
                let text =
                    format!("all {most} watches of the agent (watch.max_watches) serve others");
                (names::REASON_WAITING_FOR_WATCH, text)
            }
            Coverage::Polled(Unwatched::Failing(why)) => {
                (names::REASON_WATCH_FAILED, why.to_string())
            }
            Coverage::Opening | Coverage::Watched => return None,
        };
        Some(UnresolvedResource {
            resource: Area::from(stream).to_string(),
            reason: reason.to_owned(),
            message,
        })
    });
    let short = |it: UnresolvedResource| UnresolvedResource {
        message: shortened(it.message),
        ..it
    };
    unresolved.chain(unwatched).map(short).collect()
}

/// The beginning of a text that servers and sinks may make as long as they like.
fn shortened(mut text: String) -> String {
    if text.len() > MAX_MESSAGE_BYTES {
        let fits = |end: &usize| text.is_char_boundary(*end);
        let end = (0..=MAX_MESSAGE_BYTES).rev().find(fits).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}

/// Names what is missing, those with one reason together: `a, b: REASON; c: REASON`.
fn told(missing: &[UnresolvedResource]) -> String {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for it in missing.iter().take(WatchRuleStatus::MAX_UNRESOLVED) {
        match groups.iter_mut().find(|(why, _)| *why == it.message) {
            Some((_, names)) => names.push(&it.resource),
            None => groups.push((&it.message, vec![&it.resource])),
        }
    }
    let groups = groups
        .iter()
        .map(|(why, names)| format!("{}: {why}", names.join(", ")));
    let mut text = groups.collect::<Vec<_>>().join("; ");
    if let more @ 1.. = missing
        .len()
        .saturating_sub(WatchRuleStatus::MAX_UNRESOLVED)
    {
        text = format!("{text} (and {more} more)");
    }
    text
}

/// Whether the rule is ready, with what is in its way.
fn verdict<'a>(
    destination: &str,
    seen: &SeenRule,
    part: &RulePart,
    facts: &Facts<'_>,
    missing: &'a [UnresolvedResource],
) -> (bool, &'a str, String) {
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
    if let Some(first) = missing.first() {
        return (false, &first.reason, told(missing));
    }
    if let Some(error) = &facts.failing {
        let text = format!("sink {destination}: {}", shortened(error.clone()));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_by_reason_up_to_a_limit() {
        let missing = |count: usize| {
            let of = |n: usize| UnresolvedResource {
                resource: format!("r{n}"),
                reason: "R".to_owned(),
                message: ["odd", "even"][(n + 1) % 2].to_owned(),
            };
            (0..count).map(of).collect::<Vec<_>>()
        };
        assert_eq!(told(&missing(3)), "r0, r2: even; r1: odd");
        let all = WatchRuleStatus::MAX_UNRESOLVED;
        assert!(!told(&missing(all)).contains("more"));
        let text = told(&missing(all + 2));
        assert!(
            text.ends_with(" (and 2 more)") && !text.contains("r10"),
            "{text}"
        );
    }

    #[test]
    fn a_reason_is_shortened_at_a_character() {
        let at_limit = "x".repeat(MAX_MESSAGE_BYTES);
        assert_eq!(shortened(at_limit.clone()), at_limit);
        let beyond = format!("{}é", "x".repeat(MAX_MESSAGE_BYTES - 1));
        assert_eq!(
            shortened(beyond),
            format!("{}…", "x".repeat(MAX_MESSAGE_BYTES - 1))
        );
    }
}
