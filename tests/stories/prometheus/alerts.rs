//! The alerts, in a hurry.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use regex::{Captures, Regex};

use super::in_repository;
use crate::support::Prometheus;

/// Two minutes become one second.
const HURRY: u64 = 120;

pub(super) fn written() -> Result<String> {
    Ok(std::fs::read_to_string(in_repository(
        "deploy/prometheus/alerts.yaml",
    ))?)
}

/// The same rules with every time in them divided by [`HURRY`]: how long a condition has to hold
/// (`for: 15m`), windows (`[15m]`, `offset 15m`) and thresholds of values that are times
/// (`_seconds > 600`). Nothing else of an expression changes.
pub(super) fn hurried(rules: &str) -> Result<String> {
    let times = Regex::new(r"(for: |\[|offset )(\d+)([smh])")?;
    let thresholds = Regex::new(r"(_seconds > )(\d+)")?;
    let number = |found: &Captures<'_>| found[2].parse::<u64>().unwrap_or_default();
    ensure!(
        times.is_match(rules) && thresholds.is_match(rules),
        "times are written in another way now"
    );
    let rules = times.replace_all(rules, |found: &Captures<'_>| {
        let unit = match &found[3] {
            "s" => 1_000,
            "m" => 60_000,
            _ => 3_600_000,
        };
        format!("{}{}ms", &found[1], number(found) * unit / HURRY)
    });
    let rules = thresholds.replace_all(&rules, |found: &Captures<'_>| {
        format!("{}{}", &found[1], number(found) / HURRY)
    });
    Ok(rules.into_owned())
}

/// Settings of a Prometheus in the same hurry, with these rules and targets by job.
pub(super) fn settings(rules: &Path, targets: &[(&str, String)]) -> String {
    let mut settings = format!(
        "global: {{scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms}}\n\
         rule_files: [\"{}\"]\nscrape_configs:\n",
        rules.display()
    );
    let jobs: BTreeSet<_> = targets.iter().map(|(job, _)| *job).collect();
    for job in jobs {
        let of_job = targets.iter().filter(|(of, _)| *of == job);
        let addresses: Vec<_> = of_job.map(|(_, address)| format!("{address:?}")).collect();
        let targets = addresses.join(", ");
        let _ = writeln!(
            settings,
            "  - {{job_name: {job}, static_configs: [{{targets: [{targets}]}}]}}"
        );
    }
    settings
}

/// The names of the alerts that Prometheus has loaded: all that are written.
pub(super) async fn loaded(prometheus: &Prometheus) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for rule in prometheus.rules().await? {
        names.push(rule["name"].as_str().context("no name")?.to_owned());
    }
    let written = written()?.matches("- alert: ").count();
    ensure!(
        names.len() == written,
        "{written} alerts, and loaded are {names:?}"
    );
    Ok(names)
}

/// The alerts that have fired so far. Prometheus keeps each as a series `ALERTS`; rules that cannot be
/// evaluated fail.
pub(super) async fn fired(prometheus: &Prometheus) -> Result<BTreeSet<String>> {
    for rule in prometheus.rules().await? {
        ensure!(rule["health"] != "err", "{rule}");
    }
    let firing = "count by (alertname) (count_over_time(ALERTS{alertstate=\"firing\"}[1h]))";
    let fired = prometheus.query(firing).await?;
    let name = |series: &serde_json::Value| {
        let name = series["metric"]["alertname"].as_str();
        name.unwrap_or_default().to_owned()
    };
    Ok(fired.iter().map(name).collect())
}
