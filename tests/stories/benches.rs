//! The commands of `docs/benchmarks.md`, in a rehearsal: every bench runs, has its figures, and sees
//! slowness where there is some.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tokio::process::Command;

use crate::support::docs::{root, section};
use crate::support::typed::typed;
use crate::support::{Servers, Story};

pub(crate) fn stories() -> Vec<Story> {
    let stories = once![
        every_bench_has_its_figures,
        no_figure_meets_its_goal_when_all_is_slow,
    ];
    let limited = stories.into_iter().map(|story| story.within(LIMIT));
    limited.collect()
}

/// Two and three minutes, where nothing else runs.
const LIMIT: Duration = Duration::from_secs(900);

/// What cargo tells its tests of themselves. Build scripts ask for some of it, and would run anew.
const OF_TESTS: [&str; 4] = [
    "CARGO_PKG_",
    "CARGO_MANIFEST_",
    "CARGO_BIN_",
    "CARGO_CRATE_",
];

/// The page's lines, which are these.
fn lines() -> Result<[String; 4]> {
    let lines = section("docs/benchmarks.md", "Benchmarks")?.lines();
    let lines: [String; 4] = lines
        .try_into()
        .map_err(|lines| anyhow::anyhow!("other lines than this story knows: {lines:?}"))?;
    let known = ["", " P4 P7", " --list", " --slow"].map(|args| format!("benches/run{args}"));
    ensure!(lines == known, "{lines:?}");
    Ok(lines)
}

/// Types a line, for a build without optimization.
async fn types(line: &str) -> Result<String> {
    let mut command = Command::new("bash");
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if OF_TESTS.iter().any(|start| text.starts_with(start)) {
            command.env_remove(name);
        }
    }
    command
        .args(["-c", line])
        .current_dir(root())
        .env("MUSTER_BENCH_PROFILE", "dev");
    typed(&mut command, line).await
}

/// The figures that a run has told.
fn figures(told: &str) -> Result<Vec<Value>> {
    let figures: Result<Vec<Value>, _> = told.lines().map(serde_json::from_str).collect();
    figures.with_context(|| told.to_owned())
}

fn goals(figures: &[Value]) -> BTreeSet<&str> {
    let goals = figures.iter().filter_map(|figure| figure["goal"].as_str());
    goals.collect()
}

async fn every_bench_has_its_figures(_: Arc<Servers>) -> Result<()> {
    let [all, some, list, _] = lines()?;
    let listed = types(&list).await?;
    let listed: BTreeSet<&str> = listed
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    ensure!(listed.len() > 10, "{listed:?}");

    let told = figures(&types(&all).await?)?;
    ensure!(goals(&told) == listed, "{:?}", goals(&told));
    for figure in &told {
        ensure!(
            figure["value"].is_number()
                && figure["unit"].is_string()
                && figure["params"]["profile"] == "debug"
                && figure["baseline"].is_null() == figure["baseline_is"].is_null(),
            "{figure}"
        );
    }
    let told = figures(&types(&some).await?)?;
    ensure!(
        goals(&told) == BTreeSet::from(["P4", "P7"]),
        "{:?}",
        goals(&told)
    );
    Ok(())
}

async fn no_figure_meets_its_goal_when_all_is_slow(_: Arc<Servers>) -> Result<()> {
    let [.., slow] = lines()?;
    let mut told = figures(&types(&slow).await?)?;
    // That there is none that meets its goal, the command itself has looked at.
    told.retain(|figure| figure["met"] == false);
    let wanted = BTreeSet::from(["P1", "P3", "P4", "P6", "P7", "P8", "P13", "P14", "RULES"]);
    let missed = goals(&told);
    ensure!(missed.is_superset(&wanted), "only of {missed:?}");
    Ok(())
}
