//! What one look at a work that is being deleted does.
//!
//! ```text
//! delete the record ─► remove its objects ─► none left ─► release the record ─► release the work
//!                            │
//!                            └─ some left: say which, look again
//! ```

use jiff::Timestamp;
use muster_api::work::AppliedManifestWork;

use super::applied_work::{self, Removed};
use super::calls::ApiError;
use super::metrics::ReconcileResult;
use super::reconcile::{Env, Memory, Outcome, Wishes};
use super::status;
use super::work::Work;

/// How far the removal of a record has come.
pub(super) enum Progress {
    /// Record and objects are gone.
    Gone,
    /// Something is still there.
    Waits {
        /// The first thing waited for, for people.
        what: String,
        /// A request that failed.
        error: Option<ApiError>,
    },
}

/// Removes a record and the objects it owns, as far as possible now.
pub(super) async fn remove_record(
    env: &Env,
    record: &AppliedManifestWork,
) -> Result<Progress, ApiError> {
    if record.metadata.deletion_timestamp.is_none() {
        applied_work::delete(&env.spoke, record).await?;
    }
    let owner = applied_work::owner(record);
    let resources = applied_work::recorded(record).to_vec();
    let Removed {
        pending,
        waits_for,
        error,
    } = applied_work::remove(&env.spoke, &owner, resources).await;
    if pending.is_empty() {
        return Ok(match applied_work::release(&env.spoke, record).await? {
            None => Progress::Gone,
            Some(holder) => Progress::Waits {
                what: holder,
                error: None,
            },
        });
    }
    applied_work::record_resources(&env.spoke, record.clone(), pending).await?;
    Ok(Progress::Waits {
        what: waits_for.unwrap_or_else(|| "objects on the managed cluster".to_owned()),
        error,
    })
}

/// Takes the deletion of a work as far as possible now.
pub(super) async fn run(env: &Env, work: Work, mut memory: Memory) -> Outcome {
    if !work.has_finalizer() {
        // Others' finalizers hold it; the agent is done with it, or never began.
        return Outcome::new(Some(work), memory, ReconcileResult::Deleted);
    }
    let name = applied_work::name_of(&env.identity, &work.name);
    let progress = match applied_work::get(&env.spoke, &name).await {
        Ok(None) => Ok(Progress::Gone),
        Ok(Some(record)) => remove_record(env, &record).await,
        Err(error) => Err(error),
    };
    let (what, error) = match progress {
        Ok(Progress::Gone) => {
            memory.record = None;
            memory.watched.clear();
            return match env.hub.remove_finalizer(&work).await {
                Ok(()) => Outcome::new(None, memory, ReconcileResult::Deleted),
                Err(error) => {
                    Outcome::new(Some(work), memory, ReconcileResult::Failed).failed(&error, "hub")
                }
            };
        }
        Ok(Progress::Waits { what, error }) => (what, error),
        Err(error) => (format!("the managed cluster: {error}"), Some(error)),
    };

    let now = Timestamp::now();
    let written = env
        .hub
        .patch_status(&work, |before| {
            status::deleting(before, Some(&what), work.generation, now)
        })
        .await;
    let mut outcome = Outcome::new(Some(work), memory, ReconcileResult::Pending);
    outcome.wishes = Wishes {
        pending: true,
        ..Wishes::default()
    };
    outcome.error = Some(what);
    if let Some(error) = error {
        outcome = outcome.failed(&error, "spoke");
    }
    match written {
        Ok(work) => outcome.work = work,
        Err(error) => outcome = outcome.failed(&error, "hub"),
    }
    outcome
}
