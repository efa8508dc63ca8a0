//! Every command in the documents does what the documents say.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::Client;
use muster_apiserver::{SimulatorOptions, WorkloadSimulator};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::deploy::{apply, overlay};
use super::rollout::{Fleet, config_map, placement, set};
use crate::support::broker_hub::BrokerHub;
use crate::support::docs::{Shell, root, section, sections};
use crate::support::own_process::OwnProcess;
use crate::support::parts::Part;
use crate::support::process::Process;
use crate::support::works::{manifests, work_condition};
use crate::support::{
    Backend, Cluster, Rest, Servers, Story, World, eventually, install_definitions, on_free_ports,
    unique_name,
};

pub(crate) fn stories() -> Vec<Story> {
    once![
        every_command_is_tried,
        the_readme_can_be_followed,
        operations_and_troubleshooting_can_be_followed,
        a_deployment_can_be_followed,
        the_dashboard_of_a_pod_can_be_reached,
        coming_from_ocm_can_be_followed,
        a_driver_file_of_ocm_brings_works,
        the_chart_can_be_installed,
    ]
}

const LIMIT: Duration = Duration::from_secs(60);

/// Where the commands of a section are tried.
enum Tried {
    /// Typed in a story of this file.
    Here,
    /// In other tests.
    By(&'static str),
}
use Tried::{By, Here};

/// Every section that has commands.
const SECTIONS: &[(&str, &str, Tried)] = &[
    ("README.md", "See it", Here),
    ("README.md", "Test it", By("this very run")),
    ("README.md", "Run it", Here),
    ("README.md", "Roll out, and back", Here),
    ("README.md", "Why is it stuck?", Here),
    ("README.md", "Settings", Here),
    ("CONTRIBUTING.md", "Build and test", By("this very run")),
    (
        "docs/benchmarks.md",
        "Benchmarks",
        By("benches, in a rehearsal"),
    ),
    ("docs/migration.md", "Before", Here),
    ("docs/migration.md", "The agent of a cluster", Here),
    ("docs/operations.md", "Commands", By("agent_flags")),
    ("docs/operations.md", "Revisions", Here),
    ("docs/operations.md", "Following a rollout", Here),
    (
        "docs/operations.md",
        "Metrics",
        By("prometheus, and deploy"),
    ),
    ("docs/operations.md", "Why something is not done", Here),
    ("docs/operations.md", "Dashboard", Here),
    ("docs/operations.md", "OCM's driver file", Here),
    (
        "docs/protocol.md",
        "A source or agent of your own",
        By("muster-cloudevents, clients"),
    ),
    ("docs/troubleshooting.md", "Troubleshooting", Here),
    (
        "deploy/README.md",
        "Image",
        By("image, with buildah for docker"),
    ),
    ("deploy/README.md", "The hub", Here),
    ("deploy/README.md", "Access for an agent", Here),
    ("deploy/README.md", "The agent", Here),
    ("deploy/README.md", "Rights", Here),
    ("deploy/README.md", "systemd", By("systemd")),
    ("deploy/README.md", "CustomResourceDefinitions", Here),
    ("deploy/charts/muster/README.md", "Chart muster", Here),
    ("deploy/mosquitto/README.md", "mosquitto", By("mosquitto")),
    ("tests/README.md", "Tests", By("this very run")),
];

/// Every document that may have some.
fn documents() -> Result<Vec<String>> {
    let mut all = Vec::new();
    for folder in ["", "docs", "docs/adr", "tests", "benches", "deploy"] {
        let mut folders = vec![root().join(folder)];
        while let Some(at) = folders.pop() {
            for entry in std::fs::read_dir(&at)? {
                let path = entry?.path();
                if path.is_dir() && folder == "deploy" {
                    folders.push(path);
                } else if path.extension().is_some_and(|ending| ending == "md") {
                    let path = path.strip_prefix(root())?;
                    all.push(path.display().to_string());
                }
            }
        }
    }
    all.sort();
    Ok(all)
}

async fn every_command_is_tried(_: Arc<Servers>) -> Result<()> {
    let mut found = Vec::new();
    for document in documents()? {
        for section in sections(&document)? {
            if !section.lines().is_empty() {
                found.push((document.clone(), section.heading));
            }
        }
    }
    ensure!(found.len() > 20, "the documents were not read: {found:?}");
    let known = |(document, heading): &(String, String)| {
        let mut all = SECTIONS.iter();
        all.any(|(in_document, with, _)| in_document == document && with == heading)
    };
    let new: Vec<_> = found.iter().filter(|one| !known(one)).collect();
    ensure!(new.is_empty(), "commands that no test tries: {new:?}");
    for (document, heading, tried) in SECTIONS {
        let there = found.iter().any(|(d, h)| d == document && h == heading);
        ensure!(there, "{document} has no commands at {heading:?} any more");
        if let By(tests) = tried {
            ensure!(!tests.is_empty());
        }
    }
    Ok(())
}

/// Waits until the set has been rolled out everywhere.
async fn is_rolled_out(shell: &Shell, name: &str) -> Result<()> {
    let status = format!("muster rollout status {name} --timeout 60s --kubeconfig hub.kubeconfig");
    shell.run(&[status]).await?;
    Ok(())
}

async fn the_readme_can_be_followed(servers: Arc<Servers>) -> Result<()> {
    let dir = servers.new_dir(&unique_name("readme"))?;
    let world = World::new(Backend::Embedded, servers);
    let fleet = Fleet::on(&world, "").await?;
    let settings = fleet.settings().display().to_string();
    let shell = Shell::new(&dir, &world.kubectl()?, &dir.join("hub.kubeconfig"))?
        .with("cargo run -- demo", "muster demo --once")
        .with("--config FILE", &format!("--config {settings}"));
    let readme = |heading| section("README.md", heading);
    shell.run(&readme("See it")?.lines()).await?;
    shell.run(&readme("Settings")?.lines()).await?;

    let run = readme("Run it")?;
    shell.run(&run.lines()).await?;
    let smallest = run.texts("yaml");
    ensure!(smallest.len() == 1, "{smallest:?}");
    let mut everywhere = placement();
    everywhere["metadata"]["name"] = "everywhere".into();
    fleet.create(&everywhere).await?;
    std::fs::write(dir.join("set.yaml"), smallest[0])?;
    shell.run(&["kubectl apply -f set.yaml"]).await?;

    let lines = readme("Roll out, and back")?.lines();
    let [status, pause, history, undo] = &lines[..] else {
        anyhow::bail!("other commands than this story knows: {lines:?}")
    };
    // It would go on.
    let why = readme("Why is it stuck?")?.lines();
    let why = why.iter().map(|line| line.replace(" --watch", ""));
    shell.run(&why.collect::<Vec<_>>()).await?;
    let line = async |line: &str| {
        let line = format!("{line} --kubeconfig hub.kubeconfig");
        shell.run(&[line]).await
    };
    // As the page says, it finds the hub as kubectl does.
    shell.run(&[status]).await?;
    line(pause).await?;
    line(&pause.replace("pause", "resume")).await?;
    let text = "/spec/manifestWorkTemplate/workload/manifests/0/data/text";
    let other = json!([{"op": "replace", "path": text, "value": "Good bye"}]);
    fleet.patch("hello", &other).await?;
    is_rolled_out(&shell, "hello").await?;
    let known = line(history).await?;
    ensure!(known.lines().count() == 3, "two revisions: {known}");
    line(undo).await?;
    is_rolled_out(&shell, "hello").await?;
    let set = fleet
        .kubectl(&["get", "mwrs", "hello", "-o", "yaml"])
        .await?;
    ensure!(set.contains("Hello from the hub"), "{set}");
    fleet.muster.kill().await
}

async fn operations_and_troubleshooting_can_be_followed(servers: Arc<Servers>) -> Result<()> {
    let dir = servers.new_dir(&unique_name("operations"))?;
    let world = World::new(Backend::Embedded, servers);
    let fleet = Fleet::on(&world, "").await?;
    std::fs::copy(&fleet.hub, dir.join("hub.kubeconfig"))?;
    fleet.create(&placement()).await?;
    fleet.create(&set(&json!([config_map("app")]))).await?;
    let shell = Shell::new(&dir, &world.kubectl()?, &dir.join("hub.kubeconfig"))?;
    is_rolled_out(&shell, "web").await?;
    for value in ["2", "3", "4"] {
        fleet.change(value).await?;
        is_rolled_out(&shell, "web").await?;
    }
    let operations = |heading| section("docs/operations.md", heading);
    shell
        .run(&operations("Following a rollout")?.lines())
        .await?;
    let printed = shell.run(&operations("Revisions")?.lines()).await?;
    ensure!(printed.contains("went back to revision 3"), "{printed}");

    let works = fleet.get(&["manifestworks", "-n", "simulated"]).await?;
    let work = works["items"][0]["metadata"]["name"]
        .as_str()
        .context("no work")?;
    // `explain_command` has the one for a rule, which is at a cluster.
    let why = operations("Why something is not done")?.lines();
    let why: Vec<_> = why
        .iter()
        .filter(|line| !line.starts_with("muster explain rule"))
        .map(|line| {
            line.replace(
                "web-59f312d2e4 --cluster north",
                &format!("{work} --cluster simulated"),
            )
        })
        .collect();
    let printed = shell.run(&why).await?;
    ensure!(
        printed.contains("ManifestWorkReplicaSet default/web"),
        "{printed}"
    );
    let shell = shell
        .with("-n CLUSTER NAME", &format!("-n simulated {work}"))
        .with("NAME", "web")
        .with("CLUSTER", "simulated")
        .with("http://127.0.0.1:9090", &fleet.muster.url(""));
    let lines = section("docs/troubleshooting.md", "Troubleshooting")?.lines();
    let printed = shell.run(&lines).await?;
    ensure!(printed.contains("ReplicaSetAggregator"), "{printed}");
    fleet.muster.kill().await
}

/// Makes Deployments ready, as the controllers of a whole cluster would.
fn controllers(client: Client) -> impl Drop {
    let stop = CancellationToken::new();
    let options = SimulatorOptions {
        pace: Duration::from_millis(50),
        ..SimulatorOptions::default()
    };
    tokio::spawn(WorkloadSimulator::new(client, options).run(stop.clone()));
    stop.drop_guard()
}

/// Puts into a Secret what the controller of tokens would.
async fn issue_token(cluster: &Cluster) -> Result<()> {
    let token = cluster.token("edge-1", "muster-agent").await?;
    let (_, ca) = cluster.server()?;
    let path = "/api/v1/namespaces/edge-1/secrets/muster-agent";
    let data = json!({"stringData": {"token": token, "ca.crt": ca}});
    cluster.rest().merge_patch(path, &data).await?.ok()?;
    Ok(())
}

async fn a_deployment_can_be_followed(servers: Arc<Servers>) -> Result<()> {
    let server = servers.own_api_server().await?;
    let cluster = server.cluster();
    let _controllers = controllers(cluster.client());
    let rest = cluster.rest();
    let (address, _) = cluster.server()?;
    let dir = servers.new_dir(&unique_name("deploy"))?;
    let shell = Shell::new(&dir, &servers.kubectl()?, cluster.kubeconfig())?
        .with("https://hub.example.org:6443", &address)
        .with("REGISTRY", "registry.example.org");
    // The repository lies beside the overlays, as the pages have it.
    let copy = format!(
        "mkdir muster && cp -r {}/deploy muster/deploy",
        root().display()
    );
    shell.run(&[copy]).await?;

    let deploy = |heading| section("deploy/README.md", heading);
    let hub = deploy("The hub")?;
    let overlay = hub
        .texts("yaml")
        .first()
        .copied()
        .context("no overlay")?
        .to_owned();
    shell.save(&overlay)?;
    shell.run(&hub.lines()).await?;
    let hub_service = rest
        .get("/api/v1/namespaces/muster-hub/services/muster-hub")
        .await?
        .ok()?;
    ensure!(
        hub_service["spec"]["ports"][0]["port"] == 9090,
        "{hub_service}"
    );

    let crds = deploy("CustomResourceDefinitions")?.lines();
    let own = crds.iter().filter(|line| line.starts_with("kubectl"));
    let here = own.map(|line| line.replace("deploy/crds", "muster/deploy/crds"));
    shell.run(&here.collect::<Vec<_>>()).await?;

    install_definitions(cluster).await?;
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "edge-1"}});
    rest.post("/api/v1/namespaces", &namespace)
        .await?
        .created()?;
    let access = deploy("Access for an agent")?;
    shell.save(access.texts("yaml").first().context("no overlay")?)?;
    let lines = access.lines();
    let (apply, make) = lines.split_first().context("no commands")?;
    shell.run(&[apply]).await?;
    issue_token(cluster).await?;
    shell.run(make).await?;
    let as_agent = "kubectl --kubeconfig hub.kubeconfig get manifestworks -n";
    shell.run(&[format!("{as_agent} edge-1")]).await?;
    let elsewhere = shell.run(&[format!("{as_agent} muster-hub")]).await;
    ensure!(elsewhere.is_err(), "it reads the works of others");

    let agent = deploy("The agent")?;
    for text in agent.texts("yaml") {
        shell.save(text)?;
    }
    shell.run(&agent.lines()).await?;
    let may = shell.run(&deploy("Rights")?.lines()).await?;
    ensure!(
        may.contains("appliedmanifestworks.work.open-cluster-management.io"),
        "{may}"
    );
    // What is labelled for works reaches the agent by a controller that does not run here.
    let role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/works-apps";
    let role = rest.get(role).await?.ok()?;
    ensure!(role["metadata"]["labels"]["muster.dev/aggregate-to-works"] == "true");
    server.stop().await
}

/// A node, and on it a pod of the hub's Deployment that runs and is ready, as far as objects go.
async fn pod_on_node(rest: &Rest, kubelet: u16) -> Result<()> {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"}});
    rest.post("/api/v1/nodes", &node).await?.created()?;
    let status = json!({"status": {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet}}}});
    let path = "/api/v1/nodes/node/status";
    rest.merge_patch(path, &status).await?.ok()?;

    let path = "/apis/apps/v1/namespaces/muster-hub/deployments/muster-hub";
    let mut pod = rest.get(path).await?.ok()?["spec"]["template"].take();
    pod["metadata"]["name"] = "muster-hub".into();
    pod["spec"]["nodeName"] = "node".into();
    let pods = "/api/v1/namespaces/muster-hub/pods";
    rest.post(pods, &pod).await?.created()?;
    let status = json!({"status": {"phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}]}});
    let path = format!("{pods}/muster-hub/status");
    rest.merge_patch(&path, &status).await?.ok()?;
    Ok(())
}

/// The program runs beside, and the pod's kubelet takes its port for the pod's.
async fn the_dashboard_of_a_pod_can_be_reached(servers: Arc<Servers>) -> Result<()> {
    let program = servers.part(Part::Kubelet)?;
    let server = servers.own_api_server().await?;
    let cluster = server.cluster();
    let dir = servers.new_dir(&unique_name("dashboard"))?;
    let hub = OwnProcess::of_role("hub", &["--set=hub.listen=127.0.0.1:0".to_owned()])?;
    let telemetry = hub.port("probes").await?;
    apply(cluster, &overlay(&servers, "hub", &[], &json!({}))?).await?;
    let (_kubelet, port) = on_free_ports(|[port]| {
        let (program, log) = (&program, dir.join("kubelet.log"));
        async move {
            let address = format!("127.0.0.1:{port}");
            let args = [address.clone(), format!("9090={telemetry}")].map(OsString::from);
            let listens = || async { Ok(TcpStream::connect(&address).await.map(drop)?) };
            let (kubelet, ()) = Process::start("kubelet", program, &args, &log, listens).await?;
            Ok((kubelet, port))
        }
    })
    .await?;
    pod_on_node(&cluster.rest(), port).await?;

    let [line] = &section("docs/operations.md", "Dashboard")?.lines()[..] else {
        anyhow::bail!("not one line")
    };
    // Any local port, since the page's may be taken; kubectl tells which.
    let line = line.replace("9090", ":9090");
    let page = Shell::new(&dir, &servers.kubectl()?, cluster.kubeconfig())?
        .run(&[
            &*format!("exec 3< <(exec {line})"),
            "trap 'kill $!' EXIT",
            "read -r -u 3 told",
            "address=${told#Forwarding from }; address=${address% ->*}",
            "curl -sSf http://$address/ http://$address/readyz",
        ])
        .await?;
    ensure!(page.contains("<title>muster</title>"), "{page}");
    ensure!(page.trim_end().ends_with("ok"), "{page}");
    server.stop().await
}

async fn the_chart_can_be_installed(servers: Arc<Servers>) -> Result<()> {
    let helm = servers.part(Part::Helm)?;
    let server = servers.own_api_server().await?;
    let cluster = server.cluster();
    let dir = servers.new_dir(&unique_name("chart"))?;
    let chart = root().join("deploy/charts/muster").display().to_string();
    let shell = Shell::new(&dir, &servers.kubectl()?, cluster.kubeconfig())?
        .with("helm install", &format!("{} install", helm.display()))
        .with("deploy/charts/muster", &chart)
        .with("REGISTRY", "registry.example.org");
    let lines = section("deploy/charts/muster/README.md", "Chart muster")?.lines();
    let printed = shell.run(&lines).await?;
    ensure!(
        printed.matches("STATUS: deployed").count() == 2,
        "{printed}"
    );
    for name in ["muster-hub", "muster-agent"] {
        let path = format!("/apis/apps/v1/namespaces/{name}/deployments/{name}");
        let live = cluster.rest().get(&path).await?.ok()?;
        let image = &live["spec"]["template"]["spec"]["containers"][0]["image"];
        let image = image.as_str().context("no image")?;
        ensure!(image.starts_with("registry.example.org/muster:"), "{image}");
    }
    server.stop().await
}

/// What OCM's operator leaves on a cluster, as far as the page names it.
async fn ocm(rest: &Rest) -> Result<()> {
    for (namespace, name) in [
        ("open-cluster-management", "klusterlet"),
        ("open-cluster-management-agent", "klusterlet-work-agent"),
    ] {
        let space =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        rest.post("/api/v1/namespaces", &space).await?.created()?;
        let labels = json!({"app": name});
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {"replicas": 1, "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels},
                    "spec": {"containers": [{"name": "a", "image": "ocm"}]}}}});
        let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments");
        rest.post(&path, &deployment).await?.created()?;
    }
    Ok(())
}

/// The lease as OCM's agent holds it, and as it leaves it at its end.
fn lease(holder: &str) -> Value {
    let now = jiff::Timestamp::now();
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "work-agent-lock"},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 137, "leaseTransitions": 1,
            "acquireTime": format!("{now:.6}"), "renewTime": format!("{now:.6}")}})
}

/// What is applied and written meanwhile is told in `conformance::takeover`.
async fn coming_from_ocm_can_be_followed(servers: Arc<Servers>) -> Result<()> {
    let server = servers.own_api_server().await?;
    let cluster = server.cluster();
    let rest = cluster.rest();
    install_definitions(cluster).await?;
    ocm(&rest).await?;
    let leases = "/apis/coordination.k8s.io/v1/namespaces/open-cluster-management-agent/leases";
    rest.post(leases, &lease("klusterlet")).await?.created()?;
    let dir = servers.new_dir(&unique_name("migration"))?;
    for name in ["hub.kubeconfig", "cluster.kubeconfig"] {
        std::fs::copy(cluster.kubeconfig(), dir.join(name))?;
    }
    let shell =
        Shell::new(&dir, &servers.kubectl()?, cluster.kubeconfig())?.with("CLUSTER", "edge-1");
    let lines = |heading| Ok::<_, anyhow::Error>(section("docs/migration.md", heading)?.lines());
    shell.run(&lines("Before")?).await?;

    let lines = lines("The agent of a cluster")?;
    let (ours, stop_ocm) = lines.split_first().context("no commands")?;
    let flags = ours.strip_prefix("muster agent ");
    let flags = flags.with_context(|| format!("{ours} comes first"))?;
    let flags = flags.replace("CLUSTER", "edge-1");
    // So that what the page says takes up to 26 s takes a second.
    let hurried = "--leader-election-renew-deadline=10s --leader-election-retry-period=1s";
    let flags = flags.split_whitespace().chain(hurried.split_whitespace());
    let flags: Vec<String> = flags.map(str::to_owned).collect();
    let agent = OwnProcess::agent(&[], &flags, |command| command.current_dir(&dir))?;
    let shows = async |path: &str, text: &str| {
        eventually(LIMIT, text, || async {
            let (_, body) = agent.get(path).await?;
            ensure!(body.contains(text), "{body}\n{}", agent.log());
            Ok(())
        })
        .await
    };
    shows("/debug/actors", "klusterlet").await?;
    shows("/metrics", "\nmuster_lease_held 0\n").await?;

    shell.run(stop_ocm).await?;
    let work_agent =
        "/apis/apps/v1/namespaces/open-cluster-management-agent/deployments/klusterlet-work-agent";
    let live = rest.get(work_agent).await?.ok()?;
    ensure!(live["spec"]["replicas"] == 0, "{live}");
    let path = format!("{leases}/work-agent-lock");
    rest.merge_patch(&path, &lease("")).await?.ok()?;
    shows("/metrics", "\nmuster_lease_held 1\n").await?;
    shows("/readyz", "ok").await?;
    server.stop().await
}

async fn a_driver_file_of_ocm_brings_works(servers: Arc<Servers>) -> Result<()> {
    let dir = servers.new_dir(&unique_name("driver-file"))?;
    let hub = BrokerHub::start(&dir, "edge-1", "secret").await?;
    let spoke = servers.own_embedded().await?;
    let cluster = spoke.cluster();
    install_definitions(cluster).await?;
    std::fs::copy(cluster.kubeconfig(), dir.join("edge-1.kubeconfig"))?;

    let page = section("docs/operations.md", "OCM's driver file")?;
    let ([command], [file]) = (&page.lines()[..], &page.texts("yaml")[..]) else {
        anyhow::bail!("not one command and its file")
    };
    let ca = "caFile: /etc/muster/ca.crt\n";
    ensure!(file.contains(ca), "{file}");
    // Without TLS, as the hub of this story has it.
    let file = file
        .replace(ca, "")
        .replace("broker.example.org:8883", &hub.broker);
    std::fs::write(dir.join("mqtt.yaml"), file)?;
    let flags = command
        .strip_prefix("muster agent ")
        .context("another one")?;
    let flags = flags.split_whitespace();
    // There is no namespace for its lease.
    let flags = flags.chain(["--set", "agent.leader_election=false"]);
    let flags: Vec<String> = flags.map(str::to_owned).collect();
    let agent = OwnProcess::agent(&[], &flags, |command| command.current_dir(&dir))?;

    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "edge-1"}});
    let namespaces = "/api/v1/namespaces";
    hub.rest.post(namespaces, &namespace).await?.created()?;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": "default", "name": "greeting"}});
    let works = "/apis/work.open-cluster-management.io/v1/namespaces/edge-1/manifestworks";
    let work = json!({"apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
        "metadata": {"name": "greeting"}, "spec": manifests([map])});
    hub.rest.post(works, &work).await?.created()?;
    let path = format!("{works}/greeting");
    eventually(LIMIT, "the work to be applied", || async {
        let told = hub.rest.get(&path).await?.ok()?;
        let applied = work_condition(&told, "Applied")?;
        ensure!(applied["status"] == "True", "{applied}\n{}", agent.log());
        Ok(())
    })
    .await?;
    hub.kill().await?;
    spoke.stop().await;
    Ok(())
}
