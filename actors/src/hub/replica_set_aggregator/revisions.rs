//! Keeps the templates of a set as ControllerRevisions; which and how numbered is decided in
//! [`muster_core::replicaset::plan_revisions`].
//!
//! Works do not wait for it: what cannot be written is tried again with a back-off of its own, and
//! told in the status. Nobody watches revisions; they are listed when a life begins, after a write
//! that failed, and with the regular look at the works.

use std::borrow::Cow;
use std::collections::BTreeMap;

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions, Request};
use kube::{Api, Client, Resource};
use muster_api::constants as names;
use muster_api::replicaset::ManifestWorkReplicaSet;
use muster_core::replicaset::{
    DEFAULT_HISTORY_LIMIT, Revision, RevisionWrite, Wanted, history_limit, is_controlled_by,
    owner_label, plan_revisions, revision_name,
};
use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;
use tracing::{info, warn};

use super::super::metrics;
use super::super::views::{ObjectName, SetView};
use super::super::work_writes::WriteError;
use super::ReplicaSetAggregator;
use crate::supervision::{Backoff, BackoffPolicy};

/// What an aggregator knows of the revisions of its set.
#[derive(Debug)]
pub(super) struct Revisions {
    /// As the API server has them; `None` while they have to be listed.
    known: Option<Vec<Revision>>,
    /// Something happened that may ask for a write.
    pub(super) due: bool,
    stage: Stage,
    backoff: Backoff,
    /// What failed last, until all is as wanted.
    trouble: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// A request may be sent.
    Idle,
    /// One is under way.
    InFlight,
    /// One failed, and its back-off has not ended.
    Waits,
    /// They are deleted, as their set is.
    Gone,
}

impl Default for Revisions {
    fn default() -> Self {
        Self {
            known: None,
            due: false,
            stage: Stage::Idle,
            backoff: Backoff::new(BackoffPolicy::REQUEST),
            trouble: None,
        }
    }
}

/// What a request to the API server came to.
#[derive(Debug)]
enum Done {
    Listed(Vec<Revision>),
    Written(Revision),
    /// This one is gone.
    Deleted(String),
    AllDeleted,
    /// They cannot be deleted, for this reason, which will not go away.
    Left(String),
}

impl Revisions {
    fn take(&mut self, done: Done) {
        let known = self.known.get_or_insert_default();
        match done {
            Done::Listed(revisions) => *known = revisions,
            Done::Written(revision) => {
                known.retain(|other| other.name != revision.name);
                known.push(revision);
            }
            Done::Deleted(name) => known.retain(|other| other.name != name),
            Done::AllDeleted | Done::Left(_) => self.stage = Stage::Gone,
        }
    }

    /// How many there are, as far as known.
    pub(super) fn number(&self) -> Option<usize> {
        self.known.as_ref().map(Vec::len)
    }
}

fn annotation<'a>(view: &'a SetView, name: &str) -> Option<&'a str> {
    let annotations = view.metadata.annotations.as_ref()?;
    annotations.get(name).map(String::as_str)
}

impl ReplicaSetAggregator {
    /// What the status should say of the revisions.
    pub(super) fn revision_troubles(&self) -> Vec<String> {
        let limit = self.view.as_ref().and_then(|view| {
            history_limit(annotation(view, names::REVISION_HISTORY_LIMIT_ANNOTATION)).err()
        });
        let failed = self.revisions.trouble.as_ref();
        let failed = failed.map(|text| format!("revisions are not kept: {text}"));
        failed
            .into_iter()
            .chain(limit.map(|error| error.to_string()))
            .collect()
    }

    /// Makes the next of the writes that the revisions need, if any; its answer comes back here.
    pub(super) fn keep_revisions(&mut self, ctx: &mut Context<Self>) {
        let state = &self.revisions;
        if !state.due || state.stage != Stage::Idle {
            return;
        }
        let Some(view) = self.view.clone() else {
            return;
        };
        // A template that does not read has no works either.
        let template = self.set.template_hash().filter(|hash| *hash != [0; 32]);
        let (Some(template), Some(uid)) = (template, view.metadata.uid.clone()) else {
            return;
        };
        self.revisions.due = false;
        let client = self.deps.client.clone();
        let id = self.id.clone();
        let Some(known) = &self.revisions.known else {
            return self.ask(None, list(client, id, uid), ctx);
        };
        let name = revision_name(&id.name, &uid, &template);
        let cause = annotation(&view, names::CHANGE_CAUSE_ANNOTATION);
        let limit = annotation(&view, names::REVISION_HISTORY_LIMIT_ANNOTATION);
        let wanted = Wanted {
            name: &name,
            template,
            cause,
            paused: self.set.is_paused(),
            limit: history_limit(limit).unwrap_or(DEFAULT_HISTORY_LIMIT),
        };
        let Some(write) = plan_revisions(known, &wanted).into_iter().next() else {
            self.revisions.backoff.succeeded();
            if self.revisions.trouble.take().is_some() {
                info!(replica_set = %self.id, "revisions are kept again");
                self.status_writes.due = true;
            }
            return;
        };
        let kind = match &write {
            RevisionWrite::Create { .. } => "create",
            RevisionWrite::Update { .. } => "update",
            RevisionWrite::Delete { .. } => "delete",
        };
        let body = match &write {
            RevisionWrite::Create { name, number } => encode(&view, &id, name, *number),
            _ => Ok(Vec::new()),
        };
        let cause = cause.map(ToOwned::to_owned);
        self.ask(
            Some(kind),
            carry_out(client, id, uid, write, body, cause),
            ctx,
        );
    }

    /// Lists the revisions again: somebody may have deleted one.
    pub(super) fn look_at_revisions(&mut self, ctx: &mut Context<Self>) {
        if self.complete() && !self.deleting() && self.has_finalizer() {
            // An answer that is still to come belongs to what is known now.
            if self.revisions.stage != Stage::InFlight {
                self.revisions.known = None;
            }
            self.revisions.due = true;
            self.keep_revisions(ctx);
        }
    }

    /// Whether the revisions are deleted, now that their set is; if not, sees to it, and `pump` is
    /// called when they are.
    ///
    /// Where there is a garbage collector, it would do so after the set. An API server alone has
    /// none.
    pub(super) fn revisions_are_gone(&mut self, ctx: &mut Context<Self>) -> bool {
        let uid = self
            .view
            .as_ref()
            .and_then(|view| view.metadata.uid.clone());
        let (Some(uid), false) = (uid, self.revisions.stage == Stage::Gone) else {
            return true;
        };
        if self.revisions.stage == Stage::Idle {
            let deleted = delete_all(self.deps.client.clone(), self.id.clone(), uid);
            self.ask(Some("delete"), deleted, ctx);
        }
        false
    }

    /// `kind`: that of the write, if it is one.
    fn ask(
        &mut self,
        kind: Option<&'static str>,
        request: impl Future<Output = Result<Done, WriteError>> + Send + 'static,
        ctx: &mut Context<Self>,
    ) {
        self.revisions.stage = Stage::InFlight;
        let task = self.deps.io.run(request);
        ctx.spawn(task.into_actor(self).map(move |result, actor, ctx| {
            actor.revisions.stage = Stage::Idle;
            actor.revisions.due = true;
            let result = result.unwrap_or_else(|error| Err(error.into()));
            if let Some(kind) = kind {
                metrics::revision_written(kind, result.is_ok());
            }
            match result {
                Ok(done) => {
                    if let Done::Left(error) = &done {
                        warn!(
                            replica_set = %actor.id, error,
                            "revisions are left to be collected with their set"
                        );
                    }
                    actor.revisions.take(done);
                }
                Err(error) => actor.revisions_failed(&error, ctx),
            }
            actor.pump(ctx);
        }));
    }

    fn revisions_failed(&mut self, error: &WriteError, ctx: &mut Context<Self>) {
        let delay = self.revisions.backoff.failed();
        // A conflict is nothing to tell: somebody was faster, and the next list shows it.
        if !error.is_conflict() {
            let error = error.text();
            warn!(replica_set = %self.id, error, ?delay, "revisions are not kept, retrying");
            self.revisions.trouble = Some(error);
            self.status_writes.due = true;
        }
        self.revisions.known = None;
        self.revisions.stage = Stage::Waits;
        ctx.run_later(delay, |actor, ctx| {
            actor.revisions.stage = Stage::Idle;
            actor.pump(ctx);
        });
    }
}

fn api(client: Client, id: &ObjectName) -> Api<ControllerRevision> {
    Api::namespaced(client, &id.namespace)
}

fn of_set(id: &ObjectName) -> ListParams {
    let owner = owner_label(&id.namespace, &id.name);
    ListParams::default().labels(&format!("{}={owner}", names::REPLICA_SET_REVISION_LABEL))
}

async fn list(client: Client, id: ObjectName, uid: String) -> Result<Done, WriteError> {
    let list = api(client, &id).list(&of_set(&id)).await?;
    let ours = list
        .items
        .iter()
        .filter(|item| is_controlled_by(item, &uid));
    Ok(Done::Listed(ours.map(Revision::read).collect()))
}

/// The body of a new revision, encoded on the arbiter since it borrows the template.
fn encode(view: &SetView, id: &ObjectName, name: &str, number: i64) -> Result<Vec<u8>, WriteError> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Body<'a> {
        api_version: Cow<'a, str>,
        kind: Cow<'a, str>,
        metadata: Meta<'a>,
        data: Data<'a>,
        revision: i64,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Meta<'a> {
        namespace: &'a str,
        name: &'a str,
        labels: BTreeMap<&'a str, String>,
        annotations: BTreeMap<&'a str, &'a str>,
        owner_references: [OwnerReference; 1],
    }
    #[derive(Serialize)]
    struct Data<'a> {
        spec: Spec<'a>,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Spec<'a> {
        manifest_work_template: &'a RawValue,
    }
    let cause = annotation(view, names::CHANGE_CAUSE_ANNOTATION);
    let owner = OwnerReference {
        api_version: ManifestWorkReplicaSet::api_version(&()).into_owned(),
        kind: ManifestWorkReplicaSet::kind(&()).into_owned(),
        name: id.name.clone(),
        uid: view.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        ..OwnerReference::default()
    };
    let body = Body {
        api_version: ControllerRevision::api_version(&()),
        kind: ControllerRevision::kind(&()),
        metadata: Meta {
            namespace: &id.namespace,
            name,
            labels: BTreeMap::from([(
                names::REPLICA_SET_REVISION_LABEL,
                owner_label(&id.namespace, &id.name),
            )]),
            annotations: cause
                .map(|cause| (names::CHANGE_CAUSE_ANNOTATION, cause))
                .into_iter()
                .collect(),
            owner_references: [owner],
        },
        data: Data {
            spec: Spec {
                manifest_work_template: &view.spec.manifest_work_template,
            },
        },
        revision: number,
    };
    serde_json::to_vec(&body).map_err(|error| WriteError::Request(error.to_string()))
}

/// Sends one write; runs on a worker thread.
async fn carry_out(
    client: Client,
    id: ObjectName,
    uid: String,
    write: RevisionWrite,
    body: Result<Vec<u8>, WriteError>,
    cause: Option<String>,
) -> Result<Done, WriteError> {
    let revisions = api(client.clone(), &id);
    match write {
        RevisionWrite::Create { name, .. } => {
            let url = ControllerRevision::url_path(&(), Some(&id.namespace));
            let request = Request::new(url)
                .create(&PostParams::default(), body?)
                .map_err(|error| WriteError::Request(error.to_string()))?;
            let object = match client.request::<ControllerRevision>(request).await {
                Ok(object) => object,
                // An earlier try has got through after all.
                Err(kube::Error::Api(status)) if status.is_already_exists() => {
                    let object = revisions.get(&name).await?;
                    if !is_controlled_by(&object, &uid) {
                        let name = format!("{}/{name}", id.namespace);
                        return Err(WriteError::RevisionNotOurs(name));
                    }
                    object
                }
                Err(error) => return Err(error.into()),
            };
            Ok(Done::Written(Revision::read(&object)))
        }
        RevisionWrite::Update {
            name,
            version,
            number,
        } => {
            let mut patch = json!({"metadata": {"resourceVersion": version}, "revision": number});
            if let Some(cause) = cause {
                let annotations = json!({names::CHANGE_CAUSE_ANNOTATION: cause});
                patch["metadata"]["annotations"] = annotations;
            }
            let patch = Patch::Merge(patch);
            let object = revisions
                .patch(&name, &PatchParams::default(), &patch)
                .await?;
            Ok(Done::Written(Revision::read(&object)))
        }
        RevisionWrite::Delete { name, uid } => {
            delete(&revisions, &name, uid).await?;
            Ok(Done::Deleted(name))
        }
    }
}

async fn delete(
    revisions: &Api<ControllerRevision>,
    name: &str,
    uid: String,
) -> Result<(), WriteError> {
    let preconditions = Preconditions {
        uid: Some(uid),
        ..Preconditions::default()
    };
    let params = DeleteParams::default().preconditions(preconditions);
    match revisions.delete(name, &params).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        other => Ok(other.map(|_| ())?),
    }
}

/// Who may not delete revisions must not hold up the end of the set for them.
async fn delete_all(client: Client, id: ObjectName, uid: String) -> Result<Done, WriteError> {
    match delete_each(api(client, &id), of_set(&id), &uid).await {
        Err(error) if error.is_final() => Ok(Done::Left(error.text())),
        other => other.map(|()| Done::AllDeleted),
    }
}

async fn delete_each(
    revisions: Api<ControllerRevision>,
    of_set: ListParams,
    owner: &str,
) -> Result<(), WriteError> {
    let list = revisions.list_metadata(&of_set).await?;
    for meta in list.items.into_iter().map(|item| item.metadata) {
        let mut owners = meta.owner_references.iter().flatten();
        let ours = owners.any(|reference| reference.uid == owner);
        if let (true, Some(name), Some(uid)) = (ours, meta.name, meta.uid) {
            delete(&revisions, &name, uid).await?;
        }
    }
    Ok(())
}
