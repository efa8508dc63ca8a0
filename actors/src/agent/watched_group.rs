//! Watched objects without a work around them, so that benches can tell what watching costs.

use std::collections::HashMap;
use std::sync::Arc;

use actix::Recipient;
use muster_api::work::{FeedbackRule, ManifestResourceMeta};
use muster_core::feedback::{FeedbackLimits, FeedbackPlan};

use super::manifest::key_of;
use super::observer::{Inbox, Sight, Sighted};
use super::reconcile::Plans;
use super::watched::Watched;
use crate::watch::{Subscriber as _, WatchedObject, Watches};

/// What a work keeps of the objects that it watches. They are dropped with it.
#[derive(Debug, Default)]
pub struct WatchedGroup {
    inbox: Arc<Inbox>,
    watched: HashMap<Arc<str>, Watched>,
}

impl WatchedGroup {
    /// Whom to tell when [`WatchedGroup::report`] has something.
    pub fn belongs_to(&self, work: Recipient<Sighted>) {
        self.inbox.belongs_to(work);
    }

    /// Watches an object. As in a work, its rules are compiled for it alone.
    pub fn watch(
        &mut self,
        watches: &Arc<Watches>,
        meta: &ManifestResourceMeta,
        rules: &[FeedbackRule],
    ) {
        let key: Arc<str> = key_of(meta).into();
        let plans = Plans {
            feedback: Arc::new(FeedbackPlan::compile(rules)),
            ..Plans::default()
        };
        let limits = FeedbackLimits::default();
        let begun = Watched::begin(watches, &self.inbox, meta, Arc::clone(&key), plans, limits);
        self.watched.insert(key, begun);
    }

    /// Shows an object in this state, in the place of a watch.
    pub fn show(&self, object: &ManifestResourceMeta, state: &Arc<WatchedObject>) {
        if let Some(watched) = self.watched.get(&*key_of(object)) {
            watched.observer.seen(state);
        }
    }

    /// Reads the values of every object that has changed, as a report to the hub does before it is
    /// written; says how many objects there were.
    pub fn report(&mut self) -> usize {
        let (sightings, _) = self.inbox.drain();
        let news = sightings.into_iter().filter(|(key, sighting)| {
            let Some(watched) = self.watched.get_mut(key) else {
                return false;
            };
            let Sight::Present(object) = &sighting.object else {
                return false;
            };
            let observer = &watched.observer;
            let Ok(value) = observer.decode(object) else {
                return false;
            };
            let feedback = observer.plans.feedback.evaluate(&value, observer.limits);
            std::hint::black_box(feedback);
            watched.note(&sighting.object);
            true
        });
        news.count()
    }
}
