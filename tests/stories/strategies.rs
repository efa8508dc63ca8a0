//! Group S: how objects are written.
//!
//! | Rows | Story |
//! |---|---|
//! | S01 | `s01_create_only_never_changes` |
//! | S02, S03, S21, S22 | `s02_s03_s21_s22_read_only_reads_and_never_writes` |
//! | S04–S06, C011 | `s04_s06_c011_a_conflict_is_told_once_and_ends_when_the_field_is_given_up` |
//! | S07–S11 | `s07_s11_two_works_share_an_object` |
//! | S12–S14 | `s12_s14_on_spoke_change_holds_until_the_manifest_changes` |
//! | S15, S16 | `s15_s16_on_spoke_present_holds_always` |
//! | S17, S18 | `s17_s18_jq_names_an_item_of_a_list` |
//! | S19 | `s19_a_bad_expression_is_told` |
//! | S20, C008 | `s20_c008_what_is_applied_is_left_alone` |
//! | C013 | `c013_ignored_fields_are_created_and_owners_follow` |
//! | issue 4 | `drift_of_the_rest_is_repaired_and_strategies_can_be_swapped` |

use anyhow::{Result, ensure};
use http::Method;
use serde_json::{Value, json};

use crate::support::agent::Agent;
use crate::support::works::{manifest_condition, manifests, values};
use crate::support::{Story, World};

pub(crate) fn stories() -> Vec<Story> {
    on_each_backend![
        s01_create_only_never_changes,
        s02_s03_s21_s22_read_only_reads_and_never_writes,
        s04_s06_c011_a_conflict_is_told_once_and_ends_when_the_field_is_given_up,
        s07_s11_two_works_share_an_object,
        s12_s14_on_spoke_change_holds_until_the_manifest_changes,
        s15_s16_on_spoke_present_holds_always,
        s17_s18_jq_names_an_item_of_a_list,
        s19_a_bad_expression_is_told,
        s20_c008_what_is_applied_is_left_alone,
        c013_ignored_fields_are_created_and_owners_follow,
        drift_of_the_rest_is_repaired_and_strategies_can_be_swapped,
        what_one_strategy_wrote_goes_when_the_other_drops_it,
    ]
}

const HASH: &str = "open-cluster-management.io/config-spec-hash";

fn deployment(agent: &Agent, replicas: i64) -> Value {
    json!({
    "apiVersion": "apps/v1", "kind": "Deployment",
    "metadata": {"namespace": agent.name(), "name": "deploy1"},
    "spec": {
        "replicas": replicas,
        "selector": {"matchLabels": {"app": "d"}},
        "template": {
            "metadata": {"labels": {"app": "d"}},
            "spec": {"containers": [{"name": "c", "image": "example/web:1", "env": [
                {"name": "JAVA_OPTS", "value": "-Xmx512m"}, {"name": "OTHER", "value": "1"},
            ]}]}}}})
}

/// A work of one Deployment with an update strategy.
fn spec(agent: &Agent, manifest: &Value, strategy: &Value) -> Value {
    let mut spec = manifests([manifest.clone()]);
    spec["manifestConfigs"] = json!([{
        "resourceIdentifier": {"group": "apps", "resource": "deployments",
            "namespace": agent.name(), "name": "deploy1"},
        "updateStrategy": strategy}]);
    spec
}

fn server_side(settings: &Value) -> Value {
    json!({"type": "ServerSideApply", "serverSideApply": settings})
}

fn ignoring(condition: &str, field: &Value) -> Value {
    let mut field = field.clone();
    field["condition"] = condition.into();
    server_side(&json!({ "ignoreFields": [field] }))
}

async fn replicas_are(agent: &Agent, replicas: i64) -> Result<Value> {
    let what = format!("have {replicas} replicas");
    let is = |object: &Value| object["spec"]["replicas"] == replicas;
    agent.object("deployments", "deploy1").is(&what, is).await
}

/// Somebody else sets the replicas, in a name that is not the agent's.
async fn set_replicas(agent: &Agent, replicas: i64) -> Result<()> {
    let patch = json!({"spec": {"replicas": replicas}});
    agent.object("deployments", "deploy1").merge(patch).await?;
    Ok(())
}

/// Somebody applies the replicas by force as `test-integration`.
async fn take_replicas(agent: &Agent, replicas: i64) -> Result<()> {
    let path = format!(
        "/apis/apps/v1/namespaces/{}/deployments/deploy1?fieldManager=test-integration&force=true",
        agent.name()
    );
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"namespace": agent.name(), "name": "deploy1"},
        "spec": {"replicas": replicas}});
    let rest = agent.spoke().rest();
    let content_type = Some("application/apply-patch+yaml");
    rest.send(Method::PATCH, &path, content_type, Some(&object))
        .await?
        .ok()?;
    Ok(())
}

async fn s01_create_only_never_changes(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    let strategy = json!({"type": "CreateOnly"});
    let one = spec(&agent, &deployment(&agent, 1), &strategy);
    agent.applied("work", one).await?;
    let three = spec(&agent, &deployment(&agent, 3), &strategy);
    agent.edit("work", three).await?;
    agent.settled("work").await?;
    agent.looks_again("work", 2).await?;
    replicas_are(&agent, 1).await?;
    Ok(())
}

async fn s02_s03_s21_s22_read_only_reads_and_never_writes(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    for name in ["cm1", "cm2"] {
        let data = json!({"test1": "testdata", "test2": "other"});
        agent.cm(name).create(&agent.config_map(name, data)).await?;
    }
    let wanted = |name| agent.config_map(name, json!({"test1": "never written"}));
    let mut spec = manifests([wanted("cm1"), wanted("cm2")]);
    let config = |name: &str, value: &str| {
        json!({
            "resourceIdentifier": {"group": "", "resource": "configmaps",
                "namespace": "*", "name": name},
            "updateStrategy": {"type": "ReadOnly"},
            "feedbackRules": [{"type": "JSONPaths", "jsonPaths": [
                {"name": value, "path": format!(".data.{value}")}]}]})
    };
    spec["manifestConfigs"] = json!([config("*", "test1"), config("cm*", "test2")]);
    let work = agent.applied("work", spec).await?;
    for ordinal in [0, 1] {
        let read = values(&work, ordinal);
        ensure!(format!("{read:?}").contains("testdata"), "{read:?}");
        ensure!(!format!("{read:?}").contains("test2"), "{read:?}");
    }
    let live = agent.cm("cm1").get().await?;
    ensure!(live["metadata"].get("ownerReferences").is_none(), "{live}");
    ensure!(live["data"]["test1"] == "testdata", "{live}");

    for name in ["cm1", "cm2"] {
        let patch = json!({"data": {"test1": "testdata-updated"}});
        agent.cm(name).merge(patch).await?;
    }
    agent
        .work("work")
        .is("report the new values", |work| {
            [0, 1]
                .iter()
                .all(|ordinal| format!("{:?}", values(work, *ordinal)).contains("testdata-updated"))
        })
        .await?;
    Ok(())
}

async fn s04_s06_c011_a_conflict_is_told_once_and_ends_when_the_field_is_given_up(
    world: World,
) -> Result<()> {
    let agent = Agent::start(&world).await?;
    let strategy = server_side(&json!({}));
    let two = |replicas| {
        let mut spec = spec(&agent, &deployment(&agent, replicas), &strategy);
        let second = agent.config_map("second", json!({"a": "b"}));
        if let Some(manifests) = spec["workload"]["manifests"].as_array_mut() {
            manifests.push(second);
        }
        spec
    };
    agent.applied("work", two(1)).await?;
    agent.edit("work", two(3)).await?;
    agent.settled("work").await?;
    replicas_are(&agent, 3).await?;

    take_replicas(&agent, 5).await?;
    agent.edit("work", two(4)).await?;
    let work = agent.shows("work", &[("Applied", "FT")]).await?;
    let applied = manifest_condition(&work, 0, "Applied")?;
    let message = applied["message"].as_str().unwrap_or_default();
    ensure!(applied["reason"] == "AppliedManifestFailed", "{applied}");
    for part in [
        "Failed to apply manifest: ",
        "test-integration",
        ".spec.replicas",
    ] {
        ensure!(message.contains(part), "{message}");
    }
    agent.looks_again("work", 2).await?;
    replicas_are(&agent, 5).await?;

    let mut given_up = two(4);
    if let Some(spec) = given_up["workload"]["manifests"][0]["spec"].as_object_mut() {
        spec.remove("replicas");
    }
    agent.edit("work", given_up).await?;
    agent.settled("work").await?;
    replicas_are(&agent, 5).await?;
    Ok(())
}

async fn s07_s11_two_works_share_an_object(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    let first = server_side(&json!({}));
    agent
        .applied("a", spec(&agent, &deployment(&agent, 1), &first))
        .await?;
    let mut without = deployment(&agent, 1);
    if let Some(spec) = without["spec"].as_object_mut() {
        spec.remove("replicas");
    }
    without["spec"]["template"]["spec"]["serviceAccountName"] = "sa".into();
    let mut shared = deployment(&agent, 1);
    shared["spec"]["template"]["spec"]["serviceAccountName"] = "sa".into();
    agent.edit("a", spec(&agent, &shared, &first)).await?;
    agent.settled("a").await?;
    let other = server_side(&json!({"force": true, "fieldManager": "work-agent-another"}));
    agent.applied("b", spec(&agent, &without, &other)).await?;

    shared["spec"]["replicas"] = 3.into();
    agent.edit("a", spec(&agent, &shared, &first)).await?;
    agent.settled("a").await?;
    replicas_are(&agent, 3).await?;

    let mut another = shared.clone();
    another["spec"]["template"]["spec"]["serviceAccountName"] = "another-sa".into();
    agent.edit("a", spec(&agent, &another, &first)).await?;
    let work = agent.shows("a", &[("Applied", "F")]).await?;
    let applied = manifest_condition(&work, 0, "Applied")?;
    ensure!(
        applied["message"]
            .to_string()
            .contains("work-agent-another"),
        "{applied}"
    );
    let owners = |object: &Value| {
        let owners = object["metadata"]["ownerReferences"].as_array();
        owners.map_or(0, Vec::len)
    };
    let live = agent.object("deployments", "deploy1");
    live.is("have two owners", |object| owners(object) == 2)
        .await?;

    agent.edit("a", spec(&agent, &shared, &first)).await?;
    agent.settled("a").await?;
    let orphan = json!({"deleteOption": {"propagationPolicy": "Orphan"}});
    agent.edit("a", orphan).await?;
    live.is("have one owner", |object| owners(object) == 1)
        .await?;
    Ok(())
}

async fn s12_s14_on_spoke_change_holds_until_the_manifest_changes(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    let mut strategy = ignoring("OnSpokeChange", &json!({"jsonPaths": [".spec.replicas"]}));
    let one = spec(&agent, &deployment(&agent, 1), &strategy);
    agent.applied("work", one).await?;
    let live = replicas_are(&agent, 1).await?;
    ensure!(live["metadata"]["annotations"][HASH].is_string(), "{live}");

    set_replicas(&agent, 2).await?;
    strategy["serverSideApply"]["force"] = true.into();
    agent
        .edit("work", spec(&agent, &deployment(&agent, 1), &strategy))
        .await?;
    agent.settled("work").await?;
    agent.looks_again("work", 2).await?;
    replicas_are(&agent, 2).await?;

    agent
        .edit("work", spec(&agent, &deployment(&agent, 3), &strategy))
        .await?;
    agent.settled("work").await?;
    replicas_are(&agent, 3).await?;
    Ok(())
}

async fn s15_s16_on_spoke_present_holds_always(world: World) -> Result<()> {
    for field in [
        json!({"jsonPaths": [".spec.replicas"]}),
        json!({"jsonPointers": ["/spec/replicas"]}),
    ] {
        let agent = Agent::start(&world).await?;
        let strategy = ignoring("OnSpokePresent", &field);
        agent
            .applied("work", spec(&agent, &deployment(&agent, 1), &strategy))
            .await?;
        set_replicas(&agent, 2).await?;
        agent
            .edit("work", spec(&agent, &deployment(&agent, 3), &strategy))
            .await?;
        agent.settled("work").await?;
        agent.looks_again("work", 2).await?;
        replicas_are(&agent, 2).await?;
    }
    Ok(())
}

async fn s17_s18_jq_names_an_item_of_a_list(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    let expression = ".spec.template.spec.containers[].env[] | select(.name == \"JAVA_OPTS\")";
    let strategy = ignoring(
        "OnSpokePresent",
        &json!({"jqPathExpressions": [expression]}),
    );
    let mut wanted = deployment(&agent, 1);
    agent
        .applied("work", spec(&agent, &wanted, &strategy))
        .await?;
    let live = agent.object("deployments", "deploy1");
    let env = |object: &Value| object["spec"]["template"]["spec"]["containers"][0]["env"].clone();
    let created = env(&live.get().await?);
    ensure!(created == env(&wanted), "{created}");

    let mut changed = env(&wanted);
    changed[0]["value"] = "-Xmx1024m".into();
    let container = json!([{"name": "c", "image": "example/web:1", "env": changed}]);
    live.merge(json!({"spec": {"template": {"spec": {"containers": container}}}}))
        .await?;
    wanted["spec"]["template"]["spec"]["containers"][0]["env"] = json!([
        {"name": "JAVA_OPTS", "value": "-Xmx2048m"}, {"name": "OTHER", "value": "2"}]);
    agent.edit("work", spec(&agent, &wanted, &strategy)).await?;
    let expected = json!([
        {"name": "JAVA_OPTS", "value": "-Xmx1024m"}, {"name": "OTHER", "value": "2"}]);
    live.is("keep one variable and get the other", |object| {
        env(object) == expected
    })
    .await?;
    agent.settled("work").await?;
    Ok(())
}

async fn s19_a_bad_expression_is_told(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    let expression = ".spec.containers[] | invalid syntax here";
    let strategy = ignoring(
        "OnSpokePresent",
        &json!({"jqPathExpressions": [expression]}),
    );
    agent
        .create("work", spec(&agent, &deployment(&agent, 1), &strategy))
        .await?;
    let work = agent.shows("work", &[("Applied", "F")]).await?;
    let applied = manifest_condition(&work, 0, "Applied")?;
    ensure!(
        applied["reason"] == "AppliedManifestSSAIgnoreFieldError",
        "{applied}"
    );
    let message = applied["message"].as_str().unwrap_or_default();
    let start = format!("Failed to process ignoreFields: JQ expression error in '{expression}': ");
    ensure!(message.starts_with(&start), "{message}");
    Ok(())
}

async fn s20_c008_what_is_applied_is_left_alone(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    let mut wanted = deployment(&agent, 1);
    wanted["metadata"]["creationTimestamp"] = Value::Null;
    wanted["spec"]["template"]["metadata"]["creationTimestamp"] = Value::Null;
    let mut both = spec(&agent, &wanted, &server_side(&json!({"force": true})));
    // Of an installation in which hub and cluster are one; the namespace has no agent.
    let elsewhere = format!("{}-other", agent.name());
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": elsewhere}});
    let inner = json!({
        "apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
        "metadata": {"namespace": elsewhere, "name": "inner", "creationTimestamp": null},
        "spec": {"workload": {"manifests": [agent.config_map("x", json!({"a": "b"}))]}}});
    if let Some(manifests) = both["workload"]["manifests"].as_array_mut() {
        manifests.extend([namespace, inner]);
    }
    if let Some(configs) = both["manifestConfigs"].as_array_mut() {
        configs.push(json!({
            "resourceIdentifier": {"group": "work.open-cluster-management.io",
                "resource": "manifestworks", "namespace": "*", "name": "*"},
            "updateStrategy": server_side(&json!({"force": true}))}));
    }
    agent.applied("work", both).await?;
    let deployment = agent.object("deployments", "deploy1");
    let path = format!(
        "/apis/work.open-cluster-management.io/v1/namespaces/{elsewhere}/manifestworks/inner"
    );
    let inner_work = || async {
        let answer = agent.spoke().rest().get(&path).await?;
        answer.ok()
    };
    let before = (deployment.get().await?, inner_work().await?);
    ensure!(before.0["metadata"]["generation"] == 1, "{}", before.0);
    agent.looks_again("work", 3).await?;
    let after = (deployment.get().await?, inner_work().await?);
    for (before, after) in [(before.0, after.0), (before.1, after.1)] {
        let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
        ensure!(version(&before) == version(&after), "{before} {after}");
        ensure!(after["metadata"]["generation"] == 1, "{after}");
    }
    Ok(())
}

async fn c013_ignored_fields_are_created_and_owners_follow(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    let mut spec = manifests([agent.config_map("a", json!({"k": "v"}))]);
    spec["manifestConfigs"] = json!([{
        "resourceIdentifier": {"group": "", "resource": "configmaps",
            "namespace": agent.name(), "name": "a"},
        "updateStrategy": ignoring("OnSpokePresent", &json!({"jsonPaths": [".data"]}))}]);
    agent.applied("work", spec).await?;
    let record = agent.record("work").get().await?;
    let live = agent.cm("a").get().await?;
    ensure!(live["data"] == json!({"k": "v"}), "{live}");
    let owners = &live["metadata"]["ownerReferences"];
    ensure!(
        owners.as_array().is_some_and(|owners| owners.len() == 1)
            && owners[0]["uid"] == record["metadata"]["uid"],
        "{owners}"
    );

    agent.cm("a").merge(json!({"data": {"k": "x"}})).await?;
    agent.looks_again("work", 2).await?;
    let orphan = json!({"deleteOption": {"propagationPolicy": "Orphan"}});
    agent.edit("work", orphan).await?;
    let live = agent
        .cm("a")
        .is("have no owner", |object| {
            let owners = object["metadata"]["ownerReferences"].as_array();
            owners.is_none_or(Vec::is_empty)
        })
        .await?;
    ensure!(live["data"] == json!({"k": "x"}), "{live}");
    Ok(())
}

/// While a field is ignored, others are still repaired, and what the agent owns of the ignored
/// ones is not reset. A work may change its strategy back and forth.
async fn drift_of_the_rest_is_repaired_and_strategies_can_be_swapped(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    let mut forced = ignoring("OnSpokePresent", &json!({"jsonPaths": [".spec.replicas"]}));
    forced["serverSideApply"]["force"] = true.into();
    agent
        .applied("work", spec(&agent, &deployment(&agent, 3), &forced))
        .await?;
    let live = agent.object("deployments", "deploy1");
    live.merge(
        json!({"spec": {"template": {"metadata": {"labels": {"app": "d"}},
        "spec": {"containers": [{"name": "c", "image": "example/drifted:1"}]}}}}),
    )
    .await?;
    let image = |object: &Value| {
        object["spec"]["template"]["spec"]["containers"][0]["image"] == "example/web:1"
    };
    let repaired = live.is("have its image again", image).await?;
    ensure!(repaired["spec"]["replicas"] == 3, "{repaired}");

    let update = json!({"type": "Update"});
    let plain = server_side(&json!({}));
    for (strategy, replicas) in [(&update, 4), (&plain, 5), (&update, 6), (&plain, 7)] {
        let mut changed = spec(&agent, &deployment(&agent, replicas), strategy);
        if strategy["serverSideApply"].is_null() {
            changed["manifestConfigs"][0]["updateStrategy"] = update.clone();
        }
        agent.edit("work", changed).await?;
        agent.settled("work").await?;
        let live = replicas_are(&agent, replicas).await?;
        let env = &live["spec"]["template"]["spec"]["containers"][0]["env"];
        ensure!(env.as_array().is_some_and(|env| env.len() == 2), "{live}");
    }
    Ok(())
}

/// The entries of a config map go with the manifest's, by whichever strategy they came.
async fn what_one_strategy_wrote_goes_when_the_other_drops_it(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    let by = |name: &str, strategy: &str, data: &Value| {
        let mut spec = manifests([agent.config_map(name, data.clone())]);
        spec["manifestConfigs"] = json!([{
            "resourceIdentifier": {"group": "", "resource": "configmaps",
                "namespace": agent.name(), "name": name},
            "updateStrategy": {"type": strategy}}]);
        spec
    };
    let (update, apply) = ("Update", "ServerSideApply");
    let both = json!({"k": "1", "old": "1"});
    let one = json!({"k": "2"});
    for (name, steps) in [
        ("at-once", vec![(update, &both), (apply, &one)]),
        (
            "later",
            vec![(update, &both), (apply, &both), (apply, &one)],
        ),
        (
            "and-back",
            vec![
                (apply, &both),
                (update, &one),
                (update, &both),
                (apply, &one),
                (apply, &both),
                (apply, &one),
            ],
        ),
    ] {
        for (step, (strategy, data)) in steps.into_iter().enumerate() {
            let spec = by(name, strategy, data);
            if step == 0 {
                agent.create(name, spec).await?;
            } else {
                agent.edit(name, spec).await?;
            }
            agent.settled(name).await?;
            let live = agent.cm(name).get().await?;
            ensure!(live["data"] == *data, "{name}, step {step}: {live}");
            let owned = live["metadata"]["ownerReferences"].as_array();
            ensure!(owned.is_some_and(|owners| owners.len() == 1), "{live}");
        }
        // Nothing is left to write.
        let before = agent.cm(name).get().await?;
        agent.looks_again(name, 2).await?;
        let after = agent.cm(name).get().await?;
        let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
        ensure!(version(&before) == version(&after), "{before} {after}");
    }
    Ok(())
}
