//! What is answered at the limits and beyond them.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{CRDS, config_map};
use crate::support::{Cluster, Story, World, eventually, unique_name};

pub(super) fn stories() -> Vec<Story> {
    on_each_backend![
        json_patches_are_bounded,
        bodies_are_bounded,
        rules_that_can_cost_too_much_are_refused,
        rules_that_cost_too_much_are_cut_off,
    ]
}

async fn json_patches_are_bounded(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let path = format!("/api/v1/namespaces/{}/configmaps", hub.namespace().await?);
    let object = config_map("a", "1");
    hub.rest().post(&path, &object).await?.created()?;
    let path = format!("{path}/a");
    let test = json!({ "op": "test", "path": "/data/value", "value": "1" });
    let most = json!(vec![&test; 10_000]);
    hub.rest().json_patch(&path, &most).await?.ok()?;
    let more = json!(vec![&test; 10_001]);
    hub.rest().json_patch(&path, &more).await?.refused(
        413,
        "RequestEntityTooLarge",
        "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001",
    )?;
    let mut copies = vec![json!({ "op": "add", "path": "/x", "value": { "a": "b".repeat(100) } })];
    copies.extend(
        (0..22).map(|at| json!({ "op": "copy", "from": "/x", "path": format!("/x/y{at}") })),
    );
    hub.rest()
        .json_patch(&path, &json!(copies))
        .await?
        .refused(
            422,
            "Invalid",
            "the server rejected our request due to an error in our request",
        )?;
    Ok(())
}

async fn bodies_are_bounded(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let path = format!("/api/v1/namespaces/{}/configmaps", hub.namespace().await?);
    let large = config_map("a", &"x".repeat(3 << 20));
    hub.rest().post(&path, &large).await?.refused(
        413,
        "RequestEntityTooLarge",
        "Request entity too large: limit is 3145728",
    )?;
    Ok(())
}

/// A definition with one rule at `spec`.
fn definition(group: &str, rule: &str, list: &Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("gadgets.{group}") },
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": { "plural": "gadgets", "kind": "Gadget" },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": {
                "openAPIV3Schema": { "type": "object", "properties": { "spec": {
                    "type": "object", "properties": { "l": list },
                    "x-kubernetes-validations": [{ "rule": rule }],
                } } },
            } }],
        },
    })
}

const FIELD: &str =
    "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule";

async fn rules_that_can_cost_too_much_are_refused(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let group = format!("{}.example.com", unique_name("rules"));
    let numbers = json!({ "type": "array", "items": { "type": "integer" } });
    let texts = json!({ "type": "array", "items": { "type": "string" } });
    let too_deep = format!("1{} > 0", "+1".repeat(300));
    let cases = [
        (too_deep.as_str(), &numbers, "max recursion depth exceeded"),
        (
            "self.l.all(x, self.l.all(y, self.l.all(z, x+y+z >= 0)))",
            &numbers,
            "estimated rule cost exceeds budget by factor of more than 100x",
        ),
        (
            "self.l.all(x, x.matches('^[a-z]+$'))",
            &texts,
            "estimated rule cost exceeds budget by factor of ",
        ),
    ];
    for (rule, list, why) in cases {
        let definition = definition(&group, rule, list);
        let path = format!("{CRDS}?dryRun=All");
        let beginning = format!(
            "CustomResourceDefinition.apiextensions.k8s.io \"gadgets.{group}\" is invalid: "
        );
        let answer = hub.rest().post(&path, &definition).await?;
        let details = answer.refused_beginning(422, "Invalid", &beginning)?;
        let found = details["causes"].as_array().cloned().unwrap_or_default();
        let told = found.iter().any(|cause| {
            let message = cause["message"].as_str().unwrap_or_default();
            cause["field"] == FIELD
                && (message.contains(why)
                    // Which one it is depends on how deep: that of the parser or of the checker.
                    || message.contains("expression recursion limit exceeded"))
        });
        ensure!(told, "{rule:.60}: {details:.2000}");
    }
    let deep_enough = format!("1{} > 0", "+1".repeat(200));
    for (rule, list) in [
        (deep_enough.as_str(), &numbers),
        ("self.l.all(x, x >= 0)", &numbers),
    ] {
        let path = format!("{CRDS}?dryRun=All");
        let definition = definition(&group, rule, list);
        hub.rest().post(&path, &definition).await?.created()?;
    }
    Ok(())
}

async fn install(hub: &Cluster, definition: &Value) -> Result<String> {
    hub.rest().post(CRDS, definition).await?.created()?;
    let name = definition["metadata"]["name"].as_str().unwrap_or_default();
    let path = format!("{CRDS}/{name}");
    eventually(super::LIMIT, "the type is served", || async {
        let definition = hub.rest().get(&path).await?.ok()?;
        let conditions = definition.pointer("/status/conditions");
        let conditions = conditions
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        let established = conditions
            .iter()
            .any(|c| c["type"] == "Established" && c["status"] == "True");
        ensure!(established, "{definition}");
        Ok(())
    })
    .await?;
    Ok(path)
}

async fn rules_that_cost_too_much_are_cut_off(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let group = format!("{}.example.com", unique_name("cut"));
    let rule = "self.l.map(x, x).map(x, x).map(x, x).map(x, x).map(x, x).size() >= 0";
    let list = json!({ "type": "array", "maxItems": 20_000, "items": { "type": "integer" } });
    let definition = definition(&group, rule, &list);
    let installed = install(&hub, &definition).await?;
    let path = format!(
        "/apis/{group}/v1/namespaces/{}/gadgets",
        hub.namespace().await?
    );
    let gadget = json!({
        "apiVersion": format!("{group}/v1"), "kind": "Gadget", "metadata": { "name": "a" },
        "spec": { "l": (0..20_000).collect::<Vec<_>>() },
    });
    let answer = hub.rest().post(&path, &gadget).await?;
    hub.rest().delete(&installed).await?.ok()?;
    answer.refused(
        422,
        "Invalid",
        &format!(
            "Gadget.{group} \"a\" is invalid: spec: Invalid value: \"object\": 'operation cancelled: \
             actual cost limit exceeded': no further validation rules will be run due to call cost \
             exceeds limit for rule: {rule}"
        ),
    )?;
    Ok(())
}
