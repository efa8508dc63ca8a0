//! Values that come back.

use muster_api::constants::{STATUS_FEEDBACK_SYNCED, WORK_APPLIED, WORK_AVAILABLE};
use serde_json::{Value, json};

use super::*;

fn config(group: &str, resource: &str, name: &str, rules: Value) -> Value {
    let mut config = json!({
        "resourceIdentifier": {
            "group": group, "resource": resource, "namespace": "ns1", "name": name,
        },
    });
    config["feedbackRules"] = rules;
    config
}

fn well_known() -> Value {
    json!([{"type": "WellKnownStatus"}])
}

fn paths(paths: &[(&str, &str)]) -> Value {
    let paths: Vec<_> = paths
        .iter()
        .map(|(name, path)| json!({"name": name, "path": path}))
        .collect();
    json!([{"type": "JSONPaths", "jsonPaths": paths}])
}

fn with_configs(manifests: impl Into<Vec<Value>>, configs: impl Into<Vec<Value>>) -> Value {
    let mut spec = workload(manifests);
    spec["manifestConfigs"] = configs.into().into();
    spec
}

fn replicas(count: i64) -> Value {
    json!({
        "replicas": count, "readyReplicas": count, "availableReplicas": count,
        "updatedReplicas": count,
    })
}

#[actix::test]
async fn a_deployment_reports_its_replicas() {
    let world = World::start().await;
    let configs = [config("apps", "deployments", "web", well_known())];
    world
        .create_work("w", with_configs([deployment("web")], configs))
        .await;
    world.settled("w").await;
    let status = json!({
        "replicas": 3, "readyReplicas": 2, "availableReplicas": 2, "updatedReplicas": 3,
    });
    world.set_status(deploy("web"), status).await;
    let expected = [
        ("ReadyReplicas", json!(2)),
        ("Replicas", json!(3)),
        ("AvailableReplicas", json!(2)),
    ];
    let work = world.work("w", |work| values(work, 0) == expected).await;
    assert_eq!(manifests(&work, STATUS_FEEDBACK_SYNCED), ["True"]);
    world.set_status(deploy("web"), replicas(3)).await;
    let expected = expected.map(|(name, _)| (name, json!(3)));
    world.work("w", |work| values(work, 0) == expected).await;
    world.end().await;
}

#[actix::test]
async fn a_path_to_a_list_costs_only_its_own_value() {
    let world = World::start().await;
    let rules = paths(&[
        (
            "Available",
            r#".status.conditions[?(@.type=="Available")].status"#,
        ),
        ("wrong", ".status.conditions"),
    ]);
    let mut config = config("apps", "deployments", "*b", rules);
    config["resourceIdentifier"]["namespace"] = "*".into();
    world
        .create_work("w", with_configs([deployment("web")], [config]))
        .await;
    world.settled("w").await;
    let conditions = json!({"conditions": [{"type": "Available", "status": "True"}]});
    world.set_status(deploy("web"), conditions).await;
    let work = world
        .work("w", |work| {
            values(work, 0) == [("Available", json!("True"))]
        })
        .await;
    assert_eq!(manifests(&work, STATUS_FEEDBACK_SYNCED), ["False"]);
    let text = message(&work, 0, STATUS_FEEDBACK_SYNCED);
    assert_eq!(
        text,
        "Sync status feedback failed with error \
         the value for wrong is a list, but only a string, a boolean or an integer of 64 bits can \
         be reported without the feature gate RawFeedbackJsonString"
    );
    assert!(current(&work, WORK_APPLIED, "True") && current(&work, WORK_AVAILABLE, "True"));
    world.end().await;
}

/// As the design text has it for events with one manifest: `contentStatus` is what its rule `status`
/// leads to, whatever the agent does with lists and objects elsewhere.
#[actix::test]
async fn a_work_that_came_as_one_manifest_reports_the_status_of_its_object() {
    let world = World::start().await;
    let rules = paths(&[("status", ".status")]);
    let configs = [config("apps", "deployments", "web", rules)];
    world
        .create_work("w", with_configs([deployment("web")], configs))
        .await;
    world.settled("w").await;
    let form = "io.open-cluster-management.works.v1alpha1.manifest";
    let came = json!({"cloudevents.open-cluster-management.io/datatype": form});
    let patch = json!({"metadata": {"annotations": came}});
    world.patch_work("w", patch).await;
    // Times that are not set are null, as kube-apiserver writes them.
    let condition = json!({
        "lastTransitionTime": null, "lastUpdateTime": null, "status": "True", "type": "Progressing",
    });
    let status = json!({"replicas": 3, "conditions": [condition]});
    world.set_status(deploy("web"), status.clone()).await;
    let work = world
        .work("w", |work| {
            values(work, 0)
                .iter()
                .any(|(name, value)| *name == "status" && value["replicas"] == 3)
        })
        .await;
    // Times that are not set are null, as kube-apiserver writes them.
    let mut reported = status;
    for time in ["lastTransitionTime", "lastUpdateTime"] {
        reported["conditions"][0][time] = Value::Null;
    }
    assert_eq!(values(&work, 0), [("status", reported)]);
    assert_eq!(manifests(&work, STATUS_FEEDBACK_SYNCED), ["True"]);
    world.end().await;
}

#[actix::test]
async fn a_kind_without_well_known_status_says_so() {
    let world = World::start().await;
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"namespace": "ns1", "name": "sa"},
    });
    let configs = [
        config("apps", "deployments", "web", well_known()),
        config("", "serviceaccounts", "sa", well_known()),
    ];
    world
        .create_work("w", with_configs([deployment("web"), account], configs))
        .await;
    let work = world.settled("w").await;
    assert_eq!(manifests(&work, STATUS_FEEDBACK_SYNCED), ["True", "True"]);
    assert_eq!(values(&work, 1), []);
    assert_eq!(
        message(&work, 1, STATUS_FEEDBACK_SYNCED),
        "/v1, Kind=ServiceAccount has no well-known status values"
    );
    world.end().await;
}

/// The agent may report longer values than the definition of works on the hub admits.
#[actix::test]
async fn a_value_that_the_hub_refuses_hides_no_other() {
    let world = World::with(|settings| {
        settings.feedback.raw_json = true;
        settings.feedback.max_json_raw_bytes = 4096;
    })
    .await;
    let small: Vec<String> = (0..9).map(|n| n.to_string()).collect();
    let mut data: serde_json::Map<String, Value> =
        small.iter().map(|n| (format!("k{n}"), json!(n))).collect();
    data.insert("long".to_owned(), json!("x".repeat(2_000)));
    let names: Vec<(String, String)> = small
        .iter()
        .map(|n| (format!("v{n}"), format!(".data.k{n}")))
        .collect();
    let mut wanted: Vec<(&str, &str)> = names
        .iter()
        .map(|(name, path)| (&**name, &**path))
        .collect();
    wanted.insert(4, ("all", ".data"));
    let configs = [config("", "configmaps", "cm", paths(&wanted))];
    world
        .create_work("w", with_configs([config_map("cm", data.into())], configs))
        .await;
    let work = world
        .work("w", |work| {
            current(work, WORK_APPLIED, "True") && values(work, 0).len() == 9
        })
        .await;
    assert_eq!(manifests(&work, STATUS_FEEDBACK_SYNCED), ["False"]);
    let text = message(&work, 0, STATUS_FEEDBACK_SYNCED);
    assert!(
        text.starts_with(
            "Sync status feedback failed with error the hub refuses the value for all: Too long"
        ),
        "{text}"
    );
    assert!(current(&work, WORK_APPLIED, "True"));
    // Later polls know that, and write nothing.
    let version = world.settled("w").await.metadata.resource_version;
    let tried = world.hub_tap.writes().len();
    tokio::time::sleep(POLL * 5).await;
    assert_eq!(world.settled("w").await.metadata.resource_version, version);
    assert_eq!(world.hub_tap.writes().len(), tried);
    // A value that fits by now is reported.
    let short = json!({"k0": "0"});
    world
        .edit_work(
            "w",
            with_configs(
                [config_map("cm", short)],
                [config("", "configmaps", "cm", paths(&wanted))],
            ),
        )
        .await;
    let work = world
        .work("w", |work| {
            values(work, 0).iter().any(|(name, _)| *name == "all")
        })
        .await;
    assert_eq!(manifests(&work, STATUS_FEEDBACK_SYNCED), ["True"]);
    world.end().await;
}

#[actix::test]
async fn lists_are_reported_as_json_when_allowed() {
    let world = World::with(|settings| settings.feedback.raw_json = true).await;
    let rules = paths(&[("conditions", ".status.conditions")]);
    let configs = [config("apps", "deployments", "web", rules)];
    world
        .create_work("w", with_configs([deployment("web")], configs))
        .await;
    world.settled("w").await;
    let conditions = json!([{"status": "True", "type": "Available"}]);
    world
        .set_status(deploy("web"), json!({ "conditions": conditions }))
        .await;
    // Times that are not set are null, as kube-apiserver writes them.
    let reported = json!([{
        "lastTransitionTime": null, "lastUpdateTime": null, "status": "True", "type": "Available",
    }]);
    let work = world
        .work("w", |work| {
            values(work, 0) == [("conditions", reported.clone())]
        })
        .await;
    assert_eq!(manifests(&work, STATUS_FEEDBACK_SYNCED), ["True"]);
    world.end().await;
}

#[actix::test]
async fn a_daemon_set_reports_its_numbers() {
    let world = World::start().await;
    let mut daemons = deployment("ds1");
    daemons["kind"] = "DaemonSet".into();
    daemons["spec"].as_object_mut().unwrap().remove("replicas");
    let configs = [config("apps", "daemonsets", "ds1", well_known())];
    world
        .create_work("w", with_configs([daemons], configs))
        .await;
    world.settled("w").await;
    let ds1 = target("apps", "daemonsets", "ds1");
    for (ready, available) in [(2, 2), (3, 3)] {
        let status = json!({
            "numberReady": ready, "desiredNumberScheduled": 3, "numberAvailable": available,
            "currentNumberScheduled": 3, "numberMisscheduled": 0,
        });
        world.set_status(ds1, status).await;
        let expected = [
            ("NumberReady", json!(ready)),
            ("DesiredNumberScheduled", json!(3)),
            ("NumberAvailable", json!(available)),
        ];
        world.work("w", |work| values(work, 0) == expected).await;
    }
    world.end().await;
}

#[actix::test]
async fn wildcards_give_rules_to_several_objects() {
    let world = World::start().await;
    let mut rules = well_known();
    let path = paths(&[("name", ".metadata.name")]);
    rules.as_array_mut().unwrap().push(path[0].clone());
    let mut config = config("apps", "deployments", "deploy*", rules);
    config["resourceIdentifier"]["namespace"] = "*".into();
    let manifests_ = [deployment("deploy1"), deployment("deploy2")];
    world
        .create_work("w", with_configs(manifests_, [config]))
        .await;
    world.settled("w").await;
    world.set_status(deploy("deploy1"), replicas(3)).await;
    world.set_status(deploy("deploy2"), replicas(4)).await;
    let expected = |count: i64, name: &'static str| {
        [
            ("ReadyReplicas", json!(count)),
            ("Replicas", json!(count)),
            ("AvailableReplicas", json!(count)),
            ("name", json!(name)),
        ]
    };
    let work = world
        .work("w", |work| {
            values(work, 0) == expected(3, "deploy1") && values(work, 1) == expected(4, "deploy2")
        })
        .await;
    assert_eq!(manifests(&work, STATUS_FEEDBACK_SYNCED), ["True", "True"]);
    world.end().await;
}

#[actix::test]
async fn the_first_matching_rules_win() {
    let world = World::start().await;
    let configs = [
        config(
            "apps",
            "deployments",
            "deploy1",
            paths(&[("first", ".metadata.name")]),
        ),
        config(
            "apps",
            "deployments",
            "deploy*",
            paths(&[("second", ".metadata.name")]),
        ),
    ];
    let manifests_ = [deployment("deploy1"), deployment("deploy2")];
    world
        .create_work("w", with_configs(manifests_, configs))
        .await;
    let work = world.settled("w").await;
    assert_eq!(values(&work, 0), [("first", json!("deploy1"))]);
    assert_eq!(values(&work, 1), [("second", json!("deploy2"))]);
    world.end().await;
}

#[actix::test]
async fn a_cluster_scoped_object_reports_too() {
    let world = World::start().await;
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns2"},
    });
    let mut config = config(
        "",
        "namespaces",
        "ns2",
        paths(&[("phase", ".status.phase"), ("name", ".metadata.name")]),
    );
    config["resourceIdentifier"]["namespace"] = "".into();
    config["feedbackScrapeType"] = "Watch".into();
    world
        .create_work("w", with_configs([namespace], [config]))
        .await;
    let work = world.settled("w").await;
    assert_eq!(
        values(&work, 0),
        [("phase", json!("Active")), ("name", json!("ns2"))]
    );
    world.end().await;
}

#[actix::test]
async fn values_go_when_their_rules_go_and_a_bad_path_is_told() {
    let world = World::start().await;
    let bad = paths(&[("bad", ".spec["), ("name", ".metadata.name")]);
    let configs = [config("", "configmaps", "cm1", bad)];
    let manifest = || config_map("cm1", json!({}));
    world
        .create_work("w", with_configs([manifest()], configs))
        .await;
    let work = world.settled("w").await;
    assert_eq!(values(&work, 0), [("name", json!("cm1"))]);
    let text = message(&work, 0, STATUS_FEEDBACK_SYNCED);
    assert!(
        text.contains("failed to parse json path .spec[ of bad"),
        "{text}"
    );

    world.edit_work("w", workload([manifest()])).await;
    let work = world.settled("w").await;
    assert_eq!(values(&work, 0), []);
    assert_eq!(manifests(&work, STATUS_FEEDBACK_SYNCED), ["True"]);
    world.end().await;
}

#[actix::test]
async fn secret_data_stays_on_the_cluster() {
    let world = World::start().await;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"namespace": "ns1", "name": "s"}, "stringData": {"token": "hunter2"},
    });
    let rules = paths(&[("token", ".data.token"), ("name", ".metadata.name")]);
    let configs = [config("", "secrets", "s", rules)];
    world
        .create_work("w", with_configs([secret], configs))
        .await;
    let work = world.settled("w").await;
    assert_eq!(values(&work, 0), [("name", json!("s"))]);
    assert_eq!(manifests(&work, STATUS_FEEDBACK_SYNCED), ["False"]);
    let text = serde_json::to_string(status(&work)).unwrap();
    assert!(
        !text.contains("hunter2") && !text.contains("aHVudGVyMg"),
        "{text}"
    );
    world.end().await;
}
