//! Kubernetes Events: what `kubectl describe` shows of an object under `Events`.
//!
//! ```text
//! Recorder::tell ──► queue ──► series: the same again is counted ──► API
//!                (bounded)     allowances: by object, and over all
//! ```
//!
//! They are told once and never waited for: a status says how things stand, an Event only when they
//! came to. What does not fit is dropped and counted. `core/v1` is written, which `kubectl describe`
//! asks for on every server.

mod metrics;
mod series;

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Event, ObjectReference};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::ObjectMeta;
use kube::{Api, Client, ResourceExt};
use muster_core::events::Happening;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::{debug, warn};

pub use metrics::METRICS;
use series::{Series, Step};

use crate::supervision::{Io, Running};

/// Events that may wait: a burst of a set with some hundred clusters, of which the allowances let
/// about as many through.
const QUEUE: usize = 256;
/// How often counts of what happens again are brought to the API.
const FLUSH: Duration = Duration::from_secs(10);
/// How long Events are kept where the API server does not expire them itself: what kube-apiserver
/// keeps them.
const KEPT: SignedDuration = SignedDuration::from_hours(1);
/// How often old ones are looked for there.
const PRUNE: Duration = Duration::from_secs(10 * 60);
/// Events in one answer.
const PAGE: u32 = 500;

/// Tells Events. Cheap to clone; ends with its last clone.
#[derive(Debug, Clone)]
pub struct Recorder(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    sender: mpsc::Sender<(ObjectReference, Happening)>,
    _task: Running<()>,
}

/// Where and as whom Events are told.
#[derive(Debug, Clone)]
pub struct Reporter {
    /// Name of the part of muster: `muster-hub`.
    pub component: &'static str,
    /// Whether this recorder also deletes what is older than an hour, since the API server does not.
    pub prunes: bool,
}

impl Recorder {
    /// Starts telling.
    pub fn start(io: &Io, client: Client, reporter: Reporter) -> Self {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let task = io.run(run(client, reporter, receiver));
        Self(Arc::new(Inner {
            sender,
            _task: task,
        }))
    }

    /// Tells what has happened to an object, as soon as that can be.
    pub fn tell(&self, about: ObjectReference, happening: Happening) {
        if self.0.sender.try_send((about, happening)).is_err() {
            metrics::told("dropped");
        }
    }
}

/// The API of Events, and whether it is any use.
struct Writer {
    client: Client,
    reporter: Reporter,
    /// What it refused last, so that it is logged once.
    refused: Option<String>,
}

async fn run(
    client: Client,
    reporter: Reporter,
    mut receiver: mpsc::Receiver<(ObjectReference, Happening)>,
) {
    let mut series = Series::new(Timestamp::now());
    let mut flush = interval(FLUSH);
    flush.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut pruned = Instant::now();
    let mut writer = Writer {
        client,
        reporter,
        refused: None,
    };
    loop {
        tokio::select! {
            told = receiver.recv() => {
                let Some((about, happening)) = told else { return };
                match series.add(&about, happening, Timestamp::now()) {
                    Step::Create(event) => {
                        let created = writer.create(*event).await;
                        metrics::told(if created { "created" } else { "error" });
                    }
                    Step::Count => metrics::told("repeated"),
                    Step::Drop => metrics::told("dropped"),
                }
            }
            _ = flush.tick() => {
                for event in series.due(Timestamp::now()) {
                    writer.update(event).await;
                }
                if writer.reporter.prunes && pruned.elapsed() >= PRUNE {
                    pruned = Instant::now();
                    writer.prune(Timestamp::now() - KEPT).await;
                }
            }
        }
    }
}

impl Writer {
    fn api(&self, event: &Event) -> Api<Event> {
        let namespace = event.metadata.namespace.as_deref().unwrap_or("default");
        Api::namespaced(self.client.clone(), namespace)
    }

    async fn create(&mut self, mut event: Event) -> bool {
        let component = self.reporter.component;
        event.reporting_component = Some(component.to_owned());
        event.source = Some(k8s_openapi::api::core::v1::EventSource {
            component: Some(component.to_owned()),
            host: None,
        });
        let result = self
            .api(&event)
            .create(&PostParams::default(), &event)
            .await;
        self.answered(result.map(|_| ()))
    }

    /// Brings a count to the API; an Event that has expired there is created anew.
    async fn update(&mut self, event: Event) {
        let patch = json!({"count": event.count, "lastTimestamp": event.last_timestamp,
            "message": event.message});
        let api = self.api(&event);
        let (name, patch) = (event.name_any(), Patch::Merge(patch));
        match api.patch(&name, &PatchParams::default(), &patch).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {
                self.create(event).await;
            }
            result => {
                self.answered(result.map(|_| ()));
            }
        }
    }

    fn answered(&mut self, result: kube::Result<()>) -> bool {
        match result {
            Ok(()) => {
                self.refused = None;
                true
            }
            Err(error) => {
                let text = error.to_string();
                if self.refused.as_ref() == Some(&text) {
                    debug!(error = text, "failed to write an Event again");
                } else {
                    warn!(error = text, "failed to write an Event");
                }
                self.refused = Some(text);
                false
            }
        }
    }

    /// Deletes Events of this reporter that were last seen before `limit`.
    async fn prune(&self, limit: Timestamp) {
        let all: Api<Event> = Api::all(self.client.clone());
        let mut params = ListParams::default().limit(PAGE);
        loop {
            let Ok(page) = all.list(&params).await else {
                return; // the next look is not far
            };
            for event in page.items {
                let ours = event.reporting_component.as_deref() == Some(self.reporter.component);
                let old = event.last_timestamp.as_ref().is_some_and(|at| at.0 < limit);
                if ours && old {
                    let name = event.name_any();
                    if let Err(error) = self
                        .api(&event)
                        .delete(&name, &DeleteParams::default())
                        .await
                    {
                        debug!(%error, "failed to delete an old Event");
                    }
                }
            }
            match page.metadata.continue_ {
                Some(token) if !token.is_empty() => params = params.continue_token(&token),
                _ => return,
            }
        }
    }
}

/// What an Event refers to.
pub fn reference(api_version: &str, kind: &str, meta: &ObjectMeta) -> ObjectReference {
    ObjectReference {
        api_version: Some(api_version.to_owned()),
        kind: Some(kind.to_owned()),
        name: meta.name.clone(),
        namespace: meta.namespace.clone(),
        uid: meta.uid.clone(),
        resource_version: None,
        field_path: None,
    }
}
