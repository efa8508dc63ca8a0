//! Group W: the life of a work.
//!
//! | Rows | Story |
//! |---|---|
//! | W01–W05 | `w01_w05_a_work_is_applied_and_reported` |
//! | W06–W08 | `w06_w08_manifests_are_replaced_and_a_deleted_work_takes_them_along` |
//! | W09–W12 | `w09_w12_one_failing_manifest_is_told_and_can_be_corrected` |
//! | W13 | `w13_a_work_that_never_applied_whole_is_deleted_whole` |
//! | W14, W15, W18, C001 | `w14_w15_w18_a_crd_and_its_object_come_and_go_in_one_work` |
//! | W16, W17 | `w16_w17_annotations_and_finalizers_of_others_stay` |
//! | W19, C018 | `w19_a_namespace_on_a_cluster_scoped_object_means_nothing` |
//! | W20–W24 | `w20_w24_swapped_and_renamed_manifests_are_followed` |
//! | W25, W26 | `w25_w26_conditions_follow_the_generation` |
//! | W27 | `w27_an_edit_on_the_cluster_is_repaired_and_conditions_stay` |
//! | W28, W29 | `feedback.rs` |
//! | W30–W33 | `deletion.rs` |
//! | W34 | `eviction.rs` |
//! | W35 | `rules.rs` |
//! | W36 | `w36_the_record_carries_the_labels_of_the_work` |
//! | W37–W39 | `w37_w39_an_immutable_field_fails_its_manifest_and_no_other` |

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::support::agent::Agent;
use crate::support::live::{LIMIT, Live, state};
use crate::support::works::{
    manifest, manifest_condition, manifests, shows, string, values, work_condition,
};
use crate::support::{Story, World, eventually, unique_name};

pub(crate) fn stories() -> Vec<Story> {
    on_each_backend![
        w01_w05_a_work_is_applied_and_reported,
        w06_w08_manifests_are_replaced_and_a_deleted_work_takes_them_along,
        w09_w12_one_failing_manifest_is_told_and_can_be_corrected,
        w13_a_work_that_never_applied_whole_is_deleted_whole,
        w14_w15_w18_a_crd_and_its_object_come_and_go_in_one_work,
        w16_w17_annotations_and_finalizers_of_others_stay,
        w19_a_namespace_on_a_cluster_scoped_object_means_nothing,
        w20_w24_swapped_and_renamed_manifests_are_followed,
        w25_w26_conditions_follow_the_generation,
        w27_an_edit_on_the_cluster_is_repaired_and_conditions_stay,
        w36_the_record_carries_the_labels_of_the_work,
        w37_w39_an_immutable_field_fails_its_manifest_and_no_other,
    ]
}

const FINALIZER: &str = "cluster.open-cluster-management.io/manifest-work-cleanup";

async fn w01_w05_a_work_is_applied_and_reported(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    let cm1 = agent.config_map("cm1", json!({"a": "b"}));
    let work = agent.applied("work", manifests([cm1])).await?;

    let live = agent.cm("cm1").get().await?;
    ensure!(live["data"] == json!({"a": "b"}), "{live}");
    let managers = live["metadata"]["managedFields"].as_array();
    let managers: Vec<_> = managers.into_iter().flatten().collect();
    ensure!(
        !managers.is_empty()
            && managers
                .iter()
                .all(|entry| entry["manager"] == "work-agent"),
        "{managers:?}"
    );

    for (kind, reason, message) in [
        (
            "Applied",
            "AppliedManifestWorkComplete",
            "Apply manifest work complete",
        ),
        (
            "Available",
            "ResourcesAvailable",
            "All resources are available",
        ),
    ] {
        let condition = work_condition(&work, kind)?;
        ensure!(
            condition["reason"] == reason && condition["message"] == message,
            "{condition}"
        );
    }
    for (kind, reason, message) in [
        (
            "Applied",
            "AppliedManifestComplete",
            "Apply manifest complete",
        ),
        ("Available", "ResourceAvailable", "Resource is available"),
        ("StatusFeedbackSynced", "NoStatusFeedbackSynced", ""),
    ] {
        let condition = manifest_condition(&work, 0, kind)?;
        ensure!(
            condition["status"] == "True"
                && condition["reason"] == reason
                && condition["message"] == message,
            "{condition}"
        );
    }
    let meta = &manifest(&work, 0)["resourceMeta"];
    ensure!(
        *meta
            == json!({"ordinal": 0, "group": "", "version": "v1", "kind": "ConfigMap",
                "resource": "configmaps", "namespace": agent.name(), "name": "cm1"}),
        "{meta}"
    );
    ensure!(
        work["metadata"]["finalizers"] == json!([FINALIZER]),
        "{work}"
    );
    Ok(())
}

async fn w06_w08_manifests_are_replaced_and_a_deleted_work_takes_them_along(
    world: World,
) -> Result<()> {
    let agent = Agent::start(&world).await?;
    let cm1 = agent.config_map("cm1", json!({"a": "b"}));
    agent.applied("work", manifests([cm1])).await?;

    let cm2 = agent.config_map("cm2", json!({"x": "y"}));
    agent.edit("work", manifests([cm2])).await?;
    let work = agent.settled("work").await?;
    ensure!(work["metadata"]["generation"] == 2, "{work}");
    agent.cm("cm2").has_data(json!({"x": "y"})).await?;
    agent.records("work", &["configmaps cm2"]).await?;
    agent.cm("cm1").disappears().await?;

    agent.work("work").delete().await?;
    agent.work("work").disappears().await?;
    agent.record("work").is_absent().await?;
    agent.cm("cm2").is_absent().await
}

/// cm1 of a namespace that does not exist, cm2, cm3.
fn one_lost_of_three(agent: &Agent) -> Value {
    let mut lost = agent.config_map("cm1", json!({"a": "b"}));
    lost["metadata"]["namespace"] = "non-existent-namespace".into();
    let data = || json!({"c": "d"});
    manifests([
        lost,
        agent.config_map("cm2", data()),
        agent.config_map("cm3", data()),
    ])
}

async fn w09_w12_one_failing_manifest_is_told_and_can_be_corrected(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    agent.create("work", one_lost_of_three(&agent)).await?;
    let work = agent
        .shows("work", &[("Applied", "FTT"), ("Available", "FTT")])
        .await?;
    agent.cm("cm2").get().await?;
    agent.cm("cm3").get().await?;
    let applied = manifest_condition(&work, 0, "Applied")?;
    ensure!(
        applied["reason"] == "AppliedManifestFailed"
            && applied["message"]
                == "Failed to apply manifest: namespaces \"non-existent-namespace\" not found",
        "{applied}"
    );

    let corrected = [
        agent.config_map("cm1", json!({"a": "b"})),
        agent.config_map("cm2", json!({"x": "y"})),
        agent.config_map("cm4", json!({"e": "f"})),
    ];
    agent.edit("work", manifests(corrected)).await?;
    agent.settled("work").await?;
    agent
        .records(
            "work",
            &["configmaps cm1", "configmaps cm2", "configmaps cm4"],
        )
        .await?;
    agent.cm("cm3").disappears().await?;
    agent.cm("cm2").has_data(json!({"x": "y"})).await?;
    Ok(())
}

async fn w13_a_work_that_never_applied_whole_is_deleted_whole(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    agent.create("work", one_lost_of_three(&agent)).await?;
    agent.shows("work", &[("Applied", "FTT")]).await?;
    agent.work("work").delete().await?;
    agent.work("work").disappears().await?;
    agent.record("work").is_absent().await?;
    agent.cm("cm2").is_absent().await?;
    agent.cm("cm3").is_absent().await
}

/// A type of the story's own, and one object of it.
pub(crate) struct Guestbook {
    group: String,
    crd: Value,
    object: Value,
}

impl Guestbook {
    pub(crate) fn new(agent: &Agent) -> Self {
        let group = format!("{}.example.com", unique_name("guests"));
        let crd = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("guestbooks.{group}")},
            "spec": {
                "group": group, "scope": "Namespaced",
                "names": {"kind": "Guestbook", "listKind": "GuestbookList",
                    "plural": "guestbooks", "singular": "guestbook"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                        "spec": {"type": "object", "properties": {"foo": {"type": "string"}}},
                        "status": {"type": "object",
                            "x-kubernetes-preserve-unknown-fields": true}}}},
                    "subresources": {"status": {}}}]}});
        let object = json!({
            "apiVersion": format!("{group}/v1"), "kind": "Guestbook",
            "metadata": {"namespace": agent.name(), "name": "guestbook1"},
            "spec": {"foo": "foo"}});
        Self { group, crd, object }
    }

    /// A work with type and object, and these annotations on the object.
    pub(crate) fn work(&self, annotations: Value) -> Value {
        let mut object = self.object.clone();
        object["metadata"]["annotations"] = annotations;
        manifests([self.crd.clone(), object])
    }

    pub(crate) fn group(&self) -> &str {
        &self.group
    }

    /// The object on the cluster.
    pub(crate) fn live(&self, agent: &Agent) -> Live {
        Self::live_in(agent, &self.group)
    }

    /// The object on the cluster, if the type is of this group.
    pub(crate) fn live_in(agent: &Agent, group: &str) -> Live {
        let namespace = agent.name();
        let collection = format!("/apis/{group}/v1/namespaces/{namespace}/guestbooks");
        Live::new(agent.spoke().rest(), &collection, "guestbook1")
    }

    /// The type on the cluster.
    pub(crate) fn live_crd(&self, agent: &Agent) -> Live {
        let name = format!("guestbooks.{}", self.group);
        agent.object("customresourcedefinitions", &name)
    }
}

async fn w14_w15_w18_a_crd_and_its_object_come_and_go_in_one_work(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    let guestbook = Guestbook::new(&agent);
    // C001: the object stands before its type.
    let mut spec = guestbook.work(json!({}));
    spec["workload"]["manifests"]
        .as_array_mut()
        .context("no manifests")?
        .reverse();
    let work = agent.applied("work", spec).await?;
    for (ordinal, kind) in [(0, "Guestbook"), (1, "CustomResourceDefinition")] {
        let meta = &manifest(&work, ordinal)["resourceMeta"];
        ensure!(meta["ordinal"] == ordinal && meta["kind"] == kind, "{meta}");
    }

    let crd = format!("customresourcedefinitions guestbooks.{}", guestbook.group);
    let entries = agent
        .records("work", &[&crd, "guestbooks guestbook1"])
        .await?;
    let live = guestbook.live(&agent).get().await?;
    ensure!(
        entries[1]
            == json!({"group": guestbook.group, "version": "v1", "resource": "guestbooks",
                "namespace": agent.name(), "name": "guestbook1", "uid": live["metadata"]["uid"]}),
        "{}",
        entries[1]
    );

    agent.work("work").delete().await?;
    agent.work("work").disappears().await?;
    agent.record("work").is_absent().await?;
    guestbook.live_crd(&agent).is_absent().await?;
    guestbook.live(&agent).disappears().await
}

async fn w16_w17_annotations_and_finalizers_of_others_stay(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    let guestbook = Guestbook::new(&agent);
    agent.applied("work", guestbook.work(json!({}))).await?;
    let live = guestbook.live(&agent);
    live.merge(json!({"metadata": {"annotations": {"foo": "bar"}, "finalizers": ["x.io/foo"]}}))
        .await?;
    // C009: what others add is nothing to write about.
    let before = live.get().await?;
    agent.looks_again("work", 3).await?;
    let after = live.get().await?;
    ensure!(state(&before) == state(&after), "{before}\n{after}");

    agent
        .edit("work", guestbook.work(json!({"foo1": "bar1"})))
        .await?;
    let live_now = live
        .is("have both annotations", |live| {
            live["metadata"]["annotations"] == json!({"foo": "bar", "foo1": "bar1"})
        })
        .await?;
    ensure!(
        live_now["metadata"]["finalizers"] == json!(["x.io/foo"])
            && state(&live_now) != state(&after),
        "{live_now}"
    );
    live.let_go().await
}

async fn w19_a_namespace_on_a_cluster_scoped_object_means_nothing(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    let name = unique_name("work-clusterrole");
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"namespace": agent.name(), "name": name},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]});
    let mut spec = manifests([role]);
    spec["manifestConfigs"] = json!([{
        "resourceIdentifier": {"group": "rbac.authorization.k8s.io", "resource": "clusterroles",
            "name": name},
        "feedbackRules": [{"type": "JSONPaths", "jsonPaths": [
            {"name": "name", "path": ".metadata.name"}]}]}]);
    let work = agent.applied("work", spec).await?;
    let meta = &manifest(&work, 0)["resourceMeta"];
    ensure!(meta["namespace"] == "", "{meta}");
    ensure!(values(&work, 0) == json!([string("name", &name)]), "{work}");
    let entries = agent
        .records("work", &[&format!("clusterroles {name}")])
        .await?;
    ensure!(
        entries[0]["namespace"].as_str().is_none_or(str::is_empty),
        "{entries:?}"
    );
    agent.work("work").delete().await?;
    agent.work("work").disappears().await?;
    agent.object("clusterroles", &name).is_absent().await
}

async fn w20_w24_swapped_and_renamed_manifests_are_followed(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    let deployment = |account: &str| {
        let mut deployment = agent.deployment("deploy1", 1);
        deployment["spec"]["template"]["spec"]["serviceAccountName"] = account.into();
        deployment
    };
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]);
    let role = agent.role("role", rules);
    let binding = agent.role_binding("binding", "role", "sa");
    let objects = [
        agent.service_account("sa"),
        role.clone(),
        binding.clone(),
        deployment("sa"),
    ];
    let before = agent.applied("work", manifests(objects)).await?;
    let record = agent.record("work").get().await?;
    let listed = record["status"]["appliedResources"].as_array();
    ensure!(listed.is_some_and(|listed| listed.len() == 4), "{record}");

    let objects = [
        deployment("admin"),
        role,
        binding,
        agent.service_account("admin"),
    ];
    agent.edit("work", manifests(objects)).await?;
    let after = agent.settled("work").await?;
    agent
        .object("deployments", "deploy1")
        .is("use the new account", |live| {
            live["spec"]["template"]["spec"]["serviceAccountName"] == "admin"
        })
        .await?;
    agent.object("serviceaccounts", "sa").disappears().await?;
    // Sorted by group first.
    let expected = [
        "serviceaccounts admin",
        "deployments deploy1",
        "rolebindings binding",
        "roles role",
    ];
    agent.records("work", &expected).await?;

    // What was there before, and what has become of it.
    for (ordinal, former) in [(0, Some(3)), (1, Some(1)), (2, Some(2)), (3, None)] {
        let conditions = manifest(&after, ordinal)["conditions"].as_array();
        let kinds = conditions.into_iter().flatten().map(|c| c["type"].as_str());
        let mut kinds: Vec<_> = kinds.flatten().collect();
        kinds.sort_unstable();
        ensure!(
            kinds == ["Applied", "Available", "StatusFeedbackSynced"],
            "{kinds:?}"
        );
        let since = |work, ordinal, kind| -> Result<String> {
            let condition = manifest_condition(work, ordinal, kind)?;
            let since = condition["lastTransitionTime"].as_str();
            Ok(since.context("a condition without a time")?.to_owned())
        };
        if let Some(former) = former {
            let (old, new) = (
                since(&before, former, "Available")?,
                since(&after, ordinal, "Available")?,
            );
            ensure!(
                old == new,
                "Available of {ordinal} moved from {old} to {new}"
            );
            ensure!(since(&after, ordinal, "Applied")? >= since(&before, former, "Applied")?);
        }
    }
    Ok(())
}

async fn w25_w26_conditions_follow_the_generation(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    let cm1 = |value: &str| manifests([agent.config_map("cm1", json!({"key": value}))]);
    let before = agent.applied("work", cm1("value1")).await?;
    agent.edit("work", cm1("value2")).await?;
    let after = agent.settled("work").await?;
    ensure!(
        before["metadata"]["generation"] == 1 && after["metadata"]["generation"] == 2,
        "{after}"
    );
    agent.cm("cm1").has_data(json!({"key": "value2"})).await?;
    let time = |condition: &Value| condition["lastTransitionTime"].as_str().map(str::to_owned);
    for kind in ["Applied", "Available"] {
        let (old, new) = (
            time(work_condition(&before, kind)?),
            time(work_condition(&after, kind)?),
        );
        ensure!(
            old == new,
            "{kind} stayed True, and moved from {old:?} to {new:?}"
        );
        let (old, new) = (
            time(manifest_condition(&before, 0, kind)?),
            time(manifest_condition(&after, 0, kind)?),
        );
        ensure!(new >= old, "{kind} went back from {old:?} to {new:?}");
    }
    Ok(())
}

async fn w27_an_edit_on_the_cluster_is_repaired_and_conditions_stay(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    let cm1 = agent.config_map("cm1", json!({"a": "b"}));
    let before = agent.applied("work", manifests([cm1])).await?;
    agent
        .cm("cm1")
        .merge(json!({"data": {"a": "changed"}}))
        .await?;
    agent.cm("cm1").has_data(json!({"a": "b"})).await?;
    agent.looks_again("work", 1).await?;
    let after = agent.settled("work").await?;
    for kind in ["Applied", "Available"] {
        let (old, new) = (
            manifest_condition(&before, 0, kind)?,
            manifest_condition(&after, 0, kind)?,
        );
        ensure!(old == new, "{old}\n{new}");
    }
    Ok(())
}

async fn w36_the_record_carries_the_labels_of_the_work(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    let labels = json!({"test-label": "test-value", "test-label-2": "test-value-2"});
    let cm1 = agent.config_map("cm1", json!({"a": "b"}));
    agent
        .create_labelled("work", labels.clone(), manifests([cm1]))
        .await?;
    agent.settled("work").await?;
    let record = agent.record("work").get().await?;
    ensure!(record["metadata"]["labels"] == labels, "{record}");
    let hash = agent.hub_hash();
    ensure!(
        record["spec"] == json!({"hubHash": hash, "agentID": hash, "manifestWorkName": "work"}),
        "{record}"
    );
    ensure!(
        record["metadata"]["finalizers"]
            == json!(["cluster.open-cluster-management.io/applied-manifest-work-cleanup"]),
        "{record}"
    );
    Ok(())
}

async fn w37_w39_an_immutable_field_fails_its_manifest_and_no_other(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    let bindings = |first: &str, second: &str| {
        manifests([
            agent.role_binding("rb1", first, "sa"),
            agent.role_binding("rb2", second, "sa"),
        ])
    };
    agent.applied("work", bindings("role", "role")).await?;
    agent.edit("work", bindings("other", "role")).await?;
    let available = ("Available", "TT");
    let work = agent.shows("work", &[("Applied", "FT"), available]).await?;
    let applied = manifest_condition(&work, 0, "Applied")?;
    let message = applied["message"].as_str().unwrap_or_default();
    ensure!(message.contains("cannot change roleRef"), "{applied}");

    agent.edit("work", bindings("role", "other")).await?;
    agent.shows("work", &[("Applied", "TF"), available]).await?;
    agent.edit("work", bindings("role", "role")).await?;
    eventually(LIMIT, "nothing to be left of it", || async {
        let work = agent.work("work").get().await?;
        shows(&work, "Applied", "TT")
    })
    .await
}
