//! The promises of this module, on a paused clock.

use std::time::Duration;

use actix::{Actor, AsyncContext, Context, Handler, Message, MessageResult, Supervised};

use super::{Outbox, Refused, Registry, Snapshot, Stop, stop, tell};

/// Counts, panics on request, has a timer: the kind of actor that actix alone would lose.
#[derive(Debug, Default)]
struct Counter {
    count: u64,
    ticks: u64,
    capacity: usize,
}

#[derive(Debug, Message)]
#[rtype(result = "u64")]
struct Add(u64);

#[derive(Debug, Message)]
#[rtype(result = "()")]
struct Panic;

impl Actor for Counter {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        if self.capacity > 0 {
            ctx.set_mailbox_capacity(self.capacity);
        }
        ctx.run_interval(Duration::from_secs(1), |actor, _| actor.ticks += 1);
    }
}

impl Supervised for Counter {
    fn restarting(&mut self, _: &mut Self::Context) {
        *self = Self {
            capacity: self.capacity,
            ..Self::default()
        };
    }
}

impl Handler<Add> for Counter {
    type Result = u64;
    fn handle(&mut self, Add(n): Add, _: &mut Self::Context) -> u64 {
        self.count += n;
        self.count
    }
}

impl Handler<Panic> for Counter {
    type Result = ();
    fn handle(&mut self, _: Panic, _: &mut Self::Context) {
        panic!("asked to");
    }
}

impl Handler<Snapshot> for Counter {
    type Result = MessageResult<Snapshot>;
    fn handle(&mut self, _: Snapshot, _: &mut Self::Context) -> Self::Result {
        Snapshot::of(&serde_json::json!({ "count": self.count, "ticks": self.ticks }))
    }
}

impl Handler<Stop> for Counter {
    type Result = ();
    fn handle(&mut self, _: Stop, ctx: &mut Self::Context) {
        actix::ActorContext::stop(ctx);
    }
}

async fn assert_all_end(registry: &Registry) {
    assert_eq!(registry.ended(Duration::from_secs(1)).await, Ok(()));
}

#[actix::test]
async fn a_panic_costs_one_message_and_no_address() {
    tokio::time::pause();
    let registry = Registry::new();
    let addr = registry.start("Counter", "a", Counter::default());
    assert_eq!(addr.send(Add(1)).await, Ok(1));
    let (panicked, after) = tokio::join!(addr.send(Panic), addr.send(Add(5)));
    assert!(
        panicked.is_err(),
        "the caller of the panicking message sees a closed reply"
    );
    assert_eq!(
        after,
        Ok(5),
        "the next message meets a fresh state in the same mailbox"
    );
    assert!(addr.connected());

    let report = registry.report(Duration::from_secs(1)).await;
    assert_eq!(report.len(), 1);
    assert_eq!(
        (report[0].restarts, report[0].last_panic.as_deref()),
        (1, Some("asked to"))
    );
    assert_eq!(report[0].state["count"], 5);
    assert_eq!(registry.panics(), 1);

    assert!(stop(&addr, Duration::from_secs(1)).await);
    assert_all_end(&registry).await;
}

#[actix::test]
async fn a_restart_replaces_the_timers_of_the_old_life() {
    tokio::time::pause();
    let registry = Registry::new();
    let addr = registry.start("Counter", "a", Counter::default());
    let _ = addr.send(Panic).await;
    assert_eq!(addr.send(Add(0)).await, Ok(0));
    tokio::time::sleep(Duration::from_millis(10_500)).await;
    let state = addr.send(Snapshot).await.unwrap();
    assert_eq!(state["ticks"], 10, "one timer runs, not two");
    stop(&addr, Duration::from_secs(1)).await;
    assert_all_end(&registry).await;
}

#[actix::test]
async fn repeated_panics_back_off_and_leave_siblings_alone() {
    tokio::time::pause();
    let registry = Registry::new();
    let bad = registry.start("Counter", "bad", Counter::default());
    let good = registry.start("Counter", "good", Counter::default());
    let begin = tokio::time::Instant::now();
    for _ in 0..4 {
        let _ = bad.send(Panic).await;
        assert_eq!(good.send(Add(1)).await.is_ok(), bad.connected());
    }
    assert_eq!(bad.send(Add(0)).await, Ok(0));
    // 100 + 200 + 400 + 800 ms, each less up to a quarter.
    assert!(
        begin.elapsed() >= Duration::from_millis(1_125),
        "{:?}",
        begin.elapsed()
    );
    assert_eq!(good.send(Add(0)).await, Ok(4));
    stop(&bad, Duration::from_secs(1)).await;
    stop(&good, Duration::from_secs(1)).await;
    assert_all_end(&registry).await;
}

#[actix::test]
async fn tell_respects_the_mailbox_limit_and_gives_the_message_back() {
    tokio::time::pause();
    let registry = Registry::new();
    let addr = registry.start(
        "Counter",
        "a",
        Counter {
            capacity: 2,
            ..Counter::default()
        },
    );
    assert_eq!(addr.send(Add(0)).await, Ok(0)); // `started` has set the capacity
    let mut refused = 0;
    for _ in 0..10 {
        match tell(&addr, Add(1)) {
            Ok(()) => {}
            Err(Refused::Full(Add(1))) => refused += 1,
            Err(other) => panic!("{other:?}"),
        }
    }
    assert!(
        refused >= 7,
        "a mailbox of 2 and one sender's slot take 3 at most, refused {refused}"
    );
    stop(&addr, Duration::from_secs(1)).await;
    assert_all_end(&registry).await;
    assert!(matches!(tell(&addr, Add(1)), Err(Refused::Closed(Add(1)))));
}

#[actix::test]
async fn an_outbox_delivers_the_newest_of_what_was_refused() {
    tokio::time::pause();
    let registry = Registry::new();
    let addr = registry.start(
        "Counter",
        "a",
        Counter {
            capacity: 1,
            ..Counter::default()
        },
    );
    addr.send(Add(0)).await.unwrap();
    while tell(&addr, Add(0)).is_ok() {}

    let mut outbox = Outbox::default();
    outbox.tell("k", &addr, Add(100));
    outbox.tell("k", &addr, Add(7));
    assert!(!outbox.is_empty());
    addr.send(Add(0)).await.unwrap(); // drains the mailbox
    outbox.flush(|key| (*key == "k").then(|| addr.clone()));
    assert!(outbox.is_empty());
    assert_eq!(addr.send(Add(0)).await, Ok(7));

    stop(&addr, Duration::from_secs(1)).await;
    assert_all_end(&registry).await;
}

#[actix::test]
async fn what_does_not_end_is_named() {
    tokio::time::pause();
    let registry = Registry::new();
    let addr = registry.start("Counter", "leaked", Counter::default());
    // The timer keeps it alive although nobody can reach it any more.
    drop(addr);
    let left = registry.ended(Duration::from_secs(5)).await;
    assert_eq!(left, Err(vec!["Counter/leaked".to_owned()]));
}

#[actix::test]
async fn one_that_ends_last_can_wait_for_all_others() {
    tokio::time::pause();
    let registry = Registry::new();
    let last = registry.start("Counter", "last", Counter::default());
    let other = registry.start("Counter", "other", Counter::default());
    let limit = Duration::from_secs(5);
    let both = ["Counter/last", "Counter/other"].map(str::to_owned);
    assert_eq!(registry.ended_but(1, limit).await, Err(both.into()));
    assert!(stop(&other, limit).await);
    assert_eq!(registry.ended_but(1, limit).await, Ok(()));
    assert!(last.connected());
    assert!(stop(&last, limit).await);
    assert_all_end(&registry).await;
}
