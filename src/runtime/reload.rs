//! Settings that change while the process runs: on SIGHUP, and when the file has other content.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use actix::Addr;
use metrics::{counter, describe_counter};
use muster_actors::agent::{ChangeSettings, ClusterAgent};
use muster_actors::supervision::tell;
use tokio::signal::unix::{SignalKind, signal};
use tracing::{debug, error, info, warn};

use crate::settings::{Changes, Settings, SettingsError};
use crate::telemetry::Telemetry;

/// How often the file is read. A mounted ConfigMap is replaced as a whole, by a link to another
/// directory, which no watch of the file itself would see.
const INTERVAL: Duration = Duration::from_secs(2);

const RELOADS: &str = "muster_config_reloads_total";

/// What can change in a process that runs. Cheap to clone; clones share it.
#[derive(Debug, Clone)]
pub struct Live(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    settings: Settings,
    agents: Vec<Addr<ClusterAgent>>,
}

impl Live {
    pub(super) fn new(settings: Settings) -> Self {
        Self(Arc::new(Mutex::new(State {
            settings,
            agents: Vec::new(),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts an agent with the settings of this moment; later ones reach it.
    pub(super) fn start_agent(
        &self,
        start: impl FnOnce(&Settings) -> Addr<ClusterAgent>,
    ) -> Addr<ClusterAgent> {
        let mut state = self.lock();
        let agent = start(&state.settings);
        state.agents.push(agent.clone());
        agent
    }

    /// Takes new settings over, as far as a running process can. Says what has changed.
    fn take_over(&self, settings: Settings) -> Changes {
        let mut state = self.lock();
        let changes = Changes::between(&state.settings, &settings);
        if changes.agents {
            let new = super::agent_settings(&settings);
            for agent in &state.agents {
                // It has ended, or has more work than can be: the next change reaches it.
                if let Err(refused) = tell(agent, ChangeSettings(new.clone())) {
                    warn!(?refused, "an agent did not take its new settings");
                }
            }
        }
        state.settings = settings;
        changes
    }
}

/// How settings are read again.
pub struct Reload {
    file: Option<PathBuf>,
    content: Option<Vec<u8>>,
    load: Box<dyn Fn() -> Result<Settings, SettingsError> + Send>,
}

impl Reload {
    /// By `load`, which reads all layers. The content of `file`, if there is one, counts from now
    /// on: to be called before the settings are loaded that the process starts with.
    pub fn new(
        file: Option<&Path>,
        load: impl Fn() -> Result<Settings, SettingsError> + Send + 'static,
    ) -> Self {
        Self {
            file: file.map(Into::into),
            content: file.and_then(|file| std::fs::read(file).ok()),
            load: Box::new(load),
        }
    }
}

impl std::fmt::Debug for Reload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reload")
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

/// Reads settings again whenever there is a reason to; never ends. What is wrong with them is
/// logged, and the old ones stay.
pub async fn run(reload: Reload, live: Live, telemetry: Telemetry) {
    describe_counter!(
        RELOADS,
        "Times that settings were read again, by result; unchanged where that gave the same ones."
    );
    let hangups = futures::stream::unfold(signal(SignalKind::hangup()), |hangup| async {
        // Without a handler SIGHUP ends the process, which then reads them when it starts again.
        let mut hangup = hangup.ok()?;
        hangup.recv().await?;
        Some(((), Ok(hangup)))
    });
    let set_log_level = move |level: &str| {
        if let Err(error) = telemetry.set_log_level(level) {
            error!(%error, "failed to change the log level");
        }
    };
    watch(reload, INTERVAL, hangups, |settings| {
        let level = settings.telemetry.log_level.clone();
        let changes = live.take_over(settings);
        if changes.log_level {
            set_log_level(&level);
        }
        changes
    })
    .await;
}

async fn watch(
    mut reload: Reload,
    interval: Duration,
    hangups: impl futures::Stream<Item = ()>,
    mut take_over: impl FnMut(Settings) -> Changes,
) {
    use futures::StreamExt;
    let mut hangups = std::pin::pin!(hangups.fuse());
    loop {
        let reason = tokio::select! {
            Some(()) = hangups.next() => "SIGHUP",
            () = tokio::time::sleep(interval), if reload.file.is_some() => {
                let now = read(reload.file.as_deref()).await;
                if now == reload.content {
                    continue;
                }
                reload.content = now;
                "the file changed"
            }
            else => return std::future::pending().await,
        };
        let result = match (reload.load)() {
            Ok(settings) => told(reason, &take_over(settings)),
            Err(error) => {
                error!(reason, %error, "settings not read again, the old ones stay");
                "failed"
            }
        };
        counter!(RELOADS, "result" => result).increment(1);
    }
}

async fn read(file: Option<&Path>) -> Option<Vec<u8>> {
    tokio::fs::read(file?).await.ok()
}

/// Logs what has changed; gives the label of the metric.
fn told(reason: &str, changes: &Changes) -> &'static str {
    if changes.is_empty() {
        info!(reason, "settings read again, nothing has changed");
        return "unchanged";
    }
    info!(reason, "settings read again");
    debug!(?changes, "settings taken over");
    if !changes.at_next_start.is_empty() {
        warn!(
            keys = changes.at_next_start.join(", "),
            "changed settings that take effect at the next start"
        );
    }
    "ok"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Sources;
    use futures::StreamExt;
    use futures::channel::mpsc;

    struct World {
        _dir: tempfile::TempDir,
        file: PathBuf,
        hangup: mpsc::UnboundedSender<()>,
        taken: mpsc::UnboundedReceiver<Settings>,
        _task: tokio_util::task::AbortOnDropHandle<()>,
    }

    impl World {
        fn start(text: &str) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join("muster.toml");
            std::fs::write(&file, text).unwrap();
            let sources = Sources::default().with_file(&file);
            let reload = Reload::new(Some(&file), move || Settings::load(&sources));
            let (hangup, hangups) = mpsc::unbounded();
            let (sender, taken) = mpsc::unbounded();
            let mut current = (reload.load)().unwrap();
            let task = watch(reload, Duration::from_millis(5), hangups, move |settings| {
                let changes = Changes::between(&current, &settings);
                current = settings.clone();
                sender.unbounded_send(settings).unwrap();
                changes
            });
            Self {
                _dir: dir,
                file,
                hangup,
                taken,
                _task: tokio_util::task::AbortOnDropHandle::new(tokio::spawn(task)),
            }
        }

        async fn next_cap(&mut self) -> u32 {
            self.taken.next().await.unwrap().watch.max_watches
        }
    }

    #[tokio::test]
    async fn a_signal_and_another_content_are_reasons() {
        let mut world = World::start("[watch]\nmax_watches = 1\n");
        world.hangup.unbounded_send(()).unwrap();
        assert_eq!(world.next_cap().await, 1);
        std::fs::write(&world.file, "[watch]\nmax_watches = 2\n").unwrap();
        assert_eq!(world.next_cap().await, 2);
    }

    #[tokio::test]
    async fn broken_settings_are_left_out_and_better_ones_taken() {
        let mut world = World::start("[watch]\nmax_watches = 1\n");
        std::fs::write(&world.file, "[watch]\nmax_watch = 2\n").unwrap();
        world.hangup.unbounded_send(()).unwrap();
        std::fs::remove_file(&world.file).unwrap();
        world.hangup.unbounded_send(()).unwrap();
        std::fs::write(&world.file, "[watch]\nmax_watches = 3\n").unwrap();
        assert_eq!(world.next_cap().await, 3);
    }

    #[tokio::test]
    async fn a_link_to_another_file_is_another_content() {
        let mut world = World::start("");
        let next = world.file.with_extension("next");
        std::fs::write(&next, "[watch]\nmax_watches = 4\n").unwrap();
        std::fs::remove_file(&world.file).unwrap();
        std::os::unix::fs::symlink(&next, &world.file).unwrap();
        while world.next_cap().await != 4 {}
    }

    #[test]
    fn what_changed_has_a_label() {
        let restart = Changes {
            at_next_start: vec!["hub"],
            ..Changes::default()
        };
        assert_eq!(told("SIGHUP", &Changes::default()), "unchanged");
        assert_eq!(told("SIGHUP", &restart), "ok");
    }
}
