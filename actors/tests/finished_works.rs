//! Finished works against an API server, without agents: the test writes what agents would report.
//!
//! | Upstream row | Test |
//! |---|---|
//! | G01, G02, G03, G05 | `a_finished_work_goes_after_its_time_and_no_other` |
//! | G04 | `no_time_left_means_now` |

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::needless_pass_by_value,
    reason = "helpers of tests fail by panicking and take what reads best"
)]

use std::fmt::Debug;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix::Addr;
use http::{Method, Request, Response};
use jiff::{SignedDuration, Timestamp};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::{Api, Client, ResourceExt};
use muster_actors::hub::{FinishedWorks, HubDeps, HubSettings, register_cluster};
use muster_actors::supervision::{Health, Io, Registry, stop};
use muster_api::work::ManifestWork;
use muster_apiserver::{ApiServer, Storage};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;

/// What becomes of one deletion on its way to the server.
enum Fault {
    /// It is refused with this code and, in seconds, `retryAfterSeconds`.
    Refused(u16, u32),
    /// It waits until it is let go.
    Held,
}

/// The way of the actor to the API server: sees deletions, and disturbs the first ones.
#[derive(Clone)]
struct Way {
    client: Client,
    faults: Arc<Mutex<Vec<Fault>>>,
    /// When each deletion was sent, and the code of its answer.
    deletions: Arc<Mutex<Vec<(Instant, u16)>>>,
    held: Arc<Notify>,
    let_go: Arc<Notify>,
}

impl Way {
    fn new(client: Client, faults: Vec<Fault>) -> Self {
        Self {
            client,
            faults: Arc::new(Mutex::new(faults)),
            deletions: Arc::default(),
            held: Arc::default(),
            let_go: Arc::default(),
        }
    }

    fn client(&self) -> Client {
        let way = self.clone();
        let service = tower::service_fn(move |request| {
            let way = way.clone();
            async move { way.pass(request).await }
        });
        Client::new(service, "default")
    }

    async fn pass(&self, request: Request<Body>) -> Result<Response<Body>, tower::BoxError> {
        if request.method() != Method::DELETE {
            return Ok(self.client.send(request).await?);
        }
        let sent = Instant::now();
        let fault = {
            let mut faults = self.faults.lock().unwrap();
            (!faults.is_empty()).then(|| faults.remove(0))
        };
        let answer = match fault {
            Some(Fault::Refused(code, seconds)) => {
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                    "code": code, "reason": "Test", "message": "refused by test",
                    "details": {"retryAfterSeconds": seconds}});
                let body = Body::from(serde_json::to_vec(&status)?);
                Response::builder().status(code).body(body)?
            }
            Some(Fault::Held) => {
                self.held.notify_one();
                self.let_go.notified().await;
                self.client.send(request).await?
            }
            None => self.client.send(request).await?,
        };
        let code = answer.status().as_u16();
        self.deletions.lock().unwrap().push((sent, code));
        Ok(answer)
    }

    fn codes(&self) -> Vec<u16> {
        let deletions = self.deletions.lock().unwrap();
        deletions.iter().map(|(_, code)| *code).collect()
    }
}

/// A hub with its API server; the actor runs between [`Hub::run`] and [`Hub::pause`].
struct Hub {
    api: ApiServer,
    way: Way,
    registry: Registry,
    health: Health,
    finished: Option<Addr<FinishedWorks>>,
}

const LIMIT: Duration = Duration::from_secs(10);

impl Hub {
    /// A hub whose actor does not run yet.
    async fn prepare(faults: Vec<Fault>) -> Self {
        let mut builder = ApiServer::builder().storage(Storage::Memory);
        for crd in muster_api::crds::hub() {
            builder = builder.crd(crd);
        }
        let api = builder.build().await.unwrap();
        register_cluster(&api.client(), "c1", &[].into())
            .await
            .unwrap();
        Self {
            way: Way::new(api.client(), faults),
            api,
            registry: Registry::new(),
            health: Health::new(),
            finished: None,
        }
    }

    async fn start_with(faults: Vec<Fault>) -> Self {
        let mut hub = Self::prepare(faults).await;
        hub.run().await;
        hub
    }

    async fn start() -> Self {
        Self::start_with(Vec::new()).await
    }

    async fn run(&mut self) {
        self.finished = Some(FinishedWorks::start(HubDeps {
            client: self.way.client(),
            io: Io::current(),
            registry: self.registry.clone(),
            health: self.health.clone(),
            agents: None,
            events: None,
            settings: HubSettings::default(),
        }));
        eventually("the watch is alive", || async {
            let reasons = self.health.not_ready();
            if reasons.is_empty() {
                Ok(())
            } else {
                Err(reasons)
            }
        })
        .await;
    }

    /// Stops the actor and checks that nothing of it is left.
    async fn pause(&mut self) {
        let finished = self.finished.take().unwrap();
        assert!(stop(&finished, LIMIT).await);
        let ended = self.registry.ended(LIMIT).await;
        assert_eq!((ended, self.registry.panics()), (Ok(()), 0));
        assert!(self.health.not_ready().is_empty());
    }

    async fn stop(mut self) {
        self.pause().await;
        self.api.shutdown().await;
    }

    fn works(&self) -> Api<ManifestWork> {
        Api::namespaced(self.api.client(), "c1")
    }

    async fn create(&self, name: &str, metadata: Value, ttl: Option<i64>) -> ManifestWork {
        let mut work = json!({"apiVersion": "work.open-cluster-management.io/v1",
            "kind": "ManifestWork", "metadata": metadata, "spec": {"workload": {"manifests": [{
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"namespace": "default", "name": name}}]}}});
        work["metadata"]["name"] = name.into();
        if let Some(seconds) = ttl {
            work["spec"]["deleteOption"] =
                json!({"propagationPolicy": "Foreground", "ttlSecondsAfterFinished": seconds});
        }
        let work = serde_json::from_value(work).unwrap();
        let created = self.works().create(&PostParams::default(), &work).await;
        created.unwrap()
    }

    async fn merge(&self, name: &str, patch: Value) {
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        self.works().patch(name, &params, &patch).await.unwrap();
    }

    /// Reports, as an agent would, that a work is complete or not, since so many seconds.
    async fn report(&self, name: &str, complete: &str, seconds_ago: i64) {
        let since = Timestamp::now().as_second() - seconds_ago;
        let since = Timestamp::from_second(since).unwrap();
        let condition = json!({"type": "Complete", "status": complete, "message": "",
            "reason": "ConditionRuleEvaluated", "lastTransitionTime": since});
        let patch = Patch::Merge(json!({"status": {"conditions": [condition]}}));
        let patched = self
            .works()
            .patch_status(name, &PatchParams::default(), &patch)
            .await;
        patched.unwrap();
    }

    async fn gone(&self, name: &str) {
        eventually("the work is gone", || async {
            match self.works().get_opt(name).await.unwrap() {
                None => Ok(()),
                Some(work) => Err(work.metadata.name),
            }
        })
        .await;
    }

    /// All that happened before this has been seen: a work that is due now, and so after what was
    /// due before it, is gone.
    async fn all_is_seen(&self) {
        self.create("fence", json!({}), Some(1)).await;
        self.report("fence", "True", 1).await;
        self.gone("fence").await;
    }

    async fn is_kept(&self, name: &str) {
        let work = self.works().get(name).await.unwrap();
        assert!(work.metadata.deletion_timestamp.is_none(), "{name}");
    }

    /// What the actor says of itself.
    async fn state(&self) -> Value {
        let report = serde_json::to_value(self.registry.report(LIMIT).await).unwrap();
        report[0]["state"].clone()
    }
}

/// Polls until `probe` gives `Ok`; the last `Err` is what a failure prints.
async fn eventually<T, E, F>(what: &str, mut probe: impl FnMut() -> F) -> T
where
    E: Debug,
    F: Future<Output = Result<T, E>>,
{
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        match probe().await {
            Ok(value) => return value,
            Err(seen) if Instant::now() >= deadline => {
                panic!("{what}: last seen {seen:?}")
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

fn of_a_set() -> Value {
    json!({"labels": {
        "work.open-cluster-management.io/manifestworkreplicaset": "default.test-replicaset"}})
}

#[actix::test]
async fn a_finished_work_goes_after_its_time_and_no_other() {
    let hub = Hub::start().await;
    for (name, metadata, ttl) in [
        ("g01", json!({}), Some(5)),
        ("g02", json!({}), None),
        ("g03", json!({}), Some(5)),
        ("g05", of_a_set(), Some(5)),
        ("not-complete", json!({}), Some(5)),
    ] {
        hub.create(name, metadata, ttl).await;
    }
    for name in ["g02", "g05"] {
        hub.report(name, "True", 100).await;
    }
    hub.report("not-complete", "False", 100).await;
    hub.report("g01", "True", 4).await;
    let work = hub.works().get("g01").await.unwrap();
    let since = work.status.unwrap().conditions[0].last_transition_time.0;
    hub.gone("g01").await;
    assert!(Timestamp::now() >= since + SignedDuration::from_secs(5));
    hub.all_is_seen().await;
    for name in ["g02", "g03", "g05", "not-complete"] {
        hub.is_kept(name).await;
    }
    assert_eq!(hub.way.codes(), [200, 200], "g01 and the fence");
    let state = hub.state().await;
    assert_eq!(
        (&state["waiting"], &state["next"]),
        (&json!(0), &json!(null))
    );
    hub.stop().await;
}

#[actix::test]
async fn no_time_left_means_now() {
    let hub = Hub::start().await;
    for (name, ttl, seconds_ago) in [("g04", 0, 0), ("negative", -5, 0), ("clock-ahead", 0, -600)] {
        hub.create(name, json!({}), Some(ttl)).await;
        hub.report(name, "True", seconds_ago).await;
    }
    for name in ["g04", "negative", "clock-ahead"] {
        hub.gone(name).await;
    }
    hub.stop().await;
}

#[actix::test]
async fn what_ended_while_the_hub_was_down_goes_when_it_is_back() {
    let mut hub = Hub::start().await;
    for (name, ttl) in [("over", 5), ("later", 600), ("removed", 600)] {
        hub.create(name, json!({}), Some(ttl)).await;
    }
    for name in ["later", "removed"] {
        hub.report(name, "True", 10).await;
    }
    eventually("two works wait", || async {
        let state = hub.state().await;
        if state["waiting"] == 2 {
            Ok(())
        } else {
            Err(state)
        }
    })
    .await;
    hub.pause().await;
    hub.report("over", "True", 10).await;
    let delete = DeleteParams::default();
    hub.works().delete("removed", &delete).await.unwrap();
    hub.run().await;
    hub.gone("over").await;
    hub.all_is_seen().await;
    hub.is_kept("later").await;
    assert_eq!(hub.state().await["waiting"], 1);
    hub.stop().await;
}

#[actix::test]
async fn a_work_that_is_no_longer_to_end_stays() {
    let hub = Hub::start().await;
    let names = ["reopened", "kept", "extended", "adopted", "gone"];
    for name in names {
        hub.create(name, json!({}), Some(500)).await;
        hub.report(name, "True", 0).await;
    }
    eventually("all wait for their end", || async {
        let state = hub.state().await;
        if state["waiting"] == 5 {
            Ok(())
        } else {
            Err(state)
        }
    })
    .await;
    hub.report("reopened", "False", 0).await;
    let ttl = |seconds: Value| {
        json!({"spec": {"deleteOption":
        {"ttlSecondsAfterFinished": seconds}}})
    };
    hub.merge("kept", ttl(json!(null))).await;
    hub.merge("extended", ttl(json!(600))).await;
    hub.merge("adopted", json!({ "metadata": of_a_set() }))
        .await;
    let delete = DeleteParams::default();
    hub.works().delete("gone", &delete).await.unwrap();
    eventually("one waits, for long", || async {
        let state = hub.state().await;
        if state["waiting"] == 1 {
            Ok(())
        } else {
            Err(state)
        }
    })
    .await;
    let work = hub.works().get("extended").await.unwrap();
    let since = work.status.unwrap().conditions[0].last_transition_time.0;
    let due = since + SignedDuration::from_secs(600);
    assert_eq!(hub.state().await["next"], json!(due));
    hub.all_is_seen().await;
    for name in ["reopened", "kept", "extended", "adopted"] {
        hub.is_kept(name).await;
    }
    assert_eq!(hub.way.codes(), [200], "the fence");
    hub.stop().await;
}

#[actix::test]
async fn a_work_with_a_finalizer_is_deleted_once() {
    let hub = Hub::start().await;
    let held = json!({"finalizers": ["test/hold"]});
    hub.create("held", held, Some(0)).await;
    hub.report("held", "True", 0).await;
    eventually("the work is on its way out", || async {
        let work = hub.works().get("held").await.unwrap();
        if work.metadata.deletion_timestamp.is_some() {
            Ok(())
        } else {
            Err(())
        }
    })
    .await;
    // The agent goes on reporting while it cleans up.
    hub.report("held", "True", 1).await;
    hub.all_is_seen().await;
    assert_eq!(hub.way.codes(), [200, 200], "held and the fence");
    hub.merge("held", json!({"metadata": {"finalizers": null}}))
        .await;
    hub.gone("held").await;
    hub.stop().await;
}

#[actix::test]
async fn a_refused_deletion_is_tried_again_and_not_before_the_server_wants_it() {
    let faults = vec![Fault::Refused(500, 0), Fault::Refused(429, 3)];
    let hub = Hub::start_with(faults).await;
    hub.create("work", json!({}), Some(0)).await;
    hub.report("work", "True", 0).await;
    eventually("the first deletion is refused", || async {
        let codes = hub.way.codes();
        if codes == [500] { Ok(()) } else { Err(codes) }
    })
    .await;
    // News of the work does not shorten the pause.
    hub.merge("work", json!({"metadata": {"annotations": {"a": "b"}}}))
        .await;
    hub.gone("work").await;
    assert_eq!(hub.way.codes(), [500, 429, 200]);
    let sent: Vec<Instant> = {
        let deletions = hub.way.deletions.lock().unwrap();
        deletions.iter().map(|(at, _)| *at).collect()
    };
    assert!(sent[1] - sent[0] >= Duration::from_millis(600), "{sent:?}");
    assert!(sent[2] - sent[1] >= Duration::from_secs(3), "{sent:?}");
    hub.stop().await;
}

#[actix::test]
async fn a_deletion_never_hits_another_work_of_the_name() {
    let hub = Hub::start_with(vec![Fault::Held]).await;
    hub.create("work", json!({}), Some(0)).await;
    hub.report("work", "True", 0).await;
    hub.way.held.notified().await;
    let delete = DeleteParams::default();
    hub.works().delete("work", &delete).await.unwrap();
    let second = hub.create("work", json!({}), Some(0)).await;
    hub.way.let_go.notify_one();
    eventually("the deletion is refused", || async {
        let codes = hub.way.codes();
        if codes == [409] { Ok(()) } else { Err(codes) }
    })
    .await;
    hub.all_is_seen().await;
    hub.is_kept("work").await;
    let live = hub.works().get("work").await.unwrap();
    assert_eq!(live.uid(), second.uid());
    assert_eq!(hub.state().await["waiting"], 0);
    // Its own end comes as any other's.
    hub.report("work", "True", 0).await;
    hub.gone("work").await;
    hub.stop().await;
}

#[actix::test]
async fn a_deletion_never_hits_a_work_that_was_reopened() {
    let hub = Hub::start_with(vec![Fault::Held]).await;
    hub.create("work", json!({}), Some(0)).await;
    hub.report("work", "True", 0).await;
    hub.way.held.notified().await;
    hub.report("work", "False", 0).await;
    hub.way.let_go.notify_one();
    eventually("the deletion is refused", || async {
        let codes = hub.way.codes();
        if codes == [409] { Ok(()) } else { Err(codes) }
    })
    .await;
    hub.all_is_seen().await;
    hub.is_kept("work").await;
    hub.stop().await;
}

#[actix::test]
async fn a_change_that_does_not_matter_only_delays() {
    let hub = Hub::start_with(vec![Fault::Held]).await;
    hub.create("work", json!({}), Some(0)).await;
    hub.report("work", "True", 0).await;
    hub.way.held.notified().await;
    hub.merge("work", json!({"metadata": {"annotations": {"a": "b"}}}))
        .await;
    hub.way.let_go.notify_one();
    hub.gone("work").await;
    assert_eq!(hub.way.codes(), [409, 200]);
    hub.stop().await;
}

#[actix::test]
async fn works_that_end_together_go_in_turns() {
    let mut hub = Hub::prepare(Vec::new()).await;
    let names: Vec<String> = (0..40).map(|n| format!("work-{n}")).collect();
    for name in &names {
        hub.create(name, json!({}), Some(1)).await;
        hub.report(name, "True", 10).await;
    }
    hub.run().await;
    for name in &names {
        hub.gone(name).await;
    }
    assert_eq!(hub.way.codes(), vec![200; 40]);
    hub.stop().await;
}
