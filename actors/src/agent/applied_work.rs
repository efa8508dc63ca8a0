//! The record of a work on the managed cluster: AppliedManifestWork.
//!
//! It owns the applied objects and lists them, so that what leaves the work can be removed, even
//! after the agent was away. Its finalizer keeps it until that is done: owner references alone do
//! not collect cluster-scoped objects.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use muster_api::constants::APPLIED_MANIFEST_WORK_FINALIZER;
use muster_api::work::{AppliedManifestResourceMeta, AppliedManifestWork, AppliedManifestWorkSpec};
use muster_core::applied_work::applied_work_name;
use muster_core::ownership::{Owner, Removal, plan_removal};
use serde_json::{Value, json};

use super::calls::{ApiError, Lookup};
use super::metrics::{self, Write};
use super::served::Served;
use super::spoke::{Deletion, Spoke, Target};
use super::work::Work;

/// Whose records an agent keeps.
#[derive(Debug, Clone)]
pub(super) struct Identity {
    pub(super) hub_hash: String,
    pub(super) agent_id: String,
}

/// Name of the record of a work.
pub(super) fn name_of(identity: &Identity, work: &str) -> String {
    applied_work_name(&identity.hub_hash, work)
}

fn target(name: &str) -> Target<'_> {
    Target {
        group: "work.open-cluster-management.io",
        version: "v1",
        resource: "appliedmanifestworks",
        namespace: "",
        name,
    }
}

pub(super) async fn get(
    spoke: &Spoke,
    name: &str,
) -> Result<Option<AppliedManifestWork>, ApiError> {
    spoke.get(target(name)).await
}

/// Brings the record of a work into being, or up to date.
///
/// Differs from upstream: labels that the work got later are added here, too; upstream copies
/// them only on creation.
pub(super) async fn ensure(
    spoke: &Spoke,
    identity: &Identity,
    work: &Work,
) -> Result<AppliedManifestWork, ApiError> {
    let name = name_of(identity, &work.name);
    let spec = AppliedManifestWorkSpec {
        hub_hash: identity.hub_hash.clone(),
        agent_id: identity.agent_id.clone(),
        manifest_work_name: work.name.to_string(),
    };
    let Some(record) = get(spoke, &name).await? else {
        let mut record = AppliedManifestWork::new(&name, spec);
        record.metadata.labels = Some((*work.labels).clone());
        record.metadata.finalizers = Some(vec![APPLIED_MANIFEST_WORK_FINALIZER.to_owned()]);
        return spoke.create(target(&name), &record).await;
    };
    if record.metadata.deletion_timestamp.is_some() {
        return Ok(record);
    }
    let record = if eviction_start(&record).is_some() {
        // The work is there again.
        set_eviction_start(spoke, &record, None).await?
    } else {
        record
    };
    match correction(&record, &spec, &work.labels) {
        None => Ok(record),
        Some(patch) => spoke.merge(target(&name), &patch).await,
    }
}

/// The merge patch that a record needs to say what it should.
fn correction(
    record: &AppliedManifestWork,
    spec: &AppliedManifestWorkSpec,
    labels: &BTreeMap<String, String>,
) -> Option<Value> {
    let mut metadata = serde_json::Map::new();
    let present = record.metadata.labels.as_ref();
    let missing: BTreeMap<_, _> = labels
        .iter()
        .filter(|(key, value)| present.and_then(|labels| labels.get(*key)) != Some(value))
        .collect();
    if !missing.is_empty() {
        metadata.insert("labels".to_owned(), json!(missing));
    }
    let finalizers = record.metadata.finalizers.clone().unwrap_or_default();
    if !finalizers
        .iter()
        .any(|name| name == APPLIED_MANIFEST_WORK_FINALIZER)
    {
        let mut finalizers = finalizers;
        finalizers.push(APPLIED_MANIFEST_WORK_FINALIZER.to_owned());
        metadata.insert("finalizers".to_owned(), json!(finalizers));
    }
    let spec_differs = record.spec != *spec;
    (spec_differs || !metadata.is_empty()).then(|| {
        metadata.insert(
            "resourceVersion".to_owned(),
            json!(record.metadata.resource_version),
        );
        let mut patch = json!({ "metadata": metadata });
        if spec_differs {
            patch["spec"] = json!(spec);
        }
        patch
    })
}

/// The record as the owner of objects.
pub(super) fn owner(record: &AppliedManifestWork) -> Owner {
    Owner {
        name: record.metadata.name.clone().unwrap_or_default(),
        uid: record.metadata.uid.clone().unwrap_or_default(),
    }
}

/// The objects on record.
pub(super) fn recorded(record: &AppliedManifestWork) -> &[AppliedManifestResourceMeta] {
    record
        .status
        .as_ref()
        .map_or(&[], |status| status.applied_resources.as_slice())
}

/// Writes the list of objects, sorted and each once, if it differs from the one on record.
/// Returns the record as it is then.
pub(super) async fn record_resources(
    spoke: &Spoke,
    record: AppliedManifestWork,
    mut resources: Vec<AppliedManifestResourceMeta>,
) -> Result<AppliedManifestWork, ApiError> {
    resources.sort();
    resources.dedup();
    if recorded(&record) == resources {
        return Ok(record);
    }
    let patch = json!({
        "metadata": {"uid": record.metadata.uid},
        "status": {"appliedResources": resources},
    });
    let name = record.metadata.name.as_deref().unwrap_or_default();
    spoke.merge_status(target(name), &patch).await
}

/// Since when the record is to be evicted.
pub(super) fn eviction_start(record: &AppliedManifestWork) -> Option<Timestamp> {
    let status = record.status.as_ref()?;
    status.eviction_start_time.as_ref().map(|time| time.0)
}

/// Notes since when the record is to be evicted, or that it is not any more.
pub(super) async fn set_eviction_start(
    spoke: &Spoke,
    record: &AppliedManifestWork,
    start: Option<Timestamp>,
) -> Result<AppliedManifestWork, ApiError> {
    let patch = json!({
        "metadata": {
            "uid": record.metadata.uid,
            "resourceVersion": record.metadata.resource_version,
        },
        "status": {"evictionStartTime": start.map(Time)},
    });
    let name = record.metadata.name.as_deref().unwrap_or_default();
    spoke.merge_status(target(name), &patch).await
}

/// Asks for the deletion of a record; its finalizer holds it until its objects are gone.
pub(super) async fn delete(spoke: &Spoke, record: &AppliedManifestWork) -> Result<(), ApiError> {
    let name = record.metadata.name.as_deref().unwrap_or_default();
    let uid = record.metadata.uid.as_deref().unwrap_or_default();
    spoke.delete(target(name), uid).await?;
    Ok(())
}

/// Lets go of a record whose objects are gone. Returns what else holds it, for people.
pub(super) async fn release(
    spoke: &Spoke,
    record: &AppliedManifestWork,
) -> Result<Option<String>, ApiError> {
    let mut finalizers = record.metadata.finalizers.clone().unwrap_or_default();
    finalizers.retain(|name| name != APPLIED_MANIFEST_WORK_FINALIZER);
    let name = record.metadata.name.as_deref().unwrap_or_default();
    let patch = json!({"metadata": {
        "uid": record.metadata.uid,
        "finalizers": finalizers,
    }});
    let target = target(name);
    match spoke.merge::<AppliedManifestWork>(target, &patch).await {
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
        Ok(_) => Ok(finalizers
            .first()
            .map(|finalizer| format!("{target} (finalizer {finalizer})"))),
    }
}

/// What is left of objects that are to go.
#[derive(Debug, Default)]
pub(super) struct Removed {
    /// Objects that still exist, or could not be asked for; they stay on record.
    pub(super) pending: Vec<AppliedManifestResourceMeta>,
    /// The first of them and what holds it, for people.
    pub(super) waits_for: Option<String>,
    /// The first request that failed.
    pub(super) error: Option<ApiError>,
}

/// Removes recorded objects that `owner` still owns, each on its own: what fails or waits does not
/// keep the others.
pub(super) async fn remove(
    spoke: &Spoke,
    owner: &Owner,
    resources: Vec<AppliedManifestResourceMeta>,
) -> Removed {
    let mut removed = Removed::default();
    for resource in resources {
        // A cluster that cannot be reached is not asked once more for every object.
        let lost = removed.error.as_ref().is_some_and(ApiError::is_unreachable);
        let outcome = if lost {
            Ok(Some(None))
        } else {
            remove_one(spoke, owner, &resource).await
        };
        match outcome {
            Ok(None) => {}
            Ok(Some(waits_for)) => {
                removed.waits_for = removed.waits_for.or(waits_for);
                removed.pending.push(resource);
            }
            Err(error) => {
                let what = Target::from(&resource);
                removed
                    .waits_for
                    .get_or_insert_with(|| format!("{what}: {error}"));
                removed.error.get_or_insert(error);
                removed.pending.push(resource);
            }
        }
    }
    removed
}

/// Takes the next step with one object. Returns `None` once it needs no more, else what it waits
/// for.
async fn remove_one(
    spoke: &Spoke,
    owner: &Owner,
    resource: &AppliedManifestResourceMeta,
) -> Result<Option<Option<String>>, ApiError> {
    let (served, live) = match locate(spoke, resource).await? {
        Located::At(served, live) => (served, live),
        Located::Gone => return Ok(None),
        Located::OutOfReach => {
            let target = Target::from(resource);
            return Ok(Some(Some(format!("{target} (no version of it is served)"))));
        }
    };
    let target = Target::from(&served);
    match plan_removal(&served, live.as_ref(), owner) {
        Removal::Forget => Ok(None),
        Removal::Disown(references) => {
            let metadata = live.as_ref().map(|live| &live["metadata"]);
            let patch = json!({"metadata": {
                "uid": metadata.map(|metadata| &metadata["uid"]),
                "resourceVersion": metadata.map(|metadata| &metadata["resourceVersion"]),
                "ownerReferences": references,
            }});
            match spoke.merge::<Value>(target, &patch).await {
                Err(error) if error.is_missing_route() => Err(error),
                Err(error) if error.is_not_found() => Ok(None),
                // Changed meanwhile: the next look decides anew.
                Err(error) if error.is_conflict() => Ok(Some(None)),
                answer => answer.map(|_| None),
            }
        }
        Removal::Wait => Ok(Some(Some(describe_wait(target, live.as_ref())))),
        Removal::Delete { uid } => {
            metrics::applied(Write::Delete);
            if spoke.delete(target, &uid).await? == Deletion::Gone {
                return Ok(None);
            }
            // Most objects are gone at once; asking saves another pass, and a status that says
            // what is waited for only to take it back.
            let rest: Option<Value> = spoke.get(target).await?;
            Ok(rest.map(|rest| Some(describe_wait(target, Some(&rest)))))
        }
    }
}

/// Where a recorded object is.
enum Located {
    /// In this version, if it exists.
    At(AppliedManifestResourceMeta, Option<Value>),
    /// Nowhere: its type is gone.
    Gone,
    /// Its type is there, and no version of it is served.
    OutOfReach,
}

/// Looks for a recorded object in the version on record, and where that is not served any more in
/// another.
///
/// Differs from upstream, which takes an object in a version that is not served for gone, and leaves
/// it on the cluster.
async fn locate(
    spoke: &Spoke,
    resource: &AppliedManifestResourceMeta,
) -> Result<Located, ApiError> {
    let mut resource = resource.clone();
    match spoke.find(Target::from(&resource)).await? {
        Lookup::Found(live) => return Ok(Located::At(resource, Some(live))),
        Lookup::NoObject => return Ok(Located::At(resource, None)),
        Lookup::NoRoute => {}
    }
    match spoke.served(&resource.group, &resource.resource).await? {
        Served::Gone => return Ok(Located::Gone),
        Served::Nowhere => return Ok(Located::OutOfReach),
        Served::In(version) => resource.version = version,
    }
    match spoke.find(Target::from(&resource)).await? {
        Lookup::Found(live) => Ok(Located::At(resource, Some(live))),
        Lookup::NoObject => Ok(Located::At(resource, None)),
        // What is served is changing just now.
        Lookup::NoRoute => Ok(Located::OutOfReach),
    }
}

/// `configmaps ns1/a (finalizer example.io/hold)`.
fn describe_wait(target: Target<'_>, live: Option<&Value>) -> String {
    let finalizers = live.and_then(|live| live["metadata"]["finalizers"].as_array());
    match finalizers.and_then(|finalizers| finalizers.first()?.as_str()) {
        Some(finalizer) => format!("{target} (finalizer {finalizer})"),
        None => target.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(change: impl FnOnce(&mut AppliedManifestWork)) -> AppliedManifestWork {
        let mut record = AppliedManifestWork::new("h-w", spec());
        record.metadata.finalizers = Some(vec![APPLIED_MANIFEST_WORK_FINALIZER.to_owned()]);
        record.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
        record.metadata.resource_version = Some("3".to_owned());
        change(&mut record);
        record
    }

    fn spec() -> AppliedManifestWorkSpec {
        AppliedManifestWorkSpec {
            hub_hash: "h".to_owned(),
            agent_id: "a".to_owned(),
            manifest_work_name: "w".to_owned(),
        }
    }

    fn corrected(record: &AppliedManifestWork, labels: &[(&str, &str)]) -> Option<Value> {
        let labels = labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        correction(record, &spec(), &labels)
    }

    #[test]
    fn a_record_that_says_what_it_should_is_left_alone() {
        assert_eq!(corrected(&record(|_| {}), &[("a", "b")]), None);
        assert_eq!(
            corrected(&record(|_| {}), &[]),
            None,
            "labels of others stay"
        );
    }

    #[test]
    fn only_what_differs_is_corrected() {
        let other_agent = record(|record| record.spec.agent_id = "old".to_owned());
        assert_eq!(
            corrected(&other_agent, &[]),
            Some(json!({
                "metadata": {"resourceVersion": "3"},
                "spec": {"hubHash": "h", "agentID": "a", "manifestWorkName": "w"},
            }))
        );
        assert_eq!(
            corrected(&record(|_| {}), &[("a", "c"), ("x", "y")]),
            Some(json!({"metadata": {
                "resourceVersion": "3", "labels": {"a": "c", "x": "y"},
            }}))
        );
        let bare = record(|record| record.metadata.finalizers = Some(vec!["other".to_owned()]));
        assert_eq!(
            corrected(&bare, &[]).unwrap()["metadata"]["finalizers"],
            json!(["other", APPLIED_MANIFEST_WORK_FINALIZER])
        );
    }

    #[test]
    fn what_a_deletion_waits_for_is_told_with_its_finalizer() {
        let resource = AppliedManifestResourceMeta {
            version: "v1".to_owned(),
            resource: "configmaps".to_owned(),
            namespace: "ns1".to_owned(),
            name: "a".to_owned(),
            ..AppliedManifestResourceMeta::default()
        };
        let held = json!({"metadata": {"finalizers": ["x.io/hold", "y.io/hold"]}});
        let target = Target::from(&resource);
        assert_eq!(
            describe_wait(target, Some(&held)),
            "configmaps ns1/a (finalizer x.io/hold)"
        );
        assert_eq!(describe_wait(target, Some(&json!({}))), "configmaps ns1/a");
    }
}
