//! ControllerRevisions: what controllers remember, which the server keeps as it came.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{has, text};
use crate::support::{Cluster, Story, World};

pub(super) fn stories() -> Vec<Story> {
    on_each_backend![
        a_revision_keeps_its_data_to_the_letter,
        a_revision_without_an_object_as_data_is_refused,
        a_revision_can_be_renumbered_and_holds_its_data,
        kubectl_lists_revisions_with_their_controller,
    ]
}

/// The revisions of a namespace of the story's own.
struct Revisions {
    cluster: Cluster,
    namespace: String,
    path: String,
}

impl Revisions {
    async fn of(world: &World) -> Result<Self> {
        let cluster = world.hub().await?;
        let namespace = cluster.namespace().await?;
        let path = format!("/apis/apps/v1/namespaces/{namespace}/controllerrevisions");
        Ok(Self {
            cluster,
            namespace,
            path,
        })
    }

    async fn create(&self, revision: &Value) -> Result<Value> {
        let rest = self.cluster.rest();
        rest.post(&self.path, revision).await?.created()
    }
}

fn revision(name: &str, number: i64, data: Value) -> Value {
    let mut revision = json!({
        "apiVersion": "apps/v1", "kind": "ControllerRevision",
        "metadata": {"name": name}, "revision": number,
    });
    if !data.is_null() {
        revision["data"] = data;
    }
    revision
}

async fn a_revision_keeps_its_data_to_the_letter(world: World) -> Result<()> {
    let revisions = Revisions::of(&world).await?;
    let data = json!({"spec": {
        "nothing": null, "empty": {}, "none": [], "list": [{"a": null}, {}],
        "metadata": {"creationTimestamp": null},
    }});
    let created = revisions.create(&revision("a", 1, data.clone())).await?;
    ensure!(created["data"] == data, "{created}");
    ensure!(created["metadata"]["generation"].is_null(), "{created}");
    let rest = revisions.cluster.rest();
    let read = rest.get(&format!("{}/a", revisions.path)).await?.ok()?;
    ensure!(read == created, "{read}");
    let fields = &created["metadata"]["managedFields"][0]["fieldsV1"];
    ensure!(
        *fields == json!({"f:data": {}, "f:revision": {}}),
        "{fields}"
    );
    Ok(())
}

async fn a_revision_without_an_object_as_data_is_refused(world: World) -> Result<()> {
    let revisions = Revisions::of(&world).await?;
    let rest = revisions.cluster.rest();
    for (number, data, words) in [
        (1, Value::Null, "data: Required value: data is mandatory"),
        (
            1,
            json!([]),
            "data: Required value: data must be a valid JSON object",
        ),
        (
            1,
            json!("text"),
            "data: Required value: data must be a valid JSON object",
        ),
        (
            -1,
            json!({}),
            "revision: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            -1,
            json!(5),
            "[revision: Invalid value: -1: must be greater than or equal to 0, data: Required \
             value: data must be a valid JSON object]",
        ),
    ] {
        let refused = rest
            .post(&revisions.path, &revision("bad", number, data))
            .await?;
        let message = format!("ControllerRevision.apps \"bad\" is invalid: {words}");
        refused.refused(422, "Invalid", &message)?;
    }
    let mut null = revision("bad", 1, json!({}));
    null["data"] = Value::Null;
    let refused = rest.post(&revisions.path, &null).await?;
    let message =
        "ControllerRevision.apps \"bad\" is invalid: data: Required value: data is mandatory";
    refused.refused(422, "Invalid", message)?;
    Ok(())
}

async fn a_revision_can_be_renumbered_and_holds_its_data(world: World) -> Result<()> {
    let revisions = Revisions::of(&world).await?;
    let created = revisions.create(&revision("a", 1, json!({"b": 1}))).await?;
    let (rest, path) = (revisions.cluster.rest(), format!("{}/a", revisions.path));
    let change = json!({"revision": 3, "metadata": {
        "annotations": {"kubernetes.io/change-cause": "again"},
        "resourceVersion": created["metadata"]["resourceVersion"]}});
    let changed = rest.merge_patch(&path, &change).await?.ok()?;
    has(
        &changed,
        &json!({"revision": 3, "data": {"b": 1}, "metadata": {
            "annotations": {"kubernetes.io/change-cause": "again"}}}),
    )?;
    // The same again, now from an old state.
    let conflict = rest.merge_patch(&path, &change).await?;
    ensure!(conflict.code == 409, "{}", conflict.body);
    let refused = rest.merge_patch(&path, &json!({"data": {"b": 2}})).await?;
    ensure!(refused.code == 422, "{}", refused.body);
    let message = text(&refused.body, "/message")?;
    let (begin, end) = (
        "ControllerRevision.apps \"a\" is invalid: data: Invalid value: ",
        ": field is immutable",
    );
    ensure!(
        message.starts_with(begin) && message.ends_with(end),
        "{message}"
    );
    Ok(())
}

async fn kubectl_lists_revisions_with_their_controller(world: World) -> Result<()> {
    let revisions = Revisions::of(&world).await?;
    let owner = |kind: &str, version: &str, controller: bool| {
        json!({"apiVersion": version, "kind": kind, "name": "web", "controller": controller,
            "uid": "6f0c7b52-0d2e-4c3f-8a1e-3d5b7c9e1f20"})
    };
    for (name, number, owners) in [
        ("a", 1, json!([])),
        ("b", 12, json!([owner("StatefulSet", "apps/v1", true)])),
        ("c", 3, json!([owner("StatefulSet", "apps/v1", false)])),
        (
            "d",
            4,
            json!([owner("Node", "v1", false), owner("ConfigMap", "v1", true)]),
        ),
    ] {
        let mut revision = revision(name, number, json!({}));
        revision["metadata"]["ownerReferences"] = owners;
        revisions.create(&revision).await?;
    }
    let get = ["get", "controllerrevisions", "-n", &revisions.namespace];
    let table = revisions.cluster.kubectl(&get).await?.ok()?;
    let lines: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().take(3).collect())
        .collect();
    ensure!(
        lines
            == [
                ["NAME", "CONTROLLER", "REVISION"],
                ["a", "<none>", "1"],
                ["b", "statefulset.apps/web", "12"],
                ["c", "<none>", "3"],
                ["d", "configmap/web", "4"],
            ]
            && table
                .lines()
                .next()
                .is_some_and(|head| head.ends_with("AGE")),
        "{table}"
    );
    Ok(())
}
