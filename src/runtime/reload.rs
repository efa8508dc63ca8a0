//! Settings that are read again while the process runs: at SIGHUP, and when their file has another
//! content.
//!
//! What is wrong changes nothing. What can take effect at once is decided in
//! [`Running`]; [`Runtime::work`](super::Runtime::work) brings it to the agents.

use std::path::{Path, PathBuf};
use std::time::Duration;

use metrics::counter;
use muster_metrics::{Label, Metric};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{error, info, warn};

use crate::settings::{Running, Settings, SettingsError};

const RELOADS: Metric = Metric::counter(
    "muster_config_reloads_total",
    "Times that the settings were read again.",
)
.labels(&[Label::one_of(
    "result",
    &[
        ("ok", "something has changed, and is taken over or named"),
        ("unchanged", "they mean the same as before"),
        (
            "failed",
            "they are wrong; the previous ones stay, and the log names every mistake",
        ),
    ],
)]);

/// What is recorded of settings.
pub const METRICS: &[Metric] = &[RELOADS];

/// Pause between two looks at the file. A change counts when two looks agree on it, so that a file
/// that an editor has emptied and not yet written is not taken for one without settings. Contents
/// are compared, since a mounted ConfigMap replaces a link and not the file.
const INTERVAL: Duration = Duration::from_secs(1);

/// What a file holds; `None` if it cannot be read.
type Content = Option<Vec<u8>>;

/// The settings file, as far as a process looks at it.
#[derive(Debug)]
pub struct SettingsFile {
    path: Option<PathBuf>,
    /// Whether reading it again can tell anything: a pipe is empty then.
    again: bool,
    /// What the settings were last read from.
    taken: Content,
    /// What the last look saw.
    last: Content,
}

impl SettingsFile {
    /// Looks at the file, if there is one. To be called before the settings are loaded, so that no
    /// change after it is missed.
    pub fn new(path: Option<&Path>) -> Self {
        // One that is not there yet is a file that appears.
        let again = path.is_none_or(|path| path.is_file() || !path.exists());
        let taken = path
            .filter(|_| again)
            .and_then(|path| std::fs::read(path).ok());
        Self {
            path: path.map(Path::to_owned),
            again,
            last: taken.clone(),
            taken,
        }
    }

    async fn read(&self) -> Content {
        tokio::fs::read(self.path.as_ref()?).await.ok()
    }

    /// Whether a look that sees `content` settles a change.
    fn look(&mut self, content: Content) -> bool {
        let settled = content == self.last && content != self.taken;
        self.last = content;
        if settled {
            self.taken.clone_from(&self.last);
        }
        settled
    }

    /// Waits for a change.
    async fn changed(&mut self, interval: Duration) {
        if self.path.is_none() || !self.again {
            return std::future::pending().await;
        }
        loop {
            tokio::time::sleep(interval).await;
            let content = self.read().await;
            if self.look(content) {
                return;
            }
        }
    }

    /// Takes what the file holds now for what the settings are read from.
    async fn take(&mut self) {
        self.taken = self.read().await;
        self.last.clone_from(&self.taken);
    }
}

/// SIGHUP, taken over from now on.
#[derive(Debug)]
pub struct Hangups(Option<Signal>);

impl Hangups {
    /// To be called before anything is started that must be stopped in order: without a handler
    /// the signal ends the process.
    pub fn take_over() -> Self {
        Self(signal(SignalKind::hangup()).ok())
    }

    async fn next(&mut self) {
        if let Some(signal) = &mut self.0
            && signal.recv().await.is_some()
        {
            return;
        }
        std::future::pending::<()>().await; // no handler, or no signals any more
    }
}

/// Reads the settings again when there is a reason to.
#[derive(Debug)]
pub struct Reloader<L> {
    file: SettingsFile,
    running: Running,
    load: L,
    /// What the file held when the error in it was told.
    told: Option<Content>,
}

impl<L: Fn() -> Result<Settings, SettingsError>> Reloader<L> {
    /// `load` brings all layers together, as at the start.
    pub fn new(file: SettingsFile, running: Running, load: L) -> Self {
        // So that the first failure is an increase.
        for result in ["ok", "failed", "unchanged"] {
            counter!(RELOADS.name, "result" => result).increment(0);
        }
        Self {
            file,
            running,
            load,
            told: None,
        }
    }

    /// Waits until other settings are to take effect, and gives them all.
    pub async fn changed(&mut self, hangups: &mut Hangups) -> Settings {
        loop {
            tokio::select! {
                () = hangups.next() => {
                    info!("SIGHUP, reloading the settings");
                    if self.file.again {
                        self.file.take().await;
                    }
                }
                () = self.file.changed(INTERVAL) => {}
            }
            if self.read_again() {
                return self.running.settings().clone();
            }
        }
    }

    /// Reads the settings; whether others take effect.
    fn read_again(&mut self) -> bool {
        let loaded = if self.file.again {
            (self.load)().map_err(|error| error.to_string())
        } else {
            Err("the settings file is not a regular file and cannot be read twice".to_owned())
        };
        let settings = match loaded {
            Ok(settings) => settings,
            Err(error) => {
                counter!(RELOADS.name, "result" => "failed").increment(1);
                if self.told.as_ref() != Some(&self.file.taken) {
                    error!(%error, "reload failed, keeping the previous settings");
                    self.told = Some(self.file.taken.clone());
                }
                return false;
            }
        };
        self.told = None;
        let changes = self.running.take_over(&settings);
        let result = if changes.is_empty() {
            "unchanged"
        } else {
            "ok"
        };
        counter!(RELOADS.name, "result" => result).increment(1);
        if !changes.restart.is_empty() {
            let keys = changes.restart.join(", ");
            warn!(keys, "changed settings need a restart");
        }
        if !changes.live.is_empty() {
            let keys = changes.live.join(", ");
            info!(keys, "settings changed");
        }
        !changes.live.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::symlink;
    use std::sync::{Arc, Mutex};

    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;
    use crate::settings::Sources;

    /// A settings file in a directory of its own.
    struct Place {
        dir: tempfile::TempDir,
        path: PathBuf,
    }

    impl Place {
        fn new(text: &str) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("muster.toml");
            fs::write(&path, text).unwrap();
            Self { dir, path }
        }

        /// A process that reads the file, under a flag.
        fn reloader(&self) -> Reloader<impl Fn() -> Result<Settings, SettingsError> + use<>> {
            let file = SettingsFile::new(Some(&self.path));
            let sources = Sources::default()
                .with_file(&self.path)
                .with_flag("agent.workers", "2");
            let load = move || Settings::load(&sources);
            let running = Running::new(load().unwrap(), false);
            Reloader::new(file, running, load)
        }
    }

    /// What is logged and counted while `act` runs.
    fn recorded(act: impl FnOnce()) -> (String, String) {
        #[derive(Clone, Default)]
        struct Lines(Arc<Mutex<Vec<u8>>>);
        impl Write for Lines {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                let mut lines = self.0.lock().map_err(|_| std::io::ErrorKind::Other)?;
                lines.write(bytes)
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        let recorder = PrometheusBuilder::new().build_recorder();
        let metrics = recorder.handle();
        metrics::with_local_recorder(&recorder, || {
            tracing::subscriber::with_default(subscriber, act);
        });
        let log = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        (log, metrics.render())
    }

    fn counted(metrics: &str) -> [u32; 3] {
        ["ok", "failed", "unchanged"].map(|result| {
            let name = format!("{}{{result=\"{result}\"}} ", RELOADS.name);
            let line = metrics.lines().find_map(|line| line.strip_prefix(&name));
            line.unwrap_or_else(|| panic!("no {name}in {metrics}"))
                .parse()
                .unwrap()
        })
    }

    #[test]
    fn settings_change_under_the_flags() {
        let place = Place::new("[watch]\nmax_watches = 7\n");
        let (log, metrics) = recorded(|| {
            let mut reloader = place.reloader();
            assert!(!reloader.read_again());
            let text = "[watch]\nmax_watches = 8\n[agent]\nworkers = 9\n[hub]\ncontext = \"c\"\n";
            fs::write(&place.path, text).unwrap();
            assert!(reloader.read_again());
            let settings = reloader.running.settings();
            assert_eq!(settings.watch.max_watches, 8);
            assert_eq!(settings.agent.workers.get(), 2);
            assert_eq!(settings.hub.context, None);
            // What waits for a restart is told again, and no reason to change anything.
            assert!(!reloader.read_again());
        });
        assert_eq!(counted(&metrics), [2, 0, 1]);
        assert!(
            log.contains("settings changed keys=\"watch.max_watches\""),
            "{log}"
        );
        let waits = "changed settings need a restart keys=\"hub.context\"";
        assert_eq!(log.matches(waits).count(), 2, "{log}");
    }

    #[test]
    fn a_broken_file_changes_nothing_and_is_told_once_for_each_content() {
        let place = Place::new("[watch]\nmax_watches = 7\n");
        let broken = "[watch]\nmax_watches = 8\nwiden_after = 0\n";
        let (log, metrics) = recorded(|| {
            let reloader = RefCell::new(place.reloader());
            let read = |content: Option<&str>| {
                match content {
                    Some(text) => fs::write(&place.path, text).unwrap(),
                    None => fs::remove_file(&place.path).unwrap(),
                }
                let mut reloader = reloader.borrow_mut();
                reloader.file.taken = content.map(Into::into);
                let changed = reloader.read_again();
                (changed, reloader.running.settings().watch.max_watches)
            };
            assert_eq!(read(Some(broken)), (false, 7));
            assert_eq!(read(Some(broken)), (false, 7));
            assert_eq!(read(Some("max_watches = ")), (false, 7));
            assert_eq!(read(None), (false, 7));
            assert_eq!(read(Some("[watch]\nmax_watches = 6\n")), (true, 6));
            assert_eq!(read(Some(broken)), (false, 6));
        });
        assert_eq!(counted(&metrics), [1, 5, 0]);
        assert_eq!(
            log.matches("reload failed, keeping the previous settings")
                .count(),
            4,
            "{log}"
        );
        let wrong = "muster.toml:3: watch.widen_after is 0";
        assert_eq!(log.matches(wrong).count(), 2, "{log}");
        assert!(log.contains("muster.toml:1: not TOML"), "{log}");
        assert!(log.contains("failed to read settings file"), "{log}");
    }

    /// As `--config <(…)` of a shell: the settings would be empty.
    #[test]
    fn a_pipe_is_not_read_twice() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"[watch]\nmax_watches = 7\n").unwrap();
        drop(writer);
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(&reader);
        let place = Place::new("");
        fs::remove_file(&place.path).unwrap();
        symlink(format!("/proc/self/fd/{descriptor}"), &place.path).unwrap();
        let (log, metrics) = recorded(|| {
            let mut reloader = place.reloader();
            assert!(!reloader.read_again());
            assert_eq!(reloader.running.settings().watch.max_watches, 7);
        });
        assert_eq!(counted(&metrics), [0, 1, 0]);
        assert!(log.contains("not a regular file"), "{log}");
    }

    #[test]
    fn a_change_counts_when_two_looks_agree() {
        let place = Place::new("1");
        let mut file = SettingsFile::new(Some(&place.path));
        let looks = [
            ("1", false),
            ("", false), // an editor has emptied it
            ("12", false),
            ("12", true),
            ("12", false),
            ("", false),
            ("12", false), // as it was taken
            ("12", false),
        ];
        for (turn, (content, settled)) in looks.into_iter().enumerate() {
            assert_eq!(file.look(Some(content.into())), settled, "{turn}");
        }
        assert!(!file.look(None));
        assert!(file.look(None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_replaced_link_is_a_change_of_the_file() {
        // As kubelet mounts a ConfigMap.
        let place = Place::new("");
        let version = |name: &str, cap: u32| {
            let dir = place.dir.path().join(name);
            fs::create_dir(&dir).unwrap();
            let text = format!("[watch]\nmax_watches = {cap}\n");
            fs::write(dir.join("muster.toml"), text).unwrap();
            let (link, data) = (
                place.dir.path().join("..tmp"),
                place.dir.path().join("..data"),
            );
            symlink(name, &link).unwrap();
            fs::rename(link, data).unwrap();
        };
        version("..1", 1);
        fs::remove_file(&place.path).unwrap();
        symlink("..data/muster.toml", &place.path).unwrap();
        let mut reloader = place.reloader();
        version("..2", 2);
        let settings = reloader.changed(&mut Hangups(None)).await;
        assert_eq!(settings.watch.max_watches, 2);

        // A broken one between two good ones is passed over.
        fs::write(&place.path, "[").unwrap();
        let mut hangups = Hangups(None);
        let changed = reloader.changed(&mut hangups);
        let waited = tokio::time::timeout(Duration::from_secs(60), changed).await;
        waited.unwrap_err();
        version("..3", 3);
        let settings = reloader.changed(&mut Hangups(None)).await;
        assert_eq!(settings.watch.max_watches, 3);
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_file_only_a_signal_counts() {
        let mut file = SettingsFile::new(None);
        let waited = tokio::time::timeout(Duration::from_secs(60), file.changed(INTERVAL)).await;
        waited.unwrap_err();
    }
}
