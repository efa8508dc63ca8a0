//! Input and clusters that are not as they should be.

use muster_api::constants::{MANIFEST_APPLIED, WORK_APPLIED, WORK_AVAILABLE, WORK_DELETING};
use serde_json::{Value, json};

use super::tap::Fault;
use super::*;

fn good() -> Value {
    config_map("good", json!({"a": "b"}))
}

#[actix::test]
async fn bad_manifests_are_named_and_the_rest_is_applied() {
    let world = World::lenient().await;
    let metadata = json!({"namespace": "ns1", "name": "x"});
    let cases = [
        (
            json!({"apiVersion": "v1", "metadata": metadata}),
            "Object 'Kind' is missing",
        ),
        (
            json!({"kind": "ConfigMap", "metadata": metadata}),
            "Object 'apiVersion' is missing",
        ),
        (
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "ns1"}}),
            "name must be set in manifest",
        ),
        (
            json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"namespace": "ns1", "name": "x", "generateName": "x-"},
            }),
            "generateName must not be set in manifest",
        ),
        (
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}),
            "metadata.namespace: Required value",
        ),
        (
            json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"namespace": "ns1", "name": "../../secrets/x"},
            }),
            "metadata.name: Invalid value",
        ),
        (
            json!({"apiVersion": "example.io/v1", "kind": "Widget", "metadata": metadata}),
            r#"the server doesn't have a resource type "Widget""#,
        ),
        (
            config_map("good", json!({"a": "other"})),
            "duplicate manifest for resource ns1/good with resource type v1.ConfigMap: manifests 0 \
             and 8 are for the same object",
        ),
    ];
    let count = cases.len();
    let mut objects = vec![good()];
    objects.extend(cases.iter().map(|(manifest, _)| manifest.clone()));
    world.create_work("w", workload(objects)).await;
    let work = world
        .work("w", |work| current(work, WORK_APPLIED, "False"))
        .await;
    let applied = manifests(&work, WORK_APPLIED);
    assert_eq!(applied[0], "True");
    assert_eq!(applied[1..], vec!["False"; count]);
    for (ordinal, (_, text)) in cases.iter().enumerate() {
        let message = message(&work, ordinal + 1, WORK_APPLIED);
        let text = format!("Failed to apply manifest: {text}");
        assert!(
            message.starts_with(&text),
            "{message} does not begin with {text}"
        );
    }
    assert_eq!(world.get(cm("good")).await.unwrap()["data"]["a"], "b");
    world.end().await;
}

/// A hub without admission lets such works through.
#[actix::test]
async fn one_object_under_two_names_is_applied_once() {
    let world = World::start().await;
    let role = |namespace: &str| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "a", "namespace": namespace}, "rules": []})
    };
    let odd = |version: &str| {
        json!({"apiVersion": format!("odd.example.io/{version}"), "kind": "Odd",
            "metadata": {"name": "o", "namespace": "ns1"}})
    };
    let all = [role("ns1"), role(""), good(), odd("v1"), odd("v2")];
    world.create_work("w", workload(all)).await;
    let failed = |work: &ManifestWork| {
        manifests(work, MANIFEST_APPLIED) == ["True", "False", "True", "False", "False"]
    };
    let work = world.work("w", failed).await;
    for (ordinal, text) in [
        (
            1,
            "duplicate manifest for resource /a with resource type \
             rbac.authorization.k8s.io/v1.ClusterRole: manifests 0 and 1 are for the same object",
        ),
        (3, r#"the server doesn't have a resource type "Odd""#),
        (
            4,
            "duplicate manifest for resource ns1/o with resource type odd.example.io/v2.Odd: \
             manifests 3 and 4 are for the same object",
        ),
    ] {
        let told = message(&work, ordinal, MANIFEST_APPLIED);
        assert!(told.contains(text), "{told}");
    }
    world.end().await;
}

#[actix::test]
async fn what_this_version_cannot_do_is_said_and_not_done() {
    // The CRD of this version would refuse it; the one of a later hub does not.
    let world = World::lenient().await;
    let mut spec = workload([good()]);
    spec["manifestConfigs"] = json!([{
        "resourceIdentifier": {"resource": "configmaps", "namespace": "ns1", "name": "good"},
        "updateStrategy": {"type": "Merge"},
    }]);
    world.create_work("w", spec).await;
    let work = world
        .work("w", |work| current(work, WORK_APPLIED, "False"))
        .await;
    assert_eq!(
        message(&work, 0, WORK_APPLIED),
        "Failed to apply manifest: the update strategy Merge is not supported by this version of \
         the agent"
    );
    world.polls(2).await;
    assert!(world.get(cm("good")).await.is_none());
    world.end().await;
}

#[actix::test]
async fn an_unknown_kind_is_applied_soon_after_its_type_appears() {
    let world = World::with(|settings| settings.poll_interval = Duration::from_secs(3_600)).await;
    let [object, crd] =
        [0, 1].map(|at| super::apply::crd_and_object()["workload"]["manifests"][at].clone());
    world.create_work("w", workload([object])).await;
    let work = world
        .work("w", |work| current(work, WORK_APPLIED, "False"))
        .await;
    assert_eq!(manifests(&work, WORK_AVAILABLE), ["Unknown"]);
    // Long enough for every back-off to be at its end.
    tokio::time::sleep(Duration::from_secs(600)).await;
    world.spoke_tap.clear();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let asked: usize = world
        .spoke_tap
        .reads()
        .get("/apis/my.domain/v1")
        .copied()
        .unwrap_or(0);
    assert!(
        (10..=20).contains(&asked),
        "asked {asked} times in a minute"
    );

    let _: Value = world.spoke.create(super::apply::CRD, &crd).await.unwrap();
    let begin = tokio::time::Instant::now();
    world.settled("w").await;
    assert!(
        begin.elapsed() < Duration::from_secs(6),
        "{:?}",
        begin.elapsed()
    );
    world.end().await;
}

#[actix::test]
async fn works_that_wait_for_one_type_ask_as_often_as_one() {
    let world = World::with(|settings| settings.poll_interval = Duration::from_secs(3_600)).await;
    let object = super::apply::crd_and_object()["workload"]["manifests"][0].clone();
    for index in 0..20 {
        world
            .create_work(&format!("w{index}"), workload([object.clone()]))
            .await;
    }
    for index in 0..20 {
        let failed = |work: &_| current(work, WORK_APPLIED, "False");
        world.work(&format!("w{index}"), failed).await;
    }
    world.spoke_tap.clear();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let asked: usize = world
        .spoke_tap
        .reads()
        .get("/apis/my.domain/v1")
        .copied()
        .unwrap_or(0);
    assert!(
        (10..=61).contains(&asked),
        "asked {asked} times in a minute"
    );
    world.end().await;
}

#[actix::test]
async fn a_broken_api_group_costs_its_own_kinds_only() {
    let world = World::start().await;
    world.spoke_tap.fail(|_, path| {
        let broken = path == "/apis/broken.io/v1";
        broken.then_some(Fault::Refused(
            503,
            "ServiceUnavailable",
            "no endpoints available",
        ))
    });
    let broken = json!({
        "apiVersion": "broken.io/v1", "kind": "Thing", "metadata": {"namespace": "ns1", "name": "t"},
    });
    world.create_work("w", workload([broken, good()])).await;
    let work = world
        .work("w", |work| current(work, WORK_APPLIED, "False"))
        .await;
    assert_eq!(manifests(&work, WORK_APPLIED), ["False", "True"]);
    let text = message(&work, 0, WORK_APPLIED);
    assert!(
        text.contains("failed to discover broken.io/v1: no endpoints available"),
        "{text}"
    );
    assert!(
        world.deps.health.not_ready().is_empty(),
        "the cluster answers"
    );
    world.end().await;
}

#[actix::test]
async fn an_unreachable_cluster_is_told_and_left_and_found_again() {
    let world = World::start().await;
    world.create_work("w", workload([good()])).await;
    world.settled("w").await;
    world.spoke_tap.fail(|_, _| Some(Fault::Broken));
    let work = world
        .work("w", |work| current(work, WORK_AVAILABLE, "Unknown"))
        .await;
    assert_eq!(manifests(&work, WORK_APPLIED), ["False"]);
    let text = message(&work, 0, WORK_APPLIED);
    assert!(
        text.contains("the API server cannot be reached: connection reset by test"),
        "{text}"
    );
    let meta = &status(&work).resource_status.manifests[0].resource_meta;
    assert_eq!(meta.resource, "configmaps", "what was known stays known");
    let reasons = world.deps.health.not_ready();
    assert!(reasons[0].starts_with("cluster1 spoke: "), "{reasons:?}");

    // A deletion says so, too.
    world.delete_work("w").await;
    let deleting = world
        .work("w", |work| current(work, WORK_DELETING, "True"))
        .await;
    let text = muster_api::conditions::find(&status(&deleting).conditions, WORK_DELETING);
    assert!(
        text.unwrap().message.contains("the managed cluster"),
        "{text:?}"
    );

    world.spoke_tap.heal();
    world.work_gone_within(Duration::from_secs(90), "w").await;
    assert!(world.deps.health.not_ready().is_empty());
    assert!(world.get(cm("good")).await.is_none());
    world.end().await;
}

#[actix::test]
async fn a_silent_cluster_costs_one_request_a_pass() {
    let world = World::start().await;
    let objects: Vec<_> = (0..5)
        .map(|n| config_map(&format!("cm{n}"), json!({})))
        .collect();
    world.create_work("w", workload(objects)).await;
    world.settled("w").await;
    // It falls silent in the middle of a pass.
    world
        .spoke_tap
        .fail(|_, path| path.contains("/configmaps/").then_some(Fault::Silent));
    let begin = tokio::time::Instant::now();
    let silent = |work: &ManifestWork| current(work, WORK_AVAILABLE, "Unknown");
    eventually_within(
        Duration::from_secs(60),
        || async { world.works().get_opt("w").await.unwrap() },
        |work| work.as_ref().is_some_and(silent),
    )
    .await;
    assert!(
        begin.elapsed() < Duration::from_secs(40),
        "{:?}",
        begin.elapsed()
    );
    world.end().await;
}

#[actix::test]
async fn a_refused_manifest_is_tried_at_a_growing_pace() {
    let world = World::with(|settings| settings.poll_interval = Duration::from_secs(3_600)).await;
    world.spoke_tap.fail(|method, path| {
        let forbidden = method == "POST" && path.ends_with("/configmaps");
        forbidden.then_some(Fault::Refused(403, "Forbidden", "configmaps is forbidden"))
    });
    world.create_work("w", workload([good()])).await;
    let work = world
        .work("w", |work| current(work, WORK_APPLIED, "False"))
        .await;
    assert_eq!(
        message(&work, 0, WORK_APPLIED),
        "Failed to apply manifest: configmaps is forbidden"
    );
    world.spoke_tap.clear();
    tokio::time::sleep(Duration::from_secs(600)).await;
    let tries = world.spoke_tap.writes().len();
    assert!((15..=40).contains(&tries), "{tries} tries in ten minutes");
    world.end().await;
}

#[actix::test]
async fn a_corrected_spec_does_not_wait_for_the_back_off() {
    let world = World::with(|settings| settings.poll_interval = Duration::from_secs(3_600)).await;
    let mut lost = good();
    lost["metadata"]["namespace"] = "non-existent-namespace".into();
    world.create_work("w", workload([lost])).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    world.edit_work("w", workload([good()])).await;
    let begin = tokio::time::Instant::now();
    world.settled("w").await;
    assert!(
        begin.elapsed() < Duration::from_secs(1),
        "{:?}",
        begin.elapsed()
    );
    world.end().await;
}

#[actix::test]
async fn a_status_conflict_is_composed_anew() {
    let world = World::start().await;
    let mut refusals = 2;
    world.hub_tap.fail(move |method, path| {
        let hit = method == "PATCH" && path.ends_with("/status") && refusals > 0;
        refusals -= i32::from(hit);
        hit.then_some(Fault::Refused(
            409,
            "Conflict",
            "the object has been modified",
        ))
    });
    world.create_work("w", workload([good()])).await;
    let begin = tokio::time::Instant::now();
    world.settled("w").await;
    assert!(
        begin.elapsed() < Duration::from_millis(500),
        "no back-off was needed"
    );
    world.end().await;
}

#[actix::test]
async fn a_hub_that_takes_no_status_is_tried_again() {
    let world = World::with(|settings| settings.poll_interval = Duration::from_secs(3_600)).await;
    world.hub_tap.fail(|method, path| {
        let status = method == "PATCH" && path.ends_with("/status");
        status.then_some(Fault::Refused(403, "Forbidden", "not yet"))
    });
    world.create_work("w", workload([good()])).await;
    world.object(cm("good"), |object| object.is_some()).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    world.hub_tap.heal();
    world.settled("w").await;
    world.end().await;
}

#[actix::test]
async fn a_spec_that_cannot_be_read_is_told_and_others_go_on() {
    let world = World::lenient().await;
    world.create_work("w", workload([good()])).await;
    world.settled("w").await;
    world
        .patch_raw_work("w", json!({"spec": {"workload": {"manifests": 7}}}))
        .await;
    let unreadable = || async {
        let work = world.raw_work("w").await;
        work["status"]["conditions"][0]["message"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    eventually(unreadable, |text| {
        text.contains("the spec cannot be read: invalid type")
    })
    .await;
    world
        .create_work("w2", workload([config_map("other", json!({}))]))
        .await;
    world.settled("w2").await;
    assert!(
        world.get(cm("good")).await.is_some(),
        "nothing is removed for it"
    );
    world.end().await;
}

#[actix::test]
async fn a_type_that_goes_and_comes_back_is_followed() {
    let world = World::start().await;
    let [object, crd] =
        [0, 1].map(|at| super::apply::crd_and_object()["workload"]["manifests"][at].clone());
    let created: Value = world.spoke.create(super::apply::CRD, &crd).await.unwrap();
    world.create_work("w", workload([object])).await;
    world.settled("w").await;

    let uid = created["metadata"]["uid"].as_str().unwrap();
    world.spoke.delete(super::apply::CRD, uid).await.unwrap();
    let work = world
        .work("w", |work| current(work, WORK_APPLIED, "False"))
        .await;
    let text = "Failed to apply manifest: the server doesn't have a resource type \"Guestbook\"";
    world
        .work("w", |work| message(work, 0, WORK_APPLIED) == text)
        .await;
    assert_ne!(manifests(&work, WORK_AVAILABLE), ["True"]);

    let _: Value = world.spoke.create(super::apply::CRD, &crd).await.unwrap();
    world.settled("w").await;
    world.end().await;
}

#[actix::test]
async fn a_manifest_removed_right_after_creation_leaves_nothing_behind() {
    let world = World::start().await;
    for round in 0..20 {
        let name = format!("w{round}");
        let (a, b) = (format!("a{round}"), format!("b{round}"));
        let objects = [&a, &b].map(|name| config_map(name, json!({})));
        world.create_work(&name, workload(objects)).await;
        tokio::time::sleep(Duration::from_millis(round)).await;
        world
            .edit_work(&name, workload([config_map(&b, json!({}))]))
            .await;
        world.settled(&name).await;
        world.object(cm(&a), |object| object.is_none()).await;
        let only_b = [format!("configmaps/{b}")];
        eventually(|| world.recorded(&name), |names| *names == only_b).await;
    }
    world.end().await;
}

#[actix::test]
async fn many_works_at_once_meet_no_conflicts_and_stay_within_the_workers() {
    let world = World::with(|settings| settings.workers = 3).await;
    // The list that the watch of records begins with is nobody's work.
    world.polls(1).await;
    world.spoke_tap.clear();
    world
        .spoke_tap
        .fail(|_, _| Some(Fault::Slow(Duration::from_millis(5))));
    for n in 0..100 {
        let name = format!("w{n}");
        world
            .create_work(&name, workload([config_map(&name, json!({"n": "0"}))]))
            .await;
    }
    for n in 0..100 {
        world.settled(&format!("w{n}")).await;
    }
    let conflicts = world.hub_tap.answers(409);
    assert!(conflicts <= 1, "{conflicts} conflicts in 100 works");
    let most = world.spoke_tap.most_at_once();
    assert_eq!(most, 3);
    world.end().await;
}
