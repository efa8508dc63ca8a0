//! The Helm chart, by the real helm.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::process::Command;

use super::deploy::{install_operator_crds, overlay};
use crate::support::parts::Part;
use crate::support::{Servers, Story, kubectl_at, unique_name};

pub(crate) fn stories() -> Vec<Story> {
    once![
        the_chart_is_in_order_and_refuses_wrong_values,
        the_chart_is_what_kustomize_has,
        what_the_chart_renders_is_taken,
    ]
}

/// Hub and agent with all that can be added.
const EVERYTHING: &[&str] = &[
    "hub.resolvePlacements=true",
    "hub.mqttRights=true",
    "agent.enabled=true",
    "agent.clusterName=edge-1",
    "agent.works.clusterAdmin=true",
    "agent.executors.enabled=true",
    "agent.watchRules.enabled=true",
    "serviceMonitor.enabled=true",
    "prometheusRule.enabled=true",
    "dashboard.enabled=true",
];

struct Helm {
    program: PathBuf,
    home: PathBuf,
}

impl Helm {
    fn of(servers: &Servers) -> Result<Self> {
        Ok(Self {
            program: servers.part(Part::Helm)?,
            home: servers.new_dir(&unique_name("helm"))?,
        })
    }

    /// What it prints to either side, and whether it succeeded.
    async fn run(&self, args: &[&str], values: &[&str]) -> Result<(bool, String)> {
        let set = values.iter().flat_map(|value| ["--set", value]);
        let output = Command::new(&self.program)
            .args(args.iter().copied().chain(set))
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .env("HOME", &self.home)
            .env_remove("KUBECONFIG")
            .output()
            .await?;
        let text = [output.stdout, output.stderr].concat();
        Ok((output.status.success(), String::from_utf8(text)?))
    }

    /// The objects that the chart makes.
    async fn objects(&self, namespace: &str, values: &[&str]) -> Result<Vec<Value>> {
        let args = [
            "template",
            "muster",
            "deploy/charts/muster",
            "-n",
            namespace,
        ];
        let (well, text) = self.run(&args, values).await?;
        ensure!(well, "{text}");
        objects(&text)
    }
}

fn objects(text: &str) -> Result<Vec<Value>> {
    let documents = serde_saphyr::from_multiple::<Value>(text)?;
    Ok(documents.into_iter().filter(|one| !one.is_null()).collect())
}

async fn the_chart_is_in_order_and_refuses_wrong_values(servers: Arc<Servers>) -> Result<()> {
    let helm = Helm::of(&servers)?;
    for values in [&[][..], EVERYTHING] {
        let (well, text) = helm
            .run(&["lint", "--strict", "deploy/charts/muster"], values)
            .await?;
        ensure!(well && text.contains("0 chart(s) failed"), "{text}");
    }
    for (value, told) in [
        ("hub.replicas=many", "/hub/replicas"),
        ("hub.replica=1", "replica"),
        ("agent.enabled=true", "clusterName"),
        (
            "agent.enabled=true,agent.clusterName=Edge_1",
            "/agent/clusterName",
        ),
    ] {
        let args = ["template", "muster", "deploy/charts/muster"];
        let (well, text) = helm.run(&args, &[value]).await?;
        ensure!(!well && text.contains(told), "{value}: {text}");
    }
    Ok(())
}

/// What has to be the same, by kind and name: rights word for word, and what decides how a pod runs.
fn essence(objects: Vec<Value>) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    for object in objects {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let kind = text(&object["kind"]);
        let pod = &object["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        let kept = match &*kind {
            "ClusterRole" | "Role" if object["aggregationRule"].is_null() => {
                object["rules"].clone()
            }
            "ClusterRole" => object["aggregationRule"].clone(),
            "ClusterRoleBinding" | "RoleBinding" => {
                json!([object["roleRef"], object["subjects"]])
            }
            "Deployment" => json!({
                "strategy": object["spec"]["strategy"],
                "account": pod["serviceAccountName"],
                "grace": pod["terminationGracePeriodSeconds"],
                "pod": pod["securityContext"],
                "container": container["securityContext"],
                // The name of the cluster comes from a ConfigMap there.
                "args": container["args"].to_string().replace("$(CLUSTER_NAME)", "edge-1"),
                "ports": container["ports"],
                "resources": container["resources"],
                "probes": [container["livenessProbe"], container["readinessProbe"],
                    container["startupProbe"]]}),
            "Service" => object["spec"]["ports"].clone(),
            "PodDisruptionBudget" => object["spec"]["maxUnavailable"].clone(),
            _ => continue,
        };
        all.insert(
            format!("{kind} {}", text(&object["metadata"]["name"])),
            kept,
        );
    }
    all
}

async fn the_chart_is_what_kustomize_has(servers: Arc<Servers>) -> Result<()> {
    let helm = Helm::of(&servers)?;
    let kubectl = servers.kubectl()?;
    for (base, namespace, components, values) in [
        ("hub", "muster-hub", &[][..], &[][..]),
        (
            "hub",
            "muster-hub",
            &["resolve-placements", "hub-mqtt"],
            &["hub.resolvePlacements=true", "hub.mqttRights=true"],
        ),
        (
            "agent",
            "muster-agent",
            &[],
            &[
                "hub.enabled=false",
                "agent.enabled=true",
                "agent.clusterName=edge-1",
            ],
        ),
        (
            "agent",
            "muster-agent",
            &["executors", "watch-rules", "works-cluster-admin"],
            &[
                "hub.enabled=false",
                "agent.enabled=true",
                "agent.clusterName=edge-1",
                "agent.executors.enabled=true",
                "agent.watchRules.enabled=true",
                "agent.works.clusterAdmin=true",
            ],
        ),
    ] {
        let overlay = overlay(&servers, base, components, &json!({}))?;
        let overlay = overlay.display().to_string();
        let args = ["kustomize", &overlay];
        let rendered = kubectl_at(&kubectl, Path::new("/dev/null"), &args, "")
            .await?
            .ok()?;
        let wanted = essence(objects(&rendered)?);
        let charted = essence(helm.objects(namespace, values).await?);
        ensure!(wanted.len() > 5, "{wanted:?}");
        for (name, wanted) in &wanted {
            let charted = charted
                .get(name)
                .with_context(|| format!("{base}: no {name}"))?;
            ensure!(
                charted == wanted,
                "{base}: {name}: {charted:#} is not {wanted:#}"
            );
        }
        let more: Vec<_> = charted
            .keys()
            .filter(|name| !wanted.contains_key(*name))
            .collect();
        ensure!(more.is_empty(), "{base}: kustomize has no {more:?}");
    }
    Ok(())
}

/// By a real API server.
async fn what_the_chart_renders_is_taken(servers: Arc<Servers>) -> Result<()> {
    let helm = Helm::of(&servers)?;
    let server = servers.own_api_server().await?;
    let cluster = server.cluster();
    install_operator_crds(&servers, cluster).await?;
    let objects = helm.objects("default", EVERYTHING).await?;
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
    let args = ["apply", "--server-side", "-f", "-"];
    let taken = kubectl_at(&servers.kubectl()?, cluster.kubeconfig(), &args, &list)
        .await?
        .ok()?;
    for object in [
        "deployment.apps/muster-hub",
        "deployment.apps/muster-agent",
        "prometheusrule.monitoring.coreos.com/muster",
        "servicemonitor.monitoring.coreos.com/muster",
    ] {
        ensure!(taken.contains(object), "{taken}");
    }
    server.stop().await
}
