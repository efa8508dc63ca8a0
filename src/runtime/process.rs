//! What a process needs around a [`Runtime`](super::Runtime): threads, signals, files.

use std::future::Future;
use std::io::Write;
use std::path::{Path, PathBuf};

use kube::config::Kubeconfig;

/// File in the data directory with access to the embedded hub.
const KUBECONFIG: &str = "kubeconfig";

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

/// Takes over SIGINT and SIGTERM from now on; the returned future gives the name of the first that
/// comes. To be called before anything is started that must be stopped in order.
pub fn stop_signal() -> impl Future<Output = &'static str> {
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
