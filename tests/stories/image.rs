//! The image, built and run as its user runs it.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::support::docs::{root, section};
use crate::support::muster::get;
use crate::support::own_process::CannotHere;
use crate::support::parts::Part;
use crate::support::{Servers, Story, eventually, on_free_ports, unique_name};

pub(crate) fn stories() -> Vec<Story> {
    once![the_image_has_one_program_that_runs_without_rights]
}

const LIMIT: Duration = Duration::from_secs(60);

/// The user of the image.
const USER: &str = "65532";

/// buildah with a storage of its own, without what needs a kernel or a user set up for it.
struct Buildah {
    program: PathBuf,
    dir: PathBuf,
}

impl Buildah {
    fn new(servers: &Servers) -> Result<Self> {
        let program = servers.part(Part::Buildah)?;
        if std::fs::metadata("/proc/self")?.uid() != 0 {
            return Err(CannotHere("building an image needs root here").into());
        }
        let dir = servers.new_dir(&unique_name("image"))?;
        let at = dir.display();
        let storage = format!(
            "[storage]\ndriver = \"vfs\"\ngraphroot = \"{at}/storage\"\nrunroot = \"{at}/run\"\n"
        );
        std::fs::write(dir.join("storage.conf"), storage)?;
        Ok(Self { program, dir })
    }

    /// A line typed at the root of the repository.
    fn command(&self, line: &str) -> Command {
        let program = self.program.display();
        let mut command = Command::new("bash");
        command
            .args([
                "-ec",
                &format!("buildah() {{ '{program}' \"$@\"; }}\n{line}"),
            ])
            .current_dir(root())
            .env("CONTAINERS_STORAGE_CONF", self.dir.join("storage.conf"))
            .env("BUILDAH_ISOLATION", "chroot")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    async fn types(&self, line: &str) -> Result<String> {
        let output = self.command(line).output().await?;
        ensure!(
            output.status.success(),
            "{line}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }

    /// Builds the image by the page's line, but with buildah, and from a program that is built already:
    /// the base of the stage that builds it is in a registry.
    async fn build(&self, from: &Path) -> Result<()> {
        let lines = section("deploy/README.md", "Image")?.lines();
        let [line] = &lines[..] else {
            anyhow::bail!("other commands than this story knows: {lines:?}")
        };
        let of_docker = "docker build -f deploy/Dockerfile ";
        let rest = line.strip_prefix(of_docker);
        let rest = rest.with_context(|| format!("{line} does not begin with {of_docker}"))?;
        let ours = "buildah bud -f deploy/Dockerfile --target image --build-context build=out";
        let ours = format!("{ours} {rest}");
        for file in ["deploy/Dockerfile", "deploy/static"] {
            let text = std::fs::read_to_string(root().join(file))?;
            let there = text.lines().any(|line| line == format!("#   {ours}"));
            ensure!(there, "{file} does not have the line {ours:?}");
        }
        let from = format!("build='{}'", from.display());
        self.types(&ours.replace("build=out", &from)).await?;
        Ok(())
    }
}

/// Files below a folder, by their paths from it.
fn files(root: &Path) -> Result<Vec<String>> {
    let (mut all, mut folders) = (Vec::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                all.push(path.strip_prefix(root)?.display().to_string());
            }
        }
    }
    all.sort();
    Ok(all)
}

/// The program in the container, which no signal to buildah reaches. Ended with this.
struct Inside {
    id: u32,
}

impl Inside {
    /// The one with this text on its command line.
    fn with(text: &str) -> Result<Self> {
        for entry in std::fs::read_dir("/proc")? {
            let entry = entry?;
            let command = std::fs::read_to_string(entry.path().join("cmdline"));
            let is_ours =
                |command: String| command.starts_with("/muster\0") && command.contains(text);
            let id = entry.file_name().to_string_lossy().parse();
            if let (true, Ok(id)) = (command.is_ok_and(is_ours), id) {
                return Ok(Self { id });
            }
        }
        anyhow::bail!("no program with {text}")
    }

    fn user(&self) -> Result<String> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id))?;
        let line = status.lines().find(|line| line.starts_with("Uid:"));
        let user = line.and_then(|line| line.split_whitespace().nth(1));
        Ok(user.context("no user")?.to_owned())
    }

    fn signal(&self, signal: &str) {
        let id = self.id.to_string();
        // It may have ended.
        let _ = std::process::Command::new("kill")
            .args([signal, &id])
            .stderr(Stdio::null())
            .status();
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.signal("-KILL");
    }
}

async fn the_image_has_one_program_that_runs_without_rights(servers: Arc<Servers>) -> Result<()> {
    let program = servers.part(Part::ImageRoot)?;
    let buildah = Buildah::new(&servers)?;
    buildah.build(&program).await?;
    let described = buildah.types("buildah inspect --type image muster").await?;
    let config: Value = serde_json::from_str(&described)?;
    let config = &config["OCIv1"]["config"];
    ensure!(config["User"] == format!("{USER}:{USER}"), "{config}");
    ensure!(config["Entrypoint"][0] == "/muster", "{config}");

    let container = buildah.types("buildah from muster").await?;
    let mounted = PathBuf::from(buildah.types(&format!("buildah mount {container}")).await?);
    let there = files(&mounted)?;
    ensure!(
        there == ["etc/ssl/certs/ca-certificates.crt", "muster"],
        "{there:?}"
    );
    buildah
        .types(&format!("buildah umount {container}"))
        .await?;

    let inside = format!("buildah run {container} -- /muster");
    let shown = buildah.types(&format!("{inside} demo --once")).await?;
    for text in ["Ready", "no kubeconfig for kubectl can be written here"] {
        ensure!(shown.contains(text), "{shown}");
    }

    let running = |[port]: [u16; 1]| {
        let (buildah, inside) = (&buildah, &inside);
        async move {
            let listen = format!("telemetry.listen=127.0.0.1:{port}");
            let run = format!("{inside} run --set hub.listen=127.0.0.1:0 --set {listen}");
            let mut child: Child = buildah
                .command(&run)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()?;
            let inside = eventually(LIMIT, "the program to run", || async {
                Inside::with(&listen)
            })
            .await?;
            eventually(LIMIT, "the container to be ready", || async {
                let (code, body) = get(port, "/readyz").await?;
                ensure!(code == 200, "{body}");
                Ok(())
            })
            .await?;
            let user = inside.user()?;
            inside.signal("-TERM");
            let ended = timeout(LIMIT, child.wait()).await??;
            ensure!(ended.success(), "{ended:?}");
            Ok(user)
        }
    };
    let user = on_free_ports(running).await?;
    ensure!(user == USER, "it runs as {user}");
    Ok(())
}
