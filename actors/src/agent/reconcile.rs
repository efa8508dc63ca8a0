//! What one look at a work does: apply, clean up, report.
//!
//! ```text
//! finalizer ─► record ─► each manifest, in kind order ─► what left the spec ─► status
//!                          GET, write if needed,          removed, record       one patch,
//!                          feedback                       updated               if changed
//! ```
//!
//! Upstream does this in three controllers at two paces. Here one pass does all of it, so that
//! every poll repairs drift, one GET of an object serves both its manifest and its feedback, and
//! the status has one writer.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use muster_api::conditions as read;
use muster_api::constants::{
    MANIFEST_COMPLETE, WORK_APPLIED, WORK_AVAILABLE, WORK_COMPLETE, WORK_PROGRESSING,
};
use muster_api::work::{
    AppliedManifestResourceMeta, AppliedManifestWork, ConditionRule, ManifestCondition,
    ManifestResourceMeta, ManifestWorkSpec, ManifestWorkStatus,
};
use muster_cloudevents::work::MOST_CONTENT_BYTES;
use muster_core::apply::apply_order;
use muster_core::apply::server_side::IgnoreFields;
use muster_core::condition_rules::RulePlan;
use muster_core::executor::{Executor, ExecutorError};
use muster_core::feedback::{FeedbackLimits, FeedbackPlan, RefusedValues};
use muster_core::manifest::{ManifestObjects, ParsedManifest};
use muster_core::manifest_config::ManifestConfigs;
use muster_core::ownership::{Orphans, Owner, untracked};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use super::access::Access;
use super::applied_work::{self, Identity};
use super::apply::{ApplyError, Last};
use super::calls::ApiError;
use super::claims::Claims;
use super::deletion::{self, Progress};
use super::hub::Hub;
use super::manifest::{Object, RulesOfKind, Tracked, key_of};
use super::metrics::ReconcileResult;
use super::observer::Inbox;
use super::records::{KnownRecord, Records};
use super::spoke::Spoke;
use super::status::{self, ManifestReport};
use super::watched::Watched;
use super::work::Work;
use super::{AgentDeps, AgentSettings};
use crate::watch::Watches;

/// What the works of a cluster share.
#[derive(Debug)]
pub(super) struct Env {
    pub(super) cluster: String,
    pub(super) hub: Hub,
    pub(super) spoke: Spoke,
    pub(super) identity: Identity,
    pub(super) records: Records,
    pub(super) access: Access,
    /// Objects that works have and do not own yet.
    pub(super) claims: Claims,
    pub(super) watches: Arc<Watches>,
    current: watch::Sender<Current>,
    heard: watch::Sender<Heard>,
}

/// Whether what the hub has is heard of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heard {
    /// Its API tells all of it whenever it tells anything.
    Always,
    /// Works come over a bus, and no source is heard there.
    Not,
    /// Works come over a bus, and a source has been heard since then.
    Since(Timestamp),
}

/// What can change while the agent runs.
#[derive(Debug, Clone)]
struct Current {
    settings: Arc<AgentSettings>,
    /// As many permits as there may be reconciles at a time.
    workers: Arc<Semaphore>,
}

impl Current {
    fn new(settings: AgentSettings) -> Self {
        Self {
            workers: Arc::new(Semaphore::new(settings.workers.max(1))),
            settings: Arc::new(settings),
        }
    }
}

impl Env {
    pub(super) fn new(deps: &AgentDeps) -> Self {
        let hub_hash = muster_core::applied_work::hub_hash(&deps.hub_id);
        Self {
            cluster: deps.cluster.clone(),
            hub: Hub::new(deps.hub.clone(), &deps.cluster),
            spoke: Spoke::new(&deps.cluster, deps.spoke.clone(), deps.health.clone()),
            identity: Identity {
                agent_id: deps.agent_id.clone().unwrap_or_else(|| hub_hash.clone()),
                hub_hash,
            },
            records: Records::default(),
            access: Access::default(),
            claims: Claims::default(),
            watches: Watches::new(),
            current: watch::Sender::new(Current::new(deps.settings.clone())),
            heard: watch::Sender::new(match deps.hub_link {
                None => Heard::Always,
                Some(_) => Heard::Not,
            }),
        }
    }

    pub(super) fn heard(&self) -> Heard {
        *self.heard.borrow()
    }

    pub(super) fn set_heard(&self, heard: Heard) {
        self.heard.send_replace(heard);
    }

    pub(super) fn settings(&self) -> Arc<AgentSettings> {
        Arc::clone(&self.current.borrow().settings)
    }

    pub(super) fn workers(&self) -> Arc<Semaphore> {
        Arc::clone(&self.current.borrow().workers)
    }

    /// Passes under way finish under the old settings.
    pub(super) fn change_settings(&self, settings: AgentSettings) {
        self.current.send_replace(Current::new(settings));
    }
}

/// What a manifest reports of its object, compiled.
#[derive(Debug, Clone, Default)]
pub(super) struct Plans {
    pub(super) feedback: Arc<FeedbackPlan>,
    pub(super) rules: RulePlan,
}

/// What a work remembers from pass to pass. All of it can be found out again.
#[derive(Debug, Default)]
pub(super) struct Memory {
    uid: Arc<str>,
    generation: i64,
    /// By object.
    pub(super) applied: HashMap<Box<str>, Last>,
    /// The record as it was left.
    pub(super) record: Option<KnownRecord>,
    /// Compiled rules by ordinal; manifests without rules have none.
    pub(super) plans: HashMap<usize, Plans>,
    /// Compiled fields to ignore by ordinal.
    pub(super) ignore_fields: HashMap<usize, Arc<IgnoreFields>>,
    /// Values that the hub does not take.
    pub(super) refused: RefusedValues,
    /// What is watched, by object.
    pub(super) watched: HashMap<Arc<str>, Watched>,
    /// Nothing is, since the work is ready (`watch.stop_when_ready`).
    pub(super) resting: bool,
    /// Since when nothing about the work has changed.
    pub(super) quiet_since: Option<Instant>,
    /// The generation that was looked at to the end.
    pub(super) looked_at: Option<i64>,
}

impl Memory {
    /// What still holds for this state of the work.
    fn for_work(mut self, work: &Work) -> Self {
        if self.uid != work.uid {
            return Self {
                uid: Arc::clone(&work.uid),
                generation: work.generation,
                ..Self::default()
            };
        }
        if self.generation != work.generation {
            self.generation = work.generation;
            self.plans.clear();
            self.ignore_fields.clear();
            self.refused = RefusedValues::default();
            self.resting = false;
            self.quiet_since = None;
        }
        self
    }

    /// Whether all of this state of the work has been looked at.
    pub(super) fn is_of(&self, work: &Work) -> bool {
        self.uid == work.uid && self.looked_at == Some(work.generation)
    }
}

/// Reasons to look again before the next poll.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "independent reasons, each with its own pace"
)]
pub(super) struct Wishes {
    /// A request failed.
    pub(super) requests: bool,
    /// A kind is not there yet.
    pub(super) types: bool,
    /// Objects are on their way out.
    pub(super) pending: bool,
    /// The executor lacks a permission.
    pub(super) denied: bool,
    /// Not before this, since a server asks for it.
    pub(super) after: Option<Duration>,
}

impl Wishes {
    /// Wants a failed request tried again.
    pub(super) fn retry(&mut self, error: &ApiError) {
        self.requests = true;
        self.after = self.after.max(error.retry_after());
    }
}

/// How a pass ended.
#[derive(Debug)]
pub(super) struct Outcome {
    /// The work after the pass; `None` if the hub has it no more.
    pub(super) work: Option<Work>,
    pub(super) memory: Memory,
    pub(super) wishes: Wishes,
    pub(super) result: ReconcileResult,
    /// What is in the way, for people.
    pub(super) error: Option<String>,
    /// Whether the work is applied for an executor.
    pub(super) has_executor: bool,
    /// Whether the work is to be looked at again right away.
    pub(super) again: bool,
}

impl Outcome {
    pub(super) fn new(work: Option<Work>, memory: Memory, result: ReconcileResult) -> Self {
        Self {
            work,
            memory,
            wishes: Wishes::default(),
            result,
            error: None,
            has_executor: false,
            again: false,
        }
    }

    /// Adds a failed request to `side` (hub or spoke).
    pub(super) fn failed(mut self, error: &ApiError, side: &str) -> Self {
        self.result = ReconcileResult::Failed;
        self.wishes.retry(error);
        self.error.get_or_insert_with(|| format!("{side}: {error}"));
        self
    }
}

/// Takes one look at a work. What watches see from then on goes to `inbox`.
pub(super) async fn reconcile(
    env: &Env,
    work: Work,
    memory: Memory,
    inbox: &Arc<Inbox>,
) -> Outcome {
    let mut memory = memory.for_work(&work);
    if work.deleting {
        env.claims.settle(&work.name, Vec::new());
        return deletion::run(env, work, memory).await;
    }
    let work = if work.has_finalizer() {
        work
    } else {
        match env.hub.add_finalizer(&work).await {
            Ok(work) => work,
            Err(error) if error.is_not_found() => {
                return Outcome::new(None, memory, ReconcileResult::Ok);
            }
            Err(error) => {
                return Outcome::new(Some(work), memory, ReconcileResult::Failed)
                    .failed(&error, "hub");
            }
        }
    };
    match work.spec() {
        Ok(spec) => look(env, work, &spec, memory, inbox).await,
        Err(error) => {
            memory.watched.clear();
            env.claims.settle(&work.name, Vec::new());
            unreadable(env, work, memory, &error.to_string()).await
        }
    }
}

/// Says that the spec cannot be read. Only a new spec helps, so there is no retry of its own.
async fn unreadable(env: &Env, work: Work, memory: Memory, error: &str) -> Outcome {
    let now = Timestamp::now();
    let compose = |before: &_| status::unreadable(before, error, work.generation, now);
    let written = env.hub.patch_status(&work, compose).await;
    let mut outcome = Outcome::new(Some(work), memory, ReconcileResult::Failed);
    outcome.error = Some(error.to_owned());
    report(outcome, written)
}

/// Adds what came of the status patch.
fn report(mut outcome: Outcome, written: Result<Option<Work>, ApiError>) -> Outcome {
    match written {
        Ok(work) => {
            outcome.work = work;
            outcome
        }
        Err(error) => outcome.failed(&error, "hub"),
    }
}

/// The settings that a work is looked at with: where its source wants the whole status of its object,
/// that is reported as JSON whatever the agent does elsewhere.
fn settings_for(work: &Work, settings: Arc<AgentSettings>) -> Arc<AgentSettings> {
    if !work.carries_content {
        return settings;
    }
    let feedback = FeedbackLimits {
        raw_json: true,
        max_json_raw_bytes: settings.feedback.max_json_raw_bytes.max(MOST_CONTENT_BYTES),
    };
    Arc::new(AgentSettings {
        feedback,
        ..(*settings).clone()
    })
}

/// Applies the work and reports.
async fn look(
    env: &Env,
    work: Work,
    spec: &ManifestWorkSpec,
    memory: Memory,
    inbox: &Arc<Inbox>,
) -> Outcome {
    let name = applied_work::name_of(&env.identity, &work.name);
    let known = memory.record.as_ref();
    let known = known.filter(|known| known.holds(&env.records, &work.labels));
    let record = if let Some(known) = known {
        Ok(Record::Known(known.clone()))
    } else {
        match applied_work::ensure(&env.spoke, &env.identity, &work).await {
            Ok(record) if record.metadata.deletion_timestamp.is_some() => {
                return remove_and_begin_again(env, work, memory, &record).await;
            }
            Ok(record) => Ok(Record::Read(Box::new(record))),
            Err(source) => Err(ApplyError::Record { name, source }),
        }
    };
    let before = work.status();
    let mut pass = Pass {
        env,
        work: &work,
        spec,
        before: &before,
        settings: settings_for(&work, env.settings()),
        memory,
        wishes: Wishes::default(),
        complete: read::is_true(&before.conditions, WORK_COMPLETE)
            && spec
                .manifest_configs
                .iter()
                .any(|config| completes(&config.condition_rules)),
        executor: spec.executor.as_ref().map(Executor::of),
        lost: None,
        gave_up: false,
        objects: HashMap::new(),
        named: ManifestObjects::default(),
        inbox,
        compiled: HashMap::new(),
        configs: ManifestConfigs::new(&spec.manifest_configs),
        orphans: Orphans::of(spec.delete_option.as_ref()),
        known: KnownManifests::of(&before.resource_status.manifests),
    };
    let owner = record.as_ref().map(Record::owner);
    let (reports, tracked) = pass.manifests(owner).await;
    env.claims.settle(&work.name, unsettled(&reports));
    let mut error = None;
    if let Ok(record) = record {
        let left = pass.clean_up(record, tracked).await;
        pass.memory.record = left.unwrap_or_else(|failed| {
            pass.wishes.retry(&failed);
            error = Some(format!("failed to record the applied objects: {failed}"));
            None
        });
    }
    let Pass {
        mut memory, wishes, ..
    } = pass;
    memory.looked_at = Some(work.generation);

    let now = Timestamp::now();
    let generation = work.generation;
    let compose = |before: &_| status::compose(before, &reports, generation, now);
    let refused = &mut memory.refused;
    let written = env.hub.patch_feedback(&work, refused, compose).await;

    let failed = reports
        .iter()
        .find_map(|report| report.applied.as_ref().err());
    let error = error.or_else(|| failed.cloned());
    let result = match (&error, wishes) {
        (Some(_), _) => ReconcileResult::Failed,
        (None, wishes) if wishes == Wishes::default() => ReconcileResult::Ok,
        (None, _) => ReconcileResult::Pending,
    };
    let mut outcome = Outcome::new(Some(work), memory, result);
    outcome.wishes = wishes;
    outcome.error = error;
    outcome.has_executor = spec.executor.is_some();
    let mut outcome = report(outcome, written);
    let settings = env.settings();
    if settings.stop_when_ready {
        rest(&mut outcome, &before, settings.poll_interval);
    } else {
        outcome.again |= std::mem::take(&mut outcome.memory.resting);
    }
    outcome
}

/// The objects that could not be applied, by any of the manifests.
fn unsettled(reports: &[ManifestReport]) -> Vec<ManifestResourceMeta> {
    let (applied, failed): (Vec<_>, Vec<_>) =
        reports.iter().partition(|report| report.applied.is_ok());
    let applied: HashSet<String> = applied.iter().map(|report| key_of(&report.meta)).collect();
    failed
        .into_iter()
        .map(|report| &report.meta)
        .filter(|meta| !applied.contains(&key_of(meta)))
        .cloned()
        .collect()
}

/// Ends the watches of a work that is ready and has been quiet for as long as `quiet`, and takes
/// them back when it is not, as when a poll has found other values.
fn rest(outcome: &mut Outcome, before: &ManifestWorkStatus, quiet: Duration) {
    let Some(work) = &outcome.work else { return };
    let status = work.status();
    let ready = read::is_true_for(&status.conditions, WORK_AVAILABLE, work.generation)
        && !read::is_true(&status.conditions, WORK_PROGRESSING);
    let memory = &mut outcome.memory;
    if !ready || status.resource_status != before.resource_status {
        memory.quiet_since = None;
    }
    let since = *memory.quiet_since.get_or_insert_with(Instant::now);
    let rested = std::mem::replace(&mut memory.resting, ready && since.elapsed() >= quiet);
    if memory.resting {
        memory.watched.clear();
    } else {
        outcome.again |= rested;
    }
}

/// Somebody deletes the record of a work that is still wanted: its objects go, as for any
/// deletion of a record, and the next pass begins anew.
async fn remove_and_begin_again(
    env: &Env,
    work: Work,
    memory: Memory,
    record: &AppliedManifestWork,
) -> Outcome {
    let progress = deletion::remove_record(env, record).await;
    let mut outcome = Outcome::new(Some(work), memory, ReconcileResult::Pending);
    outcome.memory.applied.clear();
    outcome.memory.record = None;
    outcome.wishes.pending = true;
    match progress {
        Ok(Progress::Gone) => outcome,
        Ok(Progress::Waits { what, error: None }) => {
            outcome.error = Some(what);
            outcome
        }
        Ok(Progress::Waits {
            error: Some(error), ..
        })
        | Err(error) => outcome.failed(&error, "spoke"),
    }
}

/// The record of a work, read in this pass or known to be as it was left.
enum Record {
    Read(Box<AppliedManifestWork>),
    Known(KnownRecord),
}

impl Record {
    fn owner(&self) -> Owner {
        match self {
            Self::Read(record) => applied_work::owner(record),
            Self::Known(known) => known.owner.clone(),
        }
    }
}

/// One pass over the manifests of a work.
pub(super) struct Pass<'a> {
    pub(super) env: &'a Env,
    pub(super) work: &'a Work,
    pub(super) spec: &'a ManifestWorkSpec,
    /// The status that the pass began with.
    pub(super) before: &'a ManifestWorkStatus,
    pub(super) settings: Arc<AgentSettings>,
    pub(super) memory: Memory,
    pub(super) wishes: Wishes,
    /// The work is done for good: nothing is written any more.
    pub(super) complete: bool,
    /// In whose name the work is applied, if not in the agent's.
    pub(super) executor: Option<Result<Executor, ExecutorError>>,
    /// Why the cluster is not asked any more in this pass.
    pub(super) lost: Option<ApiError>,
    /// Some manifests were not tried, so it is not known which objects they are for.
    pub(super) gave_up: bool,
    /// The objects met so far, with the position of the manifest of each.
    pub(super) objects: HashMap<Box<str>, usize>,
    /// The same by kind, for kinds that the cluster does not have.
    pub(super) named: ManifestObjects,
    pub(super) inbox: &'a Arc<Inbox>,
    /// What was compiled in this pass. Manifests with the same options share it: a work may have
    /// thousands of one kind.
    pub(super) compiled: HashMap<RulesOfKind, Plans>,
    /// The options of the work.
    pub(super) configs: ManifestConfigs<'a>,
    /// What stays when the work goes.
    pub(super) orphans: Orphans<'a>,
    /// What the status says of the manifests.
    pub(super) known: KnownManifests<'a>,
}

impl Pass<'_> {
    /// Applies the manifests in the order of their kinds; reports in the order of the spec. One
    /// that fails does not stop the others.
    async fn manifests(
        &mut self,
        owner: Result<Owner, &ApplyError>,
    ) -> (Vec<ManifestReport>, Vec<Tracked>) {
        let parsed: Vec<_> = self
            .spec
            .workload
            .manifests
            .iter()
            .enumerate()
            .map(|(ordinal, manifest)| ParsedManifest::parse(ordinal, manifest.as_json()))
            .collect();
        let order = apply_order(&parsed);
        let mut parsed: Vec<_> = parsed.into_iter().map(Some).collect();
        let mut reports: Vec<_> = parsed.iter().map(|_| None).collect();
        let mut tracked = Vec::with_capacity(parsed.len());
        for ordinal in order {
            let Some(manifest) = parsed[ordinal].take() else {
                continue;
            };
            let owner = owner.as_ref().map_err(|error| *error);
            let object: Object = self.manifest(ordinal, manifest, owner).await;
            tracked.push(object.tracked);
            reports[ordinal] = Some(object.report);
        }
        // Of manifests that are gone nothing needs to be remembered.
        let objects = &self.objects;
        self.memory
            .applied
            .retain(|object, _| objects.contains_key(object));
        if !self.gave_up {
            self.memory
                .watched
                .retain(|object, _| objects.contains_key(&**object));
        }
        (reports.into_iter().flatten().collect(), tracked)
    }

    /// Removes what left the spec, and brings the record up to date. Returns the record as it is
    /// left; `None` if that is not known.
    async fn clean_up(
        &mut self,
        record: Record,
        tracked: Vec<Tracked>,
    ) -> Result<Option<KnownRecord>, ApiError> {
        // While one manifest cannot be resolved, it may be for any of the recorded objects.
        let unresolved = tracked
            .iter()
            .any(|tracked| matches!(tracked, Tracked::Unresolved));
        let mut resources: Vec<AppliedManifestResourceMeta> = tracked
            .into_iter()
            .filter_map(|tracked| match tracked {
                Tracked::Object(meta) => Some(meta),
                Tracked::Absent | Tracked::Unresolved => None,
            })
            .collect();
        resources.sort();
        let spoke = &self.env.spoke;
        let record = match record {
            Record::Known(known) if known.lists(&resources) => return Ok(Some(known)),
            Record::Known(known) => {
                let read = applied_work::get(spoke, &known.owner.name).await?;
                let Some(record) = read else {
                    self.wishes.pending = true;
                    return Ok(None);
                };
                record
            }
            Record::Read(record) => *record,
        };
        let left = untracked(applied_work::recorded(&record), &resources);
        // A work without Applied was never applied in this life: after the hub was restored from
        // a backup, or replaced under the same name, its spec may still be on its way to what
        // the record shows.
        let first_time = read::find(&self.before.conditions, WORK_APPLIED).is_none();
        if unresolved || first_time || self.complete {
            self.wishes.pending |= first_time && !unresolved && !left.is_empty();
            resources.extend(left);
        } else if !left.is_empty() {
            let owner: Owner = applied_work::owner(&record);
            let removed = applied_work::remove(spoke, &owner, left).await;
            if let Some(error) = &removed.error {
                self.wishes.retry(error);
            }
            self.wishes.pending |= !removed.pending.is_empty();
            resources.extend(removed.pending);
        }
        let record = applied_work::record_resources(spoke, record, resources).await?;
        Ok(Some(KnownRecord::new(&record, &self.work.labels)))
    }

    /// Whether the object of this entry is done for good and must not be written again.
    pub(super) fn is_complete(
        &self,
        meta: &muster_api::work::ManifestResourceMeta,
        rules: &[ConditionRule],
    ) -> bool {
        self.complete || completes(rules) && self.known.is_complete(meta)
    }
}

/// What the status says of manifests, found by what they are for: a work may have thousands.
pub(super) struct KnownManifests<'a> {
    exact: HashMap<&'a ManifestResourceMeta, &'a ManifestCondition>,
    at: HashMap<i32, &'a ManifestCondition>,
    /// Group, kind, namespace and name of objects that are complete.
    complete: HashSet<[&'a str; 4]>,
}

impl<'a> KnownManifests<'a> {
    fn of(manifests: &'a [ManifestCondition]) -> Self {
        let mut all = Self {
            exact: HashMap::with_capacity(manifests.len()),
            at: HashMap::with_capacity(manifests.len()),
            complete: HashSet::new(),
        };
        for known in manifests {
            let meta = &known.resource_meta;
            all.exact.entry(meta).or_insert(known);
            all.at.entry(meta.ordinal).or_insert(known);
            if read::is_true(&known.conditions, MANIFEST_COMPLETE) {
                all.complete.insert(object_of(meta));
            }
        }
        all
    }

    /// The entry of a manifest.
    pub(super) fn get(&self, meta: &ManifestResourceMeta) -> Option<&'a ManifestCondition> {
        self.exact.get(meta).copied()
    }

    /// The entry at a position.
    pub(super) fn at(&self, ordinal: i32) -> Option<&'a ManifestResourceMeta> {
        self.at.get(&ordinal).map(|known| &known.resource_meta)
    }

    fn is_complete(&self, meta: &ManifestResourceMeta) -> bool {
        self.complete.contains(&object_of(meta))
    }
}

fn object_of(meta: &ManifestResourceMeta) -> [&str; 4] {
    [&meta.group, &meta.kind, &meta.namespace, &meta.name].map(String::as_str)
}

/// Whether one of the rules says when an object is complete.
///
/// Differs from upstream: `Complete` without a rule for it is a leftover. Upstream goes on ignoring
/// such a work until its spec changes once more.
pub(super) fn completes(rules: &[ConditionRule]) -> bool {
    rules.iter().any(|rule| rule.condition == MANIFEST_COMPLETE)
}
