//! Watch rules: a cluster with types for them, an agent that follows them, and a sink that tells
//! what it was told.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use actix::Addr;
use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use futures::future::BoxFuture;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use muster_actors::agent::{self, AgentDeps, AgentSettings, ClusterAgent};
use muster_actors::hub::register_cluster;
use muster_actors::rules::{RuleSettings, RulesDeps, SinkMaker};
use muster_actors::sinks::{Sink, SinkError};
use muster_actors::supervision::{Health, Io, Registry, stop};
use muster_api::rules::WatchRule;
use muster_apiserver::{ApiServer, Storage};
use muster_core::rule_events::{Event, Room};
use muster_core::watch_plan::WatchLimits;
use muster_core::watch_rules::Exclusions;
use serde_json::json;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::agent::CLUSTER;
use super::servers;

/// Name of the sink that the rules of benches name.
pub const SINK: &str = "sink";
/// Namespace of all rules, and of what they watch.
pub const NAMESPACE: &str = "default";

const GROUP: &str = "bench.example.com";
const PATIENCE: Duration = Duration::from_secs(60);
/// How exactly a bench sees that a watch was opened or closed.
const LOOK_EACH: Duration = Duration::from_millis(1);

/// Plural of the `number`th type.
pub fn plural(number: usize) -> String {
    format!("things{number:02}")
}

/// The `number`th type, as the server counts its requests.
pub fn counted(number: usize) -> String {
    format!("{}.{GROUP}", plural(number))
}

fn kind(number: usize) -> String {
    format!("Thing{number:02}")
}

/// Objects of the `number`th type.
pub fn things(client: &Client, number: usize) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk(GROUP, "v1", &kind(number));
    let resource = ApiResource::from_gvk_with_plural(&gvk, &plural(number));
    Api::namespaced_with(client.clone(), NAMESPACE, &resource)
}

/// A cluster that knows rules and so many types, with so many objects of each.
pub async fn cluster(types: usize, objects: usize) -> Result<ApiServer> {
    let mut builder = ApiServer::builder().storage(Storage::Memory);
    for crd in [muster_api::crds::spoke(), muster_api::crds::rules()].concat() {
        builder = builder.crd(crd);
    }
    for number in 0..types {
        let (plural, kind) = (plural(number), kind(number));
        let crd = json!({"metadata": {"name": counted(number)},
            "spec": {"group": GROUP, "scope": "Namespaced",
                "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema":
                    {"openAPIV3Schema": {"type": "object",
                        "x-kubernetes-preserve-unknown-fields": true}}}]}});
        builder = builder.crd(serde_json::from_value(crd)?);
    }
    let api = builder.build().await?;
    for number in 0..types {
        let things = things(&api.client(), number);
        for object in 0..objects {
            let object = json!({"apiVersion": format!("{GROUP}/v1"), "kind": kind(number),
                "metadata": {"name": format!("thing-{object:03}")},
                "data": {"key": "value".repeat(20)}});
            let object: DynamicObject = serde_json::from_value(object)?;
            things.create(&PostParams::default(), &object).await?;
        }
    }
    Ok(api)
}

fn rules(client: &Client) -> Api<WatchRule> {
    Api::namespaced(client.clone(), NAMESPACE)
}

/// A rule for these resources, of whichever group has them.
pub fn rule(name: &str, resources: &[String]) -> Result<WatchRule> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "rules.muster.dev/v1alpha1", "kind": "WatchRule",
        "metadata": {"namespace": NAMESPACE, "name": name},
        "spec": {"destination": SINK, "rules": [{"resources": resources}]}}))?)
}

/// Creates the rule, or replaces what it selects.
pub async fn put_rule(client: &Client, name: &str, resources: &[String]) -> Result<()> {
    let mut rule = serde_json::to_value(rule(name, resources)?)?;
    if let Some(rule) = rule.as_object_mut() {
        rule.remove("status");
    }
    let params = PatchParams::apply("bench").force();
    rules(client)
        .patch(name, &params, &Patch::Apply(&rule))
        .await?;
    Ok(())
}

/// Deletes it.
pub async fn delete_rule(client: &Client, name: &str) -> Result<()> {
    rules(client).delete(name, &DeleteParams::default()).await?;
    Ok(())
}

/// Looks at the server until this is so.
pub async fn until(api: &ApiServer, what: &str, so: impl Fn(&ApiServer) -> bool) -> Result<()> {
    let looks = async {
        while !so(api) {
            tokio::time::sleep(LOOK_EACH).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, looks).await;
    waited.with_context(|| format!("waited {PATIENCE:?} for {what}"))
}

/// How often each of these types has been watched so far.
pub fn watched(api: &ApiServer, types: impl Iterator<Item = usize>) -> Vec<u64> {
    let stats = api.stats();
    types
        .map(|number| stats.count("watch", &counted(number)))
        .collect()
}

/// Rules with the settings of muster's defaults, but for the debounce, and their sink.
pub fn rules_of(debounce: Duration, sink: Arc<dyn SinkMaker>) -> RulesDeps {
    RulesDeps {
        settings: RuleSettings {
            debounce,
            debounce_max: debounce * 3 / 2,
            heartbeat: Duration::from_secs(30),
            wholesale: true,
            room: Room::default(),
            never_watch: Exclusions::default(),
            data_dir: None,
            discovery_limit: Duration::from_secs(15),
        },
        sinks: BTreeMap::from([(SINK.to_owned(), sink)]),
    }
}

/// A sink that tells what it was told.
#[derive(Debug, Clone)]
struct Ear(UnboundedSender<Event>);

impl SinkMaker for Ear {
    fn make(&self, _: &str, _: bool) -> Box<dyn Sink> {
        Box::new(self.clone())
    }
}

impl Sink for Ear {
    fn deliver<'a>(&'a mut self, events: &'a [Event]) -> BoxFuture<'a, Result<(), SinkError>> {
        for event in events {
            let _ = self.0.send(event.clone()); // nobody listens: the bench is over
        }
        std::future::ready(Ok(())).boxed()
    }
}

/// An agent with rules, in this process.
pub struct Ruled {
    /// Its cluster.
    pub api: ApiServer,
    /// A client of it.
    pub client: Client,
    /// What its sink was told.
    pub heard: UnboundedReceiver<Event>,
    agent: Addr<ClusterAgent>,
    registry: Registry,
    _hub: ApiServer,
}

impl Ruled {
    /// Starts it on this cluster, with so many watches at most.
    pub async fn start(api: ApiServer, debounce: Duration, max_watches: usize) -> Result<Self> {
        let hub = servers::hub_api().await?;
        register_cluster(&hub.client(), CLUSTER, &[].into()).await?;
        let (client, registry) = (api.client(), Registry::new());
        let (ear, heard) = unbounded_channel();
        let agent = agent::start(AgentDeps {
            cluster: CLUSTER.to_owned(),
            hub: hub.client(),
            hub_link: None,
            hub_id: "loopback".to_owned(),
            agent_id: None,
            rules: Some(rules_of(debounce, Arc::new(Ear(ear)))),
            spoke: client.clone(),
            settings: AgentSettings {
                watch: WatchLimits {
                    max_watches,
                    ..WatchLimits::default()
                },
                ..AgentSettings::default()
            },
            io: Io::current(),
            registry: registry.clone(),
            health: Health::new(),
        });
        Ok(Self {
            api,
            client,
            heard,
            agent,
            registry,
            _hub: hub,
        })
    }

    /// Looks at its cluster until this is so.
    pub async fn until(&self, what: &str, so: impl Fn(&ApiServer) -> bool) -> Result<()> {
        until(&self.api, what, so).await
    }

    /// Ends it.
    pub async fn end(self) -> Result<()> {
        let ended = stop(&self.agent, Duration::from_secs(20)).await;
        ensure!(ended, "the agent does not end");
        let ended = self.registry.ended(Duration::from_secs(5)).await;
        ended.map_err(|left| anyhow::anyhow!("still there: {left:?}"))
    }
}
