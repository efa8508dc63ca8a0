//! Answers to the hub's writes that come late.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt;
use http::{Method, Request};
use kube::client::Body;

use super::*;

/// A client whose answers to creations of works come only when the hub has counted their status,
/// which an agent has written meanwhile.
fn late(client: &Client, answered: &Arc<AtomicBool>) -> Client {
    let (client, answered) = (client.clone(), Arc::clone(answered));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, answered) = (client.clone(), Arc::clone(&answered));
        async move {
            let creates = request.method() == Method::POST
                && request.uri().path().ends_with("/c1/manifestworks");
            let response = client.send(request).await?;
            if creates {
                report(&client).await;
                answered.store(true, Ordering::SeqCst);
            }
            Ok::<_, kube::Error>(response)
        }
        .boxed()
    });
    Client::new(service, "default")
}

async fn report(client: &Client) {
    let works: Api<ManifestWork> = Api::namespaced(client.clone(), "c1");
    let work = works
        .list(&ListParams::default())
        .await
        .unwrap()
        .items
        .remove(0);
    let condition = |kind: &str| {
        json!({"type": kind, "status": "True", "observedGeneration": 1, "reason": "R",
            "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let status = json!({"status": {"conditions": [condition("Applied"), condition("Available")]}});
    works
        .patch_status(
            &work.name_any(),
            &PatchParams::default(),
            &Patch::Merge(status),
        )
        .await
        .unwrap();
    let sets: Api<ManifestWorkReplicaSet> = Api::namespaced(client.clone(), "default");
    eventually("the hub has counted it", || async {
        let summary = sets
            .get("web")
            .await
            .unwrap()
            .status
            .unwrap_or_default()
            .summary;
        if summary.available == 1 {
            Ok(())
        } else {
            Err(summary)
        }
    })
    .await;
}

#[actix::test]
async fn a_late_answer_does_not_take_back_what_the_watch_has_told() {
    let answered = Arc::new(AtomicBool::new(false));
    let hub = Hub::start_with(1, |client| late(client, &answered), HubSettings::default()).await;
    hub.place("all", json!({})).await;
    hub.create_set("web", &["all"], json!({})).await;
    eventually("the answer comes", || async {
        if answered.load(Ordering::SeqCst) {
            Ok(())
        } else {
            Err(())
        }
    })
    .await;
    // By the time that it has heard of two others it has heard of the answer, and written what it
    // made of it.
    hub.is_through("other").await;
    hub.is_through("another").await;
    let status = hub.status("web").await;
    assert_eq!(status.phase, Some(ReplicaSetPhase::Ready), "{status:?}");
    hub.stop().await;
}
