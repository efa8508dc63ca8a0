//! A process of its own for what is measured: this program, started again. It obeys commands, a
//! line each, and answers each with a line of JSON.

use std::process::Stdio;

use anyhow::{Context, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc::UnboundedReceiver;

use super::machine;

/// What a process tells of itself.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Usage {
    /// Resident memory.
    pub resident_kib: u64,
    /// CPU time since its start.
    pub cpu_nanos: u64,
}

impl Usage {
    /// Of this process, now.
    pub fn now() -> Result<Self> {
        Ok(Self {
            resident_kib: machine::resident_kib()?,
            cpu_nanos: u64::try_from(machine::process_cpu().as_nanos())?,
        })
    }

    /// CPU nanoseconds after `before`.
    #[allow(clippy::cast_precision_loss, reason = "no bench takes a month")]
    pub fn nanos_since(&self, before: &Self) -> f64 {
        self.cpu_nanos.saturating_sub(before.cpu_nanos) as f64
    }
}

/// Commands from standard input until its end, from within such a process.
pub fn commands() -> UnboundedReceiver<String> {
    let (sender, commands) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for command in std::io::stdin().lines().map_while(Result::ok) {
            if sender.send(command).is_err() {
                break;
            }
        }
    });
    commands
}

/// Such a process, from outside.
pub struct Process {
    child: Child,
    commands: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts it.
    pub fn start(arguments: &[&str]) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let commands = child.stdin.take();
        let answers = child.stdout.take();
        Ok(Self {
            child,
            commands: commands.context("its standard input is a pipe")?,
            answers: BufReader::new(answers.context("its standard output is a pipe")?).lines(),
        })
    }

    /// Gives a command and waits for the answer.
    pub async fn tell<T: DeserializeOwned>(&mut self, command: &str) -> Result<T> {
        let line = format!("{command}\n");
        self.commands.write_all(line.as_bytes()).await?;
        let answer = self.answers.next_line().await?;
        Ok(serde_json::from_str(&answer.context("the process ended")?)?)
    }

    /// Ends it by the end of its commands, and waits for that.
    pub async fn end(self) -> Result<()> {
        let Self {
            mut child,
            commands,
            answers: _answers,
        } = self;
        drop(commands);
        let status = child.wait().await?;
        anyhow::ensure!(status.success(), "it ended with {status}");
        Ok(())
    }

    /// What it uses now.
    pub async fn usage(&mut self) -> Result<Usage> {
        self.tell("usage").await
    }
}
