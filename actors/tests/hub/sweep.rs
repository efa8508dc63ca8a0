//! A watch that loses events.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::{StreamExt, TryStreamExt};
use http::{Request, Response};
use http_body_util::{BodyExt, StreamBody};
use kube::client::Body;

use super::*;

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
    eventually("the summary counts three", || async {
        let summary = hub.status("web").await.summary;
        if summary.updated == 3 {
            Ok(())
        } else {
            Err(summary)
        }
    })
    .await;
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
