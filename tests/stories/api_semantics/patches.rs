//! JSON patch and merge patch.

use anyhow::{Result, ensure};
use serde_json::json;

use super::{Widgets, config_map, has, resource_version};
use crate::support::{Story, World};

pub(super) fn stories() -> Vec<Story> {
    on_each_backend![
        merge_patch_changes_adds_and_removes,
        merge_patch_replaces_lists,
        json_patch_changes_by_path,
        json_patch_that_fails_changes_nothing,
        patch_with_an_old_version_conflicts,
        patch_of_a_missing_object_is_refused,
        patch_cannot_change_identity,
        patch_is_validated_like_an_update,
        strategic_merge_merges_lists_by_key,
        patch_of_an_unknown_kind_is_refused,
    ]
}

async fn merge_patch_changes_adds_and_removes(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let path = format!("/api/v1/namespaces/{}/configmaps", hub.namespace().await?);
    let mut object = config_map("a", "1");
    object["data"]["gone"] = json!("soon");
    let created = hub.rest().post(&path, &object).await?.created()?;
    let change = json!({
        "metadata": { "labels": { "app": "shop" } },
        "data": { "value": "2", "gone": null, "new": "here" },
    });
    let patched = hub
        .rest()
        .merge_patch(&format!("{path}/a"), &change)
        .await?
        .ok()?;
    ensure!(
        patched["data"] == json!({ "value": "2", "new": "here" }),
        "{patched}"
    );
    has(
        &patched,
        &json!({ "metadata": { "labels": { "app": "shop" } } }),
    )?;
    ensure!(
        resource_version(&patched)? != resource_version(&created)?,
        "the version stayed"
    );
    Ok(())
}

async fn merge_patch_replaces_lists(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let widgets = Widgets::install(hub.clone()).await?;
    let spec = json!({ "size": "small", "parts": [{ "name": "lid" }, { "name": "box" }] });
    let widget = widgets.widget("a", &spec);
    hub.rest().post(&widgets.path(), &widget).await?.created()?;
    let change = json!({ "spec": { "parts": [{ "name": "key", "count": 1 }] } });
    let patched = hub
        .rest()
        .merge_patch(&format!("{}/a", widgets.path()), &change)
        .await?
        .ok()?;
    ensure!(
        patched["spec"]["parts"] == json!([{ "name": "key", "count": 1 }]),
        "{patched}"
    );
    Ok(())
}

async fn json_patch_changes_by_path(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let path = format!("/api/v1/namespaces/{}/configmaps", hub.namespace().await?);
    hub.rest()
        .post(&path, &config_map("a", "1"))
        .await?
        .created()?;
    let change = json!([
        { "op": "test", "path": "/data/value", "value": "1" },
        { "op": "replace", "path": "/data/value", "value": "2" },
        { "op": "add", "path": "/metadata/labels", "value": { "example.com/app": "shop" } },
        { "op": "copy", "from": "/data/value", "path": "/data/copy" },
        { "op": "move", "from": "/data/copy", "path": "/data/moved" },
        { "op": "replace", "path": "/metadata/labels/example.com~1app", "value": "blog" },
    ]);
    let patched = hub
        .rest()
        .json_patch(&format!("{path}/a"), &change)
        .await?
        .ok()?;
    ensure!(
        patched["data"] == json!({ "value": "2", "moved": "2" }),
        "{patched}"
    );
    has(
        &patched,
        &json!({ "metadata": { "labels": { "example.com/app": "blog" } } }),
    )
}

async fn json_patch_that_fails_changes_nothing(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let path = format!("/api/v1/namespaces/{}/configmaps", hub.namespace().await?);
    let created = hub
        .rest()
        .post(&path, &config_map("a", "1"))
        .await?
        .created()?;
    let failing_test = json!([
        { "op": "replace", "path": "/data/value", "value": "2" },
        { "op": "test", "path": "/data/value", "value": "1" },
    ]);
    hub.rest()
        .json_patch(&format!("{path}/a"), &failing_test)
        .await?
        .refused(
            422,
            "Invalid",
            "the server rejected our request due to an error in our request",
        )?;
    let missing_path = json!([{ "op": "remove", "path": "/data/none" }]);
    hub.rest()
        .json_patch(&format!("{path}/a"), &missing_path)
        .await?
        .refused(
            422,
            "Invalid",
            "the server rejected our request due to an error in our request",
        )?;
    let no_list = json!({ "data": { "value": "2" } });
    hub.rest()
        .json_patch(&format!("{path}/a"), &no_list)
        .await?
        .refused_beginning(400, "BadRequest", "error decoding patch: ")?;
    let read = hub.rest().get(&format!("{path}/a")).await?.ok()?;
    ensure!(read == created, "a failed patch left {read}");
    Ok(())
}

async fn patch_with_an_old_version_conflicts(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let path = format!("/api/v1/namespaces/{}/configmaps", hub.namespace().await?);
    let created = hub
        .rest()
        .post(&path, &config_map("a", "1"))
        .await?
        .created()?;
    let change = json!({ "data": { "value": "2" } });
    hub.rest()
        .merge_patch(&format!("{path}/a"), &change)
        .await?
        .ok()?;
    let old = json!({
        "metadata": { "resourceVersion": resource_version(&created)? },
        "data": { "value": "3" },
    });
    let conflict = "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; \
         please apply your changes to the latest version and try again";
    let name = format!("{path}/a");
    hub.rest()
        .merge_patch(&name, &old)
        .await?
        .refused(409, "Conflict", conflict)?;
    // Operations are bound to a version in the same way, by writing it.
    let old = json!([
        { "op": "replace", "path": "/metadata/resourceVersion",
            "value": resource_version(&created)? },
        { "op": "replace", "path": "/data/value", "value": "3" },
    ]);
    hub.rest()
        .json_patch(&name, &old)
        .await?
        .refused(409, "Conflict", conflict)?;
    Ok(())
}

async fn patch_of_a_missing_object_is_refused(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let path = format!(
        "/api/v1/namespaces/{}/configmaps/none",
        hub.namespace().await?
    );
    hub.rest()
        .merge_patch(&path, &json!({ "data": {} }))
        .await?
        .refused(404, "NotFound", "configmaps \"none\" not found")?;
    Ok(())
}

async fn patch_cannot_change_identity(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let path = format!("/api/v1/namespaces/{}/configmaps", hub.namespace().await?);
    let created = hub
        .rest()
        .post(&path, &config_map("a", "1"))
        .await?
        .created()?;
    let rename = json!({ "metadata": { "name": "b" } });
    hub.rest()
        .merge_patch(&format!("{path}/a"), &rename)
        .await?
        .refused(
            400,
            "BadRequest",
            "the name of the object (b) does not match the name on the URL (a)",
        )?;
    let forge = json!({ "metadata": { "creationTimestamp": "2001-01-01T00:00:00Z" } });
    let patched = hub
        .rest()
        .merge_patch(&format!("{path}/a"), &forge)
        .await?
        .ok()?;
    ensure!(patched == created, "the patch changed it to {patched}");
    let other_uid = json!({ "metadata": { "uid": "00000000-0000-0000-0000-000000000000" } });
    hub.rest()
        .merge_patch(&format!("{path}/a"), &other_uid)
        .await?
        .refused(
            422,
            "Invalid",
            "ConfigMap \"a\" is invalid: metadata.uid: Invalid value: \
         \"00000000-0000-0000-0000-000000000000\": field is immutable",
        )?;
    Ok(())
}

async fn patch_is_validated_like_an_update(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let widgets = Widgets::install(hub.clone()).await?;
    let widget = widgets.widget("a", &json!({ "size": "small" }));
    hub.rest().post(&widgets.path(), &widget).await?.created()?;
    let change = json!({ "spec": { "replicas": 6 } });
    let details = hub
        .rest()
        .merge_patch(&format!("{}/a", widgets.path()), &change)
        .await?
        .refused(
            422,
            "Invalid",
            &format!(
                "Widget.{} \"a\" is invalid: spec.replicas: Invalid value: 6: spec.replicas in \
                 body should be less than or equal to 5",
                widgets.group
            ),
        )?;
    has(
        &details,
        &json!({
            "name": "a", "group": widgets.group, "kind": "Widget",
            "causes": [{ "field": "spec.replicas" }],
        }),
    )
}

async fn strategic_merge_merges_lists_by_key(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let path = format!(
        "/apis/apps/v1/namespaces/{}/deployments",
        hub.namespace().await?
    );
    let deployment = json!({
        "metadata": { "name": "a" },
        "spec": {
            "selector": { "matchLabels": { "app": "a" } },
            "template": {
                "metadata": { "labels": { "app": "a" } },
                "spec": { "containers": [
                    { "name": "one", "image": "one:1" }, { "name": "two", "image": "two:1" },
                ] },
            },
        },
    });
    hub.rest().post(&path, &deployment).await?.created()?;
    let change = json!({ "spec": { "template": { "spec": { "containers": [
        { "name": "two", "image": "two:2" },
    ] } } } });
    let patched = hub
        .rest()
        .send(
            http::Method::PATCH,
            &format!("{path}/a"),
            Some("application/strategic-merge-patch+json"),
            Some(&change),
        )
        .await?
        .ok()?;
    has(
        &patched,
        &json!({ "spec": { "template": { "spec": { "containers": [
            { "name": "one", "image": "one:1" }, { "name": "two", "image": "two:2" },
        ] } } } }),
    )
}

async fn patch_of_an_unknown_kind_is_refused(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let widgets = Widgets::install(hub.clone()).await?;
    let widget = widgets.widget("a", &json!({ "size": "small" }));
    hub.rest().post(&widgets.path(), &widget).await?.created()?;
    let patch = async |content_type: &str| {
        hub.rest()
            .send(
                http::Method::PATCH,
                &format!("{}/a", widgets.path()),
                Some(content_type),
                Some(&json!({ "spec": { "size": "large" } })),
            )
            .await
    };
    patch("application/strategic-merge-patch+json")
        .await?
        .refused(
            415,
            "UnsupportedMediaType",
            "the body of the request was in an unknown format - accepted media types include: \
         application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
        )?;
    patch("application/json").await?.refused(
        415,
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: \
         application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
    )?;
    Ok(())
}
