//! What a Kubernetes API server answers, to the letter: status codes, reasons, messages,
//! resource versions, events. Every expected value was read off the real server; where the
//! embedded one differs, the embedded one is wrong.

mod access;
mod crds;
mod deletion;
mod discovery;
mod jobs;
mod limits;
mod objects;
mod patches;
mod revisions;
mod selectors;
mod server_side_apply;
mod subresources;
mod tables;
mod watching;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::support::{Cluster, Story, eventually, unique_name};

const LIMIT: Duration = Duration::from_secs(20);

pub(crate) fn stories() -> Vec<Story> {
    [
        access::stories(),
        objects::stories(),
        jobs::stories(),
        limits::stories(),
        selectors::stories(),
        patches::stories(),
        revisions::stories(),
        server_side_apply::stories(),
        subresources::stories(),
        deletion::stories(),
        watching::stories(),
        crds::stories(),
        tables::stories(),
        discovery::stories(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Requires that `seen` has every field of `expected`, with lists equal element by element.
fn has(seen: &Value, expected: &Value) -> Result<()> {
    fn differs(path: &str, seen: &Value, expected: &Value) -> Option<String> {
        match (seen, expected) {
            (Value::Object(seen), Value::Object(expected)) => {
                expected.iter().find_map(|(field, expected)| {
                    let seen = seen.get(field).unwrap_or(&Value::Null);
                    differs(&format!("{path}.{field}"), seen, expected)
                })
            }
            (Value::Array(seen), Value::Array(expected)) if seen.len() == expected.len() => {
                let mut pairs = seen.iter().zip(expected).enumerate();
                pairs.find_map(|(i, (seen, expected))| {
                    differs(&format!("{path}[{i}]"), seen, expected)
                })
            }
            _ if seen == expected => None,
            _ => Some(format!("{path} is {seen} and not {expected}")),
        }
    }
    match differs("", seen, expected) {
        None => Ok(()),
        Some(difference) => Err(anyhow::anyhow!("{difference}\nin {seen}")),
    }
}

/// The string at a JSON pointer.
fn text<'a>(value: &'a Value, pointer: &str) -> Result<&'a str> {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .with_context(|| format!("no text at {pointer} of {value}"))
}

fn resource_version(object: &Value) -> Result<&str> {
    text(object, "/metadata/resourceVersion")
}

/// Names of the items of a list, in its order.
fn names(list: &Value) -> Result<Vec<&str>> {
    list["items"]
        .as_array()
        .with_context(|| format!("no items in {list}"))?
        .iter()
        .map(|item| text(item, "/metadata/name"))
        .collect()
}

/// A `ConfigMap` with one value.
fn config_map(name: &str, value: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": name },
        "data": { "value": value },
    })
}

/// A custom type of a story's own: a Widget with a size that has a default and a limit, a
/// status and a scale subresource, and printer columns.
struct Widgets {
    cluster: Cluster,
    group: String,
    namespace: String,
}

impl Widgets {
    /// Creates the type and a namespace, and waits until the type is served.
    async fn install(cluster: Cluster) -> Result<Self> {
        let group = format!("{}.example.com", unique_name("widgets"));
        let namespace = cluster.namespace().await?;
        let widgets = Self {
            cluster,
            group,
            namespace,
        };
        widgets
            .cluster
            .rest()
            .post(CRDS, &widgets.definition()?)
            .await?
            .created()?;
        widgets.wait_until_served().await?;
        Ok(widgets)
    }

    fn definition_path(&self) -> String {
        format!("{CRDS}/widgets.{}", self.group)
    }

    /// The path of the type's objects in the namespace.
    fn path(&self) -> String {
        format!(
            "/apis/{}/v1/namespaces/{}/widgets",
            self.group, self.namespace
        )
    }

    /// A Widget with this spec.
    fn widget(&self, name: &str, spec: &Value) -> Value {
        json!({
            "apiVersion": format!("{}/v1", self.group),
            "kind": "Widget",
            "metadata": { "name": name },
            "spec": spec,
        })
    }

    async fn wait_until_served(&self) -> Result<()> {
        let rest = self.cluster.rest();
        eventually(LIMIT, "the type to be served", || async {
            let answer = rest.get(&self.path()).await?;
            ensure!(answer.code == 200, "{answer:?}");
            Ok(())
        })
        .await
    }

    /// The definition.
    fn definition(&self) -> Result<Value> {
        let mut definition: Value = serde_saphyr::from_str(include_str!("widgets.yaml"))?;
        definition["metadata"]["name"] = json!(format!("widgets.{}", self.group));
        definition["spec"]["group"] = json!(self.group);
        Ok(definition)
    }
}

/// Where custom types are defined.
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
