//! What a process needs around a [`Runtime`](super::Runtime): threads, signals, files.

use std::fs::{DirBuilder, File};
use std::future::Future;
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use kube::config::Kubeconfig;
use muster_actors::supervision::stalled;
use tracing::error;

use crate::exit::FAILED;

/// File in the data directory with access to the embedded hub.
const KUBECONFIG: &str = "kubeconfig";

/// After a signal, an ordered stop takes at most 25 seconds, and Kubernetes kills after 30. What has
/// not ended by then never will: a thread is held.
pub const EXIT_LIMIT: Duration = Duration::from_secs(28);

/// Runs `main` inside an actix system whose requests run on worker threads.
///
/// # Panics
///
/// When the system gives the process no threads or no event queue.
pub fn block_on<T>(main: impl Future<Output = T>) -> T {
    let system = actix::System::with_tokio_rt(|| {
        tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .thread_name("muster-worker")
            .build()
            .expect("the system gives a process threads and an event queue")
    });
    system.block_on(main)
}

/// Ends the process after `limit` if it is still there, with the exit code of a failure. For when it
/// has been told to end: a thread that is held would keep it from that.
pub fn exit_after(limit: Duration) {
    let wait = move || {
        let (_never, end) = mpsc::channel::<()>();
        let _ = end.recv_timeout(limit);
        error!(stalled = ?stalled(), ?limit, "stop timed out, exiting");
        std::process::exit(i32::from(FAILED));
    };
    let thread = std::thread::Builder::new().name("muster-exit".to_owned());
    if let Err(error) = thread.spawn(wait) {
        error!(%error, "failed to limit the time of the stop");
    }
}

/// Takes over SIGINT and SIGTERM from now on; the returned future gives the name of the first that
/// comes. To be called before anything is started that must be stopped in order.
///
/// From that signal on the process has 28 seconds, even if no thread is left that could poll the
/// returned future.
pub fn stop_signal() -> impl Future<Output = &'static str> {
    stop_signal_within(EXIT_LIMIT)
}

fn stop_signal_within(limit: Duration) -> impl Future<Output = &'static str> {
    let guard = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        match runtime {
            Ok(runtime) => {
                runtime.block_on(async { signalled().await });
                exit_after(limit);
            }
            Err(error) => error!(%error, "failed to limit the time of a stop"),
        }
    };
    let thread = std::thread::Builder::new().name("muster-signals".to_owned());
    if let Err(error) = thread.spawn(guard) {
        error!(%error, "failed to limit the time of a stop");
    }
    signalled()
}

/// The name of the next SIGINT or SIGTERM, from this call on.
fn signalled() -> impl Future<Output = &'static str> {
    use tokio::signal::unix::{Signal, SignalKind, signal};
    // Without a handler the default action ends the process, which is what was asked for.
    async fn receive(signal: std::io::Result<Signal>) {
        match signal {
            Ok(mut signal) => {
                signal.recv().await;
            }
            Err(_) => std::future::pending().await,
        }
    }
    let interrupted = signal(SignalKind::interrupt());
    let terminated = signal(SignalKind::terminate());
    async {
        tokio::select! {
            () = receive(interrupted) => "SIGINT",
            () = receive(terminated) => "SIGTERM",
        }
    }
}

/// Where an embedded hub with this data directory leaves its kubeconfig.
pub fn kubeconfig_file(data_dir: &Path) -> PathBuf {
    data_dir.join(KUBECONFIG)
}

/// Where an embedded hub that keeps nothing on disk leaves its kubeconfig while it runs, by its
/// `hub.listen`; `None` where that says no port, so that no other command can know it.
pub fn runtime_kubeconfig(listen: SocketAddr) -> Option<PathBuf> {
    let name = listen.to_string().replace([':', '[', ']'], "-");
    (listen.port() != 0).then(|| runtime_dir().join(format!("hub-{name}.kubeconfig")))
}

/// The user's folder for what lives as long as a process.
fn runtime_dir() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(dir) if !dir.is_empty() => PathBuf::from(dir).join("muster"),
        _ => {
            let user = rustix::process::getuid();
            std::env::temp_dir().join(format!("muster-{}", user.as_raw()))
        }
    }
}

/// Refuses a folder that somebody else could write to: its kubeconfig might lead anywhere, and run
/// programs.
fn check_private(dir: &Path) -> std::io::Result<()> {
    let meta = std::fs::symlink_metadata(dir)?;
    let private = meta.is_dir()
        && meta.uid() == rustix::process::getuid().as_raw()
        && meta.permissions().mode() & 0o777 == 0o700;
    private.then_some(()).ok_or_else(|| {
        std::io::Error::other(format!(
            "{} is not a directory of this user alone (mode 0700)",
            dir.display()
        ))
    })
}

/// The kubeconfig of [`runtime_kubeconfig`], for others to read.
///
/// # Errors
///
/// It is not there, or its folder is not the user's alone.
pub fn read_runtime_kubeconfig(file: &Path) -> std::io::Result<Vec<u8>> {
    if let Some(dir) = file.parent() {
        check_private(dir)?;
    }
    std::fs::read(file)
}

/// A kubeconfig that goes when this is dropped.
#[derive(Debug)]
pub(super) struct RuntimeKubeconfig {
    file: PathBuf,
    /// Locked for as long as the process lives, so that others can tell that it does.
    _lock: File,
}

/// Removes what processes have left that were killed.
fn remove_stale(dir: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == KUBECONFIG)
            && File::open(&path).is_ok_and(|file| file.try_lock().is_ok())
        {
            std::fs::remove_file(path)?;
        }
    }
    Ok(())
}

impl RuntimeKubeconfig {
    pub(super) fn write(file: PathBuf, kubeconfig: &Kubeconfig) -> std::io::Result<Self> {
        let dir = file.parent().unwrap_or_else(|| Path::new("."));
        let mut builder = DirBuilder::new();
        match builder.recursive(true).mode(0o700).create(dir) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            Ok(()) | Err(_) => check_private(dir)?,
        }
        remove_stale(dir)?;
        let new = tempfile::NamedTempFile::new_in(dir)?;
        new.as_file().try_lock()?;
        write_private(new.as_file(), kubeconfig)?;
        let lock = new.persist(&file)?;
        Ok(Self { file, _lock: lock })
    }
}

impl Drop for RuntimeKubeconfig {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.file); // it leads nowhere any more
    }
}

fn write_private(mut file: &std::fs::File, kubeconfig: &Kubeconfig) -> std::io::Result<()> {
    let json = serde_json::to_string(kubeconfig)?;
    let text = muster_core::yaml::from_json(&json)?;
    file.write_all(text.as_bytes())
}

/// Writes a kubeconfig that only the user can read, since it holds a token.
pub(super) fn write_kubeconfig(data_dir: &Path, kubeconfig: &Kubeconfig) -> std::io::Result<()> {
    let file = tempfile::NamedTempFile::new_in(data_dir)?;
    write_private(file.as_file(), kubeconfig)?;
    file.persist(kubeconfig_file(data_dir))?;
    Ok(())
}

/// Writes a kubeconfig to a private temporary file, which goes with the returned handle.
pub fn temporary_kubeconfig(kubeconfig: &Kubeconfig) -> std::io::Result<tempfile::NamedTempFile> {
    let file = tempfile::Builder::new()
        .prefix("muster-")
        .suffix(".kubeconfig")
        .tempfile()?;
    write_private(file.as_file(), kubeconfig)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubeconfig_of_a_running_hub_is_private_and_goes_with_it() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("muster");
        let file = dir.join("hub.kubeconfig");
        let config = Kubeconfig::default();
        let written = RuntimeKubeconfig::write(file.clone(), &config).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&dir), mode(&file)), (0o700, 0o600));
        assert!(!read_runtime_kubeconfig(&file).unwrap().is_empty());
        // Others might have put it there.
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o770)).unwrap();
        for refused in [
            read_runtime_kubeconfig(&file).unwrap_err(),
            RuntimeKubeconfig::write(file.clone(), &config).unwrap_err(),
        ] {
            let text = refused.to_string();
            assert!(
                text.contains("is not a directory of this user alone"),
                "{text}"
            );
        }
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o700)).unwrap();
        // One that was killed leaves its file, until the next one starts.
        let left = dir.join("left.kubeconfig");
        std::fs::write(&left, "").unwrap();
        let other = RuntimeKubeconfig::write(dir.join("other.kubeconfig"), &config).unwrap();
        assert!(!left.exists() && file.exists());
        drop((written, other));
        assert!(!file.exists());
    }

    #[test]
    fn a_hub_is_known_by_its_address() {
        let file = |listen: &str| runtime_kubeconfig(listen.parse().unwrap());
        assert_eq!(file("127.0.0.1:0"), None);
        let name = |listen| file(listen).unwrap().file_name().unwrap().to_owned();
        assert_eq!(name("127.0.0.1:6443"), "hub-127.0.0.1-6443.kubeconfig");
        assert_eq!(name("[::1]:6443"), "hub----1--6443.kubeconfig");
    }

    /// Runs itself as another process, which holds the thread that would handle the signal.
    #[test]
    fn a_signal_ends_a_process_whose_threads_are_held() {
        const HELD: &str = "MUSTER_TEST_HELD_PROCESS";
        if std::env::var_os(HELD).is_some() {
            block_on(async {
                let _stop = stop_signal_within(Duration::from_millis(100));
                println!("held");
                let (_never, released) = mpsc::channel::<()>();
                let _ = released.recv();
            });
            return;
        }
        let this = concat!(
            module_path!(),
            "::a_signal_ends_a_process_whose_threads_are_held"
        );
        let this = this.split_once("::").unwrap().1;
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", this, "--nocapture"])
            .env(HELD, "1")
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let lines = std::io::BufReader::new(child.stdout.take().unwrap());
        let mut lines = std::io::BufRead::lines(lines).map(Result::unwrap);
        assert!(lines.any(|line| line.ends_with("held")));
        let pid = child.id().to_string();
        let mut kill = std::process::Command::new("kill");
        assert!(kill.args(["-TERM", &pid]).status().unwrap().success());
        assert_eq!(child.wait().unwrap().code(), Some(i32::from(FAILED)));
    }

    #[test]
    fn kubeconfigs_are_private_and_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let config = Kubeconfig {
            current_context: Some("hub".into()),
            ..Kubeconfig::default()
        };
        write_kubeconfig(dir.path(), &config).unwrap();
        write_kubeconfig(dir.path(), &config).unwrap(); // a restart writes over it
        let file = kubeconfig_file(dir.path());
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let read = Kubeconfig::read_from(&file).unwrap();
        assert_eq!(read.current_context.as_deref(), Some("hub"));
    }
}
