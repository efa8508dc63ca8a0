//! How objects, areas and the agent end.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use muster_core::rule_events::{ObjectKey, Room, State};
use muster_core::watch_plan::Resource;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::cluster::{MAPS_OF_A, Ruled, item};
use super::interest;
use crate::rules::outlet::Outlet;
use crate::watch::{Area, Listed};

/// S76, S152, L31: an object ends when it is deleted, and not when its finalizers are through; what
/// becomes of it meanwhile, or is listed anew, is told to nobody.
#[actix::test]
async fn what_is_on_its_way_out_is_gone() {
    let ruled = Ruled::with_maps().await;
    let api: Api<ConfigMap> = Api::namespaced(ruled.server.client(), "a");
    let merge = async |name: &str, metadata: Value| {
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        api.patch(name, &PatchParams::default(), &patch)
            .await
            .unwrap();
    };
    for name in ["x", "stays"] {
        ruled.write("a", name, "1", json!({})).await;
    }
    merge("x", json!({"finalizers": ["a.io/wait"]})).await;
    let mut told = vec!["CREATE x", "CREATE stays"];
    ruled.hears("one", &told).await;
    api.delete("x", &DeleteParams::default()).await.unwrap();
    told.push("DELETE x");
    ruled.hears("one", &told).await;

    merge("x", json!({"labels": {"a": "b"}})).await;
    let opened = ruled.gate.opened();
    ruled.put("other", "two", json!([item(&["secrets"])])).await;
    ruled.reason_is("other", "Watching").await;
    sleep(Duration::from_secs(10)).await;
    assert_eq!(
        ruled.gate.opened() - opened,
        2,
        "all of it has been listed anew"
    );
    merge("x", json!({"finalizers": null})).await;
    // A new one of this name is another object.
    assert!(api.get_opt("x").await.unwrap().is_none());
    ruled.hears("one", &told).await;
    ruled.write("a", "x", "1", json!({})).await;
    told.push("CREATE x");
    ruled.hears("one", &told).await;
    ruled.end().await;
}

/// S153: what is deleted together is told one by one, and what is left stays.
#[actix::test]
async fn objects_that_are_deleted_together_are_each_gone() {
    let ruled = Ruled::with_maps().await;
    for name in ["x", "y", "z"] {
        ruled.write("a", name, "1", json!({"tier": "web"})).await;
    }
    ruled.write("a", "stays", "1", json!({})).await;
    let mut told = vec!["CREATE x", "CREATE y", "CREATE z", "CREATE stays"];
    ruled.hears("one", &told).await;
    let api: Api<ConfigMap> = Api::namespaced(ruled.server.client(), "a");
    let web = ListParams::default().labels("tier=web");
    api.delete_collection(&DeleteParams::default(), &web)
        .await
        .unwrap();
    told.extend(["DELETE x", "DELETE y", "DELETE z"]);
    ruled.hears("one", &told).await;
    ruled.write("a", "stays", "2", json!({})).await;
    told.push("UPDATE stays");
    ruled.hears("one", &told).await;
    ruled.end().await;
}

/// S70, K13: an API server that does not answer holds up no end: neither by the list of a watch, nor
/// by that of an area that is behind, nor when it is asked what it serves.
#[actix::test]
async fn the_end_waits_for_no_answer() {
    for (part, late) in [(MAPS_OF_A, false), (MAPS_OF_A, true), ("/apis", true)] {
        let ruled = Ruled::start().await;
        if late {
            ruled
                .put("maps", "one", json!([item(&["configmaps"])]))
                .await;
            ruled.reason_is("maps", "Watching").await;
        }
        ruled.gate.slow_down(part, Duration::from_secs(3_600));
        let asked = ruled.gate.requests(part);
        let deletions = json!([{"resources": ["configmaps"], "operations": ["DELETE"]}]);
        ruled.put("maps", "one", deletions).await;
        sleep(Duration::from_secs(5)).await;
        assert!(ruled.gate.requests(part) > asked, "{part} is asked for");
        let before = Instant::now();
        ruled.end().await;
        assert!(before.elapsed() < Duration::from_secs(6), "{part}");
    }
}

/// What a sink has of an earlier life.
fn had(resource: &Resource, objects: &[(&str, &str)]) -> Vec<(ObjectKey, State)> {
    let of = |(namespace, name): &(&str, &str)| {
        let key = ObjectKey {
            resource: resource.clone(),
            namespace: (*namespace).into(),
            name: (*name).into(),
        };
        let state = State {
            uid: "u".into(),
            version: 1,
            hash: [1; 32],
            on_delete: ["ns/rule".into()].into(),
        };
        (key, state)
    };
    objects.iter().map(of).collect()
}

/// S110, S111, S112: a list that is empty ends what the sink has inside its area, and nothing that is
/// of another namespace or of another type.
#[test]
fn an_empty_list_ends_what_is_in_its_area_only() {
    let maps = Resource::new("", "v1", "configmaps");
    let secrets = Resource::new("", "v1", "secrets");
    let of = |resource: &Resource, namespace: Option<&str>| Area {
        resource: resource.clone(),
        namespace: namespace.map(Into::into),
    };
    let lists_nothing = |area: &Area| {
        let outlet = Outlet::new("c1", "log", Room::default(), Arc::default());
        let mut remembered = had(&maps, &[("a", "x"), ("b", "y")]);
        remembered.extend(had(&secrets, &[("a", "s")]));
        outlet.remember(remembered.into_iter().collect());
        // Of the other type something is wanted, too, and is not listed yet.
        outlet.join(&of(&secrets, None));
        outlet.join(area);
        outlet.listing(area, 1);
        let kind = "ConfigMap".into();
        outlet.listed(area, 1, &Listed::default(), &kind, &interest());
        let told = outlet.take(10, 1 << 20);
        let told = told.iter();
        let mut told: Vec<String> = told
            .map(|event| {
                format!(
                    "{} {}/{}",
                    event.operation, event.key.namespace, event.key.name
                )
            })
            .collect();
        told.sort();
        told
    };
    assert_eq!(lists_nothing(&of(&maps, Some("a"))), ["DELETE a/x"]);
    assert_eq!(lists_nothing(&of(&maps, Some("c"))), [""; 0]);
    let all = ["DELETE a/x", "DELETE b/y"];
    assert_eq!(lists_nothing(&of(&maps, None)), all);
}
