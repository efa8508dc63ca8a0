//! `muster rollout history` and `undo`: the revisions of a set's template.

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use muster_api::constants as names;
use muster_api::replicaset::ManifestWorkReplicaSet;
use muster_core::apply::spec_hash;
use muster_core::replicaset::{
    Revision, Undo, is_controlled_by, is_paused, owner_label, revised_template, undo,
};
use serde_json::{Value, json};

use super::{Change, HistoryArgs, UndoArgs, Write};
use crate::cli::error::CommandError;
use crate::cli::output::say;
use crate::cli::set::Target;
use crate::cli::table::{one_line, table};

/// A revision with the object that it is read from.
type Found = (Revision, ControllerRevision);

/// The revisions of a set, the newest last.
async fn revisions(
    target: &Target,
    set: &ManifestWorkReplicaSet,
) -> Result<Vec<Found>, CommandError> {
    let owner = owner_label(&target.access.namespace, &target.name);
    let selector = format!("{}={owner}", names::REPLICA_SET_REVISION_LABEL);
    let api: Api<ControllerRevision> =
        Api::namespaced(target.access.client.clone(), &target.access.namespace);
    let list = api.list(&ListParams::default().labels(&selector)).await;
    let list = list.map_err(|source| target.failed("list the revisions of", source))?;
    let uid = set.uid().unwrap_or_default();
    let ours = list.items.into_iter();
    let mut all: Vec<Found> = ours
        .filter(|object| is_controlled_by(object, &uid))
        .map(|object| (Revision::read(&object), object))
        .collect();
    all.sort_by_key(|(revision, _)| revision.number);
    Ok(all)
}

/// Hash of the template that a set has.
fn template_of(target: &Target, set: &ManifestWorkReplicaSet) -> Result<[u8; 32], CommandError> {
    spec_hash(&set.spec.manifest_work_template).map_err(|error| {
        CommandError::Refused(format!(
            "{target}: spec.manifestWorkTemplate does not read: {error}"
        ))
    })
}

pub(super) async fn show(args: &HistoryArgs) -> Result<(), CommandError> {
    let target = Target::of(&args.set).await?;
    let set = target.get().await?;
    let found = revisions(&target, &set).await?;
    if let Some(number) = args.revision {
        let wanted = found.iter().find(|(known, _)| known.number == number);
        let Some((_, object)) = wanted else {
            return Err(CommandError::NotFound(format!(
                "revision {number} of {target}"
            )));
        };
        let template = revised_template(object).unwrap_or(&Value::Null);
        let yaml = muster_core::yaml::from_json(&template.to_string());
        let yaml = yaml.map_err(|source| CommandError::Yaml {
            what: format!("revision {number} of {target}"),
            source,
        })?;
        return say(yaml.trim_end());
    }
    let template = template_of(&target, &set)?;
    if found.is_empty() {
        return say(format!("{target} has no revisions"));
    }
    let rows = found.iter().map(|(revision, object)| {
        let created = object.metadata.creation_timestamp.as_ref();
        row(revision, created.map(|time| time.0), &template)
    });
    say(table(
        ["REVISION", "CREATED", "CURRENT", "CHANGE-CAUSE"],
        rows,
    ))
}

fn row(revision: &Revision, created: Option<Timestamp>, template: &[u8; 32]) -> [String; 4] {
    let current = revision.template.as_ref() == Some(template);
    let created = created.map(|time| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    let cause = revision.cause.as_deref().unwrap_or("<none>");
    [
        revision.number.to_string(),
        created.unwrap_or_else(|| "<unknown>".to_owned()),
        if current { "*" } else { "" }.to_owned(),
        one_line(cause),
    ]
}

pub(super) async fn go_back(args: &UndoArgs) -> Result<(), CommandError> {
    let target = Target::of(&args.set).await?;
    let told = target
        .change(async |set: &ManifestWorkReplicaSet| {
            let refused = |why: String| CommandError::Refused(format!("{target}: {why}"));
            if is_paused(set.metadata.annotations.as_ref()) {
                return Err(refused(format!(
                    "it is paused, and a paused set is not taken back; resume it first with \
                     muster rollout resume {}",
                    target.name
                )));
            }
            let found = revisions(&target, set).await?;
            let known: Vec<Revision> = found.iter().map(|(known, _)| known.clone()).collect();
            let template = template_of(&target, set)?;
            let undone = undo(&known, &template, args.to_revision);
            let to = match undone.map_err(|error| refused(error.to_string()))? {
                Undo::To(revision) => revision,
                Undo::Already(revision) => {
                    let number = revision.number;
                    return Ok(Change {
                        patch: None,
                        says: format!("{target} has the template of revision {number} already"),
                    });
                }
            };
            let object = found.iter().find(|(known, _)| known.name == to.name);
            let object = object.and_then(|(_, object)| revised_template(object));
            Ok(Change {
                patch: Some(replace(set, to, object.unwrap_or(&Value::Null))),
                says: format!("{target} went back to revision {}", to.number),
            })
        })
        .await?;
    say(told)
}

/// Gives a set the template of a revision, and its cause: that of the newest is not the reason for
/// the one of before.
fn replace(set: &ManifestWorkReplicaSet, to: &Revision, template: &Value) -> Write {
    let path = "/spec/manifestWorkTemplate";
    let mut operations = vec![json!({"op": "add", "path": path, "value": template})];
    let annotations = set.metadata.annotations.as_ref();
    let key = names::CHANGE_CAUSE_ANNOTATION;
    let path = format!("/metadata/annotations/{}", key.replace('/', "~1"));
    match (&to.cause, annotations) {
        (Some(cause), Some(_)) => {
            operations.push(json!({"op": "add", "path": path, "value": cause}));
        }
        (Some(cause), None) => operations
            .push(json!({"op": "add", "path": "/metadata/annotations", "value": {key: cause}})),
        (None, Some(annotations)) if annotations.contains_key(key) => {
            operations.push(json!({"op": "remove", "path": path}));
        }
        (None, _) => {}
    }
    Write::Json(operations)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn revision(cause: Option<&str>) -> Revision {
        Revision {
            name: "web-1".to_owned(),
            uid: "u".to_owned(),
            version: "1".to_owned(),
            number: 3,
            template: Some([1; 32]),
            cause: cause.map(ToOwned::to_owned),
        }
    }

    #[test]
    fn a_row_has_number_time_mark_and_cause() {
        let time = "2026-01-02T03:04:05.678Z".parse().unwrap();
        assert_eq!(
            row(&revision(Some("two\nlines")), Some(time), &[1; 32]),
            ["3", "2026-01-02T03:04:05Z", "*", "two lines"]
        );
        assert_eq!(
            row(&revision(None), None, &[2; 32]),
            ["3", "<unknown>", "", "<none>"]
        );
    }

    #[test]
    fn the_cause_goes_back_with_the_template() {
        let key = "kubernetes.io/change-cause";
        let path = "/metadata/annotations/kubernetes.io~1change-cause";
        let template = json!({"workload": {}});
        let operations_for = |cause, annotations: Option<&[(&str, &str)]>| {
            let mut set = ManifestWorkReplicaSet::default();
            let map = |all: &[(&str, &str)]| {
                let pairs = all.iter().map(|(k, v)| ((*k).into(), (*v).into()));
                pairs.collect()
            };
            set.metadata.annotations = annotations.map(map);
            match replace(&set, &revision(cause), &template) {
                Write::Json(operations) => operations,
                Write::Merge(_) => Vec::new(),
            }
        };
        let first = json!(
            {"op": "add", "path": "/spec/manifestWorkTemplate", "value": {"workload": {}}});
        let other: &[(&str, &str)] = &[("a", "b")];
        let newest: &[(&str, &str)] = &[(key, "newest")];
        assert_eq!(operations_for(None, None), std::slice::from_ref(&first));
        assert_eq!(
            operations_for(None, Some(other)),
            std::slice::from_ref(&first)
        );
        assert_eq!(
            operations_for(None, Some(newest)),
            [first.clone(), json!({"op": "remove", "path": path})]
        );
        assert_eq!(
            operations_for(Some("why"), Some(newest)),
            [
                first.clone(),
                json!({"op": "add", "path": path, "value": "why"})
            ]
        );
        assert_eq!(
            operations_for(Some("why"), None),
            [
                first,
                json!({"op": "add", "path": "/metadata/annotations", "value": {key: "why"}})
            ]
        );
    }
}
