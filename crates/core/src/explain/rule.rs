//! A watch rule of a cluster.

use jiff::Timestamp;
use muster_api::conditions::{self, TRUE};
use muster_api::constants as names;
use muster_api::rules::{ClusterWatchRule, UnresolvedResource, WatchRule, WatchRuleStatus};

use super::node::{Node, State, Verdict};
use super::reasons;
use crate::watch_rules::RuleKind;

/// A rule of either kind, as far as it matters here.
#[derive(Debug, Clone, PartialEq)]
pub struct RuleSeen {
    /// Its kind.
    pub kind: RuleKind,
    /// Its namespace; empty for a ClusterWatchRule.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// `metadata.generation`.
    pub generation: i64,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// Name of the sink.
    pub destination: String,
    /// Its status.
    pub status: WatchRuleStatus,
}

impl From<WatchRule> for RuleSeen {
    fn from(rule: WatchRule) -> Self {
        let meta = rule.metadata;
        Self {
            kind: RuleKind::WatchRule,
            namespace: meta.namespace.unwrap_or_default(),
            name: meta.name.unwrap_or_default(),
            generation: meta.generation.unwrap_or_default(),
            created: meta.creation_timestamp.map(|time| time.0),
            destination: rule.spec.destination,
            status: rule.status.unwrap_or_default(),
        }
    }
}

impl From<ClusterWatchRule> for RuleSeen {
    fn from(rule: ClusterWatchRule) -> Self {
        let meta = rule.metadata;
        Self {
            kind: RuleKind::ClusterWatchRule,
            namespace: String::new(),
            name: meta.name.unwrap_or_default(),
            generation: meta.generation.unwrap_or_default(),
            created: meta.creation_timestamp.map(|time| time.0),
            destination: rule.spec.destination,
            status: rule.status.unwrap_or_default(),
        }
    }
}

/// How bad a reason of Ready, or of a resource that is not watched, is.
fn state_of(reason: &str) -> State {
    match reason {
        names::REASON_SYNCING | names::REASON_WAITING_FOR_WATCH => State::Waiting,
        names::REASON_DISCOVERY_FAILED => State::Unknown,
        _ => State::Failed,
    }
}

impl RuleSeen {
    fn verdict(&self) -> Verdict {
        let ready = conditions::find(&self.status.conditions, names::WATCH_RULE_READY);
        let ready = ready.filter(|found| found.observed_generation == Some(self.generation));
        match ready {
            None => {
                let created = self.created.filter(|_| self.status.conditions.is_empty());
                let message = format!(
                    "no agent has looked at generation {}: only one whose settings have sinks does",
                    self.generation
                );
                Verdict::new(State::Waiting, reasons::NOT_SEEN, message).since(created)
            }
            Some(ready) if ready.status == TRUE => Verdict {
                message: self.tells(),
                ..Verdict::default()
            },
            Some(ready) => Verdict::of(state_of(&ready.reason), ready),
        }
    }

    /// What a rule does that is as it should be.
    fn tells(&self) -> String {
        let WatchRuleStatus {
            types,
            watches,
            events,
            last_event_time,
            ..
        } = &self.status;
        let last = last_event_time.as_ref().map(|time| {
            let time = time.0.strftime("%Y-%m-%dT%H:%M:%SZ");
            format!(", the last at {time}")
        });
        format!(
            "types: {types}, watches: {}, events since the agent started: {events}{}",
            watches.synced,
            last.unwrap_or_default()
        )
    }

    fn sink(&self, verdict: &Verdict) -> Node {
        let node = Node::new("Sink", "", &*self.destination);
        let about_it = [
            names::REASON_UNKNOWN_DESTINATION,
            names::REASON_SINK_FAILING,
        ];
        if about_it.contains(&verdict.reason.as_str()) {
            node.with(verdict.clone())
        } else {
            node
        }
    }
}

/// Explains a rule: its sink, and what of it is not watched.
pub fn explain_rule(rule: &RuleSeen) -> Node {
    let verdict = rule.verdict();
    let mut children = vec![rule.sink(&verdict)];
    // What was said of another generation explains nothing.
    if verdict.reason != reasons::NOT_SEEN {
        let unresolved = rule.status.unresolved.iter();
        children.extend(unresolved.map(|resource| {
            let UnresolvedResource {
                resource,
                reason,
                message,
            } = resource;
            let since = verdict.since.filter(|_| verdict.reason == *reason);
            let verdict = Verdict::new(state_of(reason), reason, message).since(since);
            Node::new("Resource", "", resource).with(verdict)
        }));
    }
    Node::new(rule.kind.to_string(), &*rule.namespace, &*rule.name)
        .with(verdict)
        .over(children)
}
