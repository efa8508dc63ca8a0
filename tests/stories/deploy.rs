//! What is in `deploy/`, on a real API server.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::support::own_process::OwnProcess;
use crate::support::works::condition;
use crate::support::{
    Backend, Cluster, RealApiServer, Servers, Story, World, eventually, install_definitions,
    on_free_ports, unique_name,
};

pub(crate) fn stories() -> Vec<Story> {
    once![
        every_kustomization_is_taken,
        what_is_there_twice_is_the_same,
        the_rights_are_enough_and_each_is_needed,
        over_mqtt_the_hub_writes_statuses,
        the_unit_runs_an_agent,
    ]
}

const LIMIT: Duration = Duration::from_secs(60);
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1";
const WORKS: &str = "/apis/work.open-cluster-management.io/v1/namespaces/edge-1/manifestworks";
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
pub(super) fn overlay(
    servers: &Servers,
    base: &str,
    components: &[&str],
    more: &Value,
) -> Result<PathBuf> {
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

/// The way to a cluster as one of the accounts has it, with a token of its own: an agent acts in the
/// name of others, which who acts in another's name already cannot.
async fn as_account(cluster: &Cluster, dir: &Path, account: &str) -> Result<String> {
    let mut names = account.rsplit(':');
    let (name, namespace) = (names.next(), names.next());
    let (name, namespace) = name.zip(namespace).context("no service account")?;
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
    let request =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let token = cluster.rest().post(&path, &request).await?.created()?;
    let mut config: Value = serde_json::from_slice(&std::fs::read(cluster.kubeconfig())?)?;
    config["users"][0]["user"] = json!({"token": token["status"]["token"]});
    let file = dir.join(account.replace(':', "-"));
    std::fs::write(&file, config.to_string())?;
    Ok(file.display().to_string())
}

const HUB: &str = "system:serviceaccount:muster-hub:muster-hub";
const AGENT: &str = "system:serviceaccount:muster-agent:muster-agent";
const AGENT_AT_HUB: &str = "system:serviceaccount:edge-1:muster-agent";

/// Verb and resource (`leases.coordination.k8s.io`, `manifestworks.…/status`) that an account used.
fn used(asked: &[Value], account: &str) -> BTreeSet<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let by = asked.iter().filter(|one| {
        one["user"]["username"] == account && one["objectRef"]["resource"].is_string()
    });
    by.map(|one| {
        if one["impersonatedUser"].is_null() {
            (text(&one["verb"]), resource_of(&one["objectRef"]))
        } else {
            ("impersonate".to_owned(), "serviceaccounts".to_owned())
        }
    })
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
const SELDOM: [(&str, &str, &str); 7] = [
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
    (
        HUB,
        "update",
        "placements.cluster.open-cluster-management.io/finalizers",
    ), // an admission plugin that does not run here
    (
        HUB,
        "delete",
        "placementdecisions.cluster.open-cluster-management.io",
    ), // more than a hundred clusters that become fewer
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

/// What of `deploy/kustomize` a site has, and its processes.
struct Plan<'a> {
    hub: &'a [&'a str],
    agent: &'a [&'a str],
    /// TOML after what every site has.
    hub_settings: &'a str,
    agent_settings: &'a str,
    /// Whether the agent reads its works from the hub's API.
    over_api: bool,
}

/// The hub registers its clusters. One of them is there already, and gets a label.
const CLUSTERS: &str = "[[clusters]]\nname = \"edge-1\"\nsimulated = true\n\
                        [[clusters]]\nname = \"edge-2\"\nsimulated = true\nlabels = { a = \"b\" }\n";

/// Makes a cluster as somebody else would have.
async fn register(cluster: &Cluster, name: &str) -> Result<()> {
    let crd = "deploy/crds/managedclusters.cluster.open-cluster-management.io.yaml";
    let crd = Path::new(env!("CARGO_MANIFEST_DIR")).join(crd);
    let crd = crd.display().to_string();
    cluster.kubectl(&["apply", "-f", &crd]).await?.ok()?;
    let managed = json!({"apiVersion": "cluster.open-cluster-management.io/v1",
        "kind": "ManagedCluster", "metadata": {"name": name}, "spec": {"hubAcceptsClient": true}});
    let path = "/apis/cluster.open-cluster-management.io/v1/managedclusters";
    eventually(LIMIT, "clusters to be served", || async {
        cluster.rest().post(path, &managed).await?.created()
    })
    .await?;
    Ok(())
}

impl Site {
    async fn new(servers: &Servers, plan: Plan<'_>) -> Result<Self> {
        let server = servers.audited_api_server().await?;
        let cluster = server.cluster();
        register(cluster, "edge-2").await?;
        apply(cluster, &overlay(servers, "hub", plan.hub, &json!({}))?).await?;
        apply(cluster, &overlay(servers, "agent", plan.agent, &json!({}))?).await?;
        // No controller fills aggregated roles here.
        let maps = json!({"rules": [
            {"apiGroups": [""], "resources": ["configmaps"],
                "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"]},
            {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"],
                "verbs": ["get", "create", "update", "patch", "delete"]}]});
        let role = format!("{ROLES}/clusterroles/muster-agent-works");
        cluster.rest().merge_patch(&role, &maps).await?.ok()?;

        let dir = servers.new_dir(&unique_name("accounts"))?;
        let write = |name: &str, text: String| -> Result<String> {
            let file = dir.join(name);
            std::fs::write(&file, text)?;
            Ok(file.display().to_string())
        };
        let toml = format!(
            "[hub]\napi = \"kubeconfig\"\nkubeconfig = \"{}\"\nlease_namespace = \"muster-hub\"\n\
             resolve_placements = true\n{CLUSTERS}{}",
            as_account(cluster, &dir, HUB).await?,
            plan.hub_settings
        );
        let hub = format!("--config={}", write("hub.toml", toml)?);
        let hub = OwnProcess::of_role("hub", &[hub])?;
        hub.says("took the lease").await?;

        let own = as_account(cluster, &dir, AGENT).await?;
        let mut flags = vec![
            "--spoke-cluster-name=edge-1".to_owned(),
            format!("--spoke-kubeconfig={own}"),
            "--namespace=muster-agent".to_owned(),
            format!(
                "--config={}",
                write("agent.toml", plan.agent_settings.to_owned())?
            ),
        ];
        if plan.over_api {
            // Once the hub has registered the cluster.
            eventually(LIMIT, "the namespace of the cluster", || async {
                cluster.rest().get("/api/v1/namespaces/edge-1").await?.ok()
            })
            .await?;
            let access = json!({"namespace": "edge-1"});
            apply(
                cluster,
                &overlay(servers, "hub-agent-access", &[], &access)?,
            )
            .await?;
            let at_hub = as_account(cluster, &dir, AGENT_AT_HUB).await?;
            flags.push(format!("--hub-kubeconfig={at_hub}"));
        }
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
        let placements = format!("{clusters}/v1beta1/namespaces/default/placements");
        let placement = json!({"apiVersion": "cluster.open-cluster-management.io/v1beta1",
            "kind": "Placement", "metadata": {"namespace": "default", "name": "all"},
            // All but edge-2, which has no agent.
            "spec": {"predicates": [{"requiredClusterSelector": {"labelSelector": {
                "matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}}}]}});
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

impl Site {
    /// A work that is applied in the name of an account, and gives a right that the account has.
    async fn execute(&self) -> Result<()> {
        let rest = self.server.cluster().rest();
        let roles = format!("{ROLES}/namespaces/default/roles");
        let subject = json!({"kind": "ServiceAccount", "namespace": "default", "name": "executor"});
        for (path, object) in [
            (
                roles.clone(),
                json!({"metadata": {"name": "executor"}, "rules": [
                    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]},
                    {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"],
                        "verbs": ["get", "create", "update", "patch", "delete"]}]}),
            ),
            (
                format!("{ROLES}/namespaces/default/rolebindings"),
                json!({"metadata": {"name": "executor"}, "subjects": [subject], "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "executor"}}),
            ),
        ] {
            rest.post(&path, &object).await?.created()?;
        }
        let given = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"namespace": "default", "name": "given"},
            "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]});
        let work = json!({"apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
            "metadata": {"name": "executed"},
            "spec": {"workload": {"manifests": [given]}, "executor": {"subject": {
                "type": "ServiceAccount",
                "serviceAccount": {"namespace": "default", "name": "executor"}}}}});
        rest.post(WORKS, &work).await?.created()?;
        self.is_applied("executed").await?;
        rest.delete(&format!("{WORKS}/executed")).await?.ok()?;
        eventually(LIMIT, "the work to be gone", || async {
            let code = rest.get(&format!("{WORKS}/executed")).await?.code;
            ensure!(code == 404, "{code}\n{}", self.logs());
            Ok(())
        })
        .await
    }

    async fn is_applied(&self, work: &str) -> Result<()> {
        let path = format!("{WORKS}/{work}");
        eventually(LIMIT, "the work to be applied", || async {
            let live = self.server.cluster().rest().get(&path).await?.ok()?;
            let applied = condition(&live["status"]["conditions"], "Applied").context("nothing")?;
            ensure!(applied["status"] == "True", "{applied}\n{}", self.logs());
            Ok(())
        })
        .await
    }

    /// Rules of both kinds.
    async fn watch(&self) -> Result<()> {
        let rules = json!({"destination": "file", "rules": [{"resources": ["configmaps"]}]});
        let group = "/apis/rules.muster.dev/v1alpha1";
        for (kind, path) in [
            (
                "WatchRule",
                format!("{group}/namespaces/default/watchrules"),
            ),
            ("ClusterWatchRule", format!("{group}/clusterwatchrules")),
        ] {
            let mut rule = json!({"apiVersion": "rules.muster.dev/v1alpha1", "kind": kind,
                "metadata": {"name": "maps"}, "spec": rules});
            if kind == "ClusterWatchRule" {
                rule["spec"]["rules"][0]["scope"] = "Namespaced".into();
            }
            self.create(&path, &rule).await?;
        }
        Ok(())
    }

    /// Nobody was refused anything.
    fn nothing_is_refused(&self) -> Result<()> {
        let asked = self.server.asked()?;
        let refused = asked
            .iter()
            .filter(|one| one["responseStatus"]["code"] == 403)
            .map(|one| {
                let by = &one["user"]["username"];
                format!("{by} {} {}", one["verb"], one["requestURI"])
            });
        let refused: Vec<String> = refused.collect();
        ensure!(refused.is_empty(), "{refused:#?}");
        Ok(())
    }
}

/// Nothing is refused, and nothing is allowed that nobody asks for.
async fn the_rights_are_enough_and_each_is_needed(servers: Arc<Servers>) -> Result<()> {
    let events = servers.new_dir(&unique_name("events"))?.join("events.log");
    let sink = format!(
        "[[sinks]]\nname = \"file\"\nkind = \"log\"\npath = \"{}\"\n",
        events.display()
    );
    let plan = Plan {
        hub: &["resolve-placements"],
        agent: &["watch-rules", "executors"],
        hub_settings: "[transport]\ndriver = \"kube\"\n",
        agent_settings: &sink,
        over_api: true,
    };
    let site = Site::new(&servers, plan).await?;
    site.watch().await?;
    site.roll_out().await?;
    site.execute().await?;
    for (account, roles) in [
        (
            HUB,
            &[
                "clusterroles/muster-hub",
                "clusterroles/muster-hub-crds",
                "clusterroles/muster-hub-placements",
                "namespaces/muster-hub/roles/muster-hub",
            ][..],
        ),
        (
            AGENT,
            &[
                "clusterroles/muster-agent",
                "clusterroles/muster-agent-crds",
                "clusterroles/muster-agent-watch-rules",
                "clusterroles/muster-agent-executors",
                "namespaces/muster-agent/roles/muster-agent",
            ],
        ),
        (AGENT_AT_HUB, &["namespaces/edge-1/roles/muster-agent"]),
    ] {
        site.needs(account, roles).await?;
    }
    site.nothing_is_refused()?;
    site.server.stop().await
}

/// The same for works over MQTT, where the hub writes what agents report.
async fn over_mqtt_the_hub_writes_statuses(servers: Arc<Servers>) -> Result<()> {
    let port = on_free_ports(|[port]| async move { Ok(port) }).await?;
    let hub = format!(
        "[transport]\ndriver = \"mqtt\"\n[broker]\nlisten = \"127.0.0.1:{port}\"\nallow_anonymous = true\n"
    );
    let agent = format!("[transport]\ndriver = \"mqtt\"\n[mqtt]\nbroker = \"127.0.0.1:{port}\"\n");
    let plan = Plan {
        hub: &["resolve-placements", "hub-mqtt"],
        agent: &[],
        hub_settings: &hub,
        agent_settings: &agent,
        over_api: false,
    };
    let site = Site::new(&servers, plan).await?;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": "default", "name": "web"}});
    let work = json!({"apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
        "metadata": {"name": "web"}, "spec": {"workload": {"manifests": [map]}}});
    site.create(WORKS, &work).await?;
    site.is_applied("web").await?;
    site.needs(HUB, &["clusterroles/muster-hub-mqtt"]).await?;
    site.nothing_is_refused()?;
    site.server.stop().await
}

/// The systemd unit without systemd: its command, with its settings, and its credentials where it has
/// them put.
async fn the_unit_runs_an_agent(servers: Arc<Servers>) -> Result<()> {
    let dir = servers.new_dir(&unique_name("systemd"))?;
    let world = World::new(Backend::Embedded, servers);
    let (hub, spoke) = (world.hub().await?, world.spoke().await?);
    tokio::try_join!(install_definitions(&hub), install_definitions(&spoke))?;
    let name = unique_name("edge");
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let namespaces = "/api/v1/namespaces";
    hub.rest().post(namespaces, &namespace).await?.created()?;

    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/systemd");
    let unit = std::fs::read_to_string(files.join("muster-agent.service"))?;
    let values = |key: &str| -> Vec<&str> {
        let lines = unit.lines().filter_map(|line| line.split_once('='));
        lines
            .filter(|(name, _)| *name == key)
            .map(|(_, value)| value)
            .collect()
    };
    let credentials = values("LoadCredential");
    ensure!(credentials.len() == 2, "{credentials:?}");
    for credential in credentials {
        let (name, _) = credential.split_once(':').context("no source")?;
        let from = if name.starts_with("hub") {
            &hub
        } else {
            &spoke
        };
        std::fs::copy(from.kubeconfig(), dir.join(name))?;
    }
    let settings = std::fs::read_to_string(files.join("agent.toml"))?;
    let at = dir.display().to_string();
    let named = settings.replace("/run/credentials/muster-agent.service", &at);
    let named = named.replace("\"edge-1\"", &format!("\"{name}\""));
    ensure!(
        named.matches(&at).count() >= 2 && named.contains(&name),
        "{named}"
    );
    std::fs::write(dir.join("agent.toml"), named)?;

    let command = values("ExecStart");
    let [command] = command[..] else {
        anyhow::bail!("not one command: {command:?}")
    };
    let flags = command
        .strip_prefix("/usr/local/bin/muster agent ")
        .context("another program")?
        .replace("/etc/muster", &at);
    let flags: Vec<String> = flags.split_whitespace().map(str::to_owned).collect();
    let mut agent = OwnProcess::agent(&[], &flags, |command| command)?;
    agent.says("muster is up").await?;
    eventually(LIMIT, "the agent to be ready", || async {
        let (code, body) = agent.get("/readyz").await?;
        ensure!(code == 200, "{body}");
        Ok(())
    })
    .await?;
    agent.terminate().await?;
    ensure!(agent.ended().await?.success(), "{}", agent.log());
    Ok(())
}
