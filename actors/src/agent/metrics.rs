//! The agent's metrics, each declared here once.

use std::time::Duration;

use metrics::{counter, gauge, histogram};
use muster_metrics::{Label, Metric};

const WORKS: Metric = Metric::gauge(
    "muster_agent_works",
    "Works that the agent of a cluster handles.",
)
.labels(&[Label::CLUSTER]);
const SPOKE_REACHABLE: Metric = Metric::gauge(
    "muster_agent_spoke_reachable",
    "0 while the API server of a cluster does not answer, else 1.",
)
.labels(&[Label::CLUSTER]);
const EVICTING: Metric = Metric::gauge(
    "muster_agent_evicting_works",
    "Records of works that the hub does not have (any more), waiting for their eviction.",
)
.labels(&[Label::CLUSTER]);
const RECONCILES: Metric = Metric::counter("muster_agent_reconciles_total", "Passes over works.")
    .labels(&[Label::one_of(
        "result",
        &[
            ("ok", "all is as wanted"),
            ("failed", "something failed, and is tried again"),
            ("pending", "a deletion waits for objects to go"),
            ("deleted", "the work is gone for good"),
            ("panicked", "the pass ended by a defect, and is taken again"),
        ],
    )]);
const RECONCILE_DURATION: Metric = Metric::durations(
    "muster_agent_reconcile_duration_seconds",
    "Time from the start of a pass to its last write, without waiting for a worker.",
);
const APPLY_WRITES: Metric = Metric::counter(
    "muster_agent_apply_writes_total",
    "Manifests applied and objects removed, by the kind of write that it took.",
)
.labels(&[Label::one_of(
    "write",
    &[
        ("create", "the object was not there"),
        ("update", "it was not as wanted"),
        ("delete", "it is not wanted any more"),
        ("none", "it was as wanted"),
    ],
)]);
const STATUS_PATCHES: Metric = Metric::counter(
    "muster_agent_status_patches_total",
    "Patches of a work's status on the hub. A status that has not changed is not patched.",
)
.labels(&[Label::one_of(
    "result",
    &[
        ("written", "the hub has it"),
        (
            "conflict",
            "the work had changed; it is tried again at once",
        ),
        (
            "failed",
            "the hub refused it or did not answer; it is tried again",
        ),
    ],
)]);
const FEEDBACK: Metric = Metric::counter(
    "muster_agent_feedback_evaluations_total",
    "Looks at an object for feedback values.",
)
.labels(&[Label::one_of(
    "result",
    &[
        ("ok", "all values were read"),
        ("failed", "one could not be read; the work says which"),
    ],
)]);
const FEEDBACK_LATENCY: Metric = Metric::durations(
    "muster_agent_feedback_latency_seconds",
    "Time from a watch event to the status patch that reports it.",
);
const WATCH_EVENTS: Metric = Metric::counter(
    "muster_agent_watched_objects_total",
    "States of watched objects that works were shown.",
)
.labels(&[Label::one_of(
    "result",
    &[
        (
            "changed",
            "the work reports something else now, or the object is not as it wants it",
        ),
        ("irrelevant", "nothing had changed that concerns the work"),
    ],
)]);
const WATCH_MISSED: Metric = Metric::counter(
    "muster_watch_missed_total",
    "Changes of watched values that a poll has found and the watch has not shown. Any is a defect, \
     of muster or of the network.",
);
const REVIEWS: Metric = Metric::counter(
    "muster_agent_access_reviews_total",
    "Questions to the cluster about what executors may do. Remembered answers do not count.",
)
.labels(&[
    Label::one_of(
        "review",
        &[
            ("access", "may it do this"),
            ("grant", "may it give these rights"),
        ],
    ),
    Label::one_of("answer", &[("allowed", "yes"), ("denied", "no")]),
]);

/// What is recorded of agents.
pub const METRICS: &[Metric] = &[
    WORKS,
    SPOKE_REACHABLE,
    EVICTING,
    RECONCILES,
    RECONCILE_DURATION,
    APPLY_WRITES,
    STATUS_PATCHES,
    FEEDBACK,
    FEEDBACK_LATENCY,
    WATCH_EVENTS,
    WATCH_MISSED,
    REVIEWS,
];

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
    counter!(RECONCILES.name, "result" => result.as_str()).increment(1);
    histogram!(RECONCILE_DURATION.name).record(took);
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
    counter!(STATUS_PATCHES.name, "result" => result).increment(1);
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
    counter!(APPLY_WRITES.name, "write" => write).increment(1);
}

pub(super) fn feedback_evaluated(failed: bool) {
    counter!(FEEDBACK.name, "result" => if failed { "failed" } else { "ok" }).increment(1);
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
    counter!(WATCH_EVENTS.name, "result" => event).increment(1);
}

pub(super) fn watch_missed() {
    counter!(WATCH_MISSED.name).increment(1);
}

pub(super) fn feedback_latency(took: Duration) {
    histogram!(FEEDBACK_LATENCY.name).record(took);
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
    counter!(REVIEWS.name, "review" => review, "answer" => answer).increment(1);
}

#[allow(clippy::cast_precision_loss, reason = "no agent has 2^52 works")]
pub(super) fn works(cluster: &str, count: usize) {
    gauge!(WORKS.name, "cluster" => cluster.to_owned()).set(count as f64);
}

pub(super) fn spoke_reachable(cluster: &str, reachable: bool) {
    gauge!(SPOKE_REACHABLE.name, "cluster" => cluster.to_owned())
        .set(f64::from(u8::from(reachable)));
}

#[allow(clippy::cast_precision_loss, reason = "no agent has 2^52 works")]
pub(super) fn evicting(cluster: &str, count: usize) {
    gauge!(EVICTING.name, "cluster" => cluster.to_owned()).set(count as f64);
}
