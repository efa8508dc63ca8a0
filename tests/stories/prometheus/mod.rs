//! What Prometheus sees: every alert fires on processes that have its trouble, and the dashboard shows
//! them.

mod alerts;
mod dashboard;
mod defects;
mod fleet;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use muster::reference;
use muster_metrics::Metric;
use serde_json::{Map, Value};

use self::fleet::Fleet;
use crate::support::{Prometheus, Servers, Story, eventually, unique_name};

pub(crate) fn stories() -> Vec<Story> {
    once![
        promtool_takes_the_alerts_and_their_tests,
        every_alert_fires_and_every_panel_shows_something,
    ]
}

/// How long the slowest alert may take: that of the cap, which has to last for half a minute.
const LIMIT: Duration = Duration::from_secs(120);

fn in_repository(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
}

/// As docs/operations.md says to, and with the settings of deploy/README.md.
async fn promtool_takes_the_alerts_and_their_tests(servers: Arc<Servers>) -> Result<()> {
    let promtool = servers.promtool()?;
    let manual = std::fs::read_to_string(in_repository("docs/operations.md"))?;
    let commands = manual
        .lines()
        .filter_map(|line| line.strip_prefix("    promtool "));
    let commands: Vec<Vec<_>> = commands.map(|line| line.split(' ').collect()).collect();
    ensure!(commands.len() == 2, "{commands:?}");
    for command in commands {
        promtool.is_content(&command, "").await?;
    }

    let manual = std::fs::read_to_string(in_repository("deploy/README.md"))?;
    let settings = manual
        .split("```")
        .find_map(|block| block.strip_prefix("yaml\nscrape_configs"));
    let settings = settings.context("no settings in deploy/README.md")?;
    let dir = servers.new_dir(&unique_name("promtool"))?;
    std::fs::write(dir.join("alerts.yaml"), alerts::written()?)?;
    let file = dir.join("prometheus.yml");
    std::fs::write(&file, format!("scrape_configs{settings}"))?;
    let file = file.display().to_string();
    promtool.is_content(&["check", "config", &file], "").await?;

    // It is not content with everything.
    let wrong = promtool.is_content(&["check", "metrics"], "a_total x\n");
    ensure!(wrong.await.is_err(), "promtool takes what is no metric");
    Ok(())
}

/// One fleet for all of it, since its processes take a while to come up.
async fn every_alert_fires_and_every_panel_shows_something(servers: Arc<Servers>) -> Result<()> {
    let promtool = servers.promtool()?;
    let mut fleet = Box::pin(Fleet::start(&servers)).await?;
    let rules = fleet.dir().join("alerts.yaml");
    std::fs::write(&rules, alerts::hurried(&alerts::written()?)?)?;
    let settings = alerts::settings(&rules, &fleet.targets());
    let prometheus = servers.prometheus(&settings).await?;

    let names = alerts::loaded(&prometheus).await?;
    fleet
        .in_trouble_until(fire(&prometheus, &["MusterNoLeaseHolder".to_owned()]))
        .await?;
    fleet.lose_a_process_and_get_wrong_settings().await?;
    fleet.in_trouble_until(fire(&prometheus, &names)).await?;

    every_series_is_declared(&prometheus).await?;
    dashboard::every_panel_shows_something(&prometheus).await?;
    for scrape in fleet.scrapes().await? {
        promtool.is_content(&["check", "metrics"], &scrape).await?;
    }
    prometheus.stop().await?;
    fleet.stop().await
}

/// Waits until each of these alerts has fired, be it for a moment.
async fn fire(prometheus: &Prometheus, alerts: &[String]) -> Result<()> {
    eventually(LIMIT, "alerts to fire", || async {
        let fired = alerts::fired(prometheus).await?;
        let missing = alerts.iter().filter(|alert| !fired.contains(*alert));
        let missing: Vec<_> = missing.collect();
        ensure!(missing.is_empty(), "did not fire: {missing:?}");
        Ok(())
    })
    .await
}

/// Each series that was scraped has a name that is declared, and its labels, with values that they can
/// have; type and help text are the declared ones.
async fn every_series_is_declared(prometheus: &Prometheus) -> Result<()> {
    let metadata = prometheus.metadata().await?;
    let mut wrong = BTreeSet::new();
    let scraped = prometheus.series("{__name__=~\"muster_.+\"}").await?;
    ensure!(
        scraped.len() > reference::metrics().count(),
        "few series: {scraped:#?}"
    );
    for series in scraped {
        let labels = series.as_object().context("no labels")?;
        let name = labels["__name__"].as_str().context("no name")?;
        let fits = reference::metric_of_series(name).is_some_and(|metric| {
            let told = &metadata[metric.name][0];
            accepts(metric, labels)
                && told["type"] == metric.kind.to_string()
                && told["help"] == metric.help
        });
        if !fits {
            wrong.insert(series.to_string());
        }
    }
    ensure!(wrong.is_empty(), "not as declared: {wrong:#?}");
    Ok(())
}

/// Whether these are labels of the metric, save for those that Prometheus adds.
fn accepts(metric: &Metric, labels: &Map<String, Value>) -> bool {
    let own = labels
        .iter()
        .map(|(name, value)| (&**name, value.as_str().unwrap_or_default()))
        .filter(|(name, _)| !["__name__", "job", "instance", "le"].contains(name));
    metric.accepts(own)
}
