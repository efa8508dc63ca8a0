//! The dashboard's queries, as Grafana would send them.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::in_repository;
use crate::support::Prometheus;

/// Metrics that are quiet in the fleet of the story, and why.
const QUIET: [(&str, &str); 5] = [
    (
        "muster_finished_work_deletions_total",
        "no work of the fleet is ever complete",
    ),
    ("muster_watch_restarts_total", "nobody asks for a restart"),
    (
        "muster_broker_refused_total",
        "anybody may do everything there",
    ),
    ("muster_rule_git_left_out_total", "there is no git sink"),
    (
        "muster_agent_access_reviews_total",
        "no work has an executor",
    ),
];

/// The queries of a dashboard, each with the title of its panel.
fn queries(dashboard: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut queries = Vec::new();
    for panel in list(&dashboard["panels"]) {
        queries.extend(queries_of_row(&panel));
        for target in list(&panel["targets"]) {
            queries.push((text(&panel["title"]), text(&target["expr"])));
        }
    }
    queries
}

/// A row that is folded up has its panels inside.
fn queries_of_row(row: &Value) -> Vec<(String, String)> {
    match &row["panels"] {
        Value::Array(_) => queries(row),
        _ => Vec::new(),
    }
}

/// Every query can be evaluated, and gives something unless it is about what is quiet.
pub(super) async fn every_panel_shows_something(prometheus: &Prometheus) -> Result<()> {
    let dashboard: Value = serde_json::from_str(&std::fs::read_to_string(in_repository(
        "deploy/grafana/muster.json",
    ))?)?;
    let queries = queries(&dashboard);
    ensure!(!queries.is_empty(), "a dashboard without panels");
    let mut wrong = Vec::new();
    for (title, expression) in queries {
        // As Grafana does, with all clusters chosen, and a window that holds the whole story.
        let expression = expression
            .replace("$cluster", ".*")
            .replace("$__rate_interval", "10m");
        ensure!(
            !expression.contains('$'),
            "{title}: a variable that Grafana has: {expression}"
        );
        let found = prometheus.query(&expression).await;
        let found = found.with_context(|| title.clone())?;
        let quiet = QUIET.iter().any(|(name, _)| expression.contains(name));
        if found.is_empty() != quiet {
            wrong.push(format!("{title}: {expression}: {} series", found.len()));
        }
    }
    ensure!(
        wrong.is_empty(),
        "show nothing, or are not quiet: {wrong:#?}"
    );
    Ok(())
}
