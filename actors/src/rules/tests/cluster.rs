//! Rules on an embedded cluster, on a paused clock.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use muster_api::rules::{ClusterWatchRule, WatchRule, WatchRuleStatus};
use muster_apiserver::{ApiServer, Storage};
use muster_core::rule_events::Room;
use muster_core::watch_plan::WatchLimits;
use muster_core::watch_rules::Exclusions;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{Ear, eventually};
use crate::rules::{ClusterDeps, RuleSettings, Rules, RulesDeps, SinkMaker};
use crate::sinks::Sink;
use crate::supervision::{Health, Io, Registry, Snapshot, stop};
use crate::watch::tests::Gate;
use crate::watch::{RestartAreas, WatchSupervisor, Watches};

impl std::fmt::Debug for Ear {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ear")
    }
}

impl SinkMaker for Ear {
    fn make(&self, _: &str, _: bool) -> Box<dyn Sink> {
        Box::new(self.clone())
    }
}

pub(super) struct Ruled {
    pub(super) server: ApiServer,
    pub(super) gate: Gate,
    pub(super) ears: BTreeMap<&'static str, Ear>,
    pub(super) rules: Rules,
    pub(super) watches: actix::Addr<WatchSupervisor>,
    pub(super) registry: Registry,
}

/// How many changes of a type the server remembers.
pub(super) const HISTORY: usize = 100;
pub(super) const MAPS_OF_A: &str = "/api/v1/namespaces/a/configmaps";
const MAPS: &str = "/api/v1/configmaps";

pub(super) fn item(resources: &[&str]) -> Value {
    json!({"resources": resources})
}

/// How a life begins.
pub(super) struct Start {
    /// Of an earlier life.
    pub(super) server: Option<ApiServer>,
    pub(super) gate: Gate,
    pub(super) data_dir: Option<PathBuf>,
    pub(super) wholesale: bool,
    pub(super) max_watches: usize,
    pub(super) heartbeat: Duration,
}

impl Default for Start {
    fn default() -> Self {
        Self {
            server: None,
            gate: Gate::default(),
            data_dir: None,
            wholesale: true,
            max_watches: 20,
            heartbeat: Duration::from_secs(30),
        }
    }
}

impl Start {
    /// Another life, or the first, of an agent that keeps what it told in this folder.
    pub(super) fn keeping(folder: &tempfile::TempDir, server: Option<&ApiServer>) -> Self {
        Self {
            server: server.cloned(),
            data_dir: Some(folder.path().to_owned()),
            ..Self::default()
        }
    }
}

/// With namespaces a and b.
async fn new_server() -> ApiServer {
    let mut server = ApiServer::builder()
        .storage(Storage::Memory)
        .watch_history(HISTORY);
    for crd in muster_api::crds::rules() {
        server = server.crd(crd);
    }
    let server = server.build().await.unwrap();
    for name in ["a", "b"] {
        let namespace = json!({"metadata": {"name": name}});
        let namespace: Namespace = serde_json::from_value(namespace).unwrap();
        let api = Api::all(server.client());
        api.create(&PostParams::default(), &namespace)
            .await
            .unwrap();
    }
    server
}

impl Ruled {
    pub(super) async fn start() -> Self {
        Self::start_as(Start::default()).await
    }

    async fn start_with(wholesale: bool, max_watches: usize) -> Self {
        Self::start_as(Start {
            wholesale,
            max_watches,
            ..Start::default()
        })
        .await
    }

    /// With a rule for the config maps of namespace a that is followed.
    pub(super) async fn with_maps() -> Self {
        let ruled = Self::start().await;
        let items = json!([item(&["configmaps"])]);
        ruled.put("maps", "one", items).await;
        ruled.reason_is("maps", "Watching").await;
        ruled
    }

    pub(super) async fn start_as(start: Start) -> Self {
        let Start {
            server,
            gate,
            data_dir,
            wholesale,
            max_watches,
            heartbeat,
        } = start;
        tokio::time::pause();
        let server = match server {
            Some(server) => server,
            None => new_server().await,
        };
        let watches = Watches::new();
        let client: Client = gate.client(server.client());
        let (registry, health) = (Registry::new(), Health::new());
        let limits = WatchLimits {
            max_watches,
            ..WatchLimits::default()
        };
        let supervisor = WatchSupervisor::new(
            "c1",
            client.clone(),
            Arc::clone(&watches),
            limits,
            Io::current(),
            registry.clone(),
            health.clone(),
        );
        let supervisor = registry.start("WatchSupervisor", "c1", supervisor);
        let of = ClusterDeps {
            cluster: "c1".to_owned(),
            client,
            io: Io::current(),
            registry: registry.clone(),
            health,
            watches,
            supervisor: supervisor.clone(),
        };
        let ears: BTreeMap<&'static str, Ear> =
            ["one", "two"].map(|name| (name, Ear::new())).into();
        let sinks = ears
            .iter()
            .map(|(name, ear)| ((*name).to_owned(), Arc::new(ear.clone()) as _));
        let rules = Rules::start(
            of,
            RulesDeps {
                settings: RuleSettings {
                    debounce: Duration::from_secs(2),
                    debounce_max: Duration::from_secs(3),
                    heartbeat,
                    wholesale,
                    room: Room::default(),
                    never_watch: Exclusions::default(),
                    data_dir,
                    discovery_limit: Duration::from_secs(15),
                },
                sinks: sinks.collect(),
            },
        );
        let world = Self {
            server,
            gate,
            ears,
            rules,
            watches: supervisor,
            registry,
        };
        // Until the rules are known nothing is planned; the first plan is not one of theirs.
        let ready = async {
            loop {
                let store = world.rules.store.send(Snapshot).await.unwrap();
                let supervisor = world.supervisor().await;
                if store["ready"] == true && supervisor["revision"] != 0 {
                    break;
                }
                sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), ready)
            .await
            .unwrap();
        // The plan of the first state is over.
        sleep(Duration::from_secs(4)).await;
        world
    }

    pub(super) async fn supervisor(&self) -> Value {
        self.rules.supervisor.send(Snapshot).await.unwrap()
    }

    pub(super) async fn updates(&self) -> u64 {
        self.supervisor().await["updates"].as_u64().unwrap()
    }

    pub(super) async fn put(&self, name: &str, destination: &str, items: Value) {
        let api: Api<WatchRule> = Api::namespaced(self.server.client(), "a");
        let rule = json!({"apiVersion": "rules.muster.dev/v1alpha1", "kind": "WatchRule",
            "metadata": {"name": name}, "spec": {"destination": destination, "rules": items}});
        let params = PatchParams::apply("test").force();
        api.patch(name, &params, &Patch::Apply(&rule))
            .await
            .unwrap();
    }

    pub(super) async fn put_cluster(&self, name: &str, destination: &str, item: Value) {
        let api: Api<ClusterWatchRule> = Api::all(self.server.client());
        let rule = json!({"apiVersion": "rules.muster.dev/v1alpha1", "kind": "ClusterWatchRule",
            "metadata": {"name": name}, "spec": {"destination": destination, "rules": [item]}});
        let params = PatchParams::apply("test").force();
        api.patch(name, &params, &Patch::Apply(&rule))
            .await
            .unwrap();
    }

    pub(super) async fn remove(&self, name: &str) {
        let api: Api<WatchRule> = Api::namespaced(self.server.client(), "a");
        api.delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub(super) async fn write(&self, namespace: &str, name: &str, value: &str, labels: Value) {
        let api: Api<ConfigMap> = Api::namespaced(self.server.client(), namespace);
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "labels": labels}, "data": {"v": value}});
        let params = PatchParams::apply("test").force();
        api.patch(name, &params, &Patch::Apply(&object))
            .await
            .unwrap();
    }

    pub(super) async fn delete(&self, namespace: &str, name: &str) {
        let api: Api<ConfigMap> = Api::namespaced(self.server.client(), namespace);
        api.delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub(super) async fn open(&self, wanted: &[&str]) {
        let wanted: BTreeSet<String> = wanted.iter().map(|path| (*path).to_owned()).collect();
        let open = || {
            let open = self.gate.open().into_iter();
            // Besides those of the rules themselves and of CRDs.
            let own = |path: &String| !path.contains("rules.muster.dev") && !path.contains("crd");
            let own = open.filter(own);
            own.filter(|path| !path.contains("customresourcedefinitions"))
                .collect::<BTreeSet<_>>()
        };
        eventually(open, |open| *open == wanted).await;
    }

    pub(super) async fn hears(&self, sink: &str, wanted: &[&str]) {
        let ear = &self.ears[sink];
        eventually(|| ear.told(), |told| *told == wanted).await;
    }

    pub(super) async fn status(&self, name: &str) -> WatchRuleStatus {
        let api: Api<WatchRule> = Api::namespaced(self.server.client(), "a");
        api.get(name).await.unwrap().status.unwrap_or_default()
    }

    pub(super) async fn reason_is(&self, name: &str, wanted: &str) -> String {
        let api: Api<WatchRule> = Api::namespaced(self.server.client(), "a");
        reason_is(api, |rule| rule.status, name, wanted).await
    }

    async fn cluster_reason_is(&self, name: &str, wanted: &str) -> String {
        let api: Api<ClusterWatchRule> = Api::all(self.server.client());
        reason_is(api, |rule| rule.status, name, wanted).await
    }

    pub(super) async fn end(self) {
        self.rules.clone().stop().await;
        assert!(stop(&self.watches, Duration::from_secs(10)).await);
        assert_eq!(self.registry.ended(Duration::from_secs(5)).await, Ok(()));
        self.open(&[]).await;
        assert!(self.gate.open().is_empty());
        tokio::time::resume();
    }
}

/// Waits until the rule says this of itself; gives back the message.
async fn reason_is<K>(
    api: Api<K>,
    status: impl Fn(K) -> Option<WatchRuleStatus>,
    name: &str,
    wanted: &str,
) -> String
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let deadline = Instant::now() + Duration::from_secs(300);
    loop {
        let status = status(api.get(name).await.unwrap()).unwrap_or_default();
        let ready = status.conditions.into_iter().next();
        let told = ready.map(|ready| (ready.reason, ready.message));
        let (reason, message) = told.unwrap_or_default();
        if reason == wanted {
            return message;
        }
        assert!(Instant::now() < deadline, "{name}: {reason} {message}");
        sleep(Duration::from_millis(100)).await;
    }
}

/// K1, K2, K5, S56, S57, S58: from quiet to open takes the debounce and hardly more.
#[actix::test]
async fn a_rule_opens_its_watch_once_it_has_been_quiet_and_closes_it_likewise() {
    let ruled = Ruled::start().await;
    ruled.open(&[]).await;
    let before = Instant::now();
    ruled
        .put("maps", "one", json!([item(&["configmaps"])]))
        .await;
    ruled.open(&[MAPS_OF_A]).await;
    let took = before.elapsed();
    assert!((2.0..2.5).contains(&took.as_secs_f64()), "{took:?}");
    ruled.reason_is("maps", "Watching").await;
    let before = Instant::now();
    ruled.remove("maps").await;
    ruled.open(&[]).await;
    let took = before.elapsed();
    assert!((2.0..2.5).contains(&took.as_secs_f64()), "{took:?}");
    ruled.end().await;
}

/// A rule that comes back is a new one, however soon: what is there is told again.
#[actix::test]
async fn a_rule_that_comes_back_is_told_what_is_there() {
    let ruled = Ruled::start().await;
    ruled.write("a", "x", "1", json!({})).await;
    for round in 1..5 {
        ruled
            .put("maps", "one", json!([item(&["configmaps"])]))
            .await;
        ruled.hears("one", &["CREATE x"].repeat(round)).await;
        ruled.remove("maps").await;
        ruled.open(&[]).await;
    }
    ruled.end().await;
}

/// K4, K9, S65, S66, S67: ten in a second are one update; what keeps changing is not starved; what
/// was taken back is none.
#[actix::test]
async fn changes_that_come_together_are_one_update() {
    let ruled = Ruled::start().await;
    let before = ruled.updates().await;
    for n in 0..10 {
        ruled
            .put(&format!("r{n}"), "one", json!([item(&["configmaps"])]))
            .await;
        sleep(Duration::from_millis(100)).await;
    }
    sleep(Duration::from_secs(4)).await;
    assert_eq!(ruled.updates().await - before, 1);
    // A change each 1.9 s never lets the quiet period end.
    let (before, started) = (ruled.updates().await, Instant::now());
    for n in 0..20 {
        let resources = [&["secrets"], &["services"], &["limitranges"]][n % 3];
        ruled.put("restless", "one", json!([item(resources)])).await;
        sleep(Duration::from_millis(1_900)).await;
    }
    let most = started.elapsed().as_secs() / 3 + 1;
    let updates = ruled.updates().await - before;
    assert!((most / 2..=most).contains(&updates), "{updates} of {most}");
    sleep(Duration::from_secs(4)).await;
    let before = ruled.updates().await;
    ruled
        .put("brief", "one", json!([item(&["limitranges"])]))
        .await;
    ruled.remove("brief").await;
    sleep(Duration::from_secs(4)).await;
    assert_eq!(ruled.updates().await, before);
    ruled.end().await;
}

/// K4, K5: a beat, or a type that comes, takes no rules that have not been quiet.
#[actix::test]
async fn what_else_asks_for_a_plan_takes_no_restless_rules() {
    let ruled = Ruled::start().await;
    // Beats are 30 s apart; some of these come in the quiet time of rules.
    for round in 0..6 {
        sleep(Duration::from_millis(11_300)).await;
        let before = ruled.updates().await;
        let resources = [&["secrets"], &["services"]][round % 2];
        for n in 0..5 {
            let name = format!("r{n}");
            ruled.put(&name, "one", json!([item(resources)])).await;
            sleep(Duration::from_millis(250)).await;
        }
        let last = Instant::now();
        while ruled.updates().await == before {
            sleep(Duration::from_millis(50)).await;
        }
        // Of the first, the debounce may end by its upper bound.
        let took = last.elapsed().as_secs_f64();
        assert!((1.5..2.5).contains(&took), "{took}");
        sleep(Duration::from_secs(4)).await;
        assert_eq!(ruled.updates().await - before, 1);
    }
    ruled.end().await;
}

/// K3, S62: the same rule once more, in other words, opens nothing and tells nothing.
#[actix::test]
async fn a_rule_that_means_the_same_changes_nothing() {
    let ruled = Ruled::start().await;
    ruled.write("a", "x", "1", json!({})).await;
    ruled
        .put("maps", "one", json!([item(&["configmaps"])]))
        .await;
    ruled.hears("one", &["CREATE x"]).await;
    let (opened, updates) = (ruled.gate.opened(), ruled.updates().await);
    let same = json!([{"resources": ["ConfigMaps"], "operations": ["*"]}]);
    ruled.put("maps", "one", same).await;
    sleep(Duration::from_secs(10)).await;
    assert_eq!(ruled.gate.opened(), opened);
    assert_eq!(ruled.updates().await, updates);
    ruled.hears("one", &["CREATE x"]).await;
    ruled.end().await;
}

/// S59, S60: wholesale, a rule for another type opens the watches of rules anew; incremental, its own.
#[actix::test]
async fn watches_are_opened_anew_as_the_settings_say() {
    for (wholesale, more) in [(true, 2), (false, 1)] {
        let ruled = Ruled::start_with(wholesale, 20).await;
        ruled.write("a", "x", "1", json!({})).await;
        ruled
            .put("maps", "one", json!([item(&["configmaps"])]))
            .await;
        ruled.hears("one", &["CREATE x"]).await;
        let opened = ruled.gate.opened();
        ruled
            .put("secrets", "one", json!([item(&["secrets"])]))
            .await;
        ruled
            .open(&[MAPS_OF_A, "/api/v1/namespaces/a/secrets"])
            .await;
        ruled.reason_is("secrets", "Watching").await;
        sleep(Duration::from_secs(3)).await;
        assert_eq!(ruled.gate.opened() - opened, more, "wholesale: {wholesale}");
        // Nothing that the sink has is told again.
        ruled.hears("one", &["CREATE x"]).await;
        ruled.end().await;
    }
}

/// S59: a plan that something else asked for while rules wait to be quiet finds them changed, too.
#[actix::test]
async fn watches_are_opened_anew_whoever_finds_that_rules_have_changed() {
    let ruled = Ruled::start().await;
    ruled.write("a", "x", "1", json!({})).await;
    ruled
        .put("maps", "one", json!([item(&["configmaps"])]))
        .await;
    ruled.hears("one", &["CREATE x"]).await;
    let opened = ruled.gate.opened();
    ruled
        .put("secrets", "one", json!([item(&["secrets"])]))
        .await;
    // It is looked for sooner than rules that have changed.
    let crds: Api<CustomResourceDefinition> = Api::all(ruled.server.client());
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema":
                {"openAPIV3Schema": {"type": "object"}}}]}});
    let crd: CustomResourceDefinition = serde_json::from_value(crd).unwrap();
    crds.create(&PostParams::default(), &crd).await.unwrap();
    ruled.reason_is("secrets", "Watching").await;
    sleep(Duration::from_secs(5)).await;
    assert_eq!(ruled.gate.opened() - opened, 2);
    ruled.hears("one", &["CREATE x"]).await;
    ruled.end().await;
}

/// C7, S71, S72: over many restarts each change is told once, in order.
#[actix::test]
async fn no_event_is_lost_or_told_twice_over_restarts() {
    let ruled = Ruled::start().await;
    ruled
        .put("maps", "one", json!([item(&["configmaps"])]))
        .await;
    ruled.open(&[MAPS_OF_A]).await;
    let mut told = Vec::new();
    for round in 0..12 {
        // Each round changes what is watched.
        let resources = if round % 2 == 0 {
            "secrets"
        } else {
            "services"
        };
        ruled.put("other", "two", json!([item(&[resources])])).await;
        let name = format!("n{round:02}");
        for (step, value) in ["1", "2", "3"].into_iter().enumerate() {
            ruled.write("a", &name, value, json!({})).await;
            let operation = if step == 0 { "CREATE" } else { "UPDATE" };
            told.push(format!("{operation} {name}"));
            // Somewhere between rule, plan, list and swap.
            sleep(Duration::from_millis(700)).await;
        }
        ruled.delete("a", &name).await;
        told.push(format!("DELETE {name}"));
    }
    let told: Vec<&str> = told.iter().map(String::as_str).collect();
    ruled.hears("one", &told).await;
    ruled.end().await;
}

/// S63, S64, S75: another operation, another label, another sink: the watch stays, and what is there
/// is looked at again.
#[actix::test]
async fn a_rule_that_selects_otherwise_has_what_is_there_told() {
    let ruled = Ruled::start().await;
    ruled.write("a", "x", "1", json!({"tier": "web"})).await;
    ruled.write("a", "y", "1", json!({})).await;
    let web = json!([{"resources": ["configmaps"],
        "labelSelector": {"matchLabels": {"tier": "web"}}}]);
    ruled.put("maps", "one", web.clone()).await;
    ruled.hears("one", &["CREATE x"]).await;
    let opened = ruled.gate.opened();
    // One that loses the label is gone, one that gets it has come.
    ruled.write("a", "x", "1", json!({})).await;
    ruled.write("a", "y", "1", json!({"tier": "web"})).await;
    ruled
        .hears("one", &["CREATE x", "DELETE x", "CREATE y"])
        .await;
    ruled
        .put("maps", "one", json!([item(&["configmaps"])]))
        .await;
    ruled
        .hears("one", &["CREATE x", "DELETE x", "CREATE y", "CREATE x"])
        .await;
    ruled
        .put("maps", "two", json!([item(&["configmaps"])]))
        .await;
    ruled.hears("two", &["CREATE x", "CREATE y"]).await;
    let only = json!([{"resources": ["configmaps"], "operations": ["DELETE"]}]);
    ruled.put("maps", "two", only).await;
    sleep(Duration::from_secs(5)).await;
    ruled.write("a", "x", "2", json!({})).await;
    ruled.delete("a", "x").await;
    ruled
        .hears("two", &["CREATE x", "CREATE y", "DELETE x"])
        .await;
    assert_eq!(ruled.gate.opened(), opened);
    ruled
        .hears("one", &["CREATE x", "DELETE x", "CREATE y", "CREATE x"])
        .await;
    ruled.end().await;
}

/// When a rule goes, the sink keeps what it has by it, even if others go on to want something of the
/// area. Of an end hear the rules that had the object.
#[actix::test]
async fn what_a_sink_has_by_a_rule_that_goes_stays() {
    let ruled = Ruled::start().await;
    let of = |label: &str, operations: &[&str]| {
        json!([{"resources": ["configmaps"], "operations": operations,
            "labelSelector": {"matchLabels": {"a": label}}}])
    };
    for (name, label) in [("x", "1"), ("y", "2"), ("z", "3")] {
        ruled.write("a", name, "1", json!({"a": label})).await;
    }
    ruled.put("first", "one", of("1", &[])).await;
    ruled.put("second", "one", of("2", &[])).await;
    let changes = ["CREATE", "UPDATE"];
    ruled.put("third", "one", of("3", &changes)).await;
    let mut told = vec!["CREATE x", "CREATE y", "CREATE z"];
    ruled.hears("one", &told).await;
    ruled.remove("first").await;
    sleep(Duration::from_secs(5)).await;
    for name in ["x", "z", "y"] {
        ruled.delete("a", name).await;
    }
    // Nobody wants to hear of the end of the other two.
    told.push("DELETE y");
    ruled.hears("one", &told).await;
    let rules = ruled.ears["one"].heard.lock().unwrap()[3].rules.clone();
    assert_eq!(*rules, ["a/second".into()]);
    ruled.end().await;
}

/// S21, S25, S55: rules of a namespace and of the cluster, for one sink, tell it once.
#[actix::test]
async fn a_sink_hears_of_an_object_once_whatever_rules_there_are() {
    let ruled = Ruled::start().await;
    ruled.write("a", "x", "1", json!({})).await;
    ruled.write("b", "y", "1", json!({})).await;
    ruled
        .put("maps", "one", json!([item(&["configmaps"])]))
        .await;
    ruled
        .put("same", "one", json!([item(&["configmaps"])]))
        .await;
    ruled.hears("one", &["CREATE x"]).await;
    let everywhere = json!({"resources": ["configmaps"], "scope": "Namespaced"});
    ruled.put_cluster("all", "one", everywhere).await;
    ruled.hears("one", &["CREATE x", "CREATE y"]).await;
    ruled.open(&[MAPS]).await;
    let rules = ruled.ears["one"].heard.lock().unwrap()[0].rules.to_vec();
    assert_eq!(rules, ["a/maps".into(), "a/same".into()]);
    ruled.write("a", "x", "2", json!({})).await;
    ruled
        .hears("one", &["CREATE x", "CREATE y", "UPDATE x"])
        .await;
    let rules = ruled.ears["one"].heard.lock().unwrap()[2].rules.to_vec();
    assert_eq!(rules, ["all".into(), "a/maps".into(), "a/same".into()]);
    // Back to the namespace: what the sink has of it, it has.
    let api: Api<ClusterWatchRule> = Api::all(ruled.server.client());
    api.delete("all", &DeleteParams::default()).await.unwrap();
    ruled.open(&[MAPS_OF_A]).await;
    ruled.write("b", "y", "2", json!({})).await;
    ruled.write("a", "x", "3", json!({})).await;
    ruled
        .hears("one", &["CREATE x", "CREATE y", "UPDATE x", "UPDATE x"])
        .await;
    ruled.end().await;
}

/// A rule for the whole cluster that may not be watched leaves rules of namespaces what they have;
/// when it may be, and when that is over, the sink hears of each object once.
#[actix::test]
async fn a_cluster_rule_that_is_refused_blinds_no_other() {
    let ruled = Ruled::start().await;
    ruled.write("a", "x", "1", json!({})).await;
    ruled.write("b", "y", "1", json!({})).await;
    ruled.gate.refuse(MAPS, 403);
    ruled
        .put("maps", "one", json!([item(&["configmaps"])]))
        .await;
    let mut told = vec!["CREATE x"];
    ruled.hears("one", &told).await;
    let everywhere = json!({"resources": ["configmaps"], "scope": "Namespaced"});
    ruled.put_cluster("all", "one", everywhere).await;
    ruled.cluster_reason_is("all", "Forbidden").await;
    for value in ["2", "3"] {
        let before = Instant::now();
        ruled.write("a", "x", value, json!({})).await;
        told.push("UPDATE x");
        ruled.hears("one", &told).await;
        assert!(before.elapsed() < Duration::from_secs(5));
        ruled.open(&[MAPS_OF_A]).await;
        ruled.reason_is("maps", "Watching").await;
        // Tries of the other one come and go.
        sleep(Duration::from_secs(60)).await;
    }
    ruled.write("a", "z", "1", json!({})).await;
    told.push("CREATE z");
    ruled.hears("one", &told).await;

    ruled.gate.allow();
    told.push("CREATE y");
    ruled.hears("one", &told).await;
    ruled.open(&[MAPS]).await;
    ruled.cluster_reason_is("all", "Watching").await;
    ruled.reason_is("maps", "Watching").await;
    ruled.write("a", "x", "4", json!({})).await;
    ruled.delete("a", "z").await;
    told.extend(["UPDATE x", "DELETE z"]);
    ruled.hears("one", &told).await;
    let rules = ruled.ears["one"].heard.lock().unwrap()[5].rules.to_vec();
    assert_eq!(rules, ["all".into(), "a/maps".into()]);

    // Refused once more: only what it alone shows has to wait.
    ruled.gate.refuse(MAPS, 403);
    ruled.watches.send(RestartAreas).await.unwrap();
    ruled.cluster_reason_is("all", "Forbidden").await;
    ruled.open(&[MAPS_OF_A]).await;
    ruled.write("b", "y", "2", json!({})).await;
    ruled.write("b", "new", "1", json!({})).await;
    ruled.write("a", "x", "5", json!({})).await;
    told.push("UPDATE x");
    ruled.hears("one", &told).await;
    ruled.delete("a", "x").await;
    told.push("DELETE x");
    ruled.hears("one", &told).await;
    ruled.delete("b", "y").await;
    sleep(Duration::from_secs(60)).await;
    ruled.hears("one", &told).await;
    ruled.gate.allow();
    told.extend(["CREATE new", "DELETE y"]);
    ruled.hears("one", &told).await;
    ruled.open(&[MAPS]).await;
    sleep(Duration::from_secs(60)).await;
    ruled.hears("one", &told).await;
    ruled.end().await;
}

/// C133, C15: an API server that does not tell what it serves changes nothing.
#[actix::test]
async fn watches_stay_while_the_server_does_not_tell_what_it_serves() {
    let ruled = Ruled::start().await;
    ruled
        .put("maps", "one", json!([item(&["configmaps"])]))
        .await;
    ruled.reason_is("maps", "Watching").await;
    ruled.gate.refuse("/apis", 503);
    ruled
        .put("secrets", "one", json!([item(&["secrets"])]))
        .await;
    // What was known before serves for new rules, too.
    ruled
        .open(&[MAPS_OF_A, "/api/v1/namespaces/a/secrets"])
        .await;
    sleep(Duration::from_secs(120)).await;
    let state = ruled.supervisor().await;
    let error = state["discovery"].as_str().unwrap();
    assert!(
        error.contains("503") || error.contains("no watch of"),
        "{error}"
    );
    ruled
        .open(&[MAPS_OF_A, "/api/v1/namespaces/a/secrets"])
        .await;
    ruled.gate.allow();
    sleep(Duration::from_secs(31)).await;
    assert!(ruled.supervisor().await["discovery"].is_null());
    ruled.end().await;
}

/// C136, S69: a type that may not be watched holds up no other, and is watched once it may be.
#[actix::test]
async fn what_may_not_be_watched_says_so_and_is_tried_again() {
    let ruled = Ruled::start().await;
    ruled.gate.refuse("/namespaces/a/secrets", 403);
    ruled
        .put("both", "one", json!([item(&["configmaps", "secrets"])]))
        .await;
    ruled.open(&[MAPS_OF_A]).await;
    let message = ruled.reason_is("both", "Forbidden").await;
    assert!(
        message.starts_with("secrets.v1 in a: no watch of"),
        "{message}"
    );
    ruled.write("a", "x", "1", json!({})).await;
    ruled.hears("one", &["CREATE x"]).await;
    ruled.gate.allow();
    let before = Instant::now();
    ruled.reason_is("both", "Watching").await;
    assert!(
        before.elapsed() < Duration::from_secs(35),
        "{:?}",
        before.elapsed()
    );
    ruled.end().await;
}

#[actix::test]
async fn a_rule_that_waits_for_a_watch_says_so() {
    let ruled = Ruled::start_with(true, 1).await;
    ruled
        .put("first", "one", json!([item(&["configmaps"])]))
        .await;
    ruled.reason_is("first", "Watching").await;
    ruled
        .put("second", "one", json!([item(&["secrets"])]))
        .await;
    let message = ruled.reason_is("second", "WaitingForWatch").await;
    assert!(message.contains("all 1 watches"), "{message}");
    ruled.remove("first").await;
    ruled.reason_is("second", "Watching").await;
    ruled.end().await;
}

/// Each type that waits is named, beside what else is missing; only those count as watched that are.
#[actix::test]
async fn a_rule_names_each_type_that_waits_for_a_watch() {
    let ruled = Ruled::start_with(true, 1).await;
    ruled
        .put("first", "one", json!([item(&["configmaps"])]))
        .await;
    ruled.reason_is("first", "Watching").await;
    let three = json!([item(&["secrets", "services", "nothings"])]);
    ruled.put("second", "one", three).await;
    let message = ruled.reason_is("second", "TypeUnknown").await;
    let waiting = "secrets.v1 in a, services.v1 in a: all 1 watches of the agent \
                   (watch.max_watches) serve others";
    assert!(message.starts_with("nothings: "), "{message}");
    eventually_status(&ruled, |status| {
        let message = &status.conditions[0].message;
        message.ends_with(&format!("; {waiting}"))
            && status.unresolved.len() == 3
            && status.unresolved[1].reason == "WaitingForWatch"
            && status.unresolved[2].resource == "services.v1 in a"
    })
    .await;
    let state = ruled.supervisor().await;
    assert_eq!(
        (&state["types"], state["areas"].as_array().unwrap().len()),
        (&json!(1), 3)
    );
    ruled.end().await;
}

async fn eventually_status(ruled: &Ruled, wanted: impl Fn(&WatchRuleStatus) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(300);
    loop {
        let status = ruled.status("second").await;
        if wanted(&status) {
            return;
        }
        assert!(Instant::now() < deadline, "{status:#?}");
        sleep(Duration::from_millis(100)).await;
    }
}

/// Other operations of the same objects change who hears of what, and no watch.
#[actix::test]
async fn other_operations_are_no_change_of_watches() {
    let ruled = Ruled::start().await;
    ruled
        .put("maps", "one", json!([item(&["configmaps"])]))
        .await;
    ruled.reason_is("maps", "Watching").await;
    let (before, opened) = (ruled.updates().await, ruled.gate.opened());
    let only = json!([{"apiGroups": [""], "resources": ["configmaps"], "operations": ["DELETE"]}]);
    ruled.put("maps", "one", only).await;
    sleep(Duration::from_secs(10)).await;
    ruled.write("a", "x", "1", json!({})).await;
    ruled.delete("a", "x").await;
    ruled.hears("one", &["DELETE x"]).await;
    assert_eq!(
        (ruled.updates().await, ruled.gate.opened()),
        (before, opened)
    );
    ruled.end().await;
}

/// A sink that fails shows in its rules, and holds up no other sink.
#[actix::test]
async fn a_sink_that_fails_holds_up_no_other() {
    let ruled = Ruled::start().await;
    ruled.ears["one"].fails("disk full", 3);
    ruled
        .put("one", "one", json!([item(&["configmaps"])]))
        .await;
    ruled
        .put("two", "two", json!([item(&["configmaps"])]))
        .await;
    ruled.open(&[MAPS_OF_A]).await;
    ruled.write("a", "x", "1", json!({})).await;
    ruled.hears("two", &["CREATE x"]).await;
    let message = ruled.reason_is("one", "SinkFailing").await;
    assert_eq!(message, "sink one: disk full");
    ruled.reason_is("two", "Watching").await;
    ruled.hears("one", &["CREATE x"]).await;
    ruled.reason_is("one", "Watching").await;
    ruled.end().await;
}
