//! Custom types: from the definition to validated, defaulted and pruned objects.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{CRDS, LIMIT, Widgets, has};
use crate::support::{Story, World, eventually, unique_name};

pub(super) fn stories() -> Vec<Story> {
    on_each_backend![
        a_definition_becomes_established,
        a_definition_under_a_wrong_name_is_refused,
        defaults_are_filled_in,
        unknown_fields_are_pruned_and_kept_where_the_schema_says_so,
        what_the_schema_forbids_is_refused_by_field,
        a_missing_field_is_named,
        rules_in_cel_are_checked,
        a_cluster_scoped_type_has_no_namespace,
        a_deleted_definition_takes_its_objects_along,
        a_changed_definition_is_served,
    ]
}

async fn a_definition_becomes_established(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let widgets = Widgets::install(hub.clone()).await?;
    let definition = hub.rest().get(&widgets.definition_path()).await?.ok()?;
    has(
        &definition,
        &json!({
            "metadata": { "generation": 1 },
            "spec": { "conversion": { "strategy": "None" } },
            "status": {
                "acceptedNames": {
                    "plural": "widgets", "singular": "widget", "kind": "Widget",
                    "listKind": "WidgetList", "shortNames": ["wdg"], "categories": ["all"],
                },
                "storedVersions": ["v1"],
                "conditions": [
                    { "type": "NamesAccepted", "status": "True", "reason": "NoConflicts",
                      "message": "no conflicts found" },
                    { "type": "Established", "status": "True", "reason": "InitialNamesAccepted",
                      "message": "the initial names have been accepted" },
                ],
            },
        }),
    )
}

async fn a_definition_under_a_wrong_name_is_refused(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let widgets = Widgets::install(hub.clone()).await?;
    let mut definition = widgets.definition()?;
    definition["metadata"]["name"] = json!("gadgets.example.com");
    let details = hub.rest().post(CRDS, &definition).await?.refused(
        422,
        "Invalid",
        "CustomResourceDefinition.apiextensions.k8s.io \"gadgets.example.com\" is invalid: \
             metadata.name: Invalid value: \"gadgets.example.com\": must be \
             spec.names.plural+\".\"+spec.group",
    )?;
    has(
        &details,
        &json!({
            "name": "gadgets.example.com", "group": "apiextensions.k8s.io",
            "kind": "CustomResourceDefinition",
            "causes": [{
                "reason": "FieldValueInvalid",
                "message": "Invalid value: \"gadgets.example.com\": must be \
                            spec.names.plural+\".\"+spec.group",
                "field": "metadata.name",
            }],
        }),
    )
}

async fn defaults_are_filled_in(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let widgets = Widgets::install(hub.clone()).await?;
    let spec = json!({ "size": "small", "parts": [{ "name": "lid" }], "note": null });
    let created = hub
        .rest()
        .post(&widgets.path(), &widgets.widget("a", &spec))
        .await?
        .created()?;
    let expected = json!({
        "size": "small", "replicas": 1, "parts": [{ "name": "lid", "count": 2 }], "note": null,
    });
    ensure!(
        created["spec"] == expected,
        "the spec is {}",
        created["spec"]
    );
    // A null where null is not allowed counts as absent, and has the default.
    let spec = json!({ "size": "small", "replicas": null });
    let created = hub
        .rest()
        .post(&widgets.path(), &widgets.widget("b", &spec))
        .await?
        .created()?;
    ensure!(
        created["spec"] == json!({ "size": "small", "replicas": 1 }),
        "{}",
        created["spec"]
    );
    Ok(())
}

async fn unknown_fields_are_pruned_and_kept_where_the_schema_says_so(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let widgets = Widgets::install(hub.clone()).await?;
    let spec = json!({
        "size": "small", "replicas": 1, "colour": "red",
        "parts": [{ "name": "lid", "count": 1, "colour": "red" }],
        "free": { "any": { "thing": [1, "two", null] } },
    });
    let mut widget = widgets.widget("a", &spec);
    widget["extra"] = json!(true);
    widget["metadata"]["colour"] = json!("red");
    let created = hub.rest().post(&widgets.path(), &widget).await?.created()?;
    let expected = json!({
        "size": "small", "replicas": 1, "parts": [{ "name": "lid", "count": 1 }],
        "free": { "any": { "thing": [1, "two", null] } },
    });
    ensure!(
        created["spec"] == expected,
        "the spec is {}",
        created["spec"]
    );
    has(
        &created,
        &json!({ "extra": null, "metadata": { "colour": null } }),
    )
}

/// A cause as a Status tells it.
fn cause(reason: &str, field: &str, message: &str) -> Value {
    json!({ "reason": reason, "message": message, "field": field })
}

async fn what_the_schema_forbids_is_refused_by_field(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let widgets = Widgets::install(hub.clone()).await?;
    let cases = [
        (
            json!({ "size": "huge" }),
            cause(
                "FieldValueNotSupported",
                "spec.size",
                "Unsupported value: \"huge\": supported values: \"small\", \"large\"",
            ),
        ),
        (
            json!({ "size": "small", "parts": [{ "name": "lid", "count": 0 }] }),
            cause(
                "FieldValueInvalid",
                "spec.parts[0].count",
                "Invalid value: 0: spec.parts[0].count in body should be greater than or equal to 1",
            ),
        ),
        (
            json!({ "size": "small", "note": 5 }),
            cause(
                "FieldValueTypeInvalid",
                "spec.note",
                "Invalid value: \"integer\": spec.note in body must be of type string: \"integer\"",
            ),
        ),
        (
            json!({ "size": "small", "parts": [{ "name": "Lid" }] }),
            cause(
                "FieldValueInvalid",
                "spec.parts[0].name",
                "Invalid value: \"Lid\": spec.parts[0].name in body should match '^[a-z]+$'",
            ),
        ),
        (
            json!({ "size": "small", "parts": [{ "name": "lid" }, { "name": "drawer" }] }),
            cause(
                "FieldValueTooLong",
                "spec.parts[1].name",
                "Too long: may not be more than 5 bytes",
            ),
        ),
        (
            json!({ "size": "small", "parts": [{ "name": "a" }, { "name": "b" },
                                               { "name": "c" }, { "name": "d" }] }),
            cause(
                "FieldValueTooMany",
                "spec.parts",
                "Too many: 4: must have at most 3 items",
            ),
        ),
        (
            json!({ "size": "small", "limit": true }),
            cause(
                "FieldValueTypeInvalid",
                "spec.limit",
                "Invalid value: \"boolean\": spec.limit in body must be of type integer,string: \
                 \"boolean\"",
            ),
        ),
    ];
    let mut differences = Vec::new();
    for (spec, expected) in cases {
        let answer = hub
            .rest()
            .post(&widgets.path(), &widgets.widget("a", &spec))
            .await?;
        let message = format!(
            "Widget.{} \"a\" is invalid: {}: {}",
            widgets.group,
            expected["field"].as_str().unwrap_or_default(),
            expected["message"].as_str().unwrap_or_default()
        );
        let told = match answer.refused(422, "Invalid", &message) {
            Ok(details) => has(
                &details,
                &json!({
                    "name": "a", "group": widgets.group, "kind": "Widget", "causes": [expected],
                }),
            ),
            Err(err) => Err(err),
        };
        differences.extend(told.err().map(|err| format!("{err:#}")));
    }
    ensure!(differences.is_empty(), "{}", differences.join("\n\n"));
    // Both forms of an int-or-string are fine.
    for (name, limit) in [("number", json!(3)), ("text", json!("10%"))] {
        let spec = json!({ "size": "small", "limit": limit });
        hub.rest()
            .post(&widgets.path(), &widgets.widget(name, &spec))
            .await?
            .created()?;
    }
    Ok(())
}

async fn a_missing_field_is_named(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let widgets = Widgets::install(hub.clone()).await?;
    let widget = widgets.widget("a", &json!({ "parts": [{}] }));
    let details = hub.rest().post(&widgets.path(), &widget).await?.refused(
        422,
        "Invalid",
        &format!(
            "Widget.{} \"a\" is invalid: [spec.parts[0].name: Required value, spec.size: \
             Required value]",
            widgets.group
        ),
    )?;
    has(
        &details,
        &json!({ "causes": [
            cause("FieldValueRequired", "spec.parts[0].name", "Required value"),
            cause("FieldValueRequired", "spec.size", "Required value"),
        ] }),
    )
}

async fn rules_in_cel_are_checked(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let mut widgets = Widgets::install(hub.clone()).await?;
    widgets.group = format!("{}.example.com", unique_name("rules"));
    let mut definition = widgets.definition()?;
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";
    if let Some(Value::Object(schema)) = definition.pointer_mut(spec) {
        schema.insert(
            "x-kubernetes-validations".to_owned(),
            json!([
                { "rule": "self.size == 'large' || self.replicas <= 2",
                  "message": "a small one has at most 2 replicas" },
                { "rule": "self.size == oldSelf.size", "message": "size is immutable" },
                { "rule": "self.replicas != 5", "message": "unlucky", "fieldPath": ".replicas" },
            ]),
        );
    }
    let replicas = definition.pointer_mut(&format!("{spec}/properties/replicas"));
    replicas.context("no replicas")?["x-kubernetes-validations"] =
        json!([{ "rule": "self < 5", "message": "less than five" }]);
    hub.rest().post(CRDS, &definition).await?.created()?;
    widgets.wait_until_served().await?;

    let too_many = widgets.widget("a", &json!({ "size": "small", "replicas": 3 }));
    let details = hub.rest().post(&widgets.path(), &too_many).await?.refused(
        422,
        "Invalid",
        &format!(
            "Widget.{} \"a\" is invalid: spec: Invalid value: a small one has at most 2 replicas",
            widgets.group
        ),
    )?;
    has(
        &details,
        &json!({ "causes": [cause(
            "FieldValueInvalid",
            "spec",
            "Invalid value: a small one has at most 2 replicas",
        )] }),
    )?;
    // A plain value is told, and not that of a field that a rule of an object names.
    let unlucky = widgets.widget("a", &json!({ "size": "large", "replicas": 5 }));
    let refused = hub.rest().post(&widgets.path(), &unlucky).await?;
    refused.refused(
        422,
        "Invalid",
        &format!(
            "Widget.{} \"a\" is invalid: [spec.replicas: Invalid value: unlucky, \
             spec.replicas: Invalid value: 5: less than five]",
            widgets.group
        ),
    )?;
    let few = widgets.widget("a", &json!({ "size": "small", "replicas": 2 }));
    hub.rest().post(&widgets.path(), &few).await?.created()?;
    let change = json!({ "spec": { "size": "large" } });
    hub.rest()
        .merge_patch(&format!("{}/a", widgets.path()), &change)
        .await?
        .refused(
            422,
            "Invalid",
            &format!(
                "Widget.{} \"a\" is invalid: spec: Invalid value: size is immutable",
                widgets.group
            ),
        )?;
    Ok(())
}

async fn a_cluster_scoped_type_has_no_namespace(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let mut widgets = Widgets::install(hub.clone()).await?;
    widgets.group = format!("{}.example.com", unique_name("global"));
    let mut definition = widgets.definition()?;
    definition["spec"]["scope"] = json!("Cluster");
    hub.rest().post(CRDS, &definition).await?.created()?;
    let path = format!("/apis/{}/v1/widgets", widgets.group);
    let widget = widgets.widget("a", &json!({ "size": "small" }));
    let created = eventually(LIMIT, "the type to be served", || async {
        hub.rest().post(&path, &widget).await?.created()
    })
    .await?;
    has(
        &created,
        &json!({ "metadata": { "name": "a", "namespace": null } }),
    )?;
    hub.rest().get(&widgets.path()).await?.no_such_path()
}

async fn a_deleted_definition_takes_its_objects_along(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let widgets = Widgets::install(hub.clone()).await?;
    let widget = widgets.widget("a", &json!({ "size": "small" }));
    hub.rest().post(&widgets.path(), &widget).await?.created()?;
    let mut watch = hub
        .rest()
        .watch(&format!("{}?watch=true", widgets.path()))
        .await?;
    watch.next_is("ADDED").await?;
    hub.rest().delete(&widgets.definition_path()).await?.ok()?;
    has(
        &watch.next_is("DELETED").await?,
        &json!({ "metadata": { "name": "a" } }),
    )?;
    eventually(LIMIT, "the type to be gone", || async {
        let answer = hub.rest().get(&widgets.path()).await?;
        ensure!(answer.code == 404, "{answer:?}");
        Ok(())
    })
    .await?;
    hub.rest()
        .post(CRDS, &widgets.definition()?)
        .await?
        .created()?;
    widgets.wait_until_served().await?;
    let list = hub.rest().get(&widgets.path()).await?.ok()?;
    has(&list, &json!({ "items": [] }))
}

async fn a_changed_definition_is_served(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let widgets = Widgets::install(hub.clone()).await?;
    let huge = widgets.widget("a", &json!({ "size": "huge" }));
    ensure!(
        hub.rest().post(&widgets.path(), &huge).await?.code == 422,
        "huge was allowed"
    );
    let change = json!([{
        "op": "add",
        "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size/enum/-",
        "value": "huge",
    }]);
    let changed = hub
        .rest()
        .json_patch(&widgets.definition_path(), &change)
        .await?
        .ok()?;
    has(&changed, &json!({ "metadata": { "generation": 2 } }))?;
    eventually(LIMIT, "the new schema to hold", || async {
        hub.rest().post(&widgets.path(), &huge).await?.created()
    })
    .await?;
    Ok(())
}
