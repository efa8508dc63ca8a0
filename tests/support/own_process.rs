//! The program as a process of the story's own: with its environment, its exit code and its log.

use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::muster::{PROGRAM, get};
use super::waiting::{eventually, within};

const LIMIT: Duration = Duration::from_secs(60);

/// Something that a process should be started with does not exist here, as root's rights or a
/// program of the system. The harness skips the story.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct CannotHere(pub(crate) &'static str);

/// A process, killed when it is dropped.
pub(crate) struct OwnProcess {
    child: Child,
    log: Arc<Mutex<String>>,
}

impl OwnProcess {
    /// Starts `muster agent` on any free port, by `before` (`setpriv …`) if that is not empty.
    pub(crate) fn agent(
        before: &[&str],
        flags: &[String],
        prepare: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Result<Self> {
        Self::start(before, "agent", flags, prepare)
    }

    /// Starts `muster <role>` on any free port.
    pub(crate) fn of_role(role: &str, flags: &[String]) -> Result<Self> {
        Self::start(&[], role, flags, |command| command)
    }

    fn start(
        before: &[&str],
        role: &str,
        flags: &[String],
        prepare: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Result<Self> {
        let words = before.iter().copied().chain([PROGRAM, role]);
        let mut words = words.map(str::to_owned);
        let mut command = Command::new(words.next().context("no program")?);
        command
            .args(words)
            .args(["--set", "telemetry.listen=127.0.0.1:0"])
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = prepare(&mut command).spawn()?;
        let mut lines = BufReader::new(child.stderr.take().context("no stderr")?).lines();
        let log = Arc::new(Mutex::new(String::new()));
        let written = Arc::clone(&log);
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let mut log = written.lock().unwrap_or_else(PoisonError::into_inner);
                log.push_str(&line);
                log.push('\n');
            }
        });
        Ok(Self { child, log })
    }

    /// What it has logged so far.
    pub(crate) fn log(&self) -> String {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.clone()
    }

    /// Waits for a line with `text`; gives what follows it in that line.
    pub(crate) async fn says(&self, text: &str) -> Result<String> {
        eventually(LIMIT, &format!("the log to say {text:?}"), || async {
            let log = self.log();
            let found = log.lines().find_map(|line| line.split_once(text));
            let rest = found.map(|(_, rest)| rest.trim().to_owned());
            rest.ok_or_else(|| anyhow!("{log}"))
        })
        .await
    }

    /// The port where it serves; `what` is `probes` or `probes over HTTPS`.
    pub(crate) async fn port(&self, what: &str) -> Result<u16> {
        let address = self.says(&format!("{what} address=127.0.0.1:")).await?;
        Ok(address.parse()?)
    }

    /// GET on its HTTP port: code and body.
    pub(crate) async fn get(&self, path: &str) -> Result<(u16, String)> {
        get(self.port("probes").await?, path).await
    }

    /// Its process id.
    pub(crate) fn id(&self) -> Result<u32> {
        self.child.id().context("it has ended")
    }

    /// Sends SIGTERM.
    pub(crate) async fn terminate(&self) -> Result<()> {
        self.signal("-TERM").await
    }

    /// Sends SIGHUP.
    pub(crate) async fn hang_up(&self) -> Result<()> {
        self.signal("-HUP").await
    }

    /// Kills it as a power cut would, and waits until it is gone.
    pub(crate) async fn kill(&mut self) -> Result<()> {
        Ok(self.child.kill().await?)
    }

    async fn signal(&self, signal: &str) -> Result<()> {
        let id = self.id()?.to_string();
        let sent = Command::new("kill").args([signal, &id]).status().await?;
        ensure!(sent.success(), "kill failed");
        Ok(())
    }

    /// Waits until it has ended.
    pub(crate) async fn ended(&mut self) -> Result<ExitStatus> {
        Ok(within(LIMIT, "the process to end", self.child.wait()).await??)
    }
}
