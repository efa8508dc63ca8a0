//! What is in `deploy/`, on a real API server.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::support::own_process::OwnProcess;
use crate::support::works::condition;
use crate::support::{Cluster, RealApiServer, Servers, Story, eventually, unique_name};

pub(crate) fn stories() -> Vec<Story> {
    once![
        every_kustomization_is_taken,
        what_is_there_twice_is_the_same,
        the_rights_are_enough_and_each_is_needed,
    ]
}

const LIMIT: Duration = Duration::from_secs(60);
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1";
const SETS: &str =
    "/apis/work.open-cluster-management.io/v1alpha1/namespaces/default/manifestworkreplicasets";

/// The path of a folder below `deploy/kustomize`, as a kustomization in `from` has to name it: one
/// that begins at the root is refused there.
fn named_from(from: &Path, folder: &str) -> String {
    let up = "../".repeat(from.components().count() - 1);
    let root = env!("CARGO_MANIFEST_DIR").trim_start_matches('/');
    format!("{up}{root}/deploy/kustomize/{folder}")
}

/// A kustomization of a base with components, as users write one.
fn overlay(servers: &Servers, base: &str, components: &[&str], more: &Value) -> Result<PathBuf> {
    let dir = servers.new_dir(&unique_name(base))?.canonicalize()?;
    let components: Vec<_> = components
        .iter()
        .map(|name| named_from(&dir, &format!("components/{name}")))
        .collect();
    let mut own = json!({"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
        "resources": [named_from(&dir, base)], "components": components});
    for (key, value) in more.as_object().into_iter().flatten() {
        own[key] = value.clone();
    }
    std::fs::write(dir.join("kustomization.yaml"), own.to_string())?;
    Ok(dir)
}

async fn apply(cluster: &Cluster, overlay: &Path) -> Result<String> {
    let overlay = overlay.display().to_string();
    let args = ["apply", "--server-side", "-k", &overlay];
    cluster.kubectl(&args).await?.ok()
}

/// With each component that goes with it; but `monitoring`, whose types are the Prometheus operator's.
async fn every_kustomization_is_taken(servers: Arc<Servers>) -> Result<()> {
    let server = servers.own_api_server().await?;
    let cluster = server.cluster();
    for (base, components) in [
        ("hub", &[][..]),
        ("hub", &["resolve-placements", "hub-mqtt", "crds-by-hand"]),
        ("agent", &[]),
        (
            "agent",
            &[
                "watch-rules",
                "executors",
                "works-cluster-admin",
                "crds-by-hand",
            ],
        ),
    ] {
        let overlay = overlay(&servers, base, components, &json!({}))?;
        let taken = apply(cluster, &overlay).await?;
        ensure!(
            taken.contains(&format!("deployment.apps/muster-{base}")),
            "{taken}"
        );
    }
    let monitoring = overlay(&servers, "hub", &["monitoring"], &json!({}))?;
    let monitoring = monitoring.display().to_string();
    let rendered = cluster.kubectl(&["kustomize", &monitoring]).await?.ok()?;
    for kind in ["ServiceMonitor", "PrometheusRule"] {
        ensure!(rendered.contains(&format!("kind: {kind}\n")), "no {kind}");
    }
    server.stop().await
}

async fn what_is_there_twice_is_the_same(_: Arc<Servers>) -> Result<()> {
    let sync = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/sync");
    let checked = tokio::process::Command::new(sync)
        .arg("--check")
        .output()
        .await?;
    ensure!(checked.status.success(), "{checked:?}");
    Ok(())
}

/// The way to a cluster as one of the accounts has it.
fn as_account(cluster: &Cluster, dir: &Path, account: &str) -> Result<PathBuf> {
    let mut config: Value = serde_json::from_slice(&std::fs::read(cluster.kubeconfig())?)?;
    config["users"][0]["user"]["as"] = account.into();
    let file = dir.join(account.replace(':', "-"));
    std::fs::write(&file, config.to_string())?;
    Ok(file)
}

const HUB: &str = "system:serviceaccount:muster-hub:muster-hub";
const AGENT: &str = "system:serviceaccount:muster-agent:muster-agent";
const AGENT_AT_HUB: &str = "system:serviceaccount:edge-1:muster-agent";

/// Verb and resource (`leases.coordination.k8s.io`, `manifestworks.…/status`) that an account used.
fn used(asked: &[Value], account: &str) -> BTreeSet<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let by = asked.iter().filter(|one| {
        one["impersonatedUser"]["username"] == account && one["objectRef"]["resource"].is_string()
    });
    by.map(|one| (text(&one["verb"]), resource_of(&one["objectRef"])))
        .collect()
}

fn resource_of(object: &Value) -> String {
    let part = |name: &str| object[name].as_str().unwrap_or_default();
    let mut resource = part("resource").to_owned();
    if !part("apiGroup").is_empty() {
        resource = format!("{resource}.{}", part("apiGroup"));
    }
    if !part("subresource").is_empty() {
        resource = format!("{resource}/{}", part("subresource"));
    }
    resource
}

/// What the rules of a role allow, in the same form.
fn allowed(role: &Value) -> Vec<(String, String)> {
    let texts = |value: &Value| -> Vec<String> {
        let all = value.as_array().into_iter().flatten();
        all.filter_map(|one| one.as_str().map(str::to_owned))
            .collect()
    };
    let mut all = Vec::new();
    for rule in role["rules"].as_array().into_iter().flatten() {
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                let (resource, sub) = resource.split_once('/').unwrap_or((&resource, ""));
                let object = json!({"apiGroup": group, "resource": resource, "subresource": sub});
                for verb in texts(&rule["verbs"]) {
                    all.push((verb, resource_of(&object)));
                }
            }
        }
    }
    all
}

/// Rights that this story does not come to need, each with what would.
const SELDOM: [(&str, &str, &str); 5] = [
    (HUB, "get", "manifestworks.work.open-cluster-management.io"), // what a sweep finds changed
    (HUB, "get", "controllerrevisions.apps"),                      // created by another just then
    (HUB, "delete", "controllerrevisions.apps"),                   // more than the limit of them
    (
        HUB,
        "watch",
        "customresourcedefinitions.apiextensions.k8s.io",
    ), // one that is slow to be served
    (
        AGENT_AT_HUB,
        "get",
        "manifestworks.work.open-cluster-management.io",
    ), // a conflict
];

fn set(value: &str) -> Value {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": "default", "name": "web"}, "data": {"a": value}});
    json!({
        "apiVersion": "work.open-cluster-management.io/v1alpha1", "kind": "ManifestWorkReplicaSet",
        "metadata": {"namespace": "default", "name": "web"},
        "spec": {"placementRefs": [{"name": "all"}], "manifestWorkTemplate": {
            "workload": {"manifests": [map]},
            "manifestConfigs": [{
                "resourceIdentifier": {"group": "", "resource": "configmaps", "name": "web",
                    "namespace": "default"},
                "feedbackScrapeType": "Watch",
                "feedbackRules": [{"type": "JSONPaths",
                    "jsonPaths": [{"name": "a", "path": ".data.a"}]}]}]}}})
}

/// Hub and agent over one API server that writes down what it is asked, each as the account of its base
/// and under its lease.
struct Site {
    server: RealApiServer,
    hub: OwnProcess,
    agent: OwnProcess,
}

impl Site {
    async fn new(servers: &Servers) -> Result<Self> {
        let server = servers.audited_api_server().await?;
        let cluster = server.cluster();
        let rest = cluster.rest();
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "edge-1"}});
        rest.post("/api/v1/namespaces", &namespace)
            .await?
            .created()?;
        for (base, components, more) in [
            ("hub", &["resolve-placements"][..], json!({})),
            ("hub-agent-access", &[], json!({"namespace": "edge-1"})),
            ("agent", &[], json!({})),
        ] {
            apply(cluster, &overlay(servers, base, components, &more)?).await?;
        }
        // No controller fills aggregated roles here.
        let works = json!({"rules": [{"apiGroups": [""], "resources": ["configmaps"],
            "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"]}]});
        let role = format!("{ROLES}/clusterroles/muster-agent-works");
        rest.merge_patch(&role, &works).await?.ok()?;

        let dir = servers.new_dir(&unique_name("accounts"))?;
        let file = |account| -> Result<String> {
            let file = as_account(cluster, &dir, account)?;
            Ok(file.display().to_string())
        };
        let settings = [
            ("hub.api", "kubeconfig".to_owned()),
            ("hub.kubeconfig", file(HUB)?),
            ("hub.lease_namespace", "muster-hub".to_owned()),
            ("hub.resolve_placements", "true".to_owned()),
            ("transport.driver", "kube".to_owned()),
        ];
        let settings = settings.map(|(key, value)| ["--set".to_owned(), format!("{key}={value}")]);
        let hub = OwnProcess::of_role("hub", settings.as_flattened())?;
        hub.says("took the lease").await?;
        let flags = [
            "--spoke-cluster-name=edge-1".to_owned(),
            format!("--hub-kubeconfig={}", file(AGENT_AT_HUB)?),
            format!("--kubeconfig={}", file(AGENT)?),
            "--namespace=muster-agent".to_owned(),
        ];
        let agent = OwnProcess::agent(&[], &flags, |command| command)?;
        agent.says("took the lease").await?;
        Ok(Self { server, hub, agent })
    }

    /// Creates an object, once its type is served.
    async fn create(&self, path: &str, object: &Value) -> Result<()> {
        eventually(LIMIT, &format!("{path} to be served"), || async {
            let rest = self.server.cluster().rest();
            rest.post(path, object).await?.created()?;
            Ok(())
        })
        .await
    }

    fn logs(&self) -> String {
        format!("{}\n{}", self.hub.log(), self.agent.log())
    }

    /// A set that reaches its cluster, is changed and changed back, and ends.
    async fn roll_out(&self) -> Result<()> {
        let rest = self.server.cluster().rest();
        let clusters = "/apis/cluster.open-cluster-management.io";
        let managed = json!({"apiVersion": "cluster.open-cluster-management.io/v1",
            "kind": "ManagedCluster", "metadata": {"name": "edge-1"},
            "spec": {"hubAcceptsClient": true}});
        self.create(&format!("{clusters}/v1/managedclusters"), &managed)
            .await?;
        let placements = format!("{clusters}/v1beta1/namespaces/default/placements");
        let placement = json!({"apiVersion": "cluster.open-cluster-management.io/v1beta1",
            "kind": "Placement", "metadata": {"namespace": "default", "name": "all"}, "spec": {}});
        self.create(&placements, &placement).await?;
        self.create(SETS, &set("1")).await?;
        let web = format!("{SETS}/web");
        for value in ["1", "2", "1"] {
            let spec = json!({"spec": set(value)["spec"]});
            rest.merge_patch(&web, &spec).await?.ok()?;
            eventually(LIMIT, "the value to be reported", || async {
                let status = rest.get(&web).await?.ok()?["status"].clone();
                let ready = condition(&status["conditions"], "Ready").context("no Ready")?;
                let reported = status["feedback"].to_string();
                ensure!(
                    ready["status"] == "True" && reported.contains(&format!("\"{value}\"")),
                    "{status}\n{}",
                    self.logs()
                );
                Ok(())
            })
            .await?;
        }
        rest.delete(&web).await?.ok()?;
        eventually(LIMIT, "all to be gone", || async {
            for path in [&web, "/api/v1/namespaces/default/configmaps/web"] {
                let code = rest.get(path).await?.code;
                ensure!(code == 404, "{path}: {code}\n{}", self.logs());
            }
            Ok(())
        })
        .await?;
        rest.delete(&format!("{placements}/all")).await?.ok()?;
        Ok(())
    }

    /// Waits until an account has used all that its roles allow.
    async fn needs(&self, account: &str, roles: &[&str]) -> Result<()> {
        let rest = self.server.cluster().rest();
        let mut may = BTreeSet::new();
        for role in roles {
            may.extend(allowed(&rest.get(&format!("{ROLES}/{role}")).await?.ok()?));
        }
        ensure!(!may.is_empty(), "{account} may do nothing");
        let is_seldom = |(verb, resource): &&(String, String)| {
            SELDOM.contains(&(account, verb.as_str(), resource.as_str()))
        };
        eventually(LIMIT, "all rights to be used", || async {
            let used = used(&self.server.asked()?, account);
            let unused = may.difference(&used).filter(|one| !is_seldom(one));
            let unused: Vec<_> = unused.collect();
            ensure!(unused.is_empty(), "{account} does not need {unused:?}");
            Ok(())
        })
        .await
    }
}

/// Nothing is refused, and nothing is allowed that nobody asks for.
async fn the_rights_are_enough_and_each_is_needed(servers: Arc<Servers>) -> Result<()> {
    let site = Site::new(&servers).await?;
    site.roll_out().await?;
    for (account, roles) in [
        (
            HUB,
            &[
                "clusterroles/muster-hub",
                "clusterroles/muster-hub-crds",
                "namespaces/muster-hub/roles/muster-hub",
            ][..],
        ),
        (
            AGENT,
            &[
                "clusterroles/muster-agent",
                "clusterroles/muster-agent-crds",
                "namespaces/muster-agent/roles/muster-agent",
            ],
        ),
        (AGENT_AT_HUB, &["namespaces/edge-1/roles/muster-agent"]),
    ] {
        site.needs(account, roles).await?;
    }
    let asked = site.server.asked()?;
    let refused = asked
        .iter()
        .filter(|one| one["responseStatus"]["code"] == 403)
        .map(|one| {
            let by = &one["impersonatedUser"]["username"];
            format!("{by} {} {}", one["verb"], one["requestURI"])
        });
    let refused: Vec<String> = refused.collect();
    ensure!(refused.is_empty(), "{refused:#?}");
    site.server.stop().await
}
