//! `muster rollout status`: how far a rollout is, until it is done.

use std::pin::pin;

use futures::StreamExt;
use kube::runtime::{WatchStreamExt, watcher};
use muster_api::replicaset::{
    ManifestWorkReplicaSet, ManifestWorkReplicaSetSummary, PlacementSummary,
};
use muster_core::replicaset::{Progress, progress_line};
use serde::Serialize;

use super::StatusArgs;
use crate::cli::error::{CommandError, watch_error, watch_refusal};
use crate::cli::output::{self, Output, say};
use crate::cli::set::Target;
use crate::cli::table::table;
use crate::print;

pub(super) async fn run(args: &StatusArgs) -> Result<(), CommandError> {
    let target = Target::of(&args.set).await?;
    let mut board = Board::new(args.output);
    let followed = follow(&target, args.watch, &mut board);
    let result = if args.timeout.is_zero() {
        followed.await
    } else {
        let limited = tokio::time::timeout(args.timeout, followed).await;
        limited.unwrap_or_else(|_| {
            let seen = board.line.as_deref();
            let seen = seen.map_or_else(|| format!("{target}: not seen"), ToOwned::to_owned);
            let timeout = args.timeout;
            Err(CommandError::NotThere(format!(
                "not done after {timeout:?}: {seen}"
            )))
        })
    };
    board.close()?;
    result
}

async fn follow(target: &Target, watch: bool, board: &mut Board) -> Result<(), CommandError> {
    // Whatever is wrong is told at once, which a watch would try again for ever.
    let set = target.get().await?;
    if let Some(end) = end(board.show(set)?, board) {
        return end;
    }
    if !watch {
        return Ok(());
    }
    let config = watcher::Config::default().fields(&format!("metadata.name={}", target.name));
    let events = watcher(target.sets(), config).default_backoff();
    let mut events = pin!(events);
    let mut trouble = String::new();
    // Whether the list that is under way has had the set.
    let mut listed = false;
    while let Some(event) = events.next().await {
        let gone = match event {
            Ok(watcher::Event::Init) => {
                listed = false;
                false
            }
            Ok(watcher::Event::InitApply(set) | watcher::Event::Apply(set)) => {
                listed = true;
                trouble.clear();
                if let Some(end) = end(board.show(set)?, board) {
                    return end;
                }
                false
            }
            Ok(watcher::Event::InitDone) => !listed,
            Ok(watcher::Event::Delete(_)) => true,
            Err(error) => {
                if let Some(refusal) = watch_refusal(&error) {
                    return Err(target.failed("watch", refusal));
                }
                let now = watch_error(&error);
                if now != trouble {
                    print::note(format_args!("failed to watch {target}, retrying: {now}"));
                    trouble = now;
                }
                false
            }
        };
        if gone {
            return Err(CommandError::Refused(format!("{target} was deleted")));
        }
    }
    Err(CommandError::Refused(format!("{target}: the watch ended")))
}

/// What following comes to, if this is an end.
fn end(progress: Progress, board: &Board) -> Option<Result<(), CommandError>> {
    match progress {
        Progress::Ready => Some(Ok(())),
        Progress::Failed => {
            let line = board.line.clone().unwrap_or_default();
            Some(Err(CommandError::NotThere(line)))
        }
        Progress::Unseen | Progress::UnderWay => None,
    }
}

/// What is shown: a line, or a document, whenever it changes.
struct Board {
    output: Option<Output>,
    line: Option<String>,
    /// What was printed last.
    printed: Option<String>,
    set: Option<ManifestWorkReplicaSet>,
}

/// The document of `-o json` and `-o yaml`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    namespace: &'a str,
    name: &'a str,
    generation: i64,
    /// Unseen, UnderWay, Ready or Failed.
    progress: String,
    message: &'a str,
    summary: ManifestWorkReplicaSetSummary,
    placements: &'a [PlacementSummary],
}

impl Board {
    const fn new(output: Option<Output>) -> Self {
        Self {
            output,
            line: None,
            printed: None,
            set: None,
        }
    }

    fn show(&mut self, set: ManifestWorkReplicaSet) -> Result<Progress, CommandError> {
        let progress = Progress::of(&set);
        let line = progress_line(&set);
        let printed = match self.output {
            None | Some(Output::Wide) => line.clone(),
            Some(output) => document(&set, output)?,
        };
        if self.printed.as_ref() != Some(&printed) {
            if self.output == Some(Output::Yaml) && self.printed.is_some() {
                say("---")?;
            }
            say(&printed)?;
            self.printed = Some(printed);
        }
        self.line = Some(line);
        self.set = Some(set);
        Ok(progress)
    }

    /// What is shown once, at the end.
    fn close(&self) -> Result<(), CommandError> {
        match &self.set {
            Some(set) if self.output == Some(Output::Wide) => say(placements(set)),
            _ => Ok(()),
        }
    }
}

fn document(set: &ManifestWorkReplicaSet, output: Output) -> Result<String, CommandError> {
    let status = set.status.clone().unwrap_or_default();
    let meta = &set.metadata;
    let document = Document {
        namespace: meta.namespace.as_deref().unwrap_or_default(),
        name: meta.name.as_deref().unwrap_or_default(),
        generation: meta.generation.unwrap_or_default(),
        progress: format!("{:?}", Progress::of(set)),
        message: &status.message,
        summary: status.summary,
        placements: &status.placements_summary,
    };
    output::document(&document, "the status", output)
}

fn placements(set: &ManifestWorkReplicaSet) -> String {
    let placements = set
        .status
        .iter()
        .flat_map(|status| &status.placements_summary);
    table(
        [
            "PLACEMENT",
            "DECIDED",
            "UPDATED",
            "AVAILABLE",
            "PROGRESSING",
            "DEGRADED",
        ],
        placements.map(|placement| {
            let counts = &placement.summary;
            [
                placement.name.clone(),
                counts.desired_total.to_string(),
                counts.updated.to_string(),
                counts.available.to_string(),
                counts.progressing.to_string(),
                counts.degraded.to_string(),
            ]
        }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn set() -> ManifestWorkReplicaSet {
        let summary = json!({"total": 3, "desiredTotal": 4, "updated": 3, "available": 2,
            "progressing": 1, "degraded": 0, "applied": 3});
        serde_json::from_value(json!({
            "apiVersion": "work.open-cluster-management.io/v1alpha1",
            "kind": "ManifestWorkReplicaSet",
            "metadata": {"namespace": "default", "name": "web", "generation": 2},
            "spec": {"placementRefs": [{"name": "all"}]},
            "status": {"message": "so and so", "summary": summary,
                "placementSummary": [{"name": "all", "summary": summary}]}}))
        .unwrap()
    }

    #[test]
    fn placements_are_a_table() {
        let table = placements(&set());
        let lines: Vec<Vec<&str>> = table
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(
            lines,
            [
                [
                    "PLACEMENT",
                    "DECIDED",
                    "UPDATED",
                    "AVAILABLE",
                    "PROGRESSING",
                    "DEGRADED"
                ],
                ["all", "4", "3", "2", "1", "0"]
            ]
        );
    }

    #[test]
    fn a_document_has_the_same_in_both_forms() {
        let json: Value = serde_json::from_str(&document(&set(), Output::Json).unwrap()).unwrap();
        assert_eq!(json["progress"], "Unseen");
        assert_eq!(json["summary"]["desiredTotal"], 4);
        assert_eq!(json["placements"][0]["name"], "all");
        let yaml = document(&set(), Output::Yaml).unwrap();
        assert_eq!(serde_saphyr::from_str::<Value>(&yaml).unwrap(), json);
    }
}
