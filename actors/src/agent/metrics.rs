//! The agent's metrics, each named and described here once.

use std::sync::Once;
use std::time::Duration;

use metrics::{
    Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};

const RECONCILES: &str = "muster_agent_reconciles_total";
const RECONCILE_DURATION: &str = "muster_agent_reconcile_duration_seconds";
const STATUS_PATCHES: &str = "muster_agent_status_patches_total";
const APPLY_WRITES: &str = "muster_agent_apply_writes_total";
const FEEDBACK: &str = "muster_agent_feedback_evaluations_total";
const WORKS: &str = "muster_agent_works";
const REVIEWS: &str = "muster_agent_access_reviews_total";
const EVICTING: &str = "muster_agent_evicting_works";
const WATCH_EVENTS: &str = "muster_agent_watched_objects_total";
const WATCH_MISSED: &str = "muster_watch_missed_total";
const FEEDBACK_LATENCY: &str = "muster_agent_feedback_latency_seconds";
const SPOKE_REACHABLE: &str = "muster_agent_spoke_reachable";

/// Describes the metrics to the recorder; later calls do nothing.
pub(super) fn describe() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        describe_counter!(RECONCILES, "Reconciles of works, by result.");
        describe_histogram!(
            RECONCILE_DURATION,
            Unit::Seconds,
            "Time from the start of a reconcile to its last write, without waiting for a worker."
        );
        describe_counter!(
            STATUS_PATCHES,
            "Patches of a work's status on the hub, by result. An unchanged status is not patched."
        );
        describe_counter!(
            APPLY_WRITES,
            "Manifests applied, by the kind of write it took; none where the object was as wanted."
        );
        describe_counter!(
            FEEDBACK,
            "Looks at an object for feedback values, by result."
        );
        describe_counter!(
            REVIEWS,
            "Questions to the cluster about what executors may do, by kind and answer. Remembered \
             answers do not count."
        );
        describe_gauge!(
            EVICTING,
            "Records of works that the hub does not have (any more), waiting for their eviction."
        );
        describe_counter!(
            WATCH_EVENTS,
            "States of watched objects that works were shown, by whether one that they report, or \
             that is not as they want it, had changed."
        );
        describe_counter!(
            WATCH_MISSED,
            "Changes of watched values that a poll has found and the watch has not shown. More \
             than none is a defect."
        );
        describe_histogram!(
            FEEDBACK_LATENCY,
            Unit::Seconds,
            "Time from a watch event to the status patch that reports it."
        );
        describe_gauge!(WORKS, "Works that the agent of a cluster handles.");
        describe_gauge!(
            SPOKE_REACHABLE,
            "0 while the API server of a cluster does not answer, else 1."
        );
    });
}

/// How a reconcile ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReconcileResult {
    /// All is as wanted.
    Ok,
    /// Something failed and is retried.
    Failed,
    /// A deletion waits for objects.
    Pending,
    /// The work is deleted for good.
    Deleted,
    /// The reconcile itself panicked.
    Panicked,
}

impl ReconcileResult {
    /// As a label.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::Pending => "pending",
            Self::Deleted => "deleted",
            Self::Panicked => "panicked",
        }
    }
}

pub(super) fn reconciled(result: ReconcileResult, took: Duration) {
    counter!(RECONCILES, "result" => result.as_str()).increment(1);
    histogram!(RECONCILE_DURATION).record(took);
}

/// How a status patch ended.
#[derive(Debug, Clone, Copy)]
pub(super) enum PatchResult {
    Written,
    Conflict,
    Failed,
}

pub(super) fn status_patched(result: PatchResult) {
    let result = match result {
        PatchResult::Written => "written",
        PatchResult::Conflict => "conflict",
        PatchResult::Failed => "failed",
    };
    counter!(STATUS_PATCHES, "result" => result).increment(1);
}

/// What it took to bring an object to the wanted state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Write {
    Create,
    Update,
    Delete,
    None,
}

pub(super) fn applied(write: Write) {
    let write = match write {
        Write::Create => "create",
        Write::Update => "update",
        Write::Delete => "delete",
        Write::None => "none",
    };
    counter!(APPLY_WRITES, "write" => write).increment(1);
}

pub(super) fn feedback_evaluated(failed: bool) {
    counter!(FEEDBACK, "result" => if failed { "failed" } else { "ok" }).increment(1);
}

/// What the state of a watched object means to a work.
#[derive(Debug, Clone, Copy)]
pub(super) enum Event {
    Changed,
    Irrelevant,
}

pub(super) fn watch_event(event: Event) {
    let event = match event {
        Event::Changed => "changed",
        Event::Irrelevant => "irrelevant",
    };
    counter!(WATCH_EVENTS, "result" => event).increment(1);
}

pub(super) fn watch_missed() {
    counter!(WATCH_MISSED).increment(1);
}

pub(super) fn feedback_latency(took: Duration) {
    histogram!(FEEDBACK_LATENCY).record(took);
}

/// A question about an executor.
#[derive(Debug, Clone, Copy)]
pub(super) enum Review {
    /// May it do this.
    Access,
    /// May it give these rights.
    Grant,
}

pub(super) fn reviewed(review: Review, allowed: bool) {
    let review = match review {
        Review::Access => "access",
        Review::Grant => "grant",
    };
    let answer = if allowed { "allowed" } else { "denied" };
    counter!(REVIEWS, "review" => review, "answer" => answer).increment(1);
}

// Cardinality of the label `cluster`: the clusters in the config of this process.

#[allow(clippy::cast_precision_loss, reason = "no agent has 2^52 works")]
pub(super) fn works(cluster: &str, count: usize) {
    gauge!(WORKS, "cluster" => cluster.to_owned()).set(count as f64);
}

pub(super) fn spoke_reachable(cluster: &str, reachable: bool) {
    gauge!(SPOKE_REACHABLE, "cluster" => cluster.to_owned()).set(f64::from(u8::from(reachable)));
}

#[allow(clippy::cast_precision_loss, reason = "no agent has 2^52 works")]
pub(super) fn evicting(cluster: &str, count: usize) {
    gauge!(EVICTING, "cluster" => cluster.to_owned()).set(count as f64);
}
