//! Statuses on their way into the hub's API.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::Api;
use kube::api::{Patch, PatchParams};
use muster_api::conditions::FALSE;
use muster_api::constants::WORK_APPLIED;
use muster_api::work::{ManifestWorkStatus, RawManifestWork};
use muster_metrics::Metric;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tracing::warn;

use super::finalizer;
use super::hub::{HubWorks, Pending, What};
use super::local::digest;

/// Writes under way at a time: a status takes some milliseconds, and a hub takes that many at ease.
const AT_A_TIME: usize = 16;
/// First pause before a write that failed is tried again.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// Longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The reason of a work that cannot be sent.
pub(super) const NOT_SENDABLE: &str = "NotSendable";

const FAILED: Metric = Metric::counter(
    "muster_event_status_writes_failed_total",
    "Statuses from events that the hub's API did not take; each is tried again.",
);

/// What is recorded of works that travel as events.
pub const METRICS: &[Metric] = &[FAILED];

/// Uids of works for which something is to be written. Each is in it once: what is written is what
/// is known when its turn comes.
pub(super) struct StatusWrites {
    queue: mpsc::UnboundedSender<(String, Duration)>,
    queued: Mutex<HashSet<String>>,
}

pub(super) type Queue = mpsc::UnboundedReceiver<(String, Duration)>;

/// What became of a write.
pub(super) enum Outcome {
    /// It is there; the digest of the status as the API has it.
    Written(u64),
    /// The work is gone.
    Gone,
}

impl StatusWrites {
    pub(super) fn new() -> (Self, Queue) {
        let (queue, receiver) = mpsc::unbounded_channel();
        let queued = Mutex::default();
        (Self { queue, queued }, receiver)
    }

    pub(super) fn add(&self, uid: &str) {
        self.add_with(uid, Duration::ZERO);
    }

    fn add_with(&self, uid: &str, pause: Duration) {
        let mut queued = self.queued.lock().unwrap_or_else(PoisonError::into_inner);
        if queued.insert(uid.to_owned()) {
            // Nobody writes any more when the receiver is gone.
            let _ = self.queue.send((uid.to_owned(), pause));
        }
    }

    fn done(&self, uid: &str) {
        let mut queued = self.queued.lock().unwrap_or_else(PoisonError::into_inner);
        queued.remove(uid);
    }
}

/// Writes, for as long as anybody has the works.
pub(super) fn start(works: &Arc<HubWorks>, queue: Queue) {
    let works = Arc::downgrade(works);
    tokio::spawn(async move {
        let queue = UnboundedReceiverStream::new(queue);
        queue
            .for_each_concurrent(AT_A_TIME, |(uid, pause)| write(works.clone(), uid, pause))
            .await;
    });
}

async fn write(works: Weak<HubWorks>, uid: String, pause: Duration) {
    let Some(works) = works.upgrade() else { return };
    let Some(pending) = works.pending(&uid) else {
        works.writes.done(&uid);
        return;
    };
    match send(&works, &uid, &pending).await {
        Ok(outcome) => {
            works.written(&uid, &pending.what, &outcome);
            // From here on it can be queued again; what came before that is looked for.
            works.writes.done(&uid);
            if works.pending(&uid).is_some() {
                works.writes.add(&uid);
            }
        }
        Err(error) => {
            let pause = (pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
            let (cluster, name) = (&pending.cluster, &pending.name);
            warn!(%cluster, name, %error, ?pause, "status not written yet");
            metrics::counter!(FAILED.name).increment(1);
            let works = Arc::downgrade(&works);
            // It does not keep others waiting.
            tokio::spawn(async move {
                tokio::time::sleep(pause).await;
                if let Some(works) = works.upgrade() {
                    works.writes.done(&uid);
                    works.writes.add_with(&uid, pause);
                }
            });
        }
    }
}

async fn send(works: &HubWorks, uid: &str, pending: &Pending) -> Result<Outcome, kube::Error> {
    let (api, name) = (works.api(&pending.cluster), &pending.name);
    let status = match &pending.what {
        What::Ended => {
            finalizer::set(&api, name, uid, false).await?;
            return Ok(Outcome::Written(0));
        }
        What::Unsendable(version, why) => {
            return say_unsendable(&api, name, uid, *version, why).await;
        }
        What::Status(status) => status,
    };
    write_status(&api, name, uid, status).await
}

/// What a work says that cannot be sent: this version of it is not applied, and why.
async fn say_unsendable(
    api: &Api<RawManifestWork>,
    name: &str,
    uid: &str,
    version: i64,
    why: &str,
) -> Result<Outcome, kube::Error> {
    let Some(work) = api.get_opt(name).await? else {
        return Ok(Outcome::Gone);
    };
    // A newer one may do.
    if work.metadata.generation != Some(version) {
        return Ok(Outcome::Gone);
    }
    let status = work.status.as_deref().map_or("{}", RawValue::get);
    let mut status: ManifestWorkStatus = serde_json::from_str(status).unwrap_or_default();
    let mut said = Condition {
        type_: WORK_APPLIED.to_owned(),
        status: FALSE.to_owned(),
        reason: NOT_SENDABLE.to_owned(),
        message: why.to_owned(),
        observed_generation: Some(version),
        last_transition_time: Time(Timestamp::now()),
    };
    let conditions = &mut status.conditions;
    match conditions
        .iter_mut()
        .find(|condition| condition.type_ == WORK_APPLIED)
    {
        Some(before) => {
            if before.status == said.status {
                said.last_transition_time = before.last_transition_time.clone();
            }
            *before = said;
        }
        None => conditions.push(said),
    }
    write_status(api, name, uid, &status).await
}

async fn write_status(
    api: &Api<RawManifestWork>,
    name: &str,
    uid: &str,
    status: &ManifestWorkStatus,
) -> Result<Outcome, kube::Error> {
    let patch = json!([
        // Another work of the same name has nothing to do with it.
        {"op": "test", "path": "/metadata/uid", "value": uid},
        {"op": "add", "path": "/status", "value": status},
    ]);
    let patch: json_patch::Patch = match serde_json::from_value(patch) {
        Ok(patch) => patch,
        Err(error) => return Err(kube::Error::SerdeError(error)),
    };
    let patch = Patch::Json::<()>(patch);
    let params = PatchParams::default();
    match api.patch_status(name, &params, &patch).await {
        Ok(RawManifestWork { status, .. }) => {
            let stored = status.map_or(0, |status| digest(status.get()));
            Ok(Outcome::Written(stored))
        }
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Outcome::Gone),
        // Also what the hub refuses: rights, a webhook, a definition may change.
        Err(error) => Err(error),
    }
}
