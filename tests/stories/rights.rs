//! The roles in `deploy/` are enough, and each right in them is needed: muster runs under them on a real
//! API server that writes down what it is asked.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use muster_api::constants::{ABANDONED, PAUSED_ANNOTATION};
use muster_api::replicaset::ManifestWorkReplicaSet;
use muster_core::apply::spec_hash;
use muster_core::replicaset::{revision_name, work_name};
use serde_json::{Value, json};

use super::deploy::{apply, overlay};
use crate::support::own_process::OwnProcess;
use crate::support::rights::{Request, Right};
use crate::support::works::condition;
use crate::support::{
    Cluster, RealApiServer, Servers, Story, eventually, on_free_ports, unique_name,
};

pub(crate) fn stories() -> Vec<Story> {
    once![
        the_rights_are_enough_and_each_is_needed,
        over_mqtt_the_hub_writes_statuses,
    ]
}

const LIMIT: Duration = Duration::from_secs(60);
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1";
const CLUSTERS_API: &str = "/apis/cluster.open-cluster-management.io";
const WORKS: &str = "/apis/work.open-cluster-management.io/v1/namespaces/edge-1/manifestworks";
const SETS: &str =
    "/apis/work.open-cluster-management.io/v1alpha1/namespaces/default/manifestworkreplicasets";
const REVISIONS: &str = "/apis/apps/v1/namespaces/default/controllerrevisions";

/// The way to a cluster as one of the accounts has it, with a token of its own: an agent acts in the
/// name of others, which who acts in another's name already cannot.
async fn as_account(cluster: &Cluster, dir: &Path, account: &str) -> Result<String> {
    let mut names = account.rsplit(':');
    let (name, namespace) = (names.next(), names.next());
    let (name, namespace) = name.zip(namespace).context("no service account")?;
    let mut config: Value = serde_json::from_slice(&std::fs::read(cluster.kubeconfig())?)?;
    config["users"][0]["user"] = json!({"token": cluster.token(namespace, name).await?});
    let file = dir.join(account.replace(':', "-"));
    std::fs::write(&file, config.to_string())?;
    Ok(file.display().to_string())
}

const HUB: &str = "system:serviceaccount:muster-hub:muster-hub";
const AGENT: &str = "system:serviceaccount:muster-agent:muster-agent";
const AGENT_AT_HUB: &str = "system:serviceaccount:edge-1:muster-agent";

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
    let path = format!("{CLUSTERS_API}/v1/managedclusters");
    eventually(LIMIT, "clusters to be served", || async {
        cluster.rest().post(&path, &managed).await?.created()
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
             resolve_placements = true\nabandon_after = \"1s\"\n{CLUSTERS}{}",
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

    /// Makes a placement of all clusters without the label `a`, which edge-2 has: it has no agent.
    async fn place(&self, name: &str) -> Result<()> {
        let path = format!("{CLUSTERS_API}/v1beta1/namespaces/default/placements");
        let placement = json!({"apiVersion": "cluster.open-cluster-management.io/v1beta1",
            "kind": "Placement", "metadata": {"namespace": "default", "name": name},
            "spec": {"predicates": [{"requiredClusterSelector": {"labelSelector": {
                "matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}}}]}});
        self.create(&path, &placement).await
    }

    async fn reports(&self, value: &str) -> Result<()> {
        eventually(LIMIT, "the value to be reported", || async {
            let status = self.status().await?;
            let ready = condition(&status["conditions"], "Ready").context("no Ready")?;
            let reported = status["feedback"].to_string();
            ensure!(
                ready["status"] == "True" && reported.contains(&format!("\"{value}\"")),
                "{status}\n{}",
                self.logs()
            );
            Ok(())
        })
        .await
    }

    async fn status(&self) -> Result<Value> {
        let rest = self.server.cluster().rest();
        let mut live = rest.get(&format!("{SETS}/web")).await?.ok()?;
        Ok(live["status"].take())
    }

    async fn change(&self, value: &str) -> Result<()> {
        let rest = self.server.cluster().rest();
        let spec = json!({"spec": set(value)["spec"]});
        rest.merge_patch(&format!("{SETS}/web"), &spec)
            .await?
            .ok()?;
        Ok(())
    }

    async fn are_gone(&self, paths: &[&str]) -> Result<()> {
        let rest = self.server.cluster().rest();
        eventually(LIMIT, "all to be gone", || async {
            for path in paths {
                let code = rest.get(path).await?.code;
                ensure!(code == 404, "{path}: {code}\n{}", self.logs());
            }
            Ok(())
        })
        .await
    }

    /// A set that reaches its cluster, is changed and changed back, and ends.
    async fn roll_out(&self) -> Result<()> {
        let rest = self.server.cluster().rest();
        self.place("all").await?;
        self.create(SETS, &set("1")).await?;
        for value in ["1", "2", "1"] {
            self.change(value).await?;
            self.reports(value).await?;
        }
        let decision =
            format!("{CLUSTERS_API}/v1beta1/namespaces/default/placementdecisions/all-decision-1");
        rest.get(&decision).await?.ok()?;
        rest.delete(&format!("{SETS}/web")).await?.ok()?;
        let map = "/api/v1/namespaces/default/configmaps/web";
        self.are_gone(&[&format!("{SETS}/web"), map]).await?;
        let placement = format!("{CLUSTERS_API}/v1beta1/namespaces/default/placements/all");
        rest.delete(&placement).await?.ok()?;
        self.are_gone(&[&decision]).await
    }

    /// A work that is being deleted in a cluster whose agent is away, until the cluster is given up.
    async fn give_up(&self) -> Result<()> {
        let rest = self.server.cluster().rest();
        let managed = format!("{CLUSTERS_API}/v1/managedclusters/edge-2");
        let away = json!({"status": {"conditions": [{
            "type": "ManagedClusterConditionAvailable", "status": "Unknown", "reason": "Test",
            "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
        rest.merge_patch(&format!("{managed}/status"), &away)
            .await?
            .ok()?;
        let works = WORKS.replace("edge-1", "edge-2");
        let finalizer = "cluster.open-cluster-management.io/manifest-work-cleanup";
        let work = json!({"apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
            "metadata": {"name": "left", "finalizers": [finalizer]},
            "spec": {"workload": {"manifests": []}}});
        self.create(&works, &work).await?;
        let left = format!("{works}/left");
        rest.delete(&left).await?.ok()?;
        eventually(LIMIT, "the work to say that it waits", || async {
            let live = rest.get(&left).await?.ok()?;
            let deleting =
                condition(&live["status"]["conditions"], "Deleting").context("nothing")?;
            ensure!(
                deleting["reason"] == "AgentAway",
                "{deleting}\n{}",
                self.logs()
            );
            Ok(())
        })
        .await?;
        let annotate = json!({"metadata": {"annotations": {ABANDONED: "true"}}});
        rest.merge_patch(&managed, &annotate).await?.ok()?;
        self.are_gone(&[&left]).await
    }

    /// A set whose work and revision somebody else has made, until these go; and an agent's write that
    /// somebody else's comes before.
    async fn meet_others(&self) -> Result<()> {
        let rest = self.server.cluster().rest();
        self.place("all").await?;
        let mut paused = set("1");
        paused["metadata"]["annotations"] = json!({PAUSED_ANNOTATION: "true"});
        self.create(SETS, &paused).await?;
        let web = format!("{SETS}/web");
        let live: ManifestWorkReplicaSet = serde_json::from_value(rest.get(&web).await?.ok()?)?;
        let uid = live.metadata.uid.context("no uid")?;
        let template = spec_hash(&live.spec.manifest_work_template)?;
        let revision = revision_name("web", &uid, &template);
        let others = json!({"apiVersion": "apps/v1", "kind": "ControllerRevision",
            "metadata": {"name": revision}, "data": {}, "revision": 1});
        rest.post(REVISIONS, &others).await?.created()?;
        let work = work_name("default", "web", "all");
        let others = json!({"apiVersion": "work.open-cluster-management.io/v1",
            "kind": "ManifestWork", "metadata": {"name": work},
            "spec": {"workload": {"manifests": []}}});
        rest.post(WORKS, &others).await?.created()?;
        let go_on = json!({"metadata": {"annotations": {PAUSED_ANNOTATION: null}}});
        rest.merge_patch(&web, &go_on).await?.ok()?;
        let (work, revision) = (format!("{WORKS}/{work}"), format!("{REVISIONS}/{revision}"));
        eventually(LIMIT, "what is in the way to be told", || async {
            let status = self.status().await?.to_string();
            for object in [
                "ManifestWork edge-1/web-",
                "ControllerRevision default/web-",
            ] {
                ensure!(status.contains(object), "{status}\n{}", self.logs());
            }
            Ok(())
        })
        .await?;
        for path in [&work, &revision] {
            rest.delete(path).await?.ok()?;
        }
        self.reports("1").await?;

        let annotate = async |value: usize| -> Result<()> {
            let note = json!({"metadata": {"annotations": {"note": value.to_string()}}});
            rest.merge_patch(&work, &note).await?.ok()?;
            Ok(())
        };
        let conflict = async {
            for round in 0.. {
                self.change(&format!("round {round}")).await?;
                for note in 0..20 {
                    annotate(note).await?;
                }
                let asked = self.server.asked()?;
                if asked.iter().any(|event| {
                    event["user"]["username"] == AGENT_AT_HUB
                        && event["responseStatus"]["code"] == 409
                }) {
                    break;
                }
            }
            Ok(())
        };
        tokio::time::timeout(LIMIT, conflict)
            .await
            .context("no write of the agent came too late")?
    }

    /// Every right of an account's roles: a request of the account has needed it, and without it the API
    /// server refuses that request.
    async fn needs(&self, account: &str, roles: &[&str]) -> Result<()> {
        let rest = self.server.cluster().rest();
        for role in roles {
            let path = format!("{ROLES}/{role}");
            let live = rest.get(&path).await?.ok()?;
            let rights = Right::of_role(&live);
            ensure!(!rights.is_empty(), "{role} gives nothing");
            for right in rights.iter().filter(|right| !right.is_of_admission()) {
                let request = eventually(LIMIT, "a right to be used", || async {
                    let requests = Request::of_account(&self.server.asked()?, account);
                    let needed = right.needed_by(&requests).cloned();
                    needed.with_context(|| format!("{account} does not need {right:?}"))
                })
                .await?;
                let others = rights.iter().filter(|other| *other != right);
                let others: Vec<Value> = others.map(Right::rule).collect();
                rest.merge_patch(&path, &json!({"rules": others}))
                    .await?
                    .ok()?;
                eventually(LIMIT, "the request to be refused", || async {
                    let allowed = request.is_allowed(&rest, account).await?;
                    ensure!(!allowed, "{account} has {right:?} in another role, too");
                    Ok(())
                })
                .await?;
            }
            rest.merge_patch(&path, &json!({"rules": live["rules"]}))
                .await?
                .ok()?;
        }
        Ok(())
    }

    /// The right that admission asks for: without it no decision is made that its placement owns.
    async fn needs_finalizers(&self, role: &str) -> Result<()> {
        let rest = self.server.cluster().rest();
        let path = format!("{ROLES}/{role}");
        let live = rest.get(&path).await?.ok()?;
        let (of_admission, others): (Vec<_>, Vec<_>) = Right::of_role(&live)
            .into_iter()
            .partition(Right::is_of_admission);
        ensure!(of_admission.len() == 1, "{of_admission:?}");
        let others: Vec<Value> = others.iter().map(Right::rule).collect();
        rest.merge_patch(&path, &json!({"rules": others}))
            .await?
            .ok()?;
        self.place("owner").await?;
        eventually(LIMIT, "the decision to be refused", || async {
            let asked = self.server.asked()?;
            let mut of_hub = asked.iter().filter(|event| {
                event["user"]["username"] == HUB
                    && event["objectRef"]["resource"] == "placementdecisions"
            });
            ensure!(of_hub.any(|event| event["responseStatus"]["code"] == 403));
            Ok(())
        })
        .await?;
        rest.merge_patch(&path, &json!({"rules": live["rules"]}))
            .await?
            .ok()?;
        let decision = format!(
            "{CLUSTERS_API}/v1beta1/namespaces/default/placementdecisions/owner-decision-1"
        );
        eventually(LIMIT, "the decision", || async {
            rest.get(&decision).await?.ok()
        })
        .await?;
        Ok(())
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
        // What becomes of a rule again and again is one Event that is patched.
        let rest = self.server.cluster().rest();
        let maps = format!("{group}/namespaces/default/watchrules/maps");
        for (destination, status) in [("nowhere", "False"), ("file", "True")].repeat(2) {
            let change = json!({"spec": {"destination": destination}});
            rest.merge_patch(&maps, &change).await?.ok()?;
            eventually(LIMIT, "the rule to say so", || async {
                let live = rest.get(&maps).await?.ok()?;
                let ready = condition(&live["status"]["conditions"], "Ready").context("nothing")?;
                let generation = &live["metadata"]["generation"];
                ensure!(
                    ready["status"] == status
                        && live["status"]["observedGeneration"] == *generation,
                    "{ready}\n{}",
                    self.logs()
                );
                Ok(())
            })
            .await?;
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

/// Nothing is refused, and each right, taken away, would have something refused.
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
    site.meet_others().await?;
    site.execute().await?;
    site.give_up().await?;
    site.nothing_is_refused()?;
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
    site.needs_finalizers("clusterroles/muster-hub-placements")
        .await?;
    site.server.stop().await
}

/// The same for works over MQTT, where the hub writes what agents report, and that they are away.
async fn over_mqtt_the_hub_writes_statuses(servers: Arc<Servers>) -> Result<()> {
    let port = on_free_ports(|[port]| async move { Ok(port) }).await?;
    let hub = format!(
        "[transport]\ndriver = \"mqtt\"\n[broker]\nlisten = \"127.0.0.1:{port}\"\nallow_anonymous = true\n\
         [mqtt]\naway_after = \"500ms\"\n"
    );
    let agent = format!("[transport]\ndriver = \"mqtt\"\n[mqtt]\nbroker = \"127.0.0.1:{port}\"\n");
    let plan = Plan {
        hub: &["resolve-placements", "hub-mqtt"],
        agent: &[],
        hub_settings: &hub,
        agent_settings: &agent,
        over_api: false,
    };
    let mut site = Site::new(&servers, plan).await?;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": "default", "name": "web"}});
    let work = json!({"apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
        "metadata": {"name": "web"}, "spec": {"workload": {"manifests": [map]}}});
    site.create(WORKS, &work).await?;
    site.is_applied("web").await?;
    site.agent.kill().await?;
    eventually(
        LIMIT,
        "the cluster to say that its agent is away",
        || async {
            let path = format!("{CLUSTERS_API}/v1/managedclusters/edge-1");
            let live = site.server.cluster().rest().get(&path).await?.ok()?;
            let conditions = &live["status"]["conditions"];
            let available = condition(conditions, "ManagedClusterConditionAvailable");
            let available = available.context("nothing")?;
            ensure!(available["reason"] == "AgentAway", "{available}");
            Ok(())
        },
    )
    .await?;
    site.nothing_is_refused()?;
    site.needs(HUB, &["clusterroles/muster-hub-mqtt"]).await?;
    site.server.stop().await
}
