//! Finishes the deletion of namespaces: empties them, then takes the last finalizer away.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, DynamicObject, ListParams};
use kube::discovery::{Discovery, Scope, verbs};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use tokio::task::JoinSet;

/// The finalizer that stands for a namespace's content.
const FINALIZER: &str = "kubernetes";

/// Pause before a namespace that still has content is looked at again.
const RETRY: Duration = Duration::from_millis(200);

/// Follows all namespaces, for ever.
pub(super) async fn run(client: Client) {
    let api: Api<Namespace> = Api::all(client.clone());
    let mut events = watcher(api, watcher::Config::default())
        .default_backoff()
        .boxed();
    let mut busy = std::collections::HashSet::new();
    let mut tasks: JoinSet<String> = JoinSet::new();
    loop {
        let event = tokio::select! {
            event = events.try_next() => event,
            Some(done) = tasks.join_next() => {
                if let Ok(uid) = done {
                    busy.remove(&uid);
                }
                continue;
            }
        };
        match event {
            Ok(Some(watcher::Event::Apply(namespace) | watcher::Event::InitApply(namespace))) => {
                let uid = namespace.uid().unwrap_or_default();
                if is_terminating(&namespace) && busy.insert(uid.clone()) {
                    let client = client.clone();
                    tasks.spawn(async move {
                        finish(&client, &namespace.name_any()).await;
                        uid
                    });
                }
            }
            Ok(Some(_)) => {}
            Ok(None) => return,
            Err(e) => tracing::debug!(error = %e, "namespace watch failed"),
        }
    }
}

fn is_terminating(namespace: &Namespace) -> bool {
    let finalizers = namespace.spec.as_ref().and_then(|s| s.finalizers.as_ref());
    namespace.metadata.deletion_timestamp.is_some()
        && finalizers.is_some_and(|f| f.iter().any(|f| f == FINALIZER))
}

/// Deletes the content until nothing is left, then finalizes.
async fn finish(client: &Client, name: &str) {
    loop {
        match empty(client, name).await {
            Ok(true) => match finalize(client, name).await {
                Ok(()) => return,
                Err(kube::Error::Api(status)) if status.is_not_found() => return,
                Err(e) => tracing::debug!(%name, error = %e, "failed to finalize a namespace"),
            },
            Ok(false) => {}
            Err(e) => tracing::debug!(%name, error = %e, "failed to empty a namespace"),
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Deletes what is in the namespace; true when nothing was left.
async fn empty(client: &Client, name: &str) -> kube::Result<bool> {
    let discovery = Discovery::new(client.clone()).run_aggregated().await?;
    let mut clean = true;
    for group in discovery.groups() {
        for (resource, capabilities) in group.recommended_resources() {
            let deletable = [verbs::LIST, verbs::DELETE_COLLECTION]
                .into_iter()
                .all(|verb| capabilities.supports_operation(verb));
            if capabilities.scope != Scope::Namespaced || !deletable {
                continue;
            }
            let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), name, &resource);
            let left = api.list_metadata(&ListParams::default().limit(1)).await?;
            if !left.items.is_empty() {
                clean = false;
                api.delete_collection(&DeleteParams::background(), &ListParams::default())
                    .await?;
            }
        }
    }
    Ok(clean)
}

async fn finalize(client: &Client, name: &str) -> kube::Result<()> {
    let api: Api<Namespace> = Api::all(client.clone());
    let mut namespace = api.get(name).await?;
    if let Some(finalizers) = namespace.spec.as_mut().and_then(|s| s.finalizers.as_mut()) {
        finalizers.retain(|f| f != FINALIZER);
    }
    let body = serde_json::to_vec(&namespace).map_err(kube::Error::SerdeError)?;
    let request = http::Request::put(format!("/api/v1/namespaces/{name}/finalize"))
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body)
        .map_err(kube::Error::HttpError)?;
    client
        .request::<serde_json::Value>(request)
        .await
        .map(|_| ())
}
