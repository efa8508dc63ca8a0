//! `OpenAPI` documents: enough for kubectl to explain types and to see that the server validates
//! fields itself.

use serde_json::{Map, Value, json};

use crate::builtin_schema;
use crate::registry::{ResourceDef, Types, api_version};
use crate::server::Inner;
use crate::store::{ObjectKey, Store};

/// `/openapi/v3`: where the document of each group version is.
pub(crate) fn index(types: &Types) -> Value {
    let mut paths = Map::new();
    let mut add = |path: String| {
        paths.insert(
            path.clone(),
            json!({"serverRelativeURL": format!("/openapi/v3/{path}")}),
        );
    };
    add("api/v1".to_owned());
    for (group, versions) in types.groups() {
        for version in versions {
            add(format!("apis/{group}/{version}"));
        }
    }
    json!({"paths": paths})
}

/// `/openapi/v3/<path>`: the types of one group version.
pub(crate) fn document(server: &Inner, path: &str) -> Option<Value> {
    let parts: Vec<&str> = path.split('/').collect();
    let (group, version) = match parts.as_slice() {
        ["api", version] => ("", *version),
        ["apis", group, version] => (*group, *version),
        _ => return None,
    };
    let types = server.registry.types();
    let mut schemas = Map::new();
    let mut paths = Map::new();
    for def in types
        .all
        .iter()
        .filter(|d| d.group == group && d.version(version).is_some())
    {
        let name = schema_name(def, version);
        let (schema, named) = schema(&server.store, def, version);
        for (name, schema) in named {
            schemas.entry(name).or_insert(schema);
        }
        schemas.insert(name.clone(), schema);
        add_paths(def, version, &name, &mut paths);
    }
    if paths.is_empty() {
        return None;
    }
    Some(json!({
        "openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1.36.0"},
        "paths": paths, "components": {"schemas": schemas},
    }))
}

/// `/openapi/v2` knows no types: kubectl takes version 3 where it is served.
pub(crate) fn version_2() -> Value {
    json!({
        "swagger": "2.0", "info": {"title": "Kubernetes", "version": "v1.36.0"},
        "paths": {}, "definitions": {},
    })
}

fn schema_name(def: &ResourceDef, version: &str) -> String {
    let group = if def.group.is_empty() {
        "core"
    } else {
        &def.group
    };
    format!("muster.{group}.{version}.{}", def.kind)
}

fn gvk(def: &ResourceDef, version: &str) -> Value {
    json!({"group": def.group, "version": version, "kind": def.kind})
}

fn schema(store: &Store, def: &ResourceDef, version: &str) -> (Value, Map<String, Value>) {
    let (mut schema, named) = match def.builtin {
        Some(builtin) => builtin_schema::of(builtin)
            .map(inline_names)
            .unwrap_or_default(),
        None => (
            custom_schema(store, def, version).unwrap_or_default(),
            Map::new(),
        ),
    };
    if !schema.is_object() {
        schema = json!({"type": "object"});
    }
    let properties = &mut schema["properties"];
    if !properties.is_object() {
        *properties = json!({});
    }
    for (field, text) in [
        (
            "apiVersion",
            "APIVersion defines the versioned schema of this representation of an object.",
        ),
        (
            "kind",
            "Kind is a string value representing the REST resource this object represents.",
        ),
    ] {
        if properties[field].get("description").is_none() {
            properties[field] = json!({"type": "string", "description": text});
        }
    }
    if properties["metadata"].get("description").is_none() {
        properties["metadata"] =
            json!({"type": "object", "description": "Standard object metadata."});
    }
    schema["x-kubernetes-group-version-kind"] = json!([gvk(def, version)]);
    (schema, named)
}

fn custom_schema(store: &Store, def: &ResourceDef, version: &str) -> Option<Value> {
    let crd = store
        .get(crate::builtin::CRDS, &ObjectKey::new("", &def.key))?
        .value();
    let found = crd["spec"]["versions"]
        .as_array()?
        .iter()
        .find(|v| v["name"] == version)?;
    found.pointer("/schema/openAPIV3Schema").cloned()
}

/// Turns `#/$defs/x` into `#/components/schemas/x`, and gives the definitions.
fn inline_names(mut document: Value) -> (Value, Map<String, Value>) {
    rename_references(&mut document);
    let named = match document.get_mut("$defs").map(Value::take) {
        Some(Value::Object(named)) => named,
        _ => Map::new(),
    };
    if let Some(root) = document.as_object_mut() {
        root.remove("$defs");
        root.remove("$schema");
    }
    (document, named)
}

fn rename_references(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match (name.as_str(), &mut *value) {
                    ("$ref", Value::String(reference)) => {
                        *reference = reference.replace("#/$defs/", "#/components/schemas/");
                    }
                    // OpenAPI 3.0 has no lists of types.
                    ("type", Value::Array(names)) => {
                        let name = names.iter().find(|n| **n != "null").cloned();
                        *value = name.unwrap_or_else(|| json!("object"));
                    }
                    _ => rename_references(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(rename_references),
        _ => {}
    }
}

/// The paths of a type. kubectl looks for `fieldValidation` at a type's patch operation.
fn add_paths(def: &ResourceDef, version: &str, schema: &str, paths: &mut Map<String, Value>) {
    let root = if def.group.is_empty() {
        "/api"
    } else {
        "/apis"
    };
    let base = format!("{root}/{}", api_version(&def.group, version));
    let base = if def.namespaced {
        format!("{base}/namespaces/{{namespace}}")
    } else {
        base
    };
    let answer = json!({"200": {"description": "OK", "content": {"application/json": {
        "schema": {"$ref": format!("#/components/schemas/{schema}")},
    }}}});
    let query = |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string"}});
    let operation = |action: &str| {
        json!({
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": gvk(def, version),
            "parameters": [query("dryRun"), query("fieldManager"), query("fieldValidation")],
            "responses": answer,
        })
    };
    paths.insert(
        format!("{base}/{}", def.plural),
        json!({"get": operation("list"), "post": operation("post")}),
    );
    if !def.builtin.is_some_and(|b| b.review) {
        paths.insert(
            format!("{base}/{}/{{name}}", def.plural),
            json!({
                "get": operation("get"), "put": operation("put"), "patch": operation("patch"),
                "delete": operation("delete"),
            }),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::ApiServer;

    #[tokio::test]
    async fn each_group_version_has_a_document_with_its_types() {
        let server = ApiServer::builder().build().await.unwrap().inner;
        let index = index(&server.registry.types());
        for path in index["paths"].as_object().unwrap().keys() {
            assert!(document(&server, path).is_some(), "{path}");
        }
        assert!(document(&server, "apis/none/v1").is_none());
        let apps = document(&server, "apis/apps/v1").unwrap();
        let patch =
            &apps["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
        assert!(
            patch["parameters"]
                .as_array()
                .unwrap()
                .iter()
                .any(|p| p["name"] == "fieldValidation")
        );
        let deployment = &apps["components"]["schemas"]["muster.apps.v1.Deployment"];
        assert_eq!(
            deployment["x-kubernetes-group-version-kind"][0]["kind"],
            "Deployment"
        );
        assert!(!apps.to_string().contains("#/$defs/"));
    }
}
