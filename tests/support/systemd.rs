//! A systemd of a story's own.

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

use super::namespaces;
use super::process::Process;
use super::typed::typed;

/// A running systemd, the first process of its namespaces, on a copy of this machine's root: all that
/// is changed in it, and all that it runs, goes with it.
#[derive(Debug)]
pub(crate) struct Systemd {
    process: Process,
    /// Its id outside.
    id: String,
}

/// What it can reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Network {
    /// What this machine can.
    Machine,
    /// Itself alone: its ports are its own.
    Own,
}

impl Systemd {
    /// Starts `program`, with what `dir/files` holds in its root.
    ///
    /// # Errors
    /// `CannotHere` where no namespaces can be made.
    pub(crate) async fn start(program: &Path, dir: &Path, network: Network) -> Result<Self> {
        namespaces::can_be_made().await?;
        std::fs::create_dir(dir.join("root"))?;
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/systemd.sh");
        let mut args: Vec<OsString> = vec![program.into(), dir.into()];
        if network == Network::Own {
            args.push("--net".into());
        }
        let log = dir.join("systemd.log");
        let ready = || async {
            let id = newest_child(dir)?;
            let state = enter(&id, "systemctl is-system-running").await?;
            ensure!(state.trim() == "running", "it is {state}");
            Ok(id)
        };
        let (process, id) = Process::start("systemd", &script, &args, &log, ready).await?;
        Ok(Self { process, id })
    }

    /// Runs lines in a shell as root; gives what they print. Each has to succeed.
    pub(crate) async fn run(&self, script: &str) -> Result<String> {
        enter(&self.id, script).await
    }

    /// Ends it.
    pub(crate) async fn stop(self) -> Result<()> {
        self.process.kill().await
    }
}

/// The process that `unshare` made in the namespaces; what waits for its end is older.
fn newest_child(dir: &Path) -> Result<String> {
    let outside = std::fs::read_to_string(dir.join("outside"))?;
    let outside = outside.trim();
    let children = std::fs::read_to_string(format!("/proc/{outside}/task/{outside}/children"))?;
    let newest = children.split_whitespace().last();
    Ok(newest.context("no process yet")?.to_owned())
}

async fn enter(id: &str, script: &str) -> Result<String> {
    let mut command = Command::new("nsenter");
    command
        .args(["--target", id, "--all", "--", "env", "-i", "HOME=/root"])
        .arg("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .args(["bash", "-euo", "pipefail", "-c", script]);
    typed(&mut command, script).await
}
