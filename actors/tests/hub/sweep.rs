//! A watch that loses events.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::{StreamExt, TryStreamExt};
use http::{Request, Response};
use http_body_util::{BodyExt, StreamBody};
use kube::client::Body;

use super::*;

impl Hub {
    /// Waits until the summary of a set has these numbers.
    async fn available(&self, set: &str, available: i64, updated: i64) {
        let what = format!("{available} available, {updated} updated");
        eventually(&what, || async {
            let summary = self.status(set).await.summary;
            if (summary.available, summary.updated) == (available, updated) {
                Ok(())
            } else {
                Err(summary)
            }
        })
        .await;
    }
}

/// A client whose watches of works swallow what comes while they are deaf.
fn deaf(client: &Client, deaf: &Arc<AtomicBool>) -> Client {
    let (client, deaf) = (client.clone(), Arc::clone(deaf));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, deaf) = (client.clone(), Arc::clone(&deaf));
        async move {
            let uri = request.uri().to_string();
            let response = client.send(request).await?;
            let (parts, body) = response.into_parts();
            if !(uri.contains("manifestworks?") && uri.contains("watch=true")) {
                return Ok::<_, kube::Error>(Response::from_parts(parts, body.boxed_unsync()));
            }
            let heard = body.into_data_stream().filter(move |_| {
                let heard = !deaf.load(Ordering::SeqCst);
                async move { heard }
            });
            let frames = heard.map_ok(http_body::Frame::data);
            let body = StreamBody::new(frames).boxed_unsync();
            Ok(Response::from_parts(parts, body))
        }
    });
    Client::new(service, "default")
}

/// A client to which, once put back, works have the versions that they had in another life of the
/// API server: lower ones.
fn put_back(client: &Client, is_back: &Arc<AtomicBool>) -> Client {
    let (client, is_back) = (client.clone(), Arc::clone(is_back));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, is_back) = (client.clone(), Arc::clone(&is_back));
        async move {
            let uri = request.uri().to_string();
            let read = request.method() == http::Method::GET
                && uri.contains("manifestworks")
                && !uri.contains("watch=true");
            let response = client.send(request).await?;
            let (parts, body) = response.into_parts();
            if !(read && is_back.load(Ordering::SeqCst)) {
                return Ok::<_, kube::Error>(Response::from_parts(parts, body.boxed_unsync()));
            }
            let bytes = body.collect().await?.to_bytes();
            let mut read: Value = serde_json::from_slice(&bytes).unwrap_or_default();
            for work in match read.get_mut("items").and_then(Value::as_array_mut) {
                Some(items) => items.iter_mut().collect(),
                None => vec![&mut read],
            } {
                work["metadata"]["resourceVersion"] = json!("1");
            }
            let body = http_body_util::Full::from(read.to_string());
            let body = body.map_err(|never| match never {}).boxed_unsync();
            Ok(Response::from_parts(parts, body))
        }
    });
    Client::new(service, "default")
}

/// After a hub's API server was put back to a backup, no event tells of lower versions as newer ones.
#[actix::test]
async fn what_is_read_counts_though_its_version_is_lower() {
    let is_back = Arc::new(AtomicBool::new(false));
    let settings = HubSettings {
        self_check: Duration::from_millis(200),
        ..HubSettings::default()
    };
    let through = |client: &Client| put_back(&deaf(client, &is_back), &is_back);
    let hub = Hub::start_with(1, through, settings).await;
    hub.place("all", json!({})).await;
    hub.create_set("web", &["all"], json!({})).await;
    let works = hub.works_are_in(&["c1"]).await;
    hub.available("web", 0, 1).await;
    is_back.store(true, Ordering::SeqCst);
    hub.report(&works[0], &[("Applied", "True"), ("Available", "True")], 1)
        .await;
    hub.available("web", 1, 1).await;
    hub.stop().await;
}

#[actix::test]
async fn what_a_watch_has_lost_is_found() {
    let is_deaf = Arc::new(AtomicBool::new(false));
    let settings = HubSettings {
        self_check: Duration::from_millis(200),
        ..HubSettings::default()
    };
    let hub = Hub::start_with(3, |client| deaf(client, &is_deaf), settings).await;
    hub.place("all", json!({})).await;
    hub.create_set("web", &["all"], json!({})).await;
    let works = hub.works_are_in(&["c1", "c2", "c3"]).await;
    hub.available("web", 0, 3).await;
    is_deaf.store(true, Ordering::SeqCst);
    // One is gone, one has a status, one has another spec.
    let names: Vec<String> = works.iter().map(ResourceExt::name_any).collect();
    hub.works("c1")
        .delete(&names[0], &DeleteParams::default())
        .await
        .unwrap();
    hub.report(&works[1], &[("Applied", "True"), ("Available", "True")], 1)
        .await;
    let other = Patch::Merge(json!({"spec": template("other")}));
    hub.works("c3")
        .patch(&names[2], &PatchParams::default(), &other)
        .await
        .unwrap();
    hub.works_are_in(&["c1", "c2", "c3"]).await;
    eventually("the status counts, and the spec is repaired", || async {
        let summary = hub.status("web").await.summary;
        let work = hub.works("c3").get(&names[2]).await.unwrap();
        let manifest = work.spec.workload.manifests[0].to_value().unwrap();
        if summary.available == 1 && manifest == template("one")["workload"]["manifests"][0] {
            Ok(())
        } else {
            Err((summary, manifest))
        }
    })
    .await;
    hub.stop().await;
}
