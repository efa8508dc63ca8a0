//! The command line: what a user can ask for.

mod access;
mod agent;
mod commands;
mod error;
mod explain;
mod flags;
mod manual;
mod names;
mod output;
mod pages;
mod rollout;
mod set;
mod status;
mod table;
mod wrap;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::demo::DemoOptions;
use crate::reference;
use crate::runtime::Roles;
use crate::settings::Sources;

pub use agent::AgentArgs;

/// Delivers Kubernetes manifests to many clusters and musters their live status back.
#[derive(Debug, Parser)]
#[command(name = "muster", version, about, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// Where settings come from.
#[derive(Debug, Clone, Args)]
pub struct ConfigArgs {
    /// Settings file in TOML (env: `MUSTER_CONFIG`).
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Set one key, over file and environment (example: `feedback.poll_interval=30s`).
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_value)]
    set: Vec<(String, String)>,
}

fn key_value(text: &str) -> Result<(String, String), String> {
    text.split_once('=')
        .map(|(key, value)| (key.trim().to_owned(), value.to_owned()))
        .ok_or_else(|| format!("\"{text}\" is not KEY=VALUE"))
}

impl ConfigArgs {
    /// Whether the command line names any settings.
    pub(crate) fn is_given(&self) -> bool {
        self.config.is_some() || !self.set.is_empty()
    }

    pub(crate) fn sources(&self) -> Sources {
        let sources = Sources::of_process(self.config.clone());
        self.set.iter().fold(sources, |sources, (key, value)| {
            sources.with_flag(key, value)
        })
    }
}

/// Which CRDs to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CrdSet {
    /// CRDs of a hub.
    Hub,
    /// CRDs of a cluster with an agent.
    Spoke,
    /// Additional CRDs for watch rules.
    Rules,
    /// All CRDs.
    All,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a hub and the agents of the configured clusters in one process.
    Run(ConfigArgs),
    /// Run a hub.
    Hub(ConfigArgs),
    /// Run agents for a hub elsewhere.
    Agent(AgentArgs),
    /// Show a rollout to simulated clusters; needs no Kubernetes.
    Demo(DemoArgs),
    /// Print the CustomResourceDefinitions as YAML.
    Crds {
        /// Which CRDs.
        #[arg(value_enum, default_value = "all")]
        set: CrdSet,
    },
    /// Print a kubeconfig for an embedded hub, which must have a data directory or be running.
    Kubeconfig(ConfigArgs),
    /// Read a password from standard input and print its hash for the broker's users file.
    HashPassword,
    /// Follow, pause and undo rollouts of a ManifestWorkReplicaSet.
    #[command(subcommand)]
    Rollout(rollout::RolloutCommand),
    /// Explain why something is not done yet, and since when.
    #[command(subcommand)]
    Explain(explain::ExplainCommand),
    /// Show the status of sets, clusters and works; exit code 3 if something has failed.
    Status(status::StatusArgs),
    /// Inspect the settings.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Generate shell completions.
    Completions {
        /// Shell to generate them for.
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write a page for each command.
    Man {
        /// Directory for the pages; it must exist.
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
    /// Print a page of the manual.
    #[command(subcommand, hide = true)]
    Reference(Page),
}

/// A page that is made from code.
#[derive(Debug, Subcommand)]
enum Page {
    /// Each metric with its labels.
    Metrics,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Check the settings, and print each with its origin.
    Check(CheckArgs),
}

#[derive(Debug, Args)]
struct CheckArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Command that will use the settings.
    #[arg(
        long = "for",
        value_enum,
        value_name = "COMMAND",
        default_value = "run"
    )]
    command: Starts,
    /// Do not read the files that the settings name (for settings of another machine).
    #[arg(long)]
    skip_files: bool,
}

/// Commands that start with settings.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Starts {
    Run,
    Hub,
    Agent,
}

impl Starts {
    const fn roles(self) -> Roles {
        match self {
            Self::Run => Roles::HubAndAgents,
            Self::Hub => Roles::Hub,
            Self::Agent => Roles::Agents,
        }
    }
}

#[derive(Debug, Args)]
struct DemoArgs {
    /// Number of simulated clusters.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=1000))]
    clusters: u16,
    /// Kubernetes objects in YAML to use instead of the sample; at least one
    /// ManifestWorkReplicaSet.
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Exit once all clusters are done; exit code 3 on timeout.
    #[arg(long)]
    once: bool,
    /// Timeout of `--once`.
    #[arg(long, default_value = "60s", value_parser = duration)]
    timeout: Duration,
    /// How long a simulated replica takes to become ready.
    #[arg(long, default_value = "300ms", value_parser = duration)]
    pace: Duration,
}

/// Reads a duration such as `20ms` or `1m30s`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    crate::settings::parse_duration(text)
        .ok_or_else(|| format!("invalid duration \"{text}\" (examples: 500ms, 60s)"))
}

impl Cli {
    /// Does what was asked for.
    pub fn run(self) -> ExitCode {
        match self.command {
            Command::Run(config) => commands::serve(&config.sources(), Roles::HubAndAgents),
            Command::Hub(config) => commands::serve(&config.sources(), Roles::Hub),
            Command::Agent(agent) => agent.run(),
            Command::Demo(demo) => crate::demo::run(DemoOptions {
                clusters: demo.clusters,
                file: demo.file,
                once: demo.once,
                timeout: demo.timeout,
                pace: demo.pace,
            }),
            Command::Crds { set } => commands::crds(set),
            Command::Kubeconfig(config) => commands::kubeconfig(&config.sources()),
            Command::HashPassword => commands::hash_password(),
            Command::Rollout(command) => command.run(),
            Command::Explain(command) => command.run(),
            Command::Status(args) => args.run(),
            Command::Completions { shell } => manual::completions(shell),
            Command::Man { dir } => manual::man(dir.as_deref()),
            Command::Reference(Page::Metrics) => output::show(reference::metrics_page()),
            Command::Config(ConfigCommand::Check(args)) => {
                let (sources, roles) = (args.config.sources(), args.command.roles());
                commands::config_check(&sources, roles, !args.skip_files)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    /// Those between backticks, too, unless they show a choice.
    #[test]
    fn commands_in_the_documents_are_understood() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let documents = [
            "",
            "docs",
            "deploy",
            "deploy/charts/muster",
            "deploy/mosquitto",
        ]
        .iter()
        .flat_map(|folder| std::fs::read_dir(root.join(folder)).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "md"));
        let mut seen = 0;
        for document in documents {
            let text = std::fs::read_to_string(&document).unwrap();
            let text = text.replace("\\\n", " ");
            let typed = text
                .lines()
                .filter_map(|line| line.strip_prefix("    ").map(str::trim));
            let quoted = text.split('`').skip(1).step_by(2);
            let all = typed
                .filter(|line| line.starts_with("muster "))
                .chain(quoted.filter(|code| code.starts_with("muster ") && !code.contains('\n')));
            for command in all {
                let command = command.split("  #").next().unwrap();
                let command = command.split(['<', '>']).next().unwrap().trim();
                if command.contains(['[', '|', '…']) {
                    continue;
                }
                // What stands for something is put in.
                let words = command.split_whitespace().map(|word| match word {
                    "N" => "2".to_owned(),
                    "SHELL" => "bash".to_owned(),
                    word if word.starts_with('-') => word.to_owned(),
                    word => word.to_lowercase(),
                });
                seen += 1;
                if let Err(error) = Cli::try_parse_from(words)
                    && !matches!(
                        error.kind(),
                        clap::error::ErrorKind::DisplayHelp
                            | clap::error::ErrorKind::DisplayVersion
                            | clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
                            | clap::error::ErrorKind::MissingRequiredArgument
                    )
                {
                    panic!("{}: {command}: {error}", document.display());
                }
            }
        }
        assert!(seen > 15, "only {seen} commands were found");
    }

    #[test]
    fn settings_on_the_command_line_are_pairs() {
        assert_eq!(
            key_value("a.b=c=d"),
            Ok(("a.b".to_owned(), "c=d".to_owned()))
        );
        assert_eq!(key_value("a.b"), Err("\"a.b\" is not KEY=VALUE".to_owned()));
        assert!(
            duration("soon")
                .unwrap_err()
                .contains("invalid duration \"soon\"")
        );
    }
}
