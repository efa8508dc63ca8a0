//! Deletion: at once, in two steps with finalizers, with preconditions, in bulk.

use anyhow::{Result, ensure};
use serde_json::json;

use super::{Widgets, config_map, has, names, resource_version, text};
use crate::support::{Story, World};

pub(super) fn stories() -> Vec<Story> {
    on_each_backend![
        delete_answers_with_a_status,
        delete_of_a_custom_object_answers_with_a_status,
        delete_of_a_missing_object_is_refused,
        a_finalizer_holds_the_object_until_it_is_removed,
        nothing_can_be_added_to_an_object_that_is_going,
        an_object_that_is_going_keeps_its_name,
        preconditions_protect_another_object,
        foreground_deletion_waits_by_a_finalizer,
        delete_collection_takes_what_the_selector_chooses,
        a_namespace_that_is_going_takes_nothing_new,
    ]
}

async fn delete_answers_with_a_status(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let path = format!("/api/v1/namespaces/{}/configmaps", hub.namespace().await?);
    let created = hub
        .rest()
        .post(&path, &config_map("a", "1"))
        .await?
        .created()?;
    let answer = hub.rest().delete(&format!("{path}/a")).await?.ok()?;
    let expected = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": { "name": "a", "kind": "configmaps", "uid": created["metadata"]["uid"] },
    });
    ensure!(answer == expected, "the answer is {answer}");
    ensure!(
        hub.rest().get(&format!("{path}/a")).await?.code == 404,
        "it is still there"
    );
    // The name is free again, for another object.
    let again = hub
        .rest()
        .post(&path, &config_map("a", "1"))
        .await?
        .created()?;
    ensure!(
        again["metadata"]["uid"] != created["metadata"]["uid"],
        "the uid came back"
    );
    Ok(())
}

async fn delete_of_a_custom_object_answers_with_a_status(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let widgets = Widgets::install(hub.clone()).await?;
    let widget = widgets.widget("a", &json!({ "size": "small" }));
    let created = hub.rest().post(&widgets.path(), &widget).await?.created()?;
    let answer = hub
        .rest()
        .delete(&format!("{}/a", widgets.path()))
        .await?
        .ok()?;
    let expected = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": {
            "name": "a", "group": widgets.group, "kind": "widgets",
            "uid": created["metadata"]["uid"],
        },
    });
    ensure!(answer == expected, "the answer is {answer}");
    Ok(())
}

async fn delete_of_a_missing_object_is_refused(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let path = format!(
        "/api/v1/namespaces/{}/configmaps/none",
        hub.namespace().await?
    );
    hub.rest()
        .delete(&path)
        .await?
        .refused(404, "NotFound", "configmaps \"none\" not found")?;
    Ok(())
}

async fn a_finalizer_holds_the_object_until_it_is_removed(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let widgets = Widgets::install(hub.clone()).await?;
    let path = format!("{}/a", widgets.path());
    let mut widget = widgets.widget("a", &json!({ "size": "small" }));
    widget["metadata"]["finalizers"] = json!(["example.com/one", "example.com/two"]);
    let created = hub.rest().post(&widgets.path(), &widget).await?.created()?;
    let mut watch = hub
        .rest()
        .watch(&format!(
            "{}?watch=true&resourceVersion={}",
            widgets.path(),
            resource_version(&created)?
        ))
        .await?;

    // The answer is the object, now marked.
    let going = hub.rest().delete(&path).await?.ok()?;
    has(
        &going,
        &json!({ "kind": "Widget", "metadata": {
        "deletionGracePeriodSeconds": 0, "generation": 2,
        "finalizers": ["example.com/one", "example.com/two"],
    } }),
    )?;
    let deletion_time = text(&going, "/metadata/deletionTimestamp")?;
    has(&watch.next_is("MODIFIED").await?, &going)?;

    // A second delete changes nothing.
    let again = hub.rest().delete(&path).await?.ok()?;
    ensure!(
        resource_version(&again)? == resource_version(&going)?,
        "a second delete wrote"
    );
    let cleared = json!({ "metadata": { "deletionTimestamp": null } });
    let kept = hub.rest().merge_patch(&path, &cleared).await?.ok()?;
    ensure!(
        text(&kept, "/metadata/deletionTimestamp")? == deletion_time,
        "undeleted: {kept}"
    );

    let one_left = json!({ "metadata": { "finalizers": ["example.com/two"] } });
    let one_left = hub.rest().merge_patch(&path, &one_left).await?.ok()?;
    has(&one_left, &json!({ "metadata": { "generation": 2 } }))?;
    watch.next_is("MODIFIED").await?;
    let none_left = json!({ "metadata": { "finalizers": null } });
    hub.rest().merge_patch(&path, &none_left).await?.ok()?;
    let gone = watch.next_is("DELETED").await?;
    // Shown as it was stored last, which is before the finalizer went.
    has(
        &gone,
        &json!({ "metadata": { "name": "a", "finalizers": ["example.com/two"] } }),
    )?;
    let versions = (
        resource_version(&gone)?.parse::<u64>()?,
        resource_version(&one_left)?.parse()?,
    );
    ensure!(
        versions.0 > versions.1,
        "the deletion has an old version: {versions:?}"
    );
    ensure!(
        hub.rest().get(&path).await?.code == 404,
        "it is still there"
    );
    Ok(())
}

async fn nothing_can_be_added_to_an_object_that_is_going(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let path = format!("/api/v1/namespaces/{}/configmaps", hub.namespace().await?);
    let mut object = config_map("a", "1");
    object["metadata"]["finalizers"] = json!(["example.com/one"]);
    hub.rest().post(&path, &object).await?.created()?;
    let path = format!("{path}/a");
    hub.rest().delete(&path).await?.ok()?;
    let more = json!({ "metadata": { "finalizers": ["example.com/one", "example.com/two"] } });
    hub.rest().merge_patch(&path, &more).await?.refused(
        422,
        "Invalid",
        "ConfigMap \"a\" is invalid: metadata.finalizers: Forbidden: no new finalizers can be \
         added if the object is being deleted, found new finalizers \
         []string{\"example.com/two\"}",
    )?;
    // Everything else may still change.
    let change = json!({ "data": { "value": "2" } });
    let patched = hub.rest().merge_patch(&path, &change).await?.ok()?;
    has(&patched, &json!({ "data": { "value": "2" } }))?;
    hub.rest()
        .merge_patch(&path, &json!({ "metadata": { "finalizers": [] } }))
        .await?
        .ok()?;
    ensure!(
        hub.rest().get(&path).await?.code == 404,
        "it is still there"
    );
    Ok(())
}

async fn an_object_that_is_going_keeps_its_name(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let path = format!("/api/v1/namespaces/{}/configmaps", hub.namespace().await?);
    let mut object = config_map("a", "1");
    object["metadata"]["finalizers"] = json!(["example.com/one"]);
    hub.rest().post(&path, &object).await?.created()?;
    hub.rest().delete(&format!("{path}/a")).await?.ok()?;
    hub.rest()
        .post(&path, &config_map("a", "2"))
        .await?
        .refused(
            409,
            "AlreadyExists",
            "object is being deleted: configmaps \"a\" already exists",
        )?;
    Ok(())
}

async fn preconditions_protect_another_object(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let namespace = hub.namespace().await?;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let created = hub
        .rest()
        .post(&path, &config_map("a", "1"))
        .await?
        .created()?;
    let uid = text(&created, "/metadata/uid")?;
    let version = resource_version(&created)?;
    let other = "00000000-0000-0000-0000-000000000000";
    let path = format!("{path}/a");

    let other_uid = json!({ "preconditions": { "uid": other } });
    hub.rest().delete_with(&path, &other_uid).await?.refused(
        409,
        "Conflict",
        &format!(
            "Operation cannot be fulfilled on ConfigMap \"a\": the UID in the precondition \
             ({other}) does not match the UID in record ({uid}). The object might have been \
             deleted and then recreated"
        ),
    )?;
    let old = json!({ "preconditions": { "uid": uid, "resourceVersion": "1" } });
    hub.rest().delete_with(&path, &old).await?.refused(
        409,
        "Conflict",
        &format!(
            "Operation cannot be fulfilled on ConfigMap \"a\": the ResourceVersion in the \
             precondition (1) does not match the ResourceVersion in record ({version}). The \
             object might have been modified"
        ),
    )?;
    let right = json!({ "preconditions": { "uid": uid, "resourceVersion": version } });
    hub.rest().delete_with(&path, &right).await?.ok()?;
    Ok(())
}

async fn foreground_deletion_waits_by_a_finalizer(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let path = format!("/api/v1/namespaces/{}/configmaps", hub.namespace().await?);
    hub.rest()
        .post(&path, &config_map("a", "1"))
        .await?
        .created()?;
    let foreground = json!({ "propagationPolicy": "Foreground" });
    let going = hub
        .rest()
        .delete_with(&format!("{path}/a"), &foreground)
        .await?
        .ok()?;
    has(
        &going,
        &json!({ "metadata": { "finalizers": ["foregroundDeletion"] } }),
    )?;
    text(&going, "/metadata/deletionTimestamp")?;

    hub.rest()
        .post(&path, &config_map("b", "1"))
        .await?
        .created()?;
    let orphan = json!({ "propagationPolicy": "Orphan" });
    let going = hub
        .rest()
        .delete_with(&format!("{path}/b"), &orphan)
        .await?
        .ok()?;
    has(&going, &json!({ "metadata": { "finalizers": ["orphan"] } }))
}

async fn delete_collection_takes_what_the_selector_chooses(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let widgets = Widgets::install(hub.clone()).await?;
    for (name, app) in [("a", "shop"), ("b", "blog"), ("c", "shop")] {
        let mut widget = widgets.widget(name, &json!({ "size": "small" }));
        widget["metadata"]["labels"] = json!({ "app": app });
        hub.rest().post(&widgets.path(), &widget).await?.created()?;
    }
    let chosen = format!("{}?labelSelector=app%3Dshop", widgets.path());
    let deleted = hub.rest().delete(&chosen).await?.ok()?;
    has(&deleted, &json!({ "kind": "WidgetList" }))?;
    let mut deleted = names(&deleted)?;
    deleted.sort_unstable();
    ensure!(deleted == ["a", "c"], "deleted {deleted:?}");
    let left = hub.rest().get(&widgets.path()).await?.ok()?;
    ensure!(names(&left)? == ["b"], "left {:?}", names(&left)?);
    Ok(())
}

async fn a_namespace_that_is_going_takes_nothing_new(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let namespace = hub.namespace().await?;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    hub.rest()
        .post(&path, &config_map("a", "1"))
        .await?
        .created()?;
    let created = hub
        .rest()
        .get(&format!("/api/v1/namespaces/{namespace}"))
        .await?
        .ok()?;
    has(
        &created,
        &json!({
            "metadata": { "labels": { "kubernetes.io/metadata.name": namespace } },
            "spec": { "finalizers": ["kubernetes"] },
            "status": { "phase": "Active" },
        }),
    )?;
    let going = hub
        .rest()
        .delete(&format!("/api/v1/namespaces/{namespace}"))
        .await?
        .ok()?;
    has(
        &going,
        &json!({ "kind": "Namespace", "status": { "phase": "Terminating" } }),
    )?;
    let refused = hub.rest().post(&path, &config_map("b", "1")).await?;
    if refused.code == 404 {
        // A server with a namespace controller may be done already.
        return Ok(());
    }
    let details = refused.refused(
        403,
        "Forbidden",
        &format!(
            "configmaps \"b\" is forbidden: unable to create new content in namespace {namespace} \
             because it is being terminated"
        ),
    )?;
    has(
        &details,
        &json!({ "causes": [{
        "reason": "NamespaceTerminating",
        "message": format!("namespace {namespace} is being terminated"),
        "field": "metadata.namespace",
    }] }),
    )
}
