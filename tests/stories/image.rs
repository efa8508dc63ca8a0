//! The image, built and run as its user runs it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use tokio::process::Command;

use super::deploy::{apply, overlay};
use crate::support::docs::{root, section};
use crate::support::live::Live;
use crate::support::muster::get;
use crate::support::namespaces;
use crate::support::parts::Part;
use crate::support::pod::{Container, Pod};
use crate::support::typed::typed;
use crate::support::works::{manifests, work_condition};
use crate::support::{Cluster, Servers, Story, on_free_ports, unique_name};

pub(crate) fn stories() -> Vec<Story> {
    let stories = once![
        the_image_is_built_as_the_page_has_it,
        the_pods_of_the_bases_run_on_a_root_that_is_read_only,
    ];
    // They build, and start one program after the other, with what other stories leave of the machine.
    let limited = stories.into_iter().map(|story| story.within(LIMIT));
    limited.collect()
}

const LIMIT: Duration = Duration::from_secs(900);

/// The program in the image.
const ENTRYPOINT: &str = "/muster";

/// buildah with a storage of its own, without what needs a kernel or a user set up for it.
struct Buildah {
    program: PathBuf,
    dir: PathBuf,
}

impl Buildah {
    async fn new(servers: &Servers) -> Result<Self> {
        let program = servers.part(Part::Buildah)?;
        namespaces::can_be_made().await?;
        let dir = servers.new_dir(&unique_name("image"))?;
        let at = dir.display();
        let storage = format!(
            "[storage]\ndriver = \"vfs\"\ngraphroot = \"{at}/storage\"\nrunroot = \"{at}/run\"\n"
        );
        std::fs::write(dir.join("storage.conf"), storage)?;
        Ok(Self { program, dir })
    }

    /// Types a line at the root of the repository.
    async fn types(&self, line: &str) -> Result<String> {
        let program = self.program.display();
        let mut command = Command::new("bash");
        command
            .args([
                "-ec",
                &format!("buildah() {{ '{program}' \"$@\"; }}\n{line}"),
            ])
            .current_dir(root())
            .env("CONTAINERS_STORAGE_CONF", self.dir.join("storage.conf"))
            .env("BUILDAH_ISOLATION", "chroot");
        Ok(typed(&mut command, line).await?.trim().to_owned())
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

    /// The root of a new container of the image.
    async fn root(&self) -> Result<PathBuf> {
        let container = self.types("buildah from muster").await?;
        let root = self.types(&format!("buildah mount {container}")).await?;
        Ok(root.into())
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

async fn the_image_is_built_as_the_page_has_it(servers: Arc<Servers>) -> Result<()> {
    let program = servers.part(Part::ImageRoot)?;
    let buildah = Buildah::new(&servers).await?;
    buildah.build(&program).await?;
    let described = buildah.types("buildah inspect --type image muster").await?;
    let config: Value = serde_json::from_str(&described)?;
    let config = &config["OCIv1"]["config"];
    ensure!(config["User"] == "65532:65532", "{config}");
    ensure!(config["Entrypoint"] == json!([ENTRYPOINT]), "{config}");
    let there = files(&buildah.root().await?)?;
    ensure!(
        there == ["etc/ssl/certs/ca-certificates.crt", "muster"],
        "{there:?}"
    );
    Ok(())
}

/// What runs the pods of a cluster.
struct Kubelet<'a> {
    crun: PathBuf,
    /// The root of the image.
    root: PathBuf,
    dir: PathBuf,
    cluster: &'a Cluster,
}

impl Kubelet<'_> {
    async fn config_map(&self, name: &str) -> Result<Value> {
        let path = format!("/api/v1/namespaces/{name}/configmaps/{name}");
        Ok(self.cluster.rest().get(&path).await?.ok()?["data"].take())
    }

    /// The container of a Deployment, with its ConfigMap and its account.
    async fn container(&self, name: &str) -> Result<Container> {
        let path = format!("/apis/apps/v1/namespaces/{name}/deployments/{name}");
        let deployment = self.cluster.rest().get(&path).await?.ok()?;
        let template = &deployment["spec"]["template"];
        let (server, ca) = self.cluster.server()?;
        let server = server.trim_start_matches("https://").parse()?;
        let account = template["spec"]["serviceAccountName"].as_str();
        let account = account.context("no account")?;
        let token = self.cluster.token(name, account).await?;
        let account = json!({"token": token, "ca.crt": ca, "namespace": name});
        Container::of(template, name, &self.root)?
            .volume(&self.dir, "config", &self.config_map(name).await?)?
            .account(&self.dir, server, &account)
    }

    /// Starts it; `ready` gets the port of its telemetry and what it has printed.
    async fn start(
        &self,
        container: &Container,
        ready: impl AsyncFn(u16, String) -> Result<()>,
    ) -> Result<Pod> {
        let pod = on_free_ports(|[port]| {
            let ready = &ready;
            async move {
                // The network is the machine's, where others may have the port.
                let listen = format!("127.0.0.1:{port}");
                let container = container.clone().env("MUSTER__TELEMETRY__LISTEN", &listen);
                let is_ready = |log| ready(port, log);
                container
                    .start(&self.crun, &self.dir, ENTRYPOINT, is_ready)
                    .await
            }
        })
        .await?;
        ensure!(
            pod.writable()? == ["/proc", "/dev"],
            "{:?}",
            pod.writable()?
        );
        for (name, value) in [
            ("Uid", "65532"),
            ("Gid", "65532"),
            ("CapEff", "0000000000000000"),
            ("CapBnd", "0000000000000000"),
            ("NoNewPrivs", "1"),
            // By a filter.
            ("Seccomp", "2"),
        ] {
            let of_pod = pod.status(name)?;
            ensure!(of_pod == value, "its {name} is {of_pod}");
        }
        Ok(pod)
    }
}

/// What the actors of a demo say of themselves, by what it has printed: where one waits, this tells
/// what for.
async fn actors_of(log: &str) -> String {
    let port = log.split_once("the dashboard: http://127.0.0.1:");
    let port = port.and_then(|(_, rest)| rest.split_once('/')?.0.parse().ok());
    match port {
        Some(port) => get(port, "/debug/actors")
            .await
            .map_or_else(|error| error.to_string(), |(_, body)| body),
        None => "no dashboard yet".to_owned(),
    }
}

async fn is_ready(port: u16, _: String) -> Result<()> {
    let (code, body) = get(port, "/readyz").await?;
    ensure!(code == 200, "{body}");
    Ok(())
}

async fn the_pods_of_the_bases_run_on_a_root_that_is_read_only(
    servers: Arc<Servers>,
) -> Result<()> {
    let (program, crun) = (servers.part(Part::ImageRoot)?, servers.part(Part::Crun)?);
    let buildah = Buildah::new(&servers).await?;
    buildah.build(&program).await?;
    let server = servers.own_api_server().await?;
    let cluster = server.cluster();
    let kubelet = Kubelet {
        crun,
        root: buildah.root().await?,
        dir: servers.new_dir(&unique_name("pods"))?,
        cluster,
    };
    apply(cluster, &overlay(&servers, "hub", &[], &json!({}))?).await?;
    let named = json!({"configMapGenerator": [
        {"name": "muster-agent", "behavior": "merge", "literals": ["cluster-name=edge-1"]}]});
    let components = &["works-cluster-admin"];
    apply(cluster, &overlay(&servers, "agent", components, &named)?).await?;

    let hub = kubelet.container("muster-hub").await?;
    let hub = kubelet.start(&hub, is_ready).await?;

    let edge = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "edge-1"}});
    let rest = cluster.rest();
    rest.post("/api/v1/namespaces", &edge).await?.created()?;
    let access = json!({"namespace": "edge-1"});
    let access = overlay(&servers, "hub-agent-access", &[], &access)?;
    apply(cluster, &access).await?;
    let (address, ca) = cluster.server()?;
    let token = cluster.token("edge-1", "muster-agent").await?;
    let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "hub",
        "clusters": [{"name": "hub", "cluster":
            {"server": address, "certificate-authority-data": BASE64_STANDARD.encode(ca)}}],
        "users": [{"name": "agent", "user": {"token": token}}],
        "contexts": [{"name": "hub", "context": {"cluster": "hub", "user": "agent"}}]});
    let secret = json!({"kubeconfig": kubeconfig.to_string()});
    let name = kubelet.config_map("muster-agent").await?;
    let agent = kubelet
        .container("muster-agent")
        .await?
        .volume(&kubelet.dir, "hub-kubeconfig", &secret)?
        .env(
            "CLUSTER_NAME",
            name["cluster-name"].as_str().context("no name")?,
        );
    let agent = kubelet.start(&agent, is_ready).await?;

    let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": "default", "name": "greeting"}});
    let works = "/apis/work.open-cluster-management.io/v1/namespaces/edge-1/manifestworks";
    let work = json!({"apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
        "metadata": {"name": "greeting"}, "spec": manifests([map])});
    rest.post(works, &work).await?.created()?;
    let applied =
        |work: &Value| work_condition(work, "Applied").is_ok_and(|c| c["status"] == "True");
    let work = Live::new(rest.clone(), works, "greeting");
    work.is("be applied", applied).await?;
    agent.stop().await?;
    hub.stop().await?;

    let demo = kubelet.container("muster-hub").await?.args(&["demo"]);
    let shows = async |_, log: String| {
        for text in ["Ready", "no kubeconfig for kubectl can be written here"] {
            if !log.contains(text) {
                anyhow::bail!("no {text:?} in {log}\n{}", actors_of(&log).await);
            }
        }
        Ok(())
    };
    let demo = kubelet.start(&demo, shows).await?;
    demo.stop().await?;
    server.stop().await
}
