//! Apply of custom objects, whose definitions say how they merge, and of definitions.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::super::{CRDS, LIMIT, has};
use super::{apply, owned_by, owners};
use crate::support::{Cluster, Story, World, eventually, unique_name};

pub(super) fn stories() -> Vec<Story> {
    on_each_backend![
        a_status_is_applied_apart,
        custom_objects_merge_as_their_schema_says,
        an_emptied_map_of_a_custom_object_is_refused,
        open_parts_of_custom_objects_merge_as_deduced,
        a_definition_is_applied,
    ]
}

/// A custom type with lists and maps of every kind.
struct Parts {
    group: String,
}

impl Parts {
    fn definition(group: &str) -> Value {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": format!("parts.{group}") },
            "spec": {
                "group": group, "scope": "Namespaced",
                "names": { "plural": "parts", "kind": "Part" },
                "versions": [{
                    "name": "v1", "served": true, "storage": true, "subresources": { "status": {} },
                    "schema": { "openAPIV3Schema": { "type": "object", "properties": {
                        "spec": { "type": "object", "properties": {
                            "size": { "type": "integer" },
                            "tags": { "type": "object", "additionalProperties": { "type": "string" } },
                            "whole": { "type": "object", "x-kubernetes-map-type": "atomic",
                                       "additionalProperties": { "type": "string" } },
                            "names": { "type": "array", "x-kubernetes-list-type": "set",
                                       "items": { "type": "string" } },
                            "args": { "type": "array", "items": { "type": "string" } },
                            "screws": { "type": "array", "x-kubernetes-list-type": "map",
                                "x-kubernetes-list-map-keys": ["name", "kind"],
                                "items": { "type": "object", "required": ["name"], "properties": {
                                    "name": { "type": "string" },
                                    "kind": { "type": "string", "default": "plain" },
                                    "count": { "type": "integer" },
                                } } },
                            "free": { "type": "object",
                                      "x-kubernetes-preserve-unknown-fields": true },
                        } },
                        "status": { "type": "object", "properties": { "ok": { "type": "boolean" } } },
                    } } },
                }],
            },
        })
    }

    async fn install(hub: &Cluster) -> Result<Self> {
        let group = format!("{}.example.com", unique_name("parts"));
        hub.rest()
            .post(CRDS, &Self::definition(&group))
            .await?
            .created()?;
        let path = format!("/apis/{group}/v1/parts");
        eventually(LIMIT, "the type to be served", || async {
            let answer = hub.rest().get(&path).await?;
            ensure!(answer.code == 200, "{answer:?}");
            Ok(())
        })
        .await?;
        Ok(Self { group })
    }

    /// A Part called `a`.
    fn part(&self, spec: &Value) -> Value {
        json!({
            "apiVersion": format!("{}/v1", self.group), "kind": "Part",
            "metadata": { "name": "a" }, "spec": spec,
        })
    }

    /// The path of a Part called `a` in a namespace of its own.
    async fn path(&self, hub: &Cluster) -> Result<String> {
        Ok(format!(
            "/apis/{}/v1/namespaces/{}/parts/a",
            self.group,
            hub.namespace().await?
        ))
    }
}

async fn a_status_is_applied_apart(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let path = format!(
        "/apis/{}/v1/namespaces/{}/parts/a",
        Parts::install(&hub).await?.group,
        hub.namespace().await?
    );
    let group = path.split('/').nth(2).context("no group")?.to_owned();
    let part = |spec: Value, status: Value| {
        json!({
            "apiVersion": format!("{group}/v1"), "kind": "Part", "metadata": { "name": "a" },
            "spec": spec, "status": status,
        })
    };
    let status_path = format!("{path}/status");
    apply(
        &hub,
        &status_path,
        "s",
        &part(json!({}), json!({ "ok": true })),
    )
    .await?
    .refused(404, "NotFound", &format!("parts.{group} \"a\" not found"))?;
    let created = apply(
        &hub,
        &path,
        "m",
        &part(json!({ "size": 1 }), json!({ "ok": true })),
    )
    .await?
    .created()?;
    has(&created, &json!({ "status": null }))?;
    let applied = apply(
        &hub,
        &status_path,
        "s",
        &part(json!({ "size": 2 }), json!({ "ok": true })),
    )
    .await?
    .ok()?;
    has(
        &applied,
        &json!({ "spec": { "size": 1 }, "status": { "ok": true } }),
    )?;
    owned_by(
        &applied,
        &json!({
            "m Apply": { "f:spec": { "f:size": {} } },
            "s Apply status": { "f:status": { "f:ok": {} } },
        }),
    )?;
    apply(
        &hub,
        &status_path,
        "t",
        &part(json!({}), json!({ "ok": false })),
    )
    .await?
    .refused(
        409,
        "Conflict",
        "Apply failed with 1 conflict: conflict with \"s\" with subresource \"status\": \
             .status.ok",
    )?;
    Ok(())
}

async fn custom_objects_merge_as_their_schema_says(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let parts = Parts::install(&hub).await?;
    let path = parts.path(&hub).await?;
    let first = json!({
        "tags": { "a": "1" }, "whole": { "a": "1" }, "names": ["x"], "args": ["x"],
        "screws": [{ "name": "m4", "count": 1 }],
    });
    let created = apply(&hub, &path, "one", &parts.part(&first))
        .await?
        .created()?;
    has(
        &created,
        &json!({ "spec": { "screws": [{ "name": "m4", "kind": "plain", "count": 1 }] } }),
    )?;
    owned_by(
        &created,
        &json!({ "one Apply": { "f:spec": {
            "f:tags": { "f:a": {} }, "f:whole": {}, "f:names": { "v:\"x\"": {} }, "f:args": {},
            "f:screws": { "k:{\"kind\":\"plain\",\"name\":\"m4\"}":
                { ".": {}, "f:name": {}, "f:count": {} } },
        } } }),
    )?;
    let second = json!({
        "tags": { "b": "2" }, "names": ["y"],
        "screws": [{ "name": "m4", "kind": "odd" }, { "name": "m4", "count": 1 }],
    });
    let merged = apply(&hub, &path, "two", &parts.part(&second))
        .await?
        .ok()?;
    ensure!(
        merged["spec"]
            == json!({
                "tags": { "a": "1", "b": "2" }, "whole": { "a": "1" }, "names": ["x", "y"],
                "args": ["x"],
                "screws": [
                    { "name": "m4", "kind": "odd" },
                    { "name": "m4", "kind": "plain", "count": 1 },
                ],
            }),
        "{merged}"
    );
    // Atomic lists and maps are one field each.
    let atomic = json!({ "whole": { "b": "1" }, "args": ["y"] });
    apply(&hub, &path, "two", &parts.part(&atomic))
        .await?
        .refused(
            409,
            "Conflict",
            "Apply failed with 2 conflicts: conflicts with \"one\":\n- .spec.args\n- .spec.whole",
        )?;
    let forced = apply(&hub, &path, "two&force=true", &parts.part(&atomic))
        .await?
        .ok()?;
    ensure!(
        forced["spec"]
            == json!({
                "tags": { "a": "1" }, "whole": { "b": "1" }, "names": ["x"], "args": ["y"],
                "screws": [{ "name": "m4", "kind": "plain", "count": 1 }],
            }),
        "{forced}"
    );
    Ok(())
}

async fn an_emptied_map_of_a_custom_object_is_refused(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let parts = Parts::install(&hub).await?;
    let path = parts.path(&hub).await?;
    let full = parts.part(&json!({ "tags": { "a": "1" } }));
    apply(&hub, &path, "m", &full).await?.created()?;
    // What loses its last field becomes null, which the type does not allow.
    apply(&hub, &path, "m", &parts.part(&json!({ "tags": {} }))).await?.refused(
        422,
        "Invalid",
        &format!(
            "Part.{} \"a\" is invalid: spec.tags: Invalid value: \"null\": spec.tags in body must \
             be of type object: \"null\"",
            parts.group
        ),
    )?;
    let gone = apply(&hub, &path, "m", &parts.part(&json!({ "size": 1 })))
        .await?
        .ok()?;
    ensure!(gone["spec"] == json!({ "size": 1 }), "{gone}");
    Ok(())
}

async fn open_parts_of_custom_objects_merge_as_deduced(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let parts = Parts::install(&hub).await?;
    let path = parts.path(&hub).await?;
    let one = json!({ "free": { "map": { "a": 1 }, "list": [{ "a": 1 }] } });
    let created = apply(&hub, &path, "one", &parts.part(&one))
        .await?
        .created()?;
    owned_by(
        &created,
        &json!({ "one Apply": { "f:spec": { "f:free": {
            "f:map": { ".": {}, "f:a": {} }, "f:list": {},
        } } } }),
    )?;
    let two = json!({ "free": { "map": { "b": 2 } } });
    let merged = apply(&hub, &path, "two", &parts.part(&two)).await?.ok()?;
    ensure!(
        merged["spec"]["free"] == json!({ "map": { "a": 1, "b": 2 }, "list": [{ "a": 1 }] }),
        "{merged}"
    );
    let list = json!({ "free": { "list": [{ "a": 1 }, { "b": 2 }] } });
    apply(&hub, &path, "two", &parts.part(&list))
        .await?
        .refused(
            409,
            "Conflict",
            "Apply failed with 1 conflict: conflict with \"one\": .spec.free.list",
        )?;
    let unknown = json!({ "colour": "red" });
    apply(&hub, &path, "two", &parts.part(&unknown)).await?.refused(
        500,
        "",
        &format!(
            "failed to create typed patch object (/a; {}/v1, Kind=Part): .spec.colour: field not \
             declared in schema",
            parts.group
        ),
    )?;
    Ok(())
}

async fn a_definition_is_applied(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let group = format!("{}.example.com", unique_name("applied"));
    let definition = Parts::definition(&group);
    let path = format!("{CRDS}/parts.{group}");
    let created = apply(&hub, &path, "m", &definition).await?.created()?;
    let fields = owners(&created)?;
    ensure!(
        fields["m Apply"]
            == json!({ "f:spec": {
                "f:group": {}, "f:scope": {}, "f:names": { "f:kind": {}, "f:plural": {} },
                "f:versions": {},
            } }),
        "{fields:?}"
    );
    let path = format!("/apis/{group}/v1/parts");
    eventually(LIMIT, "the type to be served", || async {
        let answer = hub.rest().get(&path).await?;
        ensure!(answer.code == 200, "{answer:?}");
        Ok(())
    })
    .await
}
