//! Watches: where they start, what they show, how they end.

use anyhow::{Result, ensure};
use serde_json::json;

use super::{Widgets, config_map, has, resource_version, text};
use crate::support::{Story, World};

pub(super) fn stories() -> Vec<Story> {
    on_each_backend![
        a_watch_from_a_version_shows_what_came_after_it,
        a_watch_without_a_version_starts_with_what_is_there,
        a_watch_sees_an_object_enter_and_leave_its_selector,
        a_watch_of_one_object_sees_no_other,
        a_change_of_nothing_is_no_event,
        a_watch_asking_for_bookmarks_gets_the_initial_list_and_its_end,
        a_watch_ends_after_its_timeout,
        a_watch_from_the_future_is_told_to_come_back,
        a_watch_from_a_forgotten_version_is_told_so,
        a_watch_with_a_bad_version_is_refused,
        a_deleted_object_is_shown_in_its_last_state,
        a_watch_across_namespaces_sees_them_all,
        metadata_only_watches_leave_the_rest_out,
    ]
}

async fn a_watch_from_a_version_shows_what_came_after_it(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let path = format!("/api/v1/namespaces/{}/configmaps", hub.namespace().await?);
    hub.rest()
        .post(&path, &config_map("before", "1"))
        .await?
        .created()?;
    let list = hub.rest().get(&path).await?.ok()?;
    let a = hub
        .rest()
        .post(&path, &config_map("a", "1"))
        .await?
        .created()?;
    let change = json!({ "data": { "value": "2" } });
    let a2 = hub
        .rest()
        .merge_patch(&format!("{path}/a"), &change)
        .await?
        .ok()?;
    hub.rest().delete(&format!("{path}/before")).await?.ok()?;

    let from = format!(
        "{path}?watch=true&resourceVersion={}",
        resource_version(&list)?
    );
    let mut watch = hub.rest().watch(&from).await?;
    ensure!(
        watch.next_is("ADDED").await? == a,
        "another object was added"
    );
    ensure!(
        watch.next_is("MODIFIED").await? == a2,
        "another object was modified"
    );
    let gone = watch.next_is("DELETED").await?;
    has(
        &gone,
        &json!({ "kind": "ConfigMap", "metadata": { "name": "before" } }),
    )?;
    let next = hub
        .rest()
        .post(&path, &config_map("next", "1"))
        .await?
        .created()?;
    ensure!(
        watch.next_is("ADDED").await? == next,
        "another object was added"
    );
    Ok(())
}

async fn a_watch_without_a_version_starts_with_what_is_there(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let path = format!("/api/v1/namespaces/{}/configmaps", hub.namespace().await?);
    for name in ["b", "a"] {
        hub.rest()
            .post(&path, &config_map(name, "1"))
            .await?
            .created()?;
    }
    for from in ["", "&resourceVersion=0"] {
        let mut watch = hub
            .rest()
            .watch(&format!("{path}?watch=true{from}"))
            .await?;
        let mut seen = Vec::new();
        for _ in 0..2 {
            seen.push(text(&watch.next_is("ADDED").await?, "/metadata/name")?.to_owned());
        }
        seen.sort_unstable();
        ensure!(seen == ["a", "b"], "{from:?} began with {seen:?}");
    }
    Ok(())
}

async fn a_watch_sees_an_object_enter_and_leave_its_selector(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let path = format!("/api/v1/namespaces/{}/configmaps", hub.namespace().await?);
    let list = hub.rest().get(&path).await?.ok()?;
    let mut watch = hub
        .rest()
        .watch(&format!(
            "{path}?watch=true&labelSelector=app%3Dshop&resourceVersion={}",
            resource_version(&list)?
        ))
        .await?;
    hub.rest()
        .post(&path, &config_map("a", "1"))
        .await?
        .created()?;
    let path = format!("{path}/a");
    let label = |app: &str| json!({ "metadata": { "labels": { "app": app } } });
    let entered = hub.rest().merge_patch(&path, &label("shop")).await?.ok()?;
    ensure!(
        watch.next_is("ADDED").await? == entered,
        "another object entered"
    );
    let changed = hub
        .rest()
        .merge_patch(&path, &json!({ "data": { "value": "2" } }))
        .await?
        .ok()?;
    ensure!(
        watch.next_is("MODIFIED").await? == changed,
        "another object changed"
    );
    let left = hub.rest().merge_patch(&path, &label("blog")).await?.ok()?;
    // Shown as it was when it last matched, at the version of the change.
    let shown = watch.next_is("DELETED").await?;
    has(
        &shown,
        &json!({ "metadata": {
            "labels": { "app": "shop" }, "resourceVersion": resource_version(&left)?,
        } }),
    )?;
    hub.rest().delete(&path).await?.ok()?;
    let back = format!("{}/b", path.trim_end_matches("/a"));
    let mut object = config_map("b", "1");
    object["metadata"]["labels"] = json!({ "app": "shop" });
    hub.rest()
        .post(back.trim_end_matches("/b"), &object)
        .await?
        .created()?;
    has(
        &watch.next_is("ADDED").await?,
        &json!({ "metadata": { "name": "b" } }),
    )
}

async fn a_watch_of_one_object_sees_no_other(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let path = format!("/api/v1/namespaces/{}/configmaps", hub.namespace().await?);
    let list = hub.rest().get(&path).await?.ok()?;
    let mut watch = hub
        .rest()
        .watch(&format!(
            "{path}?watch=true&fieldSelector=metadata.name%3Dmine&resourceVersion={}",
            resource_version(&list)?
        ))
        .await?;
    for name in ["other", "mine", "another"] {
        hub.rest()
            .post(&path, &config_map(name, "1"))
            .await?
            .created()?;
    }
    has(
        &watch.next_is("ADDED").await?,
        &json!({ "metadata": { "name": "mine" } }),
    )?;
    hub.rest().delete(&format!("{path}/other")).await?.ok()?;
    hub.rest().delete(&format!("{path}/mine")).await?.ok()?;
    has(
        &watch.next_is("DELETED").await?,
        &json!({ "metadata": { "name": "mine" } }),
    )
}

async fn a_change_of_nothing_is_no_event(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let path = format!("/api/v1/namespaces/{}/configmaps", hub.namespace().await?);
    let created = hub
        .rest()
        .post(&path, &config_map("a", "1"))
        .await?
        .created()?;
    let mut watch = hub
        .rest()
        .watch(&format!(
            "{path}?watch=true&resourceVersion={}",
            resource_version(&created)?
        ))
        .await?;
    hub.rest().put(&format!("{path}/a"), &created).await?.ok()?;
    let same = json!({ "data": { "value": "1" } });
    hub.rest()
        .merge_patch(&format!("{path}/a"), &same)
        .await?
        .ok()?;
    let next = hub
        .rest()
        .post(&path, &config_map("next", "1"))
        .await?
        .created()?;
    ensure!(
        watch.next_is("ADDED").await? == next,
        "something else was added"
    );
    Ok(())
}

async fn a_watch_asking_for_bookmarks_gets_the_initial_list_and_its_end(
    world: World,
) -> Result<()> {
    let hub = world.hub().await?;
    let widgets = Widgets::install(hub.clone()).await?;
    let widget = widgets.widget("a", &json!({ "size": "small" }));
    let created = hub.rest().post(&widgets.path(), &widget).await?.created()?;
    let mut watch = hub
        .rest()
        .watch(&format!(
            "{}?watch=true&sendInitialEvents=true&allowWatchBookmarks=true\
             &resourceVersionMatch=NotOlderThan",
            widgets.path()
        ))
        .await?;
    ensure!(
        watch.next_is("ADDED").await? == created,
        "the list began otherwise"
    );
    let bookmark = watch.next_is("BOOKMARK").await?;
    has(
        &bookmark,
        &json!({
            "kind": "Widget",
            "apiVersion": format!("{}/v1", widgets.group),
            "metadata": { "annotations": { "k8s.io/initial-events-end": "true" } },
        }),
    )?;
    let reached = resource_version(&bookmark)?.parse::<u64>()?;
    let listed = resource_version(&created)?.parse::<u64>()?;
    ensure!(
        reached >= listed,
        "the bookmark is at {reached}, before {listed}"
    );
    let next = widgets.widget("next", &json!({ "size": "small" }));
    hub.rest().post(&widgets.path(), &next).await?.created()?;
    has(
        &watch.next_is("ADDED").await?,
        &json!({ "metadata": { "name": "next" } }),
    )
}

async fn a_watch_ends_after_its_timeout(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let path = format!("/api/v1/namespaces/{}/configmaps", hub.namespace().await?);
    let mut watch = hub
        .rest()
        .watch(&format!("{path}?watch=true&timeoutSeconds=1"))
        .await?;
    watch.has_ended().await
}

async fn a_watch_from_the_future_is_told_to_come_back(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let namespace = hub.namespace().await?;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let list = hub.rest().get(&path).await?.ok()?;
    let future = resource_version(&list)?.parse::<u64>()? + 1_000_000;
    let answer = hub
        .rest()
        .get(&format!("{path}?resourceVersion={future}"))
        .await?;
    has(
        &answer.body,
        &json!({
            "kind": "Status", "status": "Failure", "reason": "Timeout", "code": 504,
            "details": {
                "causes": [{
                    "reason": "ResourceVersionTooLarge", "message": "Too large resource version",
                }],
                "retryAfterSeconds": 1,
            },
        }),
    )?;
    ensure!(answer.code == 504, "the code is {}", answer.code);
    let message = text(&answer.body, "/message")?;
    let prefix = format!("Too large resource version: {future}, current: ");
    ensure!(message.contains(&prefix), "the message is {message}");
    Ok(())
}

async fn a_watch_from_a_forgotten_version_is_told_so(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let widgets = Widgets::install(hub.clone()).await?;
    let widget = widgets.widget("a", &json!({ "size": "small" }));
    hub.rest().post(&widgets.path(), &widget).await?.created()?;
    // More changes than the embedded server of these stories remembers. The real one has
    // forgotten the first version of all by the time that it serves.
    for count in 0..300 {
        let change = json!({ "metadata": { "labels": { "count": count.to_string() } } });
        hub.rest()
            .merge_patch(&format!("{}/a", widgets.path()), &change)
            .await?
            .ok()?;
    }
    let mut watch = hub
        .rest()
        .watch(&format!("{}?watch=true&resourceVersion=1", widgets.path()))
        .await?;
    let gone = watch.next_is("ERROR").await?;
    has(
        &gone,
        &json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "reason": "Expired", "code": 410,
        }),
    )?;
    let message = text(&gone, "/message")?;
    ensure!(
        message.starts_with("too old resource version: 1 ("),
        "the message is {message}"
    );
    watch.has_ended().await
}

async fn a_watch_with_a_bad_version_is_refused(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let path = format!("/api/v1/namespaces/{}/configmaps", hub.namespace().await?);
    let answer = hub
        .rest()
        .get(&format!("{path}?watch=true&resourceVersion=new"))
        .await?;
    answer.refused(
        500,
        "",
        "resourceVersion: Invalid value: \"new\": strconv.ParseUint: parsing \"new\": invalid \
         syntax",
    )?;
    Ok(())
}

async fn a_deleted_object_is_shown_in_its_last_state(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let path = format!("/api/v1/namespaces/{}/configmaps", hub.namespace().await?);
    let created = hub
        .rest()
        .post(&path, &config_map("a", "last"))
        .await?
        .created()?;
    let mut watch = hub
        .rest()
        .watch(&format!(
            "{path}?watch=true&resourceVersion={}",
            resource_version(&created)?
        ))
        .await?;
    hub.rest().delete(&format!("{path}/a")).await?.ok()?;
    let gone = watch.next_is("DELETED").await?;
    has(
        &gone,
        &json!({ "data": { "value": "last" }, "metadata": { "name": "a" } }),
    )?;
    let versions: (u64, u64) = (
        resource_version(&created)?.parse()?,
        resource_version(&gone)?.parse()?,
    );
    ensure!(
        versions.1 > versions.0,
        "the deletion has an old version: {versions:?}"
    );
    Ok(())
}

async fn a_watch_across_namespaces_sees_them_all(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let widgets = Widgets::install(hub.clone()).await?;
    let other = hub.namespace().await?;
    let mut watch = hub
        .rest()
        .watch(&format!("/apis/{}/v1/widgets?watch=true", widgets.group))
        .await?;
    let widget = widgets.widget("a", &json!({ "size": "small" }));
    for namespace in [&widgets.namespace, &other] {
        let path = format!("/apis/{}/v1/namespaces/{namespace}/widgets", widgets.group);
        hub.rest().post(&path, &widget).await?.created()?;
        has(
            &watch.next_is("ADDED").await?,
            &json!({ "metadata": { "namespace": namespace, "name": "a" } }),
        )?;
    }
    Ok(())
}

async fn metadata_only_watches_leave_the_rest_out(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let path = format!("/api/v1/namespaces/{}/configmaps", hub.namespace().await?);
    let created = hub
        .rest()
        .post(&path, &config_map("a", "1"))
        .await?
        .created()?;
    let metadata = hub
        .rest()
        .accepting("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
        .get(&format!("{path}/a"))
        .await?
        .ok()?;
    let expected = json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": created["metadata"],
    });
    ensure!(metadata == expected, "the metadata is {metadata}");
    let list = hub
        .rest()
        .accepting("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
        .get(&path)
        .await?
        .ok()?;
    has(
        &list,
        &json!({
            "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
            "items": [{ "metadata": { "name": "a" }, "data": null }],
        }),
    )
}
