//! Who owns which field after writes of all kinds.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::super::{config_map, has};
use super::{apply, config_maps, data, deployment, owned_by, owners};
use crate::support::{Story, World};

pub(super) fn stories() -> Vec<Story> {
    on_each_backend![
        a_created_deployment_is_owned_field_by_field,
        writes_of_all_kinds_are_tracked,
        writes_that_change_nothing_change_no_time,
        managers_can_be_forgotten_and_are_found_again_by_apply,
        a_status_of_a_built_in_type_takes_its_metadata_along,
        the_oldest_of_too_many_managers_are_put_together,
    ]
}

async fn a_created_deployment_is_owned_field_by_field(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let path = format!(
        "/apis/apps/v1/namespaces/{}/deployments?fieldManager=creator",
        hub.namespace().await?
    );
    let mut object = deployment(1);
    object["metadata"]["labels"] = json!({ "app": "a" });
    object["spec"]["template"]["spec"]["containers"] = json!([
        { "name": "one", "image": "one:1", "ports": [{ "containerPort": 80 }] },
    ]);
    let created = hub.rest().post(&path, &object).await?.created()?;
    owned_by(
        &created,
        &json!({ "creator Update": {
            "f:metadata": { "f:labels": { ".": {}, "f:app": {} } },
            "f:spec": {
                "f:progressDeadlineSeconds": {}, "f:replicas": {}, "f:revisionHistoryLimit": {},
                "f:selector": {},
                "f:strategy": {
                    "f:rollingUpdate": { ".": {}, "f:maxSurge": {}, "f:maxUnavailable": {} },
                    "f:type": {},
                },
                "f:template": {
                    "f:metadata": { "f:labels": { ".": {}, "f:app": {} } },
                    "f:spec": {
                        "f:containers": { "k:{\"name\":\"one\"}": {
                            ".": {}, "f:image": {}, "f:imagePullPolicy": {}, "f:name": {},
                            "f:ports": { ".": {},
                                "k:{\"containerPort\":80,\"protocol\":\"TCP\"}":
                                    { ".": {}, "f:containerPort": {}, "f:protocol": {} },
                            },
                            "f:resources": {}, "f:terminationMessagePath": {},
                            "f:terminationMessagePolicy": {},
                        } },
                        "f:dnsPolicy": {}, "f:restartPolicy": {}, "f:schedulerName": {},
                        "f:securityContext": {}, "f:terminationGracePeriodSeconds": {},
                    },
                },
            },
        } }),
    )
}

async fn writes_of_all_kinds_are_tracked(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let path = config_maps(&hub).await?;
    let at = |manager: &str| format!("{path}/a?fieldManager={manager}");
    let mut object = config_map("a", "1");
    object["data"]["other"] = json!("1");
    let created = hub
        .rest()
        .post(&format!("{path}?fieldManager=post"), &object)
        .await?
        .created()?;
    owned_by(
        &created,
        &json!({ "post Update": { "f:data": { ".": {}, "f:value": {}, "f:other": {} } } }),
    )?;
    hub.rest()
        .put(&at("put"), &config_map("a", "2"))
        .await?
        .ok()?;
    let label = json!({ "metadata": { "labels": { "app": "shop" } } });
    hub.rest().merge_patch(&at("merge"), &label).await?.ok()?;
    let add = json!([{ "op": "add", "path": "/data/json", "value": "1" }]);
    hub.rest().json_patch(&at("json"), &add).await?.ok()?;
    let strategic = json!({ "data": { "strategic": "1" }, "metadata": { "finalizers": null } });
    let last = hub
        .rest()
        .send(
            http::Method::PATCH,
            &at("strategic"),
            Some("application/strategic-merge-patch+json"),
            Some(&strategic),
        )
        .await?
        .ok()?;
    owned_by(
        &last,
        &json!({
            "post Update": { "f:data": {} },
            "put Update": { "f:data": { "f:value": {} } },
            "merge Update": { "f:metadata": { "f:labels": { ".": {}, "f:app": {} } } },
            "json Update": { "f:data": { "f:json": {} } },
            "strategic Update": { "f:data": { "f:strategic": {} } },
        }),
    )?;
    // What somebody else sets to the same value changes hands with the next change only.
    let same = json!({ "data": { "json": "1", "strategic": "2" } });
    let changed = hub.rest().merge_patch(&at("merge"), &same).await?.ok()?;
    let fields = owners(&changed)?;
    ensure!(
        fields["json Update"] == json!({ "f:data": { "f:json": {} } })
            && !fields.contains_key("strategic Update"),
        "{fields:?}"
    );
    Ok(())
}

async fn writes_that_change_nothing_change_no_time(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let path = config_maps(&hub).await?;
    let created = hub
        .rest()
        .post(&format!("{path}?fieldManager=m"), &config_map("a", "1"))
        .await?
        .created()?;
    let at = format!("{path}/a?fieldManager=n");
    let put = hub.rest().put(&at, &config_map("a", "1")).await?.ok()?;
    ensure!(put == created, "{put}");
    let patched = hub
        .rest()
        .merge_patch(&at, &json!({ "data": { "value": "1" } }))
        .await?
        .ok()?;
    ensure!(patched == created, "{patched}");
    Ok(())
}

async fn managers_can_be_forgotten_and_are_found_again_by_apply(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let path = format!("{}/a", config_maps(&hub).await?);
    apply(&hub, &path, "m", &data(&json!({ "x": "1" })))
        .await?
        .created()?;
    let reset = json!({ "metadata": { "managedFields": [{}] } });
    let forgotten = hub.rest().merge_patch(&path, &reset).await?.ok()?;
    has(
        &forgotten,
        &json!({ "metadata": { "managedFields": null } }),
    )?;
    // Nobody is tracked until the object is applied.
    let change = json!({ "data": { "y": "2" } });
    let changed = hub.rest().merge_patch(&path, &change).await?.ok()?;
    has(&changed, &json!({ "metadata": { "managedFields": null } }))?;
    apply(&hub, &path, "m", &data(&json!({ "x": "2" })))
        .await?
        .refused(
            409,
            "Conflict",
            "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: .data.x",
        )?;
    let applied = apply(&hub, &path, "m", &data(&json!({ "x": "1" })))
        .await?
        .ok()?;
    owned_by(
        &applied,
        &json!({
            "m Apply": { "f:data": { "f:x": {} } },
            "before-first-apply Update": { "f:data": { ".": {}, "f:x": {}, "f:y": {} } },
        }),
    )
}

async fn the_oldest_of_too_many_managers_are_put_together(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let path = config_maps(&hub).await?;
    hub.rest()
        .post(&format!("{path}?fieldManager=m00"), &config_map("a", "1"))
        .await?
        .created()?;
    let mut last = Value::Null;
    for i in 1..=12 {
        let mut change = json!({ "data": {} });
        change["data"][format!("k{i:02}")] = json!("v");
        last = hub
            .rest()
            .merge_patch(&format!("{path}/a?fieldManager=m{i:02}"), &change)
            .await?
            .ok()?;
    }
    let fields = owners(&last)?;
    ensure!(fields.len() == 10, "{fields:?}");
    let ancient = fields
        .get("ancient-changes Update")
        .context("nothing is ancient")?;
    ensure!(
        *ancient
            == json!({ "f:data": { ".": {}, "f:value": {}, "f:k01": {}, "f:k02": {}, "f:k03": {} } }),
        "{ancient}"
    );
    Ok(())
}

async fn a_status_of_a_built_in_type_takes_its_metadata_along(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let path = format!(
        "/apis/apps/v1/namespaces/{}/deployments/a",
        hub.namespace().await?
    );
    apply(&hub, &path, "m", &deployment(0)).await?.created()?;
    let status = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {
            "name": "a", "labels": { "app": "shop" }, "annotations": { "example.com/a": "b" },
        },
        "spec": { "replicas": 3 },
        "status": { "collisionCount": 1 },
    });
    let applied = apply(&hub, &format!("{path}/status"), "s", &status)
        .await?
        .ok()?;
    // A Deployment keeps its labels and its spec.
    has(
        &applied,
        &json!({
            "metadata": { "labels": null, "annotations": { "example.com/a": "b" } },
            "spec": { "replicas": 0 },
            "status": { "collisionCount": 1 },
        }),
    )?;
    let fields = owners(&applied)?;
    ensure!(
        fields["s Apply status"]
            == json!({
                "f:metadata": { "f:annotations": { "f:example.com/a": {} } },
                "f:status": { "f:collisionCount": {} },
            }),
        "{fields:?}"
    );
    Ok(())
}
