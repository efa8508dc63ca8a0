//! `muster demo`: a hub, simulated clusters and a rollout in one process, told on a terminal.

mod board;
mod documents;

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use muster_api::constants as names;
use muster_api::replicaset::ManifestWorkReplicaSet;
use muster_api::work::ManifestWork;
use tempfile::NamedTempFile;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::exit::{FAILED, MISUSED, NOT_THERE, fail};
use crate::runtime::{self, Roles, Runtime};
use crate::settings::{Cluster, ClusterAccess, Settings, Sources};
use crate::{print, telemetry, terminal};
use board::Board;

/// How often the board is drawn again, at most; faster than this nobody reads.
const REDRAW: Duration = Duration::from_millis(100);

/// What the demo is asked for.
#[derive(Debug, Clone)]
pub struct DemoOptions {
    /// Number of simulated clusters.
    pub clusters: u16,
    /// Objects in place of the sample.
    pub file: Option<PathBuf>,
    /// End by itself when every cluster got there, or `timeout` is over.
    pub once: bool,
    /// See `once`.
    pub timeout: Duration,
    /// How long a simulated replica takes to become ready.
    pub pace: Duration,
}

/// Runs the demo until Ctrl-C, or with `once` until it is over.
pub fn run(options: DemoOptions) -> ExitCode {
    let documents = match documents::read(options.file.as_deref()) {
        Ok(documents) => documents,
        Err(error) => return fail(MISUSED, &error),
    };
    let settings = match settings(&options) {
        Ok(settings) => settings,
        Err(error) => return fail(MISUSED, &error),
    };
    let telemetry = match telemetry::init(&settings.telemetry) {
        Ok(telemetry) => telemetry,
        Err(error) => return fail(FAILED, &error),
    };
    runtime::block_on(async move {
        let stop = runtime::stop_signal();
        let running = match Runtime::start(&settings, Roles::HubAndAgents, Some(telemetry)).await {
            Ok(running) => running,
            Err(error) => return fail(FAILED, &error),
        };
        let code = tokio::select! {
            code = show(&running, &options, documents) => {
                code.unwrap_or_else(|error| print::failed(&error))
            }
            _ = stop => ExitCode::SUCCESS,
        };
        let left = running.stop_within(stop_limit(options.clusters)).await;
        if left.is_empty() {
            code
        } else {
            fail(FAILED, &format!("did not end: {left:?}"))
        }
    })
}

/// How long each group of actors may take to stop. All agents share a thread, which a thousand of them
/// in the middle of a rollout keep busy; nobody kills a demo after 30 seconds, as a pod would be.
fn stop_limit(clusters: u16) -> Duration {
    Duration::from_secs(8) + Duration::from_millis(100) * u32::from(clusters)
}

/// Settings of the demo: nothing on disk, free ports, quick polls, quiet logs. Neither a settings
/// file nor the environment counts (but for `RUST_LOG`), so that it shows the same everywhere.
fn settings(options: &DemoOptions) -> Result<Settings, crate::settings::SettingsError> {
    let sources = [
        ("hub.listen", "127.0.0.1:0".to_owned()),
        ("telemetry.listen", "127.0.0.1:0".to_owned()),
        (
            "telemetry.log_level",
            std::env::var("RUST_LOG").unwrap_or_else(|_| "warn".to_owned()),
        ),
        ("feedback.poll_interval", "250ms".to_owned()),
        ("simulator.pace", format!("{}ms", options.pace.as_millis())),
    ]
    .into_iter()
    .fold(Sources::default(), |sources, (key, value)| {
        sources.with_flag(key, value)
    });
    let mut settings = Settings::load(&sources)?;
    settings.clusters = (1..=options.clusters)
        .map(|n| Cluster {
            name: format!("cluster{n}"),
            access: ClusterAccess::Simulated,
            labels: BTreeMap::from([("name".to_owned(), format!("cluster{n}"))]),
        })
        .collect();
    Ok(settings)
}

/// One change of what is on the board.
enum Change {
    Set(watcher::Event<ManifestWorkReplicaSet>),
    Work(watcher::Event<ManifestWork>),
}

fn changes(client: &Client) -> impl Stream<Item = Change> + Send + use<> {
    let config = watcher::Config::default;
    let sets: Api<ManifestWorkReplicaSet> = Api::all(client.clone());
    let works: Api<ManifestWork> = Api::all(client.clone());
    let owned = config().labels(names::MANIFEST_WORK_REPLICA_SET_CONTROLLER_NAME_LABEL_KEY);
    let sets = watcher(sets, config())
        .default_backoff()
        .filter_map(|event| async { event.ok().map(Change::Set) });
    let works = watcher(works, owned)
        .default_backoff()
        .filter_map(|event| async { event.ok().map(Change::Work) });
    stream::select(sets.boxed(), works.boxed())
}

fn take(board: &mut Board, change: Change) {
    match change {
        Change::Set(watcher::Event::Apply(set) | watcher::Event::InitApply(set)) => {
            board.set_changed(&set);
        }
        Change::Set(watcher::Event::Delete(set)) => board.set_gone(&set),
        Change::Work(watcher::Event::Apply(work) | watcher::Event::InitApply(work)) => {
            board.work_changed(&work);
        }
        Change::Work(watcher::Event::Delete(work)) => board.work_gone(&work),
        Change::Set(_) | Change::Work(_) => {}
    }
}

/// `1 cluster`, `3 clusters`.
fn clusters(number: usize) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{number} cluster{s}")
}

/// Tells who is running, and where to look.
fn greet(running: &Runtime, number: u16, kubeconfig: &io::Result<NamedTempFile>) -> io::Result<()> {
    let s = if number == 1 { "" } else { "s" };
    print::line(format_args!(
        "muster demo: a hub and {number} simulated cluster{s}, all in this process."
    ))?;
    if let Some(address) = running.telemetry_address() {
        print::line(format_args!(
            "the dashboard: http://{address}/ (beside it /metrics, /readyz, /debug/actors)"
        ))?;
    }
    match kubeconfig {
        Ok(file) => print::line(format_args!(
            "look for yourself:\n  KUBECONFIG={} kubectl get mwrs,manifestworks -A -o wide\n",
            file.path().display()
        )),
        Err(error) => print::line(format_args!(
            "no kubeconfig for kubectl can be written here: {error}\n"
        )),
    }
}

async fn show(
    running: &Runtime,
    options: &DemoOptions,
    mut documents: Vec<kube::api::DynamicObject>,
) -> io::Result<ExitCode> {
    // A hub in this process is what `run` asked for.
    let (Some(client), Some(kubeconfig)) = (running.hub_client(), running.hub_kubeconfig()) else {
        return Ok(fail(FAILED, &"the demo has no hub"));
    };
    // In an image without a folder for temporary files there is nowhere to put it, and no kubectl.
    let kubeconfig = runtime::temporary_kubeconfig(&kubeconfig);
    greet(running, options.clusters, &kubeconfig)?;
    let missing = documents::missing_placements(&documents);
    for placement in &missing {
        let name = placement.metadata.name.as_deref().unwrap_or_default();
        print::line(format_args!(
            "placement {name} is not in the file: one that selects every cluster is made"
        ))?;
    }
    documents.splice(0..0, missing);
    let begin = Instant::now();
    let mut changes = changes(&client);
    if let Err(error) = documents::apply(&client, &documents).await {
        return Ok(fail(FAILED, &error));
    }
    let what: Vec<String> = documents
        .iter()
        .map(|d| {
            format!(
                "{} {}",
                documents::kind(d),
                d.metadata.name.as_deref().unwrap_or("")
            )
        })
        .collect();
    print::line(format_args!("created on the hub: {}\n", what.join(", ")))?;

    let mut board = Board::default();
    let mut screen = Screen::new();
    let mut redraw = interval(REDRAW);
    redraw.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut dirty = true;
    let mut told = false;
    loop {
        tokio::select! {
            Some(change) = changes.next() => {
                take(&mut board, change);
                dirty = true;
            }
            _ = redraw.tick() => {
                // The sums follow the works by a moment: success is told when nothing moves.
                let quiet = !dirty;
                if dirty {
                    screen.draw(&board)?;
                    dirty = false;
                }
                let over = options.once && begin.elapsed() > options.timeout;
                if !told && (quiet || over) && board.everyone_is_there() {
                    told = true;
                    let (there, _) = board.count();
                    let all = if there == 1 { "" } else { "all " };
                    let (clusters, took) = (clusters(there), begin.elapsed());
                    print::line(format_args!("{all}{clusters} got there in {took:.1?}"))?;
                    if options.once {
                        return Ok(ExitCode::SUCCESS);
                    }
                    print::line(
                        "change the replica set with kubectl and watch; Ctrl-C ends the demo",
                    )?;
                    screen.forget();
                }
                if over {
                    let (there, all) = board.count();
                    let (clusters, timeout) = (clusters(all), options.timeout);
                    let mut text = format!("{there} of {clusters} got there within {timeout:?}");
                    if there == all {
                        text.push_str("; not every replica set is Ready");
                    }
                    return Ok(fail(NOT_THERE, &text));
                }
            }
        }
    }
}

/// Draws in place on a terminal; elsewhere prints each line that changed.
struct Screen {
    terminal: bool,
    /// Lines of the last picture.
    height: usize,
    /// What was printed last.
    lines: BTreeMap<String, String>,
}

impl Screen {
    fn new() -> Self {
        Self {
            terminal: io::stdout().is_terminal(),
            height: 0,
            lines: BTreeMap::new(),
        }
    }

    fn draw(&mut self, board: &Board) -> io::Result<()> {
        if !self.terminal {
            let lines = board.lines();
            for line in changed(&self.lines, &lines) {
                print::line(line)?;
            }
            self.lines = lines;
            return Ok(());
        }
        // The cursor cannot go back above the first line.
        let room = terminal::size().map_or(usize::MAX, |size| size.rows.saturating_sub(2));
        let picture = board.render(room);
        let back = match self.height {
            0 => String::new(),
            lines => format!("\x1b[{lines}A\x1b[J"),
        };
        self.height = picture.lines().count() + 1;
        // Without wrapping, a line of the picture is a line of the terminal, however narrow it is.
        print::bytes(format!("{back}\x1b[?7l{picture}\n\x1b[?7h\n"))
    }

    /// The next picture goes below what was printed in between.
    const fn forget(&mut self) {
        self.height = 0;
    }
}

/// Lines that are not as they were.
fn changed<'a>(
    before: &BTreeMap<String, String>,
    now: &'a BTreeMap<String, String>,
) -> impl Iterator<Item = &'a String> {
    now.iter()
        .filter(|(key, line)| before.get(*key) != Some(*line))
        .map(|(_, line)| line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_that_changed_are_told_again() {
        let lines = |lines: &[(&str, &str)]| {
            let lines = lines.iter();
            lines
                .map(|(key, line)| ((*key).to_owned(), (*line).to_owned()))
                .collect::<BTreeMap<_, _>>()
        };
        let before = lines(&[("a", "1"), ("b", "1"), ("gone", "1")]);
        let now = lines(&[("a", "1"), ("b", "2"), ("c", "1")]);
        let told: Vec<&String> = changed(&before, &now).collect();
        assert_eq!(told, ["2", "1"]);
        assert_eq!(changed(&now, &now).count(), 0);
    }

    #[test]
    fn one_cluster_is_not_clusters() {
        assert_eq!(clusters(1), "1 cluster");
        assert_eq!(clusters(0), "0 clusters");
    }
}
