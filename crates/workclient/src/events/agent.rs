//! An agent's works by events.

use std::collections::HashSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ListParams;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use muster_api::work::{ManifestWork, RawManifestWork};
use muster_apiserver::{ApiServer, Storage};
use muster_cloudevents::bus::Bus;
use muster_cloudevents::client::{AgentClient, ClientOptions, ConnectionState};
use muster_cloudevents::work::{Form, MOST_CONTENT_BYTES, WorkCodec};
use muster_cloudevents::{Agent, Dialect};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tracing::{debug, warn};

use super::local::LocalWorks;
use super::{EventLink, EventsError, HubLink, sequence_file};

/// How an agent gets its works.
#[derive(Debug, Clone)]
pub struct AgentEvents {
    /// The cluster.
    pub cluster: String,
    /// The agent's id in its events.
    pub agent: String,
    /// Who talks to whom how.
    pub dialect: Dialect,
    /// How works are put into data.
    pub form: Form,
    /// File that works are kept in over restarts; without one they are asked for anew.
    pub file: Option<PathBuf>,
    /// How the client behaves.
    pub options: ClientOptions,
}

/// An agent's works: an API server that has them, kept like the sources have them, until this is
/// dropped.
pub struct AgentWorks {
    server: ApiServer,
    api: Api<RawManifestWork>,
    works: Arc<LocalWorks>,
    agent: Works,
    link: EventLink,
    heard: watch::Receiver<Option<Timestamp>>,
    watch: AbortHandle,
}

impl fmt::Debug for AgentWorks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentWorks")
            .field("link", &self.link)
            .finish_non_exhaustive()
    }
}

impl Drop for AgentWorks {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

impl AgentWorks {
    /// Starts; the broker may be away. Has to be called on the runtime that is to carry it.
    ///
    /// # Errors
    ///
    /// The cluster has a name that no topic can have, or the file cannot be used.
    pub async fn start(events: AgentEvents, bus: &dyn Bus) -> Result<Self, EventsError> {
        let codec = WorkCodec(events.form);
        let agent = Agent::new(events.agent, &*events.cluster, events.dialect, codec)?;
        let agent = match &events.file {
            Some(file) => sequence_file::keep(agent, file),
            None => agent,
        };
        let server = ApiServer::builder()
            .storage(events.file.map_or(Storage::Memory, Storage::Redb))
            .crd(local_definition())
            .build()
            .await?;
        let mirror = server.mirror::<ManifestWork>()?;
        let works = Arc::new(LocalWorks::new(mirror, &events.cluster, codec));
        let client = AgentClient::new(agent, Arc::clone(&works), events.options);
        let api = Api::namespaced(server.uncounted_client(), &events.cluster);
        let following = follow(api.clone(), Arc::clone(&works), client.clone());
        let watch = tokio::spawn(following).abort_handle();
        let subscription = client.subscribe(bus);
        let heard = client.heard();
        let waiting = client.clone();
        let link = EventLink::new(client.state(), move || waiting.waiting(), subscription);
        Ok(Self {
            server,
            api,
            works,
            agent: client,
            link,
            heard,
            watch,
        })
    }

    /// A client of the API that has the works.
    pub fn client(&self) -> Client {
        self.server.client()
    }

    /// The link to the bus.
    pub const fn link(&self) -> &EventLink {
        &self.link
    }

    /// How the link goes, for the agent.
    pub fn hub_link(&self) -> HubLink {
        HubLink {
            state: self.link.state(),
            heard: self.heard.clone(),
        }
    }

    /// Tells what has not been told, for at most two seconds; then ends the API and waits until all
    /// writes are on disk. For an agent that has stopped.
    pub async fn close(&self) {
        if tokio::time::timeout(LAST_WORDS, self.tell_the_last())
            .await
            .is_err()
        {
            debug!(waiting = self.agent.waiting(), "ends without telling all");
        }
        self.server.clone().shutdown().await;
    }

    /// Statuses that the agent wrote just before it stopped may not have come by the watch yet.
    async fn tell_the_last(&self) {
        if let Ok(works) = self.api.list(&ListParams::default()).await {
            let told = works.iter().filter_map(|work| self.works.seen(work));
            told.for_each(|uid| self.agent.changed(&uid));
        }
        let mut looks = tokio::time::interval(Duration::from_millis(5));
        let is_connected = || *self.agent.state().borrow() == ConnectionState::Subscribed;
        while self.agent.waiting() > 0 && is_connected() {
            looks.tick().await;
        }
    }
}

/// The definition of works in the agent's own API. The hub's has a limit of 1,024 bytes for a value that
/// is JSON; what a source takes is its own affair, and the agent's settings say how much is sent.
fn local_definition() -> CustomResourceDefinition {
    let mut definition = muster_api::crds::definition::<ManifestWork>();
    let schemas = definition.spec.versions.iter_mut();
    let schemas =
        schemas.filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut());
    for schema in schemas {
        raise_json_limit(schema);
    }
    definition
}

/// Definitions are a few levels deep: this ends where they do.
fn raise_json_limit(schema: &mut JSONSchemaProps) {
    for (name, property) in schema.properties.iter_mut().flatten() {
        if name == "jsonRaw" {
            property.max_length = i64::try_from(MOST_CONTENT_BYTES).ok();
        }
        raise_json_limit(property);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        raise_json_limit(items);
    }
}

/// How long an agent that ends goes on telling.
const LAST_WORDS: Duration = Duration::from_secs(2);

type Works = AgentClient<WorkCodec, LocalWorks>;

/// Tells of each status that the agent writes, and of each work that it is done with.
async fn follow(api: Api<RawManifestWork>, works: Arc<LocalWorks>, client: Works) {
    let tell = |uid: Option<String>| {
        if let Some(uid) = uid {
            client.changed(&uid);
        }
    };
    let gone = |uid: &str, meta: Option<&ObjectMeta>| works.gone(uid, meta);
    let mut missing: HashSet<String> = HashSet::new();
    let mut events = watcher(api, watcher::Config::default())
        .default_backoff()
        .boxed();
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Init) => missing = works.expected().into_iter().collect(),
            Ok(watcher::Event::InitApply(work)) => {
                missing.remove(work.metadata.uid.as_deref().unwrap_or_default());
                tell(works.seen(&work));
            }
            Ok(watcher::Event::InitDone) => {
                for uid in missing.drain() {
                    debug!(uid, "a work went while nobody looked");
                    tell(gone(&uid, None));
                }
            }
            Ok(watcher::Event::Apply(work)) => tell(works.seen(&work)),
            Ok(watcher::Event::Delete(work)) => {
                let uid = work.metadata.uid.clone().unwrap_or_default();
                tell(gone(&uid, Some(&work.metadata)));
            }
            Err(error) => warn!(%error, "the store of works is watched anew"),
        }
    }
}
