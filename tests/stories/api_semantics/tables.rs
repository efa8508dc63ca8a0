//! Tables: what `kubectl get` prints comes from the server.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{Widgets, config_map, has, resource_version};
use crate::support::ages::is_age;
use crate::support::{Story, World};

pub(super) fn stories() -> Vec<Story> {
    on_each_backend![
        a_custom_type_has_the_columns_of_its_definition,
        a_custom_type_without_columns_has_name_and_age,
        a_config_map_has_its_own_columns,
        a_deployment_has_its_own_columns,
        one_object_is_a_table_of_one_row,
        rows_can_carry_whole_objects_or_none,
        a_watch_of_tables_has_a_row_an_event,
    ]
}

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// The cells of each row, with each age replaced, since it grows. `columns`: of a table that has
/// them; a watch tells them once.
fn cells_of(columns: &Value, table: &Value) -> Vec<Value> {
    let age = columns
        .as_array()
        .and_then(|columns| columns.iter().position(|column| column["name"] == "Age"));
    let rows = table["rows"].as_array().cloned().unwrap_or_default();
    rows.into_iter()
        .map(|mut row| {
            let mut cells = row["cells"].take();
            if let Some(age) = age
                && cells[age].as_str().is_some_and(is_age)
            {
                cells[age] = json!("AGE");
            }
            cells
        })
        .collect()
}

fn cells(table: &Value) -> Vec<Value> {
    cells_of(&table["columnDefinitions"], table)
}

fn column(name: &str, kind: &str, format: &str, description: &str, priority: i32) -> Value {
    json!({
        "name": name, "type": kind, "format": format, "description": description,
        "priority": priority,
    })
}

const NAME_IS: &str = "Name must be unique within a namespace. Is required when creating \
    resources, although some resources may allow a client to request the generation of an \
    appropriate name automatically. Name is primarily intended for creation idempotence and \
    configuration definition. Cannot be updated. More info: \
    https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";

const CREATED_IS: &str = "CreationTimestamp is a timestamp representing the server time when \
    this object was created. It is not guaranteed to be set in happens-before order across \
    separate operations. Clients may not set this value. It is represented in RFC3339 form and \
    is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

async fn a_custom_type_has_the_columns_of_its_definition(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let widgets = Widgets::install(hub.clone()).await?;
    for (name, size) in [("a", "small"), ("b", "large")] {
        let widget = widgets.widget(name, &json!({ "size": size }));
        hub.rest().post(&widgets.path(), &widget).await?.created()?;
    }
    let status = json!({ "status": { "conditions": [
        { "type": "Synced", "status": "False" }, { "type": "Ready", "status": "True" },
    ] } });
    hub.rest()
        .merge_patch(&format!("{}/b/status", widgets.path()), &status)
        .await?
        .ok()?;

    let table = hub
        .rest()
        .accepting(TABLE)
        .get(&widgets.path())
        .await?
        .ok()?;
    has(
        &table,
        &json!({ "kind": "Table", "apiVersion": "meta.k8s.io/v1" }),
    )?;
    ensure!(
        resource_version(&table)?.parse::<u64>()? > 0,
        "odd version in {table}"
    );
    let columns = json!([
        column("Name", "string", "name", NAME_IS, 0),
        column(
            "Size",
            "string",
            "",
            "Custom resource definition column (in JSONPath format): \
               .spec.size",
            0
        ),
        column("Replicas", "integer", "", "How many are wanted.", 0),
        column(
            "Ready",
            "string",
            "",
            "Custom resource definition column (in JSONPath format): \
               .status.conditions[?(@.type==\"Ready\")].status",
            1
        ),
        column(
            "Age",
            "date",
            "",
            "Custom resource definition column (in JSONPath format): \
               .metadata.creationTimestamp",
            0
        ),
    ]);
    ensure!(
        table["columnDefinitions"] == columns,
        "columns {}",
        table["columnDefinitions"]
    );
    let rows = cells(&table);
    ensure!(
        rows == [
            json!(["a", "small", 1, null, "AGE"]),
            json!(["b", "large", 1, "True", "AGE"]),
        ],
        "rows {rows:?}"
    );
    Ok(())
}

async fn a_custom_type_without_columns_has_name_and_age(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let mut widgets = Widgets::install(hub.clone()).await?;
    widgets.group = format!("plain-{}", widgets.group);
    let mut definition = widgets.definition()?;
    if let Value::Object(version) = &mut definition["spec"]["versions"][0] {
        version.remove("additionalPrinterColumns");
    }
    hub.rest().post(super::CRDS, &definition).await?.created()?;
    widgets.wait_until_served().await?;
    let widget = widgets.widget("a", &json!({ "size": "small" }));
    hub.rest().post(&widgets.path(), &widget).await?.created()?;
    let table = hub
        .rest()
        .accepting(TABLE)
        .get(&widgets.path())
        .await?
        .ok()?;
    let columns = json!([
        column("Name", "string", "name", NAME_IS, 0),
        column("Age", "date", "", CREATED_IS, 0),
    ]);
    ensure!(
        table["columnDefinitions"] == columns,
        "columns {}",
        table["columnDefinitions"]
    );
    let rows = cells(&table);
    ensure!(rows == [json!(["a", "AGE"])], "rows {rows:?}");
    Ok(())
}

async fn a_config_map_has_its_own_columns(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let path = format!("/api/v1/namespaces/{}/configmaps", hub.namespace().await?);
    let mut object = config_map("a", "1");
    object["data"]["more"] = json!("2");
    hub.rest().post(&path, &object).await?.created()?;
    let table = hub.rest().accepting(TABLE).get(&path).await?.ok()?;
    let names: Vec<&Value> = (0..3)
        .map(|i| &table["columnDefinitions"][i]["name"])
        .collect();
    ensure!(names == ["Name", "Data", "Age"], "columns {names:?}");
    let rows = cells(&table);
    ensure!(rows == [json!(["a", 2, "AGE"])], "rows {rows:?}");
    Ok(())
}

async fn a_deployment_has_its_own_columns(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let path = format!(
        "/apis/apps/v1/namespaces/{}/deployments",
        hub.namespace().await?
    );
    let deployment = json!({
        "metadata": { "name": "web" },
        "spec": {
            "replicas": 3,
            "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [
                    { "name": "main", "image": "web:1" }, { "name": "log", "image": "log:2" },
                ] },
            },
        },
    });
    hub.rest().post(&path, &deployment).await?.created()?;
    let status = json!({ "status": {
        "replicas": 3, "updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 1,
    } });
    hub.rest()
        .merge_patch(&format!("{path}/web/status"), &status)
        .await?
        .ok()?;
    let table = hub.rest().accepting(TABLE).get(&path).await?.ok()?;
    let names: Vec<&Value> = (0..8)
        .map(|i| &table["columnDefinitions"][i]["name"])
        .collect();
    ensure!(
        names
            == [
                "Name",
                "Ready",
                "Up-to-date",
                "Available",
                "Age",
                "Containers",
                "Images",
                "Selector",
            ],
        "columns {names:?}"
    );
    let rows = cells(&table);
    ensure!(
        rows == [json!([
            "web",
            "2/3",
            2,
            1,
            "AGE",
            "main,log",
            "web:1,log:2",
            "app=web"
        ])],
        "rows {rows:?}"
    );
    Ok(())
}

async fn one_object_is_a_table_of_one_row(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let widgets = Widgets::install(hub.clone()).await?;
    let widget = widgets.widget("a", &json!({ "size": "small" }));
    let created = hub.rest().post(&widgets.path(), &widget).await?.created()?;
    let table = hub
        .rest()
        .accepting(TABLE)
        .get(&format!("{}/a", widgets.path()))
        .await?
        .ok()?;
    has(
        &table,
        &json!({ "kind": "Table", "metadata": { "resourceVersion": resource_version(&created)? } }),
    )?;
    let rows = cells(&table);
    ensure!(
        rows == [json!(["a", "small", 1, null, "AGE"])],
        "rows {rows:?}"
    );

    // What cannot be a table is refused as usual.
    let none = hub
        .rest()
        .accepting(TABLE)
        .get(&format!("{}/none", widgets.path()))
        .await?;
    let not_found = format!("widgets.{} \"none\" not found", widgets.group);
    none.refused(404, "NotFound", &not_found)?;
    Ok(())
}

async fn rows_can_carry_whole_objects_or_none(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let widgets = Widgets::install(hub.clone()).await?;
    let widget = widgets.widget("a", &json!({ "size": "small" }));
    let created = hub.rest().post(&widgets.path(), &widget).await?.created()?;
    let rest = hub.rest().accepting(TABLE);
    let metadata = rest.get(&widgets.path()).await?.ok()?;
    let expected = json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": created["metadata"],
    });
    ensure!(
        metadata["rows"][0]["object"] == expected,
        "{}",
        metadata["rows"][0]
    );
    let whole = rest
        .get(&format!("{}?includeObject=Object", widgets.path()))
        .await?
        .ok()?;
    ensure!(
        whole["rows"][0]["object"] == created,
        "{}",
        whole["rows"][0]
    );
    let none = rest
        .get(&format!("{}?includeObject=None", widgets.path()))
        .await?
        .ok()?;
    ensure!(none["rows"][0]["object"].is_null(), "{}", none["rows"][0]);
    Ok(())
}

async fn a_watch_of_tables_has_a_row_an_event(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let widgets = Widgets::install(hub.clone()).await?;
    let mut watch = hub
        .rest()
        .accepting(TABLE)
        .watch(&format!("{}?watch=true", widgets.path()))
        .await?;
    for name in ["a", "b"] {
        let widget = widgets.widget(name, &json!({ "size": "small" }));
        hub.rest().post(&widgets.path(), &widget).await?.created()?;
    }
    let first = watch.next_is("ADDED").await?;
    ensure!(
        first["columnDefinitions"][0]["name"] == "Name",
        "no columns in {first}"
    );
    ensure!(
        cells(&first) == [json!(["a", "small", 1, null, "AGE"])],
        "{first}"
    );
    // Columns are told once.
    let second = watch.next_is("ADDED").await?;
    ensure!(
        second["columnDefinitions"].is_null(),
        "columns again in {second}"
    );
    ensure!(
        cells_of(&first["columnDefinitions"], &second) == [json!(["b", "small", 1, null, "AGE"])],
        "{second}"
    );
    Ok(())
}
