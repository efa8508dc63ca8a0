//! muster's agent where OCM's agent was: it takes over what that left, and nobody notices.
//!
//! The stories build by hand what OCM's agent leaves: works with its finalizer and the status that
//! it wrote, its records, and the objects with owners, annotations and field managers.

use anyhow::{Context, Result, ensure};
use http::Method;
use serde_json::{Value, json};

use crate::support::agent::Agent;
use crate::support::live::{Live, state};
use crate::support::works::manifests;
use crate::support::{Story, World, unique_name};

pub(crate) fn stories() -> Vec<Story> {
    on_each_backend![
        a_cluster_is_taken_over_without_a_write,
        what_ocm_was_deleting_is_deleted,
    ]
}

/// The stories about objects under server-side apply.
pub(crate) fn stories_with_apply() -> Vec<Story> {
    on_each_backend![an_applied_object_is_taken_over_without_a_write]
}

/// When OCM's agent did all of it.
const THEN: &str = "2026-01-02T03:04:05Z";

/// An object that OCM's agent has made, with the group and the plural of its type.
struct Left {
    group: &'static str,
    resource: &'static str,
    manifest: Value,
    live: Live,
}

impl Left {
    fn new(agent: &Agent, group: &'static str, resource: &'static str, manifest: Value) -> Self {
        let name = manifest["metadata"]["name"].as_str().unwrap_or_default();
        let live = agent.object(resource, name);
        Self {
            group,
            resource,
            manifest,
            live,
        }
    }

    fn kind(&self) -> &Value {
        &self.manifest["kind"]
    }

    fn name(&self) -> &Value {
        &self.manifest["metadata"]["name"]
    }

    fn namespace(&self) -> Value {
        match &self.manifest["metadata"]["namespace"] {
            Value::Null => "".into(),
            namespace => namespace.clone(),
        }
    }

    /// As a work's status names it.
    fn meta(&self, ordinal: usize) -> Value {
        json!({"ordinal": ordinal, "group": self.group, "version": "v1", "kind": self.kind(),
            "resource": self.resource, "name": self.name(), "namespace": self.namespace()})
    }
}

/// SHA-256 in lower-case hex.
fn sha256(text: &str) -> String {
    // A hub's hash is nothing else.
    muster_core::applied_work::hub_hash(text)
}

/// A config map, a Service, a Deployment and a ClusterRole.
fn left_by_update(agent: &Agent) -> Vec<Left> {
    let service = json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"namespace": agent.name(), "name": "svc"},
        "spec": {"selector": {"app": "web"},
            "ports": [{"protocol": "TCP", "port": 80, "targetPort": 8080}]}});
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": unique_name("taken-over")},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]});
    vec![
        Left::new(
            agent,
            "",
            "configmaps",
            agent.config_map("cm1", json!({"a": "b"})),
        ),
        Left::new(agent, "", "services", service),
        Left::new(agent, "apps", "deployments", agent.deployment("web", 2)),
        Left::new(agent, "rbac.authorization.k8s.io", "clusterroles", role),
    ]
}

/// What OCM's agent puts on a Service: the hash of the spec that it applied, as Go writes it.
const SERVICE_SPEC: &str =
    r#"{"ports":[{"protocol":"TCP","port":80,"targetPort":8080}],"selector":{"app":"web"}}"#;

/// Makes the record of a work, as OCM's agent would, and gives the owner reference of its objects.
async fn leave_record(agent: &Agent) -> Result<Value> {
    let hash = agent.hub_hash();
    let name = agent.record_name("work");
    let record = json!({
        "apiVersion": "work.open-cluster-management.io/v1", "kind": "AppliedManifestWork",
        "metadata": {
            "name": name, "labels": {"team": "blue"},
            "finalizers": ["cluster.open-cluster-management.io/applied-manifest-work-cleanup"]},
        "spec": {"hubHash": hash, "agentID": hash, "manifestWorkName": "work"}});
    let record = agent.record("work").create(&record).await?;
    Ok(
        json!({"apiVersion": "work.open-cluster-management.io/v1", "kind": "AppliedManifestWork",
        "name": name, "uid": record["metadata"]["uid"]}),
    )
}

/// Lists the objects in the record, as OCM's agent would.
async fn list_in_record(agent: &Agent, left: &[Left]) -> Result<()> {
    let mut listed = Vec::new();
    for object in left {
        let live = object.live.get().await?;
        listed.push(
            json!({"group": object.group, "version": "v1", "resource": object.resource,
            "name": object.name(), "namespace": object.namespace(),
            "uid": live["metadata"]["uid"]}),
        );
    }
    let key = |entry: &Value| {
        ["group", "version", "resource", "namespace", "name"]
            .map(|field| entry[field].as_str().unwrap_or_default().to_owned())
    };
    listed.sort_by_key(key);
    let status = json!({ "appliedResources": listed });
    agent.record("work").set_status(status).await?;
    Ok(())
}

fn condition(kind: &str, reason: &str, message: &str) -> Value {
    json!({"type": kind, "status": "True", "reason": reason, "message": message,
        "lastTransitionTime": THEN})
}

/// The same, of the first generation.
fn of_generation(mut condition: Value) -> Value {
    condition["observedGeneration"] = 1.into();
    condition
}

/// Makes the work on the hub with the status that OCM's agent gives it.
async fn leave_work(agent: &Agent, left: &[Left], configs: Value) -> Result<()> {
    let all: Vec<_> = left.iter().map(|object| object.manifest.clone()).collect();
    let mut spec = manifests(all);
    spec["manifestConfigs"] = configs;
    let work = json!({
        "apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
        "metadata": {"namespace": agent.name(), "name": "work", "labels": {"team": "blue"},
            "finalizers": ["cluster.open-cluster-management.io/manifest-work-cleanup"]},
        "spec": spec});
    agent.work("work").create(&work).await?;
    let of_object = |(ordinal, object): (usize, &Left)| {
        let applied = condition(
            "Applied",
            "AppliedManifestComplete",
            "Apply manifest complete",
        );
        json!({
            "resourceMeta": object.meta(ordinal),
            "statusFeedback": {},
            "conditions": [
                of_generation(applied),
                condition("Available", "ResourceAvailable", "Resource is available"),
                condition("StatusFeedbackSynced", "NoStatusFeedbackSynced", "")]})
    };
    let of_objects: Vec<_> = left.iter().enumerate().map(of_object).collect();
    let applied = condition(
        "Applied",
        "AppliedManifestWorkComplete",
        "Apply manifest work complete",
    );
    let available = condition(
        "Available",
        "ResourcesAvailable",
        "All resources are available",
    );
    let status = json!({
        "conditions": [of_generation(applied), of_generation(available)],
        "resourceStatus": {"manifests": of_objects}});
    agent.work("work").set_status(status).await?;
    Ok(())
}

/// Everything as OCM's agent leaves what it applies by the default strategy.
async fn leave_by_update(agent: &Agent) -> Result<Vec<Left>> {
    let owner = leave_record(agent).await?;
    let left = left_by_update(agent);
    for object in &left {
        let mut live = object.manifest.clone();
        live["metadata"]["ownerReferences"] = json!([owner]);
        if object.resource == "services" {
            live["metadata"]["annotations"] =
                json!({"operator.openshift.io/spec-hash": sha256(SERVICE_SPEC)});
        }
        object.live.create_as("work-agent", &live).await?;
    }
    list_in_record(agent, &left).await?;
    leave_work(agent, &left, json!([])).await?;
    Ok(left)
}

/// Requires that nobody has written to any of these since `before`.
async fn are_untouched(objects: &[Live], before: &[Value]) -> Result<()> {
    for (object, before) in objects.iter().zip(before) {
        let after = object.get().await?;
        ensure!(
            state(before) == state(&after),
            "was\n{before}\nand is\n{after}"
        );
    }
    Ok(())
}

async fn all_of(objects: &[Live]) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for object in objects {
        all.push(object.get().await?);
    }
    Ok(all)
}

async fn a_cluster_is_taken_over_without_a_write(world: World) -> Result<()> {
    let mut agent = Agent::prepare(&world, &[]).await?;
    let left = leave_by_update(&agent).await?;
    let mut all: Vec<_> = left.iter().map(|object| object.live.clone()).collect();
    all.extend([agent.work("work"), agent.record("work")]);
    let before = all_of(&all).await?;

    agent.run().await?;
    agent.looks_again("work", 2).await?;
    are_untouched(&all, &before).await?;

    // And it is muster's from now on: what is changed is repaired,
    agent
        .cm("cm1")
        .merge(json!({"data": {"a": "changed"}}))
        .await?;
    agent.cm("cm1").has_data(json!({"a": "b"})).await?;
    agent
        .object("deployments", "web")
        .merge(json!({"spec": {"replicas": 5}}))
        .await?;
    agent
        .object("deployments", "web")
        .is("have its replicas again", |live| {
            live["spec"]["replicas"] == 2
        })
        .await?;
    // what leaves the spec goes,
    let rest: Vec<_> = left
        .iter()
        .filter(|object| object.resource != "services")
        .map(|object| object.manifest.clone())
        .collect();
    agent.edit("work", manifests(rest)).await?;
    agent.object("services", "svc").disappears().await?;
    let record = agent.record("work").get().await?;
    let record_before = before.last().context("no record")?;
    ensure!(
        record["metadata"]["uid"] == record_before["metadata"]["uid"],
        "{record}"
    );
    // and so does everything else with the work.
    agent.work("work").delete().await?;
    agent.work("work").disappears().await?;
    for object in all {
        object.is_absent().await?;
    }
    Ok(())
}

async fn what_ocm_was_deleting_is_deleted(world: World) -> Result<()> {
    let mut agent = Agent::prepare(&world, &[]).await?;
    let left = leave_by_update(&agent).await?;
    // OCM's agent was stopped when it had deleted the record, and one object.
    agent.work("work").delete().await?;
    agent.record("work").delete().await?;
    agent.cm("cm1").delete().await?;
    agent.run().await?;
    agent.work("work").disappears().await?;
    agent.record("work").is_absent().await?;
    for object in left {
        object.live.is_absent().await?;
    }
    Ok(())
}

/// MD5 of `&{map[apiVersion:rbac.authorization.k8s.io/v1 kind:ClusterRole
/// metadata:map[name:taken-over-by-apply]]}`, which is how Go prints the manifest of the next
/// story without the field that is ignored.
const PRINTED: &str = "ee5b937d8f0dc2ffdc9cd157a610ad0b";

/// A role under server-side apply whose rules are the cluster's once it is there.
async fn an_applied_object_is_taken_over_without_a_write(world: World) -> Result<()> {
    let mut agent = Agent::prepare(&world, &[]).await?;
    let owner = leave_record(&agent).await?;
    // A fixed name, as the hash depends on it.
    let rules = |verb: &str| json!([{"apiGroups": [""], "resources": ["pods"], "verbs": [verb]}]);
    let manifest = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "taken-over-by-apply"}, "rules": rules("get")});
    let config = json!({
        "resourceIdentifier": {"group": "rbac.authorization.k8s.io", "resource": "clusterroles",
            "name": "taken-over-by-apply"},
        "updateStrategy": {"type": "ServerSideApply", "serverSideApply": {
            "fieldManager": "work-agent", "force": false,
            "ignoreFields": [{"condition": "OnSpokePresent", "jsonPaths": [".rules"]}]}}});
    let mut applied = manifest.clone();
    applied["metadata"]["annotations"] =
        json!({"open-cluster-management.io/config-spec-hash": PRINTED});
    let rest = agent.spoke().rest();
    rest.send(
        Method::PATCH,
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/taken-over-by-apply?fieldManager=work-agent",
        Some("application/apply-patch+yaml"),
        Some(&applied),
    )
    .await?
    .ok()?;
    let live = agent.object("clusterroles", "taken-over-by-apply");
    live.merge(json!({"metadata": {"ownerReferences": [owner]}, "rules": rules("list")}))
        .await?;
    let left = [Left::new(
        &agent,
        "rbac.authorization.k8s.io",
        "clusterroles",
        manifest,
    )];
    list_in_record(&agent, &left).await?;
    leave_work(&agent, &left, json!([config])).await?;
    let all = [live, agent.work("work"), agent.record("work")];
    let before = all_of(&all).await?;

    agent.run().await?;
    agent.looks_again("work", 2).await?;
    are_untouched(&all, &before).await?;
    agent.work("work").delete().await?;
    agent.work("work").disappears().await?;
    agent
        .object("clusterroles", "taken-over-by-apply")
        .is_absent()
        .await
}
