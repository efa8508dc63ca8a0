//! The agent against an embedded hub and an embedded cluster, on a paused clock.
//!
//! Rows of OCM's own integration tests (W: life cycle, F: feedback, S: strategies) and cases (C)
//! that are told here:
//!
//! | Row | Test |
//! |---|---|
//! | W01, W02, W03, W04, W05, W36 | `apply::a_work_is_applied_recorded_and_reported` |
//! | W06, W07, C080 | `apply::what_leaves_the_spec_leaves_the_cluster` |
//! | W08 | `deletion::a_deleted_work_takes_its_objects_along` |
//! | W09, W10, W11, W12 | `apply::a_manifest_that_fails_leaves_the_others_alone` |
//! | W13 | `deletion::a_work_that_never_applied_whole_is_deleted_whole` |
//! | W14, W15, C001 | `apply::a_crd_and_its_object_in_one_work_converge` |
//! | W16, W17, C009 | `apply::labels_annotations_and_finalizers_of_others_stay` |
//! | W18 | `deletion::a_crd_and_its_object_are_deleted_together` |
//! | W19, C018 | `apply::a_namespace_on_a_cluster_scoped_manifest_means_nothing` |
//! | W20, W21, W22, W24 | `apply::a_swapped_and_renamed_manifest_is_followed` |
//! | W25, W26 | `apply::conditions_follow_the_generation` |
//! | W27, C148 | `apply::drift_is_repaired_by_the_next_poll_and_idle_works_write_nothing` |
//! | W28, F01, F02 | `feedback::a_deployment_reports_its_replicas` |
//! | W30, W31, C090 | `deletion::a_held_object_that_left_the_spec_goes_when_it_is_let_go` |
//! | W32, W33, C091 | `deletion::a_deletion_that_waits_says_for_what` |
//! | W37, W38, W39 | `apply::an_immutable_field_fails_its_manifest_and_no_other` |
//! | F03, F05 | `feedback::a_path_to_a_list_costs_only_its_own_value` |
//! | F04 | `feedback::a_kind_without_well_known_status_says_so` |
//! | F06 | `feedback::lists_are_reported_as_json_when_allowed` |
//! | F07, F08 | `feedback::a_daemon_set_reports_its_numbers` |
//! | F09, F10 | `feedback::wildcards_give_rules_to_several_objects` |
//! | F11 | `feedback::the_first_matching_rules_win` |
//! | F13 (by poll) | `feedback::a_cluster_scoped_object_reports_too` |
//! | S01 | `apply::create_only_creates_and_never_changes` |
//! | S02, S03 | `apply::read_only_reads_and_never_writes` |
//! | S05, S06, C011 | `server_side::a_conflict_costs_one_apply_a_pass_and_stops_nothing_else` |
//! | C003, C005 | `trouble::bad_manifests_are_named_and_the_rest_is_applied` |
//! | C007 | `apply::what_the_server_owns_is_ignored_in_a_manifest` |
//! | C015 (idle) | `kinds::a_job_is_written_once` |
//! | C019, C160 | `trouble::a_corrected_spec_does_not_wait_for_the_back_off` |
//! | C084 | `deletion::nothing_is_removed_before_the_first_apply` |
//! | C086 | `deletion::an_object_that_somebody_else_made_anew_stays` |
//! | C087 | `deletion::an_object_of_two_works_goes_with_the_last` |
//! | C093 | `deletion::orphaned_objects_stay` |
//! | W35 | `rules::a_rule_says_when_a_work_is_complete` |
//! | C016 | `rules::a_complete_job_that_its_cluster_removes_is_not_made_anew` |
//! | C151 | `trouble::a_status_conflict_is_composed_anew` |
//! | F12, C045 | `watching::a_change_is_reported_at_once_and_without_a_look_at_the_cluster`, `watching::a_deleted_object_is_told_and_made_anew_at_once` |
//! | C048, C050, C053 | `watching::*` |
//! | C154 | `feedback::secret_data_stays_on_the_cluster` |
//!
//! | W34, U03 | `eviction::a_record_without_a_work_goes_after_the_grace_period` |
//! | U01, U02 | `eviction::the_record_of_another_hub_goes_and_its_objects_stay` |
//! | U04 | `eviction::a_work_that_is_back_in_time_keeps_its_record` |
//! | U05 | `eviction::a_century_of_grace_evicts_nothing` |
//!
//! W23 and W29 compare times to the second, which a paused clock does not have; the rule behind
//! them is tested in `muster-core` (`conditions`, `feedback`). The rows that need an API server's own
//! rules (executors, server-side apply) are told in `tests/stories`, as are these.

mod actors;
mod apply;
mod bounds;
mod deletion;
mod eviction;
mod executor;
mod feedback;
mod kinds;
mod rules;
mod server_side;
mod tap;
mod trouble;
mod waiting;
mod watching;

use std::future::Future;
use std::time::Duration;

use actix::Addr;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use muster_api::conditions::status as status_of;
use muster_api::constants::{WORK_APPLIED, WORK_AVAILABLE};
use muster_api::work::{
    AppliedManifestResourceMeta, AppliedManifestWork, FeedbackValue, ManifestWork,
    ManifestWorkStatus,
};
use muster_apiserver::{ApiServer, Authorization, Storage};
use muster_core::applied_work::{applied_work_name, hub_hash};
use muster_workclient::events::{ConnectionState, HubLink};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::watch;

use self::tap::Tap;
use super::spoke::{Spoke, Target};
use super::{AgentDeps, AgentSettings, ClusterAgent, start};
use crate::supervision::{Health, Io, Registry, stop};

const CLUSTER: &str = "cluster1";
const HUB_ID: &str = "https://hub:6443";

/// Upstream's tests wait 30 s for everything; so do these, on a clock that costs nothing.
const EVENTUALLY: Duration = Duration::from_secs(30);

/// Interval of upstream's tests.
const POLL: Duration = Duration::from_secs(3);

/// A hub, a cluster, and the agent between them.
struct World {
    hub: kube::Client,
    /// Requests of the agent to the hub.
    hub_tap: Tap,
    /// Requests of the agent to the cluster.
    spoke_tap: Tap,
    /// The test's own hands on the cluster.
    spoke: Spoke,
    deps: AgentDeps,
    agent: Addr<ClusterAgent>,
}

impl World {
    async fn start() -> Self {
        Self::with(|_| {}).await
    }

    async fn with(adjust: impl FnOnce(&mut AgentSettings)) -> Self {
        Self::build(adjust, muster_api::crds::hub(), None).await
    }

    /// With works that come over a bus, as far as the agent can tell.
    async fn linked(adjust: impl FnOnce(&mut AgentSettings), link: HubLink) -> Self {
        Self::build(adjust, muster_api::crds::hub(), Some(link)).await
    }

    /// With a hub that stores any work: what a broken transport, or an older CRD, lets through.
    async fn lenient() -> Self {
        let mut crds = muster_api::crds::hub();
        for version in crds.iter_mut().flat_map(|crd| &mut crd.spec.versions) {
            version.schema = parse(
                r#"{"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true
                }}"#,
            );
        }
        Self::build(|_| {}, crds, None).await
    }

    async fn build(
        adjust: impl FnOnce(&mut AgentSettings),
        hub_crds: Vec<CustomResourceDefinition>,
        hub_link: Option<HubLink>,
    ) -> Self {
        tokio::time::pause();
        let hub = server(hub_crds).await;
        let spoke = server(muster_api::crds::spoke()).await;
        let (hub_tap, spoke_tap) = (Tap::new(hub.client()), Tap::new(spoke.client()));
        let mut settings = AgentSettings {
            poll_interval: POLL,
            ..AgentSettings::default()
        };
        adjust(&mut settings);
        let deps = AgentDeps {
            cluster: CLUSTER.to_owned(),
            hub: hub_tap.client(),
            hub_link,
            hub_id: HUB_ID.to_owned(),
            agent_id: None,
            rules: None,
            spoke: spoke_tap.client(),
            settings,
            io: Io::current(),
            registry: Registry::new(),
            health: Health::new(),
        };
        let hands = Spoke::new("hands", hub.client(), Health::new());
        make_namespace(&hands, CLUSTER).await;
        let hands = Spoke::new("hands", spoke.client(), Health::new());
        make_namespace(&hands, "ns1").await;
        Self {
            hub: hub.client(),
            hub_tap,
            spoke_tap,
            spoke: hands,
            agent: start(deps.clone()),
            deps,
        }
    }

    /// Stops the agent; nothing of it may be left.
    async fn end(self) {
        assert!(stop(&self.agent, Duration::from_secs(10)).await);
        let ended = self.deps.registry.ended(Duration::from_secs(1)).await;
        assert_eq!(ended, Ok(()));
        assert_eq!(self.deps.registry.leftovers(), Vec::<String>::new());
    }

    /// Has another agent take the place of this one.
    async fn restart(&mut self) {
        assert!(stop(&self.agent, Duration::from_secs(10)).await);
        self.agent = start(self.deps.clone());
    }

    fn works(&self) -> Api<ManifestWork> {
        Api::namespaced(self.hub.clone(), CLUSTER)
    }

    async fn create_work(&self, name: &str, spec: Value) -> ManifestWork {
        let work: ManifestWork = serde_json::from_str(
            &json!({
                "apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
                "metadata": {"name": name, "labels": {"test-label": "a", "test-label-2": "b"}},
                "spec": spec,
            })
            .to_string(),
        )
        .unwrap();
        self.works()
            .create(&PostParams::default(), &work)
            .await
            .unwrap()
    }

    /// Replaces the whole spec.
    async fn edit_work(&self, name: &str, spec: Value) -> ManifestWork {
        // A merge patch keeps what it does not name.
        let mut patch = json!({"spec": {"deleteOption": null, "manifestConfigs": null}});
        for (key, value) in spec.as_object().unwrap() {
            patch["spec"][key] = value.clone();
        }
        self.patch_work(name, patch).await
    }

    async fn patch_work(&self, name: &str, patch: Value) -> ManifestWork {
        let params = PatchParams::default();
        self.works()
            .patch(name, &params, &Patch::Merge(&patch))
            .await
            .unwrap()
    }

    async fn patch_work_status(&self, name: &str, status: Value) {
        let patch = json!({ "status": status });
        let params = PatchParams::default();
        self.works()
            .patch_status(name, &params, &Patch::Merge(&patch))
            .await
            .unwrap();
    }

    /// A work that need not look like one.
    async fn raw_work(&self, name: &str) -> Value {
        let hands = Spoke::new("hub", self.hub.clone(), Health::new());
        hands.get(work_target(name)).await.unwrap().unwrap()
    }

    async fn patch_raw_work(&self, name: &str, patch: Value) {
        let hands = Spoke::new("hub", self.hub.clone(), Health::new());
        let _: Value = hands.merge(work_target(name), &patch).await.unwrap();
    }

    async fn delete_work(&self, name: &str) {
        self.works()
            .delete(name, &DeleteParams::default())
            .await
            .unwrap();
    }

    /// Waits until the work is as `wanted`; returns its state then.
    async fn work(&self, name: &str, wanted: impl Fn(&ManifestWork) -> bool) -> ManifestWork {
        self.work_within(EVENTUALLY, name, wanted).await
    }

    async fn work_within(
        &self,
        limit: Duration,
        name: &str,
        wanted: impl Fn(&ManifestWork) -> bool,
    ) -> ManifestWork {
        eventually_within(
            limit,
            || async { self.works().get_opt(name).await.unwrap() },
            |work| work.as_ref().is_some_and(&wanted),
        )
        .await
        .unwrap()
    }

    /// Waits until every manifest of the newest generation is applied and available.
    async fn settled(&self, name: &str) -> ManifestWork {
        self.work(name, |work| {
            current(work, WORK_APPLIED, "True") && current(work, WORK_AVAILABLE, "True")
        })
        .await
    }

    async fn work_gone(&self, name: &str) {
        self.work_gone_within(EVENTUALLY, name).await;
    }

    async fn work_gone_within(&self, limit: Duration, name: &str) {
        eventually_within(
            limit,
            || async { self.works().get_opt(name).await.unwrap() },
            Option::is_none,
        )
        .await;
    }

    fn record_name(name: &str) -> String {
        applied_work_name(&hub_hash(HUB_ID), name)
    }

    /// The record of a work.
    async fn record(&self, name: &str) -> Option<AppliedManifestWork> {
        let name = Self::record_name(name);
        super::applied_work::get(&self.spoke, &name).await.unwrap()
    }

    /// Names of the recorded objects as `resource/name`, in order.
    async fn recorded(&self, name: &str) -> Vec<String> {
        let record = self.record(name).await;
        let resources: Vec<AppliedManifestResourceMeta> = record
            .and_then(|record| record.status)
            .map(|status| status.applied_resources)
            .unwrap_or_default();
        resources
            .iter()
            .map(|resource| format!("{}/{}", resource.resource, resource.name))
            .collect()
    }

    async fn get(&self, target: Target<'_>) -> Option<Value> {
        self.spoke.get(target).await.unwrap()
    }

    /// Waits until an object on the cluster is as `wanted`.
    async fn object(
        &self,
        target: Target<'_>,
        wanted: impl Fn(Option<&Value>) -> bool,
    ) -> Option<Value> {
        eventually(|| self.get(target), |object| wanted(object.as_ref())).await
    }

    async fn object_within(
        &self,
        limit: Duration,
        target: Target<'_>,
        wanted: impl Fn(Option<&Value>) -> bool,
    ) -> Option<Value> {
        eventually_within(limit, || self.get(target), |object| wanted(object.as_ref())).await
    }

    async fn merge(&self, target: Target<'_>, patch: Value) -> Value {
        self.spoke.merge(target, &patch).await.unwrap()
    }

    async fn set_status(&self, target: Target<'_>, status: Value) {
        let patch = json!({ "status": status });
        let _: Value = self.spoke.merge_status(target, &patch).await.unwrap();
    }

    /// Lets polls go by.
    async fn polls(&self, count: u32) {
        tokio::time::sleep(POLL * 2 * count).await;
    }
}

async fn server(crds: Vec<CustomResourceDefinition>) -> ApiServer {
    let mut builder = ApiServer::builder()
        .storage(Storage::Memory)
        .authorization(Authorization::Rbac);
    for crd in crds {
        builder = builder.crd(crd);
    }
    builder.build().await.unwrap()
}

async fn make_namespace(hands: &Spoke, name: &str) {
    let target = Target {
        group: "",
        version: "v1",
        resource: "namespaces",
        namespace: "",
        name,
    };
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name},
    });
    let _: Value = hands.create(target, &namespace).await.unwrap();
}

/// Asks until the answer is as wanted; prints the last one if it never is.
async fn eventually<T, F>(ask: impl FnMut() -> F, wanted: impl Fn(&T) -> bool) -> T
where
    T: std::fmt::Debug,
    F: Future<Output = T>,
{
    eventually_within(EVENTUALLY, ask, wanted).await
}

async fn eventually_within<T, F>(
    limit: Duration,
    mut ask: impl FnMut() -> F,
    wanted: impl Fn(&T) -> bool,
) -> T
where
    T: std::fmt::Debug,
    F: Future<Output = T>,
{
    let deadline = tokio::time::Instant::now() + limit;
    loop {
        let answer = ask().await;
        if wanted(&answer) {
            return answer;
        }
        assert!(
            tokio::time::Instant::now() < deadline,
            "not within {limit:?}; last seen: {answer:#?}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Whether a work's condition has this status for the newest generation.
fn current(work: &ManifestWork, type_: &str, status: &str) -> bool {
    let Some(conditions) = work.status.as_ref().map(|status| &status.conditions) else {
        return false;
    };
    muster_api::conditions::find(conditions, type_).is_some_and(|condition| {
        condition.status == status && condition.observed_generation == work.metadata.generation
    })
}

fn status(work: &ManifestWork) -> &ManifestWorkStatus {
    work.status.as_ref().unwrap()
}

/// The status of a condition of each manifest, in spec order.
fn manifests<'a>(work: &'a ManifestWork, type_: &str) -> Vec<&'a str> {
    let manifests = work
        .status
        .as_ref()
        .map(|status| &status.resource_status.manifests);
    manifests
        .into_iter()
        .flatten()
        .map(|manifest| status_of(&manifest.conditions, type_))
        .collect()
}

/// The message of a manifest's condition.
fn message<'a>(work: &'a ManifestWork, ordinal: usize, type_: &str) -> &'a str {
    let manifest = &status(work).resource_status.manifests[ordinal];
    muster_api::conditions::find(&manifest.conditions, type_)
        .map(|condition| condition.message.as_str())
        .unwrap_or_default()
}

/// The feedback values of a manifest.
fn values(work: &ManifestWork, ordinal: usize) -> Vec<(&str, Value)> {
    let value = |value: &FeedbackValue| {
        let field = &value.value;
        let integer = field.integer.map(Value::from);
        let string = field.string.clone().map(Value::from);
        let boolean = field.boolean.map(Value::from);
        let raw = field.json_raw.as_deref().map(parse::<Value>);
        integer.or(string).or(boolean).or(raw).unwrap_or_default()
    };
    status(work)
        .resource_status
        .manifests
        .get(ordinal)
        .into_iter()
        .flat_map(|manifest| &manifest.status_feedback.values)
        .map(|feedback| (feedback.name.as_str(), value(feedback)))
        .collect()
}

fn parse<T: DeserializeOwned>(json: &str) -> T {
    serde_json::from_str(json).unwrap()
}

fn workload(manifests: impl Into<Vec<Value>>) -> Value {
    json!({"workload": {"manifests": manifests.into()}})
}

fn config_map(name: &str, data: Value) -> Value {
    let mut object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": "ns1", "name": name},
    });
    object["data"] = data;
    object
}

fn deployment(name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"namespace": "ns1", "name": name},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": "example/web:1"}]},
            },
        },
    })
}

fn target<'a>(group: &'a str, resource: &'a str, name: &'a str) -> Target<'a> {
    Target {
        group,
        version: "v1",
        resource,
        namespace: "ns1",
        name,
    }
}

fn work_target(name: &str) -> Target<'_> {
    Target {
        namespace: CLUSTER,
        ..target("work.open-cluster-management.io", "manifestworks", name)
    }
}

fn cm(name: &str) -> Target<'_> {
    target("", "configmaps", name)
}

fn deploy(name: &str) -> Target<'_> {
    target("apps", "deployments", name)
}
