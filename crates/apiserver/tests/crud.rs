//! Objects through a `kube::Client` in process.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::needless_pass_by_value,
    reason = "helpers of tests fail by panicking and take what reads best"
)]

mod support;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use support::{config_map, create_namespace, refused, server};

#[tokio::test]
async fn objects_are_created_read_changed_and_deleted() {
    let server = server().await;
    let maps: Api<ConfigMap> = Api::namespaced(server.client(), "default");
    let created = maps
        .create(&PostParams::default(), &config_map("a", "1"))
        .await
        .unwrap();
    assert!(created.uid().is_some());
    assert!(created.creation_timestamp().is_some());
    assert_eq!(maps.get("a").await.unwrap(), created);

    let mut changed = created.clone();
    changed
        .data
        .as_mut()
        .unwrap()
        .insert("k".to_owned(), "2".to_owned());
    let updated = maps
        .replace("a", &PostParams::default(), &changed)
        .await
        .unwrap();
    assert_ne!(updated.resource_version(), created.resource_version());
    assert_eq!(updated.uid(), created.uid());

    let stale = refused(maps.replace("a", &PostParams::default(), &changed).await);
    assert_eq!((stale.code, stale.reason.as_str()), (409, "Conflict"));
    assert_eq!(
        stale.message,
        "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to the latest version and try again"
    );

    let deleted = maps.delete("a", &DeleteParams::default()).await.unwrap();
    let status = deleted
        .right()
        .expect("a ConfigMap's deletion answers with a Status");
    assert!(status.is_success());
    let gone = refused(maps.get("a").await);
    assert_eq!(
        (gone.code, gone.message.as_str()),
        (404, "configmaps \"a\" not found")
    );
}

#[tokio::test]
async fn a_second_object_of_the_same_name_is_refused() {
    let maps: Api<ConfigMap> = Api::namespaced(server().await.client(), "default");
    maps.create(&PostParams::default(), &config_map("a", "1"))
        .await
        .unwrap();
    let status = refused(
        maps.create(&PostParams::default(), &config_map("a", "1"))
            .await,
    );
    assert_eq!(
        (status.code, status.reason.as_str()),
        (409, "AlreadyExists")
    );
    assert_eq!(status.message, "configmaps \"a\" already exists");
    assert_eq!(status.details.unwrap().kind, "configmaps");
}

#[tokio::test]
async fn names_and_namespaces_are_checked() {
    let client = server().await.client();
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let status = refused(
        maps.create(&PostParams::default(), &config_map("A_", "1"))
            .await,
    );
    assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"));
    assert_eq!(status.details.unwrap().causes[0].field, "metadata.name");
    let elsewhere: Api<ConfigMap> = Api::namespaced(client, "nowhere");
    let status = refused(
        elsewhere
            .create(&PostParams::default(), &config_map("a", "1"))
            .await,
    );
    assert_eq!(
        (status.code, status.message.as_str()),
        (404, "namespaces \"nowhere\" not found")
    );
}

#[tokio::test]
async fn generated_names_start_with_their_prefix() {
    let maps: Api<ConfigMap> = Api::namespaced(server().await.client(), "default");
    let mut map = config_map("", "1");
    map.metadata.name = None;
    map.metadata.generate_name = Some("web-".to_owned());
    let (a, b) = (
        maps.create(&PostParams::default(), &map).await.unwrap(),
        maps.create(&PostParams::default(), &map).await.unwrap(),
    );
    assert!(a.name_any().starts_with("web-") && a.name_any().len() == 9);
    assert_ne!(a.name_any(), b.name_any());
}

#[tokio::test]
async fn an_update_without_a_change_writes_nothing() {
    let maps: Api<ConfigMap> = Api::namespaced(server().await.client(), "default");
    let created = maps
        .create(&PostParams::default(), &config_map("a", "1"))
        .await
        .unwrap();
    let same = maps
        .replace("a", &PostParams::default(), &created)
        .await
        .unwrap();
    assert_eq!(same.resource_version(), created.resource_version());
    let patch = Patch::Merge(json!({"data": {"k": "1"}}));
    let same = maps
        .patch("a", &PatchParams::default(), &patch)
        .await
        .unwrap();
    assert_eq!(same.resource_version(), created.resource_version());
}

#[tokio::test]
async fn finalizers_hold_a_deletion_until_the_last_one_goes() {
    let maps: Api<ConfigMap> = Api::namespaced(server().await.client(), "default");
    let mut map = config_map("a", "1");
    map.metadata.finalizers = Some(vec!["x.io/a".to_owned(), "x.io/b".to_owned()]);
    maps.create(&PostParams::default(), &map).await.unwrap();
    let waiting = maps
        .delete("a", &DeleteParams::default())
        .await
        .unwrap()
        .left()
        .unwrap();
    assert!(waiting.metadata.deletion_timestamp.is_some());
    assert_eq!(waiting.metadata.deletion_grace_period_seconds, Some(0));

    let remove = |left: serde_json::Value| Patch::Merge(json!({"metadata": {"finalizers": left}}));
    let added = remove(json!(["x.io/a", "x.io/b", "x.io/c"]));
    let status = refused(maps.patch("a", &PatchParams::default(), &added).await);
    assert_eq!(status.code, 422);
    assert!(
        status.message.contains("no new finalizers can be added"),
        "{}",
        status.message
    );

    maps.patch("a", &PatchParams::default(), &remove(json!(["x.io/a"])))
        .await
        .unwrap();
    maps.get("a").await.unwrap();
    maps.patch("a", &PatchParams::default(), &remove(json!(null)))
        .await
        .unwrap();
    assert_eq!(refused(maps.get("a").await).code, 404);
}

#[tokio::test]
async fn status_and_spec_change_through_their_own_doors() {
    let deployments: Api<Deployment> = Api::namespaced(server().await.client(), "default");
    let deployment: Deployment = serde_json::from_value(json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "web", "image": "web:1"}]},
            },
        },
        "status": {"replicas": 7},
    }))
    .unwrap();
    let created = deployments
        .create(&PostParams::default(), &deployment)
        .await
        .unwrap();
    assert_eq!(created.metadata.generation, Some(1));
    assert_eq!(created.status.clone().unwrap_or_default().replicas, None);

    let both = json!({"spec": {"replicas": 2}, "status": {"readyReplicas": 2}});
    let status = deployments
        .patch_status("web", &PatchParams::default(), &Patch::Merge(&both))
        .await
        .unwrap();
    assert_eq!(status.status.unwrap().ready_replicas, Some(2));
    assert_eq!(status.spec.replicas, Some(1));
    assert_eq!(status.metadata.generation, Some(1));

    let both = json!({"spec": {"replicas": 3}, "status": {"readyReplicas": 3}});
    let main = deployments
        .patch("web", &PatchParams::default(), &Patch::Merge(&both))
        .await
        .unwrap();
    assert_eq!(main.status.unwrap().ready_replicas, Some(2));
    assert_eq!(main.spec.replicas, Some(3));
    assert_eq!(main.metadata.generation, Some(2));

    let scale = deployments.get_scale("web").await.unwrap();
    assert_eq!(scale.spec.unwrap().replicas, Some(3));
    assert_eq!(scale.status.unwrap().selector.as_deref(), Some("app=web"));
    let patch = Patch::Merge(json!({"spec": {"replicas": 5}}));
    deployments
        .patch_scale("web", &PatchParams::default(), &patch)
        .await
        .unwrap();
    let scaled = deployments.get("web").await.unwrap();
    assert_eq!(scaled.spec.replicas, Some(5));
    assert_eq!(scaled.metadata.generation, Some(3));
}

#[tokio::test]
async fn lists_select_and_page() {
    let client = server().await.client();
    create_namespace(&client, "other").await;
    let all: Api<ConfigMap> = Api::all(client.clone());
    for (namespace, name, tier) in [
        ("default", "a", "1"),
        ("default", "b", "2"),
        ("other", "a", "2"),
        ("other", "c", "3"),
    ] {
        let mut map = config_map(name, "v");
        map.metadata.labels = Some([("tier".to_owned(), tier.to_owned())].into());
        Api::<ConfigMap>::namespaced(client.clone(), namespace)
            .create(&PostParams::default(), &map)
            .await
            .unwrap();
    }
    let names = |list: &kube::core::ObjectList<ConfigMap>| -> Vec<String> {
        list.iter()
            .map(|m| format!("{}/{}", m.namespace().unwrap(), m.name_any()))
            .collect()
    };
    let cases = [
        (
            ListParams::default(),
            vec!["default/a", "default/b", "other/a", "other/c"],
        ),
        (
            ListParams::default().labels("tier in (2,3)"),
            vec!["default/b", "other/a", "other/c"],
        ),
        (
            ListParams::default().fields("metadata.name=a"),
            vec!["default/a", "other/a"],
        ),
        (
            ListParams::default().fields("metadata.name=a,metadata.namespace=other"),
            vec!["other/a"],
        ),
        (
            ListParams::default()
                .labels("tier>1")
                .fields("metadata.name!=b"),
            vec!["other/a", "other/c"],
        ),
    ];
    for (params, want) in cases {
        assert_eq!(names(&all.list(&params).await.unwrap()), want, "{params:?}");
    }
    let first = all.list(&ListParams::default().limit(3)).await.unwrap();
    assert_eq!(first.metadata.remaining_item_count, Some(1));
    let token = first.metadata.continue_.clone().unwrap();
    // Later pages show the first page's state.
    Api::<ConfigMap>::namespaced(client, "other")
        .delete("c", &DeleteParams::default())
        .await
        .unwrap();
    let rest = all
        .list(&ListParams::default().limit(3).continue_token(&token))
        .await
        .unwrap();
    assert_eq!(names(&rest), ["other/c"]);
    assert_eq!(
        rest.metadata.resource_version,
        first.metadata.resource_version
    );
    let status = refused(all.list(&ListParams::default().fields("data.k=v")).await);
    assert_eq!(status.code, 400);
    let status = refused(all.list(&ListParams::default().labels("a=b=c")).await);
    assert_eq!(status.code, 400);
}

#[tokio::test]
async fn deletions_obey_preconditions_and_collections_their_selector() {
    let maps: Api<ConfigMap> = Api::namespaced(server().await.client(), "default");
    for name in ["a", "b", "c"] {
        let mut map = config_map(name, "1");
        map.metadata.labels = Some([("n".to_owned(), name.to_owned())].into());
        maps.create(&PostParams::default(), &map).await.unwrap();
    }
    let wrong = DeleteParams {
        preconditions: Some(kube::api::Preconditions {
            uid: Some("other".to_owned()),
            ..Default::default()
        }),
        ..DeleteParams::default()
    };
    let status = refused(maps.delete("a", &wrong).await);
    assert_eq!((status.code, status.reason.as_str()), (409, "Conflict"));
    assert!(
        status
            .message
            .contains("the UID in the precondition (other)"),
        "{}",
        status.message
    );
    let selected = ListParams::default().labels("n in (a,b)");
    maps.delete_collection(&DeleteParams::default(), &selected)
        .await
        .unwrap();
    let left = maps.list(&ListParams::default()).await.unwrap();
    assert_eq!(
        left.iter().map(ResourceExt::name_any).collect::<Vec<_>>(),
        ["c"]
    );
}

#[tokio::test]
async fn dry_runs_answer_and_store_nothing() {
    let maps: Api<ConfigMap> = Api::namespaced(server().await.client(), "default");
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let answer = maps.create(&dry, &config_map("a", "1")).await.unwrap();
    assert!(answer.uid().is_some());
    assert_eq!(refused(maps.get("a").await).code, 404);
}

#[tokio::test]
async fn first_namespaces_exist() {
    let namespaces: Api<Namespace> = Api::all(server().await.client());
    let names: Vec<String> = namespaces
        .list(&ListParams::default())
        .await
        .unwrap()
        .iter()
        .map(ResourceExt::name_any)
        .collect();
    assert_eq!(
        names,
        ["default", "kube-node-lease", "kube-public", "kube-system"]
    );
}

#[tokio::test]
async fn a_body_above_the_limit_is_refused() {
    let server = server().await;
    let maps: Api<ConfigMap> = Api::namespaced(server.client(), "default");
    let large = config_map("a", &"x".repeat(3 * 1024 * 1024));
    let status = refused(maps.create(&PostParams::default(), &large).await);
    assert_eq!(
        (status.code, status.reason.as_str()),
        (413, "RequestEntityTooLarge")
    );
    assert!(maps.get_opt("a").await.unwrap().is_none());
}

/// Refuses objects named `bad`.
struct NoBadNames;

impl muster_apiserver::Admission for NoBadNames {
    fn name(&self) -> &'static str {
        "names.example.com"
    }

    fn admit(&self, request: &muster_apiserver::AdmissionRequest<'_>) -> Result<(), String> {
        if request.name == "bad" {
            Err("bad is no name".to_owned())
        } else {
            Ok(())
        }
    }
}

#[tokio::test]
async fn a_refusal_of_admission_is_told_as_a_webhook_would() {
    let builder = muster_apiserver::ApiServer::builder();
    let server = builder
        .admission(std::sync::Arc::new(NoBadNames))
        .build()
        .await
        .unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(server.client(), "default");
    maps.create(&PostParams::default(), &config_map("good", "1"))
        .await
        .unwrap();
    let status = refused(
        maps.create(&PostParams::default(), &config_map("bad", "1"))
            .await,
    );
    assert_eq!(status.code, 400);
    assert_eq!(
        status.message,
        "admission webhook \"names.example.com\" denied the request: bad is no name"
    );
    assert!(maps.get_opt("bad").await.unwrap().is_none());
}
