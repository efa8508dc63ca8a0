//! A headless Chromium, driven over WebDriver.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::parts::{Part, Parts};
use super::ports::on_free_ports;
use super::process::Process;
use super::waiting::eventually;

const LIMIT: Duration = Duration::from_secs(60);

/// Without network, without what a first start does, and without a sandbox, which needs rights that
/// containers do not have.
const FLAGS: [&str; 9] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
];

/// A browser with one window.
#[derive(Debug)]
pub(crate) struct Browser {
    driver: Process,
    port: u16,
    session: String,
}

/// Where pictures are, which stay after the run: to be looked at.
fn screenshots() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("screenshots")
}

impl Browser {
    /// Starts one with its files under `dir`.
    pub(crate) async fn start(parts: &Parts, dir: &Path) -> Result<Self> {
        let program = parts.path(Part::Chromedriver)?;
        let (driver, port) = on_free_ports(|[port]| async move {
            let args = [format!("--port={port}").into()];
            let log = dir.join("chromedriver.log");
            let ready = || async move {
                let status = request(port, "GET", "/status", "").await?;
                ensure!(status["ready"] == true, "{status}");
                Ok(())
            };
            let (driver, ()) = Process::start("chromedriver", program, &args, &log, ready).await?;
            Ok((driver, port))
        })
        .await?;
        let profile = format!("--user-data-dir={}", dir.join("profile").display());
        let size = "--window-size=1280,1600".to_owned();
        let flags = FLAGS.map(str::to_owned).into_iter().chain([profile, size]);
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": {"args": flags.collect::<Vec<_>>()},
            "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let session = post(port, "/session", &wanted).await?;
        let session = session["sessionId"].as_str().context("no session")?;
        Ok(Self {
            driver,
            port,
            session: session.to_owned(),
        })
    }

    async fn command(&self, path: &str, body: &Value) -> Result<Value> {
        let path = format!("/session/{}{path}", self.session);
        post(self.port, &path, body).await
    }

    pub(crate) async fn open(&self, url: &str) -> Result<()> {
        self.command("/url", &json!({"url": url})).await?;
        Ok(())
    }

    /// What a script gives.
    pub(crate) async fn run(&self, script: &str) -> Result<Value> {
        let body = json!({"script": script, "args": []});
        self.command("/execute/sync", &body).await
    }

    /// Waits until a script gives a text that is as `wanted`.
    pub(crate) async fn shows(
        &self,
        what: &str,
        script: &str,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<String> {
        eventually(LIMIT, &format!("the page to show {what}"), || async {
            let value = self.run(script).await?;
            let text = value.as_str().context("no text")?.to_owned();
            ensure!(wanted(&text), "{text}");
            Ok(text)
        })
        .await
    }

    /// As one whose user prefers a dark page, or a light one.
    pub(crate) async fn prefers(&self, scheme: &str) -> Result<()> {
        let feature = json!({"name": "prefers-color-scheme", "value": scheme});
        let media = json!({"cmd": "Emulation.setEmulatedMedia", "params": {"features": [feature]}});
        self.command("/goog/cdp/execute", &media).await?;
        Ok(())
    }

    pub(crate) async fn resize(&self, width: u32, height: u32) -> Result<()> {
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        let metrics = json!({"cmd": "Emulation.setDeviceMetricsOverride", "params": size});
        self.command("/goog/cdp/execute", &metrics).await?;
        Ok(())
    }

    /// What the browser complained about: errors of scripts, and what policies forbade.
    pub(crate) async fn complaints(&self) -> Result<Vec<String>> {
        let log = self.command("/se/log", &json!({"type": "browser"})).await?;
        let lines = log.as_array().into_iter().flatten();
        let texts = lines.filter_map(|line| line["message"].as_str().map(str::to_owned));
        Ok(texts.collect())
    }

    /// Writes a picture of the page, and gives its size in bytes.
    pub(crate) async fn screenshot(&self, name: &str) -> Result<usize> {
        let path = format!("/session/{}/screenshot", self.session);
        let answer = request(self.port, "GET", &path, "").await?;
        let picture = answer.as_str().context("no picture")?;
        let picture = base64::engine::general_purpose::STANDARD.decode(picture)?;
        std::fs::create_dir_all(screenshots())?;
        std::fs::write(screenshots().join(format!("{name}.png")), &picture)?;
        Ok(picture.len())
    }

    /// Ends the browser and its driver.
    pub(crate) async fn close(self) -> Result<()> {
        let path = format!("/session/{}", self.session);
        request(self.port, "DELETE", &path, "").await?;
        self.driver.kill().await
    }
}

async fn post(port: u16, path: &str, body: &Value) -> Result<Value> {
    request(port, "POST", path, &body.to_string()).await
}

async fn request(port: u16, method: &str, path: &str, body: &str) -> Result<Value> {
    let mut connection = TcpStream::connect(("127.0.0.1", port)).await?;
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    connection.write_all(head.as_bytes()).await?;
    connection.write_all(body.as_bytes()).await?;
    // The driver keeps connections open, whatever it is asked for.
    let mut connection = BufReader::new(connection);
    let (mut status, mut length) = (String::new(), None);
    connection.read_line(&mut status).await?;
    loop {
        let mut line = String::new();
        connection.read_line(&mut line).await?;
        let Some((name, value)) = line.split_once(':') else {
            break;
        };
        if name.eq_ignore_ascii_case("content-length") {
            length = Some(value.trim().parse()?);
        }
    }
    let mut body = vec![0; length.context("an answer without a length")?];
    connection.read_exact(&mut body).await?;
    let mut body: Value = serde_json::from_slice(&body)?;
    ensure!(
        status.starts_with("HTTP/1.1 200"),
        "{method} {path}: {body}"
    );
    Ok(body["value"].take())
}
