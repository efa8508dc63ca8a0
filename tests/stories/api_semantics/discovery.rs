//! Discovery: which types there are, and what they can do.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{Widgets, has, text};
use crate::support::{Story, World};

pub(super) fn stories() -> Vec<Story> {
    on_each_backend![
        a_custom_type_is_discovered,
        built_in_types_are_discovered,
        aggregated_discovery_has_everything_at_once,
        the_version_is_told,
        openapi_describes_a_custom_type,
    ]
}

fn find<'a>(list: &'a Value, field: &str, name: &str) -> Result<&'a Value> {
    list.as_array()
        .and_then(|items| items.iter().find(|item| item[field] == name))
        .with_context(|| format!("no {name} in {list}"))
}

async fn a_custom_type_is_discovered(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let widgets = Widgets::install(hub.clone()).await?;
    let group = &widgets.group;
    let resources = hub.rest().get(&format!("/apis/{group}/v1")).await?.ok()?;
    has(
        &resources,
        &json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{group}/v1"),
        }),
    )?;
    let verbs = [
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "create",
        "update",
        "watch",
    ];
    has(
        find(&resources["resources"], "name", "widgets")?,
        &json!({
            "singularName": "widget", "namespaced": true, "kind": "Widget", "verbs": verbs,
            "shortNames": ["wdg"], "categories": ["all"],
        }),
    )?;
    has(
        find(&resources["resources"], "name", "widgets/status")?,
        &json!({
            "singularName": "", "namespaced": true, "kind": "Widget",
            "verbs": ["get", "patch", "update"],
        }),
    )?;
    has(
        find(&resources["resources"], "name", "widgets/scale")?,
        &json!({
            "singularName": "", "namespaced": true, "group": "autoscaling", "version": "v1",
            "kind": "Scale", "verbs": ["get", "patch", "update"],
        }),
    )?;
    let version = json!({ "groupVersion": format!("{group}/v1"), "version": "v1" });
    let expected = json!({
        "kind": "APIGroup", "apiVersion": "v1", "name": group,
        "versions": [version], "preferredVersion": version,
    });
    let alone = hub.rest().get(&format!("/apis/{group}")).await?.ok()?;
    ensure!(alone == expected, "the group is {alone}");
    let groups = hub.rest().get("/apis").await?.ok()?;
    has(
        &groups,
        &json!({ "kind": "APIGroupList", "apiVersion": "v1" }),
    )?;
    has(
        find(&groups["groups"], "name", group)?,
        &json!({ "versions": [version] }),
    )
}

async fn built_in_types_are_discovered(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let versions = hub.rest().get("/api").await?.ok()?;
    has(
        &versions,
        &json!({ "kind": "APIVersions", "versions": ["v1"] }),
    )?;
    let core = hub.rest().get("/api/v1").await?.ok()?;
    has(
        &core,
        &json!({ "kind": "APIResourceList", "groupVersion": "v1" }),
    )?;
    for (name, kind, namespaced, short) in [
        ("configmaps", "ConfigMap", true, json!(["cm"])),
        ("secrets", "Secret", true, Value::Null),
        ("namespaces", "Namespace", false, json!(["ns"])),
        ("services", "Service", true, json!(["svc"])),
        ("serviceaccounts", "ServiceAccount", true, json!(["sa"])),
        ("pods", "Pod", true, json!(["po"])),
        ("events", "Event", true, json!(["ev"])),
    ] {
        has(
            find(&core["resources"], "name", name)?,
            &json!({ "kind": kind, "namespaced": namespaced, "shortNames": short }),
        )?;
    }
    let apps = hub.rest().get("/apis/apps/v1").await?.ok()?;
    for (name, kind, short) in [
        ("deployments", "Deployment", json!(["deploy"])),
        ("daemonsets", "DaemonSet", json!(["ds"])),
        ("statefulsets", "StatefulSet", json!(["sts"])),
        ("replicasets", "ReplicaSet", json!(["rs"])),
    ] {
        has(
            find(&apps["resources"], "name", name)?,
            &json!({ "kind": kind, "namespaced": true, "shortNames": short }),
        )?;
        find(&apps["resources"], "name", &format!("{name}/status"))?;
    }
    for (group, name) in [
        ("batch", "jobs"),
        ("rbac.authorization.k8s.io", "clusterroles"),
        ("coordination.k8s.io", "leases"),
        ("apiextensions.k8s.io", "customresourcedefinitions"),
    ] {
        let list = hub.rest().get(&format!("/apis/{group}/v1")).await?.ok()?;
        find(&list["resources"], "name", name)?;
    }
    Ok(())
}

async fn aggregated_discovery_has_everything_at_once(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let widgets = Widgets::install(hub.clone()).await?;
    let rest = hub
        .rest()
        .accepting("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList");
    let core = rest.get("/api").await?.ok()?;
    has(
        &core,
        &json!({ "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2" }),
    )?;
    let core = &core["items"][0]["versions"][0];
    has(core, &json!({ "version": "v1", "freshness": "Current" }))?;
    find(&core["resources"], "resource", "configmaps")?;

    let all = rest.get("/apis").await?.ok()?;
    let groups = all["items"].as_array().context("no items")?;
    let group = groups
        .iter()
        .find(|group| group["metadata"]["name"] == widgets.group.as_str())
        .with_context(|| format!("no {}", widgets.group))?;
    let expected = json!({
        "resource": "widgets",
        "responseKind": { "group": widgets.group, "version": "v1", "kind": "Widget" },
        "scope": "Namespaced",
        "singularResource": "widget",
        "shortNames": ["wdg"],
        "categories": ["all"],
    });
    let resource = find(&group["versions"][0]["resources"], "resource", "widgets")?;
    has(resource, &expected)?;
    let scale = find(&resource["subresources"], "subresource", "scale")?;
    has(
        scale,
        &json!({ "responseKind": { "group": "autoscaling", "version": "v1", "kind": "Scale" } }),
    )
}

async fn the_version_is_told(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let version = hub.rest().get("/version").await?.ok()?;
    has(&version, &json!({ "major": "1", "minor": "36" }))?;
    let git_version = text(&version, "/gitVersion")?;
    ensure!(git_version.starts_with("v1.36."), "version {git_version}");
    Ok(())
}

async fn openapi_describes_a_custom_type(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let widgets = Widgets::install(hub.clone()).await?;
    let path = format!("/openapi/v3/apis/{}/v1", widgets.group);
    let document = crate::support::eventually(super::LIMIT, "the type's document", || async {
        hub.rest().get(&path).await?.ok()
    })
    .await?;
    let schemas = document["components"]["schemas"]
        .as_object()
        .context("no schemas")?;
    let (_, widget) = schemas
        .iter()
        .find(|(name, _)| name.ends_with(".v1.Widget"))
        .context("no schema of a Widget")?;
    has(
        widget,
        &json!({
            "description": "A thing to make.",
            "required": ["spec"],
            "x-kubernetes-group-version-kind":
                [{ "group": widgets.group, "version": "v1", "kind": "Widget" }],
            "properties": { "spec": { "properties": {
                "size": { "description": "How big it is.", "enum": ["small", "large"] },
            } } },
        }),
    )?;
    let index = hub.rest().get("/openapi/v3").await?.ok()?;
    let entry = &index["paths"][format!("apis/{}/v1", widgets.group)];
    let url = text(entry, "/serverRelativeURL")?;
    ensure!(url.starts_with(&path), "the index points at {url}");
    Ok(())
}
