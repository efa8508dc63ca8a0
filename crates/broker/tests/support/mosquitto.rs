//! A real mosquitto with the files of `deploy/mosquitto`.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::SOON;
use super::certificates::{Ca, write};

const CONF: &str = include_str!("../../../../deploy/mosquitto/mosquitto.conf");
const AGENTS: &str = include_str!("../../../../deploy/mosquitto/acl-agents");
const SOURCES: &str = include_str!("../../../../deploy/mosquitto/acl-sources");

pub(crate) struct Mosquitto {
    _process: Child,
    _dir: tempfile::TempDir,
    /// Agents with a password.
    pub(crate) agents: SocketAddr,
    /// Sources with a password.
    pub(crate) sources: SocketAddr,
    /// Agents with a certificate.
    pub(crate) certified: SocketAddr,
    /// Who has signed the broker's certificate, and those of agents.
    pub(crate) ca: Ca,
}

/// The programs `mosquitto` and `mosquitto_passwd`; none is a failure where CI=true.
pub(crate) fn programs() -> Option<(PathBuf, PathBuf)> {
    let provide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/parts/provide");
    let found = std::process::Command::new(provide).arg("--found").output();
    let found = String::from_utf8(found.unwrap().stdout).unwrap();
    let path = |name| {
        let lines = found.lines().filter_map(|line| line.split_once('='));
        lines
            .into_iter()
            .find_map(|(variable, path)| (variable == name).then(|| path.into()))
    };
    let programs = path("MUSTER_MOSQUITTO").zip(path("MUSTER_MOSQUITTO_PASSWD"));
    let required = std::env::var_os("CI").is_some_and(|value| value == "true");
    assert!(programs.is_some() || !required, "no mosquitto here");
    programs
}

pub(crate) fn free_ports<const N: usize>() -> [u16; N] {
    let held = [(); N].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    held.map(|listener| listener.local_addr().unwrap().port())
}

impl Mosquitto {
    /// Starts it with these users, who all have this password; nothing where it is not installed.
    pub(crate) async fn start(agents: &[&str], sources: &[&str], password: &str) -> Option<Self> {
        let (program, passwd) = programs()?;
        let tmp = tempfile::tempdir().unwrap();
        let dir = tmp.path();
        let ca = Ca::new();
        let own = ca.sign("mosquitto");
        std::fs::create_dir(dir.join("certs")).unwrap();
        write(dir, "certs/tls.crt", &own.certificate);
        write(dir, "certs/tls.key", &own.key);
        write(dir, "certs/agents.crt", &ca.pem());
        write(dir, "acl-agents", AGENTS);
        write(dir, "acl-sources", SOURCES);
        for (file, users) in [("passwords-agents", agents), ("passwords-sources", sources)] {
            let file = write(dir, file, "");
            for user in users {
                let mut command = Command::new(&passwd);
                command.arg("-b").arg(&file).args([user, &password]);
                let output = command.output().await.unwrap();
                assert!(output.status.success(), "{output:?}");
            }
        }
        // Another process may take a port between our look and the bind.
        for _ in 0..3 {
            let ports = free_ports();
            if let Some(process) = Self::on(&program, dir, ports).await {
                let [agents, sources, certified] =
                    ports.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
                return Some(Self {
                    _process: process,
                    _dir: tmp,
                    agents,
                    sources,
                    certified,
                    ca,
                });
            }
        }
        panic!("mosquitto does not start");
    }

    /// Starts it on these ports; nothing if it ends at once.
    async fn on(program: &Path, dir: &Path, ports: [u16; 3]) -> Option<Child> {
        let mut conf = CONF.replace("/etc/mosquitto", dir.to_str().unwrap());
        for (known, port) in ["8883", "8884", "8885"].into_iter().zip(ports) {
            let listener = format!("listener {known}\n");
            assert!(conf.contains(&listener), "{listener}");
            conf = conf.replace(&listener, &format!("listener {port} 127.0.0.1\n"));
        }
        // Else one started by root turns into a user that cannot read our files.
        conf += "user root\nlog_dest stderr\n";
        run(program, &write(dir, "mosquitto.conf", &conf)).await
    }
}

/// Starts mosquitto with this file; nothing if it ends at once, and has told why.
pub(crate) async fn run(program: &Path, conf: &Path) -> Option<Child> {
    let mut process = Command::new(program)
        .arg("-c")
        .arg(conf)
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut log = BufReader::new(process.stderr.take().unwrap()).lines();
    let ready = async {
        while let Some(line) = log.next_line().await.unwrap() {
            if line.ends_with(" running") {
                return true;
            }
            eprintln!("{line}");
        }
        false
    };
    if !timeout(SOON, ready).await.unwrap() {
        return None;
    }
    // Its log has to go somewhere for as long as it runs.
    tokio::spawn(async move { while let Ok(Some(_)) = log.next_line().await {} });
    Some(process)
}
