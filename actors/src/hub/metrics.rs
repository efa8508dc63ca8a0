//! The metrics of the hub, each declared here once.

use metrics::{counter, gauge};
use muster_core::replicaset::Standing;
use muster_metrics::{Label, Metric};

const RESULT: Label = Label::one_of(
    "result",
    &[
        ("ok", "the hub's API took it"),
        (
            "error",
            "it refused it or did not answer; it is tried again",
        ),
    ],
);

const SETS: Metric = Metric::gauge("muster_mwrs_sets", "ManifestWorkReplicaSets.").labels(&[
    Label::one_of(
        "phase",
        &[
            ("Empty", "no cluster is selected"),
            ("Ready", "rolled out, and every work available"),
            ("Progressing", "works are being written or are not yet available"),
            (
                "Paused",
                "not there, and nothing is on its way: somebody paused it, or a soak or a deadline is \
                 waited for",
            ),
            (
                "Stalled",
                "progressing, and no count of its status has changed for half an hour; looked for every \
                 ten minutes",
            ),
            ("Failed", "a work is degraded, or has not got there in its time"),
        ],
    ),
]);
const WORK_WRITES: Metric = Metric::counter(
    "muster_mwrs_work_writes_total",
    "Writes of ManifestWorks by replica sets.",
)
.labels(&[
    Label::one_of(
        "kind",
        &[
            ("create", "the cluster had no work of the set"),
            ("patch", "its work was not as the template wants it"),
            (
                "delete",
                "no placement selects the cluster any more, or the set goes",
            ),
        ],
    ),
    RESULT,
]);
const STATUS_PATCHES: Metric = Metric::counter(
    "muster_mwrs_status_patches_total",
    "Status patches of ManifestWorkReplicaSets. A status that has not changed is not patched.",
)
.labels(&[RESULT]);
const REVISION_WRITES: Metric = Metric::counter(
    "muster_mwrs_revision_writes_total",
    "Writes of revisions of replica sets.",
)
.labels(&[
    Label::one_of(
        "kind",
        &[
            (
                "create",
                "the set has a template that it did not have before",
            ),
            ("update", "it has one again, or another cause of its change"),
            ("delete", "there are more than its limit"),
        ],
    ),
    RESULT,
]);
const RECOUNT_DIFFERENCES: Metric = Metric::counter(
    "muster_mwrs_recount_differences_total",
    "Self-checks in which the running counters differed from a recount; any is a defect.",
);
const SWEEP_DIFFERENCES: Metric = Metric::counter(
    "muster_mwrs_sweep_differences_total",
    "Works that were not as their events had told, found by the look every ten minutes; any is a \
     defect.",
);
const FINISHED_DELETIONS: Metric = Metric::counter(
    "muster_finished_work_deletions_total",
    "Deletions of works that are finished for longer than their `ttlSecondsAfterFinished`.",
)
.labels(&[Label::one_of(
    "result",
    &[
        ("ok", "the work goes"),
        (
            "conflict",
            "it has changed since it was seen, and is looked at again",
        ),
        (
            "error",
            "the hub's API refused or did not answer; it is tried again",
        ),
    ],
)]);

const ABANDONED_WORKS: Metric = Metric::counter(
    "muster_abandoned_works_total",
    "Works that were let go without their agent, since their cluster was given up.",
);

/// What is recorded of the hub.
pub const METRICS: &[Metric] = &[
    SETS,
    WORK_WRITES,
    STATUS_PATCHES,
    REVISION_WRITES,
    RECOUNT_DIFFERENCES,
    SWEEP_DIFFERENCES,
    FINISHED_DELETIONS,
    ABANDONED_WORKS,
];

const fn result(ok: bool) -> &'static str {
    if ok { "ok" } else { "error" }
}

pub(super) fn set_is(standing: Standing) {
    gauge!(SETS.name, "phase" => standing.as_str()).increment(1.0);
}

pub(super) fn set_is_no_more(standing: Standing) {
    gauge!(SETS.name, "phase" => standing.as_str()).decrement(1.0);
}

pub(super) fn work_written(kind: &'static str, ok: bool) {
    counter!(WORK_WRITES.name, "kind" => kind, "result" => result(ok)).increment(1);
}

pub(super) fn status_patched(ok: bool) {
    counter!(STATUS_PATCHES.name, "result" => result(ok)).increment(1);
}

pub(super) fn revision_written(kind: &'static str, ok: bool) {
    counter!(REVISION_WRITES.name, "kind" => kind, "result" => result(ok)).increment(1);
}

pub(super) fn recount_differed() {
    counter!(RECOUNT_DIFFERENCES.name).increment(1);
}

pub(super) fn work_abandoned() {
    counter!(ABANDONED_WORKS.name).increment(1);
}

pub(super) fn work_differed() {
    counter!(SWEEP_DIFFERENCES.name).increment(1);
}

pub(super) fn finished_deleted(result: &'static str) {
    counter!(FINISHED_DELETIONS.name, "result" => result).increment(1);
}
