//! What the dashboard shows of a process: its streams, and what its actors publish.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use muster_actors::supervision::{ActorReport, Health, Registry, StreamReport};
use serde::Serialize;

use super::Roles;

/// How long an actor has for its answer. One that is busy for longer is shown without its state.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);

/// Most works in trouble that are shown.
const SHOWN_WORKS: usize = 100;

/// Role of the actors of works, of which there are too many to show each.
const WORK: &str = "ManifestWork";

/// Roles that are shown with what they publish.
const SHOWN: [&str; 9] = [
    "ReplicaSets",
    "ReplicaSetAggregator",
    "WorkSource",
    "LeaseHolder",
    "ClusterAgent",
    "WatchSupervisor",
    "RuleStore",
    "RuleSupervisor",
    "EventQueue",
];

/// Looks at a process.
#[derive(Debug, Clone)]
pub(super) struct Lookout {
    pub(super) roles: Roles,
    pub(super) started_at: Timestamp,
    pub(super) registry: Registry,
    pub(super) health: Health,
}

/// What is seen.
#[derive(Debug, Serialize)]
pub(super) struct Overview {
    version: &'static str,
    parts: &'static str,
    started_at: Timestamp,
    streams: Vec<StreamReport>,
    /// Panics that actors have had.
    panics: u64,
    works: Works,
    /// The other actors by role.
    actors: BTreeMap<&'static str, Vec<ActorReport>>,
}

/// The works of the agents of this process.
#[derive(Debug, Default, Serialize)]
struct Works {
    /// How many there are by how their last pass ended: `ok`, `failed` and so on.
    results: BTreeMap<String, usize>,
    /// Those that are not well, the first by name.
    troubled: BTreeMap<String, String>,
}

impl Works {
    fn add(&mut self, work: ActorReport) {
        let text = |key: &str| work.state[key].as_str().map(str::to_owned);
        let result = text("last_result").unwrap_or_else(|| "waiting".to_owned());
        *self.results.entry(result.clone()).or_default() += 1;
        if let Some(error) = text("last_error") {
            self.troubled.insert(work.name, error);
            if self.troubled.len() > SHOWN_WORKS {
                self.troubled.pop_last();
            }
        }
    }
}

impl Lookout {
    pub(super) async fn look(&self) -> Overview {
        let wanted = |role: &str| role == WORK || SHOWN.contains(&role);
        let mut works = Works::default();
        let mut actors: BTreeMap<_, Vec<ActorReport>> = BTreeMap::new();
        for report in self.registry.report_of(wanted, ANSWER_LIMIT).await {
            if report.role == WORK {
                works.add(report);
            } else {
                actors.entry(report.role).or_default().push(report);
            }
        }
        for reports in actors.values_mut() {
            reports.sort_by(|one, other| one.name.cmp(&other.name));
        }
        Overview {
            version: env!("CARGO_PKG_VERSION"),
            parts: match self.roles {
                Roles::HubAndAgents => "hub and agents",
                Roles::Hub => "hub",
                Roles::Agents => "agents",
            },
            started_at: self.started_at,
            streams: self.health.streams(),
            panics: self.registry.panics(),
            works,
            actors,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn work(index: usize, state: serde_json::Value) -> ActorReport {
        ActorReport {
            role: WORK,
            name: format!("edge-1/w{index:03}"),
            restarts: 0,
            last_panic: None,
            started_at: Timestamp::UNIX_EPOCH,
            state,
        }
    }

    #[test]
    fn works_are_counted_and_the_first_in_trouble_named() {
        let mut works = Works::default();
        works.add(work(500, json!({"last_result": "ok"})));
        works.add(work(501, json!({"last_result": null})));
        works.add(work(502, json!(null)));
        for index in (0..150).rev() {
            let error = format!("error {index}");
            works.add(work(
                index,
                json!({"last_result": "failed", "last_error": error}),
            ));
        }
        let results = json!({"ok": 1, "waiting": 2, "failed": 150});
        assert_eq!(serde_json::to_value(&works.results).unwrap(), results);
        assert_eq!(works.troubled.len(), SHOWN_WORKS);
        assert_eq!(works.troubled["edge-1/w000"], "error 0");
        assert!(works.troubled.contains_key("edge-1/w099"));
    }

    #[tokio::test]
    async fn streams_show_with_their_state() {
        let lookout = Lookout {
            roles: Roles::Hub,
            started_at: Timestamp::UNIX_EPOCH,
            registry: Registry::new(),
            health: Health::new(),
        };
        let stream = lookout.health.stream("hub works");
        stream.failing("410 gone");
        let seen = serde_json::to_value(lookout.look().await).unwrap();
        assert_eq!(seen["parts"], "hub");
        assert_eq!(seen["streams"][0]["name"], "hub works");
        assert_eq!(seen["streams"][0]["state"], "failing");
        assert_eq!(seen["streams"][0]["error"], "410 gone");
        assert_eq!(seen["actors"], json!({}));
    }
}
