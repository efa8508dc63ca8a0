//! An agent on a machine without Kubernetes, as the page `deploy/README.md` has it made: the unit with
//! all its restrictions, under a systemd of the story's own.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::support::broker_hub::BrokerHub;
use crate::support::docs::{Section, root, section};
use crate::support::muster::PROGRAM;
use crate::support::parts::Part;
use crate::support::systemd::{Network, Systemd};
use crate::support::works::condition;
use crate::support::{
    Backend, Cluster, Rest, Servers, Story, World, eventually, install_definitions, on_free_ports,
    unique_name,
};

pub(crate) fn stories() -> Vec<Story> {
    once![an_agent_runs_on_a_machine_as_the_page_has_it]
}

const LIMIT: Duration = Duration::from_secs(60);
const PASSWORD: &str = "of-edge";

/// A machine with what the page begins with, in `/edge`: the program, two kubeconfigs, and `deploy`.
struct Machine {
    systemd: Systemd,
    page: Section,
    name: String,
    port: u16,
}

impl Machine {
    async fn new(servers: &Servers, name: &str, hub: &Cluster, spoke: &Cluster) -> Result<Self> {
        let program = servers.part(Part::Systemd)?;
        let dir = servers.new_dir(&unique_name("systemd"))?;
        let files = dir.join("files/edge");
        std::fs::create_dir_all(files.join("deploy"))?;
        std::fs::copy(PROGRAM, files.join("muster"))?;
        std::fs::copy(hub.kubeconfig(), files.join("hub.kubeconfig"))?;
        std::fs::copy(spoke.kubeconfig(), files.join("cluster.kubeconfig"))?;
        let from = root().join("deploy/systemd");
        let to = files.join("deploy/systemd");
        std::fs::create_dir(&to)?;
        for file in ["agent.toml", "muster-agent.service"] {
            std::fs::copy(from.join(file), to.join(file))?;
        }
        Ok(Self {
            systemd: Systemd::start(&program, &dir, Network::Machine).await?,
            page: section("deploy/README.md", "systemd")?,
            name: name.to_owned(),
            port: on_free_ports(|[port]| async move { Ok(port) }).await?,
        })
    }

    /// Types lines in `/edge`.
    async fn types(&self, lines: &str) -> Result<String> {
        self.systemd.run(&format!("cd /edge\n{lines}")).await
    }

    /// The page's commands; what it says of the settings is done before the service begins.
    async fn install(&self) -> Result<()> {
        let lines = self.page.lines().join("\n");
        let (files, service) = lines
            .split_once("systemctl daemon-reload")
            .context("no daemon-reload")?;
        self.types(files).await?;
        self.set("\"edge-1\"", &format!("\"{}\"", self.name))
            .await?;
        self.set(":9090", &format!(":{}", self.port)).await?;
        let service = service.replace(":9090", &format!(":{}", self.port));
        let service = format!("systemctl daemon-reload{service}");
        match self.types(&service).await {
            Ok(_) => Ok(()),
            Err(error) => Err(error.context(self.log().await)),
        }
    }

    /// Changes the settings.
    async fn set(&self, from: &str, to: &str) -> Result<()> {
        let file = "/etc/muster/agent.toml";
        self.types(&format!(
            "grep -qF '{from}' {file}\nsed -i 's|{from}|{to}|' {file}"
        ))
        .await?;
        Ok(())
    }

    /// What the page says of works over MQTT.
    async fn goes_over_mqtt(&self, broker: &str) -> Result<()> {
        let ([drop_in], [settings]) = (&self.page.texts("ini")[..], &self.page.texts("toml")[..])
        else {
            anyhow::bail!("not one drop-in and its settings")
        };
        let settings = settings
            .replace("hub.example.org:8883", broker)
            .replace("edge-1", &self.name);
        self.types(&format!(
            "unit=/etc/systemd/system/muster-agent.service.d\n\
             install -D /dev/stdin $unit/override.conf <<'END'\n{drop_in}END\n\
             install -m 600 /dev/stdin /etc/muster/mqtt.password <<<'{PASSWORD}'\n\
             rest=$(sed -n '/^\\[\\[clusters/,$p' /etc/muster/agent.toml)\n\
             cat - >/etc/muster/agent.toml <<END\n{settings}\n$rest\nEND\n\
             systemctl daemon-reload\nsystemctl restart muster-agent"
        ))
        .await?;
        Ok(())
    }

    async fn is_ready(&self) -> Result<()> {
        let look = format!(
            "curl -sS --fail-with-body http://127.0.0.1:{}/readyz",
            self.port
        );
        eventually(LIMIT, "the agent to be ready", || async {
            self.types(&look).await
        })
        .await?;
        Ok(())
    }

    async fn metric(&self, line: &str) -> Result<()> {
        let look = format!("curl -sS http://127.0.0.1:{}/metrics", self.port);
        eventually(LIMIT, line, || async {
            let metrics = self.types(&look).await?;
            ensure!(metrics.lines().any(|one| one == line), "{metrics}");
            Ok(())
        })
        .await
    }

    async fn property(&self, name: &str) -> Result<String> {
        let asked = self
            .types(&format!("systemctl show -P {name} muster-agent"))
            .await?;
        Ok(asked.trim().to_owned())
    }

    async fn log(&self) -> String {
        let log = self.types("journalctl -u muster-agent -o cat").await;
        log.unwrap_or_else(|error| error.to_string())
    }
}

/// A work arrives, and its status comes back.
async fn is_delivered(machine: &Machine, rest: &Rest, work: &str) -> Result<()> {
    let works = format!(
        "/apis/work.open-cluster-management.io/v1/namespaces/{}/manifestworks",
        machine.name
    );
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": "default", "name": format!("{}-{work}", machine.name)}});
    let object = json!({"apiVersion": "work.open-cluster-management.io/v1",
        "kind": "ManifestWork", "metadata": {"name": work},
        "spec": {"workload": {"manifests": [map]}}});
    rest.post(&works, &object).await?.created()?;
    let path = format!("{works}/{work}");
    let applied = eventually(LIMIT, "the work to be applied", || async {
        let live = rest.get(&path).await?.ok()?;
        let applied = condition(&live["status"]["conditions"], "Applied").context("nothing")?;
        ensure!(applied["status"] == "True", "{applied}");
        Ok(())
    });
    match applied.await {
        Err(error) => Err(error.context(machine.log().await)),
        ok => ok,
    }
}

async fn an_agent_runs_on_a_machine_as_the_page_has_it(servers: Arc<Servers>) -> Result<()> {
    let name = unique_name("machine");
    let dir = servers.new_dir(&unique_name("hub-of-machine"))?;
    let world = World::new(Backend::Embedded, Arc::clone(&servers));
    let (hub, spoke) = (world.hub().await?, world.spoke().await?);
    tokio::try_join!(install_definitions(&hub), install_definitions(&spoke))?;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let namespaces = "/api/v1/namespaces";
    hub.rest().post(namespaces, &namespace).await?.created()?;

    let machine = Machine::new(&servers, &name, &hub, &spoke).await?;
    machine.install().await?;
    machine.is_ready().await?;
    is_delivered(&machine, &hub.rest(), "first").await?;

    // The user exists while the service runs, and secrets are root's.
    let pid = machine.property("MainPID").await?;
    let user = machine.types(&format!("stat -c %u /proc/{pid}")).await?;
    let user: u32 = user.trim().parse()?;
    ensure!((61_184..=65_519).contains(&user), "it runs as {user}");
    let modes = machine
        .types("stat -c '%a %U' /etc/muster /etc/muster/*.kubeconfig")
        .await?;
    ensure!(modes == "711 root\n600 root\n600 root\n", "{modes}");
    let verified = machine
        .types("systemd-analyze verify muster-agent.service 2>&1")
        .await?;
    ensure!(verified.is_empty(), "{verified}");

    machine.types("systemctl reload muster-agent").await?;
    machine
        .metric("muster_config_reloads_total{result=\"unchanged\"} 1")
        .await?;
    machine.types("systemctl restart muster-agent").await?;
    machine.is_ready().await?;
    ensure!(
        machine.property("MainPID").await? != pid,
        "the same process"
    );

    let broker_hub = BrokerHub::start(&dir, &name, PASSWORD).await?;
    let of_hub = &broker_hub.rest;
    of_hub.post(namespaces, &namespace).await?.created()?;
    machine.goes_over_mqtt(&broker_hub.broker).await?;
    machine.is_ready().await?;
    is_delivered(&machine, of_hub, "second").await?;
    let kept = machine.types("ls -A /var/lib/muster-agent").await?;
    ensure!(!kept.is_empty(), "it keeps nothing");

    machine.types("systemctl stop muster-agent").await?;
    let ended = machine.property("Result").await? + &machine.property("ExecMainStatus").await?;
    ensure!(ended == "success0", "{ended}: {}", machine.log().await);
    broker_hub.kill().await?;
    machine.systemd.stop().await
}
