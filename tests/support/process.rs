//! Server processes that end with the test run, however that ends.

use std::ffi::OsString;
use std::fmt;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::Mutex;

use super::waiting::eventually;

/// Runs the server in `$@` until it ends by itself or our standard input does.
///
/// The write end of that pipe lives in the test process. When the story drops it, or the
/// test process dies in any way, SIGKILL and Ctrl-C included, `cat` comes to its end and the
/// server is killed. Rust's process API has no "die with parent", Linux's `PR_SET_PDEATHSIG`
/// needs unsafe code and follows the thread rather than the process, and killing in `Drop`
/// alone leaves servers behind whenever a run is interrupted.
const WATCHDOG: &str = r#"
exec 3<&0
"$@" 3<&- </dev/null >>"$LOG" 2>&1 &
server=$!
{ cat <&3 >/dev/null; kill -9 "$server" 2>/dev/null; } 3<&3 >/dev/null 2>&1 &
exec 3<&-
wait "$server"
"#;

/// A running server.
pub(crate) struct Process {
    name: &'static str,
    log: PathBuf,
    child: Mutex<Child>,
    /// Held open for as long as the server may run; see [`WATCHDOG`].
    lifeline: Option<ChildStdin>,
}

impl Process {
    /// Starts `program`, appending its output to `log`.
    fn spawn(name: &'static str, program: &Path, args: &[OsString], log: &Path) -> Result<Self> {
        let mut child = Command::new("sh")
            .args(["-c", WATCHDOG, "watchdog"])
            .arg(program)
            .args(args)
            .env("LOG", log)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Away from the terminal's Ctrl-C, which would end the shell before the server.
            .process_group(0)
            .spawn()
            .with_context(|| format!("failed to start {name}"))?;
        let lifeline = child.stdin.take();
        Ok(Self {
            name,
            log: log.to_owned(),
            child: Mutex::new(child),
            lifeline,
        })
    }

    /// Starts a server and waits until `ready` succeeds.
    ///
    /// # Errors
    /// [`EndedEarly`] when the server ends before it is ready.
    pub(crate) async fn start<T, Fut: Future<Output = Result<T>>>(
        name: &'static str,
        program: &Path,
        args: &[OsString],
        log: &Path,
        ready: impl Fn() -> Fut,
    ) -> Result<(Self, T)> {
        let process = Self::spawn(name, program, args, log)?;
        let started = eventually(START_LIMIT, &format!("{name} to be ready"), || async {
            if process.has_ended().await? {
                return Ok(None);
            }
            ready().await.map(Some)
        })
        .await;
        match started {
            Ok(Some(value)) => Ok((process, value)),
            Ok(None) => Err(EndedEarly {
                name,
                last_words: process.last_words(),
            }
            .into()),
            Err(err) => Err(err.context(process.last_words())),
        }
    }

    /// Whether the server is gone.
    pub(crate) async fn has_ended(&self) -> Result<bool> {
        Ok(self.child.lock().await.try_wait()?.is_some())
    }

    /// Waits until the server has ended by itself.
    pub(crate) async fn ended(self) -> Result<ExitStatus> {
        Ok(self.child.lock().await.wait().await?)
    }

    /// Kills the server as a power cut would, and waits until it is gone.
    pub(crate) async fn kill(mut self) -> Result<()> {
        drop(self.lifeline.take());
        self.child.lock().await.wait().await?;
        Ok(())
    }

    /// The end of the server's log, for a message.
    fn last_words(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(15)..].join("\n");
        format!("the log of {} ended with:\n{tail}", self.name)
    }
}

/// How long a server may take to be ready. A kube-apiserver takes 3 s on a quiet machine, and a demo
/// 2 s. How much longer beside compilers and other stories is up to the scheduler: demos that only get
/// what others leave have taken two minutes, and all got there.
const START_LIMIT: Duration = Duration::from_secs(300);

/// A server ended before it was ready: its arguments are wrong, or another process took its
/// port first.
#[derive(Debug, thiserror::Error)]
#[error("{name} ended before it was ready; {last_words}")]
pub(crate) struct EndedEarly {
    name: &'static str,
    last_words: String,
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Process({})", self.name)
    }
}
