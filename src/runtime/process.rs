//! What a process needs around a [`Runtime`](super::Runtime): threads, signals, files.

use std::future::Future;
use std::io::Write;
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
    use std::os::unix::fs::PermissionsExt;

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
