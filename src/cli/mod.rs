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
    /// Settings file (TOML); `MUSTER_CONFIG` names one, too.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// One setting over file and environment, such as `feedback.poll_interval=30s`.
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
    /// Those that a hub needs.
    Hub,
    /// Those that a cluster with an agent needs.
    Spoke,
    /// Those that it needs besides for watch rules.
    Rules,
    /// All.
    All,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the hub and the agents of the configured clusters in one process.
    Run(ConfigArgs),
    /// Run the hub alone.
    Hub(ConfigArgs),
    /// Run agents alone, against a hub elsewhere.
    Agent(AgentArgs),
    /// See a rollout reach simulated clusters, without any Kubernetes.
    Demo(DemoArgs),
    /// Print the CustomResourceDefinitions as YAML.
    Crds {
        /// Which of them.
        #[arg(value_enum, default_value = "all")]
        set: CrdSet,
    },
    /// Print a kubeconfig for the embedded hub, which must have a data directory.
    Kubeconfig(ConfigArgs),
    /// Read a password from standard input and print its hash for the broker's file of users.
    HashPassword,
    /// Follow, pause and take back what a ManifestWorkReplicaSet rolls out.
    #[command(subcommand)]
    Rollout(rollout::RolloutCommand),
    /// Say why something is not done yet, and since when.
    #[command(subcommand)]
    Explain(explain::ExplainCommand),
    /// Show how sets, clusters and works stand; exit code 3 if something has failed.
    Status(status::StatusArgs),
    /// Look at the settings.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print what makes a shell complete commands and flags.
    Completions {
        /// Which shell.
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write one for each command.
    Man {
        /// Folder for the pages; it must exist.
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
    /// Check the settings and print each with where it comes from.
    Check(CheckArgs),
}

#[derive(Debug, Args)]
struct CheckArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// The command that is to start with them.
    #[arg(
        long = "for",
        value_enum,
        value_name = "COMMAND",
        default_value = "run"
    )]
    command: Starts,
    /// Do not read the files that the settings name, which may be on another machine.
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
    /// Kubernetes objects (YAML) to use in place of the sample; at least one
    /// ManifestWorkReplicaSet.
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// End when every cluster got there; exit code 3 if they did not in time.
    #[arg(long)]
    once: bool,
    /// How long `--once` waits.
    #[arg(long, default_value = "60s", value_parser = duration)]
    timeout: Duration,
    /// How long a simulated replica takes to become ready.
    #[arg(long, default_value = "300ms", value_parser = duration)]
    pace: Duration,
}

/// Reads a duration such as `20ms` or `1m30s`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    crate::settings::parse_duration(text)
        .ok_or_else(|| format!("\"{text}\" is no duration such as 500ms, 60s or 10m"))
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
                .contains("\"soon\" is no duration")
        );
    }
}
