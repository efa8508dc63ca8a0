//! Server-side apply: creation, merging, conflicts and refusals. Custom types and the owners
//! that other writes leave behind have files of their own.

mod custom;
mod owners;

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value, json};

use super::{has, resource_version, text};
use crate::support::{Answer, Cluster, Story, World, unique_name};

pub(super) fn stories() -> Vec<Story> {
    [applying(), custom::stories(), owners::stories()]
        .into_iter()
        .flatten()
        .collect()
}

fn applying() -> Vec<Story> {
    on_each_backend![
        apply_creates_changes_and_leaves_equal_objects_alone,
        fields_that_are_applied_no_more_go,
        shared_fields_stay_until_nobody_applies_them,
        a_conflict_names_the_manager_and_the_field,
        many_conflicts_are_grouped_by_manager,
        force_takes_fields_from_others,
        lists_merge_by_their_keys,
        sets_merge_by_value,
        a_dry_run_changes_nothing,
        a_manager_is_required_and_checked,
        objects_that_cannot_be_applied_are_refused,
        a_scale_is_applied_to_its_object,
        kubectl_takes_over_from_its_client_side_apply,
    ]
}

const APPLY: &str = "application/apply-patch+yaml";

/// Applies an object; `query` starts with the manager, as in `m&force=true`.
async fn apply(hub: &Cluster, path: &str, query: &str, object: &Value) -> Result<Answer> {
    hub.rest()
        .send(
            http::Method::PATCH,
            &format!("{path}?fieldManager={query}"),
            Some(APPLY),
            Some(object),
        )
        .await
}

/// The fields of each manager, by `manager operation` and, if any, the subresource.
fn owners(object: &Value) -> Result<Map<String, Value>> {
    let entries = object
        .pointer("/metadata/managedFields")
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);
    let mut owners = Map::new();
    for entry in entries {
        ensure!(entry["fieldsType"] == "FieldsV1", "{entry}");
        let mut name = format!(
            "{} {}",
            text(entry, "/manager")?,
            text(entry, "/operation")?
        );
        if let Some(subresource) = entry.get("subresource") {
            name = format!("{name} {}", subresource.as_str().context("no text")?);
        }
        owners.insert(name, entry["fieldsV1"].clone());
    }
    Ok(owners)
}

/// Requires exactly these owners.
fn owned_by(object: &Value, expected: &Value) -> Result<()> {
    let owners = Value::Object(owners(object)?);
    ensure!(owners == *expected, "owned by {owners}\nand not {expected}");
    Ok(())
}

async fn config_maps(hub: &Cluster) -> Result<String> {
    Ok(format!(
        "/api/v1/namespaces/{}/configmaps",
        hub.namespace().await?
    ))
}

/// A `ConfigMap` called `a`.
fn data(data: &Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" }, "data": data })
}

async fn apply_creates_changes_and_leaves_equal_objects_alone(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let path = format!("{}/a", config_maps(&hub).await?);
    let created = apply(&hub, &path, "m", &data(&json!({ "x": "1" })))
        .await?
        .created()?;
    owned_by(&created, &json!({ "m Apply": { "f:data": { "f:x": {} } } }))?;
    let answer = apply(&hub, &path, "m", &data(&json!({ "x": "1" }))).await?;
    ensure!(answer.code == 200, "{answer:?}");
    ensure!(answer.body == created, "{} and not {created}", answer.body);
    let changed = apply(&hub, &path, "m", &data(&json!({ "x": "2" })))
        .await?
        .ok()?;
    ensure!(changed["data"] == json!({ "x": "2" }), "{changed}");
    ensure!(
        resource_version(&changed)? != resource_version(&created)?,
        "the version stayed"
    );
    Ok(())
}

async fn fields_that_are_applied_no_more_go(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let path = format!("{}/a", config_maps(&hub).await?);
    let mut object = data(&json!({ "x": "1", "y": "2" }));
    object["metadata"]["labels"] = json!({ "app": "shop" });
    apply(&hub, &path, "m", &object).await?.created()?;
    // What others have added stays, and so does what they have changed.
    hub.rest()
        .merge_patch(
            &format!("{path}?fieldManager=hand"),
            &json!({ "data": { "ours": "3", "y": "22" } }),
        )
        .await?
        .ok()?;
    let left = apply(&hub, &path, "m", &data(&json!({}))).await?.ok()?;
    ensure!(left["data"] == json!({ "ours": "3", "y": "22" }), "{left}");
    has(&left, &json!({ "metadata": { "labels": null } }))?;
    owned_by(
        &left,
        &json!({
            "m Apply": { "f:data": {} },
            "hand Update": { "f:data": { "f:ours": {}, "f:y": {} } },
        }),
    )
}

async fn shared_fields_stay_until_nobody_applies_them(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let path = format!("{}/a", config_maps(&hub).await?);
    let both = json!({ "x": "1" });
    apply(&hub, &path, "one", &data(&both)).await?.created()?;
    let shared = apply(&hub, &path, "two", &data(&both)).await?.ok()?;
    owned_by(
        &shared,
        &json!({ "one Apply": { "f:data": { "f:x": {} } }, "two Apply": { "f:data": { "f:x": {} } } }),
    )?;
    let nothing = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" } });
    let left = apply(&hub, &path, "one", &nothing).await?.ok()?;
    ensure!(left["data"] == both, "{left}");
    owned_by(&left, &json!({ "two Apply": { "f:data": { "f:x": {} } } }))?;
    let gone = apply(&hub, &path, "two", &nothing).await?.ok()?;
    has(
        &gone,
        &json!({ "data": null, "metadata": { "managedFields": null } }),
    )
}

async fn a_conflict_names_the_manager_and_the_field(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let path = format!(
        "/apis/apps/v1/namespaces/{}/deployments",
        hub.namespace().await?
    );
    let object = path.clone() + "/a";
    let own = unique_name("creator");
    hub.rest()
        .post(&format!("{path}?fieldManager={own}"), &deployment(1))
        .await?
        .created()?;
    let details = apply(&hub, &object, "m", &deployment(2)).await?.refused(
        409,
        "Conflict",
        &format!(
            "Apply failed with 1 conflict: conflict with \"{own}\" using apps/v1: .spec.replicas"
        ),
    )?;
    ensure!(
        details
            == json!({ "causes": [{
                "reason": "FieldManagerConflict",
                "message": format!("conflict with \"{own}\" using apps/v1"),
                "field": ".spec.replicas",
            }] }),
        "{details}"
    );
    // Managers that apply have no version.
    apply(&hub, &object, "m&force=true", &deployment(2))
        .await?
        .ok()?;
    apply(&hub, &object, "n", &deployment(3)).await?.refused(
        409,
        "Conflict",
        "Apply failed with 1 conflict: conflict with \"m\": .spec.replicas",
    )?;
    Ok(())
}

/// A Deployment called `a` with two containers.
fn deployment(replicas: u32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "a" },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": "a" } },
            "template": {
                "metadata": { "labels": { "app": "a" } },
                "spec": { "containers": [
                    { "name": "one", "image": "one:1" }, { "name": "two", "image": "two:1" },
                ] },
            },
        },
    })
}

async fn many_conflicts_are_grouped_by_manager(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let path = format!("{}/a", config_maps(&hub).await?);
    apply(&hub, &path, "a1", &data(&json!({ "x": "1", "y": "1" })))
        .await?
        .created()?;
    apply(&hub, &path, "b1", &data(&json!({ "x": "1" })))
        .await?
        .ok()?;
    let change = json!({ "data": { "z": "1" } });
    hub.rest()
        .merge_patch(&format!("{path}?fieldManager=c1"), &change)
        .await?
        .ok()?;
    let all = data(&json!({ "x": "2", "y": "2", "z": "2" }));
    let details = apply(&hub, &path, "m", &all).await?.refused(
        409,
        "Conflict",
        "Apply failed with 4 conflicts: conflicts with \"a1\":\n- .data.x\n- .data.y\n\
         conflicts with \"b1\":\n- .data.x\nconflicts with \"c1\" using v1:\n- .data.z",
    )?;
    let count = details["causes"].as_array().map_or(0, Vec::len);
    ensure!(count == 4, "{details}");
    Ok(())
}

async fn force_takes_fields_from_others(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let path = format!("{}/a", config_maps(&hub).await?);
    apply(&hub, &path, "one", &data(&json!({ "x": "1", "y": "1" })))
        .await?
        .created()?;
    let forced = apply(&hub, &path, "two&force=true", &data(&json!({ "x": "2" })))
        .await?
        .ok()?;
    ensure!(forced["data"] == json!({ "x": "2", "y": "1" }), "{forced}");
    owned_by(
        &forced,
        &json!({ "one Apply": { "f:data": { "f:y": {} } }, "two Apply": { "f:data": { "f:x": {} } } }),
    )
}

async fn lists_merge_by_their_keys(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let path = format!(
        "/apis/apps/v1/namespaces/{}/deployments/a",
        hub.namespace().await?
    );
    let with = |container: Value| {
        let mut object = deployment(1);
        object["spec"]["template"]["spec"]["containers"] = json!([container]);
        object
    };
    apply(&hub, &path, "m", &deployment(1)).await?.created()?;
    let merged = apply(
        &hub,
        &path,
        "n",
        &with(json!({
            "name": "two", "image": "two:1", "env": [{ "name": "A", "value": "1" }],
            "ports": [{ "containerPort": 80 }, { "containerPort": 80, "protocol": "UDP" }],
        })),
    )
    .await?
    .ok()?;
    has(
        &merged,
        &json!({ "spec": { "template": { "spec": { "containers": [
            { "name": "one", "image": "one:1" },
            {
                "name": "two", "image": "two:1", "env": [{ "name": "A", "value": "1" }],
                "ports": [
                    { "containerPort": 80, "protocol": "TCP" },
                    { "containerPort": 80, "protocol": "UDP" },
                ],
            },
        ] } } } }),
    )?;
    let fields = owners(&merged)?;
    ensure!(
        fields["n Apply"]["f:spec"]["f:template"]["f:spec"]
            == json!({ "f:containers": { "k:{\"name\":\"two\"}": {
                ".": {}, "f:name": {}, "f:image": {},
                "f:env": { "k:{\"name\":\"A\"}": { ".": {}, "f:name": {}, "f:value": {} } },
                "f:ports": {
                    "k:{\"containerPort\":80,\"protocol\":\"TCP\"}":
                        { ".": {}, "f:containerPort": {} },
                    "k:{\"containerPort\":80,\"protocol\":\"UDP\"}":
                        { ".": {}, "f:containerPort": {}, "f:protocol": {} },
                },
            } } }),
        "{}",
        fields["n Apply"]
    );
    // Another value is a conflict at the item's field.
    apply(
        &hub,
        &path,
        "n",
        &with(json!({ "name": "two", "image": "two:2" })),
    )
    .await?
    .refused(
        409,
        "Conflict",
        "Apply failed with 1 conflict: conflict with \"m\": \
             .spec.template.spec.containers[name=\"two\"].image",
    )?;
    // An item goes with its last owner.
    let left = apply(
        &hub,
        &path,
        "m",
        &with(json!({ "name": "one", "image": "one:1" })),
    )
    .await?
    .ok()?;
    let names: Vec<&Value> = left["spec"]["template"]["spec"]["containers"]
        .as_array()
        .context("no containers")?
        .iter()
        .map(|c| &c["name"])
        .collect();
    ensure!(names == ["one", "two"], "{left}");
    Ok(())
}

async fn sets_merge_by_value(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let path = format!("{}/a", config_maps(&hub).await?);
    let with = |finalizers: Value| {
        json!({ "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": { "name": "a", "finalizers": finalizers } })
    };
    apply(&hub, &path, "one", &with(json!(["x/one", "x/both"])))
        .await?
        .created()?;
    let merged = apply(&hub, &path, "two", &with(json!(["x/both", "x/two"])))
        .await?
        .ok()?;
    has(
        &merged,
        &json!({ "metadata": { "finalizers": ["x/one", "x/both", "x/two"] } }),
    )?;
    let left = apply(&hub, &path, "one", &with(json!([]))).await?.ok()?;
    has(
        &left,
        &json!({ "metadata": { "finalizers": ["x/both", "x/two"] } }),
    )?;
    owned_by(
        &left,
        &json!({ "two Apply": { "f:metadata": { "f:finalizers": {
            "v:\"x/both\"": {}, "v:\"x/two\"": {},
        } } } }),
    )?;
    // Stories leave nothing behind that cannot be deleted.
    apply(&hub, &path, "two", &with(json!([]))).await?.ok()?;
    Ok(())
}

async fn a_dry_run_changes_nothing(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let path = format!("{}/a", config_maps(&hub).await?);
    let object = data(&json!({ "x": "1" }));
    let answer = apply(&hub, &path, "m&dryRun=All", &object).await?;
    has(&answer.created()?, &json!({ "data": { "x": "1" } }))?;
    let answer = hub.rest().get(&path).await?;
    ensure!(answer.code == 404, "{answer:?}");
    let created = apply(&hub, &path, "m", &object).await?.created()?;
    let changed = data(&json!({ "x": "2" }));
    let answer = apply(&hub, &path, "n&force=true&dryRun=All", &changed)
        .await?
        .ok()?;
    has(&answer, &json!({ "data": { "x": "2" } }))?;
    owned_by(&answer, &json!({ "n Apply": { "f:data": { "f:x": {} } } }))?;
    let read = hub.rest().get(&path).await?.ok()?;
    ensure!(read == created, "{read}");
    Ok(())
}

async fn a_manager_is_required_and_checked(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let path = format!("{}/a", config_maps(&hub).await?);
    let object = data(&json!({}));
    let details = apply(&hub, &path, "", &object).await?.refused(
        422,
        "Invalid",
        "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for \
         apply patch",
    )?;
    ensure!(
        details
            == json!({ "group": "meta.k8s.io", "kind": "PatchOptions", "causes": [{
                "reason": "FieldValueRequired", "field": "fieldManager",
                "message": "Required value: is required for apply patch",
            }] }),
        "{details}"
    );
    let long = "x".repeat(129);
    apply(&hub, &path, &long, &object).await?.refused(
        422,
        "Invalid",
        "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Too long: may not be more than \
         128 bytes",
    )?;
    apply(&hub, &path, "a%01", &object).await?.refused(
        422,
        "Invalid",
        "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Invalid value: \"a\\x01\": \
         invalid character U+0001 (at position 1)",
    )?;
    hub.rest()
        .merge_patch(&format!("{path}?fieldManager=m&force=true"), &object)
        .await?
        .refused(
            422,
            "Invalid",
            "PatchOptions.meta.k8s.io \"\" is invalid: force: Forbidden: may not be specified for \
             non-apply patch",
        )?;
    Ok(())
}

async fn objects_that_cannot_be_applied_are_refused(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let path = format!("{}/a", config_maps(&hub).await?);
    let with = |field: &str, value: Value| {
        let mut object = data(&json!({ "x": "1" }));
        object["metadata"][field] = value;
        object
    };
    let bad = |message: &'static str| (400, "BadRequest", message);
    let cases = [
        (
            with("name", Value::Null),
            bad(
                "the name of the object (a based on URL) was undeterminable: name must be provided",
            ),
        ),
        (
            with("name", json!("b")),
            bad("the name of the object (b) does not match the name on the URL (a)"),
        ),
        (
            with("namespace", json!("other")),
            bad(
                "the namespace of the provided object does not match the namespace sent on the request",
            ),
        ),
        (
            with("managedFields", json!([])),
            bad("metadata.managedFields must be nil"),
        ),
        (
            json!({ "apiVersion": "v1", "kind": "Secret" }),
            bad("invalid object type: /v1, Kind=Secret"),
        ),
        (
            json!({ "kind": "ConfigMap" }),
            bad("invalid object type: /, Kind=ConfigMap"),
        ),
        (
            json!([]),
            bad(
                "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot \
                 unmarshal array into Go value of type map[string]interface {}",
            ),
        ),
        (
            with("uid", json!("x")),
            (
                409,
                "Conflict",
                "Operation cannot be fulfilled on configmaps \"a\": uid mismatch: the provided \
                 object specified uid x, and no existing object was found",
            ),
        ),
        (
            data(&json!({ "x": 1 })),
            (
                500,
                "",
                "failed to create typed patch object (/a; /v1, Kind=ConfigMap): .data.x: expected \
                 string, got &value.valueUnstructured{Value:1}",
            ),
        ),
        (
            with("colour", json!("red")),
            (
                500,
                "",
                "failed to create typed patch object (/a; /v1, Kind=ConfigMap): .metadata.colour: \
                 field not declared in schema",
            ),
        ),
    ];
    for (object, (code, reason, message)) in cases {
        apply(&hub, &path, "m", &object)
            .await?
            .refused(code, reason, message)?;
    }
    apply(&hub, &path, "m", &data(&json!({ "x": "1" })))
        .await?
        .created()?;
    apply(&hub, &path, "m", &with("resourceVersion", json!("1"))).await?.refused(
        409,
        "Conflict",
        "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please \
         apply your changes to the latest version and try again",
    )?;
    Ok(())
}

async fn a_scale_is_applied_to_its_object(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let path = format!(
        "/apis/apps/v1/namespaces/{}/deployments/a",
        hub.namespace().await?
    );
    let scale = json!({
        "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": { "name": "a" },
        "spec": { "replicas": 0 },
    });
    let mut object = deployment(0);
    object["spec"]["paused"] = json!(true);
    apply(&hub, &path, "m", &object).await?.created()?;
    let mut three = scale.clone();
    three["spec"]["replicas"] = json!(3);
    let scale_path = format!("{path}/scale");
    apply(&hub, &scale_path, "s", &three).await?.refused(
        409,
        "Conflict",
        "Apply failed with 1 conflict: conflict with \"m\": .spec.replicas",
    )?;
    let scaled = apply(&hub, &scale_path, "s&force=true", &three)
        .await?
        .ok()?;
    has(
        &scaled,
        &json!({ "kind": "Scale", "spec": { "replicas": 3 } }),
    )?;
    let fields = owners(&hub.rest().get(&path).await?.ok()?)?;
    ensure!(
        fields.get("s Apply scale") == Some(&json!({ "f:spec": { "f:replicas": {} } })),
        "{fields:?}"
    );
    ensure!(
        fields["m Apply"]["f:spec"].get("f:replicas").is_none(),
        "{fields:?}"
    );
    Ok(())
}

async fn kubectl_takes_over_from_its_client_side_apply(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let namespace = hub.namespace().await?;
    let n = namespace.as_str();
    let apply = async |data: Value, flags: &[&str]| {
        let object = self::data(&data).to_string();
        let args = [&["apply", "-n", n, "-f", "-"], flags].concat();
        hub.kubectl_with_input(&args, &object).await
    };
    apply(json!({ "x": "1", "y": "1" }), &[]).await?.ok()?;
    let printed = apply(json!({ "x": "2" }), &["--server-side"]).await?.ok()?;
    ensure!(printed == "configmap/a serverside-applied\n", "{printed}");
    let path = format!("/api/v1/namespaces/{n}/configmaps/a");
    let object = hub.rest().get(&path).await?.ok()?;
    ensure!(object["data"] == json!({ "x": "2" }), "{object}");
    // Somebody else is told what to do about a conflict.
    let other = ["--server-side", "--field-manager=other"];
    let refused = apply(json!({ "x": "3" }), &other).await?;
    ensure!(
        refused.code == Some(1)
            && refused
                .stderr
                .contains("Apply failed with 1 conflict: conflict with \"kubectl\": .data.x"),
        "{refused:?}"
    );
    let forced = [&other[..], &["--force-conflicts"]].concat();
    apply(json!({ "x": "3" }), &forced).await?.ok()?;
    let object = hub.rest().get(&path).await?.ok()?;
    ensure!(object["data"] == json!({ "x": "3" }), "{object}");
    Ok(())
}
