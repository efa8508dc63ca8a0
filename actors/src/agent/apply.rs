//! Brings one object to what its manifest says, and reads it back.

use muster_api::conditions as read;
use muster_api::constants::MANIFEST_COMPLETE;
use muster_api::work::UpdateStrategyType;
use muster_core::apply::server_side::{
    IgnoreFieldsError, Intent, IntentError, IntentPlan, LastIntent, is_with_own_updates,
    take_over_updates,
};
use muster_core::apply::{self, Desired, History, LastApplied, UpdatePlan, plan_update};
use muster_core::condition_rules::RulePlan;
use muster_core::conditions::ApplyFailure;
use muster_core::executor::ExecutorError;
use muster_core::manifest::{DuplicateManifest, ManifestError};
use muster_core::ownership::OwnerChange;
use serde_json::{Value, json};

use super::calls::ApiError;
use super::evaluation::derive_conditions;
use super::metrics::{self, Write};
use super::rest_mapper::MapError;
use super::spoke::{Spoke, Target};

/// Tries when others change the object at the same time: what upstream gives a whole pass.
const CONFLICT_TRIES: usize = 4;

/// Why a manifest was not applied. The texts are what users read in the manifest's condition.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApplyError {
    /// The manifest is no object, or has no usable name.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The manifest contradicts itself.
    #[error(transparent)]
    Prepare(#[from] apply::ApplyError),
    /// The kind has no path.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The cluster refused, or did not answer.
    #[error("{0}")]
    Api(#[from] ApiError),
    /// The work could not be recorded on the cluster, without which nothing is applied.
    #[error("failed to record the work as AppliedManifestWork {name}: {source}")]
    Record {
        /// Name of the record.
        name: String,
        /// What went wrong.
        #[source]
        source: ApiError,
    },
    /// Objects of the kind need a namespace.
    #[error("metadata.namespace: Required value: objects of kind {0} have a namespace")]
    NoNamespace(String),
    /// Another manifest of the work is for the same object.
    #[error(transparent)]
    Duplicate(#[from] DuplicateManifest),
    /// A strategy that this agent does not have. Doing something else in its place could
    /// overwrite what the user wants kept.
    #[error("the update strategy {0} is not supported by this version of the agent")]
    Strategy(String),
    /// Settings of server-side apply that cannot be used.
    #[error(transparent)]
    ServerSide(#[from] IntentError),
    /// The fields to ignore cannot be found.
    #[error(transparent)]
    IgnoreFields(#[from] IgnoreFieldsError),
    /// The executor is no identity.
    #[error(transparent)]
    Executor(#[from] ExecutorError),
    /// The executor lacks a permission; see [`muster_core::executor::refusal`].
    #[error("{0}")]
    Denied(String),
    /// The cluster could not be asked what the executor may do, without which nothing is applied
    /// for it.
    #[error("failed to ask what the executor may do: {0}")]
    Review(#[source] ApiError),
}

impl ApplyError {
    /// What went wrong, as far as it shows in the reason of the condition.
    pub(super) const fn failure(&self) -> ApplyFailure {
        match self {
            Self::IgnoreFields(_) => ApplyFailure::IgnoreFields,
            _ => ApplyFailure::Apply,
        }
    }

    /// The failed request, if it was one.
    pub(super) const fn request(&self) -> Option<&ApiError> {
        match self {
            Self::Api(error)
            | Self::Review(error)
            | Self::Record { source: error, .. }
            | Self::Map(MapError::Discovery { source: error, .. }) => Some(error),
            _ => None,
        }
    }
}

/// How an object is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strategy {
    Update,
    CreateOnly,
    ServerSideApply,
    ReadOnly,
}

impl TryFrom<&UpdateStrategyType> for Strategy {
    type Error = ApplyError;

    fn try_from(strategy: &UpdateStrategyType) -> Result<Self, ApplyError> {
        match strategy {
            UpdateStrategyType::Update => Ok(Self::Update),
            UpdateStrategyType::CreateOnly => Ok(Self::CreateOnly),
            UpdateStrategyType::ReadOnly => Ok(Self::ReadOnly),
            UpdateStrategyType::ServerSideApply => Ok(Self::ServerSideApply),
            UpdateStrategyType::Unrecognized(name) => Err(ApplyError::Strategy(name.clone())),
        }
    }
}

/// A manifest that may be written, prepared for how it is written.
#[derive(Debug)]
pub(super) enum Wanted {
    /// By Update.
    Update(Desired),
    /// By CreateOnly.
    CreateOnly(Desired),
    /// By server-side apply.
    ServerSideApply(Box<Intent>),
}

/// What to remember of having applied a manifest.
#[derive(Debug)]
pub(super) enum Last {
    /// By Update.
    Update(LastApplied),
    /// By server-side apply.
    ServerSideApply(LastIntent),
}

impl Last {
    /// Of an update.
    pub(super) const fn update(&self) -> Option<&LastApplied> {
        match self {
            Self::Update(last) => Some(last),
            Self::ServerSideApply(_) => None,
        }
    }

    /// Of a server-side apply.
    pub(super) const fn intent(&self) -> Option<&LastIntent> {
        match self {
            Self::Update(_) => None,
            Self::ServerSideApply(last) => Some(last),
        }
    }
}

/// An object as it is now, and what to remember of having applied it.
#[derive(Debug)]
pub(super) struct Applied {
    pub(super) live: Value,
    pub(super) last: Option<Last>,
}

/// When an object must not be written any more.
#[derive(Debug, Default)]
pub(super) struct Completion {
    /// The rules that say so, and the generation of the work; `None` if none does.
    pub(super) rules: Option<(RulePlan, i64)>,
}

impl Completion {
    /// Whether the object has become complete since it was looked at last. It is asked of the very
    /// state that a write would replace, since that could undo what says so.
    async fn is_reached(&self, live: Option<&Value>) -> bool {
        let (Some((rules, generation)), Some(live)) = (&self.rules, live) else {
            return false;
        };
        let derived = derive_conditions(rules.clone(), live.clone(), *generation).await;
        derived.is_some_and(|derived| read::is_true(&derived, MANIFEST_COMPLETE))
    }
}

/// Applies a manifest that may be written. A conflict costs one more look at this one object.
pub(super) async fn apply(
    spoke: &Spoke,
    target: Target<'_>,
    strategy: Strategy,
    desired: &Desired,
    owner: &OwnerChange,
    history: History<'_>,
    completion: &Completion,
) -> Result<Applied, ApiError> {
    let mut tries = CONFLICT_TRIES;
    loop {
        tries -= 1;
        let live: Option<Value> = spoke.get(target).await?;
        if completion.is_reached(live.as_ref()).await {
            let live = live.unwrap_or_default();
            return Ok(Applied { live, last: None });
        }
        let attempt = match (strategy, live) {
            (Strategy::Update, live) => update(spoke, target, desired, live, owner, history).await,
            (_, Some(live)) => own(spoke, target, live, owner).await,
            // Of a missing object, Update would create just what CreateOnly does.
            (_, None) => update(spoke, target, desired, None, owner, history).await,
        };
        match attempt {
            // Somebody was quicker; a create that met an object looks at that one.
            Err(error) if (error.is_conflict() || error.is_already_exists()) && tries > 0 => {}
            Err(error) => return Err(error),
            Ok(live) => {
                let last =
                    (strategy == Strategy::Update).then(|| Last::Update(desired.applied(&live)));
                return Ok(Applied { live, last });
            }
        }
    }
}

async fn update(
    spoke: &Spoke,
    target: Target<'_>,
    desired: &Desired,
    live: Option<Value>,
    owner: &OwnerChange,
    history: History<'_>,
) -> Result<Value, ApiError> {
    match (plan_update(desired, live.as_ref(), owner, history), live) {
        (UpdatePlan::Create(object), _) => {
            let created = spoke.create(target, &object).await?;
            metrics::applied(Write::Create);
            Ok(created)
        }
        (UpdatePlan::Replace(object), _) => {
            let replaced = spoke.replace(target, &object).await?;
            metrics::applied(Write::Update);
            Ok(replaced)
        }
        (UpdatePlan::Recreate(object), live) => {
            // A finalizer may hold the old object: the server then says so, and later passes try again.
            let uid = live
                .as_ref()
                .and_then(|live| live["metadata"]["uid"].as_str());
            spoke.delete(target, uid.unwrap_or_default()).await?;
            let created = spoke.create(target, &object).await?;
            metrics::applied(Write::Update);
            Ok(created)
        }
        (UpdatePlan::Unchanged, live) => {
            metrics::applied(Write::None);
            Ok(live.unwrap_or_default())
        }
    }
}

/// Applies a manifest by server-side apply, at most once: who meets a conflict with another
/// manager would only meet it again.
pub(super) async fn apply_on_server(
    spoke: &Spoke,
    target: Target<'_>,
    intent: Intent,
    owner: &OwnerChange,
    last: Option<LastIntent>,
    completion: &Completion,
) -> Result<Applied, ApplyError> {
    let live: Option<Value> = spoke.get(target).await?;
    if completion.is_reached(live.as_ref()).await {
        let live = live.unwrap_or_default();
        return Ok(Applied { live, last: None });
    }
    let (mut intent, mut live, mut plan) = planned(intent, live, last).await;
    let mut taken_over = false;
    let mut tries = CONFLICT_TRIES;
    while let (Ok(IntentPlan::Apply(_)), Some(object)) = (&plan, &live)
        && tries > 0
        && let Some(patch) = takeover_patch(object, intent.manager())
    {
        tries -= 1;
        let current = match spoke.merge::<Value>(target, &patch).await {
            Ok(patched) => {
                taken_over = true;
                Some(patched)
            }
            Err(error) if error.is_conflict() && tries > 0 => spoke.get(target).await?,
            Err(error) => return Err(error.into()),
        };
        (intent, live, plan) = planned(intent, current, None).await;
    }
    let (mut live, mut wrote) = match (plan?, live) {
        (IntentPlan::Unchanged, live) => {
            let wrote = if taken_over {
                Write::Update
            } else {
                Write::None
            };
            (live.unwrap_or_default(), wrote)
        }
        (IntentPlan::Apply(object), live) => {
            let write = live.map_or(Write::Create, |_| Write::Update);
            let applied = spoke
                .apply(target, &object, intent.manager(), intent.force())
                .await;
            let applied = match applied {
                Err(error) if is_with_own_updates(intent.manager(), error.causes()) => {
                    spoke.apply(target, &object, intent.manager(), true).await?
                }
                applied => applied?,
            };
            (applied, write)
        }
    };
    let mut tries = CONFLICT_TRIES;
    while let Some(patch) = owner_patch(&live, owner) {
        tries -= 1;
        match spoke.merge(target, &patch).await {
            Ok(patched) => {
                live = patched;
                if wrote == Write::None {
                    wrote = Write::Update;
                }
                break;
            }
            // Somebody was quicker: the references may be others by now.
            Err(error) if error.is_conflict() && tries > 0 => {
                live = spoke.get(target).await?.ok_or(error)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    metrics::applied(wrote);
    let last = Some(Last::ServerSideApply(intent.applied(&live)));
    Ok(Applied { live, last })
}

/// The patch that makes the agent's former updates part of what it applies; `None` if there are none.
/// It holds only for the object as it was read.
fn takeover_patch(live: &Value, manager: &str) -> Option<Value> {
    let managed_fields = take_over_updates(live, manager)?;
    let metadata = &live["metadata"];
    Some(json!({"metadata": {
        "uid": metadata["uid"],
        "resourceVersion": metadata["resourceVersion"],
        "managedFields": managed_fields,
    }}))
}

/// Decides what to send; aside, if that may take long.
async fn planned(
    intent: Intent,
    live: Option<Value>,
    last: Option<LastIntent>,
) -> (Intent, Option<Value>, Result<IntentPlan, IgnoreFieldsError>) {
    let is_costly = intent.is_costly();
    let plan = move || {
        let plan = intent.plan(live.as_ref(), last.as_ref());
        (intent, live, plan)
    };
    if !is_costly {
        return plan();
    }
    match tokio::task::spawn_blocking(plan).await {
        Ok(planned) => planned,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// Puts the owner reference of a live object right and leaves the rest alone.
async fn own(
    spoke: &Spoke,
    target: Target<'_>,
    live: Value,
    owner: &OwnerChange,
) -> Result<Value, ApiError> {
    let Some(patch) = owner_patch(&live, owner) else {
        metrics::applied(Write::None);
        return Ok(live);
    };
    let patched = spoke.merge(target, &patch).await?;
    metrics::applied(Write::Update);
    Ok(patched)
}

/// The patch that puts the owner reference of a live object right; `None` if it is. It holds only
/// for the object as it was read, since the list is written whole.
fn owner_patch(live: &Value, owner: &OwnerChange) -> Option<Value> {
    let metadata = &live["metadata"];
    let references = serde_json::from_value::<Option<Vec<_>>>(metadata["ownerReferences"].clone())
        .ok()
        .flatten()
        .unwrap_or_default();
    let references = owner.merge(&references)?;
    Some(json!({"metadata": {
        "uid": metadata["uid"],
        "resourceVersion": metadata["resourceVersion"],
        "ownerReferences": references,
    }}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strategy_that_is_not_there_is_named_and_never_taken_for_update() {
        let unknown = UpdateStrategyType::Unrecognized("Merge".to_owned());
        assert_eq!(
            Strategy::try_from(&unknown).unwrap_err().to_string(),
            "the update strategy Merge is not supported by this version of the agent"
        );
        assert_eq!(
            Strategy::try_from(&UpdateStrategyType::default()).unwrap(),
            Strategy::Update
        );
    }

    #[test]
    fn an_unknown_kind_has_upstreams_text() {
        let error = ApplyError::from(MapError::NoKind {
            kind: "Widget".to_owned(),
        });
        assert_eq!(
            error.to_string(),
            r#"the server doesn't have a resource type "Widget""#
        );
    }
}
