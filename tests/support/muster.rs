//! The program itself, run as users run it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::Command;

use super::ports::on_free_ports;
use super::process::Process;

/// The binary that cargo built for this run.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_muster");

/// A running muster.
#[derive(Debug)]
pub(crate) struct Muster {
    process: Process,
    telemetry: u16,
}

impl Muster {
    /// Starts `muster <role> --config …` with its files under `dir` and waits until it is ready.
    /// In `config`, `HUB` stands for a free address of the hub's API.
    pub(crate) async fn start(dir: &Path, role: &str, config: &str) -> Result<Self> {
        Self::start_with(dir, role, config, &[]).await
    }

    /// [`Self::start`] with further flags.
    pub(crate) async fn start_with(
        dir: &Path,
        role: &str,
        config: &str,
        flags: &[OsString],
    ) -> Result<Self> {
        let ready = |code: u16, body: &str| code == 200 || only_away(body);
        Self::start_until(dir, role, config, flags, ready).await
    }

    /// [`Self::start`] of one that will not be ready: waits until it answers at all.
    pub(crate) async fn start_unready(dir: &Path, role: &str, config: &str) -> Result<Self> {
        Self::start_until(dir, role, config, &[], |_, _| true).await
    }

    async fn start_until(
        dir: &Path,
        role: &str,
        config: &str,
        flags: &[OsString],
        ready: impl Fn(u16, &str) -> bool + Copy,
    ) -> Result<Self> {
        std::fs::create_dir_all(dir)?;
        on_free_ports(|[hub, telemetry]| {
            let config = format!(
                "{}\n[telemetry]\nlisten = \"127.0.0.1:{telemetry}\"\nlog_level = \"info\"\n",
                config.replace("HUB", &format!("127.0.0.1:{hub}"))
            );
            async move {
                let file = dir.join("muster.toml");
                std::fs::write(&file, config)?;
                let mut args: Vec<OsString> = vec![role.into(), "--config".into(), file.into()];
                args.extend_from_slice(flags);
                let log = dir.join("muster.log");
                let is_ready = || async move {
                    let (code, body) = get(telemetry, "/readyz").await?;
                    ensure!(ready(code, &body), "not ready: {body}");
                    Ok(())
                };
                let (process, ()) =
                    Process::start("muster", Path::new(PROGRAM), &args, &log, is_ready).await?;
                Ok(Self { process, telemetry })
            }
        })
        .await
    }

    /// Where a browser finds a path of the telemetry port.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address())
    }

    /// Where it serves its metrics.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.telemetry)
    }

    /// GET on the telemetry port: code and body.
    pub(crate) async fn get(&self, path: &str) -> Result<(u16, String)> {
        get(self.telemetry, path).await
    }

    /// A metric, summed over the labels that contain `label`.
    pub(crate) async fn metric(&self, name: &str, label: &str) -> Result<f64> {
        let (_, text) = self.get("/metrics").await?;
        let lines = text.lines().filter(|line| {
            let rest = line.strip_prefix(name).unwrap_or_default();
            (rest.starts_with('{') || rest.starts_with(' ')) && rest.contains(label)
        });
        let values = lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
        Ok(values.sum())
    }

    /// Kills it as a power cut would.
    pub(crate) async fn kill(self) -> Result<()> {
        self.process.kill().await
    }
}

/// Whether all that is missing are the streams of a cluster called `away`, as stories name one that
/// does not exist.
fn only_away(body: &str) -> bool {
    let reasons = body.strip_prefix("not ready: ").unwrap_or(body).lines();
    let mut reasons = reasons.filter(|line| !line.trim().is_empty()).peekable();
    reasons.peek().is_some() && reasons.all(|reason| reason.trim_start().starts_with("away "))
}

/// GET on a port of this machine: code and body. By HTTP 1.0, whose answers come whole.
pub(crate) async fn get(port: u16, path: &str) -> Result<(u16, String)> {
    let mut connection = TcpStream::connect(("127.0.0.1", port)).await?;
    let request = format!("GET {path} HTTP/1.0\r\n\r\n");
    connection.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no HTTP answer")?;
    let code = head.split(' ').nth(1).context("no status code")?.parse()?;
    Ok((code, body.to_owned()))
}

/// What a run of the program to its end left behind.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs the program to its end.
pub(crate) async fn run_to_end(args: &[&str]) -> Result<Ended> {
    run_with(args, "").await
}

/// Runs the program to its end with this on its standard input.
pub(crate) async fn run_with(args: &[&str], input: &str) -> Result<Ended> {
    let mut child = Command::new(PROGRAM)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut stdin = child.stdin.take().context("no stdin")?;
    if !input.is_empty() {
        stdin.write_all(input.as_bytes()).await?;
    }
    drop(stdin);
    let output = child.wait_with_output().await?;
    Ok(Ended {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout)?,
        stderr: String::from_utf8(output.stderr)?,
    })
}

/// Runs the program until it prints `marker`, sends it SIGTERM, and waits for its end.
pub(crate) async fn run_until_terminated(args: &[&str], marker: &str) -> Result<Ended> {
    let mut child = Command::new(PROGRAM)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let pid = child.id().context("the program ended at once")?;
    let mut lines = BufReader::new(child.stdout.take().context("no stdout")?).lines();
    let mut stdout = String::new();
    loop {
        let Some(line) = lines.next_line().await? else {
            bail!("no {marker:?} in {stdout}")
        };
        stdout.push_str(&line);
        stdout.push('\n');
        if line.contains(marker) {
            break;
        }
    }
    let sent = Command::new("kill")
        .args(["-TERM", &pid.to_string()])
        .status()
        .await?;
    ensure!(sent.success(), "kill failed");
    while let Some(line) = lines.next_line().await? {
        stdout.push_str(&line);
        stdout.push('\n');
    }
    let output = child.wait_with_output().await?;
    let stderr = String::from_utf8(output.stderr)?;
    Ok(Ended {
        code: output.status.code(),
        stdout,
        stderr,
    })
}

/// The kubeconfig that an embedded hub with this data directory leaves there.
pub(crate) fn hub_kubeconfig(data_dir: &Path) -> PathBuf {
    data_dir.join("kubeconfig")
}
