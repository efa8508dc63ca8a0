//! One object of a cluster, as stories look at it, change it and wait for it.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::rest::Rest;
use super::waiting::eventually;

/// How long a story waits for what an agent does: twice the half minute after which a watch tries again
/// at the latest whose server was away and the half minute that upstream's own tests wait, since eight
/// stories share the machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(2 * 60);

/// A finalizer of somebody else.
pub(crate) const HOLD: &str = "cluster.open-cluster-management.io/testing";

/// An object by its path; it need not exist.
#[derive(Clone)]
pub(crate) struct Live {
    rest: Rest,
    path: String,
}

impl Live {
    pub(crate) fn new(rest: Rest, collection: &str, name: &str) -> Self {
        let path = format!("{collection}/{name}");
        Self { rest, path }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// The object as it is now.
    pub(crate) async fn find(&self) -> Result<Option<Value>> {
        let answer = self.rest.get(&self.path).await?;
        if answer.code == 404 {
            return Ok(None);
        }
        answer.ok().map(Some)
    }

    /// The object as it is now; it has to exist.
    pub(crate) async fn get(&self) -> Result<Value> {
        let found = self.find().await?;
        found.with_context(|| format!("{} does not exist", self.path))
    }

    /// Waits until it exists and is as `wanted`.
    pub(crate) async fn is(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
        eventually(LIMIT, &format!("{} to {what}", self.path), || async {
            let live = self.get().await?;
            ensure!(wanted(&live), "{live}");
            Ok(live)
        })
        .await
    }

    /// Waits until it exists.
    pub(crate) async fn appears(&self) -> Result<Value> {
        self.is("appear", |_| true).await
    }

    /// Waits until its data is this.
    pub(crate) async fn has_data(&self, data: Value) -> Result<Value> {
        self.is(&format!("hold {data}"), |live| live["data"] == data)
            .await
    }

    /// Waits until it is being deleted.
    pub(crate) async fn is_going(&self) -> Result<Value> {
        self.is("be on its way out", |live| {
            live["metadata"]["deletionTimestamp"].is_string()
        })
        .await
    }

    /// Waits until it does not exist.
    pub(crate) async fn disappears(&self) -> Result<()> {
        eventually(LIMIT, &format!("{} to go", self.path), || async {
            let left = self.find().await?;
            ensure!(left.is_none(), "{}", left.unwrap_or_default());
            Ok(())
        })
        .await
    }

    /// Requires that it does not exist now.
    pub(crate) async fn is_absent(&self) -> Result<()> {
        let found = self.find().await?;
        ensure!(found.is_none(), "{} exists", self.path);
        Ok(())
    }

    /// Somebody creates it.
    pub(crate) async fn create(&self, object: &Value) -> Result<Value> {
        let collection = self.path.rsplit_once('/').map(|(collection, _)| collection);
        let collection = collection.context("a path without a slash")?;
        self.rest.post(collection, object).await?.created()
    }

    /// The field manager of this name creates it.
    pub(crate) async fn create_as(&self, manager: &str, object: &Value) -> Result<Value> {
        let collection = self.path.rsplit_once('/').map(|(collection, _)| collection);
        let collection = collection.context("a path without a slash")?;
        let path = format!("{collection}?fieldManager={manager}");
        self.rest.post(&path, object).await?.created()
    }

    /// Somebody changes it, by a JSON merge patch.
    pub(crate) async fn merge(&self, patch: Value) -> Result<Value> {
        self.rest.merge_patch(&self.path, &patch).await?.ok()
    }

    /// A controller writes its status.
    pub(crate) async fn set_status(&self, status: Value) -> Result<Value> {
        let path = format!("{}/status", self.path);
        let change = json!({ "status": status });
        self.rest.merge_patch(&path, &change).await?.ok()
    }

    /// Somebody deletes it, and finalizers may hold it.
    pub(crate) async fn delete(&self) -> Result<()> {
        self.rest.delete(&self.path).await?.ok()?;
        Ok(())
    }

    /// Somebody puts a finalizer on it, [`HOLD`].
    pub(crate) async fn hold(&self) -> Result<()> {
        self.merge(json!({"metadata": {"finalizers": [HOLD]}}))
            .await?;
        Ok(())
    }

    /// Takes all finalizers off it.
    pub(crate) async fn let_go(&self) -> Result<()> {
        self.merge(json!({"metadata": {"finalizers": null}}))
            .await?;
        Ok(())
    }
}

/// What identifies the state of an object: neither changes unless somebody writes to it.
pub(crate) fn state(object: &Value) -> (Value, Value) {
    let metadata = &object["metadata"];
    (metadata["uid"].clone(), metadata["resourceVersion"].clone())
}

/// The names of the owners of an object.
pub(crate) fn owners(object: &Value) -> Vec<&str> {
    let owners = object["metadata"]["ownerReferences"].as_array();
    let names = owners.into_iter().flatten();
    names.filter_map(|owner| owner["name"].as_str()).collect()
}
