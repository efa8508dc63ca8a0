//! A hub's works on a bus.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_api::work::RawManifestWork;
use muster_cloudevents::bus::Bus;
use muster_cloudevents::client::{ClientOptions, SourceClient};
use muster_cloudevents::work::{Form, WorkCodec};
use muster_cloudevents::{Dialect, Source};
use tokio::sync::watch;

use super::hub::{AgentPresence, Change, HubWorks};
use super::{EventLink, EventsError};

/// How a hub sends its works.
#[derive(Debug, Clone)]
pub struct SourceEvents {
    /// The id of the hub among sources.
    pub source: String,
    /// Who talks to whom how.
    pub dialect: Dialect,
    /// How works are put into data.
    pub form: Form,
    /// Clusters whose agents get their works another way.
    pub others: std::collections::BTreeSet<String>,
    /// How the client behaves.
    pub options: ClientOptions,
}

/// A hub's works as a source. Whoever watches the works in the hub's API tells of each step; after
/// the first list it can [join](HubEvents::join) a bus. Clones are the same.
#[derive(Debug, Clone)]
pub struct HubEvents {
    works: Arc<HubWorks>,
    client: SourceClient<WorkCodec, HubWorks>,
}

impl HubEvents {
    /// A source of the works that this client reaches. Has to be called on the runtime that is to
    /// carry it.
    ///
    /// # Errors
    ///
    /// The source's id does not go with the topics.
    pub fn new(events: SourceEvents, hub: kube::Client) -> Result<Self, EventsError> {
        let codec = WorkCodec(events.form);
        let source = Source::new(events.source, events.dialect, codec)?;
        let works = HubWorks::new(hub, codec, events.others);
        let client = SourceClient::new(source, Arc::clone(&works), events.options);
        Ok(Self { works, client })
    }

    /// Joins a bus. Has to be called once the works have been listed: what a source does not have
    /// goes from the clusters.
    pub fn join(&self, bus: &dyn Bus) -> EventLink {
        let subscription = self.client.subscribe(bus);
        let client = self.client.clone();
        EventLink::new(self.client.state(), move || client.waiting(), subscription)
    }

    /// The works are about to be listed.
    pub fn listing(&self) {
        self.works.listing();
    }

    /// A work is there, or has changed.
    pub fn seen(&self, work: &RawManifestWork) {
        let uid = work.metadata.uid.as_deref().unwrap_or_default();
        match self.works.seen(work) {
            Change::Created => self.client.created(uid),
            Change::Changed => self.client.changed(uid),
            // What changed while nobody watched may be new to its agent.
            Change::Listed => self.client.refresh(uid),
            Change::Nothing => {}
        }
    }

    /// A work is gone. Its agent is told, unless it was the one to say so.
    pub fn gone(&self, uid: &str) {
        if self.works.gone(uid) == Change::Changed {
            self.client.changed(uid);
        }
    }

    /// All works have been listed.
    pub fn listed(&self) {
        for uid in self.works.listed() {
            self.client.changed(&uid);
        }
    }

    /// Works that there are.
    pub fn works(&self) -> usize {
        self.works.len()
    }

    /// Which agents are connected, as far as they say.
    pub fn agents(&self) -> watch::Receiver<BTreeMap<String, AgentPresence>> {
        self.works.agents()
    }
}
