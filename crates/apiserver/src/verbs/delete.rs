//! delete and deletecollection.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};

use super::call::{Answer, Call, Outcome};
use super::read::Selection;
use super::write::is_finished;
use crate::admission::Operation;
use crate::authz::UserInfo;
use crate::builtin::NAMESPACES;
use crate::http::negotiate::Form;
use crate::http::path::ResourcePath;
use crate::http::query::Query;
use crate::object;
use crate::registry::ResourceDef;
use crate::server::Inner;
use crate::status::{ApiError, ApiResult, Subject};
use crate::store::{Expect, Stored, WriteError};

/// Seconds that a running pod gets to end when nothing else is said.
const DEFAULT_POD_GRACE_SECONDS: i64 = 30;

/// How often a deletion starts anew when the object changes under it.
const DELETE_ATTEMPTS: usize = 5;

/// The body of a deletion, `meta.k8s.io/v1` `DeleteOptions`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DeleteOptions {
    grace_period_seconds: Option<i64>,
    propagation_policy: Option<String>,
    orphan_dependents: Option<bool>,
    preconditions: Option<Preconditions>,
    dry_run: Option<Vec<String>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Preconditions {
    uid: Option<String>,
    resource_version: Option<String>,
}

impl DeleteOptions {
    fn of(call: &Call) -> ApiResult<Self> {
        let mut options: Self = if call.body.iter().all(u8::is_ascii_whitespace) {
            Self::default()
        } else {
            serde_json::from_slice(&call.body).map_err(|e| {
                ApiError::bad_request(format!("couldn't decode the deletion's options: {e}"))
            })?
        };
        if let Some(text) = call.query.get("gracePeriodSeconds") {
            let seconds = text.parse().map_err(|e| {
                ApiError::bad_request(format!("invalid gracePeriodSeconds {text:?}: {e}"))
            })?;
            options.grace_period_seconds.get_or_insert(seconds);
        }
        if let Some(policy) = call.query.get("propagationPolicy") {
            options
                .propagation_policy
                .get_or_insert_with(|| policy.to_owned());
        }
        if let Some(policy) = options.propagation_policy.as_deref()
            && !matches!(policy, "Foreground" | "Background" | "Orphan")
        {
            return Err(ApiError::invalid(
                &Subject::new("meta.k8s.io", "DeleteOptions", ""),
                &[crate::status::FieldError::not_supported(
                    "propagationPolicy",
                    &json!(policy),
                    &["Foreground", "Background", "Orphan"].map(str::to_owned),
                )],
            ));
        }
        Ok(options)
    }

    fn finalizer(&self) -> Option<&'static str> {
        match (self.propagation_policy.as_deref(), self.orphan_dependents) {
            (Some("Foreground"), _) => Some("foregroundDeletion"),
            (Some("Orphan"), _) | (None, Some(true)) => Some("orphan"),
            _ => None,
        }
    }
}

/// What became of one object.
enum Deleted {
    /// It is gone; this was its last state.
    Gone(Arc<Stored>),
    /// It waits for finalizers or for its grace period.
    Waiting(Arc<Stored>),
    /// Nothing was done; this is what would be left.
    DryRun(Value),
}

pub(crate) async fn delete(call: &Call) -> ApiResult<Outcome> {
    let options = DeleteOptions::of(call)?;
    let deleted = delete_object(call, call.stored()?, &options).await?;
    let answer = match deleted {
        Deleted::Waiting(stored) => Answer::Object(StatusCode::OK, stored),
        Deleted::DryRun(value) => Answer::Value(StatusCode::OK, value),
        Deleted::Gone(stored) if call.def.builtin.is_some_and(|b| b.returns_deleted) => {
            Answer::Object(StatusCode::OK, stored)
        }
        Deleted::Gone(stored) => Answer::Value(StatusCode::OK, success(call, &stored)),
    };
    Ok(answer.into())
}

fn success(call: &Call, stored: &Stored) -> Value {
    let mut details = json!({
        "name": stored.key.name, "kind": call.def.plural, "uid": stored.uid,
    });
    if !call.def.group.is_empty() {
        details["group"] = json!(call.def.group);
    }
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": details,
    })
}

/// Deletes an object in the server's own name.
pub(crate) async fn delete_as_server(
    server: &Arc<Inner>,
    def: &Arc<ResourceDef>,
    stored: Arc<Stored>,
) -> ApiResult<()> {
    let namespace = Some(stored.key.namespace.clone()).filter(|n| !n.is_empty());
    let call = Call {
        server: server.clone(),
        def: def.clone(),
        path: ResourcePath {
            group: def.group.clone(),
            version: def.storage_version.clone(),
            namespace,
            plural: def.plural.clone(),
            name: Some(stored.key.name.clone()),
            subresource: None,
        },
        query: Query::default(),
        form: Form::Object,
        content_type: String::new(),
        body: Bytes::new(),
        manager: String::new(),
        user: Arc::new(UserInfo::server()),
        counted: false,
    };
    match delete_object(&call, stored, &DeleteOptions::default()).await {
        Err(error) if error.reason != "NotFound" => Err(error),
        _ => Ok(()),
    }
}

async fn delete_object(
    call: &Call,
    mut current: Arc<Stored>,
    options: &DeleteOptions,
) -> ApiResult<Deleted> {
    let dry_run = call.dry_run() || options.dry_run.as_ref().is_some_and(|d| !d.is_empty());
    let mut attempts = DELETE_ATTEMPTS;
    loop {
        attempts -= 1;
        check_preconditions(call, &current, options)?;
        let old = current.value();
        call.admit(
            Operation::Delete,
            &current.key.name,
            &Value::Null,
            Some(&old),
        )?;
        let new = marked(call, &old, options);
        let finished = is_finished(&call.def.key, &new);
        if dry_run {
            return Ok(Deleted::DryRun(if finished {
                success(call, &current)
            } else {
                new
            }));
        }
        if !finished && new == old {
            return Ok(Deleted::Waiting(current));
        }
        let server = &call.server;
        let result = if finished {
            // The last state is what was stored; only the revision tells of the deletion.
            server
                .remove(&call.def, &current.key, current.revision, old)
                .await
        } else {
            server
                .put(
                    &call.def,
                    &current.key,
                    Expect::Revision(current.revision),
                    new,
                )
                .await
        };
        match result {
            Ok(stored) => {
                server.after_write(&call.def, &stored).await?;
                return Ok(if finished {
                    Deleted::Gone(stored)
                } else {
                    Deleted::Waiting(stored)
                });
            }
            Err(WriteError::Modified) if attempts > 0 => {
                current = server
                    .store
                    .get(&call.def.key, &current.key)
                    .ok_or_else(|| ApiError::not_found(&call.subject(&current.key.name)))?;
            }
            Err(error) => return Err(call.write_error(&current.key.name, error)),
        }
    }
}

fn check_preconditions(call: &Call, current: &Stored, options: &DeleteOptions) -> ApiResult<()> {
    let Some(preconditions) = &options.preconditions else {
        return Ok(());
    };
    // Differs from other conflicts as in the real server: the kind is named here.
    let subject = call.kind_subject(&current.key.name);
    if let Some(uid) = preconditions
        .uid
        .as_ref()
        .filter(|uid| **uid != current.uid)
    {
        return Err(ApiError::conflict(
            &subject,
            &format!(
                "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted and then recreated",
                current.uid
            ),
        ));
    }
    let revision = current.revision.to_string();
    if let Some(wanted) = preconditions
        .resource_version
        .as_ref()
        .filter(|r| **r != revision)
    {
        return Err(ApiError::conflict(
            &subject,
            &format!(
                "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({revision}). The object might have been modified"
            ),
        ));
    }
    Ok(())
}

/// The object with its deletion asked for.
fn marked(call: &Call, old: &Value, options: &DeleteOptions) -> Value {
    let mut new = old.clone();
    if let Some(finalizer) = options.finalizer()
        && !object::finalizers(old).contains(&finalizer)
        && !object::is_deleting(old)
    {
        let mut finalizers = object::finalizers(old);
        finalizers.push(finalizer);
        let finalizers = json!(finalizers);
        object::set_meta(&mut new, "finalizers", finalizers);
    }
    let grace = grace_seconds(call, old, options);
    if object::is_deleting(old) {
        // A second deletion can only shorten the wait.
        let left = old
            .pointer("/metadata/deletionGracePeriodSeconds")
            .and_then(Value::as_i64)
            .unwrap_or_default();
        if options.grace_period_seconds.is_some() && grace < left {
            object::set_meta(&mut new, "deletionGracePeriodSeconds", json!(grace));
        }
        return new;
    }
    let at = Timestamp::now().saturating_add(SignedDuration::from_secs(grace));
    let at = at.map_or_else(|_| object::now(), object::time_text);
    object::set_meta(&mut new, "deletionTimestamp", json!(at));
    object::set_meta(&mut new, "deletionGracePeriodSeconds", json!(grace));
    if object::generation(old) > 0 {
        object::set_meta(&mut new, "generation", json!(object::generation(old) + 1));
    }
    if &*call.def.key == NAMESPACES {
        new["status"]["phase"] = json!("Terminating");
    }
    new
}

/// Pods that run on a node end gracefully; everything else at once.
fn grace_seconds(call: &Call, old: &Value, options: &DeleteOptions) -> i64 {
    if &*call.def.key != "pods" {
        return 0;
    }
    let text = |path: &str| {
        old.pointer(path)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let ended = matches!(text("/status/phase"), "Succeeded" | "Failed");
    if text("/spec/nodeName").is_empty() || ended {
        return 0;
    }
    let of_pod = old
        .pointer("/spec/terminationGracePeriodSeconds")
        .and_then(Value::as_i64);
    options
        .grace_period_seconds
        .or(of_pod)
        .unwrap_or(DEFAULT_POD_GRACE_SECONDS)
        .max(0)
}

pub(crate) async fn delete_collection(call: &Call) -> ApiResult<Outcome> {
    let options = DeleteOptions::of(call)?;
    let selection = Selection::of(call)?;
    let scope = selection.narrow(call.scope(), call.def.namespaced);
    let (mut objects, revision) = call.server.store.list(&call.def.key, &scope);
    objects.retain(|o| selection.matches(o));
    let mut items = Vec::with_capacity(objects.len());
    for stored in objects {
        let before = stored.value();
        match delete_object(call, stored, &options).await {
            Ok(_) => items.push(before),
            // Somebody else was quicker, which is what was wanted.
            Err(error) if error.reason == "NotFound" => {}
            Err(error) => return Err(error),
        }
    }
    let list = json!({
        "kind": call.def.list_kind, "apiVersion": call.api_version(),
        "metadata": {"resourceVersion": revision.to_string()}, "items": items,
    });
    Ok(Answer::Value(StatusCode::OK, list).into())
}
