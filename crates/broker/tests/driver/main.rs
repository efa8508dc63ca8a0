//! The MQTT driver and the clients over it, on sockets: each story is told with the embedded broker
//! and with a real mosquitto.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking"
)]

mod place;
mod proxy;
#[path = "../support/mod.rs"]
mod support;
mod things;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use muster_cloudevents::bus::mqtt::DriverConfig;
use muster_cloudevents::bus::{
    Bus, BusEvent, Connection, Delivery, Mqtt, MqttOptions, PublishError, Session,
};
use muster_cloudevents::client::{ClientError, ConnectionState};
use muster_cloudevents::{Action, Message, Outgoing};
use place::{CLUSTERS, HUB, Kind, OPERATOR, PASSWORD, Place};
use proxy::{Fate, PINGRESP, PUBACK, PUBLISH, Proxy, Way};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use support::SOON;
use support::certificates::Ca;
use things::{
    Edge, Happened, Hub, Slow, Store, Thing, is_done, losses, outcome, store, thing, uids, until,
    wait,
};
use tokio::sync::watch;
use tokio::time::timeout;

/// A story with each kind of broker. It gets one that does not run yet.
macro_rules! on_both {
    ($($story:ident),* $(,)?) => {
        mod embedded {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $story() {
                super::$story(super::Place::new(super::Kind::Embedded).unwrap()).await;
            })*
        }

        mod mosquitto {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $story() {
                if let Some(place) = super::Place::new(super::Kind::Mosquitto) {
                    super::$story(place).await;
                }
            })*
        }
    };
}

on_both!(
    works_and_statuses_go_both_ways,
    an_agent_hears_and_says_nothing_of_another_cluster,
    the_broker_may_come_late,
    broker_restarts_lose_nothing,
    an_unacknowledged_message_is_not_sent,
    a_broker_that_never_acknowledges_is_left,
    a_broker_that_takes_nothing_is_left,
    a_silent_link_is_noticed,
    an_agent_that_comes_back_over_its_dead_connection_is_there,
    harm_on_the_way_loses_nothing,
    large_messages_arrive_and_too_large_ones_fail_alone,
    thousands_of_resources_are_resynced,
    two_clients_with_one_id_do_not_duel,
    certificates_are_taken_from_disk,
    a_source_knows_who_is_there,
    a_slow_reader_holds_the_broker_back,
    a_slow_agent_with_many_works_keeps_its_connection,
    what_comes_again_changes_nothing,
    nobody_listening_is_no_error,
    the_config_file_of_ocm_leads_to_a_connection,
);

/// Client ids other than names, where one has more than one client: a name, and something more.
fn id(options: MqttOptions, client_id: &str) -> MqttOptions {
    MqttOptions {
        client_id: format!("{}:{client_id}", options.client_id),
        ..options
    }
}

fn open(options: MqttOptions, filters: &[&str]) -> Connection {
    let filters = filters.iter().map(|filter| (*filter).to_owned()).collect();
    Mqtt::new(options).unwrap().open(Session {
        filters,
        will: None,
    })
}

async fn next(connection: &mut Connection) -> BusEvent {
    let event = timeout(SOON, connection.events.recv()).await;
    event.expect("something should happen").unwrap()
}

async fn subscribed(connection: &mut Connection) {
    let event = next(connection).await;
    assert!(matches!(event, BusEvent::Subscribed), "{event:?}");
}

async fn delivery(connection: &mut Connection) -> Delivery {
    match next(connection).await {
        BusEvent::Message(delivery) => delivery,
        other => panic!("no message but {other:?}"),
    }
}

async fn lost(connection: &mut Connection) -> (String, Duration) {
    match next(connection).await {
        BusEvent::Lost { reason, retry_in } => (reason, retry_in),
        other => panic!("not lost but {other:?}"),
    }
}

fn outgoing(topic: &str, payload: impl Into<Bytes>) -> Outgoing {
    Outgoing {
        topic: topic.to_owned(),
        message: Message {
            payload: payload.into(),
            ..Message::default()
        },
    }
}

/// Waits until the agents have what the source wants, and nothing else, and the source knows, and
/// nobody has anything left to say.
async fn until_agreed(what: &str, hub: &Hub, edges: &BTreeMap<&str, Edge>) {
    until(&hub.store, what, is_done).await;
    for (cluster, edge) in edges {
        let wanted = uids(&hub.store, cluster);
        until(&edge.store, what, |store| uids(store, cluster) == wanted).await;
        until_sent(|| edge.client.waiting()).await;
    }
    until_sent(|| hub.client.waiting()).await;
    assert!(is_done(&hub.store), "{what}");
    assert!(!hub.store.list().is_empty(), "{what}");
}

async fn until_sent(waiting: impl Fn() -> usize) {
    let sent = async {
        while waiting() > 0 {
            tokio::task::yield_now().await;
        }
    };
    let sent = timeout(SOON, sent).await;
    assert!(sent.is_ok(), "{} are not sent", waiting());
}

async fn works_and_statuses_go_both_ways(place: Place) {
    let place = place.started().await;
    let hub = Hub::new(place.options(HUB), &store());
    let edges: BTreeMap<_, _> = CLUSTERS
        .into_iter()
        .map(|cluster| (cluster, Edge::new(place.options(cluster), cluster)))
        .collect();
    for (at, cluster) in CLUSTERS.into_iter().cycle().take(9).enumerate() {
        hub.put(thing(&format!("thing-{at}"), cluster));
    }
    until_agreed("created", &hub, &edges).await;
    hub.set("thing-0", "another");
    hub.delete("thing-1");
    until_agreed("changed and deleted", &hub, &edges).await;
    assert_eq!(hub.store.list().len(), 8);
    let zero = edges["edge-a"].store.document("thing-0").unwrap();
    assert_eq!(zero.spec.as_deref(), Some("another"));
    for edge in edges.values() {
        assert_eq!(*edge.log.borrow(), [Happened::Subscribed]);
    }
}

/// mosquitto takes any subscription, and delivers nothing; the embedded broker refuses it.
async fn an_agent_hears_and_says_nothing_of_another_cluster(place: Place) {
    let place = place.started().await;
    let hub = Hub::new(place.options(HUB), &store());
    let edge = Edge::new(place.options("edge-a"), "edge-a");
    // Logs in as one cluster, and wants to be the agent of another.
    let mut thief = open(
        id(place.options("edge-b"), "thief"),
        &["/sources/+/clusters/edge-a/spec"],
    );
    if place.kind() == Kind::Embedded {
        let mut pauses = Vec::new();
        for _ in 0..4 {
            let (reason, retry_in) = lost(&mut thief).await;
            assert!(
                reason.starts_with(
                    "the broker refused the subscription to /sources/+/clusters/edge-a/spec: \
                     NotAuthorized"
                ),
                "{reason}"
            );
            pauses.push(retry_in);
        }
        assert!(pauses[3] > 2 * pauses[0], "{pauses:?}");
        let denied = thief.publisher.publish(outgoing("any", "")).await;
        assert_eq!(denied, Err(PublishError::NotConnected));
    } else {
        subscribed(&mut thief).await;
    }
    hub.put(thing("one", "edge-a"));
    until(&hub.store, "there", is_done).await;
    drop(edge);
    // What it writes for the other cluster is refused.
    let mut writer = open(id(place.options("edge-b"), "writer"), &[]);
    subscribed(&mut writer).await;
    let topic = "/sources/hub/clusters/edge-a/status";
    let error = writer
        .publisher
        .publish(outgoing(topic, "lies"))
        .await
        .unwrap_err();
    let PublishError::Refused {
        topic: of, reason, ..
    } = &error
    else {
        panic!("{error:?}");
    };
    assert_eq!(of, topic);
    assert!(reason.starts_with("NotAuthorized"), "{reason}");
    let own = outgoing("/sources/hub/clusters/edge-b/status", "?");
    writer.publisher.publish(own).await.unwrap();
    // Had the thief been given anything, it would have come before this.
    let operator = open(id(place.options(OPERATOR), "op"), &[]);
    let mut operator = operator;
    subscribed(&mut operator).await;
    if place.kind() == Kind::Mosquitto {
        drop(thief);
        let filters = [
            "/sources/+/clusters/edge-a/spec",
            "/sources/+/clusters/statusresync",
        ];
        let mut thief = open(id(place.options("edge-b"), "thief"), &filters);
        subscribed(&mut thief).await;
        for topic in [
            "/sources/hub/clusters/edge-a/spec",
            "/sources/hub/clusters/statusresync",
        ] {
            let message = outgoing(topic, "secret");
            operator.publisher.publish(message).await.unwrap();
        }
        let heard = delivery(&mut thief).await;
        assert_eq!(heard.topic, "/sources/hub/clusters/statusresync");
    }
}

/// Neither is there a broker, nor does what was to be sent wait for anything but that.
async fn the_broker_may_come_late(mut place: Place) {
    let hub = Hub::new(place.options(HUB), &store());
    let edge = Edge::new(place.options("edge-a"), "edge-a");
    hub.put(thing("one", "edge-a"));
    let mut state = edge.client.state();
    let is_lost = |state: &ConnectionState| matches!(state, ConnectionState::Lost { .. });
    let first = wait(&mut state, "no broker", is_lost).await;
    let ConnectionState::Lost { reason, since } = first else {
        panic!("{first:?}");
    };
    assert!(
        reason.starts_with("failed to connect to localhost:"),
        "{reason}"
    );
    let mut log = edge.log.clone();
    let lost = wait(&mut log, "tried again", |log| log.len() >= 4).await;
    let lost = losses(&lost);
    assert!(lost[3].1 > 2 * lost[0].1, "growing pauses: {lost:?}");
    // It is away since the first time, however often it has been tried.
    let now = state.borrow_and_update().clone();
    assert!(matches!(now, ConnectionState::Lost { since: now, .. } if now == since));
    let two = thing("two", "edge-a");
    let failed = hub.client.publish(Action::UpdateRequest, &two).await;
    let failed = failed.unwrap_err();
    assert!(matches!(
        failed,
        ClientError::Publish(PublishError::NotConnected)
    ));
    place.start().await;
    until(&hub.store, "there", is_done).await;
    assert_eq!(*edge.client.state().borrow(), ConnectionState::Subscribed);
    place.kill().await;
    let lost = wait(&mut state, "killed", is_lost).await;
    assert!(matches!(lost, ConnectionState::Lost { since: again, .. } if again > since));
}

/// C116, C117: a broker that forgets all, again and again, under load.
async fn broker_restarts_lose_nothing(mut place: Place) {
    place.start().await;
    let hub = Hub::new(place.options(HUB), &store());
    let mut edges: BTreeMap<_, _> = CLUSTERS
        .into_iter()
        .map(|cluster| (cluster, Edge::new(place.options(cluster), cluster)))
        .collect();
    let mut log = hub.log.clone();
    let mut random = StdRng::seed_from_u64(7);
    let mut deleted = Vec::new();
    for round in 0..6 {
        for step in 0..60 {
            change(&hub, &mut deleted, &mut random, &format!("{round}.{step}"));
            tokio::task::yield_now().await;
            // It has come back, in the middle of all else.
            if step == 30 {
                wait(&mut log, "back", |log| times_subscribed(log) > round).await;
            }
        }
        place.kill().await;
        if round == 3 {
            // An agent that is started anew while the broker is away, with what it had.
            let kept = Arc::clone(&edges["edge-b"].store);
            edges.remove("edge-b");
            let edge = Edge::resyncing(place.options("edge-b"), "edge-b", &kept, None);
            edges.insert("edge-b", edge);
        }
        for _ in 0..20 {
            change(&hub, &mut deleted, &mut random, &format!("{round} away"));
        }
        place.start().await;
    }
    until_agreed("after all", &hub, &edges).await;
    for uid in &deleted {
        assert!(hub.store.document(uid).is_none(), "{uid} is back");
    }
    assert!(deleted.len() > 10);
    let log = log.borrow().clone();
    assert!(losses(&log).len() >= 6, "{log:?}");
    assert_eq!(log.last(), Some(&Happened::Subscribed));
}

fn times_subscribed(log: &[Happened]) -> usize {
    let subscribed = log.iter().filter(|one| **one == Happened::Subscribed);
    subscribed.count()
}

/// Does something to what a source wants.
fn change(hub: &Hub, deleted: &mut Vec<String>, random: &mut StdRng, step: &str) {
    let uid = format!("thing-{}", random.random_range(0..60));
    match random.random_range(0..10) {
        _ if deleted.contains(&uid) => {}
        0..4 if hub.store.document(&uid).is_none() => {
            let cluster = CLUSTERS[random.random_range(0..CLUSTERS.len())];
            hub.put(thing(&uid, cluster));
        }
        0..9 => hub.set(&uid, &format!("{uid}, step {step}")),
        _ if hub.store.document(&uid).is_some() => {
            hub.delete(&uid);
            deleted.push(uid);
        }
        _ => {}
    }
}

/// C122: the connection ends before the acknowledgement gets through.
async fn an_unacknowledged_message_is_not_sent(place: Place) {
    let place = place.started().await;
    let proxy = Proxy::to(place.address()).await;
    let mut reader = open(id(place.options(OPERATOR), "reader"), &["things"]);
    subscribed(&mut reader).await;
    let options = place.options_at(&proxy.broker(), OPERATOR);
    let mut writer = open(id(options, "writer"), &[]);
    subscribed(&mut writer).await;
    proxy.rule(|way, packet| match (way, packet) {
        (Way::ToClient, PUBACK) => Fate::Cuts,
        _ => Fate::Passes,
    });
    let failed = writer.publisher.publish(outgoing("things", "one")).await;
    assert_eq!(failed, Err(PublishError::Lost));
    assert_eq!(delivery(&mut reader).await.message.payload, "one");
    lost(&mut writer).await;
    // The same before it has got to the broker.
    proxy.rule(|way, packet| match (way, packet) {
        (Way::ToBroker, PUBLISH) => Fate::Cuts,
        _ => Fate::Passes,
    });
    subscribed(&mut writer).await;
    let failed = writer.publisher.publish(outgoing("things", "two")).await;
    assert_eq!(failed, Err(PublishError::Lost));
    lost(&mut writer).await;
    proxy.calm();
    subscribed(&mut writer).await;
    let three = outgoing("things", "three");
    writer.publisher.publish(three).await.unwrap();
    assert_eq!(delivery(&mut reader).await.message.payload, "three");
}

/// C122: the link stays open, and no acknowledgement ever comes.
async fn a_broker_that_never_acknowledges_is_left(place: Place) {
    let place = place.started().await;
    let proxy = Proxy::to(place.address()).await;
    let mut options = place.options_at(&proxy.broker(), OPERATOR);
    options.ack_timeout = Duration::from_millis(200);
    let mut writer = open(options, &[]);
    subscribed(&mut writer).await;
    proxy.rule(|way, packet| match (way, packet) {
        (Way::ToClient, PUBACK) => Fate::Vanishes,
        _ => Fate::Passes,
    });
    let failed = writer.publisher.publish(outgoing("things", "one")).await;
    let patience = Duration::from_millis(200);
    assert_eq!(failed, Err(PublishError::TimedOut(patience)));
    let (reason, _) = lost(&mut writer).await;
    assert_eq!(
        reason,
        "the broker did not acknowledge a message within 200ms"
    );
    proxy.calm();
    subscribed(&mut writer).await;
    let two = outgoing("things", "two");
    writer.publisher.publish(two).await.unwrap();
}

/// C122: the other side takes nothing any more, and nothing but that tells.
async fn a_broker_that_takes_nothing_is_left(place: Place) {
    let place = place.started().await;
    let proxy = Proxy::to(place.address()).await;
    let mut options = place.options_at(&proxy.broker(), OPERATOR);
    options.keep_alive = Duration::ZERO;
    options.ack_timeout = Duration::from_millis(200);
    // Nothing would be acknowledged anyway.
    options.acknowledged = false;
    let mut writer = open(options, &[]);
    subscribed(&mut writer).await;
    proxy.freeze();
    let large = outgoing("things", vec![b'x'; 500_000]);
    let failed = async { while writer.publisher.publish(large.clone()).await.is_ok() {} };
    let failed = timeout(SOON, failed).await;
    assert!(failed.is_ok(), "it waits for ever");
    let (reason, _) = lost(&mut writer).await;
    assert_eq!(reason, "the broker took nothing for 200ms");
    subscribed(&mut writer).await;
}

/// C145 in MQTT: nothing ends, and nothing comes. What was on its way is told as lost.
async fn a_silent_link_is_noticed(place: Place) {
    let place = place.started().await;
    let proxy = Proxy::to(place.address()).await;
    let mut options = place.options_at(&proxy.broker(), OPERATOR);
    options.keep_alive = Duration::from_secs(2);
    let mut writer = open(options, &["things"]);
    subscribed(&mut writer).await;
    proxy.freeze();
    let failed = writer.publisher.publish(outgoing("things", "one")).await;
    assert_eq!(failed, Err(PublishError::Lost));
    let (reason, _) = lost(&mut writer).await;
    assert_eq!(reason, "the broker sent nothing for 3s");
    subscribed(&mut writer).await;
    let two = outgoing("things", "two");
    writer.publisher.publish(two).await.unwrap();
    assert_eq!(delivery(&mut writer).await.message.payload, "two");
    // One that is only quiet is kept: it answers pings.
    let pings = watch::Sender::new(0);
    let mut answered = pings.subscribe();
    proxy.rule(move |_, packet| {
        if packet == PINGRESP {
            pings.send_modify(|pings| *pings += 1);
        }
        Fate::Passes
    });
    let before = *proxy.opened().borrow();
    wait(&mut answered, "pings", |pings| *pings == 2).await;
    assert_eq!(*proxy.opened().borrow(), before);
    let three = outgoing("things", "three");
    writer.publisher.publish(three).await.unwrap();
    assert_eq!(delivery(&mut writer).await.message.payload, "three");
}

/// The broker learns by the new connection only that the old one is dead; the will of the old one
/// must not have the last word.
async fn an_agent_that_comes_back_over_its_dead_connection_is_there(place: Place) {
    let place = place.started().await;
    let proxy = Proxy::to(place.address()).await;
    let mut options = place.options_at(&proxy.broker(), "edge-a");
    options.keep_alive = Duration::from_secs(1);
    let wanted = store();
    let hub = Hub::new(place.options(HUB), &wanted);
    let edge = Edge::new(options, "edge-a");
    let is = |connected: bool| move |store: &Store| store.is_connected("edge-a") == Some(connected);
    until(&wanted, "there", is(true)).await;
    for round in 1..=3 {
        proxy.freeze();
        let mut log = edge.log.clone();
        let again = |log: &Vec<Happened>| times_subscribed(log) > round;
        wait(&mut log, "again", again).await;
        hub.put(thing(&format!("thing-{round}"), "edge-a"));
        until(&wanted, "works", is_done).await;
        until(&wanted, "there again", is(true)).await;
    }
    // And for whoever looks later.
    drop(hub);
    let later = store();
    later.put(thing("thing-1", "edge-a"));
    let _hub = Hub::new(place.options(HUB), &later);
    until(&later, "answered", is_done).await;
    until(&later, "there", is(true)).await;
}

/// Packets that come twice, late, in another order or not at all, and connections that are cut: in
/// the end all is as wanted.
async fn harm_on_the_way_loses_nothing(place: Place) {
    let place = place.started().await;
    let proxy = Proxy::to(place.address()).await;
    let fast = |name: &str| {
        let mut options = place.options_at(&proxy.broker(), name);
        options.ack_timeout = Duration::from_secs(2);
        options
    };
    let soon = Some(Duration::from_secs(1));
    let wanted = store();
    let hub = Hub::resyncing(fast(HUB), &wanted, soon);
    let edges: BTreeMap<_, _> = CLUSTERS
        .into_iter()
        .map(|cluster| {
            let edge = Edge::resyncing(fast(cluster), cluster, &store(), soon);
            (cluster, edge)
        })
        .collect();
    let harm = Arc::new(AtomicUsize::new(0));
    let done = Arc::clone(&harm);
    let mut random = StdRng::seed_from_u64(3);
    proxy.rule(move |_, packet| {
        let fate = match (packet, random.random_range(0..100)) {
            (PUBLISH, 0..5) => Fate::ComesTwice,
            (PUBLISH, 5..15) | (PUBACK, 4..8) => Fate::ComesLate,
            (PUBLISH, 15..16) | (PUBACK, 0..2) => Fate::Vanishes,
            (PUBLISH, 16..18) | (PUBACK, 2..4) => Fate::Cuts,
            _ => return Fate::Passes,
        };
        done.fetch_add(1, Ordering::SeqCst);
        fate
    });
    let mut random = StdRng::seed_from_u64(4);
    let mut deleted = Vec::new();
    let mut changes = wanted.changes();
    for step in 0..400 {
        change(&hub, &mut deleted, &mut random, &step.to_string());
        // At the speed of what comes back, as long as something does.
        changes.mark_unchanged();
        let _ = timeout(Duration::from_millis(20), changes.changed()).await;
    }
    proxy.calm();
    proxy.cut();
    until_agreed("after all", &hub, &edges).await;
    for uid in &deleted {
        assert!(wanted.document(uid).is_none(), "{uid} is back");
    }
    let harm = harm.load(Ordering::SeqCst);
    assert!(harm > 50, "{harm}");
}

fn of_size(uid: &str, bytes: usize) -> Thing {
    let mut large = thing(uid, "edge-a");
    large.spec = Some("x".repeat(bytes));
    large
}

/// C120, and what is beyond.
async fn large_messages_arrive_and_too_large_ones_fail_alone(place: Place) {
    let place = place.started().await;
    let hub = Hub::new(place.options(HUB), &store());
    let edge = Edge::new(place.options("edge-a"), "edge-a");
    for (uid, bytes) in [("small", 11_000), ("large", 300_000), ("largest", 512_000)] {
        hub.put(of_size(uid, bytes));
    }
    until(&hub.store, "large ones", is_done).await;
    let error = hub
        .client
        .publish(Action::CreateRequest, &of_size("beyond", 1_200_000))
        .await
        .unwrap_err();
    let ClientError::Publish(PublishError::TooLarge { topic, bytes, most }) = error else {
        panic!("{error:?}");
    };
    assert_eq!(topic, "/sources/hub/clusters/edge-a/spec");
    assert!(bytes > 1_200_000);
    assert_eq!(most, 1024 * 1024);
    // Nor does one that is to be sent hold up others.
    hub.put(of_size("beyond", 1_200_000));
    hub.put(thing("after", "edge-a"));
    until(&edge.store, "after", |store| {
        store.document("after").is_some()
    })
    .await;
    hub.set("beyond", "less");
    until(&hub.store, "less", is_done).await;
    for log in [&hub.log, &edge.log] {
        assert_eq!(*log.borrow(), [Happened::Subscribed]);
    }
}

/// What a broker refuses for itself, as mosquitto does what is larger than it was told to take.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_mosquitto_refuses_holds_up_nothing() {
    let Some(place) = Place::new(Kind::Mosquitto) else {
        return;
    };
    let place = place.with_line("message_size_limit 100000").started().await;
    let hub = Hub::new(place.options(HUB), &store());
    let edge = Edge::new(place.options("edge-a"), "edge-a");
    edge.subscribed().await;
    hub.subscribed().await;
    let error = hub
        .client
        .publish(Action::CreateRequest, &of_size("large", 200_000))
        .await
        .unwrap_err();
    let ClientError::Publish(PublishError::Refused { reason, .. }) = error else {
        panic!("{error:?}");
    };
    assert_eq!(reason, "PacketTooLarge");
    hub.put(of_size("large", 200_000));
    for at in 0..200 {
        let uid = format!("small-{at}");
        hub.put(thing(&uid, "edge-a"));
        until(&edge.store, &uid, |store| store.document(&uid).is_some()).await;
    }
    until_sent(|| hub.client.waiting().saturating_sub(1)).await;
    hub.set("large", "less");
    until(&hub.store, "less", is_done).await;
    assert_eq!(*hub.log.borrow(), [Happened::Subscribed]);
}

/// Presence is told to those who listen then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mosquitto_that_retains_nothing_will_do() {
    let Some(place) = Place::new(Kind::Mosquitto) else {
        return;
    };
    let place = place.with_line("retain_available false").started().await;
    let hub = Hub::new(place.options(HUB), &store());
    let edge = Edge::new(place.options("edge-a"), "edge-a");
    hub.put(thing("one", "edge-a"));
    until(&hub.store, "there", is_done).await;
    let is = |connected: bool| move |store: &Store| store.is_connected("edge-a") == Some(connected);
    until(&hub.store, "there", is(true)).await;
    let log = edge.log.borrow().clone();
    assert_eq!(losses(&log).len(), 1, "{log:?}");
    drop(edge);
    until(&hub.store, "away", is(false)).await;
}

/// C114: 5,000 works, with a broker that takes 512,000 bytes at once.
async fn thousands_of_resources_are_resynced(place: Place) {
    const MANY: usize = 5_000;
    let place = place.with_most_bytes(512_000).started().await;
    let uid = |at: usize| format!("{at:08x}-0000-4000-8000-000000000000");
    let (wanted, kept) = (store(), store());
    for at in 0..MANY {
        let wants = thing(&uid(at), "edge-a");
        let mut has = wants.clone();
        has.source = Some(HUB.to_owned());
        has.status = outcome(&has);
        wanted.put(wants);
        // The agent has not got some of them yet.
        if at % 10 != 0 {
            kept.put(has);
        }
    }
    let edge = Edge::idle(place.options("edge-a"), "edge-a", &kept, None);
    edge.subscribed().await;
    let hub = Hub::new(place.options(HUB), &wanted);
    until(&wanted, "all statuses", |store| {
        let things = store.list();
        let known = things.iter().filter(|thing| thing.status.is_some());
        known.count() == MANY - MANY / 10
    })
    .await;
    until(&kept, "the missing", |store| store.list().len() == MANY).await;
    // The other way: the agent starts with nothing.
    drop(edge);
    let empty = store();
    let edge = Edge::idle(place.options("edge-a"), "edge-a", &empty, None);
    until(&empty, "all specs", |store| store.list().len() == MANY).await;
    for log in [&hub.log, &edge.log] {
        assert_eq!(*log.borrow(), [Happened::Subscribed]);
    }
}

/// C125: whoever is thrown out says so, and does not come back at once. This mosquitto says nothing
/// to it, so that it looks like any end of a connection.
async fn two_clients_with_one_id_do_not_duel(place: Place) {
    let place = place.started().await;
    let mut options = place.options("edge-a");
    options.longest_pause = Duration::from_secs(30);
    let mut first = open(options.clone(), &[]);
    subscribed(&mut first).await;
    let mut second = open(options, &[]);
    subscribed(&mut second).await;
    let second = tokio::spawn(async move { while second.events.recv().await.is_some() {} });
    if place.kind() == Kind::Embedded {
        let (reason, retry_in) = lost(&mut first).await;
        assert_eq!(
            reason,
            "the broker ended the connection: the session was taken over: another client has the \
             same client id"
        );
        assert!(retry_in >= Duration::from_secs(5), "{retry_in:?}");
    } else {
        let mut pauses = Vec::new();
        for _ in 0..6 {
            let (reason, retry_in) = lost(&mut first).await;
            assert!(
                reason.ends_with("or another client has the same client id"),
                "{reason}"
            );
            pauses.push(retry_in);
            subscribed(&mut first).await;
        }
        assert!(pauses[5] > 10 * pauses[0], "{pauses:?}");
    }
    second.abort();
    // Comes back by itself.
    let status = outgoing("/sources/hub/clusters/edge-a/status", "?");
    while first.publisher.publish(status.clone()).await.is_err() {
        while !matches!(next(&mut first).await, BusEvent::Subscribed) {}
    }
}

/// C126: certificates that are replaced on disk are used, pairs only.
async fn certificates_are_taken_from_disk(place: Place) {
    let (old, new) = (Ca::new(), Ca::new());
    let mut place = place.with_tls(&old).started().await;
    place.write_pair("agent", &old.sign("edge-a"));
    let checks = Duration::from_millis(50);
    let options = place.certified("agent", checks);
    let topic = "/sources/+/clusters/edge-a/spec";
    let named = MqttOptions {
        client_id: "edge-a:agent".to_owned(),
        ..options.clone()
    };
    let mut agent = open(named, &[topic]);
    subscribed(&mut agent).await;
    // Another pair, the key first: the connection stays until the pair is whole.
    let second = old.sign("edge-a");
    place.write("agent.key", &second.key);
    let quiet = timeout(10 * checks, agent.events.recv()).await;
    assert!(quiet.is_err(), "half of a pair: {quiet:?}");
    place.write("agent.crt", &second.certificate);
    let (reason, _) = lost(&mut agent).await;
    assert_eq!(reason, "the certificates were replaced");
    subscribed(&mut agent).await;
    // The broker takes those of the other CA only; the pair is not news yet.
    place.kill().await;
    place.trust(&new);
    place.start().await;
    let third = new.sign("edge-a");
    place.write("agent.key", &third.key);
    loop {
        let (reason, _) = lost(&mut agent).await;
        // First it is not there, then it refuses.
        if reason.contains("alert") {
            break;
        }
    }
    place.write("agent.crt", &third.certificate);
    while !matches!(next(&mut agent).await, BusEvent::Subscribed) {}
    // And it is the agent of its cluster: what it may not write is refused.
    let status = |cluster: &str| outgoing(&format!("/sources/hub/clusters/{cluster}/status"), "?");
    agent.publisher.publish(status("edge-a")).await.unwrap();
    let refused = agent.publisher.publish(status("edge-b")).await;
    assert!(
        matches!(refused, Err(PublishError::Refused { .. })),
        "{refused:?}"
    );
    // A pair that never was one is told at the start.
    place.write("agent.key", &second.key);
    let error = Mqtt::new(options).unwrap_err().to_string();
    assert!(error.contains("do not go together"), "{error}");
}

async fn a_source_knows_who_is_there(place: Place) {
    let place = place.started().await;
    let proxy = Proxy::to(place.address()).await;
    let orderly = Edge::new(place.options("edge-a"), "edge-a");
    let dying = Edge::new(place.options_at(&proxy.broker(), "edge-b"), "edge-b");
    let staying = Edge::new(place.options("edge-c"), "edge-c");
    for edge in [&orderly, &dying, &staying] {
        edge.subscribed().await;
    }
    let wanted = store();
    let hub = Hub::new(place.options(HUB), &wanted);
    let is = |cluster: &'static str, connected: bool| {
        move |store: &Store| store.is_connected(cluster) == Some(connected)
    };
    for cluster in CLUSTERS {
        until(&wanted, cluster, is(cluster, true)).await;
    }
    drop(orderly);
    until(&wanted, "stopped", is("edge-a", false)).await;
    // Its machine is gone; it does not come back.
    proxy.rule(|_, _| Fate::Cuts);
    proxy.cut();
    until(&wanted, "died", is("edge-b", false)).await;
    assert_eq!(wanted.is_connected("edge-c"), Some(true));
    drop(hub);
    let later = store();
    let _hub = Hub::new(place.options(HUB), &later);
    until(&later, "stopped", is("edge-a", false)).await;
    until(&later, "died", is("edge-b", false)).await;
    until(&later, "staying", is("edge-c", true)).await;
}

/// A reader that does not get on is sent no more than it may have ahead; what it sends itself is
/// acknowledged all the same; and when it gets on, all is there and in order.
async fn a_slow_reader_holds_the_broker_back(place: Place) {
    const MANY: usize = 1_000;
    let place = place.started().await;
    let proxy = Proxy::to(place.address()).await;
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let mut options = place.options_at(&proxy.broker(), OPERATOR);
    options.ack_timeout = Duration::from_secs(5);
    let mut reader = open(id(options, "reader"), &["things"]);
    subscribed(&mut reader).await;
    proxy.rule(move |way, packet| {
        if (way, packet) == (Way::ToClient, PUBLISH) {
            counted.fetch_add(1, Ordering::SeqCst);
        }
        Fate::Passes
    });
    let mut writer = open(id(place.options(OPERATOR), "writer"), &[]);
    subscribed(&mut writer).await;
    for at in 0..MANY {
        let message = outgoing("things", at.to_string());
        writer.publisher.publish(message).await.unwrap();
    }
    for _ in 0..50 {
        let message = outgoing("other things", "x");
        reader.publisher.publish(message).await.unwrap();
    }
    let ahead = sent.load(Ordering::SeqCst);
    assert!((1..=100).contains(&ahead), "{ahead}");
    for at in 0..MANY {
        let message = delivery(&mut reader).await;
        assert_eq!(message.message.payload, at.to_string());
    }
    // With a connection that ends, what is ahead is still handled, and only then comes another: else
    // that one would have no room.
    for at in 0..MANY {
        let message = outgoing("things", at.to_string());
        writer.publisher.publish(message).await.unwrap();
    }
    let opened = *proxy.opened().borrow();
    proxy.cut();
    let nothing = || outgoing("other things", "x");
    while reader.publisher.publish(nothing()).await.is_ok() {}
    let mut at = 0;
    let lost = loop {
        match next(&mut reader).await {
            BusEvent::Message(message) => {
                assert_eq!(message.message.payload, at.to_string());
                at += 1;
            }
            other => break other,
        }
    };
    assert!(matches!(lost, BusEvent::Lost { .. }), "{lost:?}");
    // This mosquitto sends more than it may, once it has had a queue.
    assert!((1..MANY / 2).contains(&at), "{at}");
    subscribed(&mut reader).await;
    assert_eq!(*proxy.opened().borrow(), opened + 1);
    reader
        .publisher
        .publish(outgoing("things", "new"))
        .await
        .unwrap();
    assert_eq!(delivery(&mut reader).await.message.payload, "new");
}

/// A new agent gets a thousand works, and takes longer for them than the broker may for an
/// acknowledgement; mosquitto sends more ahead than it may.
async fn a_slow_agent_with_many_works_keeps_its_connection(place: Place) {
    let place = place.started().await;
    let hub = Hub::new(place.options(HUB), &store());
    for at in 0..1_000 {
        hub.put(thing(&format!("thing-{at}"), "edge-a"));
    }
    until_sent(|| hub.client.waiting()).await;
    let mut options = place.options("edge-a");
    // The embedded broker may hold a message up for two seconds on its way to a slow reader.
    options.ack_timeout = Duration::from_secs(6);
    let slow = Slow {
        store: store(),
        pause: Duration::from_millis(9),
    };
    let (_agent, log) = slow.agent(options, "edge-a");
    until(&hub.store, "statuses", is_done).await;
    assert_eq!(*log.borrow(), [Happened::Subscribed]);
}

/// C123: what was not acknowledged comes again, and is no news.
async fn what_comes_again_changes_nothing(place: Place) {
    let place = place.started().await;
    let proxy = Proxy::to(place.address()).await;
    let hub = Hub::new(place.options(HUB), &store());
    let edge = Edge::new(place.options_at(&proxy.broker(), "edge-a"), "edge-a");
    hub.put(thing("one", "edge-a"));
    until(&hub.store, "there", is_done).await;
    let there = |store: &Store| store.is_connected("edge-a") == Some(true);
    until(&hub.store, "presence", there).await;
    let status = || hub.store.document("one").unwrap().status.clone();
    let before = (edge.store.document("one"), status());
    let changes = *edge.store.changes().borrow();
    proxy.rule(|_, packet| match packet {
        PUBLISH => Fate::ComesTwice,
        _ => Fate::Passes,
    });
    for _ in 0..5 {
        let again = hub.store.document("one").unwrap();
        let update = hub.client.publish(Action::UpdateRequest, &again);
        update.await.unwrap();
    }
    proxy.calm();
    hub.put(thing("two", "edge-a"));
    until(&hub.store, "two", is_done).await;
    let after = (edge.store.document("one"), status());
    assert_eq!(after, before);
    // Two has come, and got its status.
    assert_eq!(*edge.store.changes().borrow(), changes + 2);
    assert_eq!(*edge.log.borrow(), [Happened::Subscribed]);
}

/// mosquitto acknowledges with 0x10 (no matching subscribers).
async fn nobody_listening_is_no_error(place: Place) {
    let place = place.started().await;
    let mut writer = open(place.options(OPERATOR), &[]);
    subscribed(&mut writer).await;
    let publisher = &writer.publisher;
    let nobody = outgoing("nobody/listens", "x");
    publisher.publish(nobody.clone()).await.unwrap();
    publisher.publish_retained(nobody).await.unwrap();
}

async fn the_config_file_of_ocm_leads_to_a_connection(place: Place) {
    let place = place.started().await;
    let file = |user: &str, password: &str| {
        format!(
            "brokerHost: {}\nusername: {user}\npassword: {password}\nkeepAlive: 30\n\
             topics:\n  sourceEvents: sources/{HUB}/clusters/+/sourceevents\n  \
             agentEvents: sources/{HUB}/clusters/+/agentevents\n",
            place.address(),
        )
    };
    let config = DriverConfig::read(&file(OPERATOR, PASSWORD)).unwrap();
    let topic = config.topics.source_events.clone();
    let mut connection = open(config.options("config"), &[&topic]);
    subscribed(&mut connection).await;
    let event = outgoing("sources/hub/clusters/edge-a/sourceevents", "x");
    connection.publisher.publish(event).await.unwrap();
    assert_eq!(delivery(&mut connection).await.message.payload, "x");
    let wrong = DriverConfig::read(&file(OPERATOR, "wrong")).unwrap();
    let (reason, retry_in) = lost(&mut open(wrong.options("wrong"), &[&topic])).await;
    assert!(
        reason.starts_with("the broker refused the connection: "),
        "{reason}"
    );
    assert!(retry_in >= Duration::from_secs(1));
}
