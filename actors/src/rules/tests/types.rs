//! Which types are watched, as rules and types come and go, on a paused clock.

use std::collections::BTreeSet;
use std::time::Duration;

use kube::Api;
use kube::api::{DeleteParams, DynamicObject};
use muster_api::rules::{ClusterWatchRule, WatchRuleStatus};
use muster_apiserver::ApiServer;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::cluster::{MAPS_OF_A, Ruled, Start, item};
use super::discovered::{crd, crds, create, of_widgets, widget, widgets};
use super::{Ear, eventually};
use crate::rules::discovery;

const SECRETS_OF_A: &str = "/api/v1/namespaces/a/secrets";
const WIDGETS_OF_A: &str = "/apis/example.io/v1/namespaces/a/widgets";

async fn eventually_async<T, F: Future<Output = T>>(
    ask: impl Fn() -> F,
    wanted: impl Fn(&T) -> bool,
) {
    let deadline = Instant::now() + Duration::from_secs(300);
    while !wanted(&ask().await) {
        assert!(Instant::now() < deadline);
        sleep(Duration::from_millis(10)).await;
    }
}

/// A rule for configmaps and one for widgets, whose types are watched as far as they are served.
async fn start(start: Start, widgets: &str) -> Ruled {
    let ruled = Ruled::start_as(start).await;
    ruled
        .put("maps", "one", json!([item(&["configmaps"])]))
        .await;
    ruled.put("widgets", "two", of_widgets()).await;
    ruled.reason_is("maps", "Watching").await;
    ruled.reason_is("widgets", widgets).await;
    ruled
}

/// C131, S44: a type that is defined while a rule waits for it is watched within seconds, long before
/// a beat, and no other is opened anew.
#[actix::test]
async fn a_type_that_is_defined_is_watched_at_once() {
    let rare = Start {
        heartbeat: Duration::from_secs(600),
        ..Start::default()
    };
    let ruled = start(rare, "TypeUnknown").await;
    let server = ruled.server.clone();
    let (opened, before) = (ruled.gate.opened(), Instant::now());
    create(&crds(&server), crd()).await;
    create(&widgets(&server), widget("w1")).await;
    ruled.hears("two", &["CREATE w1"]).await;
    let took = before.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
    ruled.reason_is("widgets", "Watching").await;
    sleep(Duration::from_secs(10)).await;
    ruled.open(&[MAPS_OF_A, WIDGETS_OF_A]).await;
    assert_eq!(ruled.gate.opened() - opened, 1);
    ruled.end().await;
}

/// S53, S144: what a type had is told to be gone with its definition; after its grace nothing asks for
/// it any more, and before that seldom.
#[actix::test]
async fn a_type_that_is_no_more_is_left_after_its_grace() {
    let ruled = start(Start::default(), "TypeUnknown").await;
    let server = ruled.server.clone();
    create(&crds(&server), crd()).await;
    create(&widgets(&server), widget("w1")).await;
    ruled.hears("two", &["CREATE w1"]).await;
    ruled.reason_is("widgets", "Watching").await;
    let asked = ruled.gate.requests(WIDGETS_OF_A);
    let before = Instant::now();
    crds(&server)
        .delete("widgets.example.io", &DeleteParams::default())
        .await
        .unwrap();
    ruled.hears("two", &["CREATE w1", "DELETE w1"]).await;
    assert!(before.elapsed() < Duration::from_secs(5));
    // Its watch is refused before the type is taken for gone.
    ruled.reason_is("widgets", "TypeUnknown").await;
    assert!(before.elapsed() < Duration::from_secs(5));
    // The grace, and a beat.
    sleep(Duration::from_secs(95)).await;
    assert!(ruled.supervisor().await["unresolved"]["a/widgets"].is_string());
    ruled.open(&[MAPS_OF_A]).await;
    let asked = ruled.gate.requests(WIDGETS_OF_A) - asked;
    assert!(asked <= 12, "{asked} requests");
    let asked = ruled.gate.requests(WIDGETS_OF_A);
    sleep(Duration::from_secs(300)).await;
    assert_eq!(ruled.gate.requests(WIDGETS_OF_A), asked);
    ruled.end().await;
}

/// A type that the API server does not name any more, for good: its watch ends after the grace, and
/// the sink is told once of each object that it is gone. If the type comes back, so do its objects,
/// each once.
#[actix::test]
async fn a_type_that_is_not_served_any_more_takes_its_objects_with_it() {
    let ruled = start(Start::default(), "TypeUnknown").await;
    let server = ruled.server.clone();
    create(&crds(&server), crd()).await;
    for name in ["w1", "w2"] {
        create(&widgets(&server), widget(name)).await;
    }
    let mut told = vec!["CREATE w1", "CREATE w2"];
    ruled.hears("two", &told).await;
    ruled.gate.hide("example.io");
    // Within the grace nothing is taken for gone.
    sleep(Duration::from_secs(45)).await;
    ruled.hears("two", &told).await;
    ruled.open(&[MAPS_OF_A, WIDGETS_OF_A]).await;
    told.extend(["DELETE w1", "DELETE w2"]);
    ruled.hears("two", &told).await;
    ruled.open(&[MAPS_OF_A]).await;
    ruled.reason_is("widgets", "TypeUnknown").await;
    let rules = ruled.ears["two"].heard.lock().unwrap()[2].rules.to_vec();
    assert_eq!(rules, ["a/widgets".into()]);
    sleep(Duration::from_secs(120)).await;
    ruled.hears("two", &told).await;

    ruled.gate.allow();
    told.extend(["CREATE w1", "CREATE w2"]);
    ruled.hears("two", &told).await;
    sleep(Duration::from_secs(120)).await;
    ruled.hears("two", &told).await;
    ruled.end().await;
}

/// What a sink was told in an earlier life, of a type that is not there any more, is told to be gone.
#[actix::test]
async fn a_type_that_went_while_the_agent_was_away_takes_its_objects_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let ruled = start(Start::keeping(&folder, None), "TypeUnknown").await;
    let server = ruled.server.clone();
    create(&crds(&server), crd()).await;
    create(&widgets(&server), widget("w1")).await;
    ruled.hears("two", &["CREATE w1"]).await;
    ruled.end().await;

    let again = Start::keeping(&folder, Some(&server));
    again.gate.hide("example.io");
    let ruled = Ruled::start_as(again).await;
    ruled.hears("two", &["DELETE w1"]).await;
    sleep(Duration::from_secs(120)).await;
    ruled.hears("two", &["DELETE w1"]).await;
    ruled.end().await;
}

/// One failure of discovery does not leave a new type unwatched until the next beat.
#[actix::test]
async fn discovery_that_fails_is_tried_again_before_long() {
    let rare = Start {
        heartbeat: Duration::from_secs(600),
        ..Start::default()
    };
    let ruled = start(rare, "TypeUnknown").await;
    let server = ruled.server.clone();
    ruled.gate.refuse("/apis", 503);
    create(&crds(&server), crd()).await;
    create(&widgets(&server), widget("w1")).await;
    eventually_async(
        || ruled.supervisor(),
        |state| state["discovery"].is_string(),
    )
    .await;
    ruled.gate.allow();
    let before = Instant::now();
    ruled.hears("two", &["CREATE w1"]).await;
    let took = before.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
    ruled.end().await;
}

/// For as long as discovery fails it is asked ever more seldom.
#[actix::test]
async fn discovery_that_keeps_failing_is_tried_ever_more_seldom() {
    let rare = Start {
        heartbeat: Duration::from_secs(600),
        ..Start::default()
    };
    let ruled = start(rare, "TypeUnknown").await;
    ruled.gate.refuse("/apis", 503);
    create(&crds(&ruled.server), crd()).await;
    sleep(Duration::from_secs(30)).await;
    let first = ruled.gate.requests("/apis");
    sleep(Duration::from_secs(300)).await;
    let more = ruled.gate.requests("/apis") - first;
    assert!((10..=16).contains(&more), "{more}");
    ruled.end().await;
}

/// C133: a group whose server does not answer keeps its watches, and holds up no rule for others.
#[actix::test]
async fn a_group_that_does_not_answer_keeps_its_watches_and_holds_up_no_other() {
    let ruled = Ruled::start().await;
    create(&crds(&ruled.server), crd()).await;
    ruled.put("widgets", "two", of_widgets()).await;
    ruled
        .put("maps", "one", json!([item(&["configmaps"])]))
        .await;
    ruled.open(&[MAPS_OF_A, WIDGETS_OF_A]).await;
    ruled.gate.make_stale("example.io");
    sleep(Duration::from_secs(120)).await;
    ruled.reason_is("widgets", "Watching").await;
    let before = Instant::now();
    let deployments = "/apis/apps/v1/namespaces/a/deployments";
    ruled
        .put("new", "one", json!([item(&["deployments"])]))
        .await;
    ruled.open(&[MAPS_OF_A, WIDGETS_OF_A, deployments]).await;
    ruled.reason_is("new", "Watching").await;
    assert!(before.elapsed() < Duration::from_secs(15));
    create(&widgets(&ruled.server), widget("w1")).await;
    ruled.hears("two", &["CREATE w1"]).await;
    ruled.end().await;
}

/// S60, S61: of two types the one that no rule wants any more is closed. The other is opened anew or
/// left alone, as the settings say, and nothing is told.
#[actix::test]
async fn a_type_that_is_wanted_no_more_is_closed() {
    for wholesale in [true, false] {
        let ruled = Ruled::start_as(Start {
            wholesale,
            ..Start::default()
        })
        .await;
        ruled.write("a", "x", "1", json!({})).await;
        ruled
            .put("maps", "one", json!([item(&["configmaps"])]))
            .await;
        ruled
            .put("secrets", "one", json!([item(&["secrets"])]))
            .await;
        ruled.open(&[MAPS_OF_A, SECRETS_OF_A]).await;
        ruled.hears("one", &["CREATE x"]).await;
        let opened = ruled.gate.opened();
        ruled.remove("secrets").await;
        ruled.open(&[MAPS_OF_A]).await;
        sleep(Duration::from_secs(60)).await;
        let more = ruled.gate.opened() - opened;
        assert_eq!(more, usize::from(wholesale), "wholesale: {wholesale}");
        ruled.hears("one", &["CREATE x"]).await;
        ruled.end().await;
    }
}

/// S68: a rule that comes while an update waits for the API server is watched soon after the answer,
/// by that update if it has been quiet by then, or by the next.
#[actix::test]
async fn a_rule_that_comes_during_an_update_is_watched_soon_after() {
    for (after, updates) in [(2_500, 1), (4_000, 2)] {
        let ruled = Ruled::start().await;
        let before = ruled.updates().await;
        ruled.gate.slow_down("/apis", Duration::from_secs(3));
        let began = Instant::now();
        ruled
            .put("maps", "one", json!([item(&["configmaps"])]))
            .await;
        // The first has been quiet for 2 s, and is asked for until 5 s.
        sleep(Duration::from_millis(after)).await;
        ruled
            .put("secrets", "one", json!([item(&["secrets"])]))
            .await;
        ruled.open(&[MAPS_OF_A, SECRETS_OF_A]).await;
        let took = began.elapsed().as_secs_f64();
        assert!((5.0..10.0).contains(&took), "{took}");
        sleep(Duration::from_secs(10)).await;
        assert_eq!(ruled.updates().await - before, updates);
        ruled.end().await;
    }
}

/// C160: a rule that does not read any more is watched no longer, and one that is mended is.
#[actix::test]
async fn a_rule_that_becomes_invalid_is_closed_and_opened_when_it_is_mended() {
    let ruled = Ruled::start().await;
    let with_operator = |operator: &str| {
        json!([{"resources": ["configmaps"], "labelSelector": {"matchExpressions":
            [{"key": "a", "operator": operator, "values": ["b"]}]}}])
    };
    ruled.write("a", "x", "1", json!({"a": "b"})).await;
    for (told, round) in [&["CREATE x"][..], &["CREATE x"; 2]].into_iter().zip(1..) {
        let before = Instant::now();
        ruled.put("maps", "one", with_operator("In")).await;
        ruled.open(&[MAPS_OF_A]).await;
        assert!(before.elapsed() < Duration::from_secs(5), "round {round}");
        ruled.reason_is("maps", "Watching").await;
        ruled.hears("one", told).await;
        let before = Instant::now();
        ruled.put("maps", "one", with_operator("Near")).await;
        ruled.open(&[]).await;
        assert!(before.elapsed() < Duration::from_secs(5), "round {round}");
        let message = ruled.reason_is("maps", "InvalidRule").await;
        assert!(message.contains("Near"), "{message}");
    }
    ruled.end().await;
}

/// Paths of what the server serves and can be watched, of one scope or the other, with the namespace
/// `a` in the place of all.
pub(super) async fn watchable(server: &ApiServer, namespaced: bool) -> BTreeSet<String> {
    let unwanted = [
        "pods",
        "events",
        "endpoints",
        "endpointslices",
        "leases",
        "controllerrevisions",
        "flowschemas",
        "prioritylevelconfigurations",
        "jobs",
        "cronjobs",
    ];
    let scan = discovery::scan(&server.client()).await.unwrap();
    let mut paths = BTreeSet::new();
    for (of, answer) in scan.answers.iter().filter(|(_, answer)| answer.preferred) {
        for found in answer.resources.as_ref().unwrap() {
            let is_watchable = ["list", "watch"].iter().all(|it| found.verbs.contains(*it));
            let is_wanted = !unwanted.contains(&&*found.resource);
            if is_watchable && is_wanted && found.namespaced == namespaced {
                let root = if of.group.is_empty() { "api" } else { "apis" };
                paths.insert(format!("/{root}/{of}/{}", found.resource));
            }
        }
    }
    assert!(paths.len() > 5, "{paths:?}");
    paths
}

/// What was told of each resource, once each.
fn told_of(ear: &Ear) -> BTreeSet<String> {
    let heard = ear.heard.lock().unwrap();
    let told = heard.iter().map(|event| {
        let of = event.key.resource.resource();
        format!("{} {of} {}", event.operation, event.key.name)
    });
    told.collect()
}

async fn status_of(server: &ApiServer, rule: &str) -> WatchRuleStatus {
    let api: Api<ClusterWatchRule> = Api::all(server.client());
    api.get(rule).await.unwrap().status.unwrap_or_default()
}

fn everything(scope: &str) -> Value {
    json!({"resources": ["*"], "scope": scope})
}

/// S49, S151, C155, L22: wildcards have all types watched but those that nobody wants, and what is in
/// them told. The rules are among them; what their statuses say is told to nobody.
#[actix::test]
async fn a_wildcard_is_everything() {
    let ruled = Ruled::start_as(Start {
        max_watches: 100,
        ..Start::default()
    })
    .await;
    let server = ruled.server.clone();
    let mut expected = watchable(&server, true).await;
    expected.extend(watchable(&server, false).await);
    ruled
        .put_cluster("inside", "one", everything("Namespaced"))
        .await;
    ruled
        .put_cluster("outside", "one", everything("Cluster"))
        .await;
    eventually(|| ruled.gate.open(), |open| *open == expected).await;
    ruled.write("a", "x", "1", json!({})).await;
    for (kind, plural) in [
        ("Secret", "secrets"),
        ("Service", "services"),
        ("Pod", "pods"),
    ] {
        let spec = match kind {
            "Service" => json!({"ports": [{"port": 80}]}),
            "Pod" => json!({"containers": [{"name": "c", "image": "i"}]}),
            _ => Value::Null,
        };
        let resource = kube::api::ApiResource {
            group: String::new(),
            version: "v1".to_owned(),
            api_version: "v1".to_owned(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
        };
        let api: Api<DynamicObject> = Api::namespaced_with(server.client(), "a", &resource);
        let object = json!({"apiVersion": "v1", "kind": kind,
            "metadata": {"name": "y"}, "spec": spec});
        create(&api, object).await;
    }
    let ear = &ruled.ears["one"];
    let wanted = [
        "CREATE configmaps x",
        "CREATE secrets y",
        "CREATE services y",
        "CREATE namespaces a",
        "CREATE clusterwatchrules inside",
        "CREATE customresourcedefinitions watchrules.rules.muster.dev",
    ];
    let has_all = |told: &BTreeSet<String>| wanted.iter().all(|it| told.contains(*it));
    eventually(|| told_of(ear), has_all).await;
    sleep(Duration::from_secs(60)).await;
    for (rule, events) in [("inside", 3), ("outside", 5)] {
        let status = status_of(&server, rule).await;
        assert_eq!(status.conditions[0].reason, "Watching", "{status:?}");
        assert_eq!(status.watches.total, status.types);
        assert_eq!(status.watches.synced, status.types);
        assert!(status.events >= events, "{status:?}");
    }
    for told in told_of(ear) {
        assert!(told.starts_with("CREATE "), "{told}");
        assert!(
            !told.contains(" pods ") && !told.contains(" events "),
            "{told}"
        );
    }
    ruled.end().await;
}

/// C155: where there is no room for everything, the rule says what is in its way, and what has room
/// is told.
#[actix::test]
async fn a_wildcard_without_room_says_so() {
    let ruled = Ruled::start_as(Start {
        max_watches: 3,
        ..Start::default()
    })
    .await;
    ruled.write("a", "x", "1", json!({})).await;
    ruled
        .put("maps", "two", json!([item(&["configmaps"])]))
        .await;
    ruled.reason_is("maps", "Watching").await;
    ruled
        .put_cluster("all", "one", everything("Namespaced"))
        .await;
    let server = ruled.server.clone();
    let deadline = Instant::now() + Duration::from_secs(60);
    let status = loop {
        let status = status_of(&server, "all").await;
        let ready = status.conditions.first();
        if ready.is_some_and(|ready| ready.reason == "WaitingForWatch") {
            break status;
        }
        assert!(Instant::now() < deadline, "{status:?}");
        sleep(Duration::from_millis(100)).await;
    };
    assert!(status.conditions[0].message.contains("watch.max_watches"));
    sleep(Duration::from_secs(60)).await;
    let status = status_of(&server, "all").await;
    assert_eq!(status.watches.synced, 3, "{status:?}");
    for sink in ["one", "two"] {
        ruled.hears(sink, &["CREATE x"]).await;
    }
    ruled.end().await;
}
