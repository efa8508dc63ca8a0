//! Brings one object to what its manifest says, and reads it back.

use muster_api::work::UpdateStrategyType;
use muster_core::apply::{self, Desired, History, LastApplied, UpdatePlan, plan_update};
use muster_core::executor::ExecutorError;
use muster_core::manifest::ManifestError;
use muster_core::ownership::OwnerChange;
use serde_json::{Value, json};

use super::calls::ApiError;
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
    #[error(
        "duplicate manifest for resource {namespace}/{name} with resource type {api_version}.{kind}"
    )]
    Duplicate {
        /// The object's namespace; empty if it has none.
        namespace: String,
        /// The object's name.
        name: String,
        /// The object's `apiVersion`.
        api_version: String,
        /// The object's kind.
        kind: String,
    },
    /// A strategy that this agent does not have. Doing something else in its place could
    /// overwrite what the user wants kept.
    #[error("the update strategy {0} is not supported by this version of the agent")]
    Strategy(String),
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
    ReadOnly,
}

impl TryFrom<&UpdateStrategyType> for Strategy {
    type Error = ApplyError;

    fn try_from(strategy: &UpdateStrategyType) -> Result<Self, ApplyError> {
        match strategy {
            UpdateStrategyType::Update => Ok(Self::Update),
            UpdateStrategyType::CreateOnly => Ok(Self::CreateOnly),
            UpdateStrategyType::ReadOnly => Ok(Self::ReadOnly),
            UpdateStrategyType::ServerSideApply => {
                Err(ApplyError::Strategy("ServerSideApply".to_owned()))
            }
            UpdateStrategyType::Unrecognized(name) => Err(ApplyError::Strategy(name.clone())),
        }
    }
}

/// An object as it is now, and what to remember of having applied it.
#[derive(Debug)]
pub(super) struct Applied {
    pub(super) live: Value,
    pub(super) last: Option<LastApplied>,
}

/// Applies a manifest that may be written. A conflict costs one more look at this one object.
pub(super) async fn apply(
    spoke: &Spoke,
    target: Target<'_>,
    strategy: Strategy,
    desired: &Desired,
    owner: &OwnerChange,
    history: History<'_>,
) -> Result<Applied, ApiError> {
    let mut tries = CONFLICT_TRIES;
    loop {
        tries -= 1;
        let live: Option<Value> = spoke.get(target).await?;
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
                let last = (strategy == Strategy::Update).then(|| desired.applied(&live));
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

/// Puts the owner reference of a live object right and leaves the rest alone.
async fn own(
    spoke: &Spoke,
    target: Target<'_>,
    live: Value,
    owner: &OwnerChange,
) -> Result<Value, ApiError> {
    let metadata = &live["metadata"];
    let references = serde_json::from_value::<Option<Vec<_>>>(metadata["ownerReferences"].clone())
        .ok()
        .flatten()
        .unwrap_or_default();
    let Some(references) = owner.merge(&references) else {
        metrics::applied(Write::None);
        return Ok(live);
    };
    let patch = json!({"metadata": {
        "uid": metadata["uid"],
        "resourceVersion": metadata["resourceVersion"],
        "ownerReferences": references,
    }});
    let patched = spoke.merge(target, &patch).await?;
    metrics::applied(Write::Update);
    Ok(patched)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strategy_that_is_not_there_is_named_and_never_taken_for_update() {
        for (strategy, text) in [
            (
                UpdateStrategyType::ServerSideApply,
                "the update strategy ServerSideApply is not supported by this version of the agent",
            ),
            (
                UpdateStrategyType::Unrecognized("Merge".to_owned()),
                "the update strategy Merge is not supported by this version of the agent",
            ),
        ] {
            assert_eq!(Strategy::try_from(&strategy).unwrap_err().to_string(), text);
        }
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
