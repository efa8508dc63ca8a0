//! What a work hears of its watched objects.
//!
//! An [`Observer`] listens to one object for one work, on the threads of the watches. It keeps two
//! hashes of the object, of what the work reports of it and of all the rest save its status, and
//! lets through only states in which one of them has changed: those go to the [`Inbox`] of the
//! work, the newest for each object, with one message for all that is there.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use actix::{Message, Recipient};
use muster_core::feedback::{Feedback, FeedbackLimits};
use muster_core::manifest::Gvk;
use muster_core::watch_plan::Resource;
use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::metrics::{self, Event};
use super::reconcile::Plans;
use crate::watch::{Subscriber, WatchedObject, api_version};

/// The inbox of a work has something for it.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "()")]
pub struct Sighted;

/// A state of an object that its work has to hear of.
#[derive(Debug, Clone)]
pub(super) struct Sighting {
    pub(super) object: Sight,
    /// The values of this state, where they are all that the work reports.
    pub(super) feedback: Option<Feedback>,
    /// What the work reports of it may have changed.
    pub(super) reportable: bool,
    /// It may not be what the work wants it to be.
    pub(super) drifted: bool,
    /// When the first of the states was seen that this one stands for.
    pub(super) since: Instant,
}

#[derive(Debug, Clone)]
pub(super) enum Sight {
    Present(Arc<WatchedObject>),
    /// Deleted, at this resource version.
    Deleted(u64),
    /// A list did not name it.
    Absent,
}

impl Sighting {
    /// Takes the place of an earlier one.
    fn replaces(&mut self, earlier: &Self) {
        self.reportable |= earlier.reportable;
        self.drifted |= earlier.drifted;
        self.since = self.since.min(earlier.since);
    }
}

#[derive(Debug, Default)]
struct Letters {
    sightings: HashMap<Arc<str>, Sighting>,
    /// How objects are covered by watches has changed.
    coverage: bool,
    /// The work knows that there is something.
    told: bool,
    to: Option<Recipient<Sighted>>,
}

impl Letters {
    fn is_empty(&self) -> bool {
        self.sightings.is_empty() && !self.coverage
    }

    /// A work that has no room for the message has others to handle, and looks here after each.
    fn tell(&mut self) {
        if !self.told
            && let Some(to) = &self.to
        {
            self.told = to.try_send(Sighted).is_ok();
        }
    }
}

/// What watches have for a work.
#[derive(Debug, Default)]
pub(super) struct Inbox(Mutex<Letters>);

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, Letters> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whom to tell from now on.
    pub(super) fn belongs_to(&self, work: Recipient<Sighted>) {
        let mut letters = self.lock();
        letters.to = Some(work);
        if !letters.is_empty() {
            letters.tell();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Takes what is there, and whether the coverage by watches has changed.
    pub(super) fn drain(&self) -> (HashMap<Arc<str>, Sighting>, bool) {
        let mut letters = self.lock();
        letters.told = false;
        let coverage = std::mem::take(&mut letters.coverage);
        (std::mem::take(&mut letters.sightings), coverage)
    }

    fn put(&self, key: &Arc<str>, mut sighting: Sighting) {
        let mut letters = self.lock();
        if let Some(earlier) = letters.sightings.get(key) {
            sighting.replaces(earlier);
        }
        letters.sightings.insert(Arc::clone(key), sighting);
        letters.tell();
    }

    fn coverage_changed(&self) {
        let mut letters = self.lock();
        letters.coverage = true;
        letters.tell();
    }
}

/// What an observer remembers of its object.
#[derive(Debug, Default)]
struct Last {
    /// Resource version; 0 before the first state.
    version: u64,
    state: State,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Unknown,
    Present(Hashes),
    Gone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Hashes {
    /// Of what the work reports.
    reported: u64,
    /// Of the fields that this is read from.
    read: u64,
    /// Of all but the status.
    rest: u64,
}

/// Listens to one object for one work.
#[derive(Debug)]
pub(super) struct Observer {
    inbox: Arc<Inbox>,
    /// What the work calls the object.
    key: Arc<str>,
    resource: Resource,
    kind: Box<str>,
    pub(super) plans: Plans,
    pub(super) limits: FeedbackLimits,
    last: Mutex<Last>,
}

impl Observer {
    pub(super) fn new(
        inbox: Arc<Inbox>,
        key: Arc<str>,
        resource: Resource,
        kind: &str,
        plans: Plans,
        limits: FeedbackLimits,
    ) -> Self {
        Self {
            inbox,
            key,
            resource,
            kind: kind.into(),
            plans,
            limits,
            last: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object with its type.
    pub(super) fn decode(&self, object: &WatchedObject) -> serde_json::Result<serde_json::Value> {
        object.decode(&api_version(&self.resource), &self.kind)
    }

    /// The newest state that was seen.
    pub(super) fn version(&self) -> u64 {
        self.lock().version
    }

    /// Whether the object has other values than those seen last. `None` where rules make that hard
    /// to tell, or nothing was seen.
    pub(super) fn differs(&self, feedback: &Feedback) -> Option<bool> {
        match self.lock().state {
            State::Present(hashes) if self.plans.rules.is_empty() => {
                Some(hashes.reported != hash_of_values(feedback))
            }
            _ => None,
        }
    }

    /// The hashes of an object after `last`, and its values if they had to be read for that.
    fn hashes(&self, object: &WatchedObject, last: State) -> (Hashes, Option<Feedback>) {
        let plan = &self.plans.feedback;
        let api_version = api_version(&self.resource);
        let gvk = Gvk::new(&api_version, &self.kind);
        let has_rules = !self.plans.rules.is_empty();
        let wanted = |field: &str| !has_rules && plan.may_read(gvk, field);
        let Parts {
            rest,
            status,
            read,
            fields,
        } = parts_of(object.json(), &wanted);
        let hashes = |reported| Hashes {
            reported,
            read,
            rest,
        };
        if has_rules {
            // What rules say may depend on anything.
            return (hashes(rest ^ status), None);
        }
        match last {
            State::Present(last) if last.read == read => (hashes(last.reported), None),
            _ if plan.is_empty() => (hashes(0), None),
            _ => {
                let feedback = plan.evaluate(&picked(fields, gvk), self.limits);
                (hashes(hash_of_values(&feedback)), Some(feedback))
            }
        }
    }
}

/// An object of these fields and its type, which is all that its values are read from.
fn picked(fields: Vec<(Cow<'_, str>, &RawValue)>, gvk: Gvk<'_>) -> Value {
    let mut object: Map<String, Value> = fields
        .into_iter()
        .filter_map(|(name, raw)| {
            // What came over the wire is JSON; nested too deeply it is as if it were not there.
            Some((name.into_owned(), serde_json::from_str(raw.get()).ok()?))
        })
        .collect();
    let api_version = match gvk.group {
        "" => gvk.version.to_owned(),
        group => format!("{group}/{}", gvk.version),
    };
    object.insert("apiVersion".to_owned(), api_version.into());
    object.insert("kind".to_owned(), gvk.kind.into());
    Value::Object(object)
}

impl Subscriber for Observer {
    fn seen(&self, object: &Arc<WatchedObject>) {
        let version = object.version();
        let stale = |last: &Last| version != 0 && version <= last.version;
        let before = {
            let last = self.lock();
            if stale(&last) {
                return;
            }
            last.state
        };
        let (hashes, feedback) = self.hashes(object, before);
        let mut last = self.lock();
        if stale(&last) {
            return; // another watch was faster
        }
        let before = std::mem::replace(&mut last.state, State::Present(hashes));
        last.version = version;
        drop(last);
        let (reportable, drifted) = match before {
            State::Present(before) => (
                before.reported != hashes.reported,
                before.rest != hashes.rest,
            ),
            // The work may have read it before this change.
            State::Unknown | State::Gone => (true, true),
        };
        if !reportable && !drifted {
            metrics::watch_event(Event::Irrelevant);
            return;
        }
        metrics::watch_event(Event::Changed);
        let sighting = Sighting {
            object: Sight::Present(Arc::clone(object)),
            feedback,
            reportable,
            drifted,
            since: Instant::now(),
        };
        self.inbox.put(&self.key, sighting);
    }

    fn gone(&self, object: Option<&Arc<WatchedObject>>) {
        let mut last = self.lock();
        let object = if let Some(object) = object {
            let version = object.version();
            if version != 0 && version <= last.version {
                return;
            }
            last.version = version;
            Sight::Deleted(version)
        } else {
            Sight::Absent
        };
        if std::mem::replace(&mut last.state, State::Gone) == State::Gone {
            return;
        }
        drop(last);
        metrics::watch_event(Event::Changed);
        let sighting = Sighting {
            reportable: matches!(object, Sight::Deleted(_)),
            object,
            feedback: None,
            drifted: true,
            since: Instant::now(),
        };
        self.inbox.put(&self.key, sighting);
    }

    fn coverage_changed(&self) {
        self.inbox.coverage_changed();
    }
}

fn hash_of_values(feedback: &Feedback) -> u64 {
    let mut hasher = DefaultHasher::new();
    for named in &feedback.values {
        let value = &named.value;
        named.name.hash(&mut hasher);
        value.integer.hash(&mut hasher);
        value.string.hash(&mut hasher);
        value.boolean.hash(&mut hasher);
        value.json_raw.hash(&mut hasher);
    }
    feedback.errors.hash(&mut hasher);
    hasher.finish()
}

/// The parts of an object.
#[derive(Default)]
struct Parts<'a> {
    /// Hash of all but status, type and what every write changes. Fields may be in any order, as
    /// API servers other than Kubernetes' own may send them.
    rest: u64,
    /// Hash of the status.
    status: u64,
    /// Hash of the fields that were picked.
    read: u64,
    fields: Vec<(Cow<'a, str>, &'a RawValue)>,
}

/// Metadata that changes with each write, or tells who wrote.
const BOOKKEEPING: [&str; 3] = ["resourceVersion", "managedFields", "generation"];

/// Takes an object apart, and picks the fields that are asked for.
fn parts_of<'a>(json: &'a str, picks: &dyn Fn(&str) -> bool) -> Parts<'a> {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    // What came over the wire as an object is one.
    deserializer
        .deserialize_map(ObjectParts { picks })
        .unwrap_or_default()
}

fn hash_of(key: &str, value: &RawValue) -> u64 {
    let mut hasher = DefaultHasher::new();
    (key, value.get()).hash(&mut hasher);
    hasher.finish()
}

struct ObjectParts<'p> {
    picks: &'p dyn Fn(&str) -> bool,
}

impl<'de> Visitor<'de> for ObjectParts<'_> {
    type Value = Parts<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Parts<'de>, A::Error> {
        let mut parts = Parts::default();
        while let Some(Key(key)) = map.next_key()? {
            if matches!(&*key, "apiVersion" | "kind") {
                // Items of lists come without.
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let value: &RawValue = map.next_value()?;
            let picked = (self.picks)(&key);
            let is_metadata = *key == *"metadata";
            let whole = (!is_metadata || picked).then(|| hash_of(&key, value));
            match (&*key, whole) {
                ("metadata", _) => {
                    let mut metadata = serde_json::Deserializer::from_str(value.get());
                    let hash = metadata.deserialize_map(MetadataHash);
                    parts.rest = parts.rest.wrapping_add(hash.unwrap_or_default());
                }
                ("status", Some(hash)) => parts.status = hash,
                (_, Some(hash)) => parts.rest = parts.rest.wrapping_add(hash),
                (_, None) => {}
            }
            if picked {
                parts.read = parts.read.wrapping_add(whole.unwrap_or_default());
                parts.fields.push((key, value));
            }
        }
        Ok(parts)
    }
}

struct MetadataHash;

impl<'de> Visitor<'de> for MetadataHash {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("metadata")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<u64, A::Error> {
        let mut sum = 0_u64;
        while let Some(Key(key)) = map.next_key()? {
            if BOOKKEEPING.contains(&&*key) {
                map.next_value::<IgnoredAny>()?;
            } else {
                sum = sum.wrapping_add(hash_of(&key, map.next_value()?));
            }
        }
        Ok(sum)
    }
}

/// A key, borrowed where it has no escapes.
#[derive(serde::Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use actix::{Actor, Context, Handler};
    use muster_api::work::FeedbackRule;
    use muster_core::feedback::FeedbackPlan;
    use serde_json::json;

    use super::*;

    fn object(change: impl FnOnce(&mut Value)) -> Arc<WatchedObject> {
        let mut object = json!({
            "apiVersion": "x/v1", "kind": "Widget",
            "metadata": {
                "name": "w", "namespace": "ns1", "resourceVersion": "10", "generation": 1,
                "managedFields": [{"manager": "a"}], "labels": {"a": "b"},
            },
            "spec": {"size": 1},
            "status": {"phase": "Running", "heartbeat": 1},
        });
        change(&mut object);
        Arc::new(serde_json::from_str(&object.to_string()).unwrap())
    }

    fn at(version: u64, change: impl FnOnce(&mut Value)) -> Arc<WatchedObject> {
        object(|object| {
            change(object);
            object["metadata"]["resourceVersion"] = version.to_string().into();
        })
    }

    fn observer(rules: &Value) -> (Observer, Arc<Inbox>) {
        let rules: Vec<FeedbackRule> = serde_json::from_str(&rules.to_string()).unwrap();
        let inbox = Arc::new(Inbox::default());
        let observer = Observer::new(
            Arc::clone(&inbox),
            "w".into(),
            Resource::new("x", "v1", "widgets"),
            "Widget",
            Plans {
                feedback: Arc::new(FeedbackPlan::compile(&rules)),
                ..Plans::default()
            },
            FeedbackLimits::default(),
        );
        (observer, inbox)
    }

    fn phase() -> Value {
        json!([{"type": "JSONPaths", "jsonPaths": [{"name": "phase", "path": ".status.phase"}]}])
    }

    fn only(inbox: &Inbox) -> Option<(bool, bool)> {
        let (sightings, coverage) = inbox.drain();
        assert!(!coverage);
        let sighting = sightings.get("w")?;
        Some((sighting.reportable, sighting.drifted))
    }

    #[test]
    fn only_changes_that_concern_the_work_get_through() {
        let (observer, inbox) = observer(&phase());
        observer.seen(&at(10, |_| {}));
        assert_eq!(only(&inbox), Some((true, true)), "the first state");
        observer.seen(&at(11, |_| {}));
        assert_eq!(only(&inbox), None, "nothing but the version");
        observer.seen(&at(12, |object| {
            object["status"]["heartbeat"] = 2.into();
            object["metadata"]["managedFields"] = json!([]);
            object["metadata"]["generation"] = 2.into();
        }));
        assert_eq!(only(&inbox), None, "what nobody reports");
        observer.seen(&at(13, |object| {
            object["status"]["phase"] = "Failed".into();
        }));
        assert_eq!(only(&inbox), Some((true, false)));
        observer.seen(&at(14, |object| {
            object["status"]["phase"] = "Failed".into();
            object["spec"]["size"] = 2.into();
        }));
        assert_eq!(only(&inbox), Some((false, true)));
        let changes: [fn(&mut Value); 2] = [
            |object| object["metadata"]["labels"] = json!({}),
            |object| object["extra"] = true.into(),
        ];
        for (version, change) in (15..).zip(changes) {
            observer.seen(&at(version, |object| {
                object["status"]["phase"] = "Failed".into();
                change(object);
            }));
            assert_eq!(only(&inbox), Some((false, true)), "{version}");
        }
    }

    #[test]
    fn late_and_repeated_states_are_not_news() {
        let (observer, inbox) = observer(&phase());
        observer.seen(&at(10, |_| {}));
        only(&inbox);
        observer.seen(&at(9, |object| {
            object["status"]["phase"] = "Pending".into();
        }));
        observer.seen(&at(10, |object| {
            object["status"]["phase"] = "Pending".into();
        }));
        observer.gone(Some(&at(8, |_| {})));
        assert_eq!(only(&inbox), None);
        assert_eq!(observer.version(), 10);
    }

    #[test]
    fn an_end_is_told_once_and_so_is_a_new_beginning() {
        let (observer, inbox) = observer(&phase());
        observer.seen(&at(10, |_| {}));
        only(&inbox);
        observer.gone(Some(&at(11, |_| {})));
        assert_eq!(only(&inbox), Some((true, true)));
        observer.gone(None);
        assert_eq!(only(&inbox), None);
        observer.seen(&at(12, |_| {}));
        assert_eq!(only(&inbox), Some((true, true)));
        observer.gone(None);
        assert_eq!(
            only(&inbox),
            Some((false, true)),
            "a list may be old: nothing to report before a look"
        );
    }

    #[test]
    fn the_newest_state_stands_for_all_of_them() {
        let (observer, inbox) = observer(&phase());
        observer.seen(&at(10, |_| {}));
        only(&inbox);
        observer.seen(&at(11, |object| object["spec"]["size"] = 2.into()));
        observer.seen(&at(12, |object| {
            object["spec"]["size"] = 2.into();
            object["status"]["phase"] = "Failed".into();
        }));
        let (sightings, _) = inbox.drain();
        let sighting = &sightings["w"];
        assert!(sighting.reportable && sighting.drifted);
        assert!(matches!(&sighting.object, Sight::Present(object) if object.version() == 12));
        assert!(inbox.is_empty());
    }

    #[test]
    fn what_a_list_gives_is_the_same_object() {
        let (observer, inbox) = observer(&phase());
        observer.seen(&at(10, |_| {}));
        only(&inbox);
        // Without its type, and with fields in another order.
        let listed = r#"{"status": {"heartbeat":1,"phase":"Running"}, "spec": {"size":1},
            "metadata": {"labels":{"a":"b"}, "namespace": "ns1", "name": "w",
            "resourceVersion": "11"}}"#;
        observer.seen(&Arc::new(serde_json::from_str(listed).unwrap()));
        assert_eq!(only(&inbox), None);
    }

    #[test]
    fn rules_for_conditions_may_look_at_anything() {
        let (mut observer, inbox) = observer(&json!([]));
        observer.seen(&at(10, |_| {}));
        only(&inbox);
        observer.seen(&at(11, |object| object["status"]["heartbeat"] = 2.into()));
        assert_eq!(only(&inbox), None, "nothing is reported");
        let rule = json!([{"type": "CEL", "condition": "Ready",
            "celExpressions": ["object.status.heartbeat > 2"]}]);
        let rules: Vec<_> = serde_json::from_str(&rule.to_string()).unwrap();
        let gvk = muster_core::manifest::Gvk::new("x/v1", "Widget");
        observer.plans.rules = muster_core::condition_rules::RulePlan::compile(&rules, gvk);
        observer.seen(&at(12, |object| object["status"]["heartbeat"] = 3.into()));
        only(&inbox);
        observer.seen(&at(13, |object| object["status"]["heartbeat"] = 4.into()));
        assert_eq!(only(&inbox), Some((true, false)));
    }

    /// Values that are read from metadata, or from anywhere, are seen as well.
    #[test]
    fn values_may_come_from_any_part() {
        let rules =
            |path: &str| json!([{"type": "JSONPaths", "jsonPaths": [{"name": "v", "path": path}]}]);
        for path in [".metadata.labels.a", "..a"] {
            let (observer, inbox) = observer(&rules(path));
            observer.seen(&at(10, |_| {}));
            only(&inbox);
            observer.seen(&at(11, |object| {
                object["metadata"]["labels"]["a"] = "c".into();
            }));
            assert_eq!(only(&inbox), Some((true, true)), "{path}");
        }
        let (observer, inbox) = observer(&rules(".metadata.generation"));
        observer.seen(&at(10, |_| {}));
        only(&inbox);
        observer.seen(&at(11, |object| {
            object["metadata"]["generation"] = 2.into();
        }));
        assert_eq!(only(&inbox), Some((true, false)));
    }

    /// What a watch gives along is what a look at the whole object would have given.
    #[test]
    fn values_of_picked_fields_are_those_of_the_object() {
        for path in [
            ".status.phase",
            ".metadata.name",
            ".spec.size",
            "..phase",
            ".kind",
        ] {
            let rules = json!([{"type": "JSONPaths", "jsonPaths": [{"name": "v", "path": path}]},
                {"type": "WellKnownStatus"}]);
            let (observer, inbox) = observer(&rules);
            let state = at(10, |_| {});
            observer.seen(&state);
            let (sightings, _) = inbox.drain();
            let whole = observer.decode(&state).unwrap();
            let expected = observer.plans.feedback.evaluate(&whole, observer.limits);
            assert_eq!(sightings["w"].feedback.as_ref(), Some(&expected), "{path}");
        }
    }

    #[test]
    fn a_poll_can_tell_whether_a_value_was_missed() {
        let (observer, _inbox) = observer(&phase());
        let plan = Arc::clone(&observer.plans.feedback);
        let read = |object: &WatchedObject| {
            let value = observer.decode(object).unwrap();
            plan.evaluate(&value, FeedbackLimits::default())
        };
        assert_eq!(observer.differs(&read(&at(9, |_| {}))), None);
        observer.seen(&at(10, |_| {}));
        assert_eq!(observer.differs(&read(&at(11, |_| {}))), Some(false));
        let other = at(12, |object| object["status"]["phase"] = "Failed".into());
        assert_eq!(observer.differs(&read(&other)), Some(true));
    }

    /// Counts what it is told.
    struct Work(Arc<std::sync::atomic::AtomicUsize>);

    impl Actor for Work {
        type Context = Context<Self>;
    }

    impl Handler<Sighted> for Work {
        type Result = ();

        fn handle(&mut self, _: Sighted, _: &mut Self::Context) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }

    #[actix::test]
    async fn one_message_tells_of_all_that_is_there() {
        let (observer, inbox) = observer(&phase());
        observer.seen(&at(10, |_| {}));
        let told = Arc::default();
        let work = Work(Arc::clone(&told)).start();
        inbox.belongs_to(work.clone().recipient());
        observer.coverage_changed();
        observer.gone(Some(&at(11, |_| {})));
        work.send(Sighted).await.unwrap();
        let count = || told.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(count(), 2, "one from the inbox, one from the test");
        let (sightings, coverage) = inbox.drain();
        assert!(coverage && sightings.len() == 1);
        observer.coverage_changed();
        work.send(Sighted).await.unwrap();
        assert_eq!(count(), 4);
    }
}
