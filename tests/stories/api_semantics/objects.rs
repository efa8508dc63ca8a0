//! Create, read, update: what is filled in, what is refused, and with which words.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{Widgets, config_map, has, resource_version, text};
use crate::support::{Story, World, unique_name};

pub(super) fn stories() -> Vec<Story> {
    on_each_backend![
        create_fills_in_the_metadata,
        create_of_an_existing_name_is_refused,
        create_in_a_missing_namespace_is_refused,
        create_with_bad_metadata_is_refused,
        create_with_a_resource_version_is_refused,
        create_of_another_kind_or_namespace_is_refused,
        generate_name_adds_a_suffix,
        get_of_a_missing_object_is_refused,
        requests_for_unknown_things_are_not_found,
        update_with_an_old_version_conflicts,
        update_without_a_version_replaces,
        update_cannot_change_identity,
        update_of_a_missing_object_is_refused,
        update_without_a_change_keeps_the_version,
        dry_run_changes_nothing,
        unknown_fields_are_warned_of_or_refused,
        bodies_that_do_not_parse_are_refused,
    ]
}

async fn create_fills_in_the_metadata(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let namespace = hub.namespace().await?;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let created = hub
        .rest()
        .post(&path, &config_map("a", "1"))
        .await?
        .created()?;
    has(
        &created,
        &json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": { "value": "1" },
            "metadata": { "name": "a", "namespace": namespace, "generation": null },
        }),
    )?;
    let uid = text(&created, "/metadata/uid")?;
    let dashes: Vec<usize> = uid.match_indices('-').map(|(at, _)| at).collect();
    ensure!(
        uid.len() == 36 && dashes == [8, 13, 18, 23],
        "odd uid {uid}"
    );
    let created_at = text(&created, "/metadata/creationTimestamp")?;
    ensure!(
        created_at.len() == 20 && created_at.ends_with('Z'),
        "odd time {created_at}"
    );
    ensure!(
        resource_version(&created)?.parse::<u64>()? > 0,
        "odd version in {created}"
    );

    let read = hub.rest().get(&format!("{path}/a")).await?.ok()?;
    ensure!(read == created, "read {read}\nafter creating {created}");
    Ok(())
}

async fn create_of_an_existing_name_is_refused(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let namespace = hub.namespace().await?;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    hub.rest()
        .post(&path, &config_map("a", "1"))
        .await?
        .created()?;
    let details = hub
        .rest()
        .post(&path, &config_map("a", "2"))
        .await?
        .refused(409, "AlreadyExists", "configmaps \"a\" already exists")?;
    has(&details, &json!({ "name": "a", "kind": "configmaps" }))
}

async fn create_in_a_missing_namespace_is_refused(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let details = hub
        .rest()
        .post(
            "/api/v1/namespaces/nowhere/configmaps",
            &config_map("a", "1"),
        )
        .await?
        .refused(404, "NotFound", "namespaces \"nowhere\" not found")?;
    has(
        &details,
        &json!({ "name": "nowhere", "kind": "namespaces" }),
    )?;
    // Reading there is no mistake.
    let list = hub
        .rest()
        .get("/api/v1/namespaces/nowhere/configmaps")
        .await?
        .ok()?;
    has(&list, &json!({ "kind": "ConfigMapList", "items": [] }))
}

async fn create_with_bad_metadata_is_refused(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let namespace = hub.namespace().await?;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let details = hub
        .rest()
        .post(&path, &config_map("Not_Valid", "1"))
        .await?
        .refused(
            422,
            "Invalid",
            "ConfigMap \"Not_Valid\" is invalid: metadata.name: Invalid value: \"Not_Valid\": \
         a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, \
         '-' or '.', and must start and end with an alphanumeric character (e.g. \
         'example.com', regex used for validation is \
         '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
        )?;
    has(
        &details,
        &json!({
            "name": "Not_Valid", "kind": "ConfigMap",
            "causes": [{ "reason": "FieldValueInvalid", "field": "metadata.name" }],
        }),
    )?;
    let mut unnamed = config_map("", "1");
    hub.rest().post(&path, &unnamed).await?.refused(
        422,
        "Invalid",
        "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required",
    )?;
    unnamed["metadata"] = json!({ "name": "a", "labels": { "app": "not valid" } });
    hub.rest().post(&path, &unnamed).await?.refused(
        422,
        "Invalid",
        "ConfigMap \"a\" is invalid: metadata.labels: Invalid value: \"not valid\": \
         a valid label must be an empty string or consist of alphanumeric characters, '-', '_' \
         or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or \
         'my_value',  or '12345', regex used for validation is \
         '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
    )?;
    Ok(())
}

async fn create_with_a_resource_version_is_refused(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let namespace = hub.namespace().await?;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let mut object = config_map("a", "1");
    object["metadata"]["resourceVersion"] = json!("1");
    hub.rest().post(&path, &object).await?.refused(
        500,
        "",
        "resourceVersion should not be set on objects to be created",
    )?;
    Ok(())
}

async fn create_of_another_kind_or_namespace_is_refused(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let namespace = hub.namespace().await?;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let mut elsewhere = config_map("a", "1");
    elsewhere["metadata"]["namespace"] = json!("default");
    hub.rest().post(&path, &elsewhere).await?.refused(
        400,
        "BadRequest",
        "the namespace of the provided object does not match the namespace sent on the request",
    )?;
    let mut other_kind = config_map("a", "1");
    other_kind["kind"] = json!("Secret");
    hub.rest()
        .post(&path, &other_kind)
        .await?
        .refused_beginning(
            400,
            "BadRequest",
            "Secret in version \"v1\" cannot be handled as a ConfigMap: ",
        )?;
    Ok(())
}

async fn generate_name_adds_a_suffix(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let namespace = hub.namespace().await?;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "generateName": "made-" },
    });
    let first = hub.rest().post(&path, &object).await?.created()?;
    let second = hub.rest().post(&path, &object).await?.created()?;
    for created in [&first, &second] {
        let name = text(created, "/metadata/name")?;
        let suffix = name.strip_prefix("made-").unwrap_or_default();
        ensure!(
            suffix.len() == 5
                && suffix
                    .bytes()
                    .all(|b| b"bcdfghjklmnpqrstvwxz2456789".contains(&b)),
            "odd generated name {name}"
        );
        has(created, &json!({ "metadata": { "generateName": "made-" } }))?;
    }
    ensure!(
        first["metadata"]["name"] != second["metadata"]["name"],
        "the same name twice"
    );
    Ok(())
}

async fn get_of_a_missing_object_is_refused(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let namespace = hub.namespace().await?;
    let details = hub
        .rest()
        .get(&format!("/api/v1/namespaces/{namespace}/configmaps/none"))
        .await?
        .refused(404, "NotFound", "configmaps \"none\" not found")?;
    has(&details, &json!({ "name": "none", "kind": "configmaps" }))?;

    let widgets = Widgets::install(hub.clone()).await?;
    let details = hub
        .rest()
        .get(&format!("{}/none", widgets.path()))
        .await?
        .refused(
            404,
            "NotFound",
            &format!("widgets.{} \"none\" not found", widgets.group),
        )?;
    has(
        &details,
        &json!({ "name": "none", "group": widgets.group, "kind": "widgets" }),
    )
}

async fn requests_for_unknown_things_are_not_found(world: World) -> Result<()> {
    let hub = world.hub().await?;
    hub.rest()
        .get("/apis/none.example.com/v1/things")
        .await?
        .no_such_path()?;
    for path in [
        "/api/v1/namespaces/default/things",
        "/apis/apps/v1/namespaces/default/things/a",
    ] {
        hub.rest().get(path).await?.refused(
            404,
            "NotFound",
            "the server could not find the requested resource",
        )?;
    }
    let answer = hub
        .rest()
        .send(
            http::Method::PUT,
            "/api/v1/namespaces/default/configmaps",
            None,
            None,
        )
        .await?;
    answer.refused(
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
    )?;
    Ok(())
}

async fn update_with_an_old_version_conflicts(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let namespace = hub.namespace().await?;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let first = hub
        .rest()
        .post(&path, &config_map("a", "1"))
        .await?
        .created()?;
    let mut second = first.clone();
    second["data"]["value"] = json!("2");
    let second = hub.rest().put(&format!("{path}/a"), &second).await?.ok()?;
    ensure!(
        resource_version(&first)? != resource_version(&second)?,
        "the version stayed"
    );
    ensure!(
        first["metadata"]["uid"] == second["metadata"]["uid"],
        "the uid changed"
    );

    let details = hub
        .rest()
        .put(&format!("{path}/a"), &first)
        .await?
        .refused(
            409,
            "Conflict",
            "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; \
         please apply your changes to the latest version and try again",
        )?;
    has(&details, &json!({ "name": "a", "kind": "configmaps" }))?;

    let mut other_uid = second.clone();
    other_uid["metadata"]["uid"] = json!("00000000-0000-0000-0000-000000000000");
    hub.rest()
        .put(&format!("{path}/a"), &other_uid)
        .await?
        .refused(
            409,
            "Conflict",
            &format!(
                "Operation cannot be fulfilled on configmaps \"a\": StorageError: invalid object, \
             Code: 4, Key: /registry/configmaps/{namespace}/a, ResourceVersion: 0, AdditionalErrorMsg: \
             Precondition failed: UID in precondition: 00000000-0000-0000-0000-000000000000, \
             UID in object meta: {}",
                text(&second, "/metadata/uid")?
            ),
        )?;
    Ok(())
}

async fn update_without_a_version_replaces(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let namespace = hub.namespace().await?;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let first = hub
        .rest()
        .post(&path, &config_map("a", "1"))
        .await?
        .created()?;
    let second = hub
        .rest()
        .put(&format!("{path}/a"), &config_map("a", "2"))
        .await?
        .ok()?;
    has(&second, &json!({ "data": { "value": "2" } }))?;
    for field in ["uid", "creationTimestamp"] {
        ensure!(
            first["metadata"][field] == second["metadata"][field],
            "{field} changed"
        );
    }

    // A custom type insists on the version.
    let widgets = Widgets::install(hub.clone()).await?;
    let widget = widgets.widget("a", &json!({ "size": "small" }));
    hub.rest().post(&widgets.path(), &widget).await?.created()?;
    let details = hub
        .rest()
        .put(&format!("{}/a", widgets.path()), &widget)
        .await?
        .refused(
            422,
            "Invalid",
            &format!(
                "widgets.{} \"a\" is invalid: metadata.resourceVersion: Invalid value: 0: \
             must be specified for an update",
                widgets.group
            ),
        )?;
    has(
        &details,
        &json!({
            "name": "a", "group": widgets.group, "kind": "widgets",
            "causes": [{
                "reason": "FieldValueInvalid",
                "message": "Invalid value: 0: must be specified for an update",
                "field": "metadata.resourceVersion",
            }],
        }),
    )
}

async fn update_cannot_change_identity(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let namespace = hub.namespace().await?;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let created = hub
        .rest()
        .post(&path, &config_map("a", "1"))
        .await?
        .created()?;
    let mut renamed = created.clone();
    renamed["metadata"]["name"] = json!("b");
    hub.rest()
        .put(&format!("{path}/a"), &renamed)
        .await?
        .refused(
            400,
            "BadRequest",
            "the name of the object (b) does not match the name on the URL (a)",
        )?;
    // The server's own fields are kept, whatever an update says.
    let mut forged = created.clone();
    forged["metadata"]["creationTimestamp"] = json!("2001-01-01T00:00:00Z");
    forged["metadata"]["generation"] = json!(77);
    forged["data"]["value"] = json!("2");
    let updated = hub.rest().put(&format!("{path}/a"), &forged).await?.ok()?;
    has(
        &updated,
        &json!({ "metadata": {
            "creationTimestamp": created["metadata"]["creationTimestamp"],
        } }),
    )
}

async fn update_of_a_missing_object_is_refused(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let namespace = hub.namespace().await?;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps/none");
    hub.rest()
        .put(&path, &config_map("none", "1"))
        .await?
        .refused(404, "NotFound", "configmaps \"none\" not found")?;
    Ok(())
}

async fn update_without_a_change_keeps_the_version(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let namespace = hub.namespace().await?;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let created = hub
        .rest()
        .post(&path, &config_map("a", "1"))
        .await?
        .created()?;
    let updated = hub.rest().put(&format!("{path}/a"), &created).await?.ok()?;
    ensure!(
        resource_version(&updated)? == resource_version(&created)?,
        "a new version"
    );
    let change = json!({ "data": { "value": "1" } });
    let patched = hub
        .rest()
        .merge_patch(&format!("{path}/a"), &change)
        .await?
        .ok()?;
    ensure!(
        resource_version(&patched)? == resource_version(&created)?,
        "a new version"
    );
    Ok(())
}

async fn dry_run_changes_nothing(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let namespace = hub.namespace().await?;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let tried = hub
        .rest()
        .post(&format!("{path}?dryRun=All"), &config_map("a", "1"))
        .await?
        .created()?;
    has(
        &tried,
        &json!({ "metadata": { "name": "a", "resourceVersion": null } }),
    )?;
    text(&tried, "/metadata/uid")?;
    ensure!(
        hub.rest().get(&format!("{path}/a")).await?.code == 404,
        "a dry run created"
    );

    let created = hub
        .rest()
        .post(&path, &config_map("a", "1"))
        .await?
        .created()?;
    let tried = hub
        .rest()
        .put(&format!("{path}/a?dryRun=All"), &config_map("a", "2"))
        .await?
        .ok()?;
    has(&tried, &json!({ "data": { "value": "2" } }))?;
    hub.rest()
        .delete(&format!("{path}/a?dryRun=All"))
        .await?
        .ok()?;
    let kept = hub.rest().get(&format!("{path}/a")).await?.ok()?;
    ensure!(kept == created, "a dry run changed it to {kept}");
    hub.rest()
        .post(&format!("{path}?dryRun=Some"), &config_map("b", "1"))
        .await?
        .refused(
            422,
            "Invalid",
            "CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Some\"]: \
         supported values: \"All\"",
        )?;
    Ok(())
}

async fn unknown_fields_are_warned_of_or_refused(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let widgets = Widgets::install(hub.clone()).await?;
    let name = unique_name("w");
    let object = widgets.widget(&name, &json!({ "size": "small", "colour": "red" }));
    let strict = format!("{}?fieldValidation=Strict", widgets.path());
    hub.rest().post(&strict, &object).await?.refused(
        400,
        "BadRequest",
        "Widget in version \"v1\" cannot be handled as a Widget: strict decoding error: \
         unknown field \"spec.colour\"",
    )?;
    let created = hub.rest().post(&widgets.path(), &object).await?.created()?;
    has(&created, &json!({ "spec": { "colour": null } }))
}

async fn bodies_that_do_not_parse_are_refused(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let namespace = hub.namespace().await?;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let post = async |content_type: &str, body: &Value| {
        hub.rest()
            .send(http::Method::POST, &path, Some(content_type), Some(body))
            .await
    };
    post("application/json", &json!({ "metadata": { "name": "a" } }))
        .await?
        .created()?;
    post(
        "application/json",
        &json!({ "metadata": { "name": "b" }, "data": { "value": 1 } }),
    )
    .await?
    .refused(
        400,
        "BadRequest",
        "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: json: cannot unmarshal \
             number into Go struct field ConfigMap.data of type string",
    )?;
    post("text/plain", &config_map("c", "1")).await?.refused(
        415,
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: \
         application/json, application/yaml, application/vnd.kubernetes.protobuf",
    )?;
    Ok(())
}
