//! Custom types at run time.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::needless_pass_by_value,
    reason = "helpers of tests fail by panicking and take what reads best"
)]

mod support;

use std::pin::pin;

use futures::TryStreamExt;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams,
    WatchEvent, WatchParams,
};
use kube::core::GroupVersionKind;
use kube::{Api, ResourceExt};
use muster_apiserver::ApiServer;
use serde_json::{Value, json};
use support::{next, refused};

fn crd() -> CustomResourceDefinition {
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "required": ["size"], "properties": {
            "size": {"type": "integer", "minimum": 1},
            "mode": {"type": "string", "enum": ["Fast", "Slow"], "default": "Fast"},
            "template": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                "x-kubernetes-embedded-resource": true},
            "tags": {"type": "array", "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "required": ["name"],
                    "properties": {"name": {"type": "string"}}}},
        }},
        "status": {"type": "object", "properties": {
            "phase": {"type": "string"}, "replicas": {"type": "integer"},
        }},
    }});
    let version = |name: &str, storage: bool| {
        json!({
            "name": name, "served": true, "storage": storage,
            "schema": {"openAPIV3Schema": schema},
            "subresources": {"status": {}, "scale": {
                "specReplicasPath": ".spec.size", "statusReplicasPath": ".status.replicas",
            }},
            "selectableFields": [{"jsonPath": ".spec.mode"}],
            "additionalPrinterColumns": [
                {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
                {"name": "Mode", "type": "string", "jsonPath": ".spec.mode", "priority": 1},
            ],
        })
    };
    serde_json::from_value(json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [version("v1", true), version("v1beta1", false)],
        },
    }))
    .unwrap()
}

fn widgets(client: kube::Client, version: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", version, "Widget"));
    Api::namespaced_with(client, "default", &resource)
}

fn widget(name: &str, spec: Value) -> DynamicObject {
    serde_json::from_value(json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec,
    }))
    .unwrap()
}

async fn server() -> ApiServer {
    ApiServer::builder().crd(crd()).build().await.unwrap()
}

#[tokio::test]
async fn a_type_is_served_as_soon_as_its_definition_is_created() {
    let client = support::server().await.client();
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let created = crds.create(&PostParams::default(), &crd()).await.unwrap();
    let status = created.status.unwrap();
    let conditions: Vec<(String, String)> = status
        .conditions
        .unwrap()
        .into_iter()
        .map(|c| (c.type_, c.status))
        .collect();
    for condition in ["NamesAccepted", "Established"] {
        assert!(
            conditions.contains(&(condition.to_owned(), "True".to_owned())),
            "{conditions:?}"
        );
    }
    assert_eq!(status.stored_versions, Some(vec!["v1".to_owned()]));
    assert_eq!(created.spec.names.singular.as_deref(), Some("widget"));
    let api = widgets(client, "v1");
    let made = api
        .create(&PostParams::default(), &widget("a", json!({"size": 1})))
        .await
        .unwrap();
    assert_eq!(made.metadata.generation, Some(1));
}

#[tokio::test]
async fn objects_are_defaulted_and_pruned() {
    let api = widgets(server().await.client(), "v1");
    let spec = json!({"size": 1, "bogus": true, "template": {
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"a": "b"},
    }});
    let made = api
        .create(&PostParams::default(), &widget("a", spec))
        .await
        .unwrap();
    assert_eq!(made.data["spec"]["mode"], "Fast");
    assert_eq!(made.data["spec"].get("bogus"), None);
    assert_eq!(made.data["spec"]["template"]["data"], json!({"a": "b"}));
}

#[tokio::test]
async fn invalid_objects_are_refused_with_the_field_as_cause() {
    let api = widgets(server().await.client(), "v1");
    let cases = [
        (json!({}), "spec.size", "spec.size: Required value"),
        (
            json!({"size": 0}),
            "spec.size",
            "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1",
        ),
        (
            json!({"size": "big"}),
            "spec.size",
            "spec.size: Invalid value: \"string\": spec.size in body must be of type integer: \"string\"",
        ),
        (
            json!({"size": 1, "mode": "Odd"}),
            "spec.mode",
            "spec.mode: Unsupported value: \"Odd\": supported values: \"Fast\", \"Slow\"",
        ),
        (
            json!({"size": 1, "tags": [{"name": "a"}, {"name": "a"}]}),
            "spec.tags[1]",
            "spec.tags[1]: Duplicate value: {\"name\":\"a\"}",
        ),
        (
            json!({"size": 1, "template": {"kind": "A"}}),
            "spec.template.apiVersion",
            "spec.template.apiVersion: Required value",
        ),
    ];
    for (spec, field, message) in cases {
        let status = refused(api.create(&PostParams::default(), &widget("a", spec)).await);
        assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"));
        assert_eq!(
            status.message,
            format!("Widget.example.com \"a\" is invalid: {message}")
        );
        let details = status.details.unwrap();
        assert_eq!(
            (details.kind.as_str(), details.causes[0].field.as_str()),
            ("Widget", field)
        );
    }
}

#[tokio::test]
async fn strict_field_validation_refuses_unknown_fields() {
    let client = server().await.client();
    let body = widget("a", json!({"size": 1, "bogus": 1}));
    let request = http::Request::post(
        "/apis/example.com/v1/namespaces/default/widgets?fieldValidation=Strict",
    )
    .header("content-type", "application/json")
    .body(serde_json::to_vec(&body).unwrap())
    .unwrap();
    let status = refused(client.request::<Value>(request).await);
    assert_eq!(status.code, 400);
    assert_eq!(
        status.message,
        "Widget in version \"v1\" cannot be handled as a Widget: strict decoding error: unknown field \"spec.bogus\""
    );
}

#[tokio::test]
async fn generations_count_changes_outside_metadata_and_status() {
    let api = widgets(server().await.client(), "v1");
    api.create(&PostParams::default(), &widget("a", json!({"size": 1})))
        .await
        .unwrap();
    let patch = |value: Value| Patch::Merge(value);
    let params = PatchParams::default();
    let labelled = api
        .patch(
            "a",
            &params,
            &patch(json!({"metadata": {"labels": {"x": "y"}}})),
        )
        .await
        .unwrap();
    assert_eq!(labelled.metadata.generation, Some(1));
    let status = api
        .patch_status("a", &params, &patch(json!({"status": {"phase": "On"}})))
        .await
        .unwrap();
    assert_eq!(status.metadata.generation, Some(1));
    assert_eq!(status.data["status"]["phase"], "On");
    let sized = api
        .patch("a", &params, &patch(json!({"spec": {"size": 2}})))
        .await
        .unwrap();
    assert_eq!(sized.metadata.generation, Some(2));
    assert_eq!(sized.data["status"]["phase"], "On");
    let scale = api.get_scale("a").await.unwrap();
    assert_eq!(scale.spec.unwrap().replicas, Some(2));
}

#[tokio::test]
async fn updates_need_a_resource_version() {
    let api = widgets(server().await.client(), "v1");
    api.create(&PostParams::default(), &widget("a", json!({"size": 1})))
        .await
        .unwrap();
    let blind = widget("a", json!({"size": 2}));
    let status = refused(api.replace("a", &PostParams::default(), &blind).await);
    assert_eq!(status.code, 422);
    assert!(
        status.message.ends_with(
            "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
        ),
        "{}",
        status.message
    );
}

#[tokio::test]
async fn each_version_shows_the_same_objects() {
    let client = server().await.client();
    let (v1, beta) = (widgets(client.clone(), "v1"), widgets(client, "v1beta1"));
    v1.create(&PostParams::default(), &widget("a", json!({"size": 1})))
        .await
        .unwrap();
    let seen = beta.get("a").await.unwrap();
    assert_eq!(seen.types.unwrap().api_version, "example.com/v1beta1");
    let patch = Patch::Merge(json!({"spec": {"size": 7}}));
    beta.patch("a", &PatchParams::default(), &patch)
        .await
        .unwrap();
    let seen = v1.get("a").await.unwrap();
    assert_eq!(seen.types.unwrap().api_version, "example.com/v1");
    assert_eq!(seen.data["spec"]["size"], 7);
    let list = beta
        .list(&ListParams::default().fields("spec.mode=Fast"))
        .await
        .unwrap();
    assert_eq!(
        list.items[0].types.as_ref().unwrap().api_version,
        "example.com/v1beta1"
    );
    let mut events = pin!(beta.watch(&WatchParams::default(), "0").await.unwrap());
    let WatchEvent::Added(seen) = next(&mut events).await.unwrap() else {
        panic!("not added")
    };
    assert_eq!(seen.types.unwrap().api_version, "example.com/v1beta1");
}

#[tokio::test]
async fn strategic_merge_patches_are_for_built_in_types() {
    let api = widgets(server().await.client(), "v1");
    api.create(&PostParams::default(), &widget("a", json!({"size": 1})))
        .await
        .unwrap();
    let patch = Patch::Strategic(json!({"spec": {"size": 2}}));
    assert_eq!(
        refused(api.patch("a", &PatchParams::default(), &patch).await).code,
        415
    );
}

#[tokio::test]
async fn deleting_the_definition_deletes_its_objects_and_ends_their_watches() {
    let client = server().await.client();
    let api = widgets(client.clone(), "v1");
    api.create(&PostParams::default(), &widget("a", json!({"size": 1})))
        .await
        .unwrap();
    let mut events = pin!(api.watch(&WatchParams::default(), "0").await.unwrap());
    next(&mut events).await.unwrap();
    let crds: Api<CustomResourceDefinition> = Api::all(client);
    crds.delete("widgets.example.com", &DeleteParams::default())
        .await
        .unwrap();
    let WatchEvent::Deleted(gone) = next(&mut events).await.unwrap() else {
        panic!("not deleted")
    };
    assert_eq!(gone.name_any(), "a");
    assert!(events.try_next().await.unwrap().is_none());
    assert_eq!(refused(api.get("a").await).code, 404);
    assert_eq!(refused(crds.get("widgets.example.com").await).code, 404);
}

#[tokio::test]
async fn a_definition_waits_for_objects_with_finalizers() {
    let client = server().await.client();
    let api = widgets(client.clone(), "v1");
    let mut held = widget("a", json!({"size": 1}));
    held.metadata.finalizers = Some(vec!["x.io/hold".to_owned()]);
    api.create(&PostParams::default(), &held).await.unwrap();
    let crds: Api<CustomResourceDefinition> = Api::all(client);
    crds.delete("widgets.example.com", &DeleteParams::default())
        .await
        .unwrap();
    assert!(
        api.get("a")
            .await
            .unwrap()
            .metadata
            .deletion_timestamp
            .is_some()
    );
    let status = refused(
        api.create(&PostParams::default(), &widget("b", json!({"size": 1})))
            .await,
    );
    assert_eq!(status.code, 405);
    let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    api.patch("a", &PatchParams::default(), &release)
        .await
        .unwrap();
    assert_eq!(refused(crds.get("widgets.example.com").await).code, 404);
}

#[tokio::test]
async fn tables_have_the_definitions_columns() {
    let client = server().await.client();
    let api = widgets(client.clone(), "v1");
    api.create(&PostParams::default(), &widget("a", json!({"size": 3})))
        .await
        .unwrap();
    let request = http::Request::get("/apis/example.com/v1/namespaces/default/widgets")
        .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .body(Vec::new())
        .unwrap();
    let table: Value = client.request(request).await.unwrap();
    let names: Vec<&str> = table["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["Name", "Size", "Mode"]);
    assert_eq!(table["columnDefinitions"][2]["priority"], 1);
    assert_eq!(table["rows"][0]["cells"], json!(["a", 3, "Fast"]));
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
}

#[tokio::test]
async fn an_invalid_definition_stops_the_build() {
    let mut bad = crd();
    bad.spec.versions[0].storage = false;
    let error = ApiServer::builder()
        .crd(bad)
        .build()
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("widgets.example.com"), "{error}");
    assert!(error.contains("exactly one version"), "{error}");
}

/// A type `gadgets` whose `spec` has a list of numbers and a rule.
fn with_rule(rule: &str) -> CustomResourceDefinition {
    serde_json::from_value(json!({
        "metadata": {"name": "gadgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "gadgets", "kind": "Gadget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {
                "openAPIV3Schema": {"type": "object", "properties": {"spec": {
                    "type": "object", "x-kubernetes-validations": [{"rule": rule}],
                    "properties": {"l": {"type": "array", "items": {"type": "integer"}}},
                }}},
            }}],
        },
    }))
    .unwrap()
}

fn gadgets(server: &ApiServer) -> (Api<DynamicObject>, ApiResource) {
    let gvk = GroupVersionKind::gvk("example.com", "v1", "Gadget");
    let resource = ApiResource::from_gvk_with_plural(&gvk, "gadgets");
    let api = Api::namespaced_with(server.client(), "default", &resource);
    (api, resource)
}

#[tokio::test]
async fn rules_that_can_cost_too_much_are_refused_with_their_type() {
    let server = support::server().await;
    let crds: Api<CustomResourceDefinition> = Api::all(server.client());
    for (rule, why) in [
        (
            format!("1{} > 0", "+1".repeat(8000)),
            "expression recursion limit exceeded: 250",
        ),
        (
            "self.l.all(x, self.l.all(y, self.l.all(z, x+y+z >= 0)))".into(),
            "estimated rule cost exceeds budget by factor of more than 100x",
        ),
    ] {
        let status = refused(crds.create(&PostParams::default(), &with_rule(&rule)).await);
        assert_eq!(status.code, 422);
        assert!(status.message.contains(why), "{why}");
        assert!(status.message.contains(
            "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule: "
        ));
    }
}

/// The estimate of this one is fine, what it costs with a large object is not.
#[tokio::test]
async fn other_requests_are_answered_while_rules_use_up_their_budget() {
    let server = support::server().await;
    let crds: Api<CustomResourceDefinition> = Api::all(server.client());
    let rule = "self.l.map(x, x).map(x, x).map(x, x).size() >= 0";
    let mut crd = with_rule(rule);
    let schema = crd.spec.versions[0].schema.as_mut().unwrap();
    let spec = schema.open_api_v3_schema.as_mut().unwrap();
    let spec = spec.properties.as_mut().unwrap().get_mut("spec").unwrap();
    spec.properties
        .as_mut()
        .unwrap()
        .get_mut("l")
        .unwrap()
        .max_items = Some(200_000);
    crds.create(&PostParams::default(), &crd).await.unwrap();
    let (gadgets, resource) = gadgets(&server);
    let numbers: Vec<u32> = (0..50_000).collect();
    let gadget = |at: usize| {
        let spec = json!({"spec": {"l": numbers}});
        DynamicObject::new(&format!("g{at}"), &resource).data(spec)
    };
    // This runtime has one thread: it is free while eight writes compute, or the reads would wait.
    let writes = (0..8).map(|at| {
        let (gadgets, gadget) = (gadgets.clone(), gadget(at));
        tokio::spawn(async move { gadgets.create(&PostParams::default(), &gadget).await })
    });
    let writes: Vec<_> = writes.collect();
    let mut answers = 0;
    while writes.iter().any(|write| !write.is_finished()) {
        let listed = gadgets.list(&ListParams::default()).await.unwrap();
        assert!(listed.items.is_empty());
        answers += 1;
        tokio::task::yield_now().await;
    }
    assert!(answers > 8, "{answers} reads during 8 writes");
    for write in writes {
        let status = refused(write.await.unwrap());
        assert!(
            status
                .message
                .contains("'operation cancelled: actual cost limit exceeded'"),
            "{}",
            status.message
        );
    }
}
