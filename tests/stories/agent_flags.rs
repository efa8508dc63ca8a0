//! `muster agent` in the place of OCM's: its flags, its lease, its probes, its rights.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::{Value, json};

use crate::support::muster::run_to_end;
use crate::support::own_process::{CannotHere, OwnProcess};
use crate::support::{
    Cluster, Servers, Story, World, eventually, install_definitions, unique_name,
};

pub(crate) fn stories() -> Vec<Story> {
    let mut stories = on_each_backend![
        one_agent_works_and_another_stands_by,
        an_agent_runs_as_nobody_on_a_read_only_file_system,
        probes_are_answered_where_ocms_deployment_asks,
    ];
    stories.extend(once![every_wrong_flag_is_told_at_once]);
    stories
}

const LIMIT: Duration = Duration::from_secs(60);

/// A hub and a cluster under a name of the story's own.
struct Site {
    name: String,
    hub: Cluster,
    spoke: Cluster,
}

impl Site {
    async fn new(world: &World) -> Result<Self> {
        let (hub, spoke) = tokio::try_join!(world.hub(), world.spoke())?;
        tokio::try_join!(install_definitions(&hub), install_definitions(&spoke))?;
        let name = unique_name("site");
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        for cluster in [&hub, &spoke] {
            let answer = cluster
                .rest()
                .post("/api/v1/namespaces", &namespace)
                .await?;
            answer.created()?;
        }
        Ok(Self { name, hub, spoke })
    }

    /// Flags that say who and where, with these files.
    fn flags(&self, hub: &Path, spoke: &Path) -> Vec<String> {
        vec![
            format!("--spoke-cluster-name={}", self.name),
            format!("--workload-source-config={}", hub.display()),
            format!("--kubeconfig={}", spoke.display()),
            format!("--namespace={}", self.name),
            "--status-sync-interval=500ms".to_owned(),
        ]
    }

    fn agent(&self, more: &[&str]) -> Result<OwnProcess> {
        let mut flags = self.flags(self.hub.kubeconfig(), self.spoke.kubeconfig());
        flags.extend(more.iter().map(ToString::to_string));
        OwnProcess::agent(&[], &flags, |command| command)
    }

    fn works(&self) -> String {
        let namespace = &self.name;
        format!("/apis/work.open-cluster-management.io/v1/namespaces/{namespace}/manifestworks")
    }

    /// Creates a work with a config map of its name.
    async fn create_work(&self, name: &str) -> Result<()> {
        let config_map = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": self.name, "name": name}, "data": {"a": "b"}});
        let work = json!({
            "apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
            "metadata": {"namespace": self.name, "name": name},
            "spec": {"workload": {"manifests": [config_map]}}});
        let answer = self.hub.rest().post(&self.works(), &work).await?;
        answer.created()?;
        Ok(())
    }

    async fn is_applied(&self, name: &str) -> Result<bool> {
        let path = format!("/api/v1/namespaces/{}/configmaps/{name}", self.name);
        Ok(self.spoke.rest().get(&path).await?.code == 200)
    }

    async fn applied(&self, name: &str, agent: &OwnProcess) -> Result<()> {
        eventually(LIMIT, &format!("{name} to be applied"), || async {
            if self.is_applied(name).await? {
                return Ok(());
            }
            let path = format!("{}/{name}", self.works());
            let work = self.hub.rest().get(&path).await?;
            bail!("{}\n{}", work.body, agent.log())
        })
        .await
    }

    fn lease_path(&self) -> String {
        let namespace = &self.name;
        format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/work-agent-lock")
    }

    async fn lease(&self) -> Result<Value> {
        let lease = self.spoke.rest().get(&self.lease_path()).await?.ok()?;
        Ok(lease["spec"].clone())
    }
}

async fn one_agent_works_and_another_stands_by(world: World) -> Result<()> {
    let site = Site::new(&world).await?;
    let lease = [
        "--leader-election-lease-duration=12s",
        "--leader-election-renew-deadline=8s",
        "--leader-election-retry-period=500ms",
    ];
    site.create_work("one").await?;
    let mut first = site.agent(&lease)?;
    site.applied("one", &first).await?;
    let held = site.lease().await?;
    let holder = held["holderIdentity"].as_str().unwrap_or_default();
    ensure!(holder.contains('_'), "{held}");
    ensure!(held["leaseDurationSeconds"] == 12, "{held}");

    // The second is ready, so that a rolling replacement goes on, and does nothing.
    let flags = [&lease[..], &["--cloudevents-client-codecs=manifest"]].concat();
    let mut second = site.agent(&flags)?;
    let standby = eventually(LIMIT, "the second to have read the lease", || async {
        let (_, actors) = second.get("/debug/actors").await?;
        let actors: Value = serde_json::from_str(&actors)?;
        ensure!(actors[0]["state"]["holder"] == holder, "{actors}");
        Ok(actors)
    })
    .await?;
    ensure!(
        standby.as_array().map(Vec::len) == Some(1)
            && standby[0]["role"] == "LeaseHolder"
            && standby[0]["state"]["standing"] == "Waiting",
        "{standby}"
    );
    for path in ["/healthz", "/livez", "/readyz"] {
        let (code, body) = second.get(path).await?;
        ensure!(code == 200, "{path}: {code} {body}");
    }
    ensure!(second.log().matches("--cloudevents-client-codecs").count() == 1);

    // A signal gives the lease back.
    first.terminate().await?;
    let ended = first.ended().await?;
    ensure!(ended.code() == Some(0), "{ended}\n{}", first.log());
    first.says("the lease is free for others").await?;
    second.says("took the lease").await?;
    site.create_work("two").await?;
    site.applied("two", &second).await?;
    let taken = site.lease().await?;
    ensure!(taken["leaseTransitions"] == 1, "{taken}");

    // Who finds another in its place ends with an error, to be started again.
    let other = json!({"spec": {"holderIdentity": "other"}});
    let rest = site.spoke.rest();
    rest.merge_patch(&site.lease_path(), &other).await?.ok()?;
    let ended = second.ended().await?;
    ensure!(ended.code() == Some(1), "{ended}\n{}", second.log());
    let lost = format!(
        "muster: lost the lease {}/work-agent-lock: other has taken it",
        site.name
    );
    second.says(&lost).await?;
    ensure!(site.lease().await?["holderIdentity"] == "other");

    // Without election nobody asks.
    let third = site.agent(&["--disable-leader-election"])?;
    site.create_work("three").await?;
    site.applied("three", &third).await
}

/// Who runs as in OCM's deployment: another user than root, and no privileges.
const NOBODY: [&str; 6] = [
    "setpriv",
    "--reuid=65532",
    "--regid=65532",
    "--clear-groups",
    "--no-new-privs",
    "--bounding-set=-all",
];

/// Skips where the program cannot be started as somebody else.
async fn can_be_nobody() -> Result<()> {
    let program = crate::support::muster::PROGRAM;
    let mut command = tokio::process::Command::new(NOBODY[0]);
    let output = command
        .args(&NOBODY[1..])
        .args([program, "--version"])
        .output()
        .await;
    let works = output.is_ok_and(|output| output.status.success());
    ensure!(
        works,
        CannotHere("needs root, setpriv, and a build that other users may read")
    );
    Ok(())
}

/// A copy that anybody may read.
fn public_copy(file: &Path, copy: PathBuf) -> Result<PathBuf> {
    std::fs::copy(file, &copy)?;
    std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o444))?;
    Ok(copy)
}

async fn an_agent_runs_as_nobody_on_a_read_only_file_system(world: World) -> Result<()> {
    can_be_nobody().await?;
    let site = Site::new(&world).await?;
    let dir = tempfile::tempdir()?;
    let hub = public_copy(site.hub.kubeconfig(), dir.path().join("hub"))?;
    let spoke = public_copy(site.spoke.kubeconfig(), dir.path().join("spoke"))?;
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o555))?;
    let mut flags = site.flags(&hub, &spoke);
    flags.push("--listen=127.0.0.1:0".to_owned());
    flags.push(format!("--terminate-on-files={}", hub.display()));
    let mut agent = OwnProcess::agent(&NOBODY, &flags, |command| {
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("TMPDIR", "/nonexistent")
            .current_dir(dir.path())
    })?;
    site.create_work("one").await?;
    site.applied("one", &agent).await?;

    let process = PathBuf::from(format!("/proc/{}", agent.id()?));
    let status = std::fs::read_to_string(process.join("status"))?;
    let of = |field: &str| status.lines().find_map(|line| line.strip_prefix(field));
    let uid = of("Uid:").context("no uid")?;
    ensure!(uid.split_whitespace().all(|id| id == "65532"), "{status}");
    let rights = of("CapEff:").context("no capabilities")?;
    ensure!(rights.trim().trim_matches('0').is_empty(), "{status}");
    for descriptor in std::fs::read_dir(process.join("fd"))? {
        let descriptor = descriptor?;
        let Ok(target) = std::fs::read_link(descriptor.path()) else {
            continue; // closed meanwhile
        };
        let ours = Path::new("/proc/self/fd").join(descriptor.file_name());
        if std::fs::read_link(ours).is_ok_and(|ours| ours == target) {
            continue; // inherited from whoever started the tests
        }
        let info = process.join("fdinfo").join(descriptor.file_name());
        let info = std::fs::read_to_string(info)?;
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = u32::from_str_radix(flags.context("no flags")?.trim(), 8)?;
        let reads_only = flags % 4 == 0; // O_RDONLY; the rest says how
        // Pipes, sockets and the like have no path.
        let is_file = target.is_absolute() && !target.starts_with("/dev");
        ensure!(
            !is_file || reads_only,
            "{} is open for writing",
            target.display()
        );
    }
    let left: Vec<_> = std::fs::read_dir(dir.path())?.collect();
    ensure!(left.len() == 2, "{left:?}");

    // A rotated kubeconfig ends the process, which gives the lease back.
    let text = std::fs::read_to_string(&hub)?;
    std::fs::remove_file(&hub)?;
    std::fs::write(&hub, text + "\n")?;
    let ended = agent.ended().await?;
    ensure!(ended.code() == Some(0), "{ended}\n{}", agent.log());
    agent.says("since a file changed").await?;
    let free = site.lease().await?;
    ensure!(free["holderIdentity"] == "", "{free}");
    Ok(())
}

async fn probes_are_answered_where_ocms_deployment_asks(world: World) -> Result<()> {
    let site = Site::new(&world).await?;
    let agent = site.agent(&["--listen=127.0.0.1:0", "--tls-min-version=VersionTLS13"])?;
    let port = agent.port("probes over HTTPS").await?;
    let mut config = kube::Config::new(format!("https://127.0.0.1:{port}").parse()?);
    config.accept_invalid_certs = true; // as a kubelet
    let client = kube::Client::try_from(config)?;
    let get = |path: &'static str| {
        let request = http::Request::get(path).body(Vec::new());
        async { anyhow::Ok(client.request_text(request?).await?) }
    };
    ensure!(get("/healthz").await? == "ok\n");
    let metrics = eventually(LIMIT, "the lease in the metrics", || async {
        let metrics = get("/metrics").await?;
        // The value, and not the text that describes it.
        ensure!(metrics.contains("\nmuster_lease_held 1\n"), "{metrics}");
        Ok(metrics)
    })
    .await?;
    ensure!(metrics.contains("muster_actors"), "{metrics}");
    eventually(LIMIT, "the agent to be ready", || async {
        get("/readyz").await.map_err(|error| anyhow!("{error:#}"))
    })
    .await?;
    ensure!(
        get("/debug/actors").await.is_err(),
        "actors are for nobody outside"
    );
    Ok(())
}

async fn every_wrong_flag_is_told_at_once(_: Arc<Servers>) -> Result<()> {
    let ended = run_to_end(&[
        "agent",
        "--workload-source-driver=grpc",
        "--workload-agent-workers=0",
        "--feature-gates=Nonsense=true",
        "--kube-api-burst=none",
        "--spoke-cluster-name=a_b",
    ])
    .await?;
    ensure!(ended.code == Some(2), "{ended:?}");
    for part in [
        "5 problems",
        "--workload-source-driver: grpc is not supported",
        "--workload-agent-workers: workload-agent-workers must be >= 1, got 0",
        "--feature-gates: unrecognized feature gate: Nonsense",
        "--kube-api-burst: agent.spoke_burst is \"none\"",
        "--spoke-cluster-name: \"a_b\" needs a name that can be a namespace",
    ] {
        ensure!(ended.stderr.contains(part), "no {part}: {}", ended.stderr);
    }
    let ended = run_to_end(&["agent", "--leader-election-lease-duration=10s"]).await?;
    ensure!(ended.code == Some(2), "{ended:?}");
    let rule = "agent.lease_duration is 10s, which must be more than agent.lease_renew_deadline";
    ensure!(ended.stderr.contains(rule), "{}", ended.stderr);
    Ok(())
}
