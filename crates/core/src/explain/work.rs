//! A work and the objects of its manifests.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use muster_api::conditions::{self, FALSE, TRUE};
use muster_api::constants as names;
use muster_api::work::{ManifestCondition, ManifestWorkStatus, RawManifestWork};

use super::node::{Node, State, Verdict};
use super::reasons;
use crate::apply::raw_spec_hash;
use crate::condition_rules::CONDITION_RULES_REFUSED;
use crate::replicaset::{Trouble, TroubleKind};

/// A work as far as it matters here.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WorkSeen {
    /// Its metadata, without the managed fields.
    pub metadata: ObjectMeta,
    /// Canonical hash of its spec.
    pub spec_hash: [u8; 32],
    /// Its status.
    pub status: ManifestWorkStatus,
    /// Why the status does not read.
    pub unreadable: Option<String>,
}

impl WorkSeen {
    /// Reads a work; its manifests are not kept.
    pub fn read(mut work: RawManifestWork) -> Self {
        work.metadata.managed_fields = None;
        let status = work.status.as_deref();
        let status = status
            .map(|raw| serde_json::from_str(raw.get()))
            .transpose();
        let unreadable = status.as_ref().err().map(ToString::to_string);
        Self {
            metadata: work.metadata,
            spec_hash: raw_spec_hash(work.spec.as_deref()),
            status: status.ok().flatten().unwrap_or_default(),
            unreadable,
        }
    }

    /// The cluster whose work it is.
    pub fn cluster(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// A label; empty if it has none of that name.
    pub fn label(&self, name: &str) -> &str {
        let labels = self.metadata.labels.as_ref();
        let value = labels.and_then(|labels| labels.get(name));
        value.map(String::as_str).unwrap_or_default()
    }
}

/// When a work was given its template, as far as the hub has noted it.
pub(super) fn started(metadata: &ObjectMeta) -> Option<Timestamp> {
    let annotations = metadata.annotations.as_ref()?;
    let started = annotations.get(names::ROLLOUT_STARTED_ANNOTATION)?;
    started.parse().ok()
}

/// The condition that says what is wrong with a work of this generation, the worst first.
fn wrong(all: &[Condition], generation: i64) -> Option<(TroubleKind, &Condition)> {
    let says = |type_: &str, status: &str| {
        let found = conditions::find(all, type_)?;
        let of_now = found.observed_generation == Some(generation);
        (of_now && found.status == status).then_some(found)
    };
    if let Some(applied) = says(names::WORK_APPLIED, FALSE) {
        return Some((TroubleKind::Failed, applied));
    }
    says(names::WORK_APPLIED, TRUE)?;
    let degraded = says(names::WORK_DEGRADED, TRUE).map(|found| (TroubleKind::Degraded, found));
    degraded.or_else(|| {
        let available = says(names::WORK_AVAILABLE, FALSE)?;
        Some((TroubleKind::NotAvailable, available))
    })
}

/// What is wrong with a work of this generation, if anything is, with the words that
/// [`work_verdict`] has for it.
pub fn trouble(all: &[Condition], generation: i64) -> Option<Trouble> {
    let (kind, condition) = wrong(all, generation)?;
    let verdict = Verdict::of(State::Failed, condition);
    Some(Trouble::new(kind, &verdict.reason, &verdict.message))
}

/// What the conditions of a work say, read as rollouts read them
/// ([`cluster_state`](crate::rollout::cluster_state)): conditions of another generation count for
/// nothing.
pub fn work_verdict(metadata: &ObjectMeta, all: &[Condition]) -> Verdict {
    let generation = metadata.generation.unwrap_or_default();
    let created = metadata.creation_timestamp.as_ref().map(|time| time.0);
    if let Some(since) = &metadata.deletion_timestamp {
        let message = match conditions::find(all, names::WORK_DELETING) {
            Some(condition) => condition.message.clone(),
            None => "it is being deleted, and its agent has not begun to clean up".to_owned(),
        };
        return Verdict::new(State::Waiting, reasons::DELETING, message).since(since.0);
    }
    let find = |type_: &str| {
        let found = conditions::find(all, type_);
        found.filter(|found| found.observed_generation == Some(generation))
    };
    let Some(applied) = find(names::WORK_APPLIED) else {
        let seen = conditions::find(all, names::WORK_APPLIED);
        let message = match seen.map(|seen| seen.observed_generation.unwrap_or_default()) {
            None => "no agent has looked at it".to_owned(),
            Some(seen) => {
                format!("its agent has looked at generation {seen} only, not at {generation}")
            }
        };
        let since = started(metadata).or(created.filter(|_| seen.is_none()));
        return Verdict::new(State::Waiting, reasons::NOT_SEEN, message).since(since);
    };
    if let Some((_, condition)) = wrong(all, generation) {
        return Verdict::of(State::Failed, condition);
    }
    if applied.status != TRUE {
        return Verdict::of(State::Unknown, applied);
    }
    let Some(available) = find(names::WORK_AVAILABLE) else {
        let message = "it is applied, and its agent has not looked at the objects";
        return Verdict::new(State::Waiting, reasons::NOT_SEEN, message)
            .since(applied.last_transition_time.0);
    };
    if available.status != TRUE {
        return Verdict::of(State::Unknown, available);
    }
    match find(names::WORK_PROGRESSING) {
        Some(progressing) if progressing.status != FALSE => {
            Verdict::of(State::Waiting, progressing)
        }
        _ => Verdict::default(),
    }
}

/// What is said of the object of a manifest.
fn manifest_verdict(all: &[Condition]) -> Verdict {
    let find = |type_: &str| conditions::find(all, type_);
    let with = |type_: &str, status: &str| find(type_).filter(|found| found.status == status);
    if let Some(failed) = with(names::MANIFEST_APPLIED, FALSE)
        .or_else(|| with(names::MANIFEST_DEGRADED, TRUE))
        .or_else(|| with(names::MANIFEST_AVAILABLE, FALSE))
    {
        return Verdict::of(State::Failed, failed);
    }
    if find(names::MANIFEST_APPLIED).is_none() {
        let message = "its agent has not tried to apply it";
        return Verdict::new(State::Waiting, reasons::NOT_SEEN, message);
    }
    match (
        find(names::MANIFEST_AVAILABLE),
        find(names::MANIFEST_PROGRESSING),
    ) {
        (Some(available), _) if available.status != TRUE => Verdict::of(State::Unknown, available),
        (_, Some(progressing)) if progressing.status != FALSE => {
            Verdict::of(State::Waiting, progressing)
        }
        _ => Verdict::default(),
    }
}

/// The object of a manifest.
fn manifest_node(manifest: &ManifestCondition) -> Node {
    let meta = &manifest.resource_meta;
    // A manifest that does not read has no kind or name.
    let node = if meta.kind.is_empty() || meta.name.is_empty() {
        Node::new("Manifest", "", meta.ordinal.to_string())
    } else {
        Node::new(&meta.kind, &meta.namespace, &meta.name)
    };
    let mut node = node.with(manifest_verdict(&manifest.conditions));
    let warns = |condition: &&Condition| {
        let unsynced =
            condition.type_ == names::STATUS_FEEDBACK_SYNCED && condition.status == FALSE;
        unsynced
            || condition.type_ == CONDITION_RULES_REFUSED
            || [
                names::CONDITION_RULE_INVALID,
                names::CONDITION_RULE_EXPRESSION_ERROR,
                names::CONDITION_RULE_INTERNAL_ERROR,
            ]
            .contains(&condition.reason.as_str())
    };
    let warnings = manifest.conditions.iter().filter(warns);
    node.warnings = warnings
        .map(|condition| format!("{}: {}", condition.type_, condition.message))
        .collect();
    node
}

/// Explains a work and what it puts on its cluster.
pub(super) fn explain_work(work: &WorkSeen) -> Node {
    let name = work.metadata.name.clone().unwrap_or_default();
    let node = Node::new("ManifestWork", work.cluster(), name);
    if let Some(error) = &work.unreadable {
        let message = format!("its status does not read: {error}");
        return node.with(Verdict::new(State::Unknown, reasons::NOT_READ, message));
    }
    let verdict = work_verdict(&work.metadata, &work.status.conditions);
    let manifests = &work.status.resource_status.manifests;
    let mut children: Vec<Node> = manifests.iter().map(manifest_node).collect();
    // What was said of another generation, or of what is being deleted, explains nothing.
    if [reasons::NOT_SEEN, reasons::DELETING].contains(&verdict.reason.as_str()) {
        children.clear();
    }
    node.with(verdict).over(children)
}
