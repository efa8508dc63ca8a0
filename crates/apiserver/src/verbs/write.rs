//! create, update and patch.

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};

use super::apply;
use super::call::{Answer, Call, Outcome};
use crate::admission::Operation;
use crate::authz;
use crate::decode::{self, FieldValidation};
use crate::managed;
use crate::object;
use crate::patch::{self, PatchKind};
use crate::status::{ApiError, ApiResult, FieldError};
use crate::store::{Expect, ObjectKey, Stored, WriteError};
use crate::strategy::{self, Part};
use crate::validation;

/// Names tried for one `generateName` before the collision is reported.
const GENERATE_NAME_ATTEMPTS: usize = 8;

/// How often a patch is applied anew when the object changes under it.
const PATCH_ATTEMPTS: usize = 5;

/// An object and what a write of it came to.
pub(crate) enum Written {
    Stored(Arc<Stored>),
    DryRun(Value),
    /// The change was the last thing that a deletion waited for: what was stored last, and the
    /// object as the client has changed it.
    Gone(Arc<Stored>, Value),
}

impl Written {
    fn answer(self, code: StatusCode) -> Answer {
        match self {
            Self::Stored(stored) => Answer::Object(code, stored),
            Self::DryRun(value) | Self::Gone(_, value) => Answer::Value(code, value),
        }
    }

    pub(crate) fn value(&self) -> Value {
        match self {
            Self::Stored(stored) => stored.value(),
            Self::DryRun(value) | Self::Gone(_, value) => value.clone(),
        }
    }
}

pub(crate) async fn create(call: &Call) -> ApiResult<Outcome> {
    let body = decode::body(call)?;
    let mut decoded = decode::object(call, body, FieldValidation::of(call)?)?;
    if call.def.builtin.is_some_and(|b| b.review) {
        return Ok(authz::review::answer(call, decoded.object)?.into());
    }
    set_namespace(call, &mut decoded.object)?;
    call.tracker().update(None, &mut decoded.object);
    let generate = object::meta_str(&decoded.object, "name").is_empty()
        && !object::meta_str(&decoded.object, "generateName").is_empty();
    let mut attempts = if generate { GENERATE_NAME_ATTEMPTS } else { 1 };
    let written = loop {
        attempts -= 1;
        match create_object(call, decoded.object.clone()).await {
            Err(error) if error.reason == "AlreadyExists" && attempts > 0 => {}
            other => break other?,
        }
    };
    finish(call, written, StatusCode::CREATED, decoded.warnings).await
}

pub(super) fn set_namespace(call: &Call, object: &mut Value) -> ApiResult<()> {
    if !call.def.namespaced {
        object::set_meta(object, "namespace", Value::Null);
        return Ok(());
    }
    let Some(namespace) = &call.path.namespace else {
        return Err(ApiError::method_not_allowed(
            "the server does not allow this method on the requested resource",
        ));
    };
    check_namespace_of(call, object)?;
    object::set_meta(object, "namespace", json!(namespace));
    Ok(())
}

/// An object cannot be of another namespace than the request.
pub(super) fn check_namespace_of(call: &Call, object: &Value) -> ApiResult<()> {
    let given = object::meta_str(object, "namespace");
    if call.def.namespaced && !given.is_empty() && given != call.namespace() {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}

/// Stores a new object, which has its managers, unless there is one of its name.
pub(super) async fn create_object(call: &Call, mut object: Value) -> ApiResult<Written> {
    if object::meta_str(&object, "name").is_empty() {
        let prefix = object::meta_str(&object, "generateName");
        if !prefix.is_empty() {
            let name = object::generate_name(prefix);
            object::set_meta(&mut object, "name", json!(name));
        }
    }
    let name = object::meta_str(&object, "name").to_owned();
    check_namespace(call, &name)?;
    if !object::meta_str(&object, "resourceVersion").is_empty() {
        return Err(ApiError::unexpected(
            "resourceVersion should not be set on objects to be created",
        ));
    }
    if call.def.terminating {
        return Err(ApiError::method_not_allowed(
            "create not allowed while custom resource definition is terminating",
        ));
    }
    authz::escalation::check(call, &object, None)?;
    strategy::prepare_create(&call.def, call.version(), &mut object);
    let mut errors = Vec::new();
    validation::validate_metadata(&object, call.def.name_rule, &mut errors);
    strategy::validate(&call.def, call.version(), &object, None, &mut errors);
    if !errors.is_empty() {
        return Err(ApiError::invalid(&call.kind_subject(&name), &errors));
    }
    authz::require_create(call)?;
    call.admit(Operation::Create, &name, &object, None)?;
    let key = ObjectKey::new(call.namespace(), &name);
    if let Some(existing) = call.server.store.get(&call.def.key, &key) {
        let subject = call.subject(&name);
        return Err(if object::is_deleting(&existing.value()) {
            ApiError::still_deleting(&subject)
        } else {
            ApiError::already_exists(&subject)
        });
    }
    if call.dry_run() {
        return Ok(Written::DryRun(object));
    }
    call.server
        .put(&call.def, &key, Expect::Absent, object)
        .await
        .map(Written::Stored)
        .map_err(|e| call.write_error(&name, e))
}

/// Objects come into existing namespaces only, and not into terminating ones.
fn check_namespace(call: &Call, name: &str) -> ApiResult<()> {
    let Some(namespace) = &call.path.namespace else {
        return Ok(());
    };
    let key = ObjectKey::new("", namespace);
    let Some(found) = call.server.store.get(crate::builtin::NAMESPACES, &key) else {
        return Err(ApiError::not_found(&crate::status::Subject::new(
            "",
            "namespaces",
            namespace,
        )));
    };
    if object::is_deleting(&found.value()) {
        return Err(ApiError::namespace_terminating(
            &call.subject(name),
            namespace,
        ));
    }
    Ok(())
}

pub(crate) async fn update(call: &Call, part: Part) -> ApiResult<Outcome> {
    let body = decode::body(call)?;
    let mut decoded = decode::object(call, body, FieldValidation::of(call)?)?;
    check_name(call, &decoded.object)?;
    object::set_meta(&mut decoded.object, "namespace", json!(call.path.namespace));
    let current = call.stored()?;
    let written = update_object(call, part, &current, decoded.object).await?;
    finish(call, written, StatusCode::OK, decoded.warnings).await
}

pub(super) fn check_name(call: &Call, object: &Value) -> ApiResult<()> {
    let name = object::meta_str(object, "name");
    if name.is_empty() {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({} based on URL) was undeterminable: name must be provided",
            call.name()
        )));
    }
    if name != call.name() {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            call.name()
        )));
    }
    let namespace = object::meta_str(object, "namespace");
    if !namespace.is_empty() && namespace != call.namespace() {
        return Err(ApiError::bad_request(format!(
            "the namespace of the object ({namespace}) does not match the namespace on the request ({})",
            call.namespace()
        )));
    }
    Ok(())
}

pub(crate) async fn patch(call: &Call, part: Part) -> ApiResult<Outcome> {
    if call.content_type == apply::CONTENT_TYPE {
        return apply::apply(call, part).await;
    }
    let kind = PatchKind::of(&call.content_type, call.def.builtin.is_some())?;
    let patch = patch::Patch::parse(kind, &call.body)?;
    let mode = FieldValidation::of(call)?;
    let mut attempts = PATCH_ATTEMPTS;
    loop {
        attempts -= 1;
        let current = call.stored()?;
        let mut target = current.value();
        target["apiVersion"] = json!(call.api_version());
        let base = target.clone();
        patch.apply(&mut target, call.version().schema.merging())?;
        if target == base {
            return Ok(Answer::Object(StatusCode::OK, current).into());
        }
        check_name(call, &target)?;
        check_uid(call, &current, &target)?;
        let decoded = decode::object(call, target, mode)?;
        match update_object(call, part, &current, decoded.object).await {
            Err(error) if error.reason == "Conflict" && attempts > 0 && !patch.sets_revision() => {}
            other => return finish(call, other?, StatusCode::OK, decoded.warnings).await,
        }
    }
}

/// A patch cannot give an object another identity.
pub(super) fn check_uid(call: &Call, current: &Stored, target: &Value) -> ApiResult<()> {
    let uid = object::meta_str(target, "uid");
    if uid.is_empty() || uid == current.uid {
        return Ok(());
    }
    let error = FieldError::invalid("metadata.uid", &json!(uid), "field is immutable");
    Err(ApiError::invalid(&call.kind_subject(call.name()), &[error]))
}

/// Lets the server act on a write, and gives the answer.
pub(super) async fn finish(
    call: &Call,
    written: Written,
    code: StatusCode,
    warnings: Vec<String>,
) -> ApiResult<Outcome> {
    let mut answer = written;
    if let Written::Stored(stored) | Written::Gone(stored, _) = &answer {
        call.server.after_write(&call.def, stored).await?;
        if matches!(answer, Written::Stored(_))
            && &*call.def.key == crate::builtin::CRDS
            && let Some(fresh) = call.server.store.get(&call.def.key, &stored.key)
        {
            // A CRD's status is set by the server in the same request.
            answer = Written::Stored(fresh);
        }
    }
    Ok(Outcome {
        answer: answer.answer(code),
        warnings,
    })
}

/// Records who has changed what, and stores `new` over `current`.
pub(super) async fn update_object(
    call: &Call,
    part: Part,
    current: &Arc<Stored>,
    mut new: Value,
) -> ApiResult<Written> {
    let mut old = current.value();
    old["apiVersion"] = json!(call.api_version());
    call.tracker().update(Some(&old), &mut new);
    change_object(call, part, current, new).await
}

/// Brings `new`, which has its managers, through the rules of its type and stores it over
/// `current`.
pub(super) async fn change_object(
    call: &Call,
    part: Part,
    current: &Arc<Stored>,
    mut new: Value,
) -> ApiResult<Written> {
    let name = call.name();
    let mut old = current.value();
    old["apiVersion"] = json!(call.api_version());
    check_preconditions(call, current, &new)?;
    authz::escalation::check(call, &new, Some(&old))?;
    let managers = managed::take(&mut new);
    strategy::prepare_update(&call.def, call.version(), part, &old, &mut new);
    managed::put(&mut new, managers);
    object::set_meta(
        &mut new,
        "resourceVersion",
        json!(current.revision.to_string()),
    );
    managed::keep_times(&old, &mut new);
    let mut errors = Vec::new();
    validation::validate_metadata(&new, call.def.name_rule, &mut errors);
    validation::validate_metadata_update(&old, &new, &mut errors);
    strategy::validate(
        &call.def,
        call.version(),
        &new,
        Some((part, &old)),
        &mut errors,
    );
    if !errors.is_empty() {
        return Err(ApiError::invalid(&call.kind_subject(name), &errors));
    }
    call.admit(Operation::Update, name, &new, Some(&old))?;
    let gone = is_finished(&call.def.key, &new);
    if call.dry_run() {
        return Ok(Written::DryRun(new));
    }
    if new == old && !gone {
        return Ok(Written::Stored(current.clone()));
    }
    let server = &call.server;
    let written = if gone {
        // The last state is what was stored before this change.
        let removed = server
            .remove(&call.def, &current.key, current.revision, old)
            .await;
        removed.map(|stored| Written::Gone(stored, new))
    } else {
        let expect = Expect::Revision(current.revision);
        server
            .put(&call.def, &current.key, expect, new)
            .await
            .map(Written::Stored)
    };
    written.map_err(|e| match e {
        // Changed or deleted between our read and our write.
        WriteError::Missing => ApiError::not_found(&call.subject(name)),
        other => call.write_error(name, other),
    })
}

fn check_preconditions(call: &Call, current: &Stored, new: &Value) -> ApiResult<()> {
    let subject = call.subject(call.name());
    let uid = object::meta_str(new, "uid");
    if !uid.is_empty() && uid != current.uid {
        let path = registry_path(call);
        return Err(ApiError::conflict(
            &subject,
            &format!(
                "StorageError: invalid object, Code: 4, Key: {path}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                current.uid
            ),
        ));
    }
    let revision = object::meta_str(new, "resourceVersion");
    match revision.parse::<u64>() {
        _ if revision.is_empty() => {
            if call.def.builtin.is_some_and(|b| b.unconditional_update) {
                return Ok(());
            }
            let error = FieldError::invalid_text(
                "metadata.resourceVersion",
                "0",
                "must be specified for an update",
            );
            Err(ApiError::invalid(&subject, &[error]))
        }
        Ok(revision) if revision == current.revision => Ok(()),
        Ok(_) => Err(ApiError::modified(&subject)),
        Err(_) => Err(ApiError::invalid(
            &call.kind_subject(call.name()),
            &[FieldError::invalid_text(
                "metadata.resourceVersion",
                &format!("{revision:?}"),
                &format!("strconv.ParseUint: parsing {revision:?}: invalid syntax"),
            )],
        )),
    }
}

fn registry_path(call: &Call) -> String {
    let parts = [
        call.def.group.as_str(),
        call.def.plural.as_str(),
        call.namespace(),
        call.name(),
    ];
    let parts: Vec<&str> = parts.into_iter().filter(|p| !p.is_empty()).collect();
    format!("/registry/{}", parts.join("/"))
}

/// True when a deletion has nothing left to wait for.
pub(crate) fn is_finished(resource: &str, object: &Value) -> bool {
    let grace = object
        .pointer("/metadata/deletionGracePeriodSeconds")
        .and_then(Value::as_i64)
        .unwrap_or_default();
    let namespace_holds = resource == crate::builtin::NAMESPACES
        && object
            .pointer("/spec/finalizers")
            .and_then(Value::as_array)
            .is_some_and(|f| !f.is_empty());
    object::is_deleting(object)
        && grace == 0
        && object::finalizers(object).is_empty()
        && !namespace_holds
}
