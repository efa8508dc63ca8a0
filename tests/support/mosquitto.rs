//! A mosquitto broker, as many users run it in front of MQTT clients.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use tokio::net::TcpStream;
use tokio::process::Command;

use super::parts::{Part, Parts};
use super::ports::on_free_ports;
use super::process::Process;

/// What a broker asks of its clients.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MosquittoConf {
    /// Users with their passwords; none: anybody may connect.
    pub(crate) users: &'static [(&'static str, &'static str)],
    /// Lines of an ACL file; empty: everybody may do everything.
    pub(crate) acl: &'static str,
}

/// A running mosquitto with MQTT 3.1.1 and 5 on loopback.
#[derive(Debug)]
pub(crate) struct Mosquitto {
    process: Process,
    port: u16,
    program: PathBuf,
    dir: PathBuf,
    publisher: PathBuf,
    subscriber: PathBuf,
}

impl Mosquitto {
    /// Starts a broker with its files under `dir`, which must exist.
    pub(crate) async fn start(parts: &Parts, dir: &Path, conf: MosquittoConf) -> Result<Self> {
        let program = parts.path(Part::Mosquitto)?;
        let passwords = Self::write_passwords(parts, dir, conf.users).await?;
        let acl = dir.join("acl");
        std::fs::write(&acl, conf.acl)?;
        on_free_ports(|[port]| {
            let mut lines = vec![
                format!("listener {port} 127.0.0.1"),
                // Else one started by root turns into a user that cannot read our files.
                "user root".to_owned(),
                "log_type all".to_owned(),
                // As in deploy/mosquitto: an answer does not wait for the next one.
                "set_tcp_nodelay true".to_owned(),
            ];
            match &passwords {
                Some(file) => {
                    lines.push("allow_anonymous false".to_owned());
                    lines.push(format!("password_file {}", file.display()));
                }
                None => lines.push("allow_anonymous true".to_owned()),
            }
            if !conf.acl.is_empty() {
                lines.push(format!("acl_file {}", acl.display()));
            }
            async move {
                let conf_file = dir.join("mosquitto.conf");
                std::fs::write(&conf_file, lines.join("\n") + "\n")?;
                Ok(Self {
                    process: Self::process(program, dir, port).await?,
                    port,
                    program: program.to_owned(),
                    dir: dir.to_owned(),
                    publisher: parts.path(Part::MosquittoPub)?.to_owned(),
                    subscriber: parts.path(Part::MosquittoSub)?.to_owned(),
                })
            }
        })
        .await
    }

    async fn process(program: &Path, dir: &Path, port: u16) -> Result<Process> {
        let args: [OsString; 2] = ["-c".into(), dir.join("mosquitto.conf").into()];
        let listens =
            || async move { Ok(TcpStream::connect(("127.0.0.1", port)).await.map(drop)?) };
        let log = dir.join("mosquitto.log");
        let (process, ()) = Process::start("mosquitto", program, &args, &log, listens).await?;
        Ok(process)
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Kills it as a power cut would, and starts it again where it was.
    pub(crate) async fn kill_and_start(self) -> Result<Self> {
        self.process.kill().await?;
        let process = Self::process(&self.program, &self.dir, self.port).await?;
        Ok(Self { process, ..self })
    }

    /// Writes the password file, or none when there are no users.
    async fn write_passwords(
        parts: &Parts,
        dir: &Path,
        users: &[(&str, &str)],
    ) -> Result<Option<PathBuf>> {
        if users.is_empty() {
            return Ok(None);
        }
        let file = dir.join("passwords");
        std::fs::write(&file, "")?;
        for (user, password) in users {
            let output = Command::new(parts.path(Part::MosquittoPasswd)?)
                .arg("-b")
                .arg(&file)
                .args([user, password])
                .output()
                .await?;
            ensure!(
                output.status.success(),
                "mosquitto_passwd failed: {output:?}"
            );
        }
        Ok(Some(file))
    }

    /// A `mosquitto_pub` for this broker that speaks MQTT 5.
    pub(crate) fn publisher(&self) -> Command {
        mqtt5(&self.publisher, self.port)
    }

    /// A `mosquitto_sub` for this broker that speaks MQTT 5.
    pub(crate) fn subscriber(&self) -> Command {
        mqtt5(&self.subscriber, self.port)
    }

    /// Ends it.
    pub(crate) async fn stop(self) -> Result<()> {
        self.process.kill().await
    }
}

/// A client program that speaks MQTT 5 to the broker on a port of this machine.
pub(super) fn mqtt5(program: &Path, port: u16) -> Command {
    let mut command = Command::new(program);
    command.args(["-h", "127.0.0.1", "-V", "mqttv5", "-p", &port.to_string()]);
    command.kill_on_drop(true);
    command
}
