//! Holders against an embedded API server, on a paused clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Request, Response};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Patch, PatchParams};
use kube::client::Body;
use muster_apiserver::{ApiServer, Storage};
use serde_json::json;

use super::*;
use crate::supervision::stop;

const SECOND: Duration = Duration::from_secs(1);
/// tokio's timers are up to a millisecond late.
const TICK: Duration = Duration::from_millis(2);
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// What the connection of one holder does.
const OPEN: usize = 0;
const BROKEN: usize = 1;
const SILENT: usize = 2;

struct Holder {
    addr: Addr<LeaseHolder>,
    standing: watch::Receiver<Standing>,
    connection: Arc<AtomicUsize>,
    health: Health,
    registry: Registry,
}

/// With the clock of the caller paused.
async fn server() -> ApiServer {
    let server = ApiServer::builder().storage(Storage::Memory).build();
    server.await.unwrap()
}

fn leases(server: &ApiServer) -> Api<Lease> {
    Api::namespaced(server.client(), "default")
}

async fn spec(server: &ApiServer) -> k8s_openapi::api::coordination::v1::LeaseSpec {
    leases(server).get("lock").await.unwrap().spec.unwrap()
}

fn settings(identity: &str) -> LeaseSettings {
    LeaseSettings {
        namespace: "default".to_owned(),
        name: "lock".to_owned(),
        identity: identity.to_owned(),
        duration: 15 * SECOND,
        renew_deadline: 10 * SECOND,
        retry_period: 2 * SECOND,
    }
}

fn holder(server: &ApiServer, identity: &str) -> Holder {
    let connection = Arc::new(AtomicUsize::new(OPEN));
    let (client, state) = (server.client(), Arc::clone(&connection));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, state) = (client.clone(), Arc::clone(&state));
        async move {
            match state.load(Ordering::Relaxed) {
                OPEN => Ok::<Response<Body>, tower::BoxError>(client.send(request).await?),
                BROKEN => Err("connection reset by test".into()),
                _ => std::future::pending().await,
            }
        }
    });
    let (health, registry) = (Health::new(), Registry::new());
    let (addr, standing) = start(LeaseDeps {
        client: kube::Client::new(service, "default"),
        settings: settings(identity),
        io: Io::current(),
        registry: registry.clone(),
        health: health.clone(),
    });
    Holder {
        addr,
        standing,
        connection,
        health,
        registry,
    }
}

impl Holder {
    /// How long it takes until the standing is as wanted.
    async fn until(&mut self, wanted: impl Fn(&Standing) -> bool) -> Duration {
        let begin = Instant::now();
        let change = self.standing.wait_for(|standing| wanted(standing));
        let in_time = tokio::time::timeout(300 * SECOND, change).await.is_ok();
        assert!(in_time, "still {:?}", self.now());
        begin.elapsed()
    }

    async fn leading(&mut self) -> Duration {
        self.until(|standing| *standing == Standing::Leading).await
    }

    async fn lost(&mut self) -> (Duration, String) {
        let after = self.until(|s| matches!(s, Standing::Lost(_))).await;
        let Standing::Lost(why) = self.now() else {
            panic!("not lost")
        };
        (after, why)
    }

    fn now(&self) -> Standing {
        self.standing.borrow().clone()
    }

    fn connection(&self, state: usize) {
        self.connection.store(state, Ordering::Relaxed);
    }

    async fn end(self) {
        assert!(stop(&self.addr, STOP_LIMIT).await);
        assert_eq!(self.registry.ended(SECOND).await, Ok(()));
        assert!(self.health.not_ready().is_empty());
    }
}

#[actix::test]
async fn one_leads_and_the_other_waits_until_the_lease_is_given_back() {
    tokio::time::pause();
    let server = server().await;
    let mut first = holder(&server, "first");
    first.leading().await;
    assert!(first.health.not_ready().is_empty());
    let mut second = holder(&server, "second");
    // Many lease durations later nothing has changed but the time of renewal.
    let taken = spec(&server).await;
    tokio::time::sleep(100 * SECOND).await;
    assert_eq!(first.now(), Standing::Leading);
    assert_eq!(second.now(), Standing::Waiting);
    assert!(second.health.not_ready().is_empty(), "ready to take over");
    let renewed = spec(&server).await;
    assert_eq!(renewed.holder_identity.as_deref(), Some("first"));
    assert_eq!(renewed.lease_duration_seconds, Some(15));
    assert_eq!(renewed.lease_transitions, Some(0));
    assert_eq!(renewed.acquire_time, taken.acquire_time);
    assert_ne!(renewed.renew_time, taken.renew_time);

    first.end().await;
    let after = second.leading().await;
    assert!(after <= (2 * SECOND).mul_f64(JITTER) + TICK, "{after:?}");
    assert_eq!(spec(&server).await.lease_transitions, Some(1));
    second.end().await;
    let free = spec(&server).await;
    assert_eq!(free.holder_identity.as_deref(), Some(""));
    assert_eq!(free.lease_duration_seconds, Some(1));
}

#[actix::test]
async fn the_lease_of_one_that_is_gone_lapses_before_another_takes_it() {
    tokio::time::pause();
    let server = server().await;
    let mut gone = holder(&server, "gone");
    gone.leading().await;
    gone.connection(BROKEN);
    let mut next = holder(&server, "next");
    let (after, why) = gone.lost().await;
    assert_eq!(next.now(), Standing::Waiting, "two at a time");
    assert!(after <= 10 * SECOND + TICK, "{after:?}");
    assert!(
        why.starts_with("lost the lease default/lock: not renewed within 10s, last error: "),
        "{why}"
    );
    let more = next.leading().await;
    assert!(more >= 3 * SECOND, "{more:?}"); // the rest of 15 s, less the time to the last renewal
    // It gives nothing back that is not its own any more, and does not come back by itself.
    gone.connection(OPEN);
    tokio::time::sleep(60 * SECOND).await;
    assert!(matches!(gone.now(), Standing::Lost(_)));
    gone.end().await;
    assert_eq!(spec(&server).await.holder_identity.as_deref(), Some("next"));
    next.end().await;
}

#[actix::test]
async fn an_outage_shorter_than_the_deadline_costs_nothing() {
    tokio::time::pause();
    let server = server().await;
    for outage in [BROKEN, SILENT] {
        let mut holder = holder(&server, "one");
        holder.leading().await;
        holder.connection(outage);
        // A try that hangs is given up after 5 s, and there is another one.
        tokio::time::sleep(Duration::from_millis(5500)).await;
        if outage == BROKEN {
            assert!(holder.health.not_ready()[0].starts_with("lease: "));
        }
        holder.connection(OPEN);
        tokio::time::sleep(30 * SECOND).await;
        assert_eq!(holder.now(), Standing::Leading);
        assert!(holder.health.not_ready().is_empty());
        holder.end().await;
    }
}

#[actix::test]
async fn a_server_that_never_answers_costs_the_lease_in_time() {
    tokio::time::pause();
    let server = server().await;
    let mut holder = holder(&server, "one");
    holder.leading().await;
    holder.connection(SILENT);
    let (after, why) = holder.lost().await;
    assert!(after <= 10 * SECOND + TICK, "{after:?}");
    assert!(why.ends_with("last error: no answer within 5s"), "{why}");
    holder.end().await;
}

/// Clocks of other machines play no part: neither a time long past nor one in the future changes
/// how long a lease is respected.
#[actix::test]
async fn clocks_that_differ_change_nothing() {
    tokio::time::pause();
    for hours in [-24, 24] {
        let server = server().await;
        let time = Timestamp::now() + jiff::SignedDuration::from_hours(hours);
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "lock", "namespace": "default", "labels": {"app": "other"}},
            "spec": {
                "holderIdentity": "other", "leaseDurationSeconds": 20, "leaseTransitions": 6,
                "acquireTime": MicroTime(time), "renewTime": MicroTime(time)}});
        let lease: Lease = serde_json::from_value(lease).unwrap();
        leases(&server)
            .create(&kube::api::PostParams::default(), &lease)
            .await
            .unwrap();
        let mut holder = holder(&server, "one");
        tokio::time::sleep(10 * SECOND).await;
        // A label is no sign of life.
        let label = json!({"metadata": {"labels": {"app": "changed"}}});
        leases(&server)
            .patch("lock", &PatchParams::default(), &Patch::Merge(label))
            .await
            .unwrap();
        let more = holder.leading().await;
        assert!(more >= 9 * SECOND && more <= 13 * SECOND + TICK, "{more:?}");
        let taken = leases(&server).get("lock").await.unwrap();
        assert_eq!(taken.metadata.labels.unwrap()["app"], "changed");
        assert_eq!(taken.spec.unwrap().lease_transitions, Some(7));
        holder.end().await;
    }
}

#[actix::test]
async fn a_holder_that_finds_another_in_its_place_gives_up_at_once() {
    tokio::time::pause();
    let server = server().await;
    let mut holder = holder(&server, "one");
    holder.leading().await;
    let other = json!({"spec": {"holderIdentity": "two"}});
    leases(&server)
        .patch("lock", &PatchParams::default(), &Patch::Merge(other))
        .await
        .unwrap();
    let (after, why) = holder.lost().await;
    assert!(after <= 2 * SECOND + TICK, "{after:?}");
    assert_eq!(why, "lost the lease default/lock: two has taken it");
    holder.end().await;
}

#[actix::test]
async fn a_lease_that_is_deleted_or_edited_is_taken_again_by_its_holder() {
    tokio::time::pause();
    let server = server().await;
    let mut holder = holder(&server, "one");
    holder.leading().await;
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    leases(&server)
        .patch("lock", &PatchParams::default(), &Patch::Merge(label))
        .await
        .unwrap();
    tokio::time::sleep(5 * SECOND).await;
    leases(&server)
        .delete("lock", &kube::api::DeleteParams::default())
        .await
        .unwrap();
    tokio::time::sleep(30 * SECOND).await;
    assert_eq!(holder.now(), Standing::Leading);
    assert_eq!(spec(&server).await.holder_identity.as_deref(), Some("one"));
    let state = holder.addr.send(Snapshot).await.unwrap();
    assert_eq!(state["holder"], "one");
    assert_eq!(state["lease"], "default/lock");
    holder.end().await;
}

#[actix::test]
async fn a_namespace_that_is_missing_is_named_while_it_waits() {
    tokio::time::pause();
    let server = server().await;
    let (health, registry) = (Health::new(), Registry::new());
    let (addr, mut standing) = start(LeaseDeps {
        client: server.client(),
        settings: LeaseSettings {
            namespace: "nowhere".to_owned(),
            ..settings("one")
        },
        io: Io::current(),
        registry: registry.clone(),
        health: health.clone(),
    });
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(*standing.borrow_and_update(), Standing::Waiting);
    let reasons = health.not_ready();
    assert!(
        reasons[0].contains("namespaces \"nowhere\" not found"),
        "{reasons:?}"
    );
    assert!(stop(&addr, STOP_LIMIT).await);
    assert_eq!(registry.ended(SECOND).await, Ok(()));
}
