//! What a work remembers of an object that it has watched.

use std::sync::Arc;
use std::time::Duration;

use muster_api::work::ManifestResourceMeta;
use muster_core::feedback::{Feedback, FeedbackLimits};
use muster_core::watch_plan::Resource;
use serde_json::Value;
use tokio::time::Instant;

use super::metrics;
use super::observer::{Inbox, Observer, Sight, Sighting};
use super::reconcile::Plans;
use crate::watch::{Coverage, ObjectPath, Subscriber, Subscription, Watches};

/// How long a watch may take to show what a poll has read, before it counts as missed.
const WITHIN: Duration = Duration::from_secs(5);

/// How the work itself last read the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// It was not there.
    Absent,
    /// At this resource version; 0 if that is no number.
    Version(u64),
}

impl Reading {
    pub(super) fn of(object: &Value) -> Self {
        let version = object["metadata"]["resourceVersion"].as_str();
        Self::Version(version.and_then(|text| text.parse().ok()).unwrap_or(0))
    }
}

/// An object that is watched for a work; dropped, it is so no more.
#[derive(Debug)]
pub(super) struct Watched {
    /// Place of its manifest in the work.
    pub(super) ordinal: i32,
    pub(super) observer: Arc<Observer>,
    subscription: Subscription,
    read: Option<Reading>,
    /// A poll has seen other values in this version than the watch, at this time.
    ahead: Option<(u64, Instant)>,
}

impl Watched {
    pub(super) fn begin(
        watches: &Arc<Watches>,
        inbox: &Arc<Inbox>,
        meta: &ManifestResourceMeta,
        key: Arc<str>,
        plans: Plans,
        limits: FeedbackLimits,
    ) -> Self {
        let resource = Resource::new(&*meta.group, &*meta.version, &*meta.resource);
        let observer = Arc::new(Observer::new(
            Arc::clone(inbox),
            key,
            resource.clone(),
            &meta.kind,
            plans,
            limits,
        ));
        let path = ObjectPath {
            resource,
            namespace: meta.namespace.as_str().into(),
            name: meta.name.as_str().into(),
        };
        let subscriber: Arc<dyn Subscriber> = Arc::clone(&observer) as _;
        Self {
            ordinal: meta.ordinal,
            observer,
            subscription: watches.subscribe(path, subscriber),
            read: None,
            ahead: None,
        }
    }

    /// Whether it is watched for these values.
    pub(super) fn is_for(&self, plans: &Plans, limits: FeedbackLimits) -> bool {
        let known = &self.observer.plans;
        let same_feedback = Arc::ptr_eq(&known.feedback, &plans.feedback)
            || known.feedback.is_empty() && plans.feedback.is_empty();
        let same_rules =
            known.rules.is_same(&plans.rules) || known.rules.is_empty() && plans.rules.is_empty();
        same_feedback && same_rules && self.observer.limits == limits
    }

    /// The work has read the object itself. A watch that shows other values, and goes on doing so,
    /// has missed a change: no user notices, since the work polls, but nothing should ever be missed.
    pub(super) fn read(&mut self, reading: Reading, feedback: Option<&Feedback>) {
        self.read = Some(reading);
        let (watched, seen) = (self.is_watched(), self.observer.version());
        if let Some((version, since)) = self.ahead {
            if seen >= version || !watched {
                self.ahead = None;
            } else if since.elapsed() >= WITHIN {
                metrics::watch_missed();
                self.subscription.mistrust();
                self.ahead = None;
            }
        }
        if let (Reading::Version(version), Some(feedback)) = (reading, feedback)
            && version > seen
            && watched
            && self.ahead.is_none()
            && self.observer.differs(feedback) == Some(true)
        {
            self.ahead = Some((version, Instant::now()));
        }
    }

    /// Whether the work has not seen this for itself.
    pub(super) fn is_news(&self, sighting: &Sighting) -> bool {
        match (&sighting.object, self.read) {
            (Sight::Present(object), Some(Reading::Version(read))) => {
                read == 0 || object.version() > read
            }
            (Sight::Deleted(at), Some(Reading::Version(read))) => read == 0 || *at > read,
            (Sight::Deleted(_) | Sight::Absent, Some(Reading::Absent)) => false,
            (Sight::Absent, Some(Reading::Version(_)))
            | (Sight::Present(_), Some(Reading::Absent))
            | (_, None) => true,
        }
    }

    /// The work has taken note of this.
    pub(super) fn note(&mut self, sight: &Sight) {
        match sight {
            Sight::Present(object) => self.read = Some(Reading::Version(object.version())),
            Sight::Deleted(_) => self.read = Some(Reading::Absent),
            Sight::Absent => {}
        }
    }

    fn is_watched(&self) -> bool {
        self.subscription.coverage() == Coverage::Watched
    }

    /// Why the object is polled instead, for people.
    pub(super) fn polled(&self) -> Option<String> {
        match self.subscription.coverage() {
            Coverage::Opening | Coverage::Watched => None,
            Coverage::Polled(why) => Some(why.to_string()),
        }
    }
}
