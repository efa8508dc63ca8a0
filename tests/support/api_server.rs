//! A real kube-apiserver: the measure for the embedded one, and a cluster for agents.
//!
//! No controllers run beside it: see `tests/README.md` for what therefore never happens.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, ensure};
use http::Request;
use k8s_openapi::api::core::v1::Namespace;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::etcd::Etcd;
use super::parts::{Part, Parts};
use super::ports::on_free_ports;
use super::process::Process;
use super::rest::Rest;

/// The administrator's bearer token. The server listens on loopback only.
const TOKEN: &str = "administrator-of-the-tests";

/// A running kube-apiserver.
#[derive(Debug)]
pub(crate) struct RealApiServer {
    process: Process,
    program: PathBuf,
    args: Vec<OsString>,
    log: PathBuf,
    audit: PathBuf,
    cluster: Cluster,
}

impl RealApiServer {
    /// Starts a server that keeps its objects in `etcd` under `prefix`, with its own files
    /// under `dir`, and waits until it is ready. If `audited`, it writes down what it is asked, and asks
    /// who names an owner that waits for the object whether he may.
    pub(crate) async fn start(
        parts: &Parts,
        dir: &Path,
        etcd: &Etcd,
        prefix: &str,
        audited: bool,
    ) -> Result<Self> {
        let program = parts.path(Part::KubeApiServer)?;
        let dir = &dir.join(prefix);
        std::fs::create_dir_all(dir)?;
        let key = rcgen::KeyPair::generate()?;
        let signing_key = dir.join("service-account.key");
        std::fs::write(&signing_key, key.serialize_pem())?;
        let public_key = dir.join("service-account.pub");
        std::fs::write(&public_key, key.public_key_pem())?;
        let tokens = dir.join("tokens.csv");
        std::fs::write(&tokens, format!("{TOKEN},admin,admin,\"system:masters\"\n"))?;
        let cert_dir = dir.join("certs");
        let log = dir.join("kube-apiserver.log");
        let kubeconfig = dir.join("kubeconfig");
        let audit = dir.join("audit.log");
        let mut more = Vec::new();
        if audited {
            let policy = dir.join("audit.json");
            let all = json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy",
                "omitStages": ["RequestReceived"], "rules": [{"level": "Metadata"}]});
            std::fs::write(&policy, all.to_string())?;
            more.push(format!("--audit-policy-file={}", policy.display()));
            more.push(format!("--audit-log-path={}", audit.display()));
            // As on OpenShift.
            let owners = "OwnerReferencesPermissionEnforcement";
            more.push(format!("--enable-admission-plugins={owners}"));
        }

        on_free_ports(|[port]| {
            let args: Vec<OsString> = [
                format!("--etcd-servers={}", etcd.url()),
                format!("--etcd-prefix=/{prefix}"),
                "--bind-address=127.0.0.1".to_owned(),
                format!("--secure-port={port}"),
                format!("--cert-dir={}", cert_dir.display()),
                "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
                format!("--service-account-key-file={}", public_key.display()),
                format!(
                    "--service-account-signing-key-file={}",
                    signing_key.display()
                ),
                format!("--token-auth-file={}", tokens.display()),
                "--authorization-mode=RBAC".to_owned(),
                // Would wait for a controller to make each namespace's default account.
                "--disable-admission-plugins=ServiceAccount".to_owned(),
                "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
                // An endpoint on loopback is refused, again and again.
                "--endpoint-reconciler-type=none".to_owned(),
            ]
            .into_iter()
            .chain(more.iter().cloned())
            .map(OsString::from)
            .collect();
            let (cert_dir, log, kubeconfig) = (&cert_dir, &log, &kubeconfig);
            let audit = &audit;
            async move {
                write_kubeconfig(kubeconfig, port, &cert_dir.join("apiserver.crt"))?;
                let ready = || is_ready(kubeconfig);
                let (process, mut config) =
                    Process::start("kube-apiserver", program, &args, log, ready).await?;
                let client = Client::try_from(config.clone())?;
                // What a story sends as plain HTTP is to be answered as it is, a 504 too.
                config.default_retry = false;
                let plain = Client::try_from(config)?;
                let cluster = Cluster::new(client, Rest::new(plain), kubeconfig.clone(), parts);
                Ok(Self {
                    process,
                    program: program.to_owned(),
                    args,
                    log: log.clone(),
                    audit: audit.clone(),
                    cluster,
                })
            }
        })
        .await
    }

    /// The cluster that it serves.
    pub(crate) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Kills the server as a power cut would, starts it again on the same port with the same
    /// etcd, and waits until it is ready. Clients made before go on working.
    pub(crate) async fn restart(self) -> Result<Self> {
        self.process.kill().await?;
        let ready = || is_ready(self.cluster.kubeconfig());
        let (process, _) = Process::start(
            "kube-apiserver",
            &self.program,
            &self.args,
            &self.log,
            ready,
        )
        .await?;
        Ok(Self { process, ..self })
    }

    /// Ends it.
    pub(crate) async fn stop(self) -> Result<()> {
        self.process.kill().await
    }

    /// How many watches of `resource` (a plural, as in `configmaps`) are open now. The server
    /// itself watches many built-in types, so what counts is the difference.
    pub(crate) async fn open_watches(&self, resource: &str) -> Result<u64> {
        self.open_watches_of_all(&[resource]).await
    }

    /// The same of several resources together, at one moment.
    pub(crate) async fn open_watches_of_all(&self, resources: &[&str]) -> Result<u64> {
        let metrics = self.metrics().await?;
        let of_one = |resource: &&str| {
            let labels = [("resource", *resource), ("verb", "WATCH")];
            sum(&metrics, "apiserver_longrunning_requests", &labels)
        };
        resources.iter().map(of_one).sum()
    }

    /// How many requests with `verb` (as in `LIST`) were answered for `resource` since the
    /// server started. A watch counts when it ends.
    pub(crate) async fn requests(&self, verb: &str, resource: &str) -> Result<u64> {
        let labels = [("resource", resource), ("verb", verb)];
        sum(&self.metrics().await?, "apiserver_request_total", &labels)
    }

    /// What it was asked so far, as its audit log has it; of an audited one.
    pub(crate) fn asked(&self) -> Result<Vec<Value>> {
        let log = std::fs::read_to_string(&self.audit)?;
        let whole = log.lines().map(serde_json::from_str::<Value>);
        // The last line may just be being written.
        Ok(whole.filter_map(Result::ok).collect())
    }

    async fn metrics(&self) -> Result<String> {
        let request = Request::get("/metrics").body(Vec::new())?;
        Ok(self.cluster.client().request_text(request).await?)
    }
}

/// The sum of a metric's series with these label values; 0 when there is none.
fn sum(metrics: &str, name: &str, labels: &[(&str, &str)]) -> Result<u64> {
    let wanted: Vec<String> = labels
        .iter()
        .map(|(label, value)| format!("{label}=\"{value}\""))
        .collect();
    let mut sum = 0;
    for line in metrics.lines() {
        let Some((series, value)) = line.rsplit_once(' ') else {
            continue;
        };
        let Some((series_name, series_labels)) = series.split_once('{') else {
            continue;
        };
        let series_labels: Vec<&str> = series_labels.trim_end_matches('}').split(',').collect();
        if series_name == name
            && wanted
                .iter()
                .all(|label| series_labels.contains(&label.as_str()))
        {
            sum += value
                .parse::<u64>()
                .with_context(|| format!("odd metric: {line}"))?;
        }
    }
    Ok(sum)
}

/// Writes a kubeconfig (JSON is YAML) for the administrator of the server on `port`.
fn write_kubeconfig(path: &Path, port: u16, ca: &Path) -> Result<()> {
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{
            "name": "tests",
            "cluster": {
                "server": format!("https://127.0.0.1:{port}"),
                "certificate-authority": ca,
            },
        }],
        "users": [{ "name": "admin", "user": { "token": TOKEN } }],
        "contexts": [{ "name": "tests", "context": { "cluster": "tests", "user": "admin" } }],
        "current-context": "tests",
    });
    Ok(std::fs::write(
        path,
        serde_json::to_string_pretty(&kubeconfig)?,
    )?)
}

/// Gives the way to reach it once the server is ready and has made the namespace that every cluster has.
async fn is_ready(kubeconfig: &Path) -> Result<Config> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let client = Client::try_from(config.clone())?;
    let answer = client
        .request_text(Request::get("/readyz").body(Vec::new())?)
        .await?;
    ensure!(answer == "ok", "readyz says {answer}");
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces
        .get_opt("default")
        .await?
        .ok_or_else(|| anyhow!("no namespace \"default\" yet"))?;
    Ok(config)
}
