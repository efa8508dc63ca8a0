//! Counts repeated Events of an object in one Event, and limits how many there are.

use std::borrow::Cow;
use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Event, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use muster_core::events::{Allowance, Happening};

/// Events that are remembered, to count what happens again: some 700 bytes each.
const REMEMBERED: usize = 1_024;
/// After so long without it, the same thing is a new Event. client-go's 10 minutes.
const SERIES_ENDS: SignedDuration = SignedDuration::from_mins(10);
/// Events of one object: client-go's 25 at once, and then one in five minutes.
const OF_AN_OBJECT: (u32, f64) = (25, 1.0 / 300.0);
/// Events of all objects: an API server that everybody needs must not notice them.
const OF_ALL: (u32, f64) = (100, 5.0);
/// Longest name of an object, less the 17 bytes that make an Event's name of it.
const MAX_NAME: usize = 253 - 17;

/// Object, reason, and whether it is a warning.
type Key = (String, Cow<'static, str>, bool);

/// What to do about something that has happened.
#[derive(Debug)]
pub(super) enum Step {
    Create(Box<Event>),
    /// It is counted, and told with the next flush.
    Count,
    /// Too much of it.
    Drop,
}

struct Known {
    event: Event,
    /// The API has an older count.
    due: bool,
    last: Timestamp,
}

/// The Events of the last minutes.
pub(super) struct Series {
    known: HashMap<Key, Known>,
    objects: HashMap<String, (Allowance, Timestamp)>,
    all: Allowance,
}

/// What tells an object from all others.
fn identity(about: &ObjectReference) -> String {
    let part = |text: &Option<String>| text.clone().unwrap_or_default();
    about.uid.clone().unwrap_or_else(|| {
        let parts = [&about.kind, &about.namespace, &about.name].map(part);
        parts.join("/")
    })
}

impl Series {
    pub(super) fn new(now: Timestamp) -> Self {
        Self {
            known: HashMap::new(),
            objects: HashMap::new(),
            all: Allowance::new(OF_ALL.0, OF_ALL.1, now),
        }
    }

    pub(super) fn add(
        &mut self,
        about: &ObjectReference,
        happening: Happening,
        now: Timestamp,
    ) -> Step {
        let object = identity(about);
        let key = (object.clone(), happening.reason.clone(), happening.warning);
        if let Some(known) = self.known.get_mut(&key)
            && now.duration_since(known.last) < SERIES_ENDS
        {
            known.last = now;
            known.due = true;
            known.event.count = known.event.count.map(|count| count.saturating_add(1));
            known.event.last_timestamp = Some(Time(now));
            known.event.message = Some(happening.note);
            return Step::Count;
        }
        self.make_room(now);
        let (allowance, last) = self.objects.entry(object).or_insert_with(|| {
            let allowance = Allowance::new(OF_AN_OBJECT.0, OF_AN_OBJECT.1, now);
            (allowance, now)
        });
        *last = now;
        if !allowance.take(now) || !self.all.take(now) {
            return Step::Drop;
        }
        let event = event(about, happening, now);
        let known = Known {
            event: event.clone(),
            due: false,
            last: now,
        };
        self.known.insert(key, known);
        Step::Create(Box::new(event))
    }

    /// What has been counted since it was told last.
    pub(super) fn due(&mut self, now: Timestamp) -> Vec<Event> {
        let mut due = Vec::new();
        for known in self.known.values_mut().filter(|known| known.due) {
            if !self.all.take(now) {
                break; // the rest is due the next time
            }
            known.due = false;
            due.push(known.event.clone());
        }
        due
    }

    /// Forgets what is over, and if that is not enough the oldest.
    fn make_room(&mut self, now: Timestamp) {
        if self.known.len() >= REMEMBERED {
            let over = |known: &Known| now.duration_since(known.last) >= SERIES_ENDS;
            self.known.retain(|_, known| !over(known));
            if self.known.len() >= REMEMBERED
                && let Some(oldest) = self.known.iter().min_by_key(|(_, known)| known.last)
            {
                let oldest = oldest.0.clone();
                self.known.remove(&oldest);
            }
        }
        if self.objects.len() >= REMEMBERED
            && let Some(oldest) = self.objects.iter().min_by_key(|(_, (_, last))| *last)
        {
            let oldest = oldest.0.clone();
            self.objects.remove(&oldest);
        }
    }
}

fn event(about: &ObjectReference, happening: Happening, now: Timestamp) -> Event {
    let mut name = about.name.clone().unwrap_or_default();
    name.truncate(MAX_NAME); // names of objects are ASCII
    Event {
        metadata: ObjectMeta {
            // Those of objects without a namespace are in "default".
            namespace: Some(
                about
                    .namespace
                    .clone()
                    .unwrap_or_else(|| "default".to_owned()),
            ),
            name: Some(format!("{name}.{:016x}", now.as_nanosecond())),
            ..ObjectMeta::default()
        },
        involved_object: about.clone(),
        reason: Some(happening.reason.into_owned()),
        message: Some(happening.note),
        type_: Some(
            if happening.warning {
                "Warning"
            } else {
                "Normal"
            }
            .to_owned(),
        ),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        count: Some(1),
        ..Event::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(uid: &str) -> ObjectReference {
        ObjectReference {
            uid: Some(uid.to_owned()),
            name: Some("web".to_owned()),
            namespace: Some("default".to_owned()),
            ..ObjectReference::default()
        }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + seconds).unwrap()
    }

    #[test]
    fn what_happens_again_is_counted_in_one_event_with_its_newest_text() {
        let mut series = Series::new(at(0));
        let web = object("a");
        let first = series.add(&web, Happening::warning("NotApplied", "one"), at(0));
        let Step::Create(event) = first else {
            panic!("{first:?}")
        };
        assert_eq!(event.count, Some(1));
        for second in 1..=1_000 {
            let again = series.add(
                &web,
                Happening::warning("NotApplied", "two"),
                at(second / 10),
            );
            assert!(matches!(again, Step::Count), "{again:?}");
        }
        let due = series.due(at(100));
        assert_eq!(due.len(), 1);
        assert_eq!(
            (due[0].count, due[0].message.as_deref()),
            (Some(1_001), Some("two"))
        );
        assert_eq!(due[0].metadata.name, event.metadata.name);
        assert!(series.due(at(100)).is_empty(), "told");
        let later = series.add(&web, Happening::warning("NotApplied", "two"), at(1_000));
        assert!(matches!(later, Step::Create(_)), "a new series");
    }

    #[test]
    fn an_object_and_all_objects_have_their_share() {
        let mut series = Series::new(at(0));
        let reasons: Vec<&'static str> = (0..40).map(|n| &*format!("R{n}").leak()).collect();
        let created = |series: &mut Series, uid: &str| {
            let web = object(uid);
            let steps = reasons
                .iter()
                .map(|reason| series.add(&web, Happening::normal(*reason, "x"), at(0)));
            steps.filter(|step| matches!(step, Step::Create(_))).count()
        };
        assert_eq!(created(&mut series, "a"), 25);
        let all: usize = ["b", "c", "d", "e", "f"]
            .iter()
            .map(|uid| created(&mut series, uid))
            .sum();
        assert_eq!(all, 75, "100 with those of the first");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut series = Series::new(at(0));
        for n in 0..5_000 {
            series.add(
                &object(&n.to_string()),
                Happening::normal("Applied", "x"),
                at(n),
            );
        }
        assert!(series.known.len() <= REMEMBERED && series.objects.len() <= REMEMBERED);
    }
}
