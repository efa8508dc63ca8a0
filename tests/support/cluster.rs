//! A cluster as a story sees it, whoever serves it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::parts::{MissingPart, Part, Parts};
use super::rest::Rest;

/// A Kubernetes API with an administrator's access to it. Stories share it, so each works in
/// a namespace of its own and under names of its own.
#[derive(Clone)]
pub(crate) struct Cluster {
    client: Client,
    rest: Rest,
    kubeconfig: PathBuf,
    kubectl: Option<PathBuf>,
}

impl Cluster {
    /// A cluster reached by `client` and `rest`, or by any program through the file
    /// `kubeconfig`.
    pub(crate) fn new(client: Client, rest: Rest, kubeconfig: PathBuf, parts: &Parts) -> Self {
        let kubectl = parts.path(Part::Kubectl).ok().map(Path::to_owned);
        Self {
            client,
            rest,
            kubeconfig,
            kubectl,
        }
    }

    /// A client with the administrator's rights.
    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    /// The API as plain HTTP, for stories about exact answers.
    pub(crate) fn rest(&self) -> Rest {
        self.rest.clone()
    }

    /// The file that gives other programs the same access.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Writes a file into `dir` that gives other programs the rights of a user.
    pub(crate) fn kubeconfig_as(&self, user: &str, dir: &Path) -> Result<PathBuf> {
        let mut config: Value = serde_json::from_slice(&std::fs::read(&self.kubeconfig)?)?;
        config["users"][0]["user"]["as"] = user.into();
        let file = dir.join(format!("{}.kubeconfig", user.replace(':', "-")));
        std::fs::write(&file, config.to_string())?;
        Ok(file)
    }

    /// Creates a namespace that no other story has.
    pub(crate) async fn namespace(&self) -> Result<String> {
        let name = unique_name("story");
        let metadata = ObjectMeta {
            name: Some(name.clone()),
            ..ObjectMeta::default()
        };
        Api::<Namespace>::all(self.client())
            .create(
                &PostParams::default(),
                &Namespace {
                    metadata,
                    ..Namespace::default()
                },
            )
            .await
            .with_context(|| format!("failed to create namespace {name}"))?;
        Ok(name)
    }

    /// A token of a service account.
    pub(crate) async fn token(&self, namespace: &str, account: &str) -> Result<String> {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
        let request =
            json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let issued = self.rest.post(&path, &request).await?.created()?;
        let token = issued["status"]["token"].as_str().context("no token")?;
        Ok(token.to_owned())
    }

    /// The address of its API server, and the CA to know it by.
    pub(crate) fn server(&self) -> Result<(String, String)> {
        let config: Value = serde_json::from_slice(&std::fs::read(&self.kubeconfig)?)?;
        let cluster = &config["clusters"][0]["cluster"];
        let ca = cluster["certificate-authority"].as_str().context("no CA")?;
        let server = cluster["server"].as_str().context("no address")?;
        Ok((server.to_owned(), std::fs::read_to_string(ca)?))
    }

    /// Runs kubectl to its end.
    pub(crate) async fn kubectl(&self, args: &[&str]) -> Result<KubectlOutput> {
        self.kubectl_with_input(args, "").await
    }

    /// Runs kubectl to its end with `input` as its standard input (`-f -`).
    pub(crate) async fn kubectl_with_input(
        &self,
        args: &[&str],
        input: &str,
    ) -> Result<KubectlOutput> {
        let program = self.kubectl.as_ref().ok_or(MissingPart(Part::Kubectl))?;
        kubectl_at(program, &self.kubeconfig, args, input).await
    }
}

/// Runs kubectl to its end with the access that `kubeconfig` gives.
pub(crate) async fn kubectl_at(
    program: &Path,
    kubeconfig: &Path,
    args: &[&str],
    input: &str,
) -> Result<KubectlOutput> {
    let mut child = Command::new(program)
        .args(args)
        .env("KUBECONFIG", kubeconfig)
        // Beside the kubeconfig, so that no cache or preference of the user's plays a part.
        .env("HOME", kubeconfig.with_extension("home"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("failed to start kubectl")?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes()).await?;
    }
    let output = child.wait_with_output().await?;
    Ok(KubectlOutput {
        command: args.join(" "),
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout)?,
        stderr: String::from_utf8(output.stderr)?,
    })
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cluster({})", self.kubeconfig.display())
    }
}

/// What a run of kubectl left behind.
#[derive(Debug)]
pub(crate) struct KubectlOutput {
    command: String,
    /// The exit code; none after a signal.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl KubectlOutput {
    /// Its standard output, provided that it succeeded and complained about nothing.
    pub(crate) fn ok(self) -> Result<String> {
        ensure!(
            self.code == Some(0) && self.stderr.lines().all(is_remark),
            "kubectl {} ended with {:?}\n{}{}",
            self.command,
            self.code,
            self.stdout,
            self.stderr
        );
        Ok(self.stdout)
    }
}

/// Whether a line is one of the client's own log about a watch that it ends itself, as `kubectl wait`
/// does once it has seen what it waits for: by chance it is told as an error, at level info.
fn is_remark(line: &str) -> bool {
    line.starts_with('I') && line.contains(" reflector.go:") && line.contains("context canceled")
}

/// A client of the API that a kubeconfig leads to.
pub(crate) async fn client_of(file: &Path) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(file)?;
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    Ok(Client::try_from(config)?)
}

/// Returns a name that starts with `stem` and that no other story of this run has. Servers
/// live no longer than a run, so a counter is enough.
pub(crate) fn unique_name(stem: &str) -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    format!("{stem}-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}
