//! The statuses of rules on the cluster: which have to be written, and that.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Resource};
use muster_api::rules::{ClusterWatchRule, WatchRule, WatchRuleStatus};
use muster_core::events::{Happening, of_rule};
use muster_core::watch_rules::{RuleName, RulePlan, StreamKey};
use serde_json::json;
use tokio::time::{Instant, timeout};
use tracing::debug;

use super::destinations::Destinations;
use super::signal::{Published, SeenRule};
use super::status::{Facts, status};
use crate::events::Recorder;
use crate::watch::Coverage;

/// How long a status waits that says nothing new but how many events there were.
const COUNTS_INTERVAL: Duration = Duration::from_secs(10);

/// How long the API server may take to write one.
const WRITE_LIMIT: Duration = Duration::from_secs(10);

/// What statuses are made of.
pub(super) struct Known<'a> {
    /// `None` before the first.
    pub(super) plan: Option<&'a RulePlan>,
    pub(super) destinations: &'a Destinations,
    /// Why it is not known what the API server serves.
    pub(super) discovery: Option<&'a str>,
    /// How each stream of the plan is watched.
    pub(super) coverage: &'a BTreeMap<StreamKey, Coverage>,
}

/// A status that is to be written, and what it says that is new.
#[derive(Debug)]
pub(super) struct Write {
    rule: RuleName,
    status: WatchRuleStatus,
    happening: Option<Happening>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Statuses {
    /// Those that are being written, or were, with when.
    written: BTreeMap<RuleName, (WatchRuleStatus, Instant)>,
}

impl Statuses {
    /// Those that have to be written now, which is taken for done.
    pub(super) fn due(&mut self, published: &Published, known: &Known<'_>) -> Vec<Write> {
        let now = Instant::now();
        self.written
            .retain(|name, _| published.seen.contains_key(name));
        let mut due = Vec::new();
        for (name, seen) in &published.seen {
            let next = known.status_of(name, seen, published);
            let last = self.written.get(name);
            if last.map_or(&seen.status, |(last, _)| last) == &next {
                continue;
            }
            let waits = last.is_some_and(|(last, at)| {
                is_equal_but_for_counts(last, &next) && now.duration_since(*at) < COUNTS_INTERVAL
            });
            if !waits {
                let before = last.map_or(&seen.status, |(last, _)| last);
                let happening = of_rule(before, &next);
                self.written.insert(name.clone(), (next.clone(), now));
                due.push(Write {
                    rule: name.clone(),
                    status: next,
                    happening,
                });
            }
        }
        due
    }

    /// These could not be written after all: once more.
    pub(super) fn not_written(&mut self, rules: Vec<RuleName>) {
        for name in rules {
            self.written.remove(&name);
        }
    }
}

impl Known<'_> {
    fn status_of(
        &self,
        name: &RuleName,
        seen: &SeenRule,
        published: &Published,
    ) -> WatchRuleStatus {
        let rule = published.snapshot.rules.get(name);
        let destination = rule.map_or("", |rule| &*rule.destination);
        let is_known = rule.is_none() || self.destinations.knows(destination);
        let outlet = self.destinations.outlet(destination);
        let part = self.plan.filter(|_| rule.is_some());
        let facts = Facts {
            part: part.and_then(|plan| plan.rules.get(name)),
            sinks: (!is_known).then(|| self.destinations.names()),
            discovery: self.discovery,
            coverage: self.coverage,
            failing: outlet.and_then(|outlet| outlet.failing()),
            events: outlet.map_or((0, None), |outlet| outlet.count_of(&name.to_string())),
        };
        status(destination, seen, &facts, Timestamp::now())
    }
}

fn is_equal_but_for_counts(a: &WatchRuleStatus, b: &WatchRuleStatus) -> bool {
    let counts_of_b = WatchRuleStatus {
        events: b.events,
        last_event_time: b.last_event_time.clone(),
        ..a.clone()
    };
    counts_of_b == *b
}

/// Writes statuses one after the other; gives back the rules for which that failed.
pub(super) async fn write(client: Client, events: Recorder, writes: Vec<Write>) -> Vec<RuleName> {
    let mut failed = Vec::new();
    for Write {
        rule: name,
        status,
        happening,
    } in writes
    {
        let patch = Patch::Merge(json!({"status": status}));
        let params = PatchParams::default();
        let written = async {
            Ok(if let Some(namespace) = &name.namespace {
                let api: Api<WatchRule> = Api::namespaced(client.clone(), namespace);
                let rule = api.patch_status(&name.name, &params, &patch).await?;
                rule.object_ref(&())
            } else {
                let api: Api<ClusterWatchRule> = Api::all(client.clone());
                let rule = api.patch_status(&name.name, &params, &patch).await?;
                rule.object_ref(&())
            })
        };
        let error = match timeout(WRITE_LIMIT, written).await {
            Ok(Ok(rule)) => {
                if let Some(happening) = happening {
                    let rule = ObjectReference {
                        resource_version: None,
                        ..rule
                    };
                    events.tell(rule, happening);
                }
                continue;
            }
            Ok(Err(kube::Error::Api(status))) if status.is_not_found() => continue, // it is gone
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {WRITE_LIMIT:?}"),
        };
        debug!(rule = %name, error, "status of a rule not written");
        failed.push(name);
    }
    failed
}
