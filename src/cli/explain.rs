//! `muster explain`: why something is not done yet.

mod read;
mod tree;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use muster_core::explain::{Node, first_cause};
use serde::Serialize;

use super::access::{Access, AccessArgs};
use super::error::{CommandError, finish};
use super::names::{RuleArg, cluster_name, rule_name, work_name};
use super::output::{Output, document, say};
use super::pages::Notes;
use super::set::{SetArgs, Target};
use super::wrap::wrap;
use crate::exit::{MISUSED, fail};
use crate::{runtime, terminal};

/// What is to be explained.
#[derive(Debug, Subcommand)]
pub(super) enum ExplainCommand {
    /// A ManifestWorkReplicaSet, with its placements, clusters, works and objects.
    #[command(alias = "manifestworkreplicaset")]
    Mwrs(MwrsArgs),
    /// A ManifestWork, with its objects, its cluster and its set.
    #[command(alias = "manifestwork")]
    Work(WorkArgs),
    /// A WatchRule or ClusterWatchRule, on the API server of its cluster: its sink and what is not
    /// watched.
    Rule(RuleArgs),
    /// A name without a kind, or another kind.
    #[command(external_subcommand)]
    Other(Vec<String>),
}

/// The kinds that can be explained, by the names of their commands.
const KINDS: [&str; 3] = ["mwrs", "work", "rule"];

/// What to say to `muster explain hello`, and to kinds that there are not.
fn unknown_kind(words: &[String]) -> String {
    let word = words.first().map_or("", String::as_str);
    let kinds = KINDS.join(", ");
    let (kind, name) = match (word.split_once('/'), words.get(1)) {
        (Some((kind, name)), _) => (kind, Some(name)),
        (None, Some(name)) if !name.starts_with('-') => (word, Some(name.as_str())),
        (None, _) => ("", Some(word)),
    };
    // Most ask about replica sets; whoever has nearly typed another kind means that.
    let near = KINDS
        .into_iter()
        .max_by(|one, other| near(one, kind).total_cmp(&near(other, kind)))
        .filter(|other| near(other, kind) > 0.5)
        .unwrap_or(KINDS[0]);
    let name = name.unwrap_or("NAME");
    format!(
        "explain: {word:?} is not one of the kinds {kinds}\n\n  tip: muster explain {near} {name}"
    )
}

fn near(one: &str, other: &str) -> f64 {
    strsim::normalized_damerau_levenshtein(one, other)
}

/// How it is shown.
#[derive(Debug, Args)]
struct ShowArgs {
    /// Output format. wide: everything. json, yaml: the whole tree as a document.
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<Output>,
}

/// `muster explain mwrs`.
#[derive(Debug, Args)]
pub(super) struct MwrsArgs {
    #[command(flatten)]
    set: SetArgs,
    #[command(flatten)]
    show: ShowArgs,
}

/// `muster explain work`.
#[derive(Debug, Args)]
pub(super) struct WorkArgs {
    /// Name of the ManifestWork.
    #[arg(value_parser = work_name)]
    name: String,
    /// Cluster of the work, which is its namespace on the hub.
    #[arg(long, value_name = "CLUSTER", value_parser = cluster_name, conflicts_with = "namespace")]
    cluster: Option<String>,
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    show: ShowArgs,
}

/// `muster explain rule`.
#[derive(Debug, Args)]
pub(super) struct RuleArgs {
    /// Name of the rule; `watchrule/NAME` or `clusterwatchrule/NAME` where there is one of each.
    #[arg(value_parser = rule_name)]
    name: RuleArg,
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    show: ShowArgs,
}

impl ExplainCommand {
    /// Does what was asked for.
    pub(super) fn run(self) -> ExitCode {
        if let Self::Other(words) = &self {
            return fail(MISUSED, &unknown_kind(words));
        }
        finish(runtime::block_on(async {
            let (explained, output) = match self {
                Self::Mwrs(args) => {
                    let target = Target::of(&args.set).await?;
                    (read::set(&target).await?, args.show.output)
                }
                Self::Work(args) => {
                    let mut access = Access::open(&args.access).await?;
                    if let Some(cluster) = args.cluster {
                        access.namespace = cluster;
                    }
                    (read::work(&access, &args.name).await?, args.show.output)
                }
                Self::Rule(args) => {
                    let access = Access::open(&args.access).await?;
                    (read::rule(&access, &args.name).await?, args.show.output)
                }
                Self::Other(words) => return Err(CommandError::Refused(unknown_kind(&words))),
            };
            explained.print(output)
        }))
    }
}

/// What there is to tell.
#[derive(Debug)]
struct Explained {
    tree: Node,
    /// The set that made the work which is explained.
    owner: Option<Node>,
    notes: Notes,
}

/// The document of `-o json` and `-o yaml`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    /// What people read above the tree.
    summary: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<CauseDocument<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<&'a Node>,
    notes: &'a [String],
    tree: &'a Node,
}

/// The node to begin with.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CauseDocument<'a> {
    kind: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<&'a str>,
    state: muster_core::explain::State,
    reason: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<Timestamp>,
}

impl Explained {
    fn print(&self, output: Option<Output>) -> Result<(), CommandError> {
        let now = Timestamp::now();
        match output {
            Some(output @ (Output::Json | Output::Yaml)) => {
                say(document(&self.document(now), "the explanation", output)?)
            }
            None | Some(Output::Wide) => {
                let text = tree::text(self, output == Some(Output::Wide), now);
                say(wrap(text.trim_end(), terminal::width()))
            }
        }
    }

    fn document(&self, now: Timestamp) -> Document<'_> {
        let cause = first_cause(&self.tree).map(|cause| CauseDocument {
            kind: &cause.node.kind,
            namespace: &cause.node.namespace,
            name: &cause.node.name,
            cluster: cause.cluster,
            state: cause.node.own_state,
            reason: &cause.node.reason,
            message: &cause.node.message,
            since: cause.node.since,
        });
        Document {
            summary: tree::summary(self, now),
            cause,
            owner: self.owner.as_ref(),
            notes: &self.notes,
            tree: &self.tree,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_a_kind_is_taken_for_that_of_a_set() {
        let tip = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            let text = unknown_kind(&words);
            text.rsplit_once("tip: muster explain ")
                .unwrap()
                .1
                .to_owned()
        };
        for (words, expected) in [
            (&["hello"][..], "mwrs hello"),
            (&["hello", "-n", "shop"], "mwrs hello"),
            (&["mwrs/hello"], "mwrs hello"),
            (&["wok", "hello", "--cluster", "c1"], "work hello"),
            (&["rules", "hello"], "rule hello"),
            (&["deployment/hello"], "mwrs hello"),
        ] {
            assert_eq!(tip(words), expected, "{words:?}");
        }
        assert_eq!(
            unknown_kind(&["hello".to_owned()]),
            "explain: \"hello\" is not one of the kinds mwrs, work, rule\n\n  \
             tip: muster explain mwrs hello"
        );
    }
}
