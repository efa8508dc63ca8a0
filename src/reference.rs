//! Pages of the manual that the program writes of itself, so that they cannot say another thing.

use std::fmt::Write as _;

use muster_actors::{agent, events, hub, lease, rules, sinks, supervision, watch};
use muster_metrics::{Kind, Metric, Unit, Values};

use crate::{http, runtime, telemetry};

/// All metrics that the program records, by subject.
pub const METRICS: &[(&str, &[&[Metric]])] = &[
    (
        "The process",
        &[
            runtime::METRICS,
            lease::METRICS,
            supervision::METRICS,
            telemetry::METRICS,
            http::METRICS,
        ],
    ),
    ("The hub", &[hub::METRICS, events::METRICS]),
    ("Agents", &[agent::METRICS, watch::METRICS]),
    (
        "Works over MQTT",
        &[
            muster_cloudevents::client::METRICS,
            muster_workclient::events::METRICS,
            muster_broker::METRICS,
        ],
    ),
    ("Watch rules", &[rules::METRICS, sinks::METRICS]),
];

/// Each metric that the program records.
pub fn metrics() -> impl Iterator<Item = &'static Metric> {
    METRICS
        .iter()
        .flat_map(|(_, modules)| modules.iter().copied().flatten())
}

/// The metric that a series of this name belongs to: a histogram has several.
pub fn metric_of_series(name: &str) -> Option<&'static Metric> {
    metrics().find(|metric| match name.strip_prefix(metric.name) {
        Some("_bucket" | "_sum" | "_count") => metric.kind == Kind::Histogram,
        Some(rest) => rest.is_empty() && metric.kind != Kind::Histogram,
        None => false,
    })
}

const METRICS_INTRO: &str = "\
# Metrics

What `/metrics` serves, in Prometheus' text format: on `telemetry.listen`, and over HTTPS on \
`telemetry.https_listen`. Prometheus adds `job` and `instance`. A series begins with the first value \
that is recorded; histograms have buckets from 0.5 ms to 60 s. What to do with them is in \
[operations.md](operations.md#metrics), what is worth an alert in \
[troubleshooting.md](troubleshooting.md#alerts).

This page is written by `muster reference metrics`.
";

/// The page of all metrics, as Markdown.
pub fn metrics_page() -> String {
    let mut page = METRICS_INTRO.to_owned();
    for (subject, modules) in METRICS {
        let _ = write!(page, "\n## {subject}\n");
        for metric in modules.iter().copied().flatten() {
            add_metric(&mut page, metric);
        }
    }
    page
}

fn add_metric(page: &mut String, metric: &Metric) {
    let Metric {
        name, kind, help, ..
    } = metric;
    let unit = match metric.unit {
        Unit::Count => "",
        Unit::Seconds => " in seconds",
    };
    let _ = write!(page, "\n### {name}\n\nA {kind}{unit}. {help}\n");
    if metric.labels.is_empty() {
        return;
    }
    page.push_str("\n| Label | Value | Meaning |\n|---|---|---|\n");
    for label in metric.labels {
        let named = format!("`{}`", label.name);
        match label.values {
            Values::Names(what) => {
                let _ = writeln!(page, "| {named} | | {what} |");
            }
            Values::OneOf(values) => {
                let mut named = named;
                for (value, meaning) in values {
                    let value = match *value {
                        "" => "(empty)".to_owned(),
                        value => format!("`{value}`"),
                    };
                    let _ = writeln!(page, "| {named} | {value} | {meaning} |");
                    named.clear(); // said once, for all of its values
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_page_of_metrics_is_that_of_this_program() {
        let written = include_str!("../docs/metrics.md");
        assert!(
            written == metrics_page(),
            "docs/metrics.md is old; write it anew: cargo run -- reference metrics > docs/metrics.md"
        );
    }

    /// The text of every source file of the workspace.
    fn sources(dir: &std::path::Path, into: &mut String) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                sources(&path, into);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                into.push_str(&std::fs::read_to_string(&path).unwrap());
            }
        }
    }

    /// `docs/limits.md` names a test for each bound, but for those that need none: where time is in
    /// proportion to the input.
    #[test]
    fn every_limit_names_tests_that_there_are() {
        let mut all = String::new();
        sources(std::path::Path::new(env!("CARGO_MANIFEST_DIR")), &mut all);
        let page = include_str!("../docs/limits.md");
        let rows = page.lines().filter(|line| line.starts_with("| "));
        let mut checked = 0;
        for row in rows.filter(|row| !row.starts_with("| Input |")) {
            let cells: Vec<&str> = row.trim_matches('|').split(" | ").collect();
            assert_eq!(cells.len(), 4, "{row}");
            let tests = cells[3].split('`').skip(1).step_by(2);
            let mut count = 0;
            for test in tests {
                let name = test.rsplit("::").next().unwrap();
                let module = test
                    .strip_suffix("::*")
                    .and_then(|test| test.rsplit("::").next());
                let there = match module {
                    Some(module) => all.contains(&format!("mod {module};")),
                    None => all.contains(&format!("fn {name}(")),
                };
                assert!(there, "no test is called {test}: {row}");
                count += 1;
            }
            assert!(count > 0, "no test: {row}");
            checked += 1;
        }
        assert!(checked > 50, "{checked} rows");
    }

    /// Words of a text that look like the name of a metric.
    fn names(text: &str) -> BTreeSet<&str> {
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        text.split(|c| !is_of_name(c))
            .filter(|word| word.starts_with("muster_"))
            .collect()
    }

    #[test]
    fn alerts_and_dashboard_name_series_that_there_are() {
        for (file, text) in [
            ("alerts", include_str!("../deploy/prometheus/alerts.yaml")),
            ("dashboard", include_str!("../deploy/grafana/muster.json")),
        ] {
            let names = names(text);
            assert!(names.len() > 20, "{file}: {names:?}");
            for name in names {
                assert!(metric_of_series(name).is_some(), "{file}: {name}");
            }
        }
    }

    #[test]
    fn every_alert_has_a_runbook() {
        let alerts = include_str!("../deploy/prometheus/alerts.yaml");
        let runbooks = include_str!("../docs/troubleshooting.md");
        let names = alerts
            .lines()
            .filter_map(|line| line.trim().strip_prefix("- alert: "));
        let names: Vec<_> = names.collect();
        assert!(names.len() > 20, "{names:?}");
        for name in names {
            let section = format!("\n### {name}\n");
            assert!(runbooks.contains(&section), "{name} has no section");
            let link = format!("docs/troubleshooting.md#{}\n", name.to_lowercase());
            assert!(alerts.contains(&link), "{name} has no link to its section");
        }
    }

    #[test]
    fn series_of_histograms_belong_to_their_metric() {
        let time = "muster_agent_reconcile_duration_seconds";
        for series in ["_bucket", "_sum", "_count"] {
            let metric = metric_of_series(&format!("{time}{series}"));
            assert_eq!(metric.map(|metric| metric.name), Some(time));
        }
        for series in [time, "muster_actors_count", "muster_actor"] {
            assert!(metric_of_series(series).is_none(), "{series}");
        }
        assert!(metric_of_series("muster_actors").is_some());
    }

    #[test]
    fn metrics_have_names_by_the_rules_of_prometheus_and_each_once() {
        let mut names = BTreeSet::new();
        for Metric {
            name,
            kind,
            unit,
            labels,
            help,
        } in metrics()
        {
            assert!(names.insert(*name), "{name} is declared twice");
            let is_of_process = telemetry::METRICS.iter().any(|it| it.name == *name);
            let prefix = if is_of_process { "process_" } else { "muster_" };
            assert!(name.starts_with(prefix), "{name}");
            assert_eq!(name.ends_with("_total"), *kind == Kind::Counter, "{name}");
            assert_eq!(name.ends_with("_seconds"), *unit == Unit::Seconds, "{name}");
            assert!(help.ends_with('.'), "{name}: {help}");
            for label in *labels {
                if let Values::OneOf(values) = label.values {
                    let distinct: BTreeSet<_> = values.iter().map(|(value, _)| value).collect();
                    assert_eq!(distinct.len(), values.len(), "{name}: {}", label.name);
                }
            }
        }
    }
}
