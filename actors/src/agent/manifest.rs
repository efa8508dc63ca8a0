//! What a pass does with one manifest.

use std::ptr;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use muster_api::conditions as read;
use muster_api::constants::MANIFEST_APPLIED;
use muster_api::work::{AppliedManifestResourceMeta, FeedbackScrapeType, ManifestResourceMeta};
use muster_core::apply::server_side;
use muster_core::apply::{Desired, History};
use muster_core::availability::is_identified;
use muster_core::conditions::ApplyFailure;
use muster_core::executor::{self, Denial, Verb, could_escalate, verbs_to_apply};
use muster_core::feedback::{Feedback, FeedbackPlan};
use muster_core::manifest::{DuplicateManifest, Gvk, ManifestError, ParsedManifest};
use muster_core::manifest_config::EffectiveConfig;
use muster_core::ownership::{ObjectId, Owner, OwnerChange};
use muster_watchdog::working_on;
use serde_json::Value;

use super::access::Questions;
use super::apply::{ApplyError, Completion, Last, Strategy, Wanted, apply, apply_on_server};
use super::calls::{ApiError, Lookup};
use super::evaluation::{compile_ignore_fields, compile_rules, derive_conditions};
use super::metrics;
use super::reconcile::{Pass, Plans, completes};
use super::rest_mapper::MapError;
use super::spoke::Target;
use super::status::{ManifestReport, Seen};
use super::watched::{Reading, Watched};

/// What a manifest means for the record of applied objects.
#[derive(Debug)]
pub(super) enum Tracked {
    /// This object exists.
    Object(AppliedManifestResourceMeta),
    /// It names no object that exists.
    Absent,
    /// It is not known which object it is for, or whether that exists.
    Unresolved,
}

/// What came of one manifest.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) report: ManifestReport,
    pub(super) tracked: Tracked,
}

/// What was found of the object.
enum Live {
    Found(Value),
    NotFound,
    Failed(String),
    /// Nobody looked, since it is not known where.
    Unidentified,
}

/// What is to be done with an object.
#[derive(Debug)]
enum Intent {
    /// It is done for good.
    Nothing,
    /// It is looked at.
    Read,
    /// It is made what the manifest says.
    Write(Wanted),
}

/// Where the rules of some options are, which are not copied, and for which kind of objects: group,
/// version and kind.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct RulesOfKind {
    feedback_rules: usize,
    condition_rules: usize,
    gvk: [String; 3],
}

/// What the manifest says of its object. The resource is not known from it.
fn identity(ordinal: i32, parsed: &ParsedManifest) -> ManifestResourceMeta {
    let gvk = parsed.gvk();
    ManifestResourceMeta {
        ordinal,
        group: gvk.group.to_owned(),
        version: gvk.version.to_owned(),
        kind: gvk.kind.to_owned(),
        resource: String::new(),
        namespace: parsed.namespace().to_owned(),
        name: parsed.name().to_owned(),
    }
}

/// What a look at the object shows, and how it is recorded.
fn reading_of(live: &Live, meta: &ManifestResourceMeta) -> (Option<Reading>, Tracked) {
    match live {
        Live::Found(object) => (
            Some(Reading::of(object)),
            Tracked::Object(record_of(meta, object)),
        ),
        Live::NotFound => (Some(Reading::Absent), Tracked::Absent),
        Live::Failed(_) | Live::Unidentified => (None, Tracked::Unresolved),
    }
}

impl<'a> Pass<'a> {
    /// Applies one manifest and looks at its object. Never fails as a whole: what goes wrong is
    /// in the report, and what may come right is in [`Pass::wishes`].
    pub(super) async fn manifest(
        &mut self,
        ordinal: usize,
        parsed: Result<ParsedManifest, ManifestError>,
        owner: Result<&Owner, &ApplyError>,
    ) -> Object {
        let position = i32::try_from(ordinal).unwrap_or(i32::MAX);
        let parsed = match parsed {
            Ok(parsed) => parsed,
            Err(error) => {
                let meta = ManifestResourceMeta {
                    ordinal: position,
                    ..ManifestResourceMeta::default()
                };
                let error = Err(error.to_string());
                return self.object(meta, error, Live::Unidentified, Tracked::Unresolved);
            }
        };
        let gvk = parsed.gvk();
        let mut meta = identity(position, &parsed);
        working_on(format!("{} {}/{}", meta.kind, meta.namespace, meta.name));
        if let Err(error) = parsed.check_name() {
            // Such a manifest can never have been applied.
            let error = Err(error.to_string());
            return self.object(meta, error, Live::Unidentified, Tracked::Absent);
        }
        if let Err(error) = owner {
            return self.given_up(meta, error);
        }
        if let Some(lost) = self.lost.clone() {
            return self.given_up(meta, &lost.into());
        }

        let duplicate = self.named.add(&parsed, None);
        let mapping = match (self.env.spoke.mapper.find(gvk).await, duplicate) {
            (Ok(mapping), _) => mapping,
            // The other one says that the kind is not there, and which object it is for.
            (Err(MapError::NoKind { .. }), Err(duplicate)) => {
                let error = Err(duplicate.to_string());
                return self.object(meta, error, Live::Unidentified, Tracked::Absent);
            }
            (Err(error), _) => return self.unmapped(meta, &error),
        };
        meta.resource = mapping.resource;
        if !mapping.namespaced {
            meta.namespace.clear();
        } else if meta.namespace.is_empty() {
            let error = Err(ApplyError::NoNamespace(meta.kind.clone()).to_string());
            return self.object(meta, error, Live::NotFound, Tracked::Absent);
        }

        let key = key_of(&meta);
        let config = match self.configs.find(id_of(&meta)) {
            Ok(config) => config,
            Err(error) => {
                let error = error.to_string();
                let live = Live::Failed(error.clone());
                return self.object(meta, Err(error), live, Tracked::Unresolved);
            }
        };
        let rights = could_escalate(id_of(&meta)).then(|| parsed.object.clone());
        let mut wanted = self
            .wanted(&meta, config, &key, parsed, mapping.namespaced)
            .await;
        let touches = matches!(wanted, Ok(Intent::Read | Intent::Write(_)));
        let grants = rights.filter(|_| matches!(wanted, Ok(Intent::Write(_))));
        let (allowed, hidden) = self.executor_may(&meta, config, touches, grants).await;
        if touches {
            wanted = allowed.and(wanted);
        }
        let plans = self.plans(ordinal, config, gvk_of(&meta)).await;
        if !matches!(wanted, Err(ApplyError::Duplicate(_))) {
            // Before it is read, so that no change after that is missed.
            self.watch(&meta, &key, config, hidden.is_none(), &plans);
        }
        let completion = self.completion(&meta, config, &plans);
        let (applied, live) = match (wanted, owner) {
            (Ok(Intent::Write(wanted)), Ok(owner)) => {
                self.write(&meta, &key, wanted, owner, &completion).await
            }
            (Ok(_), _) => (Ok(()), None),
            (Err(error), _) => (Err(error), None),
        };
        let live = match live {
            Some(live) => Live::Found(live),
            None => self.look_up(&meta).await,
        };
        let (read, tracked) = reading_of(&live, &meta);
        let failure = applied.as_ref().err().map(ApplyError::failure);
        let applied = applied.map_err(|error| error.to_string());
        let (seen, feedback, derived) = self.read(live, hidden, &plans).await;
        let polled = self.compare(&key, read, feedback.as_ref());
        Object {
            report: ManifestReport {
                meta,
                applied,
                failure: failure.unwrap_or_default(),
                seen,
                feedback,
                derived,
                plans,
                polled,
            },
            tracked,
        }
    }

    /// Has the object watched, or no longer.
    fn watch(
        &mut self,
        meta: &ManifestResourceMeta,
        key: &str,
        config: EffectiveConfig<'_>,
        readable: bool,
        plans: &Plans,
    ) {
        let wanted =
            *config.scrape == FeedbackScrapeType::Watch && readable && !self.memory.resting;
        if !wanted {
            self.memory.watched.remove(key);
            return;
        }
        let limits = self.settings.feedback;
        let watched = &mut self.memory.watched;
        if let Some(known) = watched.get_mut(key)
            && known.is_for(plans, limits)
        {
            known.ordinal = meta.ordinal;
            return;
        }
        let key: Arc<str> = key.into();
        let begun = Watched::begin(
            &self.env.watches,
            self.inbox,
            meta,
            Arc::clone(&key),
            plans.clone(),
            limits,
        );
        watched.insert(key, begun);
    }

    /// Remembers how the object was read, and says why it is not watched if it should be.
    fn compare(
        &mut self,
        key: &str,
        read: Option<Reading>,
        feedback: Option<&Feedback>,
    ) -> Option<String> {
        let watched = self.memory.watched.get_mut(key)?;
        if let Some(read) = read {
            watched.read(read, feedback);
        }
        watched.polled()
    }

    /// What says that an applied object is complete, and not to be written any more.
    fn completion(
        &self,
        meta: &ManifestResourceMeta,
        config: EffectiveConfig<'_>,
        plans: &Plans,
    ) -> Completion {
        let may = completes(config.condition_rules) && self.applied_before(meta);
        Completion {
            rules: may.then(|| (plans.rules.clone(), self.work.generation)),
        }
    }

    /// The compiled rules of a manifest.
    async fn plans(&mut self, ordinal: usize, config: EffectiveConfig<'a>, gvk: Gvk<'_>) -> Plans {
        if config.feedback_rules.is_empty() && config.condition_rules.is_empty() {
            return Plans::default();
        }
        if let Some(known) = self.memory.plans.get(&ordinal) {
            return known.clone();
        }
        let rules = RulesOfKind {
            feedback_rules: config.feedback_rules.as_ptr().addr(),
            condition_rules: config.condition_rules.as_ptr().addr(),
            gvk: [gvk.group, gvk.version, gvk.kind].map(ToOwned::to_owned),
        };
        let plans = if let Some(compiled) = self.compiled.get(&rules) {
            compiled.clone()
        } else {
            let plans = Plans {
                feedback: Arc::new(FeedbackPlan::compile(config.feedback_rules)),
                rules: compile_rules(config.condition_rules, gvk).await,
            };
            self.compiled.insert(rules, plans.clone());
            plans
        };
        self.memory.plans.insert(ordinal, plans.clone());
        plans
    }

    /// What the rules make of an object. `hidden` is what to say in place of values that the
    /// executor may not see.
    async fn read(
        &self,
        live: Live,
        hidden: Option<Feedback>,
        plans: &Plans,
    ) -> (Seen, Option<Feedback>, Option<Vec<Condition>>) {
        let object = match live {
            Live::Found(object) => object,
            Live::NotFound => return (Seen::NotFound, None, None),
            Live::Failed(error) => return (Seen::Failed(error), None, None),
            Live::Unidentified => return (Seen::Unidentified, None, None),
        };
        if hidden.is_some() {
            return (Seen::Found, hidden, None);
        }
        let values = plans.feedback.evaluate(&object, self.settings.feedback);
        if !plans.feedback.is_empty() {
            metrics::feedback_evaluated(!values.errors.is_empty());
        }
        let generation = self.work.generation;
        let derived = derive_conditions(plans.rules.clone(), object, generation).await;
        (Seen::Found, Some(values), derived)
    }

    /// Asks whether the executor of the work, if it has one, may do what applying the manifest
    /// takes; of an object that is not to be touched, whether it may be read. If not, says what to
    /// report in place of values that the executor may not see.
    async fn executor_may(
        &mut self,
        meta: &ManifestResourceMeta,
        config: EffectiveConfig<'_>,
        touches: bool,
        grants: Option<Value>,
    ) -> (Result<(), ApplyError>, Option<Feedback>) {
        let hide = |error: String| Feedback {
            errors: vec![error],
            ..Feedback::default()
        };
        let executor = match self.executor.clone() {
            None => return (Ok(()), None),
            Some(Ok(executor)) => executor,
            Some(Err(error)) => return (Err(error.into()), Some(hide(error.to_string()))),
        };
        let questions = Questions {
            spoke: &self.env.spoke,
            access: &self.env.access,
            executor: &executor,
            target: Target::from(meta),
        };
        let goes_with_work = !self.orphans.contains(id_of(meta));
        let reads = !config.feedback_rules.is_empty() || !config.condition_rules.is_empty();
        let verbs: &[Verb] = match (touches, reads) {
            (true, _) => verbs_to_apply(goes_with_work),
            (false, true) => &[Verb::Get],
            (false, false) => &[],
        };
        let asked = async {
            let mut allowed = questions.may(verbs).await?;
            if let (Ok(()), Some(manifest)) = (&allowed, grants) {
                allowed = questions.may_grant(&manifest).await?;
            }
            let readable = match &allowed {
                Err(Denial::Verb(Verb::Get)) => false,
                Err(_) if reads => questions.may(&[Verb::Get]).await?.is_ok(),
                _ => true,
            };
            Ok::<_, ApiError>((allowed, readable))
        };
        match asked.await {
            Ok((Ok(()), _)) => (Ok(()), None),
            Ok((Err(denial), readable)) => {
                self.wishes.denied = true;
                let text = executor::refusal(&executor, id_of(meta), &denial);
                let hidden = || hide(executor::unreadable(&executor, id_of(meta)));
                (Err(ApplyError::Denied(text)), (!readable).then(hidden))
            }
            Err(error) => {
                self.failed(&error);
                let text = error.to_string();
                (Err(ApplyError::Review(error)), Some(hide(text)))
            }
        }
    }

    /// Decides whether the manifest is to be written, and how.
    async fn wanted(
        &mut self,
        meta: &ManifestResourceMeta,
        config: EffectiveConfig<'_>,
        key: &str,
        parsed: ParsedManifest,
        namespaced: bool,
    ) -> Result<Intent, ApplyError> {
        let first = *self.objects.entry(key.into()).or_insert(parsed.ordinal);
        if first != parsed.ordinal {
            return Err(ApplyError::Duplicate(DuplicateManifest {
                first,
                second: parsed.ordinal,
                api_version: parsed.api_version().to_owned(),
                kind: meta.kind.clone(),
                namespace: meta.namespace.clone(),
                name: meta.name.clone(),
            }));
        }
        if self.is_complete(meta, config.condition_rules) {
            return Ok(Intent::Nothing);
        }
        match Strategy::try_from(config.strategy())? {
            Strategy::ReadOnly => Ok(Intent::Read),
            Strategy::Update => Ok(Intent::Write(Wanted::Update(Desired::new(
                parsed, namespaced,
            )?))),
            Strategy::CreateOnly => Ok(Intent::Write(Wanted::CreateOnly(Desired::new(
                parsed, namespaced,
            )?))),
            Strategy::ServerSideApply => {
                let intent = self.server_side(config, parsed, namespaced).await?;
                Ok(Intent::Write(Wanted::ServerSideApply(Box::new(intent))))
            }
        }
    }

    /// Prepares a manifest for server-side apply.
    async fn server_side(
        &mut self,
        config: EffectiveConfig<'_>,
        parsed: ParsedManifest,
        namespaced: bool,
    ) -> Result<server_side::Intent, ApplyError> {
        let strategy = config.update_strategy;
        let settings = strategy.and_then(|strategy| strategy.server_side_apply.as_ref());
        // Where the settings are, which manifests with the same options share.
        let place = settings.map_or(0, |settings| ptr::from_ref(settings).addr());
        let settings = settings.cloned().unwrap_or_default();
        let ordinal = parsed.ordinal;
        let known = self.memory.ignore_fields.get(&ordinal);
        let ignore = match known.or_else(|| self.ignore_fields.get(&place)) {
            Some(ignore) => Arc::clone(ignore),
            None => Arc::new(compile_ignore_fields(&settings).await?),
        };
        self.ignore_fields.insert(place, Arc::clone(&ignore));
        self.memory
            .ignore_fields
            .insert(ordinal, Arc::clone(&ignore));
        Ok(server_side::Intent::new(
            parsed, namespaced, &settings, ignore,
        )?)
    }

    /// Writes the object if it needs it. Returns the object, unless that is not known.
    async fn write(
        &mut self,
        meta: &ManifestResourceMeta,
        key: &str,
        wanted: Wanted,
        owner: &Owner,
        completion: &Completion,
    ) -> (Result<(), ApplyError>, Option<Value>) {
        let goes_with_work = !self.orphans.contains(id_of(meta));
        let owner = OwnerChange::new(owner.clone(), goes_with_work);
        let last = self.memory.applied.get(key);
        let history = match last.and_then(Last::update) {
            Some(last) => History::Applied(last),
            None if self.applied_before(meta) => History::AppliedBefore,
            None => History::Unapplied,
        };
        let target = Target::from(meta);
        let spoke = &self.env.spoke;
        let outcome = match wanted {
            Wanted::Update(desired) => {
                let strategy = Strategy::Update;
                let applied = apply(
                    spoke, target, strategy, &desired, &owner, history, completion,
                )
                .await;
                applied.map_err(ApplyError::from)
            }
            Wanted::CreateOnly(desired) => {
                let strategy = Strategy::CreateOnly;
                let applied = apply(
                    spoke, target, strategy, &desired, &owner, history, completion,
                )
                .await;
                applied.map_err(ApplyError::from)
            }
            Wanted::ServerSideApply(intent) => {
                let last = last.and_then(Last::intent).cloned();
                apply_on_server(spoke, target, *intent, &owner, last, completion).await
            }
        };
        match outcome {
            Ok(applied) => {
                if let Some(last) = applied.last {
                    self.memory.applied.insert(key.into(), last);
                }
                (Ok(()), Some(applied.live))
            }
            Err(error) => {
                // Whatever was written before no longer tells what the object is.
                self.memory.applied.remove(key);
                if let Some(request) = error.request() {
                    if request.is_not_found() && !request.is_missing_namespace() {
                        // The path has gone, most likely with its CRD.
                        self.env.spoke.mapper.forget(gvk_of(meta)).await;
                    }
                    if !request.is_field_conflict() {
                        self.failed(request);
                    }
                }
                (Err(error), None)
            }
        }
    }

    /// Whether the status says that this generation of the manifest was applied.
    fn applied_before(&self, meta: &ManifestResourceMeta) -> bool {
        let generation = self.work.generation;
        self.known
            .get(meta)
            .is_some_and(|known| read::is_true_for(&known.conditions, MANIFEST_APPLIED, generation))
    }

    async fn look_up(&mut self, meta: &ManifestResourceMeta) -> Live {
        if let Some(lost) = &self.lost {
            return Live::Failed(lost.to_string());
        }
        match self.env.spoke.find(Target::from(meta)).await {
            Ok(Lookup::Found(object)) => Live::Found(object),
            Ok(Lookup::NoObject) => Live::NotFound,
            Ok(Lookup::NoRoute) => {
                // In another version it may well be there.
                self.env.spoke.mapper.forget(gvk_of(meta)).await;
                self.wishes.types = true;
                Live::Failed(format!("{} is not served any more", Target::from(meta)))
            }
            Err(error) => {
                self.failed(&error);
                Live::Failed(error.to_string())
            }
        }
    }

    /// Wants a failed request tried again, and stops asking a cluster that does not answer.
    fn failed(&mut self, error: &ApiError) {
        self.wishes.retry(error);
        if error.is_unreachable() {
            self.lost.get_or_insert_with(|| error.clone());
        }
    }

    fn unmapped(&mut self, meta: ManifestResourceMeta, error: &MapError) -> Object {
        match error {
            MapError::NoKind { .. } => self.wishes.types = true,
            MapError::Discovery { source, .. } if source.is_unreachable() => {
                return self.given_up(meta, &source.clone().into());
            }
            MapError::Discovery { source, .. } => self.failed(source),
        }
        let error = Err(error.to_string());
        self.object(meta, error, Live::Unidentified, Tracked::Unresolved)
    }

    /// Reports a manifest that was not tried, since requests to the cluster fail. The resource is
    /// taken from the former status, so that the entry stays the one of this object.
    fn given_up(&mut self, mut meta: ManifestResourceMeta, error: &ApplyError) -> Object {
        self.gave_up = true;
        if let Some(request) = error.request() {
            self.failed(request);
        }
        let known = self.known.at(meta.ordinal).filter(|known| {
            known.group == meta.group
                && known.version == meta.version
                && known.kind == meta.kind
                && known.name == meta.name
        });
        if let Some(known) = known {
            meta = known.clone();
        }
        let live = Live::Failed(error.to_string());
        self.object(meta, Err(error.to_string()), live, Tracked::Unresolved)
    }

    /// The report of a manifest whose object was not looked at.
    fn object(
        &self,
        meta: ManifestResourceMeta,
        applied: Result<(), String>,
        live: Live,
        tracked: Tracked,
    ) -> Object {
        let ordinal = usize::try_from(meta.ordinal).unwrap_or(usize::MAX);
        let seen = match live {
            Live::Found(_) => Seen::Found,
            Live::NotFound => Seen::NotFound,
            Live::Failed(error) => Seen::Failed(error),
            Live::Unidentified => Seen::Unidentified,
        };
        Object {
            report: ManifestReport {
                meta,
                applied,
                failure: ApplyFailure::default(),
                seen,
                feedback: None,
                derived: None,
                polled: None,
                plans: self.memory.plans.get(&ordinal).cloned().unwrap_or_default(),
            },
            tracked,
        }
    }
}

fn id_of(meta: &ManifestResourceMeta) -> ObjectId<'_> {
    ObjectId {
        group: &meta.group,
        resource: &meta.resource,
        namespace: &meta.namespace,
        name: &meta.name,
    }
}

fn gvk_of(meta: &ManifestResourceMeta) -> Gvk<'_> {
    Gvk {
        group: &meta.group,
        version: &meta.version,
        kind: &meta.kind,
    }
}

/// Names the object, whatever version it is served in.
pub(super) fn key_of(meta: &ManifestResourceMeta) -> String {
    let ManifestResourceMeta {
        group,
        resource,
        namespace,
        name,
        ..
    } = meta;
    format!("{group}/{resource}/{namespace}/{name}")
}

fn record_of(meta: &ManifestResourceMeta, object: &Value) -> AppliedManifestResourceMeta {
    debug_assert!(is_identified(meta), "an object was found, so it has a path");
    AppliedManifestResourceMeta {
        group: meta.group.clone(),
        version: meta.version.clone(),
        resource: meta.resource.clone(),
        namespace: meta.namespace.clone(),
        name: meta.name.clone(),
        uid: object["metadata"]["uid"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
    }
}
