//! What `muster status` prints.

use std::io::IsTerminal as _;

use jiff::Timestamp;
use muster_apiserver::age;
use muster_core::explain::State;
use muster_core::fleet::{ClusterRow, FleetReport, SetRow, WorkRow};

use crate::cli::error::CommandError;
use crate::cli::output::{Output, document, say};
use crate::cli::table::{one_line, table};

/// Clears a terminal, and goes to its upper left.
const CLEAR: &str = "\x1b[2J\x1b[H";

/// Where it is printed, and what was printed last.
pub(super) struct Board {
    output: Option<Output>,
    /// The namespace that was asked for.
    namespace: Option<String>,
    terminal: bool,
    shown: Option<(FleetReport, Vec<String>)>,
}

impl Board {
    pub(super) fn new(output: Option<Output>, namespace: Option<String>) -> Self {
        Self {
            output,
            namespace,
            terminal: std::io::stdout().is_terminal(),
            shown: None,
        }
    }

    /// Prints the report, if it is another one than before: on a terminal in its place, else as a
    /// block of its own.
    pub(super) fn show(
        &mut self,
        report: &FleetReport,
        notes: &[String],
    ) -> Result<(), CommandError> {
        let now = (report.clone(), notes.to_vec());
        if self.shown.as_ref() == Some(&now) {
            return Ok(());
        }
        let again = self.shown.replace(now).is_some();
        let text = match self.output {
            Some(output @ (Output::Json | Output::Yaml)) => {
                if again && output == Output::Yaml {
                    say("---")?;
                }
                return say(document(report, "the status", output)?);
            }
            None | Some(Output::Wide) => {
                let wide = self.output == Some(Output::Wide);
                let namespace = self.namespace.as_deref();
                text(report, namespace, notes, wide, Timestamp::now())
            }
        };
        let before = match (again, self.terminal) {
            (false, _) => "",
            (true, true) => CLEAR,
            (true, false) => "\n",
        };
        say(format_args!("{before}{text}"))
    }
}

/// The tables, without a line break at the end.
fn text(
    report: &FleetReport,
    namespace: Option<&str>,
    notes: &[String],
    wide: bool,
    now: Timestamp,
) -> String {
    let mut parts = vec![sets(&report.sets, namespace)];
    if !report.clusters.is_empty() {
        parts.push(clusters(&report.clusters, wide, now));
    }
    if !report.works.is_empty() {
        parts.push(works(&report.works, wide, now));
    }
    let notes = notes.iter().map(|note| format!("note: {note}"));
    let notes: Vec<String> = notes.collect();
    if !notes.is_empty() {
        parts.push(notes.join("\n"));
    }
    parts.join("\n\n")
}

fn sets(rows: &[SetRow], namespace: Option<&str>) -> String {
    if rows.is_empty() {
        let place = namespace.map_or_else(String::new, |name| format!(" in namespace {name}"));
        return format!("no ManifestWorkReplicaSets found{place}");
    }
    let header = [
        "NAMESPACE",
        "SET",
        "PHASE",
        "DESIRED",
        "UPDATED",
        "AVAILABLE",
        "FAILED",
        "MESSAGE",
    ];
    let row = |row: &SetRow| {
        let phase = row.phase.as_ref();
        [
            row.namespace.clone(),
            row.name.clone(),
            phase.map_or_else(|| "<none>".to_owned(), ToString::to_string),
            row.desired.to_string(),
            row.updated.to_string(),
            row.available.to_string(),
            row.failed.to_string(),
            one_line(&row.message),
        ]
    };
    table(header, rows.iter().map(row))
}

fn clusters(rows: &[ClusterRow], wide: bool, now: Timestamp) -> String {
    let mut header = vec![
        "CLUSTER",
        "STATE",
        "WORKS",
        "APPLIED",
        "AVAILABLE",
        "FAILING",
        "SINCE",
    ];
    if wide {
        header.push("MESSAGE");
    }
    let row = |row: &ClusterRow| {
        let mut cells = vec![
            row.name.clone(),
            row.state.to_string(),
            row.works.to_string(),
            row.applied.to_string(),
            row.available.to_string(),
            row.failing.to_string(),
            since(row.since, now),
        ];
        if wide {
            cells.push(one_line(&row.message));
        }
        cells
    };
    table(header, rows.iter().map(row))
}

/// Works of no set: those that are fine are only counted, unless all is to be shown.
fn works(rows: &[WorkRow], wide: bool, now: Timestamp) -> String {
    let shown: Vec<&WorkRow> = rows
        .iter()
        .filter(|row| wide || row.state != State::Ok)
        .collect();
    let fine = match rows.len() - shown.len() {
        0 => None,
        1 => Some("1 work that belongs to no set is fine".to_owned()),
        number => Some(format!("{number} works that belong to no set are fine")),
    };
    let header = ["CLUSTER", "WORK OF NO SET", "STATE", "SINCE", "MESSAGE"];
    let row = |row: &WorkRow| {
        [
            row.cluster.clone(),
            row.name.clone(),
            row.state.to_string(),
            since(row.since, now),
            one_line(&row.message),
        ]
    };
    let shown = (!shown.is_empty()).then(|| table(header, shown.into_iter().map(row)));
    let parts: Vec<String> = shown.into_iter().chain(fine).collect();
    parts.join("\n\n")
}

fn since(since: Option<Timestamp>, now: Timestamp) -> String {
    since.map_or_else(String::new, |since| age(since, now))
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_api::replicaset::ReplicaSetPhase;

    fn report() -> FleetReport {
        let since = "2026-01-02T00:00:00Z".parse().ok();
        FleetReport {
            state: State::Failed,
            sets: vec![SetRow {
                namespace: "default".to_owned(),
                name: "web".to_owned(),
                state: State::Failed,
                phase: Some(ReplicaSetPhase::Progressing),
                desired: 3,
                updated: 2,
                available: 1,
                failed: 1,
                message: "so\n and so".to_owned(),
            }],
            clusters: vec![ClusterRow {
                name: "c1".to_owned(),
                state: State::Failed,
                works: 4,
                applied: 3,
                available: 2,
                failing: 1,
                since,
                message: "web-1: no such type".to_owned(),
            }],
            works: vec![
                WorkRow {
                    cluster: "c1".to_owned(),
                    name: "fine".to_owned(),
                    state: State::Ok,
                    reason: String::new(),
                    message: String::new(),
                    since: None,
                },
                WorkRow {
                    cluster: "c1".to_owned(),
                    name: "mine".to_owned(),
                    state: State::Waiting,
                    reason: "NotSeen".to_owned(),
                    message: "no agent".to_owned(),
                    since,
                },
            ],
        }
    }

    fn lines(text: &str) -> Vec<Vec<&str>> {
        let words = |line| str::split_whitespace(line).collect();
        text.lines().map(words).collect()
    }

    #[test]
    fn a_report_is_three_tables() {
        let now = "2026-01-02T00:12:00Z".parse().unwrap();
        let notes = ["clusters could not be read".to_owned()];
        let shown = text(&report(), None, &notes, false, now);
        let expected = "NAMESPACE SET PHASE DESIRED UPDATED AVAILABLE FAILED MESSAGE
                        default web Progressing 3 2 1 1 so and so

                        CLUSTER STATE WORKS APPLIED AVAILABLE FAILING SINCE
                        c1 failed 4 3 2 1 12m

                        CLUSTER WORK OF NO SET STATE SINCE MESSAGE
                        c1 mine waiting 12m no agent

                        1 work that belongs to no set is fine

                        note: clusters could not be read";
        assert_eq!(lines(&shown), lines(expected));
        let wide = text(&report(), None, &[], true, now);
        assert!(wide.contains("12m    web-1: no such type"), "{wide}");
        assert!(
            wide.contains("fine") && !wide.contains("are fine"),
            "{wide}"
        );
    }

    #[test]
    fn an_empty_fleet_says_so() {
        let none = FleetReport {
            state: State::Ok,
            sets: Vec::new(),
            clusters: Vec::new(),
            works: Vec::new(),
        };
        let now = Timestamp::UNIX_EPOCH;
        let text = |namespace| text(&none, namespace, &[], false, now);
        assert_eq!(text(None), "no ManifestWorkReplicaSets found");
        let expected = "no ManifestWorkReplicaSets found in namespace shop";
        assert_eq!(text(Some("shop")), expected);
    }
}
