//! Our definitions, as `deploy/crds/` has them: a server accepts them, and objects in the form
//! that Go programs write survive both the server and our own types.

use anyhow::{Context, Result, bail, ensure};
use muster_api::cluster::ManagedCluster;
use muster_api::placement::{Placement, PlacementDecision};
use muster_api::replicaset::ManifestWorkReplicaSet;
use muster_api::work::{AppliedManifestWork, ManifestWork};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::support::{Cluster, Story, World, install_definitions};

pub(crate) fn stories() -> Vec<Story> {
    on_each_backend![
        every_definition_is_accepted_and_established,
        objects_that_go_programs_write_survive,
    ]
}

async fn every_definition_is_accepted_and_established(world: World) -> Result<()> {
    let hub = world.hub().await?;
    for definition in install_definitions(&hub).await? {
        // A schema that is not structural, or a name already taken, is told by a condition.
        let conditions = definition["status"]["conditions"].as_array().cloned();
        for condition in conditions.unwrap_or_default() {
            let wanted = match condition["type"].as_str() {
                Some("NamesAccepted" | "Established") => "True",
                _ => "False",
            };
            ensure!(
                condition["status"] == wanted,
                "{}: {condition}",
                definition["metadata"]["name"]
            );
        }
    }
    Ok(())
}

async fn objects_that_go_programs_write_survive(world: World) -> Result<()> {
    let hub = world.hub().await?;
    let definitions = install_definitions(&hub).await?;
    let namespace = hub.namespace().await?;
    let objects: Vec<Value> = serde_json::from_str(include_str!("crds/go-objects.json"))?;
    let mut differences = Vec::new();
    for object in objects {
        let definition = definitions
            .iter()
            .find(|definition| definition["spec"]["names"]["kind"] == object["kind"])
            .with_context(|| format!("no definition of {}", object["kind"]))?;
        let sample = Sample::new(&hub, definition, &namespace, &object)?;
        let told = match object["kind"].as_str() {
            Some("ManifestWork") => sample.survives::<ManifestWork>().await,
            Some("AppliedManifestWork") => sample.survives::<AppliedManifestWork>().await,
            Some("ManifestWorkReplicaSet") => sample.survives::<ManifestWorkReplicaSet>().await,
            Some("Placement") => sample.survives::<Placement>().await,
            Some("PlacementDecision") => sample.survives::<PlacementDecision>().await,
            Some("ManagedCluster") => sample.survives::<ManagedCluster>().await,
            _ => bail!("no type of ours for {}", object["kind"]),
        };
        differences.extend(
            told.err()
                .map(|err| format!("{} {}: {err:#}", object["kind"], object["metadata"]["name"])),
        );
    }
    ensure!(differences.is_empty(), "{}", differences.join("\n\n"));
    Ok(())
}

/// An object in the form of Go's encoder: fields without `omitempty` are there though empty,
/// and a null stands for a nil slice or a zero time.
struct Sample<'a> {
    hub: &'a Cluster,
    object: &'a Value,
    /// Where objects of its type are.
    path: String,
}

impl<'a> Sample<'a> {
    fn new(
        hub: &'a Cluster,
        definition: &Value,
        namespace: &str,
        object: &'a Value,
    ) -> Result<Self> {
        let api = object["apiVersion"].as_str().context("no apiVersion")?;
        let plural = definition["spec"]["names"]["plural"]
            .as_str()
            .context("no plural")?;
        let path = if definition["spec"]["scope"] == "Namespaced" {
            format!("/apis/{api}/namespaces/{namespace}/{plural}")
        } else {
            format!("/apis/{api}/{plural}")
        };
        Ok(Self { hub, object, path })
    }

    /// Writes it as a Go program would, spec first and then status, and again as our type `K`
    /// reads and writes it: neither the server nor `K` may lose a field.
    async fn survives<K: DeserializeOwned + Serialize>(&self) -> Result<()> {
        let rest = self.hub.rest();
        let name = self.object["metadata"]["name"]
            .as_str()
            .context("no name")?;
        let path = format!("{}/{name}", self.path);
        let mut written = rest.post(&self.path, self.object).await?.created()?;
        // A type without the subresource has its status from the start.
        if written.get("status").is_none() && self.object.get("status").is_some() {
            written["status"] = self.object["status"].clone();
            written = rest.put(&format!("{path}/status"), &written).await?.ok()?;
        }
        for field in ["spec", "status"] {
            keeps(field, &written[field], &self.object[field])?;
        }

        let ours: K = serde_json::from_value(written.clone())?;
        let mut ours = serde_json::to_value(ours)?;
        let again = rest.put(&path, &ours).await?.ok()?;
        ours["metadata"]["resourceVersion"] = again["metadata"]["resourceVersion"].clone();
        let again = match rest.put(&format!("{path}/status"), &ours).await? {
            answer if answer.code == 404 => again,
            answer => answer.ok()?,
        };
        for field in ["spec", "status"] {
            keeps(field, &again[field], &written[field])?;
            keeps(field, &written[field], &again[field])?;
        }
        Ok(())
    }
}

/// Requires that `seen` has all of `expected`; nulls and empty lists may be missing.
fn keeps(path: &str, seen: &Value, expected: &Value) -> Result<()> {
    match expected {
        Value::Null => Ok(()),
        Value::Array(items) if items.is_empty() && seen.is_null() => Ok(()),
        Value::Object(fields) if seen.is_object() => fields
            .iter()
            .try_for_each(|(field, value)| keeps(&format!("{path}.{field}"), &seen[field], value)),
        Value::Array(items)
            if seen
                .as_array()
                .is_some_and(|seen| seen.len() == items.len()) =>
        {
            items
                .iter()
                .enumerate()
                .try_for_each(|(i, value)| keeps(&format!("{path}[{i}]"), &seen[i], value))
        }
        _ if seen == expected => Ok(()),
        _ => bail!("{path} was {expected} and is {seen}"),
    }
}
