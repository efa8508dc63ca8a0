//! Lists: which objects, in which order, in how many pages.

use anyhow::{Result, ensure};
use serde_json::json;

use super::{Widgets, has, names, resource_version, text};
use crate::support::{Cluster, Story, World};

pub(super) fn stories() -> Vec<Story> {
    on_each_backend![
        lists_are_in_order_of_names,
        label_selectors_choose,
        label_selectors_that_do_not_parse_are_refused,
        field_selectors_choose,
        pages_continue_where_the_last_one_ended,
        a_list_across_namespaces_has_all_of_them,
    ]
}

/// Makes four `ConfigMap`s, `a` to `d`; gives the path of their list.
async fn some_config_maps(hub: &Cluster) -> Result<String> {
    let path = format!("/api/v1/namespaces/{}/configmaps", hub.namespace().await?);
    let labels = [
        ("c", json!({ "app": "shop", "tier": "back" })),
        ("a", json!({ "app": "shop", "tier": "front" })),
        ("d", json!({ "app": "blog" })),
        ("b", json!({})),
    ];
    for (name, labels) in labels {
        let object = json!({ "metadata": { "name": name, "labels": labels } });
        hub.rest().post(&path, &object).await?.created()?;
    }
    Ok(path)
}

async fn lists_are_in_order_of_names(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let path = some_config_maps(&hub).await?;
    let list = hub.rest().get(&path).await?.ok()?;
    has(
        &list,
        &json!({ "kind": "ConfigMapList", "apiVersion": "v1" }),
    )?;
    ensure!(
        names(&list)? == ["a", "b", "c", "d"],
        "order {:?}",
        names(&list)?
    );
    // The list has a version; its items leave out what the list's own kind implies.
    ensure!(
        resource_version(&list)?.parse::<u64>()? > 0,
        "odd version in {list}"
    );
    has(
        &list["items"][0],
        &json!({ "kind": null, "apiVersion": null }),
    )?;

    // Items of a custom type do not leave it out.
    let widgets = Widgets::install(hub.clone()).await?;
    let widget = widgets.widget("a", &json!({ "size": "small" }));
    hub.rest().post(&widgets.path(), &widget).await?.created()?;
    let list = hub.rest().get(&widgets.path()).await?.ok()?;
    has(
        &list,
        &json!({
            "kind": "WidgetList", "apiVersion": format!("{}/v1", widgets.group),
            "items": [{ "kind": "Widget", "apiVersion": format!("{}/v1", widgets.group) }],
        }),
    )
}

async fn label_selectors_choose(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let path = some_config_maps(&hub).await?;
    for (selector, expected) in [
        ("app=shop", vec!["a", "c"]),
        ("app==shop,tier=back", vec!["c"]),
        ("app!=shop", vec!["b", "d"]),
        ("app", vec!["a", "c", "d"]),
        ("!app", vec!["b"]),
        ("app in (blog,shop),tier notin (back)", vec!["a", "d"]),
        ("tier notin (front)", vec!["b", "c", "d"]),
        ("app=none", vec![]),
        ("", vec!["a", "b", "c", "d"]),
    ] {
        let query = selector
            .replace(' ', "%20")
            .replace('=', "%3D")
            .replace('!', "%21");
        let list = hub
            .rest()
            .get(&format!("{path}?labelSelector={query}"))
            .await?
            .ok()?;
        ensure!(
            names(&list)? == expected,
            "{selector:?} chose {:?}",
            names(&list)?
        );
    }
    Ok(())
}

async fn label_selectors_that_do_not_parse_are_refused(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let path = some_config_maps(&hub).await?;
    hub.rest()
        .get(&format!("{path}?labelSelector=app%3D%3D%3Dshop"))
        .await?
        .refused(
            400,
            "BadRequest",
            "unable to parse requirement: found '=', expected: identifier",
        )?;
    hub.rest()
        .get(&format!("{path}?labelSelector=app%20in%20shop"))
        .await?
        .refused(
            400,
            "BadRequest",
            "unable to parse requirement: found 'shop' expected: '('",
        )?;
    Ok(())
}

async fn field_selectors_choose(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let path = some_config_maps(&hub).await?;
    for (selector, expected) in [
        ("metadata.name%3Da", vec!["a"]),
        ("metadata.name!%3Da", vec!["b", "c", "d"]),
        ("metadata.name%3Dnone", vec![]),
    ] {
        let list = hub
            .rest()
            .get(&format!("{path}?fieldSelector={selector}"))
            .await?
            .ok()?;
        ensure!(
            names(&list)? == expected,
            "{selector:?} chose {:?}",
            names(&list)?
        );
    }
    hub.rest()
        .get(&format!("{path}?fieldSelector=data.value%3D1"))
        .await?
        .refused(
            400,
            "BadRequest",
            "\"data.value\" is not a known field selector: only \"metadata.name\", \
         \"metadata.namespace\"",
        )?;
    Ok(())
}

async fn pages_continue_where_the_last_one_ended(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let path = some_config_maps(&hub).await?;
    let first = hub.rest().get(&format!("{path}?limit=3")).await?.ok()?;
    ensure!(
        names(&first)? == ["a", "b", "c"],
        "first page {:?}",
        names(&first)?
    );
    has(&first, &json!({ "metadata": { "remainingItemCount": 1 } }))?;

    // What comes between two pages is not in the second.
    hub.rest()
        .post(&path, &json!({ "metadata": { "name": "e" } }))
        .await?
        .created()?;
    let token = text(&first, "/metadata/continue")?;
    let second = hub
        .rest()
        .get(&format!("{path}?limit=3&continue={token}"))
        .await?
        .ok()?;
    ensure!(
        names(&second)? == ["d"],
        "second page {:?}",
        names(&second)?
    );
    has(
        &second,
        &json!({ "metadata": { "continue": null, "remainingItemCount": null } }),
    )?;
    ensure!(
        resource_version(&first)? == resource_version(&second)?,
        "pages of two versions"
    );

    hub.rest()
        .get(&format!("{path}?limit=3&continue=nonsense"))
        .await?
        .refused_beginning(
            400,
            "BadRequest",
            "invalid continue token: continue key is not valid: ",
        )?;
    Ok(())
}

async fn a_list_across_namespaces_has_all_of_them(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let widgets = Widgets::install(hub.clone()).await?;
    let other = hub.namespace().await?;
    let everywhere = format!("/apis/{}/v1/widgets", widgets.group);
    let widget = widgets.widget("a", &json!({ "size": "small" }));
    hub.rest().post(&widgets.path(), &widget).await?.created()?;
    let there = format!("/apis/{}/v1/namespaces/{other}/widgets", widgets.group);
    hub.rest().post(&there, &widget).await?.created()?;

    let list = hub.rest().get(&everywhere).await?.ok()?;
    let mut namespaces = [widgets.namespace.as_str(), &other];
    namespaces.sort_unstable();
    has(
        &list,
        &json!({ "items": [
            { "metadata": { "namespace": namespaces[0] } },
            { "metadata": { "namespace": namespaces[1] } },
        ] }),
    )?;
    let one = hub
        .rest()
        .get(&format!(
            "{everywhere}?fieldSelector=metadata.namespace%3D{other}"
        ))
        .await?
        .ok()?;
    has(
        &one,
        &json!({ "items": [{ "metadata": { "namespace": other } }] }),
    )
}
