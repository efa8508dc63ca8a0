//! Generation, the status subresource and the scale subresource.

use anyhow::{Result, ensure};
use serde_json::json;

use super::{Widgets, has, resource_version};
use crate::support::{Story, World};

pub(super) fn stories() -> Vec<Story> {
    on_each_backend![
        generation_counts_changes_of_the_spec,
        generation_of_built_in_types_follows_the_same_rule,
        status_is_written_through_its_subresource_only,
        status_of_a_built_in_type_is_isolated_too,
        status_writes_conflict_like_others,
        scale_reads_and_writes_the_replicas,
        a_subresource_that_is_not_there_is_not_found,
    ]
}

async fn generation_counts_changes_of_the_spec(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let widgets = Widgets::install(hub.clone()).await?;
    let path = format!("{}/a", widgets.path());
    let mut widget = widgets.widget("a", &json!({ "size": "small" }));
    widget["metadata"]["generation"] = json!(41);
    let created = hub.rest().post(&widgets.path(), &widget).await?.created()?;
    has(&created, &json!({ "metadata": { "generation": 1 } }))?;

    for (change, generation) in [
        (json!({ "metadata": { "labels": { "app": "shop" } } }), 1),
        (json!({ "metadata": { "annotations": { "note": "n" } } }), 1),
        (json!({ "spec": { "size": "large" } }), 2),
        (json!({ "spec": { "size": "large" } }), 2),
        (json!({ "status": { "phase": "ignored" } }), 2),
        (json!({ "metadata": { "generation": 9 } }), 2),
        (json!({ "spec": { "replicas": 2 } }), 3),
    ] {
        let patched = hub.rest().merge_patch(&path, &change).await?.ok()?;
        has(
            &patched,
            &json!({ "metadata": { "generation": generation } }),
        )?;
    }
    let status = json!({ "status": { "phase": "made" } });
    let patched = hub
        .rest()
        .merge_patch(&format!("{path}/status"), &status)
        .await?
        .ok()?;
    has(
        &patched,
        &json!({ "metadata": { "generation": 3 }, "status": { "phase": "made" } }),
    )
}

/// A Deployment that no pod will ever follow.
fn deployment(name: &str) -> serde_json::Value {
    json!({
        "metadata": { "name": name },
        "spec": {
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "containers": [{ "name": "main", "image": "main:1" }] },
            },
        },
    })
}

async fn generation_of_built_in_types_follows_the_same_rule(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let path = format!(
        "/apis/apps/v1/namespaces/{}/deployments",
        hub.namespace().await?
    );
    let created = hub.rest().post(&path, &deployment("a")).await?.created()?;
    has(
        &created,
        &json!({ "metadata": { "generation": 1 }, "status": {} }),
    )?;
    let path = format!("{path}/a");
    let label = json!({ "metadata": { "labels": { "app": "shop" } } });
    let labelled = hub.rest().merge_patch(&path, &label).await?.ok()?;
    has(&labelled, &json!({ "metadata": { "generation": 1 } }))?;
    let scale = json!({ "spec": { "replicas": 2 } });
    let scaled = hub.rest().merge_patch(&path, &scale).await?.ok()?;
    has(&scaled, &json!({ "metadata": { "generation": 2 } }))?;
    let status = json!({ "status": { "replicas": 1, "observedGeneration": 2 } });
    let reported = hub
        .rest()
        .merge_patch(&format!("{path}/status"), &status)
        .await?
        .ok()?;
    has(
        &reported,
        &json!({ "metadata": { "generation": 2 }, "status": { "replicas": 1 } }),
    )
}

async fn status_is_written_through_its_subresource_only(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let widgets = Widgets::install(hub.clone()).await?;
    let path = format!("{}/a", widgets.path());
    let mut widget = widgets.widget("a", &json!({ "size": "small" }));
    widget["status"] = json!({ "phase": "forged" });
    let created = hub.rest().post(&widgets.path(), &widget).await?.created()?;
    ensure!(
        created.get("status").is_none(),
        "create wrote the status: {created}"
    );

    let mut report = created.clone();
    report["status"] = json!({ "phase": "made" });
    report["spec"]["size"] = json!("large");
    report["metadata"]["labels"] = json!({ "app": "shop" });
    report["metadata"]["annotations"] = json!({ "note": "n" });
    let reported = hub
        .rest()
        .put(&format!("{path}/status"), &report)
        .await?
        .ok()?;
    // Of the metadata, a status update of a custom type writes nothing but managedFields.
    has(
        &reported,
        &json!({
            "spec": { "size": "small" }, "status": { "phase": "made" },
            "metadata": { "generation": 1, "labels": null, "annotations": null },
        }),
    )?;

    let mut update = reported.clone();
    update["spec"]["size"] = json!("large");
    update["status"] = json!({ "phase": "forged" });
    let updated = hub.rest().put(&path, &update).await?.ok()?;
    has(
        &updated,
        &json!({ "spec": { "size": "large" }, "status": { "phase": "made" } }),
    )?;

    let read = hub.rest().get(&format!("{path}/status")).await?.ok()?;
    ensure!(read == updated, "the subresource reads {read}");
    Ok(())
}

async fn status_of_a_built_in_type_is_isolated_too(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let path = format!(
        "/apis/apps/v1/namespaces/{}/deployments",
        hub.namespace().await?
    );
    let mut object = deployment("a");
    object["status"] = json!({ "replicas": 7 });
    let created = hub.rest().post(&path, &object).await?.created()?;
    ensure!(
        created["status"] == json!({}),
        "create wrote the status: {created}"
    );
    let change = json!({ "spec": { "replicas": 5 }, "status": { "replicas": 3 } });
    let path = format!("{path}/a");
    let reported = hub
        .rest()
        .merge_patch(&format!("{path}/status"), &change)
        .await?
        .ok()?;
    has(
        &reported,
        &json!({ "spec": { "replicas": 1 }, "status": { "replicas": 3 } }),
    )?;
    let patched = hub.rest().merge_patch(&path, &change).await?.ok()?;
    has(
        &patched,
        &json!({ "spec": { "replicas": 5 }, "status": { "replicas": 3 } }),
    )
}

async fn status_writes_conflict_like_others(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let widgets = Widgets::install(hub.clone()).await?;
    let path = format!("{}/a", widgets.path());
    let widget = widgets.widget("a", &json!({ "size": "small" }));
    let created = hub.rest().post(&widgets.path(), &widget).await?.created()?;
    let status = json!({ "status": { "phase": "made" } });
    let reported = hub
        .rest()
        .merge_patch(&format!("{path}/status"), &status)
        .await?
        .ok()?;
    ensure!(
        resource_version(&reported)? != resource_version(&created)?,
        "the version stayed"
    );
    let again = hub
        .rest()
        .merge_patch(&format!("{path}/status"), &status)
        .await?
        .ok()?;
    ensure!(
        resource_version(&reported)? == resource_version(&again)?,
        "a new version"
    );

    let mut old = created;
    old["status"] = json!({ "phase": "old" });
    let conflict = format!(
        "Operation cannot be fulfilled on widgets.{} \"a\": the object has been modified; \
         please apply your changes to the latest version and try again",
        widgets.group
    );
    hub.rest()
        .put(&format!("{path}/status"), &old)
        .await?
        .refused(409, "Conflict", &conflict)?;
    Ok(())
}

async fn scale_reads_and_writes_the_replicas(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let widgets = Widgets::install(hub.clone()).await?;
    let path = format!("{}/a", widgets.path());
    let widget = widgets.widget("a", &json!({ "size": "small", "replicas": 2 }));
    hub.rest().post(&widgets.path(), &widget).await?.created()?;
    let status = json!({ "status": { "replicas": 1, "selector": "app=a" } });
    let reported = hub
        .rest()
        .merge_patch(&format!("{path}/status"), &status)
        .await?
        .ok()?;

    let mut scale = hub.rest().get(&format!("{path}/scale")).await?.ok()?;
    let metadata = &reported["metadata"];
    let expected = json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": "a",
            "namespace": widgets.namespace,
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
            "creationTimestamp": metadata["creationTimestamp"],
        },
        "spec": { "replicas": 2 },
        "status": { "replicas": 1, "selector": "app=a" },
    });
    ensure!(scale == expected, "scale is {scale}");

    scale["spec"]["replicas"] = json!(4);
    hub.rest()
        .put(&format!("{path}/scale"), &scale)
        .await?
        .ok()?;
    let change = json!({ "spec": { "replicas": 3 } });
    let patched = hub
        .rest()
        .merge_patch(&format!("{path}/scale"), &change)
        .await?
        .ok()?;
    has(
        &patched,
        &json!({ "kind": "Scale", "spec": { "replicas": 3 } }),
    )?;
    let read = hub.rest().get(&path).await?.ok()?;
    has(
        &read,
        &json!({ "metadata": { "generation": 3 }, "spec": { "replicas": 3 } }),
    )
}

async fn a_subresource_that_is_not_there_is_not_found(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let widgets = Widgets::install(hub.clone()).await?;
    let widget = widgets.widget("a", &json!({ "size": "small" }));
    hub.rest().post(&widgets.path(), &widget).await?.created()?;
    hub.rest()
        .get(&format!("{}/a/logs", widgets.path()))
        .await?
        .refused(
            404,
            "NotFound",
            &format!("widgets.{} \"a\" not found", widgets.group),
        )?;
    let nothing = format!("{}/none/status", widgets.path());
    hub.rest()
        .merge_patch(&nothing, &json!({ "status": {} }))
        .await?
        .refused(
            404,
            "NotFound",
            &format!("widgets.{} \"none\" not found", widgets.group),
        )?;
    Ok(())
}
