//! A Prometheus that scrapes, and its tool that checks.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use url::form_urlencoded::byte_serialize;

use super::muster::get;
use super::parts::{Part, Parts};
use super::ports::on_free_ports;
use super::process::Process;

/// A running Prometheus on loopback.
#[derive(Debug)]
pub(crate) struct Prometheus {
    process: Process,
    port: u16,
}

impl Prometheus {
    /// Starts one with its files under `dir`, which must exist.
    pub(crate) async fn start(parts: &Parts, dir: &Path, settings: &str) -> Result<Self> {
        let program = parts.path(Part::Prometheus)?;
        let file = dir.join("prometheus.yml");
        std::fs::write(&file, settings)?;
        on_free_ports(|[port]| {
            let args = [
                format!("--config.file={}", file.display()),
                format!("--storage.tsdb.path={}", dir.join("data").display()),
                format!("--web.listen-address=127.0.0.1:{port}"),
            ];
            let log = dir.join("prometheus.log");
            async move {
                let args = args.map(OsString::from);
                let ready = || async move {
                    let (code, body) = get(port, "/-/ready").await?;
                    ensure!(code == 200, "{code}: {body}");
                    Ok(())
                };
                let (process, ()) =
                    Process::start("prometheus", program, &args, &log, ready).await?;
                Ok(Self { process, port })
            }
        })
        .await
    }

    /// What the expression gives now: a list of series, each with its value.
    pub(crate) async fn query(&self, expression: &str) -> Result<Vec<Value>> {
        let encoded: String = byte_serialize(expression.as_bytes()).collect();
        let data = self.data(&format!("query?query={encoded}")).await;
        let mut data = data.with_context(|| expression.to_owned())?;
        list(data["result"].take()).with_context(|| expression.to_owned())
    }

    /// The labels of each series that a selector gives.
    pub(crate) async fn series(&self, selector: &str) -> Result<Vec<Value>> {
        let encoded: String = byte_serialize(selector.as_bytes()).collect();
        list(self.data(&format!("series?match[]={encoded}")).await?)
    }

    /// Type and help text by name of the metric, as the processes tell them.
    pub(crate) async fn metadata(&self) -> Result<Value> {
        self.data("metadata").await
    }

    /// The rules that it has loaded, with their health.
    pub(crate) async fn rules(&self) -> Result<Vec<Value>> {
        let groups = list(self.data("rules").await?["groups"].take())?;
        let rules = groups
            .into_iter()
            .map(|mut group| list(group["rules"].take()));
        let rules: Vec<Vec<Value>> = rules.collect::<Result<_>>()?;
        Ok(rules.concat())
    }

    async fn data(&self, path: &str) -> Result<Value> {
        let (code, body) = get(self.port, &format!("/api/v1/{path}")).await?;
        ensure!(code == 200, "{code}: {body}");
        let mut answer: Value = serde_json::from_str(&body)?;
        Ok(answer["data"].take())
    }

    /// Ends it.
    pub(crate) async fn stop(self) -> Result<()> {
        self.process.kill().await
    }
}

fn list(value: Value) -> Result<Vec<Value>> {
    match value {
        Value::Array(items) => Ok(items),
        other => Err(anyhow::anyhow!("no list: {other}")),
    }
}

/// The program that checks rules and metrics.
#[derive(Debug)]
pub(crate) struct Promtool(PathBuf);

impl Promtool {
    pub(crate) fn new(program: &Path) -> Self {
        Self(program.to_owned())
    }

    /// Runs it in the repository, and requires that it finds nothing wrong.
    pub(crate) async fn is_content(&self, args: &[&str], input: &str) -> Result<()> {
        let mut child = Command::new(&self.0)
            .args(args)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let mut stdin = child.stdin.take().context("no stdin")?;
        stdin.write_all(input.as_bytes()).await?;
        drop(stdin);
        let output = child.wait_with_output().await?;
        ensure!(
            output.status.success(),
            "promtool {args:?}:\n{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    }
}
